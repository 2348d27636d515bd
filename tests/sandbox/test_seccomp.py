"""The filter is held equal to libseccomp's rules, and tried on the real kernel."""

import fcntl
import itertools
import mmap
import platform
import socket
import struct
import subprocess
import sys
import tempfile
import termios
from errno import EINVAL, ENOMEM, ENOPROTOOPT, ENOSYS, ENOTTY, EOPNOTSUPP, EPERM

import pytest

from gem.errors import BadArgument
from gem.sandbox import seccomp
from gem.sandbox.syscalls import NUMBERS

ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
VARIANTS = [(fork, sockets, shares) for fork in (0, 1) for sockets in (0, 1) for shares in (0, 1)]
ARGUMENTS = [
    *(
        (a, b, c, 0, 0, 0)
        for a in (0, 1, 2, 3, 8, 10, 15, 16)
        for b in (0, 1, 2, 3, 5)
        for c in (0, 6, 17, 262)
    ),
    *((1 << n, 1 << n, 0, 0, 0, 0) for n in range(12, 33)),
    *((0, value, 0, 0, 0, 0) for value in (0x5401, 0x5412, 0x5413, 0x541C)),
    *((0, value, 0, 0, 0, 0) for value in (0x40086602, 0x40046602, 0x401C5820, 0x8901, 0x8902, 0x8903)),
    *((0, value, 0, 0, 0, 0) for value in (1024, 1025, 1026, 1031)),
    *(
        (value, 1, 0, 0, 0, 0)
        for value in (16, 40, 0xFFFFFFFF, 0x1200011, 0x3D0F00, 0x3D0B00, 0x4111, 0x7C020011)
    ),
    *((family, kind | 0x80800, 0, 0, 0, 0) for family in (1, 2, 10, 16, 17, 40) for kind in (1, 2, 3, 5)),
    (1 << 32 | 5, 1 << 32 | 0x5412, 0, 0, 0, 0),  # only the low half counts
]


