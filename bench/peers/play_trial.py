"""What an episode costs in this checkout's gem, or in an earlier one's: run with PYTHONPATH set to it.

``python play_trial.py turn|memory|hosts``; prints JSON.
"""

import asyncio
import functools
import gc
import json
import sys
import time
import tracemalloc

from gem.core import Env, Start, Step
from gem.record import Limits, Reply
from gem.rollout import Job, rollout, rollout_async

try:
    from gem.rollout.episode import play
except ImportError:  # before there was a runner
    from gem.rollout.play import play
from gem.agents.base import BaseAgent

SMALLEST = "--smallest" in sys.argv
TURNS, PIECE = 50, 20


class Long(Env):
    """An episode of so many turns; it costs nothing itself."""

    def __init__(self, turns=TURNS, said=40):
        self.turns, self.said = turns, said

    def reset(self, seed=None):
        """Begin."""
        super().reset(seed)
        self.at = 0
        return Start("x" * self.said, {})

    def step(self, action):
        """Go on until so many turns are taken."""
        self.at += 1
        return Step(f"{self.at} " * (self.said // 3), 0.0, self.at == self.turns, False, {})


def reply(ask, shown=PIECE, sampled=PIECE):
    """Answer with tokens, whose prompt grows by `shown`."""
    base = 1000 + 400 * ask.turn
    prompt = (*ask.held, *range(base, base + shown))
    ids = tuple(range(base + shown, base + shown + sampled))
    return Reply(
        f"act {ask.turn} " * max(1, sampled // 4), prompt, ids, tuple(-1.0 - 1 / (1 + i) for i in ids)
    )


class Batch(BaseAgent):
    """Answers a batch with few tokens."""

    def __call__(self, asks):
        """Answer every ask alike."""
        return [Reply("a", (*ask.held, 1, 2, 3), (4, 5), (-0.1, -0.1)) for ask in asks]


def one(env, seed, answer):
    """Play an episode with nothing around it."""
    playing = play(env, seed, Limits())
    how, value = playing.send, None
    while True:
        try:
            wanted = how(value)
        except StopIteration as end:
            return end.value
        if type(wanted) is tuple:
            value = tuple(map(answer, wanted))
        else:
            value = getattr(env, wanted.verb)(*wanted.args)


def turn_us():
    """CPU microseconds of a turn of `play` alone, without tokens and with some, and of an episode beside."""
    figures, episodes = {}, 2 if SMALLEST else 40
    answers = {
        "text": lambda ask: Reply("a"),
        "tokens": lambda ask: Reply("a", (*ask.held, 1, 2, 3), (4, 5), (-0.1, -0.1)),
    }
    for name, answer in answers.items():
        spent = {4: float("inf"), 20: float("inf")}
        for _ in range(1 if SMALLEST else 15):
            for turns in spent:
                env = Long(turns)
                began = time.process_time()
                for seed in range(episodes):
                    one(env, seed, answer)
                spent[turns] = min(spent[turns], (time.process_time() - began) / episodes * 1e6)
        turn = (spent[20] - spent[4]) / 16
        figures[name] = {"turn_us": turn, "episode_us": spent[4] - 4 * turn}
    return figures


def memory():
    """MB of an episode of 400 tokens a turn, and the milliseconds of its training rows."""
    from gem.tokens.rows import rows

    figures = {}
    for turns in (2, 4) if SMALLEST else (10, 50, 200):
        gc.collect()
        tracemalloc.start()
        episode = one(Long(turns, 400), 1, lambda ask: reply(ask, 200, 200))
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        began = time.perf_counter()
        made = rows(episode)
        took = time.perf_counter() - began
        assert [len(row.ids) for row in made] == [400 * turns]
        figures[turns] = {"mb": held / 1e6, "rows_ms": took * 1e3}
    return figures


def hosts():
    """CPU microseconds of this process for a turn, and for an episode beside its turns, by host and pump."""
    figures = {}
    for host in ("serial", "thread", "process"):
        for name in ("rounds", "paces"):
            best = {2: float("inf"), 18: float("inf")}
            for _ in range(1 if SMALLEST else 5):
                for turns in best:
                    jobs = [Job(RECIPES[turns], seed) for seed in range(4 if SMALLEST else 256)]
                    began = time.process_time()
                    if name == "rounds":
                        rollout(jobs, Batch(), host=host, concurrency=128)
                    else:
                        asyncio.run(rollout_async(jobs, Batch(), host=host, concurrency=128))
                    best[turns] = min(best[turns], (time.process_time() - began) / len(jobs) * 1e6)
            turn = (best[18] - best[2]) / 16
            figures[f"{host}, {name}"] = {"turn_us": turn, "episode_us": best[2] - 2 * turn}
    return figures


RECIPES = {turns: functools.partial(Long, turns) for turns in (2, 18)}


if __name__ == "__main__":
    print(json.dumps({"turn": turn_us, "memory": memory, "hosts": hosts}[sys.argv[1]]()))
