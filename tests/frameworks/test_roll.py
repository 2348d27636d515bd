import importlib.util
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from types import SimpleNamespace

import pytest

os.environ.setdefault("ROLL_LOG_DIR", tempfile.gettempdir())
pytest.importorskip("roll.pipeline.agentic", reason="needs ROLL from its repository")
pytestmark = pytest.mark.framework

import ray
import torch
from omegaconf import DictConfig
from roll.configs import GeneratingArguments
from roll.distributed.scheduler.protocol import DataProto
from roll.distributed.scheduler.rollout_scheduler import GroupQueueManager
from roll.pipeline.agentic.agentic_config import EnvManagerConfig, EnvMonitorConfig
from roll.pipeline.agentic.env_manager.traj_env_manager import TrajEnvManager
from roll.pipeline.agentic.llm_proxy import BaseLLMProxy, register_llm_proxy

import gem
from gem.adapters.roll import GemEnvManager, GroupFilter
from gem.agents.sampling import sample
from gem.errors import BadArgument, NoVerdict
from gem.history import HistoryPolicy
from gem.tokens.rows import rows
from tests.shared.random_models import RENDERER, Chatter, make_model

FILTER = "gem.adapters.roll.GroupFilter"
LENGTH = 256


@register_llm_proxy("gem_test")
class Local(BaseLLMProxy):
    """Samples from a tiny model in this process, as ROLL's engines would; aborts its first request."""

    model, aborts = None, 0

    def generate(self, messages, lm_input, generation_config):
        if Local.aborts:
            Local.aborts -= 1
            return None
        Local.model = Local.model or make_model()
        Local.chance = getattr(Local, "chance", None) or torch.Generator().manual_seed(0)
        ids, tokens, logprobs = lm_input.batch["input_ids"].tolist(), [], []
        with torch.inference_mode():
            while len(tokens) < generation_config["max_new_tokens"]:
                u = torch.rand(1, generator=Local.chance, dtype=torch.float64)
                drawn, logps = sample(Local.model(torch.tensor(ids)).logits[:, -1], 1.0, u)
                tokens += drawn.tolist()
                logprobs += logps.tolist()
                ids = [[*ids[0], tokens[-1]]]
                if tokens[-1] in RENDERER.stop_ids:
                    break
        batch = {"responses": torch.tensor([tokens]), "infer_logprobs": torch.tensor([logprobs])}
        return DataProto.from_dict(batch)


class Broken(gem.Env):
    """Breaks `left` times, on its first step."""

    left = 0

    def reset(self, seed=None):
        super().reset(seed)
        return gem.Start("go on", {})

    def step(self, action):
        if Broken.left:
            Broken.left -= 1
            raise NoVerdict("the sandbox is gone")
        return gem.Step("more", 1.0, False, True, {})  # truncated: TrajEnvManager would go on


gem.register("roll-test:Chatter-v0", Chatter)
gem.register("roll-test:Broken-v0", Broken)


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


class Run:
    """ROLL's queue, and a manager for each environment of one group."""

    def __init__(self, env, cls=GemEnvManager, size=2, filter_cls=FILTER, **template):
        given = {"agent_system_template": None, "agent_template": None, **template}
        self.worker = EnvManagerConfig(
            num_env_groups=1,
            group_size=size,
            max_traj_per_env=1,
            group_filter_cls=filter_cls,
            generating_args=GeneratingArguments(max_new_tokens=6),
        )
        self.worker.llm_proxy.proxy_type = "gem_test"
        base = {"env_type": env, "tag": "x", "group_id": 0, "group_seed": 11, "max_steps": 5}
        configs = {
            number: DictConfig({**base, "env_id": number, "max_tokens_per_step": 6, "config": {}})
            for number in range(size)
        }
        self.worker.env_configs = {0: configs}
        self.pipeline = SimpleNamespace(
            async_generation_ratio=0,
            rollout_batch_size=size,
            env_monitor=EnvMonitorConfig(enable=False),
            custom_envs={"x": given},
            sequence_length=LENGTH,
            skip_mock_system_prompt=False,
        )
        self.queue = None
        self.managers = [self.manager(cls, config) for config in configs.values()]
        self.queue = GroupQueueManager.remote(self.pipeline, self.worker, "train")  # a process of its own
        ray.get(self.queue.advance_step.remote(0))
        for manager in self.managers:
            manager.output_queue = self.queue

    def manager(self, cls, config):
        tokenizer = RENDERER.tokenizer
        tokenizer.pad_token_id = tokenizer.eos_token_id
        made = cls(self.worker, self.pipeline, config, tokenizer, None, self.queue, Lock())
        made.update_step(0)
        return made

    def batch(self):
        """Let the managers play until ROLL has its batch."""
        wanted = self.queue.get_batch.remote(len(self.managers), 0)
        with ThreadPoolExecutor() as pool:
            data = DataProto(meta_info={"seed": 0})
            loops = [pool.submit(manager.run_rollout_loop, data) for manager in self.managers]
            try:
                return ray.get(wanted, timeout=60)
            finally:
                for manager in self.managers:
                    manager.stop()
                ray.get(self.queue.shutdown.remote())
                for loop in loops:
                    loop.result(60)


