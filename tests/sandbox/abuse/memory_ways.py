# ruff: noqa: E501 - programs are data
"""Ways to take memory, as data: each tries to take far more than `BUDGET` has, in its own kind.

`memory.py` runs them and measures from outside. A program prints ``refused`` where its kind cannot be had at all.
"""

from __future__ import annotations

from gem.sandbox.base import Budget

BUDGET = Budget(
    cpu_s=6.0, wall_s=5.0, memory_mb=256, processes=16, file_mb=32, disk_mb=32, inodes=512, open_files=256,
    output_kb=64,
)  # fmt: skip

PRELUDE = """
import ctypes, mmap, os, platform, socket, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
libc.mremap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
libc.memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
libc.syscall.restype = ctypes.c_long
X86 = platform.machine() == "x86_64"
MB, END = 1 << 20, time.monotonic() + 4
def syscall(x86, arm, *args):
    "A raw system call by its numbers; says refused where it cannot be had."
    got = libc.syscall(ctypes.c_long(x86 if X86 else arm), *(ctypes.c_long(a) if isinstance(a, int) else a for a in args))
    if got < 0:
        refused(os.strerror(ctypes.get_errno()))
    return got
def refused(why=""):
    print("refused", why, flush=True)
    os._exit(0)
def map(size, flags=0x22, fd=-1, prot=3):
    "Map memory, by default private and anonymous; None where that fails."
    at = libc.mmap(None, size, prot, flags, fd, 0)
    return None if at in (None, ctypes.c_void_p(-1).value) else at
def touch(at, size, step=4096):
    for page in range(0, size, step):
        ctypes.c_char.from_address(at + page).value = b"x"
def late():
    return time.monotonic() > END
def hold():
    print("taken", flush=True)
    while not late(): time.sleep(0.05)
    os._exit(0)
def tried(call, *args):
    try:
        return call(*args)
    except (OSError, ValueError, MemoryError, RuntimeError) as error:
        return error
def failed(got):
    return isinstance(got, Exception)
def spread(work, many=12):
    "Do it in many processes; where none can be started, in this one."
    for _ in range(many):
        pid = tried(os.fork)
        if failed(pid):
            break
        if pid == 0:
            try:
                work()
            finally:
                while not late(): time.sleep(0.05)
                os._exit(0)
    else:
        return hold()
    work()
    hold()
"""

WAYS: dict[str, str] = {}


def _way(name: str, code: str) -> None:
    assert name not in WAYS
    WAYS[name] = code


# --- what a process maps --------------------------------------------------------------------------------

