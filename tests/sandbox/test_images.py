"""What a program can import and read: an allow list of packages, never gem or what judges with it."""

import importlib.util
import os
import subprocess
import sys

import pytest

from gem.errors import BadArgument
from gem.sandbox import bwrap, image, packages
from gem.sandbox.backends import make
from gem.sandbox.selftest import self_test


@pytest.fixture(params=["userns", "bwrap-slots", "landlock"], scope="module")
def backend(request):
    if not self_test(request.param).passed:
        pytest.skip(f"not checked on {request.param}: {self_test(request.param).why_not}")
    return request.param


@pytest.fixture(scope="module")
def opened(backend):
    sandbox = make(backend, begin=("bare",))
    yield sandbox
    sandbox.close()


LOOK = """
import os, sys
for name in NAMES:
    for way in (lambda: __import__(name), lambda: __import__(name + ".sandbox")):
        try:
            print("imported", way())
        except ImportError as error:
            pass
        except OSError:
            pass
for folder in FOLDERS:
    for path in (folder, *(os.path.join(folder, part) for part in ("__init__.py", "py.typed", "core.py"))):
        try:
            with open(path) as file:
                print("read", path, len(file.read()))
        except OSError:
            pass
for place in sys.path:
    for name in NAMES:
        try:
            with open(f"{place}/{name}/__init__.py") as file:
                print("read", place, name, len(file.read()))
        except OSError:
            pass
print("looked")
"""


def test_gem_and_its_judges_cannot_be_read_or_imported(opened):
    names = [name.replace("-", "_") for name in packages.JUDGES[1:]] + ["gem"]
    specs = [importlib.util.find_spec(name) for name in names]
    folders = [place for spec in specs if spec for place in spec.submodule_search_locations or ()]
    assert folders
    look = f"NAMES, FOLDERS = {names!r}, {folders!r}\n{LOOK}"
    assert opened.run(look).stdout == "looked\n"
    session = opened.session()
    assert session.execute(look).stdout == "looked\n"
    session.close()


def test_a_program_started_by_a_program_sees_no_more(opened):
    if not opened.settings.fork:
        pytest.skip("this backend lets no program start another")
    code = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import PACKAGE'])\n"
    assert "No module named 'gem'" in opened.run(code.replace("PACKAGE", "gem")).stderr
    assert opened.run(code.replace("PACKAGE", "numpy")).stderr == ""


CHAIN = """
import sys
from gem.sandbox.backends import make
sandbox = make(sys.argv[1], begin=("bare",))
for statement in ("os.remove(path)", "os.rename(path, path + '2')", "open(path, 'w')"):
    for name in ("bin/python3", "made/bin/python3", "made/pyvenv.cfg"):
        done = sandbox.run(f"import os; path = {sys.argv[2]!r} + '/{name}'; {statement}")
        assert "Error" in done.stderr, statement
inner = "import sys; print(sys.executable)"
started = f"import subprocess, sys\\nsubprocess.run([sys.executable, '-c', {inner!r}])"
print(sandbox.run(started).stdout.strip())
print(sandbox.session().shell("python3 -c 'import sys; print(sys.prefix)'").stdout.strip())
sandbox.close()
"""


@pytest.mark.system
@pytest.mark.parametrize("backend_", ["userns", "bwrap-slots"])
def test_an_environment_made_by_way_of_a_link_keeps_its_interpreter(tmp_path, backend_):
    """Its python is a link to a link in a folder that programs do not see, and none of them can spoil it."""
    if not self_test(backend_).passed:
        pytest.skip(f"not checked on {backend_}: {self_test(backend_).why_not}")
    place = tmp_path / "a space"
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python3").symlink_to(sys._base_executable)
    made = [place / "bin" / "python3", "-m", "venv", "--without-pip", place / "made"]
    subprocess.run(made, check=True)
    python = str(place / "made" / "bin" / "python3")
    assert os.readlink(python) == str(place / "bin" / "python3")
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    if backend_ == "bwrap-slots":  # the package that brings it is not in this environment
        environment["PATH"] = f"{os.path.dirname(bwrap.find())}:{environment['PATH']}"
    done = subprocess.run(
        [python, "-c", CHAIN, backend_, str(place)],
        capture_output=True,
        text=True,
        env=environment,
        cwd="/",
    )
    assert done.stdout.splitlines() == [python, str(place / "made")], done.stderr


