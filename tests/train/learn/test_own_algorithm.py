"""Algorithms, rewards and callbacks of one's own, in real runs of the tiny model and in the oracle."""

import json
import math
import re
import runpy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from records import episode, turn

torch = pytest.importorskip("torch")
import runs
from runs import QUICK, Log

from gem import cli
from gem.agents.tiny import TinyConfig
from gem.errors import BadArgument, NoVerdict
from gem.estimators import ALGORITHMS, Algorithm, compare_episodes, rloo
from gem.estimators.algorithms import make_view
from gem.record import SEAT, SeatEnd, StopReason
from gem.train.config import TrainConfig
from gem.train.learn import policy_gradient
from gem.train.learn.learner import Critic, Learner
from gem.train.learn.policy import TinyPolicy
from gem.train.learn.steps import Progress
from gem.train.learn.training import train
from gem.train.oracle import judge
from gem.train.report.callbacks import Callback
from gem.train.report.run_folder import RunFolder

OWN = """
import torch
from gem.estimators import Algorithm, compare_episodes, rloo
from gem.train.report.callbacks import Callback

def select(view):
    best = {}
    for group, turns in zip(view.groups, view.returns):
        best[group] = max(best.get(group, -9.0), turns[0])
    return [[turns[0] == best[group]] * len(turns) for group, turns in zip(view.groups, view.returns)]

def loss(logp, old, reference, advantage, mask):
    ratio = ((logp - old) * mask).sum(1).exp()
    return -ratio.clamp(0.5, 1.5) * advantage[:, 0]

BEST = Algorithm("best", lambda view: compare_episodes(view, rloo), group="task", defaults={"gamma": 1.0},
                 select=select, loss=loss, bias="learns from the best alone")
PLAIN = Algorithm("plain", lambda view: compare_episodes(view, rloo), group="task", loss=loss)

def shorter(episode, turns):
    return [(turn.reward or 0.0) - 0.1 * len(turn.token_ids) for turn in turns]

class Two(Callback):
    def on_iteration(self, metrics):
        return "two are enough" if metrics.iteration == 2 else None
"""


def test_the_selection_of_the_guide_takes_an_episode_without_turns(tmp_path):
    guide = (Path(__file__).parents[3] / "docs/guides/own_algorithm.md").read_text()
    (tmp_path / "best.py").write_text(re.search(r'title="best.py"\n(.*?)```', guide, re.S)[1])
    own = runpy.run_path(tmp_path / "best.py")
    view = SimpleNamespace(groups=("a", "a", "a", "a", "b"), returns=[[1.0, 2.0], [], [3.0], [2.0], []])
    assert own["ends"](view) == [[True, True], [], [True], [False], []]


@pytest.fixture(autouse=True)
def forgets(monkeypatch):
    monkeypatch.setattr("gem.naming._FOUND", {})


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GEM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path / "own.py"


def quick(**given):
    return replace(QUICK, **{"warmup_steps": 4, "episodes": 48, **given})


# -- in a run


