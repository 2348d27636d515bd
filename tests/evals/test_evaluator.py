import asyncio
import json
import math
import threading
from dataclasses import replace

import numpy as np
import pytest
from records import episode, paid

from gem.agents.base import BaseAgent
from gem.agents.random import RandomAgent
from gem.agents.solver import SolverAgent
from gem.core import Env
from gem.envs.games.guess_the_number import GuessTheNumber
from gem.errors import BadArgument, NoSolver, NoVerdict, UnknownEnv
from gem.evals import EnvResult, Instances, evaluate, find_instances, required, success_rate, summarise
from gem.evals.results import find_successes_by_env
from gem.hosts import make_host
from gem.record import SEAT, AgentInfo, Failure, Limits, Reply, SeatEnd, StopReason, Verdict
from gem.registry import ENV_REGISTRY, EnvSpec, Maker, register
from gem.rollout import EpisodeStore, Job, Runner, rollout
from gem.specs import TaskRef
from gem.statistics import rate_interval, ratio_interval, wilson
from gem.testing.doubles import EchoEnv

ID = "game:GuessTheNumber-v0-easy"
EASY = Maker(ID)


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr("gem.registry.ENV_REGISTRY", ENV_REGISTRY.copy())


def played(stop, reward=0.0, error=None, **fields):
    return episode(*paid(reward), stop=stop, error=error, **fields)


BROKEN = played(StopReason.ERROR, None, Failure("host", "WorkerDied", "gone"))


# -- an agent on an environment


def test_the_solver_wins_and_random_play_does_not():
    best = evaluate(SolverAgent(), ID, episodes=50)
    chance = evaluate(RandomAgent(), ID, episodes=50)
    assert best.success.mean == 1.0
    assert best.reward.mean == pytest.approx(1.0)
    assert best.coverage == chance.coverage == 1.0
    assert chance.success.high < 0.8


def test_returns_that_are_all_1_have_the_interval_of_a_success_that_says_the_same():
    solved = summarise("test:X", [episode(*paid(1.0))] * 9)
    silent = summarise("test:X", [episode(*paid(1.0), stop=StopReason.ENDED)] * 9)
    assert solved.reward == solved.success == wilson(9, 9)
    assert (silent.success, silent.reward[:3]) == (None, (1.0, -math.inf, math.inf))


def test_the_same_seed_gives_the_same_figures():
    one = evaluate(RandomAgent(), ID, episodes=20, seed=3)
    other = evaluate(RandomAgent(), ID, episodes=20, seed=3)
    assert one == other != evaluate(RandomAgent(), ID, episodes=20, seed=4)


def test_an_environment_is_named_whatever_says_it():
    for env in (ID, EASY, TaskRef(ID), Maker(TaskRef(ID)), Maker(ENV_REGISTRY[ID])):
        assert evaluate(SolverAgent(), env, episodes=2).env == ID


def test_every_host_gives_the_same_figures():
    expected = evaluate(RandomAgent(), ID, episodes=12)
    assert evaluate(RandomAgent(), ID, episodes=12, host="thread") == expected
    with make_host("thread") as host:
        assert evaluate(RandomAgent(), ID, episodes=12, host=host, concurrency=3) == expected
        assert evaluate(RandomAgent(), ID, episodes=12, host=host) == expected  # it is still open


class Waiting(EchoEnv):
    """Goes on when as many episodes as there are stand at their first step."""

    together = threading.Barrier(4, timeout=30)

    def step(self, action):
        if self.turn == 0:
            self.together.wait()
        return super().step(action)


def test_environments_that_wait_do_so_together(registry):
    register(EnvSpec("test:Waiting", Waiting, waits=True, solver="exact"))
    assert evaluate(SolverAgent(), "test:Waiting", episodes=4).success.mean == 1.0


