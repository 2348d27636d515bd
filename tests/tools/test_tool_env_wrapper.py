import functools
import pickle
import threading

import pytest

import gem
from gem.agents.scripted import ScriptedAgent
from gem.agents.solver import SolverAgent
from gem.content import Image, ToolCall
from gem.core import Env, Start, Step
from gem.envs.seats.matrix_game import MatrixGame
from gem.envs.seats.seat_env import SeatEnv
from gem.errors import (
    BadAction,
    BadArgument,
    CannotFork,
    EnvClosed,
    EpisodeOver,
    NoVerdict,
    ResetNeeded,
    ToolError,
)
from gem.history import messages
from gem.record import SEAT, Turn
from gem.rollout import Job, rollout
from gem.testing import check_env
from gem.testing.rules import RULES
from gem.tools.base_tool import BaseTool, FunctionTool, ToolResult
from gem.tools.calls import write
from gem.tools.shell_tool import SessionTool
from gem.tools.tool_env_wrapper import MAX_REFUSED_TURNS, ToolEnvWrapper

GUESS = "game:GuessTheNumber-v0-easy"


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    if b == 13:
        raise ToolError("13 is not added.")
    return a + b


ADD = FunctionTool(add)


def call(**arguments):
    inside = ", ".join(f'"{name}": {value}' for name, value in arguments.items())
    return f'<tool_call>{{"name": "add", "arguments": {{{inside}}}}}</tool_call>'


class Notes(BaseTool):
    """Keeps what it was told, within an episode."""

    name, tag, live = "notes", "note", True
    closed: list = []  # noqa: RUF012

    def __init__(self, forks=True):
        super().__init__()
        self.forks = forks
        self.kept = []

    def call(self, text: str) -> ToolResult:
        """Note it, and read all notes."""
        self.kept.append(text)
        return ToolResult(" ".join(self.kept))

    def reset(self, seed):
        self.kept = []

    def fork(self):
        if not self.forks:
            return super().fork()
        twin = self.spawn()
        twin.kept = [*self.kept]
        return twin

    def close(self):
        Notes.closed.append(self)


def wrapped(*tools, **kwargs):
    return ToolEnvWrapper(gem.make(GUESS), list(tools) or [ADD], **kwargs)


def test_tools_are_explained_and_calls_answered_without_a_turn_of_the_game():
    env = wrapped()
    obs, info = env.reset(seed=0)
    assert "Guess" in obs or "guess" in obs
    assert "add: Add two numbers." in obs
    assert "10 tool calls" in obs
    assert (info["tool_use_counter"], info["use_tool"]) == (0, False)
    for n in range(6):  # the game states 4 guesses
        step = env.step(f"Let me see: {call(a=n)} done.")
        assert step == (
            f"<output>\n{n + 1}\n</output>",
            0.0,
            False,
            False,
            {
                "parsed_action": f"Let me see: {call(a=n)}",
                "tool_type": "add",
                "tool_results": [{"tool": "add", "error": False, "refused": False, "shown": len(step.obs)}],
                "use_tool": True,
                "tool_use_counter": n + 1,
                "tool_success_counter": n + 1,
                "tool_failure_counter": 0,
                "prev_ep_tool_use_counter": None,
                "prev_ep_tool_success_counter": None,
            },
        )
    step = env.step("\\boxed{3}")
    assert "3" in step.obs
    assert step.info["use_tool"] is False
    assert step.info["tool_use_counter"] == 6


class Hint(BaseTool):
    """Proposes calls of its own."""

    name, tag = "hint", "hint"
    of = ""

    def call(self, about: str) -> ToolResult:
        """Give a hint."""
        return ToolResult(f"about {about}")

    def sample_call(self, question, rng):
        return f"<hint>{rng.randrange(3)}</hint>"

    def solving_call(self, question):
        self.of = question
        return "<hint>all</hint>" if "secret" in question else ""


def test_random_play_calls_in_half_of_its_turns_until_none_is_left():
    env = wrapped(Hint(), max_tool_uses=2)
    calls = []
    for seed in range(60):
        env.reset(seed=seed)
        actions = [env.sample_random_action()]
        while not env.step(actions[-1]).done:
            actions.append(env.sample_random_action())
        calls.append(sum(action.startswith("<hint>") for action in actions))
        assert env.tool_use_counter == calls[-1] == env.tool_success_counter
    assert {*calls} == {0, 1, 2}
    assert 15 < sum(each > 0 for each in calls) < 60
    env.reset(seed=5)
    first = env.sample_random_action()
    env.reset(seed=5)
    assert env.sample_random_action() == first


