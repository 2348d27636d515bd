"""What a program in a sandbox can see of the machine, in words."""

from __future__ import annotations

import json
from typing import Any

from gem.sandbox.base import Budget, SandboxFailed

SIGHTS: dict[str, str] = {
    "kernel": "the kernel's release and version (uname)",
    "host name": "the host name",
    "command line": "the kernel's command line",
    "boot": "the number of this boot of the machine",
    "uptime": "how long the machine is up",
    "load": "the machine's load",
    "memory": "the machine's memory",
    "processor": "the processor's model in /proc (the instruction cpuid tells it always)",
    "processors": "how many processors it has",
    "counters": "what the kernel counts: switches, interrupts, processes since the start",
    "modules": "the kernel's modules and symbols",
    "disks": "the machine's disks",
    "mounts": "mounts of the machine's own disks, with the paths there",
    "control groups": "its place among the machine's control groups",
    "settings": "the kernel's settings (/proc/sys)",
    "devices": "/sys",
    "user": "the number of its user",
    "processes": "processes of others, by their numbers",
    "times": "the processor time of processes of others",
    "network": "network interfaces but its own loopback",
    "interpreter": "where the interpreter and its packages lie",
    "names": "names, sizes and times of the machine's files elsewhere",
    "contents": "contents of files in /etc beyond a few lines of gem's own",
    "environment": "the environment's names beyond those that gem sets",
    "clock": "the date and time",
}
"""The facts of the machine that are looked for, in words."""


def list_sights(sandbox: Any) -> dict[str, str]:
    """Return what a fresh run sees of each of `SIGHTS`: a few words, or an empty text if it is hidden.

    Raises:
        SandboxFailed: when the program that looks does not end as it should.
    """
    result = sandbox.run(_LOOK, budget=Budget(cpu_s=10, wall_s=30))
    try:
        sights = json.loads(result.stdout)
        return {name: str(sights[name] or "")[:70] for name in SIGHTS}
    except (ValueError, KeyError, TypeError) as error:
        raise SandboxFailed(f"the program that looks gave no report: {result.stderr[-300:]}") from error


_LOOK = r"""
import json, os, socket, sys, time
told = {}
def look(name):
    def note(call):
        try:
            told[name] = call()
        except (OSError, ValueError, IndexError, KeyError):
            told[name] = ""
    return note
def first(path):
    with open(path, errors="replace") as file:
        return file.read(2000).strip().partition("\n")[0]
def there(*paths):
    found = []
    for path in paths:
        try:
            if first(path):
                found.append(path)
        except OSError:
            pass
    return " ".join(found)
look("kernel")(lambda: f"{os.uname().release} {os.uname().version}")
look("host name")(lambda: "" if os.uname().nodename == "sandbox" else os.uname().nodename)
look("command line")(lambda: first("/proc/cmdline"))
look("boot")(lambda: first("/proc/sys/kernel/random/boot_id"))
look("uptime")(lambda: f"{time.clock_gettime(time.CLOCK_BOOTTIME):.0f} s")
look("load")(lambda: os.getloadavg())
look("memory")(lambda: f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGESIZE') >> 20} MiB")
@look("processor")
def _():
    models = [line for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return models[0].partition(": ")[2].strip()
look("processors")(lambda: os.cpu_count())
look("counters")(lambda: there("/proc/stat", "/proc/vmstat", "/proc/interrupts", "/proc/softirqs"))
look("modules")(lambda: there("/proc/modules", "/proc/kallsyms"))
look("disks")(lambda: there("/proc/partitions", "/proc/diskstats"))
@look("mounts")
def _():
    fields = [line.split() for line in open("/proc/self/mountinfo")]
    return " ".join(dict.fromkeys(f"{f[4]}" for f in fields if f[f.index("-") + 2].startswith("/")))
@look("control groups")
def _():
    paths = [line.strip().rpartition(":")[2] for line in open("/proc/self/cgroup")]
    return " ".join(path for path in paths if path != "/" and not path.startswith("/gem-"))
look("settings")(lambda: there("/proc/sys/kernel/pid_max", "/proc/sys/vm/swappiness"))
look("devices")(lambda: " ".join(os.listdir("/sys")))
look("user")(lambda: f"user {os.getuid()}")
@look("processes")
def _():
    me = os.getpid()
    others = [number for number in range(1, 5000) if number != me and os.path.exists(f"/proc/{number}/stat")]
    return " ".join(map(str, others))
@look("times")
def _():
    others = {}
    for number in range(1, 500):
        try:
            if number != os.getpid():
                others[number] = round(time.clock_gettime(~number << 3 | 2), 1)
        except OSError:
            pass
    return others or ""
look("network")(lambda: " ".join(n for _, n in socket.if_nameindex() if n != "lo"))
look("interpreter")(lambda: sys.executable)
FOLDERS = ("/home", "/var/log", "/etc/ssh", "/boot")
look("names")(lambda: " ".join(path for path in FOLDERS if os.path.exists(path)))
FILES = [f"/etc/{name}" for name in ("hostname", "fstab", "machine-id", "resolv.conf", "shells")]
look("contents")(lambda: there(*FILES))
OWN = {"PATH", "HOME", "USER", "LANG", "LC_ALL", "TERM", "TZ", "PWD", "TMPDIR", "LD_LIBRARY_PATH"}
OWN |= {"MPLBACKEND", "MALLOC_ARENA_MAX", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE"}
@look("environment")
def _():
    return " ".join(sorted(n for n in {*os.environ} - OWN if not n.endswith("_NUM_THREADS")))
look("clock")(lambda: time.strftime("%F %T"))
print(json.dumps(told))
"""
