"""Which tests may be skipped where no sandbox runs a model's programs, and whether this is such a machine.

A test is skipped if it is one of these, it asked for a sandbox, none worked, and it failed then. All others
that fail have failed.
"""

import functools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gem.sandbox import choice
from gem.sandbox.backends import ORDER
from gem.sandbox.base import SandboxFailed
from gem.sandbox.selftest import self_test

RUN_PROGRAMS = re.compile(
    r"""
    tests/(docs|golden|tools)/
    | tests/envs/(code|database|terminal)/
    | tests/envs/data/test_data_env.py::test_programs_run_their_tests
    | tests/graders/test_code
    | tests/rollout/test_regrade.py::test_\S*code
    | tests/test_cli_eval.py::test_tools_and_wrappers_are_put_around_environments
    | tests/testing/test_audit_code
    | tests/upstream/test_(data_clients|differences|running|tool_clients)
    | tests/test_trust.py::test_a_command_on_a_store_of_somebody_else_runs_nothing
    | \[(code|db|terminal):  # an id
    | \[(python_tool|tools|math:\S+\+python)
    """,
    re.VERBOSE,
)

REFUSED: list[str] = []
"""What was said when a sandbox was asked for and none works; the tests' hooks empty it before each test."""

_named = os.environ.get("GEM_SANDBOX")  # now, because tests change it


@contextmanager
def kept_refusals() -> Iterator[None]:
    """Keep in REFUSED what is said each time that no sandbox works."""
    choose = choice._choose

    def choose_and_keep(*args):
        try:
            return choose(*args)
        except SandboxFailed as error:
            REFUSED.append(str(error))
            raise

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "_choose", choose_and_keep)
        yield


@functools.cache
def programs_run() -> bool:
    """Return whether a backend of this machine isolates; one that GEM_SANDBOX names is expected to."""
    return _named != "none" and (bool(_named) or any(self_test(name).passed for name in ORDER))


def is_for_want_of_a_sandbox(test: str) -> bool:
    """Return whether a test that failed lacked a sandbox, and is one of those that need one."""
    return bool(REFUSED) and RUN_PROGRAMS.search(test) is not None and not programs_run()
