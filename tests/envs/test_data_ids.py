"""Every id over a data set, on a small file with the columns that its data set has."""

import json

import pytest

import gem
from gem.errors import MissingData
from gem.testing import check_env

MATHS = [(f"What is {i} + {i}?", str(2 * i)) for i in range(1, 7)] + [("Half of 1?", "\\frac{1}{2}")]
QUESTIONS = [("Who wrote Hamlet?", ["Shakespeare", "William Shakespeare"]), ("Capital of France?", ["Paris"])]
TRUTHS = [("Bob is big. Is Bob big?", "\\boxed{True}"), ("Bob is big. Is Bob small?", "\\boxed{False}")]
KINDS = {"math.env:MathEnv": MATHS, "vision.env:MathVisualEnv": MATHS, "qa.env:QaEnv": QUESTIONS}

SPECS = [spec for spec in gem.registry.specs() if spec.data and "envs.code" not in spec.entry_point]
THOROUGH = (
    "math:GSM8K",
    "math:Geometry3K",
    "logic:RuleTaker-d3",
    "qa:HotpotQA",
    "eval:AIME24",
    "eval:QaOpen",
)
"""Those on which every rule is tried; the others stand for the same classes with other columns."""

IDS = [spec.id for spec in SPECS]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty GEM_DATA, and no network."""
    monkeypatch.setenv("GEM_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "no cache"))
    return tmp_path / "data"


def supply(spec, home):
    """Write a data set with the columns that upstream's has."""
    pairs = TRUTHS if spec.family == "logic" else KINDS[spec.entry_point.removeprefix("gem.envs.")]
    asks = "question" if pairs is TRUTHS or (pairs is QUESTIONS and spec.family == "eval") else "problem"
    rows = [{asks: question, "answer": answer} for question, answer in pairs]
    folder = home / spec.data
    if spec.id == "math:Geometry3K":
        pictured(rows, folder)
        return
    split = spec.kwargs.get("split")
    path = folder / f"{split}.jsonl" if split else folder.with_suffix(".jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def pictured(rows, folder):
    """Write Parquet with pictures as the hub keeps them: bytes and path."""
    import io

    image = pytest.importorskip("PIL.Image")
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = io.BytesIO()
    image.new("RGB", (8, 8), "red").save(file, "PNG")
    for row in rows:
        row["images"] = [{"bytes": file.getvalue(), "path": None}]
        row["problem"] = "<image>" + row["problem"]
    (folder / "data").mkdir(parents=True)
    table = pyarrow.Table.from_pylist(rows)
    parquet.write_table(table, folder / "data/train-00000-of-00001.parquet")
    parquet.write_table(table, folder / "data/test-00000-of-00001.parquet")


@pytest.mark.parametrize("spec", SPECS, ids=IDS)
def test_an_id_reads_its_columns_and_keeps_the_contract(spec, home):
    supply(spec, home)
    few = ("is-env", "docstring", "reset-returns", "step-returns", "same-seed", "solver", "ends")
    report = check_env(spec.id, rules=None if spec.id in THOROUGH else few)
    report.raise_if_broken()
    assert "solver" in report.held


@pytest.mark.parametrize("spec", SPECS, ids=IDS)
def test_without_its_data_an_id_says_how_to_supply_it(spec, home):
    with pytest.raises(MissingData, match=f"{spec.data}.*GEM_DATA.*dataset=.*pip install"):
        gem.make(spec.id)


def test_the_judge_passes_absent_data_on(home):
    with pytest.raises(MissingData):
        check_env("math:GSM8K")


def test_the_ids_are_upstreams():
    names = {
        "math": "ASDiv2K GSM8K Math12K Math8K-3to5 Orz57K DeepScaleR40K Geometry3K",
        "qa": "NaturalQuestions HotpotQA",
        "logic": "RuleTaker-d0 RuleTaker-d1 RuleTaker-d2 RuleTaker-d3 RuleTaker-d5",
        "eval": "MATH500 AMC OlympiadBench Minerva AIME24 QaOpen 2Wiki PopQA TriviaQA HotpotQA Bamboogle "
        "NaturalQuestions Musique",
    }
    assert sorted(IDS) == sorted(
        f"{family}:{name}" for family, all_ in names.items() for name in all_.split()
    )
