"""Small environments that break, wait or crash on command; importable by worker processes."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import warnings
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from gem.core import Env, Start, Step
from gem.errors import NoVerdict
from gem.seats import MultiStart, MultiStep, SeatedEnv


class Scripted(Env):
    """Does what the action says; an episode has `length` steps, and its observations draw from the world."""

    shared = ("gate",)

    def __init__(self, length: int = 5, gate: threading.Event | threading.Barrier | None = None) -> None:
        self.length = length
        self.gate = gate

    def reset(self, seed: int | None = None) -> Start:
        super().reset(seed)
        self.turn = 0
        return Start(f"start {self.rng.randrange(10**6)}", {"pid": os.getpid()})

    def step(self, action: str) -> Step:
        self.turn += 1
        if action == "raise":
            raise ValueError("asked to")
        if action == "exit":
            raise SystemExit(3)
        if action == "cancel":
            raise asyncio.CancelledError("its own loop")
        if action == "interrupt":
            raise KeyboardInterrupt
        if action == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if action == "hang":
            threading.Event().wait()
        if action == "wait" and self.gate is not None:
            assert self.gate.wait(20), "nobody opened the gate"
        if action == "meet" and self.gate is not None:
            self.gate.wait()
        if action == "lock":
            return Step("lock", 0.0, False, False, {"it": threading.Lock(), "turns": (1, 2)})
        if action == "unloadable":
            return Step("unloadable", 0.0, False, False, {"it": [Unloadable()], "turns": (1, 2)})
        obs = f"{action} {self.rng.randrange(10**6)}"
        return Step(obs, self.turn / 8, self.turn >= self.length, action == "cut", {"turn": self.turn})


class Fragile(Scripted):
    """Its reset breaks when the seed is odd."""

    def reset(self, seed: int | None = None) -> Start:
        start = super().reset(seed)
        if self.seed is not None and self.seed % 2:
            raise OSError("no luck")
        return start


class Reusing(Env):
    """Returns the same info, and the same list in it, from every call."""

    def __init__(self) -> None:
        self.info = {"success": False, "said": []}

    def reset(self, seed: int | None = None) -> Start:
        super().reset(seed)
        self.info["success"] = False
        self.info["said"].clear()
        return Start("A door.", self.info)

    def step(self, action: str) -> Step:
        self.info["success"] = action == "open"
        self.info["said"].append(action)
        return Step(action, 1.0, action == "open", False, self.info)


def careless_values(kind: str) -> tuple[Any, Any, Any]:
    """Return an observation, a reward and an info."""
    if kind == "knot":
        knot: dict[str, Any] = {}
        knot["me"] = knot
        return "seen", 1.0, knot
    info = MappingProxyType({"a": 1})
    return (b"seen" if kind == "bytes" else "seen"), Fraction(1, 2), info


class Careless(Env):
    """Returns values of other types than it should, from its reset or from each step."""

    def __init__(self, kind: str = "text", when: str = "step") -> None:
        self.kind, self.when = kind, when

    def reset(self, seed: int | None = None) -> Start:
        super().reset(seed)
        obs, _, info = careless_values(self.kind if self.when == "reset" else "text")
        return Start(obs, info)

    def step(self, action: str) -> Step:
        return Step(*careless_values(self.kind)[:2], False, False, careless_values(self.kind)[2])


class CarelessSeats(SeatedEnv):
    """The same with two seats, of which the second never acts."""

    seats = ("p0", "p1")

    def __init__(self, kind: str = "text", when: str = "step") -> None:
        self.kind, self.when = kind, when

    def reset(self, seed: int | None = None) -> MultiStart:
        super().reset(seed)
        obs, _, info = careless_values(self.kind if self.when == "reset" else "text")
        return MultiStart({"p0": obs}, {"p0": {}, "p1": info})

    def step(self, actions: dict[str, str]) -> MultiStep:
        obs, reward, info = careless_values(self.kind)
        flags = dict.fromkeys(self.seats, False)
        return MultiStep({"p0": obs}, {"p0": 0, "p1": reward}, flags, flags, {"p0": {}, "p1": info})


class OddError(Exception):
    """Cannot be unpickled: its constructor takes two arguments."""

    def __init__(self, a: str, b: str) -> None:
        super().__init__(f"{a} and {b}")


class OddFailure(NoVerdict):
    """Cannot be unpickled either."""

    def __init__(self, a: str, b: str) -> None:
        super().__init__(f"{a} and {b}")


class Odd(Scripted):
    """Its errors cannot be unpickled: that of its own tool after `fail`, else one that the action causes."""

    def step(self, action: str) -> Step:
        if action == "fine":
            return Step("fine", 1.0, True, False, {"success": True})
        raise (OddFailure if action == "fail" else OddError)("salt", "pepper")


class Looping(Scripted):
    """Runs an event loop of its own in each call."""

    def reset(self, seed: int | None = None) -> Start:
        asyncio.run(asyncio.sleep(0))
        return super().reset(seed)

    def step(self, action: str) -> Step:
        return asyncio.run(self._step(action))

    async def _step(self, action: str) -> Step:
        await asyncio.sleep(0)
        return super().step(action)

    def close(self) -> None:
        asyncio.run(asyncio.sleep(0))
        self.closed = True


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork while threads run
        return os.fork()


class Parental(Scripted):
    """Starts child processes, and says what they make of SIGINT."""

    def step(self, action: str) -> Step:
        code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        child = multiprocessing.get_context("spawn").Process(target=os.getpid)
        child.start()
        child.join()
        fork = _fork()
        if not fork:
            os._exit(0 if signal.getsignal(signal.SIGINT) is signal.default_int_handler else 1)
        forked = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
        info = {"program": ran.stdout.strip(), "spawned": child.exitcode, "forked": forked}
        return Step("", 0.0, True, False, info)


class Forking(Scripted):
    """Forks at each step and when it closes; the fork does what the action says and leaves the call."""

    def step(self, action: str) -> Step:
        fork = _fork()
        if not fork:
            return super().step(action)
        return Step("", 0.0, False, False, {"fork": os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])})

    def close(self) -> None:
        fork = _fork()
        if not fork:
            sys.exit()
        os.waitpid(fork, 0)


class Survived(Scripted):
    """Starts a program and dies, sends much, or goes on; or computes without releasing the GIL."""

    def __init__(self, pid_file: str) -> None:
        super().__init__()
        self.pid_file = pid_file

    def step(self, action: str) -> Step:
        if action == "compute":
            re.match(r"(a+)+$", "a" * 60 + "b")
        program = [sys.executable, "-c", "import signal; signal.pause()"]
        own = action == "own"
        child = subprocess.Popen(program, close_fds=own, start_new_session=not own)  # keeps the pipes open
        Path(self.pid_file).write_text(str(child.pid))
        if action == "own":
            return Step("", 0.0, False, False, {})
        if action == "send":
            return Step("x" * 10_000_000, 0.0, False, False, {})
        os._exit(3)


class Unloadable:
    """Leaves this process, and cannot be made in another."""

    def __reduce__(self) -> tuple[object, ...]:
        return int, ("seven",)


class Unsent(Scripted):
    """Returns from two calls what does not reach another process."""

    def sample_random_action(self) -> str:
        return threading.Lock()  # type: ignore[return-value]

    def solve(self) -> str:
        return Unloadable()  # type: ignore[return-value]


class Rendezvous(Scripted):
    """Notes how many threads are inside its class at once, and stays inside for a moment."""

    inside: ClassVar[list[int]] = []
    most: ClassVar[list[int]] = []

    def step(self, action: str) -> Step:
        self.inside.append(1)
        self.most.append(len(self.inside))
        threading.Event().wait(0.002)  # long enough for others to come in, if nothing holds them back
        self.inside.pop()
        return super().step(action)


class Leaving(Scripted):
    """Leaves a file behind when it is closed."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def close(self) -> None:
        Path(self.path).touch()


class StalledClosing(Scripted):
    """Never has done with closing."""

    def close(self) -> None:
        threading.Event().wait()
