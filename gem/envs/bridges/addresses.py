"""Names of the families ``remote:`` and ``openenv:``: server addresses, which cannot be listed."""

from __future__ import annotations

from typing import NamedTuple

from gem.trust import split_address


class Place(NamedTuple):
    """A server and the id of an environment on it."""

    server: str
    env_id: str


def split(name: str) -> Place | None:
    """Split ``http://host:port/ID`` into server and id; return None for any other text.

    The id begins at the first part of the path that has a colon. If no part has one, it is the last part.
    """
    if not is_server(name):
        return None
    parts = split_address(name)
    path = parts.path.strip("/").split("/")
    begin = next((place for place, part in enumerate(path) if ":" in part), len(path) - 1)
    server = "/".join([f"{parts.scheme}://{parts.netloc}", *path[:begin]])
    env_id = "/".join(path[begin:])
    return Place(server, env_id) if env_id else None


def is_server(name: str) -> bool:
    """Return whether a name is the address of a server."""
    try:
        parts = split_address(name)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, half a bracket, a blank
        return False


class Addresses:
    """A stand-in for a list of names that accepts every name; the environment checks the address later."""

    def __contains__(self, name: object) -> bool:
        """Return True."""
        return True


def addresses() -> Addresses:
    """Return the names of the families ``remote:`` and ``openenv:``."""
    return Addresses()
