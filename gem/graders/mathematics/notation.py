r"""The notation of answers: a text as models write it in, the same text in one plain notation out.

Styles, markup, delimiters, currencies, phrases, domains and special numbers are each one rule of a table.
`prepare_text` gives what is compared, `rewrite_numbers` what `gem.graders.mathematics.latex` reads.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from gem.graders.mathematics import number_words
from gem.graders.mathematics.nouns import is_unit_or_noun
from gem.parsing import STYLE, SWITCH, strip_styles

Rule = tuple[str, re.Pattern[str], str | Callable[[re.Match[str]], str]]
"""What a text must contain, the pattern, and what is written instead."""


class Unread(Exception):
    """The text is not in this grammar; `hopeless` if no other parser should try it either."""

    def __init__(self, why: str, hopeless: bool = False) -> None:
        super().__init__(why)
        self.hopeless = hopeless


def make_rules(*rows: tuple[str, str, str | Callable[[re.Match[str]], str]]) -> list[Rule]:
    """Return rules from rows of a mark, a pattern and what is written instead."""
    return [(mark, re.compile(pattern), plain) for mark, pattern, plain in rows]


def apply_rules(rules: list[Rule], text: str) -> str:
    """Return a text after each rule whose mark it contains, one after the other."""
    for mark, pattern, plain in rules:
        if mark in text:
            text = pattern.sub(plain, text)
    return text


def strip_to_words(text: str) -> str:
    """Return a text without styles and with single spaces, as a sentence is read."""
    return " ".join(strip_styles(text, " ").split())


# -- layout

_CHARACTERS = str.maketrans(
    {
        "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "×": r"\times ", "÷": r"\div ",
        "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ", "∗": "*", "≤": r"\le ", "≥": r"\ge ",
        "⩽": r"\le ", "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "π": r"\pi ", "√": r"\sqrt ",
        "∞": r"\infty ", "∪": r"\cup ", "∈": r"\in ", "∖": r"\setminus ", "°": r"^{\circ}", "º": r"^{\circ}",
        "ℝ": r"\mathbb{R}", "∅": r"\emptyset ", "±": r"\pm ", "∓": r"\mp ", "²": "^{2}", "³": "^{3}",
        "⁴": "^{4}", "⁵": "^{5}", "⁶": "^{6}", "⁷": "^{7}", "⁸": "^{8}", "⁹": "^{9}", "¹": "^{1}",
        "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "⁰": "^{0}", "∛": r"\sqrt[3]", "⟨": r"\langle ",
        "⟩": r"\rangle ", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ",
        "⌉": r"\rceil ", "ⁿ": "^{n}", "∧": r"\wedge ", "∨": r"\vee ",
        "¬": r"\neg ", "∩": r"\cap ", "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ",
        "θ": r"\theta ", "λ": r"\lambda ", "μ": r"\mu ", "½": r"\frac{1}{2}", "¼": r"\frac{1}{4}",
        "¾": r"\frac{3}{4}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "\u2009": " ", "\u00a0": " ",
        "\u202f": " ", "¢": " cents ", "″": " arcseconds ", "≡": r"\equiv ",
        "’": "'", "‘": "'", "“": '"', "”": '"', "\t": " ", "\n": " ", "\r": " ",
    }
)  # fmt: skip
_RAISED = re.compile("[⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹ⁿ]{2,}|⁻")
_LOWERED = re.compile("[₀₁₂₃₄₅₆₇₈₉]+")
# a root sign over all the digits behind it, which NFKC and LaTeX would divide
_ROOT = re.compile(r"([√∛])\s*(\d+(?:\.\d+)?)")
_NO_MEANING = re.compile(
    r"\\(?:(?:left|right)(?![a-zA-Z])\s*\.?|[hv]space\{[^{}]*\}|phantom\{[^{}]*\}|[,;:>!\s]"
    r"|(?:text)?color\s*\{[a-zA-Z]+\}"
    rf"|(?:middle|[bB]igg?[lrm]?|{SWITCH}|displaystyle|textstyle|scriptstyle|limits|nolimits|quad|qquad|thinspace)(?![a-zA-Z]))"
)
_SPACES = re.compile(r"\s+")
_THIN_COMMA = re.compile(r"\s*\{\s*,\s*\}\s*|,\s*\\!\s*")
_SIGNS = {
    "\\$": "dollars", "$": "dollars", "€": "euros", "£": "sterling", "¥": "yen", "₹": "rupees",
    "Rs": "rupees", "Rs.": "rupees", "USD": "dollars", "EUR": "euros", "GBP": "sterling",
}  # fmt: skip
_DELIMITERS = re.compile(r"\\[$()\[\]]|[$€£¥₹₽₩₪₫฿]|\b(?:USD|EUR|GBP)\b|\bRs\.?(?= ?\d)")
"""What encloses a formula, and signs of currencies, which also do."""
_PRICE = re.compile(
    r"(\\\$|[$€£¥₹]|\b(?:USD|EUR|GBP|Rs\.?)) ?"
    r"(-?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?: (?:thousand|million|billion|trillion)\b)?)"
    r"(?=[\s.$)\\\]]*(?:$|(?:per|each|for|a|an|in total|and|or)\b|,\s|/\s?[a-z]))"
)
_ROW_END = re.compile(r"\\\\(?:\s*\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm)\s*\])?")
_DOUBLED = re.compile(r"\\\\(?=[a-zA-Z{}()\[\]%$,;!])")


_NAMED_MONEY = re.compile("USD|Rs|EUR|GBP")


def normalise_text(text: str) -> str:
    """Return `text` without decoration: delimiters, spacing and variants of style."""
    if not text.isascii():
        text = _RAISED.sub(lambda m: "^{" + unicodedata.normalize("NFKC", m[0]) + "}", text)
        text = _LOWERED.sub(lambda m: "_{" + unicodedata.normalize("NFKC", m[0]) + "}", text)
        text = unicodedata.normalize("NFKC", _ROOT.sub(r"\1{\2}", text).translate(_CHARACTERS))
        text = text.translate(_CHARACTERS).replace("⁄", "/")
    text = "".join(c if c >= " " else " " for c in text) if not text.isprintable() else text
    if "\\\\" in text:  # the end of a row, or doubled by an escape too many
        text = text if "\\begin" in text else _DOUBLED.sub(r"\\", text)
        text = _ROW_END.sub(r"\\cr ", text)
    if "," in text:
        text = _THIN_COMMA.sub(",", _SPACES.sub(" ", text))
    foreign = not text.isascii()
    dollars = text.count("$")
    priced = foreign or (dollars and (dollars % 2 or "\\$" in text)) or _NAMED_MONEY.search(text)
    text = _NO_MEANING.sub(" ", text) if "\\" in text else text
    if priced:
        text = _PRICE.sub(lambda m: f"{m[2]} \\text{{ {_SIGNS[m[1]]}}} ", text)
    if "\\" in text or dollars or foreign:
        text = _DELIMITERS.sub(" ", text)
    if "~" in text and "~~" not in text and not text.lstrip().startswith("~"):  # but ~~struck out~~, ~p
        text = text.replace("~", " ")
    return _without_ending(_SPACES.sub(" ", text.replace("**", "^")).strip())


def _without_ending(text: str) -> str:
    """Return `text` without the punctuation at its end, except an ellipsis."""
    end = len(text)
    while end:
        if text[end - 1] in " ,;:" or (text[end - 1] == "." and text[end - 2 : end - 1] != "."):
            end -= 1
        elif text.endswith("\\cr", 0, end):
            end -= 3
        else:
            break
    return text[:end]


def _join_lines(block: re.Match[str]) -> str:
    """Return the lines of aligned formulas as a list."""
    lines = (line.replace("&", " ").strip(" ,;") for line in block[2].replace("\\cr", "\\\\").split("\\\\"))
    return ", ".join(line for line in lines if line)


def _write_onwards(match: re.Match[str]) -> str:
    r"""Write n \in {3, 4, 5, ...} as an inequality."""
    first, *others = (int(digits) for digits in match.groups()[1:] if digits)
    follows = others == list(range(first + 1, first + 1 + len(others)))
    return f"{match[1]} \\ge {first}" if follows else match[0]


_SET = r"\s*\\in\s*\\mathbb\s*\{?\s*"
_SAYINGS = {
    "reals": r"\mathbb{R}", "empty": r"\emptyset", "undefined": "does not exist", "endless": "infinitely many"
}  # fmt: skip
_LAYOUT = make_rules(
    *((mark, r"\A\s*(\*\*|__|`{1,3})([^*`]+)\1[\s.]*\Z", r"\2") for mark in ("**", "__", "`")),
    (
        "\\begin",
        r"(?s)\\begin\s*\{(aligned|align\*?|gather(?:ed|\*)?|split|cases|eqnarray\*?)\}((?:(?!\\begin).)*?)\\end\s*\{\1\}",
        _join_lines,
    ),
    # space between two numbers of a list; before three digits it may be that of thousands
    (
        "\\",
        r"(?<=\d)\s*\\(?:q?quad(?![a-zA-Z])|\s)\s*(?=-?\d+(?![\d/]|\s*\\?(?:text|math)))(?!\d{3}(?!\d))",
        ", ",
    ),
)
_NEXT_EQUATION = re.compile(
    r"(?:(?<![,;&({\[])(?:\s*(?:\\q?quad(?![a-zA-Z])|\n|\\\\(?!\[))\s*)+|(?<=[\d})]) +)"
    r"(?=[a-zA-Z](?:_\w|_\{\w+\}|\([a-z]\))?\s*=(?!=))"
)
"""What stands between two equations of a list: space, or a new line."""
_FOR_ALL = (
    r",?\s*(?:(?:\\text\s*\{\s*)?\bfor (?:all|every|each|any)"
    r"(?: (?:real|positive|natural|integers?|numbers?))*\s*\}?|\\forall(?![a-zA-Z]))"
    r"\s*\$?[a-zA-Z](?:\s*,\s*[a-zA-Z])*(?![a-zA-Z])(?:\s*(?:\\in|>|\\ge)\s*[^,;]{1,30}(?=$|[,;]))?"
)
"""The names of a function's arguments, which say nothing about its values."""
_SCALED = (
    r"(?i)(?P<number>\d+(?:\.\d+)?)(?:\s+|\s*(?P<between>\\text\s*\{)\s*)"
    r"(?P<scale>thousand|million|billion|trillion)\b"
)
_DOMAIN = (
    r"\A(\s*[a-zA-Z]\s*\(\s*([a-z])\s*\)\s*=.*(?<=[\w)}]))\s*(?:,\s*(?:\\text\s*\{\s*(?:where|with|for)?\s*\}\s*)?\2"
    + _SET
    + r"[RQZN]\s*\}?(?:\s*\^\s*\{?\s*[+*]\s*\}?|_\{?\s*>\s*0\s*\}?)?|\(\s*\2\s*(?:>|\\ge)\s*\d+\s*\))\s*\Z"
)
# a letter that is said to be any integer or real number
_ANY_NUMBER = (
    r"\A(?!.*(?:\(\s*[a-z]\s*\)|\b(?:positive|natural|non|negative|prime|even|odd)))(.+?)\s*[,;]?\s*\(?"
    r"\s*(?:\\text\s*\{)?\s*(?:,\s*)?(?:(?:where|with|and|for) )?(?:(?:any|all|every|each|some) )?"
    r"(?:(integer|real)s?(?: numbers?)?\s*\}?\s*(?<![a-zA-Z])([a-z])(?![a-z])"
    r"|\}?\s*(?<![a-zA-Z\\])([a-z])(?![a-z])\s*(?:\\text\s*\{)?\s*(?:(?:is|being|are|can be) )?"
    r"(?:(?:an|any|a|some) )?(?:arbitrary )?(integer|real)(?: numbers?| parameter)?)\s*\}?\s*\)?\Z"
)
_PHRASES = make_rules(
    *(
        (
            mark,
            _ANY_NUMBER,
            lambda m: rf"{m[1]}, {m[3] or m[4]} \in \mathbb{{{'ZR'[(m[2] or m[5]) == 'real']}}}",
        )
        for mark in ("integer", "real")
    ),
    # the points of a set that a parameter describes
    (
        "\\in",
        r"\A\\\{\s*(\(.*\))\s*(?:\||:|\\mid(?![a-zA-Z]))\s*([a-z]\s*\\in\s*\\mathbb\s*\{?\s*[RZ]\s*\}?)\s*\\\}\Z",
        r"\1, \2",
    ),
    # what is said of a set or an equation before it, or of a value behind it
    (
        "\\text",
        r"\A\s*\\text(?:bf)?\s*\{\s*(?:the )?(?!(?i:not|no|never|half|twice|double|option|choice|at|over"
        r"|under|more|less|up)\b)[A-Za-z]{2,}(?: [A-Za-z]+)?\s*:\s*\}\s*(?=[^:]+\Z)",
        "",
    ),
    (
        "only",
        r"(?<=[\d})])\s*\\text\s*\{\s*\(?(?:the )?only (?:real |possible )?(?:solution|root|value)\)?\s*\}\Z",
        "",
    ),
    ("\\checkmark", r"(?<=[\d})])\s*\\checkmark\Z", ""),
    ("^", r"(\([^()]*,[^()]*\))\s*\^\s*\{?\s*(?:T|\\top(?![a-z]))\s*\}?\Z", r"\1"),
    # a value said again as a decimal
    ("approx", r"(?<=.)\s*\(\s*\\approx\s*([\d.]+\s*(?:\\?%)?)\s*\)\Z", r" \\approx \1"),
    ("\\text", r"\A\s*\\text\s*\{\s*(?:the )?(?:line|plane|circle|parabola)\s*\}\s*(?=[^=]+=[^=]+\Z)", ""),
    (":", r"\A(?:\\ell|[lLC])(?:_\w)?\s*:\s*(?=[^=:]+=[^=:]+\Z)", ""),
    ("\\times", r"(?<=[\d})])\\times\Z", ""),  # 8 times as much; "8 \times" breaks off
    # the name of a vector
    ("\\", r"\A\\(?:vec|hat|overrightarrow|bm)\s*\{?\s*([A-Za-z]{1,2})\s*\}?\s*=(?=[^=]+\Z)", r"\1 ="),
    ("!=", r"(?<=\d)!=(?=\s*\d)", "! ="),
    *(
        (mark, rf"\A\\(?:{STYLE}|underline)(?![a-zA-Z])\s*\{{\s*([^{{}}]*\d[^{{}}]*?)\s*\}}\Z", r"\1")
        for mark in ("\\text", "\\math", "\\underline", "\\emph")
    ),
    # what says that constants are any numbers
    (
        "\\in",
        r"(?<=.)\s*(?:,|\bwhere\b|(?<=\))|\()\s*(?:\\text\s*\{\s*)?(?:(?:where|with|for)?\s*\}?\s*)?[A-Za-z](?:_\w)?(?:\s*,\s*[A-Za-z](?:_\w)?)*"
        + _SET
        + r"R\s*\}?\s*(?:\\text\s*\{\s*)?(?:arbitrary|constants?)?\s*\}?\s*\)?\Z",
        "",
    ),
    ("for ", _FOR_ALL, " "),
    ("\\forall", _FOR_ALL, " "),
    # a constant function
    ("\\equiv", r"\A([fghFG]) ?\\equiv ?(?!.*mod)(?=.)", r"\1(x) = "),
    # the domain of a function's argument, behind its formula
    *((mark, _DOMAIN, r"\1") for mark in ("\\in", ">", "\\ge")),
    # that of an integer, behind its inequality or before it
    (
        "\\in",
        r"\A(([i-n]).*(?<=\d))\s*,\s*(?:\\text\s*\{\s*(?:where|with)?\s*\}\s*)?\2"
        + _SET
        + r"[ZN]\s*\}?\s*\Z",
        r"\1",
    ),
    (
        "er",
        r"\A(?:\\text\s*\{\s*)?(?:all|any|every|each)\s+(?:positive\s+|natural\s+)?(?:integers?|numbers?)(?:\s+of)?\s*\}?\s*"
        r"(?:\$?[i-n]\$?\s+with\s+)?\$?(?=[i-n]\s*(?:\\ge|\\le|<|>)\s*-?\d)",
        "",
    ),
    (
        "\\in",
        r"\A([i-n])\s*\\in\s*\\?\{\s*(\d+)\s*,\s*(\d+)\s*,\s*(?:(\d+)\s*,\s*)?(?:\\[lc]?dots|\.\.\.)\s*\\?\}\Z",
        _write_onwards,
    ),
    *(
        (mark, r"\\(?:text|mathrm|textbf)\s*\{\s*([A-Z](?:\s*,\s*[A-Z])+)\s*\}", r"\1")
        for mark in ("\\text", "\\mathrm")
    ),
    (
        "",
        r"(?i)\A(?:\\[a-z]+\s*\{)?\s*(?:(?P<reals>(?:all |any |every |the )*(?:reals|real numbers?))"
        r"|(?P<empty>(?:there (?:is|are) )?no (?:real )?(?:solutions?|roots?)(?: exists?)?"
        r"|(?:the )?empty set|none)"
        r"|(?P<undefined>dne|(?:the )?(?:limit )?does(?: not|n't) exist)"
        r"|(?P<endless>(?:there are )?(?:infinitely many|an infinite number of)(?: solutions?)?))\s*\}?\Z",
        lambda m: _SAYINGS[str(m.lastgroup)],
    ),
    *((mark, r"\A(\d+)\s*(?:to|\\text\s*\{\s*to\s*\})\s*(\d+)\Z", r"\1:\2") for mark in (" to ", "{to")),
    # what joins two values in another language
    *(
        (
            word,
            rf"(?<=[\d)\]}}])\s*\\(?:text|mathrm)\s*\{{\s{'+*'[word > 'z']}{word}\s{'+*'[word > 'z']}\}}"
            r"(?=\s*[-+\\\d(\[a-zA-Z])",
            rf" \\text{{ {plain} }}",
        )
        for plain, words in (("and", "和 与 y et und и e"), ("or", "或 oder ou o или"))
        for word in words.split()
    ),
    ("illion", _SCALED, number_words.write_out_scale),
    ("housand", _SCALED, number_words.write_out_scale),
    (":", r"(\d:\d\d)\s*([apAP])\.?\s?[mM]\b\.?", r"\1 \2m"),
    *((ending, rf"\b(\d+){ending}\b", r"\1") for ending in ("st", "nd", "rd", "th")),
)


