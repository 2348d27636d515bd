"""Two transcripts are compared turn by turn, and by how long they are."""

import pytest

from gem.testing.transcripts import difference

ONE = [("Begin.", {}), ("a", "Go on.", 0.0, False, False, {}), ("b", "Done.", 1.0, True, False, {})]


def test_equal_transcripts_have_no_difference():
    assert difference(ONE, list(ONE)) == ""


def test_the_first_difference_is_named_with_its_turn():
    other = [ONE[0], ("a", "Go on!", 0.0, False, False, {}), ("b", "Done.", 0.0, True, False, {})]
    assert difference(ONE, other).startswith("turn 1 was \"('a', 'Go on.'")


def test_the_words_begin_near_what_differs():
    long = "x" * 1000
    assert difference([(f"{long}a{long}", {})], [(f"{long}b{long}", {})]).count("xa") == 1


@pytest.mark.parametrize("seats", [False, True])
def test_what_info_tells_of_the_episode_before_is_not_compared(seats):
    def said(**info):
        return [("Begin.", {"white": info, "black": {}} if seats else info)]

    assert difference(said(turn=1, prev_ep_turns=None), said(turn=1, prev_ep_turns=7)) == ""
    assert difference(said(turn=1, prev_ep_turns=7), said(turn=2, prev_ep_turns=7)).startswith("turn 0")
    assert difference(said(of={"turns": 1}), said(of={"turns": 2})).startswith("turn 0")


def test_a_transcript_that_ends_early_differs():
    assert difference(ONE, ONE[:2]) == "one transcript has 3 entries, the other 2"
