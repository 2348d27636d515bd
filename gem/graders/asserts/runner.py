"""What runs the functions and classes of tests, as pytest and unittest would, up to the first error.

`gem.graders.code_tests` puts this text behind the tests, in whose process it runs.
"""

# It may import the standard library alone. The tester looks for words in the tests, thus in this text too:
# no generators here, and no names of modules before a dot.

from __future__ import annotations

from abc import ABCMeta
from functools import partial
from inspect import Parameter, iscoroutinefunction, isgeneratorfunction, signature
from itertools import product
from sys import modules as MODULES
from types import FunctionType, SimpleNamespace
from typing import Any, Callable, Iterable  # noqa: UP035 - see above
from unittest import SkipTest, TestCase, defaultTestLoader

Test = Callable[[], Any]


def run_tests(
    functions: list[Any], classes: list[type], module: dict[str, Any], known: list[str], helpers: list[str]
) -> None:
    """Run tests of a module, except what is marked as skipped or as expected to fail.

    Tests that the module made otherwise are run too, but for names in `known`; `helpers` may lack arguments.
    """
    listed = bool(functions or classes)
    for name, thing in list(module.items()):
        if name not in known and _is_test(name, thing, module["__name__"], name in helpers):
            (functions if type(thing) is FunctionType else classes).append(thing)
    around = SimpleNamespace(**module)
    peer = module.get("__peer__")  # which says whether the submission was used
    before: list[Test] = [partial(_call, around, name) for name in ("setUpModule", "setup_module")]
    after: list[Test] = [partial(_call, around, name) for name in ("teardown_module", "tearDownModule")]
    tests = [
        test
        for each in functions
        for test in _read_tests(partial(_call_function, around, each), around, each)
    ]
    groups: list[tuple[list[Test], ...]] = [([], tests, []), *(_read_class(kind, around) for kind in classes)]
    left = [group for group in groups if group[1]]
    for run in before if left else ():
        run()
    count = 0
    for first, tests, last in left:
        if not any(_skips(run, peer) for run in first):
            count += sum(not _skips(test, peer) for test in tests)
            for run in last:
                run()
    if listed and not count:
        raise SkipTest("no test is left to run")
    for run in after if left else ():
        run()


def _is_test(name: str, thing: Any, module: str, helps: bool) -> bool:
    """Return whether pytest or unittest would run what a module made itself and named so."""
    kind = type(thing)  # a stand-in of the submission has another
    if kind not in (FunctionType, type, ABCMeta) or thing.__module__ != module:
        return False
    parts = [thing] if kind is FunctionType else list(vars(thing).values())
    if any(type(each) is FunctionType and each.__code__.co_filename == "main.py" for each in parts):
        return False  # the submission's, in whose process the tests run
    if kind is not FunctionType:
        return issubclass(thing, TestCase) or name.startswith("Test")
    if not name.startswith("test"):
        return False
    given = [part for mark in _marks(thing) if mark.name == "parametrize" for part in _read_names(mark)[0]]
    lacks = [
        each.name
        for each in signature(thing, follow_wrapped=False).parameters.values()
        if each.default is Parameter.empty
        and each.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        and each.name not in given
    ]
    if (lacks and not helps) or iscoroutinefunction(thing) or isgeneratorfunction(thing):
        raise TypeError(f"the test {name} is async, a generator, or needs fixtures: {lacks}")
    return not lacks


def _read_class(kind: type, around: Any) -> tuple[list[Test], list[Test], list[Test]]:
    """Return what is called before the tests of a class, these tests, and what is called after them."""
    tests: list[Test] = []
    if issubclass(kind, TestCase):
        for case in defaultTestLoader.loadTestsFromTestCase(kind):
            method = getattr(case, case._testMethodName)  # type: ignore[union-attr]
            if not _is_left_out(_marks(around, kind, method), kind, method):
                tests.append(case.debug)  # which catches nothing
        return [kind.setUpClass], tests, [kind.tearDownClass]
    if kind.__init__ is not object.__init__:
        return [], [], []  # as in pytest: it is a class of something else
    names = dict.fromkeys(name for base in reversed(kind.__mro__) for name in vars(base))
    for name in names:
        if name.startswith("test") and callable(getattr(kind, name)):
            tests += _read_tests(partial(_call_method, kind, name), around, kind, getattr(kind, name))
    return [partial(_call, kind, "setup_class", kind)], tests, [partial(_call, kind, "teardown_class", kind)]