@lru_cache(maxsize=2048)
def prepare_text(text: str) -> str:
    """Return a text as it is read: without emphasis, with phrases, clocks and lists as mathematics."""
    text = apply_rules(_LAYOUT, text)
    text = _NEXT_EQUATION.sub(", ", text) if text.count("=") > 1 else text
    return apply_rules(_PHRASES, normalise_text(text)).strip(" ,")


INLINE = re.compile(r"\$\$?([^$]+)\$|\\[(\[](.+?)\\[)\]]")
"""A formula between its marks in a text."""


def canonical(text: str) -> str:
    """Return a text with one notation for fractions, products and powers."""
    text = re.sub(r"\\[dt](?=frac|binom)", r"\\", text)
    text = re.sub(r"\\(?:cdot|times)(?![a-zA-Z])|[×·]", "*", text)
    text = re.sub(r"\\b?(?=(?:mod|gcd|lcm|min|max)(?![a-zA-Z]))", "", text)
    return re.sub(r"\{\s*(\w)\s*\}", r"\1", re.sub(r"\^\s*\{\s*(\w+)\s*\}", r"^\1", text))


# -- numbers

_FUNCTIONS = (
    "sin cos tan cot sec csc arcsin arccos arctan arccot sinh cosh tanh log ln log10 exp sqrt cbrt abs floor "
    "ceil gcd lcm max min"
)
FUNCTIONS = frozenset(_FUNCTIONS.split())
_PERIOD = r"(?:\\(?:overline|bar|dot)\s*(?:\{\s*(\d{1,30})\s*\}|(\d))|\((\d{1,30})\)(?!\d))"


