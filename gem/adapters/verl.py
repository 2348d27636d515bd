"""gem's environments in verl's PPO trainer, as an agent loop, and ReBN as one of its estimators.

::

    write_dataset("train.parquet", "game:GuessTheNumber-v0-easy", range(1000))

    VERL_USE_EXTERNAL_MODULES=gem.adapters.verl python -m verl.trainer.main_ppo \
        data.train_files=train.parquet actor_rollout_ref.rollout.n=8 \
        algorithm.adv_estimator=grpo ...

The variable makes every process of verl import this module, which registers the agent loop ``gem`` and the
estimator ``gem_rebn``. To give the loop settings, name it in the YAML file of
``actor_rollout_ref.rollout.agent.agent_loop_config_path`` instead::

    - name: gem
      _target_: gem.adapters.verl.GemAgentLoop
      limits: {turns: 8, turn_tokens: 256}
      rewards: turn

The n episodes of a row start from the same seed, each in its own environment. Tokens are rendered and kept by
gem, so rows are the same as with gem's own learner; ids and log probabilities of verl's engine are used
unchanged.

Rewards. verl's estimators need the return of an episode on the last token: ``rewards: episode``. With
``rewards: turn`` each turn's reward is on its last token, for estimators over tokens, such as ``gem_rebn``.
verl computes GRPO from the last of an episode's rows, so use ``episode`` with it.

An episode without a verdict is left out of its group: it affects neither the mean nor the size. Only the V1
trainer can do that, and only it takes several rows of an episode whose past was rewritten; the older trainer
raises an error for such an episode.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args
from uuid import uuid4

from gem.adapters.engine import EngineAgent, why_unscored
from gem.adapters.prompts import read_task, seeded_tasks, task_text
from gem.adapters.records import whole_file
from gem.errors import BadArgument, NoVerdict, check_argument, needs_extra
from gem.estimators import discounted_returns, rebn, turn_rewards
from gem.history import HistoryPolicy
from gem.record import Ask, Episode, Limits, Reply
from gem.rollout import Job, rollout_async
from gem.specs import TaskRef
from gem.tokens.chat_template import ChatTemplateRenderer
from gem.tokens.renderer import Renderer
from gem.tokens.rows import rows

with needs_extra("training with verl", "verl", "verl"):
    import torch
    from omegaconf import OmegaConf
    from verl.experimental.agent_loop.agent_loop import (
        AgentLoopBase,
        AgentLoopMetrics,
        AgentLoopOutput,
        register,
    )
    from verl.trainer.ppo.core_algos import register_adv_est

NAME = "gem"
"""The agent loop's name in the column agent_name of the data set."""

Rewards = Literal["episode", "turn"]

log = logging.getLogger(__name__)


def write_dataset(
    path: str | Path, envs: str | TaskRef | Iterable[str | TaskRef], seeds: Iterable[int], name: str = NAME
) -> int:
    """Write verl's data set as a Parquet file, one episode per row, and return how many rows it has.

    Args:
        path: the file.
        envs: an id, or several; a TaskRef to give keywords or wrappers.
        seeds: each environment is played with each seed.
        name: the agent loop that plays them.

    Raises:
        BadArgument: when the file already exists; see `gem.adapters.prompts.seeded_tasks`.
        MissingExtra: when pyarrow is not installed.
    """
    with needs_extra("a data set of verl", "pyarrow", "data"):
        import pyarrow as pa
        from pyarrow import parquet
    made = [
        {
            # verl requires a prompt; the model is shown the environment's observation instead.
            "prompt": [{"role": "user", "content": f"{task.spec}, seed {task.seed}"}],
            "agent_name": name,
            "data_source": task.spec,
            "env": task.spec,
            "seed": task.seed,
            "task": task_text(task),
            "reward_model": {"style": "rule", "ground_truth": ""},
            "extra_info": {"index": index},
        }
        for index, task in enumerate(seeded_tasks(envs, seeds))
    ]
    with whole_file(Path(path)) as part:
        parquet.write_table(pa.Table.from_pylist(made), part)
    return len(made)


class Output(AgentLoopOutput):
    """A row of an episode; `token_rewards` has the reward of each token of the response."""

    token_rewards: list[float]

    def as_dict(self) -> dict[str, Any]:
        """Return the row in the form of the V1 trainer."""
        made: dict[str, Any] = super().as_dict()
        made["rm_scores"] = torch.tensor(made.pop("token_rewards"), dtype=torch.float32)
        return made


