"""What `import gem` loads, and what it offers."""

import importlib
import json
import subprocess
import sys
import typing
from graphlib import TopologicalSorter

import grimp
import pytest

import gem
from gem import registry

KERNEL = {
    *("gem", "gem.content", "gem.core", "gem.envs", "gem.envs.catalog", "gem.errors", "gem.history"),
    *("gem.envs.bridges", "gem.envs.bridges.specs", "gem.envs.data", "gem.envs.data.specs"),
    "gem.graders",
    *("gem.plugins", "gem.record", "gem.registry", "gem.seeding", "gem.specs", "gem.trust"),
    *("gem._upstream", "gem.closing"),
    "gem.agent_names",
    "gem.naming",
    "gem.source_files",
}
"""The modules of ours that `import gem` may load. All else it loads is the standard library's."""

HEAVY = {
    "asyncio",
    "multiprocessing",
    "unittest",
    "sqlite3",
    "email",
    "http",
    "urllib.request",
    "ssl",
    "logging",
}
"""Parts of the standard library that a name and a class do not need."""


def loaded_by(statement):
    report = "print(json.dumps([*set(sys.modules) - before]))"
    code = f"import json, sys; before = set(sys.modules); {statement}; {report}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def foreign(modules):
    return {name for name in modules if name.partition(".")[0] not in {"gem", *sys.stdlib_module_names}}


def test_importing_gem_loads_the_kernel_and_the_standard_library():
    loaded = loaded_by("import gem")
    assert {name for name in loaded if name.partition(".")[0] == "gem"} == KERNEL
    assert foreign(loaded) == set()
    assert loaded & HEAVY == set()


@pytest.mark.parametrize("statement", ["gem.ids()", "gem.make('game:GuessTheNumber-v0-easy').reset(seed=0)"])
def test_listing_and_playing_a_game_load_nothing_foreign(statement):
    assert foreign(loaded_by(f"import gem; {statement}")) == set()


@pytest.mark.parametrize(
    "room",
    [
        "gem.hosts",
        "gem.vector",
        "gem.wrappers",
        "gem.rollout",
        "gem.agents",
        "gem.testing",
        "gem.serve.programs",
    ],
)
def test_carrying_environments_needs_no_model(room):
    assert loaded_by(f"import {room}") & {"torch", "transformers", "datasets", "reasoning_gym"} == set()


def test_exported_names_are_sorted_there_and_all():
    assert gem.__all__ == sorted(gem.__all__)
    assert len(set(gem.__all__)) == len(gem.__all__)
    for name in gem.__all__:
        getattr(gem, name)
    modules = {name for name, value in vars(gem).items() if type(value) is type(sys)}
    offered = {name for name in vars(gem) if not name.startswith("_")} - modules
    assert offered == set(gem.__all__) - {"__version__", "make_vec"}  # which is loaded when it is used


ENTRY_POINTS = {spec.entry_point: spec.family for spec in registry.specs()}


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_every_row_of_the_catalogue_names_what_is_there(entry_point):
    family = registry.FAMILIES.get(ENTRY_POINTS[entry_point])
    if family is not None and family.package:
        pytest.importorskip(family.package)
    if family is not None and not family.is_here():
        pytest.skip(f"needs a world: gem-gym worlds --fetch {family.world}")
    module, _, name = entry_point.partition(":")
    entry = getattr(importlib.import_module(module), name)
    made = entry if isinstance(entry, type) else typing.get_type_hints(entry)["return"]
    for cls in typing.get_args(made) or (made,):
        assert issubclass(cls, gem.Env)


def test_no_module_imports_itself_in_a_circle():
    graph = grimp.build_graph("gem", exclude_type_checking_imports=True, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert imports["gem.cli.completion"] >= {"gem.cli", "gem.graders"}
    TopologicalSorter(imports).prepare()  # raises CycleError with the circle; imports in functions count
