"""Suites as a library call: what `play_suite` plays, stores, reports and refuses."""

import json
from dataclasses import replace
from typing import ClassVar

import pytest

import gem
from gem import registry
from gem.agents.base import BaseAgent
from gem.agents.random import RandomAgent
from gem.agents.solver import SolverAgent
from gem.errors import (
    AgentUnavailable,
    BadArgument,
    MissingData,
    NoVerdict,
    StoreError,
    UnknownEnv,
    WorkerDied,
)
from gem.evals import Entry, Suite, SuiteEvents, SuiteOptions, compare, evaluate, play_suite
from gem.evals.outcomes import read_run
from gem.evals.power import floors, suites
from gem.evals.usage import tokens_of
from gem.record import AgentInfo, Reply
from gem.rollout import EpisodeStore
from gem.viewer.sources import Source

EASY, HARD = "game:GuessTheNumber-v0-easy", "game:GuessTheNumber-v0-hard"


def suite(*ids, name="", **fields):
    return Suite(name, tuple(Entry(each, episodes=4) for each in ids or (EASY,)), **fields)


class Recorded(SuiteEvents):
    def __init__(self):
        self.calls = []

    def on_begin(self, result):
        self.result = result
        self.calls.append(("begin", result.total, result.stopped))

    def on_play(self, label, agent, episodes):
        self.calls.append(("play", label, agent, episodes))

    def on_episode(self, episode):
        self.calls.append(("episode", episode.spec))

    def on_row(self, agent, row):
        self.calls.append(("row", agent, row.entry.label, row.result.scored))

    def on_message(self, text):
        self.calls.append(("message", text))

    def on_stop(self, error, why):
        self.calls.append(("stop", type(error).__name__, why))


class Guesses(BaseAgent):
    """Guesses 5; after `left` answers its server is gone."""

    closed = 0

    def __init__(self, left=10**9):
        self.left = left

    def __call__(self, asks):
        self.left -= len(asks)
        if self.left < 0:
            raise AgentUnavailable("the server is gone")
        return [Reply(r"\boxed{5}") for _ in asks]

    def close(self):
        self.closed += 1


def test_its_figures_are_those_of_evaluate():
    found = play_suite(suite(EASY, HARD, seed=3), {"me": SolverAgent(), "chance": "random"})
    assert [(name, label) for name, label, *_ in found.rows] == [
        *[("me", EASY), ("chance", EASY), ("me", HARD), ("chance", HARD)],
        *[("me", "overall"), ("chance", "overall")],
    ]
    assert found.cards["me"].results[1] == evaluate(SolverAgent(), HARD, episodes=4, seed=3)
    assert found.cards["chance"].results[0] == evaluate(RandomAgent(), EASY, episodes=4, seed=3)
    assert (found.passed, found.stopped, found.ended, found.total) == (True, "", 16, 16)


def test_events_say_what_happens_in_its_order():
    events = Recorded()
    found = play_suite(suite(), ["solver", "random"], events=events)
    episodes = [("episode", EASY)] * 4
    assert events.calls == [
        ("begin", 8, "the evaluation has not finished"),
        *[("play", EASY, "solver", 4), *episodes, ("row", "solver", EASY, 4)],
        *[("play", EASY, "random", 4), *episodes, ("row", "random", EASY, 4)],
    ]
    assert events.result is found


def test_files_have_the_figures_and_what_is_stored_is_not_played_again(tmp_path):
    options = SuiteOptions(out=tmp_path, gates=["success>=1", "turns<=0"])
    found = play_suite(suite(), "solver", options)
    assert [(each.gate.text, each.passed) for each in found.checked] == [
        ("success>=1", True),
        ("turns<=0", False),
    ]
    assert not found.passed
    assert json.loads((tmp_path / "result.json").read_text()) == found.to_json() == json.loads(found.text())
    assert found.to_markdown() == (tmp_path / "report.md").read_text()
    assert "Repeat it" not in found.to_markdown()
    assert not (tmp_path / "command.json").exists()  # there was no command
    before = (tmp_path / "episodes.jsonl").read_bytes()
    assert play_suite(suite(), "solver", options).to_json() == found.to_json()
    assert (tmp_path / "episodes.jsonl").read_bytes() == before


