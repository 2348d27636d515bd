import ast
import pickle
import re
import warnings
from random import Random

import pytest

import gem
from gem.agents.random import RandomAgent
from gem.agents.solver import SolverAgent
from gem.errors import BadArgument, CannotFork
from gem.registry import Maker
from gem.rollout import Job, rollout
from gem.sandbox import SandboxFailed, default_sandbox
from gem.tools.python_code_tool import PythonCodeTool, run_python, shorten
from gem.tools.tool_env_wrapper import ToolEnvWrapper
from gem.utils.sandbox import run_python as upstreams_run_python
from gem.wrappers import get_wrapper_fns


@pytest.fixture(scope="module", autouse=True)
def box():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a backend that isolates in part
        try:
            default_sandbox()
        except SandboxFailed as absent:
            pytest.skip(str(absent))


@pytest.fixture
def session():
    tool = PythonCodeTool(stateful=True, timeout=20)
    yield tool
    tool.close()


def test_what_is_printed_is_shown_and_the_last_expression():
    tool = PythonCodeTool(timeout=20)
    result = tool.call("print('a')\n1 + 1")
    assert (result.text, result.error) == ("a\n2", False)
    assert tool.call("x = 1").text == "[no output]"


def test_upstreams_four_values():
    tool = PythonCodeTool(20, "none", False)
    assert tool.tool_type == "python"
    assert tool.execute_action("So <python>print(6 * 7)</python> it is") == (
        True,
        False,
        "<output>\n42\n</output>",
        "So <python>print(6 * 7)</python>",
    )
    valid, error, text, _ = tool.execute_action("```py\n1 / 0\n```")
    assert (valid, error) == (True, True)
    assert "ZeroDivisionError" in text
    assert tool.execute_action("no code") == (False, True, "", "")


def test_each_call_is_fresh_and_a_session_keeps_names_and_files_for_its_episode(session):
    fresh = PythonCodeTool(timeout=20)
    fresh.call("x = 5")
    assert "NameError" in fresh.call("x").text
    session.call("x = 5\nopen('kept', 'w').write('it')")
    assert session.call("x, open('kept').read()").text == "(5, 'it')"
    session.reset(seed=1)
    assert "NameError" in session.call("x").text


def test_errors_are_cut_to_what_helps():
    tool = PythonCodeTool(timeout=20)
    result = tool.call("import json\ndef read(t):\n    return json.loads(t)\nread('{')")
    assert result.error
    assert "json/decoder.py" not in result.text
    assert "in read" in result.text
    assert result.text.splitlines()[-1].startswith("json.decoder.JSONDecodeError")
    short = PythonCodeTool(timeout=20, keep_error_last_line=True).call("print(1)\nint('x')")
    assert short.text == "1\nValueError: invalid literal for int() with base 10: 'x'"


def test_a_traceback_keeps_the_innermost_frames_of_ones_own():
    frames = [f'  File "<cell 1>", line {n}, in f{n}\n    f{n + 1}()' for n in range(6)]
    text = "\n".join(
        [
            "before",
            "Traceback (most recent call last):",
            *frames,
            '  File "/lib/x.py", line 3, in g',
            "E: no",
            "after",
        ]
    )
    shown = shorten(text)
    assert shown.startswith("before\nTraceback")
    assert "[3 more frames]" in shown
    assert "in f5" in shown
    assert "in f2" not in shown
    assert "/lib/x.py" not in shown
    assert shown.endswith("E: no\nafter")
    assert shorten("plain words\n  indented") == "plain words\n  indented"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("while True: pass", "more than 1 s"),
        ("import sys; sys.exit(3)", "exit code 3"),
        ("1 +", "SyntaxError"),
        ("import os; os._exit(7)", "exit code 7"),
        ("print('\\ud800')", "UnicodeEncodeError"),
        ("x = '\x00'", "null bytes"),
    ],
)
def test_what_goes_wrong_is_the_agents_error_and_said(code, said):
    result = PythonCodeTool(timeout=1).call(code)
    assert result.error
    assert said in result.text


def test_long_output_is_cut_in_the_middle():
    text = PythonCodeTool(timeout=20, max_chars=100).call("print('a' * 300 + 'z')").text
    assert text == f"{'a' * 50}\n[... 201 characters left out ...]\n{'a' * 49}z"


def test_a_session_that_ends_says_that_its_state_is_lost(session):
    session.call("x = 1")
    result = session.call("import os; os._exit(0)")
    assert result.error
    assert "names and files are lost" in result.text
    assert "NameError" in session.call("x").text


def test_a_session_is_forked_with_its_state(session):
    session.call("x = [1]")
    try:
        twin = session.fork()
    except CannotFork:
        pytest.skip("this backend forks no session")
    twin.call("x.append(2)")
    assert twin.call("x").text == "[1, 2]"
    assert session.call("x").text == "[1]"
    twin.close()
    with pytest.raises(CannotFork):
        pickle.dumps(session)


def test_a_tool_that_is_not_used_pickles_and_wrong_arguments_are_refused():
    assert pickle.loads(pickle.dumps(PythonCodeTool(3))).timeout == 3
    with pytest.raises(BadArgument, match="positive"):
        PythonCodeTool(timeout=0)
    with pytest.raises(BadArgument, match="no backend 'dokcer'"):
        PythonCodeTool(sandbox_type="dokcer").call("1")


