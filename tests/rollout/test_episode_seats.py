import asyncio
import math
from itertools import count

import pytest

from gem.agents import RandomAgent, ScriptedAgent, SeatAgents, SolverAgent
from gem.agents.base import BaseAgent, BatchBroken
from gem.envs.seats.kuhn_poker import KuhnPoker
from gem.envs.seats.matrix_game import MatrixGame
from gem.errors import BadArgument
from gem.record import Ask, Call, Limits, Reply, StopReason, Verdict
from gem.rollout import EpisodeStore, Job, rollout, rollout_async
from gem.rollout import drive as drive_generator
from gem.rollout import episode as module
from gem.rollout.conversation import carry_out
from gem.rollout.episode import play
from gem.seats import MultiStart, MultiStep, SeatedEnv

KUHN, MATRIX = "multi:KuhnPoker-v0", "multi:MatrixGame-v0"


class Relay(SeatedEnv):
    """a acts, then b, then a again; b is paid for what a does, c only watches, and b leaves early."""

    seats = ("a", "b", "c")

    def reset(self, seed=None):
        super().reset(seed)
        self.at = 0
        return MultiStart({"a": "go"}, {"a": {}, "b": {}, "c": {"note": 1}})

    def step(self, actions):
        self.at += 1
        over = self.at == 3
        gone = {"b"} if self.at >= 2 else set()
        live = [agent for agent in self.seats if agent in self.live]
        following = {1: {"b": "your turn"}, 2: {"b": "bye", "a": "again"}, 3: {"a": "end a", "c": "end c"}}
        return MultiStep(
            following[self.at],
            {agent: float(self.at) if agent != "a" else 0.5 for agent in live},
            {agent: over or agent in gone for agent in live},
            dict.fromkeys(live, False),
            {agent: {"success": agent == "b"} if over or agent in gone else {} for agent in live},
        )


class Pair(SeatedEnv):
    """Two seats that act at once, or as the steps that it is given say."""

    seats = ("a", "b")

    def __init__(self, *steps):
        self.steps = steps

    def reset(self, seed=None):
        super().reset(seed)
        self.at = 0
        return MultiStart({"a": "go", "b": "go"}, {"a": {}, "b": {}})

    def step(self, actions):
        self.at += 1
        return self.steps[self.at - 1]

    def random_action(self, seat):
        return "drawn"


def both(obs, a=False, b=False, truncated=(), infos=None):
    """Return a step of both seats; `a` and `b`: whether their tasks ended."""
    cut = {seat: seat in truncated for seat in "ab"}
    return MultiStep(obs, {"a": 1.0, "b": 1.0}, {"a": a, "b": b}, cut, infos or {"a": {}, "b": {}})


def drive(env, answer, **kwargs):
    """Play with a function from asks to replies; return the episode and the batches of asks."""
    playing, batches = play(env, 7, **kwargs), []
    resume, value = playing.send, None
    while True:
        try:
            wanted = resume(value)
        except StopIteration as end:
            return end.value, batches
        resume = playing.send
        try:
            if isinstance(wanted, Call):
                value = getattr(env, wanted.verb)(*wanted.args)
            else:
                batches.append(wanted)
                value = tuple(map(answer, wanted))
        except Exception as error:
            resume, value = playing.throw, error


def test_all_who_act_at_once_are_asked_at_once():
    env = MatrixGame(rounds=2)
    episode, batches = drive(env, lambda ask: Reply(r"\boxed{cooperate}"))
    assert [[ask.seat for ask in asks] for asks in batches] == [["player_0", "player_1"]] * 2
    assert [turn.seat for turn in episode.turns] == ["player_0", "player_1"] * 2
    assert len({ask.seed for asks in batches for ask in asks}) == 4
    assert (episode.stop, episode.terminated, episode.scored) == (StopReason.SOLVED, True, True)
    assert episode.reward("player_0") == episode.reward("player_1") == episode.reward() == pytest.approx(0.6)


