import itertools
import json

import pytest

from gem.agents import RandomAgent, SolverAgent
from gem.cli import main
from gem.errors import BadArgument
from gem.evals import Stopping, evaluate
from gem.record import Episode, SeatEnd, StopReason, Verdict
from gem.rollout import EpisodeStore, Runner
from gem.specs import TaskRef
from gem.statistics import ConfidenceSequence

ENV = "game:GuessTheNumber-v0-easy"


def episode(task, won, sample=0):
    stop = {True: StopReason.SOLVED, False: StopReason.FAILED, None: StopReason.ERROR}[won]
    return Episode(
        TaskRef("test:X", seed=task),
        sample=sample,
        group=str(task),
        ends={"agent": SeatEnd(stop)},
        stop=stop,
        verdict=Verdict.NONE if won is None else Verdict.SCORED,
    )


def sequence_of(*values):
    sequence = ConfidenceSequence()
    for value in values:
        sequence.add(value)
    return sequence.interval


def test_tasks_enter_in_their_own_order_once_those_before_have_ended():
    outcomes = [True, False, True, True]
    for order in itertools.permutations(range(4)):
        stopping = Stopping(width=0.1)
        stopping.expect("0123")
        for heard, task in enumerate(order, 1):
            stopping.hear(episode(task, outcomes[task]))
            first = next(t for t in itertools.count() if t not in order[:heard])
            assert stopping.sequence.count == first
        assert stopping.interval == sequence_of(1.0, 0.0, 1.0, 1.0)


def test_a_task_is_the_mean_of_its_samples_with_a_verdict():
    stopping = Stopping(samples=3, width=0.1)
    stopping.expect("012")
    for task, ends in enumerate([(True, False, None), (None, None, None), (True, True, True)]):
        assert stopping.sequence.count == min(task, 1)
        for sample, won in enumerate(ends):
            stopping.hear(episode(task, won, sample))
    assert stopping.interval == sequence_of(0.5, 1.0)


def test_it_is_never_enough_where_no_episode_says_success():
    def ended(task, stop):
        made = episode(task, won=False)
        made.stop, made.ends = stop, {"agent": SeatEnd(stop)}
        return made

    stopping = Stopping(width=0.9)
    stopping.expect(map(str, range(64)))
    for task in range(62):
        stopping.hear(ended(task, StopReason.TURN_LIMIT if task % 2 else StopReason.ENDED))
    assert (stopping.enough, stopping.interval, stopping.sequence.count) == (False, None, 31)
    stopping.hear(episode(62, won=True))
    assert stopping.enough
    assert stopping.interval.n == 32


def test_nothing_is_known_before_the_first_task():
    assert Stopping(threshold=0.5).interval is None


def test_an_evaluation_ends_once_the_interval_is_narrow_enough():
    stop = Stopping(width=0.2)
    result = evaluate(RandomAgent(), ENV, episodes=2000, stop=stop, concurrency=8)
    assert stop.enough
    assert result.episodes == result.scored < 600
    assert (result.unplayed, result.coverage) == (0, 1.0)
    assert result.success == stop.interval
    assert result.success.high - result.success.low <= 0.2
    assert result.success.n == result.episodes  # those in flight when it was enough are heard too


def test_an_evaluation_ends_once_a_threshold_is_decided():
    stop = Stopping(samples=2, threshold=0.5)
    result = evaluate(SolverAgent(), ENV, episodes=2000, samples=2, stop=stop, concurrency=2)
    assert result.success.low > 0.5
    assert result.episodes < 60


def test_where_never_enough_is_known_all_is_played():
    stop = Stopping(width=0.05)
    result = evaluate(RandomAgent(), ENV, episodes=30, stop=stop)
    assert not stop.enough
    assert (result.episodes, result.success.n) == (30, 30)


def test_somebody_elses_word_counts_beside_it():
    heard = []
    result = evaluate(
        RandomAgent(), ENV, episodes=30, stop=Stopping(width=0.05), admit=lambda _: len(heard) < 10,
        on_episode=heard.append, concurrency=1,
    )  # fmt: skip
    assert (len(heard), result.unplayed) == (10, 20)


def test_where_no_task_came_to_its_end_the_figure_is_the_plain_one():
    heard = []
    result = evaluate(
        RandomAgent(), ENV, episodes=9, samples=3, stop=Stopping(samples=3, width=0.1),
        admit=lambda _: len(heard) < 1, on_episode=heard.append, concurrency=1,
    )  # fmt: skip
    assert (result.scored, result.unplayed, result.success.n) == (1, 26, 1)


def test_an_evaluation_that_goes_on_stops_where_the_first_one_did(tmp_path):
    def played(store):
        return evaluate(
            RandomAgent(),
            ENV,
            episodes=500,
            stop=Stopping(width=0.25),
            concurrency=4,
            store=store,
            resume=True,
        )

    with EpisodeStore(tmp_path / "episodes.jsonl") as store:
        evaluate(RandomAgent(), ENV, episodes=20, store=store, resume=True)  # what was cut off
        first = played(store)
        assert 20 < first.episodes == len(store) < 500
        assert played(store) == first
        assert len(store) == first.episodes


def test_the_command_stops_each_environment_by_itself(capsys):
    envs = (ENV, "game:Sudoku-v0-easy")
    flags = ("--episodes", "900", "--stop-at-width", "0.25", "--concurrency", "4", "--json")
    assert main(["eval", *envs, *flags]) == 0
    found = json.loads(capsys.readouterr().out)["results"]
    assert [each["env"] for each in found] == [*envs]
    for each in found:
        assert each["episodes"] < 400
        assert each["success"]["high"] - each["success"]["low"] <= 0.25
    assert main(["eval", ENV, "--stop-at-width", "2"]) == 2
    assert "width is 2.0; accepted: between 0 and 1" in capsys.readouterr().err


def test_what_it_is_not_for_is_refused():
    with pytest.raises(BadArgument, match="would never stop"):
        Stopping()
    for wrong in ({"width": 0.0}, {"width": 1.5}, {"threshold": 1.0}, {"width": 0.1, "samples": 0}):
        with pytest.raises(BadArgument, match="accepted"):
            Stopping(**wrong)
    with pytest.raises(BadArgument, match="1 samples of each task; accepted: as many as are played"):
        evaluate(RandomAgent(), ENV, episodes=9, samples=2, stop=Stopping(width=0.1))


def test_a_runner_made_with_it_ends_where_the_evaluation_would():
    stop, same = Stopping(width=0.3), Stopping(width=0.3)
    admit, on_episode = stop.beside(None, None)
    with Runner(RandomAgent(), concurrency=8, admit=admit, on_episode=on_episode) as runner:
        result = evaluate(runner, ENV, episodes=400, stop=stop)
    wanted = evaluate(RandomAgent(), ENV, episodes=400, concurrency=8, stop=same)
    assert (result.episodes, result.success) == (wanted.episodes, wanted.success)
    assert result.episodes < 400
