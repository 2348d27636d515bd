import csv
import gzip
import io
import json
import math
import pickle
import re
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction

import pytest

from gem.content import Image, Text
from gem.errors import BadArgument, MissingData, MissingExtra, install_command
from gem.tasks import files, sources
from gem.tasks.base import TaskSet
from gem.tasks.files import FileRows
from gem.tasks.sources import cell, load

ROWS = [
    {"problem": "1 + 1", "answer": "2", "level": 1},
    {"problem": "è, 2 + 2", "answer": "4", "level": 1},
    {"problem": 'a\nb, "c"', "answer": "5", "level": 2},
]


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """No data but what the test puts there."""
    monkeypatch.delenv("GEM_DATA", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "no cache"))
    monkeypatch.chdir(tmp_path)


def write(path, rows=ROWS):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name.endswith(".jsonl"):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    elif path.name.endswith(".jsonl.gz"):
        path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    elif path.suffix in (".csv", ".tsv"):
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0], delimiter="," if path.suffix == ".csv" else "\t")
            writer.writeheader()
            writer.writerows(rows)
    else:
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def answers(tasks):
    return [tasks[i].reference for i in range(len(tasks))]


@pytest.mark.parametrize("suffix", sources.SUFFIXES)
def test_every_kind_of_file_gives_its_rows(suffix, tmp_path):
    tasks = load(write(tmp_path / f"set{suffix}"))
    assert isinstance(tasks, TaskSet)
    assert len(tasks) == 3
    assert [tasks[i].question for i in range(3)] == [row["problem"] for row in ROWS]
    assert answers(tasks) == ["2", "4", "5"]
    assert str(tasks[2].info["level"]) == "2"
    assert tasks[1].id == "1"


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_a_set_crosses_a_process_border_as_its_path(suffix, tmp_path):
    path = write(tmp_path / f"set{suffix}", ROWS * 500)
    tasks = load(path)
    pickled = pickle.dumps(tasks)
    assert len(pickled) < 1000
    assert answers(pickle.loads(pickled)) == answers(tasks)


def test_threads_read_one_file_at_once(tmp_path):
    tasks = load(write(tmp_path / "set.jsonl", [{"problem": str(i), "answer": i} for i in range(500)]))
    with ThreadPoolExecutor(4) as pool:
        read = list(pool.map(lambda i: tasks[i % 500].reference, range(4000)))
    assert read == [i % 500 for i in range(4000)]


def test_a_file_is_opened_once_per_process(tmp_path):
    path = write(tmp_path / "set.jsonl")
    tasks = load(path)
    assert load(str(path)).rows is tasks.rows
    assert pickle.loads(pickle.dumps(tasks)).rows is tasks.rows


def test_a_list_takes_any_column_names_and_keeps_the_rest():
    tasks = load([{"q": "?", "a": 7, "n": 1}], question_key="q", answer_key="a")
    assert tasks[0].reference == 7
    assert tasks[0].info == {"n": 1}


def test_a_task_set_is_taken_as_it_is():
    tasks = load(ROWS)
    assert load(tasks) is tasks


# -- splits


def test_a_folder_has_a_split_per_file_or_shards(tmp_path):
    write(tmp_path / "set/train-00000-of-00002.parquet", ROWS[:2])
    write(tmp_path / "set/train-00001-of-00002.parquet", ROWS[2:])
    write(tmp_path / "set/test.jsonl", ROWS[:1])
    write(tmp_path / "set/data/dev.csv", ROWS[1:2])
    assert answers(load(tmp_path / "set", "train")) == ["2", "4", "5"]
    assert answers(load(tmp_path / "set", "test")) == ["2"]
    assert answers(load(tmp_path / "set", "dev")) == ["4"]


