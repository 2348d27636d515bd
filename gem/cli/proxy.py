"""``gem-gym proxy``: calls of any agent program become episodes."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from gem.cli.terms import MaybeFloat, MaybeInt, MaybeText
from gem.errors import BadArgument, StoreError
from gem.record import Agent, Limits

if TYPE_CHECKING:
    from gem.graders.base import Grader

ENDPOINT = re.compile(r"(?:openai:(.+)@)?(https?://.+)", re.DOTALL)
BY_TOKENS = re.compile(r"(vllm|sglang):(https?://.+)", re.DOTALL)


def proxy(
    model: str,
    out: Path,
    host: str = "127.0.0.1",
    port: int = 8000,
    temperature: MaybeFloat = None,
    max_tokens: MaybeInt = None,
    template: MaybeText = None,
    calls: MaybeInt = None,
    tokens: MaybeInt = None,
    context: MaybeInt = None,
    sessions: int = 1000,
    idle: float = 900.0,
    grader: MaybeText = None,
    task: str = "proxy:agent",
    seed: int = 0,
    api_key_env: str = "OPENAI_API_KEY",
    token_env: str = "GEM_PROXY_TOKEN",
) -> int:
    """Stand between agent programs and a model, and record their calls as episodes, until Ctrl-C.

    Programs speak chat completions or Responses to the printed address. Their API key names the episode;
    POST /episodes/KEY/reward with {"reward": 1.0} ends it.

    Args:
        model: the address of a server of chat completions (or openai:NAME@ADDRESS), a model of
            `gem-gym models`, hf:NAME_OR_FOLDER, or the folder of a training run; vllm:ADDRESS or
            sglang:ADDRESS for a server that is given token ids, which are rendered here.
        out: a folder; episodes go to episodes.jsonl in it.
        host: where to listen. Others than this machine's own programs need a token.
        port: 0 takes a free one.
        temperature: of sampling; by default 1 of a local model, and what programs ask for of a server.
        max_tokens: the longest answer.
        template: the model whose tokenizer renders for vllm:ADDRESS and sglang:ADDRESS.
        calls: the most calls of an episode.
        tokens: the most tokens that are sampled in an episode.
        context: the most tokens of prompt and answer together.
        sessions: how many episodes may be open at a time.
        idle: seconds of silence after which an episode ends without verdict.
        grader: math, text, code, or module:Name; scores episodes that were opened with a reference.
        task: what the episodes' task is called.
        seed: of sampling from a local model.
        api_key_env: the variable that holds the server's key.
        token_env: the variable that holds the token with which episodes are opened and rewarded, if any.
    """
    from gem.rollout.store import EpisodeStore
    from gem.serve.proxy.app import Allowed
    from gem.serve.proxy.server import Server

    limits = Limits(calls, tokens, max_tokens, context)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{out} cannot be made: {error.strerror}.") from error
    agent = _agent(model, temperature, max_tokens, api_key_env, template)
    with EpisodeStore(out / "episodes.jsonl") as store:
        server = Server(
            agent,
            store,
            host=host,
            port=port,
            limits=limits,
            allowed=Allowed(sessions, idle_s=idle),
            grader=_grader(grader),
            task=task,
            seed=seed,
            token=os.environ.get(token_env) or None,
        )
        print(f"OPENAI_BASE_URL={server.url}/v1", flush=True)
        server.serve()
    return 0


def _agent(
    model: str, temperature: float | None, max_tokens: int | None, api_key_env: str, template: str | None
) -> Agent:
    by_tokens = BY_TOKENS.fullmatch(model)
    if bool(by_tokens) != (template is not None):
        raise BadArgument("template goes with a model vllm:ADDRESS or sglang:ADDRESS, which needs one.")
    if by_tokens and template is not None:
        from gem.agents.token_server import TokenServerAgent
        from gem.models import load_tokenizer
        from gem.tokens.chat_template import ChatTemplateRenderer

        return TokenServerAgent(
            by_tokens[2],
            ChatTemplateRenderer(load_tokenizer(template)),
            "vllm" if by_tokens[1] == "vllm" else "sglang",
            temperature=1.0 if temperature is None else temperature,
            max_tokens=1024 if max_tokens is None else max_tokens,
            api_key_env=api_key_env,
        )
    endpoint = ENDPOINT.fullmatch(model)
    if endpoint:
        from gem.serve.proxy.answering import Upstream

        return Upstream(
            endpoint[1] or "",
            base_url=endpoint[2],
            temperature=temperature,
            max_tokens=max_tokens,
            token_ids=True,
            api_key_env=api_key_env,
        )
    from gem.agents.named import AgentSettings
    from gem.cli.players import local_agent

    settings = AgentSettings(1.0 if temperature is None else temperature, max_tokens, api_key_env=api_key_env)
    agent = local_agent(model, settings, "http://ADDRESS/v1")
    if getattr(agent, "verb", None):
        raise BadArgument(f"model is {model!r}, which plays environments and answers no messages.")
    return agent


def _grader(name: str | None) -> Grader | None:
    if name is None:
        return None
    from gem.rollout.regrade import named_grader

    return named_grader(name)
