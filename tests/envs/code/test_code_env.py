"""CodeEnv over rows of any columns, and Basics: every reference passes, every plausible mistake fails."""

import json
import pickle
import runpy
from pathlib import Path

import pytest

import gem
from gem.envs.code.basics import PROBLEMS, Basics
from gem.envs.code.env import CodeBasics, CodeEnv, fence_code
from gem.errors import BadArgument, MissingData, NoSolver, UnknownArgument
from gem.graders.code import CodeGrader, submission
from gem.graders.code_tests import read_tests
from gem.sandbox import default_sandbox
from gem.sandbox.base import SandboxFailed
from gem.testing import check_env

MISTAKES = runpy.run_path(str(Path(__file__).with_name("wrong_basics.py")))["MISTAKES"]
SAMPLE = [name for i, name in enumerate(PROBLEMS) if i % 9 == 0]


@pytest.fixture(scope="module", autouse=True)
def sandbox():
    try:
        default_sandbox().run("pass")
    except SandboxFailed as error:
        pytest.skip(f"no backend of the sandbox isolates here: {error}")


def grade(problem, code):
    return CodeGrader(max_tests=None).judge(code, read_tests(problem.tests))


# -- Basics


def test_there_are_problems_of_every_level_and_kind():
    assert set(MISTAKES) == set(PROBLEMS)
    assert [len(Basics(level)) for level in (None, "easy", "medium", "hard")] == [74, 25, 24, 25]
    assert 20 < sum(problem.program for problem in PROBLEMS.values()) < 40


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=lambda problem: problem.name)
def test_a_problem_says_what_it_wants_and_tests_more_than_it_shows(problem):
    for given, wanted in problem.examples:  # what was written by hand is what the solution gives
        assert (problem.solution(given) if problem.program else problem.solution(*given)) == wanted
    assert problem.examples
    assert len(problem.tests["inputs"]) >= 8
    assert len({json.dumps(output) for output in problem.tests["outputs"]}) >= 2
    hidden = json.dumps(problem.tests["inputs"][-1])
    assert hidden not in problem.statement
    assert ("Input:" in problem.statement) == ("Output:" in problem.statement) == problem.program


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SAMPLE else pytest.mark.slow) for name in PROBLEMS]
)
def test_the_reference_passes_and_a_plausible_mistake_fails(name):
    problem = PROBLEMS[name]
    score = grade(problem, problem.source)
    assert score.correct, (score.why, score.info)
    assert '"""' not in problem.source
    right, wrong = MISTAKES[name]
    assert right in problem.source
    score = grade(problem, problem.source.replace(right, wrong))
    assert not score.correct
    assert score.info["verdict"] in ("WA", "RE", "TLE")


def test_an_episode_of_basics():
    with gem.make("code:Basics-v0-easy") as env:
        obs, info = env.reset(seed=3)
        problem = PROBLEMS[info["task"]]
        assert problem.level == "easy"
        assert problem.statement in obs
        assert "```python" in obs
        step = env.step(env.solve())
        assert (step.reward, step.terminated, step.info["success"], step.info["verdict"]) == (
            1.0,
            True,
            True,
            "AC",
        )
        assert "spent" not in step.info
        env.reset(seed=3)
        step = env.step(fence_code("print('nothing')"))
        assert (step.reward, step.terminated, step.info["correct"]) == (0.0, True, False)
        env.reset(seed=3)
        step = env.step("I would rather not.")
        assert (step.reward, step.info["stop"], step.info["parsed_action"]) == (0.0, "unreadable", None)


def test_all_problems_come_once_before_any_comes_again():
    env = CodeBasics("hard")
    names = [env.reset(seed=seed).info["task"] for seed in range(25)]
    assert len(set(names)) == 25
    assert env.reset(seed=25).info["task"] in names


def test_a_level_that_there_is_not_is_refused():
    with pytest.raises(BadArgument, match="accepted: easy, medium, hard"):
        CodeBasics("simple")


