"""Agent programs of five packages play through the recording proxy, unchanged, and are recorded whole."""

import asyncio
import threading

import pytest

for package in ("starlette", "uvicorn", "httpx", "transformers"):
    pytest.importorskip(package)

from tool_templates import renderer

from gem.agents.scripted import ScriptedAgent
from gem.content import ToolCall
from gem.errors import NoVerdict
from gem.record import Limits, Reply
from gem.serve.proxy.server import Server
from gem.tokens.renderer import render
from gem.tokens.rows import rows

pytestmark = [pytest.mark.framework, pytest.mark.filterwarnings("ignore")]

RENDERER = renderer("qwen")
SUM, TWICE, DELEGATE = "add 2 and 3", "add 2 and 3 twice", "delegate it"


# -- the model: a chat template's tokens, and the words of a script


def brain(ask):
    """Return what a model of few ideas says: text, and calls of tools."""
    tools = {tool.name: tool for tool in ask.tools}
    own = [message for message in ask.messages if message.role != "system"]
    task = next(message.text for message in own if message.role == "user")
    heard = any(m.role == "tool" or (m.role == "user" and "Observation:" in m.text) for m in own)
    if "helper" in tools and DELEGATE in task and not heard:
        (argument, *_) = tools["helper"].schema["properties"]
        return "", [("helper", f'{{"{argument}": "{SUM}"}}')]
    if "add" in tools and not heard:
        return "", [("add", '{"a": 2, "b": 3}')] * (2 if TWICE in task else 1)
    said = "The sum is 5." if heard or "add" in tools else "Hello."
    if "final_answer" in tools:
        return "", [("final_answer", f'{{"answer": "{said}"}}')]
    return said, []


def speak(ask):
    prompt = render(RENDERER, ask)
    text, named = brain(ask)
    calls = tuple(ToolCall(f"t{ask.turn}n{i}", *call) for i, call in enumerate(named))
    ids = RENDERER.answer(text, calls)
    return Reply(text, prompt, ids, [-0.25] * len(ids), tool_calls=calls)


# -- the programs


ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}
HELPER = {
    "name": "helper",
    "description": "Ask a helper.",
    "parameters": {"type": "object", "properties": {"task": {"type": "string"}}, "required": ["task"]},
}
PATIENT = {"max_retries": 2, "timeout": 30.0}
HASTY = {"max_retries": 0, "timeout": 0.5}


