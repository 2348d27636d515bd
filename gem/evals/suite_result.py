"""The result of a suite: figures of each agent, warnings, gates, and the files with them."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from gem.content import quote_formula, text_of
from gem.errors import StoreError
from gem.evals.doubts import describe_doubts
from gem.evals.fairness import unfair
from gem.evals.gates import Checked, Gate, check
from gem.evals.reports import escape_cell, format_figures, junit, markdown
from gem.evals.results import EnvResult
from gem.evals.scorecard import MIN_COVERAGE, Mean, Scorecard, Scored
from gem.evals.suite import Entry, Suite
from gem.evals.usage import Budget, Prices, count_uncounted
from gem.files import replace_file, replace_nan
from gem.record import Episode
from gem.rollout.episode import versions
from gem.rollout.store import env_key
from gem.source_files import remember_name

SAMPLES = (
    *("environment", "agent", "id", "sample", "outcome", "success", "return", "episode"),
    *("question", "reply", "reference"),
)
"""The columns of samples.csv."""

LONGEST = 1000
"""The most characters of a text in samples.csv."""


class SuiteResult:
    """The figures of agents on the environments of a suite, complete when `stopped` is empty.

    `cards` has a `Scorecard` for each agent, `out` is the folder of the files, if any. `ended` of `total`
    episodes have ended. `warnings` say why agents cannot be compared. `stopped` is the reason why figures are
    missing.
    """

    def __init__(
        self,
        suite: Suite,
        agents: Iterable[str],
        total: int,
        *,
        gates: Sequence[Gate] = (),
        prices: Prices | None = None,
        budget: Budget | None = None,
        out: Path | None = None,
        command: Sequence[str] = (),
    ) -> None:
        """Begin without figures; nothing is written yet."""
        self.suite, self.out, self.gates = suite, out, gates
        self._place = None if out is None else out.absolute()  # environments may change the working directory
        self.prices, self.budget, self.command = prices, budget, list(command)
        self.cards = {name: Scorecard(name, suite.min_coverage or 0.0, prices) for name in agents}
        self.total, self.ended = total, 0
        self.stored = 0  # episodes in the stores, set when it stops early
        self._samples: dict[tuple[str, str, int, int], tuple[Any, ...]] = {}
        self._labels: dict[str, str] = {}
        self.warnings: list[str] = []
        self.stopped = "the evaluation has not finished"

    @property
    def several(self) -> bool:
        """Whether several agents are measured."""
        return len(self.cards) > 1

    @property
    def results(self) -> list[EnvResult]:
        """The figures of all agents."""
        return [result for card in self.cards.values() for result in card.results]

    @property
    def unplayed(self) -> int:
        """The number of episodes that were not started because the budget was used up."""
        return sum(result.unplayed for result in self.results)

    @property
    def checked(self) -> list[Checked]:
        """The results of the gates, of figures with `MIN_COVERAGE` where the suite says nothing else."""
        least = MIN_COVERAGE if self.suite.min_coverage is None else self.suite.min_coverage
        cards = [replace(card, min_coverage=least) for card in self.cards.values()]
        return [each for card in cards for each in check(self.gates, card)]

    @property
    def passed(self) -> bool:
        """Whether every environment is here and has a verdict, every gate holds and the budget sufficed."""
        rows = [row for card in self.cards.values() for row in card.rows]
        scored = bool(rows) and all(row.result is not None and row.result.scored for row in rows)
        return scored and not self.unplayed and all(each.passed for each in self.checked)

    @property
    def rows(self) -> list[tuple[str, str, EnvResult | Mean, Scorecard]]:
        """Agent, label, figures and card of each row: environments, then categories, then all together."""
        cards = list(self.cards.items())
        rows: list[tuple[str, str, EnvResult | Mean, Scorecard]] = [
            (name, entry.label, row.result, card)
            for entry in self.suite.entries
            for name, card in cards
            for row in card.rows
            if row.entry is entry and row.result is not None
        ]
        means = zip_longest(*([(name, each, card) for each in card.categories] for name, card in cards))
        rows += [
            (name, mean.name, mean, card)
            for name, mean, card in filter(None, chain.from_iterable(means))
            if mean.environments
        ]
        rows += [(name, "overall", card.overall, card) for name, card in cards if len(card.results) > 1]
        return rows

    @property
    def matrix(self) -> list[tuple[str, ...]]:
        """The success of each environment (first cell) with each agent; empty unless there are several."""
        cells: dict[str, dict[str, str]] = {}
        for name, label, of, card in self.rows:
            cells.setdefault(label, {})[name] = format_figures(of, card)["success"]
        if not self.several or len(self.suite.entries) < 2:
            return []
        return [(label, *(own.get(name, "-") for name in self.cards)) for label, own in cells.items()]

    @property
    def notes(self) -> list[str]:
        """The warnings and remarks on the figures."""
        notes = [f"warning: {warning}" for warning in self.warnings]
        for name, card in self.cards.items():
            of = f", {name}" if self.several else ""
            notes += [
                f"{result.env}{of}: no headline: {why}"
                for result in card.results
                if (why := card.withheld(result))
            ]
            notes += [
                f"{result.env}{of}: no {', '.join(short)}: {next(iter(short.values()))}"
                for result in card.results
                if (short := card.withheld_passes(result)) and not card.withheld(result)
            ]
            notes += [
                f"warning: {name}, {result.env}: {doubt}"
                for result in card.results
                for doubt in describe_doubts(result.doubts, result.scored)
            ]
            notes += [
                f"warning: {name}, {result.env}: {result.unclear} of {result.scored} episodes with a verdict "
                "do not say whether they succeeded; success is of the others, its bounds are of all"
                for result in card.results
                if result.unclear
            ]
            notes += [
                f"{result.env}{of}: success or return is not defined for all seats together; "
                f"to measure one seat, {' or '.join(f'--seat {seat}' for seat in result.seats)}"
                for result in card.results
                if result.seats and not result.seat and None in (result.success, result.reward)
            ]
            notes += [f"{row.entry.label}{of}: {row.note}" for row in card.rows if row.note]
            if left_out := sum(row.result is None for row in card.rows):
                notes.append(
                    f"{left_out} of {len(self.suite.entries)} environments are not here and in no figure"
                    f"{of}: there is no overall one; leave them out of the suite, or supply what they need"
                )
            notes += [
                f"{mean.name}{of}: no {figure}: {why}"
                for mean in (*card.categories, card.overall)
                if len(card.rows) > 1 and not mean.withheld
                for figure, why in mean.gaps.items()
            ]
        for name, card in self.cards.items():
            if turns := count_uncounted(card.overall.usage):
                whom = f" of {name}" if self.several else ""
                kept = " and not in the budget" if self.budget else ""
                notes.append(
                    f"the tokens of {turns} turns{whom} are not known, or only in part; what is missing is "
                    f"in no figure{kept}"
                )
            elif (
                (self.budget or self.prices)
                and card.results
                and not card.overall.usage
                and card.has_own_agent
            ):
                notes.append(
                    f"warning: {name} counted no tokens: no budget ends its evaluation, and its cost is "
                    "unknown; an agent of your own puts prompt_tokens and completion_tokens into Reply.usage"
                )
        if judged := sum(result.judged for card in self.cards.values() for result in card.results):
            kept = ", and not in the budget" if self.budget else ""
            notes.append(f"judges used {judged:,} tokens, which are in no other figure{kept}")
        if self.unplayed:
            way = f"; the others are stored in {self.out}; to continue, raise the budget" if self.out else ""
            notes.append(
                f"the budget is used up: {self.budget}; {self.unplayed} episodes were not played{way}"
            )
        return notes

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values: all figures, with the command and settings that reproduce them."""
        parts = [card.to_json() for card in self.cards.values()]
        settings = {**asdict(self.suite.settings), "extra": dict(self.suite.settings.extra)}
        values = {
            "gem": versions()["gem"],
            "versions": versions(),
            "command": self.command,
            "suite": self.suite.name or None,
            "seed": self.suite.seed,
            "settings": settings,
            "environments": [entry_to_json(each) for each in self.suite.entries],
            "labels": self._labels,
            "results": [row for part in parts for row in part["results"]],
            "agents": [
                {key: part[key] for key in ("agent", "latency", "overall", "categories")} for part in parts
            ],
            "gates": [
                {"gate": e.gate.text, "agent": e.agent, "passed": e.passed, "said": e.said}
                for e in self.checked
            ],
            "budget": None if self.budget is None else str(self.budget),
            "unplayed": self.unplayed,
            "stopped": self.stopped or None,
            "warnings": self.warnings,
        }
        plain: dict[str, Any] = replace_nan(values)
        return plain

    def to_markdown(self) -> str:
        """Return the figures as a page."""
        matrix = [("success", *self.cards), *self.matrix]
        lines = [f"| {' | '.join(map(escape_cell, row))} |" for row in matrix] if len(matrix) > 1 else []
        lines[1:1] = [f"|{'---|' * len(matrix[0])}"] * bool(lines)
        ended = f"{max(self.ended, self.stored)} of {self.total}"
        return markdown(
            list(self.cards.values()),
            self.checked,
            title=self.suite.name or "Evaluation",
            about=self.suite.about,
            matrix=lines,
            notes=[
                *self.notes,
                *["the outcome of each row of the data, by its id: samples.csv"] * bool(self._samples),
                *[f"incomplete: {self.stopped}; {ended} episodes had ended"] * bool(self.stopped),
            ],
            command=shlex.join(["gem-gym", "eval", *self.command]) if self.command else "",
        )

    # -- while it is played

    def to_csv(self) -> str:
        """Return a table with the outcome of each row of a data set, by its id; empty without data sets."""
        if not self._samples:
            return ""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(SAMPLES)
        labels, agents = [entry.label for entry in self.suite.entries], [*self.cards]
        for label, agent, place, sample in sorted(
            self._samples, key=lambda at: (labels.index(at[0]), agents.index(at[1]), *at[2:])
        ):
            row = (label, agent, *self._samples[label, agent, place, sample])
            table.writerow(map(quote_formula, row))
        return text.getvalue()

    def count(self, label: str, agent: str, place: int, episode: Episode, seat: str | None = None) -> None:
        """Count an episode that has ended; with an environment's first, the files say what is being played.

        `place`: the number of its task among those of its environment, from 0. `seat`: the seat of the agent;
        None: every one.
        """
        self.cards[agent].latency.count(episode, seat)
        if (task := episode.initial_info.get("task")) is not None:
            earned = episode.reward() if episode.scored and not episode.several else None
            what = (task, episode.sample, str(episode.stop), episode.success, earned, episode.id)
            self._samples[label, agent, place, episode.sample] = (*what, *_say_what(episode))
        key = env_key(episode.task)
        new = key not in self._labels
        self._labels[key] = label
        if new and self._place is not None:
            self.write_command()
            with suppress(StoreError):  # reported later, together with the figures
                self.write()  # replaces the results of an earlier run, in case this one is killed
        self.ended += 1

    def add(self, name: str, row: Scored) -> None:
        """Add an agent's figures on an environment, and write the files."""
        self.cards[name].rows.append(row)
        self.write()

    def compare(self, label: str) -> None:
        """Add a warning if agents lost verdicts at different rates on an environment."""
        results = {
            name: row.result
            for name, card in self.cards.items()
            for row in card.rows
            if row.entry.label == label and row.result is not None
        }
        if warnings := unfair(results):
            self.warnings += [f"{label}: {each}" for each in warnings]
            self.write()

    def end(self) -> None:
        """Write that the evaluation is complete."""
        self.stopped = ""
        self.write()

    def stop(self, why: str) -> None:
        """Write that the evaluation stopped early, unless that would replace the files of another one."""
        self.stopped = why
        if self._place is not None and (self.ended or not (self._place / "result.json").exists()):
            with suppress(StoreError):  # it would hide the reason
                self.write()

    def write(self) -> None:
        """Write the figures so far, so that a crash leaves the old files or the new ones.

        Raises:
            StoreError: when a file cannot be written.
        """
        if self._place is None:
            return
        _write(self._place / "result.json", self.text().encode() + b"\n")
        _write(self._place / "report.md", self.to_markdown().encode("utf-8", "backslashreplace"))
        if rows := self.to_csv():
            _write(self._place / "samples.csv", rows.encode("utf-8", "backslashreplace"))
        _write(self._place / "junit.xml", junit(list(self.cards.values()), self.checked, self.stopped))

    def text(self) -> str:
        """Return the JSON text of `to_json`."""
        return json.dumps(self.to_json(), indent=2, allow_nan=False)

    def write_command(self) -> None:
        """Write the command that --resume reads."""
        if self._place is not None and self.command:
            text = json.dumps(self.command) + "\n"
            _write(self._place / "command.json", text.encode())
            remember_name("command", text)