def test_a_solver_calls_once_where_a_tool_knows_how():
    hint = Hint()
    env, plain = wrapped(ADD, hint), gem.make(GUESS)
    for seed in (3, 4):
        question = plain.reset(seed=seed)[0]
        env.reset(seed=seed)
        assert env.solve() == "<hint>all</hint>"
        assert hint.of == question
        env.step(env.solve())
        assert env.solve() == plain.solve()
    assert wrapped(ADD).reset(seed=3)
    (episode,) = rollout([Job(lambda: wrapped(Hint(), max_tool_uses=0), 3)], SolverAgent())
    assert episode.success
    assert "hint" not in episode.turns[0].action


class Loose(Hint):
    """Proposes a text that calls nothing."""

    def sample_call(self, question, rng):
        return "<hunt>here</hunt>"


def test_a_proposal_that_calls_nothing_is_the_tool_s_failure():
    env = wrapped(Loose())
    env.reset(seed=3)
    with pytest.raises(
        NoVerdict, match=r"the tool 'hint' proposes '<hunt>here</hunt>', which does not call it"
    ):
        env.sample_random_action()


class Clue(Hint):
    """Proposes calls of its own."""

    name = tag = "clue"

    def sample_call(self, question, rng):
        return f"<clue>{question[:5]}</clue>"

    def solving_call(self, question):
        return "<clue>too</clue>"


def test_of_wrappers_around_one_another_one_draws_for_all():
    env = ToolEnvWrapper(wrapped(Hint(), max_tool_uses=3), [Clue()], max_tool_uses=3)
    seen = []
    for seed in range(80):
        question = gem.make(GUESS).reset(seed=seed)[0]
        env.reset(seed=seed)
        action = env.sample_random_action()
        seen.append(action[:5])
        assert not action.startswith("<clue>") or action == f"<clue>{question[:5]}</clue>"
    assert min(seen.count("<hint"), seen.count("<clue")) > 8
    assert 24 < seen.count("<hint") + seen.count("<clue") < 56
    env.reset(seed=3)
    assert env.solve() == "<clue>too</clue>"
    env.step(env.solve())
    assert env.solve().startswith("\\boxed")


def test_samples_of_a_task_call_at_different_times():
    """In a seat too, whose random actor is not the environment's own."""
    env = ToolEnvWrapper(SeatEnv(MatrixGame(), "player_0", "random"), [Hint()])
    found = []
    for sample in (0, 1, 2, 3, 4, 5, 0):
        env.reset(seed=1)
        env.seed_actor(sample)
        found.append(tuple(env.sample_random_action().startswith("<hint>") for _ in range(12)))
    assert len({*found}) == 6
    assert found[0] == found[-1]


def test_the_same_answers_earn_the_same_with_and_without_calls_between():
    plain, env = gem.make(GUESS), wrapped()
    plain.reset(seed=5)
    env.reset(seed=5)
    while True:
        action = plain.solve()
        env.step(call(a=1))
        one, other = plain.step(action), env.step(env.solve())
        assert one[:4] == other[:4]
        if one.done:
            break


def test_each_call_is_paid_as_it_went():
    env = wrapped(tool_reward=0.1, tool_success_reward=0.02, tool_execute_error_reward=-0.5)
    env.reset(seed=0)
    assert env.step(call(a=1)).reward == pytest.approx(0.12)
    step = env.step(call(a=1, b=13) + call(a=1) + "<tool_call>{</tool_call>" + call(c=1))
    assert step.reward == pytest.approx(4 * 0.1 + 0.02 - 3 * 0.5)
    assert [result["error"] for result in step.info["tool_results"]] == [True, False, True, True]
    assert (step.info["tool_use_counter"], step.info["tool_success_counter"]) == (5, 2)
    for text in ("13 is not added.", "no JSON", "'a' is missing"):
        assert text in step.obs


