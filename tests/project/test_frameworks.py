import importlib.util
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "scripts" / "frameworks.py"


@pytest.fixture
def script(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("frameworks", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "LISTS", tmp_path)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    return module


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        (
            "ERROR: Could not find a version that satisfies the requirement x==9 (from versions: 1)\n"
            "ERROR: No matching distribution found for x==9",
            ("cannot", "x==9 is not on the index for this Python"),
        ),
        (
            "WARNING: Retrying\nERROR: Could not install packages due to an OSError: "
            "HTTPSConnectionPool(host='example.org', port=443): Max retries exceeded",
            ("cannot", "example.org cannot be reached"),
        ),
        (
            "ERROR: HTTP error 404 while getting https://example.org/x.zip\nERROR: Could not install",
            ("cannot", "HTTP error 404 while getting https://example.org/x.zip"),
        ),
        ("ERROR: a: conflict\nERROR: b: conflict\n\n", ("failed", "ERROR: b: conflict")),
        ("Traceback\nKeyError: 1\n", ("failed", "KeyError: 1")),
        ("", ("failed", "pip printed nothing")),
    ],
)
def test_only_what_this_machine_lacks_is_no_failure(script, said, verdict):
    assert script.judged(said) == verdict


def test_a_framework_gets_the_oldest_python_that_will_do(script, tmp_path, monkeypatch):
    (tmp_path / "plain.txt").write_text("six\n")
    (tmp_path / "newer.txt").write_text("# python 3.19\nsix\n")
    assert script.find_python("plain") == sys.executable
    with pytest.raises(script.Cannot, match=r"wants Python 3\.19; this is 3\.\d+"):
        script.find_python("newer")
    for version, status in (("3.18.1", 1), ("3.19.2", 0)):
        program = tmp_path / "versions" / version / "bin" / "python"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\nexit {status}\n")
        program.chmod(0o755)
    assert script.find_python("newer") == str(tmp_path / "versions" / "3.19.2" / "bin" / "python")


def test_the_table_names_each_verdict_and_fails_for_a_failure_alone(script, tmp_path, monkeypatch, capsys):
    (tmp_path / "newer.txt").write_text("# python 3.19\n")
    (tmp_path / "plain.txt").write_text("six\n")
    monkeypatch.setattr(script, "environment", lambda name: script.find_python(name))
    monkeypatch.setattr(script, "tested", lambda name, python: ("passed", "3 passed"))
    assert script.main(["all"]) == 0
    newer, plain = capsys.readouterr().out.splitlines()[-2:]
    assert newer.split()[:3] == ["newer", "cannot", "wants"]
    assert plain.split() == ["plain", "passed", "3", "passed"]
    monkeypatch.setattr(script, "tested", lambda name, python: ("failed", "1 failed"))
    assert script.main(["plain"]) == 1
    assert script.main(["other"]) == 2
