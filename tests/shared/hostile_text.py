"""Texts that a model may write to break who reads them: fixed ones, and more by a seeded generator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random

EVIDENCE = "ran"
"""The file that appears in the working folder if anybody evaluates one of the `programs`."""

PROGRAMS = (f"open('{EVIDENCE}','w').close()", f"__import__('pathlib').Path('{EVIDENCE}').touch()")


def programs(reference: str) -> Iterator[str]:
    """Yield Python that leaves evidence if it is evaluated, in the forms in which answers are written."""
    for code in PROGRAMS:
        yield from (code, f"[{code}]", f"({code})", f"x + {code}", f"{{1: {code}}}", f"[[{code}]]")
        yield from (f"{reference} or {code}", f"[{reference}, {code}]", f"{code}\n{reference}")
        yield f"{reference} if {code} else {reference}"
        yield json.dumps({"a": code})


def nested(opening: str, closing: str, depth: int, inside: str = "1") -> str:
    """Return `inside` in `depth` brackets."""
    return opening * depth + inside + closing * depth


DEEP = (
    nested("[", "]", 150),
    nested("[", "]", 700),
    nested("[", "]", 100_000),
    nested("(", ")", 90),
    nested("(", ")", 5000),
    nested("{", "}", 1500),
    nested('{"a":', "}", 700),
    "[" * 1_000_000,
    "{" * 1000 + "}" * 999,
    nested(r"\frac{", "}{2}", 300),
    nested(r"\sqrt{", "}", 900),
    nested(r"\left(", r"\right)", 900),
    nested("sin(", ")", 80, "x"),
    "-" * 5000 + "1",
    "~" * 4000 + "1",
    "not " * 1000 + "1",
    "lambda:" * 500 + "1",
    "1+" * 3000 + "1",
    "x**" * 900 + "1",
    nested("<answer>", "</answer>", 2000),
    r"\boxed{" * 3000 + "7",
    nested("<tool_call>", "</tool_call>", 500, '{"name": "x", "arguments": {}}'),
)

NUMBERS = (
    *("9**9**9**9", "9^9^9^9", "10^{10^{10^{10}}}", "1e999999999", "-1e400", "1e-999999999", "99999999!"),
    *(
        "9" * 4000,
        "9" * 5000,
        "-" + "9" * 5000,
        "0." + "3" * 5000,
        "1_0" * 1000,
        "1e9_9_9_9",
        "0x" + "f" * 4000,
    ),
    *(
        "nan",
        "-nan",
        "inf",
        "-Infinity",
        "NaN",
        "1/0",
        "0/0",
        r"\frac{1}{0}",
        "1j",
        "nan+nanj",
        "True",
        "null",
    ),
    *("٣", "１２", "²", "½", "३.५", "1e٣", "٣/٤", "1٣", "𝟙𝟚", "Ⅷ", "一", "१०० ٣", "߁", "③"),
    *(
        "[NaN]",
        "[1e308, 1e308]",
        "1 " * 2000,
        "1," * 2000,
        "-0",
        "+7",
        "7.",
        ".",
        "e",
        "1e",
        "--1",
        "1e+",
        "0b2",
    ),
)

TEXTS = (
    *(
        "",
        " ",
        "\n" * 5000,
        "\0",
        "a\0b",
        "\ud800",
        "\udfff\ud800",
        "x\ud83d",
        "\x1b[2J\x07",
        "\u202e123",
        "\ufeff",
    ),
    *("é" * 3000, "e" + "\u0301" * 3000, "\u2028\u2029\x85\x0b\x0c\x1c", "🏳️‍🌈" * 300, "\U0010ffff", "\r\n\r"),
    *(
        "%n%s%d" * 200,
        "{0.__class__.__mro__}",
        "{}{0}{a}",
        "$(id)",
        "`id`",
        "'; DROP TABLE t; --",
        "../../etc/passwd",
    ),
    *("a" * 1_000_000, "a " * 300_000, "\t" * 5000 + "a", "\\" * 3001, "$" * 3001, "'" * 3001, '"""' * 500),
    *(
        r"\frac{1",
        r"\frac",
        r"\sqrt[",
        r"\boxed",
        r"\boxed{",
        r"\boxed{}}",
        r"\begin{pmatrix}1&2\\",
        r"\left(",
        r"\text{",
    ),
    *(
        "<answer>",
        "</answer>",
        "<answer></answer>",
        "<|im_end|>",
        "```",
        "```python",
        "```\n```\n```",
        "~~~",
        "<tool_call>",
    ),
    *('<tool_call>{"name": 7}</tool_call>', '<tool_call>{"name": "a", "arguments": "x"}</tool_call>'),
    *('<tool_call>{"name": "a", "arguments": {"a": NaN}}</tool_call>', "<tool_call>[]</tool_call>"),
    *(
        "[",
        "]",
        "}{",
        "null",
        "[]",
        "{}",
        '""',
        "[null]",
        '{"a": null}',
        "[[1, 2], [3]]",
        "(,)",
        "1;2",
        "|",
        "^",
        "_",
    ),
    *(
        "up",
        "A1",
        "a1b2",
        "0 0 0",
        "-1 -1",
        "99999999999999999999 1",
        "[0 0]",
        "[99 99]",
        "[-1, 7]",
        "<submit/>",
    ),
)

