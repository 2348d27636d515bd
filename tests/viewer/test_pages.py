import json
import os
import re
import threading
from dataclasses import replace

import pytest
from records import episode, turn

from .conftest import GUESS, RUN, TOKEN, answer, need_viewer, training, write

need_viewer()

from gem import cli
from gem.agents.base import BaseAgent
from gem.content import Image, Message, Text, ToolCall
from gem.errors import BadArgument, NoVerdict, StoreError
from gem.evals import evaluate
from gem.history import HistoryPolicy
from gem.record import Failure, Reply, RunInfo, SeatEnd, StopReason
from gem.rollout import EpisodeStore
from gem.seeding import stream
from gem.specs import TaskRef
from gem.statistics import return_interval
from gem.viewer.export import export
from gem.viewer.sources import open_sources
from gem.viewer.stretches import split_run
from gem.viewer.text import Board, blocks, split_code


def text_of(page):
    """What a reader sees of a page, roughly."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page.text))


def test_the_runs_page_has_the_figures_of_every_run(pages, played, tmp_path):
    page = pages(played, training(tmp_path / "trained")).get("")
    seen = text_of(page)
    assert "played" in seen
    assert "trained" in seen
    with EpisodeStore(played, read_only=True) as store:
        solved = sum(entry.success for entry in store.select())
    assert f"{solved / 12:.1%}" in seen
    assert "Coverage" in seen


def test_titles_say_environment_agent_and_date(pages, played, tmp_path):
    os.utime(played, (1_800_000_000, 1_800_000_000))
    title = f"{GUESS}, RandomAgent, 2027-01-15"
    opened = pages(played)
    assert title in text_of(opened.get(""))
    page = opened.get("run/0")
    assert f"<title>{title} · gem</title>" in page.text
    assert f"<h1>{title}</h1>" in page.text
    assert title in text_of(opened.get("run/0/episode/3"))
    data = tmp_path / "q.csv"
    data.write_text("question,answer\nCapital of Norway?,Oslo\n")
    assert cli.main(["eval", "--data", str(data), "--agent", "random", "--out", str(tmp_path / "eval")]) == 0
    assert "q.csv:text, RandomAgent, " in text_of(pages(tmp_path / "eval").get(""))


@pytest.mark.parametrize(
    ("info", "error", "words"),
    [
        (
            {"target": "Oslo", "parsed_action": "Bergen", "why": "Bergen is\nno capital."},
            None,
            "target Oslo answer Bergen reason Bergen is no capital.",
        ),
        (
            {"public": {"wanted": [3], "got": "4", "why": ""}, "why": "wrong"},
            None,
            "target [3] answer 4 reason wrong",
        ),
        ({"why": "w" * 500}, None, "reason " + "w" * 160 + " "),
        ({}, Failure("env", "OSError", "the disk is full"), "reason the disk is full"),
        ({"public": "no mapping", "target": None}, None, "first \u2192 second"),
    ],
)
def test_a_row_says_target_answer_and_reason_in_one_line(pages, tmp_path, info, error, words):
    made = episode(turn(action="first"), turn(action="second"), stop=StopReason.FAILED, run=RUN, job="a")
    made.ends[made.seats[0]].info = info
    made.error = error
    opened = pages(write(tmp_path / "e.jsonl", made))
    assert words in text_of(opened.get("run/0"))
    export([opened.viewer.sources[0]], tmp_path / "out.html")
    assert words in re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", (tmp_path / "out.html").read_text()))


TRACE = 'Traceback (most recent call last):\n  File "a.py", line 1\nKeyError: 3'


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("plain", [(False, "plain")]),
        (
            "see\n```python\nx = 1\n\ny\n```\ndone",
            [(False, "see"), (True, "```python\nx = 1\n\ny\n```"), (False, "done")],
        ),
        ("````\n```\n````\nb", [(True, "````\n```\n````"), (False, "b")]),
        ("```never closed\na", [(True, "```never closed\na")]),
        ("```a```\nb", [(False, "```a```\nb")]),
        ("it broke:\n" + TRACE + "\n\nmore", [(False, "it broke:"), (True, TRACE), (False, "\nmore")]),
        ("```\n" + TRACE + "\n\n```", [(True, "```\n" + TRACE + "\n\n```")]),
        ("```\na\n```\n```\nb\n```", [(True, "```\na\n```"), (True, "```\nb\n```")]),
    ],
)
def test_code_and_tracebacks_are_split_from_prose(text, pieces):
    assert split_code(text) == pieces
    assert "\n".join(piece for _, piece in split_code(text)) == text


def test_a_fenced_diff_is_shown_as_a_diff(pages, tmp_path):
    made = episode(
        turn(observation="Mend it:\n```diff\n@@ -1 +1 @@\n-a < b\n+a > b\n```", action="+ no"),
        run=RUN,
        job="a",
    )
    text = pages(write(tmp_path / "e.jsonl", made)).get("run/0/episode/0").text
    assert '<span class="del">-a &lt; b\n</span><span class="add">+a &gt; b\n</span>' in text
    assert text.count('class="add"') == 1


def test_code_stands_as_code_and_the_words_of_a_verdict_stand_open(pages, tmp_path):
    call = ToolCall("c1", "python", json.dumps({"code": "for i in x:\n    print('<b>')", "limit": 3}))
    said = Message("assistant", "Try:\n```\na < b\n```", tool_calls=(call,))
    first = turn(observation=TRACE, action="a", reply=said)
    first.info = {"why": "not yet, says <i>the judge</i>"}
    last = turn(action="b")
    last.info = {"why": "WA on test 1", "public": {"given": "1 2", "wanted": [3], "got": "", "why": "<u>"}}
    made = episode(first, last, stop=StopReason.FAILED, run=RUN, job="a")
    made.ends[made.seats[0]].info = last.info
    text = pages(write(tmp_path / "e.jsonl", made)).get("run/0/episode/0").text
    pres = [re.sub(r"<[^>]*>", "", each) for each in re.findall(r"<pre[^>]*>(.*?)</pre>", text, re.DOTALL)]
    for code in (
        "```\na &lt; b\n```",
        "for i in x:\n    print(&#39;&lt;b&gt;&#39;)",
        "{\n  &#34;limit&#34;: 3\n}",
    ):
        assert code in pres
    assert any(each.startswith("Traceback") for each in pres)
    opened = re.sub(r"<details.*?</details>", "", text, flags=re.DOTALL)
    assert "not yet, says &lt;i&gt;the judge" in opened
    assert opened.count("WA on test 1") == 1
    for each in ("1 2", "[\n  3\n]", "(nothing)", "&lt;u&gt;"):
        assert each in pres


def test_what_an_evaluation_cost_is_shown(pages, played):
    specs = {GUESS: 3.25, f"{GUESS}+python": 2.0, "x": None}
    rows = [{"name": "random", "env": spec, "cost": cost} for spec, cost in specs.items()]
    result = played.parent / "result.json"
    result.write_text(json.dumps({"results": rows}))
    assert "$3.25" in pages(played).get("").text
    assert "$5.25" in pages(played).get("run/0").text
    result.rename(played.parent.parent / "result.json")  # of several agents
    assert "Cost" not in pages(played).get("").text
    several = [*rows, {**rows[0], "name": "played"}]
    (played.parent.parent / "result.json").write_text(json.dumps({"results": several}))
    assert "$3.25" in pages(played).get("").text


@pytest.mark.parametrize(
    "text", ["{}", "[]", "3", '{"results": [{}]}', '{"results": [{"name": 3}]}', '{"agents": [{}]}', "{"]
)
def test_a_result_of_something_else_costs_nothing(pages, played, text):
    """The folder of a study's run, for one, has a file of that name."""
    for folder in (played.parent, played.parent.parent):
        (folder / "result.json").write_text(text)
        page = pages(played).get("")
        assert page.status_code == 200
        assert "Cost" not in page.text


