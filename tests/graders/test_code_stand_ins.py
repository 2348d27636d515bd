# ruff: noqa: E501 - programs in a line each
"""Stand-ins in the tests' process for what the submission has: their hashes, names and classes."""

from __future__ import annotations

import pytest

from gem.errors import NoVerdict
from gem.graders.code import CodeGrader
from gem.graders.code_tests import read_tests


@pytest.fixture(scope="module")
def judge(sandbox):
    def judge(code, raw, row=None):
        return CodeGrader(sandbox).judge(code, read_tests(raw, row)).info["verdict"]

    return judge


KEY = (
    "class Key:\n    def __init__(self, x): self.x = x\n    def __eq__(self, other): return self.x == other.x\n"
    "    def __hash__(self): return hash(self.x)\n"
)
COLOUR = "from enum import Enum\nclass Colour(Enum):\n    RED = 1\ndef f(): return {Colour.RED: 2}"
HASHED = {
    "a dict with a member of an enumeration": (COLOUR, "assert f()[Colour.RED] == 2"),
    "a set of paths": (
        "from pathlib import Path\ndef f(): return {Path('a'), Path('b')}",
        "assert sorted(map(str, f())) == ['a', 'b']",
    ),
    "a set that an object keeps": (
        f"{KEY}class Box:\n    def __init__(self): self.seen = set()\n    def add(self, x): self.seen.add(Key(x))\n",
        "b = Box()\nfor i in range(3): b.add(i)\nassert len(b.seen) == 3\nb.add(3)\nassert sorted(k.x for k in b.seen) == [0, 1, 2, 3]",
    ),
    "a dict that the tests hold while it grows": (
        f"{KEY}kept = {{}}\ndef f(): return kept\ndef put(i): kept[Key(i)] = i",
        "d = f()\nfor i in range(3): put(i)\nassert sorted(d.values()) == [0, 1, 2]\nput(1)\nassert len(d) == 3 == len(f())",
    ),
    "lists beside a frozen set": (
        f"{KEY}def f():\n    a = [1]\n    return a, frozenset({{Key(1)}}), a, {{Key(2): a}}, a",
        "r = f()\nr[0].append(2)\nassert r[0] is r[2] is r[4] and r[4] == [1, 2]",
    ),
    "an ordered dict": (
        f"{KEY}from collections import OrderedDict\ndef f(): return OrderedDict([(Key(2), 'b'), (Key(1), 'a')])",
        "d = f()\nassert list(d.values()) == ['b', 'a'] and [k.x for k in d] == [2, 1]",
    ),
    "a set of the tests' own objects": (
        "def f(s): return len(s), s",
        "class Own:\n    pass\ns = {Own(), Own()}\nn, t = f(s)\nassert n == 2 == len(s) and t is s",
    ),
}


@pytest.mark.parametrize(("code", "test"), HASHED.values(), ids=HASHED)
def test_sets_and_dicts_hold_objects_of_the_other_process(judge, code, test):
    assert judge(code, [test]) == "AC"
    assert judge(code, [f"{test}\nassert 1 == 2"]) == "WA"  # the tests ran to their end


SUM = "def sum(a, b):\n    return {}"
OWN = "from solution import {}\ndef test_a():\n    assert {}\n"
NAMED = {
    "a builtin that the submission lacks": ("x = 1", OWN.format("pow", "pow(2, 3) == 8"), {}, "RE"),
    "a builtin that it defines": ("def round(x): return 3", OWN.format("round", "round(2.5) == 3"), {}, "AC"),
    "a module that it defines": ("def copy(x): return 3", OWN.format("copy", "copy(2) == 3"), {}, "AC"),
    "a builtin in a class": (
        "x = 1",
        "import unittest\nfrom solution import round\nclass T(unittest.TestCase):\n    v = round(7)\n"
        "    def test_a(self):\n        self.assertEqual(self.v, 7)\n",
        {},
        "RE",
    ),
    "the row's solution defines it": (
        SUM.format(6),
        ["assert sum(10, 15) == 6"],
        {"code": SUM.format(1)},
        "AC",
    ),
    "and the submission lacks it": ("x = 1", ["assert sum([]) == 0"], {"code": SUM.format(1)}, "RE"),
    "the entry point": (SUM.format(6), ["assert sum(10, 15) == 6"], {"entry_point": "sum"}, "AC"),
}


