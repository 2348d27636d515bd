"""OpenAIAgent: any server that speaks the chat completions protocol: OpenAI, vLLM, SGLang, llama.cpp."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from gem.agents.base import BaseAgent
from gem.content import Image, Message
from gem.errors import BadArgument, NoVerdict, missing_extra
from gem.record import AgentInfo, Ask, Reply
from gem.seeding import stream

try:
    import httpx
except ImportError as error:
    raise missing_extra("OpenAIAgent", "httpx", "openai") from error

PUBLIC_URL = "https://api.openai.com/v1"
RETRIED = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 529))
LONGEST_WAIT_S = 60.0
EXCERPT = 300  # characters of a server's answer that an error quotes


class OpenAIAgent(BaseAgent):
    """Asks a chat completions endpoint.

    Rate limits, server errors and broken connections are tried again; when that does not help, the episode
    gets no verdict. A prompt that the server calls too long is answered with ``finish="context"``.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key_env: str = "OPENAI_API_KEY",
        temperature: float = 1.0,
        max_tokens: int | None = None,
        token_ids: bool = False,
        extra: Mapping[str, Any] | None = None,
        concurrency: int = 64,
        timeout_s: float = 600.0,
        connect_s: float = 10.0,
        retries: int = 5,
        backoff_s: float = 0.5,
    ) -> None:
        """Say whom to ask and how; nothing is sent yet.

        Args:
            model: the server's name for the model.
            base_url: where ``/chat/completions`` is; default: the variable OPENAI_BASE_URL, else OpenAI's.
            api_key_env: the environment variable that holds the key; without it no key is sent.
            temperature: of sampling.
            max_tokens: longest answer; `Limits.turn_tokens` and what is left of `Limits.tokens` shorten it.
            token_ids: ask for token ids and log probabilities as vLLM gives them (``return_token_ids``);
                a server that does not know the field may refuse it.
            extra: further fields of the request, such as ``{"top_p": 0.9}``.
            concurrency: requests in flight.
            timeout_s: seconds for one answer, from the request to its last byte.
            connect_s: seconds for the connection.
            retries: tries after the first one.
            backoff_s: seconds before the second try; doubled each time, with jitter. What the server asks
                for in Retry-After counts instead. No wait is longer than a minute.
        """
        if concurrency < 1 or retries < 0:
            raise BadArgument(
                f"got {concurrency=}, {retries=}; accepted: at least 1 request, at least 0 retries."
            )
        self.model = model
        base_url = base_url or os.environ.get("OPENAI_BASE_URL") or PUBLIC_URL
        self.url = _checked(base_url.rstrip("/") + "/chat/completions")
        self.api_key_env = api_key_env
        self.temperature, self.max_tokens = temperature, max_tokens
        self.token_ids, self.extra = token_ids, dict(extra or {})
        self.retries, self.backoff_s = retries, backoff_s
        self._concurrency = concurrency
        self.timeout_s = timeout_s
        self._timeout = httpx.Timeout(timeout_s, connect=connect_s, pool=None)  # of each wait
        self._client: httpx.AsyncClient | None = None
        self._turnstile: asyncio.Semaphore | None = None

    async def ask(self, ask: Ask) -> Reply:
        """Answer one ask.

        Raises:
            NoVerdict: when the server gives no usable answer.
        """
        # Always in the agent's own loop: one client, one pool of connections, whoever calls from wherever.
        return await asyncio.wrap_future(self.loop.submit(self._answer(ask)))

    @property
    def info(self) -> AgentInfo:
        """See BaseAgent.info."""
        settings = {"temperature": self.temperature, "max_tokens": self.max_tokens, **self.extra}
        return AgentInfo(type(self).__name__, self.model, settings)

    def close(self) -> None:
        """Close the connections. Calling it twice is harmless."""
        client, self._client, self._turnstile = self._client, None, None
        if client is not None:
            self.loop.run(client.aclose())
        super().close()

    async def _answer(self, ask: Ask) -> Reply:
        if self._client is None or self._turnstile is None:
            limits = httpx.Limits(
                max_connections=self._concurrency, max_keepalive_connections=self._concurrency
            )
            self._client = httpx.AsyncClient(timeout=self._timeout, limits=limits)
            self._turnstile = asyncio.Semaphore(self._concurrency)
        # ASCII escapes, because an observation may hold lone surrogates, which have no UTF-8.
        body = json.dumps(self._request(ask)).encode("ascii")
        jitter = stream(ask.seed, "backoff")
        tries = 0
        while True:
            async with self._turnstile:
                outcome = await self._try(self._client, body)
            if isinstance(outcome, Reply):
                return _within(outcome, ask.context)
            tries += 1
            if outcome.wait_s is None or tries > self.retries:
                raise NoVerdict(f"{self.url} {outcome.why} (tried {tries} time{'s' * (tries > 1)})")
            backoff = self.backoff_s * 2 ** (tries - 1) * (0.5 + jitter.random())
            await asyncio.sleep(min(outcome.wait_s or backoff, LONGEST_WAIT_S))

    def _request(self, ask: Ask) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": message.role, "content": _content(message)} for message in ask.messages],
            "temperature": self.temperature,
            "seed": ask.seed,
        }
        limits = [limit for limit in (self.max_tokens, ask.max_tokens) if limit is not None]
        if limits:
            request["max_tokens"] = min(limits)
        if self.token_ids:
            request |= {"return_token_ids": True, "logprobs": True}
        return request | self.extra

    async def _try(self, client: httpx.AsyncClient, body: bytes) -> Reply | _Refusal:
        key = os.environ.get(self.api_key_env)
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        try:
            async with asyncio.timeout(self.timeout_s):
                response = await client.post(self.url, content=body, headers=headers)
        except TimeoutError:
            return _Refusal(f"did not answer within {self.timeout_s:g} s", 0.0)
        except httpx.RequestError as error:
            return _Refusal(f"did not answer: {type(error).__name__}: {error}", 0.0)
        if response.status_code == 200:
            try:
                return _reply(json.loads(response.content))
            except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
                return _Refusal(
                    f"did not answer with a chat completion, but {response.text[:EXCERPT]!r}", 0.0
                )
        why = f"answered {response.status_code}: {response.text[:EXCERPT]!r}"
        if response.status_code == 400 and _too_long(response.text):
            return Reply("", finish="context", extra={"error": response.text[:EXCERPT]})
        if response.status_code in (401, 403):
            said = "is set" if key else "is not set"
            why += f"; the key comes from the environment variable {self.api_key_env}, which {said}."
        retried = response.status_code in RETRIED
        return _Refusal(why, _retry_after(response.headers.get("Retry-After")) if retried else None)


