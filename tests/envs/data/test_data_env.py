import base64
import csv
import io
import json
import random

import pytest

import gem
from gem.agents.solver import SolverAgent
from gem.envs.data.env import DataEnv
from gem.envs.data.named import data_task
from gem.errors import BadArgument, MissingData
from gem.graders.choice import ChoiceGrader
from gem.registry import ENV_REGISTRY, Maker, register
from gem.rollout import Job, rollout
from gem.rollout.regrade import regrade
from gem.specs import EnvSpec
from gem.tasks import files, sources
from gem.testing import check_env

PLAIN = [{"question": "Capital of Norway?", "answer": "Oslo"}, {"question": "Of France?", "answer": "Paris"}]


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    """Files are written to, and named from, an empty working folder."""
    monkeypatch.delenv("GEM_DATA", raising=False)
    monkeypatch.chdir(tmp_path)


def write(name, rows):
    with open(name, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return name


def chat(*turns):
    return [{"role": role, "content": content} for role, content in turns]


VERL = {
    "data_source": "gsm8k",
    "prompt": chat(("user", "What is 6 * 7?")),
    "reward_model": {"style": "rule", "ground_truth": "42"},
    "extra_info": {"index": 17},
}
EVALS = {"input": chat(("system", "Be brief."), ("user", "Capital of Norway?")), "ideal": ["Oslo", "oslo"]}
TRL = {"prompt": chat(("user", "Sky?")), "completion": chat(("assistant", "blue"))}
TALK = {"messages": chat(("user", "Sky?"), ("assistant", "Blue."), ("user", "Sure?"), ("assistant", "yes"))}
SQUAD = {"id": "57", "context": "Denver won.", "question": "Who?", "answers": {"text": ["Denver"], "x": [0]}}
TRIVIA = {"question_id": "t1", "question": "Who?", "answer": {"value": "Denver", "aliases": ["Broncos"]}}
BOOLQ = {"question": "is it", "passage": "It is.", "answer": True}
ARC = {
    "id": "M",
    "question": "?",
    "choices": {"text": ["fire", "ice"], "label": ["1", "2"]},
    "answerKey": "2",
}
MMLU = {"question": "?", "choices": ["3", "4", "5", "6"], "answer": 0}
LETTERS = {"Question": "?", "A": "fire", "B": "ice", "Answer": "B"}
PROGRAM = {"problem": "Add them.", "inputs": ["1 2\n"], "outputs": ["3\n"], "solution": "print(3)"}
HOTPOT = {
    "question": "Who?",
    "context": {"title": ["Game", "Team"], "sentences": [["Denver won. ", "It was late."], ["Boston lost."]]},
    "answer": "Denver",
}
PAIRS = {
    "question": "Who?",
    "context": [["Game", ["Denver won."]], ["Team", ["Boston lost."]]],
    "answer": "Denver",
}
PARTS = {"question": "Who?", "context": ["Denver won.", "Boston lost."], "answer": "Denver"}
THOUGHT = {"messages": chat(("user", "Who?"), ("assistant", "<think>Boston?</think>\n\nDenver"))}
BROKEN_OFF = {"question": "6 * 7?", "output": "Is it 41? No.</think>42"}
GSM = {"question": "6 * 7?", "answer": "6 * 7 is 42.\n#### 42"}


@pytest.mark.parametrize(
    ("row", "kind", "shown", "right", "wrong", "task"),
    [
        (PLAIN[0], "text", "Capital of Norway?", "\\boxed{oslo}", "\\boxed{Rome}", "0"),
        (VERL, "math", "What is 6 * 7?", "\\boxed{42}", "\\boxed{41}", "17"),
        (EVALS, "text", "Be brief.\n\nCapital of Norway?", "\\boxed{Oslo}", "\\boxed{Rome}", "0"),
        (TRL, "text", "Sky?", "\\boxed{blue}", "\\boxed{assistant}", "0"),
        (TALK, "text", "User: Sky?\n\nAssistant: Blue.\n\nUser: Sure?", "<answer>Yes</answer>", "no", "0"),
        (SQUAD, "text", "Denver won.\n\nWho?", "\\boxed{Denver}", "\\boxed{0}", "57"),
        (TRIVIA, "text", "Who?", "\\boxed{the Broncos}", "\\boxed{Boston}", "t1"),
        (BOOLQ, "text", "It is.\n\nis it", "\\boxed{yes}", "\\boxed{no}", "0"),
        (ARC, "choice", "?\n\nA. fire\nB. ice", "\\boxed{B}", "\\boxed{fire}", "M"),
        (MMLU, "choice", "?\n\nA. 3\nB. 4\nC. 5\nD. 6", "\\boxed{3}", "\\boxed{B}", "0"),
        (LETTERS, "choice", "?\n\nA. fire\nB. ice", "\\boxed{ice}", "\\boxed{A}", "0"),
        (
            HOTPOT,
            "text",
            "Game\nDenver won. It was late.\n\nTeam\nBoston lost.\n\nWho?",
            "Denver",
            "Boston",
            "0",
        ),
        (PAIRS, "text", "Game\nDenver won.\n\nTeam\nBoston lost.\n\nWho?", "\\boxed{Denver}", "Boston", "0"),
        (PARTS, "text", "Denver won.\n\nBoston lost.\n\nWho?", "\\boxed{Denver}", "\\boxed{Boston}", "0"),
        (THOUGHT, "text", "Who?", "\\boxed{Denver}", "\\boxed{Boston}", "0"),
        (BROKEN_OFF, "math", "6 * 7?", "\\boxed{42}", "\\boxed{41}", "0"),
        (GSM, "math", "6 * 7?", "The answer is 42.", "\\boxed{6}", "0"),
        ({"q": 1, "question": "?", "answer": "9 (apples)"}, "number", "?", "\\boxed{9}", "\\boxed{8}", "0"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_known_forms_are_recognised_shown_as_text_and_graded(row, kind, shown, right, wrong, task):
    own = data_task(write("q.jsonl", [row]))
    assert own.env == f"data:{kind}"
    with gem.make(own.env, **own.kwargs) as env:
        start = env.reset(seed=0)
        assert start.obs.startswith(f"{shown}\n\n")
        assert start.info["task"] == task
        assert env.step(right).reward == 1
        env.reset(seed=0)
        assert env.step(wrong).reward == 0
        env.reset(seed=0)
        assert env.step(env.solve()).reward == 1


def test_an_answer_of_which_only_thinking_is_there_is_a_bad_row():
    with pytest.raises(BadArgument, match="'answer' has nothing behind its thinking"):
        data_task(write("q.jsonl", [{"question": "?", "answer": "<think>Oslo?</think> "}]), "text")


def test_tags_of_thinking_inside_tests_are_text():
    asked = {"question": "Drop the thinking.", "entry_point": "f"}
    test = "def check(f):\n    assert f('<think>a</think>b') == 'b'\n"
    with gem.make("data:code", data=[{**asked, "test": test}]) as env:
        env.reset(seed=0)
        assert env.answer.inputs[0].startswith(test)


def classes():
    """Return rows of `datasets` with two classes: three rows, of which the last has none."""
    datasets = pytest.importorskip("datasets")
    label = datasets.ClassLabel(names=["bad", "good"])
    features = datasets.Features({"text": datasets.Value("string"), "label": label})
    rows = {"text": ["I slept.", "I laughed.", "I do not know."], "label": [0, 1, -1]}
    return datasets.Dataset.from_dict(rows, features=features)


def keep(rows, kind):
    if kind == "memory":
        return rows
    name = f"kept-{len(rows)}" if kind == "folder" else f"kept-{len(rows)}.parquet"
    rows.save_to_disk(name) if kind == "folder" else rows.to_parquet(name)
    return name


@pytest.mark.parametrize("kind", ["memory", "folder", "parquet"])
def test_classes_are_choices_by_their_names(kind):
    source = keep(classes().select([0, 1]), kind)
    if kind != "memory":
        own = data_task(source)
        assert (own.env, "choices: 'label (classes)'" in own.about) == ("data:choice", True)
    with gem.make("data:choice", data=source) as env:
        assert env.reset(idx=1).obs.startswith("I laughed.\n\nA. bad\nB. good\n\n")
        assert env.step("\\boxed{good}").reward == 1
        env.reset(idx=1)
        assert env.step("\\boxed{1}").reward == 0
    with pytest.raises(BadArgument, match=r"row 2: column 'label \(class\)' is empty"):
        gem.make("data:choice", data=keep(classes(), kind))


@pytest.mark.parametrize(
    ("names", "kind", "right", "wrong"),
    [
        ([*"0123456789"], "choice", "7", "6"),
        ([f"kind {number}" for number in range(77)], "text", "kind 7", "kind 70"),
    ],
)
def test_classes_may_be_digits_and_are_texts_where_they_are_many(names, kind, right, wrong):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list([{"text": "?", "label": 7}])
    rows.cast_column("label", datasets.ClassLabel(names=names)).to_parquet("kept.parquet")
    own = data_task("kept.parquet")
    assert own.env == f"data:{kind}"
    assert "not used" not in own.about
    with gem.make(own.env, **own.kwargs) as env:
        for answer, reward in ((right, 1), (wrong, 0)):
            env.reset(idx=0)
            assert env.step(f"\\boxed{{{answer}}}").reward == reward


@pytest.mark.parametrize(
    ("row", "column", "classes", "shown", "right"),
    [
        ({"question": "?", "choices": ["3", "4", "5"], "answer": 0}, "answer", "ABC", "A. 3\nB. 4", "A"),
        (
            {"question": "?", "sol1": "twist", "sol2": "hit", "label": 1},
            "label",
            "01",
            "A. twist\nB. hit",
            "B",
        ),
        ({"question": "?", "A": "ice", "B": "fire", "answer": 1}, "answer", "AB", "A. ice\nB. fire", "fire"),
        ({"question": "?", "answer": "Oslo", "level": 1}, "level", ("easy", "hard"), "?", "Oslo"),
        ({"question": "?", "answer": "7", "lang": 0}, "lang", ("en", "no"), "?", "7"),
    ],
)
def test_classes_change_nothing_where_they_are_not_the_only_choices(row, column, classes, shown, right):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list([row]).cast_column(column, datasets.ClassLabel(names=[*classes]))
    rows.to_parquet("kept.parquet")
    own = data_task("kept.parquet")
    with gem.make(own.env, **own.kwargs) as env:
        obs = env.reset(idx=0).obs
        assert shown in obs
        assert "easy" not in obs
        assert env.step(f"\\boxed{{{right}}}").reward == 1


def test_programs_run_their_tests():
    own = data_task(write("q.jsonl", [PROGRAM]))
    assert own.env == "data:code"
    with gem.make(own.env, **own.kwargs) as env:
        assert "reads standard input" in env.reset(seed=0).obs
        assert env.step(env.solve()).reward == 1
        env.reset(seed=0)
        assert env.step("```python\nprint(4)\n```").reward == 0


def test_a_data_frame_is_data():
    pandas = pytest.importorskip("pandas")
    env = gem.make("data:math", data=pandas.DataFrame({"question": ["1 + 1", "2 + 2"], "answer": [2, 4]}))
    env.reset(idx=1)
    assert env.step("\\boxed{4}").reward == 1


@pytest.mark.parametrize("columns", [{"question": 0, "answer": 1}, "question=0,answer=1"])
def test_columns_may_be_named_by_numbers(columns):
    frame = pytest.importorskip("pandas").DataFrame([["1 + 1", "2"], ["2 + 2", "4"]])
    env = gem.make("data:math", data=frame, columns=columns)
    env.reset(idx=1)
    assert env.step("\\boxed{4}").reward == 1


@pytest.mark.parametrize("kind", ["text", "math", "number"])
def test_bytes_that_are_no_text_are_no_answer(kind):
    with pytest.raises(BadArgument, match=r"the reference is b'\\xff'; accepted"):
        gem.make(f"data:{kind}", data=[{"question": "?", "answer": b"\xff"}])


def test_it_says_what_was_understood():
    about = data_task(write("q.jsonl", [SQUAD]), "text").about
    assert about == (
        "q.jsonl: 1 row. Question: column 'question', after 'context'; answer: 'answers' (as in SQuAD); ids: "
        "'id'. Grader text: right is the words of an answer, but for case, articles and punctuation."
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"question": "a\x00b"}\n', r"rows.jsonl, line 1: not JSON: Invalid control character"),
        ('{"question": "a"}\r{"question": "b"}\n', r"rows.jsonl, line 1: not JSON: Extra data"),
        ("[1]\n", r"line 1 is a list; accepted: an object with a value for each column"),
    ],
)
def test_a_file_of_which_no_row_can_be_read_says_why(tmp_path, text, said):
    (tmp_path / "rows.jsonl").write_text(text, newline="")
    with pytest.raises(BadArgument, match=said):
        gem.make("data:text", data=str(tmp_path / "rows.jsonl"))


def test_all_bad_rows_are_listed_with_their_lines_before_a_row_is_asked():
    with open("q.jsonl", "w") as file:
        file.write('{"question": "a", "answer": 1}\n\n{"question": \n{"question": "b", "answer": true}\n')
        file.write(
            '{"question": "c", "answer": {"d": 1}}\n{"question": "", "answer": 1}\n{"question": "e"}\n'
        )
    with pytest.raises(BadArgument) as error:
        gem.make("data:math", data="q.jsonl")
    assert [line.split(":")[0] for line in str(error.value).splitlines()[1:]] == [
        "  line 3",
        "  line 4",
        "  line 5",
        "  line 6",
        "  line 7",
    ]
    assert "q.jsonl: 5 of 6 rows cannot be used" in str(error.value)


def test_choices_that_do_not_hold_the_answer_are_bad_rows():
    write(
        "q.jsonl", [LETTERS, {**LETTERS, "Answer": "C"}, {**LETTERS, "Answer": "water"}, {**LETTERS, "A": ""}]
    )
    with pytest.raises(BadArgument, match=r"3 of 4 rows .*\n  line 2: .*\n  line 3: .*'water'.*\n  line 4: "):
        data_task("q.jsonl", "choice")


def test_a_file_that_changed_is_refused_where_its_digest_is_known():
    own = data_task(write("q.jsonl", PLAIN), "text")
    (episode,) = rollout([Job(gem.registry.Maker(own.env, own.kwargs), 0)], SolverAgent())
    assert episode.task.kwargs == {"name": "text", "data": "q.jsonl", "digest": own.kwargs["digest"]}
    write("q.jsonl", [*PLAIN, PLAIN[0]])
    with pytest.raises(BadArgument, match=r"q\.jsonl has changed"):
        gem.make(episode.task)


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        (["9 (apples)", "15 (balls)", "3 (cm)", "Mrs. Hilt"], "math"),  # as in ASDiv
        (["$\\frac{1}{2}$", "0.5", "7", "1,2", "none"], "math"),
        (["9 (apples)", "15 (balls)"], "number"),
        (["2.5 million people", "2½", "$3.2 billion"], "number"),
        (["2x", "10 m", "3x", "7 m"], "math"),
        (["1912", "7", "Oslo", "Paris"], "text"),
        ([["1912"], ["Oslo", "Kristiania"]], "text"),
        (['["9 (apples)"]', '["15 (balls)", "16"]'], "number"),
        (["1994-03-14", "1969-07-20"], "text"),
        (["12/10/2020", "14 March"], "text"),
        (["1-0", "555-1234", "1914–1918", "+1-555-1234", "192.168.0.1"], "text"),
        (["02134", "00501"], "text"),
        (["033", "10 - 3", "1/2", "1.234.567"], "math"),
    ],
)
def test_the_grader_follows_from_most_answers(answers, kind):
    rows = [{"question": f"Number {number}?", "answer": answer} for number, answer in enumerate(answers)]
    assert data_task(write("q.jsonl", rows)).env == f"data:{kind}"