@pytest.mark.system
def test_an_algorithm_of_a_file_trains_and_a_resumed_run_finds_it_and_tells_that_it_changed(own, tmp_path):
    config = quick(algorithm="own.py:BEST", warmup_steps=30, out=tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        train(config, watcher=Log(stop=2))
    stored = json.loads(RunFolder(config.out).config.read_text())
    assert stored["algorithm"] == "own.py:BEST"
    assert str(tmp_path) not in RunFolder(config.out).machine.read_text()
    own.write_text(OWN + "\n# a remark\n")
    log = Log()
    train(config, resume=True, watcher=log)
    changed = "the file of own.py:BEST changed since this run began; it goes on with the new one."
    assert changed in log.warnings
    history = RunFolder(config.out).history()
    assert [m.iteration for m in history] == [1, 2, 3]
    assert all(math.isfinite(m.loss) and m.step_kl > 0 and math.isnan(m.clipped) for m in history)


def test_a_stored_run_is_read_without_loading_what_it_names(own, tmp_path):
    config = TrainConfig.from_json(json.loads(json.dumps(quick(algorithm="no_such.py:X").to_json())))
    assert config.algorithm == "no_such.py:X"
    with pytest.raises(BadArgument, match=r"there is no file no_such.py"):
        train(replace(config, out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_the_defaults_of_an_algorithm_of_ones_own_are_those_of_the_run(own):
    assert TrainConfig.fit(algorithm="own.py:BEST").gamma == 1.0
    assert TrainConfig.fit(algorithm="own.py:BEST", gamma=0.5).gamma == 0.5
    odd = Algorithm("odd", lambda view: view.returns, defaults={"gama": 1.0})
    with pytest.raises(BadArgument, match=r"algorithm odd: defaults has 'gama'.*gamma"):
        TrainConfig.fit(algorithm=odd)
    odd = replace(odd, defaults={"lr": "fast"})
    with pytest.raises(BadArgument, match=r"algorithm odd: defaults has lr = 'fast'; Expected `float`"):
        TrainConfig.fit(algorithm=odd)
    with pytest.raises(BadArgument, match=r"batch is 16; own.py:BEST takes a multiple of group"):
        quick(algorithm="own.py:BEST", group=5)
    with pytest.raises(BadArgument, match=r"importance_cap is 2.0; own.py:BEST has a loss of its own"):
        quick(algorithm="own.py:BEST", importance_cap=2.0)


def test_a_value_given_in_python_keeps_its_place_beside_another_of_its_name():
    first, second = (Algorithm("twin", lambda view: view.returns) for _ in range(2))
    one, other = quick(algorithm=first), quick(algorithm=second)
    assert (one.algorithm, one.algorithm_value) == ("value:twin", first)
    assert other.algorithm_value is second
    assert quick(algorithm=first) == one
    assert quick(algorithm=ALGORITHMS["grpo"]).algorithm == "grpo"


# -- the learn step


class Kept(Learner):
    """Keeps the rows, the divisor and the gradient of each step."""

    def update(self, rows, objective, divisor):
        self.rows, self.divisor = list(rows), divisor
        return super().update(rows, objective, divisor)

    def step(self):
        self.found = [each.clone() for each in self.gradients if each is not None]
        return super().step()


def played(reward, group="0", sample=0):
    first = turn((11, 12), (13,), logprobs=(-5.1,))
    second = turn((11, 12, 13, 14), (15, 16), logprobs=(-5.2, -5.3), after=[first])
    first.reward, second.reward = 0.0, reward
    ends = {SEAT: SeatEnd(StopReason.SOLVED, True, False)}
    made = episode(first, second, stop=StopReason.SOLVED, ends=ends, group=group)
    made.sample = sample
    return made


def learnt(algorithm, rewards=(1.0, 0.0, 3.0), critic=False, **how):
    learner = Kept(
        TinyPolicy(TinyConfig(width=16, layers=1, heads=2), seed=0), critic=Critic(16) if critic else None
    )
    config = quick(algorithm=algorithm, kl=0.0, epochs=1, minibatch=0, gamma=1.0, **how)
    steps = policy_gradient.learn(
        learner, [played(reward, sample=i) for i, reward in enumerate(rewards)], config, Progress(0, 10)
    )
    return learner, steps


PLAIN = Algorithm("plain", lambda view: compare_episodes(view, rloo), group="task")


def surrogate(logp, old, reference, advantage, mask):
    ratio = (logp - old).exp()
    return -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)


@pytest.mark.parametrize("pass_tokens", [None, 3])
def test_a_loss_of_ones_own_that_is_the_surrogate_takes_the_same_step(pass_tokens):
    wanted, _ = learnt("rloo")
    found, steps = learnt(replace(PLAIN, loss=surrogate))
    assert all(torch.allclose(a, b, atol=1e-7) for a, b in zip(found.found, wanted.found, strict=True))
    assert any(float(each.abs().max()) > 1e-3 for each in wanted.found)
    assert steps.step_kl > 0


@pytest.mark.parametrize(("minibatch", "sizes"), [(0, [5, 5]), (2, [1, 2, 2] * 2)])
def test_a_minibatch_of_0_is_one_step_on_all_rows(monkeypatch, minibatch, sizes):
    taken = []
    update = Learner.update

    def count(learner, rows, objective, divisor):
        taken.append(len(rows))
        return update(learner, rows, objective, divisor)

    monkeypatch.setattr(Learner, "update", count)
    learner = Learner(TinyPolicy(TinyConfig(width=16, layers=1, heads=2), seed=0))
    config = quick(algorithm="reinforce", kl=0.0, epochs=2, minibatch=minibatch)
    policy_gradient.learn(learner, [played(float(i)) for i in range(5)], config, Progress(0, 10))
    assert taken == sizes


def test_a_loss_gets_rows_of_tokens_in_order():
    seen = []

    def loss(logp, old, reference, advantage, mask):
        seen.append((old, advantage, mask, reference))
        return -logp.sum(1)

    learnt(replace(PLAIN, loss=loss))
    ((old, advantage, mask, reference),) = seen
    assert reference is None
    assert old.tolist() == [pytest.approx([-5.1, -5.2, -5.3])] * 3
    assert mask.tolist() == [[1.0] * 3] * 3
    assert sorted(advantage[:, 0].tolist()) == pytest.approx([-2.0, -0.5, 2.5])


@pytest.mark.parametrize("given", [{}, {"kl_estimator": "k1"}, {"kl_reward": True}])
def test_a_loss_gets_the_reference_in_every_iteration(given):
    seen = []

    def loss(logp, old, reference, advantage, mask):
        seen.append((reference, logp.detach()))
        return -logp * advantage

    policy, reference = (TinyPolicy(TinyConfig(width=16, layers=1, heads=2), seed=0) for _ in range(2))
    learner = Learner(policy, reference=reference)
    config = quick(algorithm=replace(PLAIN, loss=loss), kl=0.1, epochs=1, minibatch=0, **given)
    for iteration in range(2):
        episodes = [played(reward, sample=i) for i, reward in enumerate((1.0, 0.0, 3.0))]
        policy_gradient.learn(learner, episodes, config, Progress(iteration, 10))
    (first, before), (second, after) = seen
    assert torch.allclose(first, before, atol=1e-5)
    assert not torch.allclose(second, after, atol=1e-5)
    assert torch.equal(first, second)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (
            lambda logp, *others: logp.sum(),
            r"returned a tensor of shape \(\); accepted: a loss for each token",
        ),
        (
            lambda logp, *others: logp[:1],
            r"shape \(1, 3\); accepted: a loss for each token, \(3, 3\), or for",
        ),
        (lambda logp, *others: 1.0, "returned 1.0; accepted"),
        (lambda logp, *others: logp.detach(), "a loss without gradient"),
        (lambda logp, *others: logp / 0, "returned -?inf; accepted: finite numbers where mask is 1"),
    ],
)
def test_a_loss_of_another_shape_is_refused(loss, message):
    with pytest.raises(BadArgument, match=rf"algorithm plain: loss\(logp, old, .*{message}"):
        learnt(replace(PLAIN, loss=loss))


