"""The tiny model's tokenizer and chat format: words of the games, numbers to 99, bytes for the rest.

The vocabulary is a file of this package, in a fixed order: a vocabulary built from a set changes with the
interpreter's hash seed and breaks every checkpoint. Checkpoints store `vocab_hash`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from importlib.resources import files

from gem.content import Message, Role, ToolCall, ToolSpec
from gem.parsing import ends_box
from gem.tools import calls as written

SPECIAL = ("<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
END, SYSTEM, USER, ASSISTANT = range(4)
PAD = END
"""The padding token of batches; never attended to, never learnt."""

_ROLES: dict[Role, int] = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT, "tool": USER}
SHORT = 1000
"""Maximum number of characters of a text whose ids are cached."""

_FIRST_BYTE = len(SPECIAL)
BRACE = _FIRST_BYTE + ord("}")
_PIECE = re.compile(r"\\boxed\{| ?[A-Za-z]+|(?<!\d)\d\d(?!\d)|.", re.DOTALL)


def _vocabulary() -> tuple[str, ...]:
    words = files("gem.tokens").joinpath("tiny_words.txt").read_text(encoding="ascii").split()
    pieces = ["\\boxed{", *(str(number) for number in range(10, 100))]
    for word in words:
        pieces += [word, " " + word]
    return tuple(pieces)


class TinyRenderer:
    """The tiny model's tokenizer, lossless for any text, and its chat format.

    An answer ends with the end token or with the brace that closes its box (see `ends`). Without the brace,
    the model could write any text after its box, because the reward does not depend on it.

    The model does not know tools: offered tools are left out, and calls are text.
    """

    knows_tools = False

    def __init__(self) -> None:
        """Load the vocabulary."""
        pieces = _vocabulary()
        self._bytes: list[bytes] = [b""] * len(SPECIAL)
        self._bytes += [bytes([value]) for value in range(256)]
        self._bytes += [piece.encode() for piece in pieces]
        self._ids = {piece: _FIRST_BYTE + 256 + i for i, piece in enumerate(pieces)}
        self.stop_ids = frozenset((END, BRACE))
        self._encode_short = lru_cache(maxsize=65536)(self._encode)
        layout = self.prompt([Message(role, "\\boxed{7}") for role in _ROLES])
        meaning = (*SPECIAL, *pieces, _PIECE.pattern, repr(layout), repr(sorted(self.stop_ids)))
        self.vocab_hash = blake2b("\n".join(meaning).encode(), digest_size=8).hexdigest()

    def __reduce__(self) -> tuple[type[TinyRenderer], tuple[()]]:
        """Pickle no state: a new renderer is the same."""
        return type(self), ()

    def __len__(self) -> int:
        """The size of the vocabulary."""
        return len(self._bytes)

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the ids of `text`; those of short texts are cached."""
        return self._encode_short(text) if len(text) <= SHORT else self._encode(text)

    def _encode(self, text: str) -> tuple[int, ...]:
        """Return the ids of `text`; words, boxes and two-digit numbers are one id, the rest is bytes."""
        ids: list[int] = []
        for piece in _PIECE.findall(text):
            known = self._ids.get(piece)
            if known is not None:
                ids.append(known)
            else:
                ids += [_FIRST_BYTE + value for value in piece.encode("utf-8", "surrogatepass")]
        return tuple(ids)

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> tuple[int, ...]:
        """Return the ids of a whole conversation, up to and including the start of the next answer."""
        ids: list[int] = []
        for message in messages:
            text = message.text
            if message.tool_calls:
                text = written.write(text, message.tool_calls)
            ids += (_ROLES[message.role], *self.encode(text), END)
        ids.append(ASSISTANT)
        return tuple(ids)

    def delta(
        self, held: Sequence[int], fresh: Sequence[Message], tools: Sequence[ToolSpec] = ()
    ) -> tuple[int, ...]:
        """Return the ids that follow `held`; an answer without the end token is closed first."""
        close = () if held[-1] == END else (END,)
        return (*close, *self.prompt(fresh))

    def answer(self, text: str, calls: Sequence[ToolCall] = ()) -> tuple[int, ...]:
        """Return the ids of an answer that is given as text, with the id that ends it."""
        ids = self.encode(written.write(text, calls) if calls else text)
        return ids if ids and self.ends(ids) else (*ids, END)

    def ends(self, ids: Sequence[int]) -> bool:
        """Return whether sampled `ids` are a whole answer.

        The last is the end token, or a brace that closes the box or nothing (see `gem.parsing.ends_box`).
        """
        return ids[-1] in self.stop_ids and (ids[-1] != BRACE or ends_box(self.decode(ids)))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`; special ids are left out, broken bytes are replaced."""
        data = b"".join([self._bytes[i] for i in ids])
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return data.decode("utf-8", "replace")