def test_a_folder_may_have_a_folder_per_split(tmp_path):
    write(tmp_path / "set/test/part.jsonl", ROWS[:1])
    assert answers(load(tmp_path / "set", "test")) == ["2"]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["train.jsonl", "train.jsonl.gz"], r"'train' is in several files: train\.jsonl, train\.jsonl\.gz"),
        (["train.csv", "train.jsonl"], r"train\.csv, train\.jsonl\. Accepted: one file"),
        (["data/train.csv", "train.csv"], r"data.train\.csv, train\.csv"),
        (["train.csv", "train/part.csv"], r"train.part\.csv, train\.csv"),
        (["train.easy.csv", "train.hard.csv"], r"train\.easy\.csv, train\.hard\.csv"),
        (["train.csv", "train-00000-of-00001.csv"], "several files"),
        (["train-00000-of-00001.csv", "train-00000-of-00002.csv", "train-00001-of-00002.csv"], "several"),
        ([f"train-00000-of-00001-{mark * 16}.csv" for mark in "ab"], "several files"),
        (["train/a.csv", "train/b.jsonl"], "several files"),
        (["train-00000-of-00003.csv", "train-00002-of-00003.csv"], r"'train' 1 of 3 .*number 00001\."),
        (["train/x-00001-of-00002.csv"], r"'x' 1 of 2 .*number 00000\."),
        (["data/train-00002-of-00002.csv"], r"number 00001\."),
    ],
)
def test_a_split_is_one_file_or_one_whole_set_of_shards(files, said, tmp_path):
    for name in files:
        write(tmp_path / "set" / name)
    with pytest.raises(BadArgument, match=said):
        load(tmp_path / "set", "train")


@pytest.mark.parametrize(
    "files",
    [
        [f"data/train-0000{at}-of-00002-{mark * 16}.csv" for at, mark in enumerate("ab")],
        ["train-00001-of-00002.csv", "train-00002-of-00002.csv"],
        ["c4-train.00000-of-00002.csv", "c4-train.00001-of-00002.csv"],
        ["train-00000-of-00002.zstd.csv", "train-00001-of-00002.zstd.csv"],
        ["train/0000.csv", "train/0001.csv"],
    ],
)
def test_names_of_shards_as_they_are_on_hubs(files, tmp_path):
    for name in files:
        write(tmp_path / "set" / name)
    write(tmp_path / "set/data/test.jsonl")
    write(tmp_path / "set/other/train.jsonl")
    (tmp_path / "set/README.md").write_text("# A set")
    assert len(load(tmp_path / "set", "c4-train" if "c4" in files[0] else "train")) == 6


def test_the_split_data_is_not_read_twice(tmp_path):
    write(tmp_path / "set/data/part.jsonl")
    assert len(load(tmp_path / "set", "data")) == 3


def test_a_json_file_may_hold_splits(tmp_path):
    path = write(tmp_path / "set.json", {"train": ROWS, "test": ROWS[:1]})
    assert len(load(path, "test")) == 1
    with pytest.raises(BadArgument, match="more than one split, and none was named; it has train, test"):
        load(path)


@pytest.mark.parametrize("split", [None, "dev"])
def test_a_split_that_is_not_there_is_refused_with_those_that_are(split, tmp_path):
    write(tmp_path / "set/train.jsonl")
    write(tmp_path / "set/test.jsonl")
    with pytest.raises(BadArgument, match="it has test, train"):
        load(tmp_path / "set", split)


def test_one_file_is_no_split_but_train(tmp_path):
    path = write(tmp_path / "set.jsonl")
    assert len(load(path, "train")) == 3
    with pytest.raises(BadArgument, match="one file without splits, and split is 'amc'"):
        load(path, "amc")


def test_splits_in_memory():
    assert len(load({"train": ROWS, "test": ROWS[:1]}, "test")) == 1
    assert len(load({"train": ROWS})) == 3


# -- data sets of the hub, by name


@pytest.mark.parametrize("place", ["axon-rl/SET-1", "SET-1"])
@pytest.mark.parametrize("suffix", [".jsonl", "/train.parquet"])
def test_gem_data_is_searched_by_name(place, suffix, tmp_path, monkeypatch):
    write(tmp_path / f"home/{place}{suffix}")
    monkeypatch.setenv("GEM_DATA", str(tmp_path / "home"))
    assert answers(load("axon-rl/SET-1")) == ["2", "4", "5"]


def test_gem_data_comes_before_a_path_of_the_same_name(tmp_path, monkeypatch):
    write(tmp_path / "axon-rl/SET-1.jsonl", ROWS[:1])
    assert len(load("axon-rl/SET-1")) == 1
    write(tmp_path / "home/SET-1.jsonl")
    monkeypatch.setenv("GEM_DATA", str(tmp_path / "home"))
    assert len(load("axon-rl/SET-1")) == 3