def test_a_runner_brings_agent_host_and_limits():
    done = []
    with Runner(RandomAgent(), limits=Limits(turns=2), host="thread", on_episode=done.append) as runner:
        found = evaluate(runner, ID, episodes=8)
        assert found == evaluate(RandomAgent(), ID, episodes=8, limits=Limits(turns=2))
        assert len(done) == 8
        assert found.turns <= 2
        assert evaluate(runner, ID, episodes=8) == found  # it lives on
        for twice in ({"limits": Limits()}, {"host": "serial"}, {"on_episode": print}):
            with pytest.raises(BadArgument, match="a Runner has its own"):
                evaluate(runner, ID, episodes=2, **twice)


def test_episodes_are_stored_and_reported_as_they_end(tmp_path):
    done = []
    with EpisodeStore(tmp_path / "store.jsonl") as store:
        found = evaluate(RandomAgent(), ID, episodes=6, store=store, on_episode=done.append)
        assert [each.transcript_hash() for each in store] == [each.transcript_hash() for each in done]
        assert summarise(ID, list(store)) == found


# -- figures


def test_an_episode_without_verdict_is_no_failure_but_lowers_the_bound():
    result = summarise("test:X", [played(StopReason.SOLVED, 1.0), BROKEN])
    assert result.success.mean == 1.0
    assert result.at_least == 0.5
    assert result.coverage == 0.5
    assert result.reward.mean == 1.0
    assert (result.errors, result.first_error) == ({"host: WorkerDied": 1}, "gone")


def test_nothing_is_made_up_where_nothing_was_scored():
    broken = played(StopReason.ERROR, None, Failure("env", "ValueError", "no"))
    result = summarise("test:X", [broken])
    assert result.success is result.reward is result.turns is result.turns_to_success is None
    told = "none of 1 episodes of test:X has a verdict: 1 times env: ValueError; the first said: no"
    with pytest.raises(NoVerdict, match=told):
        required(result)
    with pytest.raises(NoVerdict, match="none of 1 episodes of test:X has a verdict: all were cancelled"):
        required(summarise("test:X", [played(StopReason.CANCELLED)]))


def test_a_result_that_says_something_is_what_was_required():
    result = summarise("test:X", [played(StopReason.SOLVED, 1.0), BROKEN])
    assert required(result) is result


def test_a_cancelled_episode_enters_no_figure_but_lowers_coverage():
    cancelled = played(StopReason.CANCELLED, None)
    result = summarise("test:X", [played(StopReason.SOLVED, 1.0), cancelled])
    assert (result.success.mean, result.reward.mean) == (1.0, 1.0)
    assert (result.episodes, result.scored, result.cancelled, result.coverage) == (2, 1, 1, 0.5)
    assert (result.at_least, result.at_most) == (0.5, 1.0)
    assert (result.errors, result.boundaries) == ({}, {"cancelled": 1})
    assert summarise("test:X", [cancelled]).coverage == 0.0
    assert math.isnan(summarise("test:X", []).coverage)


def test_the_score_is_told_both_ways_and_where_verdicts_were_lost():
    lost = [
        *(played(StopReason.ERROR, None, Failure("env", kind, "")) for kind in ("NoVerdict", "ValueError")),
        *[played(StopReason.TIME_LIMIT, None, Failure("agent", "OutOfTime", ""), verdict=Verdict.NONE)] * 3,
        BROKEN,
        played(StopReason.CANCELLED, None),
    ]
    won = [played(StopReason.SOLVED, 1.0)] * 5
    result = summarise("test:X", [*won, *[played(StopReason.FAILED)] * 8, *lost])
    assert (result.success.mean, result.at_least, result.at_most) == (5 / 13, 5 / 20, 12 / 20)
    assert result.unscored == 7
    assert result.no_verdict == wilson(7, 20)
    by_task = summarise("test:X", [*won, *lost], clustered=True)
    assert by_task.no_verdict == rate_interval([0] * 5 + [1] * 7, [each.group for each in [*won, *lost]])
    assert result.boundaries == {"env": 2, "agent": 3, "host": 1, "cancelled": 1}
    assert result.errors["agent: OutOfTime"] == 3
    assert sum(result.boundaries.values()) == result.unscored


