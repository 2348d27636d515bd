import functools
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import gem
from gem.agents.openai import OpenAIAgent
from gem.errors import AgentUnavailable, BadArgument, NoVerdict
from gem.graders import MADE
from gem.graders.base import Score
from gem.graders.functions import FORMS, FunctionGrader, JudgeByName, class_of, ping_judges
from gem.graders.named import GRADER_HELP, make_grader, named_grader
from gem.testing.stub_server import StubServer


def says_it(answer, reference):
    return reference in answer


def share(answer, reference, question):
    return len(question) / 10


class Exact:
    def __call__(self, answer, reference):
        return Score(float(answer == reference), answer == reference, answer)


def test_a_function_gives_a_truth_value_a_number_or_a_score():
    assert FunctionGrader(says_it)("it is Oslo", "Oslo").correct
    assert FunctionGrader(says_it)("Rome", "Oslo") == Score(0.0, False, "Rome")
    assert FunctionGrader(share)("a", None, question="12345") == Score(0.5, False, "a")
    assert FunctionGrader(share)("a", None, question="1234567890").correct
    assert FunctionGrader(Exact)("a", "a").correct
    assert FunctionGrader(lambda answer, reference: np.bool_(True))("a", "a").correct
    assert FunctionGrader(lambda answer, reference: np.array(0.5))("a", "a").value == 0.5
    assert pickle.loads(pickle.dumps(FunctionGrader(says_it)))("Oslo", "Oslo").correct


@pytest.mark.parametrize("result", ["yes", None, float("nan"), 2, -1, np.ones(2)])
def test_what_is_no_score_is_no_verdict(result):
    with pytest.raises(NoVerdict):
        FunctionGrader(lambda answer, reference: result)("a", "b")


def test_what_a_function_may_return_is_said():
    with pytest.raises(NoVerdict, match=r"returned 'yes'; accepted: True or False, a number from 0 to 1"):
        FunctionGrader(lambda answer, reference: "yes")("a", "b")


def test_an_exception_in_a_function_is_no_verdict():
    with pytest.raises(NoVerdict, match=r"raised KeyError: 'x' \(test_functions\.py, line "):
        FunctionGrader(lambda answer, reference: {}["x"])("a", "b")


@pytest.mark.parametrize("function", [lambda answer: 1, lambda: 1, 7])
def test_a_function_that_takes_no_answer_and_reference_is_refused(function):
    with pytest.raises(BadArgument, match="grader"):
        FunctionGrader(function)


@pytest.mark.parametrize("name", MADE)
def test_a_line_of_the_table_makes_a_grader_an_environment_help_and_messages(name):
    assert type(make_grader(name)) is class_of(name)
    assert make_grader(name).name.startswith(f"{name}/")
    assert f"data:{name}" in gem.registry.ENV_REGISTRY
    assert class_of(name).criterion, "what is right, for messages"
    assert name in FORMS.split(", ")
    assert name in GRADER_HELP.split(", ")


@pytest.mark.parametrize(
    ("name", "right", "wrong", "reference"),
    [
        ("text", "Paris", "London", "Paris"),
        ("math", "7", "8", "7"),
        ("number", "7", "8", "7"),
        ("choice", "B", "A", {"choices": ["London", "Paris"], "answer": "B"}),
    ],
)
def test_no_grader_reads_thinking(name, right, wrong, reference):
    grader = make_grader(name)
    for thinking in ("<think>Is it \\boxed{%s}?</think>\n\n", "<answer>%s</answer>? No.</think>"):
        assert grader(thinking % wrong + right, reference).correct
        assert not grader(thinking % right + wrong, reference).correct
        assert not grader(thinking % right + "I do not know.", reference).correct
        assert not grader(thinking % right, reference).correct
    for broken_off in ("It is {}", "Say \\boxed{{{}}}, but that ignores the"):
        assert not grader("<think>" + broken_off.format(right), reference).correct


@pytest.mark.parametrize("mark", ["\u200b", "\u00ad", "\u2060", "\ufeff", "\u200e"])
@pytest.mark.parametrize(
    ("name", "answer", "reference"),
    [
        ("text", "Pa{}ris", "Paris"),
        ("math", "1{}7", "17"),
        ("number", "1{}7", "17"),
        ("choice", "{}B", {"choices": ["London", "Paris"], "answer": "B"}),
    ],
)
def test_characters_that_are_not_seen_make_no_difference(name, answer, reference, mark):
    answer = answer.format(mark)
    assert make_grader(name)(answer, reference).correct
    assert make_grader(name)(f"It is \\boxed{{{answer}}}.", reference).correct
    if name != "choice":
        assert make_grader(name)(answer, answer).correct


@pytest.mark.parametrize("name", MADE)
def test_each_grader_has_a_row_in_the_guide(name):
    guide = Path(__file__).parents[2] / "docs/guides/data.md"
    assert f"\n| `{name}` | " in guide.read_text(encoding="utf-8")


def test_graders_have_names(tmp_path):
    (tmp_path / "mine.py").write_text("def score(answer, reference):\n    return True\n")
    assert named_grader("math") == ("math", None)
    kind, grader = named_grader("mine.py:score", str(tmp_path))
    assert (kind, grader("", "").correct, grader.name) == ("function", True, "function:score")
    assert named_grader("judge:gpt@http://127.0.0.1:1/v1")[1].model == "gpt@http://127.0.0.1:1/v1"
    for name, said in (("mth", "Did you mean 'math'"), ("judge:", "no name"), ("mine.py:score", "mine.py")):
        with pytest.raises(BadArgument, match=said):
            named_grader(name)


def test_a_judge_that_is_not_there_is_told_by_its_name(monkeypatch):
    monkeypatch.setattr(OpenAIAgent, "__init__", functools.partialmethod(OpenAIAgent.__init__, grace_s=0.0))
    judge = JudgeByName("stub@http://127.0.0.1:9/v1")
    with pytest.raises(AgentUnavailable, match=r"judge:stub@http://127.0.0.1:9/v1 does not answer"):
        ping_judges({"grader": judge, "data": "q.csv"})
    judge.close()
    with StubServer("yes") as server:
        judge = JudgeByName(f"stub@{server.base_url}")
        ping_judges({"grader": judge})
        judge.close()
        assert len(server.requests) == 1


def test_a_judge_by_name_asks_its_server():
    seen = []

    def verdict(body):
        seen.append(body)
        tag = body["messages"][0]["content"].partition("blocks tagged ")[2].partition(",")[0]
        return json.dumps({"tag": tag, "score": 1, "why": "the same city"})

    with StubServer(verdict) as server:
        judge = JudgeByName(f"stub@{server.base_url}")
        assert pickle.loads(pickle.dumps(judge)).model == judge.model
        score = judge("Oslo, I think", "Oslo")
        judge.close()
    assert (score.correct, score.why) == (True, "the same city")
    assert seen[0]["model"] == "stub"
    assert seen[0]["temperature"] == 0
