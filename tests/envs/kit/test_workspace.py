"""An environment of tools and a final state, judged once."""

import pytest

import gem
from gem.envs.kit.workspace import WorkspaceEnv, submit_spec


class Judged(WorkspaceEnv):
    """Judges as it is told."""

    max_turns = 2
    form = "Write <submit/>."
    tool_specs = (submit_spec("End the task."),)

    def __init__(self, wrong):
        super().__init__()
        self.wrong = wrong

    def reset(self, seed=None):
        super().reset(seed)
        self.turn = 0
        return gem.Start("Submit.", {})

    def tools(self):
        return []

    def judge(self):
        return self.wrong


@pytest.mark.parametrize(("wrong", "reward"), [("", 1.0), ("Nobody is paid.", 0.0)])
def test_the_judge_says_what_is_wrong(wrong, reward):
    env = Judged(wrong)
    env.reset(seed=1)
    assert env.step("<submit/>").reward == reward


def test_a_task_without_max_turns_is_told_so():
    class Endless(Judged):
        @property
        def max_turns(self):
            raise AttributeError

    env = Endless("")
    env.reset(seed=1)
    with pytest.raises(NotImplementedError, match="Endless must set max_turns"):
        env.step("go")


@pytest.mark.parametrize("draft", ["<thinking>Then <submit/></thinking>", "<submit/></think>"])
def test_a_submission_in_thinking_is_none(draft):
    env = Judged("")
    env.reset(seed=1)
    assert not env.step(draft).done
    assert env.step(f"{draft} <submit/>").reward == 1.0


@pytest.mark.parametrize("wrong", [True, False, None])
def test_a_judge_that_does_not_return_text_gives_no_outcome(wrong):
    env = Judged(wrong)
    env.reset(seed=1)
    with pytest.raises(TypeError, match=r"Judged\.judge\(\) returned .*what is wrong, '' if nothing"):
        env.step("<submit/>")
