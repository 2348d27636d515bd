r"""Generator of figures with questions: angles, sides, areas, counting."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from random import Random

from gem.content import Image
from gem.envs.kit.drawing import COLOURS, INK, RULE, SHADE, Canvas, Point
from gem.tasks.procedural import Problem

WIDTH, HEIGHT = 380, 300
ALT = "[a geometric figure]"
PAINTS = {"red": COLOURS[0], "blue": COLOURS[1], "green": COLOURS[2], "yellow": COLOURS[3]}
SHAPES = ("circle", "triangle", "square")
TRIPLES = ((3, 4, 5), (5, 12, 13), (8, 15, 17), (7, 24, 25), (20, 21, 29))
"""Primitive Pythagorean triples."""


@dataclass(frozen=True)
class Geometry:
    """A generator of figures of several kinds, with a question about each."""

    kinds: tuple[str, ...]

    def __call__(self, rng: Random) -> Problem:
        """Draw a figure and a question about it."""
        return KINDS[rng.choice(self.kinds)](rng)


def _problem(question: str, answer: object, key: object, draw: Callable[[Canvas], None]) -> Problem:
    def picture() -> Image:
        canvas = Canvas(WIDTH, HEIGHT)
        draw(canvas)
        return Image(canvas.png(), "image/png", ALT)

    return Problem(question, str(answer), repr(key), picture)


# -- the kinds


def count(rng: Random) -> Problem:
    """Count the shapes of one kind and colour among others."""
    cells = rng.sample(range(24), rng.randint(6, 20))
    things = [(cell, rng.choice(SHAPES), rng.choice(list(PAINTS))) for cell in sorted(cells)]
    _, shape, paint = rng.choice(things)
    if rng.random() < 0.3:
        question, answer = f"How many {shape}s are there?", sum(each[1] == shape for each in things)
    else:
        question = f"How many {paint} {shape}s are there?"
        answer = sum(each[1:] == (shape, paint) for each in things)

    def draw(canvas: Canvas) -> None:
        for cell, kind, colour in things:
            _shape(canvas, (cell % 6 * 60 + 40, cell // 6 * 68 + 48), kind, PAINTS[colour])

    return _problem(question, answer, things, draw)


def angle(rng: Random) -> Problem:
    """Find the third angle of a triangle."""
    one = rng.randrange(30, 100)
    other = rng.randrange(30, 151 - one)
    a, b = math.radians(one), math.radians(other)
    base = 300.0
    left = base * math.tan(b) / (math.tan(a) + math.tan(b)) if 90 not in (one, other) else 0.0
    if one == 90:
        left, up = 0.0, base * math.tan(b)
    elif other == 90:
        left, up = base, base * math.tan(a)
    else:
        up = left * math.tan(a)
    corners = _fit_corners([(0.0, 0.0), (base, 0.0), (left, up)])

    def draw(canvas: Canvas) -> None:
        _outline(canvas, corners)
        for corner, words in zip(corners, (f"{one}°", f"{other}°", "x"), strict=True):
            _inside(canvas, corners, corner, words)

    question = "The picture shows a triangle. How many degrees has the angle x?"
    return _problem(question, 180 - one - other, (one, other), draw)


def rectangle(rng: Random) -> Problem:
    """Find the area or the perimeter of a rectangle."""
    width, height = rng.randint(3, 30), rng.randint(2, 20)
    wanted = rng.choice(("area", "perimeter"))
    answer = width * height if wanted == "area" else 2 * (width + height)
    corners = _fit_corners([(0, 0), (width, 0), (width, height), (0, height)])

    def draw(canvas: Canvas) -> None:
        _outline(canvas, corners)
        _beside(canvas, corners, 0, str(width))
        _beside(canvas, corners, 1, str(height))

    return _problem(f"What is the {wanted} of the rectangle?", answer, (width, height), draw)


def right_triangle(rng: Random) -> Problem:
    """Find the third side of a right-angled triangle."""
    factor = rng.randint(1, 4)
    sides = [factor * side for side in rng.choice(TRIPLES)]
    if rng.random() < 0.5:
        sides[:2] = sides[1::-1]
    unknown = rng.randrange(3)
    corners = _fit_corners([(0, 0), (sides[0], 0), (0, sides[1])])

    def draw(canvas: Canvas) -> None:
        _outline(canvas, corners)
        (x, y), mark = corners[0], 14
        canvas.line([(x + mark, y), (x + mark, y - mark), (x, y - mark)], INK, 1.5)
        for edge, side in ((0, 0), (1, 2), (2, 1)):
            _beside(canvas, corners, edge, "x" if side == unknown else str(sides[side]))

    question = "The triangle has a right angle where it is marked. How long is the side x?"
    return _problem(question, sides[unknown], (sides, unknown), draw)


def circle(rng: Random) -> Problem:
    """Find the area, circumference or diameter of a circle."""
    radius = rng.randint(2, 20)
    wanted = rng.choice(("area", "circumference", "diameter"))
    answers = {"area": f"{radius**2}\\pi", "circumference": f"{2 * radius}\\pi", "diameter": str(2 * radius)}
    question = f"What is the {wanted} of the circle?"
    if wanted != "diameter":
        question += " Give it as a multiple of \\pi."

    def draw(canvas: Canvas) -> None:
        centre = (WIDTH / 2, HEIGHT / 2)
        canvas.disk(centre, 110, SHADE, INK, 2)
        canvas.disk(centre, 3, INK)
        canvas.line([centre, (centre[0] + 110, centre[1])], INK, 2)
        canvas.text((centre[0] + 55, centre[1] - 14), str(radius))

    return _problem(question, answers[wanted], radius, draw)


def parallels(rng: Random) -> Problem:
    """Find an angle where a line crosses two parallel ones."""
    given = rng.choice([degrees for degrees in range(35, 146) if abs(degrees - 90) > 8])
    same = rng.random() < 0.5
    slope = math.radians(given)

    def draw(canvas: Canvas) -> None:
        upper, lower, middle = 95.0, 205.0, WIDTH / 2
        for y in (upper, lower):
            canvas.line([(30, y), (WIDTH - 30, y)], INK, 2)
        lean = 1 / math.tan(slope)
        canvas.line([(middle - lean * 135, 285), (middle + lean * 135, 15)], INK, 2)
        for y, words, turn in ((upper, f"{given}°", 0.0), (lower, "x", 0.0 if same else math.pi)):
            x = middle + lean * (150 - y)
            # between the parallel to the right (or, turned, to the left) and the crossing line upwards
            middle_of_angle = slope / 2 if turn == 0.0 else (math.pi + slope) / 2
            canvas.text((x + 32 * math.cos(middle_of_angle), y - 32 * math.sin(middle_of_angle)), words, 15)

    question = "Two parallel lines are crossed by a third. How many degrees has the angle x?"
    return _problem(question, given if same else 180 - given, (given, same), draw)


def polygon(rng: Random) -> Problem:
    """Find the area of a polygon whose corners lie on a grid."""
    while True:
        across, up = 12, 9
        around = sorted(
            (rng.randrange(across + 1), rng.randrange(up + 1)) for _ in range(rng.choice((3, 4, 4, 5)))
        )
        corners = _sort_by_angle(around)
        edges = zip(corners, [*corners[1:], corners[0]], strict=True)
        twice = abs(sum(a * d - b * c for (a, b), (c, d) in edges))
        if len(set(around)) == len(around) and twice >= 12 and _simple(corners):
            break
    cell = 28

    def draw(canvas: Canvas) -> None:
        left, bottom = (WIDTH - across * cell) / 2, HEIGHT - (HEIGHT - up * cell) / 2
        points = [(left + x * cell, bottom - y * cell) for x, y in corners]
        canvas.polygon(points, SHADE)
        for x in range(across + 1):
            canvas.line([(left + x * cell, bottom), (left + x * cell, bottom - up * cell)], RULE, 0.6)
        for y in range(up + 1):
            canvas.line([(left, bottom - y * cell), (left + across * cell, bottom - y * cell)], RULE, 0.6)
        _outline(canvas, points, fill=None)

    question = "Each square of the grid has the area 1. What is the area of the shaded polygon?"
    return _problem(question, Fraction(twice, 2), corners, draw)


def notched(rng: Random) -> Problem:
    """Find the area or the perimeter of an L-shaped figure, two sides of which must be worked out."""
    width, height = rng.randint(6, 20), rng.randint(6, 16)
    cut, deep = rng.randint(2, width - 3), rng.randint(2, height - 3)
    wanted = rng.choice(("area", "perimeter"))
    answer = width * height - cut * deep if wanted == "area" else 2 * (width + height)
    shape = [(0, 0), (width, 0), (width, height - deep), (width - cut, height - deep), (width - cut, height)]
    corners = _fit_corners([*shape, (0, height)])

    def draw(canvas: Canvas) -> None:
        _outline(canvas, corners)
        for edge, length in ((0, width), (2, cut), (5, height)):
            _beside(canvas, corners, edge, str(length))
        _beside(canvas, corners, 3, str(deep), side=-1)  # two labels have no room in a small notch

    question = f"All angles of the figure are right angles. What is its {wanted}?"
    return _problem(question, answer, (width, height, cut, deep), draw)


KINDS: dict[str, Callable[[Random], Problem]] = {
    kind.__name__: kind
    for kind in (count, angle, rectangle, circle, parallels, right_triangle, polygon, notched)
}
"""The kinds of figure, by name."""


# -- strokes


def _fit_corners(corners: list[tuple[float, float]]) -> list[Point]:
    """Scale corners to fit the middle of the picture, and turn y from upwards to downwards."""
    xs, ys = [x for x, _ in corners], [y for _, y in corners]
    wide, high = max(xs) - min(xs), max(ys) - min(ys)
    scale = min((WIDTH - 100) / wide, (HEIGHT - 90) / high)
    left, bottom = (WIDTH - wide * scale) / 2, (HEIGHT + high * scale) / 2
    return [(left + (x - min(xs)) * scale, bottom - (y - min(ys)) * scale) for x, y in corners]


def _sort_by_angle(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return points ordered by angle around their middle."""
    x, y = sum(p[0] for p in points) / len(points), sum(p[1] for p in points) / len(points)
    return sorted(points, key=lambda p: (math.atan2(p[1] - y, p[0] - x), p))


