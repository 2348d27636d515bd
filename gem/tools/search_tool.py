"""SearchTool: a search tool for agents, with any engine of `gem.tools.search`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from random import Random

from gem.errors import BadArgument, ToolError
from gem.tools.base_tool import BaseTool, ToolResult
from gem.tools.search import ACCEPTED, SearchEngine, SearchFailed, open_engine
from gem.tools.search.base import Hit, check_topk, plain

URL = "SEARCH_URL"
"""The environment variable with the default engine."""

CONTROL = "water"
"""A query that every engine accepts; an engine that does not answer it is down."""

_WORD = re.compile(r"\w+(?:['-]\w+)*")

FAILED = "The search failed, and not by your doing. Try again, or answer with what you know."


class SearchTool(BaseTool):
    """A search tool: the agent writes a query in ``<search>`` and reads documents in ``<information>``.

    If the engine fails after its retries, the tool tests it with a plain word. If that fails too, the engine
    is down: NoVerdict is raised and the episode ends without a score. If that succeeds, the engine could not
    handle the query, and the agent reads so; otherwise it could end any episode by such a query. Such a
    search is counted in info (`tool_failure_counter`, and ``"failed": True`` with the reason in
    `tool_results`) and earns neither the reward of a success nor that of an error. With ``strict=False`` the
    agent always reads of the failure, and its episode without a search engine is scored.

    Several environments share one tool, and any thread may call it. It is pickled without its index.
    """

    name = "search"
    tag = "search"
    result_tag = "information"
    parallel_safe = True

    def __init__(
        self,
        num_workers: int = 1,
        search_url: str | Path | SearchEngine | None = None,
        topk: int = 3,
        timeout: float = 5.0,
        *,
        max_chars: int = 6000,
        strict: bool = True,
    ) -> None:
        """Set the engine and the limits.

        Args:
            num_workers: upstream's; has no effect here.
            search_url: a server with the /retrieve protocol, ``serpapi``, ``google``, ``world`` (the built-in
                corpus), a .zim file, a .jsonl corpus, a folder, or an engine; None uses the environment
                variable SEARCH_URL, which accepts the same names.
            topk: the most documents that the agent reads.
            timeout: seconds for one try of a service.
            max_chars: the most characters of the documents to show, in equal shares.
            strict: end the episode without a score if the engine is down.

        Raises:
            BadArgument, MissingData: when no engine is given, or its source is missing or unreadable.
            MissingExtra: without the package that the engine needs.
        """
        super().__init__(num_workers)
        search_url = search_url or os.environ.get(URL)
        if not search_url:
            raise BadArgument(
                f"no search engine is given: pass search_url=..., or set the environment variable {URL}. "
                f"Accepted: {ACCEPTED}."
            )
        self.topk = check_topk(topk)
        self.max_chars = max_chars
        self.strict = strict
        if isinstance(search_url, SearchEngine):
            self.engine = search_url
        else:
            self.engine = open_engine(search_url, timeout_s=timeout)

    def call(self, query: str) -> ToolResult:
        """Search for documents by the words of a query; you read those that fit best.

        Args:
            query: what to look for, a few words.
        """
        query = plain(query)
        if not query:
            raise ToolError("The query is empty: write what to look for.")
        try:
            hits = self.engine.search(query, self.topk)
        except SearchFailed as failed:
            if self.strict:
                self.engine.search(CONTROL, 1)
            return ToolResult(FAILED, failed=True, info={"why": str(failed)})
        return ToolResult(
            self._write_hits(hits) or "Nothing was found. Try other words.", info={"hits": len(hits)}
        )

    def instruction_string(self) -> str:
        """Return the text that tells the agent how to use the tool."""
        best = f"the {self.topk} documents that fit" if self.topk > 1 else "the document that fits"
        return f"You can search: write a query in <search>...</search>. You read {best} best."

    def sample_call(self, question: str, rng: Random) -> str:
        """Return a search for a word of the question, or for water where it has none."""
        return f"<search>{rng.choice(_WORD.findall(question) or [CONTROL])}</search>"

    def solving_call(self, question: str) -> str:
        """Return a search for the first line of the question; empty where it has no words."""
        words = " ".join(_WORD.findall(question.strip().split("\n", 1)[0]))
        return f"<search>{words}</search>" if words else ""

    def _write_hits(self, hits: list[Hit]) -> str:
        share = self.max_chars // max(len(hits), 1)
        return "\n".join(
            f"Doc {number}(Title: {' '.join((hit.title or hit.id).split())}) {cut(hit.text.strip(), share)}"
            for number, hit in enumerate(hits, 1)
        )


def cut(text: str, most: int) -> str:
    """Return `text`, or its beginning and a mark if it is longer than `most` characters."""
    return text if len(text) <= most else f"{text[:most].rstrip()} [...]"
