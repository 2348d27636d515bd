r"""Bridge to Gymnasium: its toy-text environments with text observations, as the family ``gymnasium:``.

The dynamics and the rewards are the package's. gem adds the rules and the state as text, actions by name,
a turn budget that the task states, and an expert that plans on the model that the rules describe.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from gem import seeding
from gem.core import Env, Start, Step
from gem.errors import UnknownEnv, check_least, did_you_mean
from gem.parsing import read_box
from gem.record import StopReason

_MOVES = {"left": 0, "down": 1, "right": 2, "up": 3}
_COMPASS = {"up": 0, "right": 1, "down": 2, "left": 3}
_NUMPY_SEEDS = 2**31


@dataclass(frozen=True, slots=True)
class ToyText:
    """The text form of one of the package's environments.

    `rules`: the task. `actions`: each word and its action number. `say`: returns the state as text, from the
    environment and its last observation. `won`: returns whether an end with this last reward is a success.
    `nothing`: the reward of a turn with an unreadable answer: that of the worst move, the fall from the cliff
    aside. The prompt says what it costs.
    """

    id: str
    rules: str
    actions: Mapping[str, int]
    say: Callable[[Any, Any], str]
    won: Callable[[float], bool]
    max_turns: int
    nothing: float = 0.0


def _write_grid(cells: list[list[str]], row: int, column: int, mark: str, between: str = " ") -> str:
    """Return a grid as text, with a mark in one cell."""
    cells[row][column] = mark
    return "\n".join(between.join(line) for line in cells)


def _decode_cells(env: Any) -> list[list[str]]:
    return [[cell.decode() for cell in line] for line in env.desc]


def _say_lake(env: Any, at: Any) -> str:
    cells = _decode_cells(env)
    board = _write_grid(cells, *divmod(int(at), len(cells[0])), "P")
    return f"{board}\n\nP is you, F is ice, H is a hole, G is the goal."


def _say_cliff(env: Any, at: Any) -> str:
    cells = [["C" if cliff else "." for cliff in line] for line in env._cliff]
    cells[-1][-1] = "G"
    board = _write_grid(cells, *divmod(int(at), len(cells[0])), "P")
    return f"{board}\n\nP is you, C is the cliff, G is the goal."


_TAXI_PLACES = ("R", "G", "Y", "B")


def _say_taxi(env: Any, state: Any) -> str:
    row, column, passenger, destination = env.decode(int(state))
    board = _write_grid(_decode_cells(env), 1 + row, 1 + 2 * column, "T", "")
    where = "in the taxi" if passenger == 4 else f"waiting at {_TAXI_PLACES[passenger]}"
    return (
        f"{board}\n\nT is the taxi, in row {row}, column {column}. The passenger is {where} and wants "
        f"to go to {_TAXI_PLACES[destination]}."
    )


def _say_blackjack(env: Any, state: Any) -> str:
    total, dealer, usable = state
    ace = ", with an ace that counts 11" if usable else ""
    return f"Your cards sum to {total}{ace}. The dealer shows {'an ace' if dealer == 1 else dealer}."


def _lake(name: str, max_turns: int) -> ToyText:
    return ToyText(
        name,
        "Cross the frozen lake from the top left to the goal without falling into a hole. The ice is "
        "slippery: a move goes where you want with probability 1/3, and to either side of it with 1/3 each. "
        "Reaching the goal earns 1; a hole ends the walk.",
        _MOVES,
        _say_lake,
        lambda reward: reward > 0,
        max_turns,
    )


_CLIFF = (
    "Walk from the bottom left to the goal at the bottom right. Every step costs 1; stepping into the cliff "
    "costs 100 and puts you back to the start."
)
_TAXI = (
    "Drive the taxi to the passenger, pick up, drive to the destination and drop off there. The places R, G, "
    "Y and B are on the map; `|` is a wall, `:` can be passed. Every step costs 1, a pick-up or drop-off "
    "where it is not possible costs 10, the right drop-off earns 20."
)
_BLACKJACK = (
    "Play a hand of blackjack against a dealer who draws until 17. Come closer to 21 than the dealer without "
    "going over. Cards are drawn from an endless deck; pictures count 10, an ace 1 or 11. Winning earns 1, a "
    "draw 0, losing -1; 21 with the first two cards wins against any other hand."
)

WORLDS: dict[str, ToyText] = {
    world.id: world
    for world in (
        _lake("FrozenLake-v1", 100),
        _lake("FrozenLake8x8-v1", 200),
        ToyText("CliffWalking-v1", _CLIFF, _COMPASS, _say_cliff, lambda reward: True, 60, -1.0),
        ToyText(
            "CliffWalkingSlippery-v1",
            f"{_CLIFF} The ground is slippery: a move goes where you want with probability 1/3, and to "
            "either side of it with 1/3 each.",
            _COMPASS,
            _say_cliff,
            lambda reward: True,
            300,
            -1.0,
        ),
        ToyText(
            "Taxi-v4",
            _TAXI,
            {"south": 0, "north": 1, "east": 2, "west": 3, "pick up": 4, "drop off": 5},
            _say_taxi,
            lambda reward: reward > 0,
            200,
            -10.0,
        ),
        ToyText(
            "Blackjack-v1",
            _BLACKJACK,
            {"stick": 0, "hit": 1},
            _say_blackjack,
            lambda reward: reward > 0,
            20,
            -1.0,
        ),
    )
}


class GymnasiumEnv(Env):
    r"""Play one of Gymnasium's toy-text environments in text.

    Task:
        FrozenLake, CliffWalking, Taxi or Blackjack, by `name`: reach the goal on ice, walk along a cliff,
        carry a passenger, beat the dealer.
    Action:
        The name of an action inside ``\boxed{}``, as ``\boxed{left}``. Its number is accepted too.
    Observation:
        The rules and the state as text, then the state after each action.
    Reward:
        The package's own, unscaled. An unreadable answer does nothing and costs what the prompt says: 1 in
        CliffWalking and Blackjack, 10 in Taxi, nothing in FrozenLake.
    End:
        When the package ends the episode, or after the turns that the task states.
    Source:
        Gymnasium's toy-text environments (MIT licence); rules, texts and expert are gem's own.
    """

    def __init__(self, name: str, max_turns: int | None = None) -> None:
        """Choose the environment; `max_turns` replaces its usual turn budget.

        Raises:
            UnknownEnv: for a name that is not in WORLDS. BadArgument: for a budget below 1.
        """
        if name not in WORLDS:
            raise UnknownEnv(
                f"no toy-text environment {name!r}.{did_you_mean(name, WORLDS)} Known: {', '.join(WORLDS)}."
            )
        check_least("max_turns", max_turns)
        self.name = name
        self.max_turns = max_turns or WORLDS[name].max_turns
        self._world = gymnasium.make(name, max_episode_steps=-1, disable_env_checker=True).unwrapped
        self._state: Any = None

    def reset(self, seed: int | None = None) -> Start:
        """Begin an episode; see Env.reset."""
        super().reset(seed)
        self.turn = 0
        self._state, _ = self._world.reset(seed=seeding.derive(self._need_seed(), "gymnasium") % _NUMPY_SEEDS)
        world = WORLDS[self.name]
        cost = f" An answer that cannot be read costs {-world.nothing:g}." if world.nothing else ""
        form = f"{self._answer_form()}{cost} You have {self.max_turns} turns."
        return Start(f"{world.rules}\n\n{self._say()}\n\n{form}", {})

    def step(self, action: str) -> Step:
        """Make a move; see Env.step."""
        self.turn += 1
        world = WORLDS[self.name]
        chosen = read_action(action, world.actions)
        if chosen is None:
            text, reward, won = f"Your answer could not be read. {self._answer_form()}", world.nothing, None
        else:
            self._state, paid, over, _, _ = self._world.step(chosen)
            text, reward = self._say(), float(paid)
            won = world.won(reward) if over else None
        return finish_step(text, reward, chosen, won, self.turn >= self.max_turns)

    def sample_random_action(self) -> str:
        """Return a random action; see Env.sample_random_action."""
        return f"\\boxed{{{self.actor_rng.choice(list(WORLDS[self.name].actions))}}}"

    def solve(self) -> str:
        """Return the best action under the model that the rules describe."""
        words = {number: word for word, number in WORLDS[self.name].actions.items()}
        if self.name == "Blackjack-v1":
            chosen = _blackjack_move(*self._state)
        else:
            chosen = _policy(self.name)[int(self._state)]
        return f"\\boxed{{{words[chosen]}}}"

    def close(self) -> None:
        """Close the package's environment."""
        self._world.close()
        super().close()

    def _say(self) -> str:
        return WORLDS[self.name].say(self._world, self._state)

    def _answer_form(self) -> str:
        words = list(WORLDS[self.name].actions)
        return f"Give your action inside \\boxed{{}}: {', '.join(words[:-1])} or {words[-1]}."


