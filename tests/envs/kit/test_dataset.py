import pickle

import pytest

import gem
from gem.content import Text
from gem.core import Env
from gem.envs.kit.dataset import DatasetEnv, tasks_of
from gem.errors import BadArgument, NoVerdict
from gem.graders.base import Score
from gem.parsing import boxed
from gem.record import StopReason
from gem.tasks.sources import load


class Nearness:
    """A grader that gives part of the score for a number that is nearly right."""

    def __call__(self, answer, reference):
        found = boxed(answer)
        if found is None:
            return Score(0.0, False, None, "no box")
        if found == "break":
            raise NoVerdict("the grader's machine is down")
        off = abs(int(found) - reference)
        return Score(max(0.0, 1 - off / 10), off == 0, found, f"{off} off", {"off": off})


def env(n=10, **keywords):
    rows = [{"problem": f"What is {i} + 1?", "answer": i + 1} for i in range(n)]
    return DatasetEnv(load(rows), Nearness(), **keywords)


@pytest.mark.parametrize(
    ("tasks", "grader", "why"),
    [
        ([{"problem": "1?", "answer": 1}], Nearness(), r"tasks is \[.*accepted: a TaskSet"),
        ("tasks.csv", Nearness(), "tasks is 'tasks.csv'; accepted: a TaskSet"),
        (load([{"problem": "1?", "answer": 1}]), "math", "grader is 'math'; accepted: a function"),
    ],
)
def test_what_is_no_task_set_and_no_grader_is_refused_at_once(tasks, grader, why):
    with pytest.raises(BadArgument, match=why):
        DatasetEnv(tasks, grader)


def test_seeds_are_positions_of_a_walk_that_sees_every_task_once_per_epoch():
    one = env(10)
    first = [one.reset(seed=seed).info["task"] for seed in range(10)]
    second = [one.reset(seed=seed).info["task"] for seed in range(10, 20)]
    assert sorted(first) == sorted(second) == sorted(map(str, range(10)))
    assert first != second
    assert one.epoch == 1
    assert [env(10, order_seed=1).reset(seed=s).info["task"] for s in range(10)] != first


def test_a_chain_of_resets_goes_through_many_tasks():
    one = env(50)
    one.reset(seed=3)
    assert (
        len({one.reset().info["task"] for _ in range(50)}) > 25
    )  # drawn, as each seed is a hash of the last


def test_a_task_can_be_chosen():
    one = env(10)
    start = one.reset(idx=7)
    assert start.obs == "What is 7 + 1?\n\nGive your final answer inside \\boxed{}."
    assert one.answer == one.task.reference == 8
    assert len(one.dataset) == 10
    for wrong in (-1, 10, 1.5, "7"):
        with pytest.raises(BadArgument, match=r"idx is .+; dataset has tasks 0 to 9"):
            one.reset(idx=wrong)


def test_one_attempt_ends_the_episode_either_way():
    one = env()
    one.reset(idx=3)
    step = one.step("so \\boxed{4}")
    assert (step.reward, step.terminated, step.info["stop"]) == (1.0, True, StopReason.SOLVED)
    assert (step.info["correct"], step.info["success"], step.info["parsed_action"]) == (True, True, "4")
    one.reset(idx=3)
    step = one.step("\\boxed{9}")
    assert (step.reward, step.terminated, step.info["stop"]) == (0.5, True, StopReason.FAILED)
    assert (step.info["success"], step.info["off"], step.info["why"]) == (False, 5, "5 off")


def test_an_unreadable_answer_earns_nothing_or_is_fined():
    for fine, reward in ((False, 0.0), (True, -0.1)):
        one = env(use_format_error_reward=fine)
        one.reset(seed=0)
        step = one.step("I would rather not say.")
        assert (step.reward, step.info["stop"], step.info["parsed_action"]) == (reward, "unreadable", None)
        assert "could not be read" in step.obs


def test_attempts_are_told_counted_and_paid_by_what_they_add():
    one = env(max_attempts=4, retry_discount=0.5)
    one.reset(idx=3)
    steps = [one.step(f"\\boxed{{{n}}}") for n in (9, 5)]
    assert [step.reward for step in steps] == [0.5, 0.0]  # 0.9 at half its worth adds nothing to 0.5
    assert [step.done for step in steps] == [False, False]
    assert "not right. You may answer 3 times more." in steps[0].obs
    assert one.step("?").obs.endswith("You may answer once more.")
    last = one.step("\\boxed{4}")
    assert (last.reward, last.info["attempt"], last.info["success"]) == (0.0, 4, True)


