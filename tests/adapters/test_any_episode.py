"""Whatever an episode holds, every format takes it and gives it back."""

import json

import msgspec
import pytest
from any_records import episodes
from hypothesis import given, settings

from gem import codec
from gem.adapters.atif import from_atif, to_atif
from gem.adapters.chats import preference_rows, sft_rows
from gem.adapters.openenv_traces import from_trace, to_trace
from gem.adapters.rows import episode_in_row, episode_row, turn_rows
from gem.errors import BadArgument


def read(values):
    """The values as a strict reader of JSON has them."""
    return json.loads(msgspec.json.encode(values))


@pytest.mark.system
@settings(max_examples=60)
@given(episodes)
def test_rows(episode):
    assert codec.encode(episode_in_row(read(episode_row(episode)), "a row")) == codec.encode(episode)
    assert len(read(list(turn_rows(episode)))) == len(episode.turns)


@pytest.mark.system
@settings(max_examples=60)
@given(episodes)
def test_trajectories(episode):
    assert codec.encode(from_atif(read(to_atif(episode)))) == codec.encode(episode)
    foreign = from_atif(read(to_atif(episode, record=False)))
    assert codec.decode(codec.encode(foreign), foreign.run) == foreign


@pytest.mark.system
@settings(max_examples=30)
@given(episodes, episodes)
def test_conversations_to_train_on(episode, other):
    read(list(sft_rows(episode)))
    other.task = episode.task
    read(list(preference_rows([episode, other])))


@pytest.mark.system
@settings(max_examples=30)
@given(episodes)
def test_traces(episode):
    for seat in dict.fromkeys(turn.seat for turn in episode.turns):
        try:
            trace = read(to_trace(episode, seat))
        except BadArgument:  # of an episode without tokens
            continue
        assert codec.encode(from_trace(trace)) == codec.encode(episode)
        foreign = from_trace(read(to_trace(episode, seat, record=False)))
        assert codec.decode(codec.encode(foreign), foreign.run) == foreign


@settings(max_examples=60)
@given(episodes)
def test_harbor_accepts_trajectories(episode):
    models = pytest.importorskip("harbor.models.trajectories", reason="Harbor's own models")
    models.Trajectory.model_validate(read(to_atif(episode, record=False)))


@settings(max_examples=30)
@given(episodes)
def test_logs(episode):
    pytest.importorskip("inspect_ai", reason="needs inspect-ai: pip install 'gem-gym[inspect]'")
    from inspect_ai.log import EvalLog

    from gem.adapters.inspect_logs import from_eval_log, to_eval_log

    written = to_eval_log([episode]).model_dump_json()
    (back,) = from_eval_log(EvalLog.model_validate_json(written))
    assert codec.encode(back) == codec.encode(episode)


@pytest.mark.system
@settings(max_examples=30)
@given(episodes)
def test_parquet(tmp_path_factory, episode):
    pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'gem-gym[data]'")
    from gem.adapters.parquet import read_parquet, write_parquet

    folder = tmp_path_factory.mktemp("parquet")
    write_parquet([episode], folder / "episodes.parquet")
    write_parquet([episode], folder / "turns.parquet", "turn")
    (back,) = read_parquet(folder / "episodes.parquet")
    assert codec.encode(back()) == codec.encode(episode)
