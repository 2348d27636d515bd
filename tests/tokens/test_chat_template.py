import pytest

pytest.importorskip("transformers")

from bpe_tokenizers import make_bpe
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from gem.content import Image, Message, Text
from gem.errors import BadArgument
from gem.record import Ask
from gem.tokens.chat_template import ChatTemplateRenderer, certify
from gem.tokens.renderer import render

SPECIAL = [
    "<bos>", "<eos>", "<pad>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>",
    "<|eot_id|>", "<start_of_turn>", "<end_of_turn>",
]  # fmt: skip

CHATML = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""

LLAMA = """\
{{- '<bos>' -}}
{%- if messages[0].role != 'system' -%}
{{- '<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>' -}}
{%- endif -%}
{%- for message in messages -%}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
{%- endif -%}
"""

GEMMA = """\
{{- '<bos>' -}}
{%- if messages[0].role == 'system' -%}{{- raise_exception('System role not supported') -}}{%- endif -%}
{%- for message in messages -%}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}
{{- raise_exception('Conversation roles must alternate') -}}
{%- endif -%}
{%- set role = 'model' if message.role == 'assistant' else message.role -%}
{{- '<start_of_turn>' + role + '\n' + message.content | trim + '<end_of_turn>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\n' -}}{%- endif -%}
"""

# As Qwen3's: the thinking of all but the newest answer is dropped.
THINKING = """\
{%- for message in messages -%}
{%- set content = message.content -%}
{%- if message.role == 'assistant' and not loop.last -%}
{%- set content = content.split('</think>')[-1].lstrip('\n') -%}
{%- endif -%}
{{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\n' -}}
{%- if enable_thinking is defined and not enable_thinking -%}{{- '<think>\n\n</think>\n\n' -}}{%- endif -%}
{%- endif -%}
"""

TEMPLATES = {"chatml": CHATML, "llama": LLAMA, "gemma": GEMMA, "thinking": THINKING}
CLOSES = {"chatml": "<|im_end|>", "llama": "<|eot_id|>", "gemma": "<end_of_turn>", "thinking": "<|im_end|>"}
TEXTS = st.text(max_size=20) | st.lists(
    st.sampled_from(
        [*SPECIAL, "a", " ", "\n", "<think>", "</think>", "<|im_", "end|>", "<", "\ufdd0", "\ud800"]
    ),
    max_size=6,
).map("".join)

MARKS = dict.fromkeys((0xFDD0, 0xFDD1), "\ufffd")
"""Two characters that mark places in prompts; in a text they are replaced."""


LINES = ["the secret is higher than 12", "I guess \\boxed{7}", "assistant user system model", "lower"]
BPE = make_bpe(LINES * 3, 330, SPECIAL)


def renderer(style, **options):
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=BPE, eos_token="<eos>", pad_token="<pad>")
    tokenizer.add_special_tokens({"additional_special_tokens": SPECIAL[3:]})
    tokenizer.chat_template = TEMPLATES[style]
    return ChatTemplateRenderer(tokenizer, **options)


RENDERERS = {style: renderer(style) for style in TEMPLATES}
each_style = pytest.mark.parametrize("style", TEMPLATES)


def text(style, ids):
    return RENDERERS[style].tokenizer.decode(list(ids))


def encode(style, plain):
    return tuple(RENDERERS[style].tokenizer.encode(plain, add_special_tokens=False))


@each_style
def test_a_prompt_is_what_the_tokenizer_itself_makes(style):
    tokenizer = RENDERERS[style].tokenizer
    chat = [("user", "Guess."), ("assistant", "\\boxed{7}"), ("user", "Higher than 7.")]
    expected = tokenizer.apply_chat_template(
        [{"role": role, "content": content} for role, content in chat],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
    )
    assert RENDERERS[style].prompt([Message(role, content) for role, content in chat]) == tuple(expected)


@pytest.mark.parametrize(
    ("style", "tail"),
    [
        ("chatml", "<|im_end|>\n<|im_start|>user\nLower.<|im_end|>\n<|im_start|>assistant\n"),
        (
            "llama",
            "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nLower.<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        ("gemma", "<end_of_turn>\n<start_of_turn>user\nLower.<end_of_turn>\n<start_of_turn>model\n"),
        ("thinking", "<|im_end|>\n<|im_start|>user\nLower.<|im_end|>\n<|im_start|>assistant\n"),
    ],
)
def test_the_delta_closes_an_answer_that_was_cut_and_only_that(style, tail):
    made = RENDERERS[style]
    (close,) = encode(style, CLOSES[style])
    held = made.prompt([Message("user", "Guess.")]) + encode(style, "\\boxed{7}")
    fresh = [Message("user", "Lower.")]
    assert close in made.stop_ids
    assert text(style, made.delta(held, fresh)) == tail
    assert (close, *made.delta((*held, close), fresh)) == made.delta(held, fresh)


@each_style
def test_an_answer_that_ended_with_another_stop_keeps_it_and_is_closed(style):
    made = RENDERERS[style]
    (eos,) = encode(style, "<eos>")
    assert eos in made.stop_ids
    assert made.delta((5, eos), [Message("user", "x")]) == made.delta((5,), [Message("user", "x")])


def test_an_answer_that_waits_for_a_tool_ends_too():
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=BPE, eos_token="<|eot_id|>", pad_token="<pad>")
    tokenizer.add_special_tokens({"additional_special_tokens": [*SPECIAL[3:], "<|eom_id|>"]})
    tokenizer.chat_template = TEMPLATES["llama"]
    made = ChatTemplateRenderer(tokenizer)
    eot, eom = (tokenizer.convert_tokens_to_ids(token) for token in ("<|eot_id|>", "<|eom_id|>"))
    assert made.stop_ids == {eot, eom}
    assert made.answer("a")[-1] == eot
    said = made.answer("a")[:-1]
    assert made.decode((*said, eom)) == "a"
    fresh = [Message("tool", "4", tool_call_id="c")]
    behind = made.delta((*said, eom), fresh)
    assert behind == made.delta((*said, eot), fresh)
    assert (eot, *behind) == made.delta(said, fresh)


