import math
import random
from dataclasses import replace
from itertools import accumulate
from threading import Lock

import pytest
from fork_worlds import FarWalk, Forgetful, LambdaTable, Moody, SelfTable, SoloWalk, Walk

from gem.agents.random import RandomAgent
from gem.agents.scripted import ScriptedAgent
from gem.agents.solver import SolverAgent
from gem.core import Step
from gem.errors import BadArgument, ContractBroken, NoSolver
from gem.record import Limits, Reply, StopReason, Verdict, group_episodes
from gem.rollout import (
    Branch,
    Conversation,
    EpisodeStore,
    Job,
    Runner,
    branches,
    rollout,
    tree_search,
    turn_values,
)
from gem.rollout.forks import find_deciding_turn
from gem.specs import TaskRef, WrapperRef
from gem.statistics import Interval

GUESS = "game:GuessTheNumber-v0-easy"
HANOI = "game:TowerofHanoi-v0-easy"


def played(env=Walk, seed=3, agent=None, **limits):
    (episode,) = rollout([Job(env, seed)], agent or RandomAgent(), limits=Limits(**limits))
    return episode


def hashes(episodes):
    return [episode.transcript_hash() for episode in episodes]


class Drawing(ScriptedAgent):
    """Answers with the noise that it is asked with, as a model does."""

    def __init__(self):
        super().__init__(lambda ask: Reply(str(ask.seed % 2)))


# -- branches


@pytest.mark.system
@pytest.mark.parametrize("agent", [RandomAgent, Drawing])
def test_forks_are_the_same_episodes_on_every_host_copied_or_replayed(agent):
    whole = played()
    expected = None
    for host in ("serial", "thread", "process"):
        for env, fork in ((Walk, True), (Walk, False), (FarWalk, True)):
            with Runner(agent(), host=host, concurrency=8) as runner:
                jobs = branches(whole, [0, 2, 4], 4, env=env, fork=fork)
                restored = [bool(job.start.state) for job in jobs]
                assert restored == [env is Walk and fork] * 12
                episodes = runner.play(jobs)
            assert all(episode.scored for episode in episodes)
            expected = expected or hashes(episodes)
            assert hashes(episodes) == expected
    assert len(set(expected)) > 3


def test_forks_begin_as_the_episode_did_and_go_their_own_ways():
    whole = played(HANOI, 5)
    with Runner(RandomAgent()) as runner:
        episodes = runner.play(branches(whole, [1, 2], 8))
    groups = group_episodes(episodes)
    assert [len(group.episodes) for group in groups] == [8, 8]
    for turns, group in enumerate(groups, 1):
        for episode in group.episodes:
            assert [t.action for t in episode.turns[:turns]] == [t.action for t in whole.turns[:turns]]
            assert (episode.origin.episode, episode.origin.turns) == (whole.id, turns)
        assert len({episode.turns[turns].action for episode in group.episodes}) > 2
    ids = {episode.id for episode in episodes}
    assert len(ids) == 16


def test_forks_of_other_turns_and_salts_have_other_noise():
    whole = played(Walk, 3)
    told = {}
    for salt in (0, 1):
        for turn in (0, 1, 2):
            jobs = branches(whole, turn, 8, env=Walk, salt=salt)
            for name, agent in (("random", RandomAgent()), ("drawing", Drawing())):
                last = [e.turns[4].action for e in rollout(jobs, agent)]
                told.setdefault(name, []).append("".join(last))
    for found in told.values():
        assert len(set(found)) == 6


def test_an_episode_of_a_store_is_branched_at_and_so_are_its_branches(tmp_path):
    whole = played("game:Sudoku-v0-easy", 2)
    with EpisodeStore(tmp_path / "episodes.jsonl") as store:
        store.append(whole)
    with EpisodeStore(tmp_path / "episodes.jsonl", read_only=True) as store:
        (stored,) = store
    jobs = branches(whole, 2, 3)
    expected = rollout(jobs, RandomAgent())
    found = rollout(branches(stored, 2, 3), RandomAgent())
    assert hashes(found) == hashes(expected)
    assert [e.id.split("-", 1)[1] for e in found] == [e.id.split("-", 1)[1] for e in expected]
    (again,) = rollout(branches(found[0], 3, 1), RandomAgent())
    assert [t.action for t in again.turns[:3]] == [t.action for t in found[0].turns[:3]]