@pytest.mark.parametrize("isolate", [True, False])
@pytest.mark.parametrize(("code", "raw", "row", "wanted"), NAMED.values(), ids=NAMED)
def test_a_function_named_like_a_builtin_is_the_submissions(judge, code, raw, row, wanted, isolate):
    assert judge(code, raw, {**row, "isolate": isolate}) == wanted


@pytest.mark.parametrize(
    "tests",
    [
        "for x in ():\n    assert f(x) == x",
        "import sys\nif sys.version_info < (3, 0):\n    assert f(1) == 1",
        "import math\ndef f(x):\n    return x\nassert f(math.floor(1.5)) == 1",
    ],
)
def test_tests_that_end_without_the_submission_give_no_verdict(judge, tests):
    with pytest.raises(NoVerdict, match="without having used the submission"):
        judge("def f(x): return 99", tests)


@pytest.mark.parametrize(
    "tests", ["assert f(4) == WANTED", "class T:\n    wanted = WANTED\nassert f(4) == T.wanted"]
)
def test_a_submission_does_not_define_what_its_task_never_mentions(judge, tests):
    guess = "WANTED = 99\ndef f(x): return 99"
    with pytest.raises(NoVerdict, match="name 'WANTED' is not defined"):
        judge(guess, [tests], {"question": "Halve a number with f."})
    assert judge(guess, [tests], {"question": "Give WANTED with f."}) == "AC"


OBJECTS = [
    ("pathlib", "pathlib.Path('a')", "pathlib.PurePath"),
    ("uuid", "uuid.UUID(int=1)", "uuid.UUID"),
    ("re", "re.match('a', 'a')", "re.Match"),
    ("array", "array.array('i', [1])", "array.array"),
    ("io", "io.StringIO('a')", "io.StringIO"),
    ("queue", "queue.Queue()", "queue.Queue"),
    ("ipaddress", "ipaddress.ip_address('1.2.3.4')", "ipaddress.IPv4Address"),
    ("types", "types.MappingProxyType({})", "types.MappingProxyType"),
    ("collections.abc", "collections.ChainMap()", "collections.abc.Mapping"),
    ("numpy", "numpy.random.default_rng(0)", "numpy.random.Generator"),
    ("numpy", "numpy.ma.array([1], mask=[1])", "numpy.ma.MaskedArray"),
    ("pandas", "pandas.DataFrame({'a': [1]})", "pandas.DataFrame"),
]


@pytest.mark.parametrize(("module", "value", "kind"), OBJECTS, ids=[kind for *_, kind in OBJECTS])
def test_an_object_of_a_library_is_an_instance_of_its_class_on_both_sides(judge, module, value, kind):
    pytest.importorskip(module)
    code = f"import {module}\ndef f(): return {value}\ndef g(x): return isinstance(x, {kind}) and not isinstance(x, str)"
    test = (
        f"import unittest, {module}\nclass T(unittest.TestCase):\n    def test_a(self):\n"
        f"        self.assertIsInstance(f(), {kind})\n        self.assertNotIsInstance(f(), (int, str, list))\n"
        f"        assert isinstance(f(), (int, {kind})) and g(f()) and not g(T)"
    )
    assert judge(code, test) == "AC"
    assert judge(code, f"import {module}\nassert g({value})") == "AC"
    assert judge(code, f"import {module}\nassert isinstance(f(), (int, str, list))") == "WA"


def test_a_class_keeps_its_own_class_beside_a_librarys(judge):
    code = "import abc, enum\nclass Own(abc.ABC):\n    pass\nclass C(enum.Enum):\n    A = 1\ndef f(): return Own()"
    test = (
        "import abc, enum\nassert isinstance(f(), abc.ABC) and isinstance(f(), Own) and f().__class__ is Own\n"
        "assert isinstance(C.A, enum.Enum) and C.A.__class__.__name__ == 'C'"
    )
    assert judge(code, [test]) == "AC"


RAISES = "import unittest, {0}\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertRaises({1}, f)\n"


