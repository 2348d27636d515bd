import json

import anyio
import pytest

from gem.errors import BadArgument, UnknownEnv
from gem.record import StopReason
from gem.registry import ENV_REGISTRY, EnvSpec, register

pytest.importorskip("inspect_ai", reason="needs inspect-ai: pip install 'gem-gym[inspect]'")
from awkward_episodes import Tooled
from inspect_ai import eval as inspect_eval
from inspect_ai.log import read_eval_log
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessageAssistant,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelOutput,
    ModelUsage,
    get_model,
)
from inspect_ai.tool import ToolCall

from gem.adapters.inspect_logs import from_eval_log, read_logs
from gem.adapters.inspect_tasks import gem_task
from gem.evals import evaluate
from gem.testing.doubles import EchoEnv

pytestmark = [  # of its own dependencies, and of streams between its tasks
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
USAGE = ModelUsage(input_tokens=7, output_tokens=2, total_tokens=9)


@pytest.fixture(autouse=True)
def ids(monkeypatch):
    monkeypatch.setattr("gem.registry.ENV_REGISTRY", ENV_REGISTRY.copy())
    register(EnvSpec("test:Echo", EchoEnv))
    register(EnvSpec("test:Waits", EchoEnv, waits=True))
    register(EnvSpec("test:Tooled", Tooled))


def said(text, **changes):
    output = ModelOutput.from_content("mockllm", text)
    output.usage = USAGE
    for name, value in changes.items():
        setattr(output, name, value)
    return output


def echo(messages, tools, choice, config):
    """Say the number that is asked for."""
    return said(messages[-1].text[4:-1])


def run(tmp_path, task, answer=echo, **options):
    (log,) = inspect_eval(
        task,
        model=get_model("mockllm/model", custom_outputs=answer),
        display="none",
        log_dir=str(tmp_path),
        **options,
    )
    return log


@pytest.mark.parametrize("env", ["test:Echo", "test:Waits"])
def test_episodes_are_played_and_scored(tmp_path, env):
    log = run(tmp_path, gem_task(env, n=3), epochs=2)
    assert log.status == "success"
    scores = {score.name: score.metrics for score in log.results.scores}
    assert scores["return"]["mean"].value == 1
    assert read_eval_log(log.location).samples[0].messages[-1].role == "assistant"
    episodes = [read() for read in read_logs(log.location)]
    keys = [(job, sample) for job in "012" for sample in (0, 1)]
    assert sorted((each.job, each.sample) for each in episodes) == keys
    assert all(each.reward() == 1 for each in episodes)
    assert {each.run.model for each in episodes} == {"mockllm/model"}
    assert episodes[0].turns[0].usage == {"prompt_tokens": 7, "completion_tokens": 2}


def test_the_episodes_are_those_of_an_evaluation(tmp_path):
    played = []
    from gem.agents.random import RandomAgent

    evaluate(RandomAgent(), "test:Echo", episodes=3, seed=5, on_episode=played.append)
    log = run(tmp_path, gem_task("test:Echo", n=3, seed=5))
    assert {each.seed for each in from_eval_log(log)} == {each.seed for each in played}


def test_tools_are_offered_and_called(tmp_path):
    offered = []

    def answer(messages, tools, choice, config):
        offered.append([tool.name for tool in tools])
        if messages[-1].role == "tool":
            assert [message.text for message in messages[-2:]] == ["a lamp", "a dog"]
            return said("so")
        calls = [ToolCall(f"c{number}", "look", {"at": "<b>"}) for number in range(2)]
        content = [ContentReasoning(reasoning="hm"), ContentText(text="well")]
        message = ChatMessageAssistant(content=content, tool_calls=calls)
        choice = ChatCompletionChoice(message=message, stop_reason="tool_calls")
        return ModelOutput(model="mockllm", choices=[choice], usage=USAGE)

    (episode,) = from_eval_log(run(tmp_path, gem_task("test:Tooled", n=1), answer))
    assert offered == [["look"], ["look"]]
    assert episode.stop is StopReason.SOLVED
    assert episode.turns[0].said.reasoning == "hm"
    assert [json.loads(call.arguments) for call in episode.turns[0].said.tool_calls] == [{"at": "<b>"}] * 2
    offered.clear()
    run(tmp_path, gem_task("test:Tooled", n=1, tools="text"), lambda *_: offered.append(_[1]) or said("so"))
    assert offered == [[], []]


def raises(*_):
    raise RuntimeError("the server is gone")


def changed(output, **changes):
    return lambda *_: said(output, **changes)


def filtered(*_):
    output = said("no")
    output.choices[0].stop_reason = "content_filter"
    return output


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (raises, "the server is gone"),
        (filtered, "filtered"),
        (changed("", usage=ModelUsage()), "no token was sampled"),
        (changed("x", error="overloaded"), "overloaded"),
        (lambda *_: ModelOutput(model="mockllm", usage=USAGE), "no answer"),
    ],
)
def test_what_the_server_did_is_an_error_of_the_sample_and_no_score(tmp_path, answer, why):
    turns = []

    def first_breaks(*args):
        turns.append(1)
        return answer(*args) if len(turns) == 1 else echo(*args)

    log = run(tmp_path, gem_task("test:Echo", n=2), first_breaks, max_samples=1)
    assert log.status == "success"
    broken, whole = sorted(log.samples, key=lambda sample: sample.error is None)
    assert why in broken.error.message
    assert not broken.scores
    assert whole.scores["return"].value == 1
    episode = next(each for each in from_eval_log(log) if each.job == str(broken.id))
    assert (episode.scored, episode.error.boundary) == (False, "agent")
    scores = {score.name: score for score in log.results.scores}
    assert scores["return"].metrics["mean"].value == 1


