import pickle
from collections import defaultdict

import pytest

import gem
from gem.agents import RandomAgent, ScriptedAgent, SolverAgent
from gem.agents.base import BaseAgent
from gem.envs.seats.kuhn_poker import KuhnPoker
from gem.envs.seats.matrix_game import MatrixGame
from gem.errors import BadAction, BadArgument, EpisodeOver, ResetNeeded
from gem.record import Reply, StopReason
from gem.rollout import Job, rollout
from gem.seats import SeatedGame, SeatEnv
from gem.testing import garbage

BET, CHECK, FOLD = r"\boxed{bet}", r"\boxed{check}", r"\boxed{fold}"


class Spy(BaseAgent):
    def __init__(self, answer):
        self.answer, self.asks, self.forgotten = answer, [], []

    def __call__(self, asks):
        self.asks += asks
        return [Reply(self.answer) for _ in asks]

    def forget(self, episode):
        self.forgotten.append(episode)


def test_the_others_play_before_and_after():
    spy = Spy(BET)
    env = SeatEnv(KuhnPoker(), "player_1", spy)
    obs, _ = env.reset(seed=0)
    assert "You are player_1" in obs
    assert "player_0 bets" in obs
    step = env.step(FOLD)
    assert (step.reward, step.terminated, step.info["stop"]) == (-1.0, True, "failed")
    (ask,) = spy.asks
    assert (ask.seat, ask.turn) == ("player_0", 0)
    assert spy.forgotten == [ask.episode]
    with pytest.raises(EpisodeOver):
        env.step(FOLD)


@pytest.mark.parametrize(("agent", "name"), [(RandomAgent(), "random"), (SolverAgent(), "solver")])
def test_agents_that_the_game_plays_are_its_own_players(agent, name):
    def game(others):
        env = SeatEnv(MatrixGame(), "player_0", others)
        return env.reset(seed=3), [env.step(r"\boxed{defect}") for _ in range(3)]

    assert game(agent) == game({"player_1": agent}) == game(name)


class Toll(SeatedGame):
    """Each in turn says pay, and the first seat is paid; anything else forfeits."""

    seats = ("a", "b", "c")

    def deal(self):
        self.tell("a", "Pay.")

    def play(self, moves):
        ((player, text),) = moves.items()
        if text != "pay":
            self.forfeit(player, 1.0)
            return
        self.pay("a", {"a": 1.0, "b": 0.5, "c": 0.25}[player])
        self.selector.next()
        self.tell(self.selector.selected, "Pay.")


def test_what_a_seat_is_paid_while_others_move_is_added_to_its_step():
    env = SeatEnv(Toll(max_turns=9), "a", ScriptedAgent(lambda ask: "pay"))
    env.reset(seed=0)
    assert [env.step("pay").reward for _ in range(2)] == [1.75, 1.75]


def test_a_game_that_play_does_not_finish_ends_after_its_turns():
    game = Toll(max_turns=3)
    game.reset(seed=0)
    assert not game.step({"a": "pay"}).done
    assert not game.step({"b": "pay"}).done
    last = game.step({"c": "pay"})
    assert last.terminations == dict.fromkeys("abc", True)
    assert {info["stop"] for info in last.infos.values()} == {"turn_budget"}
    assert last.rewards["a"] == 0.25
    assert last.obs["a"].endswith("The game is over after 3 turns.")


def test_a_game_may_end_with_one_stop_for_all_seats():
    class Free(Toll):
        def play(self, moves):
            self.finish(defaultdict(lambda: StopReason.SOLVED))

    game = Free(max_turns=2)
    game.reset(seed=0)
    last = game.step({"a": "pay"})
    assert {last.infos[seat]["stop"] for seat in "abc"} == {"solved"}


def test_a_game_that_play_finishes_in_its_last_turn_keeps_its_stops():
    game = Toll(max_turns=1)
    game.reset(seed=0)
    last = game.step({"a": "no"})
    assert [last.infos[seat]["stop"] for seat in "abc"] == ["unreadable", "solved", "solved"]