def test_the_folder_stays_where_it_was_when_the_working_directory_changes(tmp_path, monkeypatch):
    class Moves(Guesses):
        def __call__(self, asks):
            monkeypatch.chdir(elsewhere)
            return super().__call__(asks)

    elsewhere, files = tmp_path / "elsewhere", {}
    elsewhere.mkdir()
    for agent in (Guesses(), Moves()):
        monkeypatch.chdir(tmp_path)
        out = type(agent).__name__
        play_suite(suite(), {"me": agent}, SuiteOptions(out=out, normalise=True, command=[EASY]))
        files[out] = sorted(each.relative_to(tmp_path / out) for each in (tmp_path / out).rglob("*"))
    assert files["Moves"] == files["Guesses"]
    assert not [*elsewhere.iterdir()]


def test_an_agent_that_is_gone_stops_it_and_the_rest_is_played_later(tmp_path):
    events, options = Recorded(), SuiteOptions(out=tmp_path)
    with pytest.raises(AgentUnavailable):
        play_suite(suite(EASY, HARD), {"me": Guesses(30)}, options, events)
    why = "agent me cannot answer: the server is gone"
    assert events.calls[-1] == ("stop", "AgentUnavailable", why)
    assert events.result.stopped == json.loads((tmp_path / "result.json").read_text())["stopped"] == why
    with EpisodeStore(tmp_path / "episodes.jsonl", read_only=True) as store:
        assert 4 <= len(store) == events.result.ended < 8
    found = play_suite(suite(EASY, HARD), {"me": Guesses()}, options)
    assert found.cards["me"].results == play_suite(suite(EASY, HARD), {"me": Guesses()}).cards["me"].results


class Counted(Guesses):
    """A model whose answers take 10 tokens; it loses each episode at its second turn until it is well."""

    info = AgentInfo("Counted", "small")
    well = False

    def __call__(self, asks):
        if not self.well and any(ask.turn for ask in asks):
            raise NoVerdict("the server filters this")
        usage = {"prompt_tokens": 9, "completion_tokens": 1}
        return [Reply(r"\boxed{5}", usage=usage) for _ in asks]


def test_attempts_that_were_played_again_are_in_the_cost(tmp_path):
    agent, options = Counted(), SuiteOptions(out=tmp_path, budget_tokens=10**6, retry_failed=True)
    before = play_suite(suite(), agent, options)
    lost = tokens_of(before.results[0].usage)
    assert lost >= 10 * before.results[0].unscored > 0
    agent.well = True
    after = play_suite(suite(), agent, options)
    whole = play_suite(suite(), agent, SuiteOptions(out=tmp_path / "whole"))
    retried = tokens_of(after.results[0].usage) - tokens_of(whole.results[0].usage)
    assert retried == 10 * before.results[0].unscored
    assert tokens_of(after.results[0].usage) == tokens_of(after.budget.spent)
    assert after.results[0].tokens_per_success == whole.results[0].tokens_per_success


def test_a_budget_that_is_nearly_spent_is_kept_when_the_evaluation_goes_on(tmp_path):
    agent, options = Counted(), SuiteOptions(out=tmp_path, budget_tokens=130)
    agent.well = True
    wide = Suite("", (Entry(EASY, episodes=40),))
    spent = [tokens_of(play_suite(wide, agent, options).budget.spent) for _ in range(3)]
    assert 0 < spent[0] == spent[1] == spent[2]


@pytest.mark.parametrize(
    ("entries", "agents", "lost"),
    [
        ((EASY,), "solver", "agent 'random'"),
        ((HARD,), "random", f"environment '{EASY}'"),
        ((HARD, "game:Wordle-v0-easy"), "solver", f"agent 'random' and environment '{EASY}'"),
    ],
)
def test_another_evaluation_in_the_folder_is_not_replaced(entries, agents, lost, tmp_path):
    play_suite(suite(), "random", SuiteOptions(out=tmp_path, command=["first"]))
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.suffix != ".sqlite"}
    with pytest.raises(StoreError) as caught:
        play_suite(suite(*entries), agents, SuiteOptions(out=tmp_path, command=["second"]))
    assert str(caught.value).endswith(
        f"holds an evaluation of {lost}, whose figures this one would replace; choose another --out."
    )
    after = {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.suffix != ".sqlite"}
    assert after == before


def test_an_evaluation_grows_in_its_folder_and_its_server_may_move(tmp_path):
    def named(name, settings):
        return Guesses()

    options = SuiteOptions(out=tmp_path, make_agent=named)
    play_suite(suite(), "openai:m@http://127.0.0.1:1/v1", options)
    wider = suite(EASY, HARD, seed=3)
    assert len(play_suite(wider, "openai:m@http://127.0.0.1:2/v1", options).results) == 2
    with pytest.raises(StoreError, match="evaluation of agent 'openai:m'"):
        play_suite(wider, "openai:other@http://127.0.0.1:2/v1", options)


