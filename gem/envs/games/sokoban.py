"""Sokoban: push every box onto a goal."""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import lru_cache
from heapq import heappop, heappush
from random import Random
from typing import NamedTuple, TypeAlias

from gem.envs.kit.drawing import AMBER, BLUE, GREEN, INK, PAPER, RED, WHITE, CellCanvas
from gem.envs.kit.text_game import DIRECTIONS, DirectionGame, Play, RenderMode, Reward, choose
from gem.errors import IllegalMove, check_argument
from gem.tasks.procedural import Range, interval

SMALLEST, LARGEST = 5, 12
"""The smallest and largest side of a room, walls included."""

MOST_BOXES = 5
"""The largest number of boxes; the expert's search grows with each."""

OPEN = 0.8
"""The share of a room's inside that is floor."""

FEWEST = 2
"""The least number of pushes per box in a level."""

TRIES = 6
"""How many levels are made per room; the one with the most pushes is dealt."""

TRUST = 4.0
"""The weight of the expert's estimate, which counts only pushes; a larger one finds a solution sooner."""

EFFORT = 30_000
"""How many positions the expert examines before it gives up; none of 2,100 dealt levels needed so many."""

NEVER = 10**6
"""More moves than any budget; it marks what is impossible."""

Boxes: TypeAlias = frozenset[int]
"""The cells that hold a box."""

Pushed: TypeAlias = tuple[tuple[int, ...], int]
"""A position after a push: the boxes in order, and the player."""


class Level(NamedTuple):
    """A dealt level; cells are numbered row by row, walls included."""

    height: int
    width: int
    floor: frozenset[int]
    goals: Boxes
    boxes: Boxes
    player: int
    moves: int
    """The moves of a known solution: the construction of the level, reversed."""
    pushes: int
    """A lower bound on the pushes, with each box going to the nearest goal."""


