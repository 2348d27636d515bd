"""The order of jobs, their retries and their results, without any environment."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gem.errors import BadArgument, EnvClosed
from gem.record import Episode, Failure
from gem.rollout import Job, RunOptions
from gem.rollout.jobs import Trial
from gem.rollout.schedule import Schedule, in_order
from gem.specs import TaskRef

HOST = Failure("host", "WorkerDied", "")
FAULTS = (
    HOST,
    Failure("env", "NoVerdict", ""),  # of an earlier version, as the others that do not say `no_verdict`
    Failure("env", "SandboxFailed", ""),
    Failure("env", "OfAModuleThatIsNotImported", "", no_verdict=True),
)
FAILURES = (
    Failure("agent", "NoVerdict", "", no_verdict=True),
    Failure("env", "RuntimeError", ""),
    Failure("env", "OutOfTime", "", no_verdict=False),  # the environment's own class
)


def jobs(count):
    return [Job("game:X", seed) for seed in range(count)]


def episode(trial, error=None):
    return Episode(TaskRef("game:X", seed=trial.job.seed), attempt=trial.attempt, error=error)


class Source:
    """Makes trials; has some stored episodes, by seed."""

    def __init__(self, stored=()):
        self.stored = dict(stored)

    @property
    def remembers(self):
        return bool(self.stored)

    def check(self, job):
        if job.seed == 99:
            raise BadArgument("nobody plays 99")

    def make(self, job, number):
        return Trial(job, None, str(job.seed), number)

    def recall(self, trial):
        found = self.stored.pop(trial.job.seed, None)
        return (trial if found is None else replace(trial, attempt=found.attempt + 1)), found


def scheduled(count, source=None, **options):
    schedule = Schedule(source or Source(), RunOptions(**options))
    schedule.open(iter(jobs(count)))
    return schedule


def begin(schedule, **how):
    """Begin all trials that may start."""
    started = []
    while (trial := schedule.next(**how)) is not None:
        started.append(trial)
    return started


@settings(max_examples=200, deadline=None)
@given(
    count=st.integers(0, 25),
    ahead=st.booleans(),
    concurrency=st.integers(1, 8),
    most=st.none() | st.integers(1, 12),
    retries=st.integers(0, 3),
    alone_at_once=st.integers(1, 3),
    admitted=st.none() | st.integers(1, 6),
    noise=st.randoms(use_true_random=False),
)
def test_each_job_has_one_result_in_order_whatever_ends_when(
    count, ahead, concurrency, most, retries, alone_at_once, admitted, noise
):
    asked = []

    def admit(in_flight):
        asked.append(in_flight)
        return in_flight < admitted

    options = RunOptions(concurrency=concurrency, retries=retries, admit=admit if admitted else None)
    schedule = Schedule(Source(), options, most)
    schedule.open(iter(jobs(count)))
    if ahead:
        schedule.take_ahead()
    bound = concurrency if most is None else most
    flying, results, errors = [], [], {}
    while True:
        if noise.random() < 0.7 or not flying:
            results += schedule.results()
        while (trial := schedule.next(alone=sum(each.alone for each in flying) < alone_at_once)) is not None:
            flying.append(trial)
            assert trial.attempt == len(errors.get(trial.job.seed, ()))
        assert schedule.in_flight == len(flying) <= bound
        assert sum(each.alone for each in flying) <= alone_at_once
        assert len({each.number for each in flying}) == len(flying)
        if schedule.idle and not flying:
            break
        for _ in range(noise.randint(1, 3) if flying else 0):
            if flying:
                trial = flying.pop(noise.randrange(len(flying)))
                error = noise.choice((None, None, *FAULTS, *FAILURES))
                errors.setdefault(trial.job.seed, []).append(error)
                schedule.end(trial, episode(trial, error))
    assert [each.seed for each in in_order(results)] == list(range(count))
    assert [number for number, _ in sorted(results)] == list(range(count))
    for _, last in results:
        met = errors[last.seed]
        assert last.error == met[-1]
        assert last.attempt == len(met) - 1 <= retries
        assert all(error in FAULTS for error in met[:-1])
        assert met[-1] not in FAULTS or len(met) == retries + 1
    assert all(0 <= in_flight < bound for in_flight in asked)


@settings(max_examples=100, deadline=None)
@given(
    count=st.integers(0, 20),
    stored=st.dictionaries(st.integers(0, 19), st.sampled_from((None, *FAULTS, *FAILURES))),
    concurrency=st.integers(1, 5),
    retries=st.integers(0, 2),
    retry_failed=st.booleans(),
    admits=st.booleans(),
)
def test_stored_results_are_taken_up_and_the_rest_is_played(
    count, stored, concurrency, retries, retry_failed, admits
):
    source = Source({seed: Episode(TaskRef("x", seed=seed), error=e) for seed, e in stored.items()})
    options = RunOptions(concurrency=concurrency, retries=retries, admit=lambda in_flight: admits)
    object.__setattr__(options, "retry_failed", retry_failed)  # it goes with a store on disk
    schedule = Schedule(source, options)
    schedule.open(iter(jobs(count)))
    played, results = [], []
    while True:
        started = begin(schedule)
        for trial in started:
            played.append((trial.job.seed, trial.attempt))
            schedule.end(trial, episode(trial))
        assert len(results) < 1000
        found = list(schedule.results())
        assert len(found) <= 2 * concurrency
        results += found
        if schedule.idle and not found:
            break
    again = {
        seed
        for seed, error in stored.items()
        if error is not None and (retry_failed or (retries and error in FAULTS))
    }
    fresh = [seed for seed in range(count) if seed not in stored]
    expected = sorted([(seed, 1) for seed in again if seed < count] + [(seed, 0) for seed in fresh])
    assert sorted(played) == (expected if admits else [])
    there = [seed for seed in stored if seed < count]
    assert sorted(each.seed for _, each in results) == (
        list(range(count)) if admits else sorted(set(there) - again)
    )


def test_submitted_jobs_come_first_and_a_job_that_cannot_be_played_adds_none():
    schedule = scheduled(2, concurrency=9)
    schedule.submit([Job("game:X", 7)])
    with pytest.raises(BadArgument, match="nobody plays 99"):
        schedule.submit([Job("game:X", 8), Job("game:X", 99)])
    assert len(schedule.submitted) == 1
    assert [trial.job.seed for trial in begin(schedule)] == [7, 0, 1]


def test_an_endless_stream_is_taken_as_far_as_there_is_room():
    taken = []

    def endless():
        for seed in range(10**9):
            taken.append(seed)
            yield Job("game:X", seed)

    schedule = Schedule(Source(), RunOptions(concurrency=3))
    schedule.open(endless())
    schedule.take_ahead()
    assert len(taken) == 3
    for _ in range(5):
        for trial in begin(schedule):
            schedule.end(trial, episode(trial))
    assert len(taken) <= 6  # as many results are kept as may be in flight
    list(schedule.results())
    assert len(begin(schedule)) == 3


def test_what_lost_its_worker_is_played_alone_unless_its_node_is_gone():
    schedule = scheduled(2, concurrency=2, retries=1)
    first, second = begin(schedule)
    schedule.end(first, episode(first, HOST))
    schedule.end(second, episode(second, HOST), alone=False)
    assert schedule.next(alone=False) is None
    one, other = begin(schedule)
    assert [(each.number, each.alone, each.attempt) for each in (one, other)] == [(0, True, 1), (1, False, 1)]


def test_results_are_reported_one_by_one():
    heard = []
    schedule = scheduled(3, concurrency=3, on_episode=heard.append)
    for trial in begin(schedule):
        schedule.end(trial, episode(trial))
    results = schedule.results()
    assert heard == []
    number, first = next(results)
    assert (number, heard) == (0, [first])
    assert len(list(results)) == 2
    assert [each.seed for each in heard] == [0, 1, 2]


def test_results_come_before_another_trial_is_admitted():
    schedule = scheduled(4, concurrency=3, admit=lambda in_flight: in_flight < 2)
    first, _ = begin(schedule)
    schedule.end(first, episode(first))
    assert schedule.next() is None  # what the result changes is unknown
    assert len(list(schedule.results())) == 1
    assert schedule.next() is not None


def test_one_stream_at_a_time_which_leaves_nothing_behind():
    schedule = scheduled(5, concurrency=2, retries=1)
    schedule.submit(jobs(1))
    with pytest.raises(BadArgument, match="a stream of this runner is open"):
        schedule.open(())
    first, _ = begin(schedule)
    schedule.end(first, episode(first, HOST))
    schedule.leave()
    assert (schedule.idle, schedule.in_flight, len(schedule.submitted)) == (True, 0, 0)
    schedule.open(jobs(1))
    assert [trial.number for trial in begin(schedule)] == [2]  # numbers go on
    schedule.close()
    for use in (schedule.next, schedule.check_open, lambda: schedule.open(())):
        with pytest.raises(EnvClosed, match="the runner is closed"):
            use()


def test_in_order_sorts_by_number_alone():
    made = [Episode(TaskRef("x", seed=seed)) for seed in range(9)]
    shuffled = list(enumerate(made))
    random.Random(3).shuffle(shuffled)
    assert in_order(shuffled) == made
