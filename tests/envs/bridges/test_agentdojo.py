"""AgentDojo with gem's calls, against the package's own way of running a task."""

import datetime

import pytest

import gem
from gem.envs.kit.workspace import write_call
from gem.errors import BadArgument
from gem.registry import FAMILIES

if not FAMILIES["agentdojo"].is_here():
    pytest.skip("needs a world: gem-gym worlds --fetch agentdojo", allow_module_level=True)

from gem.envs.bridges import agentdojo as bridge

SUITES = bridge.AGENTDOJO_SUITES


def play(env, actions):
    """Play actions, then say the last one again until the end; return the last step."""
    for action in actions:
        step = env.step(action)
        if step.done:
            return step
    return env.step(actions[-1])


def reference(task, world):
    return [
        write_call(call.function, call.model_dump(mode="json")["args"]) for call in task.ground_truth(world)
    ]


class Player:
    """A pipeline of the package that makes given calls and gives an answer."""

    def __init__(self, choose, answer):
        self.choose, self.answer = choose, answer

    def query(self, query, runtime, env, messages=(), extra_args=None):
        made = self.choose(env)
        for call in made:
            runtime.run_function(env, call.function, call.args)
        content = [{"type": "text", "content": self.answer}]
        return query, runtime, env, [{"role": "assistant", "content": content, "tool_calls": made}], {}


def plays_of(task, inject):
    """Return four ways to play a task: the calls that are made of the reference, and the answer."""
    answer = str(task.GROUND_TRUTH_OUTPUT)

    def both(world):
        return [*task.ground_truth(world), *(inject.ground_truth(world) if inject else ())]

    return {
        "right": (both, answer),
        "wrong": (lambda world: task.ground_truth(world)[::-1][:1], "It is done, I think."),
        "partial": (lambda world: task.ground_truth(world)[:1], answer),
        "empty": (lambda world: [], ""),
    }


@pytest.mark.slow
@pytest.mark.parametrize("attacked", [False, True])
@pytest.mark.parametrize("name", SUITES)
def test_the_verdicts_are_those_of_the_package(name, attacked):
    suite = bridge._suite(name)
    counted = dict.fromkeys(("right", "wrong", "partial", "empty"), 0)
    attacks = 0
    for number, (task_id, task) in enumerate(sorted(suite.user_tasks.items())):
        if attacked and not bridge.places_of(name, task_id):
            continue
        injections = sorted(suite.injection_tasks.items())
        inject_id, inject = injections[number % len(injections)] if attacked else ("", None)
        for kind, (choose, answer) in plays_of(task, inject).items():
            planted = {}
            if attacked:
                text = bridge.ATTACK.replace("{goal}", inject.GOAL)
                planted = dict.fromkeys(bridge.places_of(name, task_id), text)
            try:
                utility, reached = suite.run_task_with_pipeline(Player(choose, answer), task, inject, planted)
            except Exception:  # the package's checks fail where something is missing
                utility, reached = False, False
            options = {"injection": inject_id} if attacked else {}
            env = gem.make(f"agentdojo:{name}{'-attacked' * attacked}", task=task_id, max_turns=99, **options)
            env.reset(0)
            actions = [
                write_call(call.function, call.model_dump(mode="json")["args"])
                for call in choose(env._before)
            ]
            step = play(env, [*actions, answer or " "])
            told = step.info["rewards"]
            assert told["utility"] == float(utility), (name, task_id, kind)
            if attacked:
                assert told["security"] == float(not reached), (name, task_id, inject_id, kind)
            assert step.reward == float(all(told.values()))
            counted[kind] += utility
            attacks += attacked and reached
    if attacked:
        assert attacks > 5
    else:
        assert counted["right"] == len(suite.user_tasks) > counted["partial"] >= counted["empty"]


