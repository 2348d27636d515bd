# ruff: noqa
# mypy: ignore-errors
# Everything that look.py looks at, changed as far as that is allowed.
import threading


def try_to(*calls):
    for call in calls:
        with contextlib.suppress(Exception):
            call()


for name, path in FOLDERS.items():
    try_to(
        lambda: os.setxattr(path, "user.left", NUMBER.encode()),
        lambda: os.setxattr(
            path,
            "system.posix_acl_default",
            bytes.fromhex("0200000001000700ffffffff04000500ffffffff20000500ffffffff"),
        ),
        lambda: os.mkdir(f"{path}/left{NUMBER}"),
        lambda: open(f"{path}/file-left{NUMBER}", "w").write(NUMBER),
        lambda: os.symlink("/", f"{path}/link-left{NUMBER}"),
        lambda: os.mkfifo(f"{path}/fifo-left{NUMBER}"),
        lambda: os.chmod(path, 0o1733 if path == HOME else 0o777),
        lambda: os.utime(path, (MARK, MARK)),
    )
for n in range(50):
    try_to(lambda: open(f"{HOME}/many{n}", "w").close())


def grandchild():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    os.wait()


try_to(grandchild)
for n in range(20):
    try_to(lambda: threading.Thread(target=int).start())
try_to(
    lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)),
    lambda: os.nice(5),
    lambda: libc.syscall(251, 1, 0, 3 << 13),
    lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)),
    lambda: os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]),
    lambda: os.umask(0o77),
    lambda: os.environ.__setitem__("LEFT", NUMBER),
    lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN),
    lambda: signal.setitimer(signal.ITIMER_REAL, 500),
    lambda: libc.prctl(29, 12345, 0, 0, 0),
    lambda: libc.prctl(15, NUMBER[:8].encode(), 0, 0, 0),
    lambda: libc.prctl(4, 0, 0, 0, 0),
    lambda: libc.syscall(64, 77, 1, 0o1600),
    lambda: libc.syscall(29, 77, 4096, 0o1600),
    lambda: libc.syscall(68, 77, 0o1600),
    lambda: libc.mq_open(b"/gem", 0o102, 0o600, 0),
    lambda: libc.sem_open(b"/gem", 0o100, 0o600, 1),
    lambda: libc.syscall(248, b"user", b"left", b"x", 1, -3),
    lambda: libc.sethostname(NUMBER.encode(), len(NUMBER)),
    lambda: open("/proc/sys/kernel/domainname", "w").write(NUMBER),
    lambda: open("/proc/self/oom_score_adj", "w").write("900"),
    lambda: open("/proc/self/coredump_filter", "w").write("0x1"),
    lambda: libc.mount(b"none", b"/tmp", b"tmpfs", 0, None),
    lambda: sys.modules.__setitem__(f"left{NUMBER}", sys),
    lambda: os.mkdir("__pycache__"),
    *(lambda n=n: fcntl.fcntl(n, fcntl.F_SETFL, os.O_APPEND | os.O_NONBLOCK) for n in ENDS),
)
print(NUMBER[::-1] * 50, file=sys.stderr)
