"""OpenAIAgent, for any server with the OpenAI protocols: OpenAI, vLLM, SGLang, llama.cpp."""

from __future__ import annotations

import asyncio
import json
import os
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import perf_counter
from typing import Any, ClassVar, Literal, get_args

from gem.agents.base import BaseAgent
from gem.agents.bodies import LONGEST_STREAM, Events, Unpacked
from gem.agents.chat_completions import ChatCompletions
from gem.agents.completions import Completions
from gem.agents.connections import Clients, Tail
from gem.agents.endpoint import Endpoint, fits_a_header
from gem.agents.outcomes import (
    EXCERPT,
    NO_END,
    Fault,
    Said,
    Verdict,
    blames_length,
    complaint_of,
    is_overloaded,
    judge,
    names,
    over_cap,
    refuses,
    refuses_tools,
    reply,
    shorter,
    too_long,
    written_call,
)
from gem.agents.pace import Pace
from gem.agents.responses import Responses
from gem.agents.wire import EMPTY, Collector, Form, Settings, WireFormat, own_share, retold, sent_arguments
from gem.content import Message
from gem.errors import AgentUnavailable, BadArgument, NoVerdict, OutOfTime, check_argument, needs_extra
from gem.hiding import hide_address, plain_address
from gem.proxies import through_proxy
from gem.record import DISCARDED, AgentInfo, Ask, Attempts, Reply
from gem.seeding import stream as seeded
from gem.tokens.renderer import Renderer
from gem.tools import calls
from gem.waiting import report_trouble

with needs_extra("OpenAIAgent", "httpx", "openai"):
    import httpx

LONGEST_WAIT_S = 60.0
PLAIN_QUESTION = Message("user", "Say yes.")
PLAIN_TOKENS = 256  # limit of the answer to it, which a model may think about
MOST_SPARED = 20  # tries of an ask that do not count, because the server was busy with other asks
LONGEST_KNOCK_S = 2.0  # longest wait between two tries of a server that is not there
SLOW_S = 4.0  # seconds without any answer after which it is said
QUIET_S = 10.0  # seconds between two lines that say that the server fails
LINGER_S = 5.0  # wait for data after the end of a streamed answer
TAIL_S = 0.05  # wait for a stream to close after it sent its end
LONGEST_ERROR = 64 * 2**10  # bytes of an error's body that are read
Api = Literal["chat", "responses", "completions"]
FORMATS: dict[str, type[WireFormat]] = {"chat": ChatCompletions, "responses": Responses}
MOST_CUTS = 40  # times that the limit of an answer is lowered because prompt and answer do not fit
LIMIT_FIELDS = ("max_tokens", "max_completion_tokens")
OWN_FIELDS = {
    "model": "name it as the agent's model (--agent openai:MODEL)",
    **dict.fromkeys(("messages", "input", "instructions", "prompt"), "the conversation is the episode's"),
    "tools": "they are the environment's",
    **dict.fromkeys((*LIMIT_FIELDS, "max_output_tokens"), "pass max_tokens (--max-tokens)"),
    "temperature": "pass temperature (--temperature)",
    "seed": "each question has a seed of its own",
    "stream": "pass stream=True (--stream)",
}
"""Fields that no `extra` may set, as the agent sets them, and what to do in place of that."""


