import dataclasses

import pytest

torch = pytest.importorskip("torch")

from gem import seeding
from gem.agents.tiny import Prefix, TinyAgent, TinyConfig, TinyLM, causal_mask
from gem.content import Message
from gem.errors import BadArgument
from gem.history import HistoryPolicy
from gem.record import AgentInfo, Ask, Limits, StopReason
from gem.rollout import Job, rollout
from gem.tokens.rows import rows
from gem.tokens.tiny import END, TinyRenderer

RENDERER = TinyRenderer()
RENDERER.stop_ids |= set(range(300, 400))  # so that answers of random weights end, at different lengths
SHAPE = TinyConfig(width=32, layers=2, heads=4)
GUESS = [Job("game:GuessTheNumber-v0-easy", seed) for seed in range(24)]


def make_model(seed=0, config=SHAPE):
    """Random weights whose next-token distribution is far from uniform, and whose attention matters."""
    model = TinyLM(len(RENDERER), config, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0.0, 1.5 * config.width**-0.5, generator=generator)
    return model


MODEL = make_model()


def tiny(model=MODEL, **how):
    return TinyAgent(model, RENDERER, **how)


class Chatty(TinyAgent):
    """Puts legal guesses in place of the text that random weights write, so that episodes go on."""

    def __init__(self, model=MODEL, **how):
        super().__init__(model, RENDERER, **how)

    def __call__(self, asks):
        return [
            dataclasses.replace(reply, text=f"\\boxed{{{1 + ask.seed % 10}}}")
            for ask, reply in zip(asks, super().__call__(asks), strict=True)
        ]


def ask(text="Find it", episode="e", seed=0, **changes):
    return Ask(episode, "agent", 0, (Message("user", text),), seed=seed, **changes)


ASKS = [ask("higher " * n, episode=str(n), seed=n) for n in (3, 1, 7, 2, 5, 12)]
ASKS.append(dataclasses.replace(ASKS[0], episode="twin of 3", seed=99))


def full_logprobs(model, ids, temperature=1.0):
    """Log probabilities of each next token, by one forward pass over the whole sequence."""
    at = torch.arange(len(ids))[None]
    with torch.inference_mode():
        hidden = model(torch.tensor([ids]), at, Prefix(), causal_mask(at, len(ids)))[0]
        return torch.log_softmax(model.logits(hidden).double() / temperature, -1)


# The guesses depend on the job alone, and so does the number of turns.
LONG = next(job for job in GUESS if len(rollout([job], Chatty(max_tokens=1))[0].turns) == 4)


# -- the model


def test_a_position_sees_itself_and_what_came_before():
    ids = list(range(40, 60))
    changed = [*ids[:10], 100, *ids[11:]]
    one, other = full_logprobs(MODEL, ids), full_logprobs(MODEL, changed)
    assert torch.equal(one[:10], other[:10])
    assert ((one[10:] - other[10:]).abs().amax(-1) > 1e-3).all()


def test_order_matters():
    one, other = full_logprobs(MODEL, [40, 41, 50]), full_logprobs(MODEL, [41, 40, 50])
    assert (one[-1] - other[-1]).abs().max() > 1e-3


def test_weights_follow_from_the_seed_alone():
    before = torch.random.get_rng_state()
    one, again, other = (TinyLM(50, SHAPE, seed) for seed in (3, 3, 4))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(one.embed, again.embed)
    assert not torch.equal(one.embed, other.embed)


def test_the_branches_of_a_fresh_model_add_nothing():
    model = TinyLM(50, SHAPE, 3)
    ids = torch.tensor([[4, 9, 2, 7]])
    at = torch.arange(4)[None]
    states = model(ids, at, Prefix(), causal_mask(at, 4))
    alone = torch.cat(
        [model(ids[:, [i]], at[:, :1], Prefix(), causal_mask(at[:, :1], 1)) for i in range(4)], 1
    )
    assert torch.allclose(states, alone, atol=1e-6)  # each state is its token's own
    for block in model.blocks:
        assert not block.out.any()
        assert not block.down.any()


