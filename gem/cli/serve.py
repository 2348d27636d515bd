"""The commands ``gem-gym serve`` and ``gem-gym serve-search``: environments and search over HTTP."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Annotated

from tyro.conf import Positional, arg

from gem.cli.terms import MaybeFolder, open_store
from gem.waiting import name_wait


def serve_search(
    source: Annotated[Positional[str], arg(metavar="SOURCE")],
    host: str = "127.0.0.1",
    port: int = 8000,
    topk: int = 3,
    index: MaybeFolder = None,
) -> int:
    """Serve a search engine by Search-R1's /retrieve protocol, in JSON and msgpack, until Ctrl-C.

    Args:
        source: world (the built-in one), a folder of text files, a .jsonl corpus, or a .zim file.
        host: the address to listen on; anyone who can reach it can search. Default: this machine only.
        port: the port to listen on; 0 takes a free one.
        topk: how many documents to return when a request does not say.
        index: a folder in which the index is stored, so that the next start is fast.
    """
    from gem.serve.search import SearchServer
    from gem.tools.search import open_engine

    print(f"opening {source} ...", flush=True)
    with name_wait(f"the index of {source}"):
        engine = open_engine(source, index_dir=index)
    with SearchServer(engine, host, port, topk=topk) as server:
        print(f"SEARCH_URL={server.url}", flush=True)
        server.serve_forever()
    return 0


def serve(
    ids: Annotated[Positional[tuple[str, ...]], arg(metavar="ID [ID ...]", help_behavior_hint="")],
    host: str = "127.0.0.1",
    port: int = 8000,
    backend: str = "auto",
    keywords: tuple[str, ...] = (),
    wrappers: tuple[str, ...] = (),
    origins: tuple[str, ...] = (),
    sessions: int = 4096,
    message_bytes: int = 1 << 20,
    rate: float = 2000.0,
    steps: int = 10_000,
    lease_s: float = 600.0,
    call_s: float = 60.0,
    drain_s: float = 30.0,
    out: MaybeFolder = None,
    show_reward: bool = False,
) -> int:
    """Serve environments to clients of OpenEnv, of MCP and of gem, until Ctrl-C or SIGTERM.

    The token that clients must send is read from GEM_SERVE_TOKEN; without one, only this machine is answered.
    On a shared network, put a proxy with TLS in front, so that the token is not sent in the clear.

    Args:
        ids: the environments to serve, or classes as path/file.py:Class, separated by spaces or commas. The
            first is also at the root of the address, where OpenEnv's clients look.
        host: the address to listen on; any address other than this machine's own needs a token.
        port: the port to listen on; 0 takes a free one.
        backend: where environments run: auto, serial (in the server's own thread), thread, process.
        keywords: names of the environments' keywords that clients may set.
        wrappers: wrappers that clients may ask for: names, module:function, or file.py:function.
        origins: origins of web pages that may connect, as https://example.org.
        sessions: the most environments at a time, of all clients together.
        message_bytes: the most bytes of one message.
        rate: the most calls per second of one session; faster clients wait.
        steps: the most steps of one episode; then it is truncated.
        lease_s: seconds after which an unused session is closed.
        call_s: the most seconds of one call; not applied in the server's own thread.
        drain_s: seconds that running episodes get after SIGTERM.
        out: a folder for the records of the episodes that MCP clients play; they are written to
            episodes.jsonl in it.
        show_reward: tell an MCP client the reward when its episode is over.
    """
    from gem.serve.environments import ServeLimits
    from gem.serve.environments.server import EnvironmentServer

    limits = ServeLimits(
        sessions=sessions,
        message_bytes=message_bytes,
        rate=rate,
        steps=steps,
        lease_s=lease_s,
        call_s=call_s,
        drain_s=drain_s,
    )
    with nullcontext() if out is None else open_store(out) as store:
        with name_wait(f"the environments {', '.join(ids)} to start"):
            server = EnvironmentServer(
                [each for words in ids for each in words.split(",") if each],
                host=host,
                port=port,
                token=os.environ.get("GEM_SERVE_TOKEN") or None,
                origins=origins,
                limits=limits,
                backend=backend,
                keywords=keywords,
                wrappers=wrappers,
                store=store,
                show_reward=show_reward,
            )
        print(f"serving {', '.join(server.application.offers)} at {server.url}", flush=True)
        server.serve()
    return 0
