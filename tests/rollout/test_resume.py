"""A run that was cut off goes on: nothing is played twice, and the figures are those of one that was not."""

import asyncio
import gc
from functools import partial
from typing import ClassVar

import pytest

from gem.agents.base import BaseAgent
from gem.agents.random import RandomAgent
from gem.core import Env, Start, Step
from gem.errors import AgentUnavailable, BadArgument, NoVerdict, SchemaMismatch, StoreError, WorkerDied
from gem.evals import evaluate
from gem.history import HistoryPolicy
from gem.record import AgentInfo, Limits, Reply
from gem.registry import EnvSpec, Maker
from gem.rollout import EpisodeStore, Job, Runner, rollout, rollout_async
from gem.testing.doubles import EchoEnv
from gem.wrappers import SignedReward, TransformReward

EASY = "game:GuessTheNumber-v0-easy"


def batched(jobs, agent, **options):
    return rollout(jobs, agent, **options)


def one_by_one(jobs, agent, **options):
    return asyncio.run(rollout_async(jobs, agent, **options))


both = pytest.mark.parametrize("drive", [batched, one_by_one])


class Guesses(BaseAgent):
    """Guesses by the seed of the ask; gone after so many answers."""

    def __init__(self, answers=10**9, temperature=1.0, model="m", address=""):
        self.left = answers
        self.temperature, self.model, self.address = temperature, model, address
        self.asked = []

    @property
    def info(self):
        settings = {"temperature": self.temperature, "stop": ("a", "b")}
        return AgentInfo("Guesses", self.model, settings, address=self.address)

    def __call__(self, asks):
        replies = []
        for ask in asks:
            self.left -= 1
            if self.left < 0:
                raise AgentUnavailable("gone")
            self.asked.append(ask.episode)
            replies.append(Reply(rf"\boxed{{{ask.seed % 12}}}"))
        return replies


class Flaky(Env):
    """Breaks at its second step: once where the seed is 1 modulo 4, always where it is 2, with a bug at 3."""

    broke: ClassVar[set] = set()
    plays: ClassVar[list] = []

    def reset(self, seed=None):
        super().reset(seed)
        Flaky.plays.append(self.seed)
        self.turn = 0
        return Start(f"start {self.seed}", {})

    def step(self, action):
        self.turn += 1
        kind = self.seed % 4
        if self.turn == 2 and (kind == 2 or (kind == 1 and self.seed not in self.broke)):
            self.broke.add(self.seed)
            raise NoVerdict("the container went away")
        if self.turn == 2 and kind == 3:
            raise ValueError("a bug")
        return Step("on", 0.5, self.turn == 3, False, {"success": self.seed % 5 > 1})


class Died(Flaky):
    """Dies once, where the seed is 4."""

    def step(self, action):
        if self.seed == 4 and 4 not in self.broke:
            self.broke.add(4)
            raise WorkerDied("killed")
        return super().step(action)


@pytest.fixture(autouse=True)
def nothing_broke_yet():
    Flaky.broke.clear()
    Flaky.plays.clear()


def hashes(episodes):
    return [(episode.id.split("-", 1)[1], episode.transcript_hash()) for episode in episodes]


@both
@pytest.mark.parametrize("answers", [0, 17, 60, 200])
def test_a_run_that_was_cut_off_ends_as_one_that_was_not(drive, answers, tmp_path):
    jobs = [Job(EASY, seed, sample=seed % 2) for seed in range(40)] + [Job(EASY, 3)] * 3
    with EpisodeStore(tmp_path / "whole.jsonl") as whole:
        wanted = drive(jobs, Guesses(), store=whole, concurrency=7)
    path, asked = tmp_path / "store.jsonl", []
    for first in (answers, 30, 10**9):  # cut off, cut off again, and to the end
        agent = Guesses(first)
        with EpisodeStore(path) as store:
            try:
                found = drive(jobs, agent, store=store, resume=True, concurrency=7)
            except AgentUnavailable:
                stored = {episode.id for episode in store}
                asked += [each for each in agent.asked if each in stored]
            else:
                asked += agent.asked
    assert hashes(found) == hashes(wanted)
    with EpisodeStore(path, read_only=True) as store:
        assert len(store.runs) == 1
        assert sorted(episode.id for episode in store) == sorted(episode.id for episode in found)
    # No turn of a stored episode was asked for twice.
    assert len(asked) == sum(len(episode.turns) for episode in wanted)


