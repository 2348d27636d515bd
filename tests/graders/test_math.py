import importlib.util
import re
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gem.errors import BadArgument, MissingExtra, NoVerdict
from gem.graders import math as grading
from gem.graders.math import (
    MathGrader,
    boxed_reward_fn,
    check_correct,
    copied,
    decide,
    final_answer,
    formed,
    references,
)
from gem.graders.mathematics.evaluation import separation
from gem.graders.mathematics.latex import read
from gem.graders.pool import WorkerPool, resident_mb

HERE = Path(__file__).parent
VERIFIES = importlib.util.find_spec("math_verify") is not None
needs_sympy = pytest.mark.skipif(not VERIFIES, reason="math-verify is not installed")


def _pairs():
    lines = (HERE / "math_pairs.tsv").read_text(encoding="utf-8").splitlines()
    for gold, answer, right in (line.split("\t") for line in lines if not line.startswith("#")):
        yield gold, answer, right == "1"


PAIRS = list(_pairs())


def _hostile():
    spec = importlib.util.spec_from_file_location("hostile", HERE / "hostile.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.answers()


def test_the_table_is_decided_without_sympy_but_for_a_few():
    undecided = []
    for gold, answer, right in PAIRS:
        verdict, _ = decide(references(gold)[0], final_answer(answer)[0] or "")
        assert verdict in (right, None), (gold, answer)
        undecided += [(gold, answer)] if verdict is None else []
    assert len(PAIRS) >= 900
    assert len(undecided) <= 50, undecided


@needs_sympy
def test_the_table_boxed_and_bare():
    grader = MathGrader()
    wrong = [
        (gold, given)
        for gold, answer, right in PAIRS
        for given in (answer, f"So the answer is $\\boxed{{{answer}}}$.")
        if grader(given, gold).correct is not right
    ]
    assert wrong == []


def test_a_verdict_is_the_same_whichever_side_an_expression_stands_on():
    one_sided = (
        "=",
        "<",
        ">",
        "\\le",
        "\\ge",
        "(",
        "{",
        "%",
        "\\text",
        "m",
        "\\pm",
    )  # where order has a meaning
    for gold, answer, right in PAIRS:
        other = re.fullmatch(r"\d+,\d+|.*[A-Za-z]{4}.*", answer)  # a list as a reference; a sentence
        if answer and right and not other and not any(mark in gold + answer for mark in one_sided):
            assert decide(answer, gold)[0] in (True, None), (gold, answer)


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (r"so \boxed{5}", "5"),
        (r"they are \boxed{4}, \boxed{5}", "4, 5"),  # side by side: both are the answer
        (r"first \boxed{4}, no: \boxed{5}", "5"),
        (r"first \boxed{4}. I was wrong, \boxed{5}", "5"),
        (r"\boxed{1} and \boxed{-2}", "1, -2"),
        (r"\boxed{5} \boxed{5}", "5"),
        (r"$\boxed{28}$ percent", "28%"),
        (r"$\boxed{28}\%$", "28%"),
        (r"\\boxed{5}", "5"),
        ("72", "72"),
        ("  72\n", "72"),
        ("The answer is 72.", "72"),
        ("Long text.\nFinal Answer: $\\frac{1}{2}$.", r"\frac{1}{2}"),
        ("work\n#### 72", "72"),
        ("The answer is: \\(x+1\\)", "x+1"),
        ("", None),
        (" \n", None),
    ],
)
def test_final_answer(reply, answer):
    assert final_answer(reply)[0] == answer


@needs_sympy
@pytest.mark.parametrize(
    ("reply", "gold", "right"),
    [
        ("Final Answer: The largest $n$ is 34.", "34", True),
        ("Therefore, there are 12 distinct sequences. I hope it is correct.", "12", True),
        ("So the slope is\n\\[ \\frac{1}{2}. \\]\nDone.", "0.5", True),
        ("So the slope is\n\\[ \\frac{1}{2}. \\]\nDone.", "0.25", False),
    ],
)
def test_an_unboxed_reply_is_searched(reply, gold, right):
    assert check_correct(reply, gold) is right


CORRECTED = r"""
Actually, it is {}.
No, it is {}.
No! It is {}.
Wait, {}.
Wait: \({}\).
Correction: {}
I mean {}.
Sorry, I meant ${}$.
Oops. {}.
Or rather: {}.
Rather, {}.
On second thought, {}.
Scratch that, {}.
My bad, it is {}.
That's wrong, it's {}.
That is not correct. x = {}.
It should be {}.
Not 2 but {}.
I made a mistake. It should be {}.
But it is {}.
However, it is {}.
The correct value is {}.
**Correction:** {}
*Edit*: {}
(Sorry, {}.)
More precisely, {}.
I take it back: it is {}.
I changed my mind: {}.
It can't be 2. It is {}.
No it isn't, it is {}.
Actually, it is {}, not 2.
I now think it is {}.
2 is wrong. {} is right.
Make that {}.
No, wait. Hmm. {}.
""".strip().splitlines()
TAKEN_BACK = r"""
That is wrong.
Wait, no.
I was wrong.
This is incorrect.
Scratch that.
Or maybe 3.
It could be 3 too.
""".strip().splitlines()
NOT_CORRECTED = r"""
Actually this follows from the definition.
Actually this follows from 3 lemmas.
Actually, it is 2.
No other solutions exist.
No further steps are needed.
Sorry for the long answer.
I mean it.
Thank you.
Wait, let me check: 1+1=2. Yes.
Wait, 2^2 = 4, so it holds.
Is it wrong? No.
It is not 3.
3 is wrong.
No, wait. Let me check. 1+1=2. Yes, that is correct.
Rather than 3, we get 2.
Check: 3 - 1 = 2. No errors.
It should be noted that x = 3 fails.
The wrong answer 3 comes from a lost sign.
I am not wrong.
The correct option is the last.
That is right.
Note that 3 is not a solution.
Not bad!
Or 2.0.
Hmm, is this right? Yes, it is right.
""".strip().splitlines()


