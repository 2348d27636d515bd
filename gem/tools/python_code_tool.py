"""PythonCodeTool: Python in a sandbox, with a fresh process per call or one session per episode."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import closing
from random import Random
from typing import Any

from gem.content import Image
from gem.errors import CannotFork
from gem.sandbox.base import Budget, Result, Sandbox, Status, check_result
from gem.tools.base_tool import ToolResult
from gem.tools.shell_tool import MAX_CHARS, SessionTool, cut_middle

_FRAME = re.compile(r'  File "(.*?)", line \d+')
_OWN = re.compile(r"<.*cell.*>|<string>|<stdin>|<code>|.*main\.py")
_NUMBER = re.compile(r"(?<![\w.,])[0-9]{1,15}(?![\w.,]*\w)")
_EXPRESSION = re.compile(r"[-+*/%() \t0-9.]+")
_RANGE = re.compile(r"\d+(?:-\d+)+|\d+(?:/\d+){2}")  # as in "the numbers 1-4", or a date
_BEFORE = re.compile(r"(?:\w|\d,|[$#]|[^\w\s.,:;?!=\"'(]\s*)\Z")  # an expression is part of more
_AFTER = re.compile(r"\w|,\d|\s*[^\w\s.,:;?!=\"')]")
MAX_TRACEBACK_FRAMES = 3
"""The number of innermost frames of the agent's code that a traceback shows."""

UPSTREAM_TYPES: dict[str, str | None] = {"none": None, "bwrap": "userns"}
"""The backends for upstream's sandbox types; even 'none', upstream's default, isolates here."""


class PythonCodeTool(SessionTool):
    """Python in the sandbox; the agent sees the program's output and the value of its last expression.

    Every call is a separate program and may run in parallel with others. With `stateful`, all calls of an
    episode are cells of one session, which keeps names and files as a notebook does. A program that fails,
    hangs or exceeds its limits is the agent's error, explained in a few lines. A failure of the sandbox
    itself raises NoVerdict.
    """

    name = "python"
    tag = "python"
    fences = ("python",)

    def __init__(
        self,
        timeout: float = 5,
        sandbox_type: str | Sandbox | None = None,
        keep_error_last_line: bool = False,
        stateful: bool = False,
        max_chars: int = MAX_CHARS,
        *,
        num_workers: int = 1,
    ) -> None:
        """Set the limits of a call.

        Args:
            timeout: seconds of wall clock and of CPU.
            sandbox_type: the sandbox's backend, or a sandbox of yours; None takes the strongest backend that
                works here, and so does upstream's default 'none'.
            keep_error_last_line: show only the last line of an error.
            stateful: keep names and files between the calls of an episode.
            max_chars: the most characters of an output to show; a longer one is cut in the middle.
            num_workers: upstream's; has no effect here.

        Raises:
            BadArgument: for a timeout that is not positive.
        """
        super().__init__(timeout, sandbox_type, max_chars, num_workers)
        self.keep_error_last_line = keep_error_last_line
        self.stateful = self.live = stateful
        self.parallel_safe = not stateful

    def call(self, code: str) -> ToolResult:
        """Run Python in a sandbox without internet; you see its output and the value of its last expression.

        Args:
            code: a whole program.
        """
        if not self.stateful:
            with closing(backend(self.sandbox_type).session(budget=self.budget)) as session:
                return self._make_result(session.execute(code))
        if self._session is None:
            sandbox = backend(self.sandbox_type)
            self._session = sandbox.session(budget=self.budget, preload=("numpy", "sympy"))
        return self._make_result(self._session.execute(code))

    def instruction_string(self) -> str:
        """Return the text that tells the agent how to use the tool."""
        keeps = (
            "Names and files are kept from call to call, as in a notebook."
            if self.stateful
            else "Each call is a fresh program: nothing is kept from the one before."
        )
        return (
            "You can run Python (numpy, scipy and sympy are there) in a sandbox without internet: write the "
            f"program {self._say_where()}. You see what it prints and the value "
            f"of its last expression. {keeps} A call may take {self.timeout:g} s."
        )

    def sample_call(self, question: str, rng: Random) -> str:
        """Return an operation on two numbers of the question, or on two others where it has none."""
        numbers = [str(int(number)) for number in _NUMBER.findall(question)]
        numbers = numbers or [str(rng.randrange(100)) for _ in range(2)]
        return f"<python>{rng.choice(numbers)} {rng.choice('+-*')} {rng.choice(numbers)}</python>"

    def solving_call(self, question: str) -> str:
        """Return the longest arithmetic expression in the first paragraph; empty where it has none."""
        first = question.strip().split("\n\n", 1)[0]
        return self.computing_call(max(filter(_computes, _expressions(first)), key=len, default=""))

    def computing_call(self, expression: str) -> str:
        """Return the program that is the expression; empty for what is none."""
        return f"<python>{expression}</python>" if _computes(expression) else ""

    def __getstate__(self) -> dict[str, Any]:
        """Refuse to be copied or pickled while a session is open."""
        if self._session is not None:
            raise CannotFork("a running Python session cannot be copied; use fork().")
        return self.__dict__

    def _make_result(self, result: Result) -> ToolResult:
        check_result(result)
        info: dict[str, Any] = {"status": result.status.value}
        if result.info.get("restarted"):
            info["restarted"] = True
        images = [Image(figure, alt=f"[figure {n}]") for n, figure in enumerate(result.figures, 1)]
        return ToolResult(self._text(result), error=not result.ok, images=images, info=info)

    def _text(self, result: Result) -> str:
        printed = result.stdout.rstrip("\n")
        pieces = [cut_middle(printed, self.max_chars)] if printed.strip() else []
        if result.value is not None:
            pieces.append(cut_middle(result.value, self.max_chars))
        error = shorten(result.stderr).strip("\n")
        if error and self.keep_error_last_line and not result.ok:
            error = error.splitlines()[-1]
        if error:
            pieces.append(cut_middle(error, self.max_chars))
        if result.status is Status.TLE:
            pieces.append(f"Stopped: the program took more than {self.timeout:g} s.")
        elif result.status is Status.MLE:
            pieces.append("Stopped: the program took more memory than the sandbox has.")
        elif result.status is Status.OLE or result.cut:
            pieces.append("The program printed more than it may: the rest is lost.")
        elif result.signal is not None:
            pieces.append(f"The program was ended by signal {result.signal}.")
        elif not result.ok and not error:
            pieces.append(f"The program ended with exit code {result.exit_code}.")
        if self.stateful and result.info.get("ended"):
            pieces.append("The session ended with it: names and files are lost.")
        if result.figures:
            pieces.append(f"[{len(result.figures)} figure{'s' * (len(result.figures) > 1)}]")
        return "\n".join(pieces) or "[no output]"


