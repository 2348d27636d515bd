"""The wrapper factory: make wrappers by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gem.core import Env
from gem.errors import BadArgument, UnknownEnv, did_you_mean
from gem.wrappers.episode_tracking_wrapper import EpisodeTrackingWrapper
from gem.wrappers.observation_wrapper import ObservationWrapper, Tokenizer
from gem.wrappers.transform import SignedReward

if TYPE_CHECKING:
    from gem.tools.base_tool import BaseTool

WrapperFn = Callable[..., Env]


def _python_tool(env: Env, **kwargs: Any) -> Env:
    """Give `env` a Python tool; keywords go to the tool or to the wrapper by name."""
    from gem.tools.python_code_tool import PythonCodeTool
    from gem.tools.tool_env_wrapper import ToolEnvWrapper

    last_line = kwargs.pop("keep_error_last_line", False)
    return ToolEnvWrapper(env, [PythonCodeTool(keep_error_last_line=last_line)], **kwargs)


def _search_tool(env: Env, corpus: str | None = None, **kwargs: Any) -> Env:
    """Give `env` a search over a corpus, by default the one that the environment variable SEARCH_URL names.

    The corpus ``world`` is the built-in one, which the questions of `qa:Facts` are about.
    """
    from gem.tools.search_tool import URL
    from gem.tools.tool_env_wrapper import ToolEnvWrapper

    return ToolEnvWrapper(env, [_search_over(corpus or os.environ.get(URL))], **kwargs)


@cache
def _search_over(url: str | None) -> BaseTool:
    """Return the tool that all environments of this process share: its index is built once."""
    from gem.tools.search_tool import SearchTool

    return SearchTool(search_url=url)


@dataclass(frozen=True, slots=True)
class _Named:
    """A function that makes a wrapper, and stores the wrapper's factory name and keywords in it."""

    name: str
    fn: WrapperFn

    def __call__(self, env: Env, *args: Any, **kwargs: Any) -> Env:
        wrapper = self.fn(env, *args, **kwargs)
        if not args:
            wrapper._made_by = self.name, kwargs
        return wrapper


INTERMEDIATE_REWARD = 0.05
"""Reward of a successful tool call without ``no_int_reward``: ten of them are half the reward of success."""

_FNS: Mapping[str, WrapperFn] = {
    "concat": ObservationWrapper,
    "concat_with_action": partial(ObservationWrapper, include_action=True),
    "concat_chat": partial(ObservationWrapper, include_chat_template=True),
    "concat_chat_on_reset": partial(
        ObservationWrapper, include_action=True, apply_chat_template_on_reset=True
    ),
    "episode_tracking": EpisodeTrackingWrapper,
    "signed_reward": SignedReward,
    "python_tool": partial(_python_tool, tool_success_reward=INTERMEDIATE_REWARD),
    "python_tool_no_int_reward": _python_tool,
    "python_tool_no_int_reward_last_line_error": partial(_python_tool, keep_error_last_line=True),
    "search_tool": partial(_search_tool, tool_success_reward=INTERMEDIATE_REWARD),
    "search_tool_no_int_reward": _search_tool,
    "world_search_tool": partial(_search_tool, corpus="world", tool_success_reward=INTERMEDIATE_REWARD),
}

WRAPPER_FACTORY: Mapping[str, WrapperFn] = MappingProxyType(
    {name: _Named(name, fn) for name, fn in _FNS.items()}
)
"""The function of each name: called with an environment, it returns a new wrapper around it."""

TOOLS = ("python", "search", "world_search")
"""The names of tools that come with gem."""


def tool_wrappers(tools: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the wrappers that give an environment these tools, the innermost first.

    A function with ``@tool``, named as ``file.py:function``, stands for itself: see `gem.registry`.

    Raises:
        BadArgument: for a tool that is not known.
    """
    tools = tuple(tools)
    for tool in tools:
        if tool not in TOOLS and not (isinstance(tool, str) and ":" in tool):
            raise BadArgument(
                f"tools has {tool!r}; accepted: {', '.join(TOOLS)}, or a function with @gem.tools.tool as "
                "path/file.py:function or module:function."
            )
    return tuple(f"{tool}_tool" if tool in TOOLS else tool for tool in tools)


TOKENIZER_REQUIRED = ("concat_chat", "concat_chat_on_reset")
"""The names whose wrapper takes ``tokenizer=``."""


def wrapper_fn(name: str) -> WrapperFn:
    """Return the function that makes the wrapper with this name.

    Raises:
        UnknownEnv: for an unknown name.
    """
    if name not in WRAPPER_FACTORY:
        known = ", ".join(WRAPPER_FACTORY)
        raise UnknownEnv(f"no wrapper {name!r}.{did_you_mean(name, WRAPPER_FACTORY)} Known: {known}.")
    return WRAPPER_FACTORY[name]


def get_wrapper_fns(wrappers: str, tokenizer: Tokenizer | None = None) -> list[WrapperFn]:
    """Return the wrapper functions for a comma-separated list of names, innermost first; may be empty.

    Raises:
        UnknownEnv: for an unknown name. BadArgument: when a name needs a tokenizer and there is none.
    """
    fns: list[WrapperFn] = []
    for name in filter(None, (part.strip() for part in wrappers.split(","))):
        fn = wrapper_fn(name)
        if name in TOKENIZER_REQUIRED:
            if tokenizer is None:
                raise BadArgument(f"wrapper {name!r} needs tokenizer=, one that has apply_chat_template.")
            fn = partial(fn, tokenizer=tokenizer)
        fns.append(fn)
    return fns
