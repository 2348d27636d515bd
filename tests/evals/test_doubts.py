"""What a server did shows in the result of an evaluation: a warning, a count, and a gate that fails."""

import itertools
import json

import pytest
from plain_questions import answers_plain_questions

from gem import cli
from gem.cli.play import show
from gem.evals.doubts import describe_doubts, find_doubts
from gem.evals.results import summarise
from gem.record import Episode, Limits, RunInfo, SeatEnd, StopReason, Turn, Verdict
from gem.specs import TaskRef
from gem.testing.stub_server import RawAnswer, StubServer, completion

pytest.importorskip("httpx")
EASY = "game:GuessTheNumber-v0-easy"


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def guess(number, text=r"\boxed{3}", end="stop", tokens=5, **body):
    usage = {"prompt_tokens": 9, "completion_tokens": tokens}
    return {"id": f"a{number}", "model": "m", **completion(text, end), "usage": usage, **body}


def too_long(_):
    complaint = "This model's maximum context length is 8 tokens. However, your messages resulted in 90."
    return RawAnswer(400, body=json.dumps({"error": {"message": complaint}}).encode())


def half(_):
    return RawAnswer.stream({"id": "h", "choices": [{"index": 0, "delta": {"content": r"\boxed{3"}}]})


def play(answer, folder, *words):
    """Play four episodes against a server that answers its n-th request with ``answer(n)``."""
    numbers = itertools.count()
    with StubServer(answers_plain_questions(lambda body: answer(next(numbers)))) as server:
        command = ["eval", EASY, "--agent", f"openai:m@{server.base_url}", "-n", "4", "--out", str(folder)]
        code = cli.main([*command, "--seed", "3", "--gate", "doubtful<=0", *words])
    return code, json.loads((folder / "result.json").read_text())


@pytest.mark.parametrize(
    ("answer", "doubt"),
    [
        (too_long, "ended before the model wrote a word"),
        (lambda n: guess(n, "", "length", 0), "ended before the model wrote a word"),
        (lambda n: guess(n, None, "stop", 7), "ended before the model wrote a word"),
        (lambda n: guess(n, model="m" if n else "other"), "have an answer of another model"),
        (lambda n: guess(0), "have answers that all bear one id"),
        (lambda n: guess(n, end="stop" if n else "length"), "have an answer that the token limit cut"),
    ],
    ids=["context", "no room", "null", "model", "cache", "cut"],
)
def test_a_doubt_is_a_warning_and_fails_the_gate(answer, doubt, tmp_path, capsys):
    code, result = play(answer, tmp_path / "run")
    streams = capsys.readouterr()
    (row,) = result["results"]
    assert code == 1
    assert row["scored"] == 4
    assert set(row["doubts"]) == {doubt}
    assert row["doubtful"] == row["doubts"][doubt] > 0
    said = " ".join((streams.out + streams.err).split())
    assert "warning: openai:m@" in said
    assert f"{row['doubtful']} of 4 episodes {doubt}:" in said
    assert doubt in (tmp_path / "run" / "report.md").read_text()


def test_streams_without_any_finish_reason_are_scored_and_counted(tmp_path):
    with StubServer("", faults=[half(0)] * 400) as server:
        command = ["eval", EASY, "--agent", f"openai:m@{server.base_url}", "-n", "4", "--stream"]
        code = cli.main([*command, "--out", str(tmp_path / "run"), "--gate", "doubtful<=0"])
    (row,) = json.loads((tmp_path / "run" / "result.json").read_text())["results"]
    assert (code, row["scored"], row["doubtful"]) == (1, 4, 4)


def test_an_empty_first_answer_that_is_not_the_end_is_no_doubt():
    def played():
        turns = [Turn("agent", "q", text) for text in ("", r"\boxed{3}")]
        ends = {"agent": SeatEnd(StopReason.SOLVED, terminated=True)}
        run = RunInfo(agent="A", model="m")
        return Episode(
            TaskRef(EASY), run, turns=turns, stop=StopReason.SOLVED, ends=ends, verdict=Verdict.SCORED
        )

    assert find_doubts([played(), played()]) == {}


def test_an_ordinary_run_has_no_doubts(tmp_path):
    code, result = play(lambda n: guess(n, "" if n == 2 else r"\boxed{3}"), tmp_path / "run")
    assert code == 0
    assert result["results"][0]["doubts"] == {}


def test_agents_without_a_model_give_no_doubts(tmp_path):
    assert cli.main(["eval", EASY, "--agent", "random", "-n", "4", "--gate", "doubtful<=0"]) == 0


def ended(stop, /, limit=None, **info):
    run = RunInfo("run", "RandomAgent", limits=Limits(turns=limit))
    cut_off = stop is StopReason.TURN_LIMIT
    ends = {"agent": SeatEnd(stop, terminated=not cut_off, truncated=cut_off, info=info)}
    turns = [Turn("agent", "?", "5", reward=1.0)]
    return Episode(TaskRef("x:Y"), run, turns=turns, stop=stop, ends=ends, verdict=Verdict.SCORED)


def test_truncation_without_a_word_of_success_is_a_doubt():
    silent = ended(StopReason.TURN_LIMIT)
    (doubt,) = find_doubts([silent, ended(StopReason.TURN_LIMIT, limit=1)]).items()
    assert doubt == ("were cut off, and none says whether it was solved", {0, 1})
    for says in (
        ended(StopReason.ENDED),  # then none is counted as lost
        ended(StopReason.SOLVED, success=True),
        ended(StopReason.FAILED, success=False),
    ):
        assert find_doubts([silent, says]) == {}
    assert find_doubts([ended(StopReason.TURN_LIMIT, stop="turn_limit")]) == {}
    assert find_doubts([ended(StopReason.TURN_LIMIT, success=False)]) == {}