def _write_decimal(match: re.Match[str]) -> str:
    """Write a number with letters for digits, such as BEE_{16}, in decimal digits."""
    try:
        return f"({int(match[1], int(match[2] or match[3]))})"
    except ValueError:
        raise Unread("digits that the base does not have") from None


def _quotient(match: re.Match[str]) -> str:
    r"""Write dy/dx as one symbol, because it is not a quotient of products."""
    order = re.sub(r"\D", "", match["order"] or "")
    sign = "d" if match["y"] else match["sign"].strip("\\")[0]
    return rf" D_{{{sign}{order} {match['top'] or match['y']} by {match['below'] or match['x']}}} "


def _scientific(match: re.Match[str]) -> str:
    mantissa, letter, power = match.groups()
    if letter == "e" and not power[0].isdigit() and "." not in mantissa and mantissa != "1":
        return match[0]  # 2e-1 is an expression of e
    return f"{mantissa}*10^{{{power}}}"


def _periodic(whole: str, decimals: str, period: str) -> str:
    r"""Return the fraction of a repeating decimal: 0, 1, 6 is \frac{1}{6}."""
    value = Fraction(int(whole + decimals or "0")) + Fraction(int(period), 10 ** len(period) - 1)
    value /= 10 ** len(decimals)
    return str(value) if value.denominator == 1 else f"({value})"


