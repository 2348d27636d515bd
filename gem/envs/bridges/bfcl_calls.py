"""Single-turn categories of the Berkeley Function-Calling Leaderboard v4, in the family ``bfcl:``.

Requests, functions, reference answers and the checker are the package's. gem reads the calls: the package
evaluates arithmetic in a model's text as Python, and its checker has patterns that take time without end.
"""

from __future__ import annotations

import ast
import copy
import operator
from collections.abc import Mapping, Sequence
from keyword import iskeyword
from types import SimpleNamespace
from typing import Any

from gem.content import ToolSpec
from gem.core import Start, Step
from gem.envs.bridges.bfcl import (
    UNREADABLE,
    BfclTasks,
    describe_functions,
    find_list,
    parse_expression,
    read_references,
)
from gem.envs.kit.workspace import write_call
from gem.errors import NoSolver
from gem.record import StopReason
from gem.tools import calls
from gem.worlds import import_world

import_world("bfcl")

from bfcl_eval.constants.enums import Language  # noqa: E402
from bfcl_eval.eval_checker.ast_eval import ast_checker  # noqa: E402
from bfcl_eval.eval_checker.ast_eval.type_convertor import js_type_converter  # noqa: E402

ast_checker.MODEL_CONFIG_MAPPING = {"": SimpleNamespace(underscore_to_dot=False)}
js_type_converter.print = lambda *text: None  # it tells of each value that it cannot read

Calls = list[dict[str, dict[Any, Any]]]
"""Calls as the package's checker takes them: a function's name and its arguments each."""

_HOW_TO_CALL = (
    "Write your calls as a Python list and nothing else: [name(argument=value, ...), ...]. You have one "
    "answer, and read no results. Where no function fits, or a value that is needed is missing, say so."
)
_LANGUAGES = {"simple_java": Language.JAVA, "simple_javascript": Language.JAVASCRIPT}
_MAX_LITERAL, _MAX_BLANKS, _MAX_BRACKETS = 1000, 20, 12
_MAX_NUMBER = 2**64