@pytest.mark.parametrize(
    ("call", "accepted"),
    [
        (lambda game: game.tell("z", "hello"), "seat is 'z'; accepted: a, b, c"),
        (lambda game: game.pay("z", 1.0), "seat is 'z'; accepted: a, b, c"),
        (lambda game: game.note("z", move=1), "seat is 'z'; accepted: a, b, c"),
        (lambda game: game.forfeit("z", 1.0), "seat is 'z'; accepted: a, b, c"),
        (lambda game: game.finish({"a": StopReason.SOLVED}), "accepted: a StopReason for each of a, b, c"),
        (lambda game: game.finish(dict.fromkeys("abcd", StopReason.SOLVED)), "for each of a, b, c"),
        (lambda game: game.finish(dict.fromkeys("abc", "solved")), "accepted: a StopReason for each"),
        (lambda game: game.finish(StopReason.SOLVED), "accepted: a StopReason for each"),
    ],
)
def test_a_game_is_told_which_seats_and_stops_there_are(call, accepted):
    class Wrong(Toll):
        def play(self, moves):
            call(self)

    game = Wrong(max_turns=3)
    game.reset(seed=0)
    with pytest.raises(BadArgument, match=accepted):
        game.step({"a": "pay"})


def test_what_a_seat_is_paid_before_its_first_turn_is_added_to_its_first_step():
    class Bonus(Toll):
        def play(self, moves):
            self.pay("b", 0.75)
            super().play(moves)

    env = SeatEnv(Bonus(max_turns=9), "b", ScriptedAgent(lambda ask: "pay"))
    env.reset(seed=0)
    twin = env.fork()
    assert [env.step("pay").reward for _ in range(2)] == [3.0, 2.25]
    assert twin.step("pay").reward == 3.0


def test_a_fork_that_ends_leaves_the_caches_of_the_running_game():
    spy = Spy(BET)
    env = SeatEnv(KuhnPoker(), "player_1", spy)
    env.reset(seed=0)
    (asked,) = spy.asks
    twin = env.fork()
    assert twin.step(FOLD).done
    assert len(spy.forgotten) == 1
    assert asked.episode not in spy.forgotten
    assert env.step(FOLD).done
    assert spy.forgotten[1:] == [asked.episode]


def forfeit_with_a_jack():
    return ScriptedAgent(lambda ask: "no box" if "card is the jack" in ask.messages[0].text else BET)


def test_a_game_that_an_opponent_ends_first_counts_as_it_does_by_seats():
    def call():
        return ScriptedAgent(lambda ask: r"\boxed{call}")

    def game():
        return SeatEnv(KuhnPoker(), "player_1", forfeit_with_a_jack())

    jobs = [Job("multi:KuhnPoker-v0", seed) for seed in range(20)]
    by_seat = rollout(jobs, {"player_0": forfeit_with_a_jack(), "player_1": call()})
    alone = rollout([Job(game, seed) for seed in range(20)], call(), host="serial")
    assert all(episode.scored for episode in alone)
    assert [each.reward() for each in alone] == [each.reward("player_1") for each in by_seat]
    assert [each.success for each in alone] == [each.succeeded("player_1") for each in by_seat]
    early = [episode for episode in alone if not episode.turns]
    assert 0 < len(early) < 20
    assert "player_0 could not be read: it forfeits" in early[0].final_observation
    (played,) = rollout([Job(game, early[0].seed)], RandomAgent(), host="serial")
    assert (played.turns, played.reward()) == ([], early[0].reward())


def test_a_plain_loop_reads_a_game_that_ended_first_in_its_first_step():
    env = SeatEnv(KuhnPoker(), "player_1", forfeit_with_a_jack())
    while "stop" not in (start := env.reset()).info:
        pass
    assert start.info["stop"] == "solved"
    assert "forfeits the game" in start.obs
    assert env.sample_random_action() == env.solve() == ""
    twin = env.fork()
    for one in (env, twin):
        step = one.step("anything")
        assert (step.obs, step.reward, step.terminated, step.info["success"]) == (start.obs, 2.0, True, True)
        with pytest.raises(EpisodeOver):
            one.step("anything")
    assert "stop" not in SeatEnv(KuhnPoker(), "player_0").reset(seed=0).info


