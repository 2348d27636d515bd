"""Bridge to multi-turn categories of the Berkeley Function-Calling Leaderboard v4, in the family ``bfcl:``.

Conversations, functions, their code and the reference calls are the package's. gem reads the calls, runs them
on objects of its own, and compares: the package evaluates a model's text as Python, and keeps its objects in
module globals.
"""

from __future__ import annotations

import ast
import copy
import decimal
import functools
import inspect
import json
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar

from gem.content import ToolSpec, written_tools
from gem.core import Env, Start, Step
from gem.envs.bridges.specs import BFCL_DISPUTED
from gem.envs.kit.splits import Exclude, Split, check_split, split_of
from gem.envs.kit.workspace import TurnReport, WorkCall
from gem.errors import BadArgument, NoSolver, did_you_mean
from gem.parsing import code, drop_closed_thinking
from gem.record import StopReason
from gem.tasks.order import Order
from gem.tools import calls
from gem.worlds import find, import_world

import_world("bfcl")

import mpmath  # noqa: E402
from bfcl_eval.constants.executable_backend_config import (  # noqa: E402
    CLASS_FILE_PATH_MAPPING,
    MULTI_TURN_FUNC_DOC_FILE_MAPPING,
    STATELESS_CLASSES,
)

MAX_STEPS = 20
"""The most steps with calls in one turn of the user, as in the package; one more fails the conversation."""

MAX_CALLS = 200
"""The most calls in a conversation; the references have at most 35. One more fails it."""

_MAX_TEXT = 20_000
_MAX_ENTRIES, _MAX_DEPTH = 20_000, 100
_MAX_BITS, _MAX_PRECISION = 20_000, 1000

_HOW_TO_CALL = (
    "Write your calls as a Python list and nothing else: [name(argument=value, ...), ...], with literal "
    "values. You then read their results and may call again. An answer without a call ends your turn."
)
_NEW_FUNCTIONS = "There are more functions now. Please go on with my request."

_lock = threading.Lock()
"""Held while calls are read, since filters of warnings are global, and while they run: the package changes
globals of its modules and mpmath's precision."""


class BfclTasks(Env):
    """A category of the leaderboard: its tasks, their splits, and the functions that can be called."""

    shared: ClassVar[tuple[str, ...]] = ("_tasks",)

    answer_marks = ("```python",)

    def __init__(
        self,
        name: str,
        split: Split | None = None,
        task: str | None = None,
        exclude: Exclude | None = None,
    ) -> None:
        """Choose the tasks.

        Args:
            name: the category, as ``multi_turn_base``.
            split: tasks for training, or for testing: one in five, by a digest of its number or its
                functions. None takes all.
            task: the package's id of one task, as ``multi_turn_base_17``. None: the seed chooses.
            exclude: ``disputed`` leaves out `BFCL_DISPUTED`, which cannot be solved from what is shown.

        Raises:
            MissingExtra: where the world was not fetched. BadArgument: for a value that is not accepted.
        """
        check_split(split, exclude)
        rows = read_rows(name)
        if task is not None and task not in rows:
            first, *_, last = rows
            raise BadArgument(f"no task {task!r:.80}.{did_you_mean(task, rows)} There are {first} to {last}.")
        if task is not None and split not in (None, _split_of(task)):
            raise BadArgument(f"{task} is a {_split_of(task)} task; accepted: that split, or None.")
        self.name = name
        left_out = self.disputed if exclude else ()
        drawn = [each for each in rows if split in (None, _split_of(each)) and each not in left_out]
        self._tasks = [task] if task else drawn
        self.task = ""

    @property
    def disputed(self) -> tuple[str, ...]:
        """The tasks that ``exclude="disputed"`` leaves out."""
        return tuple(each for each in read_rows(self.name) if each in BFCL_DISPUTED)

    @property
    def tool_specs(self) -> tuple[ToolSpec, ...]:  # type: ignore[override]
        """The functions that can be called now."""
        return tuple(_tool(each) for each in self.functions()) if self.task else ()

    def functions(self) -> list[Mapping[str, Any]]:
        """Return the descriptions of the functions that can be called now."""
        raise NotImplementedError

    def sample_random_action(self) -> str:
        """Call a random function with words of the user, or say something; see Env.sample_random_action."""
        rng, functions = self.actor_rng, self.functions()
        if rng.random() < 0.4 or not functions:
            return "That is all."
        function = rng.choice(functions)
        words = self._request().replace("'", " ").split()
        given = []
        for name in function["parameters"]["required"]:
            kind = function["parameters"]["properties"][name]["type"]
            drawn = {
                "string": rng.choice(words),
                "boolean": rng.random() < 0.5,
                "array": [rng.choice(words)],
                "dict": {},
            }
            given.append(f"{name}={drawn.get(kind, rng.randint(0, 9))!r}")
        return f"[{function['name']}({', '.join(given)})]"

    def _draw(self) -> None:
        """Choose the task of the episode's seed."""
        order = Order(len(self._tasks), 0)
        self.task = self._tasks[order[self._need_seed() % len(self._tasks)]]

    @property
    def _row(self) -> Mapping[str, Any]:
        return read_rows(self.name)[self.task]

    def _request(self) -> str:
        """Return what the user says now."""
        raise NotImplementedError