def test_a_result_says_who_played():
    assert evaluate(RandomAgent(), ID, episodes=2).agent == "RandomAgent"
    seats = {"player_0": SolverAgent(), "player_1": RandomAgent()}
    found = evaluate(seats, "multi:ConnectFour-v0", episodes=2)
    assert found.agent == "player_0=SolverAgent player_1=RandomAgent"


def test_a_result_of_an_earlier_version_is_read():
    stored = evaluate(RandomAgent(), ID, episodes=5).to_json()
    for name in (
        "at_most",
        "no_verdict",
        "agent",
        "boundaries",
        "unclear",
        "tasks",
        "seat",
        "constant_return",
    ):
        del stored[name]
    found = EnvResult.from_json(stored)
    assert (found.at_most, found.no_verdict, found.agent) == (None, None, "")
    assert found.scored == 5


def test_an_environment_that_does_not_say_has_no_success():
    result = summarise("test:X", [played(StopReason.ENDED, 0.5)])
    assert result.success is result.turns_to_success is None
    assert result.reward.mean == 0.5


def test_episodes_that_were_cut_are_no_lost_ones_where_none_says_success():
    silent = [played(StopReason.ENDED, 3.0)] * 3 + [played(StopReason.TURN_LIMIT, 5.0)] * 2
    result = summarise("test:X", silent)
    assert (result.success, result.at_least, result.at_most, result.unclear) == (None, None, None, 0)
    assert math.isnan(success_rate(silent))
    for broken_off in (StopReason.UNREADABLE, StopReason.TURN_BUDGET):  # no success, whoever gave the score
        assert summarise("test:X", [*silent, played(broken_off)]).success is None
    assert summarise("test:X", [*silent, played(StopReason.FAILED)]).success.mean == 0.0
    assert success_rate([*silent, played(StopReason.SOLVED)]) == 1 / 3


def test_each_environment_of_many_episodes_says_itself_whether_it_reports_success():
    stops = (StopReason.TURN_LIMIT, StopReason.ENDED, StopReason.SOLVED)
    silent = [played(stop, seed=seed) for seed, stop in enumerate(stops[:2])]
    telling = [replace(played(stop), task=TaskRef("game:Y", seed=seed)) for seed, stop in enumerate(stops)]
    mixed = [telling[0], silent[0], telling[1], silent[1], telling[2]]
    assert find_successes_by_env(mixed) == [False, None, None, None, True]


def test_episodes_that_do_not_say_success_are_in_its_bounds():
    won, silent = [played(StopReason.SOLVED, 1.0)] * 3, [played(StopReason.ENDED)] * 2
    result = summarise("test:X", [*won, played(StopReason.FAILED), *silent, BROKEN])
    assert (result.success.mean, result.success.n, result.unclear) == (0.75, 4, 2)
    assert (result.at_least, result.at_most) == (3 / 7, 6 / 7)
    assert EnvResult.from_json(result.to_json()) == result
    seats = [game(StopReason.SOLVED, StopReason.ENDED), game(StopReason.FAILED, StopReason.TURN_LIMIT)]
    assert summarise("test:X", seats).seats["o"].success is None


def game(x, o):
    ends = {"x": SeatEnd(x, True), "o": SeatEnd(o, True)}
    stop = x if x is o else StopReason.ENDED
    first, second = paid(1.0, 1.0, seat="x")
    return episode(first, *paid(-1.0, seat="o"), second, stop=stop, ends=ends)