@pytest.mark.parametrize(
    ("module", "statement", "kind"),
    [
        ("json", "json.loads('{')", "json.JSONDecodeError"),
        ("numpy", "numpy.linalg.inv([[0, 0], [0, 0]])", "numpy.linalg.LinAlgError"),
        ("pandas", "pandas.read_csv(__import__('io').StringIO(''))", "pandas.errors.EmptyDataError"),
    ],
)
def test_tests_catch_exceptions_of_a_library_by_their_class(judge, module, statement, kind):
    pytest.importorskip(module)
    code = f"import {module}\ndef f(): {statement}"
    assert judge(code, RAISES.format(module, kind)) == "AC"
    assert judge(code, RAISES.format(module, "LookupError")) == "RE"


# -- what names its class like a library's decides nothing by that

_CLAIM = """
class {name}{base}:
    def __eq__(self, other): return True
    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __eq__
    def __ne__(self, other): return False
    __hash__ = lambda self: 1
    def __len__(self): return 1
    def __iter__(self): yield self
    def __getitem__(self, key): return self
    def __getattr__(self, name):
        if name.startswith("__"): raise AttributeError(name)
        return self
    def __call__(self, *given, **named): return True
    def __sub__(self, other): return 0
    __rsub__ = __add__ = __radd__ = __sub__
    def __mul__(self, other): return self
    __rmul__ = __mul__
    def __abs__(self): return 0
    shape = (2, 1)
    equals = __eq__
{name}.__module__ = {module!r}
def f(): return object.__new__({name})
"""
_FRAME = "import pandas as pd\nwant = pd.DataFrame({'a': [1, 2]})\nassert isinstance(f(), pd.DataFrame)\n"
CLAIMS = [
    *(
        ("pandas", "DataFrame", f"{_FRAME}{each}")
        for each in (
            # with a star, as a row whose tests evidently compare a table of the submission is refused
            *("assert want.equals(*[f()])", "assert f().equals(*[want])", "pd.testing.assert_frame_equal(*[f(), want])"),
            *("pd.testing.assert_frame_equal(*[want, f()])", "assert (f() == want).all().all()"),
            *("assert (want == f()).all().all()", "assert f()['a'][0] == 1", "assert 1 in f()"),
        )
    ),
    ("numpy", "ndarray", "import numpy as np\nassert isinstance(f(), np.ndarray)\nassert np.allclose(f(), [1, 2])"),
    ("numpy", "float64", "import numpy as np\nassert isinstance(f(), np.floating)\nassert abs(f() - 3) < 1"),
    ("numpy", "float64", "import numpy as np\nassert isinstance(f(), float)\n"),
    ("builtins", "int", "assert isinstance(f(), int)"),
    ("unittest.mock", "_ANY", "from unittest.mock import ANY\nassert isinstance(f(), type(ANY))"),
    ("tests", "Own", "class Own: pass\nclass Sub(Own): pass\nassert isinstance(f(), Sub)"),
    ("numbers", "Rational", "from fractions import Fraction\nassert Fraction(1, 2) < f()"),
    ("numbers", "Number", "import functools, numbers\nsize = functools.singledispatch(lambda x: 0)\nsize.register(numbers.Number)(lambda x: 1)\nassert size(f())"),
    *(
        ("collections.abc", name, f"from collections import Counter, UserDict\nwant = UserDict(a=1)\nassert {test}")
        for name, test in (
            *(("Set", each) for each in ("want.keys() == f()", "want.keys() <= f()", "not want.keys() - f()", "not want.keys().isdisjoint(f())")),
            *(("Mapping", each) for each in ("want == f()", "Counter(f()) == Counter(a=1)", "not Counter(want) - Counter(f())")),
        )
    ),
    ("uuid", "UUID", "import uuid\nassert isinstance(f(), uuid.UUID)\nassert f() == uuid.UUID(int=3)"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "name", "test"), CLAIMS)
def test_an_object_that_names_a_librarys_class_is_equal_to_nothing(judge, module, name, test):
    if module in ("pandas", "numpy"):
        pytest.importorskip(module)
    assert judge(_CLAIM.format(module=module, name=name, base=""), [test]) in ("WA", "RE")


