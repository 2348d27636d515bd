import csv
import json
import re
import shutil
from pathlib import Path

import pytest

from gem import cli
from gem.rollout.store import EpisodeStore
from gem.testing.stub_server import RawAnswer, StubServer

ROWS = "id,question,answer\n" + "".join(f"r{n},Number {n}?,{n}\n" for n in range(7))


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    """Run commands in an empty folder that holds q.csv."""
    monkeypatch.delenv("GEM_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.csv").write_text(ROWS)


def run(*words):
    return cli.main([str(word) for word in words])


def ids(folder):
    with EpisodeStore(f"{folder}/episodes.jsonl", read_only=True) as store:
        return [episode.initial_info["task"] for episode in store]


def test_a_file_of_ones_own_is_asked_row_by_row_in_order(capsys):
    assert run("eval", "--data", "q.csv", "--grader", "text", "--agent", "solver", "--out", "run") == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[1].split()[0] == "q.csv:text"
    assert told.out.splitlines()[1].split()[-1] == "7/7"
    assert told.err.startswith("q.csv: 7 rows. Question: column 'question'; answer: 'answer'; ids: 'id'.")
    assert ids("run") == [f"r{n}" for n in range(7)]


def test_each_row_has_a_line_with_its_id_and_outcome(capsys, tmp_path):
    (tmp_path / "odd.csv").write_text(
        'id,question,answer\n"a,1",Number?,5\n=2+2,Which?,6\n-1,And?,7\n-x,So?,8\n'
    )
    words = ("eval", "--data", "odd.csv", "--grader", "text", "--out", "run")
    assert run(*words, "--agent", "random", "--agent", "solver", "-k", 2) == 0
    table = list(csv.reader(Path("run/samples.csv").read_text().splitlines()))
    head = ["environment", "agent", "id", "sample", "outcome", "success", "return", "episode"]
    assert table[0] == [*head, "question", "reply", "reference"]
    solved = [row for row in table if row[1] == "solver"]
    assert [row[2:7] for row in solved] == [
        [task, sample, "solved", "True", "1.0"]
        for task in ("a,1", "'=2+2", "-1", "'-x")  # a spreadsheet would run two of the ids
        for sample in ("0", "1")
    ]
    with EpisodeStore("run/solver/episodes.jsonl", read_only=True) as store:
        assert {row[7] for row in solved} == {episode.id for episode in store}
    assert solved[0][8].startswith("Number? ")
    assert solved[0][9:] == ["\\boxed{5}", "5"]
    assert "samples.csv" in Path("run/report.md").read_text()
    before = Path("run/samples.csv").read_bytes()
    assert run("eval", "--out", "run", "--resume") == 0
    assert Path("run/samples.csv").read_bytes() == before
    assert run("eval", "game:GuessTheNumber-v0-easy", "-n", 2, "--out", "game") == 0
    assert not Path("game/samples.csv").exists()


