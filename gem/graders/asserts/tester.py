"""The tests' end of the connection: it runs the asserts, and trusts nothing that it receives."""

# A part of the tester (see `__init__`): beside other parts it may import the standard library alone.

from __future__ import annotations

import abc
import ast
import builtins
import collections
import random
import re
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, cast

from gem.graders.asserts.bindings import bound_names, find_names
from gem.graders.asserts.lending import is_function, is_lendable, is_lendable_name
from gem.graders.asserts.operations import BINARY, OPERATIONS
from gem.graders.asserts.peer import Peer
from gem.graders.asserts.stand_ins import (
    COUNTING,
    FOUND,
    METHODS,
    NATIVE,
    Forwarded,
    Refused,
    Stand,
    Thing,
    forward_send,
    get_peer,
    is_instance,
    is_subclass,
    make_truth,
    read_level,
    read_number,
    set_peer,
    throw,
)
from gem.graders.asserts.values import (
    CONTAINERS,
    GLOBAL,
    GLOBALS,
    NATURAL,
    SCALARS,
    SPECIAL,
    Garbled,
    Gone,
    TooLong,
    find_base,
    find_library_class,
    find_value_type,
    is_error,
    is_plain,
    is_simple,
)

_ONE_OPERAND = frozenset({"iter", "next", "len", "bool", "repr", "str", "hash"})


class Space(dict[str, Any]):
    """The namespace of the tests; names that are missing in it are the submission's."""

    theirs: frozenset[str] = frozenset()
    entry: str = ""
    imported: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    modules: Mapping[str, str] = {}

    def __missing__(self, name: str) -> Any:
        """Return the submission's object of that name.

        An unknown name is no one's: a submission that defines it has guessed at the tests, and would decide
        what they compare with.
        """
        if name in self.unknown:
            raise KeyError(name)
        if name == self.entry.partition(".")[0]:
            value = get_peer().ask("entry" if name not in self.theirs else "name", name)
        elif name in self.imported:
            if name not in self.theirs:
                get_peer().heard = True
                raise NameError(f"name {name!r} is not defined", name=name)
            value = get_peer().ask("name", name)
        elif name in self.modules and (name in self.theirs or not hasattr(builtins, name)):
            value = self[name] = __import__(self.modules[name])  # nor asks another's idea of math
        elif name in self.theirs and not hasattr(builtins, name):  # no test calls another's idea of abs()
            value = get_peer().ask("name", name)
        else:
            get_peer().heard |= not hasattr(builtins, name)  # that the submission has no such name
            raise KeyError(name)
        if isinstance(value, (Thing, Stand)):
            self[name] = value
        if isinstance(value, Stand) and name in (peer := get_peer()).classes:
            peer.tested[value] += 1
        return value