class BfclEnv(BfclTasks):
    r"""Serve a user with functions, over several turns of a conversation.

    Task:
        A conversation of the category `name`. In each turn the user asks for something that calls of the
        functions do: on files, tickets, messages, orders, bookings, a car. In ``multi_turn_miss_func`` a
        function that is needed comes one turn late, in ``multi_turn_miss_param`` a value; results are much
        longer in ``multi_turn_long_context``.
    Action:
        ``[name(argument=value), ...]``, or the same calls as native tool calls. They are run in order. An
        answer without a call ends the turn. Values are literals; a call within a call is refused.
    Observation:
        The functions and the user's first request; then the results of the calls, or the next request.
    Reward:
        1 where every turn left the state that the reference's calls leave, and the results so far contain
        those of the reference, as in the package's checker; else 0.
    End:
        After the first turn that is wrong, or the last; after 20 steps with calls in a turn.
    Source:
        bfcl-eval 2026.3.23 (Apache-2.0), S. G. Patil and others, Berkeley Function-Calling Leaderboard.
    """

    def reset(self, seed: int | None = None) -> Start:
        """Begin a conversation; see Env.reset."""
        super().reset(seed)
        self._draw()
        self.turn = self._steps = self._calls = 0
        self._asked = self._followed = False
        self._heard: list[str] = []
        self._apis, self._reference = (_make_apis(self._row, self.name) for _ in range(2))
        functions = describe_functions(self.functions())
        return Start(
            f"You serve a user by calling functions. You can call these:\n\n{functions}\n\n{_HOW_TO_CALL}"
            f"\n\nThe user: {self._request()}",
            {},
        )

    def step(self, action: str) -> Step:
        """Run the calls of a step, or end the turn where there are none; see Env.step."""
        asked, report = _read_calls(action), TurnReport()
        if not asked:
            return self._end_turn(report)
        self._followed = self._followed or action == _write(self._references())
        self._asked = self._asked or any(call.name for call in asked)
        self._steps += 1
        self._calls += len(asked)
        if self._steps > MAX_STEPS or self._calls > MAX_CALLS:
            return self._finish(report, f"more than {MAX_STEPS} steps in a turn or {MAX_CALLS} calls in all")
        legal = False
        offered = [each["name"] for each in self.functions()]
        known = {each["name"] for each in self._functions(len(self._row["question"]))}  # those to come too,
        for call in asked:  # as in the package: one reference calls a function before it is shown
            wrong = call.wrong
            if not wrong and call.name not in known:
                wrong = f"There is no function {call.name!r:.60}.{did_you_mean(call.name[:60], offered)}"
            if wrong:
                report.result(call, wrong, error=True)
                continue
            text = _call(self._apis, call.name, call.arguments)
            if not _is_small(self._apis):
                return self._finish(report, "the file system grew too large")
            self._heard.append(text)
            legal = True
            report.result(call, text, error=text.startswith("Error"))
        return Step(report.obs, 0.0, False, False, report.info | ({} if legal else {"legal": False}))

    def solve(self) -> str:
        """Return the reference's calls of this turn, then an answer that ends it (an oracle)."""
        if not self.task:
            raise NoSolver(f"{self} has nothing to solve before reset().")
        references = self._references()
        return _write(references) if references and not self._followed else "That is all I can do for now."

    # -- the conversation

    def functions(self) -> list[Mapping[str, Any]]:
        """Return the descriptions of the functions that are offered in this turn."""
        return self._functions(self.turn)

    def _references(self) -> Sequence[str]:
        references: Sequence[str] = read_references(self.name)[self.task][self.turn]
        return references

    def _functions(self, turn: int) -> list[Mapping[str, Any]]:
        """Return the descriptions of the functions that may be called in a turn."""
        late = {name for at, names in self._late().items() if at > turn for name in names}
        described = [each for name in self._row["involved_classes"] for each in _read_functions(name)]
        return [each for each in described if each["name"] not in late]

    def _late(self) -> dict[int, list[str]]:
        return {int(at): names for at, names in self._row.get("missed_function", {}).items()}

    def _request(self) -> str:
        """Return what the user says at the beginning of this turn."""
        messages = self._row["question"][self.turn]
        new = self._late().get(self.turn, ())
        if not new:
            return "\n".join(each["content"] for each in messages)
        described = [each for each in self.functions() if each["name"] in new]
        return f"{_NEW_FUNCTIONS}\n\n{describe_functions(described)}\n\n{_HOW_TO_CALL}"

    def _end_turn(self, report: TurnReport) -> Step:
        """Compare with the reference, and go on to the user's next request or end."""
        references = self._references()
        right = [_call(self._reference, *_read_reference(text)) for text in references]
        if references and not self._asked:
            return self._finish(report, f"no call was made in turn {self.turn + 1}")
        if references and (different := _compare(self._apis, self._reference)):
            return self._finish(report, f"the state differs after turn {self.turn + 1}: {different}")
        if references and not _contains(self._heard, right):
            return self._finish(report, f"results that turn {self.turn + 1} needs are missing")
        self.turn += 1
        if self.turn == len(self._row["question"]):
            return self._finish(report)
        self._steps, self._asked, self._followed = 0, False, False
        report.add(f"The user: {self._request()}")
        late = {"tools": written_tools(self.tool_specs)} if self.turn in self._late() else {}
        return Step(report.obs, 0.0, False, False, report.info | late)

    def _finish(self, report: TurnReport, why: str = "") -> Step:
        """End the conversation."""
        report.add("The user is not served." if why else "The user is served.")
        stop = StopReason.FAILED if why else StopReason.SOLVED
        info = {**report.info, "success": not why, "stop": stop.value, "turns_right": self.turn}
        return Step(report.obs, float(not why), True, False, info | ({"why": why} if why else {}))