@pytest.mark.parametrize("agents", [("random",), ("random", "solver")])
def test_a_stored_evaluation_is_shown_with_its_cost(pages, tmp_path, monkeypatch, agents):
    """As `gem-gym eval` writes it, with what each turn cost put in."""
    monkeypatch.setattr("gem.evals.scorecard.Scorecard.cost", lambda self, usage: 0.125)
    words = [word for agent in agents for word in ("--agent", agent)]
    assert cli.main(["eval", GUESS, "-n", "2", *words, "--out", str(tmp_path / "eval")]) == 0
    page = pages(tmp_path / "eval").get("")
    assert page.status_code == 200
    assert page.text.count("$0.125") >= len(agents)


def test_episodes_are_listed_a_page_at_a_time_and_as_the_address_says(pages, tmp_path):
    store = write(
        tmp_path / "episodes.jsonl",
        *(episode(turn(reward=i / 250), seed=i % 7, run=RUN, job=f"e{i}") for i in range(250)),
    )
    shown = pages(store)
    numbers = re.compile(r'/run/0/episode/(\d+)"')
    first = shown.get("run/0").text
    assert [int(n) for n in numbers.findall(first)] == list(range(249, 149, -1))
    assert "250 episodes, 1 to 100" in first
    last = shown.get("run/0?order=reward&way=up&page=2").text
    assert [int(n) for n in numbers.findall(last)] == list(range(200, 250))
    filtered = shown.get("run/0?seed=3&outcome=solved").text
    assert {int(n) % 7 for n in numbers.findall(filtered)} == {3}
    assert "No episode matches" in shown.get("run/0?stop=failed").text


