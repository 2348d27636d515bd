"""The learner on transformers' architectures: trees, parts of logits, references, critics, small types."""

import copy
import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from flash_attention import install
from step_memory import Silent, Words

from gem.agents.tiny import TinyConfig
from gem.errors import BadArgument
from gem.tokens.rows import Row
from gem.train.learn import learner as module
from gem.train.learn import parallel
from gem.train.learn.batch import Target, Weighted, collate, microbatches
from gem.train.learn.learner import (
    Critic,
    GradientNotFinite,
    Learner,
    Settings,
    load_weights,
    round_by_chance,
    weights,
)
from gem.train.learn.policy import Base, CausalPolicy, TinyPolicy, checkpoint_layers, freeze_below
from gem.train.learn.steps import REFERENCE_LOGPROB, penalise

SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 97,
    "bos_token_id": None,
    "eos_token_id": None,
}
MODELS = {
    "llama": lambda: transformers.LlamaConfig(**SHAPE),
    "qwen3": lambda: transformers.Qwen3Config(**SHAPE, head_dim=8, tie_word_embeddings=True),
    # It looks back at few places, and its logits are squashed behind the head.
    "gemma2": lambda: transformers.Gemma2Config(
        **SHAPE, head_dim=8, sliding_window=4, final_logit_softcapping=5.0
    ),
    "gpt2": lambda: transformers.GPT2Config(
        n_embd=32, n_layer=2, n_head=2, vocab_size=97, bos_token_id=None, eos_token_id=None
    ),
    "granite": lambda: transformers.GraniteConfig(**SHAPE, logits_scaling=3.0),
}
STEPS = Settings(temperature=0.7)


def causal(name="llama", dtype=torch.float32, seed=0, attention=None):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(MODELS[name]()).eval()
        with torch.no_grad():  # small models are drawn so that attention hardly matters
            for parameter in model.parameters():
                if parameter.dim() == 2:
                    parameter.normal_(std=0.25)
    if attention:
        model.config._attn_implementation = attention  # unchecked: its package is not here
    return CausalPolicy(model.to(dtype), Words(), Silent())


