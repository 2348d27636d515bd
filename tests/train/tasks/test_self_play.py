from collections import Counter

import pytest
from records import episode as ended
from records import paid

pytest.importorskip("torch")

from bench.self_play import SPOTS, TERSE, TerseKuhn, exploitability, said, trainer
from gem.envs.seats.kuhn_poker import GAME_VALUE, KuhnPoker, equilibrium
from gem.envs.seats.matrix_game import MatrixGame
from gem.estimators import turn_advantages
from gem.parsing import boxed
from gem.record import SeatEnd, StopReason
from gem.registry import ENV_REGISTRY, EnvSpec, register
from gem.tokens.rows import rows

ITERATIONS = 12
WORDS = {"": (), "0": ("check",), "1": ("bet",), "01": ("check", "bet")}


@pytest.fixture
def terse():
    register(EnvSpec(TERSE, TerseKuhn, max_turns=3, seats=KuhnPoker.seats))
    yield
    del ENV_REGISTRY[TERSE]


def counts(bold):
    """Return 9 answers at every spot, with the chance of the bold one that `bold` gives."""
    found = Counter()
    for card in range(3):
        for before in (*SPOTS[0], *SPOTS[1]):
            times = int(9 * bold(card, WORDS[before]))
            found[(card, before), "1"], found[(card, before), "0"] = times, 9 - times
    return found


def test_an_equilibrium_has_no_exploitability_and_others_have():
    gain, value = exploitability(counts(equilibrium))
    assert gain == pytest.approx(0.0, abs=1e-12)
    assert value == pytest.approx(float(GAME_VALUE))
    assert exploitability(Counter()) == pytest.approx((11 / 12, 1 / 8))  # both at random


@pytest.mark.slow
def test_self_play_held_to_a_reference_goes_towards_the_equilibrium_of_kuhn_poker(terse, tmp_path):
    run = trainer(out=tmp_path, episodes=60 * 256, batch=256, minibatch=128, lr=3e-3, kl=0.2)
    played = []
    for iteration in range(1, 61):
        episodes = run.sample()
        played.append(said(episodes))
        run.learn(episodes)
        run.iteration = iteration
        run.learner.publish(iteration)
    before, after = exploitability(played[0])[0], exploitability(sum(played[-20:], Counter()))[0]
    assert (
        before > 0.6
    )  # the first weights play nearly at random: 0.92, less or more by the noise of 256 episodes
    assert after < before / 2


def test_every_seat_is_trained_on_its_own_turns(terse, tmp_path):
    run = trainer(out=tmp_path, episodes=64, batch=64, minibatch=64)
    episodes = run.sample()
    assert {turn.seat for episode in episodes for turn in episode.turns} == {"player_0", "player_1"}
    for episode in episodes:
        for seat in episode.seats:
            mine = [token for turn in episode.turns_of(seat) for token in turn.token_ids]
            learnt = [
                token
                for row in rows(episode, seat)
                for token, learn in zip(row.ids, row.mask, strict=True)
                if learn
            ]
            assert learnt == mine
    steps = run.learn(episodes)
    sampled = sum(len(turn.token_ids) for episode in episodes for turn in episode.turns)
    assert steps.sums["tokens"] == run.config.epochs * sampled


def test_a_seat_without_a_turn_does_not_count_in_its_group():
    def game(*rewards, group="g"):
        ends = {"a": SeatEnd(StopReason.ENDED, True), "b": SeatEnd(StopReason.ENDED, True)}
        return ended(*paid(*rewards, seat="a"), group=group, ends=ends)

    found = turn_advantages([game(3.0), game(1.0), game()], "dr_grpo", 1.0, "a")
    assert found == [[1.0], [-1.0], []]


class TerseCoordination(MatrixGame):
    """One round of pure coordination for a tiny model: both say 0 or 1 at once, and are paid for the same."""

    def __init__(self):
        super().__init__("coordination", rounds=1)

    def tell(self, agent, text):
        super().tell(agent, "go" if text.startswith("You are") else "over")

    def play(self, moves):
        said = {seat: boxed(text) for seat, text in moves.items()}
        super().play(
            {s: f"\\boxed{{{self.actions[int(w)] if w in ('0', '1') else '?'}}}" for s, w in said.items()}
        )

    def random_action(self, agent):
        return f"\\boxed{{{self.actor_rng_of(agent).randrange(2)}}}"


@pytest.mark.slow
def test_self_play_learns_to_coordinate(tmp_path, monkeypatch):
    """Both seats are the same policy, unable to talk: together they settle on one of two equal answers."""
    spec = EnvSpec(TERSE, TerseCoordination, max_turns=1, seats=MatrixGame.seats)
    monkeypatch.setitem(ENV_REGISTRY, TERSE, spec)
    run = trainer(out=tmp_path, episodes=ITERATIONS * 128, batch=128, minibatch=64, lr=5e-3, kl=0.0)
    paid = []
    for iteration in range(1, ITERATIONS + 1):
        episodes = run.sample()
        paid.append([sum(e.reward(seat) for e in episodes) / len(episodes) for seat in MatrixGame.seats])
        run.learn(episodes)
        run.iteration = iteration
        run.learner.publish(iteration)
    assert max(paid[0]) < 0.65  # well-formed answers, at random
    assert min(paid[-1]) > 0.95
