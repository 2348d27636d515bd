"""Tools through chat templates: offered, called, answered; what is held is never rendered again."""

import json

import pytest

pytest.importorskip("transformers")

from hypothesis import given, settings
from hypothesis import strategies as st
from tool_templates import SPECIAL, TEMPLATES, renderer

from gem.content import Message, ToolCall, ToolSpec
from gem.errors import BadArgument
from gem.record import SEAT, Ask, Episode, Turn
from gem.specs import TaskRef
from gem.tokens.chat_template import certify
from gem.tokens.demonstration import tokenise
from gem.tokens.renderer import render
from gem.tokens.tiny import TinyRenderer

BASH = ToolSpec(
    "bash",
    "Run a command.",
    {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)
RENDERERS = {style: renderer(style) for style in TEMPLATES}
PLAIN = renderer("plain")
each_style = pytest.mark.parametrize("style", TEMPLATES)
TEXTS = st.lists(
    st.sampled_from([*SPECIAL, "a", '"', "\n", "</tool_call>", "<think>", "é", "\ufdd0", "\ufdd1", "\ud800"]),
    max_size=6,
).map("".join)


def call(command="ls", place=0):
    return ToolCall(f"t0000n{place:03d}", "bash", json.dumps({"command": command}))


def told(text, place=0):
    return Message("tool", text, tool_call_id=f"t0000n{place:03d}", name="bash")


def text(made, ids):
    return made.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)


def begin(made, question="Go."):
    return [Message("user", question)], made.prompt([Message("user", question)], [BASH])


@each_style
def test_templates_that_know_tools_are_told_from_those_that_do_not(style):
    assert RENDERERS[style].knows_tools
    assert not PLAIN.knows_tools
    assert not TinyRenderer.knows_tools


@each_style
def test_a_prompt_is_what_the_tokenizer_itself_makes_of_tools_calls_and_results(style):
    made = RENDERERS[style]
    function = {"name": "bash", "arguments": {"command": "ls"}}
    if style == "strings":
        function["arguments"] = '{"command": "ls"}'
    chat = [
        {"role": "user", "content": "Go."},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": call().id, "type": "function", "function": function}],
        },
        {"role": "tool", "content": "x.txt", "tool_call_id": call().id, "name": "bash"},
    ]
    offered = {"name": "bash", "description": BASH.description, "parameters": BASH.schema}
    expected = made.tokenizer.apply_chat_template(
        chat, tools=[{"type": "function", "function": offered}], add_generation_prompt=True, tokenize=False
    )
    messages = [Message("user", "Go."), Message("assistant", "", tool_calls=(call(),)), told("x.txt")]
    assert text(made, made.prompt(messages, [BASH])) == expected
    assert "Run a command." in expected


@pytest.mark.parametrize(
    ("style", "tail"),
    [
        (
            "qwen",
            "<|im_end|>\n<|im_start|>user\n<tool_response>\na\n</tool_response>\n<tool_response>\nb\n"
            "</tool_response><|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "llama",
            "<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\na<|eot_id|>"
            "<|start_header_id|>ipython<|end_header_id|>\n\nb<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        (
            "hermes",
            "<|im_end|>\n<|im_start|>tool\n<tool_response>\na\n</tool_response>\n<tool_response>\nb\n"
            "</tool_response>\n<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "mistral",
            '<eos>[TOOL_RESULTS]{"content": "a", "call_id": "t0000n000"}[/TOOL_RESULTS]'
            '[TOOL_RESULTS]{"content": "b", "call_id": "t0000n001"}[/TOOL_RESULTS]',
        ),
        (
            "strings",
            "<|im_end|>\n<|im_start|>tool\na<|im_end|>\n<|im_start|>tool\nb<|im_end|>\n"
            "<|im_start|>assistant\n",
        ),
    ],
)
def test_the_delta_of_two_results_is_cut_out_of_the_template(style, tail):
    made = RENDERERS[style]
    fresh = [told("a"), told("b", 1)]
    if style == "llama":  # of the template's own two calls there cannot be any
        assert text(made, made.delta((), fresh, [BASH])) == tail
        return
    held = begin(made)[1] + made.answer("", (call(), call("x", 1)))
    assert text(made, held + made.delta(held, fresh, [BASH])) == text(made, held[:-1]) + tail


@each_style
def test_append_only_with_a_tool_turn_is_certified(style):
    mismatch = certify(RENDERERS[style], answers=["I guess 12."])
    if style == "mistral":  # shows the tools again before the latest message of the user
        assert "[AVAILABLE_TOOLS]" in mismatch.rendered
        assert mismatch.rendered.count("[AVAILABLE_TOOLS]") == 1
        assert mismatch.held.count("[AVAILABLE_TOOLS]") == 2
    else:
        assert mismatch is None
    assert certify(PLAIN) is None


def test_a_template_that_forgets_results_is_not_certified():
    made = renderer("qwen")
    made.tokenizer.chat_template = TEMPLATES["qwen"].replace(
        "+ message.content + '\n</tool_response>'",
        "+ (message.content if loop.last else 'gone') + '\n</tool_response>'",
    )
    mismatch = certify(made, answers=["I guess 12."])
    assert mismatch is not None
    assert "told_5f1d" in mismatch.held
    assert "told_5f1d" not in mismatch.rendered


