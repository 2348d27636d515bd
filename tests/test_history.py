import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem.content import Image, Message, Text
from gem.errors import BadArgument
from gem.history import CHAT, KINDS, LAST, HistoryPolicy, messages
from gem.record import SEAT, Turn

texts = st.text(min_size=1, max_size=8)
parts = st.lists(texts.map(Text) | st.just(Image(b"png")), min_size=1, max_size=3).map(tuple)
turns_ = st.lists(
    st.builds(lambda obs, action: Turn(SEAT, obs, action), texts | parts, st.none() | texts),
    min_size=1,
    max_size=6,
)


def turns(*said, info=None):
    """Observation, action, observation, ... as turns; `info` belongs to the last."""
    pairs = list(zip(said[::2], [*said[1::2], None], strict=False))
    return [Turn(SEAT, obs, action) for obs, action in pairs[:-1]] + [
        Turn(SEAT, pairs[-1][0], None, info=info or {})
    ]


def shown(policy, *said, info=None):
    return [(message.role, message.content) for message in messages(turns(*said, info=info), policy)]


# -- the forms


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("last", [("user", "o3")]),
        ("concat", [("user", "o1\no2\no3")]),
        ("concat_with_action", [("user", "o1\na1\no2\na2\no3")]),
        (
            "chat",
            [("user", "o1"), ("assistant", "a1"), ("user", "o2"), ("assistant", "a2"), ("user", "o3")],
        ),
    ],
)
def test_each_kind_has_its_form(kind, expected):
    assert shown(HistoryPolicy(kind), "o1", "a1", "o2", "a2", "o3") == expected


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_turn_is_the_observation_alone(kind):
    assert shown(HistoryPolicy(kind), "o1") == [("user", "o1")]


@pytest.mark.parametrize(
    ("window", "keep_first", "expected"),
    [
        (1, False, "o4"),
        (2, False, "o3\no4"),
        (4, False, "o1\no2\no3\no4"),
        (9, False, "o1\no2\no3\no4"),
        (1, True, "o4"),
        (2, True, "o1\no4"),
        (3, True, "o1\no3\no4"),
        (4, True, "o1\no2\no3\no4"),
    ],
)
def test_a_window_keeps_the_latest_observations(window, keep_first, expected):
    policy = HistoryPolicy("concat", window, keep_first)
    assert shown(policy, "o1", "a1", "o2", "a2", "o3", "a3", "o4") == [("user", expected)]


def test_a_window_of_chat_begins_with_the_user():
    said = ("o1", "a1", "o2", "a2", "o3")
    assert shown(HistoryPolicy("chat", 2), *said) == [("user", "o2"), ("assistant", "a2"), ("user", "o3")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_system_message_comes_first(kind):
    system = HistoryPolicy(kind, system="Be brief.")
    assert shown(system, "o1", "a1", "o2") == [
        ("system", "Be brief."),
        *shown(HistoryPolicy(kind), "o1", "a1", "o2"),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_text_around_the_latest_observation_is_not_kept(kind):
    info = {"prefix": "before", "suffix": "after"}
    latest = shown(HistoryPolicy(kind), "o1", "a1", "o2", info=info)[-1][1]
    assert latest.endswith("before\no2\nafter")
    assert "before" not in str(shown(HistoryPolicy(kind), "o1", "a1", "o2", "a2", "o3"))


def test_pictures_stay_pictures():
    picture = (Text("look"), Image(b"png"))
    assert shown(CHAT, picture, "a1", "o2")[0] == ("user", picture)
    assert shown(HistoryPolicy("concat"), picture, "a1", "o2") == [("user", (*picture, Text("o2")))]


@pytest.mark.parametrize(
    "wrong", [lambda: HistoryPolicy("all"), lambda: HistoryPolicy(window=0), lambda: messages([])]
)
def test_what_no_policy_means_is_refused(wrong):
    with pytest.raises(BadArgument):
        wrong()


# -- properties


@given(turns_, st.none() | st.just("Be brief."))
def test_each_chat_prompt_extends_the_one_before(played, system):
    """So the tokens of earlier turns can be held, and nobody tokenises history again."""
    policy = HistoryPolicy("chat", system=system)
    assert policy.append_only
    before = ()
    for n in range(1, len(played) + 1):
        now = messages(played[:n], policy)
        assert now[: len(before)] == before
        if before:
            assert now[len(before) :] == (
                Message("assistant", played[n - 2].action or ""),
                Message("user", played[n - 1].observation),
            )
        before = now


@given(turns_, st.sampled_from(KINDS), st.integers(1, 6), st.booleans())
def test_a_window_that_holds_all_changes_nothing(played, kind, window, keep_first):
    windowed = messages(played, HistoryPolicy(kind, window, keep_first))
    if window >= len(played):
        assert windowed == messages(played, HistoryPolicy(kind))
    assert windowed[-1].role == "user"
    assert not HistoryPolicy(kind, window).append_only


@given(turns_)
def test_last_forgets_everything(played):
    assert messages(played, LAST) == messages(played[-1:], CHAT)
