"""The system-call filter of a sandboxed child, assembled here for x86-64 and arm64.

There are two lists. The *allow list* names the calls that programs need, measured with the interpreters,
packages and tools that the environments use, and calls equivalent to these. Any other call fails as if it did
not exist (ENOSYS, which C libraries know from older kernels), or with EPERM where a kernel would refuse it to
an ordinary user. The *deny list* is the fallback for a program that the allow list breaks. It refuses calls
that reach beyond the child's own processes and files, calls for memory that no limit counts, and calls with a
history of kernel bugs. Both lists refuse system calls newer than `LAST_KNOWN`.

The tests compare the result with libseccomp's, system call by system call.
"""

from __future__ import annotations

import os
import platform
import struct
from collections.abc import Iterable, Mapping
from errno import EINVAL, ENOMEM, ENOPROTOOPT, ENOSYS, ENOTTY, EOPNOTSUPP, EPERM
from typing import NamedTuple

from gem.errors import BadArgument
from gem.sandbox.lockdown import OWN_NUMBER
from gem.sandbox.syscalls import LAST_KNOWN, NUMBERS

# struct seccomp_data: int nr; u32 arch; u64 instruction_pointer; u64 args[6]
_NR, _ARCH, _ARGS = 0, 4, 16
_LOAD, _EQ, _GE, _SET, _GOTO, _RET, _AND = 0x20, 0x15, 0x35, 0x45, 0x05, 0x06, 0x54
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000

_NEW_NAMESPACE = 0x7E020000  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
_CLONE_FILES, _CLONE_PTRACE, _CLONE_PARENT, _CLONE_THREAD = 0x400, 0x2000, 0x8000, 0x10000
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_SOCK_STREAM, _SOCK_DGRAM, _SOCK_SEQPACKET, _SOCK_TYPE = 1, 2, 5, 0xF
_MSG_OOB = 1
_MAP_HUGETLB = 0x40000
_TERMINAL = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: type into the user's terminal
_FILE_FLAGS = (0x40086602, 0x40046602, 0x401C5820)  # FS_IOC_SETFLAGS, its 32-bit twin, FS_IOC_FSSETXATTR
_SIGIO = (0x8901, 0x8902)  # FIOSETOWN, SIOCSPGRP: a signal to any process of the same user
# SIOCGIF{NAME,CONF,FLAGS,ADDR,BRDADDR,NETMASK,MTU,HWADDR,INDEX}: any socket answers, also one of a pair
_INTERFACES = (0x8910, 0x8912, 0x8913, 0x8915, 0x8919, 0x891B, 0x8921, 0x8927, 0x8933)
_PUNCH_HOLE = 3  # with FALLOC_FL_KEEP_SIZE, which it needs
_FCNTL = (1024, 1026)  # F_SETLEASE, F_NOTIFY: what the host does with a file
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ: the kernel counts all pipes of a user together

KINDS = ("allow", "deny")
"""The names of the lists that `program` accepts."""


def choose_list(kind: str | None = None) -> str:
    """Return the name of the list to use: `kind`, or ``GEM_SANDBOX_FILTER``, or else ``allow``.

    Raises:
        BadArgument: for an unknown list.
    """
    kind = kind or os.environ.get("GEM_SANDBOX_FILTER") or "allow"
    if kind not in KINDS:
        raise BadArgument(f"no system-call filter {kind!r}; there is: {', '.join(KINDS)}.")
    return kind


class Machine(NamedTuple):
    """An architecture: its AUDIT_ARCH word, and which of the two columns of `NUMBERS` is its own."""

    audit: int
    column: int


MACHINES = {
    "x86_64": Machine(0xC000003E, 0),
    "aarch64": Machine(0xC00000B7, 1),
    "arm64": Machine(0xC00000B7, 1),
}


