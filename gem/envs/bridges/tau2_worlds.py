"""Domains of tau2-bench: data, fresh worlds, calls of tools, and the parts of a reward.

Databases, policies, tools, tasks and what decides about a reward are the package's. Two things of it are
replaced in this process: its ids of new bills, which the seed determines here, and `calculate`, which hands
a model's text to Python.
"""

from __future__ import annotations

import functools
import json
import math
import operator
import os
import re
import tomllib
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from loguru import logger

from gem import seeding
from gem.content import ToolSpec, printable
from gem.envs.bridges.specs import TAU2_DISPUTED
from gem.envs.kit.splits import Exclude, Split, check_split
from gem.errors import BadArgument, MissingData, NoVerdict
from gem.graders.base import Grader, grade_with
from gem.tasks.order import Ordered, index_at
from gem.tools.base_tool import BaseTool
from gem.worlds import KNOWN, import_world

logger.disable("tau2")  # what it logs is its own business; other loggers are as they were
import_world("tau2")

from pydantic import BaseModel  # noqa: E402
from tau2.data_model.message import ToolCall  # noqa: E402
from tau2.data_model.tasks import Task  # noqa: E402
from tau2.domains.airline.data_model import FlightDB  # noqa: E402
from tau2.domains.airline.tools import AirlineTools  # noqa: E402
from tau2.domains.retail.data_model import RetailDB  # noqa: E402
from tau2.domains.retail.tools import RetailTools  # noqa: E402
from tau2.domains.telecom import tools as telecom_tools  # noqa: E402
from tau2.domains.telecom.data_model import TelecomDB  # noqa: E402
from tau2.domains.telecom.environment import TelecomEnvironment  # noqa: E402
from tau2.domains.telecom.tools import TelecomTools  # noqa: E402
from tau2.domains.telecom.user_data_model import TelecomUserDB  # noqa: E402
from tau2.domains.telecom.user_tools import TelecomUserTools  # noqa: E402
from tau2.environment.environment import Environment  # noqa: E402
from tau2.environment.toolkit import GenericToolKit  # noqa: E402
from tau2.utils.utils import DATA_DIR  # noqa: E402

MOST_ERRORS = 10
"""The package ends a task after so many failed calls, without a reward."""

# -- what is replaced in the package

_id_stream: ContextVar[Random | None] = ContextVar("id_stream", default=None)


def _draw_uuid() -> uuid.UUID:
    """Return a UUID of the running episode's stream; a real one outside of any."""
    stream = _id_stream.get()
    return uuid.uuid4() if stream is None else uuid.UUID(int=stream.getrandbits(128), version=4)


telecom_tools.uuid = SimpleNamespace(uuid4=_draw_uuid)  # it names new bills

_TOKEN = re.compile(r" *([0-9]+\.?[0-9]*|\.[0-9]+|\*\*|//|[-+*/()]) *")
_LONGEST_SUM, _MOST_OPEN, _LARGEST = 1000, 50, 1e100
_SIGNS: Mapping[str, tuple[int, Callable[[Any, Any], Any]]] = {
    "+": (1, operator.add),
    "-": (1, operator.sub),
    "*": (2, operator.mul),
    "/": (2, operator.truediv),
    "//": (2, operator.floordiv),
    "**": (4, operator.pow),
}


def calculate(expression: str) -> str:
    """Return the value of a sum with two decimals, as the package's tool of this name.

    Numbers, ``+ - * / // **`` and brackets, with Python's precedence. Nothing is handed to Python.

    Raises:
        ValueError: for anything else, and for numbers above 1e100 or complex ones.
        ZeroDivisionError: as Python.
    """
    if len(expression) > _LONGEST_SUM:
        raise ValueError(f"An expression has at most {_LONGEST_SUM} characters")
    tokens, at = [], 0
    while at < len(expression):
        token = _TOKEN.match(expression, at)
        if token is None:
            raise ValueError("Invalid characters in expression")
        tokens.append(token[1])
        at = token.end()
    tokens.append("")
    value = _read_sum(tokens, 0, 0)
    if tokens != [""]:
        raise ValueError(f"Invalid expression at {tokens[0]!r}")
    return str(round(float(value), 2))


