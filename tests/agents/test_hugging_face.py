import copy
import dataclasses

import pytest

torch = pytest.importorskip("torch")

pytest.importorskip("transformers")

from flash_attention import install
from random_models import RENDERER, Chatter, make_model

from gem.agents.hugging_face import HuggingFaceAgent
from gem.content import Message
from gem.errors import BadArgument
from gem.history import HistoryPolicy
from gem.record import Ask, Limits, StopReason
from gem.rollout import Job, branches, rollout
from gem.tokens.rows import rows

each_model = pytest.mark.parametrize("name", ["qwen3", "gpt2", "gemma3"])

QWEN = make_model()


def ask(text="the secret", seed=0, **changes):
    return Ask("e", "agent", 0, (Message("user", text),), seed=seed, **changes)


ASKS = [ask("higher " * n, seed=n) for n in (3, 1, 7, 2, 5, 1, 12)]


def forward_logprobs(model, ids, temperature=1.0):
    """Log probabilities of each next token, by one full forward pass over an unpadded sequence."""
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids])).logits[0]
    return torch.log_softmax(logits.double() / temperature, -1)


@each_model
@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.system
def test_logprobs_over_whole_rollouts_are_those_of_one_forward_pass(name, temperature):
    model = make_model(name)
    agent = HuggingFaceAgent(model, RENDERER, temperature=temperature, max_tokens=12)
    episodes = rollout([Job(Chatter, seed) for seed in range(16)], agent, limits=Limits(context=400))
    assert {len(episode.turns) for episode in episodes} == {1, 2, 3, 4}
    finishes = {turn.finish for episode in episodes for turn in episode.turns}
    assert finishes == {"stop", "length"}
    for episode in episodes:
        (row,) = rows(episode)  # every prompt begins with all that came before it, token for token
        logp = forward_logprobs(model, row.ids, temperature)
        for t in range(len(row.ids)):
            if row.mask[t]:
                assert row.logprobs[t] == pytest.approx(logp[t - 1, row.ids[t]].item(), abs=2e-5)


def test_forks_of_a_model_s_episode_learn_on_what_is_new_copied_or_replayed():
    agent = HuggingFaceAgent(QWEN, RENDERER, max_tokens=12)
    episodes = rollout([Job(Chatter, seed) for seed in range(8)], agent, limits=Limits(context=400))
    whole = next(episode for episode in episodes if len(episode.turns) >= 3)
    copied, replayed = (
        rollout(branches(whole, 2, 6, env=Chatter, fork=fork), agent) for fork in (True, False)
    )
    assert len({tuple(fork.turns[2].token_ids) for fork in copied}) > 3
    for one, other in zip(copied, replayed, strict=True):
        (row,), (again,) = rows(one), rows(other)
        assert (list(row.ids), list(row.mask)) == (list(again.ids), list(again.mask))
        assert [any(turn.mask) for turn in one.turns[:3]] == [False, False, True]
        assert tuple(row.ids)[: len(whole.turns[1].prompt_ids)] == tuple(whole.turns[1].prompt_ids)
        logp = forward_logprobs(QWEN, row.ids)
        for t in range(len(row.ids)):
            if row.mask[t]:
                assert row.logprobs[t] == pytest.approx(logp[t - 1, row.ids[t]].item(), abs=2e-5)


@each_model
@pytest.mark.parametrize(("temperature", "cache"), [(1.0, True), (0.5, True), (1.0, False)])
def test_entropies_are_those_of_one_forward_pass(name, temperature, cache, monkeypatch):
    model = make_model(name)
    if not cache:
        monkeypatch.setattr(HuggingFaceAgent, "_probe", lambda agent: None)
    agent = HuggingFaceAgent(model, RENDERER, temperature=temperature, max_tokens=12, entropy=True)
    plain = HuggingFaceAgent(model, RENDERER, temperature=temperature, max_tokens=12)
    for asked, reply, without in zip(ASKS, agent(ASKS), plain(ASKS), strict=True):
        assert dataclasses.replace(reply, extra={}) == without, asked
        logp = forward_logprobs(model, (*reply.prompt_ids, *reply.token_ids), temperature)
        sampled_from = logp[len(reply.prompt_ids) - 1 : -1]
        wanted = -(sampled_from.exp() * sampled_from).sum(-1)
        assert reply.extra["entropy"] == pytest.approx(wanted.tolist(), abs=2e-4)


@each_model
@pytest.mark.parametrize("batch_size", [64, 3])
@pytest.mark.system
def test_a_reply_does_not_depend_on_the_batch(name, batch_size):
    agent = HuggingFaceAgent(make_model(name), RENDERER, max_tokens=20, batch_size=batch_size)
    together = agent(ASKS)
    assert len({len(reply.token_ids) for reply in together}) > 2
    for reply, one in zip(together, ASKS, strict=True):
        (alone,) = agent([one])
        assert dataclasses.replace(alone, logprobs=()) == dataclasses.replace(reply, logprobs=())
        assert reply.logprobs == pytest.approx(alone.logprobs, abs=2e-5)


