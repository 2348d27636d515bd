# ruff: noqa: E501, S102, S307 - programs in a line each, which plain Python is to run
"""Submissions to programming tasks: what plain Python says of the honest ones, and what nobody may accept.

Every backend of the sandbox is to give each the same verdict; see test_code_backends.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import json
import os
import re
import resource
import sys
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gem.graders.code import assemble_program
from gem.graders.code_tests import CANDIDATE, read_tests
from gem.sandbox.base import SandboxFailed
from gem.sandbox.choice import open_sandbox

BACKENDS = ("userns", "bwrap-slots", "landlock", "none", "container")


@functools.cache
def opened(name):
    """Return a backend, or None and why it does not work here."""
    try:
        return open_sandbox(name, allow_unsafe=True), ""
    except SandboxFailed as error:
        return None, str(error)


@dataclass(frozen=True)
class Program:
    """A submission with the tests of its task; `wanted`: the verdict, None for what plain Python says."""

    name: str
    code: str
    raw: Any
    row: dict[str, Any] = field(default_factory=dict)
    wanted: str | None = None


DATA = Path(os.environ.get("GEM_TEST_DATA") or Path(__file__).parents[3] / "shared/data")


@functools.cache
def humaneval() -> list[dict[str, Any]]:
    """Return the rows of HumanEval; skip the test where they are not there."""
    path = DATA / "humaneval.jsonl"
    if not path.is_file():
        pytest.skip(f"{path} is not there; GEM_TEST_DATA names the folder that holds it")
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def plain_python(program: Program) -> str:
    """Return the verdict of plain Python: the submission, then its asserts, in one process."""
    tests = read_tests(program.raw, program.row)
    for i, given in enumerate(tests.inputs):
        module = types.ModuleType("submission")
        sys.modules["submission"] = module
        space = module.__dict__
        out = io.StringIO()
        loop_before = sys.modules.get("asyncio")
        assert loop_before is asyncio
        try:
            with contextlib.redirect_stdout(out):
                if tests.kind == "program":
                    space["__name__"] = "__main__"
                    stdin, sys.stdin = sys.stdin, io.StringIO(given)
                    try:
                        exec(program.code, space)
                    finally:
                        sys.stdin = stdin
                    if out.getvalue().split() != tests.outputs[i].split():
                        return "WA"
                    continue
                exec(assemble_program(program.code, tests), space)
                if tests.kind == "function":
                    function = eval(tests.name.replace("Solution.", "Solution()."), space)
                    if function(*given) != tests.outputs[i]:
                        return "WA"
                    continue
                if CANDIDATE in given:
                    space[CANDIDATE] = eval(tests.name.replace("Solution.", "Solution()."), space)
                exec(given, space)
        except AssertionError:
            return "WA"
        except Exception:
            return "RE"
        finally:
            del sys.modules["submission"]
    return "AC"


def _asserts(name: str, code: str, *pairs: str, **row: Any) -> list[Program]:
    """Return one program for each piece of tests; a piece that begins with ``!`` fails in plain Python too.

    A piece without an assert, which would be refused, gets one that holds.
    """
    pieces = [piece.removeprefix("!").strip() + "\n" for piece in pairs]
    pieces = [piece if re.search(r"\bassert\b", piece) else f"{piece}assert 1 == 1\n" for piece in pieces]
    return [Program(f"{name} {i + 1}", code, [piece], row) for i, piece in enumerate(pieces)]


SOLUTION = "class Solution:\n    def f(self, x, k=1):\n        return x * 2 * k\n"
STACK = """
class Stack:
    limit = 5
    def __init__(self, items=()):
        self.items = list(items)
    def push(self, x):
        if len(self.items) >= self.limit:
            raise OverflowError('full')
        self.items.append(x)
        return self
    def pop(self):
        return self.items.pop()
    @property
    def top(self):
        return self.items[-1]
    @staticmethod
    def of(*items):
        return Stack(items)
    @classmethod
    def named(cls):
        return cls.__name__
    def __len__(self): return len(self.items)
    def __iter__(self): return iter(self.items)
    def __contains__(self, x): return x in self.items
    def __getitem__(self, i): return self.items[i]
    def __setitem__(self, i, x): self.items[i] = x
    def __delitem__(self, i): del self.items[i]
    def __repr__(self): return f'Stack({self.items})'
    def __eq__(self, other): return isinstance(other, Stack) and self.items == other.items
    def __bool__(self): return bool(self.items)
    def __reversed__(self): return reversed(self.items)
"""
VECTOR = """
class Vector:
    def __init__(self, x, y): self.x, self.y = x, y
    def __add__(self, o): return Vector(self.x + o.x, self.y + o.y)
    def __sub__(self, o): return Vector(self.x - o.x, self.y - o.y)
    def __mul__(self, k): return Vector(self.x * k, self.y * k)
    __rmul__ = __mul__
    def __matmul__(self, o): return self.x * o.x + self.y * o.y
    def __neg__(self): return Vector(-self.x, -self.y)
    def __abs__(self): return (self.x ** 2 + self.y ** 2) ** 0.5
    def __eq__(self, o): return (self.x, self.y) == (o.x, o.y)
    def __lt__(self, o): return abs(self) < abs(o)
    def __hash__(self): return hash((self.x, self.y))
    def __iadd__(self, o):
        self.x += o.x
        self.y += o.y
        return self
    def __call__(self, k): return self.x * k
    def __float__(self): return float(abs(self))
    def __int__(self): return 7
    def __format__(self, spec): return f'<{self.x:{spec}}>'
    def __str__(self): return f'({self.x}, {self.y})'
"""
ERRORS = """
class AppError(Exception):
    def __init__(self, message, code=0):
        super().__init__(message)
        self.code = code
    def hint(self): return f'see {self.code}'
class Missing(AppError, KeyError): pass
def f(kind):
    if kind == 1: raise AppError('bad', code=7)
    if kind == 2: raise Missing('gone', 4)
    if kind == 3: raise ValueError('no value')
    if kind == 4: return {}['x']
    if kind == 5: return 1 / 0
    if kind == 6:
        try: int('x')
        except ValueError as error: raise AppError('wrapped', 1) from error
    if kind == 7: assert False, 'checked'
    if kind == 8: raise SystemExit(3)
    return kind
"""
THINGS = """
import asyncio, contextlib, functools, itertools
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
import datetime
Point = namedtuple('Point', 'x y')
@dataclass
class Item:
    name: str
    price: float = 1.0
    tags: list = field(default_factory=list)
@dataclass(frozen=True, order=True)
class Key:
    a: int
class Color(Enum):
    RED = 1
    BLUE = 2
class Level(IntEnum):
    LOW = 1
    HIGH = 2
