r"""Bridge to OpenSpiel: three games whose values are known, and what a policy loses in them.

The rules, the best responses and the values are the package's. gem adds the words and the forms of an answer,
and reads a policy from stored episodes.
"""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pyspiel

from gem import seeding
from gem.envs.bridges.specs import OPENSPIEL_GAMES
from gem.envs.seats.seated_game import SeatedGame
from gem.errors import BadArgument, check_argument, did_you_mean
from gem.parsing import read_box
from gem.record import Episode, StopReason

Expert = Literal["equilibrium", "exploiter"]
Policy: TypeAlias = Mapping[str, Sequence[tuple[int, float]]]
"""The chance of each action, by what a player knows."""

Counts: TypeAlias = Mapping[str, Counter[int]]
"""How often each action was chosen, by what the player knew."""

VALUES = {"kuhn_poker": -1 / 18, "leduc_poker": -0.085606424078, "tic_tac_toe": 0.0}
"""What player_0 wins on average where both play an equilibrium."""

_ROUNDS = {"kuhn_poker": 10_000, "leduc_poker": 200}
"""The rounds of CFR+ for an equilibrium: what is left to gain against it is below 0.00002 and 0.008 chips."""

RULES = {
    "kuhn_poker": (
        "Kuhn poker: a deck of three cards, 0, 1 and 2, of which 2 is the highest; each of you has put 1 "
        "chip into the pot and holds one card. In turn you pass or bet 1 chip. To pass after a bet loses "
        "the pot; to bet after a bet is to call. After two passes or two bets the higher card wins the "
        "pot."
    ),
    "leduc_poker": (
        "Leduc poker: a deck of six cards, two of each rank, 0 and 1 the lowest rank, 4 and 5 the "
        "highest; each of you has put 1 chip into the pot and holds one card. In turn you fold, call or "
        "raise, by 2 chips in round 1 and 4 in round 2, twice a round at most. Before round 2 a public "
        "card is turned up. At the end a card of its rank wins the pot, else the higher rank; equal ranks "
        "divide it."
    ),
    "tic_tac_toe": (
        "tic-tac-toe on a board of three rows and three columns. player_0 sets x, player_1 sets o. Three "
        "in a row, across, down or diagonally, win 1; a full board is a draw."
    ),
}


class OpenSpielGame(SeatedGame):
    r"""Play Kuhn poker, Leduc poker or tic-tac-toe, whose values are known.

    Task:
        Win against the other player, whose play may be an equilibrium or a best response.
    Action:
        One of the actions of the list, inside ``\boxed{}``, as ``\boxed{Bet}`` or ``\boxed{x(0,2)}``.
    Observation:
        First the rules. Before each move what the player knows, in OpenSpiel's words, and what is allowed.
    Reward:
        What OpenSpiel pays at the end: chips, or 1, 0 and -1. An unreadable or illegal answer pays the
        largest loss of the game.
    End:
        At the end of the game. A seat that won has the stop ``solved``, others ``failed``.
    Source:
        OpenSpiel 2.0 (Apache-2.0).
    """

    seats = ("player_0", "player_1")

    def __init__(self, name: str, expert: Expert = "equilibrium") -> None:
        """Choose the game, and what `expert_action` plays.

        Args:
            name: the game.
            expert: ``equilibrium``, or ``exploiter``: the best response to random play.

        Raises:
            BadArgument: for another game or expert.
        """
        _check_name(name)
        check_argument("expert", expert, expert in ("equilibrium", "exploiter"), "equilibrium, exploiter")
        super().__init__(max_turns=OPENSPIEL_GAMES[name])
        self.name, self.expert = name, expert
        self.moves: tuple[int, ...] = ()
        """The actions so far, with those of chance: the state is made from them."""

    def deal(self) -> None:
        """Begin the game."""
        self.moves = ()
        for seat in self.seats:
            self.tell(seat, f"You are {seat}, one of two players of {RULES[self.name]}")
        self._go_on()

    def instance(self) -> str:
        """Return the deal in a form that can be compared."""
        return " ".join(map(str, self.moves))

    def play(self, moves: dict[str, str]) -> None:
        """Apply the action of the player whose turn it is."""
        ((seat, text),) = moves.items()
        state = _state(self.name, self.moves)
        names = _names(state)
        words = ("".join(inside.lower().split()) for inside in read_box(text))
        chosen = next((names[word] for word in words if word in names), None)
        if chosen is None:
            self.forfeit(seat, -_game(self.name).min_utility())
            return
        self.note(seat, state=_read_knowledge(state), move=chosen)
        other = self.seats[seat == self.seats[0]]
        self.tell(other, f"{seat}: {state.action_to_string(chosen)}.")
        self.moves = (*self.moves, chosen)
        self._go_on()

    def random_action(self, seat: str) -> str:
        """Return a random allowed action."""
        state = _state(self.name, self.moves)
        return _write(state, self.actor_rng_of(seat).choice(state.legal_actions()))

    def expert_action(self, seat: str) -> str:
        """Return an action drawn from the equilibrium, or of the best response to random play."""
        state = _state(self.name, self.moves)
        if self.expert == "exploiter":
            return _write(state, _best_answers(self.name, state.current_player())[_read_knowledge(state)])
        actions, chances = zip(*find_equilibrium(self.name)[_read_knowledge(state)], strict=True)
        return _write(state, self.actor_rng_of(seat).choices(actions, chances)[0])

    def _go_on(self) -> None:
        """Let chance act, and tell the next player what it knows; or pay, at the end."""
        state = _state(self.name, self.moves)
        while state.is_chance_node():
            actions, chances = zip(*state.chance_outcomes(), strict=True)
            self.moves = (*self.moves, self.rng.choices(actions, chances)[0])
            state = _state(self.name, self.moves)
        if state.is_terminal():
            for seat, amount in zip(self.seats, state.returns(), strict=True):
                self.pay(seat, amount)
                self.announce(f"{seat} wins {amount:g}.")
            self.finish(
                {
                    seat: StopReason.SOLVED if amount > 0 else StopReason.FAILED
                    for seat, amount in zip(self.seats, state.returns(), strict=True)
                }
            )
            return
        while self.selector.selected != self.seats[state.current_player()]:
            self.selector.next()
        names = ", ".join(state.action_to_string(action) for action in state.legal_actions())
        self.tell(
            self.selector.selected,
            f"{state.observation_string() if _is_open(self.name) else state.information_state_string()}\n"
            f"It is your turn: {names}. Give one inside \\boxed{{}}.",
        )


