"""Train with Tinker's cookbook on gem's environments.

::

    from tinker_cookbook.rl import train

    data = GemDatasetBuilder(envs=["game:GuessTheNumber-v0-easy"], model_name="Qwen/Qwen3-8B", batches=50)
    config = train.Config(dataset_builder=data, model_name="Qwen/Qwen3-8B", rollout_error_tolerance=True)
    asyncio.run(train.main(config))

A group is `group_size` fresh environments of one task and seed. Each prompt is the previous one, the sampled
answer, and the new observation; nothing is tokenised again, so an append-only episode is one Datum. Rewards
are dense: each step has its own, and the cookbook sums them. An episode without a verdict raises NoVerdict,
which the cookbook's strategies (``rollout_error_tolerance``) treat as a RolloutError: the episode is retried
or left out, and never counts as 0. Pictures appear as their `alt`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from threading import Lock
from typing import Any, TypeVar

from gem import registry, seeding
from gem.adapters.engine import run_call
from gem.adapters.records import describe_failure
from gem.content import text_of
from gem.errors import BadArgument, NoVerdict, check_argument, needs_extra
from gem.history import HistoryPolicy
from gem.record import Episode, Limits, Reply, RunInfo, StopReason
from gem.rollout.conversation import Conversation
from gem.rollout.episode import NO_LIMITS, versions
from gem.seats import SeatedEnv
from gem.specs import TaskRef
from gem.tokens.chat_template import ChatTemplateRenderer
from gem.tokens.renderer import Renderer, render
from gem.tokens.sampled_calls import read_answer

with needs_extra("Tinker's cookbook", "tinker-cookbook", "tinker"):
    import chz
    import tinker
    from tinker_cookbook.rl import types
    from tinker_cookbook.tokenizer_utils import get_tokenizer

T = TypeVar("T")

STOPS = {
    StopReason.UNREADABLE: types.StopReason.PARSE_ERROR,
    StopReason.TURN_BUDGET: types.StopReason.MAX_TURNS,
    StopReason.TURN_LIMIT: types.StopReason.MAX_TURNS,
    StopReason.TOKEN_LIMIT: types.StopReason.MAX_SAMPLED_TOKENS,
    StopReason.CONTEXT_LIMIT: types.StopReason.CONTEXT_OVERFLOW,
    StopReason.TIME_LIMIT: types.StopReason.ROLLOUT_TIMEOUT,
}
"""The cookbook's names of how an episode ends; any other end is ``completed``."""


ONE_SEAT = "it has several seats; accepted: environments of one, such as gem.seats.SeatEnv makes of it."


class GemEnv(types.Env):
    """One episode as an environment over tokens."""

    def __init__(self, begin: Callable[[], Conversation], renderer: Renderer, waits: bool) -> None:
        """Play the episode that `begin` starts; `waits`: its calls block, and are made in threads."""
        self._begin, self._renderer, self._waits = begin, renderer, waits
        self._talk: Conversation | None = None
        self._prompt: tuple[int, ...] = ()
        self._busy, self._closed = Lock(), False

    @property
    def episode(self) -> Episode | None:
        """The episode's record; None before it started."""
        return None if self._talk is None else self._talk.episode

    async def initial_observation(
        self,
    ) -> tuple[tinker.ModelInput, list[int]] | types.InitialObservationOverflow:
        """Start the episode and return its first prompt.

        Raises:
            NoVerdict: when the environment broke. GemError: when it cannot be made.
        """
        talk = await self._run(self._start)
        if talk.done:
            return types.InitialObservationOverflow(talk.episode.reward(), _ending(talk.episode))
        return tinker.ModelInput.from_ints(list(self._prompt)), self._stop

    async def step(self, action: list[int], *, extra: types.ActionExtra | None = None) -> types.StepResult:
        """Step the environment with the sampled tokens.

        Raises:
            NoVerdict: when the environment broke, or no token was sampled.
        """
        talk = self._talk
        if talk is None or talk.done:
            raise BadArgument(
                "step() was called before initial_observation() or after the end; an Env is used only once."
            )
        turn = talk.episode.turns[-1]
        cut = extra is not None and extra.get("stop_reason") == "length"
        await self._run(lambda: self._answer(talk, tuple(action), "length" if cut else "stop"))
        metrics = {f"reward/{name}": part for name, part in (turn.rewards or {}).items()}
        return types.StepResult(
            reward=turn.reward or 0.0,
            episode_done=talk.done,
            next_observation=tinker.ModelInput.from_ints([] if talk.done else list(self._prompt)),
            next_stop_condition=self._stop,
            metrics=metrics | (_ending(talk.episode) if talk.done else {}),
            logs={"observation": text_of(turn.observation), "action": turn.action or ""},
        )

    async def close(self) -> None:
        """End the episode and close its environment; calling it twice is harmless."""
        await self._run(self._close)

    async def _run(self, work: Callable[[], T]) -> T:
        """Do what calls the environment."""

        def alone() -> T:
            with self._busy:  # a call goes on in its thread when whoever awaited it was cancelled
                return work()

        return await run_call(self._waits, alone)

    def _start(self) -> Conversation:
        if self._closed or self._talk is not None:
            raise BadArgument(
                "initial_observation() was called again, or after close(); an Env is used only once."
            )
        self._talk = talk = self._begin()
        if talk.episode.several:
            raise BadArgument(f"{talk.episode.spec}: {ONE_SEAT}")
        self._show(talk)
        return talk

    def _answer(self, talk: Conversation, ids: tuple[int, ...], finish: str) -> None:
        ask = talk.asks[0]
        if ids:
            text, calls = read_answer(self._renderer, ids, ask)
            talk.answer(Reply(text, self._prompt, ids, finish=finish, tool_calls=calls))
        else:
            talk.fail(NoVerdict("no token was sampled"))
        self._show(talk)

    def _show(self, talk: Conversation) -> None:
        """Render what is asked. Where no answer fits behind it the episode ends; one that ended is closed."""
        if not talk.done:
            ask = talk.asks[0]
            self._prompt = render(self._renderer, ask)
            if ask.context is not None and len(self._prompt) + (ask.max_tokens or 1) > ask.context:
                talk.answer(Reply("", self._prompt, finish="context"))
        if talk.done:
            talk.close()
            _check(talk.episode)

    def _close(self) -> None:
        self._closed = True
        if self._talk is not None:
            self._talk.close()

    @property
    def _stop(self) -> list[int]:
        return sorted(self._renderer.stop_ids)


