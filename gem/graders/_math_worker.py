"""The program of a grading worker: math-verify and sympy behind a socket on standard input.

Started as a file, never imported by the package, in a process that the pool ends whenever it likes. A
message is four bytes of length and JSON. Asked ``{"gold", "answer", "cpu_s"}`` it answers
``{"equal": true}``, or ``{"why": ...}`` where it cannot say. A question that spends its CPU budget kills the
process: the timer counts this process's CPU time, so a loaded machine does not change a verdict, and it also
ends loops in C.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
from typing import Any

MEMORY_MB = 2048


def main() -> None:
    """Answer questions until the other end closes."""
    line = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(0, 1)
    for name in (signal.SIGINT, signal.SIGHUP):  # Ctrl-C is the parent's business; its end closes the line
        signal.signal(name, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    try:
        import math_verify  # noqa: F401

        ready: dict[str, Any] = {"ready": True}
    except ImportError as error:
        ready = {"missing": getattr(error, "name", None) or "math-verify", "why": str(error)}
    except Exception as error:
        ready = {"broken": f"{type(error).__name__}: {error}"}
    _limit_memory()
    send(line, ready)
    while (question := receive(line)) is not None:
        signal.setitimer(signal.ITIMER_PROF, question["cpu_s"])
        try:
            verdict = grade(question["gold"], question["answer"])
        except Exception as error:
            verdict = {"why": f"{type(error).__name__}: {error}"[:200]}
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        send(line, verdict)


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MB << 20, MEMORY_MB << 20))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        pass  # not on this system


def grade(gold: str, answer: str) -> dict[str, Any]:
    """Compare as math-verify does, with the places where it is known to be wrong looked at again."""
    from math_verify import parse, verify

    left = _parsed(parse, gold)
    right = _parsed(parse, answer)
    if not left:
        return {"why": "the reference cannot be read"}
    if not right:
        return {"why": "the answer cannot be read"}
    equal = verify(left, right, timeout_seconds=None, allow_set_relation_comp=True)
    if equal and _only_floats_agree(left[0], right[0]):
        equal = False
    if not equal:
        equal = _same_number(left[0], right[0])
    return {"equal": bool(equal)}


def _parsed(parse: Any, text: str) -> Any:
    found = parse(text, parsing_timeout=None)
    if not found and "$" not in text and "\\boxed" not in text:
        found = parse(f"${text}$", parsing_timeout=None)
    elif "\\" in text and "$" not in text and "\\boxed" not in text:
        # math-verify reads LaTeX in delimiters alone; of bare LaTeX it takes the last number
        found = parse(f"${text}$", parsing_timeout=None) or found
    return found


def _only_floats_agree(a: Any, b: Any) -> bool:
    """Whether two numbers were called equal for their floats alone: 2.7182818 and e, two long integers."""
    from sympy import Basic, Float, Integer

    if not (isinstance(a, Basic) and isinstance(b, Basic)):
        return False
    if isinstance(a, Integer) and isinstance(b, Integer):
        return bool(a != b)
    if isinstance(a, Float) == isinstance(b, Float):
        return False
    exact, rounded = (b, a) if isinstance(a, Float) else (a, b)
    if not getattr(exact, "is_number", False) or exact.is_rational:
        return False
    return len(str(rounded).replace(".", "").lstrip("-0")) < 12


def _same_number(a: Any, b: Any) -> bool:
    """Whether two constants agree to 50 digits: 2^0.5 and sqrt(2), e^(i pi) and -1."""
    from sympy import E, Expr, Float, I, Symbol, nsimplify

    if not (isinstance(a, Expr) and isinstance(b, Expr)):
        return False
    constants = {Symbol("e"): E, Symbol("i"): I, Symbol("e", real=True): E, Symbol("i", real=True): I}
    a, b = a.subs(constants).doit(), b.subs(constants).doit()
    if a.free_symbols or b.free_symbols or isinstance(a, Float) or isinstance(b, Float):
        return False
    a, b = (
        x.replace(lambda part: isinstance(part, Float), lambda part: nsimplify(part, rational=True))
        for x in (a, b)
    )
    gap = (a - b).evalf(50, chop=True)
    return bool(gap.is_number and abs(gap) < 10**-45)


def send(line: socket.socket, message: dict[str, Any]) -> None:
    """Write one message."""
    data = json.dumps(message).encode()
    line.sendall(struct.pack(">I", len(data)) + data)


def receive(line: socket.socket) -> Any:
    """Read one message; None at the end of the line."""
    head = _exactly(line, 4)
    if head is None:
        return None
    data = _exactly(line, struct.unpack(">I", head)[0])
    return None if data is None else json.loads(data)


def _exactly(line: socket.socket, count: int) -> bytes | None:
    parts = []
    while count:
        try:
            part = line.recv(min(count, 1 << 16))
        except OSError:
            return None
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


if __name__ == "__main__":
    sys.setrecursionlimit(3000)
    main()
