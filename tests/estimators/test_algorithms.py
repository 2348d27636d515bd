"""The table of algorithms, and algorithms of one's own: their checks, without a trainer."""

import math
from dataclasses import replace

import pytest
from records import episode, paid, turn

from gem.errors import BadArgument
from gem.estimators import ALGORITHMS, Algorithm, compare_episodes, find_algorithm, turn_advantages
from gem.estimators.algorithms import make_view

OWN = Algorithm("own", lambda view: view.returns)
EPISODES = [
    episode(*paid(1.0, 2.0), group="a"),
    episode(*paid(4.0), group="a"),
    episode(group="b"),
]
VIEW = make_view(EPISODES, "agent", 0.5)


def test_a_view_is_the_episodes_in_plain_numbers():
    assert VIEW.rewards == [[1.0, 2.0], [4.0], []]
    assert VIEW.returns == [[2.0, 2.0], [4.0], []]
    assert VIEW.groups == ["a", "a", "b"]
    assert VIEW.starts == [0, 0, 0]
    assert make_view(EPISODES, "agent", 1.0, penalties=[[1.0, 0.0], [0.5], []]).rewards[:2] == [
        [0.0, 2.0],
        [3.5],
    ]


def test_a_view_has_the_tokens_of_each_turn():
    """OPO's baseline weighs each episode's return by its tokens (arXiv 2505.23585)."""

    def advantages(view):
        lengths, scores = [sum(each) for each in view.tokens], [each[0] for each in view.returns]
        baseline = math.fsum(n * score for n, score in zip(lengths, scores, strict=True)) / sum(lengths)
        return [[score - baseline] * len(each) for score, each in zip(scores, view.returns, strict=True)]

    long, short = turn((1,), (2, 3, 4), logprobs=(-1.0,) * 3), turn((1,), (2,), logprobs=(-1.0,))
    long.reward, short.reward = 1.0, 0.0
    view = make_view([episode(long), episode(short)], "agent", 1.0)
    assert view.tokens == [[3], [1]]
    assert VIEW.tokens == [[0, 0], [0], []]
    assert Algorithm("opo", advantages).compute_advantages(view) == [[0.25], [-0.75]]


def test_every_algorithm_of_the_table_says_what_it_is_and_where_it_comes_from():
    for name, each in ALGORITHMS.items():
        assert each.name == name
        assert each.summary
        assert each.source


def test_advantages_of_whole_episodes_leave_out_episodes_without_a_turn():
    given = {}

    def compare(scores, groups):
        given.update(scores=scores, groups=groups)
        return [1.0, -1.0]

    assert compare_episodes(VIEW, compare) == [[1.0, 1.0], [-1.0], []]
    assert given == {"scores": [2.0, 4.0], "groups": ["a", "a"]}


def test_an_algorithm_of_ones_own_gives_advantages_where_its_name_would():
    doubled = Algorithm("doubled", lambda view: [[2 * value for value in turns] for turns in view.returns])
    assert turn_advantages(EPISODES, doubled, 0.5) == [[4.0, 4.0], [8.0], []]
    with pytest.raises(BadArgument, match=r"accepted: reinforce, .*, or an Algorithm"):
        turn_advantages(EPISODES, replace(doubled, critic=True), 0.5)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, r"advantages\(view\) returned None; accepted: for each of the 3 episodes a list"),
        ([1.0, 2.0, 3.0], r"returned \[1.0, 2.0, 3.0\]; accepted: for each of the 3 episodes a list"),
        ([["a", "b"], ["c"], []], "accepted: for each of the 3 episodes"),
        ([[1.0, 2.0], [3.0]], "returned 2 lists for 3 episodes"),
        ([[1.0], [3.0], []], "returned 1 numbers for episode 0, which has 2 turns"),
        ([[1.0, 2.0], [math.nan], []], "returned nan for episode 1, turn 0"),
        ([[1.0, -math.inf], [1.0], []], "returned -inf for episode 0, turn 1"),
    ],
)
def test_advantages_of_another_shape_are_refused(returned, message):
    with pytest.raises(BadArgument, match=f"algorithm own: .*{message}"):
        replace(OWN, advantages=lambda view: returned).compute_advantages(VIEW)


def test_an_error_of_an_algorithm_names_its_line():
    with pytest.raises(
        BadArgument, match=r"own: advantages\(view\) raised ZeroDivisionError: .*test_algorithms.py"
    ):
        replace(OWN, advantages=lambda view: 1 / 0).compute_advantages(VIEW)


def test_selected_turns_are_checked():
    assert OWN.select_turns(VIEW) is None
    chosen = replace(OWN, select=lambda view: [[True, 0], [1], []]).select_turns(VIEW)
    assert chosen == [[True, False], [True], []]
    with pytest.raises(BadArgument, match=r"own: select\(view\) returned 1 lists for 3 episodes"):
        replace(OWN, select=lambda view: [[True]]).select_turns(VIEW)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "a-b"}, "name is 'a-b'; accepted: letters"),
        ({"advantages": [1.0]}, r"own: advantages is \[1.0\]; accepted: a function"),
        ({"loss": 3}, "own: loss is 3; accepted: a function"),
        ({"group": "tasks"}, "own: group is 'tasks'; accepted: none, task, turn"),
        ({"seats": 2}, "own: seats is 2; accepted: any, one"),
        ({"defaults": 1}, "own: defaults are 1; accepted: a dict"),
    ],
)
def test_fields_that_make_no_algorithm_are_refused(fields, message):
    with pytest.raises(BadArgument, match=message):
        replace(OWN, **fields)


def test_an_algorithm_is_found_in_the_table_in_a_module_and_in_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("GEM_CACHE", str(tmp_path / "cache"))
    assert find_algorithm("ppo") is ALGORITHMS["ppo"]
    file = tmp_path / "mine.py"
    file.write_text(
        "from gem.estimators import Algorithm, rebn\n"
        "OTHER = 3\n"
        "MINE = Algorithm('mine', lambda view: rebn(view.returns))\n"
    )
    assert find_algorithm(f"{file}:MINE").name == "mine"
    with pytest.raises(BadArgument, match=r"mine.py:OTHER', 3; accepted: a gem.estimators.Algorithm"):
        find_algorithm(f"{file}:OTHER")
    with pytest.raises(BadArgument, match="Did you mean 'rloo'"):
        find_algorithm("rlo")
    with pytest.raises(BadArgument, match="a program gave as an object; give it again"):
        find_algorithm("value:somebody")
