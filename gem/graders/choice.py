r"""ChoiceGrader: compares a chosen option with the right one; a letter or the option's text is accepted."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from string import ascii_lowercase, ascii_uppercase
from typing import Any, ClassVar, Literal, TypeAlias

from gem.errors import BadArgument
from gem.graders.base import BoxedGrader, Score
from gem.graders.mathematics.languages import AND_OR
from gem.graders.stated import Statement, drop_contrast, drop_label, find_corrections, read_reply
from gem.graders.text import exact_match
from gem.parsing import drop_invisible, strip_decoration, strip_markup
from gem.tasks.columns import Columns
from gem.tasks.files import scan
from gem.tasks.sources import cell, has_cell, is_empty

Numbered: TypeAlias = int | Literal["none"] | None
"""The number of the first option; "none" where answers are texts of options, even if they are labels too."""

_LONGEST_LABEL = 10  # characters before the text of a choice
_AROUND_LETTER = " \t\"'“”‘’«»*_`$()[]{}.,:;?!。\\"
_MARKS = re.compile(r"\*\*|[$`]")
_LETTER = re.compile(
    r"(?:(?:the\s+)?(?:final\s+|correct\s+)?(?:answer|option|choice)\s*+(?:(?:is|:)\s*+)?)*+\(?([A-Za-z])\)?"
    r"(?:\s*[.:)]\s*(.*)|\s*)",
    re.DOTALL | re.IGNORECASE,
)
_LETTER_AND_TEXT = re.compile(  # in words of which both must name the same choice
    r"\(?([A-Za-z])\)?\s*[,–—-]\s*(.*)|(.*\S)\s*(?:\(([A-Za-z])\)|[,–—-]\s*([A-Za-z]))[.)]?", re.DOTALL
)
_STATED_LETTER = re.compile(r"\(?([A-Z]|[a-z](?=,\s))(?![\w'])")  # a word behind "a" makes it an article
_AND_OR = "|".join(AND_OR - {"&"})
_MORE_LETTERS = re.compile(rf"(?:\W++[A-Z]\b)++\W*+(?:$|(?:{_AND_OR})\b)|\W++(?:{_AND_OR})\W++[A-Z]\b")
_PRIMED = re.compile(r"[!¬].*|[^*'‘’].*[*'’]")  # another value than the letter, and no emphasis or quotation
_FURTHER = re.compile(r"(?<![\w.])(?<!not )\(?([A-Z])[.):](?=\s|\Z)|\b(?:or|and|then|if) \(?([A-Z])\b(?!')")
_SENTENCE_END = re.compile(r"[.!?;](?=\s|$)|,? (?:because|since|which)\b")


class ChoiceGrader(BoxedGrader):
    r"""A grader that compares the chosen option with the right one.

    The answer is the content of the last ``\boxed{}`` or ``<answer>``, else what the reply says is the answer
    (see `gem.graders.stated`), or the last line. It is a letter (``B``, ``(b)``, ``B. text``) or an option's
    text; a letter alone is the letter of an option, even if another option's text is that letter. A letter
    with another option's text, or with further letters, is no choice.
    The reference is ``{"choices": [...], "answer": "B"}``; see `read_choice`.
    """

    name = "choice/2"
    answer_form: ClassVar[str] = "Give the letter of your answer inside \\boxed{}."
    criterion: ClassVar[str] = "the letter or the text of the right choice"

    def __call__(self, answer: str, reference: Any) -> Score:
        """Score `answer` against `reference`.

        Raises:
            BadArgument: for a reference of another form.
        """
        (gold,) = self.read_golds(reference)
        chosen = read_letter(answer, reference["choices"])
        if chosen is None:
            return Score(0.0, False, None, "no choice")
        right = chosen == gold
        return Score(float(right), right, chosen, "the right choice" if right else "another choice")

    @classmethod
    def reader(cls, columns: Columns, rows: Sequence[Any], where: str) -> ChoiceReader:
        """Return the reader of the column or columns of choices.

        Raises:
            BadArgument: when there is none.
        """
        if columns.choices is None:
            raise BadArgument(
                f"{where} has no column of choices; name it: --columns choices=COLUMN, or A+B+C+D."
            )
        if columns.first is not None:
            return ChoiceReader(columns.choices, "none" if columns.first == "none" else int(columns.first))
        return ChoiceReader(columns.choices, _find_first_number(rows, columns, where))

    @staticmethod
    def read_golds(reference: Any) -> Sequence[str]:
        """Return the letter of the right choice.

        Raises:
            BadArgument: for a reference of another form.
        """
        if not isinstance(reference, Mapping) or not {"choices", "answer"} <= set(reference):
            raise BadArgument(
                f"the reference is {reference!r:.80}; accepted by the choice grader: a mapping with choices "
                "and answer"
            )
        return [reference["answer"]]


@dataclass(frozen=True)
class ChoiceReader:
    """A function that makes the reference of a row with choices; see `read_choice`."""

    choices: str
    numbered: Numbered = None

    def __call__(self, value: Any, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the reference of a ChoiceGrader.

        Raises:
            BadArgument: when the answer is not among the choices.
        """
        return read_choice(value, options(row, self.choices), self.numbered)


