"""BaseTool: a tool that an agent can call during an episode; `tool` makes one of a function."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Self, TypeVar, overload

from gem.content import Image, ToolSpec
from gem.errors import BadArgument, CannotFork, NoVerdict, ToolError, check_seconds, text_of_error
from gem.specs import Rebuildable, check_keywords
from gem.tools import calls, schema
from gem.tools.calls import ToolCall


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call: text for the agent, pictures, and whether the call failed.

    `error`: the call failed by the agent's fault. `failed`: the tool itself failed, and the agent may see
    that.
    """

    text: str
    error: bool = False
    images: Sequence[Image] = ()
    info: Mapping[str, Any] = field(default_factory=dict)
    failed: bool = False


class BaseTool(Rebuildable):
    """The base class of tools. Subclasses set `name` and define `call`.

    `call` takes the arguments by keyword and has a Google-style docstring: the tool's schema and its
    instruction are derived from them. A tool that keeps state between the calls of an episode sets ``live =
    True``. Then every environment gets its own tool from `spawn` and closes it. `reset` begins an episode.
    """

    name: str = ""
    """The name of the tool in JSON calls."""

    tag: str = ""
    """``<tag>...</tag>`` in an action is a call with the content as first argument; empty for no tag."""

    fences: Sequence[str] = ()
    """The languages of fenced code blocks that are calls with the content as first argument."""

    parameters: Mapping[str, Any] | None = None
    """A JSON Schema of the arguments; None to derive it from `call`."""

    description: str = ""
    """What the tool does; if empty, it is taken from the docstring of `call`."""

    result_tag: str = "output"
    """The tag around the result that the agent reads."""

    live: bool = False
    """Whether the tool keeps state between the calls of an episode."""

    parallel_safe: bool = False
    """Whether several calls of one turn may run at once."""

    def __init__(self, num_workers: int = 1) -> None:
        """Accept upstream's argument, which has no effect; see `parallel_safe`."""
        self.num_workers = num_workers

    def call(self, *args: Any, **kwargs: Any) -> ToolResult:
        """Carry out one call.

        Raises:
            ToolError: the agent's fault; the message becomes the observation.
            NoVerdict: the tool's own failure.
        """
        raise NotImplementedError(f"{type(self).__name__} must define call().")

    def reset(self, seed: int) -> None:
        """Begin an episode and drop the state of the last one."""

    def close(self) -> None:
        """Release the tool's resources; calling it twice is harmless."""

    def spawn(self) -> Self:
        """Return the tool for one environment: itself, or a new one with the same arguments if it is live."""
        if not self.live:
            return self
        args, kwargs = self._init
        return type(self)(*args, **kwargs)

    def fork(self) -> Self:
        """Return a copy in the same state; the tool itself if it keeps no state.

        Raises:
            CannotFork: when its state cannot be copied.
        """
        if not self.live:
            return self
        raise CannotFork(f"the tool {self.name!r} holds live state that cannot be copied.")

    def sample_call(self, question: str, rng: Random) -> str:
        """Return a call as random play makes it, well-formed and seldom of use; empty for none.

        `question` is the first observation, without the instructions of tools.
        """
        return ""

    def solving_call(self, question: str) -> str:
        """Return the call that a solver makes to answer `question`; empty where the tool would not help."""
        return ""

    def computing_call(self, expression: str) -> str:
        """Return the call that computes an arithmetic expression; empty where the tool computes none."""
        return ""

    def offered(self) -> Sequence[BaseTool]:
        """Return the tools that calls may name: itself, or the tools in a toolbox such as MCPTool."""
        return [self]

    # -- what follows from the above

    @property
    def tool_type(self) -> str:
        """The tool's name, under upstream's attribute name."""
        return self.name

    @tool_type.setter
    def tool_type(self, value: str) -> None:
        self.name = value

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The JSON Schema of the arguments."""
        if self.parameters is None:
            self.parameters = schema.parameters_of(self.call)
        return self.parameters

    @property
    def first_argument(self) -> str:
        """The argument that gets the content of a tag or of a fenced block."""
        return next(iter(self.arguments.get("properties", {})), "")

    def spec(self) -> ToolSpec:
        """Return the tool's name, description and schema, as offered to a model."""
        about = self.description or schema.description_of(self.call)
        return ToolSpec(self.name, about, self.arguments)

    def schema(self) -> dict[str, Any]:
        """Return the tool in the function format of OpenAI's chat API."""
        return openai_schema(self.spec())

    def instruction_string(self) -> str:
        """Return the text that tells the agent what the tool does and how to call it."""
        lines = [f"{self.name}: {self.spec().description}"]
        for name, rule in self.arguments.get("properties", {}).items():
            needed = "" if name in self.arguments.get("required", ()) else ", optional"
            lines.append(
                f"  {name} ({self._describe_type(rule)}{needed}) {rule.get('description', '')}".rstrip()
            )
        example = "".join(f'"{name}": ..., ' for name in self.arguments.get("required", ()))[:-2]
        call = f'<tool_call>{{"name": "{self.name}", "arguments": {{{example}}}}}</tool_call>'
        return "\n".join([*lines, f"Call it with {call}"])

    def _describe_type(self, rule: Mapping[str, Any]) -> str:
        return rule.get("type", "any") if "enum" not in rule else " | ".join(map(schema.spell, rule["enum"]))

    def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Check the arguments and make the call; the agent's errors become a result too.

        Raises:
            NoVerdict: when the tool itself fails, or returns something that is not a ToolResult.
        """
        wrong = schema.violation(arguments, self.arguments)
        if wrong:
            return ToolResult(f"{self.name}: {wrong}", error=True)
        try:
            return _check_result(self.name, self.call(**arguments))
        except ToolError as error:
            return ToolResult(str(error), error=True)

    def execute_action(self, action: str) -> tuple[bool, bool, str, str]:
        """Run the first call of this tool in `action`, as upstream's tools do.

        Returns:
            Whether there was a call, whether it failed, what the agent reads, and the action up to the
            call's end.
        """
        for match in calls.find(action, [self]):
            if match.call is None or match.call.name == self.name:
                done = ToolResult(match.error, True) if match.call is None else self.run(match.call.arguments)
                return True, done.error or done.failed, self.shown(done.text), action[: match.end]
        return False, True, "", ""

    def shown(self, text: str) -> str:
        """Return a result's text as the agent reads it."""
        return f"<{self.result_tag}>\n{text}\n</{self.result_tag}>"


