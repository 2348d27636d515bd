# ruff: noqa: E501 - programs are data
"""Hostile programs, as data. `arena.py` runs them and says what harm they did.

Every program begins with `PRELUDE`, which knows where the host's secrets, files, listeners and processes
are: the attacker is told everything. It calls `harm` for what only it can see; the rest is seen from outside.
"""

from __future__ import annotations

from dataclasses import dataclass, field

PRELUDE = """
import ctypes, os, sys, time
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
def harm(why):
    os.write(1, f"\\nHARM: {why}\\n".encode())
def sc(name, *args):
    "A raw system call: its result, or minus the error number; -1000 where the machine lacks it."
    if NR.get(name) is None:
        return -1000
    got = _libc.syscall(ctypes.c_long(NR[name]), *(ctypes.c_long(a) if isinstance(a, int) else a for a in args))
    return -ctypes.get_errno() if got < 0 else got
def works(name, *args):
    if sc(name, *args) >= 0:
        harm(name + " works")
def tag():
    "Wear the name by which survivors are found."
    _libc.prctl(15, TAG.encode(), 0, 0, 0)
def attempt(call, *args, **kwargs):
    try:
        return call(*args, **kwargs)
    except Exception as error:
        return error
def failed(got):
    return isinstance(got, Exception)
"""


@dataclass(frozen=True)
class Program:
    """A hostile program and what shows that it was held.

    `status`: the only acceptable ones. `stdout`: what must come out. `after`: code that looks, in a later
    fresh run, for what was left. `fetch`: files that the host reads out of the session. `gap`: backends that do
    not claim to stop it, and why. `sessions`, `runs`: whether it makes sense there. `heavy`: takes seconds.
    """

    name: str
    group: str
    code: str
    status: tuple[str, ...] = ()
    stdout: str | None = None
    after: str = ""
    fetch: tuple[str, ...] = ()
    gap: dict[str, str] = field(default_factory=dict)
    runs: bool = True
    sessions: bool = True
    heavy: bool = False
    bare: bool = False  # without the prelude


PROGRAMS: list[Program] = []


def _group(name, **defaults):
    def add(title, code, **kwargs):
        PROGRAMS.append(Program(title, name, code, **(defaults | kwargs)))

    return add


# --- files and secrets ------------------------------------------------------------------------------------

add = _group("files and secrets")
add("read a secret by its path", "print(open(SECRET_FILE).read())")
add("print the environment", "print(dict(os.environ))")
add(
    "environment of the C library",
    """
pointers = ctypes.POINTER(ctypes.c_char_p).in_dll(_libc, "environ")
n = 0
while pointers[n]:
    print(pointers[n])
    n += 1
""",
)
add(
    "environment and arguments of every process",
    """
for pid in os.listdir("/proc"):
    if pid.isdigit():
        for name in ("environ", "cmdline", "maps", "cwd/" + SECRET_NAME, "root" + SECRET_FILE):
            got = attempt(lambda: open(f"/proc/{pid}/{name}", "rb").read())
            if not failed(got) and name != "maps":
                print(pid, name, got)
""",
)
add(
    "see the host's processes",
    """
for pid in (CLIENT, BYSTANDER):
    got = attempt(lambda: open(f"/proc/{pid}/cmdline").read())
    if not failed(got) and got:
        harm("a process of the host is in /proc")
""",
)
add(
    "inherited descriptors",
    """
for fd in range(3, 1024):
    for read in (lambda: os.pread(fd, 4096, 0), lambda: os.listdir(fd)):
        got = attempt(read)
        if not failed(got):
            print(fd, got)
""",
)
add(
    "a secret below inherited directories",
    """
for fd in range(0, 256):
    for path in (SECRET_FILE[1:], "../" * 20 + SECRET_FILE[1:], SECRET_NAME):
        got = attempt(lambda: os.open(path, os.O_RDONLY, dir_fd=fd))
        if not failed(got):
            print(os.read(got, 4096))
""",
)
add("climb out of the working folder", "print(open('../' * 40 + SECRET_FILE[1:]).read())")
add("a link to a secret", "os.symlink(SECRET_FILE, 'link'); print(open('link').read())", fetch=("link",))
add("a hard link to a secret", "os.link(SECRET_FILE, 'hard'); print(open('hard').read())", fetch=("hard",))
add(
    "a link to a folder of the host",
    "os.symlink(os.path.dirname(SECRET_FILE), 'd')",
    fetch=("d/secret", "d/../d/secret", "./d/secret"),
)
add(
    "walk the whole tree",
    """
until = time.monotonic() + 1
for folder, folders, files in os.walk("/"):
    if SECRET_NAME in files:
        harm("found " + folder)
    if folder == "/proc" or time.monotonic() > until:
        folders.clear()
""",
)
add(
    "homes, keys, shadow",
    """
for path in ("/etc/shadow", "/etc/gshadow", "/root/.ssh", "/root/.bashrc", "/root/.profile", "/etc/ssh",
             "/var/log", "/var/lib/dpkg/status", "/run/systemd", "/boot", "/srv", "/var/spool/cron"):
    got = attempt(lambda: os.listdir(path) if os.path.isdir(path) else open(path).read())
    if not failed(got) and got:
        harm("read " + path)
""",
)
add(
    "devices",
    """
import glob
for path in ["/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/dev/fuse", "/dev/kvm", "/dev/net/tun",
             "/dev/vhost-vsock", "/dev/loop-control", *glob.glob("/dev/[svn]d[a-z]"), *glob.glob("/dev/vd*")]:
    for mode in (os.O_RDONLY, os.O_RDWR):
        if not failed(attempt(os.open, path, mode)):
            harm("opened " + path)
""",
)
add(
    "make a device",
    """
for name, mode, device in (("disk", 0o60666, os.makedev(254, 0)), ("mem", 0o20666, os.makedev(1, 1))):
    attempt(os.mknod, name, mode, device)
    if not failed(attempt(lambda: open(name, "rb").read(16))):
        harm("made and read a device")
""",
)
add(
    "the kernel's files",
    """
for path in ("/proc/kcore", "/proc/kmsg", "/proc/kpagecount", "/proc/vmallocinfo", "/proc/slabinfo",
             "/sys/kernel/debug/gpio", "/sys/kernel/tracing/trace", "/sys/firmware/efi/efivars",
             "/proc/1/mem", f"/proc/{CLIENT}/mem", "/proc/timer_list", "/proc/sched_debug"):
    if not failed(attempt(lambda: open(path, "rb").read(64))) and "/proc/1/" not in path:
        harm("read " + path)
symbols = attempt(lambda: open("/proc/kallsyms").read(4000))
if not failed(symbols) and any(int(l.split()[0], 16) for l in symbols.splitlines()[:-1]):
    harm("addresses of the kernel")
""",
)
add(
    "a file by its handle",
    """
handle = ctypes.create_string_buffer(8 + 128)
ctypes.cast(handle, ctypes.POINTER(ctypes.c_uint))[0] = 128
mount = ctypes.c_int()
works("name_to_handle_at", -100, b"/", handle, ctypes.byref(mount), 0)
works("open_by_handle_at", -100, handle, 0)
""",
)
add(
    "memory of the client",
    """
buffer = ctypes.create_string_buffer(64)
vector = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 64)
for pid in (CLIENT, BYSTANDER, os.getppid()):
    works("process_vm_readv", pid, vector, 1, vector, 1, 0)
    works("process_vm_writev", pid, vector, 1, vector, 1, 0)
    works("ptrace", 16, pid, 0, 0)
    works("ptrace", 0x4206, pid, 0, 0)
""",
)
_SEARCH = """
def search(first, second):
    "Whether the two, one after the other, are in this process's memory; together they are nowhere in this code."
    for line in open("/proc/self/maps"):
        span, access = line.split()[:2]
        low, high = (int(x, 16) for x in span.split("-"))
        if access.startswith("rw") and high - low < 1 << 28:
            with open("/proc/self/mem", "rb", 0) as memory:
                memory.seek(low)
                got = attempt(memory.read, high - low)
            at = -1 if failed(got) else got.find(first)
            while at >= 0:
                if got[at + len(first) : at + len(first) + len(second)] == second:
                    return True
                at = got.find(first, at + 1)
    return False
"""
add(
    "data of earlier calls in memory",
    "kept = [bytearray(b'51f0' + b'9bd2' + TAG.encode()) for _ in range(1000)]",
    after=_SEARCH + "if search(b'51f0', b'9bd2' + LAST_TAG.encode()): harm('data of another call')",
)
add(
    "code of earlier calls in memory",
    "x = 1  # b5e1c7a0",
    after=_SEARCH + "if search(b'# b5e1', b'c7a0'): harm('code of another call')",
)
add(
    "the descriptor of the client's file",
    """
for pid in (CLIENT, BYSTANDER):
    fd = sc("pidfd_open", pid, 0)
    if fd >= 0:
        for other in range(3, 30):
            works("pidfd_getfd", fd, other, 0)
""",
)
add(
    "shared objects into the interpreter",
    """
for library in ("libutil.so.1", "libdl.so.2"):
    attempt(ctypes.CDLL, library)
print(attempt(lambda: ctypes.CDLL(None).system(b"cat " + SECRET_FILE.encode())))
""",
)
add(
    "a shell reads the secret",
    """
import subprocess
for command in (["/bin/sh", "-c", f"cat {SECRET_FILE}; env"], ["/bin/cat", SECRET_FILE]):
    print(attempt(subprocess.run, command, capture_output=True))
""",
)