def options(row: Mapping[str, Any], choices: str) -> Any:
    """Return the options of a row: a cell, or the cells of columns joined with ``+``."""
    if has_cell(row, choices) or "+" not in choices:
        return cell(row, choices)
    texts = [cell(row, name) for name in choices.split("+")]
    while texts and is_empty(texts[-1]):
        texts.pop()  # a blank one before others is refused: it would move their letters
    return texts


def _find_first_number(rows: Any, columns: Columns, where: str) -> Numbered:
    """Return how answers are read, as `first_number` does; bad rows are left out.

    Raises:
        BadArgument: see `first_number`.
    """
    answers, choices = [], []
    for row in scan(rows, columns.images):
        with suppress(BadArgument):
            if isinstance(row, Mapping) and columns.answer is not None and columns.choices is not None:
                answer, option = cell(row, columns.answer), options(row, columns.choices)
                if not _key_of(answer, read_choices(option)[0]).isdecimal():
                    read_choice(answer, option)
                answers.append(answer)
                choices.append(option)
    try:
        return first_number(answers, choices)
    except BadArgument as error:
        raise BadArgument(f"{where}: {error}") from None


_LABELLED = re.compile(r"\(?([A-Za-z])[.):]\s*(?=\S)")


def _drop_labels(texts: Sequence[str]) -> list[str]:
    """Return options without their letters, as in "B) Rome", if each begins with its own."""
    labels = [_LABELLED.match(text) for text in texts]
    own = "".join(label[1].upper() if label else " " for label in labels) == ascii_uppercase[: len(texts)]
    return [text[label.end() :] if own and label else text for text, label in zip(texts, labels, strict=True)]


_NAMES_OTHERS = re.compile(
    r"(?i)\b(?:all|any|both|either|neither|none)(?: of)?(?: the)? (?:above|below|choices|options|others?"
    r"|these|them|answers|statements|preceding|previous|following|foregoing|two|three|first|last)\b"
    r"|\A\W*(?:both|all|none|neither|either|(?:the )?(?:first|last) (?:two|three))\W*\Z"
)
_JOINS = AND_OR | {
    "both",
    "all",
    "only",
    "either",
    "neither",
    "option",
    "options",
    "choice",
    "choices",
    "of",
    "the",
}


def _names_others(choice: str, count: int) -> bool:
    """Return whether a choice speaks of others of `count`, as "all of the above" and "(A) and (C)" do."""
    if _NAMES_OTHERS.search(choice):
        return True
    words = re.findall(r"\w+", choice.casefold())
    labels = [
        word for word in words if word in ascii_lowercase[:count] or word in map(str, range(1, count + 1))
    ]
    joined = bool(_JOINS.intersection(words)) or labels[0].isalpha() if labels else False  # 1/2 is a fraction
    return joined and len(labels) > 1 and all(word in labels or word in _JOINS for word in words)