IOCTLS = [
    *(termios.TCGETS, termios.TCSETS, termios.TCSETSW, termios.TCSETSF, termios.TCSBRK, termios.TCXONC),
    *(termios.TCFLSH, termios.TCSBRKP, termios.TIOCSCTTY, termios.TIOCNOTTY, termios.TIOCGPGRP),
    *(termios.TIOCSPGRP, 0x5429, termios.TIOCGWINSZ, termios.TIOCSWINSZ, termios.TIOCOUTQ, termios.FIONREAD),
    *(termios.FIONBIO, termios.FIONCLEX, termios.FIOCLEX, termios.FIOASYNC, termios.TIOCPKT),
    *(0x802C542A, 0x402C542B, 0x402C542C, 0x402C542D),  # TCGETS2 and its like
    *(0x80045430, 0x40045431, 0x80045439, 0x5441),  # of a pseudo terminal
]
INTERFACES = [0x8910, 0x8912, 0x8913, 0x8915, 0x8919, 0x891B, 0x8921, 0x8927, 0x8933]  # what there are
FCNTLS = [
    *(
        fcntl.F_DUPFD,
        fcntl.F_GETFD,
        fcntl.F_SETFD,
        fcntl.F_GETFL,
        fcntl.F_SETFL,
        fcntl.F_GETLK,
        fcntl.F_SETLK,
    ),
    *(fcntl.F_SETLKW, fcntl.F_GETOWN, fcntl.F_GETSIG, 16, fcntl.F_OFD_GETLK, fcntl.F_OFD_SETLK),
    *(fcntl.F_OFD_SETLKW, fcntl.F_GETLEASE, fcntl.F_DUPFD_CLOEXEC, 1032, fcntl.F_GET_SEALS),
]
PRCTLS = [1, 2, 3, 4, 15, 16, 21, 23, 27, 29, 30, 36, 37, 38, 39, 41, 42, 50, 51, 52, 55, 56, 65, 66]
ADVICE = [
    *(mmap.MADV_NORMAL, mmap.MADV_RANDOM, mmap.MADV_SEQUENTIAL, mmap.MADV_WILLNEED, mmap.MADV_DONTNEED),
    *(mmap.MADV_FREE, mmap.MADV_REMOVE, mmap.MADV_DONTFORK, mmap.MADV_DOFORK, mmap.MADV_HUGEPAGE),
    *(mmap.MADV_NOHUGEPAGE, mmap.MADV_DONTDUMP, mmap.MADV_DODUMP, 18, 19, 20, 22, 23),
]
OPTIONS = {
    socket.SOL_SOCKET: [
        *(socket.SO_REUSEADDR, socket.SO_REUSEPORT, socket.SO_DONTROUTE, socket.SO_BROADCAST),
        *(socket.SO_SNDBUF, socket.SO_RCVBUF, socket.SO_KEEPALIVE, socket.SO_OOBINLINE, socket.SO_PRIORITY),
        *(socket.SO_LINGER, socket.SO_PASSCRED, socket.SO_RCVLOWAT, socket.SO_SNDLOWAT, socket.SO_RCVTIMEO),
        *(socket.SO_SNDTIMEO, 29, 63, 66, 67),
    ],
    socket.IPPROTO_TCP: [
        *(socket.TCP_NODELAY, socket.TCP_MAXSEG, socket.TCP_CORK, socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL),
        *(socket.TCP_KEEPCNT, socket.TCP_SYNCNT, socket.TCP_LINGER2, socket.TCP_DEFER_ACCEPT),
        *(socket.TCP_WINDOW_CLAMP, socket.TCP_QUICKACK, socket.TCP_USER_TIMEOUT, socket.TCP_FASTOPEN),
        *(socket.TCP_NOTSENT_LOWAT, 30),
    ],
    socket.IPPROTO_IP: [
        *(socket.IP_TOS, socket.IP_TTL, 8, 10, 11, 12, 13, 15, 24, socket.IP_MULTICAST_IF),
        *(socket.IP_MULTICAST_TTL, socket.IP_MULTICAST_LOOP),
        *(socket.IP_ADD_MEMBERSHIP, socket.IP_DROP_MEMBERSHIP),
    ],
    socket.IPPROTO_IPV6: [
        *(socket.IPV6_UNICAST_HOPS, socket.IPV6_MULTICAST_IF, socket.IPV6_MULTICAST_HOPS),
        *(socket.IPV6_MULTICAST_LOOP, socket.IPV6_JOIN_GROUP, socket.IPV6_LEAVE_GROUP, 23, 25),
        *(socket.IPV6_V6ONLY, socket.IPV6_RECVPKTINFO, socket.IPV6_TCLASS, socket.IPV6_RECVTCLASS),
    ],
}
SIGNALS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
SENDING = ("sendto", "recvfrom", "sendmmsg", "recvmmsg")
TRIED = {  # which arguments of a call, besides ARGUMENTS
    **{
        call: [(0x7FFFFFFE, 9), (0x7FFFFFFE | 1 << 32, 9), (-0x7FFFFFFE & (1 << 64) - 1, 9)]
        for call in SIGNALS
    },
    "ioctl": [(0, value + n) for value in (*IOCTLS, *INTERFACES, 0x5423, 0x541D) for n in (0, 1)],
    "fcntl": [(0, value) for value in (*range(20), *range(30, 42), *range(1020, 1040))],
    "prctl": [(value,) for value in (*range(80), 0x53564D41, 0x59616D61, 1 << 32 | 22)],
    "arch_prctl": [(value,) for value in (*range(0x0FFF, 0x1030), 0x2001, 0x3001, 0x4001, 0x4002, 0x5001)],
    "madvise": [(0, 0, value) for value in (*range(30), 100, 101, 102, 103, 1 << 32 | 12)],
    "mmap": [(0, 0, 0, flags) for flags in (1, 2, 0x22, 0x40022, 0x1C0022, 1 << 32 | 0x22, 0x4000002)],
    "futex": [(0, value | more) for value in range(16) for more in (0, 128, 256, 384, 512, 1 << 31)],
    "setsockopt": [(0, level, option) for level in (0, 1, 6, 17, 41, 263, 270) for option in range(0, 80)],
    **{call: [(0, 0, flags) for flags in (0, 1, 2, 0x41, 0x4000)] for call in ("sendmsg", "recvmsg")},
    **{call: [(0, 0, 0, flags) for flags in (0, 1, 2, 0x41, 0x4000)] for call in SENDING},
}


