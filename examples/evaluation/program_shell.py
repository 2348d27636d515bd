"""A tiny agent program: a loop over the model of $OPENAI_BASE_URL that runs the bash commands it gets.

    gem-gym eval terminal:FindText-v0-easy -n 5 --model smollm2 \
        --agent 'program:python examples/evaluation/program_shell.py {task}'

It uses the standard library only. Any program that calls an OpenAI-compatible server can take its place.
"""

import json
import os
import re
import subprocess
import sys
import urllib.request

PROMPT = """{task}

You work in a Linux shell. Answer with one bash command in a ```bash block; you then read what it prints. When
the task is done, answer DONE."""


def ask(messages: list[dict[str, str]]) -> str:
    """Return the model's answer to a conversation."""
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "any", "messages": messages}).encode(),
        {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    with urllib.request.urlopen(request) as answer:
        text: str = json.load(answer)["choices"][0]["message"]["content"]
    return text


def main(task: str) -> None:
    """Work on a task, for at most ten commands."""
    messages = [{"role": "user", "content": PROMPT.format(task=task)}]
    for _ in range(10):
        answer = ask(messages)
        block = re.search(r"```(?:bash|sh)?\n(.*?)```", answer, re.DOTALL)
        if block is None:
            return
        done = subprocess.run(["bash", "-c", block[1]], capture_output=True, text=True, timeout=60)
        printed = (done.stdout + done.stderr)[-4000:] or "(nothing was printed)"
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": printed}]


if __name__ == "__main__":
    main(sys.argv[1])