SIQA = {"context": "c", "question": "?", "answerA": "x", "answerB": "y", "answerC": "z", "label": "3"}
APPS = {"question": "Print n.", "input_output": json.dumps({"inputs": ["1\n"], "outputs": ["1\n"]})}
TWO_ANSWERS = {"problem": "?", "answer": "We compute. So it's five hundred.", "final_answer": "500"}


@pytest.mark.parametrize(
    ("row", "given", "kind", "about"),
    [
        (SIQA, "", "choice", "choices: 'answerA+answerB+answerC'"),
        ({"question": "?", "(A)": "x", "(B)": "y", "answer": "B"}, "", "choice", "choices: '(A)+(B)'"),
        ({"question": "?", "opa": "x", "opb": "y", "cop": 0}, "", "choice", "answer: 'cop'"),
        (APPS, "", "code", "answer: 'input_output'"),
        (APPS, "answer=input_output", "code", "answer: 'input_output'"),
        (APPS | {"answer": "print(input())"}, "answer=answer", "text", "not used: 'input_output'"),
        ({"question": "?", "answer": "5", "test": "quiz 1"}, "", "math", "not used: 'test'"),
        (TWO_ANSWERS, "", "math", "answer: 'final_answer'"),
        (TWO_ANSWERS, "", "math", "not used: 'answer'"),
        (TWO_ANSWERS | {"final_answer": None, "answer": "5"}, "", "math", "answer: 'answer'"),
        ({"question": "3+4", "op1": 3, "op2": 4, "answer": 7}, "", "math", "not used: 'op1', 'op2'"),
        ({"question": "?", "sol1": "-2", "sol2": "2", "answer": "-2, 2"}, "", "math", "answer: 'answer'"),
        ({"question": "?", "answer_a": "x", "answer_b": "y", "answer": "42"}, "", "math", "'answer_a'"),
        ({"question": "?", "answer_a": "x", "answer_b": "y", "answer": "y"}, "", "choice", "'answer_a+"),
        ({"goal": "?", "sol1": "x", "sol2": "y", "label": 0}, "question=goal", "choice", "'sol1+sol2'"),
        (
            {"question": "?", "answer": "5", "text1": "x", "text2": "y"},
            "",
            "math",
            "not used: 'text1', 'text2'",
        ),
        ({"question": "?", "answer": "5", "text1": "x", "level": 2}, "", "math", "from 0. Grader"),
        ({"question": "?", "answer": "5", "context": {"page": 1}}, "", "math", "not used: 'context'"),
        ({"question": "?", "answer": "5", "support": "It is."}, "", "math", "not used: 'support'"),
    ],
)
def test_columns_are_found_or_named(row, given, kind, about):
    own = data_task(write("q.jsonl", [row]), columns=given)
    assert own.env == f"data:{kind}"
    assert about in own.about


