import dataclasses
import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import episode, paid, turn

from gem.content import Image, Message, Text
from gem.errors import BadArgument
from gem.record import (
    SEAT,
    Agent,
    Episode,
    Limits,
    Reply,
    RunInfo,
    SeatEnd,
    StopReason,
    Turn,
    Verdict,
    common_prefix,
    group_episodes,
)
from gem.specs import TaskRef


@pytest.mark.parametrize("limit", [{"turns": -1}, {"tokens": -1}, {"policy_s": math.nan}, {"call_s": -0.1}])
def test_a_limit_that_every_episode_is_past_is_refused(limit):
    (name,) = limit
    with pytest.raises(BadArgument, match=f"limit {name} is .*accepted"):
        Limits(**limit)


# -- rewards and verdicts


def test_the_return_is_the_sum_of_a_seats_rewards():
    played = episode(*paid(0.1, 0.2, 0.3))
    assert played.reward() == pytest.approx(0.6)
    played.turns.append(Turn("dealer", "o", "a", reward=5.0))
    assert played.reward(SEAT) == pytest.approx(0.6)


def test_a_seat_that_an_episode_does_not_have_earns_no_zero():
    game = episode(*paid(1.0, seat="x"), *paid(0.5, seat="o"))
    with pytest.raises(BadArgument, match="no seat 'nobody'; its seats are: x, o"):
        game.reward("nobody")


def test_the_return_of_a_game_is_the_mean_over_its_seats():
    game = episode(*paid(1.0, 0.5, seat="x"), *paid(-1.0, seat="o"))
    game.ends["o"].unearned = 0.25
    game.ends["y"] = SeatEnd()  # it never acted
    assert (game.reward("x"), game.reward("o"), game.reward("y")) == (1.5, -0.75, 0.0)
    assert game.reward() == game.earned() == 0.25


def test_the_sum_is_exact():
    assert episode(*paid(*[0.1] * 10)).reward() == 1.0


@pytest.mark.parametrize("stop", [StopReason.ERROR, StopReason.CANCELLED])
def test_without_verdict_there_is_no_reward_and_no_success(stop):
    broken = episode(*paid(1.0), stop=stop)
    assert math.isnan(broken.reward())
    assert broken.earned() == 1.0
    assert broken.success is None
    assert broken.truncated
    assert not broken.scored
    assert not broken.bootstrap


@pytest.mark.parametrize(
    ("stop", "success"),
    [
        (StopReason.SOLVED, True),
        (StopReason.FAILED, False),
        (StopReason.TURN_BUDGET, False),
        (StopReason.TOKEN_LIMIT, False),
        (StopReason.ENDED, None),
    ],
)
def test_success_is_the_stop_reason(stop, success):
    assert episode(stop=stop).success is success


def test_each_seat_succeeds_by_its_own_end():
    game = episode(*paid(1.0, seat="x"), *paid(-1.0, seat="o"), stop=StopReason.ENDED)
    game.ends["x"].stop, game.ends["o"].stop = StopReason.SOLVED, StopReason.FAILED
    assert (game.succeeded("x"), game.succeeded("o"), game.success) == (True, False, None)
    assert game.succeeded("nobody") is None  # of a seat that never had an end, nobody knows
    assert episode().succeeded(SEAT) is True


def test_a_limit_from_outside_bootstraps_and_an_end_of_the_task_does_not():
    assert episode(stop=StopReason.TURN_LIMIT).bootstrap
    assert not episode(stop=StopReason.SOLVED).bootstrap


def test_an_episode_has_terminated_when_every_seat_has():
    game = episode(*paid(0.0, seat="x"), *paid(0.0, seat="o"))
    assert (game.terminated, game.truncated) == (True, False)
    game.ends["o"] = SeatEnd(StopReason.TURN_LIMIT, truncated=True)
    assert (game.terminated, game.truncated) == (False, True)
    assert not Episode(TaskRef("x")).terminated  # it never began


def test_a_turn_without_reward_counts_as_nothing():
    assert episode(*paid(0.5, None)).reward() == 0.5


# -- views


