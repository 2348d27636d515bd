"""Answers from kept keys and values are those from whole prompts, whatever was asked before."""

import copy
import random
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from random_models import RENDERER, VOCABULARY, Chatter, make_model

from gem.agents.hugging_face import HuggingFaceAgent, _decoder_and_head
from gem.agents.kv_cache import PrefixTree
from gem.agents.sampling import sample, uniforms
from gem.content import Message
from gem.errors import BadArgument
from gem.history import HistoryPolicy
from gem.record import Ask, Limits
from gem.rollout import Job, rollout
from gem.tokens.rows import rows

KEPT = ["qwen3", "llama", "gpt2", "mixtral", "granite"]
MODELS = {name: make_model(name) for name in KEPT}


class Whole(HuggingFaceAgent):
    """Shows the model whole prompts."""

    def _probe(self):
        return None


def pair(name="qwen3", **settings):
    model = MODELS[name]
    return HuggingFaceAgent(model, RENDERER, **settings), Whole(copy.deepcopy(model), RENDERER, **settings)


def assert_same(replies, expected):
    for reply, other in zip(replies, expected, strict=True):
        assert replace(reply, logprobs=()) == replace(other, logprobs=())
        assert reply.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def kept(agent):
    return agent._cached.tree.bytes


def turn(episode, seed, text="the secret", after=None, seat="agent", **changes):
    """An ask; with `after`, one that goes on behind that reply."""
    said = (Message("user", text),)
    if after is None:
        return Ask(episode, seat, 0, said, seed=seed, **changes)
    held = (*after.prompt_ids, *after.token_ids)
    return Ask(episode, seat, 1, said, held=held, fresh=1, seed=seed, **changes)


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("history", [None, HistoryPolicy("last")])
@pytest.mark.system
def test_whole_rollouts_are_the_same(name, history):
    told = {} if history is None else {"history": history}
    jobs = [Job(Chatter, seed % 6) for seed in range(10)]
    played = [
        rollout(jobs, agent, limits=Limits(context=150), **told)
        for agent in pair(name, max_tokens=10, batch_size=7)
    ]
    for episode, other in zip(*played, strict=True):
        for one, two in zip(episode.turns, other.turns, strict=True):
            assert one.token_ids == two.token_ids
            assert one.logprobs == pytest.approx(two.logprobs, abs=1e-4)
        assert episode.stop == other.stop


@pytest.mark.system
@pytest.mark.parametrize("limit", [0, 20_000, 200_000, 1 << 30])
@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in (1, 2))])
def test_whatever_was_asked_before_replies_are_the_same(limit, seed):
    rng = random.Random(f"{limit} {seed}")
    agent, whole = pair(max_tokens=6, batch_size=5, cache_bytes=limit)
    last = {}
    other = make_model()
    for step in range(16):
        what = rng.random()
        if what < 0.1:
            with torch.no_grad():
                other.get_input_embeddings().weight.add_(0.1 * torch.randn(VOCABULARY, 64))
            for each in (agent, whole):
                each.publish(step, other.state_dict())
        elif what < 0.2:
            gone = rng.randrange(6)
            agent.forget(str(gone))
            last.pop(gone, None)
        asks = []
        for episode in rng.sample(range(6), rng.randint(1, 6)):
            after = last.get(episode) if rng.random() < 0.8 else None
            if after is not None and rng.random() < 0.2:  # its past is rewritten, from somewhere on
                cut = rng.randrange(1, len(after.prompt_ids))
                after = replace(after, prompt_ids=(*after.prompt_ids[:cut], 9), token_ids=(8, 7))
            text = "the secret " * rng.randint(1, 4)
            context = rng.choice([None, 60])
            asks.append(turn(str(episode), rng.randrange(3), text, after, context=context))
        replies = agent(asks)
        assert_same(replies, whole(asks))
        assert kept(agent) <= limit
        last.update((int(ask.episode), reply) for ask, reply in zip(asks, replies, strict=True))
    publish_back = MODELS["qwen3"]
    publish_back.load_state_dict(make_model().state_dict())


@pytest.mark.parametrize("name", ["gemma3", "gemma2"])
def test_a_model_with_sliding_windows_is_shown_whole_prompts(name):
    agent = HuggingFaceAgent(make_model(name), RENDERER, max_tokens=3)
    assert len(agent([turn("e", 0)])[0].token_ids) > 0
    assert agent._cached is None
    agent.publish(1)
    agent.forget("e")


def contexts(replies):
    """Return the distinct beginnings of prompts and answers that a model has to process, one per position."""
    whole = [(*reply.prompt_ids, *reply.token_ids[:-1]) for reply in replies]
    return {ids[:length] for ids in whole for length in range(1, len(ids) + 1)}