@pytest.mark.parametrize(
    "rows",
    [
        [{"question": "?", "answer": "5"}, {"question": "?", "answer": "6", "final_answer": "6"}],
        [
            {"question": "?", "answer": "5", "final_answer": "5"},
            {"question": "?", "answer": "6", "final_answer": ""},
        ],
        [{"question": "?", "answer": "5", "short_answer": ["5"]}, {"question": "?", "answer": "6"}],
    ],
)
def test_a_final_answer_that_some_row_lacks_hides_no_answer(rows):
    own = data_task(write("q.jsonl", rows))
    assert "; answer: 'answer'" in own.about


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        (("0101", "1101", "0011"), "math"),
        ((r"\frac12", "x^2", "3-5"), "math"),
        (("5", "1994-03-14", "7"), "text"),
        (("02134", "90210"), "text"),
    ],
)
def test_codes_and_notations_have_the_text_grader_where_no_formulas_are(answers, kind):
    assert data_task(write("q.jsonl", [{"question": "?", "answer": each} for each in answers])).env == (
        f"data:{kind}"
    )


def test_lists_of_tests_that_cannot_be_read_are_told_beside_an_answer():
    row = {"prompt": "?", "tests": [["assert f() == 1"]], "answer": "def f(): return 1"}
    with pytest.raises(BadArgument, match="tests are list"):
        data_task(write("q.jsonl", [row]))


