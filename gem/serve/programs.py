"""ProgramAgent: a command that plays whole episodes in their sandbox, on a model behind the recording proxy.

The environment makes the workspace, runs the program in it and judges the state that it leaves; what the
program says of itself decides nothing. Where the environment has no workspace, the program plays by MCP, from
an empty one. The record has the program's calls of its model, as the proxy takes them. How it ends:

==================================================  ===========================================  =========
what happened                                       stop                                         verdict
==================================================  ===========================================  =========
the program ended: exit code 0, another, a signal   solved or failed, by the state               scored
its time was used up; it was ended                  solved by the state, else time_limit         scored
it was ended, or ended, with a call in flight that  error of the agent                           none
its endpoint did not answer
its calls or tokens were used up                    solved by the state, else turn or token      scored
                                                    limit
it burst the sandbox: memory, endless output        failed                                       scored
it never called its model                           as the row of how it ended                   scored
the model failed, and the program went on without   error of the agent                           none
the sandbox or its fork server failed               error of the environment; played again       none
it could not be started: exit code 126 or 127       the evaluation stops                         none
and no call, in this episode and in all before
the model can answer no request any more, or the    the evaluation stops                         none
proxy failed
==================================================  ===========================================  =========

By MCP, "the state" is how the environment's episode ended. One that the program has left unfinished is
truncated, with the limit that ended the program, else ``time_limit``; but `prints` makes what it printed its
last action.
"""

from __future__ import annotations

import asyncio
import os
from asyncio import CancelledError
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any

from gem.agents.base import BaseAgent
from gem.agents.named import AgentSettings, make_agent, make_endpoint_agent
from gem.content import text_of
from gem.core import Env, Start, Step
from gem.errors import AgentUnavailable, BadArgument, check_seconds
from gem.hosts.verbs import VERBS
from gem.record import SEAT, Agent, AgentInfo, Ask, Call, Episode, Failure, Reply, SeatEnd, StopReason
from gem.rollout.episode import Playing, find_task_stop
from gem.sandbox.base import ProgramSession, Result
from gem.sandbox.choice import open_program_sandbox
from gem.sandbox.programs import Run, read_program
from gem.serve.mcp.episode import EpisodeServer
from gem.serve.mcp.messages import Endpoint
from gem.serve.proxy.answering import Upstream
from gem.serve.proxy.app import Session
from gem.serve.proxy.server import Server

GRACE_S = 5.0
"""Seconds between the refusal of a call beyond the limits and the end of the program."""

NOT_STARTED = (126, 127)
"""Exit codes of a command that could not be started."""

TAIL = 2000
"""The characters of a program's output that the record keeps."""

MODELS = "accepted: --model openai:NAME[@URL], a name of `gem-gym models`, or the folder of a run."


@dataclass(kw_only=True)
class _ProxiedRun(Run):
    """A run behind the proxy; it also plays an environment that has no workspace.

    `start` is what the environment's reset returned; `played` the record of what was played by MCP; `left`:
    the program left that unfinished. `answer_s`: seconds to wait for an answer when the program has ended.
    `prints`: what the program prints is its last action.
    """

    server: Server
    session: Session
    seed: int
    answer_s: float
    prints: bool = False
    start: Start = field(default_factory=lambda: Start("", {}))
    played: Episode | None = None
    left: bool = False

    def play(self, env: Env) -> Step:
        """Let the program play `env` by MCP from an empty workspace; return how the episode ended.

        Raises:
            SandboxFailed: when the sandbox is broken. NoVerdict: when it was to be ended before it began.
            BadArgument: where what is printed should be the answer, and there are several turns.
        """
        spec = env.spec
        if self.prints and spec is not None and (spec.max_turns or 1) > 1:
            raise BadArgument(
                f"{spec.id} has up to {spec.max_turns} turns; what a program prints is its answer only in "
                "environments of one turn; leave --program-prints out."
            )

        async def carry_out(call: Call) -> Any:
            if call.verb == "reset":
                return self.start
            return await asyncio.to_thread(VERBS[call.verb], env, *call.args, **call.kwargs)

        async def end() -> None:
            self.session.endpoint = None
            async with episode.lock:  # behind the actions that were sent before
                text = "" if self.result is None or self.why else self.result.stdout.strip()
                if self.prints and text and not episode.over:
                    with suppress(BadArgument):  # it is too long, with the actions before
                        await episode.call_tool("act", {"action": text})
                self.left = not episode.over
                episode.leave()

        episode = EpisodeServer(lambda: env, self.seed, call=carry_out)
        self.server.run(episode.start())
        self.session.endpoint = Endpoint(episode)
        try:
            with closing(self.open_session()) as session:
                super().work(session, text_of(self.start.obs), mcp=True)
        finally:
            self.server.run(end())
        if self.left:
            self._settle()
        played = self.played = episode.episode
        last, actions = played.ends[SEAT], sum(turn.action is not None for turn in played.turns)
        info = {**last.info, "stop": played.stop.value, "actions": actions}
        return Step(last.observation, played.earned(), last.terminated, last.truncated, info)

    def work(self, session: ProgramSession, task: str, mcp: bool = False) -> Result:
        """Run the program, and wait until what it asked last is decided; see `Run.work`.

        Raises:
            BadArgument: where what is printed should be the answer, and the workspace is judged.
        """
        if self.prints and not mcp:
            raise BadArgument(
                "the environment judges the workspace that a program leaves, and not what it prints; leave "
                "--program-prints out."
            )
        result = super().work(session, task, mcp)
        self._settle()
        return result

    def _settle(self) -> None:
        if self.why not in ("model", "cancelled"):
            self.server.run(self.server.proxy.settle(self.session, self.answer_s))