_way("bytearray that grows", "x = bytearray()\nwhile not late(): x += b'x' * MB\nhold()")
_way("lists of lists", "x = []\nwhile not late(): x.append([0] * 10000)\nhold()")
_way(
    "anonymous mappings",
    "while not late():\n    at = map(8 * MB)\n    at and libc.memset(at, 1, 8 * MB)\nhold()",
)
_way(
    "anonymous, in 12 processes",
    "def work():\n    at = map(200 * MB)\n    at and libc.memset(at, 1, 200 * MB)\nspread(work)",
)
_way(
    "a tree of forks that each hold some",
    """
def grow(depth):
    at = map(60 * MB); at and libc.memset(at, 1, 60 * MB)
    for _ in range(2):
        if depth and tried(os.fork) == 0: grow(depth - 1)
    hold()
grow(4)
""",
)
_way(
    "children of children that left, by setsid",
    """
def work():
    os.setsid()
    if os.fork() == 0:
        at = map(150 * MB); at and libc.memset(at, 1, 150 * MB)
        while not late(): time.sleep(0.05)
    os._exit(0)
spread(work)
""",
)
_way(
    "programs that are started afresh",
    """
def work():
    os.execv(sys.executable, [sys.executable, "-S", "-c", "x = bytearray(b'x') * (40 << 20)\\nimport time; time.sleep(4)"])
spread(work, 14)
""",
)
_way(
    "vfork and exec",
    """
import subprocess
kept = []
while not late():
    got = tried(lambda: subprocess.Popen([sys.executable, "-S", "-c", "x = bytearray(b'x') * (60 << 20)\\nimport time; time.sleep(4)"]))
    if failed(got): break
    kept.append(got)
hold()
""",
)
_way(
    "threads of 5 processes whose first thread has ended",
    """
def fill():
    kept = []
    while not late() and len(kept) < 25:
        kept.append(bytearray(b'x') * (4 * MB)); os.write(1, b"|")
        time.sleep(0.04)
    while not late(): time.sleep(0.05)
    os._exit(0)
for _ in range(4):
    if tried(os.fork) == 0: break
threading.Thread(target=fill).start()
libc.syscall(ctypes.c_long(60 if X86 else 93), 0)
""",
)
_way("populated at once", "while not late():\n    map(64 * MB, 0x8022)\nhold()")
_way(
    "reserved without backing, then written",
    "at = map(240 * MB, 0x4022) or refused()\ndef work():\n    libc.memset(at, 1, 240 * MB)\nspread(work)",
)
_way(
    "brk",
    "libc.sbrk.restype = ctypes.c_void_p\nlibc.sbrk.argtypes = (ctypes.c_long,)\nwhile not late():\n    at = libc.sbrk(4 * MB)\n    if at == ctypes.c_void_p(-1).value: break\n    libc.memset(at, 1, 4 * MB)\nhold()",
)
_way(
    "a mapping that grows down",
    "for _ in range(40):\n    at = map(MB * 16, 0x122)\n    at and libc.memset(at, 1, 16 * MB)\nhold()",
)
_way(
    "a deep stack, in 12 processes",
    "def work():\n    threading.stack_size(200 * MB)\n    def down():\n        area = (ctypes.c_char * (180 * MB))(); ctypes.memset(area, 1, len(area)); hold()\n    tried(lambda: threading.Thread(target=down).start())\nspread(work)",
)
_way(
    "stacks of threads",
    "threading.stack_size(64 * MB)\nfor _ in range(1000):\n    if failed(tried(lambda: threading.Thread(target=time.sleep, args=(4,), daemon=True).start())): break\nhold()",
)
_way(
    "recursion of generators",
    "sys.setrecursionlimit(10 ** 9)\ndef down(n):\n    x = [0] * 100000\n    yield from down(n + 1)\ntried(lambda: list(down(0)))\nhold()",
)
_way(
    "locked memory",
    "at = map(100 * MB) or refused()\nlibc.mlock.argtypes = (ctypes.c_void_p, ctypes.c_size_t)\nlibc.mlock(at, 100 * MB) and refused()\ndef work(): libc.memset(at, 1, 100 * MB)\nspread(work)",
)
_way(
    "transparent huge pages",
    "def work():\n    at = map(200 * MB)\n    if at:\n        libc.madvise(at, 200 * MB, 14)\n        touch(at, 200 * MB, 2 * MB)\nspread(work)",
)
_way("huge pages of the reserve", "map(64 * MB, 0x40022) or refused()\nhold()")
_way(
    "memory that may be dropped (MADV_FREE)",
    "def work():\n    at = map(200 * MB)\n    if at:\n        libc.memset(at, 1, 200 * MB); libc.madvise(at, 200 * MB, 8)\nspread(work)",
)
_way(
    "memory pushed out to swap",
    "def work():\n    at = map(200 * MB)\n    if at:\n        libc.memset(at, 1, 200 * MB); libc.madvise(at, 200 * MB, 21)\nspread(work)",
)
_way(
    "a private mapping of a file, written",
    """
with open("f", "wb") as file: file.truncate(30 * MB)
fd = os.open("f", os.O_RDWR)
while not late():
    at = map(30 * MB, 0x02, fd)
    if not at: break
    libc.memset(at, 1, 30 * MB)
hold()
""",
)
_way(
    "pages copied on write, in 12 processes",
    "at = map(150 * MB) or refused()\nlibc.memset(at, 1, 150 * MB)\ndef work(): libc.memset(at, 2, 150 * MB)\nspread(work)",
)

# --- page tables and what the kernel keeps of mappings --------------------------------------------------

_way(
    "page tables: a page in every 2 MiB",
    "at = map(250 * MB, 0x4022) or refused()\ndef work(): [ctypes.c_char.from_address(at + p).value for p in range(0, 250 * MB, 2 * MB)]\nspread(work)",
)
_way(
    "page tables: a page in every GiB, read only",
    """
def work():
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    for n in range(1, 60000):
        at = libc.mmap((n << 30) + (1 << 21) * (n % 512), 4096, 1, 0x100022, -1, 0)
        if at not in (None, ctypes.c_void_p(-1).value): ctypes.c_char.from_address(at).value
        if n % 512 == 0 and late(): break
spread(work, 8)
""",
)
_way(
    "a hundred thousand small mappings",
    """
def work():
    for n in range(65000):
        if map(4096, 0x22, prot=1 + 2 * (n % 2)) is None or (n % 512 == 0 and late()): break
spread(work)
""",
)

