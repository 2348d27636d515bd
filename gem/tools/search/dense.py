"""DenseIndex ranks documents by vector similarity; HybridIndex merges the lists of several engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from gem.errors import BadArgument, MissingData
from gem.tools.search.base import MAX_TOPK, Hit, OpenedEngine, SearchEngine, check_topk, plain
from gem.tools.search.corpus import Source, documents

Encode: TypeAlias = Callable[[Sequence[str]], Any]
"""A function from texts to an array (texts, dimensions), such as `encode` of sentence-transformers."""

_BATCH = 256


class DenseIndex(OpenedEngine):
    """An index that ranks all documents by the cosine between their vectors and the query's vector.

    Vectors are kept in memory as float32. Ties, to four decimals, come in the order of the corpus.

    Args:
        source: what to index; see `gem.tools.search.corpus.documents`.
        encode: the encoder of documents.
        encode_query: the encoder of queries, if it differs. To pickle the engine, both must be picklable.

    Raises:
        MissingData, BadArgument: for a source that is missing or cannot be read, or an encoder that does not
            return a row of numbers per text.
    """

    def __init__(self, source: Source, encode: Encode, *, encode_query: Encode | None = None) -> None:
        super().__init__()
        self.source = source
        self.encode = encode
        self.encode_query = encode_query or encode
        self._open()

    def search(self, query: str, topk: int = 3) -> list[Hit]:
        """Return the documents nearest to the query; see SearchEngine.search."""
        import numpy as np

        check_topk(topk)
        if not plain(query):
            return []
        texts, vectors = self._open()
        scores = np.round(vectors @ _unit(self.encode_query, [plain(query)])[0], 4)
        last = np.partition(scores, -topk)[-topk] if topk < len(scores) else scores.min()
        near = np.flatnonzero(scores >= last)
        best = near[np.argsort(-scores[near], kind="stable")][:topk]
        nearest = ((texts[row], float(scores[row])) for row in best)
        return [Hit(each.id, each.title, each.text, score) for each, score in nearest]

    def _make(self) -> Any:
        import numpy as np

        corpus = list(documents(self.source))
        if not corpus:
            raise MissingData(f"there is no document in {self.source!r:.100} to index.")
        texts = [f"{each.title}\n{each.text}" if each.title else each.text for each in corpus]
        batches = (texts[at : at + _BATCH] for at in range(0, len(texts), _BATCH))
        return corpus, np.concatenate([_unit(self.encode, batch) for batch in batches])


class HybridIndex(SearchEngine):
    """An engine that joins the lists of several engines over one corpus by reciprocal rank fusion.

    A document scores the sum of 1 / (`constant` + rank) over the engines that found it among their first 100
    (Cormack, Clarke and Büttcher, SIGIR 2009). Ties come in the order of their ids.

    Args:
        engines: two or more engines over the same documents, which are identified by id.
        constant: a larger value gives more weight to agreement between engines.

    Raises:
        BadArgument: for fewer than two engines.
    """

    def __init__(self, engines: Sequence[SearchEngine], *, constant: float = 60.0) -> None:
        if len(engines) < 2:
            raise BadArgument(f"got {len(engines)} engines to join; accepted: two or more.")
        self.engines = tuple(engines)
        self.constant = constant

    def search(self, query: str, topk: int = 3) -> list[Hit]:
        """Return the documents with the best fused ranks; see SearchEngine.search."""
        check_topk(topk)
        hits: dict[str, Hit] = {}
        scores: dict[str, float] = {}
        for engine in self.engines:
            for rank, hit in enumerate(engine.search(query, MAX_TOPK), 1):
                hits.setdefault(hit.id, hit)
                scores[hit.id] = scores.get(hit.id, 0.0) + 1.0 / (self.constant + rank)
        best = sorted(scores, key=lambda name: (-scores[name], name))[:topk]
        return [hits[name]._replace(score=scores[name]) for name in best]

    def close(self) -> None:
        """Close the engines."""
        for engine in self.engines:
            engine.close()


def _unit(encode: Encode, texts: Sequence[str]) -> Any:
    """Return the vectors of texts, each of length 1, or 0 if the encoder gave zeros."""
    import numpy as np

    vectors = np.asarray(encode(texts), dtype=np.float32)
    if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
        raise BadArgument(
            f"the encoder gave an array of shape {vectors.shape} for {len(texts)} texts; accepted: finite "
            "numbers of shape (texts, dimensions)."
        )
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1.0)