def test_equal_contexts_are_processed_once_and_again_never():
    agent, _ = pair(max_tokens=8)
    agent([turn("warm", 0)])
    agent.publish(0)
    cached = agent._cached
    cached.positions = 0
    first = agent([turn(str(n), seed=n) for n in range(20)])
    assert len({reply.token_ids for reply in first}) > 5
    known = contexts(first)
    assert cached.positions == len(known)
    second = agent([turn(str(n), n % 3, "higher", reply) for n, reply in enumerate(first)])
    assert cached.positions == len(known | contexts(second))
    # Asked again, only the last position of each prompt is processed, for its logits, and the answers.
    again = agent([turn(str(n), n % 3, "higher", reply) for n, reply in enumerate(first)])
    assert_same(again, second)
    prompts = {reply.prompt_ids for reply in second}
    behind = contexts(second) - {p[:n] for p in prompts for n in range(len(p) + 1)}
    assert cached.positions == len(known | contexts(second)) + len(prompts) + len(behind)


def test_a_beginning_that_prompts_share_is_processed_once():
    agent, whole = pair(max_tokens=1)
    agent([turn("warm", 0)])
    agent.publish(0)
    agent._cached.positions = 0
    rules = "the secret number is higher or lower " * 4
    asks = [turn(str(n), n, rules + str(n)) for n in range(8)]
    asks += [turn(str(n), n, "0" + rules + str(n)) for n in range(8)]
    replies = agent(asks)
    whole.publish(0)
    assert_same(replies, whole(asks))
    assert agent._cached.positions < len(contexts(replies)) + 16  # but for beginnings of a few tokens


def test_what_is_kept_ends_with_its_episodes_and_with_its_weights():
    agent, _ = pair(max_tokens=8)
    one, two = (turn(name, 5, f"{name} secret") for name in "ab")
    agent([one])
    alone = kept(agent)
    agent([two])
    assert kept(agent) > alone > 0
    agent.forget("a")
    shared = kept(agent)  # the beginning that both have gone through
    agent.forget("b")
    assert 0 < kept(agent) < shared
    agent.publish(1)
    assert kept(agent) == 0
    agent([one])
    assert kept(agent) == alone
    agent.forget("a")
    assert kept(agent) == 0


def test_published_weights_may_come_from_a_module_in_another_precision():
    agent, _ = pair(max_tokens=4)
    agent = HuggingFaceAgent(make_model(), RENDERER, max_tokens=4)
    agent([turn("e", 0)])
    other = make_model()
    with torch.no_grad():
        other.get_output_embeddings().weight.mul_(-1)
    agent.publish(1, other.bfloat16())
    rounded = make_model()
    rounded.load_state_dict(other.state_dict())
    assert_same(
        agent([turn("e", 1)]),
        [replace(r, policy_version=1) for r in Whole(rounded, RENDERER, max_tokens=4)([turn("e", 1)])],
    )


def test_a_model_that_changes_its_precision_goes_on():
    model = make_model()
    agent = HuggingFaceAgent(model, RENDERER, max_tokens=4)
    (before,) = agent([turn("e", 0)])
    model.bfloat16()
    (after,) = agent([turn("e", 1, "higher", before)])
    (whole,) = Whole(model, RENDERER, max_tokens=4)([turn("e", 1, "higher", before)])
    assert after.token_ids[0] == whole.token_ids[0]
    assert after.logprobs[0] == pytest.approx(whole.logprobs[0], abs=0.05)
    assert agent._cached.shape.dtype is torch.bfloat16


@pytest.mark.parametrize("name", ["qwen3", "gemma2"])
def test_half_precision_gives_the_logits_of_the_states_in_full(name):
    model = make_model(name).bfloat16()
    agent = HuggingFaceAgent(model, RENDERER, max_tokens=1)
    (reply,) = agent([turn("e", 0)])
    ids = torch.tensor([reply.prompt_ids])
    with torch.inference_mode():
        hidden = model.get_decoder()(input_ids=ids).last_hidden_state[:, -1]
        own = model(input_ids=ids).logits[0, -1]
        full = (hidden.float() @ model.get_output_embeddings().weight.float().T)[0]
    expected = {"qwen3": full, "gemma2": own}[name]  # gemma2 caps its logits
    logp = torch.log_softmax(expected.double(), -1)[reply.token_ids[0]].item()
    assert reply.logprobs[0] == pytest.approx(logp, abs=1e-3 if name == "qwen3" else 0.05)
    assert agent._forward._parts is not None if name == "qwen3" else agent._forward._parts is None


@pytest.mark.parametrize(
    ("name", "plain"),
    [("qwen3", True), ("gpt2", True), ("mixtral", True), ("granite", False), ("gemma2", False)],
)
def test_scaled_and_capped_logits_are_the_models_own(name, plain):
    assert (_decoder_and_head(make_model(name)) is not None) == plain


BOX = {"prefix": "the ", "stop": ("e",)}


def test_every_answer_begins_with_the_prefix_and_ends_with_a_stop_text():
    agent, whole = pair(max_tokens=4, **BOX)
    asks = [turn(str(n), n) for n in range(30)]
    replies = agent(asks)
    assert_same(replies, whole(asks))
    begun = RENDERER.prompt(asks[0].messages) + RENDERER.answer("the ")[:-1]
    finishes = {(reply.finish, reply.token_ids[-1] in RENDERER.stop_ids) for reply in replies}
    assert finishes == {("stop", True), ("stop", False), ("length", False)}
    for reply in replies:
        assert reply.prompt_ids == begun
        assert reply.text == "the " + RENDERER.decode(reply.token_ids)
        sampled, before = RENDERER.decode(reply.token_ids), RENDERER.decode(reply.token_ids[:-1])
        assert "e" not in before
        ended = "e" in sampled or reply.token_ids[-1] in RENDERER.stop_ids
        assert (reply.finish == "stop") == ended


