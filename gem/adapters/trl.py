"""gem's environments in TRL's GRPOTrainer: as its `rollout_func`, or behind a tool, as `environment_factory`.

With `Rollouts` gem plays the episodes, with every history, limit and agent that it has::

    with Rollouts(limits=Limits(turn_tokens=64)) as rollouts:
        GRPOTrainer(
            model,
            reward_funcs=episode_reward,
            train_dataset=dataset("game:GuessTheNumber-v0-easy", range(1000)),
            rollout_func=rollouts,
            args=GRPOConfig(...),
        ).train()

TRL's rollout functions are given prompts alone, so a prompt of `dataset` is a task: what makes the
environment, and its seed. The prompts of a group are equal; its episodes begin from the same seed, and differ
by the noise of sampling. A task names what is imported and called: train on data sets that you made.

What the model saw and sampled reaches TRL as token ids; nothing is tokenised again. TRL takes one row of
tokens per episode. Where an episode has several (its past was rewritten: a history with a window, text that
stands around the last observation alone), one of them is drawn, each with the same chance: what it gives is,
in expectation, the mean over them.

An episode without verdict has the reward None and a row on which nothing is learned: TRL leaves it out of
its group's mean and deviation, and its advantage is 0.

With `ToolEnvironment` TRL plays: the model acts by calling the tool ``act``, in its own chat template, and is
shown pictures where it can see them::

    GRPOTrainer(
        "Qwen/Qwen3-0.6B",
        train_dataset=tool_dataset("game:GuessTheNumber-v0-easy", range(1000)),
        environment_factory=ToolEnvironment,
        args=GRPOConfig(...),
    ).train()
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from math import isnan
from typing import Any, Self

from gem import seeding
from gem.adapters.prompts import read_task, seeded_tasks, task_text
from gem.content import Obs, Text, join
from gem.errors import BadArgument, ToolError, missing_extra
from gem.estimators import turn_rewards
from gem.history import HistoryPolicy
from gem.hosts import Host
from gem.record import Agent, Episode, Limits
from gem.rollout.conversation import Conversation
from gem.rollout.episode import NO_LIMITS
from gem.rollout.runner import Job, Runner, Store
from gem.specs import TaskRef
from gem.tokens.chat_template import ChatTemplateRenderer
from gem.tokens.rows import Row, rows

try:
    import trl  # noqa: F401
    from datasets import Dataset
except ImportError as error:
    raise missing_extra("training with TRL", "trl", "trl") from error

from gem.agents.hugging_face import HuggingFaceAgent


def dataset(envs: str | TaskRef | Iterable[str | TaskRef], seeds: Iterable[int]) -> Dataset:
    """Return a data set whose prompts are tasks: each environment with each seed.

    Args:
        envs: an id, or several; a TaskRef where keywords or wrappers are wanted.
        seeds: of the episodes.

    Raises:
        UnknownEnv: for an id that nobody registered. BadArgument: for no environment, no seed, an
            environment of several seats, or one that cannot be made again from its task.
    """
    return Dataset.from_dict({"prompt": [task_text(task) for task in seeded_tasks(envs, seeds)]})


INSTRUCTION = (
    "Act by calling the tool `act`, one action at a time, until you are told that the episode is over."
)


def tool_dataset(
    envs: str | TaskRef | Iterable[str | TaskRef], seeds: Iterable[int], instruction: str = INSTRUCTION
) -> Dataset:
    """Return a data set for `ToolEnvironment`: a task in each row, and what the first observation follows.

    Args:
        envs: an id, or several; a TaskRef where keywords or wrappers are wanted.
        seeds: of the episodes.
        instruction: the beginning of the user's message, before the observation.

    Raises:
        UnknownEnv, BadArgument: as `dataset`.
    """
    texts = [task_text(task) for task in seeded_tasks(envs, seeds)]
    prompt = [{"role": "user", "content": f"{instruction}\n\n"}]
    return Dataset.from_dict({"prompt": [prompt] * len(texts), "task": texts})


def episode_reward(*, reward: Sequence[float | None], log_metric: Any = None, **columns: Any) -> list[Any]:
    """Return the undiscounted sum of each episode's rewards, None without verdict: a reward function of TRL.

    It also logs the share of episodes without verdict, and of solved ones among the others.
    """
    if log_metric is not None:
        solved = [success for success in columns.get("success", ()) if success is not None]
        log_metric("gem/no_verdict", sum(each is None for each in reward) / len(reward))
        if solved:
            log_metric("gem/success", sum(solved) / len(solved))
    return list(reward)


class Rollouts:
    """Plays the episodes of a TRL trainer: its `rollout_func`.

    Answers are sampled from the trainer's own model, at its temperature and with at most
    `max_completion_length` tokens each, unless another `agent` is given; that one has to have the trainer's
    weights, and to return token ids. The model has to be whole in every process: not split by FSDP or by
    DeepSpeed's stage 3.

    Reward functions find beside the prompt of each episode: `reward`, the sum of its rewards, None without
    verdict; `turn_rewards`, what each turn earned, [] without verdict; `turn_of`, the turn that sampled each
    token of the completion, -1 where none did; `success`, whether it was solved, None
    where nobody knows; `stop`, why it ended; `turns`; `rows`, how many rows of tokens it has; `episode`, its
    id in the store.
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
            agent: who answers; None: the trainer's model, in this process.
            limits: limits from outside.
            history: which past turns the model is shown.
            host: where environments live.
            concurrency: episodes in flight.
            store: every episode is written there as it ends.
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
        self._at: tuple[int, int] = (-1, 0)  # the step, and the calls in it

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
        """Play an episode for each prompt and return their tokens, as TRL wants them from a rollout_func.

        Raises:
            BadArgument: for a prompt that is not of `dataset`, or settings of the trainer that gem does not
                sample with.
        """
        tasks = [read_task(prompt) for prompt in prompts]
        runner = self._runner_of(trainer)
        step = int(trainer.state.global_step)
        self._at = (step, self._at[1] + 1 if self._at[0] == step else 0)
        # A group may be spread over processes, each of which numbers its samples from 0.
        place = (*self._at, int(trainer.accelerator.process_index))
        salt = seeding.derive(int(trainer.args.seed), "trl", *place)
        samples: Counter[str] = Counter()
        jobs: list[Job] = []
        for prompt, task in zip(prompts, tasks, strict=True):
            group = f"{step}-{self._at[1]}-{blake2b(prompt.encode(), digest_size=8).hexdigest()}"
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
            "success": [episode.success for episode in episodes],
            "stop": [str(episode.stop) for episode in episodes],
            "turns": [len(episode.turns) for episode in episodes],
            "rows": [len(each) for each in made],
            "episode": [episode.id for episode in episodes],
        }

    def close(self) -> None:
        """Close the environments. Twice is harmless."""
        runner, self._runner, self._trainer = self._runner, None, None
        if runner is not None:
            runner.close()

    def __enter__(self) -> Self:
        """Return self; leaving the block closes."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()

    def _runner_of(self, trainer: Any) -> Runner:
        """Return what plays the episodes of a trainer; it lives as long as the trainer asks."""
        if self._runner is None or self._trainer is not trainer:
            self.close()
            self._runner = Runner(self._agent or _model_of(trainer), **self._settings)
            self._trainer, self._at = trainer, (-1, 0)
        return self._runner


def _model_of(trainer: Any) -> HuggingFaceAgent:
    """Return the trainer's model as an agent.

    Raises:
        BadArgument: where the trainer changes the distribution in a way that gem does not know.
    """
    args = trainer.args
    plain = {"top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0, "generation_kwargs": None}
    changed = [name for name, value in plain.items() if (getattr(args, name, value) or value) != value]
    if changed:
        raise BadArgument(
            f"the trainer's {', '.join(changed)} would change what is sampled; accepted: temperature alone, "
            "or an agent of your own, as Rollouts(agent=...)."
        )
    options = getattr(trainer, "chat_template_kwargs", None) or {}
    return HuggingFaceAgent(
        trainer.accelerator.unwrap_model(trainer.model),
        ChatTemplateRenderer(_tokenizer_of(trainer), **options),
        temperature=args.temperature,
        max_tokens=args.max_completion_length,
    )


def _tokenizer_of(trainer: Any) -> Any:
    """Return the trainer's tokenizer, which a processor of pictures holds too."""
    return getattr(trainer.processing_class, "tokenizer", trainer.processing_class)


