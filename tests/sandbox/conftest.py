from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from gem.sandbox import image
from gem.sandbox.base import SandboxFailed
from gem.sandbox.client import ZygoteSandbox


@pytest.fixture(scope="session")
def sandbox() -> Iterator[ZygoteSandbox]:
    """One sandbox of the default backend for all tests that do not kill it."""
    with contextlib.ExitStack() as stack:
        try:
            opened = stack.enter_context(ZygoteSandbox(begin=("bare",)))
            opened.run("pass")
        except SandboxFailed as error:
            pytest.skip(
                f"the userns backend is not to be had here, bwrap-slots or landlock would be next: {error}"
            )
        yield opened


@pytest.fixture(scope="session")
def interpreter_in_tmp() -> list[str]:
    """What programs see in /tmp before they write there: the way to an interpreter that lies below it."""
    kept = image.image(image.Interpreter.this(), ()).kept
    return [os.path.basename(path) for path in kept if os.path.dirname(path) == "/tmp"]
