r"""Rewrites reference answers: mutants, which mean something else, and other writings of the same answer.

Each function yields ``(rule, answer)``. They know nothing of how the grader works: a mutant is a change of
the text at one place. The few that happen to mean the same are left out by the rules named in `same`.
"""

import re
from fractions import Fraction

NUMERAL = re.compile(r"-?\d+(?:\.\d+)?")
CONSTANTS = ("0", "1", "2", "n", "x")
WRONG_PHRASES = (
    "at least {}",
    "at most {}",
    "not {}",
    "not equal to {}",
    "minus {}",
    "negative {}",
    "-({})",
    "more than {}",
    "less than {}",
    "greater than {}",
    "{} or more",
    "{} or less",
    "{} or so",
    "half of {}",
    "twice {}",
    "{} squared",
    "the square root of {}",
    "over {}",
    "any number but {}",
    "everything except {}",
    "between {} and 1000",
    "{} thousand",
    r"\neq {}",
    "> {}",
    r"\geq {}",
    "< {}",
    "{}+",
    "({})!",
    "1/({})",
    "{} is wrong",
    "the opposite of {}",
    "the answer is not {}",
    "{} or 77",
    "{} and 77",
    "{}, 77",
    "up to {}",
    "{} cubed",
    "three times {}",
    "{} more than x",
    "the reciprocal of {}",
    r"\text{{not }} {}",
    "{} minus 1",
    r"\text{{at least }} {}",
    "x > {}",
    r"x \le {}",
    "if {} then 7",
    "neither {}",
    "{} is too small",
)


def bare(gold: str) -> str:
    """A reference without its delimiters."""
    text = re.sub(r"(?<!\\)\$", "", gold)
    return text if text.endswith("...") else text.rstrip(". ")


def value(gold: str) -> Fraction | None:
    match = NUMERAL.fullmatch(bare(gold).partition(" (")[0])
    return Fraction(match[0]) if match else None


def _each(pattern, text, *replacements):
    for match in re.finditer(pattern, text):
        for new in replacements:
            new = new(match) if callable(new) else new
            if new is not None:
                yield text[: match.start()] + new + text[match.end() :]


def _numbers(text):
    number = r"(?<![\d.])\d+(?:\.\d+)?(?![\d.])"
    rules = (
        lambda m: str(Fraction(m[0]) + 1) if "." not in m[0] else m[0] + "1",
        lambda m: str(int(m[0]) - 1) if "." not in m[0] and m[0] != "0" else None,
        lambda m: m[0] + "0" if float(m[0]) and "." not in m[0] else None,
        lambda m: "1" + m[0],
        lambda m: m[0] + ".5" if "." not in m[0] else None,
        lambda m: (
            m[0][:-1]
            if len(m[0]) > 1 and m[0][-2] != "." and float(m[0]) and not ("." in m[0] and m[0][-1] == "0")
            else None
        ),
        lambda m: m[0][1] + m[0][0] + m[0][2:] if m[0][1:2].isdigit() and m[0][1] != m[0][0] else None,
        lambda m: m[0][0] + "," + m[0][1:] if m[0].isdigit() and 2 <= len(m[0]) != 4 else None,
        lambda m: (
            m[0][:-1] + "." + m[0][-1] if m[0].isdigit() and len(m[0]) > 1 and m[0][-1] != "0" else None
        ),
        lambda m: f"{m[0]}!" if m[0] not in ("1", "2") else None,
        lambda m: f"{m[0]}^{{2}}" if m[0] not in ("0", "1") else None,
        lambda m: rf"\sqrt{{{m[0]}}}" if m[0] not in ("0", "1") else None,
        lambda m: f"{m[0]}_3" if m[0] not in ("0", "1", "2") else None,
        lambda m: f"{m[0]}x" if float(m[0]) else "x",
        lambda m: f"{m[0]}+y",
        lambda m: f"{m[0]}i" if float(m[0]) else None,
        lambda m: f"e^{{{m[0]}}}",
    )
    for match in re.finditer(number, text):
        for rule in rules:
            new = rule(match)
            if new is not None:
                yield text[: match.start()] + new + text[match.end() :]


