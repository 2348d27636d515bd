"""Pages of your own as an environment: ``browser:PATH``, a folder with an index.html that says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gem.core import Start
from gem.envs.kit.web_env import FORM, WebEnv
from gem.errors import BadArgument, NoVerdict
from gem.tasks.files import digest_folders

_NO_TASK = "window.task has no begin(seed) and check()"


class PageFolderEnv(WebEnv):
    """Do what a page of your own asks for.

    Task:
        The page ``index.html`` of the folder `name`. Its script sets ``window.task``: ``begin(seed)``
        prepares an episode and returns what to do, ``check()`` returns null, and the reward at the end.
    Action:
        As in MiniWobEnv: ``click(3)``, ``fill(3, "text")`` and four more, a line each, or native calls.
    Observation:
        What the page asks for, and its nodes; with `picture`, a picture of it too. With each action one
        second of the page's time passes; between turns none does.
    Reward:
        What ``check()`` returns; 1 or more is success. 0 when the turns are used up.
    End:
        When ``check()`` returns a number, or after the turns that the task states.
    Source:
        Your own folder.
    """

    begin_script = f"""async ([seed]) => {{
      if (!window.task || !task.begin || !task.check) throw new Error("{_NO_TASK}");
      __gem.seed(seed);
      task.goal = String(await task.begin(seed));
    }}"""
    state_script = """() => {
      const reward = task.check();
      const done = typeof reward === "number";
      return { goal: task.goal, done, reward: done ? reward : 0 };
    }"""
    reloads = True

    def __init__(self, name: str, picture: bool = False, max_turns: int = 20) -> None:
        """Choose the folder.

        Args:
            name: its path.
            picture: show a picture of the page besides its nodes.
            max_turns: the turns after which the task ends.

        Raises:
            MissingExtra: without playwright or Chromium. BadArgument: for a folder without index.html, and
                for another value.
        """
        super().__init__(picture, max_turns)
        self._file = Path(name).expanduser().resolve() / "index.html"
        if not self._file.is_file():
            raise BadArgument(f"browser:{name} is no folder with a file index.html; give the path of one.")
        self.name = name

    @classmethod
    def digest_files(cls, name: str, **others: Any) -> str:
        """Return a digest of the folder; see `gem.make`."""
        return digest_folders([Path(name).expanduser()])

    @property
    def address(self) -> str:
        """The address of the page."""
        return self._file.as_uri()

    def reset(self, seed: int | None = None) -> Start:
        """Let the page begin an episode; see Env.reset.

        Raises:
            BadArgument: where the page has no task. NoVerdict: when the page or its browser fails.
        """
        super().reset(seed)
        try:
            self.begin(self._need_seed() % 2**53)  # beyond, the page's numbers are not exact
        except NoVerdict as error:
            if _NO_TASK in str(error):
                raise BadArgument(f"{self._file}: {_NO_TASK}; docs/guides/browser.md shows both.") from error
            raise
        text = f"You work on a web page.\n\n{self.describe()}\n\n{FORM} You have {self.max_turns} turns."
        return Start(self._join([text]), {})


def claims_of(name: str) -> dict[str, object]:
    """Return what the folder adds to the claims of its id: nothing."""
    return {}
