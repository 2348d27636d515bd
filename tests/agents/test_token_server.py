import asyncio
import re
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest
from waiting import until

torch = pytest.importorskip("torch")
TokenServerAgent = pytest.importorskip("gem.agents.token_server", exc_type=ImportError).TokenServerAgent

from bpe_tokenizers import make_tokenizer
from token_server import TokenServer
from transformers import AutoModelForCausalLM, LlamaConfig

from gem import Env, Start, Step
from gem.agents.base import BatchBroken
from gem.agents.hugging_face import HuggingFaceAgent
from gem.agents.openai import PLAIN_QUESTION
from gem.content import Message
from gem.errors import AgentUnavailable, BadArgument, NoVerdict, StoreError
from gem.record import Ask, StopReason
from gem.rollout import Job, Runner
from gem.tokens.chat_template import ChatTemplateRenderer
from gem.tokens.renderer import render
from gem.tokens.rows import rows

CONTEXT = 512


def make_renderer():
    """A byte-level BPE over few letters; several ids end an answer, so that a random model soon does."""
    texts = ["the secret number is higher or lower", "user\nassistant\n0123456789"]
    renderer = ChatTemplateRenderer(make_tokenizer(texts, 60, alphabet=False))
    renderer.stop_ids |= set(range(10, 15))
    return renderer


RENDERER = make_renderer()
VOCABULARY = len(RENDERER.tokenizer)


def make_model(seed=0, tied=False):
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=tied,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config)
        for weight in model.parameters():
            if weight.dim() > 1:
                torch.nn.init.normal_(
                    weight, std=0.2
                )  # sharp enough for a greedy answer to depend on its prompt
    return model.float().eval()


OLD, NEW = make_model(0), make_model(1)
both = pytest.mark.parametrize("protocol", ["vllm", "sglang"])
vllm_first = pytest.mark.parametrize("protocol", ["vllm", pytest.param("sglang", marks=pytest.mark.slow)])


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("TOKEN_SERVER_API_KEY", raising=False)


class Chatter(Env):
    """Talks for three turns."""

    def reset(self, seed=None):
        super().reset(seed)
        self.left = 3
        return Start("the secret " * self.rng.randint(1, 6), {})

    def step(self, action):
        self.left -= 1
        return Step("higher or lower " * self.rng.randint(1, 3), 1.0, self.left == 0, False, {})


JOBS = [Job(Chatter, seed) for seed in range(6)]


def serve(protocol, **options):
    return TokenServer(deepcopy(OLD), protocol, **{"context": CONTEXT, **options})


def agent_of(server, **options):
    options = {"max_tokens": 12, "backoff_s": 0.001, "grace_s": 0.0, **options}
    return TokenServerAgent(server.url, RENDERER, server.protocol, **options)


def ask(text="the secret", seed=0, **changes):
    return Ask("e", "agent", 0, (Message("user", text),), seed=seed, **changes)


ASKS = [ask("higher " * n, seed=n) for n in (3, 1, 7, 2, 5, 1, 12)]


def local(model=OLD, **options):
    return HuggingFaceAgent(model, RENDERER, **{"max_tokens": 12, **options})


def bare(reply):
    """A reply without what a server says beside it, and how often it was asked."""
    extra = {name: value for name, value in reply.extra.items() if name != "retries"}
    return replace(reply, usage={}, logprobs=None, extra=extra)


def error_of(agent, request=None):
    with pytest.raises(BatchBroken) as caught:
        agent([request or ask()])
    (error,) = caught.value.answers
    return error


def forward_logprobs(model, reply, temperature):
    """Log probabilities of a reply's tokens, by one full forward pass."""
    ids = [*reply.prompt_ids, *reply.token_ids]
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids])).logits[0]
    logp = torch.log_softmax(logits.double() / temperature, -1)
    start = len(reply.prompt_ids)
    return [logp[start + t - 1, token].item() for t, token in enumerate(reply.token_ids)]


# -- what is sampled


