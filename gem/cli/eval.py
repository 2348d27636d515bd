"""The command ``gem-gym eval``: agents measured on environments, in a table and, if wanted, a folder."""

from __future__ import annotations

import json
import math
import re
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, UseAppendAction, arg

import gem
from gem import seeding
from gem.cli.players import limits_of, local_agent, others_of
from gem.cli.terms import FAILED, MaybeFolder, MaybeInt, table
from gem.content import printable
from gem.errors import AgentUnavailable, BadArgument, StoreError
from gem.evals import EnvResult, unfair
from gem.evals import evaluate as measured
from gem.record import Agent, Episode
from gem.rollout import EpisodeStore
from gem.statistics import Interval


def evaluate(
    env_ids: Annotated[Positional[tuple[str, ...]], arg(metavar="ID [ID ...]", help_behavior_hint="")],
    agent: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME", help_behavior_hint="")] = (),
    episodes: int = 200,
    seed: int = 0,
    turns: MaybeInt = None,
    temperature: float = 1.0,
    seat: str | None = None,
    others: str | None = None,
    host: str = "auto",
    out: MaybeFolder = None,
) -> int:
    """Measure agents: success, return and turns, each with its 95% interval.

    An episode that infrastructure broke has no verdict and enters no figure: `verdicts` says how many do,
    `bounds` is the success with all of them counted as lost, and as won. Where agents are compared and lost
    verdicts at different rates, that is told.

    With --out, episodes are kept in FOLDER/episodes.jsonl (of several agents in a folder for each) and the
    figures in FOLDER/result.json. What was stopped goes on by the same command: no stored episode is played
    again.

    Args:
        env_ids: environments; `gem-gym list` shows all.
        agent: random, solver, openai:MODEL[@BASE_URL], or the folder of a training run, as runs/demo; random
            when left out; several are compared.
        episodes: how many, each from a seed of its own.
        seed: the same seed gives the same episodes.
        turns: cut an episode off after so many turns.
        temperature: of a model; 0 is greedy.
        seat: of a game of several, the seat that the agent takes; it takes all when left out.
        others: who plays the other seats, beside `seat`: an agent's name as above.
        host: where environments live: serial, thread, process, or auto: thread for those that wait.
        out: the folder in which episodes and figures are kept.
    """
    names = agent or ("random",)
    if not env_ids:
        raise BadArgument("no environment was named; `gem-gym list` shows all.")
    if not temperature >= 0:  # NaN too
        raise BadArgument(f"temperature is {temperature}; accepted: 0 (greedy) or more.")
    if len({*names}) < len(names) or len({*env_ids}) < len(env_ids):
        raise BadArgument("an agent or an environment was named twice; once is enough.")
    seed, limits = seeding.check(seed), limits_of(turns)
    total = len(env_ids) * len(names) * episodes
    with ExitStack() as last:
        actors = {name: _kept(last, local_agent(name, temperature)) for name in names}
        report = Report(total, out)
        stores = {name: _store(last, out, name, alone=len(names) == 1) for name in names}
        try:
            for env_id in env_ids:
                for name, actor in actors.items():
                    report.now = name
                    rest = others_of(env_id, seat, others)
                    for other in rest.values():
                        _kept(last, other)
                    result = measured(
                        {seat: actor, **rest} if seat else actor,
                        env_id,
                        episodes=episodes,
                        seed=seed,
                        limits=limits,
                        host=host,
                        store=stores[name],
                        resume=out is not None,
                        on_episode=report.hear,
                    )
                    report.add(name, result)
                report.compare(env_id)
        except AgentUnavailable as gone:
            report.show()
            said = f"agent {report.now} can answer nobody: {gone}"
            print(printable(f"{said}\n{report.progress()}"), file=sys.stderr)
            return FAILED
        except StoreError:
            report.show()  # what is known already is lost to nobody
            raise
        except KeyboardInterrupt as stop:
            stop.add_note(report.progress())
            raise
    report.show()
    return FAILED if any(not result.scored for _, result in report.results) else 0