def test_an_episode_that_is_still_played_is_branched_at():
    with Conversation(GUESS, 3) as talk:
        talk.answer(r"\boxed{1}")
        for turns in (0, 1):
            for episode in rollout(branches(talk.episode, turns, 4), RandomAgent()):
                assert episode.scored
                assert episode.turns[0].action == r"\boxed{1}" or not turns
        with pytest.raises(BadArgument, match="after turn 2; accepted: 0 to 1"):
            branches(talk.episode, 2, 4)
        talk.answer(r"\boxed{2}")
        assert len(talk.episode.turns) == 3  # the conversation itself goes on undisturbed
        assert talk.asks


def test_an_episode_that_broke_is_branched_at_before_that():
    class Breaks(Walk):
        def step(self, action: str) -> Step:
            if self.turn == 3 and action == "break":
                raise RuntimeError("no more")
            return super().step(action)

    broken = played(Breaks, 3, ScriptedAgent(["1", "0", "1", "break"]))
    assert (broken.verdict, len(broken.turns)) == (Verdict.NONE, 4)
    episodes = rollout(branches(broken, 3, 4, env=Breaks), RandomAgent())
    assert all(episode.scored and len(episode.turns) == 5 for episode in episodes)
    with pytest.raises(BadArgument, match="accepted: 0 to 3"):
        branches(broken, 4, 4, env=Breaks)


def test_games_of_several_seats_are_replayed():
    whole = played("multi:ConnectFour-v0", 4)
    jobs = branches(whole, 3, 4)
    assert not any(job.start.state for job in jobs)
    for episode in rollout(jobs, RandomAgent()):
        assert episode.scored
        assert [t.action for t in episode.turns[:3]] == [t.action for t in whole.turns[:3]]


def test_a_game_of_one_seat_is_copied_as_an_environment_of_one_agent():
    whole = played(SoloWalk)
    copied = branches(whole, [0, 2], 3)
    assert all(job.start.state for job in copied)
    forks = rollout(copied, RandomAgent())
    assert hashes(forks) == hashes(rollout(branches(whole, [0, 2], 3, fork=False), RandomAgent()))
    assert [turn.action for turn in forks[-1].turns[:2]] == [turn.action for turn in whole.turns[:2]]
    assert whole.turns_of() == whole.turns
    assert [turn.info.get("turn") for turn in whole.exchanges()] == [None, 1, 2, 3, 4]
    assert whole.earned("agent") == whole.earned("p0") == whole.earned()
    with Runner(RandomAgent()) as runner:
        assert [value.lost for value in turn_values(whole, runner, 2)] == [0] * 5


def test_seats_that_act_at_the_same_time_are_not_parted():
    whole = played("multi:MatrixGame-v0", 4)
    assert all(each.scored for each in rollout(branches(whole, [0, 2, 4], 2), RandomAgent()))
    for inner in (3, [3, 4]):
        with pytest.raises(BadArgument, match=r"turn 3 of episode.*was simultaneous"):
            branches(whole, inner, 2)


@pytest.mark.parametrize("wrapper", ["concat", "concat_with_action", "episode_tracking"])
def test_wrapped_tasks_are_forked_likewise(wrapper):
    task = TaskRef(HANOI, wrappers=(WrapperRef(wrapper),))
    whole = played(task)
    copied = rollout(branches(whole, [1, 3], 4), RandomAgent())
    replayed = rollout(branches(whole, [1, 3], 4, fork=False), RandomAgent())
    assert all(episode.scored for episode in copied)
    assert hashes(copied) == hashes(replayed)


def test_what_cannot_be_copied_though_it_says_so_is_told():
    class Holding(Walk):
        def __init__(self):
            self.lock = Lock()

    whole = played(Holding)
    for turns in (0, 2, 4):
        with pytest.raises(BadArgument, match=r"cannot be copied .*fork=False"):
            branches(whole, turns, 2, env=Holding)
    assert all(e.scored for e in rollout(branches(whole, 2, 2, env=Holding, fork=False), RandomAgent()))


@pytest.mark.parametrize("host", ["serial", pytest.param("process", marks=pytest.mark.system)])
@pytest.mark.parametrize("env", [SelfTable, LambdaTable])
def test_forks_of_an_environment_that_refers_to_itself_act_on_themselves(env, host):
    whole = played(env)
    jobs = branches(whole, [1, 3], 4, env=env)
    assert [bool(job.start.state) for job in jobs] == [env is SelfTable] * 8
    with Runner(RandomAgent(), host=host) as runner:
        found = runner.play(jobs)
    assert all(episode.scored for episode in found)
    assert len({episode.reward() for episode in found}) > 1
    assert hashes(found) == hashes(
        rollout(branches(whole, [1, 3], 4, env=env, fork=False), RandomAgent(), host="serial")
    )