@both
@pytest.mark.parametrize("labels", [True, False])
def test_greedy_replies_are_those_of_the_model_itself(protocol, labels):
    with serve(protocol, labels=labels) as server, agent_of(server, temperature=0.0) as agent:
        replies = agent(ASKS)
    expected = local(temperature=0.0)(ASKS)
    assert {reply.finish for reply in expected} == {"stop", "length"}
    assert [bare(reply) for reply in replies] == [bare(reply) for reply in expected]
    assert all(set(reply.logprobs) == {0.0} for reply in replies)


@both
@pytest.mark.parametrize("temperature", [0.6, *(pytest.param(t, marks=pytest.mark.slow) for t in (1.0, 1.5))])
def test_logprobs_are_of_the_distribution_that_was_sampled_from(protocol, temperature):
    with serve(protocol) as server, agent_of(server, temperature=temperature) as agent:
        replies = agent(ASKS)
        again = agent(ASKS)
    assert len({reply.token_ids for reply in replies}) == len(set(ASKS))
    assert again == replies  # the ask's seed decides
    for reply in replies:
        assert reply.logprobs == pytest.approx(forward_logprobs(OLD, reply, temperature), abs=1e-4)


@both
def test_a_server_with_logprobs_of_another_distribution_is_refused(protocol):
    with serve(protocol, tempered=False) as server:
        with agent_of(server, temperature=0.6) as agent:
            error = error_of(agent)
        assert isinstance(error, AgentUnavailable)
        assert {"vllm": "--logprobs-mode processed_logprobs", "sglang": "RETURN_ORIGINAL"}[protocol] in str(
            error
        )
        with agent_of(server, temperature=1.0) as agent:  # there both are the same
            (reply,) = agent([ask()])
    assert reply.logprobs == pytest.approx(forward_logprobs(OLD, reply, 1.0), abs=1e-4)


@pytest.mark.system
@both
def test_whole_episodes_hold_the_tokens_that_the_server_saw(protocol):
    with serve(protocol) as server, agent_of(server) as agent, Runner(agent) as runner:
        episodes = runner.play(JOBS)
        seen = {tuple(body.get("prompt") or body["input_ids"]) for _, body in server.asked}
    assert [(len(episode.turns), episode.scored) for episode in episodes] == [(3, True)] * len(JOBS)
    assert {tuple(turn.prompt_ids) for episode in episodes for turn in episode.turns} == seen
    for episode in episodes:
        for row in rows(episode):
            with torch.inference_mode():
                logp = torch.log_softmax(OLD(input_ids=torch.tensor([row.ids])).logits[0].double(), -1)
            for t in range(1, len(row.ids)):
                if row.mask[t]:
                    assert row.logprobs[t] == pytest.approx(logp[t - 1, row.ids[t]].item(), abs=1e-4)


@both
def test_limits(protocol, monkeypatch):
    monkeypatch.setattr(RENDERER, "stop_ids", frozenset((1,)))  # greedy, it never comes here
    with serve(protocol, context=96) as server:
        with agent_of(server, temperature=0.0, max_tokens=90) as agent:
            short, none, full, long = agent(
                [ask(max_tokens=1), ask(context=3), ask("higher " * 40), ask("secret number")]
            )
        with agent_of(server, temperature=0.0, max_tokens=90, context=40) as agent:
            (own,) = agent([ask("secret number")])
    assert len(short.token_ids) == 1
    for reply in (none, full):  # the first was not even sent
        assert (reply.finish, reply.token_ids) == ("context", ())
        assert len(reply.prompt_ids) > 3
    # Where prompt and answer together are too long for the server, the answer is shortened.
    assert 90 < len(long.prompt_ids) + len(long.token_ids) <= 96
    assert len(own.prompt_ids) + len(own.token_ids) == 40
    assert long.token_ids[: len(own.token_ids)] == own.token_ids
    assert (long.finish, own.finish) == ("length", "length")


# -- weights