_PIECES = (
    *(
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        "<",
        ">",
        "|",
        "\\",
        "^",
        "_",
        "$",
        "&",
        "%",
        "#",
        "~",
        "`",
        '"',
        "'",
        ",",
        ";",
        ":",
    ),
    *(
        r"\frac{",
        r"\sqrt{",
        r"\boxed{",
        r"\text{",
        r"\left",
        r"\right",
        r"\pm",
        r"\infty",
        r"\begin{cases}",
        r"\binom{",
    ),
    *(
        "<answer>",
        "</answer>",
        "<tool_call>",
        "</tool_call>",
        "<python>",
        "</python>",
        "```python\n",
        "```\n",
        "<submit/>",
    ),
    *(
        "SELECT ",
        " FROM ",
        " WHERE ",
        "--",
        "/*",
        "*/",
        "UNION ALL ",
        "x'",
        "import os\n",
        "lambda: ",
        "**",
        "//",
        "==",
        "!=",
    ),
    *(
        "\0",
        "\ud800",
        "\u202e",
        "\u0301",
        "\ufeff",
        "\x1b",
        "\r\n",
        "\n",
        "\t",
        " ",
        "\x85",
        "٣",
        "½",
        "²",
        "𝟙",
        "Ⅷ",
        "ß",
        "İ",
    ),
    *(
        "nan",
        "inf",
        "1e999",
        "9" * 30,
        "0",
        "-1",
        "7",
        "1/0",
        "0x1f",
        "1_000",
        "True",
        "null",
        "9^9^9",
        "99!",
        "x",
        "A",
        "e",
        "i",
    ),
)


def generated(seed: int, count: int) -> Iterator[str]:
    """Yield `count` texts of random pieces, some long and some repeated."""
    rng = Random(seed)
    for _ in range(count):
        pieces = [rng.choice(_PIECES) for _ in range(rng.choice((1, 3, 9, 30)))]
        text = "".join(pieces) * rng.choice((1, 1, 1, 2, 400))
        yield (
            rng.choice(("{}", "\\boxed{{{}}}", "<answer>{}</answer>", "```python\n{}\n```", "{}\\boxed{{"))
            .replace("{}", text, 1)
            .replace("{{", "{")
            .replace("}}", "}")
        )


def every_text(reference: str = "7") -> Iterator[str]:
    """Yield all texts of this module, bare."""
    yield from programs(reference)
    yield from (*DEEP, *NUMBERS, *TEXTS)