@pytest.mark.parametrize(
    ("reply", "gold"),
    [
        *(
            (f"{words} 18.", "18")
            for words in ("It's", "That's", "So it’s", "We'd have", "I get", "Then we get")
        ),
        ("It's 18, not 17.", "18"),
        ("I = 18", "18"),
    ],
)
def test_a_short_sentence_says_its_value(reply, gold):
    assert check_correct(reply, gold)
    assert not check_correct(reply, "17")


@pytest.mark.parametrize(
    "reply",
    [
        *(
            "It's not 18.",
            "It's 17, not 18.",
            "I don't get 18.",
            "It's 18 + x.",
            "It is x + 18.",
            "It's 18 times x.",
        ),
        *("It's under 18.", "It's wrong: 18.", "I doubt 18.", "If it's 18.", "I need 18 more."),
    ],
)
def test_a_short_sentence_does_not_say_what_it_denies(reply):
    assert not check_correct(reply, "18")


@pytest.mark.parametrize("reply", ["The answer is 2. {}", "So \\boxed{{2}}. {}", "Work.\n#### 2\n{}"])
def test_a_correction_behind_the_answer_counts(reply):
    verdicts = {
        words: tuple(check_correct(reply.format(words.format(3)), gold) for gold in "23")
        for words in CORRECTED
    }
    assert verdicts == dict.fromkeys(CORRECTED, (False, True))
    assert [words for words in TAKEN_BACK if check_correct(reply.format(words), "2")] == []
    assert [words for words in NOT_CORRECTED if not check_correct(reply.format(words), "2")] == []


@pytest.mark.parametrize(
    "reply", ["The answer is 2, not 3.", "The answer is 2 (not 3).", "The answer is 2, since 1+1=2."]
)
def test_a_reason_behind_the_answer_changes_nothing(reply):
    assert check_correct(reply, "2")
    assert not check_correct(reply, "3")


def test_the_score_says_what_was_read_and_why():
    grader = MathGrader()
    right, wrong, none = grader(r"\boxed{0.5}", "1/2"), grader(r"\boxed{0.6}", "1/2"), grader("", "1/2")
    assert (right.value, right.correct, right.parsed, right.why) == (1.0, True, "0.5", "equal")
    assert (wrong.value, wrong.correct, wrong.parsed, wrong.why) == (0.0, False, "0.6", "different")
    assert (none.value, none.parsed, none.why) == (0.0, None, "no answer")


@pytest.mark.parametrize(
    "gold", [5, 5.0, Fraction(5), np.int64(5), ["4", "5"], (4, 5), r"\boxed{5}", "so 2+3\n#### 5"]
)
def test_references_of_many_kinds(gold):
    assert check_correct("5", gold)
    assert not check_correct("6", gold)


@pytest.mark.parametrize("gold", [None, True, [], object(), {}])
def test_a_reference_of_another_kind_is_refused(gold):
    with pytest.raises(BadArgument, match="accepted"):
        check_correct("5", gold)


def test_budgets_must_be_positive():
    with pytest.raises(BadArgument):
        MathGrader(cpu_s=0)


@given(st.integers())
def test_integers_of_any_size_are_compared_exactly(n):
    assert decide(str(n), f"{n:,}")[0]
    assert decide(str(n), f"{n}.0")[0]
    assert decide(str(n), str(n + 1))[0] is False
    assert decide(str(n), rf"\frac{{{2 * n}}}{{2}}") == (True, "not evaluated")


@given(st.integers(5000, 6000), st.integers(0, 9))
@settings(max_examples=5)
def test_integers_of_thousands_of_digits_too(length, digit):
    big = "7" * length
    assert decide(big, big + str(digit))[0] is False
    assert decide(big, "00" + big)[0]


@given(st.fractions(max_denominator=10**6), st.fractions(max_denominator=10**6))
def test_fractions_are_equal_when_they_are(a, b):
    answer = rf"\frac{{{b.numerator}}}{{{b.denominator}}}"
    assert decide(f"{a.numerator}/{a.denominator}", answer)[0] is (a == b)


@given(st.text(max_size=200), st.text(max_size=200))
@settings(max_examples=300)
def test_any_two_texts_get_a_fast_verdict(a, b):
    assert decide(a, b)[0] in (True, False, None)
    assert final_answer(a)[1] in (True, False)


