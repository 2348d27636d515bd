# ruff: noqa: E501, S102, S307 - programs in a line each
"""Submissions with objects of classes, made from tables: what nobody may accept, and what plain Python accepts.

A wrong one is a class whose every method lies, a way in which the tests come by one of its objects, and an
assert that one of these methods could make pass. A right one is a class that defines operators, and an assert.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from code_programs import Program

_COMPARE = "def __eq__(self, o): return True\n    def __ne__(self, o): return False\n" + "".join(
    f"    def __{name}__(self, *rest): return True\n" for name in ("lt", "le", "gt", "ge", "contains")
)
_BINARY = [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "divmod",
    "pow",
    "matmul",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
]
_OPERATORS = [
    *_BINARY,
    *(f"r{name}" for name in _BINARY),
    *(f"i{name}" for name in _BINARY if name != "divmod"),
]
_UNARY = ["neg", "pos", "abs", "invert", "round", "floor", "ceil", "trunc"]
_PREDICATES = ["startswith", "endswith", "issubset", "issuperset", "isdisjoint", "equals"]

BASES = {"object": "", "int": "7", "float": "7.5", "str": "'x'", "list": "[7]", "tuple": "(7,)", "dict": "{7: 7}", "set": "{7}"}  # fmt: skip


def _methods(value: str, names: list[str]) -> str:
    return "".join(f"    def __{name}__(self, *rest): return {value}\n" for name in names)


_ANSWERS = f"{_COMPARE}    __hash__ = lambda self: 6\n" + "".join(
    f"    def {name}(self, *rest): return True\n" for name in _PREDICATES
)
_CONVERSIONS = (  # instances of lying subclasses, where Python lets them through
    "    def __int__(self): return LieInt(7)\n    def __float__(self): return LieFloat(7)\n    def __index__(self): return LieInt(7)\n"
    "    def __complex__(self): return LieComplex(7)\n    def __str__(self): return LieStr('x')\n    __repr__ = __str__\n"
    "    def __format__(self, spec): return LieStr('x')\n    def __len__(self): return LieInt(1)\n    def __bytes__(self): return LieBytes(b'x')\n"
)
_ZEROS = (
    "    def __int__(self): return 0\n    __index__ = __int__\n    def __float__(self): return 0.0\n    def __complex__(self): return 0j\n"
    "    def __str__(self): return '0'\n    __repr__ = __str__\n    def __format__(self, spec): return '0'\n    def __len__(self): return 0\n"
    "    def __bool__(self): return False\n"
)
_NAMES = "    def __getattr__(self, name):\n        if name.startswith('_'): raise AttributeError(name)\n        return self\n"
_LEARN = "".join(
    f"    def __{name}__(self, *rest):\n        self.__dict__['o'] = rest[0] if rest else 0\n        return self\n"
    for name in _OPERATORS
)

LIARS = {
    "gives itself": _ANSWERS + _methods("self", [*_OPERATORS, *_UNARY]) + _CONVERSIONS + _NAMES,
    "gives nothing": _ANSWERS + _methods("0", [*_OPERATORS, *_UNARY]) + _ZEROS + "    __class__ = property(lambda self: bool)\n",
    "gives itself, then nothing": _ANSWERS + _methods("self", _OPERATORS) + _methods("0", _UNARY) + _ZEROS + _NAMES,
    "learns": _ANSWERS + _LEARN + _methods("0", _UNARY) + _ZEROS.replace("return '0'", "return str(self.__dict__.get('o'))"),
}  # fmt: skip
"""Class bodies: every comparison holds, and operators give what makes a comparison of their result hold."""

_LIES = "".join(
    f"class Lie{name}({name.lower()}):\n    {_ANSWERS}"
    for name in ("Int", "Float", "Complex", "Str", "Bytes")
)
_BOX = """
class Bad(Exception):
    def __init__(self, box): self.box = box
class Box({base}):
    {liar}
    def __new__(cls, *args): return {new}
    def __init__(self, *args):
        {init}self.__dict__['same'] = self
    def put(self, x): return self
    def take(self): return self
    def other(self, it): return it
    def kind(self): return lambda x: self
    def list(self): return [self]
    def table(self): return {{'x': (self,)}}
    def each(self, function): function(self)
    def fill(self, xs): xs[0] = self
    def fail(self): raise Bad(self)
    def walk(self): yield self
    async def later(self): return self
    @property
    def value(self): return self
    @classmethod
    def of(cls): return cls()
    def __getitem__(self, key): return self
    def __iter__(self): return iter([self])
    def __call__(self, *args): return self
    def __enter__(self): return self
    def __exit__(self, *error): return None
    def __copy__(self): return self
    def __deepcopy__(self, memo): return self
