"""Settings of the optimiser's steps: schedules, AdamW, the critic's step size, response-wise losses, LoRA."""

import json
import math
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from runs import QUICK, Log

from gem.errors import BadArgument
from gem.tokens.rows import Row
from gem.train.config import TrainConfig
from gem.train.learn.batch import Target, Weighted, collate
from gem.train.learn.learner import Outputs
from gem.train.learn.steps import Progress, make_objective
from gem.train.learn.training import make_trainer, train
from gem.train.report.run_folder import RunFolder


@pytest.mark.parametrize(
    ("kind", "shares"),
    [
        ("constant", [1.0, 1.0, 1.0, 1.0]),
        ("linear", [1.0, 0.75, 0.5, 0.25]),
        ("cosine", [1.0, 0.853553, 0.5, 0.146447]),  # (1 + cos(pi x)) / 2
    ],
)
def test_schedules(tmp_path, kind, shares):
    kinds = {f"{name}_schedule": kind for name in ("lr", "kl", "entropy")}
    config = replace(QUICK, lr=0.01, lr_end=0.2, kl=0.3, entropy=0.5, **kinds)
    for iteration, share in enumerate(shares):
        progress = Progress(iteration, config.iterations)
        assert progress.kl(config) == pytest.approx(0.3 * share, rel=1e-5)
        assert progress.entropy(config) == pytest.approx(0.5 * share, rel=1e-5)
        assert config.lr_at(iteration) == pytest.approx(0.01 * (0.2 + 0.8 * share), rel=1e-5)
        # A phase that begins at iteration 10 has the schedule of a run of its own.
        later = replace(config, episodes=14 * config.batch)
        assert Progress(10 + iteration, 14, 10).kl(later) == pytest.approx(0.3 * share, rel=1e-5)
        assert later.lr_at(10 + iteration, 10) == pytest.approx(config.lr_at(iteration), rel=1e-5)


def losses(config, logprobs, kls=None):
    """The loss of rows of one and of three sampled tokens, and its gradient at each token."""
    rows = [
        Weighted(Row((5, 6), (0, 1), (0.0, -1.0), (-1, 0)), {0: Target(2.0)}),
        Weighted(
            Row((5, 7, 8, 9), (0, 1, 1, 1), (0.0, *(-1.0,) * 3), (-1, 0, 0, 1)),
            {0: Target(-1.0), 1: Target(-1.0)},
        ),
    ]
    batch = collate(rows, 0)
    sizes = torch.bincount(batch.row)[batch.row]  # 1 or 3: the tokens' own row
    logprob = torch.tensor(logprobs, requires_grad=True)
    kl = None if kls is None else torch.tensor(kls)
    loss, _ = make_objective(config, Progress(0, 4), 0.0)(batch, Outputs(logprob, torch.zeros(4), kl, None))
    loss.backward()
    return loss.item(), {size: logprob.grad[sizes == size].tolist() for size in (1, 3)}


def test_a_response_is_divided_by_its_own_length():
    """GRPO, arXiv 2402.03300 eq. 3: the sum over responses of the mean over their tokens.

    Advantages are 2 for one token and -1 for three, and ratios 1: -(2 / 1 - 3 / 3) = -1, where the sum over
    tokens is -(2 - 3) = 1. The divergence is in the same mean.
    """
    published = replace(QUICK, algorithm="grpo", normalise="response", kl=0.0)
    loss, gradient = losses(published, [-1.0] * 4)
    assert loss == pytest.approx(-1.0)
    assert gradient == {1: [-2.0], 3: pytest.approx([1 / 3] * 3)}
    loss, gradient = losses(replace(published, normalise="episode"), [-1.0] * 4)
    assert loss == pytest.approx(1.0)
    assert gradient == {1: [-2.0], 3: [1.0] * 3}
    with_kl = losses(replace(published, kl=0.5), [-1.0] * 4, [0.6] * 4)[0]
    assert with_kl == pytest.approx(-1.0 + 0.5 * (0.6 + 0.6))