def test_one_seat_is_seen_as_itself_and_several_by_name():
    one = episode(*paid(1.0), starts={SEAT: {"hint": 1}})
    one.ends[SEAT] = SeatEnd(StopReason.SOLVED, True, observation="the end", info={"success": True})
    assert not one.several
    assert (one.initial_info, one.final_info) == ({"hint": 1}, {"success": True})
    assert one.final_observation == "the end"
    starts = {"x": {"hint": 1}, "o": {}}
    ends = {seat: SeatEnd(observation=f"{seat} saw", info={"of": seat}) for seat in "xo"}
    game = episode(starts=starts, ends=ends)
    assert game.several
    assert (game.initial_info, game.final_info) == (starts, {"x": {"of": "x"}, "o": {"of": "o"}})
    assert game.final_observation == ""
    empty = Episode(TaskRef("x"))
    assert (empty.initial_info, empty.final_info, empty.final_observation) == ({}, {}, "")


def test_the_task_says_what_was_played():
    played = Episode(TaskRef("game:X", {"colour": 1}, seed=7))
    assert (played.spec, played.kwargs, played.seed) == ("game:X", {"colour": 1}, 7)


def test_ids_tell_runs_jobs_samples_and_attempts_apart():
    task, run = TaskRef("x"), RunInfo()
    made = [
        Episode(task, each, job, sample, attempt)
        for each in (run, RunInfo())
        for job in ("a", "b")
        for sample in (0, 1)
        for attempt in (0, 1)
    ]
    assert len({each.id for each in made}) == 16
    assert Episode(task, run, "a", 1, 2).id == f"{run.id}-a-1-2"


def test_the_version_of_an_episode_is_the_least_of_its_turns():
    assert episode(turn(policy_version=4), turn(policy_version=3), turn()).policy_version == 3
    assert episode(turn()).policy_version is None


def test_what_was_said_is_the_reply_or_the_action():
    assert Turn(SEAT, "", "move").said == Message("assistant", "move")
    assert Turn(SEAT, "").said == Message("assistant", "")
    thought = Message("assistant", "move", reasoning="because")
    assert Turn(SEAT, "", "move", thought).said is thought


def test_exchanges_hold_the_info_before_each_action():
    turns = [Turn(SEAT, "", "a", info={"n": 1}), Turn("o", "", "b"), Turn(SEAT, "", "c", info={"n": 2})]
    played = episode(*turns, starts={SEAT: {"n": 0}})
    assert [each.info for each in played.exchanges()] == [{"n": 0}, {"n": 1}]
    assert [each.info for each in turns] == [{"n": 1}, {}, {"n": 2}]


# -- seats and groups


def test_seats_are_those_of_the_environment_or_in_order_of_their_first_turn():
    turns = [Turn(seat, "", reward=1.0) for seat in ("north", "south", "north")]
    played = episode(*turns, ends={})
    assert played.seats == ("north", "south")
    assert played.turns_of("north") == [turns[0], turns[2]]
    assert played.turns_of() == []
    played.ends = {"west": SeatEnd(), "north": SeatEnd()}
    assert played.seats == ("west", "north")


def test_episodes_are_grouped_by_task():
    played = [episode(job=str(i), group=group) for i, group in enumerate("abcab")]
    groups = group_episodes(played)
    assert [(g.group, [e.job for e in g.episodes]) for g in groups] == [
        ("a", ["0", "3"]),
        ("b", ["1", "4"]),
        ("c", ["2"]),
    ]


# -- tokens

FEW = st.integers(0, 2)  # few ids, so that prompts share more than they were meant to


