import asyncio
import threading

import pytest

from gem.adapters.engine import EngineAgent, run_call, token_rewards
from gem.errors import BadArgument, NoVerdict
from gem.history import HistoryPolicy
from gem.record import Limits, Reply, StopReason
from gem.rollout import Job, rollout_async
from gem.tokens.rows import rows
from gem.tokens.tiny import TinyRenderer

EASY = "game:GuessTheNumber-v0-easy"
RENDERER = TinyRenderer()


class Engine(EngineAgent):
    """Says what it is told to say, each time."""

    def __init__(self, said, **settings):
        super().__init__(RENDERER, **settings)
        self.said, self.limits, self.prompts = said, [], []

    async def sample(self, ask, prompt_ids, max_tokens):
        self.limits.append(max_tokens)
        self.prompts.append(prompt_ids)
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


def reply(text="\\boxed{3}", **more):
    ids = RENDERER.answer(text)
    return Reply("", token_ids=ids, logprobs=[-1.0] * len(ids), **more)


def play(engine, limits=Limits(turns=3), seed=5, **settings):  # noqa: B008
    (episode,) = asyncio.run(rollout_async([Job(EASY, seed)], engine, limits=limits, **settings))
    return episode


def test_ids_go_in_and_come_out_as_they_are():
    engine = Engine(reply(policy_version=4, extra={"of": "mine"}), model="m", sampling={"temperature": 0.5})
    episode = play(engine)
    (row,) = rows(episode)
    assert [turn.action for turn in episode.turns] == ["\\boxed{3}"] * 3
    assert [tuple(turn.prompt_ids) for turn in episode.turns] == engine.prompts
    assert tuple(row.ids) == (*engine.prompts[-1], *engine.said.token_ids)
    assert {turn.finish for turn in episode.turns} == {"stop"}
    assert {turn.policy_version for turn in episode.turns} == {4}
    assert episode.turns[0].extra == {"of": "mine"}
    assert (episode.run.model, episode.run.sampling) == ("m", {"temperature": 0.5})
    assert engine.limits == [None, None, None]
    assert not engine._prompts


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (Reply(""), "without a token"),
        (Reply("", token_ids=(5, 6)), "without log probabilities"),
        (NoVerdict("aborted"), "aborted"),
    ],
)
def test_what_the_engine_did_is_no_verdict(said, why):
    episode = play(Engine(said))
    assert episode.stop is StopReason.ERROR
    assert not episode.scored
    assert why in episode.error.message


def test_log_probabilities_may_be_unwanted():
    assert play(Engine(Reply("", token_ids=(5, 6)), logprobs=False)).turns[0].logprobs is None


def test_a_row_stays_within_its_limits():
    answer = reply("Between 1 and 5: \\boxed{3}")
    whole = rows(play(Engine(answer)))[0].split()
    first, rest = (len(half.ids) for half in whole)
    engine = Engine(answer, prompt_tokens=first, response_tokens=rest)
    assert len(rows(play(engine))[0].ids) == first + rest
    assert engine.limits[0] == rest
    assert engine.limits[-1] == len(answer.token_ids)  # the last answer has what is left

    shorter = play(Engine(answer, response_tokens=rest - len(answer.token_ids)))
    assert (len(shorter.turns), shorter.stop) == (2, StopReason.CONTEXT_LIMIT)
    none = play(Engine(answer, prompt_tokens=first - 1))
    assert (none.turns, none.stop) == ([], StopReason.CONTEXT_LIMIT)
    assert none.scored
    assert rows(none) == []


def test_limits_below_one_are_refused():
    with pytest.raises(BadArgument, match="response_tokens is 0"):
        Engine(reply(), response_tokens=0)


def test_the_rewards_of_a_row_add_up_to_the_return():
    whole = play(Engine(reply()))
    (row,) = rows(whole)
    earned = token_rewards(whole, row, alone=True)
    assert sum(earned) == pytest.approx(whole.reward())
    assert whole.reward() > 0
    ends = [len(row.split()[1].turn) - 1 - row.split()[1].turn[::-1].index(turn) for turn in range(3)]
    assert [earned[place] for place in ends] == [turn.reward for turn in whole.turns]
    window = play(Engine(reply()), history=HistoryPolicy(window=1))
    found = rows(window)
    assert len(found) == 3
    for row in found:
        earned = token_rewards(window, row, alone=False)
        assert earned == [*[0.0] * (len(earned) - 1), window.reward()]


def test_a_call_that_waits_runs_in_a_thread_of_its_own():
    here = threading.get_ident()
    ran = {waits: asyncio.run(run_call(waits, threading.get_ident)) for waits in (False, True)}
    assert ran[False] == here != ran[True]