# --- shared memory without a name -----------------------------------------------------------------------

_way(
    "shared, then let go of (MADV_DONTNEED)",
    """
while not late():
    at = map(40 * MB, 0x21)
    if not at: break
    libc.memset(at, 1, 40 * MB); libc.madvise(at, 40 * MB, 4)
hold()
""",
)
_way(
    "shared, all but a page unmapped",
    """
while not late():
    at = map(40 * MB, 0x21)
    if not at: break
    libc.memset(at, 1, 40 * MB); libc.munmap(at + 4096, 40 * MB - 4096)
hold()
""",
)
_way(
    "shared, unmapped by its maker, kept by a child",
    """
while not late():
    at = map(40 * MB, 0x21)
    if not at: break
    if tried(os.fork) == 0:
        libc.munmap(at, 36 * MB); time.sleep(4); os._exit(0)
    libc.memset(at, 1, 40 * MB); libc.munmap(at, 40 * MB)
hold()
""",
)
_way(
    "shared, by validated flags, moved and shrunk",
    """
while not late():
    at = map(40 * MB, 0x23) or map(40 * MB, 0x21)
    if not at: break
    libc.memset(at, 1, 40 * MB)
    libc.mremap(at, 40 * MB, 4096, 1, None)
hold()
""",
)
_way(
    "shared, of /dev/zero",
    """
fd = tried(os.open, "/dev/zero", os.O_RDWR)
failed(fd) and refused(fd)
n = 0
while not late():
    at = map(40 * MB, 0x01, fd)
    if not at: break
    libc.memset(at, 1, 40 * MB); libc.munmap(at + 4096, 40 * MB - 4096); n += 1
n or refused()
hold()
""",
)
_way(
    "shared, of every device",
    """
n = 0
for name in os.listdir("/dev"):
    for how in (os.O_RDWR, os.O_RDONLY):
        fd = tried(os.open, f"/dev/{name}", how | os.O_NONBLOCK)
        for _ in range(20):
            at = None if failed(fd) else map(40 * MB, 0x01, fd, 3 if how else 1)
            if not at: break
            touch(at, 40 * MB) if how else [ctypes.c_char.from_address(at + p).value for p in range(0, 40 * MB, 4096)]
            libc.munmap(at + 4096, 40 * MB - 4096); n += 1
n or refused()
hold()
""",
)

# --- files and names ------------------------------------------------------------------------------------

_FILL = """
def fill(folder):
    for n in range(40):
        try:
            with open(f"{folder}/f{os.getpid()}-{n}", "wb", 0) as file:
                for _ in range(30): file.write(bytes(MB))
        except OSError:
            break
"""
_way("files in the home", _FILL + "fill('.')\nhold()")
_way("files in /tmp", _FILL + "fill(os.environ.get('TMPDIR', '/tmp'))\nhold()")
_way("files in /dev/shm", _FILL + "os.access('/dev/shm', os.W_OK) or refused()\nfill('/dev/shm')\nhold()")
_way(
    "files in all three, in 12 processes",
    _FILL
    + "def work():\n    for folder in ('.', os.environ.get('TMPDIR', '/tmp'), '/dev/shm'): fill(folder)\nspread(work)",
)
_way(
    "sparse files that fill",
    """
files = []
for n in range(40):
    file = tried(open, f"s{n}", "wb+", 0)
    if failed(file): break
    file.truncate(30 * MB); files.append(file)
for file in files:
    for at in range(0, 30 * MB, 4096):
        if failed(tried(os.pwrite, file.fileno(), b"x", at)): break
hold()
""",
)
_way(
    "files that were deleted and are open",
    """
kept = []
for n in range(200):
    fd = tried(os.open, f"d{n}", os.O_RDWR | os.O_CREAT)
    if failed(fd): break
    os.unlink(f"d{n}"); kept.append(fd)
    for _ in range(30):
        if failed(tried(os.write, fd, bytes(MB))): break
hold()
""",
)
_way(
    "extended attributes",
    "for n in range(100000):\n    if failed(tried(os.setxattr, '.', f'user.a{n}', bytes(4000))): break\nn or refused()\nhold()",
)
_way(
    "many inodes",
    "for n in range(10 ** 6):\n    if late() or failed(tried(lambda: os.close(os.open(f'i{n}', os.O_CREAT | os.O_WRONLY)))): break\nhold()",
)
_way(
    "long names and folders",
    "name = 'x' * 250\nfor n in range(10 ** 5):\n    if late() or failed(tried(os.mkdir, f'{n}{name}'[:255])): break\nhold()",
)
_way(
    "long links",
    "for n in range(10 ** 6):\n    if late() or failed(tried(os.symlink, 'x' * 4000, f'l{n}')): break\nhold()",
)
_way("names that are not there", "while not late(): tried(os.stat, f'/usr/{time.monotonic_ns()}')\nhold()")