@both
def test_what_came_to_its_end_is_handed_on_without_asking_anybody(drive, tmp_path):
    jobs = [Job(EASY, seed) for seed in range(6)]
    with EpisodeStore(tmp_path / "store.jsonl") as store:
        first = drive(jobs, Guesses(), store=store)
        agent, done = Guesses(0), []
        again = drive(jobs, agent, store=store, resume=True, on_episode=done.append)
        assert [episode.id for episode in again] == [episode.id for episode in first]
        assert {episode.id for episode in done} == {episode.id for episode in first}
        assert (len(store), agent.asked) == (6, [])


@both
@pytest.mark.parametrize("retries", [0, 1, 3])
def test_what_infrastructure_broke_is_tried_again_while_retries_last(drive, retries, tmp_path):
    jobs = [Job(Flaky, seed) for seed in range(12)]
    with EpisodeStore(tmp_path / "store.jsonl") as store:
        first = drive(jobs, Guesses(), store=store, retries=0)
        assert [episode.scored for episode in first] == [seed % 4 == 0 for seed in range(12)]
        Flaky.plays.clear()
        found = drive(jobs, Guesses(), store=store, retries=retries, resume=True)
        played = sorted(Flaky.plays)
        assert played == sorted([seed for seed in (1, 5, 9) if retries] + [2, 6, 10] * retries)
        attempts = [(seed % 4 == 1) * bool(retries) + (seed % 4 == 2) * retries for seed in range(12)]
        assert [episode.attempt for episode in found] == attempts
        assert [episode.scored for episode in found] == [
            seed % 4 == 0 or (seed % 4 == 1 and retries > 0) for seed in range(12)
        ]
        assert len(store.runs) == 1
        Flaky.plays.clear()
        third = drive(jobs, Guesses(), store=store, retries=retries, resume=True)
        assert ([episode.id for episode in third], Flaky.plays) == ([episode.id for episode in found], [])


class Raises(Env):
    """Raises an error of a class that is gone afterwards, as one of a module that is not imported."""

    def __init__(self, name, base):
        self.error = name, (base,), {}

    def reset(self, seed=None):
        super().reset(seed)
        raise type(*self.error)("away")


@both
@pytest.mark.parametrize(
    ("name", "base", "tries"), [("BackendGone", NoVerdict, 4), ("OutOfTime", RuntimeError, 1)]
)
def test_what_an_error_is_says_whether_to_try_again_and_not_its_name(drive, name, base, tries, tmp_path):
    jobs = [Job(partial(Raises, name, base), 0, key="raises")]
    with EpisodeStore(tmp_path / "store.jsonl") as store:
        drive(jobs, Guesses(), store=store, retries=1)
        gc.collect()  # the class, too
        (found,) = drive(jobs, Guesses(), store=store, retries=3, resume=True)
        assert (found.error.type, len(store)) == (name, tries)


def test_an_episode_whose_worker_died_is_played_again_alone(tmp_path):
    jobs = [Job(Died, seed) for seed in (0, 4, 8)]
    with EpisodeStore(tmp_path / "store.jsonl") as store:
        assert not rollout(jobs, Guesses(), store=store, retries=0)[1].scored
        Flaky.plays.clear()
        found = rollout(jobs, Guesses(), store=store, resume=True)
    assert [(episode.scored, episode.attempt) for episode in found] == [(True, 0), (True, 1), (True, 0)]
    assert Flaky.plays == [4]


def test_an_agents_failure_is_no_reason_to_ask_again(tmp_path):
    """Else a policy that may choose to fail would be given another try, which a loss is not."""

    class Fails(Guesses):
        def __call__(self, asks):
            raise NoVerdict("no answer")

    with EpisodeStore(tmp_path / "store.jsonl") as store:
        first = rollout([Job(EASY, 1)], Fails(), store=store)
        agent = Guesses()
        found = rollout([Job(EASY, 1)], agent, store=store, resume=True)
    assert (found[0].id, found[0].scored, agent.asked) == (first[0].id, False, [])


