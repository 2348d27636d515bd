"""A small task folder in Harbor's layout, which tests write with changes of their own."""

FILES = {
    "task.toml": '[task]\nname = "gem/answer"\n[verifier]\ntimeout_sec = 60.0\n',
    "instruction.md": "Write the sum of the numbers in /app/numbers.txt to /app/answer.txt.\n",
    "environment/numbers.txt": "40\n2\n",
    "tests/test.sh": (
        '#!/bin/bash\n[ "$(cat /app/answer.txt)" = 42 ] && reward=1 || reward=0\n'
        "echo $reward > /logs/verifier/reward.txt\n"
    ),
    "solution/solve.sh": "awk '{s+=$1} END {print s}' /app/numbers.txt > /app/answer.txt\n",
}


def write_task(folder, **files):
    """Write a task folder and return it; `files` are added by path, None leaves one out."""
    for path, data in {**FILES, **files}.items():
        if data is not None:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data if isinstance(data, bytes) else data.encode())
    return folder


def named(name, difficulty="easy", more=""):
    """Return a task.toml."""
    return f'[task]\nname = "gem/{name}"\n[metadata]\ndifficulty = "{difficulty}"\n{more}'