class ProgramAgent(BaseAgent):
    """An agent program: it plays whole episodes, and answers no single request."""

    def __init__(
        self,
        command: str,
        model: Agent,
        *,
        time_s: float = 600.0,
        visible: Sequence[str] = (),
        prints: bool = False,
        price: Callable[[Episode], str] | None = None,
    ) -> None:
        """Open the sandbox and the proxy of the program, and check that the program is there.

        Args:
            command: the words of the command; see `gem.sandbox.programs.read_program`.
            model: the agent that answers the program's calls.
            time_s: seconds after which the program of an episode is ended.
            visible: further files and folders of this machine that the program sees, read-only.
            prints: what the program has printed to stdout when it ends by itself is its last action, where it
                has not ended the episode by MCP.
            price: says when an episode has cost what it may cost, such as `gem.evals.usage.EpisodePrice`.

        Raises:
            BadArgument: for a command that cannot be run.
            SandboxFailed: where this machine cannot give a program a network of its own.
        """
        check_seconds("program_s", time_s)
        if getattr(model, "verb", None):
            raise BadArgument(f"the model of a program answers messages; {type(model).__name__} cannot.")
        self.program = read_program(command, visible)
        self._started = (
            False  # in an episode: then an exit code is its own, also the one of a missing command
        )
        self.name, self.model, self.time_s = f"program:{command}", model, time_s
        self.price, self.shows, self.prints = price, tuple(visible), prints
        self.concurrency = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        self._sandbox = open_program_sandbox(self.program.visible)
        self._server = Server(model, ended=lambda episode: None).__enter__()
        try:
            self._check_program()
        except BaseException:
            self.close()
            raise

    @property
    def info(self) -> AgentInfo:
        """The program with its time and a digest of its files, and the model behind it."""
        about: AgentInfo = getattr(self.model, "info", None) or AgentInfo(type(self.model).__name__)
        own = {"program_s": self.time_s, "program_files": self.program.digest}
        if self.shows:
            own["program_shows"] = [*self.shows]
        if self.prints:
            own["program_prints"] = True
        return replace(about, agent=self.name, sampling={**about.sampling, **own})

    async def ask(self, ask: Ask) -> Reply:
        """Refuse: a program asks, and is not asked.

        Raises:
            BadArgument: always.
        """
        raise BadArgument("a program plays whole episodes of gem-gym eval; it answers no single request.")

    def _check_program(self) -> None:
        """Raise BadArgument if the program cannot be found in the sandbox."""
        with self._sandbox.session() as session:  # type: ignore[attr-defined]  # which closes itself
            if not session.shell(self.program.search()).ok:
                raise BadArgument(
                    f"the program {self.program.name!r} is not to be found in its sandbox; "
                    "--program-shows FOLDER shows it more of this machine."
                )

    def play_whole(self, env: Any, seed: int, record: Episode) -> Playing:
        """Play one episode as a generator, like `gem.rollout.episode.play`; see the module for its end.

        Raises:
            BadArgument: for a game of several seats, or a command that cannot be started. AgentUnavailable:
                when the model can answer no request any more.
        """
        began, server = perf_counter(), self._server
        session = server.open_session(episode=record)
        session.recording.price = self.price
        run = _ProxiedRun(
            program=self.program,
            sandbox=self._sandbox,
            key=session.key,
            serve=partial(server.serve_too, key=session.key),
            time_s=self.time_s,
            server=server,
            session=session,
            seed=seed,
            answer_s=self.time_s,
            prints=self.prints,
            delay_s=session.delay_s,
        )
        session.stop = lambda why: run.stop(why, 0.0 if why == "model" else GRACE_S)
        try:
            obs, info = yield Call(env, "reset", (seed,))
            if isinstance(obs, dict):
                raise BadArgument("a program plays alone, and this is a game of several seats.")
            run.start = Start(obs, info)
            record.timing = {"reset_s": perf_counter() - began}
            step = yield Call(env, "run_program", (run,))
            if session.failure is not None:
                raise session.failure
            record.starts[SEAT] = {**record.starts.get(SEAT, {}), "env": dict(info)}
            code = None if run.result is None else run.result.exit_code
            if session.recording.answers or code not in NOT_STARTED:
                self._started = True
            if run.result is not None and not self._started:
                words = run.result.stderr[-TAIL:].strip()
                raise BadArgument(f"the program {self.program.name!r} cannot be started: {words}")
            if run.played is not None and run.played.error is not None:
                record.error = run.played.error
            else:
                end = _end_of(run, step, session.recording.spent)
                server.run(server.proxy.end_program(session.name, float(step.reward), end))
        except (AgentUnavailable, BadArgument):
            raise
        except CancelledError:
            record.stop = StopReason.CANCELLED
        except Exception as error:
            record.error = Failure.from_error("env", error)
        finally:
            if run.result is None:
                run.stop("cancelled")
            with suppress(AgentUnavailable):  # the proxy is gone, and its sessions
                server.run(server.proxy.leave(session))
        if not record.ends:
            record.ends[SEAT] = SeatEnd(record.stop, truncated=True)
        record.timing |= {
            "policy_s": sum(turn.timing.get("policy_s", 0.0) for turn in record.turns),
            "env_s": 0.0 if run.result is None else run.result.wall_s,
            "wall_s": perf_counter() - began,
        }
        return record

    def publish(self, version: int, weights: Any = None) -> None:
        """Let the model answer with these weights, as policy `version`; see BaseAgent.publish."""
        self._server.publish(version, weights)

    def close(self) -> None:
        """End the proxy and the sandbox, and close the model."""
        self._server.__exit__()
        self._sandbox.close()
        if (close := getattr(self.model, "close", None)) is not None:
            close()
        super().close()