def test_tests_that_cannot_be_read_are_told_where_nothing_else_is_the_answer():
    row = {"question": "?", "solution": "def f(): return 1", "test": "f() = 1"}
    with pytest.raises(BadArgument, match="tests are str"):
        data_task(write("q.jsonl", [row]))


def test_hidden_tests_beside_public_ones_are_run():
    first, second = ({"input": [f"{n}\n"], "output": [f"{n}\n"]} for n in (1, 2))
    row = {"description": "Print n.", "public_tests": first, "private_tests": second, "generated_tests": None}
    env = DataEnv("code", [row], columns="question=description")
    env.reset(idx=0)
    tests = env.answer
    assert (tests.inputs, tests.outputs, tests.public) == (("1\n", "2\n"), ("1\n", "2\n"), 1)


def test_what_stands_beside_the_rows_of_a_json_file_is_no_split():
    with open("q.json", "w", encoding="utf-8") as file:
        json.dump({"version": "1.1", "data": PLAIN, "count": 2}, file)
    assert data_task("q.json").about.startswith("q.json: 2 rows.")


def test_a_path_is_kept_relative(tmp_path):
    (tmp_path / "data").mkdir()
    write(tmp_path / "data/q.jsonl", PLAIN)
    assert data_task(str(tmp_path / "data/q.jsonl"), "text").kwargs["data"] == "data/q.jsonl"
    assert data_task("q.jsonl", "text", folder=tmp_path / "data").kwargs["data"] == "data/q.jsonl"
    with pytest.raises(MissingData, match=r"no file or folder 'data/p\.jsonl'"):
        data_task("p.jsonl", folder=tmp_path / "data")


