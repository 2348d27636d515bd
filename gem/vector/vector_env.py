"""VectorEnv: step many environments together, or each as soon as it is ready.

It adds bookkeeping to a host: seeds, auto-reset, and reports of broken environments. `send` and `recv` are
the basic calls; `step` and `reset` use them.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gem import registry, seeding
from gem.closing import Closing
from gem.content import Obs
from gem.core import Env, check_start
from gem.errors import BadAction, BadArgument, EnvClosed, EpisodeOver, ResetNeeded, UnknownArgument
from gem.hosts.base import NO_KWARGS, Command, Host, Recipe, make_host
from gem.hosts.verbs import describe_failure
from gem.specs import TaskRef

NAN = float("nan")


class AutoresetMode(StrEnum):
    """When the next episode of an environment starts."""

    SAME_STEP = "same_step"
    """In the step that ends the last one: obs is the first of the new episode, the old end is in info."""

    NEXT_STEP = "next_step"
    """In the step after the end: its action is ignored, its reward is 0."""

    DISABLED = "disabled"
    """When the caller resets it; a step before that raises."""

    @classmethod
    def _missing_(cls, value: object) -> AutoresetMode | None:
        """Accept other spellings of the names, such as ``SameStep``."""
        plain = str(value).lower().replace("_", "")
        return next((mode for mode in cls if mode.value.replace("_", "") == plain), None)


class Results(NamedTuple):
    """The return value of recv: the environments that are ready, and their steps in the same order.

    `reward` [n] float64, `terminated` and `truncated` [n] bool.
    """

    indices: list[int]
    obs: list[Obs]
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    infos: list[dict[str, Any]]


Steps = tuple[list[Obs], NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], list[dict[str, Any]]]
_OF_ONE = re.compile(r"env\d+_kwargs")  # upstream's keywords of one environment's reset
_Step = tuple[Any, ...]  # the five values of gem.core.Step


@dataclass(slots=True, eq=False)
class _Member:
    """The state of one environment.

    `place`: its index in the vector; `index`: its index in the host. `seed`: the seed of its next episode.
    `running`: its episode has started and not ended, so it accepts an action. `begun`: it was reset once.
    `resetting`: its call in flight is a reset. `failure`: the failure of a broken episode, which is reported
    with the next one's first observation.
    """

    place: int
    index: int
    seed: int
    running: bool = False
    begun: bool = False
    resetting: bool = False
    failure: dict[str, str] | None = None


class VectorEnv(Closing):
    """Several environments that are stepped through one interface.

    Seeds: environment `i` starts with ``derive(seed, "env", i)`` and continues as it would alone, from each
    episode's seed to ``derive(episode's seed, "next")``. So the same seed and actions give the same
    transcripts on every host.

    Auto-reset is one call, `advance`, that runs in the environment's process. In the default mode the step
    that ends an episode returns the next one's first observation; the old episode's last observation and info
    are in ``info["final_obs"]`` and ``info["final_info"]``.

    An exception in an environment ends only its own episode: reward NaN, truncated,
    ``info["final_info"]["error"]`` = {boundary, type, message}. A new environment from the same recipe
    replaces it. The death of a worker process ends so the episodes of all its environments. An episode that
    breaks in its reset has ``info["error"]`` and an empty observation, and is reported in that way at its
    next step.
    """

    def __init__(
        self,
        env_fns: Sequence[Recipe],
        backend: str | Host = "serial",
        seed: int | Sequence[int] | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        call_s: float | None = None,
    ) -> None:
        """Make every environment.

        Args:
            env_fns: a recipe per environment; see `gem.registry.Maker`.
            backend: the host: ``serial``, ``thread``, ``process``, a plug-in's name; or an instance, which
                close() leaves open, and which must not be used by other code while steps are in flight.
            seed: each environment's first seed is derived from it; a sequence has each one's first seed;
                None: each one's own, or a fresh one.
            autoreset_mode: when the next episode starts.
            call_s: seconds that one call of an environment may take before it counts as broken.

        Raises:
            GemError, or any error of a recipe.
        """
        try:
            self.autoreset_mode = AutoresetMode(autoreset_mode)
        except ValueError:
            accepted = ", ".join(AutoresetMode)
            raise BadArgument(f"autoreset_mode is {autoreset_mode!r}; accepted: {accepted}.") from None
        if not env_fns:
            raise BadArgument("env_fns is empty; a vector needs at least one environment.")
        self.num_envs = len(env_fns)
        self._same_step = self.autoreset_mode is AutoresetMode.SAME_STEP
        self._host = make_host(backend, call_s=call_s)
        self._owned = self._host is not backend
        self._closed = False
        self._members: list[_Member] = []
        try:
            for place, env_fn in enumerate(env_fns):
                self._members.append(_Member(place, self._host.add(env_fn), 0))
            self._by_index = {member.index: member for member in self._members}
            self.env_ids = self._make_all(seed)
        except BaseException:
            self.close()
            raise

    def _make_all(self, seed: int | Sequence[int] | None) -> list[str | None]:
        """Make every environment, choose each one's first seed, and return their ids."""
        ids: list[str | None] = [None] * self.num_envs
        self._host.submit_all([(member.index, "introduce", (), NO_KWARGS) for member in self._members])
        first = None if seed is None else _first_seeds(seed, range(self.num_envs))
        failed: Exception | None = None
        for index, value, error in self._host.ready(self.num_envs):
            member = self._by_index[index]
            failed = failed or error
            if error is None:
                ids[member.place], own = value
                fresh = seeding.fresh() if own is None else own
                member.seed = fresh if first is None else first[member.place]
        if failed is not None:
            raise failed
        return ids

    @property
    def envs(self) -> list[Env]:
        """The environments, if they run in this process.

        Raises:
            BadArgument: on the process host.
        """
        return [self._host.env(member.index) for member in self._members]

    # -- basic calls

    def send(self, actions: Sequence[str] | Mapping[int, str]) -> None:
        """Start steps: one action per environment, or a mapping from index to action.

        Raises:
            BadArgument: for a wrong number of actions, an unknown index, an environment with a step in
            flight. BadAction: for an action that is not text. ResetNeeded: before the first reset.
            EpisodeOver: after an episode's end, in mode ``disabled``.
        """
        self._send(*self._check_actions(actions))

    def recv(self, at_least: int = 1, timeout: float | None = None) -> Results:
        """Wait until `at_least` environments are ready and return all that are ready.

        After `timeout` seconds it returns those that are ready, which may be none.

        Raises:
            BadArgument: when fewer steps than `at_least` are in flight.
        """
        steps = self._receive(at_least, timeout)
        return Results(list(steps), *_columns(list(steps.values())))

    # -- derived

    def step(self, actions: Sequence[str] | Mapping[int, str]) -> Steps:
        """Step every environment, or those in a mapping, and wait for all of them.

        Returns:
            obs, reward, terminated, truncated, infos, in the order of the actions; see Results.

        Raises:
            Like send(). BadArgument: while other steps are in flight.
        """
        if self._host.busy:
            raise BadArgument(f"{len(self._host.busy)} steps are in flight; recv() them before step().")
        members, chosen = self._check_actions(actions)
        steps: list[_Step | None]
        if False not in [member.running for member in members]:
            seeds = [member.seed for member in members] if self._same_step else [None] * len(members)
            steps, errors = self._host.map([m.index for m in members], "advance", chosen, seeds)
            for at, step in enumerate(steps):
                if step is None or step[2] or step[3]:
                    steps[at] = self._finish_step(members[at], step, errors.get(at))
        else:
            self._send(members, chosen)
            steps = [None] * len(members)
        if self._host.busy:  # steps that were sent, or next episodes of broken environments
            later = self._receive(len(self._host.busy), None)
            steps = [later[m.place] if step is None else step for m, step in zip(members, steps, strict=True)]
        return _columns(steps)

    def reset(
        self,
        seed: int | Sequence[int] | np.ndarray | None = None,
        indices: Sequence[int] | np.ndarray | None = None,
        **options: Any,
    ) -> tuple[list[Obs], list[dict[str, Any]]]:
        """Start an episode in every environment, or in those at `indices`.

        It waits for steps in flight and drops their results.

        Args:
            seed: environment `i` starts with ``derive(seed, "env", i)``; a sequence has each one's seed,
                used unchanged; None starts each one's next episode.
            indices: which environments; None: all.
            **options: passed to every environment's reset; ``env3_kwargs={...}`` only to environment 3's,
                which may have a `seed` among them.

        Returns:
            The first observations and infos, in order.

        Raises:
            BadArgument: for an invalid seed or index, an option that an environment does not take, or a
                reset of some environments while steps are in flight.
        """
        members = self._find_members(indices)
        if self._host.busy:
            if indices is not None:
                raise BadArgument(
                    f"{len(self._host.busy)} steps are in flight; recv() them before reset(indices)."
                )
            self._drop()
        alone = {key: options.pop(key) for key in [*options] if _OF_ONE.fullmatch(key)}
        if strangers := set(alone) - {f"env{member.place}_kwargs" for member in members}:
            raise BadArgument(f"got {sorted(strangers)}, but this reset has no such environment.")
        kwargs = [{**options, **alone.get(f"env{member.place}_kwargs", {})} for member in members]
        given = [each.pop("seed", None) for each in kwargs]
        before = [(member.seed, member.begun) for member in members]
        places = [member.place for member in members]
        seeds = [each for each, _ in before] if seed is None else _first_seeds(seed, places)
        seeds = [seeds[at] if own is None else seeding.check(own) for at, own in enumerate(given)]
        for member, first in zip(members, seeds, strict=True):
            member.seed = first
        self._submit(list(map(self._beginning, members, kwargs)))
        starts: dict[int, tuple[Obs, dict[str, Any]]] = {}
        refused: dict[int, UnknownArgument] = {}
        for index, value, error in self._host.ready(len(members)):
            if isinstance(error, UnknownArgument):  # the caller's mistake: the episode before goes on
                refused[index] = error
            else:
                starts[index] = self._began(self._by_index[index], value, error)
        for member, (own, begun) in zip(members, before, strict=True):
            if member.index in refused:
                member.seed, member.begun, member.resetting = own, begun, False
        for error in refused.values():
            raise error
        return [starts[m.index][0] for m in members], [starts[m.index][1] for m in members]

    def close(self) -> None:
        """Close every environment, and the host unless the caller passed it. Calling it twice is harmless.

        Steps in flight are dropped; on a host that the caller passed, close() first waits for them.
        """
        if self._owned:
            self._host.close()
        elif not self._closed:
            self._drop()
            for member in self._members:
                self._host.remove(member.index)
        self._closed = True

    def __len__(self) -> int:
        """The number of environments."""
        return self.num_envs

    # -- sending

    def _check_actions(
        self, actions: Sequence[str] | Mapping[int, str]
    ) -> tuple[Sequence[_Member], Sequence[str]]:
        """Return the environments that act, and their actions; raise for invalid ones."""
        chosen: Sequence[str]
        if isinstance(actions, Mapping):
            members, chosen = self._find_members(list(actions)), list(actions.values())
        else:
            members, chosen = self._find_members(None), actions
            several = isinstance(actions, Sized) and not isinstance(actions, str)
            if not several or len(actions) != self.num_envs:
                got = f"{len(actions)} actions" if several else repr(actions)[:80]
                raise BadArgument(
                    f"got {got} for {self.num_envs} environments; give one action each, or {{index: action}}."
                )
        if set(map(type, chosen)) != {str}:
            for member, action in zip(members, chosen, strict=True):
                if not isinstance(action, str):
                    raise BadAction(
                        f"action of env {member.place} is {type(action).__name__} {action!r:.80}; "
                        "it must be str."
                    )
        return members, chosen

    def _find_members(self, places: Sequence[int] | np.ndarray | None) -> Sequence[_Member]:
        """Return the members at `places`, or all."""
        if self._closed:
            raise EnvClosed("the vector is closed; make a new one.")
        if places is None:
            return self._members
        chosen: dict[int, None] = {}
        with suppress(TypeError):
            chosen = {operator.index(place): None for place in places if not isinstance(place, bool)}
        if not chosen or len(chosen) < len(places) or not set(chosen) <= set(range(self.num_envs)):
            raise BadArgument(
                f"env indices are {places!r:.80}; accepted: 0 to {self.num_envs - 1}, each once."
            )
        return [self._members[place] for place in chosen]

    def _send(self, members: Sequence[_Member], actions: Sequence[str]) -> None:
        for member in members:
            if member.index in self._host.busy:
                raise BadArgument(f"env {member.place} has a call in flight; recv() it first.")
            if not member.begun:
                raise ResetNeeded(f"env {member.place} has not begun; call reset() before step().")
            if not member.running and self.autoreset_mode is AutoresetMode.DISABLED:
                raise EpisodeOver(
                    f"the episode of env {member.place} is over; call reset(indices=[{member.place}])."
                )
        self._submit(
            [
                (member.index, "advance", (action, member.seed if self._same_step else None), NO_KWARGS)
                if member.running
                else self._beginning(member)
                for member, action in zip(members, actions, strict=True)
            ]
        )

    def _beginning(self, member: _Member, options: Mapping[str, Any] = NO_KWARGS) -> Command:
        """Return the command that starts the next episode of an environment."""
        return member.index, "reset", (), {"seed": member.seed, **options}

    def _submit(self, commands: Sequence[Command]) -> None:
        self._host.submit_all(commands)
        for command in commands:
            if command[1] == "reset":
                member = self._by_index[command[0]]
                member.begun = member.resetting = True
                member.seed = seeding.derive(member.seed, "next")

    # -- receiving

    def _receive(self, at_least: int, timeout: float | None) -> dict[int, _Step]:
        """Wait for steps; return them by place, in the order of arrival."""
        until = None if timeout is None else perf_counter() + timeout
        steps: dict[int, _Step] = {}
        while True:
            left = None if until is None else max(0.0, until - perf_counter())
            for index, value, error in self._host.ready(max(1, at_least - len(steps)), left):
                member = self._by_index[index]
                step = (self._finish_restart if member.resetting else self._finish_step)(member, value, error)
                if step is not None:
                    steps[member.place] = step
            if len(steps) >= at_least or (until is not None and perf_counter() >= until):
                return steps

    def _finish_step(self, member: _Member, step: _Step | None, error: Exception | None) -> _Step | None:
        """Return the result of a step; None if the next episode has to start first."""
        if step is None:
            assert error is not None
            failure = self._broke(member, error)
            if not self._same_step:
                return _break("", {}, failure)
            self._submit([self._beginning(member)])
            return None
        if not (step[2] or step[3]):
            return step
        if not self._same_step:
            member.running = False
            return step
        member.seed = seeding.derive(member.seed, "next")
        if step[0] is None:  # the next episode broke in its reset
            self._give_up(member, step[4]["error"])
            return "", *step[1:]
        return step

    def _finish_restart(self, member: _Member, start: Any, error: Exception | None) -> _Step:
        """Return the result of a reset that was run in place of a step."""
        reported = member.failure
        obs, info = self._began(member, start, error)
        failure = reported or (None if member.running else info["error"])
        return (obs, 0.0, False, False, info) if failure is None else _break(obs, info, failure)

    def _began(self, member: _Member, start: Any, error: Exception | None) -> tuple[Obs, dict[str, Any]]:
        """Return the first observation and info of an episode, even if its reset broke."""
        member.resetting, member.failure = False, None
        if error is None:
            try:
                obs, info = check_start(start)
            except Exception as broken:
                error = broken
        if error is not None:
            return "", {"error": self._broke(member, error)}
        member.running = True
        return obs, info

    def _broke(self, member: _Member, error: Exception) -> dict[str, str]:
        """Replace an environment whose episode broke, and return the failure."""
        failure = describe_failure(error)
        self._give_up(member, failure)
        return failure

    def _give_up(self, member: _Member, failure: dict[str, str]) -> None:
        """Replace a broken environment by another one at its next reset."""
        self._host.renew(member.index)
        member.running = False
        if self._same_step:
            member.failure = failure

    def _drop(self) -> None:
        """Wait for all calls in flight and drop their results."""
        while self._host.busy:
            for index, _, error in self._host.ready(len(self._host.busy)):
                self._by_index[index].resetting = False
                if error is not None:
                    self._host.renew(index)


