"""Train with OpenRLHF on gem's environments: an agent executor for its PPO trainer.

A file of your own, for ``--train.agent_func_path``::

    from gem.adapters.openrlhf import GemExecutor
    from gem.record import Limits

    class AgentExecutor(GemExecutor):
        limits = Limits(turns=8, turn_tokens=256)

and a data set, ``write_dataset("train.jsonl", "game:GuessTheNumber-v0-easy", range(1000))``, whose rows are
tasks: ``--data.prompt_dataset train.jsonl --data.input_key input --data.label_key label``. The samples of a
prompt start from the same seed, each in its own environment.

Tokens are rendered and kept by gem. OpenRLHF takes one row of tokens per sample and one number as its reward,
the sum over the turns. If an episode has several rows, because its past was rewritten, one of them is drawn
uniformly at random.

OpenRLHF compares a fixed number of samples per prompt, so a single one cannot be left out. An episode without
a verdict is played again, `retries` times. Then `NoVerdict` ends the run; or, with ``filtered = True`` and
``--algo.dynamic_filtering_enable``, its prompt is dropped with all its samples and replaced by another. It is
never a reward of 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from gem import seeding
from gem.adapters.engine import EngineAgent, why_unscored
from gem.adapters.prompts import read_task, seeded_tasks, task_text
from gem.adapters.records import write_lines
from gem.errors import NoVerdict, needs_extra
from gem.history import HistoryPolicy
from gem.record import Ask, Episode, Limits, Reply
from gem.rollout import Job, rollout_async
from gem.specs import TaskRef
from gem.tokens.chat_template import ChatTemplateRenderer
from gem.tokens.renderer import Renderer
from gem.tokens.rows import Row, rows

with needs_extra("training with OpenRLHF", "openrlhf", "openrlhf"):
    from openrlhf.utils.agent import AgentExecutorBase


def write_dataset(
    path: str | Path, envs: str | TaskRef | Iterable[str | TaskRef], seeds: Iterable[int]
) -> int:
    """Write OpenRLHF's data set as JSON lines, one episode per line, and return how many there are.

    Args:
        path: the file.
        envs: an id, or several; a TaskRef to give keywords or wrappers.
        seeds: each environment is played with each seed.

    Raises:
        BadArgument: when the file already exists; see `gem.adapters.prompts.seeded_tasks`.
    """
    lines = (
        {
            # OpenRLHF shows the input only in logs; the model is shown the environment's observation.
            "input": f"{task.spec}, seed {task.seed}",
            "label": task_text(task),
            "datasource": task.spec,
        }
        for task in seeded_tasks(envs, seeds)
    )
    return write_lines(lines, path)


class GemExecutor(AgentExecutorBase):
    """An executor that plays the episode of a data set row with OpenRLHF's engine; subclass to configure."""

    limits: ClassVar[Limits] = Limits()
    """Outside limits. The trainer's ``max_len`` also limits prompt and answers together."""

    history: ClassVar[HistoryPolicy | None] = None
    """Which past turns the model is shown."""

    template: ClassVar[Mapping[str, Any]] = {}
    """Options of the chat template, such as ``enable_thinking``."""

    host: ClassVar[str] = "auto"
    """Where environments run: use ``thread`` or ``process`` for slow ones, because all episodes of an actor
    share its event loop; see gem.rollout.Runner."""

    retries: ClassVar[int] = 1
    """How often an episode without a verdict is played again, whatever the cause."""

    filtered: ClassVar[bool] = False
    """Give an episode without a verdict the reward NaN, for a trainer that filters prompts by score."""

    _renderer: Renderer | None = None

    async def execute(
        self,
        prompt: str,
        label: str,
        sampling_params: Any,
        max_length: int,
        hf_tokenizer: Any,
        llm_engine: Any,
        images: Any = None,
    ) -> dict[str, Any]:
        """Play the episode of the task `label`, and return its tokens.

        Raises:
            BadArgument: for a label that `write_dataset` did not write. NoVerdict: for an episode without a
                verdict, unless `filtered`.
        """
        task = read_task(label)
        if self._renderer is None:  # every call brings a copy of the one tokenizer
            self._renderer = ChatTemplateRenderer(hf_tokenizer, **self.template)
        agent = _Engine(self._renderer, llm_engine, sampling_params)
        context = min(max_length, self.limits.context or max_length)
        limits = replace(self.limits, context=context)
        for _ in range(1 + self.retries):
            job = Job(task, task.seed or 0, group=label)
            (episode,) = await rollout_async(
                [job], agent, limits=limits, history=self.history, host=self.host, retries=0
            )
            made = rows(episode) if episode.scored else []
            if made:
                chance = seeding.stream(episode.seed, "openrlhf", "row", episode.id)
                return _make_row(prompt, label, episode, chance.choice(made), agent.logprobs)
        if not self.filtered:
            raise NoVerdict(
                f"cannot train on {task.spec}, seed {task.seed}: {why_unscored(episode)}; to drop such "
                "prompts, set filtered = True and --algo.dynamic_filtering_enable."
            )
        end = min(self._renderer.stop_ids)
        row = Row([end, end], [0, 0], [0.0, 0.0], [-1, -1])
        return _make_row(prompt, label, episode, row, agent.logprobs)


