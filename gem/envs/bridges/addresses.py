"""The names of environments elsewhere: addresses, of which there is no list."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit


class Place(NamedTuple):
    """A server, and the id of an environment there."""

    server: str
    env_id: str


def split(name: str) -> Place | None:
    """Return what ``http://host:port/ID`` names, or None.

    The id begins at the first part of the path that has a colon; where none has, it is the last part.
    """
    if not is_server(name):
        return None
    parts = urlsplit(name)
    path = parts.path.strip("/").split("/")
    begin = next((place for place, part in enumerate(path) if ":" in part), len(path) - 1)
    server = "/".join([f"{parts.scheme}://{parts.netloc}", *path[:begin]])
    env_id = "/".join(path[begin:])
    return Place(server, env_id) if env_id else None


def is_server(name: str) -> bool:
    """Tell whether a name is the address of a server."""
    try:
        parts = urlsplit(name)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, half a bracket
        return False


class Addresses:
    """Holds every name: whether it is an address, the environment says when it is made."""

    def __contains__(self, name: object) -> bool:
        """True."""
        return True


def addresses() -> Addresses:
    """Return the names behind ``remote:`` and ``openenv:``."""
    return Addresses()
