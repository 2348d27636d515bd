r"""Questions with answers in words: QaEnv over any data set, and FactsEnv over gem's encyclopedia."""

from __future__ import annotations

from typing import Any, Literal

from gem.content import Obs, join, text_of
from gem.envs.kit.dataset import DatasetEnv, tasks_of, verdict
from gem.envs.qa.facts import FactTasks
from gem.graders.base import BOXED, Grader, Score, grade_with
from gem.graders.text import TextGrader, unboxed_references
from gem.parsing import boxed, drop_thinking, tagged
from gem.tasks.base import Task
from gem.tasks.procedural import Range, Split, interval
from gem.tasks.sources import Source

TAGGED = "Give your final answer inside <answer></answer>."


class QaEnv(DatasetEnv):
    r"""Answer a question in words.

    Task:
        A question of a data set: by name (`dataset_name`, `split`), or your own rows, file or folder
        (`dataset`), with any column names. A seed is a position in the walk through the set: seeds 0 to
        n - 1 are its n questions, each once. ``reset(idx=i)`` takes question `i`.
    Action:
        Any text. The content of the last ``\boxed{}``, or else of the last ``<answer></answer>``, is the
        answer. With ``extract_boxed=True`` only a box is read, with False only tags.
    Observation:
        The question, and how to answer. With ``max_attempts`` above 1, after a wrong answer: that it is
        wrong, and how many attempts are left.
    Reward:
        1 for an answer that equals one of the right ones, except for case, articles, punctuation and the
        like, times `retry_discount` for each attempt before it. Otherwise 0, or with ``metric="f1"`` the
        share of words in common. With `use_format_error_reward` an unreadable answer earns -0.1.
    End:
        With the right answer, or when the attempts are used up: by default, after one.
    Source:
        The data set's. Exact match and F1 are SQuAD's (arXiv 1606.05250), computed by `gem.graders.text`.
    """

    answer_marks = ("<answer>",)

    def __init__(
        self,
        dataset_name: str | None = None,
        split: str | None = None,
        dataset: Source | None = None,
        question_key: str | None = None,
        answer_key: str = "answer",
        use_format_error_reward: bool = False,
        seed: int = 0,
        extract_boxed: bool | None = None,
        load_from_cache_file: bool = True,
        *,
        metric: Literal["em", "f1"] = "em",
        max_attempts: int = 1,
        retry_discount: float = 1.0,
        grader: Grader | None = None,
    ) -> None:
        """Set the data and what an attempt earns.

        Args:
            dataset_name: the name of a data set, in GEM_DATA or on the hub.
            split: which split of it; None where there is only one.
            dataset: your own rows, path or TaskSet instead.
            question_key: the column of the question; None: ``question``, or else ``problem``.
            answer_key: the column of the right answer, or of a list of them; SQuAD's and TriviaQA's answers
                and truth values are read too.
            use_format_error_reward: whether an unreadable answer earns a penalty.
            seed: the seed of the question order.
            extract_boxed: where the answer must be: in a box (True), in tags (False), in either (None).
            load_from_cache_file: accepted for older scripts and ignored; there is no cache file.
            metric: ``em`` rewards only exact matches, ``f1`` also words in common.
            max_attempts: how often the agent may answer.
            retry_discount: the factor on the reward for each attempt before a right one.
            grader: the grader to use instead of TextGrader.

        Raises:
            BadArgument, MissingData: for data that is missing or cannot be read.
        """
        plain = grader is None and type(self).check_correct is QaEnv.check_correct
        read = TextGrader.read_reference if plain else None
        tasks = tasks_of(dataset_name, split, dataset, question_key, answer_key, read=read)
        super().__init__(
            tasks,
            grader or TextGrader(metric),
            max_attempts=max_attempts,
            retry_discount=retry_discount,
            use_format_error_reward=use_format_error_reward,
            order_seed=seed,
        )
        self.question_key = question_key or getattr(tasks, "question_key", None) or "question"
        self.answer_key = answer_key
        self.extract_boxed = extract_boxed
        self.load_from_cache_file = load_from_cache_file

    def show(self, task: Task) -> Obs:
        """Return the question, and where to put the answer."""
        return join([task.question, self._form()], "\n\n")

    def refusal(self) -> str:
        """Return what the agent reads after an answer that could not be read."""
        return f"Your answer could not be read. {self._form()}"

    def grade(self, action: str) -> Score:
        """Compare the content of the box or tags with the right answers; see DatasetEnv.grade."""
        answer = self.extractor(action)
        if answer is None:
            return Score(0.0, False, None, "no answer in its place")
        if self.check_correct is not QaEnv.check_correct:  # a subclass has its own check
            return verdict(self.check_correct(answer, self.answer), answer)
        return grade_with(self.grader, answer, unboxed_references(self.answer), text_of(self.task.question))

    def extractor(self, action: str) -> str | None:
        """Return the content of the box or tags, None if there is none."""
        answer = None if self.extract_boxed is False else boxed(action)
        return (
            tagged(drop_thinking(action), "answer") if answer is None and not self.extract_boxed else answer
        )

    @staticmethod
    def check_correct(answer: str, truth: Any) -> bool:
        """Return whether an answer matches the right one, or one of a list, exactly."""
        return TextGrader("em")(answer, truth).correct

    def row(self, task: Task) -> dict[str, Any]:
        """Return a task as a row of `dataset`; its question is the whole prompt that the agent reads."""
        return {**super().row(task), self.question_key: self.show(task)}

    def write_answer(self, reference: Any) -> str:
        """Return a reference as an answer: in a box, or in tags if its braces would break the box."""
        answer = unboxed_references(reference)[0]
        box = f"\\boxed{{{answer}}}"
        in_box = self.extract_boxed is not False and (self.extract_boxed or boxed(box) == answer.strip())
        return box if in_box else f"<answer>{answer}</answer>"

    def _form(self) -> str:
        return TAGGED if self.extract_boxed is False else BOXED


class FactsEnv(QaEnv):
    r"""Answer a question about gem's small encyclopedia.

    Task:
        A question of `hops` hops (a number, or a range (low, high)). With one hop, a single page has the
        answer. With two, one page names the subject of another page, and that page has the answer. The pages
        are those of the WikiGame, and the search tool indexes them too. ``split="train"`` and
        ``split="test"`` have no question in common.
    Action:
        Any text. The content of the last ``\boxed{}``, or else of the last ``<answer></answer>``, is the
        answer.
    Observation:
        The question, and how to answer.
    Reward:
        As in QaEnv: 1 for an answer that matches, else 0, or with ``metric="f1"`` the share of words in
        common.
    End:
        With the right answer, or when the attempts are used up: by default, after one.
    Source:
        gem's own: ``gem/envs/qa/facts.tsv``, over ``gem/tasks/wiki_world.tsv``.
    """

    def __init__(
        self,
        hops: Range = (1, 2),
        split: Split | None = None,
        seed: int = 0,
        *,
        metric: Literal["em", "f1"] = "em",
        max_attempts: int = 1,
        retry_discount: float = 1.0,
        use_format_error_reward: bool = False,
    ) -> None:
        """Set the hops, the split, and what an attempt earns."""
        super().__init__(
            dataset=FactTasks(interval("hops", hops, 1, 2), split),
            seed=seed,
            metric=metric,
            max_attempts=max_attempts,
            retry_discount=retry_discount,
            use_format_error_reward=use_format_error_reward,
        )
