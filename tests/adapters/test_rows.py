import csv
import json
import math
from dataclasses import replace

import pytest
from awkward_episodes import awkward, broken, echoed, with_pictures, with_tools

from gem import codec
from gem.adapters import rows
from gem.adapters.rows import SHEET, episode_row, read_jsonl, turn_rows, write_csv, write_jsonl
from gem.errors import BadArgument, MissingData, StoreError
from gem.record import Turn

FORMULA = ("=", "+", "-", "@", "\t", "\r")


def lines(episodes):
    return [codec.encode(episode) for episode in episodes]


def test_jsonl_comes_back_equal(tmp_path):
    path = tmp_path / "out.jsonl"
    assert write_jsonl(awkward(), path) == 6
    back = [read() for read in read_jsonl(path)]
    assert lines(back) == lines(awkward())
    assert [episode.run for episode in back] == [episode.run for episode in awkward()]


def test_a_row_says_how_an_episode_went():
    row = episode_row(echoed())
    assert (row["env"], row["seed"], row["verdict"], row["agent"]) == (
        echoed().spec,
        0,
        "scored",
        "OpenAIAgent",
    )
    assert row["reward"] == pytest.approx(2 / 3)
    assert [message["role"] for message in row["messages"]] == ["system", "user", *["assistant", "user"] * 3]
    assert row["rewards"] == pytest.approx([1 / 3, 0, 1 / 3])


def test_without_a_verdict_there_is_no_reward():
    row = episode_row(broken())
    assert (row["reward"], row["success"], row["verdict"]) == (None, None, "none")
    assert row["error"] == "env: RuntimeError: it \\ud800 broke"


def test_several_seats_have_no_one_conversation():
    assert [episode_row(episode)["messages"] is None for episode in awkward()] == [False, True, *[False] * 4]


def test_a_sheet_has_the_tokens_that_are_known(tmp_path):
    held, counted = Turn("agent", "x", "five"), Turn("agent", "x", "six", usage={"completion_tokens": 3})
    held.hold([1, 2, 3], [4, 5])
    none, unanswered = Turn("agent", "x", "seven"), Turn("agent", "x")
    for other, cells in ((unanswered, ("3", "2")), (counted, ("", "5")), (none, ("", ""))):
        path = tmp_path / f"{other.action}.csv"
        write_csv([replace(echoed(), turns=[held, other])], path)
        with path.open(newline="", encoding="utf-8") as file:
            (row,) = csv.DictReader(file)
        assert (row["prompt_tokens"], row["completion_tokens"]) == cells
    (row,) = turn_rows(replace(echoed(), turns=[held]), tokens=False)
    assert (row["prompt_tokens"], row["completion_tokens"]) == (3, 2)


def test_a_turn_is_a_row():
    first, second = turn_rows(with_tools())
    assert (first["tool_calls"], first["reasoning"], first["reward"]) == (2, "hm", 0.25)
    assert (second["parent"], second["kept"], second["new_ids"]) == (0, 4, [1, 2])
    assert second["logprobs"] == [-0.5, -0.25]
    (row,) = turn_rows(with_pictures(), tokens=False)
    assert math.isnan(row["reward"])
    assert "token_ids" not in row
    json.loads(row["info"])


def test_tokens_can_be_left_out(tmp_path):
    write_jsonl([with_tools()], tmp_path / "out.jsonl", tokens=False)
    (read,) = read_jsonl(tmp_path / "out.jsonl")
    assert lines([read()]) == [codec.encode(with_tools(), tokens=False)]


def test_what_is_no_row_is_refused(tmp_path):
    path = tmp_path / "in.jsonl"
    row = json.dumps(episode_row(echoed()))
    bad = ["{", "[]", "{}", '{"episode": "x", "settings": "y"}', '{"episode": "\\ud800", "settings": 3}']
    path.write_text("\n".join([*bad, row]))
    *broken_rows, whole = read_jsonl(path)
    for read in broken_rows:
        with pytest.raises(BadArgument):
            read()
    assert whole().id == echoed().id
    with pytest.raises(MissingData):
        list(read_jsonl(tmp_path / "nothing.jsonl"))
    with pytest.raises(BadArgument, match="accepted: episode, turn"):
        list(rows.rows([], "token"))


def test_a_file_that_cannot_be_finished_is_not_there(tmp_path):
    def broken_off():
        yield echoed()
        raise KeyError("gone")

    with pytest.raises(KeyError):
        write_jsonl(broken_off(), tmp_path / "out.jsonl")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StoreError):
        write_jsonl([], tmp_path / "no" / "out.jsonl")
    (tmp_path / "out.jsonl").write_text("mine")
    with pytest.raises(BadArgument, match="already exists"):
        write_jsonl([], tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text() == "mine"


def test_a_sheet_has_a_row_per_episode_and_no_formula(tmp_path):
    path = tmp_path / "out.csv"
    hostile = [
        replace(echoed(), turns=[replace(echoed().turns[0], action=f"{sign}1+cmd|'/c calc'!A0,\"x\"\ny")])
        for sign in FORMULA
    ]
    assert write_csv([*awkward(), *hostile], path) == 6 + len(FORMULA)
    with path.open(newline="", encoding="utf-8") as file:
        head, *found = csv.reader(file)
    assert head == [*SHEET]
    assert all(len(row) == len(SHEET) for row in found)
    cells = dict(zip(head, zip(*found, strict=True), strict=True))
    assert [*cells["id"]] == [each.id for each in (*awkward(), *hostile)]
    assert [cell[:2] for cell in cells["last_action"][6:]] == [f"'{sign}" for sign in FORMULA]
    number = replace(echoed(), turns=[replace(echoed().turns[0], action="-1.5")])
    write_csv([number], tmp_path / "number.csv")
    assert ",-1.5," in (tmp_path / "number.csv").read_text()  # no formula
    assert not [
        cell
        for name in ("first_observation", "error", "agent")
        for cell in cells[name]
        if cell.startswith(FORMULA)
    ]
    assert ["" if each.success is None else str(each.success) for each in awkward()] == [
        *cells["success"][:6]
    ]
