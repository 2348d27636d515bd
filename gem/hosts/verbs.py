"""Verbs: the calls that a host can make on an environment. The table is fixed; messages have its names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from gem import registry
from gem.content import check_obs
from gem.core import Env, Start, Step, check_flag, check_reward, check_start, check_step, copy_info
from gem.errors import NoVerdict, WorkerDied, text_of_error
from gem.record import Failure
from gem.specs import TaskRef

METHODS = (
    "seed_actor",
    "sample_random_action",
    "solve",
    "random_action",
    "expert_action",
    "get_state",
    "set_state",
)
"""Verbs that are a method's plain call; `random_action` and `expert_action` are for several seats."""


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


def reset(env: Env, *args: Any, **kwargs: Any) -> Any:
    """Reset `env` and return its start, with one seat or by seat, as `step` returns a step."""
    start: Any = env.reset(*args, **kwargs)
    obs, info = start
    if type(obs) is not dict:
        obs, info = check_start(start)
        return Start(obs, copy_info(info))
    if isinstance(info, Mapping) and obs.keys() <= info.keys():
        return _by_seat(start, check_obs, copy_info)
    return start  # of neither form: whoever plays it says what is accepted


def step(env: Env, action: Any) -> Any:
    """Step `env` and return its step, of one seat or by seat.

    Its values are checked where the environment runs, as no message between processes holds all that it may
    return. Infos are copies, as an environment may change those that it returned.

    Raises:
        ContractBroken, BadArgument: for a value of another type. Others: what the environment raised.
    """
    return _copy_step(env.step(action))


def _copy_step(step: Any) -> Any:
    if type(step[0]) is dict and all(isinstance(column, Mapping) for column in step):
        return _by_seat(step, _check_shown, check_reward, check_flag, check_flag, copy_info)
    obs, reward, terminated, truncated, info = check_step(step)
    return Step(obs, reward, terminated, truncated, copy_info(info))


def _by_seat(result: Any, *checks: Callable[[Any], Any]) -> Any:
    """Return a MultiStart or a MultiStep with the values that each column's check returned."""
    columns = zip(checks, result, strict=True)
    return result._make({seat: check(value) for seat, value in column.items()} for check, column in columns)


def _check_shown(obs: Any) -> Any:
    """Return the observation of a seat, or None where a seat that ended was shown none."""
    return None if obs is None else check_obs(obs)


def advance(env: Env, action: str, next_seed: int | None) -> tuple[Any, ...]:
    """Step `env`; if that ends its episode and `next_seed` is given, start the next one; see `step`.

    If the next episode breaks in its reset, the end of this one remains valid: obs is None, and the failure
    is ``info["error"]``.
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
        return _copy_step(run.play(env))
    return _copy_step(env.run_program(run))


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
        "reset": reset,
        "step": step,
        **{name: _method(name) for name in METHODS},
        "advance": advance,
        "describe": describe,
        "introduce": introduce,
        "fork_state": fork_state,
        "run_program": run_program,
    }
)
"""The function of each verb, called with the environment and the command's arguments."""