def test_an_episode_is_a_conversation_with_rewards_and_tokens(pages, tmp_path):
    first = answer("\\boxed{5}", prompt="Guess.", reward=0.25, logprobs=[-0.01, -5.0, -1.0])
    second = answer("\\boxed{7}", prompt="higher", after=[first], reward=0.75, timing={"env_s": 0.002})
    page = pages(write(tmp_path / "e.jsonl", episode(first, second, run=RUN, job="a"))).get("run/0/episode/0")
    seen = text_of(page)
    for expected in (
        "Guess.",
        "higher",
        "reward 0.250",
        "return so far 1.000",
        "environment 2 ms",
        "3 tokens",
    ):
        assert expected in seen
    assert 'class="p0 m1"' in page.text
    assert 'class="p5 m1"' in page.text
    assert "probability 0.7%, logprob -5.000" in page.text


def test_a_setting_that_is_left_out_is_not_shown(pages, tmp_path):
    run = RunInfo("run", "OpenAIAgent", "m", {"temperature": 1.0, "max_tokens": None})
    page = pages(write(tmp_path / "episodes.jsonl", episode(answer("7"), run=run))).get("run/0/episode/0")
    assert "<dt>temperature</dt>" in page.text
    assert "max tokens" not in page.text
    assert "None" not in text_of(page)


def test_the_prompt_is_shown_with_what_was_held(pages, tmp_path):
    first = answer("\\boxed{5}", prompt="Guess.")
    second = turn(observation="higher", action="7")
    second.extend(first, [0, 2, 300, 0, 3], [310], [-0.1])
    shown = pages(write(tmp_path / "e.jsonl", episode(first, second, run=RUN, job="a")))
    assert "all of them new" in shown.get("run/0/episode/0/prompt/0").text
    later = shown.get("run/0/episode/0/prompt/1").text
    held, new = later.split("kept from earlier turns up to here")
    assert "Guess." in re.sub("<[^>]*>", "", held)
    assert "&lt;|assistant|&gt;" in new
    assert shown.get("run/0/episode/0/prompt/2", 404)


def test_ids_are_shown_where_the_vocabulary_is_another(pages, tmp_path):
    run = RunInfo("run", "agent", "/etc", vocabulary="ffffffffffffffff")
    spoken = turn((1, 2), (31337, -5), observation="hear", action="say")
    page = pages(write(tmp_path / "e.jsonl", episode(spoken, run=run, job="a"))).get("run/0/episode/0")
    assert "31337" in page.text
    assert "tokenizer is not on this machine" in page.text


def test_ids_that_the_vocabulary_does_not_have_are_shown_as_they_are(pages, tmp_path):
    spoken = turn((1, 2), (2**31 - 1, -5, 300), observation="hear", action="say")
    page = pages(write(tmp_path / "e.jsonl", episode(spoken, run=RUN, job="a"))).get("run/0/episode/0")
    assert "&lt;2147483647&gt;" in page.text
    assert "&lt;-5&gt;" in page.text


def test_tool_calls_stand_with_their_arguments_and_results(pages, tmp_path):
    calls = (ToolCall("1", "search", '{"query": "who"}'), ToolCall("2", "count", "not JSON"))
    said = Message("assistant", "Let me look.", tool_calls=calls, reasoning="I do not know.")
    asked = turn(observation="Who?", action="<tool_call>", reply=said)
    asked.info = {"tool_results": [{"shown": 6}, {"shown": 2}]}
    done = turn(observation="Turing\n42", action="Turing", info={"tool_results": [{"shown": 0}]})
    page = pages(write(tmp_path / "e.jsonl", episode(asked, done, run=RUN, job="a"))).get("run/0/episode/0")
    seen = text_of(page)
    for expected in (
        "calls search { &#34;query&#34;: &#34;who&#34; }",
        "calls count not JSON",
        "result of search Turing result of count 42",
        "reasoning, 14 characters I do not know.",
    ):
        assert expected in seen


