"""Train with SkyRL on gem's environments: a generator for its trainer.

::

    class Experiment(BasePPOExp):
        def get_generator(self, cfg, tokenizer, inference_engine_client):
            return GemGenerator(cfg.generator, inference_engine_client, tokenizer)

and a data set, ``write_dataset("train.jsonl", "game:GuessTheNumber-v0-easy", range(1000))``. The samples of a
prompt start from the same seed, each in its own environment; ``generator.max_turns``,
``generator.max_input_length`` and ``generator.sampling_params`` limit an episode.

Tokens are rendered and kept by gem. A turn's reward is on its last token. SkyRL takes one row of tokens per
sample: if an episode has several, because its past was rewritten, one of them is drawn uniformly at random,
and has the whole return. With ``generator.step_wise_trajectories`` SkyRL takes all rows, and reads the return
from the last.

An episode without a verdict is masked, and its return is set to the mean of the others in its group. This
does not change that mean, but a deviation is computed over one episode more. With step_wise_trajectories it
is left out completely, as long as another one of its group has a verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from typing import Any

from gem import seeding
from gem.adapters.engine import EngineAgent, token_rewards, why_unscored
from gem.adapters.prompts import read_task, seeded_tasks, task_text
from gem.adapters.records import write_lines
from gem.errors import BadArgument, NoVerdict, needs_extra
from gem.evals.results import find_successes_by_env
from gem.history import HistoryPolicy
from gem.record import Ask, Episode, Limits, Reply
from gem.rollout import Job, rollout_async
from gem.rollout.options import Store
from gem.specs import TaskRef
from gem.tokens.chat_template import ChatTemplateRenderer
from gem.tokens.renderer import Renderer
from gem.tokens.rows import Row, rows

with needs_extra("training with SkyRL", "skyrl", "skyrl"):
    from skyrl.backends.skyrl_train.inference_servers.engine_utils import get_sampling_params_for_backend
    from skyrl.train.generators.base import GeneratorInterface
    from skyrl.train.generators.utils import apply_overlong_filtering, get_rollout_metrics

NAME = "gem"
"""The class of environments, in the column env_class of the data set."""


def write_dataset(
    path: str | Path, envs: str | TaskRef | Iterable[str | TaskRef], seeds: Iterable[int]
) -> int:
    """Write SkyRL's data set as JSON lines, one episode per line, and return how many there are.

    Args:
        path: the file; its name ends with ``.jsonl``.
        envs: an id, or several; a TaskRef to give keywords or wrappers.
        seeds: each environment is played with each seed.

    Raises:
        BadArgument: when the file already exists; see `gem.adapters.prompts.seeded_tasks`.
    """
    lines = (
        {
            # SkyRL requires a prompt; the model is shown the environment's observation instead.
            "prompt": [{"role": "user", "content": f"{task.spec}, seed {task.seed}"}],
            "env_class": NAME,
            "data_source": task.spec,
            "task": task_text(task),
        }
        for task in seeded_tasks(envs, seeds)
    )
    return write_lines(lines, path)


@dataclass(slots=True)
class _Made:
    """A row for SkyRL, and the index of its episode in the batch."""

    place: int
    row: Row
    rewards: list[float]
    stop: str
    last: bool = True


class GemGenerator(GeneratorInterface):
    """A generator that plays the episodes of a batch with SkyRL's inference engine."""

    def __init__(
        self,
        generator_cfg: Any,
        inference_engine_client: Any,
        tokenizer: Any,
        policy_model_name: str | None = None,
        *,
        history: HistoryPolicy | None = None,
        host: str = "auto",
        retries: int = 1,
        store: Store | None = None,
    ) -> None:
        """Play with these settings.

        Args:
            generator_cfg: SkyRL's ``generator``.
            inference_engine_client: SkyRL's client.
            tokenizer: the model's tokenizer.
            policy_model_name: the model's name for the client.
            history: which past turns the model is shown.
            host: where environments run, by name; see gem.rollout.Runner.
            retries: how often an episode that infrastructure broke is played again.
            store: every episode is written there when it ends.

        Raises:
            BadArgument: for settings of the generator that gem does not support.
        """
        unknown = {
            "batched": generator_cfg.batched,
            "zero_reward_on_non_stop": generator_cfg.zero_reward_on_non_stop,
            "inference_engine.enable_return_routed_experts": (
                generator_cfg.inference_engine.enable_return_routed_experts
            ),
        }
        if wanted := [name for name, value in unknown.items() if value]:
            raise BadArgument(f"generator.{', generator.'.join(wanted)}: GemGenerator accepts only false.")
        self.generator_cfg = generator_cfg
        self._client, self._model = inference_engine_client, policy_model_name
        self._renderer = ChatTemplateRenderer(tokenizer, **generator_cfg.chat_template_kwargs)
        self._settings: dict[str, Any] = {
            "history": history,
            "host": host,
            "retries": retries,
            "store": store,
        }

    async def generate(self, input_batch: Mapping[str, Any], disable_tqdm: bool = False) -> dict[str, Any]:
        """Play an episode for each prompt of a batch and return their tokens in SkyRL's form.

        Raises:
            BadArgument: for a row that `write_dataset` did not write. NoVerdict: when no episode of the
                batch has a verdict.
        """
        cfg = self.generator_cfg
        params = input_batch.get("sampling_params")
        params = get_sampling_params_for_backend("vllm", cfg.sampling_params) if params is None else params
        most = params.get("max_tokens") or cfg.sampling_params.max_generate_length
        context = None if cfg.max_input_length is None else cfg.max_input_length + most
        agent = _Engine(self._renderer, self._client, self._model, params, cfg.use_cache_salt)
        given = input_batch.get("trajectory_ids")
        about = input_batch.get("batch_metadata")
        jobs = []
        for place, extras in enumerate(input_batch["env_extras"] or ({},) * len(input_batch["prompts"])):
            task = read_task(extras.get("task"))
            who = given[place] if given is not None else None
            jobs.append(
                Job(
                    task,
                    task.seed or 0,
                    group=who.instance_id if who else str(place),
                    sample=who.repetition_id if who else 0,
                    salt=max(0, about.global_step) if about else 0,
                )
            )
        limits = Limits(turns=cfg.max_turns, turn_tokens=most, context=context)
        try:
            episodes = await rollout_async(
                jobs, agent, limits=limits, concurrency=len(jobs), **self._settings
            )
        finally:
            for session in agent.sessions:
                await self._client.finish_session(session)
        made = _rows(episodes, cfg.step_wise_trajectories, min(self._renderer.stop_ids))
        masks = [list(each.row.mask) for each in made]
        stops = [each.stop for each in made]
        if cfg.apply_overlong_filtering:
            masks = apply_overlong_filtering(masks, stops)
        split = [each.row.split() for each in made]
        responses = [list(response.ids) for _, response in split]
        masks = [mask[len(prompt.ids) :] for mask, (prompt, _) in zip(masks, split, strict=True)]
        rewards = [each.rewards for each in made]
        times = [episode.timing["wall_s"] for episode in episodes]
        metrics = get_rollout_metrics(responses, rewards, loss_masks=masks, trajectory_completion_times=times)
        stepwise = cfg.step_wise_trajectories
        return {
            "prompt_token_ids": [list(prompt.ids) for prompt, _ in split],
            "response_ids": responses,
            "rewards": rewards,
            "loss_masks": masks,
            "stop_reasons": stops,
            "rollout_metrics": metrics | _metrics(episodes),
            "rollout_logprobs": [list(row.logprobs) for _, row in split] if agent.logprobs else None,
            "trajectory_ids": [given[each.place] for each in made] if stepwise and given else None,
            "trajectory_generation_times": [times[each.place] for each in made],
            "rollout_expert_indices": None,
            "is_last_step": [each.last for each in made] if stepwise else None,
            "env_metrics": [_about(episodes[each.place]) for each in made],
            "pixel_values": None,
            "image_grid_thw": None,
        }


