"""The names of environments: those of the evaluation in comparisons, power and the viewer."""

import json
import re

import pytest

from gem.cli import main
from gem.codec import decode
from gem.evals import compare, read_run
from gem.evals.environments import name_environments
from gem.evals.power import suites
from gem.evals.suite import Entry
from gem.record import Episode, RunInfo, SeatEnd, StopReason, Turn, Verdict
from gem.rollout import EpisodeStore
from gem.rollout.store import env_key, merge
from gem.specs import TaskRef, WrapperRef
from gem.testing.stub_server import StubServer, completion
from gem.viewer.sources import open_sources

GUESS = "game:GuessTheNumber-v0-easy"
PROMPTS = """
[[environments]]
data = "c.csv"
[[environments.prompts]]
name = "good"
prompt = "GOOD {question}"
[[environments.prompts]]
name = "bad"
prompt = "BAD {question}"
"""
TWO_FILES = '[[environments]]\ndata = "c.csv"\n[[environments]]\ndata = "d.csv"\n'
TURNS = "".join(
    f'[[environments]]\nid = "{GUESS}"\nkwargs = {{max_turns = {turns}}}\nn = 4\n' for turns in (1, 9)
)


def answer(request):
    """Model m1 answers the prompt "GOOD" right, m2 the other one."""
    text = json.dumps(request["messages"])
    asked = re.search(r"What is (\d+)\+", text)
    right = ("GOOD" in text) == (request["model"] == "m1")
    said = completion(f"\\boxed{{{2 * int(asked[1]) if asked and right else 999}}}")
    return {**said, "usage": {"prompt_tokens": 90, "completion_tokens": 10}}


