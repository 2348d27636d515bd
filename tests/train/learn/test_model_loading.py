"""Loading a model by name: what comes out of a GGUF file is the model that went into it."""

import json
import os
import pickle
import threading

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import bpe_tokenizers

from gem import cli, models
from gem.agents.hugging_face import HuggingFaceAgent
from gem.errors import BadArgument, MissingExtra
from gem.models import KnownModel
from gem.record import RunInfo
from gem.tokens.chat_template import ChatTemplateRenderer
from gem.viewer.vocabulary import vocabulary_of

TEXTS = ["The secret is 42.\n\n7 is too low, 12 too high.", "Guess  9 or 10?\n\n11"] * 5
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of this test's own, empty."""
    monkeypatch.setenv("GEM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def left_in(cache):
    return [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]


def make_tokenizer():
    """A tokenizer as SmolLM's: each digit apart, then bytes."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    return bpe_tokenizers.make_tokenizer(TEXTS, 300, special=special, template=TEMPLATE, digits=True)


def make_model(tokenizer):
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        rms_norm_eps=1e-5,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return transformers.LlamaForCausalLM(config).eval()


GGUF_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def write_gguf(path, model, tokenizer):
    """Write a Llama as llama.cpp's converter does: names of its own, and the halves of a head interleaved."""
    gguf = pytest.importorskip("gguf", reason="needs gguf: pip install 'gem-gym[llm]'")
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    whole = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    tokens = sorted(whole["vocab"], key=whole["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in whole["merges"]])
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        parts = name.removeprefix("model.").removesuffix(".weight").split(".", 2)
        if parts[0] == "layers":
            own = GGUF_NAMES[parts[2]]
            if own in heads:
                shape = tensor.shape
                tensor = tensor.reshape(heads[own], 2, -1, shape[1]).transpose(1, 2).reshape(shape)
            own = f"blk.{parts[1]}.{own}.weight"
        else:
            own = {"embed_tokens": "token_embd.weight", "norm": "output_norm.weight"}[parts[0]]
        writer.add_tensor(own, tensor.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def made():
    tokenizer = make_tokenizer()
    return make_model(tokenizer), tokenizer


@pytest.fixture
def gguf_file(made, tmp_path):
    return write_gguf(tmp_path / "little.gguf", *made)


IDS = torch.tensor([[5, 9, 17, 40, 3, 80]])


def same(model, other):
    with torch.no_grad():
        return torch.allclose(model(IDS).logits, other(IDS).logits, atol=1e-5)


def test_a_gguf_file_is_the_model_that_it_was_made_of(made, gguf_file, cache, monkeypatch, capfd):
    capfd.readouterr()
    model, tokenizer = models.load_causal(str(gguf_file))
    assert same(model, made[0])
    assert not model.training
    assert model.dtype == torch.float32
    assert tokenizer.chat_template == TEMPLATE
    assert tokenizer.eos_token == "<|im_end|>"
    for text in [*TEXTS[:2], "a \n\n 7  8", "<|im_start|>x<|im_end|>"]:
        assert tokenizer.encode(text, add_special_tokens=False) == made[1].encode(text)
    (ready,) = [path for path in cache.iterdir() if path.is_dir()]
    assert (
        capfd.readouterr().err == f"converting {gguf_file.name}, once: later loads read {ready}\n"
    )  # no bar
    monkeypatch.setattr(models, "find_spec", lambda name: None)  # what was converted needs no gguf
    again, tokenizer = models.load_causal(str(gguf_file), dtype=torch.bfloat16)
    assert again.dtype == torch.bfloat16
    assert tokenizer.encode("\n\n7") == made[1].encode("\n\n7")
    assert capfd.readouterr().err == ""


def test_without_the_gguf_package_the_pip_line_is_told(tmp_path, monkeypatch):
    (tmp_path / "some.gguf").touch()
    monkeypatch.setattr(models, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"needs the gguf package: .*pip install .*\[llm\]"):
        models.load_causal(str(tmp_path / "some.gguf"))


def test_first_loads_at_the_same_time_convert_once(gguf_file, cache, monkeypatch):
    converted, mend = [], models._mend
    monkeypatch.setattr(models, "_mend", lambda *given: (converted.append(1), mend(*given)))
    barrier, loaded = threading.Barrier(3), []

    def load():
        barrier.wait()
        loaded.append(models._folder(str(gguf_file)))

    threads = [threading.Thread(target=load) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loaded) == 3
    assert len(set(loaded)) == len(converted) == 1


@pytest.mark.system
def test_a_conversion_that_was_cut_off_leaves_nothing_that_is_taken_for_a_model(
    made, gguf_file, cache, monkeypatch
):
    def cut(tokenizer, folder, **options):
        (folder / "half").touch()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(transformers.PreTrainedTokenizerBase, "save_pretrained", cut)
        with pytest.raises(KeyboardInterrupt):
            models.load_causal(str(gguf_file))
    assert left_in(cache) == []
    (ready,) = [path.with_suffix("") for path in cache.glob("*.lock")]
    stale = ready.with_name(f"{ready.name}.partial")
    stale.mkdir()  # as of a process that was killed
    (stale / "half").touch()
    assert same(models.load_causal(str(gguf_file))[0], made[0])
    assert not stale.exists()
    assert not (ready / "half").exists()


def test_a_folder_is_loaded_as_it_stands(made, tmp_path, cache, capfd):
    for each in made:
        each.save_pretrained(tmp_path / "folder")
    capfd.readouterr()
    model, _ = models.load_causal(str(tmp_path / "folder"))
    assert same(model, made[0])
    assert not cache.exists()
    assert capfd.readouterr().err == ""  # no bar


@pytest.fixture
def known(monkeypatch):
    model = KnownModel(
        "little", 7, 64, "MIT", "here", "little-model==1.0", "little_model/little.gguf", "0" * 64, 9
    )
    monkeypatch.setitem(models.KNOWN, "little", model)
    return model


def test_a_known_model_that_is_not_here_says_how_to_get_it(known):
    with pytest.raises(MissingExtra, match="not on this machine: gem-gym models --fetch little"):
        models.load_causal("little")


def test_a_known_model_is_read_from_the_cache(known, made, cache):
    (cache / "little_model").mkdir(parents=True)
    write_gguf(cache / known.file, *made)
    model, tokenizer = models.load_causal("little")
    assert same(model, made[0])
    agent = HuggingFaceAgent(model, ChatTemplateRenderer(tokenizer))
    assert agent.info.model == "little"  # and not where the cache is
    for name in ("little", model.config.name_or_path):  # the viewer finds its tokenizer by either
        assert vocabulary_of(RunInfo(model=name, vocabulary="0" * 16)).known


def test_a_file_that_is_no_model(tmp_path):
    pytest.importorskip("gguf")
    (tmp_path / "some.gguf").write_bytes(b"no model")
    with pytest.raises(BadArgument, match=r"model '.*some\.gguf' cannot be loaded on 'cpu'"):
        models.load_causal(str(tmp_path / "some.gguf"))


class Hostile:
    def __reduce__(self):
        return os.mkdir, ("ran",)


def replace_weights(folder, name, data):
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(data)


def change_config(folder, **values):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **values}))


def header(**tensors):
    text = json.dumps(tensors).encode()
    return len(text).to_bytes(8, "little") + text


DAMAGE = {
    "cut": lambda folder: os.truncate(folder / "model.safetensors", 9000),
    "empty": lambda folder: os.truncate(folder / "model.safetensors", 0),
    "a header of 2**60 bytes": lambda folder: replace_weights(
        folder, "model.safetensors", b"\0" * 7 + b"\x10{}"
    ),
    "a shape of 2**62": lambda folder: replace_weights(
        folder, "model.safetensors", header(w={"dtype": "F32", "shape": [1 << 62], "data_offsets": [0, 0]})
    ),
    "no weights": lambda folder: replace_weights(folder, "model.safetensors", header()),
    "a pickle": lambda folder: replace_weights(folder, "pytorch_model.bin", pickle.dumps(Hostile())),
    "text for a number": lambda folder: change_config(folder, hidden_size="32"),
    "no heads": lambda folder: change_config(folder, num_attention_heads=0),
    "a billion layers": lambda folder: change_config(folder, num_hidden_layers=10**9),
    "a config that is null": lambda folder: (folder / "config.json").write_text("null"),
    "a tokenizer that is null": lambda folder: (folder / "tokenizer.json").write_text("null"),
    "a list for the tokenizer": lambda folder: (folder / "tokenizer_config.json").write_text("[]"),
}


@pytest.mark.filterwarnings("ignore")  # what transformers says of such files
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_model_is_refused_in_a_sentence(made, tmp_path, monkeypatch, damage):
    monkeypatch.chdir(tmp_path)
    for each in made:
        each.save_pretrained(tmp_path / "model")
    DAMAGE[damage](tmp_path / "model")
    with pytest.raises(BadArgument, match=r"model 'model' cannot be loaded on 'cpu': .*\.$") as refused:
        models.load_causal("model")
    assert "\n" not in str(refused.value)
    assert "weights_only" not in str(refused.value)
    assert not (tmp_path / "ran").exists()


def test_no_such_model_and_no_such_device(made, tmp_path):
    with pytest.raises(BadArgument, match=r"model '.*nothing' cannot be loaded on 'cpu'"):
        models.load_causal(str(tmp_path / "nothing"))
    for each in made:
        each.save_pretrained(tmp_path)
    with pytest.raises(BadArgument, match="cannot be loaded on 'nowhere'"):
        models.load_causal(str(tmp_path), device="nowhere")


def test_the_faster_type_is_the_one_that_was_faster(monkeypatch, capsys):
    for bfloat16, chosen in ((0.5, torch.bfloat16), (0.95, torch.float32), (4.0, torch.float32)):
        monkeypatch.setattr(
            models, "matmul_seconds", lambda *shape, b=bfloat16: {"float32": 1.0, "bfloat16": b}
        )
        assert models.faster_dtype("cpu", 64, 128) is chosen
    monkeypatch.undo()
    assert models.faster_dtype("cpu", 64, 128) in (torch.float32, torch.bfloat16)
    assert cli.main(["models", "--device", "cpu"]) == 0
    assert {"float32", "bfloat16"} <= set(capsys.readouterr().out.split())
    with pytest.raises(BadArgument, match="'nowhere' cannot be used here"):
        models.faster_dtype("nowhere", 64, 128)


@pytest.mark.slow
def test_smollm2_talks_as_it_was_trained_to(monkeypatch):
    monkeypatch.delenv("GEM_CACHE")  # the user's: the first load takes long
    pytest.importorskip("gguf")
    if models.find("smollm2") is None:
        pytest.skip("smollm2 is not here: gem-gym models --fetch smollm2")
    model, tokenizer = models.load_causal("smollm2")
    assert sum(p.numel() for p in model.parameters()) == models.KNOWN["smollm2"].parameters
    assert model.config.max_position_embeddings == models.KNOWN["smollm2"].context
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids
    with torch.no_grad():
        answer = model.generate(ids, max_new_tokens=20, do_sample=False)[0, ids.shape[1] :]
    assert tokenizer.decode(answer) == "The capital of France is Paris.<|im_end|>"
    assert tokenizer.tokenize("is:\n\n12  34") == ["is", ":", "ĊĊ", "1", "2", "ĠĠ", "3", "4"]
