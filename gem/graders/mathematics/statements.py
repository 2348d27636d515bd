r"""What a reply without a box states: its announced answer, or the value of its last statement.

A statement's value is taken only if it is the only one: a number that "in", "of" or "each" makes a
circumstance, an earlier step of a computation, and a subordinate clause do not count; two values that
compete, a negation and a hedge leave the statement as it is, and it is then compared as a whole.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise, takewhile
from typing import NamedTuple

from gem.graders.mathematics import languages, number_words
from gem.graders.mathematics.corrections import FAULT, apply_corrections, distinct_texts, equal_texts
from gem.graders.mathematics.languages import (
    ADJUNCT,
    AND_OR,
    ANNOUNCED,
    CONCLUDING,
    DENIED_AFTER,
    HEADING,
    HEDGED,
    NEGATED,
    TOTAL,
)
from gem.graders.mathematics.latex import read
from gem.graders.mathematics.notation import FUNCTIONS, Unread, normalise_text
from gem.graders.mathematics.trees import subtrees
from gem.graders.mathematics.units import measure
from gem.parsing import tagged

PIECE = 1000
"""Characters of one statement that is looked at."""

_FIELD = re.compile(
    r'"(?:final[ _]?)?answer"\s*:\s*(?:"([^"\\\n]*(?:\\.[^"\\\n]*)*)"|([^",{}\[\]\n]+|\[[^\[\]\n]*\]))',
    re.IGNORECASE,
)
_ONLY_FIELD = re.compile(r'\{\s*"\w+"\s*:\s*(?:"([^"\\\n]*)"|(-?[\d.]+))\s*\}\s*(?:```)?\s*')
"""An object of JSON with one field, which ends a reply."""
_CHECK = re.compile(
    r"\n[#*_ ]*(?:(?:verification|verify|(?:last |quick |double[- ]|sanity )*check|checking|probe"
    r"|v[ée]rification|comprobaci[oó]n|verifica|verificação|проверка)\b|验证|驗證|検算|检验|검산|التحقق)"
    r"[^\n]{0,60}(?:[:：*]|\n)",
    re.IGNORECASE,
)
"""How the part of a reply begins that checks its answer."""
_LEAD = re.compile(r"\A(?:∴|=>|[→⇒⟹]|\\(?:therefore|implies|Rightarrow)(?![a-zA-Z]))\s*")
_ICONS = re.compile("[\u2600-\u27bf\u2b00-\u2bff\ufe0f\u200d\u200b\U0001f000-\U0001faff]+")
_QED = re.compile(
    r"(?:\bq\.?\s?e\.?\s?d\b\.?|[∎■□▪◻]|\$?\\(?:blacksquare|square|qed|qedsymbol|Box)\$?"
    r"|,?\s*as (?:desired|required|claimed|wanted|needed))"
    r"[\s.*$]*$",
    re.IGNORECASE,
)
_ASSURANCE = re.compile(
    r"(?:[*_(\s]*)(?:done|qed|hence proved|i (?:hope|am (?:sure|confident)|believe|think)[a-z ,']{0,40}"
    r"|(?:i )?hope (?:this|that|it)[a-z ,']{0,40}"
    r"|that is all|that's it|good luck|let me know[a-z ,']{0,60}|feel free[a-z ,']{0,60}"
    r"|if you have[a-z ,']{0,80}"
    r"|(?:this|it|that) is (?:the |our )(?:only|unique|desired|required|final"
    r"|correct) (?:\w+ )?(?:solution|answer|value|result|one)"
    r"|(?:these|those) (?:\w+ )?are all(?: (?:of them|solutions|the solutions))?|this (?:completes"
    r"|finishes|concludes|ends)[a-z ,']{0,40}"
    r"|(?:everything|all|it|this) (?:checks out|agrees|matches|works|fits)|(?:which|this"
    r"|that) is (?:correct|right|as expected)"
    r"|(?:the )?proof is complete|(?:and )?we(?: are|['’]re) done|great|perfect)[\s.!*_)]*",
    re.IGNORECASE,
)
_CALCULATION = re.compile(r"<<[^<>\n]{0,80}>>")  # of GSM8K
_PLAN = re.compile(
    r"\W*(?:if\b.{0,80}\b(?:were|would|had)\b|suppose|assume|let(?:['’]s| us| me)?\b|next\b|first(?:ly)?\b"
    r"|consider|note\b|recall"
    r"|to (?:be|find|get|solve|do|see)\b|we (?:still|must|have to|need to|want|should)\b|the (?:first"
    r"|next) (?:thing|step)"
    r"|(?:(?:now|then),? )?(?:we (?:must|need to|have to) |let |multiply|divide|add|subtract|try|check"
    r"|verify|remember|compute|calculate)\b)",
    re.IGNORECASE,
)
"""How a sentence begins that plans a step, or supposes something, and states nothing."""
_BREAK = re.compile(r"[.!?…][\"'”)*_]*\s+(?=[*_(]*[^\Wa-z_]|[*_(]*[$\\\d∴])|[。！？]|[.!?]\*\*\s")
_ABBREVIATED = re.compile(
    r"(?:^|[\s($*])(?:e\.g|i\.e|mrs?|ms|dr|st|vs|approx|p\.m|a\.m|etc|ca|z\.\s?b|bzw|d\.h|cf|resp|eq|fig"
    r"|sr|sra|(?-i:[A-Z]))\.$",
    re.IGNORECASE,
)
_BLOCK = re.compile(r"\n[ \t>]*\n\s*")
_DISPLAY = re.compile(
    r"(?:\$\$(.+?)\$\$|\\\[(.+?)\\\]|\\begin\{(?:align|equation|gather)(\*?)\}(.+?)\\end\{(?:align"
    r"|equation|gather)\3\})\s*[.,]?\s*",
    re.DOTALL,
)
_FENCED = re.compile(r"(?:```|~~~)[^\n]*\n(.*?)\n?[ \t]*(?:```|~~~)[ \t]*", re.DOTALL)
_RULE = re.compile(r"[-=_*\s]{3,}")
_ITEM = re.compile(r"\s*(?:[-*+•‣▪]\s+|\(?(?:\d{1,2}|[a-zA-Z]|[ivx]{1,4})[.)]\s+)")
_OPENING_MARKS = re.compile(r"\s*(?:>\s*|#{1,6}\s+|[-*+•‣]\s+|\d{1,2}[.)]\s+(?=\D))*")
_BOLD = re.compile(r"\*\*([^*]+)\*\*|__([^_]+)__|\\textbf\{([^{}]+)\}")
_LABEL = re.compile(
    r"[^:：]{1,200}[:：][*_]*\s+|[^:：]{0,40}\b(?:answer|result|solution|conclusion)[*_]*[.][*_]*\s+",
    re.IGNORECASE,
)
_REASON = re.compile(
    r",?\s+(?:since|because|as (?:we|it|the|is|can|there|required|desired)|attained|achieved|reached"
    r"|with equality|where|for (?:all|every|each|any|some|example|instance)|e\.g"
    r"|namely(?=[^.;]*(?:,\s|\band\b|\bor\b))|which (?:is|was"
    r"|we|can)"
    r"|when|if|weil|denn|da|car|parce que|puisque|porque|ya que|pois|perché|poiché|так как|потому что"
    r"|(?:after|before|by) \w+ing)\b(?:(?!;\s|,\s+(?:and )?(?:so|thus|hence|therefore)\b).)*"
    r"|\s*,\s*(?:and )?not\s(?:(?!;\s).)*|\s+(?:rather than|instead of)\s(?:(?!;\s).)*",
    re.DOTALL | re.IGNORECASE,
)
# what says of a parameter that it is any real number
_FREE = re.compile(
    r",?\s+(?:(?:where|with|for)\s+)?\$?\b[a-z]\$?\s+(?:(?:is|being|can be)\s+)?"
    r"(?:any|an arbitrary|arbitrary)\s+real(?:\s+(?:number|parameter))?\b(?=[.*\s]*$)"
)
_ODDS = re.compile(r"(?<=\s)(\d+) (?:in|out of) (\d+)(?=[.*\s]*$)")
"""A fraction as a chance is said: 2 in 5."""
_RATHER = re.compile(r"\s*,\s*(?:and )?not\s[^,;]*$|\s*,\s+(?:who|whose)\s[^,;]*$")
_ASIDE = re.compile(
    r",\s+(?:which|who|whose|with|having)\s[^,()]{1,80},(?=\s)"
    r"|\s+\((?!\s*[-+−]?[\d.]+\s*[,)])[^()]*[A-Za-zÀ-ɏ=≈]{2,}[^()]*\)|\s+\((?:or|that is|i\.e\.)[^()]*\)"
)
_SUBORDINATE = re.compile(
    r"(?:since|because|as|if|when|after|given|with|for|in|of|from|out of|at|during|over|starting|da|wenn"
    r"|nach|von|como|si|después|después de|para|comme|après|dopo|se|após)\b",
    re.IGNORECASE,
)


def stated_answer(text: str) -> tuple[str | None, bool]:
    """Return the answer that a text without boxes states, and whether that is certain: it is the whole text.

    Args:
        text: the reply's end, without white space around it, or all of it.
    """
    text = text if text.isascii() else _ICONS.sub(" ", text).strip()
    text = _QED.sub("", _CALCULATION.sub("", text)).strip() or text
    text = languages.write_numbers(_LEAD.sub("", text, count=1))
    before = _without_check(text)
    answer, whole = stated_answer(before) if before != text else (None, False)
    if answer is not None and _reads(answer):
        return answer, whole
    answer = _read_field(text)
    if answer is not None:
        return answer, False
    place = _find_announcement(text)
    if place is not None:
        only = _ONE_FORMULA.fullmatch(place[0])
        return apply_corrections(only[1] if only else value_of(place[0], text), place[1]), False
    line = _strip_emphasis(text)
    if "\n" not in text and not _is_sentence(line) and ("**" not in line or line.startswith("**")):
        return line, True
    answer = _last_statement(text)
    behind = text[text.rfind(answer) + len(answer) :] if "=" in answer else ""
    return answer + behind if _COMPARES.match(behind) else answer, False


_ONE_FORMULA = re.compile(r"\s*\$([^$]*\w,? where [^$]*)\$[.\s]*")
"""A formula in which words say what its letters are."""
_COMPARES = re.compile(r"\s*(?:more|less|fewer|greater|smaller) than\b")
"""What makes an equation the half of a statement."""


def _without_check(text: str) -> str:
    """Return a reply without the check at its end, unless the check finds a mistake."""
    check = _CHECK.search(text) if "\n" in text else None
    if check is None or not text[: check.start()].strip() or FAULT.search(text, check.start()):
        return text
    return text[: check.start()].strip()


def _is_sentence(line: str) -> bool:
    """Return whether a reply of one line is a sentence: it begins as one, or is a computation with words."""
    if line.startswith(("| ", "|-", "`", '{"')) or len(line) > 300:
        return True
    words = len(re.findall(r"(?<![\\\w])[^\W\d_]{2,}", line[:PIECE]))
    computed = ("=" in line and _COMPUTING.match(line)) or len(_sentences(line)) > 1 or _CHAINED.search(line)
    spoken = (
        words > 2 or (words and _VERB.search(line)) or (words == 2 and "=" in line) or _SUBJECT.match(line)
    )
    return bool(
        (words and computed)
        or (words > 5 and line.endswith((".", "!")))
        or (line[:1].isupper() and spoken)
        or (line[:1].isalpha() and not line[:1].isascii())
    )


_SUBJECT = re.compile(
    r"(?:(?:so|thus|hence|therefore|then|and|ok|okay|yes|well|finally|actually),? )?"
    r"(?:(?:it|that|there|here)['’]s|(?:i|we)(?:['’]d)? (?:get|got|have|find|found|obtain|say|compute)) "
    r"(?:exactly |just )?[\\($]*[-−]?[\d.,]*\d(?:/\d+)?\\?%?[\\)$]*"
    r"(?: (?!(?:more|less|fewer|times|and|or|over|plus|minus|divided|out|of|to)\b)[^\W\d_]{2,}){0,2}"
    r"(?:[.!,;]|\Z)",
    re.IGNORECASE,
)
"""What makes a line of few words a sentence: It's, I get."""
_CHAINED = re.compile(
    r"[,;.]\s(?:and )?(?:so|hence|thus|therefore)\s"
    r"|\$,? (?:times|plus|minus|multiplied by|divided by) \$[^$]{1,80}\$: \$[^$]+\$\.?$"
)
"""What makes a line of formulas a computation: so, or an operation and its result behind a colon."""
_COMPUTING = re.compile(r"[\d(]|\\?[$€£]\d")


