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
    parts = urlsplit(name)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        return None
    path = parts.path.strip("/").split("/")
    begin = next((place for place, part in enumerate(path) if ":" in part), len(path) - 1)
    env_id = "/".join(path[begin:])
    before = "/".join(path[:begin])
    return (
        Place(f"{parts.scheme}://{parts.netloc}" + (f"/{before}" if before else ""), env_id)
        if env_id
        else None
    )


class Environments:
    """Holds every name of an environment on a server."""

    def __contains__(self, name: object) -> bool:
        """Whether it is one."""
        return isinstance(name, str) and split(name) is not None


class Servers:
    """Holds every address of a server."""

    def __contains__(self, name: object) -> bool:
        """Whether it is one."""
        parts = urlsplit(name) if isinstance(name, str) else None
        return parts is not None and parts.scheme in ("http", "https") and bool(parts.netloc)


def environments() -> Environments:
    """Return the names behind ``remote:``."""
    return Environments()


def servers() -> Servers:
    """Return the names behind ``openenv:``."""
    return Servers()
