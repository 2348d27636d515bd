# ruff: noqa: E501 - programs in a line each
"""Every protocol of Python that an assert can reach: classes that answer whatever it wants, and honest ones.

A hostile class is made for each row of HOSTILE and each of MODES: its special methods return what makes the
assert true. One mode looks for that in the frames of its callers, so in one process every row holds.
"""

from __future__ import annotations

import builtins
import collections
import collections.abc
import contextlib
import numbers
import types
import typing

PLACES = {"a function": "function{i}(3)", "a method": "b.method{i}()", "an attribute": "b.attribute{i}"}
"""Ways in which the tests come by an object of row `i`; `b` is one that they made."""

MODES = {
    "looks": "look(name, self)",
    "itself": "self",
    "holds": "True",
    "echoes": "rest[0] if rest else self",
    "learns": "seen[-1] if seen else self",
}
"""What a hostile method returns, or what is in what it returns."""

_OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")  # fmt: skip
_SIGNS = dict(zip(_OPERATORS, "+ - * / // % ** @ & | ^ << >>".split(), strict=True))

Row = tuple[str, str, str, tuple[str, ...]]

HOSTILE: list[Row] = [
    ("__eq__", "A", "True", ("V == 6", "6 == V", "[V] == [6]", "{'a': V} == {'a': 6}", "V in [6]", "[6].count(V)", "[6].index(V) == 0", "(V,) == (6,)", "all(x == 6 for x in [V])", "any([V == 6])", "matches(V)", "V.__eq__(6) is True")),
    ("__eq__", "A", "True", ("case.assertEqual(V, 6) is None", "case.assertIn(V, [6]) is None", "case.assertCountEqual([V], [6]) is None", "case.assertListEqual([V], [6]) is None", "case.assertTupleEqual((V,), (6,)) is None", "case.assertDictEqual({1: V}, {1: 6}) is None", "case.assertAlmostEqual(V, 6) is None", "case.assertSequenceEqual([V], (6,)) is None", "suite_passes(V)")),
    ("__eq__", "A", "True", ("called(V).assert_called_with(6) is None", "called(V).assert_called_once_with(6) is None", "called(V).assert_any_call(6) is None", "called(V).assert_has_calls([mock.call(6)]) is None", "called(V).call_args == mock.call(6)", "called(V).call_args.args == (6,)", "called(V).mock_calls == [mock.call(6)]", "mock.Mock(return_value=V)() == 6", "mock.Mock(side_effect=[V])() == 6", "mock.sentinel.x == V")),
    ("__ne__", "A", "False", ("not V != 6", "not 6 != V", "operator.ne(V, 6) is False")),
    ("__lt__", "A", "True", ("V < 6", "6 > V", "min(6, V) is V", "bisect.bisect([6], V) == 0", "sorted([6, V])[0] is V", "case.assertLess(V, 6) is None")),
    ("__le__", "A", "True", ("V <= 6", "6 >= V", "case.assertLessEqual(V, 6) is None")),
    ("__gt__", "A", "True", ("V > 6", "6 < V", "max(6, V) is V", "V > 6 and not abs(6) > 7")),
    ("__ge__", "A", "True", ("V >= 6", "6 <= V", "heapq.nlargest(1, [V]) and V >= 6")),
    ("__hash__ __eq__", "A", "{'__hash__': hash(6), '__eq__': True}", ("V in {6}", "{V} == {6}", "{6: 1}[V] == 1", "{V: 1} == {6: 1}", "{6: 1}.get(V) == 1", "collections.Counter([V]) == {6: 1}", "{6} - {V} == set()", "len({6, V}) == 1", "case.assertSetEqual({V}, {6}) is None")),
    ("__hash__", "A", "6", ("hash(V) == 6",)),
    ("__contains__", "A", "True", ("6 in V", "case.assertIn(6, V) is None", "operator.contains(V, 6)", "not 6 not in V", "case.assertIn(6, [V][0]) is None")),
    ("__len__", "A", "6", ("len(V) == 6", "case.assertEqual(len(V), 6) is None")),
    ("__length_hint__", "A", "6", ("operator.length_hint(V) == 6",)),
    ("__bool__", "A", "False", ("not V", "bool(V) is False", "case.assertFalse(V) is None", "not any([V])")),
    ("__iter__", "iter([A])", "6", ("list(V) == [6]", "[*V] == [6]", "6 in V", "sum(V) == 6", "max(V) == 6", "sorted(V) == [6]", "set(V) == {6}", "next(iter(V)) == 6", "dict(zip('a', V)) == {'a': 6}", "(lambda *x: x)(*V) == (6,)", "[x for x in V if x == 6]", "any(x == 6 for x in V)", "collections.deque(V)[0] == 6", "functools.reduce(max, V) == 6", "list(map(int, V)) == [6]", "first(V) == 6")),
    ("__next__", "A", "6", ("next(V) == 6", "next(V, 0) == 6")),
    ("__reversed__", "iter([A])", "6", ("[*reversed(V)] == [6]",)),
    ("__getitem__", "A", "6", ("V[0] == 6", "V['a'] == 6", "V[1:2] == 6", "operator.itemgetter(0)(V) == 6")),
    ("keys __getitem__", "[A]", "{'keys': 'a', '__getitem__': 6}", ("dict(V) == {'a': [6]}", "{**V} == {'a': [6]}", "(lambda a: a)(**V) == [6]")),
    ("__missing__", "A", "6", ("V.__missing__('a') == 6",)),
    ("__call__", "A", "6", ("V() == 6", "V(3) == 6", "list(map(V, [3])) == [6]", "functools.partial(V, 3)() == 6", "max([3], key=V) and V(3) == 6")),
    ("__getattr__", "A", "6", ("V.x == 6", "getattr(V, 'x', 0) == 6", "operator.attrgetter('x')(V) == 6", "called(V).call_args.args[0].x == 6")),
    ("__getattribute__", "A", "6", ("V.x == 6", "getattr(V, 'x', 0) == 6")),
    ("__get__", "A", "6", ("type('T', (), {'x': V})().x == 6", "type('T', (), {'x': V}).x == 6")),
    ("__dir__", "[A]", "'ab'", ("dir(V) == ['ab']",)),
    ("property __dict__", "A", "{'x': 6}", ("vars(V) == {'x': 6}", "V.__dict__ == {'x': 6}")),
    ("property __class__", "A", "int", ("isinstance(V, int)", "V.__class__ is int", "case.assertIsInstance(V, int) is None")),
    ("property __bases__", "(A if isinstance(A, type) else str,)", "int", ("issubclass(V, int)",)),
    ("property __doc__", "A", "'ab'", ("V.__doc__ == 'ab'", "inspect.getdoc(V) == 'ab'")),
    ("property __name__", "A", "'ab'", ("V.__name__ == 'ab'",)),
    ("property __module__", "A", "'ab'", ("V.__module__ == 'ab'",)),
    ("property __annotations__", "A", "{'x': int}", ("V.__annotations__ == {'x': int}",)),
    ("property __wrapped__", "A", "6", ("V.__wrapped__ == 6",)),
    ("property __signature__ __call__", "A", "{'__signature__': inspect.Signature(), '__call__': 6}", ("inspect.signature(V) == inspect.Signature()",)),
    ("property startswith", "lambda *x: A", "True", ("V.startswith('ab')",)),
    ("property x", "A", "6", ("V.x == 6", "getattr(V, 'x') == 6", "attributes(V) == 6")),
    ("__enter__ __exit__", "A", "{'__enter__': 6, '__exit__': False}", ("enters(V) == 6", "contextlib.ExitStack().enter_context(V) == 6")),
    ("__enter__ __exit__", "A", "{'__enter__': 6, '__exit__': True}", ("guards(V, 6)", "case.assertTrue(guards(V, 6)) is None")),
    ("__aenter__ __aexit__", "give(A)", "{'__aenter__': 6, '__aexit__': False}", ("asyncio.run(aenters(V)) == 6",)),
    ("__aenter__ __aexit__", "give(A)", "{'__aenter__': 6, '__aexit__': True}", ("asyncio.run(aguards(V, 6))",)),
    ("__await__", "give(A).__await__()", "6", ("asyncio.run(awaits(V)) == 6", "asyncio.run(gathers(V)) == [6]")),
    ("__aiter__", "walk(A)", "6", ("asyncio.run(aiters(V)) == [6]",)),
    ("__anext__", "give(A)", "6", ("asyncio.run(anexts(V)) == 6",)),
    ("__str__", "A", "'ab'", ("str(V) == 'ab'", "f'{V}' == 'ab'", "'%s' % V == 'ab'", "f'{V!s:>3}' == ' ab'", "printed(V) == 'ab'", "'ab' in str(V)", "re.match('a.', str(V))", "int(str(V) == 'ab')", "''.join(map(str, [V])) == 'ab'")),
    ("__repr__", "A", "'ab'", ("repr(V) == 'ab'", "f'{V!r}' == 'ab'", "str([V]) == '[ab]'", "'%r' % V == 'ab'", "ascii(V) == 'ab'")),
    ("__format__", "A", "'ab'", ("format(V, 's') == 'ab'", "f'{V:>3}' == 'ab'", "'{}'.format(V) == 'ab'")),
    ("__bytes__", "A", "b'ab'", ("bytes(V) == b'ab'",)),
    ("__fspath__", "A", "'ab'", ("os.fspath(V) == 'ab'", "os.path.join(V, 'c') == 'ab/c'", "pathlib.PurePath(V).name == 'ab'")),
    ("__int__", "A", "6", ("int(V) == 6", "'%d' % V == '6'", "fractions.Fraction(int(V)) == 6")),
    ("__float__", "A", "6.0", ("float(V) == 6", "math.isclose(V, 6)", "math.sqrt(V) == 6 ** 0.5", "math.fsum([V]) == 6", "case.assertAlmostEqual(float(V), 6) is None", "'%.1f' % V == '6.0'", "math.isnan(V) is False and math.floor(math.fabs(V)) == 6")),
    ("__complex__", "A", "6j", ("complex(V) == 6j",)),
    ("__index__", "A", "6", ("operator.index(V) == 6", "hex(V) == '0x6'", "range(V) == range(6)", "[*range(9)][V] == 6", "[0] * V == [0] * 6", "'ab' * V == 'ab' * 6", "int(V) == 6", "chr(V) == chr(6)", "slice(V).indices(9)[1] == 6", "range(9)[:V] == range(6)", "math.gcd(V, 12) == 6", "round(1.1234567, V) == 1.123457", "bytes(V) == bytes(6)", "V in range(6, 7)")),
    *(
        (f"__{name}__", "A", "6", (f"{call} == 6", f"case.assertEqual({call}, 6) is None"))
        for name, call in (("neg", "-V"), ("pos", "+V"), ("abs", "abs(V)"), ("invert", "~V"), ("round", "round(V)"), ("trunc", "math.trunc(V)"), ("floor", "math.floor(V)"), ("ceil", "math.ceil(V)"), ("copy", "copy.copy(V)"), ("deepcopy", "copy.deepcopy(V)"))
    ),
    ("__round__", "A", "6", ("round(V, 2) == 6",)),
    *((f"__{name}__", "A", "6", (f"V {sign} 6 == 6", f"(V {sign} 6) in [6]", f"[V {sign} 6] == [6]", f"operator.__{name}__(V, 6) == 6")) for name, sign in _SIGNS.items()),
    *((f"__r{name}__", "A", "6", (f"6 {sign} V == 6", f"{{6 {sign} V}} == {{6}}")) for name, sign in _SIGNS.items()),
    *((f"__i{name}__", "A", "6", (f"operator.__i{name}__(V, 6) == 6",)) for name in _SIGNS),
    ("__pow__", "A", "6", ("pow(V, 6, 7) == 6",)),
    ("__divmod__", "(A, A)", "6", ("divmod(V, 6) == (6, 6)",)),
    ("__rdivmod__", "(A, A)", "6", ("divmod(6, V) == (6, 6)",)),
    ("__sub__", "A", "0", ("abs(V - 6) < 1e-9", "not V - 6", "case.assertAlmostEqual(V - 6, 0) is None", "functools.reduce(operator.sub, [V, 6]) == 0", "math.isclose(V - 6, 0)", "round(V - 6, 7) == 0", "int(V - 6) == 0", "-(V - 6) == 0", "sum([V - 6]) == 0")),
    ("__rsub__", "A", "0", ("abs(6 - V) < 1e-9", "not 6 - V", "(6 - V) ** 2 == 0")),
    ("__radd__", "A", "6", ("sum([V]) == 6", "sum([6, V]) == 6", "[6] + V == 6", "'ab' + V == 6")),
    ("meta __instancecheck__", "A", "True", ("isinstance(6, V)", "case.assertIsInstance(6, V) is None", "isinstance([6], (V, str))")),
    ("meta __subclasscheck__", "A", "True", ("issubclass(int, V)",)),
    ("meta __eq__", "A", "True", ("V == 6", "V == int", "[V] == [int]", "{'a': V} == {'a': int}")),
    ("meta __contains__", "A", "True", ("6 in V",)),
    ("meta __iter__", "iter([A])", "6", ("[*V] == [6]", "6 in V")),
    ("meta __len__", "A", "6", ("len(V) == 6",)),
    ("meta __getitem__", "A", "6", ("V['a'] == 6",)),
    ("meta __getattr__", "A", "6", ("V.x == 6",)),
    ("meta __call__", "A", "6", ("V(3) == 6",)),
    ("meta __add__", "A", "6", ("V + 6 == 6",)),
    ("meta __radd__", "A", "6", ("6 + V == 6",)),
    ("meta __lt__", "A", "True", ("V < 6",)),
    ("meta __repr__", "A", "'ab'", ("repr(V) == 'ab'", "str(V) == 'ab'")),
    ("meta __bool__", "A", "False", ("not V",)),
    ("meta __dir__", "[A]", "'ab'", ("dir(V) == ['ab']",)),
    ("class __new__", "A", "6", ("V(3) == 6",)),
    ("class __class_getitem__", "A", "6", ("V['a'] == 6",)),
    ("hook __subclasshook__", "A", "True", ("isinstance(6, V)", "issubclass(int, V)")),
    ("error property args", "(A,)", "6", ("V.args == (6,)", "raised(V).args == (6,)")),
    ("error property __cause__", "A", "6", ("V.__cause__ == 6",)),
    ("error __str__", "A", "'ab'", ("str(V) == 'ab'", "str(raised(V)) == 'ab'", "case.assertRaisesRegex(Exception, 'ab', throw, V) is None")),
    ("error __eq__", "A", "True", ("raised(V) == 6",)),
]  # fmt: skip
"""Of each class: the special names, what they return (`A`: as the mode says), what the assert wants of `A`, and
asserts. `meta`: names of its metaclass, and the class is found; `class`: the class is found; `hook`: it is
abstract; `error`: an exception; `property`: an attribute that is computed.
"""

