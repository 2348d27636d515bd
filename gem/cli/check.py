"""The commands ``gem-gym check`` and ``gem-gym audit``: test environments and graders."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from tyro.conf import Positional, UseAppendAction, arg

import gem
from gem.cli.terms import FAILED, MaybePath, MaybeText, table
from gem.content import printable
from gem.errors import BadArgument, ContractBroken, GemError, check_argument, check_least
from gem.graders import MADE
from gem.naming import is_fixed
from gem.registry import load, spec_named
from gem.sandbox.base import SandboxFailed
from gem.sandbox.choice import check_needs, require_sandbox
from gem.waiting import name_wait

T = TypeVar("T", bound=str | Callable[..., Any])


MOST_SEEDS = 1_000_000
"""The most episodes that a check tries."""


def check(
    targets: Annotated[Positional[tuple[str, ...]], arg(metavar="ID|FILE.py:Class", help_behavior_hint="")],
    seeds: int = 3,
    thorough: bool = False,
    faults: bool = False,
    record: bool = False,
    call_s: float = 30.0,
) -> int:
    """Check environments: seeds, state, forks, hostile actions, documentation, and what their specs claim.

    Args:
        targets: ids, or classes as my_envs.py:MyEnv or my_package.envs:MyEnv.
        seeds: how many episodes to try.
        thorough: also compare transcripts on every host and under two hash seeds. Takes seconds.
        faults: also inject faults into its code, tools, sandbox, process and agent. Takes seconds.
        record: write the golden transcript of each id under tests/golden/.
        call_s: seconds that one call of an environment may take before it counts as hanging.
    """
    from gem.testing import check_env
    from gem.testing.golden import FOLDER
    from gem.testing.golden import record as write_golden

    if not targets:
        raise BadArgument("no environment was named; accepted: an id, or a class as my_envs.py:MyEnv.")
    check_argument("seeds", seeds, 1 <= seeds <= MOST_SEEDS, f"1 to {MOST_SEEDS:,}")
    if record and not FOLDER.is_dir():
        raise BadArgument(f"there is no {FOLDER}/ here; run --record in the root of a checkout of gem.")
    playable = _leave_out_programs(targets)
    code = FAILED if len(playable) < len(targets) else 0
    for name in playable:
        target = environment(name)
        with ExitStack() as rule:
            report = check_env(
                target,
                seeds=range(seeds),
                hosts=thorough,
                hash_seed=thorough,
                faults=faults,
                on_rule=partial(_begin_rule, rule, name),
                call_s=call_s,
                end_process=True,
            )
        print(printable(str(report)))
        if not report.ok:
            code = FAILED
        elif record:
            if not isinstance(target, str):
                raise BadArgument(f"{name} is a class; golden transcripts are kept for ids only.")
            print(f"  recorded {write_golden(target)}")
    return code


def _begin_rule(rule: ExitStack, env: str, name: str) -> None:
    """Name a rule as what the command waits for, in place of the one before."""
    rule.close()
    rule.enter_context(name_wait(f"the rule {name} of {env}; does the environment return? Ctrl-C stops"))


def audit(
    targets: Annotated[
        Positional[tuple[str, ...]], arg(metavar="ID|FAMILY|FILE.py:Class", help_behavior_hint="")
    ],
    episodes: int = 40,
    instances: int = 200,
    json: MaybePath = None,
    grader: MaybeText = None,
    data: MaybePath = None,
    columns: UseAppendAction[tuple[str, ...]] = (),
    answer_key: str = "answer",
    judge: MaybeText = None,
    labels: MaybePath = None,
    prices: MaybePath = None,
    call_s: float = 30.0,
) -> int:
    """Audit environments: can the full reward be reached, what do ignorant policies earn, do answers leak?

    A solver, legal random play and policies that know nothing play each environment. The audit of one
    environment is printed in full. Of several, each gets one line, with its open findings.

    Args:
        targets: ids, whole families as game, or classes as my_envs.py:MyEnv.
        episodes: the most episodes per policy; fewer if episodes are long.
        instances: how many seeds to try, to count distinct instances.
        json: write the cards to this file; cards of other environments in the file are kept.
        grader: audit a grader instead: math, number, text or code. Rewritten answers must score the same,
            wrong mutants must not. With --data: the grader that is to read the answers; if left out, that of
            `gem-gym eval --data`.
        data: list instead all rows of this file that cannot be used, those whose own answers or solutions in
            code are wrong, and the references that the mathematics grader can read only in part.
        columns: the columns of that file, as question=COLUMN,answer=COLUMN; see `gem-gym eval --help`.
        answer_key: the column of the reference in that file.
        judge: audit a judge instead, MODEL[@URL], or a rubric.toml with judges in it: its agreement with
            --labels.
        labels: a file with answers and their labels (right or wrong): columns question, answer, reference,
            label.
        prices: a file with dollars per million tokens, for the judge's cost; see `gem-gym eval --help`.
        call_s: seconds that one call of an environment may take before it counts as hanging.
    """
    if judge is not None or labels is not None:
        if judge is None or labels is None or targets or data is not None or grader is not None:
            raise BadArgument("--judge MODEL and --labels FILE go together, and with --prices alone.")
        return _audit_judge(judge, labels, prices)
    if data is not None:
        if targets or json is not None:
            raise BadArgument("--data audits a file alone; leave out environments and --json.")
        return _audit_data(data, ",".join(columns), answer_key, grader or "")
    if grader is not None:
        if targets or json is not None:
            raise BadArgument("--grader audits a grader alone; leave out environments and --json.")
        if grader == "code":
            return _audit_code()
        from gem.testing.audit_grader import audit_grader

        with name_wait(f"the audit of the grader {grader}"):
            report = audit_grader(grader)
        print(report)
        return 0 if report.ok else FAILED
    from gem.testing.audit import audit_env
    from gem.testing.card import read_cards, write_cards
    from gem.testing.places import where

    wanted: list[str | Callable[..., Any]] = []
    for name in targets:
        wanted += gem.ids(name.removesuffix(":")) or [environment(name)]
    if not wanted:
        raise BadArgument(
            "no environment was named; accepted: an id, a family, or a class as my_envs.py:MyEnv."
        )
    for flag, value in (("episodes", episodes), ("instances", instances)):
        check_least(flag, value, 2)
    cards = read_cards(json) if json is not None and json.exists() else {}
    if json is not None:
        write_cards(cards, json)  # a file that cannot be written is refused before the audit, not after it
    rows, code = [], 0
    for target in _leave_out_programs(wanted):
        try:
            with name_wait(f"the audit of {_target_name(target)}"):
                card = audit_env(
                    target, episodes=episodes, instances=instances, call_s=call_s, end_process=True
                )
        except ContractBroken as error:
            print(f"{_target_name(target)}: not audited: {printable(str(error))}", file=sys.stderr)
            code = FAILED
            continue
        except GemError as error:  # of a family, what is not installed or takes several seats
            if len(wanted) == 1:
                raise
            print(f"{target}: not audited: {printable(str(error))}", file=sys.stderr)
            continue
        except Exception as error:  # whatever a stranger's environment raises
            failure = f"{type(error).__name__} was raised {where(error)}: {str(error)[:300]}"
            print(f"{_target_name(target)}: not audited: {printable(failure)}", file=sys.stderr)
            print("`gem-gym check` tells which rules it breaks.", file=sys.stderr)
            code = FAILED
            continue
        cards[card.env] = card
        if not card.ok:
            code = FAILED
        if len(wanted) == 1 or not card.ok:
            print(printable(str(card)))
        expert, lottery = card.policies.get("solver"), card.policies.get("random")
        rows.append(
            (
                card.env,
                f"{expert.reward:.3f}" if expert else "-",
                f"{lottery.reward:.3f}" if lottery else "-",
                f"{max(card.ignorant.values()):.3f}",
                f"{card.distinct} of {card.dealt}",
                card.first.median,
                len(card.findings) or "-",
            )
        )
        if json is not None:
            write_cards(cards, json)
    if len(wanted) > 1:
        heads = ("solver", "random", "knowing nothing", "distinct", "tokens", "open")
        table("env", *heads, rows=rows)
    return code


def _target_name(target: str | Callable[..., Any]) -> str:
    return target if isinstance(target, str) else target.__name__


def _audit_code() -> int:
    from gem.testing.audit_code import audit_code
    from gem.testing.solutions import HUMANEVAL, basics, humaneval

    require_sandbox("the grader code")
    code = 0
    for name, solutions in (("code:Basics", basics()), ("HumanEval", humaneval())):
        if not solutions:
            print(f"{name}: not audited: the folder GEM_DATA does not hold {' or '.join(HUMANEVAL)}.")
            continue
        print(f"{name}: about {30 * len(solutions)} programs, which takes minutes ...", file=sys.stderr)
        with name_wait(f"the programs of {name}"):
            report = audit_code(solutions)
        print(f"{name}, {report}")
        code = code if report.ok else FAILED
    return code


def _audit_judge(name: str, labels: Path, prices: Path | None) -> int:
    from gem.evals.usage import Prices
    from gem.graders.functions import ping_judges
    from gem.graders.named import make_grader
    from gem.testing.audit_judge import audit_judge, read_labels

    known = read_labels(labels)
    priced = None if prices is None else Prices.read(prices)
    grader = make_grader(name if name.endswith(".toml") else f"judge:{name.removeprefix('judge:')}")
    with closing(grader):  # type: ignore[type-var]  # a judge's
        ping_judges({"judge": grader})
        report = audit_judge(grader, known)
    print(printable(report.describe(priced)))
    return 0 if report.verdicts else FAILED


def _audit_data(path: Path, columns: str, answer_key: str, grader: str) -> int:
    from gem.envs.data.named import guess_kind
    from gem.envs.data.reading import merge_rows, read_tasks
    from gem.graders.named import named_grader
    from gem.tasks.columns import find_columns, parse_columns
    from gem.tasks.files import place_of
    from gem.tasks.sources import has_cell, open_rows
    from gem.testing.audit_grader import unread_references

    rows, name, _ = open_rows(path, None)
    given = parse_columns(columns)
    there = has_cell(merge_rows(rows, name), answer_key)
    kind, own_grader = named_grader(grader) if grader else ("math", None)
    if not grader:
        known = given if answer_key == "answer" else {"answer": answer_key, **given}
        with suppress(BadArgument):  # which is told below, or it is a file of references alone
            kind = guess_kind(path, None, known)
    if there or answer_key != "answer":
        given.setdefault("answer", answer_key)
    try:
        find_columns(merge_rows(rows, name), given, kind, name)
    except BadArgument:
        if not there or columns:
            raise
        given = {"question": answer_key, "answer": answer_key}  # a file of references alone
    tasks, _ = read_tasks(path, None, given, kind, own_grader)
    bad = tasks.bad_rows()
    if bad:
        print(printable(tasks.describe_bad_rows(bad, most=len(bad))))
    left_out = {number for numbers in bad.values() for number in numbers}
    good = [number for number in range(len(tasks)) if number not in left_out]
    refused = _refused_answers(tasks, kind, good)
    if refused:
        print(f"{path}: {len(refused)} of {len(tasks)} rows refuse their own answers:")
    for at, why in refused:
        print(f"  {place_of(rows, at)}: {printable(why)[:300]}")
    if kind != "math":
        if not bad and not refused:
            print(f"{path}: all {len(tasks)} row{'s' * (len(tasks) != 1)} can be used by the grader {kind}.")
        return FAILED if bad or refused else 0
    unread = unread_references([tasks.reference(number) for number in good])
    for at, text in unread:
        print(f"  {place_of(rows, good[at])}: {printable(text)[:200]}")
    print(
        f"{path}: {len(unread)} of {len(tasks)} references cannot be read whole: only the same words "
        "are right."
    )
    return FAILED if unread or bad or refused else 0


def _refused_answers(tasks: Any, kind: str, numbers: Sequence[int]) -> list[tuple[int, str]]:
    """Return the rows that refuse their own answers, and why; of code none where no sandbox works."""
    from gem.testing.audit_grader import refused_answers

    if kind not in MADE:
        return []
    if kind == "code":
        try:
            require_sandbox("the solutions of the rows")
        except SandboxFailed as error:
            print(f"no solution was run: {printable(str(error))}", file=sys.stderr)
            return []
    with name_wait("the rows' own answers"):
        return list(refused_answers(tasks, kind, numbers))


def _leave_out_programs(targets: Sequence[T]) -> list[T]:
    """Return the targets that can be played here: all of them, or those that run no programs.

    Raises:
        SandboxFailed: when all run programs, and no sandbox works here.
    """
    specs = [spec_named(target) for target in targets]
    try:
        check_needs(specs)
    except SandboxFailed as error:
        playable = [each for each, spec in zip(targets, specs, strict=True) if not spec.needs.sandbox]
        if not playable:
            raise
        print(f"left out: {printable(str(error))}", file=sys.stderr)
        return playable
    return list(targets)


def environment(name: str) -> str | Callable[..., Any]:
    """Return `name` if it is a registered id, or else the class or function that it names.

    Raises:
        UnknownEnv: for an unknown id of a known family. BadArgument: when there is no such file or class.
    """
    spec = spec_named(name)
    return load(spec.entry_point) if is_fixed(spec.id) or spec.id == spec.entry_point else spec.id
