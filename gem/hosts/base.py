"""Host: run environments, in this process or elsewhere, and wait for their calls.

A host has environments by index; the first call that needs one makes it from its recipe. Submitted calls
return as outcomes, in the order in which they finish; an environment has at most one call in flight. Only
hosts wait or time out: all code above them is bookkeeping. One thread at a time may use a host.

Packages add their own hosts through the entry point group ``gem.hosts``: a subclass of Host, or a function
that is called with ``call_s=`` and returns a host.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from gem import plugins
from gem.closing import Closing
from gem.core import Env
from gem.errors import BadArgument, EnvClosed, NoVerdict, WorkerDied, check_seconds
from gem.hosts.foreign import ForeignCode
from gem.hosts.verbs import VERBS, failure_of, wrap_exception
from gem.record import Failure
from gem.registry import load
from gem.specs import EnvSpec, parameters_of
from gem.trust import name_server, own_token

Kind = Literal["serial", "thread", "process"]
KINDS: tuple[Kind, ...] = ("serial", "thread", "process")
"""The built-in hosts."""

PLUGIN_GROUP = "gem.hosts"

_HOMES = {
    "serial": "gem.hosts.serial:Serial",
    "thread": "gem.hosts.threads:Threads",
    "process": "gem.hosts.processes:Processes",
    "remote": "gem.hosts.remote:Remote",
}

Recipe: TypeAlias = Callable[[], Env]

Command: TypeAlias = "tuple[int, str, tuple[Any, ...], Mapping[str, Any]]"
"""One call: index, verb, arguments, keywords."""

Mapped: TypeAlias = "tuple[list[Any], dict[int, Exception]]"

NO_KWARGS: Mapping[str, Any] = {}


class Outcome(NamedTuple):
    """The result of a call: its value, or its error."""

    index: int  # type: ignore[assignment]  # shadows tuple.index, which nobody calls on an outcome
    value: Any = None
    error: Exception | None = None

    @property
    def failure(self) -> Failure | None:
        """The error in the form of an episode's record, or None."""
        return None if self.error is None else failure_of(self.error)


class Slot:
    """The recipe of one environment, and the environment itself once a call has needed it."""

    __slots__ = ("env", "recipe")

    def __init__(self, recipe: Recipe) -> None:
        """Keep the recipe."""
        self.recipe = recipe
        self.env: Env | None = None

    def make(self) -> Env:
        """Return the environment; make it at the first call."""
        if self.env is None:
            self.env = self.recipe()
        return self.env

    def close(self) -> None:
        """Close the environment, if there is one, and ignore errors."""
        env, self.env = self.env, None
        if env is not None:
            try:
                with ForeignCode():
                    env.close()
            except KeyboardInterrupt:
                raise
            except BaseException:  # exit() too, or a cancelled event loop of its own
                return


def await_closing(seconds: float, close: Callable[..., None], *args: Any) -> None:
    """Call `close` in a thread, and leave it there if it takes longer than `seconds`."""
    closing = threading.Thread(target=close, args=args, name="gem-close", daemon=True)
    closing.start()
    closing.join(seconds)


def carry_out(slot: Slot, command: Command) -> Outcome:
    """Run one call in the process of its environment."""
    index, verb, args, kwargs = command
    try:
        with ForeignCode():
            return Outcome(index, VERBS[verb](slot.env or slot.make(), *args, **kwargs))
    except Exception as error:
        return Outcome(index, None, error)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # exit(), or an event loop of the environment that was cancelled
        return Outcome(index, None, wrap_exception(error))


