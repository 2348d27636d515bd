"""The tester of assert-style tests: a program that runs inside the sandbox.

The asserts hold the expected values, so they must not share a process with the submission, which could read
them, skip them or redefine what they call. Here the tester forks first: the child loads the submission and
answers calls; the parent, which the child can neither read nor trace, then reads the tests and runs them
against stand-ins that send arguments to the child and get plain data back.

Standard input: the length of the submission and a line break, the submission, then the tests as JSON.
Standard output: a JSON object, written by the parent alone.
"""

# This file is read as text and run in the box: it may import the standard library alone.

from __future__ import annotations

import builtins
import ctypes
import json
import os
import resource
import signal
import sys
import types
from collections.abc import Callable
from contextlib import suppress
from typing import Any

REPLY_LIMIT = 16 * 1024 * 1024
CANNOT_FORK = 77


class Unpackable(Exception):
    """A value that is no plain data."""


def pack(value: Any, depth: int = 0) -> Any:
    """Return plain data as JSON that tells tuples, sets, bytes and floats apart."""
    if depth > 200:
        raise Unpackable("data nested more than 200 deep")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return {"n": hex(value)}  # decimal digits are limited in number
    if isinstance(value, float):
        return {"f": float.__repr__(value)}
    if isinstance(value, complex):
        return {"c": [value.real, value.imag]}
    if isinstance(value, (bytes, bytearray)):
        return {"b": bytes(value).hex()}
    if isinstance(value, dict):
        return {"d": [[pack(k, depth + 1), pack(v, depth + 1)] for k, v in value.items()]}
    if isinstance(value, range):
        return {"r": [value.start, value.stop, value.step]}
    for kind, mark in ((list, "l"), (tuple, "t"), (set, "s"), (frozenset, "z")):
        if isinstance(value, kind):
            return {mark: [pack(each, depth + 1) for each in value]}
    if hasattr(value, "__next__"):
        return {"i": [pack(each, depth + 1) for each in value]}
    if hasattr(value, "tolist"):  # arrays and their numbers
        return pack(value.tolist(), depth + 1)
    raise Unpackable(f"a {type(value).__name__}, which is no plain data")


def unpack(value: Any) -> Any:
    """Return what pack() was given, of exact builtin types."""
    if not isinstance(value, dict):
        if value is None or isinstance(value, (bool, str)):
            return value
        raise Unpackable("a reply that cannot be read")
    ((mark, content),) = value.items()
    if mark == "n":
        return int(content, 16)
    if mark == "f":
        return float(content)
    if mark == "c":
        return complex(float(content[0]), float(content[1]))
    if mark == "b":
        return bytes.fromhex(content)
    if mark == "d":
        return {unpack(k): unpack(v) for k, v in content}
    if mark == "r":
        return range(*content)
    items = [unpack(each) for each in content]
    kinds: dict[str, Callable[..., Any]] = {"l": list, "t": tuple, "s": set, "z": frozenset, "i": iter}
    return kinds[mark](items)


def send(fd: int, message: object) -> None:
    """Write one message."""
    data = json.dumps(message).encode()
    data = len(data).to_bytes(8, "big") + data
    while data:
        data = data[os.write(fd, data) :]


def receive(fd: int) -> Any:
    """Read one message; EOFError when the other side is gone."""
    size = int.from_bytes(exactly(fd, 8), "big")
    if size > REPLY_LIMIT:
        raise Unpackable(f"a reply of more than {REPLY_LIMIT} bytes")
    return json.loads(exactly(fd, size))


def exactly(fd: int, size: int) -> bytes:
    """Read `size` bytes."""
    data = bytearray()
    while len(data) < size:
        chunk = os.read(fd, min(size - len(data), 1 << 20))
        if not chunk:
            raise EOFError
        data += chunk
    return bytes(data)


def everything(fd: int) -> bytes:
    """Read up to the end."""
    chunks = []
    while chunk := os.read(fd, 1 << 20):
        chunks.append(chunk)
    return b"".join(chunks)


def describe(error: BaseException) -> tuple[str, str]:
    """Return an exception as its type's name and message, whatever they do."""
    try:
        return type(error).__name__, str(error)[:500]
    except BaseException:
        return type(error).__name__, ""


# -- the child: it holds the submission


