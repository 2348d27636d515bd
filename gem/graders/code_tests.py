"""The tests of a programming task, read from the formats of common data sets."""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, Literal, TypeAlias

from gem.errors import BadArgument, check_argument
from gem.graders.asserts.forms import (
    FORMS,
    find_called_builtins,
    find_free_names,
    find_runs,
    import_submission,
    read_form,
)
from gem.graders.asserts.refusals import check_form, check_isolation, check_verdicts
from gem.graders.compare import check_compare, plain, read_int, write_plain
from gem.graders.python_code import find_imports, parse_or_none
from gem.plugins import check_parameters
from gem.sandbox.verdicts import LONGEST_VALUE
from gem.source_files import parse_code
from gem.tasks.sources import cell

Checker: TypeAlias = Callable[[Any, Any, Any], bool]
"""A function of what was given, the output and the expected output: whether the output is right."""

ACCEPTED = (
    '{"inputs": [...], "outputs": [...]}, with "fn_name" for a function; a list of {"input", "output"}; or '
    f"tests in Python, as text or a list of texts: {FORMS}"
)


@dataclass(frozen=True, slots=True)
class CodeTests:
    """The tests of one task.

    `kind` is the kind of submission: a ``program``, whose `inputs` and `outputs` are texts; a ``function``
    called `name`, whose `inputs` are argument lists and whose `outputs` are plain data; or ``asserts``, code
    that uses what the submission defines. For asserts, `inputs` are pieces of code, each a test with its own
    budget, and `outputs` is empty. `name` may be dotted: ``Solution.f`` is a method of an object made without
    arguments. `accepted` are further right outputs of each test. The first `public` tests may be shown.
    `preamble` is trusted code that runs before the submission and before the tests. `opening` is code that a
    submission continues if it does not define `name` itself. `classes` are those that the asserts test: their
    objects may decide what they are equal to. `asked` is the only name that asserts call and nothing defines,
    and `unknown` are names that neither the tests define nor the task asks for. `imported` are names that are
    the submission's even where Python has them too. `question`: the row has a text that could mention them,
    so that no submission may define what is unknown. `isolate`: False runs asserts in the submission's own
    process, without isolation.
    """

    kind: Literal["program", "function", "asserts"]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...] = ()
    name: str | None = None
    public: int = 0
    compare: str | None = None
    checker: str | Checker | None = None
    preamble: str = ""
    opening: str = ""
    classes: tuple[str, ...] = ()
    asked: str | None = None
    unknown: tuple[str, ...] = ()
    imported: tuple[str, ...] = ()
    question: bool = False
    isolate: bool = True
    wrapped: bool = (
        False  # every output is a list of one item, as APPS and TACO write what a function returns
    )
    accepted: tuple[tuple[Any, ...], ...] = ()

    def __len__(self) -> int:
        """Return the number of tests."""
        return len(self.inputs)

    def right_outputs(self, index: int) -> tuple[Any, ...]:
        """Return the right outputs of a test."""
        return self.outputs[index], *(self.accepted[index] if self.accepted else ())

    def choose_tests(self, most: int | None) -> list[int]:
        """Return the tests to run, in order: those shown first, then the others, small inputs first.

        If there are more than `most`, the smallest, the largest and others evenly spaced between are kept.
        """
        public, rest = list(range(self.public)), list(range(self.public, len(self)))
        rest.sort(key=lambda i: (_size(self.inputs[i]), i))
        if most is not None and len(self) > most:
            public = public[:most]
            room = most - len(public)
            last = max(room - 1, 1)
            rest = [rest[(len(rest) - 1) * k // last] for k in range(room)] if room > 1 else rest[-1:] * room
        return public + rest


@dataclass(frozen=True)
class TestsReader:
    """A function that makes the tests of a row.

    `question` is the column of the question, and `more` are columns of further tests, as CodeContests has
    beside its `public_tests`.
    """

    question: str
    more: tuple[str, ...] = ()

    def __call__(self, value: Any, row: Mapping[str, Any]) -> CodeTests:
        """Return the tests.

        Raises:
            BadArgument: for tests in no known form.
        """
        if "outputs" in row and not (isinstance(value, Mapping) and "outputs" in value):
            value = {"inputs": value, "outputs": row["outputs"]}
        parts = [part for part in (value, *map(row.get, self.more)) if _has_pairs(part)]
        if len(parts) > 1 and parts[0] is value:
            joined = {key: [each for part in parts for each in part[key]] for key in ("input", "output")}
            value = {**value, **joined, "public": len(value["input"])}
        return read_tests(value, {**row, "prompt": cell(row, self.question)})


def _has_pairs(part: Any) -> bool:
    return isinstance(part, Mapping) and all(isinstance(part.get(key), list) for key in ("input", "output"))


def read_tests(raw: Any, row: Mapping[str, Any] | None = None) -> CodeTests:
    """Return the tests in a column of a data set; `row` holds the other columns.

    It accepts the formats of CodeContests, APPS, TACO, LiveCodeBench, PrimeIntellect, HumanEval and MBPP.

    Raises:
        BadArgument: when they are in none of these formats, or there are none.
    """
    row, column = row or {}, raw
    if isinstance(raw, CodeTests):
        return raw
    if isinstance(raw, str | bytes):
        try:
            raw = _load(raw)
        except (ValueError, RecursionError):
            if isinstance(raw, bytes) or not re.search("assert|raise|fail", raw):
                raise _unreadable(raw) from None
            return _asserts([raw], row, column)
    if isinstance(raw, Mapping) and isinstance(raw.get("test_cases"), list):
        row = {**row, **{key: value for key, value in raw.items() if key != "test_cases"}}
        raw = raw["test_cases"]
    if isinstance(raw, list) and raw and all(isinstance(each, str) for each in raw):
        return _asserts(raw, row, column)
    if isinstance(raw, list) and raw and all(isinstance(each, Mapping) for each in raw):
        name = _function_of(raw, row)
        columns = {"inputs": "input", "outputs": "output", "accepted_outputs": "accepted_outputs"}
        raw = {key: [each.get(column) for each in raw] for key, column in columns.items()}
        raw |= {"fn_name": name} if name else {}
    if not isinstance(raw, Mapping):
        raise _unreadable(raw)
    return _pairs(raw, row)


def _function_of(cases: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> Any:
    """Return the name of the function that a list of tests calls; None for those of a program.

    LiveCodeBench has it in the row's column `metadata`.

    Raises:
        BadArgument: when there is no such name, or more than one.
    """
    names = list(dict.fromkeys(each["fn_name"] for each in cases if each.get("fn_name")))
    calls = any(each.get("testtype") == "functional" or each.get("type") == "function_call" for each in cases)
    if not names and calls:
        metadata = row.get("metadata")
        if isinstance(metadata, str | bytes):
            with suppress(ValueError, RecursionError):
                metadata = _load(metadata)
        beside = metadata if isinstance(metadata, Mapping) else {}
        names = [
            each.get(column)
            for each, column in (
                *((each, column) for each in (row, beside) for column in ("fn_name", "func_name")),
                (row, "entry_point"),
            )
            if each.get(column)
        ][:1]
        if not names:
            raise BadArgument(
                "the tests call a function that the row does not name; accepted: its name as fn_name in each "
                "test, in a column fn_name, func_name or entry_point, or as func_name in a column metadata."
            )
    if len(names) > 1:
        raise BadArgument(f"the tests call {', '.join(map(str, names))}; accepted: one function in a row.")
    return names[0] if names else None


def _pairs(raw: Mapping[str, Any], row: Mapping[str, Any]) -> CodeTests:
    """Read inputs and outputs."""
    inputs = raw.get("inputs", raw.get("input"))
    outputs = raw.get("outputs", raw.get("output"))
    if not isinstance(inputs, Sequence) or not isinstance(outputs, Sequence) or isinstance(inputs, str):
        raise _unreadable(raw)
    if not inputs or len(inputs) != len(outputs):
        raise BadArgument(
            f"the tests have {len(inputs)} inputs and {len(outputs)} outputs; needed: as many, 1 or more."
        )
    accepted = _further(raw.get("accepted_outputs", row.get("accepted_outputs")), outputs)
    compare, checker = raw.get("compare", row.get("compare")), raw.get("checker", row.get("checker"))
    check_checker(checker or None)
    public = raw.get("public", 0)
    if isinstance(public, bool) or not isinstance(public, int) or not 0 <= public <= len(inputs):
        raise BadArgument(
            f"public is {public!r}; accepted: how many of the {len(inputs)} tests may be shown."
        )
    name = raw.get("fn_name", raw.get("entry_point", row.get("fn_name")))
    tests = CodeTests(
        "function" if name else "program",
        (),
        (),
        _shorten_entry_point(str(name), "fn_name") if name else None,
        public,
        check_compare(compare) if compare else None,
        checker or None,
    )
    if not name:
        return replace(
            tests,
            inputs=tuple(map(_text, inputs)),
            outputs=tuple(map(_text, outputs)),
            accepted=tuple(tuple(map(_text, each)) for each in accepted),
        )
    written = all(isinstance(each, str) for each in inputs)  # as JSON in text, which an output then is too
    read = _read if written else plain
    tests = replace(
        tests,
        inputs=tuple(map(_arguments, inputs)),
        outputs=tuple(map(read, outputs)),
        accepted=tuple(tuple(map(read, each)) for each in accepted),
    )
    for index in range(0 if checker else len(tests)):
        if (size := min(map(_json_size, tests.right_outputs(index)))) > LONGEST_VALUE:
            raise BadArgument(
                f"test {index + 1} expects a result of {size:,} bytes as JSON; accepted: at most "
                f"{LONGEST_VALUE:,}, as a submission may return. Leave it out, or let a program print it."
            )
    right = [each for index in range(len(tests)) for each in tests.right_outputs(index)]
    return replace(tests, wrapped=all(isinstance(each, list) and len(each) == 1 for each in right))


def check_checker(checker: Any) -> None:
    """Refuse a checker that could decide on no output.

    Raises:
        BadArgument: for what is neither code nor a function with three parameters.
    """
    known = checker is None or isinstance(checker, str) or callable(checker)
    three = "what was given, the output and the expected output"
    check_argument("checker", checker, known, f"Python code in text, or a function of {three}")
    if isinstance(checker, str):
        _check_code("the checker", checker)
        check_verdicts(checker)
    elif checker is not None:
        check_parameters("the checker", checker, ("given", "output", "expected"))


def _check_code(what: str, code: str) -> None:
    """Refuse code of a task that is no Python: no submission could be right."""
    try:
        parse_code(code)
    except (RecursionError, MemoryError):
        return  # the sandbox has room of its own
    except (SyntaxError, ValueError) as error:
        why = str(error).replace("<unknown>, ", "")
        raise BadArgument(f"{what} is no Python, {why}: {code!r:.200}. Correct it in the data.") from None


def _further(accepted: Any, outputs: Sequence[Any]) -> Sequence[Sequence[Any]]:
    """Return the further right outputs of each test, of none if there are none."""
    lists = accepted if isinstance(accepted, list | tuple) else [accepted]
    if not any(lists):
        return ()
    lists = [[] if each is None else each for each in lists]
    if len(lists) != len(outputs) or not all(isinstance(each, list | tuple) for each in lists):
        raise BadArgument(
            f"accepted_outputs is {accepted!r:.80}; accepted: for each of the {len(outputs)} tests a list of "
            "further right outputs."
        )
    return lists


def _asserts(pieces: Sequence[str], row: Mapping[str, Any], column: Any) -> CodeTests:
    """Read tests in Python: HumanEval's `check(candidate)`, MBPP's list, unittest's or pytest's.

    `column` is what the row has of them.
    """
    setup = row.get("test_setup_code") or row.get("test_imports") or ""
    setup = "\n".join(setup) if isinstance(setup, list | tuple) else str(setup)
    for code in (setup, *pieces):
        _check_code("a test", code)
    texts = _texts_beside(row, [*pieces, column])
    pieces, imports = zip(*map(import_submission, pieces), strict=True)
    preamble, whole = setup, list(pieces)
    if find_free_names([setup], "")[0]:  # it uses the submission, as MBPP's 927 does: it is part of each test
        preamble, whole = find_imports(setup), [f"{setup}\n{piece}" for piece in pieces]
    entry = str(row["entry_point"]) if row.get("entry_point") else None
    name = _shorten_entry_point(entry, "entry_point") if entry else None
    called = name if name is None or name.isidentifier() else CANDIDATE
    classes = row.get("classes") or ()
    tests = CodeTests(
        "asserts",
        tuple(complete_tests(piece, called, preamble) for piece in whole),
        preamble=preamble,
        classes=tuple(sorted({*map(str, classes), *evident_classes(whole), *_named_classes(row, whole)})),
        isolate=bool(row.get("isolate", True)),
    )
    opening, head = _code_of(str(row.get("prompt") or ""), root(name)) if name else ("", "")
    tests = replace(tests, name=name, preamble=f"{preamble}\n{head}" if head else preamble, opening=opening)
    imported = frozenset[str]().union(*imports)
    free, callees = find_free_names(pieces, f"{setup}\n{head}")
    for piece in pieces if tests.isolate else ():
        check_isolation(piece, free, f"{setup}\n{head}")
    builtin = find_called_builtins([*whole, preamble])
    if name is None and not imported and not find_free_names(whole, preamble)[0]:
        imported = _defined_builtins(builtin, row, pieces)
    callees |= builtin & imported
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    wanted = imported | {root(name)} if name else imported or callees & words or callees or free
    asked = next(iter(callees & wanted), None) if len(callees) == 1 else None
    return replace(
        tests,
        asked=asked,
        unknown=tuple(sorted(free - words - wanted)),
        imported=tuple(sorted(imported)),
        question=any(" " in text.strip() for text in texts),
    )


def complete_tests(code: str, entry: str | None, preamble: str = "") -> str:
    """Return tests that call what would not be called otherwise: `check`, functions and classes of tests.

    `entry` is the argument of `check`, None if the task names no entry point. `preamble` is code before them.

    Raises:
        BadArgument: for tests that could decide nothing, or need what is not there.
    """
    form = read_form(code, entry, preamble)
    if form is None:
        return code
    check_form(form)
    parts = [code]
    if runs := find_runs(form):
        parts.append(f"exec({_read_runner()!r}, __runner__ := {{}})\n__runner__['run_tests']({runs})\n")
    return "\n\n".join([*parts, *filter(None, [form.call])])


@functools.cache
def _read_runner() -> str:
    return resources.files("gem.graders.asserts").joinpath("runner.py").read_text("utf-8")


def _defined_builtins(called: set[str], row: Mapping[str, Any], pieces: Sequence[str]) -> frozenset[str]:
    """Return those of the builtins that tests call which the row defines, as in MBPP's ``def sum(a, b)``.

    Raises:
        BadArgument: if there are none, for tests that name nothing else: Python's own would pass them.
    """
    texts = [text for text in row.values() if isinstance(text, str)]
    defined = {name for name in called if any(re.search(rf"\bdef {name}\s*\(", text) for text in texts)}
    if called and not defined and not called & _READS_NAMES:
        raise BadArgument(
            f"the tests call only builtins ({', '.join(sorted(called))}), so Python alone would pass them: "
            f"{pieces[0]!r:.200}. Accepted: the name of the function that they test, in a column entry_point."
        )
    return frozenset(defined)


_READS_NAMES = {"__import__", "eval", "exec", "globals", "locals", "vars"}
"""Builtins that find what code defines by a name in text."""


def _texts_beside(row: Mapping[str, Any], tests: Sequence[Any]) -> list[str]:
    """Return the texts of a row in which the tests are not."""
    written = [test.strip() for test in tests if isinstance(test, str) and test.strip()]
    texts = (each for each in row.values() if isinstance(each, str))
    return [text for text in texts if not any(test in text for test in written)]


CANDIDATE = "__candidate__"
"""The argument of `check` if the entry point is not a plain name."""


def _shorten_entry_point(name: str, column: str) -> str:
    """Return an entry point without calls that have no arguments: ``Solution().f`` becomes ``Solution.f``.

    Raises:
        BadArgument: when it is no such name and, in ``entry_point``, no expression either.
    """
    name = name.strip()
    short = re.sub(r"\(\s*\)(?=\.)", "", name)
    if all(part.isidentifier() for part in short.split(".")):
        return short
    try:
        if column != "entry_point":
            raise SyntaxError
        ast.parse(name, mode="eval")
    except (SyntaxError, ValueError):
        raise BadArgument(
            f"{column} is {name!r:.120}; accepted: a name, or a method as Solution.f or Solution().f."
        ) from None
    return name


def root(name: str) -> str:
    """Return the name that a submission must define for an entry point."""
    match = re.match(r"\w+", name)
    return match[0] if match else name


def _code_of(prompt: str, name: str) -> tuple[str, str]:
    """Return a prompt that is code up to the body of `name`, and the code before that; else two empty texts.

    A question in words is not code and is never put before a submission.
    """
    for body in ("", "\n    pass", "\n        pass"):
        tree = parse_or_none(prompt + body)
        for node in tree.body if tree else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name:
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                return prompt, "".join(prompt.splitlines(keepends=True)[: first - 1])
    return "", ""


def find_definitions(code: str) -> frozenset[str] | None:
    """Return the names that code binds at its top level; None if it does not compile."""
    tree = parse_or_none(code)
    if tree is None:
        return None
    names: set[str] = set()
    left: list[ast.AST] = [tree]
    while left:
        for node in ast.iter_child_nodes(left.pop()):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.alias):
                names.add((node.asname or node.name).partition(".")[0])
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif not isinstance(node, ast.Lambda | ast.expr):
                left.append(node)
            if isinstance(node, ast.Tuple | ast.List | ast.Starred):
                left.append(node)
    return frozenset(names)


_PLAIN_ATTRIBUTES = {
    name
    for kind in (
        int,
        float,
        complex,
        str,
        bytes,
        bytearray,
        list,
        tuple,
        dict,
        set,
        frozenset,
        range,
        type(iter(())),
    )
    for name in dir(kind)
}


def _operands(value: ast.AST) -> Iterator[ast.AST]:
    """Yield the operands of operators."""
    match value:
        case ast.BinOp(left=left, right=right):
            yield from (*_operands(left), *_operands(right))
        case ast.UnaryOp(operand=operand):
            yield from _operands(operand)
        case _:
            yield value


def evident_classes(sources: Sequence[str]) -> set[str]:
    """Return the names that tests use as classes of the submission.

    Such a name begins with a capital. The tests use attributes of its objects that plain data lacks, test for
    its instances, derive from it or catch it.
    """
    names: set[str] = set()
    own: set[str] = set()
    for source in sources:
        tree = parse_or_none(source)
        nodes = list(ast.walk(tree)) if tree else []
        made: dict[str, str] = {}  # variable: the class that it was made of
        for node in nodes:
            match node:
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    own.add(name)
                    names |= {base.id for base in getattr(node, "bases", ()) if isinstance(base, ast.Name)}
                case ast.alias():
                    own.add((node.asname or node.name).partition(".")[0])
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=ast.AST() as value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.AST() as value)
                    | ast.NamedExpr(target=ast.Name(id=name), value=value)
                    | ast.withitem(context_expr=value, optional_vars=ast.Name(id=name))
                ):
                    for operand in _operands(value):
                        match operand:
                            case ast.Call(func=ast.Name(id=kind)):
                                made[name] = kind
                case ast.ExceptHandler(type=ast.AST() as kinds):
                    names |= {each.id for each in ast.walk(kinds) if isinstance(each, ast.Name)}
                case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
                    names |= {each.id for each in ast.walk(kinds) if isinstance(each, ast.Name)}
        for node in nodes:
            if isinstance(node, ast.Attribute) and node.attr not in _PLAIN_ATTRIBUTES:
                match node.value:
                    case ast.Call(func=ast.Name(id=name)):
                        names.add(name)
                    case ast.Name(id=name):
                        names.add(made.get(name, name))
    return {name for name in names - own if name.lstrip("_")[:1].isupper()}


