r"""Audit a grader of answers: equivalent rewritings must score the same, wrong mutants must not.

`audit_grader` takes reference answers of many kinds and rewrites each by every rule that fits. An equivalence
(``\frac{1}{2}`` to ``0.5``) must be accepted; a mutation (another digit, a lost sign, a closed interval end)
must be refused. The share of refused mutants is the mutation score, as in mutation testing of programs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from gem.content import text_of
from gem.envs.code.env import fence_code, reference_solution
from gem.errors import BadArgument, NoVerdict, did_you_mean
from gem.graders import MADE
from gem.graders.base import Grader, grade_with
from gem.graders.functions import class_of
from gem.registry import load
from gem.tasks.base import Task
from gem.tasks.sources import RowTasks

Rewriting = Callable[[str], str | None]
"""A function that returns the rewritten answer, or None if the rule does not fit."""

SHOWN = 5

INTEGER = re.compile(r"-?\d+")
FRACTION = re.compile(r"(-?)\\frac\{(\d+)\}\{(\d+)\}")
DECIMAL = re.compile(r"-?\d+\.\d+")
TUPLE = re.compile(r"\(([^(),]+(?:,[^(),]+)+)\)")
INTERVAL = re.compile(r"[(\[][^,]+,[^,]+[)\]]")
SET = re.compile(r"\\\{(.+)\\\}")
DEFINITION = re.compile(r"[a-zA-Z](?:\([a-z]\))?=.+")
WORDS = re.compile(r"[A-Za-z][A-Za-z .'-]+")


@dataclass(slots=True)
class Rule:
    """The result of one rule: how often it fitted, how often the grader was right, and its errors."""

    name: str
    tried: int = 0
    right: int = 0
    wrong: list[tuple[str, str]] = field(default_factory=list)  # answer, reference

    def enter(self, right: bool, answer: str, reference: str) -> None:
        """Add one verdict of the grader."""
        self.tried += 1
        if right:
            self.right += 1
        else:
            self.wrong.append((answer, reference))


@dataclass(slots=True)
class GraderCard:
    """The result of an audit of a grader."""

    grader: str
    references: int
    equivalences: list[Rule]
    mutations: list[Rule]

    @property
    def equivalence_score(self) -> float:
        """The share of equivalent rewritings that were accepted."""
        return _share(self.equivalences)

    @property
    def mutation_score(self) -> float:
        """The share of mutants that were refused."""
        return _share(self.mutations)

    @property
    def ok(self) -> bool:
        """Whether nothing was graded wrongly."""
        return all(rule.right == rule.tried for rule in (*self.equivalences, *self.mutations))

    def as_dict(self) -> dict[str, Any]:
        """Return the card as plain data."""
        rules = {
            kind: {
                rule.name: {"tried": rule.tried, "right": rule.right, "wrong": rule.wrong} for rule in rules
            }
            for kind, rules in (("equivalences", self.equivalences), ("mutations", self.mutations))
        }
        return {
            "grader": self.grader,
            "references": self.references,
            "equivalence_score": self.equivalence_score,
            "mutation_score": self.mutation_score,
            **rules,
        }

    def __str__(self) -> str:
        """The card as text."""
        lines = [
            f"{self.grader}: {self.references} references",
            f"  equivalent rewritings accepted  {_of(self.equivalences)}",
            f"  mutants refused                 {_of(self.mutations)}",
        ]
        for kind, rules in (("refused", self.equivalences), ("accepted", self.mutations)):
            for rule in rules:
                missed = f"  {kind} {rule.tried - rule.right}" if rule.wrong else ""
                lines.append(f"    {rule.name:<34}{rule.right:>4} of {rule.tried}{missed}")
                lines += [f"      {answer!r} for {gold!r}" for answer, gold in rule.wrong[:SHOWN]]
        return "\n".join(lines)


def _share(rules: Sequence[Rule]) -> float:
    tried = sum(rule.tried for rule in rules)
    return sum(rule.right for rule in rules) / tried if tried else 1.0


def _of(rules: Sequence[Rule]) -> str:
    tried, right = sum(rule.tried for rule in rules), sum(rule.right for rule in rules)
    return f"{right} of {tried} ({_share(rules):.2%})"


def audit_grader(name: str, grader: Grader | None = None, references: Sequence[str] = ()) -> GraderCard:
    """Audit a grader.

    Args:
        name: ``math``, ``number`` or ``text``; it chooses the rules and references.
        grader: the grader to audit; by default the one of that name.
        references: reference answers to use instead of the built-in ones.

    Raises:
        BadArgument: for another name. MissingExtra: when the grader needs a package that is not installed.
    """
    if name not in SUBJECTS:
        raise BadArgument(
            f"no grader {name!r} can be audited.{did_you_mean(name, (*SUBJECTS, 'code'))} "
            f"Accepted: {', '.join(SUBJECTS)}; and code, which gem.testing.audit_code audits."
        )
    golds, equivalences, mutations = SUBJECTS[name]
    grader = grader or load(MADE[name])()
    golds = tuple(references) or golds
    rules = [
        [_judge_rule(grader, rule, rewrite, golds, expected) for rule, rewrite in table.items()]
        for table, expected in ((equivalences, True), (mutations, False))
    ]
    return GraderCard(name, len(golds), *rules)


def unread_references(references: Iterable[Any]) -> list[tuple[int, str]]:
    """Return the references that the mathematics grader cannot read completely, with their row numbers.

    For these, only an answer with the same words is right, even if others are equivalent. A reference with
    several alternative texts is listed if none of them can be read.

    Raises:
        BadArgument: for a reference that is not a text, a number, or a sequence of them.
        MissingExtra: when sympy is needed to decide, and the `math` extra is not installed.
    """
    from gem.graders.math import MathGrader
    from gem.graders.math import references as texts

    grader = MathGrader()
    rows = []
    for at, reference in enumerate(references):
        unread = grader.unread(reference)
        if len(unread) == len(texts(reference)):
            rows.append((at, unread[0]))
    return rows


def refused_answers(tasks: RowTasks, kind: str, numbers: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Yield the rows whose own answers, or solutions in code, their grader refuses, and why.

    Args:
        tasks: the rows.
        kind: a name of `gem.graders.MADE`.
        numbers: the rows to look at, none of them bad.
    """
    of_kind = class_of(kind)
    grader: Any = of_kind()
    for number in numbers:
        task = tasks[number]
        if kind != "code":
            answer = of_kind.write_answer(task.reference)
            why = _find_fault(grader, answer, task, task.reference)
            if why:
                yield number, f"its own answer is wrong ({why}): {answer}"
        elif (solution := reference_solution(task)) is not None:
            why = _find_fault(grader, fence_code(solution), task, task.reference)
            together = replace(task.reference, isolate=False)
            if (
                why
                and task.reference.isolate
                and not _find_fault(grader, fence_code(solution), task, together)
            ):
                why += '; it passes in one process with the tests: write "isolate": False in the row'
            if why:
                yield number, f"its solution fails ({why})"


