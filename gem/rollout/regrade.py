"""Score stored episodes again with another grader, without playing them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from gem.content import text_of
from gem.envs.code.env import CodeEnv
from gem.errors import BadArgument, NoVerdict
from gem.graders.base import Grader
from gem.graders.many import grade_many
from gem.record import Episode, StopReason
from gem.registry import make


@dataclass(frozen=True, slots=True)
class NewVerdict:
    """One episode's old and new verdict. `after` is None where there is no new one; `why` explains."""

    episode: str
    spec: str
    before: bool | None
    after: bool | None
    value: float | None
    why: str
    answer: str

    @property
    def changed(self) -> bool:
        """Whether both verdicts exist and differ."""
        return None not in (self.before, self.after) and self.before != self.after


class References:
    """A function that finds the reference answer and the question of an episode's task.

    It looks for ``reference`` in the last info of the seats, then in the first info; the question is then the
    first observation. Else it makes the environment again from the episode's task; that must have a `task`
    with a `reference`, and its `question` is what the environment's grader gets too.
    """

    def __init__(self) -> None:
        """Start without environments."""
        self._envs: dict[str, Any] = {}

    def __call__(self, episode: Episode) -> tuple[Any, str]:
        """Return the reference and the question.

        Raises:
            BadArgument: when there is none, or when the task cannot be made again.
        """
        first = episode.turns[0].observation
        for info in (*(end.info for end in episode.ends.values()), *episode.starts.values()):
            if "reference" in info:
                return info["reference"], text_of(first)
        key = repr(replace(episode.task, seed=None))
        if key not in self._envs:
            self._envs[key] = make(episode.task)
        env = self._envs[key]
        env.reset(seed=episode.seed)
        inner = env.unwrapped
        task = getattr(inner, "task", None)
        if task is None or not hasattr(task, "reference"):
            raise BadArgument(
                f"{episode.spec} has no reference answer: its episodes can be graded again only if info "
                "has one as 'reference', or the environment has a task with one."
            )
        reference = (
            inner.tests if isinstance(inner, CodeEnv) else task.reference
        )  # read with the row's columns
        return reference, text_of(getattr(task, "question", first))

    def close(self) -> None:
        """Close the environments that were made."""
        for env in self._envs.values():
            env.close()
        self._envs.clear()


def regrade(episodes: Iterable[Episode], grader: Grader) -> Iterator[NewVerdict]:
    """Yield the new verdict of each scored episode that has an answer: its last action.

    Raises:
        BadArgument: for episodes whose task has no reference answer.
    """
    references = References()
    pending: deque[tuple[Episode, str]] = deque()

    def read_answers() -> Iterator[tuple[str, Any, str]]:
        for episode in episodes:
            answer = next((turn.action for turn in reversed(episode.turns) if turn.action is not None), None)
            if answer is not None and episode.scored:
                pending.append((episode, answer))
                yield answer, *references(episode)

    try:
        for score in grade_many(grader, read_answers()):
            episode, answer = pending.popleft()
            new = None if isinstance(score, NoVerdict) else score
            yield NewVerdict(
                episode.id,
                episode.spec,
                _read_success(episode),
                None if new is None else new.correct,
                None if new is None else new.value,
                f"no verdict: {score}" if new is None else new.why,
                answer,
            )
    finally:
        references.close()


def _read_success(episode: Episode) -> bool | None:
    if "correct" in episode.final_info:
        return bool(episode.final_info["correct"])
    return episode.stop is StopReason.SOLVED if episode.success is not None else None