def test_the_same_file_in_another_folder_pairs(capsys, tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    shutil.copy("q.csv", "sub/q.csv")
    assert run("eval", "--data", "q.csv", "--agent", "random", "--out", "a") == 0
    assert run("eval", "--data", "sub/q.csv", "--agent", "solver", "--out", "b") == 0
    capsys.readouterr()
    assert run("compare", "a", "b") == 0
    assert "q.csv:math  7      7 " in capsys.readouterr().out
    monkeypatch.chdir("sub")
    assert run("eval", "--data", "q.csv", "--agent", "solver", "--out", "../b") == 0
    told = capsys.readouterr().err
    assert "q.csv is sub/q.csv in the evaluation in ../b: all of its tasks are asked again" in told
    assert run("eval", "math:Arithmetic-v0-easy", "-n", "2", "--agent", "random", "--out", "../d") == 0
    assert run("eval", "game:Sudoku-v0-easy", "-n", "2", "--agent", "random", "--out", "../d") == 2
    told = capsys.readouterr().err
    assert "choose another --out" in told
    assert "asked again" not in told
    with open("q.csv", "a") as file:
        file.write("more,Another?,1\n")
    assert run("eval", "--data", "q.csv", "--agent", "solver", "--out", "../c") == 0
    assert run("compare", "../a", "../c") == 2


def test_rows_are_named_by_their_ids(capsys):
    for agent in ("random", "solver"):
        assert run("eval", "--data", "q.csv", "--agent", agent, "-k", 2, "--out", agent) == 0
    capsys.readouterr()
    assert run("compare", "solver", "random", "--markdown") == 0
    told = capsys.readouterr().out.splitlines()
    head = next(n for n, line in enumerate(told) if line.startswith("| environment | task | seed |"))
    assert told[head + 2].startswith("| q.csv:math | r")
    assert run("compare", "solver", "random", "--json") == 0
    changes = json.loads(capsys.readouterr().out)["changes"]
    with EpisodeStore("solver/episodes.jsonl", read_only=True) as store:
        assert [each["task"] for each in changes] == [
            store.get(each["a_episode"]).task_id for each in changes
        ]
        third = [episode.id for episode in store if episode.task_id == "r3"]
    assert run("show", "solver", "r3") == 0
    shown = capsys.readouterr()
    assert "Number 3?" in shown.out
    assert f"id: {third[1]}" in shown.out
    assert f"2 episodes are of r3; this is the last, after {third[0]}" in shown.err
    assert run("show", "solver", "r9") == cli.MISUSED
    assert "holds no episode 'r9'" in capsys.readouterr().err
    assert run("export", "solver", "solver.csv") == 0
    rows = list(csv.DictReader(Path("solver.csv").read_text().splitlines()))
    assert [row["task"] for row in rows] == ids("solver")


def test_ids_that_repeat_are_told(capsys, tmp_path):
    (tmp_path / "twice.csv").write_text("id,question,answer\na,One?,1\nb,Two?,2\na,Three?,3\n")
    assert run("eval", "--data", "twice.csv", "--agent", "solver") == 0
    assert "Warning: 1 row has the id of an earlier row, as 'a'." in capsys.readouterr().err
    assert run("eval", "--data", "q.csv", "--agent", "solver") == 0
    assert "Warning" not in capsys.readouterr().err


def test_some_rows_are_each_asked_once_and_all_of_them_go_on(capsys):
    assert run("eval", "--data", "q.csv", "--agent", "solver", "-n", 5, "--out", "run") == 0
    assert len(ids("run")) == len({*ids("run")}) == 5
    assert run("eval", "--out", "run", "--resume", "-n", 6) == 0
    assert len(ids("run")) == len({*ids("run")}) == 6
    capsys.readouterr()
    assert run("eval", "--data", "q.csv", "--agent", "solver", "-n", 50) == 0
    told = capsys.readouterr()
    assert "7/7" in told.out
    assert "it has 7 tasks, and each was played once" in told.out + told.err
    assert run("eval", "--data", "q.csv", "--agent", "solver", "-n", "all", "-k", 2) == 0
    assert "14/14" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--data", "q.csv", "-n", "0"), "episodes is '0'; accepted: 1 or more, or all"),
        (("--data", "q.csv", "-n", "many"), "episodes is 'many'"),
        (("game:Sudoku-v0-easy", "-n", "all"), "it has no data set"),
        (("--grader", "text"), "--grader is for data of your own"),
        (("--data", "q.csv", "--grader", "mth"), "Did you mean 'math'"),
        (("--data", "nowhere.csv"), "there is no file or folder 'nowhere.csv'"),
        (("--data", "no/folder/"), "there is no file or folder 'no/folder/?'"),
        (("--data", "https://example.com/q.csv"), "is an address; download the file"),
        (("--data", "q.txt"), "'q.txt' is a file of a type that is not read"),
        (("--data", "folder"), "the folder .* has no file of data"),
        (("--data", "q.csv", "--grader", "none.toml"), "graders is {}; accepted: one grader or more by name"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(words, said, capsys, tmp_path):
    (tmp_path / "q.txt").write_text(ROWS)
    (tmp_path / "none.toml").touch()
    (tmp_path / "folder").mkdir()
    assert run("eval", *words) == cli.MISUSED
    told = capsys.readouterr()
    assert re.search(said, told.err)
    assert not told.out


def test_columns_of_several_flags_are_merged(capsys, tmp_path):
    (tmp_path / "odd.csv").write_text("Die Frage,Antwort\nCapital of Norway?,Oslo\n")
    asked = "--columns", "question=Die Frage"
    for command in (("eval", "--agent", "solver", "--out", "run"), ("audit",)):
        words = [*command, "--data", "odd.csv", "--grader", "text", *asked]
        assert run(*words) == cli.MISUSED
        assert "Name it: --columns 'question=Die Frage,answer=COLUMN'" in capsys.readouterr().err
        assert run(*words, "--columns", "answer=Antwort") == 0
    assert run("eval", "--out", "run", "--resume") == 0
    assert "Question: column 'Die Frage'; answer: 'Antwort'" in capsys.readouterr().err


def test_bad_rows_are_told_before_the_model_is_asked(capsys, tmp_path):
    (tmp_path / "q.csv").write_text(ROWS + "r7,,7\nr8,Number?,\n")
    with StubServer("\\boxed{1}") as server:
        assert run("eval", "--data", "q.csv", "--agent", f"openai:m@{server.base_url}") == cli.MISUSED
        assert server.requests == []
    told = capsys.readouterr().err
    assert "  line 9: column 'question' is empty\n  line 10: column 'answer' is empty" in told
    assert run("audit", "--data", "q.csv") == cli.FAILED
    assert (
        "  line 9: column 'question' is empty\n  line 10: column 'answer' is empty" in capsys.readouterr().out
    )


def test_the_rows_of_a_file_are_audited_for_any_grader(capsys, tmp_path):
    (tmp_path / "g.py").write_text("def half(answer, reference):\n    return 0.5\n")
    for grader in ("text", "number", "g.py:half", "judge:m@http://127.0.0.1:9/v1"):
        assert run("audit", "--data", "q.csv", "--grader", grader) == 0
        kind = grader if grader.isalpha() else "function" if ":half" in grader else "judge"
        assert capsys.readouterr().out == f"q.csv: all 7 rows can be used by the grader {kind}.\n"
    (tmp_path / "odd.csv").write_text("q,a\nCapital of Norway?,Oslo\n")
    assert run("audit", "--data", "odd.csv", "--grader", "text") == cli.MISUSED
    assert "no column of odd.csv is evidently the question" in capsys.readouterr().err
    assert run("audit", "--data", "odd.csv", "--grader", "text", "--columns", "question=q,answer=a") == 0
    assert "all 1 row can be used" in capsys.readouterr().out
    (tmp_path / "odd.csv").write_text("question,A,B,answer\n?,x,y,B\n")
    assert run("audit", "--data", "odd.csv") == 0  # by the grader that `eval` takes
    assert capsys.readouterr().out == "odd.csv: all 1 row can be used by the grader choice.\n"


@pytest.mark.parametrize(
    ("grader", "fine", "odd"), [("math", "1.234,50", "{"), ("number", "2.5 kg", "1e999")]
)
def test_rows_that_refuse_their_own_answers_are_listed(grader, fine, odd, capsys, tmp_path):
    rows = [{"question": "?", "answer": answer} for answer in (fine, odd, "7")]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert run("audit", "--data", "own.jsonl", "--grader", grader) == cli.FAILED
    told = capsys.readouterr().out
    assert "own.jsonl: 1 of 3 rows refuse their own answers:\n  line 2: its own answer is wrong (" in told
    assert "can be used" not in told


def test_a_changed_file_is_told_and_asked_again(capsys, tmp_path):
    assert run("eval", "--data", "q.csv", "--agent", "solver", "--out", "run") == 0
    (tmp_path / "q.csv").write_text(ROWS + "r7,Number 7?,7\n")
    capsys.readouterr()
    assert run("eval", "--out", "run", "--resume") == 0
    assert "q.csv has changed since the evaluation in run" in capsys.readouterr().err
    assert len(ids("run")) == 7 + 8


def test_a_grader_of_ones_own_comes_from_a_file(capsys, tmp_path):
    (tmp_path / "g.py").write_text("def half(answer, reference, question):\n    return 0.5\n")
    assert run("eval", "--data", "q.csv", "--grader", "g.py:half", "--agent", "solver", "--out", "run") == 0
    row = json.loads((tmp_path / "run/result.json").read_text())["results"][0]
    assert (row["reward"]["mean"], row["success"]["mean"]) == (0.5, 0)
    assert run("replay", "run/episodes.jsonl", "all") == 0  # a function that this user named
    assert run("regrade", "run", "--grader", "g.py:half") == 0
    (tmp_path / "g.py").write_text("def boom(answer, reference):\n    raise ValueError('no key')\n")
    capsys.readouterr()
    assert run("regrade", "run", "--grader", "g.py:boom") == cli.FAILED
    told = "data:function: 7 episodes with no verdict: the grader function:boom raised ValueError: no key"
    assert told in capsys.readouterr().err


def test_regrade_replaces_verdicts_alone(capsys, tmp_path):
    (tmp_path / "odd.py").write_text("def agent(observation):\n    return '\\\\boxed{\\ud800}'\n")
    assert run("eval", "--data", "q.csv", "--agent", "odd.py:agent", "--out", "run") == 0
    store, before = tmp_path / "run/episodes.jsonl", (tmp_path / "run/episodes.jsonl").read_bytes()
    for name in ("run/episodes.jsonl", "run/result.json", "q.csv"):
        assert run("regrade", "run", "--grader", "number", "--out", name) == cli.MISUSED
        assert "holds something else, which would be lost" in capsys.readouterr().err
    assert store.read_bytes() == before
    for _ in range(2):
        assert run("regrade", "run", "--grader", "number", "--out", "verdicts.jsonl") == 0
    rows = [json.loads(line) for line in (tmp_path / "verdicts.jsonl").read_text().splitlines()]
    assert {row["after"] for row in rows} == {False}


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line.replace(b'"', b"'"),
        lambda line: bytes(len(line) - 1) + b"\n",
        lambda line: line[: len(line) // 2] + b"\n",
    ],
)
def test_regrade_skips_damaged_lines(capsys, tmp_path, damage):
    assert run("eval", "--data", "q.csv", "--agent", "solver", "--out", "run") == 0
    store = tmp_path / "run/episodes.jsonl"
    lines = store.read_bytes().splitlines(keepends=True)
    lines[-2] = damage(lines[-2])
    store.write_bytes(b"".join(lines))
    capsys.readouterr()
    assert run("regrade", "run", "--grader", "number") == 0
    assert "1 damaged line was skipped." in capsys.readouterr().err


def test_regrade_counts_episodes_and_not_their_attempts(capsys, tmp_path):
    picky = "def picky(answer, reference):\n    if int(reference) > 3:\n        raise ValueError('no key')\n"
    (tmp_path / "g.py").write_text(picky + "    return 1.0\n")
    assert run("eval", "--data", "q.csv", "--grader", "g.py:picky", "--agent", "solver", "--out", "run") == 0
    with EpisodeStore(tmp_path / "run" / "episodes.jsonl", read_only=True) as store:
        without = sum(not each.scored for each in store)
        lost = len({each.seed for each in store if not each.scored})
        assert without == 2 * lost > 0
    capsys.readouterr()
    assert run("regrade", "run", "--grader", "number") == 0
    assert f"\n{lost} episodes without a verdict or an answer were left out." in capsys.readouterr().out


@pytest.mark.parametrize("command", [("replay", "run", "all"), ("regrade", "run", "--grader", "text")])
def test_data_that_is_elsewhere_is_told(command, capsys, tmp_path, monkeypatch):
    assert run("eval", "--data", "q.csv", "--agent", "solver", "--out", "run") == 0
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    assert run(command[0], "../run", *command[2:]) != 0
    streams = capsys.readouterr()
    assert f"there is no q.csv in the working folder {tmp_path / 'else'}" in streams.out + streams.err


@pytest.mark.system
def test_a_judge_is_asked_for_every_row(capsys, monkeypatch):
    def verdict(body):
        tag = body["messages"][0]["content"].partition("blocks tagged ")[2].partition(",")[0]
        return json.dumps({"tag": tag, "score": 0, "why": "so it is"})

    with StubServer(verdict) as judge, StubServer("a reply") as server:
        grader = f"judge:stub@{judge.base_url}"
        agent = f"openai:m@{server.base_url}"
        assert (
            run("eval", "--data", "q.csv", "--grader", grader, "--agent", agent, "-n", 3, "--out", "run") == 0
        )
        assert len(judge.requests) == 1 + 3  # one plain question comes first
        assert run("eval", "--out", "run", "--resume") == 0
        assert len(judge.requests) == 4  # all is stored: nobody is asked
        assert {body["model"] for body in judge.requests} == {"stub"}
        assert run("regrade", "run/episodes.jsonl", "--grader", "text") == 0  # this user named the judge
        assert "3/3" in capsys.readouterr().out
        monkeypatch.setenv("GEM_CACHE", "another user's")
        monkeypatch.setattr("gem.source_files._NAMES", set())
        assert run("regrade", "run/episodes.jsonl", "--grader", "text") == cli.MISUSED
        told = capsys.readouterr().err
        assert "with your key, to a judge that you did not name here before (--grader judge:MODEL" in told
        assert f"'stub@{judge.base_url}'" in told
        assert "add --trust" in told
        assert run("replay", "run/episodes.jsonl", "all") == cli.FAILED
        assert len(judge.requests) == 4
        assert run("regrade", "run/episodes.jsonl", "--grader", "text", "--trust") == 0
        capsys.readouterr()
    assert run("show", "run/episodes.jsonl", 0) == 0
    shown = capsys.readouterr().out.splitlines()
    assert f"task: {ids('run')[0]}" in shown
    assert "reward 0: so it is" in shown
    assert "failed after 1 turn, return 0" in shown
    assert run("view", "run", "--export", "run.html") == 0
    page = Path("run.html").read_text()
    assert f"<dt>task</dt><dd>{ids('run')[0]}</dd>" in page
    assert "so it is" in page


@pytest.mark.parametrize(
    "words",
    [
        ("eval", "--data", "q.csv", "--agent", "solver", "--out", "run"),
        ("play", "--data", "q.csv", "--agent", "solver"),
        ("regrade", "episodes.jsonl"),
    ],
)
def test_a_judge_that_cannot_answer_is_told_before_anything_is_played(words, capsys):
    EpisodeStore("episodes.jsonl").close()
    with StubServer(RawAnswer.error(401, "no such key")) as judge:
        assert run(*words, "--grader", f"judge:stub@{judge.base_url}") == cli.MISUSED
    told = capsys.readouterr()
    assert f"judge:stub@{judge.base_url} does not answer, so nothing would get a verdict" in told.err
    assert "no such key" in told.err
    assert "Start its server, set its key, or name another judge" in told.err
    assert "turn" not in told.out
    assert not Path("run/episodes.jsonl").exists() or not ids("run")


def test_a_suite_has_data_beside_it(capsys, tmp_path):
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites/d.csv").write_text(ROWS)
    (tmp_path / "suites/s.toml").write_text(
        '[[environments]]\ndata = "d.csv"\ngrader = "number"\nprompt = "{id}: {question}"\nn = 2\n'
        '[[environments]]\ndata = "../q.csv"\ncolumns = {answer = "id"}\n'
    )
    assert run("eval", "suites/s.toml", "--agent", "solver", "--out", "run") == 0
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["d.csv:number", "q.csv:text"]
    assert "suites/d.csv: 7 rows. Question: column 'question'; answer: 'answer'" in told.err
    assert "q.csv: 7 rows. Question: column 'question'; answer: 'id'" in told.err
    assert [line.split()[-1] for line in lines[1:3]] == ["2/2", "7/7"]
    run("compare", "run", "run")
    assert "d.csv:number" in capsys.readouterr().out


def test_a_row_is_played_in_the_terminal(capsys):
    assert run("play", "--data", "q.csv", "--agent", "solver", "--seed", 0) == 0
    assert "Number " in capsys.readouterr().out
    assert run("play") == cli.MISUSED
    assert "--data FILE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--env", "game:Sudoku-v0-easy"), "env"),
        (("--env=game:Sudoku-v0-easy",), "env"),
        (("--environments", "game:Sudoku-v0-easy"), "environments"),
        (("--curriculum", "game:Sudoku-v0-easy", "game:GuessTheNumber-v0-easy"), "curriculum"),
    ],
)
def test_data_beside_named_environments_is_refused_in_training(capsys, words, named):
    assert run("train", "--data", "q.csv", *words, "--print-config") == cli.MISUSED
    assert f"data and {named} both say what is played; leave one of them out." in capsys.readouterr().err