def _end_of(run: _ProxiedRun, step: Any, spent: StopReason | None) -> SeatEnd:
    """Return the end of an episode whose program has ended and whose state was judged."""
    stop = find_task_stop(step.info) if run.played is None else run.played.stop
    limit = spent or (StopReason.TIME_LIMIT if run.why == "time" else None)
    truncated, result = step.truncated, run.result
    by_limit = run.left if run.played is not None else stop is not StopReason.SOLVED
    if by_limit and limit is not None:
        stop, truncated = limit, True
    assert result is not None
    about = {
        "exit_code": result.exit_code,
        "signal": result.signal,
        "ended": run.why,
        "wall_s": result.wall_s,
        "delay_s": run.session.delay_s(),
        "cpu_s": result.cpu_s,
        "stdout": result.stdout[-TAIL:],
        "stderr": result.stderr[-TAIL:],
    }
    info = {**step.info, "stop": stop.value, "program": about}
    return SeatEnd(stop, not truncated, truncated, step.obs, info)


def make_program_agent(text: str, settings: AgentSettings) -> ProgramAgent:
    """Make the agent of a program; `text` is its command, and `settings.model` the model that it calls.

    Raises:
        BadArgument: without a model; else see `ProgramAgent`.
    """
    model = settings.model
    if not model:
        raise BadArgument(
            "a program needs a model to call: --model openai:NAME[@URL], smollm2 or a run's folder."
        )
    if isinstance(model, str):
        if model in ("random", "solver") or model.startswith("program:"):
            raise BadArgument(f"model is {model!r}, which answers no messages; {MODELS}")
        if settings.api == "completions" or settings.tool_calls == "text":
            raise BadArgument(
                "a program's calls have tools, which the model would not get by --api completions or "
                "--tool-calls text; leave them out, or use --api responses."
            )
        model = make_model(model, settings)
    return ProgramAgent(
        text,
        model,
        time_s=settings.program_s,
        visible=settings.program_shows,
        prints=settings.program_prints,
        price=settings.program_price,
    )


def make_model(name: str, settings: AgentSettings) -> Agent:
    """Make the model behind a proxy: a server is asked for token ids, and gets what a program asks for.

    An answer that takes longer than a program may is no answer: the server's time is at most the program's.
    """
    prefix, _, text = name.partition(":")
    if prefix != "openai":
        return make_agent(name, settings)
    settings = replace(settings, timeout_s=min(settings.timeout_s, settings.program_s))
    return make_endpoint_agent(text, settings, partial(Upstream, token_ids=True))
