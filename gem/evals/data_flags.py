"""The flags of commands that take data of one's own."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from typing import Annotated, Any

from tyro.conf import UseAppendAction, arg

from gem.envs.data.named import OwnData, data_task
from gem.errors import BadArgument
from gem.graders.named import GRADER_HELP
from gem.registry import Maker, claims_of


@dataclass(frozen=True)
class DataFlags:
    """Your own data in place of an environment."""

    data: Annotated[str, arg(metavar="FILE|FOLDER", help_behavior_hint="")] = ""
    """Your own questions and answers: a CSV, TSV, JSON Lines, JSON or Parquet file, a folder with a file per
    split or one that `datasets` saved, or the name of a data set. All bad rows are listed before anything is
    asked."""
    columns: Annotated[
        UseAppendAction[tuple[str, ...]], arg(metavar="question=COLUMN,answer=COLUMN", help_behavior_hint="")
    ] = ()
    """The columns of the data: question, answer, context (before the question), choices (one column, or
    A+B+C+D), id, images, and first (0 or 1): the number of the first choice. What is left out is found. May
    be given several times."""
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
    """The split of the data, if it has several; in eval and play also that of the named environments."""
    exclude: Annotated[str, arg(metavar="disputed", help_behavior_hint="")] = ""
    """Leave out tasks of the named environments: disputed ones, as those that pay for doing nothing."""

    def kwargs(self, env_ids: Iterable[str]) -> dict[str, Any]:
        """Return the keywords of environments without data: their split, and what is left out.

        Raises:
            BadArgument: for an environment that has no such split.
        """
        if self.data:
            return {}
        given = {"split": self.split, "exclude": self.exclude}
        for env_id in env_ids if self.split else ():
            if self.split not in (has := claims_of(Maker(env_id)).splits):
                known = f"accepted: {', '.join(has)}" if has else "it has none"
                raise BadArgument(f"{env_id} has no split {self.split!r}; {known}.")
        return {name: value for name, value in given.items() if value}

    def task(self, without: Collection[str] = ()) -> OwnData | None:
        """Return the environment over the data, or None without data.

        Args:
            without: flags that need no data.

        Raises:
            BadArgument: for the other flags without --data. Otherwise see `data_task`.
        """
        if self.data and self.exclude:
            raise BadArgument("--exclude is for named environments; with --data leave it out.")
        if self.data:
            given = (self.data, self.grader, ",".join(self.columns), self.split, self.prompt, self.few_shot)
            return data_task(*given, shuffle_choices=self.shuffle_choices)
        for each in fields(self):
            if getattr(self, each.name) and each.name not in without:
                flag = each.name.replace("_", "-")
                if flag == "exclude":
                    raise BadArgument("--exclude is for eval and play; give it in --env-kwargs.")
                raise BadArgument(f"--{flag} is for data of your own; name it: --data FILE.")
        return None