def serve(source: str, calls: int, replies: int) -> None:
    """Load the submission, then answer calls until the tester is gone."""
    module = sys.modules["submission"] = types.ModuleType("submission")
    space = module.__dict__
    try:
        program = compile(source, "submission.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        send(replies, {"failed": "CE", "why": ": ".join(describe(error))})
        return
    try:
        exec(program, space)  # noqa: S102  the box is where this is done
    except SystemExit:
        pass  # it may end what it does at the top by sys.exit(); its functions are there
    except MemoryError as error:
        send(replies, {"failed": "MLE", "why": ": ".join(describe(error))})
        return
    except BaseException as error:
        send(replies, {"failed": "RE", "why": ": ".join(describe(error))})
        return
    send(
        replies, {"names": [name for name in list(space) if isinstance(name, str) and callable(space[name])]}
    )
    while True:
        name, args, kwargs = receive(calls)
        args, kwargs = unpack(args), unpack(kwargs)
        try:
            reply = {"value": pack(space[name](*args, **kwargs))}
        except BaseException as error:
            kind, message = describe(error)
            reply = {"raised": kind, "message": message}
        if any(isinstance(arg, (list, dict, set)) for arg in args):
            try:
                reply["args"] = pack(args)  # what the function did to them
            except Exception:
                reply["args"] = None
        send(replies, reply)


# -- the parent: it holds the tests


class Gone(BaseException):
    """The child died; no test may catch this."""


def stand_in(name: str, calls: int, replies: int) -> Callable[..., Any]:
    """Return a function that lets the child call its function of that name."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            send(calls, [name, pack(args), pack(kwargs)])
        except OSError:
            raise Gone from None
        try:
            reply = receive(replies)
        except EOFError:
            raise Gone from None
        if not isinstance(reply, dict):
            raise Unpackable("a reply that cannot be read")
        after = unpack(reply["args"]) if reply.get("args") is not None else ()
        if isinstance(after, tuple):
            for mine, theirs in zip(args, after, strict=False):
                follow(mine, theirs)
        if "raised" in reply:
            raise failure(str(reply["raised"]), str(reply.get("message", "")))
        return unpack(reply["value"])

    call.__name__ = name
    return call


def follow(mine: Any, theirs: Any) -> None:
    """Do to an argument in place what the child's function did to its copy."""
    if type(mine) is not type(theirs) or mine == theirs:
        return
    if isinstance(mine, list):
        mine[:] = theirs
    elif isinstance(mine, (dict, set)):
        mine.clear()
        mine.update(theirs)


def failure(kind: str, message: str) -> Exception:
    """Return the builtin exception of that name, or a RuntimeError."""
    found = getattr(builtins, kind, None)
    if isinstance(found, type) and issubclass(found, Exception) and not issubclass(found, AssertionError):
        try:
            return found(message)
        except TypeError:
            return RuntimeError(f"{kind}: {message}")
    return RuntimeError(f"{kind}: {message}")


def fate(child: int) -> list[str]:
    """Tell how the child died: TLE by its CPU limit, else RE."""
    _, status, used = os.wait4(child, 0)
    soft = resource.getrlimit(resource.RLIMIT_CPU)[0]
    killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    spent = soft != resource.RLIM_INFINITY and used.ru_utime + used.ru_stime >= soft - 0.5
    if killed == signal.SIGXCPU or (killed == signal.SIGKILL and spent):
        return ["TLE", "the CPU budget is spent"]
    return [
        "RE",
        f"ended by signal {killed}"
        if killed
        else f"ended with exit code {os.waitstatus_to_exitcode(status)}",
    ]


def test(child: int, calls: int, replies: int) -> dict[str, Any]:
    """Run the tests, stop at the first that fails unless all are asked for, report."""
    try:
        loaded = receive(replies)
    except EOFError:
        return {"loaded": fate(child)}
    if "failed" in loaded:
        failed = (
            loaded["failed"] if loaded["failed"] in ("CE", "MLE") else "RE"
        )  # the child may lie, to its harm
        return {"loaded": [failed, str(loaded["why"])]}
    wanted = json.loads(everything(0))
    results = []
    for source in wanted["tests"]:
        space: dict[str, Any] = {"__name__": "tests"}
        try:
            exec(compile(wanted["preamble"], "preamble.py", "exec", dont_inherit=True), space)  # noqa: S102
            for name in map(str, loaded["names"]):
                # what the preamble defines is trusted, and no test may call another's idea of abs()
                if name == wanted["name"] or not (name in space or hasattr(builtins, name)):
                    space[name] = stand_in(name, calls, replies)
            exec(compile(source, "tests.py", "exec", dont_inherit=True), space)  # noqa: S102
            results.append(["OK", ""])
        except Gone:
            results.append(fate(child))
            break
        except AssertionError as error:
            results.append(["WA", describe(error)[1]])
        except MemoryError as error:
            results.append(["MLE", ": ".join(describe(error))])
        except BaseException as error:
            results.append(["RE", ": ".join(describe(error))])
        if results[-1][0] != "OK" and not wanted["all"]:
            break
    return {"results": results}


def main() -> None:
    """Fork, then serve and test."""
    with suppress(OSError, AttributeError):  # another system than Linux has no such call
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: not even the same user reads or traces us
    size = b""
    while not size.endswith(b"\n"):
        size += exactly(0, 1)
    source = exactly(0, int(size)).decode("utf-8", "surrogatepass")
    calls, replies = os.pipe(), os.pipe()
    try:
        child = os.fork()
    except OSError:
        os._exit(CANNOT_FORK)
    nothing = os.open(os.devnull, os.O_RDWR)
    if child == 0:
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        for fd in (calls[1], replies[0], nothing):
            os.close(fd)
        with suppress(BaseException):  # the tester sees what matters: no reply
            serve(source, calls[0], replies[1])
        os._exit(0)
    os.close(calls[0])
    os.close(replies[1])
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    report = os.dup(1)
    os.dup2(nothing, 1)
    try:
        outcome = test(child, calls[1], replies[0])
    except Exception as error:  # the child said what it cannot have been made to say
        outcome = {"loaded": ["RE", ": ".join(describe(error))]}
    said = json.dumps(outcome).encode()
    while said:
        said = said[os.write(report, said) :]
    os._exit(0)


if __name__ == "__main__":
    main()
