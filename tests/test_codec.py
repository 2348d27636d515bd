import dataclasses
import json
import math
import re
import zlib
from array import array
from hashlib import blake2b
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from any_records import asks, episodes, messages, replies, runs, tasks, tools, values
from hypothesis import given, settings
from stored_records import packed_records, stored_episodes, stored_runs

from gem import codec
from gem.codec import plain, restored
from gem.content import Image, Message, Text
from gem.errors import BadArgument, SchemaMismatch
from gem.record import (
    SCHEMA,
    Episode,
    Limits,
    Origin,
    RunInfo,
    SeatEnd,
    StopReason,
    Turn,
)
from gem.specs import TaskRef

DATA = Path(__file__).parent / "rollout" / "data"

SCHEMA_OF_LINES = jsonschema.Draft202012Validator(codec.json_schema())


def schema_for(kind):
    whole = codec.json_schema()
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{kind}", "$defs": whole["$defs"]})


def places(turns):
    return [next((i for i, each in enumerate(turns) if each is turn.parent), None) for turn in turns]


@settings(deadline=None)
@given(episodes)
def test_every_episode_comes_back_and_fits_the_schema(episode):
    line = codec.encode(episode)
    back = codec.decode(line, episode.run)
    assert back == episode
    assert (back.id, back.transcript_hash()) == (episode.id, episode.transcript_hash())
    assert places(back.turns) == places(episode.turns)
    assert [turn.prompt_ids for turn in back.turns] == [turn.prompt_ids for turn in episode.turns]
    assert b"\n" not in line
    assert line.startswith(b'{"schema":%d,' % SCHEMA)
    assert not line.startswith(codec.RUN_LINE)
    SCHEMA_OF_LINES.validate(json.loads(line))
    assert codec.encode(back) == line


@settings(deadline=None)
@given(runs)
def test_every_run_comes_back_and_fits_the_schema(run):
    line = codec.encode_run(run)
    assert codec.decode_run(line) == run
    assert line.startswith(codec.RUN_LINE)
    assert b"\n" not in line
    SCHEMA_OF_LINES.validate(json.loads(line))


@settings(deadline=None)
@given(asks | replies | tasks | messages | tools)
def test_what_travels_between_processes_comes_back_and_fits_the_schema(value):
    data = codec.pack(value)
    assert codec.unpack(data, type(value)) == value
    name = "Task" if isinstance(value, TaskRef) else type(value).__name__
    schema_for(name).validate(json.loads(data))


def test_what_cannot_be_packed_says_what_can():
    with pytest.raises(BadArgument, match="int cannot be packed; accepted: Ask, Reply"):
        codec.pack(3)


@settings(deadline=None)
@given(values)
def test_every_json_like_value_comes_back(value):
    assert restored(json.loads(json.dumps(plain(value), allow_nan=False))) == value


def test_each_struct_has_the_fields_of_its_record_under_the_same_names():
    # set by every decoder; the key of a mapping; of this process alone
    others = {"Task": {"foreign"}, "End": {"seat"}, "Ask": {"attempts"}}
    for kind, made in codec.RECORDS.items():
        names = {each.name for each in dataclasses.fields(made)}
        assert names ^ set(kind.__struct_fields__) == others.get(kind.__name__, set()), kind


def test_the_name_of_a_single_seat_is_left_out_wherever_its_text_came_from():
    seat = "".join(["ag", "ent"])
    episode = Episode(TaskRef("game:X"), turns=[Turn(seat, "o", "a")], ends={seat: SeatEnd()})
    stored = json.loads(codec.encode(episode))
    assert [*map(list, (stored["turns"][0], stored["ends"][0]))] == [["observation", "action"], ["stop"]]


def small(**changes):
    turn = Turn("agent", "rules", "5", reward=0.5)
    turn.hold((1, 2, 3), (4, 5), (-0.5, -1.0))
    return Episode(TaskRef("game:X", seed=3), turns=[turn], stop=StopReason.SOLVED, **changes)


def test_an_episode_is_stored_without_what_can_be_left_out():
    second = Turn("agent", "higher", "7")
    episode = small(job="j")
    second.extend(episode.turns[0], (6,), (7,), None)
    episode.turns.append(second)
    stored = json.loads(codec.encode(episode))
    assert list(stored) == ["schema", "job", "run", "task", "stop", "verdict", "turns", "crc32"]
    first, second = stored["turns"]
    assert list(first) == ["observation", "action", "reward", "new_ids", "token_ids", "logprobs"]
    assert second == {
        "observation": "higher",
        "action": "7",
        "parent": 0,
        "kept": 5,
        "new_ids": "BgAAAA==",
        "token_ids": "BwAAAA==",
    }


