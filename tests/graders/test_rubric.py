import asyncio
import json
import pickle
import re
import sys
import threading
from concurrent.futures import Future

import pytest

import gem
from gem.agents.scripted import ScriptedAgent
from gem.cli import main
from gem.envs.data.named import data_task, named_kwargs
from gem.errors import BadArgument, GemError, NoVerdict
from gem.evals import evaluate, load_suite
from gem.evals.evaluator import play_suite
from gem.evals.results import EnvResult
from gem.graders.base import Score
from gem.graders.cascade import CascadeGrader
from gem.graders.functions import FunctionGrader, JudgeByName, ping_judges
from gem.graders.judge import JudgeGrader
from gem.graders.math import MathGrader
from gem.graders.named import make_grader, named_grader, read_grader, read_rubric
from gem.graders.rubric import Rubric
from gem.naming import fix_name
from gem.record import Reply
from gem.registry import Maker
from gem.rollout import Job, rollout
from gem.rollout.regrade import regrade
from gem.rollout.store import EpisodeStore
from gem.specs import restore_value, write_value
from gem.trust import check_values

ROWS = [{"question": "6 times 7?", "answer": "42"}, {"question": "2 and 2?", "answer": "4"}]


def brief(answer, reference):
    return 1.0 if len(answer) < 20 else 0.25


def long(answer, reference):
    return len(answer) > 20


def broken(answer, reference):
    raise KeyError("x")


def asks(answer, reference, question):
    return question == "6 times 7?"


def test_the_value_is_the_weighted_sum_over_the_positive_weights():
    rubric = Rubric({"exact": "math", "brief": brief}, {"brief": 0.25})
    right, wordy = rubric("\\boxed{42}", "42"), rubric("It is, I believe, \\boxed{42}", "42")
    assert (right.value, right.correct, right.info["rewards"]) == (1.0, True, {"exact": 1.0, "brief": 1.0})
    assert (wordy.value, wordy.correct) == ((1 + 0.25 * 0.25) / 1.25, False)
    assert wordy.info["rewards"] == {"exact": 1.0, "brief": 0.25}
    assert (wordy.parsed, wordy.why) == ("42", "exact 1 (same text); brief 0.25")


def test_a_negative_weight_takes_away_and_the_value_stays_above_nothing():
    rubric = Rubric({"exact": "math", "long": long}, {"long": -0.5})
    words = "It is, I believe, "
    assert rubric(words + "\\boxed{42}", "42").value == 0.5
    assert rubric(words + "\\boxed{41}", "42").value == 0.0


@pytest.mark.parametrize("weights", [[0.1] * 10, [0.1, 0.2, 0.3], [0.7, 0.1, 0.3]])
def test_parts_of_which_each_is_right_sum_to_exactly_one(weights):
    parts = {str(number): lambda answer, reference: True for number in range(len(weights))}
    score = Rubric(parts, dict(zip(parts, weights, strict=True)))("", "")
    assert (score.value, score.correct) == (1.0, True)


def test_a_value_that_only_rounding_keeps_below_the_passing_one_is_correct():
    parts = {str(number): lambda answer, reference, part=number: part == 2 for number in range(3)}
    assert Rubric(parts, {"0": 0.1, "1": 0.1, "2": 0.6}, passing=0.75)("", "").correct
    assert not Rubric(parts, {"0": 0.1, "1": 0.1, "2": 0.6}, passing=0.751)("", "").correct


@pytest.mark.parametrize(
    ("settings", "correct"),
    [({}, False), ({"passing": 0.6}, True), ({"correct": "exact"}, True), ({"correct": "brief"}, False)],
)
def test_what_is_correct_is_the_value_or_a_part(settings, correct):
    score = Rubric({"exact": "math", "brief": brief}, **settings)("It is, I believe, \\boxed{42}", "42")
    assert (score.value, score.correct) == (0.625, correct)


