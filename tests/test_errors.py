import math
import pickle
import re
import shlex
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

import gem
from gem import errors

CLASSES = [
    value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.GemError)
]
STANDS_FOR = {
    "UnknownEnv": ValueError,
    "DuplicateEnv": ValueError,
    "BadArgument": ValueError,
    "UnknownArgument": TypeError,
    "BadAction": TypeError,
    "MissingExtra": ImportError,
    "MissingData": FileNotFoundError,
    "ResetNeeded": RuntimeError,
    "EpisodeOver": RuntimeError,
    "EnvClosed": RuntimeError,
    "CannotFork": NotImplementedError,
    "NoSolver": NotImplementedError,
    "SchemaMismatch": ValueError,
    "StoreError": OSError,
    "DuplicateEpisode": OSError,
    "ContractBroken": AssertionError,
    "IllegalMove": ValueError,
    "ToolError": RuntimeError,
    "NoVerdict": RuntimeError,
    "WorkerDied": RuntimeError,
    "OutOfTime": RuntimeError,
    "AgentUnavailable": RuntimeError,
}


def test_every_error_is_in_the_table_and_in_the_drawing():
    names = {cls.__name__ for cls in CLASSES} - {"GemError"}
    assert names == set(STANDS_FOR)
    assert names == set(re.findall(r"[|'] *[|']?- (\w+)  ", errors.__doc__)) - {"GemError"}


@pytest.mark.parametrize(("name", "builtin"), STANDS_FOR.items())
def test_an_error_is_caught_as_what_it_stands_for_and_as_ours(name, builtin):
    cls = getattr(errors, name)
    for kind in (builtin, errors.GemError, cls):
        with pytest.raises(kind, match="what happened"):
            raise cls("what happened")


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_error_crosses_a_process_border(cls):
    error = cls("7 is not accepted")
    error.add_note("seen in worker 3")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert str(copy) == "7 is not accepted"
    assert copy.__notes__ == ["seen in worker 3"]


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("game:Soduku", ["game:Sudoku", "rg:acre"], " Did you mean 'game:Sudoku'?"),
        ("sead", ["seed", "head", "size"], " Did you mean 'seed' or 'head'?"),
        ("xyz", ["seed"], ""),
        ("db:Bank", ["rg:acre", "db:Bank-v0-questions"], " Did you mean 'db:Bank-v0-questions'?"),
        ("", ["seed"], ""),
        ("x" * 1_000_000, ["seed"] * 300, ""),
    ],
)
def test_near_names_are_proposed(name, known, said):
    assert errors.did_you_mean(name, known) == said


def test_a_missing_extra_says_how_to_get_it():
    error = errors.missing_extra("'math:GSM8K'", "datasets", "data")
    assert str(error) == f"'math:GSM8K' needs the datasets package: {errors.install_command('data')}"


def test_a_block_that_needs_an_extra_says_how_to_get_it():
    message = r"a Parquet file needs the pyarrow package: .*data"
    needed = errors.needs_extra("a Parquet file", "pyarrow", "data")
    with pytest.raises(errors.MissingExtra, match=message), needed:
        raise ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (("", False, True), "pip install 'gem-gym[data,rg]'"),  # from a package index
        (("file:///src/gem", True, True), "pip install -e 'CHECKOUT[data,rg]'"),
        (("", False, False), "pip install -e 'CHECKOUT[data,rg]'"),  # on PYTHONPATH
        (("file://WHEEL", False, True), "pip install 'WHEEL[data,rg]'"),
        (("file:///gone/gem_gym.whl", False, True), "pip install 'gem-gym[data,rg]'"),
        (("git+https://x.test/gem@abc", False, True), "pip install 'gem-gym[data,rg] @ git+https://x.test/gem@abc'"),
    ],
)  # fmt: skip
def test_the_command_fits_where_gem_came_from(origin, command, monkeypatch, tmp_path):
    wheel = tmp_path / "gem gym.whl"
    wheel.touch()
    place = (origin[0].replace("WHEEL", quote(str(wheel))), *origin[1:])
    monkeypatch.setattr(errors, "_origin", lambda: place)
    checkout = str(Path(errors.__file__).parents[1])
    monkeypatch.chdir(tmp_path)
    expected = command.replace("CHECKOUT", checkout).replace("WHEEL", wheel.name)
    assert errors.install_command("data", "rg").endswith(f" -m {expected}")
    monkeypatch.chdir(checkout)
    if "CHECKOUT" in command:
        assert errors.install_command("data", "rg").endswith(" -m pip install -e '.[data,rg]'")


def test_the_command_names_this_interpreter():
    words = shlex.split(errors.install_command("data"))
    assert Path(words[0]).absolute() == Path(sys.executable).absolute()
    assert words[1:4] == ["-m", "pip", "install"]


def test_without_pip_the_command_is_uvs(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert errors.install_command("data").startswith("uv pip install --python ")


@pytest.mark.parametrize("value", [0, -1, 0.5, 2.5, math.nan, math.inf, "3", True])
def test_what_is_no_number_of_the_least_or_more_is_refused(value):
    with pytest.raises(errors.BadArgument, match=r"turns is .*; accepted: 1 or more"):
        errors.check_least("turns", value)
    errors.check_least("turns", None)
    errors.check_least("turns", 1)
    with pytest.raises(errors.BadArgument, match="turns is None; accepted: 1 or more, a whole number"):
        errors.check_count("turns", None)


@pytest.mark.parametrize("value", [0, math.nan, math.inf, "3", None])
def test_what_is_no_number_of_seconds_is_refused(value):
    with pytest.raises(errors.BadArgument, match=f"call_s is {value!r}; accepted: seconds above 0"):
        errors.check_seconds("call_s", value, optional=False)
    errors.check_seconds("call_s", None)
    errors.check_seconds("call_s", 0.5, optional=False)


@pytest.mark.parametrize(
    ("env_id", "setting", "value"),
    [
        ("multi:MatrixGame-v0", "rounds", 2.5),
        ("multi:Negotiation-v0", "max_turns", "5"),
        ("multi:ConnectFour-v0", "depth", "5"),
        ("multi:ServiceDesk-v0", "scenario", 1),
        ("db:Library-v0-questions", "domain", 5),
        ("db:Library-v0-questions", "turn_s", "5"),
        ("game:Sokoban-v0-easy", "dim_room", 6),
        ("game:WikiGame-v0-easy", "wiki_backend", 1),
        ("game:WikiGame-v0-easy", "pages", "5"),
        ("math:Arithmetic-v0-easy", "operations", None),
        ("math:Arithmetic-v0-easy", "retry_discount", "1"),
        ("terminal:Rename-v0-easy", "command_s", "5"),
    ],
)
def test_a_setting_of_the_wrong_type_is_refused_by_name(env_id, setting, value):
    with pytest.raises(errors.BadArgument, match=f"{setting} is {value!r}.*[Aa]ccepted: "):
        gem.make(env_id, **{setting: value})
