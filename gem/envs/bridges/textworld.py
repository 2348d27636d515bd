r"""Bridge to TextWorld: text adventures that the package makes from a seed, as the family ``textworld:``.

The games, their texts, their scores and the commands that win are the package's. gem adds the form of the
answer, the list of verbs that reach the game, splits, forks, and a budget of turns.
"""

from __future__ import annotations

import functools
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

from gem import seeding
from gem.core import Env, Start, Step
from gem.envs.bridges.generators import GlobalGenerators
from gem.envs.bridges.specs import TEXTWORLD_SETTINGS
from gem.envs.kit.splits import Split, check_split, split_of
from gem.errors import BadArgument, NoSolver, check_argument, check_count, did_you_mean
from gem.parsing import read_box
from gem.record import StopReason
from gem.worlds import import_world

with GlobalGenerators().active():  # the package draws its own first seed from them
    import_world("textworld")

import jericho.jericho
import textworld
from textworld.challenges import CHALLENGES
from textworld.generator import compile_game, make_game
from textworld.generator.inform7 import CouldNotCompileGameError

jericho.jericho.warnings = SimpleNamespace(
    warn=lambda *text: None
)  # it knows no game that it was not told of

_SEEDS = 2**31
_MOST_DRAWS = 1000
_LONGEST = 100
_CHOICES = {"rewards": ("dense", "balanced", "sparse"), "goal": ("detailed", "brief", "none")}
_NAMED = textworld.EnvInfos(admissible_commands=True, policy_commands=True)
_PLAIN = re.compile(r"[A-Za-z0-9 '-]+")
_SHORT = frozenset(
    "n s e w north south east west i l x get pick go look examine inventory wait".split()  # noqa: SIM905
)
"""Words that begin a command besides the verbs that the game names."""

_MAKES = threading.Lock()
"""Held while a game is made: the package has a generator of its own that all share."""