def test_hostile_answers_do_not_raise_and_few_reach_sympy():
    golds = ["72", r"\frac{1}{2}", "x^2+1", r"(-\infty,3]", "Yes", "(1,2)", r"\sqrt{2}"]
    answers = _hostile()
    asked = 0
    for i, reply in enumerate(answers):
        answer, _ = final_answer(reply)
        verdict = answer is not None and decide(golds[i % len(golds)], answer)[0]
        assert verdict is not True, reply[:100]
        asked += verdict is None
    assert len(answers) == 1000
    assert asked < 100


@pytest.mark.parametrize(
    "tower", ["9^9^9^9", "((9!)!)!", r"10^{10^{10^{10}}}", "2^{9999999999}", r"(10^{100})!/3"]
)
def test_a_tower_is_undecided_at_once_and_equal_to_itself(tower, monkeypatch):
    monkeypatch.setattr(grading, "workers", None)  # nobody is asked
    score = MathGrader()(rf"\boxed{{{tower}}}", "5")
    assert (score.value, score.why) == (0.0, "undecided")
    assert check_correct(tower, tower)


@needs_sympy
@pytest.mark.slow
def test_hostile_answers_end_within_their_budget_and_memory_does_not_grow():
    resource = pytest.importorskip("resource")
    golds = ["72", r"\frac{1}{2}", "x^2+1", r"(-\infty,3]", "Yes", "(1,2)", r"\sqrt{2}"]
    grader = MathGrader(cpu_s=1.0)
    answers = _hostile()
    for reply in answers[:200]:
        assert not grader(reply, "72").correct
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for i, reply in enumerate(answers):
        score = grader(reply, golds[i % len(golds)])
        assert (score.value, score.correct) == (0.0, False), reply[:100]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB
    pool = grading.workers()
    assert all(resident_mb(pid) < 200 for pid in (pool.server_pid, *pool.pids))
    assert check_correct(r"\sum_{k=1}^{3} k", "6")


@needs_sympy
@pytest.mark.slow
def test_an_answer_that_spends_its_cpu_budget_scores_zero_as_undecided():
    score = MathGrader(cpu_s=0.5)(r"\boxed{\sum_{k=1}^{10} k^{k^{k^{k}}}}", "5")
    assert (score.value, score.why) == (0.0, "undecided")
    assert check_correct(r"\sum_{k=1}^{3} k", "6")  # and the next one is graded


def _workers(monkeypatch, program, **answers):
    """Put a pool of another program in the workers' place."""
    pool = WorkerPool(program)
    monkeypatch.setattr(grading, "workers", lambda: pool)
    return pool


DYING = """
import os
def load():
    pass
def answer(question):
    if question["gold"] != %r:
        os._exit(9)
    return {"equal": %s}
"""
HARD = r"\sum_{k=1}^{3} k"


def test_a_crash_is_undecided_where_a_known_good_pair_is_graded(monkeypatch, tmp_path):
    program = tmp_path / "dying.py"
    program.write_text(DYING % (grading.CONTROL["gold"], True))
    pool = _workers(monkeypatch, program)
    score = MathGrader()(HARD, "6")
    assert (score.value, score.why) == (0.0, "undecided")
    pool.close()


@pytest.mark.parametrize(
    "program", [DYING % ("no question at all", True), DYING % (grading.CONTROL["gold"], False)]
)
def test_a_grader_that_fails_on_a_known_good_pair_gives_no_verdict(monkeypatch, tmp_path, program):
    path = tmp_path / "broken.py"
    path.write_text(program)
    pool = _workers(monkeypatch, path)
    with pytest.raises(NoVerdict, match="known good pair"):
        MathGrader()(HARD, "6")
    assert check_correct("0.5", "1/2")  # what needs no worker is graded
    pool.close()


def test_without_sympy_the_easy_pairs_are_graded_and_the_others_name_the_extra(monkeypatch, tmp_path):
    program = tmp_path / "bare.py"
    program.write_text("def load():\n    raise ModuleNotFoundError('No module', name='math_verify')\n")
    pool = _workers(monkeypatch, program)
    assert check_correct(r"\boxed{\frac{2}{4}}", "0.5")
    with pytest.raises(MissingExtra, match=r"pip install .*\[math\]"):
        check_correct(HARD, "6")
    pool.close()


