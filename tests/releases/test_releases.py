"""What an earlier release wrote is read, played again, resumed and played with.

`v0.2.0/eval` is of ``gem-gym eval game:GuessTheNumber-v0-easy --agent random --episodes 5``, `v0.2.0/run` of
``gem-gym train --episodes 96 --batch 32 --warmup-steps 2 --eval-episodes 5 --width 8 --heads 1 --layers 1
--save-every 1 --watch 0``, stopped after its second iteration; both by commit 7d774452.
"""

import shutil
from pathlib import Path

import pytest

from gem.cli import main
from gem.rollout import EpisodeStore

HERE = Path(__file__).parent
RELEASES = sorted(path.name for path in HERE.iterdir() if path.name.startswith("v"))


@pytest.fixture(params=RELEASES)
def release(request, tmp_path):
    """Return a copy of what a release wrote."""
    return shutil.copytree(HERE / request.param, tmp_path / request.param)


def test_stored_episodes_replay_to_the_same_transcripts(release, capsys):
    with EpisodeStore(release / "eval" / "episodes.jsonl", read_only=True) as store:
        assert [(each.scored, len(each.turns)) for each in store] == [
            (True, turns) for turns in (2, 3, 3, 3, 4)
        ]
    assert main(["replay", str(release / "eval"), "all"]) == 0
    assert capsys.readouterr().out.count("the same transcript") == 5


@pytest.mark.parametrize("command", ["store ls", "store verify", "show"])
@pytest.mark.parametrize("folder", ["eval", "run"])
def test_commands_read_what_a_release_stored(command, folder, release, capsys):
    said = main([*command.split(), str(release / folder), *(["0"] if command == "show" else [])])
    assert said == 0, capsys.readouterr()


@pytest.mark.system
def test_a_run_of_a_release_goes_on_and_plays(release, capsys):
    pytest.importorskip("torch")
    run = release / "run"
    assert main(["train", "--out", str(run), "--resume"]) == 0
    with EpisodeStore(run / "episodes.jsonl", read_only=True) as store:
        assert len(store) == len({each.id for each in store}) == 96
    assert main(["eval", "game:GuessTheNumber-v0-easy", "-n", "2", "--agent", str(run)]) == 0
    assert "2/2" in capsys.readouterr().out