def _find_machine(name: str | None) -> Machine:
    """Return the machine of a name as `platform.machine` returns it; this one by default."""
    name = platform.machine() if name is None else name
    if name not in MACHINES:
        raise BadArgument(f"no system-call filter for machine {name!r}; there is: {', '.join(MACHINES)}.")
    return MACHINES[name]


ALLOWED = (
    # memory
    *("brk", "mmap", "munmap", "mremap", "mprotect", "madvise", "msync", "mincore", "munlock", "munlockall"),
    # files: what is in them
    *("open", "openat", "openat2", "creat", "close", "close_range", "read", "readv", "pread64", "preadv"),
    *("preadv2", "write", "writev", "pwrite64", "pwritev", "pwritev2", "lseek", "truncate", "ftruncate"),
    *("fallocate", "fadvise64", "sendfile", "copy_file_range", "fsync", "fdatasync", "sync_file_range"),
    *("dup", "dup2", "dup3", "fcntl", "flock", "ioctl"),
    # files: their names, and what is said of them
    *("stat", "fstat", "lstat", "newfstatat", "statx", "statfs", "fstatfs", "access", "faccessat"),
    *("faccessat2", "getdents", "getdents64", "getcwd", "chdir", "fchdir", "umask", "mkdir", "mkdirat"),
    *("rmdir", "mknod", "mknodat", "link", "linkat", "symlink", "symlinkat", "readlink", "readlinkat"),
    *("rename", "renameat", "renameat2", "unlink", "unlinkat", "chmod", "fchmod", "fchmodat", "fchmodat2"),
    *("chown", "lchown", "fchown", "fchownat", "utime", "utimes", "futimesat", "utimensat"),
    *("getxattr", "lgetxattr", "fgetxattr", "listxattr", "llistxattr", "flistxattr"),
    *("setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr"),
    # processes and threads
    *("clone", "fork", "vfork", "execve", "execveat", "exit", "exit_group", "wait4", "waitid", "getpid"),
    *("getppid", "gettid", "getpgid", "getpgrp", "getsid", "setpgid", "setsid", "pidfd_open", "prctl"),
    *("arch_prctl", "personality", "getrlimit", "setrlimit", "prlimit64", "getrusage", "times", "rseq"),
    *("set_tid_address", "set_robust_list", "futex", "membarrier"),
    *("sched_yield", "sched_getaffinity", "sched_setaffinity", "sched_getparam", "sched_setparam"),
    *("sched_getscheduler", "sched_setscheduler", "sched_getattr", "sched_setattr", "sched_rr_get_interval"),
    *("sched_get_priority_max", "sched_get_priority_min", "getpriority", "setpriority", "ioprio_get"),
    *("ioprio_set", "getcpu"),
    # who one is; without capabilities only what one is already can be set
    *("getuid", "geteuid", "getresuid", "getgid", "getegid", "getresgid", "getgroups", "capget"),
    *("setuid", "setreuid", "setresuid", "setgid", "setregid", "setresgid"),
    # signals
    *("rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigsuspend", "rt_sigpending", "rt_sigtimedwait"),
    *("rt_sigqueueinfo", "rt_tgsigqueueinfo", "sigaltstack", "kill", "tkill", "tgkill", "pidfd_send_signal"),
    *("signalfd", "signalfd4", "pause", "restart_syscall"),
    # time
    *("time", "gettimeofday", "clock_gettime", "clock_getres", "nanosleep", "clock_nanosleep", "alarm"),
    *("getitimer", "setitimer", "timer_create", "timer_settime", "timer_gettime", "timer_getoverrun"),
    *("timer_delete", "timerfd_create", "timerfd_settime", "timerfd_gettime"),
    # pipes and waiting
    *("pipe", "pipe2", "poll", "ppoll", "select", "pselect6", "epoll_create", "epoll_create1", "epoll_ctl"),
    *("epoll_wait", "epoll_pwait", "epoll_pwait2", "eventfd", "eventfd2"),
    # pairs of sockets
    *("socketpair", "sendto", "sendmsg", "sendmmsg", "recvfrom", "recvmsg", "recvmmsg", "shutdown"),
    *("getsockname", "getpeername", "getsockopt", "setsockopt"),
    # the machine
    *("uname", "sysinfo", "getrandom"),
)
"""The allow list; some calls have rules for their arguments. NETWORK is added if sockets are allowed."""