def test_the_seed_of_the_ask_decides_and_nothing_else():
    agent = HuggingFaceAgent(QWEN, RENDERER, max_tokens=8)
    before = torch.random.get_rng_state()
    replies = agent([ask(seed=seed) for seed in (1, 2, 1, 3)])
    assert replies[0] == dataclasses.replace(replies[2], logprobs=replies[0].logprobs)
    assert len({reply.token_ids for reply in replies}) == 3
    assert torch.equal(torch.random.get_rng_state(), before)


def test_greedy_takes_the_most_likely_token_each_time():
    (reply,) = HuggingFaceAgent(QWEN, RENDERER, temperature=0.0, max_tokens=8)([ask()])
    logp = forward_logprobs(QWEN, reply.prompt_ids + reply.token_ids)
    best = logp.argmax(-1).tolist()[len(reply.prompt_ids) - 1 : -1]
    assert list(reply.token_ids) == best
    assert set(reply.logprobs) == {0.0}


def test_an_answer_ends_with_its_stop_id_or_its_limit():
    replies = HuggingFaceAgent(QWEN, RENDERER, max_tokens=20)([ask(seed=seed) for seed in range(40)])
    stops = RENDERER.stop_ids
    assert {reply.finish for reply in replies} == {"stop", "length"}
    for reply in replies:
        *body, last = reply.token_ids
        assert stops.isdisjoint(body)
        assert (last in stops) == (reply.finish == "stop")
        assert reply.finish == "stop" or len(reply.token_ids) == 20
        assert reply.text == RENDERER.tokenizer.decode(body if last in stops else [*body, last])


def test_limits_cut_the_answer_but_not_what_came_before():
    agent = HuggingFaceAgent(QWEN, RENDERER, max_tokens=30)
    seed = next(s for s in range(99) if agent([ask(seed=s)])[0].finish == "length")
    (whole,) = agent([ask(seed=seed)])
    prompt = len(whole.prompt_ids)
    cases = [{"max_tokens": 5}, {"context": prompt + 5}, {"max_tokens": 5, "context": 500}]
    for reply in agent([ask(seed=seed, **case) for case in cases]):
        assert reply.finish == "length"
        assert reply.token_ids == whole.token_ids[:5]


def test_a_prompt_that_fills_the_context_is_not_answered():
    agent = HuggingFaceAgent(QWEN, RENDERER, max_tokens=4)
    prompt = RENDERER.prompt([Message("user", "the secret")])
    full, fits = agent([ask(context=len(prompt)), ask(context=len(prompt) + 1)])
    assert (full.finish, full.text, full.prompt_ids, full.token_ids) == ("context", "", prompt, ())
    assert len(fits.token_ids) == 1
    (over,) = agent([ask("0 " * 600)])  # the model's own 512 positions
    assert over.finish == "context"


def test_an_episode_whose_context_is_full_is_cut_off():
    agent = HuggingFaceAgent(QWEN, RENDERER, max_tokens=12)
    (episode,) = rollout([Job(Chatter, 0)], agent, limits=Limits(context=10))
    assert episode.stop is StopReason.CONTEXT_LIMIT
    assert episode.truncated
    assert episode.scored


def test_history_that_is_rewritten_gives_one_row_per_turn():
    agent = HuggingFaceAgent(QWEN, RENDERER, max_tokens=6)
    jobs = [Job(Chatter, seed) for seed in range(8)]
    for episode in rollout(jobs, agent, history=HistoryPolicy("last")):
        made = rows(episode)
        assert [row.ids for row in made] == [turn.prompt_ids + turn.token_ids for turn in episode.turns]


def test_a_model_in_training_is_sampled_without_dropout_and_goes_on_training():
    model = make_model().train()
    agent = HuggingFaceAgent(model, RENDERER, max_tokens=8)
    assert agent(ASKS) == HuggingFaceAgent(QWEN, RENDERER, max_tokens=8)(ASKS)
    assert model.training


def test_replies_carry_the_version_of_the_weights():
    agent = HuggingFaceAgent(QWEN, RENDERER, max_tokens=4)
    agent.policy_version = 3
    assert [reply.policy_version for reply in agent([ask(), ask(context=1)])] == [3, 3]


@pytest.mark.parametrize("limit", ["max_tokens", "batch_size"])
def test_limits_below_one_are_refused(limit):
    with pytest.raises(BadArgument, match=f"{limit}=0"):
        HuggingFaceAgent(QWEN, RENDERER, **{limit: 0})


def test_published_weights_answer_from_now_on():
    model, other = make_model(), make_model()
    with torch.no_grad():
        other.get_output_embeddings().weight.mul_(-1)
    agent = HuggingFaceAgent(model, RENDERER, max_tokens=4)
    before = agent(ASKS)
    agent.publish(2, other.state_dict())
    after = agent(ASKS)
    expected = HuggingFaceAgent(other, RENDERER, max_tokens=4)(ASKS)
    assert [reply.token_ids for reply in after] == [reply.token_ids for reply in expected]
    assert [reply.token_ids for reply in after] != [reply.token_ids for reply in before]
    assert {reply.policy_version for reply in before} == {None}
    assert {reply.policy_version for reply in after} == {2}


