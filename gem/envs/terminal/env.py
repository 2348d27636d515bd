"""TerminalEnv: shell tasks on a Linux machine, scored by a hidden test of the final state."""

from __future__ import annotations

import functools
import shutil
import time
from os import PathLike
from typing import TYPE_CHECKING, ClassVar, cast

from gem.core import Start, Step
from gem.envs.kit.workspace import Burst, TurnReport, WorkCall, WorkspaceEnv, Written, submit_spec
from gem.envs.terminal.base import HealthCheck, Machine, TerminalTask, choose_reward
from gem.envs.terminal.container import open_container
from gem.envs.terminal.folder import read_folder
from gem.envs.terminal.tasks import FAMILIES
from gem.errors import (
    BadArgument,
    MissingExtra,
    NoSolver,
    NoVerdict,
    ToolError,
    check_argument,
    check_count,
    check_seconds,
    did_you_mean,
    install_command,
)
from gem.record import StopReason
from gem.sandbox import default_sandbox
from gem.sandbox.base import Budget, ProgramSession, Sandbox, SandboxFailed, Session, check_result
from gem.sandbox.container import find_engine
from gem.tools.base_tool import BaseTool
from gem.tools.shell_tool import report

if TYPE_CHECKING:
    from gem.sandbox.programs import Run

LEVELS = ("easy", "hard")
_SETUP = Budget(cpu_s=30.0, wall_s=30.0)
_HOW = """\
You work at a bash shell in a {machine}. Write commands in <bash>...</bash> or \
```bash blocks; you read what they print. The working folder and exported variables are \
kept from turn to turn; nothing can be typed into a running program. When the task is done, write <submit/> \
(or \\boxed{{done}}): what is in the box then counts. You have {turns} turns; the commands of one \
may take {command_s:g} s, and those of all together {time_s:g} s."""
_BASH = Written(
    "bash",
    "Run bash commands; you read what they print. The working folder and exported variables are kept from "
    "call to call; nothing can be typed into a running program.",
    "command",
    "one or more lines of bash",
    tag="bash",
    fences=("bash",),
)


