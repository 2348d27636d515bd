"""`Limits.policy_s` counts the agent's own time, alike in both drivers; one slow ask costs one episode."""

import asyncio
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gem.agents.base import BaseAgent
from gem.core import Env, Start, Step
from gem.errors import OutOfTime
from gem.record import Limits, Reply, StopReason
from gem.rollout import Job, rollout, rollout_async

TEN = range(10)
SLOW = 4  # which of the ten


def batched(jobs, agent, **options):
    return rollout(jobs, agent, **options)


def one_by_one(jobs, agent, **options):
    return asyncio.run(rollout_async(jobs, agent, **options))


both = pytest.mark.parametrize("drive", [batched, one_by_one])


class Three(Env):
    """Ends after three turns."""

    def reset(self, seed=None):
        super().reset(seed)
        self.turn = 0
        return Start("start", {})

    def step(self, action):
        self.turn += 1
        return Step("on", 1.0, self.turn == 3, False, {"success": True})


def number(ask):
    """Which of the ten jobs an ask is for: its key."""
    return int(ask.episode.split("-")[1])


def ten(env=Three):
    return [Job(env, seed, key=str(seed)) for seed in TEN]


def only_the_slow_one_is_late(episodes, on_time="none"):
    late = [place for place, each in enumerate(episodes) if each.stop is StopReason.TIME_LIMIT]
    assert late == [SLOW]
    assert [each.scored for each in episodes] == [n != SLOW or on_time == "scored" for n in TEN]
    if on_time == "none":
        assert (episodes[SLOW].error.boundary, episodes[SLOW].error.type) == ("agent", "OutOfTime")
    else:
        assert episodes[SLOW].error is None
    assert all(each.timing["policy_s"] < 1.0 for place, each in enumerate(episodes) if place != SLOW)


class Hangs(BaseAgent):
    """Never answers one of its asks."""

    at = 1

    async def ask(self, ask):
        if number(ask) == SLOW and ask.turn == self.at:
            await asyncio.Event().wait()
        await asyncio.sleep(0.001)
        return Reply("x")


class Computes(BaseAgent):
    """Computes over one of its asks, in the event loop, where nobody else gets a turn meanwhile."""

    async def ask(self, ask):
        await asyncio.sleep(0.001)
        if number(ask) == SLOW and ask.turn == 1:
            time.sleep(1.5)
        await asyncio.sleep(0.001)
        return Reply("x")


class Knows(BaseAgent):
    """Answers batches, and says for each answer how long it took."""

    def __call__(self, asks):
        return [Reply("x", policy_s=5.0 if number(ask) == SLOW else 0.01) for ask in asks]


class Keeps(BaseAgent):
    """Keeps its own time: the wait for its turn is none."""

    keeps_time = True

    async def ask(self, ask):
        if number(ask) == SLOW and ask.turn == 1:
            raise OutOfTime(f"more than {ask.policy_s} s")
        await asyncio.sleep(0.05)
        return Reply("x", policy_s=0.001)


@both
@pytest.mark.parametrize("on_time", ["none", "scored"])
@pytest.mark.parametrize("kind", [Hangs, Computes, Knows, Keeps])
@pytest.mark.system
def test_one_slow_ask_costs_its_own_episode_alone(kind, drive, on_time):
    with kind() as agent:
        episodes = drive(ten(), agent, limits=Limits(policy_s=1.0, on_time=on_time))
    only_the_slow_one_is_late(episodes, on_time)


@both
@pytest.mark.parametrize("host", ["serial", "thread"])
@pytest.mark.system
def test_what_environments_take_is_nobodys(drive, host):
    class Slow(Three):
        def step(self, action):
            if self.seed == SLOW:
                time.sleep(0.4)
            return super().step(action)

    class Quick(BaseAgent):
        async def ask(self, ask):
            await asyncio.sleep(0.001)
            return Reply("x")

    with Quick() as agent:
        episodes = drive(ten(Slow), agent, limits=Limits(policy_s=0.35), host=host)
    assert all(each.scored and each.timing["policy_s"] < 0.35 for each in episodes)
    assert episodes[SLOW].timing["env_s"] > 1.1


@both
def test_a_batch_of_one_agent_is_not_the_time_of_another(drive):
    """In a game of two, one seat's agent answers batches slowly, the other's asks one by one."""

    class Batches(BaseAgent):
        def __call__(self, asks):
            time.sleep(0.6)
            return [Reply("x", policy_s=0.0) for _ in asks]

    class Quick(BaseAgent):
        async def ask(self, ask):
            await asyncio.sleep(0.001)
            return Reply("x")

    with Quick() as quick:
        agents = {"player_0": quick, "player_1": Batches()}
        jobs = [Job("multi:MatrixGame-v0", seed) for seed in range(2)]
        episodes = drive(jobs, agents, limits=Limits(policy_s=0.5, turns=2))
    assert [each.scored for each in episodes] == [True, True]


