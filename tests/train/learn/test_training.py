import json
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from runs import (
    QUICK,
    Log,
    assert_same_run,
    figures,
    hashes,
    interrupt_before_checkpoint,
    kept,
    same_weights,
    weights,
)

from gem.agents.sampling import digest_weights
from gem.agents.tiny import TinyAgent, TinyConfig
from gem.core import Env
from gem.envs.games.guess_the_number import GuessTheNumber
from gem.errors import (
    AgentUnavailable,
    BadArgument,
    NoSolver,
    NoVerdict,
    SchemaMismatch,
    StoreError,
    install_command,
)
from gem.estimators import ALGORITHMS
from gem.evals import success_rate
from gem.record import Limits
from gem.registry import ENV_REGISTRY, EnvSpec, Maker, register
from gem.rollout import EpisodeStore, Job, rollout
from gem.rollout.demos import write_demos
from gem.testing.doubles import EchoEnv
from gem.tokens.rows import rows
from gem.train.config import TrainConfig
from gem.train.learn import checkpoint
from gem.train.learn.learner import load_weights
from gem.train.learn.policy import TinyPolicy, make_policy
from gem.train.learn.steps import Steps
from gem.train.learn.training import make_trainer as make
from gem.train.learn.training import train, trained_agent
from gem.train.learn.warmup import warm_up
from gem.train.report.run_folder import RunFolder


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run."""
    out = tmp_path_factory.mktemp("whole")
    return out, train(replace(QUICK, out=out))


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr("gem.registry.ENV_REGISTRY", ENV_REGISTRY.copy())


# -- a run


@pytest.mark.system
def test_a_run_leaves_its_figures(whole):
    out, summary = whole
    assert json.loads((out / "summary.json").read_text()) == summary
    for name in ("random", "before", "after", "greedy", "optimum"):
        assert set(summary[name]["success"]) == {"mean", "low", "high", "n", "clusters", "exact"}
        assert 0 <= summary[name]["success"]["mean"] <= 1
        assert 1 <= summary[name]["turns_to_success"]["mean"] <= 4
    assert summary["optimum"]["success"]["mean"] == 1.0
    assert summary["optimum"]["turns_to_success"]["mean"] == 2.0  # bisection of 1..4: guesses 1, 2, 2, 3
    assert summary["episodes"] == 64
    history = RunFolder(out).history()
    assert [m.iteration for m in history] == [1, 2, 3, 4]
    assert [m.episodes for m in history] == [16, 32, 48, 64]
    assert all(math.isfinite(m.loss) and m.tokens_sampled > 0 for m in history)
    steps = [m.lr for m in history]
    assert steps == sorted(steps, reverse=True)


@pytest.mark.system
def test_the_same_seed_is_the_same_run_and_another_is_not(whole, tmp_path):
    out, _ = whole
    train(replace(QUICK, out=tmp_path / "again"))
    assert_same_run(out, tmp_path / "again")
    train(replace(QUICK, out=tmp_path / "other", seed=1))
    assert figures(out) != figures(tmp_path / "other")


@pytest.mark.system
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kl", [0.0, 0.1])
def test_every_algorithm_takes_steps(tmp_path, algorithm, kl):
    config = replace(QUICK, algorithm=algorithm, kl=kl, entropy=0.01, episodes=16, out=tmp_path)
    log = Log(stop=1)
    with pytest.raises(KeyboardInterrupt):
        train(config, watcher=log)
    (metrics,) = RunFolder(tmp_path).history()
    assert all(math.isfinite(value) for value in (metrics.loss, metrics.entropy, metrics.step_kl))
    assert math.isnan(metrics.kl) == (kl == 0)
    assert metrics.step_kl > 0
    assert log.warnings == []


def test_a_group_is_one_task(tmp_path):
    trainer = make_trainer(replace(QUICK, algorithm="grpo", out=tmp_path))
    episodes = [*trainer.sample(0), *trainer.sample(1)]
    groups = {}
    for episode in episodes:
        groups.setdefault(episode.group, []).append(episode)
    assert [len(group) for group in groups.values()] == [4] * 8
    for group in groups.values():
        assert len({episode.seed for episode in group}) == 1
        assert len({tuple(episode.turns[0].token_ids) for episode in group}) > 1


@pytest.mark.slow
def test_it_learns(tmp_path):
    """Random play of 1..2 in two turns wins 1 - (1/2)^2 = 75%; whoever remembers its first guess always wins.

    Four hundred episodes know a rate to 2%, so that neither bound below is within reach of chance.
    """
    config = TrainConfig(
        env_kwargs={"max_number": 2, "max_turns": 2, "reward": "sparse"},
        batch=128,
        minibatch=32,
        episodes=3840,
        lr=3e-3,
        kl=0.03,
        eval_episodes=400,
        out=tmp_path,
    )
    summary = train(config)
    assert 0.65 < summary["before"]["success"]["mean"] < 0.85
    assert summary["after"]["success"]["mean"] > 0.92
    assert summary["greedy"]["success"]["mean"] == 1.0


# -- interruption


@pytest.mark.system
@pytest.mark.parametrize("stop", [1, 3, 4])
def test_an_interrupted_run_goes_on_as_the_same_run(whole, tmp_path, stop):
    config = replace(QUICK, out=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        train(config, watcher=Log(stop))
    log = Log()
    train(config, resume=True, watcher=log)
    assert log.iterations == list(range(stop + 1, 5))
    assert_same_run(whole[0], tmp_path)


@pytest.mark.system
def test_a_crash_between_metrics_and_checkpoint(whole, tmp_path):
    config = replace(QUICK, out=tmp_path)
    with interrupt_before_checkpoint(3), pytest.raises(KeyboardInterrupt):
        train(config)
    assert [m.iteration for m in RunFolder(tmp_path).history()] == [1, 2, 3]
    train(config, resume=True)
    assert_same_run(whole[0], tmp_path)


@pytest.mark.parametrize("part", ["masters", "wall_s", "optimiser"])
@pytest.mark.system
def test_a_checkpoint_of_an_earlier_version_is_refused(tmp_path, part):
    config = replace(QUICK, out=tmp_path, episodes=16, eval_episodes=1)
    train(config)
    file = RunFolder(tmp_path).checkpoint
    state = checkpoint.load(file)
    del state[part]
    checkpoint.save(file, state)
    with pytest.raises(SchemaMismatch, match=f"has no '{part}': an earlier version of gem wrote it"):
        train(config, resume=True)


@pytest.mark.system
def test_a_finished_run_that_is_resumed_measures_again(whole, tmp_path):
    config = replace(QUICK, out=tmp_path)
    train(config)
    log = Log()
    train(config, resume=True, watcher=log)
    assert log.iterations == []
    assert_same_run(whole[0], tmp_path)


# -- the episodes of a run


def test_what_was_played_in_training_is_kept(whole):
    out, _ = whole
    episodes, count = kept(out)
    assert count == len(episodes) == QUICK.episodes
    assert {job for job, _ in episodes} == {f"{i}-{n}" for i in range(4) for n in range(16)}
    assert not any(turn.token_ids for episode in episodes.values() for turn in episode.turns)
    for metrics in RunFolder(out).history():
        version = metrics.iteration - 1
        mine = [episode for (job, _), episode in episodes.items() if job.startswith(f"{version}-")]
        assert {episode.policy_version for episode in mine} == {version}
        assert success_rate(mine) == metrics.success
        assert sum(len(episode.turns) for episode in mine) / 16 == metrics.turns
    (run,) = {episode.run.id: episode.run for episode in episodes.values()}.values()
    assert (run.agent, run.model, run.limits.turn_tokens) == ("TinyAgent", "tiny", QUICK.max_tokens)


@pytest.mark.system
def test_episodes_may_be_kept_with_their_tokens_or_not_at_all(whole, tmp_path):
    config = replace(QUICK, episodes=32, eval_episodes=1)
    train(replace(config, store="tokens", out=tmp_path / "tokens"))
    train(replace(config, store="none", out=tmp_path / "none"))
    assert not RunFolder(tmp_path / "none").episodes.exists()
    episodes, _ = kept(tmp_path / "tokens")
    sampled = [len(turn.token_ids) for episode in episodes.values() for turn in episode.turns]
    assert sum(sampled) == sum(m.tokens_sampled for m in RunFolder(tmp_path / "tokens").history())
    (row,) = rows(next(iter(episodes.values())))
    assert all(math.isfinite(logprob) for logprob in row.logprobs)
    assert same_weights(weights(tmp_path / "tokens"), weights(tmp_path / "none"))


def test_samples_of_a_group_share_a_job(tmp_path):
    trainer = make_trainer(replace(QUICK, algorithm="grpo", out=tmp_path))
    assert [(e.job, e.sample) for e in trainer.sample()] == [(f"0-{i // 4}", i % 4) for i in range(16)]


@pytest.mark.system
@pytest.mark.parametrize("crash", [False, True])
def test_a_resumed_run_stores_each_episode_once(whole, tmp_path, crash):
    config = replace(QUICK, out=tmp_path)
    with interrupt_before_checkpoint(2 if crash else None), pytest.raises(KeyboardInterrupt):
        train(config, watcher=Log(stop=2))
    assert kept(tmp_path)[1] == 32
    train(config, resume=True)  # what the checkpoint did not hold is dropped, and played again
    assert hashes(tmp_path) == hashes(whole[0])
    with EpisodeStore(RunFolder(tmp_path).episodes, read_only=True) as store:
        assert len(store) == len(list(store)) == len(store.latest()) == 64
        assert sum(tally.episodes for tally in store.tally()) == 64


@pytest.mark.system
def test_overwriting_a_run_removes_its_episodes(tmp_path):
    train(replace(QUICK, episodes=16, eval_episodes=1, out=tmp_path))
    RunFolder(tmp_path).clear()
    assert list(tmp_path.iterdir()) == []


LONG = replace(QUICK, episodes=16 * 40)
DEADLINE_S = 120


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    out = tmp_path_factory.mktemp("long")
    train(replace(LONG, out=out))
    return out


def begin(out, *more):
    """Start the run of LONG as a process of its own, as from the command line."""
    flags = [
        *("--env-kwargs", json.dumps(LONG.env_kwargs)),
        *(f"--{name.replace('_', '-')}={getattr(LONG, name)}" for name in LONG.differences(TrainConfig())
          if name != "env_kwargs"),
    ]  # fmt: skip
    program = (
        "import signal, sys; from gem.cli import main; "
        "signal.signal(signal.SIGINT, signal.default_int_handler); "  # a shell's background jobs ignore it
        "sys.exit(main(sys.argv[1:]))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program, "train", *flags, "--out", str(out), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def stop_at(process, out, iteration, how):
    """Send the signal once the metrics hold `iteration` lines; return what the process said."""
    deadline = time.monotonic() + DEADLINE_S
    lines = 0
    while lines < iteration:
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        try:
            process.wait(0.005)
        except subprocess.TimeoutExpired:
            metrics = RunFolder(out).metrics
            lines = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
    process.send_signal(how)
    return process.communicate(timeout=DEADLINE_S)


@pytest.mark.slow
def test_killed_at_any_moment_a_run_goes_on_as_the_same_run(long, tmp_path):
    process = begin(tmp_path)
    stop_at(process, tmp_path, 5, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    done = len(RunFolder(tmp_path).history())
    assert checkpoint.load(RunFolder(tmp_path).checkpoint)["iteration"] >= done - 1
    assert done < LONG.iterations
    train(replace(LONG, out=tmp_path), resume=True)
    assert_same_run(long, tmp_path)


@pytest.mark.slow
def test_ctrl_c_leaves_a_run_that_can_be_resumed(long, tmp_path):
    out = tmp_path / "a run"
    process = begin(out)
    said, complained = stop_at(process, out, 3, signal.SIGINT)
    assert process.returncode == 130, complained
    line = next(line for line in said.splitlines() if line.startswith("stopped; the run is saved."))
    command = shlex.split(line.partition("Resume it with: ")[2])
    assert command == [sys.executable, "-m", "gem", "train", "--out", str(out), "--resume"]
    assert len(RunFolder(out).history()) < LONG.iterations
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "trained, sampled" in done.stdout
    assert (out / "curve.png").stat().st_size > 10_000
    assert_same_run(long, out)


# -- what does not fit together


def test_a_run_is_not_overwritten(whole):
    out, _ = whole
    with pytest.raises(StoreError, match=r"holds a run already; .* overwrite=True"):
        train(replace(QUICK, out=out))
    with pytest.raises(BadArgument, match="choose one"):
        train(replace(QUICK, out=out), resume=True, overwrite=True)


def test_a_run_of_a_class_is_replaced_where_that_is_asked_for(tmp_path):
    class Own(GuessTheNumber):
        pass

    config = replace(QUICK, env=Own, out=tmp_path)
    first = train(config)
    RunFolder(tmp_path).best.write_text("of the first run")
    assert train(config, overwrite=True)["episodes"] == first["episodes"]
    assert not RunFolder(tmp_path).best.exists()


def test_a_run_goes_on_as_it_began(whole):
    out, _ = whole
    with pytest.raises(BadArgument, match="has another gamma, lr; a resumed run keeps its settings"):
        train(replace(QUICK, out=out, gamma=0.123, lr=1.0), resume=True)


def test_nothing_to_resume(tmp_path):
    with pytest.raises(StoreError, match="holds no run"):
        train(replace(QUICK, out=tmp_path), resume=True)


def test_a_checkpoint_of_another_vocabulary_or_shape_is_refused(whole):
    out, _ = whole
    state = checkpoint.load(RunFolder(out).checkpoint)
    policy = make_policy(QUICK)
    with pytest.raises(SchemaMismatch, match=r"belongs to vocabulary feed, this one is .* token ids mean"):
        load_weights(policy, {**state, "vocab_hash": "feed"}, "it")
    with pytest.raises(SchemaMismatch, match="it holds another shape of model"):
        load_weights(make_policy(replace(QUICK, width=32)), state, "it")
    load_weights(policy, state, "it")
    assert same_weights(policy.model.state_dict(), state["model"])


def test_a_trained_model_can_be_played(whole):
    out, summary = whole
    agent = trained_agent(out, temperature=0.0)
    jobs = [Job(Maker(QUICK.env, QUICK.env_kwargs), seed) for seed in range(40)]
    episodes = rollout(jobs, agent, limits=Limits(turn_tokens=QUICK.max_tokens))
    games = {(e.final_info["success"], e.final_observation) for e in episodes}
    assert sum(won for won, _ in games) == 4 * summary["greedy"]["success"]["mean"]


def test_a_trained_agent_samples_as_its_run_did(whole):
    out, _ = whole
    assert trained_agent(out).temperature == QUICK.temperature
    config = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(config | {"temperature": 0.3}))
    try:
        assert (trained_agent(out).temperature, trained_agent(out, 1.0).temperature) == (0.3, 1.0)
    finally:
        (out / "config.json").write_text(json.dumps(config))


def test_a_trained_agent_is_told_from_one_with_other_weights(whole):
    """So an evaluation is not resumed with the weights of after more training in the same folder."""
    out, _ = whole
    agent, same, other = (trained_agent(out) for _ in range(3))
    assert agent.info == same.info
    with torch.no_grad():
        next(other.model.parameters()).add_(1e-3)
    assert digest_weights(other.model) != digest_weights(same.model) == agent.info.sampling["weights"]
    agent.publish(3)
    assert "weights" not in agent.info.sampling


# -- episodes that broke


class Fragile(GuessTheNumber):
    """Breaks at the first step of every game with an even secret."""

    def play(self, move):
        if self.secret % 2 == 0:
            raise OSError("the server is gone")
        return super().play(move)


def make_trainer(config, log=None):
    """A trainer that stores nothing."""
    return make(replace(config, store="none"), log or Log())


def warmed(config, log=None):
    trainer = make_trainer(config, log)
    warm_up(trainer.policy, trainer.maker, seed=0, steps=12, batch=8, lr=2e-2, max_grad_norm=1.0)
    return trainer


@pytest.mark.system
def test_broken_episodes_leave_no_trace_in_the_update(tmp_path, registry):
    register(EnvSpec("test:Fragile", Fragile, QUICK.env_kwargs))
    config = replace(QUICK, out=tmp_path)
    log = Log()
    with_broken, without = warmed(config, log), warmed(config)
    good = without.sample()
    jobs = [Job("test:Fragile", seed) for seed in range(12)]
    broken = [e for e in rollout(jobs, with_broken.policy.agent) if not e.scored]
    assert broken
    assert broken[0].turns[0].token_ids
    before = {name: value.clone() for name, value in without.policy.model.state_dict().items()}
    mixed = [*broken[:2], *good[:7], *broken[2:], *good[7:]]
    assert repr(with_broken.learn(mixed)) == repr(without.learn(good))  # repr: NaN is NaN
    after = without.policy.model.state_dict()
    assert same_weights(with_broken.policy.model.state_dict(), after)
    assert not same_weights(before, after)
    assert log.warnings == [
        f"iteration 1: {len(broken)} of {len(mixed)} episodes have no verdict and are left out; the first: "
        f"{broken[0].error}"
    ]
    assert "the server is gone" in log.warnings[0]


@pytest.mark.system
def test_a_run_over_an_environment_that_breaks_now_and_then(tmp_path, registry):
    register(EnvSpec("test:Fragile", Fragile, QUICK.env_kwargs, max_turns=3))
    log = Log()
    summary = train(replace(QUICK, env="test:Fragile", out=tmp_path), watcher=log)
    history = RunFolder(tmp_path).history()
    assert all(0 < m.no_verdict < 16 for m in history)
    assert all(math.isfinite(m.success) and math.isfinite(m.loss) for m in history)
    assert 0.2 < summary["random"]["coverage"] < 0.8
    assert any("no verdict" in warning for warning in log.warnings)


class Broken(GuessTheNumber):
    def play(self, move):
        raise OSError("the server is gone")


def test_an_environment_that_always_breaks_is_said_at_once(tmp_path, registry):
    register(EnvSpec("test:Broken", Broken, QUICK.env_kwargs))
    with pytest.raises(NoVerdict, match=r"none of 8 episodes of test:Broken has .*the server is gone"):
        train(replace(QUICK, env="test:Broken", out=tmp_path))


def test_a_batch_that_all_broke_is_no_crash(tmp_path, registry):
    register(EnvSpec("test:Broken", Broken, QUICK.env_kwargs))
    log = Log()
    trainer = make_trainer(replace(QUICK, env="test:Broken", kl=0.0, out=tmp_path), log)
    warm = warmed(replace(QUICK, out=tmp_path))
    load_weights(trainer.policy, warm.learner.state(), "it")
    episodes = [e for e in trainer.sample() if not e.scored]
    assert not trainer.learn(episodes).positions
    metrics = trainer.summarise(episodes, Steps(), 0.0, 0.0)
    assert metrics.no_verdict == len(episodes) > 0
    assert all(math.isnan(x) for x in (metrics.success, metrics.reward, metrics.turns, metrics.loss))
    assert len(log.warnings) == 1


def test_a_policy_that_always_fails_is_told_and_left_alone(tmp_path, registry):
    register(EnvSpec("test:Echo", EchoEnv, {"turns": 1}, max_turns=1))
    log = Log()
    config = replace(QUICK, env="test:Echo", env_kwargs={}, warmup_steps=0, out=tmp_path)
    train(config, watcher=log)
    assert same_weights(weights(tmp_path), make_policy(config).model.state_dict())
    (warning,) = log.warnings  # told once, when it has lasted
    assert warning.startswith("iteration 3: ")
    assert "All returns were equal for 3 iterations" in warning
    history = RunFolder(tmp_path).history()
    assert all(m.success == 0 and math.isnan(m.loss) and m.tokens_trained == 0 for m in history)
    assert [m.lr for m in history] == [config.lr_at(number) for number in range(len(history))]


def test_divergence_and_entropy_are_weighed_where_no_return_differs(tmp_path, registry):
    """But not before the first step: a policy that is the reference has no divergence, only rounding."""
    register(EnvSpec("test:Echo", EchoEnv, {"turns": 1}, max_turns=1))
    config = replace(QUICK, env="test:Echo", env_kwargs={}, out=tmp_path)
    trainer = make_trainer(config)
    trainer.learner.reference = make_policy(replace(config, seed=1))
    episodes = trainer.sample()
    assert not trainer.learn(episodes).positions
    trainer.config = replace(config, entropy=0.01)
    assert trainer.learn(episodes).step_kl > 0
    trainer.config = config
    steps = trainer.learn(episodes)
    assert steps.kl > 0
    assert steps.loss == pytest.approx(config.kl * steps.kl * steps.sums["tokens"] / (2 * 16), rel=0.2)


# -- warm-up


@pytest.mark.system
def test_warm_up_learns_the_format(tmp_path):
    trainer = make_trainer(replace(QUICK, out=tmp_path))
    losses = []
    warm_up(
        trainer.policy, trainer.maker, seed=0, steps=40, batch=16, lr=2e-2, max_grad_norm=1.0,
        on_step=lambda step, loss: losses.append(loss),
    )  # fmt: skip
    assert losses[0] == pytest.approx(math.log(985), rel=0.2)
    assert losses[-1] < 1.0
    readable = [e for e in trainer.sample() if e.stop != "unreadable"]
    assert len(readable) > 8


def test_a_warm_up_whose_gradient_is_not_finite_ends(tmp_path):
    with pytest.raises(BadArgument, match=r"step \d+ of the warm-up: the gradient .* lower --warmup-lr"):
        train(replace(QUICK, warmup_lr=1e30, out=tmp_path))
    assert not RunFolder(tmp_path).checkpoint.exists()


def test_a_demonstration_is_learnt_as_far_as_the_context_goes():
    policy = TinyPolicy(TinyConfig(width=16, layers=1, heads=2, context=64), seed=0)
    losses = []
    how = {"seed": 0, "steps": 1, "batch": 8, "lr": 1e-3, "max_grad_norm": 1.0}
    warm_up(policy, Maker(QUICK.env), **how, on_step=lambda step, loss: losses.append(loss))
    assert math.isfinite(losses[0])
    policy = TinyPolicy(TinyConfig(width=16, layers=1, heads=2, context=32), seed=0)
    with pytest.raises(NoVerdict, match="no answer fits a context of 32 tokens"):
        warm_up(policy, Maker(QUICK.env), **how)


@pytest.mark.system
def test_a_run_warms_up_on_the_demonstrations_of_its_config(tmp_path):
    store = tmp_path / "demos.jsonl"
    write_demos(QUICK.env, store, episodes=32, kwargs=QUICK.env_kwargs)
    config = replace(QUICK, out=tmp_path / "run", demos=store, warmup_steps=40, warmup_batch=16, episodes=16)
    log = Log()
    train(config, watcher=log)
    assert "warm-up: on demonstrations" in log.stages
    assert RunFolder(config.out).read_config() == config
    trainer = make_trainer(config)
    with EpisodeStore(store) as demos:
        warm_up(
            trainer.policy, trainer.maker, seed=0, steps=40, batch=16, lr=2e-2, max_grad_norm=1.0, demos=demos
        )  # fmt: skip
    first = [episode.turns[0].action for episode in trainer.sample()]
    assert first.count("\\boxed{2}") > len(first) / 2  # as the solver begins; random play does in a quarter


@pytest.mark.system
def test_a_run_clones_the_play_of_the_solver(tmp_path):
    """Without RL, as with a store; the policy before and after is measured."""
    config = replace(QUICK, out=tmp_path, warmup_by="solver", warmup_steps=40, warmup_batch=16, episodes=0)
    log = Log()
    summary = train(config, watcher=log)
    assert "warm-up: on the solver's play" in log.stages
    assert summary["after"]["success"]["mean"] > summary["random"]["success"]["mean"] + 0.2


def test_a_solver_that_is_missing_is_named(tmp_path, registry):
    class Unsolved(EchoEnv):
        solve = Env.solve

    register(EnvSpec("test:Unsolved", Unsolved, {"turns": 1}, max_turns=1, solver="none"))
    config = replace(QUICK, env="test:Unsolved", env_kwargs={}, out=tmp_path / "run", warmup_by="solver")
    with pytest.raises(NoSolver, match=r"warmup_by is solver, and test:Unsolved has none"):
        train(config)
    assert not config.out.exists()


def test_an_empty_store_of_demonstrations_is_refused():
    with pytest.raises(BadArgument, match="store of demonstrations is empty; `gem-gym demos` writes some"):
        warm_up(
            make_policy(QUICK), Maker(QUICK.env), demos=[],
            seed=0, steps=1, batch=8, lr=1e-3, max_grad_norm=1.0,
        )  # fmt: skip


def test_random_play_that_breaks_is_no_demonstration(registry):
    register(EnvSpec("test:Broken", Broken, QUICK.env_kwargs))
    policy = make_policy(QUICK)
    with pytest.raises(NoVerdict, match=r"nothing to learn from among 8 played episodes: .*is gone"):
        warm_up(policy, Maker("test:Broken"), seed=0, steps=1, batch=8, lr=1e-3, max_grad_norm=1.0)


# -- without torch

ABSENT = """
import importlib.machinery, sys
class Found(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] == "torch" else super().find_spec(name, path, target)
sys.meta_path[:] = [Found if finder is importlib.machinery.PathFinder else finder for finder in sys.meta_path]
from gem.cli import main
sys.exit(main(sys.argv[1:]))
"""


def run_without_torch(*words):
    return subprocess.run([sys.executable, "-c", ABSENT, *map(str, words)], capture_output=True, text=True)


@pytest.mark.system
@pytest.mark.parametrize(
    ("words", "what"), [(["train"], "training"), (["oracle", "--env", "early"], "measuring a learn step")]
)
def test_without_torch_the_command_says_what_to_install(words, what, tmp_path):
    done = run_without_torch(*words, *(["--out", tmp_path / "run"] if words == ["train"] else []))
    assert done.returncode == 2
    assert f"{what} needs the torch package: {install_command('train')}" in done.stderr


@pytest.mark.system
@pytest.mark.parametrize("name", ["train", "oracle", "baseline", "report", "eval", "view"])
def test_no_help_needs_torch(name):
    done = run_without_torch(name, "--help")
    assert (done.returncode, "usage" in done.stdout.lower()) == (0, True), done.stderr


def test_what_is_no_run_is_refused_before_torch_is_asked_for(tmp_path):
    done = run_without_torch("eval", "game:Wordle-v0-easy", "--agent", tmp_path)
    assert done.returncode == 2
    assert "holds no run" in done.stderr


@pytest.mark.system
def test_an_agent_that_is_gone_ends_the_run_which_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    """The sampler hands the same error on; the iterations that were finished stand."""
    config = replace(QUICK, out=tmp_path / "run")
    log, called = Log(), TinyAgent.__call__

    def answers(self, asks):
        if len(log.iterations) == 2:
            raise AgentUnavailable("the model's server is gone")
        return called(self, asks)

    with monkeypatch.context() as patch:
        patch.setattr("gem.agents.tiny.TinyAgent.__call__", answers)
        with pytest.raises(AgentUnavailable, match="the model's server is gone"):
            train(config, watcher=log)
    assert log.iterations == [1, 2]
    train(config, resume=True, watcher=log)
    assert log.iterations == [1, 2, 3, 4]
    whole = replace(QUICK, out=tmp_path / "whole")
    train(whole)
    assert same_weights(weights(config.out), weights(whole.out))
