import math
from decimal import Decimal
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from gem.graders.sql import TOLERANCE, same_rows, same_state, same_value

VALUES = st.one_of(
    st.none(), st.text(max_size=4), st.integers(), st.floats(), st.booleans(), st.binary(max_size=3)
)
PLAIN = st.one_of(st.none(), st.text(max_size=4), st.integers(-50, 50), st.floats(-50, 50))
ROWS = st.lists(st.tuples(PLAIN, PLAIN, PLAIN), max_size=8)


@given(st.data(), ROWS)
def test_the_order_of_rows_counts_only_where_it_was_asked(data, rows):
    shuffled = data.draw(st.permutations(rows))
    assert same_rows(shuffled, rows) == ""
    as_listed = all(all(map(same_value, a, b)) for a, b in zip(shuffled, rows, strict=True))
    assert (same_rows(shuffled, rows, ordered=True) == "") == as_listed


@given(st.data(), ROWS)
def test_numbers_that_rounding_moved_are_the_same_in_any_order(data, rows):
    moved = [
        tuple(
            v + data.draw(st.floats(-TOLERANCE / 4, TOLERANCE / 4)) if isinstance(v, float) else v
            for v in row
        )
        for row in rows
    ]
    assert same_rows(data.draw(st.permutations(moved)), rows) == ""
    assert same_rows(moved, rows, ordered=True) == ""


def test_rounding_that_turns_the_order_of_near_rows_pairs_no_wrong_ones():
    assert same_rows([(1.0 + 1e-9, 9), (1.0, 5)], [(1.0, 9), (1.0 + 1e-9, 5)]) == ""


@given(st.data(), ROWS.filter(bool))
def test_rows_count_as_often_as_they_occur(data, rows):
    again = [*rows, data.draw(st.sampled_from(rows))]
    assert same_rows(again, rows)
    assert same_rows(again, [*rows, data.draw(st.sampled_from(rows))]) == "" or len(set(rows)) > 1
    assert same_rows([(1,), (1,), (2,)], [(1,), (2,), (2,)])


@given(st.data(), ROWS.filter(bool))
def test_one_changed_value_is_found(data, rows):
    at, column = data.draw(st.integers(0, len(rows) - 1)), data.draw(st.integers(0, 2))
    changed = [list(row) for row in rows]
    changed[at][column] = data.draw(st.sampled_from(["another", 99, 99.5]))
    assert same_rows(changed, rows)
    assert same_rows(changed, rows, ordered=True)


@given(st.lists(st.lists(VALUES, min_size=2, max_size=2), max_size=5), st.booleans())
def test_whatever_the_values_nothing_is_raised(rows, ordered):
    kept = [row for row in rows if not any(isinstance(v, float) and math.isnan(v) for v in row)]
    assert same_rows(kept, kept, ordered) == ""
    same_rows(rows, kept, ordered)


def test_kinds_of_values_are_told_apart():
    assert same_value(1, 1.0)
    assert same_value(10**400, 10**400)
    for one, other in (
        (1, "1"),
        (None, 0),
        (None, ""),
        (True, 1),
        (1, 1.001),
        ("a", "A"),
        ("a", "a "),
        (b"a", "a"),
        (10**400, 1.0),
        (math.nan, math.nan),
        (math.inf, -math.inf),
        (math.inf, "inf"),
    ):
        assert not same_value(one, other), (one, other)
        assert same_rows([(one,)], [(other,)]), (one, other)


def test_whole_numbers_and_decimals_are_exact():
    for one, other in (
        (10_000_001, 10_000_002),
        (1_700_000_000, 1_700_000_900),
        (10_000_001, 10_000_002.0),
        (10_000_001.0, 10_000_002.0),
        (2_460_000.50, 2_460_000.51),  # Julian days, 15 minutes apart
        (Decimal("1.0000001"), Decimal("1.0000002")),
        (Decimal("1.5"), 1),
    ):
        for ordered in (True, False):
            assert same_rows([(one, "x")], [(other, "x")], ordered), (one, other)
    for one, other in (
        (Decimal("1.50"), Decimal("1.5")),
        (Decimal("2"), 2),
        (Decimal("0.3"), 0.1 + 0.2),
        (0.1 + 0.2, 0.3),
        (12_345_678.0, 12_345_678.000000002),
        (2.0**60, 2.0**60 + 256),
    ):
        for ordered in (True, False):
            assert same_rows([(one, "x")], [(other, "x")], ordered) == "", (one, other)


def test_closeness_is_not_passed_on_from_row_to_row():
    step = 0.9 * TOLERANCE
    chain = [(k * step,) for k in range(4)]
    assert same_rows(chain, [(0.0,)] * 4)
    assert same_rows([(0.0,), (3 * step,)], [(0.0,), (step,)])
    assert same_rows([(step,), (2 * step,)], [(0.0,), (step,)]) == ""


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 2), min_size=1, max_size=4), st.data())
def test_rows_are_the_same_where_some_order_pairs_them(steps, data):
    rows = [tuple(0.6 * TOLERANCE * n for n in row) for row in steps]
    others = [tuple(0.6 * TOLERANCE * data.draw(st.integers(0, 4)) for _ in row) for row in rows]
    some = any(same_rows(order, others, ordered=True) == "" for order in permutations(rows))
    assert (same_rows(rows, others) == "") is some


def test_many_rows_of_sums_are_the_same():
    rows = [(k, k / 3) for k in range(2000)]
    assert same_rows([(k, x + 1e-12) for k, x in rows[::-1]], rows) == ""
    assert same_rows([(k, x + 1e-5) for k, x in rows[::-1]], rows)


def test_shapes_are_told_apart():
    assert same_rows([], []) == ""
    assert "0 rows" in same_rows([], [(1,)])
    assert "2 columns" in same_rows([(1, 2)], [(1,)])


def test_a_state_is_all_its_tables():
    state = {"a": [(1, "x"), (2, "y")], "b": []}
    assert same_state({"a": [(2, "y"), (1, "x")], "b": []}, state) == ""
    assert "table a" in same_state({"a": [(1, "x")], "b": []}, state)
    assert "table b" in same_state({**state, "b": [(1,)]}, state)
    assert "tables are" in same_state({**state, "c": []}, state)