def test_an_answer_beside_a_call_does_not_count():
    env = wrapped()
    env.reset(seed=0)
    guess = env.solve()
    step = env.step(f"{call(a=1)} so \\boxed{{8}}")
    assert step.info["use_tool"]
    assert env.solve() == guess  # the game has not moved


def test_past_the_budget_calls_are_refused_in_words_and_the_episode_still_ends():
    env = wrapped(max_tool_uses=2, tool_reward=0.1)
    env.reset(seed=0)
    step = env.step(call(a=1) * 3)
    assert "No tool calls are left (2 of 2 are used): this call was not run" in step.obs
    assert step.reward == pytest.approx(0.2)
    assert [result["refused"] for result in step.info["tool_results"]] == [False, False, True]
    for _ in range(MAX_REFUSED_TURNS - 1):
        step = env.step(call(a=1))
        assert (step.reward, step.done) == (0.0, False)
    assert env.fork().step("\\boxed{3}").done is False  # the game goes on unhurt
    step = env.step(call(a=1))
    assert (step.terminated, step.truncated, step.info["stop"]) == (True, False, "turn_budget")
    with pytest.raises(EpisodeOver):
        env.step("\\boxed{3}")
    _, info = env.reset(seed=1)
    assert (info["tool_use_counter"], info["prev_ep_tool_use_counter"]) == (0, 2)
    assert (info["prev_ep_tool_success_counter"]) == 2


def test_the_last_call_says_so():
    env = wrapped(max_tool_uses=1)
    env.reset(seed=0)
    assert env.step(call(a=1)).obs.endswith("That was the last tool call. Give your answer.")


def test_an_unknown_tool_is_named_with_the_nearest():
    env = wrapped()
    env.reset(seed=0)
    step = env.step('<tool_call>{"name": "ad", "arguments": {}}</tool_call>')
    assert "there is no tool 'ad'. Did you mean 'add'? Tools: add." in step.obs


def test_the_order_of_calls_is_kept():
    env = wrapped()
    with pytest.raises(ResetNeeded):
        env.step(call(a=1))
    env.reset(seed=0)
    with pytest.raises(BadAction):
        env.step(None)
    while not env.step(env.solve()).done:
        pass
    with pytest.raises(EpisodeOver):
        env.step(call(a=1))
    env.close()
    env.close()
    with pytest.raises(EnvClosed):
        env.step(call(a=1))


def test_what_may_run_at_once_does_and_keeps_its_order():
    both = threading.Barrier(2, timeout=20)

    def meet(name: str) -> str:
        """Wait for the other call."""
        both.wait()
        return name

    env = wrapped(FunctionTool(meet, tag="meet", parallel_safe=True))
    env.reset(seed=0)
    step = env.step("<meet>a</meet><meet>b</meet>")
    assert step.obs == "<output>\na\n</output>\n<output>\nb\n</output>"


def test_a_tool_that_fails_on_its_own_gives_no_verdict():
    def broken() -> str:
        """Fail."""
        raise NoVerdict("the server is gone")

    env = wrapped(FunctionTool(broken))
    env.reset(seed=0)
    with pytest.raises(NoVerdict, match="the server is gone"):
        env.step('<tool_call>{"name": "broken"}</tool_call>')


def test_live_state_is_an_environments_own_and_begins_anew():
    notes = Notes()
    one, other = wrapped(notes), wrapped(notes)
    one.reset(seed=0)
    other.reset(seed=0)
    one.step("<note>a</note>")
    assert one.step("<note>b</note>").obs == "<output>\na b\n</output>"
    assert other.step("<note>c</note>").obs == "<output>\nc\n</output>"
    one.reset()
    assert one.step("<note>d</note>").obs == "<output>\nd\n</output>"
    assert notes.kept == []
    Notes.closed.clear()
    one.close()
    assert Notes.closed == one.tools


def test_a_live_tool_is_forked_where_it_can_be_and_else_nothing_is():
    env = wrapped(Notes())
    env.reset(seed=0)
    env.step("<note>a</note>")
    assert not env.forkable
    with pytest.raises(CannotFork):
        env.get_state()
    twin = env.fork()
    assert twin.step("<note>b</note>").obs == "<output>\na b\n</output>"
    assert env.step("<note>c</note>").obs == "<output>\na c\n</output>"
    assert twin.tool_use_counter == 2
    env.game, env.me = env.unwrapped, env
    twin = env.fork()
    assert twin.game is twin.unwrapped is not env.unwrapped
    assert twin.me is twin

    class Stuck(Notes):
        name, tag = "stuck", "stuck"

    both = wrapped(Notes(), Stuck(forks=False))
    both.reset(seed=0)
    Notes.closed.clear()
    with pytest.raises(CannotFork, match="stuck"):
        both.fork()
    assert len(Notes.closed) == 1  # the copy of the first


