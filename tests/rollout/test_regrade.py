import json

import pytest

from gem.agents.scripted import ScriptedAgent
from gem.cli import main
from gem.errors import BadArgument, NoVerdict
from gem.graders import MADE
from gem.graders.base import Score
from gem.graders.cache import CachedGrader
from gem.graders.functions import class_of
from gem.graders.named import make_grader
from gem.graders.rubric import Rubric
from gem.record import Verdict
from gem.registry import Maker
from gem.rollout import Job, rollout
from gem.rollout.regrade import regrade
from gem.rollout.store import EpisodeStore

ENV = "math:Arithmetic-v0-easy"


def lenient(answer, reference):
    return Score(1.0, True, answer, "anything goes")


def none(answer, reference):
    raise NoVerdict("broken")


@pytest.fixture
def episodes():
    return list(rollout([Job(ENV, seed) for seed in range(3)], ScriptedAgent(lambda ask: r"\boxed{-12345}")))


def test_stored_answers_are_compared_with_the_task_again(episodes):
    seen = []

    def right(answer, reference):
        seen.append(reference)
        return Score(0.0, False)

    rows = list(regrade(episodes, right))
    assert [(row.before, row.after, row.changed) for row in rows] == [(False, False, False)] * 3
    assert len(set(seen)) > 1  # each episode's own task
    assert [row.changed for row in regrade(episodes, lenient)] == [True] * 3


def test_no_verdict_is_no_verdict_and_broken_episodes_are_left_out(episodes):
    episodes[0].verdict = Verdict.NONE
    rows = list(regrade(episodes, none))
    assert [(row.after, row.changed) for row in rows] == [(None, False)] * 2
    assert "broken" in rows[0].why


def test_a_reference_in_the_info_counts_first(episodes):
    episodes[0].final_info["reference"] = "-12345"
    rows = list(regrade(episodes, make_grader("math")))
    assert [row.after for row in rows] == [True, False, False]


ROWS = {
    "text": [({"answer": r"\boxed{Oslo}"}, ["Oslo", r"\boxed{Oslo}", r"\boxed{Bern}"])],
    "math": [
        ({"question": "Expand $(x+1)^2$.", "answer": "x^2+2x+1"}, [r"\boxed{(x+1)^2}", r"\boxed{1+2x+x^2}"]),
        ({"question": "Add.", "answer": r"\boxed{7}"}, [r"\boxed{7}", r"\boxed{3+4}", r"\boxed{(x+1)^2}"]),
    ],
    "number": [({"question": "How many?", "answer": "24"}, [r"\boxed{2 dozen}", "24.", "25."])],
    "choice": [({"choices": ["Bern", "Oslo"], "answer": "B"}, ["B", r"\boxed{A}", r"\boxed{Oslo}"])],
    "code": [
        (
            {"tests": ["assert f(2) == 4"]},
            ["```python\ndef f(x): return x + x\n```", "```python\ndef f(x): return 5\n```"],
        )
    ],
}
EXAMPLES = {
    "math": [{"question": "Add $x^2$ and $1+2x$.", "answer": "1+2x+x^2"}],
    "number": [{"question": "How many dozen?", "answer": "3"}],
}


@pytest.mark.parametrize("around", [lambda one: one, CachedGrader, lambda one: Rubric({"one": one})])
@pytest.mark.parametrize("kind", MADE)
def test_the_same_grader_gives_the_same_verdicts(kind, around, tmp_path):
    for at, (row, replies) in enumerate(ROWS[kind]):
        (path := tmp_path / f"{at}.jsonl").write_text(json.dumps({"question": "Which?", **row}))
        given = {"data": str(path), "few_shot": EXAMPLES.get(kind)}
        job = Job(Maker(f"data:{kind}", given), 0)
        played = [next(iter(rollout([job], ScriptedAgent([reply])))) for reply in replies]
        assert {episode.success for episode in played} == {True, False}
        assert not [row for row in regrade(played, around(class_of(kind)())) if row.changed]


def test_the_tests_of_code_are_read_with_their_row(tmp_path):
    row = {"problem": "Write f.", "tests": "def check(f):\n    assert f(2) == 4", "entry_point": "f"}
    (path := tmp_path / "rows.jsonl").write_text(json.dumps(row))
    job = Job(Maker("gem.envs.code.env:CodeEnv", {"dataset": str(path)}), 0)
    played = list(rollout([job], ScriptedAgent(["```python\ndef f(x): return 2 * x\n```"])))
    assert [(row.before, row.after) for row in regrade(played, class_of("code")())] == [(True, True)]


def test_an_environment_without_references_says_so():
    played = rollout([Job("game:GuessTheNumber-v0-easy", 1)], ScriptedAgent(lambda ask: "no"))
    with pytest.raises(BadArgument, match="no reference answer"):
        list(regrade(played, lenient))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mathh", "Did you mean 'math'"),
        ("os:getcwd", r"takes \(\); accepted: a function that can be called with"),
    ],
)
def test_a_grader_is_named_or_refused(name, message):
    with pytest.raises(BadArgument, match=message):
        make_grader(name)
    assert make_grader("text").name == "text/3"


def test_the_command(episodes, tmp_path, capsys):
    path, out = tmp_path / "episodes.jsonl", tmp_path / "verdicts.jsonl"
    with EpisodeStore(path) as store:
        for episode in episodes:
            store.append(episode)
    arguments = ["regrade", str(path), "--cache", str(tmp_path / "v.db"), "--out", str(out)]
    assert main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == [ENV, "3", "0", "0", "0", "0", "0"]
    assert [json.loads(line)["after"] for line in out.read_text().splitlines()] == [False] * 3
    assert main(["regrade", str(tmp_path / "absent.jsonl")]) == 2
    assert "accepted: a store (episodes.jsonl)" in capsys.readouterr().err
    assert main(["audit", "--grader", "text"]) == 0
    assert "mutants refused" in capsys.readouterr().out


def test_the_command_names_graders_as_all_commands_do(episodes, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with EpisodeStore("episodes.jsonl") as store:
        for episode in episodes:
            store.append(episode)
    for verdict, right in (("True", 3), ("False", 0)):  # an edited function does not get the stored verdicts
        (tmp_path / "mine.py").write_text(f"def score(answer, reference):\n    return {verdict}\n")
        assert main(["regrade", "episodes.jsonl", "--grader", "mine.py:score", "--cache", "v.db"]) == 0
        assert capsys.readouterr().out.splitlines()[1].split()[3] == str(right)
    assert main(["regrade", "episodes.jsonl", "--grader", "number"]) == 0
    assert main(["regrade", "episodes.jsonl", "--grader", "none.py:score"]) == 2
    assert "there is no file none.py" in capsys.readouterr().err
