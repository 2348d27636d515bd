"""The process host: a pool of worker processes, for environments that compute or may crash.

Workers are spawned, not forked. A fork copies the locks of the caller's threads (torch, tokenizers) in any
state. It also copies open files, so another worker's copy of a pipe could hide that a worker died. A fork
server would outlive close(). Workers start in parallel, in a fraction of a second. Adding an environment
does not wait for that, and starts no worker once there is one per core. Each leads a process group: if it
is killed, or dies, so are the programs that its environments started. Recipes, arguments and results are
pickled. All calls for a worker at one time are one message. Their outcomes return together, unless a call
takes longer than FLUSH_S: then the finished ones are sent.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from io import BytesIO
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from queue import SimpleQueue
from time import perf_counter, sleep
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple

from gem.content import Image, Text
from gem.core import Env, Start, Step
from gem.errors import BadArgument, NoVerdict, WorkerDied, check_argument, text_of_error
from gem.hosts.base import (
    Command,
    Host,
    Outcome,
    Recipe,
    Slot,
    await_closing,
    carry_out,
    overdue,
    stand_in_for,
)
from gem.source_files import with_sources

FLUSH_S = 0.001
"""Seconds that finished outcomes may wait for the rest of their message."""

START_S = 120.0
"""Seconds that a worker may take until it runs; then it is replaced, and its calls return WorkerDied."""

CLOSE_S = 2.0
"""Seconds that a worker may take to close its environments; then it is killed."""

SAFE_PATH = "PYTHONSAFEPATH"
"""The variable with which Python does not look for modules in the current folder first."""

UNGUARDED = 86
"""Exit code of a worker whose program would start workers again."""

UNGUARDED_MAIN = (
    "this program starts worker processes where it is imported, and each worker imports it first. Put what "
    'starts them under `if __name__ == "__main__":`, or use the thread host.'
)

NO_FILE = (
    "this program was read from {file}, and each worker process imports it as a file. Put it into a file, or "
    "use the thread host."
)

_REMOVE = ""
"""Sent in place of a verb to close and remove an environment; its argument is `call_s`."""

_SPAWN = multiprocessing.get_context("spawn")
_STARTING = threading.RLock()
"""Held while a worker starts, in an environment of this process that is changed for that; forks wait too."""
os.register_at_fork(
    before=_STARTING.acquire, after_in_parent=_STARTING.release, after_in_child=_STARTING.release
)
_NEVER = float("inf")
_LONGEST = 0x7FFFFFFF  # the most bytes of a message with a short header
_LONG = 0xFFFFFFFF  # before the size of a longer one
_PART = 1 << 16  # the most bytes that are received at once


class Processes(Host):
    """A host with worker processes; each has a share of the environments and runs its calls one by one.

    Each added environment starts a worker until there are `workers` of them; after that, a new environment
    goes to the worker with the fewest. Workers run until close(). A worker that dies, or whose call takes
    longer than `call_s`, is replaced at once. Its calls in flight return WorkerDied. Its other environments
    lost their episodes too: their next call returns WorkerDied, unless it is a reset. A close() that takes
    longer than half of `call_s` is left in a thread of the worker. Recipes must be picklable:
    `gem.registry.Maker`, functools.partial, a class.
    """

    def __init__(self, call_s: float | None = None, workers: int | None = None) -> None:
        """Start without environments, with at most `workers` workers (None: one per core).

        Raises:
            BadArgument: for less than one worker.
        """
        super().__init__(call_s)
        check_argument(
            "workers", workers, workers is None or workers >= 1, "1 or more, or None for one per core"
        )
        self._most = workers or os.cpu_count() or 1
        self._workers: list[_Worker] = []
        self._homes: dict[int, _Worker] = {}  # the worker of each environment
        self._recipes: dict[int, bytes] = {}
        self._made: set[int] = set()  # environments whose worker has the recipe
        self._lost: set[int] = set()  # environments of dead workers; their callers do not know yet
        self._done: list[Outcome] = []

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers, in the order in which they were first started."""
        return [worker.process.pid or 0 for worker in self._workers]

    # -- environments

    def _add(self, index: int, recipe: Recipe, alone: bool) -> None:
        self._recipes[index] = _pickle_recipe(index, recipe)
        shared = [worker for worker in self._workers if not worker.alone]
        worker = min(shared, key=lambda each: len(each.envs), default=None)
        if alone or worker is None or (worker.envs and len(shared) < self._most):
            _check_main()
            worker = _Worker(alone)
            self._workers.append(worker)
        worker.envs.add(index)
        self._homes[index] = worker

    def _remove(self, index: int) -> None:
        worker = self._homes.pop(index)
        worker.envs.discard(index)
        del self._recipes[index]
        self._lost.discard(index)
        if not worker.alone:
            self._unmake(index, worker)
        elif worker in self._workers:
            self._workers.remove(worker)
            self._made.discard(index)
            _end([worker])

    def _renew(self, index: int, recipe: Recipe | None) -> None:
        if recipe is not None:
            self._recipes[index] = _pickle_recipe(index, recipe)
        self._lost.discard(index)
        self._unmake(index, self._homes[index])

    def _unmake(self, index: int, worker: _Worker) -> None:
        """Make the worker close an environment, if it was made, without waiting."""
        if index in self._made:
            self._made.discard(index)
            worker.send(pickle.dumps([(index, _REMOVE, (self.call_s,), {}, None)]), ())

    # -- calls

    def _start(self, commands: Sequence[Command]) -> None:
        shares: dict[_Worker, list[tuple[Any, ...]]] = {}
        lost = self._lost.intersection([c[0] for c in commands if c[1] != "reset"]) if self._lost else ()
        for index, verb, args, kwargs in commands:
            if index not in lost:
                recipe = None if index in self._made else self._recipes[index]
                shares.setdefault(self._homes[index], []).append((index, verb, args, kwargs, recipe))
        messages = [
            with_sources(pickle.dumps(share)) for share in shares.values()
        ]  # may raise: none has started
        for worker in shares:
            if worker not in self._workers:  # its replacement could not be started; try again
                worker.start()
                self._workers.append(worker)
        for (worker, share), message in zip(shares.items(), messages, strict=True):
            indices = [call[0] for call in share]
            worker.send(message, indices)
            self._made.update(indices)
        self._done += [Outcome(index, None, WorkerDied(f"the worker of env {index} died.")) for index in lost]
        self._lost.difference_update([command[0] for command in commands])

    def _collect_outcomes(self, at_least: int, timeout: float | None) -> list[Outcome]:
        until = perf_counter() + timeout if timeout is not None else _NEVER
        while len(self._done) < at_least:
            waited: dict[Any, _Worker] = {}
            for worker in self._workers:
                if worker.in_flight:
                    waited[worker.pipe] = waited[worker.exit_end] = worker
            wake = min(until, min(worker.deadline(self.call_s) for worker in waited.values()))
            there = wait(list(waited), None if wake == _NEVER else max(0.0, wake - perf_counter()))
            for worker in dict.fromkeys(waited[end] for end in there):
                self._read(worker)
            now = perf_counter()
            for worker in self._workers:
                if worker.in_flight and now > worker.deadline(self.call_s):
                    if worker.runs and self.call_s is not None:
                        self._replace(worker, overdue("a call", self.call_s))
                    else:
                        self._replace(worker, overdue("the start of a worker", START_S, "START_S"))
            if now >= until:
                break
        done, self._done = self._done, []
        return done

    def _read(self, worker: _Worker) -> None:
        """Process what a worker has sent so far, or its death."""
        messages = None
        with suppress(EOFError, OSError):
            messages = worker.receive()
        if messages is None:
            worker.join(CLOSE_S)
            worker.kill_programs()
            if worker.process.exitcode == UNGUARDED:
                self._workers.remove(worker)
                worker.kill()
                raise BadArgument(UNGUARDED_MAIN)
            code = f"(exit code {worker.process.exitcode})"
            why = f"the worker of this environment died {code}."
            if not worker.runs:
                why = (
                    f"this environment's worker ended before it could run {code}; its error output says why."
                )
            self._replace(worker, WorkerDied(why))
            return
        for message in messages:
            try:
                outcomes = unpack_outcomes(message)
            except Exception as error:  # the environment wrote into the pipe
                self._replace(worker, WorkerDied(f"the worker's message cannot be loaded: {error}"))
                return
            worker.in_flight.difference_update([outcome[0] for outcome in outcomes])
            self._done += outcomes
        worker.heard = perf_counter()  # a part of a message counts: the call itself is over

    def _replace(self, worker: _Worker, error: WorkerDied) -> None:
        worker.kill()
        self._lost |= worker.envs & self._made - worker.in_flight
        self._made -= worker.envs
        self._done += [Outcome(index, None, error) for index in sorted(worker.in_flight)]
        try:
            worker.start()
        except WorkerDied:
            self._workers.remove(worker)  # the next call of its environments starts it

    def _close(self) -> None:
        _end(self._workers)