@each_style
@settings(max_examples=40)
@given(said=TEXTS, answer=st.lists(st.integers(0, 300), max_size=6))
def test_results_of_any_kind_never_change_what_is_held_and_control_nothing(style, said, answer):
    made = RENDERERS[style]
    first, prompt = begin(made)
    held = (*prompt, *answer)
    messages = (*first, Message("assistant", "", tool_calls=(call(said),)), told(f"[{said}]"))
    ids = render(made, Ask("e", SEAT, 1, messages, held=held, fresh=1, tools=(BASH,)))
    assert ids[: len(held)] == held
    control = set(made.tokenizer.all_special_ids)
    plain = made.delta(held, [told("[x]")], [BASH])
    assert [i for i in ids[len(held) :] if i in control] == [i for i in plain if i in control]


@pytest.mark.system
@each_style
@settings(max_examples=15)
@given(said=TEXTS)
def test_hostile_names_descriptions_and_arguments_control_nothing(style, said):
    made = RENDERERS[style]

    def controls(tool, arguments):
        native = (ToolCall("t0000n000", tool.name, arguments),)
        chat = [Message("user", "x"), Message("assistant", "", tool_calls=native), told("y")]
        return [i for i in made.prompt(chat, [tool]) if i in set(made.tokenizer.all_special_ids)]

    hostile = ToolSpec(f"b{said}", f"d{said}", {"type": "object", "properties": {said: {"title": said}}})
    deep = '{"a": ' + "[" * 3000 + "]" * 3000 + "}"
    for arguments in (json.dumps({said: [said]}), said, "", "[1]", deep, '{"a": 1e999}'):
        assert controls(hostile, arguments) == controls(BASH, "{}"), arguments[:80]


@each_style
def test_an_answer_with_calls_is_written_as_the_template_writes_it(style):
    made = RENDERERS[style]
    ids = made.answer("", (call(),))
    assert ids[-1] in made.stop_ids
    written = made.decode(ids)
    assert {
        "qwen": '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>',
        "hermes": '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>',
        "llama": '{"name": "bash", "parameters": {"command": "ls"}}',
        "mistral": '[TOOL_CALLS][{"name": "bash", "arguments": {"command": "ls"}, "id": "t0000n000"}]',
        "strings": '<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>',
    }[style] == written
    assert PLAIN.decode(PLAIN.answer("So.", (call(),))) == (
        'So.\n<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>'
    )


def test_several_calls_that_a_template_refuses_are_shown_as_text():
    made = RENDERERS["llama"]
    chat = [
        Message("user", "x"),
        Message("assistant", "So.", tool_calls=(call("a"), call("b", 1))),
        told("1"),
        told("2", 1),
    ]
    shown = text(made, made.prompt(chat, [BASH]))
    assert shown.count("<tool_call>") == 2
    assert shown.count("ipython") == 2


def test_a_template_without_tools_shows_calls_as_text_and_results_as_the_users():
    chat = [
        Message("user", "x"),
        Message("assistant", "So.", tool_calls=(call(),)),
        told("1"),
        told("2", 1),
        Message("assistant", "y"),
    ]
    assert text(PLAIN, PLAIN.prompt(chat, [BASH])) == (
        "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\nSo.\n"
        '<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call><|im_end|>\n'
        "<|im_start|>user\n1\n2<|im_end|>\n<|im_start|>assistant\ny<|im_end|>\n<|im_start|>assistant\n"
    )
    held = PLAIN.prompt(chat[:1]) + PLAIN.answer("So.")
    delta = text(PLAIN, PLAIN.delta(held, chat[2:4], [BASH]))
    assert delta == "\n<|im_start|>user\n1\n2<|im_end|>\n<|im_start|>assistant\n"


def test_what_a_template_refuses_in_every_form_is_said():
    made = renderer("qwen")
    made.tokenizer.chat_template = (
        "{{- raise_exception('no ' + messages[-1].role) if messages | length > 2 -}}" + (TEMPLATES["qwen"])
    )
    with pytest.raises(BadArgument, match="roles user, assistant, user: no user"):
        made.prompt([Message("user", "x"), Message("assistant", "", tool_calls=(call(),)), told("1")], [BASH])


@pytest.mark.parametrize("style", ["qwen", "hermes", "strings", "plain"])
def test_a_demonstration_with_native_calls_gets_the_tokens_of_the_whole_conversation(style):
    made = RENDERERS.get(style, PLAIN)
    tools = [{"name": BASH.name, "description": BASH.description, "schema": BASH.schema}]
    episode = Episode(TaskRef("x", {}, (), 0), starts={SEAT: {"tools": tools}})
    calls = (call("a"), call("b", 1))
    action = "\n".join(
        f'<tool_call>{{"name": "bash", "arguments": {{"command": "{name}"}}}}</tool_call>' for name in "ab"
    )
    results = [{"shown": 1}, {"shown": 1}]
    episode.turns = [
        Turn(SEAT, "Go.", action, Message("assistant", "", tool_calls=calls), info={"tool_results": results}),
        Turn(SEAT, "1\n2", "Done."),
    ]
    _, last = tokenise(episode, made).turns
    chat = [Message("user", "Go."), Message("assistant", "", tool_calls=calls), told("1"), told("2", 1)]
    assert tuple(last.prompt_ids) == made.prompt(chat, [BASH])
