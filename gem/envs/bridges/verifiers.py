"""Bridge to verifiers (v1): installed tasksets that need no container, as the family ``verifiers:``.

verifiers' environment runs whole, in an event loop in a thread of its own: it asks its agent for a turn,
which becomes an observation, and the action is the agent's reply. Set-up, scoring and the order of the tasks
are verifiers' own. No program, tool server or runtime is started, and no endpoint is asked for the agent.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import islice
from queue import SimpleQueue
from threading import Thread
from typing import Any, ClassVar

from gem.core import Env, Start, Step
from gem.errors import BadArgument, NoVerdict, check_least, needs_extra, text_of_error
from gem.tasks.order import Ordered, index_at

with needs_extra("the verifiers: family", "verifiers", "verifiers"):
    import verifiers.v1 as vf
    from pydantic import ValidationError
    from verifiers.v1.configs.agent import agent_config_fields
    from verifiers.v1.utils.decorators import discover_decorated
    from verifiers.v1.utils.loaders import environment_class, load_environment, resolve_env_config

_NAME = re.compile(r"(\w[\w.-]*/)?[A-Za-z][\w-]*(@[\w.-]+)?")
_ENDLESS = 1000
_CLOSE_S = 5.0


class VerifiersEnv(Env):
    """A taskset of verifiers, with the environment of its package.

    Task:
        A task of the taskset. One pass over the seeds plays each task once, in a shuffled order.

    Action:
        The agent's reply, as text.

    Observation:
        The system prompt and the prompt; then what the taskset's environment says, if it goes on.

    Reward:
        At the end: the sum of the trace's weighted rewards, which stand in info ``rewards`` by name, with its
        ``metrics``. Nothing before.

    End:
        When verifiers' environment is done: after one reply, unless the package has an environment that
        takes the user's part.

    Source:
        https://github.com/PrimeIntellect-ai/verifiers (MIT licence), release 0.4.
    """

    forkable: ClassVar[bool] = False
    shared: ClassVar[tuple[str, ...]] = ("_env", "_tasks", "_play")

    def __init__(self, name: str, tasks: int | None = None, **settings: Any) -> None:
        """Load the taskset.

        Args:
            name: the taskset's id, as verifiers' commands take it: the name of an installed package.
            tasks: play only this many, from the first; of an endless taskset 1,000 if left out.
            **settings: the taskset's own, as ``--env.taskset.NAME`` of verifiers' commands.

        Raises:
            BadArgument: for a package that has no taskset, settings that it does not take, or a taskset that
                needs what gem does not give: a container, tools, an agent program, several agents, pictures.
        """
        if not _NAME.fullmatch(name):
            raise BadArgument(f"verifiers:{name!r:.120} names no taskset; accepted: verifiers:PACKAGE.")
        if tasks is not None:
            check_least("tasks", tasks)
        self.name = name
        self._env = _load(name, settings)
        taskset: Any = self._env.taskset
        most = tasks or (None if taskset.bounded else _ENDLESS)
        try:
            self._tasks = _Tasks(islice(taskset, most))
        except Exception as error:
            raise BadArgument(f"verifiers:{name} cannot load its tasks: {_describe(error)}") from error
        if not self._tasks:
            raise BadArgument(f"verifiers:{name} has no tasks with these settings; change them.")
        self._index = 0
        self._play: _Play | None = None

    # -- the contract

    def reset(self, seed: int | None = None) -> Start:
        """Begin a task; see Env.reset."""
        super().reset(seed)
        self._stop()
        self._index = index_at(self._tasks, 0, self.seed or 0)
        task = self._tasks[self._index]
        _check_task(self.name, task)
        self._play = _Play(self.name, self._env, task)
        step = self._play.wait()
        if step.done:
            raise NoVerdict(f"verifiers:{self.name} ended the episode before its first turn.")
        return Start(step.obs, {"task": self.instance()})

    def step(self, action: str) -> Step:
        """Reply to the environment; see Env.step."""
        assert self._play is not None
        self._play.reply(action)
        return self._play.wait()

    def close(self) -> None:
        """End the running episode; see Env.close."""
        self._stop()
        super().close()

    def instance(self) -> str:
        """Return the name of the task, its id, or its number."""
        data = self._tasks[self._index].data
        return str(data.name or data.id or data.idx)

    def _stop(self) -> None:
        play, self._play = getattr(self, "_play", None), None
        if play is not None:
            play.close()


class _Tasks(tuple[Any, ...], Ordered):
    """Tasks in the order of their taskset."""

    name = "verifiers"


def _load(name: str, settings: dict[str, Any]) -> Any:
    """Return the environment of a taskset. Raises BadArgument."""
    config: dict[str, Any] = {"taskset": {**settings, "id": name}}
    try:
        made = load_environment(resolve_env_config(config))
    except ValidationError as error:
        faults = [(".".join(map(str, each["loc"][1:])), each["msg"]) for each in error.errors()]
        wrong = "; ".join(f"{place}: {fault}" for place, fault in faults)
        raise BadArgument(f"verifiers:{name} does not take its settings: {wrong[:500]}") from error
    except Exception as error:  # the package's own code was imported
        raise BadArgument(
            f"verifiers:{name} cannot be loaded: {_describe(error)} Accepted: an installed package that "
            "exports a v1 Taskset, as `vf-eval NAME` takes it."
        ) from error
    taskset, task = made.taskset, type(made.taskset).task_type()
    roles = [*agent_config_fields(made.config)]
    needs = {
        "a container": task.NEEDS_CONTAINER,
        "tool servers": taskset.toolsets(taskset.config) or task.toolsets(taskset.config.task),
        "an agent program of its own": made.config.taskset.id == made._default_harness.id,
        f"several agents ({', '.join(roles)})": len(roles) != 1,
        "shared resources, which its environment starts": any(
            getattr(environment_class(name), each) is not getattr(vf.Env, each) for each in ("start", "stop")
        ),
    }
    _refuse(name, needs)
    return made


def _refuse(name: str, needs: dict[str, Any]) -> None:
    """Raise BadArgument for the first thing that is needed."""
    for need, there in needs.items():
        if there:
            raise BadArgument(
                f"verifiers:{name} needs {need}; accepted: a taskset that one agent plays by text, without a "
                "container or tools. `vf-eval` runs the others."
            )


def _check_task(name: str, task: Any) -> None:
    """Refuse a task that needs what gem does not give. Raises BadArgument."""
    hooks = [hook for kind in ("metric", "reward") for hook in task.hooks(kind)]
    scorers = [*hooks, *(judge.score for judge in task.plugged_judges())]
    needs = {
        "a container": task.data.image,
        "skills, which an agent program installs": task.data.skills,
        "hooks on model calls": [*task.hooks("stop"), *discover_decorated(task, "intercept")],
        "a runtime for its scoring": any(map(_takes_runtime, scorers)),
        "a conversation that has begun": isinstance(task.data.prompt, list)
        and any(message.role not in ("system", "user") for message in task.data.prompt),
    }
    _refuse(name, needs)


def _takes_runtime(score: Any) -> bool:
    given = inspect.signature(score).parameters.get("runtime")
    return given is not None and given.default is inspect.Parameter.empty


class _Play:
    """An episode of verifiers' environment in its own thread.

    `wait` returns what the environment says next, `reply` answers it.
    """

    def __init__(self, name: str, env: Any, task: Any) -> None:
        self.name, self.env, self.task = name, env, task
        self._events: SimpleQueue[Step | BaseException] = SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._main = self._loop.create_task(self._run())
        self._answer: asyncio.Future[str] | None = None
        self._thread = Thread(target=self._work, name="gem-verifiers", daemon=True)
        self._thread.start()

    def wait(self) -> Step:
        """Return the next turn. Raises what the environment raised."""
        event = self._events.get()
        if isinstance(event, BaseException):
            raise event
        return event

    def reply(self, action: str) -> None:
        """Answer the turn that `wait` returned."""
        assert self._answer is not None
        self._loop.call_soon_threadsafe(self._answer.set_result, action)

    def close(self) -> None:
        """Cancel what runs; one that does not end in time is left to its thread."""
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._main.cancel)
        self._thread.join(_CLOSE_S)

    async def ask(self, text: str) -> str:
        """Pass a turn of the environment on, and return the agent's reply."""
        self._answer = self._loop.create_future()
        self._events.put(Step(text, 0.0, False, False, {}))
        return await self._answer

    def _work(self) -> None:
        try:
            self._events.put(self._loop.run_until_complete(self._main))
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            known = isinstance(error, BadArgument | NoVerdict)
            self._events.put(
                error if known else NoVerdict(f"verifiers:{self.name} failed: {_describe(error)}")
            )
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _run(self) -> Step:
        """Play as `verifiers.v1.Env.run_episode` does; an error is raised, not noted."""
        episode: Any = vf.Episode(env=vf.EnvInfo(id=self.env.config.env_id), task=_trace_task(self.task))
        agents: Any = vf.Agents(self.env.config, lambda name, config: _Agent(self, name, config, episode))
        await self.env.setup(agents)
        await self.env.run(self.task, agents)
        await self.env.finalize(self.task, episode)
        if len(episode.traces) != 1:
            raise NoVerdict(f"verifiers:{self.name} played {len(episode.traces)} agent runs; accepted: 1.")
        (trace,) = episode.traces
        unscored = [name for name, reward in trace.rewards.items() if reward is None]
        if unscored or not trace.rewards:
            raise NoVerdict(f"verifiers:{self.name} gave no reward {', '.join(unscored)}".rstrip() + ".")
        rewards = {name: reward.value for name, reward in trace.rewards.items()}
        metrics = {name: value for name, value in trace.metrics.items() if value is not None}
        return Step("", trace.reward, True, False, {"rewards": rewards, "metrics": metrics})


