# ruff: noqa
# mypy: ignore-errors
# Facts about where a program finds itself; each is one way in which an earlier one could have left a bit.
# What is no fact but a moment (the clock, a pipe's number) is told as a comparison with the mark of this test.
import contextlib, ctypes, fcntl, gc, json, os, re, resource, signal, stat, sys, time

MARK = int(NUMBER)
HOME, TMP = os.environ["HOME"], os.environ.get("TMPDIR", "/tmp")
FOLDERS = {
    "home": HOME,
    "tmp": TMP,
    "shm": "/dev/shm",
    "above home": os.path.dirname(HOME),
    "above tmp": os.path.dirname(TMP),
    "two above": os.path.dirname(os.path.dirname(HOME)),
    "/tmp": "/tmp",
    "/sandbox": "/sandbox",
    "/run": "/run",
    "/var/tmp": "/var/tmp",
    "/dev": "/dev",
    "/": "/",
}
OWN = ("home", "tmp", "above home", "above tmp")  # the rest may be the machine's, and busy
ENDS = {0: "in", 1: "out", 2: "err"}
libc = ctypes.CDLL(None, use_errno=True)
BY_NATURE = {
    "cpu",
    "judge",
    "packet",
    "scratch",
    "folder",
    "namespace",
    "codes",
    "request",
    "asked",
    "case",
    "message",
    "body",
    "compiled",
    "code",
    "begun",
    "t",
    "seconds",
    "steps",
    "step",
    "name",
}  # its own
facts = {}


def fact(name):
    def note(call):
        try:
            facts[name] = call()
        except Exception as error:
            facts[name] = type(error).__name__

    return note


for name, path in FOLDERS.items():
    fact(f"attributes of {name}")(lambda: [a for a in os.listxattr(path)])
    fact(f"time of {name}")(
        lambda: [int(t) == MARK for t in (os.stat(path).st_mtime, os.stat(path).st_atime)]
    )
    fact(f"mode of {name}")(lambda: oct(os.stat(path).st_mode))
    fact(f"links of {name}")(lambda: name not in OWN or os.stat(path).st_nlink)
    fact(f"size of {name}")(lambda: name not in OWN or os.stat(path).st_size)
    fact(f"entries of {name}")(lambda: sorted(n for n in os.listdir(path) if NUMBER in n))
    fact(f"marked in {name}")(lambda: os.path.exists(f"{path}/left{NUMBER}"))


@fact("space")
def _():
    seen = os.statvfs(HOME)
    if seen.f_blocks > 1 << 20:
        return None  # the machine's own disk
    return [
        seen.f_bfree,
        seen.f_files - seen.f_ffree < 64,
        seen.f_files,
    ]  # counted by each processor, not exactly


@fact("inode numbers")
def _():
    path = f"{HOME}/new"
    open(path, "w").close()
    number = os.stat(path).st_ino
    os.unlink(path)
    return number


fact("process numbers")(lambda: [os.getpid(), os.getppid()])
fact("process numbers of the machine")(lambda: open("/proc/loadavg").read().split()[-1])
fact("group and session")(lambda: [os.getpgrp() - os.getpid(), os.getsid(0) - os.getpid()])
fact("processes in sight")(lambda: len([n for n in os.listdir("/proc") if n.isdigit()]))
fact("limits")(lambda: [resource.getrlimit(n) for n in range(16)])
fact("niceness")(
    lambda: [os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), libc.syscall(252, 1, 0)]
)
fact("affinity")(lambda: sorted(os.sched_getaffinity(0)))
fact("umask")(lambda: os.umask(os.umask(0o22)))
fact("working folder")(lambda: os.getcwd() == os.path.realpath(HOME))
fact("environment")(lambda: sorted(os.environ))
fact("signals")(
    lambda: (
        [re.sub("at 0x.*", "", str(signal.getsignal(n))) for n in range(1, 32)]
        + sorted(signal.pthread_sigmask(0, []))
    )
)
fact("timers")(lambda: [signal.getitimer(n) for n in range(3)] + [libc.prctl(30, 0, 0, 0, 0)])
fact("flags of a process")(lambda: [libc.prctl(n, 0, 0, 0, 0) for n in (3, 7, 27, 37, 39)])
fact("name")(lambda: NUMBER[:8] in open("/proc/self/comm").read())
for n, end in ENDS.items():
    fact(f"standard {end}")(
        lambda: [fcntl.fcntl(n, fcntl.F_GETFL), stat.S_IFMT(os.fstat(n).st_mode), os.isatty(n)]
    )
    fact(f"number of standard {end}")(
        lambda: os.fstat(n).st_ino if stat.S_ISREG(os.fstat(n).st_mode) else None
    )
    fact(f"place in standard {end}")(lambda: os.lseek(n, 0, os.SEEK_CUR))


