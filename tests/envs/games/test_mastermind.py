import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem.envs.games.mastermind import Mastermind, marks
from gem.errors import BadArgument


def dealt(secret, **keywords):
    """A game whose code is known."""
    env = Mastermind(code_length=len(secret), **keywords)
    for seed in range(100_000):
        env.reset(seed=seed)
        if env.secret == secret:
            return env
    raise AssertionError(f"no seed deals {secret}")


def guess(env, text):
    return env.step(f"\\boxed{{{text}}}")


@pytest.mark.parametrize(
    ("code", "guess", "in_place", "elsewhere"),
    [
        ("1234", "1234", 4, 0),
        ("1234", "4321", 0, 4),
        ("1234", "5678", 0, 0),
        ("1234", "1243", 2, 2),
        ("1122", "1211", 1, 2),  # each number of the code is matched once
        ("1122", "1111", 2, 0),
        ("1234", "1111", 1, 0),
        ("2221", "1112", 0, 2),
    ],
)
def test_marks_by_hand(code, guess, in_place, elsewhere):
    assert marks(guess, code) == (in_place, elsewhere)


@given(st.integers(1, 5).flatmap(lambda n: st.tuples(*[st.text("1234", min_size=n, max_size=n)] * 2)))
def test_marks_are_the_textbook_count_and_symmetric(pair):
    guess, code = pair
    in_place = sum(a == b for a, b in zip(guess, code, strict=True))
    right = sum(min(guess.count(n), code.count(n)) for n in "1234")
    assert marks(guess, code) == marks(code, guess) == (in_place, right - in_place)


@pytest.mark.parametrize("text", ["1 2 5 6", "1, 2, 5, 6", "1,2,5,6", "1256", " 1  2 5 6 "])
def test_every_way_to_write_a_guess_is_the_same_guess(text):
    assert guess(dealt("1234"), text).obs == "1 2 5 6: 2 in place, 0 right but elsewhere."


def test_a_compact_guess_wins():
    assert guess(dealt("1234"), "1234").info == {"success": True, "stop": "solved"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1 1 2 3", "No number occurs twice in the code, so none may in a guess."),
        ("1123", "No number occurs twice in the code, so none may in a guess."),
        ("1 2 3", "The code has 4 numbers; your guess has 3."),
        ("12345", "The code has 4 numbers; your guess has 5."),
        ("1 2 3 7", "The numbers go from 1 to 6."),
        ("0 1 2 3", "The numbers go from 1 to 6."),
        ("12 3 4 5", "The numbers go from 1 to 6."),
    ],
)
def test_a_guess_that_cannot_be_the_code_is_explained_and_costs_the_turn(text, why):
    env = dealt("1234", max_turns=2)
    step = guess(env, text)
    assert (step.obs, step.reward, step.done, step.info) == (why, 0.0, False, {"legal": False})
    assert guess(env, text).info["stop"] == "turn_budget"


def test_duplicates_are_played_where_they_are_allowed():
    env = dealt("1123", duplicate_numbers=True)
    assert guess(env, "1 1 1 1").obs == "1 1 1 1: 2 in place, 0 right but elsewhere."
    assert guess(env, "1 1 2 3").info["success"]


@pytest.mark.parametrize("duplicates", [False, True])
def test_codes_hold_duplicates_only_where_they_are_allowed(duplicates):
    env = Mastermind(duplicate_numbers=duplicates)
    codes = []
    for seed in range(300):
        env.reset(seed=seed)
        codes.append(env.secret)
    assert any(len(set(code)) < 4 for code in codes) == duplicates
    assert ("more than once" in env.reset(seed=0).obs) == duplicates


def test_repeating_guesses_earns_nothing():
    env = dealt("1234", max_turns=40)
    assert guess(env, "1 2 5 6").reward == pytest.approx(0.5 * 0.5)
    loop = [guess(env, text).reward for text in ("1 2 5 6", "5 6 1 2", "6 5 4 3", "9", "1 1 1 1") * 7]
    assert loop == [0.0] * 35


def test_the_last_turn_tells_the_code():
    env = dealt("1234", max_turns=1)
    assert guess(env, "5 6 1 2").obs.endswith("No guesses are left. The code was 1 2 3 4.")


def guesses_needed(env):
    turns, rewards, done = 0, [], False
    while not done:
        step = env.step(env.solve())
        turns += 1
        rewards.append(step.reward)
        done = step.done
    assert step.info["success"]
    assert math.fsum(rewards) == 1.0
    return turns


@pytest.mark.slow
def test_the_expert_needs_at_most_five_guesses_for_any_of_the_classic_codes():
    # Knuth 1977: at most 5, and 5801 over all 1296 codes with his tie-break.
    env = Mastermind(code_length=4, num_numbers=6, duplicate_numbers=True)
    needed = []
    for code in product("123456", repeat=4):
        env.reset(seed=0)
        env.secret = "".join(code)
        needed.append(guesses_needed(env))
    assert max(needed) == 5
    assert sum(needed) <= 5801


def test_the_expert_needs_at_most_four_guesses_for_two_of_six():
    env = Mastermind(code_length=2, num_numbers=6)
    needed = []
    for first, second in product("123456", repeat=2):
        if first != second:
            env.reset(seed=0)
            env.secret = first + second
            needed.append(guesses_needed(env))
    assert max(needed) == 4


def test_the_expert_reads_the_marks_alone():
    one, other = dealt("1234"), dealt("6543")
    other.marked = list(one.marked)
    assert one.solve() == other.solve()
    guess(one, "1 2 3 5")
    other.marked = list(one.marked)
    assert one.solve() == other.solve()


@pytest.mark.parametrize(
    ("keywords", "why"),
    [
        ({"code_length": 7, "num_numbers": 6}, "at most as long"),
        ({"code_length": 9, "num_numbers": 9}, "387,420,489 codes"),
        ({"code_length": 0}, "code_length is 0"),
        ({"num_numbers": 10}, "num_numbers is 10"),
        ({"code_length": (4, 2)}, "code_length is"),
    ],
)
def test_codes_that_cannot_be_are_refused(keywords, why):
    with pytest.raises(BadArgument, match=why):
        Mastermind(**keywords)