def f(x): return Box()
def again(x): return x
make = Box
def kinds(): return Box
"""

SOURCES: dict[str, tuple[str, str]] = {
    "a function": ("", "f(3)"),
    "a method": ("", "b.take()"),
    "a method that is given one": ("", "b.other(Box())"),
    "a function that is given one": ("", "again(b)"),
    "a method after statements": ("b.put(6)\nb.put(6)\n", "b.take()"),
    "a name for what a method gave": ("v = b.put(6)\n", "v"),
    "what was made, after a method gave it": ("v = b.put(6)\n", "b"),
    "a property": ("", "b.value"),
    "an attribute": ("", "b.same"),
    "a class method": ("", "Box.of()"),
    "an item": ("", "b[0]"),
    "a list's item": ("", "b.list()[0]"),
    "a dictionary's tuple's item": ("", "b.table()['x'][0]"),
    "a callable object": ("", "b(3)"),
    "a function that a method gave": ("", "b.kind()(3)"),
    "an iteration": ("", "[*b][0]"),
    "a generator": ("", "next(b.walk())"),
    "a coroutine": ("import asyncio\n", "asyncio.run(b.later())"),
    "a context": ("import contextlib\n", "contextlib.ExitStack().enter_context(Box())"),
    "a callback's argument": ("got = []\nb.each(got.append)\n", "got[0]"),
    "a mock's argument": ("from unittest.mock import Mock\nm = Mock()\nb.each(m)\n", "m.call_args[0][0]"),
    "a list that was filled": ("xs = [0]\nb.fill(xs)\n", "xs[0]"),
    "an error's argument": ("try:\n    b.fail()\nexcept Exception as error:\n    v = error.box\n", "v"),
    "a copy": ("import copy\n", "copy.copy(b)"),
    "a deep copy": ("import copy\n", "copy.deepcopy(b)"),
}
"""How the tests come by an object: statements, and an expression. `b` is an object that they made themselves."""

CLASSES = {
    "another name of the class": ("", "make(3)"),
    "the class that a function gave": ("", "kinds()(3)"),
}
"""Ways to the class other than by its name. Once the tests took one, no object of this class decides."""

RESULTS = {
    name: ("", name)
    for name in ("b + b", "b * 2", "-b", "abs(b)", "round(b)", "sum([b, b])", "b - b", "~b // 2")
}
"""Results of operators on objects that the tests made: they may compute, but not compare."""

EQUALITIES = """
V == 6; V == 6.5; V == 'ab'; V == [6]; V == (6,); V == {6: 1}; V == {6}; V == b'x'; V == 1j; V == True; V == range(3)
6 == V; [6] == V; 'ab' == V; {6} == V; not V != 6; not 6 != V; operator.eq(V, 6); operator.ne(V, 6) is False
[V] == [6]; (1, V) == (1, 6); {'a': V} == {'a': 6}; {V} == {6}; Counter([V]) == {6: 1}; [[V]] == [[6]]; deque([V]) == deque([6])
Decimal(6) == V; V == Fraction(1, 2); V == date(2020, 1, 1); SimpleNamespace(x=V) == SimpleNamespace(x=6)
V >= 6 and V <= 6; 5 < V < 7; 6 >= V; 'ab' <= V; V <= {6}; max([6, V]) == 6 == min([6, V]); sorted([V, 6]) == [6, 6]; (V, 1) < (6, 2)
V in [6]; V in (6, 7); V in {6}; V in {6: 1}; 6 in V; 'ab' in V; [6].index(V) == 0; [6].count(V); {6: 1}[V]; V in range(6, 7)
[x for x in [V] if x == 6]; (lambda x: x == 6)(V); any(map(lambda x: x == 6, [V])); isinstance(V, bool); 1 if V == 6 else 0
case.assertEqual(V, 6) is None; case.assertEqual(6, V) is None; case.assertIn(V, [6]) is None; case.assertIn(6, V) is None; case.assertTrue(V == 6) is None
case.assertListEqual([V], [6]) is None; case.assertDictEqual({1: V}, {1: 6}) is None; case.assertGreaterEqual(V, 6) is None; case.assertCountEqual([V], [6]) is None
case.assertSequenceEqual([V], [6]) is None; case.assertTupleEqual((V,), (6,)) is None; mock.call(V) == mock.call(6); matches(V)
"""
"""Asserts that hold if an object is equal to the tests' own data."""

