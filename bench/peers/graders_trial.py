"""One pass of gem-llm's mathematics grader over pairs in a JSON file; see bench/graders.py.

Prints ``{class: {"per_cpu_s": pairs per CPU-second, "wrong": verdicts that are wrong}}``. It is called on the
main thread, the only one where it works.
"""

import json
import sys
import time

from gem.envs.math_env import MathEnv


def main(path):
    """Grade each class."""
    with open(path) as file:
        classes = json.load(file)
    MathEnv.check_correct("\\boxed{x+1}", "x+2")  # warm
    figures = {}
    for name, rows in classes.items():
        started = time.process_time()
        verdicts = [bool(MathEnv.check_correct(answer, gold)) for answer, gold, _ in rows]
        spent = time.process_time() - started
        wrong = sum(verdict != row[2] for verdict, row in zip(verdicts, rows, strict=True))
        figures[name] = {"per_cpu_s": len(rows) / spent, "wrong": wrong}
    return figures


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