NETWORK = ("socket", "connect", "bind", "listen", "accept", "accept4")

MESSAGES = ("sendmsg", "sendmmsg")
"""Refused without a network: they send descriptors, and the kernel limits those in flight per user."""

_PRCTL = (
    *(1, 2, 3, 4),  # PR_{SET,GET}_PDEATHSIG, PR_{GET,SET}_DUMPABLE
    *(15, 16, 21, 23, 27),  # PR_{SET,GET}_NAME, PR_GET_SECCOMP, PR_CAPBSET_READ, PR_GET_SECUREBITS
    *(29, 30, 36, 37, 38, 39),  # PR_{SET,GET}_TIMERSLACK, _CHILD_SUBREAPER, _NO_NEW_PRIVS
    *(41, 42, 50, 51, 52),  # PR_{SET,GET}_THP_DISABLE, PR_SVE_{SET,GET}_VL, PR_GET_SPECULATION_CTRL
    *(55, 56, 65, 66),  # PR_{SET,GET}_TAGGED_ADDR_CTRL, PR_{SET,GET}_MDWE
)
_ARCH_PRCTL = (
    *(0x1001, 0x1002, 0x1003, 0x1004),  # ARCH_{SET,GET}_{GS,FS}
    *(0x1021, 0x1022, 0x1023),  # ARCH_GET_XCOMP_SUPP, ARCH_{GET,REQ}_XCOMP_PERM: numeric libraries' tiles
)
_MADVISE = (
    *(4, 8, 14, 15, 0, 1, 2, 3),  # DONTNEED, FREE, HUGEPAGE, NOHUGEPAGE, NORMAL, RANDOM, SEQUENTIAL, WILLNEED
    *(9, 10, 11, 16, 17, 18, 19),  # REMOVE, DONTFORK, DOFORK, DONTDUMP, DODUMP, WIPEONFORK, KEEPONFORK
    *(20, 22, 23),  # COLD, POPULATE_READ, POPULATE_WRITE
)
_FUTEX = (0, 1, 9, 10, 3, 4, 5)  # WAIT, WAKE, WAIT_BITSET, WAKE_BITSET, REQUEUE, CMP_REQUEUE, WAKE_OP
_FUTEX_OPERATION = 0xFFFFFE7F  # all but FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME
_FCNTL_ALLOWED = (
    *(1, 2, 3, 4, 0, 1030),  # F_{GET,SET}FD, F_{GET,SET}FL, F_DUPFD, F_DUPFD_CLOEXEC
    *(5, 6, 7, 36, 37, 38),  # F_GETLK, F_SETLK, F_SETLKW, and F_OFD_ the same
    *(9, 11, 16, 1025, 1034),  # F_GETOWN, F_GETSIG, F_GETOWN_EX, F_GETLEASE, F_GET_SEALS
    1032,  # F_GETPIPE_SZ
)
_FCNTL_SIGIO = (8, 10, 15)  # F_SETOWN, F_SETSIG, F_SETOWN_EX
_IOCTL = (
    *(0x5401, 0x5402, 0x5403, 0x5404),  # TCGETS, TCSETS, TCSETSW, TCSETSF: the first is isatty()
    *(0x802C542A, 0x402C542B, 0x402C542C, 0x402C542D),  # the same with a speed of any number
    *(0x5409, 0x540A, 0x540B, 0x5425),  # TCSBRK, TCXONC, TCFLSH, TCSBRKP
    *(0x540E, 0x5422, 0x540F, 0x5410, 0x5429),  # TIOCSCTTY, TIOCNOTTY, TIOC{G,S}PGRP, TIOCGSID
    *(0x5413, 0x5414, 0x5411, 0x541B),  # TIOC{G,S}WINSZ, TIOCOUTQ, FIONREAD
    *(0x5421, 0x5450, 0x5451, 0x5452),  # FIONBIO, FIONCLEX, FIOCLEX, FIOASYNC
    *(0x80045430, 0x40045431, 0x80045439, 0x5441, 0x5420),  # TIOCGPTN, TIOC{S,G}PTLCK, TIOCGPTPEER, TIOCPKT
)
_SOCKET_OPTIONS = {
    1: (  # SOL_SOCKET
        *(2, 15, 5, 6, 7, 8, 9, 10, 12, 13),  # REUSE{ADDR,PORT}, DONTROUTE, BROADCAST, *BUF, KEEPALIVE, ...
        *(16, 18, 19, 20, 21, 66, 67, 29, 63),  # PASSCRED, {RCV,SND}LOWAT, {RCV,SND}TIMEO, TIMESTAMP
    ),
    6: (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 18, 23, 25, 30),  # TCP_NODELAY, MAXSEG, CORK, KEEP*, ...
    0: (1, 2, 8, 10, 11, 12, 13, 15, 24, 32, 33, 34, 35, 36),  # IP_TOS, TTL, PKTINFO, MULTICAST_*, ...
    41: (16, 17, 18, 19, 20, 21, 23, 25, 26, 49, 66, 67),  # IPV6_UNICAST_HOPS, MULTICAST_*, V6ONLY, ...
}

