import pytest

from gem.envs.terminal.env import check_shell
from gem.sandbox import SandboxFailed


@pytest.fixture(scope="module")
def shell():
    """Skip tests where no sandbox runs a shell."""
    try:
        check_shell()
    except SandboxFailed as absent:
        pytest.skip(str(absent))
