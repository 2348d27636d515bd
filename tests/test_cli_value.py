import re

import pytest
from fork_worlds import Walk

from gem.agents.random import RandomAgent
from gem.cli import main
from gem.cli.terms import FAILED, MISUSED
from gem.rollout import EpisodeStore, Job, rollout

HANOI = "game:TowerofHanoi-v0-easy"


@pytest.fixture
def stored(tmp_path):
    path = tmp_path / "episodes.jsonl"
    with EpisodeStore(path) as store:
        for env in (HANOI, "multi:MatrixGame-v0"):
            rollout([Job(env, 1)], RandomAgent(), store=store)
    return path


def test_the_value_of_each_turn_is_shown(stored, capsys):
    assert main(["value", str(stored), "0", "--agent", "random", "-n", "8"]) == 0
    head, *rows, end, decided = capsys.readouterr().out.splitlines()
    assert head.split("  ")[0] == "turn"
    assert len(rows) == 10
    figure = r"[-+]?\d\.\d{3}"
    interval = rf"{figure} \[{figure}, {figure}\]"
    for number, row in enumerate(rows, 1):
        assert re.fullmatch(rf"{number} +{interval} +{interval} +\\boxed\{{[ABC] [ABC]\}}", row)
    assert re.fullmatch(rf"after the last turn: {figure}; 8 episodes of random from each place", end)
    assert decided.startswith(("turn ", "no turn surely changed"))


def test_the_values_are_kept_where_the_viewer_finds_them(stored, capsys):
    pytest.importorskip("jinja2", reason="needs jinja2: pip install 'gem-gym[viewer]'")
    from gem.viewer.values import ValuesFile

    assert main(["value", str(stored), "0", "--agent", "solver", "-n", "4", "--keep"]) == 0
    shown = capsys.readouterr().out
    with EpisodeStore(stored, read_only=True) as store:
        values = ValuesFile(stored).of(store[0])
    assert (values.agent, values.samples, len(values.turns)) == ("solver", 4, 10)
    assert f"{values.turns[0].before.mean:.3f}" in shown


@pytest.mark.system
def test_the_same_seed_gives_the_same_values_on_every_host(stored, capsys):
    shown = []
    for more in (["--host", "serial"], ["--host", "process"], ["--seed", "1"]):
        assert main(["value", str(stored), "0", "--agent", "random", "-n", "4", *more]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != shown[2]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["1", "--agent", "random"], "has several seats"),
        (["7", "--agent", "random"], "there is no episode 7"),
        (["all", "--agent", "random"], "one id or number"),
        (["0", "--agent", "rndom"], "Did you mean 'random'?"),
        (["0", "--agent", "random", "-n", "1"], "samples is 1"),
        (["0", "--agent", "random", "--seed", "-1"], "-1"),
        (["0", "--agent", "random", "--max-turns", "0"], "turns is 0"),
    ],
)
def test_what_cannot_be_valued_is_told(words, complaint, stored, capsys):
    assert main(["value", str(stored), *words]) == MISUSED
    assert complaint in capsys.readouterr().err


def test_an_episode_without_an_answered_turn_has_nothing_to_value(tmp_path, capsys):
    path = tmp_path / "episodes.jsonl"
    (episode,) = rollout([Job(HANOI, 1)], RandomAgent())
    episode.turns.clear()
    with EpisodeStore(path) as store:
        store.append(episode)
    assert main(["value", str(path), "0", "--agent", "random"]) == MISUSED
    told = f"BadArgument: episode {episode.id!r} has no turn that the agent answered, so none can be valued; "
    assert capsys.readouterr().err == f"{told}accepted: an episode of 1 turn or more.\n"


def test_code_that_a_record_names_is_not_made_unasked(tmp_path, capsys):
    path = tmp_path / "episodes.jsonl"
    with EpisodeStore(path) as store:
        (episode,) = rollout([Job(Walk, 1)], RandomAgent(), store=store)
    assert episode.scored
    words = ["value", str(path), "0", "--agent", "random", "-n", "4"]
    assert main(words) == MISUSED
    assert "no registered environment" in capsys.readouterr().err
    assert main([*words, "--trust"]) == 0


def test_a_record_that_does_not_come_out_again_is_refused(tmp_path, capsys):
    path = tmp_path / "episodes.jsonl"
    (episode,) = rollout([Job(HANOI, 1)], RandomAgent())
    episode.turns[2].observation = "Other pegs."
    with EpisodeStore(path) as store:
        store.append(episode)
    assert main(["value", str(path), "0", "--agent", "random"]) == MISUSED
    assert "does not replay as recorded" in capsys.readouterr().err


def test_without_any_verdict_there_is_no_value(stored, capsys, monkeypatch):
    from gem.agents.scripted import ScriptedAgent

    monkeypatch.setattr("gem.cli.value.local_agent", lambda name: ScriptedAgent(lambda ask: 1 / 0))
    assert main(["value", str(stored), "0", "--agent", "random", "-n", "2"]) == FAILED
    shown = capsys.readouterr().out
    assert "20 of them have no verdict and were left out" in shown
    assert shown.count("none") == 20
