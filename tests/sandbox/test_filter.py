"""The allow list on the real kernel: what programs need is there, and nothing else is."""

from __future__ import annotations

import contextlib
import os
import shutil
import warnings
from collections.abc import Iterator

import pytest

from gem.errors import BadArgument
from gem.sandbox import backends, seccomp
from gem.sandbox.base import Budget, SandboxFailed, Status
from gem.sandbox.client import ZygoteSandbox
from gem.sandbox.pool import Settings
from gem.sandbox.syscalls import LAST_KNOWN, NUMBERS

PATIENT = Budget(cpu_s=60, wall_s=120)


def opened(stack: contextlib.ExitStack, backend: str, **options: str) -> ZygoteSandbox:
    try:
        sandbox = stack.enter_context(backends.make(backend, begin=("bare",), **options))
        sandbox.run("pass")
    except SandboxFailed as error:
        pytest.skip(f"no {backend} here: {error}")
    return sandbox


@pytest.fixture(scope="module", params=["userns", "landlock"])
def confined(request: pytest.FixtureRequest) -> Iterator[ZygoteSandbox]:
    with contextlib.ExitStack() as stack, warnings.catch_warnings(action="ignore"):
        yield opened(stack, request.param)


@pytest.fixture(scope="module")
def wide() -> Iterator[ZygoteSandbox]:
    with contextlib.ExitStack() as stack:
        yield opened(stack, "userns", filter="deny")


SYSCALL = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
def call(nr, *args):
    "Return 0, or the errno."
    ctypes.set_errno(0)
    done = libc.syscall(ctypes.c_long(nr), *(ctypes.c_ulong(arg) for arg in args))
    return 0 if done >= 0 else ctypes.get_errno()
"""


def numbers_of(*calls: str) -> set[int]:
    column = seccomp.MACHINES[os.uname().machine].column
    return {nr for call in calls if (nr := NUMBERS[call][column]) is not None}


def test_no_number_outside_the_list_reaches_the_kernel(confined):
    allowed = numbers_of(*seccomp.ALLOWED, *seccomp.PRETENDED, "sync", "syncfs")
    # Kernels show no filter these two of x86-64, the probes' trampolines; from anywhere else they are SIGILL.
    unseen = {335, 336} if os.uname().machine == "x86_64" else set()
    tried = sorted(set(range(LAST_KNOWN + 200)) - allowed - unseen)
    refused = numbers_of(*seccomp.ALWAYS, *seccomp.UNPRIVILEGED, *seccomp.NETWORK)
    if not confined.settings.fork:
        refused |= numbers_of(*seccomp.NEIGHBOURS, *seccomp.SIGNALS)
    code = f"{SYSCALL}\nfor nr in {tried}: print(nr, call(nr, 0, 0, 0, 0, 0, 0))"
    ran = confined.run(code)
    assert ran.ok, ran
    answers = dict(map(int, line.split()) for line in ran.stdout.splitlines())
    assert set(answers) == set(tried)
    assert len(tried) > 400
    want = {nr: 1 if nr in refused else 38 for nr in tried}  # EPERM, ENOSYS
    assert answers == want


def test_arguments_outside_the_list(confined):
    code = f"""{SYSCALL}
