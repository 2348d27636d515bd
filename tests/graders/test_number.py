import pytest

from gem.errors import BadArgument
from gem.graders.number import NumberGrader

THOUSAND = (
    *(
        "10^3",
        "10^{3}",
        "10**3",
        "10³",
        r"1.0 \times 10^3",
        r"1\times10^{3}",
        "1.0 × 10³",
        "1 x 10^3",
        "0.1 · 10^4",
    ),
    *("1 000", "1'000", "1’000", "1_000", r"1\ 000", r"1\,000", "1\u202f000", r"\$1 000", "1 000 m^3"),
)
FIVE_UNITS = (
    *(
        r"5 \text{ m}^2",
        r"5\ \text{cm}^3",
        r"5\,\mathrm{m\,s^{-2}}",
        "5 kg m^2/s^2",
        "5 m²",
        "5 m2",
        "5 ft^2",
        "5 m^2.",
    ),
)
APART_SIGNS = (
    r"-(3)",
    r"-\,3",
    r"-{3}",
    r"-\left(3\right)",
    "-~3",
    r"-\$3",
    "$-$3",
    "– 3",
    "−(3 m)",
    "minus (3)",
    "-US$3",
)
MINUS_THREE = (
    *APART_SIGNS,
    "minus 3",
    r"\text{minus }3",
    "x = minus 3",
    "negative 3",
    "–3",
    r"-\text{3}",
    "minus three",
)


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("\\boxed{18}", "She makes 9 * 2 = 18.\n#### 18"),
        ("So 9 * 2 = 18 dollars.", "18"),
        ("\\boxed{\\$1,234.50}", 1234.5),
        ("<answer>half: 1/2</answer>", "0.5"),
        ("\\boxed{\\frac{1}{4}}", 0.25),
        ("\\boxed{−3 m}", "-3 (metres)"),
        ("\\boxed{eighteen}", 18),
        ("\\boxed{9 apples}", ["8", "9 (apples)"]),
        ("\\boxed{1.5e3}", 1500),
        ("\\boxed{\\text{eighteen}}", 18),
        *((f"\\boxed{{{text}}}", 1000) for text in THOUSAND),
        *((f"\\boxed{{{text}}}", 5) for text in FIVE_UNITS),
        *((f"\\boxed{{{text}}}", -3) for text in MINUS_THREE),
        *(
            (f"\\boxed{{{text}}}", "1/2")
            for text in (r"\frac12", r"\frac 1{2}", r"\dfrac{1}2", r"\frac{\text{1}}{2}")
        ),
        ("\\boxed{2.5×10⁻³}", "0.0025"),
        ("\\boxed{\\frac{1}{10^3}}", "0.001"),
        ("\\boxed{-1 234 567.5 km}", "-1234567.5"),
        ("So it is 12 500.", 12500),
        ("The temperature is minus 3 degrees.", -3),
        ("It is -(3).", -3),
        ("The answer is 18 dollars per day (9 eggs × $2).", 18),
        ("Answer: Let x = 3. Then 2x = 6. So she has 18 apples.", 18),
        ("Answer:\nShe sells 9 eggs. She gets 18 dollars.", 18),
        ("The answer is 5. Wait, I forgot 13 eggs. 5 + 13 = 18. So 18.", 18),
        ("If the answer is 5 then x = 2, which is wrong. So it is 18.", 18),
        ("The answer is found by adding 15 and 3. This gives 18.", 18),
        ("The answer is 2. No wait, it is 18.", 18),
        ("Final answer: 18\n\nLet me know if step 2 is unclear!", 18),
        *(
            (f"It's 18{words}.", 18)
            for words in (
                "",
                " instead of the 17 I had",
                ", unlike 17",
                ", never 17",
                " not 17",
                ", not 17 or 19",
            )
        ),
        *(
            (f"It's 18{words}.", 18)
            for words in ("", ", not 17", " apples, not 17", " and not 17", " (not 17)")
        ),
        *((f"The total is 18 {words} 17.", 18) for words in ("rather than", "instead of", "as opposed to")),
        ("Instead of 17 it is 18.", 18),
    ],
)
def test_the_same_number_is_right_however_it_is_written(answer, gold):
    assert NumberGrader()(answer, gold).correct