@both
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.system
def test_published_weights_answer_from_then_on(protocol, tied, tmp_path):
    old, new = make_model(0, tied), make_model(1, tied)
    server = TokenServer(deepcopy(old), protocol)
    with server, agent_of(server, weights_folder=tmp_path / "w", max_tokens=4) as agent:
        before = agent(ASKS[:3])
        agent.publish(0)
        labelled = agent(ASKS[:3])
        agent.publish(7, new.state_dict())
        after = agent(ASKS[:3])
        agent.publish(8, old.state_dict())
        back = agent(ASKS[:3])
        held = [folder.name for folder in (tmp_path / "w").iterdir()]
    expected = ((before, None, old), (labelled, 0, old), (after, 7, new), (back, 8, old))
    for replies, version, model in expected:
        for reply in replies:
            assert reply.policy_version == version
            assert reply.logprobs == pytest.approx(forward_logprobs(model, reply, 1.0), abs=1e-4)
    assert [r.token_ids for r in before] == [r.token_ids for r in back] != [r.token_ids for r in after]
    assert held == ["version-8-0"]  # what the server holds no more is removed


@both
def test_a_folder_of_weights_can_be_published(protocol, tmp_path):
    NEW.save_pretrained(tmp_path)
    with serve(protocol) as server, agent_of(server, temperature=0.0) as agent:
        agent.publish(3, tmp_path)
        (reply,) = agent([ask()])
    assert (reply.policy_version, reply.token_ids) == (3, local(NEW, temperature=0.0)([ask()])[0].token_ids)
    assert tmp_path.exists()


@both
def test_a_publish_waits_for_answers_that_were_begun(protocol, tmp_path):
    with serve(protocol) as server, agent_of(server, temperature=0.0, weights_folder=tmp_path) as agent:
        agent.publish(1)
        server.hold.clear()
        server.begun.clear()
        early, late = agent.loop.submit(agent.ask(ask())), None
        assert server.begun.wait(60)
        publishing = Thread(target=agent.publish, args=(2, NEW.state_dict()))
        publishing.start()
        until(lambda: not agent._gate._open.is_set())
        late = agent.loop.submit(agent.ask(ask()))
        assert server.paths() == ["/update_weight_version", server.sampler]  # nothing was told yet
        server.hold.set()
        publishing.join()
        early, late = early.result(), late.result()
    assert (early.policy_version, late.policy_version) == (1, 2)
    assert bare(early) == bare(replace(local(temperature=0.0)([ask()])[0], policy_version=1))
    assert bare(late) == bare(replace(local(NEW, temperature=0.0)([ask()])[0], policy_version=2))


@both
def test_a_runner_publishes_while_it_streams(protocol, tmp_path):
    async def played():
        episodes = []
        async for episode in runner.stream_async(JOBS):
            episodes.append(episode)
            if len(episodes) == 2:
                runner.publish(5, NEW.state_dict())
        return episodes

    with (
        serve(protocol) as server,
        agent_of(server, weights_folder=tmp_path, max_tokens=4) as agent,
        Runner(agent, concurrency=2) as runner,
    ):
        runner.publish(4)
        episodes = asyncio.run(played())
    turns = [turn for episode in episodes for turn in episode.turns]
    assert {turn.policy_version for turn in turns} == {4, 5}
    for turn in turns:
        model = {4: OLD, 5: NEW}[turn.policy_version]
        assert list(turn.logprobs) == pytest.approx(forward_logprobs(model, turn, 1.0), abs=1e-4)


@pytest.mark.parametrize(
    ("protocol", "path"),
    [
        ("vllm", "/pause"),
        ("vllm", "/collective_rpc"),
        ("vllm", "/reset_prefix_cache"),
        ("vllm", "/update_weight_version"),
        ("vllm", "/resume"),
        ("sglang", "/update_weights_from_disk"),
    ],
)
@pytest.mark.system
def test_after_a_failed_publish_nobody_is_answered_until_one_succeeds(protocol, path, tmp_path):
    with serve(protocol) as server, agent_of(server, temperature=0.0, weights_folder=tmp_path) as agent:
        agent.publish(1, OLD.state_dict())
        server.fail_at = path
        with pytest.raises(AgentUnavailable, match=r"did not load version 2: .* answered 500"):
            agent.publish(2, NEW.state_dict())
        asked = len(server.asked)
        assert isinstance(error_of(agent), AgentUnavailable)
        assert len(server.asked) == asked  # not even asked
        server.fail_at = ""
        agent.publish(2, NEW.state_dict())
        (reply,) = agent([ask()])
    assert reply.policy_version == 2
    assert reply.token_ids == local(NEW, temperature=0.0)([ask()])[0].token_ids


