"""FullTextIndex: BM25 search over word stems with tantivy, in memory or in a folder."""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from gem.errors import BadArgument, MissingData, needs_extra, replace_surrogates
from gem.tools.search.base import Hit, OpenedEngine, SearchFailed, check_topk, words
from gem.tools.search.corpus import Source, documents, fingerprint

TITLE_COUNTS = 2
"""How often the words of a title are indexed; the words of the text are indexed once."""

_STAMP = "gem_source.json"
_LAYOUT = 1  # raise it when the fields change: older folders are then built anew
_HEAP = 64 << 20
_FREQUENT = 0.1  # a word in a larger part of the documents is frequent
_BM25_MOST = 2.2  # k1 + 1 for tantivy's k1: no word adds more than that times its inverse document frequency


class FullTextIndex(OpenedEngine):
    """A full-text index of documents; see `gem.tools.search.corpus.documents` for the accepted sources.

    Words are compared by their English stems. Documents are ranked by BM25 over title and text. Ties come in
    the order of the corpus, whichever process built the index.

    Args:
        source: what to index.
        index_dir: a folder for the index. The first process builds it there, and it is reused while the
            source's files keep their names, sizes and times. Without `index_dir` the index is in memory, and
            every process that unpickles the engine builds its own.

    Raises:
        MissingData, BadArgument: for a source that is missing or cannot be read, or an `index_dir` that holds
            something else. MissingExtra: without tantivy.
    """

    def __init__(self, source: Source, *, index_dir: str | Path | None = None) -> None:
        super().__init__()
        self.source = source
        self.index_dir = None if index_dir is None else Path(index_dir)
        self._open()

    def __len__(self) -> int:
        """Return the number of documents."""
        return int(self._open().searcher().num_docs)

    def search(self, query: str, topk: int = 3) -> list[Hit]:
        """Return the documents that contain words of the query; see SearchEngine.search."""
        check_topk(topk)
        index = self._open()
        wanted = list(dict.fromkeys(_analyzer().analyze(" ".join(words(query)))))
        if not wanted:
            return []
        try:
            return [
                Hit(
                    document.get_first("id"), title, document.get_first("body")[len(_heading(title)) :], score
                )
                for score, document in _best(index, wanted, topk)
                for title in [document.get_first("title")]
            ]
        except (ValueError, OSError) as error:
            raise SearchFailed(f"the index of {self.source!r:.100} cannot be read: {error}") from error

    def _make(self) -> Any:
        with needs_extra("full-text search", "tantivy", "search"):
            import tantivy  # noqa: F401
        return _build(self.source) if self.index_dir is None else self._open_folder(self.index_dir)

    def _open_folder(self, home: Path) -> Any:
        """Return the index in `home`; build it there if it does not exist."""
        import tantivy

        stamp = {"layout": _LAYOUT, "source": fingerprint(self.source)}
        if _stamp_of(home) != stamp:
            home.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=home.parent, prefix=f".{home.name}-") as parent:
                new = Path(parent) / "index"
                new.mkdir()
                _build(self.source, new)
                (new / _STAMP).write_text(json.dumps(stamp), encoding="utf-8")
                with contextlib.suppress(FileNotFoundError):
                    home.rename(Path(parent) / "old")
                # When another process was faster, its index is as good as ours.
                with contextlib.suppress(OSError):
                    new.rename(home)
            if _stamp_of(home) != stamp:
                raise BadArgument(f"the index could not be written to {home}; accepted: a folder of its own.")
        index = tantivy.Index.open(str(home))
        index.config_reader("manual")
        return index


def _stamp_of(home: Path) -> Any:
    """Return the stamp of an index folder; None if there is no index yet."""
    try:
        return json.loads((home / _STAMP).read_text(encoding="utf-8"))
    except FileNotFoundError:
        if not home.exists() or (home.is_dir() and not any(home.iterdir())):
            return None
    except (OSError, ValueError):
        pass
    raise BadArgument(
        f"{home} exists and is not an index of gem; accepted for index_dir: a folder of its own."
    )


