"""Clients of search services: Search-R1's ``/retrieve`` protocol, SerpAPI and Google Custom Search."""

from __future__ import annotations

import json
import os
import random
import time
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

import msgspec

from gem.errors import BadArgument, needs_extra
from gem.hiding import plain_address
from gem.proxies import through_proxy
from gem.tools.search.base import Hit, OpenedEngine, SearchFailed, check_topk, plain
from gem.tools.search.corpus import document_of

RETRIED = frozenset((408, 425, 429, 500, 502, 503, 504, 529))
_NOT_UNDERSTOOD = frozenset((400, 415, 422, 500))  # what servers answer to a body of the other kind

MAX_ANSWER = 16 << 20
"""The most bytes of an answer."""

LONGEST_WAIT_S = 10.0


class RemoteEngine(OpenedEngine):
    """The base class of services over HTTP, with time limits and retries; subclasses define `_search`.

    Args:
        timeout_s: seconds of one try, from the connection to the last byte.
        retries: the number of retries if the service does not answer, is busy or fails.
        backoff_s: seconds before the first retry; doubled each time, with jitter, at most ten.

    Raises:
        MissingExtra: without httpx.
    """

    key_names: tuple[str, ...] = ()
    """The environment variables that hold the service's keys; they are read at every search."""

    def __init__(self, *, timeout_s: float = 5.0, retries: int = 2, backoff_s: float = 0.5) -> None:
        super().__init__()
        if not (timeout_s > 0 and retries >= 0 and backoff_s >= 0):
            raise BadArgument(
                f"got {timeout_s=}, {retries=}, {backoff_s=}; accepted: a positive time, at least 0 retries, "
                "at least 0 seconds of back-off."
            )
        with needs_extra("a search service", "httpx", "search"):
            import httpx  # noqa: F401
        for name in self.key_names:
            if not os.environ.get(name):
                raise BadArgument(
                    f"{type(self).__name__} needs the environment variable {name}, and it is not set."
                )
        self.timeout_s, self.retries, self.backoff_s = timeout_s, retries, backoff_s

    def search(self, query: str, topk: int = 3) -> list[Hit]:
        """Return the results of the service, in its order; see SearchEngine.search."""
        check_topk(topk)
        query = plain(query)
        return self._search(query, topk) if query else []

    def _search(self, query: str, topk: int) -> list[Hit]:
        raise NotImplementedError(f"{type(self).__name__} must define _search().")

    def close(self) -> None:
        """Close the connections; the next search opens new ones."""
        with self._opening:
            opened, self._opened = self._opened, None
        if opened is not None and opened[0] == os.getpid():
            opened[1].close()

    def _ask(self, method: str, url: str, *, retried: frozenset[int] = RETRIED, **request: Any) -> bytes:
        """Return the body of a successful answer.

        Raises:
            SearchFailed: when no try succeeded; its `status` is that of the last answer, or 0.
        """
        # Many workers that lost one server must not all come back at once: the one draw here that no seed
        # decides, and no result depends on it.
        jitter = random.Random()
        for tries in range(1, self.retries + 2):
            status, body = self._try(method, url, request)
            if status == 200:
                return body
            why = (
                f"answered {status}: {self._quote(body, 300)}"
                if status
                else f"did not answer: {body.decode()}"
            )
            if status and status not in retried:
                break
            if tries <= self.retries:
                time.sleep(min(self.backoff_s * 2 ** (tries - 1) * (0.5 + jitter.random()), LONGEST_WAIT_S))
        place = f"{plain_address(url)}{through_proxy(url)}"
        failed = SearchFailed(f"{place} {why} (tried {tries} time{'s' * (tries > 1)})")
        failed.status = status
        raise failed

    def _try(self, method: str, url: str, request: dict[str, Any]) -> tuple[int, bytes]:
        """Return status and body of one answer; 0 and the reason if there was none."""
        import httpx

        deadline = time.monotonic() + self.timeout_s
        body = bytearray()
        try:
            with self._connections().stream(method, url, **request) as response:
                if response.has_redirect_location:
                    place = plain_address(response.headers["Location"])[:120]
                    return response.status_code, f"a redirect to {place!r}, which is not followed".encode()
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > MAX_ANSWER:
                        return 0, f"the answer is longer than {MAX_ANSWER} bytes".encode()
                    if time.monotonic() > deadline:  # httpx limits each wait, not their sum
                        return 0, f"the answer took longer than {self.timeout_s:g} s".encode()
                return response.status_code, bytes(body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return 0, f"{type(error).__name__}: {error}".encode("utf-8", "replace")

    def _quote(self, body: bytes, longest: int = 200) -> str:
        """Return the beginning of an answer for a message, without the keys that it repeats."""
        for name in self.key_names:
            body = body.replace((os.environ.get(name) or "\0").encode(), f"${name}".encode())
        return repr(body[:longest])

    def _connections(self) -> Any:
        import httpx

        with self._opening:
            if self._opened is None or self._opened[0] != os.getpid():  # a forked child makes its own
                self._opened = os.getpid(), httpx.Client(timeout=self.timeout_s)
            return self._opened[1]


class RetrieveEngine(RemoteEngine):
    """A client of a server with Search-R1's ``/retrieve`` protocol, such as ``gem-gym serve-search``.

    Args:
        url: its address, such as http://127.0.0.1:8000/retrieve; without a path, /retrieve is used.
        wire: ``json`` is the format of Search-R1, ``msgpack`` that of upstream's SearchTool; ``auto`` finds
            out once which of them the server understands.
        **limits: timeout_s, retries and backoff_s, as in RemoteEngine.

    Raises:
        BadArgument: for an invalid url. MissingExtra: without httpx.
    """

    def __init__(self, url: str, *, wire: Literal["auto", "json", "msgpack"] = "auto", **limits: Any) -> None:
        super().__init__(**limits)
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadArgument(f"search_url is {url!r:.200}; accepted: as http://127.0.0.1:8000/retrieve.")
        if wire not in ("auto", "json", "msgpack"):
            raise BadArgument(f"wire is {wire!r:.60}; accepted: auto, json, msgpack.")
        self.url = url if parts.path.strip("/") else urlunsplit(parts._replace(path="/retrieve"))
        self.wire = wire

    def _search(self, query: str, topk: int) -> list[Hit]:
        if self.wire != "auto":
            return self._retrieve(self.wire, query, topk)
        try:
            hits = self._retrieve("json", query, topk, retried=RETRIED - {500})
        except SearchFailed as refused:
            if refused.status not in _NOT_UNDERSTOOD:
                raise
            hits = self._retrieve("msgpack", query, topk)
            self.wire = "msgpack"
        else:
            self.wire = "json"
        return hits

    def _retrieve(self, wire: str, query: str, topk: int, retried: frozenset[int] = RETRIED) -> list[Hit]:
        if wire == "json":
            asked: dict[str, Any] = {"queries": [query], "topk": topk, "return_scores": True}
            content = json.dumps(asked).encode()
        else:
            asked = {"query": query, "topk": topk, "return_scores": True}
            content = msgspec.msgpack.encode(asked)
        headers = {"Content-Type": f"application/{wire}"}
        body = self._ask("POST", self.url, retried=retried, content=content, headers=headers)
        try:
            answer = json.loads(body) if wire == "json" else msgspec.msgpack.decode(body)
            rows = answer["result"]
            if rows and isinstance(rows[0], list):
                rows = rows[0]
            return [_hit(row, number) for number, row in enumerate(rows[:topk])]
        except (ValueError, LookupError, TypeError, RecursionError, msgspec.MsgspecError) as error:
            raise SearchFailed(
                f"{plain_address(self.url)} gave no readable result, but {self._quote(body)}"
            ) from error


class SerpApiEngine(RemoteEngine):
    """Google's organic results by SerpAPI, with snippets as texts; needs the variable SERPAPI_API_KEY.

    Args:
        url: another address of the service.
        **limits: timeout_s, retries and backoff_s, as in RemoteEngine.

    Raises:
        BadArgument: when the key is not set. MissingExtra: without httpx.
    """

    key_names: tuple[str, ...] = ("SERPAPI_API_KEY",)

    def __init__(self, *, url: str = "https://serpapi.com/search.json", **limits: Any) -> None:
        super().__init__(**limits)
        self.url = url

    def _search(self, query: str, topk: int) -> list[Hit]:
        key = os.environ.get(self.key_names[0], "")
        params = {"engine": "google", "q": query, "num": topk, "api_key": key}
        return self._results("organic_results", topk, params)

    def _results(self, field: str, topk: int, params: dict[str, Any]) -> list[Hit]:
        body = self._ask("GET", self.url, params=params)
        try:
            # Neither service has the field where nothing was found.
            rows = json.loads(body).get(field) or []
            return [
                Hit(str(row["link"]), str(row.get("title", "")), str(row.get("snippet", "")), 1.0 / rank)
                for rank, row in enumerate(rows[:topk], 1)
            ]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise SearchFailed(
                f"{plain_address(self.url)} gave no readable result, but {self._quote(body)}"
            ) from error


class GoogleEngine(SerpApiEngine):
    """Google's Custom Search, at most ten results; needs the variables GOOGLE_API_KEY and GOOGLE_CSE_ID.

    Args:
        url: another address of the service.
        **limits: timeout_s, retries and backoff_s, as in RemoteEngine.

    Raises:
        BadArgument: when a key is not set. MissingExtra: without httpx.
    """

    key_names = ("GOOGLE_API_KEY", "GOOGLE_CSE_ID")

    def __init__(self, *, url: str = "https://www.googleapis.com/customsearch/v1", **limits: Any) -> None:
        super().__init__(url=url, **limits)

    def _search(self, query: str, topk: int) -> list[Hit]:
        key, engine = (os.environ.get(name, "") for name in self.key_names)
        return self._results("items", topk, {"key": key, "cx": engine, "q": query, "num": min(topk, 10)})


def _hit(row: Any, number: int) -> Hit:
    """Parse one result: a document, or a document with its score."""
    document = row.get("document", row) if isinstance(row, dict) else row
    score = row.get("score") if isinstance(row, dict) else None
    return Hit(*document_of(document, number), float(1.0 / (number + 1) if score is None else score))