def test_a_shape_that_does_not_divide_is_refused():
    with pytest.raises(BadArgument, match="width is 30; accepted: a multiple of 2 x heads"):
        TinyConfig(width=30, heads=4)


# -- sampling


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.system
def test_logprobs_over_whole_rollouts_are_those_of_one_forward_pass(temperature):
    agent = Chatty(temperature=temperature)
    episodes = rollout(GUESS, agent, concurrency=5)  # slots are used again and again
    assert {len(episode.turns) for episode in episodes} >= {1, 2, 3, 4}
    assert {turn.finish for episode in episodes for turn in episode.turns} == {"stop", "length"}
    for episode in episodes:
        (row,) = rows(episode)
        expected = full_logprobs(MODEL, row.ids, temperature)
        for t, learn in enumerate(row.mask):
            if learn:
                assert row.logprobs[t] == pytest.approx(expected[t - 1, row.ids[t]].item(), abs=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_entropies_over_whole_rollouts_are_those_of_one_forward_pass(temperature):
    how = {"temperature": temperature, "max_tokens": 12}
    played = rollout(GUESS, Chatty(entropy=True, **how))
    for episode, plain in zip(played, rollout(GUESS, Chatty(**how)), strict=True):
        assert [turn.token_ids for turn in episode.turns] == [turn.token_ids for turn in plain.turns]
        assert not any(turn.extra for turn in plain.turns)
        for turn in episode.turns:
            logp = full_logprobs(MODEL, (*turn.prompt_ids, *turn.token_ids), temperature)
            sampled_from = logp[turn.prompt_length - 1 : -1]
            wanted = -(sampled_from.exp() * sampled_from).sum(-1)
            assert turn.extra["entropy"] == pytest.approx(wanted.tolist(), abs=1e-4)


def test_a_greedy_choice_has_no_entropy():
    (reply,) = tiny(temperature=0.0, entropy=True)([ask()])
    assert reply.extra["entropy"] == [0.0] * len(reply.token_ids)


def test_a_cache_that_grew_turn_by_turn_is_one_made_from_scratch():
    class Forgetful(Chatty):
        def __call__(self, asks):
            self.reset_cache()
            return super().__call__(asks)

    for kept, anew in zip(rollout(GUESS, Chatty()), rollout(GUESS, Forgetful()), strict=True):
        for a, b in zip(kept.turns, anew.turns, strict=True):
            assert (a.prompt_ids, a.token_ids) == (b.prompt_ids, b.token_ids)
            assert a.logprobs == pytest.approx(b.logprobs, abs=1e-5)


def test_only_new_tokens_are_processed():
    processed = []

    class Counted(Chatty):
        def _process(self, slots, starts, new):
            processed.extend(map(len, new))
            return super()._process(slots, starts, new)

    (episode,) = rollout([LONG], Counted())
    assert len(processed) == len(episode.turns) == 4
    for tokens, before, turn in zip(processed[1:], episode.turns, episode.turns[1:], strict=False):
        # The last token of an answer was sampled and is processed with what follows it.
        assert tokens == len(turn.prompt_ids) - len(before.prompt_ids) - len(before.token_ids) + 1


@pytest.mark.parametrize("temperature", [1.0, 0.0])
@pytest.mark.system
def test_a_reply_does_not_depend_on_the_batch(temperature):
    together = tiny(temperature=temperature)(ASKS)
    assert len({len(reply.token_ids) for reply in together}) > 2
    for reply, one in zip(together, ASKS, strict=True):
        (alone,) = tiny(temperature=temperature)([one])
        assert dataclasses.replace(alone, logprobs=()) == dataclasses.replace(reply, logprobs=())
        assert alone.logprobs == pytest.approx(reply.logprobs, abs=1e-5)


def test_equal_prompts_share_work_and_not_their_chance():
    asks = [ask(episode=str(n), seed=n) for n in range(8)]
    replies = tiny()(asks)
    assert len({reply.prompt_ids for reply in replies}) == 1
    assert len({reply.token_ids for reply in replies}) > 4


def test_greedy_takes_the_likeliest_token():
    (reply,) = tiny(temperature=0.0)([ask()])
    expected = full_logprobs(MODEL, reply.prompt_ids + reply.token_ids).argmax(-1)
    assert reply.token_ids == tuple(expected[len(reply.prompt_ids) - 1 : -1].tolist())
    assert set(reply.logprobs) == {0.0}


def test_history_that_is_rewritten_starts_over():
    """Under `concat` each prompt is another message; the cache of the turn before must not show through."""
    agent = Chatty()
    episodes = rollout(GUESS, agent, history=HistoryPolicy("concat"))
    assert max(len(episode.turns) for episode in episodes) == 4
    for episode in episodes:
        made = rows(episode)
        assert len(made) == len(episode.turns)
        for row in made:
            expected = full_logprobs(MODEL, row.ids)
            for t, learn in enumerate(row.mask):
                if learn:
                    assert row.logprobs[t] == pytest.approx(expected[t - 1, row.ids[t]].item(), abs=1e-5)


def test_the_same_seeds_give_the_same_episodes():
    def played(**how):
        return [e.transcript_hash() for e in rollout(GUESS, Chatty(), **how)]

    assert played() == played() == played(concurrency=3)
    other = [Job(job.env, seeding.derive(job.seed, "other")) for job in GUESS]
    assert [e.transcript_hash() for e in rollout(other, Chatty())] != played()


# -- slots


def test_slots_are_freed_and_used_again():
    agent = Chatty()
    rollout(GUESS, agent, concurrency=4)
    taken = agent._slots.data.shape[2]
    assert len(agent._slots.free) == len(set(agent._slots.free)) == taken == 64
    assert not agent._conversations


def test_more_conversations_than_slots():
    asks = [ask(f"higher {n}", episode=str(n), seed=n) for n in range(70)]
    agent = tiny(max_tokens=4)
    replies = agent(asks)
    assert len({c.slot for seats in agent._conversations.values() for c in seats.values()}) == 70
    (alone,) = tiny(max_tokens=4)(asks[69:])
    assert replies[69].token_ids == alone.token_ids


def test_forgetting_is_harmless_at_any_time():
    agent = tiny()
    agent.forget("never seen")
    (first,) = agent([ask()])
    agent.reset_cache()
    agent.forget("e")
    agent.forget("e")
    assert agent([ask()])[0].token_ids == first.token_ids


def test_a_batch_with_one_conversation_twice_is_refused():
    with pytest.raises(BadArgument, match="same episode and seat"):
        tiny()([ask(seed=1), ask(seed=2)])


def test_seats_of_an_episode_have_caches_of_their_own():
    asks = [dataclasses.replace(ask(f"you are {seat}", seed=seat), seat=str(seat)) for seat in range(2)]
    together = tiny()(asks)
    for reply, one in zip(together, asks, strict=True):
        assert tiny()([one])[0].token_ids == reply.token_ids


def test_a_broken_batch_leaves_no_false_memory():
    """Weights that diverged break the batch half way; once they are mended, so is every conversation."""
    agent = tiny(make_model())
    agent([ask("lower " * 9)])
    good = agent.model.norm.detach().clone()
    agent.model.norm.data.fill_(float("nan"))
    with pytest.raises(BadArgument, match="no distribution"):
        agent([ask("higher " * 9)])
    agent.model.norm.data.copy_(good)
    for text in ("lower " * 9, "higher " * 9):
        (reply,) = agent([ask(text)])
        assert reply.token_ids == tiny(make_model())([ask(text)])[0].token_ids


# -- limits


def test_an_answer_ends_at_its_limit():
    agent = tiny(max_tokens=8)
    replies = agent([ask(episode=str(n), seed=n, max_tokens=limit) for n, limit in enumerate((1, 3, 50))])
    assert [len(r.token_ids) <= limit for r, limit in zip(replies, (1, 3, 8), strict=True)] == [True] * 3
    for reply in replies:
        assert (reply.finish == "stop") == RENDERER.ends(reply.token_ids)
    assert replies[0].finish == "length"


def test_the_context_cuts_an_answer_and_then_the_episode():
    agent = Chatty()
    start = len(rollout(GUESS[:1], agent)[0].turns[0].prompt_ids)
    episodes = rollout(GUESS, agent, limits=Limits(context=start + 1))
    for episode in episodes:
        assert len(episode.turns[0].token_ids) == 1
        if len(episode.turns) == 1 and not episode.terminated:
            assert episode.stop is StopReason.CONTEXT_LIMIT
    assert any(episode.stop is StopReason.CONTEXT_LIMIT for episode in episodes)
    assert not agent._conversations


def test_a_prompt_that_does_not_fit_is_not_answered_and_disturbs_nobody():
    long = ask("higher " * 5000, episode="long")
    replies = tiny()([long, *ASKS])
    assert (replies[0].finish, replies[0].token_ids, replies[0].text) == ("context", (), "")
    assert replies[1:] == tiny()(ASKS)


def test_the_model_reaches_to_the_end_of_its_context():
    config = dataclasses.replace(SHAPE, context=300)
    model = make_model(config=config)
    prompt = ask("higher " * 280, episode="long")
    free = 300 - len(RENDERER.prompt(prompt.messages))
    assert 0 < free < 40
    replies = tiny(model, max_tokens=200)([prompt, ask("lower " * 3)])
    assert len(replies[0].token_ids) <= free
    (alone,) = tiny(model, max_tokens=200)([prompt])
    assert alone.token_ids == replies[0].token_ids


@pytest.mark.parametrize("limit", [0, -1])
def test_no_tokens_at_all_is_refused(limit):
    with pytest.raises(BadArgument, match=f"max_tokens is {limit}; accepted: 1 or more"):
        tiny(max_tokens=limit)


def test_new_weights_are_used_once_the_cache_is_reset():
    agent = tiny(make_model(seed=1))
    agent([ask()])
    agent.model.load_state_dict(MODEL.state_dict())
    agent.reset_cache()
    agent.policy_version = 7
    (reply,) = agent([ask()])
    assert reply == dataclasses.replace(tiny()([ask()])[0], policy_version=7)


def test_published_weights_answer_from_now_on_in_conversations_that_are_open():
    agent, other = tiny(make_model(seed=1)), make_model(seed=2)
    (first,) = agent([ask()])
    agent.publish(7, other.state_dict())
    held = first.prompt_ids + first.token_ids
    later = (*ask().messages, Message("assistant", first.text), Message("user", "higher"))
    (second,) = agent([Ask("e", "agent", 1, later, held, 1, seed=5)])
    assert (first.policy_version, second.policy_version) == (None, 7)
    assert second.prompt_ids[: len(held)] == held
    ids = second.prompt_ids + second.token_ids
    logp = full_logprobs(other, ids)
    for place, logprob in enumerate(second.logprobs, len(second.prompt_ids)):
        assert logprob == pytest.approx(logp[place - 1, ids[place]].item(), abs=1e-4)
    agent.publish(8)
    assert agent([dataclasses.replace(ask(), episode="new")])[0].policy_version == 8


def test_an_agent_names_its_model_settings_and_vocabulary():
    agent = tiny(temperature=0.5, max_tokens=3)
    settings = {"temperature": 0.5, "max_tokens": 3}
    assert agent.info == AgentInfo("TinyAgent", "tiny", settings, RENDERER.vocab_hash)


def test_an_answer_cut_at_its_limit_is_closed_before_the_next_message():
    agent = Chatty(max_tokens=1)
    (episode,) = rollout([LONG], agent)
    first, second = episode.turns[:2]
    assert first.finish == "length"
    held = (*first.prompt_ids, *first.token_ids)
    assert tuple(second.prompt_ids[: len(held) + 1]) == (*held, END)


def test_a_question_that_only_a_picture_shows_has_no_verdict():
    pytest.importorskip("PIL")
    jobs = [Job("vision:Geometry-v0-easy", 0), GUESS[0]]
    blind, other = rollout(jobs, TinyAgent(make_model(), RENDERER, max_tokens=8), host="serial")
    assert (blind.scored, blind.error.boundary) == (False, "agent")
    assert "reads text alone, and no text describes the picture '[a geometric figure]'" in blind.error.message
    assert other.scored
