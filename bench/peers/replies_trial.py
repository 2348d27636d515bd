"""Labelled replies judged by another package: ``replies_trial.py NAME FILE COUNT``; see bench/replies.py.

Prints ``{name: {"verdicts": [true, ...], "cpu_s": seconds}}``, a name for each matcher of the package.
"""

import json
import lzma
import re
import sys
import time
from pathlib import Path


def math_verify():
    """Return Math-Verify's default: what is parsed from the gold as a formula and from the reply."""
    from math_verify import parse, verify

    return {"math-verify": lambda reply, gold: bool(verify(parse(f"${gold}$"), parse(reply)))}


def gem_llm():
    """Return gem-llm's grader of its mathematics environment."""
    from gem.envs.math_env import MathEnv

    return {"gem-llm": lambda reply, gold: bool(MathEnv.check_correct(reply, gold))}


def lm_eval():
    """Return the matchers of lm-eval's tasks gsm8k (flexible-extract) and minerva_math (exact_match)."""
    from lm_eval.tasks.minerva_math.utils import (
        is_equiv,
        last_boxed_only_string,
        normalize_final_answer,
        remove_boxed,
    )

    number = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")  # the pattern of its gsm8k.yaml

    def plain(text):
        """Return a number without what its gsm8k.yaml ignores."""
        return re.sub(r"\.$", "", re.sub(r"[,$]", "", text))

    def flexible(reply, gold):
        numbers = ["".join(groups) for groups in number.findall(reply)]
        return bool(numbers) and plain(numbers[-1]) == plain(gold)

    def minerva(reply, gold):
        box = last_boxed_only_string(reply)
        stated = re.search(r"Final Answer: The final answer is(.*?). I hope it is correct.", reply)
        answer = remove_boxed(box) if box else stated[1].strip() if stated else "[invalidanswer]"
        return bool(is_equiv(normalize_final_answer(answer), normalize_final_answer(gold)))

    return {"lm-eval gsm8k": flexible, "lm-eval minerva": minerva}


def inspect():
    """Return the matching of Inspect's `match()` scorer, with and without its numeric form."""
    from inspect_ai.scorer._common import match_str

    return {
        "inspect match": lambda reply, gold: match_str(reply, gold)[1],
        "inspect match(numeric)": lambda reply, gold: match_str(reply, gold, numeric=True)[1],
    }


MATCHERS = {"math-verify": math_verify, "gem-llm": gem_llm, "lm-eval": lm_eval, "inspect": inspect}


def main(name, path, count):
    """Judge the first `count` replies with each matcher of a package; an exception is a refusal."""
    text = Path(path).read_bytes()
    text = lzma.decompress(text) if path.endswith(".xz") else text
    rows = [json.loads(line) for line in text.decode().splitlines()][: int(count)]
    results = {}
    for matcher, judge in MATCHERS[name]().items():
        started, verdicts = time.process_time(), []
        for row in rows:
            try:
                verdicts.append(judge(row["reply"], row["gold"]))
            except Exception:
                verdicts.append(False)
        results[matcher] = {"verdicts": verdicts, "cpu_s": time.process_time() - started}
    return results


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