def _expand_mixed_number(match: re.Match[str]) -> str:
    whole, top, below = match.groups()
    return f"({whole}+{top}/{below})" if int(top[:20]) < int(below[:20]) else match[0]


def _join_thousands(match: re.Match[str]) -> str:
    """Join groups of thousands, except in brackets, where they are a tuple of integers."""
    before = match.string[: match.start()].rstrip(" +-")
    after = match.string[match.end() :].lstrip()
    inside = before.endswith(("(", "[", "{", ",")) or after.startswith((")", "]", "}", ","))
    listed = inside and before and after and ",0" not in match[2]
    return match[0] if listed else match[0].replace(",", "")


def _wrap_words(match: re.Match[str]) -> str:
    """Write the words after a number as text, because short ones would be read as products of letters."""
    number, words, brackets = match.groups()
    if brackets is None:
        return rf"{number} \text{{{words}}}" if _are_words(words) else match[0]
    return rf"{number} (\text{{{brackets}}})"


def _are_words(words: str) -> bool:
    """Return whether words are not products of letters: known words, or a long one that is not a function."""
    return is_unit_or_noun(words) or any(
        len(word) > 3 and word.lower() not in FUNCTIONS for word in words.split()
    )


_FOREIGN = r"([\[\]])([^\[\](){},;]+[,;][^\[\](){},;]+)([\[\]])"