def test_a_loss_whose_gradient_is_not_finite_ends_the_run_and_spoils_no_checkpoint(tmp_path):
    def rooted(logp, old, reference, advantage, mask):
        return 0.01 * (logp - logp.detach()).square().sqrt() - logp * advantage * mask

    with pytest.raises(BadArgument, match=r"iteration 1: the gradient is not .* loss of value:rooted"):
        train(quick(algorithm=replace(PLAIN, name="rooted", loss=rooted), entropy=0.01, out=tmp_path))
    assert all(each.isfinite().all() for each in runs.weights(tmp_path).values())
    assert not RunFolder(tmp_path).history()


@pytest.mark.parametrize(
    ("normalise", "divisor"), [("episode", 3), ("response", 3), ("constant", 6), ("turn", 2), ("token", 4)]
)
def test_a_divisor_counts_all_episodes_or_the_selected_turns_and_tokens(normalise, divisor):
    last = replace(PLAIN, select=lambda view: [[False, True], [False, False], [False, True]])
    settings = {"loss_constant": 2.0} if normalise == "constant" else {}
    learner, _ = learnt(last, normalise=normalise, **settings)
    assert learner.divisor == divisor


def test_only_selected_turns_are_learnt_and_the_divisor_keeps_the_others():
    last = replace(PLAIN, select=lambda view: [[False, True], [False, False], [False, True]])
    learner, _ = learnt(last)
    assert [item.source for item in sorted(learner.rows, key=lambda item: item.source)] == [0, 2]
    for item in learner.rows:
        assert [t for t, m in zip(item.row.turn, item.row.mask, strict=True) if m] == [1, 1]
    whole, _ = learnt(replace(PLAIN, select=lambda view: [[True] * 2] * 3))
    plain, _ = learnt(PLAIN)
    assert all(torch.equal(a, b) for a, b in zip(whole.found, plain.found, strict=True))


