import asyncio
import importlib.util
import json
from pathlib import Path

import pytest

pytest.importorskip("RL2.datasets.rl", reason="needs RL2 from its repository")
pytestmark = pytest.mark.framework

from omegaconf import OmegaConf
from RL2.datasets import SampleGroup, pack_tensor_dicts

import gem
from gem.adapters.rl2 import write_tasks
from gem.errors import BadArgument, NoVerdict, UnknownEnv
from gem.tokens.rows import rows
from tests.shared.random_models import RENDERER, Chatter, make_model
from tests.shared.token_server import TokenServer

gem.register("rl2-test:Chatter-v0", Chatter)
CONFIG = OmegaConf.create(
    {
        "responses_per_prompt": 3,
        "sampling_params": {"temperature": 1.0, "max_new_tokens": 6, "stop": None},
        "partial_rollout": False,
        "save_dir": None,
    }
)


def example():
    path = Path(__file__).parents[2] / "examples/researcher" / "rl2_guess_the_number.py"
    spec = importlib.util.spec_from_file_location("rl2_guess_the_number", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def url():
    with TokenServer(make_model(), "sglang") as server:
        yield server.url


@pytest.fixture
def episodes(monkeypatch):
    """Those that are played."""
    kept, fill = [], example().generate.__globals__["fill"]

    def noted(sample, episode, decode):
        kept.append((sample, episode))
        fill(sample, episode, decode)

    monkeypatch.setattr("gem.adapters.rl2.fill", noted)
    return kept


def task(env, folder, seed=0):
    write_tasks(folder / "tasks.jsonl", env, range(8))
    return json.loads((folder / "tasks.jsonl").read_text().splitlines()[seed])


def group(row, url, **changes):
    config = OmegaConf.merge(CONFIG, changes)
    made = SampleGroup(config, RENDERER.tokenizer, row)
    return asyncio.run(made.generate(url, example().generate))


def test_samples_are_the_rows_of_the_record(url, episodes, tmp_path, capsys):
    row = task("rl2-test:Chatter-v0", tmp_path, 3)
    done = group(row, url, save_dir=str(tmp_path))
    assert len(episodes) == 3
    assert len({str(episode.turns[0].observation) for _, episode in episodes}) == 1
    assert len({tuple(episode.turns[0].token_ids) for _, episode in episodes}) == 3
    tensors, metrics = done.to_all_tensor_dicts_and_metrics()
    by_sample = {id(sample): episode for sample, episode in episodes}
    for sample, (sequence,) in zip(done.samples, tensors, strict=True):
        episode = by_sample[id(sample)]
        (made,) = rows(episode)
        assert sequence["states"].tolist() == list(made.ids[:-1])
        assert sequence["action_mask"].tolist() == list(made.mask[1:])
        learned = [token for token, one in zip(made.ids, made.mask, strict=True) if one]
        assert sequence["actions"][sequence["action_mask"] == 1].tolist() == learned
        assert sequence["llm_logps"].tolist() == list(made.logprobs[1:])
        assert sequence["rewards"].sum().item() == episode.reward()
        assert sequence["rewards"].count_nonzero() == len(episode.turns)
    assert metrics["rewards"] == [by_sample[id(sample)].reward() for sample in done.samples]
    packed = pack_tensor_dicts([sequence for (sequence,) in tensors])
    assert packed["states"].shape == packed["rewards"].shape
    done.print()
    assert "[Reward]" in capsys.readouterr().out
    done.save(0)


class Broken(gem.Env):
    left = 0

    def reset(self, seed=None):
        super().reset(seed)
        return gem.Start("go on", {})

    def step(self, action):
        if Broken.left:
            Broken.left -= 1
            raise NoVerdict("the sandbox is gone")
        return gem.Step("over", 1.0, True, False, {"stop": "solved"})


gem.register("rl2-test:Broken-v0", Broken)


def test_no_verdict_is_played_again_and_then_an_error(url, episodes, tmp_path):
    row = task("rl2-test:Broken-v0", tmp_path)
    Broken.left = 1
    group(row, url, responses_per_prompt=1)
    ((_, episode),) = episodes
    assert (episode.attempt, episode.reward()) == (1, 1.0)
    Broken.left = 99
    try:
        with pytest.raises(NoVerdict, match="sandbox is gone"):
            group(row, url, responses_per_prompt=1)
    finally:
        Broken.left = 0


def test_an_episode_without_a_turn_is_an_error(url, tmp_path):
    row = task("rl2-test:Chatter-v0", tmp_path)
    with pytest.raises(NoVerdict, match="before a turn"):
        group(row | {"turns": 0}, url)


def test_a_data_set_that_is_there_is_not_written_over(tmp_path):
    task("rl2-test:Chatter-v0", tmp_path, 3)
    with pytest.raises(BadArgument, match="already exists"):
        write_tasks(tmp_path / "tasks.jsonl", "rl2-test:Chatter-v0", range(2))


def test_wrong_settings_are_told(url, tmp_path):
    row = task("rl2-test:Chatter-v0", tmp_path)
    with pytest.raises(BadArgument, match="partial_rollout"):
        group(row, url, partial_rollout=True)
    with pytest.raises(BadArgument, match="top_p"):
        group(row, url, sampling_params={"top_p": 0.5})
    for wrong in ({}, {"task": 3}, {"task": "{"}, {"task": "os.remove"}):
        with pytest.raises(BadArgument, match="no task"):
            group(wrong, url)
    with pytest.raises(UnknownEnv):
        write_tasks(tmp_path / "x", "x:Y", [1])