GIVING = """
from collections import ChainMap, UserDict, UserList
from collections.abc import Mapping, MutableMapping, Sequence, Set
class Pairs(Mapping):
    def __init__(self, **data): self.data = data
    def __getitem__(self, key): return self.data[key]
    def __iter__(self): return iter(self.data)
    def __len__(self): return len(self.data)
class Changing(Pairs, MutableMapping):
    def __setitem__(self, key, value): self.data[key] = value
    def __delitem__(self, key): del self.data[key]
class Items(Sequence):
    def __init__(self, data): self.data = data
    def __getitem__(self, index): return self.data[index]
    def __len__(self): return len(self.data)
class Members(Set):
    def __init__(self, data): self.data = data
    def __iter__(self): return iter(self.data)
    def __len__(self): return len(self.data)
    def __contains__(self, item): return item in self.data
"""
GIVEN = {
    **dict.fromkeys(
        ("Pairs(a=2, b=1)", "Changing(a=2, b=1)", "UserDict(a=2, b=1)", "ChainMap({'a': 2}, {'b': 1})"),
        "assert collections.Counter(f()) == {'a': 2, 'b': 1} and kind(f()) == 'mapping'\n"
        "count = collections.Counter(a=3)\ncount.subtract(f())\ncount.update(f())\nassert count == {'a': 3, 'b': 0}\n"
        "assert collections.UserDict(a=2, b=1) == f()\n",
    ),
    **dict.fromkeys(
        ("Items([1, 2, 3])", "UserList([1, 2, 3])"),
        "assert sorted(random.sample(f(), 3)) == [1, 2, 3] and kind(f()) == 'sequence'\n",
    ),
    "Members([1, 2])": "assert collections.UserDict({1: 0, 2: 0}).keys() == f() and kind(f()) == 'set'\n",
}  # fmt: skip
KINDS = """
import collections, collections.abc, functools, random
kind = functools.singledispatch(lambda x: 'other')
kind.register(collections.abc.Set)(lambda x: 'set')
kind.register(collections.abc.Mapping)(lambda x: 'mapping')
kind.register(collections.abc.Sequence)(lambda x: 'sequence')
"""


@pytest.mark.parametrize("given", GIVEN)
def test_libraries_take_the_items_of_a_submissions_containers(judge, given):
    tests = KINDS + GIVEN[given]
    assert judge(f"{GIVING}def f(): return {given}", [tests]) == "AC"
    assert judge(f"{GIVING}def f(): return {given.replace('2', '7')}", [tests]) == "WA"


VALUED = {
    "Fraction('1/2')": (
        "f() == Fraction(1, 2) == f()", "Fraction(1, 3) < f() < 1 and 0.4 <= f()", "Fraction(1, 2) + f() == 1 and f() * 2 == 1",
        "abs(f() - 0.5) < 1e-9 and sum([f(), f()]) == 1", "max(f(), Fraction(1, 3)) == 0.5 and f() in [Fraction(1, 2)]",
    ),
    "Decimal('1.10')": ("f() == Decimal('1.1') == f()", "Decimal(1) < f() < 2 and f() - 1 == Decimal('0.1')", "sum([f(), f()]) == Decimal('2.2')"),
    "date(2020, 1, 2)": ("f() == date(2020, 1, 2)", "date(2020, 1, 1) < f() < date(2021, 1, 1) and f() - timedelta(1) < f()", "f() - date(2020, 1, 1) == timedelta(1)"),
    "datetime(2020, 1, 2, tzinfo=timezone.utc)": ("f() - timedelta(1) == datetime(2020, 1, 1, tzinfo=timezone.utc)",),
    "timedelta(days=1.5)": ("f() == timedelta(1.5) and f() / 2 == timedelta(0.75)", "datetime(2020, 1, 1) + f() == datetime(2020, 1, 2, 12)"),
}  # fmt: skip
VALUE_MODULES = "from datetime import date, datetime, timedelta, timezone\nfrom decimal import Decimal\nfrom fractions import Fraction\n"
VALUE_LIAR = """
    def __str__(self): return "?"
    def __eq__(self, other): return True
    __lt__ = __le__ = __gt__ = __ge__ = __eq__
    def __ne__(self, other): return False
    def __add__(self, other): return Sub({other})
    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __abs__ = lambda self, *other: other[0]
    __hash__ = None
"""