def test_a_conversation_goes_on_behind_an_answer_that_a_text_stopped():
    agent, _ = pair(max_tokens=12, **BOX)
    model = MODELS["qwen3"]
    end = RENDERER.tokenizer.eos_token_id
    closed = 0
    for episode in rollout([Job(Chatter, seed) for seed in range(12)], agent):
        (row,) = rows(episode)
        assert sum(row.mask) == sum(len(each.token_ids) for each in episode.turns)
        text = RENDERER.tokenizer.decode(row.ids)
        for before, after in zip(episode.turns, episode.turns[1:], strict=False):
            assert before.action.startswith("the ")
            stopped = before.token_ids[-1] != end
            assert (after.new_ids[0] == end) == stopped
            closed += stopped and before.finish == "stop"
        assert text.count("<|start|>assistant\nthe ") == len(episode.turns)
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([list(row.ids)])).logits[0].double()
        logp = torch.log_softmax(logits, -1)
        for at in range(len(row.ids)):
            if row.mask[at]:
                assert row.logprobs[at] == pytest.approx(logp[at - 1, row.ids[at]].item(), abs=1e-4)
    assert closed > 3


def test_prefix_and_stop_stand_in_the_settings():
    agent, plain = HuggingFaceAgent(MODELS["qwen3"], RENDERER, **BOX), pair()[0]
    assert {**agent.info.sampling, **BOX, "stop": ["e"]} == agent.info.sampling
    assert not {"prefix", "stop"} & set(plain.info.sampling)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"stop": "}"}, "sequence of texts"),
        ({"stop": ("",)}, "none of them empty"),
        ({"cache_bytes": -1}, "cache_bytes=-1"),
        ({"prefix": "\u65e5"}, "changes when it is tokenized"),
    ],
)
def test_settings_without_sense_are_refused(settings, words):
    with pytest.raises(BadArgument, match=words):
        HuggingFaceAgent(MODELS["qwen3"], RENDERER, **settings)


def test_native_tools_and_a_prefix_exclude_each_other():
    from tool_templates import renderer

    made = renderer("qwen")
    with pytest.raises(BadArgument, match="exclude each other"):
        HuggingFaceAgent(MODELS["qwen3"], made, tools="native", prefix="x")
    assert HuggingFaceAgent(MODELS["qwen3"], made, prefix="x").tools == "text"


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_samples_of_one_row_are_those_of_its_copies(temperature):
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    u = torch.stack([uniforms(range(4 * row, 4 * row + 4), 0) for row in range(3)])
    ids, logp = sample(logits, temperature, u)
    flat_ids, flat_logp = sample(logits.repeat_interleave(4, 0), temperature, u.flatten())
    assert torch.equal(ids, flat_ids.view(3, 4))
    assert torch.equal(logp, flat_logp.view(3, 4))


def made_for(ids):
    """Return keys and values that tell which ids they are for: at each position, a sum over all up to it."""
    sums = torch.tensor(ids).cumsum(0).double()[None, None, :, None]
    return lambda first, last: (sums[:, :, first:last].clone(), -sums[:, :, first:last].clone())


def found_in(tree, ids):
    """Return the keys that a tree has for the beginning of `ids`."""
    return torch.cat([torch.zeros(0)] + [node.keys[0, 0, :count, 0] for node, count in tree.find(ids)])


@pytest.mark.parametrize("limit", [100, 1000, 1 << 30])
def test_a_tree_gives_what_was_kept_and_stays_within_its_limit(limit):
    rng = random.Random(limit)
    tree, said = PrefixTree(limit), {}
    for step in range(400):
        ids = tuple(rng.randrange(3) for _ in range(rng.randint(1, 12)))
        known = found_in(tree, ids)
        assert torch.equal(known, torch.tensor(ids).cumsum(0)[: len(known)].double())
        longest = max((common for other in said if (common := same(ids, other))), default=0)
        assert len(known) == longest if limit == 1 << 30 else len(known) <= longest
        owner = rng.choice(["a", "b", None])
        tree.keep(ids, owner, made_for(ids))
        said[ids] = step
        assert tree.bytes == sum(node.bytes for node in tree._nodes) <= limit
    for owner in "ab":
        tree.forget(owner)
    assert tree._owned == {}
    assert all(node.owner is None for node in tree._nodes)


def same(one, other):
    return next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def test_what_was_used_longest_ago_goes_first():
    tree = PrefixTree(16 * 9)
    for first in range(3):
        ids = (first, 1, 2)
        tree.keep(ids, None, made_for(ids))
    tree.find((0, 1))
    tree.keep((3, 1), None, made_for((3, 1)))
    assert [len(found_in(tree, (first, 1, 2))) for first in range(4)] == [3, 0, 3, 2]
