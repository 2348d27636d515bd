import asyncio
import itertools
import signal
import threading
from functools import partial
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gem
from gem.agents.base import BaseAgent, BatchBroken
from gem.agents.random import RandomAgent
from gem.agents.scripted import ScriptedAgent
from gem.agents.solver import SolverAgent
from gem.core import Env, EnvWrapper, Start, Step
from gem.errors import BadArgument, EnvClosed, NoVerdict, UnknownArgument, UnknownEnv
from gem.history import HistoryPolicy
from gem.hosts.serial import Serial
from gem.hosts.threads import Threads
from gem.record import AgentInfo, Limits, Reply, StopReason, Verdict
from gem.registry import Maker
from gem.rollout import Branch, Job, Runner, paces, rollout, rollout_async, runner
from gem.sandbox.base import SandboxFailed
from gem.specs import TaskRef
from gem.wrappers.observation_wrapper import ObservationWrapper

EASY, HARD = "game:GuessTheNumber-v0-easy", "game:GuessTheNumber-v0-hard"


def batched(jobs, agent, **options):
    return rollout(jobs, agent, **options)


def one_by_one(jobs, agent, **options):
    return asyncio.run(rollout_async(jobs, agent, **options))


both = pytest.mark.parametrize("drive", [batched, one_by_one])


class Counting(BaseAgent):
    """Answers by a function of the ask alone, with token ids that grow as a model's would."""

    def __init__(self, answer=lambda ask: r"\boxed{5}"):
        self.answer = answer
        self.forgotten = []
        self.batches = []

    def __call__(self, asks):
        self.batches.append(len(asks))
        return [self.reply(ask) for ask in asks]

    def reply(self, ask):
        text = self.answer(ask)
        shown = "".join(message.text for message in ask.messages[len(ask.messages) - ask.fresh :])
        prompt_ids = ask.held + tuple(shown.encode("utf-8", "surrogatepass"))
        token_ids = (ask.seed % 251, *text.encode())
        return Reply(text, prompt_ids, token_ids, (-0.5,) * len(token_ids))

    def forget(self, episode):
        self.forgotten.append(episode)


def guess(ask):
    """Draw a guess from the seed of the ask; now and then something unreadable."""
    return rf"\boxed{{{ask.seed % 12}}}" if ask.seed % 7 else "I do not know"


class Brittle(Env):
    """Breaks where its seed says so."""

    def reset(self, seed=None):
        super().reset(seed)
        self.turn = 0
        if self.seed % 5 == 1:
            raise RuntimeError(f"reset {self.seed}")
        return Start("start", {})

    def step(self, action):
        self.turn += 1
        if self.seed % 5 == 2 and self.turn == 2:
            raise NoVerdict(f"step {self.seed}")
        return Step(f"turn {self.turn}", 0.25, self.turn == 4, False, {"success": True})


class Looping(Brittle):
    """Runs an event loop of its own."""

    def step(self, action):
        return asyncio.run(self._step(action))

    async def _step(self, action):
        return super().step(action)


@both
@pytest.mark.parametrize("host", ["serial", "thread"])
def test_an_environment_may_run_an_event_loop_of_its_own(drive, host):
    episodes = drive([Job(Looping, 3), Job(Looping, 4)], Counting(), host=host)
    assert [episode.reward() for episode in episodes] == [1.0, 1.0]


class Tail(EnvWrapper):
    """Puts a suffix around every other observation."""

    def on_start(self, start):
        return Start(start.obs, {**start.info, "suffix": "Think."})

    def on_step(self, step):
        return step if len(step.obs) % 2 else step._replace(info={**step.info, "suffix": "Go on."})


ENVS = (EASY, HARD, Maker(EASY, {"max_turns": 3}), Maker(HARD, {}, (Tail,)), Brittle)


def same(first, second):
    """Compare two lists of episodes in all but their timings."""
    assert [episode.transcript_hash() for episode in first] == [each.transcript_hash() for each in second]
    for one, other in zip(first, second, strict=True):
        for turn in (*one.turns, *other.turns):
            turn.timing = {}
        one.timing = other.timing = {}
        one.run = other.run
        assert one == other


@settings(max_examples=25, deadline=None)
@given(
    jobs=st.lists(
        st.builds(Job, st.sampled_from(ENVS), st.integers(0, 9), st.just("g"), st.integers(0, 2)), max_size=25
    ),
    concurrency=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    limits=st.sampled_from([Limits(), Limits(turns=2), Limits(tokens=30, turn_tokens=10)]),
    history=st.sampled_from([None, HistoryPolicy("concat"), HistoryPolicy("chat", window=2)]),
    agent=st.sampled_from(
        [Counting(guess), ScriptedAgent([r"\boxed{5}", r"\boxed{3}"]), RandomAgent(), SolverAgent()]
    ),
)
def test_both_drivers_give_identical_episodes_whatever_the_concurrency(
    jobs, concurrency, limits, history, agent
):
    first = batched(jobs, agent, concurrency=concurrency[0], limits=limits, history=history)
    second = one_by_one(jobs, agent, concurrency=concurrency[1], limits=limits, history=history)
    same(first, second)
    assert [episode.seed for episode in first] == [job.seed for job in jobs]