def test_who_takes_turns_is_asked_alone_and_sees_its_own_conversation_alone():
    episode, batches = drive(KuhnPoker(), lambda ask: Reply(r"\boxed{bet}" if ask.turn == 0 else "?"))
    assert [[ask.seat for ask in asks] for asks in batches] == [["player_0"], ["player_1"]]
    (ask,) = batches[1]
    assert ask.turn == 0
    assert len(ask.messages) == 1
    assert "You are player_1" in ask.messages[0].text
    assert "player_0 bets" in ask.messages[0].text
    assert episode.succeeded("player_0") is True
    assert episode.ends["player_1"].stop is StopReason.UNREADABLE


def test_what_a_seat_is_paid_between_its_turns_stands_in_the_turn_before():
    episode, _ = drive(Relay(), lambda ask: Reply("x"))
    assert [(turn.seat, turn.reward) for turn in episode.turns] == [("a", 1.0), ("b", 2.0), ("a", 0.5)]
    assert episode.ends["b"].unearned == 1.0  # paid in step 1, before its first turn
    assert [episode.reward(seat) for seat in "abc"] == [1.5, 3.0, 6.0]
    assert episode.seats == ("a", "b", "c")
    assert [episode.succeeded(seat) for seat in "abc"] == [False, True, False]
    assert (episode.stop, episode.success) == (StopReason.ENDED, None)
    assert {seat: end.observation for seat, end in episode.ends.items()} == {
        "a": "end a",
        "b": "bye",
        "c": "end c",
    }
    assert episode.initial_info["c"] == {"note": 1, "success": False}


def test_a_limit_cuts_off_those_who_still_play():
    episode, _ = drive(Relay(), lambda ask: Reply("x"), limits=Limits(turns=2))
    assert (episode.stop, episode.truncated, episode.scored) == (StopReason.TURN_LIMIT, True, True)
    assert episode.ends["b"].stop is StopReason.SOLVED
    assert (episode.ends["a"].stop, episode.ends["a"].truncated) == (StopReason.TURN_LIMIT, True)
    assert episode.ends["a"].observation == "again"


def test_tokens_that_are_left_are_shared_by_those_who_act_at_once():
    def answer(ask):
        return Reply(r"\boxed{defect}", (1,), (2,) * ask.max_tokens, (-0.1,) * ask.max_tokens)

    episode, batches = drive(MatrixGame(), answer, limits=Limits(tokens=10))
    assert [ask.max_tokens for ask in batches[0]] == [5, 5]
    assert episode.stop is StopReason.TOKEN_LIMIT


def test_a_seat_whose_prompt_no_longer_fits_ends_the_episode_and_the_round_is_not_recorded():
    def answer(ask):
        full = ask.seat == "player_1" and ask.turn == 1
        return Reply("", finish="context") if full else Reply(r"\boxed{defect}")

    episode, _ = drive(MatrixGame(), answer)
    assert (episode.stop, len(episode.turns)) == (StopReason.CONTEXT_LIMIT, 2)


def test_one_seat_whose_prompt_no_longer_fits_is_enough_whoever_answers_after_it():
    episode, _ = drive(Pair(), lambda ask: Reply("", finish="context" if ask.seat == "a" else "stop"))
    assert (episode.stop, episode.scored, episode.turns) == (StopReason.CONTEXT_LIMIT, True, [])


def test_a_seat_may_always_generate_one_token_where_any_is_left():
    _, batches = drive(Pair(), lambda ask: Reply("", finish="context"), limits=Limits(tokens=1))
    assert [ask.max_tokens for ask in batches[0]] == [1, 1]


def test_a_seat_that_ends_needs_no_observation():
    last = MultiStep({}, {"a": 1.0}, {"a": True}, {"a": False}, {"a": {}})
    episode, batches = drive(Pair(both({"a": "again"}, b=True), last), lambda ask: Reply("x"))
    assert [[ask.seat for ask in asks] for asks in batches] == [["a", "b"], ["a"]]
    assert (episode.error, episode.terminated, episode.scored) == (None, True, True)
    assert (episode.ends["a"].observation, episode.ends["b"].observation) == ("again", "go")


