"""The changes that mutation testing makes are those that it names, and each is a program."""

import ast
import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def mutants():
    pytest.importorskip("grimp", reason="needs import-linter: make setup")
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        yield importlib.import_module("mutants")
    finally:
        sys.path.remove(str(ROOT / "scripts"))


def changes(mutants, source):
    data = source.encode()
    return {mutant.apply(data).decode() for mutant in mutants.find_mutants("x.py", data)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b", {"a <= b"}),
        ("(ä) not  in b", {"(ä) in b"}),
        ("a and b and c", {"a or b and c", "a and b or c"}),
        ("a ** 2", {"a ** 3"}),
        ("x -= 1", {"x += 1", "x -= 2"}),
        ("y = not a", {"y =  a"}),
        ("min(a)", {"pass", "max(a)"}),
        ("if a: b()", {"if not (a): b()", "if a: pass"}),
        (
            "def f(x: int = 1) -> 2: return x",
            {"def f(x: int = 2) -> 2: return x", "def f(x: int = 1) -> 2: return None"},
        ),
        ("try: a\nexcept E: b", {"try: a\nexcept E: raise"}),
        ("assert a < 1", set()),
        ("raise E(1)", set()),
        ("x = f'{a < 1}'", set()),
    ],
)
def test_a_place_is_changed_as_the_table_says(mutants, source, expected):
    assert changes(mutants, source) == expected


def test_a_change_names_the_function_that_it_is_in_and_the_kind_of_what_changed(mutants):
    lines = ["class A:", " x = 1", " def f(self):", "  def g():", "   return not self", "  try: g()"]
    source = "\n".join([*lines, "  except E:", "   x"]).encode()
    rows = {(each.line, each.function, each.operator) for each in mutants.find_mutants("x.py", source)}
    inner, outer = (5, "A.f.g"), (6, "A.f")
    assert rows == {
        (2, "A", "Constant"),
        (*inner, "Return"),
        (*inner, "UnaryOp"),
        (*outer, "Expr"),
        (8, "A.f", "ExceptHandler"),
    }


@pytest.mark.system
def test_every_change_of_a_real_file_is_a_program_that_differs(mutants):
    source = (ROOT / "gem/rollout/schedule.py").read_bytes()
    everything = list(mutants.find_mutants("gem/rollout/schedule.py", source))
    assert len(everything) > 50
    for mutant in everything:
        assert ast.dump(ast.parse(mutant.apply(source))) != ast.dump(ast.parse(source)), mutant


def test_the_choice_is_repeated_by_its_seed_and_covers_each_package(mutants):
    chosen = mutants.choose(ROOT, 40, 0, ["gem/statistics", "gem/rollout"])
    assert chosen == mutants.choose(ROOT, 40, 0, ["gem/statistics", "gem/rollout"])
    assert chosen != mutants.choose(ROOT, 40, 1, ["gem/statistics", "gem/rollout"])
    assert {mutant.path.split("/")[1] for mutant in chosen} == {"statistics", "rollout"}
