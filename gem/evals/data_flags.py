"""The flags of commands that take data of one's own."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated

from tyro.conf import arg

from gem.envs.data.named import OwnData, data_task
from gem.errors import BadArgument
from gem.graders.functions import GRADER_HELP


@dataclass(frozen=True)
class DataFlags:
    """Your own data in place of an environment."""

    data: Annotated[str, arg(metavar="FILE|FOLDER", help_behavior_hint="")] = ""
    """Your own questions and answers: a CSV, TSV, JSON Lines, JSON or Parquet file, a folder with a file per
    split or one that `datasets` saved, or the name of a data set. All bad rows are listed before anything is
    asked."""
    columns: Annotated[str, arg(metavar="question=COLUMN,answer=COLUMN", help_behavior_hint="")] = ""
    """The columns of the data: question, answer, context (before the question), choices (one column, or
    A+B+C+D), id, images. What is left out is found by its name."""
    grader: Annotated[
        str,
        arg(
            metavar="NAME",
            help_behavior_hint="",
            help=f"{GRADER_HELP}. If left out, it follows from the data.",
        ),
    ] = ""
    prompt: Annotated[str, arg(metavar="TEMPLATE", help_behavior_hint="")] = ""
    """What the agent reads, as "Answer in a word: {question}"; or a .txt file with it. {choices} and any
    column in braces are filled in too."""
    few_shot: Annotated[str, arg(metavar="FILE", help_behavior_hint="")] = ""
    """A file of examples in the form of the data, which are shown before the question."""
    shuffle_choices: bool = False
    """Show the choices of each row in an order that the episode's seed draws."""
    split: Annotated[str, arg(metavar="NAME", help_behavior_hint="")] = ""
    """The split of the data, if it has several."""

    def task(self) -> OwnData | None:
        """Return the environment over the data, or None without data.

        Raises:
            BadArgument: for the other flags without --data. Otherwise see `data_task`.
        """
        if self.data:
            given = (self.data, self.grader, self.columns, self.split, self.prompt, self.few_shot)
            return data_task(*given, shuffle_choices=self.shuffle_choices)
        for each in fields(self):
            if getattr(self, each.name):
                flag = each.name.replace("_", "-")
                raise BadArgument(f"--{flag} is for data of your own; name it: --data FILE.")
        return None