@pytest.mark.parametrize("value", VALUED)
def test_an_object_of_a_subclass_of_a_value_is_compared_by_it(judge, value):
    name, given = value.rstrip(")").split("(", 1)
    other = given.replace("1", "3").replace("2020", "2024")
    for test in VALUED[value]:
        tests = [f"{VALUE_MODULES}assert {test}"]
        for lies in ("    pass\n", VALUE_LIAR.format(other=given)):
            code = f"{VALUE_MODULES}class Sub({name}):\n{lies}def f(): return Sub({{}})\n"
            assert judge(code.format(given), tests) == "AC"
            assert judge(code.format(other), tests) == "WA"


def test_no_operator_gives_an_object_that_holds_a_value(judge):
    code = f"{VALUE_MODULES}class Sub(Fraction): pass\nclass Box:\n    def __sub__(self, other): return Sub(0)\ndef f(): return Box()\n"
    assert judge(code, ["assert f() - 6 == 0"]) == "WA"


COUNTS = """
from collections import Counter
class Count(Counter):
    def __getitem__(self, key): return 1
    def __sub__(self, other): return 0
    __rsub__ = __sub__
def f(): return Count("ab")
"""
COUNTED = ["Counter('abc') == f()", "f() == Counter('abc')", "f() >= Counter('abc')", "Counter('abc') <= f()", "not Counter('abc') - f()"]  # fmt: skip


@pytest.mark.parametrize("test", COUNTED)
def test_a_subclass_of_counter_is_compared_by_what_it_holds(judge, test):
    right = COUNTS.replace("return 1", "return self.get(key, 0)")
    tests = f"from collections import Counter\nassert {test}"
    assert judge(COUNTS, [tests]) == "WA"
    assert judge(right, [tests.replace("abc", "ab")]) == "AC"


FRESH = """
class Box:
    def __add__(self, *other): return Box()
    __sub__ = __rsub__ = __mul__ = __rmul__ = __abs__ = __add__
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __lt__
def f(): return Box()
"""


@pytest.mark.parametrize("made", ["f()", "Box() + Box()"])
@pytest.mark.parametrize("test", ["abs(x - 6) <= 1e-9 * abs(x)", "1e-9 * x > abs(6 - x)", "x * 1 > x - 6"])
def test_an_object_is_no_tolerance_of_its_own_difference(judge, made, test):
    assert judge(FRESH, [f"x = {made}\nassert {test}"], {"classes": ["Box"]}) == "WA"


def test_objects_order_themselves(judge):
    code = "class Box:\n    def __init__(self, n=1): self.n = n\n    def __lt__(self, o): return self.n < o.n\n    def __mul__(self, k): return Box(self.n * k)\ndef f(): return Box(3)\n"
    tests = "assert f() < f() * 2 and f() * 2 > f() and Box(1) < Box(2) * 2 < f() * 2 and sorted([f() * 2, f()])[0].n == 3\n"
    assert judge(code, [tests], {"classes": ["Box"]}) == "AC"
    assert judge(code, [tests.replace("Box(2)", "Box(9)")], {"classes": ["Box"]}) == "WA"


ORDERED = {
    "paths": ("import pathlib\ndef f(n): return pathlib.Path('a', n)", "f('b') / 'c' < f('b') / 'd' and sorted([f('c') / 'x', f('b') / 'y'])[0].parts == ('a', 'b', 'y')"),
    "numbers of sympy": ("import sympy\ndef f(n): return sympy.Rational(n, 2)", "f(1) * 2 < f(3) * 2 and max(f(1) * 2, f(3) * 2) == f(6)"),
    "series": ("import pandas as pd\ndef f(*n): return pd.Series(n)", "(f(1, 2) * 2 > f(1, 2) * 1).all()"),
    "arrays of pandas": ("import pandas as pd\ndef f(*n): return pd.array(n)", "list(f(1, 2) * 2 > f(3, 1) * 1) == [False, True]"),
}  # fmt: skip
VECTOR = """
class V:
    def __init__(self, x): self.x = x
    def __mul__(self, k): return V(self.x * k)
    __rmul__ = __mul__
    def __add__(self, other): return V(self.x + other.x)
    def __lt__(self, other): return self.x < other.x
    def __eq__(self, other): return self.x == other.x
"""
VECTORS = """
import heapq, unittest
assert V(1) * 2 < V(1) * 3 and 2 * V(1) + V(1) < V(1) * 4 and not V(3) * 2 < V(1) * 2
assert sorted([V(3) * 2, V(1) * 2])[0] == V(2) and heapq.nlargest(1, [V(2) * 2, V(3) * 2])[0] == V(6)
unittest.TestCase().assertLess(V(1) * 2, V(1) * 3)
"""


