"""What `StoreCheck` says about stores that are whole, and about every kind of damage."""

import os
import random
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from gem import codec
from gem.cli import main
from gem.errors import StoreError
from gem.record import Episode, RunInfo, SeatEnd, StopReason, Turn, Verdict
from gem.rollout import EpisodeStore
from gem.rollout.verify import StoreCheck
from gem.specs import TaskRef


def episode(number, run="run"):
    turn = Turn("agent", "say five", f"five {number}", reward=0.5)
    turn.hold((1, 2), (3, number), (-0.5, -1.0))
    ends = {"agent": SeatEnd(StopReason.SOLVED, terminated=True)}
    task = TaskRef("game:X", seed=number)
    return Episode(
        task,
        RunInfo(run, "agent"),
        f"e{number}",
        turns=[turn],
        ends=ends,
        stop=StopReason.SOLVED,
        verdict=Verdict.SCORED,
    )


def index_of(path):
    return path.with_name(path.name + ".index.sqlite")


def lines(path):
    return path.read_bytes().splitlines(keepends=True)


def faults(path):
    """Return the kind and line of each fault."""
    return [(each.kind, each.line) for each in StoreCheck(path).faults()]


def change_index(path, *statements):
    with closing(sqlite3.connect(index_of(path))) as index:
        for statement in statements:
            index.execute(statement)
        index.commit()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "episodes.jsonl"
    with EpisodeStore(path) as store:
        for number in range(4):
            store.append(episode(number, "run" if number < 2 else "other"))
    return path


def test_a_whole_store_has_no_fault_and_is_left_alone(path):
    before = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    check = StoreCheck(path)
    assert list(check.faults()) == []
    assert (check.lines, check.episodes, check.runs, check.unchecked) == (6, 4, 2, 0)
    assert check.index == "the index fits; it covers 4 of 4 episodes"
    assert {each.name: each.read_bytes() for each in path.parent.iterdir()} == before
    index_of(path).unlink()
    check = StoreCheck(path)
    assert (list(check.faults()), check.index) == ([], "there is no index")
    assert not index_of(path).exists()


def test_an_index_of_an_earlier_state_is_no_fault(path):
    index = index_of(path).read_bytes()
    with EpisodeStore(path) as store:
        store.append(episode(7, "other"))
    index_of(path).write_bytes(index)
    check = StoreCheck(path)
    assert list(check.faults()) == []
    assert check.index == "the index fits; it covers 4 of 5 episodes"
    os.utime(path, (1, 1))
    with EpisodeStore(path, read_only=True):
        pass
    os.utime(path, (2, 2))
    check = StoreCheck(path)
    assert (list(check.faults()), check.index) == ([], "the index is of an earlier state")


def test_every_changed_bit_of_a_store_is_found(path, tmp_path):
    whole, rng = path.read_bytes(), random.Random(0)
    ends = [at for at in range(len(whole)) if whole[at] == 10]
    for at in {*ends, 0, *rng.sample(range(len(whole)), 300)}:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << rng.randrange(8)
        (tmp_path / "damaged.jsonl").write_bytes(damaged)
        check = StoreCheck(tmp_path / "damaged.jsonl")
        found = list(check.faults())
        line = whole[:at].count(b"\n") + 1
        start = whole.rfind(b"\n", 0, at) + 1
        # One in the name of the checksum makes it a line without a checksum, with all that it had.
        if not found:
            assert check.unchecked == 1
            assert at > start + codec.CHECKSUM.search(whole[start : whole.find(b"\n", at) + 1]).start()
        else:
            assert line in {each.line for each in found}


@pytest.mark.parametrize("kept", [1, 30, -2, -20])
def test_a_cut_tail_is_found(path, kept):
    *whole, last = lines(path)
    path.write_bytes(b"".join(whole) + last[:kept])
    assert faults(path) == [("cut", 6), ("missing", 0)]
    index_of(path).unlink()
    assert faults(path) == [("cut", 6)]
    with EpisodeStore(path) as store:
        store.append(episode(3, "other"))
    assert faults(path) == [("cut", 6)]


def test_a_last_line_without_its_line_break_is_whole(path):
    path.write_bytes(path.read_bytes()[:-1])
    assert faults(path) == []


