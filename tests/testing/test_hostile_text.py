"""Any text of a model is a scored loss: no environment and no grader raises an error because of it."""

import contextlib
import functools
import json
import signal
from random import Random

import pytest

import gem
from gem.agents.scripted import ScriptedAgent
from gem.envs.code.env import CodeEnv
from gem.envs.math.env import MathEnv
from gem.envs.qa.env import QaEnv
from gem.errors import MissingData, MissingExtra
from gem.evals.evaluator import evaluate
from gem.graders import MADE
from gem.graders.cascade import CascadeGrader
from gem.graders.choice import ChoiceGrader
from gem.graders.code import CodeGrader
from gem.graders.compare import COMPARES, read_plain, same_text, same_value
from gem.graders.judge import read_verdict
from gem.graders.math import MathGrader
from gem.graders.number import NumberGrader
from gem.graders.sql import same_rows, same_state
from gem.graders.text import TextGrader
from gem.rollout.store import EpisodeStore
from gem.sandbox.base import SandboxFailed
from gem.testing.rules import HOSTILE, everybody, mutate, right_text
from gem.tools import calls
from tests.shared import hostile_text

CPU_S = 6  # of one text: far above what any may take, so that load does not matter
LONGEST_RUN = 20_000  # characters of a text that goes to a sandbox or a database

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::SyntaxWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

FORMS = ("{}", "\\boxed{{{}}}", "<answer>{}</answer>", "<tool_call>{}</tool_call>")
RUNNING_FORMS = {
    "code": "```python\n{}\n```",
    "terminal": "<bash>{}</bash>",
    "db": "<sql>{}</sql>",
    "multi": '<tool_call>{{"name": "get_booking", "arguments": {}}}</tool_call>',
}


@functools.cache
def texts(seed=11, count=400):
    return (*hostile_text.every_text(), *hostile_text.generated(seed, count))


def sample(number, every):
    """Return a part of the texts, another one for each number, and the same at every run."""
    return texts()[number % every :: every]


def one_of_each():
    """Return an id of each environment of ours and of some foreign ones, the first of its class and task."""
    first = {}
    for env_id in gem.ids():
        family = env_id.partition(":")[0]
        if family not in ("rg", "ta", "eval", "mcp"):  # rg: has a sweep of its own
            name = env_id.rpartition("-v")[0] if family in ("multi", "db") else ""
            first.setdefault((str(gem.spec(env_id).entry_point), name), env_id)
    foreign = ("ta:GuessTheNumber-v0", "ta:Hangman-v0", "ta:KuhnPoker-v0", "ta:TicTacToe-v0")
    return [*first.values(), *(env_id for env_id in foreign if env_id in gem.ids())]


def stop(number, frame):
    raise TimeoutError("it does not end")


@contextlib.contextmanager
def in_time(text):
    """Fail if reading a text takes CPU time without an end, or evaluates the text."""
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{type(error).__name__} {str(error)[:200]} of {text[:80]!r}") from error
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


@pytest.fixture(autouse=True)
def evidence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    before = signal.signal(signal.SIGVTALRM, stop)
    yield
    signal.signal(signal.SIGVTALRM, before)
    assert not (tmp_path / hostile_text.EVIDENCE).exists()


def let_loose(env, forms, chosen):
    env.reset(seed=0)
    for form in forms:
        for text in chosen:
            action = form.format(text)
            with in_time(action):
                step = env.step(everybody(env, action))
                infos = step.infos.values() if hasattr(step, "infos") else [step.info]
                assert not any("error" in info for info in infos), infos
                if step.done:
                    env.reset(seed=0)


def made(env_id):
    try:
        env = gem.make(env_id)
        env.reset(seed=0)
    except (MissingData, MissingExtra, SandboxFailed) as absent:
        pytest.skip(str(absent))
    return env


def forms_of(env_id):
    running = RUNNING_FORMS.get(env_id.partition(":")[0])
    return (*FORMS, *([running] if running else []))