# --- writes on the host -----------------------------------------------------------------------------------

add = _group("host writes")
add("overwrite", "open(HOST_FILE, 'w').write(TAG)")
add("append by a raw descriptor", "os.write(os.open(HOST_FILE, os.O_WRONLY | os.O_APPEND), b'x')")
add("create", "open(HOST_DIR + '/new', 'w').write(TAG)")
add("delete", "os.unlink(HOST_FILE)")
add("delete the tree", "import shutil; shutil.rmtree(HOST_DIR)")
add("rename", "os.rename(HOST_FILE, HOST_FILE + '.bak')")
add("move in from outside", "open('x', 'w').write('x'); os.rename('x', HOST_DIR + '/x')")
add("link in from outside", "open('x', 'w').write('x'); os.link('x', HOST_DIR + '/x')")
add("truncate", "os.truncate(HOST_FILE, 0)")
add(
    "change its mode",
    """
attempt(os.chmod, HOST_FILE, 0o777)
attempt(os.chmod, HOST_DIR, 0)
sc("fchmodat2", -100, HOST_FILE.encode(), 0o777, 0)
""",
)
add(
    "change mode and times through a descriptor for reading",
    """
for path in (HOST_FILE, os.__file__, sys.executable):
    fd = attempt(os.open, path, os.O_RDONLY)
    if not failed(fd):
        attempt(os.fchmod, fd, 0o777); attempt(os.utime, fd, (1, 1)); attempt(os.setxattr, fd, "user.x", b"x")
""",
)
add("change its times", "os.utime(HOST_FILE, (1, 1))")
add("change its attributes", "os.setxattr(HOST_FILE, 'user.gem', b'x')")
add("change its owner", "os.chown(HOST_FILE, 1234, 1234)")
add(
    "make folders, pipes, sockets, links",
    """
attempt(os.mkdir, HOST_DIR + "/d"); attempt(os.mkfifo, HOST_DIR + "/f"); attempt(os.symlink, "/", HOST_DIR + "/l")
attempt(os.mknod, HOST_DIR + "/n", 0o100666)
""",
)
add("write through a link", "os.symlink(HOST_FILE, 'l'); open('l', 'w').write(TAG)")
add("write into a pipe of the host", "os.write(os.open(HOST_FIFO, os.O_WRONLY | os.O_NONBLOCK), b'in')")
add(
    "litter everywhere",
    """
import site, tempfile
for folder in {"/", "/tmp", "/var/tmp", "/dev/shm", "/usr", "/usr/local/bin", "/etc", "/opt", "/run", "/home",
               "/root", "/var", "/etc/cron.d", sys.prefix, sys.base_prefix, os.path.dirname(os.__file__), CWD,
               HOST_HOME, os.path.dirname(HOST_DIR), *site.getsitepackages(), "/proc", "/sys/fs/cgroup"}:
    attempt(lambda: open(os.path.join(folder, TAG), "w").write("x"))
""",
)
add(
    "poison the interpreter",
    """
for path in (os.__file__, sys.executable, ctypes.__file__):
    got = attempt(lambda: open(path, "ab"))
    if not failed(got):
        harm("the interpreter is writable")
""",
)
add(
    "poison the byte code",
    """
import importlib.util
path = importlib.util.cache_from_source(os.__file__)
for mode in ("r+b", "ab"):
    if not failed(attempt(open, path, mode)):
        harm("the byte code is writable")
""",
    after="import sysconfig, colorsys\nif hasattr(colorsys, 'poisoned'): harm('poisoned byte code')",
)
add(
    "remount for writing",
    """
for path in (b"/", b"/usr", HOST_DIR.encode(), os.path.dirname(os.__file__).encode(), b"/proc/sys", b"/dev"):
    works("mount", b"none", path, b"none", 32 | 4096, 0)
    works("mount_setattr", -100, path, 0x8000, (ctypes.c_uint64 * 4)(0, 1, 0, 0), 32)
""",
)
add(
    "settings of the kernel",
    """
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger",
             "/proc/sys/vm/drop_caches", "/proc/sys/kernel/modprobe", "/proc/sys/net/ipv4/ip_forward",
             "/proc/sys/kernel/ns_last_pid", "/sys/kernel/uevent_helper", "/proc/sys/kernel/randomize_va_space",
             "/proc/sys/fs/mqueue/msg_max", "/proc/sys/kernel/shmmax", "/proc/sys/kernel/domainname"):
    if not failed(attempt(os.open, path, os.O_WRONLY)):
        harm("opened for writing " + path)
""",
)
add(
    "groups of the kernel",
    """
import glob
for folder in ("/sys/fs/cgroup", *glob.glob("/sys/fs/cgroup/*")):
    if not failed(attempt(os.mkdir, folder + "/" + TAG)):
        harm("made a control group")
    for name in ("cgroup.procs", "release_agent", "cgroup.kill", "cgroup.freeze"):
        if not failed(attempt(os.open, folder + "/" + name, os.O_WRONLY)):
            harm("opened " + name)
""",
)
add(
    "a lease on a file of the host",
    """
import fcntl
fd = os.open(HOST_FILE, os.O_RDONLY)
for kind in (fcntl.F_RDLCK, fcntl.F_WRLCK):
    if not failed(attempt(fcntl.fcntl, fd, fcntl.F_SETLEASE, kind)):
        harm("a lease on a file of the host")
""",
)
add(
    "watch the host's files",
    """
fd = sc("inotify_init1", 0)
if fd >= 0:
    works("inotify_add_watch", fd, HOST_DIR.encode(), 0xFFF)
works("fanotify_init", 0x200, 0)
""",
)

# --- network and communication ----------------------------------------------------------------------------

