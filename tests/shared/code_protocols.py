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

from code_programs import Program

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
_SIGNS = dict(
    zip(_OPERATORS, ["+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>"], strict=True)
)

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


HONEST = r"""
__pow__|class C:\n    def __pow__(self, e, m=None): return (e, m)|assert pow(C(), 2, 5) == (2, 5) and C() ** 3 == (3, None)
__fspath__|class C:\n    def __fspath__(self): return '/a/b'|import os\nassert os.fspath(C()) == '/a/b' and os.path.join(C(), 'c') == '/a/b/c'
__length_hint__|class C:\n    def __length_hint__(self): return 4|import operator\nassert operator.length_hint(C()) == 4
descriptor of own|class D:\n    def __set_name__(self, owner, name): self.name = '_' + name\n    def __get__(self, o, kind=None): return getattr(o, self.name, 0)\n    def __set__(self, o, v): setattr(o, self.name, abs(v))\nclass C:\n    x = D()|t = C()\nt.x = -3\nassert t.x == 3
decorator class|class C:\n    def __init__(self, f): self.f, self.n = f, 0\n    def __call__(self, *a):\n        self.n += 1\n        return self.f(*a)|@C\ndef g(x): return x + 1\nassert g(2) == 3 and g.n == 1
__class_getitem__|class C:\n    def __class_getitem__(cls, k): return (cls.__name__, k)|assert C[int] == ('C', int)
generic|import typing\nT = typing.TypeVar('T')\nclass C(typing.Generic[T]):\n    def __init__(self): self.x = []|c = C[int]()\nassert c.x == []
abc|import abc\nclass C(abc.ABC):\n    @abc.abstractmethod\n    def area(self): ...|try:\n    C()\n    assert 0\nexcept TypeError: pass
abc sub|import abc\nclass C(abc.ABC):\n    @abc.abstractmethod\n    def area(self): ...\nclass D(C):\n    def area(self): return 3|assert D().area() == 3 and isinstance(D(), C) and issubclass(D, C)
metaclass call|class M(type):\n    one = None\n    def __call__(cls, *a):\n        if cls.one is None: cls.one = super().__call__(*a)\n        return cls.one\nclass C(metaclass=M):\n    def __init__(self): self.x = 1|assert C() is C() and C().x == 1
__getattr__|class C:\n    def __getattr__(self, n): return n.upper()|assert C().abc == 'ABC' and getattr(C(), 'x', 3) == 'X'
__getattribute__|class C:\n    def __getattribute__(self, n): return n * 2|assert C().ab == 'abab'
__setattr__|class C:\n    def __setattr__(self, n, v): object.__setattr__(self, n, v * 2)\n    def __delattr__(self, n): object.__setattr__(self, n, 'gone')|c = C()\nc.x = 4\nassert c.x == 8\ndel c.x\nassert c.x == 'gone'
__slots__|class C:\n    __slots__ = ('x',)\n    def __init__(self): self.x = 1|c = C()\nassert c.x == 1 and not hasattr(c, '__dict__')\ntry:\n    c.y = 1\n    assert 0\nexcept AttributeError: pass
__dir__|class C:\n    def __dir__(self): return ['b', 'a']|assert dir(C()) == ['a', 'b']
vars|class C:\n    def __init__(self): self.x = 1|assert vars(C()) == {'x': 1} and C().__dict__ == {'x': 1}
hasattr|class C:\n    x = 1|assert hasattr(C(), 'x') and not hasattr(C(), 'y') and getattr(C(), 'y', 5) == 5
__doc__|class C:\n    'Doc.'\n    def m(self):\n        'M.'|assert C.__doc__ == 'Doc.' and C.m.__doc__ == 'M.' and C().__doc__ == 'Doc.'
__name__|class C:\n    def m(self): pass|assert C.__name__ == 'C' and C().__class__.__name__ == 'C' and type(C()).__name__ == 'C' and C.m.__name__ == 'm'
__reduce__|class C:\n    def __init__(self, x): self.x = x\n    def __reduce__(self): return (C, (self.x,))|import copy\nassert copy.copy(C(4)).x == 4
__copy__|class C:\n    def __copy__(self): return 5\n    def __deepcopy__(self, memo): return 6|import copy\nassert copy.copy(C()) == 5 and copy.deepcopy(C()) == 6
__del__|class C:\n    log = []\n    def __del__(self): C.log.append(1)|c = C()\ndel c\nassert C.log in ([], [1])
weakref|class C: pass|import weakref\nc = C()\nr = weakref.ref(c)\nassert r() is c
__iter__|class C:\n    def __iter__(self): return iter([1, 2])|assert [*C()] == [1, 2] and sum(C()) == 3 and 2 in C() and max(C()) == 2 and sorted(C(), reverse=True) == [2, 1] and dict(zip('ab', C())) == {'a': 1, 'b': 2}
getitem iteration|class C:\n    def __getitem__(self, i):\n        if i > 2: raise IndexError\n        return i * 2|assert [*C()] == [0, 2, 4] and 4 in C() and list(reversed([*C()])) == [4, 2, 0]
slices|class C:\n    def __getitem__(self, k): return k|c = C()\nassert c[1:2] == slice(1, 2) and c[1, 2] == (1, 2) and c[...] is ... and c[::2].step == 2
setitem|class C:\n    def __init__(self): self.d = {}\n    def __setitem__(self, k, v): self.d[k] = v\n    def __delitem__(self, k): del self.d[k]\n    def __len__(self): return len(self.d)|c = C()\nc[1] = 2\nc['a'] = 3\nassert len(c) == 2 and bool(c)\ndel c[1]\nassert c.d == {'a': 3}\ntry:\n    del c[9]\n    assert 0\nexcept KeyError: pass
reversed|class C:\n    def __len__(self): return 3\n    def __getitem__(self, i): return i|assert [*reversed(C())] == [2, 1, 0]
__missing__|class C(dict):\n    def __missing__(self, k): return k * 2|c = C(a=1)\nassert c['b'] == 'bb' and c['a'] == 1 and c.get('z') is None
generator|def f(n):\n    got = 0\n    try:\n        while True:\n            got = yield got\n    except ValueError:\n        yield 'caught'\n    finally:\n        pass|g = f(1)\nassert next(g) == 0 and g.send(5) == 5 and g.throw(ValueError) == 'caught'\ng.close()\nassert next(g, 'end') == 'end'
generator return|def f():\n    yield 1\n    return 7|def h():\n    x = yield from f()\n    yield x\nassert list(h()) == [1, 7]
next default|class C:\n    def __iter__(self): return self\n    def __next__(self): raise StopIteration|assert next(C(), 3) == 3 and list(C()) == []
iter sentinel|class C:\n    n = 0\n    def __call__(self):\n        self.n += 1\n        return self.n|assert list(iter(C(), 4)) == [1, 2, 3]
await|class C:\n    def __await__(self):\n        yield from ()\n        return 4|import asyncio\nasync def main(): return await C()\nassert asyncio.run(main()) == 4
await gather|import asyncio\nasync def f(x):\n    await asyncio.sleep(0)\n    return x * 2|import asyncio\nasync def main(): return await asyncio.gather(f(1), f(2))\nassert asyncio.run(main()) == [2, 4]
async iter|class C:\n    n = 0\n    def __aiter__(self): return self\n    async def __anext__(self):\n        self.n += 1\n        if self.n > 3: raise StopAsyncIteration\n        return self.n|import asyncio\nasync def main(): return [x async for x in C()]\nassert asyncio.run(main()) == [1, 2, 3]
async gen|async def f(n):\n    for i in range(n): yield i|import asyncio\nasync def main(): return [x async for x in f(3)]\nassert asyncio.run(main()) == [0, 1, 2]
anext|async def f(n):\n    for i in range(n): yield i|import asyncio\nasync def main():\n    g = f(1)\n    return [await anext(g), await anext(g, 'end')]\nassert asyncio.run(main()) == [0, 'end']
async with|class C:\n    log = []\n    async def __aenter__(self):\n        self.log.append('in')\n        return 5\n    async def __aexit__(self, *e):\n        self.log.append('out')\n        return True|import asyncio\nasync def main():\n    async with C() as x:\n        assert x == 5\n        raise ValueError\n    return C.log\nassert asyncio.run(main()) == ['in', 'out']
asynccontextmanager|import contextlib\n@contextlib.asynccontextmanager\nasync def f():\n    yield 5|import asyncio\nasync def main():\n    async with f() as x:\n        return x\nassert asyncio.run(main()) == 5
with|class C:\n    def __enter__(self): return 5\n    def __exit__(self, kind, e, tb): return kind is ValueError|with C() as x:\n    raise ValueError\nassert x == 5\ntry:\n    with C(): raise KeyError\n    assert 0\nexcept KeyError: pass
with stack|import contextlib\n@contextlib.contextmanager\ndef f(log):\n    log.append('in')\n    try:\n        yield 5\n    finally:\n        log.append('out')|import contextlib\nlog = []\nwith contextlib.ExitStack() as s:\n    assert s.enter_context(f(log)) == 5\nassert log == ['in', 'out']
closing|class C:\n    closed = False\n    def close(self): self.closed = True|import contextlib\nc = C()\nwith contextlib.closing(c): pass\nassert c.closed
exception|class C(Exception):\n    def __init__(self, code):\n        super().__init__(f'code {code}')\n        self.code = code\ndef f(): raise C(4)|try:\n    f()\n    assert 0\nexcept C as e:\n    assert e.code == 4 and str(e) == 'code 4' and e.args == ('code 4',) and repr(e) == "C('code 4')"
assertRaises|class C(ValueError): pass\ndef f(): raise C('bad 3')|import unittest\nt = unittest.TestCase()\nwith t.assertRaises(C) as r: f()\nassert str(r.exception) == 'bad 3'\nwith t.assertRaisesRegex(ValueError, r'bad \\d'): f()
raise found|class C(Exception): pass|try:\n    raise C('x')\nexcept C as e:\n    assert str(e) == 'x'
raise from|class C(Exception): pass\ndef f():\n    try: 1 / 0\n    except ZeroDivisionError as e: raise C('x') from e|try:\n    f()\n    assert 0\nexcept C as e:\n    assert isinstance(e.__cause__, ZeroDivisionError)
group|def f(): raise ExceptionGroup('g', [ValueError(1), TypeError(2)])|try:\n    f()\n    assert 0\nexcept* ValueError as g:\n    assert len(g.exceptions) == 1\nexcept* TypeError: pass
match class|class C:\n    __match_args__ = ('x', 'y')\n    def __init__(self, x, y): self.x, self.y = x, y|match C(1, 2):\n    case C(1, y): ok = y == 2\n    case _: ok = False\nassert ok
match sequence|import collections.abc\nclass C(collections.abc.Sequence):\n    def __len__(self): return 2\n    def __getitem__(self, i): return (1, 2)[i]|match C():\n    case [1, y]: ok = y == 2\n    case _: ok = False\nassert ok
match mapping|import collections.abc\nclass C(collections.abc.Mapping):\n    d = {'a': 1}\n    def __len__(self): return 1\n    def __iter__(self): return iter(self.d)\n    def __getitem__(self, i): return self.d[i]|match C():\n    case {'a': x}: ok = x == 1\n    case _: ok = False\nassert ok
abc isinstance|import collections.abc\nclass C(collections.abc.Sequence):\n    def __len__(self): return 2\n    def __getitem__(self, i): return (1, 2)[i]|import collections.abc\nassert isinstance(C(), collections.abc.Sequence) and issubclass(C, collections.abc.Sequence) and isinstance(C(), collections.abc.Iterable) and C().index(2) == 1 and C().count(1) == 1 and list(reversed(C())) == [2, 1]
abc hooks|class C:\n    def __len__(self): return 2\n    def __hash__(self): return 2\n    def __call__(self): return 2|import collections.abc\nassert isinstance(C(), collections.abc.Sized) and isinstance(C(), collections.abc.Callable) and callable(C()) and isinstance(C(), collections.abc.Hashable) and not isinstance(C(), collections.abc.Iterable)
iterator abc|class C:\n    def __iter__(self): return self\n    def __next__(self): return 1\ndef f(): yield 1|import collections.abc, types\nassert isinstance(C(), collections.abc.Iterator) and isinstance(f(), collections.abc.Iterator) and isinstance(f(), collections.abc.Generator) and isinstance(f(), types.GeneratorType)
inspect|def f(a, b=2, *, c): pass\nasync def g(): pass\ndef h(): yield|import inspect\nassert list(inspect.signature(f).parameters) == ['a', 'b', 'c'] and inspect.iscoroutinefunction(g) and inspect.isgeneratorfunction(h) and inspect.isfunction(f)
annotations|def f(a: int) -> str: pass|assert [*f.__annotations__] == ['a', 'return']
func attrs|def f(a, b=2): pass\nf.x = 3|assert f.__name__ == 'f' and f.__defaults__ == (2,) and f.x == 3 and callable(f) and f.__code__.co_argcount == 2
wraps|import functools\ndef deco(f):\n    @functools.wraps(f)\n    def inner(*a): return f(*a)\n    return inner|@deco\ndef g(x):\n    "doc"\n    return x\nassert g(3) == 3 and g.__name__ == 'g' and g.__doc__ == 'doc'
wrapped|import functools\ndef deco(f):\n    @functools.wraps(f)\n    def inner(*a): return f(*a)\n    return inner|def g(x): return x\nassert deco(g).__wrapped__ is g
lru_cache|import functools\n@functools.lru_cache\ndef f(x): return x|f(1)\nf(1)\nassert f.cache_info().hits == 1
partial|def f(a, b): return a - b|import functools\nassert functools.partial(f, 5)(2) == 3 and list(map(f, [3], [2])) == [1] and functools.reduce(f, [5, 1, 1]) == 3
singledispatch|import functools\n@functools.singledispatch\ndef f(x): return 'o'\n@f.register\ndef _(x: int): return 'i'|assert f(3) == 'i' and f('a') == 'o'
sort key|def f(x): return -x|assert sorted([1, 3, 2], key=f) == [3, 2, 1] and max([1, 2], key=f) == 1
cmp_to_key|def f(a, b): return b - a|import functools\nassert sorted([1, 3, 2], key=functools.cmp_to_key(f)) == [3, 2, 1]
heapq|class C:\n    def __init__(self, n): self.n = n\n    def __lt__(self, o): return self.n < o.n|import heapq\nh = []\nfor n in (3, 1, 2): heapq.heappush(h, C(n))\nassert heapq.heappop(h).n == 1 and sorted(h)[0].n == 2
sum|class C:\n    def __init__(self, n): self.n = n\n    def __add__(self, o): return C(self.n + o.n)\n    def __radd__(self, o): return self|assert sum([C(1), C(2)]).n == 3
format|class C:\n    def __format__(self, s): return f'<{s}>'\n    def __str__(self): return 's'\n    def __repr__(self): return 'r'|c = C()\nassert f'{c:x}' == '<x>' and f'{c!r}' == 'r' and f'{c!s}' == 's' and '{0:y}'.format(c) == '<y>' and '%s %r' % (c, c) == 's r' and [c].__repr__() == '[r]' and str([c]) == '[r]' and f'{c!r:>3}' == '  r'
format attr|class C:\n    x = 4|assert '{0.x}'.format(C()) == '4'
print|class C:\n    def __str__(self): return 's'|import io, contextlib\nwith contextlib.redirect_stdout(io.StringIO()) as o: print(C())\nassert o.getvalue() == 's\\n'
bytes|class C:\n    def __bytes__(self): return b'ab'|assert bytes(C()) == b'ab'
buffer|class C(bytearray):\n    pass|assert bytes(C(b'ab')) == b'ab' and memoryview(C(b'ab'))[0] == 97
int|class C:\n    def __int__(self): return 4\n    def __float__(self): return 4.5\n    def __complex__(self): return 1j\n    def __index__(self): return 2|import math, operator\nc = C()\nassert int(c) == 4 and float(c) == 4.5 and complex(c) == 1j and operator.index(c) == 2 and 'ab' * c == 'abab' and [1, 2, 3][c] == 3 and range(c)[-1] == 1 and hex(c) == '0x2' and bin(c) == '0b10' and 'abc'[:c] == 'ab' and math.sqrt(c) > 2 and math.isclose(c, 4.5)
round|class C:\n    def __round__(self, n=None): return ('r', n)\n    def __trunc__(self): return 1\n    def __floor__(self): return 2\n    def __ceil__(self): return 3|import math\nc = C()\nassert round(c) == ('r', None) and round(c, 2) == ('r', 2) and math.trunc(c) == 1 and math.floor(c) == 2 and math.ceil(c) == 3
hash|class C:\n    def __init__(self, n): self.n = n\n    def __hash__(self): return hash(self.n)\n    def __eq__(self, o): return isinstance(o, C) and self.n == o.n|assert len({C(1), C(1), C(2)}) == 2 and {C(1): 'a'}[C(1)] == 'a' and C(1) in [C(1)] and C(1) in {C(1)} and hash(C(3)) == hash(3) and [C(1), C(2)].index(C(2)) == 1 and C(1) != C(2)
unhashable|class C:\n    def __eq__(self, o): return True|try:\n    hash(C())\n    assert 0\nexcept TypeError: pass
eq other type|class C:\n    def __init__(self, n): self.n = n\n    def __eq__(self, o):\n        if not isinstance(o, C): return NotImplemented\n        return self.n == o.n|assert C(1) != 'a' and not C(1) == None and C(1) == C(1)
reflected|class C:\n    def __radd__(self, o): return ('r', o)\n    def __rmul__(self, o): return o * 2\n    def __rpow__(self, o, m=None): return o\n    def __rdivmod__(self, o): return (o, 1)|assert 1 + C() == ('r', 1) and 3 * C() == 6 and 2 ** C() == 2 and divmod(7, C()) == (7, 1) and [1] + C() == ('r', [1])
reflected two|class A:\n    def __add__(self, o): return NotImplemented\nclass C:\n    def __radd__(self, o): return 'C'|assert A() + C() == 'C'
subclass first|class A:\n    def __add__(self, o): return 'A'\nclass C(A):\n    def __radd__(self, o): return 'C'|assert A() + C() == 'C'
inplace|class C:\n    def __init__(self): self.x = []\n    def __iadd__(self, o):\n        self.x.append(o)\n        return self|c = d = C()\nc += 1\nc += 2\nassert c.x == [1, 2] and d is c
matmul|class C:\n    def __matmul__(self, o): return 1\n    def __rmatmul__(self, o): return 2\n    def __imatmul__(self, o): return self|c = C()\nassert c @ 3 == 1 and 3 @ c == 2
bool|class C:\n    def __bool__(self): return False|assert not C() and bool(C()) is False and (C() or 3) == 3 and all([1]) and not any([C()])
len bool|class C:\n    def __len__(self): return 0|assert not C() and len(C()) == 0
bad len|class C:\n    def __len__(self): return -1|try:\n    len(C())\n    assert 0\nexcept ValueError: pass
mock patch obj|class C:\n    def m(self, x): return x\n    def call(self): return self.m(3)|from unittest import mock\nc = C()\nc.m = mock.Mock(return_value=8)\nassert c.call() == 8\nc.m.assert_called_once_with(3)
mock side effect|def f(g):\n    try: return g(1)\n    except ValueError as e: return str(e)|from unittest import mock\nm = mock.Mock(side_effect=ValueError('x'))\nassert f(m) == 'x'\nm.assert_called_once_with(1)\nm2 = mock.Mock(side_effect=[5])\nassert f(m2) == 5
mock calls|def f(m):\n    m.open('a')\n    m.write(1, k=2)\n    m.x.y()\n    return m.z|from unittest import mock\nm = mock.Mock()\nr = f(m)\nassert m.mock_calls == [mock.call.open('a'), mock.call.write(1, k=2), mock.call.x.y()]\nm.write.assert_called_with(1, k=2)\nassert m.write.call_args.kwargs == {'k': 2} and m.write.call_args == mock.call(1, k=2) and r is m.z\nm.assert_has_calls([mock.call.open('a')])
magicmock|def f(m):\n    with m as x:\n        x.write('a')\n    return len(m), m[3], [*m]|from unittest import mock\nm = mock.MagicMock()\nm.__len__.return_value = 2\nm.__getitem__.return_value = 5\nm.__iter__.return_value = iter([1])\nassert f(m) == (2, 5, [1])\nm.__enter__.return_value.write.assert_called_once_with('a')
asyncmock|async def f(m): return await m(3)|import asyncio\nfrom unittest import mock\nm = mock.AsyncMock(return_value=4)\nassert asyncio.run(f(m)) == 4\nm.assert_awaited_once_with(3)
mock wraps|class C:\n    def m(self, x): return x + 1|from unittest import mock\nm = mock.Mock(wraps=C())\nassert m.m(3) == 4\nm.m.assert_called_once_with(3)
dataclass|import dataclasses\n@dataclasses.dataclass\nclass C:\n    x: int\n    y: list = dataclasses.field(default_factory=list)|import dataclasses\nc = C(1)\nassert dataclasses.asdict(c) == {'x': 1, 'y': []} and dataclasses.replace(c, x=2).x == 2 and [f.name for f in dataclasses.fields(C)] == ['x', 'y'] and dataclasses.is_dataclass(c) and repr(c) == 'C(x=1, y=[])' and dataclasses.astuple(c) == (1, [])
frozen|import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass C:\n    x: int|import dataclasses\nc = C(1)\ntry:\n    c.x = 2\n    assert 0\nexcept dataclasses.FrozenInstanceError: pass\nassert {c: 1}[C(1)] == 1
enum|import enum\nclass C(enum.Enum):\n    A = 1\n    B = 2|assert C.A.value == 1 and C(2) is C.B and C['A'] is C.A and [x.name for x in C] == ['A', 'B'] and C.A in C and len(C) == 2 and C.A != C.B and isinstance(C.A, C) and C.A.name == 'A' and repr(C.A) == '<C.A: 1>'
intenum|import enum\nclass C(enum.IntEnum):\n    A = 1\nclass S(enum.StrEnum):\n    A = 'a'|assert C.A == 1 and C.A < 2 and C.A + 1 == 2 and S.A == 'a' and S.A.upper() == 'A'
namedtuple|import collections\nC = collections.namedtuple('C', 'x y')|c = C(1, 2)\nx, y = c\nassert (x, y) == (1, 2) and c._asdict() == {'x': 1, 'y': 2} and c[0] == 1 and C._fields == ('x', 'y') and len(c) == 2
property|class C:\n    def __init__(self): self._x = 1\n    @property\n    def x(self): return self._x\n    @x.setter\n    def x(self, v):\n        if v < 0: raise ValueError('neg')\n        self._x = v|c = C()\nc.x = 4\nassert c.x == 4 and c._x == 4\ntry:\n    c.x = -1\n    assert 0\nexcept ValueError as e: assert str(e) == 'neg'
static|class C:\n    @staticmethod\n    def s(x): return x\n    @classmethod\n    def c(cls): return cls.__name__|assert C.s(1) == 1 and C().s(2) == 2 and C.c() == 'C' and C().c() == 'C'
class attr|class C:\n    n = 0\n    def __init__(self): C.n += 1|C(); C()\nassert C.n == 2\nC.n = 9\nassert C().n == 10
super|class A:\n    def hi(self): return 'A'\nclass B(A):\n    def hi(self): return super().hi() + 'B'|assert B().hi() == 'AB' and A.hi(B()) == 'A'
method identity|class C:\n    def m(self): pass|c = C()\nassert c.m.__self__ is c and c.m == c.m
bound|class C:\n    def m(self, x): return x|m = C().m\nassert m(4) == 4 and list(map(C().m, [1, 2])) == [1, 2]
numeric abc|import numbers\nclass C(numbers.Number): pass|import numbers\nassert isinstance(C(), numbers.Number) and issubclass(C, numbers.Number) and not issubclass(C, numbers.Real)
isclose|class C:\n    def __float__(self): return 1.5\ndef f(): return C()|import math\nassert math.isclose(f(), 1.5)
unittest class|class C:\n    def add(self, a, b): return a + b|import unittest\nclass T(unittest.TestCase):\n    def setUp(self): self.c = C()\n    def test_add(self): self.assertEqual(self.c.add(1, 2), 3)\n    def test_almost(self): self.assertAlmostEqual(self.c.add(0.1, 0.2), 0.3)\nr = unittest.TestResult()\nunittest.defaultTestLoader.loadTestsFromTestCase(T).run(r)\nassert r.wasSuccessful() and r.testsRun == 2
subTest|def f(x): return x|import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        for i in range(3):\n            with self.subTest(i=i): self.assertEqual(f(i), i)\nr = unittest.TestResult()\nT('test').run(r)\nassert r.wasSuccessful()
json|class C(dict): pass\ndef f(): return C(a=[1])|import json\nassert json.dumps(f()) == '{"a": [1]}'
chainmap|import collections\ndef f(): return collections.ChainMap({'a': 1}, {'b': 2})|assert f()['b'] == 2 and dict(f()) == {'a': 1, 'b': 2}
starmap|class C:\n    def keys(self): return ['a']\n    def __getitem__(self, k): return 1\ndef f(**k): return k|assert dict(C()) == {'a': 1} and {**C()} == {'a': 1} and f(**C()) == {'a': 1} and dict(**C()) == {'a': 1}
str join|class C:\n    def __iter__(self): return iter('ab')|assert ''.join(C()) == 'ab' and list(enumerate(C())) == [(0, 'a'), (1, 'b')] and tuple(zip(C(), C())) == (('a', 'a'), ('b', 'b'))
unpack|class C:\n    def __iter__(self): return iter([1, 2, 3])|a, *b = C()\nassert a == 1 and b == [2, 3] and (lambda *x: x)(*C()) == (1, 2, 3)
itertools|def f():\n    n = 0\n    while True:\n        yield n\n        n += 1|import itertools\nassert list(itertools.islice(f(), 3)) == [0, 1, 2] and next(itertools.dropwhile(lambda x: x < 5, f())) == 5
thread|class C:\n    def __init__(self): self.n = 0\n    def inc(self): self.n += 1|import threading\nc = C()\nts = [threading.Thread(target=c.inc) for _ in range(4)]\n[t.start() for t in ts]\n[t.join() for t in ts]\nassert c.n == 4
order|import functools\n@functools.total_ordering\nclass C:\n    def __init__(self, n): self.n = n\n    def __eq__(self, o): return self.n == o.n\n    def __lt__(self, o): return self.n < o.n|assert C(1) <= C(2) and C(2) >= C(1) and max(C(1), C(2)).n == 2 and sorted([C(2), C(1)])[0].n == 1 and C(1) < C(2) < C(3)
bisect|class C:\n    def __init__(self, n): self.n = n\n    def __lt__(self, o): return self.n < o.n|import bisect\nxs = [C(1), C(3)]\nbisect.insort(xs, C(2))\nassert [x.n for x in xs] == [1, 2, 3]
float sub|class C(float):\n    def __eq__(self, o): return abs(self - o) < 1e-9\n    __hash__ = float.__hash__|assert C(1.5) == 1.5 and C(1.5) + 1 == 2.5 and round(C(1.55), 1) == round(1.55, 1)
str sub|class C(str):\n    def shout(self): return C(self.upper())|assert C('a').shout() == 'A' and C('a') + 'b' == 'ab' and 'a' in C('ab') and C('ab')[0] == 'a' and isinstance(C('a'), str) and ','.join([C('a')]) == 'a' and {C('a'): 1}['a'] == 1
decimal sub|import decimal\nclass C(decimal.Decimal): pass\ndef f(): return C('1.5')|assert C('1.5') == decimal.Decimal('1.5')
class body|class C:\n    def hi(self): return 'hi'\nlimit = 5|import unittest\nclass T(unittest.TestCase):\n    'Doc.'\n    c = C()\n    most = limit + 1\n    def test(self): self.assertEqual((self.c.hi(), self.most), ('hi', 6))\nr = unittest.TestResult()\nT('test').run(r)\nassert r.wasSuccessful() and T.__doc__ == 'Doc.'
stdlib errors|import json, decimal, queue\ndef f(x):\n    if x == 1: json.loads('{')\n    if x == 2: decimal.Decimal('x')\n    if x == 3: queue.Queue().get_nowait()|import json, decimal, queue, unittest\nt = unittest.TestCase()\nwith t.assertRaises(json.JSONDecodeError) as r: f(1)\nassert r.exception.pos == 1 and isinstance(r.exception, ValueError)\nwith t.assertRaises(decimal.InvalidOperation): f(2)\ntry:\n    f(3)\n    assert 0\nexcept queue.Empty: pass
kinds of functions|def f(): yield 1\nasync def g(): pass|import inspect, types\nassert isinstance(f(), types.GeneratorType) and inspect.isgenerator(f()) and inspect.isgeneratorfunction(f) and inspect.iscoroutinefunction(g) and inspect.isfunction(f)
async callback|async def f(handler, x): return await handler(x) + 1|import asyncio\ngot = []\nasync def handler(x):\n    await asyncio.sleep(0)\n    got.append(x)\n    return x * 2\nassert asyncio.run(f(handler, 3)) == 7 and got == [3]
async callback of both|import asyncio\nasync def twice(x):\n    await asyncio.sleep(0.001)\n    return 2 * x\nasync def f(handler, x): return await handler(x) + 1|import asyncio\nasync def handler(x): return await twice(x)\nassert asyncio.run(f(handler, 3)) == 7
truth|class C:\n    pass\nclass L(list):\n    pass\nclass N(int):\n    pass\nclass S:\n    def __init__(self, n): self.n = n\n    def __len__(self): return self.n\nclass T(S):\n    def __bool__(self): return True\ndef f(x): return eval(x)|assert C() and f('C()') and not f('L()') and f('L([0])') and not f('N(0)') and f('N(1)') and not f('S(0)') and f('S(1)') and f('T(0)') and not S(0)
"""
"""Classes and functions that really have a protocol: a name, the submission, and tests that hold of it."""


def honest() -> list[Program]:
    """Return the table of honest submissions."""
    lines = [line.split("|", 2) for line in HONEST.strip().splitlines()]
    return [
        Program(name, _lines(code), [_lines(test)], {"classes": ["C", "L", "N", "S", "T"]})
        for name, code, test in lines
    ]


def _lines(text: str) -> str:
    return text.replace("\\\\", "\0").replace("\\n", "\n").replace("\0", "\\")