def _find_fault(grader: Grader, answer: str, task: Task, reference: Any) -> str:
    """Return why an answer is not right; empty if it is."""
    try:
        score = grade_with(grader, answer, reference, text_of(task.question))
    except NoVerdict as error:
        return f"no verdict: {error}"
    return "" if score.correct else score.why


def _judge_rule(grader: Grader, name: str, rewrite: Rewriting, golds: Sequence[str], expected: bool) -> Rule:
    rule = Rule(name)
    for gold in golds:
        answer = rewrite(gold)
        if answer is None or (not expected and answer == gold):
            continue
        rule.enter(grader(answer, gold).correct is expected, answer, gold)
    return rule


def _fitting(pattern: re.Pattern[str], rewrite: Callable[[re.Match[str]], str | None]) -> Rewriting:
    def rewritten(gold: str) -> str | None:
        match = pattern.fullmatch(gold)
        return None if match is None else rewrite(match)

    return rewritten


def _replacing(old: str, new: str) -> Rewriting:
    return lambda gold: gold.replace(old, new) if old in gold else None


# -- mathematics

MATH_REFERENCES = (
    "7", "72", "-3", "0", "1000", "35280", "999", "12345678901234567890", "3986729", "-84", "2016",
    "100000000000000000003", "0.5", "2.75", "-1.25", "62.5", "0.125", "3.14", r"\frac{1}{2}",
    r"\frac{25}{2}", r"-\frac{3}{4}", r"\frac{2016}{4068289}", r"\frac{14}{15}", r"\frac{1}{3}",
    r"\frac{7}{9}", r"\sqrt{2}", r"\frac{9\sqrt{2}}{32}", r"2\sqrt{3}", r"\frac{\pi}{4}", r"2^{1009}",
    r"\frac{8}{\sqrt[3]{7}}", r"3+2\sqrt{2}", "e^{2}", "n^{2}+1", r"\frac{n(n+1)}{2}", "2n-2",
    r"\binom{2n}{n}", "2^{n}-n-1", r"\lfloor\frac{2n}{3}\rfloor+1", "x^{2}-3x+2", "(n-2)2^{n}+1",
    "m^{2}n-n", r"\frac{1}{2n+2}", r"\sin(x)+1", "a+b-c", "f(x)=2x", "f(x)=x+1", "k=5", "y=3x-7",
    r"M=\frac{3}{4}", "(1,8,19)", "(2,4)", "(3,-1)", r"(\frac{1}{2},3)", "(0,1,1)", r"\{1,3,5\}",
    r"\{-2,0,2\}", "1,2,4", "11,13", "[0,1)", r"(-\infty,-5)", r"[3,\infty)", r"(-\infty,0)\cup(2,5]",
    "(-1,4]", "x>3", r"x\leq 7", "k<-2", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}",
    r"\begin{pmatrix}5\\-7\end{pmatrix}", r"62.5\%", r"28\%",
)  # fmt: skip