add = _group("network and communication")
add("TCP to the loopback", "import socket; socket.create_connection(('127.0.0.1', TCP), 1).sendall(b'x')")
add(
    "TCP by every spelling",
    """
import socket
for host in ("127.0.0.1", "localhost", "0.0.0.0", "127.1", "::1", "::ffff:127.0.0.1", "::", HOST_ADDRESS):
    attempt(lambda: socket.create_connection((host, TCP), 0.2))
""",
)
add(
    "UDP to the loopback",
    """
import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", UDP))
""",
)
add(
    "TCP by raw system calls",
    """
import struct
fd = sc("socket", 2, 1, 0)
address = struct.pack("=H", 2) + struct.pack("!H", TCP) + bytes([127, 0, 0, 1]) + bytes(8)
sc("connect", fd, address, 16)
for fd in range(3, 64):
    sc("connect", fd, address, 16)
""",
)
add(
    "a Unix socket by its path",
    """
import socket
socket.socket(socket.AF_UNIX).connect(UNIX)
""",
)
add(
    "a Unix datagram by its path",
    """
import socket
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", UNIX_DATAGRAM)
""",
)
add(
    "datagrams through a pair",
    """
import socket
for kind in (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_STREAM, 2 | 0x800):
    for near in attempt(socket.socketpair, socket.AF_UNIX, kind) or ():
        for path in (UNIX_DATAGRAM, UNIX, "\\0" + ABSTRACT):
            attempt(near.sendto, b"x", path)
            attempt(near.connect, path)
            attempt(near.send, b"x")
            attempt(near.bind, "sock"); attempt(near.listen)
""",
)
add(
    "an abstract Unix socket",
    """
import socket
socket.socket(socket.AF_UNIX).connect("\\0" + ABSTRACT)
""",
)
add(
    "a descriptor sent to the host",
    """
import array, socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))], 0, UNIX_DATAGRAM)
""",
)
add(
    "sockets for the kernel",
    """
import socket
for family, kind, protocol in ((2, 3, 1), (2, 3, 255), (10, 3, 58), (17, 3, 768), (17, 2, 768), (16, 3, 0),
                               (16, 3, 15), (16, 3, 12), (40, 1, 0), (38, 5, 0), (44, 3, 0), (30, 1, 0),
                               (21, 5, 0), (29, 3, 1), (31, 3, 1), (43, 1, 0), (2, 1, 132), (2, 1, 262), (15, 3, 2)):
    got = attempt(socket.socket, family, kind, protocol)
    if not failed(got):
        harm(f"a socket of family {family}, kind {kind}, protocol {protocol}")
""",
)
add(
    "listen for the host",
    """
import socket
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("0.0.0.0", FREE_PORT)); s.listen(); s.settimeout(1.0)
if not failed(attempt(s.accept)):
    harm("the host was reached")
""",
)
add(
    "inherited sockets",
    """
import socket
for fd in range(3, 256):
    got = attempt(lambda: socket.socket(fileno=os.dup(fd)))
    if not failed(got):
        attempt(got.setblocking, False)
        for call in (lambda: got.accept(), lambda: got.send(b"x"), lambda: got.getpeername()):
            attempt(call)
        if got.family in (2, 10):
            harm("an inherited socket")
""",
)
add(
    "System V memory",
    """
fd = sc("shmget", IPC_KEY, 4096, 0o1666)
sc("semget", IPC_KEY, 1, 0o1666); sc("msgget", IPC_KEY, 0o1666)
""",
)
add("a message queue", "sc('mq_open', TAG.encode(), 0o102, 0o666, 0)")
add(
    "shared memory with a name",
    """
from multiprocessing import shared_memory
block = shared_memory.SharedMemory(TAG, create=True, size=4096)
""",
    after="""
from multiprocessing import shared_memory
if not failed(attempt(shared_memory.SharedMemory, LAST_TAG)):
    harm("shared memory of another call")
""",
)
add(
    "keyrings",
    """
works("add_key", b"user", TAG.encode(), b"x", 1, -4); works("keyctl", 0, -3, 0, 0, 0); works("keyctl", 1, b"ring")
works("request_key", b"user", b"x", 0, 0)
""",
)
add(
    "type into the terminal",
    """
import fcntl
for path in (0, 1, 2, "/dev/tty", "/dev/console", "/dev/tty1", "/dev/pts/0"):
    fd = path if isinstance(path, int) else attempt(os.open, path, os.O_RDWR)
    if isinstance(fd, int):
        if path not in (0, 1, 2):
            harm(f"opened {path}")
        if not failed(attempt(fcntl.ioctl, fd, 0x5412, b"x")) or not failed(attempt(fcntl.ioctl, fd, 0x541C, b"x")):
            harm("typed into the terminal")
""",
)
add("the network by the ring", "works('io_uring_setup', 8, ctypes.create_string_buffer(120))")
add(
    "the network of others",
    """
for pid in (1, CLIENT, os.getppid()):
    for kind in ("net", "mnt", "pid", "user", "ipc", "uts", "cgroup"):
        fd = attempt(os.open, f"/proc/{pid}/ns/{kind}", os.O_RDONLY)
        if not failed(fd):
            works("setns", fd, 0)
""",
)
add(
    "interfaces of the network",
    """
for path in ("/proc/net/tcp", "/proc/net/arp", "/proc/net/route", "/proc/net/unix", "/proc/net/dev"):
    got = attempt(lambda: open(path).read())
    if not failed(got) and (f":{TCP:04X} " in got or ABSTRACT in got or UNIX in got):
        harm("the host's connections are in " + path)
""",
)

# --- processor, memory, disk, output ----------------------------------------------------------------------