def test_lines_that_are_missing_are_named_by_the_index(path):
    path.write_bytes(b"".join(lines(path)[:2] + lines(path)[3:5]))
    found = list(StoreCheck(path).faults())
    assert [each.kind for each in found] == ["missing", "missing"]
    assert "'run-e1-0-0'" in found[0].text
    assert "'other-e3-0-0'" in found[1].text


def test_a_doubled_line_is_found(path):
    run, first, *_ = lines(path)
    with path.open("ab") as file:
        file.write(first + run)
    found = list(StoreCheck(path).faults())
    assert [(each.kind, each.line) for each in found] == [("doubled", 7), ("doubled", 8)]
    assert "'run-e0-0-0' is in the store as number 0" in found[0].text


def test_swapped_lines_are_found(path):
    one, two, three, *rest = lines(path)
    state = path.stat()
    path.write_bytes(b"".join([one, three, two, *rest]))
    assert (
        faults(path) == []
    )  # it is another order of the same episodes, and of an earlier state of the index
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    with closing(sqlite3.connect(index_of(path))) as index:
        from gem.rollout.indexed_file import IndexedFile

        file = IndexedFile(path, None, read_only=True)
        index.execute("UPDATE mark SET seal = ?", (file._seal(path.stat().st_size),))
        index.commit()
        file.close()
    assert faults(path) == [("index", 0), ("index", 0)]
    path.write_bytes(b"".join([two, one, three, *rest]))
    assert faults(path) == [("order", 2)]
    path.write_bytes(b"".join([two, three, *rest]))
    assert faults(path)[0] == ("missing", 1)


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ("UPDATE episodes SET reward = 1.5 WHERE number = 2", ["index"]),
        ("UPDATE episodes SET start = start + 1 WHERE number = 2", ["index"]),
        ("UPDATE episodes SET id = 'run-e9-0-0' WHERE number = 2", ["missing"]),
        ("UPDATE runs SET start = start + 1 WHERE id = 'run'", ["index"]),
        ("DELETE FROM episodes WHERE number = 2", ["index"]),
        ("DELETE FROM runs", []),
        ("UPDATE episodes SET seed = 'x' WHERE number = 2", ["index"]),
    ],
)
def test_an_altered_index_is_found(path, change, kinds):
    change_index(path, change)
    assert [kind for kind, _ in faults(path)] == kinds


def test_an_index_of_something_else_is_found_or_named(path):
    index_of(path).write_bytes(b"junk" * 1000)
    assert faults(path) == [("index", 0)]
    index_of(path).unlink()
    change_index(path, "CREATE TABLE x (y)")
    check = StoreCheck(path)
    assert list(check.faults()) == []
    assert check.index.startswith("the index is not of this version of gem")


def test_every_changed_bit_of_an_index_ends_with_an_answer(path):
    whole, rng = index_of(path).read_bytes(), random.Random(0)
    for _ in range(100):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        index_of(path).write_bytes(damaged)
        assert {kind for kind, _ in faults(path)} <= {"index", "missing"}


def test_lines_of_another_schema_are_named(path):
    with path.open("ab") as file:
        file.write(b'{"schema":99,"x":1}\n')
    (found,) = StoreCheck(path).faults()
    assert (found.kind, found.line) == ("schema", 7)
    assert "schema 99; this version of gem reads schemas 1 to" in found.text


def test_lines_without_a_checksum_are_counted(path):
    path.write_bytes(codec.CHECKSUM.sub(b"}\n", path.read_bytes()))
    check = StoreCheck(path)
    assert list(check.faults()) == []
    assert check.unchecked == 1


