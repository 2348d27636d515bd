"""Environments with several seats, and the wrapper that turns one seat into a single-agent environment."""

from gem.envs.seats.seat_env import SeatEnv
from gem.envs.seats.seated_env import MultiStart, MultiStep, SeatedEnv, SeatSelector
from gem.envs.seats.seated_game import SeatedGame

__all__ = ["MultiStart", "MultiStep", "SeatEnv", "SeatSelector", "SeatedEnv", "SeatedGame"]