def test_another_attempt_is_told_the_first_failure_that_may_be_shown():
    env = CodeBasics("easy", max_attempts=3, retry_discount=0.5)
    index = [problem.name for problem in Basics("easy").problems].index("sum_of_evens")
    env.reset(idx=index)
    step = env.step(fence_code("print(1)"))
    assert not step.done
    assert "wrong answer on test 1" in step.obs
    assert "Input:\n5\n1 2 3 4 5\nExpected:\n6\nYours:\n1" in step.obs
    assert "You may answer 2 times more." in step.obs
    step = env.step(fence_code("print(6 if input() == '5' else 0)"))  # right where it was shown
    assert "Input:" not in step.obs
    step = env.step(env.solve())
    assert (step.reward, step.done) == (0.25, True)


def test_partial_credit_grows_with_each_attempt():
    env = CodeBasics("easy", partial=True, max_attempts=2)
    env.reset(idx=[problem.name for problem in Basics("easy").problems].index("count_vowels"))
    first = env.step(fence_code("def count_vowels(text):\n    return 0"))
    assert 0 < first.reward < 1
    second = env.step(env.solve())
    assert first.reward + second.reward == pytest.approx(1.0)


def test_an_environment_pickles_small_and_goes_on():
    env = CodeBasics()
    env.reset(seed=1)
    data = pickle.dumps(env)
    assert len(data) < 20_000
    twin = pickle.loads(data)
    assert twin.step(twin.solve()).info["success"]


# -- CodeEnv