def shuffle(reference: Mapping[str, Any], rng: Random) -> dict[str, Any]:
    """Return the reference of a ChoiceGrader with its choices in an order drawn by `rng`.

    Where a choice names others, as "all of the above" and "A and B" do, the order is kept.
    """
    choices = list(reference["choices"])
    if any(_names_others(choice, len(choices)) for choice in choices):
        return dict(reference)
    order = list(range(len(choices)))
    rng.shuffle(order)
    right = order.index(ascii_uppercase.index(reference["answer"]))
    return {"choices": [choices[at] for at in order], "answer": ascii_uppercase[right]}


def read_letter(reply: str, choices: Sequence[str]) -> str | None:
    """Return the letter of the option that a reply chooses, None if it chooses none."""
    parts, choices = read_reply(drop_invisible(reply), of_choices=True), _drop_labels(choices)
    if parts.inside is not None:
        return _choose(parts.inside, choices) or _choose(drop_label(parts.inside), choices)
    rest = parts.text
    for statement in parts.statements:
        stated = _read_statement(_drop_marks(statement.text), choices)
        if stated is None:
            stated = next(filter(None, (_choose(text, choices) for text in statement.readings())), None)
        if stated and _is_corrected(stated, statement, choices):
            rest = statement.behind
            break
        if stated is not None:
            return stated or None
    lines = [line for line in rest.splitlines() if line.strip(" \t`")]
    closing = parts.closing and (
        _choose(parts.closing, choices) or _choose(drop_contrast(parts.closing), choices)
    )
    if closing or not lines:
        return closing
    last = _choose(lines[-1], choices)
    labels = [label and label[1].upper() for label in (_LABELLED.match(line.strip()) for line in lines[-2:])]
    listed = len(labels) > 1 and None not in labels and "".join(map(str, labels)) in ascii_uppercase
    return None if listed else last  # it may be the last of the choices, which the reply repeats


def _is_corrected(stated: str, statement: Statement, choices: Sequence[str]) -> bool:
    """Return whether what stands behind a choice takes it back, or names another."""
    texts = find_corrections(_find_rest(statement, choices[ascii_uppercase.index(stated)]))
    named = [letter for text in texts if (letter := _choose(text, choices))]
    return "" in texts or (named or [stated])[-1] != stated


def _find_rest(statement: Statement, choice: str) -> str:
    """Return what stands behind the choice that a statement names, or behind its letter."""
    at = statement.text.casefold().find(choice.casefold())
    rest = statement.text[at + len(choice) :] if 0 <= at < _LONGEST_LABEL else statement.text[1:]
    return f"{rest}\n{statement.behind}"


def _read_statement(text: str, choices: Sequence[str]) -> str | None:
    """Return the letter that a line behind "the answer is" states, "" for more than one, None for none."""
    if chosen := _choose(text, choices):
        return chosen
    match = _STATED_LETTER.match(text)
    if match is None or match[1].upper() not in ascii_uppercase[: len(choices)]:
        return _choose(_SENTENCE_END.split(text, maxsplit=1)[0], choices)
    letter = match[1].upper()
    behind = text[match.end() : 2000].lstrip(" ,.:;)").rstrip(" .").removeprefix("- ").removeprefix("– ")
    inside = behind[1:-1] if behind[:1] + behind[-1:] == "()" else behind
    others = [*_name_choices(inside, choices), *_name_choices(behind, choices)]
    return letter if letter in others or not (others or _names_more(match, choices)) else ""


def _names_more(match: re.Match[str], choices: Sequence[str]) -> bool:
    """Return whether letters of further options stand behind that of a match, as in "A or B"."""
    more = _MORE_LETTERS.match(match.string, match.end(1))
    return more is not None and all(
        each in ascii_uppercase[: len(choices)] for each in more[0] if each.isupper()
    )


def _drop_marks(text: str) -> str:
    return _MARKS.sub("", strip_decoration(text))