class TextWorldEnv(Env):
    r"""Play a text adventure that is made from the seed.

    Task:
        A game of one of TextWorld's challenges, by `name`, or a quest in a house of its generator (`custom`).
    Action:
        A command inside ``\boxed{}``, as ``\boxed{take key from drawer}``.
    Observation:
        What the game says. At the beginning its objective and the room; with `admissible` also the commands
        that do something, after each turn.
    Reward:
        The points that the command earned, as a share of the game's most points.
    End:
        When the quest is done or lost, or after the turns that the task states.
    Source:
        TextWorld 1.7.0 (MIT licence), with Inform 7, played by Jericho 3.3.1 (GPL-2.0).
    """

    def __init__(
        self,
        name: str,
        settings: Mapping[str, Any] | None = None,
        admissible: bool = False,
        split: Split | None = None,
        max_turns: int = 50,
    ) -> None:
        """Choose the kind of game.

        Args:
            name: a challenge, as ``cooking``, or ``custom``.
            settings: the package's own options that differ from `TEXTWORLD_SETTINGS`, as ``{"level": 10}``.
            admissible: list the commands that do something, after each turn.
            split: draw games for training, or those for testing: one game in five, by a digest of the
                commands that win it. None draws from all.
            max_turns: the turns that the task states.

        Raises:
            MissingExtra: where the world was not fetched. BadArgument: for an unknown name, setting or split.
        """
        if name not in TEXTWORLD_SETTINGS:
            raise BadArgument(f"no kind of game {name!r}.{did_you_mean(name, TEXTWORLD_SETTINGS)}")
        check_split(split)
        check_count("max_turns", max_turns)
        usual = TEXTWORLD_SETTINGS[name]
        check_argument("settings", settings, isinstance(settings, Mapping | None), "options by name, or None")
        for key, value in (settings or {}).items():
            if key not in usual:
                raise BadArgument(f"no setting {key!r} of {name}; accepted: {', '.join(usual)}.")
            if type(value) is not type(usual[key]):
                raise BadArgument(f"the setting {key!r} is {value!r:.40}; accepted: as {usual[key]!r}.")
            if key in _CHOICES and value not in _CHOICES[key]:  # the package would make a game without points
                raise BadArgument(
                    f"the setting {key!r} is {value!r:.40}; accepted: {', '.join(_CHOICES[key])}."
                )
        self.name, self.admissible, self.split = name, admissible, split
        self.settings = {**usual, **(settings or {})}
        self.max_turns = max_turns
        self._game: _Game | None = None
        self._play: Any = None
        self._score = 0

    def reset(self, seed: int | None = None) -> Start:
        """Make a game and begin it; see Env.reset."""
        super().reset(seed)
        self.turn, self._score = 0, 0
        for draw in range(_MOST_DRAWS):
            number = seeding.derive(self._need_seed(), f"textworld {draw}") % _SEEDS
            if self.split is None or self.split == split_of(_walk(self.name, self._options(), number)):
                break
        else:
            raise BadArgument(f"{self} has no game in the split {self.split!r}.")
        game = _load(self.name, self._options(), number)
        if len(game.walk) > self.max_turns:
            raise BadArgument(
                f"the game needs {len(game.walk)} commands, and max_turns is {self.max_turns}; give more."
            )
        self._game, self._play = game, _Play(game)
        intro = read_text(self._play.state.feedback.rpartition("$$")[2])  # below the package's banner
        rule = (
            f"Give one command inside \\boxed{{}}, as \\boxed{{{_EXAMPLE}}}. You have {self.max_turns} turns."
        )
        verbs = f"Verbs: {', '.join(self._play.state.verbs)}."
        return Start(f"{intro}{self._list()}\n\n{rule} {verbs}", {"task": game.title})

    def step(self, action: str) -> Step:
        """Give a command to the game; see Env.step."""
        self.turn += 1
        spent = self.turn >= self.max_turns
        command = self._read(action)
        info: dict[str, Any] = {}
        reward = 0.0
        if command is None:
            text = f"The game takes no such command. Give one inside \\boxed{{}}, as \\boxed{{{_EXAMPLE}}}."
            info["legal"] = False
            won = lost = False
        else:
            state = self._play.give(command)
            text, won, lost = read_text(state.feedback), bool(state.won), bool(state.lost)
            score = int(state.score or 0)
            reward, self._score = (score - self._score) / state.max_score, score
        if won or lost:
            info.update(success=won, stop=(StopReason.SOLVED if won else StopReason.FAILED).value)
        elif spent:
            text = f"{text}\n\nNo turns are left."
            info.update(success=False, stop=StopReason.TURN_BUDGET.value)
        over = "stop" in info
        return Step(text if over else text + self._list(), reward, over, False, info)

    def sample_random_action(self) -> str:
        """Return a command that does something; see Env.sample_random_action."""
        return f"\\boxed{{{self.actor_rng.choice(self._play.state.admissible_commands)}}}"

    def solve(self) -> str:
        """Return the next command of those that win from here: the package knows the whole game.

        Raises:
            NoSolver: where the package knows none any more, as when an ingredient was eaten.
        """
        if not (commands := self._play.state.policy_commands):
            raise NoSolver(f"{self} has no solver from here: the package knows no commands that win.")
        return f"\\boxed{{{commands[0]}}}"

    def _options(self) -> _Options:
        return tuple(sorted(self.settings.items()))

    def _list(self) -> str:
        if not self.admissible:
            return ""
        return f"\n\nCommands that do something: {'; '.join(self._play.state.admissible_commands)}."

    def _read(self, action: str) -> str | None:
        """Return the command of an answer, or None for one that is not to reach the game.

        Inform takes several commands in a line, and some that write files or change what it prints.
        """
        commands = (" ".join(inside.split()) for inside in read_box(action))
        command = next(filter(_PLAIN.fullmatch, commands), "")
        words = command.split()
        if not words or len(command) > _LONGEST:
            return None
        first = words[0].lower()
        if "then" in map(str.lower, words) or (first not in _SHORT and first not in self._play.state.verbs):
            return None
        return command


