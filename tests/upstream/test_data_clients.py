"""Clients that subclass the data-set environments, as trainers do that were written for upstream."""

import json
import multiprocessing
import pickle
import random

import pytest

import gem
from gem.core import Env
from gem.envs.code_env import CodeEnv
from gem.envs.math_env import MathEnv
from gem.envs.qa_env import QaEnv
from gem.envs.registration import ENV_REGISTRY
from gem.utils.constants import TERMINAL_STATE
from gem.utils.parsing import extract_code_from_model, extract_last_boxed_answer

SUMS = [{"problem": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(6)]
NAMES = [{"question": f"Who is number {n}?", "answer": [f"Ann {n}", f"Anna {n}"]} for n in range(5)]
DOUBLE = [
    {
        "problem": "Print twice the number.",
        "tests": json.dumps({"inputs": ["2\n", "5\n"], "outputs": ["4\n", "10\n"]}),
    },
    {"problem": "Print three times the number.", "tests": {"inputs": ["2\n"], "outputs": ["6\n"]}},
]


def metrics(valid, reward):
    return {
        "metrics": {"action_is_valid": valid, "success": reward > 0},
        "metrics_agg_mode": {"success": "last"},
    }


class Store:
    """A store of rows somewhere else, asked through a handle that is no sequence."""

    def __init__(self, rows):
        self.rows, self.at = rows, 0

    def get(self, seed):
        if self.at == len(self.rows):
            return None
        self.at += 1
        return self.rows[self.at - 1]


class RemoteMath(MathEnv):
    """Never calls the constructor of MathEnv: its rows come from a store, its grading from a process pool."""

    def __init__(self, rows, question_key="problem", answer_key="answer", seed=0, **_):
        Env.__init__(self)
        self.seed = seed
        self.question_key = question_key
        self.answer_key = answer_key
        self.dataset = Store(rows)
        self.idx = 0
        self.epoch = 0

    def reset(self, seed=None):
        Env.reset(self, seed)
        row = self.dataset.get(seed)
        if row is None:
            return None, None
        self.first_obs = row[self.question_key]
        self.answer = row[self.answer_key]
        self.idx += 1
        return self.first_obs, {"env_instruction": ""}

    def step(self, action):
        answer = extract_last_boxed_answer(action)
        reward = 0
        if answer is not None:
            reward = 1.0 if self.check_correct(answer, self.answer) else 0
        return TERMINAL_STATE, reward, True, True, metrics(answer is not None, reward)


class WalkingQa(QaEnv):
    """Walks the rows by itself and shuffles them after each epoch."""

    def __init__(self, dataset=None, question_key="question", seed=0, extract_boxed=False, **_):
        super().__init__(
            dataset_name="", split=None, dataset=dataset, question_key=question_key, seed=seed,
            extract_boxed=extract_boxed, load_from_cache_file=True,
        )  # fmt: skip

    def reset(self, seed=None):
        Env.reset(self, seed)
        if seed is not None:
            self.idx = random.Random(seed).randint(0, len(self.dataset) - 1)
        elif self.idx == len(self.dataset):
            self.epoch += 1
            self.dataset = self.dataset.shuffle(seed=self.seed + self.epoch)
            self.idx = 0
        row = self.dataset[self.idx]
        self.first_obs = row[self.question_key]
        self.answer = row[self.answer_key]
        self.idx += 1
        return self.first_obs, {}

    def step(self, action):
        answer = self.extractor(action)
        reward = 0.0 if answer is None else float(self.check_correct(answer, self.answer))
        return TERMINAL_STATE, reward, True, True, metrics(answer is not None, reward)


class JudgingCode(CodeEnv):
    """Judges bare code by the base class, and reports in its own way."""

    def step(self, action):
        code = extract_code_from_model(action)
        reward = 0.0 if code is None else float(self._check_correct(code))
        return TERMINAL_STATE, reward, True, True, metrics(code is not None, reward)


# -- mathematics


def test_a_subclass_that_never_calls_the_constructor_plays():
    env = RemoteMath(SUMS, seed=3)
    obs, info = env.reset(seed=7)
    assert (obs, info, env.answer, env.idx, env.epoch) == (
        "What is 0 + 1?",
        {"env_instruction": ""},
        "1",
        1,
        0,
    )
    obs, reward, terminated, truncated, info = env.step(action="so \\boxed{1}")
    assert (reward, terminated, truncated, info["metrics"]["success"]) == (1.0, True, True, True)


@pytest.mark.parametrize(
    ("action", "reward", "valid"), [("\\boxed{1}", 1, True), ("\\boxed{2}", 0, True), ("1", 0, False)]
)
def test_its_own_step_decides(action, reward, valid):
    env = RemoteMath(SUMS)
    env.reset(seed=0)
    step = env.step(action)
    assert (step.reward, step.info["metrics"]["action_is_valid"]) == (reward, valid)


def test_the_end_of_the_data_is_none_and_none():
    env = RemoteMath(SUMS[:1])
    assert env.reset(seed=0)[0] == SUMS[0]["problem"]
    assert tuple(env.reset(seed=1)) == (None, None)


def test_it_is_registered_by_the_class_and_made_with_keywords_it_does_not_declare():
    gem.register("roll_like_math", RemoteMath)
    try:
        env = gem.make(env_id="roll_like_math", rows=SUMS, seed=5, mode="train", group_size=8)
        assert (env.seed, env.env_id) == (5, "roll_like_math")
        assert env.reset()[0] == SUMS[0]["problem"]
    finally:
        del ENV_REGISTRY["roll_like_math"]


@pytest.mark.parametrize("answer", ["4", "\\boxed{4}", "4.0", "$4$"])
@pytest.mark.parametrize("truth", ["4", "\\boxed{4}"])
def test_check_correct_takes_bare_and_boxed(answer, truth):
    assert MathEnv.check_correct(answer, truth)
    assert not MathEnv.check_correct("5", truth)


def test_check_correct_can_be_sent_to_a_pool():
    check = RemoteMath(SUMS).check_correct
    assert pickle.loads(pickle.dumps(check)) is check
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(check, ("\\frac{1}{2}", "1/2")).get(timeout=60)


def test_the_attributes_of_the_base_class_are_there_and_count():
    env = MathEnv(dataset=SUMS)
    assert (env.idx, env.epoch, env.question_key, env.answer_key) == (0, 0, "problem", "answer")
    obs, _ = env.reset(idx=2)
    assert (env.first_obs, env.answer, env.idx) == (obs, "3", 3)
    assert env.dataset[env.idx - 1]["answer"] == env.answer


def test_an_answer_that_is_assigned_is_the_one_compared_with():
    env = MathEnv(dataset=SUMS)
    env.reset(idx=0)
    env.answer = "77"
    assert env.solve() == "\\boxed{77}"
    assert env.step("\\boxed{77}").reward == 1
    env.reset(idx=0)
    assert env.answer == "1"


@pytest.mark.parametrize(
    "wrap", [list, tuple, lambda rows: pytest.importorskip("datasets").Dataset.from_list(list(rows))]
)
def test_a_data_set_that_is_assigned_is_played(wrap):
    env = MathEnv(dataset=SUMS)
    env.dataset = wrap({"problem": f"{n}?", "answer": str(n)} for n in (70, 71, 72))
    assert env.reset(idx=2)[0].startswith("72?")
    assert env.step("\\boxed{72}").reward == 1
    assert len(env.dataset) == 3


def test_rows_are_shuffled_and_chosen_as_those_of_a_data_set():
    rows = MathEnv(dataset=SUMS).dataset
    shuffled = rows.shuffle(seed=1)
    assert [row["answer"] for row in shuffled] != [row["answer"] for row in rows]
    assert sorted(row["answer"] for row in shuffled) == sorted(row["answer"] for row in rows)
    assert [row["answer"] for row in shuffled] == [row["answer"] for row in rows.shuffle(seed=1)]
    assert [row["answer"] for row in rows.select([4, 0])] == ["5", "1"]
    assert rows[-1] == SUMS[-1]
    assert rows[1:3] == SUMS[1:3]
    with pytest.raises(IndexError):
        rows[6]


def test_a_shuffled_view_that_is_assigned_back_is_the_new_order():
    env = MathEnv(dataset=SUMS)
    env.dataset = env.dataset.select([5, 3])
    assert env.reset(idx=0)[0].startswith("What is 5")
    assert len(env.dataset) == 2


def test_reset_without_a_seed_goes_through_all_rows_once_per_epoch():
    env = MathEnv(dataset=SUMS)
    for _ in range(2):
        assert sorted(env.reset()[1]["task"] for _ in SUMS) == [str(n) for n in range(6)]


def test_idx_that_is_assigned_lets_reset_walk_on_from_there():
    env = MathEnv(dataset=SUMS)
    env.idx = 4
    walked = [(env.reset()[1]["task"], env.idx, env.epoch) for _ in range(4)]
    assert walked == [("4", 5, 0), ("5", 6, 0), ("0", 1, 1), ("1", 2, 1)]
    assert env.reset(seed=3)[1]["task"] == MathEnv(dataset=SUMS).reset(seed=3)[1]["task"]


def test_a_position_that_is_not_there_is_refused():
    env = MathEnv(dataset=SUMS)
    env.idx = -3
    with pytest.raises(ValueError, match="idx is -3"):
        env.reset()


@pytest.mark.parametrize("idx", [1.5, "0", None, True])
def test_a_position_that_is_no_number_is_refused(idx):
    with pytest.raises(ValueError, match="accepted: the number of a task"):
        MathEnv(dataset=SUMS).idx = idx


def test_a_subclass_that_judges_by_its_own_is_asked():
    class Strict(MathEnv):
        @staticmethod
        def check_correct(model_answer, gt_answer):
            return model_answer == f"exactly {gt_answer}"

    env = Strict(dataset=SUMS)
    env.reset(idx=0)
    assert env.step("\\boxed{1}").reward == 0
    env.reset(idx=0)
    step = env.step("\\boxed{exactly 1}")
    assert (step.reward, step.info["correct"]) == (1, True)


@pytest.mark.parametrize("use_mp", [True, False])
def test_format_errors_are_fined_where_that_is_asked_for(use_mp):
    env = MathEnv(dataset=SUMS, use_format_error_reward=True, use_mp=use_mp)
    env.reset(idx=0)
    assert env.step("one").reward == -0.1


def test_a_name_beside_rows_is_a_label():
    env = MathEnv(dataset_name="my rows", dataset=SUMS)
    assert env.tasks.name == "my rows"
    assert env.reset(idx=0)[0].startswith("What is 0")


def test_state_is_saved_and_set_on_another_of_the_same_making():
    env = MathEnv(dataset=SUMS)
    env.reset(idx=3)
    other = env.spawn()
    other.set_state(env.get_state())
    assert (other.answer, other.idx) == ("4", 4)
    assert env.spawn(same_state=True).step("\\boxed{4}").reward == 1


def test_a_handle_is_shared_by_forks_and_not_copied():
    env = RemoteMath(SUMS)
    env.reset(seed=0)
    twin = env.fork()
    assert twin.dataset is env.dataset
    assert (twin.answer, twin.idx) == ("1", 1)


# -- questions


@pytest.mark.parametrize(
    "make_rows", [list, lambda rows: pytest.importorskip("datasets").Dataset.from_list(rows)]
)
def test_a_subclass_walks_rows_by_itself_and_shuffles_after_each_epoch(make_rows):
    env = WalkingQa(make_rows(NAMES), seed=7)
    first = [env.reset()[0] for _ in NAMES]
    assert [obs.partition("?")[0][-1] for obs in first] == list("01234")
    assert (env.idx, env.epoch) == (5, 0)
    second = [env.reset()[0] for _ in NAMES]
    assert sorted(second) == sorted(first)
    assert env.epoch == 1


def test_its_first_observation_is_the_whole_prompt():
    env = WalkingQa(NAMES)
    obs, _ = env.reset(seed=1)
    assert obs == env.first_obs
    assert "<answer>" in obs


@pytest.mark.parametrize(
    ("boxed", "action", "reward", "valid"),
    [
        (False, "<answer>the Ann 0.</answer>", 1, True),
        (False, "<answer>Anna 0</answer>", 1, True),
        (False, "<answer>Bob</answer>", 0, True),
        (False, "\\boxed{Ann 0}", 0, False),
        (True, "\\boxed{ann 0}", 1, True),
        (True, "<answer>Ann 0</answer>", 0, False),
    ],
)
def test_extractor_and_check_correct_judge(boxed, action, reward, valid):
    env = WalkingQa(NAMES, extract_boxed=boxed)
    env.reset()
    step = env.step(action)
    assert (step.reward, step.info["metrics"]["action_is_valid"]) == (reward, valid)


def test_an_extractor_that_is_assigned_is_used():
    env = QaEnv(dataset=NAMES)
    env.extractor = lambda action: action.rpartition("Answer: ")[2] or None
    env.reset(idx=1)
    step = env.step("Answer: Ann 1")
    assert (step.reward, step.info["parsed_action"]) == (1, "Ann 1")


def test_a_check_of_its_own_is_used():
    class Loose(QaEnv):
        @staticmethod
        def check_correct(model_answer, gt_answer):
            return model_answer in gt_answer[0]

    env = Loose(dataset=NAMES)
    env.reset(idx=1)
    assert env.step("<answer>Ann</answer>").reward == 1


def test_check_correct_is_callable_on_the_class():
    assert QaEnv.check_correct("the ann 1", ["Ann 1", "Anna 1"])
    assert not QaEnv.check_correct("Bob", "Ann 1")


@pytest.mark.parametrize("key", ["question", "problem"])
def test_questions_stand_in_the_column_question_or_else_problem(key):
    env = QaEnv(dataset=[{key: "Who?", "answer": "Ann"}])
    assert env.question_key == key
    assert env.reset(seed=0)[0].startswith("Who?")
    assert env.dataset[0][key].startswith("Who?")


# -- programs


@pytest.mark.parametrize(
    ("action", "reward", "valid"),
    [
        ("```python\nprint(int(input()) * 2)\n```", 1, True),
        ("```python\nprint(3)\n```", 0, True),
        ("```py\nprint(int(input()) * 2)\n```", 1, True),
        ("no program", 0, False),
    ],
)
def test_bare_code_is_judged_by_the_base_class(action, reward, valid):
    env = JudgingCode(
        dataset_name="taco", dataset=DOUBLE, max_workers=5, max_tests=12, verbose=False, sandbox_type="none"
    )
    env.reset(idx=0)
    step = env.step(action)
    assert (step.reward, step.info["metrics"]["action_is_valid"]) == (reward, valid)


def test_data_of_any_name_is_taken():
    env = CodeEnv(dataset_name="of mine", dataset=DOUBLE)
    env.reset(idx=1)
    assert env.step("```python\nprint(int(input()) * 3)\n```").reward == 1


def test_a_check_of_code_of_its_own_is_asked():
    class Lenient(CodeEnv):
        def _check_correct(self, model_code):
            return "print" in model_code

    env = Lenient(dataset=DOUBLE)
    env.reset(idx=0)
    assert env.step("```python\nprint('anything')\n```").reward == 1
    env.reset(idx=0)
    assert env.step("nothing").reward == 0


def test_tests_that_are_assigned_as_the_answer_are_run():
    env = CodeEnv(dataset=DOUBLE)
    env.reset(idx=0)
    env.answer = {"inputs": ["1\n"], "outputs": ["one\n"]}
    assert env.step("```python\nprint('one')\n```").reward == 1


@pytest.mark.parametrize(
    "program",
    [
        "# sys.exit(0) ends it\nprint(int(input()) * 2)",
        "import threading\nprint(int(input()) * 2)",
        "import sys\nprint(int(input()) * 2)\nsys.exit(0)",
    ],
)
def test_honest_programs_are_not_refused_by_words_in_their_source(program):
    env = CodeEnv(dataset=DOUBLE)
    env.reset(idx=0)
    assert env.step(f"```python\n{program}\n```").reward == 1


def test_a_later_data_set_brings_its_own_tests():
    env = CodeEnv(dataset=DOUBLE)
    env.reset(idx=0)
    assert env.tests
    env.dataset = DOUBLE[1:]
    env.reset(idx=0)
    assert env.step("```python\nprint(int(input()) * 3)\n```").reward == 1
