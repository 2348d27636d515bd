"""Evaluate agents: on one environment, or on those of a suite, with stores, a budget, gates and a scale."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from gem import seeding
from gem.agents.base import LoopThread, answers_one_by_one
from gem.agents.named import (
    AgentByName,
    AgentSettings,
    is_named,
    make_agent,
    without_address,
)
from gem.agents.seats import make_others
from gem.errors import (
    AgentUnavailable,
    BadArgument,
    GemError,
    MissingData,
    MissingExtra,
    NoSolver,
    StoreError,
    check_argument,
)
from gem.evals.gates import Gate, refuse_unknown
from gem.evals.groups import Groups, find_groups
from gem.evals.instances import EPISODES, Count, Instances, find_seeds
from gem.evals.results import EnvResult, summarise
from gem.evals.scorecard import REFERENCES, Scored
from gem.evals.stopping import Stopping
from gem.evals.suite import Entry, Suite, load_suite
from gem.evals.suite_result import SuiteResult, entry_to_json
from gem.evals.suite_stores import EPISODES_FILE, Attempts, CountedStore, open_store
from gem.evals.usage import Budget, Prices, spent_on, together
from gem.files import read_json
from gem.graders.functions import ping_judges
from gem.hiding import hide_credentials
from gem.hosts.ray_cluster import Cluster
from gem.naming import without_digest
from gem.record import Agent, Episode, Limits
from gem.registry import AnyEnv, Maker, spec_named
from gem.rollout import EpisodeStore, Job, RayRunner, RunOptions, rollout, rollout_async
from gem.rollout.options import check_names
from gem.rollout.ray import RETRIES
from gem.rollout.rewards import find_reward, measure_reward
from gem.rollout.runner import BaseRunner, check_actor
from gem.rollout.trials import name_job
from gem.sandbox.base import SandboxFailed
from gem.sandbox.choice import check_needs
from gem.specs import TaskRef
from gem.statistics import Interval, normalised

T = TypeVar("T")

Players: TypeAlias = "str | Agent | Sequence[str] | Mapping[str, str | Agent | AgentByName]"
"""Agents to measure: names, or a mapping from labels to agents or names."""


def evaluate(
    agent: Agent | Mapping[str, Agent] | BaseRunner,
    env: AnyEnv,
    *,
    episodes: Count = None,
    samples: int = 1,
    seed: int = 0,
    seeds: Sequence[int] | None = None,
    instances: Instances | None = None,
    exactly: bool = False,
    budget: int | None = None,
    stop: Stopping | None = None,
    reward: str = "",
    seat: str | None = None,
    by: Sequence[str] | Groups = (),
    options: RunOptions | None = None,
    **keywords: Any,
) -> EnvResult:
    """Play episodes of an environment and return the figures; intervals are at 95%.

    Each task of a data set is played once, in the order of the rows; `episodes` of them are drawn without
    repetition. Other environments make as many tasks as wanted, 200 if left out. Success has the Wilson
    interval. Several `samples` of a task start from the same seed, and the intervals are clustered by task
    (`gem.statistics.rate_interval` and `mean_interval`). If `instances` are given, they are played in turn,
    and the intervals are clustered by instance, unless these are all instances. An agent that answers each
    ask separately, as an endpoint does, plays each episode at its own pace, in another thread; other agents
    play in rounds.

    Args:
        agent: the agent of every seat; a mapping from seats to agents; or a Runner or RayRunner, which has
            its own agent and options.
        env: the environment to play: an id, a class, or what else `gem.make` takes.
        episodes: the number of tasks, with `samples` episodes each, or "all"; see `find_seeds`. With
            `instances`, rounded up to equally many of each.
        samples: the number of episodes per task; not with `instances`.
        seed: the seed that all tasks are derived from.
        seeds: the seeds of the tasks, in place of `episodes` derived from `seed`: ``range(n)`` plays each of
            a data set's n tasks once; a seed of n or more would repeat one.
        instances: the instances to play, in place of seeds derived from `seed`.
        exactly: the agent is deterministic and `instances` are all instances. So the figures are exact, and
            their intervals are single points (`Interval.exact`).
        budget: the turns that an episode may take; None: unknown.
        stop: start no more tasks once this `Stopping` has enough; `episodes` is then the maximum. Tasks that
            were not started do not count as requested. The interval of success is that of `stop`, which is
            valid with early stopping; the other intervals are not corrected for it. Make a Runner with the
            functions that `stop.beside` returns.
        reward: the name of a reward that is measured beside the environment's, and may compare the samples of
            a task; see `gem.rollout.rewards.measure_reward`.
        seat: in a game of several seats, the seat whose success, return and turns are the figures; None: all
            seats together. `agent` says who plays it, and who the others.
        by: columns of the data: `EnvResult.groups` has the figures for each of their values; or what
            `find_groups` returns. Not with `instances`.
        options: the settings of the play. Jobs that `admit` refused count as unplayed. With `resume`, the
            figures are the same as without the interruption.
        **keywords: fields of RunOptions, such as ``limits`` or ``store``, which replace those of `options`.

    Raises:
        BadArgument: for no episodes, or a Runner with its own jobs. UnknownArgument: for a keyword that is no
            field of RunOptions. UnknownEnv, MissingExtra: when the environment cannot be made. NoSolver: when
            the agent is the solver or the random actor, and the environment has none. AgentUnavailable: when
            the agent can answer no request; ended episodes are in the store. SchemaMismatch: with `resume`,
            if the store has these episodes with other settings.
    """
    if isinstance(agent, BaseRunner):
        _check_runner(agent, options, keywords)
    if not isinstance(env, str | TaskRef | Maker):
        env = Maker(env)
    check_argument("episodes", episodes, not isinstance(episodes, int) or episodes >= 1, "1 or more")
    check_argument(
        "samples",
        samples,
        samples >= 1 and (samples <= 1 or instances is None),
        "1 or more, and 1 where instances are given",
    )
    if stop is not None and (instances is not None or stop.samples != samples):
        raise BadArgument(
            f"stop is for {stop.samples} samples of each task; accepted: as many as are played ({samples}), "
            "without instances."
        )
    if stop is not None and stop.seat != seat:
        raise BadArgument(f"stop looks at the seat {stop.seat!r}; accepted: the measured one, {seat!r}.")
    check_argument("by", by, not by or instances is None, "none where instances are given")
    if instances is not None:
        seeds = ()
    elif seeds is None:
        seeds = find_seeds(_maker(env), episodes, seed)
    check_argument("seeds", seeds, len({*seeds}) == len(seeds), "each seed once; samples play it again")
    groups = by if isinstance(by, Mapping) else find_groups(_maker(env), seeds, by)
    settings = agent.options if isinstance(agent, BaseRunner) else RunOptions.merge(options, keywords)
    if instances is None:
        jobs = _make_jobs(env, seeds, samples, settings)
        if stop is not None:
            stop.expect(dict.fromkeys(job.group for job in jobs))
    else:
        jobs = _jobs(env, episodes if isinstance(episodes, int) else EPISODES, instances)
    if reward:
        find_reward(reward, samples > 1)
    if isinstance(agent, BaseRunner):
        played = agent.play(jobs)
    else:
        played = _play(jobs, agent, settings, stop)
    check_actor(played)
    if reward:
        played = measure_reward(reward, played, settings.store)
    # All instances are not a sample: they are strata, and only the play is random.
    drawn = samples > 1 or (instances is not None and not instances.complete)
    enough = stop is not None and stop.enough

    def figures(name: str, jobs: Sequence[Job], of: Sequence[Episode]) -> EnvResult:
        unplayed = 0 if enough else len(jobs) - len(of)
        return summarise(
            name,
            of,
            clustered=drawn,
            exactly=exactly,
            budget=budget,
            unplayed=unplayed,
            samples=samples,
            seat=seat,
        )

    result = figures(_name(env), jobs, played)
    parts = {
        name: figures(name, [job for job in jobs if job.seed in own], [e for e in played if e.seed in own])
        for name, own in groups.items()
    }
    result = replace(result, groups=parts)
    if stop is None or stop.interval is None or result.success is None:  # or no task has ended
        return result
    return replace(result, success=stop.interval)


def _check_runner(runner: BaseRunner, options: RunOptions | None, keywords: Mapping[str, Any]) -> None:
    """Refuse options for a runner, which has its own, and one with jobs of its own."""
    check_names(keywords)
    given = {name for name, value in keywords.items() if value not in (None, False, "auto")}
    if options is not None or given - {"concurrency"}:
        raise BadArgument(
            "a Runner has its own limits, host, store, resume, admit, on_episode; leave them out."
        )
    if runner.submitted:
        raise BadArgument(f"{runner.submitted} jobs were submitted to the runner; play them first.")


def _play(
    jobs: Sequence[Job], agent: Agent | Mapping[str, Agent], options: RunOptions, stop: Stopping | None
) -> list[Episode]:
    options = _add_stop(options, stop)
    if not answers_one_by_one(agent):
        return rollout(jobs, agent, options=options)
    with closing(LoopThread()) as loop:  # no episode waits for the slowest, and each is stored at its end
        return loop.run(rollout_async(jobs, agent, options=options))


def _add_stop(options: RunOptions, stop: Stopping | None) -> RunOptions:
    """Return options with which a runner also asks and tells `stop`."""
    if stop is None:
        return options
    admit, on_episode = stop.beside(options.admit, options.on_episode)
    return replace(options, admit=admit, on_episode=on_episode)


def _make_jobs(
    env: str | TaskRef | Maker, seeds: Sequence[int], samples: int, settings: RunOptions
) -> list[Job]:
    """Return the jobs of tasks, whose groups are their seeds: their places differ between evaluations.

    Earlier versions stored the place as the group. Such a task keeps it; of several with one place, the last.
    """
    stored: dict[str, int] = {}
    if settings.resume and isinstance(settings.store, EpisodeStore):
        wanted = {*seeds}
        for entry in settings.store.latest(superseded=True):
            by_place = entry.group.isdecimal() and entry.seed in wanted
            if by_place and entry.job == name_job(Job(env, entry.seed, entry.group)):
                stored[entry.group] = entry.seed
    places = {seed: place for place, seed in stored.items()}
    return [
        Job(env, seed, places.get(seed, f"seed {seed}"), sample)
        for seed in seeds
        for sample in range(samples)
    ]


def _jobs(env: str | TaskRef | Maker, episodes: int, instances: Instances) -> list[Job]:
    return [
        Job(env, seeds[sample % len(seeds)], group=str(number), sample=sample)
        for sample in range(-(-episodes // len(instances.seeds)))
        for number, seeds in enumerate(instances.seeds)
    ]


def _maker(env: str | TaskRef | Maker) -> Maker:
    return env if isinstance(env, Maker) else Maker(env)


def _name(env: str | TaskRef | Maker) -> str:
    if isinstance(env, str):
        return env
    return env.spec if isinstance(env, TaskRef) else env.spec.id


# -- suites


@dataclass(frozen=True, kw_only=True)
class SuiteOptions:
    """How `play_suite` plays, what it stores and what it checks. What is played is in the `Suite`.

    `out`: the folder for episodes, result.json, report.md and junit.xml. Episodes that are stored there are
    not played again. None: nothing is stored.
    `retry_failed`: play stored episodes that have no verdict again; needs `out`.
    `gates`: conditions, as ``success>=0.8``; see `gem.evals.gates.Gate`.
    `prices`: the prices of tokens, by model; then the figures have costs.
    `budget_tokens`, `budget_usd`: start no episode that is expected to exceed this total; see `Budget`.
    `normalise`: also play random and solver once on each task, for the return on a scale where random is 0
    and the solver is 1.
    `seat`: in a game of several seats, the seat of the measured agent, whose success and return are the
    figures; the agent plays all seats if None. Not with `normalise`.
    `others`: with `seat`, who plays the other seats: an agent or its name; random if None.
    `reward`: the name of a reward that is measured beside the environments'; see `evaluate`.
    `by`: columns of the data whose values have figures of their own, in the environments that have them.
    `host`: where environments run; see `gem.rollout.Runner`. `call_s`: seconds for one call of an
    environment, on hosts that can end a call (thread, process).
    `ray`: the address of a Ray cluster to play on; see `gem.hosts.ray_cluster.Cluster`. Named agents are made
    on its nodes.
    `make_agent`: makes the agents that are given by name.
    `command`: the words after ``gem-gym eval`` that repeat the evaluation, for the files.
    """

    out: str | Path | None = None
    retry_failed: bool = False
    gates: Sequence[str] = ()
    prices: Prices | None = None
    budget_tokens: int | None = None
    budget_usd: float | None = None
    normalise: bool = False
    seat: str | None = None
    others: str | Agent | None = None
    reward: str = ""
    by: Sequence[str] = ()
    host: str = "auto"
    call_s: float | None = None
    ray: str | None = None
    make_agent: Callable[[str, AgentSettings], Agent] = make_agent
    command: Sequence[str] = ()


class SuiteEvents:
    """What happens while a suite is played; override the methods that you need, which do nothing here."""

    def on_begin(self, result: SuiteResult) -> None:
        """The evaluation begins; `result` gets its figures while it is played."""

    def on_play(self, label: str, agent: str, episodes: int) -> None:
        """An agent begins to play an environment; `agent` is empty if only one is measured."""

    def on_episode(self, episode: Episode) -> None:
        """An episode has ended, or was read from the store."""

    def on_row(self, agent: str, row: Scored) -> None:
        """The figures of an agent on an environment are in the result."""

    def on_message(self, text: str) -> None:
        """There is something to know that is in no figure."""

    def on_stop(self, error: BaseException, why: str) -> None:
        """An error ends the evaluation early; `why` is the reason that the files will have."""


def play_suite(
    suite: Suite | str | Path,
    agents: Players = (),
    options: SuiteOptions | None = None,
    events: SuiteEvents | None = None,
) -> SuiteResult:
    """Evaluate agents on the environments of a suite, each with the same seeds; see also `evaluate`.

    Agents that are made here, from names, are closed at the end.

    Args:
        suite: a Suite, a TOML file, or the name of a suite that comes with gem.
        agents: an agent or its name, several names, or a mapping from labels to agents or names; by default
            the agents of the suite, or else random.
        options: how it is played and stored.
        events: gets what happens meanwhile.

    Raises:
        BadArgument: for options that do not fit the suite or exclude one another.
        MissingData, MissingExtra, SandboxFailed, NoSolver: when an environment cannot be played here, if the
            suite has no name; that of a named suite is reported in its row.
        StoreError: when `out` cannot be written, or another evaluation writes there.
        AgentUnavailable: when an agent can answer no request. What has ended is stored.
    """
    with ExitStack() as last:
        if not isinstance(suite, Suite):
            suite = last.enter_context(closing(load_suite(str(suite))))
        run = _SuiteRun(suite, agents, options or SuiteOptions(), events or SuiteEvents(), last)
        run.play()
        return run.result


@dataclass(frozen=True)
class _Tasks:
    """The seeds of an environment's tasks, or why there are none here, and a remark on their number."""

    entry: Entry
    label: str
    seeds: Sequence[int] = ()
    missing: GemError | None = None
    note: str = ""
    groups: Groups = field(default_factory=dict)