def _rows(episodes: Sequence[Episode], stepwise: bool, blank: int) -> list[_Made]:
    """Return the rows of a batch, in its order.

    Raises:
        NoVerdict: where nothing is learned from any episode.
    """
    own = [rows(episode) if episode.scored else [] for episode in episodes]
    scores: dict[str, list[float]] = {}
    for episode, parts in zip(episodes, own, strict=True):
        if parts:
            scores.setdefault(episode.group, []).append(episode.reward())
    if not scores:
        raise NoVerdict(
            f"cannot train on any of {len(episodes)} episodes; the first: {why_unscored(episodes[0])}"
        )
    every = [score for group in scores.values() for score in group]
    made: list[_Made] = []
    kept: set[str] = set()  # the groups that have a row at least
    for place, (episode, parts) in enumerate(zip(episodes, own, strict=True)):
        group = episode.group
        if not parts and stepwise and (group in scores or group in kept):
            continue
        kept.add(group)
        if not parts:
            like = scores.get(group, every)
            row = Row([blank, blank], [0, 0], [0.0, 0.0], [-1, 0])
            made.append(_Made(place, row, [fsum(like) / len(like)], "error"))
            continue
        stop = episode.turns[-1].finish
        if stepwise:
            for row in parts:
                made.append(_Made(place, row, [0.0] * len(row.split()[1].ids), stop, row is parts[-1]))
            made[-1].rewards[-1] = episode.reward()
            continue
        chance = seeding.stream(episode.seed, "skyrl", "row", episode.sample, episode.salt)
        row = chance.choice(parts)
        made.append(_Made(place, row, token_rewards(episode, row, alone=len(parts) == 1), stop))
    return made


