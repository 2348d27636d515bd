import textwrap

import pytest

vf = pytest.importorskip("verifiers.v1")
pytestmark = pytest.mark.framework

import gem
from gem.agents.scripted import ScriptedAgent
from gem.errors import BadArgument, NoVerdict
from gem.rollout import Job, rollout

PACKAGES = {
    # one turn, with a system prompt, two rewards and a metric
    "gemtest_sums": """
        class Data(vf.TaskData):
            answer: str

        class Task(vf.Task[Data]):
            async def setup(self, trace, runtime):
                trace.info["ready"] = True

            @vf.reward(weight=1.0)
            async def right(self, task, trace):
                return float(trace.info["ready"] and trace.last_reply == task.answer)

            @vf.reward(weight=0.5)
            async def short(self, trace):
                return float(len(trace.last_reply) < 3)

            @vf.metric
            async def turns(self, trace):
                return float(trace.num_turns)

        class Config(vf.TasksetConfig):
            most: int = 4

        class Taskset(vf.Taskset[Task, Config]):
            def load(self):
                for n in range(self.config.most):
                    data = {"name": f"sum{n}", "prompt": f"{n} + 1?", "answer": str(n + 1)}
                    yield Task(Data(system_prompt="Add.", **data))

        __all__ = ["Taskset"]
    """,
    # an environment that takes the user's part; endless
    "gemtest_guess": """
        import itertools

        class Task(vf.Task[vf.TaskData]):
            pass

        class Taskset(vf.Taskset[Task]):
            INFINITE = True

            def load(self):
                for n in itertools.count():
                    yield Task(vf.TaskData(name=str(n)))

        class Config(vf.EnvConfig):
            player: vf.AgentConfig = vf.AgentConfig()

        class Env(vf.Env[Config]):
            async def run(self, task, agents):
                async with agents.player.interaction(task) as talk:
                    segment = await talk.turn(f"Count to {task.data.idx % 3 + 1}.")
                    for number in range(1, task.data.idx % 3 + 1):
                        segment = await talk.turn(f"You said {segment.last_reply}.")
                talk.trace.record_reward("counted", talk.trace.num_turns)

        __all__ = ["Taskset", "Env"]
    """,
    "gemtest_broken": """
        class Task(vf.Task[vf.TaskData]):
            @vf.reward
            async def scored(self, trace):
                raise OSError("the judge is gone")

        class Taskset(vf.Taskset[Task]):
            def load(self):
                return [Task(vf.TaskData(prompt="Hello?"))]

        __all__ = ["Taskset"]
    """,
    "gemtest_box": """
        class Task(vf.Task[vf.TaskData]):
            NEEDS_CONTAINER = True

        class Taskset(vf.Taskset[Task]):
            def load(self):
                return [Task(vf.TaskData(prompt="ls"))]

        __all__ = ["Taskset"]
    """,
    "gemtest_files": """
        class Task(vf.Task[vf.TaskData]):
            async def setup(self, trace, runtime):
                await runtime.write("a", b"b")

        class Taskset(vf.Taskset[Task]):
            def load(self):
                return [Task(vf.TaskData(prompt="cat a"))]

        __all__ = ["Taskset"]
    """,
    "gemtest_tests": """
        class Task(vf.Task[vf.TaskData]):
            @vf.reward
            async def passed(self, trace, runtime):
                return 1.0

        class Taskset(vf.Taskset[Task]):
            def load(self):
                return [Task(vf.TaskData(prompt="Write a program."))]

        __all__ = ["Taskset"]
    """,
    "gemtest_tools": """
        class Tools(vf.Toolset[vf.ToolsetConfig]):
            @vf.tool
            def echo(self, text: str) -> str:
                return text

        class Task(vf.Task[vf.TaskData]):
            @classmethod
            def toolsets(cls, config):
                return [Tools(vf.ToolsetConfig())]

        class Taskset(vf.Taskset[Task]):
            def load(self):
                return [Task(vf.TaskData(prompt="Echo."))]

        __all__ = ["Taskset"]
    """,
    "gemtest_other": "__all__ = []",
}


