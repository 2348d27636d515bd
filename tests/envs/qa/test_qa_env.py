import os
from pathlib import Path

import pytest

from gem.envs.qa.env import FactsEnv, QaEnv
from gem.errors import BadArgument
from gem.testing import check_env

SAMPLES = Path(os.environ.get("GEM_TEST_DATA", Path(__file__).parents[3] / "shared/data"))
ROWS = [
    {"problem": "Who wrote Hamlet?", "answer": ["William Shakespeare", "Shakespeare"]},
    {"problem": "Is the statement true?", "answer": "\\boxed{True}"},
    {"problem": "Which set?", "answer": "{1"},
]


def start(idx, **keywords):
    env = QaEnv(dataset=ROWS, **keywords)
    env.reset(idx=idx)
    return env


@pytest.mark.parametrize(
    ("idx", "action", "right"),
    [
        (0, "I think \\boxed{the Shakespeare}", True),
        (0, "<answer>william shakespeare.</answer>", True),
        (0, "\\boxed{Marlowe}", False),
        (0, "<think><answer>Shakespeare</answer>?</think>I do not know.", False),
        (
            0,
            "\\boxed{Marlowe} or <answer>Shakespeare</answer>",
            False,
        ),  # a box is the answer where there is one
        (1, "\\boxed{true}", True),
        (1, "\\boxed{False}", False),
    ],
)
def test_answers_stand_in_a_box_or_in_tags(idx, action, right):
    step = start(idx).step(action)
    assert (step.reward, step.info["correct"]) == (float(right), right)


@pytest.mark.parametrize(
    ("extract_boxed", "read"), [(None, (True, True)), (True, (True, False)), (False, (False, True))]
)
def test_where_the_answer_must_stand_can_be_said(extract_boxed, read):
    found = []
    for action in ("\\boxed{Shakespeare}", "<answer>Shakespeare</answer>"):
        env = start(0, extract_boxed=extract_boxed)
        found.append(env.step(action).info["correct"])
    assert tuple(found) == read
    form = "<answer></answer>" if extract_boxed is False else "\\boxed{}"
    assert form in start(0, extract_boxed=extract_boxed).reset(idx=0).obs


def test_bare_words_are_no_answer():
    step = start(0).step("Shakespeare")
    assert (step.info["stop"], step.info["parsed_action"]) == ("unreadable", None)


def test_f1_pays_for_words_in_common():
    step = start(0, metric="f1").step("\\boxed{Shakespeare of Stratford}")
    assert step.reward == pytest.approx(0.5)
    assert not step.info["success"]


def test_an_answer_whose_braces_would_not_survive_a_box_is_given_in_tags():
    env = start(2)
    assert env.solve() == "<answer>{1</answer>"
    assert env.step(env.solve()).reward == 1.0


def test_three_attempts_keep_the_contract():
    check_env(lambda: QaEnv(dataset=ROWS[:2], max_attempts=3)).raise_if_broken()


def test_every_fact_can_be_answered():
    env = FactsEnv(hops=(1, 2))
    for i in range(len(env.dataset)):
        env.reset(idx=i)
        assert env.step(env.solve()).reward == 1.0, env.task


def test_what_is_no_number_of_hops_or_split_is_refused():
    with pytest.raises(BadArgument, match="hops is 3"):
        FactsEnv(hops=3)
    with pytest.raises(BadArgument, match="split is 'dev'"):
        FactsEnv(split="dev")


def test_reference_answers_of_real_questions_are_right():
    path = SAMPLES / "nq_open_dev_500.jsonl"
    if not path.is_file():
        pytest.skip(f"{path} is not here; GEM_TEST_DATA names the folder of samples")
    env = QaEnv(dataset=path, question_key="question")
    for seed in range(500):
        env.reset(seed=seed)
        assert env.step(env.solve()).reward == 1.0, env.task