def _turn_brackets(match: re.Match[str]) -> str:
    """Write ]1, 2[ as (1, 2)."""
    turned = match.string[:1] == "]" or match.string[-1:] == "["
    return f"{'[('[match[1] == ']']}{match[2]}{'])'[match[3] == '[']}" if turned else match[0]


def _refuse(match: re.Match[str]) -> str:
    raise Unread("a derivative to be taken")


_NUMBERS = make_rules(
    *((e, rf"(?<![\w.\\])(\d+(?:\.\d+)?)({e})([+-]?\d+)(?![\w.{{])", _scientific) for e in "eE"),
    ("10", r"(?<=\d)\s*[xX]\s*(?=10\s*(?:\^|\*\*))", "*"),
    ("'", r"(?<![\w.'])(\d{1,3}(?:'\d{3})+)(?![\d'])", lambda m: m[1].replace("'", "")),
    (
        ".",
        rf"(?<![\d.,])(\d{{0,30}})\.(\d{{0,30}}){_PERIOD}",
        lambda m: _periodic(m[1], m[2], m[3] or m[4] or m[5]),
    ),
    (
        ".",
        r"(?<![\d.,])(\d{1,30})\.(\d{0,30}?)(?:(\d)\3{2,30}|(\d{2,12})\4{1,15})\s*(?:\.\.\.|\\[lc]?dots(?![a-zA-Z]))",
        lambda m: _periodic(m[1], m[2], m[3] or m[4]),
    ),
    (
        "0",
        r"(?<![\w\\.])0(?:b[01]{1,64}|x[0-9A-Fa-f]{1,16}|o[0-7]{1,20})(?![\w.])",
        lambda m: str(int(m[0], 0)),
    ),
    ("_", r"\\(?:text|mathrm|textbf|mathbf)\s*\{\s*([0-9A-Fa-f]+)\s*\}\s*(?=_)", r"\1"),
    (")", r"\A\(\s*([0-9A-F]+)\s*\)\s*(?=_)", r"\1"),
    ("_", r"(?<![\w\\.])([0-9A-F]*[A-F][0-9A-F]*)_(?:\{\s*(1[1-6])\s*\}|(1[1-6])(?!\d))", _write_decimal),
    ("C(", r"(?<![\w\\])C\s*\(\s*(\w+)\s*,\s*(\w+)\s*\)", r"\\binom{\1}{\2}"),
    (
        "C",
        r"\A(?:\{\s*\})?[_^]\s*\{?\s*(\w+)\s*\}?\s*\\?C\s*_\s*(?:\{\s*(\w+)\s*\}|(\w))",
        lambda m: rf"\binom{{{m[1]}}}{{{m[2] or m[3]}}}",
    ),
    (
        "d",
        r"\\[dtc]?frac\s*\{\s*(?P<sign>d|\\partial(?![a-zA-Z]))\s*(?P<order>\^\s*\{?\s*\d\s*\}?)?\s*(?P<top>[a-zA-Z])\s*\}\s*"
        r"\{\s*(?P=sign)\s*(?P<below>[a-zA-Z])\s*(?:\^\s*\{?\s*\d\s*\}?)?\s*\}"
        r"|(?<![\w\\])d(?P<y>[a-zA-Z])\s*/\s*d(?P<x>[a-zA-Z])(?!\w)",
        _quotient,
    ),
    ("frac", r"\\frac\s*\{\s*(?:d|\\partial)\b[^{}]*\}\s*\{\s*(?:d|\\partial)\s*\\?[a-zA-Z]", _refuse),
    # capitals side by side below a slash: t/RC is t over RC
    ("/", r"/\s*([A-Z]{2,3})(?![\w(^])", r"/(\1)"),
    ("prime", r"\^\s*(?:\{\s*((?:\\prime\s*)+)\}|\\prime(?![a-zA-Z]))", lambda m: "'" * m[0].count("prime")),
    ('"', '"', "''"),
    ("\\overline", r"\\overline\s*\{\s*([A-Z]{2})\s*\}", r"\1"),
    ("[", _FOREIGN, _turn_brackets),
    ("]", _FOREIGN, _turn_brackets),
    (",", r"(?<![\d.,])([1-9]\d{0,2})((?:,\d{3})+)(?![\d,])", _join_thousands),
    (" ", r"(?<![\d.,])([1-9]\d{0,2})((?: \d{3})+)(?![\d,/])", lambda m: m[1] + m[2].replace(" ", "")),
    ("/", r"(?<![\d.^_{])(\d+)\s+(\d+)\s*/\s*(\d+)(?![\d.])", _expand_mixed_number),
    (" ", r"\A([+-]?[\d.]+) ([mgshlL])\Z", r"\1 \\text{\2}"),
    (" ", r"\A([+-]?[\d.,/]+) ?(?:([A-Za-z][A-Za-z /-]+)|\(([A-Za-z][A-Za-z -]+)\))\Z", _wrap_words),
)


def rewrite_numbers(text: str) -> str:
    """Return a normalised text with numbers, intervals and derivatives of special notations in plain ones.

    Raises:
        Unread: for digits that a base does not have, and for a derivative that is to be taken.
    """
    return apply_rules(_NUMBERS, text)
