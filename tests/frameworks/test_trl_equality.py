"""The same episodes in gem's learner and in TRL's: rows, masks, log probabilities, advantages, gradient."""

import math

import pytest

pytest.importorskip("trl", reason="needs TRL: pip install 'gem-gym[trl]'")
torch = pytest.importorskip("torch")

from learned_rows import Learned, assert_same, make_plain_model, of_gem
from random_models import RENDERER
from trl import GRPOConfig, GRPOTrainer

from gem import Env, Start, Step, registry
from gem.adapters.trl import Rollouts, dataset, episode_reward
from gem.adapters.trl_turns import TurnGRPOTrainer
from gem.errors import BadArgument, NoVerdict
from gem.estimators import turn_advantages
from gem.tokens.chat_template import ChatTemplateRenderer

pytestmark = [
    pytest.mark.framework,
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # transformers', of its own names
    pytest.mark.filterwarnings("ignore:You are using"),  # ... an experimental feature
]
ENV = "trl_equality:Letters"


class Letters(Env):
    """Pays for the letters e of each answer, for one to three turns; breaks by their length."""

    def reset(self, seed=None):
        super().reset(seed)
        self.left = self.rng.randint(1, 3)
        return Start("the secret " * self.rng.randint(1, 4), {})

    def step(self, action):
        if len(action) % 7 == 0:
            raise NoVerdict("the grader is gone")
        self.left -= 1
        return Step("higher or lower", action.count("e") / 8, self.left == 0, False, {})


class Keeps:
    """Keeps the tensors that a loss is made of."""

    def _generate_and_score_completions(self, inputs):
        self.seen, self.inputs = super()._generate_and_score_completions(inputs), inputs
        return self.seen


class Seen(Keeps, GRPOTrainer):
    """TRL's trainer."""


class SeenTurns(Keeps, TurnGRPOTrainer):
    """With advantages of turns."""


def of_trl(trained):
    """TRL's rows, and the gradient of its loss by the name of the parameter."""
    made, model = trained.seen, trained.model
    ids = torch.cat([made["prompt_ids"], made["completion_ids"]], dim=1)
    attended = torch.cat([made["prompt_mask"], made["completion_mask"]], dim=1)
    count = made["completion_ids"].shape[1]
    with torch.no_grad():
        logprobs, _, _ = trained._get_per_token_logps_and_entropies(model, ids, attended, count)
    learns = made["completion_mask"] * made["tool_mask"]
    learned = {}
    for place, given in enumerate(trained.inputs):
        if learns[place].any():
            mask = torch.cat([torch.zeros_like(made["prompt_mask"][place]), learns[place]])
            learned[given["episode"]] = Learned(
                ids[place][attended[place] == 1].tolist(),
                mask[attended[place] == 1].tolist(),
                logprobs[place][learns[place] == 1].tolist(),
                float(made["advantages"][place]),
            )
    model.train()
    model.zero_grad()
    trained._compute_loss(model, made).backward()
    return learned, {name: each.grad.clone() for name, each in model.named_parameters()}


def played(tmp_path, cls=Seen, keywords=None, **options):
    """One step of TRL that moves nothing, and its episodes."""
    episodes = []
    args = GRPOConfig(
        output_dir=str(tmp_path), max_steps=1, per_device_train_batch_size=24, num_generations=6,
        max_completion_length=8, learning_rate=0.0, bf16=False, use_cpu=True, gradient_checkpointing=False,
        disable_tqdm=True, report_to="none", save_strategy="no", logging_strategy="no", **options,
    )  # fmt: skip
    with Rollouts(on_episode=episodes.append) as rollouts:
        trained = cls(
            make_plain_model(),
            reward_funcs=episode_reward,
            args=args,
            train_dataset=dataset(ENV, range(8)),
            processing_class=RENDERER.tokenizer,
            rollout_func=rollouts,
            **(keywords or {}),
        )
        trained.train()
    return trained, episodes


@pytest.fixture(autouse=True)
def letters(monkeypatch):
    monkeypatch.setattr(registry, "ENV_REGISTRY", registry.ENV_REGISTRY.copy())
    registry.register(ENV, Letters)


def test_trl_learns_what_gem_learns(tmp_path):
    trained, episodes = played(tmp_path, scale_rewards="none")
    assert 0 < sum(not episode.scored for episode in episodes) < 12
    found, gradient = of_trl(trained)
    wanted, own_gradient = of_gem(trained.model, ChatTemplateRenderer(RENDERER.tokenizer), episodes)
    assert_same(found, wanted)
    assert len({mine.advantage for mine in wanted.values()}) > 4
    assert max(float(each.abs().max()) for each in own_gradient.values()) > 1e-3
    for name, mine in own_gradient.items():
        assert float((gradient[name] - mine).abs().max()) < 1e-5, name


@pytest.mark.system
def test_advantages_over_their_deviation_differ_by_what_trl_divides_by(tmp_path):
    """TRL divides by the sample's deviation and 1e-4, gem by the population's, as GRPO's paper has it."""
    trained, episodes = played(tmp_path)
    found, _ = of_trl(trained)
    wanted, _ = of_gem(trained.model, ChatTemplateRenderer(RENDERER.tokenizer), episodes, "grpo")
    groups = {}
    for episode in episodes:
        if episode.scored:
            groups.setdefault(episode.group, []).append(episode.reward())
    for episode in episodes:
        if not episode.scored:
            continue
        rewards = groups[episode.group]
        mean, count = math.fsum(rewards) / len(rewards), len(rewards)
        deviation = math.sqrt(math.fsum((each - mean) ** 2 for each in rewards) / count)
        if count > 1 and deviation > 1e-6:
            theirs = deviation * math.sqrt(count / (count - 1)) + 1e-4
            scaled = wanted[episode.id].advantage * deviation / theirs
            assert found[episode.id].advantage == pytest.approx(scaled, abs=1e-5)


@pytest.mark.system
@pytest.mark.parametrize(("kind", "gamma"), [("rebn", 0.5), ("turn_rebn", 1.0), ("reinforce", 0.0)])
def test_advantages_of_turns_are_those_of_gem(tmp_path, kind, gamma):
    trained, episodes = played(tmp_path, SeenTurns, {"kind": kind, "gamma": gamma})
    wanted = dict(
        zip((episode.id for episode in episodes), turn_advantages(episodes, kind, gamma), strict=True)
    )
    by_id = {episode.id: episode for episode in episodes}
    made = trained.seen
    learns = made["completion_mask"] * made["tool_mask"]
    for place, given in enumerate(trained.inputs):
        found = made["advantages"][place][learns[place] == 1].tolist()
        turns = by_id[given["episode"]].turns
        of_turns = wanted[given["episode"]] or []
        tokens = [value for value, turn in zip(of_turns, turns, strict=False) for _ in turn.token_ids]
        assert found == pytest.approx(tokens, abs=1e-5)
        assert not made["advantages"][place][learns[place] == 0].any()
    assert len({round(float(each), 5) for each in made["advantages"].unique()}) > 4
    trained.model.train()
    trained._compute_loss(trained.model, made).backward()
    assert any(each.grad is not None and each.grad.any() for each in trained.model.parameters())


def test_a_trainer_of_turns_refuses_nonsense(tmp_path):
    for keywords in ({"kind": "grpo"}, {"gamma": 2.0}):
        with pytest.raises(BadArgument):
            played(tmp_path, SeenTurns, keywords)