@register(NAME)
class GemAgentLoop(AgentLoopBase):
    """An agent loop that plays the episode of a data set row with verl's engine."""

    def __init__(
        self,
        *args: Any,
        limits: Mapping[str, Any] | None = None,
        history: Mapping[str, Any] | None = None,
        rewards: Rewards = "episode",
        host: str = "auto",
        retries: int = 1,
        **kwargs: Any,
    ) -> None:
        """Play under these settings.

        Args:
            *args: verl's own arguments.
            limits: outside limits, by the names of gem.record.Limits.
            history: which past turns the model is shown, by the names of gem.history.HistoryPolicy.
            rewards: where rewards are put: ``episode`` (on the last token) or ``turn`` (on each turn's last).
            host: where environments run: use ``thread`` or ``process`` for slow ones, because all episodes
                of a worker share its event loop; see gem.rollout.Runner.
            retries: how often an episode that infrastructure broke is played again.
            **kwargs: verl's own keyword arguments.

        Raises:
            BadArgument: for a setting that is not accepted.
        """
        super().__init__(*args, **kwargs)
        check_argument("rewards", rewards, rewards in get_args(Rewards), ", ".join(get_args(Rewards)))
        try:
            self.limits = Limits(**(limits or {}))
            self.history = None if history is None else HistoryPolicy(**history)
        except TypeError as error:
            raise BadArgument(f"the settings of the agent loop are not accepted: {error}.") from error
        self.rewards: Rewards = rewards
        self.host, self.retries = host, retries
        self.gamma = float(self.config.algorithm.get("gamma", 1.0))

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Output | list[Output]:
        """Play the episode of a row; return a list for the V1 trainer, one output for the older one.

        Raises:
            BadArgument: for a row that `write_dataset` did not write, or a result that the older trainer
                cannot take. NoVerdict: with the older trainer, for an episode without a verdict.
        """
        task = read_task(row.get("task"))
        several = "session_id" in row  # the V1 trainer tells its n samples apart
        if self.rewards == "turn" and not several:
            raise BadArgument("rewards: turn needs the V1 trainer (trainer.use_v1=true).")
        priority = int(row.get("priority", 0))
        agent = _Server(self, sampling_params, priority)
        job = Job(
            task,
            task.seed or 0,
            group=str(row.get("uid", "")),
            sample=int(row.get("session_id", 0)),
            salt=max(0, int(row.get("global_steps", 0))),
        )
        (episode,) = await rollout_async(
            [job],
            agent,
            limits=self.limits,
            history=self.history,
            host=self.host,
            retries=self.retries,
        )
        made = outputs(episode, rewards=self.rewards, gamma=self.gamma, logprobs=agent.logprobs)
        if not made:
            why = f"cannot train on {task.spec}, seed {task.seed}: {why_unscored(episode)}"
            if not several:
                raise NoVerdict(f"{why}; the V1 trainer (trainer.use_v1=true) can leave it out.")
            log.warning("%s; the episode is left out.", why)
        if several:
            return made
        if len(made) > 1:
            raise BadArgument(
                f"the episode of {task.spec}, seed {task.seed}, is {len(made)} rows, because its past was "
                "rewritten; the V1 trainer (trainer.use_v1=true) takes several."
            )
        return made[0]


class _Server(EngineAgent):
    """Samples from verl's servers."""

    def __init__(self, loop: GemAgentLoop, sampling: Mapping[str, Any], priority: int) -> None:
        rollout = loop.rollout_config
        super().__init__(
            _renderer(loop.tokenizer, _plain(loop.apply_chat_template_kwargs)),
            model=str(loop.config.actor_rollout_ref.model.get("path")),
            sampling=sampling,
            prompt_tokens=int(rollout.prompt_length),
            response_tokens=int(rollout.response_length),
            logprobs=bool(sampling.get("logprobs")),
        )
        self._client = loop.server_manager
        self._params = {**sampling, "stop_token_ids": sorted(self.renderer.stop_ids)}
        # One id for the whole episode keeps it on the server that has its prefix cached.
        self._request = f"det-{priority}" if rollout.get("full_determinism", False) else uuid4().hex
        self._priority = priority

    async def sample(self, ask: Ask, prompt_ids: tuple[int, ...], max_tokens: int | None) -> Reply:
        output = await self._client.generate(
            request_id=self._request,
            prompt_ids=list(prompt_ids),
            sampling_params={**self._params, "max_tokens": max_tokens},
            priority=self._priority,
        )
        if output.stop_reason in ("aborted", "abort"):
            raise NoVerdict("verl's server aborted the request.")
        fields = output.extra_fields
        extra = {"newest": fields.get("max_global_steps")}
        if output.routed_experts is not None:
            extra["routed_experts"] = output.routed_experts
        return Reply(
            "",
            token_ids=output.token_ids,
            logprobs=output.log_probs if self.logprobs else None,
            policy_version=fields.get("min_global_steps"),
            extra=extra,
        )


def _plain(options: Any) -> str:
    """Return verl's settings as JSON."""
    return json.dumps(OmegaConf.to_container(OmegaConf.create(options), resolve=True), sort_keys=True)


