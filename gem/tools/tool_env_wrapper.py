"""ToolEnvWrapper: lets the agent call tools in any environment."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from random import Random
from typing import Any, ClassVar, Self

from gem import seeding
from gem.content import Obs, Text, ToolSpec, join, text_of, written_tools
from gem.core import Env, EnvWrapper, Start, Step
from gem.errors import BadArgument, EpisodeOver, NoVerdict, check_least, did_you_mean
from gem.record import StopReason
from gem.tasks.base import Task
from gem.tools.base_tool import SETTINGS, BaseTool, FunctionTool, ToolResult, is_marked, is_tool
from gem.tools.calls import Found, find, marks_of

MAX_REFUSED_TURNS = 5
"""The number of turns with refused calls after which the episode ends."""


class ToolEnvWrapper(EnvWrapper):
    """A wrapper in which the agent can call tools; an action without a call goes to the environment.

    An action with calls is a separate turn: its calls run in order (in parallel if all of them are
    `parallel_safe`), their outputs form one observation, and the environment does not see it. An answer in
    the same action does not count, because it was written before the results were known. See
    `gem.tools.calls.find` for the forms of a call.

    An environment with its own tools keeps them: a turn that calls only those goes to the environment. In a
    turn that calls both, the wrapper's tools are run; for the others the agent reads that they need a
    separate turn. The tags and fences that an environment reads itself (`Env.answer_marks`) stay its own too:
    they are no calls here, and a tool's instruction leaves out its fences among them.

    An episode has at most `max_tool_uses` calls, including unreadable ones. Any further call is not run: the
    agent reads that none are left, and that turn earns nothing. The fifth such turn ends the episode with
    ``stop="turn_budget"``. The limit belongs to the task, and the instruction states it.

    Each call that is run earns `tool_reward`, plus `tool_success_reward` or `tool_execute_error_reward` by
    its result; if the tool itself failed and reports it, neither of these. Keep the sum over `max_tool_uses`
    below the reward of success.

    Info of every turn: `use_tool` (bool), `tool_use_counter`, `tool_success_counter`, both also with the
    prefix `prev_ep_` for the previous episode (None in the first), `tool_failure_counter` (calls that the
    tool itself failed), `parsed_action` (the action up to the end of its last call). Info of a turn with
    calls also has `tool_type` (the tools' names, separated by commas) and `tool_results`, a list of
    ``{"tool", "error", "refused", "shown", ...}`` in order of the calls; `shown` is absent if a call was
    refused. The observation of such a turn consists only of tool output. Like every observation, it is not
    trained on.

    A live tool, such as a Python session, belongs to one environment, so the wrapper spawns its own.
    """

    shared: ClassVar[tuple[str, ...]] = ("tools", "_owned")

    def __init__(
        self,
        env: Env,
        tools: Sequence[Any],
        tool_reward: float = 0.0,
        tool_success_reward: float = 0.0,
        tool_execute_error_reward: float = 0.0,
        max_tool_uses: int = 10,
    ) -> None:
        """Wrap `env`; a tool is a BaseTool, its class, a function with ``@tool``, or one in upstream's style.

        Raises:
            BadArgument: without tools, for two of the same name or tag, for one with a name or tag that the
                environment has itself, or a negative `max_tool_uses`.
        """
        super().__init__(env)
        if isinstance(tools, BaseTool | str) or not all(map(is_tool, tools)):
            raise BadArgument(
                f"tools is {tools!r:.80}; accepted: a list of tools, each a gem.tools.BaseTool, a function "
                "with @gem.tools.tool, or with execute_action and instruction_string."
            )
        tools = [_as_tool(tool) for tool in tools]
        marks = [mark for tool in tools for mark in {tool.name, tool.tag} - {""}]
        if not tools or len(set(marks)) < len(marks):
            names = [f"{tool.name or type(tool).__name__} <{tool.tag}>" for tool in tools]
            raise BadArgument(f"tools are {names}; accepted: one or more, with names and tags of their own.")
        taken = {spec.name for spec in env.tool_specs}.union(env.answer_marks)
        for tool in tools:
            if taken & {tool.name, f"<{tool.tag}>"}:
                raise BadArgument(
                    f"{env} has its own {tool.name!r} <{tool.tag}>; accepted: tools with other names and "
                    "tags. Leave out this tool, or rename it."
                )
        check_least("max_tool_uses", max_tool_uses, 0)
        self.tools = [tool.spawn() for tool in tools]
        self._owned = [own for own, given in zip(self.tools, tools, strict=True) if own is not given]
        self.tools = [_without_fences(tool, env.answer_marks) for tool in self.tools]
        self.tool_reward = tool_reward
        self.tool_success_reward = tool_success_reward
        self.tool_execute_error_reward = tool_execute_error_reward
        self.max_tool_uses = max_tool_uses
        self.tool_use_counter = 0
        self.tool_success_counter = 0
        self.tool_failure_counter = 0
        self.prev_ep_tool_use_counter: int | None = None
        self.prev_ep_tool_success_counter: int | None = None
        self._refused_turns = 0
        self._running = False
        self._begun = False
        self._around: dict[str, Any] = {}  # text around the next prompt, as the environment last gave it

    _rng_of_calls: Random | None = None

    _question: str = ""
    """The first observation, without the instruction of the tools."""

    # -- the contract

    def on_start(self, start: Start) -> Start:
        """Save the last episode's counts, reset the tools and add their instruction to the observation."""
        if self._begun:
            self.prev_ep_tool_use_counter = self.tool_use_counter
            self.prev_ep_tool_success_counter = self.tool_success_counter
        self.tool_use_counter = self.tool_success_counter = self.tool_failure_counter = 0
        self._refused_turns = 0
        self._running = self._begun = True
        for number, tool in enumerate(self.tools):
            tool.reset(seeding.derive(self.env.seed or 0, "tool", number))
        offered = [spec.name for spec in self.tool_specs]
        if len(set(offered)) < len(offered):
            raise BadArgument(f"tools and {self.env} offer {offered}; accepted: names of their own.")
        self._keep_around(start.info)
        self._question = text_of(start.obs)
        self._rng_of_calls = None
        info = {**start.info, "tools": written_tools(self.tool_specs), **self._counts(False)}
        return Start(join([start.obs, self.instruction()], "\n\n"), info)

    def step(self, action: str, verbose: bool = False) -> Step:
        """Run the calls of `action`, or give it to the environment; see Env.step.

        `verbose` is accepted for upstream's callers and has no effect.

        Raises:
            NoVerdict: when a tool itself fails.
        """
        if self._refused_turns >= MAX_REFUSED_TURNS:
            raise EpisodeOver(f"the episode of {self} is over; call reset() before step().")
        if self._running and isinstance(action, str):
            for tool in filter(
                _speaks_upstream, self.tools
            ):  # its format may look like ours: it is asked first
                valid, error, text, parsed = tool.execute_action(action)
                if valid:
                    return self._upstream_turn(tool, error, text, parsed)
            offered = self._collect_tools()
            read = offered or self.env.tool_specs
            matches = find(action, [*offered.values()], self.env.answer_marks) if read else []
            inner = {spec.name for spec in self.env.tool_specs} if matches else set()
            if any(each.call is None or each.call.name not in inner for each in matches):
                return self._tool_turn(action, matches, inner)
        return self._env_turn(action)

    def sample_random_action(self) -> str:
        """Return a random call in half of the turns, while calls are left; otherwise a random answer.

        Of several wrappers with tools, directly around one another, the outermost draws for all.
        """
        layers = self._layers()
        question, rng = layers[-1]._question, self._need_rng()
        calls = [
            _check_call(tool, call) for tool in _callable(layers) if (call := tool.sample_call(question, rng))
        ]
        if calls and rng.random() < 0.5:
            return rng.choice(calls)
        return layers[-1].env.sample_random_action()

    def solve(self) -> str:
        """Return a call that helps with the question, once in an episode; otherwise the inner action.

        A task's column `working` may be the arithmetic expression of its answer: then a tool computes that.
        """
        layers = self._layers()
        if not any(each.tool_use_counter for each in layers):
            tools, question = [*_callable(layers)], layers[-1]._question
            task = getattr(self.unwrapped, "task", None)
            working = task.info.get("working") if isinstance(task, Task) else None
            working = working.strip() if isinstance(working, str) else ""  # a column may hold anything
            computing = ((tool, tool.computing_call(working)) for tool in tools if working)
            for tool, call in chain(computing, ((tool, tool.solving_call(question)) for tool in tools)):
                if call:
                    return _check_call(tool, call)
        return layers[-1].env.solve()

    def seed_actor(self, seed: int) -> None:
        """Reseed the random play of the environment inside, and the random calls; see Env.seed_actor."""
        super().seed_actor(seed)
        self._rng_of_calls = seeding.stream(seed, "tool calls")

    def _need_rng(self) -> Random:
        """Return the random stream of the calls. It is not `actor_rng`, which a seat's seed_actor() keeps."""
        if self._rng_of_calls is None:
            self._rng_of_calls = seeding.stream(self.env.seed or 0, "tool calls")
        return self._rng_of_calls

    def _layers(self) -> list[ToolEnvWrapper]:
        """Return this wrapper and those directly inside it that also give tools, from the outermost on."""
        layers: list[ToolEnvWrapper] = [self]
        while isinstance(layers[-1].env, ToolEnvWrapper):
            layers.append(layers[-1].env)
        return layers

    def close(self) -> None:
        """Close the wrapped environment and the tools that this wrapper made."""
        self._running = False
        for tool in self._owned:
            tool.close()
        self.env.close()

    @property
    def forkable(self) -> bool:  # type: ignore[override]
        """Whether the wrapped environment can be forked and no tool holds live state."""
        return self.env.forkable and not any(tool.live for tool in self.tools)

    def fork(self, seed: int | None = None) -> Self:
        """Return a copy around a fork of the wrapped environment; live tools are forked if possible.

        Raises:
            CannotFork: when the environment or a tool cannot be copied.
        """
        tools: list[BaseTool] = []
        state = self._copy_state()
        try:
            for tool in self.tools:
                tools.append(_without_fences(tool.fork(), self.env.answer_marks))
            env = self.env.fork(seed)
        except BaseException:
            for twin_tool, tool in zip(tools, self.tools, strict=False):
                if twin_tool is not tool:
                    twin_tool.close()
            raise
        twin = self._shell()
        twin.env, twin._init = env, self._init_around(env)
        twin._restore(state)
        twin.tools = tools
        if seed is not None:
            twin._rng_of_calls = None
        twin._owned = [own for own, tool in zip(tools, self.tools, strict=True) if own is not tool]
        return twin

    # -- the agent is told

    @property
    def tool_specs(self) -> tuple[ToolSpec, ...]:  # type: ignore[override]
        """The tools that a model may call natively: these tools, then those of the wrapped environment.

        Tools in upstream's style, which parse actions with their own method, are not included.
        """
        own = (each.spec() for tool in self._read_here() for each in tool.offered())
        return (*own, *self.env.tool_specs)

    @property
    def answer_marks(self) -> tuple[str, ...]:  # type: ignore[override]
        """The tags and fences of these tools, and those that the wrapped environment reads itself."""
        return (*(mark for tool in self.tools for mark in marks_of(tool)), *self.env.answer_marks)

    def instruction(self) -> str:
        """Return the text that tells the agent about its tools."""
        about = "\n\n".join(tool.instruction_string() for tool in self.tools)
        limit = f"You have {self.max_tool_uses} tool calls in all."
        rule = "A turn that calls a tool gives no answer: answer in a turn without calls."
        if self.env.tool_specs:
            own = ", ".join(dict.fromkeys(each.name for tool in self.tools for each in tool.offered()))
            limit = f"You have {self.max_tool_uses} calls of {own} in all."
            rule = "A turn that calls one of these does nothing else."
        return f"{about}\n\n{limit} {rule}"

    # -- turns

    @property
    def extra_turns(self) -> int:
        """The most turns that calls can add to an episode of the environment inside."""
        return self.max_tool_uses + MAX_REFUSED_TURNS - 1

    def _env_turn(self, action: str) -> Step:
        step = self.env.step(action)
        self._running = not step.done
        self._keep_around(step.info)
        return step._replace(info={"parsed_action": action, **step.info, **self._counts(False)})

    def _tool_turn(self, action: str, matches: Sequence[Found], inner: Collection[str]) -> Step:
        left = self.max_tool_uses - self.tool_use_counter
        own = [each for each in matches if each.call is None or each.call.name not in inner]
        run = own[:left]
        results = self._run(run)
        reward = sum(map(self._pay, results), 0.0)
        results_of = {each.start: result for each, result in zip(run, results, strict=True)}
        refused = {each.start for each in own[left:]}
        pieces: list[Obs] = []
        entries: list[dict[str, Any]] = []
        for each in matches:
            if each.start in refused:
                entries.append({"tool": _name(each), "error": False, "refused": True})
            elif each.start in results_of:
                result = results_of[each.start]
                pieces.append(self._show_result(each, result))
                entries.append(_describe_call(each, result))
            else:
                pieces.append(f"{_name(each)} was not run: call it in a turn of its own.")
                entries.append({"tool": _name(each), "error": True, "refused": True})
        _measure(
            pieces, [entry for entry, each in zip(entries, matches, strict=True) if each.start not in refused]
        )
        end = run[-1].end if run else matches[-1].end
        info = {"tool_type": ",".join(dict.fromkeys(map(_name, matches))), "tool_results": entries}
        return self._after(pieces, reward, action[:end], info, len(refused), len(run))

    def _upstream_turn(self, tool: BaseTool, error: bool, text: str, parsed: str) -> Step:
        info: dict[str, Any] = {"tool_type": tool.tool_type}
        result: dict[str, Any] = {"tool": tool.tool_type, "error": error, "refused": False}
        if self.tool_use_counter >= self.max_tool_uses:
            return self._after([], 0.0, parsed, {**info, "tool_results": [{**result, "refused": True}]}, 1, 0)
        reward = self._pay(ToolResult(text, error))
        return self._after([text], reward, parsed, {**info, "tool_results": [result]}, 0, 1)

    def _after(
        self, pieces: list[Obs], reward: float, parsed: str, info: dict[str, Any], refused: int, run: int
    ) -> Step:
        """Return the step of a turn with calls, of which some were refused and some were run."""
        over = False
        if refused:
            if not run:
                self._refused_turns += 1
            some = "this call was" if refused == 1 else f"{refused} calls were"
            used = f"{self.tool_use_counter} of {self.max_tool_uses}"
            pieces.append(f"No tool calls are left ({used} are used): {some} not run. Give your answer.")
            over = self._refused_turns >= MAX_REFUSED_TURNS
        elif self.tool_use_counter >= self.max_tool_uses:
            pieces.append("That was the last tool call. Give your answer.")
        info = {**self._around, "parsed_action": parsed, **info, **self._counts(True)}
        if over:
            self._running = False
            info |= {"success": False, "stop": StopReason.TURN_BUDGET.value}
        return Step(join(pieces), reward, over, False, info)

    def _run(self, matches: Sequence[Found]) -> list[ToolResult]:
        tools = self._collect_tools()

        def one(each: Found) -> ToolResult:
            if each.call is None:
                return ToolResult(each.error, error=True)
            if each.call.name not in tools:
                names = list(dict.fromkeys([*tools, *(spec.name for spec in self.env.tool_specs)]))
                hint = did_you_mean(each.call.name[:60], names)
                message = f"there is no tool {each.call.name!r:.60}.{hint} Tools: {', '.join(names)}."
                return ToolResult(message, error=True)
            return tools[each.call.name].run(each.call.arguments)

        called = [tools.get(each.call.name) for each in matches if each.call]
        if len(called) > 1 and all(tool is None or tool.parallel_safe for tool in called):
            with ThreadPoolExecutor(min(len(matches), 8)) as pool:
                return list(pool.map(one, matches))
        return [one(each) for each in matches]

    def _pay(self, result: ToolResult) -> float:
        """Count a call that was run, and return its reward."""
        self.tool_use_counter += 1
        if result.failed:
            self.tool_failure_counter += 1
            return self.tool_reward
        if result.error:
            return self.tool_reward + self.tool_execute_error_reward
        self.tool_success_counter += 1
        return self.tool_reward + self.tool_success_reward

    def _show_result(self, match: Found, result: ToolResult) -> Obs:
        tool = self._collect_tools().get(match.call.name) if match.call else None
        text = tool.shown(result.text) if tool else f"<output>\n{result.text}\n</output>"
        return (Text(text), *result.images) if result.images else text

    def _collect_tools(self) -> dict[str, BaseTool]:
        return {each.name: each for tool in self._read_here() for each in tool.offered()}

    def _read_here(self) -> list[BaseTool]:
        """Return the tools whose calls this wrapper parses; tools in upstream's style parse their own."""
        return [tool for tool in self.tools if not _speaks_upstream(tool)]

    def _counts(self, use_tool: bool) -> dict[str, Any]:
        return {
            "use_tool": use_tool,
            "tool_use_counter": self.tool_use_counter,
            "tool_success_counter": self.tool_success_counter,
            "tool_failure_counter": self.tool_failure_counter,
            "prev_ep_tool_use_counter": self.prev_ep_tool_use_counter,
            "prev_ep_tool_success_counter": self.prev_ep_tool_success_counter,
        }

    def _keep_around(self, info: dict[str, Any]) -> None:
        self._around = {key: info[key] for key in ("prefix", "suffix") if key in info}


def _callable(layers: Sequence[ToolEnvWrapper]) -> Iterator[BaseTool]:
    """Return the tools of wrappers that have calls left."""
    for each in layers:
        if each._running and each.tool_use_counter < each.max_tool_uses:
            yield from each._read_here()


def _check_call(tool: BaseTool, action: str) -> str:
    """Return a call that a tool proposes, if it is one: anything else would reach the environment."""
    offered = tool.offered()
    names = {each.name for each in offered}
    if not any(each.call and each.call.name in names for each in find(action, list(offered))):
        raise NoVerdict(f"the tool {tool.name!r} proposes {action!r:.80}, which does not call it.")
    return action


def _name(match: Found) -> str:
    return match.call.name[:60] if match.call else "unreadable"


def _describe_call(match: Found, result: ToolResult) -> dict[str, Any]:
    """Return the info entry of a call that was run."""
    failed = {"failed": True} if result.failed else {}
    return {"tool": _name(match), "error": result.error, "refused": False, **failed, **result.info}


def _measure(pieces: Sequence[Obs], entries: Sequence[dict[str, Any]]) -> None:
    """Write into info the length of each piece of the observation, in parts if there are pictures."""
    texts = all(isinstance(piece, str) for piece in pieces)
    for piece, entry in zip(pieces, entries, strict=True):
        entry["shown"] = int(bool(piece)) if isinstance(piece, str) and not texts else len(piece)


class AdoptedTool(BaseTool):
    """A tool that is not a BaseTool but has upstream's two methods."""

    def __init__(self, tool: Any) -> None:
        """Wrap `tool`."""
        super().__init__()
        self.tool = tool
        self.name = str(getattr(tool, "tool_type", "") or type(tool).__name__)

    def instruction_string(self) -> str:
        """Return the tool's own instruction."""
        return str(self.tool.instruction_string())

    def execute_action(self, action: str) -> tuple[bool, bool, str, str]:
        """Let the tool parse and run an action."""
        valid, error, text, parsed = self.tool.execute_action(action)
        return bool(valid), bool(error), str(text), str(parsed)


def _without_fences(tool: BaseTool, answer_marks: Collection[str]) -> BaseTool:
    """Return a tool whose fences are none of `answer_marks`; in a copy if others may have it too."""
    fences = [label for label in tool.fences if f"```{label}" not in answer_marks]
    if len(fences) < len(tool.fences):
        tool = tool if tool.live else copy.copy(tool)
        tool.fences = fences
    return tool


def _as_tool(tool: Any) -> BaseTool:
    if isinstance(tool, type):
        try:
            tool = tool()
        except TypeError as error:
            raise BadArgument(
                f"the tool {tool.__name__} cannot be made without arguments: {error}. Accepted: a class that "
                "needs none, or an object of it."
            ) from error
    if isinstance(tool, BaseTool):
        return tool
    return FunctionTool(tool, **getattr(tool, SETTINGS)) if is_marked(tool) else AdoptedTool(tool)


def _speaks_upstream(tool: BaseTool) -> bool:
    """Return whether a tool parses actions with its own method, as upstream's tools do."""
    if isinstance(tool, AdoptedTool):
        return True
    for cls in type(tool).__mro__:
        if "execute_action" in cls.__dict__:
            return not cls.__module__.startswith("gem.")
        if "call" in cls.__dict__:
            return False
    return False
