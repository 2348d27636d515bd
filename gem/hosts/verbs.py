"""Verbs: the calls that a host can make on an environment. The table is fixed; messages have its names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from gem import registry
from gem.core import Env, check_start, check_step, copy_info
from gem.errors import NoVerdict, WorkerDied, text_of_error
from gem.record import Failure
from gem.specs import TaskRef

METHODS = (
    "reset",
    "step",
    "seed_actor",
    "sample_random_action",
    "solve",
    "random_action",
    "expert_action",
    "get_state",
    "set_state",
)
"""Verbs that are methods of the environment; `random_action` and `expert_action` are for several seats."""


class Description(NamedTuple):
    """The facts about an environment in another process that a caller needs.

    `assembles_history`: a wrapper already shows past turns, so the observation alone is the prompt.
    """

    task: TaskRef
    assembles_history: bool


def describe(env: Env) -> Description:
    """Return the task that makes `env` again, and whether a wrapper assembles its history."""
    return Description(registry.task_of(env), getattr(env, "assembles_history", False))


def introduce(env: Env) -> tuple[str | None, int | None]:
    """Return the id and the seed of `env`."""
    return env.env_id, env.seed


def advance(env: Env, action: str, next_seed: int | None) -> tuple[Any, ...]:
    """Step `env`; if that ends its episode and `next_seed` is given, start the next one.

    Infos are copies, as an environment may change those that it returned.

    If the next episode breaks in its reset, the end of this one remains valid: obs is None, and the failure
    is ``info["error"]``.

    Raises:
        ContractBroken, BadArgument: for a value of another type. Others: what the environment raised.
    """
    obs, reward, terminated, truncated, info = check_step(env.step(action))
    info = copy_info(info)
    if next_seed is None or not (terminated or truncated):
        return obs, reward, terminated, truncated, info
    final = {"final_obs": obs, "final_info": info}
    try:
        obs, info = check_start(env.reset(seed=next_seed))
        info = copy_info(info)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # exit() too
        failure = describe_failure(error if isinstance(error, Exception) else wrap_exception(error))
        return None, reward, terminated, truncated, {**final, "error": failure}
    return obs, reward, terminated, truncated, {**info, **final}


def fork_state(env: Env, seed: int) -> tuple[dict[str, Any], int | None]:
    """Return the state and the seed of ``env.fork(seed)``, for another environment that is made the same way.

    Raises:
        CannotFork: where the state is outside the instance.
    """
    with env.fork(seed) as twin:
        return twin.get_state(), twin.seed


def run_program(env: Env, run: Any) -> Any:
    """Let a program (a `gem.sandbox.programs.Run`) play an episode in this process; return the last step.

    It works in the environment's workspace; where there is none, `run` plays the environment.
    """
    inside = type(getattr(env, "unwrapped", env))
    if getattr(inside, "run_program", Env.run_program) is Env.run_program:
        return run.play(env)
    return env.run_program(run)


def describe_failure(error: Exception) -> dict[str, str]:
    """Return the failure of an environment, as `info["error"]` has it."""
    failure = failure_of(error)
    return {"boundary": failure.boundary, "type": failure.type, "message": failure.message}


def failure_of(error: Exception) -> Failure:
    """Return the record of `error`: boundary ``host`` if a worker died or hung, else ``env``."""
    boundary = "host" if isinstance(error, WorkerDied) else "env"
    return Failure.from_error(boundary, error)


def wrap_exception(error: BaseException) -> NoVerdict:
    """Build the error for an environment that raised an exception such as SystemExit or CancelledError."""
    if isinstance(error, SystemExit):
        return NoVerdict(f"the environment called exit({error.code!r}).")
    return NoVerdict(f"the environment raised {type(error).__name__}: {text_of_error(error)}")


def _method(name: str) -> Callable[..., Any]:
    def call(env: Env, *args: Any, **kwargs: Any) -> Any:
        return getattr(env, name)(*args, **kwargs)

    return call


VERBS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        **{name: _method(name) for name in METHODS},
        "advance": advance,
        "describe": describe,
        "introduce": introduce,
        "fork_state": fork_state,
        "run_program": run_program,
    }
)
"""The function of each verb, called with the environment and the command's arguments."""