def _read_field(text: str) -> str | None:
    """Return the answer in <answer> or in a field of JSON."""
    inside = tagged(text, "answer") if "</answer>" in text else None
    if inside is None and '"' in text and "{" in text:
        only = _ONLY_FIELD.fullmatch(text, text.rfind("{"))
        for field in [only] if only else list(_FIELD.finditer(text))[-1:]:
            inside = next(group for group in field.groups() if group is not None)
            inside = inside.replace("\\\\", "\\").replace('\\"', '"')
    return value_of(inside.strip(), text) if inside and inside.strip() else None


def _find_announcement(text: str) -> tuple[str, str] | None:
    """Return the statement that an announcement or a heading introduces, and the text behind it."""
    best, at, tail = -1, 0, max(0, len(text) - 300)
    for match in ANNOUNCED.finditer(text):
        if match.start() >= tail or match.start() - text.rfind("\n", 0, match.start()) < 40:
            best = match.end()
    for line in text.splitlines(keepends=True):
        start, at = at, at + len(line)
        heading = HEADING.fullmatch(line) and text[at:].strip() and line[:1] not in "|"
        best = at if heading and start >= best - len(line) else best
    rest = text[best:].strip() if best >= 0 else ""
    rest = (
        rest.lstrip("*_=:").lstrip() if rest.startswith(("-", "*", "=")) else rest.lstrip(" \t\n\r*_:：}=-")
    )
    piece = _first_piece(rest)
    return (piece, rest[len(piece) :]) if rest else None


