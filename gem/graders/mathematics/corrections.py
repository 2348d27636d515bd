r"""Corrections: text after an answer that withdraws the answer or replaces it.

Only sentences of fixed forms count: correcting words and then a bare value ("No, it is 3"), or a statement
that the answer is wrong. "Actually this follows from 3 lemmas" and "No other solutions exist" do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gem.graders.mathematics.algebra import same
from gem.graders.mathematics.evaluation import TooBig
from gem.graders.mathematics.latex import read
from gem.graders.mathematics.notation import Unread, normalise_text
from gem.graders.mathematics.nouns import is_unit_or_noun
from gem.graders.mathematics.number_words import numerals
from gem.graders.mathematics.scalars import constant

MOST = 4000  # characters behind an answer that are looked at

_END = re.compile(r"\A(?:\$|\\[)\]]|[}*.,:;\s])+")
_SENTENCE = re.compile(r"(?<=[.!?…])\s+|\n+|\s*;\s*|\s+[—–-]{1,3}\s+|\s*—\s*")
_TEXT = re.compile(r"\\text\w*\s*\{([^{}]*)\}")
_NAMELY = re.compile(r"\b(?:i\.\s?e\.|e\.\s?g\.)")
_DASH = re.compile(r"[—–-]+\s+")
_GAP = r"(?![\w'’])[\s,.:;!?…*—–-]*"
_LEADS = r"""
no|nope|nah|wait|actually|corrections?|corrected|rather|instead|sorry|oops|bad|apologies|apologi[sz]e|my
(?<!no )mistake|that(?=\W+(?:scratch|\$?\d|it\b))|on second thoughts?|thought|never\s?mind|hold on|hmm+
better|edit|update|typo|i|mean|meant|think|believe|now|should say|take (?:that|it) back|(?:have )?changed
mind|let me|on reflection|recompute|correct|fix|rephrase|this|it(?=:)|to be (?:exact|precise|clear)
more (?:exactly|precisely|accurately)|precisely|make (?:that|it)|let['’]?s say|say|just kidding|jk|oh|ah
um|well|but|yet|however|ok(?:ay)?|still|in (?:fact|truth|reality)|really|or|maybe|perhaps|alternatively
possibly|(?:made|there (?:is|was)) an? (?:\w+ )?(?:mistake|error)|not \$?-?[\d./]+\$?(?:,|\s+but)
(?:it|that) (?:isn['’]t|is not)(?=,)|(?:scratch|strike|disregard|ignore|forget)(?: (?:that|this|it))?
"""
_LEAD = re.compile("(?:(?:" + "|".join(_LEADS.split("\n")[1:-1]) + f"){_GAP})+", re.IGNORECASE)
_TAKES_BACK = re.compile(
    r"\b(?:no|nope|nah|scratch|strike|disregard|ignore|forget|mistake|error|never\s?mind|take|changed|isn['’]t"
    r"|can['’]t|is not|kidding)\b",
    re.IGNORECASE,
)
FAULT = re.compile(
    r"(?<!no )\b(?:wrong|mistakes?|mistaken|errors?|misread|miscount\w*|miscalculat\w*|forgot|overlooked"
    r"|incorrect|double[- ]counts?|instead|should (?:be|have)|(?:not|n['’]t) (?:right|correct|count)"
    r"|does not match|recompute|recalculate)\b",
    re.IGNORECASE,
)
"""Words of a reply that finds a fault in what it has said."""
_OTHER = re.compile(r"\b(?:or(?! rather)|maybe|perhaps|alternatively|possibly)\b", re.IGNORECASE)
_DOUBTS = re.compile(r"(?:wait|hmm+|sorry|oops|hold on|on second thought)\b", re.IGNORECASE)
_SO = re.compile(
    r"(?:so|thus|hence|therefore),?\s+(?=(?:it|that|the (?:\w+ )?answer) (?:is|should be)\b)", re.IGNORECASE
)
_SUBJECT = (
    r"(that|this|it|which|i|my answer|the answer|the above|the boxed (?:value|answer)"
    r"|the (?:result|value|answer) above|\$?-?[\d./]+\$?)"
)
_DENIED = re.compile(
    rf"{_SUBJECT}(?:\s+(?:is|was|am)|['’]s|['’]m)\s*(?:(?:actually|clearly|just|completely|obviously|all)\s+)?"
    r"(?:wrong|incorrect|mistaken|false|(?:not|n['’]t) (?:right|correct|true|it|the answer))"
    r"|(?:that|this|it) (?:isn['’]t|cannot be|can not be|can['’]t be) (?:right|correct|true|it|the answer)"
    r"|i (?:miscalculated|misread|got (?:that|it) wrong|retract (?:this|that|it|my|the)(?: answer)?)"
    r"|(?:not|wrong|incorrect)(?: correct| right)?",
    re.IGNORECASE,
)
_AFFIRMED = re.compile(
    rf"(?:yes|(?:yes,?\s+)?{_SUBJECT}(?:\s+(?:is|was)|['’]s)\s*(?:actually|indeed|in fact)?\s*"
    r"(?:right|correct|fine|ok(?:ay)?|true))",
    re.IGNORECASE,
)
_IS = re.compile(
    r"(?:that\s+)?"
    r"(?:it|that|this"
    r"|the (?:(?:final|correct|corrected|right|true|actual|real|revised) )?(?:answer|result|value))"
    r"(?:\s+(?:is|was|(?:should|must) (?:be|have been|read)|could (?:also )?be|would be|equals|becomes)"
    r"(?=\s)|['’]s|:)[:\s]*(?:(?:actually|really|rather|in fact|instead|exactly|just|now)\s+)*",
    re.IGNORECASE,
)
_WRAPPED = re.compile(r"\$\$?(.+?)\$\$?|\\\((.+)\\\)|\\\[(.+)\\\]|\*\*(.+)\*\*|\\boxed\{(.+)\}", re.DOTALL)
_TRAILS = re.compile(
    r",?\s+(?:instead|actually|rather|then|too|also|not\s+\$?-?[\d\\].*|is (?:right|correct))$", re.IGNORECASE
)
_CHOICE = re.compile(r"\(?[A-J]\)?|yes|no|true|false", re.IGNORECASE)


def apply_corrections(answer: str, rest: str) -> str | None:
    """Return the answer after applying corrections in the rest of the reply; None if it is withdrawn.

    >>> apply_corrections("2", "Actually, it is 3."), apply_corrections("2", "That is wrong.")
    ('3', None)
    >>> apply_corrections("2", "No other is.")
    '2'
    """
    rest = _NAMELY.sub("namely", _TEXT.sub(r"\1", rest[:MOST]))
    stands: str | None = answer
    open_to = asked = doubted = False  # the sentence before corrected without a value; it was a question
    for sentence in _SENTENCE.split(_END.sub("", rest, count=1)):
        words = _DASH.sub("", sentence.strip(" \t*").replace("**", ""))
        words = words[1:].rstrip(" )") if words.startswith("(") else words
        if not words:
            continue
        asked, question = words.endswith("?"), asked
        lead = _LEAD.match(words)
        concluded = _SO.match(words) if doubted and not lead else None
        claim = words[(lead or concluded).end() :] if lead or concluded else words  # type: ignore[union-attr]
        doubted = doubted or (lead is not None and _DOUBTS.match(words) is not None)
        if lead and not claim.strip(" .!?"):
            if not question:
                stands, open_to = (None if _TAKES_BACK.search(words) else stands), True
            continue
        affirmed = _AFFIRMED.fullmatch(words.strip(" .!"))
        if affirmed and not _another(affirmed[1], answer):
            stands, open_to = stands or answer, False
            continue
        denials = (_cut_denial(text, answer) for text in (claim if lead else words, words))
        behind = next((text for text in denials if text is not None), None)
        if behind is not None:
            stands, open_to, claim, lead = None, True, behind, None
        value = _value(claim, bare=bool(lead) or open_to) if claim else None
        if value is None:
            open_to = open_to and (behind is not None or concluded is not None)
            continue
        other = _OTHER.search(lead[0] if lead else "") or re.search(r"\bcould\b", words)
        if not other:
            stands = answer = value
        elif stands is not None and not equal_texts(stands, value):
            stands = None
        open_to = False
    return stands


def _cut_denial(sentence: str, answer: str) -> str | None:
    """Return the text after a denial ("that is wrong, it is 3"); None if there is no denial."""
    denial = _DENIED.match(sentence)
    behind = sentence[denial.end() :] if denial else ""
    more = behind.strip(" .!?…") and not re.match(r"\s*[,.:;!—–-]", behind)
    return None if denial is None or _another(denial[1], answer) or more else behind.strip(" .,:;!?…—–-")


def equal_texts(one: str, other: str) -> bool:
    """Return whether two values are certainly equal, such as 1/2 and 0.5."""
    try:
        left, right = (
            read(normalise_text(re.sub(r"approximately|about", "", text))) for text in (one, other)
        )
        return same(left, right) is True
    except (Unread, TooBig, RecursionError):
        return one == other


def distinct_texts(values: Iterable[str]) -> list[str]:
    """Return values without those that equal an earlier one."""
    kept: list[str] = []
    for value in values:
        if not any(value == other or equal_texts(value, other) for other in kept):
            kept.append(value)
    return kept


def _another(subject: str | None, answer: str) -> bool:
    """Return whether a sentence is about a number other than the answer."""
    number = (subject or "").strip("$")
    return number[-1:].isdigit() and number != answer.strip("$ ")


def _value(words: str, *, bare: bool) -> str | None:
    """Return the value that words state, after "it is" or, with `bare`, alone; None if they say more."""
    text = words.strip(" .!?…,")
    stated = _IS.match(text)
    text = _TRAILS.sub("", text[stated.end() :] if stated else text).strip(" .:,")
    wrapped = _WRAPPED.fullmatch(text)
    text = next(group for group in wrapped.groups() if group) if wrapped else text
    if not (stated or bare) or not 0 < len(text) <= 300:
        return None
    if _CHOICE.fullmatch(text):
        return text
    spoken = re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", numerals(text)).strip()
    try:
        tree = read(spoken)
    except Unread:
        return None
    if tree[0] == "unit":
        return text if is_unit_or_noun(tree[2]) else None
    checks = tree[0] == "rel" and constant(tree[2][0])  # 1 + 1 = 2
    return None if checks or re.search(r"(?<![\\a-zA-Z])[a-zA-Z]{3,}(?![a-zA-Z}])", spoken) else text