@st.composite
def grown(draw):
    """Prompts and answers: each prompt begins as any earlier prompt and answer does, for a while."""
    made = []
    for _ in range(draw(st.integers(1, 7))):
        start = ()
        if made:
            prompt, answer = draw(st.sampled_from(made))
            whole = prompt + answer
            start = whole[: draw(st.sampled_from([len(whole), len(prompt), len(whole) // 2]))]
        more = tuple(draw(st.lists(FEW, max_size=3)))
        made.append((start + more, tuple(draw(st.lists(FEW, max_size=3)))))
    return made


def shared(one, other):
    """How many leading ids two sequences share, counted one by one."""
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


@given(said=grown(), data=st.data())
def test_a_prompt_is_put_together_from_any_tree_of_parents(said, data):
    turns = []
    for prompt, answer in said:
        after = [each for each in turns if data.draw(st.booleans())]
        made = Turn(SEAT, "")
        made.hold(prompt, answer, after=after)
        assert tuple(made.prompt_ids) == prompt
        assert made.prompt_length == len(prompt)
        covered = [shared((*each.prompt_ids, *each.token_ids), prompt) for each in after]
        assert made.kept == max(covered, default=0)
        if made.kept:  # of equal ones the latest
            latest = max(place for place, count in enumerate(covered) if count == made.kept)
            assert made.parent is after[latest]
        else:
            assert made.parent is None
        turns.append(made)
    for made, (prompt, answer) in zip(turns, said, strict=True):
        assert (tuple(made.prompt_ids), tuple(made.token_ids)) == (prompt, answer)


@given(said=st.lists(st.tuples(st.lists(FEW, max_size=3), st.lists(FEW, max_size=3)), min_size=1, max_size=6))
def test_extending_is_holding_the_whole_prompt(said):
    whole, extended, held = [], [], []
    for shown, answer in said:
        prompt = [*held, 9, *shown]
        one, other = Turn(SEAT, ""), Turn(SEAT, "")
        one.hold(prompt, answer, after=whole)
        if extended:
            other.extend(extended[-1], [9, *shown], answer)
            assert other.parent is extended[-1]
        else:
            other.hold(prompt, answer)
        assert one == other
        assert list(other.prompt_ids) == prompt
        whole.append(one)
        extended.append(other)
        held = prompt + answer


def test_a_conversation_of_n_turns_keeps_its_tokens_once():
    turns, prompt = [], []
    for number in range(50):
        prompt = [*prompt, *range(20)]
        turns.append(turn(prompt, [number] * 10, after=turns[-1:]))
        prompt = [*prompt, *[number] * 10]
    assert sum(len(each.new_ids) + len(each.token_ids) for each in turns) == len(prompt) == 1500
    assert turns[-1].prompt_length == 1490
    for each in turns:
        assert [ids.itemsize for ids in (each.new_ids, each.token_ids, each.logprobs)] == [4, 4, 4]
        assert len(each.mask) == 10


def test_what_was_sampled_is_learned_on_unless_it_is_masked():
    assert turn((1,), (2, 3)).mask == b"\1\1"
    assert turn((1,), (2, 3), mask=(0, 1)).mask == b"\0\1"


def test_unknown_log_probabilities_are_none():
    assert turn((1,), (2,), logprobs=None).logprobs is turn((1,), (2,), logprobs=()).logprobs is None
    assert turn((1,), (2,)).logprobs.tolist() == [-0.5]
    assert turn((1,), ()).logprobs is None


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"logprobs": (-0.1,)}, "2 token_ids has 1 logprobs and 2 mask"),
        ({"mask": (1,)}, "2 token_ids has 2 logprobs and 1 mask"),
        ({"logprobs": None, "mask": (1, 1, 1)}, "2 token_ids has 0 logprobs and 3 mask"),
    ],
)
def test_columns_of_different_lengths_are_refused(more, told):
    with pytest.raises(BadArgument, match=told):
        turn((1,), (2, 3), **more)


@pytest.mark.parametrize("ids", [("a",), (1.5,), (2**31,), (None,), "ab", 7, None])
def test_what_are_no_ids_is_refused(ids):
    for wrong in ((ids, (1,)), ((1,), ids)):
        with pytest.raises(BadArgument, match="accepted: 32-bit integers"):
            Turn(SEAT, "").hold(*wrong)


@given(st.lists(FEW), st.lists(FEW))
def test_common_prefix(one, other):
    length = common_prefix(array("i", one), array("i", other))
    assert one[:length] == other[:length]
    assert length == min(len(one), len(other)) or one[length] != other[length]


# -- the transcript's hash


