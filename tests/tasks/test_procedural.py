import pickle

import pytest

from gem.envs.math.arithmetic import OPERATIONS, Arithmetic
from gem.envs.math.word_problems import KINDS
from gem.errors import BadArgument
from gem.seeding import stream
from gem.tasks.base import TaskSet
from gem.tasks.procedural import Problem, ProceduralTasks, check_choice, interval, split_of

SUMS = Arithmetic((2, 4), (1, 3), OPERATIONS)


def test_the_split_follows_from_all_of_a_problem():
    assert {split_of(Problem("What is drawn?", "", key=str(key))) for key in range(100)} == {"train", "test"}
    assert {split_of(Problem(str(text), "")) for text in range(100)} == {"train", "test"}
    assert len({split_of(Problem("What is drawn?", str(answer))) for answer in range(100)}) == 1


def questions(tasks, n=300):
    return [tasks[i].question for i in range(n)]


def test_a_task_follows_from_its_number_alone():
    tasks = ProceduralTasks("sums", SUMS)
    assert isinstance(tasks, TaskSet)
    assert tasks[7] == ProceduralTasks("sums", SUMS)[7] == pickle.loads(pickle.dumps(tasks))[7]
    assert tasks[7] != tasks[8]
    assert tasks[7] != ProceduralTasks("sums", SUMS, seed=1)[7]


def test_a_smaller_set_is_the_beginning_of_a_larger_one():
    assert questions(ProceduralTasks("sums", SUMS, size=300)) == questions(ProceduralTasks("sums", SUMS))
    with pytest.raises(IndexError):
        ProceduralTasks("sums", SUMS, size=5)[5]


def test_splits_have_no_question_in_common_whatever_the_seeds():
    small = Arithmetic((2, 2), (1, 1), ("+",))  # 81 questions, so that every one is drawn
    train = {q for seed in range(3) for q in questions(ProceduralTasks("s", small, seed=seed, split="train"))}
    test = {q for seed in range(3) for q in questions(ProceduralTasks("s", small, seed=seed, split="test"))}
    assert train & test == set()
    assert train | test == set(questions(ProceduralTasks("s", small), 1500))
    assert len(train) > 5 * len(test) > 0


def test_an_answer_is_had_without_its_picture():
    def draw():
        raise AssertionError

    tasks = ProceduralTasks("drawn", lambda rng: Problem("?", str(rng.random()), picture=draw))
    assert tasks.reference(3) != tasks.reference(4)
    with pytest.raises(AssertionError):
        tasks[3]


class One:
    """A generator with a single question."""

    def __call__(self, rng):
        return Problem("What is 1?", "1")


def test_a_split_without_questions_is_refused_not_sought_for_ever():
    (other,) = {"train", "test"} - {split_of(One()(None))}
    with pytest.raises(BadArgument, match="no question of"):
        ProceduralTasks("one", One(), split=other)[0]


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"size": 0}, "size is 0"),
        ({"split": "dev"}, "'train', 'test', or None"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_what_makes_no_set_is_refused(keywords, said):
    with pytest.raises(BadArgument, match=said):
        ProceduralTasks("sums", SUMS, **keywords)


def test_ranges_and_choices():
    assert interval("steps", 3, 1, 8) == (3, 3)
    assert interval("steps", (2, 5), 1, 8) == (2, 5)
    for wrong in (0, 9, (5, 2), "2", (1, 2, 3), None, 2.5):
        with pytest.raises(BadArgument, match="steps is"):
            interval("steps", wrong, 1, 8)
    assert check_choice("kinds", "ages", tuple(KINDS)) == ("ages",)
    for wrong in ((), ("ages", "wages"), "wages"):
        with pytest.raises(BadArgument, match="accepted: one or more of 'collection'"):
            check_choice("kinds", wrong, tuple(KINDS))


# -- arithmetic


def test_answers_are_what_python_makes_of_the_question():
    from fractions import Fraction

    tasks = ProceduralTasks("sums", Arithmetic((2, 7), (1, 3), OPERATIONS))
    for at in range(300):
        expression = tasks[at].question.removeprefix("Calculate ").partition(". Give")[0]
        numbers = "".join(f"Fraction({w})" if w.isdigit() else w for w in _tokens(expression))
        found = eval(numbers, {"Fraction": Fraction})  # noqa: S307  of our own numbers and signs
        assert Fraction(tasks[at].reference) == found, expression


def _tokens(expression):
    import re

    return re.findall(r"\d+|[-+*/()]", expression)


def test_arithmetic_has_the_numbers_and_operations_that_are_asked_for():
    for at in range(100):
        (question, answer) = _sum(Arithmetic((3, 3), (2, 2), ("+", "*")), at)
        tokens = _tokens(question)
        assert [len(t) for t in tokens if t.isdigit()] == [2, 2, 2]
        assert {t for t in tokens if not t.isdigit()} <= set("+*()")
        assert answer.isdigit()
        assert "fraction" not in question


def _sum(generator, seed):
    problem = generator(stream(seed))
    return problem.question, problem.answer


def test_brackets_stand_only_where_they_are_needed():
    from gem.envs.math.arithmetic import write_tree

    assert write_tree(((1, "+", 2), "+", 3)) == "1 + 2 + 3"
    assert write_tree((1, "-", (2, "-", 3))) == "1 - (2 - 3)"
    assert write_tree((1, "+", (2, "-", 3))) == "1 + 2 - 3"
    assert write_tree(((1, "+", 2), "*", (3, "/", 4))) == "(1 + 2) * 3 / 4"
    assert write_tree((1, "/", (2, "*", 3))) == "1 / (2 * 3)"
