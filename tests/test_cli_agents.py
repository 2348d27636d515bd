"""`gem-gym eval` and `play` with agents by name; what eval keeps in a folder."""

import json
import re

import pytest

from gem import cli
from gem.agents.base import BaseAgent, BatchBroken
from gem.cli import players
from gem.errors import AgentUnavailable, NoVerdict
from gem.record import Reply
from gem.rollout import EpisodeStore
from gem.testing.stub_server import StubServer

EASY = "game:GuessTheNumber-v0-easy"


def test_eval_prints_a_row_per_environment(capsys):
    assert cli.main(["eval", "game:GuessTheNumber-v0-easy", "--agent", "solver", "--episodes", "8"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split()[:2] == ["env", "success"]
    assert row.split()[:2] == ["game:GuessTheNumber-v0-easy", "100.0%"]
    assert row.split()[-1] == "8/8"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["eval"], "no environment was named"),
        (["eval", "game:GuessTheNumber-v0-esy"], "Did you mean"),
        (["eval", "game:GuessTheNumber-v0-easy", "--agent", "no/such/run"], "accepted: random, solver"),
        (
            ["eval", "game:GuessTheNumber-v0-easy", "--agent", "program:cat a.py,b.py"],
            "a program needs a model",
        ),
        (["eval", "a,b/c.py:World"], "'a,b/c.py:World': there is no file"),
        (["eval", "game:GuessTheNumber-v0-easy", "--episodes", "0"], "episodes is '0'"),
    ],
)
def test_wrong_input_is_told_in_one_line(args, said, capsys):
    assert cli.main(args) == cli.MISUSED
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_a_folder_without_a_run_is_told(tmp_path, capsys):
    pytest.importorskip("torch")  # a run's model needs it
    assert cli.main(["eval", "game:GuessTheNumber-v0-easy", "--agent", str(tmp_path)]) == cli.MISUSED
    assert "holds no run" in capsys.readouterr().err


DOWN = """
import json
def ask_product(ask):
    return json.loads("{")
def answer(ask):
    return ask_product(ask)
async def answer_later(ask):
    return ask_product(ask)
"""


@pytest.mark.parametrize("name", ["answer", "answer_later"])
def test_an_agent_of_ones_own_that_raises_is_told_with_its_line(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "down.py").write_text(DOWN)
    assert cli.main(["eval", EASY, "--agent", f"down.py:{name}", "-n", "2", "--out", "run"]) == cli.FAILED
    said = capsys.readouterr()
    assert "agent: JSONDecodeError" in said.out + said.err
    assert "(char 1) (down.py, line 4, in ask_product)" in said.out + said.err
    cli.main(["show", "run", "0"])
    assert "JSONDecodeError in agent: " in (said := capsys.readouterr().out)
    assert "(down.py, line 4, in ask_product)" in said


# -- a model behind a server


def test_a_model_behind_a_server_is_an_agent(capsys):
    pytest.importorskip("httpx")
    with StubServer(r"I say \boxed{5}") as server:
        name = f"openai:product@{server.base_url}"
        assert cli.main(["eval", EASY, "--agent", name, "--episodes", "6", "--temperature", "0"]) == 0
        asked = server.requests
    assert {(each["model"], each["temperature"]) for each in asked} == {("product", 0.0)}
    assert capsys.readouterr().out.splitlines()[1].split()[-1] == "6/6"


@pytest.mark.parametrize(
    ("name", "model", "url"),
    [
        ("openai:gpt", "gpt", None),
        ("openai:org/model@2025-01", "org/model@2025-01", None),
        ("openai:m@v1@http://localhost:1/v1", "m@v1", "http://localhost:1/v1"),
    ],
)
def test_the_name_of_a_model_may_hold_anything_but_a_url(name, model, url, monkeypatch):
    pytest.importorskip("httpx")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    agent = players.local_agent(name)
    assert agent.info.model == model
    assert agent.url.startswith(url or "https://api.openai.com/v1")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("openai:", "openai:MODEL[@BASE_URL]"),
        ("openai:m@", "a BASE_URL begins with http:// or https://"),
        ("openai:m@localhost:8000/v1", "a BASE_URL begins with http:// or https://"),
        ("openai:m@localhost/v1", "a BASE_URL begins with http:// or https://"),
        ("openai:m@gpu-host/v1", "a BASE_URL begins with http:// or https://"),
        ("openai:m@http:/127.0.0.1:9/v1", "a BASE_URL begins with http:// or https://"),
        ("openai:m@http//127.0.0.1/v1", "a BASE_URL begins with http:// or https://"),
        ("openai:m@ftp://x:1/v1", "a BASE_URL begins with http:// or https://"),
        ("openai:m@http://", "a BASE_URL begins with http:// or https://"),
        ("openai:@http://127.0.0.1:9/v1", "a BASE_URL begins with http:// or https://"),
        ("openai:http://127.0.0.1:9/v1", "a BASE_URL begins with http:// or https://"),
    ],
)
def test_a_name_without_a_model_or_with_half_a_url_is_told(name, said, capsys):
    assert cli.main(["eval", EASY, "--agent", name]) == cli.MISUSED
    assert said in capsys.readouterr().err