# --- what lies in descriptors ---------------------------------------------------------------------------

_way(
    "pipes",
    """
def work():
    held = []
    while not late():
        got = tried(os.pipe)
        if failed(got): break
        os.set_blocking(got[1], False)
        while not failed(tried(os.write, got[1], bytes(65536))): pass
        held.append(got)
    while not late(): time.sleep(0.05)
spread(work)
""",
)
_way(
    "pages spliced and teed into pipes",
    """
with open("f", "wb") as file: file.write(bytes(16 * MB))
def work():
    fd, held = os.open("f", os.O_RDONLY), []
    while not late():
        got = tried(os.pipe)
        if failed(got): break
        for n in range(16):
            if failed(tried(os.splice, fd, got[1], 4096, (n * 4096) % (16 * MB), None, 2)): break
        held.append(got)
    os.truncate("f", 0)
    while not late(): time.sleep(0.05)
spread(work)
""",
)
_SOCKETS = """
def work():
    held = []
    while not late():
        got = tried(socket.socketpair)
        if failed(got): break
        for end in got:
            %s
            end.setblocking(False)
            while not failed(tried(end.send, %s)): pass
        held.append(got)
    while not late(): time.sleep(0.05)
"""
_way("sockets", _SOCKETS % ("pass", "bytes(65536)") + "spread(work)")
_way(
    "sockets with larger buffers",
    _SOCKETS % ("end.setsockopt(1, 7, 1 << 28)", "bytes(65536)") + "spread(work)",
)
_way("sockets, a byte at a time", _SOCKETS % ("pass", "b'x'") + "spread(work)")
_way(
    "files sent into sockets",
    """
with open("f", "wb") as file: file.write(bytes(16 * MB))
def work():
    fd, held = os.open("f", os.O_RDONLY), []
    while not late():
        got = tried(socket.socketpair)
        if failed(got): break
        got[0].setblocking(False)
        while not failed(tried(os.sendfile, got[0].fileno(), fd, 0, 65536)): pass
        held.append(got)
    while not late(): time.sleep(0.05)
spread(work)
""",
)
_way("sockets that open files hold alone, one process", _SOCKETS % ("pass", "bytes(65536)") + "work()")
_way(
    "epolls that watch epolls",
    """
import select
def work():
    kept = [select.epoll() for _ in range(60)]
    ends = []
    while len(ends) < 180 and not failed(got := tried(os.pipe)): ends += got
    for poll in kept:
        for fd in ends:
            if failed(tried(poll.register, fd)): break
    while not late(): time.sleep(0.05)
spread(work)
""",
)
_way(
    "event, timer and signal descriptors",
    """
def work():
    mask = ctypes.c_uint64(1)
    for n in range(80):
        libc.eventfd(0, 0); libc.timerfd_create(1, 0); libc.signalfd(-1, ctypes.byref(mask), 8)
    while not late(): time.sleep(0.05)
spread(work)
""",
)
_way(
    "timers",
    "def work():\n    timer = ctypes.c_void_p()\n    for n in range(100000):\n        if libc.timer_create(1, None, ctypes.byref(timer)): break\nspread(work)",
)
_way(
    "locks on ranges of files",
    """
import fcntl
def work():
    for f in range(200):
        fd = tried(os.open, f"k{f}", os.O_RDWR | os.O_CREAT)
        if failed(fd): break
        for n in range(500):
            if late() or failed(tried(fcntl.lockf, fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 2 * n + 4000 * (os.getpid() % 64))): break
spread(work)
""",
)

# --- processes ------------------------------------------------------------------------------------------