@needs_sympy
@pytest.mark.slow
def test_any_thread_may_grade():
    verdicts = {}

    def grade(i):
        verdicts[i] = (check_correct(HARD, str(i)), check_correct(r"2^{0.5}", r"\sqrt{2}"))

    threads = [threading.Thread(target=grade, args=(i,)) for i in range(4, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == {i: (i == 6, True) for i in range(4, 9)}


@needs_sympy
@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_any_process_may_grade(method):
    with ProcessPoolExecutor(2, mp_context=get_context(method)) as processes:
        assert list(processes.map(check_correct, [HARD, HARD, "0.5"], ["6", "7", "1/2"])) == [
            True,
            False,
            True,
        ]


def test_boxed_reward_fn_wants_a_box():
    assert boxed_reward_fn(r"\boxed{2}", "2") == ({"formatted": True}, 1.0)
    assert boxed_reward_fn(r"\boxed{3}", "2", incorrect_reward=-1.0) == ({"formatted": True}, -1.0)
    assert boxed_reward_fn("2", "2") == ({"formatted": False}, 0.0)
    assert boxed_reward_fn(rf"\boxed{{{HARD}}}", "6", fast=True)[1] == 0.0


@pytest.mark.system
def test_a_long_run_of_one_thing_does_not_hold_the_process():
    """Quadratic patterns would take minutes: the child has a limit of processor time, past which it dies."""
    resource = pytest.importorskip("resource")
    code = """
from gem.graders.code import submission
from gem.graders.math import decide, final_answer
from gem.graders.mathematics.units import asked_unit
from gem.graders.text import exact_match
PIECES = (
    " .|0| |1,|\\n\\t|_ |\\\\text{|1.|answer is |3|x=1 |x=1,|\\\\quad |(A)|(|{|\\\\frac{|^|!|9^|5 m |m/s |"
    "for all x|in m |"
    "how many |\\\\begin{cases}|\\\\\\\\|A: 3, |3 apples and |\\\\pm |=|\\\\approx |12:30 |°|$|_{2n}C|"
    "1/2 |e5|half of "
)
for piece in PIECES.split("|"):
    run = piece * (19_000 // len(piece))
    for text in (run + "x", run + ",1", "**a**" + run + "x", "0." + run):
        decide("x+1", text), final_answer(text), exact_match(text, "1st"), submission(text)
        decide("A: 1, B: 2", text, "Its speed in m/s?"), decide("5", text)
    long = piece * (1_000_000 // len(piece))
    decide("5", long), asked_unit(long)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (30, 30)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-500:]


@pytest.mark.parametrize(
    "reply",
    [
        r"\boxed{1} and \boxed{2}",
        r"\boxed{1}; \boxed{2}",
        "\\boxed{1}\n\\boxed{2}",
        "\\boxed{1}\n\n\\boxed{2}",
        r"$\boxed{1}$ and then $\boxed{2}$",
        r"Either \boxed{1} or maybe \boxed{2}",
        r"\boxed{1}\text{ or }\boxed{2}",
        r"\boxed{1} / \boxed{2}",
        "1. \\boxed{1}\n2. \\boxed{2}",
        "- \\boxed{1}\n- \\boxed{2}",
        "a) $\\boxed{1}$.\nb) $\\boxed{2}$.",
        r"(i) \boxed{1} (ii) \boxed{2}",
        "First: \\boxed{1}\nSecond: \\boxed{2}",
        r"The first root is \boxed{1}. The second root is \boxed{2}.",
        r"The roots are \boxed{1} as well as \boxed{2}.",
        r"x = \boxed{1} \quad x = \boxed{2}",
        r"\[\boxed{1}\] \[\boxed{2}\]",
        r"\boxed{1}\boxed{2}",
        r"\boxed{1} but also \boxed{2}",
        r"\boxed{1 \text{ or } 2}",
    ],
)
def test_boxes_of_one_statement_are_one_answer(reply):
    assert final_answer(reply)[0] in ("1, 2", r"1 \text{ or } 2")
    assert check_correct(reply, "1,2")
    assert not check_correct(reply, "2")
    assert not check_correct(reply, "1")


@pytest.mark.parametrize(
    "reply",
    [
        "First \\boxed{3}.\n\nThen after more work the value is found to be \\boxed{5}.",
        "Step 1: \\boxed{3}\n\nStep 2: \\boxed{5}",
        r"With x = \boxed{3} found, the answer is \boxed{5}.",
        r"\boxed{4}. Wait, that is wrong: \boxed{5}",
        "So \\boxed{3} " + "and more words of the sort " * 20 + "\\boxed{5}",
        "\\boxed{5}\n\nFinal answer: \\boxed{5}",
    ],
)
def test_an_earlier_result_is_not_part_of_the_final_statement(reply):
    assert final_answer(reply)[0] == "5"


def test_what_is_left_to_do_is_no_answer():
    assert MathGrader()(r"\boxed{9 + 64}", "73").correct  # unless the task asks for the calculation
    score = MathGrader(simplified=True)(r"\boxed{9 + 64}", "73")
    assert (score.value, score.why) == (0.0, "not evaluated")
    assert check_correct(r"\boxed{9 + 64 = 73}", "73")
    assert not MathGrader(simplified=True)(r"\boxed{\frac{1}{2} + \frac{1}{4}}", r"\frac{3}{4}").correct
    assert check_correct("4 4/9", "40/9")  # a mixed number


@pytest.mark.parametrize(
    ("gold", "left_to_do"),
    [
        (
            "15",
            r"30/2 \frac{30}{2} \dfrac{-30}{-2} 3*5 3\cdot5 (3)(5) 2^4-1 30\div2 \sqrt{9}+12 6/2*5",
        ),
        ("73", r"|9+64| (9+64)^1 \binom{9+64}{1} \sqrt{(9+64)^2} \lfloor9+64\rfloor \left(9+64\right)"),
        ("73", r"x=9+64 f(x)=9+64 \{9+64\} 9+64+0i [9+64] {9+64}"),
        ("5", r"\sqrt{3^2+4^2} \sqrt{5*5}"),
        ("15.0", r"30/2 \frac{30}{2}"),
        ("5355/46", r"595*9/46 595\cdot\frac{9}{46} \frac{595*9}{46}"),
        ("706/7", "1+699/7 100+6/7 101-1/7"),
        (r"\frac{13}{7}", r"1+6/7 1+\frac{6}{7} \frac{\frac{13}{1}}{7} 26/7/2"),
        ("0.5", r"0.25+0.25 \frac{1/2}{1} 1-1/2"),
        ("50%", "25%+25% (25+25)%"),
        (r"1\frac{2}{3}", "1+2/3 2-1/3"),
    ],
)
def test_sums_products_and_quotients_of_numbers_are_no_values(gold, left_to_do):
    for answer in left_to_do.split():
        score = MathGrader(simplified=True)(rf"\boxed{{{answer}}}", gold)
        assert (score.correct, score.why) == (False, "not evaluated"), answer
        assert MathGrader()(rf"\boxed{{{answer}}}", gold).correct, answer


@pytest.mark.parametrize(
    ("gold", "values"),
    [
        ("3000000", r"3\cdot10^6 3e6 3,000,000"),
        ("1/2", r"\frac{1}{2} 2/4 \frac{-1}{-2} 0.5 50\%"),
        ("7.5", r"15/2 7\frac{1}{2} \frac{15}{2}"),
        ("-3/4", r"-\frac{3}{4} \frac{-3}{4} 3/(-4) -0.75"),
        ("1024", "2^{10}"),
        ("5", r"\sqrt{25} |{-5}|"),
        ("120", r"5! \binom{10}{3}"),
        ("1/1024", "2^{-10} 1/2^{10}"),
        (r"\frac{100\cdot 99}{2}", r"50\cdot99 4950"),
        ("4.242640687119285", r"3\sqrt{2}"),
    ],
)
def test_the_usual_writings_of_a_number_are_values(gold, values):
    for answer in values.split():
        assert check_correct(rf"\boxed{{{answer}}}", gold), answer


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("1.22", "1,22", True),
        ("-1.22", "-1,22", True),
        ("-1.22", "1,22", False),
        ("1.22", "1{,}22", True),
        ("2.5", "2,5 m", True),
        ("2.5 m", r"2,5\text{ m}", True),
        ("2.5 m", "2,5 kg", False),
        ("12.5%", r"12,5\%", True),
        ("0.234", "0,234", True),
        ("1234.5", "1234,5", True),
        ("1.234", "1,234", False),  # thousands
        ("1.234 m", "1,234 m", False),
        ("1.22", "1, 22", False),  # two numbers
        ("1.22", "(1,22)", False),
        ("1,22", "1.22", False),  # the reference is two numbers
        ("1.5", "1,5 or 6", False),
        ("1.5", "1,5,6", False),
        ("5", "5,0", False),
    ],
)
def test_a_comma_is_a_decimal_point_where_the_reference_is_one_decimal(gold, answer, right):
    assert check_correct(rf"\boxed{{{answer}}}", gold) is right


@pytest.mark.parametrize(
    ("question", "gold", "answer", "is_copy"),
    [
        (r"Find $\binom{5}{2}$.", "10", r"\dbinom{5}{2}", True),
        (r"What is $\sqrt{ 16 }$?", "4", r"\sqrt{16}", True),
        ("What is 5!?", "120", "5!", True),
        ("Calculate 2^10 by hand.", "1024", "2^{10}", True),
        (r"Expand $(x+1)^2$.", "x^2+2x+1", r"\left(x + 1\right)^2", True),
        (r"Simplify $\frac{x^2-1}{x-1}$.", "x+1", r"\dfrac{x^2 - 1}{x - 1}", True),
        ("Simplify 30/60.", "1/2", r"30/60", True),
        (r"Evaluate $\sum_{k=1}^{3} k$.", "6", r"\sum_{k=1}^3 k", True),
        (r"Evaluate $\sin 30^\circ$.", "1/2", r"\sin(30^\circ)", True),
        ("What is $|{-5}|$?", "5", "|-5|", True),
        ("What is 17 mod 3?", "2", r"17 \bmod 3", True),
        ("What is gcd(12, 18)?", "6", r"\gcd(12,18)", True),
        ("Convert 0.75 to a fraction.", "3/4", "0.75", True),
        ("Convert $1011_2$ to base 10.", "11", "1011_2", True),
        (r"Write $28\%$ as a decimal.", "0.28", r"28\%", True),
        ("How many cm is 5 m?", "500 cm", "5 m", True),
        ("Write 5000 in scientific notation.", r"5\times10^3", "5000", True),
        ("Convert $1011_2$ to base 4.", "23_4", "1011_2", True),
        ("Convert $48$ to base 7.", "66_7", "48_{10}", True),
        ("What is the base 10 integer 48 written in base 7?", "66_{7}", "48", True),
        ("Write 25% as a decimal.", "0.25", r"25\%", True),
        ("What is 0.375 as a percentage?", r"37.5\%", "0.375", True),
        ("Convert 90 degrees to radians.", r"\frac{\pi}{2}", r"90^\circ", True),
        ("Convert 2.5 hours into minutes.", "150 minutes", r"2.5 \text{ h}", True),
        ("How long is a trip of 1.5 hours? Give your answer in minutes.", "90", r"1.5\text{ hours}", True),
        ("How many minutes are there in 2 hours?", "120", "2 hours", True),
        ("Express the repeating decimal 0.333... as a fraction.", r"\frac{1}{3}", "0.333...", True),
        ("Express the repeating decimal 0.333... as a fraction.", r"\frac{1}{3}", r"0.\overline{3}", True),
        ("Compute 17*23.", "391", r"23\cdot 17", True),
        ("Simplify $a(x+1)$.", "ax+a", "(1+x)a", True),
        ("Express the repeating decimal 0.333... as a fraction.", r"\frac{1}{3}", "1/3", False),
        ("The film of 2 hours is long. Express its length in hours.", "2 h", "2 hours", False),
        ("Of 40 pupils 25% are girls. Express their share as a percentage.", "25", r"25\%", False),
        ("Write 12 in base 11.", "11_{11}", "11", False),
        ("What is $66_7$ in base 10?", "48", "48_{10}", False),
        ("How many minutes are there in 2 hours?", "120", "120 minutes", False),
        ("A pen is 85 cents, a book $1.70. How many cents are two pens?", "170", "170", False),
        ("Convert 0.75 to a fraction.", r"\frac{3}{4}", "3/4", False),
        ("Express the larger of 0.5 and 0.75 as a decimal.", "0.75", "0.75", False),
        ("Write the answer in metres. It is 5 m long.", "5", "5 m", False),
        ("Express your answer in dollars. He paid \\$5.", "5 dollars", "5", False),
        ("There were 0.75 litres. How much is left?", "3/4", "0.75", False),
        ("Write 2y = 4x + 2 with y alone.", "y = 2x + 1", "2y=4x+2", True),
        ("He ate 1/2 of it and left the rest.", "0.5", "1/2", False),
        ("Which is larger, $2^{10}$ or $10^3$?", "2^{10}", "2^{10}", False),
        ("Which of $a+b$ and $a-b$ is it?", "b+a", "a+b", False),
        ("Is 10 even? If so, give it.", "10", "10", False),
        ("Is it red or blue?", "red", "red", False),
        ("The point is (3,4). Where is it?", "(3, 4)", "(3,4)", False),
        ("What is 12^34 - 12^34 + 8?", "8", "2^3", False),
    ],
)
def test_a_formula_of_the_question_is_a_copy(question, gold, answer, is_copy):
    assert copied(rf"So it is \boxed{{{answer}}}.", gold, question) is is_copy


@pytest.mark.parametrize(
    ("reply", "gold", "right"),
    [
        ("We know that $x$ is not 5.\nIt is $7$ or so, not $5$.", "5", False),
        ("There were 3 rows of 4.\nSo there are 12 apples.", "12", True),
        ("There were 3 rows of 4.\nSo there are not 12 apples.", "12", False),
        ("The answer is $5$ or $6$.", "5", False),
        ("The answer is not $5$.", "5", False),
        ("The answer is $5$. That was easy.", "5", True),
    ],
)
def test_of_an_unboxed_reply_no_piece_is_taken(reply, gold, right):
    assert check_correct(reply, gold) is right


UNREAD = (
    r"$2 n \pi-\pi/2$, any odd integer $n$",
    "about 3 m",
    "x > 3 or so",
    "5+",
    r"y=e^{x} \text{ for every } x \text{ but } 0",
    r"$f(x)=a x+b$, where $b$ is an integer",
)


@needs_sympy
@pytest.mark.parametrize("gold", UNREAD)
def test_a_reference_that_is_not_read_is_compared_word_for_word(gold):
    grader = MathGrader()
    assert not grader.reads(gold)
    assert grader.unread([gold, "5"]) == references(gold)
    assert grader(rf"\boxed{{{gold}}}", gold).correct
    assert grader(gold.replace("$", ""), gold).correct
    for piece in ("0", "1", "2", "3", "5", "n", "x", r"\pi", "2n", "e^x", "ax+b", "-" + gold, "not " + gold):
        assert not grader(piece, gold).correct, piece


@needs_sympy
@pytest.mark.parametrize(
    "gold",
    [
        "5",
        r"\frac{1}{2}",
        "Tuesday",
        "Mrs. Hilt",
        r"\{x|-2\leq x<1\}",
        r"\sum_{k=1}^{n} k",
        3.5,
        "5 cm",
        ["(C)"],
    ],
)
def test_a_reference_that_is_read(gold):
    assert MathGrader().reads(gold)


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        (r"\sqrt{10^{60}+1}", "10^{30}", False),
        (r"\sqrt{10^{60}}", "10^{30}", True),
        (r"\sqrt{2}+\sqrt{3}", r"\sqrt{5+2\sqrt{6}}", True),
        (r"\sqrt{2}+\sqrt{3}", r"\sqrt{5+2\sqrt{6}+10^{-80}}", False),
        (r"\sqrt[3]{2+\sqrt{5}}+\sqrt[3]{2-\sqrt{5}}", "1", True),
        ("e^{-120}", "0", False),
        ("e^{-120}", r"\frac{1}{e^{120}}", True),
        ("5+e^{-9999}", "5", False),
        (r"\sin(\pi)", "0", True),
        (r"\cos 36^\circ", r"\frac{1+\sqrt{5}}{4}", True),
        (r"\ln(10^{200}+1)", r"200\ln 10", False),
        (r"e^{\pi\sqrt{163}}", "640320^3+744", False),
        ("x+10^{-200}", "x", False),
        (r"\sqrt{x^4}+10^{-70}", "x^2", False),
    ],
)
def test_numbers_that_look_alike_to_many_digits(gold, answer, right):
    assert (decide(gold, answer)[0] is True) is right


def test_numbers_of_roots_are_told_apart_by_their_separation_bound():
    for expression, least in (
        (r"\sqrt{2}-1", 1),
        (r"\sqrt{10^{60}+1}-10^{30}", 100),
        (r"\sqrt{2}+\sqrt{3}-\sqrt{5}", 5),
    ):
        bits = separation(read(expression))
        assert bits is not None
        assert least <= bits < 5000
    assert separation(read(r"\pi-3")) is None


FORMS = r"""
(x+1)(x+1) ; x^2+2x+1 ; Expand $(x+1)^2$. ; 0
x(x+1)+(x+1) ; x^2+2x+1 ; Expand $(x+1)^2$. ; 0
1+2x+x^2 ; x^2+2x+1 ; Expand $(x+1)^2$. ; 1
x^2+2x+1=(x+1)^2 ; x^2+2x+1 ; Expand ; 0
(x+1)^2=x^2+2x+1 ; x^2+2x+1 ; Expand ; 1
(x-1)(x+1) ; (x+1)(x-1) ; Factor $x^2-1$. ; 1
x^2-1 ; (x+1)(x-1) ; Factor $x^2-1$. ; 0
1(x^2-1) ; (x+1)(x-1) ; Factor ; 0
-1+x^2 ; (x+1)(x-1) ; Factorise $x^2-1$. ; 0
x x-1 ; (x+1)(x-1) ; Factor ; 0
-(1-x)(x+1) ; (x+1)(x-1) ; Factor ; 1
(x+2)(x+2) ; (x+2)^2 ; Factor ; 1
\frac{(x-1)(x+1)}{x-1} ; x+1 ; Simplify $\frac{x^2-1}{x-1}$. ; 0
1+x ; x+1 ; Simplify ; 1
\frac{x}{2} ; \frac12 x ; Simplify ; 1
\frac{2}{4} ; \frac12 ; Write in lowest terms ; 0
0.5 ; \frac12 ; Simplify ; 1
\frac12 ; \frac12 ; Simplify ; 1
73 ; 73 ; What is 9+64? ; 1
7^{100} \bmod 5 ; 1 ; q ; 0
1 \bmod 5 ; 1 ; q ; 1
\gcd(48,18) ; 6 ; q ; 0
\gcd(48,18)=6 ; 6 ; q ; 1
\operatorname{lcm}(12,18) ; 36 ; q ; 0
\max(2,3) ; 3 ; q ; 0
\max(a,b) ; \frac{a+b+|a-b|}{2} ; q ; 1
\int_{-64}^{9} 1 dx ; 73 ; What is 9+64? ; 0
\det\begin{pmatrix}9&-64\\1&1\end{pmatrix} ; 73 ; q ; 0
\lim_{x\to 9}(x+64) ; 73 ; q ; 0
\sum_{k=1}^{3} k ; 6 ; q ; 0
3\sqrt{2} ; \sqrt{18} ; Find the length. ; 1
x+2 ; x+2 ; Simplify ; 1
5 ; 5 ; What is the greatest common factor of 10 and 15? ; 1
2 apples ; 2 ; Simplify ; 1
\sqrt{8} ; 2\sqrt{2} ; Simplify $\sqrt{8}$ ; 1
a^{2}b^{3} ; a^2b^3 ; Simplify ; 1
aabbb ; a^2b^3 ; Simplify ; 1
\frac{d}{dx}x^3 ; 3x^2 ; Differentiate $x^3$. ; 0
\frac{d}{dx}x^3=3x^2 ; 3x^2 ; Differentiate $x^3$. ; 1
\int t dt ; \frac{x^2}{2} ; Integrate $x$. ; 0
\frac{d}{2} ; \frac{d}{2} ; Find the radius. ; 1
""".strip().splitlines()


@pytest.mark.parametrize("row", FORMS)
def test_an_equal_answer_has_the_form_that_the_question_asks_for(row):
    answer, gold, question, right = row.split(" ; ")
    assert formed(rf"\boxed{{{answer}}}", gold, question) is (right == "1")


WALK = "A walk along the shore takes 25 minutes with the wind and $t$ minutes against it. How long is it?"


@pytest.mark.parametrize(
    ("question", "gold", "answer", "right"),
    [
        (WALK, "40", "40 minutes", True),
        (WALK, "40", "40 hours", False),
        (WALK, "40", "2400 seconds", True),
        (WALK + " Give it in hours.", "40", "40 hours", True),
        ("He drives at 50 miles per hour. How long does it take?", "30", "30 minutes", True),
        ("A rod is 3 metres long, a table 90 cm. How high is it?", "40", "40 inches", True),
        (WALK, "(2+3t, t)", "(2+3s, s)", False),
        ("Describe the line.", "(2+3t, t)", "(2+3s, s)", True),
        ("Let $x-1=6$. Find $x^2+1$.", "50", "x^2+1=50", True),
        ("Let $x-1=6$. Find $x^2+1$.", "50", "x^2-1=50", False),
        ("Let $x^2+1=50$. Find $x$.", "50", "x^2+1=50", False),
        ("Let $a^2+b^2=50$. Find $a$.", "50", "a^2+b^2=50", False),
        ("Find $a^2+b^2$ if $ab=7$ and $a+b=8$.", "50", "a^2+b^2=50", True),
        ("Write 48 in base 7.", "66_7", "66", True),
        ("Write 48 in base $7$.", "66_{7}", "$66$", True),
        ("Write 11 in binary.", "1011_2", "1011", True),
        ("Write 3054 in base sixteen.", "BEE_{16}", "bee", True),
        ("Write 48 in base 7.", "66_7", "65", False),
        ("Write 48 in base 8.", "66_7", "66", False),
        ("How far is the star in parsecs?", "25", "so it is 25 parsecs.", True),
        ("How far is the star in parsecs?", "25", "it is 25 light years", False),
        ("How far is the star in light years?", "25", "it is 25 pc", False),
        ("How many cups does she need?", r"2\frac{3}{4}", "2 3/4 cups", True),
        ("How many cups does she need?", r"2\frac{3}{4}", r"5 3/4 cups", False),
    ],
)
def test_the_question_says_what_is_named(question, gold, answer, right):
    assert decide(gold, answer, question)[0] is right


@pytest.mark.parametrize(
    "gold",
    [
        *("5个", "5円", "３人", "2020年", "12月25日", "5 рублей", "1.234,50", "€1.234,50", "1.234.567"),
        *("9.360", "5 Äpfel", "5 zorbs", "about 3 m", "x^2+1"),
    ],
)
def test_the_own_text_of_a_reference_is_right(gold):
    grader = MathGrader()
    boxes = (
        gold,
        rf"\boxed{{{gold}}}",
        rf"\boxed{{\text{{{gold}}}}}",
        rf"Die Antwort ist also \boxed{{{gold}}}.",
    )
    assert [reply for reply in boxes if not grader(reply, ["0", gold], question=f"{gold}?").correct] == []
    for reply in (rf"\boxed{{{gold}}} is wrong. It is \boxed{{6}}.", r"\boxed{6}", r"\boxed{12月26日}"):
        assert not grader(reply, gold).correct


def test_thousands_with_points_are_one_number_on_both_sides():
    grader = MathGrader()
    for reply in ("1234.5", r"\boxed{1234.50}", r"\boxed{1.234,5}"):
        assert grader(reply, "1.234,50").correct
    assert not grader("(1.234, 50)", "1.234,50").correct


@pytest.mark.parametrize(
    "pair",
    [
        *("(0.125,3)", "0.125,3", "1.125,2", "[1.125,2]", "(1.500,2)", "0.618,1", "(-0.125,3)", "x=1.125,2"),
        *(r"\{1.125,2\}", "(1.234,56)", r"\left(1.125,2\right)", "1.125,2 or 1.5,3"),
    ],
)
def test_decimals_with_three_digits_and_a_comma_are_a_pair(pair):
    grader = MathGrader()
    apart, joined = pair.replace(",", ", "), pair.replace(".", "").replace(",", ".")
    for reply in (pair, rf"\boxed{{{pair}}}", rf"\boxed{{{apart}}}", f"The answer is {apart}."):
        assert grader(reply, pair).correct
    for reply in (rf"\boxed{{{joined}}}", f"The answer is {joined}."):
        assert not grader(reply, pair).correct


@pytest.mark.parametrize(
    ("question", "gold", "reply"),
    [
        ("Compute $-3(2,-4)$.", "(-6,12)", "-3(2,-4)"),
        ("Find the sum $(2,3)+(3,-2)$.", "(5,1)", "(2,3)+(3,-2)"),
        (r"Add $\langle 1,2\rangle+\langle 3,4\rangle$.", "(4,6)", r"\langle 1,2\rangle+\langle 3,4\rangle"),
        ("Compute $2^{10}$.", "1024", "2^{10} = 2^{10}"),
        ("Compute $2^{10}$.", "1024", "E[X] = 2^{10}"),
        (r"Simplify $\sqrt{72}$.", r"6\sqrt2", r"\sqrt{72} = \sqrt{72}"),
        (r"Simplify $\frac68$.", r"\frac34", r"\text{value} = \frac{6}{8}"),
        ("Expand $(x+1)^2$.", "x^2+2x+1", r"\int = (1+x)^2"),
        ("The side is $2x$ and the area $x^2$. Find $x$.", "8", "x^2 = 8"),
        ("Add 1 to $3$.", "4", "3 = 4"),
        (r"Find $2^{10} \bmod 7$.", "2", r"9 \equiv 2 \pmod 4"),
        ("Find the focus of $y^2=2px$.", r"(\frac p2,0)", r"(\frac m2,0)"),
    ],
)
def test_a_copy_behind_a_left_side_or_as_vectors_is_none(question, gold, reply):
    assert not MathGrader()(rf"\boxed{{{reply}}}", gold, question).correct
