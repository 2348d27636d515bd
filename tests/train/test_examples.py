"""The examples, as far as they need no pretrained model."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from gem.rollout import EpisodeStore
from gem.sandbox import SandboxFailed, default_sandbox

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_teacher_of_arithmetic_calls_python_and_copies_its_answer(tmp_path, capsys):
    try:
        default_sandbox()
    except SandboxFailed as absent:
        pytest.skip(str(absent))
    example("arithmetic_with_python").write_demos(tmp_path / "demos.jsonl", 6)
    assert capsys.readouterr().out == "the teacher solved 6 of 6\n"
    with EpisodeStore(tmp_path / "demos.jsonl", read_only=True) as store:
        assert {(entry.turns, entry.calls, entry.success) for entry in store.select()} == {(2, 1, True)}
