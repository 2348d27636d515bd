"""The system-call filter of a sandboxed child, assembled here for x86-64 and arm64.

A deny list: an allow list would be tighter, but breaks libraries with every new kernel and C library. What
is refused is what reaches past the child's own processes and files (namespaces, mounts, other processes'
memory, keyrings), memory that no limit counts (memfd, System V, message queues), and whatever a program has
no use for and kernels have had holes in (bpf, io_uring, userfaultfd, perf). System calls younger than
`LAST_KNOWN` do not exist, as far as the child can tell.

The tests hold the result equal to libseccomp's, system call by system call.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterable
from errno import ENOSYS, EPERM
from typing import NamedTuple

from gem.errors import BadArgument

LAST_KNOWN = 467
"""The newest system call, open_tree_attr, that this list was drawn up with."""

# struct seccomp_data: int nr; u32 arch; u64 instruction_pointer; u64 args[6]
_NR, _ARCH, _ARGS = 0, 4, 16
_LOAD, _EQ, _GE, _SET, _GOTO, _RET, _AND = 0x20, 0x15, 0x35, 0x45, 0x05, 0x06, 0x54
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000

_NEW_NAMESPACE = 0x7E020000  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
_CLONE_PARENT, _CLONE_THREAD = 0x8000, 0x10000
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_SOCK_STREAM, _SOCK_DGRAM, _SOCK_SEQPACKET, _SOCK_TYPE = 1, 2, 5, 0xF
_TERMINAL = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: type into the user's terminal
_FILE_FLAGS = (0x40086602, 0x40046602, 0x401C5820)  # FS_IOC_SETFLAGS, its 32-bit twin, FS_IOC_FSSETXATTR
_SIGIO = (0x8901, 0x8902)  # FIOSETOWN, SIOCSPGRP: a signal to any process of the same user
_PUNCH_HOLE = 3  # with FALLOC_FL_KEEP_SIZE, which it needs
_FCNTL = (8, 10, 15, 1024, 1026)  # F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY


class Machine(NamedTuple):
    """An architecture: its AUDIT_ARCH word, and which of the two numbers in `NUMBERS` is its own."""

    audit: int
    column: int


MACHINES = {
    "x86_64": Machine(0xC000003E, 0),
    "aarch64": Machine(0xC00000B7, 1),
    "arm64": Machine(0xC00000B7, 1),
}

NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "_sysctl": (156, None),
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bind": (49, 200),
    "bpf": (321, 280),
    "chmod": (90, None),
    "chown": (92, None),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "connect": (42, 203),
    "delete_module": (176, 106),
    "fallocate": (285, 47),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "fcntl": (72, 25),
    "finit_module": (313, 273),
    "fork": (57, None),
    "fremovexattr": (199, 16),
    "fsconfig": (431, 431),
    "fsetxattr": (190, 7),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "futimesat": (261, None),
    "init_module": (175, 105),
    "inotify_add_watch": (254, 27),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "io_setup": (206, 0),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "ioperm": (173, None),
    "iopl": (172, None),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "lchown": (94, None),
    "listmount": (458, 458),
    "lookup_dcookie": (212, 18),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "mbind": (237, 235),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_getsetattr": (245, 185),
    "mq_notify": (244, 184),
    "mq_open": (240, 180),
    "mq_timedreceive": (243, 183),
    "mq_timedsend": (242, 182),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "prlimit64": (302, 261),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "removexattr": (197, 14),
    "removexattrat": (466, 466),
    "request_key": (249, 218),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "settimeofday": (164, 170),
    "setxattr": (188, 5),
    "setxattrat": (463, 463),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmdt": (67, 197),
    "shmget": (29, 194),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "statmount": (457, 457),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sync": (162, 81),
    "syncfs": (306, 267),
    "syslog": (103, 116),
    "tgkill": (234, 131),
    "tkill": (200, 130),
    "truncate": (76, 45),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "utime": (132, None),
    "utimensat": (280, 88),
    "utimes": (235, None),
    "vfork": (58, None),
    "vhangup": (153, 58),
    "vmsplice": (278, 75),
}
"""The numbers of the system calls that the filter names: x86-64, arm64."""

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
"""Refused with EPERM, whatever the arguments."""

NEIGHBOURS = (
    # signals by process id
    *("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open", "pidfd_send_signal"),
    # Landlock guards what is in a file, not these
    *("setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr", "setxattrat"),
    *("removexattrat", "truncate"),
)
"""Refused too where the child sees the host's processes and files."""

PRETENDED = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat"),
)
"""Do nothing and succeed there, because copying a file or unpacking an archive calls them."""

_Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand
_Block = list[_Instruction]


