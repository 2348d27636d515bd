import json
import math
from dataclasses import replace

import numpy as np
import pytest

from gem.agents import RandomAgent, SolverAgent
from gem.codec import task_key
from gem.errors import BadArgument
from gem.evals import Outcome, compare, evaluate, read_run
from gem.evals.outcomes import advise_on_seats, group_environments, share_names
from gem.evals.power import floors, plan_noise, suites
from gem.record import Episode, Origin, RunInfo, SeatEnd, StopReason, Turn, Verdict
from gem.rollout import EpisodeStore
from gem.specs import TaskRef, WrapperRef
from gem.statistics import (
    combined_rate,
    mcnemar,
    paired_difference,
    score_difference,
    smallest_difference,
    smallest_rate_difference,
    wilson,
)
from gem.tasks.sources import digest_of

ENV = "test:X"


def run(*won, env=ENV, sample=0, first=0):
    """Outcomes of tasks one after the other: won, lost, or without verdict (None)."""
    return [
        Outcome(env, f"{env} {first + i}", sample, 0, each, None if each is None else float(each))
        for i, each in enumerate(won)
    ]


def lots(won, of, first=0, env=ENV):
    return run(*[True] * won, *[False] * (of - won), first=first, env=env)


def test_pairs_are_judged_by_mcnemars_test_and_the_score_interval():
    a, b = lots(10, 40), run(*[True] * 5, *[False] * 5, *[True] * 20, *[False] * 10)
    found = compare(a, b)
    (row,) = found.rows
    assert (row.tasks, row.pairs, row.of, row.lost, row.won) == (40, 40, 40, 5, 20)
    assert row.p == row.corrected == mcnemar(5, 20)
    assert row.difference == score_difference(
        [int(5 <= i < 10) for i in range(40)], [int(10 <= i < 30) for i in range(40)], [1] * 40
    )
    assert (row.a.mean, row.b.mean, row.difference.mean) == (0.25, 0.625, 0.375)
    assert row.better == "B"
    assert row.headline == "B is better, by 37.5 points"
    assert (found.overall.env, found.overall.difference) == ("all", row.difference)


def test_exchanged_runs_give_the_mirrored_answer():
    a, b = lots(10, 40), lots(25, 40)
    there, back = compare(a, b).rows[0], compare(b, a).rows[0]
    assert (there.better, back.better) == ("B", "A")
    assert back.headline == "A is better, by 37.5 points"
    assert back.difference[1:3] == pytest.approx((-there.difference.high, -there.difference.low))


def test_where_interval_and_test_disagree_it_says_so():
    row = compare(lots(5, 10), lots(0, 10)).rows[0]
    assert (row.better, row.difference.high < 0) == (None, True)
    assert row.headline == "no difference shown: the interval does not contain 0, but p is 0.062"


def test_where_nothing_is_shown_it_says_what_could_have_been_seen():
    row = compare(lots(20, 50), lots(22, 50)).rows[0]
    assert row.better is None
    assert (
        row.headline == f"no difference shown; smallest that could be seen: {100 * row.smallest:.1f} points"
    )
    assert 0.1 < row.smallest < 0.2


def test_samples_of_a_task_are_one_task():
    a = [each for sample in range(4) for each in run(True, False, False, False, sample=sample)]
    b = [each for sample in range(4) for each in run(True, True, True, False, sample=sample)]
    row = compare(a, b).rows[0]
    assert (row.tasks, row.pairs, row.won) == (4, 16, 8)
    assert row.p == pytest.approx(0.5)  # of two tasks that differ, not of eight pairs
    assert row.better is None


def test_what_lacks_a_verdict_enters_no_figure_and_bounds_the_others():
    a, b = run(True, False, None, True, False), run(True, True, True, None, False)
    row = compare(a, b, min_coverage=0.5).rows[0]
    assert (row.pairs, row.of, row.coverage) == (3, 5, 0.6)
    assert (row.a_scored, row.b_scored) == (4, 4)
    assert row.difference.mean == pytest.approx(1 / 3)
    # Third pair: A may have won or lost, B won. Fourth: A won, B may have.
    assert (row.at_least, row.at_most) == pytest.approx(((1 + 0 - 1) / 5, (1 + 1 + 0) / 5))


def test_too_little_coverage_withholds_the_headline_and_says_why():
    a, b = [*lots(2, 20)], [*run(*[None] * 2, *[True] * 16), *run(True, first=25)]
    found = compare(a, b)
    (row,) = found.rows
    assert row.headline is row.better is None
    assert row.withheld == (
        "no headline: coverage is 76.2%, 16 of 21 pairs (success not known: 2 of B; "
        "in one run alone: 2 of A, 1 of B); 95% is asked for"
    )
    assert found.overall.withheld == row.withheld
    assert compare(a, b, min_coverage=0.7).rows[0].better == "B"


