"""The multi-turn categories of the function-calling leaderboard, against the package's own checker."""

import json
from importlib import import_module

import pytest

import gem
from gem.envs.bridges.specs import BFCL_NAMES
from gem.errors import BadArgument
from gem.registry import FAMILIES
from gem.rollout.conversation import Conversation

if not FAMILIES["bfcl"].is_here():
    pytest.skip("needs a world: gem-gym worlds --fetch bfcl", allow_module_level=True)

PACKAGE = "bfcl_eval.eval_checker.multi_turn_eval"
BASE = "bfcl:multi_turn_base"
FIRST = "multi_turn_base_0"


def begin(name="multi_turn_base", number=0):
    """Return an environment at the beginning of one conversation, and what was said."""
    env = gem.make(f"bfcl:{name}", task=f"{name}_{number}")
    return env, env.reset(0).obs


def play(env, steps):
    """Return the last step of a conversation; `steps` has the steps of each turn, each a list of calls."""
    for turn in steps:
        for each in (*turn, None):
            step = env.step("That is all." if each is None else f"[{', '.join(each)}]")
            if step.done:
                return step
    raise AssertionError("the conversation has not ended")


def test_the_reference_serves_the_user_and_leaving_out_a_turn_does_not():
    for skipped, reward in ((None, 1.0), (0, 0.0), (3, 0.0)):
        env, _ = begin()
        step = None
        while not (step and step.done):
            action = "I will not." if env.turn == skipped else env.solve()
            step = env.step(action)
        assert step.reward == reward
        assert step.info["turns_right"] == (4 if skipped is None else skipped)


def test_tool_calls_in_json_are_the_same_as_a_list():
    listed, _ = begin()
    native, _ = begin()
    assert "cd" in {each.name for each in native.tool_specs}
    assert native.tool_specs[0].schema["type"] == "object"
    call = json.dumps({"name": "cd", "arguments": {"folder": "document"}})
    assert native.step(f"<tool_call>{call}</tool_call>").obs == listed.step("[cd(folder='document')]").obs
    assert (
        listed.step("[ls()]").obs
        == '{"current_directory_content": ["final_report.pdf", "previous_report.pdf"]}'
    )


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ("[cd(folder=open('x'))]", "could not be read"),
        ("[__import__('os').getcwd()]", "could not be read"),
        ("[cd(**{'folder': 'document'})]", "could not be read"),
        ("[" + "(" * 5000 + "]", "could not be read"),
        ("[" + "-" * 15000 + "1]", "could not be read"),
        ("[_load_scenario(scenario={})]", "There is no function '_load_scenario'"),
        ("[cdd(folder='document')]", "Did you mean 'cd'?"),
        ("[cd()]", "Error during execution"),
        ("<tool_call>{</tool_call>", "no JSON"),
    ],
)
def test_what_is_no_call_of_a_function_is_told_and_changes_nothing(action, said):
    env, _ = begin()
    text, reward, over, _, info = env.step(action)
    assert said in text
    assert (reward, over, info.get("legal", True)) == (0.0, False, action == "[cd()]")
    while not over:
        _, reward, over, *_ = env.step(env.solve())
    assert reward == 1.0


def test_arithmetic_that_would_not_end_is_refused():
    env = next(e for e in (begin(number=n)[0] for n in range(200)) if "MathAPI" in e._row["involved_classes"])
    for call in (
        "power(base=9, exponent=999999999)",
        "round_number(number=5, decimal_places=-999999999)",
        "logarithm(value=3.0, base=2.0, precision=999999999)",
        "square_root(2.0, 999999999)",
    ):
        assert "too large" in env.step(f"[{call}]").obs
    assert env.step("[power(base=2, exponent=10)]").obs == '{"result": 1024}'


def test_folders_that_are_copied_without_end_fail_the_conversation():
    env, _ = begin()
    step = env.step("[" + ", ".join(f"cp(source='document', destination='d{n}')" for n in range(3)) + "]")
    while not step.done:
        step = env.step("[cp(source='document', destination='document'), cd(folder='document')]")
    assert step.info["stop"] == "failed"
    assert env._steps < 20 or "more than 20 steps" in step.info["why"]


