import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem.content import Image, Message, Text, ToolCall
from gem.errors import BadArgument
from gem.history import CHAT, KINDS, LAST, WITH_ANOTHER, HistoryPolicy, extend_messages, messages
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
        (1, True, "o1\no4"),
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


# -- native calls

ONE, TWO = ToolCall("c1", "look", "{}"), ToolCall("c2", "take", '{"what": "key"}')


def called(*calls, text="", obs="start"):
    return Turn(SEAT, obs, "written", Message("assistant", text, tool_calls=calls, reasoning="hm"))


def results(*shown):
    return {"tool_results": [{} if size is None else {"shown": size} for size in shown]}


@pytest.mark.parametrize(
    ("observation", "info", "contents"),
    [
        ("aa\nbbb", results(2, 3), ["aa", "bbb"]),
        ("aa\nbbb\nrest", results(2, 3), ["aa", "bbb\nrest"]),
        ("aa\nrest", results(2, None), ["aa", "rest"]),
        ("rest", results(None, None), ["rest", WITH_ANOTHER]),
        ("aa\nbbb", {}, ["aa\nbbb", WITH_ANOTHER]),
        ("prefixed: aa\nbbb", results(2, 3), ["prefixed: aa\nbbb", WITH_ANOTHER]),
        ("a", results(2, 3), ["a", WITH_ANOTHER]),
        ("aa\n\n\nrest", results(2, None), ["aa", "rest"]),
        ("\nrest", results(None, None), ["\nrest", WITH_ANOTHER]),
        ("aa\nbbb", {"tool_results": "none of ours"}, ["aa\nbbb", WITH_ANOTHER]),
        ("aa\nbbb", {"tool_results": [1, {"shown": -1}]}, ["aa\nbbb", WITH_ANOTHER]),
        ((Text("a"), Image(b"1"), Text("b")), results(2, 1), [(Text("a"), Image(b"1")), (Text("b"),)]),
        ("aa\nbbb", {**results(2, 3), "prefix": "P", "suffix": "S"}, ["P\naa", "bbb\nS"]),
    ],
)
def test_each_call_is_answered_by_a_message_of_its_own(observation, info, contents):
    _, assistant, *told = messages([called(ONE, TWO), Turn(SEAT, observation, info=info)])
    assert assistant == Message("assistant", "", tool_calls=(ONE, TWO), reasoning="hm")
    assert [(each.role, each.tool_call_id, each.name) for each in told] == [
        ("tool", "c1", "look"),
        ("tool", "c2", "take"),
    ]
    assert [each.content for each in told] == contents


def test_a_call_that_has_lost_its_result_is_text_and_so_is_a_result_that_lost_its_call():
    past = [called(ONE, obs="o1"), called(ONE, obs="o2"), called(ONE, obs="o3"), Turn(SEAT, "o4")]
    windowed = messages(past, HistoryPolicy(window=2, keep_first=True))
    assert [(each.role, each.content) for each in windowed] == [
        ("user", "o1"),
        ("assistant", "written"),
        ("user", "o4"),
    ]
    (first, said, last) = messages(past, HistoryPolicy(window=2))
    assert (first.role, first.content) == ("user", "o3")
    assert (said.tool_calls, last.role, last.tool_call_id) == ((ONE,), "tool", "c1")
    (joined,) = messages(past, HistoryPolicy("concat_with_action"))
    assert joined.content == "o1\nwritten\no2\nwritten\no3\nwritten\no4"


calls_ = st.lists(st.sampled_from([ONE, TWO]), max_size=2).map(tuple)
infos_ = st.sampled_from([{}, results(1), results(1, 1), results(None, 1), {"prefix": "P"}, {"suffix": "S"}])
exchanges_ = st.lists(
    st.builds(
        lambda obs, calls, info: Turn(
            SEAT, obs, "a", Message("assistant", "a", tool_calls=calls) if calls else None, info=info
        ),
        texts | parts,
        calls_,
        infos_,
    ),
    min_size=1,
    max_size=6,
)


@given(exchanges_, st.sampled_from([CHAT, HistoryPolicy(system="S"), LAST, HistoryPolicy(window=2)]))
def test_going_on_turn_by_turn_shows_what_the_whole_shows(played, policy):
    shown = ()
    for n in range(1, len(played) + 1):
        before, (shown, extends) = shown, extend_messages(shown, played[:n], policy)
        assert shown == messages(played[:n], policy)
        if extends:
            assert shown[: len(before)] == before
            assert shown[len(before)].role == "assistant"
    ids = [call.id for each in shown for call in each.tool_calls]
    assert [each.tool_call_id for each in shown if each.role == "tool"] == ids