def test_over_environments_each_counts_alike_and_p_is_corrected():
    envs = {"test:X": (2, 10, 10), "test:Y": (30, 45, 90), "test:Z": (5, 5, 20)}
    a = [o for env, (won, _, of) in envs.items() for o in lots(won, of, env=env)]
    b = [o for env, (_, won, of) in envs.items() for o in lots(won, of, env=env)]
    found = compare(a, b)
    assert [row.env for row in found.rows] == [*envs]
    assert found.overall.difference.mean == pytest.approx((0.8 + 15 / 90 + 0) / 3)
    assert (found.overall.tasks, found.overall.pairs) == (120, 120)
    assert (found.overall.better, found.overall.p) == ("B", None)
    x, y, z = found.rows
    assert (x.corrected, y.corrected, z.corrected) == pytest.approx((2 * x.p, 3 * y.p, 1.0))


def test_of_many_environments_one_that_stands_out_by_chance_is_not_shown():
    a, b = [], []
    for i in range(20):
        env = f"test:E{i}"
        a += lots(0, 30, env=env)
        b += lots(6 if i == 0 else 0, 30, env=env)
    found = compare(a, b)
    assert found.rows[0].p == pytest.approx(0.03125)
    assert found.rows[0].corrected == pytest.approx(0.625)
    assert found.rows[0].difference.low > 0
    assert found.rows[0].better is None


def test_an_environment_with_little_coverage_withholds_the_mean_too():
    a = [*lots(5, 20), *run(*[None] * 10, *[True] * 10, env="test:Y")]
    b = [*lots(15, 20), *lots(20, 20, env="test:Y")]
    found = compare(a, b)
    assert found.rows[0].better == "B"
    assert found.overall.withheld == "no headline: coverage is too low on test:Y"
    assert "the comparison is not fair" in found.warnings[0]


def test_prompts_of_the_same_rows_are_no_more_evidence_than_one_of_them():
    a = lots(11, 30)
    b = run(*[True] * 7, *[False] * 4, *[True] * 9, *[False] * 10)

    def prompts(outcomes, number, shared=True):
        return [
            replace(each, env=f"prompt {p}", task=f"{p} {each.task}", source=each.task if shared else "")
            for p in range(number)
            for each in outcomes
        ]

    one, many, apart = (
        compare(prompts(a, number, shared), prompts(b, number, shared)).overall
        for number, shared in ((1, True), (8, True), (8, False))
    )
    assert many.difference[:3] == pytest.approx(one.difference[:3])
    assert many.a[:3] == pytest.approx(one.a[:3])
    assert (many.tasks, many.pairs, many.better, one.better) == (30, 240, None, None)
    assert (apart.tasks, apart.better) == (240, "B")
    alike, distinct = (
        next(floor for floor in floors(suites([prompts(a, 8, shared)])) if floor.env == "all")
        for shared in (True, False)
    )
    own = floors(suites([a]))[0]
    assert (alike.tasks, alike.unpaired) == (30, pytest.approx(own.unpaired, abs=2e-4))
    assert distinct.unpaired < own.unpaired / 2.5


def test_over_environments_there_is_no_p_that_few_tasks_could_not_reach():
    a, b = ([*lots(won, 3), *lots(3, 3, env="test:Y")] for won in (3, 2))
    found = compare(a, b)
    assert [row.smallest for row in found.rows] == [None, None]
    assert 0.3 < found.overall.smallest < 1


def test_environments_share_tasks_by_their_id_and_seed_or_their_rows(tmp_path):
    rows = {"data": "q.csv", "digest": "0" * 16}
    made = [
        TaskRef(ENV, {"size": 3}, seed=1),
        TaskRef(ENV, {"size": 4}, (WrapperRef("python_tool"),), seed=1),
        TaskRef(ENV, {"size": 5}, seed=2),
        TaskRef("test:Other", seed=1),
        TaskRef("data:text", {**rows, "prompt": "a"}, seed=1),
        TaskRef("data:math", {**rows, "prompt": "b", "digest": "1" * 16}, seed=1),
        TaskRef("data:text", {**rows, "split": "test"}, seed=1),
        TaskRef("agentdojo:banking", seed=1),
        TaskRef("agentdojo:banking-attacked", seed=1),
        TaskRef("tau2:retail", seed=1),
        TaskRef("tau2:retail-scripted", seed=1),
        TaskRef("bfcl:multi_turn_base", seed=1),
        TaskRef("bfcl:multi_turn_miss_param", seed=1),
        TaskRef("multi:ConnectFour-v0", seed=1),
        TaskRef("multi:ConnectFour-v0-vs-random", seed=1),
    ]
    episodes = [episode(i, task=task) for i, task in enumerate(made)]
    outcomes = stored(tmp_path / "episodes.jsonl", *episodes).outcomes
    assert len({each.env for each in outcomes}) == len(made)
    envs = [each.env for each in outcomes]
    assert group_environments(outcomes, envs) == [0, 0, 2, 3, 4, 4, 6, 7, 7, 9, 9, 11, 11, 13, 13]


def test_environments_share_tasks_where_their_pairs_do():
    a, b = (
        [
            replace(each, source=each.task.removeprefix(each.env))
            for env, first in places.items()
            for each in lots(10, 20, env=env, first=first)
        ]
        for places in ({"test:X": 0, "test:Y": 10}, {"test:X": 0, "test:Y": 20})
    )
    there, back = (compare(*runs, min_coverage=0).overall for runs in ((a, b), (b, a)))
    assert (there.tasks, there.difference.clusters) == (30, 30)  # Y pairs in what X does not have
    assert (back.tasks, back.difference.clusters) == (30, 30)
    assert back.difference.high == pytest.approx(-there.difference.low)
    assert floors(suites([a, b]))[-1].tasks == floors(suites([b, a]))[-1].tasks == 30