def fitting(env_id, chosen):
    runs = env_id.partition(":")[0] in ("code", "terminal", "db")
    return [text for text in chosen if len(text) <= LONGEST_RUN] if runs else chosen


@pytest.mark.parametrize("env_id", one_of_each())
def test_an_environment_takes_some_texts(env_id):
    env = made(env_id)
    runs = env_id.partition(":")[0] in ("code", "terminal", "db")
    number = len(env_id)
    let_loose(env, forms_of(env_id), fitting(env_id, sample(number, 150 if runs else 40)))
    env.close()


@pytest.mark.slow
@pytest.mark.parametrize("env_id", one_of_each())
def test_an_environment_takes_every_text(env_id):
    env = made(env_id)
    runs = env_id.partition(":")[0] in ("code", "terminal")
    let_loose(env, forms_of(env_id), fitting(env_id, sample(0, 12 if runs else 4)))
    env.close()


def mutations(env, seed, count):
    """Return mutations of a right answer to the task of that seed."""
    env.reset(seed=seed)
    return mutate(right_text(env), Random(seed), count)


@pytest.mark.system
@pytest.mark.parametrize("env_id", one_of_each())
def test_an_environment_takes_mutations_of_right_answers(env_id):
    env = made(env_id)
    for seed in range(2):
        chosen = fitting(env_id, mutations(env, seed, 20))
        let_loose(env, ("{}",), [text.replace("{", "{{").replace("}", "}}") for text in chosen])
    env.close()


@pytest.mark.system
@pytest.mark.parametrize("env_id", one_of_each())
def test_an_episode_of_hostile_answers_has_a_verdict_and_can_be_stored(env_id, tmp_path):
    env = made(env_id)
    answers = fitting(env_id, [*HOSTILE.values(), *mutations(env, 0, 20)])
    env.close()
    rng = Random(7)
    agent = ScriptedAgent(lambda ask: rng.choice(answers))
    with EpisodeStore(tmp_path / "run") as store:
        result = evaluate(agent, env_id, episodes=5, store=store, limits=gem.Limits(turns=8))
        assert (result.no_verdict.mean, result.errors) == (0.0, {})
        assert [episode.verdict for episode in store] == ["scored"] * 5


CODE_TESTS = {"fn_name": "f", "inputs": [[1]], "outputs": [[[7], 1]], "public": 1}
ROWS = {
    "math": lambda: MathEnv(
        dataset=[{"problem": "?", "answer": r"\frac{1}{2}"}], use_format_error_reward=True
    ),
    "qa": lambda: QaEnv(dataset=[{"question": "?", "answer": ["Oslo", "1,234.5"]}], metric="f1"),
}


@pytest.mark.system
@pytest.mark.parametrize("name", ROWS)
def test_rows_of_ones_own_take_some_texts(name):
    let_loose(ROWS[name](), FORMS, sample(3, 20))


REFERENCES = ("7", r"\frac{1}{2}", "(1,2)", "x^2+1", "A", "[0,1)", r"12\text{ cm}", "yes")


def compare_all(text):
    for compare in COMPARES:
        same_text(text, "1.5 2\n3", compare)
        same_text(text, text, compare)
        try:
            value = read_plain(text)
        except ValueError:
            value = text
        for wanted in (1, 1.5, "a", [1, 2.5], [[1.0], {"a": 2}], {"a": [1]}, None):
            same_value(value, wanted, compare)
            same_value([value, 1], [wanted, 1], compare)


def grade_text(text):
    for metric in ("em", "f1"):
        for official in (False, True):
            TextGrader(metric, official)(text, ["Oslo", "1,234.5", "14 December 1972"])


def compare_rows(text):
    for value in (text, float("nan"), 10**400, None, b"\xff"):
        same_rows([(value, 1)], [(text, 1.0)])
        same_rows([(value, 1)], [(value, 1.0)], ordered=True)
        same_state({"t": [(value,)]}, {"t": [(text,)]})


