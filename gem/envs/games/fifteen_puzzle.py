"""FifteenPuzzle: slide tiles into order."""

from __future__ import annotations

from functools import cache, lru_cache
from heapq import heappop, heappush
from random import Random
from typing import TypeAlias

from gem.envs.kit.drawing import SHADE, CellCanvas
from gem.envs.kit.text_game import DIRECTIONS, DirectionGame, Play, RenderMode, Reward, choose
from gem.errors import IllegalMove
from gem.tasks.procedural import Range, interval

FARTHEST = {2: 6, 3: 31, 4: 80}
"""Moves that the farthest board of each size needs (3: Reinefeld 1993; 4: Brüngger et al. 1999)."""

SPARE = 6
"""How many turns a scramble leaves unused if the budget is too small for some boards."""

HASTY, CAREFUL = 2.0, 1.5
"""The expert's weights of its estimate: the first search, and the next if the solution is too long."""

Board: TypeAlias = tuple[int, ...]
"""The tiles row by row; 0 is the gap."""


class FifteenPuzzle(DirectionGame):
    r"""Slide tiles into order.

    Task:
        A square of `num_rows` rows (2, 3 or 4) with numbered tiles and a gap. The goal is the tiles in order,
        row by row, with the gap last. `num_rows` may be a range (low, high) from which each episode draws.
        If the budget is enough for the farthest board of the size (6, 31 and 80 moves), every reachable board
        but the goal is equally likely; with 2 rows there are only 11 such boards. With a smaller budget the
        start is a scramble of ``max_turns - 6`` moves (at least 1). These never undo each other and lead away
        from the goal, so that the shortest solution fits the budget.
    Action:
        ``up``, ``down``, ``left`` or ``right`` in a box, or its first letter: the tile that can slide that
        way into the gap does so. A direction in which no tile can slide wastes the turn.
    Observation:
        The rules and the board; then the board after each move.
    Reward:
        Progress is the fraction by which the tiles' distance to their places (sum of rows and columns) has
        decreased since the deal, so sliding back and forth earns nothing. A won game returns 1.
    End:
        The tiles are in order, the turns are used up, or an answer is unreadable.
    Source:
        N. Chapman, 1874; the expert's estimate is that of Hansson, Mayer, Yung ("Criticizing solutions to
        relaxed models", 1992); ids and parameters follow GEM (arXiv 2510.01051).
    """

    SIGNS = "The board (. is the gap):"
    PICTURE = "The board (the place without a tile is the gap):"

    def __init__(
        self,
        num_rows: Range = 3,
        max_turns: int = 50,
        reward: Reward = "dense",
        render_mode: RenderMode = "text",
        *,
        init_algo: str | None = None,
        mc_rand_moves: int | None = None,
    ) -> None:
        """Set the size and the budget.

        `init_algo` and `mc_rand_moves` are arguments of upstream and are ignored. The size and the budget
        decide how a board is drawn.
        """
        self.num_rows = interval("num_rows", num_rows, min(FARTHEST), max(FARTHEST))
        super().__init__(max_turns, reward, render_mode)

    def deal(self) -> str:
        """Draw the size if it is not fixed, and the start."""
        side = self.side = self.draw(self.num_rows)
        if self.max_turns >= FARTHEST[side]:
            self.tiles = any_board(side, self.rng)
        else:
            self.tiles = scramble(side, max(1, self.max_turns - SPARE), self.rng)
        self._start = self.tiles
        self.gap = self.tiles.index(0)
        self._dealt = self._distance = distance(side, self.tiles)
        self._route: dict[Board, str] = {}  # of the expert: the move from each board of its solution
        return (
            f"Sliding puzzle: bring the tiles of the {side}x{side} board into order, row by row from 1 to "
            f"{side * side - 1} with the gap last, in at most {self.max_turns} moves. A move slides the tile "
            "beside the gap into it; say in which direction the tile moves: up, down, left or right. Give "
            "your move inside \\boxed{}. A direction in which no tile can slide costs a turn.\n"
            f"{self.legend}\n{self.board()}"
        )

    def board(self) -> str:
        """Return the tiles; a dot is the gap."""
        return _template(self.side) % tuple([tile or "." for tile in self.tiles])

    def play(self, move: str) -> Play | str:
        """Slide a tile."""
        side, gap = self.side, self.gap
        source = _sources(side)[gap].get(move)
        if source is None:
            raise IllegalMove(f"No tile can slide {move}. The board is as before:\n{self.board()}")
        tile = self.tiles[source]
        places = _distances(side)[tile]
        self._distance += places[gap] - places[source]
        self.tiles, self.gap = slide(self.tiles, gap, source), source
        text = f"Tile {tile} slid {move}:\n{self.board()}"
        return text if self._distance else Play.win(f"{text}\nThe tiles are in order.")

    def instance(self) -> Board:
        """Return the dealt board."""
        return self._start

    def draw_board(self) -> CellCanvas:
        """Draw the tiles; the gap is dark."""
        grid = CellCanvas(self.side, self.side, 72, ground="#59616b")
        for cell, tile in enumerate(self.tiles):
            if tile:
                grid.block(*divmod(cell, self.side), str(tile), SHADE, size=30)
        return grid

    def progress(self) -> float:
        """Return the fraction by which the distance has decreased since the deal; 0 if it has grown."""
        return max(0.0, 1.0 - self._distance / self._dealt)

    def random_move(self) -> str:
        """Slide any tile that can slide."""
        return choose(self.actor_rng, list(_sources(self.side)[self.gap]))

    def expert_move(self) -> str:
        """Make the next move of a solution that fits the turns left; if none fits, of the shortest one."""
        if self.tiles not in self._route:
            self._route = solve(self.side, self.tiles, self.max_turns - self.turn)
        return self._route[self.tiles]