ALWAYS = (
    # other namespaces, mounts, roots
    *("unshare", "setns", "chroot", "pivot_root", "mount", "umount2", "move_mount", "mount_setattr"),
    *("open_tree", "open_tree_attr", "fsopen", "fsconfig", "fsmount", "fspick", "listmount", "statmount"),
    *("name_to_handle_at", "open_by_handle_at", "fanotify_init", "fanotify_mark"),
    *("inotify_init", "inotify_init1", "inotify_add_watch"),
    # other processes
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease"),
    *("kcmp", "pidfd_getfd", "migrate_pages", "move_pages"),
    # memory that no limit counts, and what outlives the process
    *("memfd_create", "memfd_secret", "shmget", "shmat", "shmctl", "shmdt", "semget", "semop", "semctl"),
    *("semtimedop", "msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink", "mq_timedsend"),
    *("mq_timedreceive", "mq_notify", "mq_getsetattr", "add_key", "request_key", "keyctl"),
    # surface of the kernel that programs have no use for
    *("bpf", "perf_event_open", "userfaultfd", "io_setup", "io_uring_setup", "io_uring_enter"),
    *("io_uring_register", "modify_ldt", "mbind", "set_mempolicy", "set_mempolicy_home_node"),
    *("lookup_dcookie", "vmsplice", "uselib", "nfsservctl", "_sysctl"),
    # the machine
    *("init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot", "swapon"),
    *("swapoff", "acct", "quotactl", "quotactl_fd", "syslog", "settimeofday", "clock_settime"),
    *("clock_adjtime", "adjtimex", "sethostname", "setdomainname", "iopl", "ioperm", "vhangup"),
)
"""Refused with EPERM, whatever the arguments, by both lists."""

UNPRIVILEGED = ("mlock", "mlock2", "mlockall", "setgroups", "capset", "inotify_rm_watch")
"""Refused with EPERM by the allow list: calls that these limits forbid anyway, or that have no target."""

CONFINING = (
    *("unshare", "setns", "mount", "clone", "capset", "prctl", "sendmsg"),
    *("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"),
)
"""The calls by which a template makes namespaces and children, and by which a child confines itself."""

SIGNALS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
"""If the child shares the host, it can send these to itself only: what starts no process keeps its number."""

NEIGHBOURS = (
    *("pidfd_open", "pidfd_send_signal"),
    # Landlock guards what is in a file, not these
    *("setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr", "setxattrat"),
    *("removexattrat", "truncate"),
)
"""Also refused if the child sees the host's processes and files."""

