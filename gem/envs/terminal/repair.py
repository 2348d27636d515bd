"""RepairEnv: packages of others with one defect each, as the family ``repo:``.

The packages and their tests are the world ``repo`` of `gem.worlds`. A task is a recipe in ``repairs.json``:
the place of a mutant, and the tests that fail with it. ``scripts/repairs.py`` makes and verifies them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files as resources
from pathlib import Path

from gem.envs.kit.mutants import Mutant, find_mutants
from gem.envs.kit.splits import Split, check_split, split_of
from gem.envs.terminal.base import Machine, TerminalTask
from gem.envs.terminal.env import TerminalEnv
from gem.envs.terminal.repair_check import RUN, check_repair, read_passed
from gem.errors import BadArgument, check_argument, did_you_mean
from gem.sandbox import default_sandbox
from gem.sandbox.base import Budget, Result, Sandbox, check_result
from gem.tasks.order import Order
from gem.worlds import import_world

PACKAGES = {
    "arpeggio": ("Arpeggio 2.0.3", ("arpeggio",)),
    "automat": ("automat 25.4.16", ("automat",)),
    "boolean": ("boolean_py 5.0", ("boolean",)),
    "geographiclib": ("geographiclib 2.1", ("geographiclib",)),
    "pyflakes": ("pyflakes 4.1.0", ("pyflakes",)),
    "toolz": ("toolz 1.2.0", ("toolz", "tlz")),
}
"""The distribution of each package as its wheel names it, with its version, and its folders."""

FOLDER = "repo"
TEST_S = 60.0
"""Seconds for the tests of a package; each takes less than ten."""

_INSTRUCTION = """\
Work in the folder {folder}: it holds the Python package {name} {version}. One place of its file {path} was \
changed into a defect. {fails} because of it:
{tests}
Test files with a test that fails are not here; the others are. Repair the package. Then all of its own \
tests are run on a copy that has your versions of its Python files, and nothing else of yours: no new file, \
no change of a test. A file with new imports (but for collections, functools, itertools and math), or with \
more names with two underscores than before the defect, is refused. Python 3 and pytest are here."""


@dataclass(frozen=True, slots=True)
class Repair:
    """A recipe: the place of a mutant in a package, and what fails with it.

    `start` is a byte of the file at `path`, `operator` and `function` are as in `Mutant`. `fails` counts the
    tests that fail, `tests` has the first of them, `hidden` the files that they are in.
    """

    path: str
    start: int
    operator: str
    function: str
    fails: int
    tests: tuple[str, ...]
    hidden: tuple[str, ...]

    @property
    def task(self) -> str:
        """The name of the task in its package."""
        return f"{self.path}:{self.function}:{self.operator}"

    def find_mutant(self, files: Mapping[str, bytes]) -> Mutant:
        """Return the mutant in the files of the package. Raises StopIteration when it is not there."""
        return next(
            each
            for each in find_mutants(self.path, files[self.path])
            if (each.start, each.operator) == (self.start, self.operator)
        )


@functools.cache
def read_repairs(name: str) -> dict[str, Repair]:
    """Return the recipes of a package by task; an empty dict where it has none."""
    rows = json.loads(resources(__package__).joinpath("repairs.json").read_text("utf-8")).get(name, [])
    repairs = (Repair(**{**row, "tests": (*row["tests"],), "hidden": (*row["hidden"],)}) for row in rows)
    return {each.task: each for each in repairs}


@functools.cache
def read_package(name: str) -> dict[str, bytes]:
    """Return the files of a package and its tests, with its licence, by path.

    Raises:
        MissingExtra: where the world was not fetched.
    """
    place = import_world("repo")
    distribution, folders = PACKAGES[name]
    roots = [*folders, f"{distribution.replace(' ', '-')}.dist-info"]
    paths = [path for root in roots for path in sorted(Path(place, root).rglob("*")) if path.is_file()]
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in paths}


def run_tests(files: Mapping[str, bytes], sandbox: str | Sandbox | None = None) -> Result:
    """Run the tests of a package in a new session of the sandbox."""
    budget = Budget(cpu_s=TEST_S, wall_s=TEST_S)
    session = default_sandbox(sandbox).session(files=files, budget=budget)
    try:
        return check_result(session.shell(RUN, budget))
    finally:
        session.close()


_passed: dict[str, frozenset[str]] = {}


def list_passed(name: str, sandbox: str | Sandbox | None = None) -> frozenset[str]:
    """Return the tests that pass with the original package here; run once in a process."""
    if name not in _passed:
        _passed[name] = read_passed(run_tests(read_package(name), sandbox))
    return _passed[name]


class RepairEnv(TerminalEnv):
    r"""Find and repair the defect of a Python package.

    Task:
        A package of somebody else, by `name`, in one place of which an operator, a number, a condition or a
        statement was changed. The text names the file and the first tests that fail.
    Action:
        As in TerminalEnv: bash commands in ``<bash>...</bash>``, or calls of the tool `bash`; ``<submit/>``
        or ``\boxed{done}`` ends the task.
    Observation:
        The output of the commands.
    Reward:
        1 if every test passes that passes with the original package, else 0. The tests are run in a new
        sandbox, on the original's files with the agent's versions of the Python sources.
    End:
        As in TerminalEnv.
    Source:
        The packages are those of the world ``repo``, with their own tests; the defects are gem's mutants.
    """

    def __init__(
        self,
        name: str,
        split: Split | None = None,
        task: str | None = None,
        max_turns: int = 30,
        command_s: float = 60.0,
        time_s: float = 600.0,
        sandbox_type: str | Sandbox | None = None,
    ) -> None:
        """Choose the tasks.

        Args:
            name: the package.
            split: tasks for training, or for testing: one in five, by a digest of its name. None takes all.
            task: the name of one task, as ``toolz/itertoolz.py:take:Return``. None: the seed chooses.
            max_turns: the turns that the task states.
            command_s: seconds that the commands of one turn may take.
            time_s: seconds that all commands of an episode may take.
            sandbox_type: as in TerminalEnv.

        Raises:
            MissingExtra: where the world was not fetched. BadArgument: for a value that is not accepted.
            SandboxFailed: when this machine has no sandbox with a shell.
        """
        check_split(split)
        check_argument("name", name, name in PACKAGES, ", ".join(PACKAGES))
        repairs = read_repairs(name)
        if task is not None and task not in repairs:
            raise BadArgument(
                f"no task {task!r:.80}.{did_you_mean(task, repairs)} There are {len(repairs)}, "
                f"as {next(iter(repairs))!r}."
            )
        if task is not None and split not in (None, split_of(task)):
            raise BadArgument(f"{task} is a {split_of(task)} task; accepted: that split, or None.")
        read_package(name)
        placeholder = TerminalTask("", lambda machine: "")
        super().__init__(None, "easy", None, max_turns, command_s, time_s, sandbox_type, placeholder)
        self.given_task = None  # so that an episode without a command fails at once
        self.package = name
        self._tasks = [each for each in repairs if task in (None, each) and split in (None, split_of(each))]

    def choose_task(self) -> TerminalTask:
        """Return the task of the episode's seed."""
        order = Order(len(self._tasks), 0)
        return self.make_task(read_repairs(self.package)[self._tasks[order[self._need_seed() % len(order)]]])

    def make_task(self, repair: Repair) -> TerminalTask:
        """Return the task of a recipe."""
        files = read_package(self.package)
        mutant = repair.find_mutant(files)
        name, _, version = PACKAGES[self.package][0].partition(" ")
        hidden = {*repair.hidden, f"{name}-{version}.dist-info/RECORD"}  # which has digests of the original
        visible = {path: data for path, data in files.items() if path not in hidden}
        visible[repair.path] = mutant.apply(files[repair.path])

        def check(machine: Machine) -> str:
            run = functools.partial(run_tests, sandbox=self.sandbox_type)
            return check_repair(machine, files, run, list_passed(self.package, self.sandbox_type))

        return TerminalTask(
            _INSTRUCTION.format(
                folder=FOLDER,
                name=name,
                version=version,
                path=repair.path,
                fails="One test fails" if repair.fails == 1 else f"{repair.fails} tests fail",
                tests="\n".join([*repair.tests, *["..."] * (repair.fails > len(repair.tests))]),
            ),
            check,
            write_solution(mutant),
            {f"{FOLDER}/{path}": data for path, data in visible.items()},
            looks=(f"ls {FOLDER}", f"cd ~/{FOLDER} && head -n 40 {repair.path}; cd ~"),
            test_s=TEST_S,
            folder=FOLDER,
            info={"task": repair.task},
        )


def write_solution(mutant: Mutant) -> str:
    """Return the bash script that undoes a mutant."""
    end = mutant.start + len(mutant.after.encode())
    return (
        f"cd ~/{FOLDER} || exit\n"
        "python3 - <<'END'\n"
        "from pathlib import Path\n"
        f"file = Path({mutant.path!r})\n"
        "data = file.read_bytes()\n"
        f"file.write_bytes(data[:{mutant.start}] + {mutant.before.encode()!r} + data[{end}:])\n"
        "END"
    )
