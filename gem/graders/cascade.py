"""CascadeGrader: cheap graders first, and expensive ones only when the cheap ones do not decide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import blake2b
from threading import Lock
from typing import Any

from gem.errors import BadArgument, check_argument
from gem.graders.base import Grader, Score, grade_with
from gem.specs import Rebuildable


def accepts(score: Score) -> bool:
    """Return whether a cheap grader accepts the answer; a strict grader errs only by rejecting."""
    return score.correct


class CascadeGrader(Rebuildable):
    """A grader that asks its graders in order until one settles the answer; the last one always does.

    The score's `info` holds every verdict under ``verdicts``, and ``settled_by``. A share of the settled
    answers goes to the other graders too, as spot checks. `report` counts how often they disagree, which
    shows how wrong the cheap graders are. If a grader fails in a spot check, only that check is lost.
    """

    def __init__(
        self,
        graders: Mapping[str, Grader],
        *,
        settles: Callable[[Score], bool] = accepts,
        spot_checks: float = 0.0,
    ) -> None:
        """Set the graders and their order.

        Args:
            graders: the graders by name, the cheapest first.
            settles: decides whether a score of any grader but the last is final.
            spot_checks: share of the settled answers, from 0 to 1, that the other graders grade too; a hash
                of the answer selects them.
        """
        if not graders:
            raise BadArgument("a cascade needs at least one grader.")
        check_argument("spot_checks", spot_checks, 0 <= spot_checks <= 1, "from 0 to 1")
        self.graders, self.settles, self.spot_checks = dict(graders), settles, spot_checks
        self.name = "cascade/1:" + "+".join(str(getattr(g, "name", key)) for key, g in self.graders.items())
        self._settled: Counter[str] = Counter()
        self._compared: Counter[tuple[str, str]] = Counter()
        self._disagreed: Counter[tuple[str, str]] = Counter()
        self._failed: Counter[str] = Counter()
        self._lock = Lock()

    @property
    def waits(self) -> bool:
        """Whether one of the graders waits for a server."""
        return any(getattr(grader, "waits", False) for grader in self.graders.values())

    def __call__(self, answer: str, reference: Any, question: str | None = None) -> Score:
        """Score `answer`; raises what a grader raises before the answer is settled."""
        verdicts: dict[str, bool] = {}
        final: Score | None = None
        by = ""
        names = list(self.graders)
        checked = self._is_checked(answer)
        for name in names:
            try:
                score = grade_with(self.graders[name], answer, reference, question)
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
        """Return how many answers each grader settled, and per pair the disagreements and comparisons.

        ``failed`` counts the spot checks in which each grader failed.
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
            for i, (a, verdict) in enumerate(given):
                for b, other in given[i + 1 :]:
                    self._compared[a, b] += 1
                    self._disagreed[a, b] += verdict != other
