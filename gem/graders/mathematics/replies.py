r"""What a reply answers, and what a reference accepts: boxes, last lines and corrections."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from gem.errors import BadArgument
from gem.graders.mathematics import languages
from gem.graders.mathematics.corrections import FAULT, apply_corrections, distinct_texts, equal_texts
from gem.graders.mathematics.statements import stated_answer, value_of
from gem.parsing import STYLE, boxed, drop_invisible, drop_thinking, strip_styles

ANSWER = 20_000  # characters of a boxed or bare answer that are looked at
LONGEST = 200_000  # characters at the end of a reply in which a box is looked for
REPLY = 8_000  # characters at the end of an unboxed reply that a worker looks through
SPOKEN = re.compile(
    r"\\text\s*\{\s*((?:[A-Z][a-z]+'s|The|His|Her|Their|Its)"
    r"(?: (?!(?:not|no|wrong|false|incorrect|half|error|mistake|other|first|initial|old"
    r"|sum|product|square|double)\b)"
    r"[A-Za-z]+){1,2} (?:is|are|was|weighs?|costs?|has|takes?|lasts?) [$€£]?\d[\d.,:/%]*"
    r"(?: (?!(?:than|more|less|fewer|if|unless|when|where|or|but|not|except|and|per"
    r"|short|off|from|plus|minus|times)\b)"
    r"[A-Za-z]+){0,2}\.?)\s*\}"
)
"""A sentence that gives one thing one number, and is all of a box."""
_ITEM = re.compile(r"[-*•]|(?<!\w)\(?(?:\d{1,2}|[a-zA-Z]|[ivx]{1,4})[.):]")
_JOINING = re.compile(r"\b(?:and|or|either|maybe|perhaps|also|both|as well as)\b", re.IGNORECASE)
_CONCLUDING = re.compile(
    r"\b(?:so|thus|hence|therefore|finally|final|answers?|no|not|wrong|wait|correction|corrected|mistake"
    r"|instead|rather|actually|now"
    r"|which (?:gives|means|makes))\b",
    re.IGNORECASE,
)
_CORRECTING = re.compile(
    r"\b(?:but(?! also)|however|although|forg[eo]ts?|off.by.one|correct(?:ed|ion)?|mistake|wrong|not)\b",
    re.IGNORECASE,
)
"""What stands between a first value and the one that replaces it."""
_SENTENCE_END = re.compile(r"[.!?](?:\s|$)")
_PERCENT = re.compile(r"[}\s$]*(?:\\[)\]])?\s*(?:\\?%|percent\b|percentage\b|pct\b)", re.IGNORECASE)
_BOX_TOKEN = re.compile(r"\\boxed\s*\{|(?<!\\)\\++[{}]|[{}]")  # a run of backslashes is walked once
_NOT_BEFORE = re.compile(
    r"(?:\b(?:not|never|cannot be|instead of|rather than)|n['’]t(?: be)?|≠|\\neq?|\bnicht|\bpas|\bno es"
    r"|\bnon è|\bnão é|\bне)"
    r"\s*(?:equal to|simply|just|really|actually)?[\s$(:*\\]*$",
    re.IGNORECASE,
)
_FAILS = (
    r"(?:is|was|are)(?:n['’]t| not) (?:the |a |an |our |my |it\b|right|correct|true|valid|possible|allowed"
    r"|admissible|positive|an integer|in )"
    r"|(?:is|was) (?:clearly |obviously |actually |just |simply |also |therefore )?(?:wrong|incorrect"
    r"|false|impossible|extraneous|invalid|excluded"
    r"|rejected|ruled out|inadmissible|too (?:big|small|large|low|high))\b"
    r"|(?:does|did)(?: not|n['’]t) (?:satisfy|work|hold|fit|solve|lie|count|make)"
    r"|fails\b|cannot be|can['’]t be|(?:must|has to|can) be (?:rejected|discarded|excluded|ruled out)"
    r"|violates|contradicts"
)
_DENIED_BEHIND = re.compile(
    rf"[\s$)}}\],*\\]*(?:(?:but|which|however,?|although)\s+)?(?:(?:it|this|that|which)\s+)?(?:{_FAILS}"
    rf"|would (?:be|have been)\b|[?])",
    re.IGNORECASE,
)
_DENIED_LATER = re.compile(rf"\b(?:that|this|it|which|one|value|solution|root)\s+(?:{_FAILS})", re.IGNORECASE)
_ASKED_FOR = re.compile(
    r"\b(?:this|that|which|it) is (?:the |our |what )?(?:\w+ )?(?:final |requested |required |desired "
    r"|asked )?(?:answer|(?:was|is) asked)",
    re.IGNORECASE,
)
_WITHDRAWN = re.compile(
    r"\b(?:ignore|disregard|forget) (?:it|this|that|the (?:above|box|answer))|\b(?:not"
    r"|n['’]t) (?:at all )?(?:sure|certain) (?:about|of|whether|if|that)"
    r"|\b(?:not|n['’]t) (?:able|enough information) to (?:determine|say|tell)",
    re.IGNORECASE,
)
_CONCLUSION = re.compile(
    r"\b(?:only|final|correct|right|real|true|actual|possible|requested|required|full|complete)\s+(?:\w+\s+){0,2}?(?:answers?"
    r"|values?|solutions?|roots?)\s+(?:of\s+\S+\s+|for\s+\S+\s+)?(?:is|are)\b:?\s*"
    r"|\b(?:the|my|final|corrected) answer(?:\s+(?:is|should be)\b|\s*:)\s*",
    re.IGNORECASE,
)
_NEXT_PART = re.compile(r"\n[*_#\s]*(?:part |question )?\([b-h]\)", re.IGNORECASE)
_CASE = re.compile(r"\bcase\s*\(?(?:\d|[ivx]+\b|[A-D]\b)", re.IGNORECASE)


def references(reference: Any) -> list[str]:
    """Return the texts of a reference, any of which is accepted.

    Raises:
        BadArgument: when the reference is neither text nor a number nor a sequence of them.
    """
    if isinstance(reference, str):
        return [_reference(drop_invisible(reference))]
    if isinstance(reference, int | float | Fraction) and not isinstance(reference, bool):
        return [str(reference)]
    if isinstance(reference, Sequence) and reference and not isinstance(reference, bytes):
        return [text for part in reference for text in references(part)]
    try:
        return [str(reference.item())]  # a number of numpy
    except (AttributeError, ValueError):
        raise BadArgument(
            f"the reference is {reference!r:.80}; accepted: text, a number, or a sequence of them."
        ) from None


def _reference(text: str) -> str:
    if "\\boxed" in text and boxed(text) is not None:
        answer = _boxed_answer(text)
        if answer is not None:
            return answer
    return languages.join_amount(text.rpartition("####")[2].strip())


def final_answer(text: str) -> tuple[str | None, bool]:
    r"""Return the final answer in `text`, and whether that is certain: it is boxed or is the whole text.

    Thinking is no part of the reply (`gem.parsing.drop_thinking`). The answer is that of the
    last box, and without a box what `gem.graders.mathematics.statements` reads.

    Several boxes form one answer if they belong to the same statement. They do if only list marks, "and",
    "or" and commas are between them, if they are in one sentence, or if only a few words on the same or the
    next line are between them. They do not if a blank line with words, a longer text, or a concluding or
    correcting word ("so", "therefore", "the answer", "no", "wait") is between them: then the last box counts.
    "and" and "or" join even then. Boxes of equal value are one, and a box that the reply itself denies
    ("it is not", "but that fails") is none.

    Text after the answer may correct it ("No, it is 3") or withdraw it ("That is wrong"): see
    `gem.graders.mathematics.corrections`.

    >>> final_answer(r"thus \boxed{1} and \boxed{2}.")
    ('1, 2', True)
    >>> final_answer(r"With x = \boxed{3} found, the answer is \boxed{5}.")
    ('5', True)
    >>> final_answer("The answer is 2. Actually, it is 3.")
    ('3', True)
    >>> final_answer("<think>Is it 7?</think> So it is clear that Ann pays **$18** each day.")
    ('$18', False)
    """
    text = _read_reply(text)
    if _differ(text):
        return None, True
    if "\\boxed" in text:
        inside = boxed(text)
        if inside is not None:
            answer = _plain_answer(text, inside) or _boxed_answer(text)
            return answer and _TEXT_LABEL.sub("", answer, count=1), True
    stripped = text.strip()
    if not stripped:
        return None, True
    answer, whole = stated_answer(stripped[-REPLY:])
    answer = None if answer is None else languages.join_amount(answer[-ANSWER:])
    return answer, whole or len(stripped) < 40


def is_written(reply: str, answer: str, reference: Any) -> bool:
    """Return whether the last box of a reply has a reference's own words, and its final answer is that box.

    `final_answer` may write a box in other words, as a noun of another language, which a reference keeps.
    """
    text = _read_reply(reply)
    inside = boxed(text)
    return (
        inside is not None
        and answer == _rewrite(inside, text)
        and {inside, _strip_style(inside)} & set(map(languages.write_ascii_digits, references(reference)))
        != set()
    )


def _read_reply(reply: str) -> str:
    """Return the end of a reply without thinking, with ASCII digits and one command for boxes."""
    text = reply[-LONGEST:] if len(reply) > LONGEST else reply
    text = text if text.isascii() else languages.write_ascii_digits(drop_invisible(text))
    text = text.replace("\\fbox{", "\\boxed{") if "\\fbox{" in text else text
    return drop_thinking(text)


def _differ(text: str) -> bool:
    """Return whether a reply gives two final answers, one right behind the other."""
    if len(_FINAL.findall(text[-REPLY:])) < 2:
        return False
    lines = [
        _FINAL.match(line) for line in re.split(r"\n|(?<=\*\*) (?=\*\*)", text[-REPLY:]) if line.strip()
    ][-20:]
    values = [match and value_of(match.string[match.end() :].strip("*_ "), text) for match in lines]
    return any(one and other and len(distinct_texts((one, other))) > 1 for one, other in pairwise(values))


_FINAL = re.compile(r"(?i)(?<!\w)[*_#]{0,6} ?final answer[*_]{0,3}:")
_TEXT_LABEL = re.compile(r"\s*\\text\s*\{[^{}]{0,40}\banswers? (?:is|are):?\s*\}\s*(?=\S)")


def _plain_answer(text: str, inside: str) -> str | None:
    """Return the content of the only box of a text that ends with it and says nothing else of it."""
    start = text.find("\\boxed")
    end = text.find(inside, start) + len(inside)
    if len(text) - end > 4 or "%" in text[end:] or "?" in text[end:] or text.rfind("\\boxed") != start:
        return None
    if text[max(0, start - 24) : start].rstrip(" $(:*\\\n").endswith(_MAY_DENY):
        return None
    return inside if inside.isdigit() else _rewrite(inside, text)


_MAY_DENY = (
    "not", "n't", "n’t", "never", "be", "of", "than", "to", "simply", "just", "really", "actually", "nicht",
    "pas", "es", "è", "é", "не", "≠", "ne", "neq",
)  # fmt: skip


def _boxed_answer(text: str) -> str | None:
    """Return the answer that the boxes of a text give."""
    boxes = _boxes(text)
    refused = {boxes[at][2]: at for at in range(len(boxes)) if _is_denied(text, boxes, at)}
    kept = [at for at in range(len(boxes)) if at > refused.get(boxes[at][2], -1)]
    behind = text[boxes[-1][1] :]
    if not kept:
        stated = _read_conclusion(behind) or apply_corrections(_DENIED, behind)
        return None if stated == _DENIED else stated
    first = len(kept) - 1
    while first and (
        kept[first] - kept[first - 1] > 1 or _belongs(text[boxes[kept[first - 1]][1] : boxes[kept[first]][0]])
    ):
        first -= 1
    chosen = [boxes[at] for at in kept[first:]]
    if _ASKED_FOR.match(text[chosen[-1][1] : chosen[-1][1] + 80].lstrip(" $.,;)]}*\\and")):
        chosen = chosen[-1:]
    answer = _join(text, chosen)
    if len(behind) < 4:
        return answer
    if _WITHDRAWN.search(behind[-400:]):
        return None
    corrected = apply_corrections(answer, behind) if kept[-1] == len(boxes) - 1 else answer
    stated = _read_conclusion(behind)
    if corrected != answer or (stated is not None and not equal_texts(answer, stated)):
        return corrected if corrected != answer else stated
    return _read_revision(behind) if FAULT.search(behind) and _DOUBT.search(behind) else answer


_DOUBT = re.compile(
    r"\b(?:wait|hmm+|but|sorry|oops|apolog\w+|actually|however|correction|on second thought|hold on|edit)\b",
    re.IGNORECASE,
)


def _read_revision(behind: str) -> str | None:
    """Return what a text behind a box states last if it finds a fault in the box; None: no value."""
    revised = stated_answer(behind.strip(" $.}*\n"))[0]
    return revised if revised is not None and re.search(r"\d", revised) else None


_DENIED = "\\text{denied}"
"""Stands for a box that is denied, where a correction may replace it."""


def _boxes(text: str) -> list[tuple[int, int, str]]:
    """Return the innermost closed boxes: start, end and content."""
    openers: list[
        tuple[int, int, int]
    ] = []  # begin, start of the content, number of boxes before; -1: no box
    boxes: list[tuple[int, int, str]] = []
    for token in _BOX_TOKEN.finditer(text):
        kind = token.group()
        if kind.startswith("\\boxed"):
            openers.append((token.start(), token.end(), len(boxes)))
        elif kind == "{":
            openers.append((-1, -1, 0))
        elif kind == "}" and openers:
            begin, opened, before = openers.pop()
            if begin >= 0 and before == len(boxes):
                boxes.append((begin, token.end(), text[opened : token.start()].strip()))
    return boxes[-20:]


def _is_denied(text: str, boxes: list[tuple[int, int, str]], at: int) -> bool:
    """Return whether the reply says of a box that it is not the answer."""
    start, end, _ = boxes[at]
    last = at == len(boxes) - 1
    behind = text[end : min(len(text) if last else boxes[at + 1][0], end + 300)]
    denial = _DENIED_BEHIND.match(behind)
    if denial and denial[0].endswith("?"):
        return not _AFFIRMED.match(behind[denial.end() :])
    later = not last or len(boxes) > 1
    return bool(
        _NOT_BEFORE.search(text[max(0, start - 40) : start])
        or denial
        or (later and _DENIED_LATER.search(behind.partition("\n\n")[0] if last else behind))
    )


_AFFIRMED = re.compile(r"[\s$*]*(?:yes|right|correct|indeed|✓)", re.IGNORECASE)


def _read_conclusion(behind: str) -> str | None:
    """Return the value that a conclusion behind the boxes states: "so the only value is 3"."""
    behind = behind[-2000:]
    rest = [behind[match.end() :] for match in _CONCLUSION.finditer(behind)][-1:]
    if not rest:
        return None
    sentence = re.split(r"(?<=[.!?])\s|\n", rest[0], maxsplit=1)[0].strip()
    value = value_of(sentence.rstrip("."), behind)
    return None if re.search(r"[A-Za-z]{4,}", re.sub(r"\\[a-zA-Z]+", "", value)) else value or None


def _join(text: str, boxes: list[tuple[int, int, str]]) -> str:
    """Return the contents of boxes, of equal ones the last; of a single one with a percent sign after it."""
    kept = distinct_texts(box[2] for box in reversed(boxes))
    labels = (_LABEL.search(text, max(0, start - 60), start) for start, _, _ in boxes[:4])
    if len(kept) == 1 < len({label[1] if label else None for label in labels} - {None}) == len(boxes) < 4:
        kept = [box[2] for box in reversed(boxes)]  # angle A = 90 and angle B = 90: two values
    if len(kept) > 1:
        return ", ".join(languages.join_groups(inside, text) for inside in reversed(kept))
    last = _strip_style(kept[0])
    sign = _PERCENT.match(text, boxes[-1][1]) if len(text) - boxes[-1][1] < ANSWER else None
    return last + "%" if sign and "%" not in last else _rewrite(last, text)


def _rewrite(inside: str, text: str) -> str:
    """Return the content of a box without style, with its digits joined and its unit in English."""
    return _in_english(languages.join_groups(_strip_style(inside), text), text)


# the name before a box
_LABEL = re.compile(r"(\\?(?:angle|text|vec)?[\s{]*[A-Za-z][\w{} ]*)=\s*\Z")
_ALL_STYLED = re.compile(
    rf"\\(?:{STYLE}|underline|bm|fbox)(?![a-zA-Z])" r"\s*\{((?:[^{}\\]|\\[a-z]+\{[^{}]*\}|\\[^a-z])*)\}"
)


def _strip_style(value: str) -> str:
    r"""Return the number in \\textbf{(113)}, and the words in \\text{42 apples}."""
    styled = _ALL_STYLED.fullmatch(value) if value.startswith("\\") and len(value) < 300 else None
    if styled is None or not re.search(r"\d", styled[1]) or SPOKEN.fullmatch(value):
        return value
    inner = styled[1].strip()
    alone = re.fullmatch(r"\(\s*(-?[\d.,/]*\d)\s*\)", inner)
    return alone[1] if alone and "," not in alone[1] else inner


_COUNTED = re.compile(
    r"([-+]?\$?[\d.,{}\\!/ ]*\d[\d.,{}!]*\}?|\\[dt]?frac\{[^{}]*\}\{[^{}]*\})[\s~\\,]*(?:\\(?:text|mathrm"
    r"|textrm|mbox)\s*\{\s*(.+?)\s*\}|([^\W\d_][^{}\\\d]*))"
)


def _in_english(value: str, text: str) -> str:
    """Return a number with a noun of another language without it, or with the unit's English name."""
    counted = _COUNTED.fullmatch(value) if len(value) < 100 else None
    if counted is None or not languages.is_foreign(text):
        return value
    words = (counted[2] or counted[3]).split()
    name = languages.unit_name(words[0])
    if name:
        return f"{counted[1]} \\text{{ {name}}}"
    short = "".join(words).isascii() and len(counted[2] or counted[3]) < 3
    return value if short or (languages.ADJUNCT | languages.AND_OR).intersection(words) else counted[1]


def _belongs(gap: str) -> bool:
    """Return whether the text between two boxes makes them one answer."""
    if len(gap) > 300:
        return False
    words = strip_styles(gap, " ")
    words = re.sub(r"\\[a-zA-Z]+|[\\$\[\](){},;:|/]|(?<=\s)[-*•](?=\s)", " ", _ITEM.sub(" ", words))
    plain = re.findall(r"[^\W\d_]{2,}", words)
    correcting, concluding = _CORRECTING.search(words), _CONCLUDING.search(words)
    part = _NEXT_PART.search(gap) and not correcting
    case = _CASE.search(gap) and not concluding
    if part or case or all(word.casefold() in ("and", "or", "with", "also") for word in plain):
        return True
    if correcting or not (_JOINING.search(words) and "\n\n" not in gap):
        if correcting or concluding or re.search(r"\n\s*\n", gap):
            return False
        one_sentence = not _SENTENCE_END.search(words.rstrip(". ")) and "\n" not in gap.strip()
        return one_sentence or len(plain) <= 8
    return True
