"""`gem-gym init`: the packages that it writes keep gem's own contract, and are found once installed."""

import json
import os
import site
import subprocess
import sys
import venv
from importlib import import_module
from pathlib import Path

import pytest

import gem
from gem import cli
from gem.errors import BadArgument, pip_command
from gem.registry import ENV_REGISTRY
from gem.scaffold import write_package, write_taskset
from gem.testing import audit_env, check_env

ROOT = Path(__file__).parents[2]


@pytest.fixture
def registered(tmp_path, monkeypatch):
    """Write a package, import it from where it stands, and let it register."""

    def write(name, kind):
        package = write_package(name, tmp_path, kind)
        monkeypatch.setattr("gem.registry.ENV_REGISTRY", ENV_REGISTRY.copy())
        monkeypatch.syspath_prepend(package.folder / "src")
        import_module(name.replace("-", "_")).register_all()
        return package

    return write


@pytest.mark.system
@pytest.mark.parametrize(
    ("name", "kind", "ids"),
    [
        ("lamp-row", "class", ["lamp_row:LampRow-v0", "lamp_row:LampRow-v0-long"]),
        ("pub_quiz2", "dataset", ["pub_quiz2:PubQuiz2-v0", "pub_quiz2:PubQuiz2-v0-retry"]),
    ],
)
def test_a_written_package_passes_both_judges(registered, name, kind, ids):
    package = registered(name, kind)
    assert package.env_id == ids[0]
    assert gem.ids(name.replace("-", "_")) == ids
    for env_id in ids:
        check_env(env_id).raise_if_broken()
        card = audit_env(env_id)
        assert card.ok, str(card)


def test_the_written_game_is_a_game_with_pictures(registered):
    pytest.importorskip("PIL")
    package = registered("lamp-row-too", "class")
    obs = gem.make(package.env_id, render_mode="image").reset(seed=0).obs
    assert [type(part).__name__ for part in obs] == ["Text", "Image"]


@pytest.mark.parametrize("kind", ["class", "dataset"])
def test_a_written_package_is_linted_as_gem_is(tmp_path, kind):
    package = write_package("neat", tmp_path, kind)
    ruff = [sys.executable, "-m", "ruff", "check", "--config", str(ROOT / "pyproject.toml")]
    done = subprocess.run([*ruff, str(package.folder / "src")], capture_output=True, text=True, check=False)
    if "No module named ruff" in done.stderr:
        pytest.skip("ruff is not installed")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "name", ["", "Word-Ladder", "7up", "a b", "../evil", "a--b", "-a", "a/b", "naïve", "x" * 9 + "."]
)
def test_a_name_that_no_package_can_have_is_refused(tmp_path, name):
    with pytest.raises(BadArgument, match="accepted: small letters and digits"):
        write_package(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_would_hide_an_installed_module_is_refused(tmp_path):
    with pytest.raises(BadArgument, match="a module pytest is installed"):
        write_package("pytest", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["json", "class", "gem", "game", "verifiers"])
def test_a_name_that_is_taken_is_refused(tmp_path, name):
    with pytest.raises(BadArgument, match="is taken by Python, gem or verifiers"):
        write_package(name, tmp_path)


def test_another_kind_is_refused(tmp_path):
    with pytest.raises(BadArgument, match="kind is 'game'; accepted: class, dataset"):
        write_package("lamps", tmp_path, "game")


def test_nothing_is_overwritten(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init", "lamps"]) == 0
    told = capsys.readouterr().out
    assert "gem-gym check lamps:Lamps-v0" in told
    assert f"  {pip_command('-e lamps')}\n" in told
    (tmp_path / "lamps" / "README.md").write_text("mine")
    assert cli.main(["init", "lamps", "--dataset"]) == cli.MISUSED
    assert "exists already" in capsys.readouterr().err
    assert (tmp_path / "lamps" / "README.md").read_text() == "mine"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["class", "dataset"])
def test_an_installed_package_is_found_and_passes_its_own_tests(tmp_path, kind):
    pytest.importorskip("hatchling")
    package = write_package("lamp-row", tmp_path, kind)
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    python = str(home / "bin" / "python")
    inside = subprocess.run(
        [python, "-c", "import site; print(site.getsitepackages()[0])"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    # The environment that runs this test brings gem, pytest and the build backend: nothing is downloaded.
    here = [*site.getsitepackages(), str(ROOT)]
    Path(inside, "here.pth").write_text("\n".join(here) + "\n")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PIP_"))}

    def run(*command, cwd=tmp_path):
        done = subprocess.run(
            [python, *command], cwd=cwd, env=clean, capture_output=True, text=True, check=False, timeout=240
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index", "-e", str(package.folder))
    code = f"import gem, json; print(json.dumps(gem.make({package.env_id!r}).reset(seed=0).obs))"
    assert "\\boxed{}" in json.loads(run("-c", code))
    assert package.env_id in run("-m", "gem", "list", "lamp_row")
    assert "0 broken" in run("-m", "gem", "check", package.env_id)
    run("-m", "pytest", "-q", cwd=package.folder)


def test_a_taskset_of_a_file_is_refused_with_the_way_out(tmp_path, capsys):
    assert cli.main(["export", "own.py:Env", str(tmp_path / "own"), "--format", "verifiers"]) == 2
    assert "accepted: an id that an installed package registers. `gem-gym init" in capsys.readouterr().err


def test_a_written_taskset_names_its_environment_and_what_it_needs(tmp_path, capsys):
    target = tmp_path / "word-puzzles"
    assert cli.main(["export", "rg:leg_counting", str(target), "--format", "verifiers"]) == 0
    told = capsys.readouterr().out
    assert "vf-eval word-puzzles" in told
    assert f"  {pip_command(f'-e {target}')}\n" in told
    assert 'env: str = "rg:leg_counting"' in (target / "word_puzzles" / "__init__.py").read_text()
    assert 'dependencies = ["gem-gym[verifiers,rg]"]' in (target / "pyproject.toml").read_text()
    assert sorted(path.name for path in target.rglob("*") if path.is_file()) == [
        "README.md",
        "__init__.py",
        "pyproject.toml",
    ]


@pytest.mark.parametrize(
    ("env_id", "name", "message"),
    [
        ("ta:Chess-v0", "chess-set", "accepted: one seat"),
        ("harbor:.", "folder-set", "at a place of this machine"),
        ("game:GuessTheNumber-v0-easy", "Bad Name", "accepted: small letters and digits"),
        ("game:GuessTheNumber-v0-easy", "there-already", "exists already"),
        ("game:Guess", "a-set", "no environment"),
    ],
)
def test_what_is_no_taskset_is_refused(tmp_path, env_id, name, message):
    (tmp_path / "there-already").mkdir()
    with pytest.raises(ValueError, match=message):
        write_taskset(env_id, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["there-already"]
