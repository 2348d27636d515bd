"""Speed of the embedded full-text search, compared with scanning every document.

``python -m bench.search [--documents N]`` writes a corpus of short synthetic documents (words drawn by Zipf's
law), builds the index, and runs queries of one to six words. The target for 100,000 documents: built in less
than 60 s, a median query below 2 ms. The scan counts the query's words in every document's set of words.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import tempfile
import time
from itertools import accumulate
from pathlib import Path
from random import Random

from bench.common import choose_size, parse_args, table, write_json
from gem.tools.search.full_text import FullTextIndex

WORDS, QUERIES, BRUTE = choose_size((50_000, 500, 10), (500, 4, 2))


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of the embedded full-text search.")
    parser.add_argument("--documents", type=int, default=choose_size(100_000, 50))
    count = parse_args(parser).documents
    rng = Random(0)
    weights = list(accumulate(1 / rank for rank in range(1, WORDS + 1)))
    vocabulary = [f"w{n:x}" for n in range(WORDS)]
    texts = [
        " ".join(rng.choices(vocabulary, cum_weights=weights, k=rng.randint(20, 100))) for _ in range(count)
    ]
    queries = [" ".join(rng.sample(rng.choice(texts).split(), rng.randint(1, 6))) for _ in range(QUERIES)]
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus.jsonl"
        with corpus.open("w") as file:
            file.writelines(json.dumps({"id": n, "contents": text}) + "\n" for n, text in enumerate(texts))
        began = time.perf_counter()
        index = FullTextIndex(corpus, index_dir=Path(folder) / "index")
        build_s = time.perf_counter() - began
        began = time.perf_counter()
        index = FullTextIndex(corpus, index_dir=Path(folder) / "index")
        open_s = time.perf_counter() - began
        times = [timed(lambda query=query: index.search(query, 3)) for query in queries]
    sets = [set(text.split()) for text in texts]
    brute = [timed(lambda query=query: scan(sets, query)) for query in queries[:BRUTE]]
    figures = {
        "documents": count,
        "build_s": build_s,
        "open_again_s": open_s,
        "query_median_ms": 1000 * statistics.median(times),
        "query_p99_ms": 1000 * statistics.quantiles(times, n=100)[98],
        "scan_median_ms": 1000 * statistics.median(brute),
    }
    figures["scan / query"] = figures["scan_median_ms"] / figures["query_median_ms"]
    table(f"Search in {count} documents (wanted: build 60 s, median 2 ms)", ["", "figure"], figures.items())
    write_json("search", figures)


def scan(sets: list[set[str]], query: str) -> list[int]:
    """Return the three documents that hold the most words of a query, by looking at all of them."""
    wanted = set(re.findall(r"\w+", query))
    scores = [len(wanted & words) for words in sets]
    return sorted(range(len(sets)), key=lambda n: -scores[n])[:3]


def timed(call) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