def _first_piece(rest: str) -> str:
    """Return the first statement of a text: a display, a list, or a sentence."""
    display = _DISPLAY.match(rest) or _FENCED.match(rest)
    if display:
        return display[0]
    block = _BLOCK.split(rest, maxsplit=1)[0]
    lines = block.split("\n")
    listed = (
        lines[0].startswith("|") or all(_ITEM.match(line) for line in lines) or "$$" in "".join(lines[:2])
    )
    return block if len(lines) > 1 and listed else _sentences(lines[0])[0]


def _sentences(line: str) -> list[str]:
    """Return the sentences of a line."""
    ends = [match.end() for match in _BREAK.finditer(line)]
    ends = [end for end in ends if not _ABBREVIATED.search(line[max(0, end - 40) : end].rstrip()[-12:])]
    sentences = [line[start:end] for start, end in pairwise([0, *ends, len(line)])]
    return [sentence for sentence in sentences if sentence.strip()] or [line]


def _last_statement(text: str) -> str:
    """Return the value of the last statement; the last sentence if that is unclear."""
    blocks = [block for block in _BLOCK.split(text) if block.strip() and not _RULE.fullmatch(block)]
    fence = _FENCED.search(text, max(0, text.rfind("\n\n```", 0, max(0, len(text) - 4))))
    if fence and fence.end() == len(text) and fence[1].strip():
        return value_of(fence[1].strip().split("\n")[-1], text)
    lines: list[str] = []
    while blocks or lines:
        display = _last_display("\n".join([*blocks, *lines]).rstrip())
        if display is not None:
            return value_of(display, text)
        lines = lines or [
            line for line in blocks.pop().split("\n") if line.strip() and not _RULE.fullmatch(line)
        ]
        whole = _list(lines) if lines and not lines[-1].lstrip().startswith("|") else _table(lines, text)
        if whole is not None:
            return whole
        sentences = _sentences(lines.pop().strip()) if lines else []
        while sentences:
            sentence = _ICONS.sub("", _QED.sub("", sentences.pop())).strip()
            if sentence.strip("*_.()\"' ") and not _ASSURANCE.fullmatch(sentence):
                open_end = (sentences and _is_cut(sentence)) or _PLAN.match(sentence)
                return sentence if open_end else value_of(sentence, text)
    return text