_way(
    "threads",
    "for _ in range(10 ** 5):\n    if failed(tried(lambda: threading.Thread(target=time.sleep, args=(4,), daemon=True).start())): break\nhold()",
)
_way(
    "children that ended and are not waited for",
    "for _ in range(10 ** 5):\n    pid = tried(os.fork)\n    if failed(pid): break\n    pid or os._exit(0)\nhold()",
)
_way(
    "a fork bomb that holds",
    "while not late():\n    if tried(os.fork) == 0:\n        at = map(50 * MB); at and libc.memset(at, 1, 50 * MB)\nhold()",
)
_way(
    "arguments and environment of a program",
    """
def work():
    os.execve(sys.executable, [sys.executable, "-S", "-c", "import time; time.sleep(4)", *["x" * 100000] * 60], {f"e{n}": "y" * 100000 for n in range(80)})
spread(work, 14)
""",
)
_way(
    "filters of system calls",
    """
code = ctypes.create_string_buffer(struct.pack("=HBBI", 0x20, 0, 0, 0) * 4000 + struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000))
filter = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 4001, ctypes.addressof(code)))
def work():
    for _ in range(100):
        if libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(filter)), 0, 0): break
spread(work)
""",
)
_way(
    "a core dump",
    "import resource\nresource.setrlimit(resource.RLIMIT_CORE, (-1, -1)) if failed(tried(resource.setrlimit, 4, (-1, -1))) is False else None\nif tried(os.fork) == 0:\n    at = map(200 * MB); at and libc.memset(at, 1, 200 * MB); os.abort()\nhold()",
)
_way("a flood of output", "while not late(): tried(os.write, 1, bytes(MB)); tried(os.write, 2, bytes(MB))")

# --- kinds that are refused -----------------------------------------------------------------------------

_way(
    "memory files",
    "fds = []\nwhile not late():\n    fd = syscall(319, 279, b'x', 0)\n    fds.append(fd)\n    for _ in range(30): os.write(fd, bytes(MB))\nhold()",
)
_way("secret memory", "fd = syscall(447, 447, 0)\nos.ftruncate(fd, 64 * MB)\nhold()")
_way("System V memory", "while not late():\n    syscall(29, 194, 0, 40 * MB, 0o1600)\nhold()")
_way("System V messages", "while not late():\n    syscall(68, 186, 0, 0o1600)\nhold()")
_way("POSIX message queues", "while not late():\n    syscall(240, 180, b'q', 0o102, 0o600, 0)\nhold()")
_way(
    "keyrings",
    "while not late():\n    syscall(248, 217, b'user', os.urandom(8), bytes(30000), 30000, -3)\nhold()",
)
_way("maps of bpf", "syscall(321, 280, 0, struct.pack('IIII', 1, 8, 1 << 20, 100) + bytes(60), 72)\nhold()")
_way("rings of io_uring", "for _ in range(100): syscall(425, 425, 32768, bytes(120))\nhold()")
_way(
    "rings of aio",
    "kept = []\nfor _ in range(100):\n    kept.append(ctypes.c_ulong(0)); syscall(206, 0, 60000, ctypes.byref(kept[-1]))\nhold()",
)
_way("pages of userfaultfd", "syscall(323, 282, 1)\nhold()")
_way("rings of perf", "syscall(298, 241, bytes(128), 0, -1, -1, 0)\nhold()")
_way(
    "pages gifted to pipes",
    "ends = os.pipe()\nsyscall(278, 75, ends[1], struct.pack('PL', map(4096), 4096), 1, 8)\nhold()",
)
_way("watches on folders", "fd = syscall(294, 26, 0)\nhold()")
_way("namespaces with tmpfs of their own", "libc.unshare(0x10020000) and refused()\nhold()")
_way("rings of packets", "failed(tried(socket.socket, 17, 3, 0)) and refused()\nhold()")
_way(
    "pipes made larger",
    "import fcntl\nends = os.pipe()\nfailed(tried(fcntl.fcntl, ends[1], 1031, MB)) and refused()\nhold()",
)
_way(
    "descriptors in flight",
    "a, b = socket.socketpair()\nfailed(tried(socket.send_fds, a, [b'x'], [0])) and refused()\nhold()",
)

# --- paced, so that a look comes between ------------------------------------------------------------------

