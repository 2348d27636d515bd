"""Warnings about a training run, computed from the metrics of its iterations.

`alarms` takes the history of a run after each iteration and returns the problems that begin with the last
one. It depends on the history alone, so a resumed run gives the same alarms. Each problem is reported when it
begins, and again only after it was absent for `AGAIN` iterations. To add one, add a function to `CHECKS`.

A figure that was not measured is NaN; a check that needs it then reports nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from gem.statistics import mann_kendall
from gem.train.config import TrainConfig
from gem.train.report.run_folder import Metrics

AGAIN = 20
"""Number of iterations for which a problem must be absent before it is reported again."""
WINDOW = 5
"""Number of iterations that a level is averaged over, so that one odd batch raises no alarm."""
NO_SIGNAL = 3
"""Number of iterations in a row that trained nothing."""
ENTROPY_LEFT = 0.05
"""Share of the run's first entropy below which the entropy has collapsed."""
SOLVED = 0.9
"""Success rate from which a low entropy or a flat trend is no problem."""
UNREADABLE_RISE = 0.2
"""How far the share of unreadable answers may rise above its lowest level."""
STANDARD_ERRORS = 4.0
"""The rise must also be at least this many standard errors of the difference between the two shares."""
NO_VERDICT = 0.1
"""Share of episodes without a verdict above which the rest may not be a fair sample."""
STEP_KL = 0.1
"""Divergence of the steps, nats per token. Well-tuned runs stay near 0.01 (Schulman et al., arXiv 1707.06347,
adapt their penalty to targets of 0.003 to 0.03)."""
KL_RISE = 5.0
"""The divergence from the reference may be this many times its median over the `AGAIN` iterations before."""
KL_LEAST = 0.5
"""Divergence from the reference, in nats per token, up to which there is no alarm."""
LOGPROB_GAP = 0.05
"""Mean absolute difference, in nats, of the log probabilities of the same tokens under the same weights, in
the sampler and in the trainer. In float32 they differ by about 1e-5, in bfloat16 by about 0.01."""
SHARE = 0.5
"""Share of the run after which it should have learnt something."""
P_VALUE = 0.025
"""Largest p-value at which a trend is significant."""
BLOCKS = 50
"""Maximum number of means of neighbouring iterations that the trend is tested on."""
LEAST_BLOCKS = 10
"""Minimum number of these means for a test of the trend."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A problem that began with an iteration: what was seen, its usual cause, what to do."""

    name: str
    iteration: int
    text: str


def alarms(history: Sequence[Metrics], config: TrainConfig) -> list[Alarm]:
    """Return the problems that begin with the last iteration of `history`, one Alarm for each."""
    new_alarms = []
    for name, check in CHECKS.items():
        text = check(history, config)
        if text is None:
            continue
        before = (history[:-back] for back in range(1, min(AGAIN, len(history) - 1) + 1))
        if all(check(earlier, config) is None for earlier in before):
            new_alarms.append(Alarm(name, history[-1].iteration, text))
    return new_alarms


def no_signal(history: Sequence[Metrics], config: TrainConfig) -> str | None:
    """Detect equal returns: `NO_SIGNAL` iterations in a row had a return and trained nothing."""
    last = history[-NO_SIGNAL:]
    if len(last) < NO_SIGNAL or any(
        m.tokens_trained or math.isnan(m.reward) or m.selected == 0 for m in last
    ):
        return None
    if config.reward:
        return (
            f"All returns of --reward {config.reward} were equal for {NO_SIGNAL} iterations, so nothing was "
            "trained. Either it pays for nothing that differs between episodes, or the task is too hard or "
            "too easy for the policy. Read some episodes (gem-gym store show): what should it pay for them?"
        )
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


def nothing_selected(history: Sequence[Metrics], config: TrainConfig) -> str | None:
    """Detect that the `select` of the algorithm chose no turn."""
    if not history or history[-1].selected != 0:
        return None
    return (
        f"`select` of the algorithm {config.algorithm} chose no turn of the {config.batch} episodes of "
        f"iteration {history[-1].iteration}, so nothing was trained. Let it choose at least the turns of "
        "some episodes, or play more episodes in a batch or group, so that some are worth choosing."
    )


def entropy_collapsed(history: Sequence[Metrics], config: TrainConfig) -> str | None:
    """Detect entropy below `ENTROPY_LEFT` of the first iterations' while success is below `SOLVED`."""
    first, last = _level(history[:WINDOW], "entropy"), _level(history[-WINDOW:], "entropy")
    if len(history) < 2 * WINDOW or not last < ENTROPY_LEFT * first:
        return None
    if (_level(history[-WINDOW:], "success")) >= SOLVED:
        return None
    return (
        f"Entropy fell to {last:.3g} nats per token, from {first:.3g}, and success is "
        f"{_level(history[-WINDOW:], 'success'):.0%}. The policy says the same thing every time and can no "
        "longer find anything better. Take a smaller lr, a larger kl or entropy, or a higher temperature, "
        "and restart from weights before the fall."
    )