def verdict(program, audit, nr, args):
    """Run a BPF program over a struct seccomp_data, as the kernel would."""
    data = struct.pack("=iIQ6Q", nr if nr < 1 << 31 else nr - (1 << 32), audit, 0, *args)
    accumulator, pc = 0, 0
    while True:
        code, jt, jf, k = struct.unpack_from("=HBBI", program, 8 * pc)
        pc += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, k)
        elif code == 0x54:
            accumulator &= k
        elif code == 0x06:
            return k
        elif code == 0x05:
            pc += k
        else:
            taken = {0x15: accumulator == k, 0x35: accumulator >= k, 0x45: bool(accumulator & k)}
            taken[0x25] = accumulator > k
            pc += jt if taken[code] else jf


def libseccomp(lib, audit, default, rules):
    """Compile (action, system call, conditions) with libseccomp; what the machine lacks is left out."""
    policy = lib.SyscallFilter(default)
    if audit != lib.system_arch():
        policy.add_arch(audit)
        policy.remove_arch(lib.system_arch())
    for action, call, conditions in rules:
        if lib.resolve_syscall(audit, call) >= 0:
            policy.add_rule_exactly(action, call, *conditions)
    with tempfile.TemporaryFile() as file:
        policy.export_bpf(file)
        file.seek(0)
        return file.read()


OWN = ("prlimit64", "sched_setaffinity")
PRIORITIES = {
    "sched_setscheduler": 0,
    "sched_setparam": 0,
    "sched_setattr": 0,
    "setpriority": 1,
    "ioprio_set": 1,
}
NEW = (0x02000000, 0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)


def whole(lib, kind, fork, sockets, shares):
    """Yield the calls that are refused or answered whatever their arguments, in libseccomp's terms."""
    refuse = lib.ERRNO(EPERM)
    calls = {*seccomp.ALWAYS, *(seccomp.NEIGHBOURS if shares else ())}
    network = {"connect", "bind", "listen", "accept", "accept4"}
    calls |= set() if sockets else {"socket", "sendmsg", "sendmmsg", *network}
    calls |= set() if fork else {"fork", "vfork"}
    calls |= set(seccomp.UNPRIVILEGED) if kind == "allow" else set()
    pretended = {"sync", "syncfs", *(seccomp.PRETENDED if shares else ())}
    yield from ((refuse, call, ()) for call in sorted(calls))
    yield from ((lib.ERRNO(0), call, ()) for call in sorted(pretended))
    if kind == "deny":
        yield lib.ERRNO(ENOSYS), "clone3", ()
    else:
        named = calls | pretended | {"clone3"}
        allowed = {*seccomp.ALLOWED, *(network if sockets else ())}
        yield from ((lib.ALLOW, call, ()) for call in sorted(allowed - named))


