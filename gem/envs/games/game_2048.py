"""2048: merge equal tiles until one reaches the target."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import chain, pairwise
from operator import index
from typing import TypeAlias

from gem.envs.kit.drawing import WHITE, CellCanvas
from gem.envs.kit.text_game import DIRECTIONS, DirectionGame, Play, RenderMode, Reward, choose
from gem.errors import BadArgument, IllegalMove

SMALLEST, LARGEST = 8, 2048
"""The smallest and largest target."""

FOURS = 0.1
"""The probability that a new tile is a 4; otherwise it is a 2."""

SHADES = (
    *("#eee4da", "#ede0c8", "#f2b179", "#f59563", "#f67c5f", "#f65e3b"),
    *("#d9b23c", "#cfa52c", "#c4981c", "#b98a10", "#3c3a32"),
)
"""The colours of 2, 4, 8 and so on in a picture."""

LOST = -4e5
"""The worth of a board in which no tile can move."""

HASTY = 256
"""Up to this target the board never fills up, and the expert merges as fast as it can."""

CROWDED = 5
"""With at most this many empty cells, the expert looks at the tiles that may be added."""

Line: TypeAlias = tuple[int, ...]
Grid: TypeAlias = tuple[Line, ...]
"""The tiles row by row, 0 for an empty cell."""


class Game2048(DirectionGame):
    r"""Merge equal tiles until one reaches the target.

    Task:
        A board of 4 by 4 cells starts with two tiles. Each move slides all tiles one way, merges equal tiles
        that meet, and adds a tile in an empty cell: a 2, or once in ten times a 4. The game is won with a
        tile of `target`, which is a power of two, or a range (low, high) of powers from which each episode
        draws. The sum of the tiles must reach the target and grows by 2.2 per turn on average: 64 needs about
        30 turns, 512 at least 230 and 2048 at least 930. Good play needs 50, 350 and 1200.
    Action:
        ``up``, ``down``, ``left`` or ``right`` in a box, or its first letter. A direction in which no tile
        can slide or merge changes nothing, adds no tile, and costs the turn.
    Observation:
        The rules and the board; then the board after each move.
    Reward:
        Progress is how far the largest tile is on the way from the deal to the target, so only a new largest
        tile earns. A won game returns 1.
    End:
        The target is reached, no tile can move, the turns are used up, or an answer is unreadable.
    Source:
        G. Cirulli, 2014; ids and targets follow GEM (arXiv 2510.01051). Its budgets of 50 and 100 turns are
        too small for targets above 64.
    """

    SIGNS = "The board (a dot is an empty cell):"
    PICTURE = "The board (a cell without a number is empty):"

    def __init__(
        self,
        target: int | tuple[int, int] = 2048,
        max_turns: int = 1200,
        reward: Reward = "dense",
        render_mode: RenderMode = "text",
        *,
        target_tile: int | tuple[int, int] | None = None,
    ) -> None:
        """Set the target and the budget; `target_tile` is upstream's name for the target."""
        target = target if target_tile is None else target_tile
        self.targets = _powers(target)
        # a turn adds 4 at most, and the two tiles dealt are 8 at most
        needed = (self.targets[-1] - 8 + 3) // 4
        self.warn_of_few_turns(
            max_turns,
            needed,
            f"Game2048 got {target=}, {max_turns=}; a tile of {self.targets[-1]} needs {needed} turns at the "
            "very least, and twice as many as a rule.",
        )
        super().__init__(max_turns, reward, render_mode)

    def deal(self) -> str:
        """Draw the target if it is not fixed, and two tiles."""
        self.target = self.targets[self.draw((0, len(self.targets) - 1))]
        self.tiles = [0] * 16
        self._add()
        self._add()
        self._start = tuple(self.tiles)
        self._dealt = self._largest = max(self.tiles)
        return (
            f"2048: on a 4x4 board, make a tile of {self.target} in at most {self.max_turns} moves. A move "
            "slides all tiles up, down, left or right as far as they go; two equal tiles that meet become "
            "one of their sum, each tile merging at most once a move. Then a 2, or rarely a 4, appears in an "
            "empty cell. A move that changes nothing costs a turn; the game is lost when no move changes "
            "anything. Give your move inside \\boxed{}.\n"
            f"{self.legend}\n{self.board()}"
        )

    def _add(self) -> None:
        empty = [cell for cell, tile in enumerate(self.tiles) if not tile]
        cell = choose(self.rng, empty)
        self.tiles[cell] = 4 if self.rng.random() < FOURS else 2

    def instance(self) -> tuple[int, ...]:
        """Return the target and the two dealt tiles; later tiles are drawn during the game."""
        return self.target, *self._start

    def board(self) -> str:
        """Return the board; a dot is an empty cell."""
        return _TEMPLATE % tuple([tile or "." for tile in self.tiles])

    def play(self, move: str) -> Play | str:
        """Slide and merge, and add a tile."""
        slid = slide(_grid(self.tiles), move)
        after = list(chain(*slid))
        if after == self.tiles:
            raise IllegalMove(f"No tile can move {move}. The board is as before:\n{self.board()}")
        self.tiles = after
        self._largest = max(after)
        if self._largest >= self.target:
            return Play.win(f"Moved {move}:\n{self.board()}\nThat is a tile of {self._largest}.")
        self._add()
        self._largest = max(self._largest, *self.tiles)
        if 0 not in self.tiles and not legal(_grid(self.tiles)):
            return Play.lose(f"Moved {move}:\n{self.board()}\nNo tile can move any more.")
        return f"Moved {move}:\n{self.board()}"

    def draw_board(self) -> CellCanvas:
        """Draw the tiles; larger ones are darker."""
        grid = CellCanvas(4, 4, 80, above=34, ground="#bbada0")
        grid.text((grid.width / 2, 26), f"target {self.target}", 20, WHITE, bold=True)
        for cell, tile in enumerate(self.tiles):
            words, fill = (str(tile), SHADES[tile.bit_length() - 2]) if tile else ("", "#cdc1b4")
            size = (34, 34, 28, 24)[max(0, len(words) - 1)]
            colour = "#6b625a" if tile < 8 else WHITE
            grid.block(*divmod(cell, 4), words, fill, colour, size, 4)
        return grid

    def progress(self) -> float:
        """Return how far the largest tile is on the way from the deal to the target."""
        return min(1.0, (self._largest - self._dealt) / (self.target - self._dealt))

    def random_move(self) -> str:
        """Move in any direction that changes the board."""
        return choose(self.actor_rng, list(legal(_grid(self.tiles))))

    def expert_move(self) -> str:
        """Merge as fast as possible; for a large target, make the move whose board is worth most."""
        ways = legal(_grid(self.tiles))
        promise = haste if self.target <= HASTY else expectation
        return max(ways, key=lambda way: promise(ways[way]))


