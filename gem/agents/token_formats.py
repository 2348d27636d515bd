"""The wire formats of vLLM and SGLang for token ids, log probabilities, and new weights.

Written from the source of vLLM 0.33.0 (``entrypoints/openai/completion``, ``entrypoints/rl``,
``entrypoints/serve/dev``) and SGLang 0.5.23 (``srt/entrypoints/http_server.py``, ``srt/managers``).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from gem.agents.answer_shape import stops_of
from gem.agents.outcomes import SERVER_ENDS, Said, name_ends
from gem.agents.wire import Collector, NoResponse, Settings, as_object, error_of, read_usage, word_in
from gem.agents.wire import token_ids as ids_in
from gem.errors import NoVerdict
from gem.record import Ask
from gem.tokens.renderer import Renderer

FLOOR = -9999.0
"""The number that vLLM writes for a log probability of minus infinity, which JSON lacks."""

_ROUNDING = 1e-3  # how far above 0 rounding may take a log probability
_FLATTENING = 1e6  # a temperature at which every distribution is even
_TOPS = 5


@dataclass(frozen=True, slots=True)
class Sampled:
    """The parts of a response: ids, their log probabilities, the finish reason, and the labels of weights.

    `prompt_ids`: the prompt as the server read it; `prompt_tokens`: its length; None: not in the response.
    """

    ids: tuple[int, ...]
    logprobs: Sequence[Any]
    end: str | None
    weights: tuple[str, ...] = ()
    prompt_ids: tuple[int, ...] | None = None
    prompt_tokens: int | None = None
    why: str = ""


class Post(Protocol):
    """A function that sends a command to the server and returns its JSON object, {} where there is none."""

    async def __call__(
        self, path: str, body: Mapping[str, Any] | None = None, optional: bool = False
    ) -> dict[str, Any]:
        """Send the command; with `optional`, a server may lack the address.

        Raises:
            NoVerdict: when the server does not answer with 200.
        """


class TokenFormat(ABC):
    """The base of both formats: the prompt is `Ask.held`, and every response is checked."""

    path: str
    name: str
    advice: str
    """Advice to make the server return log probabilities of the distribution that it samples from."""

    missing: str
    """Advice for a server that does not know a command."""

    def __init__(self, renderer: Renderer, vocabulary: int, greedy: bool, stop: tuple[str, ...] = ()) -> None:
        """Accept ids below `vocabulary`; answers end with the renderer's stop ids, or a text in `stop`."""
        self.renderer, self.vocabulary, self.greedy, self.stop = renderer, vocabulary, greedy, stop

    def stops(self, ask: Ask) -> list[str]:
        """Return the texts that end an answer to an ask."""
        return [*self.stop, *stops_of(ask)]

    @abstractmethod
    def request(self, ask: Ask, settings: Settings, limit: int | None) -> dict[str, Any]:
        """Return the request for an ask; only the temperature changes the distribution."""

    @abstractmethod
    def read_sample(self, data: dict[str, Any]) -> Sampled:
        """Return the parts of a response.

        Raises:
            LookupError, TypeError, ValueError: for data that is not a response of the protocol.
        """

    @abstractmethod
    def probe(self, ask: Ask, settings: Settings) -> dict[str, Any]:
        """Return a request for one token that shows which distribution the log probabilities belong to."""

    @abstractmethod
    def is_tempered(self, data: Any) -> bool:
        """Return whether a response to `probe` shows log probabilities of the sampled distribution.

        Raises:
            LookupError, TypeError, ValueError: for data that is not a response to the probe.
        """

    @abstractmethod
    def scoring(self, ask: Ask, settings: Settings) -> dict[str, Any]:
        """Return a request for the log probabilities of the prompt `ask.held`, at temperature 1."""

    @abstractmethod
    def scores(self, data: Any, prompt: Sequence[int]) -> tuple[float, ...]:
        """Return the log probabilities in a response to `scoring`, of each id of `prompt` but the first.

        Raises:
            LookupError, TypeError, ValueError: for data that is not a response to the request.
        """

    @abstractmethod
    async def load(self, post: Post, folder: str, label: str) -> None:
        """Make the server load the safetensors in `folder` and label its weights `label`."""

    @abstractmethod
    async def relabel(self, post: Post, label: str) -> None:
        """Make the server label its current weights `label`."""

    def collector(self) -> Collector:
        """Raise NoResponse: these formats are never streamed."""
        raise NoResponse("a stream, where none was asked for")

    def read(self, data: Any, ask: Ask) -> Said:
        """Read a response to the prompt `ask.held`.

        Raises:
            LookupError, TypeError, ValueError: for data that is not a response of the protocol, and for a
                response that cannot be what the model sampled: another prompt, unknown ids, missing or
                invalid log probabilities.
        """
        body = as_object(data)
        if error := error_of(body):
            return error
        sample = self.read_sample(body)
        if name_ends(sample.end) & SERVER_ENDS:
            return Said(f"ended the answer itself: {sample.why or sample.end!r}", end=sample.end)
        self._check(sample, ask)
        ids, stopped = self._cut(sample.ids, self.stops(ask))
        # When greedy, the sampled distribution has all its mass on one token.
        logprobs = tuple(
            0.0 if self.greedy else min(0.0, float(value)) for value in sample.logprobs[: len(ids)]
        )
        ended = stopped or ids[-1] in self.renderer.stop_ids
        usage = {"prompt_tokens": len(ask.held), "completion_tokens": len(ids)}
        return Said(
            text=self.renderer.decode(ids),
            end="stop" if ended else sample.end,
            usage=read_usage(body.get("usage")) | usage,
            prompt_ids=ask.held,
            token_ids=ids,
            logprobs=logprobs,
            extra={"weight_versions": sample.weights},
        )

    def _cut(self, ids: tuple[int, ...], stops: Sequence[str]) -> tuple[tuple[int, ...], bool]:
        """Return the ids up to the one that completes a text of `stops`, and whether there is one."""

        def has_stop(count: int) -> bool:
            text = self.renderer.decode(ids[:count])
            return any(stop in text for stop in stops)

        if not stops or not has_stop(len(ids)):
            return ids, False
        return ids[: bisect_left(range(len(ids)), True, key=has_stop)], True

    def _check(self, sample: Sampled, ask: Ask) -> None:
        if sample.prompt_ids is not None and sample.prompt_ids != tuple(ask.held):
            raise NoResponse("the prompt is another than the ids that were sent")
        if sample.prompt_tokens is not None and sample.prompt_tokens != len(ask.held):
            raise NoResponse(f"{len(ask.held)} ids were sent, the prompt has {sample.prompt_tokens}")
        if not sample.ids:
            raise NoResponse("no token ids")
        if ask.max_tokens is not None and len(sample.ids) > ask.max_tokens:
            raise NoResponse(f"{len(sample.ids)} ids, where {ask.max_tokens} were asked for")
        if max(sample.ids) >= self.vocabulary:
            raise NoResponse(f"id {max(sample.ids)} is outside the vocabulary of {self.vocabulary}")
        if len(sample.logprobs) != len(sample.ids):
            raise NoResponse(f"{len(sample.logprobs)} log probabilities for {len(sample.ids)} ids")
        for value in sample.logprobs:
            if type(value) not in (int, float) or not FLOOR < value <= _ROUNDING:  # NaN is neither
                raise NoResponse(f"{value!r} as a log probability")
        if sample.end is None:
            raise NoResponse("no finish reason")