@pytest.mark.parametrize(
    ("agent", "options", "differs"),
    [
        (Guesses(temperature=0.5), {}, "sampling.temperature is 1.0 there and 0.5 here"),
        (Guesses(model="n"), {}, "model is 'm' there and 'n' here"),
        (Guesses(), {"limits": Limits(turns=3)}, "limits.turns is None there and 3 here"),
        (Guesses(), {"history": HistoryPolicy("last")}, "history is None there"),
        (RandomAgent(), {}, "agent is 'Guesses' there and 'RandomAgent' here"),
    ],
)
def test_other_settings_are_told_before_anything_is_played(agent, options, differs, tmp_path):
    path = tmp_path / "store.jsonl"
    jobs = [Job(EASY, seed) for seed in range(3)]
    with EpisodeStore(path) as store:
        rollout(jobs, Guesses(), store=store)
        with pytest.raises(SchemaMismatch, match="under other settings") as told:
            rollout(jobs, agent, store=store, resume=True, **options)
        assert differs in str(told.value)
        assert "another store" in str(told.value)
        assert len(store) == 3


def test_a_run_that_goes_on_at_another_address_warns_once(tmp_path):
    jobs = [Job(EASY, seed) for seed in range(3)]
    with EpisodeStore(tmp_path / "store.jsonl") as store:
        rollout(jobs[:1], Guesses(address="http://a/v1"), store=store)
        with pytest.warns(
            UserWarning, match="http://a/v1, and goes on with the model at http://b/v1"
        ) as told:
            rollout(jobs[:2], Guesses(address="http://b/v1"), store=store, resume=True)
        assert len(told) == 1
        episodes = rollout(jobs, Guesses(address="http://b/v1"), store=store, resume=True)
        assert [episode.run.address for episode in episodes] == ["http://a/v1", "http://b/v1", "http://b/v1"]
        assert (len(store), len(store.latest()), len(store.runs)) == (3, 3, 2)


def test_a_store_that_lost_the_line_of_a_run_says_so(tmp_path):
    path = tmp_path / "store.jsonl"
    with EpisodeStore(path) as store:
        rollout([Job(EASY, 1)], Guesses(), store=store)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if b'"sampling"' not in line))
    with (
        EpisodeStore(path) as store,
        pytest.raises(SchemaMismatch, match=r"the line of its run is missing or damaged"),
    ):
        rollout([Job(EASY, 1)], Guesses(temperature=0.5), store=store, resume=True)


def test_other_jobs_under_other_settings_are_a_run_of_their_own(tmp_path):
    with EpisodeStore(tmp_path / "store.jsonl") as store:
        rollout([Job(EASY, 1)], Guesses(), store=store)
        both_kinds = [Job(EASY, 1), Job(EASY, 1, limits=Limits(turns=2)), Job(EASY, 1, agents=RandomAgent())]
        found = rollout(both_kinds, Guesses(), store=store, resume=True)
        again = rollout(both_kinds, Guesses(0), store=store, resume=True)
        assert [episode.id for episode in again] == [episode.id for episode in found]
        assert (len(store), len(store.runs)) == (3, 3)


@pytest.mark.parametrize(
    "changed", [{"seed": 2}, {"salt": 1}, {"group": "h"}, {"env": "game:Sudoku-v0-easy"}]
)
def test_another_job_of_the_same_key_is_told(changed, tmp_path):
    given = {"env": EASY, "seed": 1, "group": "g", "key": "mine"}
    with EpisodeStore(tmp_path / "store.jsonl") as store:
        rollout([Job(**given)], Guesses(), store=store)
        with pytest.raises(SchemaMismatch, match="job 'mine' is"):
            rollout([Job(**{**given, **changed})], Guesses(), store=store, resume=True)


class Pays(Env):
    """Pays `pay` for any answer."""

    def __init__(self, pay=1.0):
        self.pay = pay

    def step(self, action):
        return Step("", self.pay, True, False, {})


def negate(env):
    return TransformReward(env, lambda reward: -reward)