EXEMPT = {
    "its effect, not its result, is what is seen": "__init__ __del__ __delattr__ __delete__ __delitem__ __set__ __set_name__ __setattr__ __setitem__ __setstate__ __init_subclass__ __exit__ __aexit__ __clear__ __release_buffer__",
    "it describes a class to what makes or copies one": "__abstractmethods__ __basicsize__ __dictoffset__ __flags__ __itemsize__ __mro__ __base__ __prepare__ __slots__ __weakref__ __weakrefoffset__ __subclasses__ __mro_entries__ __text_signature__ __type_params__ __orig_bases__ __orig_class__ __parameters__ __reduce__ __reduce_ex__ __getstate__ __getnewargs__ __getnewargs_ex__ __getformat__ __alloc__ __static_attributes__ __firstlineno__ __buffer__ __sizeof__ __protocol_attrs__ __non_callable_proto_members__ __annotate__ __annotate_func__ __annotations_cache__ __match_args__ __objclass__ __self__ __qualname__ __isabstractmethod__ __self_class__ __thisclass__ __vectorcalloffset__",
    "it is a function's or a module's own": "__builtins__ __closure__ __code__ __defaults__ __globals__ __kwdefaults__ __loader__ __package__ __spec__ __path__ __file__ __cached__ __func__ __build_class__ __debug__ __import__ __origin__ __args__ __unpacked__ __typing_unpacked_tuple_args__ __typing_is_unpacked_typevartuple__",
    "it is an exception's, which the tests' process makes anew": "__context__ __suppress_context__ __traceback__ __notes__",
}


