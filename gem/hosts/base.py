"""Host: where environments live, and who waits for them.

A host holds environments by index, each made from a recipe by the first call that needs it. Calls are
submitted and come back as outcomes, in the order in which they finish; an environment has at most one call in
flight. Only hosts wait or time out: everything above them is bookkeeping. One thread at a time uses a host.

Packages add hosts of their own through the entry point group ``gem.hosts``: a subclass of Host, or a function
that is called with ``call_s=`` and returns one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, NamedTuple, Self, TypeAlias

from gem import plugins
from gem.core import Env
from gem.errors import BadArgument, EnvClosed, NoVerdict, WorkerDied, text_of_error
from gem.hosts.verbs import VERBS, failure_of
from gem.record import Failure
from gem.registry import load
from gem.specs import EnvSpec, parameters_of

Kind = Literal["serial", "thread", "process"]
KINDS: tuple[Kind, ...] = ("serial", "thread", "process")
"""The hosts of our own."""

PLUGIN_GROUP = "gem.hosts"

_HOMES = {
    "serial": "gem.hosts.serial:Serial",
    "thread": "gem.hosts.threads:Threads",
    "process": "gem.hosts.processes:Processes",
    "remote": "gem.hosts.remote:Remote",
    "ray": "gem.hosts.ray_host:RayHost",
}

Recipe: TypeAlias = Callable[[], Env]

Command: TypeAlias = "tuple[int, str, tuple[Any, ...], Mapping[str, Any]]"
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


class Slot:
    """A place for one environment: its recipe, and the environment once a call needed it."""

    __slots__ = ("env", "recipe")

    def __init__(self, recipe: Recipe) -> None:
        """Keep the recipe."""
        self.recipe = recipe
        self.env: Env | None = None

    def made(self) -> Env:
        """Return the environment, made where it was not yet."""
        if self.env is None:
            self.env = self.recipe()
        return self.env

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
        return Outcome(index, VERBS[verb](slot.env or slot.made(), *args, **kwargs))
    except Exception as error:
        return Outcome(index, None, error)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # exit(), or an event loop of its own that was cancelled
        return Outcome(index, None, escaped(error))


class Host(ABC):
    """Where environments live: `add` and `remove` them, `submit` calls, and hear of them from `ready`.

    A call that raises comes back as an outcome with the error and leaves its environment in place;
    `renew` replaces it. A call that takes longer than `call_s` seconds comes back as WorkerDied, its
    environment is replaced; where the call can be neither killed nor left behind (the serial host), that
    is noticed when it returns.
    """

    def __init__(self, call_s: float | None = None) -> None:
        """Begin without environments."""
        self.busy: set[int] = set()
        """The indices whose call is in flight."""
        self._indices: set[int] = set()
        self._added = 0
        self._closed = False
        self.call_s = call_s

    @property
    def call_s(self) -> float | None:
        """Seconds that a call may take; None: any.

        Raises:
            BadArgument: when it is set to no positive number, or while calls are in flight.
        """
        return self._call_s

    @call_s.setter
    def call_s(self, value: float | None) -> None:
        if value is not None and not value > 0:
            raise BadArgument(f"call_s is {value}; accepted: seconds, more than 0, or None.")
        if self.busy:
            raise BadArgument(f"call_s is set while {len(self.busy)} calls are in flight; wait for them.")
        self._call_s = value

    def __len__(self) -> int:
        """The number of environments."""
        return len(self._indices)

    def __bool__(self) -> bool:
        """True: ``host or another`` must not pass over a host because it is empty."""
        return True

    def __contains__(self, index: object) -> bool:
        """Whether an environment has this index."""
        return index in self._indices

    # -- environments

    def add(self, recipe: Recipe, *, alone: bool = False) -> int:
        """Take in an environment, made by the first call that needs it, and return its index.

        Args:
            recipe: a callable that makes it, as Maker; picklable where it is made in another process.
            alone: give it a worker process of its own until it is removed, so that its death takes nobody
                along; hosts in this process ignore it.

        Raises:
            BadArgument: for what is no recipe. EnvClosed: after close().
        """
        if self._closed:
            raise EnvClosed("the host is closed; make a new one.")
        if not callable(recipe):
            raise BadArgument(
                f"the recipe of env {self._added} is {recipe!r:.80}; accepted: a callable that makes an "
                "environment, as Maker."
            )
        index = self._added
        self._add(index, recipe, alone)
        self._added += 1
        self._indices.add(index)
        return index

    def remove(self, index: int) -> None:
        """Close the environment at `index`; no other gets that index.

        Raises:
            BadArgument: when there is no such index, or a call of it is in flight.
        """
        self._check_idle(index)
        self._indices.discard(index)
        self._remove(index)

    def renew(self, index: int, recipe: Recipe | None = None) -> None:
        """Close the environment at `index`; the next call makes another, from `recipe` where that is given.

        Raises:
            BadArgument: when there is no such index, or a call of it is in flight.
        """
        self._check_idle(index)
        self._renew(index, recipe)

    def env(self, index: int) -> Env:
        """Return the environment at `index`, made where it was not yet, if it lives in this process.

        Raises:
            BadArgument: when it lives in another, or there is no such index. Or whatever its recipe raises.
        """
        raise BadArgument("these environments live in other processes; use the serial or thread host.")

    # -- calls

    def submit(
        self, index: int, verb: str, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] = NO_KWARGS
    ) -> None:
        """Start one call of an environment; `verb` is a name of `gem.hosts.verbs.VERBS`.

        Raises:
            BadArgument: for another verb, when there is no such index, or a call of it is in flight.
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
        for verb in {command[1] for command in commands}:
            if verb not in VERBS:
                raise BadArgument(f"verb is {verb!r:.80}; accepted: {', '.join(VERBS)}.")
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

    def map(self, indices: Sequence[int], verb: str, *columns: Sequence[Any]) -> Mapped:
        """Call `verb` on many environments and wait for all; `columns` hold the rows' arguments.

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

    # -- the end

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

    # -- what a host defines

    @abstractmethod
    def _add(self, index: int, recipe: Recipe, alone: bool) -> None:
        """Take in an environment."""

    @abstractmethod
    def _remove(self, index: int) -> None:
        """Close an idle environment and forget it."""

    @abstractmethod
    def _renew(self, index: int, recipe: Recipe | None) -> None:
        """Replace an idle environment."""

    @abstractmethod
    def _start(self, commands: Sequence[Command]) -> None:
        """Begin calls that have been checked."""

    @abstractmethod
    def _finished(self, at_least: int, timeout: float | None) -> list[Outcome]:
        """Wait for outcomes."""

    @abstractmethod
    def _close(self) -> None:
        """Release everything, once."""

    def _check_known(self, index: int) -> None:
        if index not in self._indices:
            raise self._refusal([index])

    def _check_idle(self, index: int) -> None:
        self._check_known(index)
        if index in self.busy:
            raise self._refusal([index])

    def _refusal(self, indices: Sequence[int]) -> BadArgument:
        for index in indices:
            if index not in self._indices:
                return BadArgument(
                    f"env index is {index!r}; accepted: one that add() returned and remove() did not take "
                    f"back; there are {len(self)}."
                )
            if index in self.busy:
                return BadArgument(f"env {index} has a call in flight; wait for its outcome first.")
        return BadArgument(f"an env index stands twice in {list(indices)!r:.80}; one call each.")


def make_host(host: str | Host, recipes: Iterable[Recipe] = (), *, call_s: float | None = None) -> Host:
    """Return the host of that name, with an environment for each recipe: indices from 0, in order.

    An instance is taken as it is: it keeps the environments that it has, and only `call_s` is changed where
    one is given. Who gave it closes it.

    Args:
        host: ``serial``, ``thread``, ``process``, ``ray``, ``remote:http://host:port`` (see
            `gem.hosts.remote`), a name that a package offers under the entry point group ``gem.hosts``, with
            ``:address`` behind it where it takes one; or an instance.
        recipes: see Host.add.
        call_s: seconds that a call may take.

    Raises:
        BadArgument: for another name, or a recipe that is none.
    """
    if isinstance(host, Host):
        made = host
        if call_s is not None:
            made.call_s = call_s
    else:
        made = _class_of(host)(call_s=call_s)
    try:
        for recipe in recipes:
            made.add(recipe)
    except BaseException:
        if made is not host:
            made.close()
        raise
    return made


def _class_of(name: str) -> Callable[..., Host]:
    kind, colon, address = name.partition(":") if isinstance(name, str) else (name, "", "")
    found = load(_HOMES[kind]) if kind in _HOMES else None
    if found is None and isinstance(kind, str):
        found = plugins.find(PLUGIN_GROUP, kind)
    if found is not None and colon:
        if "address" not in parameters_of(found):
            raise BadArgument(f"backend is {name!r:.80}; {kind} takes no address.")
        return partial(found, address=address)
    if found is None:
        known = ", ".join([*_HOMES, *plugins.names(PLUGIN_GROUP)])
        raise BadArgument(f"backend is {name!r:.80}; accepted: {known}, or an instance of gem.hosts.Host.")
    return found


def auto_kind(specs: Iterable[EnvSpec]) -> Kind:
    """Return the host that serves these environments best: ``thread`` if any waits, else ``serial``."""
    return "thread" if any(spec.waits for spec in specs) else "serial"


def escaped(error: BaseException) -> NoVerdict:
    """Build the error of an environment that raised what would end the program, or a task, that runs it."""
    if isinstance(error, SystemExit):
        return NoVerdict(f"the environment called exit({error.code!r}).")
    return NoVerdict(f"the environment raised {type(error).__name__}: {text_of_error(error)}")


def overdue(verb: str, call_s: float) -> WorkerDied:
    """Build the error of a call that took too long."""
    return WorkerDied(f"{verb} took longer than the {call_s:g} s that call_s allows.")
