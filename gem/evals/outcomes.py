"""Outcomes: the results of a stored run by task and sample, in the form for comparing runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from gem.codec import task_key
from gem.errors import BadArgument, StoreError
from gem.evals.environments import name_environments, name_tasks
from gem.evals.results import SAME, reports_success, who
from gem.evals.usage import Prices, count_uncounted, spent_on, tokens_of
from gem.record import Episode, Verdict
from gem.rollout import EpisodeStore
from gem.rollout.index import Entry
from gem.rollout.store import find_store
from gem.statistics.combining import group_shared
from gem.statistics.intervals import are_rates
from gem.tasks.sources import digest_of, is_place

Metric = Literal["success", "return"]
METRICS: tuple[Metric, ...] = ("success", "return")

LARGEST = 1e100
"""Returns of this size or more, and NaN, are left out: they have no useful mean or variance."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one sample of a task.

    `task` is a key of environment, keywords, wrappers and seed: equal if they are equal, for any agent. For
    an episode that branched off another one (`Job.start`) it also has the branch point. `repeat` numbers
    several episodes with the same task and sample number. `source` is equal for a task, or row of data, in
    several environments: with other prompts, keywords or tools. `success` and `reward` (the return) are None
    without verdict; `success` is also None if the environment does not report it. `instance` is the key that
    tasks share if they differ only by their seeds; samples of one instance are one cluster. `seed` and the
    id of the `episode` say where to look. `seats`: those of a game of several, if the outcome is of no single
    one: its `reward` is then the mean over them. `tokens`, `cpu_s` (of a program) and `usd` are what it cost;
    None where that was not read or is unknown.
    """

    env: str
    task: str
    sample: int
    repeat: int
    success: bool | None
    reward: float | None
    instance: str = ""
    seed: int | None = None
    episode: str = ""
    tokens: int | None = None
    cpu_s: float | None = None
    usd: float | None = None
    seats: tuple[str, ...] = ()
    source: str = ""

    @property
    def cluster(self) -> str:
        """The cluster of correlated outcomes: the instance if there is one, else the task."""
        return self.instance or self.task

    def value(self, metric: Metric) -> float | None:
        """Return the value to compare; None if there is none, or for a return beyond LARGEST."""
        if metric == "return":
            return None if self.reward is None or not abs(self.reward) < LARGEST else self.reward
        return None if self.success is None else float(self.success)


def have_rates(outcomes: Iterable[Outcome], metric: Metric) -> bool:
    """Return whether the values to compare are successes, or returns that are rates; see are_rates()."""
    known = [(value, each.success) for each in outcomes if (value := each.value(metric)) is not None]
    return metric == "success" or are_rates([value for value, _ in known], [success for _, success in known])


def advise_on_seats(outcomes: Iterable[Outcome]) -> str:
    """Return the option for each seat of the games of several seats; '' where there is none.

    The environments are named where they differ in their seats.
    """
    outcomes = list(outcomes)
    games = {outcome.env: outcome.seats for outcome in outcomes if outcome.seats}
    options = {env: " or ".join(f"--seat {seat}" for seat in seats) for env, seats in games.items()}
    if len({*options.values()}) == 1 and all(outcome.seats for outcome in outcomes):
        return next(iter(options.values()))
    return "; ".join(f"in {env} {option}" for env, option in options.items())


def check_returns(outcomes: Iterable[Outcome]) -> list[str]:
    """Return warnings about returns that are means over seats.

    Raises:
        BadArgument: where no environment has another return, and none differs, as where one seat wins what
            the others lose.
    """
    outcomes = list(outcomes)
    warnings, useless = [], []
    envs = dict.fromkeys(outcome.env for outcome in outcomes)
    for env in envs:
        own = [outcome for outcome in outcomes if outcome.env == env and outcome.reward is not None]
        if not (advice := advise_on_seats(own)):
            continue
        returns = [outcome.reward for outcome in own if outcome.reward is not None]
        same = max(returns) - min(returns) < SAME and any(outcome.success is None for outcome in own)
        why = f", which is {returns[0]:.3g} in every episode here" if same else ""
        warnings.append(f"{env}: the return is the mean over the seats{why}; to compare one seat, {advice}.")
        useless += [env] * same
    if useless == [*envs]:
        raise BadArgument(" ".join(warnings))
    return warnings


@dataclass(frozen=True, slots=True)
class RunOutcomes:
    """A stored run: its name, its agent, the outcome of each sample, the number of damaged lines.

    `address`: where its models were asked; empty for models in this process, and runs of earlier versions.
    """

    name: str
    agent: str
    outcomes: tuple[Outcome, ...]
    damaged: int = 0
    address: str = ""


def read_run(
    path: str | Path, seat: str | None = None, *, costs: bool = False, prices: Prices | None = None
) -> RunOutcomes:
    """Return the outcomes of a run: a file of episodes, or a folder with ``episodes.jsonl`` in it.

    Of several attempts only the last one counts (`EpisodeStore.latest`). Only the tasks of episodes are read,
    and the first one of each environment for its seats, unless a seat is given.

    Args:
        path: the file or folder.
        seat: the seat whose success and return are used; None: the episode's success, and the mean return
            over the seats.
        costs: read what each sample cost too, which takes the whole episodes.
        prices: with them, the dollars too.

    Raises:
        BadArgument: when the file has no episodes, has the same tasks played by several agents, or an
            episode lacks the seat.
        StoreError, SchemaMismatch: when the store cannot be read.
    """
    file = find_store(Path(path))
    outcomes: list[tuple[Outcome, Entry]] = []
    stops: dict[str, set[str]] = {}  # of the episodes with a verdict, by the key of the environment
    played: dict[tuple[str, int], list[str]] = {}  # the settings, by task and sample
    damaged = 0
    with EpisodeStore(file, read_only=True) as store:
        runs = {run.id: run for run in store.runs}
        settings = {run.id: repr(run.settings) for run in runs.values()}
        entries = store.latest()
        if not store.confirm(entries):
            entries = store.latest()
        names = name_environments(store)
        seats: dict[str, tuple[str, ...]] = {}
        for entry in entries:
            try:
                outcome, stop = _outcome(store, entry, seat, names)
                if seat is None and entry.verdict == Verdict.SCORED:
                    if entry.env not in seats:
                        episode = store[entry.number]
                        seats[entry.env] = episode.seats if episode.several else ()
                    outcome = replace(outcome, seats=seats[entry.env])
                if costs:
                    outcome = _with_costs(outcome, store[entry.number], prices)
            except StoreError:
                damaged += 1
                continue
            if entry.verdict == Verdict.SCORED:
                stops.setdefault(entry.env, set()).add(stop)
            before = played.setdefault((outcome.task, outcome.sample), [])
            outcomes.append((replace(outcome, repeat=len(before)), entry))
            before.append(settings.get(entry.run, entry.run))
    agents = ", ".join(sorted({who(run) for run in runs.values()} - {""}))
    if any(len({*each}) > 1 for each in played.values()):
        raise BadArgument(
            f"{file} holds the same tasks played with several settings (agents: {agents}); accepted: one "
            "agent. Evaluate each agent into its own folder."
        )
    if not outcomes:
        lost = f" that can be read; {damaged} are damaged" if damaged else ""
        raise BadArgument(f"{file} holds no episode{lost}; compare runs that were played.")
    silent = {env for env, own in stops.items() if not reports_success(own, several=bool(seats.get(env)))}
    grouped = [
        (replace(outcome, success=None) if entry.env in silent else outcome, entry.group)
        for outcome, entry in outcomes
    ]
    addresses = ", ".join(sorted({run.addresses for run in runs.values()} - {""}))
    return RunOutcomes(str(path), agents, _with_instances(grouped), damaged, addresses)


def _outcome(
    store: EpisodeStore, entry: Entry, seat: str | None, names: Mapping[str, str]
) -> tuple[Outcome, str]:
    """Return an outcome, and how its episode ended for the seat."""
    if not entry.id:
        raise StoreError("a damaged line")
    made = store.task(entry.number)
    task, success, reward, stop = task_key(made), entry.success, entry.reward, entry.stop
    begun, instance = task, ""
    if b'"origin":' in store.line(entry.number) and (origin := store[entry.number].origin) is not None:
        begun, instance = f"{task} behind turn {origin.turns} of {origin.episode}", task
    if entry.verdict != Verdict.SCORED:
        success = reward = None
    elif seat is not None:
        episode = store[entry.number]
        if seat not in episode.ends:
            raise BadArgument(
                f"{entry.spec} has no seat {seat!r}; it has {', '.join(map(repr, episode.ends)) or 'none'}."
            )
        success, reward, stop = episode.succeeded(seat), episode.reward(seat), episode.stop_of(seat)
    env = names.get(entry.env, entry.spec)
    source = f"{name_tasks(made.spec, made.kwargs)} seed {made.seed}"
    outcome = Outcome(
        env, begun, entry.sample, 0, success, reward, instance, made.seed, entry.id, source=source
    )
    return outcome, stop


def group_environments(outcomes: Iterable[Outcome], envs: Sequence[str]) -> list[int]:
    """Return a number for each environment, equal for those that share tasks (`Outcome.source`)."""
    sources: dict[str, set[str]] = {env: set() for env in envs}
    for outcome in outcomes:
        if outcome.source and outcome.env in sources:
            sources[outcome.env].add(outcome.source)
    return group_shared([*sources.values()])


def _with_costs(outcome: Outcome, episode: Episode, prices: Prices | None) -> Outcome:
    """Return an outcome with the tokens of all models and their price, and the CPU seconds of a program."""
    programs = [end.info.get("program") for end in episode.ends.values()]
    seconds = [about.get("cpu_s") for about in programs if isinstance(about, Mapping)]
    known = [second for second in seconds if isinstance(second, int | float)]
    spent, cpu_s = spent_on([episode]), sum(known) if known else None
    whole = not count_uncounted(spent)
    usd = prices.cost(spent) if whole and prices is not None else None
    return replace(outcome, tokens=tokens_of(spent) if whole else None, cpu_s=cpu_s, usd=usd)


def _with_instances(outcomes: Sequence[tuple[Outcome, str]]) -> tuple[Outcome, ...]:
    """Return the outcomes with `instance` set.

    Samples of an instance share their group, and each has its own number, with any seed. A group in which
    several tasks have the same number is not an instance: it comes from merged stores with equal group names,
    or from seeds in another order. All samples of a task are one cluster, so a task in several groups, or in
    such a one, is in no instance.
    """
    tasks: dict[tuple[str, str, int], set[str]] = {}
    for outcome, group in outcomes:
        tasks.setdefault((outcome.env, group, outcome.sample), set()).add(outcome.task)
    merged = {key[:2] for key, own in tasks.items() if len(own) > 1}
    groups: dict[str, set[str]] = {}
    for outcome, group in outcomes:
        groups.setdefault(outcome.cluster, set()).add("" if (outcome.env, group) in merged else group)
    return tuple(
        replace(outcome, instance=group) if group and groups[outcome.cluster] == {group} else outcome
        for outcome, group in outcomes
    )


def share_names(a: Sequence[Outcome], b: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes of `b`, with the names that `a` gives to the same tasks and their environments.

    Where both runs have a digest of an environment's files, these may lie in another folder. Where only one
    has it, as an earlier version took none, their tasks are the same ones. An equal task is found first, and
    one that may be any of several is none of them.
    """
    same: dict[str, Outcome] = {}  # by the task of b
    for write in (str, _without_folders, _without_digest):
        taken = {outcome.task for outcome in same.values()}
        alike: dict[str, tuple[dict[str, Outcome], dict[str, Outcome]]] = {}
        for side, outcomes, known in ((0, a, taken), (1, b, same)):
            for outcome in outcomes:
                if outcome.task not in known:
                    alike.setdefault(write(outcome.task), ({}, {}))[side][outcome.task] = outcome
        for key, (of_a, of_b) in alike.items():
            if len(of_a) == len(of_b) == 1:
                (one,), (other,) = of_a.values(), of_b
                if write is not _without_digest or key in (one.task, other):
                    same[other] = one
    names = {outcome.env: same[outcome.task].env for outcome in b if outcome.task in same}
    return [
        replace(
            outcome,
            env=names.get(outcome.env, outcome.env),
            task=same.get(outcome.task, outcome).task,
        )
        for outcome in b
    ]


def _without_folders(task: str) -> str:
    """Return a task's key without the folders of the files whose digest it has."""
    if '"digest":' not in task:
        return task
    wire, end = _READER.raw_decode(task)
    kwargs = wire.get("kwargs", {})
    if kwargs.get("digest", _NO_FILES) == _NO_FILES:
        return task
    if "few_shot" not in kwargs or is_place(str(kwargs.get("data"))):  # else one may be the hub's
        kind, colon, name = wire["spec"].partition(":")
        wire["spec"] = kind + colon + Path(name).name
        for keyword in ("name", "data", "few_shot", "dataset", "dataset_name"):
            if isinstance(value := kwargs.get(keyword), str) and (keyword != "few_shot" or is_place(value)):
                kwargs[keyword] = Path(value).name
    return json.dumps(wire) + task[end:]


def _without_digest(task: str) -> str:
    return _DIGEST.sub("", task)


_READER = json.JSONDecoder()

_NO_FILES = digest_of()
"""The digest where all data are the hub's."""

_DIGEST = re.compile(r'"digest":"[0-9a-f]{16}",|,?"digest":"[0-9a-f]{16}"')
"""The digest of files in a task's key, with one comma."""
