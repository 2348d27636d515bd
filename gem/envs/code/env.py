"""Programming tasks: CodeEnv over any data set, and CodeBasics, gem's own problems without a download."""

from __future__ import annotations

from typing import ClassVar

from gem.content import Obs, join, text_of
from gem.envs.code.basics import Basics, Level
from gem.envs.kit.dataset import DatasetEnv, tasks_of, verdict
from gem.errors import NoSolver
from gem.graders.base import Score
from gem.graders.code import CodeGrader, feedback, submission
from gem.graders.code_tests import Checker, CodeTests, find_definitions, read_tests
from gem.graders.compare import TOLERANCE
from gem.sandbox.base import Budget, Sandbox
from gem.tasks.base import Task
from gem.tasks.sources import Source
from gem.tools.python_code_tool import backend_of

FENCE = "Give all of it in one fenced code block that begins with ```python."


class CodeEnv(DatasetEnv):
    r"""Write a program that passes hidden tests.

    Task:
        A programming problem of a data set. Tests are read in the formats of CodeContests, APPS, TACO,
        LiveCodeBench, PrimeIntellect, HumanEval and MBPP; see `gem.graders.code_tests`.
    Action:
        Any text. The last fenced code block is the answer; if any blocks are labelled as Python, the last of
        those. The problem asks for a program, which reads standard input and writes standard output, or for
        a function.
    Observation:
        The problem, and how to answer. With ``max_attempts`` above 1, after a wrong answer: the verdict, and
        the first failed test if it may be shown (only the first `public` tests of a task may).
    Reward:
        1 when every test passes, else 0; with ``partial=True`` the fraction that passes. At most
        `max_tests` tests are run. A later attempt earns what it adds to the best attempt so far.
    End:
        With the right answer, or when the attempts are used up.
    Source:
        The data set's. `CodeBasics` is a subclass with gem's own problems.
    """

    answer_form: ClassVar[str] = FENCE
    answer_marks = ("```python",)
    shared: ClassVar[tuple[str, ...]] = ("_read", "sandbox_type")

    def __init__(
        self,
        dataset_name: str | None = None,
        split: str | None = None,
        dataset: Source | None = None,
        question_key: str = "problem",
        test_key: str = "tests",
        seed: int = 0,
        max_workers: int = 5,
        max_tests: int | None = 12,
        verbose: bool = False,
        sandbox_type: str | Sandbox | None = None,
        *,
        use_format_error_reward: bool = False,
        compare: str = "tokens",
        checker: str | Checker | None = None,
        partial: bool = False,
        tolerance: float = TOLERANCE,
        budget: Budget | None = None,
        max_attempts: int = 1,
        retry_discount: float = 1.0,
    ) -> None:
        """Set the data and how submissions are judged.

        Args:
            dataset_name: the name of any data set, in GEM_DATA or on the hub.
            split: which split of it.
            dataset: your own rows or path instead.
            question_key: the column of the problem, which the agent reads.
            test_key: the column of the tests.
            seed: the seed of the task order.
            max_workers: accepted for older scripts and ignored. The tests of a submission run one after
                another in one sandbox; submissions run in parallel when environments are stepped in parallel.
            max_tests: the largest number of tests to run per task; None runs all.
            verbose: accepted for older scripts and ignored; nothing is printed.
            sandbox_type: the sandbox's backend, or a Sandbox object. None and upstream's default 'none' take
                the best backend here.
            use_format_error_reward: whether an answer without code earns a penalty.
            compare: see CodeGrader, also for checker, partial, tolerance and budget.
            checker: decides instead of a comparison, if the task has no checker of its own.
            partial: whether to score the fraction of tests passed.
            tolerance: the accepted error of a float.
            budget: the resources that each test may use.
            max_attempts: how often the agent may answer.
            retry_discount: the factor on the reward for each attempt before a right one.

        Raises:
            BadArgument, MissingData: for data that is missing or cannot be read.
        """
        super().__init__(
            tasks_of(dataset_name, split, dataset, question_key, test_key),
            CodeGrader(
                backend_of(sandbox_type),
                compare=compare,
                checker=checker,
                partial=partial,
                max_tests=max_tests,
                tolerance=tolerance,
                budget=budget,
            ),
            max_attempts=max_attempts,
            retry_discount=retry_discount,
            use_format_error_reward=use_format_error_reward,
            order_seed=seed,
        )
        self.question_key, self.answer_key = question_key, test_key
        self.max_workers = max_workers
        self.verbose = verbose
        self.sandbox_type = sandbox_type

    _read: tuple[Task, CodeTests] | None = None

    @property
    def tests(self) -> CodeTests:
        """The tests of the running episode."""
        row = {**self.task.info, "prompt": self.task.question}
        if self._answer is not None:
            return read_tests(self._answer, row)
        if self._read is None or self._read[0] is not self.task:
            self._read = (self.task, read_tests(self.task.reference, row))
        return self._read[1]

    def show(self, task: Task) -> Obs:
        """Return the problem and what an answer looks like."""
        return join([task.question, f"{what_to_write(self.tests)} {self.answer_form}"], "\n\n")

    def grade(self, action: str) -> Score:
        """Run the tests; see DatasetEnv.grade."""
        if type(self)._check_correct is not CodeEnv._check_correct:  # a subclass has its own check
            code = submission(action)
            return Score(0.0, False) if code is None else verdict(self._check_correct(code), code)
        return self.grader(action, self.tests)

    def retry(self, score: Score) -> str:
        """Return the verdict, and the first failure if it may be shown."""
        if score.parsed is None:
            return self.refusal()
        failure = feedback(score.info["public"], self.tests.kind) if "public" in score.info else ""
        return f"Your answer is not right: {score.why}.\n{failure}".strip() + "\n"

    def guess(self) -> str:
        """Return the solution of a random problem, or a program that prints an empty line."""
        other = self.tasks[self.actor_rng.randrange(len(self.tasks))]
        return fence_code(reference_solution(other) or "print()")

    def solve(self) -> str:
        """Return the reference solution, which the agent does not see (an oracle).

        Raises:
            NoSolver: if the data set has none.
        """
        solution = reference_solution(self.task)
        if solution is None:
            raise NoSolver(f"{self} has no solver: its data has no column solution or canonical_solution.")
        return fence_code(solution)

    def _check_correct(self, code: str) -> bool:
        """Return whether bare code passes the tests of the running episode; scripts of other gyms call it."""
        return self.grader(fence_code(code), self.tests).correct