def make_rows(count=14, seed=0):
    """Rows with beginnings in common, some the same and some the beginning of another."""
    rng = random.Random(seed)
    base = [rng.randrange(97) for _ in range(9)]
    made = []
    for i in range(count):
        ids = [*base, *(rng.randrange(3) for _ in range(rng.randrange(3, 12)))]
        if i % 4 == 3:
            ids = [*made[-1].row.ids, 1, 2]
        elif i % 5 == 2:
            ids = list(made[0].row.ids)
        mask = [0] * 9 + [int(rng.random() < 0.6) for _ in ids[9:]]
        mask[-1] = 1
        turn = tuple(t // 4 if learn else -1 for t, learn in enumerate(mask))
        logprobs = tuple(-0.5 * learn for learn in mask)
        made.append(
            Weighted(
                Row(tuple(ids), tuple(mask), logprobs, turn), {t: Target(rng.random()) for t in range(9)}
            )
        )
    return made


ROWS = make_rows()


def plain(policy, temperature=0.7):
    """Log probabilities of the sampled tokens by the model's own logits, a row at a time."""
    found = []
    for item in ROWS:
        ids = torch.tensor([item.row.ids])
        logp = (policy.model(input_ids=ids).logits[0].float() / temperature).log_softmax(-1)
        found += [logp[t - 1, item.row.ids[t]] for t, learn in enumerate(item.row.mask) if learn]
    return torch.stack(found)


def by_row(batch, values_N):
    return values_N[batch.row.argsort(stable=True)]


def gradients(loss, policy):
    loss.backward()
    made = [p.grad.clone() for p in policy.model.parameters() if p.grad is not None]
    policy.model.zero_grad()
    return made


@pytest.mark.parametrize("logits_at_a_time", [1 << 25, 500])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.system
def test_it_says_what_the_model_says(name, logits_at_a_time, monkeypatch):
    monkeypatch.setattr(module, "LOGITS", logits_at_a_time)
    policy = causal(name)
    assert (policy.capacity is None) == (name == "gemma2")  # tried out, not looked up
    learner = Learner(policy, STEPS)
    batch = collate(ROWS, 0, policy.capacity)
    outputs = learner.forward(batch)
    wanted = plain(policy)
    assert torch.allclose(by_row(batch, outputs.logprob), wanted, atol=2e-5)
    weight = torch.linspace(-1, 1, len(wanted))
    mine = gradients((by_row(batch, outputs.logprob) * weight).sum(), policy)
    theirs = gradients((wanted * weight).sum(), policy)
    for one, other in zip(mine, theirs, strict=True):
        assert (one - other).abs().max() <= 1e-4 * other.abs().max() + 1e-6


@pytest.fixture
def flash(monkeypatch):
    """Flash attention on the CPU; returns the bounds of the rows of each call."""
    return install(monkeypatch)


def check_same(one, other):
    """Two policies have the same losses and gradients, up to rounding in float32."""
    made = []
    for policy in (one, other):
        batch = collate(ROWS, 0, policy.capacity)
        assert (batch.sees is None) == policy._flat
        logprob_N = by_row(batch, Learner(policy, STEPS).forward(batch).logprob)
        weight_N = torch.linspace(-1, 1, len(batch.of))
        made.append((logprob_N.detach(), gradients((logprob_N * weight_N).sum(), policy)))
    assert torch.allclose(made[0][0], made[1][0], atol=2e-5)
    for mine, theirs in zip(made[0][1], made[1][1], strict=True):
        assert (mine - theirs).abs().max() <= 1e-4 * theirs.abs().max() + 1e-6


@pytest.mark.system
@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_flash_attention_gets_rows_without_padding_or_masks(name, flash):
    """It is transformers' way to it that runs here; the attention itself is our own, as no GPU is at hand."""
    policy = causal(name, attention="flash_attention_2")
    flash.clear()
    check_same(policy, causal(name))
    assert flash == [flash[0]] * 3  # of each layer
    rows = {tuple(item.row.ids) for item in ROWS}
    longest = [ids for ids in rows if not any(ids == other[: len(ids)] for other in rows - {ids})]
    assert flash[0][0][-1] == sum(len(ids) - 1 for ids in longest)  # nothing follows the last token


@pytest.mark.system
@pytest.mark.parametrize("name", ["llama", "qwen3", "granite"])
def test_flat_rows_have_the_losses_and_gradients_of_trees(name):
    """Sdpa, which makes a mask from the positions, agrees with flash attention on what they mean."""
    policy = causal(name)
    policy._flat, policy.capacity = True, None
    check_same(policy, causal(name))


def test_masks_are_bits_where_the_model_takes_them(monkeypatch):
    policy, kinds, found = causal(), [], []
    decoder = policy._decoder.forward

    def watch(*given, attention_mask=None, **how):
        kinds.append(None if attention_mask is None else attention_mask.dtype)
        return decoder(*given, attention_mask=attention_mask, **how)

    monkeypatch.setattr(policy._decoder, "forward", watch)
    batch = collate(ROWS, 0, policy.capacity)
    for policy._attention in ("sdpa", "eager"):
        found.append(Learner(policy, STEPS).logprobs(batch))
    assert kinds == [None, torch.bool, None, torch.float32]  # the shared beginning has none
    assert torch.equal(*found)


def test_rounding_to_bfloat16_is_not_taken_for_a_model_that_sees_no_tree(monkeypatch):
    deep = {**SHAPE, "num_hidden_layers": 24}  # rounding adds up from layer to layer
    monkeypatch.setitem(MODELS, "deep", lambda: transformers.LlamaConfig(**deep))
    for name, capacity in (("llama", 256), ("deep", 256), ("gemma2", None)):
        assert causal(name, torch.bfloat16).capacity == capacity


@pytest.mark.parametrize("error", [ValueError, RuntimeError, TypeError, NotImplementedError, AttributeError])
def test_a_model_that_refuses_trees_gets_whole_rows(error, monkeypatch):
    states = CausalPolicy.states

    def refuse(self, batch):
        if batch.sees is not None:
            raise error("a mask of four dimensions")
        return states(self, batch)

    assert causal().capacity is not None
    monkeypatch.setattr(CausalPolicy, "states", refuse)
    assert causal().capacity is None


def test_no_tensor_of_all_tokens_by_the_whole_vocabulary_is_made(monkeypatch):
    monkeypatch.setattr(module, "LOGITS", 500)  # 5 places by 97 words
    policy = causal()
    largest = []
    logits = policy.logits
    monkeypatch.setattr(policy, "logits", lambda states: largest.append(len(states)) or logits(states))
    outputs = Learner(policy, STEPS).forward(collate(ROWS, 0, policy.capacity))
    outputs.logprob.sum().backward()
    assert max(largest) == 5
    assert len(outputs.logprob) > 50


def objective(batch, outputs):
    return -(outputs.logprob * batch.advantage[batch.turn]).sum(), {
        "tokens": torch.tensor(1.0 * len(batch.of))
    }


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_a_step_in_several_passes_is_the_same_step(name):
    made = []
    for tokens in (None, 30):
        policy = causal(name)
        learner = Learner(policy, replace(STEPS, pass_tokens=tokens, lr=1e-2))
        assert len(microbatches(ROWS, tokens, policy.capacity)) > 1 or tokens is None
        sums, _ = learner.update(ROWS, objective, len(ROWS))
        made.append((sums, policy.model.state_dict()))
    assert made[0][0] == pytest.approx(made[1][0])
    for key, value in made[0][1].items():
        assert torch.allclose(value, made[1][1][key], atol=1e-3)


def test_steps_smaller_than_a_bfloat16_are_not_lost():
    policy = causal(dtype=torch.bfloat16)
    learner = Learner(policy, replace(STEPS, lr=1e-5))
    before = copy.deepcopy(policy.model.state_dict())
    masters = [master.clone() for master in learner.state()["masters"]]
    for _ in range(3):
        learner.update(ROWS, objective, len(ROWS))
    moved = [float((a - b).abs().max()) for a, b in zip(masters, learner.state()["masters"], strict=True)]
    assert min(moved) > 1e-6
    name = "model.layers.0.self_attn.q_proj.weight"
    same = (before[name] == policy.model.state_dict()[name]).float().mean()
    assert same > 0.9  # the nearest bfloat16 of all of these weights is still the old one
    wanted = torch.cat([(b - a).flatten() for a, b in zip(masters, learner.state()["masters"], strict=True)])
    weights = torch.cat([parameter.detach().float().flatten() for parameter in learner.parameters])
    given = weights - torch.cat([master.flatten() for master in masters])
    assert float(given @ wanted / (wanted @ wanted)) == pytest.approx(1.0, abs=0.1)  # on average they moved


def test_rounding_by_chance_is_right_on_average():
    values = torch.tensor([1.0, -1.0, 0.0, 1 + 2**-9, -1 - 2**-10, 3e-41, 0.1])
    draws = [
        round_by_chance(values, torch.bfloat16, torch.Generator().manual_seed(seed)).float()
        for seed in range(2000)
    ]
    rounded = torch.stack(draws)
    assert (rounded[:, :3] == values[:3]).all()  # what bfloat16 has is kept
    assert set(rounded[:, 3].tolist()) == {1.0, 1 + 2**-7}
    assert set(rounded[:, 4].tolist()) == {-1.0, -1 - 2**-7}
    assert torch.allclose(rounded.mean(0), values, atol=5e-4)
    again = round_by_chance(values, torch.bfloat16, torch.Generator().manual_seed(7))
    assert torch.equal(again.float(), draws[7])
    odd = torch.tensor([-1, 0x7FFFFFFF, 0x7F800001, 0x7F800000, -0x800000], dtype=torch.int32)
    kept = round_by_chance(odd.view(torch.float32), torch.bfloat16, torch.Generator().manual_seed(7))
    assert kept.isnan().tolist() == [True, True, True, False, False]
    assert kept[3:].tolist() == [float("inf"), -float("inf")]
    assert torch.equal(round_by_chance(values, torch.float16, torch.Generator()), values.half())


def test_in_bfloat16_gradients_of_passes_are_added_in_float32():
    found = []
    for tokens in (None, 20):
        learner = Learner(causal(dtype=torch.bfloat16), replace(STEPS, pass_tokens=tokens, lr=0.0))
        kept = []
        learner.step = lambda learner=learner, kept=kept: kept.extend(g.clone() for g in learner.gradients)
        learner.update(ROWS, objective, len(ROWS))
        assert all(gradient.dtype == torch.float32 for gradient in kept)
        found.append(torch.cat([gradient.flatten() for gradient in kept]))
    assert torch.nn.functional.cosine_similarity(*found, dim=0) > 0.99


def test_a_learner_comes_back_as_it_was():
    learner = Learner(causal(dtype=torch.bfloat16), replace(STEPS, lr=1e-3), critic=Critic(32))
    learner.update(ROWS, objective, len(ROWS))
    state = copy.deepcopy(learner.state())
    other = Learner(causal(dtype=torch.bfloat16, seed=5), replace(STEPS, lr=1e-3), critic=Critic(32))
    other.load(state, "it")
    for each in (learner, other):
        each.update(ROWS, objective, len(ROWS))
    one, two = learner.policy.model.state_dict(), other.policy.model.state_dict()
    assert all(torch.equal(one[key], two[key]) for key in one)


# -- what is trained


def test_the_upper_layers_alone():
    policy = causal()
    freeze_below(policy.model, 1)
    before = copy.deepcopy(policy.model.state_dict())
    learner = Learner(policy, replace(STEPS, lr=1e-2))
    learner.update(ROWS, objective, len(ROWS))
    moved = {key for key, value in policy.model.state_dict().items() if not torch.equal(value, before[key])}
    assert moved == {key for key in before if ".layers.2." in key and "norm" not in key}
    assert set(weights(policy)["model"]) == moved  # what a checkpoint holds
    with pytest.raises(
        BadArgument, match="train_layers is 4; accepted: 1 to 3, the layers of LlamaForCausalLM"
    ):
        freeze_below(policy.model, 4)


@pytest.mark.filterwarnings("default:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's
def test_the_base_of_an_adapter_is_the_reference():
    peft = pytest.importorskip("peft")
    policy = causal()
    wanted = plain(policy).detach()
    adapter = peft.LoraConfig(
        r=4, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False
    )
    policy = CausalPolicy(peft.get_peft_model(policy.model, adapter), Words(), Silent())
    learner = Learner(policy, STEPS, reference=Base(policy))
    assert all("lora" in name for name, p in policy.model.named_parameters() if p.requires_grad)
    rows = [replace(item, stored_outputs={}) for item in ROWS]
    learner.store_reference(rows, full=False)
    learner.store_outputs(rows)
    assert torch.allclose(
        torch.cat([item.stored_outputs["reference_logprob"] for item in rows]), wanted, atol=2e-5
    )
    present = torch.cat([item.stored_outputs["present"] for item in rows])
    assert torch.allclose(present, plain(policy), atol=2e-5)
    assert not torch.allclose(present, wanted, atol=1e-2)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_layers_that_are_computed_again_give_the_same_gradient_in_less_memory(name):
    found, held = [], []
    for again in (False, True):
        policy = causal(name)
        if again:
            checkpoint_layers(policy.model)
        policy.capacity = None
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t, kept=kept: kept.append(t.numel()) or t, lambda t: t
        ):
            loss = Learner(policy, STEPS).logprobs(collate(ROWS, 0, None)).sum()
        held.append(sum(kept))
        found.append(gradients(loss, policy))
    assert held[1] < held[0] / 2
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, atol=1e-4)