def _say_what(episode: Episode) -> tuple[str, str, str]:
    """Return what was asked, the last reply, and the reference, for a cell each."""
    asked = text_of(episode.turns[0].observation) if episode.turns else ""
    reply = next((turn.action for turn in reversed(episode.turns) if turn.action is not None), "")
    reference = "" if episode.several else str(episode.final_info.get("target", ""))
    return _shorten(asked), _shorten(reply), _shorten(reference)


def _shorten(text: str) -> str:
    """Return a text in one line, without its middle if it is long: a reply's answer stands at its end."""
    text, half = " ".join(text.split()), LONGEST // 2
    return text if len(text) <= LONGEST else f"{text[:half]} ... {text[-half:]}"


def entry_to_json(entry: Entry) -> dict[str, Any]:
    """Return an environment of a suite as JSON values; a grader of one's own as its name."""
    kwargs = {name: getattr(value, "name", value) for name, value in entry.kwargs.items()}
    return {**{each.name: getattr(entry, each.name) for each in fields(entry)}, "kwargs": kwargs}


def _write(file: Path, data: bytes) -> None:
    """Write a file so that a crash leaves the old one or the new one.

    Raises:
        StoreError: when it cannot be written.
    """
    with replace_file(file) as partial:
        partial.write_bytes(data)