@dataclass
class Report:
    """What is said and written of an evaluation; `now` is the agent that plays."""

    total: int
    out: Path | None
    done: int = 0
    now: str = ""
    results: list[tuple[str, EnvResult]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)

    def hear(self, episode: Episode) -> None:
        """Count an episode, and keep the first of each error."""
        self.done += 1
        if episode.error:
            self.said.setdefault(f"{episode.error.boundary}: {episode.error.type}", episode.error.message)

    def add(self, name: str, result: EnvResult) -> None:
        """Take in a result, and say what broke."""
        self.results.append((name, result))
        of = f"{result.env}, {name}" if self.several else result.env
        for broken, count in result.errors.items():
            first = printable(self.said.get(broken, ""))
            print(f"{of}: {count} episodes without verdict, {broken}, as: {first}", file=sys.stderr)
        self.said.clear()
        self.write()

    def compare(self, env_id: str) -> None:
        """Warn where agents lost verdicts at other rates on an environment."""
        found = unfair({name: result for name, result in self.results if result.env == env_id})
        self.warnings += [f"{env_id}: {each}" for each in found]
        if found:
            self.write()

    @property
    def several(self) -> bool:
        """Whether several agents have results."""
        return len({name for name, _ in self.results}) > 1

    def progress(self) -> str:
        """Return how much is stored, and how to go on."""
        if self.out is None:
            return f"{self.done} of {self.total} episodes had ended; none is stored, --out FOLDER keeps them"
        stored = f"{self.done} of {self.total} episodes are stored in {self.out}"
        return f"{stored}; run the same command again to go on"

    def write(self) -> None:
        """Write the results so far, so that a crash leaves the old file or the new one."""
        if self.out is None:
            return
        values = {
            "gem": gem.__version__,
            "results": [{"name": name, **result.to_json()} for name, result in self.results],
            "warnings": self.warnings,
        }
        file = self.out / "result.json"
        partial = file.with_name("result.json.partial")
        try:
            partial.write_text(json.dumps(_plain(values), indent=2, allow_nan=False) + "\n", encoding="utf-8")
            partial.replace(file)
        except OSError as error:
            raise StoreError(f"{file} cannot be written: {error}") from error

    def show(self) -> None:
        """Print the table, and the warnings."""
        rows: list[tuple[str, ...]] = []
        for name, result in self.results:
            rows.append((result.env, name, *_row(result)))
            for seat, own in result.seats.items():
                success, reward = _interval(own.success, "{:.1%}"), _interval(own.reward, "{:.3f}")
                rows.append((f"  {seat}", "", success, "-", reward, f"{own.turns:.2f}", ""))
        columns = ("success", "bounds", "return", "turns", "verdicts")
        if self.several:
            table("env", "agent", *columns, rows=rows)
        elif rows:
            table("env", *columns, rows=[(row[0], *row[2:]) for row in rows])
        for warning in self.warnings:
            print(printable(f"warning: {warning}"), file=sys.stderr)


def _row(result: EnvResult) -> tuple[str, ...]:
    return (
        _interval(result.success, "{:.1%}"),
        "-" if result.at_least is None else f"{result.at_least:.1%} to {result.at_most:.1%}",
        _interval(result.reward, "{:.3f}"),
        "-" if result.turns is None else f"{result.turns:.2f}",
        _verdicts(result),
    )


def _verdicts(result: EnvResult) -> str:
    """Return how many have a verdict, and the rate of those that have none."""
    told = f"{result.scored}/{result.episodes}"
    if not result.unscored:
        return told
    cut = f", {result.cancelled} cut off" if result.cancelled else ""
    return f"{told}, none in {_interval(result.no_verdict, '{:.1%}')}{cut}"


def _interval(value: Interval | None, form: str) -> str:
    if value is None:
        return "-"
    mean, low, high = (form.format(number) for number in value[:3])
    return f"{mean} ({low} to {high})"


def _plain(value: Any) -> Any:
    """Return JSON values; what is not finite becomes null, as JSON has no NaN."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _kept(last: ExitStack, agent: Agent) -> Agent:
    """Return an agent that is closed at the end."""
    close = getattr(agent, "close", None)
    if close is not None:
        last.callback(close)
    return agent


def _store(last: ExitStack, out: Path | None, name: str, alone: bool) -> EpisodeStore | None:
    """Return where an agent's episodes go: agents apart, for a store goes on under one agent's settings.

    Raises:
        StoreError: when the folder cannot be made, is a training run's, or another evaluation writes there.
    """
    if out is None:
        return None
    if (out / "checkpoint.pt").exists():
        raise StoreError(f"{out} holds a training run, whose episodes are its own; choose another --out.")
    folder = out if alone else out / _file_name(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder} cannot be made: {error.strerror}; choose another --out.") from error
    store = last.enter_context(EpisodeStore(folder / "episodes.jsonl"))
    store.claim()  # at the start: another evaluation may be playing the same episodes
    return store


def _file_name(name: str) -> str:
    """Return a name that every file system takes, another one for every agent."""
    plain = re.sub(r"[^A-Za-z0-9.-]+", "_", name).strip("._")[:60]
    return plain if plain == name else f"{plain}-{blake2b(name.encode(), digest_size=3).hexdigest()}"
