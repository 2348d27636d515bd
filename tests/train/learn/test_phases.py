"""Later phases of a run: more episodes, with a step size and schedules of their own."""

import json
import shlex
from dataclasses import replace
from statistics import fmean

import pytest

torch = pytest.importorskip("torch")

from runs import QUICK, Log, figures, same_weights, weights

from gem.errors import BadArgument
from gem.rollout import EpisodeStore
from gem.train.command import command
from gem.train.config import TrainConfig
from gem.train.learn import checkpoint, steps
from gem.train.learn.phases import plan_phase
from gem.train.learn.training import load_policy, make_trainer, train
from gem.train.report.callbacks import Callback
from gem.train.report.run_folder import RunFolder
from gem.viewer.report import write_report

SHORT = replace(QUICK, episodes=32, eval_every=1, held_out=8)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    out = tmp_path_factory.mktemp("first")
    train(replace(SHORT, out=out))
    return out


def copy(first, out):
    """A run of one phase, whose files may be added to."""
    out.mkdir()
    for file in first.iterdir():
        if file.is_file():
            (out / file.name).write_bytes(file.read_bytes())
    return RunFolder(out)


def contents(run):
    return {file.name: file.read_bytes() for file in run.path.iterdir() if file.is_file()}


def go_on(run, watcher=None, **changed):
    before = run.newest_phase
    config = plan_phase(run, before, replace(before.read_config(), **changed))
    return train(config, phase_of=before.path, watcher=watcher)


@pytest.mark.system
def test_a_phase_leaves_the_files_of_the_first_as_they_are(first, tmp_path):
    run = copy(first, tmp_path / "run")
    before = contents(run)
    summary = go_on(run, episodes=64, lr=5e-3, lr_ramp=1, kl=0.2, kl_schedule="constant")
    assert contents(run) == before
    (phase,) = run.later_phases
    assert phase.path == run.path / "phases" / "phase-2"
    history = phase.history()
    assert [m.iteration for m in history] == [3, 4]
    assert [m.episodes for m in history] == [48, 64]
    assert {m.phase for m in history} == {"phase-2"}
    assert [m.lr for m in history] == pytest.approx([5e-3 / 2, 5e-3 / 2])  # its ramp, then half of the fall
    assert [each.iteration for each in phase.evaluated()] == [2, 3, 4]
    assert summary["episodes"] == 64
    assert summary["random"] == json.loads(run.summary.read_text())["random"]
    assert same_weights(
        checkpoint.load(phase.reference)["model"], weights(run.path)
    )  # the start of the phase
    stored = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    assert all("phase" not in line for line in stored)
    page = write_report([run.path], tmp_path / "page.html").read_text()
    assert "phase phase-2 begins: lr 0.005" in page
    assert "Iterations</dt><dd>4<" in page
    policy = load_policy(run.path)  # the run's agent is that of its newest phase
    assert same_weights(dict(policy.model.named_parameters()), weights(phase.path))


@pytest.mark.system
def test_a_phase_that_changes_nothing_plays_what_a_longer_run_would_have_played(first, tmp_path):
    """With constant schedules and no divergence a phase is the rest of one longer run."""
    same = {"kl": 0.0, "lr_schedule": "constant", "watch": 0}
    train(replace(SHORT, **same, episodes=64, out=tmp_path / "whole"))
    run = RunFolder(tmp_path / "run")
    train(replace(SHORT, **same, out=run.path))
    go_on(run, episodes=64)
    whole = figures(tmp_path / "whole")
    assert figures(run.path) == whole[:2]
    renamed = [
        line.replace("'phase': 'phase-2'", "'phase': ''") for line in figures(run.later_phases[0].path)
    ]
    assert renamed == whole[2:]
    versions = [
        [episode.policy_version for episode in EpisodeStore(each.episodes, read_only=True)]
        for each in (RunFolder(tmp_path / "whole"), run.later_phases[0])
    ]
    assert sorted(versions[1]) == sorted(versions[0])[32:]


