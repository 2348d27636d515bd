import pytest

from gem.errors import BadArgument
from gem.graders.choice import ChoiceGrader, first_number, read_choice, read_letter

FRUIT = {"choices": ["car", "an apple", "stone"], "answer": "B"}


@pytest.mark.parametrize(
    "answer",
    [
        "\\boxed{B}",
        "\\boxed{(b)}",
        "\\boxed{\\text{B}}",
        "\\boxed{\\textit{B. \\text{an apple}}}",
        "\\boxed{B. an apple}",
        "\\boxed{Apple}",
        "<answer>Option B</answer>",
        "B",
        "**B**",
        "The answer is (B).",
        "Cars are no fruit.\nThe correct answer is **B**, of course.",
        "It grows on a tree.\n\nB) an apple",
    ],
)
def test_a_letter_or_the_text_of_the_right_choice_is_right(answer):
    score = ChoiceGrader()(answer, FRUIT)
    assert (score.correct, score.parsed) == (True, "B")


@pytest.mark.parametrize(
    ("answer", "parsed"),
    [
        ("\\boxed{A}", "A"),
        ("\\boxed{car}", "A"),
        ("\\boxed{D}", None),
        ("\\boxed{B. car}", None),
        ("\\boxed{A or B}", None),
        ("I like fruit", None),
        ("", None),
    ],
)
def test_another_choice_is_wrong_and_a_contradiction_is_none(answer, parsed):
    score = ChoiceGrader()(answer, FRUIT)
    assert (score.correct, score.parsed) == (False, parsed)


@pytest.mark.parametrize(
    ("answer", "choices", "letter"),
    [
        ("\\boxed{C}", ["C", "D", "A", "K"], "C"),
        ("\\boxed{A}", ["C", "D", "A", "K"], "A"),
        ("**(c)**", ["C", "D", "A", "K"], "C"),
        ("\\boxed{C. A}", ["C", "D", "A", "K"], "C"),
        ("\\boxed{C. A}", ["C", "D", "K", "A"], None),
        ("\\boxed{K}", ["C", "D", "A", "K"], "D"),
        ("\\boxed{A. Lincoln}", ["G. Washington", "A. Lincoln"], "B"),
        ("\\boxed{B. Franklin}", ["Lincoln", "Jefferson", "B. Franklin"], "C"),
        ("\\boxed{Option A}", ["option B", "option A"], "B"),
        ("\\boxed{I, Claudius}", ["Emma", "I, Claudius"], "B"),
    ],
)
def test_a_letter_that_is_also_the_text_of_another_choice_is_the_letter(answer, choices, letter):
    assert read_letter(answer, choices) == letter


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        ("The answer is a ribosome.", "B"),
        ("The answer is a Ribosome. It reads RNA.", "B"),
        ("The answer is a bit unclear", None),
        ("The answer is a ribosome, because it reads RNA.", "B"),
        ("The answer is a ribosome which reads RNA.", "B"),
        ("Answer: ribosome", "B"),
        ("Final answer: **the ribosome**\n\nIs there more?", "B"),
        ("The answer is a", "A"),
        ("The answer is b, because RNA is read there.", "B"),
        ("The answer is (b) because RNA is read there.", "B"),
        ("The answer is B because RNA is read there.", "B"),
        ("The answer is B, A is too small.", "B"),
        ("The answer is B: Y", "B"),
        ("The answer is A. No, wait: the answer is B.", "B"),
        ("The answer is B.\nThis choice is sound, and the answer is not A.", "B"),
        ("\\boxed{A. ribosome}", None),
        ("\\boxed{C. A ribosome}", None),
        ("The answer is A, a ribosome.", None),
        ("The answer is C a ribosome.", None),
        ("The answer is A. B. C.", None),
        ("The answer is A or B, I guess.", None),
        ("The answer is A, B and C.", None),
        ("\\boxed{A. B. C.}", None),
    ],
)
def test_an_article_is_no_letter_and_two_letters_are_no_choice(reply, letter):
    assert read_letter(reply, ["a nucleus", "a ribosome", "a membrane"]) == letter


@pytest.mark.parametrize(
    ("letter", "text", "choices"),
    [
        ("C", "-13", ["12", "13", "-13"]),
        ("B", "(0, 1)", ["0, 1", "(0, 1)"]),
        ("D", "C", ["A", "T", "G", "C"]),
    ],
)
def test_a_text_may_stand_in_brackets_behind_its_letter(letter, text, choices):
    for stated in (f"{letter} ({text})", f"{letter} {text}", f"{letter} - {text}"):
        assert read_letter(f"The correct option is {stated}.", choices) == letter