def test_an_agent_names_its_model_settings_and_vocabulary():
    info = HuggingFaceAgent(QWEN, RENDERER, temperature=0.5, max_tokens=3).info
    assert (info.agent, info.model) == ("HuggingFaceAgent", "Qwen3ForCausalLM")
    assert info.sampling == {"temperature": 0.5, "max_tokens": 3}
    assert info.vocabulary == RENDERER.vocab_hash


# -- tokens that are looked at only now and then, as on a GPU


@pytest.mark.parametrize("every", [3, 16])
@pytest.mark.parametrize(
    "how", [{}, {"temperature": 0.5, "entropy": True}, {"temperature": 0.0}, {"stop": ("er", "low")}]
)
def test_answers_are_the_same_however_seldom_they_are_looked_at(how, every):
    limits = [{}, {"max_tokens": 1}, {"max_tokens": 7}, {}, {}, {"context": 60}, {}]
    asks = [dataclasses.replace(one, **limit) for one, limit in zip(ASKS, limits, strict=True)]
    asks += [dataclasses.replace(asks[0], seed=seed) for seed in range(50, 54)]  # of one context
    usual = HuggingFaceAgent(QWEN, RENDERER, max_tokens=20, **how)
    seldom = HuggingFaceAgent(QWEN, RENDERER, max_tokens=20, check_every=every, **how)
    for _ in range(2):  # the second time from the cache
        wanted, replies = usual(asks), seldom(asks)
        assert len({len(reply.token_ids) for reply in wanted}) > 2 or not how.get("temperature", 1)
        for one, other in zip(replies, wanted, strict=True):
            assert dataclasses.replace(one, logprobs=(), extra={}) == dataclasses.replace(
                other, logprobs=(), extra={}
            )
            assert one.logprobs == pytest.approx(other.logprobs, abs=2e-5)
            assert list(one.extra.get("entropy", [])) == pytest.approx(
                other.extra.get("entropy", []), abs=2e-4
            )
        asks = [dataclasses.replace(one, seed=one.seed + 1) for one in asks]
    assert seldom._cached.positions >= usual._cached.positions


@pytest.mark.system
def test_a_whole_rollout_is_the_same_however_seldom_it_is_looked_at():
    played = [
        rollout(
            [Job(Chatter, seed) for seed in range(16)], HuggingFaceAgent(QWEN, RENDERER, max_tokens=12, **how)
        )
        for how in ({}, {"check_every": 16})
    ]
    for one, other in zip(*played, strict=True):
        assert [turn.token_ids for turn in one.turns] == [turn.token_ids for turn in other.turns]
        assert [turn.finish for turn in one.turns] == [turn.finish for turn in other.turns]


class Waits(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts operations that would wait for a device: values that Python reads, and lists that it sends."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name()
        if name.startswith(
            ("aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero", "aten::lift_fresh")
        ):
            self.count += 1
        return func(*args, **(kwargs or {}))


def test_no_token_waits_for_the_device():
    counts = {}
    for every in (1, 16):
        for tokens in (2, 14):
            agent = HuggingFaceAgent(QWEN, RENDERER, max_tokens=tokens, check_every=every)
            agent(ASKS[:1])  # what the first call finds out
            agent.publish(1)
            with Waits() as waits:
                agent(ASKS[1:])
            counts[every, tokens] = waits.count
    assert counts[16, 14] == counts[16, 2] > 0
    assert counts[1, 14] > counts[1, 2]


@pytest.mark.system
@pytest.mark.parametrize("every", [1, 16])
def test_flash_attention_samples_the_same_answers(every, monkeypatch):
    """A function of ours stands in its place, as no GPU is at hand; the way to it is transformers' own."""
    asked = install(monkeypatch)
    model = copy.deepcopy(QWEN)  # with a config of its own
    model.config._attn_implementation = "flash_attention_2"
    agent = HuggingFaceAgent(model, RENDERER, max_tokens=12, check_every=every)
    usual = HuggingFaceAgent(QWEN, RENDERER, max_tokens=12)
    for reply, wanted in zip(agent(ASKS), usual(ASKS), strict=True):
        assert dataclasses.replace(reply, logprobs=()) == dataclasses.replace(wanted, logprobs=())
        assert reply.logprobs == pytest.approx(wanted.logprobs, abs=2e-5)
    assert agent._cached is not None
    assert len(asked) > 10


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_diverged_model_is_refused_at_the_next_look(temperature):
    model = make_model()
    agent = HuggingFaceAgent(model, RENDERER, temperature=temperature, max_tokens=8, check_every=4)
    agent(ASKS[:2])
    with torch.no_grad():
        model.get_output_embeddings().weight.fill_(torch.nan)
    agent.publish(1)
    with pytest.raises(BadArgument, match="diverged"):
        agent(ASKS[:2])


def test_looks_are_one_or_more_tokens_apart():
    with pytest.raises(BadArgument, match="check_every=0; accepted: 1 or more, or None"):
        HuggingFaceAgent(QWEN, RENDERER, check_every=0)
