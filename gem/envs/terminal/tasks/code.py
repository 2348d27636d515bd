"""Tasks on programs: a build to write, a package to repair."""

from __future__ import annotations

import json
from importlib.resources import files as resources
from random import Random
from typing import Any

from gem.envs.terminal.base import WORDS, Machine, TerminalTask, sentence
from gem.envs.terminal.tasks import textkit
from gem.envs.terminal.tasks.texts import instruction, program, solution

_TEST_S = 15.0  # of a command of a test, which needs less than one; the agent's programs may never end


def makefile(rng: Random, hard: bool) -> TerminalTask:
    """Write the makefile of a small build."""
    texts = {
        f"src/{name}.in": f"{sentence(rng, 5)}\n{sentence(rng, 3)}\n"
        for name in rng.sample(WORDS, 8 if hard else 3)
    }
    command, does, change = rng.choice(
        [
            ("tr a-z A-Z", "in upper case", str.upper),
            ("tac", "with its lines in reverse order", lambda text: "".join(text.splitlines(True)[::-1])),
            ("sed 's/^/> /'", "with '> ' before each line", _quote_lines),
        ]
    )
    texts = {path: text.lower() for path, text in texts.items()}

    def outcome(sources: dict[str, str]) -> dict[str, str]:
        built = {f"build/{path[4:-3]}.txt": change(text) for path, text in sources.items()}
        return {**built, "build/all.txt": "".join(built[name] for name in sorted(built))}

    first = min(texts)
    later = {**texts, first: "changed later\n"} | ({"src/zz.in": "new\n"} if hard else {})

    def check(machine: Machine) -> str:
        if {path: machine.text(path) for path in texts} != {
            path: text.strip() for path, text in texts.items()
        }:
            return "a source was changed"
        machine.run("rm -rf build")
        for sources in (texts, later):
            for path, text in sources.items() - texts.items():
                machine.write_file(path, text.encode())
            if sources is later:
                machine.run(
                    "touch -d '+2 seconds' src/*.in"
                )  # newer than the build, even with a coarse clock
            if not machine.run("make").ok:
                return "make fails"
            for path, text in outcome(sources).items():
                if (machine.read(path) or b"").decode(errors="replace") != text:
                    return f"{path} is wrong{' after a change' if sources is later else ''}"
            if sources is texts and machine.run("make -q").exit_code != 0:
                return "a second make would build again"
        return ""

    new = " A file added to src/ later must be built too, without a change to the Makefile." if hard else ""
    return TerminalTask(
        instruction("makefile", does=does, command=command, new=new),
        check,
        solution("makefile", command=command.replace("'", "\\'")),
        {path: text.encode() for path, text in texts.items()}
        | {"Makefile": b"all:\n    @echo to be written\n"},
        looks=("cat Makefile", "ls src", "make"),
        test_s=_TEST_S,
    )


def _quote_lines(text: str) -> str:
    return "".join(f"> {line}\n" for line in text.splitlines())


_DEFECTS: dict[str, tuple[tuple[str, str], ...]] = {
    "wrap": (("+ 1 + len(word) <= width", "+ len(word) <= width"), ("<= width", "< width")),
    "roman": (('(900, "CM"), ', ""), ("number >= value", "number > value"), ('(4, "IV"), ', "")),
    "merge_ranges": (("max(merged[-1][1], last)", "last"), ("merged[-1][1] + 1", "merged[-1][1]")),
    "run_lengths": (("len(text) + 1)", "len(text))"), ("index - start]", "index - start + 1]")),
    "most_common": (
        ("(-seen[word], word)", "-seen[word]"),
        ("seen.get(word.lower(), 0)", "seen.get(word, 0)"),
    ),
    "parse_duration": (('            digits = ""\n', ""), ('"m": 60', '"m": 100')),
    "justify": (("index < blanks % gaps", "index <= blanks % gaps"), ("words[0].ljust(width)", "words[0]")),
}
"""Defects by function: the original text, and the text that replaces it in a repository."""