@both
@pytest.mark.system
def test_of_several_seats_the_slow_one_costs_its_own_game_alone(drive):
    class Fine(BaseAgent):
        async def ask(self, ask):
            return Reply("x")

    with Hangs() as slow, Fine() as fine:
        slow.at = 0
        jobs = [Job("multi:MatrixGame-v0", seed, key=str(seed)) for seed in TEN]
        agents = {"player_0": slow, "player_1": fine}
        episodes = drive(jobs, agents, limits=Limits(policy_s=1.0, turns=3))
    only_the_slow_one_is_late(episodes)


@both
def test_the_seconds_of_the_seats_are_summed(drive):
    class Knows(BaseAgent):
        def __call__(self, asks):
            return [Reply("x", policy_s=0.4) for _ in asks]

    for limit, scored in ((0.9, True), (0.7, False)):
        limits = Limits(policy_s=limit, turns=1)
        (episode,) = drive([Job("multi:MatrixGame-v0", 0)], Knows(), limits=limits)
        assert episode.scored == scored


@settings(max_examples=30, deadline=None)
@given(
    took=st.lists(
        st.lists(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9, 2.0]), min_size=3, max_size=3),
        min_size=1,
        max_size=10,
    ),
    limit=st.sampled_from([0.0, 0.25, 0.95, 1.05, 10.0]),
    on_time=st.sampled_from(["none", "scored"]),
    concurrency=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    single=st.booleans(),
)
def test_both_drivers_judge_the_same_times_alike(took, limit, on_time, concurrency, single):
    def reply(ask):
        return Reply("x", policy_s=took[number(ask)][ask.turn])

    class Batch(BaseAgent):
        def __call__(self, asks):
            return [reply(ask) for ask in asks]

    class Single(BaseAgent):
        keeps_time = True

        async def ask(self, ask):
            return reply(ask)

    jobs = [Job(Three, seed, key=str(seed)) for seed in range(len(took))]
    limits = Limits(policy_s=limit, on_time=on_time)
    verdicts = []
    for drive, width in zip((batched, one_by_one), concurrency, strict=True):
        with (Single if single else Batch)() as agent:
            episodes = drive(jobs, agent, limits=limits, concurrency=width)
        verdicts.append(
            [
                (each.verdict, each.stop, len(each.turns), each.error, each.timing["policy_s"])
                for each in episodes
            ]
        )
    assert verdicts[0] == verdicts[1]
    for (verdict, stop, turns, _, _), times in zip(verdicts[0], took, strict=True):
        sums = [sum(times[: count + 1]) for count in range(3)]
        fits = sum(total <= limit for total in sums)
        assert (turns, stop is StopReason.TIME_LIMIT) == (fits, fits < 3)
        assert (verdict == "scored") == (fits == 3 or on_time == "scored")


def test_an_answer_that_comes_after_its_time_is_not_taken():
    class Stubborn(BaseAgent):
        async def ask(self, ask):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return Reply("late")

    with Stubborn() as agent:
        (episode,) = one_by_one([Job(Three, 0)], agent, limits=Limits(policy_s=0.05))
    assert (episode.stop, episode.turns) == (StopReason.TIME_LIMIT, [])


def test_an_agent_that_breaks_after_its_time_is_late_all_the_same():
    class Breaks(BaseAgent):
        async def ask(self, ask):
            try:
                await asyncio.Event().wait()
            finally:
                raise ValueError("on the way out")

    with Breaks() as agent:
        (episode,) = one_by_one([Job(Three, 0)], agent, limits=Limits(policy_s=0.05))
    assert (episode.stop, episode.error.type) == (StopReason.TIME_LIMIT, "OutOfTime")


@both
@pytest.mark.parametrize("policy_s", [None, 30.0])
def test_an_agents_own_timeout_and_cancellation_are_its_failures(drive, policy_s):
    class Fails(BaseAgent):
        async def ask(self, ask):
            if number(ask) == 0:
                async with asyncio.timeout(0.01):
                    await asyncio.Event().wait()
            if number(ask) == 1:
                raise asyncio.CancelledError
            return Reply("x")

    with Fails() as agent:
        episodes = drive(ten()[:3], agent, limits=Limits(policy_s=policy_s))
    assert [each.stop for each in episodes[:2]] == [StopReason.ERROR, StopReason.CANCELLED]
    assert episodes[0].error.type == "TimeoutError"
    assert episodes[2].scored