def _choose(text: str, choices: Sequence[str]) -> str | None:
    text = text[:2000]
    plain = _drop_marks(text).strip()
    bare = unicodedata.normalize("NFKC", plain).strip(_AROUND_LETTER).upper()
    if (
        len(bare) == 1
        and not _PRIMED.fullmatch(plain)
        and bare in ascii_uppercase[: len(choices)]
        and text.strip() not in choices
    ):
        return bare
    match = _LETTER.fullmatch(text.strip(" .")) or _LETTER.fullmatch(plain.strip(" ."))
    letter = match[1].upper() if match else ""
    if letter not in ascii_uppercase[: len(choices)]:
        letter = ""
    behind = (match[2] or "").strip() if match and letter else ""
    others = _name_choices(behind, choices) if behind else []
    if letter and (letter in others or bare == letter):
        return letter  # what was asked for, even if another choice's text is this letter
    if (pair := _LETTER_AND_TEXT.fullmatch(plain)) and plain not in choices:
        beside = (pair[1] or pair[4] or pair[5]).upper()
        both = _name_choices(pair[2] or pair[3] or "", choices)
        if both and beside in ascii_uppercase[: len(choices)]:
            return beside if beside in both else None
    named = _name_choices(text, choices)
    if len(named) == 1 and (not others or _fold(text) == _fold(choices[ascii_uppercase.index(named[0])])):
        return named[0]  # which may begin like a letter, as "A. Lincoln"
    if not match or not letter or others or _names_more(match, choices):
        return None
    labels = {label[1] or label[2] for label in _FURTHER.finditer(behind)} - {letter}
    return None if labels.intersection(ascii_uppercase[: len(choices)]) else letter


def _drop_layout(text: str) -> str:
    return "".join(strip_markup(_drop_marks(text)).split())


def _fold(text: str) -> str:
    return _drop_layout(text).casefold()


_READINGS: tuple[Callable[[str], str], ...] = (str.strip, _drop_layout, _fold)


def _name_choices(text: str, choices: Sequence[str]) -> list[str]:
    """Return the letters of the choices that have this text.

    Choices may differ by a sign, a bracket or a case alone: the closest reading that names one counts.
    """
    for read in _READINGS:
        wanted = read(text)
        named = [
            letter for letter, each in zip(ascii_uppercase, choices, strict=False) if read(each) == wanted
        ]
        if wanted and len(named) == 1:
            return named
    plain = _drop_marks(text)
    return [ascii_uppercase[at] for at, each in enumerate(choices) if exact_match(plain, _drop_marks(each))]