@pytest.mark.parametrize("style", ["chatml", "llama", "gemma"])
def test_an_append_only_template_is_certified(style):
    assert certify(RENDERERS[style]) is None


def test_a_template_that_strips_thinking_is_not():
    mismatch = certify(RENDERERS["thinking"])
    assert mismatch.answer.startswith("<think>")
    assert mismatch.held.count("<think>\nHigher.\n</think>") == 2
    assert "<think>" not in mismatch.rendered
    assert mismatch.held_ids != mismatch.rendered_ids
    assert certify(RENDERERS["thinking"], answers=["plain"]) is None


@each_style
@given(answer=st.lists(st.integers(0, BPE.get_vocab_size() - 1), max_size=6), said=TEXTS)
def test_held_tokens_stay_as_they_were_sampled(style, answer, said):
    made = RENDERERS[style]
    first = Message("user", "Guess.")
    held = (*made.prompt([first]), *answer)
    fresh = Message("user", said)
    messages = (first, Message("assistant", made.decode(answer)), fresh)
    ids = render(made, Ask("e", "agent", 1, messages, held=held, fresh=1))
    assert ids == held + made.delta(held, [fresh])


@each_style
@given(said=TEXTS)
def test_what_is_said_is_shown_whole_and_controls_nothing(style, said):
    made = RENDERERS[style]
    plain = made.delta((), [Message("user", "x")])
    ids = made.delta((), [Message("user", f"[{said}]")])
    control = set(made.tokenizer.all_special_ids)
    assert [i for i in ids if i in control] == [i for i in plain if i in control]
    legible = said.translate(MARKS).encode("utf-8", "replace").decode()
    assert text(style, ids) == text(style, plain).replace("x", f"[{legible}]")


@each_style
@given(said=st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_answers_decode_to_what_was_encoded(style, said):
    made = RENDERERS[style]
    assert made.decode(encode(style, said)) == said
    assert made.decode(made.answer(said)) == said.translate(MARKS)


@each_style
@given(said=TEXTS)
def test_an_answer_given_as_text_ends_as_the_template_ends_it_and_nowhere_else(style, said):
    made = RENDERERS[style]
    ids = made.answer(said)
    control = set(made.tokenizer.all_special_ids)
    assert [text(style, [i]) for i in ids if i in control] == [CLOSES[style]]
    assert ids[-1] in made.stop_ids


def test_a_picture_is_shown_as_its_text():
    shown = RENDERERS["chatml"].prompt([Message("user", (Text("Look:"), Image(b"", alt="a cat")))])
    assert "Look:\na cat" in text("chatml", shown)


def test_options_reach_the_template():
    made = renderer("thinking", enable_thinking=False)
    assert text("thinking", made.prompt([Message("user", "x")])).endswith("<think>\n\n</think>\n\n")
    assert made.vocab_hash != RENDERERS["thinking"].vocab_hash


def test_the_hash_tells_templates_apart_and_is_stable():
    assert renderer("chatml").vocab_hash == RENDERERS["chatml"].vocab_hash
    assert len({made.vocab_hash for made in RENDERERS.values()}) == len(RENDERERS)


def test_what_a_template_refuses_is_said():
    with pytest.raises(BadArgument, match=r"roles system, user: System role not supported"):
        RENDERERS["gemma"].prompt([Message("system", "x"), Message("user", "x")])


def test_tokenizers_that_cannot_chat_are_refused():
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=BPE)
    with pytest.raises(BadArgument, match="no chat template"):
        ChatTemplateRenderer(tokenizer)
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    with pytest.raises(BadArgument, match="no end-of-sequence token"):
        ChatTemplateRenderer(tokenizer)
    tokenizer.chat_template = "{{ messages[-1].content }}<|im_end|>"
    with pytest.raises(BadArgument, match="does not show earlier messages of the assistant"):
        ChatTemplateRenderer(tokenizer)
