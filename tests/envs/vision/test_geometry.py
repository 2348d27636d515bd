import io
import math
from collections import Counter
from fractions import Fraction

import pytest

pytest.importorskip("PIL")
from PIL import Image as Pillow

import gem
from gem.content import Image, Text
from gem.envs.kit.drawing import COLOURS, INK, SHADE, Canvas, font
from gem.envs.vision import geometry
from gem.envs.vision.env import GeometryEnv
from gem.errors import BadArgument
from gem.seeding import stream


def problems(kind, n=200):
    return [geometry.KINDS[kind](stream(seed, kind)) for seed in range(n)]


def pixels(problem):
    return Pillow.open(io.BytesIO(problem.picture().data)).convert("RGB")


def rgb(colour):
    return tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))


def near(image, at, radius=3):
    x, y = map(round, at)
    box = (x - radius, y - radius, x + radius + 1, y + radius + 1)
    return image.crop(box).getcolors(10_000)


def test_levels_are_all_the_kinds():
    easy, hard = (gem.spec(f"vision:Geometry-v0-{level}").kwargs["kinds"] for level in ("easy", "hard"))
    assert sorted([*easy, *hard]) == sorted(geometry.KINDS)


@pytest.mark.parametrize("kind", geometry.KINDS)
def test_every_kind_is_drawn_and_drawn_again_alike(kind):
    one, again = (geometry.KINDS[kind](stream(4)) for _ in range(2))
    assert one.picture() == again.picture()
    image = pixels(one)
    assert image.size == (geometry.WIDTH, geometry.HEIGHT)
    assert len(image.getcolors(100_000)) > 5
    assert one.picture().mime == "image/png"
    assert one.answer not in one.picture().alt


@pytest.mark.parametrize("kind", geometry.KINDS)
def test_different_problems_have_different_keys_and_plain_answers(kind):
    found = problems(kind)
    assert len({(p.question, p.key) for p in found}) > 15
    for problem in found:
        plain = problem.answer.removesuffix("\\pi")
        assert Fraction(plain) > 0 or kind == "count"


def test_shapes_are_counted_as_they_are_drawn():
    for problem in problems("count", 40):
        image = pixels(problem)
        words = problem.question.removesuffix("?").split()
        shape = words[-3].removesuffix("s")
        paints = [words[2]] if words[2] in geometry.PAINTS else list(geometry.PAINTS)
        seen = Counter()
        for cell in range(24):
            x, y = cell % 6 * 60 + 40, cell // 6 * 68 + 48
            middle = image.getpixel((x, y))
            paint = next((name for name, code in geometry.PAINTS.items() if rgb(code) == middle), None)
            if paint:
                corner = image.getpixel((x - 15, y - 15)) == middle  # squares alone fill their corners
                low = image.getpixel((x - 17, y + 16)) == middle  # triangles are wide at their feet
                seen[paint, "square" if corner else "triangle" if low else "circle"] += 1
        assert sum(seen[paint, shape] for paint in paints) == int(problem.answer), problem.question


def test_figures_are_true_to_scale():
    for problem in problems("rectangle", 20):
        width, height = eval(problem.key)  # noqa: S307  our own key
        image = pixels(problem)
        across = sum(image.getpixel((x, image.height // 2)) == rgb(SHADE) for x in range(image.width))
        down = sum(image.getpixel((image.width // 2, y)) == rgb(SHADE) for y in range(image.height))
        line = 3  # pixels that the outline covers
        assert (across + line) / (down + line) == pytest.approx(width / height, rel=0.1)


def test_answers_follow_from_the_figures():
    for problem in problems("angle"):
        one, other = eval(problem.key)  # noqa: S307
        assert int(problem.answer) == 180 - one - other >= 30
    for problem in problems("right_triangle"):
        sides, unknown = eval(problem.key)  # noqa: S307
        assert sides[0] ** 2 + sides[1] ** 2 == sides[2] ** 2
        assert int(problem.answer) == sides[unknown]
    for problem in problems("circle"):
        radius = int(problem.key)
        number = {"area": radius**2, "circumference": 2 * radius, "diameter": 2 * radius}
        wanted = next(number[word] for word in number if word in problem.question)
        assert problem.answer.removesuffix("\\pi") == str(wanted)
        assert ("\\pi" in problem.answer) == ("diameter" not in problem.question)
    for problem in problems("notched"):
        width, height, cut, deep = eval(problem.key)  # noqa: S307
        if "area" in problem.question:
            assert int(problem.answer) == width * (height - deep) + (width - cut) * deep
        else:
            assert int(problem.answer) == sum((width, height - deep, cut, deep, width - cut, height))


def test_areas_of_polygons_are_what_pick_counts():
    for problem in problems("polygon", 60):
        corners = eval(problem.key)  # noqa: S307
        edges = list(zip(corners, [*corners[1:], corners[0]], strict=True))
        border = sum(math.gcd(c - a, d - b) for (a, b), (c, d) in edges)
        inside = sum(
            all((c - a) * (y - b) - (d - b) * (x - a) > 0 for (a, b), (c, d) in edges)
            for x in range(13)
            for y in range(10)
        )
        assert Fraction(problem.answer) == inside + Fraction(border, 2) - 1


def test_angles_at_parallels_stand_where_they_are_named():
    for problem in problems("parallels", 40):
        given, same = eval(problem.key)  # noqa: S307
        assert int(problem.answer) == (given if same else 180 - given)
        image = pixels(problem)
        lean = 1 / math.tan(math.radians(given))
        for y in (95, 205):  # both parallels and the line that crosses them pass here
            assert any(colour == rgb(INK) for _, colour in near(image, (190 + lean * (150 - y), y)))


@pytest.mark.parametrize("kind", geometry.KINDS)
def test_labels_are_inside_the_picture_and_apart(kind, monkeypatch):
    boxes = []

    def write(canvas, at, words, size=18, colour=INK, anchor="mm", bold=False):
        left, top, right, bottom = font(size).getbbox(words, anchor=anchor)
        boxes.append((at[0] + left, at[1] + top, at[0] + right, at[1] + bottom))

    monkeypatch.setattr(Canvas, "text", write)
    monkeypatch.setattr(Canvas, "png", lambda canvas: b"")
    for problem in problems(kind, 300):
        boxes.clear()
        problem.picture()
        for number, (left, top, right, bottom) in enumerate(boxes):
            assert min(left, top, geometry.WIDTH - right, geometry.HEIGHT - bottom) > 0, problem.key
            for x, y, to_x, to_y in boxes[:number]:
                apart = max(left - to_x, x - right, top - to_y, y - bottom)
                assert apart >= 2, (problem.key, problem.question)


def test_an_environment_shows_a_picture_and_a_question():
    env = GeometryEnv(kinds="circle")
    obs = env.reset(seed=0).obs
    assert [type(part) for part in obs] == [Image, Text, Text]
    assert env.step(env.solve()).reward == 1.0
    env.reset(seed=0)
    assert env.step("\\boxed{-1}").reward == 0.0


def test_unknown_kinds_are_refused():
    with pytest.raises(BadArgument, match="kinds is 'heptagon'"):
        GeometryEnv(kinds="heptagon")


def test_paints_are_told_apart():
    assert set(geometry.PAINTS.values()) <= set(COLOURS)