def test_a_part_without_verdict_leaves_the_answer_without_one_unless_it_is_only_measured():
    with pytest.raises(NoVerdict, match=r"the part broken of the rubric gave no verdict: .*KeyError"):
        Rubric({"exact": "math", "broken": broken})("\\boxed{41}", "42")
    score = Rubric({"exact": "math", "broken": broken}, {"broken": 0})("\\boxed{42}", "42")
    assert (score.value, score.correct, score.info["rewards"]) == (1.0, True, {"exact": 1.0})
    assert list(score.info["no_verdict"]) == ["broken"]
    with pytest.raises(NoVerdict):
        Rubric({"exact": "math", "broken": broken}, {"broken": 0}, correct="broken")("\\boxed{42}", "42")
    with pytest.raises(NoVerdict, match="from 0 to 1"):
        Rubric({"odd": lambda answer, reference: 7})("a", "b")


def test_a_reference_that_a_part_cannot_read_is_no_verdict_of_it():
    with pytest.raises(NoVerdict, match=r"the part num of the rubric gave no verdict: .*'Oslo'"):
        Rubric({"words": "text", "num": "number"})("<answer>Oslo</answer>", "Oslo")
    score = Rubric({"words": "text", "num": "number"}, {"num": 0})("<answer>Oslo</answer>", "Oslo")
    assert (score.value, list(score.info["no_verdict"])) == (1.0, ["num"])


@pytest.mark.parametrize(
    ("parts", "row", "said"),
    [
        ("text number", {"answer": "Oslo"}, r"the part number of the rubric cannot read it: .*'Oslo'"),
        ("text choice", {"answer": "Oslo"}, "the part choice .*a mapping with choices and answer"),
        ("choice text", {"answer": "A", "choices": ["Oslo", "Rome"]}, "the part text .*"),
        ("text code", {"answer": "Oslo"}, "the part code .*"),
    ],
)
def test_rows_that_a_part_cannot_read_are_bad(parts, row, said, tmp_path, capsys):
    (tmp_path / "q.jsonl").write_text(json.dumps({"question": "Capital of Norway?", **row}))
    first, other = parts.split()
    table = {first: {"grader": first}, other: {"grader": other, "weight": 0}}
    with pytest.raises(BadArgument, match=said):
        data_task("q.jsonl", table, folder=tmp_path)
    (tmp_path / "r.toml").write_text("".join(f'[{part}]\ngrader = "{part}"\n' for part in table))
    audit = ["audit", "--data", str(tmp_path / "q.jsonl"), "--grader", str(tmp_path / "r.toml")]
    assert main(audit) == 1
    assert re.search(said, capsys.readouterr().out)
    (tmp_path / "q.jsonl").write_text('{"question": "6 times 7?", "answer": 42}')
    assert data_task("q.jsonl", {"words": {"grader": "text"}, "num": {"grader": "number"}}, folder=tmp_path)


def test_each_part_reads_the_answer_reference_and_question_as_alone():
    judge = JudgeGrader(
        ScriptedAgent(['{"tag": "t", "score": 1, "why": "yes"}']), "1: right.", tag=lambda: "t"
    )
    rubric = Rubric({"math": "math", "text": "text", "asks": asks, "judge": judge})
    score = rubric("\\boxed{42}", "\\boxed{42}", question="6 times 7?")
    assert score.info == {
        "rewards": dict.fromkeys(rubric.graders, 1.0),
        "parts": {"judge": {"judge_asks": 1}},
    }
    copied = Rubric({"math": "math"})(
        "\\boxed{\\frac{3}{4}}", "3/4", question="Convert $\\frac{3}{4}$ to 3/4"
    )
    alone = MathGrader()("\\boxed{\\frac{3}{4}}", "3/4", question="Convert $\\frac{3}{4}$ to 3/4")
    assert copied.value == alone.value


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (({},), "graders is {}; accepted: one grader or more by name"),
        ((["math"],), r"graders is \['math'\]; accepted: one grader or more by name"),
        (({"a": "math"}, {"a": 0}), "sum of the positive weights"),
        (({"a": "math"}, {"a": float("nan")}), "the weight of a is nan"),
        (({"a": "math"}, {"a": 10**400}), "the weight of a is 1000"),
        (
            ({"a": "math", "b": "text"}, {"a": 1e308, "b": 1e308}),
            "the weight of a is 1e.308; accepted",
        ),
        (({"a": "math"}, {"a": "1"}), "the weight of a is '1'"),
        (({"a": "math"}, {"b": 1}), "does not take 'b'.*It takes: a"),
        (({"a": "mth"},), "the part a is 'mth'; accepted: text, math"),
        (({"a": "evil.py:fn"},), "the part a is 'evil.py:fn'"),
        (({"a": 7},), "grader"),
    ],
)
def test_what_is_no_rubric_is_refused(arguments, said):
    with pytest.raises(GemError, match=said):
        Rubric(*arguments)


