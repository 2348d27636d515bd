"""Modules that have no file: those of upstream and of earlier versions, by the table of `gem._upstream`."""

import importlib
import pickle
from pathlib import Path

import pytest

import gem
from gem import _upstream
from gem.errors import MissingExtra

ROOT = Path(gem.__file__).parents[1]
PARTS = {module: importlib.import_module(module) for module in _upstream.TABLE}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")  # of what is imported
@pytest.mark.parametrize("module", PARTS)
def test_every_name_of_the_table_is_there(module):
    for name in PARTS[module].__all__:
        try:
            assert getattr(PARTS[module], name) is not None
        except (MissingExtra, ModuleNotFoundError) as error:
            pytest.skip(str(error))


@pytest.mark.parametrize("module", PARTS)
def test_no_module_of_the_table_hides_a_file(module):
    path = ROOT / module.replace(".", "/")
    assert not path.with_suffix(".py").exists()
    assert not (path / "__init__.py").exists()


def test_a_module_is_an_attribute_of_its_package():
    from gem.utils import seeding

    assert seeding is PARTS["gem.utils"].seeding is PARTS["gem.utils.seeding"]


def test_a_name_is_the_real_thing():
    from gem.envs.game_env.sudoku import SudokuEnv
    from gem.envs.games.sudoku import Sudoku

    assert SudokuEnv is Sudoku


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("gem.envs.math_env", "MathEnv"),
        ("gem.envs.multiagent.multi_agent_env", "MultiAgentEnv"),
        ("gem.utils.constants", "LanguageGameReward"),
        ("gem.train.config", "TrainConfig"),
        ("gem.train.run", "Metrics"),
    ],
)
def test_a_pickle_that_names_a_former_place_is_read(module, name):
    named = pickle.loads(f"c{module}\n{name}\n.".encode())
    assert named.__name__ == name
    assert pickle.loads(pickle.dumps(named)) is named


def test_a_module_that_is_not_in_the_table_is_not_there():
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'gem\.utils\.nothing'"):
        importlib.import_module("gem.utils.nothing")
    with pytest.raises(AttributeError, match=r"module 'gem\.utils\.seeding' has no attribute 'nothing'"):
        _ = PARTS["gem.utils.seeding"].nothing


def test_only_programs_can_be_run():
    with pytest.raises(ImportError, match=r"gem\.utils\.seeding is no program"):
        _upstream.Finder.get_code("gem.utils.seeding")
