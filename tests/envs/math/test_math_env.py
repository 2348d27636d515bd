import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import gem
from gem.envs.math.env import ArithmeticEnv, MathEnv, WordProblemsEnv
from gem.errors import BadArgument, UnknownArgument
from gem.testing import check_env

SAMPLES = Path(os.environ.get("GEM_TEST_DATA", Path(__file__).parents[3] / "shared/data"))
ROWS = [
    {"problem": "What is one half?", "answer": "\\frac{1}{2}"},
    {"problem": "How many legs have two cats?", "answer": "8"},
]


@pytest.mark.parametrize(
    ("answer", "truth", "right"),
    [
        ("\\boxed{1/2}", "\\frac{1}{2}", True),
        ("1/2", "\\frac{1}{2}", True),
        ("so \\boxed{0.5}.", "\\boxed{\\frac12}", True),
        ("0.5", 0.5, True),
        ("\\boxed{0.51}", "\\frac{1}{2}", False),
        ("", "1", False),
    ],
)
def test_check_correct_takes_boxed_and_bare(answer, truth, right):
    assert MathEnv.check_correct(answer, truth) is right


def test_an_environment_wants_its_answer_in_a_box():
    env = MathEnv(dataset=ROWS)
    env.reset(idx=1)
    step = env.step("The answer is 8.")
    assert (step.reward, step.info["stop"], step.info["parsed_action"]) == (0.0, "unreadable", None)
    env.reset(idx=1)
    assert env.step("The answer is \\boxed{8}.").reward == 1.0


def test_users_bring_any_columns_and_forms_of_answers():
    rows = [
        {"q": "2 + 2?", "a": "Two and two make four.\n#### 4"},
        {"q": "2 + 2?", "a": "It is \\boxed{4}."},
        {"q": "2 + 2?", "a": 4},
        {"q": "2 + 2?", "a": ["4", "four"]},
    ]
    env = MathEnv(dataset=rows, question_key="q", answer_key="a")
    for i in range(4):
        env.reset(idx=i)
        assert env.solve() == "\\boxed{4}"
        assert env.step("\\boxed{\\frac{40}{10} = 4}").info["correct"]


def test_what_older_scripts_pass_is_taken_and_what_nobody_knows_is_not():
    env = MathEnv("", dataset=ROWS, split=None, use_mp=False, seed=3, use_format_error_reward=True)
    env.reset(seed=0)
    assert env.step("?").reward == -0.1
    with pytest.raises(UnknownArgument, match="verbose"):
        gem.make("math:Arithmetic-v0-easy", verbose=True)


def test_grading_works_from_threads():
    def play(seed):
        env = MathEnv(dataset=ROWS)
        env.reset(idx=seed % 2)
        return env.step("\\boxed{0.5}").reward

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(play, range(20))) == [1.0, 0.0] * 10


def test_a_grader_of_ones_own():
    from gem.graders.text import TextGrader

    env = MathEnv(dataset=[{"problem": "?", "answer": "a cat"}], grader=TextGrader())
    env.reset(seed=0)
    assert env.step("\\boxed{The Cat}").reward == 1.0


def test_three_attempts_keep_the_contract():
    check_env(lambda: MathEnv(dataset=ROWS, max_attempts=3, retry_discount=0.8)).raise_if_broken()


@pytest.mark.parametrize("env_class", [ArithmeticEnv, WordProblemsEnv])
def test_splits_differ_and_sets_have_their_size(env_class):
    train, test = env_class(split="train", size=200), env_class(split="test", size=200)
    asked = [{env.tasks[i].question for i in range(200)} for env in (train, test)]
    assert asked[0] & asked[1] == set()
    assert len(train.dataset) == 200


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ArithmeticEnv(operands=1), "operands is 1"),
        (lambda: ArithmeticEnv(digits=(3, 1)), r"digits is \(3, 1\)"),
        (lambda: ArithmeticEnv(operations="%"), "operations is '%'"),
        (lambda: ArithmeticEnv(size=0), "size is 0"),
        (lambda: WordProblemsEnv(steps=9), "steps is 9"),
        (lambda: WordProblemsEnv(distractors=5), "distractors is 5"),
        (lambda: WordProblemsEnv(largest=3), "largest is 3"),
        (lambda: WordProblemsEnv(kinds=["fable"]), "kinds is"),
    ],
)
def test_difficulties_that_cannot_be_are_refused(make, said):
    with pytest.raises(BadArgument, match=said):
        make()


