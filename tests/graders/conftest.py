import pytest

from gem.sandbox.base import SandboxFailed
from gem.sandbox.shared import default_sandbox


@pytest.fixture(scope="module")
def sandbox():
    """Return the sandbox of this machine; the test is skipped where none isolates."""
    try:
        found = default_sandbox()
        found.run("pass")
    except SandboxFailed as error:
        pytest.skip(f"no backend of the sandbox isolates here: {error}")
    return found
