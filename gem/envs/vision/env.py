r"""Mathematics with pictures: MathVisualEnv over any data set, and two generated families."""

from __future__ import annotations

from collections.abc import Sequence

from gem.envs.kit.drawing import pillow
from gem.envs.math.env import MathEnv
from gem.envs.vision import charts, geometry
from gem.graders.base import Grader
from gem.tasks.procedural import Generator, ProceduralTasks, Range, Split, check_choice, interval
from gem.tasks.sources import Source


class MathVisualEnv(MathEnv):
    r"""Solve a problem given in words and pictures.

    Task:
        A problem of a data set with a column of pictures: by name, or your own rows, file or folder, with any
        column names. A picture may be bytes, base64, a path in the data's folder or a Pillow image; there may
        be several. Otherwise as MathEnv.
    Action:
        Any text. The content of the last ``\boxed{}`` is the answer.
    Observation:
        Text and Image parts: the pictures where the problem's text says ``<image>``, or else before it; then
        how to answer.
    Reward:
        As in MathEnv: 1 for the right answer, times `retry_discount` for each attempt before it, else 0.
    End:
        With the right answer, or when the attempts are used up: by default, after one.
    Source:
        The data set's. Answers are compared by `gem.graders.math`.
    """

    def __init__(
        self,
        dataset_name: str | None = None,
        split: str | None = None,
        dataset: Source | None = None,
        question_key: str = "problem",
        answer_key: str = "answer",
        image_key: str = "images",
        use_format_error_reward: bool = False,
        seed: int = 0,
        use_mp: bool = True,
        *,
        max_attempts: int = 1,
        retry_discount: float = 1.0,
        grader: Grader | None = None,
    ) -> None:
        """Set the data, as for MathEnv; `image_key` is the column of a picture or a list of them."""
        super().__init__(
            dataset_name,
            split,
            dataset,
            question_key,
            answer_key,
            use_format_error_reward,
            seed,
            use_mp,
            max_attempts=max_attempts,
            retry_discount=retry_discount,
            images_key=image_key,
            grader=grader,
        )


class DrawnEnv(MathVisualEnv):
    """Base class of GeometryEnv and ChartsEnv: questions about generated pictures."""

    def __init__(
        self,
        generator: Generator,
        name: str,
        size: int,
        split: Split | None,
        seed: int,
        max_attempts: int,
        retry_discount: float,
        use_format_error_reward: bool,
    ) -> None:
        """Set the generator, how many tasks there are, and what an attempt earns.

        Raises:
            MissingExtra: without Pillow.
        """
        pillow()  # if it is absent, fail now and not at the first picture
        super().__init__(
            dataset=ProceduralTasks(name, generator, size, seed, split),
            max_attempts=max_attempts,
            retry_discount=retry_discount,
            use_format_error_reward=use_format_error_reward,
            seed=seed,
        )


class GeometryEnv(DrawnEnv):
    r"""Answer a question about a figure.

    Task:
        A figure of one of `kinds`: count, angle, rectangle, circle (easy), parallels, right_triangle,
        polygon, notched (hard). Figures are true to scale. Each `seed` makes `size` tasks. ``split="train"``
        and ``split="test"`` have none in common.
    Action:
        Any text. The content of the last ``\boxed{}`` is the answer.
    Observation:
        An Image part with the figure; a Text part with the question, and how to answer.
    Reward:
        As in MathEnv: 1 for the right answer, else 0.
    End:
        With the right answer, or when the attempts are used up: by default, after one.
    Source:
        gem's own; drawn with Pillow.
    """

    def __init__(
        self,
        kinds: Sequence[str] = tuple(geometry.KINDS),
        size: int = 1_000_000,
        split: Split | None = None,
        seed: int = 0,
        *,
        max_attempts: int = 1,
        retry_discount: float = 1.0,
        use_format_error_reward: bool = False,
    ) -> None:
        """Set the kinds of figure, the number of tasks, and what an attempt earns."""
        generator = geometry.Geometry(check_choice("kinds", kinds, tuple(geometry.KINDS)))
        super().__init__(
            generator, "figures", size, split, seed, max_attempts, retry_discount, use_format_error_reward
        )


class ChartsEnv(DrawnEnv):
    r"""Answer a question about a chart.

    Task:
        A chart of one of `kinds` (bars, groups, lines, pie) with `labels` labels (a number, or a range (low,
        high)) and one of `questions` about it: value, most, difference, total, above, change. Values lie on
        the lines of the grid, so that they can be read exactly. With `written` the chart also shows them as
        numbers. Each `seed` makes `size` tasks. ``split="train"`` and ``split="test"`` have none in common.
    Action:
        Any text. The content of the last ``\boxed{}`` is the answer: a number or a label.
    Observation:
        An Image part with the chart; a Text part with the question, and how to answer.
    Reward:
        As in MathEnv: 1 for the right answer, else 0.
    End:
        With the right answer, or when the attempts are used up: by default, after one.
    Source:
        gem's own; drawn with Pillow.
    """

    def __init__(
        self,
        kinds: Sequence[str] = tuple(charts.KINDS),
        questions: Sequence[str] = tuple(charts.QUESTIONS),
        labels: Range = (3, 7),
        written: bool = False,
        size: int = 1_000_000,
        split: Split | None = None,
        seed: int = 0,
        *,
        max_attempts: int = 1,
        retry_discount: float = 1.0,
        use_format_error_reward: bool = False,
    ) -> None:
        """Set the charts and questions, the number of tasks, and what an attempt earns."""
        generator = charts.Charts(
            check_choice("kinds", kinds, tuple(charts.KINDS)),
            check_choice("questions", questions, tuple(charts.QUESTIONS)),
            interval("labels", labels, 3, 7),
            written,
        )
        super().__init__(
            generator, "charts", size, split, seed, max_attempts, retry_discount, use_format_error_reward
        )