def _break(obs: Obs, info: Mapping[str, Any], failure: dict[str, str]) -> _Step:
    """Return the step of a broken episode: it has no reward, and `obs` belongs to the next episode."""
    return obs, NAN, False, True, {**info, "final_obs": "", "final_info": {"error": failure}}


def _columns(steps: Sequence[Any]) -> Steps:
    if not steps:
        return [], np.empty(0), np.empty(0, bool), np.empty(0, bool), []
    obs, rewards, terminated, truncated, infos = zip(*steps, strict=True)
    return (
        list(obs),
        np.array(rewards, float),
        np.array(terminated, bool),
        np.array(truncated, bool),
        list(infos),
    )


def _first_seeds(seed: int | Sequence[int] | np.ndarray, places: Sequence[int]) -> list[int]:
    """Return the seed of each environment at `places`: its own, or one derived from a single number."""
    if isinstance(seed, np.ndarray):
        seed = seed.tolist()
    if not isinstance(seed, Sequence):
        root = seeding.check(seed)
        return [seeding.derive(root, "env", place) for place in places]
    if len(seed) != len(places):
        raise BadArgument(f"seed has {len(seed)} seeds for {len(places)} environments.")
    return [seeding.check(each) for each in seed]


class SyncVectorEnv(VectorEnv):
    """Upstream's name for a VectorEnv that steps environments one after another."""

    def __init__(self, env_ids: Sequence[str], env_fns: Sequence[Recipe], **kwargs: Any) -> None:
        """Make every environment; `env_ids` are its names, `kwargs` go to VectorEnv."""
        super().__init__(env_fns, "serial", **kwargs)
        self.env_ids = list(env_ids)