def test_absent_data_names_the_three_ways(tmp_path, monkeypatch):
    with pytest.raises(MissingData) as error:
        load("axon-rl/SET-1")
    said = str(error.value)
    for way in (
        "GEM_DATA is not set",
        "HF_HUB_OFFLINE is set",
        "SET-1.jsonl",
        "dataset=",
        install_command("data"),
    ):
        assert way in said
    monkeypatch.setenv("GEM_DATA", str(tmp_path))
    with pytest.raises(MissingData, match="has neither axon-rl/SET-1 nor SET-1"):
        load("axon-rl/SET-1")
    monkeypatch.setenv("GEM_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(MissingData, match="nowhere', which is no folder"):
        load("axon-rl/SET-1")


def test_the_advice_for_an_absent_split_works(tmp_path, monkeypatch):
    monkeypatch.setenv("GEM_DATA", str(tmp_path))
    with pytest.raises(MissingData, match=r"folder that holds SET-1/amc\.jsonl"):
        load("axon-rl/SET-1", "amc")
    write(tmp_path / "SET-1/amc.jsonl")
    assert len(load("axon-rl/SET-1", "amc")) == 3


@pytest.mark.parametrize("name", ["data/trian.jsonl", "./nowhere", "/no/such/folder"])
def test_a_path_that_leads_nowhere_is_no_name_of_a_data_set(name):
    with pytest.raises(MissingData, match=f"there is no file or folder '{name}'"):
        load(name)


def test_the_current_folder_is_a_folder(tmp_path):
    write(tmp_path / "train.jsonl")
    assert len(load(".")) == 3


def test_absent_data_offline_costs_no_import(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingData):
        load("axon-rl/SET-1")


def test_a_hub_that_does_not_answer_is_given_up_soon(monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE")
    for proxy in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(proxy, raising=False)
    with socket.socket() as closed:  # bound, not listening: connections are refused
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(MissingData, match=r"127\.0\.0\.1: .*refused"):
            load("axon-rl/SET-1")


def test_the_cache_is_asked_before_the_network_is_given_up(tmp_path, monkeypatch):
    cache = tmp_path / "no cache/datasets"
    (cache / "axon-rl___set-1").mkdir(parents=True)
    assert sources._is_cached("axon-rl/SET-1")
    assert not sources._is_cached("axon-rl/SET-2")
    assert not sources._is_cached("SET-1")
    (tmp_path / "no cache/hub/datasets--axon-rl--SET-2").mkdir(parents=True)
    assert sources._is_cached("axon-rl/SET-2")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=re.escape(install_command("data"))):
        load("axon-rl/SET-1")


@pytest.mark.slow  # the import takes seconds
def test_what_datasets_saved_is_read_from_its_folder(tmp_path):
    datasets = pytest.importorskip("datasets")
    kept = datasets.DatasetDict({"train": datasets.Dataset.from_list(ROWS)})
    kept.save_to_disk(str(tmp_path / "kept"))
    assert answers(load(tmp_path / "kept")) == ["2", "4", "5"]
    assert answers(load(tmp_path / "kept", "train")) == ["2", "4", "5"]
    assert answers(load(kept)) == answers(load(kept["train"])) == ["2", "4", "5"]


@pytest.mark.slow
def test_datasets_itself_reads_a_name(tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    write(tmp_path / "SET-1/train.jsonl")
    write(tmp_path / "SET-1/test.jsonl", ROWS[:1])
    monkeypatch.setattr(sources, "_unreachable", lambda: "")  # to `datasets`, a folder is as good as the hub
    rows = sources.HubRows(str(tmp_path / "SET-1"), "test")
    assert [row["answer"] for row in rows] == ["2"]
    assert len(pickle.loads(pickle.dumps(rows))) == 1
    with pytest.raises(BadArgument, match=r"no split 'dev'; it has (train, test|test, train)"):
        sources.HubRows(str(tmp_path / "SET-1"), "dev")


# -- what cannot be read


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "bad.jsonl",
            '{"problem": 1, "answer": 2}\n{"problem": ',
            r"1 of 2 rows cannot be used.*\n  line 2: not JSON",
        ),
        ("bad.json", "[", "cannot be read"),
        ("bad.parquet", "PAR", "cannot be read"),
        ("empty.jsonl", "", "has no rows"),
        ("list.jsonl", "[1]", "accepted: mappings"),
        ("bad.csv", 'problem,answer\n"a,b', "cannot be read"),
    ],
)
def test_a_broken_file_is_named(name, text, said, tmp_path):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_text(text)
    with pytest.raises(BadArgument, match=said) as error:
        answers(load(tmp_path / name))
    assert name in str(error.value)


