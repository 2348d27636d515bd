"""OpenSpiel's games as seats, and the exploitability of stored play."""

import pytest

import gem
from gem import cli
from gem.agents import RandomAgent, ScriptedAgent, SolverAgent
from gem.envs.seats.kuhn_poker import equilibrium
from gem.errors import BadArgument
from gem.registry import FAMILIES
from gem.rollout import EpisodeStore, Job, rollout

if not FAMILIES["openspiel"].is_here():
    pytest.skip("needs OpenSpiel: pip install 'gem-gym[openspiel]'", allow_module_level=True)

import pyspiel

from gem.envs.bridges import openspiel as bridge

GAMES = tuple(bridge.OPENSPIEL_GAMES)


@pytest.mark.parametrize("name", ["kuhn_poker", pytest.param("leduc_poker", marks=pytest.mark.system)])
def test_random_play_loses_what_the_package_says(name):
    even = bridge._fill(name, {})
    losses = [bridge.find_loss(name, place, even) for place in (0, 1)]
    game = pyspiel.load_game(name)
    assert sum(losses) / 2 == pytest.approx(pyspiel.exploitability(game, pyspiel.UniformRandomPolicy(game)))
    most = {"kuhn_poker": 2e-5, "leduc_poker": 8e-3}[name]
    for place in (0, 1):
        assert 0 <= bridge.find_loss(name, place, bridge.find_equilibrium(name)) < most


@pytest.mark.system
def test_a_game_that_hides_nothing_is_searched_to_its_end():
    even = bridge._fill("tic_tac_toe", {})
    losses = [bridge.find_loss("tic_tac_toe", place, even) for place in (0, 1)]
    assert sum(losses) / 2 == pytest.approx(0.9598296957671957)  # of open_spiel.python.algorithms
    best = bridge.find_equilibrium("tic_tac_toe")
    assert [bridge.find_loss("tic_tac_toe", place, best) for place in (0, 1)] == [0.0, 0.0]


def test_the_known_equilibrium_of_kuhn_poker_loses_nothing():
    policy = {}
    for card in range(3):
        for history in ("", "p", "b", "pb"):
            past = tuple({"p": "check", "b": "bet"}[move] for move in history)
            bold = float(equilibrium(card, past))
            policy[f"{card}{history}"] = [(0, 1 - bold), (1, bold)]
    assert [bridge.find_loss("kuhn_poker", place, policy) for place in (0, 1)] == pytest.approx([0.0, 0.0])


def test_constant_play_loses_what_can_be_counted_by_hand(tmp_path, capsys):
    """Against constant bets a king wins 2 by calling, a queen 0 on average, and a jack loses 1 by folding."""
    bets = ScriptedAgent(lambda ask: r"\boxed{Bet}")
    agents = {"player_0": bets, "player_1": RandomAgent()}
    with EpisodeStore(tmp_path / "episodes.jsonl") as store:
        for episode in rollout([Job("openspiel:kuhn_poker", seed=seed) for seed in range(40)], agents):
            store.append(episode)
        mine = next(row for row in bridge.measure(store, 10) if row.seat == "player_0")
    assert mine.loss == pytest.approx(-1 / 18 + (2 + 0 - 1) / 3)
    assert mine.low == mine.high == pytest.approx(mine.loss)  # constant play has no spread
    assert cli.main(["exploitability", str(tmp_path / "episodes.jsonl"), "--resamples", "5"]) == 0
    said = capsys.readouterr().out
    assert "3 of 6" in said


@pytest.mark.parametrize("name", GAMES)
def test_moves_of_a_game_are_replayed_by_the_package(name):
    episodes = rollout([Job(f"openspiel:{name}", seed=seed) for seed in range(3)], RandomAgent())
    for episode in episodes:
        env = gem.make(episode.task)
        env.reset(seed=episode.seed)
        while env.live:
            turn = episode.turns[env.turn]
            step = env.step({turn.seat: turn.action})
        state = bridge._state(name, env.moves)
        assert state.is_terminal()
        assert [step.rewards[seat] for seat in env.seats] == state.returns()[:2]
        assert sum(episode.reward(seat) for seat in env.seats) == 0


@pytest.mark.parametrize("text", ["", "Bet", r"\boxed{raise}", r"\boxed{0}"])
def test_what_is_no_action_forfeits_the_largest_loss(text):
    env = gem.make("openspiel:kuhn_poker")
    env.reset(seed=0)
    step = env.step({"player_0": text})
    assert step.done
    assert step.rewards == {"player_0": -2.0, "player_1": 2.0}
    assert "move" not in step.infos["player_0"]


def test_a_seat_is_told_nothing_of_the_other_cards():
    env = gem.make("openspiel:kuhn_poker")
    told = env.reset(seed=0).obs["player_0"]
    assert f"\n{env.moves[0]}\n" in told
    assert f"\n{env.moves[0]}{env.moves[1]}" not in told


def test_the_exploiter_beats_random_play():
    env = gem.make("openspiel:kuhn_poker", expert="exploiter")
    won = []
    for seed in range(300):
        env.reset(seed=seed)
        while env.live:
            (seat,) = env.acting
            step = env.step(
                {seat: env.expert_action(seat) if seat == "player_0" else env.random_action(seat)}
            )
        won.append(step.rewards["player_0"])
    even = bridge._fill("kuhn_poker", {})
    assert sum(won) / 300 == pytest.approx(bridge.find_value("kuhn_poker", 0, even), abs=0.2)


def test_a_store_without_such_play_and_a_game_that_there_is_not(tmp_path, capsys):
    with EpisodeStore(tmp_path / "episodes.jsonl") as store:
        for episode in rollout([Job("multi:KuhnPoker-v0", seed=1)], SolverAgent()):
            store.append(episode)
    assert cli.main(["exploitability", str(tmp_path / "episodes.jsonl")]) == 1
    assert "no play of openspiel:" in capsys.readouterr().out
    with pytest.raises(BadArgument, match="leduc_poker"):
        bridge.OpenSpielGame("leduc")


def test_what_a_file_claims_counts_only_where_the_game_knows_it(tmp_path):
    (episode,) = rollout([Job("openspiel:kuhn_poker", seed=1)], RandomAgent())
    before = bridge.measure([episode], 2)
    for turn in episode.turns:
        turn.info.update(state=["x"], move="__import__")
    assert before
    assert bridge.measure([episode], 2) == []
