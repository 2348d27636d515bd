"""The name of the nodes' spools, which a resuming driver finds beside its store."""

import pytest

from gem.rollout import EpisodeStore
from gem.rollout.ray_spool import Spool


@pytest.fixture
def store(tmp_path):
    with EpisodeStore(tmp_path / "e.jsonl") as store:
        yield store


def test_a_resuming_driver_finds_the_spools_of_its_store(store, tmp_path):
    beside = tmp_path / "e.jsonl.spool"
    first = Spool(store, tmp_path / "nodes")
    name, inode = beside.read_text().split()
    assert (len(name), int(inode)) == (16, store.path.stat().st_ino)
    assert first.folder == tmp_path / "nodes" / name
    assert Spool(store, tmp_path / "nodes").folder == first.folder
    assert Spool(store, None).folder.name.endswith(f"-{name}")
    first.end()
    assert not beside.exists()
    assert Spool(store, tmp_path / "nodes").folder != first.folder


@pytest.mark.parametrize(
    "written", ["", "../../etc 1", "0123456789abcdef", "0123456789abcdef 1", "\x00 \xff"]
)
def test_another_stores_name_and_one_that_is_none_are_replaced(store, tmp_path, written):
    beside = tmp_path / "e.jsonl.spool"
    beside.write_text(written, encoding="latin-1")
    folder = Spool(store, tmp_path / "nodes").folder
    name, inode = beside.read_text().split()
    assert (folder, int(inode)) == (tmp_path / "nodes" / name, store.path.stat().st_ino)
    assert name not in written.split()
