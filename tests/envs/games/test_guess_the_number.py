import math

import pytest

from gem.envs.games.guess_the_number import GuessTheNumber
from gem.errors import BadArgument


def dealt(secret, **keywords):
    """A game whose secret is known."""
    env = GuessTheNumber(**keywords)
    for seed in range(10_000):
        env.reset(seed=seed)
        if env.secret == secret:
            return env
    raise AssertionError(f"no seed deals {secret}")


def guess(env, number):
    return env.step(f"I think \\boxed{{{number}}}")


def test_the_answer_says_higher_or_lower():
    env = dealt(7, max_number=10, max_turns=4)
    assert guess(env, 5).obs == "The secret is higher than 5."
    assert guess(env, 8).obs == "The secret is lower than 8."
    assert guess(env, 7).info == {"success": True, "stop": "solved"}


@pytest.mark.parametrize("number", [0, 11, -3, 10**40])
def test_a_guess_out_of_range_is_a_wasted_turn_not_a_format_error(number):
    env = dealt(7, max_number=10, max_turns=2)
    step = guess(env, number)
    assert (step.reward, step.done, step.info) == (0.0, False, {"legal": False})
    assert step.obs == "The secret is between 1 and 10."
    assert guess(env, 1).info["stop"] == "turn_budget"


def test_zero_can_be_the_secret_where_the_range_holds_it():
    env = dealt(0, min_number=-2, max_number=2)
    assert guess(env, 0).info["success"]


def test_the_last_turn_tells_the_secret():
    env = dealt(7, max_number=10, max_turns=1)
    assert guess(env, 1).obs.endswith("The secret was 7.")


def test_progress_is_the_share_of_bits_that_answers_revealed():
    env = dealt(7, max_number=10, max_turns=4)
    assert guess(env, 5).reward == pytest.approx(0.5 * (1 - math.log(5) / math.log(10)))


def test_repeating_a_guess_or_going_back_on_the_answers_earns_nothing():
    env = dealt(40, max_number=50, max_turns=50)
    first = guess(env, 25).reward
    assert first > 0
    loop = [guess(env, number).reward for number in (25, 10, 1, 0, 51, 25) * 8]
    assert loop == [0.0] * 48
    assert guess(env, 2).info["stop"] == "turn_budget"


def test_always_the_middle_earns_little():
    # The same guess every turn must not pay: upstream's distance reward gave it a mean return of 0.745.
    env = GuessTheNumber(max_number=50, max_turns=7)
    returns = []
    for seed in range(300):
        env.reset(seed=seed)
        rewards, done = [], False
        while not done:
            step = guess(env, 25)
            rewards.append(step.reward)
            done = step.done
        returns.append(math.fsum(rewards))
    assert sum(returns) / len(returns) < 0.15


def test_without_a_budget_bisection_just_fits():
    for size in (2, 3, 7, 8, 31, 32, 100):
        env = GuessTheNumber(max_number=size)
        worst = 0
        for seed in range(4 * size):
            env.reset(seed=seed)
            turns, step = 0, None
            while step is None or not step.done:
                step = env.step(env.solve())
                turns += 1
            assert step.info["success"]
            worst = max(worst, turns)
        assert worst == env.max_turns == size.bit_length()


@pytest.mark.parametrize(
    "keywords",
    [{"max_number": 1}, {"min_number": 5, "max_number": 5}, {"max_number": (1, 5)}, {"max_number": "9"}],
)
def test_a_range_of_one_number_is_refused(keywords):
    with pytest.raises(BadArgument, match="max_number is"):
        GuessTheNumber(**keywords)
