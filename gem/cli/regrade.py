"""The command ``gem-gym regrade``: score stored episodes again."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from gem.cli.terms import FAILED, MaybePath, table
from gem.content import printable
from gem.files import explain_errors, refuse_other
from gem.graders.code import CodeGrader
from gem.graders.functions import FunctionGrader, ping_judges
from gem.graders.named import GRADER_HELP, make_grader
from gem.record import Episode
from gem.sandbox.choice import require_sandbox


def regrade(
    store: Annotated[Positional[Path], arg(metavar="STORE")],
    grader: Annotated[str, arg(help=f"{GRADER_HELP}.")] = "math",
    cache: MaybePath = None,
    out: MaybePath = None,
    trust: bool = False,
) -> int:
    """Score stored episodes again, without running them, and show where the verdicts differ.

    It grades the last answer of each episode (of several attempts, the last one); the reference comes from
    the environment's task. The exit code is 1 if no episode of an environment has a new verdict.

    Args:
        store: a file of episodes, or the folder of a run.
        grader: the grader's name; see `gem.graders.named.GRADER_HELP`.
        cache: an SQLite file of verdicts, keyed by content, so that nothing is graded twice.
        out: write each verdict to this file, one JSON object a line.
        trust: make what the records name, even if a file may not name it; docs/guides/trust.md has the rule.
    """
    from dataclasses import asdict

    from gem.graders.cache import CachedGrader
    from gem.naming import fix_name
    from gem.rollout.regrade import regrade as regraded
    from gem.rollout.store import UNREADABLE, EpisodeStore, find_store

    if out is not None and out.is_file():  # a pipe or a device is only written to
        refuse_other(out, b'{"episode":')
    judge = make_grader(grader)
    if isinstance(judge, CodeGrader):
        require_sandbox(f"the grader {grader}")
    with contextlib.ExitStack() as stack:
        if hasattr(judge, "close"):
            stack.callback(judge.close)
        ping_judges({"grader": judge})
        if cache is not None:  # verdicts of a function belong to its source
            own = isinstance(judge, FunctionGrader)
            key = fix_name(grader, "grader") if own else getattr(judge, "name", grader)
            judge = stack.enter_context(CachedGrader(judge, cache, name=key))
        episodes = stack.enter_context(EpisodeStore(find_store(store), read_only=True, trust=trust))
        latest = episodes.latest()
        torn: list[int] = []

        def read() -> Iterator[Episode]:
            for entry in latest:
                try:
                    yield episodes[entry.number]
                except UNREADABLE:
                    torn.append(entry.number)

        verdicts = list(regraded(read(), judge))
        left_out = len(latest) - len(torn) - len(verdicts)
        damaged = len(torn) + episodes.torn
    if out is not None:
        with explain_errors(out):
            out.write_text("".join(json.dumps(asdict(row)) + "\n" for row in verdicts), encoding="ascii")
    rows = []
    graded = {row.spec for row in verdicts if row.after is not None}
    code = FAILED if not graded or {entry.spec for entry in latest if entry.id} - graded else 0
    for spec in sorted({row.spec for row in verdicts}):
        of = [row for row in verdicts if row.spec == spec]
        newly = [row.after for row in of if row.changed]
        before, after = ([getattr(row, name) for row in of] for name in ("before", "after"))
        rows.append((spec, len(of), before.count(True), after.count(True), *map(newly.count, (True, False))))
        rows[-1] += (after.count(None),)
        lost = [row.why for row in of if row.after is None]
        if lost:
            print(printable(f"{spec}: {len(lost)} episodes with {lost[0]}"), file=sys.stderr)
    columns = ("episodes", "right before", "right now", "newly right", "newly wrong", "no verdict")
    table("env", *columns, rows=rows)
    for row in [row for row in verdicts if row.changed][:10]:
        verdict = "right" if row.after else "wrong"
        print(printable(f"{row.episode} is {verdict} now ({row.why}): {row.answer[-200:]}"))
    if damaged:
        print(f"{damaged} damaged line{'s were' if damaged > 1 else ' was'} skipped.", file=sys.stderr)
    if left_out:
        print(f"{left_out} episodes without a verdict or an answer were left out.")
    return code