def _is_cut(sentence: str) -> bool:
    """Return whether the last of several sentences on a line breaks off: prose without an end."""
    return sentence[-1].isalnum() and sentence.isascii() and "=" not in sentence and "**" not in sentence


def _last_display(text: str) -> str | None:
    """Return the display formula that ends a text."""
    text = _QED.sub("", text).rstrip(" .,\n")
    for opening, closing in _DISPLAYS:
        start = text.rfind(opening, 0, -len(closing)) if text.endswith(closing) else -1
        if start >= 0:
            return text[start + len(opening) : -len(closing)].strip()
    return None


_DISPLAYS = (
    ("$$", "$$"),
    ("\\[", "\\]"),
    *((f"\\begin{{{name}}}", f"\\end{{{name}}}") for name in ("align", "align*")),
)


def _table(lines: list[str], text: str) -> str | None:
    """Return the result of a table: the last cell of its last row; None without a row."""
    row = lines[-1] if lines else ""
    filled = [cell for cell in map(str.strip, row.strip().strip("|").split("|")) if cell]
    total = len(filled) == 1 or (filled and ("**" in row or TOTAL.search(filled[0])))
    return value_of(filled[-1], text) if total else row or None


def _list(lines: list[str]) -> str | None:
    """Return the values of a list that is all of the answer, joined; None for a list of steps."""
    marks = list(takewhile(bool, map(_ITEM.match, reversed(lines))))
    items = [mark.string[mark.end() :].strip().rstrip(".,;") for mark in reversed(marks) if mark]
    values = all("(" in item or "\\" in item or item.lstrip("-−").isdigit() for item in items)
    if len(items) > 1 and values and all(_reads(item.replace("**", "")) for item in items):
        return ", ".join(item.strip("$") for item in items)
    return None


# -- the value of one statement


def value_of(piece: str, text: str) -> str:
    """Return the value that a statement gives; the statement itself if it gives none, or several.

    Args:
        piece: the statement, with Markdown and mathematics as written.
        text: the reply, whose language decides what a point between digits means.
    """
    piece = piece.strip()
    display = _DISPLAY.fullmatch(piece)
    if display:
        piece = next(group for group in (display[1], display[2], display[4]) if group).strip()
    if len(piece) > PIECE:
        return piece
    if ("\\\\" in piece or ("\\" in piece and "&" in piece)) and not re.search("matrix|cases|array", piece):
        piece = _last_row(piece)
    piece = _OPENING_MARKS.sub("", _FREE.sub("", _QED.sub("", _ICONS.sub(" ", piece))).strip(), count=1)
    value = _bare(piece) or _value_in(languages.set_spaces(piece), text) or _last_side(piece)
    if value is None:
        value = (piece.strip("*_ `") if piece[:1] in "*_`" else piece.strip()).replace("**", "")
    return languages.join_groups(value, text)


def _last_side(piece: str) -> str | None:
    """Return the last side of an equation whose other sides are not read; None where more is said."""
    before, equals, last = piece.rstrip(". $").rpartition("=")
    beside = before.rpartition("=")[2]
    connected = re.search(r"[,;]\s|\b(?:and|or)\b", beside)
    if not equals or connected or HEDGED.search(piece) or NEGATED.search(before + " "):
        return None
    last = last.strip().strip("$")
    return last if _reads(last) else None


def _last_row(piece: str) -> str:
    r"""Return the last row of aligned equations if they continue one another."""
    rows = re.sub(r"\\(?:begin|end)\{[a-z]+\*?\}|&", " ", piece).split("\\\\")
    rows = [row.strip() for row in rows if row.strip()] or [piece]
    if len(rows) > 1 and all(row.startswith(("=", "\\approx", "\\le", "\\ge", "<", ">")) for row in rows[1:]):
        return rows[0].partition("=")[0] + " " + rows[-1]
    heads = {row.partition("=")[0].strip() for row in rows}
    if len(heads) == 1 and all("=" in row for row in rows):  # x = 1 \\ x = 2: all of them
        return ", ".join(row.strip(" ,.;") for row in rows) if len(rows) > 1 else rows[0]
    return rows[-1]


_EMPHASISED = re.compile(r"(?:(?:\*\*|__|[*_])([^*`]+?)(?:\*\*|__|[*_])|`{1,3}([^`]+)`{1,3})[.\s]*")


def _strip_emphasis(text: str) -> str:
    """Return a text without the emphasis around all of it."""
    emphasised = _EMPHASISED.fullmatch(text)
    return (emphasised[1] or emphasised[2]).strip() if emphasised else text


def _bare(piece: str) -> str | None:
    """Return a piece without decoration if all of it is a value or a word; None for a sentence."""
    text = piece.strip().rstrip("。 ")
    text = text[:-1] if text.endswith(".") and not text.endswith("..") else text
    text = _strip_emphasis(text)
    if not re.match(r"\$\s?\d[^$]*[\s(+−-]\$", text):
        text = _content(text) or text
    is_word = _LETTER_OR_WORDS.fullmatch(text) and not HEDGED.search(text)
    return text if is_word or _reads(text) or number_words.date(text) else None


_LETTER_OR_WORDS = re.compile(r"\(?[A-Z]\)?[.:]?|[^\W\d_]+(?:[ '-][^\W\d_]+){0,2}[.!]?")