CONCAT, TURNS = ("concat",), {"max_turns": 5}
POKER = "multi:KuhnPoker-v0-vs-"


@pytest.mark.parametrize(
    ("entries", "groups"),
    [
        (
            [
                Entry(EASY, only=(1, 2, 3)),
                Entry(EASY, only=(4, 5, 6), wrappers=CONCAT),
                Entry(EASY, episodes=3, kwargs=TURNS),
            ],
            3,
        ),
        ([Entry(EASY, only=(1, 2, 3)), Entry(EASY, only=(3, 4, 5), wrappers=CONCAT)], 1),
        ([Entry(f"{POKER}random", episodes=3), Entry(f"{POKER}solver", episodes=3)], 1),
    ],
)
def test_the_same_environments_share_tasks_in_eval_compare_and_power(entries, groups, tmp_path):
    entries = [replace(entry, title=f"number {i}") for i, entry in enumerate(entries)]
    played = play_suite(Suite("", tuple(entries)), "random", SuiteOptions(out=tmp_path))
    (card,) = played.cards.values()
    outcomes = read_run(tmp_path).outcomes
    floor = floors(suites([outcomes]))[-1]
    found = compare(outcomes, outcomes).overall
    assert (floor.env, floor.tasks) == ("all", 3 * groups)
    assert found.tasks == found.difference.clusters == card.overall.success.clusters == 3 * groups


@pytest.mark.parametrize("changes", [{"episodes": 2}, {"only": (1, 2)}, {"seed": 5}, {"samples": 1}])
def test_readers_of_a_folder_count_what_its_last_evaluation_counts(changes, tmp_path):
    def play(episodes=4, samples=2, seed=0, only=()):
        entry = Entry(EASY, episodes=None if only else episodes, samples=samples, only=only)
        suite = Suite("", (entry,), seed=seed)
        return play_suite(suite, {"me": Guesses()}, SuiteOptions(out=tmp_path)).ended

    def count():
        source = Source(0, tmp_path / "episodes.jsonl", "it")
        shown = source.figures().episodes
        assert shown == len(read_run(tmp_path).outcomes) == len(source.store.latest())
        source.close()
        return shown

    assert play() == count() == 8
    assert play(**changes) == count()
    stored = (tmp_path / "episodes.jsonl").read_bytes()
    assert play() == count() == 8
    assert (tmp_path / "episodes.jsonl").read_bytes() == stored  # what counts again is not played again


def test_readers_of_a_folder_leave_out_other_tasks_while_it_is_played(tmp_path):
    def play(seed, left):
        play_suite(suite(EASY, HARD, seed=seed), {"me": Guesses(left)}, SuiteOptions(out=tmp_path))
        return read_run(tmp_path).outcomes

    before = play(0, 1000)
    with pytest.raises(AgentUnavailable):
        play(1, 0)
    assert read_run(tmp_path).outcomes == before  # nothing of the new tasks is stored
    with pytest.raises(AgentUnavailable):
        play(1, 30)
    tasks = {each.task for each in read_run(tmp_path).outcomes}
    assert {each.task for each in play(1, 1000)} > tasks
    assert tasks.isdisjoint(each.task for each in before)


def test_an_evaluation_without_an_episode_is_replaced(tmp_path):
    with pytest.raises(AgentUnavailable):
        play_suite(suite(), {"gone": Guesses(0)}, SuiteOptions(out=tmp_path))
    assert (tmp_path / "result.json").exists()
    assert play_suite(suite(), "random", SuiteOptions(out=tmp_path)).ended == 4


def test_the_command_is_stored_before_the_first_episode_ends(tmp_path):
    """A run that is killed then can be resumed."""
    stored = []

    class Look(SuiteEvents):
        def on_play(self, label, agent, episodes):
            stored.append(json.loads((tmp_path / "command.json").read_text()))

    for number in "1", "2":
        options = SuiteOptions(out=tmp_path, command=["again", number])
        with pytest.raises(AgentUnavailable):
            play_suite(suite(), {"gone": Guesses(0)}, options, Look())
    assert stored == [["again", "1"], ["again", "2"]]


def test_only_agents_that_it_made_are_closed():
    made, given = Guesses(), Guesses()
    options = SuiteOptions(make_agent=lambda name, settings: made)
    play_suite(suite(), {"named": "mine", "given": given}, options)
    assert (made.closed, given.closed) == (1, 0)


