"""The built wheel, installed outside the checkout: what a user gets who has no checkout."""

import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

import gem

ROOT = Path(__file__).parents[1]
HERE = Path(sysconfig.get_path("purelib"))

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("hatchling", reason="the build backend is not installed; `make setup` brings it")
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT))
    (built,) = folder.glob("gem_gym-*.whl")
    return built


def pip(*words):
    done = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr


def installed(wheel, folder, packages):
    """Make an environment with the wheel in it, and a function that runs its command outside the checkout."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    pip("--python", str(python), "install", "--quiet", "--no-index", "--no-deps", str(wheel))
    (site,) = folder.glob("lib/python3*/site-packages")
    packages(site)
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "GEM_SANDBOX")}

    def gem_gym(*words, stdin=""):
        command = [folder / "bin" / "gem-gym", *words]
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, cwd=folder, env=environment, timeout=300
        )

    return gem_gym


@pytest.fixture(scope="module")
def light(wheel, tmp_path_factory):
    """With the base dependencies, and what these need, and nothing else."""

    def link(site, name="gem-gym", seen=None):
        seen = set() if seen is None else seen
        for line in distribution(name).requires or ():
            needed = re.match(r"[\w.-]+", line)[0]
            if "extra ==" in line or needed in seen:
                continue
            seen.add(needed)
            try:
                files = distribution(needed).files or ()
            except PackageNotFoundError:  # for another Python or system
                continue
            for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
                if not (site / top).exists():
                    (site / top).symlink_to(HERE / top)
            link(site, needed, seen)

    return installed(wheel, tmp_path_factory.mktemp("light environment"), link)


@pytest.fixture(scope="module")
def full(wheel, tmp_path_factory):
    """With all that is installed here."""
    folder = tmp_path_factory.mktemp("full environment")
    return installed(wheel, folder, lambda site: (site / "here.pth").write_text(f"{HERE}\n"))


def test_it_holds_every_file_of_the_package(wheel):
    held = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("gem/")}
    files = (path for path in (ROOT / "gem").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert held == {path.relative_to(ROOT).as_posix() for path in files}


def test_it_holds_every_licence(wheel):
    held = {
        name.split(".dist-info/licenses/")[1]
        for name in zipfile.ZipFile(wheel).namelist()
        if "/licenses/" in name
    }
    assert held == {"LICENSE", "gem/viewer/static/vendor/uplot/LICENSE"}


def test_it_says_what_it_is(wheel):
    (name,) = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".dist-info/METADATA")]
    said = zipfile.ZipFile(wheel).read(name).decode()
    assert f"\nVersion: {gem.__version__}\n" in said
    assert "\nClassifier: Typing :: Typed\n" in said
    assert (ROOT / "README.md").read_text("utf-8").strip() in said


def test_with_base_dependencies_alone(light):
    listed = light("list")
    assert [line.split()[0] for line in listed.stdout.splitlines()[1:]] == gem.ids()
    played = light("play", "game:GuessTheNumber-v0-easy", "--seed", "0", stdin="5\n8\n9\n10\n")
    assert (played.returncode, "10 is right" in played.stdout) == (0, True), played.stderr
    refused = light("train")
    assert refused.returncode == 2
    assert re.search(
        r"uv pip install --python bin/python '\S+\.whl\[train\]'", refused.stderr
    )  # there is no pip
    assert "Traceback" not in refused.stderr
    told = light("doctor")
    assert told.returncode == 0, told.stdout + told.stderr
    assert "GuessTheNumber" not in told.stdout
    (missing,) = re.findall(r"^  not +(.*)  ->  uv pip install .*\.whl\[(.*)\]'$", told.stdout, re.MULTILINE)
    assert missing[0].split() == missing[1].split(",")
    assert {"rg", "train", "sandbox", "terminal"} <= set(missing[1].split(","))


def test_stored_episodes_are_read_with_base_dependencies_alone(light):
    game = "game:GuessTheNumber-v0-easy"
    for run in ("one", "two"):
        assert light("eval", game, "--agent", "random", "-n", "4", "--out", run).returncode == 0
    for words in (
        ["show", "one", "0"],
        ["tail", "one", "--once"],
        ["store", "ls", "one"],
        ["replay", "one", "0"],
        ["value", "one", "0", "--agent", "solver"],
        ["compare", "one", "two"],
        ["completion", "bash"],
    ):
        read = light(*words)
        assert (read.returncode, read.stderr) == (0, "")
        assert read.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["view", "kept"],
        ["view", "kept", "--export", "page.html"],
        ["serve", "game:Sudoku-v0-easy"],
        ["proxy", "--model", "smollm2", "--out", "calls"],
        ["eval", "game:Sudoku-v0-easy", "--agent", "openai:m"],
        ["eval", "game:Wordle-v0-easy"],
        ["report", "kept"],
        ["baseline", "study.toml"],
        ["oracle", "--env", "early"],
    ],
    ids=" ".join,
)
def test_what_needs_an_extra_names_it(light, words):
    if words[0] == "view":
        light("eval", "game:GuessTheNumber-v0-easy", "-n", "1", "--out", "kept")
    refused = light(*words)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert re.fullmatch(r"MissingExtra: .* needs the .* package: .*\.whl\[\w+\]'\n", refused.stderr)


@pytest.mark.parametrize("backend", ["userns", "bwrap-slots", "landlock"])
def test_what_it_judges_with_is_out_of_a_programs_sight(full, backend):
    """Here gem lies among the packages of the interpreter that runs the programs."""
    told = full("sandbox", "--backend", backend)
    if told.returncode:
        pytest.skip(f"not checked on {backend}: {told.stdout}")
    (line,) = [line for line in told.stdout.splitlines() if line.startswith("  gem, and what it judges with")]
    assert line.endswith("yes")


def test_with_everything_it_begins_what_the_checkout_begins(full):
    """Every family, its data files too."""
    told = full("doctor")
    assert told.returncode == 0, told.stdout + told.stderr
    here = subprocess.run(
        [sys.executable, "-m", "gem", "doctor"], capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    section = re.compile(r"^environments\n(.*?)\n\n", re.DOTALL | re.MULTILINE)
    command = re.compile(r"  ->  .*")  # what installs a package differs
    found, expected = (section.findall(command.sub("", each)) for each in (told.stdout, here.stdout))
    assert found == expected != []