def test_a_selection_of_nothing_is_told(tmp_path):
    nothing = replace(
        PLAIN, name="nothing", select=lambda view: [[False] * len(each) for each in view.returns]
    )
    _, steps = learnt(nothing)
    assert (steps.selected, steps.positions) == (0.0, 0)
    log = Log()
    train(quick(algorithm=nothing, out=tmp_path), watcher=log)
    assert [metrics.selected for metrics in RunFolder(tmp_path).history()] == [0.0] * len(log.iterations)
    (told,) = [text for text in log.warnings if "select" in text]
    assert told.startswith(
        "iteration 1: `select` of the algorithm value:nothing chose no turn of the 16 episodes"
    )
    assert "so nothing was trained. Let it choose" in told
    assert not any("All returns were equal" in text for text in log.warnings)


@pytest.mark.parametrize("field", ["advantages", "select", "loss", "scale"])
def test_a_function_of_other_parameters_is_refused_with_its_own_and_its_file(field):
    with pytest.raises(BadArgument) as told:
        replace(PLAIN, **{field: lambda: 1.0})
    wanted = {"loss": "logp, old, reference, advantage, mask", "scale": "batch"}.get(field, "view")
    assert str(told.value).startswith(f"algorithm plain: {field} takes () (test_own_algorithm.py, line ")
    assert f"accepted: a function that can be called with ({wanted}): too many positional" in str(told.value)


def test_selected_turns_keep_the_notes_of_their_tokens():
    learner, steps = learnt(
        replace(PLAIN, critic=True, select=lambda view: [[False, True]] * 3), critic=True, importance_cap=2.0
    )
    assert all(len(item.stored_outputs["present"]) == 2 for item in learner.rows)
    assert math.isfinite(steps.value_error)


@pytest.mark.parametrize("name", ["values", "bootstraps"])
@pytest.mark.parametrize("read", [list, lambda values: values[0]])
def test_an_algorithm_that_reads_the_values_of_a_critic_needs_one(name, read):
    with pytest.raises(BadArgument, match="set critic=True in the Algorithm"):
        learnt(Algorithm("own", lambda view: read(getattr(view, name))))
    assert not make_view([played(1.0)], SEAT, 1.0).values  # who asks gets an answer


def test_a_critic_learns_lambda_returns_whatever_the_advantages_are():
    own = Algorithm(
        "own", lambda view: [[7.0 + turn for turn in range(len(v))] for v in view.values], critic=True
    )
    learner, _ = learnt(own, critic=True, whiten=False, lam=1.0)
    by_source = {item.source: item.targets for item in learner.rows}
    assert [by_source[0][t].advantage for t in (0, 1)] == [7.0, 8.0]
    assert [by_source[source][0].returns for source in range(3)] == pytest.approx([1.0, 0.0, 3.0])


