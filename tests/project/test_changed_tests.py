import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "changed_tests.py"


@pytest.fixture(scope="module")
def script():
    pytest.importorskip("grimp")
    spec = importlib.util.spec_from_file_location("changed_tests", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("changed", "wanted", "unwanted"),
    [
        ("gem/rollout/runner.py", {"tests/rollout", "tests/evals"}, {"tests/envs/games", "tests/docs"}),
        ("gem/graders/number.py", {"tests/graders", "tests/envs/data"}, {"tests/rollout", "tests/contract"}),
        (
            "gem/envs/games/hangman.py",
            {"tests/envs/games", "tests/contract", "tests/golden"},
            {"tests/rollout"},
        ),
        ("gem/envs/games/crossword_clues.tsv", {"tests/envs/games", "tests/contract"}, {"tests/rollout"}),
        ("gem/parsing.py", {"tests/test_parsing.py", "tests/graders"}, set()),
        ("tests/shared/fork_worlds.py", {"tests/rollout/test_forks.py"}, {"tests/rollout", "tests/agents"}),
        ("tests/rollout/test_runner.py", {"tests/rollout/test_runner.py"}, {"tests/rollout"}),
        ("docs/guides/graders.md", {"tests/docs"}, {"tests/graders"}),
        ("tests/conftest.py", {"tests"}, {"tests/project"}),
    ],
)
@pytest.mark.system
def test_a_change_runs_the_tests_of_its_package_and_of_those_above(script, changed, wanted, unwanted):
    chosen = set(script.choose([changed]))
    assert wanted <= chosen
    assert not unwanted & chosen
    assert all((ROOT / path).exists() for path in chosen)


def test_paths_below_a_chosen_folder_are_not_collected_twice(script):
    paths = {"tests/docs": "a", "tests/docs/test_pages.py": "b", "tests/test_cli.py": "c"}
    assert script.outermost(paths) == {"tests/docs": "a", "tests/test_cli.py": "c"}


def test_a_revision_that_is_not_there_is_named():
    pytest.importorskip("grimp")
    if not (ROOT / ".git").exists():
        pytest.skip("the files are not a checkout of git")
    ran = subprocess.run([sys.executable, str(SCRIPT), "--since", "nowhere"], capture_output=True, text=True)
    assert ran.returncode == 1
    assert "changed_tests.py: fatal" in ran.stderr
    assert "nowhere" in ran.stderr