def test_a_limit_that_ends_one_seat_is_the_stop_of_the_episode():
    step = both({}, a=True, truncated="b", infos={"a": {"success": True}, "b": {"stop": "time_limit"}})
    episode, _ = drive(Pair(step), lambda ask: Reply("x"))
    assert [end.stop for end in episode.ends.values()] == [StopReason.SOLVED, StopReason.TIME_LIMIT]
    assert (episode.stop, episode.scored) == (StopReason.TIME_LIMIT, True)


def test_info_between_a_seats_turns_is_added_to_that_of_its_turn_before():
    alone = both({"a": "again"}, infos={"a": {}, "b": {"one": 1, "two": 1}})
    after = both({}, a=True, b=True, infos={"a": {}, "b": {"two": 2}})
    episode, _ = drive(Pair(alone, after), lambda ask: Reply("x"))
    assert [turn.info for turn in episode.turns_of("b")] == [{"one": 1, "two": 2}]
    assert episode.ends["b"].info == {"two": 2}


def test_actions_come_in_the_order_of_the_seats_whoever_answers_first():
    """The actor is called after the agents have answered."""
    actions = []

    def call(wanted):
        if wanted.verb == "step":
            actions.append(list(wanted.args[0].items()))
        return carry_out(wanted)

    playing = play(Pair(both({}, a=True, b=True)), 7, actor={"a": "sample_random_action"})
    drive_generator(playing, call, lambda asks: [Reply("x") for _ in asks])
    assert actions == [[("a", "drawn"), ("b", "x")]]


def test_seats_that_answer_together_share_the_seconds(monkeypatch):
    monkeypatch.setattr(module, "perf_counter", count().__next__)  # each look at the clock takes a second
    episode, _ = drive(Pair(both({}, a=True, b=True)), lambda ask: Reply("x"))
    assert [turn.timing["policy_s"] for turn in episode.turns] == [0.5, 0.5]
    assert [turn.timing["env_s"] for turn in episode.turns] == [1, 1]
    assert episode.timing == {"reset_s": 1, "policy_s": 1.0, "env_s": 1, "wall_s": 6}


def test_an_agent_that_breaks_takes_the_verdict_of_all_and_leaves_no_half_turn():
    def answer(ask):
        if ask.seat == "player_1":
            raise ValueError("gone")
        return Reply(r"\boxed{defect}")

    episode, _ = drive(MatrixGame(), answer)
    assert (episode.verdict, episode.error.boundary, episode.turns) == (Verdict.NONE, "agent", [])
    assert math.isnan(episode.reward("player_0"))
    assert all(end.truncated and end.stop is StopReason.ERROR for end in episode.ends.values())


def test_held_tokens_belong_to_each_seat():
    asks = []

    class Tokens(BaseAgent):
        def __call__(self, batch):
            asks.extend(batch)
            mark = {"player_0": 100, "player_1": 200}
            return [
                Reply(r"\boxed{defect}", (*ask.held, mark[ask.seat]), (mark[ask.seat] + 1,), (-0.5,))
                for ask in batch
            ]

    (episode,) = rollout([Job(MATRIX, 1)], Tokens())
    assert [ask.held for ask in asks if ask.seat == "player_1"][1] == (200, 201)
    assert all(set(turn.prompt_ids) <= {200, 201} for turn in episode.turns_of("player_1")[1:2])


@pytest.mark.system
def test_every_driver_and_host_gives_the_same_episodes():
    games = (KUHN, MATRIX, "multi:Negotiation-v0", "multi:ServiceDesk-v0")
    jobs = [Job(env_id, seed, sample=seed % 2) for env_id in games for seed in range(4)]
    runs = [rollout(jobs, RandomAgent(), host=host) for host in ("serial", "thread", "process")]
    runs.append(asyncio.run(rollout_async(jobs, RandomAgent())))
    runs.append(rollout(jobs, RandomAgent(), concurrency=1))
    hashes = [[episode.transcript_hash() for episode in run] for run in runs]
    assert all(episode.scored for run in runs for episode in run)
    assert all(each == hashes[0] for each in hashes)
    assert len(set(hashes[0])) > 8


