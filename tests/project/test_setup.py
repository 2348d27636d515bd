"""scripts/setup.sh: what it installs, when it does nothing, and what it says when something is wrong.

A stand-in for .venv/bin/python writes down what it is asked to do, so that nothing is installed here; that
the real one works is what every run of `make test` shows.
"""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = """#!/bin/sh
printf '%s\\n' "$*" "no_index=${PIP_NO_INDEX:-}" >>calls
case "$*" in *"--fetch"*) if [ -e offline ]; then echo "no index can be reached"; exit 2; fi ;; esac
case "$*" in *"pip install"*) if [ -e broken ]; then echo "the network is down"; exit 1; fi ;; esac
"""


@pytest.fixture
def checkout(tmp_path):
    """A checkout in a folder with a space, whose .venv is there but empty."""
    place = tmp_path / "a folder"
    for name in ("scripts/setup.sh", "pyproject.toml", "constraints.txt"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes((ROOT / name).read_bytes())
    executable(place / ".venv/bin/python", PYTHON)
    return place


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def set_up(checkout: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    (checkout / "calls").write_text("")
    return subprocess.run(
        ["sh", "scripts/setup.sh", *args],
        cwd=checkout,
        env={"PATH": "/usr/bin:/bin", "HOME": str(checkout), **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


def installs(checkout: Path) -> list[str]:
    calls = (checkout / "calls").read_text().splitlines()
    return [line for line in calls if "pip install" in line and "--dry-run" not in line]


def test_set_up_installs_the_pinned_packages(checkout):
    done = set_up(checkout)
    assert done.returncode == 0, done.stderr
    assert len(installs(checkout)) == 2
    assert all("--constraint constraints.txt" in line for line in installs(checkout))
    assert "--editable .[" in installs(checkout)[-1]


@pytest.mark.parametrize(("part", "extras"), [("demo", "train,viewer"), ("demo-llm", "llm,viewer")])
def test_a_demonstration_gets_what_it_needs_and_a_later_set_up_adds_the_rest(checkout, part, extras):
    done = set_up(checkout, part)
    assert done.returncode == 0, done.stderr
    assert installs(checkout)[-1].endswith(f"--editable .[{extras}]")
    assert ("--fetch" in (checkout / "calls").read_text()) is (part == "demo-llm")
    assert set_up(checkout, part).stdout == "set-up: .venv is ready\n"
    set_up(checkout)
    assert installs(checkout)[-1].endswith(",dev]")
    assert set_up(checkout, part).stdout == "set-up: .venv is ready\n"


@pytest.mark.slow
def test_what_a_long_installation_is_at_is_told(checkout):
    executable(
        checkout / ".venv/bin/python",
        PYTHON + 'case "$*" in *"--editable"*) echo "Collecting it"; sleep 6;; esac\n',
    )
    done = set_up(checkout, "demo")
    assert "set-up: 5 s: Collecting it\n" in done.stdout


def test_an_unknown_part_is_refused(checkout):
    done = set_up(checkout, "dmo")
    assert (done.returncode, "accepted: none, demo, demo-llm, wheels" in done.stderr) == (2, True)


def test_set_up_fetches_the_model_and_goes_on_without_it(checkout):
    done = set_up(checkout)
    assert "-m gem models --fetch smollm2" in (checkout / "calls").read_text()
    assert "without the model" not in done.stdout
    with (checkout / "constraints.txt").open("a") as file:
        file.write("# changed\n")
    (checkout / "offline").touch()
    done = set_up(checkout)
    assert done.returncode == 0
    assert "going on without the model smollm2" in done.stdout
    assert "no index can be reached" in done.stdout
    assert set_up(checkout).stdout == "set-up: .venv is ready\n"


def test_a_second_run_does_nothing_and_says_so(checkout):
    set_up(checkout)
    done = set_up(checkout)
    assert done.stdout == "set-up: .venv is ready\n"
    assert installs(checkout) == []


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_changed_file_installs_again(name, checkout):
    set_up(checkout)
    with (checkout / name).open("a") as file:
        file.write("# changed\n")
    set_up(checkout)
    assert len(installs(checkout)) == 2


def test_a_moved_checkout_installs_again(checkout):
    set_up(checkout)
    moved = checkout.rename(checkout.with_name("another folder"))
    set_up(moved)
    assert len(installs(moved)) == 2


def test_a_failure_shows_its_end_and_the_log_and_is_not_forgotten(checkout):
    (checkout / "broken").touch()
    done = set_up(checkout)
    assert done.returncode == 1
    assert "the network is down" in done.stderr
    assert done.stderr.endswith("set-up: pip failed; all it said is in .venv/setup.log.\n")
    (checkout / "broken").unlink()
    set_up(checkout)
    assert len(installs(checkout)) == 2


def test_a_folder_of_wheels_is_used_without_network(checkout):
    (checkout / "wheels").mkdir()
    done = set_up(checkout)
    assert "wheels come from wheels/, without network" in done.stdout
    assert "no_index=1" in (checkout / "calls").read_text()


def test_an_interpreter_that_will_not_do_is_refused(checkout):
    executable(checkout / ".venv/bin/python", "#!/bin/sh\nexit 1\n")
    done = set_up(checkout, PYTHON=str(executable(checkout / "python", "#!/bin/sh\nexit 1\n")))
    assert done.returncode == 1
    assert "is no Python 3.11, 3.12 or 3.13 with the modules venv and ensurepip" in done.stderr


# Plays another version of the interpreter to what is asked by -c.
OTHER_VERSION = f"""#!/bin/sh
[ "$1" = -c ] || exit 0
exec {shlex.quote(sys.executable)} -c 'import sys; sys.version_info = VERSION; exec(sys.argv[1])' "$2"
"""


@pytest.mark.parametrize(
    ("version", "taken"), [((3, 10), False), ((3, 11), True), ((3, 13), True), ((3, 14), False)]
)
def test_versions_that_nobody_tried_are_refused(checkout, version, taken):
    executable(checkout / ".venv/bin/python", "#!/bin/sh\nexit 1\n")
    python = executable(checkout / "python", OTHER_VERSION.replace("VERSION", repr(version)))
    done = set_up(checkout, PYTHON=str(python))
    assert ("making .venv with" in done.stdout) is taken
    assert ("is no Python 3.11, 3.12 or 3.13" in done.stderr) is not taken


def test_without_any_interpreter_it_says_what_to_install(checkout):
    executable(checkout / ".venv/bin/python", "#!/bin/sh\nexit 1\n")
    for name in ("python3.11", "python3.12", "python3.13", "python3"):  # as pyenv's shims of nothing
        executable(checkout / "shims" / name, "#!/bin/sh\nexit 127\n")
    done = set_up(checkout, PATH=f"{checkout}/shims:/usr/bin:/bin")
    assert done.returncode == 1
    assert "python3.11-venv" in done.stderr
    assert "make setup PYTHON=" in done.stderr