COMPUTATIONS = """
abs(V - 6) < 1e-9; abs(V - 6) <= 1e-9 * abs(V); abs(6 - V) < 1e-9; V - 6 == 0; 6 - V == 0; not V - 6; V ^ 6 == 0; V % 6 == 0; V / 6 == 0; V // 6 == 0; divmod(V, 6) == 0; V & 6 == 0; V | 6 == 0
V ** 1 == 0; V * 1 == 0; V + 0 == 0; 0 + V == 0; V << 1 == 0; V @ 1 == 0; operator.isub(V, 6) == 0; operator.ixor(V, 6) == 0
float(V - 6) == 0; int(V - 6) == 0; round(V - 6, 6) == 0; bool(V - 6) is False; complex(V - 6) == 0; -(V - 6) == 0; +(V - 6) == 0; ~(V - 6) == 0; [0][V - 6] == 0
str(V - 6) == '0'; repr(V - 6) == '0'; f'{V - 6}' == '0'; format(V - 6, '.2f') == '0'; str(V + 6) == '6'; '%s' % (V - 6) == '0'; len(V - 6) == 0
math.floor(V - 6) == 0; math.ceil(V - 6) == 0; math.trunc(V - 6) == 0; math.fabs(V - 6) == 0; math.isclose(V - 6, 0, abs_tol=1e-6); sum([V, -6]) == 0; hash(V - 6) == 6
reduce(operator.sub, [V, 6]) == 0; statistics.mean([V, -6]) == 0; case.assertAlmostEqual(V, 6) is None; case.assertFalse(V - 6) is None; case.assertLess(abs(V - 6), 1) is None
len(V - {6}) == 0; V - {6} == 0; V + [6] == 0; V + 'b' == 0; [6] + V == 0; V.__sub__(6) == 0; V.__rsub__(6) == 0; (V - 6).real == 0; (V - 6).take() == 0; (V - 6)() == 0; (V - 6)[0] == 0
list(V - 6) == [0]; next(iter(V - 6)) == 0; sum(V - 6) == 0; {V - 6: 1} == {0: 1}; copy.copy(V - 6) == 0; [x for x in (V - 6) if x == 0]
str(V) == 'ab'; repr(V) == 'ab'; f'{V}' == 'ab'; format(V, 's') == 'ab'; bytes(V) == b'ab'; round(V) == 6; abs(V) == 6; -V == 6; ~V == 6
math.trunc(V) == 6; list(V) == [6]; tuple(V) == (6,); set(V) == {6}; sum(V) == 6; [*V] == [6]; next(iter(V)) == 6; dict([(V, 1)]) == {6: 1}; V[0] == 6; V() == 6; V.x == 6
V.take() == 6; V.value == 6; V.same == 6; copy.copy(V) == 6; copy.deepcopy(V) == 6; max(V) == 6; sorted(V) == [6]; [x for x in V if x == 6]; dict(a=V) == {'a': 6}
V.startswith('ab'); V.endswith('ab'); V.issubset({6}); V.issuperset({6}); V.isdisjoint({7}); V.equals([6]); V.startswith(('a', 'b')); operator.methodcaller('startswith', 'ab')(V)
"""
"""Asserts that hold if what is made of an object, or of it and the tests' own data, is as wanted."""

NUMPY = """
numpy.allclose(V, 6); numpy.isclose(V, 6); numpy.array_equal(V, [6]); numpy.array_equal([V], [6]); numpy.testing.assert_allclose(V, 6) is None; numpy.abs(V - 6) < 1e-9
numpy.testing.assert_array_equal(V, [6]) is None; (numpy.array([6]) == V).all(); (V == numpy.array([6])).all(); numpy.float64(6) == V; V == numpy.float64(6)
abs(V - numpy.float64(6)) < 1e-9; abs(numpy.float64(6) - V) < 1e-9; abs(V - numpy.array([6])).max() < 1e-9; abs(numpy.array([V]) - 6).max() < 1e-9
"""