def test_rollouts_are_the_rows_of_the_record(monkeypatch):
    episodes = {}
    make_rollout = GemEnvManager.make_rollout

    def noted(self, episode):
        episodes[episode.id] = episode
        return make_rollout(self, episode)

    monkeypatch.setattr(GemEnvManager, "make_rollout", noted)
    Local.aborts = 1
    rollouts = Run("roll-test:Chatter-v0").batch()
    assert len(rollouts) == 2
    assert len({rollout.non_tensor_batch["traj_group_id"][0] for rollout in rollouts}) == 1
    assert len({str(each.turns[0].observation) for each in episodes.values()}) == 1
    for rollout in rollouts:
        episode = episodes[rollout.non_tensor_batch["traj_id"][0]]
        (row,) = rows(episode)
        count, batch = len(row.ids), {name: column[0] for name, column in rollout.batch.items()}
        assert batch["input_ids"][:count].tolist() == list(row.ids)
        assert batch["attention_mask"].sum() == count
        assert batch["response_mask"].int().tolist() == [*row.mask, *[0] * (LENGTH - count)]
        assert batch["infer_logprobs"][: count - 1].tolist() == list(row.logprobs[1:])
        assert batch["prompt_mask"].sum() == len(row.split()[0].ids)
        rewards = [turn.reward for turn in episode.turns]
        assert batch["scores"].sum().item() == pytest.approx(sum(rewards))
        assert batch["scores"].nonzero().numel() == len(rewards)
        assert rollout.non_tensor_batch["step_scores"][0] == rewards
        assert rollout.non_tensor_batch["episode_scores"][0] == episode.reward()
        assert rollout.meta_info["metrics"]["env/x/num_actions"] == len(rewards)
    both = DataProto.concat(rollouts)
    assert both.batch["input_ids"].shape == (2, LENGTH)


def test_each_row_of_a_rewritten_past_carries_the_return():
    run = Run("roll-test:Chatter-v0", size=1)
    manager = run.managers[0]
    ray.get(run.queue.shutdown.remote())
    manager.history, manager.running = HistoryPolicy(window=1), True
    episode = next(each for seed in range(9) if len((each := manager.play("", seed)).turns) > 1)
    made = manager.make_rollout(episode)
    assert len(made) == len(episode.turns)  # a window of one: each turn is a row
    assert made.batch["scores"].sum(-1).tolist() == [episode.reward()] * len(made)
    assert [steps for (steps,) in made.non_tensor_batch["step_scores"]] == [1.0] * len(made)


def test_an_episode_without_verdict_is_played_again_or_its_group_dropped(monkeypatch):
    put = []
    monkeypatch.setattr(GemEnvManager, "queue_rollout", note_put(put, GemEnvManager.queue_rollout))
    Broken.left = 1  # the second attempt goes well
    assert [rollout.batch["scores"].sum() for rollout in Run("roll-test:Broken-v0").batch()] == [1.0, 1.0]
    assert not any(dropped(rollout) for rollout in put)
    put.clear()
    Broken.left = 3  # both attempts of one at least
    assert [rollout.batch["scores"].sum() for rollout in Run("roll-test:Broken-v0").batch()] == [1.0, 1.0]
    assert [dropped(rollout) for rollout in put].count(True) >= 1


def note_put(put, original):
    def noted(self, began, rollout):
        if rollout is not None:
            put.append(rollout)
        original(self, began, rollout)

    return noted


def dropped(rollout):
    return GroupFilter().filter(0, 0, [rollout, None])


def test_a_broken_environment_ends_the_run_in_the_end():
    Broken.left = 10**6
    try:
        run = Run("roll-test:Broken-v0", size=1)
        with pytest.raises(NoVerdict, match="broke"):
            run.managers[0].run_rollout_loop(DataProto(meta_info={"seed": 0}))
    finally:
        Broken.left = 0


def test_a_prompt_that_never_fits_ends_the_run_too():
    run = Run("game:Sudoku-v0-easy", size=1)
    run.managers[0].pipeline_config.sequence_length = 9
    with pytest.raises(NoVerdict, match="before a turn"):
        run.managers[0].run_rollout_loop(DataProto(meta_info={"seed": 0}))


def test_settings_that_would_count_no_verdict_as_0_are_refused():
    with pytest.raises(BadArgument, match="group_filter_cls"):
        Run("roll-test:Chatter-v0", filter_cls="roll.pipeline.agentic.agentic_pipeline.GroupFilter")
    with pytest.raises(BadArgument, match="agent_template"):
        Run("roll-test:Chatter-v0", agent_template="{observation}")


def test_rolls_own_manager_plays_gems_environments():
    template = {"agent_system_template": "Play.", "agent_template": "{observation}\n{suffix}"}
    own = Run("game:GuessTheNumber-v0-easy", TrajEnvManager, **template)
    for rollout in own.batch():
        assert rollout.batch["response_mask"].any()
        scores = rollout.non_tensor_batch["step_scores"][0]
        assert sum(scores) == pytest.approx(rollout.batch["scores"].sum().item())


def test_the_examples_settings_are_rolls(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # ROLL makes its folder of logs as it reads them
    path = Path(__file__).resolve().parents[2] / "examples/researcher" / "roll_guess_the_number.py"
    spec = importlib.util.spec_from_file_location("roll_guess_the_number", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = module.settings("some/model", 2)
    worker = config.train_env_manager
    config.make_env_configs(worker)
    assert (worker.group_filter_cls, len(worker.env_configs[0])) == (FILTER, 128)
    made = worker.env_configs[0][9]
    assert (made["group_id"], made["env_manager_cls"]) == (1, "gem.adapters.roll.GemEnvManager")
    assert gem.make(env_id=made["env_type"], **made["config"]).spec.id == "game:GuessTheNumber-v0-easy"
