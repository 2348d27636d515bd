"""Pages in Chromium: steps per second of wall time and CPU time, with several environments at once.

``python -m bench.browser``. The experts play pages of MiniWoB++, each environment in a thread. Resets
take time too, and are no steps. The CPU time is that of all processes, of Chromium too.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from pathlib import Path

import gem
from bench.common import choose_size, left_out_where_missing, parse_args, table, write_json
from gem.envs.kit.browser import close_browsers
from gem.testing.leaks import descendants

PAGES = ("click-button", "click-checkboxes", "click-tab-2", "email-inbox", "login-user", "navigate-tree")
SECONDS = choose_size(20.0, 1.0)
AT_ONCE = (1, 4, 16)


def main() -> None:
    parse_args(argparse.ArgumentParser(description="Pages in Chromium: steps per second."))
    with left_out_where_missing():
        figures = {number: measure(number) for number in AT_ONCE}
        table(
            "steps and resets per second, played by the experts",
            ["environments", "steps a second", "resets a second", "CPU ms per step with its resets"],
            [
                (str(number), f"{steps:.0f}", f"{resets:.0f}", f"{cpu_ms:.1f}")
                for number, (steps, resets, cpu_ms) in figures.items()
            ],
        )
        write_json("browser", figures)


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of those that it started and that run."""
    ticks = 0
    for pid in (os.getpid(), *descendants()):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(number: int) -> tuple[float, float, float]:
    """Return the steps and resets per second of so many environments at once, and CPU ms per step."""
    envs = [gem.make(f"miniwob:{PAGES[i % len(PAGES)]}") for i in range(number)]
    for env in envs:
        env.reset(seed=0)
    counts = [[0, 0] for _ in envs]
    begin, cpu = time.monotonic(), cpu_seconds()

    def play(env: gem.Env, count: list[int]) -> None:
        for seed in range(10_000):
            env.reset(seed=seed)
            count[1] += 1
            while True:
                step = env.step(env.solve())
                count[0] += 1
                if time.monotonic() > begin + SECONDS:
                    return
                if step.done:
                    break

    threads = [threading.Thread(target=play, args=pair) for pair in zip(envs, counts, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds, cpu = time.monotonic() - begin, cpu_seconds() - cpu
    for env in envs:
        env.close()
    close_browsers()
    steps, resets = (sum(column) for column in zip(*counts, strict=True))
    return steps / seconds, resets / seconds, 1000 * cpu / steps


if __name__ == "__main__":
    main()
