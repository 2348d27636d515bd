"""The oracle's table: a row with figures and a verdict for each algorithm in each environment."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from gem.errors import BadArgument, check_argument, check_least, did_you_mean
from gem.naming import FORMS
from gem.train.oracle.cases import (
    CASES,
    NO_GAMMA,
    Aims,
    Case,
    Scalar,
    case_of,
    learn_step,
    reference,
    sampler,
)
from gem.train.oracle.envs import SETTINGS
from gem.train.oracle.exact import Exact, Listing
from gem.train.oracle.measure import (
    Estimate,
    Group,
    LearnStep,
    batches,
    branches,
    draw_batches,
    groups,
    measure,
    number,
)
from gem.waiting import name_wait

ROUNDING = 1e-5
"""Relative tolerance of equality with the mean step: episodes hold log probabilities in float32."""
DEVIATIONS = 4.0
"""Tolerance of the mean of drawn batches, in standard errors."""
LISTED = 500
"""Maximum number of batches that are listed; where a requested size has more, some are drawn."""
SIZES = (4, 3, 2)
"""Default numbers of episodes in a batch: the first whose batches can be listed, else the last."""
UNEXPECTED = "UNEXPECTED"

HEADS = (
    *("algorithm", "gamma", "batch", "batches", "cosine", "length", "bias", "variance", "undiscounted"),
    "verdict",
)
"""The columns of Row.cells()."""


@dataclass(frozen=True, slots=True)
class Row:
    """The result of judging an algorithm's learn step in an environment.

    `batch`: episodes of a step. `batches`: their number, all of them where `listed`, else drawn. `cosine`: of
    the mean step with the exact gradient of the stated objective. `length`: of the mean step, over the
    gradient's length. `bias`: the distance of the two over the gradient's length, `error` its standard error.
    `variance`: per episode: the trace of the step's covariance times `batch`, over the gradient's squared
    length. `undiscounted`: the cosine with the gradient of the mean return without discount. `verdict`: the
    result in words, `expected`: whether it is as known.
    """

    env: str
    algorithm: str
    gamma: float
    batch: int
    batches: int
    listed: bool
    cosine: float
    length: float
    bias: float
    error: float
    variance: float
    undiscounted: float
    verdict: str
    expected: bool

    def cells(self) -> tuple[str, ...]:
        """Return the row as text, without the environment."""
        return (
            self.algorithm,
            f"{self.gamma:g}",
            str(self.batch),
            f"{self.batches}" if self.listed else f"{self.batches} drawn",
            f"{self.cosine:.3f}",
            f"{self.length:.3f}",
            f"{self.bias:.3f}" if self.listed else f"{self.bias:.3f} +- {self.error:.3f}",
            f"{self.variance:.3g}",
            f"{self.undiscounted:.3f}",
            self.verdict,
        )


class Judge:
    """An environment, a policy drawn from `seed`, and its exact sums."""

    def __init__(self, env: str, seed: int = 0) -> None:
        """List the environment's episodes."""
        self.env, self.seed = env, seed
        self.listing = Listing(SETTINGS[env])
        self.policy = self.listing.policy(seed)
        outcomes = self.listing.outcomes(self.policy)
        self.exact = Exact(self.policy, outcomes, self.listing.law)
        self.scored = math.fsum(outcome.probability for outcome in outcomes if outcome.episode.scored)

    def aims(self, gamma: float, older: Tensor) -> Aims:
        """Return the objectives at one gamma; `older` is the sampler's table."""
        other = reference(self.listing, self.seed)
        return Aims(self.exact, gamma, other.model.logits.detach(), older)

    def row(
        self,
        name: str,
        gamma: float,
        *,
        batch: int | None = None,
        samples: int = 2000,
        step: LearnStep | None = None,
    ) -> Row:
        """Judge a case: compare its learn step with its aims; `step` replaces the real one."""
        case = CASES.get(name) or case_of(name)
        older = sampler(self.listing, self.policy, case, self.seed)
        outcomes = self.listing.outcomes(older)
        sizes = SIZES if batch is None else (batch,)
        for size in sizes:
            config = case.config(gamma, size)
            choices: list[Group]
            if config.algorithm_value.group == "turn":
                choices, count = branches(outcomes, size), 1
            elif config.grouped:
                choices, count = groups(outcomes, self.listing.law, size), 1
            else:
                choices, count = groups(outcomes, self.listing.law, 1), size
            if number(len(choices), count, ordered=case.split) <= LISTED:
                break
        listed = batch is None or number(len(choices), count, ordered=case.split) <= LISTED
        weighed = (
            batches(choices, count, ordered=case.split)
            if listed
            else draw_batches(choices, count, samples, self.seed)
        )
        step = step or learn_step(self.listing, self.policy, self.exact, case, config, self.seed)
        estimate = measure(step, weighed, listed=listed)
        aims = self.aims(gamma, older.model.logits.detach())
        gradient = self.exact.gradient(getattr(aims, case.objective))
        verdict, expected = self._verdict(case, aims, gradient, estimate, size, count)
        size_of = float(gradient.norm())
        plain = self.exact.gradient(lambda table: self.exact.mean_return(table, 1.0))
        return Row(
            env=self.env,
            algorithm=name,
            gamma=gamma,
            batch=size,
            batches=estimate.batches,
            listed=listed,
            cosine=_cosine(estimate.mean, gradient),
            length=float(estimate.mean.norm()) / size_of,
            bias=float((estimate.mean - gradient).norm()) / size_of,
            error=estimate.error / size_of,
            variance=estimate.trace * size / size_of**2,
            undiscounted=_cosine(estimate.mean, plain),
            verdict=verdict,
            expected=expected,
        )

    def _verdict(
        self, case: Case, aims: Aims, gradient: Tensor, estimate: Estimate, batch: int, worlds: int
    ) -> tuple[str, bool]:
        """Compare the mean step with its possible aims, up to the known scale.

        A batch takes no step when none of its episodes has a verdict; those of one world share theirs.
        """
        if case.reason is not None and estimate.error:
            return f"biased by design: {case.reason}", True  # too noisy to tell that it keeps the direction
        known = case.scale(batch) * (1 - (1 - self.scored) ** worlds)
        gamma_counts = not self._agree(aims.mean_return, aims.to_go)
        for label, name in (("", case.objective), *case.instead.items()):
            aim = gradient if not label else self.exact.gradient(getattr(aims, name))
            # A case with a reason has no scale that is known, and may still keep the direction.
            scale = known if case.reason is None else float((estimate.mean * aim).sum() / aim.square().sum())
            if scale > 0 and same(estimate, scale * aim):
                if not gamma_counts:
                    label = label.removeprefix(f"{NO_GAMMA}; ")
                wrong = label and f"biased by design: {label}"
                scaled = "" if abs(scale - 1) <= ROUNDING else f"scaled by {scale:.3g}"
                return "; ".join(filter(None, (wrong, scaled))) or "unbiased", True
        if case.reason is not None:
            return f"biased by design: {case.reason}", True
        factor = float((estimate.mean * gradient).sum() / gradient.square().sum())
        if same(estimate, factor * gradient):
            return f"{UNEXPECTED}: scaled by {factor:.3g}", False
        return f"{UNEXPECTED}: biased", False

    def _agree(self, one: Scalar, other: Scalar) -> bool:
        """Return whether two scalars have the same gradient."""
        first, second = self.exact.gradient(one), self.exact.gradient(other)
        return float((first - second).norm()) <= ROUNDING * float(first.norm())


