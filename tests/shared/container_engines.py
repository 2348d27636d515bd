"""A container engine of this machine, for the tests of tasks that play in its containers."""

import os
from contextlib import contextmanager

import pytest

from gem.sandbox.base import SandboxFailed
from gem.sandbox.container import IMAGE, find_engine

SOME_IMAGE = os.environ.get("GEM_SANDBOX_IMAGE") or IMAGE


@contextmanager
def engine_of_tasks(name, monkeypatch):
    """Find the engine, or skip with the reason; in the end none of its tasks' containers is left."""
    monkeypatch.setenv("GEM_SANDBOX_ENGINE", name)
    try:
        found = find_engine(image=SOME_IMAGE)
    except SandboxFailed as absent:
        pytest.skip(str(absent))
    yield found
    assert not found.ask("ps", "--all", "--quiet", "--filter", "label=gem-terminal").strip()