class TerminalEnv(WorkspaceEnv):
    r"""A task at a bash shell.

    Task:
        Change the files of a small Linux machine without internet as the instruction asks. Each id is a
        family of tasks that are drawn from the seed: searching and reports, logs, archives, git, permissions,
        processes, a web service, a build, a package with defects. ``TerminalEnv(task_dir=...)`` takes any
        task folder in the layout of Terminal-Bench or Harbor.
    Action:
        Bash commands in ``<bash>...</bash>`` or fenced ``bash`` blocks, or calls of the tool `bash`; up to 20
        run in order. ``<submit/>``, ``\boxed{done}`` or a call of `submit` ends the task, after the commands
        of the same turn. Closed thinking is ignored. After an action with neither, or with more
        calls, the agent reads how to write one, and the turn is used up. A submission in the same turn as an
        invalid call does not count.
    Observation:
        The output of the commands: standard output, then errors, with the middle of long output left out;
        and the exit code if it is not 0.
    Reward:
        1 if the hidden test passes, else 0; nothing before the end. The test of a task folder in Harbor's
        layout gives any number, and may give several by name (info ``rewards``); 1 or more is success.
    End:
        When the agent submits, or when the turns or the seconds for all commands are used up. In each case
        the test judges the final state. A command over its time limit is stopped. A command that exceeds the
        limits of the machine (memory, endless output) fails the task. All processes are ended before the test
        runs.
    Source:
        The families are gem's own; the layouts of task folders are Harbor's and Terminal-Bench's.

    The machine starts with the first command. It cannot be forked or saved. The task depends only on the
    seed. Clocks and process ids are real, so a transcript may not repeat exactly.
    """

    forkable: ClassVar[bool] = False
    waits_for = ""
    """What the running call waits for, if it may take long."""
    form = "Write commands in <bash>...</bash>, or <submit/> when the task is done."
    in_a_box: ClassVar[bool] = True
    tool_specs = (_BASH.spec(), submit_spec("End the task: what is there then counts."))

    def __init__(
        self,
        name: str | None = None,
        level: str = "easy",
        task_dir: str | PathLike[str] | None = None,
        max_turns: int = 20,
        command_s: float = 10.0,
        time_s: float = 120.0,
        sandbox_type: str | Sandbox | None = None,
        task: TerminalTask | None = None,
        shims: bool = False,
    ) -> None:
        """Choose a family of tasks, a task folder, or your own task.

        Args:
            name: a family, as ``GitMerge``.
            level: ``easy`` or ``hard``.
            task_dir: a task folder instead.
            max_turns: the turns that the task states.
            command_s: seconds that the commands of one turn may take.
            time_s: seconds that all commands of an episode may take.
            sandbox_type: the sandbox's backend, or a Sandbox object; None takes the best backend here.
            task: your own TerminalTask instead, with its image and hidden test.
            shims: let the test of a task folder in Harbor's layout find replacements of apt-get, curl and
                uvx, which use what is installed here (`gem.envs.terminal.harbor.TOOLS`).

        Raises:
            BadArgument: for an unknown family or level, or a task folder that cannot be read.
            MissingExtra: when a program that the family needs is not installed.
            SandboxFailed: when this machine has no sandbox, or its best one has no shell; or, for a task
                folder with a Dockerfile, no container engine.
        """
        if [name, task_dir, task].count(None) != 2:
            raise BadArgument("TerminalEnv takes a family's name, a task_dir or a task: exactly one of them.")
        if name is not None and name not in FAMILIES:
            raise BadArgument(
                f"no family {name!r} of terminal tasks.{did_you_mean(name, FAMILIES)} There are: "
                f"{', '.join(FAMILIES)}."
            )
        check_argument("level", level, level in LEVELS, ", ".join(LEVELS))
        check_count("max_turns", max_turns)
        check_seconds("command_s", command_s, optional=False)
        check_seconds("time_s", time_s, optional=False)
        self.name = name
        self.level = level
        self.given_task = task if task_dir is None else read_folder(task_dir, shims=shims)
        self.max_turns = max_turns
        self.command_s = command_s
        self.time_s = time_s
        self.sandbox_type = sandbox_type
        for program in FAMILIES[name].programs if name else ():
            if shutil.which(program) is None:
                raise MissingExtra(
                    f"terminal:{name} needs the program {program}: install it, for example with apt."
                )
        self._check_machine(self.given_task)
        self.task: TerminalTask | None = None
        self.used_s = self._until = 0.0
        self._session: Session | None = None
        self._run_of: Run | None = None
        self._setup_said = ""
        self._solved = False
        self._rewards: dict[str, float] = {}

    # -- the contract

    def reset(self, seed: int | None = None) -> Start:
        """Draw a task; see Env.reset. The machine starts with the first command."""
        super().reset(seed)
        self._end_session()
        self.turn = 0
        self.used_s = 0.0
        self._solved = False
        self._rewards = {}
        self.task = self.choose_task()
        online = self.task.dockerfile is not None and self.task.dockerfile.internet
        how = _HOW.format(
            machine="Linux box" if online else "Linux box without internet",
            turns=self.max_turns,
            command_s=self.command_s,
            time_s=self.time_s,
        )
        return Start(f"{self.task.instruction}\n\n{how}", {**self.task.info})

    def choose_task(self) -> TerminalTask:
        """Return the task of the episode's seed."""
        task = self.given_task or FAMILIES[self.name or ""].draw(self.rng, self.level == "hard")
        if task.loopback:
            self._check_machine(task)
        return task

    def close(self) -> None:
        """Stop the machine and all its processes."""
        self._end_session()
        super().close()

    def sample_random_action(self) -> str:
        """Return a harmless command, or a submission; see Env.sample_random_action."""
        looks = self._need_task().looks or ("ls", "pwd")
        if self.actor_rng.random() < 0.3:
            return "<submit/>"
        return f"<bash>{self.actor_rng.choice(looks)}</bash>"

    def solve(self) -> str:
        """Return the family's solution, then the submission; see Env.solve.

        Raises:
            NoSolver: for a task folder without a solution.
        """
        solution = self._need_task().solution
        if not solution:
            raise NoSolver(
                f"{self} has no solver: the task folder has no solution script, or further files beside it."
            )
        return "<submit/>" if self._solved else f"<bash>\n{solution}\n</bash>"

    # -- the machine

    def tools(self) -> list[BaseTool]:
        """Return the shell tool; see WorkspaceEnv."""
        return [_BASH]

    def begin_turn(self) -> None:
        """Set the time limit of the turn; see WorkspaceEnv."""
        self._until = self.used_s + max(0.1, min(self.command_s, self.time_s - self.used_s))

    def carry_out(self, call: WorkCall, report: TurnReport) -> None:
        """Run commands; see WorkspaceEnv."""
        if self.used_s >= self._until:
            report.result(call, "It was not run: the time for the commands of a turn is used up.", error=True)
            return
        text, ok, lost = self._run(call.arguments["command"], self._until - self.used_s)
        report.result(call, text, error=not ok)
        if lost:
            raise Burst("a command burst the machine")

    def run_program(self, run: Run) -> Step:
        """Let a program work in the machine until it ends, then judge what it left; see Env.run_program."""
        task = self._need_task()
        self._end_session()
        self._run_of = run
        if task.agent_s is not None:
            run.time_s = min(run.time_s, task.agent_s)
        try:
            result = run.work(cast("ProgramSession", self._open()), task.instruction)
            if result.info.get("ended"):
                return self.finish(TurnReport(), StopReason.FAILED, "the program burst the machine")
            return self._judge_and_finish(TurnReport(), StopReason.FAILED)
        finally:
            self._end_session()  # what the program has left running too

    def used_up(self) -> str:
        """Return a message when the time for commands is used up; see WorkspaceEnv."""
        return "The time for commands is used up." if self.used_s >= self.time_s else ""

    def _run(self, command: str, limit: float) -> tuple[str, bool, bool]:
        """Run one command; return what the agent reads, whether it succeeded, whether the machine is lost."""
        session = self._open()
        result = check_result(session.shell(command, Budget(wall_s=limit, cpu_s=limit)))
        self.used_s += result.wall_s
        self._solved |= command.strip() == self._need_task().solution.strip()
        lost = bool(result.info.get("ended"))
        if session.restarts and not lost:
            raise NoVerdict(f"the machine of {self} was lost.")
        return report(result, limit), result.ok, lost

    def _check_machine(self, task: TerminalTask | None) -> None:
        """Check that what the task runs in is here. Raises SandboxFailed."""
        if task is not None and task.dockerfile is not None:
            find_engine()
            return
        loopback = task is not None and task.loopback
        check_shell(self.sandbox_type, loopback=loopback)  # type: ignore[arg-type]  # told by its identity

    def _open(self) -> Session:
        if self._session is None:
            task, budget = self._need_task(), Budget(cpu_s=60.0, wall_s=60.0)
            if task.dockerfile is not None:
                self._session = open_container(task.dockerfile, budget, self._run_of)
            elif self._run_of is not None:
                self._session = self._run_of.open_session(files=task.files, image=task.image)
            else:
                self._session = default_sandbox(self.sandbox_type).session(
                    files=task.files, image=task.image, loopback=task.loopback, budget=budget
                )
            self._prepare(self._session)
        return self._session

    def begin_state(self) -> tuple[bytes, str]:
        """Return the first state of the machine, as a tar of its working folder, and its set-up's output."""
        return self._open().snapshot(), self._setup_said

    def _prepare(self, session: Session) -> None:
        """Set the machine up, and wait until its health check succeeds. Raises NoVerdict."""
        task = self._need_task()
        if task.setup:
            result = check_result(session.shell(f"(\n{task.setup}\n)", _SETUP))
            if not result.ok:
                self._end_session()
                raise NoVerdict(f"the set-up of {self} failed: {report(result, _SETUP.wall_s)[-500:]}")
            self._setup_said = result.stdout
        if task.exports and not check_result(session.shell(task.exports, _SETUP)).ok:
            self._end_session()
            raise NoVerdict(f"the variables of {self} cannot be set.")
        if task.health is not None:
            self.waits_for = f"the health check of {task.info.get('task', self)}"
            self._wait_until_healthy(session, task.health)
            self.waits_for = ""

    def _wait_until_healthy(self, session: Session, health: HealthCheck) -> None:
        budget = Budget(cpu_s=health.timeout_s, wall_s=health.timeout_s)
        counted_from = time.monotonic() + health.start_s
        failures = 0
        while True:
            counts = time.monotonic() >= counted_from
            result = check_result(session.shell(f"(\n{health.command}\n)", budget))
            if result.ok:
                return
            failures += counts
            if failures >= health.retries or result.info.get("ended"):
                self._end_session()
                words = report(result, health.timeout_s)[-500:]
                raise NoVerdict(f"the health check of {self} failed: {words}")
            time.sleep(health.interval_s if counts else health.start_interval_s)

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
        self._run_of, self._setup_said = None, ""

    def judge(self) -> str:
        """Judge the final state with the hidden test; see WorkspaceEnv."""
        if self._session is None and self.given_task is None:  # every family's task needs a change
            return "nothing was done"
        task = self._need_task()
        budget = Budget(cpu_s=task.test_s, wall_s=task.test_s)
        name = f" of {task.info['task']}" if "task" in task.info else ""
        self.waits_for = f"the test{name} (at most {task.test_s:g} s)"
        try:
            verdict = task.check(Machine(self._open(), budget, self._setup_said, task.folder))
        except NoVerdict as error:
            raise type(error)(f"the test{name} gave no verdict: {error}") from error
        finally:
            self.waits_for = ""
        if not isinstance(verdict, dict):
            return verdict
        self._rewards, reward = verdict, choose_reward(verdict)
        return "" if reward >= 1 else f"the test's reward is {reward:g}"

    def finish(self, report: TurnReport, stop: StopReason, why: str) -> Step:
        """Stop the machine and return the last step; see WorkspaceEnv."""
        self._end_session()
        step = super().finish(report, stop, why)
        if not self._rewards:
            return step
        named = {"rewards": self._rewards} if self._rewards.keys() != {"reward"} else {}
        return step._replace(reward=choose_reward(self._rewards), info={**step.info, **named})

    def _need_task(self) -> TerminalTask:
        assert self.task is not None  # gem.Env makes sure that reset() comes first
        return self.task


@functools.cache
def check_shell(sandbox_type: str | Sandbox | None = None, *, loopback: bool = False) -> None:
    """Check that the sandbox here has a shell, and with `loopback` its own network.

    Raises:
        SandboxFailed: if it has not.
    """
    sandbox = default_sandbox(sandbox_type)
    try:
        session = sandbox.session(loopback=loopback)
    except BadArgument as error:
        raise SandboxFailed(f"this task needs a network of its own: {error}") from error
    try:
        if not session.shell("true").ok:
            raise ToolError("bash is not there.")
    except (ToolError, NotImplementedError) as error:
        raise SandboxFailed(
            f"terminal: environments need a sandbox with a shell; the backend {sandbox.backend!r} has none: "
            f"{error} `{install_command('terminal')}` installs one; `gem-gym sandbox` lists what is here."
        ) from error
    finally:
        session.close()