SPENT = ("TLE",)
DEAD = ("TLE", "MLE", "RE", "OLE")
add = _group("processor, memory, disk, output")
add("an endless loop", "while True: pass", status=SPENT, heavy=True)
add(
    "an endless loop that ignores signals",
    """
import signal
for number in set(signal.Signals) - {9, 19}:
    attempt(signal.signal, number, signal.SIG_IGN)
while True:
    try:
        while True: pass
    except BaseException: pass
""",
    status=SPENT,
    heavy=True,
)
add("an endless loop in C", "9 ** 9 ** 9 ** 9", status=("TLE", "MLE", "RE"), heavy=True)
add(
    "a constant that never folds",
    "x = (7 ** 9999999) ** 9999",
    status=("TLE", "MLE", "RE"),
    heavy=True,
    bare=True,
)
add("a regular expression", "import re; re.match(r'(a+)+$', 'a' * 64 + 'b')", status=SPENT, heavy=True)
add("sleep", "time.sleep(10 ** 6)", status=SPENT, heavy=True)
add("sleep at the end", "import atexit; atexit.register(time.sleep, 1000)", heavy=True)
add(
    "a thread that never ends",
    "import threading; threading.Thread(target=lambda: time.sleep(1000)).start()",
    heavy=True,
)
add("wait for what never comes", "import threading; threading.Event().wait()", status=SPENT, heavy=True)
add(
    "a deadlock in the import",
    "import threading; l = threading.Lock(); l.acquire(); l.acquire()",
    status=SPENT,
    heavy=True,
)
add(
    "children that compute on",
    """
tag()
for _ in range(6):
    if os.fork() == 0:
        while True: pass
""",
    heavy=True,
)
add(
    "children that share out the processor time",
    """
tag()
for _ in range(8):
    if os.fork() == 0:
        while True: pass
while True: time.sleep(1)
""",
    heavy=True,
)
add("stop oneself", "import signal; os.kill(os.getpid(), signal.SIGSTOP)", heavy=True)
add(
    "stop every thread but one",
    """
import signal
if os.fork() == 0:
    tag()
    os.kill(os.getppid(), signal.SIGSTOP); time.sleep(1000)
time.sleep(1000)
""",
    heavy=True,
)
add("memory", "x = bytearray(1 << 40)", status=("RE", "MLE"))
add(
    "memory, touched",
    "x = []\nwhile True: x.append(bytearray(b'x') * (1 << 24))",
    status=("RE", "MLE", "TLE"),
    heavy=True,
)
add(
    "memory, ever caught",
    """
x = []
while True:
    try: x.append(bytearray(b"x") * (1 << 20))
    except MemoryError: pass
""",
    status=("TLE", "MLE", "RE", "OLE"),
    heavy=True,
)
add("memory of a string", "x = 'x'\nwhile True: x += x", status=("RE", "MLE", "TLE"))
add(
    "memory, mapped",
    """
import mmap
kept = [mmap.mmap(-1, 1 << 28) for _ in range(64)]
for m in kept:
    for i in range(0, 1 << 28, 4096): m[i] = 1
""",
    status=("RE", "MLE", "TLE"),
)
add(
    "memory of many children",
    """
tag()
for _ in range(12):
    if os.fork() == 0:
        kept = bytearray(b"x") * (150 << 20); time.sleep(1000)
time.sleep(1000)
""",
    heavy=True,
)
add(
    "memory of grandchildren that left",
    """
import signal
tag()
for _ in range(12):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            kept = bytearray(b"x") * (150 << 20); time.sleep(1000)
        os._exit(0)
time.sleep(1000)
""",
    heavy=True,
)
add(
    "memory in memfds",
    """
fds = []
for _ in range(50):
    fd = os.memfd_create("x"); fds.append(fd)
    for _ in range(7): os.write(fd, bytes(1 << 20))
harm("memory that no limit counts")
""",
)
add(
    "memory shared without a name",
    """
import mmap
tag()
for _ in range(14):
    m = mmap.mmap(-1, 100 << 20)
    if os.fork() == 0:
        for i in range(0, 100 << 20, 4096): m[i] = 1
        time.sleep(1000)
time.sleep(1000)
""",
    heavy=True,
)
add(
    "memory in pipes",
    """
import fcntl
held = []
while True:
    got = attempt(os.pipe)
    if failed(got): break
    attempt(fcntl.fcntl, got[1], 1031, 1 << 20)
    os.set_blocking(got[1], False)
    while not failed(attempt(os.write, got[1], bytes(65536))): pass
    held.append(got)
if len(held) > 2000: harm("any number of pipes")
""",
)
add(
    "memory in sockets",
    """
import socket
held = []
while True:
    got = attempt(socket.socketpair)
    if failed(got): break
    for end in got:
        attempt(end.setsockopt, socket.SOL_SOCKET, socket.SO_SNDBUFFORCE if hasattr(socket, "SO_SNDBUFFORCE") else 32, 1 << 28)
        end.setblocking(False)
        while not failed(attempt(end.send, bytes(65536))): pass
    held.append(got)
if len(held) > 2000: harm("any number of sockets")
""",
)
add(
    "threads",
    """
import threading
kept = []
for _ in range(20000):
    kept.append(threading.Thread(target=time.sleep, args=(1000,), daemon=True)); kept[-1].start()
harm("20000 threads")
""",
)
add(
    "a fork bomb",
    """
tag()
while True:
    try: os.fork()
    except OSError: pass
""",
    heavy=True,
)
add(
    "a fork bomb that leaves",
    """
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
tag()
while True:
    try:
        if os.fork() == 0: os.setsid()
        else: os._exit(0) if os.getpid() != os.getppid() + 1 else None
    except OSError: pass
""",
    heavy=True,
)
add(
    "a fork bomb of the shell",
    "import subprocess; subprocess.run(['/bin/sh', '-c', ':(){ :|:& };:'])",
    heavy=True,
)
add(
    "how many processes",
    """
tag()
children = 0
while children < 200:
    try: pid = os.fork()
    except OSError: break
    if pid == 0: time.sleep(1000)
    children += 1
if children >= 200: harm("200 processes")
""",
)
add(
    "zombies",
    """
for _ in range(20000):
    try:
        if os.fork() == 0: os._exit(0)
    except OSError: break
else: harm("20000 zombies")
""",
)
add(
    "a file without end",
    """
with open("big", "wb") as file:
    for _ in range(4096): file.write(bytes(1 << 20))
harm("4 GiB in a file")
""",
)
add(
    "many files without end",
    """
total = 0
for folder in (".", "/tmp", "/dev/shm", "/var/tmp", "/run"):
    for n in range(100):
        try:
            with open(f"{folder}/f{n}", "wb") as file:
                for _ in range(4):
                    file.write(bytes(1 << 20)); total += 1
        except OSError: break
if total > 150: harm(f"{total} MiB on disk")
""",
    gap={"landlock": "no total over files"},
)
add(
    "deleted files that are held open",
    """
held, total = [], 0
try:
    for n in range(200):
        held.append(open(f"g{n}", "wb")); os.unlink(f"g{n}")
        held[-1].write(bytes(4 << 20)); held[-1].flush(); total += 4
except OSError: pass
if total > 150: harm(f"{total} MiB on disk")
""",
    gap={"landlock": "no total over files"},
)
add(
    "files without names",
    """
held, total = [], 0
try:
    for n in range(200):
        fd = os.open(".", os.O_TMPFILE | os.O_RDWR); held.append(fd)
        os.posix_fallocate(fd, 0, 4 << 20); total += 4
except OSError: pass
if total > 150: harm(f"{total} MiB on disk")
""",
    gap={"landlock": "no total over files"},
)
add(
    "inodes",
    """
made = 0
try:
    for made in range(3000): os.close(os.open(f"i{made}", os.O_CREAT | os.O_WRONLY))
except OSError: pass
if made > 2000: harm("3000 files")
""",
    gap={"landlock": "no count of files", "bwrap-slots": "no count of files"},
)
add(
    "folders in folders",
    """
depth = 0
try:
    for depth in range(3000): os.mkdir("d"); os.chdir("d")
except OSError: pass
if depth > 2000: harm("3000 folders")
""",
    gap={"landlock": "no count of files", "bwrap-slots": "no count of files"},
)
add("a sparse file", "open('sparse', 'wb').truncate(1 << 45); harm('32 TiB')", fetch=("sparse",))
add(
    "a large file for the host to fetch",
    """
with open("large", "wb") as file:
    for _ in range(6): file.write(b"x" * (1 << 20))
""",
    fetch=("large",),
)
add(
    "descriptors",
    """
held = []
try:
    while True: held.append(os.open("/", os.O_RDONLY))
except OSError: pass
if len(held) > 3000: harm("any number of descriptors")
""",
)
add("output without end", "while True: print('x' * 1000)", status=("OLE",))
add("errors without end", "while True: print('x' * 1000, file=sys.stderr)", status=("OLE",))
add("output without end, by the descriptor", "while True: os.write(1, b'x' * 65536)", status=("OLE",))
add(
    "output of children",
    """
tag()
for _ in range(4):
    if os.fork() == 0:
        while True: os.write(1, b"x" * 4096)
""",
)
add("one large output", "print('x' * (32 << 20))", status=("OLE",))
add(
    "output that drips",
    """
while True: print(".", end="", flush=True); time.sleep(0.01)
""",
    status=SPENT,
    heavy=True,
)
add("a large error", "raise ValueError('x' * (32 << 20))", status=("OLE", "RE"))
add("a large value", "'x' * (32 << 20)", status=("OK", "OLE"))
add("a large exit text", "sys.exit('x' * (32 << 20))", status=("OLE", "RE"))
add(
    "an endless chain of errors",
    """
def again(n):
    try: raise ValueError("x" * 100)
    except ValueError:
        if n: again(n - 1)
        raise
again(800)
""",
    status=("RE", "OLE"),
)
add(
    "a repr that never ends",
    """
class Slow:
    def __repr__(self):
        while True: pass
Slow()
""",
    status=("OK", "TLE"),
    heavy=True,
)
add(
    "a repr that raises",
    """
class Bad:
    def __repr__(self): raise SystemExit(3)
Bad()
""",
    status=("OK", "RE"),
)

# --- signals, other processes, daemons --------------------------------------------------------------------