@pytest.mark.system
def test_a_phase_is_resumed_exactly(first, tmp_path):
    whole, cut = (copy(first, tmp_path / name) for name in ("whole", "cut"))
    go_on(whole, episodes=80, kl=0.2)
    with pytest.raises(KeyboardInterrupt):
        go_on(cut, Log(stop=4), episodes=80, kl=0.2)
    words = [f"--out={cut.path}", "--resume"]
    assert command(words, "gem-gym train") == 0
    one, other = (run.later_phases[0].path for run in (whole, cut))
    assert figures(one) == figures(other)
    assert same_weights(weights(one), weights(other))


@pytest.mark.system
@pytest.mark.parametrize("kl_reward", [False, True])
def test_a_phase_begins_without_divergence_also_when_it_is_resumed(tmp_path, kl_reward):
    """Its policy is the reference: what is measured is rounding, which would become a step of full size."""
    pays = True

    def pay(episode, turns):
        return [float(pays) * len(turn.token_ids) for turn in turns]

    config = replace(SHORT, reward=pay, kl_reward=kl_reward, eval_every=0, held_out=200, out=tmp_path)
    train(config)
    pays = False
    phase = replace(config, episodes=80, out=tmp_path / "phases" / "phase-2")
    with pytest.raises(KeyboardInterrupt):
        train(phase, phase_of=tmp_path, watcher=Log(stop=4))
    train(phase, resume=True)
    assert [m.tokens_trained > 0 for m in RunFolder(tmp_path).history()] == [True] * 2
    assert [m.tokens_trained for m in RunFolder(phase.out).history()] == [0] * 3
    assert same_weights(weights(phase.out), weights(tmp_path))


def test_a_checkpoint_of_an_earlier_version_has_moved_where_a_step_was_taken(first):
    trainer = make_trainer(replace(SHORT, out=first))
    state = checkpoint.load(RunFolder(first).checkpoint)
    assert state.pop("moved") is True
    assert not trainer.learner.moved
    trainer.learner.load(state, "it")
    assert trainer.learner.moved


@pytest.mark.system
def test_the_command_adds_phases(first, tmp_path, capsys):
    run = copy(first, tmp_path / "run")
    before = contents(run)
    words = [f"--out={run.path}", "--resume"]
    assert command([*words, "--episodes=48", "--lr=0.002", "--phase=harder"], "gem-gym train") == 0
    assert command([*words, "--episodes=64", "--kl-schedule=cosine"], "gem-gym train") == 0
    assert [phase.phase_name for phase in run.later_phases] == ["harder", "phase-3"]
    assert run.newest_phase.read_config().lr == 0.002
    assert contents(run) == before
    (solver,) = [line for line in capsys.readouterr().out.splitlines() if "│ solver" in line][-1:]
    assert "100.0%" in solver  # measured in the first phase
    assert command([*words, "--episodes=64"], "gem-gym train") == 0  # it has ended, and is measured again
    with pytest.raises(BadArgument, match=r"lr=0.002, --resume was given 0.5; .* add a phase"):
        command([*words, "--lr=0.5"], "gem-gym train")
    with pytest.raises(BadArgument, match=r"Leave it out of the flags and configs, or start another run"):
        command([*words, "--algorithm=grpo"], "gem-gym train")
    with pytest.raises(BadArgument, match=r"episodes is 10, and the run in .* has played 64"):
        command([*words, "--episodes=10"], "gem-gym train")
    with pytest.raises(BadArgument, match=r"batch is 8, and the run in .* has 16; a later phase may change"):
        command([*words, "--episodes=99", "--batch=8"], "gem-gym train")
    for name in ("harder", "../x"):
        with pytest.raises(BadArgument, match="accepted: a name of letters"):
            command([*words, "--episodes=99", f"--phase={name}"], "gem-gym train")
    with pytest.raises(BadArgument, match="--phase names a later phase"):
        command([f"--out={tmp_path / 'new'}", "--phase=x"], "gem-gym train")


def test_a_phase_that_was_killed_before_its_first_checkpoint_begins_again(first, tmp_path):
    run = copy(first, tmp_path / "run")

    class Killed(Log):
        def stage(self, name):
            if name.startswith("phase"):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go_on(run, Killed(), episodes=48)
    assert run.newest_phase.path == run.path
    assert command([f"--out={run.path}", "--resume"], "gem-gym train") == 0
    assert [m.iteration for m in run.later_phases[0].history()] == [3]


