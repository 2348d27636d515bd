import pytest

from gem.content import Image, Message, Text, check_obs, check_pictures, join, text_of
from gem.errors import BadArgument

PICTURE = Image(b"\x89PNG", alt="a board")


@pytest.mark.parametrize(
    ("obs", "text"),
    [
        ("plain", "plain"),
        ((Text("look:"), PICTURE, Text("well?")), "look:\na board\nwell?"),
        ((Image(b""),), "[image]"),
        ("", ""),
    ],
)
def test_an_observation_reads_as_text(obs, text):
    assert text_of(obs) == text
    assert Message("user", obs).text == text


@pytest.mark.parametrize(
    ("pieces", "joined"),
    [
        (["a", "b"], "a\nb"),
        (["a", "", "b"], "a\nb"),
        ([], ""),
        (["a", (PICTURE,), "b"], (Text("a"), PICTURE, Text("b"))),
        ([(Text("a"),), ""], (Text("a"),)),
    ],
)
def test_joining_keeps_text_as_text_and_pictures_as_parts(pieces, joined):
    assert join(pieces) == joined


def test_text_is_joined_by_any_separator():
    assert join(["a", "b"], " | ") == "a | b"


@pytest.mark.parametrize("obs", ["text", (Text("a"), PICTURE), ()])
def test_an_observation_is_text_or_parts(obs):
    assert check_obs(obs) == obs


def test_a_list_of_parts_becomes_a_tuple():
    assert check_obs([Text("a")]) == (Text("a"),)


@pytest.mark.parametrize("obs", [None, 7, b"bytes", ["a"], {"text": "a"}, (Text("a"), "b")])
def test_anything_else_is_refused(obs):
    with pytest.raises(BadArgument, match="observation is"):
        check_obs(obs)


@pytest.mark.parametrize(
    ("part", "error"),
    [
        ("b", r"part 1 of the observation is str; it must be gem\.Text\('\.\.\.'\) or gem\.Image"),
        (type("PngFile", (), {"__module__": "PIL.Png"})(), "is Pillow's PngFile; .* image.save"),
    ],
)
def test_the_part_of_an_observation_that_is_wrong_is_named_with_what_to_do(part, error):
    for read in (check_obs, text_of):
        with pytest.raises(BadArgument, match=error):
            read([Text("a"), part])


@pytest.mark.parametrize("alt", ["[image]", " [a geometric figure] ", "[figure 1]"])
def test_a_name_in_brackets_describes_no_picture(alt):
    obs = (Text("How long is x?"), Image(b"", alt=alt))
    with pytest.raises(BadArgument, match="a reader reads text alone, and no text describes the picture"):
        check_pictures(["before", obs], "a reader")
    with pytest.warns(UserWarning, match="its score is one of text"):
        check_pictures([obs], f"a reader of {alt!r}", strict=False)


@pytest.mark.parametrize("alt", ["", "[1] . [2]", "[. .]\n[x .]", "[3, 4, 5]", "[_ X O]", "a board"])
def test_text_that_stands_for_a_picture_is_taken_with_one_warning(alt):
    reader = f"a reader of {alt!r}"
    with pytest.warns(UserWarning, match="its score is one of text"):
        check_pictures([(Image(b"", alt=alt),)], reader)
    check_pictures([(Image(b"", alt=alt),), "text"], reader)  # not again