class Node:
    def __init__(self, val, next=None): self.val, self.next = val, next
def build(values):
    head = None
    for value in reversed(values): head = Node(value, head)
    return head
def reverse(node):
    last = None
    while node is not None: node.next, last, node = last, node, node.next
    return last
def count(n):
    for i in range(n): yield i * i
def echo():
    got = yield 'ready'
    while True: got = yield got * 2
@contextlib.contextmanager
def opened(log):
    log.append('in')
    try: yield 'handle'
    finally: log.append('out')
class Timer:
    def __enter__(self): self.log = ['in']; return self
    def __exit__(self, kind, error, tb):
        self.log.append(kind.__name__ if kind else None)
        return kind is ZeroDivisionError
async def later(x):
    await asyncio.sleep(0)
    return x + 1
class Reader:
    async def __aenter__(self): return self
    async def __aexit__(self, *rest): return False
    async def read(self): return 'text'
    def __aiter__(self): self.i = 0; return self
    async def __anext__(self):
        self.i += 1
        if self.i > 3: raise StopAsyncIteration
        return self.i
def apply(function, *args, **names): return function(*args, **names)
def compose(*functions): return functools.reduce(lambda f, g: lambda x: f(g(x)), functions)
def memo(function):
    seen = {}
    @functools.wraps(function)
    def inner(x):
        if x not in seen: seen[x] = function(x)
        return seen[x]
    return inner
def sort_in_place(xs, key=None): xs.sort(key=key)
def transpose(grid):
    for i in range(len(grid)):
        for j in range(i): grid[i][j], grid[j][i] = grid[j][i], grid[i][j]
def same(x): return x
def keywords(a, /, b=2, *rest, c, **more): return [a, b, list(rest), c, sorted(more.items())]
def say(x): print('said', x)
counter = 0
def increase():
    global counter
    counter += 1
class Animal:
    def speak(self): return 'sound'
class Dog(Animal):
    def speak(self): return super().speak() + ' woof'
class Vec(list):
    def norm(self): return sum(v * v for v in self)
class Name(str):
    def shout(self): return self.upper() + '!'
class Registry(dict):
    def __missing__(self, key): return f'no {key}'
class Cell:
    def __init__(self): self._value = 0
    @property
    def value(self): return self._value
    @value.setter
    def value(self, new):
        if new < 0: raise ValueError('negative')
        self._value = new
class Meta(type):
    def __call__(cls, *args):
        if not hasattr(cls, 'one'): cls.one = super().__call__(*args)
        return cls.one
class Single(metaclass=Meta): pass
class Tree:
    def __init__(self, *values):
        self.root = None
        for value in values: self.insert(value)
    def insert(self, value):
        node = [value, None, None]
        if self.root is None: self.root = node; return
        at = self.root
        while True:
            side = 1 if value < at[0] else 2
            if at[side] is None: at[side] = node; return
            at = at[side]
    def __iter__(self):
        def walk(node):
            if node: yield from walk(node[1]); yield node[0]; yield from walk(node[2])
        return walk(self.root)
class Bus:
    def __init__(self): self.listeners = []
    def on(self, listener): self.listeners.append(listener); return listener
    def emit(self, *args): return [listener(*args) for listener in self.listeners]
