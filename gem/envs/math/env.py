r"""Mathematics: MathEnv over any data set, and two generated families that need no download."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gem.envs.kit.dataset import DatasetEnv, tasks_of, verdict
from gem.envs.math.arithmetic import OPERATIONS, Arithmetic
from gem.envs.math.word_problems import KINDS, MOST_STEPS, WordProblems
from gem.graders.base import Grader, Score
from gem.graders.math import MathGrader, check_correct, references
from gem.parsing import boxed
from gem.tasks.procedural import ProceduralTasks, Range, Split, check_choice, interval
from gem.tasks.sources import Source


class MathEnv(DatasetEnv):
    r"""Solve a problem whose answer is a number, an expression or a word.

    Task:
        A problem of a data set: by name (`dataset_name`, `split`), or your own rows, file or folder
        (`dataset`), with any column names. A seed is a position in the walk through the set: seeds 0 to
        n - 1 are its n problems, each once. ``reset(idx=i)`` takes problem `i`.
    Action:
        Any text. The content of the last ``\boxed{}`` is the answer.
    Observation:
        The problem, and how to answer. With ``max_attempts`` above 1, after a wrong answer: that it is wrong,
        and how many attempts are left.
    Reward:
        1 for a right answer, times `retry_discount` for each attempt before it, else 0. With
        `use_format_error_reward` an answer without a box earns -0.1.
    End:
        With the right answer, or when the attempts are used up: by default, after one.
    Source:
        The data set's. Answers are compared by `gem.graders.math`.
    """

    def __init__(
        self,
        dataset_name: str | None = None,
        split: str | None = None,
        dataset: Source | None = None,
        question_key: str = "problem",
        answer_key: str = "answer",
        use_format_error_reward: bool = False,
        seed: int = 0,
        use_mp: bool = True,
        *,
        max_attempts: int = 1,
        retry_discount: float = 1.0,
        images_key: str | None = None,
        grader: Grader | None = None,
    ) -> None:
        """Set the data and what an attempt earns.

        Args:
            dataset_name: the name of a data set, in GEM_DATA or on the hub.
            split: which split of it; None where there is only one.
            dataset: your own rows, path or TaskSet instead.
            question_key: the column of the problem, which the agent reads.
            answer_key: the column of the answer: bare, boxed, or the end of a solution, after ``####``.
            use_format_error_reward: whether an unreadable answer earns a penalty.
            seed: the seed of the problem order.
            use_mp: accepted for older scripts and ignored; a worker process is used where it is needed.
            max_attempts: how often the agent may answer.
            retry_discount: the factor on the reward for each attempt before a right one.
            images_key: the column of a picture or a list of them.
            grader: the grader to use instead of MathGrader.

        Raises:
            BadArgument, MissingData: for data that is missing or cannot be read.
        """
        plain = grader is None and type(self).check_correct is MathEnv.check_correct
        read = MathGrader.read_reference if plain else None
        super().__init__(
            tasks_of(dataset_name, split, dataset, question_key, answer_key, images_key, read),
            grader or MathGrader(),
            max_attempts=max_attempts,
            retry_discount=retry_discount,
            use_format_error_reward=use_format_error_reward,
            order_seed=seed,
        )
        self.question_key, self.answer_key, self.images_key = question_key, answer_key, images_key
        self.use_mp = use_mp

    def grade(self, action: str) -> Score:
        """Compare the boxed answer with the reference; see DatasetEnv.grade."""
        answer = boxed(action)
        if answer is None:  # the grader would guess what an unboxed reply means
            return Score(0.0, False, None, "no \\boxed{}")
        if self.check_correct is not MathEnv.check_correct:  # a subclass has its own check
            return verdict(self.check_correct(answer, self.answer), answer)
        return super().grade(action)

    def write_answer(self, reference: Any) -> str:
        """Return a reference as an answer in the required form."""
        return super().write_answer(references(reference)[0])

    @staticmethod
    def check_correct(answer: str, truth: Any) -> bool:
        """Return whether an answer means the same as the truth; each may be boxed or bare."""
        return check_correct(answer, truth)


class ArithmeticEnv(MathEnv):
    r"""Calculate the exact value of an expression.

    Task:
        An expression of `operands` numbers with `digits` digits each (a number, or a range (low, high)),
        joined by `operations`, with random brackets. Each `seed` makes `size` tasks. ``split="train"`` and
        ``split="test"`` have no question in common.
    Action:
        Any text. The content of the last ``\boxed{}`` is the answer.
    Observation:
        The expression, and how to answer.
    Reward:
        As in MathEnv: 1 for the right answer, else 0. Any notation of the number is accepted.
    End:
        With the right answer, or when the attempts are used up: by default, after one.
    Source:
        gem's own.
    """

    def __init__(
        self,
        operands: Range = 2,
        digits: Range = 2,
        operations: Sequence[str] = ("+", "-"),
        size: int = 1_000_000,
        split: Split | None = None,
        seed: int = 0,
        *,
        max_attempts: int = 1,
        retry_discount: float = 1.0,
        use_format_error_reward: bool = False,
    ) -> None:
        """Set the difficulty, the number of tasks, and what an attempt earns."""
        generator = Arithmetic(
            interval("operands", operands, 2, 12),
            interval("digits", digits, 1, 12),
            check_choice("operations", operations, OPERATIONS),
        )
        super().__init__(
            dataset=ProceduralTasks("arithmetic", generator, size, seed, split),
            grader=MathGrader(simplified=True),
            max_attempts=max_attempts,
            retry_discount=retry_discount,
            use_format_error_reward=use_format_error_reward,
            seed=seed,
        )


class WordProblemsEnv(MathEnv):
    r"""Find the number that a short story asks for.

    Task:
        A story of `steps` steps with numbers up to `largest`, and `distractors` sentences whose numbers do
        not matter (`steps` and `distractors` are a number, or a range (low, high)). `kinds` are some of
        collection, shopping, journey, ages, harvest, savings. Each `seed` makes `size` tasks.
        ``split="train"`` and ``split="test"`` have no story in common.
    Action:
        Any text. The content of the last ``\boxed{}`` is the answer.
    Observation:
        The story, the question, and how to answer. The answer is a whole number.
    Reward:
        As in MathEnv: 1 for the right answer, else 0.
    End:
        With the right answer, or when the attempts are used up: by default, after one.
    Source:
        gem's own templates, in ``gem/envs/math/word_problems.py``.
    """

    def __init__(
        self,
        steps: Range = (1, 2),
        largest: int = 20,
        distractors: Range = 0,
        kinds: Sequence[str] = tuple(KINDS),
        size: int = 1_000_000,
        split: Split | None = None,
        seed: int = 0,
        *,
        max_attempts: int = 1,
        retry_discount: float = 1.0,
        use_format_error_reward: bool = False,
    ) -> None:
        """Set the difficulty, the number of tasks, and what an attempt earns."""
        generator = WordProblems(
            interval("steps", steps, 1, MOST_STEPS),
            interval("largest", largest, 10, 10_000)[1],
            interval("distractors", distractors, 0, 3),
            check_choice("kinds", kinds, tuple(KINDS)),
        )
        super().__init__(
            dataset=ProceduralTasks("word problems", generator, size, seed, split),
            grader=MathGrader(simplified=True),
            max_attempts=max_attempts,
            retry_discount=retry_discount,
            use_format_error_reward=use_format_error_reward,
            seed=seed,
        )
