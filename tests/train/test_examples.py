"""The settings files among the examples."""

from pathlib import Path
from random import Random

import pytest

pytest.importorskip("torch")

from gem.content import Message
from gem.naming import load_named
from gem.record import Ask
from gem.train.baselines.study import read_study
from gem.train.config import TrainConfig
from gem.train.config.toml_file import read_config

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "examples/configs").glob("*.toml"))
OF_A_STUDY = {"out", "store", "watch", "dtype"}
"""Settings that a study has its own values for."""


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_settings_file_can_be_trained_with(path):
    assert TrainConfig.fit(**read_config(path)).episodes > 0


@pytest.mark.system
def test_the_example_with_python_is_a_cell_of_the_large_study():
    """So the figures of its row are those of the example, up to the seed."""
    study = read_study(ROOT / "baselines/baseline24.toml")
    (cell,) = (cell for cell in study.cells if cell.name == "math:Arithmetic-v0-hard, ReBN")
    example = TrainConfig.fit(**read_config(ROOT / "examples/configs/arithmetic-with-python.toml"))
    own, theirs = example.to_json(), study.config(cell).to_json()
    assert {name for name in own if own[name] != theirs[name]} <= OF_A_STUDY


def test_the_expert_of_the_shell_tasks_knows_every_task_and_the_splits_share_no_word():
    names = ("make_task", "solve", "KINDS", "ShellTasks", "HeldOutTasks")
    path = ROOT / "examples/author/shell_tasks.py"
    make_task, solve, kinds, own, apart = (load_named(f"{path}:{name}", "example") for name in names)
    assert not {*own.words} & {*apart.words}
    tasks = [make_task(Random(seed), apart.words) for seed in range(60)]
    for task in tasks:
        ask = Ask("", "agent", 0, (Message("user", f"New task:\n{task.instruction}"),))
        assert f'final_answer(bash("{task.solution}"))' in solve(ask)
    assert len({task.solution.split()[0] for task in tasks}) == len(kinds)