def cut(number, of, stop=StopReason.SOLVED):
    """Return an episode of a model with `of` turns, the last `number` of which the token limit cut."""
    turns = [
        Turn("agent", "?", "5", reward=1.0, finish="length" if of - place <= number else "stop")
        for place in range(of)
    ]
    run = RunInfo("run", "OpenAIAgent", "m")
    return Episode(TaskRef("x:Y"), run, turns=turns, stop=stop, verdict=Verdict.SCORED)


def test_cut_answers_are_a_doubt_from_a_few_per_cent_of_the_turns_on():
    doubt = "have an answer that the token limit cut"
    assert find_doubts([cut(1, 40), cut(0, 30)]) == {}
    assert find_doubts([cut(1, 30), cut(0, 30), cut(1, 5)]) == {doubt: {0, 2}}
    # the episode's own limit cut the last one, as it was asked to
    assert find_doubts([cut(1, 5, StopReason.TOKEN_LIMIT)]) == {}
    assert find_doubts([cut(2, 5, StopReason.TOKEN_LIMIT)]) == {doubt: {0}}


def test_cut_answers_are_counted_in_the_result():
    result = summarise("x:Y", [cut(1, 40), cut(0, 60), cut(1, 3, StopReason.TOKEN_LIMIT)])
    assert (result.cut, result.to_json()["cut"], result.doubts) == (1, 1, {})


def end_with(stop=StopReason.FAILED, **about):
    """Return an episode of a program that ended so."""
    program = {
        "exit_code": 1,
        "signal": None,
        "ended": "",
        "stderr": "Trace:\n  x\nOSError: no\x1b[1m|\n",
        **about,
    }
    episode = Episode(
        TaskRef("e:x"), RunInfo(agent="program:x", model="m"), stop=stop, verdict=Verdict.SCORED
    )
    episode.ends["agent"] = SeatEnd(stop, terminated=True, info={"program": program})
    return episode


def test_a_program_that_ends_with_an_error_is_a_doubt():
    episodes = [
        end_with(),
        end_with(StopReason.TIME_LIMIT),  # by MCP, where it left the episode unfinished
        end_with(exit_code=None, signal=11, stderr=""),
        end_with(stderr="OSError: another\n" + "x" * 500),
        end_with(exit_code=0),
        end_with(StopReason.SOLVED),
        end_with(StopReason.TURN_LIMIT),
        end_with(StopReason.TIME_LIMIT, ended="time"),
    ]
    (first, places), (second, others) = find_doubts(episodes).items()
    assert first == "have a program that ended with exit code 1 ('OSError: no\\x1b[1m|')"
    assert (places, second, others) == ({0, 1, 3}, "have a program that ended with signal 11", {2})
    told = describe_doubts({first: 3}, 8)[0]
    assert told.startswith(f"3 of 8 episodes {first}: ")
    assert "gem-gym show" in told


def test_a_program_that_fails_without_a_call_is_no_fault_of_the_server():
    assert [*find_doubts([end_with(), end_with(exit_code=0)])] == [
        "have a program that ended with exit code 1 ('OSError: no\\x1b[1m|')"
    ]


def leave(actions=0, stop=StopReason.TIME_LIMIT, turns=(), model="m", **about):
    """Return an episode that a program played by MCP, with the text of each answer of its model."""
    episode = end_with(stop, **{"exit_code": 0, "stderr": "", **about})
    episode.run = RunInfo(agent="program:x", model=model)
    episode.turns = [Turn("agent", "?", text) for text in turns]
    episode.ends["agent"].info["actions"] = actions
    return episode


def test_programs_that_leave_their_episodes_are_a_doubt_where_most_do():
    solved = leave(1, StopReason.SOLVED, ["5"])
    left = [leave(turns=["5"]), leave(2, turns=["5"]), leave(model=None)]
    ((doubt, places),) = find_doubts([*left, solved, solved]).items()
    assert (doubt, places) == ("have a program that ended before its episode", {0, 1, 2})
    assert "--program-prints" in describe_doubts({doubt: 3}, 5)[0]
    assert find_doubts([*left, solved, solved, solved]) == {}
    limits = [
        leave(stop=StopReason.TURN_LIMIT, turns=["5"]),
        leave(turns=["5"], ended="time"),
        end_with(StopReason.TIME_LIMIT, exit_code=0),  # in a workspace
    ]
    assert find_doubts(limits) == {}


def test_a_program_that_got_no_answer_is_not_said_to_have_a_wordless_model():
    doubts = find_doubts([leave(ended="time"), end_with(exit_code=0)])
    assert doubts == {"have a program that got no answer of its model": {0, 1}}
    assert find_doubts([leave(ended="time", turns=[""])]) == {"ended before the model wrote a word": {0}}


def test_an_episode_that_a_program_left_is_not_said_to_be_out_of_time(capsys):
    show(leave(turns=["5"], stdout="I think it is 5", wall_s=0.4))
    said = capsys.readouterr().out
    assert "exit code 0 after 0.4 s, actions: 0\nstdout:\nI think it is 5" in said
    assert "Left unfinished by the program after 1 turn, return 0" in said
    show(leave(turns=["5"], ended="time"))
    assert "time_limit after 1 turn, return 0" in capsys.readouterr().out