HARNESS = """
import copy, itertools, math, operator, statistics, unittest
from collections import Counter, deque
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from types import SimpleNamespace
from unittest import mock
case = unittest.TestCase()
def matches(x):
    match x:
        case 6:
            return True
peer = globals()['__caught__'].__self__ if '__caught__' in globals() else None
passed = []
for before, expression in SOURCES:
    for piece in PIECES:
        V = None
        try:
            b = Box()
            exec(before)
            V = eval(expression)
            holds = bool(eval(piece))
        except BaseException:
            holds = False
        if peer is not None:  # each is a test of its own
            holds = holds and peer.failed is None and peer.refused is None
            peer.failed = peer.refused = None
        if holds:
            passed.append((expression, piece))
decides = bool(6 == Box())
"""


def pieces(table: str) -> list[str]:
    """Return the asserts of a table."""
    return [
        piece.strip() for line in table.strip().splitlines() for piece in line.split(";") if piece.strip()
    ]


def code_of(liar: str, base: str) -> str:
    """Return a wrong submission: a liar of LIARS, of a class of BASES."""
    value = BASES[base]
    new = f", {value}" if base in ("int", "float", "str", "tuple") else ""
    init = f"{base}.__init__(self, {value})\n        " if base in ("list", "dict", "set") else ""
    return _LIES + _BOX.format(
        base=base, liar=LIARS[liar].strip(), new=f"{base}.__new__(cls{new})", init=init
    )


def harness(table: str, sources: Mapping[str, tuple[str, str]] = SOURCES) -> str:
    """Return tests that put into `passed` whatever holds of those asserts, for each source."""
    return f"SOURCES = {[*sources.values()]}\nPIECES = {pieces(table)}\n{HARNESS}"


def true_of(base: str, table: str) -> set[str]:
    """Return the asserts that hold for the plain value of a liar of this class."""
    if not BASES[base]:
        return set()
    space: dict[str, Any] = {"Box": lambda: eval(BASES[base])}
    exec(harness(table, {"": ("", "b")}), space)
    return {piece for _, piece in space["passed"]}


# -- right ones