def test_a_state_that_no_worker_can_be_sent_is_replayed():
    class Holding(Walk):
        def reset(self, seed=None):
            self.pays = lambda action: float(action == "1")
            return super().reset(seed)

    whole = played(Holding)
    jobs = branches(whole, 2, 2, env=Holding)
    assert [job.start.state for job in jobs] == [None, None]
    assert all(episode.scored for episode in rollout(jobs, RandomAgent()))


@pytest.mark.parametrize(("env", "what"), [(Moody, "earned"), (Forgetful, "was shown")])
@pytest.mark.parametrize("fork", [True, False])
def test_an_episode_that_does_not_come_out_again_is_refused(env, what, fork):
    whole = played(env)
    with pytest.raises(ContractBroken, match=f"does not replay as recorded.*{what}"):
        branches(whole, 3, 4, env=env, fork=fork)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda e: setattr(e.turns[2], "observation", "Other rules."), "turn 2 was shown 'Other rules.'"),
        (lambda e: setattr(e.turns[1], "reward", 0.5), "turn 1 earned 0.5"),
        (lambda e: setattr(e.turns[1], "action", "\\boxed{1}"), "turn 1 earned"),
        (lambda e: setattr(e, "task", replace(e.task, seed=4)), "does not replay as recorded"),
    ],
)
def test_a_record_that_was_changed_is_refused(change, what):
    stored = played(GUESS, 0, ScriptedAgent([r"\boxed{2}", r"\boxed{9}", r"\boxed{4}", r"\boxed{8}"]))
    assert len(stored.turns) == 4
    change(stored)
    with pytest.raises(ContractBroken) as refused:
        branches(stored, 2, 4)
    assert what in str(refused.value)


def test_bad_arguments_are_told():
    whole = played(GUESS)
    for turns in (-1, 5, [0, 9], 1.5, "1", [None]):
        with pytest.raises(BadArgument, match="after turn"):
            branches(whole, turns, 2)
    with pytest.raises(BadArgument, match="samples is 0"):
        branches(whole, 1, 0)
    with pytest.raises(BadArgument, match=r"not be stored \(tokenizer\); pass env"):
        branches(replace(whole, task=replace(whole.task, opaque=("tokenizer",))), 1, 2)
    with pytest.raises(BadArgument, match="the seed of episode"):
        branches(replace(whole, task=replace(whole.task, seed=None)), 1, 2, env=GUESS)
    assert branches(whole, [], 2) == []


# -- values


def test_the_value_of_each_turn_is_the_mean_return_from_there():
    whole = played(Walk, 3, ScriptedAgent(["1", "0", "1", "1", "0"]))
    with Runner(RandomAgent()) as runner:
        values = turn_values(whole, runner, 200, env=Walk)
    # What is left is paid 1 with probability 1/2 each; what was taken stands.
    true = [2.5, 3.0, 2.5, 3.0, 3.5, 3.0]
    for value, before, after, action in zip(values, true, true[1:], "10110", strict=False):
        assert value.action == action
        assert value.before.low < before < value.before.high
        assert value.after.low <= after <= value.after.high
        assert value.advantage.low < after - before < value.advantage.high
        assert value.lost == 0
    assert len(values) == 5
    assert values[4].after == Interval(3.0, 3.0, 3.0, 1, 1, exact=True)
    assert values[0].after == values[1].before


@pytest.mark.system
def test_intervals_contain_the_exact_value_of_95_in_100_turns():
    values, gains = [], []
    for seed in range(60):
        whole = played(Walk, seed, ScriptedAgent(lambda ask: str(random.Random(ask.seed).randint(0, 1))))
        with Runner(RandomAgent()) as runner:
            found = turn_values(whole, runner, 8, env=Walk, salt=seed)
        earned = list(accumulate((turn.reward for turn in whole.turns), initial=0.0))
        true = [taken + (5 - turn) / 2 for turn, taken in enumerate(earned)]
        for each, before, after in zip(found, true, true[1:], strict=False):
            values.append(each.before.low <= before <= each.before.high)
            gains.append(each.advantage.low <= after - before <= each.advantage.high)
    assert len(values) == 300
    assert sum(values) >= 285
    assert sum(gains) >= 285


