"""The bridge to gymnasium's toy-text environments."""

import re

import pytest

import gem
from gem.envs.bridges.specs import GYMNASIUM_TOY_TEXT
from gem.errors import BadArgument, UnknownEnv

gymnasium = pytest.importorskip("gymnasium")

from gem import seeding
from gem.envs.bridges.gymnasium import WORLDS, GymnasiumEnv


def test_the_catalogue_lists_every_world_with_its_budget():
    assert {name: turns for name, (turns, _) in GYMNASIUM_TOY_TEXT.items()} == {
        name: world.max_turns for name, world in WORLDS.items()
    }


def test_the_package_has_no_toy_text_environment_that_is_not_listed():
    shipped = {
        name
        for name, spec in gymnasium.registry.items()
        if str(spec.entry_point).startswith("gymnasium.envs.toy_text")
    }
    assert shipped == set(WORLDS)


@pytest.mark.parametrize("name", WORLDS)
def test_same_dynamics_as_the_package_itself(name):
    ours = gem.make(f"gymnasium:{name}")
    ours.reset(seed=5)
    theirs = gymnasium.make(name, max_episode_steps=-1).unwrapped
    theirs.reset(seed=seeding.derive(5, "gymnasium") % 2**31)
    for _ in range(WORLDS[name].max_turns):
        action = ours.sample_random_action()
        step = ours.step(action)
        word = action.removeprefix("\\boxed{").removesuffix("}")
        state, reward, terminated, _, _ = theirs.step(WORLDS[name].actions[word])
        assert step.reward == reward
        assert WORLDS[name].say(theirs, state) in step.obs
        if step.done:
            break
    assert step.terminated
    assert terminated or ours.turn == ours.max_turns


@pytest.mark.parametrize("name", WORLDS)
def test_an_unreadable_answer_costs_what_the_prompt_says(name):
    env = GymnasiumEnv(name, max_turns=20)
    told = re.search(r"An answer that cannot be read costs (\d+)\.", env.reset(seed=1).obs)
    assert (told is None) == name.startswith("FrozenLake")
    steps = [env.step("no answer") for _ in range(20)]
    assert {step.reward for step in steps} == {-float(told[1]) if told else 0.0}
    assert steps[-1].info["success"] is False


def test_actions_by_name_number_and_case():
    env = GymnasiumEnv("Taxi-v4")
    for answer in (
        "\\boxed{pick up}",
        "\\boxed{PICK_UP}",
        "\\boxed{4}",
        "\\boxed{pickup}",
        "\\boxed{\\text{pick up}.}",
    ):
        env.reset(seed=0)
        assert "legal" not in env.step(answer).info
    env.reset(seed=0)
    assert env.step("\\boxed{6}").info["legal"] is False


def test_wrong_arguments():
    with pytest.raises(UnknownEnv, match="FrozenLake-v1"):
        GymnasiumEnv("FrozenLake-v2")
    with pytest.raises(BadArgument, match="max_turns is 0"):
        GymnasiumEnv("Taxi-v4", max_turns=0)