class StopAt(Callback):
    """Ends a run after an iteration."""

    def __init__(self, iteration):
        self.iteration = iteration

    def on_iteration(self, metrics):
        return "enough" if metrics.iteration == self.iteration else None


@pytest.mark.system
def test_a_phase_goes_on_where_a_callback_ended_the_run(tmp_path):
    run = RunFolder(tmp_path / "run")
    summary = train(replace(SHORT, out=run.path, callback=(StopAt(1),)))
    assert summary["stopped_early"].startswith("enough")
    summary = go_on(run, episodes=48, callback=())
    assert (summary["episodes"], summary["stopped_early"]) == (48, None)
    (phase,) = run.later_phases
    assert checkpoint.load(phase.checkpoint)["stopped"] is None
    assert train(phase.read_config(), resume=True)["stopped_early"] is None
    summary = go_on(run, episodes=96, callback=(StopAt(4),))  # and may be ended again
    assert (summary["episodes"], summary["stopped_early"][:6]) == (64, "enough")


@pytest.mark.system
def test_a_run_that_ended_early_goes_on_to_its_planned_end(tmp_path):
    """The episodes are those that were planned, so only the phase's name says that there is one."""
    run = RunFolder(tmp_path / "run")
    train(replace(SHORT, out=run.path, target=0.0, patience=1))
    words = [f"--out={run.path}", "--resume", "--phase=rest"]
    assert command([*words, "--target=none", "--patience=0"], "gem-gym train") == 0
    (phase,) = run.later_phases
    assert (phase.phase_name, [m.iteration for m in phase.history()]) == ("rest", [1, 2])
    assert command(words, "gem-gym train") == 0  # it resumes this phase, and begins no other
    assert run.later_phases[1:] == []
    with pytest.raises(BadArgument, match=r"episodes is 32, and the run in .* has played 32"):
        command([*words[:2], "--phase=more"], "gem-gym train")


@pytest.mark.slow
def test_a_second_phase_still_learns(tmp_path):
    """Random play of 1..2 in two turns wins 75%; whoever remembers its first guess always wins."""
    config = TrainConfig(
        env_kwargs={"max_number": 2, "max_turns": 2, "reward": "sparse"},
        batch=128, minibatch=32, episodes=640, lr=3e-3, kl=0.03, width=32, layers=1, heads=2,
        warmup_steps=30, eval_episodes=400, watch=0, out=tmp_path,
    )  # fmt: skip
    before = train(config)
    run = RunFolder(tmp_path)
    after = go_on(run, episodes=4480)
    assert before["after"]["success"]["high"] < 0.95  # the first phase stopped early
    assert after["before"]["success"]["mean"] == pytest.approx(before["after"]["success"]["mean"], abs=0.06)
    assert after["after"]["success"]["low"] > before["after"]["success"]["high"]
    history = run.later_phases[0].history()
    assert fmean(m.reward for m in history[-5:]) > fmean(m.reward for m in history[:5])


@pytest.mark.system
def test_a_run_whose_gradient_was_not_finite_goes_on_with_the_command_that_it_names(tmp_path, monkeypatch):
    def estimate(logprob_N, reference_N, estimator):  # the gradient of a root at 0 is NaN
        gap_N = logprob_N - reference_N
        return gap_N.square() if estimator == "k2" else (logprob_N - logprob_N.detach()).square().sqrt()

    monkeypatch.setattr(steps, "kl_estimate", estimate)
    with pytest.raises(BadArgument, match=r"iteration 1: the gradient .* another --kl-estimator") as raised:
        train(replace(QUICK, kl_estimator="k3", kl=0.1, entropy=0.01, episodes=32, out=tmp_path))
    assert all(each.isfinite().all() for each in weights(tmp_path).values())
    words = shlex.split(str(raised.value).partition("gem-gym train ")[2].replace("NAME", "calm"))
    assert command([*words, "--kl-estimator", "k2"], "gem-gym train") == 0
    (phase,) = RunFolder(tmp_path).later_phases
    assert [metrics.iteration for metrics in phase.history()] == [1, 2]