def test_each_seat_has_figures_of_its_own():
    result = summarise("test:X", [game(StopReason.SOLVED, StopReason.FAILED)] * 3)
    assert result.success is None  # the seats fared differently
    assert (result.reward.mean, result.turns) == (0.5, 3)
    assert result.constant_return  # 0.5 in every episode, whatever the seats do
    x, o = result.seats["x"], result.seats["o"]
    assert (x.success.mean, x.reward.mean, x.turns) == (1.0, 2.0, 2)
    assert (o.success.mean, o.reward.mean, o.turns) == (0.0, -1.0, 1)
    both = summarise("test:X", [game(StopReason.SOLVED, StopReason.SOLVED)] * 3)
    assert both.success.mean == 1.0
    assert (both.reward.mean, both.constant_return) == (0.5, False)
    assert summarise("test:X", [played(StopReason.SOLVED)]).seats == {}


def test_a_measured_seat_has_the_main_figures():
    lost = game(StopReason.FAILED, StopReason.SOLVED)
    episodes = [game(StopReason.SOLVED, StopReason.FAILED), lost, replace(lost, sample=1), BROKEN]
    result = summarise("test:X", episodes, samples=2, seat="x", budget=5)
    assert (result.success, result.reward, result.turns) == (
        result.seats["x"].success,
        result.seats["x"].reward,
        2,
    )
    assert (result.at_least, result.at_most, result.seat) == (1 / 4, 2 / 4, "x")
    assert result.passes["pass@1"].mean == pytest.approx(1 / 3)
    assert result.turns_to_success.mean == pytest.approx((2 + 6 + 6) / 3)
    assert EnvResult.from_json(result.to_json()) == result
    with pytest.raises(BadArgument, match="accepted: one of test:X: x, o"):
        summarise("test:X", episodes, seat="red")


def test_a_result_comes_back_from_json():
    for result in (
        evaluate(RandomAgent(), ID, episodes=5),
        summarise("test:X", [game(StopReason.SOLVED, StopReason.FAILED), BROKEN]),
        summarise("test:X", [BROKEN]),
        summarise("test:X", [played(StopReason.SOLVED, 1.0)]),  # one alone has no bounds
    ):
        stored = json.loads(json.dumps(result.to_json(), allow_nan=False))
        assert EnvResult.from_json(stored) == result
        assert stored["coverage"] == result.coverage


# -- on instances


class Fixed(BaseAgent):
    """Says 1, 2, 3 ... in turn."""

    def __call__(self, asks):
        return [Reply(f"\\boxed{{{ask.turn + 1}}}") for ask in asks]


def measured(agent=None, *, samples=1, **how):
    instances = find_instances(EASY, seed=0)
    episodes = samples * len(instances.seeds)
    return evaluate(agent or Fixed(), EASY, instances=instances, episodes=episodes, **{"budget": 4, **how})


def test_figures_by_hand():
    """Saying 1, 2, 3, 4 wins four secrets of ten, after 1, 2, 3, 4 guesses; a lost game counts five."""
    found = measured(exactly=True)
    assert found.success == (0.4, 0.4, 0.4, 10, 10, True)
    assert not measured().success.exact
    assert found.turns_to_success.mean == (1 + 2 + 3 + 4 + 6 * 5) / 10
    assert found.coverage == 1.0
    assert measured(budget=None, exactly=True).turns_to_success is None
    short = measured(budget=2, limits=Limits(turns=2), exactly=True)
    assert short.turns_to_success.mean == (1 + 2 + 8 * 3) / 10
    assert EnvResult.from_json(found.to_json()) == found


class Counted(Fixed):
    """Counts 10 tokens an answer."""

    @property
    def info(self):
        return AgentInfo("Counted", "m")

    def __call__(self, asks):
        usage = {"prompt_tokens": 7, "completion_tokens": 3}
        return [replace(each, usage=usage) for each in super().__call__(asks)]


class Lost(Counted):
    """Never says a number."""

    def __call__(self, asks):
        return [replace(each, text="no") for each in super().__call__(asks)]


