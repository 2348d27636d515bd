"""When the driver in rounds asks: on a host whose calls end one by one, with a clock of its own."""

from collections import deque

import pytest

from gem.agents.base import BaseAgent
from gem.core import Env, Start, Step
from gem.errors import WorkerDied
from gem.hosts import Host
from gem.hosts.base import Slot, carry_out
from gem.record import Reply
from gem.rollout import Job, Runner, flights, rounds


class Clock:
    """Time passes when it is read, by `tick`."""

    def __init__(self, tick=0.0):
        self.now, self.tick = 0.0, tick

    def __call__(self):
        self.now += self.tick
        return self.now


class Two(Env):
    """An episode of two turns."""

    def reset(self, seed=None):
        super().reset(seed)
        self.turn = 0
        return Start("go", {})

    def step(self, action):
        self.turn += 1
        return Step("on", 1.0, self.turn == 2, False, {"success": True})


class OneByOne(Host):
    """Carries out one call whenever somebody looks."""

    def __init__(self):
        super().__init__()
        self.slots, self.todo, self.submitted = {}, deque(), []
        self.alone, self.most_alone = set(), 0

    def _add(self, index, recipe, alone):
        self.slots[index] = Slot(recipe)
        self.alone |= {index} if alone else set()
        self.most_alone = max(self.most_alone, len(self.alone))

    def _remove(self, index):
        self.alone.discard(index)
        self.slots.pop(index).close()

    def _renew(self, index, recipe):
        self.slots[index] = Slot(recipe or self.slots[index].recipe)

    def _start(self, commands):
        self.submitted.append(len(commands))
        self.todo.extend(commands)

    def _collect_outcomes(self, at_least, timeout):
        command = self.todo.popleft()
        return [carry_out(self.slots[command[0]], command)]

    def _close(self):
        self.slots.clear()


class Agent(BaseAgent):
    """Takes its time."""

    def __init__(self, clock, takes_s):
        self.clock, self.takes_s, self.batches = clock, takes_s, []

    def __call__(self, asks):
        self.clock.now += self.takes_s
        self.batches.append(len(asks))
        return [Reply("a") for _ in asks]


@pytest.fixture
def played(monkeypatch):
    """Play two streams of 24 jobs; return the batches and the numbers of calls submitted together."""

    def play(tick, takes_s):
        clock = Clock(tick)
        monkeypatch.setattr(rounds, "perf_counter", clock)
        agent, host = Agent(clock, takes_s), OneByOne()
        with Runner(agent, host=host, concurrency=24) as runner:
            halves = []
            for _ in range(2):
                agent.batches, host.submitted = [], []
                episodes = runner.play([Job(Two, seed) for seed in range(24)])
                assert [episode.seed for episode in episodes] == list(range(24))
                halves.append((agent.batches, host.submitted))
        return halves

    return play


def test_all_that_is_ready_is_gathered_while_no_time_passes(played):
    first, second = played(tick=0.0, takes_s=0.0)
    assert first[0] == second[0] == [24, 24]


def test_a_quick_agent_is_not_kept_waiting_for_others(played):
    first, second = played(tick=rounds.GATHER_S, takes_s=0.0)
    assert first[0][0] == 24  # how quick it is was unknown
    assert max(first[0][1:]) < 4
    assert max(second[0]) < 4
    assert sum(second[0]) == 48


def test_what_a_slow_agent_gets_is_gathered_for_as_long_as_it_takes(played):
    _, second = played(tick=rounds.GATHER_S, takes_s=100 * rounds.GATHER_S)
    assert second[0] == [24, 24]
    _, second = played(tick=rounds.GATHER_S, takes_s=5 * rounds.GATHER_S)
    assert 4 <= max(second[0][:4]) <= 6


def test_a_few_begin_at_a_time_for_an_agent_that_is_quick(played):
    first, second = played(tick=0.0, takes_s=0.0)
    assert first[1][0] == 24
    assert second[1][0] == rounds.AT_ONCE
    _, second = played(tick=0.0, takes_s=rounds.GATHER_S)
    assert second[1][0] == 24


class Dies(Two):
    """Its worker dies."""

    def step(self, action):
        raise WorkerDied("killed")


def test_only_a_few_are_in_separate_workers_at_a_time(monkeypatch):
    monkeypatch.setattr(flights, "ALONE", 2)
    host = OneByOne()
    with Runner(Agent(Clock(), 0.0), host=host, concurrency=6, retries=2) as runner:
        played = runner.play([Job(Dies, seed) for seed in range(6)])
    assert {(episode.error.type, episode.attempt) for episode in played} == {("WorkerDied", 2)}
    assert host.most_alone == 2
    assert len(host) == 0
