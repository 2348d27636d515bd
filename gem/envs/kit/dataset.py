r"""DatasetEnv: the base of environments over task sets, with one task per episode and graded answers.

`DatasetEnv` holds what all of them share. A subclass defines how a task is shown, how an answer is graded,
and what a random guess is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from gem import seeding
from gem.content import Obs, join, text_of
from gem.core import Env, Start, Step
from gem.errors import BadArgument, check_argument, check_count
from gem.graders.base import BOXED, Grader, Score, check_score, grade_with, same_in_all_runs
from gem.parsing import boxed
from gem.record import StopReason
from gem.tasks.base import Task, TaskSet
from gem.tasks.order import Ordered, index_at
from gem.tasks.sources import Read, RowTasks, Source, digest_of, find, load

UNREADABLE_REWARD = -0.1
"""The reward of an unreadable answer with `use_format_error_reward`."""


class DatasetEnv(Env):
    r"""Base class of MathEnv, QaEnv, CodeEnv and MathVisualEnv: each episode asks one task of a set.

    Which task. A seed is a position in an endless walk through the set. `order_seed` draws another order for
    each epoch: seeds 0 to n - 1 are the n tasks, each once; n to 2n - 1 are the same tasks in another order,
    and so on. ``reset(idx=i)`` takes task `i` instead. If no seed is ever given, reset() takes each task once
    per epoch, in an order that differs from run to run. ``env.idx = i`` makes reset() take tasks
    i, i + 1, ... in the order of `dataset`.

    Attempts. With ``max_attempts=k`` the agent learns that an answer is not right and may answer again, k
    times in all. An unreadable answer uses up an attempt too.

    Rewards. An attempt is worth its score, times `retry_discount` for each attempt before it. It earns what
    it is worth above the best attempt so far. So the return is the worth of the best attempt: 1 for the right
    answer at once, ``retry_discount`` for it at the second attempt, 0 when no answer is right and the grader
    gives no partial score. With `use_format_error_reward` each unreadable answer also earns -0.1.

    Info, after an answer: `correct`, `parsed_action` (the answer that was read, None if none was), `score`,
    `why` if the grader gives a reason, `attempt` from 1, and what the grader adds.
    """

    shared: ClassVar[tuple[str, ...]] = ("_tasks", "grader", "_indexed_task", "_dataset")

    answer_form: ClassVar[str] = BOXED
    """The sentence after the question that says what an answer looks like."""

    def __init__(
        self,
        tasks: TaskSet,
        grader: Grader,
        *,
        max_attempts: int = 1,
        retry_discount: float = 1.0,
        use_format_error_reward: bool = False,
        order_seed: int = 0,
    ) -> None:
        """Set the tasks, the grader, and the number of attempts.

        Raises:
            BadArgument: for what is no set of tasks, a grader that cannot be called, less than one attempt,
                or a discount outside 0 to 1.
        """
        is_set = isinstance(tasks, TaskSet) and hasattr(tasks, "order")
        check_argument("tasks", tasks, is_set, "a TaskSet, as gem.tasks.sources.load(ROWS or PATH) makes it")
        accepted = "a function of answer and reference that returns a Score, as make_grader('math') makes it"
        check_argument("grader", grader, callable(grader), accepted)
        check_count("max_attempts", max_attempts)
        is_share = isinstance(retry_discount, int | float) and 0 <= retry_discount <= 1
        check_argument("retry_discount", retry_discount, is_share, "0 to 1")
        self._tasks = tasks
        self.grader = grader
        self.max_attempts = self.max_turns = max_attempts
        self.retry_discount = retry_discount
        self.use_format_error_reward = use_format_error_reward
        self.order_seed = seeding.check(order_seed)
        self.index = 0
        self.attempt = 0
        self._paid = 0.0

    @classmethod
    def digest_files(cls, dataset_name: str | None = None, dataset: Any = None, **others: Any) -> str:
        """Return a digest of the files that these keywords name, empty if there are none; see `gem.make`."""
        source = dataset_name if dataset is None else dataset
        here = isinstance(source, str | Path) and find(str(source)) is not None
        return digest_of(source) if here else ""

    # -- an environment defines

    def show(self, task: Task) -> Obs:
        """Return the first observation: the question, and what an answer looks like."""
        return join([task.question, self.answer_form], "\n\n")

    def grade(self, action: str) -> Score:
        """Score the agent's whole reply.

        Raises:
            NoVerdict: when the grader itself fails.
        """
        return grade_with(self.grader, action, self.answer, text_of(self.task.question))

    def retry(self, score: Score) -> str:
        """Return what the agent reads after an answer that is not right, before another attempt."""
        return "Your answer is not right." if score.parsed is not None else self.refusal()

    def refusal(self) -> str:
        """Return what the agent reads after an answer that could not be read."""
        return f"Your answer could not be read. {self.answer_form}"

    def write_answer(self, reference: Any) -> str:
        """Return a reference as an answer in the required form."""
        return f"\\boxed{{{reference}}}"

    def guess(self) -> str:
        """Return a guess drawn from `self.actor_rng`: the reference of any task, most often wrong."""
        at = self.actor_rng.randrange(len(self.tasks))
        reference = getattr(self.tasks, "reference", lambda index: self.tasks[index].reference)
        other = self.write_answer(reference(at))
        return other if boxed(other) is not None else self.write_answer(self.actor_rng.randrange(100))

    # -- the contract

    def reset(self, seed: int | None = None, idx: int | None = None) -> Start:
        """Begin with the task of the seed, or with task `idx`; see Env.reset.

        Raises:
            BadArgument: when there is no task `idx`.
        """
        size = len(self.tasks)
        walked = idx is None and seed is None and self._by_idx  # a script goes through the tasks by number
        if walked and self._idx >= size:
            self._idx, self.epoch = 0, self.epoch + 1
        self._by_idx = walked
        idx = self._idx if walked else idx
        if idx is not None and idx not in range(size):
            raise BadArgument(f"idx is {idx!r}; {self.tasks.name} has tasks 0 to {size - 1}.")
        if seed is None and self._seed is None:
            self._walks, seed = True, seeding.fresh() // size * size
        elif seed is None and self._walks:
            seed = self._need_seed() + 1
        else:
            self._walks = False
        super().reset(seed)
        self._first_seed = self._need_seed()
        self.index = index_at(self.tasks, self.order_seed, self._first_seed) if idx is None else int(idx)
        self._idx = self.index + 1
        if not walked:
            self.epoch = self._first_seed // size
        self._answer = None
        self.attempt = 0
        self._paid = 0.0
        self.first_obs = self.show(self.task)
        return Start(self.first_obs, {"task": self.task.id})

    def step(self, action: str) -> Step:
        """Grade an answer; see Env.step."""
        score = check_score(self.grade(action))
        worth = score.value * self.retry_discount**self.attempt
        reward = max(0.0, worth - self._paid)
        self._paid += reward
        if score.parsed is None and self.use_format_error_reward:
            reward += UNREADABLE_REWARD
        self.attempt += 1
        info: dict[str, Any] = {
            **same_in_all_runs(score.info),
            "correct": score.correct,
            "parsed_action": score.parsed,
            "score": score.value,
            "attempt": self.attempt,
        }
        if score.why:
            info["why"] = score.why
        over = score.correct or self.attempt >= self.max_attempts
        if not over:
            left = self.max_attempts - self.attempt
            obs = f"{self.retry(score)} You may answer {'once' if left == 1 else f'{left} times'} more."
            return Step(obs, reward, False, False, info)
        info["success"] = score.correct
        if score.correct:
            info["stop"], obs = StopReason.SOLVED.value, "Your answer is right."
        elif score.parsed is None:
            info["stop"], obs = StopReason.UNREADABLE.value, self.refusal()
        else:
            info["stop"], obs = StopReason.FAILED.value, "Your answer is not right."
        return Step(obs, reward, True, False, info)

    def seed_of(self, index: int) -> int:
        """Return the seed from 0 to n - 1 that plays task `index`."""
        return self.tasks.order(self.order_seed, 0).index(index)

    def sample_random_action(self) -> str:
        """Return a guess; see Env.sample_random_action."""
        return self.guess()

    def solve(self) -> str:
        """Return the reference answer, which the agent does not see (an oracle)."""
        return self.write_answer(self.answer)

    # -- attributes that scripts read and assign, with upstream's names

    _indexed_task: tuple[int, Task] | None = None
    _first_seed = 0  # of the running episode: that of a fork is another, and its task is the same
    _walks = False  # no seed was given: reset() takes each task once per epoch
    _tasks: TaskSet | None = None
    _dataset: Any = None
    _answer: Any = None
    _idx = 0
    _by_idx = False

    epoch: int = 0
    """How many times the walk had gone through the set before the running episode."""

    first_obs: Obs = ""
    """The first observation of the running episode."""

    max_turns: int = 1
    """The largest number of turns of an episode."""

    question_key: str = "problem"
    answer_key: str = "answer"
    images_key: str | None = None

    @property
    def task(self) -> Task:
        """The task of the running episode."""
        indexed_task = self._indexed_task
        if indexed_task is None or indexed_task[0] != self.index:
            indexed_task = self._indexed_task = (self.index, self.tasks[self.index])
        return indexed_task[1]

    @property
    def answer(self) -> Any:
        """The reference answer of the running episode, or what a script assigned instead."""
        return self.task.reference if self._answer is None else self._answer

    @answer.setter
    def answer(self, value: Any) -> None:
        self._answer = value

    @property
    def dataset(self) -> Any:
        """The tasks as rows (mappings with a question and an answer), or the object that a script assigned.

        An assigned object becomes the source of the tasks: rows, tasks, a path, a `datasets.Dataset`.
        A subclass with its own reset may assign anything.
        """
        return RowsView(self) if self._dataset is None else self._dataset

    @dataset.setter
    def dataset(self, value: Any) -> None:
        self._dataset, self._tasks, self._indexed_task = value, None, None
        if isinstance(value, RowsView):
            self._tasks, self._dataset = value.tasks, None

    @property
    def tasks(self) -> TaskSet:
        """The tasks; after an assignment to `dataset`, they are read from it at first use."""
        if self._tasks is None:
            self._tasks = load(self._dataset, None, self.question_key, self.answer_key, self.images_key)
        return self._tasks

    @property
    def idx(self) -> int:
        """The number of the next task; a script that assigns it continues from there."""
        return self._idx

    @idx.setter
    def idx(self, value: int) -> None:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise BadArgument(f"idx is {value!r:.80}; accepted: the number of a task.")
        self._idx, self._by_idx = int(value), True

    def row(self, task: Task) -> dict[str, Any]:
        """Return a task as a row of `dataset`."""
        return {**task.info, self.question_key: task.question, self.answer_key: task.reference}


class RowsView(Sequence[dict[str, Any]]):
    """The tasks of an environment as rows, with the two methods of `datasets.Dataset` that scripts call."""

    def __init__(self, env: DatasetEnv, tasks: TaskSet | None = None) -> None:
        """View the tasks of `env`, or other `tasks`, as rows of `env`."""
        self.env = env
        self.tasks = env.tasks if tasks is None else tasks

    def __len__(self) -> int:
        """Return the number of tasks."""
        return len(self.tasks)

    def __getitem__(self, index: Any) -> Any:
        """Return one row, or a list of rows."""
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        return self.env.row(self.tasks[index % len(self)])

    def shuffle(self, seed: int | None = None) -> RowsView:
        """Return the rows in an order drawn from `seed`; None: a new order at each call."""
        return self.select(self.tasks.order(seeding.fresh() if seed is None else seed))

    def select(self, indices: Iterable[int]) -> RowsView:
        """Return the rows with these indices."""
        chosen = indices if isinstance(indices, Sequence) else tuple(indices)
        return RowsView(self.env, Selection(self.tasks, chosen))


@dataclass(frozen=True, eq=False)
class Selection(Ordered):
    """Some tasks of a set, in a given order."""

    tasks: TaskSet
    indices: Sequence[int]

    @property
    def name(self) -> str:
        """The name of the set, for messages."""
        return self.tasks.name

    def __len__(self) -> int:
        """Return the number of tasks."""
        return len(self.indices)

    def __getitem__(self, index: int) -> Task:
        """Return one task."""
        return self.tasks[self.indices[index]]


def verdict(right: Any, answer: str) -> Score:
    """Return the score of an answer that a subclass's own check_correct has judged."""
    return Score(float(bool(right)), bool(right), answer)


def tasks_of(
    dataset_name: str | None,
    split: str | None,
    dataset: Source | None,
    question_key: str | None,
    answer_key: str,
    images_key: str | None = None,
    read: Read | None = None,
) -> TaskSet:
    """Return the tasks of `dataset`, or without it those of the data set `dataset_name`.

    If both are given, `dataset_name` names the tasks in messages. Without a `question_key` the column is
    ``question``, or else ``problem``.

    Raises:
        BadArgument: when neither is given; otherwise as `gem.tasks.sources.load` does.
    """
    source = dataset_name if dataset is None else dataset
    if source is None or (isinstance(source, str) and not source):
        raise BadArgument(
            "got neither of dataset_name and dataset; accepted: the name of a data set, or your own rows or "
            "path."
        )
    tasks = load(source, split, question_key, answer_key, images_key, read)
    if dataset is not None and dataset_name and isinstance(tasks, RowTasks):
        tasks = replace(tasks, name=dataset_name)
    return tasks
