from types import SimpleNamespace

import pytest

pytest.importorskip("oat.types", reason="needs oat-llm, whose types alone can be imported")
pytestmark = pytest.mark.framework

from oat.types import Transition

import gem
from gem.adapters.oat import VllmAgent, experience
from gem.agents.hugging_face import HuggingFaceAgent
from gem.errors import NoVerdict
from gem.record import Ask, Limits, StopReason
from gem.rollout import Job, Runner
from gem.tokens.rows import rows
from tests.shared import records
from tests.shared.random_models import RENDERER, Chatter, make_model


class Params(SimpleNamespace):
    """As much of vLLM's SamplingParams as the agent touches."""

    def clone(self):
        return Params(**vars(self))


@pytest.fixture(scope="module")
def agent():
    """VllmAgent over an engine whose outputs have the shape of vLLM's."""
    local = HuggingFaceAgent(make_model(), RENDERER)

    def generate(prompts, params):
        outputs = []
        for prompt, each in zip(prompts, params, strict=True):
            assert each.stop_token_ids == sorted(RENDERER.stop_ids)
            reply = sampled(local, tuple(prompt), each)
            logprobs = [
                {59: SimpleNamespace(logprob=-9.0), token: SimpleNamespace(logprob=logprob)}
                for token, logprob in zip(reply.token_ids, reply.logprobs, strict=True)
            ]
            said = SimpleNamespace(
                token_ids=list(reply.token_ids), logprobs=logprobs, finish_reason=reply.finish
            )
            outputs.append(SimpleNamespace(prompt_token_ids=prompt, outputs=[said]))
        return outputs

    return VllmAgent(generate, Params(max_tokens=6, seed=None, stop_token_ids=None), RENDERER, 200)


def sampled(local, prompt, params):
    """Let a small model go on behind a prompt."""
    renderer = SimpleNamespace(
        prompt=lambda messages: prompt, stop_ids=RENDERER.stop_ids, decode=RENDERER.decode
    )
    local.renderer = renderer
    (reply,) = local([Ask("", "agent", 0, (), seed=params.seed, max_tokens=params.max_tokens)])
    return reply


class Broken(gem.Env):
    def reset(self, seed=None):
        super().reset(seed)
        return gem.Start("go on", {})

    def step(self, action):
        raise NoVerdict("the sandbox is gone")


def play(agent, env, n=4, **limits):
    with Runner(agent, limits=Limits(**limits), retries=0) as runner:
        return runner.play(Job(env, seed) for seed in range(n))


def test_transitions_are_the_turns_of_the_record(agent):
    episodes = play(agent, Chatter)
    made, figures = experience(episodes, RENDERER.decode)
    assert figures["actor/no_verdict"] == 0
    for episode, transitions in zip(episodes, made, strict=True):
        assert [each.done for each in transitions] == [False] * (len(transitions) - 1) + [True]
        assert sum(each.rewards for each in transitions) == episode.reward()
        (row,) = rows(episode)
        learned = [token for token, one in zip(row.ids, row.mask, strict=True) if one]
        assert [token for each in transitions for token in each.response_ids] == learned
        last = transitions[-1]
        assert last.prompt_ids + last.response_ids == list(row.ids)
        for turn, each in zip(episode.turns, transitions, strict=True):
            assert isinstance(each, Transition)
            assert each.response_logprobs == list(turn.logprobs)
            assert len(each.response_ids) == len(each.response_logprobs) <= 6
            assert each.format()["response"] == each.response
            assert each.response_is_truncated == (turn.finish == "length")


def test_an_episode_without_verdict_is_left_out_and_counted(agent):
    episodes = play(agent, Chatter, 2) + play(agent, Broken, 3)
    made, figures = experience(episodes, RENDERER.decode)
    assert len(made) == 2
    assert figures["actor/no_verdict"] == 3


def test_a_cut_episode_is_no_failure_where_no_success_is_reported():
    stops = (StopReason.ENDED, StopReason.TURN_LIMIT)
    episodes = [records.episode(records.turn(), stop=stop) for stop in stops]
    assert experience(episodes, RENDERER.decode)[1] == {"actor/no_verdict": 0.0}


def test_a_prompt_that_fills_the_context_ends_the_episode(agent):
    (episode,) = play(agent, Chatter, 1, context=5)
    assert experience([episode], RENDERER.decode)[0] == []
    assert episode.scored
    assert episode.turns == []
