"""Environments for several agents over upstream's contract, at all its places."""

import importlib
import pickle

import pytest

import gem
from gem.envs.registration import ENV_REGISTRY
from gem.errors import BadAction, BadArgument, EpisodeOver, ResetNeeded
from gem.multiagent import AgentSelector, MultiAgentEnv
from gem.seats import SeatedEnv


class Talk(MultiAgentEnv):
    """Agents speak in turn; who says bye leaves."""

    def __init__(self, max_turns=8):
        super().__init__()
        self.possible_agents = ["user", "assistant", "tool"]
        self.agent_selector = AgentSelector(self.possible_agents, mode="sequential")
        self.max_turns = max_turns

    def reset(self, seed=None):
        obs, infos = super().reset(seed)
        self.turn = 0
        return {**obs, "user": "begin"}, infos

    def observe(self, agent):
        return f"{agent} reads: {super().observe(agent)}"

    def process_actions(self, actions):
        self.turn += 1
        ((speaker, text),) = actions.items()
        for other in self.agents:
            if other != speaker:
                self.send_message(speaker, other, text)
        over = self.turn >= self.max_turns
        agents = list(self.agents)
        return (
            {agent: self.observe(agent) for agent in agents},
            {agent: float(agent == speaker) for agent in agents},
            {agent: agent == speaker and text == "bye" for agent in agents},
            dict.fromkeys(agents, over),
            {agent: {} for agent in agents},
        )


class Count(MultiAgentEnv):
    """All act at once, by a hook with an underscore, after which everything ends."""

    def __init__(self):
        super().__init__()
        self.possible_agents = ["a", "b"]

    def _process_actions(self, actions):
        ends = dict.fromkeys(self.agents, True)
        rewards = {agent: float(len(text)) for agent, text in actions.items()}
        return dict.fromkeys(self.agents, "end"), rewards, ends, dict.fromkeys(self.agents, False), {}


@pytest.mark.parametrize(
    "place", ["gem.multiagent", "gem.envs.multiagent", "gem.envs.multiagent.multi_agent_env"]
)
def test_both_names_are_at_every_place_and_are_not_ours(place):
    module = importlib.import_module(place)
    assert (module.MultiAgentEnv, module.AgentSelector) == (MultiAgentEnv, AgentSelector)
    assert not issubclass(MultiAgentEnv, SeatedEnv)


def test_agents_take_turns():
    turns = AgentSelector(["a", "b", "c"])
    seen = [(turns.selected, turns.is_first(), turns.is_last())]
    seen += [(turns.next(), turns.is_first(), turns.is_last()) for _ in range(3)]
    assert seen == [("a", True, False), ("b", False, False), ("c", False, True), ("a", True, False)]
    assert turns.get_active_agents() == ["a"]
    assert len(turns) == 3


def test_agents_act_at_once():
    turns = AgentSelector(["a", "b"], mode="parallel")
    assert turns.get_active_agents() == ["a", "b"]
    turns.next()
    assert turns.get_active_agents() == ["a", "b"]
    assert turns.is_first()
    assert turns.is_last()


@pytest.mark.parametrize(
    ("steps", "gone", "selected", "left"),
    [
        (0, "a", "b", ["b", "c"]),
        (1, "a", "b", ["b", "c"]),
        (1, "b", "c", ["a", "c"]),
        (2, "c", "a", ["a", "b"]),
        (0, "x", "a", ["a", "b", "c"]),
    ],
)
def test_an_agent_that_is_removed_hands_its_turn_on(steps, gone, selected, left):
    turns = AgentSelector(["a", "b", "c"])
    for _ in range(steps):
        turns.next()
    turns.remove_agent(gone)
    assert (turns.selected, turns.agents) == (selected, left)


def test_agents_are_added_and_taken_back_by_reset_and_reinit():
    turns = AgentSelector(["a"])
    turns.add_agent("b")
    turns.add_agent("b")
    assert turns.agents == ["a", "b"]
    assert turns.reset() == "a"
    assert turns.agents == ["a"]
    turns.reinit(["x", "y"])
    assert turns.get_active_agents() == ["x"]


def test_a_selector_without_agents_selects_nobody():
    turns = AgentSelector([])
    assert (turns.selected, turns.next(), turns.get_active_agents(), len(turns)) == (None, None, [], 0)


@pytest.mark.parametrize(("agents", "mode"), [(["a", "a"], "sequential"), (["a"], "sideways")])
def test_a_selector_that_cannot_be_is_refused(agents, mode):
    with pytest.raises(BadArgument):
        AgentSelector(agents, mode)


