import errno
import json
import math
import os
import resource
import subprocess
import sys
import threading

import pytest
from gem.rollout.stored import from_stored, plain, restored, to_stored
from hypothesis import given, settings
from hypothesis import strategies as st

from gem.agents.random import RandomAgent
from gem.content import Image, Text
from gem.errors import SchemaMismatch, StoreError
from gem.record import SCHEMA, Episode, Failure, StopReason, Turn, Verdict
from gem.rollout import EpisodeStore, Job, rollout


def episode(number=0, **changes):
    turns = [
        Turn("agent", "rules", r"\boxed{5}", (1, 2, 3), (4, 5), (-0.5, -1.0), (1, 1), 0.5, "stop", {"a": 1}),
        Turn("agent", "higher", r"\boxed{7}", (1, 2, 3, 4, 5, 6), (7,), (-0.1,), (1,), 0.5, "stop"),
    ]
    values = {"turns": turns, "stop": StopReason.SOLVED, "terminated": True, "verdict": Verdict.SCORED}
    info = {"suffix": "Answer in a box."}
    return Episode(f"e{number}", "game:X", number, initial_info=info, **{**values, **changes})


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
    assert [json.loads(line)["schema"] for line in lines(path)] == [SCHEMA] * 5


def test_played_episodes_survive_storing(path):
    episodes = rollout([Job("game:GuessTheNumber-v0-hard", seed) for seed in range(20)], RandomAgent())
    with EpisodeStore(path) as store:
        for each in episodes:
            store.append(each)
        assert list(store) == episodes
        assert [each.transcript_hash() for each in store] == [each.transcript_hash() for each in episodes]


def test_pictures_surrogates_and_floats_outside_json_come_back(path):
    picture = (Text("look \ud800"), Image(b"\x89PNG\x00\xff", "image/png", "a \udfff cat"))
    odd = episode(
        turns=[
            Turn(
                "agent",
                picture,
                "\ud83d\ude00 \x00\u2028",
                token_ids=(1, 2),
                logprobs=(-math.inf, -1.0),
                mask=(1, 1),
                info={"deep": [{"x": math.inf}], "$float": "not one", 3: "three", "big": 2**70},
            )
        ],
        final_observation=picture,
        error=Failure("env", "ValueError", "bad \ud800"),
    )
    with EpisodeStore(path) as store:
        store.append(odd)
        assert store[0] == odd
        odd.turns[0].info = {"x": math.nan}
        store.append(odd)
        assert math.isnan(store[1].turns[0].info["x"])


def test_token_ids_of_numpy_become_plain(path):
    numpy = pytest.importorskip("numpy")
    sampled = episode()
    sampled.turns[1].prompt_ids = tuple(map(numpy.int64, sampled.turns[1].prompt_ids))
    with EpisodeStore(path) as store:
        store.append(sampled)
        assert store[0] == episode()
        assert {type(token) for token in store[0].turns[1].prompt_ids} == {int}


def test_numbers_of_numpy_become_plain_and_other_objects_their_repr(path):
    numpy = pytest.importorskip("numpy")

    class Rude:
        def __repr__(self):
            raise RuntimeError("no")

    loop = {"name": "loop"}
    loop["self"] = loop
    info = {
        "count": numpy.int64(3),
        "share": numpy.float32(0.5),
        "yes": numpy.bool_(True),
        "pair": (1, 2),
        "set": {1},
        "rude": Rude(),
        "loop": loop,
    }
    with EpisodeStore(path) as store:
        store.append(episode(final_info=info))
        back = store[0].final_info
    assert (back["count"], back["share"], back["yes"], back["pair"]) == (3, 0.5, True, [1, 2])
    assert type(back["count"]) is int
    assert back["set"] == "{1}"
    assert back["rude"] == "<Rude whose repr raises RuntimeError>"
    assert back["loop"]["self"]["name"] == "loop"


texts = st.text(st.characters(exclude_categories=()))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts | st.integers() | st.just("$repr"), inner),
    max_leaves=12,
)


@settings(deadline=None)
@given(values)
def test_every_json_like_value_comes_back(value):
    stored = json.loads(json.dumps(plain(value), allow_nan=False))
    assert restored(stored) == value


ids = st.lists(st.integers(0, 9), max_size=6).map(tuple)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), ids, ids, st.booleans()), max_size=6))
def test_prompts_come_back_whether_they_extend_the_last_one_or_not(turns):
    held = {}
    made = []
    for seat, prompt, answer, extends in turns:
        prompt_ids = held.get(seat, ()) + prompt if extends else prompt
        held[seat] = prompt_ids + answer
        made.append(Turn(seat, "o", "a", prompt_ids, answer, mask=(1,) * len(answer), reward=0.0))
    assert from_stored(json.loads(json.dumps(to_stored(episode(turns=made))))).turns == made


def test_a_prompt_is_stored_without_what_the_last_one_covers():
    stored = to_stored(episode())
    assert [(turn["held"], turn["prompt_ids"]) for turn in stored["turns"]] == [(0, (1, 2, 3)), (5, (6,))]


def test_token_ids_can_be_left_out(path):
    with EpisodeStore(path, tokens=False) as store:
        store.append(episode())
        turn = store[0].turns[0]
    assert (turn.prompt_ids, turn.token_ids, turn.logprobs, turn.mask) == ((), (), (), ())
    assert (turn.action, turn.reward) == (r"\boxed{5}", 0.5)
    assert b"token_ids" not in path.read_bytes()