@pytest.mark.slow
def test_a_model_is_trained_on_data_of_ones_own(capsys, tmp_path):
    pytest.importorskip("torch")
    words = ("train", "--data", "q.csv", "--grader", "number", "--out", "run", "--episodes", 16, "--batch", 8)
    words += ("--minibatch", 8, "--warmup-steps", 2, "--eval-episodes", 8, "--watch", 0)
    assert run(*words) == 0
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["env"] == "data:number"
    assert config["env_kwargs"]["data"] == "q.csv"


PROMPTS = """
[[environments]]
data = "q.csv"
grader = "text"
n = 3

[[environments.prompts]]
name = "plain"
prompt = "{question}"

[[environments.prompts]]
name = "brief"
prompt = "Briefly: {question}"
"""


def test_prompts_and_models_make_a_matrix(capsys, tmp_path, monkeypatch):
    """One model answers each prompt, the other only the brief one."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    def answer(body):
        told = body["messages"][-1]["content"]
        knows = body["model"] == "good" or told.startswith("Briefly")
        return re.search(r"Number (\d)", told)[1] if knows else "none"

    with StubServer(answer) as server:
        agents = [f"openai:{name}@{server.base_url}" for name in ("good", "fair")]
        (tmp_path / "prompts.toml").write_text(f"about = 'x'\n[agent]\nnames = {agents}\n{PROMPTS}")
        assert run("eval", "prompts.toml", "--out", "runs") == 0
        asked = [body["messages"][-1]["content"] for body in server.requests]
    assert len(asked) == 12
    assert sum(each.startswith("Briefly: Number") for each in asked) == 6
    lines = [re.split(r"\s{2,}", line) for line in capsys.readouterr().out.splitlines()]
    at = lines.index(["success", *agents])
    shown = {row[0]: [cell.partition("%")[0] for cell in row[1:]] for row in lines[at + 1 : at + 4]}
    assert shown == {
        "q.csv:text, plain": ["100.0", "0.0"],
        "q.csv:text, brief": ["100.0", "100.0"],
        "overall": ["100.0", "50.0"],
    }
    assert all("(" in cell for row in lines[at + 1 : at + 4] for cell in row[1:])
    report = (tmp_path / "runs" / "report.md").read_text()
    assert report.count("| q.csv:text, brief |") == 3
    assert "| q.csv:text, plain | 100.0% (" in report


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('data = "q.csv"', 'id = "game:Wordle-v0"', "prompts go with data, and without prompt"),
        ("n = 3", 'prompt = "{question}"', "prompts go with data, and without prompt"),
        ('name = "plain"\n', "", "needs a name and a prompt"),
        ('name = "plain"', 'name = "brief"', "q.csv:text, brief is named twice"),
        ('name = "plain"', 'title = "plain"\nname = "plain"', "has 'title'"),
    ],
)
def test_prompts_that_do_not_fit_are_refused(old, new, why, capsys, tmp_path):
    (tmp_path / "prompts.toml").write_text(PROMPTS.replace(old, new))
    assert run("eval", "prompts.toml") == cli.MISUSED
    assert why in capsys.readouterr().err