def _make_row(prompt: str, label: str, episode: Episode, row: Row, logprobs: bool) -> dict[str, Any]:
    """Return a row in OpenRLHF's form; rewards are NaN without a verdict."""
    learned = any(row.mask)
    reward = episode.reward() if learned else math.nan
    success = math.nan if episode.success is None else float(episode.success)
    return {
        "prompt": prompt,
        "label": label,
        "images": None,
        "mm_train_inputs": None,
        "reward": reward,
        "scores": success if learned and episode.success is not None else reward,
        "observation_tokens": list(row.ids),
        "action_ranges": _runs(row.mask),
        "rollout_log_probs": list(row.logprobs) if logprobs else None,
        "truncated": bool(episode.turns) and episode.turns[-1].finish == "length",
        "extra_logs": {"turns": float(len(episode.turns)), "success": success},
    }


def _runs(mask: Any) -> list[tuple[int, int]]:
    """Return where runs of ones begin and end."""
    edges = [place for place, (before, here) in enumerate(pairwise((0, *mask, 0))) if before != here]
    return list(zip(edges[::2], edges[1::2], strict=True))


class _Engine(EngineAgent):
    """Samples from OpenRLHF's engine, vLLM."""

    def __init__(self, renderer: Renderer, engine: Any, params: Any) -> None:
        names = ("temperature", "top_p", "top_k", "max_tokens")
        sampling = {name: getattr(params, name, None) for name in names}
        super().__init__(renderer, sampling=sampling, logprobs=params.logprobs is not None)
        self._engine, self._params = engine, params

    async def sample(self, ask: Ask, prompt_ids: tuple[int, ...], max_tokens: int | None) -> Reply:
        params = deepcopy(self._params)  # the samples of a prompt share them
        limits = [limit for limit in (params.max_tokens, max_tokens) if limit is not None]
        params.max_tokens = min(limits, default=None)
        # By itself the engine stops only at the model's end token, which may not be the end of a turn.
        params.stop_token_ids = sorted(self.renderer.stop_ids)
        answer = await self._engine.generate(list(prompt_ids), params, multi_modal_data=None)
        output = answer.outputs[0]
        if output.finish_reason == "abort":
            raise NoVerdict("the engine aborted the request.")
        ids = tuple(output.token_ids)
        logprobs = None
        if self.logprobs and output.logprobs is not None:
            logprobs = [
                candidates[token].logprob for token, candidates in zip(ids, output.logprobs, strict=True)
            ]
        return Reply("", token_ids=ids, logprobs=logprobs)