# -- the package's data


def _data(*path: str) -> list[dict[str, Any]]:
    place = find("bfcl")
    assert place is not None
    text = place.joinpath("bfcl_eval", "data", *path).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@functools.cache
def read_rows(name: str) -> dict[str, dict[str, Any]]:
    """Return the tasks of a category by id."""
    return {row["id"]: row for row in _data(f"BFCL_v4_{name}.json")}


@functools.cache
def read_references(name: str) -> dict[str, list[Any]]:
    """Return the reference's calls by id: per turn where there are several, else what is accepted."""
    return {row["id"]: row["ground_truth"] for row in _data("possible_answer", f"BFCL_v4_{name}.json")}


@functools.cache
def _read_functions(api: str) -> list[dict[str, Any]]:
    """Return the descriptions of the functions of a class."""
    return _data("multi_turn_func_doc", MULTI_TURN_FUNC_DOC_FILE_MAPPING[api])


def _split_of(task: str) -> Split:
    """Return the split of a task: by its number, since categories vary the same conversations.

    A live task, as ``live_simple_3-2-1``, goes by the middle number: others have the same functions.
    """
    number = task.rpartition("_")[2]
    return split_of(number.split("-")[1] if "-" in number else number)


def describe_functions(functions: Sequence[Mapping[str, Any]]) -> str:
    """Return descriptions of functions as text, a line each."""
    return "\n".join(
        json.dumps({k: each[k] for k in ("name", "description", "parameters")}) for each in functions
    )


def _tool(function: Mapping[str, Any]) -> ToolSpec:
    return ToolSpec(function["name"], function["description"], _schema(function["parameters"]))


def _schema(rule: Any) -> Any:
    """Return a description of parameters as a JSON Schema."""
    if not isinstance(rule, Mapping):
        return rule
    kinds = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
    return {
        key: kinds.get(value, value)
        if key == "type" and isinstance(value, str)
        else {name: _schema(each) for name, each in value.items()}
        if key == "properties"
        else _schema(value)
        for key, value in rule.items()
    }


# -- calls


def _write(texts: Sequence[str]) -> str:
    return f"[{', '.join(texts)}]"


def _read_calls(action: str) -> list[WorkCall]:
    """Return the calls of an answer: JSON calls in their tag, or a Python list; [] where there is none."""
    tagged = calls.find(action, ())
    if tagged:
        return [
            WorkCall(each.call.name, dict(each.call.arguments))
            if each.call
            else WorkCall("", wrong=each.error)
            for each in tagged
        ]
    text, is_list = find_list(action)
    try:
        parsed = parse_expression(text)
        if not isinstance(parsed, ast.List):
            raise ValueError("it is no list")
        return [WorkCall(*_literal_call(each)) for each in parsed.elts]
    except UNREADABLE as error:
        if not is_list:
            return []
        return [WorkCall("", wrong=f"Your calls could not be read: {str(error)[:120]}. {_HOW_TO_CALL}")]


UNREADABLE = (ValueError, SyntaxError, RecursionError, MemoryError, TypeError)
"""What reading hostile text as Python raises."""


