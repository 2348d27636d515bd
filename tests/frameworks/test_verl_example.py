"""The example of verl writes its tasks and starts the trainer."""

import pytest

pytest.importorskip("verl")

from launched import launch


@pytest.mark.system
def test_the_example_writes_its_tasks_and_starts_the_trainer(tmp_path, monkeypatch):
    command, files = launch("verl_guess_the_number", tmp_path / "run", monkeypatch)
    assert command[:2] == ["-m", "verl.trainer.main_ppo"]
    assert "actor_rollout_ref.model.path=mine" in command
    assert files == ["loop.yaml", "test.parquet", "train.parquet"]
