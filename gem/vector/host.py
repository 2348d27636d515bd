"""Hosts: where environments live, and who waits for them.

A host holds one environment per index, made from a recipe by the first call that needs it. Calls are
submitted and come back as outcomes, in the order in which they finish; an index has at most one call in
flight. Only hosts wait or time out: everything above them is bookkeeping. One thread at a time uses a host.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple, Self, TypeAlias

from gem.core import Env
from gem.errors import BadArgument, EnvClosed, NoVerdict, WorkerDied
from gem.record import Failure

Kind = Literal["serial", "thread", "process"]
KINDS: tuple[Kind, ...] = ("serial", "thread", "process")

Recipe: TypeAlias = Callable[[], Env]
Verb: TypeAlias = "str | Callable[..., Any]"
"""A method's name, or a function that is given the environment first."""

Command: TypeAlias = "tuple[int, Verb, tuple[Any, ...], Mapping[str, Any]]"
"""One call: index, verb, arguments, keywords."""

Mapped: TypeAlias = "tuple[list[Any], dict[int, Exception]]"

NO_KWARGS: Mapping[str, Any] = {}


class Outcome(NamedTuple):
    """What a call came to: its value, or the error it ended in."""

    index: int  # type: ignore[assignment]  # shadows tuple.index, which nobody calls on an outcome
    value: Any = None
    error: Exception | None = None

    @property
    def failure(self) -> Failure | None:
        """The error as an episode records it."""
        return None if self.error is None else failure_of(self.error)


def failure_of(error: Exception) -> Failure:
    """Return the record of `error`: boundary ``host`` where a worker died or hung, else ``env``."""
    boundary = "host" if isinstance(error, WorkerDied) else "env"
    return Failure(boundary, type(error).__name__, str(error))


class Slot:
    """A place for one environment: its recipe, and the environment once a call needed it."""

    __slots__ = ("env", "recipe")

    def __init__(self, recipe: Recipe) -> None:
        """Keep the recipe."""
        self.recipe = recipe
        self.env: Env | None = None

    def close(self) -> None:
        """Close the environment, if there is one; what fails in that is lost with it."""
        env, self.env = self.env, None
        if env is not None:
            with suppress(Exception):
                env.close()


def carry_out(slot: Slot, command: Command) -> Outcome:
    """Carry out one call next to its environment."""
    index, verb, args, kwargs = command
    try:
        env = slot.env
        if env is None:
            env = slot.env = slot.recipe()
        if isinstance(verb, str):
            return Outcome(index, getattr(env, verb)(*args, **kwargs))
        return Outcome(index, verb(env, *args, **kwargs) if kwargs else verb(env, *args))
    except Exception as error:
        return Outcome(index, None, error)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # exit(), or an event loop of its own that was cancelled
        return Outcome(index, None, escaped(error))