def by_argument(lib, kind, fork, sockets, shares):
    """Yield, per call, what is done but for the conditions, and the conditions with what is done then.

    Written a second time here, with the names that Python's modules have for the numbers.
    """

    def only(arg, values, otherwise=EPERM, mask=0xFFFFFFFF):
        return lib.ERRNO(otherwise), [(lib.ALLOW, [low(lib, arg, value, mask)]) for value in values]

    def never(arg, bits, errno=EPERM):
        return lib.ALLOW, [(lib.ERRNO(errno), [lib.Arg(arg, lib.MASKED_EQ, bit, bit)]) for bit in bits]

    clone = (*NEW, 0x8000, 0x2000)
    if fork:
        default, rules = never(0, clone)
        own_files = lib.Arg(0, lib.MASKED_EQ, 0x10400, 0x10000)
        yield "clone", (default, [*rules, (lib.ERRNO(EPERM), [own_files])])
    else:
        threads = [lib.Arg(0, lib.MASKED_EQ, sum(clone) | 0x10400, 0x10400)]
        yield "clone", (lib.ERRNO(EPERM), [(lib.ALLOW, threads)])
    yield "personality", only(0, (0, 0xFFFFFFFF))
    for call in OWN:
        yield call, only(0, (0,))
    if shares:
        for call in ("getpgid", "getsid", "sched_getparam", "sched_getscheduler", "sched_getattr"):
            yield call, only(0, (0,))
        yield "sched_rr_get_interval", only(0, (0,))
        for call in SIGNALS:
            yield call, only(0, (0x7FFFFFFE,))
        yield "sched_getaffinity", only(0, (0,), ENOSYS)
    for call, arg in PRIORITIES.items():
        yield call, (lib.ERRNO(EPERM), [(lib.ERRNO(0), [low(lib, arg, 0)])])
    for call in ("getpriority", "ioprio_get") if shares else ():
        yield call, (lib.ERRNO(EPERM), [(lib.ALLOW, [low(lib, 1, 0), low(lib, 0, n)]) for n in (0, 1)])
    if shares:
        yield "timer_create", (lib.ERRNO(ENOSYS), [])
        yield "capget", (lib.ERRNO(EPERM), [])
        own = [~0 << 3 & 0xFFFFFFFF | kind for kind in (0, 1, 2, 4, 5, 6)]
        for call in ("clock_gettime", "clock_getres", "clock_nanosleep"):
            yield call, only(0, (*range(12), *own), EINVAL)
        yield "fallocate", only(1, (0, 3))
    if sockets:
        triples = itertools.product((1, 2, 10), (1, 2, 5), (0, 6, 17))
        allowed = [[low(lib, 0, f), low(lib, 1, k, 0xF), low(lib, 2, p)] for f, k, p in triples]
        yield "socket", (lib.ERRNO(EPERM), [(lib.ALLOW, conditions) for conditions in allowed])
        yield "socketpair", only(0, (1,))
    else:
        pair = [low(lib, 0, 1), low(lib, 1, 1, 0xF)]
        yield "socketpair", (lib.ERRNO(EPERM), [(lib.ALLOW, pair)])
    if kind == "deny":
        ioctls = [0x5412, 0x541C, 0x40086602, 0x40046602, 0x401C5820]
        ioctls += [0x8901, 0x8902, *INTERFACES] if shares else []
        yield "ioctl", (lib.ALLOW, [(lib.ERRNO(EPERM), [low(lib, 1, value)]) for value in ioctls])
        fcntls = (1024, 1026, 1031, *((8, 10, 15) if shares else ()))
        yield "fcntl", (lib.ALLOW, [(lib.ERRNO(EPERM), [low(lib, 1, value)]) for value in fcntls])
        return
    ioctls = [*IOCTLS, *(() if shares else (0x8901, 0x8902)), *(INTERFACES if sockets else ())]
    yield "ioctl", only(1, ioctls, ENOTTY)
    otherwise, commands = only(
        1, (*FCNTLS, *(() if shares else (fcntl.F_SETOWN, fcntl.F_SETSIG, 15))), EINVAL
    )
    yield "fcntl", (otherwise, [*commands, (lib.ERRNO(EPERM), [low(lib, 1, 1031)])])
    yield "prctl", only(0, PRCTLS, EINVAL)
    yield "arch_prctl", only(0, (*range(0x1001, 0x1005), 0x1021, 0x1022, 0x1023), EINVAL)
    yield "madvise", only(2, ADVICE, EINVAL)
    yield "mmap", never(3, (1 << 18,), ENOMEM)  # MAP_HUGETLB
    yield "futex", only(1, (0, 1, 3, 4, 5, 9, 10), ENOSYS, mask=0xFFFFFFFF ^ 128 ^ 256)
    pairs = [(level, option) for level, options in OPTIONS.items() for option in options]
    pairs = [[low(lib, 1, level), low(lib, 2, option)] for level, option in pairs]
    yield "setsockopt", (lib.ERRNO(ENOPROTOOPT), [(lib.ALLOW, pair) for pair in pairs])
    for call in ("sendmsg", "recvmsg", *SENDING):
        if sockets or call not in ("sendmsg", "sendmmsg"):
            flags = 2 if call in ("sendmsg", "recvmsg") else 3
            yield call, never(flags, (socket.MSG_OOB,), EOPNOTSUPP)


