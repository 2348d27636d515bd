"""Grade many answers, at the same time where the grader waits for a server."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from gem.errors import NoVerdict
from gem.graders.base import Grader, Score, grade_with

AT_ONCE = 32
"""The most answers that are graded at the same time; the judge's own limit of requests counts too."""


def grade_many(
    grader: Grader, answers: Iterable[tuple[str, Any, str | None]], at_once: int = AT_ONCE
) -> Iterator[Score | NoVerdict]:
    """Yield the score of each answer in their order, or the NoVerdict that the grader raised.

    Args:
        grader: any; one that `waits` grades up to `at_once` answers at the same time, in threads.
        answers: each with its reference and question; None: without question. They are read as they are
            graded, up to `at_once` ahead.
        at_once: 1 or more.
    """

    def grade(answer: tuple[str, Any, str | None]) -> Score | NoVerdict:
        try:
            return grade_with(grader, *answer)
        except NoVerdict as error:
            return error

    if not getattr(grader, "waits", False):
        yield from map(grade, answers)
        return
    pending: deque[Future[Score | NoVerdict]] = deque()
    with ThreadPoolExecutor(at_once) as threads:
        for answer in answers:
            pending.append(threads.submit(grade, answer))
            if len(pending) >= at_once:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
