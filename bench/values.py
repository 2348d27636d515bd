"""How often the intervals of `gem-gym value` contain the exact value. ``python -m bench.values``.

A uniform agent draws each action from a short list. So the value of a position is exact by enumeration: the
mean, over all actions, of the reward and the value of the position that they lead to, from copies of the
environment's state. Episodes of the same agent are then valued as `gem-gym value` does it, and each turn's
intervals of value and advantage are compared with the exact ones.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from typing import NamedTuple

from bench.common import choose_size, parse_args, table, write_json
from gem import make
from gem.agents.scripted import ScriptedAgent
from gem.core import Env
from gem.record import Ask, Episode
from gem.rollout import Job, Runner, turn_values
from gem.specs import TaskRef


class Game(NamedTuple):
    """A game, and the actions that the uniform agent draws from."""

    name: str
    task: TaskRef
    actions: tuple[str, ...]


GAMES = (
    Game(
        "guess 1 to 5, success",
        TaskRef("game:GuessTheNumber-v0", {"max_number": 5, "max_turns": 3, "reward": "sparse"}),
        tuple(rf"\boxed{{{number}}}" for number in range(1, 6)),
    ),
    Game(
        "guess 1 to 5, dense",
        TaskRef("game:GuessTheNumber-v0", {"max_number": 5, "max_turns": 3}),
        tuple(rf"\boxed{{{number}}}" for number in range(1, 6)),
    ),
    Game(
        "Hanoi, two disks",
        TaskRef("game:TowerofHanoi-v0", {"num_disks": 2, "max_turns": 5}),
        tuple(rf"\boxed{{{one} {other}}}" for one in "ABC" for other in "ABC" if one != other),
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=choose_size(100, 3))
    parser.add_argument("--samples", type=int, default=16)
    asked = parse_args(parser)
    rows = [measure_coverage(game, asked.episodes, asked.samples) for game in GAMES]
    title = f"exact values in 95% intervals of {asked.samples} continuations"
    table(title, [*rows[0]], [list(row.values()) for row in rows])
    write_json("values", rows)


def measure_coverage(game: Game, episodes: int, samples: int) -> dict[str, object]:
    """Return how many intervals of a game contain the exact value, and the exact advantage."""

    def draw(ask: Ask) -> str:
        return random.Random(ask.seed).choice(game.actions)

    turns = values = advantages = 0
    with Runner(ScriptedAgent(draw), host="serial") as runner:
        for episode in runner.play([Job(game.task, seed) for seed in range(episodes)]):
            truth = exact_values(game, episode)
            for each in turn_values(episode, runner, samples, salt=episode.seed):
                assert each.before is not None
                assert each.advantage is not None
                turns += 1
                gain = truth[each.turn + 1] - truth[each.turn]
                values += each.before.low - 1e-9 <= truth[each.turn] <= each.before.high + 1e-9
                advantages += each.advantage.low - 1e-9 <= gain <= each.advantage.high + 1e-9
    return {
        "game": game.name,
        "turns": turns,
        "value inside": f"{values / turns:.1%}",
        "advantage inside": f"{advantages / turns:.1%}",
    }


def exact_values(game: Game, episode: Episode) -> list[float]:
    """Return the uniform agent's exact mean return before each turn of an episode, and at its end."""
    with make(game.task.spec, **game.task.kwargs) as env:
        env.reset(seed=episode.seed)
        earned, found = 0.0, []
        for turn in episode.turns:
            found.append(earned + mean_return(env, game.actions))
            earned += float(env.step(turn.action or "").reward)
    return [*found, earned]


def mean_return(env: Env, actions: Sequence[str]) -> float:
    """Return the mean return of uniform play from an environment's present state."""
    state, total = env.get_state(), 0.0
    for action in actions:
        step = env.step(action)
        over = step.terminated or step.truncated
        total += float(step.reward) + (0.0 if over else mean_return(env, actions))
        env.set_state(state)
    return total / len(actions)


if __name__ == "__main__":
    main()
