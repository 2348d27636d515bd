"""Registry entries of mathematics: generated problems, and data sets."""

from __future__ import annotations

from typing import Any

from gem.specs import EnvSpec


def _make_spec(name: str, entry_point: str, **kwargs: Any) -> EnvSpec:
    return EnvSpec(f"math:{name}", f"gem.envs.math.env:{entry_point}", kwargs, max_turns=1, solver="oracle")


def _data(env_id: str, dataset: str, **kwargs: Any) -> EnvSpec:
    kwargs = {"dataset_name": dataset, **kwargs}
    claims: dict[str, Any] = {"extra": "data", "data": dataset, "max_turns": 1, "solver": "oracle"}
    return EnvSpec(env_id, "gem.envs.math.env:MathEnv", kwargs, **claims)


SPECS = (
    _make_spec("Arithmetic-v0-easy", "ArithmeticEnv", operands=2, digits=(1, 2), operations=("+", "-")),
    _make_spec(
        "Arithmetic-v0-hard", "ArithmeticEnv", operands=(4, 6), digits=(1, 3), operations=("+", "-", "*")
    ),
    _make_spec(
        "Arithmetic-v0-random",
        "ArithmeticEnv",
        operands=(2, 6),
        digits=(1, 3),
        operations=("+", "-", "*", "/"),
    ),
    _make_spec("WordProblems-v0-easy", "WordProblemsEnv", steps=(1, 2)),
    _make_spec("WordProblems-v0-hard", "WordProblemsEnv", steps=(4, 6), largest=60, distractors=(1, 2)),
    _make_spec("WordProblems-v0-random", "WordProblemsEnv", steps=(1, 8), largest=60, distractors=(0, 2)),
    _data("math:ASDiv2K", "axon-rl/ASDIV-2k"),
    _data("math:GSM8K", "axon-rl/GSM-8k"),
    _data("math:Math12K", "axon-rl/MATH-12k"),
    _data("math:Math8K-3to5", "axon-rl/MATH-lvl3to5-8k"),
    _data("math:Orz57K", "axon-rl/ORZ-57k"),
    _data("math:DeepScaleR40K", "axon-rl/DeepScaleR-40K"),
    _data("eval:MATH500", "axon-rl/math-eval", split="math"),
    _data("eval:AMC", "axon-rl/math-eval", split="amc"),
    _data("eval:OlympiadBench", "axon-rl/math-eval", split="olympiad_bench"),
    _data("eval:Minerva", "axon-rl/math-eval", split="minerva"),
    _data("eval:AIME24", "axon-rl/math-eval", split="aime24"),
)
