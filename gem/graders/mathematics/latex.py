r"""Answers as trees: LaTeX and plain mathematics, read without sympy.

A tree is a tuple whose first item is its tag::

    ("num", Fraction, places)       a number; places: decimals written, None for an integer
    ("sym", name)  ("const", name)  a variable; e, pi, i, inf
    ("+", nodes)  ("*", nodes)  ("/", a, b)  ("^", a, b)  ("-", a)  ("fn", name, nodes)
    ("%", node)  ("unit", node, name)  ("ratio", nodes)  ("logic", operator, nodes)  ("in", variable, set)
    ("seq", open, close, nodes)     (1,2)  [0,1)  {1,2}; a bare list has no brackets
    ("union", nodes)  ("without", a, b)  ("matrix", rows)  ("rel", operators, nodes)

Reading is linear in the text and bounded: a text that is too long, too deep or not in this grammar raises
Unread.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, NoReturn

from gem.graders.mathematics.languages import word_set
from gem.graders.mathematics.notation import FUNCTIONS, Unread, rewrite_numbers
from gem.graders.mathematics.trees import Node
from gem.graders.mathematics.units import UNITS, fold_case, measure
from gem.parsing import STYLE, STYLES

LENGTH = 1200
"""The most characters of an answer that is read as mathematics."""

DEPTH = 30
NODES = 400
DIGITS = 4000  # int() refuses longer ones by default


_RENAMED = {
    "dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "dbinom": "binom", "tbinom": "binom",
    "geq": "ge", "geqslant": "ge", "leq": "le", "leqslant": "le", "neq": "ne", "gt": ">", "lt": "<",
    "times": "*", "cdot": "*", "ast": "*", "div": "/", "lbrace": "{", "rbrace": "}", "lvert": "|",
    "rvert": "|", "vert": "|", "wedge": "land", "vee": "lor", "lnot": "neg", "simeq": "approx",
    "backslash": "setminus", "varnothing": "emptyset", "lbrack": "[", "rbrack": "]", "cosec": "csc",
    "varepsilon": "epsilon", "varphi": "phi", "vartheta": "theta",
    "arcctg": "arccot", "tg": "tan", "ctg": "cot", "lg": "log10", "sim": "approx", "doteq": "approx",
    "langle": "(", "rangle": ")", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "colon": ":",
}  # fmt: skip
_WORDS = {
    "pi": r"\pi", "inf": r"\infty", "infinity": r"\infty", "oo": r"\infty", "and": r"\and", "or": r"\or",
    "sqrt": r"\sqrt", "union": r"\cup", "percent": "%", "percentage": "%", "pct": "%", "ceiling": r"\ceil",
    "frac": r"\frac", "cup": r"\cup", "mod": r"\mod",
}  # fmt: skip
_LETTERS = (
    "alpha beta gamma delta epsilon varepsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau "
    "upsilon hbar phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell mho"
)
_GREEK = frozenset(_LETTERS.split())
_TOKEN = re.compile(
    rf"\s*(?:(?P<num>\d+(?:\.\d+)?|\.\d+)|\\(?:{STYLE})(?![a-zA-Z])\s*\{{(?P<inside>[^{{}}\\]*)\}}"
    r"|\\(?P<cmd>[a-zA-Z]+|[^a-zA-Z])|(?P<word>[^\W\d_]+)"
    r"|(?P<op><=|>=|!=|==|\*\*|:=|[-+*/^_=<>(){}\[\],;:|!%&'\"@~`.#?]))"
)
_OPERATORS = {"<=": "\\le", ">=": "\\ge", "!=": "\\ne", "==": "=", "**": "^", ":=": "="}
_ESCAPED = {"{": "\\{", "}": "\\}"} | {sign: sign for sign in "%|<>*/[]:"} | dict.fromkeys(" ,;!", "")
"""The signs that stand behind a backslash, as tokens; a space is none."""


@lru_cache(maxsize=2048)
def read(text: str) -> Node:
    """Return the tree of a normalised text.

    Raises:
        Unread: when it is not in this grammar, or too long or too deep.
    """
    if len(text) > LENGTH:
        raise Unread(f"more than {LENGTH} characters", hopeless=True)
    try:
        if "\\pm" not in text and "\\mp" not in text:
            return _Reader(text).all()
        above = _Reader(text.replace("\\pm", "+").replace("\\mp", "-")).all()
        return _join_signs(above, _Reader(text.replace("\\pm", "-").replace("\\mp", "+")).all())
    except RecursionError:  # the caller's own stack is deep
        raise Unread("nested too deeply", hopeless=True) from None


def _join_signs(above: Node, below: Node) -> Node:
    """Return both readings of an answer with two signs; of a list, the list with both of each member."""
    if above[0] == below[0] == "in":
        return ("in", above[1], _join_signs(above[2], below[2]))
    if above[0] != "seq" or above[1] not in ("", "{") or below[:3] != above[:3]:
        return ("seq", "", "", (above, below))
    pairs = zip(above[3], below[3], strict=True)
    return (
        *above[:3],
        tuple(member for one, other in pairs for member in ((one,) if one == other else (one, other))),
    )


def _tokens(text: str) -> list[str]:
    r"""Return the tokens: numbers, ``\\command``, words with a leading quote, and single characters."""
    tokens: list[str] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise Unread(f"character {text[at]!r}")
        at = match.end()
        kind = str(match.lastgroup)
        value = match[kind]
        if kind == "word":
            tokens += _read_word(value, tokens)
        elif kind == "inside":
            tokens += _read_styled(value.strip(), tokens)
        elif kind == "cmd":
            value = _RENAMED.get(value, value)
            sign = (
                "\\" + value if value[0].isalpha() else _ESCAPED.get(value, value if value in "()" else None)
            )
            if sign is None:
                raise Unread(f"command \\{value}")
            if sign and value not in STYLES:
                tokens.append(sign)
        else:
            tokens.append(_OPERATORS.get(value, value))
        if len(tokens) > 2 * NODES:
            raise Unread("too many symbols", hopeless=True)
    return tokens


def _read_styled(inside: str, before: list[str]) -> list[str]:
    r"""Return the tokens in a style such as \\text; words in it are words, not products of letters."""
    if re.fullmatch(r"[\d.,]*", inside):
        parts = re.findall(r"\d+(?:\.\d+)?|,", inside)
        if "".join(parts) != inside.rstrip("."):
            raise Unread("points in a number")
        return parts
    if re.fullmatch(r"[A-Za-z]", inside):
        unit = before and (before[-1][-1].isdigit() or before[-1] == "}") and inside in UNITS
        return ["'" + inside if unit else inside]
    if inside.lower() in _WORDS or inside.lower() in FUNCTIONS:
        return _read_word(inside, before)
    words = [fold_case(word.strip(".,;:()")) for word in inside.split()]
    return [("\\" if word in ("and", "or") else "'") + word for word in words if word]


def _read_word(word: str, before: list[str]) -> list[str]:
    """Return the tokens of letters side by side: a word, a function, or a product of variables."""
    lower = fold_case(word)
    after_number = bool(before) and before[-1][-1].isdigit()
    if not word.isascii() or (after_number and lower in ("min", "sec", "in", "am", "pm")):
        return ["'" + lower]
    if lower in _WORDS and (len(word) > 2 or word in ("pi", "or", "oo")):
        return [_WORDS[lower]]
    if lower in FUNCTIONS or lower in ("asin", "acos", "atan"):
        return ["\\" + _RENAMED.get(lower, lower)]
    if len(word) == 1:
        return [word]
    known = (after_number or len(word) > 2) and (lower in UNITS or lower.rstrip("s") in UNITS)
    if known or len(word) > 3 or (before and before[-1][0] == "'"):  # the last: another word of a phrase
        return ["'" + lower]
    if english(lower):
        raise Unread(f"the word {word}")
    return list(word)


def english(word: str) -> bool:
    """Return whether two or three letters are a word, not a product of variables; no variable is called o."""
    return "o" in word or word in _LITTLE


_LITTLE = word_set("""
is if but any all the its it are was has had his her per can may yes let set say she he did get few etc ten
six red bad mad men big
""")

_RELATIONS = {
    "=": "=", "<": "<", ">": ">", "\\le": "<=", "\\ge": ">=", "\\ne": "!=", "\\in": "in", "\\approx": "~",
}  # fmt: skip
_OPEN_RELATIONS = frozenset(["<", ">", "\\le", "\\ge", "\\ne", "=", "\\approx"])
ASKED: Node = ("sym", "?")
"""The unnamed variable of "at least 5"."""

_NAMED: dict[str, Node] = {
    "pi": ("const", "pi"),
    "infty": ("const", "inf"),
    "imath": ("const", "i"),
    "mathrmi": ("const", "i"),
    "emptyset": ("seq", "{", "}", ()),
}
_CLOSERS = {"(": ")", "[": "]", "\\{": "\\}", "{": "}"}
_MATRICES = ("pmatrix", "bmatrix", "matrix", "array", "smallmatrix", "Bmatrix")
_STOPPING = r") ] } \} , ; \and \or \land \lor \mid \cup \setminus & \cr \rfloor \rceil \end : ! ^ _"
_STOP = frozenset([*_STOPPING.split(), *_RELATIONS])


class _Reader:
    """A recursive-descent parser over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self.tokens = _tokens(rewrite_numbers(text))
        self.at = 0
        self.depth = 0
        self.nodes = 0
        self.bars = 0

    # -- tokens

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def expect(self, token: str) -> None:
        if self.take() != token:
            self.fail(f"{token} is missing")

    def refuse(self, wrong: object, why: str) -> None:
        if wrong:
            self.fail(why)

    def fail(self, why: str) -> NoReturn:
        count = self.tokens.count
        balanced = count("{") == count("}") and count("(") + count("[") == count(")") + count("]")
        raise Unread(why, hopeless=not balanced)

    def node(self, *parts: Any) -> Node:
        self.nodes += 1
        if self.nodes > NODES:
            raise Unread("too many parts", hopeless=True)
        return parts

    def join_items(self, tag: str, items: list[Node], *before: Any) -> Node:
        """Return a single item unchanged, several items as a node."""
        return items[0] if len(items) == 1 else self.node(tag, *before, tuple(items))

    # -- grammar, from the loosest binding to the tightest

    def all(self) -> Node:
        tree = self.listing()
        self.refuse(self.at < len(self.tokens), f"unexpected {self.peek()}")
        return tree

    def listing(self) -> Node:
        """Read items separated by commas, semicolons, and, or; propositions joined by logical signs."""
        items = [self.relation()]
        between: set[str] = set()
        while self.peek() in (",", ";", "\\and", "\\or", "\\land", "\\lor"):
            last = self.take()
            while self.peek() in (",", "\\and", "\\or"):  # the Oxford comma
                last = self.take()
            between.add(last)
            items.append(self.relation())
        if len(items) == 1:
            return items[0]
        if between & {"\\land", "\\lor"}:
            self.refuse(len(between) > 1, "signs of logic without brackets")
            if not all(item[0] == "rel" for item in items):
                return self.node("logic", between.pop(), tuple(items))
            between = {"\\or" if between == {"\\lor"} else "\\and"}
        if between == {"\\or"} and all(_inequality(item) for item in items):
            return self.node("union", tuple(items))
        return self.node("seq", "", "", tuple(items))

    def relation(self) -> Node:
        operators: list[str] = []
        if self.peek() in _OPEN_RELATIONS:  # "> 5": of what is asked for
            operator = _RELATIONS[self.take()]
            side = self.union()
            return side if operator in ("~", "=") else self.node("rel", (operator,), (ASKED, side))
        sides = [self.union()]
        while self.peek() in _RELATIONS:
            operators.append(_RELATIONS[self.take()])
            sides.append(self.union())
        if not operators:
            return sides[0]
        if operators == ["in"] and (sides[0][0] in ("sym", "fn") or _is_point(sides[0])):
            return self.node("in", sides[0], sides[1])
        return self.node("rel", tuple(operators), tuple(sides))

    def union(self) -> Node:
        items = [self.ratio()]
        while self.peek() in ("\\cup", "\\setminus"):
            if self.take() == "\\cup":
                items.append(self.ratio())
            else:
                items = [self.node("without", self.join_items("union", items), self.ratio())]
        return self.join_items("union", items)

    def ratio(self) -> Node:
        items = [self.sum()]
        while self.after(":"):
            items.append(self.sum())
        return self.join_items("ratio", items)

    def sum(self) -> Node:
        terms = [self.apply_sign(self.sign(), self.term())]
        while self.peek() in ("+", "-"):
            terms.append(self.apply_sign(self.sign(), self.term()))
        if len(terms) == 1:
            return terms[0]
        if all(term[1:3] == ("(", ")") and len(term[3]) == len(terms[0][3]) for term in terms):
            sums = zip(*(term[3] for term in terms), strict=True)
            return self.node("seq", "(", ")", tuple(self.node("+", parts) for parts in sums))
        self.refuse(any(term[0] in ("seq", "union", "matrix") for term in terms), "a sum of sets or matrices")
        return self.node("+", tuple(terms))

    def apply_sign(self, sign: int, term: Node) -> Node:
        if sign > 0:
            return term
        if _is_vector(term):  # -(1, 2)
            return _change_members(term, lambda member: ("-", member))
        if term[0] in ("unit", "%"):  # -3 cm is (-3) cm, and -5% is (-5)%
            return self.node(term[0], self.node("-", term[1]), *term[2:])
        return self.node("-", term)

    def sign(self) -> int:
        sign = 1
        while self.peek() in ("+", "-"):
            sign = -sign if self.take() == "-" else sign
        return sign

    def term(self) -> Node:
        factors = [self.power()]
        while True:
            token = self.peek()
            if token in ("*", "/"):
                self.take()
                sign = self.sign()
                right = self.power()
                right = self.node("-", right) if sign < 0 else right
                if token == "/":
                    factors = [self.node("/", self.join_items("*", factors), right)]
                else:
                    factors.append(right)
            elif token[:1] == "'" or (token == "(" and self.unit_in_brackets()):
                factors = [self.unit(self.join_items("*", factors))]
            elif token in ("", "+", "-", "|") or token in _STOP:
                if token == "|" and not self.bars:
                    factors.append(self.power())
                    continue
                break
            elif self.after("%"):
                factors = [self.node("%", self.join_items("*", factors))]
            elif self.after("\\bmod") or self.after("\\mod"):
                factors = [self.node("fn", "mod", (self.join_items("*", factors), self.power()))]
            else:
                number = self.mixed_number(factors)
                if number is None:
                    factors.append(self.power())
                else:
                    factors = [number]
        if len(factors) == 1:
            return factors[0]
        if len(factors) == 2 and factors[0][0] == "sym" and factors[1][1:3] in (("(", "]"), ("[", ")")):
            return self.node("in", *factors)  # "t(0,4]": the sign was lost
        numbers = [x[0] in ("num", "/", "fn", "const") or x[1:] in _PARAMETERS for x in factors[:-1]]
        if _is_vector(factors[-1]) and all(numbers):
            scale = self.join_items("*", factors[:-1])
            return _change_members(factors[-1], lambda member: ("*", (scale, member)))
        self.refuse(
            any(factor[0] in ("seq", "union", "matrix", "unit", "ratio") for factor in factors),
            "a product of sets, matrices or measures",
        )
        return self.node("*", tuple(factors))

    def mixed_number(self, factors: list[Node]) -> Node | None:
        r"""Read 1\frac{2}{3}: an integer and a proper fraction side by side are a sum."""
        whole = factors[-1]
        if self.peek() != "\\frac" or len(factors) != 1 or whole[0] != "num" or whole[2] is not None:
            return None
        fraction = self.power()
        plain = fraction[0] == "/" and all(part[0] == "num" and part[2] is None for part in fraction[1:])
        proper = plain and 0 < fraction[1][1] < fraction[2][1]
        return self.node("+" if proper else "*", (whole, fraction))

    def unit_in_brackets(self) -> bool:
        """Return whether a unit in brackets follows, as in ``9 (apples)``."""
        at = self.at + 1
        while at < len(self.tokens) and self.tokens[at][0] == "'":
            at += 1
        return at > self.at + 1 and at < len(self.tokens) and self.tokens[at] == ")"

    def unit(self, amount: Node) -> Node:
        bracket = self.after("(")
        words: list[str] = []
        while self.peek()[:1] == "'" or (words and self.peek() in ("/", "^", "\\and") and self._goes_on()):
            token = self.take()
            self.refuse(token == "'", "a prime behind a number")
            if token == "^":
                words[-1] += "^" + self._power_of_unit()
            else:
                words.append(token[1:] if token[0] == "'" else "and" if token == "\\and" else "per")
        if bracket:
            self.expect(")")
            words = ["(" + " ".join(words) + ")"]
        self.refuse(
            amount[0] in ("seq", "rel", "matrix", "sym", "unit")
            or (amount[0] == "*" and len(words) != 1 and measure(" ".join(words)) is None),
            "words",
        )
        return self.node("unit", amount, " ".join(words))

    def _power_of_unit(self) -> str:
        exponent = self.script()
        sign, exponent = ("-", exponent[1]) if exponent[0] == "-" else ("", exponent)
        self.refuse(
            exponent[0] != "num" or exponent[2] is not None or exponent[1] > 9, "an exponent of a unit"
        )
        return f"{sign}{exponent[1]}"

    def _goes_on(self) -> bool:
        following = self.tokens[self.at + 1 : self.at + 2]
        return self.peek() == "^" or (len(following) == 1 and following[0][0] == "'")

    def power(self) -> Node:
        base = self.postfix(self.primary())
        if not self.after("^"):
            return base
        if self.after("\\circ") or self.after("{", "\\circ", "}"):
            return self.postfix(self.node("unit", base, "degree"))
        if base[0] == "sym" and len(ahead := self.tokens[self.at : self.at + 5]) == 5:
            in_brackets = ahead[2].isdigit() and [*ahead[:2], *ahead[3:]] == ["{", "(", ")", "}"]
            self.refuse(in_brackets, "an index above, as of a derivative")
        return self.postfix(self.node("^", base, self.tower()))

    def tower(self) -> Node:
        """Read exponents; 2^3^2 binds to the right."""
        self.deeper()
        exponent = self.script()
        if self.after("^"):
            exponent = self.node("^", exponent, self.tower())
        self.depth -= 1
        return exponent

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > DEPTH:
            raise Unread("nested too deeply", hopeless=True)

    def script(self) -> Node:
        """Read an exponent or index: a group, or one signed symbol; ``2^10`` is read as it is meant."""
        sign = self.sign()
        script = self.group() if self.peek() in ("{", "(") else self.primary()
        return self.node("-", script) if sign < 0 else self.postfix(script)

    def group(self) -> Node:
        opened = self.take()
        inside = self.listing()
        self.expect(_CLOSERS[opened])
        return inside

    def postfix(self, node: Node) -> Node:
        step = 0
        while self.after("!"):
            step += 1
        if step > 1:  # 7!! is 7 * 5 * 3; (7!)! has brackets
            return self.node("fn", "factorials", (node, ("num", Fraction(step), None)))
        return self.node("fn", "factorial", (node,)) if step else node

    def primary(self) -> Node:
        self.deeper()
        node = self.atom()
        self.depth -= 1
        return node

    def atom(self) -> Node:
        token = self.take()
        if not token:
            self.fail("something is missing")
        first = token[0]
        if first.isdigit() or (first == "." and len(token) > 1):
            return self.number(token)
        if token in ("(", "["):
            return self.brackets(token)
        if token == "\\{":
            described_set = self.set_builder()
            if described_set is not None:
                return described_set
            items = () if self.peek() == "\\}" else self.items(self.listing())
            self.expect("\\}")
            return self.node("seq", "{", "}", items)
        if token == "{":
            inside = self.listing()
            self.expect("}")
            if inside[0] == "seq" and not inside[1]:
                return self.node("seq", "{", "}", inside[3])
            return inside
        if token == "|":
            self.bars += 1
            inside = self.sum()
            self.bars -= 1
            self.expect("|")
            return self.node("fn", "abs", (inside,))
        if first.isalpha():
            return self.symbol(token)
        if first == "\\" and len(token) > 1:
            return self.command(token[1:])
        return self.fail(f"unexpected {token}")

    def set_builder(self) -> Node | None:
        r"""Read the rest of {x | -2 < x < 1} as its inequality, or consume nothing."""
        start = self.at
        try:
            name = self.symbol(self.take()) if self.peek()[:1].isalpha() else None
            if name and self.after("\\in"):
                self.refuse(self.take() != "\\mathbb", "a set of others than the real numbers")
                self.reals("mathbb")
            if name and self.take() in ("|", ":", "\\mid"):
                inside = self.listing()
                parts = inside[1] if inside[0] == "union" else (inside,)
                if self.take() == "\\}" and all(
                    (_inequality(x) or x[1] == ("!=",)) and name in x[2] for x in parts
                ):
                    return inside
                self.fail("a described set")
        except Unread:
            if {"|", "\\mid"} & set(self.tokens[start : start + 2]):
                raise
        self.at = start
        return None

    def items(self, inside: Node) -> tuple[Node, ...]:
        return inside[3] if inside[0] == "seq" and not inside[1] else (inside,)

    def brackets(self, opened: str) -> Node:
        self.refuse(self.peek() in (")", "]"), "empty brackets")
        inside = self.listing()
        closed = self.take()
        self.refuse(closed not in (")", "]"), "a bracket is not closed")
        if inside[0] == "seq" and not inside[1]:
            return self.node("seq", opened, closed, inside[3])
        lone = opened + closed == "[]" and inside[0] not in ("seq", "rel", "union")
        self.refuse(not lone and opened + closed != "()", "brackets of two kinds")
        return self.node("seq", "[", "]", (inside,)) if lone and self.nodes < 3 else inside

    def number(self, token: str) -> Node:
        if len(token) > DIGITS:
            raise Unread("a number of too many digits", hopeless=True)
        whole, _, decimals = token.partition(".")
        places = len(decimals)
        if not self.after("_"):
            return self.node("num", Fraction(int(whole + decimals or "0"), 10**places), places or None)
        base = self.script()
        self.refuse(decimals or base[0] != "num" or base[1].denominator != 1, "a number with an index")
        try:
            return self.node("num", Fraction(int(whole, base[1].numerator)), None)
        except ValueError:
            return self.fail("digits that the base does not have")

    def symbol(self, name: str) -> Node:
        letter = name
        if self.after("_"):
            name = f"{name}_{self.index()}"
        while self.peek() == "'":  # a derivative has its own name
            name += self.take()
        if name in ("e", "i"):
            return self.node("const", name)
        if letter in "fghFG" and self.after("^", "{", "-", "1", "}"):
            self.refuse(self.peek() != "(", "the inverse of a function")
            name += "⁻"
        if letter in "fghFG" and self.peek() == "(":
            return self.node("fn", name, self.items(self.group()))
        return self.node("sym", name)

    def index(self) -> str:
        start = self.at
        if self.take() == "{":
            while self.take() != "}":
                self.refuse(self.at >= len(self.tokens), "unclosed brace")
        inside = self.tokens[start : self.at]
        return "".join(inside[1:-1] or inside).replace("\\", "").replace("'", "")

    def command(self, name: str) -> Node:
        if name in _NAMED:
            return self.node(*_NAMED[name])
        read = _COMMANDS.get(name)
        if read is not None:
            return read(self, name)
        if name in _GREEK:
            return self.symbol(name)
        return self.function(name) if name in FUNCTIONS else self.fail(f"command \\{name}")

    def root(self, name: str) -> Node:
        if self.after("["):
            degree = self.sum()
            self.expect("]")
            return self.node("fn", "root", (self.argument(), degree))
        inside = self.argument()
        if inside[0] == "-" and inside[1][0] == "num":
            return self.node("*", (("fn", "sqrt", (inside[1],)), ("const", "i")))
        return self.node("fn", "sqrt", (inside,))

    def floor_or_ceiling(self, name: str) -> Node:
        inside = self.listing()
        self.expect("\\r" + name[1:])
        return self.node("fn", name[1:], (inside,))

    def corners(self, name: str) -> Node:
        r"""Read an angle or triangle and the points that name it; those of a triangle in any order."""
        points = []
        while self.peek()[:1].isupper():
            points.append(self.symbol(self.take())[1])
        self.refuse(not points, f"\\{name}")
        points = sorted(points) if name == "triangle" else min(points, points[::-1], key=lambda p: p[0])
        return self.node("sym", f"{name} {' '.join(points)}")

    def after(self, *tokens: str) -> bool:
        """Return whether these tokens are next, and consume them if so."""
        matches = self.peek() == tokens[0] and self.tokens[self.at : self.at + len(tokens)] == [*tokens]
        self.at += len(tokens) * matches
        return matches

    def reals(self, name: str) -> Node:
        r"""Read the real numbers, or the positive or negative ones, as in ``\mathbb{R}^+``."""
        self.refuse(not (self.after("R") or self.after("{", "R", "}")), f"\\{name}")
        inf: Node = ("const", "inf")
        zero: Node = ("num", Fraction(0), None)
        ends = {"": (("-", inf), inf), "+": (zero, inf), "-": (("-", inf), zero)}
        signs = (s for s in "+-" if self.after("^", s) or self.after("^", "{", s, "}") or self.after("_", s))
        return self.node("seq", "(", ")", ends[next(signs, "")])

    def argument(self) -> Node:
        r"""Read the argument of a command: a group, or one digit as in \frac12."""
        token = self.peek()
        if token in ("{", "("):
            return self.group()
        if token.isdigit() and len(token) > 1:
            self.tokens[self.at : self.at + 1] = [token[0], token[1:]]
        return self.primary()

    def function(self, name: str) -> Node:
        r"""Read a function and its argument: bracketed, or the product that follows, as in \\sin 2x."""
        scripts: dict[str, Node] = {}
        while self.peek() in ("^", "_"):
            sign = self.take()
            scripts[sign] = self.script()
        if self.peek() in ("(", "{"):
            arguments = self.items(self.group())
        elif name in ("min", "max", "gcd", "lcm"):
            self.fail(f"{name} without brackets")
        elif self.peek() == "|":
            arguments = (self.primary(),)
        else:
            factors = [self.power()]
            while (token := self.peek()) and (
                token[0].isalnum() or token in ("\\pi", "\\frac", "\\sqrt") or token[1:] in _GREEK
            ):
                factors.append(self.power())
            arguments = (self.join_items("*", factors),)
        if "_" in scripts:
            self.refuse(name != "log", "an index of a function")
            arguments = (*arguments, scripts["_"])
        power = scripts.get("^")
        if power == ("-", ("num", Fraction(1), None)) and name in ("sin", "cos", "tan"):
            return self.node("fn", "arc" + name, arguments)
        call = self.node("fn", name, arguments)
        return call if power is None else self.node("^", call, power)

    def matrix(self, name: str) -> Node:
        kind = self.index()
        self.refuse(kind not in _MATRICES, f"\\begin{{{kind}}}")
        if kind == "array" and self.peek() == "{":
            self.index()
        rows: list[list[Node]] = [[]]
        while not self.after("\\end"):
            rows[-1].append(self.relation())
            if self.after("\\cr"):
                rows.append([])
            elif not self.after("&") and self.peek() != "\\end":
                self.fail("a matrix that does not end")
        rows = rows if rows[-1] else rows[:-1]
        self.refuse(self.index() != kind, "another end of a matrix")
        self.refuse(len({len(row) for row in rows}) != 1, "a ragged matrix")
        return self.node("matrix", tuple(map(tuple, rows)))


