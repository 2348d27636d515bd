import html
import json
import math
import os
import re
import shutil
from dataclasses import replace

import pytest
from records import episode, turn

from .conftest import GUESS, RUN, answer, need_viewer, write

need_viewer()

from gem.agents.random import RandomAgent
from gem.agents.scripted import ScriptedAgent
from gem.errors import BadArgument
from gem.record import StopReason
from gem.rollout import EpisodeStore, Job, rollout
from gem.specs import TaskRef
from gem.viewer import whatif
from gem.viewer.notes import measure_agreement
from gem.viewer.sources import Source
from gem.viewer.whatif import what_if


@pytest.fixture
def stored():
    (found,) = rollout([Job(GUESS, 3, key="a")], RandomAgent())
    return found


def test_another_action_is_played_from_the_same_state(stored):
    forked = what_if(stored, 1, ["\\boxed{1}"], host="serial")
    assert forked.origin.episode == stored.id
    assert [each.action for each in forked.turns] == [stored.turns[0].action, "\\boxed{1}"]
    assert forked.turns[1].observation == stored.turns[1].observation
    again = what_if(stored, 1, ["\\boxed{1}", "\\boxed{2}"], host="serial")
    assert again.turns[1].reward == forked.turns[1].reward
    assert len(again.turns) == 3


def test_the_solver_goes_on_and_wins(stored):
    forked = what_if(stored, 0, [], "solver", host="serial")
    assert forked.stop is StopReason.SOLVED
    forked = what_if(stored, 0, ["\\boxed{1}"], "solver", host="serial")
    assert (forked.turns[0].action, forked.stop) == ("\\boxed{1}", StopReason.SOLVED)


def test_an_environment_of_its_own_process_plays_too(stored):
    assert what_if(stored, 0, ["\\boxed{1}"]).turns[0].action == "\\boxed{1}"


def test_each_seat_in_turn_is_typed_for():
    (found,) = rollout([Job("multi:ConnectFour-v0", 1, key="a")], RandomAgent())
    forked = what_if(found, 2, ["\\boxed{4}", "\\boxed{4}"], host="serial")
    assert [each.seat for each in forked.turns[2:]] == [each.seat for each in found.turns[2:4]]


def test_what_is_not_played_on_says_why(stored, monkeypatch):
    with pytest.raises(BadArgument, match="turn is 9; accepted: 0 to"):
        what_if(stored, 9, ["x"], host="serial")
    with pytest.raises(BadArgument, match="agent is 'os'; accepted: random, solver"):
        what_if(stored, 0, ["x"], "os", host="serial")
    with pytest.raises(BadArgument, match="50 actions of 10,000 characters at most"):
        what_if(stored, 0, ["x"] * 51, host="serial")
    with pytest.raises(BadArgument, match="There is nothing to play"):
        what_if(stored, 0, [], host="serial")
    stored.task = TaskRef("os:system", seed=1, foreign=True)
    with pytest.raises(BadArgument, match="no registered environment"):
        what_if(stored, 0, ["x"], host="serial")
    stored.task = TaskRef("code:Basics-v0-easy", seed=1)
    with pytest.raises(BadArgument, match="uses outside resources"):
        what_if(stored, 0, ["x"], host="serial")
    with whatif._one_at_a_time:
        monkeypatch.setattr(whatif, "CALL_S", 0.01)
        (found,) = rollout([Job(GUESS, 3, key="a")], RandomAgent())
        with pytest.raises(BadArgument, match="Another what-if is running"):
            what_if(found, 0, ["x"], host="serial")


def test_the_page_asks_plays_and_shows_both(pages, played):
    shown = pages(played)
    shown.viewer.host = "serial"
    form = shown.get("run/0/episode/0/whatif?turn=0").text
    assert "I have a secret whole number" in form
    page = shown.post(
        "run/0/episode/0/whatif", data={"turn": "0", "action": "\\boxed{<b>}", "agent": ""}
    ).text
    assert "What if, at turn 1" in page
    assert "could not be read" in page
    assert "<b>}" not in page
    page = shown.post(
        "run/0/episode/0/whatif", data={"turn": "0", "action": "\\boxed{1}", "agent": "solver"}
    ).text
    assert page.count("solved") >= 1
    typed = shown.post(
        "run/0/episode/0/whatif", data={"turn": "0", "typed": ["\\boxed{1}"], "action": "\\boxed{2}"}
    )
    assert re.findall(r'name="typed" value="([^"]*)"', typed.text) == ["\\boxed{1}", "\\boxed{2}"]


