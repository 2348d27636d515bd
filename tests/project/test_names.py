import importlib
import pkgutil
import sys

import gem
from gem.errors import MissingExtra


def packages():
    yield gem
    for module in pkgutil.walk_packages(gem.__path__, "gem."):
        if module.ispkg:
            try:
                package = importlib.import_module(module.name)
            except MissingExtra:  # that of training, where torch is absent
                continue
            yield package


def test_no_package_has_a_name_that_hides_one_of_its_modules():
    """``import gem.rollout.play`` must give the module of that name, not a function that stands before it."""
    hidden = []
    for package in packages():
        for module in pkgutil.iter_modules(package.__path__):
            full = f"{package.__name__}.{module.name}"
            found = vars(package).get(module.name)
            if found is not None and found is not sys.modules.get(full):
                hidden.append(full)
    assert hidden == []