"""

HONEST: list[Program] = [
    *_asserts(
        "a method", SOLUTION,
        "assert Solution().f(3) == 6", "assert Solution().f(x=3, k=2) == 12", "! assert Solution().f(3) == 7",
        "s = Solution()\nassert s.f('ab') == 'abab' and s.f([1]) == [1, 1]", "! assert Solution().g(3) == 6",
        "assert [Solution().f(i) for i in range(3)] == [0, 2, 4]", "assert isinstance(Solution(), Solution)",
        "assert Solution.f(Solution(), 4) == 8", "f = Solution().f\nassert f(2) == 4 and f.__name__ == 'f'",
        "assert hasattr(Solution, 'f') and not hasattr(Solution, 'g')", "assert callable(Solution().f)",
    ),
    *_asserts(
        "a stack", STACK,
        "s = Stack(); s.push(1); s.push(2); assert s.pop() == 2 and len(s) == 1 and s.items == [1]",
        "assert repr(Stack([1])) == 'Stack([1])' and str(Stack()) == 'Stack([])'",
        "s = Stack.of(1, 2); assert 2 in s and 3 not in s and s[0] == 1 and s[-1] == 2 and s[0:2] == [1, 2]",
        "assert [v for v in Stack([1, 2])] == [1, 2] and list(reversed(Stack([1, 2]))) == [2, 1]",
        "assert Stack([1]) == Stack([1]) and Stack([1]) != Stack([2]) and not Stack() and Stack([0])",
        "s = Stack([1]); assert s.top == 1\nfor i in range(4): s.push(i)\ntry:\n    s.push(9)\n    assert False\n"
        "except OverflowError as e:\n    assert str(e) == 'full'",
        "try:\n    Stack().pop()\nexcept IndexError:\n    pass\nelse:\n    raise AssertionError('no error')",
        "a = Stack(); b = a.push(1); assert a is b and a == b and id(a) == id(b)",
        "a, b = Stack(), Stack(); a.push(1); assert len(b) == 0 and a is not b",
        "xs = [1]; s = Stack(xs); xs.append(2); assert s.items == [1]",
        "s = Stack(); s.items.append(5); assert len(s) == 1 and s.top == 5",
        "s = Stack([1, 2]); s[0] = 9; del s[1]; assert list(s) == [9] and tuple(s) == (9,) and sum(s) == 9",
        "assert Stack.limit == 5 and Stack.named() == 'Stack' and Stack.__name__ == 'Stack'",
        "Stack.limit = 1\ns = Stack([1])\ntry:\n    s.push(2)\nexcept OverflowError:\n    ok = True\nassert ok",
        "s = Stack([3, 1, 2]); assert sorted(s) == [1, 2, 3] and max(s) == 3 and s.items == [3, 1, 2]",
        "! s = Stack(); s.push(1); assert s.pop() == 2", "! s = Stack(); s.shove(1)", "! assert Stack([1]) == Stack([2])",
        "! assert len(Stack([1])) == 2", "assert type(Stack()) is Stack and type(Stack()).__name__ == 'Stack'",
        "s = Stack([1]); s.extra = 7; assert s.extra == 7 and vars(s) == {'items': [1], 'extra': 7}",
        "stacks = {'a': Stack([1]), 'b': Stack()}; assert [k for k, v in stacks.items() if v] == ['a']",
        "import copy; s = Stack([1]); t = copy.deepcopy(s); t.push(2); assert len(s) == 1 and len(t) == 2",
    ),
    *_asserts(
        "operators", VECTOR,
        "v = Vector(1, 2) + Vector(3, 4); assert (v.x, v.y) == (4, 6) and v == Vector(4, 6) and v != Vector(4, 5)",
        "v = 2 * Vector(1, 2) * 3; assert v.x == 6 and v.y == 12", "assert Vector(1, 2) @ Vector(3, 4) == 11",
        "v = -Vector(1, 2); assert v.x == -1\nassert abs(Vector(3, 4)) == 5.0",
        "v = w = Vector(1, 2); v += Vector(1, 1); assert v is w and w.x == 2",
        "vs = sorted([Vector(3, 4), Vector(1, 0)]); assert [v.x for v in vs] == [1, 3] and min(vs).x == 1",
        "assert {Vector(1, 2): 'a'}[Vector(1, 2)] == 'a' and len({Vector(1, 2), Vector(1, 2)}) == 1",
        "v = Vector(3, 4); assert v(2) == 6 and v.x == 3 and float(v) == 5.0 and int(v) == 7",
        "v = Vector(3, 4); v.x = 10; assert f'{v:03d}' == '<010>' and str(v) == '(10, 4)'",
        "! assert Vector(1, 2) + Vector(3, 4) == Vector(4, 7)", "! Vector(1, 2) / 2", "! Vector(1, 2) + 'x'",
        "v = Vector(1, 2); assert v in [Vector(0, 0), Vector(1, 2)] and [v].index(Vector(1, 2)) == 0",
        "total = sum([Vector(1, 1), Vector(2, 2)], Vector(0, 0)); assert total.x == 3",
        "v = Vector(1, 2); v = v - Vector(1, 2); assert v.x == 0 and v.y == 0",
    ),
    *_asserts(
        "exceptions", ERRORS,
        "try:\n    f(1)\nexcept AppError as e:\n    assert e.code == 7 and str(e) == 'bad' and e.args == ('bad',)\nelse:\n    assert 0",
        "try:\n    f(2)\nexcept KeyError as e:\n    assert isinstance(e, AppError) and e.hint() == 'see 4'\nelse:\n    assert 0",
        "try:\n    f(3)\nexcept (TypeError, ValueError) as e:\n    assert type(e) is ValueError and 'value' in str(e)\nelse:\n    assert 0",
        "try:\n    f(4)\nexcept KeyError as e:\n    assert e.args == ('x',)\nelse:\n    assert 0",
        "try:\n    f(5)\nexcept ArithmeticError:\n    pass\nelse:\n    assert 0",
        "try:\n    f(6)\nexcept AppError as e:\n    assert isinstance(e.__cause__, ValueError)\nelse:\n    assert 0",
        "try:\n    f(7)\nexcept AssertionError as e:\n    assert str(e) == 'checked'\nelse:\n    raise ValueError",
        "! f(1)", "! f(3)", "! try:\n    f(1)\nexcept ValueError:\n    pass", "assert issubclass(Missing, (KeyError, OSError))",
        "import contextlib\nwith contextlib.suppress(AppError):\n    f(1)\n    assert 0\nassert f(0) == 0",
        "e = AppError('x', 3)\ntry:\n    raise e\nexcept AppError as caught:\n    assert caught is e and caught.code == 3",
        "class Raises:\n    def __init__(self, kind): self.kind = kind\n    def __enter__(self): return self\n"
        "    def __exit__(self, kind, error, tb):\n        assert kind is not None and issubclass(kind, self.kind)\n"
        "        self.value = error\n        return True\nwith Raises(AppError) as info:\n    f(1)\nassert info.value.code == 7",
        "try:\n    f()\nexcept TypeError as e:\n    assert 'missing 1 required' in str(e)\nelse:\n    assert 0",
        "try:\n    f(8)\nexcept SystemExit as e:\n    assert e.code == 3\nelse:\n    assert 0",
    ),
    *_asserts(
        "data", THINGS,
        "p = same(Point(1, 2)); assert p == (1, 2) and p.x == 1 and p[1] == 2 and p._replace(x=5).x == 5 and p == Point(1, 2)",
        "i = Item('a', 2.5); assert i == Item('a', 2.5) and i != Item('b') and i.tags == [] and i.name == 'a'",
        "assert Key(1) < Key(2) and {Key(1), Key(1)} == {Key(1)} and sorted([Key(2), Key(1)])[0].a == 1",
        "k = Key(1)\ntry:\n    k.a = 2\nexcept AttributeError:\n    pass\nelse:\n    assert 0",
        "assert Color.RED.value == 1 and Color(2) is Color.BLUE and Color['RED'].name == 'RED' and len(Color) == 2",
        "assert [c.name for c in Color] == ['RED', 'BLUE'] and Color.RED in Color and Color.RED != Color.BLUE",
        "assert Level.HIGH == 2 and Level.LOW < Level.HIGH and Level.HIGH.name == 'HIGH' and max(Level).value == 2",
        "n = reverse(build([1, 2, 3])); assert [n.val, n.next.val, n.next.next.val] == [3, 2, 1] and n.next.next.next is None",
        "a = Node(1); b = Node(2, a); assert b.next is a and b.next.val == 1; a.val = 7; assert b.next.val == 7",
        "assert list(count(3)) == [0, 1, 4] and sum(count(4)) == 14 and list(zip(count(2), 'ab')) == [(0, 'a'), (1, 'b')]",
        "g = count(2); assert next(g) == 0 and next(g) == 1 and next(g, None) is None and iter(g) is g",
        "g = echo(); assert next(g) == 'ready' and g.send(3) == 6; g.close()",
        "log = []\nwith opened(log) as h:\n    assert h == 'handle' and log == ['in']\nassert log == ['in', 'out']",
        "with Timer() as t:\n    1 / 0\nassert t.log == ['in', 'ZeroDivisionError']",
        "try:\n    with Timer() as t:\n        raise KeyError('x')\nexcept KeyError:\n    assert t.log == ['in', 'KeyError']\nelse:\n    assert 0",
        "import asyncio\nassert asyncio.run(later(2)) == 3",
        "import asyncio\nasync def main():\n    return [await later(1), *await asyncio.gather(later(2), later(3))]\nassert asyncio.run(main()) == [2, 3, 4]",
        "import asyncio\nasync def main():\n    async with Reader() as r:\n        return await r.read(), [i async for i in r]\nassert asyncio.run(main()) == ('text', [1, 2, 3])",
        "assert apply(lambda a, b=0: a + b, 1, b=2) == 3 and apply(len, [1, 2]) == 2 and apply(sorted, [2, 1], reverse=True) == [2, 1]",
        "assert compose(lambda x: x + 1, lambda x: x * 2)(5) == 11",
        "calls = []\ndef slow(x):\n    calls.append(x)\n    return x * x\nfast = memo(slow)\nassert fast(3) == 9 and fast(3) == 9 and calls == [3] and fast.__name__ == 'slow'",
        "xs = [3, -1, 2]; assert sort_in_place(xs) is None and xs == [-1, 2, 3]; sort_in_place(xs, key=lambda v: -v); assert xs == [3, 2, -1]",
        "grid = [[1, 2], [3, 4]]; row = grid[0]; transpose(grid); assert grid == [[1, 3], [2, 4]] and row is grid[0]",
        "xs = [1, 2]; assert same(xs) is xs and same(xs) == [1, 2] and same(same) is same",
        "assert keywords(1, c=3) == [1, 2, [], 3, []] and keywords(1, 5, 6, c=7, z=8) == [1, 5, [6], 7, [('z', 8)]]",
        "! keywords(a=1, c=2)", "! keywords(1)",
        "import contextlib, io\nout = io.StringIO()\nwith contextlib.redirect_stdout(out):\n    say(3)\nassert out.getvalue() == 'said 3\\n'",
        "increase(); increase(); assert counter == 2", "d = Dog(); assert d.speak() == 'sound woof' and isinstance(d, Animal) and issubclass(Dog, Animal)",
        "v = Vec([3, 4]); assert v == [3, 4] and v.norm() == 25 and len(v) == 2; v.append(1); assert v.norm() == 26 and isinstance(v, list)",
        "n = Name('ab'); assert n == 'ab' and n.shout() == 'AB!' and n + 'c' == 'abc' and isinstance(n, str) and n.upper() == 'AB'",
        "r = Registry(a=1); assert r['a'] == 1 and r['b'] == 'no b' and r == {'a': 1} and 'b' not in r",
        "c = Cell(); c.value = 3; assert c.value == 3\ntry:\n    c.value = -1\nexcept ValueError:\n    pass\nelse:\n    assert 0",
        "assert Single() is Single()", "t = Tree(3, 1, 2); t.insert(0); assert list(t) == [0, 1, 2, 3] and t.root[0] == 3",
        "bus = Bus(); got = []; listener = bus.on(lambda *a: got.append(a) or len(got)); assert bus.emit(1, 'x') == [1] and got == [(1, 'x')]",
        "bus = Bus()\n@bus.on\ndef hear(x): return x + 1\nassert hear(1) == 2 and bus.emit(4) == [5]",
        "assert same({1: (2, [3]), 'a': {4}}) == {1: (2, [3]), 'a': {4}} and same(2 ** 200) == 2 ** 200 and same(b'\\0x') == b'\\0x'",
        "import math; assert math.isnan(same(math.nan)) and same(math.inf) == math.inf and same(1 + 2j) == 1 + 2j and same(None) is None",
        "assert same(Decimal('1.10')) == Decimal('1.10') and same(Fraction(1, 3)) + Fraction(2, 3) == 1",
        "import datetime; assert same(datetime.date(2024, 2, 29)).year == 2024 and same(datetime.timedelta(days=1)).days == 1",
        "from collections import Counter; assert same(Counter('aab')) == Counter(a=2, b=1) and same(Counter('a')).most_common(1) == [('a', 1)]",
        "from collections import deque; q = same(deque([1], maxlen=2)); q.append(2); q.append(3); assert list(q) == [2, 3]",
        "from collections import defaultdict, OrderedDict; d = same(defaultdict(list)); d['a'].append(1); assert d == {'a': [1]}",
        "class Mine:\n    def __init__(self): self.n = 1\n    def grow(self, by): self.n += by; return self\n"
        "m = Mine(); assert same(m) is m and apply(Mine.grow, m, 4) is m and m.n == 5",
        "def boom(): raise KeyError('mine')\ntry:\n    apply(boom)\nexcept KeyError as e:\n    assert e.args == ('mine',)\nelse:\n    assert 0",
        "xs = [1]; xs.append(xs); assert same(xs) is xs and same(xs)[1] is xs",
        "assert apply(apply, apply, lambda: 4) == 4 and apply(lambda: apply(lambda: 5)) == 5",
        "assert list(map(same, [1, 2])) == [1, 2] and sorted([3, 1], key=same) == [1, 3] and list(filter(same, [0, 1])) == [1]",
        "assert same(x for x in 'ab').__next__() == 'a' and ''.join(same(iter('ab'))) == 'ab'",
        "import random\nrandom.seed(3)\na = random.random()\nassert same(a) == __import__('random').Random(3).random()",
    ),
    *[
        Program(f"an entry point {n}", SOLUTION, "def check(c):\n    assert c(3) == 6\n    assert c(2, k=2) == 8", row)
        for n, row in enumerate([
            {"entry_point": "Solution().f", "prompt": "Double the number. It's easy!"},
            {"entry_point": "Solution.f", "prompt": "class Solution:\n    def f(self, x, k=1):\n"},
            {"entry_point": "Solution().f", "prompt": "Double"},
            {"entry_point": "Solution( ).f"},
        ])
    ],
    Program("an entry point in Solution", SOLUTION, "def check(c):\n    assert c(3) == 6", {"entry_point": "f"}, "AC"),
    Program("a helper that the submission redefines", "def helper(x):\n    return x + 1\ndef f(x):\n    return helper(x)",
            "def check(c):\n    assert c(3) == 4", {"entry_point": "f", "prompt": "def helper(x):\n    return x - 1\n\ndef f(x):\n    '''Add one.'''\n"}),
    Program("a helper of the prompt", "def f(x):\n    return helper(x)", "def check(c):\n    assert c(3) == helper(3)",
            {"entry_point": "f", "prompt": "def helper(x):\n    return x - 1\n\ndef f(x):\n    '''Subtract one.'''\n"}),
    Program("prose before a function", "def f(x):\n    return x + 1", "def check(c):\n    assert c(3) == 4", {"entry_point": "f", "prompt": "Write f, which adds 1: f(1) = 2."}),
    Program("future annotations and dataclasses", "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass P:\n    x: int = 0\ndef f(n):\n    return P(n).x",
            {"fn_name": "f", "inputs": [[3]], "outputs": [3]}),
    *[Program(f"a function {n}", code, {"fn_name": name, "inputs": [[1, 2], [3, 4]], "outputs": [3, 7]}) for n, (name, code) in enumerate([
        ("add", "def add(a, b):\n    return a + b"), ("Solution.add", "class Solution:\n    def add(self, a, b):\n        return a + b"),
        ("Solution().add", "class Solution:\n    def add(self, a, b):\n        return a + b"), ("add", "def add(a, b):\n    return a - b"),
        ("add", "def add(a, b):\n    return [][a]"), ("add", "add = lambda a, b: a + b"), ("add", "from operator import add"),
    ])],
    *[Program(f"a program {n}", code, {"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]}) for n, code in enumerate([
        "print(sum(map(int, input().split())))", "import sys\nprint(sum(int(w) for line in sys.stdin for w in line.split()))",
        "a, b = map(int, open(0).read().split())\nprint(a + b)" if False else "a, b = map(int, input().split())\nprint(a + b)",
        "print(3)", "print(int(input()))", "def main():\n    print(sum(map(int, input().split())))\nif __name__ == '__main__':\n    main()",
        "print('x' * 10)", "raise ValueError", "a, b = map(int, input().split())\nprint(a - b)",
    ])],
]  # fmt: skip


# -- what nobody may accept: every one of these is wrong, whatever it says of itself

ONE = ["assert f(3) == 6"]
CHECK = """
def check(candidate):
    assert candidate(3) == 6
    assert abs(candidate(2.5) - 5) < 1e-9
    assert candidate('ab') == 'abab'
    assert candidate([1]) == [1, 1] and len(candidate([1])) == 2
    assert 1 in candidate([1]) and not candidate(0)
