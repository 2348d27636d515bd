"""TerminalTask and Machine: a terminal task, and the access that its hidden test has to the final state."""

from __future__ import annotations

import json
import math
import posixpath
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from gem.errors import NoVerdict, ToolError
from gem.sandbox.base import Budget, Result, Session, Status, check_result

PREPARATION = Budget(cpu_s=60.0, wall_s=60.0)
"""The limits of what is done before a test: were they the test's, its short time would fail the agent."""


class Machine:
    """Access to the state that the agent left, for a hidden test.

    A command runs in a clean shell, after all processes of the agent have been ended. Its output may still
    come from programs that the agent wrote, so it cannot be trusted: compare it here with values that only
    the test knows.
    """

    def __init__(self, session: Session, budget: Budget, setup: str = "", folder: str = "") -> None:
        """Use `folder` of `session`; `setup` is the output of the task's set-up, from before the agent."""
        self.session = session
        self.budget = budget
        self.setup = setup
        self._folder = folder

    def run(self, command: str, budget: Budget | None = None) -> Result:
        """Run a bash command; without a budget in that of the test."""
        command = f"{_UNTOUCHED}; cd ~/{self._folder} || exit 99; {command}"
        return check_result(self.session.shell(command, budget or self.budget, clean=True))

    def read(self, path: str) -> bytes | None:
        """Return a file's content; None if there is no such regular file."""
        try:
            return self.session.read_file(posixpath.normpath(posixpath.join(self._folder, path)))
        except ToolError:
            return None

    def text(self, path: str) -> str | None:
        """Return a UTF-8 file of at most 4 MiB as text without blank space around it, None for any other."""
        try:
            data = self.read(path) or b"\xff"
            return data.decode().strip() if len(data) <= _TEXT_BYTES else None
        except UnicodeDecodeError:
            return None

    def answer(self, path: str) -> str | None:
        """Return an answer's text; its file may begin with a BOM, or be a link to a file below home."""
        quoted = shlex.quote(path)
        if self.read(path) is None:
            places = self.run(f"[ -L {quoted} ] && readlink -ze -- ~ {quoted}").stdout.split("\0")
            if len(places) == 3 and places[1].startswith(f"{places[0]}/"):
                path = posixpath.relpath(places[1], posixpath.join(places[0], self._folder))
        text = self.text(path)
        return text and text.removeprefix("\ufeff").strip()

    def json(self, path: str) -> Any:
        """Return the value of a JSON `answer`; None if there is none, or an integer no float holds."""
        try:
            return json.loads(self.answer(path) or "null", parse_int=_read_integer)
        except (ValueError, RecursionError):
            return None

    def write_file(self, path: str, data: bytes) -> None:
        """Write a file that the test needs."""
        self.session.write_file(posixpath.join(self._folder, path), data)


_TEXT_BYTES = 4 << 20  # the lines of a file of 60 MB took 1.7 GB


def _read_integer(digits: str) -> int:
    """Return an integer that tests may compute with. Raises ValueError for one that no float holds."""
    if math.isinf(float(digits)):
        raise ValueError(digits)
    return int(digits)


Check: TypeAlias = Callable[[Machine], str]
"""A hidden test: ``""`` when the state is as asked, else what is wrong with it."""

ScoredCheck: TypeAlias = Callable[[Machine], str | dict[str, float]]
"""A hidden test that may return rewards by name instead, as `read_rewards` does."""