_CLASS = re.compile(
    r"^[ \t]*class[ \t]+(\w+)[ \t]*[:(]|\bclass,?[ \t]+(?:called|named)[ \t]+[`'\"*]*(\w+)"
    r"|\bclass[ \t]+`(\w+)`|`(\w+)`[ \t]+class\b",
    re.MULTILINE,
)


def _named_classes(row: Mapping[str, Any], sources: Sequence[str]) -> set[str]:
    """Return the names that the tests call and that the task's text or code describes as classes."""
    class_names = {
        next(filter(None, match.groups()))
        for text in row.values()
        if isinstance(text, str)
        for match in _CLASS.finditer(text[:_LOOKED_AT])
    }
    if not class_names:
        return set()
    called, own = set[str](), set[str]()
    for source in sources:
        tree = parse_or_none(source)
        nodes = list(ast.walk(tree)) if tree else []
        called |= {n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        own |= {n.name for n in nodes if isinstance(n, ast.ClassDef)}
    return class_names & called - own


_LOOKED_AT = 20_000  # characters of a column


def _text(value: Any) -> str:
    """Return the text that a program reads or writes; some data sets hold a list of lines."""
    if isinstance(value, list | tuple):
        return "\n".join(map(_text, value))
    if value is None or isinstance(value, Mapping):
        raise _unreadable(value)
    return value if isinstance(value, str) else write_plain(value)


def _arguments(value: Any) -> tuple[Any, ...]:
    """Return a call's arguments, from a list or from text with one JSON value per line."""
    if isinstance(value, str):
        try:
            return tuple(_load(line) for line in value.splitlines() if line.strip())
        except ValueError:
            raise _unreadable(value) from None
    if not isinstance(value, list | tuple):
        return (plain(value),)
    return tuple(plain(each) for each in value)


def _read(value: Any) -> Any:
    try:
        return _load(value) if isinstance(value, str) else plain(value)
    except ValueError:
        return value


def _load(text: str | bytes) -> Any:
    """Return the data in a JSON text. Raises ValueError."""
    return json.loads(text, parse_int=read_int)


def _size(value: Any) -> int:
    return len(value if isinstance(value, str) else write_plain(value))


def _json_size(value: Any) -> int:
    try:
        return len(json.dumps(value))
    except ValueError:  # an integer of more digits than it writes
        return len(write_plain(value))


def _unreadable(value: Any) -> BadArgument:
    return BadArgument(f"tests are {type(value).__name__} {value!r:.120}; accepted: {ACCEPTED}.")