def finish_step(text: str, reward: float, chosen: int | None, won: bool | None, spent: bool) -> Step:
    """Return a step of one of the package's episodes, with how it ended.

    Args:
        text: what the agent sees now.
        reward: of the package, for this step.
        chosen: the number of the action; None where it could not be read.
        won: whether the package's episode ended well; None while it goes on.
        spent: whether no turns are left.
    """
    info: dict[str, Any] = {"legal": False} if chosen is None else {}
    if won is not None:
        info.update(success=won, stop=(StopReason.SOLVED if won else StopReason.FAILED).value)
        text = f"{text}\nThat is the end: {'done' if won else 'not done'}."
    elif spent:
        info.update(success=False, stop=StopReason.TURN_BUDGET.value)
        text = f"{text}\nNo turns are left."
    return Step(text, reward, "stop" in info, False, info)


def read_action(action: str, words: Mapping[str, int]) -> int | None:
    """Return the action that the last box names, by word or number; None when it names none."""
    for text in read_box(action):
        name = " ".join(text.lower().replace("-", " ").replace("_", " ").split())
        for word, number in words.items():
            if name in (word, str(number)) or name == word.replace(" ", ""):
                return number
    return None


@functools.cache
def _policy(name: str) -> tuple[int, ...]:
    """Return the best action of every state, by value iteration on the package's transition table."""
    world: Any = gymnasium.make(name, disable_env_checker=True).unwrapped
    moves, states = world.P, len(world.P)
    actions = len(moves[0])
    transition = np.zeros((states, actions, states))
    earned = np.zeros((states, actions))
    for state, choices in moves.items():
        for action, outcomes in choices.items():
            for chance, after, reward, over in outcomes:
                earned[state, action] += chance * reward
                if not over:
                    transition[state, action, int(after)] += chance
    value = np.zeros(states)
    for _ in range(2000):
        better = (earned + 0.9999 * transition @ value).max(axis=1)
        if np.abs(better - value).max() < 1e-10:
            break
        value = better
    return tuple(int(a) for a in (earned + 0.9999 * transition @ value).argmax(axis=1))


def _blackjack_move(total: int, dealer: int, usable: int) -> int:
    """Return hit (1) or stick (0) by the basic strategy, without doubling or splitting."""
    if usable:
        return int(total <= 17 or (total == 18 and dealer in (9, 10, 1)))
    if total <= 11:
        return 1
    if total == 12:
        return int(dealer not in (4, 5, 6))
    return int(total <= 16 and dealer in (7, 8, 9, 10, 1))
