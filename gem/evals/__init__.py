"""Evaluation: how good an agent is on environments, with intervals and coverage."""

from gem.evals.evaluate import Result, evaluate

__all__ = ["Result", "evaluate"]
