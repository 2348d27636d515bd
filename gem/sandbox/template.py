"""A template process that forks children for a server and never sees their data.

A child is a copy of the process that forked it, freed memory included. So a process that reads the output of
children must not fork more of them: the next child could find in its own memory what the last one left.
Therefore a server has a template, which is forked while the server is clean. The template receives each
child's descriptors, makes it as a child of the *server*, and returns its pid.

It uses the standard library only, because it runs inside, with `gem.sandbox.lockdown`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Sequence

CLONE = {"x86_64": 56, "aarch64": 220, "arm64": 220}.get(platform.machine())
_SIGCHLD = 17
_CLONE_PARENT, _CHILD_CLEARTID, _CHILD_SETTID = 0x8000, 0x200000, 0x1000000
_GET_TID_ADDRESS = 40

_api = ctypes.PyDLL(None, use_errno=True)  # that holds the interpreter's lock, which a fork has to

Be = Callable[[bytes, list[int]], None]


class Template:
    """The server's handle on its template; a child runs `be(packet, descriptors)` and exits if that returns.

    Args:
        be: runs in every child, with the arguments of `make`.
        namespaces: the kinds of namespace (``CLONE_NEW…``) that are new for every child.
        closed: descriptors to close in the template and its children.
        first: called in the template before it makes any child.
        reachable: children can signal the template; each begins only when its number is known.
    """

    def __init__(
        self,
        be: Be,
        *,
        namespaces: int = 0,
        closed: Sequence[int] = (),
        first: Callable[[], None] = lambda: None,
        reachable: bool = False,
    ) -> None:
        self._be = be
        self._made: deque[int] = deque()  # where there is no template
        self.pid = 0
        self.gone = False  # it can make no child any more
        if not (sys.platform == "linux" and CLONE):
            return  # a plain fork has to do
        self._end, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
                for fd in (self._end.fileno(), *closed):
                    os.dup2(nothing, fd, inheritable=False)  # numbers that are free could come to children
                first()
                _serve(theirs, be, namespaces, reachable=reachable)
            finally:
                os._exit(0)
        theirs.close()

    def make(self, packet: bytes, fds: Sequence[int] = ()) -> int:
        """Make a child of the caller and return its pid. Raises OSError."""
        self.ask(packet, fds)
        return self.answer()

    def ask(self, packet: bytes, fds: Sequence[int] = ()) -> None:
        """Ask for a child of the caller, without waiting for it. Raises OSError."""
        if self.pid:
            try:
                socket.send_fds(self._end, [b"+", packet], fds)  # an empty one would be the end
            except BrokenPipeError:
                self.gone = True
                raise
            return
        if (pid := os.fork()) == 0:
            _live(self._be, packet, [os.dup(fd) for fd in fds])
        self._made.append(pid)

    def answer(self) -> int:
        """Return the pid of the first child that was asked for and not yet returned. Raises OSError."""
        if not self.pid:
            return self._made.popleft()
        try:
            answer = self._end.recv(4)
        except ConnectionResetError:  # it has not read what was asked
            answer = b""
        if len(answer) < 4:
            self.gone = True
            raise OSError(errno.ECHILD, "the template is gone")
        (pid,) = struct.unpack("i", answer)
        if pid < 0:
            raise OSError(-pid, f"clone: {os.strerror(-pid)}")
        return int(pid)


def _serve(end: socket.socket, be: Be, namespaces: int, *, reachable: bool) -> None:
    address, number = _own_number(), ctypes.c_int()
    while _make(end, be, namespaces, address, number, reachable):
        number.value = 0  # how many there were before is no child's business either


def _make(
    end: socket.socket, be: Be, namespaces: int, address: int, number: ctypes.c_int, reachable: bool
) -> bool:
    packet, fds, _, _ = socket.recv_fds(end, 1 << 16, 8)
    if not packet:
        return False
    known = os.pipe() if reachable else ()  # its end says that the server has the number
    number.value = sibling(namespaces, address)
    if number.value == 0:
        end.close()
        if known:
            os.close(known[1])
            os.read(known[0], 1)
            os.close(known[0])
        _live(be, packet[1:], fds)
    for fd in fds:
        os.close(fd)
    end.send(number)
    for fd in known:
        os.close(fd)
    return True


def _live(be: Be, packet: bytes, fds: list[int]) -> None:
    try:
        be(packet, fds)
    finally:
        os._exit(1)


def sibling(namespaces: int, address: int) -> int:
    """Fork a child of the caller's parent; return 0 in it, else its pid or a negative errno.

    Only for a process with one thread. `address` is where the C library keeps the thread id, or 0; the
    library's own fork would write the new id there.
    """
    number, word = ctypes.c_long, ctypes.c_ulong
    flags = _SIGCHLD | _CLONE_PARENT | namespaces
    flags |= _CHILD_SETTID | _CHILD_CLEARTID if address else 0
    tls = (0, address) if CLONE == 220 else (address, 0)  # the last two are the other way round on arm64
    _api.PyOS_BeforeFork()
    pid = int(_api.syscall(number(CLONE or 0), word(flags), *map(word, (0, 0, *tls))))
    if pid == 0:
        _api.PyOS_AfterFork_Child()
        return 0
    error = ctypes.get_errno() or errno.EAGAIN
    _api.PyOS_AfterFork_Parent()
    return pid if pid > 0 else -error


def _own_number() -> int:
    """Return the address where this thread's id is kept, if the kernel gives it and it is valid; else 0."""
    place = ctypes.c_void_p()
    libc = ctypes.CDLL(None)
    if libc.prctl(_GET_TID_ADDRESS, ctypes.byref(place), 0, 0, 0) != 0 or not place.value:
        return 0
    return place.value if ctypes.c_int.from_address(place.value).value == os.getpid() else 0
