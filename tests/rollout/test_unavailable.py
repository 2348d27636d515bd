"""An agent that can answer nobody ends the run; what has ended counts, and nothing else is touched."""

import asyncio
import gc
import threading

import pytest

from gem.agents.base import BaseAgent, BatchBroken
from gem.core import Env, Start, Step
from gem.errors import AgentUnavailable, NoVerdict
from gem.evals import evaluate
from gem.record import Reply
from gem.registry import EnvSpec, Maker
from gem.rollout import Conversation, EpisodeStore, Job, Runner, drive, play, rollout, rollout_async
from gem.testing.doubles import EchoEnv

GONE = "the server refuses the key"


class Short(Env):
    """Ends after as many turns as its seed says, and counts how many stand open."""

    standing = 0

    def __init__(self):
        super().__init__()
        type(self).standing += 1

    def reset(self, seed=None):
        super().reset(seed)
        self.turn = 0
        return Start("start", {})

    def step(self, action):
        self.turn += 1
        return Step("on", 1.0, self.turn > self.seed % 4, False, {"success": True})

    def close(self):
        type(self).standing -= 1
        super().close()


class Goes(BaseAgent):
    """Answers so many asks, then nobody any more."""

    def __init__(self, answers):
        self.left = answers
        self.forgotten = []
        self.asked = set()

    def reply(self, ask):
        self.asked.add(ask.episode)
        self.left -= 1
        if self.left < 0:
            raise AgentUnavailable(GONE)
        return Reply("x")

    def forget(self, episode):
        self.forgotten.append(episode)


class Batch(Goes):
    def __call__(self, asks):
        return [self.reply(ask) for ask in asks]


class Told(Goes):
    def __call__(self, asks):
        answers = []
        for ask in asks:
            try:
                answers.append(self.reply(ask))
            except AgentUnavailable as error:
                answers.append(error)
        raise BatchBroken(answers)


class Single(Goes):
    async def ask(self, ask):
        await asyncio.sleep(0)
        return self.reply(ask)


def batched(jobs, agent, **options):
    return rollout(jobs, agent, **options)


def one_by_one(jobs, agent, **options):
    return asyncio.run(rollout_async(jobs, agent, **options))


both = pytest.mark.parametrize("drive", [batched, one_by_one])
kinds = pytest.mark.parametrize("kind", [Batch, Told, Single])


@pytest.mark.system
@both
@kinds
@pytest.mark.parametrize("host", ["serial", "thread"])
@pytest.mark.parametrize("answers", [pytest.param(n, marks=pytest.mark.slow) for n in (0, 1)] + [25])
def test_what_has_ended_is_stored_and_the_rest_stays_unplayed(drive, kind, host, answers, tmp_path):
    jobs = [Job(Short, seed) for seed in range(40)]
    threads, done = set(threading.enumerate()), []
    with EpisodeStore(tmp_path / "store.jsonl") as store, kind(answers) as agent:
        with pytest.raises(AgentUnavailable, match=GONE):
            drive(jobs, agent, store=store, concurrency=8, host=host, on_episode=done.append)
        stored = list(store)
        assert all(episode.scored for episode in stored)
        assert [episode.id for episode in stored] == [episode.id for episode in done]
        assert len({episode.id for episode in stored}) == len(stored)
        assert len(stored) <= answers
        assert agent.asked <= set(agent.forgotten)
        assert len(agent.forgotten) == len(set(agent.forgotten)) <= len(stored) + 8
    gc.collect()
    assert Short.standing == 0
    assert set(threading.enumerate()) <= threads


@kinds
def test_a_stream_hands_on_what_has_ended_before_it_says_so(kind, tmp_path):
    async def paces(runner, jobs, seen):
        async for episode in runner.stream_async(jobs):
            seen.append(episode)

    def rounds(runner, jobs, seen):
        seen.extend(runner.stream(jobs))

    for pump in (rounds, lambda *given: asyncio.run(paces(*given))):
        seen, agent = [], kind(30)
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
        with agent, EpisodeStore(path) as store, Runner(agent, concurrency=6, store=store) as runner:
            with pytest.raises(AgentUnavailable, match=GONE):
                pump(runner, (Job(Short, seed) for seed in range(1000)), seen)
            assert [episode.id for episode in store] == [episode.id for episode in seen]
            assert seen
            agent.left = 10**6  # the server is there again
            assert [episode.seed for episode in runner.play([Job(Short, 7), Job(Short, 8)])] == [7, 8]
            assert len(store) == len(seen) + 2


