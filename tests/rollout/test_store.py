import errno
import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from gem import codec
from gem.agents.random import RandomAgent
from gem.content import Image, Message, Text, ToolCall
from gem.errors import BadArgument, DuplicateEpisode, SchemaMismatch, StoreError
from gem.history import HistoryPolicy
from gem.record import SCHEMA, Episode, Limits, RunInfo, SeatEnd, StopReason, Turn, Verdict
from gem.rollout import EpisodeStore, Job, indexed_file, rollout
from gem.rollout.index import Index
from gem.rollout.indexed_file import SAVE_EVERY, IndexedFile
from gem.rollout.store import env_key, merge
from gem.specs import TaskRef

DATA = Path(__file__).parent / "data"
RUN = RunInfo("run", "agent", "model", {"temperature": 1.0}, limits=Limits(turns=9), history=HistoryPolicy())


def episode(number=0, *, run=RUN, spec="game:X", stop=StopReason.SOLVED, reward=0.5, **changes):
    first, second = Turn("agent", "rules", "5", reward=0.25), Turn("agent", "higher", "7")
    first.hold((1, 2, 3), (4, 5), (-0.5, -1.0))
    second.extend(first, (6,), (7,), (-0.1,))
    second.reward = reward - 0.25
    changes = {"job": f"e{number}", "verdict": Verdict.SCORED, **changes}
    ends = {"agent": SeatEnd(stop, terminated=True, observation="bye")}
    return Episode(TaskRef(spec, seed=number), run, turns=[first, second], stop=stop, ends=ends, **changes)


def index_of(path):
    return path.with_name(path.name + ".index.sqlite")


def jobs(store):
    return [each.job for each in store]


def lines(path):
    return path.read_bytes().splitlines(keepends=True)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "episodes.jsonl"


def test_what_was_appended_is_read_back_by_the_writer_and_by_another(path):
    wanted = [episode(i) for i in range(5)]
    with EpisodeStore(path) as store:
        for each in wanted:
            store.append(each)
        assert list(store) == wanted
        assert EpisodeStore(path, read_only=True)[-2] == wanted[3]
        assert store[1:4] == wanted[1:4]
    assert [json.loads(line)["schema"] for line in lines(path)] == [SCHEMA] * 6
    assert [line.startswith(codec.RUN_LINE) for line in lines(path)] == [True] + [False] * 5


def test_played_episodes_survive_storing(path):
    episodes = rollout([Job("game:GuessTheNumber-v0-hard", seed) for seed in range(20)], RandomAgent())
    with EpisodeStore(path) as store:
        for each in episodes:
            store.append(each)
        assert list(store) == episodes
        assert [each.transcript_hash() for each in store] == [each.transcript_hash() for each in episodes]


def test_pictures_and_surrogates_are_found_by_what_they_are(path):
    odd = episode(1, job="\ud800", group="\udfff", run=RunInfo("\ud801"))
    odd.task = TaskRef("game:\ud802", seed=2**70)
    odd.turns[0].observation = Text("look \ud800"), Image(b"\x89PNG\x00\xff", "image/png", "a \udfff cat")
    with EpisodeStore(path) as store:
        store.append(odd)
        (entry,) = store.select(job="\ud800")
    with EpisodeStore(path, read_only=True) as store:
        assert index_of(path).exists()
        for wanted in ({"job": "\ud800"}, {"spec": "game:\ud802"}, {"seed": 2**70}, {"group": "\udfff"}):
            assert store.select(**wanted) == [entry]
        assert store.get(odd.id) == odd
        assert (entry.run, entry.seed) == ("\ud801", 2**70)


def test_token_ids_can_be_left_out(path):
    with EpisodeStore(path, tokens=False) as store:
        store.append(episode())
        turn = store[0].turns[0]
        written = store.select()
    assert (len(turn.prompt_ids), len(turn.token_ids), turn.logprobs) == (0, 0, None)
    assert (turn.action, turn.reward) == ("5", 0.25)
    assert b"token_ids" not in path.read_bytes()
    index_of(path).unlink()
    with EpisodeStore(path, read_only=True) as store:
        assert store.select() == written
    assert written[0].tokens == 0


@pytest.mark.parametrize("kept", [1, 5, 11, 40, -3, -2])
def test_a_torn_last_line_is_skipped_counted_and_closed_off(path, kept):
    with EpisodeStore(path) as store:
        store.append(episode(0))
        store.append(episode(1))
    *whole, torn = lines(path)
    path.write_bytes(b"".join(whole) + torn[:kept])
    with EpisodeStore(path) as store:
        assert jobs(store) == ["e0"]
        assert store.torn == 1
        store.append(episode(2))
        store.append(episode(3))
        assert jobs(store) == ["e0", "e2", "e3"]
        assert store.torn == 1
    with EpisodeStore(path, read_only=True) as again:
        assert jobs(again) == ["e0", "e2", "e3"]


@pytest.mark.parametrize("cut", [b"\n", b"\r\n"])
@pytest.mark.parametrize("indexed", [True, False])
def test_a_last_line_that_lacks_only_its_line_break_is_an_episode(path, cut, indexed):
    wanted = [episode(i) for i in range(4)]
    with EpisodeStore(path) as store:
        for each in wanted[:2]:
            store.append(each)
    path.write_bytes(path.read_bytes().replace(b"\n", cut)[:-1])
    for read_only in (True, False):
        if not indexed:
            index_of(path).unlink(missing_ok=True)
        with EpisodeStore(path, read_only=read_only) as store:
            assert (list(store), store.torn) == (wanted[:2], 0)
            assert [entry.job for entry in store.latest()] == ["e0", "e1"]
    reader = EpisodeStore(path, read_only=True)
    assert len(reader) == 2
    with EpisodeStore(path) as store:
        with pytest.raises(DuplicateEpisode):
            store.append(wanted[1])
        for each in wanted[2:]:
            store.append(each)
        assert (list(store), store.torn) == (wanted, 0)
    with reader, EpisodeStore(path, read_only=True) as again:
        for one in (reader, again):
            assert (list(one), one.torn) == (wanted, 0)
    assert len(lines(path)) == 5


def test_the_line_of_a_run_that_lacks_only_its_line_break_is_read(path):
    with EpisodeStore(path) as store:
        store.append(episode(0))
    path.write_bytes(lines(path)[0][:-1])
    with EpisodeStore(path) as store:
        assert (store.runs, store.torn) == ([RUN], 0)
        store.append(episode(1))
    assert len(lines(path)) == 2
    assert EpisodeStore(path, read_only=True)[0].run == RUN


@pytest.mark.parametrize("kept", [1, 10, 11, 12, 40, -300, -2])
def test_a_store_whose_first_lines_are_torn_goes_on(path, kept):
    with EpisodeStore(path) as store:
        store.append(episode(0))
    path.write_bytes(path.read_bytes()[:kept])
    for expected in (["e1"], ["e1", "e2"]):
        with EpisodeStore(path) as store:
            store.append(episode(len(expected)))
            assert jobs(store) == expected
            assert store[0].run == RUN


def test_a_reader_sees_what_is_appended_while_it_reads(path):
    with EpisodeStore(path) as writer, EpisodeStore(path, read_only=True) as reader:
        assert len(reader) == 0
        seen = []
        writer.append(episode(0))
        for each in reader:
            seen.append(each.job)
            if len(seen) < 3:
                writer.append(episode(len(seen)))
        assert seen == ["e0", "e1", "e2"]