class Sokoban(DirectionGame):
    r"""Push every box onto a goal.

    Task:
        A room of `height` by `width` cells, walls included, with `num_boxes` boxes and as many goals. No box
        is on a goal at the start. Each of the three may be a range (low, high) from which each episode draws.
        Levels are made backwards: boxes are dragged off the goals in at most `max_turns` moves, so a solution
        fits the budget.
    Action:
        ``up``, ``down``, ``left`` or ``right`` in ``\boxed{}``, or its first letter. The player walks one
        cell and pushes a box there if the cell behind it is free. A blocked move changes nothing and costs
        the turn.
    Observation:
        The rules and the room; then the room after each move.
    Reward:
        Progress is the share of boxes that are on goals, so pushing one on and off earns nothing. A won
        game returns 1.
    End:
        Every box is on a goal, the turns are used up, or an answer is unreadable.
    Source:
        H. Imabayashi, 1982; signs as in XSokoban's levels; ids and parameters follow GEM (arXiv 2510.01051).
    """

    SIGNS = "Signs: # wall, _ floor, . goal, $ box, * box on a goal, @ player, + player on a goal."
    PICTURE = (
        "In the picture bricks are walls, a red ring is a goal, a crossed square is a box (yellow, or green "
        "on a goal), and the blue disk is the player."
    )

    def __init__(
        self,
        height: Range = 8,
        width: Range = 8,
        num_boxes: Range = 3,
        max_turns: int = 50,
        reward: Reward = "dense",
        render_mode: RenderMode = "text",
        *,
        dim_room: tuple[int, int] | None = None,
    ) -> None:
        """Set the room and the budget; `dim_room` is upstream's name for (height, width)."""
        if dim_room is not None:
            is_pair = isinstance(dim_room, Sequence) and len(dim_room) == 2
            check_argument("dim_room", dim_room, is_pair, "(height, width)")
            height, width = dim_room
        self.heights = interval("height", height, SMALLEST, LARGEST)
        self.widths = interval("width", width, SMALLEST, LARGEST)
        room = (self.heights[0] - 2) * (self.widths[0] - 2)
        self.num_boxes = interval("num_boxes", num_boxes, 1, min(MOST_BOXES, room // 5))
        self.warn_of_few_turns(
            max_turns,
            10 * self.num_boxes[1],
            f"Sokoban got {max_turns=}, {num_boxes=}; levels are made for 10 turns for each box.",
        )
        super().__init__(max_turns, reward, render_mode)

    def deal(self) -> str:
        """Draw a level."""
        height, width = self.draw(self.heights), self.draw(self.widths)
        boxes = self.draw(self.num_boxes)
        self.level = make_level(height, width, boxes, max(self.max_turns, 10 * boxes), self.rng)
        self.boxes, self.player = self.level.boxes, self.level.player
        self._route: dict[tuple[Boxes, int], str] = {}  # of the expert: the move from each position
        self._hopeless = False  # once no solution fits, none ever will
        return (
            f"Sokoban: push the {len(self.boxes)} boxes onto the {len(self.boxes)} goals in at most "
            f"{self.max_turns} moves. A move takes the player one cell up, down, left or right, and pushes "
            "the box that stands there if the cell behind it is free; boxes cannot be pulled. A move that is "
            "blocked costs a turn. Give your move inside \\boxed{}.\n"
            f"{self.legend}\n{self.board()}"
        )

    def instance(self) -> tuple[Boxes, ...]:
        """Return floor, goals, boxes and the player's cell; the floor's cells determine the width."""
        level = self.level
        return level.floor, level.goals, level.boxes, frozenset([level.player, -level.width])

    def board(self) -> str:
        """Return the room, with one sign per cell."""
        level, boxes = self.level, self.boxes
        signs = _bare(level.height, level.width, level.floor, level.goals).copy()
        for box in boxes:
            signs[box] = "*" if box in level.goals else "$"
        signs[self.player] = "+" if self.player in level.goals else "@"
        width = level.width
        return "\n".join([" ".join(signs[k : k + width]) for k in range(0, len(signs), width)])

    def play(self, move: str) -> Play | str:
        """Walk or push."""
        step = _step(self.level.width, move)
        if why := self.forbids(step):
            raise IllegalMove(f"{why} The room is as before:\n{self.board()}")
        self.player += step
        if self.player not in self.boxes:
            return f"You went {move}:\n{self.board()}"
        self.boxes = self.boxes - {self.player} | {self.player + step}
        text = f"You pushed a box {move}:\n{self.board()}"
        if self.boxes == self.level.goals:
            return Play.win(f"{text}\nEvery box is on a goal.")
        return text

    def forbids(self, step: int) -> str:
        """Return why a move is blocked, or ''; `step` is what it adds to the player's cell number."""
        to, floor, boxes = self.player + step, self.level.floor, self.boxes
        if to not in floor:
            return "A wall is in the way."
        if to in boxes and (to + step not in floor or to + step in boxes):
            return f"The box cannot move: {'a wall' if to + step not in floor else 'a box'} is behind it."
        return ""

    def draw_board(self) -> CellCanvas:
        """Draw the room: bricks, goals as red rings, boxes (green on a goal), the player in blue."""
        level = self.level
        grid = CellCanvas(level.height, level.width, 46)
        for cell in range(level.height * level.width):
            row, column = divmod(cell, level.width)
            x, y = grid.corner(row, column)
            if cell not in level.floor:
                grid.box((x, y), (46, 46), "#8c6f5a", WHITE)
                grid.line([(x, y + 23), (x + 45, y + 23)], WHITE, 1)
                grid.line([(x + 23, y), (x + 23, y + 23)], WHITE, 1)
                continue
            grid.box((x, y), (46, 46), PAPER, "#e3ddd2")
            if cell in level.goals:
                grid.disk((x + 23, y + 23), 15, outline=RED, line=4)
            if cell in self.boxes:
                grid.box((x + 5, y + 5), (36, 36), GREEN if cell in level.goals else AMBER, INK, 2, 3)
                grid.line([(x + 8, y + 8), (x + 38, y + 38)], INK, 2)
                grid.line([(x + 38, y + 8), (x + 8, y + 38)], INK, 2)
            if cell == self.player:
                grid.disk((x + 23, y + 23), 11, BLUE)
        return grid

    def progress(self) -> float:
        """Return the share of boxes on goals."""
        return len(self.boxes & self.level.goals) / len(self.boxes)

    def random_move(self) -> str:
        """Move in any free direction."""
        return choose(self.actor_rng, self._legal())

    def expert_move(self) -> str:
        """Make the next move of a solution that fits the turns left; if none fits, any move."""
        position = (self.boxes, self.player)
        if position not in self._route and not self._hopeless:
            self._route = solve(self.level, *position, self.max_turns - self.turn)
            self._hopeless = not self._route
        return self._route.get(position) or self._legal()[0]

    def _legal(self) -> list[str]:
        return [name for name in DIRECTIONS if not self.forbids(_step(self.level.width, name))]


def _step(width: int, name: str) -> int:
    return {"up": -width, "down": width, "left": -1, "right": 1}[name]


@lru_cache(maxsize=256)
def _bare(height: int, width: int, floor: frozenset[int], goals: Boxes) -> list[str]:
    """Return the signs of a room without boxes and player."""
    return ["." if c in goals else "_" if c in floor else "#" for c in range(height * width)]


def make_level(height: int, width: int, num_boxes: int, turns: int, rng: Random) -> Level:
    """Return a level with a solution of at most `turns` moves, made backwards from its solved position."""
    while True:
        floor = _dig(height, width, rng)
        cells = sorted(floor)
        rng.shuffle(cells)
        goals, player = frozenset(cells[:num_boxes]), cells[num_boxes]
        made = [_drag(height, width, floor, goals, player, turns, rng) for _ in range(TRIES)]
        levels = [level for level in made if level is not None]
        if levels and max(level.pushes for level in levels) >= FEWEST * num_boxes:
            return max(levels, key=lambda level: level.pushes)


def _dig(height: int, width: int, rng: Random) -> frozenset[int]:
    """Return the floor of a room, which is connected, with random walls inside."""
    inside = [r * width + c for r in range(1, height - 1) for c in range(1, width - 1)]
    floor = set(inside)
    walls = round(len(inside) * (1 - OPEN))
    rng.shuffle(inside)
    for cell in inside:
        if not walls:
            break
        floor.remove(cell)
        near = [cell + step for step in (-width, width, -1, 1) if cell + step in floor]
        # if the neighbours of the cell stay connected, so does the floor
        if len(near) <= 1 or _walks(width, near[0], floor).keys() >= {*near}:
            walls -= 1
        else:
            floor.add(cell)
    return frozenset(floor)


def _drag(
    height: int, width: int, floor: frozenset[int], goals: Boxes, player: int, turns: int, rng: Random
) -> Level | None:
    """Return the position furthest from the goals that random drags reach, with no box on a goal, or None.

    Of two random drags, the one that leads further from the goals is made.
    """
    boxes, moves, level = set(goals), 0, None
    away = _pushes(width, floor, goals)
    while True:
        ways = _walks(width, player, floor - boxes)
        drags = [
            (box, step)
            for box in sorted(boxes)
            for step in (-width, width, -1, 1)
            if box + step in ways and box + 2 * step in ways and moves + ways[box + step] < turns
        ]
        if not drags:
            return level
        one, other = choose(rng, drags), choose(rng, drags)
        gains = [away[box + step] - away[box] for box, step in (one, other)]
        box, step = other if gains[1] > gains[0] else one
        moves += ways[box + step] + 1
        boxes.remove(box)
        boxes.add(box + step)
        player = box + 2 * step
        pushes = sum(away[box] for box in boxes)
        if not boxes & goals and (level is None or pushes > level.pushes):
            level = Level(height, width, floor, goals, frozenset(boxes), player, moves, pushes)


def _walks(width: int, player: int, free: Set[int]) -> dict[int, int]:
    """Return the cells that the player can walk to, with the moves to each."""
    moves, frontier = {player: 0}, [player]
    for cell in frontier:
        for to in (cell - width, cell + width, cell - 1, cell + 1):
            if to in free and to not in moves:
                moves[to] = moves[cell] + 1
                frontier.append(to)
    return moves


@lru_cache(maxsize=1024)
def _pushes(width: int, floor: frozenset[int], goals: Boxes) -> dict[int, int]:
    """Return how many pushes a lone box on each cell needs to the nearest of `goals`."""
    needed, frontier = dict.fromkeys(goals, 0), sorted(goals)
    for cell in frontier:
        for step in (-width, width, -1, 1):
            if cell + step in floor and cell + 2 * step in floor and cell + step not in needed:
                needed[cell + step] = needed[cell] + 1
                frontier.append(cell + step)
    return needed


def solve(level: Level, boxes: Boxes, player: int, turns: int) -> dict[tuple[Boxes, int], str]:
    """Return the positions of a solution within `turns`, with the move from each; empty if none is found.

    The search is over pushes, ordered by the moves made and a lower bound on the pushes left.
    """
    width, goals = level.width, level.goals
    away = [_pushes(width, level.floor, frozenset([goal])) for goal in sorted(goals)]
    frontier = [(0.0, 0, tuple(sorted(boxes)), player)]
    reached: dict[Pushed, int] = {(tuple(sorted(boxes)), player): 0}
    came: dict[Pushed, tuple[Pushed, int]] = {}
    while frontier and len(reached) < EFFORT:
        _, moves, at, player = heappop(frontier)
        box_squares = frozenset(at)
        if box_squares == goals:
            return _route(level, (at, player), came)
        ways = _walks(width, player, level.floor - box_squares)
        for box in at:
            for step in (-width, width, -1, 1):
                to = box + step
                if box - step not in ways or to not in level.floor or to in box_squares:
                    continue
                made = moves + ways[box - step] + 1
                after = tuple(sorted(to if other == box else other for other in at))
                left = _least(away, after)
                if made + left > turns or reached.get((after, box), turns + 1) <= made:
                    continue
                reached[after, box] = made
                came[after, box] = ((at, player), step)
                heappush(frontier, (made + TRUST * left, made, after, box))
    return {}


def _least(away: list[dict[int, int]], boxes: tuple[int, ...]) -> int:
    """Return a lower bound on the pushes left, with one goal per box; NEVER at a dead end."""
    least = [0] + [NEVER] * ((1 << len(boxes)) - 1)  # per set of goals taken by the boxes so far
    for taken in range(1 << len(boxes)):
        if least[taken] < NEVER and taken.bit_count() < len(boxes):
            box = boxes[taken.bit_count()]
            for k, pushes in enumerate(away):
                if not taken >> k & 1 and box in pushes:
                    after = taken | 1 << k
                    least[after] = min(least[after], least[taken] + pushes[box])
    return least[-1]


def _route(level: Level, end: Pushed, came: dict[Pushed, tuple[Pushed, int]]) -> dict[tuple[Boxes, int], str]:
    """Return every position before `end` with its move, for the pushes and the walks between them."""
    width = level.width
    names = {_step(width, name): name for name in DIRECTIONS}
    route = {}
    while end in came:
        (at, player), step = came[end]
        box_squares = frozenset(at)
        route[box_squares, end[1] - step] = names[step]
        back = _walks(width, end[1] - step, level.floor - box_squares)
        while back[player]:
            way = next(s for s in names if back.get(player + s, NEVER) < back[player])
            route[box_squares, player] = names[way]
            player += way
        end = came[end][0]
    return route
