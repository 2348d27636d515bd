import pytest

from gem.content import Image, Message, Text, check_obs, join, text_of
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
