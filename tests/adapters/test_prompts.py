import pytest

from gem import make
from gem.adapters.prompts import check_question, read_task, seeded_tasks, task_text
from gem.content import Image, Message, Text
from gem.errors import BadArgument, UnknownEnv
from gem.record import SEAT, Ask
from gem.specs import TaskRef

EASY = "game:GuessTheNumber-v0-easy"


def test_a_task_comes_back_from_its_text():
    tasks = seeded_tasks([EASY, TaskRef("game:GuessTheNumber-v0", {"max_turns": 3})], range(2))
    assert [(task.spec, task.seed) for task in tasks] == [
        (EASY, 0),
        ("game:GuessTheNumber-v0", 0),
        (EASY, 1),
        ("game:GuessTheNumber-v0", 1),
    ]
    assert [read_task(task_text(task)) for task in tasks] == tasks
    assert make(read_task(task_text(tasks[1]))).max_turns == 3


@pytest.mark.parametrize(
    ("envs", "seeds", "error", "told"),
    [
        ([], [1], BadArgument, "0 environments"),
        (EASY, [], BadArgument, "0 seeds"),
        (EASY, [-1], BadArgument, "seed"),
        (EASY, 7, BadArgument, r"seeds is 7; accepted: seeds in a list or range"),
        ("game:GuessTheNumbr-v0", [1], UnknownEnv, "Did you mean"),
        (TaskRef(EASY, opaque=("Guess.rng",)), [1], BadArgument, "Guess.rng"),
        ("multi:KuhnPoker-v0", [1], BadArgument, "player_0, player_1"),
    ],
)
def test_what_no_data_set_is_made_of(envs, seeds, error, told):
    with pytest.raises(error, match=told):
        seeded_tasks(envs, seeds)


@pytest.mark.parametrize(
    "text", [None, 3, "", "{}", "[1]", "\ud800", '{"spec":"game:Sudoku-v0"}', "[" * 9999]
)
def test_what_is_no_task_is_refused(text):
    with pytest.raises(BadArgument, match=r"not a task of an episode"):
        read_task(text)


def test_an_environment_of_ones_own_module_comes_back_where_it_was_written(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_module.py").write_text(
        "from gem.testing.doubles import EchoEnv\n\n\nclass Own(EchoEnv): ...\n"
    )
    theirs = task_text(TaskRef("own_module:Own", seed=1)).replace("Own", "Other")
    assert type(make(read_task(task_text(TaskRef("own_module:Own", seed=1))))).__name__ == "Own"
    with pytest.raises(BadArgument, match="--trust"):
        make(read_task(theirs))


def test_a_first_question_with_a_picture_is_refused_to_text_models():
    picture = Image(b"", alt="[a geometric figure]")
    seen = Message("user", (Text("How long is x?"), picture))
    with pytest.raises(BadArgument, match="a model of X reads text alone"):
        check_question(Ask("e", SEAT, 0, (seen,)), "a model of X")
    answered = (seen, Message("assistant", "2"), Message("user", "Right."))
    check_question(Ask("e", SEAT, 1, answered), "a model of X")


def test_the_name_of_an_environment_is_no_task_to_write():
    with pytest.raises(BadArgument, match=r"task is 'game:.*; accepted: a TaskRef, as seeded_tasks makes it"):
        task_text(EASY)