@lru_cache(maxsize=512)
def _reads(text: str) -> bool:
    """Return whether all of a text is a formula, or a number with a known unit."""
    if len(text) > 400 or not text or text[-1] == "?":
        return False
    try:
        tree = read.__wrapped__(normalise_text(text.rstrip(".,;")))
    except Unread:
        return False
    return not _has_words(tree)


def _has_words(tree: object) -> bool:
    """Return whether a tree has units that are no measure, such as words of a sentence."""
    return any(part[0] == "unit" and measure(part[2]) is None for part in subtrees(tree))


def _value_in(piece: str, text: str) -> str | None:
    """Return the only value in a sentence; None if there is none, or several compete."""
    if HEDGED.search(piece) or piece.rstrip().endswith("?"):
        return None
    foreign = languages.is_foreign(text)
    label = _LABEL.match(piece) if not re.match(r"\S*\d:\d", piece) else None
    inside = _value_in_clauses(piece[label.end() :], foreign) if label and piece[label.end() :] else None
    return _value_in_clauses(piece, foreign) if inside is None else inside


def _value_in_clauses(piece: str, foreign: bool) -> str | None:
    piece = _ODDS.sub(r"\1/\2", _ASIDE.sub("", piece))
    reason = _REASON.search(piece)
    if reason and reason.start() > 0 and _has_candidate(piece[: reason.start()]):
        piece = piece[: reason.start()]
    piece = _RATHER.sub("", piece)
    plain = piece.replace("**", "")
    option = _OPTION.fullmatch(plain.strip()) or _CHOSEN.search(plain)
    if option:
        return option[1].rstrip(".")
    bold = [next(group for group in match.groups() if group).strip() for match in _BOLD.finditer(piece)]
    strong = [words for words in bold if _has_candidate(words)]
    end = piece[max((match.end() for match in CONCLUDING.finditer(piece)), default=0) :]
    if bold and not strong and "**" in end and not _has_candidate(_BOLD.sub("", end)):
        return bold[-1].strip(" .:") if len(bold) == 1 else None
    if strong and not NEGATED.search(piece[: piece.find(strong[0])].rstrip("*_ ") + " "):
        values = [_bare(words) or _only(words, foreign) for words in strong]
        if None in values:
            return None
        unique = distinct_texts(value for value in values if value)
        return (
            ", ".join(unique) if len(unique) > 1 else _with_unit_behind(unique[0], piece, strong[-1], foreign)
        )
    plain = plain.replace("__", "")
    starts = {0, *(match.end() for match in CONCLUDING.finditer(plain)), max(0, plain.rfind("; ") + 2)}
    for start in sorted(starts - {1}, reverse=True):
        clause = plain[start:]
        if _has_candidate(clause):
            return _only(clause, foreign) or _main_clause(clause, foreign)
    return _letter_or_word(plain)


def _with_unit_behind(value: str, piece: str, words: str, foreign: bool) -> str:
    """Return a bold number with the unit that stands behind it."""
    rest = piece[piece.rfind(words) + len(words) :].lstrip("*_$ ")
    return value + _unit(rest.split(" ", 5)[:5], foreign)[0] if _PLAIN_NUMBER.fullmatch(value) else value


_PLAIN_NUMBER = re.compile(r"[-+−]?[\d.,/]+")


def _main_clause(clause: str, foreign: bool) -> str | None:
    """Return the value of a main clause, or of the predicate, where a clause has several numbers.

    "Since there are 12 months and 4 seasons, each has 3": 3. "5 boxes and 6 bags make 11": 11.
    """
    head, _, tail = clause.rpartition(", ")
    if not (head and _SUBORDINATE.match(head.strip()) and _has_candidate(tail)):
        verbs = [match.end() for match in _VERB.finditer(clause)]
        denied = verbs and NEGATED.search(clause[: verbs[0]] + " ")
        tail = clause[verbs[0] :] if len(verbs) == 1 and not denied else ""
    return _only(tail, foreign) if _has_candidate(tail) else None


_VERB = re.compile(
    r"\b(?:is|are|was|were|will be|equals?|makes?|gives?|totals?|leaves?|becomes?|comes? to|ist|sind|est"
    r"|sont|es|son|é|são|sono)\s",
    re.IGNORECASE,
)
_CHOSEN = re.compile(r"\b(?:option|choice|answer) is:?\s+(\([A-J]\)\s+\S[^,;]{0,60})$", re.IGNORECASE)
_OPTION = re.compile(r"((?:\(?[A-J]\)|[A-J][.:])[:.]?\s+\S[^,;]{0,60})")


def _letter_or_word(plain: str) -> str | None:
    """Return the option or the truth that a sentence without a number states."""
    stated = _STATED_LETTER.search(plain) or _AGREED.match(plain.strip())
    return stated[1] if stated else None


_STATED_LETTER = re.compile(r"\b(?:option|choice|answer)\s+(?:is\s+)?\(?([A-J])\)?[\s.]*$", re.IGNORECASE)
_AGREED = re.compile(r"(?:so|thus|therefore|hence)?,?\s*(yes|no)\b[,.!]", re.IGNORECASE)


# -- the values in a clause