def _as_decimal(match: re.Match[str]) -> str | None:
    value = Fraction(int(match[2]), int(match[3]))
    scaled = value * 10**6
    return (
        f"{match[1]}{float(value):.6f}".rstrip("0")
        if scaled.denominator == 1 and int(match[2]) < 10**6
        else None
    )


def _as_fraction(match: re.Match[str]) -> str:
    value = Fraction(match[0])
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def _other_digit(gold: str) -> str | None:
    """Change the last digit of the last number."""
    digits = list(re.finditer(r"\d", gold))
    if not digits:
        return None
    at = digits[-1].start()
    return gold[:at] + str((int(gold[at]) + 1) % 10) + gold[at + 1 :]


def _first_digit(gold: str) -> str | None:
    digit = re.search(r"\d", gold)
    if not digit:
        return None
    at = digit.start()
    return gold[:at] + str(int(gold[at]) % 9 + 1) + gold[at + 1 :]


def _negate(gold: str) -> str | None:
    plain = re.fullmatch(r"-?(?:[\d.]+|\\frac\{\d+\}\{\d+\}|\d*\\sqrt\{\d+\})", gold)
    if not plain or not re.search("[1-9]", gold):
        return None
    return gold[1:] if gold[0] == "-" else "-" + gold


def _swapped_digits(match: re.Match[str]) -> str | None:
    digits = match[0]
    for i in range(len(digits) - 1, 0, -1):
        if digits[i] != digits[i - 1] and "-" not in digits[i - 1 : i + 1]:
            return digits[: i - 1] + digits[i] + digits[i - 1] + digits[i + 1 :]
    return None


def _reverse_tuple(match: re.Match[str]) -> str | None:
    parts = match[1].split(",")
    return f"({','.join(reversed(parts))})" if parts != parts[::-1] else None


def _other_end(match: re.Match[str]) -> str | None:
    text = match[0]
    if not text.endswith(r"\infty)"):
        return text[:-1] + ("]" if text[-1] == ")" else ")")
    return ("[" if text[0] == "(" else "(") + text[1:]


def _without_last(gold: str) -> str | None:
    inside = SET.fullmatch(gold)
    if inside:
        return rf"\{{{inside[1].rpartition(',')[0]}\}}"
    plain = re.fullmatch(r"-?\d+(?:,-?\d+)+", gold)
    return gold.rpartition(",")[0] if plain else None


def _renamed_variable(gold: str) -> str | None:
    return gold.replace("n", "q") if re.search(r"(?<![a-z\\])n(?![a-z])", gold) and "\\" not in gold else None


