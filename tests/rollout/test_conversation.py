import asyncio
import dataclasses
from functools import partial

import pytest

import gem
from gem.agents.random import RandomAgent
from gem.agents.scripted import ScriptedAgent
from gem.core import Env, Start, Step
from gem.envs.seats.kuhn_poker import KuhnPoker
from gem.envs.seats.matrix_game import MatrixGame
from gem.errors import BadArgument, EnvClosed, UnknownEnv
from gem.history import LAST
from gem.record import Limits, Reply, RunInfo, StopReason
from gem.registry import ENV_REGISTRY, EnvSpec
from gem.rollout import Branch, Conversation, Job, drive, drive_async, play, rollout
from gem.rollout.conversation import carry_out
from gem.specs import TaskRef
from gem.testing.doubles import EchoEnv

EASY = "game:GuessTheNumber-v0-easy"


def guess(ask):
    """Answer with a number that follows from the ask's seed, and with tokens."""
    prompt = (*ask.held, *(len(message.text) for message in ask.messages[len(ask.messages) - ask.fresh :]))
    number = ask.seed % 10 + 1
    return Reply(f"\\boxed{{{number}}}", prompt, (1000 + number, ask.seat == "player_1"), (-0.5, -0.25))


def talked(talk, answer=guess):
    """The episode of a conversation that is gone on with to its end."""
    with talk:
        while talk.asks:
            talk.answer(*map(answer, talk.asks))
    return talk.episode


def told(episode):
    """All that an episode holds but when and in which run it was played."""
    turns = [dataclasses.replace(turn, timing={}) for turn in episode.turns]
    links = [turn.parent and episode.turns.index(turn.parent) for turn in episode.turns]
    return dataclasses.replace(episode, run=None, job="", turns=turns, timing={}), links


def rollout_of(seed, **how):
    (episode,) = rollout([Job(EASY, seed)], ScriptedAgent(guess), **how)
    return episode


# -- the same episode, whoever owns the loop


@pytest.mark.parametrize("limits", [Limits(), Limits(turns=2), Limits(tokens=3, turn_tokens=2)])
@pytest.mark.parametrize("history", [None, LAST])
def test_a_conversation_is_the_episode_that_a_rollout_plays(limits, history):
    for seed in range(5):
        expected = rollout_of(seed, limits=limits, history=history)
        assert told(talked(Conversation(EASY, seed, limits, history=history))) == told(expected)


def test_driving_is_the_episode_that_a_rollout_plays():
    async def call(wanted):
        await asyncio.sleep(0)
        return carry_out(wanted)

    async def ask(asks):
        await asyncio.sleep(0)
        return [guess(each) for each in asks]

    for seed in range(5):
        expected = told(rollout_of(seed))
        with gem.make(EASY) as env:
            assert told(drive(play(env, seed), ask=lambda asks: list(map(guess, asks)))) == expected
            assert told(asyncio.run(drive_async(play(env, seed), call, ask))) == expected


@pytest.mark.parametrize(
    ("game", "move"), [(MatrixGame, "cooperate"), (KuhnPoker, "check")], ids=["at once", "in turn"]
)
def test_every_seat_that_acts_is_asked(game, move):
    moments = []

    def answer(ask):
        moments.append(ask.seat)
        return dataclasses.replace(guess(ask), text=f"\\boxed{{{move}}}")

    (expected,) = rollout([Job(game, 3)], ScriptedAgent(answer))
    assert moments == [turn.seat for turn in expected.turns]
    assert set(moments) == {"player_0", "player_1"}
    assert told(talked(Conversation(game(), 3), answer)) == told(expected)
    assert moments == 2 * [turn.seat for turn in expected.turns]


def test_the_environments_own_actor_needs_nobody_to_ask():
    with gem.make(EASY) as env:
        assert drive(play(env, 3, actor="solve")).success
        with pytest.raises(BadArgument, match="a function that answers"):
            drive(play(env, 3))


# -- answering


def test_answers_may_be_plain_text_and_the_next_asks_are_returned():
    with Conversation(EASY, 3) as talk:
        first = talk.asks
        assert [message.role for message in first[0].messages] == ["user"]
        second = talk.answer("no number at all \\boxed{1}")
        assert second == talk.asks != first
        assert [message.text for message in second[0].messages][1] == "no number at all \\boxed{1}"