def test_a_parquet_file_with_what_python_does_not_hold_is_told(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    names = ["problem", "answer"]
    spans = pyarrow.array([5, -(2**63) + 1], pyarrow.duration("s"))
    write_table(
        pyarrow.Table.from_arrays([pyarrow.array(["a", "b"]), spans], names=names), tmp_path / "a.parquet"
    )
    with pytest.raises(BadArgument, match=r"row 1: a value cannot be read"):
        answers(load(tmp_path / "a.parquet"))
    twice = pyarrow.Table.from_arrays([pyarrow.array(["a"])] * 3, names=["problem", *names])
    write_table(twice, tmp_path / "b.parquet")
    with pytest.raises(BadArgument, match="the column 'problem' is there twice; rename one"):
        load(tmp_path / "b.parquet")


def test_a_file_that_is_cut_short_meanwhile_is_an_error_and_no_crash(tmp_path):
    path = write(tmp_path / "set.jsonl", ROWS * 10_000)
    tasks = load(path)
    path.write_text("")
    with pytest.raises(BadArgument, match="line 30000: not JSON"):
        tasks[29_999]


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "bad.csv").write_bytes(b"problem,answer\n\xff,1\n")
    with pytest.raises(BadArgument, match=r"line 2: the byte 0xff is not UTF-8\. Save it as UTF-8"):
        load(tmp_path / "bad.csv")


def test_a_missing_column_is_named_with_those_that_are_there():
    with pytest.raises(BadArgument, match=r"no column 'problem'.*It has: 'question', 'answer'"):
        load([{"question": "?", "answer": 1}])
    with pytest.raises(BadArgument, match=r"1 of 2 rows .*\n  row 1: no column 'answer'"):
        load([{"problem": "?", "answer": 1}, {"problem": "?"}])


@pytest.mark.parametrize(
    ("source", "said"), [([], "no rows"), (7, "dataset is int 7"), (["?"], "a row is str")]
)
def test_what_is_no_source_is_refused(source, said):
    with pytest.raises(BadArgument, match=said):
        load(source)


def test_all_rows_without_a_value_are_listed_before_one_is_drawn(tmp_path):
    (tmp_path / "set.csv").write_text('problem,answer\n"1\n+ 1",2\n2 + 2\n,5\n3 + 3,\n4 + 4,\n')
    with pytest.raises(BadArgument) as error:
        load(tmp_path / "set.csv")
    assert str(error.value).partition("set.csv: ")[2] == (
        "4 of 5 rows cannot be used. Mend them, or leave them out:\n"
        "  line 4, lines 6 to 7: column 'answer' is empty\n"
        "  line 5: column 'problem' is empty"
    )


@pytest.mark.parametrize("answer", ["", "  ", None, math.nan, [], [" ", None]])
def test_an_answer_that_is_nothing_is_refused(answer):
    with pytest.raises(BadArgument, match="row 0: column 'answer' is empty"):
        load([{"problem": "1 + 1", "answer": answer}])[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("problem,answer\nWhat is 1,5 + 1?,2.5\n", "line 2: more cells .*double quotes"),
        ("problem,problem,answer\n1,2,3\n", "column 'problem' is there twice"),
    ],
)
def test_a_table_that_would_be_misread_is_refused(tmp_path, text, said):
    (tmp_path / "set.csv").write_text(text)
    with pytest.raises(BadArgument, match=said):
        load(tmp_path / "set.csv")


