"""CodeGrader: scores a submission to a programming task by its tests.

A submission gets one child and is compiled once; each test runs in its own process. Expected values never
enter a process that holds the submission: outputs are compared outside, and asserts run in a separate
process.
"""

from __future__ import annotations

import builtins
import functools
import json
import math
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from gem import parsing
from gem.errors import NoVerdict, check_argument, replace_surrogates, text_of_error
from gem.graders.asserts import read_tester
from gem.graders.asserts.refusals import defines_check
from gem.graders.base import DataGrader, Score
from gem.graders.code_tests import (
    CANDIDATE,
    Checker,
    CodeTests,
    TestsReader,
    check_checker,
    find_definitions,
    read_tests,
    root,
)
from gem.graders.compare import TOLERANCE, check_compare, read_plain, same_text, same_value, write_plain
from gem.graders.python_code import find_imports
from gem.sandbox.base import Budget, Case, Result, SandboxFailed, Status, check_result
from gem.sandbox.shared import default_sandbox
from gem.tasks.columns import MORE_TESTS, Columns

if TYPE_CHECKING:
    from gem.sandbox.base import Sandbox

VERDICTS = {
    "AC": "accepted",
    "WA": "wrong answer",
    "TLE": "time limit",
    "MLE": "memory limit",
    "OLE": "output limit",
    "RE": "runtime error",
    "CE": "compile error",
    "NONE": "no code",
}
"""The values of `info["verdict"]` and their meanings."""

BUDGET = Budget(cpu_s=6.0, wall_s=20.0, memory_mb=1024, output_kb=16 * 1024)
"""The budget of each test, before it is scaled to the processor's speed."""

MOST_BUDGETS = 10
"""How many budgets of CPU time the asserts of one text, which have one each, may use together."""

_SPIN_S = 0.0065
"""CPU seconds of `_spin` on the reference machine of the CPU budget."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one test: its verdict, the reason in words, and the result of the run."""

    verdict: str
    why: str = ""
    got: str = ""
    limit: str | None = None


class CodeGrader(DataGrader):
    """A grader that scores a submission by the tests of its task.

    The submission is the last fenced code block of an answer that is labelled as Python, or else the last of
    any. A task's tests are in any form that `read_tests` accepts.

    The score: `value` is 1 when every test that ran is passed, else 0, or with `partial` the fraction passed;
    `correct` means all passed. `info` has `verdict` (a key of VERDICTS, of the first test that failed),
    `passed`, `run` and `tests` (numbers of tests passed, run and available), `compare`, for asserts
    `isolated` (they shared no process with the submission), and `spent`, which differs from run to run: the
    most CPU and wall-clock seconds of a test, the budget, and the sandbox's backend. `public` is the first
    failure, if that test may be shown.
    """

    name = "code/1"
    criterion: ClassVar[str] = "a program that passes the tests"

    def __init__(
        self,
        sandbox: Sandbox | str | None = None,
        *,
        compare: str = "tokens",
        checker: str | Checker | None = None,
        partial: bool = False,
        max_tests: int | None = 12,
        tolerance: float = TOLERANCE,
        budget: Budget | None = None,
    ) -> None:
        """Set how submissions are judged.

        Args:
            sandbox: the sandbox to run in, the name of a backend, or None for the strongest backend here.
            compare: how outputs are compared if the task does not say; see `gem.graders.compare`.
            checker: decides instead, if the task does not say: a function of what was given, the output and
                the expected output that returns a bool. It runs in this process, and the output is the
                submission's. Or Python code in text, which runs in the sandbox: such a function named
                ``check``, or a program called with the paths of three files (given, output, expected), which
                exits with 0 for right and with 1 or 2 for wrong.
            partial: score the fraction of tests passed, which runs all tests, instead of all or nothing.
            max_tests: the most tests to run; None runs all.
            tolerance: the absolute or relative error that a float may have.
            budget: the limits of each test; None takes BUDGET with its seconds scaled to this machine's
                speed.

        Raises:
            BadArgument: for an unknown comparison, a number of tests below 1, or a checker that is neither
                text nor a function.
        """
        check_argument(
            "max_tests", max_tests, max_tests is None or max_tests >= 1, "1 or more, or None for all"
        )
        check_checker(checker)
        self.sandbox = sandbox
        self.compare = check_compare(compare)
        self.checker = checker
        self.partial = partial
        self.max_tests = max_tests
        self.tolerance = tolerance
        self.budget = budget

    def __call__(self, answer: str, reference: Any) -> Score:
        """Score the code in an answer.

        Raises:
            NoVerdict: when the sandbox fails, or the task's own checker or tests do. BadArgument: for
                unreadable tests.
        """
        tests = read_tests(reference)
        code = submission(answer)
        if code is None:
            why = "there is no fenced code block"
            return Score(
                0.0, False, None, why, {"verdict": "NONE", "passed": 0, "run": 0, "tests": len(tests)}
            )
        return self.judge(code, tests)

    def judge(self, code: str, tests: CodeTests) -> Score:
        """Score code."""
        code = code.removeprefix("\ufeff")  # as Python does with a file's
        tests = replace(tests, compare=tests.compare or self.compare, checker=tests.checker or self.checker)
        budget = self.budget or scale_budget(BUDGET)
        chosen = tests.choose_tests(self.max_tests)
        run = _Run(self._open(), tests, budget, self.tolerance, self.partial, chosen)
        return run.score(code)

    @classmethod
    def reader(cls, columns: Columns, rows: Sequence[Any], where: str) -> TestsReader:
        """Return the reader of the tests, which may be asserts about code that begins in the question."""
        return TestsReader(columns.question, MORE_TESTS if columns.answer == "public_tests" else ())

    @staticmethod
    def read_golds(reference: Any) -> Sequence[CodeTests]:
        """Return the tests of a reference; see `read_tests`."""
        return [read_tests(reference)]

    def _open(self) -> Sandbox:
        if self.sandbox is None or isinstance(self.sandbox, str):
            return default_sandbox(self.sandbox)
        return self.sandbox


