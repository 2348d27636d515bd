"""Client for environments on a server of gem's (`gem-gym serve`), as the family ``remote:``."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

from gem import seeding
from gem.content import ToolSpec, tools_in
from gem.core import Env, Start, Step
from gem.envs.bridges.addresses import split
from gem.errors import BadArgument, EnvClosed
from gem.hiding import plain_address
from gem.hosts import wire
from gem.hosts.base import NO_KWARGS
from gem.hosts.remote import Elsewhere, Remote
from gem.specs import EnvSpec, TaskRef, written_arguments
from gem.trust import own_token


class RemoteEnv(Env):
    """An environment that runs on a server of gem's.

    Task:
        The task of the environment on the server.

    Action:
        As on the server.

    Observation:
        Exactly as on the server. Info values that JSON cannot hold arrive as text.

    Reward:
        As on the server.

    End:
        As on the server. If the server goes away, the episode has no verdict, as when a worker dies.

    Source:
        ``gem-gym serve``. States stay on the server: get_state() returns a name for one, which is valid while
        this environment is open.
    """

    shared: ClassVar[tuple[str, ...]] = ("_link", "_index", "_claims", "_tools", "_spec")
    state_travels: ClassVar[bool] = False
    _secret_arguments: ClassVar[tuple[str, ...]] = ("token",)

    def __init__(
        self, name: str, token: str | None = None, call_s: float | None = None, **keywords: Any
    ) -> None:
        """Open a session on the server.

        Args:
            name: the server's address and the id, as ``http://127.0.0.1:8000/game:Sudoku-v0-easy``.
            token: the server's token; None: the value of the environment variable GEM_SERVE_TOKEN, for a
                server that this user named (`gem.trust.own_token`).
            call_s: seconds that a call may take, including the network; None: no limit.
            **keywords: arguments of the environment; the server accepts those that it lists.

        Raises:
            WorkerDied: when there is no server. Errors of the server are raised as they are.
        """
        place = split(name)
        if place is None:
            raise BadArgument(
                f"{name!r:.120} is no address of an environment; accepted: http://host:port/ID."
            )
        plain, opaque = written_arguments(type(self), keywords)
        self._open(_Link(place.server, token, call_s), TaskRef(place.env_id, plain, opaque=opaque))

    def _open(self, link: _Link, task: TaskRef) -> None:
        self._link = link
        try:
            self._index = link.host.add(Elsewhere(task))
            about = link.host.about(self._index)
            if about.seats != ["agent"]:
                host = f"remote:{plain_address(link.host.url)}"
                raise BadArgument(f"{task.spec} has several seats; play it with {host=} instead.")
        except BaseException:
            link.host.close()
            raise
        link.users += 1
        self._claims = {claim: getattr(about, claim) for claim in wire.CLAIMS}
        self._tools = tools_in({"tools": about.tools})
        self.answer_marks = about.answer_marks

    def _call(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        if self._phase == "closed":
            raise EnvClosed(f"{self} is closed; make a new one.")
        return self._link.call(self._index, verb, args, kwargs)

    # -- the contract

    def reset(self, seed: int | None = None, **options: Any) -> Start:
        """Begin an episode on the server; see Env.reset."""
        super().reset(seed)
        start: Start = self._call("reset", self.seed, **options)
        return start

    def step(self, action: str) -> Step:
        """Take one action on the server; see Env.step."""
        step: Step = self._call("step", action)
        return step

    def close(self) -> None:
        """End the session on the server; see Env.close."""
        if self._phase != "closed" and "_link" in vars(self):
            self._link.leave(self._index)
        super().close()

    def sample_random_action(self) -> str:
        """Return a legal action, drawn on the server; see Env.sample_random_action."""
        return str(self._call("sample_random_action"))

    def solve(self) -> str:
        """Return the expert's next action, from the server; see Env.solve."""
        return str(self._call("solve"))

    def seed_actor(self, seed: int) -> None:
        """Start a new random actor stream on the server; see Env.seed_actor."""
        self._call("seed_actor", seeding.check(seed))

    @property
    def tool_specs(self) -> Sequence[ToolSpec]:  # type: ignore[override]
        """The tools that a model may call natively."""
        return self._tools

    @property
    def forkable(self) -> bool:  # type: ignore[override]
        """Whether the environment on the server can be forked."""
        return bool(self._claims["forkable"])

    @property
    def spec(self) -> EnvSpec | None:
        """The EnvSpec that this was made from, with the claims of the environment on the server."""
        return self._spec

    @spec.setter
    def spec(self, value: EnvSpec | None) -> None:
        self._spec = None if value is None else replace(value, **self._claims)

    # -- state

    def get_state(self) -> dict[str, Any]:
        """Return the local state and the name of the state that stays on the server; see Env.get_state."""
        return {**super().get_state(), "_there": self._call("get_state")}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the state that get_state() returned; see Env.set_state."""
        own_state = dict(state)
        there = own_state.pop("_there")
        super().set_state(own_state)
        self._call("set_state", there)

    def fork(self, seed: int | None = None) -> Self:
        """Return a copy in the same state, in its own session; see Env.fork."""
        self._check_forkable()
        twin = self._shell()
        twin._restore(self._copy_state())
        twin._index = self._link.fork(self._index, seed)
        if seed is not None:
            twin._seed = seeding.derive(seeding.check(seed), "fork")
            twin._rng = twin._actor_rng = None
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """Return what pickle keeps: the arguments without the token, and the state."""
        args, kwargs = self._init
        init = args[:1], {name: value for name, value in kwargs.items() if name != "token"}
        spec = self.spec and replace(
            self.spec, kwargs={name: value for name, value in self.spec.kwargs.items() if name != "token"}
        )
        return {"init": init, "spec": spec, "state": self.get_state()}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        """Open a new session in the saved state."""
        self._init = args, kwargs = kept["init"]
        type(self).__init__(self, *args, **kwargs)
        self.spec = self._made_by = kept["spec"]
        self.set_state(kept["state"])


class _Link:
    """A connection that an environment shares with its forks; one thread uses it at a time."""

    def __init__(self, server: str, token: str | None, call_s: float | None) -> None:
        self.host = Remote(call_s, server, own_token(server) if token is None else token)
        self.users = 0
        self._lock = threading.Lock()

    def call(self, index: int, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self._lock:
            try:
                self.host.submit(index, verb, args, kwargs or NO_KWARGS)
                (outcome,) = self.host.ready()
            except BaseException:  # as Ctrl-C, after which nobody waits for the answer
                self.host.abandon(index)
                raise
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

    def fork(self, index: int, seed: int | None) -> int:
        with self._lock:
            twin = self.host.fork(index, seed)
            self.users += 1
            return twin

    def leave(self, index: int) -> None:
        with self._lock:
            self.host.abandon(index)  # a second Ctrl-C may have interrupted the first one's clean-up
            self.host.remove(index)
            self.users -= 1
            if not self.users:
                self.host.close()
