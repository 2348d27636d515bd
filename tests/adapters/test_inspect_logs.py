import json
from dataclasses import replace

import pytest
from awkward_episodes import RUN, awkward, branched, broken, echoed, of_two_seats, with_pictures, with_tools
from records import episode

from gem import codec
from gem.content import Message
from gem.errors import BadArgument, MissingData
from gem.history import HistoryPolicy
from gem.record import StopReason
from gem.rollout import EpisodeStore

pytest.importorskip("inspect_ai", reason="needs inspect-ai: pip install 'gem-gym[inspect]'")
from inspect_ai.log import EvalSample, read_eval_log, write_eval_log

from gem.adapters.inspect_logs import from_eval_log, read_logs, to_eval_log, write_logs


def lines(episodes):
    return sorted(codec.encode(episode) for episode in episodes)


def sample_of(episode):
    (sample,) = to_eval_log([episode]).samples
    return sample


@pytest.mark.parametrize("suffix", ["eval", "json"])
def test_what_is_written_is_read_back_equal(tmp_path, suffix):
    path = tmp_path / f"out.{suffix}"
    write_eval_log(to_eval_log(awkward()), path)
    log = read_eval_log(path)
    back = list(from_eval_log(log))
    assert lines(back) == lines(awkward())
    assert {episode.run for episode in back if not episode.run.sampling} == set()
    assert all(episode.run == RUN for episode in back)
    assert lines(read() for read in read_logs(path)) == lines(awkward())
    assert log.status == "success"
    assert (log.results.total_samples, log.results.completed_samples) == (6, 5)


def test_what_the_format_holds_stands_in_its_fields():
    sample = sample_of(with_tools())
    assert (sample.id, sample.epoch) == ("tools", 2)
    assert [message.role for message in sample.messages] == [
        "system", "user", "assistant", "tool", "tool", "assistant", "user",
    ]  # fmt: skip
    answer = sample.messages[2]
    assert [part.type for part in answer.content] == ["reasoning", "text"]
    assert answer.tool_calls[0].arguments == {"at": "<b>"}
    assert answer.tool_calls[1].parse_error.startswith("no JSON object")
    assert sample.messages[3].function == "look"
    assert (sample.scores["success"].value, sample.scores["return"].value) == ("C", 0.5)
    call, earned, *_ = sample.events
    assert (call.event, call.tools[0].name, len(call.input)) == ("model", "look", 2)
    assert call.output.usage.input_tokens == 7
    assert [each.token for each in call.output.choices[0].logprobs.content] == ["token_id:5", "token_id:6"]
    assert earned.data == {"turn": 0, "reward": 0.25, "rewards": None}
    assert sample.model_usage["a-model"].output_tokens == 6


def test_without_a_verdict_a_sample_has_an_error_and_no_score():
    sample = sample_of(broken())
    assert sample.scores is None
    assert sample.error.message == "RuntimeError (env): it \\ud800 broke"
    log = to_eval_log([broken()])
    assert (log.results.scores, log.results.completed_samples) == ([], 0)


def test_the_metrics_leave_out_what_has_no_verdict():
    log = to_eval_log([echoed(0), echoed(1), broken()])
    success, earned = log.results.scores
    assert (success.metrics["accuracy"].value, success.scored_samples, success.unscored_samples) == (0, 2, 1)
    assert earned.metrics["mean"].value == pytest.approx(2 / 3)


def test_a_cut_episode_is_no_failure_where_no_success_is_reported():
    log = to_eval_log([episode(stop=StopReason.ENDED), episode(stop=StopReason.TURN_LIMIT)])
    assert [score.name for score in log.results.scores] == ["return"]


def test_seats_pictures_and_limits():
    seats = sample_of(of_two_seats())
    assert set(seats.metadata["seats"]) == {"player_0", "player_1"}
    assert {event.role for event in seats.events if event.event == "model"} == {"player_0", "player_1"}
    shown = sample_of(with_pictures()).input[1].content
    assert [part.type for part in shown] == ["text", "image", "image"]
    assert sample_of(branched()).limit.type == "turn"
    assert sample_of(branched()).metadata["origin"] == {"episode": "run-other-0-0", "turns": 1}


def test_samples_of_one_job_are_epochs_and_attempts_stay_apart():
    first = echoed()
    again = replace(first, attempt=1)
    other = replace(first, sample=1)
    log = to_eval_log([first, again, other])
    assert [(sample.id, sample.epoch) for sample in log.samples] == [
        ("run-echo0-0-0", 1),
        ("run-echo0-0-1", 1),
        ("echo0", 2),
    ]
    assert log.eval.config.epochs == 2


