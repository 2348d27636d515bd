"""The environments of a run: how to make each, its limits, and the instances that it is measured on."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from gem.agents.random import RandomAgent
from gem.agents.scripted import ScriptedAgent
from gem.agents.solver import SolverAgent
from gem.content import check_pictures
from gem.core import Env, EnvWrapper
from gem.envs.data.named import named_kwargs
from gem.envs.seats.seated_env import SeatedEnv
from gem.errors import BadArgument, NoSolver, NoVerdict, refuse_first
from gem.evals import Instances, find_instances
from gem.record import Agent, Ask, Limits
from gem.registry import EnvSpec, Maker, claims_of
from gem.rollout import Job, rollout
from gem.tools.tool_env_wrapper import ToolEnvWrapper
from gem.train.config import TrainConfig
from gem.train.config.checks import check_split
from gem.train.config.env_part import EnvPart
from gem.wrappers.wrapper_factory import tool_wrappers

INSTANCES = 256
"""Maximum number of instances that figures are measured on, where not all can be told apart."""


class PlayedEnv:
    """One environment of a run: its maker, its limits, and the instances that it is measured on."""

    def __init__(self, part: EnvPart, config: TrainConfig) -> None:
        """Play `part`, one of the config's; tools are the innermost wrappers.

        Raises:
            UnknownEnv: for an id, or a wrapper's name, that is not registered.
        """
        self.name, self.config = part.name, config
        wrappers = (*tool_wrappers(part.tools or ()), *(part.wrappers or ()))
        self.maker = Maker(part.id, named_kwargs(part.id, part.kwargs), wrappers)
        self.limits = Limits(
            turns=part.max_turns, turn_tokens=config.max_tokens, call_s=config.call_s or None
        )

    @property
    def spec(self) -> EnvSpec:
        """The registered spec of the environment."""
        return self.maker.spec

    @property
    def seats(self) -> tuple[str, ...]:
        """The players of the environment."""
        return self.spec.seats

    @functools.cached_property
    def has_expert(self) -> bool:
        """Whether the game has an expert that can play a single seat."""
        with self.maker() as env:
            env_class = type(env.unwrapped)
        return issubclass(env_class, SeatedEnv) and env_class.expert_action is not SeatedEnv.expert_action

    @functools.cached_property
    def has_random_actor(self) -> bool:
        """Whether the environment can play at random."""
        return self._has(RandomAgent())

    @functools.cached_property
    def has_solver(self) -> bool:
        """Whether the environment can play every seat well; asked of the environment if no spec says so."""
        return self.spec.solver != "none" or self._has(SolverAgent())

    def check_pictures(self) -> None:
        """Refuse an environment that asks with a picture, as the trained models read text alone.

        Raises:
            BadArgument: for a first question with a picture that no text describes.
        """
        refused: list[BadArgument] = []

        def look(ask: Ask) -> str:
            try:
                check_pictures(
                    (message.content for message in ask.messages), f"a model trained on {self.name}"
                )
            except BadArgument as error:
                refused.append(error)
            raise NoVerdict("the question was only looked at")

        rollout([Job(self.maker, self.config.seed)], ScriptedAgent(look), retries=0)
        if refused:
            raise refused[0]

    def _has(self, actor: Agent) -> bool:
        """Return whether the environment has this actor; one that breaks is reported where it is played."""
        (tried,) = rollout([Job(self.maker, self.config.seed)], actor, limits=Limits(turns=1))
        return tried.error is None or tried.error.type != NoSolver.__name__

    @functools.cached_property
    def assembles_history(self) -> bool:
        """Whether its observations hold the whole conversation, by a wrapper."""
        with self.maker() as env:
            return bool(getattr(env, "assembles_history", False))

    @functools.cached_property
    def instances(self) -> Instances:
        """The instances that every figure of the run is measured on."""
        return find_instances(self.maker, self.config.seed, min(INSTANCES, self.config.eval_episodes))

    @functools.cached_property
    def budget(self) -> int | None:
        """The most turns that an episode may take; a lost episode counts one more. None where unknown."""
        with self.maker() as env:
            stated = env.spec.max_turns if env.spec else None
            if stated is None and isinstance(own := getattr(env.unwrapped, "max_turns", None), int):
                stated = own  # of a class in a file, which no id describes
            inner: Env = env
            while stated is not None and isinstance(inner, EnvWrapper):
                stated += inner.extra_turns if isinstance(inner, ToolEnvWrapper) else 0
                inner = inner.env
        known = [turns for turns in (stated, self.limits.turns) if turns is not None]
        return min(known, default=None)


def played_envs(config: TrainConfig) -> list[PlayedEnv]:
    """Return the environments of a config.

    Raises:
        BadArgument: for an environment on a server that keeps tasks for testing; for opponents where no
            environment has a seat for them; for several seats with an algorithm for one.
    """
    envs = [PlayedEnv(part, config) for part in config.parts]
    for env, part in zip(envs, config.parts, strict=True):
        check_split(config, part, claims_of(env.maker).splits)  # what only its server knows
    refuse_first(
        (
            config.opponents and all(len(env.seats) < 2 for env in envs),
            f"opponents need a game of several seats, as multi:KuhnPoker-v0; {config.title} has one seat.",
        ),
        (
            config.algorithm_value.seats == "one" and any(len(env.seats) > 1 for env in envs),
            f"{config.algorithm} needs games of one seat; choose another algorithm.",
        ),
    )
    return envs


def check_solver(config: TrainConfig, name: str, has_solver: bool) -> None:
    """Refuse a warm-up on the solver's play of an environment without solver.

    Raises:
        NoSolver: with its `name`.
    """
    if config.warmup_by == "solver" and not has_solver:
        raise NoSolver(f"warmup_by is solver, and {name} has none; `gem-gym list` shows which have one.")


def check_random_actor(config: TrainConfig, envs: Sequence[PlayedEnv]) -> None:
    """Refuse a warm-up on random play that was asked for, where no environment can play at random.

    The warm-up that a config has by default is left out instead.

    Raises:
        NoSolver: with the names of the environments.
    """
    of_model = config.fitting(model=config.model).get("warmup_steps", type(config).warmup_steps)
    usual = 0 if config.start_from else of_model
    asked = config.warmup_steps != usual or config.warmup_check
    cloned = config.warmup_steps and config.demos is None and config.warmup_by == "random"
    if cloned and asked and not any(env.has_random_actor for env in envs):
        raise NoSolver(
            f"warmup_steps is {config.warmup_steps}, a warm-up on random play, and {config.title} has no "
            "random actor; leave it out, or clone a store of demonstrations (demos)."
        )
