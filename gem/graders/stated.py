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
_SHORTEST = 4  # words of a sentence behind an answer: "St. Louis" and "Oslo. Bergen." have less
_BEFORE_FRAGMENTS = (".", "!", "?", ";", "—", "–")
PREDICATE = re.compile(
    r"\b(?:is|are|was|were|be|been|has|had|have|can|could|will|would|did|does|do|done|it|this|that|these|they"
    r"|he|she|we|you|i|let|see|note|as|known|\w+ed|became|began|won|wrote|made|took|led|means)\b|['’]s\b",
    re.IGNORECASE,
)
"""A word of a sentence, which an item of a list rarely has."""
_CONTRACTION = re.compile(r"\b(?:it|that|this|there|he|she|they|we|you|i)['’]\w", re.IGNORECASE)
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
    rf"{ANNOUNCED.pattern}|\banswer\s(?:should|must|would|will|has to)\sbe\b[*_:]*|<answer>", re.IGNORECASE
)
_CHOICE_ANNOUNCED = re.compile(  # a problem about numbers or names may speak of options too
    rf"{_ANNOUNCED.pattern}|\b(?:option|choice)(?:[*_\"]*(?:\sis\b|\s?[:：=])"
    r"|\s(?:should|must|would|will|has to)\sbe\b)[*_:：]*",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(r"[.!?;:,\n—]|\b(?:so|thus|hence|therefore)\b", re.IGNORECASE)
_NOT_THE_ANSWER = re.compile(  # what ends the words before "answer is" if those state no answer
    r"(?:\b(?:wrong|incorrect|false|bad|poor|worst|one|other|another|alternative|tempting|common|popular|usual"
    r"|naive|first|initial|earlier|previous|second|his|her|their|(?:student|user)['’]s)"
    r"(?:\s(?:possible|good|correct|plausible|final|answer))?"
    r"|\b(?:if|whether|unless|until|suppose|assume|assuming|what)(?:\sthat)?(?:\s(?:the|my|our))?(?:\s\w+)?"
    r"|(?:(?:\b(?:not|never|hardly|cannot)|n['’]t)\s(?:really\s)?"
    r"(?:think|believe|say|claim|mean|sure|certain|agree)"
    r"|\b(?:i|we)\s(?:doubt|deny))(?:\s(?:that|if|whether))?(?:\s(?:the|my|our))?(?:\s\w+)?"
    r"|(?:\b(?:not|never)|n['’]t)(?:\s(?:true|likely|clear|the case)\sthat)?(?:\s(?:the|my|our))?"
    r"(?:\s(?:correct|right))?"
    r"|\b(?:unlikely|doubtful|false)\sthat(?:\s(?:the|my|our))?(?:\s\w+)?"
    r"|\b(?:some|others|many|people)(?:\s\w+)?\s(?:say|think|believe|claim)(?:\sthat)?(?:\sthe)?"
    r"|/|\bper)\Z",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"\b(?:wrong|incorrect|false|not|never|other|tempting|part|step|first|for one)\b|n['’]t\b"
)
_DETERMINER = re.compile(r"(?:\b(?:the|my|our|final|correct|right|best|only)|\A)\Z", re.IGNORECASE)
_VERBS = ("is", "becomes", "equals")
_SENTENCE_END = re.compile(
    r"[.!?;。！？](?=\s|\Z|[*_])|,? (?:because|since|which|as (?:it|this))\b| [—–] | \((?:as|see|since)\b"
)
_CONTRAST = re.compile(
    r"(?P<last>[^\W_]\S*)(?:,? (?:rather than|instead of|as opposed to)|, (?:and |but )?(?P<no>not)) "
    r"(?P<other>[^.,;:\n]{1,60})[.!]*\Z",
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"\A(?:the|an?) ", re.IGNORECASE)
_NO_OTHER = re.compile(  # what takes back or limits, in place of naming another
    r"(?:\d+ ?% |(?:an?|the) )*(?:100|sure|certain\w*|really|quite|exact\w*|only|just|yet|true|right"
    r"|correct|false|wrong|answer|(?:im)?possibl[ey]|probabl[ey]|likely|too|so|very|entirely|fully"
    r"|completely|totally|absolutely|always|often|necessarily|confident|proven|known|clear\w*|that|it"
    r"|this|all|any|every\w*|even|much|many|in|on|at|for|to|from|by|with\w*|as|if|when|because|unless|of"
    r"|i|we|you)\b",
    re.IGNORECASE,
)
_TAIL = re.compile(r"\s?(?:です|である|입니다|이다)[。.]?\Z")
_BREAK = r"(?:\A|(?<!\b[A-Za-z])[.!?;—–]|\n)[\s*_]*+"
_TAKEN_BACK = re.compile(  # not "A. No, ..." and "C: this is wrong", which explain other choices
    rf"{_BREAK}(?:(?:no|wait|sorry|hmm+|actually)\W+"
    r"(?:no|wait|(?:that|it|this)(?:['’]s| is) (?:wrong|not right))\b"
    r"|nope|oops|correction|scratch that|on second thought)\b"
    r"|(?:(?:\A\W*(?:but\s)?(?:that|this|it)|\bi|\b(?:my|the) answer)(?:\s(?:is|was|am)|['’][sm])\s(?:\w+\s)?"
    r"(?:wrong|incorrect|mistaken|false|not (?:right|correct|true))"
    r"|\b(?:just as|equally) likely|\bi made a mistake)(?=\s*(?:[.!?,;:\n—–]|\Z))"
    r"|\bi (?:doubt (?:it|that|this)|retract|misread)\b",
    re.IGNORECASE,
)
_DOUBTED = re.compile(  # what may begin another answer, or only more words about this one
    rf"{_BREAK}(?P<word>no(?!\. of\b)(?=[\s,.:!—–-]+(?:wait|it|the|that|this|i)\b|[,.:!—–])"
    r"|wait|actually|hmm+|sorry|hold on"
    r"|alternatively|on reflection|let me re(?:consider|think)|maybe|perhaps|or|but|however|another"
    r"|if not|failing that"
    r"|(?:others?|alternatives?|runner-up)(?=(?: \w+){0,2} ?:)"
    r"|nein|oder|vielleicht|non|ou|peut-être|o|tal vez|или|нет)\b",
    re.IGNORECASE,
)
_SAYS = re.compile(  # up to where another answer may begin
    r"\b(?:is|be|so|thus|hence|therefore|rather|maybe|perhaps|tal vez|vielleicht|peut-être)\b"
    r"|['’]s\b|[=,;—–→]",
    re.IGNORECASE,
)
_STOP = re.compile(r"(?<!\b[A-Z])[.!?](?=\s|\Z)|\n")  # not that of "A. Rome"
_PIECE_END = re.compile("[=,;:—–→]")
_NO_IN_LAST_PLACE = re.compile(r"[^。、,，]{0,40}?(?:ではない|じゃない|ではありません|이 아|가 아|아닙)")
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
NOT_RIGHT = re.compile(
    r"\b(?:doubt|nobody|no one|not|(?:false|untrue|unlikely) that)\b|n['’]t\b", re.IGNORECASE
)
"""What denies that something is right, as in "nobody thinks it is"."""
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
        ends += [end.span() for end in list(_SENTENCE_END.finditer(self.text))[:3] if self._ends_at(end)]
        texts = [
            self.text[:start]
            for start, end in ends
            if not is_taken_back(self.text[end:] + "\n" + self.behind)
        ]
        return list(dict.fromkeys(_TAIL.sub("", drop_emphasis(text)) for text in texts))

    def _ends_at(self, end: re.Match[str]) -> bool:
        """Return whether more than a fragment, which may be a part of the answer, stands behind an end."""
        behind = self.text[end.end() :].lstrip(" *_\"'”")
        sign = end[0].strip()
        if not behind or sign not in _BEFORE_FRAGMENTS:
            return True
        sentence = _SENTENCE_END.split(behind, maxsplit=1)[0]
        words = len(sentence.split()) + len(_CONTRACTION.findall(sentence))  # "it's" is "it is"
        if not PREDICATE.search(sentence):
            return words >= 2 * _SHORTEST
        return sign in "—–;" or words >= _SHORTEST


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


def read_reply(reply: str, of_choices: bool = False) -> Reply:
    r"""Return a reply and what it says is its answer; `of_choices` where "the option is" states it too.

    >>> read_reply("Let me think. The answer is Oslo. It is in Norway.").statements[0].readings()[1]
    'Oslo'
    >>> read_reply('{"answer": "Oslo"}').inside, read_reply("So it is Oslo.").closing
    ('Oslo', 'Oslo')
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
    statements = _find_statements(plain, _CHOICE_ANNOUNCED if of_choices else _ANNOUNCED)
    return Reply(text, None, tuple(statements), _read_closing(plain.rpartition("\n")[2]))


def drop_label(text: str) -> str:
    """Return the content of a box as plain text without "the answer is" at its beginning."""
    return _LABEL.sub("", strip_markup(text), count=1)


def drop_emphasis(text: str) -> str:
    """Return a text without emphasis, blanks and signs of code at its ends."""
    return text.strip(" \t*`")


def drop_contrast(text: str) -> str:
    """Return a text without what it says at its end that the answer is not: Oslo, not Bergen.

    What follows "not" must be of the answer's kind: "Oslo, not likely" has no other answer.
    """
    match = _CONTRAST.search(text)
    if match is None:
        return text
    other = _ARTICLE.sub("", match["other"]).lstrip("*_`\"'“‘($")
    named = other[:1].isupper() or other[:1].isdigit() or match["last"][:1].islower() or not match["no"]
    return text[: match.end("last")] if named and not _NO_OTHER.match(other) else text


def is_taken_back(behind: str) -> bool:
    """Return whether a text behind an answer takes it back, corrects it or names another."""
    behind = behind[:PIECE]
    if _TAKEN_BACK.search(behind):
        return True
    return any(doubt["word"].casefold() not in ("but", "however") for doubt in _DOUBTED.finditer(behind))


def find_corrections(behind: str) -> list[str]:
    """Return what a text behind an answer may state in its place; an empty text where it only takes it back.

    They follow "no", "wait" or "actually" in their sentence, or end the text.

    >>> find_corrections(". Actually, it is 19.")[:2], find_corrections(". It is so.")
    (['19', '19'], [])
    """
    behind = behind[:PIECE]
    if _TAKEN_BACK.search(behind):
        return [""]
    starts = [match.end("word") for match in _DOUBTED.finditer(behind)][:_MOST]
    sentences = [_STOP.split(behind[start:].lstrip(" .,:!"), maxsplit=1)[0] for start in starts]
    last = _STOP.split(behind.strip().rstrip(".!?"))[-1] if starts else ""
    texts = [
        *sentences,
        *(text[match.end() :] for text in (*sentences, last) for match in [*_SAYS.finditer(text)][-_MOST:]),
    ]
    pieces = [_PIECE_END.split(text, maxsplit=1)[0].strip(" .!*") for text in texts]
    read = [*(_read_closing(piece) or piece for piece in pieces), _read_closing(last.lstrip("-•> "))]
    return [drop_contrast(piece) for piece in read if piece and " is " not in piece]  # not "A is in Italy"


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


def _find_statements(text: str, announced: re.Pattern[str]) -> list[Statement]:
    """Return the last statements of an answer in a text, the last first."""
    places = [match.end() for match in announced.finditer(text) if _announces(text, match)]
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
        if statement.text and not statement.is_question() and not _NO_IN_LAST_PLACE.match(statement.text):
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
    last = _SENTENCE_END.split(line.rstrip(".!"))[-1].strip()
    whole = _STOP.split(line.rstrip(".!"))[-1]
    for text in (last, line):
        if match := _IS_RIGHT.fullmatch(text):
            return None if NOT_RIGHT.search(whole) else drop_emphasis(match[1])
        if match := _CLOSING.fullmatch(text):
            return drop_emphasis(match[1])
    return None