def test_rates_have_intervals_of_rates():
    rare = TaskRef(GUESS, {"reward": "sparse"})
    whole = played(rare, 3, ScriptedAgent([r"\boxed{1}"] * 4))
    with Runner(RandomAgent()) as runner:
        values = turn_values(whole, runner, 8)
    for value in values:
        assert 0 <= value.before.low < value.before.high <= 1
        assert value.advantage.low < value.advantage.mean <= value.advantage.high
        one, other, gain = value.after, value.before, value.advantage
        assert gain.mean == one.mean - other.mean  # its interval is that of two independent means
        assert gain.mean - gain.low == pytest.approx(math.hypot(one.mean - one.low, other.high - other.mean))
        assert gain.high - gain.mean == pytest.approx(math.hypot(one.high - one.mean, other.mean - other.low))
        assert gain.n == one.n + other.n
    assert values[-1].after.mean == 0


def test_returns_that_are_alike_leave_doubt():
    whole = played(Walk, 3, ScriptedAgent(["0", "1", "1", "1", "1"]))
    with Runner(ScriptedAgent(["0"] * 5)) as runner:
        values = turn_values(whole, runner, 8, env=Walk)
        surely = turn_values(played(Walk, 3, ScriptedAgent(["0"] * 5)), runner, 8, env=Walk)
    assert [value.before.mean for value in values] == [0, 0, 1, 2, 3]
    for value in values[2:]:
        assert 0 < value.before.low < value.before.mean < value.before.high < 4.5
        assert value.advantage.low < value.advantage.mean < value.advantage.high
    assert all(value.before.low == 0 < value.before.high < 1 for value in surely)


class TwoWays(Walk):
    """Two turns that earn 0.3 together, whatever was chosen."""

    def step(self, action: str) -> Step:
        shown, *_ = super().step(action)
        pays = (0.3 if action == "1" else 0.1) if self.turn == 1 else (0.0 if self.paid == 0.3 else 0.2)
        self.paid = pays
        return Step(shown, pays, self.turn == 2, False, {})


def test_ways_that_earn_the_same_but_for_rounding_decide_nothing():
    whole = played(TwoWays, 3, ScriptedAgent(["0"] * 2))
    with Runner(ScriptedAgent(["1"] * 2)) as runner:
        values = turn_values(whole, runner, 8, env=TwoWays)
    assert values[0].before.mean != values[0].after.mean
    assert values[0].advantage.mean == 0
    assert find_deciding_turn(values) is None


def test_behind_an_episode_that_was_cut_off_the_value_is_played_too():
    cut = played(Walk, 3, ScriptedAgent(["1", "1"]), turns=2)
    assert cut.stop is StopReason.TURN_LIMIT
    with Runner(RandomAgent()) as runner:
        values = turn_values(cut, runner, 100, env=Walk)
    assert len(values) == 2
    assert not values[1].after.exact
    assert values[1].after.low < 3.5 < values[1].after.high


def test_continuations_without_verdict_are_left_out():
    def answer(ask):
        if ask.turn == 1 and ask.seed % 2:
            raise RuntimeError("the server is gone")
        return Reply("1")

    whole = played(Walk, 3, ScriptedAgent(["0", "0", "1", "1", "1"]))
    with Runner(ScriptedAgent(answer)) as runner:
        values = turn_values(whole, runner, 12, env=Walk)
    assert 0 < values[0].lost < 12
    assert 0 < values[1].lost < 12
    assert [value.lost for value in values[2:]] == [0, 0, 0]
    assert [value.before.mean for value in values[:3]] == [5, 4, 3]
    assert values[0].before.n == 12 - values[0].lost
    with Runner(ScriptedAgent(lambda ask: 1 / 0)) as runner:
        values = turn_values(whole, runner, 3, env=Walk)
    assert [value.before for value in values] == [None] * 5
    assert [value.advantage for value in values] == [None] * 5
    assert values[4].after.mean == 3


def test_an_end_without_verdict_is_worth_nothing_that_is_known():
    episode = played(Walk, 3, ScriptedAgent(["0", "0", "1", "1", "1"]))
    assert episode.terminated
    episode.verdict = Verdict.NONE  # as a store may say of one whose grader broke later
    with Runner(RandomAgent()) as runner:
        last = turn_values(episode, runner, 4, env=Walk)[-1]
    assert last.before is not None
    assert (last.after, last.advantage) == (None, None)


def test_values_of_several_seats_or_of_one_sample_are_refused():
    with Runner(RandomAgent()) as runner:
        with pytest.raises(BadArgument, match="has several seats"):
            turn_values(played("multi:MatrixGame-v0"), runner)
        with pytest.raises(BadArgument, match="samples is 1; accepted: 2"):
            turn_values(played(GUESS), runner, 1)


