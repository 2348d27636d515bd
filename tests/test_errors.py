import pickle
import re

import pytest

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
        ("", ["seed"], ""),
        ("x" * 1_000_000, ["seed"] * 300, ""),
    ],
)
def test_near_names_are_proposed(name, known, said):
    assert errors.did_you_mean(name, known) == said


def test_a_missing_extra_says_how_to_get_it():
    error = errors.missing_extra("'math:GSM8K'", "datasets", "data")
    assert str(error) == "'math:GSM8K' needs the datasets package: pip install 'gem-gym[data]'"