INQUIRIES = (
    *("getpgid", "getsid", "getpriority", "ioprio_get", "sched_getaffinity", "sched_getparam"),
    *("sched_getscheduler", "sched_getattr", "sched_rr_get_interval"),
)
"""If the child shares the host, these answer only about the child itself."""

CLOCK_CALLS = ("clock_gettime", "clock_getres", "clock_nanosleep")
_CLOCKS = (*range(12), *(0xFFFFFFF8 + kind for kind in (0, 1, 2, 4, 5, 6)))
"""The clocks of the machine, and those of the caller's own process and thread (process number 0)."""

PRIORITIES = ("sched_setscheduler", "sched_setparam", "sched_setattr")
"""Succeed without effect for the child itself; so do setpriority and ioprio_set."""

PRETENDED = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat"),
)
"""If the child shares the host, these do nothing and succeed; copying or unpacking files calls them."""

_Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand
_Block = list[_Instruction]


def program(
    allow_fork: bool,
    allow_sockets: bool = False,
    *,
    shares_host: bool | None = None,
    kind: str = "allow",
    machine: str | None = None,
    early: bool = False,
) -> bytes:
    """Assemble the filter: an array of ``struct sock_filter`` for ``prctl(PR_SET_SECCOMP)``.

    A filter can be applied in two parts, which together do the same. The `early` one lets the calls of
    `CONFINING` pass, and is for a process that makes children; `late_program` is for each child, and short:
    the kernel translates every filter anew when it is applied.

    Args:
        allow_fork: whether the child may start processes; it may always start threads.
        allow_sockets: allow TCP, UDP and Unix sockets, for a child with a private network.
        shares_host: whether the child sees the host's processes and files; by default, if it may not fork.
        kind: the list, ``allow`` or ``deny``.
        machine: a name as `platform.machine` returns it; this machine by default.
        early: let the calls of `CONFINING` pass.

    Raises:
        BadArgument: for an unsupported machine.
    """
    audit, column = _find_machine(machine)
    shares_host = not allow_fork if shares_host is None else shares_host
    rules = _rules(kind, allow_fork, allow_sockets, shares_host)
    rules |= dict.fromkeys(CONFINING, _allow()) if early else {}
    otherwise = [_ret(_ERRNO | ENOSYS)] if kind == "allow" else _allow()
    blocks = [otherwise] * (LAST_KNOWN + 1)
    for call, block in rules.items():
        if (nr := NUMBERS[call][column]) is not None:
            blocks[nr] = block
    firsts = [nr for nr in range(LAST_KNOWN + 1) if nr == 0 or blocks[nr] != blocks[nr - 1]]
    code = [
        (_LOAD, 0, 0, _ARCH),
        (_EQ, 1, 0, audit),
        _ret(_KILL),  # a 32-bit call would be counted by other numbers
        (_LOAD, 0, 0, _NR),
        (_GE, 0, 1, LAST_KNOWN + 1),  # x32's numbers are there too
        _ret(_ERRNO | ENOSYS),
        *_search([(nr, blocks[nr]) for nr in firsts]),
    ]
    return _pack(code)


def late_program(
    allow_fork: bool,
    allow_sockets: bool = False,
    *,
    shares_host: bool | None = None,
    kind: str = "allow",
    machine: str | None = None,
) -> bytes:
    """Assemble what completes the `early` filter of `program`, which takes the same arguments.

    Raises:
        BadArgument: for an unsupported machine.
    """
    audit, column = _find_machine(machine)
    shares_host = not allow_fork if shares_host is None else shares_host
    rules = _rules(kind, allow_fork, allow_sockets, shares_host)
    otherwise = [_ret(_ERRNO | ENOSYS)] if kind == "allow" else _allow()
    blocks = {call: rules.get(call, otherwise) for call in CONFINING}
    return _pack(_pick_few(blocks, audit, column))


