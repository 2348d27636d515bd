"""Files that are replaced as a whole are on the disk before they take the old one's place."""

import errno
import math
import os
from pathlib import Path

import pytest

from gem.errors import StoreError
from gem.files import replace_file, replace_nan


@pytest.fixture
def steps(monkeypatch):
    """Return the names of what was asked of the file system, as it happens."""
    steps, sync, replace = [], os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: steps.append(f"sync {os.fstat(fd).st_size}") or sync(fd))
    monkeypatch.setattr(Path, "replace", lambda self, to: steps.append("replace") or replace(self, to))
    return steps


def test_a_file_is_replaced_when_the_new_one_is_on_the_disk(steps, tmp_path):
    path = tmp_path / "some" / "figures.json"
    for text in ("old", "newer"):
        with replace_file(path, parents=True) as partial:
            partial.write_text(text)
        assert path.read_text() == text
    assert steps == ["sync 3", "replace", "sync 5", "replace"]
    assert [each.name for each in path.parent.iterdir()] == ["figures.json"]


def replace_and_fail(path, error):
    with replace_file(path) as partial:
        partial.write_text("half")
        raise error


@pytest.mark.parametrize(
    ("place", "error", "raised", "told"),
    [
        ("figures.json", ZeroDivisionError("by 0"), ZeroDivisionError, "by 0"),
        (
            "figures.json",
            OSError(errno.ENOSPC, "full"),
            StoreError,
            r"json cannot be written: full\. Free disk space",
        ),
        (
            "none/x",
            ZeroDivisionError("by 0"),
            StoreError,
            "cannot be written: No such file or directory. Choose",
        ),
    ],
)
def test_a_block_that_fails_leaves_the_old_file_and_nothing_beside_it(
    steps, tmp_path, place, error, raised, told
):
    path = tmp_path / "figures.json"
    path.write_text("old")
    with pytest.raises(raised, match=told):
        replace_and_fail(tmp_path / place, error)
    assert steps == []
    assert (path.read_text(), [each.name for each in tmp_path.iterdir()]) == ("old", ["figures.json"])


def test_numbers_that_json_lacks_become_null():
    values = {"a": (1.5, math.nan, {"b": -math.inf}), "c": True}
    assert replace_nan(values) == {"a": [1.5, None, {"b": None}], "c": True}
