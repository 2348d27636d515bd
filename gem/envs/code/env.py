"""Programming tasks: CodeEnv over any data set, and Basics, problems of our own that need no download."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from gem.content import Obs, join
from gem.envs.code.basics import Basics, Level
from gem.envs.kit.dataset import DatasetEnv, tasks_of, verdict
from gem.errors import NoSolver
from gem.graders.base import Score
from gem.graders.code import CodeGrader, feedback, submission
from gem.graders.code_tests import CodeTests, read_tests
from gem.graders.compare import TOLERANCE
from gem.sandbox.base import Budget, Sandbox
from gem.tasks.base import Task
from gem.tasks.sources import Source
from gem.tools.python_code_tool import backend_of

FENCE = "Give all of it in one fenced code block that begins with ```python."


class CodeEnv(DatasetEnv):
    r"""Write a program that passes hidden tests.

    Task:
        A programming problem of a data set. Tests are read in the forms of CodeContests, APPS, TACO,
        LiveCodeBench, PrimeIntellect, HumanEval and MBPP; see `gem.graders.code_tests`.
    Action:
        Any text; the last fenced code block counts, of those labelled as Python where there are any. What
        the problem asks for is a program, which reads standard input and writes standard output, or a
        function.
    Observation:
        The problem, and how to answer. With ``max_attempts`` above 1, after a wrong answer: the verdict, and
        the first failure where that test may be shown (the first `public` ones of a task).
    Reward:
        1 when every test is passed, else 0; with ``partial=True`` the fraction that is passed. At most
        `max_tests` tests are run. A later attempt earns what it adds to the best so far.
    End:
        With the right answer, or when the attempts are used up.
    Source:
        The data set's; without one this is the base of `CodeBasics`.
    """

    answer_form: ClassVar[str] = FENCE
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
        checker: str | None = None,
        partial: bool = False,
        tolerance: float = TOLERANCE,
        budget: Budget | None = None,
        max_attempts: int = 1,
        retry_discount: float = 1.0,
    ) -> None:
        """Set the data and how submissions are judged.

        Args:
            dataset_name: the name of a data set, in GEM_DATA or on the hub; any will do.
            split: which split of it.
            dataset: your own rows or path instead.
            question_key: the column that the agent is shown.
            test_key: the column of the tests.
            seed: which order the tasks come in.
            max_workers: accepted for the sake of older scripts: a submission's tests run one after another in
                one sandbox, and submissions side by side as they are stepped.
            max_tests: run at most so many tests of a task; None runs all.
            verbose: accepted for the sake of older scripts: nothing is printed.
            sandbox_type: the sandbox's backend, or a sandbox of yours; None takes the best one here, and so
                does upstream's default 'none'.
            use_format_error_reward: fine an answer without code.
            compare: see CodeGrader, as for checker, partial, tolerance and budget.
            checker: decides in place of a comparison, where the task has none of its own.
            partial: score the fraction of tests passed.
            tolerance: what a float may be off.
            budget: what each test may use.
            max_attempts: how often the agent may answer.
            retry_discount: what each attempt before a right one costs, as a factor.

        Raises:
            BadArgument, MissingData: for data that is not there or cannot be read.
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
        return join([task.question, f"{self._asked()} {self.answer_form}"], "\n\n")

    def grade(self, action: str) -> Score:
        """Run the tests; see DatasetEnv.grade. What differs from run to run, times above all, is left out."""
        if type(self)._check_correct is not CodeEnv._check_correct:  # a subclass judges by its own
            code = submission(action)
            return Score(0.0, False) if code is None else verdict(self._check_correct(code), code)
        score = self.grader(action, self.tests)
        return replace(score, info={key: value for key, value in score.info.items() if key != "spent"})

    def retry(self, score: Score) -> str:
        """Return the verdict, and the first failure where it may be shown."""
        if score.parsed is None:
            return self.refusal()
        shown = feedback(score.info["public"], self.tests.kind) if "public" in score.info else ""
        return f"Your answer is not right: {score.why}.\n{shown}".strip() + "\n"

    def guess(self) -> str:
        """Return another problem's solution, or a program that prints nothing of use."""
        other = self.tasks[self.actor_rng.randrange(len(self.tasks))]
        return fenced(_solution(other) or "print()")

    def solve(self) -> str:
        """Return the reference solution: an oracle, it reads what the agent is not shown.

        Raises:
            NoSolver: where the data set holds none.
        """
        solution = _solution(self.task)
        if solution is None:
            raise NoSolver(f"{self} has no solver: its data has no column solution or canonical_solution.")
        return fenced(solution)

    def _check_correct(self, code: str) -> bool:
        """Tell whether bare code passes the running episode's tests; scripts for other gyms call this."""
        return self.grader(fenced(code), self.tests).correct

    def _asked(self) -> str:
        tests = self.tests
        if tests.kind == "program":
            return "Write a Python program that reads standard input and writes standard output."
        if tests.kind == "function" or tests.name:
            return f"Write the Python function `{tests.name}`."
        return "Write it in Python."


class CodeBasics(CodeEnv):
    r"""Solve a small programming problem.

    Task:
        One of 74 problems, written for this environment: 25 easy, 24 medium, 25 hard. Each has examples,
        which are shown, and further tests, which are not.
    Action:
        Any text; the last fenced code block counts, of those labelled as Python where there are any. What
        the problem asks for is a function, or a program, which reads standard input and writes standard
        output.
    Observation:
        The problem, its examples, and how to answer. With ``max_attempts`` above 1, after a wrong answer: the
        verdict, and input, expected output and the answer's own output where an example failed.
    Reward:
        1 when every test is passed, else 0; with ``partial=True`` the fraction that is passed.
    End:
        With the right answer, or when the attempts are used up.
    Source:
        Our own. The reference solutions are the functions in `gem.envs.code.basics`, from which the tests
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
        """Choose the level, ``easy``, ``medium`` or ``hard``; None is all of them. Else see CodeEnv.

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


def fenced(code: str) -> str:
    """Return code as an answer: in a fence longer than any that the code holds."""
    ticks = "```"
    while ticks in code:
        ticks += "`"
    return f"{ticks}python\n{code}\n{ticks}"


def _solution(task: Task) -> str | None:
    """Return the reference solution that a row holds."""
    if isinstance(task.info.get("canonical_solution"), str):
        return f"{task.question}{task.info['canonical_solution']}"
    solution = task.info.get("solution")
    return solution if isinstance(solution, str) and solution else None