@both
def test_a_server_that_does_not_take_weights_in_time_is_an_error(protocol, tmp_path):
    with serve(protocol) as server, agent_of(server, weights_folder=tmp_path, load_s=0.05) as agent:
        server.load = lambda folder: server.hold.wait(60)
        server.hold.clear()
        with pytest.raises(AgentUnavailable, match="was not answered: ReadTimeout"):
            agent.publish(1, NEW.state_dict())
        assert isinstance(error_of(agent), AgentUnavailable)


@both
def test_weights_that_the_server_cannot_read_are_an_error(protocol, tmp_path):
    with serve(protocol) as server, agent_of(server, weights_folder=tmp_path) as agent:
        with pytest.raises(AgentUnavailable, match="Cannot find any model weights"):
            agent.publish(1, tmp_path / "nowhere")
        with pytest.raises(AgentUnavailable, match="Missing key"):  # half of a model
            agent.publish(1, dict(list(OLD.state_dict().items())[:3]))


@both
def test_a_server_that_was_started_again_is_noticed(protocol, tmp_path):
    with serve(protocol) as server, agent_of(server, weights_folder=tmp_path) as agent:
        agent.publish(1, NEW.state_dict())
        server.label = "default"
        assert "was the server restarted" in str(error_of(agent))
        agent.publish(1, NEW.state_dict())
        assert agent([ask()])[0].policy_version == 1


@both
def test_the_least_of_several_versions_counts(protocol):
    def two(answer):
        spans = [{"version": "4", "start": 0, "end": 1}, {"version": "5", "start": 1, "end": 12}]
        (answer["choices"][0] if protocol == "vllm" else answer["meta_info"])["weight_versions"] = spans
        return answer

    with serve(protocol, mangle=two) as server, agent_of(server) as agent:
        (reply,) = agent([ask()])
    assert (reply.policy_version, reply.extra) == (4, {"weight_versions": ["4", "5"]})


def test_an_older_vllm_gets_its_weights_and_the_version_that_was_confirmed(tmp_path):
    with (
        serve("vllm", labels=False) as server,
        agent_of(server, temperature=0.0, weights_folder=tmp_path) as agent,
    ):
        agent.publish(2, NEW.state_dict())
        (reply,) = agent([ask()])
    assert reply.policy_version == 2
    assert reply.token_ids == local(NEW, temperature=0.0)([ask()])[0].token_ids


def test_vllm_without_its_development_commands_is_told_how_to_start(tmp_path, monkeypatch):
    monkeypatch.setattr(TokenServer, "vllm_commands", lambda self: {})
    with (
        serve("vllm") as server,
        agent_of(server, weights_folder=tmp_path) as agent,
        pytest.raises(AgentUnavailable, match="VLLM_SERVER_DEV_MODE=1"),
    ):
        agent.publish(1, NEW.state_dict())


def test_what_publish_refuses(tmp_path):
    with serve("vllm") as server:
        with agent_of(server) as agent:
            with pytest.raises(BadArgument, match="weights_folder"):
                agent.publish(1, NEW.state_dict())
            agent.weights_folder = tmp_path
            for wrong in ([1.0], {"lm_head.weight": 1.0}):
                with pytest.raises(BadArgument, match="state dict"):
                    agent.publish(1, wrong)
            with pytest.raises(BadArgument, match="0 or more"):
                agent.publish(-1)
        (tmp_path / "file").write_text("")
        with agent_of(server, weights_folder=tmp_path / "file") as agent:
            with pytest.raises(StoreError):
                agent.publish(1, NEW.state_dict())
            assert agent([ask()])[0].policy_version is None  # the server was not told, and goes on
        assert not [path for path in server.paths() if path != server.sampler]