@lru_cache(maxsize=8)
def _renderer(tokenizer: Any, options: str) -> Renderer:
    """Return a tokenizer's renderer; cached, because verl makes an agent loop for every episode."""
    return ChatTemplateRenderer(tokenizer, **json.loads(options))


def outputs(
    episode: Episode, *, rewards: Rewards = "episode", gamma: float = 1.0, logprobs: bool = True
) -> list[Output]:
    """Return the rows of an episode in verl's form; [] without a verdict.

    With `rewards` ``turn``, the discounted return from each turn, computed over a row, equals the episode's.
    If turns of other rows lie between two turns of a row, their rewards are added to the earlier of the two.

    Args:
        episode: an episode of one seat.
        rewards: where rewards are put, see the module.
        gamma: the discount per turn, for ``turn``.
        logprobs: False leaves log probabilities out.

    Raises:
        BadArgument: for an episode of several seats, or whose turns have no tokens.
    """
    if episode.several:
        raise BadArgument(f"{episode.spec} has several seats; verl trains on one.")
    if not episode.scored:
        return []
    earned = turn_rewards(episode)
    returns = discounted_returns(earned, gamma)
    turns = episode.turns
    timing = episode.timing
    metrics = {"generate_sequences": timing.get("policy_s", 0.0), "tool_calls": timing.get("env_s", 0.0)}
    made = []
    for row in rows(episode):
        prompt, response = row.split()
        last = response.ends
        scores = [0.0] * len(response.ids)
        if rewards == "episode":
            scores[-1] = episode.reward()
        else:
            for turn, place in last.items():
                scores[place] = earned[turn]
            numbers = [*last, len(turns)]
            for turn, later in pairwise(numbers):
                if later != turn + 1:
                    following = gamma * returns[later] if later < len(turns) else 0.0
                    scores[last[turn]] = returns[turn] - following
        own = [turns[turn] for turn in last]
        oldest = [turn.policy_version for turn in own if turn.policy_version is not None]
        newest = [each for turn in own if (each := (turn.extra or {}).get("newest")) is not None]
        made.append(
            Output(
                prompt_ids=list(prompt.ids),
                response_ids=list(response.ids),
                response_mask=list(response.mask),
                response_logprobs=list(response.logprobs) if logprobs else None,
                routed_experts=(own[-1].extra or {}).get("routed_experts"),
                reward_score=episode.reward(),
                token_rewards=scores,
                num_turns=2 * len(turns),
                metrics=AgentLoopMetrics(**metrics),
                # verl takes the column names of a batch from one row, so all rows must have the same.
                extra_fields={
                    "turn_scores": [earned[turn] for turn in last],
                    "tool_rewards": [],
                    "min_global_steps": min(oldest, default=None),
                    "max_global_steps": max(newest, default=None),
                    "episode": episode.id,
                    "stop": str(episode.stop),
                    "reward_extra_info": {
                        "score": episode.reward(),
                        "success": math.nan if episode.success is None else float(episode.success),
                        "turns": len(turns),
                    },
                },
            )
        )
    return made


@register_adv_est("gem_rebn")
def rebn_advantages(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, config: Any = None, **others: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each token's advantage and return by Return Batch Normalisation: verl's ``gem_rebn``.

    A turn is a run of consecutive trained tokens. Its return is discounted per turn, by ``algorithm.gamma``,
    and normalised over all turns of the batch; see `gem.estimators.rebn`. A row without trained tokens, such
    as verl's padding, is ignored.

    Args:
        token_level_rewards: (batch, response), as ``rewards: turn`` sets them.
        response_mask: (batch, response), 1 for trained tokens.
        config: verl's ``algorithm``.
        **others: further arguments of verl, ignored.
    """
    gamma = 1.0 if config is None else float(config.gamma)
    mask = response_mask.bool().cpu()
    starts = mask & ~torch.nn.functional.pad(mask, (1, 0))[:, :-1]
    turn = torch.where(mask, starts.cumsum(1) - 1, -1)
    earned = token_level_rewards.detach().double().cpu()
    returns = [
        discounted_returns([earned[row, turn[row] == number].sum().item() for number in range(count)], gamma)
        for row, count in enumerate(starts.sum(1).tolist())
    ]
    return _spread(rebn(returns), turn, token_level_rewards), _spread(returns, turn, token_level_rewards)


def _spread(values: list[list[float]], turn: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Copy each turn's value to all its tokens, with 0 elsewhere."""
    made = torch.zeros(turn.shape, dtype=torch.float64)
    for row, turns in enumerate(values):
        if turns:
            made[row] = torch.where(turn[row] >= 0, torch.tensor(turns, dtype=torch.float64)[turn[row]], 0.0)
    return made.to(like)