# -- in the oracle


def test_the_oracle_judges_an_algorithm_of_a_file(own, capsys):
    bandit = ["oracle", "--env", "bandit", "--json", "--algorithm"]
    assert cli.main([*bandit, "own.py:PLAIN", "own.py:BEST"]) == 0
    plain, best = json.loads(capsys.readouterr().out)
    assert plain["verdict"] == "unbiased"
    assert plain["cosine"] == pytest.approx(1.0)
    assert best["verdict"] == "biased by design: learns from the best alone"
    assert cli.main([*bandit, "own.py:NONE"]) not in (0, cli.FAILED)
    assert "there is no 'NONE' in it" in capsys.readouterr().err


def test_an_algorithm_that_claims_no_bias_and_has_one_is_unexpected():
    wrong = replace(
        PLAIN, name="wrong", advantages=lambda view: [[x**2 for x in turns] for turns in view.returns]
    )
    (row,) = judge(("bandit",), (TrainConfig.fit(algorithm=wrong).algorithm,))
    assert row.verdict == "UNEXPECTED: biased"
    assert not row.expected


# -- rewards and callbacks


@pytest.mark.system
def test_a_reward_of_ones_own_is_what_is_learnt_from_and_not_what_is_shown(own, tmp_path):
    learner, _ = learnt("reinforce", reward="own.py:shorter")
    by_source = {item.source: item.targets for item in learner.rows}
    assert by_source[2][0].advantage == pytest.approx(3.0 - 0.3)
    assert by_source[2][1].advantage == pytest.approx(3.0 - 0.2)
    plain, own_reward = quick(out=tmp_path / "a"), quick(out=tmp_path / "b", reward="own.py:shorter")
    train(plain)
    train(own_reward)
    first, second = (RunFolder(config.out).history() for config in (plain, own_reward))
    assert first[0].reward == second[0].reward
    assert first[-1].loss != second[-1].loss
    with pytest.raises(BadArgument, match="another reward"):
        train(replace(own_reward, reward=""), resume=True)


def test_an_episode_without_a_reward_is_left_out_and_counted():
    calls = iter(range(3))

    def flaky(episode, turns):
        if next(calls) == 1:
            raise NoVerdict("the judge's server went away")
        return [1.0] * len(turns)

    learner, steps = learnt("reinforce", reward=flaky)
    assert {item.source for item in learner.rows} == {0, 1}
    assert len(steps.gaps) == 1
    assert {str(error) for error in steps.gaps.values()} == {"the judge's server went away"}


def test_a_reward_that_writes_into_the_turns_is_refused():
    def write(episode, turns):
        turns[0].reward = 7.0
        return [1.0] * len(turns)

    with pytest.raises(BadArgument, match="wrote into the rewards of turns"):
        learnt("reinforce", reward=write)


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (lambda episode, turns: [1.0], "returned 1 numbers for episode 0, which has 2 turns"),
        (lambda episode, turns: [math.nan, 0.0], "returned nan for episode 0"),
        (lambda episode, turns: 1.0, "accepted: for each of the 1 episodes a list"),
        (lambda episode, turns: episode.nothing, r"\(episode .*\) raised AttributeError: .*nothing"),
    ],
)
def test_a_reward_of_another_shape_is_refused(reward, message):
    with pytest.raises(BadArgument, match=f"reward value:<lambda>.*{message}"):
        learnt("reinforce", reward=reward)


def test_a_reward_or_callback_of_other_parameters_is_refused_before_the_run(own, tmp_path, capsys):
    (tmp_path / "odd.py").write_text(
        "from gem.train.report.callbacks import Callback\n\ndef reward(episode):\n    return []\n\n"
        "class Odd(Callback):\n    def on_episodes(self, episodes):\n        pass\n"
    )
    for flag, name, told in (
        (
            "--reward",
            "reward",
            r"reward odd.py:reward takes \(episode\) \(odd.py, line 3\); accepted: .*"
            r"\(episode, turns\)",
        ),
        (
            "--callback",
            "Odd",
            r"Odd: on_episodes takes \(episodes\) \(odd.py, line 7\); accepted: .*"
            r"\(episodes, iteration\)",
        ),
    ):
        assert cli.main(["train", flag, f"odd.py:{name}", "--out", "run"]) == cli.MISUSED
        assert re.search(told, capsys.readouterr().err)
        assert not (tmp_path / "run/metrics.jsonl").exists()