# -- what servers do wrong


def changed(protocol, **changes):
    """Return a mangler that sets ids or log probabilities, given as functions of those that there are."""

    def mangle(answer):
        if protocol == "vllm":
            choice = answer["choices"][0]
            if "ids" in changes:
                choice["token_ids"] = changes["ids"](choice["token_ids"])
            if "logprobs" in changes:
                logprobs = choice["logprobs"]
                logprobs["token_logprobs"] = changes["logprobs"](logprobs["token_logprobs"])
        else:
            meta = answer["meta_info"]
            logprobs = [entry[0] for entry in meta["output_token_logprobs"]]
            ids = answer["output_ids"]
            answer["output_ids"] = ids = changes.get("ids", list)(ids)
            logprobs = changes.get("logprobs", list)(logprobs)
            pairs = zip(logprobs, [*ids, *[None] * (len(logprobs) - len(ids))], strict=False)
            meta["output_token_logprobs"] = [[value, token, None] for value, token in pairs]
        return answer

    return mangle


WRONG = {
    "an id outside the vocabulary": {"ids": lambda ids: [VOCABULARY, *ids[1:]]},
    "a negative id": {"ids": lambda ids: [-1, *ids[1:]]},
    "an id that is no number": {"ids": lambda ids: ["7", *ids[1:]]},
    "an id that is true": {"ids": lambda ids: [True, *ids[1:]]},
    "no ids": {"ids": lambda ids: [], "logprobs": lambda values: []},
    "fewer log probabilities": {"logprobs": lambda values: values[:-1]},
    "more ids than asked for": {"ids": lambda ids: [20] * 13, "logprobs": lambda values: [-1.0] * 13},
    "None": {"logprobs": lambda values: [None, *values[1:]]},
    "NaN": {"logprobs": lambda values: [float("nan"), *values[1:]]},
    "minus infinity": {"logprobs": lambda values: [float("-inf"), *values[1:]]},
    "minus infinity as vLLM writes it": {"logprobs": lambda values: [-9999.0, *values[1:]]},
    "a logit": {"logprobs": lambda values: [3.5, *values[1:]]},
    "text": {"logprobs": lambda values: ["-0.5", *values[1:]]},
    "true": {"logprobs": lambda values: [True, *values[1:]]},
}


@vllm_first
@pytest.mark.parametrize("what", WRONG)
def test_ids_and_logprobs_that_cannot_be_are_no_verdict(protocol, what):
    with (
        serve(protocol, mangle=changed(protocol, **WRONG[what])) as server,
        agent_of(server, retries=1) as agent,
    ):
        error = error_of(agent)
        assert len(server.asked) == 2  # tried again first
    assert isinstance(error, NoVerdict)
    assert not isinstance(error, AgentUnavailable)


def mangled(key, value):
    def mangle(answer):
        answer[key] = value
        return answer

    return mangle


def with_prompt(answer):
    answer["choices"][0]["prompt_token_ids"].append(0)
    return answer


def with_prompt_tokens(answer):
    answer["meta_info"]["prompt_tokens"] += 1
    return answer


def aborted(answer):
    if "choices" in answer:
        answer["choices"][0]["finish_reason"] = "abort"
    else:
        answer["meta_info"]["finish_reason"] = {"type": "abort", "message": "Aborted", "status_code": None}
    return answer


CUT = (200, {"Content-Length": "100"}, b'{"choices": [')
BROKEN = {
    "vllm": {
        "another prompt": with_prompt,
        "no choices": mangled("choices", []),
        "two choices": mangled("choices", [{}, {}]),
        "choices of another type": mangled("choices", 5),
        "an error under 200": lambda answer: {"object": "error", "message": "engine dead"},
    },
    "sglang": {
        "another prompt": with_prompt_tokens,
        "no meta_info": mangled("meta_info", None),
        "ids that differ": mangled("output_ids", [1]),
        "an error under 200": lambda answer: {"error": {"message": "engine dead"}},
    },
}
ALWAYS = {
    "aborted": aborted,
    "a body that is cut": lambda answer: CUT,
    "no JSON": lambda answer: (200, {}, b"<html>"),
    "JSON of another type": lambda answer: (200, {}, b"[1]"),
    "a closed connection": lambda answer: None,
    "500": lambda answer: (500, {}, b"{}"),
}


