r"""DataEnv: the rows of a file, a folder or a data frame as tasks, with a grader by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from string import ascii_uppercase
from typing import Any, ClassVar, cast

from gem.content import Obs, text_of
from gem.core import Step
from gem.envs.code.env import FENCE, SOLUTIONS, fence_code, reference_solution, what_to_write
from gem.envs.data.prompts import Example, Prompt, identify, read_examples, show_answer, show_question
from gem.envs.data.reading import merge_rows, read_tasks
from gem.envs.kit.dataset import DatasetEnv
from gem.errors import BadArgument, GemError, MissingData, NoSolver
from gem.graders import GIVEN, MADE
from gem.graders.base import Grader
from gem.graders.choice import options, read_choices, shuffle
from gem.graders.functions import FunctionGrader, class_of
from gem.graders.rubric import Rubric
from gem.seeding import stream
from gem.tasks.base import Task
from gem.tasks.columns import Columns, parse_columns
from gem.tasks.sources import RowTasks, Source, digest_of, find

TARGET_AT_MOST = 300
"""The most characters of the right answer that an info has."""


class DataEnv(DatasetEnv):
    r"""Answer a question of your own data.

    Task:
        A row of a file, a folder or a data frame (`data`). The columns are found by their names, or named
        (`columns`). A seed is a position in the walk through the rows: seeds 0 to n - 1 are the n rows, each
        once. ``reset(idx=i)`` takes row `i`.
    Action:
        Any text. Most graders read the content of the last ``\boxed{}``, or else what the reply says is its
        answer. The grader code reads the last fenced code block. A judge and a function get the whole reply.
    Observation:
        The question, its choices, and how to answer; or `prompt`, filled in. `few_shot` examples stand
        before it.
    Reward:
        The grader's score from 0 to 1: 1 for a right answer.
    End:
        With the right answer, or when the attempts are used up: by default, after one.
    Source:
        The data's.
    """

    shared: ClassVar[tuple[str, ...]] = ("prompt", "columns", "_row")

    def __init__(
        self,
        name: str = "text",
        data: Source | None = None,
        grader: Any = None,
        columns: Mapping[str, str] | str | None = None,
        split: str | None = None,
        prompt: str | None = None,
        few_shot: Source | None = None,
        digest: str | None = None,
        seed: int = 0,
        *,
        max_attempts: int = 1,
        retry_discount: float = 1.0,
        use_format_error_reward: bool = False,
        shuffle_choices: bool = False,
    ) -> None:
        """Set the data and how answers are graded.

        Args:
            name: the kind of grader: one of `gem.graders.MADE`, judge or function.
            data: a file, a folder, a data set's name, rows, or a data frame.
            grader: the grader of the kind `judge` or `function`: a `JudgeByName`, any grader, or a function
                of answer and reference. Of another kind, a grader in its place, such as a `Rubric`; the
                kind then says how rows are read and what an answer looks like.
            columns: the columns that are not found by their names, as ``{"question": "q", "answer": "a"}``.
            split: the split; None if there is only one.
            prompt: a text in which ``{question}``, ``{choices}`` and any column in braces are filled in.
            few_shot: examples with answers, in the same forms as `data`.
            digest: of the data, as `digest_of` returns it; other data is refused. Rows with a digest were
                checked when it was made, and are not checked again.
            seed: the seed of the row order.
            max_attempts: how often the agent may answer.
            retry_discount: the factor on the reward for each attempt before a right one.
            use_format_error_reward: whether an unreadable answer earns a penalty.
            shuffle_choices: show the choices in an order that the episode's seed draws; see
                `gem.graders.choice.shuffle`.

        Raises:
            MissingData: when there is no such data.
            BadArgument: for columns that are not found, and for bad rows: all are listed.
        """
        if data is None:
            raise MissingData(f"data:{name} needs your data: gem.make('data:{name}', data='FILE').")
        if digest is not None and isinstance(data, str | Path) and digest != digest_of(data, few_shot):
            sources = [str(each) for each in (data, few_shot) if isinstance(each, str | Path)]
            for source in sources:
                if find(source) is None and (len(sources) == 1 or Path(source).suffix):  # not the hub's
                    raise MissingData(
                        f"there is no {source} in the working folder {Path.cwd()}, nor in GEM_DATA; run this "
                        "where the data is."
                    )
            raise BadArgument(
                f"{data} has changed since its digest {digest} was taken. Restore it, or begin anew, with "
                "another --out."
            )
        given = parse_columns(columns) if isinstance(columns, str) else dict(columns or {})
        if shuffle_choices and name != "choice":
            raise BadArgument(f"data:{name} cannot shuffle choices; accepted: data:choice.")
        self.kind, self._class, self.shuffle_choices = name, class_of(name), shuffle_choices
        tasks, self.columns = read_tasks(data, split, given, name, grader)
        if digest is None:
            tasks.check()
        super().__init__(
            tasks,
            _grader(name, grader),
            max_attempts=max_attempts,
            retry_discount=retry_discount,
            use_format_error_reward=use_format_error_reward,
            order_seed=seed,
        )
        hidden = (self.columns.answer or "", *(SOLUTIONS if name == "code" else ()))
        path = getattr(tasks.rows, "path", None)
        here = not isinstance(data, str | Path) or Path(data).expanduser().exists()
        self._elsewhere = "" if here or path is None else f" in {path}"
        self.prompt = Prompt(prompt, self.columns.question, tuple(filter(None, hidden)))
        self._row = merge_rows(tasks.rows, tasks.name, self.columns.images)
        self.prompt.check(self._row)
        if few_shot is not None:
            self.prompt = replace(self.prompt, examples=self._examples(few_shot, given))
        if self.columns.context in self.prompt.fields:
            self._tasks = replace(tasks, context_key=None)
            self.prompt = replace(self.prompt, context=self.columns.context)

    @property
    def about(self) -> str:
        """What was understood of the data, as a paragraph."""
        right = self._class.criterion
        how = f"Grader {self.kind}: right is {right}" if right else f"Grader {_name(self.grader)}"
        if isinstance(self.grader, Rubric):
            how = self.grader.about
        rows = f"{len(self.tasks)} row{'s' * (len(self.tasks) != 1)}{self._elsewhere}"
        understood = self.columns.describe(self._row)
        more = self.prompt.describe(self.columns.choices)
        if self.prompt.examples:
            more += f" {len(self.prompt.examples)} examples stand before each question."
        if isinstance(self.tasks, RowTasks) and (repeats := self.tasks.warn_of_ids()):
            more += f" {repeats}"
        return f"{self.tasks.name}: {rows}. {understood[0].upper()}{understood[1:]}. {how}.{more}"

    @property
    def task(self) -> Task:
        """The task of the running episode; its choices stand in the order that is shown."""
        task = super().task
        if not self.shuffle_choices:
            return task
        return replace(task, reference=shuffle(task.reference, stream(self._first_seed, "choices")))

    def show(self, task: Task) -> Obs:
        """Return the prompt of a row."""
        return self.prompt.show(task, self._choices(task, self.columns), self._form(task))

    def step(self, action: str) -> Step:
        """Grade an answer; the last info has the right answer in short as ``target``."""
        step = super().step(action)
        if step.done and self.kind != "code" and self.answer is not None:
            with suppress(
                GemError, LookupError, TypeError, ValueError
            ):  # a function's reference may be anything
                written = self.write_answer(self.answer)
                if written.startswith("\\boxed{"):
                    written = written[len("\\boxed{") : -1]
                step.info["target"] = written[:TARGET_AT_MOST]
        return step

    def refusal(self) -> str:
        """Return what the agent reads after an answer that could not be read."""
        return f"Your answer could not be read. {self._form(self.task)}".strip()

    def write_answer(self, reference: Any) -> str:
        """Return a reference as an answer in the required form."""
        return self._class.write_answer(reference)

    def guess(self) -> str:
        """Return a guess: a letter, or the answer of another row."""
        if self.kind == "choice":
            letter = ascii_uppercase[self.actor_rng.randrange(len(self.answer["choices"]))]
            return f"\\boxed{{{letter}}}"
        other = self.tasks[self.actor_rng.randrange(len(self.tasks))]
        if self.kind == "code":
            return fence_code(reference_solution(other) or "print()")
        return self.write_answer(other.reference)

    def solve(self) -> str:
        """Return the reference answer, which the agent does not see (an oracle).

        Raises:
            NoSolver: if the data has none.
        """
        if self.kind == "code":
            if (solution := reference_solution(self.task)) is None:
                raise NoSolver(f"{self} has no solver: its data has no column {' or '.join(SOLUTIONS)}.")
            return fence_code(solution)
        if self.answer is None:
            raise NoSolver(f"{self} has no solver: its data has no answers.")
        return self.write_answer(self.answer)

    @property
    def answer_marks(self) -> tuple[str, ...]:  # type: ignore[override]
        """The fence of code, or the tag that graders of other answers read."""
        return ("```python" if self.kind == "code" else "<answer>",)

    def _form(self, task: Task) -> str:
        """Return the sentence about the form of an answer."""
        if self.kind != "code":
            return self._class.answer_form
        return f"{what_to_write(task.reference)} {FENCE}"

    def _choices(self, task: Task, columns: Columns) -> Sequence[str]:
        if self.kind == "choice":
            return tuple(task.reference["choices"])
        if columns.choices is None:
            return ()
        return tuple(read_choices(options(task.info, columns.choices))[0])

    def _examples(self, few_shot: Source, given: Mapping[str, str]) -> tuple[Example, ...]:
        if self.columns.first is not None:
            given = {**given, "first": self.columns.first}
        tasks, columns = read_tasks(few_shot, None, given, self.kind)
        tasks.check()
        raw = replace(tasks, read=None)

        def pair(index: int) -> Example:
            task = tasks[index]
            choices = self._choices(task, columns)
            if self.kind == "code":
                answer = fence_code(reference_solution(task) or "")
            else:
                answer = show_answer(raw.reference(index), self.write_answer(task.reference))
            question = text_of(show_question(task, choices))
            return Example(identify(task.question, choices), question, answer)

        return read_examples(len(tasks), pair, tasks.name)


def _grader(kind: str, grader: Any) -> Grader:
    """Return the grader of a kind.

    A name is no code: a task of somebody else's file may hold any text.

    Raises:
        BadArgument: for an unknown kind, and a kind that needs a grader without one.
    """
    if kind not in (*MADE, *GIVEN):
        raise BadArgument(f"data:{kind} is no kind of grader; accepted: {', '.join((*MADE, *GIVEN))}.")
    if grader is None and kind in MADE:
        return cast(Grader, class_of(kind)())
    if isinstance(grader, str) or not callable(grader):
        raise BadArgument(
            f"the grader of data:{kind} is {grader!r:.80}; accepted: a function of answer and reference, a "
            "gem.graders.functions.JudgeByName, or any grader."
        )
    return grader if hasattr(grader, "name") else FunctionGrader(grader)


def _name(grader: Grader) -> str:
    return str(getattr(grader, "name", type(grader).__name__))
