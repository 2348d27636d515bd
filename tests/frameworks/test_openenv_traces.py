"""gem.adapters.openenv_traces against OpenEnv's own TrainingTrace."""

import msgspec
import pytest

pytest.importorskip("openenv", reason="`scripts/frameworks.py openenv_traces`")

from openenv.core.harness.training import TrainingTrace
from random_models import RENDERER, Chatter, make_model

from gem import codec
from gem.adapters.openenv_traces import from_trace, read_traces, to_trace, write_traces
from gem.agents.hugging_face import HuggingFaceAgent
from gem.history import HistoryPolicy
from gem.record import Verdict
from gem.rollout import Job, rollout

pytestmark = pytest.mark.framework


@pytest.fixture(scope="module")
def episodes():
    agent = HuggingFaceAgent(make_model(), RENDERER, max_tokens=5)
    histories = (None, HistoryPolicy("last"), HistoryPolicy("chat", window=2, system="the number"))
    jobs = [Job(Chatter, seed, history=history) for seed in range(3) for history in histories]
    made = rollout(jobs, agent)
    made[0].verdict = Verdict.NONE
    return made


def test_openenv_takes_every_line(tmp_path, episodes):
    path = tmp_path / "traces.jsonl"
    assert write_traces(episodes, path) == len(episodes)
    for line, episode in zip(path.read_text().splitlines(), episodes, strict=True):
        trace = TrainingTrace.model_validate_json(line)
        assert [turn.completion_token_ids for turn in trace.turns] == [
            list(turn.token_ids) for turn in episode.turns
        ]
        assert any(any(turn.loss_mask) for turn in trace.turns) is episode.scored


def test_what_openenv_writes_comes_back(tmp_path, episodes):
    path = tmp_path / "traces.jsonl"
    traces = [TrainingTrace.model_validate_json(msgspec.json.encode(to_trace(each))) for each in episodes]
    path.write_text("".join(trace.model_dump_json() + "\n" for trace in traces))
    back = [read() for read in read_traces(path)]
    assert [codec.encode(each) for each in back] == [codec.encode(each) for each in episodes]


def test_traces_of_others_are_valid_again(episodes):
    for episode in episodes:
        whole = TrainingTrace.model_validate(to_trace(episode, record=False))
        back = from_trace(whole.model_dump())
        back.verdict = episode.verdict
        again = TrainingTrace.model_validate(to_trace(back, record=False))
        assert [turn.loss_mask for turn in again.turns] == [turn.loss_mask for turn in whole.turns]
        assert [turn.request for turn in again.turns] == [turn.request for turn in whole.turns]


def test_trl_makes_the_rows_that_gem_makes(episodes):
    pytest.importorskip("trl", reason="needs TRL: pip install 'gem-gym[trl]'")
    from trl.experimental.async_grpo.async_rollout_worker import TurnRecord, _chain_to_sequences

    from gem.tokens.rows import rows

    for episode in episodes[1:]:
        trace = TrainingTrace.model_validate(to_trace(episode))
        records = [
            TurnRecord(
                turn.prompt_token_ids,
                turn.completion_token_ids,
                turn.per_token_logps,
                turn.loss_mask[len(turn.prompt_token_ids) :],
            )
            for turn in trace.turns
        ]
        sequences, _ = _chain_to_sequences(records, "rollout", 0)
        made = rows(episode)
        assert [each.input_ids for each in sequences] == [list(row.ids) for row in made]
        assert [each.completion_mask for each in sequences] == [list(row.mask) for row in made]
        for sequence, row in zip(sequences, made, strict=True):
            assert sequence.old_log_probs == pytest.approx(list(row.logprobs))
