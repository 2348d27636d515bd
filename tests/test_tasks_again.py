"""A task is made again: from what is written of an environment, in this process and in another."""

import json
import subprocess
import sys
import warnings
from dataclasses import asdict, replace

import pytest

import gem
from gem import registry
from gem.core import Env, EnvWrapper
from gem.envs.qa.env import QaEnv
from gem.errors import BadArgument, MissingData, MissingExtra, UnknownArgument, UnknownEnv
from gem.graders.base import Score
from gem.graders.text import TextGrader
from gem.history import HistoryPolicy
from gem.registry import Maker, task_of
from gem.sandbox.base import SandboxFailed
from gem.seats import SeatEnv
from gem.specs import EnvSpec, TaskRef, WrapperRef
from gem.testing import EchoEnv
from gem.testing.transcripts import transcript
from gem.tools.python_code_tool import PythonCodeTool
from gem.tools.shell_tool import ShellTool
from gem.tools.tool_env_wrapper import ToolEnvWrapper
from gem.wrappers import (
    WRAPPER_FACTORY,
    EpisodeTrackingWrapper,
    ObservationWrapper,
    TimeLimit,
    TransformAction,
    TransformReward,
)
from gem.wrappers.wrapper_factory import TOKENIZER_REQUIRED

GUESS = "game:GuessTheNumber-v0-easy"
TURNS = 6


def through_json(task):
    """Return the task as a store would give it back."""
    data = json.loads(json.dumps(asdict(task), allow_nan=False))
    wrappers = tuple(WrapperRef(**each) for each in data.pop("wrappers"))
    return TaskRef(**{**data, "opaque": tuple(data["opaque"])}, wrappers=wrappers)


def said(env, seed=3):
    with env:
        return transcript(env, seed, TURNS)


def again(env):
    """Return a second environment, made from what is written of the first; both are written alike."""
    task = task_of(env)
    other = gem.make(through_json(task))
    assert task_of(other) == task == through_json(task)
    return other


def shout(action):
    return action.upper()


def half(reward):
    return reward / 2


# -- what is written


def test_a_task_names_id_keywords_and_wrappers_innermost_first():
    env = gem.make("game:GuessTheNumber-v0-random", max_turns=9)
    env = TimeLimit(WRAPPER_FACTORY["concat_with_action"](env, max_history_length=2), max_steps=4)
    assert task_of(env) == TaskRef(
        "game:GuessTheNumber-v0-random",
        {"max_number": [5, 100], "max_turns": 9},
        (
            WrapperRef("concat_with_action", {"max_history_length": 2}),
            WrapperRef("gem.wrappers.time_limit:TimeLimit", {"max_steps": 4}),
        ),
        entry_point="gem.envs.games.guess_the_number:GuessTheNumber",
    )
    assert task_of(env.fork()) == task_of(env.spawn()) == task_of(env)
    assert task_of(env.spawn(max_turns=5)).kwargs == {"max_number": [5, 100], "max_turns": 5}


def test_what_an_entry_point_wraps_is_part_of_the_id():
    env = gem.make("multi:KuhnPoker-v0-vs-random")
    task = task_of(TimeLimit(env, 5))
    assert (task.spec, [ref.name for ref in task.wrappers]) == (
        "multi:KuhnPoker-v0-vs-random",
        ["gem.wrappers.time_limit:TimeLimit"],
    )
    seated = task_of(SeatEnv(gem.make("multi:KuhnPoker-v0"), "player_1", others="solver"))
    assert seated.spec == "multi:KuhnPoker-v0"
    assert seated.wrappers[0].kwargs == {"seat": "player_1", "others": "solver"}


def test_an_environment_that_is_not_registered_is_written_by_its_class():
    assert task_of(EchoEnv(5)) == TaskRef(
        "gem.testing.doubles:EchoEnv", {"turns": 5}, entry_point="gem.testing.doubles:EchoEnv"
    )
    other = again(EchoEnv(5))
    assert (type(other), other.turns) == (EchoEnv, 5)


# -- it is made again