def _rules(kind: str, allow_fork: bool, allow_sockets: bool, shares_host: bool) -> dict[str, _Block]:
    refuse, succeed = [_ret(_ERRNO | EPERM)], [_ret(_ERRNO)]
    own = _allow_only(0, (0,))  # by process id, where 0 means oneself
    # Priorities stay, or a thread could keep others waiting for what it holds and has no time to let go of.
    own_stay, others_stay = [*_require(0, (0,)), *succeed], [*_require(1, (0,)), *succeed]
    rules = _narrow(allow_sockets, shares_host) if kind == "allow" else _wide(shares_host)
    rules |= dict.fromkeys(ALWAYS, refuse)
    rules |= {
        # The whole machine's disks are not the child's to flush.
        **dict.fromkeys(("sync", "syncfs"), succeed),
        "clone3": [_ret(_ERRNO | ENOSYS)],  # its flags are in memory; the C library falls back to clone
        # A thread with descriptors of its own could hide sockets from who counts those of its process.
        "clone": [
            *[(_LOAD, 0, 0, _arg(0)), (_SET, 0, 2, _CLONE_THREAD), (_SET, 1, 0, _CLONE_FILES), *refuse],
            *_refuse_bits(0, _NEW_NAMESPACE | _CLONE_PARENT | _CLONE_PTRACE),
        ],
        "personality": _allow_only(0, (0, 0xFFFFFFFF)),
        **dict.fromkeys(("prlimit64", "sched_setaffinity"), own),
        **dict.fromkeys(PRIORITIES, own_stay),
        **dict.fromkeys(("setpriority", "ioprio_set"), others_stay),
    }
    if allow_sockets:
        rules |= {
            **dict.fromkeys(NETWORK, _allow()),
            "socket": [
                *_require(0, (_AF_UNIX, _AF_INET, _AF_INET6)),
                *_require(1, (_SOCK_STREAM, _SOCK_DGRAM, _SOCK_SEQPACKET), mask=_SOCK_TYPE),
                *_allow_only(2, (0, 6, 17)),  # TCP, UDP
            ],
            "socketpair": _allow_only(0, (_AF_UNIX,)),
        }
    else:
        rules |= dict.fromkeys((*NETWORK, *MESSAGES), refuse)
        # Event loops wake themselves by one. A datagram pair can also send to a socket in the file system.
        rules["socketpair"] = [
            *_require(0, (_AF_UNIX,)),
            *_allow_only(1, (_SOCK_STREAM,), mask=_SOCK_TYPE),
        ]
    if not allow_fork:
        rules["fork"] = rules["vfork"] = refuse
        rules["clone"] = [(_LOAD, 0, 0, _arg(0)), (_SET, 1, 0, _CLONE_THREAD), *refuse, *rules["clone"]]
    if shares_host:
        one = [*_require(0, (0, 1)), *_allow_only(1, (0,))]  # PRIO_USER would mean every process of the user
        rules |= {
            **dict.fromkeys(NEIGHBOURS, refuse),
            **dict.fromkeys(SIGNALS, _allow_only(0, (OWN_NUMBER,))),
            **dict.fromkeys(PRETENDED, succeed),
            # Space beyond a file's end counts neither as its size nor, without a tmpfs, at all.
            "fallocate": _allow_only(1, (0, _PUNCH_HOLE)),
            **dict.fromkeys(INQUIRIES, own),
            "capget": refuse,  # it is asked by process number, which lies in memory
            **dict.fromkeys(CLOCK_CALLS, _allow_only(0, _CLOCKS, otherwise=EINVAL)),
            "sched_getaffinity": _allow_only(0, (0,), otherwise=ENOSYS),  # or the C library's threads fail
            **dict.fromkeys(("getpriority", "ioprio_get"), one),
            "timer_create": [_ret(_ERRNO | ENOSYS)],  # one limit for all timers of the user
        }
    return rules


