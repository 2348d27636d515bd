"""What a training run is made of; `gem-gym train --help` is this page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from gem.errors import BadArgument, SchemaMismatch, did_you_mean
from gem.train import config_checks
from gem.train.config_types import (
    KEYWORDS,
    Algorithm,
    KlEstimator,
    MaybeFloat,
    MaybeInt,
    MaybePath,
    Normalise,
    PoolBy,
    Ratio,
    WarmupOn,
    tables,
)
from gem.train.curriculum import Stage
from gem.train.mixture import EnvPart, MixBy, NormaliseBy, named
from gem.wrappers.wrapper_factory import Tool

ELSEWHERE = ("out", "ray", "log")
"""Settings that a run may go on without: where it stands, where it samples, and who is told."""

FITTING: dict[str, dict[str, Any]] = {
    "reinforce": {},
    "rebn": {},
    "turn_rebn": {},
    "rloo": {"gamma": 1.0},
    "grpo": {"gamma": 1.0},
    "dr_grpo": {"gamma": 1.0},
    "gspo": {"gamma": 1.0, "ratio": "sequence", "clip": 3e-4, "clip_high": 4e-4},
    "turn_grpo": {"gamma": 1.0},
    "ppo": {"gamma": 0.9},
}
"""Defaults that belong to an algorithm: what compares whole episodes has no use for a discount."""

LANGUAGE_MODEL: dict[str, Any] = {
    **{"episodes": 4480, "batch": 64, "minibatch": 64, "epochs": 1, "lr": 5e-5, "lr_ramp": 3, "lr_end": 0.1},
    **{"kl": 0.05, "warmup_steps": 0, "warmup_lr": 5e-5, "warmup_on": "answers"},
    **{"max_tokens": 256, "eval_episodes": 200},
    **{"threads": 0, "save_every": 10, "pass_tokens": 2048},
}
"""Defaults that belong to a pretrained model; the fields' own are the tiny model's."""


@dataclass(frozen=True)
class TrainConfig:
    """Train a language model on an environment with a policy gradient.

    The defaults are the demonstration: the embedded tiny model learns game:GuessTheNumber-v0-easy from its
    text prompts, on one core, in minutes. Some follow --algorithm and --model: --help shows those of what
    stands beside it.
    """

    # -- what is played

    env: str = "game:GuessTheNumber-v0-easy"
    """Id of the environment."""

    env_kwargs: Annotated[dict[str, Any], KEYWORDS] = field(default_factory=dict)
    """Keywords for the environment, as '{"reward": "sparse"}'."""

    wrappers: tuple[str, ...] = ()
    """Wrappers around the environment, inner first: names, or module:function."""

    tools: tuple[Tool, ...] = ()
    """Tools that the environment carries; others come by --wrappers."""

    max_turns: MaybeInt = None
    """Turns after which an episode is cut off from outside; none leaves it to the task."""

    environments: Annotated[tuple[EnvPart, ...], tables(EnvPart, "ID[=WEIGHT]|JSON ...")] = ()
    """Several environments in one run, in place of --env, each an id, ID=WEIGHT, or a JSON object with id,
    weight, kwargs, wrappers, tools, max_turns and name."""

    mix_by: MixBy = "episodes"
    """What those weights are shares of: episodes, or tokens that the policy samples."""

    normalise_by: NormaliseBy = "environment"
    """Among what advantages are centred and scaled: the episodes of one environment, or of all of a batch,
    where environments of larger rewards make most of the gradient."""

    curriculum: Annotated[tuple[Stage, ...], tables(Stage, "ID[=UNTIL]|JSON ...")] = ()
    """Environments one after the other, in place of --env: the next begins when success in this one is above
    UNTIL, or --advance-at. Each an id, ID=UNTIL, or a JSON object as of --environments, with until."""

    advance_at: float = 0.8
    """Success above which the next stage of a curriculum begins: the lower bound of its 95% interval, over
    the episodes of the last --advance-over iterations."""

    advance_over: int = 4
    """Iterations that this success is of, at least so many of a stage."""

    keep: float = 0.2
    """Share of the episodes that earlier stages of a curriculum keep, against forgetting."""

    opponent: tuple[str, ...] = ()
    """Who holds the other seats of a game: random, solver, the folder of a run, or another agent by name.
    Several are met in turn. The policy holds one seat, another in each game, and learns from that alone.
    Without opponents it holds every seat."""

    pool: int = 0
    """Past copies of the policy that are opponents too, the newest so many; the first is from before RL."""

    pool_every: int = 10
    """Iterations between copies."""

    pool_by: PoolBy = "uniform"
    """Which opponent is met how often, by the rate x at which the policy beats it: uniform; hard, by
    (1 - x)^2; even, by x (1 - x)."""

    # -- by which model, and how it samples

    model: str = "tiny"
    """``tiny``, a name that `gem-gym models` lists, or the folder or hub name of a causal language model of
    Hugging Face."""

    device: str = "cpu"
    """Where a language model lives, as cuda; the tiny model is at home on the CPU."""

    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """What a language model computes in; auto: bfloat16 where this machine multiplies it faster."""

    train_layers: MaybeInt = None
    """Upper layers of a language model that are trained, and nothing else of it; none: all of it."""

    lora_rank: int = 0
    """Train LoRA adapters of this rank in place of a language model's own weights. 0: none."""

    checkpointing: bool = False
    """Compute a language model's layers again in the backward pass, to hold less memory."""

    pack: int = 256
    """Tokens of a pack of a language model's rows; see gem.train.batch."""

    answer_prefix: str = ""
    """What every answer of a language model begins with, given and not sampled, as '\\boxed{'."""

    stop: tuple[str, ...] = ()
    """Texts at which an answer of a language model ends."""

    sampler: str = ""
    """A server that samples a language model's answers, as vllm:URL or sglang:URL; the run's folder, which it
    must be able to read, holds the weights that it is given. Empty: the model that is trained samples."""

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

    # -- what is learnt, and from how much

    algorithm: Algorithm = "rebn"
    """How returns become advantages. reinforce: plain returns. rebn: Return Batch Normalisation.
    turn_rebn: the same for the first turns, for the second turns, and so on. rloo, grpo,
    dr_grpo, gspo: relative to a group of samples of one task (gspo clips whole sequences). turn_grpo:
    relative to samples of one turn, which branch off in the middle of an episode. ppo: a critic's
    estimates."""

    gamma: float = 0.3
    """Discount per turn."""

    episodes: int = 51_200
    """Episodes to train on. 0: none, the cloning of --demos is all there is."""

    batch: int = 256
    """Episodes per iteration."""

    group: int = 8
    """Samples of one task, for the algorithms that compare them."""

    staleness: Literal[0, 1] = 0
    """1: sample the next iteration's episodes while learning on this one's, with the weights from before.
    Goes with an --importance-cap: clipping alone turns the gradient of stale samples
    (docs/guides/estimators.md)."""

    # -- the optimiser's steps

    epochs: int = 2
    """Passes over each iteration's episodes."""

    minibatch: int = 64
    """Rows of one optimiser step."""

    pass_tokens: MaybeInt = None
    """Distinct tokens of one pass through the model; a step takes as many passes as it needs. none: one."""

    lr: float = 1e-3
    """Step size of AdamW."""

    lr_ramp: int = 0
    """Iterations in which the step size rises to that."""

    lr_end: float = 0.0
    """What is left of the step size at the end of the run, falling linearly."""

    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm."""

    # -- the loss

    clip: float = 0.2
    """How far a probability ratio may leave 1."""

    clip_high: float = 0.0
    """How far it may rise, where that is another figure (clip-higher); 0: as far as it may fall."""

    ratio: Ratio = "token"
    """What a probability ratio is of: a token, a turn, or a sequence (gspo)."""

    normalise: Normalise = "episode"
    """What a loss is divided by: the episodes, which the policy does not control; its turns or tokens, which
    it does; or a constant times the episodes (--loss-constant)."""

    loss_constant: float = 1.0
    """Divisor of the loss beside the episodes, for --normalise constant."""

    importance_cap: float = 0.0
    """Largest importance weight of a token that older weights, or another program, sampled; the ratio then
    starts from the learner's own log probabilities. 0: the sampler's are taken as they are."""

    kl: float = 0.1
    """Weight of the divergence from the policy before RL, per token, falling linearly to 0. It keeps the
    policy exploring while it learns, and well-formed. 0: no reference is kept."""

    kl_estimator: KlEstimator = "full"
    """How the divergence is estimated: over the whole vocabulary, or from the sampled token (k1, k2, k3)."""

    kl_reward: bool = False
    """Take the divergence off the reward of each turn (k1) in place of adding it to the loss."""

    entropy: float = 0.0
    """Weight of an entropy bonus per token, falling linearly to 0. Over a whole vocabulary it feeds tokens
    that belong nowhere; `kl` explores without that."""

    # -- for ppo

    lam: float = 0.95
    """Lambda of generalised advantage estimates, for ppo."""

    critic: Literal["head", "model"] = "head"
    """What values turns, for ppo: a head on the policy's states, or a model of its own."""

    value_weight: float = 0.5
    """Weight of the critic's loss, for ppo."""

    value_clip: float = 0.2
    """How far a value may move from the old one in an iteration, for ppo; 0: as far as it likes."""

    whiten: bool = True
    """Give a batch's advantages mean 0 and deviation 1, for ppo."""

    # -- the warm-up

    warmup_steps: int = 80
    """Steps of behaviour cloning on random well-formed play before any RL: it teaches the format, never the
    strategy. 0: none."""

    warmup_check: int = 0
    """Steps between looks at whether the warm-up has taught the format: sampled play is as readable as random
    play, within 5 points at 95% confidence, and earns as much on average. After two such looks in a row it
    stops, so that --warmup-steps is a maximum. 0: all steps are taken."""

    warmup_most: int = 0
    """With --warmup-check: take all --warmup-steps, and then more until the format is learnt, this many
    in all at most. 0: --warmup-steps is the maximum."""

    warmup_batch: int = 48
    """Episodes per warm-up step."""

    warmup_lr: float = 5e-3
    """Step size of the warm-up."""

    warmup_on: WarmupOn = "all"
    """What the warm-up learns to write: the answers alone, or what the environment says to them too. To
    foretell that, the model has to follow the game, which a policy gradient alone hardly teaches it."""

    demos: MaybePath = None
    """A store of episodes to clone in the warm-up instead of random play, as `gem-gym demos` writes it: then
    it does teach the strategy."""

    demos_held_out: float = 0.0
    """Share of the demonstrations' tasks that are not cloned: the loss on them is measured now and then, and
    says when the others are learnt by heart. 0: none."""

    # -- what is measured, and when it is enough

    eval_episodes: int = 2000
    """Sampled episodes behind each figure of the final table."""

    eval_every: int = 0
    """Iterations between evaluations on held-out instances, which training never draws; there is one before
    any RL and one at the end too. They change nothing in training. 0: none."""

    held_out: int = 200
    """Episodes of a held-out evaluation."""

    eval_temperature: MaybeFloat = None
    """Temperature of held-out evaluations, 0 is greedy; none: that of training."""

    patience: int = 0
    """Stop after so many held-out evaluations in a row that are no improvement beyond noise: the paired
    difference from the last one that was is above 0 with 95% confidence. 0: train to the end."""

    target: MaybeFloat = None
    """Stop when the held-out success (the return, where the environment says nothing of success) is this with
    confidence: the lower bound of its 95% interval reaches it. none: train to the end."""

    watch: int = 4
    """Seeds of which the policy plays an episode before any RL, at up to 20 checkpoints, evenly spread, and
    at the end: the same ones, with the same chance, so that one sees when it began to act as it does. They
    change nothing in training. 0: none."""

    # -- the run

    seed: int = 0
    """The run's seed: weights, episodes and minibatches follow from it."""

    threads: int = 1
    """Threads of PyTorch, 0: as many as it likes; the tiny model is fastest with one."""

    host: str = "serial"
    """Where environments live: serial (a resumed run is the same, bit for bit), thread for those that wait,
    process for those that compute."""

    ray: str = ""
    """A Ray cluster on which episodes are sampled, each player with a copy of the model: HOST:PORT, auto for
    the one of this machine, or local to start one. Empty: they are sampled here."""

    save_every: int = 1
    """Iterations between checkpoints."""

    store: Literal["tokens", "text", "none"] = "text"
    """What of the training episodes is kept in the run's folder: all, all but tokens and log probabilities,
    or nothing."""

    log: tuple[str, ...] = ()
    """Who else is told of the run: tensorboard, wandb (offline, unless WANDB_MODE says otherwise), or a
    module:Class of your own, a gem.train.watcher.Watcher. None of them changes the run, or can stop it."""

    out: Path = Path("runs/train")
    """Folder of the run: config, metrics, checkpoint, picture, summary."""

    def __post_init__(self) -> None:
        """Take lists of tables for environments, and refuse what cannot be trained."""
        for name, kind in (("environments", EnvPart), ("curriculum", Stage)):
            given = getattr(self, name)
            if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
                raise BadArgument(f"{name} is {given!r:.80}; accepted: a list of tables.")
            object.__setattr__(self, name, named([kind.read(each) for each in given]))
        if (self.environments or self.curriculum) and self.env == self.title:
            object.__setattr__(self, "env", TrainConfig.env)  # as to_json() writes it
        config_checks.check(self)

    @classmethod
    def fit(cls, **given: Any) -> TrainConfig:
        """Return a config whose defaults fit the algorithm and the model that are given."""
        return cls(**cls.fitting(**given))

    @classmethod
    def fitting(cls, **given: Any) -> dict[str, Any]:
        """Return what is given and the defaults that go with it."""
        model = given.get("model", cls.model)
        algorithm = given.get("algorithm", cls.algorithm)
        found = {**({} if model == "tiny" else LANGUAGE_MODEL), **FITTING.get(algorithm, {})}
        if given.get("staleness"):
            found["importance_cap"] = 2.0
        return {**found, **given}

    @classmethod
    def unchecked(cls, **given: Any) -> TrainConfig:
        """Return a config that nobody has looked at: what flags are still to be added to."""
        config = object.__new__(cls)
        for name, own in (
            (f.name, f.default_factory if f.default is MISSING else f.default) for f in fields(cls)
        ):
            object.__setattr__(
                config, name, given[name] if name in given else own() if callable(own) else own
            )
        return config

    @property
    def grouped(self) -> bool:
        """Whether the algorithm compares samples of one task."""
        return self.algorithm in ("rloo", "grpo", "dr_grpo", "gspo", "turn_grpo")

    @property
    def parts(self) -> tuple[EnvPart, ...]:
        """The environments of the run, or the stages of its curriculum, with all that is said of each."""
        given = self.environments or self.curriculum
        if not given:
            one = EnvPart(self.env, 1.0, self.env_kwargs, self.wrappers, self.tools, self.max_turns)
            return named([one])
        return tuple(
            replace(
                part,
                wrappers=self.wrappers if part.wrappers is None else part.wrappers,
                tools=self.tools if part.tools is None else part.tools,
                max_turns=self.max_turns if part.max_turns is None else part.max_turns,
            )
            for part in given
        )

    @property
    def title(self) -> str:
        """What is played, in a word: the environment's id, or the names of several."""
        if self.environments or self.curriculum:
            return (" + " if self.environments else " -> ").join(part.name for part in self.parts)
        return self.env

    @property
    def opponents(self) -> bool:
        """Whether somebody else holds the other seats."""
        return bool(self.opponent or self.pool)

    @property
    def iterations(self) -> int:
        """How many iterations the run has."""
        return -(-self.episodes // self.batch)

    def lr_at(self, iteration: int) -> float:
        """Return the step size of an iteration, from 0: rising over the ramp, falling linearly to its end."""
        left = 1 - iteration / self.iterations
        rising = min(1.0, (iteration + 1) / (self.lr_ramp + 1))
        return self.lr * rising * (self.lr_end + (1 - self.lr_end) * left)

    def to_json(self) -> dict[str, Any]:
        """Return the config as plain JSON values."""
        return {
            **asdict(self),
            "env": self.title,
            "environments": [part.to_json() for part in self.environments],
            "curriculum": [stage.to_json() for stage in self.curriculum],
            "out": str(self.out),
            "demos": self.demos and str(self.demos),
        }

    def differences(self, other: TrainConfig) -> list[str]:
        """Return the settings in which the configs differ; `ELSEWHERE` are none."""
        mine, others = (json.loads(json.dumps(config.to_json())) for config in (self, other))
        return [name for name in mine if name not in ELSEWHERE and mine[name] != others[name]]

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
        lists = {
            name: tuple(values.get(name, ())) for name in ("wrappers", "tools", "stop", "log", "opponent")
        }
        return cls(**{**values, **paths, **lists})
