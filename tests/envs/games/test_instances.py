"""What makes two deals the same instance."""

import pytest

import gem

GAMES = gem.ids("game")
FEWEST = {
    "game:GuessTheNumber-v0-easy": 10,
    "game:FifteenPuzzle-v0-easy": 11,
    "game:Mastermind-v0-easy": 30,
    "game:TowerofHanoi-v0-easy": 6,
    "game:TowerofHanoi-v0-hard": 6,
}
"""The ids that have few instances: all there are, and 200 seeds deal every one."""


@pytest.mark.parametrize("env_id", GAMES)
def test_an_instance_follows_from_the_seed_and_not_from_what_is_played(env_id):
    env, other = gem.make(env_id), gem.make(env_id)
    for seed in range(3):
        env.reset(seed=seed)
        other.reset(seed=seed)
        dealt = env.instance()
        assert dealt == other.instance()
        assert hash(dealt) == hash(other.instance())
        for _ in range(4):
            if env.step(env.sample_random_action()).done:
                break
        assert env.instance() == dealt


@pytest.mark.parametrize("env_id", GAMES)
def test_seeds_deal_many_instances(env_id):
    env = gem.make(env_id)
    seeds = range(40 if "Sokoban" in env_id else 200)
    found = set()
    for seed in seeds:
        env.reset(seed=seed)
        found.add(env.instance())
    if env_id in FEWEST:
        assert len(found) == FEWEST[env_id]
    else:
        assert len(found) > len(seeds) / 5