class _Worker:
    """The caller's side of a worker process, and of its replacement when it dies."""

    def __init__(self, alone: bool) -> None:
        self.alone = alone
        self.envs: set[int] = set()
        self.start()

    def start(self) -> None:
        """Start the process.

        Raises:
            WorkerDied: when the system cannot start one.
        """
        try:
            with _STARTING:
                self._start()
        except Exception as error:  # no memory, no file descriptor; or a warning of multiprocessing as error
            raise WorkerDied(
                f"a worker process cannot start ({text_of_error(error)}). Use fewer workers, or raise the "
                "limits of processes, memory and open files (ulimit -a)."
            ) from error

    def _start(self) -> None:
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            os._exit(UNGUARDED)  # a worker that is still importing the program; the caller says what is wrong
        self.pipe, theirs = _SPAWN.Pipe()
        safe = os.environ.get(SAFE_PATH)
        self.process = _SPAWN.Process(target=_serve, args=(theirs, safe), name="gem-env", daemon=True)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited until it can ignore it
        os.environ[SAFE_PATH] = "1"  # or a random.py in the current folder would hide the standard library's
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            if safe is None:
                del os.environ[SAFE_PATH]
            theirs.close()
        self.exit_end = _open_exit_end(self.process)
        self._channel = _Channel(self.pipe)
        self.in_flight: set[int] = set()
        self._started = perf_counter()
        # when its calls in flight started, or it last sent outcomes; its first message says that it runs
        self.heard = _NEVER

    @property
    def runs(self) -> bool:
        """Whether the process has said that it runs."""
        return self.heard < _NEVER

    def deadline(self, call_s: float | None) -> float:
        """Return when the next message of the process is overdue."""
        return self.heard + (call_s or _NEVER) if self.runs else self._started + START_S

    def send(self, message: bytes, indices: Sequence[int]) -> None:
        if not self.in_flight and self.runs:
            self.heard = perf_counter()
        self.in_flight.update(indices)
        with suppress(OSError):  # it is dead: these calls return WorkerDied
            self._channel.send(message)

    def receive(self) -> list[memoryview]:
        """Return the messages that are complete; see _Channel.receive."""
        return self._channel.receive()

    def join(self, timeout: float) -> None:
        """Wait for the end of the process."""
        wait([self.exit_end], timeout)

    def kill_programs(self) -> None:
        """Kill the process group, before anyone has asked how the process ended: its number is in use."""
        pid = self.process.pid
        if pid:  # 0 would be the caller's own group
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)

    def kill(self) -> None:
        """Release a process that has ended; kill one that has not, with the programs that it would close."""
        if self.process.is_alive():
            self.process.kill()  # it may have no group yet
            self.kill_programs()
        self.process.join()
        if self.exit_end != self.process.sentinel:
            os.close(self.exit_end)
        self.process.close()
        self._channel.close()
        self.pipe.close()