def test_gspo_as_published():
    """GSPO, arXiv 2507.18071 eq. 5: one ratio per sequence, the mean of the log ratios, and one advantage."""
    config = replace(QUICK, algorithm="gspo", ratio="sequence", normalise="response", kl=0.0, clip=10.0)
    loss, _ = losses(config, [-0.9] * 4)
    assert loss == pytest.approx(-math.exp(0.1) * (2.0 - 1.0), rel=1e-5)


def test_an_environment_that_asks_with_pictures_is_refused_before_a_model_is_loaded(tmp_path):
    pytest.importorskip("PIL")
    config = replace(QUICK, env="vision:Geometry-v0-easy", env_kwargs={}, warmup_steps=0, out=tmp_path)
    with pytest.raises(BadArgument, match="a model trained on vision:Geometry-v0-easy reads text alone"):
        make_trainer(config)


def test_adamw_gets_its_settings(tmp_path):
    config = replace(
        QUICK, algorithm="ppo", beta1=0.8, beta2=0.99, weight_decay=0.1, critic_lr=0.02, out=tmp_path
    )
    trainer = make_trainer(config)
    trainer.close()
    policy, critic = trainer.learner.optimiser.param_groups
    assert policy["betas"] == critic["betas"] == (0.8, 0.99)
    assert policy["weight_decay"] == 0.1
    assert len(critic["params"]) == 2  # the weight and bias of its head
    trainer.learner.set_lr(config.lr / 2)
    assert policy["lr"] == config.lr / 2
    assert critic["lr"] == 0.01
    with pytest.raises(BadArgument, match=r"critic_lr is 0.02; it has an effect only with a learning rate"):
        replace(config, lr=0.0)
    for name, value in (("beta2", 1.0), ("weight_decay", -1.0)):
        with pytest.raises(BadArgument, match=f"{name} is {value}"):
            replace(config, **{name: value})


def test_the_clip_of_values_follows_the_spread_of_returns(tmp_path):
    """With rewards a hundred times larger, the clip is too, and so is the critic's error."""
    errors = []
    for scale in (1.0, 100.0):
        config = replace(
            QUICK, algorithm="ppo", kl=0.0, lr=0.0, critic_lr=0.0, value_clip=0.1, value_clip_by="spread",
            whiten=False, epochs=1, minibatch=64, store="none", out=tmp_path,
        )  # fmt: skip
        trainer = make_trainer(config)
        with torch.no_grad():
            trainer.learner.critic.head.bias.fill_(0.5 * scale)
        episodes = trainer.sample()
        for number, episode in enumerate(episodes):
            for turn in episode.turns:
                turn.reward = 0.0
            episode.turns[-1].reward = scale * (number % 3)
        learn = trainer.learner.update

        def moved(*args, learn=learn, trainer=trainer, scale=scale):
            with torch.no_grad():
                trainer.learner.critic.head.bias.fill_(0.9 * scale)  # beyond the clip
            return learn(*args)

        trainer.learner.update = moved
        errors.append(trainer.learn(episodes).value_error)
        trainer.close()
    assert errors[1] == pytest.approx(1e4 * errors[0], rel=1e-4)


@pytest.mark.system
def test_a_run_with_all_of_them_resumes_exactly(tmp_path):
    config = replace(
        QUICK, algorithm="ppo", critic_lr=5e-3, kl_schedule="constant", lr_schedule="cosine",
        weight_decay=0.01, value_clip_by="spread", normalise="response",
        entropy=0.01, entropy_schedule="cosine", watch=0,
    )  # fmt: skip
    train(replace(config, out=tmp_path / "whole"))
    with pytest.raises(KeyboardInterrupt):
        train(replace(config, out=tmp_path / "cut"), watcher=Log(stop=2))
    train(replace(config, out=tmp_path / "cut"), resume=True)
    one, other = (RunFolder(tmp_path / name) for name in ("whole", "cut"))
    assert [m.loss for m in one.history()] == [m.loss for m in other.history()]
    assert TrainConfig.from_json(json.loads(one.config.read_text())) == replace(
        config, out=tmp_path / "whole"
    )