import mmap, os, socket
nr = { ({name: min(numbers_of(name), default=-1) for name in NUMBERS}) }
EVIL = 1 << 32  # the kernel drops the high half of these arguments
pair = [end.fileno() for end in PAIR] if (PAIR := socket.socketpair()) else []
null = os.open("/dev/null", os.O_RDWR)
page = mmap.mmap(-1, 4096)
at = ctypes.addressof(ctypes.c_char.from_buffer(page))
tried = {{
    "a filter of one's own": (call(nr["prctl"], 22, 2, at), "EINVAL"),
    "its high half": (call(nr["prctl"], EVIL | 22, 2, at), "EINVAL"),
    "mappings of the process": (call(nr["prctl"], 35, 1, at), "EINVAL"),
    "merged pages": (call(nr["prctl"], 67, 1), "EINVAL"),
    "merged pages by advice": (call(nr["madvise"], at, 4096, 12), "EINVAL"),
    "pages to the swap": (call(nr["madvise"], at, 4096, EVIL | 21), "EINVAL"),
    "huge pages": (call(nr["mmap"], 0, 1 << 21, 3, 0x40022, 1 << 64 - 1, 0), "ENOMEM"),
    "priority inheritance": (call(nr["futex"], at, 6, 0, 0, 0, 0), "ENOSYS"),
    "the same, private": (call(nr["futex"], at, 6 | 128, 0, 0, 0, 0), "ENOSYS"),
    "a lease": (call(nr["fcntl"], null, 1024, 1), "EINVAL"),
    "news of a folder": (call(nr["fcntl"], os.open(".", os.O_RDONLY), 1026, 2), "EINVAL"),
    "typing": (call(nr["ioctl"], 0, 0x5412, at), "ENOTTY"),
    "a line discipline": (call(nr["ioctl"], null, 0x5423, at), "ENOTTY"),
    "its high half too": (call(nr["ioctl"], null, EVIL | 0x5423, at), "ENOTTY"),
    "the machine's addresses": (call(nr["ioctl"], pair[0], 0x8912, at), "ENOTTY"),
    "flags of a file": (call(nr["ioctl"], os.open("x", os.O_CREAT | os.O_RDWR), 0x40086602, at), "ENOTTY"),
    "a filter of packets": (call(nr["setsockopt"], pair[0], 1, 26, at, 16), "ENOPROTOOPT"),
    "urgent bytes": (call(nr["sendto"], pair[0], at, 1, 1, 0, 0), "EOPNOTSUPP"),
    "their like": (call(nr["recvfrom"], pair[0], at, 1, EVIL | 0x41, 0, 0), "EOPNOTSUPP"),
    "a namespace": (call(nr["clone"], 0x10000000 | 17, 0, 0, 0, 0), "EPERM"),
    "a sibling": (call(nr["clone"], 0x8000 | 17, 0, 0, 0, 0), "EPERM"),
    "a sibling, a high half": (call(nr["clone"], EVIL | 0x8000 | 17, 0, 0, 0, 0), "EPERM"),
    "a traced child": (call(nr["clone"], 0x2000 | 17, 0, 0, 0, 0), "EPERM"),
    "fixed addresses": (call(nr["personality"], 0x40000), "EPERM"),
    "limits of another": (call(nr["prlimit64"], 1, 7, 0, at), "EPERM"),
    "another family": (call(nr["socketpair"], 2, 1, 0, at), "EPERM"),
    "another family's socket": (call(nr["socket"], 16, 3, 0), "EPERM"),
    "x32's getpid": (call(0x40000000 | 39), "ENOSYS"),
}}
for what, (got, want) in tried.items():
    if got != getattr(errno, want):
        print(f"{{what}}: {{got}}, not {{want}}")
print("done")
"""
    ran = confined.run(code)
    assert (ran.stdout, ran.stderr) == ("done\n", "")


SHARED_QUOTAS = """
import array, ctypes, fcntl, os, socket
def said(call, *args):
    try: return call(*args)
    except OSError as error: return error.errno
r, w = os.pipe()
print("a larger pipe:", said(fcntl.fcntl, w, 1031, 1 << 20), fcntl.fcntl(w, 1032))
pair = socket.socketpair()
print("descriptors:", said(socket.send_fds, pair[0], [b"x"], [r]), said(pair[0].send, b"y"), pair[1].recv(9))
timer = ctypes.c_void_p()
libc = ctypes.CDLL(None, use_errno=True)
print("a timer:", libc.timer_create(1, None, ctypes.byref(timer)) and ctypes.get_errno())
for what in (1024, 0), (1026, 2):  # a lease, news of a folder
    print("of a file:", said(fcntl.fcntl, os.open(".", os.O_RDONLY), *what))
"""


def test_quotas_that_all_programs_share_are_left_alone(confined):
    """Pipes' pages, descriptors on their way and timers are counted for the user that all programs run as."""
    timer = 38 if not confined.settings.fork else 0
    said = confined.run(SHARED_QUOTAS).stdout.splitlines()
    want = ["a larger pipe: 1 65536", "descriptors: 1 1 b'y'", f"a timer: {timer}", *["of a file: 22"] * 2]
    assert said == want


def test_the_deny_list_leaves_them_alone_too(wide):
    said = wide.run(SHARED_QUOTAS).stdout.splitlines()
    assert said == ["a larger pipe: 1 65536", "descriptors: 1 1 b'y'", "a timer: 0", *["of a file: 1"] * 2]