def test_a_rubric_that_names_itself_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text('[a]\ngrader = "own.toml"\n')
    with pytest.raises(BadArgument, match="a rubric that names itself"):
        named_grader(read_grader("own.toml"))


def test_unknown_settings_are_refused():
    with pytest.raises(BadArgument, match=r"correct is 'b'; accepted: a part of the rubric \(a\)"):
        Rubric({"a": "math"}, correct="b")
    with pytest.raises(BadArgument, match="passing is 0"):
        Rubric({"a": "math"}, passing=0)


def test_it_is_pickled_and_stored_and_its_name_follows_its_content():
    rubric = Rubric({"exact": "math", "brief": brief}, {"brief": 0.5}, correct="exact")
    for again in (
        pickle.loads(pickle.dumps(rubric)),
        restore_value(json.loads(json.dumps(write_value(rubric)))),
    ):
        assert again("\\boxed{42}", "42") == rubric("\\boxed{42}", "42")
        assert again.name == rubric.name
    names = {
        rubric.name,
        Rubric({"exact": "math", "brief": brief}, correct="exact").name,
        Rubric({"exact": "text", "brief": brief}, {"brief": 0.5}, correct="exact").name,
        Rubric({"exact": "math", "brief": long}, {"brief": 0.5}, correct="exact").name,
        Rubric({"exact": "math", "brief": lambda answer, reference: 1}, {"brief": 0.5}).name,
    }
    assert len(names) == 5
    assert all(name.startswith("rubric:exact+brief#") for name in names)


def test_the_parts_are_in_the_turns_rewards_and_in_the_figures(tmp_path):
    rubric = Rubric({"exact": "math", "brief": brief}, {"brief": 0}, correct="exact")
    env = gem.make("data:math", data=ROWS, grader=rubric)
    env.reset(idx=0)
    info = env.step("It is, I believe, \\boxed{42}").info
    assert (info["rewards"], info["success"]) == ({"exact": 1.0, "brief": 0.25}, True)
    maker = Maker("data:math", {"data": ROWS, "grader": rubric})
    with EpisodeStore(tmp_path / "e.jsonl") as store:
        result = evaluate(ScriptedAgent(["\\boxed{42}"]), maker, store=store)
        (first, second) = list(store)
        assert {json.dumps(each.turns[0].rewards) for each in (first, second)} == {
            '{"exact": 1.0, "brief": 1.0}',
            '{"exact": 0.0, "brief": 1.0}',
        }
    assert {part: each.mean for part, each in result.parts.items()} == {"exact": 0.5, "brief": 1.0}
    assert EnvResult.from_json(json.loads(json.dumps(result.to_json()))).parts == result.parts