class BfclCallsEnv(BfclTasks):
    r"""Answer a request with calls of functions, in one turn.

    Task:
        A request of the category `name`, with one function or several: the right one has to be called, once
        (``simple``, ``multiple``) or several times (``parallel``), with the values that the request says. In
        ``irrelevance`` no call is right, in ``live_relevance`` any call is. ``live`` requests are of users.
    Action:
        ``[name(argument=value), ...]``, or the same calls as native tool calls.
    Observation:
        The functions and the request. In ``simple_java`` and ``simple_javascript`` values are strings with
        code of that language.
    Reward:
        1 where the package's checker accepts the calls, else 0.
    End:
        After one answer.
    Source:
        bfcl-eval 2026.3.23 (Apache-2.0), S. G. Patil and others, Berkeley Function-Calling Leaderboard.
    """

    max_turns = 1

    @property
    def tool_specs(self) -> tuple[ToolSpec, ...]:  # type: ignore[override]
        """The functions that can be called; natively a dot in a name is an underscore, as in the package."""
        return tuple(
            ToolSpec(_native_name(each.name), each.description, each.schema) for each in super().tool_specs
        )

    def functions(self) -> list[Mapping[str, Any]]:
        """Return the descriptions of the functions, as they are shown."""
        functions: list[Mapping[str, Any]] = self._row["function"]
        language = _LANGUAGES.get(self.name)
        return [_as_strings(each, language) for each in functions] if language else functions

    def reset(self, seed: int | None = None) -> Start:
        """Draw a request; see Env.reset."""
        super().reset(seed)
        self._draw()
        functions = describe_functions(self.functions())
        return Start(
            f"You answer a user by calling functions. You can call these:\n\n{functions}\n\n{_HOW_TO_CALL}"
            f"\n\n{self._request()}",
            {},
        )

    def step(self, action: str) -> Step:
        """Score the calls; see Env.step."""
        made = read_calls(action, self._row["function"])
        why = self._check(made)
        stop = StopReason.FAILED if why else StopReason.SOLVED
        info = {"success": not why, "stop": stop.value} | ({"why": why} if why else {})
        return Step(f"The user is {'not ' if why else ''}served.", float(not why), True, False, info)

    def solve(self) -> str:
        """Return the reference answer (an oracle); the checker refuses those of `BFCL_UNSOLVED`."""
        if not self.task:
            raise NoSolver(f"{self} has nothing to solve before reset().")
        if "irrelevance" in self.name:
            return "None of these functions can do that with what you said."
        functions = {each["name"]: each for each in self._row["function"]}
        if "relevance" in self.name:
            return f"[{next(iter(functions))}()]"
        written = list[tuple[str, dict[str, Any]]]()
        for reference in read_references(self.name)[self.task]:
            for name, answers in reference.items():
                rules = functions[name]["parameters"]
                kinds, needed = rules["properties"], rules["required"]
                values = {key: _choose(answers[key], "" if key in needed else _LEFT_OUT) for key in answers}
                given = {k: each for k, each in values.items() if each is not _LEFT_OUT and k in kinds}
                if language := _LANGUAGES.get(self.name):
                    given = {key: _write_literal(value, kinds[key], language) for key, value in given.items()}
                written.append((name, given))
        if any(iskeyword(key) for _, given in written for key in given):
            return "".join(write_call(*each) for each in written)
        texts = (f"{name}({', '.join(f'{k}={v!r}' for k, v in given.items())})" for name, given in written)
        return f"[{', '.join(texts)}]"

    def _request(self) -> str:
        return "\n".join(f"The {each['role']}: {each['content']}" for each in self._row["question"][0])

    def _check(self, made: Calls | None) -> str:
        """Return why the package's checker refuses the calls, or ''."""
        if "relevance" in self.name:
            return "" if bool(made) is ("irrelevance" not in self.name) else "a call" if made else "no call"
        if made is None:
            return "the calls could not be read"
        language = _LANGUAGES.get(self.name, Language.PYTHON)
        if language is not Language.PYTHON and not all(map(_is_quick, made)):
            return "a value is too long, or nested too deeply"
        references = read_references(self.name)[self.task]
        try:
            verdict = ast_checker.ast_checker(
                self._row["function"], made, references, language, self.name, ""
            )
        except Exception as error:  # it expects what the functions' descriptions say
            return f"the checker cannot read a value: {error!r:.80}"
        return "" if verdict["valid"] else str(verdict["error_type"])


# -- calls


def read_calls(action: str, functions: Sequence[Mapping[str, Any]]) -> Calls | None:
    """Return the calls of an answer as the package decodes them; None where it does not.

    JSON calls in their tag may name a function by its native name.
    """
    tagged = calls.find(action, ())
    if tagged:
        names = {_native_name(each["name"]): each["name"] for each in functions}
        made = [each.call for each in tagged if each.call]
        if len(made) < len(tagged):
            return None
        return [{names.get(each.name, each.name): dict(each.arguments)} for each in made]
    try:
        parsed = parse_expression(find_list(action)[0])
        nodes = parsed.elts if isinstance(parsed, ast.List | ast.Tuple | ast.Set) else [parsed]
        return [_read_call(each) for each in nodes]
    except (*UNREADABLE, ArithmeticError):
        return None


def _native_name(name: str) -> str:
    return name.replace(".", "_")


def _read_call(node: ast.expr | None) -> dict[str, dict[Any, Any]]:
    """Return a call as the package decodes it: values without a name are left out.

    Raises:
        ValueError: for what is no call, or has a value that the package cannot read.
    """
    if not isinstance(node, ast.Call):
        raise ValueError("it is no call")
    parts, function = list[str](), node.func
    while isinstance(function, ast.Attribute):
        parts.append(function.attr)
        function = function.value
    if isinstance(function, ast.Name):
        parts.append(function.id)
    return {".".join(parts[::-1]): {each.arg: _read_value(each.value) for each in node.keywords}}


