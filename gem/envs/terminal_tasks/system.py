"""Tasks on a running system: processes, and a service on the box's own loopback."""

from __future__ import annotations

import json
import textwrap
from random import Random

from gem.envs.terminal_tasks.base import WORDS, Box, TerminalTask, expect

_WORKER = """
import os, signal, sys
name, seal = sys.argv[1], sys.stdin.readline().strip()
held = open("spool/" + os.environ["JOB"] + ".lock", "w")

def stop(*_):
    with open("state/" + name, "w") as out:
        out.write(seal + "\\n")
    os._exit(0)

signal.signal(signal.SIGTERM, stop)
open("ready/" + name, "w").close()
while True:
    signal.pause()
"""


def processes(rng: Random, hard: bool) -> TerminalTask:
    """Find one of several running workers and end it in good order."""
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

    def check(box: Box) -> str:
        stopped = box.run("ls -A state").stdout.split()
        if stopped != [names[ours]]:
            return f"ended in good order: {' '.join(stopped)[:100] or 'none'}"
        if box.text(f"state/{names[ours]}") != seals[ours]:
            return "the worker did not write its state itself"
        return expect("ended.txt", names[ours])(box)

    return TerminalTask(
        f"{count} workers run in the background; each is a Python process with its name as the last argument "
        "of its "
        f"command line. End one of them, with SIGTERM: {which} Before it exits it writes its state to "
        "state/. Leave "
        "the others alone, and write the name of the one that you ended to ended.txt.",
        check,
        f"""pid=$({find} | head -n 1)
name=$(tr '\\0' '\\n' < /proc/$pid/cmdline | tail -n 1)
kill -TERM "$pid"
until [ -s "state/$name" ]; do sleep 0.02; done
echo "$name" > ended.txt""",
        {"worker.py": _WORKER.lstrip().encode()},
        setup="\n".join(setup),
        looks=("ls spool", "ls -A state"),
    )


_SERVER = """
import http.server, json, sys
from urllib.parse import parse_qs, urlsplit
rows, key, size = json.loads(sys.stdin.readline())

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        url = urlsplit(self.path)
        if key and self.headers.get("X-Key") != key:
            return self.answer(401, {"error": "send the header X-Key; see service/README"})
        if url.path != "/items":
            return self.answer(404, {"error": "there is /items?page=N, from 1"})
        page = int(parse_qs(url.query).get("page", ["1"])[0])
        more = rows[(page - 1) * size:page * size]
        return self.answer(200, {"items": more, "next": page + 1 if page * size < len(rows) else None})

    def answer(self, code, value):
        body = json.dumps(value).encode() + b"\\n"
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
open("service/ready", "w").close()
server.serve_forever()
"""

_CLIENT = """python3 - <<'END'
import json, urllib.request
key = {key}
page, total = 1, 0
while page:
    url = "http://127.0.0.1:{port}/items?page=%d" % page
    request = urllib.request.Request(url, headers={{"X-Key": key}} if key else {{}})
    answer = json.load(urllib.request.urlopen(request))
    total += sum(item["count"] for item in answer["items"] if item["kind"] == "{kind}")
    page = answer["next"]
open("total.txt", "w").write("%d\\n" % total)
END"""


def service(rng: Random, hard: bool) -> TerminalTask:
    """Ask a small web service, page by page."""
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
        f"A web service runs at http://127.0.0.1:{port}: GET /items?page=1 answers with a page of items as "
        "JSON; `next` "
        "is the number of the next page, or null. "
        f"{'It wants a key: see service/README. ' if hard else ''}Write to "
        f"total.txt the sum of `count` over all items of kind '{kind}'.",
        expect("total.txt", str(sum(row["count"] for row in rows if row["kind"] == kind))),  # type: ignore[misc]
        _CLIENT.format(
            port=port,
            kind=kind,
            key="open('service/client.ini').read().split()[-1]" if hard else "''",
        ),
        {
            "service/README": about.encode(),
            "service/rows": f"{start}\n".encode(),
            "service/server.py": textwrap.dedent(_SERVER.replace("PORT", str(port))).lstrip().encode(),
            **({"service/client.ini": f"[client]\nkey = {key}\n".encode()} if hard else {}),
        },
        # the rows are read and removed before the agent comes: the service is the only way to them
        setup="python3 -I service/server.py < service/rows > /dev/null 2>&1 &\n"
        "until [ -e service/ready ]; do sleep 0.02; done; rm service/ready service/rows service/server.py",
        loopback=True,
        looks=("cat service/README", "ls service"),
    )