def test_a_seat_is_played_against_an_agent_or_its_name():
    game = suite("multi:KuhnPoker-v0")
    by_name = play_suite(game, "solver", SuiteOptions(seat="player_0", others="random"))
    by_value = play_suite(game, SolverAgent(), SuiteOptions(seat="player_0", others=RandomAgent()))
    assert set(by_value.cards) == {"SolverAgent"}
    assert by_name.results == by_value.results
    (result,) = by_name.results
    assert (result.success, result.reward) == (
        result.seats["player_0"].success,
        result.seats["player_0"].reward,
    )
    assert "KuhnPoker-v0, player\\_1 | " in by_name.to_markdown()
    (together,) = play_suite(game, "solver").results
    assert (together.success, together.reward) == (None, None)
    (note,) = play_suite(game, "solver").notes
    assert note.endswith("to measure one seat, --seat player_0 or --seat player_1")


def test_the_tokens_of_a_success_are_those_of_the_seat():
    class Pays(BaseAgent):
        def __init__(self, tokens):
            self.usage = {"prompt_tokens": tokens, "completion_tokens": 1}

        def __call__(self, asks):
            return [Reply(r"\boxed{check}", usage=self.usage) for _ in asks]

    options = SuiteOptions(seat="player_0", others=Pays(1000))
    (found,) = play_suite(suite("multi:KuhnPoker-v0"), Pays(9), options).results
    (alone,) = play_suite(suite("multi:KuhnPoker-v0"), Pays(9), replace(options, others=Pays(0))).results
    assert found.tokens_per_success == alone.tokens_per_success is not None
    assert tokens_of(found.usage) > 1000  # of all seats


class Sometimes(gem.Env):
    """Breaks at each step of a seed above 9."""

    def reset(self, seed=None):
        super().reset(seed=seed)
        self.task = seed
        return "Say yes.", {}

    def step(self, action):
        if self.task >= 10:
            raise NoVerdict("the grader is gone")
        return "", 1.0, True, False, {"success": True}


def test_a_gate_needs_the_verdicts_of_nearly_all_episodes():
    def passed(*seeds, **more):
        found = Suite("", (Entry(Sometimes, only=seeds),), **more)
        return play_suite(found, Guesses(), SuiteOptions(gates=["success>=0.9"])).passed

    assert passed(*range(4))
    assert not passed(0, 11, 12, 13)
    assert passed(0, 11, 12, 13, min_coverage=0.2)


def test_a_gate_on_a_category_or_on_samples_is_about_what_it_names():
    alone = Suite("", (Entry(EASY, episodes=2, category="games"),))
    assert play_suite(alone, "solver", SuiteOptions(gates=["success[games]>=1"])).passed
    mixed = Suite("", (Entry(EASY, episodes=2, samples=4), Entry(HARD, episodes=2)))
    assert play_suite(mixed, "solver", SuiteOptions(gates=[f"pass@4[{EASY}]>=1"])).passed
    for gate in ("pass@4>=1", f"pass@4[{HARD}]>=1"):
        with pytest.raises(BadArgument, match="needs 4 samples of a task"):
            play_suite(mixed, "solver", SuiteOptions(gates=[gate]))


class BreaksOnce(gem.Env):
    """Breaks at its first step of each seed."""

    broken: ClassVar[set[int]] = set()

    def reset(self, seed=None):
        super().reset(seed=seed)
        self.task = seed
        return "Say yes.", {}

    def step(self, action):
        if self.task not in self.broken:
            self.broken.add(self.task)
            raise WorkerDied("a server of its own is gone")
        return "", 1.0, True, False, {"success": True}


def test_the_cost_of_attempts_is_counted_without_a_folder_too(tmp_path):
    agent = Counted()
    agent.well = True
    played = []
    for out in (None, tmp_path):
        BreaksOnce.broken.clear()
        once = Suite("", (Entry(BreaksOnce, only=(1, 2, 3)),))
        (found,) = play_suite(once, agent, SuiteOptions(out=out)).results
        played.append((found.scored, tokens_of(found.usage)))
    assert played == [(3, 60), (3, 60)]


def test_an_early_stop_is_that_of_the_seat():
    options = SuiteOptions(seat="player_1", others="random")
    (found,) = play_suite(suite("multi:KuhnPoker-v0", stop_at_width=0.9), "solver", options).results
    won = found.seats["player_1"].success
    assert (found.success.mean, found.success.n) == (won.mean, won.n)