add = _group("signals and daemons")
add("kill everybody", "import signal; os.kill(-1, signal.SIGKILL)")
add("kill the first process", "import signal\nfor s in (15, 9, 1, 2, 11): attempt(os.kill, 1, s)")
add("kill the parent", "import signal\nos.kill(os.getppid(), signal.SIGKILL)")
add(
    "every signal to whoever waits for the end",
    """
for number in range(1, 65):
    for pid in {1, os.getppid()} - {0, os.getpid()}:
        attempt(os.kill, pid, number); sc("tkill", pid, number); sc("tgkill", pid, pid, number)
        information = (ctypes.c_int * 32)(number, 0, -1)
        sc("rt_sigqueueinfo", pid, number, information); sc("rt_tgsigqueueinfo", pid, pid, number, information)
time.sleep(0.2)
""",
)
add(
    "a flood of queued signals",
    """
_libc.sigqueue.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [40])
for n in range(300000):
    if _libc.sigqueue(os.getpid(), 40, 0): break
else: harm("300000 signals are kept for it")
""",
)
add(
    "kill the client and a bystander",
    """
import signal
for pid in (CLIENT, BYSTANDER):
    for call in (lambda: os.kill(pid, 9), lambda: os.killpg(pid, 9), lambda: os.kill(-pid, 9)):
        attempt(call)
    sc("tkill", pid, 9); sc("tgkill", pid, pid, 9)
    information = ctypes.create_string_buffer(128); ctypes.cast(information, ctypes.POINTER(ctypes.c_int))[2] = -1
    sc("rt_sigqueueinfo", pid, 9, information); sc("rt_tgsigqueueinfo", pid, pid, 9, information)
    fd = sc("pidfd_open", pid, 0)
    if fd >= 0: sc("pidfd_send_signal", fd, 9, 0, 0)
""",
)
add(
    "kill by every number",
    """
import signal
for pid in range(2, 5000):
    if pid != os.getpid(): attempt(os.kill, pid, signal.SIGKILL)
""",
)
add("kill the group", "import signal; os.killpg(0, signal.SIGKILL)")
add(
    "kill the session's leader",
    "import signal; os.kill(os.getsid(0), signal.SIGKILL) if os.getsid(0) else None",
)
add(
    "stop the parent",
    """
import signal
os.kill(os.getppid(), signal.SIGSTOP); attempt(os.kill, 1, signal.SIGSTOP)
""",
)
add(
    "a signal by way of a descriptor",
    """
import fcntl, signal
read, write = os.pipe()
for pid in (BYSTANDER, CLIENT, -BYSTANDER):
    attempt(fcntl.fcntl, read, 10, signal.SIGKILL)
    attempt(fcntl.fcntl, read, fcntl.F_SETOWN, pid)
    attempt(fcntl.fcntl, read, 15, (2).to_bytes(4, "little") + pid.to_bytes(4, "little", signed=True))
    attempt(fcntl.fcntl, read, fcntl.F_SETFL, os.O_ASYNC)
    attempt(fcntl.ioctl, read, 0x8901, pid.to_bytes(4, "little", signed=True))
    os.write(write, b"x")
""",
)
add(
    "hold back the host's processes",
    """
import resource
for pid in (BYSTANDER, CLIENT):
    attempt(os.setpriority, os.PRIO_PROCESS, pid, 19); attempt(os.sched_setaffinity, pid, {0})
    attempt(resource.prlimit, pid, resource.RLIMIT_NOFILE, (5, 5))
    attempt(os.sched_setscheduler, pid, os.SCHED_IDLE, os.sched_param(0))
    sc("ioprio_set", 1, pid, 3 << 13)
attempt(os.setpriority, os.PRIO_USER, os.getuid(), 19); attempt(os.setpriority, os.PRIO_PGRP, 0, 19)
attempt(os.setpriority, os.PRIO_USER, 0, 19)
""",
)
for how, code in {
    "a daemon": "os.setsid()",
    "a daemon, twice forked": "os.setsid()\n    if os.fork(): os._exit(0)",
    "a daemon deaf to signals": (
        "os.setsid()\n    import signal\n    [attempt(signal.signal, n, signal.SIG_IGN) for n in range(1, 65)]"
    ),
    "a daemon that closed everything": "os.setsid(); os.closerange(0, 1024)",
    "a daemon that holds the output": "os.setsid(); os.set_inheritable(1, True)",
    "a daemon under another name": "os.setsid(); os.chdir('/'); _libc.prctl(1, 0, 0, 0, 0)",
    "a daemon whose first thread has ended": (
        "os.setsid()\n    import threading\n    threading.Thread(target=time.sleep, args=(1000,)).start()\n"
        "    sc('exit', 0)"
    ),
    "a daemon that forks on and on": (
        "os.setsid()\n    while True:\n        time.sleep(0.001)\n        if os.fork(): os._exit(0)"
    ),
}.items():
    add(how, f"tag()\nif os.fork() == 0:\n    {code}\n    time.sleep(1000)\ntime.sleep(0.1)\n")
add(
    "a daemon by spawn",
    """
import subprocess
for shell in (["/bin/sh", "-c", f"exec -a {TAG} sleep 1000 & sleep 1000 # {TAG}"],
              [sys.executable, "-c", f"import time; time.sleep(1000) # {TAG}"]):
    attempt(subprocess.Popen, shell, start_new_session=True)
attempt(os.posix_spawn, "/bin/sleep", ["sleep", "1000", TAG], {})
""",
)
add(
    "a daemon beside the parent",
    """
tag()
child = sc("clone", 0x8000 | 17, 0, 0, 0, 0)
if child == 0: time.sleep(1000)
""",
)
add(
    "a daemon born at the end",
    """
import atexit
def last():
    tag()
    if os.fork() == 0:
        os.setsid(); time.sleep(1000)
atexit.register(last)
""",
)
add(
    "a daemon born by a finaliser",
    """
class Late:
    def __del__(self, fork=os.fork, setsid=os.setsid, sleep=time.sleep, tag=tag):
        tag()
        if fork() == 0: setsid(); sleep(1000)
kept = Late(); kept.me = kept; sys.kept = kept
""",
)
add(
    "die and leave children",
    """
import signal
tag()
for _ in range(5):
    if os.fork() == 0: os.setsid(); time.sleep(1000)
os._exit(0)
""",
)
add(
    "be killed and leave children",
    """
tag()
for _ in range(5):
    if os.fork() == 0: os.setpgid(0, 0); time.sleep(1000)
ctypes.string_at(0)
""",
)
add(
    "children that revive one another",
    """
import signal
tag()
def keep():
    while True:
        pid = os.fork()
        if pid == 0: time.sleep(1000)
        else: os.waitpid(pid, 0)
for _ in range(3):
    if os.fork() == 0: os.setsid(); attempt(keep); time.sleep(1000)
""",
)
add(
    "take in orphans",
    "works_ = _libc.prctl(36, 1, 0, 0, 0)\ntag()\nif os.fork() == 0:\n    if os.fork() == 0: time.sleep(1000)\n    os._exit(0)",
)
add(
    "a thread that outlives the code",
    """
import threading
tag()
def on():
    while True: time.sleep(0.01)
threading.Thread(target=on, daemon=True).start()
print("done")
""",
)

# --- kernel and privilege ---------------------------------------------------------------------------------

