"""Endpoint: where a model's server is, and how requests to it are sent and tried again."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real

from gem.errors import BadArgument, check_argument, check_count
from gem.hiding import hide_credentials, hide_secrets

PUBLIC_URL = "https://api.openai.com/v1"

USUAL_KEY = "OPENAI_API_KEY"
"""The environment variable of a key where none is named."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server of a model, and the patience with it.

    `base_url`: where ``/chat/completions`` is; None: the variable OPENAI_BASE_URL, else OpenAI's address.
    `api_key_env`: the environment variable that holds the key; without it no key is sent.
    `headers`: further headers of each request.
    `concurrency`: the most requests in flight.
    `timeout_s`: seconds for one answer, from the request to its last byte, streamed or not; None: no limit.
    `connect_s`: seconds for the connection; None: no limit.
    `retries`: tries after the first one; up to twenty tries do not count if the server was too busy because
    it answered other asks.
    `backoff_s`: seconds before the second try; doubled each time, with jitter. A Retry-After from the server
    replaces it. No wait is longer than a minute.
    `grace_s`: seconds for which a server may be unreachable, for example during a restart.
    `silence_s`: seconds for which a reachable server may answer with errors only.
    """

    base_url: str | None = None
    api_key_env: str = USUAL_KEY
    headers: Mapping[str, str] | None = field(default=None, repr=False)  # they may hold keys
    concurrency: int = 64
    timeout_s: float | None = 600.0
    connect_s: float | None = 10.0
    retries: int = 5
    backoff_s: float = 0.5
    grace_s: float = 30.0
    silence_s: float = 60.0

    def __post_init__(self) -> None:
        """Refuse values that are not accepted.

        Raises:
            BadArgument: for a number that is not accepted, or a header that HTTP does not allow.
        """
        check_count("concurrency", self.concurrency)
        check_count("retries", self.retries, 0)
        for name in ("timeout_s", "connect_s"):
            value = math.inf if getattr(self, name) is None else getattr(self, name)
            right = isinstance(value, Real) and float(value) > 0
            check_argument(name, value, right, "seconds above 0, or None for no limit")
            object.__setattr__(self, name, value)
        for name in ("backoff_s", "grace_s", "silence_s"):
            value = getattr(self, name)
            check_argument(name, value, isinstance(value, Real) and float(value) >= 0, "0 seconds or more")
        for name, value in (self.headers or {}).items():
            texts = isinstance(name, str) and isinstance(value, str)
            if not (texts and name and fits_a_header(name + value)):
                raise BadArgument(f"the header {name!r} has a name or value that HTTP does not allow.")
        object.__setattr__(self, "headers", dict(self.headers or {}))

    @property
    def key(self) -> str:
        """The key, as the environment has it now; empty if there is none."""
        return os.environ.get(self.api_key_env, "").strip()

    @property
    def address(self) -> str:
        """The address, as the environment has it now if it was not given."""
        return self.base_url or os.environ.get("OPENAI_BASE_URL") or PUBLIC_URL

    def hide_secrets(self, text: str) -> str:
        """Return a text without what a server may repeat, whole or cut, of the key, headers and address."""
        secrets = {**(self.headers or {}), "the key": self.key}
        return hide_secrets(hide_credentials(text), secrets, self.address)

    def place(self, path: str) -> str:
        """Return the address of a path below this one; its query stays behind the path."""
        place, mark, query = self.address.partition("?")
        return place.rstrip("/") + path + mark + query


def check_key(variable: str) -> None:
    """Check the variable that the user named for a key; a server that needs none is asked without one.

    Raises:
        BadArgument: for another variable than the usual one, if it is not set.
    """
    if variable != USUAL_KEY and not os.environ.get(variable, "").strip():
        raise BadArgument(
            f"api_key_env is {variable!r}, a variable that is not set; set it to the endpoint's key, or "
            "leave it out if the endpoint needs none."
        )


def fits_a_header(text: str) -> bool:
    """Return whether HTTP allows this text in a header."""
    return text.isascii() and text.isprintable()