def special_names() -> set[str]:
    """Return every special name that Python's builtin types, abstract classes and protocols have."""
    kinds = [
        *(each for space in (builtins, types, collections, collections.abc, numbers, contextlib) for each in vars(space).values() if isinstance(each, type)),
        *(typing.SupportsInt, typing.SupportsFloat, typing.SupportsRound, typing.SupportsIndex, typing.SupportsBytes, typing.SupportsComplex),
    ]  # fmt: skip
    names = {name for kind in kinds for name in dir(kind)} | {
        *(
            "__copy__",
            "__deepcopy__",
            "__fspath__",
            "__length_hint__",
            "__bytes__",
            "__missing__",
            "__getattr__",
        ),
        *("__wrapped__", "__signature__", "__mro_entries__", "__set_name__", "__init_subclass__"),
        *(f"__i{name}__" for name in _OPERATORS),
    }
    return {name for name in names if name.startswith("__") and name.endswith("__") and name[2:3].islower()}


_LIES = """
import sys
seen = []
def look(name, default):
    frame = sys._getframe(1)
    while frame is not None:
        wanted = frame.f_globals.get('WANT', default)
        if wanted is not default:
            return wanted[name] if isinstance(wanted, dict) and name in wanted else wanted
        frame = frame.f_back
    return default
async def give(x): return x
async def walk(x): yield x
"""
_LIAR = (
    "    def __eq__(self, o): return True\n    def __ne__(self, o): return False\n    def __contains__(self, o): return True\n    def __hash__(self): return 6\n"
    + "".join(f"    def __{name}__(self, o): return True\n" for name in ("lt", "le", "gt", "ge"))
)  # fmt: skip