@pytest.mark.parametrize(
    "choices",
    [
        ["x > 3", "x < 3", "x = 3"],
        ["(0, 1)", "[0, 1]", "(0, 1]"],
        [r"$\frac{1}{2}$", r"$-\frac{1}{2}$"],
        ["AA", "Aa", "aa"],
        ["x**2", "x*2", "x2"],
        [r"\text{yes, } x > 3", "$x > 3$", "no"],
    ],
)
def test_choices_that_differ_by_a_sign_or_a_case_are_told_apart(choices):
    for letter, text in zip("ABC", choices, strict=False):
        assert read_choice(text, choices)["answer"] == letter
        for reply in (rf"\boxed{{{text}}}", rf"\boxed{{{letter}. {text}}}", text):
            assert read_letter(reply, choices) == letter


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        (r"\boxed{\left( 0,\, 1 \right]}", "C"),
        (r"\boxed{$[0,1]$.}", "B"),
        (r"\boxed{B. (0, 1)}", None),
        (r"\boxed{0, 1}", None),
    ],
)
def test_layout_is_no_part_of_a_choice_but_brackets_are(reply, letter):
    assert read_letter(reply, ["(0, 1)", "[0, 1]", "(0, 1]"]) == letter


@pytest.mark.parametrize(
    ("answer", "choices", "numbered", "letter"),
    [
        ("B", ["x", "y"], None, "B"),
        ("y", ["x", "y"], None, "B"),
        (1, ["x", "y"], 0, "B"),
        (1, ["1", "2"], None, "A"),
        ("1", ["1", "2"], None, "A"),
        ("1", ["1", "2"], 0, "B"),
        ("1", ["x", "y"], 1, "A"),
        (1, [2.5, 5, 10, 1], None, "D"),
        ("A", ["C", "B", "A"], None, "A"),
        ("A", ["C", "B", "A"], "none", "C"),
        ("(a)", ["C", "B", "A"], "none", "A"),
        ("2", {"text": ["x", "y"], "label": ["1", "2"]}, None, "B"),
        ("y", '["x", "y"]', None, "B"),
        ("B)21.5", ["A)21", "B)21.5"], None, "B"),
        ("(B)", ["(A) p", "(B) q"], None, "B"),
    ],
)
def test_the_right_choice_is_read_as_a_label_a_text_or_a_number(answer, choices, numbered, letter):
    assert read_choice(answer, choices, numbered)["answer"] == letter


@pytest.mark.parametrize(
    ("answer", "choices"),
    [("C", ["x", "y"]), ("z", ["x", "y"]), (2, ["x", "y"]), ("x", ["x", "x"]), ("A", ["x"]), ("A", "x, y")],
)
def test_an_answer_that_is_not_among_the_choices_is_refused(answer, choices):
    with pytest.raises(BadArgument, match="choices"):
        read_choice(answer, choices)


def test_answers_of_a_whole_data_set_tell_where_numbers_begin():
    two = [["x", "y"]] * 3
    assert first_number(["0", "1", "1"], two) == 0
    assert first_number(["1", "2", "1"], two) == 1
    for ones in (["1", "1", "1"], [1, 1, 1]):  # what follows is the same for texts and integers
        with pytest.raises(BadArgument, match="first=0, or first=1"):
            first_number(ones, two)
    assert first_number(["A", "1", "1"], two) is None
    for twos in (["1.0", "2.0", "1.0"], [1.0, 2.0, 1.0]):  # as a data frame has it whose column has gaps
        assert first_number(twos, two) == 1
        assert read_choice(twos[1], two[0], 1)["answer"] == "B"
    assert read_choice("2.0", ["1.0", "2.0"])["answer"] == "B"


@pytest.mark.parametrize("kind", [int, str])
def test_numbers_that_are_texts_of_choices_are_texts_or_asked_about(kind):
    def read(answers, *choices):
        return first_number(list(map(kind, answers)), choices)

    assert read([3, 4], ["3", "4"], ["3", "4"]) == "none"
    assert read([0, 1], ["0", "1"], ["0", "1"]) == "none"  # the number and the text are the same choice
    assert read([2, 9], ["1", "2", "3"], ["8", "9"]) == "none"
    assert read([1, 0], ["3", "4"], ["0", "1"]) == 0
    for answers in ([2, 1], [2, 0]):
        with pytest.raises(BadArgument, match="first=none for texts, first=0 or first=1"):
            read(answers, [0, 1, 2, 3], [3, 2, 1, 0])
    with pytest.raises(BadArgument, match="first=none"):
        read([2, 1], ["1", "2", "3", "4"], ["4", "3", "2", "1"])


