"""Train with TRL's GRPOTrainer on gem's environments: by `rollout_func` or by `environment_factory`.

With `Rollouts` gem plays the episodes, with all its histories, limits and agents::

    with Rollouts(limits=Limits(turn_tokens=64)) as rollouts:
        GRPOTrainer(
            model,
            reward_funcs=episode_reward,
            train_dataset=dataset("game:GuessTheNumber-v0-easy", range(1000)),
            rollout_func=rollouts,
            args=GRPOConfig(...),
        ).train()

TRL's rollout functions get only prompts, so a prompt of `dataset` is a task: an environment and a seed. The
prompts of a group are equal; its episodes start from the same seed, and differ by sampling noise. A task
names code to import and call, so train only on data sets that you made.

Prompts and answers reach TRL as token ids; nothing is tokenised again. TRL takes one row of tokens per
episode. If an episode has several (its past was rewritten, by a history with a window or by text around only
the last observation), one of them is drawn uniformly at random: its expected gradient is the mean over them.

An episode without a verdict has the reward None and a row on which nothing is learned: TRL leaves it out of
its group's mean and deviation, and its advantage is 0.

With an `environment_factory` TRL plays: the model acts by calling tools, in its own chat template, and gets
pictures if it supports them. `ToolEnvironment` has one tool, ``act``, and plays any environment of a data
set. `gem.adapters.trl_tools.tool_environment` has an environment's own tools and needs no data set::

    GRPOTrainer(
        "Qwen/Qwen3-0.6B",
        environment_factory=tool_environment("db:Bank-v0-questions", group=8),
        args=GRPOConfig(num_generations=8, max_steps=100, ...),
    ).train()

Several environments are a dict; `tool_dataset` has the column that chooses among them::

    ids = ["db:Bank-v0-questions", "game:GuessTheNumber-v0-easy"]
    GRPOTrainer(
        "Qwen/Qwen3-0.6B",
        train_dataset=tool_dataset(ids, range(1000)),
        environment_factory={each: tool_environment(each) for each in ids},
        args=GRPOConfig(...),
    ).train()
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from math import isnan
from typing import Any

from gem import seeding
from gem.adapters.prompts import read_task, seeded_tasks, task_text
from gem.closing import Closing
from gem.content import Obs, Text, join
from gem.errors import BadArgument, ToolError, needs_extra
from gem.estimators import turn_rewards
from gem.evals.results import find_successes_by_env
from gem.history import HistoryPolicy
from gem.hosts import Host
from gem.record import Agent, Episode, Limits, Reply
from gem.rollout.conversation import Conversation
from gem.rollout.episode import NO_LIMITS
from gem.rollout.jobs import Job
from gem.rollout.options import Store
from gem.rollout.runner import Runner
from gem.specs import TaskRef
from gem.tokens.chat_template import ChatTemplateRenderer
from gem.tokens.rows import Row, rows

with needs_extra("training with TRL", "trl", "trl"):
    import trl  # noqa: F401
    from datasets import Dataset

from gem.agents.hugging_face import HuggingFaceAgent


def dataset(envs: str | TaskRef | Iterable[str | TaskRef], seeds: Iterable[int]) -> Dataset:
    """Return a data set whose prompts are tasks: each environment with each seed.

    Args:
        envs: an id, or several; a TaskRef to give keywords or wrappers.
        seeds: the seeds of the episodes.

    Raises:
        UnknownEnv: for an id that is not registered. BadArgument: for no environment, no seed, an
            environment of several seats, or one that cannot be made again from its task.
    """
    return Dataset.from_dict({"prompt": [task_text(task) for task in seeded_tasks(envs, seeds)]})


INSTRUCTION = "Act by calling tools, one action at a time, until you are told that the episode is over."


def tool_dataset(
    envs: str | TaskRef | Iterable[str | TaskRef], seeds: Iterable[int], instruction: str = INSTRUCTION
) -> Dataset:
    """Return a data set for an `environment_factory`: rows of a prompt, a task, and its environment's id.

    TRL reads the column `environment`, the id, where the factory is a dict.

    Args:
        envs: an id, or several; a TaskRef to give keywords or wrappers.
        seeds: the seeds of the episodes.
        instruction: the beginning of the user's message, before the observation.

    Raises:
        UnknownEnv, BadArgument: as `dataset`.
    """
    tasks = seeded_tasks(envs, seeds)
    prompt = [{"role": "user", "content": f"{instruction}\n\n"}]
    return Dataset.from_dict(
        {
            "prompt": [prompt] * len(tasks),
            "task": [task_text(task) for task in tasks],
            "environment": [task.spec for task in tasks],
        }
    )


def episode_reward(*, reward: Sequence[float | None], log_metric: Any = None, **columns: Any) -> list[Any]:
    """Return each episode's undiscounted sum of rewards, None without a verdict: a TRL reward function.

    It also logs the share of episodes without a verdict, and of solved ones among the others.
    """
    if log_metric is not None:
        solved = [success for success in columns.get("success", ()) if success is not None]
        log_metric("gem/no_verdict", sum(each is None for each in reward) / len(reward))
        if solved:
            log_metric("gem/success", sum(solved) / len(solved))
    return list(reward)


class Rollouts(Closing):
    """A `rollout_func` that plays the episodes of a TRL trainer.

    Answers are sampled from the trainer's own model, at its temperature and with at most
    `max_completion_length` tokens each, unless another `agent` is given. That agent must have the trainer's
    weights, and return token ids. The model must be whole in every process: not sharded by FSDP or by
    DeepSpeed's stage 3.

    Reward functions get these columns: `reward`, the sum of the episode's rewards, None without a verdict;
    `turn_rewards`, the reward of each turn, [] without a verdict; `turn_of`, the turn that sampled each token
    of the completion, -1 if none did; `success`, whether it was solved, None if unknown or if the
    environment does not report success; `stop`, why it ended; `turns`; `rows`, how many rows of tokens it
    has; `episode`, its id in the store.
    """

    def __init__(
        self,
        agent: Agent | None = None,
        *,
        limits: Limits = NO_LIMITS,
        history: HistoryPolicy | None = None,
        host: str | Host = "auto",
        concurrency: int = 128,
        store: Store | None = None,
        on_episode: Callable[[Episode], None] | None = None,
    ) -> None:
        """Play with these settings; see Runner.

        Args:
            agent: the agent that answers; None: the trainer's model, in this process.
            limits: outside limits.
            history: which past turns the model is shown.
            host: where environments run.
            concurrency: the number of episodes played at the same time.
            store: every episode is written there when it ends.
            on_episode: called with every episode.
        """
        self._agent = agent
        self._settings: dict[str, Any] = {
            "limits": limits,
            "history": history,
            "host": host,
            "concurrency": concurrency,
            "store": store,
            "on_episode": on_episode,
        }
        self._runner: Runner | None = None
        self._trainer: Any = None
        self._at: tuple[str, int, int] = ("", -1, 0)  # what for, the step, and the calls in it

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
        """Play an episode for each prompt and return their tokens in the form of a TRL rollout_func.

        Raises:
            BadArgument: for a prompt that is not of `dataset`, or sampling settings of the trainer that gem
                does not support.
        """
        tasks = [read_task(prompt) for prompt in prompts]
        runner = self._runner_of(trainer)
        step = int(trainer.state.global_step)
        # Evaluation has its own counter: a run resumed from a checkpoint gets the same training noise.
        what = "trl" if trainer.model.training else "trl-eval"
        self._at = (what, step, self._at[2] + 1 if self._at[:2] == (what, step) else 0)
        # A group may be spread over processes, each of which numbers its samples from 0.
        salt = seeding.derive(int(trainer.args.seed), *self._at, int(trainer.accelerator.process_index))
        calls = f"{'' if what == 'trl' else 'eval-'}{step}-{self._at[2]}"
        samples: Counter[str] = Counter()
        jobs: list[Job] = []
        for prompt, task in zip(prompts, tasks, strict=True):
            group = f"{calls}-{blake2b(prompt.encode(), digest_size=8).hexdigest()}"
            jobs.append(Job(task, task.seed or 0, group=group, sample=samples[prompt], salt=salt))
            samples[prompt] += 1
        runner.publish(step)
        episodes = runner.play(jobs)
        made = [rows(episode) if episode.scored else [] for episode in episodes]
        eos = _tokenizer_of(trainer).eos_token_id
        blank = Row((eos, eos), (0, 0), (0.0, 0.0), (-1, 0))  # TRL takes no empty one
        halves = [_one(each, episode, blank).split() for each, episode in zip(made, episodes, strict=True)]
        logprobs = [list(completion.logprobs) for _, completion in halves]
        known = not any(map(isnan, (each for row in logprobs for each in row)))
        return {
            "prompt_ids": [list(prompt.ids) for prompt, _ in halves],
            "completion_ids": [list(completion.ids) for _, completion in halves],
            "logprobs": logprobs if known else None,
            "env_mask": [list(completion.mask) for _, completion in halves],
            "reward": [episode.reward() if episode.scored else None for episode in episodes],
            "turn_of": [list(completion.turn) for _, completion in halves],
            "turn_rewards": [turn_rewards(episode) if episode.scored else [] for episode in episodes],
            "success": find_successes_by_env(episodes),
            "stop": [str(episode.stop) for episode in episodes],
            "turns": [len(episode.turns) for episode in episodes],
            "rows": [len(each) for each in made],
            "episode": [episode.id for episode in episodes],
        }

    def close(self) -> None:
        """Close the environments; calling it twice is harmless."""
        runner, self._runner, self._trainer = self._runner, None, None
        if runner is not None:
            runner.close()

    def _runner_of(self, trainer: Any) -> Runner:
        """Return the runner of a trainer's episodes; it is kept while the same trainer calls."""
        if self._runner is None or self._trainer is not trainer:
            self.close()
            self._runner = Runner(self._agent or _model_of(trainer), **self._settings)
            self._trainer, self._at = trainer, ("", -1, 0)
        return self._runner