def test_a_file_of_another_program_is_read_in_pieces(tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_bytes(b"Dear diary,\n\x00\xff\n\n" + b"x" * (5 << 20))
    check = StoreCheck(other)
    found = list(check.faults())
    assert [(each.kind, each.line) for each in found] == [("damaged", n) for n in (1, 2, 3)] + [("cut", 4)]
    assert max(len(each.text) for each in found) < 200
    assert (check.lines, check.episodes) == (4, 0)


@pytest.mark.parametrize("length", [10, 100, 3 << 20])
def test_a_line_of_another_program_between_two_others_is_damaged(path, length):
    first, *rest = lines(path)
    path.write_bytes(first + b'{"diary":"' + b"x" * length + b'"}\n' + b"".join(rest))
    with EpisodeStore(path) as store:
        assert len(store) == 5  # what ends with a brace counts as an episode
    assert faults(path) == [("damaged", 2)]


def test_an_episode_is_doubled_of_its_first_line(path, monkeypatch):
    monkeypatch.setattr("gem.rollout.verify.AT_ONCE", 3)
    path.write_bytes(path.read_bytes() + lines(path)[1] * 2)
    texts = [each.text for each in StoreCheck(path).faults() if each.kind == "doubled"]
    assert texts == ["episode 'run-e0-0-0' is in the store as number 0."] * 2


def test_a_store_that_is_not_there_or_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("absent", "pipe", "."):
        with pytest.raises(StoreError):
            list(StoreCheck(tmp_path / name).faults())


@pytest.mark.system
def test_the_memory_does_not_grow_with_the_store(tmp_path):
    path = tmp_path / "episodes.jsonl"
    line = codec.encode(episode(5))
    with path.open("wb") as file:
        for number in range(30_000):
            cut = codec.CHECKSUM.sub(b"}", line).replace(b'"job":"e5"', b'"job":"e%d"' % number)
            file.write(cut.replace(b"run-e5-", b"run-e%d-" % number) + b"\n")
    with path.open("ab") as file:
        file.write(path.read_bytes()[:5_000_000])
    code = (
        "import resource, sys; from pathlib import Path; from gem.rollout.verify import StoreCheck\n"
        "def most(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = most(); sum(1 for _ in StoreCheck(Path(sys.argv[1])).faults()); print(most() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, check=True, text=True)
    assert int(done.stdout) < 30_000  # KiB


# -- the command


def run(capsys, *args):
    code = main(["store", "verify", *map(str, args)])
    streams = capsys.readouterr()
    return code, streams.out, streams.err


def test_the_command_goes_through_the_folder_of_a_run(path, capsys):
    folder = path.parent
    (folder / "episodes-1.jsonl").write_bytes(path.read_bytes())
    (folder / "watched.jsonl").write_bytes(path.read_bytes())
    (folder / "metrics.jsonl").write_text('{"iteration": 1}\n')
    (folder / "config.json").write_text('{"store": "full"}')
    code, out, err = run(capsys, folder)
    assert (code, err) == (0, "")
    assert out.count("6 lines, 4 episodes, 2 runs, no faults; ") == 3
    (folder / "metrics.jsonl").write_text('{"iteration": 1}\n{"iter')
    (folder / "config.json").write_text("")
    with (folder / "episodes-1.jsonl").open("ab") as file:
        file.write(b'{"schema":2,"a":"\x1b[2J\n' * 30)
    code, out, _ = run(capsys, folder, "--limit", "2")
    assert code == 1
    assert f"{folder}/episodes-1.jsonl, line 7: damaged" not in out
    assert f"{folder}/episodes-1.jsonl: line 7, damaged: " in out
    assert f"{folder}/episodes-1.jsonl: and 28 more" in out
    assert f"{folder}/metrics.jsonl: line 2, damaged: " in out
    assert f"{folder}/config.json: damaged: " in out
    assert "\x1b" not in out


def test_the_command_says_which_files_have_vanished(path, capsys):
    folder = path.parent
    path.unlink()
    code, out, _ = run(capsys, folder)
    assert (code, out) == (1, f"{path}: missing: the run has no such file.\n")
    index_of(path).unlink()
    (folder / "metrics.jsonl").write_text("{}\n")
    (folder / "config.json").write_text('{"store": "none"}')
    assert run(capsys, folder)[0] == 2
    (folder / "config.json").write_text("{}")
    assert run(capsys, folder)[0] == 1


def test_the_command_prints_no_control_character_of_a_name(path, capsys):
    strange = path.rename(path.with_name("\x1b[31mred.jsonl"))
    code, out, _ = run(capsys, strange)
    assert (code, "\x1b" in out) == (0, False)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["absent"], "absent is not there"),
        ([], ""),
        (["."], "holds no store"),
        ([".", "--limit", "0"], "limit is 0"),
    ],
)
def test_the_command_refuses_what_is_no_run(tmp_path, capsys, monkeypatch, args, message):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, *args)
    assert (code, message in err) == (2, True)