def sample(name):
    path = SAMPLES / name
    if not path.is_file():
        pytest.skip(f"{path} is not here; GEM_TEST_DATA names the folder of samples")
    return path


@pytest.mark.parametrize(
    ("name", "question", "answer"),
    [
        ("gsm8k_train_2000.jsonl", "question", "answer"),
        ("asdiv_300.jsonl", "question", "answer"),
        ("olympiadbench_150.jsonl", "question", "final_answer"),
    ],
)
def test_reference_answers_of_real_data_are_right(name, question, answer):
    env = MathEnv(dataset=sample(name), question_key=question, answer_key=answer)
    for seed in range(100):
        env.reset(seed=seed)
        assert env.step(env.solve()).reward == 1.0, env.task


def test_a_sample_of_gsm8k_under_its_name_keeps_the_contract(tmp_path, monkeypatch):
    rows = map(json.loads, sample("gsm8k_test_300.jsonl").read_text("utf-8").splitlines())
    with (tmp_path / "GSM-8k.jsonl").open("w") as file:
        for row in rows:
            file.write(json.dumps({"problem": row["question"], "answer": row["answer"]}) + "\n")
    monkeypatch.setenv("GEM_DATA", str(tmp_path))
    env = gem.make("math:GSM8K")
    assert len(env.dataset) == 300
    env.reset(seed=0)
    assert env.step(env.solve()).reward == 1.0


@pytest.mark.parametrize("form", ["{}", "({})", "{} + 0", "0 + {}", "{} * 1", "-(-({}))", "{}.0"])
def test_the_question_put_into_a_box_earns_nothing(form):
    paid = []
    for level in ("easy", "hard", "random"):
        env = gem.make(f"math:Arithmetic-v0-{level}")
        for seed in range(20):
            question = env.reset(seed=seed).obs.partition("\n")[0]
            asked = question.removeprefix("Calculate ").partition(". Give")[0].rstrip(".")
            if env.step(f"\\boxed{{{form.format(asked)}}}").reward:
                paid.append((seed, question))
    assert paid == []


def test_a_formula_of_the_question_is_no_answer_though_it_is_equal():
    env = MathEnv(dataset=[{"problem": "Expand $(x+1)^2$.", "answer": "x^2+2x+1"}])
    env.reset(seed=0)
    step = env.step("\\boxed{(x+1)^{2}}")
    assert (step.reward, step.info["why"]) == (0.0, "copied from the question")
    env.reset(seed=0)
    assert env.step("\\boxed{x^2+x+x+1}").reward == 1.0


@pytest.mark.parametrize(
    ("question", "gold", "rewritten"),
    [
        ("Expand $(x+1)^2$.", "x^2+2x+1", "(x+1)(x+1)"),
        ("Factor $x^2-1$.", "(x-1)(x+1)", "x^2+0-1"),
        (r"Simplify $\frac{x^2-1}{x-1}$.", "x+1", r"\frac{(x-1)(x+1)}{x-1}"),
        ("What is 9 + 64?", "73", r"\lim_{x\to 9}(x+64)"),
    ],
)
def test_the_question_in_other_writing_is_no_answer_either(question, gold, rewritten):
    env = MathEnv(dataset=[{"problem": question, "answer": gold}])
    env.reset(seed=0)
    step = env.step(f"\\boxed{{{rewritten}}}")
    assert (step.reward, step.info["why"]) == (0.0, "not in the form that the question asks for")
    env.reset(seed=0)
    assert env.step(f"\\boxed{{{gold}}}").reward == 1.0