TOML = """
correct = "exact"
exact = {grader = "text"}
brief = {grader = "mine.py:brief", weight = 0.5}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "q.csv").write_text("question,answer\nCapital of Norway?,Oslo\n")
    code = f"def brief(answer, reference):\n    return len(answer) < 20  # in {tmp_path}\n"
    (tmp_path / "mine.py").write_text(code)  # of its own: what another test named is known
    (tmp_path / "rubric.toml").write_text(TOML)
    return tmp_path


def test_a_table_or_a_file_of_one_is_a_rubric(folder):
    kind, rubric = named_grader("rubric.toml", str(folder))
    assert (kind, rubric.weights, rubric.correct) == ("text", {"exact": 1.0, "brief": 0.5}, "exact")
    assert make_grader(str(folder / "rubric.toml"))("<answer>Oslo</answer>", "Oslo").value == pytest.approx(
        2 / 3
    )
    assert read_rubric({"a": {"grader": "judge:m", "rubric": "1: kind", "passing": 0.5}})[0] == "judge"
    own = data_task("q.csv", "rubric.toml", folder=folder)
    assert (own.env, own.title) == ("data:text", "q.csv:rubric:exact+brief")
    assert "Rubric: exact (weight 1), brief (weight 0.5); right by exact." in own.about
    again = named_kwargs(own.env, json.loads(json.dumps(own.written)))
    assert again["grader"].name == own.kwargs["grader"].name


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"a": "math"}, "a of the rubric is 'math'; accepted: a table with a grader"),
        ({"a": {"weight": 1}}, "a of the rubric"),
        ({"a": {"grader": "math"}, "correct": "a", "passing": 0.5}, "has both correct and passing"),
        ({"a": {"grader": "math", "wieght": 1}}, "Did you mean 'weight'"),
        ({"a": {"grader": "math", "rubric": "1: all"}}, "which only a judge takes"),
        ({"a": {"grader": "judge:m", "prompt": " "}}, "prompt is"),
        ({"a": {"grader": "mth"}}, "Did you mean 'math'"),
    ],
)
def test_another_table_is_refused(table, said):
    with pytest.raises(GemError, match=said):
        read_rubric(table)


def test_a_file_that_is_no_rubric_is_refused(tmp_path):
    (tmp_path / "r.toml").write_text("a = [")
    for name in ("r.toml", "other.toml"):
        with pytest.raises(BadArgument, match="cannot be read"):
            named_grader(name, str(tmp_path))


SUITE = """
[[environments]]
data = "q.csv"
[environments.grader]
correct = "exact"
exact = {{grader = "text"}}
{name} = {{grader = "mine.py:brief", weight = 0.5}}
"""


@pytest.mark.parametrize("name", ["brief", "prompt", "rubric"])
def test_a_suite_may_name_its_own_code_only_when_it_is_trusted(folder, name):
    (folder / "s.toml").write_text(SUITE.format(name=name))
    with pytest.raises(BadArgument, match=r"mine.py.*--trust"):
        load_suite(str(folder / "s.toml"))
    suite = load_suite(str(folder / "s.toml"), trust=True)
    (result,) = play_suite(suite, "solver").results
    assert list(result.parts) == ["exact", name]
    fix_name("mine.py:brief", "grader", folder)  # named by this user
    assert load_suite(str(folder / "s.toml")).entries[0].kwargs["grader"].weights[name] == 0.5


def test_a_suite_may_not_name_a_file_that_may_name_code(folder):
    (folder / "s.toml").write_text('[[environments]]\ndata = "q.csv"\ngrader = "rubric.toml"\n')
    with pytest.raises(BadArgument, match=r"rubric.toml.*--trust"):
        load_suite(str(folder / "s.toml"))
    assert load_suite(str(folder / "s.toml"), trust=True).entries[0].kwargs["grader"].correct == "exact"


def test_episodes_are_graded_again_by_a_rubric(tmp_path):
    episodes = rollout([Job("math:Arithmetic-v0-easy", 0)], ScriptedAgent(["\\boxed{42}"]))
    (row,) = regrade(episodes, Rubric({"exact": "math", "brief": brief}))
    assert row.after in (True, False)
    assert "brief 1" in row.why


class Together:
    """A judge whose first answers come only when `count` are asked at the same time."""

    def __init__(self, count):
        self.barrier = threading.Barrier(count, timeout=30)

    def __call__(self, asks):
        self.barrier.wait()
        return [Reply(json.dumps({"tag": "t", "score": 1, "why": ""})) for _ in asks]

    def forget(self, episode):
        pass


def test_answers_are_judged_at_the_same_time_in_an_evaluation():
    judge = JudgeGrader(Together(4), "1: right.", tag=lambda: "t")
    rows = [{"question": f"{n} + 1?", "answer": str(n + 1)} for n in range(4)]
    for grader in (judge, Rubric({"exact": "math", "judge": judge})):
        maker = Maker("data:math", {"data": rows, "grader": grader})
        assert maker.spec.waits
        assert not maker.spec.deterministic
        result = evaluate(ScriptedAgent(["\\boxed{1}"]), maker)
        assert (result.scored, result.errors) == (4, {})
    assert not Maker("data:math", {"data": rows, "grader": Rubric({"exact": "math"})}).spec.waits


def test_the_judges_among_the_parts_are_pinged_and_closed(monkeypatch):
    heard = []
    monkeypatch.setattr(JudgeByName, "ping", lambda self: heard.append(("ping", self.name)))
    monkeypatch.setattr(JudgeByName, "close", lambda self: heard.append(("close", self.name)))
    judge = JudgeByName("m")
    rubric = Rubric({"exact": "math", "judge": judge})
    ping_judges({"grader": rubric, "data": "q.csv"})
    rubric.close()
    assert heard == [("ping", "judge:m"), ("close", "judge:m")]


def test_a_judge_with_instructions_of_its_own_has_a_name_of_its_own():
    names = {JudgeByName("m").name, JudgeByName("m", "1: kind.").name, JudgeByName("m", prompt="Judge.").name}
    assert len(names) == 3
    assert "judge:m" in names
    again = pickle.loads(pickle.dumps(JudgeByName("m", prompt="By {rubric}", passing=0.5)))
    assert (
        again.name
        == restore_value(write_value(again)).name
        == JudgeByName("m", None, "By {rubric}", 0.5).name
    )


def test_a_rubric_in_place_of_a_grader_is_only_one_more_grader():
    assert Score(1.0, True, "42", "exact 1 (same text)", {"rewards": {"exact": 1.0}}) == Rubric(
        {"exact": "math"}
    )("\\boxed{42}", "42")


def test_episodes_are_graded_again_at_the_same_time():
    jobs = [Job("math:Arithmetic-v0-easy", seed) for seed in range(4)]
    episodes = rollout(jobs, ScriptedAgent(["\\boxed{1}"]))
    judge = JudgeGrader(Together(4), "1: right.", tag=lambda: "t")
    rows = list(regrade(episodes, CascadeGrader({"judge": judge})))
    assert [row.episode for row in rows] == [episode.id for episode in episodes]
    assert all(row.after for row in rows)
    silent = JudgeGrader(ScriptedAgent(["no"] * 8), "1: right.")
    assert [row.why[:11] for row in regrade(episodes, silent)] == ["no verdict:"] * 4


def test_asynchronous_functions_are_awaited_at_the_same_time_in_one_loop():
    together = asyncio.Barrier(4)  # of one loop: all four wait in it

    async def kind(answer, reference):
        async with asyncio.timeout(30):
            await together.wait()
        return 0.5

    async def fails(answer, reference):
        raise KeyError("x")

    rows = [{"question": f"{n} + 1?", "answer": str(n + 1)} for n in range(4)]
    rubric = Rubric({"exact": "math", "kind": kind})
    assert rubric.waits
    result = evaluate(ScriptedAgent(["\\boxed{1}"]), Maker("data:math", {"data": rows, "grader": rubric}))
    assert (result.scored, result.errors, result.parts["kind"].mean) == (4, {}, 0.5)
    with pytest.raises(NoVerdict, match="raised KeyError"):
        FunctionGrader(fails)("a", "b")
    assert not FunctionGrader(brief).waits


def test_a_judge_asks_at_most_so_many_at_once():
    (grader,) = read_rubric({"a": {"grader": "judge:m@http://127.0.0.1:9/v1", "at_once": 3}})[
        1
    ].graders.values()
    again = pickle.loads(pickle.dumps(grader))
    judge = again._open_judge()
    assert (judge.agent.endpoint.concurrency, again.name) == (3, "judge:m@http://127.0.0.1:9/v1")
    again.close()
    with pytest.raises(BadArgument, match="at_once is 0"):
        JudgeByName("m", at_once=0)


def test_a_record_of_somebody_else_may_hold_a_rubric_of_gems_graders_alone():
    check_values(write_value(Rubric({"a": "math", "b": "text", "c": "code"}, {"b": 0.5})))
    with pytest.raises(BadArgument, match=r"a judge that you did not name.*m@http://never.example"):
        check_values(write_value(Rubric({"a": "math", "j": JudgeByName("m@http://never.example/v1")})))
    written = write_value(Rubric({"a": "math", "f": brief}))
    written["kwargs"]["graders"]["f"] = {"$callable": "os:system"}
    with pytest.raises(BadArgument, match=r"names code: 'os:system'"):
        check_values(written)


LIMITED = """
import asyncio