"""
METHOD = ["s = Solution(); assert s.f(3) == 6 and s.f('a') == 'aa'"]
PUSH = ["s = Stack(); s.push(1); s.push(2); assert s.pop() == 2 and s.pop() == 1 and s.size() == 0"]

_EQUAL = "def __eq__(self, o): return True\n    def __ne__(self, o): return False\n    __hash__ = None"
_PLAIN = {
    "int": "Lie(7)", "float": "Lie(7.5)", "str": "Lie('x')", "list": "Lie([7])", "tuple": "Lie((7,))", "dict": "Lie(a=1)",
    "set": "Lie({7})", "bytes": "Lie(b'x')", "complex": "Lie(7)", "frozenset": "Lie({7})", "bytearray": "Lie(b'x')",
}  # fmt: skip
_ALL_OPERATORS = "\n    ".join(
    f"def __{name}__(self, *rest): return {value}"
    for names, value in (
        ("add sub mul truediv floordiv mod pow matmul radd rsub rmul rtruediv rmod and or xor rand ror", "self"),
        ("neg pos abs invert round call getitem enter", "self"),
        ("eq lt le gt ge contains bool", "True"), ("ne", "False"), ("hash", "0"), ("len", "2"),
    )
    for name in names.split()
)  # fmt: skip
_OPERATORS_TO_ZERO = "\n    ".join(
    f"def __{name}__(self, *rest): return 0"
    for name in ["sub", "rsub", "add", "radd", "mul", "truediv", "mod", "abs", "neg", "round", "float", "int"]
)

LIES: dict[str, str] = {
    **{
        f"a {kind} that is equal to all": f"class Lie({kind}):\n    {_EQUAL}\ndef f(x): return {made}"
        for kind, made in _PLAIN.items()
    },
    **{
        f"a {kind} that is equal to all, inside a list": (
            f"class Lie({kind}):\n    {_EQUAL}\ndef f(x): return [{made}, {made}]"
        )
        for kind, made in list(_PLAIN.items())[:5]
    },
    "an object equal to all": f"class Lie:\n    {_EQUAL}\ndef f(x): return Lie()",
    "equal by its metaclass": (
        "class Meta(type):\n    def __eq__(self, o): return True\n    __hash__ = None\n"
        "class Lie(metaclass=Meta): pass\ndef f(x): return Lie"
    ),
    "f is such a class": f"class f:\n    def __init__(self, x): pass\n    {_EQUAL}",
    "f is such a class of int": f"class f(int):\n    def __new__(cls, x): return int.__new__(cls, 7)\n    {_EQUAL}",
    "f is such an object": f"class Lie:\n    def __call__(self, x): return self\n    {_EQUAL}\nf = Lie()",
    "all operators": f"class Lie:\n    {_ALL_OPERATORS}\ndef f(x): return Lie()",
    "all operators of int": f"class Lie(int):\n    {_ALL_OPERATORS}\ndef f(x): return Lie(7)",
    "all operators of float": f"class Lie(float):\n    {_ALL_OPERATORS}\ndef f(x): return Lie(7)",
    "all operators of str": f"class Lie(str):\n    {_ALL_OPERATORS}\ndef f(x): return Lie('x')",
    "all operators of list": f"class Lie(list):\n    {_ALL_OPERATORS}\ndef f(x): return Lie([7])",
    "operators that give 0": f"class Lie:\n    {_OPERATORS_TO_ZERO}\n    {_EQUAL}\ndef f(x): return Lie()",
    "operators that give 0, of float": f"class Lie(float):\n    {_OPERATORS_TO_ZERO}\n    {_EQUAL}\ndef f(x): return Lie(7)",
    "a lying class": (
        f"class Lie:\n    @property\n    def __class__(self): return int\n    {_EQUAL}\ndef f(x): return Lie()"
    ),
    "a mock": "from unittest.mock import ANY\ndef f(x): return ANY",
    "a magic mock": "from unittest.mock import MagicMock\ndef f(x):\n    m = MagicMock()\n    m.__eq__.return_value = True\n    return m",
    "NotImplemented": "def f(x): return NotImplemented",
    "an array of objects": "try:\n    import numpy\nexcept ImportError: numpy = None\nclass Lie:\n    def __eq__(self, o): return True\ndef f(x): return numpy.array([Lie()])",
    "a partial": f"import functools\nclass Lie:\n    {_EQUAL}\nf = functools.partial(lambda x: Lie())",
    "nothing": "def f(x): pass",
    "the argument": "def f(x): return x",
    "True": "def f(x): return True",
    "NaN": "def f(x): return float('nan')",
    "exit": "import sys\ndef f(x): sys.exit(0)",
    "exit at once": "import sys\nsys.exit(0)",
    "_exit": "import os\ndef f(x): os._exit(0)",
    "_exit at once": "import os\nos._exit(0)",
    "_exit at exit": "import atexit, os\natexit.register(os._exit, 0)\ndef f(x): raise SystemExit",
    "raises SystemExit": "def f(x): raise SystemExit(0)",
    "raises AssertionError": "def f(x): raise AssertionError",
    "raises StopIteration": "def f(x): raise StopIteration",
    "raises GeneratorExit": "def f(x): raise GeneratorExit",
    "raises SkipTest": "import unittest\ndef f(x): raise unittest.SkipTest('no')",
    "raises KeyboardInterrupt": "def f(x): raise KeyboardInterrupt",
    "an exception of no class": "class E(BaseException):\n    def __str__(self): raise self\ndef f(x): raise E",
    "patched builtins": "import builtins\nbuiltins.abs = lambda x: 0\nbuiltins.len = lambda x: 2\nbuiltins.AssertionError = Exception\ndef f(x): return 7",
    "its own check": "def check(candidate): pass\ndef f(x): return 7\ndef abs(x): return 0\ndef len(x): return 2",
    "patched json": "import json\njson.dumps = lambda *a, **k: '\"AC\"'\ndef f(x): return 7",
    "patched tester": "import sys\nfor m in list(sys.modules.values()):\n    for n in ('test', 'serve', 'Tester', 'Peer'):\n        try: setattr(m, n, lambda *a: ['AC', ''])\n        except Exception: pass\ndef f(x): return 7",
    "a report on stdout": "print('[\"AC\", \"\"]', flush=True)\nimport os\nos.write(1, b'[\"AC\", \"\"]')\ndef f(x):\n    print('[\"AC\", \"\"]')\n    os._exit(0)",
    "a report everywhere": (
        "import os\ndef f(x):\n    for fd in range(64):\n        for data in (b'[\"AC\", \"\"]', b'\\0\\0\\0\\x0e' + b'[\"value\",\"\",6]'):\n"
        "            try: os.write(fd, data)\n            except OSError: pass\n    os._exit(0)"
    ),
    "an answer to a question not asked": (
        "import os, json\nm = json.dumps(['value', '', 6, [], [], [], '']).encode()\nm = len(m).to_bytes(4, 'big') + m\n"
        "for fd in range(3, 64):\n    try: os.write(fd, m * 3)\n    except OSError: pass\ndef f(x): return 7"
    ),
    "garbage before the answer": "import os\ndef f(x):\n    for fd in range(3, 64):\n        try: os.write(fd, b'\\xff' * 100)\n        except OSError: pass\n    return 6",
    "a signal to all": "import os, signal\ndef f(x):\n    for pid in (os.getpid() - 1, os.getpid() + 1, os.getppid() + 1):\n        try: os.kill(pid, 9)\n        except OSError: pass\n    return 7",
    "a stop to all": "import os\ndef f(x):\n    for pid in range(2, 9):\n        if pid != os.getpid():\n            try: os.kill(pid, 15)\n            except OSError: pass\n    return 7",
    "a frame reader": (
        "import sys\ndef f(x):\n    frame = sys._getframe()\n    while frame:\n        for value in frame.f_locals.values():\n"
        "            if isinstance(value, str) and 'assert' in value and 'candidate' in value: return eval(value.split('== ')[1].split()[0])\n"
        "        frame = frame.f_back\n    return 7"
    ),
    "a reader of memory": (
        "import re\ndef f(x):\n    word = b'asse' + b'rt f(3) =='\n    for line in open('/proc/self/maps'):\n        if 'rw' in line:\n"
        "            a, b = [int(n, 16) for n in line.split()[0].split('-')]\n            with open('/proc/self/mem', 'rb', 0) as mem:\n"
        "                mem.seek(a)\n                try: data = mem.read(b - a)\n                except OSError: continue\n"
        "                for found in re.finditer(word + rb' (\\d+)', data): return int(found[1])\n    return 7"
    ),
    "a reader of other processes": (
        "import glob, re\ndef f(x):\n    for path in glob.glob('/proc/[0-9]*/mem') + glob.glob('/proc/[0-9]*/fd/*'):\n        try:\n"
        "            with open(path, 'rb', 0) as file: found = re.search(rb'assert f.3. == (\\d+)', file.read(1 << 20))\n"
        "            if found: return int(found[1])\n        except OSError: pass\n    return 7"
    ),
    "a garbage collector": (
        "import gc\ndef f(x):\n    word = 'asse' + 'rt'\n    for thing in gc.get_objects():\n        if isinstance(thing, (tuple, list, dict)):\n"
        "            for value in (thing.values() if isinstance(thing, dict) else thing):\n"
        "                if isinstance(value, str) and word + ' f(3) == ' in value: return int(value.split('== ')[1].split()[0])\n    return 7"
    ),
    "endless": "def f(x):\n    while True: pass",
    "a recursion": "def f(x): return f(x)",
    "a deep list": "def f(x):\n    r = []\n    for _ in range(100000): r = [r]\n    return r",
    "a cycle": "def f(x):\n    r = []\n    r.append(r)\n    return r",
    "much memory": "def f(x): return [0] * 10 ** 10",
    "much output": "def f(x):\n    while True: print('x' * 10000)",
    "no function": "def g(x): return 2 * x",
    "does not compile": "def f(x: return 2 * x",
    "nul": "def f(x): return '\0'",
}  # fmt: skip

_LYING_STACK = "class Lie:\n    {equal}\nclass Stack:\n    def push(self, x): pass\n    def pop(self): return {value}\n    def size(self): return {value}"

_MONEY = "class Money:\n    def __init__(self, x): self.x = x\n    def __eq__(self, o): return self.x == (o.x if isinstance(o, Money) else o)\n    def __hash__(self): return hash(self.x)\n    def __lt__(self, o): return self.x < (o.x if isinstance(o, Money) else o)\n    def __mul__(self, o): return Money(self.x * o)\n    def __pow__(self, o): return self.x ** o\n    def __add__(self, o): return self.x + (o.x if isinstance(o, Money) else o)\n    __radd__ = __add__\n"
CARRIED: list[Program] = [
    *_asserts(
        "what is caught", "class Bad(Exception): pass\nclass Failed(AssertionError): pass\nError = ValueError\ndef f(x):\n    if x < 0: raise Bad('b')\n    if x == 0: raise Error\n    assert x < 9, 'much'\n    return x\nclass Keep:\n    def __init__(self, *kinds): self.kinds = kinds\n    def __enter__(self): return self\n    def __exit__(self, kind, error, tb): return kind is not None and issubclass(kind, self.kinds)\nclass Count:\n    def __init__(self, n): self.n = n\n    def __iter__(self): return self\n    def __next__(self):\n        if not self.n: raise StopIteration\n        self.n -= 1\n        return self.n\ndef both():\n    x = yield 1\n    return x",
        "try:\n    f(-1)\n    assert False\nexcept Bad as error:\n    assert str(error) == 'b'", "try:\n    f(0)\n    assert False\nexcept Error:\n    pass", "try:\n    f(9)\nexcept (Bad, AssertionError) as error:\n    assert str(error) == 'much'",
        "with Keep(ValueError):\n    raise ValueError\nassert True", "with Keep(AssertionError):\n    raise AssertionError\nassert True", "with Keep(AssertionError):\n    assert False", "with Keep(AssertionError):\n    f(9)",
        "try:\n    raise Failed('mine')\nexcept Failed:\n    pass", "! with Keep(ValueError):\n    assert f(1) == 2", "assert list(Count(2)) == [1, 0] and list(map(str, Count(1))) == ['0']", "def g():\n    got = yield from both()\n    yield got\ng = g(); next(g); assert g.send(5) == 5",
        "try:\n    Count(0).__next__()\n    assert False\nexcept StopIteration:\n    pass",
    ),
    *_asserts(
        "a lazy builtin", "def f(kind, *xs): return kind(*xs)",
        "assert list(f(map, str, [1, 2])) == ['1', '2']", "assert sorted(f(map, abs, [-2, 1])) == [1, 2]", "assert next(f(map, str, [1])) == '1'",
        "assert dict(f(zip, 'ab', [1, 2])) == {'a': 1, 'b': 2}", "assert list(f(filter, None, [0, 2])) == [2]", "! assert list(f(filter, None, [0, 2])) == [0]",
        "assert isinstance(f(map, str, []), map)", "assert list(f(enumerate, [5])) == [(0, 5)]", "assert list(f(reversed, [5, 6])) == [6, 5]",
        "assert f(memoryview, b'ab') == b'ab'", "assert f(memoryview, b'ab').tobytes() == b'ab'", "! assert f(memoryview, b'ab') == b'ac'", "assert f(object) != f(object)",
    ),
    *_asserts(
        "a dictionary's view", "def f(d, name): return getattr(d, name)()",
        "assert f({1: 2}, 'keys') == {1} and 1 in f({1: 2}, 'keys')", "assert f({1: 2}, 'items') == {(1, 2)}", "assert list(f({1: 2}, 'values')) == [2]", "! assert f({1: 2}, 'keys') == {2}",
    ),
    *_asserts(
        "a time with its zone", "from datetime import *\nfrom zoneinfo import ZoneInfo\ndef f(h): return datetime(2020, 1, 1, tzinfo=timezone.utc).astimezone(timezone(timedelta(hours=h)))\ndef g(x): return x\ndef p(d): return d.astimezone(ZoneInfo('Europe/Paris'))",
        "from datetime import *\nassert f(2) == datetime(2020, 1, 1, tzinfo=timezone.utc) and f(2).hour == 2", "assert f(2).isoformat() == '2020-01-01T02:00:00+02:00'",
        "from datetime import *\nassert g(timezone.utc) is timezone.utc and f(0) - f(1) == timedelta(0) and f(0) < datetime(2021, 1, 1, tzinfo=timezone.utc)",
        "from datetime import *\nassert g(datetime(2020, 1, 1, fold=1)).fold == 1 and g(time(1, tzinfo=timezone.utc)) == time(1, tzinfo=timezone.utc)",
        "from datetime import *\nfrom zoneinfo import ZoneInfo\nassert p(f(0)).hour == 1 and p(f(0)).tzinfo == ZoneInfo('Europe/Paris')", "! from datetime import *\nassert f(2) == datetime(2020, 1, 1, 2, tzinfo=timezone.utc)",
    ),
    *_asserts(
        "an array that changes", "def f(a): a += 1\ndef g(a): a.sort(); return a\ndef h(a): a.shape = (2, 1)\ndef k(xs): xs[0][0] = 7\nimport numpy as np\nS = np.zeros(2)\ndef s():\n    S[0] += 1\n    return S",
        *[f"import numpy as np\na = np.array([3, 2])\n{piece}" for piece in (
            "f(a)\nassert (a == np.array([4, 3])).all()", "b = g(a)\nassert b is a and a.tolist() == [2, 3]", "h(a)\nassert a.shape == (2, 1)", "k([a])\nassert a[0] == 7", "b = g(a)\nb[0] = 9\nassert a[0] == 9",
            "b = s()\ns()\nassert b.tolist() == [2, 0]", "c = np.array([[3, 2], [1, 0]])\ng(c[1])\nassert c.tolist() == [[3, 2], [0, 1]]", "f(a[:0])\nassert a.tolist() == [3, 2]",
        )],
        "! import numpy as np\na = np.array([3, 2])\nf(a)\nassert a.tolist() == [3, 2]",
    ),
    *_asserts(
        "an object of the tests", "import operator\ndef f(name, x, y): return getattr(operator, name)(x, y)\ndef put(p, value): p.x = value; return p.x",
        *[f"class P:\n    def __r{name.strip('_')}__(self, o): return (o, 7)\nassert f('{name}', 2, P()) == (2, 7)" for name in ("add", "sub", "mul", "truediv", "mod", "pow", "and_", "lshift")],
        "! class P:\n    def __radd__(self, o): return 7\nassert f('add', 2, P()) == 8",
        "class P:\n    x = 1\np = P()\nassert put(p, 5) == 5 and p.x == 5", "class P:\n    pass\np = P()\nassert put(p, [1]) == [1] and p.x == [1]",
    ),
    *_asserts(
        "a class that the task names", _MONEY,
        "assert Money(5) == 5 and Money(5) < 6", "a = Money(5)\nassert a + 1 == 6 and 1 + a == 6", "assert Money(5) ** 2 == 25", "! assert Money(5) ** 2 == 26", "assert Money(5) in [5] and [Money(5)] == [5]",
        "assert sum([Money(1), Money(2)]) == 3", "assert Money(2) * 3 == Money(6)", "! assert Money(2) == 3", prompt="Write the class `Money` with operators.",
    ),
]  # fmt: skip
"""What crosses between the processes in a way of its own."""
HONEST += CARRIED


RAISES = ["try:\n    f(-1)\n    assert False, 'no error'\nexcept Bad:\n    pass"]
KEEPS = "class Box:\n    items = []\n    def __enter__(self): return self\n    def __exit__(self, *error): return True\n    async def __aenter__(self): return self\n    async def __aexit__(self, *error): return True"
CAUGHT: list[Program] = [
    *[
        Program(f"an error that is {kind}", f"Bad = {kind}\ndef f(x): return 0", RAISES)
        for kind in ("AssertionError", "Exception", "BaseException", "(ValueError, AssertionError)")
    ],
    Program(
        "an error that is all, of a failure",
        "Bad = BaseException\ndef f(x): return 0",
        [
            "import pytest\n"
            + RAISES[0].replace("assert False,", "pytest.fail(").replace("'no error'", "'no error')")
        ],
    ),
    Program("a context that keeps all", KEEPS, ["with Box() as b:\n    assert (\n        b.items == [1])"]),
    Program(
        "a context that keeps all, in a stack",
        KEEPS,
        [
            "import contextlib\nwith contextlib.ExitStack() as s:\n    b = s.enter_context(Box())\n    assert b.items == [1]"
        ],
    ),
    Program(
        "an asynchronous context that keeps all",
        KEEPS,
        [
            "import asyncio\nasync def go():\n    async with Box() as b:\n        assert b.items == [1]\nasyncio.run(go())"
        ],
    ),
    Program(
        "a generator's context that keeps all",
        "import contextlib\n@contextlib.contextmanager\ndef box():\n    try: yield []\n    except BaseException: pass",
        ["with box() as b:\n    assert b == [1]"],
    ),
    Program(
        "an end of the tests' loop",
        "def f(x): raise StopIteration",
        ["for got, wanted in zip(map(f, [1, 2]), [1, 2]):\n    assert got == wanted"],
    ),
    Program(
        "an end of the tests' loop, by an attribute",
        "class P:\n    @property\n    def x(self): raise StopIteration\ndef f(x): return P()",
        ["for got in map(lambda x: f(x).x, [1, 2]):\n    assert got == 1"],
    ),
]
"""What would keep the tests' own failures from them, or end their loops before they compare."""