def any_board(side: int, rng: Random) -> Board:
    """Return a reachable board other than the goal, all equally likely."""
    while True:
        tiles = list(range(1, side * side))
        rng.shuffle(tiles)
        gap = int(rng.random() * side * side)
        board = (*tiles[:gap], 0, *tiles[gap:])
        if solvable(side, board) and board != goal(side):
            return board


def solvable(side: int, board: Board) -> bool:
    """Return whether moves can bring the board into order; this holds for half of all boards."""
    tiles, gap = [tile for tile in board if tile], board.index(0)
    inversions = sum(a > b for k, a in enumerate(tiles) for b in tiles[k + 1 :])
    # a move up or down passes side - 1 tiles: with an even side it changes the parity of inversions
    return (inversions + (side - 1 - gap // side) * (side - 1)) % 2 == 0


def scramble(side: int, moves: int, rng: Random) -> Board:
    """Return a board at most `moves` moves away; of two random moves, the one away from the goal is made."""
    sources, distances = _sources(side), _distances(side)
    while True:
        board, gap, last = goal(side), side * side - 1, -1
        for _ in range(moves):
            options = [cell for cell in sources[gap].values() if cell != last]
            one, other = choose(rng, options), choose(rng, options)
            gains = [distances[board[cell]][gap] - distances[board[cell]][cell] for cell in (one, other)]
            source = other if gains[1] > gains[0] else one
            board, gap, last = slide(board, gap, source), source, gap
        if board != goal(side):
            return board


def slide(board: Board, gap: int, source: int) -> Board:
    """Return the board with the tile of the cell `source` in the gap."""
    cells = list(board)
    cells[gap], cells[source] = cells[source], 0
    return tuple(cells)


def distance(side: int, board: Board) -> int:
    """Return the sum of the tiles' distances to their places, in rows and columns."""
    distances = _distances(side)
    return sum(distances[tile][cell] for cell, tile in enumerate(board))


@cache
def goal(side: int) -> Board:
    """Return the board in order."""
    return (*range(1, side * side), 0)


@cache
def _template(side: int) -> str:
    return "\n".join([" ".join([f"%{len(str(side * side - 1))}s"] * side)] * side)


@cache
def _sources(side: int) -> list[dict[str, int]]:
    """Per place of the gap: direction -> the cell whose tile slides that way."""
    steps = dict(zip(DIRECTIONS, ((1, 0), (-1, 0), (0, 1), (0, -1)), strict=True))
    return [
        {
            name: (row + down) * side + column + right
            for name, (down, right) in steps.items()
            if 0 <= row + down < side and 0 <= column + right < side
        }
        for row in range(side)
        for column in range(side)
    ]


@cache
def _distances(side: int) -> list[list[int]]:
    """Per tile and cell: rows and columns to the tile's place; the gap has none to go."""
    cells = range(side * side)
    away = [[abs(c // side - p // side) + abs(c % side - p % side) for c in cells] for p in cells]
    return [[0] * (side * side), *away[:-1]]


@lru_cache(maxsize=1 << 17)
def _line_cost(side: int, line: Board, k: int, upright: bool) -> int:
    """Return moves across a row or column `k` that its tiles need, conflicts within it included.

    Tiles of one line in the wrong order cost two more moves for each tile that must leave the line.
    """
    places = [divmod(tile - 1, side) for tile in line if tile]
    if upright:
        places = [(column, row) for row, column in places]
    order = [at for home, at in places if home == k]
    return sum(abs(home - k) for home, _ in places) + 2 * (len(order) - _longest_rise(order))


def _longest_rise(order: list[int]) -> int:
    rises = [1] * len(order)
    for k, at in enumerate(order):
        rises[k] = 1 + max((rises[j] for j in range(k) if order[j] < at), default=0)
    return max(rises, default=0)


def estimate(side: int, board: Board) -> int:
    """Return a lower bound on the moves to the goal: the tiles' distance and the conflicts in lines."""
    return sum(
        _line_cost(side, board[k * side : (k + 1) * side], k, False)
        + _line_cost(side, board[k::side], k, True)
        for k in range(side)
    )


def solve(side: int, board: Board, turns: int) -> dict[Board, str]:
    """Return the boards of a solution with the move from each; within `turns` moves if possible."""
    route = _search(side, board, HASTY, None) or {}
    if len(route) <= turns:
        return route
    return _search(side, board, CAREFUL, turns) or route


def _search(side: int, start: Board, weight: float, turns: int | None) -> dict[Board, str] | None:
    """Return a solution as solve() does, by A* with a weighted estimate; None if none fits `turns`."""
    sources, wanted = _sources(side), goal(side)
    first = estimate(side, start)
    frontier = [(weight * first, first, start, start.index(0))]
    reached: dict[Board, tuple[int, Board, str]] = {start: (0, start, "")}  # moves, from where, by which
    while frontier:
        _, left, board, gap = heappop(frontier)
        if board == wanted:
            break
        moves, origin, _ = reached[board]
        for name, source in sources[gap].items():
            after = slide(board, gap, source)
            if after == origin or (after in reached and reached[after][0] <= moves + 1):
                continue
            reached[after] = (moves + 1, board, name)
            ahead = left + _change(side, board, after, gap, source)
            if turns is not None and moves + 1 + ahead > turns:
                continue
            heappush(frontier, (moves + 1 + weight * ahead, ahead, after, source))
    else:
        return None
    route = {}
    while board != start:
        _, board, name = reached[board]
        route[board] = name
    return route


def _change(side: int, board: Board, after: Board, gap: int, source: int) -> int:
    """Return what a move adds to the estimate; only the lines that the tile leaves and enters change."""
    upright = gap // side == source // side  # a tile that stays in its row changes column
    change = 0
    for k in (gap % side, source % side) if upright else (gap // side, source // side):
        part = slice(k, None, side) if upright else slice(k * side, (k + 1) * side)
        change += _line_cost(side, after[part], k, upright) - _line_cost(side, board[part], k, upright)
    return change