def _read_sum(tokens: list[str], lowest: int, depth: int) -> Any:
    """Take a sum from the front of `tokens`, whose signs bind at least as strongly as `lowest`."""
    if depth > _MOST_OPEN:
        raise ValueError("Too many brackets or signs in expression")
    token = tokens.pop(0) if tokens else ""
    value: Any
    if token in ("+", "-"):  # they bind more weakly than **, and more strongly than the others
        value = _read_sum(tokens, 3, depth + 1)
        value = -value if token == "-" else value
    elif token == "(":
        value = _read_sum(tokens, 0, depth + 1)
        if tokens.pop(0) != ")":
            raise ValueError("A bracket is not closed in expression")
    elif token[:1].isdigit() or token[:1] == ".":
        if token.isdigit() and token[0] == "0" and token.strip("0"):
            raise ValueError("Leading zeros in expression")
        value = _check_size(float(token) if "." in token else int(token))
    else:
        raise ValueError(f"Invalid expression at {token!r}")
    while tokens and tokens[0] in _SIGNS and (binding := _SIGNS[tokens[0]])[0] >= max(lowest, 1):
        sign = tokens.pop(0)
        right = _read_sum(tokens, 3 if sign == "**" else binding[0] + 1, depth + 1)
        if sign == "**" and value and right * math.log10(abs(value)) > 100:
            raise ValueError("The result is too large")
        value = _check_size(binding[1](value, right))
    return value


def _check_size(value: Any) -> Any:
    if isinstance(value, complex) or abs(value) > _LARGEST:
        raise ValueError("The result is too large")
    return value


for _kit in (AirlineTools, RetailTools, GenericToolKit):
    theirs = _kit.calculate
    _kit.calculate = functools.wraps(theirs)(lambda self, expression: calculate(expression))

# -- data


class PackageTool(BaseTool):
    """A tool of the package, which itself checks the arguments."""

    def __init__(self, described: Mapping[str, Any]) -> None:
        super().__init__()
        self.name, self.description = described["name"], described["description"]
        self.described = described["parameters"]

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Nothing that gem checks."""
        return {}  # a call that the package cannot carry out counts as failed, with the package's own words

    def spec(self) -> ToolSpec:
        """Return what a model reads about the tool."""
        return ToolSpec(self.name, self.description, self.described)

    def describe(self) -> str:
        """Return the tool with its arguments as text."""
        lines = [f"- {self.name}: {' '.join(self.description.split())}"]
        definitions = self.described.get("$defs", {})
        for name, rule in self.described.get("properties", {}).items():
            kinds = [kind for each in rule.get("anyOf", [rule]) for kind in _kinds(each, definitions)]
            needed = "" if name in self.described.get("required", ()) else ", optional"
            lines.append(f"    {name} ({' or '.join(kinds)}{needed}) {rule.get('description', '')}".rstrip())
            lines += _describe_items(rule, definitions)
        return "\n".join(lines)


def _kinds(rule: Mapping[str, Any], definitions: Mapping[str, Any]) -> Sequence[str]:
    """Return what a value may be: its values where they are listed, else its type."""
    rule = definitions.get(rule.get("$ref", "").rpartition("/")[2], rule)
    return rule.get("enum") or [str(rule.get("type", "any"))]


def _describe_items(rule: Mapping[str, Any], definitions: Mapping[str, Any]) -> list[str]:
    """Return a line for each field of the objects in a list, where the package describes them."""
    lines = []
    items = rule.get("items", {})
    for each in items.get("anyOf", [items]):
        fields = definitions.get(each.get("$ref", "").rpartition("/")[2], {}).get("properties", {})
        for name, of in fields.items():
            kinds = " or ".join(_kinds(of, definitions))
            lines.append(f"        {name} ({kinds}) {of.get('description', '')}".rstrip())
    return lines


class TaskList(tuple[Task, ...], Ordered):
    """Tasks in the order of their file."""

    name = "tau2"


class DomainTasks:
    """The tasks of an environment, of which it plays one at a time."""

    tasks: TaskList
    _index: int

    @property
    def task(self) -> Task:
        """The running task, as the package has it."""
        return self.tasks[self._index]

    def find_index(self, seed: int) -> int:
        """Return which task a seed plays."""
        return index_at(self.tasks, 0, seed)

    def seed_of(self, index: int) -> int:
        """Return the seed from 0 to n - 1 that plays task `index`."""
        return self.tasks.order(0).index(index)

    def instance(self) -> str:
        """Return the id of the task."""
        return str(self.task.id)


class LentTable(dict[str, Any]):
    """A table of a shared database, whose rows are copied when they are first asked for.

    So a fresh world costs a copy of references, and no change reaches the shared rows. Walks over all rows
    give the shared ones: the package's tools only read there.
    """

    def __init__(self, rows: Mapping[str, Any]) -> None:
        """Lend `rows`."""
        super().__init__(rows)
        self.own: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        row = super().__getitem__(key)
        if key not in self.own:
            self[key] = row = deepcopy(row)
        return row

    def __setitem__(self, key: str, row: Any) -> None:
        super().__setitem__(key, row)
        self.own.add(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return a row, or `default`."""
        return self[key] if key in self else default  # noqa: SIM401  get() is this function

    def __deepcopy__(self, memo: dict[int, Any]) -> LentTable:
        twin = LentTable(self)
        for key in self.own:
            twin[key] = deepcopy(super().__getitem__(key), memo)
        return twin

    def __reduce__(self) -> Any:
        return _restore_table, (dict(self), self.own)

    def rows_equal(self, other: LentTable) -> bool:
        """Return whether two tables that were lent by one database hold the same."""
        return self.keys() == other.keys() and all(
            write_row(dict.__getitem__(self, key)) == write_row(dict.__getitem__(other, key))
            for key in self.own | other.own
        )