@dataclass(frozen=True, slots=True)
class Exploitability:
    """What a policy of one seat loses against its best response, beside an equilibrium.

    `seat`, `agent`: whose policy it is. `decisions`: the stored actions. `known`, `states`: of how many
    states of knowledge they are, and how many the seat has. `loss`: with even chances in states that never
    came up, with the 95% interval of a bootstrap over episodes. `best`: the same with an equilibrium's play
    there.
    """

    game: str
    seat: str
    agent: str
    episodes: int
    decisions: int
    known: int
    states: int
    loss: float
    low: float
    high: float
    best: float


def measure(episodes: Iterable[Episode], resamples: int = 100, seed: int = 0) -> list[Exploitability]:
    """Return the exploitability of each agent's play in each seat of stored episodes of these games.

    The policy is the share of each action in what was stored, so that it is played exactly as it was sampled.

    Args:
        episodes: of any environment; those of other environments are left out.
        resamples: how many times the episodes are drawn again for the interval.
        seed: of these draws.
    """
    made: dict[tuple[str, str, str], list[list[tuple[str, int]]]] = {}
    for episode in episodes:
        family, _, name = episode.spec.partition(":")
        if family != "openspiel" or name not in OPENSPIEL_GAMES:
            continue
        for seat in OpenSpielGame.seats:
            infos = [(turn.info.get("state"), turn.info.get("move")) for turn in episode.turns_of(seat)]
            legal = _actions(name, OpenSpielGame.seats.index(seat))
            choices = [  # a file may say anything
                (at, move)
                for at, move in infos
                if isinstance(at, str) and type(move) is int and move in legal.get(at, ())
            ]
            if choices:
                about = episode.run.seats.get(seat)
                made.setdefault((name, seat, about.agent if about else ""), []).append(choices)
    rng = seeding.stream(seed, "exploitability")
    return [_measure(*key, played, resamples, rng) for key, played in sorted(made.items())]


def _measure(
    name: str,
    seat: str,
    agent: str,
    played: list[list[tuple[str, int]]],
    resamples: int,
    rng: random.Random,
) -> Exploitability:
    place = OpenSpielGame.seats.index(seat)

    def lose(hands: list[list[tuple[str, int]]], elsewhere: Policy) -> float:
        return find_loss(name, place, _fill(name, _count(hands), elsewhere))

    even: Policy = _fill(name, {})
    drawn = sorted(lose(rng.choices(played, k=len(played)), even) for _ in range(resamples))
    counts = _count(played)
    loss = lose(played, even)
    return Exploitability(
        *(
            name,
            seat,
            agent,
            len(played),
            sum(map(len, played)),
            len(counts),
            len(_actions(name, place)),
            loss,
        ),
        drawn[int(0.025 * len(drawn))] if drawn else loss,
        drawn[min(len(drawn) - 1, int(0.975 * len(drawn)))] if drawn else loss,
        lose(played, find_equilibrium(name)),
    )


def find_loss(name: str, place: int, policy: Policy) -> float:
    """Return how much less than the game's value a policy of player `place` wins against a best response."""
    return find_value(name, 1 - place, policy) + (1 - 2 * place) * VALUES[name]


def find_value(name: str, place: int, policy: Policy) -> float:
    """Return what the best response of player `place` wins against a policy of the other."""
    if _is_open(name):
        return _search(name, place, policy)[0]
    response = pyspiel.TabularBestResponse(
        _game(name), place, {key: list(row) for key, row in policy.items()}
    )
    return float(response.value_from_state(_game(name).new_initial_state()))