def test_a_network_keeps_messages(wide):
    """Event loops write to TCP by sendmsg; what they could send is descriptors too."""
    with wide.session(loopback=True) as session:
        ran = session.execute("import socket\na, b = socket.socketpair()\na.sendmsg([b'x', b'y']), b.recv(9)")
    assert ran.value == "(2, b'xy')", ran


MANY_THREADS = """
import threading
wait, held = threading.Event(), []
threading.stack_size(1 << 16)
try:
    while len(held) < 200:
        held.append(threading.Thread(target=wait.wait))
        held[-1].start()
except RuntimeError:
    held.pop()
print(len(held) + 1)
wait.set()
for one in held: one.join()
for _ in range(50):
    one = threading.Thread(target=int)
    one.start()
    one.join()
"""


def test_threads_are_limited_on_every_backend(confined):
    """A user's processes and threads are one number: a program of many would leave its neighbours none."""
    ran = confined.run(MANY_THREADS, budget=Budget(processes=10))
    assert (ran.stdout, ran.stderr) == ("10\n", "")


PRIORITIES = """
import os
print(os.nice(0), os.nice(7), os.nice(0))
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
os.sched_setparam(0, os.sched_param(0))
print(os.sched_getscheduler(0) == os.SCHED_OTHER)
os.setpriority(os.PRIO_PROCESS, 0, 19)
print(os.getpriority(os.PRIO_PROCESS, 0))
"""


def test_priorities_stay(confined):
    """A thread that gets no time keeps what it holds: others, the fork server too, would wait for it."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    ran = confined.run(PRIORITIES)
    assert ran.stdout.splitlines() == [f"{before} {before} {before}", "True", str(before)], ran


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="another architecture has no such calls")
@pytest.mark.parametrize(
    "code",
    [
        "b814000000cd80c3",  # mov eax, 20; int 0x80: getpid by a number of 32-bit programs
        "b8140000000f34c3",  # sysenter
    ],
)
def test_calls_of_32_bit_programs_end_the_process(confined, code):
    ran = confined.run(
        f"import ctypes, mmap; page = mmap.mmap(-1, 4096, prot=7); page.write(bytes.fromhex({code!r}))\n"
        "print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))())"
    )
    assert (ran.status, ran.stdout) == (Status.RE, "")


PROGRAMS = {
    "numpy": """
import numpy as np
rng = np.random.default_rng(0)
a = rng.random((300, 300))
np.save("a.npy", a)
kept = np.load("a.npy", mmap_mode="r+")
kept[0, 0] = 1
kept.flush()
np.savez_compressed("b.npz", a=a)
print(np.linalg.svd(a @ a)[1].shape)
""",
    "scipy": """
import numpy as np
from scipy import fft, integrate, io, optimize, sparse, stats
from scipy.sparse.linalg import spsolve
from scipy.spatial import cKDTree
print(optimize.minimize(lambda x: (x**2).sum(), [1, 2]).success, optimize.milp([1, 1]).success)
print(integrate.quad(np.sin, 0, 1)[0] > 0, stats.norm.cdf(0), spsolve(sparse.eye(9).tocsc(), np.ones(9))[0])
print(fft.fft(np.ones(1 << 12), workers=2)[0], cKDTree(np.eye(3)).query(np.ones((9, 3)), workers=2)[1][0])
io.savemat("m.mat", {"a": np.ones(3)})
""",
    "sympy": """
from sympy import factorint, integrate, lambdify, latex, sin, solve, symbols
x = symbols("x")
print(solve(x**3 - 6*x**2 + 11*x - 6, x), integrate(x * sin(x), x), factorint(2**67 - 1), latex(x**2))
print(lambdify(x, x**2, "math")(3))
""",
    "matplotlib": """
import io
import matplotlib
matplotlib.use("agg")
from matplotlib import pyplot
pyplot.plot([1, 2, 3])
pyplot.title(r"$\\int x^2$")
for kind in ("png", "svg"):
    pyplot.savefig(f"figure.{kind}")
""",
    "pandas": """
import sqlite3
import pandas as pd
frame = pd.DataFrame({"a": range(1000), "b": [1.5, 2.5] * 500, "c": ["x", "y"] * 500})
frame.to_csv("d.csv.gz")
frame.to_pickle("d.pkl")
frame.to_sql("t", sqlite3.connect("d.db"))
print(pd.read_csv("d.csv.gz").shape, pd.read_pickle("d.pkl").groupby("c").b.mean().to_dict())
""",
    "networkx": """
