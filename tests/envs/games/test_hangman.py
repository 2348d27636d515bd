import math

import pytest

import gem
from gem.envs.games import words
from gem.envs.games.hangman import Hangman, candidates
from gem.errors import BadArgument


def dealt(secret, **keywords):
    """A game whose word is known."""
    env = Hangman(word_length=len(secret), **keywords)
    env.reset(seed=0)
    env.secret = secret
    return env


def guess(env, text):
    return env.step(f"I say \\boxed{{{text}}}")


def test_a_letter_is_shown_wherever_it_stands():
    env = dealt("sleep")
    assert guess(env, "e").obs == "There is e.\nWord: _ _ e e _\nNot in it: -"
    assert guess(env, "x").obs == "There is no x.\nWord: _ _ e e _\nNot in it: x"
    assert guess(env, "P").obs == "There is p.\nWord: _ _ e e p\nNot in it: x"


def test_the_game_ends_with_the_last_letter():
    # Upstream goes on until the whole word is typed.
    env = dealt("bad")
    steps = [guess(env, letter) for letter in "abd"]
    assert [step.done for step in steps] == [False, False, True]
    assert steps[-1].info == {"success": True, "stop": "solved"}
    assert math.fsum(step.reward for step in steps) == 1.0


def test_the_whole_word_wins_at_once_and_a_wrong_one_tells_nothing():
    env = dealt("bad")
    step = guess(env, "bed")
    assert (step.reward, step.done, step.info) == (0.0, False, {})
    assert step.obs == "bed is not the word.\nWord: _ _ _\nNot in it: -"
    assert guess(env, "BAD").info["success"]


@pytest.mark.parametrize(
    ("before", "text", "why"),
    [
        ("a", "a", "You have guessed the letter a before."),
        ("x", "x", "You have guessed the letter x before."),
        ("bed", "bed", "You have guessed bed before."),
        ("a", "lamb", "The word has 3 letters."),
        ("a", "q" * 100_000, "The word has 3 letters."),
    ],
)
def test_a_guess_that_tells_nothing_is_explained_and_costs_the_turn(before, text, why):
    env = dealt("bad", max_turns=3)
    guess(env, before)
    step = guess(env, text)
    assert step.obs.startswith(why + "\nWord: ")
    assert (step.reward, step.done, step.info) == (0.0, False, {"legal": False})
    assert guess(env, text).info["stop"] == "turn_budget"


@pytest.mark.parametrize("text", ["a b", "1", "", "é", "?"])
def test_what_is_no_letter_or_word_is_unreadable(text):
    assert guess(dealt("bad"), text).info["stop"] == "unreadable"


def test_repeating_letters_earns_nothing():
    env = dealt("bad", max_turns=40)
    assert guess(env, "a").reward == pytest.approx(0.5 / 3)
    assert [guess(env, text).reward for text in ("a", "x", "a", "bed", "bed") * 6] == [0.0] * 30


def test_the_last_turn_tells_the_word():
    assert guess(dealt("bad", max_turns=1), "x").obs.endswith("The word was bad.")


def test_candidates_fit_what_is_shown_and_hide_no_letter_that_is_found():
    assert "sleep" in candidates("__ee_", "x")
    assert all(word[2:4] == "ee" and word.count("e") == 2 for word in candidates("__ee_", ""))
    assert not any("s" in word for word in candidates("_____", "s"))
    assert {"great", "where"} <= set(candidates("_____", ""))
    assert "great" in candidates("__e__", "")
    assert "where" not in candidates("__e__", "")


def test_words_are_drawn_from_all_lengths_of_the_range():
    env = gem.make("game:Hangman-v0-random")
    lengths = set()
    for seed in range(100):
        env.reset(seed=seed)
        assert env.secret in words.common(env.length)
        lengths.add(env.length)
    assert lengths == {3, 4, 5, 6, 7}


def won(env, secret):
    env.reset(seed=0)
    env.length, env.secret, env.pattern = len(secret), secret, "_" * len(secret)
    step = env.step(env.solve())
    while not step.done:
        step = env.step(env.solve())
    return step.info["success"]


def test_the_expert_wins_the_share_of_three_letter_words_that_the_catalogue_states():
    env = gem.make("game:Hangman-v0-easy")
    rate = sum(won(env, word) for word in words.common(3)) / len(words.common(3))
    assert rate == pytest.approx(env.spec.solver_rate, abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("length", [3, 4, 5, 6, 7])
def test_twenty_turns_are_enough_for_the_expert_whatever_the_word(length):
    env = gem.make("game:Hangman-v0-random")
    assert all(won(env, word) for word in words.common(length))


@pytest.mark.parametrize("length", [2, 9, (5, 3)])
def test_lengths_without_words_are_refused(length):
    with pytest.raises(BadArgument, match="word_length is"):
        Hangman(word_length=length)