def _restore_table(rows: Mapping[str, Any], own: set[str]) -> LentTable:
    table = LentTable(rows)
    table.own = own
    return table


def write_row(row: BaseModel) -> str:
    """Return a part of a database as the text whose digest the package compares."""
    return json.dumps(row.model_dump(warnings=False), sort_keys=True, default=str)


@dataclass(frozen=True, slots=True)
class Domain:
    """What a domain's folder holds; shared by all episodes, never changed."""

    name: str
    tasks: tuple[Task, ...]
    splits: Mapping[str, frozenset[str]]
    policy: str
    database: Any
    phone: TelecomUserDB | None
    tools: tuple[PackageTool, ...]
    user_tools: tuple[PackageTool, ...]
    guidelines: str
    version: str

    def make_world(self, task: Task, *, solo: bool = False) -> Any:
        """Return the package's environment at the beginning of a task."""
        world = self._make_untouched()
        world.solo_mode = solo
        first = task.initial_state
        if first is not None:
            world.set_state(
                first.initialization_data, first.initialization_actions, list(first.message_history or [])
            )
        return world

    def _make_untouched(self) -> Any:
        if self.name.startswith("telecom"):
            return TelecomEnvironment(
                "telecom",
                self.policy,
                TelecomTools(deepcopy(self.database)),
                TelecomUserTools(deepcopy(self.phone)),
            )
        kind = type(self.database)
        lent = {table: LentTable(getattr(self.database, table)) for table in kind.model_fields}
        return Environment(self.name, self.policy, _TOOLKITS[self.name](kind.model_construct(**lent)))

    @property
    def disputed(self) -> tuple[str, ...]:
        """The tasks that pay for doing nothing."""
        return TAU2_DISPUTED.get(self.name, ())

    def choose_tasks(self, split: Split | None, exclude: Exclude | None) -> TaskList:
        """Return the tasks of a split; None is all.

        Raises:
            BadArgument: for another split or exclude.
        """
        check_split(split, exclude)
        left_out = self.disputed if exclude else ()
        return TaskList(
            task
            for task in self.tasks
            if task.id not in left_out and (split is None or task.id in self.splits[split])
        )


_DATABASES = {"airline": FlightDB, "retail": RetailDB}
_TOOLKITS = {"airline": AirlineTools, "retail": RetailTools}
_POLICIES = {
    "airline": ("policy.md",),
    "retail": ("policy.md",),
    "telecom": ("main_policy.md", "tech_support_manual.md"),
    "telecom-solo": ("main_policy_solo.md", "tech_support_manual.md"),
}


def read_domain(name: str) -> Domain:
    """Return a domain from the package's folder of data, or from the one in the variable TAU2_DATA_DIR.

    Raises:
        BadArgument: for data that do not fit the package. MissingData: where a file is missing.
    """
    return _read_domain(name, Path(os.environ.get("TAU2_DATA_DIR") or DATA_DIR))


