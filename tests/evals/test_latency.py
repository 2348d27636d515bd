from gem.evals.latency import Latency
from gem.record import Episode, RunInfo, Turn
from gem.specs import TaskRef


def episode(*seconds, seat="agent", **extra):
    turns = [Turn(seat, "x", timing={"policy_s": each}, extra=extra or None) for each in seconds]
    return Episode(TaskRef("game:Wordle-v0"), RunInfo("r", "A", "m"), turns=turns)


def test_percentiles_are_seconds_that_an_answer_took():
    latency = Latency()
    assert latency.to_json() == {"answers": 0, "p50_s": None, "p95_s": None, "retries": 0}
    latency.count(episode(*range(20, 0, -1)))
    assert latency.to_json() == {"answers": 20, "p50_s": 10.0, "p95_s": 19.0, "retries": 0}
    assert latency.format_figures() == ("20", "10.00 s", "19.00 s", "0")
    one = Latency()
    one.count(episode(3.0))
    assert (one.percentile(50), one.percentile(95)) == (3.0, 3.0)


def test_retries_are_those_of_the_seat_and_no_other_program_s_words():
    latency = Latency()
    latency.count(episode(1.0, 2.0, retries=3), "agent")
    latency.count(episode(9.0, seat="other", retries=8), "agent")
    latency.count(episode(1.0, retries="many"))
    assert (len(latency.seconds), latency.retries) == (3, 6)
