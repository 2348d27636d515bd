"""What is read from replies: the open half of the labelled ones, replies of our own, and hostile lengths."""

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from gem.graders.math import MathGrader, final_answer

HERE = Path(__file__).parent
REPLIES = [
    json.loads(line) for line in (HERE / "math_replies.jsonl").read_text(encoding="utf-8").splitlines()
]
OPEN = [
    json.loads(line) for line in (HERE / "replies" / "open.jsonl").read_text(encoding="utf-8").splitlines()
]
ERRORS_LIST = """
everyday-units: c-241 c-244
expressions: b-202 b-241 b-254
gsm-mixed: c-263 c-279 c-294 c-328
intervals: b-143
languages: a-220
money-percent-units: a-370
olympiad-mixed: c-366 c-418
physics: c-061
sets: b-049
symbols: c-458 c-462
systems: b-098 b-102 b-108 b-125
unboxed: b-379
"""
ERRORS = {(kind, name) for kind, *names in map(str.split, ERRORS_LIST.split("\n")[1:-1]) for name in names}
"""What is judged wrongly of the open half: kind and id. What is judged rightly by now may go from here."""


def _by_kind():
    kinds = defaultdict(list)
    for row in OPEN:
        kinds[row["kind"]].append(row)
    return kinds


def _judge(grader, row):
    """Return the verdict; the topic of a problem of our own says in which unit it wants the answer."""
    origin, _, topic = row["source"].partition(":")
    return grader(row["reply"], row["gold"], topic if origin == "own" else "").correct


@pytest.mark.parametrize("kind", sorted({row["kind"] for row in OPEN}))
def test_the_open_half_of_the_labelled_replies(kind):
    pytest.importorskip("math_verify")
    grader = MathGrader()
    wrong = [row["id"] for row in _by_kind()[kind] if _judge(grader, row) is not row["right"]]
    assert [name for name in wrong if (f"{kind}:", name) not in ERRORS] == []


def test_replies_of_our_own():
    grader = MathGrader()
    wrong = [
        (row["gold"], row["reply"], final_answer(row["reply"])[0])
        for row in REPLIES
        if grader(row["reply"], row["gold"]).correct is not row["right"]
    ]
    assert [row for row in wrong if row[:2] not in UNREAD] == []


UNREAD = {
    ("16", "Ben is 12 now, and in 4 years he'll be 16."),
    ("60", "Final answer: five dozen apples"),
    ("42", r"$\boxed{(B)\ 42}$"),
    ("42", r"$\boxed{\text{B) } 42}$"),
    ("B", "Option B"),
    ("42", "So the answer is (B) 42."),
    ("12", "30% of the judges, or 12 judges, are more than 50 years old."),
    ("360", "Abel arrives 6 hours earlier, which is 360 minutes."),
    ("800", "The ratio parts sum to 15, so each is $200, and 4 parts are $800."),
}
"""Right replies that are refused."""


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("<think>maybe \\boxed{7}</think>\n\\boxed{42}", "42"),
        ("<think>maybe 7. Let me see whether", None),
        ("It is not \\boxed{42}.", None),
        (r"\boxed{42} is not the answer.", None),
        (r"\boxed{3}. But that fails. Case 2 gives \boxed{42}.", "42"),
        (r"\boxed{\frac12} = \boxed{0.5}", "0.5"),
        (r"$\boxed{\textbf{(113)}}$", "113"),
        ("**Answer: 42**", "42"),
        ("### Final Answer\n\n$$x^2$$", "x^2"),
        ('{"steps": 3, "answer": 42}', "42"),
        ("| a | 1 |\n|---|---|\n| **Total** | **42** |", "42"),
        ("16-3-4 = 9 eggs, and 9*2 = $18 every day.", "$18"),
        ("Ihr Lohn beträgt also 9.360 Euro und das ist alles.", "9360 Euro"),
    ],
)
def test_what_is_read(reply, answer):
    assert final_answer(reply)[0] == answer


PIECES_LIST = r"""
** __ * _ $ $$ \( \[ ( ) (( a( 1 1_ 1._ ._A A._ answer_is_ Answer: #### | |_a_ -_1 <answer>
</answer> <think> </think> \boxed{ \boxed{1}_ \boxed{1}_and_ \boxed{1}._But_that_fails._ { } \\ &
so_1_ =_ 1_=_ 1_+_ not_ 1,_ one_ if_ 答案是 15个 ٣ ،_ →1 if_1,_ a_ \text{ \begin{align} \end{align}
e.g._ Mr._ 1:1_ 1.000. x^ (1, ⌊ 1/ ✅ ∎ q.e.d. maybe_ it_is_1._ No,_ Actually,_1._
the_only_value_is_1._ Case_1_ <<1>> ``` **Final_Answer:_1**_ _(choice_A) \text{A_1_
"""
PIECES = [*(piece.replace("_", " ") for piece in PIECES_LIST.split()), "\n", "\n\n", '{"answer": "']


@pytest.mark.system
def test_reading_is_linear_in_the_length_whatever_the_shape():
    """Replies of 1 MB are read in a child with a limit of processor time that quadratic patterns exceed."""
    resource = pytest.importorskip("resource")
    code = (
        f"pieces = {PIECES!r}"
        + r"""
from gem.graders.math import MathGrader
grader = MathGrader()
for piece in pieces:
    run = piece * (1_000_000 // len(piece))
    for reply in ("So " + run + " 5.", run + r" \boxed{5} x", r"The answer is 5. \boxed{5} " + run):
        grader(reply, "72")
"""
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (150, 150)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-500:]


@pytest.mark.parametrize("word", ["dreißig", "DREISSIG", "dreiſſig", "TRENTA", "vınte", "VİNTE"])
def test_number_words_in_any_case_raise_no_error(word):
    MathGrader()(f"Also lautet die Antwort und die Lösung ist: {word} Äpfel. La risposta è {word}.", "30")


def test_a_number_word_with_a_sharp_s_is_read():
    assert MathGrader()("Die Antwort lautet dreißig.", "30").correct


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        ("M=5 more than x", "$M=5$", False),
        ("M = 5", "$M=5$", True),
        (r"\boxed{\text{The answer is } f(n)=n, g(n)=1}", "$f(n)=n$, $g(n)=1$", True),
        (r"\boxed{\text{The answer is not } f(n)=n, g(n)=1}", "$f(n)=n$, $g(n)=1$", False),
        ("The answer is $f(x)=ax+b, where b is an integer$.", "$f(x)=a x+b$, where $b$ is an integer", True),
    ],
)
def test_halves_of_statements_and_labels_in_boxes(answer, gold, right):
    assert MathGrader()(answer, gold).correct is right