def test_what_one_run_alone_holds_is_named_and_withholds_the_mean():
    a, b = [*lots(5, 40), *lots(5, 5, env="test:Z")], lots(35, 40)
    found = compare(a, b)
    assert found.alone == ("test:Z",)
    assert (found.rows[0].better, found.overall.better, found.overall.of) == ("B", None, 40)
    assert (found.overall.headline, found.overall.withheld) == (None, "no headline: B lacks test:Z")
    two = [*a, *lots(9, 9, env="test:Y")], [*b, *lots(9, 9, env="test:Y"), *lots(9, 9, env="test:W")]
    assert compare(*two).overall.withheld == "no headline: A lacks test:W; B lacks test:Z"


def test_returns_are_compared_by_students_t():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2, 30)).tolist()
    a, b = ([Outcome(ENV, str(i), 0, 0, None, value) for i, value in enumerate(side)] for side in values)
    row = compare(a, b, metric="return").rows[0]
    assert row.difference == paired_difference(*values)
    assert (row.lost, row.at_least) == (None, None)
    assert row.headline.startswith("no difference shown; smallest that could be seen: 0.")
    with pytest.raises(BadArgument, match=r"no pair has a success on both sides .*--metric return"):
        compare(a, b)


def test_returns_that_have_no_mean_lower_the_coverage():
    a = [
        Outcome(ENV, str(i), 0, 0, None, value)
        for i, value in enumerate([math.inf, math.nan, 1e200, 2.0, 1.0])
    ]
    b = [Outcome(ENV, str(i), 0, 0, None, 1.0) for i in range(5)]
    row = compare(a, b, metric="return").rows[0]
    assert (row.pairs, row.difference.mean) == (2, -0.5)
    assert row.withheld == (
        "no headline: coverage is 40.0%, 2 of 5 pairs (return not known: 3 of A); 95% is asked for"
    )


@pytest.mark.parametrize("metric", ["success", "return"])
def test_one_task_shows_nothing(metric):
    row = compare(run(False), run(True), metric=metric).rows[0]
    assert row.better is row.smallest is None
    assert row.headline == "no difference shown, and none could be: too few tasks (1)"


def test_where_nothing_pairs_it_says_what_each_holds():
    with pytest.raises(BadArgument, match=r"their tasks differ.*A holds 3 samples of 3 tasks of test:X, as"):
        compare(lots(1, 3), lots(1, 3, first=10))
    with pytest.raises(BadArgument, match=r"share no environment.*B holds 3 samples of 3 tasks of test:Y"):
        compare(lots(1, 3), lots(1, 3, env="test:Y"))
    with pytest.raises(BadArgument, match="B holds nothing"):
        compare(lots(1, 3), [])


def test_wrong_arguments_are_refused():
    with pytest.raises(BadArgument, match="metric is 'reward'; accepted: success, return"):
        compare(lots(1, 3), lots(1, 3), metric="reward")
    for share in (-0.1, 95, math.nan):
        with pytest.raises(BadArgument, match="min_coverage"):
            compare(lots(1, 3), lots(1, 3), min_coverage=share)


def test_a_comparison_is_plain_json():
    found = compare([*run(False), *lots(2, 9, env="test:Y")], [*run(True), *lots(5, 9, env="test:Y")])
    plain = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert plain["environments"][1]["difference"]["mean"] == pytest.approx(1 / 3)
    assert plain["overall"]["bootstrap"]["low"] is None  # unbounded
    assert plain["overall"]["coverage"] == 1.0


def test_what_changed_is_named_with_what_b_lost_first():
    a = [*run(True, True, False, None), *run(True, env="test:Y")]
    b = [*run(True, False, True, True), *run(False, env="test:Y")]
    found = compare(a, b, min_coverage=0)
    assert [(each.env, each.a, each.b) for each in found.changes] == [
        ("test:X", 1, 0),
        ("test:Y", 1, 0),
        ("test:X", 0, 1),
    ]
    assert found.to_json()["changes"][0]["env"] == "test:X"
    assert compare(a, a, min_coverage=0).changes == ()


# -- from stores


RUN = RunInfo("run", "OpenAIAgent", "a-model")


def episode(seed, stop=StopReason.SOLVED, of=RUN, **changes):
    task = changes.pop("task", None) or TaskRef("test:X", {"n": 3}, (WrapperRef("w", {"k": 1}),), seed)
    scored = stop is not StopReason.ERROR
    changes.setdefault("verdict", Verdict.SCORED if scored else Verdict.NONE)
    changes.setdefault("job", f"job{seed}")
    turns = [Turn("agent", "five", "5", reward=0.5)]
    return Episode(
        task, of, turns=turns, stop=stop, ends={"agent": SeatEnd(stop, terminated=True)}, **changes
    )


def stored(path, *episodes):
    with EpisodeStore(path) as store:
        for each in episodes:
            store.append(each)
    return read_run(path)