class OpenAIAgent(BaseAgent):
    """An agent that sends asks to an endpoint: chat completions, Responses, or plain completions.

    Outcomes caused by the model are scored: text, calls, a refusal, reasoning until the token limit, an empty
    answer that it sampled, a prompt that is too long (``finish="context"``). Outcomes caused by the server
    get no verdict once the retries are used up: rate limits, server errors, broken connections, answers that
    are empty, cut, filtered or malformed. `gem.agents.outcomes.OUTCOMES` is the table.

    If no ask can be answered (a refused key, an unknown model, no server for `grace_s` of the `Endpoint`),
    every ask raises AgentUnavailable.

    The number of parallel requests adapts to the endpoint, up to its `concurrency` (`gem.agents.pace`): fewer
    after a 429, a 503 or an overload message, and none until a Retry-After has passed. If the endpoint
    answers no request for its `silence_s`, the agent sends one plain question; if that fails too, every ask
    raises AgentUnavailable.

    `Reply.policy_s` counts the requests and the waits between them, without the wait for one of the
    `concurrency` places. `Ask.policy_s` limits the same time.
    """

    keeps_time = True
    callers: ClassVar[Mapping[str, str]] = {
        "temperature": "temperature=None, which sends none",
        "return_token_ids": "token_ids=False",
        "logprobs": "token_ids=False",
    }
    """Fields that the caller has set, and what to pass where a server refuses them."""
    harmless: ClassVar[tuple[str, ...]] = ("seed", "stream_options")
    """Fields that are left out where a server's error names them, for good if it answers without them."""
    askers: ClassVar[frozenset[str]] = frozenset()
    """Fields that the asker sets: once the server has answered anyone, refusing one fails that ask alone."""

    def __init__(
        self,
        model: str,
        *,
        endpoint: Endpoint | None = None,
        temperature: float | None = 1.0,
        max_tokens: int | None = None,
        token_ids: bool = False,
        extra: Mapping[str, Any] | None = None,
        api: Api = "chat",
        renderer: Renderer | None = None,
        tools: Literal["native", "text"] = "native",
        stream: bool = False,
        send_reasoning: bool | str = False,
        max_tokens_field: Literal["auto", "max_tokens", "max_completion_tokens"] = "auto",
        **connection: Any,
    ) -> None:
        """Set up the agent; nothing is sent yet.

        Args:
            model: the server's name for the model.
            endpoint: the server, and how requests are sent and tried again.
            temperature: sampling temperature; None sends none, for models that refuse it.
            max_tokens: token limit of an answer; `Limits.turn_tokens` and the rest of `Limits.tokens` lower
                it. It is also lowered where prompt and answer together are too long for the server.
            token_ids: request token ids and log probabilities in vLLM's form (``return_token_ids``); a server
                that does not know the field may refuse it.
            extra: further fields of the request, such as ``{"top_p": 0.9}``; none of `OWN_FIELDS`. Those of
                tools (``tool_choice``, ``parallel_tool_calls``) are sent with tools alone.
            api: the protocol.
            renderer: makes the prompt from a conversation for ``completions``, such as ChatTemplateRenderer;
                without it the prompt is a transcript (`gem.agents.completions`).
            tools: ``native`` sends an environment's tools as schemas; with ``text``, calls are text.
            stream: read the answer as a stream. If the stream has no end, the ask is sent again. So it is
                after any answer without a finish reason, once an answer of the server has named one.
            send_reasoning: send the model its reasoning of earlier turns, as ``reasoning_content`` or in the
                named field.
            max_tokens_field: the name of the limit in chat completions; ``auto`` starts with ``max_tokens``
                and changes when the server refuses that.
            **connection: fields of the `Endpoint`, such as `base_url` and `timeout_s`.

        Raises:
            BadArgument: for a value that is not accepted.
        """
        _among("api", api, get_args(Api))
        if renderer is not None and api != "completions":
            raise BadArgument(f"a renderer goes with api='completions'; the server renders for {api!r}.")
        _among("tools", tools, ("native", "text"))
        _among("max_tokens_field", max_tokens_field, ("auto", *LIMIT_FIELDS))
        for name, instead in OWN_FIELDS.items():
            if name in (extra or ()):
                raise BadArgument(f"extra has {name!r}, which the agent sets itself: {instead}.")
        self.model = model
        self.endpoint = replace(endpoint or Endpoint(), **connection)
        self._format = Completions(renderer) if api == "completions" else FORMATS[api]()
        self._vocabulary = None if renderer is None else renderer.vocab_hash
        self.url = _check_url(self.endpoint.place(self._format.path))
        self._recorded_address = self.endpoint.hide_secrets(
            str(httpx.URL(plain_address(self.endpoint.place(""))))
        )
        self.temperature, self.max_tokens = temperature, max_tokens
        self.token_ids, self.extra = token_ids, dict(extra or {})
        self.api, self.tools = api, tools
        self._options = {"api": api, "tools": tools, "stream": stream, "send_reasoning": send_reasoning}
        self._auto = max_tokens_field == "auto"
        self._settings = Settings(
            model,
            temperature,
            max_tokens,
            "max_tokens" if self._auto else max_tokens_field,
            tools == "native",
            stream,
            send_reasoning if isinstance(send_reasoning, str) else "reasoning_content" * send_reasoning,
            token_ids,
            self.extra,
        )
        self._names_ends: set[bool] = set()  # whether answers that had a finish reason had calls
        self._taken: set[str] = set()  # fields of requests that were answered
        self._clients: Clients | None = None
        self._places: AbstractAsyncContextManager[None] | None = None
        self._death = _Death()
        self._away_since: float | None = None
        self._reported_at = float("-inf")
        self._pace = Pace(self.endpoint.concurrency)
        self._half_open = asyncio.Lock()

    async def ask(self, ask: Ask) -> Reply:
        """Answer one ask.

        Raises:
            NoVerdict: when the server gives no usable answer (AgentUnavailable: if it can answer no ask).
            OutOfTime: when it takes longer than `ask.policy_s`.
        """
        # Always in the agent's own loop: all callers then share the same connections.
        return await asyncio.wrap_future(self.loop.submit(self._answer(ask)))

    @property
    def info(self) -> AgentInfo:
        """See BaseAgent.info."""
        usual = {"api": "chat", "tools": "native", "stream": False, "send_reasoning": False}
        options = {key: value for key, value in self._options.items() if value != usual[key]}
        settings = {"temperature": self.temperature, "max_tokens": self.max_tokens, **options, **self.extra}
        return AgentInfo(type(self).__name__, self.model, settings, self._vocabulary, self._recorded_address)

    def close(self) -> None:
        """Close the connections. Calling it twice is harmless."""
        clients, self._clients, self._places = self._clients, None, None
        self._pace.asks = 0  # what is cut off here may never come to its end
        if clients is not None and clients.own:
            self.loop.run(clients.aclose())
        super().close()

    # -- one ask

    def _places_for(self, pace: Pace) -> AbstractAsyncContextManager[None]:
        """Return the context manager that limits requests."""
        return pace

    def _begin(self) -> tuple[Clients, AbstractAsyncContextManager[None]]:
        """Return the clients and the limiter of requests, made in the agent's loop at the first request."""
        if self._clients is None or self._places is None or not self._clients.own:
            endpoint = self.endpoint
            timeout = httpx.Timeout(endpoint.timeout_s, connect=endpoint.connect_s, pool=None)  # of each wait
            self._clients = Clients(timeout)
            self._pace, self._half_open = (
                Pace(endpoint.concurrency),
                asyncio.Lock(),
            )  # of the loop that runs now
            self._places = self._places_for(self._pace)
            self._death, self._away_since = _Death(), None
            asyncio.get_running_loop().call_later(SLOW_S, self._report_slowness, self._pace)
        return self._clients, self._places

    async def _answer(self, ask: Ask) -> Reply:
        clients, places = self._begin()
        asking = Asking(
            ask,
            self._settings.limit(ask),
            _Clock(ask.policy_s),
            self._death,
            form=self._settings.form,
        )
        pace = self._pace
        pace.asks += 1
        try:
            answer = await self._try_until_answered(clients, places, asking)
            return replace(answer, usage=asking.count_discarded(answer.usage))
        except NoVerdict as error:
            if counters := asking.count_discarded({}):
                error.usage = {self.model: counters}
            raise
        finally:
            pace.asks -= 1

    async def _try_until_answered(
        self, clients: Clients, places: AbstractAsyncContextManager[None], asking: Asking
    ) -> Reply:
        ask, attempts = asking.ask, asking.ask.attempts or Attempts(0.0, None)
        jitter = seeded(ask.seed, "backoff")
        attempts.until = None
        while True:
            async with places:
                asking.death.check()
                attempts.until = perf_counter()
                response = await self._send(clients, asking)
            self._note(asking, response)
            if self._adapts(asking, response):
                continue
            verdict = judge(response).verdict
            if blames_length(response):
                verdict, response = await self._check_length(clients, asking, response)
            if verdict is Verdict.SCORED:
                return self._reply(asking, response)
            asking.discarded.update(response.usage)
            attempts.until, attempts.why = None, self._describe(response.why)
            if self._tells_again(asking, response, verdict):
                continue
            if verdict is Verdict.UNAVAILABLE and await self._others_are_answered(clients, asking, response):
                verdict = Verdict.REFUSED
            if verdict is Verdict.RETRIED and await self._is_gone(clients, asking):
                why = f"{response.why} (no request was answered for {self.endpoint.silence_s:g} s)"
                raise self._unavailable(asking, why)
            wait_s = self._wait(asking, response, verdict, 0.5 + jitter.random())
            if attempts.last:
                raise self._refusal(response.why, False)
            self._pace.retries += 1
            self._report_trouble(response)
            async with asking.clock.running():
                await asking.death.sleep(wait_s)

    async def _send(self, clients: Clients, asking: Asking) -> Said:
        asking.began = self._pace.send(asking)
        try:
            async with asking.clock.running():
                return await self._try(clients, asking)
        finally:
            self._pace.end(asking)

    def _tells_again(self, asking: Asking, response: Said, verdict: Verdict) -> bool:
        """Switch the conversation to its next form, if the server refuses this one; return whether it did.

        A server error counts as a refusal once the retries are used up.
        """
        last = verdict is Verdict.REFUSED or (
            verdict is Verdict.RETRIED and asking.tries >= self.endpoint.retries
        )
        if not last or response.status not in (400, 413, 422, 500):
            return False
        messages = asking.ask.messages
        before = retold(messages, asking.form)
        for form in Form:
            if form > asking.form and retold(messages, form) != before:
                asking.form, asking.refused = form, response.status < 500
                asking.left_out.clear()
                return True
        return False

    async def _others_are_answered(self, clients: Clients, asking: Asking, response: Said) -> bool:
        """Return whether only this conversation is refused: a plain question is still answered.

        A model's text may make a firewall, or a server that quotes the text, answer as if the key were
        invalid. If no request was answered before, it is the key.
        """
        if not (self._taken or asking.ask.sampling) or response.status not in (400, 403, 404, 422):
            return False
        return (await self._ask_plainly(clients, asking))[0] is Verdict.SCORED

    async def _check_length(self, clients: Clients, asking: Asking, response: Said) -> tuple[Verdict, Said]:
        """Return the verdict on an ask that is too long for the server, as it says, and what it is about.

        It is scored, unless the server blames the length of a plain question with the same settings too: then
        it refuses a setting, or cannot load its model. One that is busy or gone at that question is asked
        again. If it refuses the question for another reason, that says nothing of the length.
        """
        verdict, plain = await self._ask_plainly(clients, asking, same=True)
        if blames_length(plain):
            return verdict, replace(plain, why=f"{plain.why} (to {PLAIN_QUESTION.text!r} too)")
        if verdict in (Verdict.SCORED, Verdict.REFUSED):
            return Verdict.SCORED, response
        return verdict, plain

    async def _ask_plainly(
        self, clients: Clients, asking: Asking, same: bool = False
    ) -> tuple[Verdict, Said]:
        """Ask the plain question of `ask_instead`; return the verdict, and the answer without its usage."""
        question = self.ask_instead(asking.ask, same)
        other = Asking(question, self._settings.limit(question), asking.clock, asking.death)
        assert self._places is not None
        while True:
            async with self._places:
                asking.death.check()
                response = await self._send(clients, other)
            asking.discarded.update(response.usage)
            if not self._adapts(other, response):
                break
        # too long it cannot be
        verdict = Verdict.UNAVAILABLE if blames_length(response) else judge(response).verdict
        if verdict is Verdict.SCORED:
            self._pace.note_answer()
        return verdict, replace(response, usage={})

    def ask_instead(self, ask: Ask, same: bool = False) -> Ask:
        """Return an ask with a plain question alone, which any model answers in `PLAIN_TOKENS`.

        It keeps the tools and the sampling settings of `ask`, if they are to be the `same`; else the model.
        """
        plain = replace(ask, messages=(PLAIN_QUESTION,), turn=0, held=(), fresh=1, max_tokens=PLAIN_TOKENS)
        kept = {name: value for name, value in (ask.sampling or {}).items() if name == "model"}
        return plain if same else replace(plain, tools=(), sampling=kept or None)

    async def _is_gone(self, clients: Clients, asking: Asking) -> bool:
        """Return whether the server answers no request any more: one ask sends a plain question, others wait.

        If that is answered, the server only failed on these conversations.
        """
        async with self._half_open:
            asking.death.check()
            silent = self._pace.silent(self.endpoint.silence_s)
            return silent and (await self._ask_plainly(clients, asking))[0] is not Verdict.SCORED

    def _wait(self, asking: Asking, response: Said, verdict: Verdict, jitter: float) -> float:
        """Return the seconds to wait before the next try; raise if there is no next try."""
        if verdict is Verdict.UNAVAILABLE:
            raise self._unavailable(asking, f"{response.why}{self._advice(response)}")
        if verdict is Verdict.GRACE:
            now = perf_counter()
            if now - (self._away_since or now) >= self.endpoint.grace_s:
                raise self._unavailable(
                    asking, f"{response.why} (for {self.endpoint.grace_s:g} s; is the server running?)"
                )
            asking.knocks += 1
            if (
                asking.away_s(now) < self.endpoint.grace_s
            ):  # others may be answered meanwhile: then tries count
                return self._backoff(asking.knocks, LONGEST_KNOCK_S) * jitter
        if self._was_for_others(asking, response):
            asking.spared += 1
        else:
            asking.tries += 1
        if verdict is Verdict.REFUSED or asking.tries > self.endpoint.retries:
            times = f"(tried {asking.tries} time{'s' * (asking.tries > 1)})"
            raise self._refusal(f"{response.why} {times}", verdict is Verdict.REFUSED)
        tries = asking.tries + asking.spared
        return min(response.retry_after_s or self._backoff(tries) * jitter, LONGEST_WAIT_S)

    def _was_for_others(self, asking: Asking, response: Said) -> bool:
        """Return whether the server was too busy for an ask because it answered other asks."""
        spared = response.status in (429, 503, 529) and self._pace.answered_at > asking.before
        asking.before = asking.began
        return spared and asking.spared < MOST_SPARED

    def _backoff(self, tries: int, longest_s: float = LONGEST_WAIT_S) -> float:
        return min(self.endpoint.backoff_s * 2.0 ** min(tries - 1, 20), longest_s)

    def _refusal(self, why: str, refused: bool = True) -> NoVerdict:
        """Return the error of an ask that the server answers no further."""
        error = NoVerdict(self._describe(why))
        error.refused = refused
        return error

    def _unavailable(self, asking: Asking, why: str) -> AgentUnavailable:
        """Make every ask in flight raise AgentUnavailable, and return the error; later asks try again."""
        if self._death is asking.death:
            self._death = _Death()
        return asking.death.of(self._describe(why))

    def _note(self, asking: Asking, response: Said) -> None:
        """Record whether the server is reachable, and how busy it is."""
        if response.fault is Fault.UNREACHED:
            self._away_since = self._away_since or perf_counter()
        elif response.fault is None:
            self._away_since = None
        if response.end is not None:
            self._names_ends.add(bool(response.calls))
        if is_overloaded(response):
            self._pace.busy(asking.began, min(response.retry_after_s, LONGEST_WAIT_S))
        verdict = judge(response).verdict
        if verdict is Verdict.SCORED:
            self._pace.note_answer(asking.began)
        elif verdict is Verdict.RETRIED:
            self._pace.note_failure()

    def _report_trouble(self, response: Said) -> None:
        """Report that the server fails and is tried again, unless it answers others or this was just said.

        A server that is not there, or that asks for a longer wait, answers no others.
        """
        now, pause_s = perf_counter(), response.retry_after_s
        silent = response.fault is Fault.UNREACHED or pause_s >= SLOW_S
        if now - max(self._reported_at, float("-inf") if silent else self._pace.answered_at) >= QUIET_S:
            self._reported_at = now
            why = response.why + f"; the server asks to wait {pause_s:g} s" * (pause_s >= SLOW_S)
            report_trouble(self._describe(f"{why}; trying again ({self._pace.describe()})"))

    def _report_slowness(self, pace: Pace) -> None:
        """Report that no request has been answered yet, and that none has failed."""
        if pace.asks and not pace.retries and pace.took_s is None:
            report_trouble(self._describe(f"has not answered for {SLOW_S:g} s ({pace.asks} asks wait)"))

    def _reply(self, asking: Asking, response: Said) -> Reply:
        ask = asking.ask
        if not response.complaint:
            self._taken |= asking.sent
            self._keep_form(asking)
            self._keep_left_out(asking)
        answer = reply(self._hide_secrets(response))
        if retold(ask.messages, asking.form) != ask.messages:
            answer = replace(answer, extra={**answer.extra, "history": asking.form.name.lower()})
        if answer.tool_calls and not self._settings.tools:
            answer = replace(answer, text=calls.write(answer.text, answer.tool_calls), tool_calls=())
        if again := asking.tries + asking.knocks + asking.spared:
            answer = replace(answer, extra={**answer.extra, "retries": again})
        return replace(_within(answer, ask.context), policy_s=asking.clock.spent_s)

    def _hide_secrets(self, response: Said) -> Said:
        """Return a response without what the server repeats of the key beside its answer."""
        hide, names = self.endpoint.hide_secrets, [*response.usage]
        own = {name: text for name, text in response.extra.items() if type(text) is str}
        beside = "\n".join((response.complaint, response.why, response.end or "", *names, *own.values()))
        if hide(beside) == beside:
            return response
        return replace(
            response,
            complaint=hide(response.complaint),
            why=hide(response.why),
            end=response.end and hide(response.end),
            usage={hide(name): count for name, count in response.usage.items()},
            extra={**response.extra, **{name: hide(text) for name, text in own.items()}},
        )

    def _keep_form(self, asking: Asking) -> None:
        if asking.form is Form.FILLED and asking.refused and self._settings.form is Form.AS_IT_IS:
            self._settings.form = Form.FILLED
            why = f"{self._address} refuses messages without text; {EMPTY!r} is sent instead."
            warnings.warn(why, stacklevel=2)

    def _keep_left_out(self, asking: Asking) -> None:
        for name in sorted(asking.left_out - self._settings.left_out):
            self._settings.left_out.add(name)
            warnings.warn(f"{self._address} refuses {name!r}; it is left out.", stacklevel=2)

    # -- what the server refuses

    def _adapts(self, asking: Asking, response: Said) -> bool:
        """Change the part of a request that the server refuses; return whether to ask again.

        Raises:
            AgentUnavailable: when the caller has to change a setting.
        """
        if response.status < 400 and not response.failed:
            return False
        heard, settings = response.complaint, self._settings
        if judge(response).verdict is Verdict.SCORED:
            limit = shorter(heard, asking.limit) if too_long(heard, response.status) else None
            if limit is None or asking.cuts >= MOST_CUTS:
                return False
            asking.limit, asking.cuts = limit, asking.cuts + 1
            return True
        if response.status not in (400, 404, 422, 500, 501):
            return False
        fields = asking.sent - set(self.extra)
        # fields accepted before are not the cause, whatever the error says; the asker's are not the caller's
        new = fields - self._taken - set(asking.ask.sampling or ())
        if "tools" in new and refuses_tools(heard):
            if self._taken and "tools" in self.askers:
                raise self._refusal(response.why)
            raise self._unavailable(asking, f'{response.why}. It takes no tools; pass tools="text".')
        if self._taken:
            new -= self.askers
        if response.status not in (400, 422):
            return False
        if settings.limit_field in new and over_cap(heard):
            raise self._unavailable(asking, f"{response.why}. Set a smaller max_tokens (--max-tokens).")
        for name, instead in self.callers.items():
            if name in new and refuses(heard, name):
                raise self._unavailable(asking, f"{response.why}. Pass {instead}.")
        if "max_tokens" in new and self._auto and refuses(heard, "max_tokens"):
            settings.limit_field = "max_completion_tokens"
            return True
        for name in self.harmless:
            if (name in new and names(heard, name)) or (name in fields and refuses(heard, name)):
                asking.left_out.add(name)  # on trial: the error may quote the conversation
                return True
        return False

    def _advice(self, response: Said) -> str:
        """Return advice for an endpoint that answers no request."""
        if response.status in (401, 403) or (response.status != 404 and "key" in response.complaint.lower()):
            state = "is set" if os.environ.get(self.endpoint.api_key_env) else "is not set"
            return (
                f"; the key comes from the environment variable {self.endpoint.api_key_env}, which {state}."
            )
        if response.status == 404:
            return f"; the requested model is {self.model!r}."
        if response.status < 400:
            return "; pass the address that it redirects to as base_url."
        return ""

    def _describe(self, why: str) -> str:
        """Return an error's text without the keys that a server repeats."""
        return self.endpoint.hide_secrets(f"{self._address}{through_proxy(self.url)} {why}")

    @property
    def _address(self) -> str:
        """The address without its secrets."""
        return self.endpoint.hide_secrets(plain_address(self.url))

    # -- one request

    def _request_headers(self) -> httpx.Headers:
        headers = httpx.Headers({"Content-Type": "application/json", "Accept-Encoding": "gzip"})
        if key := self.endpoint.key:
            headers["Authorization"] = f"Bearer {key}"
        headers.update(self.endpoint.headers or {})
        return headers

    async def _try(self, clients: Clients, asking: Asking) -> Said:
        ask = replace(asking.ask, messages=retold(asking.ask.messages, asking.form))
        settings = replace(self._settings, left_out=self._settings.left_out | asking.left_out)
        request = self._format.request(ask, settings, asking.limit)
        asking.sent = set(request)
        # ASCII escapes, because an observation may hold lone surrogates, which have no UTF-8.
        body = json.dumps(request).encode("ascii")
        if not fits_a_header(self.endpoint.key):
            why = f"was not asked: {self.endpoint.api_key_env} has characters that a header cannot have."
            raise self._unavailable(asking, why)
        tail, headers = Tail(), self._request_headers()
        try:
            async with (
                asyncio.timeout(self.endpoint.timeout_s),
                clients.one() as client,
                client.stream(
                    "POST", self.url, content=body, headers=headers, extensions={"trace": tail}
                ) as response,
            ):
                tail.response = response
                answer = await self._read(response, asking.ask)
            return (
                answer if answer.status != 413 else replace(answer, own_words=own_share(ask.messages) > 0.5)
            )
        except TimeoutError:
            return Said(f"did not answer within {self.endpoint.timeout_s:g} s", Fault.SLOW)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            return Said(f"did not answer: {type(error).__name__}: {_name_cause(error)}", Fault.UNREACHED)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as error:
            return Said(f"did not answer: {type(error).__name__}: {error}", Fault.BROKEN)

    async def _read(self, response: httpx.Response, ask: Ask) -> Said:
        if not 200 <= response.status_code < 300:
            return await _read_error(response)
        pieces: list[bytes] = []
        packed = response.headers.get("Content-Encoding")
        try:
            if response.headers.get("Content-Type", "").startswith("text/event-stream"):
                unpacked = Unpacked(packed, LONGEST_STREAM)
                return await self._read_stream(response, unpacked, ask)
            unpacked = Unpacked(packed)
            async for piece in response.aiter_raw():
                pieces.append(unpacked.feed(piece))
            unpacked.end()
            return self._check_end(self._format.read(json.loads(b"".join(pieces)), ask))
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            excerpt = b"".join(pieces)[:EXCERPT].decode("utf-8", "replace")
            why = f"did not answer with {self._format.name} ({str(error)[:80]!r}) but with {excerpt!r}"
            return Said(why, Fault.UNREADABLE)

    async def _read_stream(self, response: httpx.Response, unpacked: Unpacked, ask: Ask) -> Said:
        """Read events until the stream closes; the token counts after the answer's end may be missing."""
        collector, events, pieces = self._format.collector(), Events(), response.aiter_raw()
        why = "cut its answer short"
        try:
            while not collector.closed:
                async with asyncio.timeout(LINGER_S if collector.ended else None):
                    piece = await anext(pieces, None)
                for name, data in events.end() if piece is None else events.feed(unpacked.feed(piece)):
                    _take(collector, name, data)
                if piece is None:
                    break
            else:  # a stream read to its end leaves a connection that the next request can use
                with suppress(TimeoutError):
                    async with asyncio.timeout(TAIL_S):
                        await anext(pieces, None)
        except (httpx.HTTPError, OSError) as error:
            why += f": {type(error).__name__}"
        except ValueError:
            if not collector.ended:
                raise
        if collector.ended:
            return self._format.read(collector.body(), ask)
        return (
            self._check_end(self._format.read(collector.body(), ask))
            if collector.closed
            else Said(why, Fault.CUT)
        )

    def _check_end(self, answer: Said) -> Said:
        """Return an answer without a finish reason as one that was cut, if the server gave others one.

        Whole calls are not, unless it gave other calls one: some servers name the ends of texts alone.
        """
        if answer.end is not None or answer.failed:
            return answer
        whole = answer.calls and all(
            sent_arguments(call.arguments) == call.arguments for call in answer.calls
        )
        if True in self._names_ends if whole else self._names_ends:
            return Said("cut its answer short: it has no finish reason", Fault.CUT, usage=answer.usage)
        return replace(answer, extra={**answer.extra, "finish_reason": NO_END})