def _build(source: Source, home: Path | None = None) -> Any:
    """Return a new index of a source, in a folder or in memory."""
    import tantivy

    schema = tantivy.SchemaBuilder()
    schema.add_integer_field("place", fast=True)
    for field in ("id", "title"):
        schema.add_text_field(field, stored=True, tokenizer_name="raw", index_option="basic")
    # One field for both: only over a single one does tantivy skip what cannot be among the best.
    schema.add_text_field("body", stored=True, tokenizer_name="en_stem", index_option="freq")
    index = tantivy.Index(schema.build(), path=None if home is None else str(home), reuse=False)
    writer = index.writer(heap_size=_HEAP, num_threads=1)
    place = -1
    for place, document in enumerate(documents(source)):
        name, title, text = map(replace_surrogates, document)
        fields = {"id": name, "title": title, "body": _heading(title) + text}
        writer.add_document(tantivy.Document(place=place, **fields))
    if place < 0:
        raise MissingData(f"there is no document in {source!r:.100} to index.")
    writer.commit()
    writer.wait_merging_threads()
    index.config_reader("manual")
    index.reload()
    return index


@cache
def _analyzer() -> Any:
    """Return the tokenizer of the index."""
    from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

    plain = TextAnalyzerBuilder(Tokenizer.simple()).filter(Filter.remove_long(40)).filter(Filter.lowercase())
    return plain.filter(Filter.stemmer("English")).build()


def _best(index: Any, stems: list[str], topk: int) -> list[tuple[float, Any]]:
    """Return scores and documents of the best matches for some stems.

    Scanning all documents with a frequent word takes most of the time and changes little. So documents with a
    rarer word come first. The search stops when the last wanted document scores more than frequent words
    alone can give.
    """
    from tantivy import Occur, Query

    def any_of(stems: list[str]) -> list[tuple[Any, Any]]:
        return [(Occur.Should, Query.term_query(index.schema, "body", stem, "freq")) for stem in stems]

    searcher = index.searcher()
    total = searcher.num_docs
    counts = {stem: searcher.doc_freq("body", stem) for stem in stems}
    rare = [stem for stem in stems if counts[stem] <= _FREQUENT * total]
    frequent = [stem for stem in stems if counts[stem] > _FREQUENT * total]
    if rare and frequent:
        holds_one = (Occur.Must, Query.boolean_query(any_of(rare)))
        best = _rank(searcher, Query.boolean_query([holds_one, *any_of(frequent)]), topk)
        inverse = (math.log(1 + (total - counts[stem] + 0.5) / (counts[stem] + 0.5)) for stem in frequent)
        if len(best) == topk and best[-1][0] > 1.001 * _BM25_MOST * sum(inverse):
            return best
    return _rank(searcher, Query.boolean_query(any_of(stems)), topk)


def _rank(searcher: Any, query: Any, topk: int) -> list[tuple[float, Any]]:
    """Return scores and documents of the best matches, with ties in the order of the corpus.

    The index finds ties in an order that depends on the timing of merges. So all documents that tie with the
    last wanted one are fetched and sorted here.
    """
    limit = topk + 16
    while True:
        hits = searcher.search(query, limit, count=False).hits
        if len(hits) < limit or _round(hits[-1][0]) < _round(hits[topk - 1][0]):
            break
        limit *= 8
    addresses = [address for _, address in hits]
    places = searcher.fast_field_values("place", addresses)
    ranked = sorted(
        zip((_round(score) for score, _ in hits), places, addresses, strict=True),
        key=lambda each: (-each[0], each[1]),
    )
    return [(score, searcher.doc(address)) for score, _, address in ranked[:topk]]


def _round(score: float) -> float:
    """Return a score without its last bits, which depend on the order of a sum."""
    return float(f"{score:.4g}")


def _heading(title: str) -> str:
    return f"{title}\n" * TITLE_COUNTS