add = _group("kernel and privilege")
add(
    "what a child may do",
    """
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
for name in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
    if int(status[name], 16): harm(f"{name} is {status[name]}")
if status["NoNewPrivs"] != "1": harm("new privileges can be had")
if status["Seccomp"] != "2": harm("no filter")
""",
)
add(
    "new namespaces",
    """
for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000, 0x80, 0x10020000):
    works("unshare", flag)
""",
)
add(
    "new namespaces by clone",
    """
for flag in (0x10000000, 0x20000000 | 0x10000000, 0x40000000, 0x00020000):
    got = sc("clone", flag | 17, 0, 0, 0, 0)
    if got == 0: harm("clone made a namespace"); os._exit(0)
    arguments = (ctypes.c_uint64 * 11)(flag, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)
    got = sc("clone3", arguments, 64)
    if got == 0: harm("clone3 made a namespace"); os._exit(0)
""",
)
add(
    "mounts",
    """
works("mount", b"none", b"/tmp", b"tmpfs", 0, 0); works("mount", b"proc", b"/proc", b"proc", 0, 0)
works("mount", b"/", b"/tmp", b"none", 4096, 0); works("umount2", b"/proc", 2); works("umount2", b"/", 2)
works("pivot_root", b".", b"."); works("chroot", b"."); works("fsopen", b"tmpfs", 0); works("open_tree", -100, b"/", 1)
works("move_mount", -100, b"/tmp", -100, b"/", 0)
""",
)
add(
    "uncover the host by unmounting",
    """
for path in ("/proc", "/tmp", "/dev", "/", HOST_DIR, "/home", "/root"):
    for _ in range(3): sc("umount2", path.encode(), 2)
print(attempt(lambda: open(SECRET_FILE).read()))
""",
)
add(
    "a way out of the root",
    """
os.mkdir("jail"); fd = os.open(".", os.O_RDONLY)
if sc("chroot", b"jail") >= 0:
    os.fchdir(fd)
    for _ in range(64): os.chdir("..")
    sc("chroot", b".")
    harm("chroot works")
print(attempt(lambda: open(SECRET_FILE).read()))
""",
)
add(
    "corners of the kernel",
    """
buffer = ctypes.create_string_buffer(256)
works("bpf", 0, buffer, 64); works("bpf", 5, buffer, 64); works("userfaultfd", 1); works("userfaultfd", 0)
works("io_uring_setup", 1, buffer); works("io_setup", 1, ctypes.byref(ctypes.c_ulong())); works("memfd_secret", 0)
ctypes.cast(buffer, ctypes.POINTER(ctypes.c_uint))[1] = 128
works("perf_event_open", buffer, 0, -1, -1, 0)
works("modify_ldt", 1, buffer, 16); works("kcmp", os.getpid(), os.getpid(), 0, 0, 0); works("lookup_dcookie", 0, buffer, 9)
works("quotactl", 0x80000100, b"/", 0, buffer); works("vmsplice", 1, buffer, 0, 0)
""",
)
add(
    "the machine",
    """
for call, args in (("reboot", (0xFEE1DEAD, 672274793, 0, 0)), ("kexec_load", (0, 0, 0, 0)), ("swapoff", (b"/x",)),
                   ("init_module", (b"", 0, b"")), ("finit_module", (0, b"", 0)), ("delete_module", (b"x", 0)),
                   ("sethostname", (b"owned", 5)), ("setdomainname", (b"owned", 5)), ("acct", (0,)),
                   ("settimeofday", (ctypes.create_string_buffer(16), 0)), ("iopl", (3,)), ("ioperm", (0x80, 1, 1)),
                   ("syslog", (3, ctypes.create_string_buffer(64), 64)), ("vhangup", ()),
                   ("clock_settime", (0, ctypes.create_string_buffer(16)))):
    works(call, *args)
""",
)
add(
    "become root",
    """
before = os.getuid()
for call in (lambda: os.setuid(0), lambda: os.setresuid(0, 0, 0), lambda: os.setgroups([0]), lambda: os.setgid(0)):
    attempt(call)
header = (ctypes.c_uint32 * 2)(0x20080522, 0); data = (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6)
if _libc.capset(header, data) == 0: harm("capabilities taken")
for call in ("/proc/self/uid_map", "/proc/self/gid_map", "/proc/self/loginuid"):
    got = attempt(lambda: open(call, "w").write("0 0 1"))
    if not failed(got): harm("wrote " + call)
""",
)
add(
    "programs that raise privileges",
    """
import subprocess
for program in ("/bin/su", "/usr/bin/sudo", "/bin/mount", "/usr/bin/passwd", "/usr/bin/newuidmap", "/bin/ping"):
    if os.path.exists(program):
        got = attempt(subprocess.run, [program, "-c", "id -u"], capture_output=True, stdin=subprocess.DEVNULL)
        if not failed(got) and got.stdout.strip() == b"0" and os.getuid(): harm(program)
os.chmod(".", 0o777); open("s", "w").write("#!/bin/sh\\nid -u"); attempt(os.chmod, "s", 0o6777)
""",
    fetch=("s",),
)
add(
    "raise the limits",
    """
import resource
for name in ("NPROC", "AS", "NOFILE", "FSIZE", "CPU", "CORE", "MEMLOCK", "MSGQUEUE", "SIGPENDING"):
    kind = getattr(resource, "RLIMIT_" + name, None)
    if kind is None: continue
    soft, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY and not failed(
        attempt(resource.setrlimit, kind, (hard + 1, hard + 1))):
        harm("raised " + name)
if resource.getrlimit(resource.RLIMIT_CORE)[1] != 0: harm("core dumps")
if attempt(os.nice, -5) == -5: harm("a better priority")
""",
)
add(
    "hide from the killer of memory",
    """
for value in ("-1000", "-500"):
    if not failed(attempt(lambda: open("/proc/self/oom_score_adj", "w").write(value))): harm("oom_score_adj " + value)
""",
)
add(
    "32-bit system calls",
    """
import mmap, platform
if platform.machine() == "x86_64":
    # mov eax, 20 (getpid of i386); int 0x80; ret
    page = mmap.mmap(-1, 4096, prot=7); page.write(bytes.fromhex("b814000000cd80c3"))
    call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    if call() > 0: harm("calls of another architecture pass the filter")
""",
)
add(
    "system calls by other numbers",
    """
for nr in (0x40000000 + 272, 0x40000000 + 41, 0x40000000 + 165, 0x40000000 + 101):
    ctypes.set_errno(0)
    if _libc.syscall(ctypes.c_long(nr), 0x10000000, 1, 0, 0, 0) >= 0: harm("x32 passes the filter")
for nr in (*range(468, 480), 512, 545, 1000):
    if _libc.syscall(ctypes.c_long(nr), 0, 0, 0, 0, 0) >= 0: harm(f"unknown call {nr}")
""",
)
add(
    "loosen the filter",
    """
import struct
allow = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000))
filter_ = struct.pack("HxxxxxxP", 1, ctypes.addressof(allow))
_libc.prctl(22, 2, filter_, 0, 0); _libc.prctl(22, 0, 0, 0, 0); _libc.prctl(38, 0, 0, 0, 0)
works("unshare", 0x10000000); works("ptrace", 0, 0, 0, 0)
""",
)
add(
    "a filter of one's own that answers falsely",
    """
import struct
deny = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0x00050000))
_libc.prctl(22, 2, struct.pack("HxxxxxxP", 1, ctypes.addressof(deny)), 0, 0)
""",
    heavy=True,
)
add(
    "a core file",
    """
import resource
attempt(resource.setrlimit, resource.RLIMIT_CORE, (-1, -1)); _libc.prctl(4, 1, 0, 0, 0)
ctypes.string_at(0)
""",
    status=("RE",),
    after="import glob\nif glob.glob('core*') or glob.glob('/tmp/core*'): harm('a core file')",
)
add(
    "a descriptor run as a program",
    """
fd = attempt(os.memfd_create, "x")
if not failed(fd): harm("memfd_create works")
open("run", "wb").write(open("/bin/true", "rb").read()) if os.path.exists("/bin/true") else None
""",
)
add(
    "trace oneself and one's children",
    """
works("ptrace", 0, 0, 0, 0)
pid = os.fork()
if pid == 0: time.sleep(1000)
works("ptrace", 16, pid, 0, 0); os.kill(pid, 9)
""",
)
add(
    "a better scheduler",
    """
for policy in (os.SCHED_FIFO, os.SCHED_RR):
    attempt(os.sched_setscheduler, 0, policy, os.sched_param(50))  # which may say that it worked
    if attempt(os.sched_getscheduler, 0) == policy: harm("real time")
""",
)
add(
    "other personalities",
    "works('personality', 0x0400000); works('personality', 0x0040000); works('personality', 8)",
)
add(
    "locked memory",
    """
if _libc.mlockall(3) == 0:
    kept = attempt(lambda: bytearray(b"x") * (200 << 20))
    if not failed(kept): harm("200 MiB locked")
""",
)

# --- the protocol, and poison for later calls -------------------------------------------------------------

add = _group("protocol and poison")
add("close every descriptor", "os.closerange(0, 4096)")
add("close every descriptor above 2", "os.closerange(3, 4096); print('still here')", stdout="still here\n")
add(
    "junk into every descriptor",
    """
for fd in range(3, 1024):
    for junk in (b"\\0" * 64, b"{}\\n", b"\\xff" * 4096): attempt(os.write, fd, junk)
""",
)
add(
    "a forged answer into every descriptor",
    """
import json, struct
answer = json.dumps({"status": "OK", "exit_code": 0, "stdout": "forged", "value": "forged", "id": 1}).encode()
for fd in range(3, 256):
    for message in (answer + b"\\n", struct.pack("<I", len(answer)) + answer, struct.pack(">I", len(answer)) + answer):
        attempt(os.write, fd, message)
raise SystemExit(3)
""",
    status=("RE",),
)
for how, head in {
    "no object": "[]",
    "no number": '{"n": "x", "status": "OK", "blobs": []}',
    "nested": '{"n": ' + "[" * 20_000,
    "nested to its end": "[" * 20_000 + "]" * 20_000,
    "an unknown status": '{"n": %d, "status": "AWESOME", "exit_code": 0, "blobs": []}',
    "odd types": '{"n": %d, "status": ["OK"], "exit_code": {}, "value": [1], "cpu_s": "x", "signal": [], "blobs": []}',
    "no status": '{"n": %d, "blobs": []}',
    "infinities": '{"n": %d, "status": "OK", "exit_code": 1e999, "cpu_s": NaN, "blobs": []}',
    "a large number": '{"n": %d, "status": "OK", "exit_code": ' + "9" * 5000 + ', "blobs": []}',
    "blobs without end": '{"n": %d, "status": "OK", "blobs": [4611686018427387904]}',
    "many blobs": '{"n": %d, "status": "OK", "blobs": [' + "0," * 100_000 + "0]}",
    "negative blobs": '{"n": %d, "status": "OK", "blobs": [-5]}',
    "blobs that are text": '{"n": %d, "status": "OK", "blobs": ["x", null, 1.5]}',
    "a surrogate": '{"n": %d, "status": "OK", "value": "\\ud800", "blobs": []}',
    "a processor time too large": '{"n": %d, "status": "OK", "cpu_s": ' + "9" * 400 + ', "blobs": []}',
    "no time": '{"n": %d, "status": "OK", "cpu_s": -1e308, "blobs": []}',
    "more figures than a cell has": '{"n": %d, "status": "OK", "blobs": [100000000, 100000000]}',
    "figures that are none": '{"n": %d, "status": "OK", "blobs": [4, 4]}XXXXXXXX',
    "no text": "\xff\xfe\x00",
    "nothing": "",
}.items():
    add(
        f"a forged answer: {how}",
        f"""
import socket, struct
for number in range(1, 6):
    head = {head!r}.replace("%d", str(number)).encode("latin-1")
    for fd in range(3, 32):
        end = attempt(lambda: socket.socket(fileno=os.dup(fd)))
        if not failed(end): attempt(end.sendall, struct.pack("!I", len(head)) + head)
""",
        runs=False,
    )
