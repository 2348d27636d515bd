"""WorkspaceEnv: an agent calls tools turn by turn until it submits; then the final state is judged.

A turn is read as calls and perhaps a submission, with the errors in them. It is answered by one observation
with the results in the order of the calls; info holds the length of each result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gem.content import ToolSpec
from gem.core import Env, Step
from gem.errors import ToolError, did_you_mean
from gem.parsing import drop_closed_thinking, read_box
from gem.record import StopReason
from gem.tools import calls, schema
from gem.tools.base_tool import BaseTool, tools_in_class
from gem.tools.calls import Found

MAX_CALLS = 20
"""The most calls of one turn. With more, none is run, so that a list of guesses does not pay."""

SUBMIT = "submit"
"""The name of the tool that submits, like ``<submit/>`` in text."""

NOT_COUNTED = "The task was not ended: another call of this turn could not be carried out."
"""The answer to a submission in the same turn as a call that cannot be carried out."""

_SUBMIT_TAG = re.compile(r"<submit\s*/>|<submit>\s*</submit>")


def submit_spec(description: str) -> ToolSpec:
    """Return the spec of the tool with which a model submits natively."""
    return ToolSpec(
        SUBMIT,
        description,
        {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
    )


def write_call(name: str, arguments: Mapping[str, object]) -> str:
    """Return a call of a tool as an action writes it."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


class Written(BaseTool):
    """A tool that is described and parsed here; the environment carries it out."""

    def __init__(
        self,
        name: str,
        description: str,
        argument: str,
        about: str,
        *,
        tag: str = "",
        fences: Sequence[str] = (),
    ) -> None:
        """Define a tool with one text argument, which `about` describes."""
        super().__init__()
        self.name, self.description, self.tag, self.fences = name, description, tag, fences
        self.parameters = {
            "type": "object",
            "properties": {argument: {"type": "string", "description": about}},
            "required": [argument],
            "additionalProperties": False,
        }