def test_boards_and_pictures_are_drawn(pages, tmp_path):
    board = "Row 1 is safe:\n   1 2 3\n1  . X 2\n2  . . O\n3  F * .\nYour move."
    picture = Image(b"\x89PNG\r\n\x1a\n" + b"\0" * 20, alt="a chart")
    spoken = turn(observation=(Text(board), picture, Image(b"<svg onload=x>", "image/svg+xml")), action="1")
    page = pages(write(tmp_path / "e.jsonl", episode(spoken, run=RUN, job="a"))).get("run/0/episode/0").text
    assert page.count('<rect class="c-') == 9
    assert 'alt="a chart"' in page
    assert "data:image/png;base64,iVBORw0KGgo" in page
    assert "14 bytes that are not a picture (image/svg+xml)" in page
    assert "svg onload" not in page


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        (". 2 | . .\n. . | . 3\n----+----\n4 1 | . .\n. 3 | . 4", (4, 4, 2)),
        ("The board:\n. . X\n. O .\nX . .\n1 2 3\nIt is your turn.", (3, 4, 0)),
        ("A b c\nd e f", None),
        ("Some lines of prose\nthat are short and say\nnothing of a board", None),
        ("I am on\na to do\nso it is", (3, 3, 0)),  # short words look like one
    ],
)
def test_boards_are_found_in_text(text, drawn):
    found = [each for each in blocks(text) if isinstance(each, Board)]
    sizes = [(each.width, each.height, len(each.lines)) for each in found]
    assert sizes == ([] if drawn is None else [drawn])
    whole = "\n".join(each.text if isinstance(each, Board) else each for each in blocks(text))
    assert whole == text


def test_an_episode_without_verdict_says_what_broke(pages, tmp_path):
    broken = episode(turn(), stop=StopReason.ERROR, error=Failure("env", "OSError", "disk"), run=RUN, job="a")
    seen = text_of(pages(write(tmp_path / "e.jsonl", broken)).get("run/0/episode/0"))
    assert "OSError in env: disk" in seen


def test_a_training_run_has_curves_with_a_band_over_its_seeds(pages, tmp_path):
    shown = pages(training(tmp_path / "run-a", 0), training(tmp_path / "run-b", 2))
    found = shown.get("curves?metric=success").json()
    (line,) = found["metrics"]["success"]
    assert line["x"] == [1, 2, 3, 4, 5, 6]
    assert (line["label"], line["seeds"]) == ("run", 2)
    assert line["mean"][0] == pytest.approx(0.1)
    assert (line["low"][0], line["high"][0]) == (0.0, 0.2)
    apart = shown.get("curves?metric=success&seeds=apart&run=1&smooth=2").json()["metrics"]["success"]
    assert [each["label"] for each in apart] == ["run-b"]
    assert apart[0]["mean"][:2] == pytest.approx([0.2, 0.25])


def test_advantages_are_those_of_the_iteration(pages, tmp_path):
    page = pages(training(tmp_path / "run")).get("run/0/episode/8?colour=advantage")
    # Returns of the third iteration with gamma 0.5, over its four episodes: two of (0.5, 1), two of (0, 0).
    mean, deviation = 3 / 8, (sum(v**2 for v in (0.5, 1, 0.5, 1)) / 8 - (3 / 8) ** 2) ** 0.5
    assert f"advantage {(0.5 - mean) / deviation:.3f}" in text_of(page)
    assert f"advantage {(1 - mean) / deviation:.3f}" in text_of(page)
    assert "by-advantage" in page.text


@pytest.mark.parametrize("by", ["environment", "batch"])
def test_advantages_are_normalised_with_what_training_normalised(pages, tmp_path, by):
    folder = training(tmp_path / "run", iterations=0)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"normalise_by": by}))
    ends = [("game:Low", 0.0), ("game:Low", 1.0), ("game:High", 0.0), ("game:High", 5.0)]
    played = []
    for at, (spec, paid) in enumerate(ends):
        one = episode(answer("a", reward=paid), run=RUN, job=f"0-{at}", group=str(at))
        played.append(replace(one, task=TaskRef(spec, seed=at)))
    write(folder / "episodes.jsonl", *played)
    mean, deviation = 1.5, (sum(v**2 for _, v in ends) / 4 - 1.5**2) ** 0.5
    values = {"environment": 1.0, "batch": (1 - mean) / deviation}
    page = pages(folder).get("run/0/episode/1?colour=advantage")
    assert f"advantage {values[by]:.3f}".replace("-", "−") in text_of(page)


