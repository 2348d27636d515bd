import importlib
import sys

import pytest

from gem.errors import MissingExtra


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("parquet", "pyarrow", "data"),
        ("inspect_logs", "inspect_ai", "inspect"),
        ("inspect_tasks", "inspect_ai", "inspect"),
        ("trl", "trl", "trl"),
        ("trl_turns", "trl", "trl"),
        ("verl", "verl", "verl"),
        ("openrlhf", "openrlhf", "openrlhf"),
        ("skyrl", "skyrl", "skyrl"),
        ("tinker", "tinker", "tinker"),
        ("verifiers", "verifiers", "verifiers"),
        ("nemo_gym", "nemo_gym", "nemo"),
    ],
)
def test_an_adapter_without_its_package_says_how_to_get_it(monkeypatch, name, package, extra):
    for module in [*sys.modules]:
        if module.startswith((f"gem.adapters.{name}", f"{package}.", "gem.adapters.inspect")):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"pip install .*\[{extra}\]"):
        importlib.import_module(f"gem.adapters.{name}")


@pytest.mark.parametrize(
    ("name", "line"), [("roll", "alibaba/ROLL"), ("oat", "--ignore-requires-python oat-llm")]
)
def test_an_adapter_of_what_no_extra_brings_says_so_too(monkeypatch, name, line):
    monkeypatch.delitem(sys.modules, f"gem.adapters.{name}", raising=False)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=f"pip install .*{line}"):
        importlib.import_module(f"gem.adapters.{name}")
