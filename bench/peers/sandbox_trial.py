"""The peer's Python tool; see bench/sandbox.py. Called with the folder of the programs' Python and a request.

``{"times": [code, n]}`` prints the seconds of n calls one by one; ``{"rate": [code, n, at_once]}`` the
seconds that n calls took together; ``{"judge": [code, inputs]}`` the seconds of running every input, five
at once, as its environments do.
"""

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

os.environ["PATH"] = sys.argv[1] + os.pathsep + os.environ["PATH"]

from gem.utils.sandbox import run_python


def main(request):
    ((verb, asked),) = request.items()
    if verb == "times":
        code, n = asked
        return [timed(lambda: run_python(code, "none")) for _ in range(n)]
    if verb == "rate":
        code, n, at_once = asked
        with ThreadPoolExecutor(at_once) as pool:
            return timed(lambda: list(pool.map(lambda _: run_python(code, "none"), range(n))))
    code, inputs = asked
    with ThreadPoolExecutor(5) as pool:
        return timed(lambda: list(pool.map(lambda text: run_python(code, "none", stdin=text), inputs)))


def timed(call):
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[2]))))
