import io
from asyncio import CancelledError

import pytest

from gem.agents.human import HumanAgent
from gem.content import Image, Message, Text
from gem.record import Ask


def ask(*texts, turn=0, episode="e"):
    return Ask(episode, "agent", turn, tuple(Message("user", text) for text in texts))


def human(typed):
    shown = io.StringIO()
    return HumanAgent(io.StringIO(typed), shown), shown


def test_only_what_is_new_is_shown():
    agent, shown = human("left\nright\n")
    assert [reply.text for reply in agent([ask("rules", "board")])] == ["left"]
    assert [reply.text for reply in agent([ask("rules", "board", "left", "wall", turn=1)])] == ["right"]
    assert shown.getvalue() == "rules\nboard\n> wall\n> "


def test_answers_are_boxed_where_the_rules_ask_for_a_box_until_the_episode_is_forgotten():
    agent, _ = human("1\n2\n\\boxed{3}\n4\n5\n")
    asks = [ask("use \\boxed{}"), ask("more", turn=1), ask("more", turn=2), ask("other", episode="f")]
    assert [reply.text for reply in agent(asks)] == [r"\boxed{1}", r"\boxed{2}", r"\boxed{3}", "4"]
    agent.forget("e")
    assert agent([ask("more", turn=3)])[0].text == "5"


def test_what_is_shown_cannot_steer_the_terminal():
    agent, shown = human("x\n")
    agent([ask((Text("a\x1b[31m\tb\n\u202ec"), Image(b"", alt="[a\x07 cat]")))])
    assert shown.getvalue() == "a\\x1b[31m\tb\n\\u202ec\n[a\\x07 cat]\n> "


def test_an_answer_that_begins_with_a_fence_or_a_tag_goes_on_to_its_end():
    program = "```python\ndef f():\n\n    return 1\n```"
    query = "<sql>SELECT 1\n\nFROM t</sql>"
    agent, shown = human(f"{program}\n{query}\n<hang_up>\n```5```\n<sql>SELECT")
    rules = ask("Write <sql>...</sql>; <hang_up> ends it.")
    assert [agent([rules])[0].text for _ in range(4)] == [program, query, "<hang_up>", "```5```"]
    assert "> ... ... ... ... Write" in shown.getvalue()
    with pytest.raises(CancelledError):
        agent([rules])


def test_an_empty_line_is_no_answer():
    agent, shown = human("\n \n5\n")
    assert agent([ask("number?")])[0].text == "5"
    assert shown.getvalue() == "number?\n> > > "


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("<say>Hello</say> take 1 0 1", r"<say>Hello</say> \boxed{take 1 0 1}"),
        ("<say>Hello</say>", "<say>Hello</say>"),
        ("<submit/>", "<submit/>"),
        ("```python\n1\n```", "```python\n1\n```"),
        ("1 < 2", r"\boxed{1 < 2}"),
    ],
)
def test_what_is_in_tags_and_fences_stays_outside_of_the_box(typed, answer):
    agent, _ = human(f"{typed}\n")
    assert agent([ask(r"Give it in \boxed{}.")])[0].text == answer