class Half(Counted):
    """Does not say how long its prompts were."""

    def __call__(self, asks):
        return [replace(each, usage={"completion_tokens": 3}) for each in super().__call__(asks)]


def test_what_a_success_took_by_hand():
    """Ten games take 1 + 2 + 3 + 4 + 6 * 4 turns of 10 tokens, and four are won."""
    found = measured(Counted(), exactly=True)
    assert found.tokens_per_success == (85.0, 85.0, 85.0, 10, 10, True)
    assert found.seconds_per_success.mean > 0
    sampled = measured(Counted()).tokens_per_success
    tokens, won = np.array([10, 20, 30, 40, *[40] * 6]), np.array([1, 1, 1, 1, *[0] * 6])
    assert sampled == ratio_interval(tokens.tolist(), won.tolist())
    assert (sampled.mean, sampled.low > 34) == (85, True)  # a game takes 34 tokens
    assert measured(Lost()).tokens_per_success is None
    assert measured(Half()).tokens_per_success is None
    assert measured(Half()).usage["m"].uncounted > 0


def test_deals_against_players_of_chance_are_not_all_there_is():
    """Six deals of Kuhn poker, each played once against a random player, are no exact figure."""
    instances = find_instances(Maker("multi:KuhnPoker-v0-vs-random"), seed=0)
    assert not instances.complete
    assert len(instances.seeds) > 100


def drawn(agent=None, samples=1):
    """Figures over the ten secrets as if they were some of many."""
    instances = find_instances(EASY, 0)._replace(complete=False)
    return evaluate(agent or Fixed(), EASY, instances=instances, episodes=10 * samples)


def test_samples_of_a_drawn_instance_are_one_cluster():
    once, again = drawn(), drawn(samples=5)
    assert (once.success.n, again.success.n, again.success.clusters) == (10, 50, 10)
    assert (
        again.success.low <= once.success.low < once.success.high <= again.success.high
    )  # nothing was learnt
    assert 0 <= once.success.low < once.success.mean < once.success.high <= 1


def test_instances_that_are_all_there_are_leave_play_alone_to_chance():
    once, again = measured(), measured(samples=5)
    assert (again.success.n, again.success.clusters) == (50, 50)
    assert once.success.low < again.success.low < again.success.high < once.success.high


def test_a_sample_that_always_succeeds_is_not_exact():
    found = drawn(SolverAgent(), samples=5)
    assert found.success.mean == found.success.high == 1.0
    assert found.success.low == pytest.approx(
        1 / (1 + 2.262157**2 / 10), abs=1e-6
    )  # t(0.975, 9), ten secrets
    assert not found.turns_to_success.exact
    assert measured(SolverAgent(), samples=5).success.low == pytest.approx(
        1 / (1 + 1.959964**2 / 50), abs=1e-6
    )


def test_results_of_before_there_was_exact_are_read():
    values = measured(exactly=True).to_json()
    del values["success"]["exact"]
    assert not EnvResult.from_json(values).success.exact


def test_episodes_are_rounded_up_to_as_many_of_each_instance():
    done = []
    found = evaluate(Fixed(), EASY, instances=find_instances(EASY, 0), episodes=11, on_episode=done.append)
    assert found.episodes == 20
    assert {each.group for each in done} == {str(number) for number in range(10)}
    assert len({(each.group, each.sample) for each in done}) == 20
    assert len({each.seed for each in done}) == 20  # several seeds deal each


def test_the_references():
    best = measured(SolverAgent(), exactly=True)
    assert (best.success.mean, best.turns_to_success.mean) == (1.0, 2.9)
    random = measured(RandomAgent(), samples=40)
    assert random.success.low < 1 - 0.9**4 < random.success.high


class Even(GuessTheNumber):
    def play(self, move):
        if self.secret % 2:
            raise OSError("gone")
        return super().play(move)


class Never(GuessTheNumber):
    def play(self, move):
        raise OSError("gone")


