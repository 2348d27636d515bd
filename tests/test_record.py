import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem.content import Image, Text
from gem.errors import BadArgument
from gem.record import Agent, Episode, Limits, Reply, StopReason, Turn, Verdict, group_episodes


def episode(*rewards, stop=StopReason.SOLVED, verdict=Verdict.SCORED, **kwargs):
    turns = [Turn("agent", f"o{i}", f"a{i}", reward=reward) for i, reward in enumerate(rewards)]
    return Episode("e", "game:X", 1, turns=turns, stop=stop, verdict=verdict, **kwargs)


@pytest.mark.parametrize("limit", [{"turns": -1}, {"tokens": -1}, {"policy_s": math.nan}, {"call_s": -0.1}])
def test_a_limit_that_every_episode_is_past_is_refused(limit):
    (name,) = limit
    with pytest.raises(BadArgument, match=f"limit {name} is .*accepted"):
        Limits(**limit)


# -- rewards and verdicts


def test_the_return_is_the_sum_of_a_seats_rewards():
    played = episode(0.1, 0.2, 0.3)
    assert played.reward() == pytest.approx(0.6)
    played.turns.append(Turn("dealer", "o", "a", reward=5.0))
    assert (played.reward(), played.reward("dealer"), played.reward("nobody")) == (
        pytest.approx(0.6),
        5.0,
        0.0,
    )


def test_the_sum_is_exact():
    assert episode(*[0.1] * 10).reward() == 1.0


@pytest.mark.parametrize("stop", [StopReason.ERROR, StopReason.CANCELLED])
def test_without_verdict_there_is_no_reward_and_no_success(stop):
    broken = episode(1.0, stop=stop, verdict=Verdict.NONE, truncated=True)
    assert math.isnan(broken.reward())
    assert broken.success is None
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


def test_a_limit_from_outside_bootstraps_and_an_end_of_the_task_does_not():
    assert episode(stop=StopReason.TURN_LIMIT, truncated=True).bootstrap
    assert not episode(terminated=True).bootstrap


def test_a_turn_without_reward_counts_as_nothing():
    assert episode(0.5, None).reward() == 0.5


# -- seats and groups


def test_seats_are_in_order_of_their_first_turn():
    turns = [Turn(seat, "", reward=1.0) for seat in ("north", "south", "north")]
    played = Episode("e", "x", 0, turns=turns)
    assert played.seats == ("north", "south")
    assert played.turns_of("north") == [turns[0], turns[2]]
    assert played.turns_of() == []


def test_episodes_are_grouped_by_task():
    played = [Episode(str(i), "x", 0, group=group) for i, group in enumerate("abcab")]
    groups = group_episodes(played)
    assert [(g.group, [e.id for e in g.episodes]) for g in groups] == [
        ("a", ["0", "3"]),
        ("b", ["1", "4"]),
        ("c", ["2"]),
    ]


# -- the transcript's hash


def test_the_hash_is_what_it_was():
    """Hosts, drivers and stored runs are compared by it."""
    assert episode(1.0, 0.5).transcript_hash() == "a1a62f1bb61eb751f2e2889a500fc48c"


def test_the_hash_does_not_see_tokens_timing_or_names():
    plain = episode(1.0)
    other = dataclasses.replace(
        plain,
        id="other",
        seed=9,
        policy_version=3,
        timing={"wall_s": 1.0},
        turns=[
            dataclasses.replace(
                plain.turns[0], token_ids=(1,), logprobs=(-0.5,), mask=(1,), timing={"env_s": 1.0}
            )
        ],
    )
    assert other.transcript_hash() == plain.transcript_hash()


@pytest.mark.parametrize(
    "change",
    [
        lambda e: setattr(e.turns[0], "observation", "other"),
        lambda e: setattr(e.turns[0], "action", "other"),
        lambda e: setattr(e.turns[0], "action", None),
        lambda e: setattr(e.turns[0], "reward", 0.25),
        lambda e: setattr(e.turns[0], "reward", None),
        lambda e: setattr(e.turns[0], "agent", "other"),
        lambda e: setattr(e, "stop", StopReason.FAILED),
        lambda e: setattr(e, "terminated", True),
        lambda e: setattr(e, "verdict", Verdict.NONE),
        lambda e: setattr(e, "final_observation", "other"),
        lambda e: e.turns.pop(),
    ],
)
def test_the_hash_sees_all_that_was_said_done_and_earned(change):
    changed = episode(1.0, 0.5)
    change(changed)
    assert changed.transcript_hash() != episode(1.0, 0.5).transcript_hash()


@given(st.lists(st.tuples(st.text(), st.text()), min_size=1, max_size=4))
def test_words_cannot_move_between_turns_unseen(said):
    def hashed(pairs):
        return Episode("", "", 0, turns=[Turn("agent", obs, act) for obs, act in pairs]).transcript_hash()

    moved = [(obs + act, "") for obs, act in said]
    assert (hashed(moved) == hashed(said)) == (moved == said)


@pytest.mark.parametrize("obs", ["\ud800", "", (Text("a"), Image(b"\xff"))])
@pytest.mark.parametrize("reward", [math.nan, math.inf, -0.0])
def test_anything_can_be_hashed(obs, reward):
    played = Episode("e", "x", 0, turns=[Turn("agent", obs, "\ud800", reward=reward)], final_observation=obs)
    assert played.transcript_hash() == played.transcript_hash()


def test_a_picture_is_told_from_another_and_from_text():
    hashes = {
        Episode("e", "x", 0, final_observation=obs).transcript_hash()
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
