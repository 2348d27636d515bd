"""Run an example that writes a data set and then becomes the framework's program."""

import os
import runpy
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def launch(name, folder, monkeypatch):
    """Return the command that an example of a researcher would become, and the files that it wrote."""
    started = []
    monkeypatch.setattr(os, "execv", lambda program, command: started.append([program, *command]))
    monkeypatch.setattr(sys, "argv", [name, "--out", str(folder), "--model", "mine"])
    monkeypatch.setattr(os, "environ", dict(os.environ))  # verl's example sets a variable for its child
    runpy.run_path(str(EXAMPLES / f"researcher/{name}.py"), run_name="__main__")
    ((program, *command),) = started
    assert program == command[0] == sys.executable
    return command[1:], sorted(path.name for path in folder.iterdir())