_MATH = r"\$\$?(?=\S)(?:[^$\\]|\\.)+?(?<=\S)\$\$?(?![\d])|\\\(.+?\\\)|\\\[.+?\\\]"
_ATOM = re.compile(rf"{_MATH}|\\?\$[^\s$]*|(?:[^\s$()]|\((?:[^()$]|\([^()$]*\))*\))+|[^\s$]+")
_NUMBER = re.compile(r"\\?[$€£]\d[\d.,]*k|[-+−–±~≈]*(?:\\?[$€£¥₹])?\d[\d.,:/^²³%°'′]*(?:[€£¥₹¢%°]|°[CF])?")
_MATHY = re.compile(r"[\w .,+\-−–×*·⋅÷/^=<>≤≥≠≈±()\[\]{}|⌊⌋⌈⌉√π∞°%€£'′²³⁴⁵⁶⁷⁸⁹¹⁰ⁿ⁻₀₁₂₃₄₅₆₇₈₉\\!∈∪]+")
_LETTER_RUN = re.compile(r"(?<![\\_a-zA-Z])[^\W\d_]{2,}")
_NAMES_AND_POWERS = re.compile(r"\\[a-zA-Z]+|_\{[^}]*\}|_\w+|[²³⁴⁵⁶⁷⁸⁹¹⁰₀-₉]")
_SIMPLE_NAME = re.compile(r"\\?[A-Za-z]+(?:_\{?\w+\}?)?'?|[A-Za-z]\([a-z](?:,\s?[a-z])*\)|\|[A-Z]\|")
_SHORT_WORDS = (
    "km|cm|mm|kg|mg|ml|hrs?|ft|lbs?|yd|mph|vs|mrs?|ms|dr|st|th|nd|rd|by|my|why|try|dry|sky|fly|shy|cry|spy"
)
_LITTLE_WORDS = frozenset(["is", "of", "to", "in", "or", "at", "so", "if", "he", "we", "it", "as", "no"])
_MULTIPLIERS = frozenset(
    [
        "thousand",
        "million",
        "billion",
        "trillion",
        "hundred",
        "dozen",
        "percent",
        "pct",
        "half",
        "halves",
        "thirds",
        "quarters",
    ]
)


def _has_candidate(clause: str) -> bool:
    return any(atom.kind in ("value", "words") for atom in _atoms(clause))


class _Atom(NamedTuple):
    """A word of a clause: value, weak (a lone variable), operator, words (a number in words), or word."""

    kind: str
    text: str
    behind: str  # punctuation
    start: int
    end: int


@lru_cache(maxsize=256)
def _atoms(clause: str) -> list[_Atom]:
    """Return the words of a clause."""
    atoms: list[_Atom] = []
    for match in _ATOM.finditer(clause):
        inner = None if _NUMBER.fullmatch(match[0]) else _content(match[0])
        if inner is not None:
            atoms.append(
                _Atom("weak" if _SIMPLE_NAME.fullmatch(inner) else "value", inner, "", *match.span())
            )
            continue
        core = match[0].rstrip(".,;:!?\"'”")
        behind = match[0][len(core) :]
        if not core and atoms:  # the comma behind a formula
            atoms[-1] = atoms[-1]._replace(behind=atoms[-1].behind + behind)
            continue
        core = core.lstrip("\"'“")
        if core.endswith(")") and core.count(")") > core.count("("):
            core, behind = core.rstrip(")"), ")" + behind
        if core.startswith("(") and core.count("(") > core.count(")"):
            core = core.lstrip("(")
        if core == "=" and atoms and len(atoms[-1].text) == 1 and atoms[-1].text.isalpha():
            atoms[-1] = atoms[-1]._replace(kind="weak")  # "a = 5", "y = 2"
        atoms.append(_Atom(_kind(core), core, behind, *match.span()))
    return atoms


def _content(text: str) -> str | None:
    """Return the formula between the dollars or brackets that enclose all of a text."""
    segment = _SEGMENT.fullmatch(text)
    return next(group for group in segment.groups() if group).strip() if segment else None


_SEGMENT = re.compile(r"\$\$?([^$]+)\$\$?[.\s]*|\\\((.+?)\\\)[.\s]*|\\\[(.+?)\\\][.\s]*", re.DOTALL)


_KINDS = re.compile(
    rf"(?P<value>{_NUMBER.pattern})"
    r"|(?P<operator>[-+−–×*·⋅÷/<>≤≥≠=≈≡∈∪±^|&]+|\\(?:times|cdot|approx|ge|le|in|cup|pm|div)|[xX×])"
    rf"|(?P<words>(?i:(?:{number_words.CARDINAL})(?:-(?:{number_words.CARDINAL}))?))"
    r"|(?P<word>[aAIeyo]?|[^\W\d_a-zA-Zαβγδεθλμνπρστφψωℤℝℕ½¼¾⅓⅔⅛²³¹⁰⁴-⁹₀-₉])"
    rf"|(?P<weak>[^\W\d_]|abc?|(?!(?:{_SHORT_WORDS})$)[b-df-hj-np-tv-z]{{2,3}})"
)


def _kind(core: str) -> str:
    simple = _KINDS.fullmatch(core)
    if simple:
        return str(simple.lastgroup)
    if core.isalpha() or not _MATHY.fullmatch(core):
        return "word"
    letters = [run.casefold() for run in _LETTER_RUN.findall(_NAMES_AND_POWERS.sub(" ", core))]
    if any(
        run not in FUNCTIONS and (len(run) != 2 or not run.isascii() or run in _LITTLE_WORDS)
        for run in letters
    ):
        return "word"
    formula = "/" not in core and re.search(r"[⌊⌈√π∞²³⁴=<>]|[^\W_][-+−*/^·⋅(]", core)
    return "value" if formula or any(c.isdigit() for c in core) else "weak"