def test_of_this_machines_packages_only_those_of_the_list_are_there(opened):
    pytest.importorskip("numpy")
    done = opened.run("import numpy\nprint(numpy.arange(3).sum())\nimport ruff\n")
    assert done.stdout == "3\n"
    assert "ModuleNotFoundError: No module named 'ruff'" in done.stderr or "ruff" in done.stderr
    assert done.exit_code == 1


def test_a_bare_image_has_the_standard_library_alone(backend):
    sandbox = make(backend, begin=("bare",), packages="bare")
    done = sandbox.run("import json, sqlite3, unittest\nprint('there')\nimport numpy")
    sandbox.close()
    assert done.stdout == "there\n"
    assert "numpy" in done.stderr


def test_a_user_allows_more(backend):
    pytest.importorskip("msgspec")
    for more, status in ((), 1), (("msgspec",), 0):
        sandbox = make(backend, begin=("bare",), packages=more)
        done = sandbox.run("import msgspec\nprint(msgspec.json.encode([1]))")
        sandbox.close()
        assert done.exit_code == status, done


@pytest.mark.parametrize("more", [("gem-gym",), ("Reasoning_Gym",), ("numpy", "math.verify"), "sciense"])
def test_what_judges_is_never_allowed(more):
    with pytest.raises(BadArgument, match=r"no program may read that|accepted: bare, science"):
        packages.list_allowed(more)


def test_packages_come_with_what_they_need():
    pytest.importorskip("matplotlib")
    tops = {path.rpartition("/")[2] for path in packages.entries(("matplotlib",))}
    assert {"matplotlib", "PIL", "numpy", "dateutil"} <= tops
    assert not any(top.endswith(".pth") or top == "__pycache__" for top in tops)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """An interpreter of another machine, with gem and a judge among its packages."""
    prefix = tmp_path / "python"
    site = prefix / "lib" / "python3.11" / "site-packages"
    for name in ("gem", "reasoning_gym", "numpy", "numpy.libs"):
        (site / name).mkdir(parents=True)
    (prefix / "lib" / "python3.11" / "json").mkdir()
    beneath = tmp_path / "beneath" / "lib" / "python3.12"
    for name in ("site-packages", "dist-packages", "json"):
        (beneath / name).mkdir(parents=True)
    monkeypatch.setattr(packages, "entries", lambda names: (str(site / "numpy"), str(site / "numpy.libs")))
    return image.Interpreter(
        sys.executable, sys.executable, str(prefix), (str(site),), (str(prefix / "lib"), str(beneath.parent))
    )


def test_every_folder_of_packages_is_covered(machine):
    (site,) = machine.sites
    seen = image.image(machine, ("numpy",))
    beneath = machine.visible[1] + "/python3.12"
    assert {site, f"{beneath}/site-packages", f"{beneath}/dist-packages"} <= set(seen.covered)
    assert seen.packages == (f"{site}/numpy", f"{site}/numpy.libs")


def test_landlock_is_given_everything_but_the_packages(machine, tmp_path):
    (site,) = machine.sites
    rules = image.readable(machine, ("numpy",), str(tmp_path / "links"))
    beneath = machine.visible[1] + "/python3.12"
    given = {path for path in rules["shown"] if path.startswith((machine.prefix, beneath))}
    stdlib = {f"{machine.prefix}/lib/python3.11/json", f"{beneath}/json"}
    assert given == {f"{site}/numpy", f"{site}/numpy.libs", *stdlib}
    assert f"{machine.prefix}/lib/python3.11" in rules["listed"]
    assert not any(path.startswith(site) for path in rules["listed"])
    assert sorted(os.listdir(tmp_path / "links")) == ["numpy", "numpy.libs"]


