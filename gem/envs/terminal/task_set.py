"""HarborEnv: task folders in Harbor's layout as one environment, in which a seed chooses the folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gem.envs.terminal.base import TerminalTask
from gem.envs.terminal.env import TerminalEnv
from gem.envs.terminal.folder import has_solution, read_folder
from gem.errors import BadArgument, MissingData, reason
from gem.files import read_text
from gem.sandbox.base import Sandbox
from gem.tasks.files import digest_folders

SHIMS = "+shims"
"""The end of a name that asks for `shims`."""
_AGENT_S = 600.0
"""Seconds of all commands where a folder states none for its agent."""
_MOST_NAMED = 8


class Entry(NamedTuple):
    """A task of a set: its folder, or why it has none here."""

    folder: Path
    refusal: str = ""


def find_tasks(name: str) -> list[Entry]:
    """Return the tasks that the name of an id means, in order.

    Args:
        name: a task folder; a folder of task folders; or a ``registry.json`` of Harbor, with ``#DATASET``
            or ``#DATASET@VERSION`` behind it where it has several data sets. Ends in ``+shims`` or not.

    Raises:
        MissingData: when there is no such file or folder. BadArgument: when it holds no task.
    """
    given, _, dataset = name.removesuffix(SHIMS).partition("#")
    path = Path(os.path.expanduser(given))
    if os.path.isfile(path) and path.suffix == ".json":
        return _read_registry(path, dataset)
    if not (given and os.path.isdir(path)):  # Path.is_dir() raises for a name that is too long
        raise MissingData(
            f"harbor:{name}: there is no folder or registry.json {given!r}; accepted: a task folder, a "
            "folder of task folders, or a registry.json."
        )
    if dataset:
        raise BadArgument(
            f"harbor:{name}: #{dataset} is a data set of a registry.json; {given!r} is a folder."
        )
    if (path / "task.toml").is_file():
        return [Entry(path)]
    folders = sorted(each.parent for each in path.glob("*/task.toml") if each.is_file())
    if not folders:
        raise BadArgument(
            f"harbor:{name}: there is no task.toml in {given!r}, nor in a folder of it; accepted: a task "
            "folder of Harbor, or a folder of them. What is elsewhere has to be fetched first, for example "
            "with git."
        )
    return [*map(Entry, folders)]


def _read_registry(path: Path, wanted: str) -> list[Entry]:
    """Return the tasks of a data set of a registry.json. Raises BadArgument."""
    try:
        rows = json.loads(read_text(path))
        datasets = {f"{row['name']}@{row['version']}": [*map(_Listed.read, row["tasks"])] for row in rows}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise BadArgument(
            f"{str(path)!r} cannot be read as a registry of Harbor: {reason(error)}; accepted: a JSON list "
            "of data sets, each with name, version and tasks."
        ) from error
    named = [key for key in datasets if not wanted or wanted in (key, key.rpartition("@")[0])]
    if len(named) != 1:
        raise BadArgument(
            f"{str(path)!r} has the data sets {', '.join([*datasets][:_MOST_NAMED]) or 'none'}; name one of "
            f"them as harbor:{path}#NAME@VERSION."
        )
    if not datasets[named[0]]:
        raise BadArgument(f"{str(path)!r}: the data set {named[0]} has no tasks.")
    return [task.find(path.parent) for task in datasets[named[0]]]


@dataclass(frozen=True, slots=True)
class _Listed:
    """A task as a registry.json lists it."""

    name: str
    path: str
    git_url: str | None
    git_commit_id: str | None

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> _Listed:
        """Return the task of a row. Raises LookupError, TypeError."""
        fields = (row["name"], row["path"], row.get("git_url"), row.get("git_commit_id"))
        if not all(isinstance(each, str) for each in fields[:2]) or not all(
            each is None or isinstance(each, str) for each in fields[2:]
        ):
            raise TypeError("a task's name, path, git_url and git_commit_id are texts")
        return cls(*fields)

    def find(self, folder: Path) -> Entry:
        """Return the task, whose path starts from the folder of the registry, or from its repository here."""
        place = folder
        if self.git_url is not None:
            place = folder / os.path.expanduser(self.git_url.removeprefix("file://"))
            if not os.path.isdir(place):
                return Entry(Path(self.path), self._refuse("is in a repository that is not on this machine"))
            if self.git_commit_id not in (None, "", "head", "HEAD"):
                return Entry(Path(self.path), self._refuse("names a commit, and gem does not check it out"))
        if not _is_below(folder, place / self.path / "task.toml"):
            return Entry(
                Path(self.path),
                f"task {self.name!r:.80} leads out of the registry's folder: {self.path!r:.200}"
                f"{f' in {self.git_url!r:.200}' if self.git_url else ''}. If you trust it, name its "
                "folder as harbor:PATH.",
            )
        if not os.path.isfile(place / self.path / "task.toml"):
            return Entry(Path(self.path), f"task {self.name!r}: there is no task.toml in {self.path!r}.")
        return Entry(place / self.path)

    def _refuse(self, why: str) -> str:
        commit = f", check out {self.git_commit_id!r:.80}" if self.git_commit_id else ""
        return (
            f"task {self.name!r:.80} {why}: {self.git_url!r:.200}. Clone it{commit}, and name its folder "
            f"{self.path!r:.200} as harbor:PATH."
        )


def _is_below(folder: Path, path: Path) -> bool:
    try:
        return folder.resolve() in path.resolve().parents
    except (OSError, ValueError, RuntimeError):  # no name that a file can have, or links in a circle
        return False


def solver_claim(name: str) -> dict[str, Any]:
    """Return the solver that the spec of an id claims: an oracle if each task has a solution."""
    try:
        solved = all(has_solution(task.folder) for task in find_tasks(name))
    except (BadArgument, MissingData, OSError):  # said when the environment is made
        solved = False
    return {"solver": "oracle" if solved else "none"}


class HarborEnv(TerminalEnv):
    """Tasks at a bash shell, from folders in the layout of Harbor.

    Task:
        The instruction of a task folder. The name of the id is the path of a folder, of a folder of such
        folders, or of a ``registry.json`` (see `find_tasks`). Seed s plays task s modulo n, in the order of
        the folders' names or of the registry; info has its name (`task`) and its `difficulty`.
    Action:
        As in TerminalEnv.
    Observation:
        As in TerminalEnv.
    Reward:
        What the test of the folder writes, as Harbor's verifier reads it; 1 or more is success. A test that
        hangs, or whose tools are not here, gives no verdict.
    End:
        As in TerminalEnv. All commands together may take what the task gives its agent.
    Source:
        The folder's.
    """

    def __init__(
        self,
        name: str,
        max_turns: int = 20,
        command_s: float = 60.0,
        time_s: float | None = None,
        sandbox_type: str | Sandbox | None = None,
        shims: bool = False,
    ) -> None:
        """Find the tasks. A single task is read at once, those of a set when they are played.

        Args:
            name: what is behind ``harbor:`` in the id; see `find_tasks`. With ``+shims`` at its end, `shims`
                are used.
            max_turns: the turns that the task states.
            command_s: seconds that the commands of one turn may take.
            time_s: seconds that all commands of an episode may take; None: those that the task gives its
                agent, or else 600.
            sandbox_type: as in TerminalEnv.
            shims: as in TerminalEnv.

        Raises:
            MissingData, BadArgument: when there are no tasks, or one cannot be played here.
            SandboxFailed: when a single task needs a sandbox or an engine that is not here.
        """
        self.tasks = find_tasks(name)
        self.shims = shims or name.endswith(SHIMS)
        self._own_time_s = time_s
        self._last: tuple[int, TerminalTask] | None = None
        first = self._read(0) if len(self.tasks) == 1 else TerminalTask("", lambda machine: "")
        super().__init__(None, "easy", None, max_turns, command_s, time_s or _AGENT_S, sandbox_type, first)

    @classmethod
    def digest_files(cls, name: str, **others: Any) -> str:
        """Return a digest of the task folders; see `gem.make`."""
        return digest_folders(task.folder for task in find_tasks(name) if not task.refusal)

    def seed_of(self, index: int) -> int:
        """Return the seed from 0 to n - 1 that plays task `index`."""
        return index

    def choose_task(self) -> TerminalTask:
        """Return the task of the episode's seed.

        Raises:
            BadArgument: when it needs what gem does not have. SandboxFailed: as in TerminalEnv.
        """
        task = self.given_task = self._read(self._need_seed() % len(self.tasks))
        self._check_machine(task)
        self.time_s = self._own_time_s or task.agent_s or _AGENT_S
        return task

    def _read(self, index: int) -> TerminalTask:
        if self._last is None or self._last[0] != index:
            folder, refusal = self.tasks[index]
            if refusal:
                raise BadArgument(refusal)
            self._last = index, read_folder(folder, shims=self.shims)
        return self._last[1]