@pytest.mark.parametrize("how", ["batched", "async"])
def test_a_mapping_gives_each_seat_its_agent(how):
    folder = ScriptedAgent(
        lambda ask: r"\boxed{fold}" if "bets" in ask.messages[-1].text else r"\boxed{check}"
    )
    agents = {"player_0": ScriptedAgent(lambda ask: r"\boxed{bet}"), "player_1": folder}
    jobs = [Job(KUHN, seed) for seed in range(5)]
    if how == "batched":
        episodes = rollout(jobs, agents)
    else:
        episodes = asyncio.run(rollout_async(jobs, agents))
    assert [episode.reward("player_0") for episode in episodes] == [1.0] * 5


def test_an_agent_may_play_against_the_environments_own():
    episodes = rollout(
        [Job(KUHN, seed) for seed in range(30)],
        {"player_0": ScriptedAgent(lambda ask: r"\boxed{bet}"), "player_1": SolverAgent()},
    )
    assert all(episode.scored for episode in episodes)
    assert {turn.action for episode in episodes for turn in episode.turns_of("player_1")} == {
        r"\boxed{fold}",
        r"\boxed{call}",
    }


def test_one_model_in_several_seats_is_asked_once_for_all_of_them():
    class Counting(BaseAgent):
        def __init__(self):
            self.batches, self.forgotten = [], []

        def __call__(self, asks):
            self.batches.append(len(asks))
            return [Reply(r"\boxed{defect}") for _ in asks]

        def forget(self, episode):
            self.forgotten.append(episode)

    model = Counting()
    rollout([Job(MATRIX, seed) for seed in range(3)], {"player_0": model, "player_1": model})
    assert model.batches == [6] * 5
    assert len(model.forgotten) == 3


def test_asks_of_several_seats_are_answered_in_their_order_by_one_batch_of_each_agent():
    batches = []

    class Named(BaseAgent):
        def __init__(self, name):
            self.name = name

        def __call__(self, asks):
            batches.append((self.name, [ask.seat for ask in asks]))
            return [Reply(f"{self.name} {ask.seat}") for ask in asks]

    x, y = Named("x"), Named("y")
    both = SeatAgents({"a": x, "b": y, "c": x})
    asks = [Ask("e", seat, 0, ()) for seat in "abcba"]
    assert [reply.text for reply in both(asks)] == ["x a", "y b", "x c", "y b", "x a"]
    assert batches == [("x", ["a", "c", "a"]), ("y", ["b", "b"])]
    broken = SeatAgents({"a": x, "b": ScriptedAgent(lambda ask: 1 / 0)})
    with pytest.raises(BatchBroken) as raised:
        broken([Ask("e", "b", 0, ()), Ask("e", "a", 0, ())])
    assert [type(answer) for answer in raised.value.answers] == [ZeroDivisionError, Reply]
    with pytest.raises(BadArgument, match="seat 'c' has no agent"):
        broken([Ask("e", "c", 0, ())])


def test_who_is_missing_or_too_many_is_told_before_anything_is_played():
    with pytest.raises(BadArgument, match="hold the seats"):
        rollout([Job(KUHN, 0)], {"player_0": RandomAgent()})
    with pytest.raises(BadArgument, match="hold the seats"):
        rollout([Job(KUHN, 0)], {"player_0": RandomAgent(), "player_1": RandomAgent(), "x": RandomAgent()})
    with pytest.raises(BadArgument, match="accepted: an Agent"):
        SeatAgents({"player_0": "random"})
    with pytest.raises(BadArgument, match="empty"):
        SeatAgents({})


def test_the_store_keeps_the_ends(tmp_path):
    (episode,) = rollout([Job(KUHN, 3)], SolverAgent())
    with EpisodeStore(tmp_path / "episodes.jsonl") as store:
        store.append(episode)
        kept = store[0]
    assert kept.ends == episode.ends
    assert kept.transcript_hash() == episode.transcript_hash()
    assert kept == episode
