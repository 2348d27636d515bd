"""A tabular policy: a logit for each token after each history, in float64.

Its hidden state is the one-hot vector of the history and its head is the table, so the learner treats it as
any model.

D: histories. V: tokens that can be sampled. U: places whose next token was sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import torch
from torch import Tensor, nn

from gem.agents.base import BaseAgent
from gem.agents.sampling import sample, uniforms
from gem.content import Message, ToolCall, ToolSpec
from gem.errors import BadArgument
from gem.record import Ask, Reply
from gem.tokens.renderer import render
from gem.train.learn.batch import Batch
from gem.train.oracle.envs import LETTERS

Ids = tuple[int, ...]


class LetterRenderer:
    """Letters and digits as tokens: the letters are 0 to `letters` - 1, then the end, then the digits.

    A message is its text's tokens and nothing else. Only letters and the end are sampled.
    """

    knows_tools = False

    def __init__(self, letters: int) -> None:
        """Use the first `letters` letters."""
        self.letters = LETTERS[:letters]
        self.end = letters
        self.stop_ids = frozenset((self.end,))
        self.vocab_hash = blake2b(f"letters {letters}".encode(), digest_size=8).hexdigest()

    @property
    def sampled(self) -> int:
        """V: the number of tokens that can be sampled."""
        return self.end + 1

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> Ids:
        """Return the ids of a whole conversation."""
        ids: list[int] = []
        for message in messages:
            is_answer = message.role == "assistant"
            ids += self.answer(message.text) if is_answer else (self.end + 1 + int(c) for c in message.text)
        return tuple(ids)

    def delta(self, before: Sequence[int], fresh: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> Ids:
        """Return the ids that follow `before`; an answer that was cut is not closed."""
        return self.prompt(fresh)

    def answer(self, text: str, calls: Sequence[ToolCall] = ()) -> Ids:
        """Return the ids of an answer, with the end."""
        return (*(self.letters.index(letter) for letter in text), self.end)

    def decode(self, ids: Sequence[int]) -> str:
        """Return an answer's text, without the end."""
        return "".join(self.letters[i] for i in ids if i != self.end)


class Table(nn.Module):
    """The logits (V, D), in float64."""

    def __init__(self, logits_VD: Tensor) -> None:
        """Hold a copy of `logits_VD`."""
        super().__init__()
        self.logits = nn.Parameter(logits_VD.detach().double().clone())


class TablePolicy:
    """A table as a `gem.train.learn.policy.Policy`; `histories` names its columns.

    A column is found by the history's tokens alone, and every history of the environment has one.
    """

    capacity: int | None = 64
    context = None
    prefix_ids: tuple[int, ...] = ()

    def __init__(
        self, renderer: LetterRenderer, histories: Sequence[Ids], logits_VD: Tensor, max_tokens: int
    ) -> None:
        """Use these logits for the histories."""
        self.renderer = renderer
        self.pad = renderer.end
        self.column = {ids: d for d, ids in enumerate(histories)}
        self.width = len(histories)
        self.model = Table(logits_VD)
        self.agent = TableAgent(self, max_tokens)

    def find(self, ids: Sequence[int]) -> int:
        """Return the column of a history.

        Raises:
            BadArgument: for one that the environment does not have: the rows were arranged wrongly.
        """
        try:
            return self.column[tuple(ids)]
        except KeyError:
            raise BadArgument(f"no episode has the history {tuple(ids)}; accepted: those listed.") from None

    def states(self, batch: Batch) -> Tensor:
        """Return the one-hot vector of each place's history, (U, D), from what the place attends to."""
        steps = batch.ids.shape[1]
        prefix = batch.prefix.tolist()
        ids, position, sees = batch.ids.tolist(), batch.position.tolist(), batch.sees
        columns = []
        for place in batch.place.tolist():
            b, t = divmod(place, steps)
            places = range(t + 1) if sees is None else sees[b, t].nonzero()[:, 0].tolist()
            ordered = sorted(places, key=lambda j: position[b][j])
            if [position[b][j] for j in ordered] != list(range(len(prefix), len(prefix) + len(ordered))):
                raise BadArgument(f"place {t} of pack {b} attends to positions that are not a history.")
            columns.append(self.find((*prefix, *(ids[b][j] for j in ordered))))
        return nn.functional.one_hot(torch.tensor(columns), self.width).double()

    def logits(self, states_UD: Tensor) -> Tensor:
        """Return the logits of states, (U, V)."""
        return states_UD @ self.model.logits.T

    def temper(self, temperature: float) -> None:
        """Refuse: the oracle's policy is sampled at temperature 1."""
        raise BadArgument("the oracle's policy is sampled at temperature 1.")

    def publish(self, version: int) -> None:
        """See Policy.publish."""
        self.agent.publish(version)


class TableAgent(BaseAgent):
    """An agent that samples from a table, or plays the answers of a script with their log probabilities.

    `script`: the tokens of each turn's answer. After its last answer, the answer is the end. Without a table
    there are no log probabilities.
    """

    def __init__(
        self, policy: TablePolicy | LetterRenderer, max_tokens: int, script: Sequence[Ids] | None = None
    ) -> None:
        """Answer from `policy`; with a renderer alone, the script is played without a table."""
        self.policy = None if isinstance(policy, LetterRenderer) else policy
        self.renderer = policy if isinstance(policy, LetterRenderer) else policy.renderer
        self.max_tokens = max_tokens
        self.script = script

    @torch.no_grad()
    def __call__(self, asks: Sequence[Ask]) -> list[Reply]:
        """Answer a batch of asks, in order."""
        return [self._answer(ask) for ask in asks]

    def _answer(self, ask: Ask) -> Reply:
        prompt = render(self.renderer, ask)
        end = self.renderer.end
        tokens: list[int] = []
        logprobs: list[float] = []
        scripted = None
        if self.script is not None:
            scripted = self.script[ask.turn] if ask.turn < len(self.script) else (end,)
        while len(tokens) < self.max_tokens and end not in tokens:
            if self.policy is None:
                assert scripted is not None
                tokens.append(scripted[len(tokens)])
                continue
            logits_1V = self.policy.model.logits[:, self.policy.find((*prompt, *tokens))][None]
            if scripted is None:
                token_1, logprob_1 = sample(logits_1V, 1.0, uniforms([ask.seed], len(tokens)))
                tokens.append(int(token_1))
                logprobs.append(float(logprob_1))
            else:
                tokens.append(scripted[len(tokens)])
                logprobs.append(float(logits_1V.log_softmax(-1)[0, tokens[-1]]))
        finish = "stop" if end in tokens else "length"
        return Reply(self.renderer.decode(tokens), prompt, tokens, logprobs or None, finish)