def test_the_hash_is_what_it_was():
    """Hosts, drivers and stored runs are compared by it."""
    assert episode(*paid(1.0, 0.5)).transcript_hash() == "aa6b098aa605119fe5b7e4f7ea8e8479"
    cut = episode(*paid(1.0, 0.5), stop=StopReason.TURN_LIMIT)
    cut.ends[SEAT].observation = "go on"
    assert cut.transcript_hash() == "cfc3adac5da69b5593969d6d62cb6be4"
    ends = {
        "x": SeatEnd(StopReason.SOLVED, True, observation="won"),
        "o": SeatEnd(StopReason.FAILED, True, observation="lost", unearned=0.5),
    }
    turns = [Turn("x", "x0", "a", reward=1.0), Turn("o", "o0", "b", reward=-1.0)]
    game = episode(*turns, stop=StopReason.ENDED, ends=ends)
    assert game.transcript_hash() == "5ab9485bb442f1c57ac7527ea034265f"


def test_the_hash_does_not_see_tokens_timing_or_names():
    plain = episode(*paid(1.0))
    held = dataclasses.replace(
        plain.turns[0], policy_version=3, usage={"prompt_tokens": 1}, timing={"env_s": 1.0}
    )
    held.hold((1, 2), (3,), (-0.5,))
    other = dataclasses.replace(
        plain,
        task=TaskRef("game:Y", seed=9),
        run=RunInfo("other"),
        job="other",
        attempt=1,
        timing={"wall_s": 1.0},
        turns=[held],
    )
    assert other.transcript_hash() == plain.transcript_hash()


def set_end(**changes):
    return lambda e: [setattr(e.ends[SEAT], name, value) for name, value in changes.items()]


@pytest.mark.parametrize(
    "change",
    [
        lambda e: setattr(e.turns[0], "observation", "other"),
        lambda e: setattr(e.turns[0], "action", "other"),
        lambda e: setattr(e.turns[0], "action", None),
        lambda e: setattr(e.turns[0], "reward", 0.25),
        lambda e: setattr(e.turns[0], "reward", None),
        lambda e: setattr(e.turns[0], "seat", "other"),
        lambda e: setattr(e, "stop", StopReason.FAILED),
        set_end(terminated=False),
        lambda e: setattr(e, "verdict", Verdict.NONE),
        set_end(observation="other"),
        lambda e: e.turns.pop(),
    ],
)
def test_the_hash_sees_all_that_was_said_done_and_earned(change):
    changed = episode(*paid(1.0, 0.5))
    change(changed)
    assert changed.transcript_hash() != episode(*paid(1.0, 0.5)).transcript_hash()


@given(st.lists(st.tuples(st.text(), st.text()), min_size=1, max_size=4))
def test_words_cannot_move_between_turns_unseen(said):
    def hashed(pairs):
        return episode(*[Turn(SEAT, obs, act) for obs, act in pairs]).transcript_hash()

    moved = [(obs + act, "") for obs, act in said]
    assert (hashed(moved) == hashed(said)) == (moved == said)


def ended(obs):
    return {SEAT: SeatEnd(StopReason.SOLVED, True, observation=obs)}


@pytest.mark.parametrize("obs", ["\ud800", "", (Text("a"), Image(b"\xff"))])
@pytest.mark.parametrize("reward", [math.nan, math.inf, -0.0])
def test_anything_can_be_hashed(obs, reward):
    played = episode(Turn(SEAT, obs, "\ud800", reward=reward), ends=ended(obs))
    assert played.transcript_hash() == played.transcript_hash()


def test_a_picture_is_told_from_another_and_from_text():
    hashes = {
        episode(ends=ended(obs)).transcript_hash()
        for obs in ((Image(b"a"),), (Image(b"b"),), (Image(b"a", "image/jpeg"),), (Text("a"),), "a")
    }
    assert len(hashes) == 5


# -- the agent's protocol


def test_whatever_has_the_three_methods_is_an_agent():
    class Mine:
        def __call__(self, asks):
            return [Reply("") for _ in asks]

        async def ask(self, ask):
            return Reply("")

        def forget(self, episode):
            pass

    assert isinstance(Mine(), Agent)
    assert not isinstance(object(), Agent)