def test_tokens_can_be_left_out():
    episode = small()
    episode.turns.append(Turn("agent", "o", "a"))
    episode.turns[1].extend(episode.turns[0], (6,), (7,), (-1.0,))
    back = codec.decode(codec.encode(episode, tokens=False))
    for turn in back.turns:
        assert (turn.kept, turn.new_ids, turn.token_ids, turn.logprobs, turn.mask) == (0, (), (), None, b"")
    assert back.turns[1].parent is back.turns[0]
    assert back.transcript_hash() == episode.transcript_hash()


def test_a_prompt_whose_parent_is_not_in_the_episode_is_stored_whole():
    episode = small()
    stranger = episode.turns.pop()
    turn = Turn("agent", "o", "a")
    turn.extend(stranger, (6,), (7,))
    episode.turns.append(turn)
    (back,) = codec.decode(codec.encode(episode)).turns
    assert (back.parent, back.kept, list(back.prompt_ids)) == (None, 0, [1, 2, 3, 4, 5, 6])


def test_sequences_of_any_kind_become_arrays():
    numpy = pytest.importorskip("numpy")
    turn = Turn("agent", "o", "a", new_ids=[1, 2], token_ids=numpy.array([3, 4]), mask=(1, 0))
    turn.logprobs = numpy.array([-0.5, -math.inf])
    (back,) = codec.decode(codec.encode(Episode(TaskRef("x"), turns=[turn]))).turns
    assert back.new_ids == array("i", [1, 2])
    assert back.token_ids == array("i", [3, 4])
    assert back.logprobs == array("f", [-0.5, -math.inf])
    assert back.mask == bytes([1, 0])


def test_token_ids_beyond_32_bits_are_refused():
    turn = Turn("agent", "o", "a", new_ids=(2**31,))
    with pytest.raises(BadArgument, match="32-bit"):
        codec.encode(Episode(TaskRef("x"), turns=[turn]))


def test_numbers_of_numpy_become_plain_and_other_objects_their_repr():
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
        "nan": math.nan,
    }
    episode = small(ends={"agent": SeatEnd(info=info)})
    episode.turns[0].reward, episode.turns[0].policy_version = numpy.float32(0.5), numpy.int64(2)
    back = codec.decode(codec.encode(episode))
    found = back.final_info
    assert (found["count"], found["share"], found["yes"], found["pair"]) == (3, 0.5, True, [1, 2])
    assert type(found["count"]) is int
    assert found["set"] == "{1}"
    assert found["rude"] == "<Rude whose repr raises RuntimeError>"
    assert found["loop"]["self"]["name"] == "loop"
    assert math.isnan(found["nan"])
    assert (back.turns[0].reward, back.turns[0].policy_version) == (0.5, 2)


def test_text_that_looks_like_an_escape_stays_text():
    info = {"a": '{"$float":"nan"}', "$float": "nan", "b": {"$int": "x"}}
    episode = small(ends={"agent": SeatEnd(info=info, observation='"$utf8"')})
    assert codec.decode(codec.encode(episode)).ends == episode.ends


def test_the_names_of_odd_values_are_read_however_json_writes_them():
    line = without_checksum(codec.encode(one_turn(info={"key": 1})))
    for written in (b'{"$float":"-inf"}', rb'{"\u0024float":"-inf"}', rb'{"$\u0066loat":"-inf"}'):
        (turn,) = codec.decode(line.replace(b'{"key":1}', b'{"key":%b}' % written)).turns
        assert turn.info == {"key": -math.inf}


def test_every_decoder_marks_tasks_as_those_of_somebody_else():
    line = codec.encode(small())
    for task in (
        codec.decode(line).task,
        codec.decode_task(line),
        codec.unpack(codec.pack(TaskRef("a:b")), TaskRef),
    ):
        assert task.foreign


def test_an_unknown_run_is_known_by_its_id():
    episode = small(run=RunInfo("r1", agent="a"))
    line = codec.encode(episode)
    assert codec.decode(line).run == RunInfo("r1")
    assert codec.decode(line, episode.run).run == episode.run
    assert codec.decode(line, RunInfo("r2", agent="b")).run == RunInfo("r1")


