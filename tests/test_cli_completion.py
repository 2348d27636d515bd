"""`gem-gym completion`: what bash and zsh offer, with the shells themselves."""

import shutil
import subprocess

import pytest

from gem.cli import main

LOADED = {
    "bash": "source {script}; complete -p gem-gym >/dev/null || exit",
    "zsh": "autoload -Uz compinit; compinit -D -u; source {script}; [[ -n $_comps[gem-gym] ]] || exit",
}
CASES = {
    "gem-gym ev": ["eval"],
    "gem-gym eval --tool": ["--tools", "--tool-calls"],
    "gem-gym eval --api ": ["chat", "responses", "completions"],
    "gem-gym eval --agent so": ["solver"],
    "gem-gym value runs/a 0 --agent o": ["openai:"],
    "gem-gym train --model ": ["tiny", "smollm2"],
    "gem-gym train --algorithm gr": ["grpo"],
    "gem-gym regrade runs/a --grader nu": ["number"],
    "gem-gym export runs/a b --format at": ["atif"],
    "gem-gym eval baseline": ["baseline24"],
    "gem-gym help orac": ["oracle"],
    "gem-gym store ": ["ls", "cat", "merge", "verify", "schema"],
    "gem-gym store ver": ["verify"],
    "gem-gym completion z": ["zsh"],
    "gem-gym store --succ": ["--success"],
    "gem-gym train --env game:Sudoku-v0-e": ["game:Sudoku-v0-easy"],
    "gem-gym play game:Sudoku-v0-h": ["game:Sudoku-v0-hard"],
    "gem-gym export runs/mi": [],
}


@pytest.mark.system
@pytest.mark.parametrize("shell", LOADED)
def test_a_shell_offers_commands_flags_values_and_ids(shell, tmp_path, capsys):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    assert main(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out, encoding="utf-8")
    lines = [LOADED[shell].format(script=script), "offer() { COMP_LINE=$1 COMP_POINT=${#1}; COMPREPLY=()"]
    lines += ["  _gem_gym; echo ${COMPREPLY[@]}", "}"]
    lines += [f'offer "{line}"' for line in CASES]
    done = subprocess.run([shell, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    for line, words in zip(CASES, done.stdout.splitlines(), strict=True):
        if shell == "zsh":  # it chooses by what was typed after the function has returned
            offered = [word for word in words.split() if word.startswith(line.rpartition(" ")[2])]
            assert sorted(offered) == sorted(CASES[line])
        else:  # for bash what stands before a colon is a word of its own
            assert sorted(words.split()) == sorted(word.removeprefix("game:") for word in CASES[line])


def test_another_shell_is_refused(capsys):
    assert main(["completion", "fish"]) == 2
    assert "bash" in capsys.readouterr().err
