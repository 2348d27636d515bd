"""TRL's GRPOTrainer with an advantage for each turn, where an environment pays for turns.

GRPOTrainer gives all tokens of an episode one advantage, made of one reward. Its loss takes one for each
token too, and this is the trainer that makes these, by `gem.estimators`, from what each turn earned::

    with Rollouts() as rollouts:
        TurnGRPOTrainer(..., reward_funcs=episode_reward, rollout_func=rollouts, kind="rebn", gamma=0.9)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from gem.errors import BadArgument, missing_extra
from gem.estimators import discounted_returns, rebn, reinforce, turn_rebn

try:
    import torch
    from accelerate.utils import gather_object
    from trl.trainer.grpo_trainer import GRPOTrainer
except ImportError as error:
    raise missing_extra("training with TRL", "trl", "trl") from error

Returns = Sequence[Sequence[float]]
KINDS: dict[str, Callable[[Returns], list[list[float]]]] = {
    "reinforce": reinforce,
    "rebn": rebn,
    "turn_rebn": turn_rebn,
}


class TurnGRPOTrainer(GRPOTrainer):
    """A GRPOTrainer whose advantages are those of turns.

    It takes what GRPOTrainer takes, with a `gem.adapters.trl.Rollouts` as its `rollout_func`. Rewards of the
    reward functions are logged, and not learned on: what is learned on is the environment's rewards of turns.
    They are normalised over the whole batch, of all processes; groups play no part. An episode without
    verdict has no returns, and advantage 0.
    """

    def __init__(
        self,
        *args: Any,
        kind: Literal["reinforce", "rebn", "turn_rebn"] = "rebn",
        gamma: float = 0.9,
        **kwargs: Any,
    ) -> None:
        """Make the trainer.

        Args:
            args: those of GRPOTrainer.
            kind: how returns become advantages, see `gem.estimators.turn_advantages`.
            gamma: the discount per turn, in [0, 1].
            kwargs: those of GRPOTrainer.

        Raises:
            BadArgument: for another kind, or a discount outside [0, 1].
        """
        if kind not in KINDS:
            raise BadArgument(f"kind is {kind!r}; accepted: {', '.join(KINDS)}.")
        discounted_returns((), gamma)  # refuses a discount that is none
        super().__init__(*args, **kwargs)
        self._kind, self._gamma = kind, gamma

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if "turn_rewards" not in inputs[0]:
            raise BadArgument("no turn has a reward; give the trainer Rollouts(...) as its rollout_func.")
        mine = [discounted_returns(row["turn_rewards"], self._gamma) for row in inputs]
        everyones = KINDS[self._kind](gather_object(mine))
        first = self.accelerator.process_index * len(mine)
        advantages_BT = torch.zeros_like(made["completion_ids"], dtype=torch.float32)
        for place, row in enumerate(inputs):
            turns = everyones[first + place]
            for at, turn in enumerate(row["turn_of"]):
                if turn >= 0 and turns:
                    advantages_BT[place, at] = turns[turn]
        return {**made, "advantages": advantages_BT}
