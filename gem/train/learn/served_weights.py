"""The weights that a sampling server gets from the trainer, and the check that it uses them.

A server may confirm new weights and go on with the old ones. So after each publish both compute the log
probabilities of one fixed answer. The server's must have moved as the trainer's have.

N: tokens of the fixed answer.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gem.agents.hugging_face import evaluating
from gem.content import Message
from gem.errors import AgentUnavailable, NoVerdict
from gem.hiding import plain_address
from gem.tokens.renderer import Renderer
from gem.tokens.rows import Row
from gem.train.learn import parallel
from gem.train.learn.batch import Weighted, collate
from gem.waiting import name_wait

if TYPE_CHECKING:
    from gem.agents.token_server import TokenServerAgent
    from gem.train.learn.policy import CausalPolicy

QUESTION = "Count from one to twelve."
ANSWER = "One, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve."
DIFFERENT = 0.5
"""Mean absolute difference, in nats per token, from which on the server serves another model. Of
SmolLM2-135M in bfloat16 on vLLM and in float32 here: 0.01 to 0.03."""
MOVED = 3.0
"""How far the trainer's log probabilities must have moved to judge the server's, in differences between the
two for equal weights. Below that, rounding hides which weights the server has."""
ROUNDING = 1e-4
"""Least difference that is assumed between trainer and server for equal weights, in nats."""


class ServedWeights:
    """The publisher of a policy's weights to its server."""

    def __init__(self, renderer: Renderer) -> None:
        """Check with a fixed answer in the ids of `renderer`."""
        self.renderer = renderer
        self._known: tuple[int, Tensor, Tensor] | None = None  # the last publish that was clearly loaded

    @functools.cached_property
    def prompt(self) -> tuple[int, ...]:
        """The ids of the question before the fixed answer."""
        return self.renderer.prompt((Message("user", QUESTION),))

    @functools.cached_property
    def ids(self) -> tuple[int, ...]:
        """The ids of question and answer."""
        return (*self.prompt, *self.renderer.answer(ANSWER))

    def publish(self, policy: CausalPolicy, agent: TokenServerAgent, version: int) -> None:
        """Let the agent's server load the policy's weights, and check that it uses them.

        The first process does it; the others wait.

        Raises:
            AgentUnavailable: when the server does not load them, or says so and has others.
            StoreError: when they cannot be written.
        """
        if parallel.rank() == 0:
            with name_wait(f"{plain_address(agent.url)} to load the weights of version {version}"):
                agent.publish(version, policy.model)
                self._check(policy, agent, version)
        parallel.wait()
        agent.policy_version = version

    def _check(self, policy: CausalPolicy, agent: TokenServerAgent, version: int) -> None:
        mine_N, place = self._logprobs(policy), plain_address(agent.url)
        try:
            servers_N = torch.tensor(agent.logprobs(self.ids)[len(self.prompt) - 1 :])
        except NoVerdict as error:
            raise AgentUnavailable(
                f"{place} loaded version {version}, but it cannot be checked: {error}"
            ) from error
        gap = float((servers_N - mine_N).abs().mean())
        if not gap < DIFFERENT:  # NaN too
            raise AgentUnavailable(
                f"{place} confirmed version {version}, but its log probabilities differ from the "
                f"trainer's by {gap:.3g} nats per token (accepted: below {DIFFERENT}): it serves another "
                "model, or did not load all weights. Start it with the model of this run."
            )
        if self._known is None:
            self._known = version, mine_N, servers_N
            return
        before, mine_before_N, servers_before_N = self._known
        moved = float((mine_N - mine_before_N).abs().mean())
        usual = float((servers_before_N - mine_before_N).abs().mean())
        if moved < MOVED * max(usual, ROUNDING):
            return
        stale = float((servers_N - servers_before_N).abs().mean())
        fresh = float((servers_N - servers_before_N - (mine_N - mine_before_N)).abs().mean())
        if stale < fresh:
            raise AgentUnavailable(
                f"{place} confirmed version {version}, but answers with older weights: since version "
                f"{before} the trainer's log probabilities of a fixed answer moved by {moved:.3g} nats per "
                f"token, the server's by {stale:.3g}. Start the server again, then go on with --resume."
            )
        self._known = version, mine_N, servers_N

    @torch.no_grad()
    def _logprobs(self, policy: CausalPolicy) -> Tensor:
        """Return the policy's log probabilities of the fixed answer, (N,), at temperature 1."""
        count = len(self.ids)
        mask = [int(at >= len(self.prompt)) for at in range(count)]
        row = Row(self.ids, mask, [0.0] * count, [at - 1 for at in mask])
        batch = collate([Weighted(row, {})], policy.pad, policy.capacity)
        with evaluating(policy.model):
            logp_UV = policy.logits(policy.states(batch)).log_softmax(-1)
        device = logp_UV.device
        return logp_UV[batch.of.to(device), batch.target.to(device)].float().cpu()