def test_a_store_tells_of_each_job_how_its_last_attempt_with_a_verdict_ended(tmp_path):
    found = stored(
        tmp_path / "episodes.jsonl",
        episode(1, StopReason.ERROR),
        episode(1, StopReason.FAILED, attempt=1),
        episode(2, StopReason.ERROR),
        episode(3, sample=1),
    )
    assert [(o.sample, o.success, o.reward) for o in found.outcomes] == [
        (0, False, 0.5),
        (0, None, None),
        (1, True, 0.5),
    ]
    assert (found.agent, found.damaged) == ("OpenAIAgent a-model", 0)
    assert found.outcomes[0].task == task_key(episode(1).task)


def test_a_task_is_environment_keywords_wrappers_and_seed_and_not_who_played_it():
    one = TaskRef("test:X", {"n": 3, "m": [1, 2.5, None]}, (WrapperRef("w", {"k": 1}),), 7, "a:B", ("x",))
    same = TaskRef("test:X", {"m": [1, 2.5, None], "n": 3}, (WrapperRef("w", {"k": 1}),), 7)
    assert task_key(one) == task_key(same)
    others = [
        TaskRef("test:Y", one.kwargs, one.wrappers, 7),
        TaskRef("test:X", {"n": 4}, one.wrappers, 7),
        TaskRef("test:X", one.kwargs, (), 7),
        TaskRef("test:X", one.kwargs, one.wrappers, 8),
        TaskRef("test:X", one.kwargs, one.wrappers),
        TaskRef("test:X", {"n": math.nan, "m": 2**80, "s": "\ud800"}, (), 2**70),
    ]
    assert len({task_key(each) for each in (one, *others)}) == 7


def test_an_environment_is_named_with_its_tools_and_wrappers(tmp_path):
    around = tuple(map(WrapperRef, ("python_tool", "my_tool", "flat")))
    tasks = TaskRef("test:X", {}, around, 1), TaskRef("test:X", {}, (), 1)
    a, b = (stored(tmp_path / str(n), episode(1, task=task)) for n, task in enumerate(tasks))
    assert [run.outcomes[0].env for run in (a, b)] == ["test:X+python+my_tool+flat", "test:X"]
    assert [row.env for row in compare(a.outcomes, a.outcomes, min_coverage=0).rows] == [
        "test:X+python+my_tool+flat"
    ]
    with pytest.raises(BadArgument, match=r"share no environment.*test:X\+python.*test:X,"):
        compare(a.outcomes, b.outcomes)


def test_runs_pair_whoever_played_and_under_whatever_job_and_run(tmp_path):
    other = RunInfo("other", "RandomAgent")
    a = stored(tmp_path / "a.jsonl", *(episode(seed) for seed in range(4)))
    b = stored(
        tmp_path / "b.jsonl", *(episode(seed, StopReason.FAILED, other, job=f"j{seed}") for seed in range(4))
    )
    assert compare(a.outcomes, b.outcomes).rows[0].lost == 4


@pytest.mark.parametrize(
    ("spec", "one", "other", "same"),
    [
        ("data:text", {"data": "q.csv"}, {"data": "../q.csv"}, True),
        ("data:text", {"data": "rows"}, {"data": "sub/rows"}, True),
        ("data:text", {"data": "q.csv"}, {"data": "../q.csv", "digest": "1" * 16}, False),
        ("data:text", {"data": "q.csv"}, {"data": "../q.csv", "split": "test"}, False),
        ("data:text", {"data": "q.csv", "few_shot": "e.csv"}, {"data": "q.csv", "few_shot": "x/e.csv"}, True),
        ("data:text", {"data": "me/set"}, {"data": "you/set"}, True),
        ("data:text", {"data": "me/set", "digest": digest_of()}, {"data": "you/set"}, False),
        ("data:text", {"data": "me/set", "few_shot": "e.csv"}, {"data": "you/set"}, False),
        ("harbor:{name}", {"name": "tasks"}, {"name": "sub/tasks"}, True),
        ("my:Env", {"name": "easy"}, {"name": "hard"}, False),
    ],
)
def test_files_with_equal_digests_pair_in_whatever_folder(spec, one, other, same, tmp_path):
    sides = [{"digest": "0" * 16, **one}, {"digest": "0" * 16, **one, **other}]
    tasks = [TaskRef(spec.format(**kwargs), kwargs, seed=1) for kwargs in sides]
    a, b = (
        stored(tmp_path / str(n), episode(1, task=task), episode(2, task=replace(task, seed=2))).outcomes
        for n, task in enumerate(tasks)
    )
    for first, second in ((a, b), (b, a)):
        named = [(each.env, each.task) for each in share_names(first, second)]
        assert (named == [(each.env, each.task) for each in first]) is same
    both = stored(tmp_path / "both", *(episode(n, task=task) for n, task in enumerate(tasks))).outcomes
    assert share_names(both, both) == [*both]  # one that is equal comes first
    assert len({each.task for each in share_names(both, b[:1])} & {both[1].task}) == 1


def test_a_digest_of_a_wrapper_is_none_of_files():
    tasks = [TaskRef(ENV, {}, (WrapperRef("cut", {"digest": mark}),), seed=1) for mark in ("a", "b")]
    a, b = ([Outcome(ENV, task_key(task), 0, 0, True, 1.0)] for task in tasks)
    assert share_names(a, b) == b


