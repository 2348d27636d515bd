"""Registry entries of questions about pictures: generated ones, and a data set."""

from __future__ import annotations

from typing import Any

from gem.specs import EnvSpec


def _make_spec(name: str, entry_point: str, **kwargs: Any) -> EnvSpec:
    entry_point = f"gem.envs.vision.env:{entry_point}"
    return EnvSpec(f"vision:{name}", entry_point, kwargs, "vision", max_turns=1, solver="oracle")


SPECS = (
    _make_spec("Geometry-v0-easy", "GeometryEnv", kinds=("count", "angle", "rectangle", "circle")),
    _make_spec(
        "Geometry-v0-hard", "GeometryEnv", kinds=("parallels", "right_triangle", "polygon", "notched")
    ),
    _make_spec("Geometry-v0-random", "GeometryEnv"),
    _make_spec(
        "Charts-v0-easy",
        "ChartsEnv",
        kinds=("bars", "lines"),
        questions=("value", "most", "difference"),
        labels=(3, 5),
        written=True,
    ),
    _make_spec(
        "Charts-v0-hard",
        "ChartsEnv",
        kinds=("bars", "groups", "lines"),
        questions=("total", "above", "change"),
        labels=(5, 7),
    ),
    _make_spec("Charts-v0-random", "ChartsEnv"),
    EnvSpec(
        "math:Geometry3K",
        "gem.envs.vision.env:MathVisualEnv",
        {"dataset_name": "axon-rl/geometry3k", "split": "train"},
        extra="data",
        data="axon-rl/geometry3k",
        max_turns=1,
        solver="oracle",
    ),
)
