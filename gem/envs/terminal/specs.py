"""Registry entries of the terminal environments."""

from __future__ import annotations

from gem.specs import EnvSpec, Needs

TERMINAL = """
Archives Checksums ConfigEdit CsvReport Duplicates Encodings FindText GitHistory GitMerge JsonLines
LogAnalysis Makefile PatchRepo Permissions Processes Rename Schedule Service Symlinks
""".split()  # noqa: SIM905  a column of quoted names would fill the screen
"""The families of terminal tasks, each with two levels."""

SPECS = tuple(
    EnvSpec(
        f"terminal:{name}-v0-{level}",
        "gem.envs.terminal.env:TerminalEnv",
        {"name": name, "level": level},
        extra="terminal",
        max_turns=20,
        deterministic=False,  # the tasks are deterministic; clocks and process ids in observations are not
        forkable=False,
        waits=True,
        needs=Needs(sandbox=True),
        solver="oracle" if name == "PatchRepo" else "exact",
    )
    for name in TERMINAL
    for level in ("easy", "hard")
)