def test_what_is_installed_and_not_allowed_is_absent_for_imports(opened):
    """Packages try what they can do without: to be refused is no answer that they know."""
    done = opened.run("""
for name in ("ruff", "msgspec", "gem", "reasoning_gym"):
    try:
        __import__(name)
    except ImportError as error:
        print(type(error).__name__)
""")
    assert done.stdout == "ModuleNotFoundError\n" * 4, done.stderr


NO_LANDLOCK = """
import errno, struct, sys
from gem.sandbox import lockdown
from gem.sandbox.backends import make
from gem.sandbox.selftest import _try

code = [(0x20, 0, 0, 0)]
for number in (444, 445, 446):  # Landlock's calls, as on a kernel without it
    code += [(0x15, 0, 1, number), (6, 0, 0, 0x50000 | errno.ENOSYS)]
code += [(6, 0, 0, 0x7FFF0000)]
lockdown._prctl(38, 1)
lockdown.Filter(b"".join(struct.pack("=HBBI", *step) for step in code)).install()
report = _try(sys.argv[1], {}, 3.0)
print(report.passed, report.properties.get("server"), report.why_not)
sandbox = make(sys.argv[1], begin=("bare",))
session = sandbox.session()
session.execute("kept = 6 * 7")
(server,) = sandbox.pool.every()[:1]
for attack in sys.stdin.read().split("---"):
    for _ in range(3):  # what it ends is noticed before, while or after the next one begins
        result = sandbox.run(attack + "\\nprint('done')")
        assert (result.status, result.stdout) == ("OK", "done\\n"), (attack, result)
    assert server.lives(), attack
print(session.execute("kept").value)
sandbox.close()
"""

ATTACKS = """
import os, signal
for number in sorted(signal.valid_signals()):
    for pid in (1, os.getppid()):
        if pid not in (0, os.getpid()):
            try:
                os.kill(pid, number)
            except OSError:
                pass
---
import os
for name in ("mem", "maps", "environ", "syscall", "stack", "oom_score_adj", "attr/current"):
    for mode in ("rb", "r+b"):
        for pid in (1, os.getppid()):
            if pid not in (0, os.getpid()) and (name, mode) != ("oom_score_adj", "rb"):  # which all may read
                try:
                    open(f"/proc/{pid}/{name}", mode).read(1)
                    raise SystemExit(f"reached {pid} {name}")
                except OSError:
                    pass
---
import os
try:
    os.kill(-1, 2)
except ProcessLookupError:  # it sees nobody
    pass
---
import os
try:
    os.kill(-1, 9)
except ProcessLookupError:
    pass
---
import os
try:
    os.kill(-1, 19)
except ProcessLookupError:
    pass
"""

OTHERS = """
import os
for name in os.listdir("/proc"):
    if name.isdecimal() and int(name) not in (1, os.getpid()):
        try:
            os.kill(int(name), 9)
        except OSError:
            pass
print("alone")
"""


@pytest.mark.parametrize("backend_", ["bwrap-slots", "userns"])
def test_a_program_that_ends_what_it_can_see_loses_and_wins_nothing_by_it(backend_):
    if not self_test(backend_).passed:
        pytest.skip(f"not checked on {backend_}: {self_test(backend_).why_not}")
    sandbox = make(backend_, begin=("bare",))
    for _ in range(3):
        assert sandbox.run(OTHERS).stdout == "alone\n"
        assert sandbox.run("print(6 * 7)").stdout == "42\n"
    session = sandbox.session()
    assert session.execute(OTHERS).stdout == "alone\n"
    assert session.execute("6 * 7").value == "42"
    session.close()
    assert sandbox.run("print(6 * 7)").stdout == "42\n"
    sandbox.close()


@pytest.mark.system
@pytest.mark.parametrize("backend", ["bwrap-slots", "userns"])
def test_the_fork_server_is_out_of_reach_without_landlock(backend):

    if not self_test(backend).passed:
        pytest.skip(f"not checked on {backend}: {self_test(backend).why_not}")
    done = subprocess.run(
        [sys.executable, "-c", NO_LANDLOCK, backend],
        input=ATTACKS,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["True True ", "42"]