_COMMANDS: dict[str, Callable[[_Reader, str], Node]] = {
    "frac": lambda reader, _: reader.node("/", reader.argument(), reader.argument()),
    "binom": lambda reader, name: reader.node("fn", name, (reader.argument(), reader.argument())),
    "neg": lambda reader, _: reader.node("fn", "not", (reader.power(),)),
    "boxed": lambda reader, _: reader.group() if reader.peek() == "{" else reader.primary(),
    "sqrt": _Reader.root,
    "lfloor": _Reader.floor_or_ceiling,
    "lceil": _Reader.floor_or_ceiling,
    "angle": _Reader.corners,
    "triangle": _Reader.corners,
    "mathbb": _Reader.reals,
    "begin": _Reader.matrix,
}
"""How a command that is no symbol, and no function of one argument, is read."""


_PARAMETERS = {(name,) for name in ("r", "s", "t", "u", "lambda", "mu")}


def _is_vector(node: Node) -> bool:
    return bool(node[0] == "matrix" or (node[0] == "seq" and node[1:3] == ("(", ")")))


def _change_members(vector: Node, change: Callable[[Node], Node]) -> Node:
    """Return a vector or matrix with each member changed."""
    if vector[0] == "seq":
        return (*vector[:3], tuple(map(change, vector[3])))
    return ("matrix", tuple(tuple(map(change, row)) for row in vector[1]))


def _is_point(node: Node) -> bool:
    """Return whether a tree is a tuple of variables: (x, y)."""
    return node[0] == "seq" and node[1] == "(" and all(member[0] == "sym" for member in node[3])


def _inequality(node: Node) -> bool:
    return node[0] == "rel" and all(op in ("<", ">", "<=", ">=") for op in node[1])