def test_in_an_episode_with_the_factory():
    env = gem.make("game:GuessTheNumber-v0-easy")
    [wrap] = get_wrapper_fns("python_tool")
    env = wrap(env)
    assert isinstance(env, ToolEnvWrapper)
    obs, _ = env.reset(seed=0)
    assert "<python>" in obs
    step = env.step("<python>print(2**10)</python>")
    assert "1024" in step.obs
    (result,) = step.info["tool_results"]
    assert result == {
        "tool": "python", "error": False, "refused": False, "status": "OK", "shown": len(step.obs)
    }  # fmt: skip
    env.close()


def test_a_stateful_session_is_each_environments_own():
    made = [
        ToolEnvWrapper(gem.make("game:GuessTheNumber-v0-easy"), [PythonCodeTool(20, stateful=True)])
        for _ in "ab"
    ]
    for env, value in zip(made, (1, 2), strict=True):
        env.reset(seed=0)
        env.step(f"<python>x = {value}</python>")
    twin = made[0].fork()
    assert [env.step("<python>x</python>").obs.split("\n")[1] for env in (*made, twin)] == ["1", "2", "1"]
    for env in (*made, twin):
        env.close()


@pytest.mark.slow
def test_figures_are_pictures():
    pytest.importorskip("matplotlib")
    result = PythonCodeTool(timeout=30).call("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")
    assert "[1 figure]" in result.text
    assert [image.data[:4] for image in result.images] == [b"\x89PNG"]


def test_run_python_is_upstreams():
    assert upstreams_run_python is run_python
    assert run_python("print(input() + '!')", "none", "hi", 20) == (True, "hi!\n", "")
    ok, _, error = run_python("1 / 0")
    assert not ok
    assert "ZeroDivisionError" in error
    ok, _, error = run_python("while True: pass", timeout=1)
    assert not ok
    assert "more than 1 s" in error


@pytest.mark.parametrize(
    ("question", "call"),
    [
        ("Calculate 12 + 1.", "<python>12 + 1</python>"),
        ("What is -( 3 - 4*2 ) = ? Or 1+1?", "<python>-( 3 - 4*2 )</python>"),
        ("Calculate (6 + 1) * 397.\n\nUse 4x4.", "<python>(6 + 1) * 397</python>"),
        ("Farid has 2 pencils and 3 more.", ""),
        ("1) first 2) second -- 3", ""),
        ("Each row has the numbers 1-4, since 2024-11-23.", ""),
        ("Add 1,000 + 2,000.", ""),
        ("What is 8 × 3 + 2, or 8 − 3 + 2?", ""),
        ("What is 2^3 + 4?", ""),
        ("Take 1e5 + 3 apples.", ""),
        ("On 12/11/2024 he paid.", ""),
        ("A riddle.\n\nDivide by 3 + 4.", ""),
        ("9**9**9", ""),
        ("State the answer: 957 + 416 - 733 =", "<python>957 + 416 - 733</python>"),
        ("+".join(["1"] * 400), ""),
        ("(" * 190, ""),
        ("12 a " * 20_000, ""),
        ("", ""),
    ],
)
def test_a_solver_computes_the_expression_of_the_question(question, call):
    assert PythonCodeTool().solving_call(question) == call


def test_random_calls_take_numbers_of_the_question():
    rng = Random(0)
    made = {PythonCodeTool().sample_call("What is 12 by 345?", rng) for _ in range(300)}
    assert made == {f"<python>{a} {op} {b}</python>" for a in (12, 345) for op in "+-*" for b in (12, 345)}
    made = {PythonCodeTool().sample_call("2024-01-05, at 007 and ٣", rng) for _ in range(50)}
    assert all(ast.parse(call[8:-9]) for call in made)
    assert re.fullmatch(r"<python>\d+ [-+*] \d+</python>", PythonCodeTool().sample_call("No numbers.", rng))


def test_solver_and_random_play_use_python_in_episodes():
    maker = Maker("math:Arithmetic-v0-easy", wrappers=("python_tool",))
    for episode in rollout([Job(maker, seed) for seed in range(3)], SolverAgent()):
        call, answer = episode.turns
        assert (episode.success, call.info["tool_success_counter"]) == (True, 1)
        assert f"\\boxed{{{answer.observation.splitlines()[1]}}}" == answer.action
    played = rollout([Job(maker, seed) for seed in range(8)], RandomAgent())
    turns = [turn for episode in played for turn in episode.turns]
    called = [turn.info for turn in turns if turn.info["use_tool"]]
    assert 0 < len(called) < len(turns)
    assert all(info["tool_results"][0]["error"] is False for info in called)


def test_an_answer_in_a_block_of_python_is_no_call_where_the_task_asks_for_one():
    maker = Maker("code:Basics-v0-easy", wrappers=("python_tool",))
    (episode,) = rollout([Job(maker, 0)], SolverAgent())
    assert (episode.success, episode.turns[0].info["use_tool"]) == (True, False)
    assert "in a ```python block" not in episode.turns[0].observation


def test_a_solver_of_word_problems_computes_the_working_and_answers():
    with ToolEnvWrapper(gem.make("math:WordProblems-v0-hard"), [PythonCodeTool()]) as env:
        start = env.reset(seed=4)
        working = env.unwrapped.task.info["working"]
        call = env.solve()
        assert call == f"<python>{working}</python>"
        first = env.step(call)
        assert env.unwrapped.answer in first.obs
        last = env.step(env.solve())
        assert last.reward == 1
        assert working not in str([start, first.obs, last.obs, last.info])  # no agent reads it but in a call