class AsyncVectorEnv(VectorEnv):
    """Upstream's name for a VectorEnv that steps environments in parallel, on threads."""

    def __init__(self, env_ids: Sequence[str], env_fns: Sequence[Recipe], **kwargs: Any) -> None:
        """Make every environment; `env_ids` are its names, `kwargs` go to VectorEnv."""
        super().__init__(env_fns, "thread", **kwargs)
        self.env_ids = list(env_ids)


def make_vec(
    env_ids: registry.AnyEnv | Sequence[registry.AnyEnv],
    wrappers: Sequence[registry.Wrapper] | None = None,
    vec_kwargs: Sequence[Mapping[str, Any]] | None = None,
    async_mode: bool = False,
    seed: int | None = 0,
    backend: str | Host | None = None,
    num_envs: int | None = None,
    autoreset_mode: str = "same_step",
    **kwargs: Any,
) -> VectorEnv:
    """Make a vector of environments.

    Args:
        env_ids: one id per environment, or what else `gem.make` takes; a single one with `num_envs` is
            repeated.
        wrappers: applied to each environment, in order: names of the wrapper factory, references with
            keywords, or callables.
        vec_kwargs: keywords of each environment, one mapping per environment, as `gem.make` takes them: a
            `seed` among them is its first seed, and goes to a constructor that takes one.
        async_mode: True selects the thread host, unless `backend` names another one.
        seed: environment `i` starts with the seed ``derive(seed, "env", i)``, unless it has its own.
        backend: the host: ``serial``, ``thread``, ``process``, a plug-in's name, or your own instance,
            which stays open.
        num_envs: the number of environments, when `env_ids` is one id.
        autoreset_mode: ``same_step``, ``next_step`` or ``disabled``.
        **kwargs: passed to every constructor.
    """
    ids_: list[registry.AnyEnv]
    if isinstance(env_ids, str | registry.EnvSpec | TaskRef) or callable(env_ids):
        ids_ = [env_ids] * (num_envs or 1)
    elif isinstance(env_ids, Iterable):
        ids_ = list(env_ids)
    else:
        raise BadArgument(
            f"env_ids is {env_ids!r:.80}; accepted: an id, a class, a function or Maker that makes an "
            "environment, or a sequence of these."
        )
    if num_envs is not None and len(ids_) != num_envs:
        raise BadArgument(
            f"make_vec got {len(ids_)} ids and num_envs={num_envs}; give one id, or drop num_envs."
        )
    own = [dict(each) for each in vec_kwargs] if vec_kwargs else [{} for _ in ids_]
    if len(own) != len(ids_):
        raise BadArgument(f"make_vec got {len(ids_)} ids and {len(own)} vec_kwargs; give one mapping per id.")
    if isinstance(wrappers, str):
        raise BadArgument(f"make_vec got wrappers={wrappers!r}; accepted: a sequence, as [{wrappers!r}].")
    try:
        applied = tuple(wrappers or ())
    except TypeError:  # Gymnasium's second argument is another
        raise BadArgument(
            f"make_vec got wrappers={wrappers!r}; accepted: a sequence of callables. The number of "
            "environments is num_envs."
        ) from None
    for env_id in ids_:
        if len(seats := registry.spec_named(env_id).seats) > 1:
            raise BadArgument(
                f"{env_id!r} has {len(seats)} seats, but a VectorEnv takes one action each. Play it with "
                "gem.rollout.rollout, or wrap one of its seats: gem.seats.SeatEnv."
            )
    given = [registry.split_seed(env_id, {**kwargs, **each}) for env_id, each in zip(ids_, own, strict=True)]
    makers = [registry.Maker(env_id, rest, applied) for env_id, (_, rest) in zip(ids_, given, strict=True)]
    first: int | list[int] | None = seed
    if any(own_seed is not None for own_seed, _ in given):
        others = _first_seeds(seeding.fresh() if seed is None else seed, range(len(ids_)))
        first = [
            other if own_seed is None else own_seed
            for other, (own_seed, _) in zip(others, given, strict=True)
        ]
    if backend is None:
        backend = "thread" if async_mode else "serial"
    return VectorEnv(makers, backend, first, autoreset_mode)
