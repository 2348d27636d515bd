"""Upstream's place of the search servers; the one that serves any engine is `gem.serve.search`.

Each module is a program: ``python -m gem.tools.search_engine.retrieval_server --corpus_path docs.jsonl``.
`main` is what they share.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from gem.tools.search import WORLD, open_engine


def main(source: str | None = None, argv: Sequence[str] | None = None) -> None:
    """Serve an engine by /retrieve until it is ended; the first line of output is its address.

    Args:
        source: the engine, as `gem.tools.search.open_engine` takes it; None: what ``--corpus_path`` says.
        argv: the arguments; None: those of the command line.
    """
    from gem.serve.search import SearchServer

    parser = argparse.ArgumentParser(description="Serve a search engine by POST /retrieve.")
    if source is None:
        parser.add_argument(
            "--corpus_path", default=WORLD, help="a .jsonl corpus, a folder, a .zim file, world"
        )
        parser.add_argument("--index_path", help="a folder in which the index is kept")
    parser.add_argument(
        "--host", default="127.0.0.1", help="where to listen; by default this machine alone can ask"
    )
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    parser.add_argument(
        "--topk", type=int, default=3, help="how many documents a request gets that does not say"
    )
    given = parser.parse_args(argv)
    engine = open_engine(source or given.corpus_path, index_dir=getattr(given, "index_path", None))
    with SearchServer(engine, given.host, given.port, topk=given.topk) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        server.serve_forever()
