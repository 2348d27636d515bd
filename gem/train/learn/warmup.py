"""Warm-up: behaviour cloning on random but well-formed play, the solver's play, or stored demonstrations.

Random play teaches a model with random weights what an answer looks like. The moves are the environment's own
random actions, drawn independently of the history, so they teach no strategy: the best that the model can do
is to copy the random actor's distribution. The solver's play, and demonstrations as `gem-gym demos` writes
them, teach the strategy too.

A warm-up on all tokens also learns to predict the environment's replies. This teaches the model to follow the
state of a game, which a pretrained model can do and which a policy gradient alone hardly teaches. It does not
teach which move is good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor

from gem import seeding
from gem.agents.base import BaseAgent
from gem.agents.random import RandomAgent
from gem.content import Message, Obs
from gem.errors import BadArgument, NoVerdict
from gem.record import Episode
from gem.registry import Maker
from gem.rollout import Job, rollout
from gem.tokens.demonstration import tokenise
from gem.tokens.rows import Row, rows
from gem.train.config.value_types import WarmupOn
from gem.train.learn.batch import Batch, Target, Weighted
from gem.train.learn.learner import GradientNotFinite, Learner, Outputs, Settings
from gem.train.learn.policy import Policy

NO_DEMONSTRATIONS = "the store of demonstrations is empty; `gem-gym demos` writes some."


def warm_up(
    policy: Policy,
    maker: Maker | Sequence[Maker],
    *,
    seed: int,
    steps: int,
    batch: int,
    lr: float,
    max_grad_norm: float,
    on: WarmupOn = "answers",
    pass_tokens: int | None = None,
    actor: BaseAgent | None = None,
    demos: Sequence[Episode] | None = None,
    on_step: Callable[[int, float], None] | None = None,
    is_learnt: Callable[[int, Learner], bool] | None = None,
    most: int | None = None,
) -> None:
    """Clone the play of `actor` (default: random), or `demos`, for `steps` steps of `batch` episodes each.

    With several environments, given as a sequence of makers, the actor plays each in turn. `on`: the tokens
    whose loss counts, see `gem.train.config.value_types.WarmupOn` and balance_weights(). The learning rate
    falls linearly over the second half of `steps`, to a fifth of `lr` at least. `on_step` gets each step's
    number and its loss, the mean negative log probability per token in nats. `is_learnt` gets the number and
    the learner: the warm-up ends where it returns True, and after `most` steps (default: `steps`) anyway.
    Where an episode exceeds the model's context, only its beginning is learnt.

    Raises:
        BadArgument: for no demonstrations, and for a gradient that is not finite.
        NoVerdict: when there is nothing to learn from: every episode broke, or no answer fits the context.
    """
    if demos is not None and not len(demos):
        raise BadArgument(NO_DEMONSTRATIONS)
    makers = [maker] if isinstance(maker, Maker) else list(maker)
    actor = actor or RandomAgent()
    what = "played episodes" if demos is None else "demonstrations"
    settings = Settings(lr=lr, betas=(0.9, 0.999), max_grad_norm=max_grad_norm, pass_tokens=pass_tokens)
    learner = Learner(policy, settings)
    for step in range(most or steps):
        learner.set_lr(lr * max(0.2, min(1.0, 2 * (1 - step / steps))))
        if demos is None:
            first = step * batch  # where the last step left off
            jobs = [Job(makers[(first + i) % len(makers)], warm_up_seed(seed, step, i)) for i in range(batch)]
            episodes = rollout(jobs, actor, concurrency=batch)
        else:
            stream = seeding.stream(seed, "warm-up", step)
            episodes = [demos[int(stream.random() * len(demos))] for _ in range(batch)]
        weighted = balance_weights(cloned_rows(policy, episodes, on))
        if not weighted:
            broken = next((episode.error for episode in episodes if episode.error), None)
            raise NoVerdict(
                f"nothing to learn from among {batch} {what}: "
                + (str(broken) if broken else f"no answer fits a context of {policy.context} tokens.")
            )
        tokens = sum(sum(item.row.mask) for item in weighted)
        try:
            sums, _ = learner.update(weighted, _cloning, tokens)
        except GradientNotFinite as error:
            raise BadArgument(
                f"step {step + 1} of the warm-up: {error}. Begin again with a lower --warmup-lr ({lr:g} now)."
            ) from error
        if on_step is not None:
            on_step(step, sums["loss"])
        if is_learnt is not None and is_learnt(step, learner):
            break
    learner.publish(0)


def warm_up_seed(seed: int, step: int, number: int) -> int:
    """Return the seed of a played episode that a step clones."""
    return seeding.derive(seed, "warm-up", step, number)


def cloned_rows(policy: Policy, episodes: Sequence[Episode], on: WarmupOn) -> list[Weighted]:
    """Return the rows that a warm-up learns from; episodes without verdict have none."""
    weighted: list[Weighted] = []
    for episode in episodes:
        for seat in episode.seats if episode.scored else ():
            made = rows(tokenise(episode, policy.renderer, seat), seat)
            if on == "all" and len(made) == 1 and seat in episode.ends:
                made = [_append_end(made[0], episode.ends[seat].observation, policy)]
            for row in made:
                cut = row.first(policy.context)
                if any(cut.mask):
                    weighted.append(Weighted(cut if on == "answers" else _whole(cut)))
    return weighted


def _append_end(row: Row, observation: Obs, policy: Policy) -> Row:
    """Return a row with the environment's last message: the end of an episode is most useful to predict."""
    if not isinstance(observation, str):
        return row
    ids = policy.renderer.delta(tuple(row.ids), [Message("user", observation)])
    size = len(ids)
    return Row(
        (*row.ids, *ids),
        (*row.mask, *(0,) * size),
        (*row.logprobs, *(0.0,) * size),
        (*row.turn, *(-1,) * size),
    )


def balance_weights(weighted: Sequence[Weighted]) -> list[Weighted]:
    """Return rows in which the tokens of answers have half of the weight, and any others the other half.

    The environment's tokens are many times more, and would outweigh the format of the answers.
    """
    tokens = sum(sum(item.row.mask) for item in weighted)
    answers = sum(turn >= 0 for item in weighted for turn in _turns(item.row))
    if answers in (0, tokens):
        return [replace(item, targets=dict.fromkeys(_turns(item.row), Target(1.0))) for item in weighted]
    answer, other = Target(tokens / (2 * answers)), Target(tokens / (2 * (tokens - answers)))
    return [
        replace(item, targets={turn: answer if turn >= 0 else other for turn in _turns(item.row)})
        for item in weighted
    ]


def _turns(row: Row) -> list[int]:
    return [row.turn[at] for at in row.learnt]


def _whole(row: Row) -> Row:
    """Return a row that is learnt from its first answer on, with the environment's text between answers."""
    first = row.mask.index(1)
    return replace(row, mask=[0] * first + [1] * (len(row.ids) - first))


def _cloning(batch: Batch, outputs: Outputs) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the negative log likelihood of a batch, each token weighted by its turn's target."""
    return -(batch.advantage[batch.turn] * outputs.logprob).sum(), {}
