"""What a training run is made of; `gem-gym train --help` is this page."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from tyro.constructors import PrimitiveConstructorSpec

from gem.errors import BadArgument, SchemaMismatch, did_you_mean
from gem.estimators import KINDS, Kind


def _keywords(args: list[str]) -> dict[str, Any]:
    values = json.loads(args[0])
    if not isinstance(values, dict):
        raise BadArgument(f"got {args[0]}; accepted: a JSON object.")
    return values


KEYWORDS: PrimitiveConstructorSpec[dict[str, Any]] = PrimitiveConstructorSpec(
    nargs=1,
    metavar="JSON",
    instance_from_str=_keywords,
    is_instance=lambda value: isinstance(value, dict),
    str_from_instance=lambda values: [json.dumps(values)],
)


MaybePath: TypeAlias = Annotated[
    Path | None,
    PrimitiveConstructorSpec(  # tyro's own would speak of {None}|PATH
        nargs=1,
        metavar="FILE",
        instance_from_str=lambda words: Path(words[0]),
        is_instance=lambda value: value is None or isinstance(value, Path),
        str_from_instance=lambda value: [str(value)],
    ),
]

AT_LEAST_ONE = (
    *("episodes", "batch", "group", "epochs", "minibatch", "warmup_batch", "eval_episodes"),
    *("width", "layers", "heads", "max_tokens", "max_turns", "threads"),
)
NOT_NEGATIVE = ("warmup_steps", "warmup_lr", "entropy", "kl", "clip", "lr", "seed")


@dataclass(frozen=True)
class TrainConfig:
    """Train a language model on an environment with a policy gradient.

    The defaults are the demonstration: the embedded tiny model learns game:GuessTheNumber-v0-easy from its
    text prompts, on one core, in minutes.
    """

    env: str = "game:GuessTheNumber-v0-easy"
    """Id of the environment."""

    env_kwargs: Annotated[dict[str, Any], KEYWORDS] = field(default_factory=dict)
    """Keywords for the environment, as '{"reward": "sparse"}'."""

    algorithm: Kind = "rebn"
    """How returns become advantages: plain returns, Return Batch Normalisation, or relative to a group of
    samples of one task (grpo divides by the group's deviation, dr_grpo does not)."""

    gamma: float = 0.3
    """Discount per turn."""

    episodes: int = 51_200
    """Episodes to train on."""

    batch: int = 256
    """Episodes per iteration."""

    group: int = 8
    """Samples of one task, for grpo and dr_grpo."""

    epochs: int = 2
    """Passes over each iteration's episodes."""

    minibatch: int = 64
    """Rows of one optimiser step."""

    lr: float = 1e-3
    """Step size of AdamW."""

    lr_end: float = 0.0
    """What is left of the step size at the end of the run, falling linearly."""

    clip: float = 0.2
    """How far a token's probability ratio may leave 1."""

    kl: float = 0.1
    """Weight of the divergence from the policy before RL, per token, falling linearly to 0. It keeps the
    policy exploring while it learns, and well-formed. 0: no reference is kept."""

    entropy: float = 0.0
    """Weight of an entropy bonus per token, falling linearly to 0. Over a whole vocabulary it feeds tokens
    that belong nowhere; `kl` explores without that."""

    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm."""

    warmup_steps: int = 80
    """Steps of behaviour cloning on random well-formed play before any RL: it teaches the format, never the
    strategy. 0: none."""

    warmup_batch: int = 48
    """Episodes per warm-up step."""

    demos: MaybePath = None
    """A store of episodes to clone in the warm-up instead of random play, as `gem-gym demos` writes it: then
    it does teach the strategy."""

    warmup_lr: float = 5e-3
    """Step size of the warm-up."""

    model: str = "tiny"
    """``tiny``, or the folder or name of a Hugging Face causal language model."""

    device: str = "cpu"
    """Where a Hugging Face model lives, as cuda; the tiny model is at home on the CPU."""

    width: int = 64
    """Width of the tiny model."""

    layers: int = 2
    """Layers of the tiny model."""

    heads: int = 4
    """Attention heads of the tiny model."""

    max_tokens: int = 16
    """Tokens an answer may take."""

    temperature: float = 1.0
    """Temperature of sampling while training."""

    max_turns: int | None = None
    """Turns after which an episode is cut off from outside; None leaves it to the task."""

    eval_episodes: int = 2000
    """Sampled episodes behind each figure of the final table."""

    threads: int = 1
    """Threads of PyTorch; the tiny model is fastest with one."""

    seed: int = 0
    """The run's seed: weights, episodes and minibatches follow from it."""

    host: str = "serial"
    """Where environments live: serial (a resumed run is the same, bit for bit), thread for those that wait,
    process for those that compute."""

    store: Literal["tokens", "text", "none"] = "text"
    """What of the training episodes is kept in the run's folder: all, all but tokens and log probabilities,
    or nothing."""

    out: Path = Path("runs/train")
    """Folder of the run: config, metrics, checkpoint, picture, summary."""

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        # `not x >= 0` refuses NaN too.
        for name in AT_LEAST_ONE:
            value = getattr(self, name)
            if value is not None and not value >= 1:
                raise BadArgument(f"{name} is {value}; accepted: 1 or more.")
        for name in NOT_NEGATIVE:
            if not 0 <= getattr(self, name) < math.inf:
                raise BadArgument(f"{name} is {getattr(self, name)}; accepted: 0 or more.")
        for name in ("temperature", "max_grad_norm"):
            if not getattr(self, name) > 0:
                raise BadArgument(f"{name} is {getattr(self, name)}; accepted: above 0.")
        for name in ("gamma", "lr_end"):
            if not 0 <= getattr(self, name) <= 1:
                raise BadArgument(f"{name} is {getattr(self, name)}; accepted: 0 to 1.")
        if self.algorithm not in KINDS:
            raise BadArgument(f"algorithm is {self.algorithm!r}; accepted: {', '.join(KINDS)}.")
        if self.model == "tiny" and self.device != "cpu":
            raise BadArgument(f"device is {self.device!r}; the tiny model takes cpu alone.")
        if self.grouped and self.batch % self.group:
            raise BadArgument(
                f"batch is {self.batch}; {self.algorithm} takes a multiple of group ({self.group})."
            )

    @property
    def grouped(self) -> bool:
        """Whether the algorithm compares samples of one task."""
        return self.algorithm in ("grpo", "dr_grpo")

    @property
    def iterations(self) -> int:
        """How many iterations the run has."""
        return -(-self.episodes // self.batch)

    def to_json(self) -> dict[str, Any]:
        """Return the config as plain JSON values."""
        return {**asdict(self), "out": str(self.out), "demos": self.demos and str(self.demos)}

    def differences(self, other: TrainConfig) -> list[str]:
        """Return the settings in which the configs differ; where the run stands is none of them."""
        mine, others = (json.loads(json.dumps(config.to_json())) for config in (self, other))
        return [name for name in mine if name != "out" and mine[name] != others[name]]

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TrainConfig:
        """Return the config that to_json() gave.

        Raises:
            SchemaMismatch: for a setting that this version does not have.
        """
        if not isinstance(values, dict):
            raise SchemaMismatch(f"the run's config is {values!r:.40}; a config is a JSON object.")
        known = [f.name for f in fields(cls)]
        for name in values:
            if name not in known:
                hint = did_you_mean(name, known)
                raise SchemaMismatch(
                    f"the run's config has {name!r}, which this version does not know.{hint}"
                )
        demos = values.get("demos")
        paths = {"out": Path(values.get("out", cls.out)), "demos": demos and Path(demos)}
        return cls(**{**values, **paths})