def test_all_hosts_give_identical_episodes_under_both_drivers():
    jobs = [Job(env, seed, sample=seed % 2) for seed in range(6) for env in ENVS[:3]]
    wanted = batched(jobs, Counting(guess), concurrency=4)
    for host in ("thread", "process"):
        for drive in (batched, one_by_one):
            same(drive(jobs, Counting(guess), concurrency=5, host=host), wanted)


@both
def test_each_episode_is_forgotten_once_however_it_ends(drive):
    agent = Counting()
    jobs = [Job(env, seed) for seed in range(6) for env in ENVS]
    episodes = drive(jobs, agent, concurrency=4, retries=0)
    assert sorted(agent.forgotten) == sorted({episode.id for episode in episodes})
    assert len(agent.forgotten) == len(jobs)
    assert {episode.stop for episode in episodes} == {
        StopReason.SOLVED,
        StopReason.TURN_BUDGET,
        StopReason.ERROR,
    }


def test_an_episode_holds_what_the_environment_said_and_paid():
    (episode,) = rollout([Job(EASY, 3)], Counting())
    env = gem.make(EASY)
    observation, _ = env.reset(seed=3)
    for turn in episode.turns:
        assert turn.observation == observation
        observation, reward, _, _, _ = env.step(turn.action)
        assert turn.reward == reward
    assert episode.final_observation == observation


def test_a_round_is_one_batch_of_every_episode_in_flight():
    agent = Counting(lambda ask: r"\boxed{99}")
    rollout([Job(EASY, seed) for seed in range(20)], agent, concurrency=10)
    assert agent.batches == [10] * 8


@both
def test_asks_of_one_moment_are_one_batch_for_an_agent_that_answers_batches(drive):
    agent = Counting(lambda ask: r"\boxed{99}")
    drive([Job(EASY, seed) for seed in range(16)], agent, concurrency=8)
    assert agent.batches == [8] * 8


@both
def test_a_batch_that_breaks_takes_only_its_own_episodes_along(drive):
    class Breaks(Counting):
        def __call__(self, asks):
            if any("-poison-" in ask.episode for ask in asks):
                self.batches.append(-len(asks))
                raise MemoryError(f"{len(asks)} at a time")
            return super().__call__(asks)

    agent = Breaks(lambda ask: "x")
    jobs = [Job(EASY, seed, key="poison" if seed == 5 else str(seed)) for seed in range(8)]
    episodes = drive(jobs, agent, concurrency=8)
    assert [episode.scored for episode in episodes] == [seed != 5 for seed in range(8)]
    assert (episodes[5].error.boundary, episodes[5].error.type) == ("agent", "MemoryError")
    assert episodes[5].error.message.startswith("1 at a time (test_runner.py, line ")
    assert agent.batches[:7] == [-8, 4, -4, -2, 1, -1, 2]
    wanted = drive([job for job in jobs if job.seed != 5], Counting(lambda ask: "x"))
    same([episode for episode in episodes if episode.seed != 5], wanted)


@both
def test_of_a_broken_batch_the_answered_asks_go_on(drive):
    class Half(Counting):
        def __call__(self, asks):
            answers = [
                ValueError("odd") if int(ask.episode.split("-")[1]) % 2 else Reply("x") for ask in asks
            ]
            raise BatchBroken(answers)

    episodes = drive([Job(EASY, seed, key=str(seed)) for seed in range(6)], Half())
    assert [episode.scored for episode in episodes] == [True, False] * 3
    assert episodes[1].error.type == "ValueError"


@both
def test_an_agent_that_answers_too_few_gives_no_verdict(drive):
    class Mute(Counting):
        def __call__(self, asks):
            return []

    (episode,) = drive([Job(EASY, 0)], Mute())
    assert (episode.verdict, episode.error.boundary) == (Verdict.NONE, "agent")
    assert "1 asks with 0 replies" in episode.error.message


class Watched(Brittle):
    """Keeps count of who was made and closed."""

    made: ClassVar[list] = []

    def __init__(self):
        self.closed = 0
        Watched.made.append(self)

    def close(self):
        self.closed += 1


@pytest.fixture(autouse=True)
def nobody_made_yet():
    Watched.made.clear()


@both
def test_environments_are_reused_and_the_broken_thrown_away_and_all_are_closed(drive):
    jobs = [Job(Watched, seed) for seed in (0, 3, 1, 4, 2, 5)]
    episodes = drive(jobs, Counting(), concurrency=1, retries=0)
    assert [episode.scored for episode in episodes] == [True, True, False, True, False, True]
    assert [env.closed for env in Watched.made] == [1, 1, 1]


@both
def test_no_more_environments_stand_at_a_time_than_episodes(drive):
    recipes = [partial(Watched) for _ in range(9)]
    standing = []
    drive(
        [Job(recipe, 0) for recipe in recipes],
        Counting(),
        concurrency=2,
        on_episode=lambda episode: standing.append(sum(not env.closed for env in Watched.made)),
    )
    assert len(Watched.made) == 9
    assert max(standing) <= 2
    assert all(env.closed == 1 for env in Watched.made)


@both
def test_an_unknown_id_is_told_before_anything_is_played(drive):
    with pytest.raises(UnknownEnv, match="Did you mean"):
        drive([Job(Watched, 0), Job("game:GuessTheNumbr-v0-easy", 0)], Counting(), concurrency=1)
    assert Watched.made == []