def _read_value(node: ast.expr | None) -> Any:
    """Return a value as the package decodes it: a name is its text, and so is a call without arguments.

    Raises:
        ValueError: for anything that the package cannot read.
    """
    match node:
        case ast.Constant():
            return "..." if node.value is ... else node.value
        case ast.UnaryOp(operand=ast.Constant(value=int() | float() | complex() as value)):
            return -value  # whatever the operator is
        case ast.List():
            return [_read_value(each) for each in node.elts]
        case ast.Tuple():
            return tuple(_read_value(each) for each in node.elts)
        case ast.Dict():
            return {_read_value(k): _read_value(v) for k, v in zip(node.keys, node.values, strict=True)}
        case ast.BinOp():
            return _compute(node)
        case ast.Name():
            return node.id
        case ast.Call():
            return _read_call(node) if node.keywords else ast.unparse(node)
        case ast.Subscript():
            return f"{ast.unparse(node.value)}[{ast.unparse(node.slice)}]"
    raise ValueError("a value cannot be read")


_OPERATORS: Mapping[type[ast.operator], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def _compute(node: ast.expr) -> Any:
    """Return the result of arithmetic on numbers. Raises ValueError for anything else."""
    match node:
        case ast.Constant(value=int() | float() as number) if abs(number) < _MAX_NUMBER:
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_compute(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            base, exponent = _compute(left), _compute(right)
            if abs(exponent) <= 64 and abs(base) < _MAX_NUMBER:
                return base**exponent
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_compute(left), _compute(right))
    raise ValueError("only arithmetic on numbers is computed")


def _is_quick(call: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether the checker's patterns read the strings of a call in little time."""
    texts = [value for arguments in call.values() for value in arguments.values() if isinstance(value, str)]
    return all(
        len(text) <= _MAX_LITERAL and text.count("[") <= _MAX_BRACKETS and " " * _MAX_BLANKS not in text
        for text in texts
    )


# -- reference answers

_LEFT_OUT = object()


def _choose(options: Sequence[Any], without: Any = _LEFT_OUT) -> Any:
    """Return the first value that a reference accepts; `without` where it accepts only that none is given."""
    return next((_fill(each) for each in options if each != ""), without)


def _fill(value: Any) -> Any:
    """Return a value, in which a reference lists what it accepts for each key of a dict."""
    if isinstance(value, dict):
        chosen = {key: _choose(each) if isinstance(each, list) else each for key, each in value.items()}
        return {key: each for key, each in chosen.items() if each is not _LEFT_OUT}
    return (
        [_fill(each) if isinstance(each, dict) else each for each in value]
        if isinstance(value, list)
        else value
    )


def _as_strings(function: Mapping[str, Any], language: Language) -> Mapping[str, Any]:
    """Return the description of a function of another language, whose values are given as strings of code."""
    name = "Java" if language is Language.JAVA else "JavaScript"
    described: dict[str, Any] = copy.deepcopy(dict(function))
    for rule in described["parameters"]["properties"].values():
        kind, inner, entries = rule["type"], rule.pop("items", None), rule.pop("properties", None)
        of = f" of {inner['type']}" if inner else f" with the entries {entries}" if entries else ""
        rule["type"] = "string"
        rule["description"] = f"{rule.get('description', '')} ({name} {kind}{of}, as a string of code)"
    return described


def _write_literal(value: Any, rule: Mapping[str, Any], language: Language) -> str:
    """Return a value as code of a language that the package's checker reads back."""
    kind, inner = rule["type"], (rule.get("items") or {}).get("type", "")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        quoted = [_quote(each, language) for each in value]
        if language is Language.JAVASCRIPT:
            return f"[{', '.join(quoted)}]"
        if inner == "long":
            quoted = [f"{each}L" for each in quoted]
        if kind == "ArrayList":
            return f"new ArrayList<>(Arrays.asList({', '.join(quoted)}))"
        plain = [str(each) if inner == "String" else _quote(each, language) for each in value]
        return f"new {inner or 'Object'}[]{{{', '.join(plain)}}}"
    if isinstance(value, dict):
        quoted_items = {key: _quote(each, language) for key, each in value.items()}
        if language is Language.JAVASCRIPT:
            return f"{{{', '.join(f'{key}: {each}' for key, each in quoted_items.items())}}}"
        puts = " ".join(f'put("{key}", {each});' for key, each in quoted_items.items())
        return f"new HashMap<String, Object>() {{{{ {puts} }}}}"
    suffix = {"long": "L", "float": "f" if language is Language.JAVA else "", "Bigint": "n"}
    return f"{value}{suffix.get(kind, '') if isinstance(value, int | float) else ''}"


def _quote(value: Any, language: Language) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return _write_literal(value, {"type": ""}, language)
