"""Passwords and keys are left out of messages and records, though a server repeats them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote, unquote_plus

HIDDEN = "***"
"""The text that replaces a secret."""

LEAST = 8
"""Characters of the shortest text that is taken for a secret; shorter ones are in too many words."""

_USER = re.compile(r"(?<=//)[^/?#\s]*@")  # a colon may be missing, where an address is refused
_QUERY = re.compile(r"(://[^?\s]*\??)(\S*)")  # matches without a query too, so that no text is read twice
_SECRET = re.compile(r"key|token|secret|password|authorization|auth$|signature|^(sig|code)$", re.IGNORECASE)


def hide_secrets(text: str, headers: Mapping[str, str], url: str = "") -> str:
    """Return a text, as an error, without values of headers, and without what an address has beside its path.

    Each word of a value whose name says that it is secret, as a key without its "Bearer", is hidden also
    where a cut left its first `LEAST` characters or more. Other values are hidden whole: parts of them, as
    "https://", are in other words.
    """
    values = list(headers.items())
    for field in re.split("[&#]", url.partition("?")[2]):
        name, _, value = field.partition("=")
        values += (name, value), (name, unquote_plus(value))
    for user in _USER.findall(url):
        for word in user[:-1].split(":"):
            values += ("password", word), ("password", unquote(word))
    for name, value in values:
        if len(value) >= LEAST:
            text = text.replace(value, HIDDEN)
        for word in value.split() if _SECRET.search(name) else ():
            text = _hide_word(text, word)
    return text


def _hide_word(text: str, word: str) -> str:
    beginning, end = "", 0
    while len(word) >= LEAST and (begin := text.find(word[:LEAST], end)) >= 0:
        beginning += text[end:begin] + HIDDEN
        end = begin + LEAST
        while end - begin < len(word) and text.startswith(word[end - begin], end):
            end += 1
    return beginning + text[end:]


def hide_credentials(text: str) -> str:
    """Return a text, as an agent's name or a command, with users, passwords and queries of URLs hidden."""
    return _QUERY.sub(lambda url: url[1] + HIDDEN * bool(url[2]), _USER.sub(f"{HIDDEN}@", text))


def hide_address(text: str) -> str:
    """Return a text that is refused as an address without what a password or a key may be.

    >>> hide_address("openai:m@user:password@host?key=1")
    'openai:m@***@host?***'
    """
    text, mark, _ = hide_credentials(text).partition("?")
    first, last = text.find("@"), text.rfind("@")
    hidden = text if first == last else f"{text[: first + 1]}{HIDDEN}{text[last:]}"
    return f"{hidden}{mark}{HIDDEN * bool(mark)}"


def plain_address(url: str) -> str:
    """Return the scheme, host, port and path of an address: passwords and keys are in its other parts."""
    return re.split("[?#]", _USER.sub("", url), maxsplit=1)[0]