def test_state_is_saved_restored_forked_and_pickled_with_the_counts():
    env = wrapped()
    env.reset(seed=0)
    env.step(call(a=1))
    state = env.get_state()
    twin = pickle.loads(pickle.dumps(env))
    env.step(call(a=1))
    assert env.fork().tool_use_counter == 2
    env.set_state(state)
    assert (env.tool_use_counter, twin.tool_use_counter) == (1, 1)
    assert env.step("\\boxed{3}") == twin.step("\\boxed{3}")


def test_the_wrapped_environment_keeps_the_contract():
    def make():
        return ToolEnvWrapper(gem.make("game:Sudoku-v0-easy"), [ADD])

    # `prev_ep_*` tells of the episode before, so transcripts of one instance played again differ in info
    told = {"same-seed", "neighbours", "actor-stream"}
    check_env(make, rules=RULES.keys() - told).raise_if_broken()


def test_text_around_the_prompt_survives_a_turn_of_tools():
    class Suffixed(Env):
        def reset(self, seed=None):
            super().reset(seed)
            return Start("task", {"suffix": "Your answer?"})

        def step(self, action):
            return Step("no", 0.0, False, False, {"suffix": "Again?"})

    env = ToolEnvWrapper(Suffixed(), [ADD])
    obs, info = env.reset(seed=0)
    step = env.step(call(a=1))
    shown = messages([Turn(SEAT, obs, "x", info=info), Turn(SEAT, step.obs, info=step.info)])
    assert shown[-1].text.endswith("</output>\nYour answer?")
    env.step("x")
    assert env.step(call(a=1)).info["suffix"] == "Again?"


def test_pictures_come_with_the_text():
    picture = Image(b"png", alt="[a plot]")

    def draw() -> ToolResult:
        """Draw."""
        return ToolResult("drawn", images=[picture])

    env = wrapped(FunctionTool(draw))
    env.reset(seed=0)
    obs = env.step('<tool_call>{"name": "draw"}</tool_call>').obs
    assert [getattr(part, "text", part) for part in obs] == ["<output>\ndrawn\n</output>", picture]


def test_upstreams_tools_work_by_their_four_values():
    class Shout(BaseTool):
        tool_type = "shout"

        def instruction_string(self):
            return "Write <shout>text</shout>."

        def execute_action(self, action):
            if "<shout>" not in action:
                return False, True, "", ""
            return True, "!" in action, action.upper(), action

    env = wrapped(Shout(num_workers=1), tool_execute_error_reward=-1.0, max_tool_uses=2)
    assert "Write <shout>" in env.reset(seed=0).obs
    step = env.step("<shout>a</shout>")
    assert step.obs == "<SHOUT>A</SHOUT>"
    assert step.info["tool_type"] == "shout"
    assert env.step("<shout>!</shout>").reward == -1.0
    step = env.step("<shout>a</shout>")
    assert "No tool calls are left" in step.obs
    assert not env.step("\\boxed{3}").info["use_tool"]


def test_in_a_rollout_the_outputs_are_observations_of_turns():
    say = [call(a=1), "<tool_call>{</tool_call>", "\\boxed{1}", "\\boxed{2}", "\\boxed{3}", "\\boxed{4}"]
    make = functools.partial(wrapped, ADD, tool_reward=0.01)
    [episode] = rollout([Job(make, 0)], ScriptedAgent(say))
    assert [turn.action for turn in episode.turns][:2] == say[:2]
    assert episode.turns[1].observation == "<output>\n2\n</output>"
    assert [turn.info["use_tool"] for turn in episode.turns][:3] == [True, True, False]
    assert episode.turns[0].reward == 0.01
    shown = messages(episode.exchanges()[:2])
    assert [message.role for message in shown] == ["user", "assistant", "user"]
    assert episode.scored