MATH_EQUIVALENCES: dict[str, Rewriting] = {
    "as it is": lambda gold: gold,
    "boxed in a sentence": lambda gold: f"Adding up, the answer is \\boxed{{{gold}}}. I am sure.",
    "in dollar signs": lambda gold: f"${gold}$",
    "in display brackets": lambda gold: rf"\[ {gold} \]",
    "with a full stop": lambda gold: gold + ".",
    "spaced": lambda gold: (
        re.sub(r"([=+,])", r" \1 ", gold) if not re.search(r"\d,\d{3}(?!\d)", gold) else None
    ),
    "dfrac": _replacing(r"\frac", r"\dfrac"),
    "left and right": lambda gold: (
        gold.replace("(", r"\left(").replace(")", r"\right)")
        if "(" in gold and INTERVAL.fullmatch(gold) is None
        else None
    ),
    "braces around numbers": lambda gold: f"{{{gold}}}" if INTEGER.fullmatch(gold) else None,
    "unicode signs": lambda gold: (
        gold.replace("-", "−").replace(r"\pi", "π").replace(r"\infty", "∞").replace(r"\leq", "≤")
        if any(s in gold for s in ("-", r"\pi", r"\infty", r"\leq"))
        else None
    ),
    "thousands in groups": _fitting(INTEGER, lambda m: f"{int(m[0]):,}" if abs(int(m[0])) >= 1000 else None),
    "trailing zero": lambda gold: (
        gold + (".0" if INTEGER.fullmatch(gold) else "0")
        if INTEGER.fullmatch(gold) or DECIMAL.fullmatch(gold)
        else None
    ),
    "leading plus": lambda gold: "+" + gold if re.fullmatch(r"[\d.]+", gold) else None,
    "a unit": lambda gold: gold + r" \text{ cm}" if re.fullmatch(r"-?[\d.]+", gold) else None,
    "a unit in words": lambda gold: gold + " dollars" if re.fullmatch(r"[\d.]+", gold) else None,
    "currency": lambda gold: rf"\${gold}" if re.fullmatch(r"[\d.]+", gold) else None,
    "fraction as a decimal": _fitting(FRACTION, _as_decimal),
    "decimal as a fraction": _fitting(DECIMAL, _as_fraction),
    "fraction with a slash": _fitting(FRACTION, lambda m: f"{m[1]}{m[2]}/{m[3]}"),
    "fraction expanded": _fitting(FRACTION, lambda m: rf"{m[1]}\frac{{{int(m[2]) * 6}}}{{{int(m[3]) * 6}}}"),
    "fraction of negatives": _fitting(FRACTION, lambda m: rf"{m[1]}\frac{{-{m[2]}}}{{-{m[3]}}}"),
    "sum of itself and zero": lambda gold: (
        f"{gold}+0" if not re.search(r"[=<>,\\%]|^-?[\d.]+$", gold) else None
    ),
    "half of the double": lambda gold: (
        rf"\frac{{2({gold})}}{{2}}"
        if not re.search(r"[=<>,%]|begin|cup|leq|^-?[\d.]+$|^-?\\frac\{\d+\}\{\d+\}$", gold)
        else None
    ),
    "square root as a power": _fitting(
        re.compile(r"(\d*)\\sqrt\{(\d+)\}"),
        lambda m: f"{m[1]}\\cdot {m[2]}^{{1/2}}" if m[1] else f"{m[2]}^{{0.5}}",
    ),
    "named": lambda gold: f"x={gold}" if INTEGER.fullmatch(gold) or FRACTION.fullmatch(gold) else None,
    "without its name": lambda gold: gold.partition("=")[2] if DEFINITION.fullmatch(gold) else None,
    "set in another order": _fitting(SET, lambda m: rf"\{{{','.join(reversed(m[1].split(',')))}\}}"),
    "set with its largest twice": _fitting(SET, lambda m: rf"\{{{m[1]},{m[1].rpartition(',')[2]}\}}"),
    "inequality turned round": _fitting(
        re.compile(r"([a-z])([<>])(-?\d+)"), lambda m: f"{m[3]}{'<' if m[2] == '>' else '>'}{m[1]}"
    ),
    "inequality as an interval": _fitting(
        re.compile(r"([a-z])([<>])(-?\d+)"),
        lambda m: rf"({m[3]},\infty)" if m[2] == ">" else rf"(-\infty,{m[3]})",
    ),
    "member of an interval": lambda gold: (
        rf"x \in {gold}" if INTERVAL.fullmatch(gold) and TUPLE.fullmatch(gold) is None else None
    ),
    "matrix in brackets": _replacing("pmatrix", "bmatrix"),
    "percent in words": _replacing(r"\%", " percent"),
    "percent as a decimal": _fitting(re.compile(r"([\d.]+)\\%"), lambda m: str(float(m[1]) / 100)),
}

