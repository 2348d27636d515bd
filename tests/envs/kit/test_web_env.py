"""What an agent writes and reads of a page; without a browser."""

import sys
from itertools import chain
from types import ModuleType

import pytest

from gem.envs.bridges.miniwob_experts import EXPERTS, Reading
from gem.envs.bridges.specs import MINIWOB_FEW, MINIWOB_NAMES, MINIWOB_RELOADED, MINIWOB_SOLVED
from gem.envs.kit.browser import check_browser
from gem.envs.kit.web_env import ACTIONS, MAX_NODES, View, describe_nodes, read_actions, write_action
from gem.envs.kit.workspace import write_call
from gem.errors import MissingExtra


def calls(text):
    """Return the calls that a text asks for, each with what is wrong."""
    return [(call.name, dict(call.arguments), call.wrong) for call in read_actions(text).calls]


def test_a_chromium_that_is_none_is_refused_by_its_name(monkeypatch, tmp_path):
    for module in ("playwright", "playwright.async_api"):
        monkeypatch.setitem(sys.modules, module, ModuleType(module))
    monkeypatch.setenv("CHROMIUM", str(tmp_path / "chromium"))
    with pytest.raises(MissingExtra, match=r"the variable CHROMIUM is '.*/chromium', where no program is"):
        check_browser("a page")
    monkeypatch.setenv("CHROMIUM", sys.executable)
    check_browser("a page")
    monkeypatch.delenv("CHROMIUM")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtra, match="there is none on PATH"):
        check_browser("a page")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("click(3)", [("click", {"ref": 3})]),
        (" - `click( 3 , 10,5 );`", [("click", {"ref": 3, "x": 10, "y": 5})]),
        ('I fill it.\nfill(3, "a \\"b\\" \\\\ c")', [("fill", {"ref": 3, "text": 'a "b" \\ c'})]),
        ("press('Enter') press(\"a\")", [("press", {"key": "Enter"}), ("press", {"key": "a"})]),
        ("<think>click(1)\n</think>\nclick(2)", [("click", {"ref": 2})]),
        ("<thinking>\nclick(1)\n</thinking>\nclick(2)", [("click", {"ref": 2})]),
        ("<think>I could write <tool_call> here.</think>\nclick(2)", [("click", {"ref": 2})]),
        (f"<think>{write_call('click', {'ref': 1})}</think>\nclick(2)", [("click", {"ref": 2})]),
        (r"The answer: \boxed{drag(1, 2)}", [("drag", {"ref": 1, "to": 2})]),
        (write_call("scroll", {"ref": 1, "pixels": -40}), [("scroll", {"ref": 1, "pixels": -40})]),
        ("```\nselect(2, 'It\\'s')\n```", [("select", {"ref": 2, "text": "It's"})]),
    ],
)  # fmt: skip
def test_actions_are_read_from_lines_boxes_and_native_calls(text, wanted):
    assert calls(text) == [(name, arguments, "") for name, arguments in wanted]


@pytest.mark.parametrize(
    "text", ["", "I could click(3) or not", "alert(1)", "click(3", "click(3.5)", "click(ref)", "3"]
)
def test_other_words_are_no_action(text):
    assert calls(text) == []


@pytest.mark.parametrize(
    "text", ["click()", 'click("3")', "fill(3, 4)", "fill(3)", 'press("a", 1)', "drag(1, 2, 3, 4, 5)"]
)
def test_wrong_arguments_are_named(text):
    ((name, _, wrong),) = calls(text)
    assert wrong.startswith(f"{name}: ")


def test_what_is_written_is_read_again():
    for text in ("plain", 'a "quoted" \\ text', "two\nlines\tand a tab", "it's; click(1)", "</think>", ""):
        if text == "</think>":
            continue  # a text of thinking ends there
        assert calls(write_action("fill", 7, text)) == [("fill", {"ref": 7, "text": text}, "")]


@pytest.mark.parametrize(
    "piece", ['click("', "click('", "click(1,", 'fill(1, "\\', "(", 'click("a" ', "click(1 ", "<tool_call>"]
)
def test_hostile_texts_are_read_in_linear_time(piece):
    assert not [call for call in read_actions(piece * 20_000).calls if not call.wrong]


def test_every_action_is_offered_natively_with_its_arguments():
    assert [action.name for action in ACTIONS] == ["click", "fill", "select", "press", "drag", "scroll"]
    for action in ACTIONS:
        assert set(action.arguments["required"]) <= set(action.arguments["properties"])


NODES = [
    {"depth": 0, "ref": 1, "tag": "label"},
    {"depth": 1, "ref": 2, "tag": "input", "type": "checkbox", "id": "ch0", "checked": False},
    {"depth": 1, "text": "Mail me"},
    {"depth": 0, "ref": 3, "tag": "input", "type": "text", "value": 'a "b"\nc', "focused": True},
    {"depth": 0, "ref": 4, "tag": "select", "options": ["One", "Two"], "chosen": ["Two"]},
    {"depth": 0, "ref": 5, "tag": "span", "classes": "star big", "colour": "#ff0000", "box": [1, 2, 3, 4]},
    {"depth": 0, "ref": 6, "tag": "button", "type": "text", "text": "Send", "disabled": True},
    {"depth": 0, "ref": 7, "tag": "div", "scroll": [0, 80]},
]


def test_a_page_is_told_line_by_line():
    assert describe_nodes(NODES).splitlines() == [
        "[1] label",
        "  [2] input checkbox #ch0 not checked",
        '  "Mail me"',
        '[3] input value="a "b"\\nc" focused',
        '[4] select chosen "Two" of "One", "Two"',
        "[5] span .star.big #ff0000 at 1,2 size 3x4",
        '[6] button "Send" disabled',
        "[7] div scrolled 0 of 80",
    ]
    assert describe_nodes([]) == "(nothing)"
    many = describe_nodes(
        [{"depth": 0, "ref": 1, "tag": "p", "text": "x" * 5000}] * (MAX_NODES + 3)
    ).splitlines()
    assert len(many) == MAX_NODES + 1
    assert many[-1] == "... and 3 more nodes."
    assert max(map(len, many)) < 1100


def test_an_expert_reads_the_text_beside_a_box_as_that_of_its_label():
    reading = Reading(View("Select it.", NODES))
    assert reading.one("Mail me", tag="label")["ref"] == 1
    assert reading.after(reading.one(tag="label"), tag="input")["ref"] == 2
    with pytest.raises(LookupError, match="no node 'Nobody'"):
        reading.one("Nobody")


def test_the_names_of_pages_are_known_without_the_package():
    assert tuple(EXPERTS) == MINIWOB_SOLVED
    assert len(EXPERTS) >= 40
    assert {*chain(MINIWOB_FEW, MINIWOB_RELOADED, MINIWOB_SOLVED)} <= {*MINIWOB_NAMES}
