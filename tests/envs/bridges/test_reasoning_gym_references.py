"""The references and the grading of repaired data sets, by solvers that read the question only."""

import cmath
import itertools
import math
import re
from fractions import Fraction

import pytest

import gem

pytest.importorskip("reasoning_gym")
pytestmark = [  # of what the package does in its own files
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::SyntaxWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

from reasoning_gym.games.tsumego import TsumegoDataset
from reasoning_gym.graphs.family_relationships import FamilyRelationshipsConfig

from gem.envs.bridges.reasoning_gym_repairs import EITHER_SEX
from gem.errors import BadArgument

WOMEN = FamilyRelationshipsConfig().female_names


def rewards(env, *answers):
    return [env.fork().step(f"\\boxed{{{answer}}}").reward for answer in answers]


def episodes(name, seeds, **config):
    env = gem.make(f"rg:{name}", **config)
    for seed in seeds:
        yield env, env.reset(seed=seed).obs


def play_mahjong(question):
    hand = [*re.search(r"initial cards (\w+)", question)[1]]
    runs = ["ABCDEFGHIJKLMNOPQRSTUVWXYZ"[first : first + 3] for first in range(24)]
    for added, removed in re.findall(r"Add an? (\w) card and remove an? (\w) card", question):
        hand.append(added)
        chi = any(added in run and {*run} <= {*hand} for run in runs)
        result = "Peng" if hand.count(added) > 2 else "Chi" if chi else "Pass"
        hand.remove(removed)
    return result


def judge_syllogism(question):
    """Look for a world, of all sets of things, in which the statements are true and the conclusion is not."""
    statements = re.findall(r"(All|No|Some) (\w+) are (not )?(\w+)", question)
    kinds = {kind for _, one, _, other in statements for kind in (one, other)}
    things = [{*some} for size in range(4) for some in itertools.combinations(sorted(kinds), size)]

    def holds(statement, world):
        quantifier, one, negation, other = statement
        found = [other in thing for thing in world if one in thing]
        return {"All": all(found), "No": not any(found), "Some": (not negation) in found}[quantifier]

    assert "There is at least one of each kind." in question
    for chosen in itertools.product((True, False), repeat=len(things)):
        world = [*itertools.compress(things, chosen)]
        truth = [holds(statement, world) for statement in statements]
        if kinds == {*itertools.chain(*world)} and truth == [True, True, False]:
            return "No"
    return "Yes"


def name_relation(question):
    story, asked = question.split("\n\n")[:2]
    couples = re.findall(r"(\w+) is married to (\w+)\.(?: They have .*? called ([^.]+))?", story)
    parents = {child: {a, b} for a, b, children in couples for child in re.findall(r"(?!and\b)\w+", children)}
    spouse = dict([(a, b) for a, b, _ in couples] + [(b, a) for a, b, _ in couples])
    _, one, other = re.findall(r"\b[A-Z]\w+", asked)[:3]

    def elders(person):
        return {elder for parent in parents.get(person, ()) for elder in parents.get(parent, ())}

    of_one, of_other = parents.get(one, set()), parents.get(other, set())
    relations = [
        (one in of_other, "mother", "father"),
        (other in of_one, "daughter", "son"),
        (spouse.get(one) == other, "wife", "husband"),
        (of_one and of_one == of_other, "sister", "brother"),
        (one in elders(other), "grandmother", "grandfather"),
        (of_one & elders(other), "aunt", "uncle"),
        (of_other & elders(one), "niece", "nephew"),
        (other in parents.get(spouse.get(one), ()), "daughter-in-law", "son-in-law"),
    ]
    assert one in spouse or one not in EITHER_SEX
    return next(words for is_so, *words in relations if is_so)[one not in WOMEN]


def find_captures(question):
    rows = re.findall(r"^ *(\d+) ([.XO ]+)$", question, re.MULTILINE)
    board = {(x, int(row)): sign for row, signs in rows for x, sign in enumerate(signs.split())}
    captures = set()
    for stone in (point for point, sign in board.items() if sign == "O"):
        group, free = [stone], set()
        for x, y in group:
            for near in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
                if board.get(near) == "." or (board.get(near) == "O" and near not in group):
                    free.add(near) if board[near] == "." else group.append(near)
        captures |= free if len(free) == 1 else set()
    return " ".join(f"{chr(65 + x)}{y}" for x, y in captures)


@pytest.mark.parametrize(
    ("name", "solver", "config"),
    [
        ("mahjong_puzzle", play_mahjong, {}),
        ("syllogism", judge_syllogism, {}),
        ("family_relationships", name_relation, {}),
        ("family_relationships", name_relation, {"min_family_size": 10, "max_family_size": 14}),
        ("tsumego", find_captures, {}),
    ],
)
def test_the_reference_is_the_answer_to_the_question(name, solver, config):
    for env, question in episodes(name, range(60), **config):
        assert env.answer == solver(question), question


def test_a_board_without_room_for_a_puzzle_is_refused_with_what_to_do(monkeypatch):
    env = gem.make("rg:tsumego")
    monkeypatch.setattr(TsumegoDataset, "_would_capture", lambda *args: False)
    with pytest.raises(BadArgument, match="larger boards or fewer stones"):
        env.reset(seed=0)


def test_relations_in_law_need_no_hyphens():
    answers = [
        rewards(env, env.answer.replace("-", " "), env.answer.replace("-in-law", ""))
        for env, _ in episodes("family_relationships", range(60))
        if "-" in env.answer
    ]
    assert answers == [[1.0, 0.0]] * len(answers) != []


def test_each_solution_of_survo_is_right():
    ((env, question),) = episodes("survo", [37])
    puzzle = [[int(n) for n in row.split()] for row in re.findall(r"^[\d ]+$", question, re.MULTILINE)]
    numbers = [int(n) for n in re.search(r"\[(.*)\]", question)[1].split(",")]
    earned = {True: [], False: []}
    for order in sorted({*itertools.permutations(numbers)}):
        left = iter(order)
        grid = [[n or next(left) for n in row] for row in puzzle]
        right = all(sum(line[:-1]) == line[-1] for line in (*grid, *zip(*grid, strict=True)))
        earned[right] += rewards(env, "\n".join(" ".join(map(str, row)) for row in grid))
    assert earned[True] == [1.0, 1.0]
    assert {*earned[False]} == {0.0}
    rows = env.answer.splitlines()
    assert rewards(env, "\n".join(rows[:-1]), f"1 {env.answer}", env.answer.replace("1", "2")) == [0.0] * 3


def measure(question):
    """Return the numbers that a geometry question asks for, without rounding."""
    a, b, c = (complex(*map(int, point)) for point in re.findall(r"[ABC]=\((-?\d+), (-?\d+)\)", question))
    asked = question.partition("For all geometry")[0]
    if "angle" in asked.replace("triangle", ""):
        return [abs(math.degrees(cmath.phase((a - b) / (c - b))))]
    twice_the_area = ((b - a).conjugate() * (c - a)).imag
    if "radius" in asked:
        return [abs(twice_the_area) / (abs(a - b) + abs(b - c) + abs(c - a))]
    sides = ((a, b - c), (b, c - a), (c, a - b))
    middle = sum(abs(p) ** 2 * side for p, side in sides) / sum(p.conjugate() * side for p, side in sides)
    orthocentre = a + b + c - 2 * middle  # of the circumcircle
    return [orthocentre.real, orthocentre.imag]


def test_numbers_to_three_decimals_are_right_in_geometry():
    for env, question in episodes("advanced_geometry", range(40)):
        exact = measure(question)
        written, short = ", ".join(f"{n:.3f}" for n in exact), ", ".join(str(round(n, 3)) for n in exact)
        assert rewards(env, f"({written})", short) == [1.0, 1.0], question
        off = ", ".join(f"{n + 0.011:.3f}" for n in exact)
        assert max(rewards(env, off, "nan", "")) < 1


def test_small_probabilities_are_right_to_two_digits():
    for env, question in episodes("coin_flip", range(60)):
        heads, flips = map(int, re.findall(r"(\d+) (?:heads|fair)", question))
        counted = [heads] if "exactly" in question else range(heads, flips + 1)
        right = Fraction(sum(math.comb(flips, count) for count in counted), 2**flips)
        assert rewards(env, right, f"{float(right):.5g}", 0) == [1.0, 1.0, 0.0]
        if right < Fraction(1, 2000):
            assert rewards(env, f"{float(right):.1e}", f"{1.1 * float(right):.1e}") == [1.0, 0.0]
