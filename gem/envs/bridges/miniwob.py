"""Bridge to the pages of MiniWoB++, as the family ``miniwob:``.

Pages, tasks and rewards are the package's. gem adds the browser, a clock that stands still between turns, the
words for what is on a page, actions, splits and experts.
"""

from __future__ import annotations

from collections.abc import Iterator

from gem import seeding
from gem.core import Start
from gem.envs.bridges.miniwob_experts import EXPERTS, Reading
from gem.envs.bridges.specs import MINIWOB_FEW, MINIWOB_RELOADED
from gem.envs.kit.splits import Split, check_split, split_of
from gem.envs.kit.web_env import FORM, WebEnv
from gem.errors import BadArgument, NoSolver
from gem.worlds import import_world

_MOST_DRAWS = 1000
_PAGE_SEEDS = 2**53  # beyond, the page's numbers are not exact


class MiniWobEnv(WebEnv):
    """Do what a page asks for.

    Task:
        A page of MiniWoB++ by `name`: click, fill, choose, drag, search a mailbox. The seed draws it.
    Action:
        ``click(3)``, ``fill(3, "text")``, ``select(3, "option")``, ``press("Enter")``, ``drag(3, 4)``,
        ``scroll(3, 100)``, a line each, or the same as native calls. The numbers are those of the nodes.
    Observation:
        What the page asks for, and its nodes; with `picture`, a picture of it too. With each action one
        second of the page's time passes; between turns none does.
    Reward:
        The page's own, from -1 to 1, without the share that falls with time; -1 when the turns are used up.
    End:
        When the page ends the task, or after the turns that the task states.
    Source:
        miniwob 1.1.0 (MIT licence), Farama Foundation; E. Z. Liu and others, 2018.
    """

    begin_script = """async ([seed]) => {
      core.EPISODE_MAX_TIME = 1e9;
      Math.seedrandom(seed);
      core.startEpisodeReal();
      for (let waited = 0; !WOB_TASK_READY && waited < 100; waited++) {
        await __gem.advance(100);
        await __gem.settle();
      }
      if (!WOB_TASK_READY) throw new Error("the page is not ready");
    }"""
    state_script = """() => {
      const goal = core.getUtterance();
      return {
        goal: goal.utterance || goal,
        done: WOB_DONE_GLOBAL,
        reward: WOB_RAW_REWARD_GLOBAL,
        why: WOB_REWARD_REASON || "",
      };
    }"""
    left_out = "#query, #reward-display, #click-canvas, #sync-task-cover, .ui-helper-hidden-accessible"
    window = (500, 320)
    picture_size = (160, 210)
    at_limit = -1.0

    def __init__(
        self, name: str, split: Split | None = None, picture: bool = False, max_turns: int = 20
    ) -> None:
        """Choose the page.

        Args:
            name: the package's name of the page, as ``click-button``.
            split: draw tasks for training, or those for testing, which differ from all of them: one in five,
                by a digest of what the page shows at first. None: the seed is the package's own.
            picture: show a picture of the page besides its nodes.
            max_turns: the turns after which the task ends.

        Raises:
            MissingExtra: without the world, playwright or Chromium. BadArgument: for another value, and for a
                split of a page that has too few tasks.
        """
        super().__init__(picture, max_turns)
        check_split(split)
        if split is not None and name in MINIWOB_FEW:
            raise BadArgument(f"the page {name} has too few tasks to split; accepted: split=None.")
        self.name, self.split, self.reloads = name, split, name in MINIWOB_RELOADED
        self._advice: Iterator[str] | None = None
        self._advised: tuple[int, str] = (-1, "")
        """The turn of the expert's last action, and the action."""
        self._file = import_world("miniwob") / "miniwob/html/miniwob" / f"{name}.html"

    @property
    def address(self) -> str:
        """The address of the page."""
        return self._file.as_uri()

    def reset(self, seed: int | None = None) -> Start:
        """Draw a task; see Env.reset.

        Raises:
            NoVerdict: when the page or its browser fails.
        """
        super().reset(seed)
        self._advice, self._advised = None, (-1, "")
        drawn = self._need_seed()
        for draw in range(_MOST_DRAWS):
            if draw or drawn >= _PAGE_SEEDS:
                drawn = seeding.derive(self._need_seed(), f"miniwob {draw}") % _PAGE_SEEDS
            self.begin(drawn)
            if self.split is None or split_of(self.describe()) == self.split:
                break
        else:
            raise BadArgument(f"the page {self.name} has no task in the split {self.split!r}.")
        text = f"You work on a web page.\n\n{self.describe()}\n\n{FORM} You have {self.max_turns} turns."
        return Start(self._join([text]), {})

    def solve(self) -> str:
        """Return the next action of the page's expert, which knows what an agent sees too.

        Raises:
            NoSolver: where the page has no expert, or another action than its own left its way.
        """
        if self.name not in EXPERTS:
            raise NoSolver(f"{self} has no solver: nobody wrote an expert for this page.")
        if self._advised[0] != self.turn:
            if self._advice is None:
                self._advice = EXPERTS[self.name](lambda: Reading(self.view))
            try:
                self._advised = self.turn, next(self._advice)
            except (StopIteration, LookupError, ValueError) as error:
                self._advice = None
                raise NoSolver(
                    f"{self} has no solver from here: {str(error) or 'its way has ended'}."
                ) from error
        return self._advised[1]
