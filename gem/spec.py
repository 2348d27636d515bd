"""What an environment is made from, as plain data: its name, keywords, wrappers and seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class WrapperRef:
    """A wrapper by name: one of the wrapper factory, or ``module:function``; its keywords are JSON values."""

    name: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskRef:
    """What makes one environment again, in this process or in another: ``gem.make(task)``.

    `spec`: the id, or ``module:Class`` of an environment that is not registered. `kwargs`: every keyword of
    its constructor, as JSON values. `wrappers`: what stands around it, the innermost first. `seed`: the
    episode; None: any. `entry_point`: ``module:name`` of what the id stood for, so that an id that another
    process does not know can be made there too. `opaque`: the arguments that cannot be written down (a
    lambda, a live tokenizer, an agent, data), by name; such a task can be played, not made again.
    """

    spec: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    wrappers: tuple[WrapperRef, ...] = ()
    seed: int | None = None
    entry_point: str | None = None
    opaque: tuple[str, ...] = ()