@dataclass(slots=True, eq=False)
class Asking:
    """The state of an ask in flight: its token limit, the fields sent last, and the number of tries.

    `left_out`: fields that it is sent without, as an error named them, beside those of the settings.
    `began`: when it was sent last, `before`: when the time before. `spared`: tries that do not count.
    `discarded`: token counts of the answers that were not usable.
    """

    ask: Ask
    limit: int | None
    clock: _Clock
    death: _Death
    sent: set[str] = field(default_factory=set)
    left_out: set[str] = field(default_factory=set)
    tries: int = 0
    cuts: int = 0
    knocks: int = 0
    form: Form = Form.AS_IT_IS
    refused: bool = False
    since: float | None = None
    began: float = 0.0
    before: float = float("inf")
    spared: int = 0
    discarded: Counter[str] = field(default_factory=Counter)

    def count_discarded(self, usage: Mapping[str, int]) -> dict[str, int]:
        """Return the token counts of an answer, with those of the discarded answers under their own names."""
        own = {name: count for name, count in usage.items() if not name.startswith(DISCARDED)}
        return own | {DISCARDED + name: count for name, count in self.discarded.items()}

    def away_s(self, now: float) -> float:
        """Return the seconds since this ask first found the server unreachable."""
        self.since = now if self.since is None else self.since
        return now - self.since