@both
def test_one_of_several_agents_is_enough(drive, tmp_path):
    """An unreadable move ends this game at once, so the first seat alone is asked."""
    agents = {"player_0": Batch(5), "player_1": Batch(10**6)}
    with EpisodeStore(tmp_path / "store.jsonl") as store:
        with pytest.raises(AgentUnavailable, match=GONE):
            drive(
                [Job("multi:ConnectFour-v0", seed) for seed in range(9)], agents, store=store, concurrency=1
            )
        assert len(store) == 5
    assert all(agent.asked <= set(agent.forgotten) for agent in agents.values())


@both
def test_a_seat_whose_agent_is_gone_does_not_wait_for_the_other(drive):
    class Stuck(BaseAgent):
        async def ask(self, ask):
            await asyncio.Event().wait()

    agents = {"player_0": Single(0), "player_1": Stuck()}
    with pytest.raises(AgentUnavailable, match=GONE):
        drive([Job("multi:MatrixGame-v0", 0)], agents)
    for agent in agents.values():
        agent.close()


def test_evaluation_says_so_too_and_the_next_one_plays():
    agent = Batch(9)
    with Runner(agent, concurrency=4) as runner:
        with pytest.raises(AgentUnavailable, match=GONE):
            evaluate(runner, Maker(EnvSpec("test:Echo", EchoEnv)), episodes=50)
        agent.left = 10**6
        assert evaluate(runner, Maker(EnvSpec("test:Echo", EchoEnv)), episodes=5).coverage == 1.0
    with pytest.raises(AgentUnavailable, match=GONE):
        evaluate(Batch(9), Maker(EnvSpec("test:Echo", EchoEnv)), episodes=50)


@both
def test_an_environment_that_says_it_of_its_own_model_breaks_one_episode(drive):
    class Judged(Short):
        def step(self, action):
            if self.seed == 1:
                raise AgentUnavailable("the judge's key")
            return super().step(action)

    episodes = drive([Job(Judged, seed) for seed in range(3)], Batch(10**6))
    assert [episode.scored for episode in episodes] == [True, False, True]
    assert (episodes[1].error.boundary, episodes[1].error.type) == ("env", "AgentUnavailable")


def test_without_a_run_it_is_what_broke_the_episode():
    """A loop of one's own has nothing to stop: the caller decides."""

    def gone(asks):
        raise AgentUnavailable(GONE)

    env = Short()
    episode = drive(play(env, 1), ask=gone)
    assert (episode.scored, episode.error.type) == (False, "AgentUnavailable")
    with Conversation(env, 1) as talk:
        talk.fail(AgentUnavailable(GONE))
    assert (talk.episode.error.boundary, talk.episode.error.type) == ("agent", "AgentUnavailable")
    env.close()


def test_it_is_a_missing_verdict_like_others():
    assert issubclass(AgentUnavailable, NoVerdict)


def test_stored_episodes_whose_turn_it_was_are_yielded_before_the_error(tmp_path):
    class Switch(BaseAgent):
        gone = False

        def __call__(self, asks):
            if self.gone:
                raise AgentUnavailable(GONE)
            return [Reply("x") for _ in asks]

    agent, stored = Switch(), [Job(Short, seed) for seed in range(1, 30)]
    taken, seen = [], []

    def jobs():
        for job in [Job(Short, 0), *stored]:
            taken.append(job.seed)
            yield job

    with EpisodeStore(tmp_path / "e.jsonl") as store:
        with Runner(agent, store=store) as runner:
            runner.play(stored)
        agent.gone = True
        with (
            Runner(agent, store=store, resume=True, concurrency=2) as runner,
            pytest.raises(AgentUnavailable, match=GONE),
        ):
            seen.extend(episode.seed for episode in runner.stream(jobs()))
    assert taken == [0, *seen]
    assert len(seen) > 2
