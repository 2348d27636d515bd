"""Rollout: play episodes of environments with agents, and store them."""

from gem.rollout.conversation import Conversation, drive, drive_async
from gem.rollout.episode import Branch, play
from gem.rollout.forks import TurnValue, branches, tree_search, turn_values
from gem.rollout.jobs import Job
from gem.rollout.options import RunOptions
from gem.rollout.ray import RayRunner
from gem.rollout.runner import Runner, rollout, rollout_async
from gem.rollout.store import EpisodeStore

__all__ = [
    "Branch",
    "Conversation",
    "EpisodeStore",
    "Job",
    "RayRunner",
    "RunOptions",
    "Runner",
    "TurnValue",
    "branches",
    "drive",
    "drive_async",
    "play",
    "rollout",
    "rollout_async",
    "tree_search",
    "turn_values",
]