class _Clock:
    """A counter of the seconds that the agent itself takes for an ask."""

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = limit_s
        self.spent_s = 0.0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Count while in the block; raise OutOfTime once the limit is reached."""
        began = perf_counter()
        left_s = None if self._limit_s is None else max(0.0, self._limit_s - self.spent_s)
        try:
            async with asyncio.timeout(left_s) as deadline:
                yield
        except TimeoutError as error:
            if deadline.expired():
                raise OutOfTime(
                    f"the agent took longer than the {self._limit_s:.3g} s left of its time limit."
                ) from error
            raise
        finally:
            self.spent_s += perf_counter() - began


class _Death:
    """The reason why no ask can be answered, for the asks in flight. Later asks try again."""

    def __init__(self) -> None:
        self._why = ""
        self._came = asyncio.Event()

    def of(self, why: str) -> AgentUnavailable:
        """Set the reason for all asks in flight; return it as an error."""
        if not self._why:
            self._why = why
            self._came.set()
        return AgentUnavailable(self._why)

    def check(self) -> None:
        """Raise the error, if there is one."""
        if self._why:
            raise AgentUnavailable(self._why)

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`, or until an error is set."""
        try:
            async with asyncio.timeout(seconds):
                await self._came.wait()
        except TimeoutError:
            return
        self.check()


