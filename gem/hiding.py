"""Passwords and keys are left out of messages and records, though a server repeats them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import parse_qsl, unquote

HIDDEN = "***"
"""The text that replaces a secret."""

LEAST = 8
"""Characters of the shortest text that is taken for a secret; shorter ones are in too many words."""

_USER = re.compile(r"(?<=://)[^/?#\s]*@")
_QUERY = re.compile(r"(://[^?\s]*\?)\S+")


def hide_secrets(text: str, values: Iterable[str], url: str = "") -> str:
    """Return a text, as an error, without values of headers, and without what an address has beside its path.

    Each word of a value is hidden, as a key without its "Bearer", also where a cut left its first `LEAST`
    characters or more. So are the users, passwords and queries of all addresses in the text.
    """
    query = [value for _, value in parse_qsl(url.partition("?")[2])]
    user = [unquote(word) for part in _USER.findall(url) for word in part[:-1].split(":")]
    for value in (*values, *query, *user):
        if len(value) >= LEAST:
            text = text.replace(value, HIDDEN)
        for word in value.split():
            text = _hide_word(text, word)
    return hide_credentials(text)


def _hide_word(text: str, word: str) -> str:
    begin = text.find(word[:LEAST]) if len(word) >= LEAST else -1
    while begin >= 0:
        length = next(n for n in range(len(word), 0, -1) if text.startswith(word[:n], begin))
        text = text[:begin] + HIDDEN + text[begin + length :]
        begin = text.find(word[:LEAST], begin + len(HIDDEN))
    return text


def hide_credentials(text: str) -> str:
    """Return a text, as an agent's name or a command, with users, passwords and queries of URLs hidden."""
    return _QUERY.sub(rf"\1{HIDDEN}", _USER.sub(f"{HIDDEN}@", text))


def plain_address(url: str) -> str:
    """Return the scheme, host, port and path of an address: passwords and keys are in its other parts."""
    return re.split("[?#]", _USER.sub("", url), maxsplit=1)[0]
