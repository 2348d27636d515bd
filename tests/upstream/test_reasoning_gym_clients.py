"""Clients of the ``rg:`` family: trainers that make, wrap and subclass, and scripts beside the package."""

import random

import pytest

import gem
from gem.wrappers.wrapper_factory import get_wrapper_fns

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")
reasoning_gym = pytest.importorskip("reasoning_gym")

from gem.envs.reasoning_gym import ReasoningGymEnv

NAME = "chain_sum"


class Tagged(ReasoningGymEnv):
    """Shows the question in its own words and pays answers in tags alone."""

    def __init__(self, name=NAME, size=20, seed=42):
        super().__init__(name=name, size=size, seed=seed)

    def reset(self, seed=None):
        obs, info = super().reset(seed)
        return f"Question: {obs}", {**info, "env_instruction": ""}

    def step(self, action):
        text = action.partition("<answer>")[2].partition("</answer>")[0]
        reward = self.dataset.score_answer(text, {"answer": self.answer, "metadata": {}})
        return "", reward, True, True, {"parsed_action": text}


def test_a_pool_with_seeds_of_its_own_is_made_by_keyword():
    pool = [gem.make(env_id=f"rg:{NAME}", seed=233 + idx) for idx in range(4)]
    pool = [wrapper(env) for env in pool for wrapper in get_wrapper_fns("episode_tracking", tokenizer=None)]
    prompts = [env.reset()[0] for env in pool]
    assert len(set(prompts)) == 4
    obs, reward, terminated, truncated, _ = pool[0].step(pool[0].solve())
    assert (isinstance(obs, str), reward, terminated, truncated) == (True, 1.0, True, False)


def test_a_subclass_shows_and_scores_in_its_own_way():
    env = Tagged()
    obs, info = env.reset(seed=1)
    assert obs.startswith("Question: ")
    assert info["env_instruction"] == ""
    assert env.step(f"<answer>{env.answer}</answer>").reward == 1.0
    env.reset(seed=1)
    assert env.step("<answer>nothing</answer>").reward < 1.0


def test_a_box_and_tags_are_both_read():
    env = gem.make(f"rg:{NAME}")
    for form in ("\\boxed{%s}", "<answer>%s</answer>"):
        env.reset(seed=3)
        assert env.step(form % env.answer).reward == 1.0


def test_keywords_configure_the_data_set_where_upstream_dropped_them():
    env = gem.make(f"rg:{NAME}", min_terms=6, max_terms=6, size=10)
    sums = env.reset(seed=0)[0]
    assert sums.count(" + ") + sums.count(" - ") == 5


def test_questions_are_rows_with_a_scorer():
    env = gem.make(f"rg:{NAME}", size=5)
    entry = env.dataset[2]
    obs, _ = env.reset(idx=2)
    assert entry["question"].strip() in obs
    assert (env.answer, len(env.dataset)) == (entry["answer"], 5)
    assert env.dataset.score_answer(entry["answer"], entry) == 1.0
    assert len([row["question"] for row in env.dataset]) == 5


def test_a_data_set_of_the_packages_own_making_is_played_whole():
    data = reasoning_gym.create_dataset(NAME, size=4, seed=7)
    env = gem.make(f"rg:{NAME}", dataset=data)
    for idx in range(4):
        obs, _ = env.reset(idx=idx)
        assert data[idx]["question"].strip() in obs
        assert env.step(f"\\boxed{{{data[idx]['answer']}}}").reward == 1.0
    assert env.size == 4


def test_a_data_set_may_be_assigned_and_walked():
    data = reasoning_gym.create_dataset("leg_counting", size=3, seed=1)
    env = ReasoningGymEnv("leg_counting")
    env.dataset = data
    env.idx = 1
    walked = []
    for _ in range(4):
        obs, _ = env.reset()
        walked.append(next(i for i in range(3) if data[i]["question"].strip() in obs))
    assert walked == [1, 2, 0, 1]
    assert env.fork().dataset is data


@pytest.mark.parametrize("idx", [-1, 5, 10**9])
def test_a_question_that_is_not_there_is_refused(idx):
    with pytest.raises(ValueError, match="questions 0 to 4"):
        gem.make(f"rg:{NAME}", size=5).reset(idx=idx)


@pytest.mark.parametrize("name", ["knight_swap", "codeio"])
def test_the_package_is_left_as_it_was_for_whoever_uses_it_beside_us(name):
    import sys

    env = gem.make(f"rg:{name}")
    env.reset(seed=1)
    env.step("\\boxed{x}")
    module = vars(sys.modules[type(env._generator).__module__])
    assert not {"frozenset", "print"} & set(module)


def test_neither_global_generator_is_touched():
    numpy = pytest.importorskip("numpy")
    kept = random.getstate(), str(numpy.random.get_state())
    env = gem.make("rg:pool_matrix")
    env.reset(seed=1)
    env.step("\\boxed{x}")
    assert (random.getstate(), str(numpy.random.get_state())) == kept


def test_an_answer_that_is_assigned_is_scored_against():
    env = gem.make(f"rg:{NAME}")
    env.reset(seed=0)
    env.answer = "123456"
    assert env.step("\\boxed{123456}").reward == 1.0


def test_state_is_saved_and_set():
    env = gem.make(f"rg:{NAME}")
    env.reset(seed=5)
    other = env.spawn()
    other.set_state(env.get_state())
    assert other.step(env.solve()).reward == 1.0