@functools.cache
def find_equilibrium(name: str) -> Policy:
    """Return an equilibrium: of CFR+, or of a search to the end of a game that hides nothing."""
    _check_name(name)
    if not _is_open(name):
        solver = pyspiel.CFRPlusSolver(_game(name))
        for _ in range(_ROUNDS[name]):
            solver.evaluate_and_update_policy()
        table: Policy = solver.tabular_average_policy().policy_table()
        return table
    policy: dict[str, list[tuple[int, float]]] = {}
    worth: dict[str, float] = {}  # to player_0

    def visit(state: Any) -> float:
        if state.is_terminal():
            return float(state.returns()[0])
        key = _read_knowledge(state)
        if key not in worth:
            sign = 1 - 2 * state.current_player()
            values = {action: sign * visit(state.child(action)) for action in state.legal_actions()}
            best = [action for action, value in values.items() if value == max(values.values())]
            policy[key] = [(action, 1 / len(best)) for action in best]
            worth[key] = sign * max(values.values())
        return worth[key]

    visit(_game(name).new_initial_state())
    return policy


def _search(name: str, place: int, policy: Policy) -> tuple[float, dict[str, int]]:
    """Return the value of the best response in a game that hides nothing, and its actions."""
    worth: dict[str, float] = {}
    answers: dict[str, int] = {}

    def visit(state: Any) -> float:
        if state.is_terminal():
            return float(state.returns()[place])
        key = _read_knowledge(state)
        if key not in worth:
            if state.current_player() == place:
                values = {action: visit(state.child(action)) for action in state.legal_actions()}
                answers[key] = max(values, key=values.__getitem__)
                worth[key] = values[answers[key]]
            else:
                worth[key] = sum(
                    chance * visit(state.child(action)) for action, chance in policy[key] if chance
                )
        return worth[key]

    return visit(_game(name).new_initial_state()), answers


@functools.cache
def _best_answers(name: str, place: int) -> Mapping[str, int]:
    """Return the best response of a player to random play, by what the player knows."""
    even = _fill(name, {})
    if _is_open(name):
        return _search(name, place, even)[1]
    response = pyspiel.TabularBestResponse(_game(name), place, {key: list(row) for key, row in even.items()})
    response.value_from_state(_game(name).new_initial_state())
    answers: Mapping[str, int] = response.get_best_response_actions()
    return answers


def _fill(name: str, counts: Counts, elsewhere: Policy | None = None) -> dict[str, list[tuple[int, float]]]:
    """Return the policy of counts; where there are none, of `elsewhere`, or even chances."""
    filled = {}
    for place in (0, 1):
        for key, legal in _actions(name, place).items():
            total = sum(counts[key].values()) if key in counts else 0
            if total:
                filled[key] = [(action, counts[key][action] / total) for action in legal]
            elif elsewhere is not None:
                filled[key] = list(elsewhere[key])
            else:
                filled[key] = [(action, 1 / len(legal)) for action in legal]
    return filled


def _count(hands: Iterable[Iterable[tuple[str, int]]]) -> Counts:
    counts: dict[str, Counter[int]] = {}
    for hand in hands:
        for key, move in hand:
            counts.setdefault(key, Counter())[move] += 1
    return counts


@functools.cache
def _actions(name: str, place: int) -> Mapping[str, tuple[int, ...]]:
    """Return the legal actions of a player, by what the player knows."""
    legal: dict[str, tuple[int, ...]] = {}
    visited: set[str] = set()

    def visit(state: Any) -> None:
        if state.is_terminal() or (str(state) in visited and _is_open(name)):
            return
        visited.add(str(state))
        if not state.is_chance_node() and state.current_player() == place:
            legal[_read_knowledge(state)] = tuple(state.legal_actions())
        for action in state.legal_actions():
            visit(state.child(action))

    visit(_game(name).new_initial_state())
    return legal


def _read_knowledge(state: Any) -> str:
    """Return what the player whose turn it is knows; where all is open, the board and not the way to it."""
    open_to_all = _is_open(state.get_game().get_type().short_name)
    return str(state.observation_string() if open_to_all else state.information_state_string())


def _is_open(name: str) -> bool:
    return name == "tic_tac_toe"


@functools.cache
def _game(name: str) -> Any:
    return pyspiel.load_game(name)


def _state(name: str, moves: Iterable[int]) -> Any:
    state = _game(name).new_initial_state()
    for move in moves:
        state.apply_action(move)
    return state


def _names(state: Any) -> dict[str, int]:
    return {state.action_to_string(action).lower(): action for action in state.legal_actions()}


def _write(state: Any, action: int) -> str:
    return f"\\boxed{{{state.action_to_string(action)}}}"


def _check_name(name: str) -> None:
    if name not in OPENSPIEL_GAMES:
        raise BadArgument(
            f"no game {name!r}.{did_you_mean(name, OPENSPIEL_GAMES)} {', '.join(OPENSPIEL_GAMES)}."
        )
