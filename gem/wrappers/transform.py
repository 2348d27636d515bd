"""Transforms: apply a function to actions or rewards."""

from __future__ import annotations

from collections.abc import Callable

from gem.core import Env, EnvWrapper, Step
from gem.errors import check_argument


class TransformAction(EnvWrapper):
    r"""A wrapper that passes ``fn(action)`` to the environment.

    ``sample_random_action()`` and ``solve()`` return actions in the environment's own form, so `fn` should
    not change an action that already has this form. It may get an empty action: a model's, or the one that
    ends an episode which was over when it began.

    >>> import gem
    >>> env = TransformAction(gem.make("game:GuessTheNumber-v0-easy"), lambda text: f"\\boxed{{{text}}}")
    """

    def __init__(self, env: Env, fn: Callable[[str], str]) -> None:
        """Wrap `env`."""
        check_argument("fn", fn, callable(fn), "a function")
        super().__init__(env)
        self.fn = fn

    def on_action(self, action: str) -> str:
        """Apply the function."""
        return self.fn(action)


class TransformReward(EnvWrapper):
    """A wrapper that replaces each reward by ``fn(reward)``."""

    def __init__(self, env: Env, fn: Callable[[float], float]) -> None:
        """Wrap `env`."""
        check_argument("fn", fn, callable(fn), "a function")
        super().__init__(env)
        self.fn = fn

    def on_step(self, step: Step) -> Step:
        """Apply the function."""
        return step._replace(reward=self.fn(step.reward))


class SignedReward(EnvWrapper):
    """A wrapper that maps a last reward r of 0 or 1 to -1 or 1, as ``2 r - 1``."""

    def on_step(self, step: Step) -> Step:
        """Change the last reward."""
        return step._replace(reward=2 * step.reward - 1) if step.done else step
