"""Transforms: a function between the agent and the environment."""

from __future__ import annotations

from collections.abc import Callable

from gem.core import Env, EnvWrapper, Step


class TransformAction(EnvWrapper):
    r"""Give the environment ``fn(action)``.

    ``sample_random_action()`` and ``solve()`` speak the environment's own language, so `fn` should leave an
    action alone that is already in it.

    >>> import gem
    >>> env = TransformAction(gem.make("game:GuessTheNumber-v0-easy"), lambda text: f"\\boxed{{{text}}}")
    """

    def __init__(self, env: Env, fn: Callable[[str], str]) -> None:
        """Wrap `env`."""
        super().__init__(env)
        self.fn = fn

    def on_action(self, action: str) -> str:
        """Apply the function."""
        return self.fn(action)


class TransformReward(EnvWrapper):
    """Return ``fn(reward)`` in place of each reward."""

    def __init__(self, env: Env, fn: Callable[[float], float]) -> None:
        """Wrap `env`."""
        super().__init__(env)
        self.fn = fn

    def on_step(self, step: Step) -> Step:
        """Apply the function."""
        return step._replace(reward=self.fn(step.reward))


class SignedReward(EnvWrapper):
    """Make an outcome of 0 or 1 one of -1 or 1: on an episode's last step, ``2 r - 1`` in place of r."""

    def on_step(self, step: Step) -> Step:
        """Change the last reward."""
        return step._replace(reward=2 * step.reward - 1) if step.done else step
