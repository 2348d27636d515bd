"""VectorEnv: many environments stepped together, or each as soon as it is ready.

It is bookkeeping over a host: seeds, auto-reset, and how a broken environment is reported. `send` and
`recv` are the primitive, `step` and `reset` are derived.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from time import perf_counter
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from gem import seeding
from gem.content import Obs
from gem.core import Env
from gem.errors import BadAction, BadArgument, EpisodeOver, ResetNeeded
from gem.vector.autoreset import AutoresetMode, advance, introduce
from gem.vector.host import NO_KWARGS, Command, Kind, Recipe, failure_of, make_host

NAN = float("nan")


class Results(NamedTuple):
    """What recv returns: the environments that are ready, and their steps in the same order.

    `reward` [n] float64, `terminated` and `truncated` [n] bool.
    """

    indices: list[int]
    obs: list[Obs]
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    infos: list[dict[str, Any]]


Steps = tuple[list[Obs], NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], list[dict[str, Any]]]
_Step = tuple[Any, ...]  # the five values of gem.core.Step


class VectorEnv:
    """Environments behind one interface.

    Seeds: environment `i` begins at ``derive(seed, "env", i)`` and goes on as it would alone, from each
    episode's seed to ``derive(episode's seed, "next")``. So the same seed and actions give the same
    transcripts on every host.

    Auto-reset is one function, `advance`, that runs next to the environment. In the default mode the step
    that ends an episode returns the next one's first observation; what the old one ended with is in
    ``info["final_obs"]`` and ``info["final_info"]``.

    An exception in an environment, or the death of its worker, ends its episode and no other: reward NaN,
    truncated, ``info["final_info"]["error"]`` = {boundary, type, message}; a new environment, made from the
    same recipe, takes its place. An episode that breaks in its reset has ``info["error"]`` and an empty
    observation, and is reported that way at its next step.
    """

    def __init__(
        self,
        env_fns: Sequence[Recipe],
        backend: Kind | str = "serial",
        seed: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        call_s: float | None = None,
    ) -> None:
        """Make every environment.

        Args:
            env_fns: a recipe per environment; see `gem.registry.Maker`.
            backend: the host: ``serial``, ``thread`` or ``process``.
            seed: from which every environment's first seed is derived; None: each one's own, or a fresh one.
            autoreset_mode: when the next episode begins.
            call_s: seconds that one call of an environment may take before it counts as broken.

        Raises:
            GemError, or whatever a recipe raises.
        """
        try:
            self.autoreset_mode = AutoresetMode(autoreset_mode)
        except ValueError:
            accepted = ", ".join(AutoresetMode)
            raise BadArgument(f"autoreset_mode is {autoreset_mode!r}; accepted: {accepted}.") from None
        if not env_fns:
            raise BadArgument("env_fns is empty; a vector holds at least one environment.")
        self.num_envs = len(env_fns)
        self._host = make_host(backend, env_fns, call_s=call_s)
        try:
            known = self._known_envs()
            self.env_ids: list[str | None] = [env_id for env_id, _ in known]
            if seed is None:
                self._next_seeds = [seeding.fresh() if own is None else own for _, own in known]
            else:
                self._next_seeds = _derived(seed, range(self.num_envs))
        except BaseException:
            self._host.close()
            raise
        self._new = set(range(self.num_envs))  # who has never been reset
        self._paused = set(self._new)  # whose next step must not reach the environment
        self._resetting: set[int] = set()  # whose call in flight is a reset
        self._broken: dict[int, dict[str, str]] = {}  # failures of episodes that broke, to be reported

    def _known_envs(self) -> list[tuple[str | None, int | None]]:
        """Make every environment and return its id and its own seed."""
        known: list[Any] = [None] * self.num_envs
        self._host.submit_all([(i, introduce, (), NO_KWARGS) for i in range(self.num_envs)])
        for index, value, error in self._host.ready(self.num_envs):
            if error is not None:
                raise error
            known[index] = value
        return known

    @property
    def envs(self) -> list[Env]:
        """The environments, where they live in this process.

        Raises:
            BadArgument: on the process host.
        """
        slots = getattr(self._host, "slots", None)
        if slots is None:
            raise BadArgument("these environments live in other processes; use the serial or thread backend.")
        return [slot.env for slot in slots]

    # -- the primitive

    def send(self, actions: Sequence[str] | Mapping[int, str]) -> None:
        """Start steps: one action per environment, or a mapping from index to action.

        Raises:
            BadArgument: for a wrong number of actions, an unknown index, an environment with a step in
            flight. BadAction: for an action that is not text. ResetNeeded: before the first reset.
            EpisodeOver: after an episode's end, in mode ``disabled``.
        """
        self._send(*self._checked(actions))

    def recv(self, at_least: int = 1, timeout: float | None = None) -> Results:
        """Wait until `at_least` environments are ready and return all that are.

        After `timeout` seconds it returns what there is, which may be nothing.

        Raises:
            BadArgument: when fewer steps than `at_least` are in flight.
        """
        steps = self._receive(at_least, timeout)
        return Results(list(steps), *_columns(list(steps.values())))

    # -- derived

    def step(self, actions: Sequence[str] | Mapping[int, str]) -> Steps:
        """Step every environment, or those of a mapping, and wait for all of them.

        Returns:
            obs, reward, terminated, truncated, infos, in the order of the actions; see Results.

        Raises:
            As send(); BadArgument: while other steps are in flight.
        """
        if self._host.busy:
            raise BadArgument(f"{len(self._host.busy)} steps are in flight; recv() them before step().")
        indices, chosen = self._checked(actions)
        if self._paused and not self._paused.isdisjoint(indices):
            self._send(indices, chosen)
            steps = self._receive(len(indices), None)
            return _columns([steps[index] for index in indices])
        values, errors = self._host.map(indices, advance, chosen, self._seeds_after(indices))
        for place, value in enumerate(values):
            if value is None:
                values[place] = self._settled(indices[place], None, errors[place])
            elif value[2] or value[3]:
                values[place] = self._ended(indices[place], value)
        if self._resetting:  # the next episodes of those that broke
            steps = self._receive(len(self._resetting), None)
            values = [steps.get(index, value) for index, value in zip(indices, values, strict=True)]
        return _columns(values)

    def reset(
        self,
        seed: int | Sequence[int] | None = None,
        indices: Sequence[int] | None = None,
        **options: Any,
    ) -> tuple[list[Obs], list[dict[str, Any]]]:
        """Begin an episode in every environment, or in those at `indices`.

        Steps in flight are waited for and dropped.

        Args:
            seed: environment `i` begins at ``derive(seed, "env", i)``; a sequence gives each its seed as it
                is; None goes on to each one's next episode.
            indices: which environments; None: all.
            **options: go to every environment's reset.

        Returns:
            The first observations and infos, in order.

        Raises:
            BadArgument: for a bad seed or index, or when part of a vector is reset while steps are in flight.
        """
        chosen = list(range(self.num_envs) if indices is None else self._known(indices))
        if self._host.busy:
            if indices is not None:
                raise BadArgument(
                    f"{len(self._host.busy)} steps are in flight; recv() them before reset(indices)."
                )
            self._drop()
        if seed is not None:
            seeds = (
                _derived(seed, chosen) if not isinstance(seed, Sequence) else list(map(seeding.check, seed))
            )
            if len(seeds) != len(chosen):
                raise BadArgument(f"seed holds {len(seeds)} seeds for {len(chosen)} environments.")
            for index, own in zip(chosen, seeds, strict=True):
                self._next_seeds[index] = own
        self._new.difference_update(chosen)
        starts: dict[int, tuple[Obs, dict[str, Any]]] = {}
        self._host.submit_all([self._beginning(index, options) for index in chosen])
        for index, value, error in self._host.ready(len(chosen)) if chosen else ():
            self._resetting.discard(index)
            self._broken.pop(index, None)
            if error is None:
                self._paused.discard(index)
                starts[index] = value
            else:
                failure = self._broke(index, error)
                starts[index] = "", {"error": failure}
        return [starts[index][0] for index in chosen], [starts[index][1] for index in chosen]

    def close(self) -> None:
        """Close every environment and the host; steps in flight are dropped. Twice is harmless."""
        self._host.close()

    def __len__(self) -> int:
        """The number of environments."""
        return self.num_envs

    def __enter__(self) -> Self:
        """Return self; leaving the block closes."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()

    # -- bookkeeping

    def _checked(self, actions: Sequence[str] | Mapping[int, str]) -> tuple[Sequence[int], Sequence[str]]:
        """Return indices and actions; raise for what cannot be sent."""
        indices: Sequence[int]
        chosen: Sequence[str]
        if isinstance(actions, Mapping):
            indices, chosen = self._known(list(actions)), list(actions.values())
        else:
            indices, chosen = range(self.num_envs), actions
            if isinstance(actions, str) or len(actions) != self.num_envs:
                got = repr(actions)[:80] if isinstance(actions, str) else f"{len(actions)} actions"
                raise BadArgument(
                    f"got {got} for {self.num_envs} environments; give one action each, or {{index: action}}."
                )
        if set(map(type, chosen)) != {str}:
            for index, action in zip(indices, chosen, strict=True):
                if not isinstance(action, str):
                    raise BadAction(
                        f"action of env {index} is {type(action).__name__} {action!r:.80}; it must be str."
                    )
        return indices, chosen

    def _known(self, indices: Sequence[int]) -> Sequence[int]:
        distinct = set(indices)
        if not indices or len(distinct) < len(indices) or not distinct <= set(range(self.num_envs)):
            raise BadArgument(
                f"env indices are {list(indices)!r:.80}; accepted: 0 to {self.num_envs - 1}, each once."
            )
        return indices

    def _send(self, indices: Sequence[int], actions: Sequence[str]) -> None:
        commands: list[Command] = [
            (index, advance, (action, seed), NO_KWARGS)
            for index, action, seed in zip(indices, actions, self._seeds_after(indices), strict=True)
        ]
        if self._paused and not self._paused.isdisjoint(indices):
            self._check_free(indices)
            commands = [
                self._beginning(command[0]) if command[0] in self._paused else command for command in commands
            ]
        self._host.submit_all(commands)

    def _seeds_after(self, indices: Sequence[int]) -> Sequence[int | None]:
        """Return the seeds with which a step may go on to the next episode."""
        if self.autoreset_mode is not AutoresetMode.SAME_STEP:
            return [None] * len(indices)
        seeds = self._next_seeds
        return [seeds[index] for index in indices]

    def _check_free(self, indices: Sequence[int]) -> None:
        """Raise for what only the caller can put right, before anything changes."""
        for index in indices:
            if index in self._host.busy:
                raise BadArgument(f"env {index} has a step in flight; recv() it first.")
            if index in self._new:
                raise ResetNeeded(f"env {index} has not begun; call reset() before step().")
            if index in self._paused and self.autoreset_mode is AutoresetMode.DISABLED:
                raise EpisodeOver(f"the episode of env {index} is over; call reset(indices=[{index}]).")

    def _beginning(self, index: int, options: Mapping[str, Any] = NO_KWARGS) -> Command:
        """Return the command that begins the next episode of an environment."""
        seed = self._next_seeds[index]
        self._next_seeds[index] = seeding.derive(seed, "next")
        self._resetting.add(index)
        return index, "reset", (), {"seed": seed, **options}

    def _receive(self, at_least: int, timeout: float | None) -> dict[int, _Step]:
        until = None if timeout is None else perf_counter() + timeout
        steps: dict[int, _Step] = {}
        while True:
            left = None if until is None else max(0.0, until - perf_counter())
            for index, value, error in self._host.ready(max(1, at_least - len(steps)), left):
                if error is not None or index in self._resetting:
                    step = self._settled(index, value, error)
                    if step is not None:
                        steps[index] = step
                else:
                    steps[index] = self._ended(index, value) if value[2] or value[3] else value
            if len(steps) >= at_least or (until is not None and perf_counter() >= until):
                return steps

    def _ended(self, index: int, step: _Step) -> _Step:
        """Take note of the end of an episode and return its last step."""
        if self.autoreset_mode is not AutoresetMode.SAME_STEP:
            self._paused.add(index)
            return step
        self._next_seeds[index] = seeding.derive(self._next_seeds[index], "next")
        if step[0] is not None:
            return step
        self._give_up(index, step[4]["error"])
        return "", *step[1:]

    def _settled(self, index: int, value: Any, error: Exception | None) -> _Step | None:
        """Return the step that the end of an unusual call amounts to; None while it is not at its end."""
        if index in self._resetting:
            self._resetting.discard(index)
            reported = self._broken.pop(index, None)
            if error is None:
                self._paused.discard(index)
                obs, info = value
                return (obs, 0.0, False, False, info) if reported is None else _break(obs, info, reported)
            failure = self._broke(index, error)
            return _break("", {"error": failure}, reported or failure)
        assert error is not None
        failure = self._broke(index, error)
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            self._host.submit_all([self._beginning(index)])
            return None
        return _break("", {}, failure)

    def _broke(self, index: int, error: Exception) -> dict[str, str]:
        """Give up an environment whose episode broke, and return the failure."""
        failure = asdict(failure_of(error))
        self._give_up(index, failure)
        return failure

    def _give_up(self, index: int, failure: dict[str, str]) -> None:
        """Let another environment take the place of a broken one at its next reset."""
        self._host.renew(index)
        self._paused.add(index)
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            self._broken[index] = failure  # reported with the first observation of the next episode

    def _drop(self) -> None:
        """Wait for every call in flight and forget what came of it."""
        for index, _, error in self._host.ready(len(self._host.busy)):
            if error is not None:
                self._host.renew(index)
        self._resetting.clear()


def _break(obs: Obs, info: Mapping[str, Any], failure: dict[str, str]) -> _Step:
    """Return the step of an episode that broke: it has no reward, and `obs` belongs to the next one."""
    return obs, NAN, False, True, {**info, "final_obs": "", "final_info": {"error": failure}}


def _columns(steps: Sequence[_Step]) -> Steps:
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


def _derived(seed: int, indices: Sequence[int]) -> list[int]:
    root = seeding.check(seed)
    return [seeding.derive(root, "env", index) for index in indices]
