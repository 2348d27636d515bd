"""Let the programs loose on a backend: ``python tests/sandbox/abuse --backend userns --how run``.

Prints a line for each program that did harm, and a line of JSON at the end; exits with 1 if any did.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from arena import Arena
from second_wave import PROGRAMS

from gem.sandbox.choice import open_sandbox


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend")
    parser.add_argument("--how", default="run", choices=("run", "session", "shell", "judge"))
    parser.add_argument("--only", default="", help="a part of the program's name or group")
    parser.add_argument("--light", action="store_true", help="leave out what takes seconds")
    parser.add_argument("--verbose", action="store_true")
    asked = parser.parse_args()
    sandbox = open_sandbox(asked.backend, allow_unsafe=True)
    harmed, gaps, tried = {}, {}, 0
    with Arena() as arena:
        for program in PROGRAMS:
            if asked.only not in f"{program.group}: {program.name}" or (asked.light and program.heavy):
                continue
            if not (program.runs if asked.how != "session" else program.sessions):
                continue
            begun, tried = time.monotonic(), tried + 1
            harm = arena.attack(sandbox, program, asked.how)
            if asked.verbose:
                print(f"{time.monotonic() - begun:5.2f} s  {program.group}: {program.name}", flush=True)
            if harm:
                known = program.gap.get(sandbox.backend)
                (gaps if known else harmed)[f"{program.group}: {program.name}"] = harm
                print(f"{'KNOWN' if known else 'HARM'}  {program.group}: {program.name}: {harm}", flush=True)
    sandbox.close()
    print(json.dumps({"backend": sandbox.backend, "tried": tried, "harm": harmed, "gaps": gaps}))
    return 1 if harmed else 0


if __name__ == "__main__":
    sys.exit(main())
