"""Train with RL2 on gem's environments: the `generate` function for its ``rollout.env_path``.

::

    from gem.adapters.rl2 import generate, write_tasks

RL2's data set is a file of tasks (`write_tasks`), each with an environment's id and a seed; each sample of a
group has a fresh environment. Prompts and answers go to and from RL2's SGLang router as token ids. Each
turn's reward is on the last token of its answer; a conversation that is not append-only is several sequences.
RL2 cannot represent an episode without a verdict, and would count an empty one as 0. Such an episode is
played again, `RETRIES` times; then NoVerdict ends the run. Pictures appear as their `alt`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

from gem.adapters.prompts import read_task, seeded_tasks, task_text
from gem.adapters.records import whole_file
from gem.agents.token_server import TokenServerAgent
from gem.errors import BadArgument, NoVerdict
from gem.record import Episode, Limits
from gem.rollout import Job, rollout_async
from gem.specs import TaskRef
from gem.tokens.chat_template import ChatTemplateRenderer
from gem.tokens.rows import Row, rows

RETRIES = 3
"""How often an episode that infrastructure broke is played again."""

_samples = count()
"""The numbers of this process's episodes; the samples of a task differ only in this number."""


def write_tasks(
    path: str | Path,
    envs: str | TaskRef | Iterable[str | TaskRef],
    seeds: Iterable[int],
    *,
    turns: int | None = None,
) -> None:
    """Write RL2's data set as JSON lines: each environment with each seed.

    Args:
        path: the file; ``rollout.train.path`` names it.
        envs: ids of environments; tasks to give keywords or wrappers.
        seeds: the seeds of the episodes.
        turns: truncate each episode after this many turns.

    Raises:
        BadArgument: when the file already exists; see `gem.adapters.prompts.seeded_tasks`.
    """
    made = [{"task": task_text(task), "turns": turns} for task in seeded_tasks(envs, seeds)]
    with whole_file(Path(path)) as part:
        part.write_text("".join(json.dumps(row) + "\n" for row in made), encoding="utf-8")


async def generate(config: Any, tokenizer: Any, router_url: str, sample: Any) -> None:
    """Play the episode of one sample and write it into the sample; RL2 calls this.

    Args:
        config: ``rollout.train`` or ``rollout.test``; its sampling parameters may be `temperature` and
            `max_new_tokens`.
        tokenizer: the model's tokenizer.
        router_url: the address of RL2's SGLang router.
        sample: RL2's Sample of a task.

    Raises:
        BadArgument: for a setting that is not accepted, or a row that is not a task. NoVerdict: when the
            episode broke every time, or has no turn to learn from.
    """
    agent = _agent(router_url, tokenizer, *_settings(config))
    job = _job(sample.sample)
    (episode,) = await rollout_async([job], agent, limits=job.limits or Limits(), retries=RETRIES)
    if not episode.scored:
        raise NoVerdict(f"{1 + RETRIES} tries of {episode.spec}, seed {job.seed}: {episode.error}")
    if not episode.turns:
        raise NoVerdict(f"{episode.spec}, seed {job.seed}: it ended before a turn ({episode.stop}).")
    fill(sample, episode, agent.renderer.decode)


def fill(sample: Any, episode: Episode, decode: Any) -> None:
    """Write an episode into RL2's Sample."""
    rewards = [turn.reward or 0.0 for turn in episode.turns]
    sample.state_dicts = [_sequence(row, rewards) for row in rows(episode)]
    last = episode.turns[-1]
    sample.state_text, sample.action_text = decode(last.prompt_ids), decode(last.token_ids)
    sample.turn = len(episode.turns)
    sample.metrics["turns"].append(len(episode.turns))
    sample.metrics["rewards"].append(episode.reward())
    for turn in episode.turns:
        sample.metrics["response_length"].append(len(turn.token_ids))
        sample.metrics["length_clip_ratio"].append(turn.finish == "length")
    if episode.success is not None:
        sample.metrics["success"].append(episode.success)
    sample.status = type(sample).Status.DONE


def _sequence(row: Row, rewards: Sequence[float]) -> dict[str, list[int] | list[float]]:
    earned = [0.0] * len(row.ids)
    for turn, place in row.ends.items():
        earned[place] = rewards[turn]
    return {
        "states": list(row.ids),
        "actions": [token if learned else 0 for token, learned in zip(row.ids, row.mask, strict=True)],
        "action_mask": list(row.mask),
        "logps": list(row.logprobs),
        "rewards": earned,
    }


def _job(row: Mapping[str, Any]) -> Job:
    task = read_task(row.get("task"))
    return Job(task, task.seed or 0, sample=next(_samples), limits=Limits(turns=row.get("turns")))


def _settings(config: Any) -> tuple[float, int]:
    if config.get("partial_rollout"):
        raise BadArgument("partial_rollout is true; accepted: false, because episodes are played to the end.")
    given = {key: value for key, value in dict(config["sampling_params"]).items() if value is not None}
    temperature, longest = given.pop("temperature", 1.0), given.pop("max_new_tokens", 1024)
    if given:
        raise BadArgument(f"sampling_params has {', '.join(given)}; accepted: temperature, max_new_tokens.")
    return float(temperature), int(longest)


@lru_cache(maxsize=4)
def _agent(url: str, tokenizer: Any, temperature: float, max_tokens: int) -> TokenServerAgent:
    """Return the agent of a router with these settings; RL2 trains and tests with different ones."""
    renderer = ChatTemplateRenderer(tokenizer)
    return TokenServerAgent(url, renderer, "sglang", temperature=temperature, max_tokens=max_tokens)