@dataclass(frozen=True, slots=True)
class WorkCall:
    """One call of a turn; `wrong` says why it cannot be carried out, and is empty if it can."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class WorkTurn:
    """What an action asks for: its calls in order, with those of `submit`, and whether it submits."""

    calls: tuple[WorkCall, ...]
    asks_to_submit: bool

    @property
    def empty(self) -> bool:
        """Whether the action asks for nothing."""
        return not self.calls and not self.asks_to_submit

    @property
    def too_many(self) -> str:
        """The message for more calls than a turn may have; empty if there are not too many."""
        if len(self.calls) <= MAX_CALLS:
            return ""
        return f"That is {len(self.calls)} calls, none was run; at most {MAX_CALLS} are in a turn."

    @property
    def ends(self) -> bool:
        """Whether the turn may end the task; not if one of its calls cannot be carried out."""
        return not self.too_many and not any(call.wrong for call in self.calls)

    @property
    def submitted(self) -> bool:
        """Whether the action submits and the submission counts."""
        return self.asks_to_submit and self.ends

    @property
    def legal(self) -> bool:
        """Whether anything in the action can be carried out."""
        return self.submitted or (not self.too_many and not all(call.wrong for call in self.calls))


def read(action: str, tools: Sequence[BaseTool], *, submits: bool = True, in_a_box: bool = False) -> WorkTurn:
    r"""Return what an action asks for; `gem.tools.calls.find` describes the forms of a call.

    Args:
        action: what the agent wrote.
        tools: the tools of the environment, without `submit`.
        submits: whether the agent can submit: by ``<submit/>``, which counts outside of calls and of closed
            thinking, or by a call of `submit`.
        in_a_box: whether ``\boxed{done}`` submits too.
    """
    matches = calls.find(action, tools)
    names = {tool.name: tool for tool in tools}
    known = [*names, SUBMIT] if submits else [*names]
    read_calls = tuple(_check_call(each, names, known) for each in matches)
    if not submits:
        return WorkTurn(read_calls, False)
    called = any(call.name == SUBMIT and not call.wrong for call in read_calls)
    return WorkTurn(read_calls, called or _submits(action, matches, in_a_box, [tool.name for tool in tools]))


def _check_call(match: Found, tools: Mapping[str, BaseTool], known: Sequence[str]) -> WorkCall:
    if match.call is None:
        return WorkCall("unreadable", wrong=match.error)
    name, arguments = match.call.name, match.call.arguments
    if name not in known:
        hint = did_you_mean(name[:60], known)
        return WorkCall(name[:60], wrong=f"there is no tool {name!r:.60}.{hint} Tools: {', '.join(known)}.")
    if name == SUBMIT:  # its arguments do not matter
        return WorkCall(name)
    wrong = schema.violation(arguments, tools[name].arguments)
    return WorkCall(name, arguments, f"{name}: {wrong}" if wrong else "")


def _submits(action: str, matches: Sequence[Found], in_a_box: bool, tools: Sequence[str]) -> bool:
    outside, last = [], 0
    for each in matches:
        outside.append(action[last : each.start])
        last = each.end
    text = drop_closed_thinking(" ".join([*outside, action[last:]]))
    cut = [at for name in tools if (at := text.find(f"<{name}>")) >= 0]  # what a limit of tokens cut off
    text = text[: min(cut, default=len(text))]
    if _SUBMIT_TAG.search(text):
        return True
    return in_a_box and any(inside.lower() == "done" for inside in read_box(text))


class TurnReport:
    """The observation of a turn while it is built: the results of its calls in order, then further text.

    `info` holds the length of each result, as `gem.history` reads it.
    """

    def __init__(self) -> None:
        """Begin with an empty observation."""
        self.info: dict[str, Any] = {}
        self._results: list[str] = []
        self._rest: list[str] = []

    def result(self, call: WorkCall, text: str, error: bool = False) -> None:
        """Add the result of a call, as it is shown."""
        self._results.append(text)
        self._enter({"tool": call.name, "error": error, "refused": False, "shown": len(text)})

    def end(self, call: WorkCall) -> None:
        """Add a call that ends the task; the text after the results is its result."""
        self._enter({"tool": call.name, "error": False, "refused": False})

    def add(self, text: str) -> None:
        """Add text after the results."""
        self._rest.append(text)

    def _enter(self, entry: dict[str, Any]) -> None:
        self.info.setdefault("tool_results", []).append(entry)

    @property
    def obs(self) -> str:
        """The whole observation."""
        return "\n".join([*self._results, *self._rest])


class Burst(Exception):
    """A call of the agent destroyed its workspace: the task is failed, and the message says why."""


class WorkspaceEnv(Env):
    """A task on which an agent works with tool calls until it submits or its turns are used up.

    Subclasses have `max_turns`, set `turn` to 0 in reset(), and define `judge` and methods with
    ``@gem.tools.tool``; or `tools` and `carry_out`, for calls that they carry out in another way. A
    turn with no call (answered with `nothing`) or with too many calls also gets `form`, which says how to
    write a turn. The final state is judged once: after the submission, or when a budget is used up.
    """

    max_turns: int
    turn: int = 0
    form: str = ""
    in_a_box: ClassVar[bool] = False
    nothing: ClassVar[str] = ""
    no_turns_left: ClassVar[str] = "No turns are left."

    def tools(self) -> Sequence[BaseTool]:
        """Return the tools that a turn may call, without `submit`: the methods with ``@gem.tools.tool``."""
        if tools := tools_in_class(self):
            return tools
        raise NotImplementedError(f"{type(self).__name__} must define tools(), or methods with @tool.")

    @property
    def tool_specs(self) -> Sequence[ToolSpec]:  # type: ignore[override]
        """The tools that a model may call natively: `tools`, and `submit`."""
        own = (tool.spec() for tool in self.tools())
        return (*own, submit_spec("End the task: what is there then counts."))

    @property
    def answer_marks(self) -> Sequence[str]:  # type: ignore[override]
        """The tags and fences of `tools`."""
        return [mark for tool in self.tools() for mark in calls.marks_of(tool)]

    def carry_out(self, call: WorkCall, report: TurnReport) -> None:
        """Run one call and add its result. Raises Burst if the call destroyed the workspace."""
        tool = next(tool for tool in self.tools() if tool.name == call.name)
        result = tool.run(call.arguments)
        report.result(call, result.text, result.error)

    def judge(self) -> str:
        """Return what is wrong with the final state, '' if nothing is; a ToolError counts as wrong."""
        raise NotImplementedError(f"{type(self).__name__} must define judge().")

    def refusal(self, wrong: str) -> str:
        """Return what the agent reads about a call that cannot be carried out."""
        return f"{wrong} {self.form}"

    def begin_turn(self) -> None:
        """Prepare the calls of a turn."""

    def used_up(self) -> str:
        """Return what the agent reads when a budget other than the turns is used up; '' before that."""
        return ""

    def read_turn(self, action: str) -> WorkTurn:
        """Return what an action asks for."""
        return read(action, self.tools(), in_a_box=self.in_a_box)

    def step(self, action: str) -> Step:
        """Carry out the calls of a turn, and judge the final state if the agent submits; see Env.step.

        Raises:
            NoVerdict: when something that the environment itself needs is gone.
        """
        if not hasattr(self, "max_turns"):
            raise NotImplementedError(f"{type(self).__name__} must set max_turns.")
        self.turn += 1
        asked, report = self.read_turn(action), TurnReport()
        self.begin_turn()
        try:
            if asked.empty or asked.too_many:
                report.add(f"{asked.too_many or self.nothing} {self.form}".strip())
            else:
                self._carry_out_all(asked, report)
        except Burst as burst:
            return self.finish(report, StopReason.FAILED, str(burst))
        if over := self.used_up():
            report.add(over)
            return self._judge_and_finish(report, StopReason.TURN_BUDGET)
        if asked.submitted:
            return self._judge_and_finish(report, StopReason.FAILED)
        if asked.asks_to_submit:
            report.add(NOT_COUNTED)
        if self.turn >= self.max_turns:
            if self.no_turns_left:
                report.add(self.no_turns_left)
            return self._judge_and_finish(report, StopReason.TURN_BUDGET)
        return Step(report.obs, 0.0, False, False, report.info | ({} if asked.legal else {"legal": False}))

    def _carry_out_all(self, asked: WorkTurn, report: TurnReport) -> None:
        for call in asked.calls:
            if call.wrong:
                report.result(call, self.refusal(call.wrong), error=True)
            elif call.name == SUBMIT:
                report.end(call)
            else:
                self.carry_out(call, report)

    def _judge_and_finish(self, report: TurnReport, otherwise: StopReason) -> Step:
        try:
            wrong = self.judge()
        except ToolError as error:  # the state that the agent left makes the judge fail
            wrong = str(error)
        if not isinstance(wrong, str):  # True would say that all is well, and count as wrong
            raise TypeError(
                f"{type(self).__name__}.judge() returned {wrong!r:.80}; accepted: text that says what is "
                "wrong, '' if nothing is."
            )
        return self.finish(report, otherwise if wrong else StopReason.SOLVED, wrong)

    def finish(self, report: TurnReport, stop: StopReason, why: str) -> Step:
        """Return the last step of the episode."""
        success = stop is StopReason.SOLVED
        report.add("The task is done." if success else "The task is not done.")
        info = {**report.info, "success": success, "stop": stop.value, **({"why": why[:300]} if why else {})}
        return Step(report.obs, float(success), True, False, info)