def _about(episode: Episode) -> dict[str, Any]:
    """Return the extra data that SkyRL logs with a row."""
    return {
        "episode": episode.id,
        "stop": str(episode.stop),
        "verdict": str(episode.verdict),
        "success": episode.success,
        "turns": len(episode.turns),
    }


def _metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return the metrics of a batch for SkyRL's logger."""
    outcomes = [won for won in find_successes_by_env(episodes) if won is not None]
    made = {"environment/gem/no_verdict": sum(not episode.scored for episode in episodes) / len(episodes)}
    if outcomes:
        made["environment/gem/success"] = sum(outcomes) / len(outcomes)
    return made


class _Engine(EngineAgent):
    """Samples from SkyRL's inference engine."""

    def __init__(
        self, renderer: Renderer, client: Any, model: str | None, params: Mapping[str, Any], salted: bool
    ) -> None:
        logprobs = params.get("logprobs") is not None
        super().__init__(renderer, model=model, sampling=params, logprobs=logprobs)
        self._client, self._name = client, model
        self._params = {**params, "stop_token_ids": sorted(renderer.stop_ids)}
        version = getattr(client, "weight_version", None)
        # Like SkyRL's own generator, do not read prefixes that other weights cached.
        self._salt = f"{model or ''}@{version}" if salted and version is not None else None
        self.sessions: dict[str, None] = {}

    async def sample(self, ask: Ask, prompt_ids: tuple[int, ...], max_tokens: int | None) -> Reply:
        self.sessions[ask.episode] = None  # the server keeps a session's cache together
        version = getattr(self._client, "weight_version", None)
        output = await self._client.generate(
            {
                "prompt_token_ids": [list(prompt_ids)],
                "session_ids": [ask.episode],
                "sampling_params": {**self._params, "max_tokens": max_tokens},
                "cache_salt": self._salt,
            },
            model=self._name,
        )
        if output["stop_reasons"][0] == "abort":
            raise NoVerdict("the engine aborted the request.")
        logprobs = output.get("response_logprobs")
        return Reply(
            "",
            token_ids=output["response_ids"][0],
            logprobs=logprobs[0] if self.logprobs and logprobs else None,
            policy_version=version if isinstance(version, int) else None,
        )