def keep(env):
    return TransformReward(env, lambda reward: reward)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (partial(Pays, 1.0), partial(Pays, 0.0)),
        (lambda: Pays(1.0), lambda: Pays(0.0)),
        (Maker(EnvSpec("test:Pays", Pays)), Maker(EnvSpec("test:Pays", Pays, {"pay": 0.0}))),
        (Maker(EnvSpec("test:Pays", Pays)), Maker(EnvSpec("test:Pays", EchoEnv))),
        (Maker(f"{__name__}:Pays"), Maker(f"{__name__}:Pays", {}, (partial(TransformReward, fn=abs),))),
        (Maker(f"{__name__}:Pays"), Maker(f"{__name__}:Pays", {}, (SignedReward,))),
    ],
)
def test_episodes_of_another_environment_do_not_count(one, other, tmp_path):
    with EpisodeStore(tmp_path / "store.jsonl") as store:
        first, second, third, fourth = (
            rollout([Job(env, 1)], Guesses(), store=store, resume=True) for env in (one, other, one, other)
        )
        assert len(store) == 2
    assert second[0].id != first[0].id
    assert [third[0].id, fourth[0].id] == [first[0].id, second[0].id]
    with EpisodeStore(tmp_path / "keys.jsonl") as store:
        rollout([Job(one, 1, key="mine")], Guesses(), store=store)
        with pytest.raises(SchemaMismatch, match="job 'mine' is of another environment"):
            rollout([Job(other, 1, key="mine")], Guesses(), store=store, resume=True)


@pytest.mark.parametrize(
    ("one", "other", "unknown"),
    [
        (
            Maker(f"{__name__}:Pays", {}, (keep,)),
            Maker(f"{__name__}:Pays", {}, (negate,)),
            "TransformReward.fn",
        ),
        (
            Maker(f"{__name__}:Pays", {"pay": [0.0] * 10**5}),
            Maker(f"{__name__}:Pays", {"pay": [1.0] * 10**5}),
            "Pays.pay",
        ),
    ],
)
def test_an_environment_that_cannot_be_stored_needs_a_key(one, other, unknown, tmp_path):
    with EpisodeStore(tmp_path / "store.jsonl") as store:
        rollout([Job(one, 1), Job(one, 1, key="mine")], Guesses(), store=store)
        with pytest.raises(SchemaMismatch, match=rf"{unknown} cannot be stored.*give each job a key"):
            rollout([Job(other, 1)], Guesses(), store=store, resume=True)
        assert rollout([Job(one, 1, key="mine")], Guesses(0), store=store, resume=True)
        assert len(store) == 2


def pays_what_a_function_says():
    return Pays(lambda: 2.0)


def test_a_function_of_a_module_goes_on(tmp_path):
    with EpisodeStore(tmp_path / "store.jsonl") as store:
        for _ in range(2):
            (episode,) = rollout([Job(pays_what_a_function_says, 1)], Guesses(), store=store, resume=True)
        assert episode.task.opaque
        assert len(store) == 1


@pytest.mark.parametrize("key", ["", "mine"])
@pytest.mark.parametrize("first", ["__main__", "__mp_main__"])
def test_a_class_of_a_script_goes_on(tmp_path, monkeypatch, first, key):
    for module in (first, "__main__"):  # a worker process imports the script as __mp_main__
        monkeypatch.setattr(Pays, "__module__", module)
        monkeypatch.setattr(SignedReward, "__module__", module)
        with EpisodeStore(tmp_path / "store.jsonl") as store:
            job = Job(lambda: SignedReward(Pays(2.0)), 1, key=key)
            (episode,) = rollout([job], Guesses(), store=store, resume=True)
            assert len(store) == 1
            assert [each.name.partition(":")[0] for each in episode.task.wrappers] == ["__main__"]


def test_another_version_of_gem_is_another_run_whose_jobs_still_count(tmp_path, monkeypatch):
    with EpisodeStore(tmp_path / "store.jsonl") as store:
        rollout([Job(EASY, 1)], Guesses(), store=store)
        monkeypatch.setattr("gem.rollout.trials.versions", lambda: {"gem": "99"})
        agent = Guesses()
        found = rollout([Job(EASY, 1), Job(EASY, 2)], agent, store=store, resume=True)
        assert len({episode.run.id for episode in found}) == len(store.runs) == 2
        assert {each.split("-")[1] for each in agent.asked} == {found[1].job}


@pytest.mark.parametrize("reopened", [False, True])
def test_a_job_whose_line_is_damaged_is_played_again(reopened, tmp_path):
    path = tmp_path / "store.jsonl"
    jobs = [Job(EASY, 1), Job(EASY, 2)]
    store = EpisodeStore(path)
    first = rollout(jobs, Guesses(), store=store)
    entry = store.select()[1]
    with path.open("r+b") as file:
        file.seek(entry.start + 40)
        file.write(b"?" * 20)
    if reopened:
        store.close()
        store = EpisodeStore(path)
    with store:
        found = rollout(jobs, Guesses(), store=store, resume=True)
    assert [episode.scored for episode in found] == [True, True]
    assert found[0].id == first[0].id
    assert found[1].id != first[1].id or reopened  # an index that was made anew knows no damaged line's id