@pytest.mark.parametrize("count", [0, 1, 3])
def test_another_number_of_replies_is_refused_and_changes_nothing(count):
    with Conversation(MatrixGame(), 0) as talk:
        asks = talk.asks
        with pytest.raises(BadArgument, match=f"got {count} replies to 2 asks; one each, in order"):
            talk.answer(*["\\boxed{stag}"] * count)
        assert talk.asks == asks
        assert not talk.done
        assert len(talk.answer(*map(guess, asks))) in (0, 2)


def test_what_was_earned_is_told_at_any_time():
    with Conversation(EchoEnv(4), 0) as talk:
        earned = [talk.reward]
        while talk.asks:
            talk.answer(talk.asks[0].messages[-1].text.strip("Say .") if len(earned) != 2 else "wrong")
            earned.append(talk.reward)
    assert earned == [0.0, 0.25, 0.25, 0.5, 0.75]
    assert talk.episode.reward() == 0.75


def test_an_episode_that_is_over_takes_no_answer():
    with Conversation(EASY, 3, Limits(turns=1)) as talk:
        assert talk.answer(*map(guess, talk.asks)) == ()
        assert (talk.done, talk.asks) == (True, ())
        assert talk.episode.stop is StopReason.TURN_LIMIT
        with pytest.raises(EnvClosed, match="the episode is over"):
            talk.answer("x")
        talk.cancel()
        talk.fail(ValueError())
        talk.out_of_time()
        assert talk.episode.stop is StopReason.TURN_LIMIT


# -- ends from outside


@pytest.mark.parametrize(
    ("end", "stop", "scored"),
    [
        (lambda talk: talk.fail(OSError("the model is gone")), StopReason.ERROR, False),
        (lambda talk: talk.fail(StopIteration("empty")), StopReason.ERROR, False),
        (lambda talk: talk.cancel(), StopReason.CANCELLED, False),
        (lambda talk: talk.close(), StopReason.CANCELLED, False),
        (lambda talk: talk.out_of_time(), StopReason.TIME_LIMIT, False),
    ],
)
def test_whoever_owns_the_loop_may_end_the_episode(end, stop, scored):
    with Conversation(EASY, 3) as talk:
        talk.answer(r"\boxed{1}")
        end(talk)
        assert talk.done
        assert talk.asks == ()
        episode = talk.episode
        assert (episode.stop, episode.scored, episode.truncated) == (stop, scored, True)
        assert len(episode.turns) == 1  # what was asked and not answered is no turn
        assert episode.turns[0].reward is not None
        assert episode.final_observation
        if stop is StopReason.ERROR:
            assert episode.error.boundary == "agent"
            assert episode.error.message in ("the model is gone", "the agent raised StopIteration: empty")


class Breaking(Env):
    """Raises what it is told to: at reset, or at its second step."""

    def __init__(self, at, error):
        self.at, self.error = at, error

    def reset(self, seed=None):
        super().reset(seed)
        self.steps = 0
        if self.at == "reset":
            raise self.error
        return Start("go", {})

    def step(self, action):
        self.steps += 1
        if self.steps == 2:
            raise self.error
        return Step("on", 1.0, False, False, {})


