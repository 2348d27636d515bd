"""TokenServerAgent: sample answers from a vLLM or SGLang server, for training.

The agent renders the prompt, sends token ids, and gets token ids with log probabilities back. The server
loads new weights from a folder that it shares with the learner, and each reply says which weights sampled it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Literal

from gem.agents.answer_shape import AnswerShape
from gem.agents.connections import Clients
from gem.agents.endpoint import Endpoint
from gem.agents.openai import Asking, OpenAIAgent, redirect_of
from gem.agents.outcomes import EXCERPT, Said, complaint_of
from gem.agents.pace import Pace
from gem.agents.token_formats import FORMATS, TokenFormat
from gem.content import ToolCall
from gem.errors import AgentUnavailable, BadArgument, GemError, NoVerdict, check_argument, needs_extra
from gem.proxies import through_proxy
from gem.record import AgentInfo, Ask, Reply
from gem.tokens.renderer import Renderer, render
from gem.tokens.sampled_calls import take_calls

with needs_extra("TokenServerAgent", "httpx", "openai"):
    import httpx


class TokenServerAgent(OpenAIAgent):
    """An agent that samples from a vLLM or SGLang server by token ids.

    The distribution is ``softmax(logits / temperature)``, independent of the model's default sampling
    settings. Log probabilities belong to that distribution, as with HuggingFaceAgent; when greedy, they
    are 0. If the server returns others, the first answer raises AgentUnavailable; its message has
    the server option to set.

    Outcomes are those of OpenAIAgent: what the model causes is scored, what the server causes gets no verdict
    after the retries. An answer without usable ids and log probabilities counts as a server failure.

    `Reply.policy_version` is the version that the server reports for the weights that sampled the answer (the
    lowest, if there were several); for servers that do not report it, the version published last.

    ::

        renderer = ChatTemplateRenderer(AutoTokenizer.from_pretrained(name))
        agent = TokenServerAgent("http://127.0.0.1:8000", renderer, weights_folder="/shared/weights")
    """

    callers: ClassVar[Mapping[str, str]] = {}
    harmless: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        url: str,
        renderer: Renderer,
        protocol: Literal["vllm", "sglang"] = "vllm",
        *,
        endpoint: Endpoint | None = None,
        model: str = "",
        temperature: float = 1.0,
        max_tokens: int = 1024,
        context: int | None = None,
        tools: Literal["native", "text"] | None = None,
        prefix: str = "",
        stop: Sequence[str] = (),
        vocabulary: int | None = None,
        weights_folder: str | os.PathLike[str] | None = None,
        load_s: float = 600.0,
        **connection: Any,
    ) -> None:
        """Set up the agent; nothing is sent yet.

        Args:
            url: the server's address, such as ``http://127.0.0.1:8000``.
            renderer: turns messages into the ids that are sent.
            protocol: the protocol of the server.
            endpoint: how requests are sent and tried again; its `base_url` is not used. By default the key is
                in TOKEN_SERVER_API_KEY.
            model: vLLM's name for the model; empty: the one that it serves. SGLang serves one.
            temperature: sampling temperature; 0 is greedy.
            max_tokens: token limit of an answer; the limits of an ask lower it.
            context: limit on tokens of prompt and answer together; None: the server's own limit.
            tools: see HuggingFaceAgent; None: ``native`` where the template supports tools and no prefix is
                set, else ``text``.
            prefix: text at the start of every answer, not sampled; see HuggingFaceAgent.
            stop: texts that end an answer, with the token that completes one; see HuggingFaceAgent.
            vocabulary: number of valid ids; None: the size of the renderer's tokenizer. A model with a padded
                embedding can sample a few higher ids, which are refused.
            weights_folder: where `publish` writes weights; the server reads the same path.
            load_s: seconds for the server to take new weights.
            **connection: fields of the `Endpoint`.

        Raises:
            BadArgument: for a value that is not accepted; for native tools where the template has none.
        """
        check_argument("protocol", protocol, protocol in FORMATS, ", ".join(map(repr, FORMATS)))
        self._shape = shape = AnswerShape(renderer, tools, prefix, stop)
        if not temperature >= 0 or max_tokens < 1:
            raise BadArgument(f"got {temperature=}, {max_tokens=}; accepted: 0 or more, 1 or more.")
        place, mark, query = url.partition("?")
        base_url = place.rstrip("/").removesuffix("/v1") + mark + query
        super().__init__(
            model,
            endpoint=endpoint or Endpoint(api_key_env="TOKEN_SERVER_API_KEY"),
            temperature=temperature,
            max_tokens=max_tokens,
            max_tokens_field="max_tokens",
            **{**connection, "base_url": base_url},
        )
        self._root = self._recorded_address
        self.renderer, self.protocol, self.context = renderer, protocol, context
        self.tools, self.prefix, self.stop = shape.tools, prefix, shape.stop
        self.prefix_ids = shape.prefix_ids
        self._tokens: TokenFormat = FORMATS[protocol](
            renderer, _size(renderer) if vocabulary is None else vocabulary, temperature == 0, self.stop
        )
        self._format, self.url = self._tokens, self.endpoint.place(self._tokens.path)
        self.weights_folder = None if weights_folder is None else Path(weights_folder).resolve()
        self._load_timeout = httpx.Timeout(load_s, connect=self.endpoint.connect_s)
        self._written: Path | None = None  # the last folder written here that the server loaded
        self._doubt = ""  # why it is unknown which weights the server has
        self._gate = _Gate(self._pace)
        self._checking = asyncio.Lock()
        self._checked = temperature in (0, 1)  # there the tempered distribution and the other are the same

    @property
    def info(self) -> AgentInfo:
        """See BaseAgent.info."""
        settings = {
            "protocol": self.protocol,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            **self._shape.settings,
        }
        return replace(super().info, sampling=settings, vocabulary=self.renderer.vocab_hash)

    async def ask(self, ask: Ask) -> Reply:
        """Answer one ask; see OpenAIAgent.ask.

        Raises:
            AgentUnavailable: also after a publish that failed, until one succeeds.
        """
        native = self.tools == "native"
        prompt = (*render(self.renderer, ask, tools=native), *self.prefix_ids)
        room = [limit for limit in (self.max_tokens, ask.max_tokens) if limit is not None]
        room += [limit - len(prompt) for limit in (self.context, ask.context) if limit is not None]
        if min(room) < 1:
            return Reply("", prompt, finish="context", policy_version=self.policy_version, policy_s=0.0)
        # Only ids are sent, so a refused conversation cannot be sent in another form.
        sent = replace(ask, messages=(), fresh=0, tools=(), held=prompt, max_tokens=min(room), context=None)
        answer = await super().ask(sent)
        text, calls = answer.text, tuple[ToolCall, ...]()
        if self.prefix_ids:
            text = self.renderer.decode((*self.prefix_ids, *(answer.token_ids or ())))
        if native and ask.tools:
            text, calls = take_calls(text, ask.turn)
        return replace(answer, text=text, tool_calls=calls)

    def ask_instead(self, ask: Ask, same: bool = False) -> Ask:
        """See OpenAIAgent.ask_instead; in place of an ask that is rendered it is rendered too."""
        plain = super().ask_instead(ask, same)
        if ask.messages:
            return plain
        return replace(plain, messages=(), fresh=0, tools=(), held=self.renderer.prompt(plain.messages))

    def temper(self, temperature: float) -> None:
        """Set the sampling temperature of all later answers; 0 is greedy."""
        self.temperature = self._settings.temperature = temperature
        self._tokens.greedy = temperature == 0
        self._checked = temperature in (0, 1)

    # -- weights

    def publish(self, version: int, weights: Any = None) -> None:
        """Set the policy version of the server's weights, and load `weights` there if given.

        It waits for running requests; new asks wait until the server has the weights. When this returns, the
        server has confirmed them.

        Args:
            version: 0 or more; the server uses it as the label of its weights.
            weights: a transformers model, of which LoRA adapters are merged, or a state dict with the names
                of the model's checkpoint: these are written to `weights_folder`. Or a folder of safetensors
                that the server can read. None: the server already has the weights.

        Raises:
            BadArgument: for a version below 0, another type of weights, or no `weights_folder` to write to.
            StoreError: when the weights cannot be written; the server then keeps its old ones.
            AgentUnavailable: when the server does not load them. Its weights are then unknown, so all asks
                raise the same error until a publish succeeds.
        """
        if type(version) is not int or version < 0:
            raise BadArgument(f"version is {version!r}; accepted: a whole number, 0 or more.")
        written = None
        if isinstance(weights, str | os.PathLike):
            folder = str(Path(weights).resolve())
        elif weights is not None:
            written = self._write(version, weights)
            folder = str(written)
        self.loop.run(self._publish(version, None if weights is None else folder))
        if written is not None:
            if self._written is not None:
                shutil.rmtree(self._written, ignore_errors=True)
            self._written = written

    def _write(self, version: int, weights: Any) -> Path:
        """Write weights to a new folder: servers may still map the files of an old path."""
        if self.weights_folder is None:
            raise BadArgument("publish() got weights; it needs weights_folder, which the server can read.")
        from gem.agents.model_folder import write_model  # which loads torch

        places = (self.weights_folder / f"version-{version}-{number}" for number in count())
        folder = next(place for place in places if not place.exists())
        try:
            write_model(folder, weights)
        except GemError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return folder

    async def _publish(self, version: int, folder: str | None) -> None:
        self._begin()  # makes the gate
        async with self._gate.close():
            self._doubt = f"{self._root} did not finish loading version {version}; publish again."
            try:
                if folder is None:
                    await self._tokens.relabel(self._post, str(version))
                else:
                    await self._tokens.load(self._post, folder, str(version))
            except NoVerdict as error:
                self._doubt = f"{self._root} did not load version {version}: {error}. Publish again."
                if isinstance(error.__cause__, httpx.ConnectError):
                    where = f"{self._root}{through_proxy(self.url)}"
                    self._doubt = f"no server answers at {where}; start it there, or name another."
                raise AgentUnavailable(self._doubt) from error
            self._doubt = ""
            self.policy_version = version

    async def _post(
        self, path: str, body: Mapping[str, Any] | None = None, optional: bool = False
    ) -> dict[str, Any]:
        """Send a command; see `token_formats.Post`."""
        clients, _ = self._begin()
        content, headers = json.dumps(body or {}).encode("ascii"), self._request_headers()
        try:
            async with clients.one() as client:
                response = await client.post(
                    self.endpoint.place(path), content=content, headers=headers, timeout=self._load_timeout
                )
        except (httpx.HTTPError, OSError) as error:
            at = through_proxy(self.url)
            why = f"{path}{at} was not answered: {type(error).__name__} {error}"
            raise NoVerdict(self.endpoint.hide_secrets(why)) from error
        if response.status_code == 404 and optional:
            return {}
        if response.status_code != 200:
            complaint = complaint_of(response.content)[:EXCERPT]
            hint = f" ({self._tokens.missing})" if response.status_code == 404 else ""
            why = f"{path} answered {response.status_code}{redirect_of(response)}: {complaint!r}{hint}"
            raise NoVerdict(self.endpoint.hide_secrets(why))
        try:
            read = response.json() if response.content else {}
        except (ValueError, RecursionError) as error:
            why = f"{path} did not answer with JSON: {response.text[:EXCERPT]!r}"
            raise NoVerdict(self.endpoint.hide_secrets(why)) from error
        return read if isinstance(read, dict) else {}

    def logprobs(self, ids: Sequence[int]) -> tuple[float, ...]:
        """Return the server's log probability of each id but the first, given the ids before it.

        They are at temperature 1. A trainer compares them with its own, to see which weights the server has.

        Raises:
            NoVerdict: when the server does not answer with them.
        """
        ask = Ask("", "", 0, (), seed=0, held=tuple(ids))
        data = self.loop.run(self._post(self._tokens.path, self._tokens.scoring(ask, self._settings)))
        try:
            return self._tokens.scores(data, ask.held)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            why = f"did not answer with the log probabilities of a prompt: {error}"
            raise NoVerdict(f"{self._address} {why}") from error

    # -- one ask

    def _places_for(self, pace: Pace) -> AbstractAsyncContextManager[None]:
        self._gate, self._checking = _Gate(pace), asyncio.Lock()  # of the loop that runs now
        return self._gate

    async def _answer(self, ask: Ask) -> Reply:
        answer = await super()._answer(ask)
        if not self._checked and answer.token_ids:
            async with self._checking:
                if not self._checked:
                    await self._check(ask)
        return answer

    async def _check(self, ask: Ask) -> None:
        """Check that log probabilities belong to the distribution that is sampled from."""
        async with self._gate:
            data = await self._post(self._tokens.path, self._tokens.probe(ask, self._settings))
        try:
            tempered = self._tokens.is_tempered(data)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise NoVerdict(
                f"{self._address} did not answer the test of its log probabilities: {error}"
            ) from error
        if not tempered:
            raise AgentUnavailable(
                f"{self._address} returns log probabilities of another distribution than the one that it "
                f"samples from at temperature {self.temperature}: {self._tokens.advice}, "
                "or pass temperature=1."
            )
        self._checked = True

    async def _try(self, clients: Clients, asking: Asking) -> Said:
        if self._doubt:
            raise AgentUnavailable(self._doubt)
        response = await super()._try(clients, asking)
        if not response.token_ids:
            return response
        labels = response.extra["weight_versions"]
        spans = {"weight_versions": list(labels)} if len(labels) > 1 else {}
        return replace(response, extra={"policy_version": self._version(labels), **spans})

    def _version(self, labels: tuple[str, ...]) -> int | None:
        """Return the version of the weights that sampled an answer."""
        if not labels:
            return self.policy_version
        if all(label.isascii() and label.isdecimal() and len(label) < 19 for label in labels):
            return min(map(int, labels))
        if self.policy_version is None:
            return None  # what the server started with
        raise AgentUnavailable(
            f"{self._root} answers with weights labelled {', '.join(labels)}, but version "
            f"{self.policy_version} was published: was the server restarted? Publish again."
        )

    def _reply(self, asking: Asking, response: Said) -> Reply:
        answer = super()._reply(asking, response)
        extra = dict(answer.extra)
        version = extra.pop("policy_version", self.policy_version)
        return replace(answer, prompt_ids=asking.ask.held, policy_version=version, extra=extra)


class _Gate:
    """A limiter of requests that can be closed; it uses Pace while it is open."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._closing = asyncio.Lock()
        self._open, self._idle = asyncio.Event(), asyncio.Event()
        self._open.set()
        self._idle.set()
        self._inside = 0

    async def __aenter__(self) -> None:
        await self._pace.__aenter__()
        try:
            while not self._open.is_set():
                await self._open.wait()
        except BaseException:
            await self._pace.__aexit__()
            raise
        self._inside += 1
        self._idle.clear()

    async def __aexit__(self, *exc: object) -> None:
        self._inside -= 1
        if not self._inside:
            self._idle.set()
        await self._pace.__aexit__()

    @asynccontextmanager
    async def close(self) -> AsyncIterator[None]:
        """Wait for running requests; inside the block, no request starts."""
        async with self._closing:
            self._open.clear()
            try:
                await self._idle.wait()
                yield
            finally:
                self._open.set()


def _size(renderer: Renderer) -> int:
    """Return the vocabulary size of the renderer; the largest possible one where it is unknown."""
    vocabulary: Any = getattr(renderer, "tokenizer", renderer)
    return len(vocabulary) if hasattr(vocabulary, "__len__") else 2**31