def test_the_same_task_played_twice_is_two_samples(tmp_path):
    a = stored(tmp_path / "a.jsonl", episode(1), episode(1, job="again"))
    b = stored(tmp_path / "b.jsonl", episode(1, StopReason.FAILED), episode(1, job="again"))
    row = compare(a.outcomes, b.outcomes).rows[0]
    assert (row.tasks, row.pairs, row.lost) == (1, 2, 1)


def test_seeds_of_one_instance_are_one_cluster_and_groups_of_merged_runs_are_not(tmp_path):
    def run_of(name, sample):
        return stored(tmp_path / name, *(episode(s, group=str(s % 2), sample=sample(s)) for s in range(8)))

    instances = run_of("a.jsonl", lambda s: s // 2)
    assert len({o.cluster for o in instances.outcomes}) == 2
    row = compare(instances.outcomes, instances.outcomes).rows[0]
    assert (row.tasks, row.pairs) == (2, 8)
    (suite,) = suites([instances.outcomes], "return")
    assert (suite.tasks, suite.samples) == (2, 4.0)
    merged = run_of("b.jsonl", lambda s: 0)
    assert len({o.cluster for o in merged.outcomes}) == 8


def test_all_episodes_of_a_task_are_one_cluster_whatever_their_groups(tmp_path):
    places = [(3, "0"), (4, "1"), (2, "0"), (3, "1"), (4, "2")]  # seeds 3, 4, then 2, 3, 4
    twice = stored(tmp_path / "a.jsonl", *(episode(s, group=g, job=f"{s} {g}") for s, g in places))
    row = compare(twice.outcomes, twice.outcomes).rows[0]
    assert (row.tasks, row.pairs) == (3, 5)
    assert suites([twice.outcomes], "return")[0].tasks == 3
    apart = [episode(1, group=g, job=g, sample=n) for n, g in enumerate("ab")]
    assert len({o.cluster for o in stored(tmp_path / "b.jsonl", *apart).outcomes}) == 1
    begun = episode(1, group="g", job="g", origin=Origin("run-job1-0-0", 0))
    assert len({o.cluster for o in stored(tmp_path / "c.jsonl", episode(1), begun).outcomes}) == 1


def test_a_seat_has_its_own_success_and_return(tmp_path):
    game = episode(1, StopReason.ENDED)
    game.ends = {name: SeatEnd(stop, terminated=True, unearned=pay) for name, stop, pay in (
        ("black", StopReason.SOLVED, 1.0), ("white", StopReason.FAILED, -1.0))}  # fmt: skip
    stored(tmp_path / "a.jsonl", game, episode(2, StopReason.ERROR))
    for seat, success, reward in ((None, None, 0.0), ("black", True, 1.0), ("white", False, -1.0)):
        first, broken = read_run(tmp_path / "a.jsonl", seat).outcomes
        assert (first.success, first.reward, broken.reward) == (success, reward, None)
    with pytest.raises(BadArgument, match="test:X has no seat 'red'; it has 'black', 'white'"):
        read_run(tmp_path / "a.jsonl", "red")


def game(seed, black, white, stop=StopReason.ENDED, spec="test:Go"):
    played = episode(seed, stop, task=TaskRef(spec, {}, (), seed))
    ends = (("black", black), ("white", white))
    played.ends = {seat: SeatEnd(StopReason.ENDED, terminated=True, unearned=pay) for seat, pay in ends}
    played.turns = []
    return played


def test_what_has_no_success_but_by_seat_names_the_seats(tmp_path):
    run = stored(tmp_path / "a.jsonl", *(game(seed, 1.0, -1.0) for seed in range(3))).outcomes
    for ask in (lambda: compare(run, run), lambda: suites([run])):
        with pytest.raises(BadArgument, match="own success: --seat black or --seat white") as told:
            ask()
        assert "--metric return" not in str(told.value)
    mixed = [*run, *stored(tmp_path / "b.jsonl", episode(9)).outcomes]
    assert advise_on_seats(mixed) == "in test:Go --seat black or --seat white"


def test_episodes_that_were_cut_are_no_lost_ones_where_none_says_success(tmp_path):
    cut = [episode(seed, StopReason.TURN_LIMIT) for seed in range(5)]
    silent = [*cut, episode(5, StopReason.ENDED), episode(6, StopReason.UNREADABLE)]
    run = stored(tmp_path / "a.jsonl", *silent, game(7, 1.0, -1.0, StopReason.FAILED)).outcomes
    assert {outcome.success for outcome in run if outcome.env != "test:Go"} == {None}
    for ask in (lambda: compare(run[:7], run[:7]), lambda: suites([run[:7]])):
        with pytest.raises(BadArgument, match="If an environment does not report success"):
            ask()
    said = stored(tmp_path / "b.jsonl", *silent, episode(7)).outcomes
    assert [outcome.success for outcome in said] == [False] * 5 + [None, False, True]
    games = [game(0, 0.0, 0.0, StopReason.FAILED), game(1, 1.0, -1.0)]  # a draw alone says nothing
    assert {o.success for o in stored(tmp_path / "c.jsonl", *games).outcomes} == {None}


def test_a_mean_return_over_seats_that_cannot_differ_is_refused(tmp_path):
    won, lost = ([game(seed, pay, -pay) for seed in range(3)] for pay in (1.0, -1.0))
    a, b = stored(tmp_path / "a.jsonl", *won).outcomes, stored(tmp_path / "b.jsonl", *lost).outcomes
    with pytest.raises(BadArgument, match="test:Go: the return is the mean over the seats, which is 0 in ev"):
        compare(a, b, metric="return")
    a, b = (read_run(tmp_path / name, "black").outcomes for name in ("a.jsonl", "b.jsonl"))
    assert compare(a, b, metric="return").overall.difference.mean == -2.0
    mixed = [
        stored(tmp_path / f"{n}.jsonl", *each, episode(9)).outcomes for n, each in enumerate((won, lost))
    ]
    (warning,) = compare(*mixed, metric="return").warnings
    assert "mean over the seats, which is 0" in warning
    assert warning.endswith("--seat black or --seat white.")


def test_a_mean_return_over_seats_that_differs_is_compared_and_named(tmp_path):
    a = stored(tmp_path / "a.jsonl", *(game(seed, 1.0, 0.5) for seed in range(3))).outcomes
    b = stored(tmp_path / "b.jsonl", *(game(seed, 0.5, seed / 9) for seed in range(3))).outcomes
    (warning,) = compare(a, b, metric="return").warnings
    assert warning.startswith("test:Go: the return is the mean over the seats; to compare one seat, --seat")
    together = [game(seed, 1.0, 1.0, StopReason.SOLVED) for seed in range(3)]
    same = stored(tmp_path / "c.jsonl", *together).outcomes
    assert compare(same, same, metric="return").overall.difference.mean == 0


def test_a_store_of_two_agents_is_no_run(tmp_path):
    with pytest.raises(BadArgument, match=r"several settings \(agents: OpenAIAgent a-model, RandomAgent\)"):
        stored(tmp_path / "a.jsonl", episode(1), episode(1, of=RunInfo("other", "RandomAgent")))


def test_damaged_lines_are_counted(tmp_path):
    path = tmp_path / "a.jsonl"
    stored(path, episode(1), episode(2))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:-1], b'{"schema":2,"job":5}\n']))
    found = read_run(path)
    assert (len(found.outcomes), found.damaged) == (1, 1)
    with path.open("ab") as file:
        file.write(b'{"schema":2,"nothing":1}\n{"schema":2,"nothing":2}\n')
    assert read_run(path).damaged == 3


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(BadArgument, match="there is no"):
        read_run(tmp_path / "nothing")
    with pytest.raises(BadArgument, match="holds no episodes; accepted: a store"):
        read_run(tmp_path)
    for agent in ("random", "solver"):
        (tmp_path / agent).mkdir()
        EpisodeStore(tmp_path / agent / "episodes.jsonl").close()
        with pytest.raises(BadArgument, match=r"random/episodes\.jsonl holds no episode;|2 stores"):
            read_run(tmp_path)
    with pytest.raises(BadArgument, match=r"2 stores; name one of them: .*/random, .*/solver"):
        read_run(tmp_path)
    with pytest.raises(BadArgument, match="holds no episode;"):
        read_run(tmp_path / "random")


