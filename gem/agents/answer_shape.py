"""The fixed parts of a local or served model's answers: how calls are written, prefix and stop texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from gem.errors import BadArgument, check_argument
from gem.record import Ask
from gem.tokens.renderer import Renderer, knows_tools


class AnswerShape:
    """How tools are called (`tools`), the ids that begin every answer, and the texts that end one."""

    def __init__(
        self,
        renderer: Renderer,
        tools: Literal["native", "text"] | None,
        prefix: str,
        stop: Sequence[str],
    ) -> None:
        """Check the values; `tools` None: native where the template supports tools and no prefix is set.

        Raises:
            BadArgument: for native tools where the chat template has none, or with a prefix; for a prefix
                that tokenizing and decoding changes; for an empty text in `stop`.
        """
        known = knows_tools(renderer)
        check_argument("tools", tools, tools in (None, "native", "text"), "'native', 'text', None")
        if tools == "native" and not known:
            raise BadArgument(
                "tools='native' needs a chat template that knows tools; this one does not: pass tools='text'."
            )
        if tools == "native" and prefix:
            raise BadArgument(
                f"tools='native' and {prefix=} exclude each other; set tools='text', or no prefix."
            )
        if isinstance(stop, str) or not all(stop):
            raise BadArgument(f"{stop=}; accepted: a sequence of texts, none of them empty.")
        self.prefix = prefix
        self.tools: Literal["native", "text"] = tools or ("native" if known and not prefix else "text")
        self.stop = tuple(stop)
        self.prefix_ids = renderer.answer(prefix)[:-1] if prefix else ()
        if prefix and renderer.decode(self.prefix_ids) != prefix:
            raise BadArgument(
                f"{prefix=} changes when it is tokenized and decoded; accepted: text that does not."
            )

    @property
    def settings(self) -> dict[str, Any]:
        """What differs from plain answers, for the record of a run."""
        native = self.tools if self.tools == "native" else ""
        settings: dict[str, Any] = {"tools": native, "prefix": self.prefix, "stop": list(self.stop)}
        return {name: value for name, value in settings.items() if value}


def stops_of(ask: Ask) -> list[str]:
    """Return the texts that end an answer to this ask; its sampling may name one, or several."""
    stop = (ask.sampling or {}).get("stop", ())
    return [*filter(None, (stop,) if isinstance(stop, str) else stop)]
