"""Agents by name, for command lines and suites."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from gem import models
from gem.agent_names import AGENTS, AgentName
from gem.agents.endpoint import Endpoint, check_key
from gem.errors import BadArgument, check_argument, check_least, check_seconds, did_you_mean, text_of_error
from gem.hiding import hide_address, hide_credentials
from gem.naming import FORMS, is_fixed, is_path, load_named
from gem.plugins import declares, load
from gem.record import Agent, AgentInfo, Episode

NAMES = ", ".join(agent.form for agent in AGENTS.values())
"""The names that `named_agent` accepts, for messages; those of `gem.models` are accepted too."""

REQUESTS = 64
"""Default limit of requests in flight to an endpoint."""

LOCAL_TOKENS = 1024
"""Default token limit of a local model's answer."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The settings of an agent with a model; agents without a model ignore them.

    For every model: `temperature` (0 is greedy; None is 1, or a training run's own; "none" sends none to an
    endpoint), `max_tokens` (of one answer), and `tool_calls` (native: tools are sent as schemas; text:
    calls are text). For an endpoint: `api` is chat, responses or completions, `template` the model whose
    chat template makes the prompts of completions, `api_key_env` the variable that holds the key,
    `concurrency` the most requests in flight, `timeout_s` the seconds for one answer, `send_reasoning`
    whether the model gets its reasoning of earlier turns, `stream` whether answers are streamed, `extra`
    further fields of each request. `device` is the device of a local model. For an agent program: `model`
    is the model that it calls (a name, or an agent), `program_s` the seconds of an episode,
    `program_shows` what it sees of this machine beside itself, `program_prints` whether what it prints is
    its answer, `program_price` says when an episode has cost what it may cost.
    """

    temperature: float | Literal["none"] | None = None
    max_tokens: int | None = None
    api: str = "chat"
    template: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    concurrency: int | None = None
    timeout_s: float = 600.0
    tool_calls: Literal["native", "text", ""] = ""
    send_reasoning: bool = False
    stream: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    model: str | Agent | None = None
    program_s: float = 600.0
    program_shows: tuple[str, ...] = ()
    program_prints: bool = False
    program_price: Callable[[Episode], str] | None = None

    @property
    def plain_temperature(self) -> float:
        """The temperature; 1 where it is not a number."""
        return self.temperature if isinstance(self.temperature, int | float) else 1.0

    def __post_init__(self) -> None:
        """Refuse values that no agent accepts."""
        if not 0 <= self.plain_temperature < math.inf:  # NaN too
            raise BadArgument(f"temperature is {self.temperature}; accepted: 0 (greedy) or more.")
        check_argument(
            "tool_calls", self.tool_calls, self.tool_calls in ("native", "text", ""), "'native', 'text'"
        )
        check_least("max_tokens", self.max_tokens)
        check_least("concurrency", self.concurrency)
        check_seconds("timeout", self.timeout_s)
        check_seconds("program_s", self.program_s)
        if self.template is not None and self.api != "completions":
            raise BadArgument(
                "a template goes with the API 'completions'; for other APIs the server renders."
            )


@dataclass(frozen=True, slots=True)
class AgentByName:
    """An agent that is made on the cluster node where it plays, with the keys and models of that node."""

    name: str
    settings: AgentSettings = field(default_factory=AgentSettings)

    def __post_init__(self) -> None:
        """Refuse a name that no agent has."""
        if not is_named(self.name):
            _refuse(self.name)

    @property
    def info(self) -> AgentInfo:
        """The agent's name, and its model if an endpoint has it."""
        endpoint = _ENDPOINT.fullmatch(self.name)
        return AgentInfo(hide_credentials(self.name), None if endpoint is None else endpoint[1])

    def make(self) -> Agent:
        """Make the agent.

        Raises:
            BadArgument, MissingExtra: see `named_agent`.
        """
        return make_agent(self.name, self.settings)


_ENDPOINT = re.compile(r"openai:(.+?)(?:@((?i:https?)://[^/].*))?", re.DOTALL)
_MISWRITTEN = re.compile(r"@$|@[^@/]*:\d|@localhost\b|@\S+/v1/?$|:/|https?//", re.IGNORECASE)
"""What a model's name has where the address behind it was not read as one."""
_FILE = re.compile(r"[^@:]+\.py(@[0-9a-f]{12})?:.+", re.DOTALL)
_MODULE = re.compile(r"[a-zA-Z_][\w.]*:[a-zA-Z_][\w.]*")


def without_address(name: str) -> str:
    """Return ``openai:MODEL`` for ``openai:MODEL@BASE_URL``, and any other name as it is."""
    endpoint = _ENDPOINT.fullmatch(name)
    return name if endpoint is None else f"openai:{endpoint[1]}"


def is_named(name: str) -> bool:
    """Return whether a name has the form of one that `named_agent` knows."""
    forms = _FILE.fullmatch(name) or _MODULE.fullmatch(name)
    return bool(forms) or _find_agent(name) is not None or name in models.KNOWN


def _find_agent(name: str) -> AgentName | None:
    """Return the row of `AGENTS` for a name; None where there is none, or nothing behind its colon."""
    prefix, colon, text = name.partition(":")
    agent = AGENTS.get(prefix)
    if agent is None:
        return None
    return agent if (text if ":" in agent.form else not colon) else None


def used_settings(name: str) -> frozenset[str]:
    """Return the fields of `AgentSettings` that have an effect on the agent with that name."""
    if (agent := _find_agent(name)) is not None:
        return agent.uses
    if name in models.KNOWN:
        return AGENTS["hf"].uses
    return frozenset() if is_named(name) else frozenset(("temperature",))  # the folder of a training run