import networkx as nx
graph = nx.gnp_random_graph(60, 0.2, seed=1)
print(len(nx.pagerank(graph)), nx.shortest_path_length(graph, 0, 5) > 0, nx.is_connected(graph))
nx.write_gexf(graph, "g.gexf")
""",
    "z3": """
from z3 import Ints, Optimize, Solver, set_param
x, y = Ints("x y")
solver = Solver()
solver.set("timeout", 20000)
solver.add(x > 2, y < 10, x + 2 * y == 7)
print(solver.check())
set_param("parallel.enable", True)
best = Optimize()
best.add(x < 5)
best.maximize(x)
print(best.check())
""",
}


def try_package(sandbox: ZygoteSandbox, package: str) -> None:
    code = f"""
import importlib.util, os, sys
if importlib.util.find_spec({package!r}) is None:
    sys.exit("absent")
os.environ["MPLCONFIGDIR"] = os.environ["TMPDIR"]
{PROGRAMS[package]}
"""
    ran = sandbox.run(code, budget=PATIENT)
    if ran.stderr == "absent\n":
        pytest.skip(f"no {package} is to be had in the sandbox here")
    assert (ran.status, ran.stderr) == (Status.OK, "")


@pytest.mark.parametrize("package", PROGRAMS)
@pytest.mark.system
def test_packages_under_the_allow_list(sandbox, package):
    try_package(sandbox, package)


@pytest.mark.parametrize("package", ["numpy", "scipy", "sympy", "matplotlib"])
@pytest.mark.slow
def test_packages_under_the_allow_list_on_landlock(package):
    with contextlib.ExitStack() as stack:
        try_package(opened(stack, "landlock"), package)


THREADS = """
import asyncio, concurrent.futures, queue, selectors, signal, socket, tempfile, threading, time
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    assert list(pool.map(abs, range(-9, 0)))
lock, woken = threading.Condition(), []
def wait():
    with lock:
        woken.append(lock.wait(30))
beside = threading.Thread(target=wait)
beside.start()
while not woken:
    with lock:
        lock.notify()
beside.join()
async def both():
    await asyncio.gather(asyncio.to_thread(time.sleep, 0.01), asyncio.sleep(0.01))
asyncio.run(both())
signal.signal(signal.SIGALRM, lambda *_: print("alarm"))
signal.setitimer(signal.ITIMER_REAL, 0.01)
signal.pause()
one, other = socket.socketpair()
one.settimeout(5)
one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
other.sendall(b"x")
assert one.recv(1) == b"x"
with tempfile.TemporaryFile() as file:
    file.write(b"x")
print("done")
"""


def test_threads_event_loops_and_signals_under_the_allow_list(confined):
    ran = confined.run(THREADS, budget=PATIENT)
    assert (ran.stdout, ran.stderr) == ("alarm\ndone\n", "")


FILES = """
import fcntl, glob, mmap, os, pathlib, shutil, sqlite3, tarfile, zipfile
pathlib.Path("a/b").mkdir(parents=True)
pathlib.Path("a/b/c").write_text("text")
os.symlink("b/c", "a/link")
os.link("a/b/c", "a/hard")
shutil.copytree("a", "copy", symlinks=True)
shutil.move("copy", "moved")
shutil.make_archive("a", "gztar", "moved")
with tarfile.open("a.tar.gz") as archive:
    assert len(archive.getnames()) > 3
with zipfile.ZipFile("a.zip", "w") as archive:
    archive.write("a/b/c")
with zipfile.ZipFile("a.zip") as archive:
    archive.extractall("out")
with open("a/b/c", "r+b") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    fcntl.lockf(file, fcntl.LOCK_EX)
    os.posix_fallocate(file.fileno(), 0, 8192)
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
    os.fsync(file.fileno())
    with mmap.mmap(file.fileno(), 0) as held:
        held.madvise(mmap.MADV_WILLNEED)
        held[:4] = b"TEXT"
        held.flush()