add(
    "a forged answer: half of one",
    """
import socket
for fd in range(3, 32):
    end = attempt(lambda: socket.socket(fileno=os.dup(fd)))
    if not failed(end): attempt(end.sendall, b"\\x00\\x00\\xff")
""",
    runs=False,
)
add(
    "a forged answer: the largest length",
    """
import socket
for fd in range(3, 32):
    end = attempt(lambda: socket.socket(fileno=os.dup(fd)))
    if not failed(end): attempt(end.sendall, b"\\xff" * (1 << 20))
""",
    runs=False,
)
add(
    "read every descriptor",
    """
for fd in range(3, 1024):
    attempt(os.set_blocking, fd, False); attempt(os.read, fd, 65536)
""",
)
add(
    "repr that is half a character",
    """
class Half:
    def __repr__(self): return "\\ud800"
    __str__ = __repr__
Half()
""",
)
add(
    "drip a reply",
    """
import socket
head = json.dumps({"n": 1, "status": "OK", "x": "y" * (3 << 20), "blobs": [1 << 24]}).encode()
ends = [socket.socket(fileno=os.dup(fd)) for fd in range(3, 32) if os.path.exists(f"/proc/self/fd/{fd}")
        and os.readlink(f"/proc/self/fd/{fd}").startswith("socket")]
for end in ends: end.sendall(struct.pack("!I", len(head)) + head)
while ends:
    for end in ends: end.sendall(b"x")
""",
    heavy=True,
    runs=False,
)
add(
    "shut every socket",
    """
import socket
for fd in range(3, 1024):
    got = attempt(lambda: socket.socket(fileno=os.dup(fd)))
    if not failed(got): attempt(got.shutdown, 2)
""",
)
add(
    "put other descriptors in their place",
    """
read, write = os.pipe()
for fd in range(3, 256):
    if fd not in (read, write): attempt(os.dup2, write, fd)
""",
)
add(
    "sockets of the protocol made lazy",
    """
import fcntl
for fd in range(0, 256):
    attempt(os.set_blocking, fd, False); attempt(fcntl.fcntl, fd, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
""",
)
add(
    "pass descriptors to the other side",
    """
import array, socket
for fd in range(3, 256):
    got = attempt(lambda: socket.socket(fileno=os.dup(fd)))
    if not failed(got):
        for _ in range(3):
            attempt(got.sendmsg, [b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0] * 200))], 0x40)
""",
)
add("both sides of a fork answer", "os.fork(); print('twice')", after="")
add(
    "both sides of a fork go on",
    """
pid = os.fork()
if pid == 0:
    tag(); time.sleep(0.3)
print("here")
""",
)
add(
    "no builtins left",
    """
import builtins
for name in list(vars(builtins)):
    if name not in ("__name__", "harm", "delattr", "builtins", "BaseException"): delattr(builtins, name)
""",
    after="import builtins\nif not hasattr(builtins, 'print') or not hasattr(builtins, 'open'): harm('no builtins')",
)
add(
    "other builtins",
    """
import builtins
builtins.print = lambda *a, **k: None; builtins.open = None; builtins.compile = None; builtins.exec = None
builtins.repr = lambda *a: "forged"; builtins.str = None; builtins.len = None; builtins.isinstance = None
""",
    after="print(builtins) if 'forged' in repr(1) else None",
)
add(
    "other modules",
    """
import json, pickle, struct, select, socket, traceback, io, signal, types
for module in (json, pickle, struct, select, socket, traceback, io, signal, types, sys, time, os):
    for name in list(vars(module)):
        if not name.startswith("__") and callable(getattr(module, name)):
            attempt(setattr, module, name, None)
""",
    after="import json, struct\nif json.dumps is None or struct.pack is None: harm('modules stay poisoned')",
)
add("no modules left", "sys.modules.clear(); sys.path.clear(); sys.meta_path.clear()")
add(
    "hooks",
    """
def hook(*args, **kwargs): raise RuntimeError("hooked")
sys.excepthook = sys.displayhook = sys.unraisablehook = hook
sys.settrace(hook); sys.setprofile(hook)
import gc, threading
gc.callbacks.append(hook); threading.excepthook = hook; attempt(sys.addaudithook, hook)
""",
)
add("an audit hook that ends everything", "sys.addaudithook(lambda *a: os._exit(5))", status=("RE", "OK"))
add(
    "forged streams",
    """
class Liar:
    def write(self, text): return 1 << 60
    def __getattr__(self, name): return lambda *a, **k: 7
sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = sys.stdin = Liar()
print("lost")
""",
)
add(
    "no streams",
    "sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = None; sys.stdin = None; print(1)",
)
add("closed streams", "sys.stdout.close(); sys.stderr.close(); sys.stdin.close(); os.close(0)")
add(
    "the working folder is gone",
    "import shutil; here = os.getcwd(); os.chdir('/'); shutil.rmtree(here, True)",
)
add("the working folder is another", "os.chdir('/proc/self/fd')")
add("the working folder is closed", "os.chmod('.', 0); os.umask(0o777)", fetch=("x",))
add(
    "no limits left to oneself",
    """
import resource
for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC, resource.RLIMIT_STACK):
    attempt(resource.setrlimit, kind, (0, 0))
""",
)
add(
    "no time left to oneself",
    "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass",
    status=("TLE", "RE"),
    heavy=True,
)
add(
    "timers",
    """
import signal
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05); signal.signal(signal.SIGALRM, signal.SIG_DFL)
time.sleep(1000)
""",
    status=("RE", "TLE"),
)
add(
    "signals ignored",
    """
import signal
for number in range(1, 65): attempt(signal.signal, number, signal.SIG_IGN)
for number in range(1, 65): attempt(signal.pthread_sigmask, signal.SIG_BLOCK, {number})
""",
)
add("recursion made short", "sys.setrecursionlimit(60)")
add(
    "scribble over memory",
    """
import gc
for thing in gc.get_objects()[:2000]:
    if type(thing) is dict: attempt(ctypes.memset, id(thing) + 16, 0xFF, 8)
""",
    status=("RE", "TLE", "MLE", "OK"),
)
add(
    "write into the frames above",
    """
frame = sys._getframe()
while frame:
    for name, value in list(frame.f_locals.items()):
        if isinstance(value, (list, dict, bytearray)) and not name.startswith("__") and frame.f_back is not None:
            if frame is not sys._getframe(): attempt(value.clear)
    frame = frame.f_back
""",
)
add(
    "files for the next call",
    """
for folder in ("/tmp", "/dev/shm", "/var/tmp", os.environ.get("HOME", ".")):
    attempt(lambda: open(f"{folder}/{TAG}", "w").write("x"))
for name in ("sitecustomize", "usercustomize", "json"):
    attempt(lambda: open(name + ".py", "w").write("poisoned = 1"))
""",
    after="""
import json
if hasattr(json, "poisoned"): harm("a module of another call")
for folder in (".", "/tmp", "/dev/shm", "/var/tmp", os.environ.get("HOME", ".")):
    if os.path.exists(f"{folder}/{LAST_TAG}"): harm("a file of another call in " + folder)
""",
)
add(
    "modules for the next call",
    "import random; random.random = lambda: 4; sys.poisoned = 1; os.environ['POISON'] = '1'",
    after="import random\nif hasattr(sys, 'poisoned') or 'POISON' in os.environ or random.random() == 4: harm('stays')",
)
add(
    "the same chance for everybody",
    "import random; print('CHANCE', random.random(), os.urandom(4).hex())",
    after="import random; print('CHANCE', random.random(), os.urandom(4).hex())",
)
add(
    "swap a file while the host fetches it",
    """
import threading
open("plain", "w").write("x"); os.symlink(SECRET_FILE, "evil")
def swap():
    while True:
        attempt(os.rename, "plain", "keep"); attempt(os.rename, "evil", "plain")
        attempt(os.rename, "plain", "evil"); attempt(os.rename, "keep", "plain")
threading.Thread(target=swap, daemon=True).start()
""",
    fetch=("plain",) * 40,
    runs=False,
)
add(
    "swap a folder while the host fetches from it",
    """
import threading
os.mkdir("in"); open("in/secret", "w").write("x"); os.symlink(os.path.dirname(SECRET_FILE), "out")
def swap():
    while True:
        attempt(os.rename, "in", "keep"); attempt(os.rename, "out", "in")
        attempt(os.rename, "in", "out"); attempt(os.rename, "keep", "in")
threading.Thread(target=swap, daemon=True).start()
""",
    fetch=("in/secret",) * 40,
    runs=False,
)
add("a pipe where the host fetches", "os.mkfifo('pipe')", fetch=("pipe",), runs=False)
add(
    "a folder, a device, a way out where the host fetches",
    "os.mkdir('folder')",
    fetch=(
        "folder",
        ".",
        "..",
        "/dev/zero",
        "/etc/passwd",
        "../../../../etc/hostname",
        "/proc/self/environ",
        "",
    ),
    runs=False,
)
add(
    "links where the host writes",
    """
os.symlink(HOST_FILE, "upload"); os.symlink(HOST_DIR, "updir")
""",
    fetch=("upload", "updir/file"),
    runs=False,
)