WRITER = """
import sys
from gem.errors import DuplicateEpisode
from gem.record import Episode, RunInfo
from gem.rollout import EpisodeStore
from gem.specs import TaskRef
refused = 0
with EpisodeStore(sys.argv[1]) as store:
    for i in range(300):
        try:
            store.append(Episode(TaskRef("x" * 5000, seed=i), RunInfo("r"), f"{sys.argv[2]}{i}"))
        except DuplicateEpisode:
            refused += 1
print(refused)
"""


def run_writers(path, *names):
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*command, name], stdout=subprocess.PIPE) for name in names]
    return [int(writer.communicate(timeout=60)[0]) for writer in writers]


@pytest.mark.system
def test_writing_processes_do_not_mix(path):
    assert run_writers(path, "a", "b") == [0, 0]
    with EpisodeStore(path, read_only=True) as store:
        assert store.torn == 0
        found = jobs(store)
        assert [entry.job for entry in store.select()] == found
        assert [entry.end for entry in store.select()][-1] == path.stat().st_size
        assert len(store.runs) == 1
    for name in "ab":
        assert [each for each in found if each[0] == name] == [f"{name}{i}" for i in range(300)]


@pytest.mark.system
def test_of_processes_that_write_the_same_ids_one_succeeds_with_each(path):
    refused = run_writers(path, "same", "same", "same")
    assert sum(refused) == 600
    with EpisodeStore(path, read_only=True) as store:
        assert sorted(jobs(store)) == sorted(f"same{i}" for i in range(300))