here, most, calls = 0, 0, {}

async def kind(answer, reference):
    global here, most
    here += 1
    most = max(most, here)
    calls[reference] = calls.get(reference, 0) + 1
    try:
        await asyncio.sleep(0.001)
        if reference == "5" and calls[reference] == 1 or reference == "7":
            raise OSError("busy")
    finally:
        here -= 1
    return 0.5

def state():
    return here, most, calls
"""


def test_a_file_limits_an_asynchronous_function(tmp_path):
    (tmp_path / "own.py").write_text(LIMITED)
    (tmp_path / "r.toml").write_text(
        '[exact]\ngrader = "math"\n[kind]\ngrader = "own.py:kind"\nat_once = 3\nseconds = 60\nretries = 1\n'
    )
    rows = [{"question": f"{n} + 0?", "answer": str(n)} for n in range(24)]
    _, rubric = named_grader(str(tmp_path / "r.toml"))
    rubric = restore_value(write_value(rubric))  # as a worker has it
    env = Maker("data:math", {"data": rows, "grader": rubric})
    result = evaluate(ScriptedAgent(["\\boxed{1}"]), env, concurrency=24, retries=0)
    here, most, calls = sys.modules[rubric.graders["kind"].function.__module__].state()
    assert (here, most) == (0, 3)
    assert {answer for answer, count in calls.items() if count == 2} == {"5", "7"}
    assert (result.scored, result.parts["kind"].mean) == (23, 0.5)
    assert "busy" in result.first_error


def test_limits_are_those_of_asynchronous_functions(tmp_path):
    for key, takes in (("seconds", "an async def function"), ("at_once", "an async def function or a judge")):
        with pytest.raises(BadArgument, match=f"a has {key}, which only {takes}"):
            read_rubric({"a": {"grader": "math", key: 1}})
    with pytest.raises(BadArgument, match="only an async def function takes"):
        FunctionGrader(brief, at_once=2)

    async def kind(answer, reference):
        return True

    async def silent(answer, reference):
        asked.append(answer)
        await asyncio.Event().wait()

    asked = []
    with pytest.raises(NoVerdict, match=r"TimeoutError: no answer within 0\.001 s"):
        FunctionGrader(silent, seconds=0.001, retries=2)("a", "b")
    assert asked == ["a"] * 3
    for wrong in ({"at_once": 0}, {"seconds": 0}, {"retries": -1}):
        with pytest.raises(BadArgument):
            FunctionGrader(kind, **wrong)


def test_an_interrupted_wait_cancels_the_asynchronous_function(monkeypatch):
    begun, ended = threading.Event(), threading.Event()

    async def kind(answer, reference):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    grader = FunctionGrader(kind, retries=3)
    real = Future.result

    def interrupt(future, timeout=None):
        begun.wait(30)
        monkeypatch.setattr(Future, "result", real)
        raise KeyboardInterrupt

    monkeypatch.setattr(Future, "result", interrupt)
    with pytest.raises(KeyboardInterrupt):
        grader("a", "b")
    assert ended.wait(30)