def _call_function(around: Any, function: Any, /, **given: Any) -> None:
    """Call a function of tests."""
    _call(around, "setup_function", function)
    function(**given)
    _call(around, "teardown_function", function)


def _call_method(kind: type, name: str, /, **given: Any) -> None:
    """Call a method of a new object."""
    thing = kind()
    method = getattr(thing, name)
    _call(thing, "setup_method", method)
    method(**given)
    _call(thing, "teardown_method", method)


def _read_tests(call: Callable[..., None], *things: Any) -> list[Test]:
    """Return the tests that a function is: one for each combination of its parameters' values."""
    marks = _marks(*things)
    tables = [_read_rows(mark) for mark in marks if mark.name == "parametrize"]
    tests: list[Test] = []
    for rows in product(*tables) if not _is_left_out(marks, *things) else ():
        if not _is_left_out([mark for _, own in rows for mark in own]):
            tests.append(partial(call, **{name: value for values, _ in rows for name, value in values}))
    return tests


def _read_rows(mark: Any) -> list[tuple[list[tuple[str, Any]], Any]]:
    """Return the values of each row of `parametrize`, by the parameters' names, and the row's own marks."""
    values = mark.args[1] if len(mark.args) > 1 else mark.kwargs["argvalues"]
    names, text = _read_names(mark)
    alone = text and len(names) == 1  # then a row is the value, even if it is a tuple
    kind = type(MODULES["pytest"].param())
    rows = [
        (row.values, row.marks) if type(row) is kind else ((row,) if alone else row, ()) for row in values
    ]
    return [(list(zip(names, row, strict=True)), marks) for row, marks in rows]


def _read_names(mark: Any) -> tuple[list[str], bool]:
    """Return the parameters of `parametrize`, and whether they are in one text."""
    names = mark.args[0] if mark.args else mark.kwargs["argnames"]
    text = isinstance(names, str)
    return [name.strip() for name in names.split(",") if name.strip()] if text else list(names), text


def _marks(*things: Any) -> list[Any]:
    """Return pytest's marks of the module, of a class and of a function."""
    marks = [getattr(thing, "pytestmark", ()) for thing in things]
    return [mark for each in marks for mark in (each if isinstance(each, list | tuple) else [each])]


def _is_left_out(marks: Iterable[Any], *things: Any) -> bool:
    """Return whether these are skipped, expected to fail or no tests."""
    for mark in marks:
        when = [*mark.args, *(mark.kwargs[name] for name in ("condition",) if name in mark.kwargs)]
        if mark.name == "skip" or (mark.name == "xfail" and not when):
            return True
        if mark.name in ("skipif", "xfail") and any(when):
            return True
    names = ("__unittest_skip__", "__unittest_expecting_failure__")
    return any(
        getattr(thing, name, False) or not getattr(thing, "__test__", True)
        for thing in things
        for name in names
    )


def _call(thing: Any, name: str, *given: Any) -> None:
    """Call what is there of this name; it may take what it is called for."""
    function = getattr(thing, name, None)
    if function is not None:
        function(*given[: len(signature(function).parameters)])


def _skips(test: Test, peer: Any) -> bool:
    """Run a test; return whether it skipped itself.

    One that used the submission before may have been brought to it by that, so its skip is an error.
    """
    peer = peer or SimpleNamespace(heard=False)
    kinds: list[type] = [SkipTest]
    if "pytest" in MODULES:
        kinds += [MODULES["pytest"].skip.Exception, MODULES["pytest"].xfail.Exception]
    heard, peer.heard = peer.heard, False
    try:
        test()
    except BaseException as error:
        if peer.heard or not isinstance(error, tuple(kinds)):
            raise
        return True
    finally:
        peer.heard |= heard
    return False
