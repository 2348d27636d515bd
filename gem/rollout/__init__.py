"""Rollout: episodes from environments and agents, and the store they are kept in."""

from gem.rollout.drivers import Job, rollout, rollout_async
from gem.rollout.play import play
from gem.rollout.store import EpisodeStore

__all__ = ["EpisodeStore", "Job", "play", "rollout", "rollout_async"]