base = sqlite3.connect("x.db")
base.execute("pragma journal_mode = wal")
base.execute("create table t (a)")
base.executemany("insert into t values (?)", [(n,) for n in range(99)])
base.commit()
base.execute("vacuum")
base.close()
os.copy_file_range(os.open("a/b/c", os.O_RDONLY), os.open("q", os.O_CREAT | os.O_WRONLY), 4)
shutil.rmtree("a")
print(sorted(glob.glob("*")), os.statvfs(".").f_bsize > 0, open("q").read())
"""


def test_files_under_the_allow_list(confined):
    ran = confined.run(FILES, budget=PATIENT)
    assert ran.stderr == ""
    assert ran.stdout == "['a.tar.gz', 'a.zip', 'moved', 'out', 'q', 'x.db'] True TEXT\n"


PROCESSES = """
import asyncio, multiprocessing, os, subprocess, sys
print(subprocess.run(["cat"], input="piped", capture_output=True, text=True).stdout)
with multiprocessing.Pool(2) as pool:
    print(pool.map(abs, [-1, -2]))
print(multiprocessing.Value("i", 3).value)
async def echo():
    process = await asyncio.create_subprocess_exec("echo", "loop", stdout=-1)
    return (await process.communicate())[0]
print(asyncio.run(echo()), os.spawnlp(os.P_WAIT, "true", "true"), os.popen("echo popen").read().strip())
"""


def test_processes_under_the_allow_list(sandbox):
    ran = sandbox.run(PROCESSES, budget=PATIENT)
    assert (ran.stdout.splitlines(), ran.stderr) == (
        ["piped", "[1, 2]", "3", "b'loop\\n' 0 popen"],
        "",
    )


COMMANDS = {
    "bash": r"""
        for i in 1 2 3; do echo $i; done | while read x; do echo $((x * 2)); done
        cat < <(echo sub)
        sleep 0.01 & wait
        trap 'echo caught' USR1; kill -USR1 $$
        (ulimit -n 64); timeout 0.05 sleep 5; echo end
    """,
    "tar": r"""
        mkdir -p d/e && echo a > d/e/f && ln -s e d/l && tar czf a.tgz d && mkdir o && tar xzf a.tgz -C o &&
        gzip -k a.tgz && cp -a d c && mv c m && rm -r o && find m -type f -exec cat {} + && echo end
    """,
    "sort": r"""
        seq 100 | sort -rn --parallel=2 | uniq -c > counted && du -sh . && df . && stat -c %n . &&
        dd if=/dev/zero of=z bs=1k count=4 conv=fsync && truncate -s 9 z && touch -d yesterday z &&
        chmod 600 z && mkfifo p && nice -n 5 nohup true && split -l 10 counted && sha256sum z && date +%Y &&
        sed -i s/x/y/ z && awk 'BEGIN { system("echo sub") }' && find . | xargs -n1 -P2 echo && echo end
    """,
    "git": r"""
        git init -q g && cd g && git config user.email a@b && git config user.name n && echo 1 > f &&
        git add . && git commit -qm one && git checkout -qb two && echo 2 > f && git commit -qam two &&
        git gc -q && git log --oneline && git clone -q . ../h && git diff HEAD~1 && git stash list && echo end
    """,
    "sqlite3": r"""
        sqlite3 x.db 'pragma journal_mode = wal; create table t(a); insert into t values (1);' &&
        sqlite3 x.db 'select * from t; vacuum' .dump && echo end
    """,
    "gcc": r"""
        printf '%s\n' '#include <pthread.h>' 'void *f(void *a) { return a; }' 'int main(void) {' \
            'pthread_t t; pthread_create(&t, 0, f, 0); return pthread_join(t, 0); }' > a.c &&
        gcc -O1 -pthread a.c -o a && ./a && echo end
    """,
    "perl": r"""
        perl -MFile::Copy -MTime::HiRes -e 'open F, ">q"; print F 1; close F; copy("q", "r"); utime 1, 1, "q";
            print `echo sub`; $p = fork; exit unless $p; waitpid $p, 0; select undef, undef, undef, .01' &&
        echo end
    """,
    "node": r"""
        node -e "const cp = require('child_process'), fs = require('fs'); fs.writeFileSync('a', '1');
            fs.copyFileSync('a', 'b'); console.log('' + cp.execSync('echo sub'));
            const { Worker } = require('worker_threads');
            new Worker('1', { eval: true }).on('exit', () => console.log('end'))"
    """,
    "make": r"""
        printf 'all: x y\nx:\n\techo x\ny:\n\techo y\n' > Makefile && make -j2 && echo end
    """,
    "jq": r"""echo '{"a": [1, 2]}' | jq -c .a && echo end""",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_under_the_allow_list(sandbox, command):
    where = shutil.which(command, path="/usr/local/bin:/usr/bin:/bin")
    if where is None:
        pytest.skip(f"no {command} here")
    budget = Budget(cpu_s=60, wall_s=120, memory_mb=65536 if command == "node" else 2048)
    with contextlib.closing(sandbox.session(budget=budget)) as session:
        ran = session.shell(COMMANDS[command])
    assert ran.stdout.splitlines()[-1:] == ["end"], ran
    assert "not permitted" not in ran.stderr


NEIGHBOURS = f"""{SYSCALL}
import os, threading
other = os.getppid()
for inquiry in (os.getpgid, os.getsid, os.sched_getscheduler, lambda pid: os.getpriority(0, pid)):
    inquiry(0)
    try:
        print(inquiry(other))
    except PermissionError:
        pass