def format_lost(history: Sequence[Metrics], config: TrainConfig) -> str | None:
    """Detect a rise of unreadable answers by `UNREADABLE_RISE` above their lowest share, beyond chance."""
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
        "forgetting the format: the steps are too large, or kl is too small. Take a smaller "
        "lr or a larger kl, and read some of the last episodes (gem-gym store show)."
    )


def verdicts_lost(history: Sequence[Metrics], config: TrainConfig) -> str | None:
    """Detect that more than `NO_VERDICT` of the last episodes have no verdict."""
    last = history[-WINDOW:]
    share = fmean(m.no_verdict for m in last) / config.batch if len(last) == WINDOW else 0.0
    if share <= NO_VERDICT:
        return None
    return (
        f"{share:.0%} of the last {WINDOW * config.batch:,} episodes have no verdict: something around the "
        "environment breaks (a server, a sandbox, a time limit). The rest is not a fair sample, because long "
        "and hard episodes break most often. Look at what broke (gem-gym store ls --no-verdict), and fix it."
    )


def kl_exploding(history: Sequence[Metrics], config: TrainConfig) -> str | None:
    """Detect steps above `STEP_KL`, or a divergence from the reference `KL_RISE` times its median."""
    if len(history) < WINDOW:
        return None
    steps = _level(history[-WINDOW:], "step_kl")
    if steps > STEP_KL:
        return (
            f"The last updates moved the policy by {steps:.3g} nats per token each, where 0.01 is usual. "
            "The samples no longer represent the policy that is trained on them. Take a smaller lr, fewer "
            "epochs or larger minibatches."
        )
    last = _level(history[-WINDOW:], "kl")
    earlier = sorted(m.kl for m in history[-WINDOW - AGAIN : -WINDOW] if not math.isnan(m.kl))
    if len(earlier) < WINDOW or not last > max(KL_LEAST, KL_RISE * earlier[len(earlier) // 2]):
        return None
    return (
        f"The divergence from the policy before RL rose to {last:.3g} nats per token, from "
        f"{earlier[len(earlier) // 2]:.3g} a few iterations ago. The policy is moving far from its "
        "start, often because it exploits a flaw of the reward. Read some episodes; take a smaller lr or a "
        "larger kl."
    )


def sampler_disagrees(history: Sequence[Metrics], config: TrainConfig) -> str | None:
    """Detect that the sampler's and the trainer's log probabilities differ by `LOGPROB_GAP`."""
    gap = _level(history[-WINDOW:], "logprob_gap")
    if len(history) < WINDOW or not gap > LOGPROB_GAP:
        return None
    return (
        f"The sampler and the trainer differ by {gap:.3g} nats per token about what was sampled, under the "
        "same weights. The gradient is then that of another policy. Usual causes: another precision or "
        "attention in one of them, another temperature or template, weights that were not updated. "
        "Sample and train in the same dtype, with the same model."
    )


def not_learning(history: Sequence[Metrics], config: TrainConfig) -> str | None:
    """Detect that neither success nor return has a rising trend at `SHARE` of the run, or of a later phase.

    Both are tested by Mann-Kendall, at `P_VALUE` each. They are tested once, so that it is reported once.
    About one in twenty runs that learn nothing is not detected.
    """
    if not history or config.opponents or config.curriculum:  # what is played grows harder on the way
        return None
    begin = history[0].iteration - 1
    due = math.ceil(SHARE * (config.iterations - begin))
    if len(history) != due or _level(history[-WINDOW:], "success") >= SOLVED:
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
    span = "phase" if begin else "run"
    return (
        f"After {SHARE:.0%} of the {span} {name} does not rise{falls}: {first:.3g} in the first quarter of "
        f"the iterations so far and {last:.3g} in the last (p {known[name]:.2g} for a rising trend). Either "
        "the steps are too small, the batches too small for the noise, or the task is out of reach. Try a "
        "larger lr or batch, an easier environment, or a warm-up on demonstrations."
    )


CHECKS: dict[str, Callable[[Sequence[Metrics], TrainConfig], str | None]] = {
    "no_signal": no_signal,
    "nothing_selected": nothing_selected,
    "entropy_collapsed": entropy_collapsed,
    "format_lost": format_lost,
    "verdicts_lost": verdicts_lost,
    "kl_exploding": kl_exploding,
    "sampler_disagrees": sampler_disagrees,
    "not_learning": not_learning,
}
"""The checks by name; each returns what is wrong with the last iteration of a history, or None."""


def _level(metrics: Sequence[Metrics], name: str) -> float:
    """Return the mean of a figure over the iterations where it was measured; NaN where there are none."""
    known = [value for m in metrics if not math.isnan(value := getattr(m, name, math.nan))]
    return fmean(known) if known else math.nan


def _trend(history: Sequence[Metrics], name: str) -> float | None:
    """Return the p-value of a rising trend of a figure; None where there are too few values."""
    size = max(1, -(-len(history) // BLOCKS))
    means = [_level(history[i : i + size], name) for i in range(0, len(history), size)]
    known = [mean for mean in means if not math.isnan(mean)]
    return mann_kendall(known) if len(known) >= LEAST_BLOCKS else None