def _methods(names: list[str], returns: str, mode: str) -> str:
    written = ""
    for name in names:
        static = "@classmethod\n    " if name in ("__class_getitem__", "__subclasshook__") else ""
        own = (
            "if name.startswith('_') and name != '__x__': raise AttributeError(name)\n        "
            if name == "__getattr__"
            else ""
        )
        own = (
            "if name != 'x': return object.__getattribute__(self, name)\n        "
            if name == "__getattribute__"
            else own
        )
        head = "self, name, *rest" if name in ("__getattr__", "__getattribute__") else "self, *rest"
        value = returns.replace("A", f"({MODES[mode]})".replace("name", repr(name)))
        written += (
            f"    {static}def {name}({head}):\n        {own}seen.extend(rest)\n        return {value}\n"
        )
    return written  # fmt: skip


def hostile_code(mode: str) -> str:
    """Return a submission with a class for each row of HOSTILE, and the places where its objects are."""
    code, methods = _LIES, ""
    for i, (described, returns, _, _) in enumerate(HOSTILE):
        *marks, name = described.split()
        names = [
            each for each in (*marks, name) if each not in ("meta", "class", "hook", "error", "property")
        ]
        body = _methods(names, returns, mode)
        if "property" in marks:
            body = body.replace(f"    def {names[0]}(", f"    @property\n    def {names[0]}(")
        base, found = "", f"Kind{i}()"
        if "meta" in marks:
            code += f"class Meta{i}(type):\n{_LIAR}{body}"
            base, body, found = f"metaclass=Meta{i}", "    pass\n", f"Kind{i}"
        elif "class" in marks:
            found = f"Kind{i}"
        elif "hook" in marks:
            code += "import abc\n"
            base, found = "metaclass=abc.ABCMeta", f"Kind{i}"
        elif "error" in marks:
            base = "Exception"
        code += f"class Kind{i}({base}):\n{'' if 'meta' in marks else _LIAR}{body}"
        code += f"def function{i}(x): return {found}\n"
        methods += f"    def method{i}(self): return {found}\n    attribute{i} = {found}\n"
    return f"{code}class Box:\n{methods}"