def low(lib, index, value, mask=0xFFFFFFFF):
    return lib.Arg(index, lib.MASKED_EQ, mask, value)


@pytest.fixture(scope="module")
def pyseccomp():
    try:
        import pyseccomp
    except (ImportError, RuntimeError, OSError) as error:
        pytest.skip(f"libseccomp is the oracle here, and it is not installed: {error}")
    return pyseccomp


@pytest.mark.system
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("kind", seccomp.KINDS)
@pytest.mark.parametrize(("fork", "sockets", "shares"), VARIANTS)
def test_same_verdicts_as_libseccomp(pyseccomp, machine, kind, fork, sockets, shares):
    audit, column = seccomp.MACHINES[machine]
    ours = seccomp.program(bool(fork), bool(sockets), shares_host=bool(shares), kind=kind, machine=machine)
    default = pyseccomp.ALLOW if kind == "deny" else pyseccomp.ERRNO(ENOSYS)
    settings = (pyseccomp, kind, fork, sockets, shares)
    rules = {call: rule for call, rule in by_argument(*settings) if known(pyseccomp, audit, call)}
    rest = [rule for rule in whole(*settings) if rule[1] not in rules and rule[0] != default]
    theirs = libseccomp(pyseccomp, audit, default, rest)
    names = {numbers[column]: call for call, numbers in NUMBERS.items()}
    for nr in range(seccomp.LAST_KNOWN + 1):
        call = names.get(nr)
        if call is not None and not known(pyseccomp, audit, call):
            continue  # an old library lacks what is new
        tried, program = ARGUMENTS[:2], theirs
        if call in rules:
            otherwise, conditions = rules[call]
            program = libseccomp(pyseccomp, audit, otherwise, [(act, call, when) for act, when in conditions])
            tried = ARGUMENTS + [(*args, *[0] * (6 - len(args))) for args in TRIED.get(call, ())]
        for args in tried:
            assert hex(verdict(ours, audit, nr, args)) == hex(verdict(program, audit, nr, args)), (call, args)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("kind", seccomp.KINDS)
def test_the_two_halves_of_a_filter_do_what_the_whole_does(machine, kind):
    """The kernel takes the strictest verdict of all filters; an errno is stricter than leave."""
    audit, column = seccomp.MACHINES[machine]
    settings = {"shares_host": False, "kind": kind, "machine": machine}
    program = seccomp.program(True, **settings)
    early, late = seccomp.program(True, early=True, **settings), seccomp.late_program(True, **settings)
    confining = {NUMBERS[call][column]: call for call in seccomp.CONFINING}
    for nr in (*range(seccomp.LAST_KNOWN + 2), 0x40000000 | 59, 0xFFFFFFFF):
        call = confining.get(nr)
        more = TRIED.get(call, ())
        tried = [*ARGUMENTS, *((*args, *[0] * (6 - len(args))) for args in more)] if call else ARGUMENTS[::40]
        for args in tried:
            first, second = verdict(early, audit, nr, args), verdict(late, audit, nr, args)
            assert ALLOW in (first, second), (call, nr, args)
            assert min(first, second) == verdict(program, audit, nr, args), (call, nr, args)
            assert call is None or first == ALLOW
    assert verdict(early, 0x40000003, 0, [0] * 6) == KILL