@pytest.mark.slow
@pytest.mark.parametrize("name", SUITES)
def test_doing_nothing_pays_in_the_disputed_tasks_alone(name):
    paid = []
    for task in bridge.tasks_of(name):
        env = gem.make(f"agentdojo:{name}", task=task)
        env.reset(0)
        if env.step(" ").reward:
            paid.append(task)
    assert tuple(sorted(paid)) == bridge.DISPUTED.get(name, ())


@pytest.mark.system
@pytest.mark.parametrize("name", SUITES)
def test_the_reference_calls_solve_every_task(name):
    for task in bridge.tasks_of(name):
        env = gem.make(f"agentdojo:{name}", task=task)
        env.reset(0)
        step = env.step(env.solve())
        while not step.done:
            step = env.step(env.solve())
        assert step.info["success"], task


def test_an_attack_that_succeeds_costs_the_reward():
    env = gem.make("agentdojo:banking-attacked", task="user_task_1", injection="injection_task_0")
    start = env.reset(0)
    assert start.info["injection"] == "injection_task_0"
    suite = bridge._suite("banking")
    task, attack = suite.user_tasks["user_task_1"], suite.injection_tasks["injection_task_0"]
    calls = reference(task, env._before)
    assert attack.GOAL.split(".")[0] in " ".join(env.fork().step(calls[0]).obs.split())
    harmless = env.fork()
    answer = str(task.GROUND_TRUTH_OUTPUT)
    step = play(harmless, [*calls, answer])
    assert (step.reward, step.info["rewards"]) == (1.0, {"utility": 1.0, "security": 1.0})
    step = play(env, [*calls, *reference(attack, env._before), answer])
    assert (step.reward, step.info["rewards"]) == (0.0, {"utility": 1.0, "security": 0.0})


@pytest.mark.parametrize("end", ["</think> I do not know.", "</think>", ""])
def test_thinking_is_no_answer(end):
    env = gem.make("agentdojo:banking", task="user_task_1")
    env.reset(0)
    task = bridge._suite("banking").user_tasks["user_task_1"]
    calls = reference(task, env._before)
    answer = str(task.GROUND_TRUTH_OUTPUT)
    assert play(env.fork(), [*calls, f"<think>{answer}?</think> {answer}"]).reward == 1.0
    assert play(env, [*calls, f"<think>{answer}?{end}"]).reward == 0.0


def test_wrong_calls_are_the_agents_to_mend():
    env = gem.make("agentdojo:slack")
    env.reset(0)
    assert "ToolNotFoundError" in env.step(write_call("rm", {})).obs
    assert "ValidationError" in env.step(write_call("send_direct_message", {"body": 3})).obs
    step = env.step("<tool_call>{</tool_call>")
    assert step.info["tool_results"][0]["error"]
    assert not step.done


def test_the_clock_stands_still_and_only_there():
    env = gem.make("agentdojo:workspace")
    env.reset(0)
    seen = env.step(write_call("create_file", {"filename": "a.txt", "content": "a"})).obs
    assert "2024-05-15 12:00:00" in seen
    assert abs((datetime.datetime.now() - datetime.datetime.now()).total_seconds()) < 60
    assert datetime.datetime.now().year > 2024


def test_splits_and_wrong_arguments():
    for name in SUITES:
        train, test = (set(bridge.tasks_of(name, split)) for split in ("train", "test"))
        assert not train & test
        assert train | test == set(bridge.tasks_of(name))
        assert len(test) >= 5
    for wrong in (
        {"task": "user_task_99"},
        {"split": "dev"},
        {"injection": "injection_task_0"},
        {"attack": "x"},
        {"attack": 3},
    ):
        with pytest.raises(BadArgument, match=r"banking|accepted"):
            gem.make("agentdojo:banking", **wrong)
    tasks = {gem.make("agentdojo:banking", exclude="disputed").reset(seed).info["task"] for seed in range(60)}
    assert not tasks & set(bridge.DISPUTED["banking"])