def test_an_endless_stream_hands_stored_episodes_on_as_it_is_asked_for_them(tmp_path):
    taken = []

    def jobs():
        for seed in range(10**9):
            taken.append(seed)
            yield Job(EASY, seed)

    with EpisodeStore(tmp_path / "store.jsonl") as store:
        rollout([Job(EASY, seed) for seed in range(50)], Guesses(), store=store)
        with Runner(Guesses(0), store=store, resume=True, concurrency=4) as runner:
            stream = runner.stream(jobs())
            seeds = [next(stream).seed for _ in range(40)]
            assert seeds == list(range(40))
            assert len(taken) <= 50
            stream.close()


def test_the_figures_are_those_of_an_evaluation_that_was_not_cut_off(tmp_path):
    env = Maker(EnvSpec("test:Flaky", Flaky))
    wanted = evaluate(Guesses(), env, episodes=30)
    Flaky.broke.clear()
    with EpisodeStore(tmp_path / "store.jsonl") as store:
        with pytest.raises(AgentUnavailable):
            evaluate(Guesses(40), env, episodes=30, store=store, resume=True, concurrency=4)
        assert 0 < len(store) < 30
        assert evaluate(Guesses(), env, episodes=30, store=store, resume=True) == wanted
        assert evaluate(Guesses(0), env, episodes=30, store=store, resume=True) == wanted
        more = evaluate(Guesses(), env, episodes=40, store=store, resume=True)
    Flaky.broke.clear()
    assert more == evaluate(Guesses(), env, episodes=40)


@pytest.mark.parametrize("store", [None, "store.jsonl", []])
def test_there_must_be_a_store_to_go_on_with(store):
    with pytest.raises(BadArgument, match="resume needs an EpisodeStore"):
        Runner(Guesses(), store=store, resume=True)
    with Runner(Guesses()) as runner, pytest.raises(BadArgument, match="a Runner has its own"):
        evaluate(runner, EASY, episodes=1, resume=True)


def test_without_it_the_same_jobs_are_another_run(tmp_path):
    with EpisodeStore(tmp_path / "store.jsonl") as store:
        for _ in range(2):
            rollout([Job(EASY, 1)], Guesses(), store=store)
        assert (len(store), len(store.runs)) == (2, 2)
        agent = Guesses()
        (found,) = rollout([Job(EASY, 1)], agent, store=store, resume=True)
        assert (found.run, agent.asked) == (store.runs[1], [])


def test_two_runs_at_once_do_not_go_on_with_one_store(tmp_path):
    agent, jobs = Guesses(), [Job(EASY, seed) for seed in range(4)]
    with EpisodeStore(tmp_path / "store") as one, EpisodeStore(tmp_path / "store") as other:
        rollout(jobs, agent, store=one, resume=True)
        asked = len(agent.asked)
        with pytest.raises(StoreError, match="another run resumes from"):
            rollout(jobs, agent, store=other, resume=True)
        assert (len(agent.asked), len(one)) == (asked, 4)


@pytest.mark.parametrize("folder", ["/root/.cache/gem-gym", "/data/c a c h e"])
def test_a_model_whose_folder_was_stored_is_read_by_its_name_and_goes_on(tmp_path, folder):
    before, after = (Guesses(model=model) for model in (f"{folder}/smollm2-b179c9523d0e-1", "smollm2"))
    jobs = [Job(EASY, seed) for seed in range(3)]
    with EpisodeStore(tmp_path / "e.jsonl") as store:
        rollout(jobs[:2], before, store=store)
    with EpisodeStore(tmp_path / "e.jsonl") as store:
        (run,) = store.runs
        assert run.model == "smollm2"
        assert len(rollout(jobs, after, store=store, resume=True)) == 3
    assert len({*after.asked}) == 1
    with EpisodeStore(tmp_path / "others.jsonl") as store:
        for model in ("/models/my-model", "org/name-b179c9523d0e-1", None):
            rollout(jobs[:1], Guesses(model=model), store=store)
        assert [run.model for run in store.runs] == ["/models/my-model", "org/name-b179c9523d0e-1", None]