def test_the_link_is_there_for_what_can_be_played_on_alone(pages, played, tmp_path):
    assert "/whatif?turn=0" in pages(played).get("run/0/episode/0").text
    foreign = pages(write(tmp_path / "f.jsonl", episode(turn(), run=RUN, job="a")))
    assert "whatif" not in foreign.get("run/0/episode/0").text
    foreign.get("run/0/episode/0/whatif?turn=0", 400)
    foreign.post("run/0/episode/0/whatif", 400, data={"turn": "0", "action": "1"})


def test_two_episodes_stand_side_by_side_from_where_they_part(pages, tmp_path):
    def made(job, last, version):
        turns = [answer("same words", prompt="the same start", policy_version=version)]
        turns.append(answer(last, prompt="go on"))
        return episode(*turns, seed=5, run=RUN, job=job)

    shown = pages(write(tmp_path / "e.jsonl", made("0-1", "left it", 0), made("1-1", "took it", 1)))
    page = re.sub("<[^>]*>", "", shown.get("pair?one=0.0&other=0.1").text)
    assert "They differ from turn 2, in the action." in page
    assert "1 turn in common" in page
    assert "left it" in page
    assert "took it" in page
    assert "The two are identical" in shown.get("pair?one=0.0&other=0.0").text
    starts = re.sub("<[^>]*>", " ", shown.get("start?spec=game:X&seed=5").text)
    assert "Same environment and seed, 2 episodes" in starts
    assert starts.index("left it") < starts.index("took it")
    for wrong in ("pair", "pair?one=0.0", "pair?one=0.0&other=../1", "pair?one=0.-1&other=0.0"):
        shown.get(wrong, 400)
    shown.get("pair?one=0.0&other=0.9", 404)
    shown.get("pair?one=7.0&other=0.0", 404)


def test_episodes_of_a_seed_say_in_which_environment_they_are_if_it_is_not_one(pages, tmp_path):
    tasks = [TaskRef("game:X", {"prompt": prompt}, seed=5) for prompt in ("terse", "long")]
    told = [
        replace(episode(turn(), seed=5, run=RUN, job=f"{at}-1"), task=each) for at, each in enumerate(tasks)
    ]
    shown = pages(write(tmp_path / "e.jsonl", *told))
    starts = html.unescape(re.sub("<[^>]*>", " ", shown.get("start?spec=game:X&seed=5").text))
    assert starts.index("game:X(prompt='terse')") < starts.index("game:X(prompt='long')")


def test_a_run_is_shown_from_its_first_episode_to_its_last(pages, tmp_path):
    episodes = [
        episode(
            turn(
                observation="?",
                action="early" if i < 64 else "late",
                info={"tool_results": [{"name": "calc"}]},
            ),
            seed=i,
            run=RUN,
            job=f"e{i}",
        )
        for i in range(128)
    ]
    page = pages(write(tmp_path / "e.jsonl", *episodes)).get("run/0/through").text
    rows = re.findall(r'<th scope="row" title="([^"]*)">.*?</tr>', page, re.DOTALL)
    assert rows == ["early", "late", "calc"]
    early = re.search(r'title="early">.*?</tr>', page, re.DOTALL)[0]
    assert re.findall(r'<td class="w(\w+)"', early) == ["9"] * 16 + ["none"] * 16


def test_a_note_is_kept_beside_the_store_and_listed(pages, played):
    shown = pages(played)
    text = 'See </textarea><script>alert("x")</script>'
    answer = shown.post("run/0/episode/4/note", 303, data={"flag": "1", "note": text})
    assert answer.headers["location"].endswith("/run/0/episode/4")
    page = shown.get("run/0/episode/4").text
    assert "<script>alert" not in page
    assert "See &lt;/textarea&gt;" in page
    with EpisodeStore(played, read_only=True) as store:
        notes = pages(played).viewer.sources[0].notes
        assert notes.of(store[4].id) == (True, text, "")
    listed = shown.get("run/0?marked=noted").text
    assert re.findall(r'/run/0/episode/(\d+)"', listed) == ["4"]
    shown.post("run/0/episode/4/note", 303, data={"note": ""})
    assert shown.viewer.sources[0].notes.all() == {}
    shown.post("run/0/episode/4/note", 400, data={"note": "x" * 4001})


