"""What the tests of hosts share."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # host_envs is imported by worker processes as well


@pytest.fixture(autouse=True, scope="session")
def light_main() -> Iterator[None]:
    """Keep workers from importing pytest, which a spawned process does with its parent's main module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "__main__", ModuleType("__main__"))
        yield
