r"""What a reply says is its answer, for the graders of choices, numbers and texts.

It is the content of the last ``\boxed{}`` or ``<answer>``, else the field ``answer`` of JSON that ends the
reply, else what a sentence, a heading or the last line states. The mathematics grader reads replies by
`gem.graders.mathematics.replies`, which knows what a formula is.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass

from gem.graders.mathematics.languages import ANNOUNCED, HEADING
from gem.parsing import boxed_or_tagged, drop_thinking, strip_markup

LONGEST = 20_000  # characters at the end of a reply in which an answer is looked for
PIECE = 2_000  # of a statement, and of what stands behind it
_MOST = 5  # statements that are read
_TURN_ENDS = (
    *("<|im_end|>", "<|eot_id|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>", "</s>", "<end_of_turn>"),
)
_TAG = re.compile(r"<(/?)(?:final_)?answer>", re.IGNORECASE)
_ROLE = re.compile(r"\s*assistant:\s*", re.IGNORECASE)
_FIELD = re.compile(
    r"""["'](?:final[ _]?)?answer["']\s*+:\s*+"""
    r"""(?:("(?:[^"\\\n]|\\.)*")|'([^'\n]*)'|([^"'\s,{}\[\]][^",{}\[\]\n]*))""",
    re.IGNORECASE,
)
_ANNOUNCED = re.compile(
    rf"{ANNOUNCED.pattern}|\b(?:answer|option|choice)\s(?:should|must|would|will|has to)\sbe\b[*_:]*"
    r"|\b(?:option|choice)[*_\"]*(?:\sis\b|\s?[:：=])[*_:：]*|<answer>",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(r"[.!?;:,\n—]|\b(?:so|thus|hence|therefore)\b", re.IGNORECASE)
_NOT_THE_ANSWER = re.compile(  # what ends the words before "answer is" if those state no answer
    r"(?:\b(?:wrong|incorrect|false|bad|poor|worst|other|another|alternative|tempting|common|popular|usual|naive"
    r"|first|initial|earlier|previous|second|your|his|her|their|(?:student|user)['’]s)(?:\s\w+)?"
    r"|\b(?:if|whether|unless|until|suppose|assume|assuming|what)(?:\sthat)?(?:\s(?:the|my|our))?(?:\s\w+)?"
    r"|(?:\b(?:not|never|hardly|doubt|unlikely|deny)|n['’]t)(?:\s\w+){0,4})\Z",
    re.IGNORECASE,
)
_DENIED = re.compile(r"\b(?:wrong|incorrect|false|not|never|other|tempting)\b|n['’]t\b")
_DETERMINER = re.compile(r"(?:\b(?:the|my|our|final|correct|right|best|only)|\A)\Z", re.IGNORECASE)
_VERBS = ("is", "becomes", "equals")
_SENTENCE_END = re.compile(
    r"[.!?;。！？](?=\s|\Z|[*_])|,? (?:because|since|which|as (?:it|this))\b| [—–] | \((?:as|see|since)\b"
)
_TAIL = re.compile(r"\s?(?:です|である|입니다|이다)[。.]?\Z")
_TAKEN_BACK = re.compile(  # not "A. No, ..." and "C: this is wrong", which explain other choices
    r"(?:\A|(?<!\b[A-Za-z])[.!?;—–]|\n)[\s*_]*+"
    r"(?:no(?=[\s,.:!—–-]+(?:wait|it|the|that|this|i)\b|[,.:!—–])|nope|wait|actually|hmm+|sorry|oops|correction"
    r"|scratch that|on second thought|hold on|alternatively|maybe|perhaps|or)\b"
    r"|(?:\A\W*(?:but\s)?(?:that|this|it)|\bi|\b(?:my|the) answer)(?:\s(?:is|was|am)|['’][sm])\s(?:\w+\s)?"
    r"(?:wrong|incorrect|mistaken|false|unsure|not (?:right|correct|true|sure|certain))\b"
    r"|\b(?:just as|equally) likely\b|\bi (?:doubt|retract|misread|made a mistake)\b",
    re.IGNORECASE,
)
_CLOSING = re.compile(
    r"(?:(?:so|thus|hence|therefore|✅|→|=>|⇒|∴|≈|[>•-] (?=\D))\s*+,?\s*+"
    r"|i (?:think|believe|guess) (?:that )?|(?:it|that|this)(?: is|['’]s) "
    r"|i(?: would|['’]d)? (?:choose|pick|select|go with|say) )++"
    r"(?:(?:option|choice) )?(\S.*)",
    re.IGNORECASE,
)
_IS_RIGHT = re.compile(
    r"(?:(?:so|thus|hence|therefore),? )?(?:(?:the )?(?:option|choice) )?(\S.*?) is "
    r"(?:(?:the )?(?:(?:correct|right|final|best) )?(?:answer|option|choice|one)|correct|right)[.!]*",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"\s*(?:the\s+)?(?:(?:final|correct)\s+)?answer(?:\s+is\b|\s*[:：=])[\s:：]*", re.IGNORECASE
)


@dataclass(frozen=True)
class Statement:
    """A line that a reply says is its answer."""

    text: str
    """The line from where the answer begins, without emphasis at its ends."""
    behind: str
    """What the reply has behind the line."""

    def is_question(self) -> bool:
        """Return whether its first sentence asks."""
        return self.text[len(self.find_sentence()) :][:1] == "?"

    def find_sentence(self) -> str:
        """Return its first sentence, without reasons behind it."""
        return _SENTENCE_END.split(self.text, maxsplit=1)[0]

    def readings(self) -> list[str]:
        """Return the line, and its beginnings up to the end of a sentence, if nothing takes them back."""
        ends = [(len(self.text), len(self.text))]
        ends += [end.span() for end in list(_SENTENCE_END.finditer(self.text))[:3]]
        texts = [
            self.text[:start]
            for start, end in ends
            if not is_taken_back(self.text[end:] + "\n" + self.behind)
        ]
        return list(dict.fromkeys(_TAIL.sub("", drop_emphasis(text)) for text in texts))


@dataclass(frozen=True)
class Reply:
    """A reply without its thinking, and what it says is its answer."""

    text: str
    inside: str | None
    """The content of its box, tag or field, without a label; None without one."""
    statements: tuple[Statement, ...]
    """What its sentences and headings say is the answer, the last first."""
    closing: str | None
    """What its last line concludes in other words: "So it is Oslo."."""


def read_reply(reply: str) -> Reply:
    r"""Return a reply and what it says is its answer.

    >>> read_reply("Let me think. The answer is Oslo. It is in Norway.").statements[0].readings()[1]
    'Oslo'
    >>> read_reply('{"answer": "Oslo"}').inside, read_reply("So it is Oslo.").closing
    ('Oslo', 'Oslo.')
    """
    text = drop_thinking(reply)[-LONGEST:].strip()
    while (end := next(filter(text.endswith, _TURN_ENDS), None)) is not None and text != end:
        text = text[: -len(end)].rstrip()
    if role := _ROLE.match(text):
        text = text[role.end() :]
    plain = _TAG.sub(r"<\1answer>", text).replace("\\fbox{", "\\boxed{")
    inside = boxed_or_tagged(plain)
    inside = _read_field(plain) if inside is None else inside
    if inside is not None:
        return Reply(text, str(inside), (), None)
    return Reply(text, None, tuple(_find_statements(plain)), _read_closing(plain.rpartition("\n")[2]))


def drop_label(text: str) -> str:
    """Return the content of a box as plain text without "the answer is" at its beginning."""
    return _LABEL.sub("", strip_markup(text), count=1)


def drop_emphasis(text: str) -> str:
    """Return a text without emphasis, blanks and signs of code at its ends."""
    return text.strip(" \t*`")


def is_taken_back(behind: str) -> bool:
    """Return whether a text behind an answer takes it back, corrects it or names another."""
    return _TAKEN_BACK.search(behind[:PIECE]) is not None


def _read_field(text: str) -> str | None:
    """Return the only answer in JSON that ends a text."""
    plain = text.rstrip(" \n`")
    fields = _FIELD.findall(plain) if plain.endswith("}") else []
    if len(fields) != 1:
        return None
    quoted, single, bare = fields[0]
    with suppress(ValueError):
        return str(json.loads(quoted) if quoted else single or bare)
    return str(quoted[1:-1])


def _find_statements(text: str) -> list[Statement]:
    """Return the last statements of an answer in a text, the last first."""
    places = [match.end() for match in _ANNOUNCED.finditer(text) if _announces(text, match)]
    at = 0
    for line in text.splitlines(keepends=True):
        at += len(line)
        if len(line) < 100 and HEADING.fullmatch(line):
            places.append(at)
    statements = []
    for place in sorted(set(places), reverse=True)[:_MOST]:
        rest = text[place:].lstrip(" \t\r\n:：>*_")
        line, _, behind = rest[: 2 * PIECE].partition("\n")
        statement = Statement(drop_emphasis(line[:PIECE]), behind)
        if statement.text and not statement.is_question():
            statements.append(statement)
    return statements


def _announces(text: str, match: re.Match[str]) -> bool:
    """Return whether an announcement is of an answer that is not denied, supposed or another's."""
    *_, clause = _CLAUSE_END.split(text[max(0, match.start() - 120) : match.start()])
    clause = clause.rstrip(" *_\"'")
    _, *between = match[0].casefold().split()
    longer = between[1:] and between[-1].strip("*_:") in _VERBS  # "to answer the question, it is" is none
    if longer and (not _DETERMINER.search(clause) or _DENIED.search(" ".join(between))):
        return False
    return _NOT_THE_ANSWER.search(clause) is None


def _read_closing(line: str) -> str | None:
    """Return what a line concludes without the word answer."""
    line = drop_emphasis(line[-PIECE:])
    for text in (_SENTENCE_END.split(line.rstrip(".!"))[-1].strip(), line):
        if match := _IS_RIGHT.fullmatch(text) or _CLOSING.fullmatch(text):
            return drop_emphasis(match[1])
    return None