class Host(ABC):
    """Where environments live: `submit`, `ready`, `close`.

    A call that raises comes back as an outcome with the error and leaves its environment in place;
    `renew` replaces it. A call that takes longer than `call_s` seconds comes back as WorkerDied, its
    environment is replaced; where the call can be neither killed nor left behind (the serial host), that
    is noticed when it returns.
    """

    def __init__(self, env_fns: Sequence[Recipe], call_s: float | None = None) -> None:
        """Keep count of what is in flight."""
        if call_s is not None and not call_s > 0:
            raise BadArgument(f"call_s is {call_s}; accepted: seconds, more than 0, or None.")
        self.call_s = call_s
        self.busy: set[int] = set()
        """The indices whose call is in flight."""
        self._indices = frozenset(range(len(env_fns)))
        self._closed = False

    def __len__(self) -> int:
        """The number of environments."""
        return len(self._indices)

    def submit(
        self, index: int, verb: Verb, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] = NO_KWARGS
    ) -> None:
        """Start ``getattr(env, verb)(*args, **kwargs)``, or ``verb(env, ...)``, on one environment.

        Raises:
            BadArgument: when there is no such index, or a call of it is in flight.
            EnvClosed: after close().
        """
        self.submit_all([(index, verb, args, kwargs)])

    def submit_all(self, commands: Sequence[Command]) -> None:
        """Start several calls, with less overhead than one by one; see submit."""
        if self._closed:
            raise EnvClosed("the host is closed; make a new one.")
        indices = [command[0] for command in commands]
        wanted = set(indices)
        if len(wanted) < len(indices) or not self.busy.isdisjoint(wanted) or not wanted <= self._indices:
            raise self._refusal(indices)
        self._start(commands)
        self.busy |= wanted

    def ready(self, at_least: int = 1, timeout: float | None = None) -> list[Outcome]:
        """Wait until `at_least` calls have finished and return every outcome that is there.

        After `timeout` seconds it returns what there is, which may be nothing.

        Raises:
            BadArgument: when fewer calls than `at_least` are in flight.
        """
        if not 1 <= at_least <= len(self.busy):
            raise BadArgument(
                f"at_least is {at_least} and {len(self.busy)} calls are in flight; "
                "accepted: 1 up to as many as are in flight."
            )
        outcomes = self._finished(at_least, timeout)
        self.busy.difference_update([outcome[0] for outcome in outcomes])
        return outcomes

    def map(self, indices: Sequence[int], verb: Callable[..., Any], *columns: Sequence[Any]) -> Mapped:
        """Call ``verb(env, *row)`` on many environments and wait for all; `columns` hold the rows' arguments.

        It is submit_all and ready, with less overhead where a host can. Nothing else may be in flight.

        Returns:
            The values in the order of `indices`, and the errors by position; the value there is None.
        """
        rows = zip(indices, zip(*columns, strict=True), strict=True)
        self.submit_all([(index, verb, row, NO_KWARGS) for index, row in rows])
        outcomes = {outcome[0]: outcome for outcome in self.ready(len(indices))}
        values = [outcomes[index][1] for index in indices]
        errors = {}
        for place, index in enumerate(indices):
            error = outcomes[index][2]
            if error is not None:
                errors[place] = error
        return values, errors

    def renew(self, index: int, env_fn: Recipe | None = None) -> None:
        """Close the environment at `index`; the next call makes another, from `env_fn` where that is given.

        Raises:
            BadArgument: when a call of it is in flight.
        """
        if index in self.busy or index not in self._indices:
            raise self._refusal([index])
        self._renew(index, env_fn)

    def close(self) -> None:
        """Close every environment and end every worker; calls in flight are dropped. Twice is harmless."""
        if not self._closed:
            self._closed = True
            self.busy.clear()
            self._close()

    def __enter__(self) -> Self:
        """Return self; leaving the block closes."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()

    @abstractmethod
    def _start(self, commands: Sequence[Command]) -> None:
        """Begin calls that have been checked."""

    @abstractmethod
    def _finished(self, at_least: int, timeout: float | None) -> list[Outcome]:
        """Wait for outcomes."""

    @abstractmethod
    def _renew(self, index: int, env_fn: Recipe | None) -> None:
        """Replace an idle environment."""

    @abstractmethod
    def _close(self) -> None:
        """Release everything, once."""

    def _refusal(self, indices: Sequence[int]) -> BadArgument:
        for index in indices:
            if index not in self._indices:
                return BadArgument(f"env index is {index!r}; accepted: 0 to {len(self) - 1}.")
            if index in self.busy:
                return BadArgument(f"env {index} has a call in flight; wait for its outcome first.")
        return BadArgument(f"an env index stands twice in {list(indices)!r:.80}; one call each.")


def make_host(kind: str, env_fns: Sequence[Recipe], *, call_s: float | None = None) -> Host:
    """Make the host of that kind: ``serial``, ``thread`` or ``process``.

    Raises:
        BadArgument: for another kind, or recipes that are not callables.
    """
    for index, env_fn in enumerate(env_fns):
        if not callable(env_fn):
            raise BadArgument(
                f"env_fns[{index}] is {env_fn!r:.80}; accepted: a callable that makes one, as Maker."
            )
    if kind == "serial":
        from gem.vector.serial import Serial

        return Serial(env_fns, call_s)
    if kind == "thread":
        from gem.vector.threads import Threads

        return Threads(env_fns, call_s)
    if kind == "process":
        from gem.vector.processes import Processes

        return Processes(env_fns, call_s)
    raise BadArgument(f"backend is {kind!r}; accepted: {', '.join(KINDS)}.")


def escaped(error: BaseException) -> NoVerdict:
    """Build the error of an environment that raised what would end the program, or a task, that runs it."""
    if isinstance(error, SystemExit):
        return NoVerdict(f"the environment called exit({error.code!r}).")
    return NoVerdict(f"the environment raised {type(error).__name__}: {error}")


def overdue(verb: Verb, call_s: float) -> WorkerDied:
    """Build the error of a call that took too long."""
    name = verb if isinstance(verb, str) else verb.__name__
    return WorkerDied(f"{name} took longer than the {call_s:g} s that call_s allows.")