ROWS = [
    {
        "task": "Double n.",
        "io": json.dumps({"inputs": ["2\n"], "outputs": ["4\n"]}),
        "solution": "print(2 * int(input()))",
    },
    {
        "task": "Add.",
        "io": {"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]},
        "solution": "def add(a, b): return a + b",
    },
]


def test_any_columns_and_any_name_will_do(tmp_path, monkeypatch):
    (tmp_path / "my-puzzles.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    monkeypatch.setenv("GEM_DATA", str(tmp_path))
    for given in ({"dataset_name": "someone/my-puzzles"}, {"dataset": ROWS}):
        env = CodeEnv(**given, question_key="task", test_key="io")
        for idx, row in enumerate(ROWS):
            obs, _ = env.reset(idx=idx)
            assert row["task"] in obs
            assert ("function `add`" if idx else "reads standard input") in obs
            assert env.step(env.solve()).info["success"]


def test_what_frameworks_call():
    env = CodeEnv(
        dataset=ROWS, question_key="task", test_key="io", max_workers=2, verbose=True, sandbox_type="none"
    )
    env.reset(idx=0)
    assert env._check_correct("print(int(input()) * 2)") is True
    assert env._check_correct("print(5)") is False
    assert (env.max_workers, env.verbose, env.sandbox_type) == (2, True, "none")


def test_rows_of_humaneval():
    row = {
        "prompt": 'def f(x):\n    """Add one."""\n',
        "canonical_solution": "    return x + 1\n",
        "test": "def check(candidate):\n    assert candidate(1) == 2\n",
        "entry_point": "f",
    }
    env = CodeEnv(dataset=[row], question_key="prompt", test_key="test")
    obs, _ = env.reset(seed=0)
    assert "function `f`" in obs
    assert env.step(env.solve()).info["success"]
    env.reset(seed=0)
    assert env.step(fence_code("def f(x):\n    return x + 1")).info["success"]
    env.reset(seed=0)
    assert not env.step(fence_code(row["prompt"] + "    pass")).info["success"]


@pytest.mark.parametrize(
    ("prompt", "solution", "wanted"),
    [
        ("def f(x):\n", "    return x + 1\n", "def f(x):\n    return x + 1\n"),
        ("def f(x):\n", "def f(x):\n    return x + 1\n", "def f(x):\n    return x + 1\n"),
        ("Write f, which adds one.", "def f(x):\n    return x + 1\n", "def f(x):\n    return x + 1\n"),
        ("import math\n\ndef f(x):\n", "def f(x):\n    return x + math.floor(1)\n", None),
    ],
)
def test_a_reference_solution_is_a_program_of_its_own_or_goes_on_with_the_question(prompt, solution, wanted):
    test = "def check(candidate):\n    assert candidate(1) == 2\n"
    row = {"prompt": prompt, "canonical_solution": solution, "test": test, "entry_point": "f"}
    for env in (
        CodeEnv(dataset=[row], question_key="prompt", test_key="test"),
        gem.make("data:code", data=[row], few_shot=[{**row, "prompt": f"# Again.\n{prompt}"}]),
    ):
        obs, _ = env.reset(seed=0)
        assert env.solve() == fence_code(wanted or solution)
        assert env.step(env.solve()).info["success"]
    if prompt.startswith("Write"):
        assert f"Example 1\n\n# Again.\n{prompt}\n\n{fence_code(solution)}" in obs
    env = gem.make("data:code", data=[{**row, "context": "In Python."}])
    env.reset(seed=0)
    assert env.step(env.solve()).info["success"]


def test_without_solutions_there_is_no_solver_and_a_guess_all_the_same():
    env = CodeEnv(dataset=[{"problem": "Print 1.", "tests": {"inputs": [""], "outputs": ["1"]}}])
    env.reset(seed=0)
    with pytest.raises(NoSolver, match="canonical_solution"):
        env.solve()
    assert env.step(env.sample_random_action()).info["correct"] is False


def test_data_that_cannot_be_used_is_refused():
    with pytest.raises(BadArgument, match="no column 'tests'"):
        CodeEnv(dataset=[{"problem": "?"}])
    env = CodeEnv(dataset=[{"problem": "?", "tests": "none"}])
    with pytest.raises(BadArgument, match="accepted"):
        env.reset(seed=0)
    with pytest.raises(UnknownArgument):
        gem.make("code:Basics-v0-easy", lvl="hard")


@pytest.mark.parametrize("code", ["x = '```'", "x = '````'", "print(1)\n\n", '"""\n```python\n7\n```\n"""'])
def test_fenced_code_is_read_back(code):
    assert submission(fence_code(code)).strip() == code.strip()


CODE_IDS = ("code:CodeContest", "code:Taco8k", "code:PrimeIntellect15k", "eval:CodeContest")


@pytest.mark.parametrize("env_id", CODE_IDS)
def test_an_id_over_a_data_set_reads_its_columns(env_id, tmp_path, monkeypatch):
    spec = gem.spec(env_id)
    path = tmp_path / spec.data / f"{spec.kwargs['split']}.jsonl"
    path.parent.mkdir(parents=True)
    tests = {"inputs": ["1\n", "2\n"], "outputs": ["2\n", "4\n"]}
    rows = [{"problem": "Double n.", "tests": tests}, {"problem": "Twice n.", "tests": json.dumps(tests)}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setenv("GEM_DATA", str(tmp_path))
    few = ("is-env", "docstring", "reset-returns", "step-returns", "same-seed", "solver", "ends", "pickles")
    report = check_env(env_id, seeds=(0, 1), rules=few)
    report.raise_if_broken()
    assert set(report.held) == set(few)
    with gem.make(env_id) as env:
        env.reset(seed=1)
        assert env.step(fence_code("print(2 * int(input()))")).info["success"]


@pytest.mark.parametrize("env_id", CODE_IDS)
def test_without_its_data_an_id_says_how_to_supply_it(env_id, tmp_path, monkeypatch):
    monkeypatch.setenv("GEM_DATA", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "no cache"))
    with pytest.raises(MissingData, match="GEM_DATA"):
        gem.make(env_id)


@pytest.mark.parametrize(
    ("tests", "asked"),
    [
        (["assert first('ab') == 'a'", "assert first('') is None"], "Write the Python function `first`."),
        (["assert Stack(2).pop() == 2"], "Write the Python class `Stack`."),
        (["assert first(Stack(2)) == 2"], "Write it in Python."),
    ],
)
def test_the_prompt_names_what_the_tests_call(tests, asked):
    env = CodeEnv(dataset=[{"text": "Do it.", "test_list": tests}], question_key="text", test_key="test_list")
    assert asked in env.reset(seed=0)[0]