def suggest_agent(name: str) -> str:
    """Return the hint of an error for an unknown name: the nearest name, if one is near."""
    return did_you_mean(name, (*(each for each in AGENTS if each == AGENTS[each].form), *models.KNOWN))


def make_agent(name: str, settings: AgentSettings | None = None) -> Agent:
    """Make the agent with that name.

    Raises:
        BadArgument: for an unknown name; else see `named_agent`. MissingExtra: see `named_agent`.
    """
    return named_agent(name, settings) or _refuse(name)


def _refuse(name: str) -> NoReturn:
    raise BadArgument(f"agent is {name!r}; accepted: {', '.join((NAMES, *models.KNOWN, FORMS))}.")


def named_agent(name: str, settings: AgentSettings | None = None) -> Agent | None:
    """Return the agent with that name; None for an unknown name.

    Names: those of `gem.agent_names.AGENTS`; a model of `gem.models.KNOWN`; ``file.py:NAME`` or
    ``module:NAME``, an agent, a class of agents, a function that makes one, or one that answers an ask.

    Raises:
        BadArgument: for invalid settings or an invalid address. MissingExtra: without the packages that the
            agent needs, or its model.
    """
    settings = settings or AgentSettings()
    if (agent := _find_agent(name)) is not None:
        make = load(agent.maker)
        text = name.partition(":")[2]
        made: Agent = make(text, settings) if text else make()
        return made
    if name in models.KNOWN:
        return make_local_agent(name, settings)
    return _of_user(name) if is_path(name) or is_fixed(name) or _MODULE.fullmatch(name) else None


def _of_user(name: str) -> Agent:
    """Return the agent of a file or module.

    Raises:
        BadArgument: when it holds no agent, and for an error of its constructor.
    """
    target = load_named(name, "agent")
    if _answers_asks(target):
        from gem.agents.scripted import FunctionAgent

        return FunctionAgent(target)
    try:
        agent = target() if isinstance(target, type) or not isinstance(target, Agent) else target
    except Exception as error:  # whatever a stranger's constructor raises
        raise BadArgument(
            f"agent {name!r} cannot be made: {type(error).__name__}: {text_of_error(error)}. A class of "
            "agents, or a function that makes one, is called without arguments; a function of one argument, "
            "the ask, is an agent itself."
        ) from error
    if not isinstance(agent, Agent):
        raise BadArgument(
            f"agent {name!r} is {agent!r:.80}; accepted: an object with the methods of gem.Agent."
        )
    return agent


def _answers_asks(target: object) -> bool:
    """Return whether an object is a function that needs one argument, the ask; no method of a class."""
    if not inspect.isfunction(target) or declares(target, "self"):
        return False
    takes = inspect.signature(target)
    for number in range(2):
        with suppress(TypeError):
            takes.bind(*range(number))
            return number == 1
    return False


def make_endpoint_agent(text: str, settings: AgentSettings, own: Callable[..., Agent] | None = None) -> Agent:
    """Make the agent of a model behind a server; `text` is MODEL or MODEL@BASE_URL.

    Args:
        text: the model and its address.
        settings: the settings of the agent.
        own: makes the agent where an address is given, in place of OpenAIAgent.

    Raises:
        BadArgument: for an address that is none, and a variable of a key that is not set.
    """
    from gem.agents.openai import OpenAIAgent

    name = f"openai:{text}"
    split = _ENDPOINT.fullmatch(name)
    if split is None or _MISWRITTEN.search(split[1]):  # else the key would go to the public server
        raise BadArgument(
            f"agent is {hide_address(name)!r}; accepted: openai:MODEL, or openai:MODEL@BASE_URL; a "
            "BASE_URL begins with http:// or https://."
        )
    check_key(settings.api_key_env)
    endpoint = Endpoint(
        split[2],
        settings.api_key_env,
        concurrency=REQUESTS if settings.concurrency is None else settings.concurrency,
        timeout_s=settings.timeout_s,
    )
    make: Callable[..., Agent] = OpenAIAgent if own is None or split[2] is None else own
    return make(
        split[1],
        endpoint=endpoint,
        temperature=None if settings.temperature == "none" else settings.plain_temperature,
        max_tokens=settings.max_tokens,
        tools=settings.tool_calls or "native",
        send_reasoning=settings.send_reasoning,
        stream=settings.stream,
        api=settings.api,
        renderer=None if settings.template is None else _renderer(settings.template),
        extra=settings.extra,
    )


def _renderer(model: str) -> Any:
    tokenizer = models.load_tokenizer(model)
    from gem.tokens.chat_template import ChatTemplateRenderer

    return ChatTemplateRenderer(tokenizer)


def make_local_agent(model: str, settings: AgentSettings) -> Agent:
    """Make the agent of a causal language model of transformers, by its name or folder.

    Raises:
        BadArgument, MissingExtra: see `gem.models.load_causal`.
    """
    loaded, tokenizer = models.load_causal(model, device=settings.device)
    from gem.agents.hugging_face import HuggingFaceAgent
    from gem.agents.sampling import digest_weights
    from gem.tokens.chat_template import ChatTemplateRenderer

    limit = LOCAL_TOKENS if settings.max_tokens is None else settings.max_tokens
    temperature = settings.plain_temperature
    renderer = ChatTemplateRenderer(tokenizer)
    agent = HuggingFaceAgent(loaded, renderer, temperature, limit, tools=settings.tool_calls or None)
    agent.weights = digest_weights(loaded)
    return agent