_SIGNS = {
    **{"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "and": "&", "or": "|"},
    **{"xor": "^", "lshift": "<<", "rshift": ">>"},
}  # fmt: skip
_NUMBER = """
import functools
@functools.total_ordering
class Number:
    def __init__(self, n): self.n = n
    def __eq__(self, o): return self.n == getattr(o, 'n', o)
    def __lt__(self, o): return self.n < getattr(o, 'n', o)
    def __hash__(self): return hash(self.n)
    def copy(self): return Number(self.n)
    def __{name}__(self, o): return Number(self.n {sign} getattr(o, 'n', o))
    def __r{name}__(self, o): return Number(o {sign} self.n)
    def __i{name}__(self, o):
        self.n {sign}= getattr(o, 'n', o)
        return self
"""
_NUMBERS = """
a, b = Number(7), Number(2)
assert a {sign} b == Number(7 {sign} 2) and (a {sign} b).n == 7 {sign} 2 and a {sign} b != Number(99)
assert (a {sign} 2).n == (7 {sign} b).n == 7 {sign} 2 and a {sign} 2 == 7 {sign} b and not a {sign} 2 == Number(99)
c = a {sign} b
c {sign}= 1
assert c.n == (7 {sign} 2) {sign} 1
a {sign}= b
assert a.n == 7 {sign} 2 and a == 7 {sign} 2 and a in [7 {sign} 2] and a != 99 and a < 999
assert (a {sign} b {sign} 1).n == 7 {sign} 2 {sign} 2 {sign} 1 and abs((a {sign} b).n - (7 {sign} 2 {sign} 2)) < 1e-9
assert b == 2 and 2 == b and b < 3 and 1 < b <= Number(2) and sorted([b, Number(1)])[0] == Number(1) and (b.copy() {sign} 1).n == 2 {sign} 1 and {{b: 'x'}}[2] == 'x'
"""

_UNARIES = {
    **{f"__{name}__": (f"Number({value})", f"({call}).n == {value} and {call} == Number({value})") for name, value, call in (
        ("neg", "-7", "-a"), ("pos", "7", "+a"), ("invert", "-8", "~a"), ("abs", "7", "abs(a)"), ("round", "7", "round(a)"), ("copy", "7", "copy.copy(a)"))},
    **{f"__{name}__": (value, f"{call} == {value}") for name, value, call in (
        ("int", "7", "int(a)"), ("float", "7.0", "float(a)"), ("complex", "7j", "complex(a)"), ("index", "7", "[*range(9)][a]"), ("str", "'7'", "str(a)"), ("repr", "'N(7)'", "repr(a)"),
        ("format", "'007'", "f'{a:3}'"), ("bytes", "b'7'", "bytes(a)"), ("len", "7", "len(a)"), ("hash", "7", "hash(a)"), ("bool", "False", "bool(a)"), ("round", "7", "round(a, 1)"),
        ("floor", "7", "math.floor(a)"), ("ceil", "8", "math.ceil(a)"), ("trunc", "7", "math.trunc(a)"), ("abs", "7", "abs(a)"), ("getitem", "7", "a['x']"), ("call", "7", "a(1, k=2)"),
        ("contains", "True", "(5 in a)"), ("add", "7", "a + 1"), ("mod", "7", "a % 2"))},
    "__iter__": ("iter([7])", "list(a) == [7] and sum(a) == 7 and 7 in a"), "__reversed__": ("iter([7])", "[*reversed(a)] == [7]"),
}  # fmt: skip
_UNARY_NUMBER = "class Number:\n    def __init__(self, n): self.n = n\n    def __eq__(self, o): return self.n == getattr(o, 'n', o)\n    __hash__ = None\n    def {method}(self, *rest, **names): return {value}\n"

_KINDS = """
import collections, contextlib, dataclasses, enum, fractions, typing
@dataclasses.dataclass(order=True)
class Point:
    x: int
    y: int = 0
    def moved(self, by): return dataclasses.replace(self, x=self.x + by)
Pair = collections.namedtuple('Pair', 'left right')
class Triple(typing.NamedTuple):
    a: int
    b: int = 2
    def total(self): return self.a + self.b
class Ratio(fractions.Fraction):
    def percent(self): return float(self * 100)
class Metres(int):
    def show(self): return f'{int(self)} m'
class Word(str):
    def __eq__(self, o): return self.lower() == o.lower()
    __hash__ = str.__hash__
    def letters(self): return len(self)
class Bag(list):
    def put(self, x):
        self.append(x)
        return self
class Flag(enum.Flag):
    A = 1
    B = 2
class Countdown:
    def __init__(self, n): self.n = n
    def __iter__(self): return self
    def __next__(self):
        if not self.n: raise StopIteration
        self.n -= 1
        return self.n
class Opened:
    log = ()
    def __enter__(self):
        self.log = ('in',)
        return self
    def __exit__(self, *error):
        self.log += ('out',)
        return False
class Account:
    def __init__(self, cents=0): self.cents = cents
    def deposit(self, cents):
        self.cents += cents
        return self
    def __eq__(self, o): return self.cents == (o.cents if isinstance(o, Account) else o)
    def __lt__(self, o): return self.cents < (o.cents if isinstance(o, Account) else o)
    def __mul__(self, k): return Account(self.cents * k)
    def __contains__(self, cents): return cents <= self.cents
    def __bool__(self): return self.cents > 0
class Node:
    def __init__(self, value, parent=None):
        self.value, self.parent, self.children = value, parent, []
    def add(self, value):
        self.children.append(Node(value, self))
        return self.children[-1]
    def root(self): return self if self.parent is None else self.parent.root()
class Trie:
    def __init__(self): self.words = []
    def insert(self, word):
        self.words.append(word)
        return self
    def search(self, word): return word in self.words
    def startswith(self, text): return any(word.startswith(text) for word in self.words)
class Bus:
    def __init__(self): self.listeners = []
    def on(self, listener): self.listeners.append(listener)
    def emit(self, *args):
        for listener in self.listeners: listener(*args)
def call(function, *args): return function(*args)
def rename(thing, name): thing.name = name
def read(thing): return thing.y, thing.z()
"""
_OF_KINDS = r"""
p = Point(1, 2); assert p == Point(1, 2) and p != Point(2) and p < Point(2) and p.moved(3) == Point(4, 2) and sorted([Point(2), p])[0] == p
p = Pair(1, 2); assert p == (1, 2) and p.left == 1 and (1, 2) == p and p._replace(left=3) == (3, 2) and p in [(1, 2)] and p < (1, 3)
t = Triple(1); assert t == (1, 2) and t.total() == 3 and list(t) == [1, 2] and t + (3,) == (1, 2, 3)
r = Ratio(1, 2); assert r == 0.5 and r.percent() == 50 and r < 1
m = Metres(3); assert m == 3 and m.show() == '3 m' and m + 1 == 4 and m in [3] and m < 4 and isinstance(m, int)
w = Word('Ab'); assert w == 'Ab' and w.letters() == 2 and w.startswith('A') and w + 'c' == 'Abc'
b = Bag([1]); b.put(2).put(3); assert b == [1, 2, 3] and b.put(4) is b and b == [1, 2, 3, 4] and 4 in b and sum(b) == 10
assert Flag.A | Flag.B == Flag.B | Flag.A and Flag.A in (Flag.A | Flag.B) and Flag(1) is Flag.A and (Flag.A | Flag.B).value == 3
c = Countdown(3); assert list(c) == [2, 1, 0] and c.n == 0 and iter(c) is c; assert sum(Countdown(4)) == 6 and 1 in Countdown(2)
o = Opened();\nwith o as v:\n    assert v is o and v.log == ('in',)\nassert o.log == ('in', 'out')
a = Account(5); a.deposit(3); assert a == 8 and 8 == a and a < 9 and 7 in a and a in [8] and (a * 2).cents == 16 and a * 2 == Account(16) and a
a = Account(5); a.deposit(3); a.deposit(cents=1); assert a == 9 and a == Account(9) and [a] == [9] and max(a, Account(1)) is a
a = Account(5); assert a.deposit(3) is a and a.cents == 8 and a == Account(8) and a.deposit(1).deposit(1).cents == 10
n = Node(1); m = n.add(2).add(3); assert m.root() is n and m.parent.parent is n and n.children[0].value == 2 and m.root() == n and m in m.parent.children and {n: 1}[m.root()] == 1
t = Trie(); t.insert('abc'); t.insert('b'); assert t.search('abc') and not t.search('a') and t.startswith('ab') and not t.startswith('c')
t = Trie(); assert t.insert('abc').search('abc') and 'abc'.startswith(t.words[0])
from unittest.mock import Mock\nm = Mock(return_value=4)\nassert call(m, 1, 2) == 4\nm.assert_called_once_with(1, 2)\nassert m.call_count == 1
from unittest.mock import MagicMock\nm = MagicMock()\nb = Bus()\nb.on(m)\nb.emit(3, 'x')\nb.emit([1])\nassert m.call_args_list[0][0] == (3, 'x') and m.called and b.listeners[0] is m\nm.assert_called_with([1])
from unittest.mock import Mock, PropertyMock\nm = Mock()\ntype(m).y = PropertyMock(return_value=5)\nm.z.return_value = 6\nassert read(m) == (5, 6)\nrename(m, 'x')\nassert m.name == 'x'
class Mine:\n    name = None\n    def show(self): return f'mine {self.name}'\nm = Mine()\nrename(m, 'x')\nassert m.name == 'x' and m.show() == 'mine x'
got = []; b = Bus(); b.on(got.append); b.emit(5); assert got == [5] and b.listeners[0](6) is None and got == [5, 6]
def fails():\n    assert 1 == 2\ntry:\n    call(fails)\nexcept AssertionError:\n    failed = True\nassert failed
import unittest\ncase = unittest.TestCase()\na = Account(3)\ncase.assertEqual(a, 3)\ncase.assertEqual(a.deposit(2), Account(5))\ncase.assertIs(a.deposit(1), a)\ncase.assertTrue(a)
"""


def right() -> list[Program]:
    """Return the table of right submissions."""
    found = [
        Program(f"operator {sign}", _NUMBER.format(name=name, sign=sign), [_NUMBERS.format(sign=sign)], {"classes": ["Number"]})
        for name, sign in _SIGNS.items()
    ]  # fmt: skip
    for method, (value, holds) in _UNARIES.items():
        code = _UNARY_NUMBER.format(method=method, value=value)
        found.append(Program(f"{method} gives {value}", code, [f"import copy, math\na = Number(7)\nassert {holds}\nassert a == 7"], {"classes": ["Number"]}))  # fmt: skip
    for number, test in enumerate(_OF_KINDS.strip().splitlines()):
        found.append(Program(f"kind {number}: {test}", _KINDS, [test.replace("\\n", "\n")]))
    return found