def _wide(shares_host: bool) -> dict[str, _Block]:
    """Return the argument rules of the deny list only."""
    requests = (*_TERMINAL, *_FILE_FLAGS, *((*_SIGIO, *_INTERFACES) if shares_host else ()))
    commands = (*_FCNTL, _SET_PIPE_SIZE, *(_FCNTL_SIGIO if shares_host else ()))
    return {"ioctl": _refuse_values(1, requests), "fcntl": _refuse_values(1, commands)}


def _narrow(allow_sockets: bool, shares_host: bool) -> dict[str, _Block]:
    """Return the rules of the allow list only. Refused arguments get the errno of a kernel without them."""
    refuse = [_ret(_ERRNO | EPERM)]
    requests = (*_IOCTL, *(() if shares_host else _SIGIO), *(_INTERFACES if allow_sockets else ()))
    commands = (*_FCNTL_ALLOWED, *(() if shares_host else _FCNTL_SIGIO))
    fcntl = _allow_only(1, commands, otherwise=EINVAL)
    many = ("sendto", "recvfrom", "sendmmsg", "recvmmsg")
    return {
        **dict.fromkeys(ALLOWED, _allow()),
        **dict.fromkeys(UNPRIVILEGED, refuse),
        "ioctl": _allow_only(1, requests, otherwise=ENOTTY),
        "fcntl": [(_LOAD, 0, 0, _arg(1)), (_EQ, 0, 1, _SET_PIPE_SIZE), *refuse, *fcntl],
        "prctl": _allow_only(0, _PRCTL, otherwise=EINVAL),
        "arch_prctl": _allow_only(0, _ARCH_PRCTL, otherwise=EINVAL),
        "madvise": _allow_only(2, _MADVISE, otherwise=EINVAL),
        "mmap": _refuse_bits(3, _MAP_HUGETLB, ENOMEM),  # the machine's store of them is counted nowhere
        "futex": _allow_only(1, _FUTEX, mask=_FUTEX_OPERATION, otherwise=ENOSYS),
        "setsockopt": _allow_pairs(1, _SOCKET_OPTIONS, otherwise=ENOPROTOOPT),
        # Urgent bytes: nobody sends them, and they have let programs out of browsers' sandboxes.
        **dict.fromkeys(("sendmsg", "recvmsg"), _refuse_bits(2, _MSG_OOB, EOPNOTSUPP)),
        **dict.fromkeys(many, _refuse_bits(3, _MSG_OOB, EOPNOTSUPP)),
    }


def _search(spans: list[tuple[int, _Block]]) -> _Block:
    """Return code for a binary search of the loaded number among spans, each given by its first number.

    Kernels walk the filter once per number to cache what it allows; older ones walk it at every call.
    """
    if len(spans) == 1:
        return spans[0][1]
    half = len(spans) // 2
    low, high = _search(spans[:half]), _search(spans[half:])
    if len(low) < 256:
        return [(_GE, len(low), 0, spans[half][0]), *low, *high]
    return [(_GE, 0, 1, spans[half][0]), (_GOTO, 0, 0, len(low)), *low, *high]


def _arg(index: int) -> int:
    return _ARGS + 8 * index  # the low half: what is tested here the kernel takes as 32 bits, or tests there


def _ret(value: int) -> _Instruction:
    return (_RET, 0, 0, value)


def _allow() -> _Block:
    return [_ret(_ALLOW)]


def _require(arg: int, values: Iterable[int], mask: int | None = None, otherwise: int = EPERM) -> _Block:
    """Return a block that refuses the call unless the argument is one of the values, and else goes on."""
    values = list(values)
    block: _Block = [(_LOAD, 0, 0, _arg(arg))]
    if mask is not None:
        block.append((_AND, 0, 0, mask))
    block += [(_EQ, len(values) - i, 0, value) for i, value in enumerate(values)]
    return [*block, _ret(_ERRNO | otherwise)]