def _only(clause: str, foreign: bool) -> str | None:
    """Return the only value of a clause, with its unit; None if there are several."""
    atoms = _atoms(clause)
    groups = _merge_compounds(_groups(clause, atoms, foreign), atoms)
    steps = [n for n, group in enumerate(groups) if group.is_step]
    if steps and (len(steps) == steps[-1] + 1 or steps[-1] == len(groups) - 1):
        groups = groups[steps[-1] :]  # of computations in a row, the last one's result
    values = [group for group in groups if not group.is_adjunct] or groups
    values = [group for group in values if group.text.casefold() != "one"] or values
    if not values or any(group.is_denied for group in values):
        return None
    one = values[0]
    alike = all(
        (one.bound == other.bound and equal_texts(one.number, other.number))
        or equal_texts(one.value, other.value)
        for other in values[1:]
    )
    return next((group.value for group in reversed(values) if group.unit), one.value) if alike else None


def _groups(clause: str, atoms: list[_Atom], foreign: bool) -> list[_Group]:
    """Return the values of a clause in their order: words of mathematics that follow one another."""
    groups = []
    i = -1
    while (i := i + 1) < len(atoms):
        first = i
        while atoms[first].kind != "word" and i + 1 < len(atoms) and _continues(atoms, first, i):
            i += 1
        while i > first and atoms[i].kind == "operator" and not _is_name(atoms, i, i - 1):
            i -= 1
        while first < i and atoms[first].kind == "operator" and atoms[first].text not in _SIGNS:
            if _is_name(atoms, first, first + 1):
                break
            first += 1
        while i + 2 < len(atoms) and _is_name(atoms, i + 2, i + 1):
            i += 2
        kinds = {atom.kind for atom in atoms[first : i + 1]}
        if kinds & {"value", "words"} or ({"operator", "weak"} <= kinds and i > first + 1):
            behind = [] if re.search(r"[,;:.)]", atoms[i].behind) else atoms[i + 1 : i + 6]
            unit, used = _unit([atom.text + atom.behind for atom in behind], foreign)
            groups.append(_Group(clause, atoms, first, i, unit))
            i += used
    return groups


def _is_name(atoms: list[_Atom], at: int, sign: int) -> bool:
    """Return whether a letter beside a sign of arithmetic is the name of a number, as in 18 + x."""
    letter = len(atoms[at].text) == 1 and atoms[at].text.isalpha() and atoms[at].text not in "aAI"
    return letter and atoms[sign].text in ("+", "-", "−", "*", "/", "^")


_SIGNS = ("-", "−", "<", ">", "≤", "≥", "=")


def _continues(atoms: list[_Atom], first: int, i: int) -> bool:
    """Return whether the word after `i` still belongs to the value that began at `first`."""
    here, following = atoms[i], atoms[i + 1]
    beside = not here.behind.strip(",")
    if re.search(r"[;:.]", here.behind):
        return False
    if following.text.casefold() in AND_OR:
        beyond = atoms[i + 2].kind if i + 2 < len(atoms) else "word"
        listed = here.kind != "operator" and beside and beyond in ("value", "words", "weak")
        return listed and not _is_computation(atoms, first, i)
    if following.kind == "word" or here.text.casefold() in AND_OR:
        return following.kind != "word"
    if "operator" in (here.kind, following.kind):
        return beside
    if here.behind:
        return here.behind == "," and not _is_computation(atoms, first, i)
    digits = here.text[-1:].isdigit() and following.text[:1].isdigit()
    thousands = re.fullmatch(r"\d{1,3}", here.text) and re.match(r"\d{3}(?!\d)|\d+/\d+$", following.text)
    alike = here.kind == following.kind and (here.kind == "words" or (here.kind == "value" and not digits))
    return alike or thousands is not None


def _is_computation(atoms: list[_Atom], first: int, i: int) -> bool:
    """Return whether a run is "3 + 4 = 7": an equation whose left side is numbers."""
    left, equals, _ = " ".join(atom.text for atom in atoms[first : i + 1]).partition("=")
    return equals != "" and not re.search(r"[^\W\d_]", left)


def _unit(words: list[str], foreign: bool) -> tuple[str, int]:
    """Return the unit or multiplier that words after a number begin with, and how many words it takes."""
    multiplier = words[0].rstrip(_PUNCTUATION).casefold() if words else ""
    taken = int(multiplier in _MULTIPLIERS)
    multiplier = " " + multiplier if taken else ""
    if taken and multiplier.strip() != words[0].casefold():
        return multiplier, 1
    unit, used = "", 0
    for n in range(taken + 1, min(taken + 4, len(words)) + 1):
        phrase = " ".join(words[taken:n]).rstrip(_PUNCTUATION + "*。，")
        half_day = phrase.casefold() in ("am", "pm", "a.m", "p.m")
        if half_day or (phrase.strip() == phrase != "" and _is_measure(phrase)):
            unit, used = " " + (phrase.replace(".", "") if half_day else phrase), n - taken
        if words[n - 1][-1:] in _PUNCTUATION:
            break
    name = languages.unit_name(words[taken]) if foreign and not unit and taken < len(words) else None
    return (multiplier + " " + name, taken + 1) if name else (multiplier + unit, taken + used)


_PUNCTUATION = ".,;:!?)"


