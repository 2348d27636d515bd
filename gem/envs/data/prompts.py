"""What the agent reads of a row: the question, its choices, examples, or a prompt of the user's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any, NamedTuple

from gem.content import Image, Obs, Text, join, text_of
from gem.errors import BadArgument, did_you_mean
from gem.tasks.base import Task
from gem.tasks.sources import as_context, cell, has_cell

MOST_EXAMPLES = 100
"""The most examples in a prompt: a file with more is a data set that was named by mistake."""

_FIELD = re.compile(r"\{\{|\}\}|\{([A-Za-z_][\w.]*)\}")


class Example(NamedTuple):
    """An example: what it asks (see `identify`), and its question and answer as they are shown."""

    asked: tuple[str, list[Image]]
    question: str
    answer: str


@dataclass(frozen=True)
class Prompt:
    """A prompt: a template or None, and examples.

    `question` is the column of the question, `hidden` are the columns that the prompt may not show, and
    `context` is the column of a context that the template fills in by itself.

    In a template ``{question}``, ``{choices}`` and any column in braces are filled in; ``{{`` and ``}}`` are
    braces. Without a template it is the question, its choices, and the form of an answer.
    """

    template: str | None = None
    question: str = "question"
    hidden: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()
    context: str | None = None

    @property
    def fields(self) -> list[str]:
        """The names in braces."""
        return [match[1] for match in _FIELD.finditer(self.template or "") if match[1]]

    def check(self, row: Mapping[str, Any]) -> None:
        """Refuse a template that shows an answer, nothing of a row, or what is not in a row.

        Raises:
            BadArgument: with the name in braces.
        """
        if self.template is None:
            return
        if not self.fields:
            raise BadArgument(
                f"the prompt {self.template!r:.80} shows nothing of a row; put {{question}} or a column's "
                "name in braces into it."
            )
        for name in self.fields:
            if self._shows_hidden(name):
                raise BadArgument(
                    f"the prompt would show the answer, {{{name}}}. For the text itself double the braces: "
                    f"{{{{{name}}}}}."
                )
            if name not in ("question", "choices") and not has_cell(row, name):
                columns = (str(each) for each in row if not self._shows_hidden(str(each)))
                known = dict.fromkeys(("question", "choices", *columns))
                raise BadArgument(
                    f"the prompt names {{{name}}}, which is no column.{did_you_mean(name, known)} Accepted: "
                    f"{', '.join(known)}. For the text itself double the braces: {{{{{name}}}}}."
                )

    def describe(self, choices: str | None) -> str:
        """Return a sentence of the template and what it leaves out; `choices` is the column of choices."""
        if self.template is None:
            return ""
        visible = {part for name in self.fields for part in (name, name.split(".")[0])}
        parts = {"question": {"question", self.question}}
        if choices is not None:
            parts["choices"] = {"choices", choices, *choices.split("+")}
        left_out = [f"the {name} ({{{name}}})" for name, names in parts.items() if not names & visible]
        return " The prompt is yours" + (f"; it does not show {' and '.join(left_out)}." if left_out else ".")

    def _shows_hidden(self, name: str) -> bool:
        """Return whether a column is hidden, is in a hidden one, or has one in it."""
        return any(f"{name}.".startswith(f"{each}.") or each.startswith(f"{name}.") for each in self.hidden)

    def show(self, task: Task, choices: Sequence[str], form: str) -> Obs:
        """Return the prompt of a task; `form` says what an answer looks like."""
        asked = self._write_question(task, choices, form)
        context = self.context and cell(task.info, self.context)
        row = identify(task.question, choices, as_context(context or "", str(self.context)))
        shots = [
            f"Example {number}\n\n{example.question}\n\n{example.answer}"
            for number, example in enumerate(self.examples, 1)
            if example.asked != row  # an example that is asked would be answered
        ]
        return join([*shots, "Now your question", asked], "\n\n") if shots else asked

    def _write_question(self, task: Task, choices: Sequence[str], form: str) -> Obs:
        if self.template is None:
            return join([task.question, list_choices(choices), form], "\n\n")
        pieces: list[Obs] = []
        end = 0
        for match in _FIELD.finditer(self.template):
            pieces.append(self.template[end : match.start()])
            pieces.append(self._fill_field(match[0], match[1], task, choices))
            end = match.end()
        filled = join([*pieces, self.template[end:]], "")
        if isinstance(filled, str):
            return filled
        return tuple(part for part in filled if not isinstance(part, Text) or part.text.strip())

    def _fill_field(self, written: str, name: str | None, task: Task, choices: Sequence[str]) -> Obs:
        if name is None:
            return written[0]
        if name in ("question", self.question):
            return task.question
        return list_choices(choices) if name == "choices" else _in_words(cell(task.info, name))


def _in_words(value: Any) -> str:
    """Return a cell as text; a list of texts as lines."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return "\n".join(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def list_choices(choices: Sequence[str]) -> str:
    """Return options as lines: ``A. text``."""
    return "\n".join(f"{letter}. {text}" for letter, text in zip(ascii_uppercase, choices, strict=False))


def show_question(task: Task, choices: Sequence[str]) -> Obs:
    """Return a question with its options."""
    return join([task.question, list_choices(choices)], "\n\n")


def identify(question: Obs, choices: Sequence[str], context: str = "") -> tuple[str, list[Image]]:
    """Return the words and pictures of a question, which are the same in any order of its choices."""
    whole = join([context, question, *sorted(choices)])
    return "".join(text_of(whole).split()), [part for part in whole if isinstance(part, Image)]


def show_answer(raw: Any, written: str) -> str:
    """Return the answer of an example: a solution that ends in ``#### 5`` keeps its steps."""
    if isinstance(raw, str) and "####" in raw:
        return f"{raw.rpartition('####')[0].strip()}\n{written}"
    return written


def read_examples(count: int, pair: Callable[[int], Example], name: str) -> tuple[Example, ...]:
    """Return the examples of a data set, each made by `pair`.

    Raises:
        BadArgument: for too many.
    """
    if count > MOST_EXAMPLES:
        raise BadArgument(
            f"{name} has {count} examples; accepted: up to {MOST_EXAMPLES}. Make a file of those to show."
        )
    return tuple(map(pair, range(count)))
