"""Environments for several agents over upstream's contract, at all its places."""

import importlib
import pickle

import pytest

import gem
from gem.envs.registration import ENV_REGISTRY
from gem.errors import EpisodeOver, ResetNeeded
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
        texts = [f"{m['from']}: {m['message']}" for m in self.shared_memory if m["to"] == agent]
        return f"{agent} reads: {', '.join(texts)}"

    def _process_actions(self, actions):
        self.turn += 1
        for speaker, text in actions.items():
            self.broadcast_message(speaker, text)
            self.terminations[speaker] = text == "bye"
            self.rewards[speaker] = float(len(text))
        for agent in self.agents:
            self.truncations[agent] = self.turn >= self.max_turns
        obs = {agent: self.observe(agent) for agent in self.agents}
        return obs, self.rewards, self.terminations, self.truncations, self.infos


class Count(MultiAgentEnv):
    """All act at once; whoever sends nothing ends."""

    def __init__(self):
        super().__init__()
        self.possible_agents = ["a", "b"]

    def observe(self, agent):
        return f"{agent} counts"

    def _process_actions(self, actions):
        self.terminations.update({agent: not text for agent, text in actions.items()})
        rewards = {agent: float(len(text)) for agent, text in actions.items()}
        return dict.fromkeys(self.agents, "on"), rewards, dict(self.terminations), dict(self.truncations), {}


@pytest.fixture
def talk():
    env = Talk()
    env.reset(seed=1)
    return env


@pytest.fixture
def count():
    env = Count()
    env.reset(seed=0)
    return env


@pytest.mark.parametrize(
    "place", ["gem.multiagent", "gem.envs.multiagent", "gem.envs.multiagent.multi_agent_env"]
)
def test_both_names_are_at_every_place_and_are_not_ours(place):
    module = importlib.import_module(place)
    assert (module.MultiAgentEnv, module.AgentSelector) == (MultiAgentEnv, AgentSelector)
    assert not issubclass(MultiAgentEnv, SeatedEnv)


# -- who is next


def test_agents_take_turns():
    turns = AgentSelector(["a", "b", "c"])
    seen = [(turns.selected, turns.is_first(), turns.is_last())]
    seen += [(turns.next(), turns.is_first(), turns.is_last()) for _ in range(3)]
    assert seen == [("a", True, False), ("b", False, False), ("c", False, True), ("a", True, False)]
    assert (turns.mode, turns._agents, turns._current_idx) == ("sequential", ["a", "b", "c"], 0)
    assert turns.get_active_agents() == ["a"]
    assert len(turns) == 3


def test_agents_act_at_once_and_the_selection_stays():
    turns = AgentSelector(["a", "b"], mode="parallel")
    assert turns.get_active_agents() == ["a", "b"]
    turns.next()
    assert (turns.get_active_agents(), turns.selected) == (["a", "b"], "a")
    assert (turns.is_first(), turns.is_last()) == (True, False)


def test_an_unknown_mode_is_refused_when_somebody_is_to_act():
    turns = AgentSelector(["a"], mode="sideways")
    with pytest.raises(ValueError, match="sideways"):
        turns.get_active_agents()


@pytest.mark.parametrize(
    ("steps", "gone", "selected", "following"),
    [
        (0, "a", "b", "c"),  # the first place is the least: the next one is passed over, as upstream does
        (1, "a", "b", "c"),
        (1, "b", "a", "c"),
        (2, "c", "b", "a"),
        (1, "c", "b", "a"),
        (0, "x", "a", "b"),
    ],
)
def test_an_agent_that_is_removed_steps_the_selection_back(steps, gone, selected, following):
    turns = AgentSelector(["a", "b", "c"])
    for _ in range(steps):
        turns.next()
    turns.remove_agent(gone)
    assert (turns.selected, turns.next()) == (selected, following)


def test_the_last_agent_leaves_nobody():
    turns = AgentSelector(["a"])
    turns.remove_agent("a")
    assert (turns.selected, turns._current_idx, turns.next(), turns.get_active_agents()) == (
        None,
        0,
        None,
        [],
    )
    turns.reinit(["x", "y"])
    assert turns.get_active_agents() == ["x"]
    turns.add_agent("z")
    turns.add_agent("z")
    assert turns._agents == ["x", "y", "z"]


# -- an episode


def test_a_new_environment_has_nothing():
    env = MultiAgentEnv()
    lists = (env.possible_agents, env.agents, env.shared_memory)
    dicts = (env.terminations, env.truncations, env.rewards, env.infos, env._cumulative_rewards)
    assert lists == ([], [], [])
    assert dicts == ({}, {}, {}, {}, {})
    assert (env.agent_selector, env.global_context) == (None, "")
    with pytest.raises(NotImplementedError):
        env.observe("a")