def test_wrong_arguments_are_refused():
    with pytest.raises(BadArgument, match="one or more"):
        ToolEnvWrapper(gem.make(GUESS), [])
    with pytest.raises(BadArgument, match="names and tags of their own"):
        wrapped(ADD, FunctionTool(add))
    with pytest.raises(BadArgument, match="a list of tools"):
        ToolEnvWrapper(gem.make(GUESS), ADD)
    with pytest.raises(BadArgument, match="a list of tools"):
        ToolEnvWrapper(gem.make(GUESS), [add])
    with pytest.raises(BadArgument, match="0 or more"):
        wrapped(max_tool_uses=-1)


def test_vectors_and_spawn_make_the_wrapper_again():
    env = wrapped(max_tool_uses=3)
    assert env.spawn().max_tool_uses == 3
    vector = gem.make_vec(GUESS, [functools.partial(ToolEnvWrapper, tools=[Notes()])], num_envs=3)
    with vector:
        vector.reset(seed=0)
        obs, *_ = vector.step([f"<note>{i}</note>" for i in range(3)])
        assert [o.split("\n")[1] for o in obs] == ["0", "1", "2"]


class Program(Env):
    """Its answer is a fenced block of Python, and ``<bash>`` is its own."""

    answer_marks = ("```python", "<bash>")
    tool_specs = ()

    def reset(self, seed=None):
        super().reset(seed)
        return Start("Write it in a ```python block.", {})

    def step(self, action):
        return Step(f"read: {action}", 0.0, False, False, {})


class Block(SessionTool):
    """Says what it was given."""

    name, tag, fences = "python", "python", ("python", "text")

    def __init__(self, live=False):
        super().__init__(1, None, 9, 1)
        self.live = live

    def call(self, code: str) -> ToolResult:
        """Say it."""
        return ToolResult(code.strip())

    def fork(self):
        return self.spawn() if self.live else self

    def instruction_string(self):
        return f"Write {self._say_where()}."


@pytest.mark.parametrize("live", [False, True])
def test_what_the_environment_reads_itself_is_no_call(live):
    tool = Block(live)
    env = ToolEnvWrapper(Program(), [tool])
    assert "\n\nWrite in <python>...</python> or in a ```text block.\n\n" in env.reset(seed=0).obs
    assert tool.instruction_string() == (
        "Write in <python>...</python> or in a ```python block or in a ```text block."
    )
    for answer in ("```python\n1\n```", "```py\n<python>1</python>\n```", "<bash>\n```text\n1\n```\n</bash>"):
        assert env.step(answer).obs == f"read: {answer}"
    native = write("```python\n1\n```", [ToolCall("a", "python", '{"code": "2"}')])
    for called in ("```text\n2\n```", "<python>\n```python\n2\n```\n</python>", native):
        assert env.step(called).obs == "<output>\n2\n</output>"
    twin = env.fork()
    assert twin.instruction() == env.instruction()
    assert "a ```python block" in ToolEnvWrapper(gem.make(GUESS), [tool]).reset(seed=0).obs


class Other(Block):
    name = tag = "other"


def test_a_wrapper_leaves_the_tags_and_fences_of_one_inside_to_it():
    env = ToolEnvWrapper(wrapped(Block()), [Other()])
    assert "Write in <other>...</other>.\n" in env.reset(seed=0).obs
    for text in ("```text\n2\n```", "<python><other>2</other></python>"):
        assert env.step(text).info["tool_type"] == "python"


def test_a_tool_that_the_environment_has_itself_is_refused():
    with pytest.raises(BadArgument, match=r"db:Library-v0-questions has its own 'add' <sql>; accepted"):
        ToolEnvWrapper(gem.make("db:Library-v0-questions"), [FunctionTool(add, tag="sql")])
    with pytest.raises(BadArgument, match="its own 'add' <answer>"):
        ToolEnvWrapper(gem.make("qa:Facts-v0-easy"), [FunctionTool(add, tag="answer")])
    with pytest.raises(BadArgument, match="its own 'add' <>"):
        ToolEnvWrapper(wrapped(), [ADD])
    late = ToolEnvWrapper(Program(), [ADD])
    late.env.tool_specs = (ADD.spec(),)
    with pytest.raises(BadArgument, match=r"offer \['add', 'add'\]; accepted: names of their own"):
        late.reset(seed=0)
