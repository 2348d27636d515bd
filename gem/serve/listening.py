"""The sockets that servers listen on."""

from __future__ import annotations

import socket
from ipaddress import ip_address

from gem.errors import BadArgument, reason


def is_local(host: str) -> bool:
    """Return whether only this machine can reach `host`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(host: str, port: int, backlog: int, hint: str = "--port 0 takes a free one") -> socket.socket:
    """Return a socket that listens: from now on whoever connects is answered, as soon as the server runs.

    Raises:
        BadArgument: for an address or a port that cannot be had; the message ends with `hint`.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # TCP is named, or asyncio would not set TCP_NODELAY: 40 ms for each answer over HTTP
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(backlog)
    except (OSError, OverflowError) as error:
        listening.close()
        raise BadArgument(f"cannot listen on {host}:{port}: {reason(error)}; {hint}.") from error
    return listening