def test_letters_that_are_texts_of_choices_are_texts_where_others_are_no_letters():
    letters, words = ["C", "B", "A"], ["x", "y"]
    assert first_number(["A", "y"], [letters, words]) == "none"
    assert first_number(["A", "B"], [letters, words]) is None
    assert first_number(["A", "y", "B"], [letters, words, words]) is None
    assert first_number(["y"], [words]) is None


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        *(("\\boxed{21.5}", "B"), ("\\boxed{B}", "B"), ("\\boxed{B)21.5}", "B"), ("\\boxed{21}", "A")),
        *(
            ("\\boxed{B, 21.5}", "B"),
            ("\\boxed{21.5 (B)}", "B"),
            ("21.5 - B", "B"),
            ("\\boxed{B – 21.5}", "B"),
        ),
        *(("\\boxed{21.5 (A)}", None), ("\\boxed{A, 21.5}", None), ("\\boxed{A, B}", None)),
    ],
)
@pytest.mark.parametrize(
    "choices", [["A)21", "B)21.5", "C)22"], ["(a) 21", "(b) 21.5", "(c) 22"], ["21", "21.5", "22"]]
)
def test_letters_of_choices_stand_in_their_texts_or_beside_them(answer, letter, choices):
    assert read_letter(answer, read_choice("B", choices)["choices"]) == letter
    assert read_letter(answer, choices) == letter


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        ("The answer is B. Note that the wrong answer is A.", "B"),
        ("The answer is B. A common wrong choice: A.", "B"),
        ("The answer is B. The other option is A.", "B"),
        ("The answer is B.\n\nExplanation: the most tempting option is A, but Rome is in Italy.", "B"),
        ("I doubt that the answer is A. The answer is B.", "B"),
        ("If the answer is A, Rome moved. So B", "B"),
        ("The answer is A. Wait, no, Rome is in Italy.", None),
        ("The answer is A? No.", None),
        ("A. Rome\nB. Oslo\nC. Bern\nD. Kyiv", None),
        ("A is in Italy.\nB. Oslo", "B"),
        ("The answer is B.\n\nA. No, Rome is in Italy. C: this is wrong. D is false.", "B"),
        ("\\boxed{B. Oslo, or maybe C. Bern}", None),
        ("\\boxed{B. Oslo C. Bern}", None),
    ],
)
def test_what_is_said_of_other_choices_is_no_answer(reply, letter):
    assert read_letter(reply, ["Rome", "Oslo", "Bern", "Kyiv"]) == letter


def test_a_choice_may_be_a_word_that_takes_an_answer_back():
    choices = ["yes", "no", "maybe", "No, it is red"]
    for reply, letter in (("The answer is C. Maybe.", "C"), ("The answer is B: No, as it is red.", "B")):
        assert read_letter(reply, choices) == letter
        assert read_letter(reply + "\nRed is not blue.", choices) == letter
    assert read_letter("The answer is D. No, it is red.\nSee above.", choices) == "D"


@pytest.mark.parametrize(
    ("text", "letter"), [("B-", "B"), ("B+", "A"), ("(B-)", "B"), ("B", "B"), ("'B'", "B"), ("−B", None)]
)
def test_signs_are_no_marks_around_a_letter(text, letter):
    assert read_letter(f"\\boxed{{{text}}}", ["B+", "B-"]) == letter


@pytest.mark.parametrize(
    "choices",
    [
        [{"label": "P", "text": "x"}, {"label": "Q", "text": "y"}],  # as in CommonsenseQA
        {"P": "x", "Q": "y", "R": None},  # as `datasets` gives it where another row has R
        {"text": ["x", "y"], "label": ["P", "Q"]},
    ],
)
def test_choices_have_their_labels(choices):
    assert read_choice("Q", choices) == {"choices": ["x", "y"], "answer": "B"}


@pytest.mark.parametrize("choices", [["x", None], {"P": None, "Q": "y"}, [{"label": "P"}, {"text": "y"}]])
def test_a_choice_that_is_nothing_is_refused(choices):
    with pytest.raises(BadArgument, match="empty or no text; accepted: a list of texts, a mapping"):
        read_choice("x", choices)