def _name_cause(error: BaseException) -> str:
    """Return why there is no connection; httpx says of a refused one only that all attempts failed."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return "connection refused"
        cause = cause.__cause__ or cause.__context__
    return str(error)


async def _read_error(response: httpx.Response) -> Said:
    body = b""
    try:
        unpacked = Unpacked(response.headers.get("Content-Encoding"), LONGEST_ERROR)
        async for piece in response.aiter_raw():
            body += unpacked.feed(piece)
    except (httpx.HTTPError, ValueError, OSError):
        pass  # the status says enough
    complaint = complaint_of(body)
    status = response.status_code
    return Said(
        f"answered {status}{redirect_of(response)}: {complaint[:EXCERPT]!r}",
        status=status,
        complaint=complaint,
        retry_after_s=_retry_after(response.headers.get("Retry-After")),
        text=_read_call(body),
    )


def redirect_of(response: httpx.Response) -> str:
    """Return the address that a redirect names, for an error: no redirect is followed."""
    moved = 300 <= response.status_code < 400
    return f" to {plain_address(response.headers.get('Location', ''))[:EXCERPT]!r}" if moved else ""


def _read_call(body: bytes) -> str | None:
    try:
        return written_call(json.loads(body))
    except (ValueError, RecursionError):
        return None


def _take(collector: Collector, name: bytes, data: bytes) -> None:
    """Add an event's data; that of an event called error is one, with or without the key."""
    if data.strip() == b"[DONE]":
        collector.closed = True
    elif name == b"error":
        try:
            read = json.loads(data)
        except ValueError:
            read = data.decode("utf-8", "replace")
        collector.take(read if isinstance(read, dict) and "error" in read else {"error": read or "error"})
    elif data.strip():
        collector.take(json.loads(data))


def _among(name: str, value: str, accepted: Any) -> None:
    check_argument(name, value, value in accepted, ", ".join(map(repr, accepted)))


def _check_url(url: str) -> str:
    try:
        if httpx.URL(url).scheme in ("http", "https") and httpx.URL(url).host:
            return url
    except httpx.InvalidURL:
        pass
    raise BadArgument(
        f"base_url makes {hide_address(url)!r}; accepted: an address such as http://127.0.0.1:8000/v1."
    )


def _within(answer: Reply, context: int | None) -> Reply:
    """Apply the context limit to an answer; only the server can count tokens, after the answer."""
    used = answer.usage.get("prompt_tokens", 0) + answer.usage.get("completion_tokens", 0)
    if context is None or used <= context or answer.finish == "context":
        return answer
    return Reply("", finish="context", usage=answer.usage, extra=answer.extra)


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
    except (ValueError, TypeError, OverflowError):
        return 0.0