def test_a_conversation_goes_around():
    env = Talk()
    obs, infos = env.reset(seed=1)
    assert (set(obs), obs["user"], set(infos)) == ({"user", "assistant", "tool"}, "begin", set(obs))
    assert env.get_active_agents() == ["user"]
    obs, rewards, terminations, _, _ = env.step({"user": "hello"})
    assert obs["assistant"] == "assistant reads: user: hello"
    assert rewards == {"user": 1.0, "assistant": 0.0, "tool": 0.0}
    assert not any(terminations.values())
    assert env.get_active_agents() == ["assistant"]
    env.step({"assistant": "hi"})
    assert env.get_active_agents() == ["tool"]


def test_lists_are_lists():
    env = Talk()
    env.reset(seed=1)
    assert isinstance(env.possible_agents, list)
    assert isinstance(env.agents, list)
    assert isinstance(env.get_active_agents(), list)


def test_who_ends_leaves_and_the_next_one_acts():
    env = Talk()
    env.reset(seed=1)
    assert env.step({"user": "bye"})[2] == {"user": True, "assistant": False, "tool": False}
    assert (env.agents, env.get_active_agents()) == (["assistant", "tool"], ["assistant"])
    env.step({"assistant": "bye"})
    env.step({"tool": "bye"})
    assert env.agents == []
    with pytest.raises(EpisodeOver):
        env.step({})
    env.reset(seed=2)
    assert (env.agents, env.get_active_agents()) == (["user", "assistant", "tool"], ["user"])


def test_a_limit_truncates_all():
    env = Talk(max_turns=1)
    env.reset(seed=0)
    truncations = env.step({"user": "x"})[3]
    assert truncations == {"user": True, "assistant": True, "tool": True}
    assert env.agents == []


@pytest.mark.parametrize(
    "actions", [{}, {"assistant": "x"}, {"user": "x", "tool": "y"}, "x", None, {"user": 3}]
)
def test_actions_come_from_whose_turn_it_is_and_are_text(actions):
    env = Talk()
    env.reset(seed=1)
    with pytest.raises(BadAction):
        env.step(actions)
    assert env.get_active_agents() == ["user"]
    assert env.step({"user": "still here"})


def test_a_step_before_reset_is_refused():
    with pytest.raises(ResetNeeded):
        Talk().step({"user": "x"})


def test_the_hook_with_an_underscore_works_too_and_all_act_at_once():
    env = Count()
    env.reset(seed=0)
    assert env.get_active_agents() == ["a", "b"]
    obs, rewards, *_ = env.step({"b": "yy", "a": "x"})
    assert (obs, rewards, env.agents) == ({"a": "end", "b": "end"}, {"a": 1.0, "b": 2.0}, [])


def test_agents_are_added_and_removed_while_a_game_runs():
    env = Talk()
    env.reset(seed=0)
    env.add_agent("judge")
    assert env.possible_agents[-1] == env.agents[-1] == "judge"
    for speaker in ("user", "assistant", "tool"):
        env.step({speaker: "x"})
    assert env.get_active_agents() == ["judge"]
    env.remove_agent("judge")
    env.remove_agent("nobody")
    assert env.get_active_agents() == ["user"]


def test_messages_wait_for_their_receiver_and_are_read_once():
    env = Talk()
    env.reset(seed=0)
    env.send_message("tool", "user", "one")
    env.send_message("assistant", "user", "two")
    assert env.get_messages("user") == [
        {"sender": "tool", "message": "one"},
        {"sender": "assistant", "message": "two"},
    ]
    assert env.get_messages("user") == []
    with pytest.raises(BadArgument, match="receiver is 'nobody'"):
        env.send_message("user", "nobody", "x")


def test_it_is_registered_made_copied_and_restored():
    gem.register("upstream:Talk", Talk, max_turns=5)
    try:
        env = gem.make("upstream:Talk", max_turns=3)
        env.reset(seed=3)
        env.step({"user": "x"})
        twin, other = env.fork(), pickle.loads(pickle.dumps(env))
        for copy in (twin, other):
            assert copy.get_active_agents() == ["assistant"]
            assert copy.step({"assistant": "y"})[1]["assistant"] == 1.0
        assert env.get_active_agents() == ["assistant"]
    finally:
        del ENV_REGISTRY["upstream:Talk"]


def test_a_subclass_may_write_reset_and_step_itself():
    class Own(MultiAgentEnv):
        possible_agents = ("only",)

        def __init__(self):
            pass

        def reset(self, seed=None):
            gem.Env.reset(self, seed)
            return {"only": "go"}, {"only": {}}

        def step(self, actions):
            return {"only": "done"}, {"only": 1.0}, {"only": True}, {"only": False}, {"only": {}}

    env = Own()
    assert env.reset(seed=1)[0] == {"only": "go"}
    assert env.step({"only": "x"})[1] == {"only": 1.0}