class Tester(Peer):
    """The tests' end of the connection; it trusts nothing that it receives."""

    def __init__(self, fd: int, classes: Iterable[str]) -> None:
        super().__init__(fd, 0)
        self.classes = frozenset(classes)
        self.received: collections.Counter[Any] = collections.Counter()  # how often each class was the value
        self.tested: collections.Counter[Any] = collections.Counter()  # of these, for its own name
        self.space = Space()
        self.foreign: BaseException | None = None
        self.failed: BaseException | None = None  # an assert of the tests, which the submission caught
        self.refused: Refused | None = None
        self.ended = False
        self.heard = True  # something of the submission, other than its names: its errors may be its own
        self.asserts: list[range] = []  # the lines of those that can hold
        self.stops = False

    def read(self, source: str) -> ast.Module:
        """Parse the tests, with own calls in `except` clauses and for methods whose result is not used."""
        tree = ast.parse(source, "tests.py")
        self.stops = re.search(r"StopIteration|yield|send|throw", source) is not None
        self.space |= {"__caught__": self.caught, "__drop__": self.drop, "__step__": lambda: step() and False}
        self.space |= {"__tell__": _tell, "__peer__": self, "isinstance": is_instance}
        self.space["issubclass"] = is_subclass
        theirs = {*self.space.theirs, *self.space.imported, self.space.entry} - bound_names(tree)
        for node in list(ast.walk(tree)):
            match node:
                case ast.Assert() if not isinstance(node.test, ast.Constant):
                    self.asserts.append(range(node.lineno, (node.end_lineno or node.lineno) + 1))
                    stepped = ast.Call(ast.Name("__step__", ast.Load()), [], [])
                    node.test = ast.BoolOp(ast.Or(), [stepped, node.test])
                    ast.fix_missing_locations(ast.copy_location(node.test, node))
                    if node.msg is not None and not any(isinstance(n, _WAITS) for n in ast.walk(node.msg)):
                        later = ast.parse("__tell__(lambda: 0)", mode="eval").body
                        cast(Any, later).args[0].body = node.msg
                        node.msg = ast.fix_missing_locations(ast.copy_location(later, node.msg))
                case ast.ClassDef(body=body):  # where a name that is missing would be no one's
                    loads = {each.id for each in find_names(node) if isinstance(each.ctx, ast.Load)}
                    if names := sorted(loads & theirs):
                        place = int(ast.get_docstring(node, clean=False) is not None)
                        body.insert(place, ast.copy_location(ast.Global(names), node))
                case ast.ExceptHandler(type=ast.AST() as kinds) if not _builtin(kinds):
                    noted = ast.Expr(ast.Call(ast.Name("__caught__", ast.Load()), [], []))
                    node.body.insert(0, ast.fix_missing_locations(ast.copy_location(noted, node.body[0])))
                case ast.Expr(value=ast.Call(func=ast.Attribute() as function) as call):
                    if function.attr.startswith("assert"):
                        self.asserts.append(range(node.lineno, (node.end_lineno or node.lineno) + 1))
                    call.args.insert(0, function)
                    call.func = ast.copy_location(ast.Name("__drop__", ast.Load()), call)
        return tree

    def drop(self, function: Any, /, *args: Any, **names: Any) -> None:
        """Call a function without its result."""
        if isinstance(function, Thing):
            self.ask("drop", function, list(args), names)
        else:
            if str(getattr(function, "__name__", "")).startswith("assert"):
                step()
                if "unittest.case" in sys.modules:
                    vars(sys.modules["unittest.case"])["isinstance"] = is_instance
            function(*args, **names)

    def caught(self) -> None:
        """Record a failure of the tests that an `except` clause for an error of the submission caught."""
        error = sys.exc_info()[1]
        ours = error is not self.foreign and not isinstance(type(error), Stand)
        if ours and (isinstance(error, AssertionError) or not isinstance(error, Exception)):
            self.failed = error

    def note_suppressed(self, error: BaseException | None) -> None:
        """Record a failed assert that the submission suppressed, in a context manager or of a callback.

        Tests may want other exceptions, even of `assert False`, to be suppressed.
        """
        if type(error) is not AssertionError or error is self.foreign or (tb := error.__traceback__) is None:
            return
        line = 0  # the tests' last; an assert of unittest fails in a module of its own
        while tb is not None:
            line = tb.tb_lineno if tb.tb_frame.f_code.co_filename == "tests.py" else line
            tb = tb.tb_next
        if any(line in lines for lines in self.asserts):
            self.failed = error

    def ask(self, operation: str, *operands: Any) -> Any:
        """Ask the submission's process to do something; its StopIteration cannot end loops of the tests."""
        self.heard = True
        try:
            return super().ask(operation, *operands)
        except StopIteration as error:
            if operation == "next" or self.stops:
                raise
            raise RuntimeError("the submission raised StopIteration") from error
        except AssertionError as error:
            if error is self.failed:  # it was not suppressed
                self.failed = None
            raise

    def begin(self) -> None:
        """Receive the names of the submission."""
        kind, _, names = self._receive()
        if kind != "names" or not all(isinstance(name, str) for name in names):
            raise Garbled("no names")
        self.space.theirs = frozenset(names)
        self.heard = False

    def receive_output(self, text: str) -> None:
        """Print what the submission printed, for tests that look at it."""
        if text:
            sys.stdout.write(str(text))

    def note_error(self, error: BaseException) -> None:
        """Record that this exception is the submission's, not an assert's."""
        self.foreign = error

    def note_end(self) -> Gone:
        """Record that the submission's process ended, which tests with a bare `except` would not notice."""
        self.ended = True
        return super().note_end()

    def perform(self, operation: str, operands: list[Any]) -> Any:
        """Perform an operation on an object of the tests, if the submission may: use it, not inspect it."""
        if operation not in OPERATIONS or not operands:
            raise TypeError("no such operation")
        thing = operands[0]
        lent = [id(each) in self._own_numbers for each in operands[:2]]
        if not (lent[0] or (operation in BINARY and any(lent))):
            raise TypeError(f"{operation} of what is not the tests'")
        used = [each for each, own in zip(operands, lent, strict=False) if own]
        if any(isinstance(each, BaseException) or not is_lendable(each) for each in used):
            raise TypeError(f"{operation} of what the submission may only pass on")
        if operation != "call" and any(is_function(each) or isinstance(each, type) for each in used):
            raise TypeError(f"{operation} of what the submission may only call")
        if operation in _ONE_OPERAND and len(operands) != 1:
            raise TypeError(f"{operation} takes one operand")
        if operation in ("getattr", "setattr", "delattr"):
            if not is_lendable_name(thing, *operands[1:], reads=operation == "getattr"):
                raise AttributeError(f"{operation} of a name that is not the submission's to use")
            if operation == "getattr" and not is_lendable(attribute := getattr(thing, operands[1])):
                raise AttributeError(operands[1])
            if operation == "getattr":
                return attribute
        elif operation in ("copy", "deepcopy", "dir", "format"):
            raise TypeError(f"{operation} of an object of the tests")
        try:
            return super().perform(operation, operands)
        except AssertionError as error:
            self.note_suppressed(error)
            raise

    def meet(self, thing: Any) -> Any:
        """Return a stand-in that was received again: from here on it is found, even if the tests made it."""
        if isinstance(thing, Thing):
            object.__setattr__(thing, "_gem_met", True)
            object.__setattr__(thing, "_gem_level", max(FOUND, read_level(thing)))
        return thing

    def encode_object(self, value: Any, kind: type, depth: int) -> Any:
        """Return the number of an object of the submission or of the tests."""
        if isinstance(kind, Stand) or kind is Stand:
            return {"o": type.__getattribute__(value, "_gem_number") if kind is Stand else read_number(value)}
        if not is_lendable(value):
            raise TypeError(f"a {kind.__name__} of the tests cannot be given to the submission")
        number = self.number_of(value)
        if isinstance(value, BaseException):
            vars(value)["_gem_lent"] = True
            base = next((each for each in kind.__mro__ if each in GLOBAL), Exception)
            args = [self.encode(each, depth + 1) if is_simple(each) else repr(each) for each in value.args]
            return {"h": number, "K": {"g": GLOBAL[base]}, "c": kind.__name__, "e": args}
        name, doc = getattr(value, "__name__", kind.__name__), getattr(value, "__doc__", None)
        doc = doc if type(doc) is str else None
        module = "" if isinstance(value, type) else str(kind.__module__)
        return {"h": number, "f": is_function(value), "c": name, "d": doc, "m": module, "k": kind.__name__}

    def decode_object(self, value: dict[str, Any]) -> Any:
        """Return the stand-in for an object or a class of the submission."""
        kind = self._class(value["K"])
        if "h" not in value:
            self.received[kind] += 1
            return kind
        number = value["h"]
        if not isinstance(number, int):
            raise Garbled("an object without a number")
        thing = self.stand_in(number)
        if isinstance(thing, Stand):
            raise Garbled("a class in place of an object")
        if thing is not None:
            self.meet(thing)
        else:
            thing = self._stand_in(value, kind)
            if issubclass(type(thing), Thing):
                object.__setattr__(thing, "_gem_number", number)
                self.keep(number, thing)
                if "l" in value:
                    self._share_stand_in(thing, *value["l"])
        return thing

    def _stand_in(self, value: dict[str, Any], kind: Any) -> Any:
        if issubclass(kind, BaseException):
            error = kind.__new__(kind, *(args := [self.decode(each) for each in value["e"]]))
            if not isinstance(kind, Stand):  # or else that was done over there
                error.__init__(*args)
                vars(error)["_gem_foreign"] = True
            if value.get("b") is not None:
                object.__setattr__(error, "__cause__", self.decode(value["b"]))
            return error
        if not isinstance(kind, Stand):
            raise Garbled("an object of no class of the submission")
        if (base := find_base(kind, SCALARS)) is not None:
            return base.__new__(kind, self.decode(value["p"]))  # type: ignore[call-overload]
        if (base := find_base(kind, CONTAINERS)) is not None:
            return base.__new__(kind)  # type: ignore[call-overload]
        thing: Any = object.__new__(kind)  # type: ignore[arg-type]
        if "p" in value:
            if find_value_type(type(plain := self.decode(value["p"]))) is None:
                raise Garbled("a value of no known class")
            object.__setattr__(thing, "_gem_value", plain)
        return thing

    def _share_stand_in(self, container: Any, number: Any, name: str, contents: Any) -> None:
        base = SPECIAL[name]
        if number in self._shared or not isinstance(number, int) or not issubclass(type(container), base):
            raise Garbled("a container's number that is taken")
        self._share(number, container, base)
        self._fill(number, container, base, contents, None)

    def _class(self, described: Any) -> Any:
        """Return the class that stands in for one of the submission, or the builtin one."""
        if isinstance(described, dict):
            return GLOBALS[described["g"]]
        if isinstance(described, int):
            if not isinstance(kept := self._kept[described], Stand):
                raise Garbled("an object in place of a class")
            return kept
        number, name, qualname, module, bases, names = described
        theirs = module == "submission"
        ours = [self._class(base) for base in bases]
        known = None if theirs else find_library_class(module, name)
        if known is not None and is_error(known):  # which the tests may catch by its name
            ours = [known, *(base for base in ours if not issubclass(known, base))]
        over = [base for base in ours if base is not object]
        truth = None
        if not any(isinstance(base, Stand) for base in over):
            for plain_base in filter(lambda each: issubclass(each, (*SCALARS, *CONTAINERS)), over):
                truth = getattr(plain_base, "__bool__", make_truth(plain_base))
            over = [Thing, *over]
        elif Thing in over:
            over.remove(Thing)
        over.sort(key=lambda base: not isinstance(base, Stand) and base is not Thing)
        native = any(issubclass(base, (*SCALARS, *CONTAINERS)) for base in over)
        space: dict[str, Any] = {"__qualname__": str(qualname), "__module__": "submission"}
        space["__doc__"] = Forwarded("__doc__")
        if names.get("__len__") or truth is not None:  # else Thing's would say that all are true
            space["__bool__"] = METHODS["__bool__"] if names.get("__len__") else truth
        for each, there in names.items():
            if each in METHODS:
                if native and each in NATIVE:
                    continue
                space[each] = METHODS[each] if there else None
            elif native and not each.startswith("_"):
                space[each] = Forwarded(each)
        if any(issubclass(base, collections.Counter) for base in over):
            space = COUNTING | {each: space[each] for each in space if each not in NATIVE}
        if "__eq__" in space and "__hash__" not in space:
            space["__hash__"] = None
        if "send" in names and "__await__" in names and not theirs:  # a coroutine
            space |= {"send": forward_send, "throw": throw, "close": lambda self: None}
        kind = type.__new__(Stand, str(name)[:200], tuple(over), space)
        type.__setattr__(kind, "_gem_number", number)
        if module == "builtins":
            natural = next((each for each in NATURAL if each.__name__ == name), None)
            type.__setattr__(kind, "_gem_natural", natural)
        if not theirs:
            type.__setattr__(kind, "_gem_library", (module, name))
        if module == "collections.abc" and isinstance(known, abc.ABCMeta):
            cast(Any, known).register(kind)  # libraries take what these give, and ask none to decide
        self._kept[number] = kind
        return kind