def same(estimate: Estimate, gradient: Tensor) -> bool:
    """Return whether a mean step equals a gradient, up to rounding or to its standard error."""
    distance = float((estimate.mean - gradient).norm())
    return distance <= max(ROUNDING * float(gradient.norm()), DEVIATIONS * estimate.error)


def _cosine(one: Tensor, other: Tensor) -> float:
    return float((one * other).sum()) / (float(one.norm() * other.norm()) or math.inf)


def judge(
    envs: Sequence[str] = (),
    algorithms: Sequence[str] = (),
    gammas: Sequence[float] = (0.9,),
    *,
    batch: int | None = None,
    samples: int = 2000,
    seed: int = 0,
) -> Iterator[Row]:
    """Judge algorithms in environments, a row at a time.

    Args:
        envs: names of SETTINGS; none: all.
        algorithms: names of CASES, or algorithms of your own by name; none: all of CASES.
        gammas: discounts per turn; environments of one turn are judged at the first only.
        batch: episodes of a batch; None: as many as can be listed.
        samples: batches that are drawn, where there are too many to list.
        seed: of the policy, the reference, the critic and the batches that are drawn.

    Raises:
        BadArgument: for an unknown name, a discount outside [0, 1], or fewer than 2 episodes or samples.
    """
    own = [name for name in algorithms if name not in CASES and ":" in name]
    for name in own:
        case_of(name)  # what cannot be loaded is refused before anything is played
    for kind, names, known, more in (
        ("environment", envs, SETTINGS, ""),
        ("algorithm", algorithms, (*CASES, *own), f", or one of your own, as {FORMS}"),
    ):
        for name in names:
            if name not in known:
                raise BadArgument(
                    f"no {kind} {name!r} of the oracle.{did_you_mean(name, known)} Accepted: "
                    f"{', '.join(known)}{more}."
                )
    for gamma in gammas:
        check_argument("gamma", gamma, 0 <= gamma <= 1, "0 to 1")
    check_argument("batch", batch, batch is None or batch >= 2, "2 or more episodes")
    check_least("samples", samples, 2)
    for env in envs or SETTINGS:
        one_turn = SETTINGS[env].kwargs.get("turns", 1) == 1
        judged = Judge(env, seed)
        for gamma in gammas[:1] if one_turn else gammas:
            for name in algorithms or CASES:
                with name_wait(f"the mean step of {name} in {env}"):
                    row = judged.row(name, gamma, batch=batch, samples=samples)
                yield row