@pytest.mark.parametrize(
    ("answer", "gold", "parsed"),
    [
        ("\\boxed{19}", "18", "19"),
        ("\\boxed{3}", "-3", "3"),
        *((f"\\boxed{{{text}}}", 3, text) for text in APART_SIGNS),
        ("Final answer: 18\n\nLet me know if step 2 is unclear!", 2, "18"),
        ("The answer is 18 or 19.", "19", None),
        ("18, or rather 19", "18", "19"),
        ("\\boxed{18 or 19}", "18", None),
        ("\\boxed{0.3333}", "1/3", "0.3333"),
        ("\\boxed{10000001}", "10000002", "10000001"),
        ("no idea", "18", None),
        ("", "18", None),
        ("\\boxed{" + "9" * 5000 + "}", "18", None),
        ("\\boxed{1e999999999}", "18", None),
    ],
)
def test_another_number_is_wrong_and_several_are_none(answer, gold, parsed):
    score = NumberGrader()(answer, gold)
    assert not score.correct
    assert score.parsed == parsed


@pytest.mark.parametrize(
    "answer",
    [
        *(
            "3x^2",
            "3 x^2",
            "3m^2",
            "3 + m^2",
            "2^5",
            "2^{10}",
            r"\frac{2}{3}^2",
            "10^{1/2}",
            "10^3.5",
            "10^2^3",
        ),
        *(r"10^2 \times 10^3", r"2 \times 3 \times 10^3", "2^3 × 10^3", "1/2 × 10^3", "5/10^{-3}", "5/1e3"),
        *("x-{3}", "5 - (3)", "-(-3)", "-(3 + 2)"),
        *(r"\frac{1}{2}3", r"\frac{1}{2}\frac{1}{3}", "5 minus 3"),
        *("2 3", "100 20", "0 500", "1 000,50", "1 000/3", "3/1 000", "3 125/1000", "1,5 000", "18 000 19"),
        *("2000 500", "5 000 2000", "1 000 or 2 000", "2 and 1/3", "3,5"),
        *("2x", "3 n", "3i", "x + 3", "n-1", "3 - x", "1+i", "6m+1", "$6k$", "2xy", "2π", r"2\pi", r"\pi/4"),
        *(
            r"\frac{\pi}{4}",
            r"\frac{4}{\pi}",
            r"\sqrt{16}",
            "√16",
            r"5\sqrt{x}",
            r"\log_2 8",
            "sin 30",
            r"\pm 5",
        ),
        *("5!", "5 squared", "x^2", "10_2", "10₂", "12.10.2020", "10:30", "1.2M", "300K"),
    ],
)
def test_what_may_be_several_numbers_or_a_calculation_is_none(answer):
    score = NumberGrader()(f"\\boxed{{{answer}}}", "18")
    assert (score.parsed, score.why) == (None, f"not one number: {answer}")


@pytest.mark.parametrize(
    ("answer", "gold"), [("10^3", 3), ("10³", 10), ("minus 3", 3), ("–3", 3), ("1 000", 0), ("1_000", 1)]
)
def test_a_part_of_a_number_is_not_its_value(answer, gold):
    assert not NumberGrader()(f"\\boxed{{{answer}}}", gold).correct
    assert not NumberGrader()(answer, gold).correct


def test_a_tolerance_is_relative():
    assert NumberGrader(0.01)("\\boxed{101}", 100).correct
    assert not NumberGrader(0.01)("\\boxed{102}", 100).correct
    with pytest.raises(BadArgument, match="tolerance is 2"):
        NumberGrader(2)


@pytest.mark.parametrize("gold", ["many", "3 of 4", True, None, {}, [], float("nan")])
def test_a_reference_without_one_number_is_refused(gold):
    with pytest.raises(BadArgument, match="accepted by the number grader"):
        NumberGrader()("\\boxed{1}", gold)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        *(("2.5 million", 2_500_000), ("$3.2 billion", 3.2e9), ("7 thousand", 7000), ("3 hundred", 300)),
        *(("2 hundred thousand", 200_000), ("2 1/2 million", 2_500_000), ("5k", 5000), ("$5M", 5_000_000)),
        *(("2 dozen", 24), ("2½", 2.5), ("½", 0.5), ("2 1/2", 2.5), (r"3\frac{1}{2}", 3.5), ("-1 1/2", -1.5)),
        *(("3 and a half", 3.5), ("3 and three quarters", 3.75), ("1.234.567", 1_234_567)),
    ],
)
def test_scales_and_mixed_numbers_are_read_whole_in_answers_and_references(written, value):
    part = float(written.strip("$").split()[0]) if written[-1] in "nd" and written[0] != "-" else 2
    for reply in (f"\\boxed{{{written}}}", f"So it is {written}.", written):
        assert NumberGrader()(reply, value).correct
        assert not NumberGrader()(reply, part).correct
    assert NumberGrader()(f"\\boxed{{{value}}}", written).correct
    assert not NumberGrader()(f"\\boxed{{{part}}}", written).correct


