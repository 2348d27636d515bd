"""What goes wrong in a run, told in plain words from the figures of its iterations.

`alarms` takes the history of a run after each iteration and returns what begins to be wrong with the last
one. It is a function of the history alone: a resumed run is told the same. Each trouble is told when it
begins, and again only after it was gone for `AGAIN` iterations. To add one: a function in `CHECKS`.

A figure that was not taken is NaN; what rests on it is then silent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from gem.statistics import mann_kendall
from gem.train.config import TrainConfig
from gem.train.run import Metrics

AGAIN = 20
"""Iterations for which a trouble has to be gone before it is told anew."""
WINDOW = 5
"""Iterations that a level is the mean of, so that one odd batch is no trouble."""
NO_SIGNAL = 3
"""Iterations in a row that trained nothing."""
ENTROPY_LEFT = 0.05
"""Share of the run's first entropy below which the policy has hardened."""
SOLVED = 0.9
"""Success above which a hardened policy, or one that learns no more, is as it should be."""
UNREADABLE_RISE = 0.2
"""How far the share of unreadable answers may rise above its lowest level."""
STANDARD_ERRORS = 4.0
"""That rise has to be so many standard errors of a share of so many episodes, too."""
NO_VERDICT = 0.1
"""Share of episodes without a verdict above which the rest may not stand for all."""
STEP_KL = 0.1
"""Divergence of the steps, nats per token. Well-tuned runs stay near 0.01 (Schulman et al., arXiv 1707.06347,
adapt their penalty to targets of 0.003 to 0.03)."""
KL_RISE = 5.0
"""How many times the divergence from the reference may be its median over the `AGAIN` iterations before."""
KL_LEAST = 0.5
"""Divergence from the reference, nats per token, that is no matter, however fast it came."""
LOGPROB_GAP = 0.05
"""Mean absolute difference, in nats, of the log probabilities of the same tokens under the same weights, in
the sampler and in the trainer. Both in float32 differ by about 1e-5, bfloat16 by about 0.01."""
SHARE = 0.5
"""Share of the run after which it should have learnt something."""
P_VALUE = 0.025
"""Trends that chance gives more often than this are none."""
BLOCKS = 50
"""Means of neighbouring iterations that the trend is sought in: as many at most."""
LEAST_BLOCKS = 10
"""With fewer of them nothing is said about the trend."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A trouble that began with an iteration: what was seen, what it usually means, what to do."""

    name: str
    iteration: int
    text: str


def alarms(history: Sequence[Metrics], config: TrainConfig) -> list[Alarm]:
    """Return what begins to be wrong with the last iteration of `history`, one Alarm for each."""
    found = []
    for name, check in CHECKS.items():
        text = check(history, config)
        if text is None:
            continue
        before = (history[:-back] for back in range(1, min(AGAIN, len(history) - 1) + 1))
        if all(check(earlier, config) is None for earlier in before):
            found.append(Alarm(name, history[-1].iteration, text))
    return found


def no_signal(history: Sequence[Metrics], config: TrainConfig) -> str | None:
    """All returns are equal: `NO_SIGNAL` iterations in a row had a return and trained nothing."""
    last = history[-NO_SIGNAL:]
    if len(last) < NO_SIGNAL or any(m.tokens_trained or math.isnan(m.reward) for m in last):
        return None
    if _level(last, "success") >= SOLVED:
        return (
            f"All returns were equal for {NO_SIGNAL} iterations: nearly every episode succeeds, so nothing "
            "is left to learn. Stop here, or train on a harder environment."
        )
    return (
        f"All returns were equal for {NO_SIGNAL} iterations (mean {last[-1].reward:.3g}), so nothing was "
        "trained. Usually the task is too hard for the policy, and every episode fails. Warm it up on "
        "demonstrations, begin with an easier environment, or play more episodes in a batch or group."
    )


def entropy_collapsed(history: Sequence[Metrics], config: TrainConfig) -> str | None:
    """Entropy fell below `ENTROPY_LEFT` of that of the first iterations, and success is below `SOLVED`."""
    first, last = _level(history[:WINDOW], "entropy"), _level(history[-WINDOW:], "entropy")
    if len(history) < 2 * WINDOW or not last < ENTROPY_LEFT * first:
        return None
    if (_level(history[-WINDOW:], "success")) >= SOLVED:
        return None
    return (
        f"Entropy fell to {last:.3g} nats per token, from {first:.3g}, and success is "
        f"{_level(history[-WINDOW:], 'success'):.0%}. The policy says the same thing every time and can no "
        "longer find anything better. Take a smaller lr, a larger kl or entropy, or a higher temperature, "
        "and begin again from before it fell."
    )


def format_lost(history: Sequence[Metrics], config: TrainConfig) -> str | None:
    """Unreadable answers rose by `UNREADABLE_RISE`, and by more than chance, above their lowest share."""
    if len(history) < 2 * WINDOW:
        return None
    last = _level(history[-WINDOW:], "unreadable")
    levels = [_level(history[i : i + WINDOW], "unreadable") for i in range(len(history) - 2 * WINDOW + 1)]
    known = [level for level in levels if not math.isnan(level)]
    if not known or not last - min(known) > UNREADABLE_RISE:
        return None
    best, episodes = min(known), WINDOW * config.batch
    if last - best < STANDARD_ERRORS * math.sqrt((last * (1 - last) + best * (1 - best)) / episodes):
        return None
    return (
        f"{last:.0%} of episodes end in an answer that cannot be read; it was {best:.0%}. The policy is "
        "forgetting the format: the steps are too large, or nothing holds it to what it was. Take a smaller "
        "lr or a larger kl, and read some of the last episodes (gem-gym store show)."
    )


