"""A cascade: cheap graders first, dearer ones where the cheap ones do not settle it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import blake2b
from threading import Lock
from typing import Any

from gem.errors import BadArgument
from gem.graders.base import Grader, Score
from gem.specs import Rebuildable


def accepts(score: Score) -> bool:
    """Settle what a cheap grader accepts: a strict one errs by refusing."""
    return score.correct


class CascadeGrader(Rebuildable):
    """Asks its graders in order, until one settles the answer; the last one always does.

    The score's `info` holds every verdict that was given, under ``verdicts``, and ``settled_by``. A share of
    the settled answers is shown to the other graders too, and `report` says how often they disagree: that is
    how wrong the cheap ones are. A grader that fails in such a check costs the check alone.
    """

    def __init__(
        self,
        graders: Mapping[str, Grader],
        *,
        settles: Callable[[Score], bool] = accepts,
        spot_checks: float = 0.0,
    ) -> None:
        """Line the graders up.

        Args:
            graders: by name, the cheapest first.
            settles: whether a score of any but the last is final.
            spot_checks: share of the settled answers, from 0 to 1, that the others see too; which ones
                follows from their content.
        """
        if not graders:
            raise BadArgument("a cascade needs at least one grader.")
        if not 0 <= spot_checks <= 1:
            raise BadArgument(f"spot_checks is {spot_checks}; accepted: from 0 to 1.")
        self.graders, self.settles, self.spot_checks = dict(graders), settles, spot_checks
        self.name = "cascade/1:" + "+".join(str(getattr(g, "name", key)) for key, g in self.graders.items())
        self._settled: Counter[str] = Counter()
        self._compared: Counter[tuple[str, str]] = Counter()
        self._disagreed: Counter[tuple[str, str]] = Counter()
        self._failed: Counter[str] = Counter()
        self._lock = Lock()

    def __call__(self, answer: str, reference: Any) -> Score:
        """Score `answer`; raises what the grader that was asked raises."""
        verdicts: dict[str, bool] = {}
        final: Score | None = None
        by = ""
        names = list(self.graders)
        checked = self._is_checked(answer)
        for name in names:
            try:
                score = self.graders[name](answer, reference)
            except Exception:
                if final is None:
                    raise
                with self._lock:
                    self._failed[name] += 1
                continue
            verdicts[name] = score.correct
            if final is None and (name == names[-1] or self.settles(score)):
                final, by = score, name
                if not checked:
                    break
        assert final is not None
        self._note(by, verdicts)
        return replace(final, info={**final.info, "settled_by": by, "verdicts": verdicts})

    def report(self) -> dict[str, Any]:
        """Return how many answers each grader settled, and how often each pair disagreed of how many.

        ``failed`` says how many spot checks each grader failed to make.
        """
        with self._lock:
            return {
                "settled": {name: self._settled[name] for name in self.graders},
                "disagreements": {
                    f"{a} / {b}": (self._disagreed[a, b], count) for (a, b), count in self._compared.items()
                },
                "failed": dict(self._failed),
            }

    def _is_checked(self, answer: str) -> bool:
        if not self.spot_checks:
            return False
        drawn = blake2b(answer.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(drawn, "big") < self.spot_checks * 2**64

    def _note(self, by: str, verdicts: Mapping[str, bool]) -> None:
        given = list(verdicts.items())
        with self._lock:
            self._settled[by] += 1
            for i, (a, said) in enumerate(given):
                for b, other in given[i + 1 :]:
                    self._compared[a, b] += 1
                    self._disagreed[a, b] += said != other
