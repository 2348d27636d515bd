"""The command line of upstream's search servers; `gem.serve.search` implements them.

Each is a program under upstream's module name, as
``python -m gem.tools.search_engine.retrieval_server --corpus_path docs.jsonl``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from gem.serve.search import SearchServer
from gem.tools.search import WORLD, open_engine


def main(source: str | None = None, argv: Sequence[str] | None = None) -> None:
    """Serve an engine with the /retrieve protocol until stopped; the first line of output is its address.

    Args:
        source: the engine, as for `gem.tools.search.open_engine`; None uses ``--corpus_path``.
        argv: the arguments; None uses the command line.
    """
    parser = argparse.ArgumentParser("search server", description="Serve a search engine by POST /retrieve.")
    if source is None:
        parser.add_argument(
            "--corpus_path", default=WORLD, help="a .jsonl corpus, a folder, a .zim file, world"
        )
        parser.add_argument("--index_path", help="a folder for the index")
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="the address to listen on; by default only this machine can connect",
    )
    parser.add_argument("--port", type=int, default=8000, help="the port; 0 takes a free one")
    parser.add_argument(
        "--topk", type=int, default=3, help="the number of documents for requests that do not set it"
    )
    given = parser.parse_args(argv)
    engine = open_engine(source or given.corpus_path, index_dir=getattr(given, "index_path", None))
    with SearchServer(engine, given.host, given.port, topk=given.topk) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        server.serve_forever()