def read_choices(value: Any) -> tuple[list[str], list[str]]:
    """Return the texts and the labels of options.

    They are a list of texts, its JSON, ``{"A": text, ...}``, ``{"text": [...], "label": [...]}``, or
    ``[{"text": ..., "label": ...}, ...]``.

    Raises:
        BadArgument: for less than two options, more than 26, and anything else.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise BadArgument(
                f"the choices are {value!r:.80}; accepted: a list of texts, or its JSON"
            ) from None
    labels: Any = None
    if isinstance(value, Mapping) and "text" in value:
        value, labels = value["text"], value.get("label")
    elif isinstance(value, Mapping):
        pairs = list(value.items())
        while pairs and is_empty(pairs[-1][1]):  # `datasets` gives all rows the labels of the longest
            pairs.pop()
        value, labels = [text for _, text in pairs], [label for label, _ in pairs]
    elif isinstance(value, list) and all(isinstance(each, Mapping) for each in value):
        labels = [each["label"] for each in value if "label" in each]
        value = [each.get("text") for each in value]
    texts = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(texts, list | tuple) or not 2 <= len(texts) <= len(ascii_uppercase):
        raise BadArgument(f"the choices are {value!r:.80}; accepted: a list of 2 to 26 texts")
    if any(not isinstance(each, str | int | float) or is_empty(each) for each in texts):
        raise BadArgument(
            f"the choices are {value!r:.80}; one of them is empty or no text; accepted: a list of texts, a "
            "mapping from labels to texts, or a list of mappings with text and label"
        )
    labels = labels.tolist() if hasattr(labels, "tolist") else labels
    if labels is None or len(labels) != len(texts):
        labels = ascii_uppercase[: len(texts)]
    return _drop_labels([str(each).strip() for each in texts]), [str(each).strip() for each in labels]


def read_choice(answer: Any, choices: Any, numbered: Numbered = None) -> dict[str, Any]:
    """Return the reference of a ChoiceGrader.

    Args:
        answer: the right option: its label, its text, or its number.
        choices: the options; see `read_choices`.
        numbered: the number of the first option, where digits are the number of an option; "none" where an
            answer that is both a text and a label is the text. None where it is the label.

    Raises:
        BadArgument: when the answer is not among the choices.
    """
    texts, labels = read_choices(choices)
    text = _key_of(answer, texts)
    places = [] if numbered == "none" and text in texts else _find_labels(text, labels)
    if not places and isinstance(numbered, int) and text.isdecimal():
        at = int(text) - numbered
        places = [at] if 0 <= at < len(texts) else []
    elif not places:
        places = [ascii_uppercase.index(letter) for letter in _name_choices(text, texts)]
        if not places and (label := _LABELLED.match(text)):  # the letter and the text
            at = ascii_uppercase.index(label[1].upper())
            places = [at] if texts[at : at + 1] == [text[label.end() :]] else []
    if len(places) != 1:
        raise BadArgument(
            f"the answer is {answer!r:.80}, which is {'more than one' if places else 'none'} of the choices "
            f"{', '.join(map(repr, texts))[:200]}; accepted: a letter, a text, or a number "
            + (f"from {numbered}" if isinstance(numbered, int) else "with --columns first=0 or first=1")
        )
    return {"choices": texts, "answer": ascii_uppercase[places[0]]}


def _key_of(answer: Any, texts: Sequence[str]) -> str:
    """Return an answer as text; 2.0, as data frames with gaps have it, is 2 unless a choice has that text."""
    text = str(answer).strip()
    whole = text.removesuffix(".0")
    return whole if whole.isdecimal() and text not in texts else text


def _find_labels(text: str, labels: Sequence[str]) -> list[int]:
    bare = text.strip("().").casefold()
    return [at for at, label in enumerate(labels) if label.casefold() == bare]


def first_number(answers: Sequence[Any], choices: Sequence[Any]) -> Numbered:
    """Return the number of the first option where all answers of a data set are numbers of options.

    They are numbers if all are digits, not all are labels and not all are texts of options. They begin at 0
    if one is 0, and at 1 if one is the number of options and none is 0. Return "none" where all digits are
    texts, or where labels are texts too and others are no labels; else None.

    Raises:
        BadArgument: when digits may be texts of options or their numbers, and when they may begin at 0 or 1.
    """
    read = zip(answers, map(read_choices, choices), strict=True)
    rows = [(_key_of(answer, texts), texts, labels) for answer, (texts, labels) in read]
    labels_in_texts = [text in texts for text, texts, labels in rows if _find_labels(text, labels)]
    if len(labels_in_texts) == len(rows):
        return None
    if not all(text.isdecimal() for text, _, _ in rows):
        return "none" if labels_in_texts and all(labels_in_texts) else None
    numbers = [int(text) for text, _, _ in rows]
    if all(text in texts for text, texts, _ in rows):
        places = [texts.index(text) for text, texts, _ in rows]
        for start in (0, 1):
            indices = [number - start for number in numbers]
            if indices != places and all(
                at in range(len(row[1])) for at, row in zip(indices, rows, strict=True)
            ):
                raise BadArgument(
                    "the answers are texts of choices, and may be their numbers too. Say which: --columns "
                    "first=none for texts, first=0 or first=1 (in Python columns={...})."
                )
        return "none"
    past = any(number == len(texts) for number, (_, texts, _) in zip(numbers, rows, strict=True))
    if not past and 0 not in numbers:
        raise BadArgument(
            f"the answers are numbers of choices from {min(numbers)} to {max(numbers)}, and the first choice "
            "may be 0 or 1. Say which: --columns first=0, or first=1 (in Python columns={...})."
        )
    return 0 if 0 in numbers else 1