def find_list(action: str) -> tuple[str, bool]:
    """Return what may be a list of calls in an answer, in brackets, and whether it had them."""
    text = drop_closed_thinking(action)
    text = (code(text) or text).strip("`\n ")
    begun, ended = text.startswith("["), text.endswith("]")
    return f"{'' if begun else '['}{text}{'' if ended else ']'}", begun and ended


def parse_expression(text: str) -> ast.expr:
    """Parse a Python expression. Raises one of UNREADABLE; ValueError for a text that is too long."""
    if len(text) > _MAX_TEXT:
        raise ValueError(f"it is longer than {_MAX_TEXT} characters")
    with _lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of backslashes in the text
        return ast.parse(text, mode="eval").body


def _literal_call(node: ast.expr) -> tuple[str, dict[str, Any]]:
    """Return a call's name and arguments; those without a name are under their number.

    Raises:
        ValueError: for anything but a call of a name with literals.
    """
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError("every element is a call, as name(argument=value)")
    arguments: dict[str, Any] = {str(at): ast.literal_eval(each) for at, each in enumerate(node.args)}
    for each in node.keywords:
        if each.arg is None or each.arg in arguments:
            raise ValueError("every argument has one name")
        arguments[each.arg] = ast.literal_eval(each.value)
    return node.func.id, arguments


@functools.lru_cache(maxsize=8192)
def _read_reference(text: str) -> tuple[str, dict[str, Any]]:
    return _literal_call(parse_expression(text))


def _make_apis(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the objects of a conversation by class, in their first state."""
    apis = {}
    for api in row["involved_classes"]:
        made = getattr(import_module(CLASS_FILE_PATH_MAPPING[api]), api)()
        if api not in STATELESS_CLASSES:
            scenario = copy.deepcopy(row["initial_config"].get(api, {}))
            made._load_scenario(scenario, long_context=name.endswith("long_context"))
        apis[api] = copy.deepcopy(made)  # its parts are the package's own lists, which others share
    return apis


def _call(apis: Mapping[str, Any], name: str, arguments: Mapping[str, Any]) -> str:
    """Run a call, and return its result as the package writes it; the last class with the name has it."""
    owner = next(each for each in [*apis.values()][::-1] if callable(getattr(each, name, None)))
    given = copy.deepcopy(dict(arguments))
    positional = [given.pop(key) for key in [*given] if key.isdigit()]
    with _lock, mpmath.workdps(15), decimal.localcontext():
        try:
            method = getattr(owner, name)
            _check_numbers(name, inspect.signature(method).bind(*positional, **given).arguments)
            result = method(*positional, **given)
            if isinstance(result, dict):
                try:
                    return json.dumps(result)
                except (TypeError, ValueError):
                    return str(result)
            return str(result)
        except Exception as error:  # the functions raise anything on arguments of the wrong type
            return f"Error during execution: {error}"


def _check_numbers(name: str, arguments: Mapping[str, Any]) -> None:
    """Refuse numbers with which the arithmetic would not end.

    Raises:
        ValueError: for such a number.
    """
    numbers = {key: value for key, value in arguments.items() if isinstance(value, int)}
    for key, value in numbers.items():
        if value.bit_length() > _MAX_BITS or (
            key in ("precision", "decimal_places") and abs(value) > _MAX_PRECISION
        ):
            raise ValueError(f"{key} is too large")
    sized = numbers.keys() == {"base", "exponent"}
    if name == "power" and sized and numbers["base"].bit_length() * numbers["exponent"] > _MAX_BITS:
        raise ValueError("the result is too large")


def _is_small(apis: Mapping[str, Any]) -> bool:
    """Return whether the tree of files can be walked: copies share folders, so it can grow without end."""
    files = apis.get("GorillaFileSystem")
    return files is None or all(
        depth <= _MAX_DEPTH and count <= _MAX_ENTRIES for count, depth in _walk(files.root)
    )


def _walk(root: Any) -> Iterator[tuple[int, int]]:
    """Yield the number so far and the depth of each entry of a tree of folders."""
    waiting, count = [(root, 0)], 0
    while waiting:
        entry, depth = waiting.pop()
        count += 1
        yield count, depth
        waiting += [(each, depth + 1) for each in getattr(entry, "contents", {}).values()]


def _compare(apis: Mapping[str, Any], reference: Mapping[str, Any]) -> str:
    """Return which public attribute differs, or ''."""
    for api, right in reference.items():
        for name, value in vars(right).items():
            if not name.startswith("_") and getattr(apis[api], name) != value:
                return f"{name} of {api}"
    return ""


def _contains(heard: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether each wanted result was heard, as often as it is wanted."""
    left = list(heard)
    for each in wanted:
        if each not in left:
            return False
        left.remove(each)
    return True
