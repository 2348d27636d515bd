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
        ("as /tok-567890 in https://other/x?y=1 of me:word5678", "as /*** in https://other/x?*** of me:***"),
    ],
)
def test_secrets_are_hidden_whole_and_cut(text, shown):
    url = "https://me:word%35678@host/v1?key=tok-567890&v=1"
    assert hide_secrets(text, ("", f"Bearer {KEY}", "brief"), url) == shown


@pytest.mark.parametrize(
    ("text", "shown", "address"),
    [
        ("http://host:80/v1", "http://host:80/v1", "http://host:80/v1"),
        ("https://me:p@ss@host/a@b/v1?key=x#y", "https://***@host/a@b/v1?***", "https://host/a@b/v1"),
        ("http://host?a@b", "http://host?***", "http://host"),
        ("openai:m@http://me@h/v1", "openai:m@http://***@h/v1", "openai:m@http://h/v1"),
        ("what? me@home", "what? me@home", "what"),
    ],
)
def test_an_address_is_shown_without_what_may_be_secret(text, shown, address):
    assert hide_credentials(text) == shown
    assert plain_address(text) == address
