"""What is left out of messages and records."""

import pytest

from gem.hiding import hide_credentials, hide_secrets, plain_address

KEY = "sk-0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"the key {KEY} is bad", "the key *** is bad"),
        (f"{KEY[:12]} and {KEY}{KEY[:8]}", "*** and ******"),
        (f"cut to {KEY[:7]}", "cut to sk-0123"),
        (f"Basic {KEY}, Bearer {KEY}", "Basic ***, ***"),
        ("as /tok-567890 in https://other/x?y=1 of me:word5678", "as /*** in https://other/x?y=1 of me:***"),
        ("me:word%35678, /v1?key=c2Vj%2Fa2V5%3D&v=1, c2Vj/a2V5", "me:***, /v1?key=***&v=1, ***"),
        ("of https://app.example/a: use max_completion_tokens", "of ***: use max_completion_tokens"),
        ("see https://other/x by completion-bench", "see https://other/x by ***"),
    ],
)
def test_secrets_are_hidden_whole_and_those_with_a_secret_name_also_cut(text, shown):
    url = "https://me:word%35678@host/v1?key=c2Vj%2Fa2V5%3D&v=1&access_token=tok-567890#x"
    headers = {"Authorization": f"Bearer {KEY}", "X-Short": "brief", "X-Api-Key": ""}
    headers |= {"HTTP-Referer": "https://app.example/a", "X-Title": "completion-bench"}
    assert hide_secrets(text, headers, url) == shown


def test_a_long_text_is_read_once():
    text = "://" * 200_000
    assert hide_credentials(text) == text
    key = "0123456789" * 1000
    assert hide_secrets("01234567 " * 100_000, {"X-Key": key}) == "*** " * 100_000


@pytest.mark.parametrize(
    ("text", "shown", "address"),
    [
        ("http://host:80/v1", "http://host:80/v1", "http://host:80/v1"),
        ("https://me:p@ss@host/a@b/v1?key=x#y", "https://***@host/a@b/v1?***", "https://host/a@b/v1"),
        ("http://host?a@b", "http://host?***", "http://host"),
        ("http://host?", "http://host?", "http://host"),
        ("openai:m@http://me@h/v1", "openai:m@http://***@h/v1", "openai:m@http://h/v1"),
        ("what? me@home", "what? me@home", "what"),
    ],
)
def test_an_address_is_shown_without_what_may_be_secret(text, shown, address):
    assert hide_credentials(text) == shown
    assert plain_address(text) == address
