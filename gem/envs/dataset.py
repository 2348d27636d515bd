r"""Environments over task sets: one task per episode, an answer, a grade, and another try where there is one.

`DatasetEnv` holds what all share; a subclass says how a task is shown, how an answer is graded, and what a
guess looks like.
"""

from __future__ import annotations

from typing import Any, ClassVar

from gem import seeding
from gem.content import Obs, join
from gem.core import Env, Start, Step
from gem.errors import BadArgument
from gem.graders.base import Grader, Score, checked
from gem.parsing import boxed
from gem.record import StopReason
from gem.tasks.base import Task, TaskSet
from gem.tasks.order import index_at
from gem.tasks.sources import Source, load

BOXED = "Give your final answer inside \\boxed{}."

UNREADABLE_REWARD = -0.1
"""What an unreadable answer earns where unreadable answers are fined."""


class DatasetEnv(Env):
    r"""Answer the tasks of a set: the base of MathEnv, QaEnv, CodeEnv and MathVisualEnv.

    Which task. A seed is a position in the endless walk through the set, in the order that `order_seed`
    draws anew for each epoch: seeds 0 to n - 1 are its n tasks, each once, n to 2n - 1 are they again in
    another order, and so on. ``reset(idx=i)`` takes task `i` instead.

    Attempts. With ``max_attempts=k`` an answer that is not right is told so, and the agent may answer again,
    k times in all; an unreadable one uses up an attempt too.

    Rewards. An attempt is worth its score, times `retry_discount` for each attempt before it; it earns what
    that adds to the best so far. So the return is the worth of the best attempt: 1 for the right answer at
    once, ``retry_discount`` for it at the second attempt, 0 when none is right and the grader gives no part.
    With `use_format_error_reward` each unreadable answer earns -0.1 besides.

    Info, after an answer: `correct`, `parsed_action` (what was read, None when nothing was), `score`, `why`
    where the grader says, `attempt` from 1, and whatever the grader adds.
    """

    shared: ClassVar[tuple[str, ...]] = ("tasks", "grader", "_held")

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
        """Set the tasks, who grades, and how often one may try.

        Raises:
            BadArgument: for less than one attempt, or a discount outside 0 to 1.
        """
        if isinstance(max_attempts, bool) or not isinstance(max_attempts, int) or max_attempts < 1:
            raise BadArgument(f"max_attempts is {max_attempts!r}; accepted: 1 or more.")
        if not 0 <= retry_discount <= 1:
            raise BadArgument(f"retry_discount is {retry_discount!r}; accepted: 0 to 1.")
        self.tasks = tasks
        self.grader = grader
        self.max_attempts = max_attempts
        self.retry_discount = retry_discount
        self.use_format_error_reward = use_format_error_reward
        self.order_seed = seeding.check(order_seed)
        self.index = 0
        self.attempt = 0
        self._paid = 0.0

    # -- an environment defines

    def show(self, task: Task) -> Obs:
        """Return the first observation: the question, and what an answer looks like."""
        return join([task.question, self.answer_form], "\n\n")

    def grade(self, action: str) -> Score:
        """Score the agent's whole reply.

        Raises:
            NoVerdict: when the grader fails on its own.
        """
        return self.grader(action, self.task.reference)

    def retry(self, score: Score) -> str:
        """Return what the agent reads after an answer that is not right, before another attempt."""
        return "Your answer is not right." if score.parsed is not None else self.refusal()

    def refusal(self) -> str:
        """Return what the agent reads after an answer that could not be read."""
        return f"Your answer could not be read. {self.answer_form}"

    def written(self, reference: Any) -> str:
        """Return the answer that says what a reference says."""
        return f"\\boxed{{{reference}}}"

    def guess(self) -> str:
        """Return a well-formed answer, most often wrong, drawn from `self.actor_rng`: another task's."""
        at = self.actor_rng.randrange(len(self.tasks))
        reference = getattr(self.tasks, "reference", lambda index: self.tasks[index].reference)
        other = self.written(reference(at))
        return other if boxed(other) is not None else self.written(self.actor_rng.randrange(100))

    # -- the contract

    def reset(self, seed: int | None = None, idx: int | None = None) -> Start:
        """Begin with the task that the seed stands for, or with task `idx`; see Env.reset.

        Raises:
            BadArgument: when there is no task `idx`.
        """
        if idx is not None and idx not in range(len(self.tasks)):
            raise BadArgument(f"idx is {idx!r}; {self.tasks.name} has tasks 0 to {len(self.tasks) - 1}.")
        super().reset(seed)
        self.index = index_at(self.tasks, self.order_seed, self._need_seed()) if idx is None else int(idx)
        self.attempt = 0
        self._paid = 0.0
        return Start(self.show(self.task), {"task": self.task.id})

    def step(self, action: str) -> Step:
        """Grade an answer; see Env.step."""
        score = checked(self.grade(action))
        worth = score.value * self.retry_discount**self.attempt
        reward = max(0.0, worth - self._paid)
        self._paid += reward
        if score.parsed is None and self.use_format_error_reward:
            reward += UNREADABLE_REWARD
        self.attempt += 1
        info: dict[str, Any] = {
            **score.info,
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

    def sample_random_action(self) -> str:
        """Return a guess; see Env.sample_random_action."""
        return self.guess()

    def solve(self) -> str:
        """Return the reference answer: an oracle, it reads what the agent is not shown."""
        return self.written(self.task.reference)

    # -- what scripts read

    _held: tuple[int, Task] | None = None

    @property
    def task(self) -> Task:
        """The task of the running episode."""
        held = self._held
        if held is None or held[0] != self.index:
            held = self._held = (self.index, self.tasks[self.index])
        return held[1]

    @property
    def answer(self) -> Any:
        """The reference answer of the running episode."""
        return self.task.reference

    @property
    def dataset(self) -> TaskSet:
        """The tasks."""
        return self.tasks

    @property
    def epoch(self) -> int:
        """How often the walk had been through the set before the running episode's seed."""
        return self._need_seed() // len(self.tasks)


def tasks_of(
    dataset_name: str | None,
    split: str | None,
    dataset: Source | None,
    question_key: str,
    answer_key: str,
    images_key: str | None = None,
) -> TaskSet:
    """Return the tasks that a constructor was given, by name or as `dataset`.

    Raises:
        BadArgument: when neither or both are given; otherwise as `gem.tasks.sources.load` does.
    """
    if bool(dataset_name) == (dataset is not None):
        raise BadArgument(
            f"got {'neither' if dataset is None else 'both'} of dataset_name and dataset; accepted: the name "
            "of a data set, or your own rows or path."
        )
    source = dataset_name if dataset is None else dataset
    assert source is not None
    return load(source, split, question_key, answer_key, images_key)
