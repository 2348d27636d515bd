"""Checks of a run's settings: the range of each, and combinations that are not allowed."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from gem.errors import BadArgument, did_you_mean
from gem.estimators.algorithms import Algorithm, check_algorithm_name, is_known
from gem.naming import FORMS, is_path
from gem.train.config.run_settings import RunSettings
from gem.wrappers.wrapper_factory import tool_wrappers

AT_LEAST_ONE = (
    *("batch", "group", "epochs", "minibatch", "warmup_batch", "eval_episodes", "save_every"),
    *("width", "layers", "heads", "max_tokens", "max_turns", "train_layers", "pack", "pass_tokens"),
    *("held_out", "advance_over", "pool_every"),
)
NOT_NEGATIVE = (
    *("warmup_steps", "warmup_lr", "entropy", "kl", "clip", "clip_high", "lr", "lr_ramp", "seed", "threads"),
    *("importance_cap", "value_clip", "value_weight", "lora_rank", "loss_constant", "watch"),
    *("eval_every", "patience", "pool", "episodes", "warmup_check", "warmup_most"),
    *("weight_decay", "critic_lr", "lora_alpha"),
)

ONLY_WITH: tuple[tuple[tuple[str, ...], str, Callable[[RunSettings], bool]], ...] = (
    (("held_out", "eval_temperature"), "held-out evaluations (eval_every)", lambda to: to.eval_every > 0),
    (("pool_every", "pool_by"), "a pool of opponents (pool)", lambda to: to.pool > 0),
    (("keep", "advance_at", "advance_over"), "a curriculum", lambda to: len(to.curriculum) > 0),
    (("kl_reward",), "a divergence (kl)", lambda to: to.kl > 0),
    (("normalise_by",), "several environments", lambda to: len(to.environments or to.curriculum) > 0),
    (("lora_alpha", "lora_targets"), "LoRA adapters (lora_rank)", lambda to: to.lora_rank > 0),
    (("critic_lr",), "a learning rate above 0 (lr), whose schedule it follows", lambda to: to.lr > 0),
)
"""Settings that have an effect only with another one: their names, what they need, and its test. Settings of
an algorithm are not here: a file may hold those of several."""

OF_LANGUAGE_MODELS = (
    *(
        "train_layers",
        "lora_rank",
        "lora_alpha",
        "lora_targets",
        "checkpointing",
        "answer_prefix",
        "stop",
        "sampler",
        "dtype",
        "pack",
    ),
)
"""Settings that the tiny model does not have."""

LOGGERS = ("tensorboard", "wandb")
"""Names that `--log` accepts; see `gem.train.report.loggers`."""


def check(config: RunSettings) -> None:
    """Check that the settings can be trained.

    Raises:
        BadArgument: for a setting out of its range, or two that contradict each other.
    """
    _check_ranges(config)
    _check_evaluations(config)
    _check_warmup(config)
    tool_wrappers(config.tools)
    if len(set(config.tools)) < len(config.tools):
        raise BadArgument(f"tools are {' '.join(config.tools)}; give each name once.")
    _check_loggers(config)
    _check_own(config)
    _check_environments(config)
    if config.opponents:
        _check_opponents(config)
    check_algorithm_name(config.algorithm)
    if is_known(config.algorithm):  # a file is read only when a run begins
        check_algorithm(config)
    _check_model(config)
    if config.sampler:
        _check_sampler(config)
    _check_effects(config)


def _check_ranges(config: RunSettings) -> None:
    def refuse(name: str, accepted: str) -> None:
        raise BadArgument(f"{name} is {getattr(config, name)!r}; accepted: {accepted}.")

    # `not x >= 0` refuses NaN too.
    for name in AT_LEAST_ONE:
        value = getattr(config, name)
        if value is not None and not value >= 1:
            refuse(name, "1 or more")
    for name in NOT_NEGATIVE:
        if not 0 <= getattr(config, name) < math.inf:
            refuse(name, "0 or more")
    for name in ("temperature", "max_grad_norm", "loss_constant"):
        if not getattr(config, name) > 0:
            refuse(name, "above 0")
    if config.temperature == math.inf:
        refuse("temperature", "above 0, and finite")
    for name in ("beta1", "beta2"):
        if not 0 <= getattr(config, name) < 1:
            refuse(name, "0 or more, and less than 1")
    for name in ("gamma", "lr_end", "lam"):
        if not 0 <= getattr(config, name) <= 1:
            refuse(name, "0 to 1")
    kind: Any = type(config)  # a frozen dataclass's type, which mypy takes for one without a hash
    for name, accepted in _choices(kind).items():
        if getattr(config, name) not in accepted:
            refuse(name, ", ".join(map(str, accepted)))


def _check_effects(config: RunSettings) -> None:
    """Refuse a setting that would have no effect."""
    for names, needed, present in ONLY_WITH:
        for name in () if present(config) else names:
            if _is_set(config, name):
                raise BadArgument(
                    f"{name} is {getattr(config, name)!r}; it has an effect only with {needed}. Leave it out."
                )


@functools.cache
def _hints(of: Any) -> dict[str, Any]:
    """Return the types of the settings."""
    return get_type_hints(of)


@functools.cache
def _choices(of: Any) -> dict[str, tuple[Any, ...]]:
    """Return the accepted values of the settings that have only a few."""
    hints = _hints(of).items()
    return {name: get_args(hint) for name, hint in hints if get_origin(hint) is Literal}


def _check_evaluations(config: RunSettings) -> None:
    if config.eval_temperature is not None and not 0 <= config.eval_temperature < math.inf:
        raise BadArgument(f"eval_temperature is {config.eval_temperature}; accepted: 0 (greedy) or more.")
    if config.target is not None and not math.isfinite(config.target):
        raise BadArgument(f"target is {config.target}; accepted: a number, or none.")
    if (config.patience or config.target is not None) and not config.eval_every:
        name = "patience" if config.patience else "target"
        raise BadArgument(f"{name} needs held-out evaluations; set how often they run (eval_every).")


def _check_warmup(config: RunSettings) -> None:
    if not 0 <= config.demos_held_out < 1:
        raise BadArgument(f"demos_held_out is {config.demos_held_out}; accepted: 0 to below 1.")
    has_demos = config.demos is not None or config.warmup_by == "solver"
    if config.demos is None and config.demos_held_out:
        raise BadArgument(
            f"demos_held_out is {config.demos_held_out}, which needs demonstrations; name a store (demos)."
        )
    if config.demos is not None and config.warmup_by != "random":
        raise BadArgument(f"warmup_by is {config.warmup_by!r}, and demos name a store; leave one out.")
    if not has_demos and not config.episodes:
        raise BadArgument(
            "episodes is 0, which needs demonstrations; name a store (demos), or set warmup_by to solver."
        )
    if has_demos and config.warmup_check:
        raise BadArgument(
            "warmup_check tests the format alone, and demonstrations teach more; leave one out."
        )
    if config.warmup_check and not config.warmup_steps:
        raise BadArgument("warmup_check tests the warm-up, and there is none; set its length (warmup_steps).")
    if config.warmup_most and (not config.warmup_check or config.warmup_most < config.warmup_steps):
        raise BadArgument(
            f"warmup_most is {config.warmup_most}; accepted: only with warmup_check, and at least "
            f"warmup_steps ({config.warmup_steps})."
        )
    if has_demos and not config.warmup_steps:
        raise BadArgument("demonstrations are cloned in the warm-up; set its length (warmup_steps).")


def _check_loggers(config: RunSettings) -> None:
    for name in config.log:
        if name not in LOGGERS and ":" not in name:
            raise BadArgument(
                f"log is {name!r}; accepted: {', '.join(LOGGERS)}, module:Class, or file.py:Class."
                f"{did_you_mean(name, LOGGERS)}"
            )


def _check_own(config: RunSettings) -> None:
    for setting, names in (("reward", (config.reward,) * bool(config.reward)), ("callback", config.callback)):
        for name in names:
            if not isinstance(name, str) or not (":" in name or is_path(name)):
                raise BadArgument(f"{setting} is {name!r}; accepted: {FORMS}.")
    if len(set(config.callback)) < len(config.callback):
        raise BadArgument(f"callback is {' '.join(config.callback)}; give each name once.")


def _check_environments(config: RunSettings) -> None:
    if config.environments and config.curriculum:
        raise BadArgument("environments are played together, a curriculum in sequence; give one of them.")
    several = "environments" if config.environments else "curriculum" if config.curriculum else ""
    own = type(config)
    if several and (config.env != own.env or config.env_kwargs):
        name = "env" if config.env != own.env else "env_kwargs"
        raise BadArgument(f"{name} and {several} both say what is played; leave one of them out.")
    if config.opponents and config.eval_every:
        raise BadArgument(
            "held-out evaluations need a policy that plays every seat; leave eval_every or the opponents out."
        )
    if len(config.curriculum) == 1:
        raise BadArgument("a curriculum has one stage; accepted: two or more.")
    if config.mix_by == "tokens" and len(config.environments) < 2:
        raise BadArgument("mix_by tokens needs two environments or more; leave it out.")
    for name in ("advance_at", "keep"):
        if not 0 <= getattr(config, name) < 1:
            raise BadArgument(f"{name} is {getattr(config, name)}; accepted: 0 or more, and less than 1.")


def _check_opponents(config: RunSettings) -> None:
    if len(set(config.opponent)) < len(config.opponent):
        raise BadArgument(f"opponent is {' '.join(config.opponent)}; give each name once.")
    if config.ray:
        raise BadArgument("opponents cannot be sampled on a Ray cluster; leave ray or the opponents out.")
    if config.pool and config.sampler:
        raise BadArgument("a sampler's server holds one copy of the policy; leave pool or sampler out.")


def check_algorithm(config: RunSettings) -> None:
    """Check that the algorithm can train with the other settings; one of another file is loaded for it.

    Raises:
        BadArgument: where it cannot, or there is none.
    """
    algorithm = config.algorithm_value
    if config.opponents and algorithm.seats == "one":
        raise BadArgument(f"{config.algorithm} needs games of one seat; choose another, or no opponents.")
    if config.importance_cap and algorithm.loss is not None:
        raise BadArgument(
            f"importance_cap is {config.importance_cap}; {config.algorithm} has a loss of its own, which has "
            "no such weights. Leave it out."
        )
    if config.normalise == "response" and algorithm.loss is not None:
        raise BadArgument(
            f"normalise is 'response'; {config.algorithm} has a loss of its own, which may divide by lengths "
            "itself. Choose another."
        )
    if config.grouped and config.batch % config.group:
        raise BadArgument(
            f"batch is {config.batch}; {config.algorithm} takes a multiple of group ({config.group})."
        )
    if config.grouped and config.group < 2:
        raise BadArgument(
            f"group is {config.group}; {config.algorithm} compares at least 2 samples of a task."
        )
    if config.kl_reward and algorithm.group == "turn":
        raise BadArgument(
            f"{config.algorithm} cannot subtract the divergence from rewards; leave --kl-reward out."
        )


def check_defaults(algorithm: Algorithm, of: type[RunSettings]) -> None:
    """Check that an algorithm's defaults are settings, and have their types.

    Raises:
        BadArgument: for one that is not, or has another.
    """
    kind: Any = of  # a frozen dataclass's type, which mypy takes for one without a hash
    hints = _hints(kind)
    known = [f.name for f in fields(of) if f.name not in ("algorithm", "model", "out")]
    for name, value in algorithm.defaults.items():
        if name not in known:
            raise BadArgument(
                f"algorithm {algorithm.name}: defaults has {name!r}, which is not a setting of a run."
                f"{did_you_mean(str(name), known)}"
            )
        try:
            msgspec.convert(value, hints[name])
        except (msgspec.ValidationError, TypeError) as error:
            raise BadArgument(
                f"algorithm {algorithm.name}: defaults has {name} = {value!r:.80}; {error}."
            ) from error


def _check_model(config: RunSettings) -> None:
    if config.model == "tiny":
        if config.device != "cpu":
            raise BadArgument(f"device is {config.device!r}; the tiny model runs on cpu only.")
        for name in OF_LANGUAGE_MODELS:
            if _is_set(config, name):
                raise BadArgument(f"{name} is a setting of language models; leave it out for the tiny model.")
    elif (Path(config.model) / "checkpoint.pt").is_file():
        raise BadArgument(
            f"model is {config.model!r}, the folder of a run; --from {config.model} starts from its weights."
        )
    elif config.lora_rank and config.train_layers is not None:
        raise BadArgument("lora_rank and train_layers both say what is trained; give one of them.")


def _check_sampler(config: RunSettings) -> None:
    if not re.fullmatch(r"(vllm|sglang):https?://.+", config.sampler):
        raise BadArgument(
            f"sampler is {config.sampler!r}; accepted: vllm:URL or sglang:URL, as vllm:http://127.0.0.1:8000."
        )
    if config.ray:
        raise BadArgument("ray and sampler both say where answers are sampled; leave one of them out.")


def _is_set(config: RunSettings, name: str) -> bool:
    """Return whether a setting differs from its default."""
    return bool(getattr(config, name) != getattr(type(config), name))
