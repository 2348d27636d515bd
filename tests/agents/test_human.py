import io

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
