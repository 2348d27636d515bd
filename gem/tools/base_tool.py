"""Tool: what an agent may call in the middle of an episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gem.content import Image
from gem.errors import ToolError


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that an action asks for: the tool's name and its arguments by keyword."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call gave: text for the agent, pictures, whether the call failed through the agent's doing."""

    text: str
    error: bool = False
    images: Sequence[Image] = ()
    info: Mapping[str, Any] = field(default_factory=dict)


class BaseTool:
    """A tool. Subclasses set `name` and `tag`, define `instruction_string` and `call`.

    `parameters` is a JSON Schema of the arguments, None to derive it from the signature and docstring of
    `call`. One instance serves one environment; `reset` begins an episode, `close` ends its use.
    """

    name: str = ""
    tag: str = ""
    parameters: Mapping[str, Any] | None = None

    def instruction_string(self) -> str:
        """Return the sentences that tell the agent what the tool does and how to call it."""
        raise NotImplementedError

    def call(self, *args: Any, **kwargs: Any) -> ToolResult:
        """Carry out one call.

        Raises:
            ToolError: the agent's fault; the message becomes the observation.
            NoVerdict: the tool's own failure.
        """
        raise NotImplementedError

    def reset(self, seed: int) -> None:
        """Begin an episode: nothing of the last one is left."""

    def close(self) -> None:
        """Release what the tool holds; twice is harmless."""


__all__ = ["BaseTool", "ToolCall", "ToolError", "ToolResult"]