def damaged(change):
    stored = json.loads(without_checksum(codec.encode(small())))
    change(stored)
    return json.dumps(stored, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line.pop("task"),
        lambda line: line.update(stop="no such reason"),
        lambda line: line["turns"][0].update(parent=0),
        lambda line: line["turns"][0].update(parent=-1),
        lambda line: line["turns"][0].update(kept=1),
        lambda line: line["turns"][0].update(token_ids="AAA="),
        lambda line: line["turns"][0].update(logprobs="AAAAAA=="),
        lambda line: line["turns"][0].update(mask="AQ=="),
        lambda line: line["turns"][0].update(info={"x": {"$image": 3}}),
        lambda line: line["turns"][0].update(info={"x": {"$dict": [[[{}], 1]]}}),
        lambda line: line["turns"][0].update(info={"x": {"$int": "zz"}}),
        lambda line: line.update(turns={}),
    ],
)
def test_a_damaged_line_is_a_value_error(change):
    codec.decode(damaged(lambda line: None))
    with pytest.raises(ValueError, match=r"."):
        codec.decode(damaged(change))


@pytest.mark.parametrize("line", [b"", b"{}", b'{"schema":2', b'{"schema":2,"job":' + b"[" * 100_000])
def test_no_line_at_all_is_a_value_error(line):
    with pytest.raises(ValueError, match=r"."):
        codec.decode(line)


def test_another_schema_is_refused():
    line = codec.encode(small()).replace(b'{"schema":2,', b'{"schema":3,', 1)
    with pytest.raises(SchemaMismatch, match="schema 3; this version of gem reads schemas 1 to 2"):
        codec.decode(line)


def test_the_schema_describes_each_record():
    schema = codec.json_schema()
    assert {"Episode", "Run", "Turn", "Ask", "Reply", "Message", "ToolCall", "ToolSpec", "Task"} <= set(
        schema["$defs"]
    )
    assert all(each.get("description") for each in schema["$defs"].values() if each.get("title") != "Verdict")
    with pytest.raises(jsonschema.ValidationError):
        SCHEMA_OF_LINES.validate({"schema": SCHEMA, "job": "j"})


# -- the stored form stays


SCHEMA_2 = (DATA / "schema2.jsonl").read_bytes().splitlines()
WITHOUT_TOKENS = 30


def written():
    """Return the lines of all stored records, as they are written now."""
    episodes = stored_episodes()
    return [
        *map(codec.encode_run, stored_runs()),
        *map(codec.encode, episodes),
        *(codec.encode(episode, tokens=False) for episode in episodes[:WITHOUT_TOKENS]),
        *map(codec.pack, packed_records()),
    ]


def without_checksum(line):
    return re.sub(rb',"crc32":"[0-9a-f]{8}"\}$', b"}", line)


def test_records_are_written_as_they_always_were_but_for_the_checksum():
    for number, (line, held) in enumerate(zip(written(), SCHEMA_2, strict=True)):
        assert without_checksum(line) == held, f"record {number}"


def read():
    """Return a hash of each record that the stored lines hold, as they are read now."""
    runs, episodes = len(stored_runs()), len(stored_episodes()) + WITHOUT_TOKENS
    kept = [codec.decode_run(line) for line in SCHEMA_2[:runs]]
    kept += [codec.decode(line) for line in SCHEMA_2[runs : runs + episodes]]
    rest = zip(SCHEMA_2[runs + episodes :], packed_records(), strict=True)
    kept += [codec.unpack(line, type(record)) for line, record in rest]
    shown = [repr((record, places(getattr(record, "turns", ())))) for record in kept]
    shown = [text.replace(", address=''", "") for text in shown]  # a field that earlier versions lack
    return [blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest() for text in shown]


def test_lines_of_earlier_versions_are_read_as_they_always_were():
    hashes = (DATA / "schema2_read.txt").read_text().split()
    for number, (record, held) in enumerate(zip(read(), hashes, strict=True)):
        assert record == held, f"record {number}"