def _check(episode: Episode) -> None:
    if not episode.scored:
        why = describe_failure(episode, str(episode.stop))
        raise NoVerdict(f"an episode of {episode.spec}, seed {episode.seed}, has no verdict: {why}")


def _ending(episode: Episode) -> dict[str, float]:
    """Return the metrics of an episode that has ended."""
    reason = STOPS.get(episode.stop, types.StopReason.COMPLETED)
    metrics = {f"{types.STOP_METRIC_PREFIX}{reason}": 1.0, "truncated": float(episode.truncated)}
    if episode.success is not None:
        metrics["success"] = float(episode.success)
    return metrics


class GemGroupBuilder(types.EnvGroupBuilder):
    """A builder of fresh environments of one task and seed; picklable if task and renderer are."""

    def __init__(
        self,
        env: str | TaskRef,
        seed: int,
        size: int,
        renderer: Renderer | str,
        limits: Limits = NO_LIMITS,
        *,
        history: HistoryPolicy | None = None,
        run: RunInfo | None = None,
        job: str = "",
        on_episode: Callable[[Episode], None] | None = None,
    ) -> None:
        """Build groups of `size`.

        Args:
            env: an id, or a task with its keywords and wrappers.
            seed: the episodes' seed.
            size: how many environments.
            renderer: renders messages as ids; or the name of a model, to use its chat template.
            limits: `turns` and `tokens` end an episode. With `context` it ends when another answer of
                `turn_tokens` would not fit: set `turn_tokens` to the trainer's ``max_tokens``.
            history: which past turns the model sees.
            run: how the episodes are played, for the record; the groups of one training share it.
            job: the group's name in its episodes' ids.
            on_episode: called with each started episode when the group is cleaned up, also without a
                verdict; for example `EpisodeStore.append`. Must be picklable if the builder is pickled.

        Raises:
            UnknownEnv: for an id that is not registered. BadArgument: for an empty group.
        """
        check_argument("size", size, size >= 1, "1 environment or more")
        self.spec = registry.Maker(env).spec
        self.env, self.seed, self.size, self.renderer = env, seeding.check(seed), size, renderer
        self.limits, self.history, self.job, self.on_episode = limits, history, job, on_episode
        self.run = run or _run(renderer, limits, history)
        self._attempt = 0
        self._made: list[GemEnv] = []

    async def make_envs(self) -> Sequence[GemEnv]:
        """Return the environments; each is made when its episode begins."""
        renderer = renderer_of(self.renderer) if isinstance(self.renderer, str) else self.renderer
        envs = [
            GemEnv(partial(self._begin, sample, self._attempt), renderer, self.spec.waits)
            for sample in range(self.size)
        ]
        self._attempt += 1  # the cookbook asks for another group when it tries one of this group again
        self._made += envs
        return envs

    def _begin(self, sample: int, attempt: int) -> Conversation:
        known: Any = {"run": self.run, "job": self.job, "sample": sample, "group": self.job}
        talk = Conversation(self.env, self.seed, self.limits, history=self.history, **known)
        talk.episode.attempt = attempt
        return talk

    async def compute_group_rewards(
        self, trajectory_group: list[types.Trajectory], env_group: Sequence[GemEnv]
    ) -> list[tuple[float, types.Metrics]]:
        """Copy the log probabilities from the trajectories to the records; add no reward."""
        for trajectory, env in zip(trajectory_group, env_group, strict=True):
            episode = env.episode
            for turn, transition in zip(
                episode.turns if episode else (), trajectory.transitions, strict=False
            ):
                logprobs = transition.ac.maybe_logprobs
                if logprobs is not None and len(logprobs) == len(turn.token_ids):
                    turn.logprobs = array("f", logprobs)
        return [(0.0, {}) for _ in trajectory_group]

    async def cleanup(self) -> None:
        """Close the environments, and pass the started episodes to `on_episode`."""
        made, self._made = self._made, []
        for env in made:
            await env.close()
            if self.on_episode is not None and env.episode is not None:
                self.on_episode(env.episode)

    def logging_tags(self) -> list[str]:
        """Return the environment's id, by which metrics are grouped."""
        return [self.spec.id]


