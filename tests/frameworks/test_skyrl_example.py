"""The example of SkyRL finds what it imports, and gives gem's generator to the experiment."""

import runpy

import pytest

pytest.importorskip("skyrl")

from launched import EXAMPLES

from gem.adapters.skyrl import GemGenerator


def test_the_example_finds_what_it_imports():
    example = runpy.run_path(str(EXAMPLES / "researcher/skyrl_guess_the_number.py"))
    assert example["GemGenerator"] is GemGenerator
    assert callable(example["Experiment"].get_generator)
