"""EpisodeTrackingWrapper: add an episode's step count and return to info."""

from __future__ import annotations

from gem.core import Env, EnvWrapper, Start, Step


class EpisodeTrackingWrapper(EnvWrapper):
    """A wrapper that adds statistics of the episode to every info.

    ``step_counter`` and ``cumulative_rewards`` (undiscounted) are those of the running episode,
    ``prev_ep_step_counter`` and ``prev_ep_cumulative_rewards`` those of the previous one (None in the first).
    The step that ends an episode also has ``episode``: {return, length}.
    """

    def __init__(self, env: Env) -> None:
        """Wrap `env`."""
        super().__init__(env)
        self.step_counter = 0
        self.cumulative_rewards = 0.0
        self.prev_ep_step_counter: int | None = None
        self.prev_ep_cumulative_rewards: float | None = None

    def on_start(self, start: Start) -> Start:
        """Keep the last episode's statistics and start counting."""
        if self.step_counter:
            self.prev_ep_step_counter = self.step_counter
            self.prev_ep_cumulative_rewards = self.cumulative_rewards
        self.step_counter = 0
        self.cumulative_rewards = 0.0
        return start._replace(info={**start.info, **self._statistics()})

    def on_step(self, step: Step) -> Step:
        """Update the step count and the sum of rewards."""
        self.step_counter += 1
        self.cumulative_rewards += step.reward
        info = {**step.info, **self._statistics()}
        if step.done:
            info["episode"] = {"return": self.cumulative_rewards, "length": self.step_counter}
        return step._replace(info=info)

    def _statistics(self) -> dict[str, float | None]:
        return {
            "step_counter": self.step_counter,
            "cumulative_rewards": self.cumulative_rewards,
            "prev_ep_step_counter": self.prev_ep_step_counter,
            "prev_ep_cumulative_rewards": self.prev_ep_cumulative_rewards,
        }