def submission(answer: str) -> str | None:
    """Return the code in an answer: the last fenced block labelled as Python, or else the last of any.

    A block that ends within thinking does not count; ``</think>`` in the code is no end of it.
    """
    thinking = len(answer) - len(parsing.drop_thinking(answer))
    blocks = [(label, body) for _, end, label, body in parsing.fences(answer) if end > thinking]
    labelled = [body for label, body in blocks if label == "python"] or [body for _, body in blocks]
    return labelled[-1].rstrip("\n") if labelled else None


def scale_budget(budget: Budget) -> Budget:
    """Return a budget with its seconds scaled to this machine's speed; they are never reduced."""
    slow = slowness()
    return replace(
        budget, cpu_s=float(math.ceil(budget.cpu_s * slow)), wall_s=math.ceil(budget.wall_s * slow)
    )


@functools.cache
def slowness() -> float:
    """Return how many times slower than the reference this machine is, between 1 and 4; measured once."""
    return min(max(min(_spin() for _ in range(5)) / _SPIN_S, 1.0), 4.0)


def _results(results: object) -> list[Result]:
    """Return the results of judging after checking their types.

    Raises:
        SandboxFailed: if they are not a list of results.
    """
    if not isinstance(results, list):
        raise SandboxFailed(f"the sandbox's judging returned {results!r:.80}, which is not a list.")
    return [check_result(result) for result in results]


def _spin() -> float:
    start = time.thread_time()
    total = 0
    for number in range(100_000):
        total += number * number % 7
    return time.thread_time() - start