WRAPPED = {
    **{name: fn for name, fn in WRAPPER_FACTORY.items() if name not in (*TOKENIZER_REQUIRED, "search_tool")},
    "history": lambda env: ObservationWrapper(env, policy=HistoryPolicy("concat", window=2, keep_first=True)),
    "limit": lambda env: TimeLimit(env, 2),
    "action": lambda env: TransformAction(env, shout),
    "reward": lambda env: TransformReward(env, fn=half),
    "tools": lambda env: ToolEnvWrapper(
        env, [PythonCodeTool(2, keep_error_last_line=True), ShellTool(3)], 0.1
    ),
    "tracking": EpisodeTrackingWrapper,
    "nested": lambda env: TimeLimit(TransformReward(EnvWrapper(env=env), half), max_steps=3),
}


@pytest.fixture(autouse=True)
def search(monkeypatch):
    monkeypatch.setenv("SEARCH_URL", "world")


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_a_wrapped_environment_is_made_again(wrap):
    env = wrap(gem.make("game:GuessTheNumber-v0-hard", max_turns=5))
    other = again(env)
    assert str(other) == str(env)
    assert said(other) == said(env)


FAMILIES = {}
for spec in registry.specs():
    FAMILIES.setdefault(spec.family, []).append(spec.id)


def made_and_made_again(env_id):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of foreign packages
        try:
            env = gem.make(env_id)
            other = again(env)
            assert other.spec == env.spec
            if env.spec.deterministic:
                assert said(other) == said(env)
            else:
                with env, other:
                    assert env.reset(seed=3).obs == other.reset(seed=3).obs
        except (MissingExtra, MissingData, SandboxFailed, FileNotFoundError) as absent:
            pytest.skip(f"{env_id}: {absent}")


@pytest.mark.parametrize("env_id", [members[0] for members in FAMILIES.values()])
def test_an_id_of_every_family_is_made_again(env_id):
    made_and_made_again(env_id)


@pytest.mark.slow
@pytest.mark.parametrize("env_id", [env_id for members in FAMILIES.values() for env_id in members[1:]])
def test_every_id_is_made_again(env_id):
    made_and_made_again(env_id)


ROWS = [{"problem": f"say {word}", "answer": word} for word in ("one", "two", "three")]


def test_keywords_of_every_kind_are_written():
    env = QaEnv(dataset=ROWS, grader=TextGrader("f1"), question_key="problem")
    task = task_of(env)
    assert task.kwargs["grader"] == {"$make": "gem.graders.text:TextGrader", "kwargs": {"metric": "f1"}}
    assert said(again(env)) == said(env)


IN_CHILD = """
import json, sys
import gem
from gem.specs import TaskRef, WrapperRef
from gem.testing.transcripts import transcript
for line in json.load(sys.stdin):
    line["wrappers"] = tuple(WrapperRef(**each) for each in line["wrappers"])
    task = TaskRef(**{**line, "opaque": ()})
    with gem.make(task) as env:
        print(repr(transcript(env, 3, %d)))
"""


