"""What ``gem-gym train`` tells a person to type."""

import shutil
import sys

import pytest

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