@pytest.fixture(autouse=True, scope="module")
def _packages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packages")
    for name, text in PACKAGES.items():
        (folder / f"{name}.py").write_text(f"import verifiers.v1 as vf\n\n{textwrap.dedent(text)}")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield


def test_a_reply_is_scored_by_the_taskset():
    with gem.make("verifiers:gemtest-sums") as env:
        seen = {}
        for seed in range(4):
            obs, info = env.reset(seed)
            number = int(info["task"].removeprefix("sum"))
            assert obs == f"Add.\n\n{number} + 1?"
            step = env.step(str(number + 1) if number else "a wrong answer")
            assert step.terminated
            seen[number] = step.reward
            assert step.info["metrics"] == {"turns": 1.0}
        assert step.info["rewards"].keys() == {"right", "short"}
    assert seen == {0: 0.0, 1: 1.5, 2: 1.5, 3: 1.5}


def test_the_taskset_takes_its_settings():
    with gem.make("verifiers:gemtest-sums", most=1) as env:
        assert {env.reset(seed).info["task"] for seed in range(3)} == {"sum0"}
    with gem.make("verifiers:gemtest-sums", tasks=2) as env:
        assert {env.reset(seed).info["task"] for seed in range(2)} == {"sum0", "sum1"}
    with pytest.raises(BadArgument, match="leest"):
        gem.make("verifiers:gemtest-sums", leest=1)


def test_an_environment_takes_the_users_part():
    with gem.make("verifiers:gemtest-guess", tasks=3) as env:
        lengths = []
        for seed in range(3):
            start = env.reset(seed)
            turns = 1
            while not (step := env.step(f"{turns}")).done:
                assert step.obs == f"You said {turns}."
                turns += 1
            assert start.obs == f"Count to {turns}."
            assert step.reward == turns
            lengths.append(turns)
        assert sorted(lengths) == [1, 2, 3]
        env.reset(0)  # an episode that was left is ended


def test_a_score_that_fails_is_no_verdict():
    (episode,) = rollout([Job("verifiers:gemtest-broken", 1)], ScriptedAgent(["Yes."]))
    assert not episode.scored
    assert "the judge is gone" in episode.error.message
    with gem.make("verifiers:gemtest-broken") as env:
        env.reset(1)
        with pytest.raises(NoVerdict, match="the judge is gone"):
            env.step("Yes.")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("gemtest-box", "needs a container; accepted: a taskset that one agent plays by text"),
        ("gemtest-tools", "needs tool servers"),
        ("gemtest-tests", "needs a runtime for its scoring"),
        ("gemtest-files", r"needs a runtime \(its hooks use runtime.write\)"),
        ("gemtest-other", "exports no Taskset"),
        ("gemtest-absent", "not found .* installed"),
        ("../x", "names no taskset"),
    ],
)
def test_what_gem_cannot_give_is_refused_by_name(name, what):
    with pytest.raises(BadArgument, match=what):
        gem.make(f"verifiers:{name}").reset(0)


def test_gems_own_taskset_comes_back_the_same(monkeypatch):
    monkeypatch.syspath_prepend("examples/researcher")
    env_id = "game:GuessTheNumber-v0-easy"
    with gem.make("verifiers:verifiers-gem", env=env_id, n=1, seed=3) as env:
        start = env.reset(0)
        (task,) = env.unwrapped._tasks
        with gem.make(env_id) as direct:
            assert start.obs == direct.reset(task.data.seed).obs
            for number in range(1, 100):
                want, got = (each.step(f"\\boxed{{{number}}}") for each in (direct, env))
                assert got.done == want.done
                if want.done:
                    break
                assert got.obs == want.obs
    assert got.info["metrics"] == {"success": float(want.info["success"])}
