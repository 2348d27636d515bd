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
    ],
)
def test_an_adapter_without_its_package_says_how_to_get_it(monkeypatch, name, package, extra):
    for module in [*sys.modules]:
        if module.startswith((f"gem.adapters.{name}", f"{package}.", "gem.adapters.inspect")):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'gem-gym\[{extra}\]'"):
        importlib.import_module(f"gem.adapters.{name}")