def test_a_budget_leaves_episodes_out():
    found = play_suite(suite(), Guesses(), SuiteOptions(budget_tokens=0))
    assert (found.unplayed, found.passed, found.cards["Guesses"].results[0].played) == (4, False, 0)
    assert "the budget is used up: 0 of 0 tokens; 4 episodes were not played" in found.notes


@pytest.mark.parametrize(
    ("play", "error", "why"),
    [
        (lambda: play_suite("no.toml"), BadArgument, "can be read"),
        (lambda: play_suite(suite(), ["solver", "solver"]), BadArgument, "named twice"),
        (lambda: play_suite(suite(), "nobody"), BadArgument, "agent is 'nobody'; accepted: random, solver"),
        (lambda: play_suite(suite(), (), SuiteOptions(retry_failed=True)), BadArgument, "name their folder"),
        (lambda: play_suite(suite(), (), SuiteOptions(gates=["cost<1"])), BadArgument, "is about money"),
        (
            lambda: play_suite(suite(), (), SuiteOptions(out=" ")),
            BadArgument,
            "out is ' '; accepted: a folder",
        ),
        (lambda: play_suite(suite(), (), SuiteOptions(seat="white")), BadArgument, "has one seat"),
        (
            lambda: play_suite(suite(), (), SuiteOptions(seat="white", normalise=True)),
            BadArgument,
            "leave out one of the two",
        ),
        (lambda: suite("no:Such-v0"), UnknownEnv, "no environment"),
    ],
)
def test_what_cannot_be_played_is_refused(play, error, why):
    with pytest.raises(error, match=why):
        play()


def test_missing_data_is_a_row_of_a_named_suite_and_an_error_elsewhere(tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    monkeypatch.setenv("GEM_DATA", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = play_suite(suite(EASY, "eval:AIME24", name="two"), "solver")
    assert [row.result is None for row in found.cards["solver"].rows] == [False, True]
    assert any("1 of 2 environments are not here and in no figure" in note for note in found.notes)
    assert not found.passed
    with pytest.raises(MissingData):
        play_suite(suite(EASY, "eval:AIME24"), "solver")


def play_sums(home, out, *answers):
    """Write a data set of sums with these answers, evaluate it in `out`, and return messages and success."""
    rows = [json.dumps({"problem": f"1 + {i}", "answer": each}) + "\n" for i, each in enumerate(answers)]
    (home / "GSM-8k.jsonl").write_text("".join(rows))
    events = Recorded()
    row = play_suite(Suite("", (Entry("math:GSM8K"),)), {"me": Guesses()}, SuiteOptions(out=out), events)
    return [call[1] for call in events.calls if call[0] == "message"], row.results[0].success.mean


def test_tasks_of_files_that_changed_are_asked_again_and_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("GEM_DATA", str(tmp_path))
    out = tmp_path / "run"
    assert play_sums(tmp_path, out, 5, 1) == play_sums(tmp_path, out, 5, 1) == ([], 0.5)
    told = f"math:GSM8K has changed since the evaluation in {out}: all of its tasks are asked again"
    assert play_sums(tmp_path, out, 5, 5) == ([told], 1.0)
    assert [each.success for each in read_run(out).outcomes] == [True, True]
    assert {each.env for each in read_run(out).outcomes} == {"math:GSM8K"}
    play_sums(tmp_path, tmp_path / "other", 5, 1)
    with pytest.raises(BadArgument, match="the runs have no pairs"):
        compare(read_run(out).outcomes, read_run(tmp_path / "other").outcomes)
    with EpisodeStore(out / "episodes.jsonl", read_only=True) as store:
        assert gem.make(store.task(0)).reset(seed=0)
        with pytest.raises(BadArgument, match="files of math:GSM8K have changed"):
            gem.make(store.task(2))


def test_an_evaluation_of_an_earlier_version_is_compared_and_asked_again(tmp_path, monkeypatch):
    monkeypatch.setenv("GEM_DATA", str(tmp_path))
    with monkeypatch.context() as earlier:
        earlier.setattr(registry, "add_digest", lambda spec, kwargs: kwargs)
        for name in "old", "again":
            assert play_sums(tmp_path, tmp_path / name, 5, 1) == ([], 0.5)
    told, _ = play_sums(tmp_path, tmp_path / "again", 5, 1)
    assert told == [
        f"math:GSM8K may have changed since the evaluation in {tmp_path / 'again'}: all of its tasks are "
        "asked again"
    ]
    old, new = (read_run(tmp_path / name).outcomes for name in ("old", "again"))
    assert compare(old, new).overall.pairs == compare(new, old).overall.pairs == 2