# --- odd data, crashes ------------------------------------------------------------------------------------

add = _group("odd data and crashes")
add("a segmentation fault", "ctypes.string_at(0)", status=("RE",))
add("abort", "os.abort()", status=("RE",))
add("an illegal instruction", "import signal; signal.raise_signal(signal.SIGILL)", status=("RE", "OK"))
add("a division in hardware", "import signal; os.kill(os.getpid(), signal.SIGFPE)", status=("RE", "OK"))
add("leave without goodbye", "print('a', flush=True); os._exit(7)", status=("RE",), stdout="a\n")
add("leave with a large code", "os._exit(300)", status=("RE", "OK"))
add("leave with zero", "print('out'); sys.exit(0)", status=("OK",), stdout="out\n")
add(
    "leave with an object",
    """
class Odd:
    def __str__(self): raise RuntimeError
sys.exit(Odd())
""",
    status=("RE",),
)
add(
    "leave from a thread",
    "import threading; threading.Thread(target=os._exit, args=(4,)).start(); time.sleep(100)",
    status=("RE",),
)
add(
    "exceptions of every kind",
    """
class Worst(BaseException):
    def __str__(self): raise self
    __repr__ = __str__
raise Worst
""",
    status=("RE",),
)
for name in (
    "KeyboardInterrupt",
    "GeneratorExit",
    "StopIteration",
    "MemoryError",
    "RecursionError",
    "SystemError",
):
    add(f"raise {name}", f"raise {name}", status=("RE", "MLE"))
add("recursion", "def f(n): return f(n + 1)\nf(0)", status=("RE",))
add("recursion in C", "x = []\nfor _ in range(10 ** 6): x = [x]\nrepr(x)", status=("RE", "OK", "MLE", "TLE"))
add(
    "recursion without a limit",
    "sys.setrecursionlimit(10 ** 9)\ndef f(n): return f(n + 1)\nf(0)",
    status=("RE", "MLE", "TLE"),
    heavy=True,
)
add("the parser's stack", "(" * 100000, status=("RE", "CE", "OLE"), bare=True)
add("the compiler's stack", "-" * 200000 + "1", status=("RE", "CE", "MLE"), bare=True)
add("deep nesting", "x = " + "[" * 5000 + "]" * 5000, status=("RE", "CE", "MLE"), bare=True)
add("a long chain", "x = 1" + "+1" * 200000, status=("RE", "CE", "OK", "MLE"), bare=True)
add("nothing", "", status=("OK",), stdout="", bare=True)
add("blanks", "\n \t\n#", status=("OK",), stdout="", bare=True)
add("a NUL in the code", "print(1)\0print(2)", status=("RE", "CE"), bare=True)
add("a lone surrogate in the code", "print(ascii('\ud800'))", status=("OK", "RE", "CE"), bare=True)
add("a lone surrogate printed", "print('\\ud800')", status=("OK", "RE"), bare=True)
add(
    "a surrogate in a file's name",
    "open('\\udcff', 'w').write('x'); print(len(os.listdir('.')) > 0)",
    stdout="True\n",
)
add("no UTF-8", "sys.stdout.buffer.write(b'a\\xff\\xfe\\n')", status=("OK",), stdout="a\ufffd\ufffd\n")
add("NULs printed", "print('a\\0b')", status=("OK",), stdout="a\0b\n", bare=True)
add("control characters", "print('\\x1b]0;owned\\x07\\x1b[2J\\r\\x08')", status=("OK",), bare=True)
add("half a character at the end", "os.write(1, '€'.encode()[:2])", status=("OK",))
add("a byte order mark", "\ufeffprint(1)", status=("OK", "CE", "RE"), bare=True)
add("another encoding", "# -*- coding: utf-7 -*-\nprint(1)", bare=True)
add("an encoding that does not exist", "# coding: nonsense\nprint(1)", status=("OK", "CE", "RE"), bare=True)
add("every line ending", "print(1)\rprint(2)\r\nprint(3)", bare=True)
add("a megabyte of code", "x = 1\n" * 170_000 + "print(x)", status=("OK", "MLE", "TLE"), bare=True)
add(
    "a megabyte in a line",
    "print(len('" + "x" * (1 << 20) + "'))",
    status=("OK",),
    stdout="1048576\n",
    bare=True,
)
add("a large number printed", "print(10 ** 20000)", status=("RE",))
add("a very large number", "sys.set_int_max_str_digits(0); print(len(str(10 ** 60000)))", stdout="60001\n")
add("a null pointer called", "ctypes.CFUNCTYPE(None)(1)()", status=("RE",))
add(
    "a stack overrun",
    "import threading; threading.stack_size(32768)\ndef f(): f()\nt = threading.Thread(target=f); t.start(); t.join()",
    status=("RE", "OK"),
)
add(
    "the dead are freed",
    "ctypes.pythonapi.Py_DecRef(ctypes.py_object(None)) if 0 else [ctypes.pythonapi.Py_DecRef(ctypes.py_object(())) for _ in range(10**4)]",
    status=("RE", "OK", "TLE"),
)
add("input that is not there", "print(repr(sys.stdin.read()))", status=("OK",))
add("the debugger", "breakpoint()", status=("RE", "OK"))
add("help", "help()", status=("RE", "OK"))
add(
    "a process of one's own module",
    """
import multiprocessing
p = multiprocessing.Process(target=print, args=("child",)); p.start(); p.join()
""",
)
add("exec of another program", "tag(); os.execv('/bin/sleep', ['sleep', '1000'])", heavy=True)
add(
    "exec of the interpreter",
    "os.execv(sys.executable, [sys.executable, '-c', 'while True: pass'])",
    heavy=True,
)