@functools.cache
def _read_domain(name: str, folder: Path) -> Domain:
    domain = name.removesuffix("-solo")
    place = folder / "tau2/domains" / domain
    digest = sha256()

    def read(file: Path) -> str:
        try:
            raw = file.read_bytes()
        except OSError as error:
            raise MissingData(
                f"{file} cannot be read: {error.strerror}. TAU2_DATA_DIR names a folder of "
                "tau2-bench's data; unset it to play with those of the wheel."
            ) from error
        digest.update(raw)
        return raw.decode()

    phone, user_tools, guide = None, [], "simulation_guidelines.md"
    try:
        listed = json.loads(read(place / "split_tasks.json"))
        splits = {split: frozenset(ids) for split, ids in listed.items()}
        tasks = tuple(
            Task.model_validate(each)
            for each in json.loads(read(place / "tasks.json"))
            if each["id"] in splits["base"]
        )
        if domain == "telecom":
            database = TelecomDB.model_validate(tomllib.loads(read(place / "db.toml")))
            phone = TelecomUserDB.model_validate(tomllib.loads(read(place / "user_db.toml")))
            world = TelecomEnvironment("telecom", "", TelecomTools(database), TelecomUserTools(phone))
            user_tools, guide = _describe_all(world.get_user_tools()), "simulation_guidelines_tools.md"
        else:
            database = _DATABASES[domain].model_validate(json.loads(read(place / "db.json")))
            world = Environment(domain, "", _TOOLKITS[domain](database))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadArgument(
            f"the data in {place} do not fit {KNOWN['tau2'].wheel}: {str(error)[:300]} Accepted: data of its "
            "format."
        ) from error
    policies = [read(place / each) for each in _POLICIES[name]]
    if len(policies) > 1:  # the tags are the package's
        tags = ("main_policy", "tech_support_policy")
        policies = [f"<{tag}>\n{text}\n</{tag}>" for tag, text in zip(tags, policies, strict=True)]
    tools = _describe_all(world.get_tools())
    if name == "telecom-solo":
        tools, user_tools = [*tools, *user_tools], []
    guidelines = "" if name == "telecom-solo" else read(folder / "tau2/user_simulator" / guide)
    wheel, _, version = KNOWN["tau2"].wheel.partition("==")
    return Domain(
        name=name,
        tasks=tasks,
        splits=splits,
        policy="\n".join(policies),
        database=database,
        phone=phone,
        tools=tuple(tools),
        user_tools=tuple(user_tools),
        guidelines=guidelines,
        version=f"{wheel} {version}" if folder == DATA_DIR else f"sha256:{digest.hexdigest()}",
    )


def _describe_all(tools: Sequence[Any]) -> list[PackageTool]:
    return [PackageTool(tool.openai_schema["function"]) for tool in tools]


# -- playing