class _SuiteRun:
    """One evaluation: what it plays with, and its result."""

    def __init__(
        self, suite: Suite, agents: Players, options: SuiteOptions, events: SuiteEvents, last: ExitStack
    ) -> None:
        """Check everything, make the agents and open the stores; nothing is played yet."""
        self.suite, self.options, self.events, self.last = suite, options, events, last
        blank = options.out is not None and not str(options.out).strip()
        check_argument("out", options.out, not blank, "a folder, or None")
        self.out = out = None if options.out is None else Path(options.out)
        gates = [Gate.parse(text) for text in options.gates]
        players = _label(agents or suite.agents or "random")
        earlier = self._read_earlier()
        self._report_changed_files(earlier)
        self._refuse_other(earlier, players)
        labels = [entry.label for entry in suite.entries]
        samples = {"": min(entry.samples for entry in suite.entries)}
        for entry in suite.entries:
            for place in filter(None, (entry.label, entry.category)):
                samples[place] = min(samples.get(place, entry.samples), entry.samples)
        if options.reward:  # before anything is played
            find_reward(options.reward, samples[""] > 1)
        if options.normalise and options.seat is not None:
            raise BadArgument(
                f"the scale of --normalise is of {' and '.join(REFERENCES)} in every seat, and --seat "
                "measures one; leave out one of the two."
            )
        if options.retry_failed and out is None:
            raise BadArgument(
                "--retry-failed plays stored episodes again; name their folder by --out FOLDER."
            )
        self.tasks = self._add_groups(
            [self._find_tasks(*each) for each in zip(suite.entries, labels, strict=True)]
        )
        groups = dict.fromkeys(name for each in self.tasks for name in each.groups)
        refuse_unknown(gates, samples, groups, options.prices is not None)
        if options.ray is not None:
            last.enter_context(Cluster(options.ray))
        self.agents = {label: self._make(agent) for label, agent in players.items()}
        self._check_prices(*self.agents.values())
        self.budget = None
        if options.budget_tokens is not None or options.budget_usd is not None:
            self.budget = Budget(options.budget_tokens, options.budget_usd, options.prices)
        episodes = sum(len(tasks.seeds) * tasks.entry.samples for tasks in self.tasks)
        self.result = SuiteResult(
            suite,
            players,
            episodes * len(players),
            gates=gates,
            prices=options.prices,
            budget=self.budget,
            out=out,
            command=options.command,
        )
        events.on_begin(self.result)
        self.stores = {name: self._open_store(name) for name in self.agents}
        self.resumed = {
            name: store
            for name, store in self.stores.items()
            if isinstance(store, CountedStore) and len(store)
        }
        self.counted: dict[str, set[tuple[str, int]]] = {name: set() for name in self.agents}
        self.references = {  # apart from the stores of measured agents of these names
            name: None if out is None else open_store(last, out / "references" / name, name, alone=True)
            for name in REFERENCES
            if options.normalise
        }
        stored = sum(len(each.latest(superseded=True)) for each in self.resumed.values())
        if not stored:  # else not before the store accepts it, as it must not replace another one
            self.result.write_command()
        if options.ray is None and (options.retry_failed or stored < self.result.total):
            for entry in suite.entries:
                ping_judges(entry.kwargs)

    # -- before it is played

    def _read_earlier(self) -> Mapping[str, Any]:
        """Return the result of the evaluation that is in the folder; empty if there is none."""
        if self.out is not None:
            with suppress(OSError, ValueError):
                earlier = read_json(self.out / "result.json")
                return earlier if isinstance(earlier, dict) else {}
        return {}

    def _refuse_other(self, earlier: Mapping[str, Any], players: Iterable[str]) -> None:
        """Refuse a folder with episodes of an agent or an environment that is not played now.

        Raises:
            StoreError: with what would be lost.
        """
        lost = []
        with suppress(LookupError, TypeError, AttributeError, OSError):  # nothing readable would be replaced
            if self.out is None or not any(
                file.stat().st_size for file in self.out.glob(f"**/{EPISODES_FILE}")
            ):
                return
            agents = {_without_place(each) for each in players}
            entries = [_key(json.loads(json.dumps(entry_to_json(each)))) for each in self.suite.entries]
            names = [without_address(each["agent"]) for each in earlier["agents"]]
            lost = [f"agent {each!r}" for each in names if _without_place(each) not in agents]
            lost += [
                f"environment {each['title'] or each['env']!r}"
                for each in earlier["environments"]
                if _key(each) not in entries
            ]
        if lost:
            raise StoreError(
                f"{self.out} holds an evaluation of {' and '.join(lost[:4])}, whose figures this one would "
                "replace; choose another --out."
            )

    def _report_changed_files(self, earlier: Mapping[str, Any]) -> None:
        """Report which data and task folders have changed, or moved, since the evaluation in the folder.

        All of their tasks are asked again, and so are those that an earlier version asked without a digest.
        """
        digests = {}
        with suppress(LookupError, TypeError, AttributeError):  # no evaluation is there
            for each in earlier["environments"]:
                digests[each["kwargs"].get("data", each["env"])] = each["kwargs"].get("digest")
        for entry in self.suite.entries:
            name, digest = entry.kwargs.get("data", entry.env), entry.kwargs.get("digest")
            if not isinstance(name, str):  # rows in memory
                continue
            if digests.get(name, digest) != digest:
                why = "has changed since" if digests[name] else "may have changed since"
                self.events.on_message(
                    f"{name} {why} the evaluation in {self.out}: all of its tasks are asked again"
                )
            elif digest and name not in digests and (before := [n for n in digests if digests[n] == digest]):
                self.events.on_message(
                    f"{name} is {before[0]} in the evaluation in {self.out}: all of its tasks are asked "
                    "again. To go on, run the command in the working folder of then"
                )

    def _find_tasks(self, entry: Entry, label: str) -> _Tasks:
        """Find the tasks of an environment before anything is asked; with Ray, its data may be elsewhere.

        Raises:
            MissingData, MissingExtra, SandboxFailed: when the environment was named by its id and is not
                available here. BadArgument: for bad rows, all of which are listed.
        """
        try:
            if self.options.ray is None:
                check_needs([spec_named(entry.env)], (*entry.tools, *entry.wrappers), entry.kwargs)
            seeds = entry.seeds(self.suite.seed)
        except (MissingData, MissingExtra, SandboxFailed) as error:
            if self.options.ray is not None:
                count = entry.episodes if isinstance(entry.episodes, int) else EPISODES
                drawn = [seeding.derive(self.suite.seed, "eval", i) for i in range(count)]
                return _Tasks(entry, label, entry.only or drawn)
            if not self.suite.name:
                raise
            return _Tasks(entry, label, missing=error)
        if isinstance(entry.episodes, int) and len(seeds) < entry.episodes:
            return _Tasks(entry, label, seeds, note=f"it has {len(seeds)} tasks, and each was played once")
        return _Tasks(entry, label, seeds)

    def _add_groups(self, tasks: Sequence[_Tasks]) -> list[_Tasks]:
        """Return the tasks with their groups, in the environments that have the columns.

        Raises:
            BadArgument: for a column that none of them has. MissingData: with Ray, when the data is
                elsewhere.
        """
        tasks = list(tasks)
        for column in self.options.by:
            refused = []
            for at, each in enumerate(tasks):
                try:
                    groups = find_groups(_maker(each.entry.task), each.seeds, [column])
                except (BadArgument, MissingData, MissingExtra, SandboxFailed) as error:
                    refused.append(error)
                else:
                    tasks[at] = replace(each, groups={**each.groups, **groups})
            if len(refused) == len(tasks):
                raise refused[0]
        return tasks

    def _make(self, agent: str | Agent | AgentByName) -> Agent | AgentByName:
        """Return the agent of a name; with Ray, one that is made on the nodes, where they know the name."""
        if not isinstance(agent, str):
            return agent
        if self.options.ray is not None and is_named(agent):
            return AgentByName(agent, self.suite.settings)
        return self._close_at_end(self.options.make_agent(agent, self.suite.settings))

    def _close_at_end(self, agent: T) -> T:
        """Return an agent that was made here, and close it at the end."""
        if (close := getattr(agent, "close", None)) is not None:
            self.last.callback(close)
        return agent

    def _check_prices(self, *agents: Agent | AgentByName) -> None:
        if self.options.prices is not None:
            self.options.prices.check(getattr(getattr(each, "info", None), "model", None) for each in agents)

    def _open_store(self, name: str) -> CountedStore | None:
        """Return the store of an agent's episodes; None without a folder."""
        if self.out is None:
            return None
        store = open_store(self.last, self.out, name, len(self.agents) == 1)
        store.budget, store.agent = self.budget, name
        if self.budget is not None and (damaged := store.count_stored(self.budget)):
            lines = f"{damaged} damaged line{'s' * (damaged != 1)}"
            self.events.on_message(f"{store.path}: the budget does not count {lines}")
        return store

    # -- playing

    def play(self) -> None:
        """Play every environment with every agent, and write the result.

        Raises:
            GemError: what ends the evaluation early, after the files have the reason.
        """
        now = ""
        try:
            for tasks in self.tasks:
                scale = {name: self._play_reference(tasks, name) for name in self.references}
                for now in self.agents:
                    row = self._play_tasks(tasks, now, scale)
                    self.result.add(now, row)
                    self.events.on_row(now, row)
                self.result.compare(tasks.label)
            for name, store in self.stores.items():
                if isinstance(store, CountedStore):
                    store.supersede(self.counted[name])
            self.result.end()
        except AgentUnavailable as gone:
            self._stop(gone, f"agent {now} cannot answer: {gone}")
            raise
        except GemError as error:
            self._stop(error, f"{type(error).__name__}: {error}")
            raise
        except KeyboardInterrupt as error:
            self._stop(error, "Ctrl-C")
            raise

    def _stop(self, error: BaseException, why: str) -> None:
        with suppress(StoreError):  # it would hide the reason
            self.result.stored = self._count_stored()
        self.events.on_stop(error, why)
        self.result.stop(why)

    def _count_stored(self) -> int:
        """Return how many episodes of this evaluation are stored, also before they are counted."""
        return sum(
            len(self._name_jobs(store).intersection((entry.job, entry.sample) for entry in store.select()))
            for store in self.stores.values()
            if isinstance(store, CountedStore)
        )

    def _play_tasks(self, tasks: _Tasks, name: str, scale: Mapping[str, EnvResult | None]) -> Scored:
        """Play an environment of the suite with an agent, and return its row.

        Raises:
            MissingData, MissingExtra, NoSolver: when the environment was named by its id and is not available
                here, or has no solver and the agent is `solver`. In a suite, it is reported as missing.
        """
        entry = tasks.entry
        if tasks.missing is not None:
            return Scored(entry, missing=str(tasks.missing))
        stop = None
        if self.suite.stop_at_width is not None:
            stop = Stopping(entry.samples, self.suite.stop_at_width, seat=self.options.seat)
        try:
            result = self._evaluate(tasks, name, stop)
        except (MissingData, MissingExtra, NoSolver) as missing:
            if not self.suite.name:
                raise
            return Scored(entry, missing=str(missing))
        notes = [tasks.note] * bool(tasks.note)
        if stop is not None and stop.interval is not None:
            notes.append("the interval of success holds however often one looks")
            if stop.enough:
                notes.append(f"it is narrow enough after {result.played} episodes")
        if lacking := [name for name, result in scale.items() if result is None]:
            takes = f"it takes {' and '.join(REFERENCES)}, and {' and '.join(lacking)} cannot play here"
            notes.append(f"no normalised return: {takes}")
        notes += [f"{part} is missing {why}" for part, why in result.gaps.items()]
        result = replace(result, env=tasks.label, reward=None if result.constant_return else result.reward)
        normalised = _normalise(result, [*scale.values()])
        return Scored(entry, result, note="; ".join(notes), normalised=normalised, seeds=tasks.seeds)

    def _evaluate(self, tasks: _Tasks, name: str, stop: Stopping | None) -> EnvResult:
        """Play an environment with an agent, here or on the Ray cluster."""
        entry, options, agent = tasks.entry, self.options, self.agents[name]
        others = make_others(entry.env, options.seat, options.others, self._make_other)
        self._check_prices(*others.values())
        several = self.result.several
        self.events.on_play(tasks.label, name if several else "", len(tasks.seeds) * entry.samples)
        if self.budget is not None:
            self.budget.begin(name, entry.env)
        places: dict[int | None, int] = {seed: at for at, seed in enumerate(tasks.seeds)}
        ended: set[str] = set()
        kept = self.stores[name]
        store = Attempts(self.budget, name) if kept is None else kept

        def count(episode: Episode) -> None:
            if (resumed := self.resumed.pop(name, None)) is not None:  # and it accepts this evaluation
                self._supersede_others(resumed)
            self.counted[name].add((episode.job, episode.sample))
            ended.add(episode.id)
            place = places.get(episode.seed, 0)
            if options.prices is not None:  # only its answers show what an agent of one's own counts
                options.prices.check(spent_on((episode,)))
            self.result.count(tasks.label, name, place, episode, options.seat)
            self.events.on_episode(episode)

        play = RunOptions(
            host=options.host,
            limits=Limits(turns=entry.turns, tokens=entry.tokens, call_s=options.call_s),
            concurrency=self.suite.settings.concurrency
            or getattr(agent, "concurrency", None)
            or RunOptions.concurrency,
            store=store,
            resume=self.out is not None,
            retry_failed=options.retry_failed,
            admit=None if self.budget is None else self.budget.admit,
            on_episode=count,
        )
        agents: Any = {options.seat: agent, **others} if options.seat else agent
        measured = partial(
            evaluate,
            env=entry.task,
            samples=entry.samples,
            seeds=tasks.seeds,
            stop=stop,
            reward=options.reward,
            seat=options.seat,
            by=tasks.groups,
        )
        if options.ray is None:
            result = measured(agents, options=play)
        else:
            with RayRunner(agents, options=replace(_add_stop(play, stop), retries=RETRIES)) as runner:
                result = measured(runner)
        return replace(result, usage=together((result.usage, store.spent_before(ended))))

    def _supersede_others(self, store: EpisodeStore) -> None:
        """Let readers of an agent's store leave out the tasks that this evaluation does not have."""
        store.supersede(self._name_jobs(store))

    def _name_jobs(self, store: EpisodeStore) -> set[tuple[str, int]]:
        """Return the jobs of this evaluation as an agent's store has them, each with a sample."""
        settings = RunOptions(store=store, resume=True)
        parts = [(each.entry, each.seeds) for each in self.tasks]
        jobs = [_make_jobs(entry.task, seeds, entry.samples, settings) for entry, seeds in parts]
        return {(name_job(job), job.sample) for each in jobs for job in each}

    def _make_other(self, name: str) -> Agent:
        return self._close_at_end(self.options.make_agent(name, AgentSettings()))

    def _play_reference(self, tasks: _Tasks, name: str) -> EnvResult | None:
        """Play a reference agent of the normalised scale; None if the environment does not have it."""
        entry, store = tasks.entry, self.references[name]
        if tasks.missing is not None:
            return None
        self.events.on_play(tasks.label, name, len(tasks.seeds))
        try:
            return evaluate(
                self.options.make_agent(name, AgentSettings()),
                entry.task,
                seeds=tasks.seeds,
                limits=Limits(turns=entry.turns, tokens=entry.tokens, call_s=self.options.call_s),
                host=self.options.host,
                store=store,
                resume=store is not None,
                on_episode=self.events.on_episode,
            )
        except (MissingData, MissingExtra, NoSolver):  # reported when the measured agent plays
            return None


