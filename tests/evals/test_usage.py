"""Tokens, prices and budgets."""

import json
import re

import pytest

from gem.cli import main
from gem.content import Message
from gem.errors import BadArgument
from gem.evals import evaluate
from gem.evals.usage import (
    UNTRIED,
    Budget,
    Prices,
    Usage,
    count_judged,
    dollars,
    spent_on,
    together,
    tokens_of,
)
from gem.record import AgentInfo, Episode, Failure, RunInfo, Turn
from gem.specs import TaskRef
from gem.testing.stub_server import StubServer, completion

PRICES = """
[models.small]
input = 1.0
output = 10
[models."org/large"]
input = 2.0
cached = 0.5
output = 20.0
"""


def prices(tmp_path, text=PRICES):
    (tmp_path / "prices.toml").write_text(text)
    return Prices.read(tmp_path / "prices.toml")


def turn(prompt=100, completion=10, seat="agent", **more):
    return Turn(seat, "x", usage={"prompt_tokens": prompt, "completion_tokens": completion, **more})


def episode(*turns, model="small", seats=()):
    infos = {seat: AgentInfo("A", name) for seat, name in dict(seats).items()}
    return Episode(TaskRef("x:Y"), RunInfo("r", "OpenAIAgent", model, seats=infos), turns=list(turns))


def test_turns_are_summed_by_model():
    played = [
        episode(turn(), turn(50, 5, cached_tokens=40, reasoning_tokens=3)),
        episode(turn(1, 2), model="org/large"),
        episode(turn(7, 7), model=None),  # an agent of one's own, which counts
        episode(Turn("agent", "x", "five"), model=None),  # and does not always
        episode(turn(3, 4, seat="a"), turn(5, 6, seat="b"), seats={"a": "small", "b": None}),
    ]
    found = spent_on(played)
    assert found == {
        "small": Usage(153, 19, 40, 3),
        "org/large": Usage(1, 2),
        "OpenAIAgent": Usage(7, 7, uncounted=1),
        "A": Usage(5, 6),
    }
    assert tokens_of(found) == 200
    assert together([found, found])["small"].total == 2 * 172


def test_tokens_that_an_agent_kept_count_where_no_server_did():
    local = Turn("agent", "x")
    local.hold([1, 2, 3], [4, 5])
    unanswered = Turn("agent", "x")
    assert spent_on([episode(local, Turn("agent", "x", "five"), unanswered)]) == {
        "small": Usage(3, 2, uncounted=1)
    }


@pytest.mark.parametrize(
    ("counters", "unknown"),
    [
        ({"completion_tokens": 5}, 1),
        ({"prompt_tokens": 0, "completion_tokens": 5}, 1),
        ({"prompt_tokens": 9}, 1),
        ({"prompt_tokens": 9, "completion_tokens": 5}, 0),
        ({"prompt_tokens": 9, "completion_tokens": 0}, 1),
    ],
)
def test_a_turn_whose_tokens_are_half_known_is_uncounted(counters, unknown):
    half = Turn("agent", "x", "five", usage=counters)
    assert spent_on([episode(half)])["small"].uncounted == unknown


def test_an_empty_answer_may_have_no_tokens():
    empty = Turn("agent", "x", "", usage={"prompt_tokens": 9, "completion_tokens": 0})
    assert spent_on([episode(empty)]) == {"small": Usage(9)}
    empty.reply = Message("assistant", "", reasoning="hm")
    assert spent_on([episode(empty)]) == {"small": Usage(9, uncounted=1)}


def test_a_prompt_that_was_refused_used_no_tokens():
    assert spent_on([episode(Turn("agent", "x", "", finish="context"))]) == {"small": Usage()}
    plainly_asked = Turn("agent", "x", "", finish="context", usage={"discarded_prompt_tokens": 5})
    assert spent_on([episode(plainly_asked)]) == {"small": Usage(5)}


def test_an_agent_without_a_model_that_counts_nothing_uses_nothing():
    kept = Turn("agent", "x", "five")
    kept.hold([1, 2, 3], [4, 5])
    assert spent_on([episode(Turn("agent", "x", "five"), kept, model=None)]) == {}


COUNTING = """
from gem.record import Reply
def counts(ask):
    return Reply("Oslo", usage={"prompt_tokens": 1000, "completion_tokens": 500})
def counts_nothing(ask):
    return "Oslo"
"""