class _Run:
    """The judging of one submission."""

    def __init__(
        self,
        sandbox: Sandbox,
        tests: CodeTests,
        budget: Budget,
        tolerance: float,
        partial: bool,
        chosen: list[int],
    ) -> None:
        self.sandbox, self.tests, self.budget = sandbox, tests, budget
        self.tolerance, self.partial, self.chosen = tolerance, partial, chosen
        self.outcomes: list[Outcome] = []
        self.unchecked: list[tuple[int, Any]] = []
        self.cpu_s = self.wall_s = self.memory_mb = 0.0
        self.isolated = True
        self.name = tests.name

    def score(self, code: str) -> Score:
        """Run the tests and return the score."""
        if self.tests.kind == "asserts":
            self._assert(code)
        else:
            self.name = _callable(code, self.tests.name or "")
            cases = [self._case(i) for i in self.chosen]
            self._judge(code, cases, self._enter)
            self._ask_checker()
        return self._sum_up(code)

    def _sum_up(self, code: str) -> Score:
        passed = sum(outcome.verdict == "AC" for outcome in self.outcomes)
        failed = next((i for i, outcome in enumerate(self.outcomes) if outcome.verdict != "AC"), None)
        info: dict[str, Any] = {
            "verdict": "AC" if failed is None else self.outcomes[failed].verdict,
            "passed": passed,
            "run": len(self.outcomes),
            "tests": len(self.tests),
            "compare": "checker" if self.tests.checker else self.tests.compare,
            "spent": {
                "cpu_s": self.cpu_s,
                "wall_s": self.wall_s,
                "memory_mb": self.memory_mb,
                "cpu_limit_s": self.budget.cpu_s,
                "wall_limit_s": self.budget.wall_s,
                "memory_limit_mb": self.budget.memory_mb,
                "backend": self.sandbox.backend,
            },
        }
        if self.tests.kind == "asserts":
            info["isolated"] = self.isolated
        why = ""
        if failed is not None:
            first = self.outcomes[failed]
            why = VERDICTS[first.verdict]
            limit = first.limit or {"MLE": "memory", "OLE": "output"}.get(first.verdict)
            if limit is not None:
                info["limit"] = limit
            if first.verdict != "CE":
                why += f" on test {failed + 1} of {len(self.chosen)}"
            index = self.chosen[failed]
            if index < self.tests.public or first.verdict == "CE":
                info["public"] = self._describe_failure(index, first)
        correct = failed is None and len(self.outcomes) == len(self.chosen)
        value = passed / len(self.chosen) if self.partial else float(correct)
        return Score(value, correct, code, why, info)

    def _describe_failure(self, index: int, outcome: Outcome) -> dict[str, Any]:
        """Return what the agent may read of a test that failed."""
        if outcome.verdict == "CE" or self.tests.kind == "asserts":
            return {"why": outcome.why}
        return {
            "given": self.tests.inputs[index],
            "wanted": None if self.tests.checker else self.tests.outputs[index],
            "got": outcome.got,
            "why": outcome.why,
        }

    # -- programs and functions

    def _case(self, index: int) -> Case:
        given = self.tests.inputs[index]
        if self.tests.kind == "program":
            return Case(stdin=given.encode("utf-8", "surrogatepass"))
        return Case(call=self.name, args=given)

    def _judge(self, program: str, cases: list[Case], enter: Callable[[int, Result], bool]) -> None:
        """Run the tests of a program, of which `enter` records the outcomes.

        Raises:
            SandboxFailed: if the sandbox ran not every test, and did not stop at one that failed, which is
                not the program's fault.
        """
        results = _results(self.sandbox.judge(program, cases, go_on=enter, budget=self.budget))
        if not self.outcomes and results:  # it does not compile
            enter(0, results[0])
        failed = any(outcome.verdict != "AC" for outcome in self.outcomes)
        if len(self.outcomes) < len(self.chosen) and not failed:
            raise SandboxFailed(
                f"the sandbox ran {len(self.outcomes)} of {len(self.chosen)} tests and does not say why."
            )

    def _enter(self, place: int, result: Result) -> bool:
        """Record the outcome of a test; return whether to go on."""
        self._note(result)
        outcome = self._outcome(self.chosen[place], result)
        self.outcomes.append(outcome)
        return outcome.verdict == "AC" or (self.partial and outcome.verdict != "CE")

    def _note(self, result: Result) -> None:
        """Update the maxima of CPU time, wall time and memory."""
        check_result(result)
        self.cpu_s, self.wall_s = max(self.cpu_s, result.cpu_s), max(self.wall_s, result.wall_s)
        self.memory_mb = max(self.memory_mb, result.memory_mb)

    def _outcome(self, index: int, result: Result) -> Outcome:
        if result.status is not Status.OK:
            why = _last_line(result.stderr)
            no_data = self.tests.kind == "function" and _NO_DATA.match(why)
            verdict = "WA" if no_data and result.status is Status.RE else result.status.value
            return Outcome(verdict, why, result.stdout[:1000], _limit(result))
        if self.tests.kind == "asserts":
            return self._read_verdict(result)
        if self.tests.kind != "program" and result.value is None:
            raise SandboxFailed("the sandbox ran a function to its end and has no result of it.")
        if self.tests.kind == "program":
            got: Any = result.stdout
        else:
            try:
                got = read_plain(result.value or "")
            except ValueError:
                return Outcome("WA", "what the function returned is no plain data")
        got_text = replace_surrogates(got) if isinstance(got, str) else replace_surrogates(result.value or "")
        if self.tests.checker:
            self.unchecked.append((len(self.outcomes), got))  # asked later: it needs a child of its own
            return Outcome("AC", "", got_text[:1000])
        return Outcome("AC" if self._right(index, got) else "WA", "", got_text[:1000])

    def _right(self, index: int, got: Any) -> bool:
        """Return whether an output is right; what cannot be compared is wrong."""
        for wanted in self.tests.right_outputs(index):
            try:
                if self._same(got, wanted):
                    return True
            except Exception:
                self._same(wanted, wanted)  # raises too where it is the task that cannot be compared
        return False

    def _same(self, got: Any, wanted: Any) -> bool:
        compare = self.tests.compare or "tokens"
        if self.tests.kind == "program":
            return same_text(got, wanted, compare, self.tolerance)
        return same_value(got, wanted, compare, self.tolerance) or (
            self.tests.wrapped and same_value(got, wanted[0], compare, self.tolerance)
        )

    def _ask_checker(self) -> None:
        """Let the task's checker decide on the outputs; as text it is trusted, but runs in the sandbox."""
        for place, got in self.unchecked:
            given, wanted = (each[self.chosen[place]] for each in (self.tests.inputs, self.tests.outputs))
            right = self._run_checker(given, got, wanted)
            if isinstance(right, str) and isinstance(why := self._run_checker(given, wanted, wanted), str):
                raise NoVerdict(f"the task's checker fails on the wanted output too: {why}.")
            if right is not True:
                self.outcomes[place] = replace(self.outcomes[place], verdict="WA")
                if not self.partial:
                    return

    def _run_checker(self, given: Any, got: Any, wanted: Any) -> bool | str:
        """Return the checker's verdict on an output; if the checker fails, how."""
        checker = self.tests.checker or ""
        if callable(checker):
            try:
                verdict = checker(given, got, wanted)
            except Exception as error:
                return f"{type(error).__name__}: {text_of_error(error)}"
            return verdict if isinstance(verdict, bool) else f"it returned {verdict!r:.80}, no bool"
        if defines_check(checker):
            cases = [Case(call="check", args=(given, got, wanted))]
            results = _results(self.sandbox.judge(checker, cases, budget=self.budget))
            if not results:
                raise SandboxFailed("the sandbox did not run the task's checker.")
            result = results[0]
            if result.ok and result.value in ("true", "false"):
                return result.value == "true"
            return f"it returned {result.value!r:.80}, no bool" if result.ok else _describe_end(result)
        files = {
            name: (text if isinstance(text, str) else write_plain(text)).encode("utf-8", "surrogatepass")
            for name, text in (("given", given), ("output", got), ("expected", wanted))
        }
        result = check_result(self.sandbox.run(checker, args=list(files), files=files, budget=self.budget))
        code = result.exit_code
        return code == 0 if code in (0, 1, 2) else _describe_end(result)

    # -- asserts

    def _assert(self, code: str) -> None:
        """Run every test in its own process, next to the submission's process."""
        program, tests = assemble_program(code, self.tests), self.tests
        if not tests.isolate:
            self._assert_together(program)
            return
        cases = [
            Case(
                tester=read_tester(),
                args=(
                    *(tests.inputs[i], tests.preamble, tests.name),
                    *map(list, (tests.classes, tests.unknown, tests.imported)),
                    tests.question,
                ),
                steps=min(max(len(_ASSERT.findall(tests.inputs[i])), 1), MOST_BUDGETS),
            )
            for i in self.chosen
        ]
        self._judge(program, cases, self._enter)
        self._check_surroundings()

    def _check_surroundings(self) -> None:
        """Look whether an error is that of the task's own code, which ran in the submission's process.

        Raises:
            NoVerdict: if that code fails without a submission too.
        """
        tests = self.tests
        simple = find_imports(tests.preamble).strip() == tests.preamble.strip()
        if not any(o.verdict == "RE" and (not simple or _LACKS.match(o.why)) for o in self.outcomes):
            return
        imports = [] if tests.isolate else [find_imports(tests.inputs[i]) for i in self.chosen]
        code = "\n".join([tests.preamble, *imports])
        if code.strip():
            result = check_result(self.sandbox.run(code, budget=self.budget))
            if result.status is Status.RE:
                raise NoVerdict(f"the task's own code fails: {_last_line(result.stderr)}.")

    def _read_verdict(self, result: Result) -> Outcome:
        """Return the tester's verdict on a test that it ran to its end."""
        try:
            verdict, why = json.loads(result.value or "")
        except (ValueError, TypeError, RecursionError):
            verdict, why = "", ""
        if verdict == "BROKEN":
            raise NoVerdict(f"the task's tests fail by themselves: {why}.")
        if not isinstance(verdict, str) or verdict not in VERDICTS or not isinstance(why, str):
            raise SandboxFailed(f"the tester of asserts said {result.value!r:.200}.")
        return Outcome(verdict, replace_surrogates(why))

    def _assert_together(self, program: str) -> None:
        """Run the tests in the submission's process, after it, for tasks with ``isolate: False``."""
        self.isolated = False
        word = secrets.token_hex(16)
        end = f"\n__import__('os').write(1, b'{word}')\n"
        named = "" if self.tests.name is None else f"{CANDIDATE} = {self.tests.name}\n"
        # A function that a submission lacks is not the builtin of that name.
        own = {*self.tests.imported, root(self.tests.name or "")} & {*dir(builtins)}
        own_names = "".join(f"globals()[{each!r}]\n" for each in sorted(own))
        outside = "__name__ = 'tests'\n"  # what is below `if __name__ == "__main__"` would end the process
        cases = [
            Case(
                code=own_names
                + f"{outside if '__main__' in test else ''}{named if CANDIDATE in test else ''}{test}{end}"
            )
            for test in (self.tests.inputs[i] for i in self.chosen)
        ]

        def enter(place: int, result: Result) -> bool:
            self._note(result)
            why = _last_line(result.stderr)
            verdict = "AC" if result.ok else result.status.value
            if verdict == "RE" and why.startswith("AssertionError"):
                verdict = "WA"
            elif verdict == "AC" and word not in result.stdout:
                verdict, why = "RE", "ended before the asserts did"
            self.outcomes.append(Outcome(verdict, why, limit=_limit(result)))
            return verdict == "AC" or (self.partial and verdict != "CE")

        self._judge(program, cases, enter)
        self._check_surroundings()