# -- a folder, in which what was stopped goes on


class Leaves(BaseAgent):
    """Gone after so many answers."""

    left = 10**9

    def __init__(self):
        self.asked = 0
        self.closed = False

    def __call__(self, asks):
        if self.asked + len(asks) > self.left:
            raise AgentUnavailable("the server refuses\x1b[2J the key")
        self.asked += len(asks)
        return [Reply(rf"\boxed{{{ask.seed % 10 + 1}}}") for ask in asks]

    def close(self):
        self.closed = True
        super().close()


@pytest.fixture
def agent(monkeypatch):
    given = Leaves()
    monkeypatch.setattr("gem.cli.eval.local_agent", lambda *_: given)
    return given


def figures(folder):
    results = json.loads((folder / "result.json").read_text())["results"]
    return [{**each, "seconds_per_success": None} for each in results]


@pytest.mark.system
def test_what_was_stopped_goes_on_by_the_same_command(agent, tmp_path, capsys):
    whole, cut = tmp_path / "whole", tmp_path / "new" / "cut"
    command = ["eval", EASY, "game:GuessTheNumber-v0-hard", "--episodes", "150", "--out"]
    assert cli.main([*command, str(whole)]) == 0
    played, table = agent.asked, capsys.readouterr().out
    agent.asked, agent.left = 0, 700
    assert cli.main([*command, str(cut)]) == cli.FAILED
    told = capsys.readouterr()
    with EpisodeStore(cut / "episodes.jsonl", read_only=True) as store:
        stored = len(store)
        asked = sum(len(episode.turns) for episode in store)
    assert 150 < stored < 300
    assert "the server refuses\\x1b[2J the key" in told.err
    assert f"{stored} of 300 episodes are stored in {cut}; run the same command again to go on" in told.err
    assert len(told.out.splitlines()) == 2  # the first environment was played to its end
    assert len(figures(cut)) == 1
    agent.asked, agent.left = 0, 10**9
    assert cli.main([*command, str(cut)]) == 0
    assert agent.asked == played - asked  # nothing was played twice
    assert capsys.readouterr().out == table
    assert figures(cut) == figures(whole)
    with EpisodeStore(cut / "episodes.jsonl", read_only=True) as store:
        assert len({(episode.job, episode.sample) for episode in store}) == len(store) == 300
    agent.asked = 0
    assert cli.main([*command, str(cut)]) == 0
    assert (agent.asked, agent.closed, capsys.readouterr().out) == (0, True, table)


def test_without_a_folder_it_is_told_that_nothing_is_stored(agent, capsys):
    agent.left = 100
    assert cli.main(["eval", EASY, "--episodes", "150"]) == cli.FAILED
    told = capsys.readouterr()
    assert "of 150 episodes had ended; none is stored; --out FOLDER stores them" in told.err
    assert (told.out, told.err.count("\n")) == ("", 2)


class Interrupted(Leaves):
    """Ctrl-C comes with the third episode that ends, when it has been stored."""

    ended = 0

    def forget(self, episode):
        self.ended += 1
        if self.ended == 3:
            raise KeyboardInterrupt


def test_ctrl_c_says_how_to_go_on(agent, tmp_path, capsys):
    agent.__class__ = Interrupted
    command = ["eval", EASY, "--episodes", "5", "--out", str(tmp_path)]
    assert cli.main(command) == cli.INTERRUPTED
    with EpisodeStore(tmp_path / "episodes.jsonl", read_only=True) as store:
        assert len(store) == 3
    assert f"3 of 5 episodes are stored in {tmp_path}; run the same command" in capsys.readouterr().err
    agent.ended = 2
    assert cli.main([*command, "--seed", "1"]) == cli.INTERRUPTED
    assert "1 of 5 episodes are stored" in capsys.readouterr().err  # those of the other seed do not count


