import pytest

import gem

pytest.importorskip("pettingzoo")

from pettingzoo.test import api_test, parallel_api_test

from gem.envs.bridges.pettingzoo import PettingZooAEC, PettingZooParallel
from gem.errors import BadAction, BadArgument

GAMES = [env_id for env_id in gem.ids("multi") if len(gem.spec(env_id).seats) > 1]

# api_test remarks on observations that are no arrays and on agents without a number; it raises what is wrong
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pettingzoo.test.api_test")


@pytest.mark.parametrize("env_id", GAMES)
def test_the_view_passes_the_api_test(env_id, capsys):
    api_test(PettingZooAEC(gem.make(env_id)), num_cycles=50)
    assert "Passed API test" in capsys.readouterr().out


@pytest.mark.parametrize("env_id", GAMES)
def test_the_view_passes_the_parallel_api_test(env_id, capsys):
    parallel_api_test(PettingZooParallel(gem.make(env_id)), num_cycles=50)
    assert "Passed Parallel API test" in capsys.readouterr().out


@pytest.mark.parametrize("env_id", GAMES)
def test_a_whole_game_of_experts_pays_what_the_game_pays(env_id):
    view = PettingZooAEC(gem.make(env_id))
    view.reset(seed=3)
    paid = dict.fromkeys(view.possible_agents, 0.0)
    for agent in view.agent_iter(max_iter=500):
        _, reward, terminated, truncated, _ = view.last()
        paid[agent] += reward
        view.step(None if terminated or truncated else view.expert_action(agent))
    env = gem.make(env_id)
    env.reset(seed=3)
    earned = dict.fromkeys(env.seats, 0.0)
    while env.live:
        for agent, reward in env.step(env.solve()).rewards.items():
            earned[agent] += reward
    assert view.agents == []
    assert paid == pytest.approx(earned)


def test_the_parallel_view_takes_whose_turn_it_is_and_says_whose_is_next():
    view = PettingZooParallel(gem.make("multi:KuhnPoker-v0"))
    obs, _ = view.reset(seed=0)
    assert obs["player_1"] == {"text": ""}
    obs, rewards, _, _, infos = view.step({"player_0": r"\boxed{bet}", "player_1": "not my turn"})
    assert (infos["player_0"]["to_act"], infos["player_1"]["to_act"]) == (False, True)
    assert "player_0 bets" in obs["player_1"]["text"]
    assert rewards == {"player_0": 0.0, "player_1": 0.0}


@pytest.mark.parametrize("actions", [{}, {"player_1": r"\boxed{bet}"}])
def test_the_parallel_view_refuses_a_step_without_whose_turn_it_is(actions):
    view = PettingZooParallel(gem.make("multi:KuhnPoker-v0"))
    view.reset(seed=0)
    with pytest.raises(BadAction, match="it is the turn of player_0"):
        view.step(actions)


def test_an_env_of_one_agent_is_refused():
    with pytest.raises(BadArgument, match="SeatedEnv"):
        PettingZooAEC(gem.make("game:GuessTheNumber-v0-easy"))