def _describe_end(result: Result) -> str:
    """Return how a run of a checker ended that gave no verdict."""
    if result.ok or result.status.value == "RE":
        return f"exit code {result.exit_code} {_last_line(result.stderr)}".rstrip()
    return f"{VERDICTS[result.status.value]} {_last_line(result.stderr)}".rstrip()


def _limit(result: Result) -> str | None:
    """Return which limit ended a run (cpu, wall, memory, output or processes), or None."""
    match result.status:
        case Status.TLE:
            return "wall" if result.info.get("why") == "wall" else "cpu"
        case Status.MLE:
            return "memory"
        case Status.OLE:
            return "output"
    return "processes" if _NO_PROCESS.match(_last_line(result.stderr)) else None


_NO_DATA = re.compile(r"TypeError: the result is (no plain data|nested too deep)")
_ASSERT = re.compile(r"^\s*(?:assert\b|[\w.]+\.assert\w*\()", re.MULTILINE)
_LACKS = re.compile("(ModuleNotFound|Import|FileNotFound|Name)Error")
_NO_PROCESS = re.compile(r"BlockingIOError: \[Errno 11\]|RuntimeError: can't start new thread")


def _callable(code: str, name: str) -> str:
    """Return how to call a submission's function; some data sets name a method of class Solution."""
    names = find_definitions(code) or frozenset()
    return f"Solution.{name}" if "." not in name and name not in names and "Solution" in names else name


