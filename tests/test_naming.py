import os
import sys

import pytest

from gem.errors import BadArgument
from gem.naming import is_path, load_named


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GEM_CACHE", str(tmp_path / "cache"))


def test_an_object_is_returned_as_it_is():
    assert load_named(dict, "class") is dict


def test_a_module_of_the_path_is_named(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert load_named("collections:OrderedDict.fromkeys", "function").__name__ == "fromkeys"


def test_a_module_of_the_current_folder_is_found_last(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "module_of_this_test.py").write_text("X = 1")
    (tmp_path / "string.py").write_text("digits = 'hidden'")
    assert load_named("module_of_this_test:X", "number") == 1
    assert load_named("string:digits", "text") == "0123456789"
    assert sys.path.index(os.getcwd()) == len(sys.path) - 1
    del sys.modules["module_of_this_test"]


def test_a_file_is_named_by_a_path_from_here_or_from_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "math.py").write_text("class Outer:\n    INNER = 7\n")
    assert load_named("sub/math.py:Outer.INNER", "number") == 7
    assert load_named("math.py:Outer.INNER", "number", folder="sub") == 7
    monkeypatch.chdir(tmp_path / "sub")
    assert load_named("./math.py:Outer.INNER", "number") == 7


FILE = "import json\nclass Relay: ...\ndef build(): ...\nasync def ask(): ...\nclass _Private: ...\n"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "file.py:Rely",
            FILE,
            r"environment 'file.py:Rely': there is no 'Rely' in it. Did you mean 'Relay'\?",
        ),
        ("file.py:Xyz", FILE, "there is no 'Xyz' in it. It defines Relay, build, ask."),
        ("file.py:Xyz", "A = 1\nB: int = 2\n_c = 3", "there is no 'Xyz' in it. It defines A, B."),
        ("file.py:Xyz", "_x = 1", "It defines no class, function or object."),
        ("file.py", FILE, "'file.py' names a file; accepted: file.py:NAME. It defines Relay, build, ask."),
        ("file.py:", FILE, "'file.py:' names a file; accepted: file.py:NAME. It defines Relay, build, ask."),
        (
            "gone.py:X",
            FILE,
            "there is no file gone.py. Accepted: a registered name, package.module:Attribute",
        ),
        ("gone/file.py:X", FILE, "there is no file gone/file.py."),
        ("file.py:X", "def f(:", r"file.py is not valid Python: invalid syntax \(line 1\)."),
        ("file.py:X", "X = '\0'", "file.py is not valid Python: source code .*null bytes."),
        (
            "file.py:X",
            "\n1/0",
            r"its import fails: ZeroDivisionError: division by zero \(.*file.py, line 2\).",
        ),
        ("file.py:X", "import nosuch", r"fails: ModuleNotFoundError: No module named 'nosuch' \(.*line 1\)."),
        ("file.py:X", "raise SystemExit(3)", "its import fails: SystemExit: 3"),
        ("nosuch.module:X", FILE, "no environment 'nosuch.module:X': no module 'nosuch' is installed or in"),
        ("json:lods", FILE, "'json:lods': there is no 'lods' in it. Did you mean 'loads'"),
        ("relay", FILE, "there is no environment 'relay'; accepted: a registered name, package.module:Attr"),
        ("json:", FILE, "there is no environment 'json:'"),
        (".json:x", FILE, "there is no environment '.json:x'"),
        ("", FILE, "there is no environment ''"),
    ],
)
def test_what_names_nothing_is_one_sentence(tmp_path, monkeypatch, name, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.py").write_text(text)
    with pytest.raises(BadArgument, match=message) as caught:
        load_named(name, "environment")
    assert "gem_source_" not in str(caught.value)


def test_a_file_that_is_not_text(tmp_path):
    (tmp_path / "file.py").write_bytes(b"X = '\xff'")
    with pytest.raises(BadArgument, match="is not valid Python"):
        load_named(f"{tmp_path}/file.py:X", "environment")


def test_ctrl_c_while_a_file_is_imported_is_no_bad_file(tmp_path):
    (tmp_path / "file.py").write_text("raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load_named(f"{tmp_path}/file.py:X", "environment")


def test_a_command_that_ends_with_a_file_is_no_path():
    assert not is_path("program:python3 agent.py")
    assert is_path("agent.py")
    assert is_path("agent.py:NAME")