def test_episodes_without_verdict_are_told_and_not_counted(registry):
    for name, made in (("Even", Even), ("Never", Never)):
        register(EnvSpec(f"test:{name}", made, {"max_number": 10, "max_turns": 4}))
    maker = Maker("test:Even")
    how = {"episodes": 10, "budget": 4, "exactly": True}
    found = evaluate(Fixed(), maker, instances=find_instances(maker, 0), **how)
    assert found.coverage == 0.5
    assert found.success.mean == 2 / 5
    assert not found.success.exact  # half of the population was not counted
    assert found.success.low < 2 / 5 < found.success.high
    assert found.at_least == 2 / 10
    maker = Maker("test:Never")
    found = evaluate(Fixed(), maker, instances=find_instances(maker, 0), **how)
    with pytest.raises(
        NoVerdict, match=r"none of 10 episodes of test:Never has a verdict: 10 times env: OSError; .* gone"
    ):
        required(found)


class Silent(EchoEnv):
    """Ends without saying how."""

    def step(self, action):
        return super().step(action)._replace(info={})


def test_where_the_environment_does_not_say_success_is_unknown_and_not_0(registry):
    jobs = [Job(Silent, seed) for seed in range(3)]
    assert math.isnan(success_rate(rollout(jobs, SolverAgent())))
    register(EnvSpec("test:Silent", Silent))
    instances = Instances(((0,), (1,)), False)
    found = evaluate(SolverAgent(), Maker("test:Silent"), instances=instances, episodes=2, budget=3)
    assert found.success is found.turns_to_success is None
    assert found.coverage == 1.0


def test_success_rate_of_nothing_is_unknown():
    assert math.isnan(success_rate([]))
    assert success_rate([played(StopReason.SOLVED), played(StopReason.FAILED), BROKEN]) == 0.5


# -- what is refused


def test_an_agent_that_the_environment_has_not_is_refused(registry):
    class Mute(EchoEnv):
        sample_random_action = Env.sample_random_action

    register(EnvSpec("test:Mute", Mute))
    with pytest.raises(NoSolver, match=r"no random actor: Mute lacks sample_random_action\(\)"):
        evaluate(RandomAgent(), "test:Mute", episodes=3)


def test_bad_input_is_refused():
    with pytest.raises(BadArgument, match="episodes is 0"):
        evaluate(RandomAgent(), ID, episodes=0)
    with pytest.raises(UnknownEnv, match="Did you mean"):
        evaluate(RandomAgent(), "game:GuessTheNumber-v0-esy")
    with pytest.raises(BadArgument, match=f"the seats .*{SEAT}"):
        evaluate({SEAT: RandomAgent()}, "multi:ConnectFour-v0", episodes=1)


def test_jobs_that_wait_in_a_runner_are_not_counted_among_the_episodes():
    with Runner(RandomAgent()) as runner:
        runner.submit(Job(EASY, 1))
        with pytest.raises(BadArgument, match="1 jobs were submitted"):
            evaluate(runner, EASY, episodes=3)
        assert len(runner.play(())) == 1
        assert evaluate(runner, EASY, episodes=3).episodes == 3


def test_nobody_waits_for_the_slowest_answer_of_an_endpoint():
    """The others end and are handed on while its first answer is out."""
    ended, release = [], asyncio.Event()

    asked = []

    class FirstHangs(BaseAgent):
        async def ask(self, ask):
            asked.append(ask.episode)
            if len(asked) == 1:
                await release.wait()
            return Reply(r"\boxed{1}")

    def hear(episode):
        ended.append(episode.id)
        if len(ended) == 5:
            release.set()

    with FirstHangs() as agent:
        found = evaluate(agent, "game:GuessTheNumber-v0-easy", episodes=6, on_episode=hear, host="serial")
    assert (found.episodes, found.scored) == (6, 6)
    assert ended[-1] == asked[0]
