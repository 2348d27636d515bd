"""Demonstrations: expert episodes in a store."""

import pytest

from gem import cli
from gem.errors import BadArgument, NoSolver, NoVerdict, UnknownEnv
from gem.registry import ENV_REGISTRY, EnvSpec, register
from gem.rollout import EpisodeStore
from gem.rollout.demos import write_demos
from gem.testing.doubles import EchoEnv


def actions(path):
    with EpisodeStore(path, read_only=True) as store:
        return [(episode.seed, [turn.action for turn in episode.turns]) for episode in store]


def test_the_solvers_episodes_are_stored_and_follow_from_the_seed(tmp_path):
    done = write_demos("game:TowerofHanoi-v0-easy", tmp_path / "one", episodes=12, seed=3)
    assert (done.played, done.kept, done.turns, done.reward, done.broken) == (12, 12, 84, 1.0, 0)
    with EpisodeStore(tmp_path / "one", read_only=True) as store:
        assert all(episode.success and episode.reward() == 1.0 for episode in store)
        assert [episode.group for episode in store] == [str(i) for i in range(12)]
    write_demos("game:TowerofHanoi-v0-easy", tmp_path / "again", episodes=12, seed=3)
    write_demos("game:TowerofHanoi-v0-easy", tmp_path / "other", episodes=12, seed=4)
    assert actions(tmp_path / "one") == actions(tmp_path / "again") != actions(tmp_path / "other")


def test_lost_episodes_are_replaced_or_kept(tmp_path):
    env_id, few = "game:Minesweeper-v0-easy", 20
    won = write_demos(env_id, tmp_path / "won", episodes=few)
    assert won.kept == few < won.played
    assert won.reward == 1.0
    every = write_demos(env_id, tmp_path / "every", episodes=few, lost=True)
    assert every.kept == every.played == few
    assert every.reward < 1.0


def test_demonstrations_are_added_to_a_store(tmp_path):
    for seed in (0, 1):
        write_demos("game:GuessTheNumber-v0-easy", tmp_path / "store", episodes=3, seed=seed)
    assert len({seed for seed, _ in actions(tmp_path / "store")}) == 6


def test_what_a_store_holds_is_not_played_again(tmp_path, capsys):
    env_id = "game:Minesweeper-v0-easy"  # its solver loses some
    write_demos(env_id, tmp_path / "once", episodes=20)
    first = write_demos(env_id, tmp_path / "twice", episodes=8)
    second = write_demos(env_id, tmp_path / "twice", episodes=20)
    assert (first.stored, first.kept, second.stored, second.kept) == (0, 8, 8, 12)
    assert actions(tmp_path / "twice") == actions(tmp_path / "once")
    write_demos(env_id, tmp_path / "twice", episodes=2, kwargs={"num_mines": 4})
    again = write_demos(env_id, tmp_path / "twice", episodes=2, kwargs={"num_mines": 4})
    assert (again.played, again.stored) == (0, 2)  # the same seeds, but another environment's
    assert len(actions(tmp_path / "twice")) == 22
    assert cli.main(["demos", env_id, "-n", "20", "--out", str(tmp_path / "twice")]) == 0
    said = capsys.readouterr().out
    assert f"already holds 20 episodes of {env_id} with seed 0: not played again" in said
    assert "wrote 0 episodes" in said


def test_ctrl_c_keeps_the_episodes_that_ended_and_the_same_command_goes_on(tmp_path, monkeypatch, capsys):
    class Stopped(EchoEnv):
        stop = True
        begun = 0

        def reset(self, seed=None):
            Stopped.begun += 1
            if self.stop and self.begun == 4:
                raise KeyboardInterrupt
            return super().reset(seed)

        def solve(self):
            return str(self.number)

    monkeypatch.setattr("gem.registry.ENV_REGISTRY", ENV_REGISTRY.copy())
    register(EnvSpec("test:Stopped", Stopped, solver="exact"))
    command = ["demos", "test:Stopped", "-n", "6", "--out", str(tmp_path / "store")]
    assert cli.main(command) == cli.INTERRUPTED
    assert f"3 of 6 episodes are in {tmp_path / 'store'}; the same command" in capsys.readouterr().err
    Stopped.stop = False
    assert cli.main(command) == 0
    assert "already holds 3 episodes" in capsys.readouterr().out
    seeds = [seed for seed, _ in actions(tmp_path / "store")]
    assert len(seeds) == len(set(seeds)) == 6


def test_what_has_no_solver_or_cannot_be_made_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("gem.registry.ENV_REGISTRY", ENV_REGISTRY.copy())
    register(EnvSpec("test:Silent", EchoEnv))
    out = tmp_path / "store"
    with pytest.raises(NoSolver, match="test:Silent has no solver"):
        write_demos("test:Silent", out)
    with pytest.raises(UnknownEnv):
        write_demos("game:Nothing-v0", out)
    with pytest.raises(BadArgument, match="does not take 'colour'"):
        write_demos("game:Sudoku-v0-easy", out, kwargs={"colour": 1})
    with pytest.raises(BadArgument, match="episodes is 0"):
        write_demos("game:Sudoku-v0-easy", out, episodes=0)
    assert not out.exists()


def test_a_solver_that_only_loses_is_told(tmp_path, monkeypatch):
    class Loser(EchoEnv):
        def solve(self):
            return "no"

    monkeypatch.setattr("gem.registry.ENV_REGISTRY", ENV_REGISTRY.copy())
    register(EnvSpec("test:Loser", Loser, solver="exact"))
    with pytest.raises(NoVerdict, match="no episode worth keeping"):
        write_demos("test:Loser", tmp_path / "store", episodes=5)


def test_command_writes_and_reports(tmp_path, capsys):
    out = tmp_path / "store"
    assert cli.main(["demos", "game:GuessTheNumber-v0-easy", "-n", "4", "--out", str(out)]) == 0
    assert "wrote 4 episodes of game:GuessTheNumber-v0-easy" in capsys.readouterr().out
    assert len(actions(out)) == 4
    assert (
        cli.main(["demos", "game:GuessTheNumber-v0-easy", "--out", str(tmp_path / "no" / "such")])
        == cli.MISUSED
    )


def test_a_solver_with_a_tool_calls_it(tmp_path, capsys):
    pytest.importorskip("tantivy")
    path = tmp_path / "demos.jsonl"
    flags = ["qa:Facts-v0-easy", "--out", str(path), "-n", "3"]
    assert cli.main(["demos", *flags, "--tools", "world_search"]) == 0
    assert "6 turns" in capsys.readouterr().out
    with EpisodeStore(path, read_only=True) as store:
        assert all(episode.turns[0].action.startswith("<search>") for episode in store)
    assert cli.main(["demos", *flags]) == 0  # without the tool it is another environment
    assert "3 turns" in capsys.readouterr().out
    assert cli.main(["demos", *flags, "--tools", "serch"]) == 2
    assert "world_search" in capsys.readouterr().err
