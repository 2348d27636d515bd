"""What a program sees of the machine: no more than the table in docs/guides/sandbox_isolation.md says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gem.sandbox.choice import open_sandbox
from gem.sandbox.command import describe
from gem.sandbox.selftest import self_test
from gem.sandbox.sights import SIGHTS, list_sights

pytestmark = pytest.mark.filterwarnings("ignore:programs run on the backend")

PAGE = Path(__file__).resolve().parents[2] / "docs/guides/sandbox_isolation.md"
BACKENDS = ("userns", "bwrap-slots", "landlock")


def table():
    """The table of the page: what is seen, by backend and words."""
    rows = re.findall(r"^\| (.+?) \| (yes|no) \| (yes|no) \| (yes|no) \|$", PAGE.read_text(), re.MULTILINE)
    return {row[0]: dict(zip(BACKENDS, row[1:], strict=True)) for row in rows}


def test_the_page_has_every_sight():
    assert set(SIGHTS.values()) <= set(table())


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_program_sees_no_more_than_the_page_says(backend):
    if not self_test(backend).passed:
        pytest.skip(f"not to be had here: {self_test(backend).why_not}")
    with open_sandbox(backend, begin=("bare",)) as sandbox:
        found = list_sights(sandbox)
    told = table()
    assert {
        name: words for name, words in found.items() if words and told[SIGHTS[name]][backend] == "no"
    } == {}


def test_a_session_has_its_tools_and_not_what_tells_machines_apart(sandbox):
    with sandbox.session() as session:
        for path in ("/proc/cmdline", "/proc/sys/kernel/random/boot_id", "/proc/partitions"):
            assert session.shell(f"cat {path}").stdout == ""
        assert session.shell("head -1 /proc/meminfo").stdout.startswith("MemTotal")
        assert session.shell("test -e /proc/stat && test -e /proc/uptime").ok


def test_a_kernel_without_a_proc_of_processes_alone_hides_the_same(sandbox, monkeypatch):
    from gem.sandbox import lockdown

    seen_mounts = []

    def mount(source, target, kind, flags, data=None):
        seen_mounts.append((target, data))
        if data == "subset=pid":
            raise OSError(22, "mount")

    monkeypatch.setattr(lockdown, "mount", mount)
    lockdown.show_processes(tools=False)
    assert ("/proc", None) in seen_mounts
    assert ("/proc/cmdline", None) in seen_mounts


def test_the_command_says_what_can_be_seen(sandbox):
    lines, held = describe("userns", sights=True)
    assert held
    assert any(SIGHTS["command line"] in line and line.endswith("hidden") for line in lines)