@lru_cache(maxsize=4)
def renderer_of(model_name: str) -> ChatTemplateRenderer:
    """Return the renderer of a model, based on its chat template."""
    return ChatTemplateRenderer(get_tokenizer(model_name))


def _run(renderer: Renderer | str, limits: Limits, history: HistoryPolicy | None) -> RunInfo:
    model = renderer if isinstance(renderer, str) else None
    return RunInfo(agent="Tinker", model=model, limits=limits, history=history, versions=versions())


def _task(env: str | TaskRef) -> TaskRef:
    """Return a task that other processes can make too; raise now if it cannot be played."""
    with registry.make(env) as made:
        if isinstance(made, SeatedEnv):
            raise BadArgument(f"{env}: {ONE_SEAT}")
        return registry.task_of(made)


class GemDataset(types.RLDataset):
    """Batches of groups over one or several environments in turn; each group has its own seed."""

    def __init__(
        self,
        envs: Sequence[str | TaskRef],
        renderer: Renderer | str,
        batches: int,
        batch_size: int = 32,
        group_size: int = 8,
        seed: int = 0,
        limits: Limits = NO_LIMITS,
        *,
        history: HistoryPolicy | None = None,
        on_episode: Callable[[Episode], None] | None = None,
    ) -> None:
        """Make `batches` batches of `batch_size` groups of `group_size`; other arguments: GemGroupBuilder.

        Raises:
            BadArgument: for no environment, one of several seats, or numbers below 1. GemError: when an
                environment cannot be made.
        """
        if isinstance(envs, str) or not envs:
            raise BadArgument(f"envs is {envs!r}; accepted: a sequence of one or more ids or tasks.")
        if min(batches, batch_size, group_size) < 1:
            raise BadArgument(f"got {batches=}, {batch_size=}, {group_size=}; accepted: 1 or more.")
        self._envs = tuple(map(_task, envs))
        self._batches, self._batch_size = batches, batch_size
        self._seeds = seeding.children(seeding.check(seed), "group")
        self._build = partial(
            GemGroupBuilder,
            size=group_size,
            renderer=renderer,
            limits=limits,
            history=history,
            run=_run(renderer, limits, history),
            on_episode=on_episode,
        )

    def __len__(self) -> int:
        """Return the number of batches."""
        return self._batches

    def get_batch(self, index: int) -> list[GemGroupBuilder]:
        """Return the groups of a batch; the same index gives the same ones.

        Raises:
            IndexError: after the last batch.
        """
        if not 0 <= index < self._batches:
            raise IndexError(f"batch {index} of {self._batches}")
        first = index * self._batch_size
        return [
            self._build(self._envs[number % len(self._envs)], self._seeds(number), job=str(number))
            for number in range(first, first + self._batch_size)
        ]


@chz.chz
class GemDatasetBuilder(types.RLDatasetBuilder):
    """The settings of a GemDataset, for ``train.Config`` and the command line.

    With `test_groups` there is a second data set with groups of one episode and other seeds. `max_tokens` is
    that of ``train.Config``, and `context` the model's.
    """

    envs: list[str]
    model_name: str
    batches: int
    batch_size: int = 32
    group_size: int = 8
    seed: int = 0
    test_groups: int = 0
    max_turns: int | None = None
    max_tokens: int | None = None
    context: int | None = None

    async def __call__(self) -> tuple[GemDataset, GemDataset | None]:
        """Return the data set to train on, and the one to test on."""
        limits = Limits(turns=self.max_turns, turn_tokens=self.max_tokens, context=self.context)
        given: Any = {"envs": self.envs, "renderer": self.model_name, "limits": limits}
        sizes: Any = {"batches": self.batches, "batch_size": self.batch_size, "group_size": self.group_size}
        training = GemDataset(**given, **sizes, seed=seeding.derive(self.seed, "train"))
        if not self.test_groups:
            return training, None
        test_seed = seeding.derive(self.seed, "test")
        return training, GemDataset(
            **given, batches=1, batch_size=self.test_groups, group_size=1, seed=test_seed
        )