def program(
    allow_fork: bool,
    allow_sockets: bool = False,
    *,
    shares_host: bool | None = None,
    machine: str | None = None,
) -> bytes:
    """Assemble the filter: an array of ``struct sock_filter``, for ``prctl(PR_SET_SECCOMP)``.

    Args:
        allow_fork: whether the child may start processes; threads it always may.
        allow_sockets: TCP, UDP and Unix sockets, where the network is the child's own.
        shares_host: the child sees the host's processes and files; by default, if it may not fork.
        machine: as `platform.machine` names it; this one by default.

    Raises:
        BadArgument: for a machine that there are no numbers for.
    """
    name = platform.machine() if machine is None else machine
    if name not in MACHINES:
        raise BadArgument(f"no system-call filter for machine {name!r}; there is: {', '.join(MACHINES)}.")
    audit, column = MACHINES[name]
    rules = _rules(allow_fork, allow_sockets, not allow_fork if shares_host is None else shares_host)
    numbered = sorted((nr, rule) for call, rule in rules.items() if (nr := NUMBERS[call][column]) is not None)
    code = [
        (_LOAD, 0, 0, _ARCH),
        (_EQ, 1, 0, audit),
        _ret(_KILL),  # a 32-bit call would be counted by other numbers
        (_LOAD, 0, 0, _NR),
        (_GE, 0, 1, LAST_KNOWN + 1),  # x32's numbers are there too
        _ret(_ERRNO | ENOSYS),
        *_search(numbered),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _rules(allow_fork: bool, allow_sockets: bool, shares_host: bool) -> dict[str, _Block]:
    refuse, succeed = [_ret(_ERRNO | EPERM)], [_ret(_ERRNO)]
    rules = dict.fromkeys(ALWAYS, refuse)
    rules["sync"] = rules["syncfs"] = succeed  # the whole machine's disks are not the child's to flush
    rules["clone3"] = [_ret(_ERRNO | ENOSYS)]  # its flags are in memory; the C library falls back to clone
    rules["clone"] = _refuse_bits(0, _NEW_NAMESPACE | _CLONE_PARENT)
    rules["personality"] = _allow_only(0, (0, 0xFFFFFFFF))
    rules["ioctl"] = _refuse_values(1, (*_TERMINAL, *_FILE_FLAGS))
    own = _allow_only(0, (0,))  # by process id, where 0 means oneself
    for call in ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr"):
        rules[call] = own
    rules["setpriority"] = rules["ioprio_set"] = [(_LOAD, 0, 0, _arg(1)), (_EQ, 1, 0, 0), *refuse, *_allow()]
    if allow_sockets:
        rules["socket"] = [
            *_require(0, (_AF_UNIX, _AF_INET, _AF_INET6)),
            *_require(1, (_SOCK_STREAM, _SOCK_DGRAM, _SOCK_SEQPACKET), mask=_SOCK_TYPE),
            *_allow_only(2, (0, 6, 17)),  # TCP, UDP
        ]
        rules["socketpair"] = _allow_only(0, (_AF_UNIX,))
    else:
        rules["socket"] = rules["connect"] = rules["bind"] = refuse
        # Event loops wake themselves by one. A datagram pair can also send to a socket in the file system.
        rules["socketpair"] = [
            *_require(0, (_AF_UNIX,)),
            *_allow_only(1, (_SOCK_STREAM,), mask=_SOCK_TYPE),
        ]
    if not allow_fork:
        rules["fork"] = rules["vfork"] = refuse
        rules["clone"] = [(_LOAD, 0, 0, _arg(0)), (_SET, 1, 0, _CLONE_THREAD), *refuse, *rules["clone"]]
    if shares_host:
        rules |= dict.fromkeys(NEIGHBOURS, refuse) | dict.fromkeys(PRETENDED, succeed)
        rules["ioctl"] = _refuse_values(1, (*_TERMINAL, *_FILE_FLAGS, *_SIGIO))
        rules["fcntl"] = _refuse_values(1, _FCNTL)
        # Space beyond a file's end counts neither as its size nor, without a tmpfs, at all.
        rules["fallocate"] = _allow_only(1, (0, _PUNCH_HOLE))
        # PRIO_USER would mean every process of the user.
        rules["setpriority"] = rules["ioprio_set"] = [*_require(0, (0, 1)), *rules["setpriority"]]
    return rules


def _search(rules: list[tuple[int, _Block]]) -> _Block:
    """Return a binary search for the loaded number: kernels walk the filter once per number to cache it."""
    if len(rules) == 1:
        nr, block = rules[0]
        return [(_EQ, 1, 0, nr), *_allow(), *block]
    half = len(rules) // 2
    low, high = _search(rules[:half]), _search(rules[half:])
    return [(_GE, 0, 1, rules[half][0]), (_GOTO, 0, 0, len(low)), *low, *high]


def _arg(index: int) -> int:
    return _ARGS + 8 * index  # the low half: the kernel takes all of these arguments as 32 bits


def _ret(value: int) -> _Instruction:
    return (_RET, 0, 0, value)


def _allow() -> _Block:
    return [_ret(_ALLOW)]


def _require(arg: int, values: Iterable[int], mask: int | None = None) -> _Block:
    """Return a block that refuses unless the argument is one of the values, and goes on past its end."""
    tests = [(_EQ, 0, 0, value) for value in values]
    block: _Block = [(_LOAD, 0, 0, _arg(arg))]
    if mask is not None:
        block.append((_AND, 0, 0, mask))
    block += [(code, len(tests) - i, 0, value) for i, (code, _, _, value) in enumerate(tests)]
    return [*block, _ret(_ERRNO | EPERM)]


def _allow_only(arg: int, values: Iterable[int], mask: int | None = None) -> _Block:
    return [*_require(arg, values, mask), *_allow()]


def _refuse_values(arg: int, values: Iterable[int]) -> _Block:
    values = list(values)
    tests: _Block = [(_EQ, len(values) - i, 0, value) for i, value in enumerate(values)]
    return [(_LOAD, 0, 0, _arg(arg)), *tests, *_allow(), _ret(_ERRNO | EPERM)]


def _refuse_bits(arg: int, bits: int) -> _Block:
    return [(_LOAD, 0, 0, _arg(arg)), (_SET, 0, 1, bits), _ret(_ERRNO | EPERM), *_allow()]