# -- reference and critic


def test_divergence_from_a_reference_over_the_whole_vocabulary():
    policy, reference = causal(), causal(seed=3)
    learner = Learner(policy, STEPS, reference=reference)
    rows = [replace(item, stored_outputs={}) for item in ROWS]
    learner.store_reference(rows, full=True)
    batch = collate(rows, 0, policy.capacity)
    outputs = learner.forward(batch)
    wanted = []
    for item in ROWS:
        ids = torch.tensor([item.row.ids])
        mine, other = (
            (each.model(input_ids=ids).logits[0] / 0.7).log_softmax(-1) for each in (policy, reference)
        )
        kl = (mine.exp() * (mine - other)).sum(-1)
        wanted += [kl[t - 1] for t, learn in enumerate(item.row.mask) if learn]
    assert torch.allclose(by_row(batch, outputs.kl), torch.stack(wanted), atol=1e-4)
    assert outputs.kl.min() > 0
    assert outputs.kl.requires_grad


@pytest.mark.parametrize("full", [True, False])
def test_the_reference_is_asked_once_for_a_row(full, monkeypatch):
    policy, reference = causal(), causal(seed=3)
    learner = Learner(policy, STEPS, reference=reference)
    asked = []
    states = reference.states
    monkeypatch.setattr(reference, "states", lambda batch: asked.append(len(batch.ids)) or states(batch))
    first, again = ([replace(item, stored_outputs={}) for item in ROWS] for _ in range(2))
    learner.store_reference(first, full=full)
    learner.store_reference(again, full=full)
    assert len(asked) == 1
    name = "reference_states" if full else "reference_logprob"
    for one, other in zip(first, again, strict=True):
        assert torch.equal(one.stored_outputs[name], other.stored_outputs[name])
    learner.store_reference(again, full=not full)  # another output: no cache has it
    assert (len(asked), len(again[0].stored_outputs)) == (2, 2)
    learner.reference = causal(seed=4)
    learner.store_reference(again, full=full)
    assert not torch.allclose(first[0].stored_outputs[name], again[0].stored_outputs[name])