def test_a_page_of_marked_episodes_looks_once_for_those_with_a_note(pages, played, monkeypatch):
    shown, looked = pages(played), []
    shown.post("run/0/episode/4/note", 303, data={"note": "see", "label": "right"})
    read_notes = Source.read_notes
    monkeypatch.setattr(Source, "read_notes", lambda source: looked.append(1) or read_notes(source))
    assert "1 with notes" in shown.get("run/0?marked=labelled").text
    assert looked == [1]


def test_a_torn_note_costs_no_other(pages, played):
    shown = pages(played)
    shown.post("run/0/episode/1/note", 303, data={"note": "first"})
    path = shown.viewer.sources[0].notes.path
    with path.open("a") as file:
        file.write('{"episode": "torn')
    shown.post("run/0/episode/2/note", 303, data={"note": "second"})
    assert sorted(note.text for note in pages(played).viewer.sources[0].notes.all().values()) == [
        "first",
        "second",
    ]


def test_labels_are_compared_with_verdicts(pages, played):
    shown = pages(played)
    with EpisodeStore(played, read_only=True) as store:
        success = [store[number].success for number in range(8)]
    assert set(success) == {True, False}
    for number in range(8):  # the reader agrees with all but the first
        label = "right" if success[number] != (number == 0) else "wrong"
        shown.post(f"run/0/episode/{number}/note", 303, data={"label": label})
    shown.post("run/0/episode/1/note", 400, data={"label": "perhaps"})
    page = shown.get("run/0").text
    assert "8 labelled" in page
    assert "87.5% agree with the verdict" in page
    for marked, numbers in (("labelled", "01234567"), ("label and verdict differ", "0"), ("flagged", "")):
        page = shown.get("run/0", params={"marked": marked}).text
        assert sorted(re.findall(r'/run/0/episode/(\d+)"', page)) == list(numbers)
    shown.get("run/0?marked=nothing", 400)
    page = shown.get("run/0", params={"marked": "label and verdict differ", "q": "boxed"}).text
    assert re.findall(r'/run/0/episode/(\d+)[#"]', page) == ["0"]  # of all that say so


def test_agreement_is_cohens():
    pairs = [("right", True)] * 20 + [("right", False)] * 5 + [("wrong", True)] * 10 + [("wrong", False)] * 15
    found = measure_agreement([*pairs, ("right", None), ("", True)])
    assert (found.labelled, found.judged, found.share.mean) == (51, 50, 0.7)
    assert found.kappa.mean == pytest.approx(0.4)  # Cohen's own example
    assert measure_agreement([("right", None)]) == (1, 0, None, None)


def test_episodes_with_a_tool_error_are_found(pages, tmp_path):
    def calls(*errors):
        results = [{"tool": "calc", "error": error, "refused": False, "shown": "no <b>"} for error in errors]
        return episode(turn(), turn(info={"tool_results": results}), run=RUN, job=str(len(errors)))

    says_so = episode(turn(action='{"error":true}'), run=RUN)
    page = pages(write(tmp_path / "e.jsonl", calls(False), calls(False, True), says_so)).get(
        "run/0", params={"marked": "tool error"}
    )
    assert re.findall(r'/run/0/episode/(\d+)[#"]', page.text) == ["1"]
    assert "<mark>calc</mark> no &lt;b&gt;" in page.text


def test_the_turn_that_decided_is_computed_kept_and_marked(pages, tmp_path):
    (lost,) = rollout([Job(GUESS, 3, key="a")], ScriptedAgent(["\\boxed{1}"] * 4))
    shown = pages(write(tmp_path / "e.jsonl", lost))
    assert "Which turn decides" in shown.get("run/0/episode/0").text
    shown.post("run/0/episode/0/values", 303, data={"agent": "solver"})
    page = shown.get("run/0/episode/0").text
    values = shown.viewer.sources[0].values.of(lost)
    assert values == (values.agent, 16, values.turns)
    assert values.turns[0].before.mean > values.turns[-1].after.mean
    assert page.count(">decided</b>") == 1
    assert f"Turn {values.deciding.turn + 1} decided" in page
    shown.post("run/0/episode/0/values", 400, data={"agent": "os"})
    with shown.viewer.sources[0].values.path.open("a") as file:
        file.write(json.dumps({"episode": lost.id, "agent": "x", "samples": 16, "turns": [1]}) + "\n")
    assert "decided</a>" not in shown.get("run/0/episode/0").text  # the last line counts, and is none