@pytest.mark.parametrize("kept", [1, 5, 11, 40, -2, -1])
def test_a_torn_last_line_is_skipped_counted_and_closed_off(path, kept):
    with EpisodeStore(path) as store:
        store.append(episode(0))
        store.append(episode(1))
    whole, torn = lines(path)
    path.write_bytes(whole + torn[:kept])
    with EpisodeStore(path) as store:
        assert [each.id for each in store] == ["e0"]
        assert store.torn == 1
        store.append(episode(2))
        store.append(episode(3))
        assert [each.id for each in store] == ["e0", "e2", "e3"]
        assert store.torn == 1
    with EpisodeStore(path, read_only=True) as again:
        assert [each.id for each in again] == ["e0", "e2", "e3"]


@pytest.mark.parametrize("kept", [1, 10, 11, 12, 40])
def test_a_store_whose_only_line_is_torn_goes_on(path, kept):
    with EpisodeStore(path) as store:
        store.append(episode(0))
    path.write_bytes(path.read_bytes()[:kept])
    for expected in (["e1"], ["e1", "e1"]):
        with EpisodeStore(path) as store:
            store.append(episode(1))
            assert [each.id for each in store] == expected


def test_a_reader_sees_what_is_appended_while_it_reads(path):
    with EpisodeStore(path) as writer, EpisodeStore(path, read_only=True) as reader:
        assert len(reader) == 0
        seen = []
        writer.append(episode(0))
        for each in reader:
            seen.append(each.id)
            if len(seen) < 3:
                writer.append(episode(len(seen)))
        assert seen == ["e0", "e1", "e2"]


WRITER = """
import sys
from gem.record import Episode
from gem.rollout import EpisodeStore
with EpisodeStore(sys.argv[1]) as store:
    for i in range(200):
        store.append(Episode(f"{sys.argv[2]}{i}", "x" * 5000, i))
"""


def test_two_writing_processes_do_not_mix(path):
    with EpisodeStore(path):
        pass
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in "ab"]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    with EpisodeStore(path, read_only=True) as store:
        assert store.torn == 0
        ids = [each.id for each in store]
    for name in "ab":
        assert [each for each in ids if each[0] == name] == [f"{name}{i}" for i in range(200)]


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


def test_a_hundred_thousand_episodes_open_by_the_index_without_being_read(path, monkeypatch):
    junk = b'{"schema":%d,"not an episode":%s}\n'
    with path.open("wb") as file:
        file.writelines(junk % (SCHEMA, b"9" * (i % 300)) for i in range(100_000))
    with EpisodeStore(path) as store:  # makes the index; lines that nobody asks for are never parsed
        store.append(episode(7))
        assert len(store) == 100_001
    read = count_read(monkeypatch)
    with EpisodeStore(path, read_only=True) as store:
        assert len(store) == 100_001
        assert store[100_000].seed == 7
        with pytest.raises(StoreError, match="episode 50000"):
            store[50_000]
    assert sum(read) < 20_000


def test_the_index_is_extended_not_made_again(path, monkeypatch):
    with EpisodeStore(path) as store:
        for i in range(300):
            store.append(episode(i))
    with EpisodeStore(path) as store:
        store.append(episode(300))
    read = count_read(monkeypatch)
    with EpisodeStore(path, read_only=True) as store:
        assert [store[i].seed for i in (0, 299, 300)] == [0, 299, 300]
    assert sum(read) < 20_000


@pytest.mark.parametrize("damage", ["absent", "cut", "other", "shifted", "junk"])
def test_an_index_that_does_not_fit_is_made_again(path, damage):
    with EpisodeStore(path) as store:
        for i in range(10):
            store.append(episode(i))
    index = path.with_name("episodes.jsonl.index")
    data = index.read_bytes()
    if damage == "absent":
        index.unlink()
    elif damage == "cut":
        index.write_bytes(data[:-5])
    elif damage == "other":
        path.write_bytes(b"".join(reversed(lines(path))))
    elif damage == "shifted":
        index.write_bytes(data[:-8] + bytes([data[-8] ^ 1]) + data[-7:])
    else:
        index.write_bytes(b"junk" * 100)
    with EpisodeStore(path) as store:
        assert sorted(each.seed for each in store) == list(range(10))
    with EpisodeStore(path, read_only=True) as store:
        assert len(store) == 10


def test_a_store_that_was_cut_is_read_anew(path):
    with EpisodeStore(path) as store:
        for i in range(5):
            store.append(episode(i))
        os.truncate(path, len(b"".join(lines(path)[:2])))
        assert [each.seed for each in store] == [0, 1]


def test_another_schema_is_refused(path):
    with EpisodeStore(path) as store:
        store.append(episode(0))
    path.write_bytes(path.read_bytes().replace(b'{"schema":1,', b'{"schema":99,'))
    with pytest.raises(SchemaMismatch, match="schema 99"):
        EpisodeStore(path)


def test_a_later_line_of_another_schema_is_refused_when_it_is_read(path):
    with EpisodeStore(path) as store:
        store.append(episode(0))
        store.append(episode(1, schema=SCHEMA + 1))
        assert store[0].seed == 0
        with pytest.raises(SchemaMismatch):
            store[1]


def test_a_line_that_nests_beyond_all_reason_is_damaged(path):
    path.write_bytes(b'{"schema":1,"id":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n")
    with EpisodeStore(path) as store, pytest.raises(StoreError, match=r"episode 0 .* is damaged"):
        store[0]


def test_what_is_no_store_is_refused_and_left_alone(path):
    path.write_text("Dear diary,\n")
    with pytest.raises(StoreError, match="Dear diary"):
        EpisodeStore(path)
    assert path.read_text() == "Dear diary,\n"


def test_what_cannot_be_opened_says_why(path, tmp_path):
    with pytest.raises(StoreError, match="No such file"):
        EpisodeStore(path, read_only=True)
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