@pytest.mark.parametrize("name", ["present", "reference_states", "reference_logprob"])
def test_each_process_computes_its_share_of_what_is_stored(name, monkeypatch):
    policy, reference = causal(), causal(seed=3)

    def store(asked):
        rows = [replace(item, stored_outputs={}) for item in ROWS[::2]]  # none twice
        learner = Learner(policy, STEPS, reference=reference)
        for each in (policy, reference):
            monkeypatch.setattr(
                each, "states", lambda b, each=each: asked.append(b.row.max()) or CausalPolicy.states(each, b)
            )
        if name == "present":
            learner.store_outputs(rows)
        else:
            learner.store_reference(rows, full=name == "reference_states")
        return [item.stored_outputs[name] for item in rows]

    wanted = store([])
    monkeypatch.setattr(parallel, "world", lambda: 2)
    for rank in (0, 1):
        monkeypatch.setattr(parallel, "rank", lambda rank=rank: rank)

        def exchange(into, own, rank=rank):
            for one, other in zip(own, wanted[rank::2], strict=True):
                assert torch.allclose(one[name], other, atol=1e-5)
            into[:] = [[{name: value} for value in wanted[each::2]] for each in (0, 1)]

        monkeypatch.setattr(parallel.distributed, "all_gather_object", exchange)
        asked = []
        for one, other in zip(store(asked), wanted, strict=True):
            assert torch.equal(one, other)
        assert [int(last) + 1 for last in asked] == [len(wanted[rank::2])]  # rows of its one pass


