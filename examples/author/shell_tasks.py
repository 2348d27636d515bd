"""Terminal tasks that one short command solves, with a held-out split, and an expert that plays the model.

docs/guides/programs_played.md trains SmolLM2 on them, through smolagents.
"""

import random
import re

from gem.agents.scripted import ScriptedAgent
from gem.content import text_of
from gem.envs.terminal.base import WORDS, TerminalTask, expect
from gem.envs.terminal.env import TerminalEnv
from gem.record import Ask

KINDS = (
    ("Copy {a} to {b}.", "cp {a} {b}", lambda lines, word: lines),
    ("Write the first line of {a} to {b}.", "head -n 1 {a} > {b}", lambda lines, word: lines[:1]),
    ("Write the last line of {a} to {b}.", "tail -n 1 {a} > {b}", lambda lines, word: lines[-1:]),
    ("Write the number of lines of {a} to {b}.", "wc -l < {a} > {b}", lambda lines, word: [str(len(lines))]),
    ("Write the lines of {a} with {w} to {b}.", "grep {w} {a} > {b}", lambda lines, word: grep(lines, word)),
    ("Write the sorted lines of {a} to {b}.", "sort {a} > {b}", lambda lines, word: sorted(lines)),
    ("Write the lines of {a} in reverse order to {b}.", "tac {a} > {b}", lambda lines, word: lines[::-1]),
    ("Write the words {w} {v} to {b}.", "echo {w} {v} > {b}", None),
)
"""What is asked, the command that does it, and what is then in the file, of the lines of the other one."""


def grep(lines: list[str], word: str) -> list[str]:
    """Return the lines with a word."""
    return [line for line in lines if word in line]


class ShellTasks(TerminalEnv):
    """Tasks of eight kinds, about half of the words."""

    words = WORDS[::2]

    def __init__(self) -> None:
        """State one turn."""
        super().__init__("FindText", max_turns=1)

    def choose_task(self) -> TerminalTask:
        """Return the task of the episode's seed; see TerminalEnv.choose_task."""
        return make_task(self.rng, self.words)

    def instance(self) -> str:
        """Return what tells the task from others, as training keeps some apart for its measurements."""
        return "" if self.task is None else self.task.instruction


class HeldOutTasks(ShellTasks):
    """The same kinds, about the other half: no file name or word is in a task of ShellTasks."""

    words = WORDS[1::2]


def make_task(rng: random.Random, words: list[str]) -> TerminalTask:
    """Draw a task."""
    a, b, w, v, *rest = rng.sample(words, 16)
    given = {"a": f"{a}.txt", "b": f"{b}.txt", "w": w, "v": v}
    lines = [" ".join(rng.sample(rest, 2)) for _ in range(rng.randint(3, 6))]
    lines[rng.randrange(len(lines))] += f" {w}"
    asked, command, wanted = rng.choice(KINDS)
    answer = [f"{w} {v}"] if wanted is None else wanted(lines, w)
    files = {given["a"]: "".join(f"{line}\n" for line in lines).encode()}
    return TerminalTask(
        asked.format(**given),
        expect(given["b"], "\n".join(answer)),
        command.format(**given),
        files=files,
        looks=("ls",),
    )


def solve(ask: Ask) -> str:
    """Return the expert's answer to the program of program_smolagents.py."""
    text = text_of(ask.messages[-1].content)
    for asked, command, _ in KINDS:
        pattern = re.sub(r"\\{(\w)\\}", r"(?P<\1>[\\w.]+)", re.escape(asked))
        if match := re.search(pattern, text):
            return f'<code>\nfinal_answer(bash("{command.format(**match.groupdict())}"))\n</code>'
    raise LookupError(text)


EXPERT = ScriptedAgent(solve)