MATH_MUTATIONS: dict[str, Rewriting] = {
    "another last digit": _other_digit,
    "another first digit": _first_digit,
    "the sign turned": _negate,
    "a digit too many": _fitting(INTEGER, lambda m: m[0] + "1"),
    "a digit lost": _fitting(INTEGER, lambda m: m[0][:-1] if len(m[0].lstrip("-")) > 1 else None),
    "digits swapped": _fitting(INTEGER, _swapped_digits),
    "ten times as much": lambda gold: gold + "0" if INTEGER.fullmatch(gold) and gold != "0" else None,
    "a hundredth": lambda gold: gold + r"\%" if FRACTION.fullmatch(gold) else None,
    "a hundred times a percentage": _fitting(re.compile(r"([\d.]+)\\%"), lambda m: str(float(m[1]) * 100)),
    "rounded": _fitting(
        re.compile(r"(-?\d+\.\d+)\d"), lambda m: m[1] if float(m[1]) != float(m[0]) else None
    ),
    "fraction upside down": _fitting(
        FRACTION, lambda m: rf"{m[1]}\frac{{{m[3]}}}{{{m[2]}}}" if m[2] != m[3] else None
    ),
    "a third with five decimals": lambda gold: "0.33333" if gold == r"\frac{1}{3}" else None,
    "the root lost": lambda gold: re.sub(r"\\sqrt\{(\d+)\}", r"\1", gold) if r"\sqrt{" in gold else None,
    "rounded root": lambda gold: "1.414214" if gold == r"\sqrt{2}" else None,
    "plus for minus": lambda gold: gold.replace("-", "+", 1) if "-" in gold and gold not in ("-0",) else None,
    "minus for plus": _replacing("+", "-"),
    "a larger exponent": lambda gold: (
        gold.replace("^{2}", "^{3}")
        if "^{2}" in gold
        else gold.replace("^{n}", "^{n+1}")
        if "^{n}" in gold
        else None
    ),
    "another variable": _renamed_variable,
    "one more": lambda gold: f"{gold}+1" if not re.search(r"[<>,%]|begin|cup|leq", gold) else None,
    "tuple turned round": _fitting(TUPLE, _reverse_tuple),
    "tuple with a member more": _fitting(TUPLE, lambda m: f"({m[1]},1)"),
    "set without its last": _without_last,
    "set with one more": _fitting(SET, lambda m: rf"\{{{m[1]},77\}}"),
    "one of several": lambda gold: (
        gold.partition(",")[0] if re.fullmatch(r"-?\d+(?:,-?\d+)+", gold) else None
    ),
    "the other kind of end": _fitting(INTERVAL, _other_end),
    "union for gap": _replacing(r"\cup(2", r"\cup(1"),
    "inequality reversed": lambda gold: (
        gold.translate(str.maketrans("<>", "><")) if re.search("[<>]", gold) else None
    ),
    "inequality with its end": lambda gold: (
        gold.replace("<", r"\leq ").replace(">", r"\geq ") if re.search("[<>]", gold) else None
    ),
    "matrix transposed": lambda gold: r"\begin{pmatrix}1&3\\2&4\end{pmatrix}" if "1&2" in gold else None,
    "hedged": lambda gold: (
        f"\\boxed{{{gold}}} or \\boxed{{{_other_digit(gold)}}}" if INTEGER.fullmatch(gold) else None
    ),
    "no answer": lambda gold: "I do not know.",
    "an empty box": lambda gold: r"\boxed{}",
}