def test_the_return_is_the_worth_of_the_best_attempt():
    one = env(max_attempts=3, retry_discount=0.9)
    one.reset(idx=3)
    rewards = [one.step(f"\\boxed{{{n}}}").reward for n in (12, 8, 4)]
    assert rewards == pytest.approx([0.2, 0.9 * 0.6 - 0.2, 0.81 - 0.54])
    assert sum(rewards) == pytest.approx(0.81)


def test_the_last_attempt_ends_the_episode():
    one = env(max_attempts=2)
    one.reset(idx=3)
    assert not one.step("\\boxed{30}").done
    last = one.step("\\boxed{40}")
    assert (last.terminated, last.info["success"], last.info["stop"]) == (True, False, "failed")


def test_an_id_made_with_more_attempts_states_more_turns():
    one = gem.make("math:Arithmetic-v0-easy", max_attempts=3)
    assert one.spec.max_turns == 3


def test_a_grader_that_fails_on_its_own_gives_no_verdict():
    one = env()
    one.reset(seed=0)
    with pytest.raises(NoVerdict):
        one.step("\\boxed{break}")


def test_a_guess_is_well_formed_and_most_often_wrong():
    one = env(50)
    guesses = []
    for seed in range(50):
        one.reset(seed=seed)
        guesses.append(one.step(one.sample_random_action()))
    assert all(step.info["parsed_action"] for step in guesses)
    assert sum(step.info["correct"] for step in guesses) < 10


def test_twins_share_the_tasks_and_nothing_else():
    one = env(10, max_attempts=3)
    one.reset(seed=1)
    one.step("\\boxed{99}")
    twin = one.fork()
    assert twin.tasks is one.tasks
    twin.step("\\boxed{98}")
    assert (one.attempt, twin.attempt) == (1, 2)
    twin.reset(seed=2)
    assert one.task.id != twin.task.id


def test_a_twin_elsewhere_has_the_same_future(tmp_path):
    path = tmp_path / "set.jsonl"
    path.write_text("".join(f'{{"problem": "{i} + 1?", "answer": {i + 1}}}\n' for i in range(500)))
    one = DatasetEnv(load(path), Nearness(), max_attempts=2)
    one.reset(seed=5)
    one.step("\\boxed{7}")
    sent = pickle.dumps(one)
    assert len(sent) < 3000  # the path, not the rows
    assert pickle.loads(sent).step("\\boxed{8}") == one.step("\\boxed{8}")


def test_questions_with_parts_keep_them():
    one = DatasetEnv(Parts(), Nearness())
    obs = one.reset(seed=0).obs
    assert obs == (Text("one"), Text("Give your final answer inside \\boxed{}."))


class Parts:
    """A task set of a user's own."""

    name = "parts"

    def __len__(self):
        return 1

    def __getitem__(self, index):
        from gem.tasks.base import Task

        return Task("a", (Text("one"),), 1)

    def order(self, seed, epoch=0):
        return [0]


def test_a_users_own_task_set_is_taken():
    one = DatasetEnv(tasks_of(None, None, Parts(), "problem", "answer"), Nearness())
    assert isinstance(one, Env)
    assert one.reset(seed=12).info == {"task": "a"}


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"max_attempts": 0}, "max_attempts is 0"),
        ({"max_attempts": 1.5}, "max_attempts is 1.5"),
        ({"retry_discount": 1.1}, "retry_discount is 1.1"),
        ({"retry_discount": float("nan")}, "retry_discount is nan"),
        ({"order_seed": -1}, "seed is -1"),
    ],
)
def test_what_makes_no_environment_is_refused(keywords, said):
    with pytest.raises(BadArgument, match=said):
        env(**keywords)


@pytest.mark.parametrize("name", [None, ""])
def test_data_is_named_or_given(name):
    with pytest.raises(BadArgument, match="neither"):
        tasks_of(name, None, None, "problem", "answer")