def test_a_conversation_goes_around():
    env = Talk()
    obs, infos = env.reset(seed=1)
    assert (set(obs), obs["user"], infos) == (set(infos), "begin", {"user": {}, "assistant": {}, "tool": {}})
    assert env.get_active_agents() == ["user"]
    obs, rewards, terminations, _, _ = env.step({"user": "hello"})
    assert obs["assistant"] == "assistant reads: user: hello"
    assert rewards == {"user": 5.0, "assistant": 0.0, "tool": 0.0}
    assert not any(terminations.values())
    assert env.get_active_agents() == ["assistant"]
    env.step({"assistant": "hi"})
    assert env.get_active_agents() == ["tool"]


def test_rewards_add_up_and_a_reset_makes_everything_anew(count):
    for _ in range(2):
        count.step({"a": "xx", "b": "y"})
    count.send_message("a", "b", "hello")
    assert count._cumulative_rewards == {"a": 4.0, "b": 2.0}
    count.reset(seed=1)
    assert count._cumulative_rewards == {"a": 0.0, "b": 0.0}
    assert (count.terminations, count.infos, count.shared_memory) == (
        {"a": False, "b": False},
        {"a": {}, "b": {}},
        [],
    )


def test_the_dicts_of_the_hook_are_returned_as_they_are(talk):
    assert talk.step({"user": "x"})[2] is talk.terminations


def test_who_ends_by_its_own_entry_leaves_with_all_its_entries(count):
    count.step({"a": "xx", "b": ""})
    assert count.agents == ["a"]
    tables = (count.terminations, count.truncations, count.rewards, count.infos, count._cumulative_rewards)
    assert all(set(table) == {"a"} for table in tables)
    count.step({"a": ""})
    with pytest.raises(EpisodeOver):
        count.step({})
    count.reset(seed=2)
    assert count.agents == ["a", "b"]


def test_what_the_hook_returns_alone_ends_nobody():
    class Says(Count):
        def _process_actions(self, actions):
            return {}, {}, {"a": True, "b": True}, {}, {}

    env = Says()
    env.reset(seed=0)
    assert env.step({"a": "x", "b": "y"})[2] == {"a": True, "b": True}
    assert env.agents == ["a", "b"]


def test_a_limit_truncates_all():
    env = Talk(max_turns=1)
    env.reset(seed=0)
    env.step({"user": "x"})
    assert env.agents == []


@pytest.mark.parametrize("actions", [{}, {"assistant": "x"}, {"user": "x", "tool": "y"}, "x", None, ["x"]])
def test_actions_come_from_whose_turn_it_is(talk, actions):
    with pytest.raises(ValueError, match=r"accepted|missing|turn of"):
        talk.step(actions)
    assert talk.get_active_agents() == ["user"]
    assert talk.step({"user": "still here"})


def test_an_agent_that_ended_need_not_act(count):
    count.terminations["b"] = True
    assert count.step({"a": "x"})[1] == {"a": 1.0}
    assert count.agents == ["a"]


def test_a_step_before_reset_is_refused():
    with pytest.raises(ResetNeeded):
        Talk().step({"user": "x"})


def test_the_state_of_an_agent_is_five_values(count):
    count.step({"a": "xx", "b": "y"})
    assert count.get_state("a") == ("a counts", 2.0, False, False, {})
    assert count.get_active_states() == {"a": count.get_state("a"), "b": count.get_state("b")}
    with pytest.raises(ValueError, match="'nobody'"):
        count.get_state("nobody")


def test_active_states_are_of_those_whose_turn_it_is(talk):
    assert set(talk.get_active_states()) == {"user"}


def test_agents_are_added_and_removed_while_a_game_runs(talk):
    talk.add_agent("judge")
    talk.add_agent("judge")
    assert talk.possible_agents[-1] == talk.agents[-1] == "judge"
    assert talk.get_state("judge")[1:] == (0.0, False, False, {})
    for speaker in ("user", "assistant", "tool"):
        talk.step({speaker: "x"})
    assert talk.get_active_agents() == ["judge"]
    talk.remove_agent("judge")
    talk.remove_agent("judge")
    talk.remove_agent("nobody")
    assert talk.agents == ["user", "assistant", "tool"]
    assert "judge" not in talk.rewards


def test_messages_stand_in_the_shared_memory(talk):
    talk.send_message("tool", "user", "one")
    talk.broadcast_message("user", "two")
    assert talk.shared_memory == [
        {"from": "tool", "to": "user", "message": "one"},
        {"from": "user", "to": "assistant", "message": "two"},
        {"from": "user", "to": "tool", "message": "two"},
    ]
    for sender, receiver in (("user", "nobody"), ("nobody", "user")):
        with pytest.raises(ValueError, match="'nobody'"):
            talk.send_message(sender, receiver, "x")
    with pytest.raises(ValueError, match="'nobody'"):
        talk.broadcast_message("nobody", "x")


# -- as an environment of gem


def test_it_is_registered_made_copied_and_restored():
    gem.register("upstream:Talk", Talk, max_turns=5)
    try:
        env = gem.make("upstream:Talk", max_turns=3)
        env.reset(seed=3)
        env.step({"user": "x"})
        twin, other, again = env.fork(), pickle.loads(pickle.dumps(env)), gem.make("upstream:Talk")
        again.reset(seed=9)
        again.set_state(env.get_state())
        for copy in (twin, other, again):
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
