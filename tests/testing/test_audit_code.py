import ast
import json

import pytest

from gem.cli import FAILED, main
from gem.graders.base import Score
from gem.graders.code import CodeGrader, submission
from gem.graders.code_tests import read_tests
from gem.sandbox.base import Budget
from gem.testing.audit_code import (
    CODE_EQUIVALENCES,
    CODE_MUTATIONS,
    MISTAKES,
    Solution,
    audit_code,
    fence_code,
)
from gem.testing.solutions import basics, humaneval

PROGRAM = Solution(
    "shout",
    "def shout(text):\n    kept = text.split()\n    if len(kept) > 0:\n        return kept[0].upper()\n"
    "    return '-'\n\n\nimport sys\n\nprint(shout(sys.stdin.read()))\n",
    read_tests(
        {
            "inputs": ["ab c\n", "\n", "long word\n", "x" * 40],
            "outputs": ["AB", "-", "LONG", "X" * 40],
            "public": 1,
            "compare": "tokens",
        }
    ),
    lambda: [],
)
FUNCTION = Solution(
    "evens",
    "def evens(values):\n    return [value for value in values if value % 2 == 0]\n",
    read_tests(
        {
            "inputs": [[[1, 2]], [[]], [[4, 4, 5, 7, 8, 10]]],
            "outputs": [[2], [], [4, 4, 8, 10]],
            "public": 1,
            "fn_name": "evens",
        }
    ),
    lambda: [read_tests({"inputs": [[[0, 3]]], "outputs": [[0]], "fn_name": "evens"})],
)

QUICK = Budget(cpu_s=0.3, wall_s=20.0, memory_mb=512)


def constant(right):
    return lambda answer, tests: Score(float(right), right)


@pytest.mark.system
def test_the_code_grader_passes_its_audit_on_a_program_and_a_function():
    card = audit_code([PROGRAM, FUNCTION], CodeGrader(budget=QUICK))
    assert card.ok, str(card)
    assert card.references == 2
    assert all(rule.tried for rule in (*card.equivalences, *card.mutations)), str(card)  # no rule is idle


@pytest.mark.parametrize(
    ("always", "low", "high"),
    [(True, "mutation_score", "equivalence_score"), (False, "equivalence_score", "mutation_score")],
)
def test_a_grader_that_always_says_the_same_fails(always, low, high):
    card = audit_code([FUNCTION], constant(always))
    assert (getattr(card, low), getattr(card, high), card.ok) == (0.0, 1.0, False)
    assert "'as it is' for 'evens'" in str(card) or "'nothing done' for 'evens'" in str(card)


@pytest.mark.system
def test_a_grader_that_looks_at_the_examples_alone_is_found_out():
    grader = CodeGrader(max_tests=1, budget=QUICK)
    wrong = {rule.name for rule in audit_code([FUNCTION], grader).mutations if rule.wrong}
    assert {"the examples by heart", "another result on larger inputs"} <= wrong


def test_a_small_mistake_that_further_tests_do_not_see_either_is_not_counted():
    asked = []

    def passing(answer, tests):
        asked.append(tests)
        return Score(1.0, True)

    card = audit_code([FUNCTION], passing)
    mistakes = [rule for rule in card.mutations if rule.name in MISTAKES]
    assert [rule.tried for rule in mistakes] == [0, 0, 0]
    assert any(tests is not FUNCTION.tests for tests in asked)


@pytest.mark.parametrize("solution", [PROGRAM, FUNCTION], ids=["program", "function"])
def test_every_rewriting_is_another_program_that_parses(solution):
    for name, rewrite in CODE_EQUIVALENCES.items():
        if (answer := rewrite(solution)) is not None:
            ast.parse(submission(answer))
            assert answer != fence_code(solution.source) or name == "as it is", name
    mutants = [rewrite(solution) for rewrite in CODE_MUTATIONS.values()]
    assert len(set(filter(None, mutants))) == len(list(filter(None, mutants)))


def test_without_humaneval_there_is_none_of_it(monkeypatch, tmp_path):
    monkeypatch.setenv("GEM_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert humaneval() == []
    (tmp_path / "humaneval.jsonl").write_text(
        '{"prompt": "def f(x):\\n", "canonical_solution": "    return x\\n", "entry_point": "f", '
        '"test": "def check(candidate):\\n    assert candidate(1) == 1\\n"}\n'
    )
    assert [(solution.name, solution.more) for solution in humaneval()] == [("f", None)]


@pytest.mark.slow
def test_the_code_grader_passes_its_audit_on_the_built_in_problems():
    card = audit_code(basics()[::4])
    assert card.ok, str(card)


def test_rows_whose_own_solutions_fail_are_listed(capsys, tmp_path):
    env = "import os\nos.environ['X'] = '1'\nassert f() == '1'"
    rows = [
        {"test": ["assert f() == 1"], "solution": "def f(): return 1"},
        {"test": ["assert f() == 1"], "solution": "def f(): return 2"},
        {"test": env, "solution": "import os\ndef f(): return os.environ.get('X')"},
        {"test": env, "solution": "import os\ndef f(): return os.environ.get('X')", "isolate": False},
        {"test": ["assert f() == 1"]},
    ]
    lines = [json.dumps({"question": "Write f.", **row}) for row in rows]
    (tmp_path / "q.jsonl").write_text("\n".join(lines))
    assert main(["audit", "--data", str(tmp_path / "q.jsonl"), "--grader", "code"]) == FAILED
    heading, *told = capsys.readouterr().out.splitlines()
    assert "2 of 5 rows refuse their own answers:" in heading
    assert told == [
        "  line 2: its solution fails (wrong answer on test 1 of 1)",
        "  line 3: its solution fails (wrong answer on test 1 of 1; it passes in one process with the tests: "
        'write "isolate": False in the row)',
    ]