@both
def test_an_environment_that_nobody_could_make_is_the_callers_error(drive):
    agent = Counting()
    with pytest.raises(UnknownArgument, match="max_turnz"):
        drive([Job(Watched, 0), Job(Maker(EASY, {"max_turnz": 3}), 0), Job(Watched, 3)], agent, concurrency=3)
    assert all(env.closed == 1 for env in Watched.made)
    assert len(set(agent.forgotten)) == len(agent.forgotten)


@pytest.mark.parametrize(
    ("env", "seed", "message"),
    [(EASY, -1, "seed is -1"), (EASY, None, "seed"), (Brittle(), 0, "accepted: an id")],
)
def test_a_job_that_cannot_be_played_is_refused(env, seed, message):
    with pytest.raises(BadArgument, match=message):
        Job(env, seed)


def test_a_wrapper_that_assembles_the_history_shows_what_the_history_policy_shows():
    policy = HistoryPolicy("concat_with_action", window=3)
    wrapped = Maker(HARD, {}, (Tail, partial(ObservationWrapper, policy=policy)))
    raw = Maker(HARD, {}, (Tail,))
    prompts = []

    def note(ask):
        prompts.append([message.text for message in ask.messages])
        return guess(ask)

    rollout([Job(raw, seed) for seed in range(8)], Counting(note), history=policy, concurrency=1)
    expected, prompts = prompts, []
    rollout([Job(wrapped, seed) for seed in range(8)], Counting(note), concurrency=1)
    assert prompts == expected


@both
def test_an_environment_that_fails_to_start_gives_no_verdict(drive):
    class NoDocker(Env):
        def __init__(self):
            raise NoVerdict("the daemon is down")

    episodes = drive([Job(NoDocker, 0), Job(EASY, 0), Job(partial(NoDocker), 0)], Counting())
    assert [episode.scored for episode in episodes] == [False, True, False]
    assert (episodes[0].error.message, episodes[0].turns) == ("the daemon is down", [])
    assert episodes[0].spec.endswith(".NoDocker")
    assert episodes[2].spec == episodes[0].spec


@both
def test_a_concurrency_of_none_is_refused(drive):
    with pytest.raises(BadArgument, match="concurrency is 0"):
        drive([Job(EASY, 0)], Counting(), concurrency=0)


@both
@pytest.mark.parametrize("host", ["serial", "thread", "process"])
def test_no_jobs_are_no_episodes(drive, host):
    assert drive([], Counting(), host=host) == []


@both
def test_episodes_are_reported_as_they_finish(drive):
    seen = []
    episodes = drive(
        [Job(EASY, seed) for seed in range(9)], Counting(), on_episode=seen.append, concurrency=3
    )
    assert sorted(map(id, seen)) == sorted(map(id, episodes))


@both
def test_an_error_of_the_callers_own_function_ends_the_rollout_with_everything_closed(drive):
    agent = Counting()

    def complain(episode):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        drive([Job(Watched, 0) for _ in range(5)], agent, on_episode=complain, concurrency=3)
    assert sorted(agent.forgotten) == sorted(set(agent.forgotten))
    assert len(agent.forgotten) == 3
    assert all(env.closed == 1 for env in Watched.made)


def interrupt_in_agent(ask):
    if ask.turn == 1:
        raise KeyboardInterrupt
    return "x"


def interrupted(drive, env, answer):
    agent = Counting(answer)
    with pytest.raises(KeyboardInterrupt):
        drive([Job(env, 0) for _ in range(5)], agent, concurrency=3)
    assert len(agent.forgotten) == len(set(agent.forgotten)) == 3
    assert all(env.closed == 1 for env in Watched.made)


@both
@pytest.mark.parametrize(
    "answer", [interrupt_in_agent, lambda ask: signal.raise_signal(signal.SIGINT) or "x"]
)
def test_ctrl_c_closes_everything_and_goes_on_to_the_caller(drive, answer):
    interrupted(drive, Watched, answer)


def test_ctrl_c_in_an_environment_closes_everything_and_goes_on_to_the_caller():
    class Interrupted(Watched):
        def step(self, action):
            raise KeyboardInterrupt

    interrupted(batched, Interrupted, lambda ask: "x")


@pytest.mark.parametrize("impatient", [False, True])
def test_a_cancelled_rollout_closes_everything(impatient):
    class Cancels(Counting):
        async def ask(self, ask):
            self.batches.append(1)
            if len(self.batches) == 2:
                self.rolling.cancel()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if impatient:
                    self.rolling.cancel()  # again, while it is putting things away
                raise

    async def main():
        agent = Cancels()
        agent.rolling = asyncio.current_task()
        with pytest.raises(asyncio.CancelledError):
            await rollout_async([Job(Watched, 0) for _ in range(5)], agent, concurrency=2)
        return agent

    agent = asyncio.run(main())
    assert len(agent.forgotten) == len(set(agent.forgotten)) == 2
    assert all(env.closed == 1 for env in Watched.made)


