"""The fields of a training run's settings, and what follows from them without a check."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from gem.estimators.algorithms import ALGORITHMS, Algorithm, find_algorithm
from gem.naming import FORMS
from gem.train.config.bounds import Amount, Count, CountOrZero, Divisor, Limit, Share, ShareBelowOne
from gem.train.config.env_part import EnvPart, MixBy, NormaliseBy, Stage, name_parts
from gem.train.config.value_types import (
    KEYWORDS,
    Attention,
    KlEstimator,
    MaybeAmount,
    MaybeCount,
    MaybeCountOrZero,
    MaybeNumber,
    MaybePath,
    Normalise,
    PoolBy,
    Ratio,
    ScheduleKind,
    ValueClipBy,
    WarmupBy,
    WarmupOn,
    share_left,
    tables,
)

NAMES = "NAME|MODULE:NAME|FILE.py:NAME"
ALGORITHM_HELP = (
    "How returns become advantages. "
    + " ".join(f"{name}: {each.summary}." for name, each in ALGORITHMS.items())
    + f" One of your own: {FORMS}."
)


@dataclass(frozen=True)
class RunSettings:
    """The fields of `gem.train.config.TrainConfig`, which converts and checks them."""

    # -- what is played

    env: str = "game:GuessTheNumber-v0-easy"
    """The environment: an id that `gem-gym list` shows, path/file.py:Class, or package.module:Class."""

    env_kwargs: Annotated[dict[str, Any], KEYWORDS] = field(default_factory=dict)
    """Keyword arguments of the environment, such as '{"reward": "sparse"}'."""

    train_on_test: bool = False
    """Train on tasks that the environment keeps for testing; without it, it needs the keyword split=train."""

    wrappers: tuple[str, ...] = ()
    """Wrappers around the environment, innermost first: names, module:function, or file.py:function."""

    tools: tuple[str, ...] = ()
    """Tools that are added to the environment: python, search, world_search, or yours as file.py:function."""

    max_turns: MaybeCount = None
    """Turns after which an episode is truncated; none: the environment decides."""

    environments: Annotated[tuple[EnvPart, ...], tables(EnvPart, "ID[=WEIGHT]|JSON ...")] = ()
    """Several environments in one run, instead of --env: each an id, ID=WEIGHT, or a JSON object with id,
    weight, kwargs, wrappers, tools, max_turns and name."""

    mix_by: MixBy = "episodes"
    """Unit of those weights: shares of episodes, or of tokens that the policy samples."""

    normalise_by: NormaliseBy = "environment"
    """Advantages are centred and scaled within the episodes of one environment, or over the whole batch. Over
    the batch, environments with larger rewards dominate the gradient."""

    curriculum: Annotated[tuple[Stage, ...], tables(Stage, "ID[=UNTIL]|JSON ...")] = ()
    """Environments in sequence, instead of --env: the next one starts when success in this one is above
    UNTIL, or --advance-at. Each is an id, ID=UNTIL, or a JSON object as for --environments, with until."""

    advance_at: ShareBelowOne = 0.8
    """Success rate at which the next stage of a curriculum starts. The lower bound of its 95% interval must
    be above this, over the episodes of the last --advance-over iterations."""

    advance_over: Count = 4
    """Number of iterations that this success rate is measured over; a stage lasts at least as long."""

    keep: ShareBelowOne = 0.2
    """Share of the episodes that come from earlier stages of a curriculum, to prevent forgetting."""

    opponent: tuple[str, ...] = ()
    """Agents in the other seats of a game: random, solver, the folder of a run, another agent by name, or
    file.py:Class.
    Several take turns. The policy plays one seat, a different one in each game, and learns from that alone.
    Without opponents it plays every seat."""

    pool: CountOrZero = 0
    """Number of past copies of the policy that are opponents too, the newest ones; the first is from before
    RL."""

    pool_every: Count = 10
    """Iterations between copies."""

    pool_by: PoolBy = "uniform"
    """How often each opponent is played, by the rate x at which the policy beats it: uniform; hard, in
    proportion to (1 - x)^2; even, in proportion to x (1 - x)."""

    agent: str = ""
    """A program that plays the episodes, as program:COMMAND (docs/guides/programs.md). The model in training
    answers its calls, and learns from them. Empty: the model plays by itself."""

    program_s: Divisor = 600.0
    """Seconds of the program for one episode, in which its model answers too."""

    program_prints: bool = False
    """What the program prints to stdout is its answer, in environments of one turn; else it acts by MCP."""

    # -- by which model, and how it samples

    model: str = "tiny"
    """``tiny``, a name that `gem-gym models` lists, or the folder or hub name of a causal language model of
    Hugging Face."""

    start_from: Annotated[str, tyro.conf.arg(metavar="RUN|FOLDER", aliases=["--from"])] = ""
    """Start from the weights of an earlier run (RUN@best: its best), or of a folder in Hugging Face's form: a
    model, or a LoRA adapter. The settings of the model are theirs, and there is no warm-up by default."""

    device: str = "cpu"
    """Device of a language model, such as cuda; the tiny model runs on the CPU only."""

    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Data type that a language model computes in; auto: bfloat16 where this machine multiplies it faster."""

    attn_implementation: Attention = "auto"
    """How a language model computes attention; auto: as transformers chooses, on most models sdpa. With
    flash_attention_2 or 3, which need a GPU and their package, rows are laid out one after another, without
    padding, masks or shared beginnings."""

    train_layers: MaybeCount = None
    """Train only this many upper layers of a language model; none: train all of it."""

    lora_rank: CountOrZero = 0
    """Train LoRA adapters of this rank instead of a language model's own weights. 0: no adapters."""

    lora_alpha: Amount = 0.0
    """LoRA's alpha: adapters are scaled by alpha / rank. 0: twice the rank."""

    lora_targets: tuple[str, ...] = ()
    """Names of the modules that get adapters, such as q_proj v_proj. None: all linear ones but the head."""

    checkpointing: bool = False
    """Recompute the activations of a language model in the backward pass, to use less memory."""

    pack: Count = 256
    """Tokens per pack of a language model's rows; see gem.train.learn.batch."""

    answer_prefix: str = ""
    """Fixed text at the start of every answer of a language model, not sampled, such as '\\boxed{'."""

    stop: tuple[str, ...] = ()
    """Texts at which an answer of a language model ends."""

    sampler: str = ""
    """A server that samples a language model's answers, as vllm:URL or sglang:URL. It must be able to read
    the run's folder, which holds the weights for it. Empty: the trained model itself samples."""

    width: Count = 64
    """Width of the tiny model."""

    layers: Count = 2
    """Layers of the tiny model."""

    heads: Count = 4
    """Attention heads of the tiny model."""

    max_tokens: Count = 16
    """Maximum tokens of an answer."""

    temperature: Divisor = 1.0
    """Sampling temperature during training."""

    # -- what is learnt, and from how much

    algorithm: Annotated[str, tyro.conf.arg(metavar="NAME|MODULE:NAME|FILE.py:NAME", help=ALGORITHM_HELP)] = (
        "rebn"
    )
    """How returns become advantages: a name of `gem.estimators.ALGORITHMS`, or an Algorithm of your own, as
    package.module:NAME or path/file.py:NAME. In Python also the value itself."""

    reward: str = ""
    """A reward of your own, as module:function or path/file.py:function: of an episode and its turns, to the
    reward of each turn (gem.rollout.rewards). Figures stay the environment's. Empty: what it pays."""

    gamma: Share = 0.3
    """Discount per turn."""

    episodes: CountOrZero = 51_200
    """Episodes to train on, rounded up to whole batches. 0: no RL, only the cloning of demonstrations."""

    batch: Count = 256
    """Episodes per iteration."""

    group: Count = 8
    """Samples per task, for the algorithms that compare them."""

    staleness: Literal[0, 1] = 0
    """1: sample the next iteration's episodes while learning from this one's, with the weights before the
    update. Use it with an --importance-cap: clipping alone turns the direction of the gradient on stale
    samples (docs/guides/estimators.md)."""

    # -- the optimiser's steps

    epochs: Count = 2
    """Passes over each iteration's episodes."""

    minibatch: CountOrZero = 64
    """Rows per optimiser step. 0: all of the iteration's."""

    pass_tokens: MaybeCountOrZero = None
    """Tokens to compute per pass through the model; a step takes as many passes as it needs. none: one pass.
    0: as many as the free memory of a GPU has room for (docs/guides/training_gpu.md)."""

    lr: Amount = 1e-3
    """Learning rate of AdamW."""

    lr_ramp: CountOrZero = 0
    """Number of iterations over which the learning rate rises to --lr."""

    lr_end: Share = 0.0
    """Share of the learning rate that is left at the end of the run."""

    lr_schedule: ScheduleKind = "linear"
    """How the learning rate falls to that share: linearly, as half a cosine, or not at all (constant)."""

    beta1: ShareBelowOne = 0.9
    """AdamW's decay rate of the mean of gradients."""

    beta2: ShareBelowOne = 0.95
    """AdamW's decay rate of the mean of squared gradients."""

    weight_decay: Amount = 0.0
    """AdamW's weight decay, which is multiplied by the learning rate."""

    critic_lr: Amount = 0.0
    """Learning rate of the critic, for ppo; it follows the same schedule. 0: that of the policy."""

    max_grad_norm: Limit = 1.0
    """Gradients of a larger norm are scaled down to this norm."""

    # -- the loss

    clip: Amount = 0.2
    """How far a probability ratio may differ from 1."""

    clip_high: Amount = 0.0
    """How far it may rise above 1, where that differs (clip-higher); 0: as far as it may fall."""

    ratio: Ratio = "token"
    """Unit of a probability ratio: a token, a turn, or a sequence (gspo)."""

    normalise: Normalise = "episode"
    """Divisor of the loss: the number of episodes, which the policy does not control; of turns or tokens,
    which it does; a constant times the episodes (--loss-constant); or the episodes and each response's own
    tokens (response), as GRPO and GSPO are published."""

    loss_constant: Divisor = 1.0
    """This constant, for --normalise constant."""

    importance_cap: Amount = 0.0
    """Maximum importance weight of a token that older weights, or another program, sampled. The probability
    ratio then starts from the learner's own log probabilities. 0: from the sampler's, without weights."""

    kl: Amount = 0.1
    """Weight of the KL divergence from the policy before RL, per token; it falls by --kl-schedule. It keeps
    the policy exploring while it learns, and its answers well-formed. 0: no reference is kept."""

    kl_schedule: ScheduleKind = "linear"
    """How this weight falls to 0 over the run: linearly, as half a cosine, or not at all (constant)."""

    kl_estimator: KlEstimator = "full"
    """How the divergence is estimated: over the whole vocabulary (full), or from the sampled token (k1, k2,
    k3)."""

    kl_reward: bool = False
    """Subtract the divergence from the reward of each turn (k1) instead of adding it to the loss."""

    entropy: Amount = 0.0
    """Weight of an entropy bonus per token; it falls by --entropy-schedule. Over a whole vocabulary it raises
    the probability of tokens that fit nowhere; `kl` keeps the policy exploring without that."""

    entropy_schedule: ScheduleKind = "linear"
    """How this weight falls to 0 over the run: linearly, as half a cosine, or not at all (constant)."""

    # -- for ppo

    lam: Share = 0.95
    """Lambda of generalised advantage estimates, for ppo."""

    critic: Literal["head", "model"] = "head"
    """What estimates the values, for ppo: a head on the policy's hidden states, or a separate model."""

    value_weight: Amount = 0.5
    """Weight of the critic's loss, for ppo."""

    value_clip: Amount = 0.2
    """How far a value may move from the old one in an iteration, for ppo; 0: no limit."""

    value_clip_by: ValueClipBy = "absolute"
    """Unit of --value-clip: the rewards' own (absolute), as published; or the standard deviation of the
    iteration's targets of values (spread), so that it fits rewards of any scale."""

    whiten: bool = True
    """Normalise a batch's advantages to mean 0 and standard deviation 1, for ppo; --no-whiten: leave them."""

    # -- the warm-up

    warmup_steps: CountOrZero = 80
    """Steps of behaviour cloning on random well-formed play before RL: it teaches the format, never the
    strategy. 0: no warm-up."""

    warmup_check: CountOrZero = 0
    """Steps between checks whether the warm-up has taught the format: sampled play must be as readable as
    random play, within 5 points at 95% confidence, and earn as much on average. After two passed checks in a
    row the warm-up stops, so --warmup-steps is a maximum. 0: take all steps."""

    warmup_most: CountOrZero = 0
    """With --warmup-check: take all --warmup-steps, then continue until the format is learnt, up to this many
    steps in all. 0: --warmup-steps is the maximum."""

    warmup_batch: Count = 48
    """Episodes per warm-up step."""

    warmup_lr: Amount = 5e-3
    """Learning rate of the warm-up."""

    warmup_on: WarmupOn = "all"
    """Tokens that the warm-up learns: the answers alone, or also what the environment replies (all). To
    predict the replies, the model has to follow the game, which a policy gradient alone hardly teaches."""

    warmup_by: WarmupBy = "random"
    """Who plays the episodes that the warm-up clones: the random actor, or the environment's solver, which
    shows the strategy too. In an environment with tools both call these too, the solver where they help."""

    demos: MaybePath = None
    """A store of episodes to clone in the warm-up instead, as `gem-gym demos` writes it."""

    demos_held_out: ShareBelowOne = 0.0
    """Share of the demonstrations' tasks that are held out: the loss on them is measured at intervals and
    shows overfitting to the others. 0: none."""

    # -- what is measured, and when it is enough

    eval_episodes: Count = 2000
    """Sampled episodes for each figure of the final table."""

    eval_every: CountOrZero = 0
    """Iterations between evaluations on held-out instances, which training never draws. There is also one
    before RL and one at the end. They do not change training. 0: none."""

    held_out: Count = 200
    """Episodes per held-out evaluation; several environments share them equally."""

    eval_temperature: MaybeAmount = None
    """Temperature of held-out evaluations, 0 is greedy; none: that of training."""

    patience: CountOrZero = 0
    """Stop after this many held-out evaluations in a row without an improvement beyond noise. At an
    improvement, the paired difference from the last one is above 0 with 95% confidence. 0: train to the
    end."""

    target: MaybeNumber = None
    """Stop when the lower bound of the 95% interval of held-out success reaches this. Where the environment
    does not report success, the return counts. none: train to the end."""

    watch: CountOrZero = 4
    """Number of seeds that the policy plays before RL, at up to 20 checkpoints, evenly spaced, and at the
    end. The seeds and the randomness are the same each time, so the episodes show when its behaviour changed.
    They do not change training. 0: none."""

    # -- the run

    seed: CountOrZero = 0
    """The run's seed: weights, episodes and minibatches are derived from it."""

    threads: CountOrZero = 1
    """Threads of PyTorch, 0: its own default; the tiny model is fastest with one."""

    host: str = "serial"
    """Where environments run: serial (a resumed run is the same, bit for bit), thread for those that wait,
    process for those that compute."""

    call_s: Amount = 0.0
    """Seconds for one call of an environment, on hosts thread and process; one that takes longer is given up,
    and its episode played again. 0: any."""

    ray: str = ""
    """A Ray cluster on which episodes are sampled, each worker with a copy of the model: HOST:PORT, auto for
    the cluster of this machine, or local to start one. Empty: sample in this process."""

    save_every: Count = 1
    """Iterations between checkpoints."""

    store: Literal["tokens", "text", "none"] = "text"
    """How the run's folder keeps the training episodes: with tokens and log probabilities (tokens), without
    them (text), or not at all (none)."""

    log: tuple[str, ...] = ()
    """Loggers of the run: tensorboard, wandb (offline, unless WANDB_MODE says otherwise), or module:Class
    or file.py:Class of your own, a gem.train.Watcher. No logger can change or stop the run."""

    callback: tuple[str, ...] = ()
    """Callbacks of your own, as module:Class or path/file.py:Class, each a gem.train.Callback. Unlike a
    logger it may stop the run."""

    out: Path = Path("runs/train")
    """Folder of the run: config, metrics, checkpoint, picture, summary."""

    @property
    def algorithm_value(self) -> Algorithm:
        """The algorithm that `algorithm` names.

        Raises:
            BadArgument: where there is none.
        """
        return find_algorithm(self.algorithm)

    @property
    def grouped(self) -> bool:
        """Whether the algorithm compares samples of one task."""
        return self.algorithm_value.group != "none"

    @property
    def parts(self) -> tuple[EnvPart, ...]:
        """The environments of the run, or the stages of its curriculum, each with all its settings."""
        given = self.environments or self.curriculum
        if not given:
            one = EnvPart(self.env, 1.0, self.env_kwargs, self.wrappers, self.tools, self.max_turns)
            return name_parts([one])
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
    def names(self) -> tuple[str, ...]:
        """What the run plays, against whom, and its loggers, by name."""
        parts = [name for part in self.parts for name in (part.id, *(part.wrappers or ()))]
        return (*parts, *self.opponent, *self.log)

    @property
    def title(self) -> str:
        """A short name of what is played: the environment's id, or the names of several."""
        if self.environments or self.curriculum:
            return (" + " if self.environments else " -> ").join(part.name for part in self.parts)
        return self.env

    @property
    def opponents(self) -> bool:
        """Whether other agents play the other seats."""
        return bool(self.opponent or self.pool)

    @property
    def iterations(self) -> int:
        """The number of iterations of the run."""
        return -(-self.episodes // self.batch)

    def lr_at(self, iteration: int, begin: int = 0) -> float:
        """Return the learning rate of an iteration, from 0: it rises over the ramp and falls by its schedule.

        `begin`: the iteration at which the phase of the run begins.
        """
        done = (iteration - begin) / (self.iterations - begin)
        left = share_left(self.lr_schedule, done)
        rising = min(1.0, (iteration - begin + 1) / (self.lr_ramp + 1))
        return self.lr * rising * (self.lr_end + (1 - self.lr_end) * left)
