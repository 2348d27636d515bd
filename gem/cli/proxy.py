"""The command ``gem-gym proxy``: record the model calls of any agent program as episodes."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from gem.agents.endpoint import check_key
from gem.cli.terms import MaybeFloat, MaybeInt, MaybeText, open_store
from gem.errors import BadArgument, check_argument, check_least
from gem.graders.named import GRADER_HELP, make_grader
from gem.record import Agent, Limits

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
    grader: Annotated[
        MaybeText, arg(help=f"{GRADER_HELP}; scores episodes that were opened with a reference.")
    ] = None,
    task: str = "proxy:agent",
    seed: int = 0,
    api_key_env: str = "OPENAI_API_KEY",
    token_env: str = "GEM_PROXY_TOKEN",
    any_key: bool = False,
) -> int:
    """Forward the calls of agent programs to a model, and record them as episodes, until Ctrl-C.

    Programs send chat completions or Responses requests to the printed address. Their API key names the
    episode: POST /episodes opens one, and POST /episodes/ID/reward with {"reward": 1.0} ends it. Both need
    the token.

    Args:
        model: the address of a chat completions server (or openai:NAME@ADDRESS), a model of
            `gem-gym models`, hf:NAME_OR_FOLDER, or the folder of a training run; vllm:ADDRESS or
            sglang:ADDRESS for a server that receives token ids, which are rendered here.
        out: the folder for the episodes; they are written to episodes.jsonl in it.
        host: the address to listen on. Any address other than this machine's own needs a token.
        port: the port to listen on; 0 takes a free one.
        temperature: sampling temperature; by default 1 for a local model, and the programs' own for a server.
        max_tokens: the most tokens of one answer.
        template: the model whose tokenizer renders for vllm:ADDRESS and sglang:ADDRESS.
        calls: the most calls of an episode.
        tokens: the most tokens that are sampled in an episode.
        context: the most tokens of prompt and answer together.
        sessions: how many episodes may be open at a time.
        idle: seconds without a call after which an episode ends without a verdict.
        grader: the grader's name; see `gem.graders.named.GRADER_HELP`.
        task: the task name stored in the episodes.
        seed: the seed for sampling from a local model.
        api_key_env: the environment variable that holds the server's key.
        token_env: the environment variable that holds the token for opening and rewarding episodes; if
            it is not set, a random token is made and printed.
        any_key: a program's first call with any key of its own opens an episode of that name, without the
            token. Any program on this machine can then open episodes, and call the model in those whose key
            it guesses.
    """
    from gem.serve.proxy.app import Allowed
    from gem.serve.proxy.server import Server

    counts = {"calls": calls, "tokens": tokens, "max-tokens": max_tokens, "context": context}
    for flag, value in counts.items():
        check_least(flag, value)
    check_argument("temperature", temperature, temperature is None or temperature >= 0, "0 (greedy) or more")
    limits = Limits(calls, tokens, max_tokens, context)
    agent = _agent(model, temperature, max_tokens, api_key_env, template)
    with open_store(out) as store:
        token = os.environ.get(token_env) or None
        server = Server(
            agent,
            store,
            host=host,
            port=port,
            limits=limits,
            allowed=Allowed(sessions, idle_s=idle),
            grader=None if grader is None else make_grader(grader),
            task=task,
            seed=seed,
            token=token,
            any_key=any_key,
        )
        print(f"OPENAI_BASE_URL={server.url}/v1")
        if token is None:
            print(f"{token_env}={server.token}  # as a bearer token it opens and rewards episodes")
        sys.stdout.flush()
        server.serve()
    return 0


def _agent(
    model: str, temperature: float | None, max_tokens: int | None, api_key_env: str, template: str | None
) -> Agent:
    by_tokens = BY_TOKENS.fullmatch(model)
    if bool(by_tokens) != (template is not None):
        raise BadArgument("vllm:ADDRESS and sglang:ADDRESS need a template, and no other model takes one.")
    if by_tokens or ENDPOINT.fullmatch(model):
        check_key(api_key_env)
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

    settings = AgentSettings(temperature, max_tokens, api_key_env=api_key_env)
    agent = local_agent(model, settings, "http://ADDRESS/v1, vllm:URL or sglang:URL with --template")
    if getattr(agent, "verb", None):
        raise BadArgument(f"model is {model!r}, an agent that plays environments but cannot answer messages.")
    return agent
