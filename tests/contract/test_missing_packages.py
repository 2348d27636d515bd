"""With the base dependencies alone an environment that needs an extra says so when it is made, not later.

A run makes its environments before it plays; what the first reset would tell costs each episode its verdict.
"""

import subprocess
import sys

import pytest

MAKE_EACH = """
import importlib.util, sys, warnings
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder

import gem, msgspec, numpy, rich, tyro
from gem.errors import MissingData, MissingExtra

class Hidden(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        spec = PathFinder.find_spec(name, path)
        if spec is not None and path is None and "site-packages" in str(spec.origin):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

def find_visible(name, package=None, find=importlib.util.find_spec):
    try:
        return find(name, package)
    except ModuleNotFoundError:
        return None

sys.meta_path.insert(0, Hidden())
importlib.util.find_spec = find_visible
warnings.simplefilter("ignore")
specs = map(gem.spec, gem.ids())
for spec in {spec.entry_point: spec for spec in specs if spec.extra and not spec.needs.sandbox}.values():
    try:
        env = gem.make(spec)
    except (MissingExtra, MissingData) as error:
        print(spec.id, type(error).__name__)
        continue
    try:
        env.reset(seed=0)
    except MissingExtra as error:
        print(spec.id, "late")
"""


@pytest.mark.system
def test_a_missing_package_is_told_when_an_environment_is_made():
    done = subprocess.run([sys.executable, "-c", MAKE_EACH], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    told = dict(line.split() for line in done.stdout.splitlines())
    assert {"MissingExtra"} <= {*told.values()} <= {"MissingExtra", "MissingData"}
    assert {env_id.partition(":")[0] for env_id in told} >= {"game", "rg", "ta", "openspiel", "miniwob"}