def _one(made: Sequence[Row], episode: Episode, blank: Row) -> Row:
    """Return one of an episode's rows, each with the same chance; `blank` where there is none."""
    return seeding.stream(episode.seed, "trl", "row", episode.sample, episode.salt).choice(made or (blank,))


class ToolEnvironment:
    """An environment as TRL's `environment_factory` makes it; the model acts by calling the tool `act`.

    The reward is the undiscounted sum of the episode's rewards, None without verdict. A model that stops
    calling, or is cut off, gets what it has earned. The environment has to have one seat. Limits are given
    with ``environment_factory=functools.partial(ToolEnvironment, Limits(turns=10))``.
    """

    def __init__(self, limits: Limits = NO_LIMITS) -> None:
        """Play with these limits from outside."""
        self._limits = limits
        self._talk: Conversation | None = None

    def reset(self, *, task: str = "", **row: Any) -> str | list[dict[str, Any]]:
        """Begin the episode of a row of `tool_dataset`, and return the first observation.

        Raises:
            BadArgument: for another row. GemError: when the environment cannot be made.
        """
        if self._talk is not None:
            self._talk.close()
        wanted = read_task(task)
        self._talk = Conversation(wanted, wanted.seed or 0, self._limits)
        return self._said()

    def act(self, action: str) -> Any:
        """Act in the environment.

        Args:
            action: What to do, in the form that the environment asks for.
        """
        talk = self._talk
        if not isinstance(action, str):
            raise ToolError("An action is text.")
        if talk is not None and talk.asks:
            talk.answer(action)
        return self._said()

    def get_reward(self) -> float | None:
        """Return what was earned, None without verdict, and end the episode."""
        talk = self._talk
        if talk is None or (talk.done and not talk.episode.scored):
            return None
        earned = talk.reward
        talk.close()
        return earned

    def _said(self) -> str | list[dict[str, Any]]:
        """Return what the environment says now."""
        assert self._talk is not None
        if self._talk.asks:
            return _content(self._talk.asks[0].messages[-1].content)
        last = self._talk.episode.final_observation
        return _content(join([last, "The episode is over."]))


def _content(obs: Obs) -> str | list[dict[str, Any]]:
    """Return an observation as the content of a message: text, or text and pictures in turn."""
    if isinstance(obs, str):
        return obs
    from io import BytesIO

    try:
        from PIL import Image as Picture
    except ImportError as error:
        raise missing_extra("an observation with pictures", "pillow", "vision") from error
    return [
        {"type": "text", "text": part.text}
        if isinstance(part, Text)
        else {"type": "image", "image": Picture.open(BytesIO(part.data))}
        for part in obs
    ]