def test_played_runs_are_compared_from_the_same_seeds(tmp_path):
    for name, agent in (("random", RandomAgent()), ("solver", SolverAgent())):
        (tmp_path / name).mkdir()
        with EpisodeStore(tmp_path / name / "episodes.jsonl") as store:
            evaluate(agent, "game:GuessTheNumber-v0-easy", episodes=20, store=store)
    a, b = (read_run(tmp_path / name) for name in ("random", "solver"))
    found = compare(a.outcomes, b.outcomes)
    assert (found.overall.pairs, found.overall.better) == (20, "B")
    with EpisodeStore(tmp_path / "random" / "episodes.jsonl") as store:
        assert store.task(3) == store[3].task


# -- what a suite can show


def test_a_runs_noise_floor_is_that_of_its_components():
    rng = np.random.default_rng(0)
    own = rng.beta(2, 2, 50)
    outcomes = [
        Outcome(ENV, str(task), sample, 0, bool(rng.random() < own[task]), 0.0)
        for task in range(50)
        for sample in range(4)
    ]
    (suite,) = suites([outcomes])
    assert (suite.tasks, suite.samples, suite.scored, suite.total) == (50, 4.0, 200, 200)
    noise = suite.own[0]
    (floor,) = floors([suite])
    assert floor.error == pytest.approx(math.sqrt((noise.between + noise.within / 4) / 50))
    # The test of pairs is discrete, so it needs somewhat more than a normal figure.
    paired = smallest_difference(2 * (0.5 * noise.between + noise.within / 4) / 50, 50)
    assert paired < floor.paired < 1.15 * paired
    # The noise at the other rate is that of the rate itself here, near 50%.
    unpaired = smallest_difference(2 * (noise.between + noise.within / 4) / 50, 50, paired=False)
    assert floor.unpaired == pytest.approx(unpaired, rel=0.05)
    (more,) = floors([suite], tasks=200, samples=8, alike=1.0)
    assert more.paired == pytest.approx(smallest_difference(2 * noise.within / 8 / 200, 200), rel=0.1)