PACED_PRELUDE = (
    PRELUDE
    + """
kept = []
def grow(pieces=25, pause=0.04):
    "Keep 4 MiB after another, and print a character for each."
    for _ in range(pieces):
        if late() or failed(got := tried(lambda: bytearray(b"x") * (4 * MB))): break
        kept.append(got); os.write(1, b"|"); time.sleep(pause)
def begin(work):
    while failed(tried(lambda: threading.Thread(target=work).start())): late() and os._exit(0)
def turn():
    if late(): os._exit(0)
    time.sleep(0.0002)
    begin(turn)
def fill():
    grow()
    while not late(): time.sleep(0.05)
    os._exit(0)
def fork():
    "Whether this is a child; None where there can be none."
    pid = tried(os.fork)
    return None if failed(pid) else pid == 0
def workers(work, many=5):
    for _ in range(many):
        child = fork()
        if child is None: return work()
        if child: return work()
    hold()
def end_this_thread(): libc.syscall(ctypes.c_long(60 if X86 else 93), 0)
libc.clone.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
def clone(flags, seconds):
    "Start a process that sleeps in the same memory."
    got = libc.clone(ctypes.cast(libc.sleep, ctypes.c_void_p), map(MB) + MB - 64, flags | 17, seconds)
    if got < 0 and ctypes.get_errno() != 11: refused(os.strerror(ctypes.get_errno()))
"""
)


def begin_paced(seconds: float) -> str:
    """Return what a paced way begins with; it ends by itself after so many seconds."""
    return PACED_PRELUDE.replace("monotonic() + 4", f"monotonic() + {seconds}")


PACED: dict[str, str] = {
    "first threads that have ended": "def work():\n    threading.Thread(target=fill).start()\n    end_this_thread()\nworkers(work)",
    "first threads that have ended, each below another": """
for _ in range(4):
    if not fork(): break
threading.Thread(target=fill).start()
end_this_thread()
""",
    "threads that come and go": """
def keep():
    if len(kept) < 60: grow(1, 0.03)
    begin(keep)
def work():
    for each in (turn, keep): begin(each)
    end_this_thread()
workers(work, 3)
""",
    "shared without a name, by threads that come and go": """
def keep():
    at = map(4 * MB, 0x21)
    if at:
        libc.memset(at, 1, 4 * MB); libc.madvise(at, 4 * MB, 4); os.write(1, b"|")
    time.sleep(0.015)
    begin(keep)
def work():
    for each in (turn, keep): begin(each)
    end_this_thread()
workers(work, 3)
""",
    "the only thread left is another process's (CLONE_VM)": """
def work():
    grow()
    clone(0x100, 4)
    os._exit(0)
workers(work)
""",
    "in a vfork that does not end": """
def work():
    threading.Thread(target=fill).start()
    clone(0x4100, 4)
    hold()
workers(work)
""",
    "a clone in each memory, which grows on": """
def work():
    clone(0x100, 4)
    fill()
workers(work)
""",
    "trees of ended processes": """
def work():
    for _ in range(2):
        if fork():
            if fork(): os._exit(0)
            os._exit(0)
    fill()
workers(work, 4)
""",
    "grandchildren that outlive their parents": """
def work():
    os.setsid()
    child = fork()
    if child is False: os._exit(0)
    fill()
workers(work)
""",
    "handed on from parent to child": """
if fork() is False: hold()
while not late():
    grow(4)
    if fork() is False: os._exit(0)
hold()
""",
    "shared without a name": """
def work():
    for _ in range(25):
        at = map(4 * MB, 0x21)
        if not at: break
        libc.memset(at, 1, 4 * MB); os.write(1, b"|"); time.sleep(0.04)
    hold()
workers(work)
""",
    "pipes that were enlarged": """
import fcntl
def work():
    for _ in range(100):
        ends = tried(os.pipe)
        if failed(ends) or failed(tried(fcntl.fcntl, ends[1], 1031, MB)): break
        os.set_blocking(ends[1], False)
        size = tried(os.write, ends[1], bytes(MB))
        kept.append(0 if failed(size) else size)
        if len(kept) % 4 == 0: os.write(1, b"|" * (sum(kept[-4:]) // (4 * MB)))
    kept or refused()
    hold()
workers(work)
""",
    "memory files": WAYS["memory files"],
    "System V memory": WAYS["System V memory"],
}
"""Ways at a pace that a watch can follow: they are to take no more than half as much again as the limit."""