def _simple(corners: list[tuple[int, int]]) -> bool:
    """Return whether every corner of a polygon turns left: it is convex, and no corner is flat."""
    turns = []
    for at, (x, y) in enumerate(corners):
        (a, b), (c, d) = corners[at - 2], corners[at - 1]
        turns.append((c - a) * (y - d) - (d - b) * (x - c))
    return min(turns) > 0


def _outline(canvas: Canvas, corners: list[Point], fill: str | None = SHADE) -> None:
    if fill:
        canvas.polygon(corners, fill)
    canvas.line([*corners, corners[0], corners[1]], INK, 2)


def _middle(corners: list[Point]) -> Point:
    return sum(x for x, _ in corners) / len(corners), sum(y for _, y in corners) / len(corners)


def _inside(canvas: Canvas, corners: list[Point], corner: Point, words: str) -> None:
    """Write into a corner, towards the middle."""
    (x, y), (to_x, to_y) = corner, _middle(corners)
    length = math.hypot(to_x - x, to_y - y)
    far = min(48.0, length * 0.45)
    canvas.text((x + (to_x - x) * far / length, y + (to_y - y) * far / length), words, 16)


def _beside(canvas: Canvas, corners: list[Point], edge: int, words: str, side: int = 1) -> None:
    """Write beside an edge, on its outer side, or the inner with `side` -1; corners are counterclockwise."""
    (x, y), (to_x, to_y) = corners[edge], corners[(edge + 1) % len(corners)]
    length = math.hypot(to_x - x, to_y - y)
    out = (side * (y - to_y) / length, side * (to_x - x) / length)
    canvas.text(((x + to_x) / 2 + 20 * out[0], (y + to_y) / 2 + 18 * out[1]), words, 17)


def _shape(canvas: Canvas, centre: Point, kind: str, paint: str) -> None:
    x, y = centre
    if kind == "circle":
        canvas.disk(centre, 20, paint)
    elif kind == "square":
        canvas.box((x - 18, y - 18), (36, 36), paint)
    else:
        canvas.polygon([(x - 22, y + 18), (x + 22, y + 18), (x, y - 20)], paint)