def test_a_prompt_is_filled_in_and_examples_stand_before_it():
    rows = [{"q": "Capital of Norway?", "a": "Oslo", "level": 3}, {"q": "Of {x}?", "a": "Rome", "level": 4}]
    given = {"question": "q", "answer": "a"}
    few = [{"q": "Of Italy?", "a": "Rome"}, {"q": "Capital of Norway?", "a": "Oslo"}]
    env = gem.make(
        "data:text", data=rows, columns=given, few_shot=few, prompt="Level {level}, {{so}}: {question}"
    )
    assert env.reset(idx=0).obs == (
        "Example 1\n\nOf Italy?\n\n\\boxed{Rome}\n\nNow your question\n\nLevel 3, {so}: Capital of Norway?"
    )  # the second example is what is asked
    assert env.reset(idx=1).obs.endswith("Level 4, {so}: Of {x}?")


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("Go", "shows nothing of a row"),
        ("{question} is {answer}", "would show the answer"),
        ("{question} is {reward_model}", "would show the answer"),
        ("{question} is {reward_model.ground_truth}", "would show the answer"),
        ("{frage}", "is no column"),
    ],
)
def test_a_prompt_that_hides_the_question_or_shows_the_answer_is_refused(prompt, said):
    rows = PLAIN
    if "reward" in prompt:
        rows = [{"question": "?", "reward_model": {"ground_truth": "SECRET", "style": "rule"}}]
    with pytest.raises(BadArgument, match=said):
        gem.make("data:text", data=rows, prompt=prompt)


PICK = {"question": "Which?", "choices": ["p", "q", "r", "s"], "answer": "C"}


@pytest.mark.parametrize(
    ("row", "settings"),
    [
        (PICK, {"name": "choice", "shuffle_choices": True}),
        (PICK | {"answer": "r"}, {"columns": "choices=choices"}),
        (SQUAD, {"prompt": "Read: {context}\nThen: {question}"}),
        (SQUAD, {"prompt": "{question}"}),
        (SQUAD, {}),
    ],
)
def test_an_example_that_is_asked_is_left_out_however_it_is_shown(row, settings):
    other = {"context": "Oslo won."} if row is SQUAD else {"choices": ["p", "q", "r"]}
    few = [row, row | {"question": "Another?", "id": "58"}, row | other]
    env = DataEnv(**{"name": "text", "data": [row], "few_shot": few} | settings)
    for seed in range(4):
        shown = env.reset(seed=seed).obs
        assert (shown.count("Example"), "Another?" in shown) == (2, True)


@pytest.mark.parametrize(
    ("kind", "answer", "rights", "wrong"),
    [
        ("text", '["Oslo", "Kristiania"]', ["Oslo", "Kristiania"], '["Oslo", "Kristiania"]'),
        ("math", '["1/3", "0.5"]', ["0.5", "\\frac13"], "3"),
        ("number", '["7", "8 (apples)"]', ["7", "8"], "9"),
        ("math", "[1, 2]", ["[1, 2]"], "1"),
        ("text", '["Oslo", 1912]', ["Oslo", "1912"], '["Oslo", 1912]'),
        ("text", "[1912, 1913]", ["[1912, 1913]"], "1912"),
        ("text", "\\boxed{['Oslo', 'Rome']}", ["['Oslo', 'Rome']"], "Oslo"),
    ],
)
def test_a_list_of_answers_may_be_json_text(kind, answer, rights, wrong):
    env = DataEnv(kind, [{"question": "?", "answer": answer}])
    for given, reward in [(right, 1) for right in rights] + [(wrong, 0)]:
        env.reset(idx=0)
        assert env.step(f"\\boxed{{{given}}}").reward == reward
    env.reset(idx=0)
    assert env.step(env.solve()).reward == 1


@pytest.mark.parametrize("kind", ["text", "math", "number"])
@pytest.mark.parametrize("cell", ["['Oslo', 'Rome']", "['Oslo' 'Rome']", '["Oslo", null]', '["Oslo", ["a"]]'])
def test_a_list_that_is_no_json_of_texts_is_a_bad_row(kind, cell, tmp_path):
    with (tmp_path / "q.csv").open("w") as file:
        csv.writer(file).writerows([["question", "answer"], ["a", "7"], ["b", cell]])
    with pytest.raises(
        BadArgument, match=r"line 3: .*no JSON list.*\[\"Oslo\", \"Kristiania\"\]; if the whole"
    ):
        DataEnv(kind, tmp_path / "q.csv")


@pytest.mark.parametrize("other", ["ok", ["a", "b"], 7])
def test_a_text_that_is_a_list_among_other_answers_is_refused_where_rows_hold_lists(other, tmp_path):
    rows = [{"question": "What does f() return?", "answer": '["a", "b"]'}, {"question": "?", "answer": other}]
    for data in (rows, write("q.jsonl", rows)):
        with pytest.raises(BadArgument, match="is a text that looks like a list"):
            DataEnv("text", data)
    rows[0]["answer"] = '\\boxed{["a", "b"]}'
    env = DataEnv("text", write("q.jsonl", rows))
    for given, reward in (("a", 0), ('["a", "b"]', 1)):
        env.reset(idx=0)
        assert env.step(f"\\boxed{{{given}}}").reward == reward
    with (tmp_path / "q.csv").open("w") as file:
        csv.writer(file).writerows([["question", "answer"], ["a", '["a", "b"]'], ["b", "ok"]])
    DataEnv("text", tmp_path / "q.csv")  # has no other lists