_WAITS = (ast.Await, ast.Yield, ast.YieldFrom)


def _tell(message: Callable[[], Any]) -> Any:
    """Return the message of an assert that failed: an error in the message does not undo the failure."""
    try:
        return message()
    except Exception as error:
        return f"the message of the assert fails: {type(error).__name__}"


def _builtin(caught: ast.expr) -> bool:
    """Return whether an `except` clause names only builtin exceptions."""
    names = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return all(isinstance(each, ast.Name) and hasattr(builtins, each.id) for each in names)


def _modules(source: str) -> dict[str, str]:
    """Return the modules that tests use as if they had imported them, by name."""
    used = set(re.findall(r"(?<![\w.])(\w+)\s*\.", source))
    known = sys.stdlib_module_names | {"numpy", "pandas", "scipy", "sympy"}
    modules = {name: name for name in used & known}
    return modules | {name: full for name, full in (("np", "numpy"), ("pd", "pandas")) if name in used}


step: Callable[[], object] = bool  # the sandbox's: it gives an assert a budget of its own


def _words(error: BaseException) -> str:
    """Return the message of an error as exact text: `str` may give a stand-in, whose slice is anything."""
    try:
        return str.__str__(str(error))[:500]
    except BaseException:
        return ""


def _is_own(error: BaseException, peer: Tester, source: str, unknown: Iterable[str]) -> bool:
    """Return whether tests fail by themselves: whatever the submission does, they would fail like this.

    What a callback of the tests raised may be for the submission to catch.
    """
    kind = type(error)
    if isinstance(kind, Stand) or "_gem_foreign" in vars(error):
        return False
    if peer.heard and "_gem_lent" in vars(error):
        return False
    if not peer.heard or issubclass(kind, ImportError) or (kind is SystemExit and not error.code):  # type: ignore[attr-defined]
        return True
    if issubclass(kind, FileNotFoundError):
        path = re.escape(str(error.filename))  # type: ignore[attr-defined]
        return re.search(rf"""\b(?:open|load\w*|read_\w+)\(\s*(['"]){path}\1""", source) is not None
    return issubclass(kind, NameError) and error.name in unknown  # type: ignore[attr-defined]


