"""What ``gem-gym train`` tells a person to type."""

import shlex
import shutil
import sys

import pytest

from gem import cli
from gem.train import command


@pytest.mark.parametrize(
    ("program", "on_path", "told"),
    [
        ("/usr/bin/gem-gym", "/usr/bin/gem-gym", "gem-gym"),
        ("/my env/bin/gem-gym", "/usr/bin/gem-gym", "'/my env/bin/gem-gym'"),
        ("/my env/bin/gem-gym", None, "'/my env/bin/gem-gym'"),
        ("/src/gem/__main__.py", "/usr/bin/gem-gym", "'/my env/bin/python' -m gem"),
    ],
)
def test_the_command_to_type_is_the_one_that_was_typed(program, on_path, told, monkeypatch):
    monkeypatch.setattr(sys, "argv", [program, "train"])
    monkeypatch.setattr(sys, "executable", "/my env/bin/python")
    monkeypatch.setattr(shutil, "which", lambda name: on_path)
    assert command._find_command() == told


@pytest.mark.system
def test_a_run_that_is_stopped_before_anything_is_saved_says_how_to_begin_again(
    tmp_path, capsys, monkeypatch
):
    pytest.importorskip("torch")

    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("gem.train.learn.training.train", stop)
    words = ["--out", str(tmp_path / "a run"), "--env", "game:GuessTheNumber-v0-easy"]
    assert cli.main(["train", *words]) == cli.INTERRUPTED
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("stopped; nothing"))
    assert shlex.split(line.partition("Begin again with: ")[2])[-5:] == ["train", *words]
