"""Drivers: they carry out what `play` asks for, many episodes at a time, and give identical episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal

from gem.core import Env
from gem.errors import BadArgument, GemError, NoVerdict, WorkerDied
from gem.history import HistoryPolicy
from gem.record import Agent, Ask, Call, Episode, Limits, Reply
from gem.registry import EnvSpec, Maker, make, spec
from gem.rollout.play import NO_LIMITS, Playing, play

HostKind = Literal["serial", "thread", "process"]


@dataclass(frozen=True, slots=True)
class Job:
    """One episode to play: which environment, from which seed.

    `env`: an id, a Maker, or any callable that makes an environment. `group` names the task that several
    samples share; `sample` numbers them.
    """

    env: str | Maker | Callable[[], Env]
    seed: int
    group: str = ""
    sample: int = 0


def rollout(
    jobs: Iterable[Job],
    agent: Agent,
    *,
    limits: Limits = NO_LIMITS,
    history: HistoryPolicy | None = None,
    concurrency: int = 128,
    host: HostKind = "serial",
    on_episode: Callable[[Episode], None] | None = None,
) -> list[Episode]:
    """Play every job and return the episodes in the order of the jobs.

    Up to `concurrency` episodes are in flight. Each round carries out what environments have to do and then
    asks the agent once, with every ask of the moment. Environments are reused from episode to episode; one
    whose call failed is thrown away.

    Args:
        jobs: what to play.
        agent: who acts; it is told to forget each episode once.
        limits: limits from outside; see Limits.
        history: which past turns the agent sees; see `play`.
        concurrency: episodes in flight, and so the largest batch.
        host: where environments live.
        on_episode: called with each episode as it ends.

    Raises:
        GemError: when an environment cannot be made for a reason that is the caller's: an unknown id or
            keyword, a missing package. Whatever else breaks, breaks one episode and stands in its record.
    """
    with _Batched(list(jobs), agent, limits, history, concurrency, on_episode) as driver:
        return driver.run()


class _Place:
    """Where an episode's environment stands; it is made by the episode's first call."""

    __slots__ = ("env", "recipe", "recipe_spec")

    def __init__(self, recipe: str | Maker | Callable[[], Env]) -> None:
        self.recipe = recipe
        self.env: Env | None = None
        name = recipe.env_id if isinstance(recipe, Maker) else recipe
        self.recipe_spec = spec(name) if isinstance(name, str) else None

    @property
    def spec(self) -> EnvSpec | None:
        """What the environment was, or would have been, made from."""
        return self.env.spec if self.env is not None else self.recipe_spec

    @property
    def assembles_history(self) -> bool:
        """Whether a wrapper already shows the past."""
        return getattr(self.env, "assembles_history", False)

    @property
    def unwrapped(self) -> Any:
        """The innermost environment, or the recipe while there is none."""
        return self.env.unwrapped if self.env is not None else self.recipe

    def make(self) -> Env:
        """Make the environment."""
        try:
            return make(self.recipe) if isinstance(self.recipe, str) else self.recipe()
        except NoVerdict:
            raise
        except GemError as error:
            raise _CallersFault(error) from error


class _CallersFault(BaseException):
    """An environment cannot be made, and trying again would not help: ends the rollout, not an episode."""

    def __init__(self, error: GemError) -> None:
        super().__init__(error)
        self.error = error


class _Flight:
    """An episode in flight."""

    __slots__ = ("asks", "id", "index", "place", "playing")

    def __init__(self, index: int, id: str, place: _Place, playing: Playing) -> None:
        self.index, self.id, self.place, self.playing = index, id, place, playing
        self.asks: tuple[Ask, ...] = ()


class _Batched:
    def __init__(
        self,
        jobs: Sequence[Job],
        agent: Agent,
        limits: Limits,
        history: HistoryPolicy | None,
        concurrency: int,
        on_episode: Callable[[Episode], None] | None,
    ) -> None:
        if concurrency < 1:
            raise BadArgument(f"concurrency is {concurrency}; accepted: 1 or more episodes in flight.")
        self.jobs, self.agent, self.limits, self.history = jobs, agent, limits, history
        self.concurrency, self.on_episode = concurrency, on_episode
        self.actor: str | None = getattr(agent, "verb", None)
        self.episodes: list[Episode | None] = [None] * len(jobs)
        self.flights: dict[int, _Flight] = {}
        self.asking: list[_Flight] = []
        self.idle: dict[Any, list[_Place]] = {}
        self.asked_s = 0.0

    def __enter__(self) -> _Batched:
        return self

    def __exit__(self, *exc: object) -> None:
        with ExitStack() as stack:  # each of these is done even when another of them fails
            for places in self.idle.values():
                for place in places:
                    stack.callback(_close, place)
            for flight in self.flights.values():
                stack.callback(_close, flight.place)
                stack.callback(self.agent.forget, flight.id)
                stack.callback(flight.playing.close)

    def run(self) -> list[Episode]:
        begun = 0
        try:
            while True:
                while begun < len(self.jobs) and len(self.flights) < self.concurrency:
                    self._begin(begun)
                    begun += 1
                if not self.asking:
                    if begun == len(self.jobs):
                        break
                    continue
                self._ask()
        except _CallersFault as fault:
            raise fault.error from None
        return [episode for episode in self.episodes if episode is not None]

    def _begin(self, index: int) -> None:
        job = self.jobs[index]
        idle = self.idle.get(_key(job.env))
        place = idle.pop() if idle else _Place(job.env)
        id = f"{index}-{job.seed:x}-{job.sample}"
        playing = play(
            place,
            job.seed,
            self.limits,
            history=self.history,
            episode=id,
            group=job.group,
            sample=job.sample,
            actor=self.actor,
            policy_clock=lambda: self.asked_s,
        )
        flight = self.flights[index] = _Flight(index, id, place, playing)
        self._go_on(flight, playing.send, None)

    def _go_on(self, flight: _Flight, resume: Callable[[Any], Any], value: Any) -> None:
        """Resume an episode and carry out its calls, until it asks the agent or ends."""
        playing, place = flight.playing, flight.place
        try:
            while True:
                wanted = resume(value)
                if type(wanted) is tuple:
                    flight.asks = wanted
                    self.asking.append(flight)
                    return
                try:
                    value, resume = self._call(place, wanted), playing.send
                except Exception as error:
                    value, resume = error, playing.throw
                    self._discard(place)
        except StopIteration as end:
            self._end(flight, end.value)

    def _call(self, place: _Place, call: Call) -> Any:
        limit = self.limits.call_s
        began = perf_counter() if limit is not None else 0.0
        if place.env is None:
            place.env = place.make()
        result = getattr(place.env, call.verb)(*call.args, **call.kwargs)
        if limit is not None and (took := perf_counter() - began) > limit:
            raise WorkerDied(f"{call.verb} of {place.env} took {took:.3g} s; call_s allows {limit:g} s.")
        return result

    def _ask(self) -> None:
        flights, self.asking = self.asking, []
        asks = [ask for flight in flights for ask in flight.asks]
        began = perf_counter()
        try:
            replies = self.agent(asks)
            if len(replies) != len(asks):
                raise BadArgument(f"the agent answered {len(asks)} asks with {len(replies)} replies.")
        except Exception as error:
            self.asked_s += perf_counter() - began
            for flight in flights:
                self._go_on(flight, flight.playing.throw, error)
            return
        self.asked_s += perf_counter() - began
        at = 0
        for flight in flights:
            mine: tuple[Reply, ...] = tuple(replies[at : at + len(flight.asks)])
            at += len(mine)
            self._go_on(flight, flight.playing.send, mine)

    def _end(self, flight: _Flight, episode: Episode) -> None:
        del self.flights[flight.index]
        self.episodes[flight.index] = episode
        if flight.place.env is not None:
            self.idle.setdefault(_key(flight.place.recipe), []).append(flight.place)
        self.agent.forget(flight.id)
        if self.on_episode is not None:
            self.on_episode(episode)

    def _discard(self, place: _Place) -> None:
        env, place.env = place.env, None
        if env is not None:
            with suppress(Exception):  # it is broken: closing it may fail as well
                env.close()


def _close(place: _Place) -> None:
    if place.env is not None:
        place.env.close()


def _key(recipe: str | Maker | Callable[[], Env]) -> Any:
    """Environments are interchangeable when one recipe made them; a Maker may not be hashable."""
    return recipe if isinstance(recipe, str) else id(recipe)
