"""Write tasks as text into the data sets of frameworks, which can hold only prompts, and read them back.

`news` is for frameworks that keep the conversation themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from gem import codec, seeding
from gem.content import Message, check_pictures
from gem.errors import BadArgument, check_argument
from gem.naming import fix_name
from gem.record import SEAT, Ask
from gem.registry import Maker
from gem.specs import TaskRef


def seeded_tasks(envs: str | TaskRef | Iterable[str | TaskRef], seeds: Iterable[int]) -> list[TaskRef]:
    """Return each environment with each seed, as tasks from which other processes can make the environment.

    Args:
        envs: an id, or several; a TaskRef to give keywords or wrappers.
        seeds: the seeds of the episodes.

    Raises:
        UnknownEnv: for an id that is not registered. BadArgument: for no environment, no seed, an
            environment of several seats, or one that cannot be made again from its task.
    """
    given = [envs] if isinstance(envs, str | TaskRef) else list(envs)
    tasks = [TaskRef(env) if isinstance(env, str) else env for env in given]
    check_argument("seeds", seeds, isinstance(seeds, Iterable), "seeds in a list or range, as range(8)")
    numbers = [seeding.check(seed) for seed in seeds]
    if not tasks or not numbers:
        raise BadArgument(f"got {len(tasks)} environments and {len(numbers)} seeds; accepted: 1 or more.")
    for task in tasks:
        seats = Maker(task).spec.seats
        if seats != (SEAT,):
            raise BadArgument(f"{task.spec} has the seats {', '.join(seats)}; accepted: one seat.")
        if task.opaque:
            raise BadArgument(f"the task of {task.spec} cannot be made again: {', '.join(task.opaque)}.")
    return [replace(task, seed=seed) for seed in numbers for task in tasks]


def task_text(task: TaskRef) -> str:
    """Return a task as text, which `read_task` reads.

    Raises:
        BadArgument: for arguments that are not JSON values.
    """
    check_argument("task", task, isinstance(task, TaskRef), "a TaskRef, as seeded_tasks makes it")
    if not task.foreign:
        _note_own(task.spec)
    return codec.pack(task).decode()


@cache
def _note_own(name: str) -> None:
    """Note that this user named an environment in a module, so that a data set may name it here."""
    fix_name(name, "environment")


def read_task(text: object) -> TaskRef:
    """Return the task of a data set's row; making it asks `gem.trust`, as of a file.

    Raises:
        BadArgument: for a text that `task_text` did not make from a task with a seed.
    """
    try:
        if not isinstance(text, str):
            raise ValueError(f"it is {type(text).__name__}")
        task = codec.unpack(text.encode(errors="surrogatepass"), TaskRef)
        if task.seed is None:
            raise ValueError("it has no seed")
    except ValueError as error:
        raise BadArgument(
            f"{text!r:.80} is not a task of an episode: {error}; accepted: the text of "
            "gem.adapters.prompts.task_text()."
        ) from error
    return task


def news(ask: Ask) -> list[Message]:
    """Return the messages of an ask since the last answer, for a trainer that keeps the conversation."""
    last = [number for number, message in enumerate(ask.messages) if message.role == "assistant"]
    return list(ask.messages[last[-1] + 1 if last else 0 :])


def check_question(ask: Ask, reader: str) -> None:
    """Check that a model that reads text alone can answer an ask.

    Raises:
        BadArgument: for a first question with a picture that no text describes.
    """
    check_pictures((message.content for message in news(ask)), reader, strict=not ask.turn)