def test_an_iteration_is_a_filter_of_a_training_run(pages, tmp_path):
    page = pages(training(tmp_path / "run")).get("run/0?iteration=3")
    assert sorted(map(int, re.findall(r'/episode/(\d+)"', page.text))) == [8, 9, 10, 11]


def test_what_is_written_meanwhile_is_counted_and_shown(pages, tmp_path):
    folder = training(tmp_path / "run")
    shown = pages(folder)
    before = shown.get("run/0/count").json()
    with EpisodeStore(folder / "episodes.jsonl") as store:
        store.append(episode(answer("new"), run=RUN, job="6-0"))
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"iteration": 7, "success": 1.0}) + '\n{"iterat')
    assert shown.get("run/0/count").json() == {
        "episodes": before["episodes"] + 1,
        "iterations": before["iterations"] + 1,
    }
    assert "new" in re.sub("<[^>]*>", "", shown.get("run/0/episode/24").text)


def test_search_finds_what_was_said_and_where(pages, tmp_path):
    one = episode(turn(observation="rules", action="alpha Beta"), run=RUN, job="a")
    other = episode(
        turn(observation="x", action="y"), turn(observation="БETA Привет", action="z"), run=RUN, job="b"
    )
    shown = pages(write(tmp_path / "e.jsonl", one, other))
    numbers = re.compile(r'/run/0/episode/(\d+)#turn-(\d+)"')
    assert numbers.findall(shown.get("run/0?q=beta").text) == [("0", "1")]
    assert numbers.findall(shown.get("run/0?q=Привет").text) == [("1", "2")]
    assert numbers.findall(shown.get("run/0?q=привет").text) == [("1", "2")]
    assert numbers.findall(shown.get("run/0?q=привет, beta").text) == []
    assert numbers.findall(shown.get("run/0?q=RULES&outcome=solved").text) == [("0", "1")]
    assert numbers.findall(shown.get("run/0?q=observation").text) == []  # a name of the file's form
    assert shown.get(f"run/0?q={'x' * 201}", 400)


def test_folders_of_runs_are_opened_and_named(tmp_path):
    for name in ("a/episodes.jsonl", "b/random/episodes.jsonl", "b/solver/episodes.jsonl", "c/other.jsonl"):
        write(tmp_path / name, episode(turn(), run=RUN, job="a"))
    sources = open_sources([tmp_path, tmp_path / "c/other.jsonl", tmp_path / "a"])
    assert [source.name for source in sources] == ["a", "random", "solver", "other.jsonl"]
    for source in sources:
        source.store.close()


def test_what_cannot_be_read_hides_nothing_else(tmp_path):
    for name in ("bad/episodes.jsonl", "good/episodes.jsonl", "good/watched.jsonl"):
        write(tmp_path / name, episode(turn(), run=RUN, job="a"))
    for name in ("bad/episodes.jsonl", "good/watched.jsonl"):
        (tmp_path / name).write_bytes(b"\0\1 no store")
        (tmp_path / name).with_suffix(".index.sqlite").unlink(missing_ok=True)
    with pytest.warns(UserWarning, match=r"left out: .*(bad/episodes|good/watched)\.jsonl"):
        sources = open_sources([tmp_path])
    assert [(source.number, source.path) for source in sources] == [(0, tmp_path / "good/episodes.jsonl")]
    sources[0].store.close()
    for named in ([tmp_path / "bad"], [tmp_path / "good", tmp_path / "bad/episodes.jsonl"]):
        with pytest.raises(StoreError, match=r"bad/episodes\.jsonl.* does not begin an episode"):
            open_sources(named, watched=False)


def test_what_holds_no_episodes_says_so(tmp_path):
    with pytest.raises(BadArgument, match=r"holds no episodes; accepted: a store"):
        open_sources([tmp_path])
    with pytest.raises(BadArgument, match="holds no episodes"):
        open_sources([tmp_path / "absent"])
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(StoreError, match="does not begin an episode"):
        open_sources([tmp_path / "notes.txt"])


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("run/9", 404),
        ("run/0/episode/99", 404),
        ("run/0/episode/0/text/0/secrets", 404),
        ("run/0?order=line", 400),
        ("run/0?page=-1", 400),
        ("run/0?seed=x", 400),
        ("run/0?outcome=x", 400),
        ("static/../app.py", 404),
        ("static/..%2fapp.py", 404),
        ("nowhere", 404),
    ],
)
def test_what_is_not_there_says_so(pages, played, path, code):
    pages(played).get(path, code)


