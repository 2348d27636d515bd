r"""Parse answers from model text: thinking, ``\boxed{}``, ``<tag>`` and code fences, one parser each.

Model output can be anything: every parser is linear in the length of the text and never raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

_BOX_TOKEN = re.compile(r"\\boxed\s*\{|(?<!\\)\\++[{}]|[{}]")  # a run of backslashes is walked once
_THINKING_END = r"</(?:think|thinking|thought|reasoning)>|<\|end_of_thought\|>|◁/think▷"
_THINKING = re.compile(  # the group is the end of thinking
    rf"({_THINKING_END})|<(?:think|thinking|thought|reasoning)>|<\|begin_of_thought\|>|◁think▷",
    re.IGNORECASE,
)
_INVISIBLE = re.compile(  # Unicode's category Cf, but for what is shown
    "[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb]"
)
_FENCE = re.compile(  # at the beginning of a line, or right behind thinking
    rf"^(?:.*(?:{_THINKING_END}))?([ \t]*)(`{{3,}}|~{{3,}})[ \t]*([\w+#.-]*)[^\n]*$",
    re.MULTILINE | re.IGNORECASE,
)

STYLE = (
    "text|mathrm|textbf|mathbf|textit|mathit|mbox|operatorname|rm|bf|textrm|mathsf|boldsymbol|texttt|mathtt"
    "|textsf|emph|textnormal|mathnormal|textup|textsl|textsc"
)
"""Commands that lay their argument out, as a pattern."""
STYLES = frozenset(STYLE.split("|"))
_INSIDE = r"\s*\{((?:[^{}]|\{[^{}]*\})*)\}"
STYLED = re.compile(rf"\\(?:{STYLE})(?![a-zA-Z]){_INSIDE}")
SWITCH = (
    "bf|it|tt|sf|sc|sl|em|rm|bfseries|itshape|ttfamily|sffamily|rmfamily|normalfont|tiny|small|normalsize"
    "|large|Large|LARGE|huge|Huge"
)
"""Commands that lay out what stands behind them in the same braces, as a pattern."""
_COLOUR = r"\\(?:text)?color\s*\{[a-zA-Z]+\}"
_DECORATION = (
    (re.compile(rf"\{{\s*\\(?:{SWITCH})(?![a-zA-Z])\s*((?:[^{{}}]|\{{[^{{}}]*\}})*)\}}"), r"\1"),
    (re.compile(rf"(?:{_COLOUR}|\\(?:underline|fbox|bm|pmb)(?![a-zA-Z])){_INSIDE}"), r"\1"),
    (re.compile(rf"{_COLOUR}|\\(?:{SWITCH})(?![a-zA-Z])\s?"), ""),
    (re.compile(r"\A\s*\$\$([^$]+)\$\$\s*\.?\s*\Z"), r"\1"),
    (re.compile(r"(?s)\A\s*\\([(\[])((?:(?!\\[()\[\]]).)+)\\[)\]]\s*\.?\s*\Z"), r"\2"),
)
APART_SIGN = re.compile(  # a number's, and what parts it from the number; no difference, range or dash
    r"[-−–‐‑](?<![^\s:=<>≤≥≈~(\[{,$*^\"'“‘].)"
    r"(?:(?<=[-−])(?=(?:US)?\\?[$€£¥₹]?\.?\d)|(?<![\d)\]}!π%]\s.)(?<!\b[B-HJ-Zb-z]\s.)(?!(?<=\w\s.)\s)"
    r"(?:\s|~|\\[ ,;:!]|\\left(?=\()|[({](?=[^(){}+−-]*[)}]))*)(?P<money>(?:US)?\\?[$€£¥₹]\s?)?(?=\.?\d)"
)
_WIDE = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_LAYOUT = (
    (re.compile(r"\\(?:[ ,;:>]|q?quad(?![a-zA-Z]))"), " "),
    (re.compile(r"\\(?:display|text|script)style(?![a-zA-Z])"), ""),
    (re.compile(r"\\!|\\(?:left|right)(?=\s*\\?[()\[\]{}])"), ""),
    (re.compile(r"\\(?:long)?(?:to|rightarrow)(?![a-zA-Z])|→"), "->"),
    (re.compile(r"\\times(?![a-zA-Z])"), "×"),
    (re.compile(r"(?<=\d)\s?(?:\^\s?(?:\\circ|\{\s?\\circ\s?\})|°)(?!\s*\w)"), ""),
    (re.compile(r"(?<![^-$])\\[dt]?frac\s?\{(\d+)\}\s?\{(\d+)\}(?=[.$]*\Z)"), r"\1/\2"),  # no part of 2½
    (re.compile(r"\\([{}_%#&$])"), r"\1"),
)
_ENCLOSED = re.compile(  # in emphasis or one pair of brackets
    r"(\*{1,3}|_{1,3})([^*_]+)\1|\(([^()]+)\)|\[([^\[\]]+)\]|\{([^{}]+)\}"
)
_QUOTES = dict(zip("\"'`$“‘", "\"'`$”’", strict=True))


def drop_thinking(text: str) -> str:
    r"""Return a reply without its thinking: what stands behind the last ``</think>``.

    The prompt may have opened the tag. Nothing is left of thinking that breaks off, unless it ends with a
    box. The tags ``thinking``, ``thought`` and ``reasoning`` and the signs of other models count too.

    >>> drop_thinking("Is it 7?</think> It is 8."), drop_thinking("<think>Is it 7? Let me")
    (' It is 8.', '')
    """
    if "<" not in text and "◁" not in text:
        return text
    reply = text[max((end for _, end in find_thinking(text)), default=0) :]
    begun = _THINKING.search(reply)
    if not begun or begun.start() >= 20:
        return reply
    plain = reply.rstrip(" \t\r\n.$*)]\\")  # what may close a formula or a sentence
    *_, (box, end, _) = (-1, -1, True), *_closed_braces(plain)
    return reply if box >= 0 and end == len(plain) - 1 else ""


def drop_closed_thinking(text: str) -> str:
    """Return a text without its closed thinking, so that drafts in it are no calls, actions or submissions.

    >>> drop_closed_thinking("<think>click(1)?</think>click(2)"), drop_closed_thinking("<think>So click(1)")
    ('click(2)', '<think>So click(1)')
    """
    parts, last = [], 0
    for start, end in find_thinking(text):
        parts.append(text[last:start])
        last = end
    return "".join([*parts, text[last:]])


def drop_all_thinking(text: str) -> str:
    """Return what others may read of a reply: nothing of its thinking, even where that breaks off.

    >>> drop_all_thinking("Hello! <think>Hm.</think>How are you?<think>My secret")
    'Hello! How are you?'
    """
    return _THINKING.split(drop_closed_thinking(text), maxsplit=1)[0]


def find_thinking(text: str, calls: Sequence[tuple[int, int, Any, str]] = ()) -> Iterator[tuple[int, int]]:
    """Yield start and end of each closed part that is thinking.

    An end without an opening tag closes one that the prompt opened: its part began with the text, or where
    the part before it ended. Tags in the argument of a call are text; `calls` have start and end in front,
    and are in order of their starts.
    """
    begun = at = reached = 0
    opened = False
    for tag in _THINKING.finditer(text):
        while at < len(calls) and calls[at][0] < tag.start():
            reached = max(reached, calls[at][1])
            at += 1
        outside = tag.start() >= reached
        if tag[1] and (opened or outside):
            yield begun, tag.end()
            begun, opened = tag.end(), False
        elif not tag[1] and not opened and outside:
            begun, opened = tag.start(), True


def drop_invisible(text: str) -> str:
    r"""Return a text without characters that only format it: soft hyphens, zero-width spaces, directions.

    >>> drop_invisible("\u200bPa\u00adris")
    'Paris'
    """
    return text if text.isascii() else _INVISIBLE.sub("", text)


def boxed(text: str) -> str | None:
    r"""Return the content of the last closed ``\boxed{...}`` of a reply, or None; see `drop_thinking`.

    Braces are matched, escaped braces (``\{``) are text, and an unclosed box is ignored. Of nested
    boxes, the last innermost one counts. A doubled backslash before ``boxed`` is accepted.

    >>> boxed(r"first \boxed{1}, then \boxed{\frac{1}{2}} and \boxed{unclosed")
    '\\frac{1}{2}'
    """
    text = drop_thinking(text)
    _, box, tail = text.rpartition("\\boxed{")
    inside, closed, after = tail.partition("}")
    if box and closed and "{" not in inside and "\\" not in inside and "\\boxed" not in after:
        return inside.strip()  # the common case: the last box is a plain one, no braces inside
    if "\\boxed" not in text:
        return None
    best_start, best_end = -1, -1
    for start, end, _ in _closed_braces(text):
        if start > best_start:
            best_start, best_end = start, end
    return text[best_start:best_end].strip() if best_start >= 0 else None


def strip_styles(text: str, between: str = "") -> str:
    r"""Return a text with the contents of its styles, such as \text{}, instead of them.

    Args:
        text: mathematics or words.
        between: what is written on both sides of a content.
    """
    inside = STYLED.sub(rf"{between}\1{between}", text) if "\\" in text else text
    return STYLED.sub(rf"{between}\1{between}", inside) if "\\" in inside else inside  # a style in a style


def strip_decoration(text: str) -> str:
    r"""Return a text without styles, colours, sizes, and what encloses a formula that is all of it.

    >>> strip_decoration(r"\underline{up}"), strip_decoration(r"{\bf up}"), strip_decoration(r"\(up\)")
    ('up', 'up', 'up')
    """
    text = strip_styles(text)
    if "\\" in text or "$$" in text:
        for pattern, plain in _DECORATION:
            text = pattern.sub(plain, text)
    return text


def strip_markup(text: str) -> str:
    r"""Return the content of a box as plain text, without what LaTeX and quotation only lay out.

    These are styles, spaces, arrows, escaped signs, a fraction of numerals, degrees, invisible and wide
    characters, quotes or ``$`` around the whole, and a full stop behind it.

    >>> strip_markup(r"\text{right}"), strip_markup(r"C \to A"), strip_markup(r"\{1\}.")
    ('right', 'C -> A', '{1}')
    """
    text = strip_decoration(drop_invisible(text).translate(_WIDE))
    for pattern, plain in _LAYOUT:
        text = pattern.sub(plain, text)
    for _ in range(2):
        text = text.strip()
        if text.endswith(".") and not text.endswith(".."):
            text = text[:-1].rstrip()
        first, inside, last = text[:1], text[1:-1], text[-1:]
        if inside and _QUOTES.get(first) == last and first not in inside and last not in inside:
            text = inside
    return text.strip()


def drop_enclosure(text: str) -> str:
    """Return a text without the emphasis and the brackets around the whole, at most two pairs.

    >>> drop_enclosure("**[up]**"), drop_enclosure("(1, 2) (3, 4)")
    ('up', '(1, 2) (3, 4)')
    """
    for _ in range(2):
        if pair := _ENCLOSED.fullmatch(text):
            text = pair[pair.lastindex or 0].strip()
    return text


def read_box(text: str) -> Iterator[str]:
    """Yield what the last box of a reply may say: its content, its plain text, that without an enclosure.

    A reader takes the first that it can read, so that markup does not decide. None comes twice.
    """
    inside = boxed(text)
    if inside is None:
        return
    yield inside
    plain = strip_markup(inside)
    if plain != inside:
        yield plain
    bare = strip_markup(drop_enclosure(plain))
    if bare not in (inside, plain):
        yield bare


def ends_box(text: str) -> bool:
    r"""Return whether a text ends with the brace that closes its box, or with one that closes nothing.

    Braces are read as boxed() reads them. A box within other braces, as in JSON, ends nothing.

    >>> ends_box(r"{1} or \boxed{\frac{1}{2}}")
    True
    >>> any(ends_box(text) for text in (r"\boxed{\frac{1}", r"\boxed{\}", "{1}"))
    False
    """
    *_, (start, end, is_open) = (-1, -1, True), *_closed_braces(text)
    return start != -1 and end == len(text) - 1 and not is_open


def _closed_braces(text: str) -> Iterator[tuple[int, int, bool]]:
    """Yield for each closing brace: where its box's content begins, where that ends, and whether one is open.

    It begins at -1 where the brace closes what is no box, and at -2 where it closes nothing.
    """
    openers: list[int] = []
    for token in _BOX_TOKEN.finditer(text):
        kind = token.group()
        if kind.startswith("\\boxed"):
            openers.append(token.end())
        elif kind == "{":
            openers.append(-1)
        elif kind == "}":
            start = openers.pop() if openers else -2
            yield start, token.start(), bool(openers)


def tagged(text: str, tag: str) -> str | None:
    """Return the content of the last closed ``<tag>...</tag>`` of any text, or None.

    >>> tagged("<answer>a</answer> no: <answer> b </answer>", "answer")
    'b'
    """
    end = text.rfind(f"</{tag}>")
    start = text.rfind(f"<{tag}>", 0, end) if end >= 0 else -1
    return text[start + len(tag) + 2 : end].strip() if start >= 0 else None


def boxed_or_tagged(text: str) -> str | None:
    r"""Return what a reply has in its last ``\boxed{}``, else in its last ``<answer>``, else None."""
    inside = boxed(text)
    return tagged(drop_thinking(text), "answer") if inside is None else inside


def code(text: str, language: str | None = None) -> str | None:
    """Return the last closed fenced code block, or None.

    With `language`, only fences with that label count; aliases are accepted (``py`` is ``python``).
    The block keeps its indentation beyond that of its fence.
    """
    block: str | None = None
    for _, _, label, body in fences(text):
        if language is None or label == _language(language):
            block = body.rstrip("\n")
    return block


def fences(text: str) -> Iterator[tuple[int, int, str, str]]:
    """Yield start, end, language and content of each closed fenced block.

    A block ends at its closing fence: text after that on the same line is outside. As in CommonMark, a line
    indented by four or more columns beyond the opening fence is content, as in a docstring's example. Where
    no other fence closes the block, the last of these does, if it is none of a pair.
    """
    opened: re.Match[str] | None = None
    deep: list[re.Match[str]] = []
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened, deep = fence, []
        elif _column(fence) > _column(opened) + 3:
            deep.append(fence)
        elif _closes(fence, opened):
            yield _read_block(text, opened, fence)
            opened = None
        elif fence[2].startswith(opened[2]):  # its label says: the block before broke off, as in thinking
            yield from _close_deep(text, opened, deep)
            opened, deep = fence, []
    if opened is not None:
        yield from _close_deep(text, opened, deep)


def _column(fence: re.Match[str]) -> int:
    return len(fence[1].expandtabs(4))


def _closes(fence: re.Match[str], opened: re.Match[str]) -> bool:
    return fence[2].startswith(opened[2]) and not fence[3]


def _close_deep(
    text: str, opened: re.Match[str], deep: list[re.Match[str]]
) -> Iterator[tuple[int, int, str, str]]:
    if len(deep) % 2 and _closes(deep[-1], opened):
        yield _read_block(text, opened, deep[-1])


def _read_block(text: str, opened: re.Match[str], closing: re.Match[str]) -> tuple[int, int, str, str]:
    body = text[opened.end() + 1 : closing.start()]
    if opened[1] and body.lstrip("\n").startswith(opened[1]):  # a list's indentation, not the block's
        body = re.sub(rf"^[ \t]{{1,{len(opened[1])}}}", "", body, flags=re.MULTILINE)
    return opened.start(1), closing.end(2), _language(opened[3]), body


def _language(label: str) -> str:
    label = label.lower()
    return {"py": "python", "python3": "python", "sh": "bash", "shell": "bash"}.get(label, label)