def backend_of(sandbox_type: str | Sandbox | None) -> str | Sandbox | None:
    """Return the backend for one of upstream's sandbox types; anything else unchanged."""
    return UPSTREAM_TYPES.get(sandbox_type, sandbox_type) if isinstance(sandbox_type, str) else sandbox_type


def backend(sandbox_type: str | Sandbox | None) -> Sandbox:
    """Return the sandbox that a tool runs in.

    Raises:
        SandboxFailed: when it does not work here. BadArgument: for an unknown backend.
    """
    from gem.sandbox import default_sandbox

    return default_sandbox(backend_of(sandbox_type) or None)


def run_python(
    code: str, sandbox_type: str | Sandbox | None = None, stdin: str | None = None, timeout: float = 10
) -> tuple[bool, str, str]:
    """Run a program in a fresh sandbox, as upstream's function of this name does.

    Returns:
        Whether it ended by itself without an error, its output, and its errors.

    Raises:
        SandboxFailed: when the sandbox fails or does not work here.
    """
    budget = Budget(wall_s=timeout, cpu_s=timeout)
    given = (stdin or "").encode("utf-8", "surrogatepass")
    result = check_result(backend(sandbox_type).run(code, stdin=given, budget=budget))
    error = result.stderr
    if result.status is Status.TLE:
        error += f"Stopped: the program took more than {timeout:g} s.\n"
    elif result.status is Status.MLE:
        error += "Stopped: the program took more memory than the sandbox has.\n"
    return result.ok, result.stdout, error


def shorten(stderr: str) -> str:
    """Return error output with its tracebacks cut to the innermost frames of the agent's code.

    Text outside tracebacks stays unchanged.
    """
    kept: list[str] = []
    frames: list[list[str]] = []
    inside = False
    for line in stderr.splitlines():
        if line.startswith("Traceback (most recent call last):"):
            inside, frames = True, []
            kept.append(line)
        elif inside and line.startswith("  File "):
            frames.append([line])
        elif inside and line.startswith("  ") and frames:
            frames[-1].append(line)
        else:
            if inside:
                kept += _cut_frames(frames)
                inside = False
            kept.append(line)
    return "\n".join([*kept, *(_cut_frames(frames) if inside else [])])


def _cut_frames(frames: list[list[str]]) -> list[str]:
    def own(frame: list[str]) -> bool:
        match = _FRAME.match(frame[0])
        return bool(match and _OWN.fullmatch(match[1]))

    ours = [frame for frame in frames if own(frame)] or frames[-1:]
    lines = [line for frame in ours[-MAX_TRACEBACK_FRAMES:] for line in frame]
    left = len(ours) - MAX_TRACEBACK_FRAMES
    return [f"  [{left} more frames]", *lines] if left > 0 else lines


def _expressions(question: str) -> Iterator[str]:
    """Return texts that may be arithmetic expressions, without those that are a part of another one."""
    for match in _EXPRESSION.finditer(question):
        text = match[0].strip()
        start = match.start() + len(match[0]) - len(match[0].lstrip())
        near = question[max(0, start - 20) : start]  # all that is before it would take quadratic time
        around = _BEFORE.search(near) or _AFTER.match(question, start + len(text))
        expression = text.rstrip(".")
        if not around and not re.match(r"[-+]\s", text) and not _RANGE.fullmatch(expression):
            yield expression


def _computes(text: str) -> bool:
    """Return whether a short text is an arithmetic expression with at least one operation."""
    if len(text) > 200 or "**" in text or not _EXPRESSION.fullmatch(text):
        return False
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    return any(isinstance(node, ast.BinOp) for node in ast.walk(tree))
