"""The filter is held equal to libseccomp's rules, and tried on the real kernel."""

import itertools
import platform
import struct
import subprocess
import sys
import tempfile
from errno import ENOSYS, EPERM

import pytest

from gem.errors import BadArgument
from gem.sandbox import seccomp

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
    *((value, 1, 0, 0, 0, 0) for value in (16, 40, 0xFFFFFFFF, 0x1200011, 0x3D0F00, 0x4111, 0x7C020011)),
    *((family, kind | 0x80800, 0, 0, 0, 0) for family in (1, 2, 10, 16, 17, 40) for kind in (1, 2, 3, 5)),
    (1 << 32 | 5, 1 << 32 | 0x5412, 0, 0, 0, 0),  # only the low half counts
]


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


def refused(lib, fork, sockets, shares):
    """What is refused among what is allowed, written a second time and in libseccomp's terms."""
    refuse = lib.ERRNO(EPERM)
    calls = [*seccomp.ALWAYS, *(seccomp.NEIGHBOURS if shares else ())]
    calls += [] if sockets else ["socket", "connect", "bind"]
    calls += [] if fork else ["fork", "vfork"]
    bits = [0x02000000, 0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000, 0x8000]
    yield from ((refuse, call, ()) for call in calls)
    pretended = ("sync", "syncfs", *(seccomp.PRETENDED if shares else ()))
    yield from ((lib.ERRNO(0), call, ()) for call in pretended)
    yield lib.ERRNO(ENOSYS), "clone3", ()
    yield from ((refuse, "clone", [lib.Arg(0, lib.MASKED_EQ, bit, bit)]) for bit in bits)
    if not fork:
        yield refuse, "clone", [lib.Arg(0, lib.MASKED_EQ, 0x10000, 0)]
    ioctls = [0x5412, 0x541C, 0x40086602, 0x40046602, 0x401C5820, *([0x8901, 0x8902] if shares else [])]
    yield from ((refuse, "ioctl", [low(lib, 1, value)]) for value in ioctls)
    if shares:
        yield from ((refuse, "fcntl", [low(lib, 1, value)]) for value in (8, 10, 15, 1024, 1026))


def allowed(lib, sockets, shares):
    """What is allowed of the calls of which everything else is refused."""
    yield from ((lib.ALLOW, "personality", [low(lib, 0, value)]) for value in (0, 0xFFFFFFFF))
    for call in ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr"):
        yield lib.ALLOW, call, [low(lib, 0, 0)]
    for call in ("setpriority", "ioprio_set"):
        for which in (0, 1) if shares else (None,):
            yield lib.ALLOW, call, [low(lib, 1, 0), *([] if which is None else [low(lib, 0, which)])]
    if shares:
        for mode in (0, 3):
            yield lib.ALLOW, "fallocate", [low(lib, 1, mode)]
    if sockets:
        for family, kind, protocol in itertools.product((1, 2, 10), (1, 2, 5), (0, 6, 17)):
            yield lib.ALLOW, "socket", [low(lib, 0, family), low(lib, 1, kind, 0xF), low(lib, 2, protocol)]
        yield lib.ALLOW, "socketpair", [low(lib, 0, 1)]
    else:
        yield lib.ALLOW, "socketpair", [low(lib, 0, 1), low(lib, 1, 1, 0xF)]


def low(lib, index, value, mask=0xFFFFFFFF):
    return lib.Arg(index, lib.MASKED_EQ, mask, value)


@pytest.fixture(scope="module")
def pyseccomp():
    try:
        import pyseccomp
    except (ImportError, RuntimeError, OSError) as error:
        pytest.skip(f"libseccomp is the oracle here, and it is not installed: {error}")
    return pyseccomp


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize(("fork", "sockets", "shares"), VARIANTS)
def test_same_verdicts_as_libseccomp(pyseccomp, machine, fork, sockets, shares):
    audit, column = seccomp.MACHINES[machine]
    ours = seccomp.program(bool(fork), bool(sockets), shares_host=bool(shares), machine=machine)
    within = list(allowed(pyseccomp, sockets, shares))
    listed = {call for _, call, _ in within}
    listed = {seccomp.NUMBERS[call][column] for call in listed}
    black = libseccomp(pyseccomp, audit, pyseccomp.ALLOW, refused(pyseccomp, fork, sockets, shares))
    white = libseccomp(pyseccomp, audit, pyseccomp.ERRNO(EPERM), within)
    by_arguments = {seccomp.NUMBERS[call][column] for call in ("clone", "ioctl", "fcntl")} | listed
    unknown = {
        numbers[column] for call, numbers in seccomp.NUMBERS.items() if not known(pyseccomp, audit, call)
    }
    for nr in set(range(seccomp.LAST_KNOWN + 1)) - unknown:
        theirs = white if nr in listed else black
        for args in ARGUMENTS if nr in by_arguments else ARGUMENTS[:2]:
            assert hex(verdict(ours, audit, nr, args)) == hex(verdict(theirs, audit, nr, args)), (nr, args)


def known(lib, audit, call):
    return lib.resolve_syscall(audit, call) >= 0


def test_the_numbers_are_the_kernels(pyseccomp):
    checked = 0
    for call, numbers in seccomp.NUMBERS.items():
        for audit, number in zip((pyseccomp.Arch.X86_64, pyseccomp.Arch.AARCH64), numbers, strict=True):
            theirs = pyseccomp.resolve_syscall(audit, call)
            if theirs >= 0 or number is None or number < 450:  # an old library lacks what is new
                assert number == (theirs if theirs >= 0 else None), call
                checked += 1
    assert checked > 200


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