@pytest.mark.parametrize(
    ("reply", "gold", "question"),
    [
        ("7 dozens", 7, "How many dozens of eggs will she eat?"),
        ("7 dozen", "7 dozen", "How many dozen eggs will she eat?"),
        ("2.5 million", 2.5, "What is it in millions?"),
        ("\\boxed{300K}", 300, "What is the temperature in K?"),
        *(
            (f"\\boxed{{{text}}}", 5, "")
            for text in ("5 a day", "5th", "5pm", "5 p.m.", "5cm", "5eggs", "5º")
        ),
        *(
            (text, 5, "")
            for text in ("The answer is 5!", "答案是 5个", "That is **5**", "2 + 3 = 5. 5 in all")
        ),
        (r"\boxed{5\ \tfrac{\text{m}}{\text{s}}}", 5, ""),
        (r"\boxed{90^\circ}", 90, ""),
    ],
)
def test_units_and_words_behind_a_number_do_not_change_it(reply, gold, question):
    assert NumberGrader()(reply, gold, question).correct


@pytest.mark.parametrize(
    ("reply", "right"),
    [
        *((text, True) for text in ("所以答案是18。", "一共18元", "答えは18です。", "ราคา18บาท", "18개")),
        *((text, True) for text in ("答案是十八", "There are eighteen apples.", "It is no more than 18.")),
        *((text, True) for text in ("The answer is eighteen. I counted twice.", "Antwort: achtzehn")),
        *((text, True) for text in ("The answer is 18.\nCheck: 9 × 2/3 = 6", "Answer: 18 eggs, not 19")),
        *((text, False) for text in ("The answer is not 18.", "It isn't 18", "It is more than 18.")),
        *((text, False) for text in ("答案不是18。", "答えは18ではありません。", "18万", "\\boxed{not 18}")),
        *((text, False) for text in ("The answer is 19 or 18.", "The answer is 19, not 18.")),
        *((text, False) for text in ("The answer is 18. Wait, it is 19.", "19 eggs, not 18")),
    ],
)
def test_what_a_reply_says_of_a_number_counts_in_any_script(reply, right):
    assert NumberGrader()(reply, 18).correct is right


@pytest.mark.parametrize("gold", ["0.333...", "0.33…", "1..5", "0b11", "0x1f", "0.3\u0305", "not 5", "5万"])
def test_a_reference_that_is_only_half_read_is_refused(gold):
    with pytest.raises(BadArgument, match="accepted by the number grader"):
        NumberGrader()("\\boxed{1}", gold)


@pytest.mark.parametrize("gold", ["2x", "5!", "3i", r"\sqrt{2}", "$6n$", "12.10.2020"])
def test_a_reference_of_which_a_number_is_a_part_is_refused(gold):
    with pytest.raises(BadArgument, match="accepted by the number grader"):
        NumberGrader()("\\boxed{2}", gold)


@pytest.mark.parametrize(
    ("reference", "written"),
    [
        *(("$1,234.50", "1234.5"), (0.1, "0.1"), ("1e3", "1000"), ("-3", "-3"), (["9 (apples)", "8"], "9")),
        ("9 * 1/2 = 4.5\n#### 4.5", "4.5"),
        *(
            ("1/2", "1/2"),
            (r"\frac{1}{4}", "1/4"),
            ("½", "1/2"),
            ("1/3", "1/3"),
            (1e-7, "0.0000001"),
        ),
        ("1234567890123456789012345678901.5", "2469135780246913578024691357803/2"),
    ],
)
def test_a_number_is_written_as_a_decimal_unless_the_reference_is_a_fraction(reference, written):
    assert NumberGrader.write_answer(reference) == f"\\boxed{{{written}}}"
    assert NumberGrader()(f"\\boxed{{{written}}}", reference).correct