_UNTOUCHED = (
    "export LC_ALL=C.UTF-8 GIT_CONFIG_GLOBAL=/dev/null GIT_NO_REPLACE_OBJECTS=1 GIT_GRAFT_FILE=/dev/null "
    "PYTHONDONTWRITEBYTECODE=1"
)
"""Settings that protect the commands of a hidden test from the agent's settings."""


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """An image to build, and the limits of its container; `own` files of the folder stay out of the image.

    `image` names one that is pulled instead, and then nothing is built.
    """

    folder: Path
    image: str = ""
    own: frozenset[str] = frozenset()
    internet: bool = False
    build_s: float = 600.0
    memory_mb: int = 2048
    cpus: float | None = None


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A command that succeeds once a machine is ready; it is run before the agent's first command.

    Failures within `start_s` seconds do not count, and are followed by `start_interval_s` seconds of waiting.
    `retries` failures after that, each `interval_s` seconds after the last, are no verdict.
    """

    command: str
    interval_s: float = 5.0
    timeout_s: float = 30.0
    start_s: float = 0.0
    start_interval_s: float = 5.0
    retries: int = 3


@dataclass(frozen=True, slots=True)
class TerminalTask:
    """One task at a terminal.

    The working folder begins as a private copy of `image` (a folder, a tar file or a tar's bytes). Then
    `files` are added, and the bash script `setup` runs. `check` is the hidden test. `solution` is a bash
    script that solves the task with only the information of the instruction. `loopback` asks for a network
    without other machines. `looks` are commands for the random actor, and `test_s` is the limit in seconds of
    a command of the test. The tasks of a family are in a `folder` of the working folder. A task with a
    `dockerfile` runs in a container of that image, and begins with the image's files and `setup`. `exports`
    are bash commands that export variables before the agent's first command. `info` is what the first
    observation's info says of the task: for a folder its name as `task`, a digest as `data`, and its
    `difficulty`. `agent_s` is how many seconds the folder gives its agent, `health` what has to succeed
    before it begins.
    """

    instruction: str
    check: ScoredCheck
    solution: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)
    image: str | PathLike[str] | bytes | None = None
    setup: str = ""
    loopback: bool = False
    looks: tuple[str, ...] = ()
    test_s: float = 60.0
    folder: str = ""
    dockerfile: Dockerfile | None = None
    exports: str = ""
    info: Mapping[str, str] = field(default_factory=dict)
    agent_s: float | None = None
    health: HealthCheck | None = None


@dataclass(frozen=True, slots=True)
class TerminalFamily:
    """A family of tasks; `make(rng, hard)` draws one, and it needs `programs` besides coreutils.

    `starts`: the set-up starts programs that go on running.
    """

    make: Callable[[Random, bool], TerminalTask]
    programs: tuple[str, ...] = ()
    starts: bool = False

    def draw(self, rng: Random, hard: bool) -> TerminalTask:
        """Draw a task in a folder with a random name, so that no answer fits another instance unchanged."""
        folder = f"{rng.choice(WORDS)}-{rng.randint(100, 999)}"
        task = self.make(rng, hard)
        return replace(
            task,
            folder=folder,
            instruction=f"Work in the folder {folder}: all paths are meant from there. {task.instruction}",
            files={f"{folder}/{path}": data for path, data in task.files.items()},
            setup=f"cd {folder}\n{task.setup}" if task.setup else "",
            solution=f"cd ~/{folder} || exit\n{task.solution}",
            looks=tuple(f"cd ~/{folder} && {look}" for look in task.looks),
        )


WORDS = """
amber anchor apple arrow autumn badge basket beacon birch border bottle branch bridge bronze bucket butter
cabin candle canyon carbon castle cedar chapel cherry circle clover cobalt coffee copper coral cotton cradle
desert dragon ember engine falcon feather fennel forest fossil garden garnet ginger glacier granite harbor
hazel helmet hollow indigo island ivory jasmine jungle kettle ladder lagoon lantern lemon lichen linen magnet
maple marble meadow mirror mosaic needle nickel oak ocean olive orchid oyster pebble pepper pigeon planet
plum pocket prairie quartz rabbit raven ribbon river saddle saffron salmon shadow silver spruce stable summit
sunset tavern temple thistle timber tunnel turtle valley velvet violet walnut willow winter yarrow
""".split()  # noqa: SIM905  a hundred quoted words would fill two screens


def expect(path: str, wanted: str) -> Check:
    """Return a test that a text file holds the wanted text, apart from blank space around it."""

    def check(machine: Machine) -> str:
        text = machine.answer(path)
        if text is None:
            return f"{path} is missing or no text"
        lines = [line.rstrip() for line in text.splitlines()]
        return "" if lines == wanted.strip().splitlines() else f"{path} is wrong"

    return check


def script_verdict(reward: str | None, done: Result) -> str:
    """Return the verdict of a test script: by its reward, or without a reward by its exit code."""
    if reward is None:
        return "" if done.ok else f"the test's script ended with {done.exit_code}"
    try:
        return "" if float(reward) >= 1 else f"the test's reward is {reward[:20]}"
    except ValueError:
        return "the test's reward is no number"


REWARD_FILES = ("reward.json", "reward.txt")
"""The files that a test in Harbor's layout writes to ``/logs/verifier``, in the order of `read_rewards`."""


def check_finished(done: Result, machine: Machine) -> None:
    """Raise NoVerdict for a test that did not come to its end, whatever it wrote, as Harbor does.

    Raises ToolError, which fails the task, where the agent left a named pipe, which the test may have read.
    """
    if done.status is Status.TLE:
        if machine.run("find ~ /app /tmp -xdev -type p -print -quit 2>/dev/null | grep -q .").ok:
            raise ToolError("the test took too long, and the agent left a named pipe that it may have read")
        raise NoVerdict(f"the test took more than {machine.budget.wall_s:g} s.")
    if done.info.get("ended"):
        raise NoVerdict("the machine ended in the test.")


def read_rewards(json_file: bytes | None, text_file: bytes | None, output: str = "") -> dict[str, float]:
    """Return the rewards by name that a test wrote, as the verifier of Harbor 0.25 reads them.

    Args:
        json_file: the content of ``reward.json``, an object of finite numbers; None: there is no such file.
        text_file: the content of ``reward.txt``, one finite number, the reward named ``reward``. It is read
            only where there is no ``reward.json``.
        output: what the test printed; its end is in the error for a test without rewards.

    Raises:
        NoVerdict: without a file, and for one that is empty or holds anything else.
    """
    name, data = ("reward.txt", text_file) if json_file is None else ("reward.json", json_file)
    if data is None:
        ends = f" Its output ends with {output.strip()[-300:]!r}." if output.strip() else ""
        raise NoVerdict(f"the test wrote neither reward.json nor reward.txt.{ends}")
    try:
        text = data.decode()
        rewards = {"reward": float(text)} if json_file is None else json.loads(text)
        for key in rewards:
            key.encode()
        if not all(isinstance(reward, int | float) for reward in rewards.values()):
            raise TypeError
        numbers = {key: float(reward) for key, reward in rewards.items()}
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        accepted = "one number" if json_file is None else "an object of numbers"
        raise NoVerdict(f"the test's {name} holds {data[:80]!r}; accepted: {accepted}.") from None
    if not all(map(math.isfinite, numbers.values())):
        raise NoVerdict(f"the test's {name} holds {data[:80]!r}; accepted: finite numbers.")
    return numbers


def choose_reward(rewards: Mapping[str, float]) -> float:
    """Return the reward of an episode: the one named ``reward``, or the only one.

    Raises:
        NoVerdict: for several of which none has this name, as Harbor has no single reward then.
    """
    if "reward" in rewards:
        return rewards["reward"]
    if len(rewards) != 1:
        names = ", ".join(rewards) or "none"
        raise NoVerdict(f"the test's rewards are {names:.200}; accepted: one named reward, or only one.")
    return next(iter(rewards.values()))


def sentence(rng: Random, length: int, words: list[str] = WORDS) -> str:
    """Return a line of random words."""
    return " ".join(rng.choice(words) for _ in range(length))