def _allow_only(arg: int, values: Iterable[int], mask: int | None = None, otherwise: int = EPERM) -> _Block:
    return [*_require(arg, values, mask, otherwise), *_allow()]


def _allow_pairs(arg: int, pairs: Mapping[int, Iterable[int]], otherwise: int) -> _Block:
    """Return a block that allows some values of the argument, each with some of the next argument's."""
    block: _Block = [(_LOAD, 0, 0, _arg(arg))]
    for value, following in pairs.items():
        then = _allow_only(arg + 1, following, otherwise=otherwise)
        block += [(_EQ, 0, len(then), value), *then]
    return [*block, _ret(_ERRNO | otherwise)]


def _refuse_values(arg: int, values: Iterable[int]) -> _Block:
    values = list(values)
    tests: _Block = [(_EQ, len(values) - i, 0, value) for i, value in enumerate(values)]
    return [(_LOAD, 0, 0, _arg(arg)), *tests, *_allow(), _ret(_ERRNO | EPERM)]


def _refuse_bits(arg: int, bits: int, errno: int = EPERM) -> _Block:
    return [(_LOAD, 0, 0, _arg(arg)), (_SET, 0, 1, bits), _ret(_ERRNO | errno), *_allow()]


_NOTIFY = 0x7FC00000
_MAP_SHARED, _MAP_ANONYMOUS = 0x01, 0x20
_SOL_SOCKET, _SO_SNDBUF, _SO_RCVBUF = 1, 7, 8


def memory_program(*, attributes: bool = True, threads: bool = True, machine: str | None = None) -> bytes:
    """Assemble a second filter, for threads and for memory that the sizes of processes do not show.

    Nameless shared mappings need permission (`gem.sandbox.memory` answers), huge pages of the machine's
    reserve are refused, and a program cannot change the buffer sizes of a socket. `attributes`: files may
    have extended attributes, which are memory too, and are limited where the number of files is. `threads`:
    another limit holds for threads; otherwise they need permission too.

    Raises:
        BadArgument: for an unsupported machine.
    """
    audit, column = _find_machine(machine)
    mapping = [
        (_LOAD, 0, 0, _arg(3)),
        (_SET, 0, 1, _MAP_HUGETLB),
        _ret(_ERRNO | EPERM),
        (_SET, 0, 2, _MAP_ANONYMOUS),
        (_SET, 0, 1, _MAP_SHARED),  # MAP_SHARED_VALIDATE has the bit too
        _ret(_NOTIFY),
        *_allow(),
    ]
    option = [
        (_LOAD, 0, 0, _arg(1)),
        (_EQ, 0, 4, _SOL_SOCKET),
        (_LOAD, 0, 0, _arg(2)),
        (_EQ, 1, 0, _SO_SNDBUF),
        (_EQ, 0, 1, _SO_RCVBUF),
        _ret(_ERRNO),
        *_allow(),
    ]
    thread = [(_LOAD, 0, 0, _arg(0)), (_SET, 0, 1, _CLONE_THREAD), _ret(_NOTIFY), *_allow()]
    refused = [] if attributes else ["setxattr", "lsetxattr", "fsetxattr", "setxattrat"]
    absent = [_ret(_ERRNO | EOPNOTSUPP)]
    blocks = {"mmap": mapping, "setsockopt": option, **dict.fromkeys(refused, absent)}
    return _pack(_pick_few(blocks if threads else blocks | {"clone": thread}, audit, column))


def _pick_few(blocks: Mapping[str, _Block], audit: int, column: int) -> _Block:
    """Return the code of a filter of a few calls, beside another that ends processes of other machines."""
    code = [(_LOAD, 0, 0, _ARCH), (_EQ, 1, 0, audit), *_allow(), (_LOAD, 0, 0, _NR)]
    for call, block in blocks.items():
        if (nr := NUMBERS[call][column]) is not None:
            code += [(_EQ, 0, len(block), nr), *block]
    return [*code, *_allow()]


def _pack(code: _Block) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
