"""Evaluation: how good an agent is on environments, with intervals and coverage."""

from gem.evals.evaluate import Result, SeatResult, evaluate

__all__ = ["Result", "SeatResult", "evaluate"]