_TEMPLATE = "\n".join([" ".join(["%4s"] * 4)] * 4)


def _powers(target: int | tuple[int, int]) -> tuple[int, ...]:
    """Return the powers of two that a target may be."""
    powers = [1 << k for k in range(SMALLEST.bit_length() - 1, LARGEST.bit_length())]
    try:
        low, high = map(index, (target, target) if isinstance(target, int) else target)
    except (TypeError, ValueError):
        low = high = 0
    if low not in powers or high not in powers or low > high:
        raise BadArgument(
            f"target is {target!r}; accepted: a power of two from {SMALLEST} to {LARGEST}, or a range (low, "
            "high) of them from which each episode draws."
        )
    return tuple(power for power in powers if low <= power <= high)


def _grid(tiles: list[int]) -> Grid:
    return tuple(tiles[:4]), tuple(tiles[4:8]), tuple(tiles[8:12]), tuple(tiles[12:])


@lru_cache(maxsize=1 << 16)
def _slid(line: Line) -> Line:
    """Return a line after its tiles slid to its start; each merges at most once."""
    tiles: list[int] = []
    merged = False
    for tile in line:
        if not tile:
            continue
        if tiles and tiles[-1] == tile and not merged:
            tiles[-1] += tile
            merged = True
        else:
            tiles.append(tile)
            merged = False
    return (*tiles, *[0] * (4 - len(tiles)))


@lru_cache(maxsize=1 << 16)
def _slid_back(line: Line) -> Line:
    return _slid(line[::-1])[::-1]


def slide(grid: Grid, way: str) -> Grid:
    """Return the board after a move, before a tile is added."""
    by = _slid if way in ("left", "up") else _slid_back
    if way in ("left", "right"):
        return tuple(map(by, grid))
    return _transpose(map(by, _transpose(grid)))


def _transpose(lines: Iterable[Line]) -> Grid:
    """Return the columns of rows, or the rows of columns."""
    return tuple(zip(*lines, strict=True))


def legal(grid: Grid) -> dict[str, Grid]:
    """Return the moves that change the board, with the board after each, before a tile is added."""
    return {way: after for way in DIRECTIONS if (after := slide(grid, way)) != grid}


@lru_cache(maxsize=1 << 17)
def _line_worth(line: Line) -> float:
    """Return the worth of a row or column: it counts empty cells, possible merges, and the order of tiles.

    The terms are those of R. Xiao's expectimax (2014), with gem's own weights.
    """
    ranks = [tile.bit_length() - 1 if tile else 0 for tile in line]
    merges = sum(a == b != 0 for a, b in pairwise(ranks))
    falls = sum(max(0, a**4 - b**4) for a, b in pairwise(ranks))
    rises = sum(max(0, b**4 - a**4) for a, b in pairwise(ranks))
    large = float(sum(rank**3.5 for rank in ranks))  # many large tiles that did not merge
    return 270.0 * line.count(0) + 700.0 * merges - 47.0 * min(falls, rises) - 11.0 * large


def worth(grid: Grid) -> float:
    """Return the worth of a board before a move: the worth of its rows and columns."""
    return sum(map(_line_worth, grid)) + sum(map(_line_worth, _transpose(grid)))


@lru_cache(maxsize=1 << 17)
def _squares(line: Line) -> int:
    return sum(tile * tile for tile in line)


def haste(grid: Grid) -> int:
    """Return the largest sum of squared tiles that one move can reach; more merging gives more."""
    moved = legal(grid).values() or [grid]
    return max(sum(map(_squares, after)) for after in moved)


def expectation(grid: Grid) -> float:
    """Return the worth of a board before a tile is added; on a crowded board, the mean over new tiles."""
    empty = [(row, column) for row in range(4) for column in range(4) if not grid[row][column]]
    if len(empty) > CROWDED:
        return worth(grid)
    total = 0.0
    for row, column in empty:
        for tile, chance in ((2, 1.0 - FOURS), (4, FOURS)):
            line = grid[row]
            after = (*grid[:row], (*line[:column], tile, *line[column + 1 :]), *grid[row + 1 :])
            total += chance * max(map(worth, legal(after).values()), default=LOST)
    return total / len(empty)