def _model_of(trainer: Any) -> HuggingFaceAgent:
    """Return the trainer's model as an agent.

    Raises:
        BadArgument: when the trainer changes the sampling distribution in a way that gem does not support.
    """
    args = trainer.args
    plain = {"top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0, "generation_kwargs": None}
    changed = [name for name, value in plain.items() if (getattr(args, name, value) or value) != value]
    if changed:
        raise BadArgument(
            f"the trainer's {', '.join(changed)} would change the sampling; accepted: only a temperature, or "
            "an agent of your own, as Rollouts(agent=...)."
        )
    options = getattr(trainer, "chat_template_kwargs", None) or {}
    return HuggingFaceAgent(
        trainer.accelerator.unwrap_model(trainer.model),
        ChatTemplateRenderer(_tokenizer_of(trainer), **options),
        temperature=args.temperature,
        max_tokens=args.max_completion_length,
    )


def _tokenizer_of(trainer: Any) -> Any:
    """Return the trainer's tokenizer, also if it is inside an image processor."""
    return getattr(trainer.processing_class, "tokenizer", trainer.processing_class)


def _one(made: Sequence[Row], episode: Episode, blank: Row) -> Row:
    """Return one of an episode's rows, drawn uniformly; `blank` if there is none."""
    return seeding.stream(episode.seed, "trl", "row", episode.sample, episode.salt).choice(made or (blank,))


class Player:
    """An environment for TRL's `environment_factory`, without tools; its subclasses have them.

    The reward is the undiscounted sum of the episode's rewards, None without a verdict. A model that stops
    calling, or is cut off, keeps the rewards so far. The environment must have one seat.
    """

    def __init__(self, limits: Limits = NO_LIMITS) -> None:
        """Play with these outside limits."""
        self._limits = limits
        self._talk: Conversation | None = None

    def reset(self, *, task: str = "", **row: Any) -> str | list[dict[str, Any]]:
        """Start the episode of a row of `tool_dataset`, and return the first observation.

        Raises:
            BadArgument: for another row. GemError: when the environment cannot be made.
        """
        if not task:
            raise BadArgument(
                "a row without a task; accepted: rows of tool_dataset(), or no data set and "
                "tool_environment(ENV, group=num_generations) as the environment_factory."
            )
        self._begin(read_task(task))
        return self._read_message()

    def _begin(self, task: TaskRef) -> None:
        if self._talk is not None:
            self._talk.close()
        self._talk = Conversation(task, task.seed or 0, self._limits)

    def _answer(self, reply: Reply) -> str | list[dict[str, Any]]:
        """Answer the environment, if it still asks, and return its next message."""
        if self._talk is not None and self._talk.asks:
            self._talk.answer(reply)
        return self._read_message()

    def get_reward(self) -> float | None:
        """Return the sum of rewards, None without a verdict, and end the episode."""
        talk = self._talk
        if talk is None or (talk.done and not talk.episode.scored):
            return None
        earned = talk.reward
        talk.close()
        return earned

    def _read_message(self) -> str | list[dict[str, Any]]:
        """Return the environment's current message."""
        assert self._talk is not None
        if self._talk.asks:
            return _content(self._talk.asks[0].messages[-1].content)
        last = self._talk.episode.final_observation
        return _content(join([last, "The episode is over."]))


class ToolEnvironment(Player):
    """A player of any environment of a data set; the model acts by calling the tool `act`.

    Give limits with ``environment_factory=functools.partial(ToolEnvironment, Limits(turns=10))``.
    `gem.adapters.trl_tools.tool_environment` has an environment's own tools instead.
    """

    def act(self, action: str) -> Any:
        """Act in the environment.

        Args:
            action: What to do, in the form that the environment asks for.
        """
        if not isinstance(action, str):
            raise ToolError("An action is text.")
        return self._answer(Reply(action))


def _content(obs: Obs) -> str | list[dict[str, Any]]:
    """Return an observation as the content of a message: text, or text and pictures in turn."""
    if isinstance(obs, str):
        return obs
    from io import BytesIO

    with needs_extra("an observation with pictures", "pillow", "vision"):
        from PIL import Image as Picture
    return [
        {"type": "text", "text": part.text}
        if isinstance(part, Text)
        else {"type": "image", "image": Picture.open(BytesIO(part.data))}
        for part in obs
    ]