def openai_schema(tool: ToolSpec) -> dict[str, Any]:
    """Return a tool in the function format of OpenAI's chat API and of chat templates."""
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.schema)}
    return {"type": "function", "function": function}


def _check_result(name: str, result: Any) -> ToolResult:
    """Return `result` if it is a ToolResult; the agent is not to blame for a broken tool."""
    if not (
        isinstance(result, ToolResult)
        and isinstance(result.text, str)
        and isinstance(result.error, bool)
        and isinstance(result.failed, bool)
        and isinstance(result.images, Sequence)
        and all(isinstance(image, Image) for image in result.images)
        and isinstance(result.info, Mapping)
    ):
        raise NoVerdict(f"the tool {name!r} returned {result!r:.80}, which is not a ToolResult.")
    return result


TIMEOUT_S = 30.0
"""Seconds that one call of a function may take, if it does not say."""

SETTINGS = "tool_settings"
"""The attribute in which `tool` keeps its settings, on the function itself."""

_F = TypeVar("_F", bound=Callable[..., Any])


class FunctionTool(BaseTool):
    """A Python function as a tool; the agent sees its name, signature and docstring.

    Arguments reach the function as its annotations say: an Enum's value as its member, an object as the
    dataclass. The return value is shown as text, lists, dicts and dataclasses as JSON; a ToolResult is used
    unchanged. An exception is shown to the agent as its error, except NoVerdict. An async function is run to
    its end, in a loop of its own.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str = "",
        tag: str = "",
        parallel_safe: bool = False,
        timeout: float | None = TIMEOUT_S,
    ) -> None:
        """Wrap `function`; `tag` lets ``<tag>...</tag>`` call it with the content as its first argument.

        Args:
            function: what the tool does.
            name: the tool's name, by default the function's.
            tag: an XML tag that calls it too.
            parallel_safe: whether several calls of one turn may run at once.
            timeout: seconds that a call may take; then the agent reads that it gave no answer. What runs on
                is left to itself, in its thread. None: no limit, and the call runs in the caller's thread.

        Raises:
            BadArgument: for a function without a name, a docstring or the types of its parameters, which the
                agent needs, and for a parameter that JSON cannot give.
        """
        super().__init__()
        check_seconds("timeout", timeout)
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise BadArgument(
                f"the tool {function.__name__} yields its results; accepted: a function that returns one."
            )
        self.name = name or getattr(function, "__name__", "")
        self.tag, self.parallel_safe, self.timeout = tag, parallel_safe, timeout
        self.function = function
        self.description = schema.description_of(function)
        if not self.name.isidentifier() or not self.description:
            raise BadArgument(
                f"a tool needs a name and a docstring; {function!r:.80} has the name {self.name!r} and "
                f"{'a' if schema.docstring(function) else 'no'} docstring."
            )
        self._types = schema.types_of(function, self.name)
        self.parameters = schema.parameters_of(function)

    def call(self, **arguments: Any) -> ToolResult:
        """Call the function."""
        given = schema.convert(arguments, self._types, self.name)
        try:
            result = self._within_deadline(given)
        except (NoVerdict, ToolError):
            raise
        except (
            Exception,
            SystemExit,
            asyncio.CancelledError,
        ) as error:  # a fault of the function does not end the episode
            raise ToolError(f"{type(error).__name__}: {text_of_error(error)}") from error
        return result if isinstance(result, ToolResult) else ToolResult(schema.write_result(result))

    def _describe_type(self, rule: Mapping[str, Any]) -> str:
        return schema.describe_type(rule)  # its parts too: a text agent is shown no schema

    def _within_deadline(self, given: Mapping[str, Any]) -> Any:
        """Call the function; in a thread, which alone can be left, where there is a deadline or a loop."""
        is_async = inspect.iscoroutinefunction(self.function)
        if self.timeout is None and not is_async:
            return self.function(**given)
        results: list[Any] = []
        errors: list[BaseException] = []

        def carry_out() -> None:
            try:
                answer = self.function(**given)
                results.append(asyncio.run(answer) if is_async else answer)
            except BaseException as error:
                errors.append(error)

        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(carry_out,), name=self.name, daemon=True)
        thread.start()
        thread.join(self.timeout)
        if errors:
            raise errors[0]
        if not results:
            raise ToolError(
                f"{self.name} gave no answer within {self.timeout:g} s; whether it did anything is unknown."
            )
        return results[0]


@overload
def tool(function: _F, /) -> _F: ...


@overload
def tool(
    *, name: str = "", tag: str = "", parallel_safe: bool = False, timeout: float | None = TIMEOUT_S
) -> Callable[[_F], _F]: ...


def tool(function: Any = None, /, **settings: Any) -> Any:
    """Make a function a tool that agents can call; it stays a function, which Python calls as before.

    The tool's description and arguments are those of its docstring and annotations: str, int, float, bool,
    list, dict, Literal, Enum, a dataclass, Optional of these, and defaults. Give it to ToolEnvWrapper, name
    it (``--tools file.py:lookup``), or make it a method of a WorkspaceEnv. `settings`: see FunctionTool.

    Raises:
        BadArgument: for a function that can be no tool; see FunctionTool.
    """
    check_keywords(FunctionTool, settings, "tool")

    def mark(function: _F) -> _F:
        FunctionTool(function, **settings)
        setattr(function, SETTINGS, settings)
        return function

    return mark if function is None else mark(function)


def is_marked(value: object) -> bool:
    """Return whether a value is a function with ``@tool``."""
    return inspect.isroutine(value) and isinstance(getattr(value, SETTINGS, None), dict)


def is_tool(value: object) -> bool:
    """Return whether a value is a tool or a tool's class, or a function with ``@tool``."""
    upstream = (callable(getattr(value, name, None)) for name in ("execute_action", "instruction_string"))
    return isinstance(value, BaseTool) or is_marked(value) or all(upstream)


def tools_in_class(owner: object) -> list[FunctionTool]:
    """Return the methods of an object that are marked with ``@tool``, in the order of their definition.

    They change the object, so they run in its thread and without a deadline of their own, unless it is set.
    """
    names = dict.fromkeys(name for cls in reversed(type(owner).__mro__) for name in vars(cls))
    methods = [getattr(owner, name) for name in names if is_marked(getattr(type(owner), name, None))]
    return [FunctionTool(each, **{"timeout": None, **getattr(each, SETTINGS)}) for each in methods]


__all__ = ["BaseTool", "FunctionTool", "ToolCall", "ToolError", "ToolResult", "tool"]