class _Agent:
    """What verifiers' environment takes for its agent; see `verifiers.v1.Agent`."""

    trainable = True

    def __init__(self, play: _Play, name: str, config: Any, episode: Any) -> None:
        self.play, self.name, self.config, self.episode = play, name, config, episode

    async def run(self, task: Any) -> Any:
        """Play a task of one turn and return its trace."""
        async with self.interaction(task) as interaction:
            await interaction.turn()
        return interaction.trace

    @asynccontextmanager
    async def interaction(self, task: Any) -> AsyncIterator[_Interaction]:
        """Hold a conversation; where it ends, the task is scored."""
        _check_task(self.play.name, task)
        info: Any = vf.AgentInfo(config=self.config, name=self.name, trainable=self.trainable)
        trace: Any = vf.Trace(task=_trace_task(task), agent=info)
        none = _NoRuntime(self.play.name)
        await task.setup(trace, none)
        yield _Interaction(self.play, task.data, trace)
        trace.stop("user_closed")
        trace.ok = True
        await task.finalize(trace, none)
        await task.score(trace)
        self.episode.traces.append(trace)


class _Interaction:
    """A conversation with the agent; see `verifiers.v1.Interaction`."""

    def __init__(self, play: _Play, data: Any, trace: Any) -> None:
        self.trace = trace
        self._play, self._data = play, data

    async def turn(self, message: Any = None) -> Any:
        """Say something to the agent and return its reply as a segment."""
        begins = not self.trace.nodes
        prompted = begins and self._data.prompt is not None
        if prompted != (message is None):
            raise NoVerdict(
                f"verifiers:{self._play.name}: a turn without a message is the first of a task with a "
                "prompt, and no other."
            )
        messages = _messages(self._data.prompt if prompted else message)
        if begins and self._data.system_prompt:
            messages = [vf.SystemMessage(content=self._data.system_prompt), *messages]
        reply = await self._play.ask("\n\n".join(_text(self._play.name, each) for each in messages))
        answer = vf.AssistantMessage(content=reply)
        for each in (*messages, answer):
            nodes = self.trace.nodes
            nodes.append(
                vf.MessageNode(parent=len(nodes) - 1 if nodes else None, message=each, sampled=each is answer)
            )
        return vf.Segment(messages=[answer])


class _NoRuntime:
    """Stands where a hook gets a runtime; refuses to be used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        _refuse(self._name, {f"a runtime (its hooks use runtime.{attribute})": True})


def _trace_task(task: Any) -> Any:
    return vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)


def _messages(given: Any) -> Sequence[Any]:
    if isinstance(given, str):
        return [vf.UserMessage(content=given)]
    return [vf.UserMessage(content=each["content"]) if isinstance(each, dict) else each for each in given]


def _text(name: str, message: Any) -> str:
    """Return a message as text. Raises BadArgument for pictures."""
    if isinstance(message.content, str):
        return str(message.content)
    parts = message.content or []
    _refuse(name, {"pictures": any(part.type != "text" for part in parts)})
    return "\n".join(part.text for part in parts)


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {text_of_error(error)[:300]}"