@pytest.mark.parametrize("case", ORDERED)
def test_results_of_operators_on_objects_of_libraries_order_themselves(judge, case):
    code, test = ORDERED[case]
    pytest.importorskip(code.split()[1])
    assert judge(code, [f"assert {test}"]) == "AC"


@pytest.mark.parametrize("row", [{}, {"entry_point": "V"}, {"classes": ["V"]}])
def test_results_of_operators_order_themselves(judge, row):
    assert judge(VECTOR, [VECTORS], row) == "AC"
    assert judge(VECTOR.replace("self.x < other.x", "True"), [VECTORS], row) == "WA"


@pytest.mark.parametrize("base", ["int", "float"])
def test_no_object_is_ordered_by_a_fraction_that_is_made_of_it(judge, base):
    box = FRESH.replace("def f(): return Box()", "")
    code = f"{box}class Sub({base}):\n    numerator = denominator = property(lambda self: Box())\n    def as_integer_ratio(self): return Box(), Box()\ndef f(): return Sub(3)\n"
    assert judge(code, ["from fractions import Fraction\nassert Fraction(f()) > 6"]) == "WA"


FORGED = """
class Box{base}:
    def __eq__(self, other): return True
    def __sub__(self, *other): return 0
    __hash__, __rsub__, __abs__ = None, __sub__, __sub__
    def take(self): return self
def kinds(): return Box
def forge():
    kind = type(isinstance.__self__)
    old = kind.encode_object
    kind.encode_object = lambda self, value, *rest: {parts}
"""
FORGERIES = {
    "a class as an object": ("", "{**old(self, value, *rest), **({'h': self.number_of(value)} if value is Box else {})}", "kinds()() == 6"),
    "an object as a class": ("(int)", "{'K': self.number_of(value)} if type(value) is Box else old(self, value, *rest)", "abs(b.take() - 6) < 1"),
}  # fmt: skip


@pytest.mark.parametrize(("base", "parts", "test"), FORGERIES.values(), ids=FORGERIES)
def test_a_forged_message_makes_no_object_decide(judge, base, parts, test):
    code, tests = FORGED.format(base=base, parts=parts), f"b = Box()\nforge()\nassert {test}"
    assert judge(code, [tests], {"classes": ["Box"]}) == "RE"


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("unittest.case", "SkipTest"),
        ("_pytest.outcomes", "Skipped"),
        ("tester", "Gone"),
        ("__main__", "Gone"),
    ],
)
def test_an_exception_that_names_a_class_of_the_testing_tools_is_an_error(judge, module, name):
    code = f"class {name}(Exception): pass\n{name}.__module__ = {module!r}\ndef f(): raise {name}('x')"
    test = "import unittest, pytest\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(f(), 3)\n    def test_b(self):\n        assert f\n"
    assert judge(code, test) == "RE"


DRAWS = [
    ("random", "import random", "random.seed(3)"),
    ("random", "import random", "random.seed(a=3, version=2)"),
    ("numpy", "import numpy as np", "np.random.seed(3)"),
    ("numpy", "import numpy.random", "numpy.random.seed(seed=[3, 4])"),
    ("numpy", "from numpy.random import seed", "seed(3)"),
]


