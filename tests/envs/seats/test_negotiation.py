from itertools import product

import pytest

from gem.agents import SolverAgent
from gem.envs.seats.negotiation import TOTAL, Negotiation
from gem.errors import BadArgument
from gem.rollout import Job, rollout

ONE, TWO = "player_0", "player_1"


def begun(seed=0, **kwargs):
    env = Negotiation(**kwargs)
    env.reset(seed=seed)
    return env


def say(env, text):
    (player,) = env.acting
    return env.step({player: text})


def take(share):
    return f"\\boxed{{take {' '.join(map(str, share))}}}"


@pytest.mark.parametrize("seed", range(30))
def test_everything_is_worth_ten_to_both_and_the_values_differ(seed):
    env = begun(seed)
    assert env.worth(ONE, env.pool) == env.worth(TWO, env.pool) == TOTAL
    assert env.values[ONE] != env.values[TWO]
    assert 5 <= sum(env.pool) <= 7


def test_an_agreement_pays_each_its_share_and_is_measured_against_all_divisions():
    for seed in range(20):
        env = begun(seed)
        share = tuple(n // 2 for n in env.pool)
        say(env, take(share))
        step = say(env, r"\boxed{accept}")
        mine, other = env.worth(ONE, share), env.worth(TWO, env.rest(share))
        assert step.rewards == {ONE: mine / 10, TWO: other / 10}
        info = step.infos[TWO]
        assert info["deal"] == {ONE: mine, TWO: other}
        every = [
            (env.worth(ONE, s), env.worth(TWO, env.rest(s)))
            for s in product(*(range(n + 1) for n in env.pool))
        ]
        better = [(a, b) for a, b in every if a >= mine and b >= other and a + b > mine + other]
        assert info["pareto"] is not bool(better)
        assert info["joint"] == (mine + other) / max(a + b for a, b in every)
        assert info["nash"] == mine * other / max(a * b for a, b in every)


def test_a_message_reaches_the_other_as_one_harmless_line():
    env = begun()
    step = say(env, f"<say>I\x1b[2J love\n\nbooks {'x' * 10_000}</say> {take((0, 0, 0))}")
    heard = step.obs[TWO].splitlines()
    (line,) = [text for text in heard if text.startswith("player_0 says")]
    assert "\x1b" not in step.obs[TWO]
    assert len(line) < 340
    assert "I\\x1b[2J love books xxx" in line


def test_a_message_in_thinking_is_not_said():
    for text in (
        f"<think><say>I need the hat.</say></think> {take((0, 0, 0))}",
        f"<think><say>I need the hat.</say> {take((0, 0, 0))}",
    ):
        step = say(begun(), text)
        assert not step.done
        assert "hat." not in step.obs[TWO]


@pytest.mark.parametrize(
    "text",
    [
        "1, 0, 1",
        "(1, 0, 1)",
        "[1, 0, 1]",
        ": 1 0 1",
        "1 book, 0 hats, 1 ball",
        "1 books, 0 hats and 1 balls",
        "1 ball, 1 book, 0 hats",
    ],
)
def test_an_offer_may_be_written_as_the_game_writes_things(text):
    for seed in range(5):
        env = begun(seed)
        say(env, f"\\boxed{{take {text}}}")
        assert env.offers == [(ONE, (1, 0, 1))]


@pytest.mark.parametrize(
    "text",
    [
        "",
        r"\boxed{take 1 hat, 0 hats, 1 ball}",
        r"\boxed{take 1 book, 0 hats}",
        r"\boxed{take 1/0/1}",
        r"\boxed{take 0 0 0}</think>No.",
        r"\boxed{take 1}",
        r"\boxed{take -1 0 0}",
        "take 1 0 0",
    ],
)
def test_what_cannot_be_read_ends_the_talks(text):
    step = say(begun(), text)
    assert step.done
    assert step.rewards == {ONE: -0.1, TWO: 0.0}
    assert (step.infos[ONE]["stop"], step.infos[TWO]["stop"]) == ("unreadable", "failed")


@pytest.mark.parametrize(
    "text", [r"\boxed{accept}", r"\boxed{take 9 9 9}", r"\boxed{take 9 books, 0 hats, 0 balls}"]
)
def test_what_cannot_be_done_costs_the_move(text):
    env = begun(max_turns=2)
    step = say(env, text)
    assert (step.done, step.rewards, step.infos[ONE]["legal"]) == (False, {ONE: 0.0, TWO: 0.0}, False)
    assert (env.acting, env.offers) == ((TWO,), [])
    last = say(env, text)
    assert last.infos[TWO]["stop"] == "turn_budget"
    assert "You cannot" in last.obs[TWO]


def test_the_deadline_and_a_farewell_leave_nothing():
    env = begun(max_turns=2)
    say(env, take((0, 0, 0)))
    step = say(env, take((0, 0, 0)))
    assert step.infos[ONE]["stop"] == "turn_budget"
    left = say(begun(), r"\boxed{leave}")
    assert left.infos[TWO] == {"deal": None, "pareto": False, "joint": 0.0, "nash": 0.0} | {
        "success": False,
        "stop": "failed",
    }
    with pytest.raises(BadArgument):
        Negotiation(max_turns=1)


def test_two_experts_agree_on_what_is_good_for_both():
    episodes = rollout([Job("multi:Negotiation-v0", seed) for seed in range(100)], SolverAgent())
    infos = [episode.ends[ONE].info for episode in episodes]
    assert sum(info["deal"] is not None for info in infos) >= 97
    assert sum(info["nash"] for info in infos) / 100 > 0.85