def test_long_text_is_cut_and_whole_on_a_page_of_its_own(pages, tmp_path):
    long = "<b>" + "x" * 1_000_000
    shown = pages(write(tmp_path / "e.jsonl", episode(turn(observation=long, action=long), run=RUN, job="a")))
    page = shown.get("run/0/episode/0")
    assert len(page.content) < 200_000
    assert "980,003 more characters" in page.text
    whole = shown.get("run/0/episode/0/text/0/observation")
    assert whole.text == long
    assert whole.headers["content-type"].startswith("text/plain")


def test_played_episodes_of_a_registered_environment_are_shown(pages, played):
    shown = pages(played)
    assert GUESS in shown.get("run/0/episode/11").text


def test_a_long_episode_is_shown_in_parts(pages, tmp_path):
    turns = [turn(observation=f"o{i}", action=f"needle{i}", reward=1.0) for i in range(700)]
    shown = pages(write(tmp_path / "e.jsonl", episode(*turns, run=RUN, job="a")))
    first = shown.get("run/0/episode/0").text
    assert len(re.findall('<li class="turn"', first)) == 300
    assert "turns from 301 on, of 700" in first
    assert 'id="end"' not in first
    last = shown.get("run/0/episode/0?at=601").text
    assert len(re.findall('<li class="turn"', last)) == 100
    assert "return so far 700.000" in last
    assert 'id="end"' in last
    assert "/run/0/episode/0?at=601#turn-651" in shown.get("run/0?q=needle650").text
    shown.get("run/0/episode/0?at=701", 404)
    shown.get("run/0/episode/0?at=0", 404)


def test_what_is_cut_is_said(pages, tmp_path):
    said = Message("assistant", "x", reasoning="r" * 30_000, tool_calls=(ToolCall("1", "t", "a" * 30_000),))
    made = turn(observation="o", action="x", reply=said, info={"why": "i" * 30_000})
    seen = text_of(pages(write(tmp_path / "e.jsonl", episode(made, run=RUN, job="a"))).get("run/0/episode/0"))
    assert seen.count("… 10,000 more characters") == 2
    assert re.search(r"… 10,0\d\d more characters", seen.replace("… 10,000", ""))


def test_an_empty_store_is_shown(pages, tmp_path):
    write(tmp_path / "episodes.jsonl")
    shown = pages(tmp_path)
    assert "no episodes yet" in shown.get("").text
    assert "No episode matches" in shown.get("run/0").text
    assert "There are no episodes yet" in shown.get("run/0/through").text
    shown.get("run/0?q=x")
    shown.get("run/0/episode/0", 404)


