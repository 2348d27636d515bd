"""The report that ``gem-gym eval`` prints and writes."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from gem.cli.terms import FAILED, table
from gem.content import printable
from gem.errors import StoreError
from gem.evals import EnvResult, unfair
from gem.evals.gates import Checked, Gate, check
from gem.evals.reports import dollars, junit, markdown, passes_of, told
from gem.evals.scorecard import Mean, Scorecard, Scored
from gem.evals.suite import Entry, Suite
from gem.evals.usage import Budget, Prices, tokens_of, uncounted
from gem.record import Episode
from gem.rollout.episode import versions
from gem.source_files import remember_name


class Report:
    """The printed and written report of an evaluation; `now` is the agent that plays."""

    def __init__(
        self,
        suite: Suite,
        out: Path | None,
        agents: Sequence[str],
        gates: Sequence[Gate],
        prices: Prices | None,
        budget: Budget | None,
        command: Sequence[str],
        total: int,
    ) -> None:
        """Start an empty report of `total` episodes; nothing is printed or written yet."""
        self.suite, self.out, self.gates = suite, out, gates
        self.prices, self.budget, self.command = prices, budget, list(command)
        self.cards = {name: Scorecard(name, suite.min_coverage, prices) for name in agents}
        self.total = total
        self.done = 0
        self.now = ""
        self.warnings: list[str] = []
        self.stopped = "the evaluation has not finished"
        self._said: dict[str, str] = {}

    def hear(self, episode: Episode) -> None:
        """Count an episode, and keep the first message of each error."""
        if not self.done:
            self._write_command()  # not before: a command that the store refuses must not replace another
            with suppress(StoreError):  # reported later, together with the figures
                self.write()  # replaces the results of an earlier run, in case this one is killed
        self.done += 1
        if episode.error:
            self._said.setdefault(f"{episode.error.boundary}: {episode.error.type}", episode.error.message)

    def add(self, name: str, row: Scored) -> None:
        """Add an environment's figures, and print its errors."""
        self.cards[name].rows.append(row)
        of = f"{row.entry.label}, {name}" if self.several else row.entry.label
        if row.result is None:
            print(printable(f"{of}: not here: {row.missing}"), file=sys.stderr)
        else:
            for broken, count in row.result.errors.items():
                first = printable(self._said.get(broken, ""))
                print(f"{of}: {count} episodes without verdict, {broken}, as: {first}", file=sys.stderr)
        self._said.clear()
        self.write()

    def compare(self, label: str) -> None:
        """Warn if agents lost verdicts at different rates on an environment."""
        rows = {name: row.result for name, card in self.cards.items() for row in card.rows if _is(row, label)}
        found = unfair({name: result for name, result in rows.items() if result is not None})
        self.warnings += [f"{label}: {each}" for each in found]
        if found:
            self.write()

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
        """The results of the gates."""
        return [each for card in self.cards.values() for each in check(self.gates, card)]

    @property
    def code(self) -> int:
        """The exit code: 0 or 1.

        1 if an environment has no verdict at all, a gate failed, the budget left episodes unplayed, or no
        environment of a suite is available here.
        """
        bad = any(not result.scored for result in self.results) or not self.results
        return FAILED if bad or self.unplayed or any(not each.passed for each in self.checked) else 0

    def progress(self) -> str:
        """Return how much is stored, and how to continue."""
        ended = f"{self.done} of {self.total} episodes"
        if self.out is None:
            return f"{ended} had ended; none is stored; --out FOLDER stores them"
        stored = f"{ended} are stored in {self.out}"
        return f"{stored}; run the same command again to go on"

    # -- files

    def _write_command(self) -> None:
        """Write the command that --resume reads."""
        if self.out is not None:
            text = json.dumps(self.command) + "\n"
            _write(self.out / "command.json", text.encode())
            remember_name("command", text)

    def end(self) -> None:
        """Write that the evaluation is complete."""
        self.stopped = ""
        self.write()

    def stop(self, why: str) -> None:
        """Write that the evaluation stopped early, unless that would replace the report of another one."""
        self.stopped = why
        if self.out is not None and (self.done or not (self.out / "result.json").exists()):
            with suppress(StoreError):  # it would hide the reason
                self.write()

    def write(self) -> None:
        """Write the results so far, so that a crash leaves the old files or the new ones."""
        if self.out is None:
            return
        cards, checked = list(self.cards.values()), self.checked
        _write(self.out / "result.json", self.json().encode() + b"\n")
        text = markdown(
            cards,
            checked,
            title=self.suite.name or "Evaluation",
            about=self.suite.about,
            notes=[*self.notes, *[f"incomplete: {self.stopped}"] * bool(self.stopped)],
            command=shlex.join(["gem-gym", "eval", *self.command]),
        )
        _write(self.out / "report.md", text.encode("utf-8", "backslashreplace"))
        _write(self.out / "junit.xml", junit(cards, checked, self.stopped))

    def json(self) -> str:
        """Return all results as JSON, with the command and settings that reproduce them."""
        parts = [card.to_json() for card in self.cards.values()]
        settings = {**asdict(self.suite.settings), "extra": dict(self.suite.settings.extra)}
        values = {
            "gem": versions()["gem"],
            "versions": versions(),
            "command": self.command,
            "suite": self.suite.name or None,
            "seed": self.suite.seed,
            "settings": settings,
            "environments": [_settings_of(each) for each in self.suite.entries],
            "results": [row for part in parts for row in part["results"]],
            "agents": [{key: part[key] for key in ("agent", "overall", "categories")} for part in parts],
            "gates": [
                {"gate": e.gate.text, "agent": e.agent, "passed": e.passed, "said": e.said}
                for e in self.checked
            ],
            "budget": None if self.budget is None else str(self.budget),
            "unplayed": self.unplayed,
            "stopped": self.stopped or None,
            "warnings": self.warnings,
        }
        return json.dumps(_plain(values), indent=2, allow_nan=False)

    # -- the terminal

    @property
    def notes(self) -> list[str]:
        """The warnings and remarks shown with the figures."""
        notes = [f"warning: {warning}" for warning in self.warnings]
        for name, card in self.cards.items():
            of = f", {name}" if self.several else ""
            notes += [
                f"{result.env}{of}: no headline: {why}"
                for result in card.results
                if (why := card.withheld(result))
            ]
            notes += [f"{row.entry.label}{of}: {row.note}" for row in card.rows if row.note]
            if left_out := sum(row.result is None for row in card.rows):
                notes.append(
                    f"{left_out} of {len(self.suite.entries)} environments are not here and in no figure{of}"
                )
        for name, card in self.cards.items():
            if turns := uncounted(card.overall.usage):
                whom = f" of {name}" if self.several else ""
                kept = " or in the budget" if self.budget else ""
                notes.append(f"the tokens of {turns} turns{whom} are not known, and not in any figure{kept}")
        if self.unplayed:
            way = f"the others are stored in {self.out}; to continue, raise the budget" if self.out else ""
            notes.append(
                f"the budget is used up: {self.budget}; {self.unplayed} episodes were not played"
                f"{'; ' + way if way else ''}"
            )
        return notes

    def show(self, as_json: bool = False) -> None:
        """Print the tables and notes, or the JSON alone."""
        if as_json:
            print(self.json())
            return
        rows: list[tuple[str, ...]] = []
        passes: list[tuple[str, ...]] = []
        cards = self.cards.values()
        count = any(tokens_of(result.usage) for result in self.results)
        scaled = any(row.normalised for card in cards for row in card.rows)
        shown = list(dict.fromkeys(name for card in cards for name in passes_of(card.overall)))
        for name, label, of, owner in self._by_environment():
            name = printable(name)
            rows.append((label, name, *_row(of, owner, count, scaled)))
            if shown:
                passes.append((label, name, *(told(of.passes.get(each)) for each in shown)))
            for seat, own in of.seats.items() if isinstance(of, EnvResult) else ():
                success, reward = told(own.success), told(own.reward, "{:.3f}")
                if isinstance(of, EnvResult) and owner.withheld(of):
                    success = reward = "withheld"
                rest = ("",) * (1 + scaled + count + (count and owner.prices is not None))
                rows.append((f"  {seat}", "", success, "-", reward, f"{own.turns:.2f}", *rest))
        columns = ["success", "bounds", "return", "turns"] + ["normalised"] * scaled
        columns += ["tokens"] * count + ["cost"] * (count and self.prices is not None) + ["verdicts"]
        for heads, body in ((columns, rows), (shown, passes)):
            if body and self.several:
                table("env", "agent", *heads, rows=body)
            elif body:
                table("env", *heads, rows=[(row[0], *row[2:]) for row in body])
        for note in self.notes:
            print(printable(note), file=sys.stderr)
        for each in self.checked:
            by = f" ({each.agent})" if self.several else ""
            state = "passed" if each.passed else "FAILED"
            print(printable(f"gate {state}: {each.gate.text}{by}: {each.said}"), file=sys.stderr)

    def _by_environment(self) -> list[tuple[str, str, EnvResult | Mean, Scorecard]]:
        """Return agent, label, figures and card of each row: environments, then categories, then all."""
        found: list[tuple[str, str, EnvResult | Mean, Scorecard]] = []
        for entry in self.suite.entries:
            for name, card in self.cards.items():
                found += [
                    (name, entry.label, row.result, card)
                    for row in card.rows
                    if row.entry is entry and row.result is not None
                ]
        if len(self.suite.entries) > 1:
            cards = list(self.cards.items())
            for place in range(max(len(card.categories) for _, card in cards)):
                found += [
                    (name, card.categories[place].name, card.categories[place], card)
                    for name, card in cards
                    if place < len(card.categories) and card.categories[place].environments
                ]
            found += [(name, "overall", card.overall, card) for name, card in cards if len(card.results) > 1]
        return found