def test_a_table_of_many_columns_is_read_in_linear_time(tmp_path):
    names = ["problem", "answer", *(f"c{number}" for number in range(200_000))]
    (tmp_path / "set.csv").write_text(f"{','.join(names)}\n{','.join('2' for _ in names)}\n")
    assert load(tmp_path / "set.csv")[0].reference == "2"  # it would take minutes in square time


def test_a_long_cell_is_read_and_the_csv_modules_limit_is_as_before(tmp_path):
    before = csv.field_size_limit()
    tasks = load(write(tmp_path / "set.csv", [{"problem": "x" * 200_000, "answer": "2"}]))
    assert len(str(tasks[0].question)) == 200_000
    assert csv.field_size_limit() == before


@pytest.mark.parametrize(
    ("name", "rows", "said"),
    [
        (
            "set.csv",
            [{"problem": "x" * 3000, "answer": "2"}],
            "a cell has more than 2,000 characters, .* line 2",
        ),
        (
            "set.jsonl",
            [{"problem": "1", "answer": "2"}, {"problem": "x" * 3000}],
            "line 2: the line has more",
        ),
        ("set.jsonl.gz", [{"problem": "x" * 3000, "answer": "2"}], "line 1: the line has more"),
        ("set.jsonl.gz", ROWS * 100, "unpacked it has more than 0 MiB.*Unpack it"),
        ("set.parquet", [{"problem": "x" * 100, "answer": "2"}] * 9000, "far more than"),
    ],
)
def test_a_file_that_would_take_memory_without_bound_is_refused(tmp_path, monkeypatch, name, rows, said):
    write(tmp_path / name, rows)
    for limit, value in (("LONGEST_ROW", 2000), ("MOST_UNPACKED", 8000), ("MOST_TIMES", 1)):
        monkeypatch.setattr(files, limit, value)
    with pytest.raises(BadArgument, match=said):
        load(tmp_path / name)


def test_empty_cells_behind_the_last_column_are_nothing(tmp_path):
    (tmp_path / "set.csv").write_text("problem,answer,,\n1 + 1,2,,\n2 + 2,4,,,\n")
    tasks = load(tmp_path / "set.csv")
    assert [tasks[each].reference for each in range(2)] == ["2", "4"]


# -- pictures


def png(colour="red"):
    pillow = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    pillow.new("RGB", (4, 4), colour).save(file, "PNG")
    return file.getvalue()


def pictured(value, question="What is this?", **keywords):
    row = {"problem": question, "answer": 1, "images": value}
    return load([row], images_key="images", **keywords)[0].question


def test_pictures_come_as_bytes_as_mappings_and_from_pillow():
    from PIL import Image as Pillow

    data = png()
    for value in (data, {"bytes": data, "path": None}, [data], Image(data)):
        assert pictured(value) == (Image(data), Text("What is this?"))
    (made, _) = pictured(Pillow.open(io.BytesIO(data)))
    assert Pillow.open(io.BytesIO(made.data)).getpixel((0, 0)) == (255, 0, 0)


def test_pictures_come_as_base64_and_as_data_urls():
    import base64

    data = png()
    text = base64.b64encode(data).decode()
    for value in (text, f"data:image/png;base64,{text}"):
        assert pictured(value)[0] == Image(data)


def test_a_picture_stands_where_the_text_says():
    red, blue = png("red"), png("blue")
    assert pictured([red, blue], "<image> and <image>: which?") == (
        *(Image(red), Text("and"), Image(blue), Text(": which?")),
    )
    assert pictured([red], "no place") == (Image(red), Text("no place"))
    assert pictured([red], "<image><image>twice") == (Image(red), Text("twice"))
    assert pictured(None, "none") == (Text("none"),)