@pytest.mark.parametrize("own", [False, True])
def test_a_critic_values_the_state_before_each_turn(own):
    policy = causal()
    body = causal(seed=2) if own else None
    critic = Critic(32, body)
    learner = Learner(policy, replace(STEPS, lr=1e-3), critic=critic)
    batch = collate(ROWS, 0, policy.capacity)
    assert learner.forward(batch).value.tolist() == [0.0] * batch.turns
    with torch.no_grad():
        critic.head.weight.normal_(generator=torch.Generator().manual_seed(0))
    found = learner.forward(batch).value
    wanted = {}
    for b, item in enumerate(ROWS):
        states = (body or policy).model.get_decoder()(torch.tensor([item.row.ids])).last_hidden_state[0]
        for turn in set(item.row.turn) - {-1}:
            first = item.row.turn.index(turn)
            wanted[b, turn] = float(critic.head(states[first - 1]).detach())
    rows = batch.row[batch.first].tolist()
    assert sorted(wanted) == sorted(set(wanted))
    mine = sorted(zip(rows, found.tolist(), strict=True))
    theirs = sorted((b, value) for (b, _), value in wanted.items())
    assert [b for b, _ in mine] == [b for b, _ in theirs]
    assert [value for _, value in mine] == pytest.approx([value for _, value in theirs], abs=2e-5)
    learner.update(ROWS, lambda b, o: ((o.value - 1).square().sum(), {}), len(ROWS))
    assert learner.forward(batch).value.sub(1).square().mean() < found.sub(1).square().mean()