def test_alarms_of_a_training_run_stand_with_its_curves(pages, tmp_path):
    pytest.importorskip("torch")
    from dataclasses import asdict

    from gem.train.config import TrainConfig
    from gem.train.report.run_folder import Metrics

    folder = training(tmp_path / "run")
    (folder / "config.json").write_text(json.dumps(TrainConfig(out=str(folder)).to_json()))
    names = Metrics.__dataclass_fields__
    lines = [
        asdict(Metrics(**{**dict.fromkeys(names, 0.0), "iteration": i + 1, "selected": None}))
        for i in range(4)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    shown = pages(folder)
    (alarm,) = shown.get("curves").json()["alarms"]
    assert (alarm["name"], alarm["iteration"], alarm["run"]) == ("no_signal", 3, "run")
    assert "All returns were equal" in alarm["text"]
    assert shown.get("curves").json()["alarms"] == [alarm]


def test_many_ask_while_a_run_is_written(pages, tmp_path):
    folder = training(tmp_path / "run")
    shown = pages(folder)
    wrong = []

    def ask():
        for path in (
            "run/0",
            "",
            "run/0/through",
            "run/0/episode/3",
            "curves",
            "run/0?q=boxed",
            "run/0/count",
        ):
            code = shown.client.get(f"/{TOKEN}/{path}").status_code
            if code != 200:
                wrong.append((path, code))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    with EpisodeStore(folder / "episodes.jsonl") as store, (folder / "metrics.jsonl").open("a") as metrics:
        for i in range(6, 40):
            store.append(episode(answer("new"), run=RUN, job=f"{i}-0"))
            metrics.write(json.dumps({"iteration": i + 1, "success": 0.5}) + "\n")
            metrics.flush()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(shown.viewer.sources[0].history) == 40
    assert [line["iteration"] for line in shown.viewer.sources[0].history] == list(range(1, 41))


def test_a_store_that_was_replaced_is_shown_as_it_is_now(pages, played, tmp_path):
    opened = pages(played)
    assert opened.get("run/0/count").json()["episodes"] == 12
    write(tmp_path / "new" / "episodes.jsonl", episode(answer("new"), run=RUN, job="0-0")).replace(played)
    assert opened.get("run/0/count").json()["episodes"] == 1
    assert "n e w" in text_of(opened.get("run/0/episode/0"))
    opened.get("run/0/episode/1", 404)
    played.unlink()
    os.mkfifo(played)
    assert opened.get("run/0/count").json()["episodes"] == 1


def test_a_store_that_is_written_into_the_same_file_is_shown_as_it_is_now(pages, played, tmp_path):
    opened = pages(played)
    before = text_of(opened.get("run/0"))
    run = replace(RUN, id="another")
    episodes = [episode(answer("new"), run=run, job=f"{number}-0") for number in range(12)]
    new = write(tmp_path / "new" / "episodes.jsonl", *episodes)
    played.write_bytes(new.read_bytes())
    after = text_of(opened.get("run/0"))
    assert (
        after.replace("played", "new") == text_of(pages(new).get("run/0")) != before.replace("played", "new")
    )


def test_a_store_that_is_overwritten_is_told(pages, played):
    opened = pages(played)
    opened.get("run/0/episode/11")
    played.write_bytes(b"\x00" * played.stat().st_size)
    assert "was changed while the store is open" in opened.get("run/0/episode/11", 400).text


def test_an_export_replaces_pages_alone(pages, played):
    source, before = pages(played).viewer.sources[0], played.read_bytes()
    with pytest.raises(BadArgument, match="holds something else, which would be lost"):
        export([source], played)
    assert played.read_bytes() == before


def test_an_export_takes_no_folder_or_pipe_away(pages, played, tmp_path):
    source = pages(played).viewer.sources[0]
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(BadArgument, match="is not a regular file"):
            export([source], path)
    assert (tmp_path / "pipe").is_fifo()
    assert export([source], tmp_path / "old.html") == 12
    assert export([source], tmp_path / "old.html", limit=5) == 5
    text = (tmp_path / "old.html").read_text()
    assert "the last 5 of 12 episodes" in text
    assert text.count("<template") == 5


def test_a_training_run_is_shown_before_its_first_episode(pages, tmp_path):
    folder = training(tmp_path / "run")
    kept = (folder / "episodes.jsonl").read_bytes()
    for file in folder.glob("episodes*"):
        file.unlink()
    shown = pages(folder)
    assert "no episodes yet" in shown.get("").text
    for path in ("run/0", "run/0?q=boxed", "run/0/through", "curves", "run/0/count"):
        shown.get(path)
    (folder / "episodes.jsonl").write_bytes(kept)
    assert shown.get("run/0/count").json() == {"episodes": 24, "iterations": 6}
    assert "24 episodes" in shown.get("run/0").text


def test_stores_of_other_processes_are_opened_too(tmp_path):
    folder = training(tmp_path / "run")
    for name in ("episodes-1.jsonl", "episodes-x.jsonl", "episodes.jsonl.notes.jsonl"):
        write(folder / name, episode(turn(), run=RUN, job="a"))
    sources = open_sources([folder])
    assert [source.path.name for source in sources] == ["episodes.jsonl", "episodes-1.jsonl"]
    assert [source.training for source in sources] == [True, False]
    for source in sources:
        source.close()


def test_without_tokens_the_prompt_is_its_messages(pages, tmp_path):
    call = ToolCall("1", "look", "{}")
    first = turn(observation="the rules", action="a", reply=Message("assistant", "hm", tool_calls=(call,)))
    second = turn(observation="seen", action="b")
    given = turn(
        observation="x", action="c", messages=(Message("system", "a proxy's"), Message("user", "words"))
    )
    run = RunInfo("run", history=HistoryPolicy(system="be brief"))
    shown = pages(write(tmp_path / "e.jsonl", episode(first, second, given, run=run, job="a")))
    seen = text_of(shown.get("run/0/episode/0/prompt/1"))
    for expected in ("system be brief", "user the rules", "assistant hm calls look", "tool look seen"):
        assert expected in seen
    assert "system a proxy&#39;s user words" in text_of(shown.get("run/0/episode/0/prompt/2"))
    assert "/run/0/episode/0/prompt/1" in shown.get("run/0/episode/0").text


def test_messages_of_a_chain_stand_behind_their_parents(pages, tmp_path):
    first = turn((1,), (2,), observation="o", action="one", messages=(Message("user", "begin"),))
    second = turn(
        (1, 2, 3), (4,), observation="o", action="two", after=[first], messages=(Message("user", "go on"),)
    )
    shown = pages(write(tmp_path / "e.jsonl", episode(first, second, run=RunInfo("r"), job="a")))
    assert "user begin assistant one user go on" in text_of(shown.get("run/0/episode/0/prompt/1"))


class Faltering(BaseAgent):
    """Loses some episodes to its server, until that is mended."""

    __call__ = BaseAgent.__call__
    broken = True

    async def ask(self, ask):
        if self.broken and stream(ask.seed).random() < 0.2:
            raise NoVerdict("the server hung up")
        return Reply(f"\\boxed{{{1 + ask.seed % 10}}}")


def test_episodes_that_were_cut_are_no_lost_ones_where_none_says_success(pages, tmp_path):
    def ended(spec, stop, ends=None):
        made = episode(answer("a"), stop=stop)
        return replace(made, task=TaskRef(spec), ends=ends or made.ends)

    silent = [ended("test:Score", stop) for stop in (StopReason.ENDED, *[StopReason.TURN_LIMIT] * 4)]
    ends = {"x": SeatEnd(StopReason.ENDED), "o": SeatEnd(StopReason.FAILED)}
    games = [ended("test:Go", stop, ends) for stop in (StopReason.FAILED, StopReason.ENDED)]
    write(tmp_path / "episodes.jsonl", *silent, *games, episode(answer("a")))
    (source,) = open_sources([tmp_path])
    assert (source.figures().known, source.figures().success.mean) == (1, 1.0)
    assert [each.success is None for each in source.by_env().values()] == [False, True, True]
    assert [each.known for each in split_run(source, "test:Score").stretches] == [0] * 5
    source.close()


NEAR = [1e4, 1e4 + 0.1, 1e4 - 0.2]


@pytest.mark.parametrize(
    "returns", [[1] * 5, [0] * 5, [0, 1, 1, 0, 1], [0.3] * 5, [0.1 + 0.2, 0.3] * 3, [0, 2, 1], NEAR]
)
@pytest.mark.parametrize("samples", [1, 2])
def test_the_interval_of_the_return_is_that_of_the_evaluation(tmp_path, returns, samples):
    says = {1: StopReason.SOLVED}
    for silent in (False, True):
        episodes = []
        for at, reward in enumerate(returns):
            task = str(at // samples)
            stop = StopReason.ENDED if silent else says.get(reward, StopReason.FAILED)
            more = {"seed": int(task), "group": task, "job": task, "sample": at % samples}
            episodes.append(episode(answer("a", reward=reward), stop=stop, **more))
        (source,) = open_sources([write(tmp_path / str(silent) / "episodes.jsonl", *episodes)])
        groups, successes = [each.group for each in episodes], [each.success for each in episodes]
        expected = return_interval(returns, groups, successes=successes)
        assert tuple(source.figures().reward) == pytest.approx(tuple(expected))
        source.close()


def test_the_figures_are_those_of_the_evaluation(pages, tmp_path):
    """Samples of a task are no tasks of their own, and what was played again counts once."""
    agent = Faltering()
    for broken in (True, False):
        agent.broken = broken
        with EpisodeStore(tmp_path / "episodes.jsonl") as store:
            more = {"episodes": 12, "samples": 3, "store": store, "resume": True, "retry_failed": not broken}
            found = evaluate(agent, GUESS, **more)
        (source,) = open_sources([tmp_path])
        figures = source.figures()
        assert figures.coverage == found.coverage
        assert tuple(figures.success) == pytest.approx(tuple(found.success))
        assert tuple(figures.reward) == pytest.approx(tuple(found.reward))
        assert figures.mean_turns == pytest.approx(found.turns)
        assert source.by_env()[GUESS] == figures
        held = len(source.store)
        source.close()
        assert (found.coverage < 1) == broken
    assert figures.episodes == 36 < held
    page = pages(tmp_path).get("run/0").text
    assert f'data-episodes="{held}"' in page  # what the page asks for to see whether there are more
