"""``gem-gym serve-search``."""

from __future__ import annotations

from typing import Annotated

from tyro.conf import Positional, arg

from gem.cli.terms import MaybePath


def serve_search(
    source: Annotated[Positional[str], arg(metavar="SOURCE")],
    host: str = "127.0.0.1",
    port: int = 8000,
    topk: int = 3,
    index: MaybePath = None,
) -> int:
    """Serve a search engine by Search-R1's /retrieve protocol, in JSON and msgpack, until Ctrl-C.

    Args:
        source: world (the built-in one), a folder of text files, a .jsonl corpus, or a .zim file.
        host: where to listen; whoever can reach it can search, so by default only this machine.
        port: 0 takes a free one.
        topk: how many documents a request gets that does not say.
        index: a folder in which the index is kept, to be ready at once next time.
    """
    from gem.serve.search import SearchServer
    from gem.tools.search import open_engine

    print(f"opening {source} ...", flush=True)
    with SearchServer(open_engine(source, index_dir=index), host, port, topk=topk) as server:
        print(f"SEARCH_URL={server.url}", flush=True)
        server.serve_forever()
    return 0