def patch_repo(rng: Random, hard: bool) -> TerminalTask:
    """Repair a Python package until its hidden tests pass."""
    source = resources("gem.envs.terminal.tasks").joinpath("textkit.py").read_text(encoding="utf-8")
    broken = source.partition("\n\n\n")[2]
    broken = f'"""Small text functions."""\n\n\n{broken}'
    names = rng.sample(sorted(_DEFECTS), 3 if hard else 1)
    mend = []
    for name in names:
        good, bad = rng.choice(_DEFECTS[name])
        start = broken.index(f"def {name}(")
        end = broken.find("\n\n\ndef ", start)
        end = len(broken) if end < 0 else end
        body = broken[start:end]
        broken = broken[:start] + body.replace(good, bad, 1) + broken[end:]
        mend.append((body.replace(good, bad, 1), body))
    cases = [(name, args) for name in sorted(_DEFECTS) for args in _cases(name, rng, 12)]
    wanted = [getattr(textkit, name)(*args) for name, args in cases]
    examples = [next(case for case in cases if case[0] == name) for name in sorted(_DEFECTS)]
    tests = ["import unittest", "", "from textkit import core", "", "", "class Examples(unittest.TestCase):"]
    for name, args in examples:
        answer = getattr(textkit, name)(*args)
        call = f"core.{name}({', '.join(map(repr, args))})"
        tests += [f"    def test_{name}(self):", f"        self.assertEqual({call}, {answer!r})", ""]

    def check(machine: Machine) -> str:
        machine.write_file(".cases", json.dumps(cases).encode())
        machine.write_file(".call", program("call"))
        done = machine.run("cd repo && python3 -I ../.call < ../.cases")
        try:
            given = json.loads(done.stdout.splitlines()[-1])
        except (ValueError, IndexError, RecursionError):
            return "the package cannot be called"
        if not isinstance(given, list) or len(given) != len(wanted):
            return "the package cannot be called"
        for (name, args), answer, right in zip(cases, given, wanted, strict=True):
            if answer != right or json.dumps(answer) != json.dumps(right):
                return f"{name}{tuple(args)!r:.100} gives {answer!r:.60}"
        return ""

    script = "python3 - <<'END'\nimport pathlib\npath = pathlib.Path('repo/textkit/core.py')\n"
    script += "text = path.read_text()\n"
    script += "".join(f"text = text.replace({bad!r}, {good!r})\n" for bad, good in mend)
    how = "several defects" if hard else "a defect"
    return TerminalTask(
        instruction("patch_repo", how=how),
        check,
        f"{script}path.write_text(text)\nEND",
        {
            "repo/textkit/__init__.py": b"",
            "repo/textkit/core.py": broken.encode(),
            "repo/tests/__init__.py": b"",
            "repo/tests/test_examples.py": "\n".join(tests).encode(),
        },
        looks=("ls -R repo", "cd repo && grep -n '^def' textkit/core.py; cd .."),
        test_s=_TEST_S,
    )


def _cases(name: str, rng: Random, count: int) -> list[list[Any]]:
    """Return arguments for one of textkit's functions; the last ones reveal each of its defects."""
    made: list[Any] = []
    for _ in range(count):
        words = [rng.choice(WORDS) for _ in range(rng.randint(2, 9))]
        made.append(
            {
                "wrap": [" ".join(words), rng.randint(5, 24)],
                "roman": [rng.randint(1, 3999)],
                "merge_ranges": [sorted([a, a + rng.randint(0, 9)] for a in rng.sample(range(60), 6))],
                "run_lengths": ["".join(rng.choice("ab") for _ in range(rng.randint(1, 12)))],
                "most_common": [
                    [rng.choice([word, word.upper()]) for word in words + words[:3]],
                    rng.randint(1, 4),
                ],
                "parse_duration": [f"{rng.randint(1, 9)}h{rng.randint(0, 59)}m{rng.randint(0, 59)}s"],
                "justify": [words[:4], 45],
            }[name]
        )
    telling: dict[str, list[list[Any]]] = {
        "wrap": [["aaa bbb", 7], ["aaa bbb", 6]],
        "roman": [[944], [1], [4], [1994]],
        "merge_ranges": [[[[1, 9], [2, 3]]], [[[1, 3], [4, 5]]]],
        "run_lengths": [["aab"], ["b"]],
        "most_common": [[["b", "a", "c"], 2], [["A", "a", "b", "A", "b", "b", "b"], 2], [["B", "a", "B"], 1]],
        "parse_duration": [["1h30m"], ["2m5s"]],
        "justify": [[["a", "b", "c"], 6], [["a"], 3]],
    }
    return made + telling[name]