def alive(n):
    try:
        os.fstat(n)
    except OSError:
        return False
    return True


fact("descriptors")(lambda: [n for n in range(64) if alive(n)])
for kind, call in {"semaphores": (64, 220), "memory": (29, 30), "queues": (68, 71)}.items():
    fact(f"System V {kind}")(lambda: libc.syscall(call[0], 77, 1, 0o600))
fact("message queue")(lambda: libc.mq_open(b"/gem", 0))
fact("named semaphore")(lambda: libc.sem_open(b"/gem", 0) != 0)
fact("keys")(lambda: libc.syscall(250, 0, -3, 0))
fact("mounts")(lambda: len(open("/proc/self/mountinfo").read().splitlines()))
fact("host name")(lambda: os.uname().nodename)
fact("kernel settings")(
    lambda: open("/proc/sys/kernel/domainname").read() + open("/proc/sys/kernel/msgmax").read()
)
fact("out of memory")(
    lambda: [open(f"/proc/self/{n}").read() for n in ("oom_score_adj", "coredump_filter", "timerslack_ns")]
)
fact("control group")(lambda: open("/proc/self/cgroup").read())
fact("used so far")(
    lambda: [resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, len(os.listdir("/proc/self/task"))]
)
fact("modules")(lambda: [name for name in sys.modules if NUMBER in name])
fact("compiled files")(lambda: os.path.exists("__pycache__"))


def plain(value, depth=0):
    if isinstance(value, (int, float, str, bytes)):
        return str(value)[:200]
    if isinstance(value, (list, tuple)) and depth < 4:
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, dict) and depth < 4:
        return {str(key): plain(item, depth + 1) for key, item in value.items()}
    return type(value).__name__


@fact("frames")
def _():
    frame, found = sys._getframe(), []
    while frame is not None:
        if "facts" not in frame.f_locals and "facts" not in frame.f_globals:
            kept = {k: v for k, v in frame.f_locals.items() if k not in BY_NATURE}
            found.append([frame.f_code.co_name, plain(kept)])
            if isinstance(kept.get("self"), object):
                found.append(
                    plain(
                        {k: v for k, v in vars(kept["self"]).items() if k not in BY_NATURE}
                        if "self" in kept and hasattr(kept["self"], "__dict__")
                        else {}
                    )
                )
        frame = frame.f_back
    return found


@fact("memory")
def _():
    pattern = re.compile(b"".join(b"[%c]" % ord(c) for c in reversed(NUMBER)))
    try:
        with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
            spans = [line.split()[0].split("-") for line in maps if " rw-p " in line and "[v" not in line]
            return sum(
                len(pattern.findall(os.pread(memory.fileno(), int(e, 16) - int(b, 16), int(b, 16))))
                for b, e in spans
            )
    except OSError:
        pages = {id(thing) & ~0xFFF for thing in gc.get_objects()}
        return sum(len(pattern.findall(ctypes.string_at(page, 1 << 12))) for page in pages)