try:
    print(os.sched_getaffinity(other))
except OSError as error:
    assert error.errno == errno.ENOSYS
import time
for clock in (time.CLOCK_MONOTONIC, time.CLOCK_PROCESS_CPUTIME_ID, time.CLOCK_THREAD_CPUTIME_ID, ~0 << 3 | 2):
    time.clock_gettime(clock)
try:
    print(time.clock_gettime(~other << 3 | 2))
except OSError as error:
    assert error.errno == errno.EINVAL
attributes = ctypes.create_string_buffer(256)
libc.pthread_self.restype = ctypes.c_ulong
look = lambda: print(libc.pthread_getattr_np(ctypes.c_ulong(libc.pthread_self()), attributes))
beside = threading.Thread(target=look)  # of the first one it reads /proc
beside.start()
beside.join()
"""


def test_no_inquiry_about_the_processes_of_the_host():
    with contextlib.ExitStack() as stack:
        ran = opened(stack, "landlock").run(NEIGHBOURS)
    assert (ran.stdout, ran.stderr) == ("0\n", "")


SIGNALS = f"""{SYSCALL}
import os, signal, threading
heard = []
signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
signal.raise_signal(signal.SIGUSR1)
os.kill(os.getpid(), signal.SIGUSR1)
signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
print(len(heard))
for other in (os.getppid(), 0, -1, 1, -os.getpid()):
    try:
        os.kill(other, 0)
        print("reached", other)
    except PermissionError:
        pass
print(call({min(numbers_of("tgkill"))}, os.getppid(), os.getppid(), 0), flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_program_can_send_itself_signals_and_nobody_else():
    with contextlib.ExitStack() as stack:
        backend = opened(stack, "landlock")
        for _ in range(2):  # each with its own number
            ran = backend.run(SIGNALS)
            assert (ran.stdout, ran.stderr, ran.status) == ("3\n1\n", "", Status.RE)


LOOPBACK = """
import http.server, socket, threading, urllib.request
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/").status)
server.shutdown()
with socket.create_server(("::1", 0), family=socket.AF_INET6) as six:
    print(six.getsockname()[0])
datagrams = socket.socket(type=socket.SOCK_DGRAM)
datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
"""


def test_servers_on_a_loopback_of_their_own(sandbox):
    with contextlib.closing(sandbox.session(loopback=True)) as session:
        ran = session.execute(LOOPBACK)
    assert (ran.status, ran.stdout) == (Status.OK, "200\n::1\n")


SPLICE = """
import os
left, right = os.pipe()
os.splice(os.open("in", os.O_RDONLY), right, 4)
print(os.read(left, 4))
"""


def test_a_program_that_needs_more_has_the_deny_list(sandbox, wide):
    files = {"in": b"text"}
    refused = sandbox.run(SPLICE, files=files)
    assert "Function not implemented" in refused.stderr
    ran = wide.run(SPLICE, files=files)
    assert (ran.stdout, ran.info["filter"]) == ("b'text'\n", "deny")
    assert refused.info["filter"] == sandbox.report()["filter"] == "allow"


def test_the_list_is_chosen_by_name_alone(monkeypatch):
    assert seccomp.choose_list() == "allow"
    monkeypatch.setenv("GEM_SANDBOX_FILTER", "deny")
    assert seccomp.choose_list() == "deny"
    assert seccomp.choose_list("allow") == "allow"
    assert Settings().filter == "deny"
    monkeypatch.setenv("GEM_SANDBOX_FILTER", "none")
    with pytest.raises(BadArgument, match="no system-call filter 'none'"):
        backends.make("userns")