def test_a_function_comes_late_where_it_is_held_back():
    env, text = begin("multi_turn_miss_func")
    assert '"name": "sort"' not in text
    step = env.step(env.solve())
    while env.turn < 3:
        assert '"name": "sort"' not in step.obs
        step = env.step(env.solve())
    assert '"name": "sort"' in step.obs
    while not step.done:
        step = env.step(env.solve())
    assert step.reward == 1.0


def test_a_late_function_is_offered_natively_from_its_turn_on():
    offered = []

    class Lenient(import_module("gem.envs.bridges.bfcl").BfclEnv):  # so that it goes on without a call
        def _references(self):
            return []

    with Conversation(Lenient("multi_turn_miss_func", task="multi_turn_miss_func_0"), 0) as talk:
        while talk.asks:
            offered.append("sort" in {each.name for each in talk.asks[0].tools})
            talk.answer("I cannot.")
    assert offered == [False] * 3 + [True] * (len(offered) - 3)
    assert len(offered) > 3
    assert "sort" in {each.name for each in talk.episode.tools()}


def test_a_call_without_brackets_is_read_and_prose_is_not():
    env, _ = begin()
    assert "document" in env.step("cd(folder='document')").obs
    assert env.step("I am done (I hope).").done


def test_forks_go_on_alike_and_apart():
    env, _ = begin()
    env.step("[cd(folder='document')]")
    twin = env.fork()
    assert env.step("[pwd()]") == twin.step("[pwd()]")
    env.step("[mkdir(dir_name='temp')]")
    assert "temp" not in twin.step("[ls()]").obs


def test_seeds_go_through_the_tasks_of_a_split_and_splits_share_none():
    tasks = {}
    for split in ("train", "test"):
        env = gem.make(BASE, split=split)
        tasks[split] = [env.reset(seed) and env.task for seed in range(200)]
    train, test = (set(tasks[split]) for split in ("train", "test"))
    assert len(train) + len(test) == 200
    assert 30 <= len(test) <= 50
    assert not train & test
    (number,) = {each.rpartition("_")[2] for each in [min(test)]}
    with pytest.raises(BadArgument, match="is a test task"):
        gem.make("bfcl:multi_turn_miss_param", task=f"multi_turn_miss_param_{number}", split="train")
    with pytest.raises(BadArgument, match="Did you mean"):
        gem.make(BASE, task="multi_turn_bas_0")


def test_disputed_conversations_can_be_left_out():
    env = gem.make("bfcl:multi_turn_miss_func", exclude="disputed")
    tasks = {env.reset(seed) and env.task for seed in range(198)}
    assert len(tasks) == 198
    assert not tasks & {"multi_turn_miss_func_49", "multi_turn_miss_func_187"}


PLAYS = {
    "right": lambda calls: calls,
    "reversed": lambda calls: calls[::-1],
    "partial": lambda calls: calls[:-1],
    "empty": lambda calls: [],
    "twice": lambda calls: [*calls, *calls[-1:]],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BFCL_NAMES)
def test_the_verdicts_are_those_of_the_package(name):
    from gem.envs.bridges import bfcl  # first: it makes the package importable

    checker, utils = (import_module(f"{PACKAGE}.multi_turn_{part}") for part in ("checker", "utils"))
    right = dict.fromkeys(PLAYS, 0)
    for task, row in bfcl.read_rows(name).items():
        wanted = bfcl.read_references(name)[task]
        for kind, change in PLAYS.items():
            steps = [[change(turn)] if change(turn) else [] for turn in wanted]
            theirs = checker.multi_turn_checker(steps, wanted, row, name, kind)["valid"]
            for made in [key for key in vars(utils) if key.endswith("_instance")]:
                del vars(utils)[made]
            env = gem.make(f"bfcl:{name}", task=task)
            env.reset(0)
            assert play(env, steps).reward == float(theirs), (task, kind)
            right[kind] += theirs
    assert right["right"] == 200
    assert right["empty"] == 0
    assert 0 < right["reversed"] < 200