class VLLM(TokenFormat):
    """vLLM's completions, with ``prompt`` as a list of ids.

    ``logprobs: 0`` requests only those of the sampled tokens. Token ids come twice: as ``token_ids`` (from
    ``return_token_ids``) and as ``token_id:7`` (from ``return_tokens_as_token_ids``, which older versions
    have too). ``weight_versions`` says which weights sampled which tokens; older versions ignore the field.
    """

    path = "/v1/completions"
    name = "a completion with token ids"
    advice = "start vLLM with --logprobs-mode processed_logprobs"
    missing = "vLLM knows it when it is started with VLLM_SERVER_DEV_MODE=1"

    def request(self, ask: Ask, settings: Settings, limit: int | None) -> dict[str, Any]:
        """See TokenFormat.request; these fields override the model's generation_config.json."""
        request: dict[str, Any] = {
            "prompt": list(ask.held),
            "max_tokens": limit,
            "seed": ask.seed,
            "temperature": settings.temperature,
            "top_p": 1.0,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "stop_token_ids": sorted(self.renderer.stop_ids),
            "skip_special_tokens": False,
            "logprobs": 0,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "return_weight_versions": True,
        }
        if stops := self.stops(ask):
            request |= {"stop": stops, "include_stop_str_in_output": True}
        return {"model": settings.model, **request} if settings.model else request

    def read_sample(self, data: dict[str, Any]) -> Sampled:
        """See TokenFormat.read_sample."""
        (choice,) = data["choices"]
        logprobs = choice["logprobs"]
        values = logprobs["token_logprobs"]
        ids, prompt = choice.get("token_ids"), choice.get("prompt_token_ids")
        return Sampled(
            _ids(ids if ids is not None else [_named_id(token) for token in logprobs["tokens"]]),
            values,
            word_in(choice["finish_reason"]),
            _labels(choice.get("weight_versions")),
            prompt_ids=None if prompt is None else _ids(prompt),
        )

    def probe(self, ask: Ask, settings: Settings) -> dict[str, Any]:
        """See TokenFormat.probe; only one token is allowed, so its sampled probability must be 1."""
        return self.request(ask, settings, 1) | {"allowed_token_ids": [0]}

    def is_tempered(self, data: Any) -> bool:
        """See TokenFormat.is_tempered."""
        (value,) = self.read_sample(as_object(data)).logprobs
        return abs(float(value)) < _ROUNDING

    def scoring(self, ask: Ask, settings: Settings) -> dict[str, Any]:
        """See TokenFormat.scoring."""
        return self.request(ask, replace(settings, temperature=1.0), 1) | {"prompt_logprobs": 0}

    def scores(self, data: Any, prompt: Sequence[int]) -> tuple[float, ...]:
        """See TokenFormat.scores."""
        (choice,) = as_object(data)["choices"]
        entries = choice["prompt_logprobs"][1:]
        return tuple(
            float(as_object(entry[str(token)])["logprob"])
            for entry, token in zip(entries, prompt[1:], strict=True)
        )

    async def load(self, post: Post, folder: str, label: str) -> None:
        """See TokenFormat.load; if a step fails, the server stays paused: its weights may be mixed."""
        await post("/pause?mode=wait", optional=True)
        await post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": folder}})
        if (await post("/reset_prefix_cache")).get("success") is False:
            raise NoVerdict("/reset_prefix_cache could not drop what the old weights computed")
        await self.relabel(post, label)
        await post("/resume", optional=True)

    async def relabel(self, post: Post, label: str) -> None:
        """See TokenFormat.relabel; older versions have no labels."""
        await post("/update_weight_version", {"new_version": label}, optional=True)