ROW = {"before": [0.1, 0.0, 0.2], "after": [0.6, 0.5, 0.7], "advantage": [0.5, 0.4, 0.6], "lost": 0}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, True),
        ({"agent": '"><script>alert(1)</script>'}, True),
        ({"agent": {"a": 1}}, False),
        ({"samples": 0}, False),
        ({"samples": "8"}, False),
        ({"samples": True}, False),
        ({"turns": [ROW]}, False),  # of another episode
        ({"turns": [ROW] * 500}, False),
        ({"turns": "abcd"}, False),
        ({"turns": [ROW, {**ROW, "after": [math.inf, 0, 1]}]}, False),
        ({"turns": [ROW, {**ROW, "advantage": [math.nan] * 3}]}, False),
        ({"turns": [ROW, {**ROW, "advantage": [10**400] * 3}]}, False),
        ({"turns": [ROW, {**ROW, "advantage": [0.5, 0.9, 0.1]}]}, False),
    ],
)
def test_values_of_another_hand_are_shown_where_they_are_some(pages, tmp_path, wrong, said):
    path = write(tmp_path / "e.jsonl", kept := episode(turn(), turn(), run=RUN))
    line = {"episode": kept.id, "agent": "x", "samples": 8, "turns": [ROW, ROW], **wrong}
    path.with_name("e.jsonl.values.jsonl").write_text(json.dumps(line) + "\n")
    page = pages(path).get("run/0/episode/0").text
    assert ("decided</a>" in page) == said
    assert "<script>alert" not in page


def test_notes_of_another_hand_are_cut_and_ask_for_no_episode_each(pages, played, monkeypatch):
    shown = pages(played)
    source = shown.viewer.sources[0]
    ids = [entry.id for entry in source.store.select()]
    lines = [{"episode": name, "flagged": True, "note": "x" * 5000} for name in (*ids[3:5], *range(5000))]
    source.notes.path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    asked, select = [], source.store.select
    monkeypatch.setattr(source.store, "select", lambda **wanted: asked.append(wanted) or select(**wanted))
    assert [(entry.number, len(note.text)) for entry, note in source.read_notes()] == [(3, 4000), (4, 4000)]
    assert len(asked) == 1


def test_a_note_is_not_lost_in_a_pipe(pages, played):
    shown = pages(played)
    os.mkfifo(shown.viewer.sources[0].notes.path)
    assert "it is a pipe" in shown.post("run/0/episode/1/note", 400, data={"note": "lost"}).text


def test_a_store_that_is_gone_is_told(pages, played):
    shown = pages(played)
    shown.get("run/0")
    shutil.rmtree(played.parent)
    for query in ({"marked": "tool error"}, {"q": "lower"}):
        assert "cannot be searched" in shown.get("run/0", 400, params=query).text


def test_no_turn_is_computed_of_several_seats_or_of_no_turn(pages, tmp_path):
    jobs = [Job("multi:ConnectFour-v0", 1, key="a"), Job(GUESS, 1, key="b")]
    played = rollout(jobs, RandomAgent())
    none = replace(played[1], turns=[])
    shown = pages(write(tmp_path / "e.jsonl", played[0], none))
    for number, said in ((0, "several seats"), (1, "0 turns; accepted here: 1 to")):
        assert "Which turn decides" not in shown.get(f"run/0/episode/{number}").text
        answer = shown.post(f"run/0/episode/{number}/values", 400, data={"agent": "random"})
        assert said in answer.text


def test_a_label_differs_from_no_verdict_that_is_not_there(pages, tmp_path):
    shown = pages(write(tmp_path / "e.jsonl", episode(turn(), stop=StopReason.ERROR, run=RUN)))
    shown.post("run/0/episode/0/note", 303, data={"label": "right"})
    page = shown.get("run/0", params={"marked": "label and verdict differ"}).text
    assert "run/0/episode/0" not in page


def test_an_episode_of_many_turns_is_valued_by_the_command(stored, monkeypatch):
    monkeypatch.setattr(whatif, "VALUED_TURNS", 1)
    with pytest.raises(BadArgument, match="gem-gym value RUN EPISODE --keep"):
        whatif.value_turns(stored, "random", host="serial")
