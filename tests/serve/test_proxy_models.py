"""The proxy over a real, small model: its tokens, the weights that change, and a server behind a server."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
for package in ("transformers", "starlette", "uvicorn"):
    pytest.importorskip(package)
httpx = pytest.importorskip("httpx")

from random_models import RENDERER, make_model, make_renderer
from token_server import TokenServer

from gem.agents.hugging_face import HuggingFaceAgent
from gem.agents.openai import OpenAIAgent
from gem.agents.token_server import TokenServerAgent
from gem.serve.proxy.answering import Upstream
from gem.serve.proxy.app import Allowed
from gem.serve.proxy.server import Server
from gem.testing.stub_server import RawAnswer, StubServer
from gem.tokens.rows import rows
from gem.train.config import TrainConfig
from gem.train.learn import policy_gradient
from gem.train.learn.batch import collate, weigh
from gem.train.learn.learner import Learner, Settings
from gem.train.learn.policy import CausalPolicy
from gem.train.learn.steps import Progress


def ask(url, key, *messages, code=200, **fields):
    answer = httpx.post(
        f"{url}/v1/chat/completions",
        json={"model": "m", "messages": list(messages), **fields},
        headers={"Authorization": f"Bearer {key}"},
        timeout=60,
    )
    assert answer.status_code == code, answer.text
    return answer.json()


def post(opened, **asked):
    """Return the HTTP answer to what the program of an opened episode asks."""
    header = {"authorization": f"Bearer {opened.api_key}"}
    return httpx.post(f"{opened.base_url}/chat/completions", json=asked, headers=header)


def say(url, key, *texts, **fields):
    """Let the program say these texts, each behind the answer to the one before."""
    chat = []
    for text in texts:
        chat.append({"role": "user", "content": text})
        chat.append(ask(url, key, *chat, **fields)["choices"][0]["message"])
    return chat[1::2]


def test_a_local_models_tokens_are_those_that_the_learner_sees():
    model = make_model()
    with Server(HuggingFaceAgent(model, RENDERER, max_tokens=12), any_key=True) as server:
        say(server.url, "p", "the secret", "higher", "lower", max_tokens=5)
        episode = server.reward("p", 1.0)
    (row,) = rows(episode)
    assert all(0 < len(turn.token_ids) <= 5 for turn in episode.turns)
    with torch.inference_mode():
        logits = model(torch.tensor([list(row.ids)])).logits[0].log_softmax(-1)
    told = [(place, row.ids[place], row.logprobs[place]) for place, learn in enumerate(row.mask) if learn]
    for place, token, logprob in told:
        assert float(logits[place - 1, token]) == pytest.approx(logprob, abs=1e-3)
    assert episode.turns[0].usage == {
        "prompt_tokens": len(episode.turns[0].prompt_ids),
        "completion_tokens": len(episode.turns[0].token_ids),
    }
    assert episode.run.vocabulary == RENDERER.vocab_hash


@pytest.mark.system
def test_many_programs_are_answered_in_batches_and_weights_change_between_them():
    agent = HuggingFaceAgent(make_model(), RENDERER, max_tokens=6)
    with Server(agent, any_key=True) as server, ThreadPoolExecutor(8) as pool:
        keys = [f"p{number}" for number in range(8)]
        list(pool.map(lambda key: say(server.url, key, "the number", "higher"), keys))
        assert all(server.reward(key, 0.0).policy_version is None for key in keys)
        server.publish(4)
        say(server.url, "q", "the number")
        assert server.reward("q", 0.0).policy_version == 4
        assert len(server.take()) == 9


@pytest.mark.system
def test_an_answer_stops_where_the_program_says():
    with Server(HuggingFaceAgent(make_model(), RENDERER, max_tokens=64), any_key=True) as server:
        for number in range(20):
            say(server.url, f"p{number}", "the secret number", stop=["e", "r"])
        episodes = [server.reward(f"p{number}", 0.0) for number in range(20)]
    cut = [episode.turns[0] for episode in episodes if "cut" in episode.turns[0].extra]
    assert cut
    for turn in cut:
        whole = RENDERER.decode(turn.token_ids)
        assert whole[-turn.extra["cut"] :][0] in "er"
        assert not set(turn.reply.text) & set("er")
        assert not set(RENDERER.decode(turn.token_ids[:-1])) & set("er")  # the last token completed it


def test_token_ids_pass_through_from_a_server():
    agent = HuggingFaceAgent(make_model(), RENDERER, max_tokens=6)
    with Server(agent, any_key=True) as behind:
        upstream = Upstream("", base_url=f"{behind.url}/s/inner/v1", temperature=None, token_ids=True)
        with upstream, Server(upstream, any_key=True) as server:
            say(server.url, "p", "the secret", "higher")
            outer = server.reward("p", 1.0)
        inner = behind.reward("inner", 1.0)
    (row,) = rows(outer)
    assert row.ids == rows(inner)[0].ids
    assert list(row.logprobs) == pytest.approx(list(rows(inner)[0].logprobs))
    assert inner.turns[0].extra["asked"]["model"] == "m"


@pytest.mark.parametrize("protocol", ["vllm", "sglang"])
def test_a_server_that_is_given_tokens_is_told_what_it_sampled(protocol):
    renderer = make_renderer()
    with TokenServer(make_model(), protocol) as behind:
        agent = TokenServerAgent(behind.url, renderer, protocol, max_tokens=6)
        with agent, Server(agent, any_key=True) as server:
            say(server.url, "p", "the secret", "higher", "lower", stop=["zzz"], temperature=0.1)
            episode = server.reward("p", 1.0)
        prompts = [body.get("prompt") or body.get("input_ids") for _, body in behind.asked]
    assert [list(turn.prompt_ids) for turn in episode.turns] == prompts
    assert len(rows(episode)) == 1


def test_a_server_without_token_ids_leaves_text():
    def answer(body):
        if "return_token_ids" in body:
            return RawAnswer.error(400, "Unknown field: return_token_ids")
        assert body["temperature"] == 0.5
        return "plain"

    with StubServer(answer) as stub, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        agent = Upstream("m", base_url=stub.base_url, temperature=None, token_ids=True)
        with agent, Server(agent, any_key=True) as server:
            (said,) = say(server.url, "p", "hi", temperature=0.5)
            assert said["content"] == "plain"
            assert server.proxy.sessions["p"].recording.untrainable
    assert "return_token_ids" in str(warned[0].message)


@pytest.mark.parametrize("alive", [True, False])
def test_a_request_that_the_server_refuses_is_the_programs_fault_where_others_are_answered(alive):
    def answer(body):
        if not alive or body.get("temperature") == 99 or body["messages"][0]["content"] == "bad":
            return RawAnswer.error(400, "temperature is not supported: got 99. The model `x` does not exist.")
        return "plain"

    with StubServer(answer) as stub:
        agent = Upstream("m", base_url=stub.base_url, temperature=None)
        with agent, Server(agent) as server:
            opened = server.open()
            said = post(opened, messages=[{"role": "user", "content": "hi"}], temperature=99)
            episode = server.reward(opened.id, 0.0)
    assert (said.status_code, episode.scored) == ((400, True) if alive else (503, False))


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize(
    ("status", "field"),
    [
        (400, {"tools": [{"type": "function", "function": {"name": "f"}}]}),
        (500, {"tools": [{"type": "function", "function": {"name": "f"}}]}),
        (400, {"max_tokens": 2**31 - 1}),
    ],
)
def test_a_server_that_takes_no_tools_stops_the_evaluation_before_its_first_answer_alone(
    answered, status, field
):
    def answer(body):
        if "tools" in body:
            return RawAnswer.error(status, "function calling is not supported")
        return (
            RawAnswer.error(400, "max_tokens is too large") if body.get("max_tokens", 0) > 9999 else "plain"
        )

    with (
        StubServer(answer) as stub,
        Upstream("m", base_url=stub.base_url, retries=0) as agent,
        Server(agent) as server,
    ):
        opened = server.open()
        if answered:
            post(opened, messages=[{"role": "user", "content": "hi"}])
        said = post(opened, messages=[{"role": "user", "content": "hi"}], **field)
        episode = server.reward(opened.id, 0.0)
    assert (said.status_code, episode.scored) == ((400, True) if answered else (503, False))


def test_settings_count_among_the_bytes_of_an_episode():
    allowed = Allowed(episode_bytes=1000)
    with (
        StubServer("plain") as stub,
        OpenAIAgent("m", base_url=stub.base_url) as agent,
        Server(agent, any_key=True, allowed=allowed) as server,
    ):
        for code in (200, 403):
            ask(server.url, "p", {"role": "user", "content": "x"}, code=code, user="y" * 600)


def test_the_proxys_own_temperature_holds():
    with StubServer("plain") as stub:
        agent = OpenAIAgent("m", base_url=stub.base_url, temperature=0.25)
        with agent, Server(agent, any_key=True) as server:
            say(server.url, "p", "hi", temperature=0.9, top_p=0.5, stop="x", max_tokens=7)
            episode = server.reward("p", 0.0)
        (request,) = stub.requests
    assert (request["temperature"], request["top_p"], request["stop"], request["max_tokens"]) == (
        0.25,
        0.5,
        ["x"],
        7,
    )
    assert episode.turns[0].extra["asked"]["temperature"] == 0.9
    assert episode.turns[0].sampling == {"top_p": 0.5, "stop": ["x"]}


@pytest.mark.system
def test_training_on_recorded_episodes_makes_what_was_rewarded_likelier():
    model = make_model()
    policy = CausalPolicy(model, RENDERER, HuggingFaceAgent(model, RENDERER, max_tokens=3))
    learner = Learner(policy, Settings(lr=3e-3))
    config = TrainConfig(env="proxy:agent", algorithm="grpo", group=8, batch=8)
    reward = []
    with Server(policy.agent) as server:
        for version in range(3):
            server.publish(version)
            for _ in range(8):
                opened = server.open("shout", group="shout")
                (said,) = say(server.url, opened.api_key, "say e")
                server.reward(opened.id, said["content"].count("e") / 3)
            episodes = server.take()
            reward.append(sum(episode.reward() for episode in episodes) / len(episodes))
            before = learned(learner, episodes)
            policy_gradient.learn(learner, episodes, config, Progress(version, 3))
            assert learned(learner, episodes) > before
    assert all(turn.policy_version == 2 for episode in episodes for turn in episode.turns)


def learned(learner, episodes):
    """Return the log probability of what earned more than the mean."""
    mean = sum(episode.reward() for episode in episodes) / len(episodes)
    good = [episode for episode in episodes if episode.reward() > mean]
    with torch.no_grad():
        batch = collate(weigh([replace(each) for each in good], "agent"), 0, learner.policy.capacity)
        return float(learner.logprobs(batch).mean())