@pytest.fixture
def evaluate_own(tmp_path, monkeypatch, capsys):
    """Evaluate a function of own.py on ten questions; return the exit code and what was printed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(COUNTING)
    (tmp_path / "q.csv").write_text("question,answer\n" + "".join(f"What is {i}?,{i}\n" for i in range(10)))

    def run(name, *words):
        code = main(["eval", "--data", "q.csv", "--agent", f"own.py:{name}", *words])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def test_a_budget_and_a_gate_are_kept_by_an_agent_of_ones_own(evaluate_own):
    code, said = evaluate_own("counts", "--budget-tokens", "3000", "--gate", "tokens<=10")
    assert code == 1
    assert re.search(
        r"the budget is used up: [3-9],[05]00 of 3,000 tokens; \d episodes were not played", said
    )
    assert re.search(r"gate FAILED: tokens<=10: overall: [3-9][05]00\n", said)


def test_an_agent_of_ones_own_has_a_price_by_its_name(evaluate_own, tmp_path):
    prices(tmp_path)
    limits = ("--prices", "prices.toml", "--budget-usd", "0.006")
    code, said = evaluate_own("counts", *limits)
    assert (code, "no price of 'own.py:counts'" in said) == (2, True)
    prices(tmp_path, '[models."own.py:counts"]\ninput = 1.0\noutput = 4.0\n')
    code, said = evaluate_own("counts", *limits)
    assert code == 1
    assert re.search(r"the budget is used up: \$0\.0\d+ of \$0\.006; \d episodes were not played", said)


def test_a_budget_and_a_gate_without_any_count_are_not_kept_in_silence(evaluate_own):
    code, said = evaluate_own("counts_nothing", "--budget-tokens", "30", "--gate", "tokens<=10")
    assert code == 1
    assert "gate FAILED: tokens<=10: overall: no figure, no tokens were counted" in said
    assert "counts_nothing counted no tokens: no budget ends its evaluation" in said
    code, said = evaluate_own("counts_nothing")
    assert (code, "counted" in said) == (0, False)


def test_discarded_answers_are_spent_too():
    again = {"discarded_prompt_tokens": 200, "discarded_completion_tokens": 20, "discarded_cached_tokens": 50}
    lost = episode(turn(1, 2))
    lost.error = Failure("agent", "NoVerdict", "filtered", {"small": again})
    assert spent_on([episode(turn(**again)), lost]) == {"small": Usage(501, 52, 100)}


def test_tokens_of_judges_are_told_and_in_no_other_figure(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "capitals.csv").write_text("question,answer\nPeru?,Lima\nNorway?,Oslo\n")
    (tmp_path / "rubric.toml").write_text(
        '[same]\ngrader = "text"\n\n[kind]\ngrader = "judge:judge@URL"\nrubric = "1: it is polite"\n'
    )

    def answer(request):
        tag = re.search(r'"tag": "([0-9a-f]+)"', str(request["messages"]))
        text = json.dumps({"tag": tag[1], "score": 1, "why": "it is"}) if tag else r"\boxed{Lima}"
        return {**completion(text), "usage": {"prompt_tokens": 100 if tag else 7, "completion_tokens": 3}}

    with StubServer(answer) as server:
        rubric = tmp_path / "rubric.toml"
        rubric.write_text(rubric.read_text().replace("URL", server.base_url))
        for grader in (f"judge:judge@{server.base_url}", "rubric.toml"):
            command = ["eval", "--data", "capitals.csv", "--grader", grader, "--out", f"run-{grader[:5]}"]
            assert main([*command, "--agent", f"openai:small@{server.base_url}"]) == 0
            (result,) = json.loads((tmp_path / f"run-{grader[:5]}/result.json").read_text())["results"]
            assert (result["judged"], result["usage"]["small"]["prompt"]) == (206, 14)
            assert "judges used 206 tokens, which are in no other figure" in "".join(capsys.readouterr())
    odd = Turn("agent", "x", info={"parts": [1], "judge_usage": {"prompt_tokens": "many"}})
    assert count_judged([episode(odd)]) == 0  # an environment may say anything


def test_cached_tokens_have_a_price_of_their_own(tmp_path):
    read = prices(tmp_path)
    million = 1_000_000
    assert read.cost({"small": Usage(million, million, cached=million)}) == pytest.approx(11)
    assert read.cost({"org/large": Usage(million, million, cached=million // 2)}) == pytest.approx(21.25)
    assert read.cost({}) == 0


def test_what_costs_nothing_has_the_price_0(tmp_path):
    assert prices(tmp_path, "[models.a]\ninput = 0\noutput = 0").cost({"a": Usage(10, 10)}) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[models", "cannot be read"),
        ("", "has no prices"),
        ("[model.a]\ninput=1\noutput=1", "Did you mean 'models'"),
        ("[models]\na = 3", "accepted: a table"),
        ("[models.a]\ninput = 1", "lacks 'output'"),
        ("[models.a]\ninput = 1\nouput = 1", "Did you mean 'output'"),
        ("[models.a]\ninput = -1\noutput = 1", "input of 'a' is -1"),
        ("[models.a]\ninput = nan\noutput = 1", "input of 'a' is nan"),
        ("[models.a]\ninput = true\noutput = 1", "input of 'a' is True"),
        (f"[models.a]\ninput = {10**400}\noutput = 1", "accepted: dollars per million tokens, 0 to 1e+12"),
        (f"a = {'[' * 100_000}", "cannot be read"),
    ],
)
def test_a_price_file_with_a_mistake_is_told(text, said, tmp_path):
    with pytest.raises(BadArgument, match=r"prices\.toml") as caught:
        prices(tmp_path, text)
    assert said in str(caught.value)


def test_a_model_without_a_price_is_told(tmp_path):
    read = prices(tmp_path)
    read.check(["small", None])
    with pytest.raises(BadArgument, match=r"no price of 'smal'\. Did you mean 'small'"):
        read.cost({"smal": Usage(1, 1)})


# -- budgets


AGENT = "model"


def begun(**limits):
    budget = Budget(**limits)
    budget.begin(AGENT, episode().spec)
    return budget


def played(budget, *turns, times=1):
    for _ in range(times):
        budget.append(episode(*turns), AGENT)


def test_few_are_begun_until_it_is_known_what_one_takes():
    budget = begun(tokens=10_000)
    assert [budget.admit(flying) for flying in range(UNTRIED + 1)] == [True] * UNTRIED + [False]
    played(budget, turn(90, 10), times=8)
    assert budget.admit(7)
    assert not budget.admit(8)
    played(budget, turn(90, 10), times=72)
    assert budget.admit(19)
    assert not budget.admit(20)  # with itself 21 more, of 100 tokens each, beside the 8,000 that are spent
    assert str(budget) == "8,000 of 10,000 tokens"


def test_what_another_agent_or_environment_took_counts_but_says_nothing_of_this_one():
    budget = begun(tokens=1000)
    played(budget, turn(200, 0), times=4)
    assert budget.admit(0)
    assert not budget.admit(1)
    for other in (("another", episode().spec), (AGENT, "another:Env-v0")):
        budget.begin(*other)
        assert budget.admit(UNTRIED - 1)
    budget.begin(AGENT, episode().spec)
    assert not budget.admit(1)
    played(budget, turn(200, 0))
    assert not budget.admit(0)


def test_money_is_a_budget_too(tmp_path):
    budget = begun(usd=0.001, prices=prices(tmp_path))
    played(budget, turn(100, 10))
    assert budget.admit(3)
    assert not budget.admit(4)
    assert str(budget) == "$0.00020 of $0.001"


@pytest.mark.parametrize("wrong", [{"tokens": -1}, {"usd": float("nan"), "prices": 1}, {"usd": 1.0}])
def test_what_is_no_budget_is_refused(wrong):
    with pytest.raises(BadArgument, match="budget_"):
        Budget(**wrong)


def test_nothing_is_begun_with_a_budget_of_nothing():
    assert not Budget(tokens=0).admit(0)
    found = evaluate(_agent(), "game:GuessTheNumber-v0-easy", episodes=5, admit=Budget(tokens=0).admit)
    assert (found.played, found.unplayed) == (0, 5)


def _agent():
    from gem.agents.random import RandomAgent

    return RandomAgent()


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (None, "-"),
        (0, "$0.0000"),
        (0.00003, "$0.000030"),
        (0.00009, "$0.000090"),
        (1.234e-7, "$0.00000012"),
        (0.000996, "$0.0010"),
        (0.0057, "$0.0057"),
        (0.00999, "$0.0100"),
        (0.25, "$0.2500"),
        (1234.5, "$1,234.50"),
    ],
)
def test_an_amount_of_money_has_two_digits_or_more(cost, text):
    assert dollars(cost) == text