class CodeBasics(CodeEnv):
    r"""Solve a small programming problem.

    Task:
        One of 74 problems, written for this environment: 25 easy, 24 medium, 25 hard. Each has examples,
        which are shown, and further tests, which are not.
    Action:
        Any text. The last fenced code block is the answer; if any blocks are labelled as Python, the last of
        those. The problem asks for a function, or for a program, which reads standard input and writes
        standard output.
    Observation:
        The problem, its examples, and how to answer. With ``max_attempts`` above 1, after a wrong answer: the
        verdict, and if an example failed, its input, the expected output and the actual output.
    Reward:
        1 when every test passes, else 0; with ``partial=True`` the fraction that passes.
    End:
        With the right answer, or when the attempts are used up.
    Source:
        gem's own. The reference solutions are the functions in `gem.envs.code.basics`, from which the tests
        are drawn.
    """

    def __init__(
        self,
        level: Level | None = None,
        max_attempts: int = 1,
        retry_discount: float = 1.0,
        partial: bool = False,
        use_format_error_reward: bool = False,
        seed: int = 0,
        sandbox_type: str | Sandbox | None = None,
        budget: Budget | None = None,
    ) -> None:
        """Choose the level: ``easy``, ``medium``, ``hard``, or None for all. For the rest see CodeEnv.

        Raises:
            BadArgument: for another level.
        """
        super().__init__(
            dataset=Basics(level),
            max_tests=None,
            seed=seed,
            sandbox_type=sandbox_type,
            partial=partial,
            budget=budget,
            max_attempts=max_attempts,
            retry_discount=retry_discount,
            use_format_error_reward=use_format_error_reward,
        )


def what_to_write(tests: CodeTests) -> str:
    """Return the sentence that says what a submission to these tests is."""
    if tests.kind == "program":
        return "Write a Python program that reads standard input and writes standard output."
    if tests.kind == "function" or tests.name:
        return f"Write the Python function `{tests.name}`."
    if tests.asked:
        what = "class" if tests.asked in tests.classes or tests.asked[:1].isupper() else "function"
        return f"Write the Python {what} `{tests.asked}`."
    return "Write it in Python."


def fence_code(code: str) -> str:
    """Return code as an answer, in a fence longer than any in the code."""
    ticks = "```"
    while ticks in code:
        ticks += "`"
    return f"{ticks}python\n{code}\n{ticks}"


SOLUTIONS = ("canonical_solution", "solution")
"""The columns that may hold a reference solution."""


def reference_solution(task: Task) -> str | None:
    """Return the reference solution of a row, or None.

    The body of a function, as in HumanEval, is put behind the question that begins the function.
    """
    solutions = (task.info.get(name) for name in SOLUTIONS)
    solution = next((each for each in solutions if isinstance(each, str) and each), None)
    if solution is None or find_definitions(solution) is not None:
        return solution
    joined = f"{text_of(task.question)}{solution}"
    return solution if find_definitions(joined) is None else joined
