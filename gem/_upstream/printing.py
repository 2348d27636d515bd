"""Upstream's functions to print an episode; ``gem-gym play`` and `gem.rollout` offer more.

These functions write to standard output.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from gem.content import printable
from gem.core import Env
from gem.vector.vector_env import VectorEnv

__all__ = [
    "run_and_print_episode",
    "run_and_print_episode_async",
    "run_and_print_episode_with_random_selection",
    "run_and_print_episode_with_selective_step",
]

MOST_STEPS = 1_000_000_000


def run_and_print_episode(
    env: Env | VectorEnv, policy: Callable[[Any], Any], ignore_done: bool = False, max_steps: int = MOST_STEPS
) -> None:
    """Play one episode with a function from observation to action, and print it.

    With `ignore_done` another episode begins when one ends, until `max_steps` are taken. A vector of
    environments is played as by `run_and_print_episode_async`.
    """
    if isinstance(env, VectorEnv):
        run_and_print_episode_async(env, policy, ignore_done, max_steps)
        return
    obs, _ = env.reset()
    _say("", "observation", obs)
    for turn in range(max_steps):
        action = policy(obs)
        step = env.step(action)
        obs = step.obs
        _say(f"step {turn + 1} ", "action", action)
        _say("", "observation", obs)
        _say("", "reward", f"{step.reward:g}, terminated {step.terminated}, truncated {step.truncated}")
        if step.done:
            if not ignore_done:
                return
            obs, _ = env.reset()


def run_and_print_episode_async(
    env: VectorEnv,
    policy: Callable[[Any], list[str]],
    ignore_done: bool = False,
    max_steps: int = MOST_STEPS,
) -> None:
    """Play a vector of environments with a function from observations to actions, and print it.

    It stops when each has ended an episode; with `ignore_done`, only after `max_steps`.
    """
    _play(env, policy, ignore_done, max_steps, lambda turn: range(len(env)))


def run_and_print_episode_with_selective_step(
    env: VectorEnv,
    policy: Callable[[Any], list[str]],
    ignore_done: bool = False,
    max_steps: int = MOST_STEPS,
) -> None:
    """Like `run_and_print_episode_async`, but step every second environment at a time, by index."""
    _play(
        env, policy, ignore_done, max_steps, lambda turn: range(turn % 2 if len(env) > 1 else 0, len(env), 2)
    )


run_and_print_episode_with_random_selection = run_and_print_episode_with_selective_step
"""The older name of `run_and_print_episode_with_selective_step`."""


def _play(
    env: VectorEnv,
    policy: Callable[[Any], list[str]],
    ignore_done: bool,
    max_steps: int,
    chosen: Callable[[int], range],
) -> None:
    obs, _ = env.reset()
    ended: set[int] = set()
    for turn in range(max_steps):
        indices = chosen(turn)
        actions = policy(obs)
        step = env.step({i: actions[i] for i in indices})
        for i, text, reward, terminated, truncated in zip(indices, *step[:4], strict=True):
            obs[i] = text
            _say(f"step {turn + 1}, environment {i} ", "action", actions[i])
            _say("", "observation", text)
            _say("", "reward", f"{reward:g}, terminated {bool(terminated)}, truncated {bool(truncated)}")
            if terminated or truncated:
                ended.add(i)
        if len(ended) == len(env) and not ignore_done:
            return


def _say(when: str, what: str, text: Any) -> None:
    sys.stdout.write(f"{when}{what}: {printable(text)}\n")
