import pickle
from collections import Counter
from itertools import islice, pairwise

import pytest

from gem.errors import BadArgument
from gem.tasks.order import Order, Walk, index_at
from gem.tasks.sources import load


def tasks(n):
    return load([{"problem": f"number {i}", "answer": str(i)} for i in range(n)])


def ids(walk):
    return [int(task.id) for task in walk]


@pytest.mark.parametrize("n", [1, 2, 3, 7, 64, 65, 1000])
def test_an_order_is_a_permutation_and_a_pure_function_of_its_arguments(n):
    order = Order(n, seed=5, epoch=3)
    assert sorted(order) == list(range(n))
    assert list(order) == list(Order(n, 5, 3))
    assert order[-1] == order[n - 1]
    assert order[:3] == list(order)[:3]
    with pytest.raises(IndexError):
        order[n]


def test_seeds_and_epochs_give_different_orders():
    orders = {tuple(Order(100, seed, epoch)) for seed in range(10) for epoch in range(10)}
    assert len(orders) == 100


def test_every_permutation_of_three_comes_as_often():
    found = Counter(tuple(Order(3, seed)) for seed in range(6000))
    assert len(found) == 6
    assert all(850 < count < 1150 for count in found.values())


def test_neighbours_do_not_stay_neighbours():
    order = list(Order(1000, seed=0))
    assert sum(abs(a - b) == 1 for a, b in pairwise(order)) < 12  # 2 are to be expected


def test_an_entry_of_a_huge_order_is_worked_out_alone():
    order = Order(10**15, seed=1)
    assert 0 <= order[123_456_789] < 10**15
    assert order[0] != order[1]


@pytest.mark.parametrize(("n", "of"), [(10, 1), (10, 3), (7, 4), (3, 5), (100, 8)])
def test_workers_together_see_every_task_once_per_epoch(n, of):
    seen = Counter(i for rank in range(of) for i in ids(Walk(tasks(n), 9, rank, of, epochs=4)))
    assert seen == Counter(dict.fromkeys(range(n), 4))


def test_a_walk_goes_on_from_its_position_and_crosses_epochs():
    whole = ids(islice(Walk(tasks(5), seed=2, rank=1, of=3), 20))
    walk = Walk(tasks(5), seed=2, rank=1, of=3)
    first = ids(islice(walk, 7))
    resumed = Walk(tasks(5), seed=2, rank=1, of=3, position=walk.position)
    assert first + ids(islice(resumed, 13)) == whole
    assert ids(islice(pickle.loads(pickle.dumps(walk)), 13)) == whole[7:]


def test_a_position_means_the_same_task_everywhere():
    ten = tasks(10)
    walked = ids(islice(Walk(ten, seed=4), 30))
    assert walked == [index_at(ten, 4, position) for position in range(30)]
    assert walked[:10] != walked[10:20]  # each epoch is drawn anew


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"rank": 3, "of": 3}, "rank is 3 of 3 workers"),
        ({"rank": -1, "of": 3}, "rank is -1"),
        ({"rank": 1, "of": 3, "position": 2}, "worker 1 of 3 is only ever at 1, 4, ..."),
        ({"position": -3}, "position is -3"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_a_walk_that_cannot_be_is_refused(keywords, said):
    with pytest.raises(BadArgument, match=said):
        Walk(tasks(4), **keywords)