@pytest.fixture
def play(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, rows in (("c.csv", 8), ("d.csv", 4)):
        lines = "".join(f"q{i},What is {i}+{i}?,{2 * i}\n" for i in range(rows))
        (tmp_path / name).write_text("id,question,answer\n" + lines)
    with StubServer(answer) as server:

        def evaluate(suite, *models, out, words=()):
            (tmp_path / "s.toml").write_text(suite)
            agents = [w for m in models for w in ("--agent", f"openai:{m}@{server.base_url}")]
            assert main(["eval", "s.toml", *(agents or ["--agent", "solver"]), "--out", out, *words]) == 0
            return [row["env"] for row in json.loads((tmp_path / out / "result.json").read_text())["results"]]

        yield evaluate


def test_prompts_are_compared_one_by_one(play, capsys):
    for model in ("m1", "m2"):
        labels = play(PROMPTS, model, out=model)
    assert labels == ["c.csv:math, good", "c.csv:math, bad"]
    capsys.readouterr()
    assert main(["compare", "m1", "m2", "--not-worse"]) == 1
    assert "c.csv:math, good: A is better, by 100.0 points" in capsys.readouterr().out
    a, b = (read_run(name).outcomes for name in ("m1", "m2"))
    found = compare(a, b)
    assert [(row.env, row.tasks, row.a.mean, row.b.mean) for row in (*found.rows, found.overall)] == [
        ("c.csv:math, good", 8, 1, 0),
        ("c.csv:math, bad", 8, 0, 1),
        ("all", 8, 0.5, 0.5),
    ]
    assert found.rows[0].corrected == 2 * found.rows[0].p
    assert [suite.env for suite in suites([a])] == labels
    merge("alone.jsonl", ["m2/episodes.jsonl"])  # nothing beside it has the names
    alone = read_run("alone.jsonl").outcomes
    own = {"c.csv:math(prompt='GOOD {question}')", "c.csv:math(prompt='BAD {question}')"}
    assert {outcome.env for outcome in alone} == own
    assert [row.env for row in compare(a, alone).rows] == labels
    assert {suite.env for suite in suites([a, alone])} == {*labels}


@pytest.mark.parametrize("suite", [PROMPTS, TWO_FILES, TURNS])
@pytest.mark.parametrize("models", [("m1",), ("m1", "m2")])
def test_the_viewer_has_the_rows_of_the_evaluation_with_their_cost(play, tmp_path, suite, models):
    (tmp_path / "prices.toml").write_text("".join(f"[models.{m}]\ninput = 1\noutput = 5\n" for m in models))
    labels = play(suite, *models, out="out", words=("--prices", "prices.toml"))
    for source in open_sources([tmp_path / "out"]):
        rows = source.by_env()
        assert {*rows} == {*labels} == {*source.costs()}
        assert all(source.costs().values())
        assert sum(figures.episodes for figures in rows.values()) == len(source.store)
        for name, figures in rows.items():
            assert source.store.page(count=0, **source.filter_of(name))[1] == figures.episodes
            assert source.title(name).startswith(name)
        assert source.title().startswith("2 environments")
        assert {outcome.env for outcome in read_run(source.path).outcomes} == {*labels}
        source.close()


def test_a_name_that_the_evaluation_gave_stays_beside_another_prompt(play):
    one = '[[environments]]\ndata = "c.csv"\nprompt = "{} {{question}}"\n'
    for prompt in ("GOOD", "BAD"):
        assert play(one.format(prompt), "m1", out="out") == ["c.csv:math"]
    with EpisodeStore("out/episodes.jsonl", read_only=True) as store:
        assert {*name_environments(store).values()} == {"c.csv:math", "c.csv:math(prompt='GOOD {question}')"}
    assert {outcome.env for outcome in read_run("out").outcomes} == {"c.csv:math"}  # of the last evaluation


def episode(job, kwargs, wrappers=(), spec="test:X"):
    stop = StopReason.FAILED
    task = TaskRef(spec, kwargs, tuple(map(WrapperRef, wrappers)), 1)
    turns, ends = [Turn("agent", "a", "b", reward=0.0)], {"agent": SeatEnd(stop, terminated=True)}
    return Episode(
        task, RunInfo("run"), turns=turns, stop=stop, ends=ends, verdict=Verdict.SCORED, job=str(job)
    )


@pytest.mark.parametrize(
    ("spec", "kwargs", "names"),
    [
        ("test:X", [{"n": 3}], ["test:X+python"]),
        ("test:X", [{"n": 3, "m": 1}, {"n": 4, "m": 1}], ["test:X(n=3)+python", "test:X(n=4)+python"]),
        ("test:X", [{"n": 3}, {}], ["test:X(n=3)+python", "test:X+python"]),
        ("test:X", [{"t": "a" * 90}, {"t": "a" * 91}], None),
        (
            "data:math",
            [{"data": "c.csv", "digest": "1"}, {"data": "c.csv", "digest": "2"}],
            ["c.csv:math+python"],
        ),
        (GUESS, [{}, {"max_turns": 9}], [f"{GUESS}(max_turns=9)+python", f"{GUESS}+python"]),
    ],
)
def test_keywords_are_named_where_environments_differ_in_them(tmp_path, spec, kwargs, names):
    with EpisodeStore(tmp_path / "e.jsonl") as store:
        for number, each in enumerate(kwargs):
            store.append(episode(number, each, ["python_tool"], spec))
        found = name_environments(store)
    assert {*found.values()} == {*names} if names else len({*found.values()}) == 2


def test_the_key_of_an_environment_is_that_of_its_line(tmp_path):
    made = episode(1, {"n": (1, 2), "t": "\ud800", "f": float("nan"), "big": 2**80})
    with EpisodeStore(tmp_path / "e.jsonl") as store:
        store.append(made)
        (entry,) = store.select()
        assert entry.env == env_key(made.task) == env_key(decode(store.line(0)).task)
        assert store.select() == store.page(env=(entry.env, "other"))[0]
        assert store.page(env=())[0] == []


def test_labels_are_made_of_titles_or_of_ids_with_keywords():
    assert Entry(GUESS).label == GUESS
    assert Entry(GUESS, kwargs={"max_turns": 1}, tools=("python",)).label == f"{GUESS}(max_turns=1)+python"
    assert Entry(GUESS, kwargs={"max_turns": 1}, title="mine").label == "mine"
