"""Train with ROLL on gem's environments: an environment manager that uses gem's own loop and record.

gem has the names that ROLL imports (`make`, `register`, `Env`), so ROLL's TrajEnvManager can play gem's
environments unchanged. Use this manager instead to get the features below::

    custom_envs:
      Guess:
        env_type: game:GuessTheNumber-v0-easy
        env_manager_cls: gem.adapters.roll.GemEnvManager
        max_steps: 10
        max_tokens_per_step: 256
        agent_system_template: null     # a system message
        agent_template: null            # gem's environments say themselves what they want
        wrappers: ""                    # gem's wrappers by name, such as python_tool
        env_config: {}
    train_env_manager:                  # and val_env_manager
      group_filter_cls: gem.adapters.roll.GroupFilter

A truncated episode ends. Each turn's reward is on the last token of its answer, and ROLL sums those of a row;
`step_scores` has them by turn. A conversation that is not append-only is several rows, and each has the whole
return. An episode without a verdict is played once more; then its group is dropped and replaced by another.
It is never a score of 0. Pictures appear as their `alt`.
"""

from __future__ import annotations

from typing import Any

from gem import seeding
from gem.adapters.engine import token_rewards
from gem.core import Env
from gem.errors import BadArgument, MissingExtra, NoVerdict
from gem.history import HistoryPolicy
from gem.record import Ask, Call, Episode, Limits, Reply, RunInfo
from gem.rollout.conversation import Conversation, carry_out
from gem.rollout.episode import versions
from gem.tokens.chat_template import ChatTemplateRenderer
from gem.tokens.renderer import render
from gem.tokens.rows import Row, rows
from gem.tokens.sampled_calls import read_answer
from gem.wrappers.wrapper_factory import get_wrapper_fns

try:
    import numpy as np
    import ray
    import torch
    from roll.distributed.scheduler.protocol import DataProto
    from roll.pipeline.agentic.env_manager.traj_env_manager import TrajEnvManager
    from roll.utils.functionals import pad_to_length
    from tensordict import TensorDict
except ImportError as error:
    raise MissingExtra(
        f"ROLL's environment manager needs ROLL ({error}): pip install 'git+https://github.com/alibaba/ROLL'"
    ) from error

RETRIES = 1
"""How often an episode that infrastructure broke is played again."""

PATIENCE = 10
"""The number of consecutive episodes without a verdict after which the rollout stops."""

NO_VERDICT = "drop_flag"
"""The mark of a rollout whose group is to be dropped; ROLL's own managers set it too."""


class GroupFilter:
    """A filter that drops every group with an episode without a verdict; ROLL then starts another group."""

    def __init__(self, *given: Any, **named: Any) -> None:
        """Accept the arguments that ROLL gives every filter; they are not used."""

    def filter(self, group_id: int, episode_id: int, group: list[DataProto | None]) -> bool:
        """Return whether to drop a group."""
        return any(rollout is not None and rollout.meta_info.get(NO_VERDICT, False) for rollout in group)


