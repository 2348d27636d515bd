"""Play one episode without a Runner, with simple drivers or in your own loop.

`drive` and `drive_async` play an episode to its end; you pass a function for environment calls and one for
asks. `Conversation` is for your own loop: it stops whenever it needs an answer.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gem import seeding
from gem.agents.base import make_raisable
from gem.closing import Closing
from gem.core import Env
from gem.errors import BadArgument, EnvClosed, OutOfTime
from gem.history import HistoryPolicy
from gem.hosts.foreign import ForeignCode
from gem.hosts.verbs import wrap_exception
from gem.record import Ask, Call, Episode, Limits, Reply, RunInfo
from gem.registry import make, task_of
from gem.rollout.episode import NO_LIMITS, Branch, Playing, play, versions
from gem.specs import TaskRef


def carry_out(call: Call) -> Any:
    """Run a call on its environment, in this thread.

    Raises:
        NoVerdict: when the environment would end the program or the task, as with exit(). Or its own error.
    """
    try:
        with ForeignCode():
            return getattr(call.env, call.verb)(*call.args, **call.kwargs)
    except (SystemExit, GeneratorExit, CancelledError) as error:  # all others say that somebody else ends it
        raise wrap_exception(error) from error


def drive(
    playing: Playing,
    call: Callable[[Call], Any] = carry_out,
    ask: Callable[[tuple[Ask, ...]], Sequence[Reply]] | None = None,
) -> Episode:
    """Play an episode to its end.

    Args:
        playing: the generator that `play` returned.
        call: runs a call of the environment.
        ask: answers simultaneous asks, in order; not needed where the environment's own actor plays.

    Raises:
        BadArgument: when the episode needs an action and there is no `ask`.

    An exception of `call` or `ask` breaks the episode and is stored in its record; so is AgentUnavailable, as
    there is no run to stop. KeyboardInterrupt and similar ones end the episode and reach the caller.
    """
    resume: Callable[[Any], Any] = playing.send
    value: Any = None
    try:
        while True:
            request = resume(value)
            if ask is None and not isinstance(request, Call):
                raise BadArgument("the episode needs an action; pass drive() a function that answers asks.")
            try:
                value = call(request) if isinstance(request, Call) else ask(request)  # type: ignore[misc]
                resume = playing.send
            except (Exception, CancelledError) as error:
                resume, value = playing.throw, error if isinstance(request, Call) else make_raisable(error)
    except StopIteration as end:
        episode: Episode = end.value
        return episode
    finally:
        playing.close()


async def drive_async(
    playing: Playing,
    call: Callable[[Call], Awaitable[Any]],
    ask: Callable[[tuple[Ask, ...]], Awaitable[Sequence[Reply]]],
) -> Episode:
    """Play an episode to its end, like `drive`, with awaitable `call` and `ask`."""
    resume: Callable[[Any], Any] = playing.send
    value: Any = None
    try:
        while True:
            request = resume(value)
            try:
                value = await (call(request) if isinstance(request, Call) else ask(request))
                resume = playing.send
            except Exception as error:
                resume, value = playing.throw, make_raisable(error)
            except CancelledError as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                resume, value = playing.throw, error  # the agent gave up by itself
    except StopIteration as end:
        episode: Episode = end.value
        return episode
    finally:
        playing.close()


class Conversation(Closing):
    """One episode for your own loop: it stops whenever it needs an answer.

    ::

        with Conversation("game:GuessTheNumber-v0-easy", seed=3) as talk:
            while talk.asks:
                talk.answer(*[Reply(model(ask.messages)) for ask in talk.asks])
        talk.episode.reward()

    The record, the limits and the outcome are the same as with a Runner. `asks` has the asks to answer now,
    one per seat that acts; it is empty when the episode is over. The environment is called in the caller's
    thread, or by `call`. An environment that breaks ends the episode without verdict, and does not raise.
    """

    def __init__(
        self,
        env: Env | str | TaskRef,
        seed: int,
        limits: Limits = NO_LIMITS,
        *,
        history: HistoryPolicy | None = None,
        run: RunInfo | None = None,
        job: str = "",
        sample: int = 0,
        group: str = "",
        salt: int = 0,
        start: Branch | None = None,
        call: Callable[[Call], Any] = carry_out,
    ) -> None:
        """Start the episode and run it up to its first ask.

        Args:
            env: an environment, which the caller closes; or an id or a task, whose environment is made here
                and closed with the conversation.
            seed: the episode's seed.
            limits: limits from outside the task.
            history: which past turns are shown.
            run: the run's settings, for the record; conversations of one run share it.
            job: the name of the job, for the record; with `run` and `sample` it makes the episode's id.
            sample: the number of this sample among those of one job; each samples with other seeds.
            group: the name that the samples of one task share.
            salt: another salt gives other sampling seeds for the same seed and sample.
            start: start after the first turns of another episode.
            call: runs a call of the environment.

        Raises:
            BadArgument: for a wrong seed, or one that differs from the branch's. GemError: when the
                environment cannot be made.
        """
        seed = seeding.check(seed)
        world = env if isinstance(env, Env) else make(env)
        self._own_env = None if world is env else world
        run = run or RunInfo(limits=limits, history=history, versions=versions())
        self.episode = Episode(replace(task_of(world), seed=seed), run, job, sample, salt=salt, group=group)
        """The record; complete when `asks` is empty."""
        self.asks: tuple[Ask, ...] = ()
        """The asks to answer now."""
        self._call = call
        self._playing: Playing | None = play(
            world, seed, limits, history=history, record=self.episode, start=start
        )
        try:
            self._advance(self._playing.send, None)
        except BaseException:  # Ctrl-C
            self.close()
            raise

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self._playing is None

    @property
    def reward(self) -> float:
        """The sum of rewards so far; the mean over the seats where there are several."""
        return self.episode.earned()

    def answer(self, *replies: Reply | str) -> tuple[Ask, ...]:
        """Answer all current asks, in order, and return the next ones.

        Raises:
            BadArgument: for a wrong number of replies. EnvClosed: when the episode is over.
        """
        if self._playing is None:
            raise EnvClosed("the episode is over; begin another conversation.")
        if len(replies) != len(self.asks):
            raise BadArgument(f"got {len(replies)} replies to {len(self.asks)} asks; one each, in order.")
        answers = tuple(Reply(reply) if isinstance(reply, str) else reply for reply in replies)
        return self._advance(self._playing.send, answers)

    def fail(self, error: BaseException) -> None:
        """End the episode without verdict, because the agent failed.

        On AgentUnavailable the caller decides whether to start other episodes.
        """
        if self._playing is not None:
            self._advance(self._playing.throw, make_raisable(error))

    def cancel(self) -> None:
        """End the episode without verdict, because it is no longer needed."""
        self.fail(CancelledError())

    def out_of_time(self) -> None:
        """End the episode because its time for answers is used up; see `Limits.on_time`."""
        self.fail(OutOfTime("the time for its answers is spent."))

    def close(self) -> None:
        """Cancel an unfinished episode, and close an environment made here. Calling it twice is harmless."""
        self.cancel()
        own, self._own_env = self._own_env, None
        if own is not None:
            own.close()

    def _advance(self, resume: Callable[[Any], Any], value: Any) -> tuple[Ask, ...]:
        """Run the episode until it needs an answer, or is over."""
        assert self._playing is not None
        self.asks = ()
        playing = self._playing
        while True:
            try:
                request = resume(value)
            except StopIteration:
                self._playing = None
                return ()
            except BaseException:  # it never began
                self._playing = None
                raise
            if type(request) is tuple:
                self.asks = request
                return request
            try:
                resume, value = playing.send, self._call(request)
            except Exception as error:
                resume, value = playing.throw, error
            except BaseException:
                self._playing = None
                playing.close()
                raise


def verbs_of(agents: Mapping[str, Any]) -> dict[str, str]:
    """Return the seats that the environment itself plays, each with the method to call."""
    return {seat: verb for seat, agent in agents.items() if (verb := getattr(agent, "verb", None))}