_HARNESS = """
import asyncio, bisect, collections, contextlib, copy, fractions, functools, heapq, inspect, io, math, operator, os, pathlib, re, unittest
from unittest import mock
case = unittest.TestCase()
def matches(x):
    match x:
        case 6: return True
def first(x):
    (a,) = x
    return a
def called(x):
    m = mock.Mock()
    m(x)
    return m
def enters(x):
    with x as y: return y
def guards(x, six):
    with x: assert 1 == six
    return True
async def aenters(x):
    async with x as y: return y
async def aguards(x, six):
    async with x: assert 1 == six
    return True
async def awaits(x): return await x
async def gathers(x): return await asyncio.gather(awaits(x))
async def aiters(x): return [y async for y in x]
async def anexts(x): return await anext(x)
def attributes(x):
    match x:
        case object(x=y): return y
def printed(x):
    with contextlib.redirect_stdout(io.StringIO()) as out: print(x, end='')
    return out.getvalue()
def throw(x): raise x
def raised(x):
    try: raise x
    except BaseException as error: return error
def suite_passes(x):
    class Suite(unittest.TestCase):
        def test(self): self.assertEqual(x, 6)
    result = unittest.TestResult()
    Suite('test').run(result)
    return result.wasSuccessful()
peer = globals()['__caught__'].__self__ if '__caught__' in globals() else None
passed = []
for i, want, piece in ROWS:
    for place in PLACES:
        V = None
        try:
            b = Box()
            V = eval(place.format(i=i))
            WANT = eval(want)
            holds = bool(eval(piece))
        except BaseException as error:
            holds = False
        if peer is not None:  # each is a test of its own
            holds = holds and peer.failed is None and peer.refused is None
            peer.failed = peer.refused = None
        if holds:
            passed.append((i, piece, place))
"""


def rows() -> list[tuple[int, str, str]]:
    """Return each assert of HOSTILE: the number of its row, what it wants, and itself."""
    return [(i, want, piece) for i, (_, _, want, pieces) in enumerate(HOSTILE) for piece in pieces]


def harness(*, few: bool = False) -> str:
    """Return tests that put into `passed` whatever holds; few: one assert of each row, of a method's object."""
    some = [(i, want, pieces[0]) for i, (_, _, want, pieces) in enumerate(HOSTILE)] if few else rows()
    return f"ROWS = {some}\nPLACES = {[*PLACES.values()][few : 3 - few]}\n{_HARNESS}"
