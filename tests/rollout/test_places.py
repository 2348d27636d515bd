from functools import partial

import pytest

from gem.agents.random import RandomAgent
from gem.hosts.base import make_host
from gem.registry import ENV_REGISTRY, EnvSpec, Maker
from gem.rollout import Job, rollout
from gem.rollout.places import Places, expected_task, maker, pool_key
from gem.specs import TaskRef
from gem.testing.doubles import EchoEnv

EASY = "game:GuessTheNumber-v0-easy"
SHORT = {"max_turns": 2}


@pytest.mark.parametrize(
    ("recipe", "task"),
    [
        (EASY, TaskRef(EASY)),
        (Maker(EASY, SHORT), TaskRef(EASY, SHORT)),
        (Maker(ENV_REGISTRY[EASY]), TaskRef(EASY)),
        (TaskRef(EASY, SHORT), TaskRef(EASY, SHORT)),
        (Maker(TaskRef(EASY, SHORT), {"max_number": 3}), TaskRef(EASY, {**SHORT, "max_number": 3})),
        (EchoEnv, TaskRef("gem.testing.doubles:EchoEnv")),
        (partial(EchoEnv, 2), TaskRef("gem.testing.doubles:EchoEnv")),
    ],
)
def test_what_never_began_is_named_all_the_same(recipe, task):
    assert expected_task(maker(recipe)) == task


class Unmakeable(EchoEnv):
    def __init__(self, turns=3):
        raise OSError("no licence")


@pytest.mark.parametrize("env", ["test:Unmakeable", TaskRef("test:Unmakeable", {"turns": 2}, seed=9)])
def test_an_episode_without_an_environment_says_what_it_was_to_be(monkeypatch, env):
    monkeypatch.setitem(ENV_REGISTRY, "test:Unmakeable", EnvSpec("test:Unmakeable", Unmakeable))
    (episode,) = rollout([Job(env, 5)], RandomAgent())
    assert (episode.spec, episode.seed, episode.scored) == ("test:Unmakeable", 5, False)
    assert episode.kwargs == ({} if isinstance(env, str) else {"turns": 2})
    assert episode.error.message.startswith("no licence (test_places.py, line ")


def test_environments_stand_in_for_one_another_where_all_but_the_seed_is_equal():
    assert pool_key(TaskRef(EASY, SHORT, seed=1)) == pool_key(TaskRef(EASY, SHORT, seed=2))
    assert pool_key(Maker(EASY, {"a": 1, "b": 2})) == pool_key(Maker(EASY, {"b": 2, "a": 1}))
    different = [
        EASY,
        Maker(EASY, SHORT),
        Maker(EASY, SHORT, ("concat_chat",)),
        TaskRef(EASY, {"max_turns": 3}),
        EchoEnv,
        partial(EchoEnv, 2),
    ]
    assert len({pool_key(recipe) for recipe in different}) == len(different)


def test_data_that_looks_alike_is_told_apart():
    class Rows(list):
        def __repr__(self):
            return "Rows of two"

    one, other = Rows("ab"), Rows("cd")
    assert pool_key(Maker(EASY, {"data": one})) != pool_key(Maker(EASY, {"data": other}))
    assert pool_key(Maker(EASY, {"data": one})) == pool_key(Maker(EASY, {"data": one}))


def test_places_of_dropped_episodes_are_free_when_their_calls_have_ended():
    with make_host("thread") as host:
        places = Places(host, 2)
        dropped = [places.take(EASY), places.take(EASY)]
        host.submit_all([(place.index, "reset", (1,), {}) for place in dropped])
        alone = places.take(EASY, alone=True)
        indices = {place.index for place in dropped}
        places.abandon(cut_off := [*dropped, alone])
        assert (cut_off, host.busy, places.alone, len(host)) == ([], set(), 0, 2)
        assert {places.take(EASY).index, places.take(EASY).index} == indices
