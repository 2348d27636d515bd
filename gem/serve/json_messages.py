"""Read the JSON of clients, in which a model's text may hold half of a surrogate pair."""

from __future__ import annotations

import json
from typing import TypeVar

import msgspec

Read = TypeVar("Read")


def decode_json(decoder: msgspec.json.Decoder[Read], text: str | bytes) -> Read:
    r"""Return the value of a JSON text; halves of surrogate pairs become question marks.

    Python's json writes them as escapes (``\ud800``), which msgspec refuses, and UTF-8 cannot hold them.

    Raises:
        msgspec.ValidationError: for a value of another type than the decoder's.
        msgspec.DecodeError, ValueError, RecursionError: for a text that is no JSON.
    """
    try:
        return decoder.decode(text)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        text = text if isinstance(text, str) else text.decode()
        if "\\u" not in text:
            raise
        return decoder.decode(json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8", "replace"))