def test_an_episode_that_says_it_ended_but_goes_on_is_broken():
    class Says(gem.testing.EchoEnv):
        def reset(self, seed=None):
            return super().reset(seed)._replace(info={"stop": "solved"})

    (episode,) = rollout([Job(Says, 0)], Spy("hello"), host="serial", retries=0)
    assert not episode.scored
    assert "but the next step did not end" in episode.error.message


def test_what_a_seat_forfeits_is_shared_by_the_others():
    env = Toll(max_turns=9)
    env.reset(seed=0)
    step = env.step({"a": "no"})
    assert step.rewards == {"a": -1.0, "b": 0.5, "c": 0.5}
    stops = {agent: info["stop"] for agent, info in step.infos.items()}
    assert stops == {"a": "unreadable", "b": "solved", "c": "solved"}


def test_an_opponent_sees_its_whole_conversation():
    spy = Spy(r"\boxed{cooperate}")
    env = SeatEnv(MatrixGame(rounds=3), "player_0", {"player_1": spy})
    env.reset(seed=0)
    for _ in range(3):
        step = env.step(r"\boxed{defect}")
    assert step.terminated
    assert [len(ask.messages) for ask in spy.asks] == [1, 3, 5]
    assert "player_0 chose defect" in spy.asks[1].messages[-1].text
    assert len({ask.seed for ask in spy.asks}) == 3


def test_what_this_seat_samples_does_not_change_the_others():
    def game(ponder):
        env = SeatEnv(MatrixGame(), "player_0", "random")
        said = [env.reset(seed=4).obs]
        for _ in range(5):
            if ponder:
                env.sample_random_action()
                env.seed_actor(9)
            said.append(env.step(r"\boxed{defect}").obs)
        return said

    assert game(True) == game(False)


def test_it_is_an_env_with_a_spec_of_its_own():
    env = gem.make("multi:KuhnPoker-v0-vs-random")
    assert env.env_id == "multi:KuhnPoker-v0-vs-random"
    (episode,) = rollout([Job("multi:KuhnPoker-v0-vs-random", 2)], ScriptedAgent([BET, FOLD]))
    assert (episode.scored, episode.seats) == (True, ("agent",))
    twin = pickle.loads(pickle.dumps(env))
    assert twin.reset(seed=3) == env.reset(seed=3)
    assert env.spawn().reset(seed=3) == env.reset(seed=3)
    assert gem.make_vec("multi:KuhnPoker-v0-vs-random", num_envs=2).reset()[0]


def test_wrong_seats_players_and_calls_are_refused():
    with pytest.raises(BadArgument, match="accepted: player_0, player_1"):
        SeatEnv(KuhnPoker(), "dealer")
    with pytest.raises(BadArgument, match="a player is"):
        SeatEnv(KuhnPoker(), "player_0", "best")
    with pytest.raises(BadArgument, match="a player is"):
        SeatEnv(KuhnPoker(), "player_0", Spy)
    with pytest.raises(BadArgument, match="others play"):
        SeatEnv(KuhnPoker(), "player_0", {"player_0": "random"})
    with pytest.raises(BadArgument, match="SeatedEnv"):
        SeatEnv(gem.make("game:GuessTheNumber-v0-easy"), "agent")
    env = SeatEnv(KuhnPoker(), "player_0")
    with pytest.raises(ResetNeeded):
        env.step(BET)
    env.reset(seed=0)
    with pytest.raises(BadAction):
        env.step(None)
    with pytest.raises(BadArgument, match="only one seat"):
        gem.make("multi:KuhnPoker-v0-vs-solver", game="game:GuessTheNumber-v0-easy")


@pytest.mark.parametrize("form", range(len(garbage.REPLIES)))
def test_garbage_of_an_opponent_is_no_verdict(form):
    class Garbled(BaseAgent):
        def __call__(self, asks):
            return [garbage.REPLIES[form] for _ in asks]

    def game():
        return SeatEnv(KuhnPoker(), "player_1", Garbled())

    (episode,) = rollout([Job(game, 0)], Spy(BET), host="serial", retries=0)
    assert (episode.scored, episode.error.boundary) == (False, "env")