@pytest.mark.parametrize("impatient", [False, True])
def test_a_cancelled_rollout_closes_its_host_when_nobody_listens_to_it(impatient, monkeypatch):
    class Guarded(Threads):
        listeners, disturbed = 0, False

        def ready(self, at_least=1, timeout=None):
            self.listeners += 1
            if resetting.is_set():
                listening.set()
            try:
                return super().ready(at_least, timeout)
            finally:
                self.listeners -= 1

        def close(self):
            Guarded.disturbed |= self.listeners > 0
            released.set()
            super().close()

    class Waits(Watched):
        def reset(self, seed=None):
            resetting.set()
            released.wait(20)
            return super().reset(seed)

    resetting, listening, released = threading.Event(), threading.Event(), threading.Event()
    monkeypatch.setattr(paces, "SERVE_S", 0.2)  # long enough to be met
    monkeypatch.setattr(runner, "make_host", lambda kind, call_s: Guarded(call_s))

    async def main():
        rolling = asyncio.create_task(rollout_async([Job(Waits, 0)], Counting(), host="thread"))
        await asyncio.to_thread(listening.wait, 20)
        rolling.cancel()
        await asyncio.sleep(0)
        if impatient:
            rolling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await rolling

    asyncio.run(main())
    assert listening.is_set()
    assert not Guarded.disturbed


def test_an_ask_that_is_cancelled_by_itself_cancels_its_episode_alone():
    class GivesUp(Counting):
        async def ask(self, ask):
            if "-one-" in ask.episode:
                raise asyncio.CancelledError
            return self.reply(ask)

    keys = ("nought", "one", "two")
    episodes = one_by_one([Job(EASY, seed, key=key) for seed, key in enumerate(keys)], GivesUp())
    assert [episode.stop is StopReason.CANCELLED for episode in episodes] == [False, True, False]


@pytest.mark.parametrize("on_time", ["none", "scored"])
def test_a_policy_over_its_time_is_cut_off(on_time, monkeypatch):
    now = [0.0]  # the first turn takes none of the policy's time, however busy the machine is
    monkeypatch.setattr("gem.agents.base.perf_counter", lambda: now[0])

    class Stuck(Counting):
        async def ask(self, ask):
            if ask.turn == 1:
                now[0] = 1.0
                await asyncio.Event().wait()
            return self.reply(ask)

    agent = Stuck(lambda ask: r"\boxed{99}")
    (episode,) = one_by_one([Job(EASY, 0)], agent, limits=Limits(policy_s=0.01, on_time=on_time))
    assert (episode.stop, episode.truncated, episode.scored) == (
        StopReason.TIME_LIMIT,
        True,
        on_time == "scored",
    )
    assert len(episode.turns) == 1
    assert agent.forgotten == [episode.id]


def test_the_time_of_others_is_not_the_policys():
    """A batch's time is shared by its asks; what environments take is nobody's."""

    class Clock:
        now = 0.0

    class SlowEnv(Brittle):
        def step(self, action):
            Clock.now += 100.0
            return super().step(action)

    class Thinks(Counting):
        def __call__(self, asks):
            Clock.now += 1.0
            return super().__call__(asks)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gem.agents.base.perf_counter", lambda: Clock.now)
        episodes = rollout([Job(SlowEnv, 0) for _ in range(3)], Thinks(), limits=Limits(policy_s=0.8))
    assert {(episode.stop, len(episode.turns)) for episode in episodes} == {(StopReason.TIME_LIMIT, 2)}
    assert [turn.timing["policy_s"] for turn in episodes[0].turns] == [1 / 3, 1 / 3]


@both
def test_a_call_that_hangs_gives_no_verdict_and_a_fresh_environment(drive):
    release = threading.Event()

    class Hangs(Env):
        def reset(self, seed=None):
            super().reset(seed)
            return Start("start", {})

        def step(self, action):
            if self.seed == 1:
                release.wait(60)
            return Step("end", 1.0, True, False, {"success": True})

    episodes = drive(
        [Job(Hangs, seed) for seed in (0, 1, 2)],
        Counting(),
        host="thread",
        concurrency=1,
        limits=Limits(call_s=0.2),
        retries=0,
        on_episode=lambda episode: release.set() if episode.seed == 2 else None,
    )
    assert [episode.scored for episode in episodes] == [True, False, True]
    assert (episodes[1].error.boundary, episodes[1].error.type) == ("host", "WorkerDied")
    assert episodes[1].turns[0].reward is None