def test_a_floor_uses_the_noise_of_the_other_rate_and_no_rate_beyond_its_range():
    (floor,) = floors([plan_noise(0.9)], tasks=50)
    (noise,) = plan_noise(0.9).own
    assert floor.unpaired > 1.2 * smallest_difference(2 * noise.between / 50, 50, paired=False)
    mirrored = floors([plan_noise(0.1)], tasks=50)[0]
    assert (mirrored.paired, mirrored.unpaired) == (floor.paired, floor.unpaired)
    assert math.isinf(floors([plan_noise(0.5)], tasks=8)[0].paired)  # above 50 points
    for tasks in (2, 5):
        for samples in (1, 8):
            assert math.isinf(floors([plan_noise(0.9, 0.05)], tasks=tasks, samples=samples)[0].paired)


def test_what_could_be_seen_is_shown_by_four_runs_in_five():
    rng = np.random.default_rng(0)
    smallest = compare(lots(20, 20), lots(20, 20)).rows[0].smallest
    shown = 0
    for _ in range(400):
        won = int(rng.binomial(20, smallest))
        shown += compare_success(won, 20)
    assert 0.75 < shown / 400 < 0.85
    for tasks in (2, 5):
        row = compare(lots(tasks, tasks), lots(tasks, tasks)).rows[0]
        assert row.headline == f"no difference shown, and none could be: too few tasks ({tasks})"


def compare_success(won, tasks):
    """Return whether a difference is shown where one agent alone wins so many tasks."""
    interval = score_difference([0] * tasks, [1] * won + [0] * (tasks - won), [1] * tasks)
    return mcnemar(0, won) < 0.05 and interval.low > 0


def test_of_two_runs_the_noise_of_the_differences_is_measured():
    a, b = lots(30, 60), run(*[False] * 20, *[True] * 40)
    (suite,) = suites([a, b])
    differences = [-1.0] * 20 + [0.0] * 10 + [1.0] * 30
    assert suite.difference.between == pytest.approx(np.var(differences, ddof=1))
    (floor,) = floors([suite], alike=1.0)  # which does not matter
    assert floor.paired == pytest.approx(smallest_rate_difference(np.var(differences, ddof=1), 60))
    assert floor.paired == pytest.approx(smallest_difference(np.var(differences, ddof=1) / 60, 60), rel=0.1)
    assert floor.paired > floor.unpaired  # they win what the other loses


def test_a_run_that_won_everything_is_not_without_noise():
    (suite,) = suites([lots(40, 40)])
    rate = 42 / 44
    assert suite.own[0].between == pytest.approx(rate * (1 - rate))
    (same,) = suites([lots(20, 40), lots(20, 40)])
    assert same.difference.between == pytest.approx(2 / 44)
    (unknown,) = floors(suites([returns([1.0] * 40)], "return"))
    assert (unknown.error, unknown.unpaired, unknown.paired) == (None, None, None)


@pytest.mark.parametrize("tasks", [5, 10, 60])
def test_returns_that_are_rates_have_their_floor_and_their_interval(tasks):
    values = [[float(i % 2) for i in range(tasks)], [float(i % 3 == 0) for i in range(tasks)]]
    won = [run(*map(bool, side)) for side in values]
    for runs in ([returns(side) for side in values], won):  # as 0 and 1 occur, or by their success
        assert floors(suites(runs, "return")) == floors(suites(won))
        ours = compare(*runs, metric="return").rows[0]
        assert ours.smallest == compare(*won).rows[0].smallest
        assert ours.difference == compare(*won).rows[0].difference
    others = [replace(each, env="test:Y") for each in returns([float(i) for i in range(tasks)])]
    *_, mixed = floors(suites([[*won[0], *others]], "return"))
    assert (mixed.env, math.isfinite(mixed.paired)) == ("all", True)


def test_over_environments_returns_that_are_rates_are_combined_as_rates():
    a, b = (
        [*returns(map(float, side)), *(replace(each, env="test:Y") for each in returns(map(float, side)))]
        for side in ([1] * 11 + [0], [1] * 12)
    )
    found = compare(a, b, metric="return")
    assert found.overall.a == combined_rate([row.a for row in found.rows])
    assert found.overall.b == combined_rate([row.b for row in found.rows])


def test_returns_that_are_all_1_have_no_bounds_but_where_they_are_the_success():
    unknown = compare(returns([1.0] * 9), returns([1.0] * 9), metric="return").rows[0]
    known = compare(lots(9, 9), lots(9, 9), metric="return").rows[0]
    assert unknown.a[1:3] == (-math.inf, math.inf)
    assert known.a == known.b == wilson(9, 9)


def test_a_split_that_nobody_knows_is_the_worst_one():
    (floor,) = floors([plan_noise(0.6)], tasks=200, samples=4)
    by_split = [floors([plan_noise(0.6, w)], tasks=200, samples=4)[0] for w in np.linspace(0, 0.24, 13)]
    for name in ("error", "unpaired", "paired"):
        assert getattr(floor, name) == pytest.approx(max(getattr(each, name) for each in by_split))
    assert floors(suites([lots(40, 80)]), samples=9)[0].unpaired == pytest.approx(
        floors(suites([lots(40, 80)]))[0].unpaired  # more samples may help or not
    )