def test_threads_that_share_a_store_do_not_mix(path):
    with EpisodeStore(path) as store:
        threads = [
            threading.Thread(target=lambda n=n: [store.append(episode(n * 100 + i)) for i in range(50)])
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(each.seed for each in store) == sorted(n * 100 + i for n in range(4) for i in range(50))


def count_read(monkeypatch):
    """Return a list that grows by the bytes of every read."""
    read, pread = [], os.pread
    monkeypatch.setattr(os, "pread", lambda *args: read.append(len(data := pread(*args))) or data)
    return read


def fill(path, count, **changes):
    """Write a store of many episodes without an index."""
    with path.open("wb") as file:
        file.write(codec.encode_run(RUN) + b"\n")
        file.writelines(codec.encode(episode(i, **changes)) + b"\n" for i in range(count))


def test_many_episodes_are_opened_and_filtered_by_the_index_without_being_read(path, monkeypatch):
    fill(path, 5000)
    with EpisodeStore(path) as store:
        store.append(episode(5000, spec="game:Y"))
    read = count_read(monkeypatch)
    with EpisodeStore(path, read_only=True) as store:
        assert len(store) == 5001
        (entry,) = store.select(spec="game:Y", success=True)
        assert store[entry.number] == episode(5000, spec="game:Y")
        assert store[2500].seed == 2500
    assert sum(read) < 50_000


def test_a_store_without_index_is_scanned_in_pieces(path, monkeypatch):
    fill(path, 9000)
    kept = []
    note = IndexedFile._note
    monkeypatch.setattr(
        IndexedFile, "_note", lambda self, entry: kept.append(len(self._new)) or note(self, entry)
    )
    with EpisodeStore(path, read_only=True) as store:
        assert len(store.select()) == 9000
    assert max(kept) < 5000


def test_the_index_is_extended_not_made_again(path, monkeypatch):
    with EpisodeStore(path) as store:
        for i in range(SAVE_EVERY + 10):
            store.append(episode(i))
        with EpisodeStore(path, read_only=True) as other:
            assert len(other) == SAVE_EVERY + 10
    with EpisodeStore(path) as store:
        store.append(episode(1000))
    read = count_read(monkeypatch)
    with EpisodeStore(path, read_only=True) as store:
        assert [store[i].seed for i in (0, SAVE_EVERY, -1)] == [0, SAVE_EVERY, 1000]
    assert sum(read) < 50_000


def replace_by_database(index):
    index.unlink()
    with closing(sqlite3.connect(index)) as other:
        other.execute("CREATE TABLE x (y)")


DAMAGES = {
    "absent": lambda path, index: index.unlink(),
    "cut": lambda path, index: os.truncate(index, index.stat().st_size // 2),
    "empty": lambda path, index: os.truncate(index, 0),
    "junk": lambda path, index: index.write_bytes(b"junk" * 1000),
    "junk behind a good beginning": lambda path, index: index.write_bytes(
        index.read_bytes()[:4096] + b"junk" * (index.stat().st_size // 4 - 1024)
    ),
    "another store's": lambda path, index: path.write_bytes(b"".join(sorted(lines(path), reverse=True))),
    "of a store with the same beginning": lambda path, index: path.write_bytes(
        b"".join(lines(path)[:5] + sorted(lines(path)[5:], reverse=True))
    ),
    "another database": lambda path, index: replace_by_database(index),
    "a folder": lambda path, index: (index.unlink(), index.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("read_only", [True, False])
def test_an_index_that_does_not_fit_is_made_again(path, damage, read_only):
    with EpisodeStore(path) as store:
        for i in range(SAVE_EVERY + 10):
            store.append(episode(i))
    DAMAGES[damage](path, index_of(path))
    with EpisodeStore(path, read_only=read_only) as store:
        assert sorted(each.seed for each in store) == list(range(SAVE_EVERY + 10))
        for entry in store.select(success=True):
            assert store[entry.number].job == entry.job == f"e{entry.seed}"
        assert store.get("run-e7-0-0").seed == 7
        if not read_only:
            with pytest.raises(DuplicateEpisode):
                store.append(episode(7))
            store.append(episode(1000))
            assert len(store.select()) == len(store) == SAVE_EVERY + 11


def test_a_deleted_index_is_made_again_while_the_store_is_open(path):
    with EpisodeStore(path) as store, EpisodeStore(path, read_only=True) as reader:
        for i in range(3 * SAVE_EVERY):
            store.append(episode(i))
            if i % 200 == 100:
                index_of(path).unlink(missing_ok=True)
                assert len(reader) == i + 1
                assert [entry.seed for entry in reader.select(min_reward=0.5)] == list(range(i + 1))
        with pytest.raises(DuplicateEpisode):
            store.append(episode(3))
    with closing(sqlite3.connect(index_of(path))) as index:
        assert index.execute("SELECT count(*) FROM episodes").fetchone() == (3 * SAVE_EVERY,)


def test_a_store_that_was_replaced_is_not_written_and_leaves_the_index_of_the_new_one_alone(path, tmp_path):
    other = tmp_path / "other.jsonl"
    for name, offset in ((path, 0), (other, 5000)):
        with EpisodeStore(name) as store:
            for i in range(300):
                store.append(episode(offset + i))
    with EpisodeStore(path) as old:
        for i in range(SAVE_EVERY - 1):
            old.append(episode(1000 + i))
        other.replace(path)
        index_of(other).replace(index_of(path))
        with pytest.raises(StoreError, match=r"deleted, or replaced by another file.*store of another name"):
            old.append(episode(2000))
        assert len(old) == len(old.select()) == len(list(old)) == 300 + SAVE_EVERY - 1
    with EpisodeStore(path, read_only=True) as new:
        assert [entry.seed for entry in new.select()] == list(range(5000, 5300))


def test_a_reader_of_a_store_that_was_replaced_leaves_the_index_of_the_new_one_alone(path, tmp_path):
    other = tmp_path / "other.jsonl"
    with EpisodeStore(other) as store:
        store.append(episode(5000))
    fill(path, 10)
    with EpisodeStore(path, read_only=True) as old:
        other.replace(path)
        index_of(other).replace(index_of(path))
        held = index_of(path).read_bytes()
        assert len(old) == 10
    assert index_of(path).read_bytes() == held
    with EpisodeStore(path, read_only=True) as new:
        assert [entry.seed for entry in new.select()] == [5000]


def test_a_store_that_was_emptied_gets_the_line_of_its_run_again(path):
    with EpisodeStore(path) as store:
        store.append(episode(0))
        os.truncate(path, 0)
        store.append(episode(1))
        assert [each.run for each in store] == [RUN]
    assert [line.startswith(codec.RUN_LINE) for line in lines(path)] == [True, False]


@pytest.mark.parametrize("fsync", [True, False])
def test_an_append_waits_for_the_disk_where_that_is_wanted(path, monkeypatch, fsync):
    steps = []
    write, sync = os.write, os.fsync
    monkeypatch.setattr(os, "write", lambda fd, data: steps.append("write") or write(fd, data))
    monkeypatch.setattr(os, "fsync", lambda fd: steps.append("sync") or sync(fd))
    with EpisodeStore(path, fsync=fsync) as store:
        store.append(episode(0))
        store.append(episode(1))
    assert steps == (["write", "sync"] if fsync else ["write"]) * 2


def test_a_store_stays_where_it_is_when_the_program_changes_its_folder(path, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    with EpisodeStore(path.name) as store:
        monkeypatch.chdir(elsewhere)
        store.append(episode(0))
    assert index_of(path).exists()
    assert not list(elsewhere.iterdir())


def test_an_index_that_somebody_else_writes_just_now_is_extended_later(path, monkeypatch):
    add = Index.add

    def wait(self, *new):
        error = sqlite3.OperationalError("database is locked")
        error.sqlite_errorcode = sqlite3.SQLITE_BUSY
        raise error

    with EpisodeStore(path) as store:
        monkeypatch.setattr(Index, "add", wait)
        for i in range(SAVE_EVERY):
            store.append(episode(i))
        monkeypatch.setattr(Index, "add", add)
    with closing(sqlite3.connect(index_of(path))) as index:
        assert index.execute("SELECT count(*) FROM episodes").fetchone() == (SAVE_EVERY,)


def test_the_inode_of_a_file_fits_into_the_index():
    state = os.stat_result((0o100644, 2**64 - 1, *[0] * 8))
    assert 0 <= indexed_file._inode(state) < 2**63


def test_a_store_that_was_deleted_is_not_written(path, monkeypatch):
    with EpisodeStore(path) as store:
        store.append(episode(0))
        monkeypatch.chdir("/")
        store.append(episode(1))
        held = path.read_bytes()
        path.unlink()
        with pytest.raises(StoreError, match="was deleted"):
            store.append(episode(2))
        assert [each.seed for each in store] == [0, 1]
        path.write_bytes(held)  # a copy is another file
        with pytest.raises(StoreError, match="was deleted"):
            store.append(episode(2))


@pytest.mark.parametrize("keep_time", [False, True])
def test_an_index_is_not_believed_after_the_file_was_edited(path, keep_time):
    with EpisodeStore(path) as store:
        for i in range(20):
            store.append(episode(i))
    before = path.stat()
    stale = path.read_bytes()
    middle = b"".join(lines(path)[10:11])
    path.write_bytes(stale.replace(middle, middle.replace(b'"reward":0.25', b'"reward":0.95', 1)))
    if keep_time:  # as if nobody wrote to it
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with EpisodeStore(path, read_only=True) as store:
        stops = [entry.stop for entry in store.select()]
        assert stops.count("damaged") == 1
        with pytest.raises(StoreError, match="line 11,"):
            store[9]


RENUMBER, COUNT = "UPDATE episodes SET number = number - 1", "UPDATE mark SET episodes = {}"
FORGED = {
    "an offset beyond the file": f"UPDATE episodes SET start = {2**62}",
    "a reward": "UPDATE episodes SET reward = 99 WHERE number = 7",
    "a text as reward": "UPDATE episodes SET reward = '0.25' WHERE number = 7",
    "successes": "UPDATE episodes SET success = 0",
    "a place": "UPDATE episodes SET start = (SELECT start FROM episodes WHERE number = 3) WHERE number = 7",
    "a place that is none": "UPDATE episodes SET start = 'x' WHERE number = 7",
    "a place of terabytes": 'UPDATE episodes SET start = 0, "end" = 1 << 40 WHERE number = 7',
    "one left out": f"DELETE FROM episodes WHERE number = 7; {RENUMBER} WHERE number > 7; {COUNT.format(19)}",
    "the last left out": f"DELETE FROM episodes WHERE number = 19; {COUNT.format(19)}",
    "the first left out": f"DELETE FROM episodes WHERE number = 0; {RENUMBER}; {COUNT.format(19)}",
    "two of one line": "CREATE TEMP TABLE one AS SELECT * FROM episodes WHERE number = 19; "
    "UPDATE one SET number = 20, id = 'x'; INSERT INTO episodes SELECT * FROM one; " + COUNT.format(21),
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_index_is_made_again(path, forged):
    with EpisodeStore(path) as store:
        for i in range(20):
            store.append(episode(i))
        honest = store.select(), store.tally()
    with closing(sqlite3.connect(index_of(path))) as index:
        index.executescript(FORGED[forged])
    for _ in range(2):
        with EpisodeStore(path, read_only=True) as store:
            assert (store.select(), store.tally()) == honest


def test_entries_are_confirmed_by_their_lines(path):
    with EpisodeStore(path) as store:
        for i in range(20):
            store.append(episode(i))
        store.close()
    with EpisodeStore(path, read_only=True) as store:
        with closing(sqlite3.connect(index_of(path))) as index:
            index.executescript(FORGED["a reward"])
        assert store.select()[7].reward == 99
        assert store.confirm(store.select()[:7])
        assert not store.confirm(store.select())
        assert store.confirm(store.select())
        assert store.select()[7].reward != 99


def test_an_index_is_not_believed_after_the_file_was_replaced_and_extended(path, tmp_path):
    with EpisodeStore(path) as store:
        for i in range(20):
            store.append(episode(i))
    held, other = lines(path), tmp_path / "other"
    other.write_bytes(
        b"".join([*held[:10], held[10].replace(b"e9", b"x9"), *held[11:], held[1].replace(b"e0", b"y0")])
    )
    other.replace(path)
    with EpisodeStore(path, read_only=True) as store:
        assert [entry.stop for entry in store.select()].count("damaged") == 2


def test_an_index_of_a_file_that_grew_is_extended(path, monkeypatch):
    with EpisodeStore(path) as store:
        for i in range(2000):
            store.append(episode(i))
    with path.open("ab") as file:
        file.write(codec.encode(episode(2000)) + b"\n")
    read = count_read(monkeypatch)
    with EpisodeStore(path, read_only=True) as store:
        assert len(store) == 2001
    assert sum(read) < 50_000


def test_an_index_that_breaks_while_it_is_used_is_given_up(path):
    with EpisodeStore(path) as store:
        for i in range(SAVE_EVERY + 10):
            store.append(episode(i))
        index_of(path).write_bytes(b"junk" * 50_000)
        assert [store[i].seed for i in (0, -1)] == [0, SAVE_EVERY + 9]
        store.append(episode(1000))
        assert [entry.seed for entry in store.select()] == [*range(SAVE_EVERY + 10), 1000]


def test_an_index_that_cannot_be_written_is_read_and_what_is_new_kept_aside(path, monkeypatch):
    with EpisodeStore(path) as store:
        for i in range(300):
            store.append(episode(i))
    held = index_of(path).read_bytes()
    add = Index.add

    def refuse(self, *new):
        if self.path is not None:
            error = sqlite3.OperationalError("attempt to write a readonly database")
            error.sqlite_errorcode = sqlite3.SQLITE_READONLY
            raise error
        add(self, *new)

    monkeypatch.setattr(Index, "add", refuse)  # root may write in any folder
    with EpisodeStore(path) as store:
        for i in range(300, 900):
            store.append(episode(i))
        assert [entry.seed for entry in store.select(success=True)] == list(range(900))
        assert [store[i].seed for i in (0, 299, 300, 899)] == [0, 299, 300, 899]
        with pytest.raises(DuplicateEpisode):
            store.append(episode(299))
    assert index_of(path).read_bytes() == held


@pytest.mark.system
def test_processes_that_open_a_store_without_index_agree(path):
    fill(path, 5000)
    code = """
import sys
from gem.rollout import EpisodeStore
print(len(EpisodeStore(sys.argv[1]).select(success=True)))
"""
    readers = [
        subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) for _ in range(3)
    ]
    assert [int(reader.communicate(timeout=60)[0]) for reader in readers] == [5000] * 3


@pytest.mark.system
def test_a_forked_process_goes_on_with_a_store_of_its_own(path):
    code = """
import os, sys
from gem.record import Episode, RunInfo
from gem.rollout import EpisodeStore
from gem.specs import TaskRef
store = EpisodeStore(sys.argv[1])
child = os.fork()
for i in range(300):
    store.append(Episode(TaskRef("x", seed=i), RunInfo("r"), f"{'parent' if child else 'child'}{i}"))
store.close()
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=60)
    with EpisodeStore(path, read_only=True) as store:
        assert (len(store), store.torn, len(set(jobs(store)))) == (600, 0, 600)


# -- ids, runs and filters


def test_an_id_that_is_there_is_refused(path):
    with EpisodeStore(path) as store, EpisodeStore(path) as other:
        store.append(episode(1))
        size = path.stat().st_size
        for writer in (store, other):
            with pytest.raises(DuplicateEpisode, match=r"holds episode 'run-e1-0-0' already"):
                writer.append(episode(1))
        assert path.stat().st_size == size
        other.append(episode(1, attempt=1))
        store.append(episode(1, sample=1))
        store.append(episode(1, run=RunInfo("other")))
        assert len(store) == len(other) == 4


def test_an_index_full_of_ids_still_refuses(path):
    with EpisodeStore(path) as store:
        for i in range(SAVE_EVERY + 5):
            store.append(episode(i))
        for i in (0, SAVE_EVERY - 1, SAVE_EVERY, SAVE_EVERY + 4):
            with pytest.raises(DuplicateEpisode):
                store.append(episode(i))


def test_a_run_is_written_once_and_found_from_the_middle(path):
    second = RunInfo("second", "other agent")
    with EpisodeStore(path) as store:
        for i in range(3):
            store.append(episode(i))
            store.append(episode(i, run=second))
    with EpisodeStore(path) as store:
        store.append(episode(3))
        assert [store[-1].run, store[1].run] == [RUN, second]
        assert store.runs == [RUN, second]
    assert [line.startswith(codec.RUN_LINE) for line in lines(path)].count(True) == 2
    index_of(path).unlink()
    with EpisodeStore(path, read_only=True) as store:
        assert store[5].run == second


def test_episodes_whose_run_is_not_there_know_its_id(path):
    with EpisodeStore(path) as store:
        store.append(episode(0))
    path.write_bytes(lines(path)[1])
    with EpisodeStore(path) as store:
        assert store[0].run == RunInfo("run")
        store.append(episode(1))
        assert store[1].run == RUN


def test_the_index_says_what_an_episode_is(path):
    with EpisodeStore(path) as store:
        store.append(episode(3, group="g", sample=2, attempt=1))
        (entry,) = store.select()
        line = store.line(0)
    start = path.read_bytes().index(line)
    assert line == lines(path)[1][:-1]
    assert entry == (
        *(0, "run-e3-2-1", "run", "e3", 2, 1, "g", "game:X", env_key(TaskRef("game:X")), 3),
        *("solved", "scored", True, 0.5, 2, 3, 0, start, start + len(line) + 1),
    )


def test_calls_of_tools_are_counted_however_they_were_made(path):
    call = ToolCall("c", "python", "{}")
    native = [Turn("agent", "q", "a", reply=Message("assistant", "", tool_calls=(call,) * n)) for n in (2, 1)]
    text = [Turn("agent", "q", "a", info={"tool_use_counter": n}) for n in (1, 2)]
    odd = [Turn("agent", "q", "a", info={"tool_use_counter": "many"})]
    with EpisodeStore(path) as store:
        for i, turns in enumerate((native, text, odd)):
            made = episode(i)
            made.turns = turns
            store.append(made)
        assert [entry.calls for entry in store.select()] == [3, 2, 0]
        assert sum(tally.calls for tally in store.tally()) == 5
    index_of(path).unlink(missing_ok=True)
    with EpisodeStore(path) as store:
        assert sum(tally.calls for tally in store.tally()) == 5


ENDLESS = "WITH RECURSIVE r (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT x FROM r"


@pytest.mark.parametrize(
    "change",
    [
        f"DROP TABLE episodes; CREATE VIEW episodes AS {ENDLESS};",
        f"DROP TABLE mark; CREATE VIEW mark AS {ENDLESS};",
        "CREATE TRIGGER other AFTER INSERT ON episodes BEGIN DELETE FROM episodes; END;",
        "CREATE TABLE other (x);",
    ],
)
@pytest.mark.parametrize("read_only", [False, True])
def test_an_index_with_definitions_that_are_not_gems_is_not_asked(path, change, read_only):
    with EpisodeStore(path) as store:
        for i in range(5):
            store.append(episode(i))
    with closing(sqlite3.connect(index_of(path))) as index:
        index.executescript(change)
    with EpisodeStore(path, read_only=read_only) as store:
        assert [entry.seed for entry in store.select()] == [store[i].seed for i in range(5)] == list(range(5))


def test_an_index_of_an_earlier_form_is_made_again(path):
    with EpisodeStore(path) as store:
        store.append(episode(0))
    with sqlite3.connect(index_of(path)) as index:
        index.execute(f"PRAGMA user_version = {0x67656D01}")
    index.close()
    with EpisodeStore(path) as store:
        assert [entry.calls for entry in store.select()] == [0]


@pytest.fixture
def mixed(path):
    """A store with episodes in the index and some behind it."""
    with EpisodeStore(path) as store:
        for i in range(SAVE_EVERY + 20):
            lost = i % 2 == 1
            broken = {"verdict": Verdict.NONE, "stop": StopReason.ERROR} if i % 10 == 0 else {}
            store.append(
                episode(
                    i,
                    **{
                        "spec": f"game:{'XY'[lost]}",
                        "stop": StopReason.FAILED if lost else StopReason.SOLVED,
                        "reward": i / 100,
                        **broken,
                    },
                )
            )
        yield store


@pytest.mark.parametrize(
    ("wanted", "holds"),
    [
        ({}, lambda e: True),
        ({"spec": "game:Y"}, lambda e: e.spec == "game:Y"),
        ({"success": True}, lambda e: e.success is True),
        ({"success": False, "spec": "game:X"}, lambda e: False),
        ({"verdict": "none"}, lambda e: not e.scored),
        ({"verdict": Verdict.SCORED, "stop": StopReason.FAILED}, lambda e: e.stop == "failed"),
        ({"min_reward": 0.5, "max_reward": 2.61}, lambda e: e.scored and 0.5 <= e.reward() <= 2.61),
        ({"job": "e3"}, lambda e: e.job == "e3"),
        ({"id": "run-e270-0-0"}, lambda e: e.job == "e270"),
        ({"seed": 271, "run": "run", "group": "", "sample": 0}, lambda e: e.seed == 271),
        ({"run": "other"}, lambda e: False),
    ],
)
def test_episodes_are_filtered(mixed, wanted, holds):
    expected = [number for number, each in enumerate(mixed) if holds(each)]
    assert [entry.number for entry in mixed.select(**wanted)] == expected
    with EpisodeStore(mixed.path, read_only=True) as again:
        assert again.select(**wanted) == mixed.select(**wanted)


def test_the_latest_is_the_last_attempt_with_a_verdict(path):
    broken = {"verdict": Verdict.NONE, "stop": StopReason.ERROR}
    played = [
        episode(0, attempt=0, **broken),
        episode(1, attempt=0, **broken),
        episode(0, attempt=1),
        episode(1, attempt=1, **broken),
        episode(2, sample=0),
        episode(2, sample=1),
        episode(2, sample=0, run=replace(RUN, id="restarted"), **broken),
        episode(2, sample=1, run=replace(RUN, id="restarted")),
        episode(7, job="", run=RunInfo("free")),
        episode(8, job="", run=RunInfo("free 2")),
    ]
    with EpisodeStore(path) as store:
        for each in played:
            store.append(each)
        assert [entry.number for entry in store.latest()] == [2, 3, 4, 7, 8, 9]
        store.append(episode(2, sample=1, run=replace(RUN, id="other", agent="somebody else")))
        assert [entry.number for entry in store.latest()] == [2, 3, 4, 7, 8, 9, 10]


def test_superseded_jobs_are_left_out_of_the_latest_alone_and_in_every_process(path):
    with EpisodeStore(path) as store, EpisodeStore(path, read_only=True) as other:
        for each in episode(0), episode(0, sample=1), episode(1), episode(7, job="", run=RunInfo("free")):
            store.append(each)
        store.supersede({(store[0].job, 1), ("a job that is not stored", 0)})
        assert [entry.number for entry in other.latest()] == [1, 3]
        assert len(other.latest(superseded=True)) == len(other) == 4
        for spoilt in "{", "[7]", "[[[], 0]]", '[["a", 0, 0]]', '[["a", 0], [1, 0]]':
            path.with_name(f"{path.name}.superseded.json").write_text(spoilt)
            assert len(other.latest()) == 4
        assert merge(path.with_name("out.jsonl"), [path]).copied == 4
        store.supersede({(entry.job, entry.sample) for entry in store.select()})
        assert len(other.latest()) == 4
        assert not [*path.parent.glob("*superseded*")]
        with pytest.raises(StoreError, match="read-only"):
            other.supersede(set())


def test_a_store_stays_where_it_was_opened(path, tmp_path, monkeypatch):
    monkeypatch.chdir(path.parent)
    with EpisodeStore(path.name) as store:
        monkeypatch.chdir(tmp_path.parent)
        store.claim()
        store.append(episode(1))
        assert path.with_name(f"{path.name}.lock").exists()
        with EpisodeStore(path) as other, pytest.raises(StoreError, match="another run resumes"):
            other.claim()
    assert not path.with_name(f"{path.name}.lock").exists()
    assert jobs(EpisodeStore(path)) == ["e1"]


def test_an_id_that_is_not_there_gets_near_matches(path):
    with EpisodeStore(path) as store:
        store.append(episode(1))
        assert store.get("run-e1-0-0") == episode(1)
        with pytest.raises(BadArgument, match=r"holds no episode 'run-e1-0'\. Did you mean 'run-e1-0-0'\?"):
            store.get("run-e1-0")


# -- schema 1


def test_a_store_of_schema_1_is_read_and_continued(path):
    shutil.copy(DATA / "schema1.jsonl", path)
    said = json.loads((DATA / "schema1_expected.json").read_text())
    for count in (0, 1, 2):
        with EpisodeStore(path) as store:
            assert [each.transcript_hash() for each in store[: len(said)]] == [each["hash"] for each in said]
            ids = [entry.id for entry in store.select()]
            assert ids == [each.id for each in store]
            assert len(set(ids)) == len(said) + count
            store.append(episode(count))
            assert store[-1] == episode(count)
    index_of(path).unlink()
    with EpisodeStore(path, read_only=True) as store:
        assert [entry.id for entry in store.select()][:-1] == ids
        with pytest.raises(DuplicateEpisode), EpisodeStore(path) as writer:
            writer.append(store[0])


def test_two_stores_of_schema_1_merge(path, tmp_path):
    old, out = tmp_path / "old.jsonl", tmp_path / "out.jsonl"
    shutil.copy(DATA / "schema1.jsonl", old)
    path.write_bytes(b"".join(lines(old)[:3]))
    assert merge(out, [path, old]) == (7, 3, 0)
    with EpisodeStore(old, read_only=True) as one, EpisodeStore(out, read_only=True) as other:
        assert [each.id for each in one] == [each.id for each in other]
        assert [each.transcript_hash() for each in one] == [each.transcript_hash() for each in other]
    assert {json.loads(line)["schema"] for line in lines(out)} == {SCHEMA}


# -- merging


def test_stores_are_merged_with_their_runs_and_without_duplicates(path, tmp_path):
    other, out = tmp_path / "other.jsonl", tmp_path / "out.jsonl"
    second = RunInfo("second")
    with EpisodeStore(path) as store, EpisodeStore(other) as more:
        for i in range(4):
            store.append(episode(i))
            more.append(episode(i, run=second))
        more.append(episode(3))
    assert merge(out, [path, other]) == (8, 1, 0)
    assert merge(out, [path, other]) == (0, 9, 0)
    with EpisodeStore(out, read_only=True) as merged:
        assert list(merged) == [episode(i, run=run) for run in (RUN, second) for i in range(4)]
        assert merged.runs == [RUN, second]


@pytest.mark.system
def test_a_merge_that_was_killed_is_made_good_by_another(path, tmp_path):
    fill(path, 3000)
    out = tmp_path / "out.jsonl"
    code = "import sys; from gem.rollout.store import merge; merge(sys.argv[1], sys.argv[2:])"
    merging = subprocess.Popen([sys.executable, "-c", code, str(out), str(path)])
    with EpisodeStore(out) as store:
        while len(store) < 500:
            assert merging.poll() is None
        merging.kill()
        merging.wait()
        done = len(store)
        assert [each.job for each in store[:500]] == [f"e{i}" for i in range(500)]
    assert merge(out, [path]) == (3000 - done, done, 0)


@pytest.mark.parametrize("line", [b'{"schema":2,"job":3}', b'{"schema":3,"new":"form"}'])
def test_lines_that_cannot_be_read_are_left_out_of_a_merge_and_counted(path, tmp_path, line):
    path.write_bytes(b"\n".join([codec.encode(episode(0)), line, codec.encode(episode(1)), b""]))
    assert merge(tmp_path / "out.jsonl", [path]) == (2, 0, 1)


@pytest.mark.parametrize("number", [0, 2], ids=["run", "episode"])
def test_torn_lines_and_damaged_runs_are_counted_by_a_merge(path, tmp_path, number):
    fill(path, 3)
    kept = lines(path)
    kept[number] = kept[number][:-9] + (b"!\n" if number else b'0000000"}\n')
    path.write_bytes(b"".join(kept))
    assert merge(tmp_path / "out.jsonl", [path]) == (2 if number else 3, 0, 1)


def test_superseded_jobs_stay_so_in_a_merge_unless_another_store_counts_them(path, tmp_path):
    other, out = tmp_path / "other.jsonl", tmp_path / "out.jsonl"
    fill(path, 4)
    with EpisodeStore(path) as store, EpisodeStore(other) as more:
        store.supersede([("e0", 0), ("e1", 0)])
        more.append(episode(3, run=RunInfo("second")))
    for copied in 4, 0:  # the second call finds it done
        assert merge(out, [path]).copied == copied
        with EpisodeStore(out) as merged:
            assert [entry.job for entry in merged.latest()] == ["e0", "e1"]
    merge(out, [other])
    with EpisodeStore(out) as merged:
        assert merged.superseded == {("e2", 0)}


def test_what_cannot_be_merged_says_why(path, tmp_path):
    fill(path, 1)
    with pytest.raises(BadArgument, match="nothing to merge"):
        merge(tmp_path / "out.jsonl", [])
    with pytest.raises(BadArgument, match="is the output store"):
        merge(path, [tmp_path / "absent.jsonl", tmp_path / "." / path.name])
    with pytest.raises(StoreError, match="No such file"):
        merge(tmp_path / "out.jsonl", [path, tmp_path / "absent.jsonl"])
    assert not (tmp_path / "out.jsonl").exists()


# -- what is wrong with a file


def test_a_store_that_was_cut_is_read_anew(path):
    with EpisodeStore(path) as store:
        for i in range(5):
            store.append(episode(i))
        os.truncate(path, len(b"".join(lines(path)[:3])))
        assert [each.seed for each in store] == [0, 1]
        store.append(episode(4))
        assert [entry.seed for entry in store.select()] == [0, 1, 4]


def test_another_schema_is_refused(path):
    with EpisodeStore(path) as store:
        store.append(episode(0))
    path.write_bytes(path.read_bytes().replace(b'{"schema":2,', b'{"schema":99,'))
    with pytest.raises(SchemaMismatch, match="schema 99"):
        EpisodeStore(path)


def test_a_later_line_of_another_schema_is_refused_when_it_is_read(path):
    with EpisodeStore(path) as store:
        store.append(episode(0))
        with path.open("ab") as file:
            file.write(b'{"schema":3,"new":"form"}\n')
        store.append(episode(1))
        assert jobs(store[::2]) == ["e0", "e1"]
        assert store.select()[1].stop == "damaged"
        with pytest.raises(SchemaMismatch, match="schema 3"):
            store[1]


@pytest.mark.parametrize("indexed", [True, False])
def test_a_changed_line_says_where_it_is_and_what_to_do(path, indexed):
    with EpisodeStore(path) as store:
        for i in range(5):
            store.append(episode(i))
    start = len(b"".join(lines(path)[:3]))
    path.write_bytes(path.read_bytes().replace(b'"job":"e2"', b'"job":"e7"'))
    if not indexed:
        index_of(path).unlink()
    with EpisodeStore(path, read_only=True) as store:
        for _ in range(2):
            with pytest.raises(StoreError, match=r"changed after it was written.*delete the line") as told:
                store[2]
            assert f"{path}: episode 2 (line 4, byte {start}) is damaged" in str(told.value)
        assert [store[i].seed for i in (0, 1, 3, 4)] == [0, 1, 3, 4]
        assert [entry.stop for entry in store.select()].count("damaged") == 1


def test_a_changed_run_is_not_believed_and_counted(path):
    with EpisodeStore(path) as store:
        store.append(episode(0))
    path.write_bytes(path.read_bytes().replace(b'"model":"model"', b'"model":"medal"'))
    index_of(path).unlink()
    with EpisodeStore(path) as store:
        assert (store[0].run, store.torn) == (RunInfo("run"), 1)
        store.append(episode(1))  # writes the run again
        assert [each.run for each in store] == [RUN, RUN]


def test_a_line_that_nests_beyond_all_reason_is_damaged(path):
    path.write_bytes(b'{"schema":1,"id":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n")
    with EpisodeStore(path) as store, pytest.raises(StoreError, match=r"episode 0 .* is damaged"):
        store[0]


def test_a_line_of_something_else_is_damaged(path):
    with EpisodeStore(path) as store:
        store.append(episode(0))
        with path.open("ab") as file:
            file.write(b'{"a":1}\n')
        with pytest.raises(StoreError, match="does not begin an episode"):
            store[1]
        assert store.torn == 0


@pytest.mark.parametrize("at", [0, 3, 10, 12])
@pytest.mark.parametrize("byte", [b"\x00", b"9", b"}"])
def test_a_damaged_first_line_leaves_the_others_readable(path, at, byte):
    fill(path, 3)
    index_of(path).unlink(missing_ok=True)
    whole = path.read_bytes()
    path.write_bytes(whole[:at] + byte + whole[at + 1 :])
    with EpisodeStore(path) as store:
        assert [entry.job for entry in store.latest() if entry.id] == ["e0", "e1", "e2"]
        store.append(episode(3))
        assert store[len(store) - 1] == episode(3)


def test_what_is_no_store_is_refused_and_left_alone(path):
    path.write_text("Dear diary,\n")
    with pytest.raises(StoreError, match="Dear diary"):
        EpisodeStore(path)
    assert path.read_text() == "Dear diary,\n"


def test_what_cannot_be_opened_says_why(path, tmp_path):
    for absent in (path, tmp_path / "nowhere" / "episodes.jsonl"):  # a reader need not make a folder
        with pytest.raises(StoreError, match=r"No such file or directory\.$"):
            EpisodeStore(absent, read_only=True)
    with pytest.raises(StoreError, match=r"nowhere.*No such file.*Make its folder first"):
        EpisodeStore(tmp_path / "nowhere" / "episodes.jsonl")


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a folder that nobody may write")
def test_a_folder_that_may_not_be_written_says_so():
    with pytest.raises(StoreError, match="cannot open the episode store"):
        EpisodeStore("/proc/self/episodes.jsonl")


def test_a_read_only_store_refuses_to_append(path):
    EpisodeStore(path).close()
    with EpisodeStore(path, read_only=True) as store, pytest.raises(StoreError, match="read-only"):
        store.append(episode())


def test_a_closed_store_says_so(path):
    store = EpisodeStore(path)
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.append(episode())
    with pytest.raises(StoreError, match="closed"):
        len(store)


def test_an_index_out_of_range_says_how_many_there_are(path):
    with EpisodeStore(path) as store:
        store.append(episode())
        with pytest.raises(IndexError, match="holds 1 episodes"):
            store[1]
        with pytest.raises(IndexError):
            store[-2]


def test_a_disk_that_fills_up_in_the_middle_of_a_line_says_so_and_keeps_none_of_it(path, monkeypatch):
    write = os.write
    full = False

    def fill_up(fd, data):
        nonlocal full
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        full = True
        return write(fd, data[: len(data) // 2])

    with EpisodeStore(path) as store:
        store.append(episode(0))
        monkeypatch.setattr(os, "write", fill_up)
        with pytest.raises(StoreError, match="No space left"):
            store.append(episode(1))
        monkeypatch.undo()
        assert (store.torn, [each.seed for each in store]) == (0, [0])
        store.append(episode(1))
        assert (store.torn, [each.seed for each in store]) == (0, [0, 1])


def test_nothing_of_a_line_stays_that_did_not_fit(path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with EpisodeStore(path, fsync=True) as store:
        store.append(episode(0))
        size = path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, hard))
        try:
            with pytest.raises(StoreError, match="File too large"):
                store.append(episode(1))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert path.stat().st_size == size
        store.append(episode(2))
        assert [each.seed for each in store] == [0, 2]
        assert store.torn == 0


def test_a_run_whose_episode_did_not_fit_may_stay(path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with EpisodeStore(path) as store, EpisodeStore(path, read_only=True) as reader:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(codec.encode_run(RUN)) + 100, hard))
        try:
            with pytest.raises(StoreError, match="File too large"):
                store.append(episode(1))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert lines(path) == [codec.encode_run(RUN) + b"\n"]
        assert (len(reader), reader.runs) == (0, [RUN])
        store.append(episode(2))
        assert len(lines(path)) == 2
        assert reader[0] == episode(2)


# -- what somebody else has got wrong


@pytest.mark.parametrize(
    "usage", [{"completion_tokens": None}, {"completion_tokens": "many"}, {"completion_tokens": float("nan")}]
)
def test_what_a_server_counts_in_its_own_way_is_stored(path, usage):
    with EpisodeStore(path, tokens=False) as store:
        odd = episode()
        odd.turns[0].usage = usage
        store.append(odd)
        assert [entry.tokens for entry in store.select()] == [0]
    index_of(path).unlink()
    assert [entry.id for entry in EpisodeStore(path).select()] == [odd.id]


@pytest.mark.parametrize("rewards", [(float("inf"), -float("inf")), (1e308, 1e308)])
def test_rewards_beyond_all_numbers_are_stored(path, rewards):
    odd = episode()
    for turn, reward in zip(odd.turns, rewards, strict=True):
        turn.reward = reward
    with EpisodeStore(path) as store:
        store.append(odd)
    index_of(path).unlink()
    (entry,) = EpisodeStore(path).select()
    assert repr(entry.reward) == repr(sum(rewards))


def test_what_could_not_be_read_again_is_refused_and_nothing_of_it_is_written(path):
    with EpisodeStore(path) as store:
        store.append(episode(0))
        held = path.read_bytes()
        odd = episode(1)
        odd.turns[1].info = None
        with pytest.raises(BadArgument, match=r"got `null` - at `\$\.turns\[1\]\.info`"):
            store.append(odd)
        assert path.read_bytes() == held


@pytest.mark.parametrize("read_only", [False, True])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path, read_only):
    os.mkfifo(tmp_path / "pipe")
    for name in (tmp_path / "pipe", "/dev/null", tmp_path):
        with pytest.raises(StoreError, match=r"is a pipe or a device|is a folder|Is a directory"):
            EpisodeStore(name, read_only=read_only)


def test_lines_that_end_with_a_carriage_return_are_read(path):
    with EpisodeStore(path) as store:
        for i in range(3):
            store.append(episode(i))
    index_of(path).unlink()
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    with EpisodeStore(path) as store:
        store.append(episode(3))
        assert ([each.seed for each in store], store.torn) == ([0, 1, 2, 3], 0)
        assert store[0].run == RUN


def test_a_merge_takes_a_run_from_whichever_store_has_its_line(path, tmp_path):
    for name, number in (("bare", 0), ("whole", 1)):
        with EpisodeStore(tmp_path / name) as store:
            store.append(episode(number))
    bare = tmp_path / "bare"
    bare.write_bytes(lines(bare)[1])
    merge(path, [bare, tmp_path / "whole"])
    assert [each.run for each in EpisodeStore(path)] == [RUN, RUN]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE mark SET episodes = 'x'",
        "UPDATE mark SET scanned = NULL",
        "UPDATE mark SET scanned = -1",
        "ALTER TABLE mark ADD COLUMN more",
        "ALTER TABLE episodes ADD COLUMN more",
        "DROP TABLE runs",
        "DELETE FROM episodes WHERE number = 5",
        "UPDATE episodes SET start = 'x'",
        "UPDATE episodes SET start = start + 1",
        "UPDATE episodes SET start = -5",
        'UPDATE episodes SET "end" = 1e18',
        'UPDATE episodes SET start = (SELECT start FROM episodes WHERE number = 7), "end" = '
        '(SELECT "end" FROM episodes WHERE number = 7)',
        "UPDATE episodes SET seed = 'zz'",
        "UPDATE episodes SET spec = x'ff'",
        "UPDATE episodes SET stop = CAST(x'ff' AS TEXT)",
        "UPDATE runs SET start = start + 1",
        "UPDATE runs SET start = 'x'",
    ],
)
def test_an_index_that_says_what_cannot_be_is_not_believed(path, change):
    with EpisodeStore(path) as store:
        for i in range(10):
            store.append(episode(i))
    with closing(sqlite3.connect(index_of(path))) as index:
        index.execute(change)
        index.commit()
    with EpisodeStore(path) as store:
        assert [store[i].seed for i in range(10)] == list(range(10))
        assert [entry.seed for entry in store.select()] == list(range(10))
        assert store.get(episode(6).id).run == RUN
        with pytest.raises(DuplicateEpisode):
            store.append(episode(3))
    with EpisodeStore(path) as store:
        assert [each.seed for each in store] == list(range(10))


def test_an_index_whose_columns_have_no_name_is_not_believed(path):
    with EpisodeStore(path) as store:
        for i in range(3):
            store.append(episode(i))
    data = index_of(path).read_bytes()
    place = data.index(b'"reward"')
    index_of(path).write_bytes(data[: place + 3] + b"\xef" + data[place + 4 :])
    with EpisodeStore(path, read_only=True) as store:
        assert [entry.job for entry in store.select()] == ["e0", "e1", "e2"]
        assert store.page(order="reward")[1] == 3
        assert store.get("run-e1-0-0").job == "e1"


def test_an_index_with_exchanged_pages_is_not_believed(path):
    with EpisodeStore(path) as store:
        for i in range(400):
            store.append(episode(i))
    held = index_of(path).read_bytes()
    pages = [held[at : at + 4096] for at in range(0, len(held), 4096)]
    for i in range(1, len(pages) - 1, 3):
        moved = [*pages[:i], pages[i + 1], pages[i], *pages[i + 2 :]]
        index_of(path).write_bytes(b"".join(moved))
        with EpisodeStore(path, read_only=True) as store:
            assert [entry.seed for entry in store.select()] == list(range(400))


def test_an_index_that_is_replaced_while_it_is_open_is_asked_no_more(path):
    with EpisodeStore(path) as store:
        for i in range(SAVE_EVERY):
            store.append(episode(i))
        with open(index_of(path), "r+b") as held:
            index_of(path).unlink()
            held.truncate(0)  # as the journal of a new file does: it is carried out in the old one too
        with EpisodeStore(path) as other:
            other.append(episode(1000))
        with pytest.raises(DuplicateEpisode):
            store.append(episode(3))
        assert [each.seed for each in store] == [*range(SAVE_EVERY), 1000]


def test_a_store_whose_index_is_deleted_again_and_again_goes_on(path):
    with EpisodeStore(path) as store:
        for i in range(6 * SAVE_EVERY):
            store.append(episode(i))
            if i % 100 == 0:
                index_of(path).unlink(missing_ok=True)
        assert [entry.seed for entry in store.select()] == list(range(6 * SAVE_EVERY))
        assert store[5].seed == 5
        index_of(path).unlink(missing_ok=True)
        for i in range(6 * SAVE_EVERY, 8 * SAVE_EVERY):
            store.append(episode(i))
        assert not index_of(path).exists()  # somebody does not want it: it is kept elsewhere
        assert len(store.select(success=True)) == 8 * SAVE_EVERY


@pytest.mark.parametrize("wanted", [["game:X"], object()])
def test_asking_for_what_nothing_is_leaves_the_index_alone(path, wanted):
    with EpisodeStore(path) as store:
        for i in range(SAVE_EVERY):
            store.append(episode(i))
        with pytest.raises(BadArgument, match="accepted: text, a number"):
            store.select(spec=wanted)
        assert index_of(path).exists()
        with pytest.raises(BadArgument, match="holds no episode 5"):
            store.get(5)


# -- one at a time goes on


CLAIMS = """
import sys, time
from gem.rollout import EpisodeStore
store = EpisodeStore(sys.argv[1])
store.claim()
print("claimed", flush=True)
time.sleep(600)
"""


def test_one_at_a_time_claims_a_store_and_a_killed_one_claims_it_no_more(path):
    holder = subprocess.Popen([sys.executable, "-c", CLAIMS, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "claimed\n"
        with EpisodeStore(path) as store:
            with pytest.raises(StoreError, match="another run resumes from this store"):
                store.claim()
            store.append(Episode(TaskRef("game:x"), RunInfo("r"), "job"))  # who only appends needs none
            holder.kill()
            holder.wait()
            store.claim()
            store.claim()
            assert len(store) == 1
    finally:
        holder.kill()
        holder.communicate()
    assert not path.with_name(path.name + ".lock").exists()


FORKED_CLAIM = """
import os, signal, sys
from gem.rollout import EpisodeStore
store = EpisodeStore(sys.argv[1])
store.claim()
if os.fork():
    signal.pause()
store.select()
print("forked", flush=True)
sys.stdin.read()
os._exit(0)
"""


def test_a_forked_process_that_only_reads_does_not_keep_the_claim(path):
    command = [sys.executable, "-c", FORKED_CLAIM, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "forked\n"
        holder.kill()
        holder.wait()
        with EpisodeStore(path) as store:
            store.claim()


def test_a_claim_ends_with_the_store_and_none_is_made_read_only(path):
    with EpisodeStore(path) as store, EpisodeStore(path) as other:
        store.claim()
        with pytest.raises(StoreError, match="another run"):
            other.claim()
        store.close()
        other.claim()
    with EpisodeStore(path, read_only=True) as store, pytest.raises(StoreError, match="read-only"):
        store.claim()


def test_where_no_lock_can_be_made_nobody_is_kept_out(path, monkeypatch):
    with EpisodeStore(path) as store:
        monkeypatch.setattr("gem.rollout.store._lock_file", refused)
        store.claim()


def refused(path):
    raise PermissionError(errno.EACCES, "denied", str(path))


def test_a_store_is_cut_where_others_have_it_open(tmp_path):
    path = tmp_path / "episodes.jsonl"
    played = [episode(number) for number in range(600)]
    with EpisodeStore(path) as store, EpisodeStore(path, read_only=True) as reader:
        for each in played:
            store.append(each)
        assert len(reader) == 600
        with EpisodeStore(path) as other:
            other.truncate(700)
            assert len(other) == 600
            other.truncate(300)
            assert len(other) == 300
        assert (len(store), len(reader), reader[-1].job) == (300, 300, "e299")
        store.append(played[300])
        assert jobs(reader)[-2:] == ["e299", "e300"]
        assert reader.torn == 0
        with pytest.raises(StoreError, match="read"):
            reader.truncate(0)
    with EpisodeStore(path) as store:
        store.truncate(0)
        assert list(store) == []
        store.append(played[0])
        assert jobs(store) == ["e0"]


def test_a_file_system_without_locks_is_named(path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with EpisodeStore(path) as store:
        monkeypatch.setattr(indexed_file.fcntl, "flock", refuse)
        with pytest.raises(StoreError, match=r"cannot be locked: No locks available\..* put the store on a"):
            store.append(episode())
        monkeypatch.undo()
        store.append(episode())
        assert len(store) == 1


def test_a_reader_that_looks_only_after_a_cut_store_has_grown_again_scans_it_anew(path):
    with EpisodeStore(path) as store, EpisodeStore(path, read_only=True) as reader:
        for number in range(4):
            store.append(episode(number))
        assert len(reader) == 4
        with EpisodeStore(path) as other:
            other.truncate(2)
            for number in range(10, 16):
                other.append(episode(number))
        expected = ["e0", "e1", *(f"e{number}" for number in range(10, 16))]
        for each in (reader, store):
            each.refresh()
            assert jobs(each) == expected
            assert [entry.job for entry in each.select()] == expected
        store.append(episode(20))
        assert jobs(reader) == [*expected, "e20"]


def test_a_store_that_was_deleted_is_not_cut(path):
    with EpisodeStore(path) as store:
        store.append(episode())
        path.unlink()
        with pytest.raises(StoreError, match="was deleted"):
            store.truncate(0)


def test_numbers_count_from_either_end_and_end_there(path):
    with EpisodeStore(path) as store:
        for number in range(3):
            store.append(episode(number))
        lines = path.read_bytes().split(b"\n")
        lines = [line for line in lines if b'"episode"' in line or b'"job"' in line][-3:]
        assert [store.line(number) for number in range(-3, 3)] == [*lines, *lines]
        assert [store[number].job for number in range(-3, 3)] == [each.job for each in [*store, *store]]
        for number in (-4, 3):
            for read in (store.line, store.__getitem__):
                with pytest.raises(IndexError, match=f"holds 3 episodes; there is no number {number}"):
                    read(number)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_closed_store_has_no_open_file(path, read_only):
    with EpisodeStore(path) as store:
        store.append(episode())
    before = sorted(os.listdir("/proc/self/fd"))
    store = EpisodeStore(path, read_only=read_only)
    assert len(store.select()) == 1
    assert len(os.listdir("/proc/self/fd")) > len(before)
    store.close()
    assert sorted(os.listdir("/proc/self/fd")) == before