def assemble_program(code: str, tests: CodeTests) -> str:
    """Return the program of a submission with asserts: after the prompt's imports, or as its continuation."""
    names = find_definitions(code)
    if tests.opening and not (names and {root(tests.name or ""), "Solution"} & names):
        continued = tests.opening + code
        if names is not None or find_definitions(continued) is not None:
            return continued
    if not tests.preamble.strip():
        return code
    future = re.compile(r"^from __future__ import .*$", re.MULTILINE)  # must come first
    return "\n".join([*future.findall(code), tests.preamble, future.sub("", code)])


def _last_line(text: str) -> str:
    return text.rstrip().rpartition("\n")[2][:500]


def feedback(public: Mapping[str, Any], kind: str) -> str:
    """Return the text that the agent reads about the first failure that may be shown."""
    lines: Sequence[tuple[str, Any]] = [
        (key, public[key]) for key in ("given", "wanted", "got") if public.get(key) is not None
    ]
    titles = {"given": "Input" if kind == "program" else "Arguments", "wanted": "Expected", "got": "Yours"}
    parts = [f"{titles[key]}:\n{_short(value)}" for key, value in lines]
    return "\n".join([*parts, *([str(public["why"])] if public.get("why") else [])])


def _short(value: Any) -> str:
    text = value.rstrip("\n") if isinstance(value, str) else write_plain(value)
    return text if len(text) <= 500 else f"{text[:500]} ... ({len(text)} characters)"