@pytest.mark.parametrize(
    "answer",
    [
        "3,5",
        "-0,125",
        "12,5 %",
        "1234,567",
        "1.234,50",
        "€3,50",
        "3,5 km/h",
        "3,5 cm^2",
        "3,5 (m)",
        "x = 1,5",
    ],
)
def test_a_decimal_comma_in_a_file_with_semicolons_is_a_bad_row(answer, tmp_path):
    fine = (
        *("1,234", "1,234.50", "(3, 5)", "(3,5)", "[3,5)", "]3,5[", r"\{3,5\}", "1,2,3", "{1,2}", "|1,2|"),
        *("x_{1,2}=3", r"\log_{2,3}", r"\langle 1,2\rangle", "1,3-butadiene", "April 1,2020", "1,2 or 3"),
        r"f(x)=\begin{cases}1,2\end{cases}",
    )
    (tmp_path / "q.csv").write_text(
        f"question;answer\na;{answer}\n" + "".join(f"b;{each}\n" for each in fine)
    )
    with pytest.raises(
        BadArgument, match=r"1 of 18 rows .*\n  line 2: .*one number or two\? Write [-\d]+\.\d"
    ):
        DataEnv("math", tmp_path / "q.csv")
    (tmp_path / "q.csv").write_text(f'question,answer\na,"{answer}"\n')
    assert len(DataEnv("math", tmp_path / "q.csv").tasks) == 1


def test_a_function_gets_the_cell_as_it_is():
    env = DataEnv(
        "function", [{"question": "?", "answer": '["a"]'}], lambda answer, reference: answer == reference
    )
    env.reset(idx=0)
    assert env.step('["a"]').reward == 1


def test_the_letter_of_a_choice_is_that_of_its_column():
    rows = [{"question": "?", "A": "p", "B": "q", "C": "r", "D": "", "answer": "C"}]
    env = DataEnv("choice", rows)
    env.reset(idx=0)
    assert env.step("\\boxed{r}").reward == 1
    with pytest.raises(BadArgument, match="one of them is empty"):
        DataEnv("choice", [rows[0] | {"B": "", "D": "s"}])


def test_the_number_of_the_first_choice_is_known_said_or_asked_for():
    def winogrande(*answers):
        return [
            {"question": f"{n}?", "option1": "x", "option2": "y", "answer": a} for n, a in enumerate(answers)
        ]

    with pytest.raises(
        BadArgument, match=r"dataset: .* may be 0 or 1. Say which: --columns first=0, or first=1"
    ):
        DataEnv("choice", winogrande("1"))
    for rows, columns, key in (
        (winogrande("1", "2"), None, "A"),
        (winogrande("1"), "first=1", "A"),
        (winogrande("1"), {"first": "0"}, "B"),
        (winogrande("1", "0"), None, "B"),
    ):
        env = DataEnv("choice", rows, columns=columns, few_shot=winogrande("0", "1")[1:])
        obs = env.reset(idx=0).obs
        assert env.step(f"\\boxed{{{key}}}").reward == 1
        assert f"1?\n\nA. x\nB. y\n\n\\boxed{{{key}}}" in obs  # the example is read as the data is
        assert f"the first choice has the number {'01'[key == 'A']}" in env.about
    with pytest.raises(BadArgument, match="first is '2'; accepted: 0, 1, none"):
        DataEnv("choice", winogrande("1"), columns="first=2")


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ("question answer Answer", "answer"),
        ("question Answer answer", "answer"),
        ("question Answer ANSWER", "Answer"),
    ],
)
def test_of_two_columns_that_differ_in_case_the_known_name_or_the_first_counts(names, chosen):
    env = DataEnv("text", [dict.fromkeys(names.split(), "a")])
    assert env.columns.answer == chosen


def test_an_answer_is_the_number_of_a_choice_where_all_are_numbers_alone():
    def keys(*rows, columns=None):
        rows = [{"question": f"{n}?", "choices": each, "answer": key} for n, (each, key) in enumerate(rows)]
        env = DataEnv("choice", rows, columns=columns)
        return "".join(env.reset(idx=idx) and env.answer["answer"] for idx in range(len(rows))), env.about

    legs = ([1, 2, 3, 4], 2), ([4, 3, 2, 1], 1)
    with pytest.raises(BadArgument, match="first=none for texts"):
        keys(*legs)
    assert keys(*legs, columns="first=0")[0] == "CB"
    told, about = keys(*legs, columns="first=none")
    assert told == "BD"
    assert "answers are texts of choices" in about
    assert keys(([2.5, 5, 10, 1], 2.5), ([2.5, 5, 10, 1], 1))[0] == "AD"
    assert keys((["C", "B", "A", "D"], "A"), (["x", "y"], "y"))[0] == "CB"
    with pytest.raises(BadArgument, match=r"1 of 3 rows(.|\n)*row 2: the answer is -1"):
        keys((["x", "y"], 0), (["x", "y"], 1), (["x", "y"], -1))
    with pytest.raises(BadArgument, match=r"row 0: .* or a number with --columns first=0 or first=1"):
        keys((["x", "y"], 1), (["x", "y"], "A"))