def _signs(text):
    yield from _each(r"(?<![\d.])\d+", text, lambda m: "-" + m[0] if int(m[0]) else None)
    yield from _each(r"-", text, "+", "", r"\cdot ")
    yield from _each(r"\+", text, "-", r"\cdot ")
    yield from _each(r"\\cdot ?|\*", text, "+", "-")
    yield from _each(r"/", text, r"\cdot ", "+")
    yield from _each(r"\^", text, r"\cdot ", "_")
    yield from _each(r":", text, "+")


def _commands(text):
    for old, new in (
        (r"\lfloor", r"\lceil"),
        (r"\rfloor", r"\rceil"),
        (r"\lceil", r"\lfloor"),
        (r"\rceil", r"\rfloor"),
    ):
        if old in text:
            yield text.replace(old, new)
    both = text.replace(r"\lfloor", r"\lceil").replace(r"\rfloor", r"\rceil")
    if both != text:
        yield both
    off = re.sub(
        r"\\(?:left\s*)?(?:right\s*)?\\?[lr](?:floor|ceil)|\\(?:left|right)\\[lr](?:floor|ceil)", " ", text
    )
    off = re.sub(r"\\[lr](?:floor|ceil)", " ", off)
    if off != text:
        yield off
    yield from _each(r"\\sqrt(\[3\])?", text, "", r"\ln")
    yield from _each(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", text, lambda m: rf"\frac{{{m[2]}}}{{{m[1]}}}")
    yield from _each(r"\\binom", text, r"\frac")
    yield from _each(r"\\cup", text, r"\cap", ",")
    yield from _each(r"\\infty", text, "0", "10")
    yield from _each(r"\\%|%", text, r"^{\circ}", " cm")
    yield from _each(r"\\circ", text, "2")
    yield from _each(r"!", text, "", "!!")


def _variables(text):
    letters = r"(?<![a-zA-Z\\])[a-zA-Z](?![a-zA-Z])"
    if re.search(r"[a-z]{4}", text.replace("\\", "")) and "\\" not in text:
        return
    found = list(re.finditer(letters, text))
    for match in found:
        for new in ("w", match[0] + "^{2}", match[0] + "w", "2", match[0] + "'"):
            yield text[: match.start()] + new + text[match.end() :]


def _relations(text):
    for old, new in (
        ("=", r"\neq "),
        ("=", "<"),
        ("=", r"\le "),
        ("=", "+"),
        (r"\geqslant", r"\leqslant"),
        (r"\geqslant", ">"),
        (r"\geq", r"\leq"),
        (r"\leq", r"\geq"),
        (r"\leq", "<"),
        ("<", ">"),
        ("<", r"\le "),
        (">", "<"),
        (">", r"\ge "),
        (r"\geqslant", "="),
        (r"\in", r"\notin"),
        (r"\land", r"\lor"),
        (r"\lor", r"\land"),
        (">=", "<="),
        (" and ", " or "),
    ):
        if old in text:
            yield text.replace(old, new, 1)


def _lists(text):
    if re.fullmatch(r"-?[\d ]+(?:, ?-?\d+)+", text) and not re.fullmatch(r"\d{1,3}(?:,\d{3})+", text):
        yield text.rpartition(",")[0]
        yield text.partition(",")[2]
        yield text.replace(",", ".", 1)
        yield text.replace(",", "")
        yield text.replace(",", "+")
        yield f"[{text}]"
    tuples = re.findall(r"\([^()]*,[^()]*\)", text)
    if tuples and "left" not in text and "infty" not in text:
        for one in tuples:
            parts = one[1:-1].split(",")
            turned = "(" + ",".join(parts[::-1]) + ")"
            if turned not in tuples:
                yield text.replace(one, turned, 1)
            yield text.replace(one, one[:-1] + ",1)", 1)
            yield text.replace(one, "(" + ",".join(parts[1:]) + ")", 1)
        if len(tuples) > 1:
            yield text.replace(tuples[0] + ",", "", 1) if tuples[0] + "," in text else tuples[0]
    for old, new in (("(", "["), (")", "]"), ("[", "("), ("]", ")")):
        if "infty" in text or re.fullmatch(r"[\[(][^,]*,[^,]*[)\]]|t\(0,4\]", text):
            yield from _each(re.escape(old), text, new)


UNITS = {
    "apples": "oranges",
    "dollars": "cents",
    "cents": "dollars",
    "cm": "km",
    "m": "kg",
    "km": "cm",
    "minutes": "hours",
    "hours": "minutes",
    "inches": "feet",
    "feet": "inches",
    "miles": "feet",
    "pounds": "ounces",
    "balls": "apples",
    "seconds": "minutes",
    "meters": "grams",
    "degrees": "hours",
    "people": "dollars",
    "books": "pages",
}


def _units(text):
    found = re.fullmatch(r"(-?[\d.]+)( \(?)([a-z][A-Za-z ]*)(\)?)", text)
    if found and float(found[1]):
        number, gap, unit, end = found.groups()
        other = UNITS.get(unit, "zebras")
        yield f"{number}{gap}{other}{end}"
        yield f"{number} {other}"
        yield f"{number}{gap}hundred {unit}{end}"
        yield f"{number} dozen {unit}"
        yield rf"{number} \text{{ {unit}}}^5"
    yield from _each(r"(?<=\^)[23]", text, "4") if "text" in text else ()
    yield from _each(r"(?<=\{ )(cm|km|m|ft|kg)(?=\})", text, lambda m: {"kg": "m"}.get(m[1], "kg"), "s")
    yield from _each(r"\ba\.?m\b\.?", text, "p.m.")
    yield from _each(r"\bp\.?m\b\.?", text, "a.m.")


def _words(text):
    if re.fullmatch(r"[A-Za-z][A-Za-z .']+", text):
        yield "not " + text
        yield text[1:]
        yield text[:-1] + "xq"
        yield text + " not"
        yield "anything but " + text
        yield {"Yes": "No", "No": "Yes"}.get(text, "no")


_RULES = {
    "number": _numbers,
    "sign or operator": _signs,
    "command": _commands,
    "variable": _variables,
    "relation": _relations,
    "list": _lists,
    "unit": _units,
    "word": _words,
}


def mutants(gold):
    """Yield every change at one place of a reference, and phrases around it that change its meaning."""
    text = bare(gold)
    seen = {text, text.replace(" ", "")}
    for name, rule in _RULES.items():
        for mutant in rule(text):
            if mutant.replace(" ", "") not in seen:
                seen.add(mutant.replace(" ", ""))
                yield name, mutant


def phrased(gold):
    """Yield a reference within phrases that give it another meaning."""
    text = bare(gold)
    number = value(gold)
    for phrase in WRONG_PHRASES:
        if number == 0 and phrase in (
            "minus {}",
            "negative {}",
            "-({})",
            "half of {}",
            "twice {}",
            "{} squared",
            "{} thousand",
            "{} cubed",
            "the square root of {}",
            "three times {}",
            "the opposite of {}",
        ):
            continue
        if number == 1 and phrase in (
            "{} squared",
            "{} cubed",
            "the square root of {}",
            "({})!",
            "1/({})",
            "the reciprocal of {}",
        ):
            continue
        if phrase == "({})!" and re.fullmatch(r"[A-Za-z. ]+", text):
            continue  # an exclamation
        if number == 2 and phrase == "({})!":
            continue
        yield phrase, phrase.format(text)


def writings(gold):
    """Yield the same answer in other writings."""
    text = bare(gold)
    yield "as it is", gold
    yield "boxed", rf"\boxed{{{text}}}"
    yield "boxed in a sentence", rf"Adding up, the answer is \boxed{{{text}}}. I am sure."
    yield "in dollars", f"${text}$"
    yield "in display brackets", rf"\[ {text} \]"
    yield "in round brackets", rf"So \boxed{{\({text}\)}}"
    yield "full stop", rf"\boxed{{{text}.}}"
    yield "bold", f"**{text}**"
    yield "the answer is", rf"\boxed{{The answer is {text}}}"
    yield "the answer is $", rf"The answer is ${text}$."
    yield "final answer", rf"Some work.\nFinal Answer: ${text}$".replace(r"\n", "\n")
    yield "text inside", rf"\boxed{{\text{{The answer is }} {text}}}"
    if re.search(r"[=+,]", text) and not re.search(r"\d,\d{3}(?!\d)", text):
        yield "spaced", re.sub(r"([=+,])", r" \1 ", text)
    if "\\" in text:
        yield "unspaced", re.sub(r"(?<=[^a-zA-Z\d}]) | (?=[^a-zA-Z\d])", "", text)
    if r"\frac" in text:
        yield "dfrac", text.replace(r"\frac", r"\dfrac")
        yield "tfrac", text.replace(r"\frac", r"\tfrac")
    if "(" in text and not re.search(r"[\[\]]|\\left|\([a-z]{2}", text):
        yield "left and right", text.replace("(", r"\left(").replace(")", r"\right)")
    whole = re.fullmatch(r"-?\d+", text)
    if whole:
        yield "decimal", text + ".0"
        yield "thousands", f"{int(text):,}"
        yield "thin spaces", f"{int(text):,}".replace(",", r"\,")
        yield "braces", f"{{{text}}}"
        yield "named", f"x = {text}"
        yield "therefore", rf"\boxed{{Therefore x is {text}}}"
        yield "cm", text + r" \text{ cm}"
        yield "dollars", text + " dollars"
        yield "$", rf"\${text}"
        yield "apples", text + " apples"
        yield "square units", text + r" \text{ square units}"
        yield "equals", rf"\boxed{{= {text}}}"
        yield "it is", f"It is {text}."
        yield "there are", f"Therefore, there are {text} apples."
        yield "people", rf"\boxed{{{text} \text{{ people}}}}"
        yield "per day", f"{text} dollars per day"
    fraction = re.fullmatch(r"\\frac\{(\d+)\}\{(\d+)\}", text)
    if fraction:
        top, below = int(fraction[1]), int(fraction[2])
        yield "slash", f"{top}/{below}"
        yield "expanded", rf"\frac{{{3 * top}}}{{{3 * below}}}"
        yield "named", rf"x = \frac{{{top}}}{{{below}}}"
        yield "decimal", f"{top / below:.8f}"
    measured = re.fullmatch(r"(-?[\d.]+) \((.+)\)", text)
    if measured:
        number, unit = measured.groups()
        yield "number", number
        yield "decimal", number + ("0" if "." in number else ".0")
        yield "number and unit", f"{number} {unit}"
        yield "unit in text", rf"{number} \text{{ {unit}}}"
        yield "sentence", f"There are {number} {unit}."
        yield "dollar", rf"\${number}" if unit.startswith("dollar") else number
    name = re.match(r"[a-zA-Z](?:\([a-z]\))?\s*=(?!.*=)(?!.*,)", text)
    if name and "," not in text:
        yield "without its name", text[name.end() :].strip()
    variable = re.search(r"(?<![a-zA-Z\\{])[a-z](?![a-zA-Z'])", text)
    if variable and not re.search(
        r"[=<>,\[%]|p\.m|(?<!\\)\b[a-z]{4}|[a-zA-Z]{3} |\\(?:geq|leq|land|frac\{d|text)|\([a-z]{2}", text
    ):
        yield "sum with zero", f"{text}+0"