def verdicts_lost(history: Sequence[Metrics], config: TrainConfig) -> str | None:
    """More than `NO_VERDICT` of the last episodes have no verdict."""
    last = history[-WINDOW:]
    share = fmean(m.no_verdict for m in last) / config.batch if len(last) == WINDOW else 0.0
    if share <= NO_VERDICT:
        return None
    return (
        f"{share:.0%} of the last {WINDOW * config.batch:,} episodes have no verdict: something around the "
        "environment breaks (a server, a sandbox, a time limit). What is left is not a fair sample, for long "
        "and hard episodes break most often. Look at what broke (gem-gym store ls --no-verdict), and mend it."
    )


def kl_exploding(history: Sequence[Metrics], config: TrainConfig) -> str | None:
    """The steps diverge by more than `STEP_KL`, or the reference is `KL_RISE` times as far as it was."""
    if len(history) < WINDOW:
        return None
    steps = _level(history[-WINDOW:], "step_kl")
    if steps > STEP_KL:
        return (
            f"The last updates moved the policy by {steps:.3g} nats per token each, where 0.01 is usual. "
            "The samples no longer stand for the policy that is trained on them. Take a smaller lr, fewer "
            "epochs or larger minibatches."
        )
    last = _level(history[-WINDOW:], "kl")
    earlier = sorted(m.kl for m in history[-WINDOW - AGAIN : -WINDOW] if not math.isnan(m.kl))
    if len(earlier) < WINDOW or not last > max(KL_LEAST, KL_RISE * earlier[len(earlier) // 2]):
        return None
    return (
        f"The divergence from the policy before RL rose to {last:.3g} nats per token, from "
        f"{earlier[len(earlier) // 2]:.3g} a few iterations ago. The policy is running away from what it "
        "knew, often towards something that the reward overlooks. Read some episodes; take a smaller lr or a "
        "larger kl."
    )


def sampler_disagrees(history: Sequence[Metrics], config: TrainConfig) -> str | None:
    """The sampler's and the trainer's log probabilities of the same tokens differ by `LOGPROB_GAP`."""
    gap = _level(history[-WINDOW:], "logprob_gap")
    if len(history) < WINDOW or not gap > LOGPROB_GAP:
        return None
    return (
        f"The sampler and the trainer differ by {gap:.3g} nats per token about what was sampled, under the "
        "same weights. The gradient is then that of another policy. Usual causes: another precision or "
        "attention in one of them, another temperature or template, weights that were not handed over. "
        "Sample and train in the same dtype, with the same model."
    )


def not_learning(history: Sequence[Metrics], config: TrainConfig) -> str | None:
    """At `SHARE` of the run neither success nor return has a rising trend (Mann-Kendall, at `P_VALUE` each).

    It is looked at once, so that it says so once. Of runs that learn nothing about one in twenty escapes it.
    """
    if config.opponents or config.curriculum:  # what is played grows harder on the way
        return None
    if len(history) != math.ceil(SHARE * config.iterations) or _level(history[-WINDOW:], "success") >= SOLVED:
        return None
    trends = {name: _trend(history, name) for name in ("success", "reward")}
    known = {name: p for name, p in trends.items() if p is not None}
    if not known or min(known.values()) <= P_VALUE:
        return None
    name = next(iter(known))
    falls = f", but falls (p {1 - known[name]:.2g})" if 1 - known[name] <= P_VALUE else ""
    first, last = (
        _level(part, name) for part in (history[: len(history) // 4], history[-(len(history) // 4) :])
    )
    return (
        f"After {SHARE:.0%} of the run {name} does not rise{falls}: {first:.3g} in the first quarter of the "
        f"iterations so far and {last:.3g} in the last (p {known[name]:.2g} for a rising trend). Either the "
        "steps are too small, the batches too small for the noise, or the task is out of reach. Try a larger "
        "lr or batch, an easier environment, or a warm-up on demonstrations."
    )


CHECKS: dict[str, Callable[[Sequence[Metrics], TrainConfig], str | None]] = {
    "no_signal": no_signal,
    "entropy_collapsed": entropy_collapsed,
    "format_lost": format_lost,
    "verdicts_lost": verdicts_lost,
    "kl_exploding": kl_exploding,
    "sampler_disagrees": sampler_disagrees,
    "not_learning": not_learning,
}
"""What is looked for, by name; each says what is wrong with the last iteration of a history, or None."""


def _level(metrics: Sequence[Metrics], name: str) -> float:
    """Return the mean of a figure where it was taken; NaN where it never was."""
    known = [value for m in metrics if not math.isnan(value := getattr(m, name, math.nan))]
    return fmean(known) if known else math.nan


def _trend(history: Sequence[Metrics], name: str) -> float | None:
    """Return the p-value of a rising trend of a figure; None where there is too little of it."""
    size = max(1, -(-len(history) // BLOCKS))
    means = [_level(history[i : i + size], name) for i in range(0, len(history), size)]
    known = [mean for mean in means if not math.isnan(mean)]
    return mann_kendall(known) if len(known) >= LEAST_BLOCKS else None