def test_too_many_examples_are_a_mistake():
    with pytest.raises(BadArgument, match="has 101 examples"):
        gem.make("data:text", data=PLAIN, few_shot=[PLAIN[0]] * 101)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("question=fragen,answer=a", "no column 'fragen'.*Did you mean 'frage'"),
        ("quest=frage,answer=a", "Did you mean 'question'"),
        ("frage", "accepted: question=COLUMN"),
        ("question=frage", "no column of dataset is evidently the answer; it has: 'frage', 'a'"),
        ("", "no column of dataset is evidently the question"),
    ],
)
def test_columns_that_are_not_there_are_named(columns, said):
    with pytest.raises(BadArgument, match=said):
        gem.make("data:text", data=[{"frage": "?", "a": "1"}], columns=columns)


def test_a_name_is_no_code():
    for grader in ("os:system", "judge:gpt@http://example.org/v1"):
        with pytest.raises(BadArgument, match="accepted: a function"):
            gem.make("data:function", data=PLAIN, grader=grader)
    with pytest.raises(BadArgument, match="is no kind of grader"):
        DataEnv("os", data=PLAIN)


def test_a_function_sees_the_whole_reply_and_the_question():
    def score(answer, reference, question):
        return answer == f"{question} {reference}"

    env = gem.make("data:function", data=PLAIN, grader=score)
    env.reset(idx=0)
    assert env.step("Capital of Norway? Oslo").reward == 1


def test_without_data_it_says_how_to_give_it():
    with pytest.raises(MissingData, match=r"gem.make\('data:math', data='FILE'\)"):
        gem.make("data:math")


@pytest.mark.parametrize("kind", ["text", "choice"])
def test_it_keeps_the_contract(kind, monkeypatch):
    monkeypatch.setattr("gem.registry.ENV_REGISTRY", ENV_REGISTRY.copy())
    rows = [{**LETTERS, "Question": f"{n}?", "Answer": "AB"[n % 2]} for n in range(20)]
    kwargs = {"name": kind, "data": rows}
    register(EnvSpec("t:Own-v0", DataEnv, kwargs, max_turns=1, solver="oracle"))
    check_env("t:Own-v0", seeds=range(2)).raise_if_broken()


CAPITALS = [
    {"question": f"Letter {n}?", "choices": [f"w{n}", f"x{n}", f"y{n}", f"z{n}"], "answer": "ABCD"[n % 4]}
    for n in range(12)
]


def test_choices_are_shuffled_by_the_seed_and_the_letter_with_them():
    plain = gem.make("data:choice", data=CAPITALS)
    env = gem.make("data:choice", data=CAPITALS, shuffle_choices=True)
    letters, orders = [], []
    for idx in range(12):
        plain.reset(idx=idx, seed=idx)
        text = plain.answer["choices"]["ABCD".index(plain.answer["answer"])]
        obs = env.reset(idx=idx, seed=idx).obs
        letter = env.answer["answer"]
        assert f"\n{letter}. {text}\n" in obs
        assert sorted(env.answer["choices"]) == sorted(plain.answer["choices"])
        again = gem.make("data:choice", data=CAPITALS, shuffle_choices=True)
        assert again.reset(idx=idx, seed=idx).obs == obs
        assert env.step(env.solve()).info["success"]
        letters.append(letter)
        orders.append([each[0] for each in env.answer["choices"]])
    assert len(set(letters)) == 4
    assert len({*map(tuple, orders)}) > 6
    assert env.reset(idx=0, seed=0).obs != env.reset(idx=0, seed=12).obs  # another epoch


@pytest.mark.parametrize(
    "last",
    [
        *("None of the above", "all of these", "A and B", "Both of the above", "None of the others"),
        *("(A) and (B)", "A/B", "1 and 2", "Both", "A und B", "the first two", "all of the preceding"),
    ],
)
def test_choices_that_name_others_keep_their_order(last):
    rows = [{"question": "Which?", "choices": ["one", "two", last], "answer": "C"}]
    env = gem.make("data:choice", data=rows, shuffle_choices=True)
    for seed in range(8):
        assert f"A. one\nB. two\nC. {last}" in env.reset(seed=seed).obs


def test_a_fork_with_a_seed_has_the_order_that_was_shown():
    env = gem.make("data:choice", data=CAPITALS, shuffle_choices=True)
    for seed in range(6):
        env.reset(seed=seed)
        right = env.solve()
        for twin in (env.fork(seed=k) for k in range(6)):
            assert twin.answer == env.answer
            assert twin.fork().step(right).reward == 1
            assert twin.spawn().reset(seed=seed).obs == env.first_obs


def test_a_shuffled_episode_is_graded_again_as_it_was_shown():
    maker = Maker("data:choice", {"data": write("q.jsonl", CAPITALS), "shuffle_choices": True})
    episodes = rollout([Job(maker, seed) for seed in range(6)], SolverAgent())
    assert all(episode.success for episode in episodes)
    assert all(row.after for row in regrade(episodes, ChoiceGrader()))


def test_only_choices_are_shuffled():
    with pytest.raises(BadArgument, match="data:text cannot shuffle choices"):
        gem.make("data:text", data=PLAIN, shuffle_choices=True)


@pytest.mark.parametrize(
    ("kind", "answer", "target"),
    [
        ("text", "Oslo", "Oslo"),
        ("math", "3 + 4 is 7.\n#### 7", "7"),
        ("number", "7", "7"),
        ("text", "x" * 999, "x" * 300),
    ],
)
def test_the_last_info_names_the_right_answer(kind, answer, target):
    env = DataEnv(kind, data=[{"question": "q", "answer": answer}], max_attempts=2)
    env.reset(seed=0)
    assert "target" not in env.step("\\boxed{no}").info
    assert env.step("\\boxed{no}").info["target"] == target