class GemEnvManager(TrajEnvManager):
    """A manager that plays one environment, episode after episode, until ROLL stops it."""

    env: Env

    def __init__(self, worker_config: Any, *given: Any, **named: Any) -> None:
        """Make the environment; the arguments are those of TrajEnvManager.

        Raises:
            BadArgument: for an `agent_template`, or another group filter.
        """
        super().__init__(worker_config, *given, **named)
        if self.agent_template is not None:
            raise BadArgument(
                "agent_template is not used; set it to null, because gem's environments write the prompt."
            )
        if not str(worker_config.group_filter_cls).startswith(__name__):
            raise BadArgument(
                f"group_filter_cls is {worker_config.group_filter_cls}; accepted: {__name__}.GroupFilter, "
                "because without it an episode without a verdict would count as 0."
            )
        longest = min(self.env_config["max_tokens_per_step"], worker_config.generating_args.max_new_tokens)
        for wrap in get_wrapper_fns(self.cfg_template.get("wrappers") or "", self.tokenizer):
            self.env = wrap(self.env)
        self.renderer = ChatTemplateRenderer(self.tokenizer)
        self.history = HistoryPolicy("chat", system=self.agent_system_template or None)
        self.limits = Limits(
            turns=self.env_config["max_steps"],
            turn_tokens=longest,
            context=self.pipeline_config.sequence_length,
        )
        self.info = RunInfo(agent="ROLL", limits=self.limits, history=self.history, versions=versions())

    def run_rollout_loop(self, data: DataProto) -> None:
        """Play episodes and put them into ROLL's queue, until it has enough.

        Raises:
            NoVerdict: when too many consecutive episodes had no verdict.
        """
        self.running = True
        base, group, sample = (self.env_config[key] for key in ("group_seed", "group_id", "env_id"))
        self.group_seed = seeding.derive(data.meta_info["seed"], "group", base)
        broken = 0
        while self.running:
            number = ray.get(self.output_queue.get_episode_id.remote(group, sample))
            if number is None:
                break
            self.episode_id, began = number, self.current_step
            job = f"{self.env_config['tag']}_{group}_{number}_{self.group_seed}"
            episode = self.play(job, seeding.derive(self.group_seed, number))
            if episode is None:
                break
            usable = episode.scored and bool(episode.turns)
            broken = 0 if episode.scored else broken + 1
            if broken == PATIENCE:
                raise NoVerdict(f"{PATIENCE} episodes of {episode.spec} broke; the last: {episode.error}")
            self.queue_rollout(began, self.make_rollout(episode) if usable else self.make_placeholder())
        self.queue_rollout(self.current_step, None)

    def queue_rollout(self, began: int, rollout: DataProto | None) -> None:
        """Put a rollout into ROLL's queue; None means that there are no more."""
        group, sample = self.env_config["group_id"], self.env_config["env_id"]
        ray.get(self.output_queue.put.remote(group, self.episode_id, began, rollout, sample))

    def play(self, job: str, seed: int) -> Episode | None:
        """Play one episode; return None if ROLL stops before its end."""
        known: Any = {"run": self.info, "history": self.history, "job": job, "group": job, "call": self._call}
        for attempt in range(1 + RETRIES):
            talk = Conversation(self.env, seed, self.limits, sample=self.env_config["env_id"], **known)
            with talk:
                talk.episode.attempt = attempt
                while talk.asks and self.running:
                    reply = self.answer(talk.asks[0])
                    if reply is None:
                        continue  # ROLL aborted it, to replace the weights: ask again
                    if reply.token_ids or reply.finish == "context":
                        talk.answer(reply)
                    else:
                        talk.fail(NoVerdict("no token was sampled"))
                if not talk.done:
                    return None
            if talk.episode.scored:
                break
            self.logger.warning(f"no verdict: {talk.episode.error}")
        return talk.episode

    def answer(self, ask: Ask) -> Reply | None:
        """Return the policy's sample; None if ROLL aborts the request."""
        prompt = render(self.renderer, ask)
        room = self.pipeline_config.sequence_length - len(prompt)
        if room < 1:
            return Reply("", prompt, finish="context")
        room = room if ask.max_tokens is None else min(room, ask.max_tokens)
        asked = self._make_request(prompt)
        output = self.llm_proxy.generate(
            messages=[{"role": message.role, "content": message.text} for message in ask.messages],
            lm_input=asked,
            generation_config={**self.worker_config.generating_args.to_dict(), "max_new_tokens": room},
        )
        if output is None:
            return None
        ids = tuple(output.batch["responses"][0].tolist())
        logprobs = None
        if "infer_logprobs" in output.batch:
            logprobs = tuple(output.batch["infer_logprobs"][0].tolist()[-len(ids) :])
        text, calls = read_answer(self.renderer, ids, ask)
        finish = "stop" if ids and ids[-1] in self.renderer.stop_ids else "length"
        return Reply(text, prompt, ids, logprobs, finish, tool_calls=calls)

    def _make_request(self, prompt: tuple[int, ...]) -> DataProto:
        """Return a prompt in the form of ROLL's engines."""
        columns = {
            "input_ids": torch.tensor([prompt]),
            "attention_mask": torch.ones(1, len(prompt), dtype=torch.long),
            "position_ids": torch.arange(len(prompt))[None],
        }
        asked = DataProto(batch=TensorDict(columns, batch_size=1))
        asked.meta_info["src_rank"] = self.env_config["env_id"]
        return asked

    def _call(self, call: Call) -> Any:
        with self.thread_lock, self.env_step_limiter:
            return carry_out(call)

    def make_rollout(self, episode: Episode) -> DataProto:
        """Return the rows of an episode in ROLL's form for training."""
        parts = rows(episode)
        made = [self.row(episode, row, alone=len(parts) == 1) for row in parts]
        rollout = DataProto.concat(made)
        tag = self.env_config["tag"]
        metrics = {"num_actions": len(episode.turns), "truncated": float(episode.truncated)}
        if episode.success is not None:
            metrics["success"] = float(episode.success)
        sampled = sum(len(turn.token_ids) for turn in episode.turns)
        rollout.meta_info = {
            "metrics": {f"env/{tag}/{name}": value for name, value in metrics.items()}
            | {"env/response_length": sampled / len(made)}
        }
        return rollout

    def row(self, episode: Episode, row: Row, *, alone: bool = True) -> DataProto:
        """Return one row, padded to ROLL's sequence length; `alone`: whether it is the episode's only one."""
        count, turns = len(row.ids), episode.turns_of()
        ids, mask = torch.tensor(list(row.ids)), torch.tensor(list(row.mask), dtype=torch.bool)
        steps = [turns[number].reward or 0.0 for number in sorted({turn for turn in row.turn if turn >= 0})]
        first = len(row.split()[0].ids)
        scores = torch.tensor([0.0] * first + token_rewards(episode, row, alone=alone))
        columns = {
            "input_ids": (ids, self.tokenizer.pad_token_id),
            "attention_mask": (torch.ones(count, dtype=torch.long), 0),
            "position_ids": (torch.arange(count), 0),
            "response_mask": (mask, 0),
            "prompt_mask": (torch.arange(count) < first, 0),
            "scores": (scores, 0),
        }
        logprobs = torch.tensor(list(row.logprobs))
        if not logprobs.isnan().any():
            columns["infer_logprobs"] = (logprobs, 0)
        length = self.pipeline_config.sequence_length
        batch = {
            name: pad_to_length(column[None], length=length, pad_value=pad)
            for name, (column, pad) in columns.items()
        }
        if "infer_logprobs" in batch:
            batch["infer_logprobs"] = batch["infer_logprobs"][:, 1:]
        about = {"step_scores": steps, "episode_scores": episode.reward(), "traj_id": episode.id}
        return DataProto(batch=TensorDict(batch, batch_size=1), non_tensor_batch=self._about(**about))

    def make_placeholder(self) -> DataProto:
        """Return the placeholder of an episode without a verdict, until its group is dropped."""
        nothing = {"input_ids": torch.full((1, 1), self.tokenizer.pad_token_id)}
        return DataProto(batch=TensorDict(nothing, batch_size=1), meta_info={NO_VERDICT: True, "metrics": {}})

    def _about(self, **more: Any) -> dict[str, Any]:
        """Return ROLL's non-tensor data: arrays with one object each."""
        tag, group = self.env_config["tag"], self.env_config["group_id"]
        values = {
            "env_ids": self.env_config["env_id"],
            "group_ids": group,
            "tags": tag,
            "traj_group_id": f"{tag}_{group}_{self.episode_id}_{self.group_seed}",
            **more,
        }
        about = {}
        for name, value in values.items():
            about[name] = np.empty(1, dtype=object)
            about[name][0] = value
        return about