@pytest.mark.parametrize(("module", "source", "seeds"), DRAWS, ids=[seeds for *_, seeds in DRAWS])
def test_a_seed_of_the_tests_is_the_submissions_too(judge, module, source, seeds):
    pytest.importorskip(module)
    draw = {"random": "random.random()", "numpy": "float(numpy.random.rand())"}[module]
    code = f"def f():\n    import {module}\n    return {draw}"
    assert judge(code, [f"{source}\n{seeds}\na = f()\n{seeds}\nassert a == f()\nassert a != f()"]) == "AC"


def test_a_seed_is_no_use_of_the_submission(judge):
    with pytest.raises(NoVerdict, match="without having used the submission"):
        judge("def f(x): return x", ["import random\nrandom.seed(3)\nfor x in ():\n    assert f(x) == x"])


# -- what a submission says of its errors and results is text for the reason, never a way out of a verdict

CHECK = "def check(candidate):\n    result = candidate(1)\n    assert result == 2, result\n"
TEXT = "class Text(str):\n    def __getitem__(self, key): return {item}\n"
ERROR = f"{TEXT}class Error(AssertionError):\n    def __str__(self): return Text('x')\ndef f(x):\n"
STRAY = (
    "    kind = type(isinstance.__self__)\n    old = kind.encode_object\n"
    "    def encode_object(self, value, of, depth):\n        parts = old(self, value, of, depth)\n"
    "        return {**parts, 'o': 0} if of is Error else parts\n    kind.encode_object = encode_object\n"
)
REASONS = {
    "a result as the message": (
        f"{TEXT.format(item=0)}    def __str__(self): return self\ndef f(x): return Text()",
        "WA",
    ),
    "an error's text": (f"{ERROR.format(item=5)}    raise Error", "RE"),
    "an error with a stray key": (f"{ERROR.format(item=5)}{STRAY}    raise Error", "RE"),
}


@pytest.mark.parametrize(("code", "wanted"), REASONS.values(), ids=REASONS)
def test_the_text_of_a_submissions_error_is_no_way_out_of_a_verdict(judge, code, wanted):
    assert judge(code, CHECK, {"entry_point": "f", "prompt": "Write f."}) == wanted


ROW = {"entry_point": "f", "prompt": "Write f."}


@pytest.mark.parametrize("error", ["ImportError('x')", "ModuleNotFoundError('x')", "SystemExit(0)"])
def test_an_error_that_a_callback_raises_is_the_submissions_to_catch(judge, error):
    tests = f"def boom(): raise {error}\ndef test_a():\n    assert f(lambda: 3, 0) == 3\n    assert f(boom, 0) == 0\n"
    right = "def f(g, d):\n    try: return g()\n    except BaseException: return d"
    assert judge(right, tests, ROW) == "AC"
    assert judge("def f(g, d): return g()", tests, ROW) == "RE"
    with pytest.raises(NoVerdict):  # tests that fail by themselves, with or without the submission
        judge(right, f"{tests}    raise {error}\n", ROW)


COUNTER = (
    "class Counter:\n    def __init__(self): self.keys = []\n    def __iter__(self): return iter(list(self.keys))\n"
    "    def __getitem__(self, key):\n        self.keys.append(key)\n        return 1\ndef f(x): return Counter()\n"
)


@pytest.mark.parametrize("test", ["Counter('ab') == f(1)", "f(1) == Counter('cd')"])
def test_a_class_named_like_an_imported_one_is_not_asked_for_what_is_expected(judge, test):
    tests = f"from collections import Counter\ndef test_a(): assert {test}\n"
    assert judge(COUNTER, tests, ROW) == "WA"
    assert (
        judge(
            "from collections import Counter\ndef f(x): return Counter(x)",
            tests.replace("1", "'ab'").replace("cd", "ab"),
            ROW,
        )
        == "AC"
    )


@pytest.mark.parametrize("head", ["", "from __future__ import annotations\n"])
def test_tests_may_have_dataclasses_with_annotations_in_quotes(judge, head):
    tests = (
        f"{head}from dataclasses import dataclass\n@dataclass\nclass Node:\n    val: int\n    next: 'Node' = None\n"
        "def test_a(): assert f(Node(1, Node(2))) == 1\n"
    )
    assert judge("def f(n): return n.val", tests, ROW) == "AC"
    assert judge("def f(n): return n.next.val", tests, ROW) == "WA"
