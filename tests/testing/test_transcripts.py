"""Two transcripts are compared turn by turn, and by how long they are."""

from gem.testing.transcripts import difference

ONE = [("Begin.", {}), ("a", "Go on.", 0.0, False, False, {}), ("b", "Done.", 1.0, True, False, {})]


def test_equal_transcripts_have_no_difference():
    assert difference(ONE, list(ONE)) == ""


def test_the_first_difference_is_named_with_its_turn():
    other = [ONE[0], ("a", "Go on!", 0.0, False, False, {}), ("b", "Done.", 0.0, True, False, {})]
    assert difference(ONE, other).startswith("turn 1 was \"('a', 'Go on.'")


def test_a_transcript_that_ends_early_differs():
    assert difference(ONE, ONE[:2]) == "one transcript has 3 entries, the other 2"