_EXAMPLE = "go north"
_Options: TypeAlias = tuple[tuple[str, Any], ...]
_Key: TypeAlias = tuple[str, _Options, int]


def read_text(feedback: str) -> str:
    """Return what the game says, without its prompt, its status line and the questions after the end."""
    text = feedback.rpartition("\n>")[0].partition("Would you like to RESTART")[0]
    return re.sub(r"\n\s*\n", "\n\n", text.strip())


class _Game:
    """A compiled game. Its files are in memory, and on the disk only while the package reads them.

    A pickle holds its name, options and number, from which it is made again.
    """

    def __init__(self, key: _Key) -> None:
        self._key, made = key, _make(*key)
        self.walk, self.title = tuple(made.walkthrough), str(made.metadata.get("uuid", ""))
        self._lock = threading.Lock()
        options = textworld.GameOptions()
        with tempfile.TemporaryDirectory(prefix="gem-textworld-") as folder:
            options.path = f"{folder}/game.z8"
            try:
                self._path = Path(compile_game(made, options))
            except CouldNotCompileGameError as error:
                raise BadArgument(
                    f"these settings make a game that is too large: {str(error)[-200:]!r}"
                ) from error
            self._files = {each: each.read_bytes() for each in map(self._path.with_suffix, (".z8", ".json"))}

    @contextmanager
    def files(self) -> Iterator[str]:
        """Write the game's files for a while, to the place that the package remembers; yield its path."""
        with self._lock:
            self._path.parent.mkdir(mode=0o700)
            try:
                for path, content in self._files.items():
                    path.write_bytes(content)
                yield str(self._path)
            finally:
                shutil.rmtree(self._path.parent, ignore_errors=True)

    def __deepcopy__(self, memo: Any) -> _Game:
        return self  # nobody changes it

    def __reduce__(self) -> Any:
        return _load, self._key


class _Play:
    """A game in play. A deep copy goes on from the same place; a pickle holds the commands up to there."""

    def __init__(self, game: _Game, commands: tuple[str, ...] = ()) -> None:
        self._game, self._commands = game, commands
        with game.files() as path:
            self._world = textworld.start(path, _NAMED)
            self.state = self._world.reset()
        for command in commands:
            self.state, _, _ = self._world.step(command)

    def give(self, command: str) -> Any:
        """Give a command to the game, and return its state."""
        self._commands = (*self._commands, command)
        self.state, _, _ = self._world.step(command)
        return self.state

    def __deepcopy__(self, memo: Any) -> _Play:
        twin = object.__new__(type(self))
        with self._game.files():
            vars(twin).update(vars(self), _world=self._world.copy())
        return twin

    def __reduce__(self) -> Any:
        return type(self), (self._game, self._commands)


def _make(name: str, options: _Options, number: int) -> Any:
    """Make a game without its program."""
    asked = textworld.GameOptions()
    with _MAKES:
        textworld.g_rng.set_seed(number)
        asked.seeds = number
        if name == "custom":
            for key, value in options:
                setattr(asked, key, value)
            return make_game(asked)
        _, build, _ = CHALLENGES[f"tw-{name}"]
        try:
            return build({**dict(options), "split": None, "recipe_seed": number}, asked)
        except (ValueError, AssertionError) as error:  # a level that there is not
            raise BadArgument(f"the package refuses the settings {dict(options)}: {error}") from error


@functools.lru_cache(maxsize=4096)
def _walk(name: str, options: _Options, number: int) -> str:
    """Return the commands that win a game, as one text."""
    return "\n".join(_make(name, options, number).walkthrough)


@functools.lru_cache(maxsize=16)
def _load(name: str, options: _Options, number: int) -> _Game:
    return _Game((name, options, number))
