import json
import os
import pickle
import subprocess
import sys

import pytest

from gem.errors import BadArgument
from gem.naming import load_named
from gem.source_files import digest_of, read_source, recall_source, remember, source_of, with_sources


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GEM_CACHE", str(tmp_path / "cache"))


def write(folder, files=None, **more):
    for name, text in {**(files or {}), **more}.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def elsewhere(pickled, tmp_path, **variables):
    """Unpickle in another process, which has never seen the file, and print it."""
    code = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()))"
    env = {**os.environ, "GEM_CACHE": str(tmp_path / "empty"), **variables}
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickled, capture_output=True, env=env, check=True
    )
    return done.stdout.decode().strip()


@pytest.mark.parametrize("hidden", ["random", "math", "gem", "numpy"])
def test_a_neighbour_hides_no_module_that_python_finds_elsewhere(tmp_path, hidden):
    write(
        tmp_path, **{hidden: "raise RuntimeError('imported')", "mine": f"import {hidden}\nTHERE = {hidden}"}
    )
    path = list(sys.path)
    assert load_named(f"{tmp_path}/mine.py:THERE", "thing") is sys.modules[hidden]
    assert sys.path == path
    assert list(read_source(tmp_path / "mine.py").files) == ["mine.py"]


def test_a_file_named_like_a_module_of_the_standard_library_imports_the_real_one(tmp_path):
    write(tmp_path, math="import math\nPI = math.pi")
    assert load_named(f"{tmp_path}/math.py:PI", "number") == 3.141592653589793


IMPORTS = {
    "import helpers": "helpers.WORD",
    "import helpers as h": "h.WORD",
    "from helpers import WORD": "WORD",
    "from helpers import *": "WORD",
    "from .helpers import WORD": "WORD",
    "from . import helpers": "helpers.WORD",
    "import package": "package.WORD",
    "import package.inner": "package.inner.WORD",
    "import package.inner as inner": "inner.WORD",
    "import package.deep.down": "package.deep.down.WORD",
    "import package.deep.down as down": "down.WORD",
    "from package import inner": "inner.WORD",
    "from package.deep.down import WORD": "WORD",
    "import folder.plain": "folder.plain.WORD",
    "def late():\n    import helpers\n    return helpers.WORD": "late()",
}


@pytest.mark.parametrize("statement", IMPORTS)
def test_imports_of_siblings(tmp_path, statement):
    write(
        tmp_path,
        main=f"{statement}\nFOUND = {IMPORTS[statement]}",
        helpers="import package.inner\nWORD = package.inner.WORD",
        unused="raise RuntimeError",
        files={
            "package/__init__": "from .inner import WORD",
            "package/inner": "WORD = 'here'",
            "package/deep/down": "import helpers\nfrom package import inner\nWORD = inner.WORD",
            "folder/plain": "WORD = 'here'",
        },
    )
    assert load_named(f"{tmp_path}/main.py:FOUND", "word") == "here"
    assert not {"helpers", "package", "folder", "unused"} & sys.modules.keys()


def test_files_of_one_name_and_their_siblings_do_not_mix(tmp_path):
    for word in ("one", "two"):
        write(tmp_path / word, main="import helpers\nWORD = helpers.WORD", helpers=f"WORD = {word!r}")
    found = [load_named(f"{tmp_path}/{word}/main.py:WORD", "word") for word in ("one", "two", "one")]
    assert found == ["one", "two", "one"]


@pytest.mark.parametrize("edited", ["main", "helpers"])
def test_an_edited_file_or_sibling_is_loaded_anew(tmp_path, edited):
    write(tmp_path, main="import helpers\nWORD = helpers.WORD + '1'", helpers="WORD = '1'")
    before = load_named(f"{tmp_path}/main.py:WORD", "word"), read_source(tmp_path / "main.py").digest
    file = tmp_path / f"{edited}.py"
    file.write_text(file.read_text().replace("'1'", "'2'"))
    after = load_named(f"{tmp_path}/main.py:WORD", "word"), read_source(tmp_path / "main.py").digest
    assert before[0] == "11"
    assert after[0] in ("12", "21")
    assert before[1] != after[1]


def test_the_digest_depends_on_no_folder(tmp_path):
    for name in ("one", "two"):
        write(tmp_path / name, main="import helpers", helpers="", other="")
    assert (
        read_source(tmp_path / "one" / "main.py").digest == read_source(tmp_path / "two" / "main.py").digest
    )


CLASS = "from helpers import WORD\nclass Thing:\n    def __repr__(self): return WORD"


def test_a_pickle_carries_the_sources_that_it_names(tmp_path):
    write(tmp_path, main=CLASS, helpers="WORD = 'carried'")
    made = load_named(f"{tmp_path}/main.py:Thing", "thing")()
    assert elsewhere(with_sources(pickle.dumps(made)), tmp_path) == "carried"
    plain = pickle.dumps({"no": "source"})
    assert with_sources(plain) is plain


def test_a_named_source_is_found_by_its_digest_later(tmp_path):
    write(tmp_path, main=CLASS, helpers="WORD = 'remembered'")
    made = load_named(f"{tmp_path}/main.py:Thing", "thing")
    source = source_of(made)
    assert recall_source(source.digest) == source
    assert recall_source(source.digest).folder == str(tmp_path)
    code = f"import gem, importlib; print(importlib.import_module({source.module!r}).Thing())"
    run = [sys.executable, "-c", code]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout.strip() == "remembered"


def test_a_changed_file_of_the_cache_is_no_source(tmp_path):
    write(tmp_path, main="X = 1")
    source = read_source(tmp_path / "main.py")
    remember(source)
    kept = tmp_path / "cache" / "sources" / f"{source.digest}.json"
    for text in (
        kept.read_text().replace("X = 1", "X = 2"),
        "[]",
        "{",
        '{"main": 1, "files": 2, "siblings": 3}',
    ):
        kept.write_text(text)
        assert recall_source(source.digest) is None
    assert recall_source("../../etc/passwd") is None
    assert recall_source("0" * 12) is None


def test_a_cache_that_cannot_be_written_is_ignored(tmp_path, monkeypatch):
    write(tmp_path, main="X = 1")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GEM_CACHE", str(tmp_path / "file"))
    assert load_named(f"{tmp_path}/main.py:X", "number") == 1


def test_digest_of():
    digest = "0123456789ab"
    assert digest_of(f"gem_source_{digest}.relay:Relay") == digest_of(f"gem_source_{digest}") == digest
    assert digest_of("gem_source_0123.relay:Relay") is None
    assert digest_of("game:Sudoku-v0-easy") is None
    assert source_of(json) is None
    assert source_of(dict) is None


def test_a_source_of_more_files_than_a_folder_of_scripts_has_is_refused(tmp_path):
    write(tmp_path, {"main": "import package", "package/__init__": ""})
    for number in range(1000):
        (tmp_path / "package" / f"m{number}.py").write_text("")
    with pytest.raises(BadArgument, match="imports 1002 files of its folder; accepted: 1000"):
        read_source(tmp_path / "main.py")


def test_a_plain_pickle_of_an_environment_carries_its_file(tmp_path):
    text = """import gem, helpers
class Relay(gem.Env):
    def __str__(self): return self.word + helpers.WORD"""
    write(tmp_path, relay=text, helpers="WORD = 'carried'")
    env = load_named(f"{tmp_path}/relay.py:Relay", "environment")()
    env.word = "state "
    assert elsewhere(pickle.dumps(env), tmp_path) == "state carried"