def test_limits(tmp_path):
    (episode,) = from_eval_log(run(tmp_path, gem_task("test:Echo", n=1, turns=2)))
    assert (episode.stop, episode.scored, len(episode.turns)) == (StopReason.TURN_LIMIT, True, 2)
    (episode,) = from_eval_log(run(tmp_path, gem_task("test:Echo", n=1, tokens=3)))
    assert episode.stop is StopReason.TOKEN_LIMIT
    log = run(tmp_path, gem_task("test:Echo", n=1), token_limit=10)
    (episode,) = from_eval_log(log)
    assert (episode.stop, episode.scored) == (StopReason.CANCELLED, False)
    assert not log.samples[0].scores


def test_what_cannot_be_played_is_refused():
    with pytest.raises(UnknownEnv):
        gem_task("test:Nothing")
    for bad in ({"n": 0}, {"tools": "none"}, {"seed": -1}):
        with pytest.raises(BadArgument):
            gem_task("test:Echo", **bad)


class Counted(EchoEnv):
    made = closed = 0

    def __init__(self):
        super().__init__()
        Counted.made += 1

    def close(self):
        Counted.closed += 1
        super().close()


@pytest.mark.parametrize("waits", [False, True])
def test_environments_are_closed_when_somebody_stops_them(tmp_path, waits):
    register(EnvSpec("test:Counted", Counted, waits=waits))
    Counted.made = Counted.closed = 0

    async def wait(*_):
        await anyio.sleep_forever()

    log = run(tmp_path, gem_task("test:Counted", n=3), wait, time_limit=1)
    assert (Counted.made, Counted.closed) == (3, 3)
    assert [episode.stop for episode in from_eval_log(log)] == [StopReason.CANCELLED] * 3


def test_a_sample_that_is_tried_again_is_another_attempt(tmp_path):
    turns = []

    def first_breaks(*args):
        turns.append(1)
        return raises() if len(turns) == 1 else echo(*args)

    log = run(tmp_path, gem_task("test:Echo", n=1), first_breaks, retry_on_error=1)
    (episode,) = from_eval_log(log)
    assert (episode.attempt, episode.reward()) == (1, 1)


def test_settings_are_recorded_and_keys_are_not(tmp_path):
    config = GenerateConfig(temperature=0.5, extra_headers={"X-Key": "hidden-key"})
    model = get_model("mockllm/model", custom_outputs=echo, config=config)
    (log,) = inspect_eval(gem_task("test:Echo", n=1), model=model, display="none", log_dir=str(tmp_path))
    (episode,) = from_eval_log(log)
    assert episode.run.sampling == {"temperature": 0.5}
    assert episode.reward() == 1


def test_the_task_has_its_name_in_a_clone_too(tmp_path):
    model = get_model("mockllm/model", custom_outputs=echo)
    (log,) = inspect_eval(
        "gem/task", task_args={"env": "test:Echo", "n": 1}, model=model, log_dir=str(tmp_path), display="none"
    )
    assert log.status == "success"
    assert [sample.error for sample in log.samples] == [None]