@pytest.mark.parametrize(
    ("protocol", "what"),
    [
        pytest.param(name, what, marks=[pytest.mark.slow] * (name == "sglang"))
        for name in BROKEN
        for what in (BROKEN[name] | ALWAYS)
    ],
)
@pytest.mark.system
def test_broken_answers_are_tried_again_and_then_no_verdict(protocol, what):
    mangle = (BROKEN[protocol] | ALWAYS)[what]
    times = []

    def first(answer):
        times.append(1)
        return mangle(answer) if len(times) == 1 else answer

    with serve(protocol, mangle=mangle) as server, agent_of(server, retries=2) as agent:
        error = error_of(agent)
        assert len(server.asked) == 3
    assert isinstance(error, NoVerdict)
    assert not isinstance(error, AgentUnavailable)
    with serve(protocol, mangle=first) as server, agent_of(server, retries=2, temperature=0.0) as agent:
        (reply,) = agent([ask()])
    assert reply.extra["retries"] == 1
    assert bare(reply) == bare(local(temperature=0.0)([ask()])[0])


@both
def test_a_busy_server_is_asked_again_when_it_says(protocol):
    busy = [(429, {"Retry-After": "0.01"}, b"{}"), (503, {}, b"{}")]
    with (
        serve(protocol, mangle=lambda answer: busy.pop() if busy else answer) as server,
        agent_of(server) as agent,
    ):
        assert agent([ask()])[0].token_ids
        assert len(server.asked) == 3


@both
def test_a_refused_request_is_asked_once(protocol):
    with (
        serve(
            protocol, mangle=lambda answer: (400, {}, b'{"error": {"message": "seed is unsupported"}}')
        ) as server,
        agent_of(server) as agent,
    ):
        error = error_of(agent)
        assert len(server.asked) == 1  # the seed is never left out
    assert type(error) is NoVerdict


@both
def test_a_server_that_dies_stops_the_run(protocol):
    with agent_of(server := serve(protocol)) as agent:
        with server:
            assert agent([ask()])[0].token_ids
        assert isinstance(error_of(agent), AgentUnavailable)
        with pytest.raises(AgentUnavailable, match="no server answers"):
            agent.publish(1)


@both
def test_a_server_that_dies_in_an_answer_is_no_verdict_for_the_episode(protocol):
    dead = []

    def die(answer):
        if len(server.asked) <= len(JOBS):
            return answer
        dead.append(1)
        return None

    with (
        serve(protocol, mangle=die) as server,
        agent_of(server, retries=0) as agent,
        Runner(agent, retries=0) as runner,
    ):
        episodes = runner.play(JOBS)
    assert len(dead) == len(JOBS)
    assert {(episode.stop, episode.scored) for episode in episodes} == {(StopReason.ERROR, False)}
    assert {len(episode.turns) for episode in episodes} == {1}


@both
def test_a_key_is_sent_with_every_request_and_never_shown(protocol, monkeypatch, tmp_path):
    monkeypatch.setenv("TOKEN_SERVER_API_KEY", "sk-very-secret")

    def refuse(answer):
        return 400, {}, b'{"error": {"message": "the key sk-very-secret is fine"}}'

    with serve(protocol) as server, agent_of(server, weights_folder=tmp_path) as agent:
        agent.publish(1, NEW.state_dict())
        agent([ask()])
        server.mangle = refuse
        refused = str(error_of(agent))
        server.relabel = refuse
        with pytest.raises(AgentUnavailable) as failed:
            agent.publish(2)
    assert set(server.keys) == {"Bearer sk-very-secret"}
    for said in (refused, str(failed.value)):
        assert "the key *** is fine" in said


