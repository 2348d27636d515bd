"""What the policies of an audit say."""

import pytest

from gem.core import Start, Step
from gem.testing.doubles import EchoEnv
from gem.testing.policies import Deals, Moment, policies


@pytest.fixture
def played():
    """The policies over EchoEnv: seeds 0 to 7 are played, 8 to 19 give constants."""
    env = EchoEnv()
    return env, policies(Deals(env, range(20)), range(8), range(8, 20))


def said(player, env, seed, turn=0, earned=0.0, last=""):
    obs = env.reset(seed=seed).obs
    return player(Moment(env, obs, turn, earned, last))


def test_everything_is_said_in_an_order_of_each_episodes_own(played):
    env, found = played
    for player in found["answer-everything"]:
        one, again, other = (said(player, env, seed) for seed in (1, 1, 2))
        assert one == again
        assert one != other
    lines = [said(found["answer-everything"][0], env, seed).splitlines() for seed in (1, 2)]
    assert sorted(lines[0]) == sorted(lines[1])


def test_constants_stay_the_same_and_echoes_do_not(played):
    env, found = played
    for name, distinct in (("constant", 1), ("empty", 1), ("echo", 6)):
        for player in found[name]:
            assert len({said(player, env, seed) for seed in range(6)}) == distinct


def test_what_paid_is_repeated(played):
    env, found = played
    (player,) = found["repeat-what-paid"]
    assert said(player, env, 1, 1, 0.5, "that") == "that"
    assert said(player, env, 1, 1, 0.0, "that") != "that"


def test_copiers_give_back_pieces_of_what_they_are_shown():
    class Asks(EchoEnv):
        def solve(self):
            return r"\boxed{x}"

        def reset(self, seed=None):
            super().reset(seed)
            return Start('Work out (9 + 64) * 2 = ?\n(A) 73\nB. "one hundred"', {})

    env = Asks()
    players = policies(Deals(env, range(4), forkable=False), range(2), range(2, 4))["copier"]
    replies = {said(player, env, 1) for player in players}
    assert replies >= {
        r"\boxed{(9 + 64) * 2}",
        r"\boxed{9}",
        r"\boxed{73}",
        r"\boxed{A}",
        r"\boxed{B}",
        r"\boxed{one hundred}",
        r"\boxed{Work out (9 + 64) * 2 = ?}",
    }


def test_a_copier_answers_in_the_form_of_the_expert(played):
    env, found = played
    assert {said(player, env, 1) for player in found["copier"]} >= {env.solve()}


class Quiz(EchoEnv):
    """Answers the first action with text that holds the answer to the second."""

    def reset(self, seed=None):
        super().reset(seed)
        self.acted = False
        return Start("Look it up, then say it as <answer>...</answer>.", {})

    def step(self, action):
        if not self.acted:
            self.acted = True
            return Step("The tool printed:\n42", 0.0, False, False, {})
        return Step("", float(action == "<answer>42</answer>"), True, False, {})

    def sample_random_action(self):
        return "<call>look</call>"

    def solve(self):
        return "<answer>42</answer>" if self.acted else "<call>look</call>"


def test_later_copiers_act_first_and_then_copy_what_they_were_shown():
    env = Quiz()
    found = policies(Deals(env, range(4), forkable=False), range(2), range(2, 4), turns=2)
    replies = set()
    for player in found["copier-later"]:
        obs = env.reset(seed=1).obs
        first = player(Moment(env, obs, 0, 0.0, ""))
        replies.add(player(Moment(env, env.step(first).obs, 1, 0.0, first)))
    assert "<answer>42</answer>" in replies  # the tool's output, in the form of an answer
    assert "<answer>look</answer>" in replies  # the own call before


def test_after_a_copy_the_end_is_said_where_there_is_one():
    class Submits(Quiz):
        def solve(self):
            return "<submit/>" if self.acted else "<call>look</call>"

    env = Submits()
    found = policies(Deals(env, range(4), forkable=False), range(2), range(2, 4), turns=3)
    for player in found["copier"]:
        obs = env.reset(seed=1).obs
        said_first = player(Moment(env, obs, 0, 0.0, ""))
        assert said_first != "<submit/>" == player(Moment(env, "", 1, 0.0, said_first))


def test_in_a_single_turn_nothing_later_is_copied(played):
    env, _ = played
    assert "copier-later" not in policies(Deals(env, range(20)), range(8), range(8, 20), turns=1)
