"""Tasks on a running system: processes, and a service on the machine's own loopback."""

from __future__ import annotations

import json
from random import Random

from gem.envs.terminal.base import WORDS, Machine, TerminalTask, expect
from gem.envs.terminal.tasks.texts import instruction, program, solution


def processes(rng: Random, hard: bool) -> TerminalTask:
    """Find one of several running workers and end it cleanly."""
    count = 9 if hard else 4
    names = [f"worker-{name}" for name in rng.sample(WORDS, count)]
    jobs = rng.sample(WORDS, count)
    seals = [f"{rng.getrandbits(64):016x}" for _ in names]
    ours = rng.randrange(count)
    setup = ["mkdir -p spool state ready"]
    for name, job, seal in zip(names, jobs, seals, strict=True):
        setup.append(f"JOB={job} python3 -I worker.py {name} <<< {seal} > /dev/null 2>&1 &")
    setup += [f"until [ $(ls ready | wc -l) = {count} ]; do sleep 0.02; done", "rm -r ready"]
    if hard:
        which = f"Its environment has JOB={jobs[ours]}."
        find = f"grep -lzx 'JOB={jobs[ours]}' /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3"
    else:
        which = f"It holds spool/{jobs[ours]}.lock open."
        find = f"ls -l /proc/[0-9]*/fd/* 2>/dev/null | grep 'spool/{jobs[ours]}.lock$'"
        find += " | sed 's|.*/proc/\\([0-9]*\\)/.*|\\1|'"

    def check(machine: Machine) -> str:
        stopped = machine.run("ls -A state").stdout.split()
        if stopped != [names[ours]]:
            return f"ended in good order: {' '.join(stopped)[:100] or 'none'}"
        if machine.text(f"state/{names[ours]}") != seals[ours]:
            return "the worker did not write its state itself"
        return expect("ended.txt", names[ours])(machine)

    return TerminalTask(
        instruction("processes", count=count, which=which),
        check,
        solution("processes", find=find),
        {"worker.py": program("worker")},
        setup="\n".join(setup),
        looks=("ls spool", "ls -A state"),
    )


def service(rng: Random, hard: bool) -> TerminalTask:
    """Query a small web service page by page."""
    port = rng.randint(20000, 40000)
    kinds = rng.sample(WORDS, 4)
    rows = [
        {"id": number, "kind": rng.choice(kinds), "count": rng.randint(1, 500)}
        for number in range(180 if hard else 25)
    ]
    kind = kinds[0]
    rows[-1]["kind"] = kind
    key = f"{rng.getrandbits(64):016x}" if hard else ""
    about = f"The service listens on 127.0.0.1:{port}.\n"
    if hard:
        about += "Clients send the header X-Key. Its value is the key of [client] in service/client.ini.\n"
    start = json.dumps([rows, key, 20 if hard else 10])
    return TerminalTask(
        instruction(
            "service", port=port, wants="It wants a key: see service/README. " if hard else "", kind=kind
        ),
        expect("total.txt", str(sum(row["count"] for row in rows if row["kind"] == kind))),  # type: ignore[misc]
        solution(
            "service",
            port=port,
            kind=kind,
            key="open('service/client.ini').read().split()[-1]" if hard else "''",
        ),
        {
            "service/README": about.encode(),
            "service/rows": f"{start}\n".encode(),
            "service/server.py": program("server").replace(b"PORT", str(port).encode()),
            **({"service/client.ini": f"[client]\nkey = {key}\n".encode()} if hard else {}),
        },
        # the rows are read and removed before the agent starts: only the service has them; /proc would show a
        # removed file that is its standard input, but not what went through a pipe
        setup="cat service/rows | python3 -I service/server.py > /dev/null 2>&1 &\n"
        "until [ -e service/ready ]; do sleep 0.02; done; rm service/ready service/rows service/server.py",
        loopback=True,
        looks=("cat service/README", "ls service"),
    )
