"""The names of environments in figures: the same in an evaluation, a comparison and the viewer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gem import registry
from gem.envs.data.named import title_of
from gem.errors import GemError
from gem.files import read_json
from gem.rollout import EpisodeStore
from gem.specs import TaskRef
from gem.wrappers.wrapper_factory import TOOLS

LONGEST = 60
"""The most characters of a keyword's value in a name that no evaluation gave."""


def label_of(name: str, kwargs: Mapping[str, str], around: Sequence[str]) -> str:
    """Return a name in figures: an id or a title, with keywords as they are written, tools and wrappers."""
    given = ", ".join(f"{keyword}={value}" for keyword, value in kwargs.items())
    return "+".join((name + f"({given})" * bool(given), *around))


def name_environments(store: EpisodeStore, known: dict[str, TaskRef] | None = None) -> dict[str, str]:
    """Return the name of each environment of a store, by its key (`gem.rollout.store.env_key`).

    It is the label in the evaluation that wrote the store. Elsewhere it is the id, or the title of the data,
    with the keywords in which environments of the store differ, tools and wrappers.

    Args:
        store: the episodes.
        known: a task of each environment; those that are missing are read from the store and added.
    """
    known = {} if known is None else known
    for key in {tally.env for tally in store.tally()} - {*known}:
        with suppress(GemError, LookupError):
            known[key] = store.task(store.page(env=key, count=1)[0][0].number)
    labels = _read_labels(store.path)
    alike: dict[str, list[str]] = {}
    for key, task in sorted(known.items()):
        alike.setdefault(_name(task, {}), []).append(key)
    names: dict[str, str] = {}
    for keys in alike.values():
        usual = write_keywords(_own_keywords(known[keys[0]].spec))
        # The task of an episode that never began lacks the usual ones.
        given = {key: {**usual, **write_keywords(known[key].kwargs)} for key in keys}
        taken: dict[str, dict[str, str]] = {}
        for key, own in given.items():
            texts = {
                name: text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
                for name, text in own.items()
                if text != usual.get(name) and any(each.get(name) != text for each in given.values())
            }
            name = _name(known[key], texts)
            if taken.setdefault(name, own) != own:  # alike in the characters that are shown
                name = f"{name} #{key[:6]}"
            names[key] = labels.get(key, name)
    return names


def name_tasks(spec: str, kwargs: Mapping[str, Any]) -> str:
    """Return a name that environments share if their tasks of one seed are the same ones, or variants.

    It is the id, or the one that the spec names as its `source`: other keywords, tools and wrappers do not
    make another task of a seed. Of data it is the data itself, whatever the prompt and the grader.
    """
    if not spec.startswith("data:"):
        known = registry.ENV_REGISTRY.get(spec)
        return spec if known is None else known.source or spec
    return f"{kwargs.get('data')!r} {kwargs.get('split')!r}"


def _name(task: TaskRef, kwargs: Mapping[str, str]) -> str:
    title = title_of(task.spec, task.kwargs) if task.spec.startswith("data:") else task.spec
    return label_of(title, kwargs, [_name_tool(wrapper.name) for wrapper in task.wrappers])


def _name_tool(wrapper: str) -> str:
    """Return a wrapper's name as an evaluation shows it: a tool's without its ending."""
    tool = wrapper.removesuffix("_tool")
    return tool if tool in TOOLS else wrapper


def _own_keywords(spec: str) -> Mapping[str, Any]:
    """Return the keywords that an id has by itself; none where it is not known here."""
    with suppress(GemError):
        return registry.spec(spec).kwargs
    return {}


def write_keywords(kwargs: Mapping[str, Any]) -> dict[str, str]:
    """Return keywords as they are written in a name; a digest of files is in none."""
    return {name: repr(value) for name, value in kwargs.items() if name != "digest"}


def _read_labels(store: Path) -> dict[str, str]:
    """Return the labels of an evaluation's environments by their keys."""
    labels: dict[str, str] = {}
    for file in (store.parent.parent / "result.json", store.parent / "result.json"):
        with suppress(OSError, ValueError, RecursionError, AttributeError, TypeError, LookupError):
            table = read_json(file)["labels"]
            labels |= {key: label for key, label in table.items() if isinstance(label, str)}
    return labels