class Host(Closing, ABC):
    """A set of running environments: `add` and `remove` them, `submit` calls, and get results from `ready`.

    A call that raises returns an outcome with the error and keeps its environment; `renew` replaces it. A
    call that takes longer than `call_s` seconds returns WorkerDied, and its environment is replaced. The
    serial host cannot stop a call; it detects this after the call has returned.
    """

    takes_states: ClassVar[bool] = True
    """Whether `set_state` takes a state that an environment returned elsewhere."""
    forks: ClassVar[bool] = False
    """Whether a fork of the process has environments of its own; else it must not use its parent's."""

    def __init__(self, call_s: float | None = None) -> None:
        """Start without environments."""
        self.busy: set[int] = set()
        """The indices whose call is in flight."""
        self._indices: set[int] = set()
        self._added = 0
        self._closed = False
        self._born = ForeignCode.forks
        self.call_s = call_s

    @property
    def call_s(self) -> float | None:
        """Seconds that a call may take; None: any.

        Raises:
            BadArgument: when it is set to a number that is not positive, or while calls are in flight.
        """
        return self._call_s

    @call_s.setter
    def call_s(self, value: float | None) -> None:
        check_seconds("call_s", value)
        if self.busy:
            raise BadArgument(f"call_s is set while {len(self.busy)} calls are in flight; wait for them.")
        self._call_s = value

    def __len__(self) -> int:
        """The number of environments."""
        return len(self._indices)

    def __bool__(self) -> bool:
        """Return True, so that ``host or another`` does not skip an empty host."""
        return True

    def __contains__(self, index: object) -> bool:
        """Whether an environment has this index."""
        return index in self._indices

    # -- environments

    def add(self, recipe: Recipe, *, alone: bool = False) -> int:
        """Add an environment, which the first call that needs it makes, and return its index.

        Args:
            recipe: a callable that makes it, such as a Maker; picklable if another process makes it.
            alone: run it in a separate worker process until it is removed, so that its death affects no other
                environment; hosts in this process ignore it.

        Raises:
            BadArgument: for an invalid recipe. EnvClosed: after close(), and in a fork of the process.
        """
        self._check_open()
        if not callable(recipe):
            raise BadArgument(
                f"the recipe of env {self._added} is {recipe!r:.80}; accepted: a callable that makes an "
                "environment, such as a Maker."
            )
        index = self._added
        self._add(index, recipe, alone)
        self._added += 1
        self._indices.add(index)
        return index

    def remove(self, index: int) -> None:
        """Close the environment at `index`; the index is not used again.

        Raises:
            BadArgument: when there is no such index, or a call of it is in flight.
        """
        self._check_idle(index)
        self._indices.discard(index)
        if not self._is_parents():
            self._remove(index)

    def renew(self, index: int, recipe: Recipe | None = None) -> None:
        """Close the environment at `index`; the next call makes another one, from `recipe` if given.

        Raises:
            BadArgument: when there is no such index, or a call of it is in flight. EnvClosed: after close(),
                and in a fork of the process.
        """
        self._check_open()
        self._check_idle(index)
        self._renew(index, recipe)

    def env(self, index: int) -> Env:
        """Return the environment at `index`, if it runs in this process; make it if necessary.

        Raises:
            BadArgument: when it runs in another process, or there is no such index. EnvClosed: after close(),
                and in a fork of the process that shares no environments. Or its recipe's error.
        """
        raise BadArgument("these environments run in other processes; use the serial or thread host.")

    # -- calls

    def submit(
        self, index: int, verb: str, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] = NO_KWARGS
    ) -> None:
        """Start one call of an environment; `verb` is a name of `gem.hosts.verbs.VERBS`.

        Raises:
            BadArgument: for an unknown verb or index, or when a call of it is in flight.
            EnvClosed: after close(), and in a fork of the process.
        """
        self.submit_all([(index, verb, args, kwargs)])

    def submit_all(self, commands: Sequence[Command]) -> None:
        """Start several calls, with less overhead than one by one; see submit."""
        self._check_open()
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
        """Wait until `at_least` calls have finished and return all available outcomes.

        After `timeout` seconds it returns those that are available, which may be none.

        Raises:
            BadArgument: when fewer calls than `at_least` are in flight. EnvClosed: in a fork of the process.
        """
        self._check_open()
        if not 1 <= at_least <= len(self.busy):
            raise BadArgument(
                f"at_least is {at_least} and {len(self.busy)} calls are in flight; "
                "accepted: 1 up to the number of calls in flight."
            )
        outcomes = self._collect_outcomes(at_least, timeout)
        self.busy.difference_update([outcome[0] for outcome in outcomes])
        return outcomes

    def map(self, indices: Sequence[int], verb: str, *columns: Sequence[Any]) -> Mapped:
        """Call `verb` on many environments and wait for all; `columns` have one argument per environment.

        It is submit_all plus ready, with less overhead on some hosts. No other call may be in flight.

        Returns:
            The values in the order of `indices`, and the errors by position (where the value is None).
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
        """Close all environments, end all workers, drop calls in flight. Calling it twice is harmless.

        In a fork of the process it leaves the parent's environments and workers alone.
        """
        if not self._closed:
            self._closed = True
            self.busy.clear()
            if not self._is_parents():
                self._close()

    # -- methods that a host defines

    @abstractmethod
    def _add(self, index: int, recipe: Recipe, alone: bool) -> None:
        """Add an environment."""

    @abstractmethod
    def _remove(self, index: int) -> None:
        """Close an idle environment and forget it."""

    @abstractmethod
    def _renew(self, index: int, recipe: Recipe | None) -> None:
        """Replace an idle environment."""

    @abstractmethod
    def _start(self, commands: Sequence[Command]) -> None:
        """Start calls that have been checked."""

    @abstractmethod
    def _collect_outcomes(self, at_least: int, timeout: float | None) -> list[Outcome]:
        """Wait for outcomes."""

    @abstractmethod
    def _close(self) -> None:
        """Release everything, once."""

    def _is_parents(self) -> bool:
        """Whether its workers, threads or connections are those of a process of which this one is a fork."""
        return self._born != ForeignCode.forks and not self.forks

    def _check_open(self) -> None:
        if self._closed:
            raise EnvClosed("the host is closed; make a new one.")
        if self._is_parents():
            raise EnvClosed(
                "this process is a fork of the one that made these environments, which run there; make "
                "environments here, or start the process with multiprocessing's context 'spawn'."
            )

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
                    f"env index is {index!r}; accepted: an index that add() returned and remove() did not "
                    f"take; there are {len(self)}."
                )
            if index in self.busy:
                return BadArgument(f"env {index} has a call in flight; wait for its outcome first.")
        return BadArgument(f"an env index occurs twice in {list(indices)!r:.80}; accepted: one call each.")


def make_host(host: str | Host, recipes: Iterable[Recipe] = (), *, call_s: float | None = None) -> Host:
    """Return the host with this name, with an environment for each recipe: indices from 0, in order.

    An instance is used as it is: it keeps its environments, and only `call_s` is changed if given. The caller
    closes it.

    Args:
        host: ``serial``, ``thread``, ``process``, ``remote:http://host:port`` (see
            `gem.hosts.remote`), a name that a package offers in the entry point group ``gem.hosts``, followed
            by ``:address`` if it takes one; or an instance.
        recipes: see Host.add.
        call_s: seconds that a call may take.

    Raises:
        BadArgument: for an unknown name, or an invalid recipe.
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
    host = load(_HOMES[kind]) if kind in _HOMES else None
    if host is None and isinstance(kind, str):
        host = plugins.find(PLUGIN_GROUP, kind)
    if host is not None and colon:
        if "address" not in parameters_of(host):
            raise BadArgument(f"backend is {name!r:.80}; {kind} takes no address.")
        if kind == "remote":
            name_server(name)
            return partial(host, address=address, token=own_token(address))
        return partial(host, address=address)
    if host is None and kind == "ray":
        raise BadArgument(
            "backend is 'ray'; environments are not stepped through Ray: each step would be a message. Play "
            "whole episodes there: gem.rollout.RayRunner, or `gem-gym eval --ray ADDRESS`. To step "
            "environments of another machine, run `gem-gym serve` there and use 'remote:http://HOST:PORT'."
        )
    if host is None:
        known = ", ".join([*_HOMES, *plugins.names(PLUGIN_GROUP)])
        raise BadArgument(f"backend is {name!r:.80}; accepted: {known}, or an instance of gem.hosts.Host.")
    return host


def auto_kind(specs: Iterable[EnvSpec]) -> Kind:
    """Return the best host for these environments: ``thread`` if any of them waits, else ``serial``."""
    return "thread" if any(spec.waits for spec in specs) else "serial"


def stand_in_for(name: str, no_verdict: bool) -> type[Exception]:
    """Return an error class for one that exists only in another process; records have the same name."""
    return type(name, (NoVerdict if no_verdict else RuntimeError,), {})


def overdue(verb: str, call_s: float, setting: str = "call_s") -> WorkerDied:
    """Build the error for a call that took too long."""
    return WorkerDied(f"{verb} took longer than the {call_s:g} s that {setting} allows.")