@pytest.mark.parametrize(("at", "turns"), [("reset", 0), ("step", 2)])
@pytest.mark.parametrize("kind", [OSError, StopIteration, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_an_environment_that_breaks_ends_the_episode_and_does_not_raise(at, turns, kind):
    error = kind("gone")
    talk = Conversation(Breaking(at, error), 0)
    while talk.asks:
        talk.answer("a")
    assert talk.done
    assert (talk.episode.stop, talk.episode.scored) == (StopReason.ERROR, False)
    assert talk.episode.error.boundary == "env"
    assert "gone" in talk.episode.error.message
    assert len(talk.episode.turns) == turns
    driven = drive(play(Breaking(at, error), 0), ask=lambda asks: [Reply("a")])
    (played,) = rollout([Job(partial(Breaking, at, error), 0)], ScriptedAgent(lambda ask: Reply("a")))
    assert talk.episode.error == driven.error == played.error


def test_an_environment_may_run_an_event_loop_where_a_task_converses():
    class Looping(EchoEnv):
        def step(self, action):
            return asyncio.run(self._step(action))

        async def _step(self, action):
            return super().step(action)

    async def converse():
        with Conversation(Looping(), 0) as talk:
            while talk.asks:
                talk.answer("a")
            return talk.episode

    assert asyncio.run(converse()).scored


def test_ctrl_c_in_an_environment_goes_on_to_the_caller():
    talk = Conversation(Breaking("step", KeyboardInterrupt()), 0)
    talk.answer("a")
    with pytest.raises(KeyboardInterrupt):
        talk.answer("a")
    assert talk.done
    assert talk.asks == ()
    assert not talk.episode.scored


def test_ctrl_c_while_driving_goes_on_to_the_caller():
    playing = play(Breaking("step", KeyboardInterrupt()), 0)
    with pytest.raises(KeyboardInterrupt):
        drive(playing, ask=lambda asks: [Reply("a")])
    with pytest.raises(StopIteration):
        next(playing)


@pytest.mark.parametrize("replies", [[], [Reply("a")] * 2, None, [Reply(None)]])
def test_answers_that_do_not_fit_give_no_verdict(replies):
    episode = drive(play(EchoEnv(), 0), ask=lambda asks: replies)
    assert (episode.stop, episode.scored) == (StopReason.ERROR, False)
    assert episode.error.boundary == "agent"
    assert episode.turns == []


def test_a_cancelled_ask_cancels_its_episode_and_a_cancelled_task_itself():
    async def main():
        async def call(wanted):
            return carry_out(wanted)

        async def gives_up(asks):
            raise asyncio.CancelledError

        async def hangs(asks):
            asked.set()
            await asyncio.Event().wait()

        episode = await drive_async(play(EchoEnv(), 0), call, gives_up)
        assert (episode.stop, episode.scored) == (StopReason.CANCELLED, False)
        asked = asyncio.Event()
        playing = play(EchoEnv(), 0)
        task = asyncio.ensure_future(drive_async(playing, call, hangs))
        await asyncio.wait_for(asked.wait(), 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(StopIteration):
            next(playing)

    asyncio.run(main())


# -- the environment and the record


class Closing(EchoEnv):
    closed = 0

    def close(self):
        super().close()
        type(self).closed += 1


def test_an_environment_is_closed_by_whoever_made_it(monkeypatch):
    monkeypatch.setattr(Closing, "closed", 0)
    with Closing() as env:
        with Conversation(env, 0) as talk:
            talk.answer("a")
        assert Closing.closed == 0
        assert talk.episode.stop is StopReason.CANCELLED
    Closing.closed = 0
    monkeypatch.setitem(ENV_REGISTRY, "test:Closing", EnvSpec("test:Closing", Closing, {"turns": 1}))
    talk = Conversation("test:Closing", 0)
    talk.answer("a")
    assert (talk.episode.stop, Closing.closed) == (StopReason.FAILED, 0)
    talk.close()
    talk.close()
    assert Closing.closed == 1


def test_what_cannot_be_made_is_told():
    with pytest.raises(UnknownEnv):
        Conversation("game:Nothing-v0", 0)
    with pytest.raises(BadArgument, match="seed"):
        Conversation(EASY, -1)


def test_ctrl_c_at_the_beginning_closes_what_was_made(monkeypatch):
    class Interrupted(Closing):
        def reset(self, seed=None):
            raise KeyboardInterrupt

    monkeypatch.setitem(ENV_REGISTRY, "test:Interrupted", EnvSpec("test:Interrupted", Interrupted))
    with pytest.raises(KeyboardInterrupt):
        Conversation("test:Interrupted", 0)
    assert Interrupted.closed == 1


class InParts(EchoEnv):
    """Says what its rewards are made of, in a mapping that it goes on using."""

    def reset(self, seed=None):
        self.parts = {"form": 0.0}
        return super().reset(seed)

    def step(self, action):
        step = super().step(action)
        self.parts["form"] = float(self.turn)
        self.parts["right"] = step.reward
        return step._replace(info={**step.info, "rewards": self.parts})


def test_named_parts_of_a_reward_stand_at_their_turn():
    first, second, third = talked(Conversation(InParts(3), 0), lambda ask: Reply("wrong")).turns
    assert first.rewards == {"form": 1.0, "right": 0.0}
    assert second.rewards == {"form": 2.0, "right": 0.0}
    assert third.rewards == {"form": 3.0, "right": 0.0}


@pytest.mark.parametrize(
    ("said", "parts"),
    [({"luck": 0.5}, [{"luck": 1.0}, {"luck": 0.5}]), ({"of": [1, 2]}, [None, None]), ("much", [None, None])],
)
def test_named_parts_of_what_others_did_are_added_to_the_turn_before(said, parts):
    def call(wanted):
        """Tell every seat, after every move, what it was paid for; or something else by that name."""
        step = carry_out(wanted)
        if wanted.verb == "reset":
            return step
        return step._replace(infos={seat: {**info, "rewards": said} for seat, info in step.infos.items()})

    episode = talked(Conversation(KuhnPoker(), 3, call=call), lambda ask: Reply(r"\boxed{check}"))
    assert episode.scored
    assert [turn.rewards for turn in episode.turns] == parts


def test_the_record_says_what_was_played_and_how():
    run = RunInfo("mine", agent="me")
    how = {"run": run, "job": "j", "sample": 2, "group": "g", "salt": 5}
    with Conversation(TaskRef(EASY, {"max_turns": 2}), 3, **how) as talk:
        episode = talk.episode
        assert (episode.id, episode.run, episode.group, episode.salt) == ("mine-j-2-0", run, "g", 5)
        assert (episode.spec, episode.kwargs["max_turns"], episode.seed) == (EASY, 2, 3)
        assert talk.asks[0].episode == episode.id
        plain = Conversation(EASY, 3)
        assert plain.asks[0].seed != talk.asks[0].seed
        assert plain.episode.run.limits == Limits()
        plain.close()


def test_calls_are_carried_out_by_whom_the_caller_names():
    verbs = []

    def call(wanted):
        verbs.append(wanted.verb)
        return carry_out(wanted)

    talked(Conversation(EchoEnv(2), 0, call=call))
    assert verbs == ["reset", "step", "step"]


# -- branches


def whole_episode(seed=3, **how):
    """An episode of four turns, and the environment's state before each of them."""
    states = []
    with gem.make(EASY) as env:

        def call(wanted):
            if wanted.verb == "step":
                states.append(env.get_state())
            return carry_out(wanted)

        episode = talked(Conversation(env, seed, call=call, **how))
    assert len(episode.turns) == len(states) == 4
    return episode, states


@pytest.mark.parametrize("how", ["replayed", "restored"])
@pytest.mark.parametrize("turns", [0, 1, 3])
def test_a_branch_that_goes_on_likewise_is_the_same_episode(how, turns):
    whole, states = whole_episode()
    state = states[turns] if how == "restored" else None
    for _ in range(2):  # a state can be restored again and again
        again = talked(Conversation(EASY, 3, start=Branch(whole, turns, state)))
        assert again.transcript_hash() == whole.transcript_hash()
        assert [turn.prompt_ids for turn in again.turns] == [turn.prompt_ids for turn in whole.turns]
        assert [turn.token_ids for turn in again.turns] == [turn.token_ids for turn in whole.turns]
        assert [turn.kept for turn in again.turns] == [turn.kept for turn in whole.turns]
        assert [turn.info for turn in again.turns] == [turn.info for turn in whole.turns]
        learned = [turn.mask for turn in again.turns]
        assert learned == [b"\0\0"] * turns + [b"\1\1"] * (4 - turns)
        assert (again.origin.episode, again.origin.turns) == (whole.id, turns)
    assert whole.origin is None


class Counts(Env):
    """Four steps, each with info and a named reward of its own."""

    def reset(self, seed=None):
        super().reset(seed)
        self.at = 0
        return Start("go", {"at": 0})

    def step(self, action):
        self.at += 1
        info = {"at": self.at, "suffix": f"({self.at})", "rewards": {"part": float(self.at)}}
        return Step("on", 1.0, self.at == 4, False, info)


@pytest.mark.parametrize("how", ["replayed", "restored"])
def test_a_branch_has_the_info_and_the_named_rewards_of_its_turns(how):
    states = []

    def call(wanted):
        if wanted.verb == "step":
            states.append(wanted.env.get_state())
        return carry_out(wanted)

    whole = talked(Conversation(Counts(), 3, call=call))
    start = Branch(whole, 2, states[2] if how == "restored" else None)
    with Conversation(Counts(), 3, start=start) as talk:
        turns, end = talk.episode.turns, talk.episode.ends["agent"]
        assert [turn.info["at"] for turn in turns[:2]] == [1, 2]
        assert [turn.rewards for turn in turns[:2]] == [{"part": 1.0}, {"part": 2.0}]
        assert (end.observation, end.info["at"]) == ("on", 2)
        assert talk.asks[0].messages[-1].text.endswith("(2)")
        turns[0].info["at"] = 9  # the branch has copies
        assert whole.turns[0].info["at"] == 1


@pytest.mark.parametrize("how", ["replayed", "restored"])
def test_a_branch_may_go_another_way(how):
    whole, states = whole_episode()
    secret = whole.turns[-1].info.get("secret") or states[0]["secret"]
    start = Branch(whole, 2, states[2] if how == "restored" else None)
    with Conversation(EASY, 3, start=start) as talk:
        assert (talk.asks[0].turn, len(talk.asks[0].messages)) == (2, 5)
        talk.answer(rf"\boxed{{{secret}}}")
        assert talk.episode.stop is StopReason.SOLVED
        assert [turn.action for turn in talk.episode.turns[:2]] == [turn.action for turn in whole.turns[:2]]


@pytest.mark.parametrize("how", ["replayed", "restored"])
def test_what_a_branch_began_with_counts_against_its_limits(how):
    limits = Limits(turns=3, tokens=6)
    whole, states = whole_episode()
    for each in (limits, Limits(tokens=5)):
        start = Branch(whole, 2, states[2] if how == "restored" else None)
        expected = talked(Conversation(EASY, 3, each))
        assert (
            talked(Conversation(EASY, 3, each, start=start)).transcript_hash() == expected.transcript_hash()
        )


def test_a_branch_of_several_seats_begins_between_two_steps():
    whole = talked(Conversation(MatrixGame("coordination", 3), 3), lambda ask: r"\boxed{left}")
    assert len(whole.turns) == 6
    again = talked(
        Conversation(MatrixGame("coordination", 3), 3, start=Branch(whole, 4)), lambda ask: r"\boxed{left}"
    )
    assert again.transcript_hash() == whole.transcript_hash()
    half = talked(Conversation(MatrixGame("coordination", 3), 3, start=Branch(whole, 3)))
    assert (half.error.type, half.scored) == ("ContractBroken", False)
    assert "a branch begins between two steps" in half.error.message


def test_a_branch_in_an_environment_that_changed_has_no_verdict():
    whole, _ = whole_episode()
    changed = TaskRef(EASY, {"max_number": 12})
    with Conversation(changed, 3, start=Branch(whole, 2)) as talk:
        assert talk.done
        assert (talk.episode.scored, talk.episode.error.type) == (False, "ContractBroken")
        assert "was shown" in talk.episode.error.message
        assert talk.episode.turns == []


def test_a_branch_that_its_episode_does_not_have_is_refused():
    whole, states = whole_episode()
    for turns in (-1, 5):
        with pytest.raises(BadArgument, match=f"after turn {turns}; accepted: 0 to 4"):
            Branch(whole, turns)
    assert Branch(whole, 4).turns == 4
    with pytest.raises(BadArgument, match="a branch with a state begins in the middle"):
        Branch(whole, 4, states[3])
    game = talked(Conversation(MatrixGame("coordination", 2), 0), lambda ask: r"\boxed{left}")
    with pytest.raises(BadArgument, match="an episode of one seat"):
        Branch(game, 2, {})


def test_a_branch_of_another_seed_is_refused():
    whole, _ = whole_episode()
    with pytest.raises(BadArgument, match="the seed is 4, but the branch's episode has seed 3"):
        Conversation(EASY, 4, start=Branch(whole, 1))
    with pytest.raises(BadArgument, match="the seed is 4"):
        rollout([Job(whole.task, 4, start=Branch(whole, 1))], RandomAgent())


def test_a_branch_behind_all_turns_ends_where_the_episode_did_or_goes_on():
    whole, _ = whole_episode()
    again = talked(Conversation(EASY, 3, start=Branch(whole, 4)))
    assert again.transcript_hash() == whole.transcript_hash()
    cut = talked(Conversation(EASY, 3, Limits(turns=2)))
    on = talked(Conversation(EASY, 3, start=Branch(cut, 2)))
    assert on.transcript_hash() == whole.transcript_hash()
    assert [sum(turn.mask) for turn in on.turns] == [0, 0, 2, 2]