def _is(row: Scored, label: str) -> bool:
    return row.entry.label == label and row.result is not None


def _row(of: EnvResult | Mean, card: Scorecard, count: bool, scaled: bool) -> tuple[str, ...]:
    why = of.withheld if isinstance(of, Mean) else card.withheld(of)
    bounded = isinstance(of, EnvResult) and of.at_least is not None
    cells = [
        "withheld" if why else told(of.success),
        f"{of.at_least:.1%} to {of.at_most:.1%}" if bounded and isinstance(of, EnvResult) else "-",
        "withheld" if why else told(of.reward, "{:.3f}"),
        "-" if of.turns is None else f"{of.turns:.2f}",
    ]
    if scaled:
        cells.append("withheld" if why else told(card.normalised(of), "{:.3f}"))
    if count:
        cells.append(f"{tokens_of(of.usage):,}")
        cells += [dollars(card.cost(of.usage))] * (card.prices is not None)
    return (*cells, _verdicts(of))


def _verdicts(of: EnvResult | Mean) -> str:
    """Return how many have a verdict, and the rate of those that have none."""
    said = f"{of.scored}/{of.episodes}"
    if isinstance(of, Mean):
        return said
    unplayed = f", {of.unplayed} not played" if of.unplayed else ""
    if not of.unscored:
        return said + unplayed
    cut = f", {of.cancelled} cut off" if of.cancelled else ""
    return f"{said}, none in {told(of.no_verdict)}{cut}{unplayed}"


def _settings_of(entry: Entry) -> dict[str, Any]:
    """Return an environment of a suite as JSON values; a grader of one's own as its name."""
    kwargs = {name: getattr(value, "name", value) for name, value in entry.kwargs.items()}
    return {**{each.name: getattr(entry, each.name) for each in fields(entry)}, "kwargs": kwargs}


def _plain(value: Any) -> Any:
    """Return JSON values; what is not finite becomes null, as JSON has no NaN."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write(file: Path, data: bytes) -> None:
    """Write a file so that a crash leaves the old one or the new one.

    Raises:
        StoreError: when it cannot be written.
    """
    partial = file.with_name(file.name + ".partial")
    try:
        partial.write_bytes(data)
        partial.replace(file)
    except OSError as error:
        raise StoreError(f"{file} cannot be written: {error}") from error
