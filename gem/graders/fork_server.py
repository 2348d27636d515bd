"""The fork server of a grading pool: it loads a program once and forks workers that have it loaded.

`gem.graders.pool` runs it as a file, with the program's path as argument and the control socket on standard
input. It uses the standard library only, is trusted and has one thread. Only the workers read a model's
answers, each over its own socket. A program is a file with ``load()``, called once, and ``answer(question)``,
called in a worker.

On the control socket the server first sends ``{"ready": true}``, or what it lacks. To get a worker, the pool
sends the number 0 and the worker's end of a socket, and receives the worker's pid. To end a worker, it sends
the pid, and receives its code as in `subprocess.Popen.returncode`. When the pool closes the socket or dies,
the server ends all workers and itself. Other messages are four bytes of length and JSON.

A question has ``cpu_s``; its worker is killed when it has used that. The timer counts the worker's CPU time,
so a loaded machine does not change a verdict, and it also ends loops in C.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib.util
import json
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping
from types import ModuleType
from typing import Any

MEMORY_MB = 2048
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def main(path: str) -> None:
    """Load the program and fork workers until the pool closes the control socket."""
    control = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(0, 1)
    for name in (signal.SIGINT, signal.SIGHUP):  # Ctrl-C is the pool's business; its end closes the socket
        signal.signal(name, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    try:
        program = _import_program(path)
        program.load()
    except ImportError as error:
        send(control, {"missing": error.name or "a package", "why": str(error)})
    except Exception as error:
        send(control, {"broken": f"{type(error).__name__}: {error}"})
    else:
        gc.collect()
        gc.freeze()  # what is loaded stays in pages that the workers share
        send(control, {"ready": True})
        _serve(control, program)


def _import_program(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("program", path)
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


def _serve(control: socket.socket, program: ModuleType) -> None:
    server = os.getpid()
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    pids: set[int] = set()
    with contextlib.suppress(ConnectionError):
        while True:
            order, lines, _, _ = socket.recv_fds(control, 4, 1)
            if len(order) < 4:
                break
            (pid,) = struct.unpack("!i", order)
            if pid:
                pids.remove(pid)
                reply = _end(pid)
            else:
                reply = os.fork()
                if not reply:
                    try:
                        control.close()
                        if prctl:
                            prctl(_DIE_WITH_PARENT, signal.SIGKILL)
                        if os.getppid() == server:
                            _work(socket.socket(fileno=lines[0]), program)
                    finally:
                        os._exit(0)
                os.close(lines[0])
                pids.add(reply)
            control.sendall(struct.pack("!i", reply))
    for pid in pids:
        _end(pid)


def _end(pid: int) -> int:
    os.kill(pid, signal.SIGKILL)  # which changes nothing for one that has ended and was not waited for
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _work(line: socket.socket, program: ModuleType) -> None:
    """Answer questions until the other end closes."""
    _limit_memory()
    while True:
        try:
            question = receive(line)
        except OSError:
            return
        signal.setitimer(signal.ITIMER_PROF, question["cpu_s"])
        try:
            answer = program.answer(question)
        except Exception as error:
            answer = {"why": f"{type(error).__name__}: {error}"[:200]}
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        send(line, answer)


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MB << 20, MEMORY_MB << 20))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        pass  # not on this system


def send(line: socket.socket, message: Mapping[str, Any]) -> None:
    """Write one message."""
    data = json.dumps(message).encode()
    line.sendall(struct.pack(">I", len(data)) + data)


def receive(line: socket.socket, deadline: float | None = None) -> Any:
    """Read one message.

    Raises:
        ConnectionError: when the other end has closed. TimeoutError: at the deadline, of the monotonic clock.
    """
    (length,) = struct.unpack(">I", _exactly(line, 4, deadline))
    return json.loads(_exactly(line, length, deadline))


def _exactly(line: socket.socket, count: int, deadline: float | None) -> bytes:
    data = bytearray()
    while len(data) < count:
        if deadline is not None:
            line.settimeout(max(deadline - time.monotonic(), 1e-3))
        part = line.recv(min(count - len(data), 1 << 16))
        if not part:
            raise ConnectionError("it ended")
        data += part
    return bytes(data)


if __name__ == "__main__":
    main(sys.argv[1])