# -- numbers

NUMBER_REFERENCES = tuple(
    gold for gold in MATH_REFERENCES if any(p.fullmatch(gold) for p in (INTEGER, DECIMAL, FRACTION))
)
_OF_NUMBERS = (
    *("as it is", "boxed in a sentence", "in dollar signs", "in display brackets", "with a full stop"),
    *("unicode signs", "thousands in groups", "trailing zero", "leading plus", "a unit in words", "currency"),
    *("fraction as a decimal", "decimal as a fraction", "fraction with a slash", "fraction expanded"),
)
_WRONG_NUMBERS = (
    *("another last digit", "another first digit", "the sign turned", "a digit too many", "a digit lost"),
    *("digits swapped", "ten times as much", "rounded", "fraction upside down"),
    *("a third with five decimals", "hedged", "no answer", "an empty box"),
)

# -- text

TEXT_REFERENCES = (
    "South Carolina", "December 1972", "14 December 1972", "one season", "James I", "the Last Ice Age",
    "Rihanna", "2017", "a normally inaccessible mini-game", "Bobby Scott", "twenty-one pilots",
    "World War II", "Beyoncé", "yes", "The Beatles", "42", "Mrs. Hilt", "New York City", "U.S.A.",
    "three hundred", "3.5 million",
)  # fmt: skip

_NUMBERS = {"one": "1", "three hundred": "300", "twenty-one": "21"}


def _number_as_digits(gold: str) -> str | None:
    for word, digits in _NUMBERS.items():
        if word in gold.split() or word == gold:
            return gold.replace(word, digits)
    return None


TEXT_EQUIVALENCES: dict[str, Rewriting] = {
    "as it is": lambda gold: gold,
    "boxed": lambda gold: f"So it is \\boxed{{{gold}}}.",
    "tagged": lambda gold: f"I think <answer>{gold}</answer>",
    "upper case": str.upper,
    "with an article": lambda gold: "the " + gold,
    "with a full stop": lambda gold: gold + ".",
    "in quotation marks": lambda gold: f"“{gold}”",
    "spaced": lambda gold: "  ".join(gold.split(" ")) + " ",
    "without accents": lambda gold: gold.replace("é", "e") if "é" in gold else None,
    "numbers as digits": _number_as_digits,
    "a date in another order": lambda gold: "December 14, 1972" if gold == "14 December 1972" else None,
    "a date in digits": lambda gold: "1972-12-14" if gold == "14 December 1972" else None,
}

TEXT_MUTATIONS: dict[str, Rewriting] = {
    "first letter lost": lambda gold: (
        gold[1:] if gold[0].isalpha() and not gold.lower().startswith(("a ", "the ")) else None
    ),
    "last word lost": lambda gold: (
        gold.rpartition(" ")[0] if " " in gold and gold.split()[0].lower() not in ("a", "the") else None
    ),
    "a word more": lambda gold: gold + " perhaps",
    "negated": lambda gold: "not " + gold,
    "another digit": _other_digit,
    "words swapped": lambda gold: (
        " ".join(reversed(gold.split())) if len(gold.split()) == 2 and "the" not in gold.lower() else None
    ),
    "the point lost": lambda gold: gold.replace("3.5", "35") if "3.5" in gold else None,
    "hedged": lambda gold: f"{gold} or Nobody",
    "no answer": lambda gold: "",
}


Subject = tuple[tuple[str, ...], dict[str, Rewriting], dict[str, Rewriting]]
SUBJECTS: dict[str, Subject] = {
    "math": (MATH_REFERENCES, MATH_EQUIVALENCES, MATH_MUTATIONS),
    "number": (
        NUMBER_REFERENCES,
        {name: MATH_EQUIVALENCES[name] for name in _OF_NUMBERS},
        {name: MATH_MUTATIONS[name] for name in _WRONG_NUMBERS},
    ),
    "text": (TEXT_REFERENCES, TEXT_EQUIVALENCES, TEXT_MUTATIONS),
}
"""References, equivalences and mutations by the name of a grader of `gem.graders.MADE`."""
