"""What tests write into a cache is written into one of their own."""

import os
from pathlib import Path

from gem import models
from gem.naming import load_named
from gem.source_files import cache_folder

MARKS = ("sources", "named")


def marks_in(folder):
    return {each.name for kind in MARKS for each in (folder / kind).glob("*")}


def test_what_a_test_names_is_marked_in_a_cache_of_its_own(users_cache, tmp_path):
    before = marks_in(cache_folder())
    (tmp_path / "g.py").write_text(f"def f():\n    return {str(tmp_path)!r}\n")
    load_named(f"{tmp_path}/g.py:f", "grader")
    made = marks_in(cache_folder()) - before
    assert made
    assert not made & marks_in(users_cache)
    assert Path(os.environ["GEM_CACHE"]) == cache_folder() != users_cache


def test_the_models_of_the_users_cache_are_there(users_cache):
    here = {each.name for each in cache_folder().iterdir()}
    assert {each.name for each in users_cache.glob("*")} - {*MARKS} <= here
    with_model = (users_cache / models.KNOWN["smollm2"].file).is_file()
    assert models.find("smollm2") is not None or not with_model