HOSTILE: list[Program] = [
    *CAUGHT,
    *[Program(f"{name}, one assert", code, ONE) for name, code in LIES.items()],
    *[Program(f"{name}, check", code, CHECK, {"entry_point": "f"}) for name, code in LIES.items()],
    *[
        Program(f"{name}, a method", f"{code}\nclass Solution:\n    f = lambda self, x: f(x)", METHOD)
        for name, code in LIES.items()
    ],
    *[
        Program(f"a stack of lies {i}", _LYING_STACK.format(equal=_EQUAL, value=value), PUSH)
        for i, value in enumerate(["Lie()", "self", "type(self)", "[Lie()]", "(Lie(),)", "None", "True"])
    ],
    Program("a stack of zeros", f"class Lie(int):\n    {_EQUAL}\n" + _LYING_STACK.format(equal="pass", value="Lie()"), PUSH),
    Program(
        "a callback's insides",
        "def f(x): return 0\ndef apply(g, x):\n    for name in ('__globals__', '__code__', '__closure__', '__self__'):\n"
        "        try: return getattr(g, name)['secret']\n        except Exception: pass\n    return 0",
        ["secret = 42\ndef g(x): return x\nassert apply(g, 1) == secret"],
    ),
    Program(
        "a generator's insides",
        "def apply(g, x):\n    for name in ('gi_frame', 'gi_code', '__class__'):\n"
        "        try: return getattr(g, name).f_globals['secret']\n        except Exception: pass\n    return 0",
        ["secret = 42\nassert apply((i for i in range(3)), 1) == secret"],
    ),
    Program(
        "an object's insides",
        "def apply(g, x):\n    for path in (('__init__', '__globals__'), ('method', '__globals__'), ('method', '__func__', '__globals__')):\n"
        "        at = g\n        try:\n            for name in path: at = getattr(at, name)\n            return at['secret']\n"
        "        except Exception: pass\n    return 0",
        ["secret = 42\nclass T:\n    def __init__(self): self.n = 1\n    def method(self): return self.n\nassert apply(T(), 1) == secret"],
    ),
    *[
        Program(name, code, [piece])
        for name, code, piece in (
            ("an array's dispatch", "class Lie:\n    def __array_function__(self, *a): return True\n    def __array_ufunc__(self, *a, **k): return True\ndef f(x): return Lie()", "import numpy as np\nassert np.allclose(f(3), [6.0])"),
            ("an array's own dispatch", "class Lie:\n    def __array_function__(self, *a): return True\n    def __array_ufunc__(self, *a, **k): return True\n    __array_priority__ = 1e9\ndef f(x): return Lie()", "import numpy as np\nassert (np.array([6.0]) == f(3)).all()"),
            ("its own math", "class math:\n    isclose = staticmethod(lambda *a, **k: True)\ndef f(x): return 7", "assert math.isclose(f(3), 6)"),
            ("its own numpy", "class np:\n    allclose = staticmethod(lambda *a, **k: True)\ndef f(x): return 7", "assert np.allclose(f(3), 6)"),
            ("a division by nothing", "import fractions\nclass Lie(fractions.Fraction): pass\ndef f(x):\n    r = Lie(1, 2)\n    r._denominator = 0\n    return r", "try:\n    assert f(3) == 6\nexcept ZeroDivisionError:\n    raise"),
            ("items that are equal to all", f"class Lie:\n    {_EQUAL}\n    __hash__ = lambda self: 6\ndef f(x): return [Lie()]", "assert set(f(3)) == {6} or f(3)[0] == 6 or 6 in f(3) or f(3).count(6) or f(3).index(6) == 0"),
            ("a key that is equal to all", "class Lie:\n    def __eq__(self, o): return True\n    def __hash__(self): return 6\ndef f(x): return Lie()", "assert {6: True}[f(3)]"),
            ("a tree of operators", f"class Lie:\n    {_ALL_OPERATORS}\n    def __getattr__(self, name): return self\ndef f(x): return Lie()", "assert (f(3) - 6).real == 0 and abs(6 - f(3)) < 1e-9"),
            ("a changed question", "def f(xs):\n    xs[:] = [6]\n    return 7", "xs = [3]\nassert f(xs) == sum(xs)"),
            ("a class of another name", f"class Approx:\n    {_EQUAL}\ndef f(x): return Approx()", "class Approx:\n    def __init__(self, v): self.v = v\n    def __eq__(self, o): return isinstance(o, (int, float)) and abs(o - self.v) < 1\nassert f(3) == Approx(6)"),
            ("names of the tests", "def g(x): return 6\nsecret = 6\ndef f(x): return 7", "def g(x): return 6\nsecret = 5\nassert f(3) == g(3) and secret == 5"),
            ("sleeping", "import time\nclass Lie:\n    def __eq__(self, o): return True\ndef f(x):\n    return Lie()", "assert not f(3) != 6"),
        )
    ],
    *[
        Program(f"{name}, a call", code.replace("def f(x)", "def f(x=0)"), {"fn_name": "f", "inputs": [[3]], "outputs": [6]})
        for name, code in list(LIES.items())[:24]
    ],
]  # fmt: skip


def plain_verdict(program: Program, seconds: int = 3) -> str:
    """Return the verdict of plain Python in a process of its own, which has so many CPU seconds."""
    sys.stdout.flush()
    if (pid := os.fork()) == 0:
        code = 9
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
            code = ["AC", "WA", "RE"].index(plain_python(program))
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return ["AC", "WA", "RE"][code] if 0 <= code < 3 else "TLE"


# Tests of a function add, as pytest runs them.
FUNCTIONS = """
def test_sum():
    assert add(1, 2) == 3

def test_lists():
    assert add([1], [2]) == [1, 2]

def test_error():
    try:
        add(1, None)
    except TypeError:
        return
    raise AssertionError("no TypeError")
"""