@pytest.mark.system
def test_another_process_makes_the_same(tmp_path):
    gem.register(EnvSpec("test:Echo", EchoEnv, {"turns": 4}, max_turns=4))
    try:
        envs = [
            wrap(gem.make(GUESS))
            for name, wrap in WRAPPED.items()
            if name not in ("action", "reward", "nested")
        ]
        envs += [
            gem.make("test:Echo"),
            gem.make("test:Echo", turns=2),
            gem.make("multi:KuhnPoker-v0-vs-solver"),
        ]
        tasks = [asdict(task_of(env)) for env in envs]
    finally:
        del registry.ENV_REGISTRY["test:Echo"]
    done = subprocess.run(
        [sys.executable, "-c", IN_CHILD % TURNS], input=json.dumps(tasks), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [repr(said(env)) for env in envs]


def test_a_task_has_a_seed_which_the_caller_may_change():
    task = TaskRef(GUESS, {"max_turns": 6}, (WrapperRef("concat"),), seed=7)
    first = gem.make(GUESS).reset(seed=7)
    env = gem.make(task)
    assert (env.reset().obs, env.seed, env.max_turns) == (first.obs.replace("4", "6"), 7, 6)
    other = gem.make(task, seed=8, max_turns=9)
    other.reset()
    assert (other.seed, other.max_turns) == (8, 9)
    with Maker(task)() as made:
        assert task_of(made) == task_of(env)


def test_the_registered_spec_is_kept_where_nothing_differs():
    env = gem.make(through_json(task_of(gem.make("game:GuessTheNumber-v0-random"))))
    assert env.spec is registry.ENV_REGISTRY["game:GuessTheNumber-v0-random"]


# -- it cannot be made again


class Live:
    def __call__(self, answer, reference):
        return Score(0.0, False)

    def apply_chat_template(self, conversation, *, tokenize, add_generation_prompt):
        return "".join(each["content"] for each in conversation)


def test_what_cannot_be_written_makes_the_task_opaque_and_is_named():
    env = TransformReward(QaEnv(dataset=ROWS, grader=Live()), lambda reward: reward)
    env = WRAPPER_FACTORY["concat_chat"](env, tokenizer=Live())
    task = task_of(env)
    assert task.opaque == ("QaEnv.grader", "TransformReward.fn", "ObservationWrapper.tokenizer")
    assert env.reset(seed=1)  # it plays
    with pytest.raises(BadArgument, match=r"QaEnv cannot be made again: QaEnv\.grader, Tr.*, Obs"):
        gem.make(task)


def test_a_class_that_nobody_can_import_makes_the_task_opaque():
    class Local(EchoEnv):
        pass

    class Around(EnvWrapper):
        pass

    assert task_of(Around(Local(2))).opaque == ("Local", "Around")
    assert task_of(gem.make(EnvSpec("test:Nowhere", lambda: EchoEnv()))).opaque == ("EchoEnv",)


def test_an_id_that_stands_for_something_else_here_is_written_by_its_class():
    env = gem.make(EnvSpec(GUESS, EchoEnv, {"turns": 2}))
    assert task_of(env).spec == "gem.testing.doubles:EchoEnv"
    assert type(again(env)) is EchoEnv


def test_a_task_that_leads_nowhere_says_where():
    with pytest.raises(UnknownEnv, match="Did you mean 'game:GuessTheNumber-v0-easy'"):
        gem.make(TaskRef("game:GessTheNumber-v0-easy"))
    with pytest.raises(BadArgument, match="there is no module"):
        gem.make(TaskRef("my:Env-v0", entry_point="gem.nowhere:Env"))
    with pytest.raises(UnknownEnv, match=r"no wrapper 'conkat'\. Did you mean 'concat'"):
        Maker(GUESS, {}, ("conkat",))
    with pytest.raises(UnknownArgument, match="'max_turn'"):
        gem.make(TaskRef(GUESS, {"max_turn": 3}))
    assert isinstance(gem.make(TaskRef("gem.testing.doubles:EchoEnv", {"turns": 2})), Env)


STOLEN = {"$make": "pathlib:Path", "args": ["stolen"]}
HOSTILE = (
    TaskRef("x:Y-v0", {"command": "touch stolen"}, entry_point="os:system"),
    TaskRef("os:system", {"command": "touch stolen"}),
    TaskRef("x:Y-v0", {"command": "touch stolen"}, entry_point="gem.plugins:importlib.import_module"),
    TaskRef("game:GuessTheNumber-v0-easy", wrappers=(WrapperRef("subprocess:call", {"shell": True}),)),
    TaskRef("x:Y-v0", {"command": "touch stolen"}, entry_point="os:system.__call__"),
    TaskRef("x:Y-v0", {"args": ["touch", "stolen"]}, entry_point="subprocess:run.__call__"),
    TaskRef("x:Y-v0", {"self": STOLEN}, entry_point="pathlib:Path.touch"),
    TaskRef("x:Y-v0", {"self": STOLEN, "data": "x"}, entry_point="pathlib:Path.write_text"),
    TaskRef("x:Y-v0", entry_point="sys:modules.clear"),
    TaskRef("x:Y-v0", entry_point="os:environ._data.clear"),
    TaskRef("x:Y-v0", {"path": "."}, entry_point="test.support.os_helper:rmtree"),
    TaskRef("x:Y-v0", entry_point="json.tool:main"),
    TaskRef("x:Y-v0", entry_point="math:pi"),
    TaskRef("x:Y-v0", {"path": "stolen"}, entry_point="gem.rollout.store:EpisodeStore"),
    TaskRef("x:Y-v0", {"out": "stolen", "sources": []}, entry_point="gem.rollout.store:merge"),
    TaskRef("x:Y-v0", {"fname": "stolen", "X": [1]}, entry_point="numpy:savetxt"),
    TaskRef("gem.rollout.store:EpisodeStore", {"path": "stolen"}),
    TaskRef("x:Y-v0", entry_point=":x"),
    TaskRef("x:Y-v0", entry_point=".gem:x"),
    TaskRef("x:Y-v0", entry_point=5),
    TaskRef("game:GuessTheNumber-v0-easy", wrappers=(WrapperRef("gem.record:Limits"),)),
    TaskRef("game:GuessTheNumber-v0-easy", wrappers=(WrapperRef("torch:save", {"f": "stolen"}),)),
    TaskRef("game:GuessTheNumber-v0-easy", {"max_turns": {"$callable": "builtins:eval"}}),
    TaskRef("game:GuessTheNumber-v0-easy", {"max_turns": {"$callable": "builtins:eval.__call__"}}),
    TaskRef("game:GuessTheNumber-v0-easy", {"max_turns": {"$callable": "pathlib:Path.unlink"}}),
    TaskRef("game:GuessTheNumber-v0-easy", {"max_turns": {"$callable": "gem:make.__globals__"}}),
    TaskRef("game:GuessTheNumber-v0-easy", {"max_turns": {"$callable": 5}}),
    TaskRef("game:GuessTheNumber-v0-easy", {"max_turns": {"$make": "subprocess:Popen", "args": ["true"]}}),
    TaskRef(
        "game:GuessTheNumber-v0-easy",
        wrappers=(WrapperRef("gem.wrappers.transform:TransformAction", {"fn": {"$callable": "os:system"}}),),
    ),
)


@pytest.mark.parametrize("task", HOSTILE, ids=lambda task: task.entry_point or task.spec)
def test_a_task_of_somebody_elses_file_runs_nothing_but_environments_and_their_parts(
    task, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadArgument, match="--trust"):
        gem.make(replace(task, foreign=True))
    assert list(tmp_path.iterdir()) == []


WRONG = (
    {"$make": "gem.record:Limits", "kwargs": {"a": 1}},
    {"$make": "gem.record:Verdict", "args": ["MAYBE"]},
    {"$make": "gem.record:Verdict"},
    {"$make": "builtins:int", "args": 5},
)


@pytest.mark.parametrize("value", WRONG)
def test_what_may_be_named_but_not_be_made_says_so(value):
    with pytest.raises(BadArgument, match=r"a task makes '(gem\.record|builtins:int)"):
        gem.make(TaskRef(GUESS, {"max_turns": value}, foreign=True))


UNFIT = (
    TaskRef("x:Y-v0", {"command": "touch stolen"}, entry_point="os:system"),
    TaskRef("x:Y-v0", {"path": "stolen"}, entry_point="gem.rollout.store:EpisodeStore"),
    TaskRef(GUESS, wrappers=(WrapperRef("subprocess:call", {"shell": True}),)),
    TaskRef(GUESS, {"max_turns": {"$make": "subprocess:Popen", "args": ["true"]}}),
)


@pytest.mark.parametrize("task", UNFIT, ids=lambda task: task.entry_point or task.spec)
def test_even_a_trusted_task_makes_nothing_but_environments_and_their_parts(task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadArgument, match="accepted: "):
        gem.make(replace(task, foreign=True), trust=True)
    assert list(tmp_path.iterdir()) == []


def made_by_a_function(turns: int = 1) -> EchoEnv:
    return EchoEnv(turns=turns)


def test_a_function_that_says_it_makes_an_environment_is_called():
    here = f"{__name__}:made_by_a_function"
    assert gem.make(TaskRef("my:Env-v0", {"turns": 3}, entry_point=here)).turns == 3


@pytest.mark.system
def test_an_argument_that_is_nested_beyond_all_reason_says_so():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(BadArgument, match="too deeply"):
        gem.make(TaskRef(GUESS, {"max_turns": {"a": deep}}))
