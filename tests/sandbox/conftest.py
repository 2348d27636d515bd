from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from gem.sandbox.base import SandboxFailed
from gem.sandbox.client import UsernsSandbox


@pytest.fixture(scope="session")
def sandbox() -> Iterator[UsernsSandbox]:
    """One sandbox of the default rung for all tests that do not kill it."""
    with contextlib.ExitStack() as stack:
        try:
            opened = stack.enter_context(UsernsSandbox(begin=("bare",)))
            opened.run("pass")
        except SandboxFailed as error:
            pytest.skip(
                f"the userns rung is not to be had here, bwrap-slots or landlock would be next: {error}"
            )
        yield opened