def _seed_both(module: Any, peer: Tester) -> None:
    """Let the tests' `seed` of a module seed the submission's too, which is not yet a use of it."""
    seed = module.seed

    def seed_both(*args: Any, **names: Any) -> None:
        seed(*args, **names)
        if (given := [*args, *names.values()]) and all(map(is_plain, given)):
            heard = peer.heard
            peer.ask("seed", module.__name__, list(args), names)
            peer.heard = heard

    module.seed = seed_both


def test(
    fd: int,
    source: str,
    preamble: str,
    name: str | None,
    classes: list[str],
    unknown: list[str],
    imported: list[str],
    question: bool,
) -> list[str] | None:
    """Run the tests; return the verdict and the reason, None if the submission ended first.

    The verdict BROKEN says that the tests fail by themselves. `imported` are names that are the submission's
    even where they are a builtin's or a module's. `unknown` are names that the task does not mention; if it
    has a `question`, they are never the submission's.
    """
    peer = Tester(fd, classes)
    set_peer(peer)
    space = peer.space
    space["__name__"] = "tests"
    sys.modules["tests"] = types.ModuleType("tests")  # for dataclasses; empty, so that it lends no class
    space.imported, space.unknown = frozenset(imported), frozenset(unknown if question else ())
    _seed_both(random, peer)
    if "seed" in (code := preamble + source) and re.search(r"\b(np|numpy)\b", code):
        with suppress(ImportError):
            _seed_both(__import__("numpy.random", fromlist=["seed"]), peer)
    try:
        peer.begin()
        if preamble.strip():
            exec(compile(preamble, "preamble.py", "exec", dont_inherit=True), space)  # noqa: S102
        if name is not None:
            space.entry = name
            space.pop(name.partition(".")[0], None)  # what is tested is the submission's
            if "__candidate__" in source:
                plain = all(each.isidentifier() for each in name.split("."))
                space["__candidate__"] = peer.ask("entry", name) if plain else eval(name, space)  # noqa: S307
        space.modules = _modules(source)
        exec(compile(peer.read(source), "tests.py", "exec", dont_inherit=True), space)  # noqa: S102
    except Gone:
        return None
    except AssertionError as error:
        return ["RE", f"AssertionError: {_words(error)}"] if error is peer.foreign else ["WA", _words(error)]
    except MemoryError:
        return ["MLE", "MemoryError"]
    except TooLong as error:
        return ["OLE", _words(error)]
    except Refused as error:
        return ["WA", _words(error)]
    except BaseException as error:
        verdict = "BROKEN" if not peer.ended and _is_own(error, peer, source, unknown) else "RE"
        return [verdict, f"{type.__getattribute__(type(error), '__name__')}: {_words(error)}"]
    if peer.ended:
        return None
    failed = peer.refused or peer.failed
    if failed is None and not peer.heard:
        return ["BROKEN", "they end without having used the submission"]
    return ["AC", ""] if failed is None else ["WA", _words(failed)]