def chat_loop(complete, task, tools, helper):
    """Play an agent by hand, as most programs do: `complete` answers messages and tools."""
    import json

    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": task}]
    offered = [{"type": "function", "function": each} for each in [ADD] * tools + [HELPER] * helper]
    while True:
        said = complete(messages, offered or None)
        messages.append(said)
        if not said.get("tool_calls"):
            return said["content"]
        for call in said["tool_calls"]:
            given = json.loads(call["function"]["arguments"])
            if call["function"]["name"] == "helper":
                result = chat_loop(complete, given["task"], True, False)
            else:
                result = str(given["a"] + given["b"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


def streamed(chunks):
    """Put the chunks of a stream together."""
    text, calls = "", {}
    for chunk in chunks:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for piece in choice.delta.tool_calls or ():
                call = calls.setdefault(piece.index, {"id": piece.id, "type": "function", "function": {}})
                if piece.function.name:
                    call["function"]["name"] = piece.function.name
                given = call["function"].get("arguments", "") + (piece.function.arguments or "")
                call["function"]["arguments"] = given
    said = {"role": "assistant", "content": text or None}
    return said | ({"tool_calls": list(calls.values())} if calls else {})


def openai_loop(url, key, task, tools, helper, stream, how):
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=url, api_key=key, **how) as client:

        def complete(messages, offered):
            more = {"tools": offered} if offered else {}
            answer = client.chat.completions.create(model="m", messages=messages, stream=stream, **more)
            return streamed(answer) if stream else answer.choices[0].message.model_dump(exclude_none=True)

        return chat_loop(complete, task, tools, helper)


def litellm_loop(url, key, task, tools, helper, stream, how):
    litellm = pytest.importorskip("litellm")
    litellm.suppress_debug_info = True

    def complete(messages, offered):
        answer = litellm.completion(
            "openai/m", messages, tools=offered, api_base=url, api_key=key, stream=stream, **how
        )
        return streamed(answer) if stream else answer.choices[0].message.model_dump(exclude_none=True)

    return chat_loop(complete, task, tools, helper)


def agents_sdk(protocol):
    def play(url, key, task, tools, helper, stream, how):
        agents = pytest.importorskip("agents")
        openai = pytest.importorskip("openai")
        agents.set_tracing_disabled(True)
        form = {"chat": agents.OpenAIChatCompletionsModel, "responses": agents.OpenAIResponsesModel}[protocol]

        @agents.function_tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        async def run():
            async with openai.AsyncOpenAI(base_url=url, api_key=key, **how) as client:
                model = form(model="m", openai_client=client)
                inner = agents.Agent(name="inner", instructions="Add.", model=model, tools=[add])
                given = [add] * tools
                if helper:
                    given.append(inner.as_tool(tool_name="helper", tool_description="Ask a helper."))
                agent = agents.Agent(name="outer", instructions="Be short.", model=model, tools=given)
                if not stream:
                    return (await agents.Runner.run(agent, task)).final_output
                result = agents.Runner.run_streamed(agent, task)
                async for _ in result.stream_events():
                    pass
                return result.final_output

        return asyncio.run(run())

    return play


def langgraph_agent(url, key, task, tools, helper, stream, how):
    pytest.importorskip("langgraph")
    pytest.importorskip("langchain_openai")
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from langgraph.prebuilt import create_react_agent

    model = ChatOpenAI(model="m", base_url=url, api_key=key, streaming=stream, **how)

    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @tool("helper")
    def ask_helper(task: str) -> str:
        """Ask a helper."""
        return final(create_react_agent(model, [add]), task)

    def final(agent, task):
        return agent.invoke({"messages": [("user", task)]})["messages"][-1].content

    return final(create_react_agent(model, [add] * tools + [ask_helper] * helper, prompt="Be short."), task)


def smolagents_agent(url, key, task, tools, helper, stream, how):
    smolagents = pytest.importorskip("smolagents")
    model = smolagents.OpenAIModel("m", api_base=url, api_key=key, client_kwargs=how)

    class Add(smolagents.Tool):
        name = "add"
        description = "Add two numbers."
        inputs = {  # noqa: RUF012  as smolagents has it
            "a": {"type": "integer", "description": "one"},
            "b": {"type": "integer", "description": "other"},
        }
        output_type = "integer"

        def forward(self, a: int, b: int) -> int:
            return a + b

    quiet = {"verbosity_level": 0, "stream_outputs": stream, "max_steps": 4}
    managed = []
    if helper:
        inner = smolagents.ToolCallingAgent([Add()], model, name="helper", description="Adds.", **quiet)
        managed = [inner]
    agent = smolagents.ToolCallingAgent([Add()] * tools, model, managed_agents=managed, **quiet)
    return agent.run(task)


PROGRAMS = {
    "openai": openai_loop,
    "agents-chat": agents_sdk("chat"),
    "agents-responses": agents_sdk("responses"),
    "langgraph": langgraph_agent,
    "smolagents": smolagents_agent,
    "litellm": litellm_loop,
}
REWRITES = {"smolagents"}
"""Programs that tell their own calls in other words."""


@pytest.fixture(params=list(PROGRAMS))
def program(request):
    return request.param


@pytest.fixture
def serve():
    opened = []

    def start(say=speak, **settings):
        opened.append(Server(ScriptedAgent(say), any_key=True, **settings))
        return opened[-1].__enter__()

    yield start
    for each in opened:
        each.__exit__()


def play(server, program, task, *, tools=False, helper=False, stream=False, how=PATIENT, key="p"):
    return PROGRAMS[program](f"{server.url}/v1", key, task, tools, helper, stream, how)


def recorded(server, calls):
    """End the episode, and return it with its rows."""
    (name,) = server.proxy.sessions
    session = server.proxy.sessions[name]
    episode = server.reward(name, 1.0)  # in the server's thread, so behind all that it still does
    assert episode.scored
    assert not session.recording.untrainable
    assert len(episode.turns) == calls
    return episode, rows(episode)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.system
def test_plain(serve, program, stream):
    server = serve()
    assert play(server, program, "say hello", stream=stream) == "Hello."
    _, made = recorded(server, 1)
    assert len(made) == 1


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("task", [SUM, TWICE], ids=["tools", "parallel"])
@pytest.mark.system
def test_tools(serve, program, task, stream):
    server = serve()
    assert "5" in str(play(server, program, task, tools=True, stream=stream))
    episode, made = recorded(server, 2)
    assert len(episode.turns[0].reply.tool_calls) == (2 if task == TWICE else 1)
    assert len(made) == (2 if program in REWRITES else 1)
    shown = episode.turns[1].messages
    results = [message for message in shown if message.role == "tool"]
    assert len(results) == (0 if program in REWRITES else len(episode.turns[0].reply.tool_calls))


def test_sub_agents_are_branches(serve, program):
    server = serve()
    assert "5" in str(play(server, program, DELEGATE, helper=True))
    episode, made = recorded(server, 4)
    assert len(made) == (4 if program in REWRITES else 2)
    assert sum(turn.parent is None for turn in episode.turns) == len(made)


def test_a_retry_makes_up_for_a_failure(serve, program):
    left = [NoVerdict("restarting")]

    def say(ask):
        if left:
            raise left.pop()
        return speak(ask)

    server = serve(say)
    assert play(server, program, "say hello") == "Hello."
    recorded(server, 1)


def test_a_client_that_vanishes_loses_its_call(serve, program):
    go = threading.Event()

    def say(ask):
        go.wait(30)
        return speak(ask)

    server = serve(say)
    try:
        with pytest.raises(Exception, match=r"(?i)time|generating|connection"):
            play(server, program, "say hello", how=HASTY)
    finally:
        go.set()
    (name,) = server.proxy.sessions
    episode = server.reward(name, 1.0)
    assert not episode.scored
    assert episode.error.type == "LostCall"


def test_over_budget_is_told_and_not_asked_again(serve, program):
    server = serve(limits=Limits(turns=1))
    with pytest.raises(Exception, match="used up"):
        play(server, program, SUM, tools=True)
    (name,) = server.proxy.sessions
    episode = server.reward(name, 0.0)
    assert (episode.stop.value, episode.scored, len(episode.turns)) == ("turn_limit", True, 1)
