"""Evals: measure and compare agents on environments."""

from gem.evals.comparison import Comparison, Paired, compare
from gem.evals.evaluator import EnvResult, SeatResult, evaluate, required, success_rate, summarise
from gem.evals.fairness import unfair
from gem.evals.instances import Instances, find_instances
from gem.evals.outcomes import Outcome, RunOutcomes, read_run
from gem.evals.stopping import Stopping

__all__ = [
    "Comparison",
    "EnvResult",
    "Instances",
    "Outcome",
    "Paired",
    "RunOutcomes",
    "SeatResult",
    "Stopping",
    "compare",
    "evaluate",
    "find_instances",
    "read_run",
    "required",
    "success_rate",
    "summarise",
    "unfair",
]