class SGLang(TokenFormat):
    """SGLang's native ``/generate`` with ``input_ids``.

    ``output_token_logprobs`` has ``[log probability, id, text or null]`` for each token, of the distribution
    after the temperature. Seeds have an effect only under ``--enable-deterministic-inference``.
    """

    path = "/generate"
    name = "a generation with token ids"
    advice = "start SGLang without SGLANG_RETURN_ORIGINAL_LOGPROB"
    missing = "a newer SGLang knows it"

    def request(self, ask: Ask, settings: Settings, limit: int | None) -> dict[str, Any]:
        """See TokenFormat.request."""
        sampling: dict[str, Any] = {
            "max_new_tokens": limit,
            "sampling_seed": ask.seed,
            "temperature": settings.temperature,
            "top_p": 1.0,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "stop_token_ids": sorted(self.renderer.stop_ids),
            "skip_special_tokens": False,
        }
        if stops := self.stops(ask):
            sampling |= {"stop": stops, "no_stop_trim": True}
        return {
            "input_ids": list(ask.held),
            "sampling_params": sampling,
            "return_logprob": True,
            "stream": False,
        }

    def read_sample(self, data: dict[str, Any]) -> Sampled:
        """See TokenFormat.read_sample."""
        meta = as_object(data["meta_info"])
        end = as_object(meta["finish_reason"])
        if end["type"] == "abort":
            return Sampled((), (), "abort", why=str(end.get("message"))[:200])
        entries = [(entry[0], entry[1]) for entry in meta["output_token_logprobs"]]
        ids = _ids([entry[1] for entry in entries])
        if data.get("output_ids") is not None and _ids(data["output_ids"]) != ids:
            raise NoResponse("output_ids and output_token_logprobs are of different tokens")
        spans = meta.get("weight_versions")
        label = meta.get("weight_version")
        return Sampled(
            ids,
            [entry[0] for entry in entries],
            word_in(end["type"]),
            _labels(spans) or (() if label is None else (str(label),)),
            prompt_tokens=meta.get("prompt_tokens"),
        )

    def probe(self, ask: Ask, settings: Settings) -> dict[str, Any]:
        """See TokenFormat.probe; at such a temperature, all tokens are equally likely."""
        flat = replace(settings, temperature=_FLATTENING)
        return self.request(ask, flat, 1) | {"top_logprobs_num": _TOPS}

    def is_tempered(self, data: Any) -> bool:
        """See TokenFormat.is_tempered."""
        tops = [float(entry[0]) for entry in as_object(data)["meta_info"]["output_top_logprobs"][0]]
        if len(tops) < 2 or not all(math.isfinite(each) for each in tops):
            raise NoResponse(f"{_TOPS} log probabilities were asked for, {tops} came")
        return max(tops) - min(tops) < _ROUNDING

    def scoring(self, ask: Ask, settings: Settings) -> dict[str, Any]:
        """See TokenFormat.scoring."""
        return self.request(ask, replace(settings, temperature=1.0), 1) | {"logprob_start_len": 0}

    def scores(self, data: Any, prompt: Sequence[int]) -> tuple[float, ...]:
        """See TokenFormat.scores."""
        entries = as_object(data)["meta_info"]["input_token_logprobs"]
        if _ids([entry[1] for entry in entries]) != tuple(prompt):
            raise NoResponse("the scored prompt is another than the ids that were sent")
        return tuple(float(entry[0]) for entry in entries[1:])

    async def load(self, post: Post, folder: str, label: str) -> None:
        """See TokenFormat.load; the server itself waits for its running requests."""
        answer = await post(
            "/update_weights_from_disk",
            {"model_path": folder, "weight_version": label, "flush_cache": True, "abort_all_requests": False},
        )
        _check_success("/update_weights_from_disk", answer)

    async def relabel(self, post: Post, label: str) -> None:
        """See TokenFormat.relabel."""
        answer = await post("/update_weight_version", {"new_version": label, "abort_all_requests": False})
        _check_success("/update_weight_version", answer)


FORMATS: dict[str, type[TokenFormat]] = {"vllm": VLLM, "sglang": SGLang}


def _check_success(path: str, answer: Mapping[str, Any]) -> None:
    if answer.get("success") is not True:
        raise NoVerdict(f"{path} answered {str(answer)[:300]!r}")


def _ids(values: Any) -> tuple[int, ...]:
    ids = ids_in(values)
    if len(ids) != len(values):
        raise NoResponse("invalid token ids")
    return ids


def _named_id(token: str) -> int:
    kind, _, number = token.partition(":")
    if kind != "token_id":
        raise NoResponse("tokens that are not ids")
    return int(number)


def _labels(spans: Any) -> tuple[str, ...]:
    """Return the labels of the weights that sampled an answer, from its spans."""
    return tuple(dict.fromkeys(str(as_object(span)["version"]) for span in spans or ()))
