"""TextWorld's games through gem, against the package's own runner."""

import pickle
import re
import tempfile
from pathlib import Path

import pytest

import gem
from gem.errors import BadArgument, NoSolver
from gem.registry import FAMILIES

if not FAMILIES["textworld"].is_here():
    pytest.skip("needs a world: gem-gym worlds --fetch textworld", allow_module_level=True)

from gem.envs.bridges import textworld as bridge

pytestmark = pytest.mark.system
QUICK = "textworld:coin_collector"


def squeeze(text):
    """Return a text of the package without its prompt, status line and blank lines."""
    lines = text.split("\n>")[0].split("Would you like to RESTART")[0].splitlines()
    return [line.rstrip() for line in lines if line.strip()]


@pytest.mark.parametrize("name", bridge.TEXTWORLD_SETTINGS)
def test_the_walkthrough_says_and_scores_what_the_package_does(name):
    import textworld

    env = gem.make(f"textworld:{name}")
    obs = env.reset(0)[0]
    game = env._game
    infos = textworld.EnvInfos(won=True, max_score=True)
    with game.files() as path:
        theirs = textworld.start(path, infos)
        state = theirs.reset()
    said = [line.rstrip() for line in obs.splitlines() if line.strip()]
    assert said[:-1] == squeeze(state.feedback[state.feedback.index(state.objective) :])  # below the banner
    earned = 0.0
    for command in game.walk:
        step = env.step(f"\\boxed{{{command}}}")
        state, score, done = theirs.step(command)
        assert [line.rstrip() for line in step.obs.splitlines() if line.strip()] == squeeze(state.feedback)
        earned += step.reward
        assert (step.done, earned) == (done, pytest.approx(score / state.max_score))
    assert state.won
    assert step.info == {"success": True, "stop": "solved"}
    assert earned == pytest.approx(1.0)


def test_a_fork_and_a_pickle_go_on_from_the_same_place():
    env = gem.make("textworld:simple", admissible=True)
    env.reset(1)
    for _ in range(3):
        env.step(env.solve())
    twins = [env, env.fork(), pickle.loads(pickle.dumps(env))]
    plays = []
    for twin in twins:  # one after the other: they share nothing that changes
        plays.append([])
        over = False
        while not over:
            step = twin.step(twin.solve())
            plays[-1].append(tuple(step[:3]))
            over = step.done
        assert step.info["success"]
    assert plays[0] == plays[1] == plays[2]


def test_the_splits_share_no_walkthrough():
    walks = []
    for split in ("train", "test"):
        env = gem.make(QUICK, split=split)
        walks.append(set())
        for seed in range(3):
            env.reset(seed)
            walks[-1].add(env._game.walk)
    assert all(map(len, walks))
    assert not walks[0] & walks[1]


@pytest.mark.parametrize(
    "action",
    [
        "go east",
        r"\boxed{}",
        r"\boxed{save}",
        r"\boxed{restart}",
        r"\boxed{undo}",
        r"\boxed{tw-print state}",
        r"\boxed{look. save}",
        r"\boxed{look then save}",
        "\\boxed{look\n> save}",
        r"\boxed{look, save}",
        r"\boxed{" + "take " * 40 + "coin}",
    ],
)
def test_what_is_no_command_of_the_game_does_not_reach_it(action, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = gem.make(QUICK, max_turns=6)
    env.reset(0)
    before = env._play.state
    step = env.step(action)
    assert step.info == {"legal": False}
    assert env._play.state is before
    assert not list(tmp_path.iterdir())
    while not step.done:
        step = env.step(env.solve())
    assert step.info["success"]


def test_a_lost_game_ends_without_points_and_has_no_solver():
    env = gem.make("textworld:cooking")
    env.reset(0)
    while not (eat := [each for each in env._play.state.admissible_commands if each.startswith("eat ")]):
        env.step(env.solve())
    twin = env.fork()
    step = env.step(f"\\boxed{{{eat[0]}}}")
    assert (step.reward, step.done, step.info) == (0.0, True, {"success": False, "stop": "failed"})
    with pytest.raises(NoSolver):
        env.solve()
    assert twin.step(twin.solve()).done is False


def test_settings_are_those_of_the_package():
    env = gem.make(QUICK, settings={"level": 8}, max_turns=8)
    env.reset(0)
    assert len(env._game.walk) == 8
    with pytest.raises(BadArgument, match="needs 8 commands, and max_turns is 7"):
        gem.make(QUICK, settings={"level": 8}, max_turns=7).reset(0)
    for settings, message in (({"rooms": 3}, "accepted: level"), ({"level": "3"}, "accepted: as 5")):
        with pytest.raises(BadArgument, match=re.escape(message)):
            gem.make(QUICK, settings=settings)
    with pytest.raises(BadArgument, match="settings is 3; accepted: options by name"):
        gem.make(QUICK, settings=3)
    with pytest.raises(BadArgument, match="'bad'; accepted: dense, balanced, sparse"):
        gem.make("textworld:simple", settings={"rewards": "bad"})
    with pytest.raises(BadArgument, match="300"):
        gem.make(QUICK, settings={"level": 301}).reset(0)


def test_a_game_leaves_nothing_on_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    env = gem.make(QUICK)
    env.reset(5)
    twin = env.fork()
    assert env.step(env.solve()) == twin.step(twin.solve())
    assert not list(tmp_path.rglob("game*"))
    with env._game.files() as path:
        assert Path(path).is_file()
    assert not list(tmp_path.rglob("game*"))