def _is_measure(phrase: str) -> bool:
    if phrase.split()[-1] in ("in", "a", "is", "as", "at", "per", "of", "an"):
        return False
    try:
        return measure(phrase) is not None or _UNIT_LIKE.fullmatch(phrase) is not None
    except (ValueError, OverflowError):
        return False


_UNIT_LIKE = re.compile(
    r"(?!(?:as|at|be|by|do|go|he|if|in|is|it|me|my|no|of|on|or|so|to|up|us|we|an|am|de|en|la|le|un|et|ou"
    r"|il|el|al|da|do|em|es|di|zu|um|so|ab|im)$)"
    r"(?:[b-df-xzB-HJ-ZµμΩÅ°][A-Za-zΩ]?|[a-zµμ]{0,2}[A-ZΩÅ][a-zA-Z]{0,2}"
    r"|(?=\S*[a-zA-Z])[^\s,;]*[/²³⁻·^][^\s,;]*)"
)


_BOUND_BEFORE = re.compile(
    r"(?:\b(?:at (?:least|most)|(?:no )?(?:more|less|fewer|greater|larger|smaller|higher|lower) than|up to"
    r"|minus|negative|half(?: of)?|twice|double|triple|(?:\w+ )?root of|(?:reciprocal|opposite|inverse"
    r"|negative) of"
    r"|times"
    r"|mindestens|höchstens|au (?:moins|plus)|al menos"
    r"|como (?:máximo|mínimo)|a lo sumo|almeno|al massimo|pelo menos|no máximo|не (?:менее|более)|больше"
    r"|меньше)|至少|至多|最多|少なくとも|多くとも|적어도|على الأقل|على الأكثر)\s*$",
    re.IGNORECASE,
)
_BOUND_BEHIND = re.compile(
    r"[*)]*\s+(?:or (?:more|less|fewer|so|greater)|and (?:a half|more|up|above)|at (?:least|most)|minimum"
    r"|maximum|squared|cubed|factorial|percent of|base \d+|is (?:wrong|too|not|incorrect)"
    r"|以上|以下|이상|이하)\b",
    re.IGNORECASE,
)


_STATED_BEFORE = re.compile(
    r"\b(?:(?:ends? up|is left|are left|left|leav(?:es|ing) \w+) with"
    r"|(?:a|the|an)(?: \w+){0,2} (?:total|value|minimum|maximum|amount|length|distance|speed|area|profit"
    r"|cost|price|average|probability|score) of)\s*[$(*]*$",
    re.IGNORECASE,
)
"""What makes a value behind "with" or "of" a stated one."""


class _Group:
    """One value of a clause: its text, unit, and whether it is a step, a circumstance or denied."""

    def __init__(self, clause: str, atoms: list[_Atom], first: int, last: int, unit: str) -> None:
        self.first, self.last, self.unit = first, last, unit
        inner = atoms[first:last]
        self.text = "".join(f"{atom.text}{',' * (',' in atom.behind)} " for atom in inner) + atoms[last].text
        before, after = clause[: atoms[first].start], clause[atoms[last].end :]
        operator = atoms[first - 1].text if first and atoms[first - 1].kind == "operator" else ""
        cut = operator not in ("", "=", "≈") or self.text.count("(") != self.text.count(")")
        self.number = _result(self.text, last_side=cut)
        self.is_step = (
            self.text.startswith("=") or operator in ("=", "≈") or _is_computation(atoms, first, last)
        )
        least, more = _BOUND_BEFORE.search(before[-40:]), _BOUND_BEHIND.match(after)
        self.bound = (least[0].strip() + " " if least else "", " " + more[0].strip() if more else "")
        denial = NEGATED.search(before[-40:]) or DENIED_AFTER.match(after.lstrip(")*$ "))
        self.is_denied = denial is not None
        words = before.split()[-1:]
        self.is_adjunct = (
            words != []
            and words[0].casefold().strip("(") in ADJUNCT
            and not (words[0] in ("with", "of") and _STATED_BEFORE.search(before[-60:]))
        )

    @property
    def value(self) -> str:
        return self.bound[0] + self.number + self.unit + self.bound[1]


def _result(text: str, *, last_side: bool = False) -> str:
    """Return the last side of a computation; an equation that is read whole stays."""
    text = text.lstrip("= ") if text.startswith("=") else text
    *before, last = _EQUAL_SIGN.split(text)
    if not before:
        return number_words.numerals(text) if text[:1].isalpha() else text
    priced = re.search(r"[$€£]", text) is not None  # $15 - $9 = $6
    whole = (not priced and _reads(text)) or re.search(r"\b(?:and|or)\b|,\s", text)
    return text if whole and not last_side else last.strip() or text


_EQUAL_SIGN = re.compile(r"[=≈]|\\approx")


def _merge_compounds(groups: list[_Group], atoms: list[_Atom]) -> list[_Group]:
    """Join "2 hours and 15 minutes" to one value."""
    merged = groups[:1]
    for group in groups[1:]:
        before = merged[-1]
        between = [atom.text.casefold() for atom in atoms[before.last + 1 : group.first]]
        names = " ".join(word for word in between if word not in ("and", "und", "et", "y", "e"))
        large, small = measure(before.unit.strip()), measure(group.unit.strip())
        follows = (
            large is not None
            and small is not None
            and large.powers == small.powers
            and large.size > small.size
        )
        if follows and not group.is_step and names == before.unit.strip().casefold():
            before.number = f"{before.number}{before.unit} {group.number}"
            before.unit, before.last = group.unit, group.last
        else:
            merged.append(group)
    return merged