@both
def test_a_killed_worker_process_gives_no_verdict_and_is_replaced(drive, tmp_path, monkeypatch):
    (tmp_path / "dying_env.py").write_text(
        "import os, signal\n"
        "from gem.core import Env, Start, Step\n"
        "class Dying(Env):\n"
        "    def reset(self, seed=None):\n"
        "        super().reset(seed)\n"
        "        return Start('start', {})\n"
        "    def step(self, action):\n"
        "        if self.seed == 1:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return Step('end', 1.0, True, False, {'success': True})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from dying_env import Dying

    agent = Counting()
    jobs = [Job(Dying, seed) for seed in (0, 1, 2, 3)]
    episodes = drive(jobs, agent, host="process", concurrency=1, retries=0)
    assert [episode.scored for episode in episodes] == [True, False, True, True]
    assert (episodes[1].error.boundary, episodes[1].error.type) == ("host", "WorkerDied")
    assert len(agent.forgotten) == 4


def test_threads_do_not_wait_for_the_slowest():
    """Episodes on quick environments finish while one waits: the agent is asked without it."""
    release = threading.Event()

    class Waits(Env):
        def reset(self, seed=None):
            super().reset(seed)
            self.turn = 0
            return Start("start", {})

        def step(self, action):
            self.turn += 1
            if self.seed == 0:
                assert release.wait(60)
            return Step("on", 1.0, self.turn == 3, False, {"success": True})

    finished = []

    def note(episode):
        finished.append(episode.seed)
        if len(finished) == 5:
            release.set()

    episodes = rollout([Job(Waits, seed) for seed in range(6)], Counting(), host="thread", on_episode=note)
    assert finished[-1] == 0
    assert all(episode.scored for episode in episodes)


# -- a runner that lives


@both
@pytest.mark.parametrize("error", [NoVerdict, SandboxFailed])
def test_what_infrastructure_broke_is_played_again_from_its_seed_and_both_attempts_are_stored(drive, error):
    class Flaky(Env):
        broke: ClassVar[set] = set()

        def reset(self, seed=None):
            super().reset(seed)
            return Start(f"start {self.rng.random()}", {})

        def step(self, action):
            if self.seed % 3 == 1 and self.seed not in self.broke:
                self.broke.add(self.seed)
                raise error("the container went away")
            return Step("end", 1.0, True, False, {"success": True})

    stored = Kept()
    episodes = drive([Job(Flaky, seed) for seed in range(6)], Counting(guess), store=stored)
    assert [(e.seed, e.scored, e.attempt) for e in episodes] == [(s, True, s % 3 == 1) for s in range(6)]
    assert sorted((e.seed, e.scored, e.attempt) for e in stored.episodes) == sorted(
        [(s, True, 0) for s in (0, 2, 3, 5)] + [(s, a == 1, a) for s in (1, 4) for a in (0, 1)]
    )
    first, again = (e for e in stored.episodes if e.seed == 4)
    assert (first.job, first.run) == (again.job, again.run)
    assert first.id != again.id
    assert first.turns[0].action == again.turns[0].action  # the same noise
    assert first.turns[0].token_ids == again.turns[0].token_ids


class Kept:
    """A store in memory."""

    def __init__(self):
        self.episodes = []

    def append(self, episode):
        self.episodes.append(episode)


@both
def test_an_agent_that_fails_is_not_asked_again_for_the_same_episode(drive):
    class Fails(Counting):
        def reply(self, ask):
            raise NoVerdict("the endpoint is down")

    agent, stored = Fails(), Kept()
    episodes = drive([Job(EASY, seed) for seed in range(3)], agent, store=stored, retries=5)
    assert [episode.attempt for episode in episodes] == [0, 0, 0]
    assert len(stored.episodes) == 3


def test_an_environment_with_a_bug_is_not_played_again():
    (episode,) = rollout([Job(Brittle, 1)], Counting(), retries=3)
    assert (episode.error.type, episode.attempt) == ("RuntimeError", 0)


@pytest.mark.system
@both
def test_the_neighbours_of_a_dead_worker_come_to_their_end(drive, tmp_path, monkeypatch):
    (tmp_path / "poisoned_env.py").write_text(
        "import os, signal\n"
        "from gem.core import Env, Start, Step\n"
        "class Poisoned(Env):\n"
        "    def reset(self, seed=None):\n"
        "        super().reset(seed)\n"
        "        self.turn = 0\n"
        "        return Start('start', {})\n"
        "    def step(self, action):\n"
        "        self.turn += 1\n"
        "        if self.seed % 3 == 1 and self.turn == 2:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return Step('on', 1.0, self.turn == 4, False, {'success': True})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from poisoned_env import Poisoned

    stored = Kept()
    jobs = [Job(Poisoned, seed) for seed in range(9)]
    episodes = drive(jobs, Counting(), host="process", store=stored)
    assert [episode.scored for episode in episodes] == [seed % 3 != 1 for seed in range(9)]
    assert {e.error.boundary for e in stored.episodes if e.error} == {"host"}
    assert all(episode.attempt == 1 for episode in episodes if not episode.scored)
    wanted = rollout([job for job in jobs if job.seed % 3 != 1], Counting(), host="serial")
    assert [e.transcript_hash() for e in episodes if e.scored] == [e.transcript_hash() for e in wanted]


def test_an_endless_stream_takes_no_more_jobs_than_there_is_room_for():
    taken = []

    def jobs():
        for seed in itertools.count():
            taken.append(seed)
            yield Job(Watched, 5 * seed)

    with Runner(Counting(), concurrency=4) as playing:
        stream = playing.stream(jobs())
        seen = [next(stream).seed for _ in range(10)]
        assert len(set(seen)) == 10
        assert len(taken) <= 10 + 2 * 4
        before = len(taken)
        stream.close()
        assert len(taken) == before
        again = list(playing.stream([Job(Watched, 0)]))
        assert [episode.scored for episode in again] == [True]
    assert len(Watched.made) <= 9
    assert all(env.closed == 1 for env in Watched.made)


def test_an_endless_stream_waits_for_its_caller():
    taken = []

    def jobs():
        for seed in itertools.count():
            taken.append(seed)
            yield Job(EASY, seed)

    async def main():
        with Runner(Counting(), concurrency=4) as playing:
            seen = []
            async for episode in playing.stream_async(jobs()):
                seen.append(episode.seed)
                for _ in range(200):  # more turns of the loop than these episodes need
                    await asyncio.sleep(0)
                if len(seen) == 1:
                    assert len(taken) > 1 + 4  # others began while the caller was busy
                if len(seen) == 10:
                    break
            assert len(taken) <= 10 + 3 * 4
            return seen

    assert len(set(asyncio.run(main()))) == 10


def test_jobs_are_added_while_a_stream_is_open():
    async def paced(playing):
        seen = []
        async for episode in playing.stream_async([Job(EASY, 0)]):
            seen.append(episode.seed)
            if len(seen) < 3:
                playing.submit(Job(EASY, len(seen)))
        return seen

    with Runner(Counting()) as playing:
        seen = []
        for episode in playing.stream([Job(EASY, 0)]):
            seen.append(episode.seed)
            if len(seen) < 3:
                playing.submit(Job(EASY, len(seen)))
        assert seen == [0, 1, 2]
        assert asyncio.run(paced(playing)) == [0, 1, 2]
        playing.submit(Job(EASY, 7))
        assert [episode.seed for episode in playing.stream()] == [7]
        with pytest.raises(UnknownEnv):
            playing.submit(Job("game:None-v0", 0))


def test_one_stream_at_a_time_and_none_after_the_end():
    with Runner(Counting()) as playing:
        stream = playing.stream([Job(EASY, 0), Job(EASY, 1)])
        next(stream)
        with pytest.raises(BadArgument, match="a stream of this runner is open"):
            next(playing.stream([Job(EASY, 2)]))
        assert len(list(stream)) == 1
    with pytest.raises(EnvClosed):
        next(playing.stream([Job(EASY, 2)]))


def test_environments_live_from_stream_to_stream_and_a_given_host_stays_open():
    with Serial() as host:
        with Runner(Counting(), host=host, concurrency=3) as playing:
            for _ in range(4):
                assert all(episode.scored for episode in playing.play([Job(Watched, 0) for _ in range(3)]))
        assert len(Watched.made) == 3
        assert all(env.closed == 1 for env in Watched.made)
        assert len(host) == 0
        rollout([Job(Watched, 0)], Counting(), host=host)
        assert len(host) == 0
    assert all(env.closed == 1 for env in Watched.made)


def test_idle_environments_are_capped():
    recipes = [partial(Watched) for _ in range(6)]
    with Runner(Counting(), concurrency=2) as playing:
        for recipe in recipes:
            playing.play([Job(recipe, 0)])
        assert sum(not env.closed for env in Watched.made) == 2


@both
def test_turns_carry_the_version_that_sampled_them(drive):
    versions = []

    class Learner(Counting):
        def __call__(self, asks):
            replies = super().__call__(asks)
            versions.extend([playing.version] * len(asks))
            playing.publish((playing.version or 0) + 1)
            return replies

    agent = Learner(lambda ask: r"\boxed{99}")
    with Runner(agent) as playing:
        playing.publish(3)
        if drive is batched:
            (episode,) = playing.play([Job(EASY, 0)])
        else:

            async def main():
                return [each async for each in playing.stream_async([Job(EASY, 0)])]

            (episode,) = asyncio.run(main())
    assert [turn.policy_version for turn in episode.turns] == versions == [3, 4, 5, 6]
    assert episode.policy_version == 3


def test_weights_need_an_agent_that_takes_them():
    with Runner(Counting()) as playing, pytest.raises(BadArgument, match="holds no model"):
        playing.publish(1, weights={})


def test_ids_are_unique_and_keys_the_same_after_a_restart():
    jobs = [
        Job(EASY, 3),
        Job(EASY, 3),
        Job(EASY, 3, sample=1),
        Job(EASY, 4),
        Job(HARD, 3),
        Job(EASY, 3, salt=1),
    ]
    first, second = rollout(jobs, Counting()), rollout(jobs, Counting())
    assert len({episode.id for episode in (*first, *second)}) == 2 * len(jobs)
    assert [episode.job for episode in first] == [episode.job for episode in second]
    keys = [episode.job for episode in first]
    assert keys[1] == f"{keys[0]}.1"
    assert keys[2] == keys[0]  # another sample of the same job
    assert len(set(keys)) == 5
    given = rollout(
        [Job(EASY, 1, key="mine"), Job(EASY, 2, key="mine"), Job(EASY, 2, key="mine", sample=1)], Counting()
    )
    assert [episode.job for episode in given] == ["mine", "mine.1", "mine"]
    assert given[0].id == f"{given[0].run.id}-mine-0-0"


def test_salt_is_other_noise_for_the_same_seed():
    def noise(salt):
        (episode,) = rollout([Job(EASY, 3, salt=salt)], Counting())
        assert episode.salt == salt
        return episode.turns[0].token_ids[0]

    assert noise(0) == noise(0)
    assert len({noise(salt) for salt in range(4)}) > 1


def test_a_job_brings_its_own_limits_history_and_agents():
    other = Counting(lambda ask: r"\boxed{7}")
    jobs = [
        Job(EASY, 1),
        Job(EASY, 1, limits=Limits(turns=1)),
        Job(EASY, 1, history=HistoryPolicy("concat")),
        Job(EASY, 1, agents=other),
        Job("multi:KuhnPoker-v0", 1, agents={"player_0": other, "player_1": RandomAgent()}),
    ]
    mine = Counting(lambda ask: r"\boxed{99}")
    with Runner(mine) as playing:
        plain, cut, concat, theirs, seats = playing.play(jobs)
    assert [turn.action for turn in plain.turns] == [r"\boxed{99}"] * 4
    assert (len(cut.turns), cut.stop, cut.run.limits) == (1, StopReason.TURN_LIMIT, Limits(turns=1))
    assert concat.run.history == HistoryPolicy("concat")
    assert theirs.turns[0].action == r"\boxed{7}"
    assert len({id(e.run) for e in (plain, cut, concat, theirs, seats)}) == 4  # who answers is told by name
    assert seats.run.seats["player_1"].agent == "RandomAgent"
    assert {turn.action for turn in seats.turns_of("player_0")} <= {r"\boxed{7}"}


def test_agents_of_several_jobs_get_their_asks_as_one_batch():
    one, two = Counting(lambda ask: "x"), Counting(lambda ask: "y")
    jobs = [Job(EASY, seed, agents=one if seed % 2 else two) for seed in range(8)]
    rollout(jobs, Counting())
    assert one.batches == two.batches == [4]


def test_a_job_goes_on_from_the_middle_of_an_episode():
    (whole,) = rollout([Job(EASY, 3)], Counting(lambda ask: r"\boxed{1}"))
    branch = Branch(whole, 2)
    again, other = rollout(
        [Job(EASY, 3, start=branch), Job(EASY, 3, start=branch, agents=Counting(lambda ask: r"\boxed{2}"))],
        Counting(lambda ask: r"\boxed{1}"),
    )
    assert again.transcript_hash() == whole.transcript_hash()
    assert [turn.prompt_ids for turn in again.turns] == [turn.prompt_ids for turn in whole.turns]
    assert [sum(turn.mask) > 0 for turn in again.turns] == [False, False, True, True]
    assert [turn.action for turn in other.turns] == [r"\boxed{1}"] * 2 + [r"\boxed{2}"] * 2
    assert (other.origin.episode, other.origin.turns) == (whole.id, 2)
    assert again.job != whole.job


def test_the_record_says_how_it_was_played():
    limits = Limits(turn_tokens=64)
    (episode,) = rollout([Job(EASY, 3)], RandomAgent(), limits=limits, history=HistoryPolicy("concat"))
    run = episode.run
    assert (run.agent, run.limits, run.history) == ("RandomAgent", limits, HistoryPolicy("concat"))
    assert run.versions["gem"] == gem.__version__
    with gem.make(episode.task) as env:
        observation, _ = env.reset()
        assert observation == episode.turns[0].observation


def test_another_stream_of_an_agent_with_another_model_is_another_run():
    class Learns(Counting):
        info = AgentInfo("Learns", "one")

    agent = Learns()
    with Runner(agent) as playing:
        (first,) = playing.play([Job(EASY, 0)])
        agent.info = AgentInfo("Learns", "two")
        (second,) = playing.play([Job(EASY, 0)])
    assert (first.run.model, second.run.model) == ("one", "two")


def test_where_environments_wait_they_live_on_threads():
    gem.register(gem.registry.EnvSpec("test:Waits-v0", Brittle, waits=True))
    try:
        for jobs, kind in (([Job(EASY, 0)], Serial), ([Job(EASY, 0), Job("test:Waits-v0", 0)], Threads)):
            with Runner(Counting()) as playing:
                playing.play(jobs)
                assert type(playing.host) is kind
    finally:
        del gem.registry.ENV_REGISTRY["test:Waits-v0"]


# -- a runner that is misused goes on, or says why it does not


@pytest.mark.parametrize("host", ["auto", "serial"])
def test_a_stream_that_could_not_begin_leaves_nothing_to_the_next(host):
    with Runner(Counting(guess), host=host) as player:
        with pytest.raises(UnknownEnv):
            player.play([Job(EASY, 1), Job("game:Nothing", 0)])
        assert [episode.seed for episode in player.play([Job(EASY, 2)])] == [2]


@pytest.mark.parametrize("agent", [None, "solver", SolverAgent, guess])
def test_what_is_no_agent_is_refused(agent):
    with pytest.raises(BadArgument, match="accepted: an Agent"):
        Runner(agent)


@pytest.mark.parametrize("job", [EASY, None])
def test_what_is_no_job_is_refused(job):
    with Runner(Counting()) as player, pytest.raises(BadArgument, match="a job is"):
        player.play([job])


@pytest.mark.parametrize("host", ["serial", "thread"])
@pytest.mark.parametrize("jobs", [4, 12])
@pytest.mark.parametrize("agent", [SolverAgent(), Counting(guess)])
def test_a_stream_whose_runner_is_closed_says_so(host, jobs, agent):
    async def paces():
        player = Runner(agent, host=host, concurrency=4)
        async for _ in player.stream_async(Job(EASY, seed) for seed in range(jobs)):
            player.close()

    def rounds():
        player = Runner(agent, host=host, concurrency=4)
        for _ in player.stream(Job(EASY, seed) for seed in range(jobs)):
            player.close()

    with pytest.raises(EnvClosed, match="the runner is closed"):
        rounds()
    with pytest.raises(EnvClosed, match="the runner is closed"):
        asyncio.run(paces())


def test_closing_twice_is_harmless_where_a_stream_was_left_and_the_host_stays():
    with Serial() as host:
        player = Runner(Counting(guess), host=host, concurrency=4)
        stream = player.stream(Job(HARD, seed) for seed in itertools.count())
        next(stream)
        stream.close()
        player.close()
        player.close()
        assert len(host) == 0


def test_a_recipe_that_cannot_travel_takes_no_place_away():
    with Runner(Counting(guess), host="process", concurrency=1) as player:
        player.play([Job(EASY, 0)])
        with pytest.raises(BadArgument, match="cannot be pickled"):
            player.play([Job(lambda: gem.make(EASY), 0)])
        assert len(player.play([Job(EASY, 1), Job(HARD, 1)])) == 2


def test_given_keys_that_look_like_those_with_an_ordinal_stay_apart():
    jobs = [Job(EASY, 0, key=key) for key in ("v1.1", "v1", "v1", "v1.1", "v1")]
    keys = [episode.job for episode in rollout(jobs, Counting(guess))]
    assert keys == ["v1.1", "v1", "v1.2", "v1.1.1", "v1.3"]


def test_two_streams_on_one_host_are_refused_while_calls_are_in_flight():
    gate = threading.Event()

    class Waits(Env):
        def reset(self, seed=None):
            super().reset(seed)
            assert seed == 0 or gate.wait(20)
            return Start("start", {})

        def step(self, action):
            return Step("end", 1.0, True, False, {})

    with Threads() as host:
        one = Runner(Counting(), host=host, concurrency=2)
        other = Runner(Counting(), host=host)
        stream = one.stream(Job(Waits, seed) for seed in range(2))
        next(stream)
        with pytest.raises(BadArgument, match="other calls are in flight"):
            other.play([Job(EASY, 0)])
        gate.set()
        assert len(list(stream)) == 1
        assert len(other.play([Job(EASY, 0)])) == 1


def test_an_agent_that_cancels_the_task_of_its_episode_ends_the_stream():
    class Cancels(BaseAgent):
        async def ask(self, ask):
            asyncio.current_task().cancel()
            await asyncio.sleep(0)
            return Reply("x")

    with pytest.raises(NoVerdict, match="cancelled the task"):
        one_by_one([Job(EASY, 0), Job(EASY, 1)], Cancels())


def test_a_runner_goes_on_after_a_stream_that_was_cancelled_twice():
    class Stubborn(Counting):
        async def ask(self, ask):
            self.asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.stopping.set()
                await asyncio.sleep(0.01)

    async def stream(player):
        async for _ in player.stream_async(Job(EASY, seed) for seed in range(4)):
            pass

    async def main():
        agent = Stubborn()
        agent.asked, agent.stopping = asyncio.Event(), asyncio.Event()
        with Runner(agent, concurrency=2) as player:
            task = asyncio.create_task(stream(player))
            for moment in (agent.asked, agent.stopping):
                await moment.wait()
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(agent.forgotten) == 2
            jobs = [Job(EASY, 0, agents=Counting(guess))]
            assert len([episode async for episode in player.stream_async(jobs)]) == 1

    asyncio.run(main())


def test_when_one_seat_fails_the_asks_of_the_others_do_not_outlive_the_episode():
    answered = []

    class Fails(BaseAgent):
        async def ask(self, ask):
            raise ValueError("no")

    class Thinks(BaseAgent):
        async def ask(self, ask):
            for _ in range(5):
                await asyncio.sleep(0)
            answered.append(ask.seat)
            return Reply("Rock")

    async def main():
        agents = {"player_0": Fails(), "player_1": Thinks()}
        (episode,) = await rollout_async([Job("multi:MatrixGame-v0", 0)], agents)
        return episode, asyncio.all_tasks() - {asyncio.current_task()}

    episode, tasks = asyncio.run(main())
    assert (episode.error.type, answered, tasks) == ("ValueError", ["player_1"], set())


@both
def test_an_episode_is_stored_whatever_its_agent_does_when_it_forgets(drive):
    class Fails(Counting):
        def forget(self, episode):
            raise RuntimeError("no cache")

    stored = Kept()
    with pytest.raises(RuntimeError, match="no cache"):
        drive([Job(EASY, 0)], Fails(guess), store=stored)
    assert len(stored.episodes) == 1


def test_the_limit_of_a_call_holds_on_a_given_host_too():
    release = threading.Event()

    class Hangs(Env):
        def reset(self, seed=None):
            super().reset(seed)
            release.wait(60)
            return Start("start", {})

    with Threads() as host:
        (episode,) = rollout([Job(Hangs, 0)], Counting(), host=host, limits=Limits(call_s=0.2), retries=0)
        release.set()
    assert (episode.error.boundary, episode.error.type) == ("host", "WorkerDied")


def test_a_task_that_waits_is_put_on_threads_as_its_id_would_be():
    spec = gem.registry.EnvSpec("test:Waits-v0", Brittle, waits=True)
    gem.register(spec)
    try:
        with Runner(Counting()) as playing:
            playing.play([Job(TaskRef("test:Waits-v0"), 0)])
            assert type(playing.host) is Threads
    finally:
        del gem.registry.ENV_REGISTRY["test:Waits-v0"]