class _Refusal:
    """Why there is no answer. `wait_s`: None: asking again is no use; 0: after a backoff; else: that long."""

    def __init__(self, why: str, wait_s: float | None) -> None:
        self.why, self.wait_s = why, wait_s


def _checked(url: str) -> str:
    try:
        if httpx.URL(url).scheme in ("http", "https") and httpx.URL(url).host:
            return url
    except httpx.InvalidURL:
        pass
    raise BadArgument(f"base_url makes {url!r}; accepted: an address such as http://127.0.0.1:8000/v1.")


def _content(message: Message) -> str | list[dict[str, Any]]:
    if isinstance(message.content, str):
        return message.content
    parts: list[dict[str, Any]] = []
    for part in message.content:
        if isinstance(part, Image):
            url = f"data:{part.mime};base64,{base64.b64encode(part.data).decode('ascii')}"
            parts.append({"type": "image_url", "image_url": {"url": url}})
        else:
            parts.append({"type": "text", "text": part.text})
    return parts


def _reply(data: Mapping[str, Any]) -> Reply:
    """Read a chat completion; whatever is missing or of another shape raises."""
    choice = data["choices"][0]
    text = choice["message"].get("content") or ""
    if not isinstance(text, str):
        raise TypeError
    prompt_ids = tuple(map(int, data.get("prompt_token_ids") or ()))
    token_ids = tuple(map(int, choice.get("token_ids") or ()))
    logprobs: tuple[float, ...] | None = None
    if token_ids and choice.get("logprobs"):
        logprobs = tuple(float(token["logprob"]) for token in choice["logprobs"]["content"])
        if len(logprobs) != len(token_ids):
            logprobs = None
    usage = data.get("usage") or {}
    counted = {name: int(usage[name]) for name in ("prompt_tokens", "completion_tokens") if usage.get(name)}
    extra = {}
    reason = choice.get("finish_reason")
    if reason not in ("stop", "length", None):
        extra["finish_reason"] = reason  # content_filter, tool_calls: the answer is what there is of it
    finish = "length" if reason == "length" else "stop"
    return Reply(text, prompt_ids, token_ids, logprobs, finish, usage=counted, extra=extra)


def _within(reply: Reply, context: int | None) -> Reply:
    """Hold an answer to the context limit; only the server can count tokens, and only afterwards."""
    used = reply.usage.get("prompt_tokens", 0) + reply.usage.get("completion_tokens", 0)
    if context is None or used <= context or reply.finish == "context":
        return reply
    return Reply("", finish="context", usage=reply.usage, extra=reply.extra)


def _too_long(text: str) -> bool:
    text = text.lower()
    return "context_length_exceeded" in text or "context length" in text or "context window" in text


def _retry_after(value: str | None) -> float:
    """Return the seconds that a Retry-After header asks for, or 0."""
    if value is None:
        return 0.0
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return 0.0
