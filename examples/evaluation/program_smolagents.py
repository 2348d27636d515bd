"""An agent program: smolagents, unchanged, with one tool that runs a bash command. One command per task.

    gem-gym eval examples/author/shell_tasks.py:HeldOutTasks --turns 1 -n 20 --model smollm2 \
        --agent 'program:SMOLAGENTS/bin/python examples/evaluation/program_smolagents.py {task}'

SMOLAGENTS is a virtual environment with `smolagents[openai]`, without gem. Checked with smolagents 1.26.0.
"""

import os
import subprocess
import sys

from smolagents import CodeAgent, LogLevel, OpenAIModel, tool
from smolagents.agents import EMPTY_PROMPT_TEMPLATES

PROMPTS = {
    **EMPTY_PROMPT_TEMPLATES,
    "system_prompt": """Solve each task with one bash command.
Task: Delete old.txt.
<code>
final_answer(bash("rm old.txt"))
</code>""",
}


@tool
def bash(command: str) -> str:
    """Run a bash command and return what it prints.

    Args:
        command: the command.
    """
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=20)
    return (done.stdout + done.stderr)[-2000:]


if __name__ == "__main__":
    patient = {"timeout": 7200, "max_retries": 0}  # a small machine answers many programs at a time
    url, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
    model = OpenAIModel("any", url, key, client_kwargs=patient, max_tokens=40)
    CodeAgent([bash], model, PROMPTS, max_steps=1, verbosity_level=LogLevel.OFF).run(sys.argv[1])