class _Channel:
    """Sends to a worker and receives from it without waiting for it, in the form of a Connection.

    What the pipe does not take at once, a thread sends: a worker does not read while an environment computes
    without releasing the GIL, as a regular expression does. What has come of a message is kept: a worker may
    stop or die before the rest, and a program of its environment may keep its end of the pipe open. The
    caller has to see either, and when a call is overdue.
    """

    def __init__(self, pipe: Connection[Any, Any]) -> None:
        self._socket = socket.socket(fileno=pipe.fileno())
        self._socket.setblocking(True)  # whatever socket.setdefaulttimeout says
        self._come = bytearray()
        self._rest: SimpleQueue[memoryview | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def send(self, message: bytes) -> None:
        """Send a message."""
        size = len(message)
        header = struct.pack("!I", size) if size <= _LONGEST else struct.pack("!IQ", _LONG, size)
        data = memoryview(header + message)
        if self._thread is None:
            with suppress(BlockingIOError):
                data = data[self._socket.send(data, socket.MSG_DONTWAIT) :]
            if not data:
                return
            self._thread = threading.Thread(target=self._send_rest, name="gem-outbox", daemon=True)
            self._thread.start()
        self._rest.put(data)

    def receive(self) -> list[memoryview]:
        """Read what is there, and return the messages that it completes.

        Raises:
            EOFError: at the end. BlockingIOError: when nothing is there. OSError: as a read does.
        """
        part = self._socket.recv(_PART, socket.MSG_DONTWAIT)
        if not part:
            raise EOFError
        self._come += part
        messages = []
        while len(self._come) >= 4:
            size, start = int.from_bytes(self._come[:4], "big"), 4
            if size == _LONG:
                size, start = int.from_bytes(self._come[4:12], "big"), 12
            if len(self._come) < start + size:
                break
            messages.append(memoryview(self._come)[start : start + size])
            self._come = self._come[start + size :]
        return messages

    def _send_rest(self) -> None:
        with suppress(OSError):  # the worker is dead, or this side is closed
            while (data := self._rest.get()) is not None:
                self._socket.sendall(data)

    def close(self) -> None:
        """End the thread; the pipe stays the caller's to close."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread where it still sends
        self._rest.put(None)
        if self._thread is not None:
            self._thread.join()
        self._socket.detach()


def _open_exit_end(process: SpawnProcess) -> int:
    """Return a file descriptor that can be read when a process has ended.

    Its sentinel is a pipe, which stays open as long as any program that an environment started.
    """
    if sys.platform == "linux":
        with suppress(OSError):  # a kernel without it
            return os.pidfd_open(process.pid or 0)
    return process.sentinel


def _check_main() -> None:
    """Refuse a program that workers cannot import, as one from the standard input."""
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if file and main.__spec__ is None and not os.path.exists(file):
        raise BadArgument(NO_FILE.format(file=file))


def _end(workers: Sequence[_Worker]) -> None:
    """Make workers close their environments and end; kill those that take too long."""
    for worker in workers:
        worker.send(b"", ())
    until = perf_counter() + CLOSE_S
    for worker in workers:
        worker.join(max(0.0, until - perf_counter()))
        worker.kill()


# -- in the worker


def _serve(pipe: Connection[Any, Any], safe_path: str | None) -> None:
    os.setsid()
    if safe_path is None:
        os.environ.pop(SAFE_PATH, None)
    # Ctrl-C is the caller's to handle. A program that the environment starts inherits an ignored signal,
    # but no handler; a fork gets Python's own.
    signal.signal(signal.SIGINT, lambda *_: None)
    os.register_at_fork(after_in_child=partial(signal.signal, signal.SIGINT, signal.default_int_handler))
    # Daemons may not have children; the caller's side still treats this process as one.
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    inbox: SimpleQueue[bytes | None] = SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, inbox), daemon=True).start()
    pipe.send_bytes(pack_outcomes([]))
    slots: dict[int, Slot] = {}
    with suppress(BrokenPipeError):  # the caller is gone without a word
        while (message := inbox.get()) is not None:
            batch = pickle.loads(message)  # an error here ends this process, and the caller notices that
            done: list[Outcome] = []
            sent = perf_counter()
            for index, verb, args, kwargs, recipe in batch:
                if verb == _REMOVE:
                    _close(slots.pop(index), *args)
                else:
                    if recipe is not None:
                        slots[index] = Slot(partial(_made_from, recipe))
                    done.append(carry_out(slots[index], (index, verb, args, kwargs)))
                if perf_counter() - sent > FLUSH_S:  # also nothing, which tells that a close() is over
                    pipe.send_bytes(pack_outcomes(done))
                    done, sent = [], perf_counter()
            if done:
                pipe.send_bytes(pack_outcomes(done))
    for slot in slots.values():
        slot.close()


def _close(slot: Slot, call_s: float | None) -> None:
    """Close an environment; leave a close() that hangs, before the next call's time is over."""
    if call_s is None:
        slot.close()
    else:
        await_closing(call_s / 2, slot.close)


def _listen(pipe: Connection[Any, Any], inbox: SimpleQueue[bytes | None]) -> None:
    """Read all the time, so that the caller never blocks on a worker that itself blocks on the caller.

    When the caller closes, or is gone, the worker gets some time to finish and then ends in any case.
    """
    try:
        while message := pipe.recv_bytes():
            inbox.put(message)
    except (EOFError, OSError):
        pass
    inbox.put(None)
    sleep(CLOSE_S)
    os.killpg(os.getpid(), signal.SIGKILL)


def _made_from(recipe: bytes) -> Env:
    try:
        make = pickle.loads(recipe)
    except AttributeError as error:  # it is of a program that has no file, as of `python -c` or a notebook
        raise BadArgument(
            f"the recipe cannot be loaded in a worker process ({error}); accepted on the process host: what "
            "can be imported. Put its class or function into a file of its own, or use the thread host."
        ) from error
    return make()  # type: ignore[no-any-return]


def pack_outcomes(outcomes: list[Outcome]) -> bytes:
    """Pickle outcomes; one that the caller cannot load leaves the others alone."""
    plain = [(index, value, error and _packed_error(error)) for index, value, error in outcomes]
    file = BytesIO()
    try:
        _OwnPickler(file, pickle.HIGHEST_PROTOCOL).dump(plain)  # copies an array once
        return file.getvalue()
    except Exception:
        return pickle.dumps({index: _pack_outcome(index, *result) for index, *result in plain})


class _OwnPickler(pickle.Pickler):
    """Pickles what surely loads: no classes but numpy's and those of gem's results."""

    def reducer_override(self, value: Any) -> Any:
        """Refuse values of other classes."""
        kind = type(value)
        if kind in _NAMED:
            kind = value
        if kind in _OWN or f"{kind.__module__}.".startswith("numpy."):
            return NotImplemented
        raise pickle.PicklingError(kind)


def _pack_outcome(index: int, value: Any, error: _PackedError | None) -> bytes:
    has_info = isinstance(value, tuple) and len(value) > 0 and isinstance(value[-1], dict)
    try:
        data = pickle.dumps((value, error))
        if has_info:
            pickle.loads(data)
        return data
    except Exception as failure:
        if has_info:
            with suppress(Exception):
                sent = (*value[:-1], _sendable(value[-1]))
                return pickle.dumps((getattr(value, "_make", tuple)(sent), None))
        return pickle.dumps((None, _packed_error(_unsent(index, failure))))


def _sendable(value: Any) -> Any:
    """Return a value of an info; what pickle cannot write and read becomes text, as in a store."""
    try:
        pickle.loads(pickle.dumps(value))
        return value
    except Exception:
        if type(value) is dict:
            return {key: _sendable(each) for key, each in value.items()}
        from gem import codec  # here, because nearly no worker needs it

        return codec.restored(codec.plain(value))


def _unsent(index: int, error: Exception) -> NoVerdict:
    return NoVerdict(
        f"a result of env {index} cannot be sent by the process host ({text_of_error(error)}); accepted: "
        "what pickle can write, and read in the caller's process. The serial and thread hosts take any value."
    )


def unpack_outcomes(message: bytes | memoryview) -> list[Outcome]:
    """Return the outcomes that `pack_outcomes` wrote; one that cannot be loaded is an error."""
    outcomes = pickle.loads(message)
    if isinstance(outcomes, dict):
        return [_unpack_outcome(index, data) for index, data in outcomes.items()]
    return [Outcome(index, value, error and _unpack_error(error)) for index, value, error in outcomes]


def _unpack_outcome(index: int, data: bytes) -> Outcome:
    try:
        value, error = pickle.loads(data)
    except Exception as failure:
        return Outcome(index, None, _unsent(index, failure))
    return Outcome(index, value, error and _unpack_error(error))


class _PackedError(NamedTuple):
    """An error on its way to the caller; where `pickled` cannot be loaded, another one stands in for it."""

    name: str
    message: str
    where: str
    no_verdict: bool
    pickled: bytes


_OWN = frozenset((Start, Step, Text, Image, _PackedError))
_NAMED = (type, FunctionType, BuiltinFunctionType)  # pickled by module and name


def _packed_error(error: Exception) -> _PackedError:
    where = "".join(traceback.format_exception(error))
    pickled = b""
    with suppress(Exception):
        pickled = pickle.dumps(error)
    return _PackedError(
        type(error).__name__, text_of_error(error), where, isinstance(error, NoVerdict), pickled
    )


def _unpack_error(error: _PackedError) -> Exception:
    copy = None
    with suppress(Exception):  # often of an exception with its own constructor
        copy = pickle.loads(error.pickled)
    if not isinstance(copy, Exception):
        copy = stand_in_for(error.name, error.no_verdict)(error.message)
    copy.add_note(f"In the worker:\n{error.where}")
    return copy


def _pickle_recipe(index: int, recipe: Recipe) -> bytes:
    try:
        return pickle.dumps(recipe)
    except Exception as error:
        raise BadArgument(
            f"the recipe of env {index} cannot be pickled ({error}); accepted on the process host: a Maker, "
            "or a class or functools.partial that can be imported. The thread host takes any callable."
        ) from error
