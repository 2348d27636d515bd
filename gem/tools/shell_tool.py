"""ShellTool: bash in its own sandbox; the folder and environment are kept between calls."""

from __future__ import annotations

from typing import Self

from gem.errors import check_argument
from gem.sandbox.base import Budget, Result, Sandbox, Session, Status, check_result
from gem.tools.base_tool import BaseTool, ToolResult

MAX_CHARS = 10_000
"""The most characters of an output that the agent reads."""


class SessionTool(BaseTool):
    """The base of tools that run code in a sandbox, in one session for an episode if they are live."""

    def __init__(
        self, timeout: float, sandbox_type: str | Sandbox | None, max_chars: int, num_workers: int
    ) -> None:
        """Set the limits of a call. Raises BadArgument for a timeout that is not positive."""
        super().__init__(num_workers)
        check_argument("timeout", timeout, timeout > 0, "a positive number of seconds")
        self.timeout = timeout
        self.sandbox_type = sandbox_type
        self.max_chars = max_chars
        self._session: Session | None = None

    @property
    def budget(self) -> Budget:
        """The budget of a call."""
        return Budget(wall_s=self.timeout, cpu_s=self.timeout)

    def reset(self, seed: int) -> None:
        """End the last episode's session; the next call starts a new one."""
        self.close()

    def fork(self) -> Self:
        """Return a copy with a fork of the session; see BaseTool.fork."""
        twin = self.spawn()
        if self._session is not None:
            twin._session = self._session.fork()
        return twin

    def _say_where(self) -> str:
        """Return where the code of a call is written."""
        blocks = (f" or in a ```{label} block" for label in self.fences)
        return f"in <{self.tag}>...</{self.tag}>{''.join(blocks)}"

    def close(self) -> None:
        """End the session and all processes in it."""
        if self._session is not None:
            self._session.close()
            self._session = None


class ShellTool(SessionTool):
    """Bash in a sandbox session that lasts for the episode.

    The working folder and exported variables are kept between calls, standard input is empty, and background
    processes end with the episode. A command that runs out of time is stopped, and the agent reads so.
    """

    name = "bash"
    tag = "bash"
    fences = ("bash",)
    live = True

    def __init__(
        self,
        timeout: float = 10.0,
        sandbox_type: str | Sandbox | None = None,
        max_chars: int = MAX_CHARS,
        *,
        loopback: bool = False,
        num_workers: int = 1,
    ) -> None:
        """Set the limits of a command.

        Args:
            timeout: seconds of wall clock and of CPU.
            sandbox_type: the sandbox's backend, or a sandbox of yours; None takes the strongest backend here.
            max_chars: the most characters of an output to show; a longer one is cut in the middle.
            loopback: give the sandbox a private network with only 127.0.0.1.
            num_workers: upstream's; has no effect here.
        """
        super().__init__(timeout, sandbox_type, max_chars, num_workers)
        self.loopback = loopback

    def call(self, command: str) -> ToolResult:
        """Run a bash command in a sandbox without internet. Folder and variables are kept; stdin is empty.

        Args:
            command: one or more lines of bash.
        """
        if self._session is None:
            from gem.sandbox import default_sandbox

            self._session = default_sandbox(self.sandbox_type).session(loopback=self.loopback)
        result = check_result(self._session.shell(command, self.budget))
        return ToolResult(
            report(result, self.timeout, self.max_chars),
            error=not result.ok,
            info={"status": result.status.value},
        )

    def instruction_string(self) -> str:
        """Return the text that tells the agent how to use the tool."""
        return (
            f"You can run bash in a Linux sandbox without internet: write the commands {self._say_where()}. "
            "The working folder and exported variables are kept from call to call. "
            f"A call may take {self.timeout:g} s."
        )


def report(result: Result, timeout: float, max_chars: int = MAX_CHARS) -> str:
    """Return a command's result as the agent reads it: output, errors, and how it ended if not normally."""
    pieces = [part.rstrip("\n") for part in (result.stdout, result.stderr) if part.strip()]
    text = cut_middle("\n".join(pieces), max_chars)
    notes = [text] if text else []
    if result.cut:
        notes.append("[the output was longer than a command may print: the rest is lost]")
    if result.status is Status.TLE:
        notes.append(f"[stopped: it took more than {timeout:g} s]")
    elif result.status is Status.MLE:
        notes.append("[stopped: it took more memory than the sandbox has]")
    elif result.signal is not None:
        notes.append(f"[ended by signal {result.signal}]")
    elif result.exit_code:
        notes.append(f"[exit code {result.exit_code}]")
    if result.info.get("restarted"):
        notes.append("[the sandbox was begun anew: its files and processes are lost]")
    return "\n".join(notes) or "[no output]"


def cut_middle(text: str, max_chars: int) -> str:
    """Return `text`, or `max_chars` of its beginning and end around a note about the omitted part."""
    gone = len(text) - max_chars
    if gone <= 0:
        return text
    head = max_chars // 2
    return f"{text[:head]}\n[... {gone} characters left out ...]\n{text[head + gone :]}"
