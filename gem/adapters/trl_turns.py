"""TRL's GRPOTrainer with an advantage for each turn, for environments that reward single turns.

GRPOTrainer gives all tokens of an episode one advantage, computed from one reward. Its loss also accepts one
per token; this trainer computes them with `gem.estimators` from the reward of each turn::

    with Rollouts() as rollouts:
        TurnGRPOTrainer(..., reward_funcs=episode_reward, rollout_func=rollouts, kind="rebn", gamma=0.9)
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from gem.errors import BadArgument, check_argument, needs_extra
from gem.estimators import ALGORITHMS, View, discounted_returns
from gem.record import SEAT

with needs_extra("training with TRL", "trl", "trl"):
    import torch
    from accelerate.utils import gather_object
    from trl.trainer.grpo_trainer import GRPOTrainer

KINDS = tuple(name for name, each in ALGORITHMS.items() if each.group == "none" and not each.critic)
"""The algorithms that need neither groups nor a critic."""


class TurnGRPOTrainer(GRPOTrainer):
    """A GRPOTrainer with one advantage per turn.

    It takes the arguments of GRPOTrainer, with a `gem.adapters.trl.Rollouts` as its `rollout_func`. It learns
    from the environment's rewards of turns; the results of reward functions are only logged. Returns are
    normalised over the whole batch of all processes; groups are not used. An episode without a verdict has no
    returns, and advantage 0.
    """

    def __init__(
        self,
        *args: Any,
        kind: str = "rebn",
        gamma: float = 0.9,
        **kwargs: Any,
    ) -> None:
        """Make the trainer.

        Args:
            args: arguments of GRPOTrainer.
            kind: how returns become advantages, one of `KINDS`.
            gamma: the discount per turn, in [0, 1].
            kwargs: keyword arguments of GRPOTrainer.

        Raises:
            BadArgument: for another kind, or a discount outside [0, 1].
        """
        check_argument("kind", kind, kind in KINDS, ", ".join(KINDS))
        discounted_returns((), gamma)  # raises for an invalid discount
        super().__init__(*args, **kwargs)
        self._kind, self._gamma = kind, gamma

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if "turn_rewards" not in inputs[0]:
            raise BadArgument("no turn has a reward; give the trainer Rollouts(...) as its rollout_func.")
        own = [discounted_returns(row["turn_rewards"], self._gamma) for row in inputs]
        returns = gather_object(own)
        none = [""] * len(returns)
        counts = [Counter(row["turn_of"]) for row in inputs]
        tokens = gather_object(
            [[each[turn] for turn in range(len(row))] for each, row in zip(counts, own, strict=True)]
        )
        view = View((), SEAT, returns, returns, none, [0] * len(returns), self._gamma, tokens=tokens)
        everyones = ALGORITHMS[self._kind].compute_advantages(view)
        first = self.accelerator.process_index * len(own)
        advantages_BT = torch.zeros_like(made["completion_ids"], dtype=torch.float32)
        for place, row in enumerate(inputs):
            turns = everyones[first + place]
            for at, turn in enumerate(row["turn_of"]):
                if turn >= 0 and turns:
                    advantages_BT[place, at] = turns[turn]
        return {**made, "advantages": advantages_BT}