def read_calls(text):
    for form in (*FORMS, *RUNNING_FORMS.values()):
        calls.find(form.format(text), [])


def read_judge(text):
    read_verdict(text, "ab")
    read_verdict(json.dumps({"tag": "ab", "score": text, "why": text}), "ab")
    read_verdict('{"tag": "ab", "score": %s, "why": ""}' % text, "ab")  # noqa: UP031


READERS = {
    "comparisons": compare_all,
    "text": grade_text,
    "number": lambda text: NumberGrader()(text, "7"),
    "choice": lambda text: ChoiceGrader()(text, {"choices": ["7", text], "answer": "A"}),
    "sql": compare_rows,
    "calls": read_calls,
    "judge": read_judge,
    "cascade": lambda text: CascadeGrader({"a": TextGrader(), "b": TextGrader("f1")})(text, "7"),
}


def test_every_grader_gets_the_texts():
    assert {*MADE} - {"math", "code"} <= {*READERS}  # these two have tests of their own here


@pytest.mark.system
@pytest.mark.parametrize("name", READERS)
def test_a_grader_takes_some_texts(name):
    for text in sample(len(name), 20):
        with in_time(text):
            READERS[name](text)


@pytest.mark.parametrize("name", [*READERS, pytest.param("math", marks=pytest.mark.system)])
def test_a_grader_takes_mutations_of_right_answers(name):
    rng = Random(len(name))
    for reference in REFERENCES:
        for form in ("{}", "\\boxed{{{}}}"):
            for text in mutate(form.format(reference), rng, 3):
                with in_time(text):
                    if name == "math":
                        assert 0.0 <= MathGrader()(text, reference).value <= 1.0
                    else:
                        READERS[name](text)


@pytest.mark.system
@pytest.mark.parametrize("form", [r"{0}^/ \pm\tool", r"\boxed{{{0}\left}}", "answer {0}", "{1}", "{2}"])
def test_long_runs_of_one_character_end(form):
    """A pattern that can part a run of digits, spaces or dollars in many ways would take years for these."""
    text = form.format("9" * 40, "answer" + " " * 4000 + "!!", "$" * 4000 + "!")
    for reference in REFERENCES:
        with in_time(text):
            assert MathGrader()(text, reference).value == 0.0
    for name in ("text", "judge", "cascade"):
        with in_time(text):
            READERS[name](text)


@pytest.mark.parametrize("score", ["9" * 400, "-" + "9" * 400, "1" + "0" * 309, "1e999", "NaN"])
def test_a_score_that_no_float_holds_is_no_verdict(score):
    read_judge(score)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_a_grader_takes_every_text(name):
    for text in texts():
        with in_time(text):
            READERS[name](text)


@pytest.mark.slow
@pytest.mark.parametrize("reference", REFERENCES)
def test_the_grader_of_mathematics_takes_every_text(reference):
    grader = MathGrader()
    for text in texts():
        for form in ("{}", "\\boxed{{{}}}"):
            with in_time(text):
                grader(form.format(text), reference)


@pytest.mark.slow
@pytest.mark.parametrize("compare", ["tokens", "unordered"])
def test_the_grader_of_code_takes_what_a_function_returns(compare):
    grader = CodeGrader(compare=compare)
    for text in [text for text in sample(0, 4) if len(text) < LONGEST_RUN]:
        score = grader(f"```python\ndef f(x):\n    return [{text!r}, 2]\n```", CODE_TESTS)
        assert (score.value, score.info["verdict"]) == (0.0, "WA")
        score.info["public"]["got"].encode()


@pytest.mark.slow
def test_programs_of_ones_own_take_texts():
    env = CodeEnv(dataset=[{"problem": "?", "tests": {"inputs": ["1\n"], "outputs": ["2\n"]}}])
    let_loose(env, forms_of("code:"), [text for text in sample(1, 8) if len(text) < LONGEST_RUN])