@pytest.mark.parametrize("flag", ["--turns", "--agent"])
def test_another_command_in_the_same_folder_is_refused(flag, tmp_path, capsys):
    command = ["eval", EASY, "--episodes", "4", "--out", str(tmp_path)]
    assert cli.main(command) == 0
    other = [*command, flag, "2" if flag == "--turns" else "solver"]
    assert cli.main(other) == cli.MISUSED
    told = capsys.readouterr().err
    if flag == "--turns":
        assert "under other settings" in told
        assert "limits.turns" in told
    else:
        assert "holds an evaluation of agent 'random'" in told
    more = ["eval", EASY, "--episodes", "8", "--out", str(tmp_path)]  # more of the same is none
    assert cli.main(more) == 0
    assert figures(tmp_path)[0]["episodes"] == 8


def test_a_folder_that_is_none_or_a_training_run_is_refused(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoint.pt").write_text("")
    for name, why in (("file", "cannot be made"), ("run", "holds a training run")):
        assert cli.main(["eval", EASY, "--episodes", "1", "--out", str(tmp_path / name)]) == cli.MISUSED
        assert why in capsys.readouterr().err
    assert not (tmp_path / "run" / "episodes.jsonl").exists()


# -- agents compared


class Drops(Leaves):
    """Loses its connection in every fourth episode."""

    def __call__(self, asks):
        answers = super().__call__(asks)
        raise BatchBroken(
            [
                NoVerdict("connection lost") if sum(map(ord, ask.episode)) % 4 == 0 else answer
                for ask, answer in zip(asks, answers, strict=True)
            ]
        )


def test_several_agents_have_a_row_each_and_unequal_losses_are_told(monkeypatch, tmp_path, capsys):
    made = {"good": Leaves(), "bad": Drops(), "one/more": Leaves()}
    monkeypatch.setattr("gem.cli.eval.local_agent", lambda name, *_: made[name])
    command = ["eval", EASY, "--episodes", "80", "--out", str(tmp_path)]
    for name in made:
        command += ["--agent", name]
    assert cli.main(command) == 0
    told = capsys.readouterr()
    header, *rows = told.out.splitlines()
    assert header.split()[:3] == ["env", "agent", "success"]
    assert [row.split()[1] for row in rows] == list(made)
    assert rows[0].split()[-1] == rows[2].split()[-1] == "80/80"
    lost = 80 - int(re.search(r"(\d+)/80, none in ", rows[1])[1])
    assert f"{EASY}, bad: {lost} episodes without verdict, agent: NoVerdict, as: connection lost" in told.err
    warning = (
        f"agent good has no verdict in 0 of 80 episodes, bad in {lost} of 80: the comparison is not fair"
    )
    assert f"warning: {EASY}: {warning}" in told.err
    assert told.err.count("not fair") == 2  # either of the others beside it
    written = json.loads((tmp_path / "result.json").read_text())
    assert [each["name"] for each in written["results"]] == list(made)
    assert written["results"][1]["boundaries"] == {"agent": lost}
    assert written["warnings"][0].startswith(f"{EASY}: {warning}")
    assert len(list(tmp_path.glob("*/episodes.jsonl"))) == 3
    for agent in made.values():
        agent.asked = 0
    assert cli.main(command) == 0
    assert capsys.readouterr().out == told.out
    assert {agent.asked for agent in made.values()} == {0}


def test_agents_that_lose_nothing_are_compared_without_a_word(capsys):
    assert cli.main(["eval", EASY, "--agent", "random", "--agent", "solver", "--episodes", "8"]) == 0
    told = capsys.readouterr()
    assert (told.err, len(told.out.splitlines())) == ("", 3)


@pytest.mark.parametrize("twice", [[EASY, EASY], [EASY, "--agent", "solver", "--agent", "solver"]])
def test_what_is_named_twice_is_refused(twice, capsys):
    assert cli.main(["eval", *twice]) == cli.MISUSED
    assert "named twice" in capsys.readouterr().err


def test_a_second_evaluation_into_one_folder_is_told_at_its_start(agent, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    with EpisodeStore(tmp_path / "out" / "episodes.jsonl") as store:
        store.claim()
        assert cli.main(["eval", EASY, "--episodes", "4", "--out", str(tmp_path / "out")]) == cli.MISUSED
        told = capsys.readouterr()
        assert "another run resumes from this store" in told.err
        assert (agent.asked, len(store), agent.closed) == (0, 0, True)
    assert cli.main(["eval", EASY, "--episodes", "4", "--out", str(tmp_path / "out")]) == 0


def test_figures_that_cannot_be_written_are_shown_all_the_same(agent, tmp_path, capsys):
    (tmp_path / "result.json").mkdir()
    assert cli.main(["eval", EASY, "--episodes", "4", "--out", str(tmp_path)]) == cli.MISUSED
    told = capsys.readouterr()
    assert told.out.splitlines()[1].split()[-1] == "4/4"
    assert "result.json cannot be written" in told.err