def test_a_folder_that_is_no_data_set_is_refused_before_its_files_are_read(tmp_path, monkeypatch):
    data, few = write("q.jsonl", PLAIN), tmp_path / "machine"
    (few / "deep").mkdir(parents=True)
    (few / "deep" / "photo.png").touch()
    opened = []
    read = files.digest_file
    monkeypatch.setattr(sources, "digest_file", lambda path: opened.append(path.name) or read(path))
    with pytest.raises(BadArgument, match="has no file of data"):
        data_task(data, "text", few_shot=str(few))
    monkeypatch.setattr(files, "MOST_FILES", 2)
    for name in ("a.jsonl", "b.png"):
        (few / name).touch()
    with pytest.raises(BadArgument, match="more than 2 files"):
        data_task(data, "text", few_shot=str(few))
    assert opened == ["q.jsonl"] * 2


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        ([{"context": None}, {"context": "He lives in Oslo."}], "He lives in Oslo.\n\nQ"),
        ([{}, {"context": "He lives in Oslo."}], "He lives in Oslo.\n\nQ"),
        ([{"instruction": "Q", "input": None}, {"instruction": "Q", "input": "5 and 7"}], "5 and 7\n\nQ"),
        (
            [{"A": "Bergen", "B": "Oslo"}, {"A": "Bergen", "B": "Oslo", "C": "Paris"}],
            "Q\n\nA. Bergen\nB. Oslo\nC. Paris",
        ),
        ([{"choices": None}, {"choices": ["Oslo", "Bergen"]}], None),
    ],
)
@pytest.mark.parametrize("source", ["rows", "q.jsonl"])
def test_columns_that_the_first_row_lacks_are_found_in_later_ones(more, shown, source):
    rows = [
        {"answer": "Oslo", **({} if "instruction" in each else {"question": "Q"}), **each} for each in more
    ]
    if shown is None:  # a row without choices is refused
        with pytest.raises(BadArgument, match="line 1: the choices are None"):
            data_task(write("q.jsonl", rows))
        return
    own = data_task(write("q.jsonl", rows))
    env = gem.make(own.env, data=rows if source == "rows" else source)
    first, second = (env.reset(idx=number)[0] for number in (0, 1))
    assert first.startswith("Q\n\n")
    assert second.startswith(shown)
    assert "None" not in first


def write_png(rng):
    """A picture of noise, as base64."""
    pillow, file = pytest.importorskip("PIL.Image"), io.BytesIO()
    pillow.frombytes("L", (40, 30), bytes(rng.choices((0, 255), k=1200))).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_picture_alone_has_no_question_however_that_is_missing(missing):
    picture = write_png(random.Random(0))
    shown = [
        gem.make("data:text", data=[{"problem": asked, "answer": "a", "image": picture}]).reset(idx=0)[0]
        for asked in ("", missing)
    ]
    assert shown[0] == shown[1]


def test_a_small_picture_in_a_file_is_no_path(tmp_path):
    """Its base64 is too long for the name of a file, and has no slash."""
    rng = random.Random(0)
    picture = next(text for _ in range(1000) if "/" not in (text := write_png(rng))[:256])
    assert 256 < len(picture) < 1024
    data = write("q.jsonl", [{"problem": "what?", "answer": "a", "image": picture}])
    env = gem.make(data_task(data, "text").env, data=data)
    assert any(type(part).__name__ == "Image" for part in env.reset(idx=0)[0])
    broken = write("b.jsonl", [{"problem": "what?", "answer": "a", "image": "a\0b.png"}])
    with pytest.raises(BadArgument, match="line 1: a picture is str"):
        data_task(broken, "text")


def test_rows_of_a_folder_whose_file_was_written_again_are_the_new_ones(tmp_path):
    (tmp_path / "rows").mkdir()
    write(tmp_path / "rows/train.jsonl", [{"question": "old?", "answer": "1"}])
    before = gem.make("data:text", data=str(tmp_path / "rows"))
    write(tmp_path / "rows/train.jsonl", [{"question": "newer?", "answer": "2"}])
    after = gem.make("data:text", data=str(tmp_path / "rows"))
    assert after.reset(idx=0)[0].startswith("newer?")
    before.close()


def test_pictures_of_later_rows_are_found(tmp_path):
    rows = [PLAIN[0], {**PLAIN[0], "image": "gone.png"}]
    with pytest.raises(BadArgument, match=r"line 2: a picture is str 'gone\.png'"):
        data_task(write("q.jsonl", rows), "text")


@pytest.mark.parametrize("name", ["q.jsonl", "deep/q.jsonl", "deep"])
def test_a_file_here_is_read_before_one_of_its_name_in_gem_data(tmp_path, monkeypatch, name):
    monkeypatch.setenv("GEM_DATA", str(tmp_path / "home"))
    for folder in (tmp_path, tmp_path / "home"):
        (folder / "deep").mkdir(parents=True)
        for each in ("q.jsonl", "deep/q.jsonl"):
            write(folder / each, PLAIN if folder == tmp_path else PLAIN[:1])
    assert data_task(name, "text").about.startswith(f"{name}: 2 rows. ")
    (tmp_path / name.partition("/")[0]).rename(tmp_path / "moved")
    read = tmp_path / "home" / name
    assert data_task(name, "text").about.startswith(f"{name}: 1 row in {read}. ")
