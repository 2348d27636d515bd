r"""What a reply answers, and what a reference accepts: boxes, last lines and corrections."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from gem.errors import BadArgument
from gem.graders.mathematics.corrections import apply_corrections
from gem.parsing import boxed

ANSWER = 20_000  # characters of a boxed or bare answer that are looked at
LONGEST = 200_000  # characters at the end of a reply in which a box is looked for
REPLY = 8_000  # characters at the end of an unboxed reply that a worker looks through
STYLED = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|operatorname|rm|bf)\s*\{([^{}]*)\}")
_ITEM = re.compile(r"[-*•]|(?<!\w)\(?(?:\d{1,2}|[a-zA-Z]|[ivx]{1,4})[.):]")
_JOINING = re.compile(r"\b(?:and|or|either|maybe|perhaps|also|both|as well as)\b", re.IGNORECASE)
_CONCLUDING = re.compile(
    r"\b(?:so|thus|hence|therefore|finally|final|answers?|no|not|wrong|wait|correction|corrected|mistake|instead|rather|actually|now"
    r"|which (?:gives|means|makes))\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?](?:\s|$)")
_PERCENT = re.compile(r"[}\s$]*(?:\\[)\]])?\s*(?:\\?%|percent\b|percentage\b|pct\b)", re.IGNORECASE)
_ANCHOR = re.compile(
    r"(?:####|(?:final\s+)?answer(?:\s+is|\s*:)(?:\s*:)?|\banswer\b[^.\n]{0,40}?\bis\b:?)\s*", re.IGNORECASE
)
_SENTENCES = re.compile(r"(?<=[.!?])\s+(?=[A-Z]|\$(?=\S)|\\[(\[])|\n\s*\n|(?<=[\]$])\s*\n(?=[A-Z])")
_ASSURANCE = re.compile(
    r"(?:done|qed|i (?:hope|am sure|believe|think)[a-z ]{0,30}|that is all|good luck)[.!]*", re.IGNORECASE
)
_SEGMENT = re.compile(r"(?<!\\)\$\$?([^$]+)\$\$?|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)


def references(reference: Any) -> list[str]:
    """Return the texts of a reference, any of which is accepted.

    Raises:
        BadArgument: when the reference is neither text nor a number nor a sequence of them.
    """
    if isinstance(reference, str):
        return [_reference(reference)]
    if isinstance(reference, bool) or reference is None:
        raise BadArgument(f"the reference is {reference!r}; accepted: text, a number, or a sequence of them.")
    if isinstance(reference, int | float | Fraction):
        return [str(reference)]
    if isinstance(reference, Sequence) and reference:
        return [text for part in reference for text in references(part)]
    try:
        return [str(reference.item())]  # a number of numpy
    except (AttributeError, ValueError):
        raise BadArgument(
            f"the reference is {reference!r:.80}; accepted: text, a number, or a sequence of them."
        ) from None


def _reference(text: str) -> str:
    inside = boxed(text) if "\\boxed" in text else None
    if inside is not None:
        return _joined_boxes(text, inside)
    return text.rpartition("####")[2].strip() if "####" in text else text.strip()


def final_answer(text: str) -> tuple[str | None, bool]:
    r"""Return the final answer in `text`, and whether that is certain: it is boxed or is the whole text.

    Several boxes form one answer if they belong to the same statement. They do if only list marks, "and",
    "or" and commas are between them, if they are in one sentence, or if only a few words on the same or the
    next line are between them. They do not if a blank line with words, a longer text, or a concluding or
    correcting word ("so", "therefore", "the answer", "no", "wait") is between them: then the last box counts.
    "and" and "or" join even then.

    Text after the answer may correct it ("No, it is 3") or withdraw it ("That is wrong"): see
    `gem.graders.mathematics.corrections`.

    >>> final_answer(r"thus \boxed{1} and \boxed{2}.")
    ('1, 2', True)
    >>> final_answer(r"With x = \boxed{3} found, the answer is \boxed{5}.")
    ('5', True)
    >>> final_answer("The answer is 2. Actually, it is 3.")
    ('3', True)
    """
    text = text[-LONGEST:]
    inside = boxed(text) if "\\boxed" in text else None
    if inside is not None:
        given = _joined_boxes(text, inside)
        behind = text[text.find(inside, text.rfind("\\boxed")) + len(inside) + 1 :]
        return given if len(behind) < 4 else apply_corrections(given, behind), True
    stripped = text.strip()
    if not stripped:
        return None, True
    anchors = list(_ANCHOR.finditer(stripped[-REPLY:]))
    if anchors:
        return _read_after_anchor(stripped[-REPLY:][anchors[-1].end() :]), len(stripped) < 40
    if "\n" not in stripped and (len(stripped) <= 200 or " " not in stripped):
        return _drop_assurance(stripped), True
    return _sentences(stripped[-REPLY:])[-1].strip()[-ANSWER:], False


def _read_after_anchor(rest: str) -> str | None:
    """Return the text after "answer is": the sentence, or a formula on its own line."""
    rest = rest.strip().removeprefix("}").strip()  # the end of \text{The answer is }
    segment = _SEGMENT.match(rest)
    behind = rest[segment.end() :].partition("\n")[0] if segment else ""
    if segment and (not behind.strip(" .!*") or _SENTENCE_END.match(behind.lstrip())):
        return apply_corrections(next(group for group in segment.groups() if group), rest[segment.end() :])
    line = rest.partition("\n")[0]
    sentence = re.split(r"\.\s|\.$", line, maxsplit=1)[0]
    return apply_corrections(_REASON.sub("", sentence), rest[len(sentence) :]) if sentence else None


_REASON = re.compile(
    r"\s*,?\s+(?:since|because)\b.*"
    r"|\s*(?:,\s*(?:and )?not\s+\$?-?\d[\d.,/]*\$?|\(not\s+\$?-?\d[\d.,/]*\$?\))$",
    re.DOTALL,
)


def _sentences(text: str) -> list[str]:
    """Return the sentences of a reply, without closing assurances."""
    sentences = [part for part in _SENTENCES.split(text) if part.strip()]
    while len(sentences) > 1 and _ASSURANCE.fullmatch(sentences[-1].strip()):
        sentences.pop()
    return sentences or [text]


def _drop_assurance(line: str) -> str:
    last = _SENTENCES.split(line)[-1].strip()
    return line[: -len(last)].strip() if len(last) < len(line) and _ASSURANCE.fullmatch(last) else line


def _joined_boxes(text: str, last: str) -> str:
    """Join the boxes that belong to the last one's statement, or a single box and a percent sign after it."""
    boxes = [last]
    start = text.rfind("\\boxed")
    tail = text[start:]
    while start > 0 and len(boxes) < 20 and text.find("\\boxed", 0, start) >= 0:
        before = text[:start]
        earlier = boxed(before[-ANSWER:])
        if earlier is None:
            break
        opened = before.rfind("\\boxed")
        closed = before.find(earlier, opened) + len(earlier)
        closed = before.find("}", closed) + 1
        if not closed or not _belongs(before[closed:]):
            break
        boxes.append(earlier)
        start = opened
    if len(set(boxes)) == 1:
        sign = _PERCENT.match(tail, tail.find(last) + len(last)) if len(tail) < ANSWER else None
        return last + "%" if sign and "%" not in last else last
    return ", ".join(reversed(boxes))


def _belongs(gap: str) -> bool:
    """Return whether the text between two boxes makes them one answer."""
    if len(gap) > 300:
        return False
    words = STYLED.sub(r" \1 ", gap)
    words = re.sub(r"\\[a-zA-Z]+|[\\$\[\](){},;:|/]|(?<=\s)[-*•](?=\s)", " ", _ITEM.sub(" ", words))
    plain = re.findall(r"[^\W\d_]{2,}", words)
    if all(word.casefold() in ("and", "or", "with", "also") for word in plain):
        return True
    if _JOINING.search(words) and "\n\n" not in gap:
        return True
    if re.search(r"\n\s*\n", gap) or _CONCLUDING.search(words):
        return False
    if not _SENTENCE_END.search(words.rstrip(". ")) and "\n" not in gap.strip():
        return True
    return len(plain) <= 8