def test_a_folder_has_a_log_for_each_environment_and_run(tmp_path, monkeypatch):
    monkeypatch.setattr("gem.adapters.inspect_logs.SAMPLES", 2)
    with EpisodeStore(tmp_path / "run.jsonl") as store:
        for episode in (*awkward(), echoed(1), echoed(2)):
            store.append(episode)
        assert write_logs(store, tmp_path / "logs") == 7
        logs = [read_eval_log(path) for path in sorted((tmp_path / "logs").iterdir())]
        assert [len(log.samples) for log in logs] == [1, 1, 1, 1, 1, 2, 1]
        assert lines(read() for read in read_logs(tmp_path / "logs")) == lines(store)
        with pytest.raises(BadArgument, match="not empty"):
            write_logs(store, tmp_path / "logs")
        monkeypatch.setattr("gem.adapters.inspect_logs.TURNS", 4)  # of three turns each
        assert write_logs(store, tmp_path / "more") == 8


def test_what_is_no_such_log_is_refused(tmp_path):
    for name, data in (("x.eval", b"PK\x03\x04 torn"), ("x.json", b'{"eval": 3}'), ("y.eval", b"")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(BadArgument, match="cannot be read"):
            list(read_logs(tmp_path / name))
    with pytest.raises(MissingData):
        list(read_logs(tmp_path / "none.eval"))
    log = to_eval_log([])
    foreign = EvalSample(id=1, epoch=1, input="x", target="")
    hostile = EvalSample(
        id=2, epoch=1, input="x", target="", store={"gem": {"episode": {"schema": 9}, "run": 1}}
    )
    log.samples = [foreign, hostile]
    write_eval_log(log, tmp_path / "z.eval")
    reads = list(read_logs(tmp_path / "z.eval"))
    for read in reads:
        with pytest.raises(BadArgument):
            read()
    with pytest.raises(BadArgument, match="no record"):
        list(from_eval_log(log))


def test_deep_arguments_and_schemas_do_not_stop_an_export(tmp_path):
    episode = with_tools()
    deep = json.loads("[" * 300 + "]" * 300)
    call = replace(episode.turns[0].reply.tool_calls[0], arguments=json.dumps({"x": deep}))
    turn = replace(episode.turns[0], reply=replace(episode.turns[0].reply, tool_calls=(call,)))
    starts = {"agent": {"tools": [{"name": "look", "description": "", "schema": {"type": 7, "x": deep}}]}}
    episode = replace(episode, turns=[turn], starts=starts)
    write_eval_log(to_eval_log([episode]), tmp_path / "out.eval")
    (read,) = read_logs(tmp_path / "out.eval")
    assert read().turns[0].reply == turn.reply


def test_a_model_call_has_what_was_shown_to_it():
    def inputs(episode):
        calls = [event for event in sample_of(episode).events if event.event == "model"]
        return [[message.text for message in call.input] for call in calls]

    episode = branched()
    assert inputs(episode)[2] == ["Be brief.", "say 0", "0", "say 1", "1", "say 2"]
    windowed = replace(episode, run=replace(RUN, history=HistoryPolicy("chat", window=1)))
    assert inputs(windowed) == [["say 0"], ["say 1"], ["say 2"]]
    turns = [replace(turn, messages=(Message("user", f"turn {n}"),)) for n, turn in enumerate(episode.turns)]
    turns[1].parent, turns[2].parent = turns[0], turns[0]
    told = inputs(replace(episode, turns=turns))
    assert told == [["turn 0"], ["turn 0", "0", "turn 1"], ["turn 0", "0", "turn 2"]]


def test_no_name_of_a_sample_is_a_path(tmp_path):
    jobs = ["", "../../x", "a\0b", "a\0c", "long" * 30_000, "line\nbreak", "\ud800", "plain-1.0:x"]
    episodes = [replace(echoed(), job=job) for job in jobs]
    write_eval_log(to_eval_log(episodes), tmp_path / "out.eval")
    names = [sample.id for sample in read_eval_log(tmp_path / "out.eval").samples]
    assert len(set(names)) == len(jobs)
    assert "plain-1.0:x" in names
    assert all(len(name) == 16 for name in names if name != "plain-1.0:x")
    assert lines(read() for read in read_logs(tmp_path / "out.eval")) == lines(episodes)
