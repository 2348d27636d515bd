import math
from itertools import product

import pytest

import gem
from gem.envs.games.word_search import WordSearch
from gem.errors import BadArgument

VARIANTS = ["easy", "hard", "random"]


def dealt(rows, listed, **keywords):
    """A game whose grid is known."""
    env = WordSearch(num_words=len(listed), **{"max_turns": 60} | keywords)
    env.reset(seed=0)
    env.side, env.cells = len(rows), "".join(rows)
    env.words, env.left = list(listed), list(listed)
    return env


def small(**keywords):
    return dealt(["CATX", "XOXX", "XXPX", "XXXX"], ["cat", "top"], **keywords)


def give(env, text):
    return env.step(f"It is at \\boxed{{{text}}}")


def spelled(grid, side, start, way, length):
    """Letters along a line; None where it leaves the grid."""
    cells = [(start[0] + n * way[0], start[1] + n * way[1]) for n in range(length)]
    if not all(0 <= row < side and 0 <= column < side for row, column in cells):
        return None
    return "".join(grid[row * side + column] for row, column in cells).lower()


@pytest.mark.system
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_word_is_listed_and_stands_in_the_grid_in_an_allowed_direction(variant):
    env = gem.make(f"game:WordSearch-v0-{variant}")
    ways = [way for way in product((-1, 0, 1), repeat=2) if any(way)] if env.hardcore else [(0, 1), (1, 0)]
    seen = set()
    for seed in range(60):
        prompt = env.reset(seed=seed).obs
        assert f"Words left: {', '.join(env.words)}\n" in prompt
        assert len(set(env.words)) == len(env.words) <= env.max_turns
        for word in env.words:
            found = {
                way
                for way in ways
                for start in product(range(env.side), repeat=2)
                if spelled(env.cells, env.side, start, way, len(word)) == word
            }
            assert found
            seen |= found
    assert seen == set(ways)


def test_no_line_spells_two_of_the_words():
    env = WordSearch(num_words=12, hardcore=False)
    env.reset(seed=0)
    many = env._draw_words(700)  # of a pool with a score of words like star and rats
    for one, other in product(many, repeat=2):
        assert one == other or (one not in other and one not in other[::-1])


@pytest.mark.parametrize("text", ["1 1 1 3", "1 3 1 1", "1, 1, 1, 3", "1113"])
def test_a_word_is_found_from_either_end(text):
    step = give(small(), text)
    assert step.obs.startswith("cat is found.\nWords left: top\n")
    assert " 1  c  a  t  X\n" in step.obs
    assert step.reward == pytest.approx(0.25)


def test_a_word_counts_once_also_when_given_backwards():
    # Upstream pays for both, up to a return of 1.80.
    env = small()
    assert give(env, "1 1 1 3").reward > 0
    for text in ("1 3 1 1", "1 1 1 3") * 10:
        step = give(env, text)
        assert (step.reward, step.info) == (0.0, {})
        assert step.obs.startswith("cat was found before.")


def test_a_word_that_chance_has_spelled_twice_counts_once():
    env = dealt(["CATX", "XOXX", "XXPX", "CATX"], ["cat", "top"])
    assert give(env, "4 1 4 3").obs.startswith("cat is found.")
    assert give(env, "1 1 1 3").reward == 0.0


def test_all_words_win():
    env = dealt(["CATX", "XXOX", "XXPX", "XXXX"], ["cat", "top"])
    rewards = [give(env, "1 1 1 3").reward]
    last = give(env, "3 3 1 3")
    assert last.info == {"success": True, "stop": "solved"}
    assert math.fsum([*rewards, last.reward]) == 1.0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1 1 1 5", "Rows and columns go from 1 to 4."),
        ("0 1 1 3", "Rows and columns go from 1 to 4."),
        ("1 1 1 " + "9" * 4000, "Rows and columns go from 1 to 4."),
        ("1 1 2 3", "A word's ends lie in one row"),
        ("4 1 1 2", "A word's ends lie in one row"),
        ("2 2 2 2", "A word's ends lie in one row"),
    ],
)
def test_ends_that_make_no_line_are_explained_and_cost_the_turn(text, why):
    env = small(max_turns=2)
    step = give(env, text)
    assert step.obs.startswith(why)
    assert (step.reward, step.done, step.info) == (0.0, False, {"legal": False})
    assert give(env, text).info["stop"] == "turn_budget"


@pytest.mark.parametrize("text", ["cat", "1 1 1", "1 1 1 3 4", "1 1 1 " + "9" * 5000, "-1 1 1 3", ""])
def test_what_is_no_four_numbers_is_unreadable(text):
    assert give(small(), text).info["stop"] == "unreadable"


def test_a_line_that_is_no_word_costs_the_turn():
    step = give(small(), "1 1 4 4")
    assert (step.reward, step.info) == (0.0, {})
    assert step.obs.startswith("copx is none of the words.")


def test_the_last_turn_tells_what_was_not_found():
    assert give(small(max_turns=2), "1 1 4 4").obs
    env = small(max_turns=2)
    give(env, "1 1 1 3")
    assert give(env, "1 1 1 3").obs.endswith("not found: top.")


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_expert_needs_a_turn_per_word(variant):
    env = gem.make(f"game:WordSearch-v0-{variant}")
    for seed in range(50):
        env.reset(seed=seed)
        steps = [env.step(env.solve()) for _ in env.words]
        assert steps[-1].info["success"]


@pytest.mark.parametrize(
    ("keywords", "why"),
    [({"num_words": 0}, "num_words is 0"), ({"num_words": 8, "max_turns": 7}, "8 words need as many turns")],
)
def test_searches_that_cannot_be_are_refused(keywords, why):
    with pytest.raises((BadArgument, UserWarning), match=why):
        WordSearch(**keywords)