def _key(entry: Mapping[str, Any]) -> Any:
    """Return what makes an environment of result.json the same one, whatever its files or data hold now."""
    kwargs = None if entry["title"] else {**entry["kwargs"], "digest": None}
    around = [[without_digest(name) for name in entry[part]] for part in ("tools", "wrappers")]
    return entry["title"], without_digest(entry["env"]), kwargs, around


def _without_place(agent: str) -> str:
    """Return an agent's name without the address of its server and the content of its file."""
    return without_digest(without_address(agent))


def _label(agents: Players) -> dict[str, str | Agent | AgentByName]:
    """Return the agents by the labels that they have in figures, which contain no password.

    Raises:
        BadArgument: for an agent that is named twice.
    """
    if isinstance(agents, Mapping):
        return dict(agents)
    if isinstance(agents, Agent):
        return {getattr(getattr(agents, "info", None), "agent", type(agents).__name__): agents}
    names = [agents] if isinstance(agents, str) else list(agents)
    labels = [hide_credentials(name) for name in names]
    if len({*labels}) < len(labels):
        raise BadArgument("an agent was named twice; once is enough.")
    return dict(zip(labels, names, strict=True))


def _normalise(result: EnvResult, scale: Sequence[EnvResult | None]) -> Interval | None:
    """Return the return on a scale from random play to the solver; None if one of the three is missing."""
    ends = [each.reward for each in scale if each is not None and each.reward is not None]
    if len(ends) < len(REFERENCES) or result.reward is None:
        return None
    return normalised(result.reward, *ends)
