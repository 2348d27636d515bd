"""Evals: agents measured on environments."""

from gem.evals.evaluator import EnvResult, SeatResult, evaluate, required, success_rate, summarise
from gem.evals.fairness import unfair
from gem.evals.instances import Instances, find_instances

__all__ = [
    "EnvResult",
    "Instances",
    "SeatResult",
    "evaluate",
    "find_instances",
    "required",
    "success_rate",
    "summarise",
    "unfair",
]
