import math
from functools import cache
from random import Random

import pytest

from gem.envs.games.sudoku import FEWEST_CLUES, Sudoku, make_puzzle, solve
from gem.errors import BadArgument
from gem.seeding import stream

BOX = {4: 2, 9: 3}


@cache
def together(side, at):
    """The cells that share a row, column or box with a cell; written without the game's own tables."""
    row, column = divmod(at, side)
    box = BOX[side]
    return [
        (r * side + c)
        for r in range(side)
        for c in range(side)
        if (r, c) != (row, column)
        and (r == row or c == column or (r // box, c // box) == (row // box, column // box))
    ]


def fits(side, cells, at, digit):
    """Whether a digit breaks no rule in a cell."""
    return all(cells[peer] != digit for peer in together(side, at))


def solutions(side, cells, most=2):
    """Count solutions up to `most`, by plain backtracking over the emptiest choice."""
    options = {
        at: [d for d in "123456789"[:side] if fits(side, cells, at, d)]
        for at, held in enumerate(cells)
        if held == "."
    }
    if not options:
        return 1
    at = min(options, key=lambda cell: len(options[cell]))
    found = 0
    for digit in options[at]:
        found += solutions(side, cells[:at] + digit + cells[at + 1 :], most - found)
        if found >= most:
            break
    return found


@pytest.mark.parametrize(
    ("side", "clues", "count"),
    [(4, 10, 60), (4, FEWEST_CLUES[4], 40), (9, 50, 12), (9, 30, 8), (9, 24, 1), (9, 80, 2)],
)
def test_puzzles_have_exactly_the_clues_and_one_solution(side, clues, count):
    for seed in range(count):
        puzzle = make_puzzle(side, clues, stream(seed, "puzzle"))
        assert len(puzzle) == side * side
        assert sum(cell != "." for cell in puzzle) == clues
        assert solutions(side, puzzle) == 1
        solution = solve(side, puzzle)
        assert all(given in (".", held) for given, held in zip(puzzle, solution, strict=True))
        assert all(fits(side, solution, at, digit) for at, digit in enumerate(solution))


def test_a_puzzle_without_solution_is_refused():
    with pytest.raises(ValueError, match="no solution"):
        solve(4, "123........4....")  # row 1 lacks its 4, but column 4 holds one


def test_every_episode_of_an_id_has_the_clues_it_names():
    for keywords, wanted in (
        ({"clues": 10, "scale": 4, "max_turns": 15}, {10}),
        ({"clues": (30, 60)}, range(30, 61)),
    ):
        env = Sudoku(**keywords)
        clues = set()
        for seed in range(30):
            env.reset(seed=seed)
            clues.add(sum(cell != "." for cell in env.puzzle))
        assert clues <= set(wanted)
        assert len(clues) == 1 or len(clues) > 10


def dealt(**keywords):
    env = Sudoku(**{"scale": 4, "clues": 6, "max_turns": 60} | keywords)
    env.reset(seed=0)
    return env


def write(env, cell, digit, form="{} {} {}"):
    row, column = divmod(cell, env.scale)
    return env.step(f"\\boxed{{{form.format(row + 1, column + 1, digit)}}}")


def lawful_wrong(env):
    """A cell and a digit that breaks no rule now, but is not the solution's."""
    solution = solve(env.scale, env.puzzle)
    return next(
        (cell, digit)
        for cell, held in enumerate(env.cells)
        for digit in "123456789"[: env.scale]
        if held == "." and digit != solution[cell] and fits(env.scale, "".join(env.cells), cell, digit)
    )


def right(env):
    """An empty cell and its digit."""
    solution = solve(env.scale, env.puzzle)
    return next((cell, solution[cell]) for cell, held in enumerate(env.cells) if held == ".")


@pytest.mark.parametrize("form", ["{} {} {}", "{}, {}, {}", "{},{},{}", "{}{}{}", "  {}   {} {} "])
def test_every_way_to_write_a_move_is_the_same_move(form):
    env = dealt()
    cell, digit = right(env)
    step = write(env, cell, digit, form)
    assert step.info == {}
    assert env.cells[cell] == digit
    row, column = divmod(cell, 4)
    assert step.obs == f"Row {row + 1}, column {column + 1} holds {digit} now:\n{env.board()}"


@pytest.mark.parametrize("text", ["1 2", "1 2 3 4", "12", "1 2 x", "row 1"])
def test_what_is_no_row_column_and_digit_is_unreadable(text):
    assert dealt().step(f"\\boxed{{{text}}}").info["stop"] == "unreadable"


def test_a_lawful_digit_is_placed_even_if_the_solution_has_another():
    for seed in range(20):
        env = dealt()
        env.reset(seed=seed)
        cell, digit = lawful_wrong(env)
        step = write(env, cell, digit)
        assert step.info == {}
        assert step.reward == pytest.approx(0.5 / 10)  # what any digit in an empty cell earns: no hint
        assert env.cells[cell] == digit


def test_an_own_digit_can_be_overwritten_and_erased_and_the_game_still_won():
    env = dealt()
    cell, digit = lawful_wrong(env)
    write(env, cell, digit)
    assert write(env, cell, "0").info == {}
    assert env.cells[cell] == "."
    write(env, cell, digit)
    assert write(env, cell, solve(4, env.puzzle)[cell]).info == {}
    done = False
    while not done:
        step = env.step(env.solve())
        done = step.done
    assert step.info["success"]


def test_givens_stay():
    env = dealt()
    given = next(cell for cell, held in enumerate(env.puzzle) if held != ".")
    for digit in "01234":
        step = write(env, given, digit)
        assert step.info == {"legal": False}
        assert f"is given and stays {env.puzzle[given]}" in step.obs
    assert "".join(env.cells) == env.puzzle


def test_refusals_name_the_rule_that_is_broken():
    env = dealt(clues=50, scale=9)
    said = set()
    for cell in [c for c, held in enumerate(env.puzzle) if held == "."]:
        for digit in "123456789":
            if not fits(9, env.puzzle, cell, digit):
                env.reset(seed=0)
                step = write(env, cell, digit)
                assert step.info == {"legal": False}
                unit = step.obs.split()[1]
                said.add(unit)
                row, column = divmod(cell, 9)
                peers = {
                    "row": [9 * row + k for k in range(9)],
                    "column": [9 * k + column for k in range(9)],
                    "box": [9 * r + c for r in range(row // 3 * 3, row // 3 * 3 + 3)
                            for c in range(column // 3 * 3, column // 3 * 3 + 3)],
                }  # fmt: skip
                assert any(env.puzzle[peer] == digit for peer in peers[unit])
    assert said == {"row", "column", "box"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0 1 1", "Rows and columns go from 1 to 4."),
        ("1 5 1", "Rows and columns go from 1 to 4."),
        ("99 1 1", "Rows and columns go from 1 to 4."),
        ("1 1 5", "Digits go from 1 to 4; 0 empties a cell."),
    ],
)
def test_a_move_off_the_grid_is_explained_and_costs_the_turn(text, why):
    env = dealt()
    step = env.step(f"\\boxed{{{text}}}")
    assert step.obs == f"{why} The grid is as before:\n{env.board()}"
    assert (step.reward, step.info, env.turn) == (0.0, {"legal": False}, 1)


def test_writing_what_is_there_or_erasing_nothing_is_refused():
    env = dealt()
    cell, digit = right(env)
    assert "is empty already" in write(env, cell, "0").obs
    write(env, cell, digit)
    assert f"holds {digit} already" in write(env, cell, digit).obs


def test_placing_and_erasing_earns_nothing():
    env = dealt()
    cell, digit = right(env)
    first = write(env, cell, digit).reward
    assert first == pytest.approx(0.5 / 10)
    loop = [write(env, cell, d).reward for d in ("0", digit, "0", digit) * 12]
    assert math.fsum(loop) == pytest.approx(0.0, abs=1e-12)
    assert max(loop) <= first + 1e-12


def test_the_expert_recovers_from_any_lawful_play():
    env = Sudoku(clues=30, max_turns=1000)
    for seed in range(10):
        env.reset(seed=seed)
        for _ in range(60):
            if env.step(env.sample_random_action()).done:
                break
        else:
            step = None
            while step is None or not step.done:
                step = env.step(env.solve())
            assert step.info["success"]


def test_the_board_sets_its_boxes_apart():
    env = dealt()
    env.cells = list("1234341221434321")
    assert env.board() == "1 2 | 3 4\n3 4 | 1 2\n----+----\n2 1 | 4 3\n4 3 | 2 1"


def test_the_prompt_speaks_of_the_grid_at_hand():
    assert "4x4 grid" in dealt().reset(seed=0).obs
    assert "2x2 box" in dealt().reset(seed=0).obs
    assert "3x3 box" in dealt(scale=9, clues=50).reset(seed=0).obs


def test_the_generators_of_the_standard_library_deal_puzzles_too():
    assert make_puzzle(9, 40, Random(1)).count(".") == 41


@pytest.mark.parametrize(
    ("keywords", "why"),
    [
        ({"scale": 16}, "scale is 16"),
        ({"clues": 23}, "clues is 23; accepted: a whole number from 24 to 80"),
        ({"clues": 81}, "clues is 81"),
        ({"clues": 99}, "clues is 99"),
        ({"clues": 50, "max_turns": 30}, "31 empty cells"),
    ],
)
def test_puzzles_that_cannot_be_are_refused(keywords, why):
    with pytest.raises((BadArgument, UserWarning), match=why):
        Sudoku(**keywords)
