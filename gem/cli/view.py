"""``gem-gym view``: pages over episodes and training runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from gem.errors import BadArgument


def view(
    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN [RUN ...]", help_behavior_hint="")],
    port: int = 0,
) -> int:
    """Look at episodes: how an agent decided, and how it learned. Serves pages on this machine until Ctrl-C.

    Only whoever has the printed address can open them. No request leaves the machine.

    Args:
        runs: stores (episodes.jsonl), folders of training runs or evaluations, or folders of such folders.
        port: where to listen on 127.0.0.1; 0 takes a free one.
    """
    from gem.viewer.server import Server
    from gem.viewer.sources import open_sources

    if not runs:
        raise BadArgument("no run was named; give a store, or the folder of a run.")
    sources = open_sources(runs)
    server = Server(sources, port)
    count = sum(len(source.store) for source in sources)
    print(f"{len(sources)} runs, {count:,} episodes", flush=True)
    print(server.url, flush=True)
    server.serve()
    return 0