def test_over_environments_the_floor_is_that_of_their_mean():
    known = suites([[*lots(20, 60), *lots(10, 20, env="test:Y")]])
    x, y, both = floors(known, tasks=50)
    assert both.env == "all"
    assert both.error == pytest.approx(math.hypot(x.error, y.error) / 2)
    assert len(floors(known, (0.5, 1.0, 2.0))) == 9


def test_over_environments_no_rate_is_asked_to_differ_by_more_than_it_can():
    """One near 50% may differ by less than the mean over environments."""
    rng = np.random.default_rng(0)
    for won in rng.integers(0, 61, (100, 3)):
        *own, both = floors(suites([[o for i, n in enumerate(won) for o in lots(n, 60, env=f"test:{i}")]]))
        for name in ("paired", "unpaired"):
            most = max(getattr(each, name) for each in own)
            assert 0 < getattr(both, name) <= most


def test_suites_that_cannot_be_are_refused():
    with pytest.raises(BadArgument, match="no environment has two tasks with a success"):
        suites([run(True)])
    with pytest.raises(BadArgument, match="that both runs played"):
        suites([lots(1, 5), lots(1, 5, first=9)])
    for wrong in ({"tasks": 1}, {"samples": 0}, {"alike": 1.5}, {"power": 1.0}):
        with pytest.raises(BadArgument, match="accepted"):
            floors([plan_noise(0.5)], **{"tasks": 9, **wrong})
    with pytest.raises(BadArgument, match=r"rate is 1\.0"):
        plan_noise(1.0)


@pytest.mark.parametrize("worst", [0.0, -1.0])
def test_a_few_equal_returns_are_no_certainty(worst):
    def compared(tasks):
        a, b = (
            [Outcome(ENV, str(i), 0, 0, None, value) for i in range(tasks)] for value in (worst, worst + 1)
        )
        return compare(a, b, metric="return").rows[0]

    few, enough = compared(2), compared(6)
    assert (few.p, few.better) == (0.5, None)
    assert few.headline == "no difference shown, and none could be: too few tasks (2)"
    assert few.difference.low < 0 < few.difference.high
    assert (enough.p, enough.better) == (pytest.approx(2**-5), "B")
    assert all(each.high > each.low for each in (few.a, few.b, enough.a, enough.b))


def test_returns_that_never_differ_say_nothing_of_what_could_be_seen():
    same = lots(1, 4)
    row = compare(same, same, metric="return").rows[0]
    assert row.headline == "no difference: each of 4 pairs has the same return"


def returns(values, samples=1):
    return [Outcome(ENV, str(i // samples), i % samples, 0, None, value) for i, value in enumerate(values)]


def test_rounding_is_no_proof():
    found = compare(returns([0.2, 0.1]), returns([0.3, 0.2]), metric="return")
    assert (found.overall.p, found.overall.better) == (0.5, None)
    assert found.overall.headline == "no difference shown, and none could be: too few tasks (2)"
    same = compare(returns([0.1 + 0.2, 0.5]), returns([0.3, 0.5]), metric="return")
    assert (same.overall.difference[:3], same.changes) == ((0, -math.inf, math.inf), ())
    assert same.overall.headline == "no difference: each of 2 pairs has the same return"


def test_samples_that_cancel_are_not_the_same():
    row = compare(returns([0.5, 0.0] * 20, 2), returns([0.0, 0.5] * 20, 2), metric="return").overall
    assert row.headline == "no difference: each of 20 tasks has the same mean return"
    few = compare(returns([0.5, 0.0] * 2, 2), returns([0.0, 0.5] * 2, 2), metric="return").overall
    assert few.difference[:3] == (0, -math.inf, math.inf)
    assert few.headline == "no difference shown, and none could be: too few tasks (2)"


def test_large_runs_of_which_nothing_pairs_are_refused_at_once():
    a, b = lots(1, 20_000), lots(1, 20_000, first=20_000)
    with pytest.raises(BadArgument, match="the runs have no pairs"):
        compare(a, b)


def test_what_branched_off_pairs_with_what_branched_off_there_alone(tmp_path):
    whole = stored(tmp_path / "whole.jsonl", *(episode(seed) for seed in range(3)))
    names = [f"run-job{seed}-0-0" for seed in range(3)]

    def branches(name, turns):
        made = [
            episode(seed, job=f"b{seed} {at}", group="g", sample=at, origin=Origin(names[seed], at))
            for seed in range(3)
            for at in turns
        ]
        return stored(tmp_path / name, *made)

    one, other = branches("one.jsonl", (0, 1)), branches("other.jsonl", (1, 2))
    with pytest.raises(BadArgument, match="the runs have no pairs"):
        compare(whole.outcomes, one.outcomes)
    row = compare(one.outcomes, other.outcomes).rows[0]
    assert (row.pairs, row.of) == (3, 9)
    assert len({outcome.cluster for outcome in one.outcomes}) == 3  # branches of a task are alike