class Play:
    """One play of a task: its world, the calls made in it, and how far they follow the reference."""

    def __init__(self, domain: Domain, task: Any, seed: int, *, solo: bool = False) -> None:
        """Begin with a fresh world; `seed` determines the ids of what is new in it."""
        self.domain, self.task = domain, task
        self.world = domain.make_world(task, solo=solo)
        self.ids = seeding.stream(seed, "ids")
        self.calls: list[ToolCall] = []
        self.errors = self._followed = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Play:
        twin = object.__new__(Play)
        for name, value in vars(self).items():
            setattr(twin, name, value if name in ("domain", "task") else deepcopy(value, memo))
        return twin

    @property
    def reference(self) -> Any:
        """The next call of the task's reference; None when it was followed to its end."""
        gold = self.task.evaluation_criteria.actions or []
        return gold[self._followed] if self._followed < len(gold) else None

    def call(self, name: str, arguments: Mapping[str, Any], seat: str = "assistant") -> tuple[str, bool]:
        """Let the package carry out a call; return what it gave as text, and whether it failed."""
        made = ToolCall(name=name, arguments=dict(arguments), requestor=seat)
        token = _id_stream.set(self.ids)
        try:  # not its get_response, which fails on a row that a call has filled with values of other types
            given = self.world.make_tool_call(name, requestor=seat, **made.arguments)
            self.world.sync_tools()
            text = given if isinstance(given, str) else json.dumps(_plain(given), default=str)
            failed = False
        except Exception as error:  # as the package: whatever a tool raises is what the caller reads
            text, failed = f"Error: {error}", True
        finally:
            _id_stream.reset(token)
        self.calls.append(made)
        self.errors += failed
        following = self.reference
        if following is not None and (name, made.arguments) == (following.name, following.arguments):
            self._followed += 1
        return printable(text), failed

    def judge(
        self, messages: Sequence[tuple[str, str]] = (), grader: Grader | None = None
    ) -> dict[str, float]:
        """Return the parts of the reward that the task names, each 0 or 1, from the final world.

        Args:
            messages: who said what, in order.
            grader: what judges assertions in words.

        Raises:
            NoVerdict: where the task counts assertions in words and there is no grader.
        """
        criteria = self.task.evaluation_criteria
        parts: dict[str, float] = {}
        for basis in criteria.reward_basis:
            match basis.value:
                case "DB":
                    holds = self._left_the_right_database()
                case "ENV_ASSERTION":
                    asserted = [
                        self.world.run_env_assertion(each, raise_assertion_error=False)
                        for each in criteria.env_assertions or []
                    ]
                    holds = all(asserted)
                case "ACTION":
                    holds = all(
                        any(map(gold.compare_with_tool_call, self.calls)) for gold in criteria.actions or []
                    )
                case "COMMUNICATE":
                    spoken = [text.lower().replace(",", "") for seat, text in messages if seat == "agent"]
                    holds = all(
                        any(each.lower() in text for text in spoken)
                        for each in criteria.communicate_info or []
                    )
                case other:
                    if other != "NL_ASSERTION" or grader is None:
                        raise NoVerdict(
                            f"the task {self.task.id!r} counts {other}; accepted: ENV_ASSERTION, ACTION, DB, "
                            "COMMUNICATE, and NL_ASSERTION with a judge."
                        )
                    talk = "\n".join(f"{seat}: {text}" for seat, text in messages)
                    holds = all(
                        grade_with(grader, talk, None, each).correct for each in criteria.nl_assertions or []
                    )
            parts[basis.value] = float(holds)
        return parts

    def _left_the_right_database(self) -> bool:
        """Return whether the databases are those that the reference's calls leave."""
        gold = self.domain.make_world(self.task)
        for action in self.task.evaluation_criteria.actions or []:
            with suppress(Exception):  # as the package: some references make calls that fail
                gold.make_tool_call(action.name, requestor=action.requestor, **action.arguments)
        try:
            return all(
                left is None or _hold_the_same(left.db, right.db)
                for left, right in ((self.world.tools, gold.tools), (self.world.user_tools, gold.user_tools))
            )
        except (ValueError, RecursionError):  # a call has put values there that cannot be written
            return False


def _plain(given: Any) -> Any:
    """Return what a tool gave as JSON values; numbers outside of rows become text, as in the package."""
    if isinstance(given, BaseModel):
        return given.model_dump(warnings=False)
    if isinstance(given, Mapping):
        return {key: _plain(each) for key, each in given.items()}
    if isinstance(given, list | tuple):
        return [_plain(each) for each in given]
    return str(given) if isinstance(given, int | float) else given


def _hold_the_same(left: Any, right: Any) -> bool:
    """Return whether two databases hold the same; in lent tables only rows that were asked for can differ."""
    tables = [(getattr(left, name), getattr(right, name)) for name in type(left).model_fields]
    if all(isinstance(each, LentTable) for pair in tables for each in pair):
        return all(table.rows_equal(other) for table, other in tables)
    return write_row(left) == write_row(right)


def draw_arguments(domain: Domain, tool: PackageTool, rng: Random) -> dict[str, Any]:
    """Return arguments of a call that is legal in form, with ids of a random row of the database."""
    words = _ids_of(domain, rng)
    values = {"number": 2.0, "integer": 2, "object": {}, "array": [], "boolean": True}
    return {
        name: values.get(rule.get("type", ""), rng.choice(words))
        for name, rule in tool.described.get("properties", {}).items()
    }


def _ids_of(domain: Domain, rng: Random) -> Sequence[str]:
    if domain.phone is not None:
        customer = rng.choice(domain.database.customers)
        return (customer.customer_id, customer.phone_number, *customer.line_ids, *customer.bill_ids)
    user = domain.database.users[rng.choice(list(domain.database.users))]
    return (user.user_id, *user.payment_methods, *getattr(user, "reservations", getattr(user, "orders", ())))
