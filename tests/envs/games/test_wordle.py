import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gem
from gem.envs.games import words
from gem.envs.games.wordle import Wordle, marks
from gem.errors import BadArgument


def dealt(secret, **keywords):
    """A game whose word is known."""
    env = Wordle(word_length=len(secret), **keywords)
    env.reset(seed=0)
    env.secret = secret
    return env


def guess(env, text):
    return env.step(f"I say \\boxed{{{text}}}")


@pytest.mark.parametrize(
    ("guess", "secret", "given"),
    [
        ("house", "house", "GGGGG"),
        ("sleep", "house", "YXYXX"),  # one e in the word: the first e of the guess has it
        ("geese", "house", "XXXGG"),  # the e in place has it, not the earlier ones
        ("level", "sleep", "YYXGX"),
        ("llama", "small", "YYGYX"),
        ("aabbb", "bbaaa", "YYYYX"),
    ],
)
def test_marks_by_hand(guess, secret, given):
    assert marks(guess, secret) == given


@given(st.integers(1, 6).flatmap(lambda n: st.tuples(*[st.text("abc", min_size=n, max_size=n)] * 2)))
def test_a_letter_is_marked_as_often_as_the_word_has_it(pair):
    guess, secret = pair
    given = marks(guess, secret)
    for letter in "abc":
        marked = sum(mark != "X" for own, mark in zip(guess, given, strict=True) if own == letter)
        assert marked == min(guess.count(letter), secret.count(letter))
    assert [mark == "G" for mark in given] == [a == b for a, b in zip(guess, secret, strict=True)]


def test_a_guess_is_marked_letter_by_letter():
    env = dealt("house")
    assert guess(env, "Sleep").obs == "s l e e p\nY X Y X X"
    assert guess(env, "HOUSE").info == {"success": True, "stop": "solved"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("zzzzz", "zzzzz is not in the list of English words."),  # upstream takes it
        ("qwert", "qwert is not in the list of English words."),
        ("hous", "The word has 5 letters."),
        ("h" * 100_000, "The word has 5 letters."),
    ],
)
def test_what_is_no_word_is_explained_and_costs_the_turn(text, why):
    env = dealt("house", max_turns=2)
    step = guess(env, text)
    assert (step.obs, step.reward, step.done, step.info) == (why, 0.0, False, {"legal": False})
    assert guess(env, text).info["stop"] == "turn_budget"


@pytest.mark.parametrize("word", ["xylem", "zesty", "llama", "aloft"])
def test_rare_words_are_guesses_too(word):
    assert "legal" not in guess(dealt("house"), word).info


@pytest.mark.parametrize("text", ["a b", "12345", "", "éclat"])
def test_what_is_no_text_of_letters_is_unreadable(text):
    assert guess(dealt("house"), text).info["stop"] == "unreadable"


def test_repeating_guesses_earns_nothing():
    env = dealt("house", max_turns=40)
    assert guess(env, "horse").reward == pytest.approx(0.5 * 8 / 10)
    assert [guess(env, text).reward for text in ("horse", "sleep", "mouth", "zzzzz") * 8] == [0.0] * 32


def test_the_last_turn_tells_the_word():
    assert guess(dealt("house", max_turns=1), "sleep").obs.endswith("The word was house.")


def turns(env, secret):
    env.reset(seed=0)
    env.length, env.secret = len(secret), secret
    rewards, step = [], None
    while step is None or not step.done:
        step = env.step(env.solve())
        rewards.append(step.reward)
    assert step.info["success"]
    assert math.fsum(rewards) == 1.0
    return len(rewards)


def test_the_expert_finds_every_word_of_three_letters_in_eight_guesses():
    env = gem.make("game:Wordle-v0-easy")
    assert max(turns(env, word) for word in words.common(3)) <= 8


@pytest.mark.slow
@pytest.mark.parametrize("length", [4, 5])
def test_the_expert_finds_every_word_in_eight_guesses(length):
    env = gem.make("game:Wordle-v0-random")
    assert max(turns(env, word) for word in words.common(length)) <= 8


def test_the_expert_reads_the_marks_alone():
    one, other = dealt("house"), dealt("sleep")
    assert one.solve() == other.solve()
    guess(one, "trail")
    other.marked = list(one.marked)
    assert one.solve() == other.solve()


def test_lengths_without_words_are_refused():
    with pytest.raises(BadArgument, match="word_length is"):
        Wordle(word_length=2)