# -- search


def solved_in(steps, seed, runner):
    """Whether whole episodes, begun again and again, solve it within so many steps."""
    sample = 0
    while steps > 0:
        (episode,) = runner.play([Job(HANOI, seed, sample=sample)])
        steps, sample = steps - len(episode.turns), sample + 1
        if episode.success:
            return True
    return False


@pytest.mark.system
def test_a_search_solves_what_its_agent_does_not_in_as_many_steps():
    with Runner(RandomAgent()) as runner:
        found = [tree_search(HANOI, seed, runner, samples=8, keep=4, steps=1000) for seed in range(8)]
        alone = [solved_in(max(1000, each.steps), seed, runner) for seed, each in enumerate(found)]
    assert sum(each.episode.success for each in found) >= 7
    assert sum(alone) <= 4


class Said(Walk):
    """Reads the last character of an action."""

    def step(self, action: str) -> Step:
        step = super().step(action[-1])
        step.info["parsed_action"] = action[-1]
        return step


def test_what_a_model_says_in_many_ways_is_one_candidate():
    asked = []

    def answer(ask):
        asked.append(ask.turn)
        return Reply(f"{ask.seed}: {'1' if ask.turn < 2 else ask.seed % 2}")

    with Runner(ScriptedAgent(answer)) as runner:
        found = tree_search(Said, 3, runner, samples=4, keep=4)
    assert found.episode.reward() == 5
    assert asked.count(1) == 8  # one position behind the first turn, where 4 texts would be 4


class Counted(Walk):
    """Counts the steps of all of its kind."""

    shared = ("steps",)
    steps = 0

    def step(self, action: str) -> Step:
        Counted.steps += 1
        return super().step(action)


class FarCounted(Counted):
    forkable = False


@pytest.mark.parametrize("env", [Counted, FarCounted])
@pytest.mark.parametrize("keep", [1, 3])
def test_the_steps_of_a_search_are_those_that_were_taken(env, keep):
    Counted.steps = 0
    with Runner(RandomAgent()) as runner:
        found = tree_search(env, 3, runner, samples=4, keep=keep)
    assert found.steps == Counted.steps
    assert found.episode.reward() == 5


def test_a_search_ends_where_its_steps_are_spent_or_nothing_has_a_verdict():
    with Runner(RandomAgent()) as runner:
        found = tree_search(Walk, 3, runner, samples=4, steps=1)
        assert found.steps == 20
        for wrong in ({"samples": 0}, {"keep": 0}, {"steps": 0}):
            with pytest.raises(BadArgument, match="accepted: 1 or more"):
                tree_search(Walk, 3, runner, **wrong)
        with pytest.raises(BadArgument, match="several seats"):
            tree_search("multi:MatrixGame-v0", 3, runner)
    with (
        Runner(ScriptedAgent(lambda ask: 1 / 0)) as runner,
        pytest.warns(UserWarning, match="ends at turn 0, where no episode has a verdict.*ZeroDivisionError"),
    ):
        assert tree_search(Walk, 3, runner, samples=4) == (None, 0)
    with Runner(SolverAgent()) as runner, pytest.raises(NoSolver):
        tree_search(Walk, 3, runner)


def test_a_search_is_the_same_again_and_on_another_host():
    found = []
    for host in ("serial", "serial", "thread"):
        with Runner(RandomAgent(), host=host) as runner:
            searched = tree_search(HANOI, 0, runner, samples=8, steps=300)
            found.append((searched.episode.transcript_hash(), searched.steps))
    assert found[0] == found[1] == found[2]


# -- the random actor's noise


def test_a_salt_is_other_noise_for_the_random_actor_too():
    jobs = [Job(Walk, 3, sample=sample, salt=salt) for salt in (0, 7) for sample in (0, 1)]
    found = rollout(jobs, RandomAgent())
    assert len({tuple(turn.action for turn in episode.turns) for episode in found}) == 4
    assert len({episode.turns[0].observation for episode in found}) == 1


def test_samples_of_a_restored_state_act_otherwise_each():
    with Walk() as env:
        env.reset(3)
        state = [env.step(env.sample_random_action()), env.get_state()][1]
    whole = played(Walk, 3)
    start = Branch(whole, 1, state)
    found = rollout([Job(Walk, 3, sample=sample, start=start) for sample in range(8)], RandomAgent())
    assert len({tuple(turn.action for turn in episode.turns) for episode in found}) > 4
