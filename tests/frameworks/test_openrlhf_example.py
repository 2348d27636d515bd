"""The example of openrlhf writes its tasks and starts the trainer."""

import pytest

pytest.importorskip("openrlhf")

from launched import launch


@pytest.mark.system
def test_the_example_writes_its_tasks_and_starts_the_trainer(tmp_path, monkeypatch):
    command, files = launch("openrlhf_guess_the_number", tmp_path / "run", monkeypatch)
    assert command[:2] == ["-m", "openrlhf.cli.train_ppo_ray"]
    assert command[command.index("--actor.model_name_or_path") + 1] == "mine"
    assert files == ["train.jsonl"]