def test_a_path_is_read_in_the_folder_of_the_data_and_nowhere_else(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/1.png").write_bytes(png())
    (tmp_path / "secret.png").write_bytes(png())
    rows = [{"problem": "?", "answer": 1, "images": [name]} for name in ("1.png", "../secret.png")]
    tasks = load(write(tmp_path / "data/set.jsonl", rows[:1]), images_key="images")
    assert tasks[0].question[0] == Image(png())
    with pytest.raises(BadArgument, match=r"line 2: a picture is .* a path in the data's folder"):
        load(write(tmp_path / "data/set.jsonl", rows), images_key="images")


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({"image": "gone.png"}, "a picture is str 'gone.png'"),
        ({"image": "text.png"}, "a picture is str 'text.png'"),
        ({"problem": "", "image": None}, "column 'problem' is empty, and there is no picture"),
    ],
)
def test_a_picture_that_cannot_be_shown_is_told_before_anything_is_asked(tmp_path, suffix, broken, why):
    (tmp_path / "1.png").write_bytes(png())
    (tmp_path / "text.png").write_text("text")
    good = {"problem": "?", "answer": "1", "image": None}
    rows = [good, {**good, "image": "1.png"}, {**good, "problem": "", "image": "1.png"}]
    tasks = load(write(tmp_path / f"good{suffix}", rows), images_key="image")
    assert [len(tasks[number].question) for number in range(3)] == [1, 2, 2]
    with pytest.raises(BadArgument, match=f"1 of 4 rows cannot be used.*\n.*: {why}"):
        load(write(tmp_path / f"bad{suffix}", [*rows, {**good, **broken}]), images_key="image")


@pytest.mark.parametrize("value", [7, "no such file.png", b"text", {"bytes": None, "path": None}])
def test_what_is_no_picture_is_refused(value):
    with pytest.raises(BadArgument, match="a picture is"):
        pictured(value)


def test_a_split_that_holds_no_rows_is_told(tmp_path):
    file = tmp_path / "rows.json"
    file.write_text('{"a": {"b": 1}, "c": []}')
    with pytest.raises(BadArgument, match="the split holds no rows"):
        FileRows(file, "a")


@pytest.mark.parametrize("answers", ["5", ["5", "6"], {"0": "5", "1": "6"}])
@pytest.mark.parametrize("split", [None, "answer"])
def test_one_row_or_one_mapping_of_columns_is_no_mapping_of_splits(answers, split, tmp_path):
    path = write(tmp_path / "q.json", {"problem": answers, "answer": answers})
    with pytest.raises(BadArgument, match=r"one mapping of 'problem', 'answer', .*orient='records'"):
        load(path, split)


def test_an_answer_that_is_nested_without_end_is_a_bad_row(tmp_path):
    deep = "[" * 600 + "1" + "]" * 600
    (tmp_path / "q.jsonl").write_text(f'{{"problem": "a", "answer": {deep}, "more": {deep}}}\n')
    with pytest.raises(BadArgument, match="column 'answer' is nested in more than 100 lists"):
        load(tmp_path / "q.jsonl")


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (b"Oslo", "Oslo"),
        (b"\xff\xd8\xff", b"\xff\xd8\xff"),
        (Decimal("3.50"), "3.50"),
        (Decimal("1E+2"), "100"),
        (Decimal("NaN"), None),
        (Fraction(1, 3), "1/3"),
        (date(2020, 1, 2), "2020-01-02"),
        (datetime(2020, 1, 2), "2020-01-02"),
        (datetime(2020, 1, 2, 10, 30), "2020-01-02T10:30:00"),
        ([b"Oslo", Decimal("1.5"), 7], ["Oslo", "1.5", 7]),
        (["Oslo", 7], ["Oslo", 7]),
    ],
)
def test_a_cell_means_the_same_from_each_kind_of_source(value, plain):
    assert cell({"a": {"b": value}}, "a.b") == plain


def test_a_number_of_32_bits_is_the_shortest_decimal_that_it_stands_for(tmp_path):
    numpy = pytest.importorskip("numpy")
    short = numpy.array([0.1, 2.7], numpy.float32)
    assert [cell({"a": value}, "a") for value in (short[0], short)] == [0.1, [0.1, 2.7]]
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"problem": ["a", "b"], "answer": short})
    assert load(frame)[1].reference == 2.7
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"problem": ["a", "b"], "answer": pyarrow.array(short)})
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "q.parquet")
    for source in (table, tmp_path / "q.parquet"):
        assert load(source)[0].reference == 0.1


def test_columns_of_a_data_frame_without_names_have_their_numbers():
    frame = pytest.importorskip("pandas").DataFrame([["a", "5"], ["b", "6"]])
    assert load(frame, question_key="0", answer_key="1")[1].reference == "6"
