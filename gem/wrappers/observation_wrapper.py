"""ObservationWrapper: put past turns into each observation, for gym-style loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from gem.content import Message, Obs, join
from gem.core import Env, EnvWrapper, Start, Step
from gem.errors import BadArgument, UnknownArgument
from gem.history import HistoryPolicy, Kind, messages
from gem.record import SEAT, Turn


class Tokenizer(Protocol):
    """The interface that a tokenizer needs; those of Hugging Face have it."""

    def apply_chat_template(
        self, conversation: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool
    ) -> Any:
        """Return the conversation as text."""


class ObservationWrapper(EnvWrapper):
    """A wrapper that shows the episode so far in each observation, as `gem.history.messages` does.

    The messages of a ``concat`` policy become one text; those of a ``chat`` policy are formatted by the
    tokenizer's chat template, ready for an answer. `prefix` and `suffix` are part of the observation, so they
    are removed from info. A window shows the latest `max_history_length` observations (frame stack).
    """

    shared: ClassVar[tuple[str, ...]] = ("tokenizer",)

    assembles_history: ClassVar[bool] = True
    """Tells `gem.rollout.play` to show the observation alone."""

    def __init__(
        self,
        env: Env,
        include_action: bool = False,
        include_chat_template: bool = False,
        apply_chat_template_on_reset: bool = False,
        max_history_length: int | None = None,
        tokenizer: Tokenizer | None = None,
        *,
        policy: HistoryPolicy | None = None,
    ) -> None:
        """Wrap `env`, and choose which past turns are history.

        Args:
            env: the environment inside.
            include_action: also show the actions, between the observations.
            include_chat_template: show a chat, which includes the actions.
            apply_chat_template_on_reset: show the first observation as a chat, and the rest after it as plain
                text.
            max_history_length: the number of latest observations to show; None: all.
            tokenizer: formats chats.
            policy: a history policy, in place of the flags and the length.

        Raises:
            BadArgument: for a chat without a tokenizer, or flags that contradict each other.
        """
        super().__init__(env)
        flags = include_action or include_chat_template or apply_chat_template_on_reset
        if policy is not None and (flags or max_history_length is not None):
            raise UnknownArgument("ObservationWrapper takes a policy, or flags and a length, not both.")
        if include_chat_template and apply_chat_template_on_reset:
            raise BadArgument("include_chat_template includes the reset: drop apply_chat_template_on_reset.")
        if policy is None:
            plain: Kind = "concat_with_action" if include_action else "concat"
            policy = HistoryPolicy("chat" if include_chat_template else plain, max_history_length)
        if (policy.kind == "chat" or apply_chat_template_on_reset) and tokenizer is None:
            raise BadArgument("a chat needs tokenizer=, one that has apply_chat_template (transformers).")
        self.policy = policy
        self.tokenizer = tokenizer
        self.template_on_reset = apply_chat_template_on_reset
        self.turns: list[Turn] = []

    def on_start(self, start: Start) -> Start:
        """Start a new history."""
        self.turns = []
        obs, info = start
        if self.template_on_reset:
            obs, info = self._chat(messages([Turn(SEAT, obs, info=info)])), _drop_used_text(info)
        return Start(*self._format_history(obs, info))

    def on_action(self, action: str) -> str:
        """Record the action."""
        if self.turns:
            self.turns[-1].action = action
        return action

    def on_step(self, step: Step) -> Step:
        """Add the observation."""
        obs, info = self._format_history(step.obs, step.info)
        return step._replace(obs=obs, info=info)

    def _format_history(self, obs: Obs, info: dict[str, Any]) -> tuple[Obs, dict[str, Any]]:
        """Return the observation with the history and `obs`, and the info without the text used in it."""
        self.turns.append(Turn(SEAT, obs, info=info))
        history = messages(self.turns, self.policy)
        if self.policy.kind == "chat":
            return self._chat(history), _drop_used_text(info)
        return join(message.content for message in history), _drop_used_text(info)

    def _chat(self, history: Sequence[Message]) -> str:
        assert self.tokenizer is not None  # the constructor saw to it
        conversation = [{"role": message.role, "content": message.text} for message in history]
        text = self.tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
        return str(text)


def _drop_used_text(info: dict[str, Any]) -> dict[str, Any]:
    """Return info without the text that is now in the observation."""
    return {key: value for key, value in info.items() if key not in ("prefix", "suffix")}