class Seen(Callback):
    def __init__(self, stop=None, failing=None):
        self.stop, self.failing, self.calls, self.before = stop, failing, [], None

    def begun(self, folder, config, history):
        self.before = len(history)

    def on_episodes(self, episodes, iteration):
        self.calls.append(("episodes", iteration, len(episodes)))

    def on_iteration(self, metrics):
        self.calls.append(("iteration", metrics.iteration))
        if metrics.iteration == self.failing:
            raise ValueError("broken")
        return "enough" if metrics.iteration == self.stop else None


@pytest.mark.system
def test_a_callback_sees_episodes_and_iterations_and_stops_the_run(tmp_path):
    seen, log = Seen(stop=2), Log()
    config = quick(callback=(seen,), out=tmp_path)
    summary = train(config, watcher=log)
    assert seen.calls == [("episodes", 1, 16), ("iteration", 1), ("episodes", 2, 16), ("iteration", 2)]
    assert summary["stopped_early"] == "enough (--callback value:Seen)"
    assert summary["episodes"] == 32
    again = Seen()
    summary = train(replace(config, callback=(again,)), resume=True)
    assert (again.before, again.calls) == (2, [])
    assert summary["stopped_early"] == "enough (--callback value:Seen)"  # an end stays an end


@pytest.mark.system
def test_an_error_of_a_callback_ends_the_run_and_the_run_can_go_on(tmp_path):
    config = quick(callback=(Seen(failing=2),), out=tmp_path)
    with pytest.raises(
        BadArgument, match=r"--callback value:Seen\S*: on_iteration raised ValueError: broken \(test_own"
    ):
        train(config)
    train(replace(config, callback=()), resume=True)
    assert [m.iteration for m in RunFolder(tmp_path).history()] == [1, 2, 3]


@pytest.mark.system
def test_callbacks_do_not_change_what_is_learnt(tmp_path):
    train(quick(out=tmp_path / "a"))
    train(quick(callback=(Seen(),), out=tmp_path / "b"))
    runs.assert_same_run(tmp_path / "a", tmp_path / "b")


@pytest.mark.system
def test_the_command_takes_all_three(own, tmp_path, capsys):
    args = ["--algorithm", "own.py:BEST", "--reward", "own.py:shorter", "--callback", "own.py:Two"]
    small = ["--episodes", "64", "--batch", "16", "--group", "4", "--width", "16", "--layers", "1"]
    few = ["--heads", "2", "--warmup-steps", "2", "--eval-episodes", "4", "--watch", "0", "--out", "run"]
    assert cli.main(["train", *args, *small, *few]) == 0
    assert "stopped early at iteration 2: two are enough (--callback own.py:Two)" in " ".join(
        capsys.readouterr().out.split()
    )
    assert cli.main(["train", "--out", "run", "--resume"]) == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--algorithm", "grop"], "accepted: reinforce, rebn"),
        (["--algorithm", "own.py"], "accepted: own.py:NAME"),
        (["--algorithm", "own.py:shorter"], "accepted: a gem.estimators.Algorithm"),
        (["--reward", "shorter"], "reward is 'shorter'; accepted: package.module:Attribute"),
        (["--reward", "own.py:longer"], "there is no 'longer' in it"),
        (["--callback", "own.py:BEST"], "accepted: a subclass of gem.train.Callback"),
    ],
)
def test_wrong_names_are_refused_before_a_model_is_loaded(own, args, message, capsys, tmp_path):
    assert cli.main(["train", *args, "--out", "run"]) != 0
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()