def known(lib, audit, call):
    return lib.resolve_syscall(audit, call) >= 0


def test_the_numbers_are_the_kernels(pyseccomp):
    checked = 0
    for call, numbers in NUMBERS.items():
        for audit, number in zip((pyseccomp.Arch.X86_64, pyseccomp.Arch.AARCH64), numbers, strict=True):
            theirs = pyseccomp.resolve_syscall(audit, call)
            if theirs >= 0 or number is None or number < 450:  # an old library lacks what is new
                assert number == (theirs if theirs >= 0 else None), call
                checked += 1
    assert checked > 700


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_calls_of_other_architectures_and_of_newer_kernels(machine):
    audit, _ = seccomp.MACHINES[machine]
    program = seccomp.program(True, machine=machine)
    for other in (0x40000003, 0x40000028, 0xC0000015, *(m.audit for m in seccomp.MACHINES.values())):
        if other != audit:
            assert verdict(program, other, 0, [0] * 6) == KILL
    for nr in (seccomp.LAST_KNOWN + 1, 1000, 0x40000000 | 59, 0xFFFFFFFF):  # x32's execve among them
        assert verdict(program, audit, nr, [0] * 6) == ERRNO | ENOSYS
    read = {"x86_64": 0, "aarch64": 63}[machine]
    assert verdict(program, audit, read, [0] * 6) == ALLOW


def test_the_kernel_takes_it_and_refuses():
    if platform.machine() not in seccomp.MACHINES or not sys.platform.startswith("linux"):
        pytest.skip(f"no filter for {sys.platform} on {platform.machine()}")
    for fork in (True, False):
        seen = subprocess.run(
            [sys.executable, "-c", PROBE, seccomp.program(fork).hex()], capture_output=True, check=True
        )
        assert seen.stdout.decode().split() == [
            "seccomp=2",
            f"unshare={EPERM}",
            f"socket={EPERM}",
            f"memfd={EPERM}",
            f"fork={0 if fork else EPERM}",
            "thread=0",
            "pair=0",
            f"datagrams={EPERM}",
        ]


PROBE = """
import ctypes, os, socket, struct, sys, threading
program = bytes.fromhex(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
held = ctypes.create_string_buffer(program)
fprog = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(held))
assert libc.prctl(22, 2, fprog, 0, 0) == 0, ctypes.get_errno()

def tried(name, call):
    try:
        call()
    except OSError as error:
        print(f"{name}={error.errno}")
    except RuntimeError:
        print(f"{name}=1")
    else:
        print(f"{name}=0")

def unshare():
    if libc.unshare(0x10000000):
        raise OSError(ctypes.get_errno(), "")

def fork():
    if pid := os.fork():
        os.waitpid(pid, 0)
    else:
        os._exit(0)

def thread():
    beside = threading.Thread(target=int)
    beside.start()
    beside.join()

print("seccomp=" + next(line for line in open("/proc/self/status") if line.startswith("Seccomp:")).split()[1])
sys.stdout.flush()
tried("unshare", unshare)
tried("socket", lambda: socket.socket().close())
tried("memfd", lambda: os.close(os.memfd_create("x")))
sys.stdout.flush()
tried("fork", fork)
tried("thread", thread)
tried("pair", lambda: [end.close() for end in socket.socketpair()])
tried("datagrams", lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
"""


def test_a_machine_without_numbers_is_refused():
    with pytest.raises(BadArgument, match="riscv64"):
        seccomp.program(True, machine="riscv64")