def test_a_penalty_is_what_the_policy_moved_from_the_reference_by_turn():
    def store(rows, full):
        assert not full
        for item in rows:
            item.stored_outputs = {REFERENCE_LOGPROB: torch.tensor(item.reference)}

    items = [
        SimpleNamespace(
            row=SimpleNamespace(
                learnt=[1, 3, 4], logprobs=[0.0, -1.0, 0.0, -2.0, -4.0], turn=[-1, 0, -1, 1, 1]
            ),
            reference=[-1.5, -1.0, -1.0],
            source=1,
        ),
        SimpleNamespace(
            row=SimpleNamespace(learnt=[0], logprobs=[-3.0], turn=[1]), reference=[-2.0], source=0
        ),
    ]
    episodes = [SimpleNamespace(turns_of=lambda seat: [seat] * 2)] * 2
    learner = SimpleNamespace(reference=object(), store_reference=store, moved=True)
    config, progress = SimpleNamespace(kl_reward=True), SimpleNamespace(kl=lambda config: 0.5)
    found = penalise(learner, episodes, items, "agent", config, progress)
    assert found == [[0.0, -0.5], [0.25, -2.0]]
    for without in (
        (learner, episodes, [], "agent", config, progress),
        (SimpleNamespace(reference=None), episodes, items, "agent", config, progress),
        (SimpleNamespace(reference=object(), moved=False), episodes, items, "agent", config, progress),
        (learner, episodes, items, "agent", SimpleNamespace(kl_reward=False), progress),
        (learner, episodes, items, "agent", config, SimpleNamespace(kl=lambda config: 0.0)),
    ):
        assert penalise(*without) is None


def test_weights_of_another_shape_are_refused():
    policy = TinyPolicy(TinyConfig(width=16, layers=1, heads=2), seed=0)
    state = weights(TinyPolicy(TinyConfig(width=32, layers=1, heads=2), seed=0))
    with pytest.raises(module.SchemaMismatch, match="it holds another shape of model: embed is"):
        load_weights(policy, state, "it")


def test_a_learner_without_settings_steps_by_a_thousandth():
    learner = Learner(TinyPolicy(TinyConfig(width=8, layers=1, heads=1), seed=0))
    assert {group["lr"] for group in learner.optimiser.param_groups} == {1e-3}


@pytest.mark.parametrize("factor", [float("inf"), float("nan")])
def test_a_gradient_that_is_not_finite_makes_no_step(factor):
    learner = Learner(TinyPolicy(TinyConfig(width=8, layers=1, heads=1), seed=0))
    before = [p.clone() for p in learner.parameters]

    def broken(batch, outputs):
        return (factor * outputs.logprob).sum(), {}

    with pytest.raises(GradientNotFinite, match=r"its norm is (inf|nan)"):
        learner.update(make_rows(), broken, 1.0)
    assert all(torch.equal(one, other) for one, other in zip(before, learner.parameters, strict=True))
    assert not learner.moved
    assert not learner.optimiser.state
    learner.update(make_rows(), objective, 1.0)  # nothing of it is left
    assert all(p.isfinite().all() for p in learner.parameters)