def test_what_the_constructor_refuses():
    for wrong in ({"protocol": "tgi"}, {"temperature": -1.0}, {"max_tokens": 0}, {"tools": "native"}):
        with pytest.raises(BadArgument):
            TokenServerAgent("http://127.0.0.1:1", RENDERER, **wrong)


@both
def test_prefix_and_stop_are_those_of_a_local_agent(protocol):
    """The same ids, texts and ends, greedily; the token that completes a text of `stop` is the last one."""
    how = {"temperature": 0.0, "prefix": "the se", "stop": ("er", "s")}
    asks = [*ASKS, ask("lower", sampling={"stop": ["o"]})]
    with serve(protocol) as server, agent_of(server, **how) as agent:
        found, wanted = agent(asks), local(**how)(asks)
        named = agent.info.sampling
    assert [bare(reply) for reply in found] == [bare(reply) for reply in wanted]
    assert any(reply.finish == "stop" for reply in found)
    assert (named["prefix"], named["stop"]) == ("the se", ["er", "s"])


@both
def test_what_a_server_samples_behind_a_stop_is_cut_off(protocol):
    """A server may find the text late; the ids behind it, and their log probabilities, are dropped."""
    how = {"temperature": 1.0, "max_tokens": 30}
    with serve(protocol) as server, agent_of(server, **how) as agent, agent_of(server, **how) as stopping:
        (whole,) = agent([ask(seed=3)])
        text = whole.text[2:4]
        stopping._tokens.stop = (text,)
        (cut,) = stopping([ask(seed=3)])
    count = len(cut.token_ids)
    assert 0 < count < len(whole.token_ids)
    assert (cut.token_ids, cut.logprobs) == (whole.token_ids[:count], whole.logprobs[:count])
    assert text in cut.text
    assert text not in RENDERER.decode(whole.token_ids[: count - 1])
    assert cut.finish == "stop"


@both
def test_a_server_scores_a_prompt(protocol):
    ids = RENDERER.prompt(ask("higher").messages)
    with serve(protocol) as server, agent_of(server, temperature=0.5) as agent:
        found = agent.logprobs(ids)
    with torch.inference_mode():
        logp = OLD(input_ids=torch.tensor([ids])).logits[0].double().log_softmax(-1)
    wanted = [float(logp[at, token]) for at, token in enumerate(ids[1:])]
    assert found == pytest.approx(wanted, abs=1e-5)


def test_info_says_who_samples():
    agent = TokenServerAgent("http://127.0.0.1:1/v1", RENDERER, model="tiny")
    assert (agent.info.model, agent.info.vocabulary) == ("tiny", RENDERER.vocab_hash)
    assert agent.url == "http://127.0.0.1:1/v1/completions"


@both
def test_the_page_does_what_it_shows(protocol, tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs/guides/sampling_servers.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", lambda name: RENDERER.tokenizer)
    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", lambda name: NEW)
    with serve(protocol, context=8192) as server:
        code = code.replace("http://127.0.0.1:8000", server.url).replace('"vllm"', repr(protocol))
        code = code.replace("context=8192", "context=8192, max_tokens=4")  # a random model does not end
        names = {}
        exec(compile(code, "sampling_servers.md", "exec"), names)  # noqa: S102  the repository's own page
        assert server.label == "2"
    assert {turn.policy_version for episode in names["episodes"] for turn in episode.turns} == {1}
    assert sum(sum(row.mask) for row in names["batch"]) > 0


def test_a_plain_question_is_the_same_in_place_of_an_ask_that_is_rendered_and_of_another():
    agent = TokenServerAgent("http://127.0.0.1:1/v1", RENDERER, model="tiny")
    rendered = agent.ask_instead(ask(held=(1, 2)), same=True)
    sent = agent.ask_instead(replace(ask(held=(1, 2)), messages=(), fresh=0))
    assert render(RENDERER, rendered) == sent.held == RENDERER.prompt((PLAIN_QUESTION,))