def fields_of(value, schema, whole, found):
    """Add the fields of a stored object to `found`, by the name of its record."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return fields_of(value, {**whole["$defs"][name], "title": name}, whole, found)
    for option in schema.get("anyOf", ()):
        fields_of(value, option, whole, found)
    if isinstance(value, dict) and "properties" in schema:
        found.setdefault(schema["title"], set()).update(set(value) & set(schema["properties"]))
        for name, inner in value.items():
            fields_of(inner, schema["properties"].get(name, {}), whole, found)
    if isinstance(value, list) and value:
        for inner in value:
            fields_of(inner, schema.get("items") or {}, whole, found)
        for inner, each in zip(value, schema.get("prefixItems") or (), strict=False):
            fields_of(inner, each, whole, found)
    return found


def test_every_field_of_the_schema_is_among_the_stored_records():
    whole, found = codec.json_schema(), {}
    for line in written():
        stored = json.loads(line)
        for name in (
            ("Run", "Episode") if "schema" in stored else ("Ask", "Reply", "Task", "Message", "ToolSpec")
        ):
            if set(whole["$defs"][name]["required"]) <= set(stored):
                fields_of(stored, {"$ref": f"#/$defs/{name}"}, whole, found)
    for name, schema in whole["$defs"].items():
        assert found.get(name, set()) == set(schema.get("properties", ())), name


# -- the checksum


def changed(line):
    """Yield the line with each of its bytes changed in turn, but for the names of the outer fields."""
    for at in range(len(b'{"schema":2,'), line.index(b',"crc32":"')):
        yield line[:at] + bytes([line[at] ^ 1]) + line[at + 1 :]
    for at in range(len(line) - len(b'1a2b3c4d"}'), len(line) - 2):
        yield line[:at] + bytes([line[at] ^ 1]) + line[at + 1 :]


def test_a_changed_byte_is_noticed_wherever_it_is():
    line = codec.encode(small())
    for read in (codec.decode, codec.decode_task):
        assert read(line)
        for other in changed(line):
            with pytest.raises(
                ValueError, match=r"changed after it was written.*remove its last field, crc32"
            ):
                read(other)
    line = codec.encode_run(RunInfo("r", "agent", sampling={"crc32": "x"}))
    assert codec.decode_run(line).id == "r"
    for other in changed(line):
        with pytest.raises(ValueError, match="changed after it was written"):
            codec.decode_run(other)


def test_a_checksum_is_zlib_s_and_the_last_field():
    line = codec.encode(small())
    inside, _, given = line.partition(b',"crc32":"')
    assert given == b'%08x"}' % zlib.crc32(inside)
    assert json.loads(line)["crc32"] == given[:8].decode()
    assert codec.decode(line + b"\r\n") == codec.decode(line)


def test_a_line_without_checksum_is_read_whatever_its_own_fields_are_called():
    episode = Episode(TaskRef("a:b"), RunInfo("r"), ends={"agent": SeatEnd(info={"a": 1, "crc32": "x"})})
    line = without_checksum(codec.encode(episode))
    assert line.endswith(b'"crc32":"x"}}]}')
    assert codec.decode(line) == episode


# -- schema 1


def old():
    """Return the episodes that the code of schema 1 stored, and what it said of them."""
    lines = (DATA / "schema1.jsonl").read_bytes().splitlines()
    return list(zip(lines, json.loads((DATA / "schema1_expected.json").read_text()), strict=True))


@pytest.mark.parametrize(("line", "said"), old(), ids=[said["id"] for _, said in old()])
def test_schema_1_is_read(line, said):
    episode = codec.decode(line)
    assert (episode.spec, episode.seed, episode.stop) == (said["spec"], said["seed"], said["stop"])
    assert episode.transcript_hash() == said["hash"]
    assert episode.terminated is said["terminated"]
    assert episode.reward() == said["reward"] or (said["reward"] is None and not episode.scored)
    assert episode.job.startswith(said["id"] + "-")
    for turn, (prompt, sampled, known, mask, action) in zip(episode.turns, said["turns"], strict=True):
        assert list(turn.prompt_ids) == prompt
        assert list(turn.token_ids) == sampled
        assert turn.logprobs == (array("f", known) if known else None)
        assert list(turn.mask) == mask
        assert turn.action == action
    again = codec.decode(codec.encode(episode))
    assert (again.id, again.transcript_hash()) == (episode.id, episode.transcript_hash())


def test_episodes_of_schema_1_have_ids_of_their_own_and_the_same_ones_each_time():
    ids = [codec.decode(line).id for line, _ in old()]
    assert len(set(ids)) == len(ids)
    assert ids == [codec.decode(line + b"\n").id for line, _ in old()]


def test_an_episode_of_schema_1_keeps_what_it_says_elsewhere():
    episodes = {said["id"]: codec.decode(line) for line, said in old()}
    weird = episodes["weird"]
    assert weird.starts == {"agent": {"suffix": "s"}}
    assert (weird.final_observation, weird.final_info) == ("bye", {"success": True})
    assert weird.turns[0].observation == (Text("hi"), Image(b"\x89PNG\x00"))
    assert weird.turns[1].parent is weird.turns[0]
    assert [turn.kept for turn in weird.turns] == [0, 3, 0]
    assert [turn.policy_version for turn in weird.turns] == [2, 2, 2]
    assert weird.group == "\ud800"
    (poker,) = (codec.decode(line) for line, said in old() if said["spec"].startswith("multi:"))
    assert {seat: (end.stop, poker.earned(seat)) for seat, end in poker.ends.items()} == {
        "player_0": ("failed", -1.0),
        "player_1": ("solved", 1.0),
    }


def test_the_policy_version_of_schema_1_is_that_of_every_turn_where_tokens_were_left_out():
    line, said = old()[0]
    stored = json.loads(line)
    for turn in stored["turns"]:
        for name in ("held", "prompt_ids", "token_ids", "logprobs", "mask"):
            del turn[name]
    episode = codec.decode(json.dumps(stored, separators=(",", ":")).encode())
    assert episode.policy_version == 3
    assert episode.transcript_hash() == said["hash"]


# -- what cannot be read again is refused, in both directions


def one_turn(**changes):
    turn = Turn("agent", "o", "a")
    for name, value in changes.items():
        setattr(turn, name, value)
    return Episode(TaskRef("a:b"), RunInfo("r"), "j", turns=[turn])


@pytest.mark.parametrize(
    ("odd", "place"),
    [
        (one_turn(info=None), "$.turns[0].info"),
        (one_turn(info=[1]), "$.turns[0].info"),
        (one_turn(extra=b"x"), "$.turns[0].extra"),
        (one_turn(action=5), "$.turns[0].action"),
        (one_turn(observation=None), "$.turns[0].observation"),
        (one_turn(reward="3"), "$.turns[0].reward"),
        (one_turn(reply=Message("assistant", None)), "$.turns[0].reply.content"),
        (one_turn(token_ids=(1,), mask=b""), "turn 0 has 1 tokens, 0 mask entries"),
        (one_turn(token_ids=(1,), mask=b"\1", logprobs=[-0.5, -0.5]), "and 2 logprobs"),
        (Episode(TaskRef("a:b", seed=1.5)), "'float' object"),
        (Episode(TaskRef("a:b"), stop="lost"), "$.stop"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(odd, place):
    with pytest.raises(BadArgument, match=re.escape(place)):
        codec.encode(odd)


def test_numbers_of_numpy_are_taken_wherever_a_number_stands():
    limits = Limits(turns=np.int64(3), policy_s=np.float32(0.5))
    assert codec.decode_run(codec.encode_run(RunInfo("r", limits=limits))).limits == Limits(3, policy_s=0.5)
    stored = Episode(
        TaskRef("a:b"), origin=Origin("e", np.int64(2)), ends={"agent": SeatEnd(terminated=np.True_)}
    )
    back = codec.decode(codec.encode(stored))
    assert (back.origin, back.terminated) == (Origin("e", 2), True)


class Unasked:
    def __getattr__(self, name):
        raise RuntimeError(name)

    def __repr__(self):
        return "unasked"


class Itemless(dict):
    def __len__(self):
        return 1

    def items(self):
        raise RuntimeError("no items")


class Unnumbered(float):
    def __float__(self):
        raise RuntimeError("no number")


@pytest.mark.parametrize("kind", [Unasked, Itemless, Unnumbered])
def test_an_object_that_refuses_every_question_is_stored_as_its_repr(kind):
    odd = kind()
    info = {"odd": odd, "deep": [{"odd": odd}], "plain": 1}
    (turn,) = codec.decode(codec.encode(one_turn(info=info))).turns
    assert turn.info == {"odd": repr(odd), "deep": [{"odd": repr(odd)}], "plain": 1}


@pytest.mark.parametrize(
    "escape",
    [
        {"$float": "nan"},
        {"$utf8": "AAAA"},
        {"$repr": "x"},
        {"a": {"$float": "many"}},
        {"a": {"$int": "zz"}},
        {"a": {"$text": 5}},
        {"a": {"$image": ["AA=="]}},
        {"a": {"$repr": 5}},
        {"a": {"$dict": [[1]]}},
    ],
)
def test_an_escape_that_nothing_writes_is_a_value_error_that_shows_it(escape):
    line = without_checksum(codec.encode(one_turn(info={"key": 1})))
    line = line.replace(b'{"key":1}', json.dumps(escape).encode())
    with pytest.raises(ValueError, match=re.escape("{'$")):
        codec.decode(line)
