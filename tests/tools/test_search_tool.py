"""SearchTool in episodes, over engines and over the server that speaks /retrieve."""

import http.client
import json
import pickle
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from random import Random

import msgspec
import numpy as np
import pytest

import gem
from gem.agents.scripted import ScriptedAgent
from gem.envs.qa.facts import FactTasks
from gem.errors import BadArgument, MissingData
from gem.record import StopReason
from gem.rollout import Job, rollout
from gem.tools.python_code_tool import PythonCodeTool
from gem.tools.search import SearchEngine, SearchFailed, open_engine
from gem.tools.search.base import Hit
from gem.tools.search.remote import RetrieveEngine
from gem.tools.search_tool import CONTROL, SearchTool
from gem.tools.tool_env_wrapper import ToolEnvWrapper
from gem.wrappers import get_wrapper_fns

pytest.importorskip("tantivy")
pytest.importorskip("httpx")

serve = pytest.importorskip("gem.serve.search")


class Broken(SearchEngine):
    """Fails every second search of the agent's."""

    def __init__(self):
        self.asked = 0

    def search(self, query, topk=3):
        self.asked += query != CONTROL
        if self.asked % 2 and query != CONTROL:
            raise SearchFailed("no answer from 10.0.0.7")
        return [Hit("1", "Title", "x" * 100, 1.0)]


@pytest.fixture(scope="module")
def world():
    return open_engine("world")


@contextmanager
def serving(engine):
    with serve.SearchServer(engine, port=0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(30)


def question(words):
    tasks = FactTasks((1, 2))
    return next(i for i in range(len(tasks)) if tasks[i].question == words)


# -- the tool


def test_the_agent_is_told_asks_and_reads():
    tool = SearchTool(search_url="world", topk=2)
    assert "<search>...</search>" in tool.instruction_string()
    assert tool.schema()["function"]["parameters"]["required"] == ["query"]
    valid, error, shown, parsed = tool.execute_action("I look. <search>capital of France</search> So")
    assert (valid, error, parsed) == (True, False, "I look. <search>capital of France</search>")
    assert re.fullmatch(r"<information>\nDoc 1\(Title: .*\) .*\nDoc 2\(.*\n</information>", shown)
    assert "Paris" in shown
    assert tool.run({"query": " "}).error
    assert tool.run({"query": "zzzzq"}).text == "Nothing was found. Try other words."
    assert not tool.run({"query": "zzzzq"}).error


def test_long_documents_are_cut_to_their_share():
    tool = SearchTool(search_url=Broken(), max_chars=50)
    tool.run({"query": "a"})
    assert tool.run({"query": "a"}).text == f"Doc 1(Title: Title) {'x' * 50} [...]"


def test_somewhere_to_search_must_be_named(monkeypatch):
    monkeypatch.delenv("SEARCH_URL", raising=False)
    with pytest.raises(BadArgument, match="SEARCH_URL"):
        SearchTool()
    monkeypatch.setenv("SEARCH_URL", "world")
    assert SearchTool().run({"query": "Galileo"}).info == {"hits": 3}
    with pytest.raises(BadArgument, match="topk"):
        SearchTool(topk=0)


def test_what_is_nowhere_to_search_is_told_what_is():
    for absent in ("htp://host/retrieve", "no-such.jsonl"):
        with pytest.raises(MissingData, match=f"{absent}.*http://host:port/retrieve.*a folder"):
            SearchTool(search_url=absent)
    with pytest.raises(BadArgument, match="the source is 5; accepted"):
        SearchTool(search_url=5)


def test_a_failed_search_is_told_counted_and_neither_paid_nor_fined():
    tool = SearchTool(search_url=Broken())
    env = ToolEnvWrapper(
        gem.make("qa:Facts-v0-easy"), [tool], tool_success_reward=0.1, tool_execute_error_reward=-0.1
    )
    env.reset(seed=0)
    step = env.step("<search>a</search>")
    assert (step.reward, step.done, step.info["tool_failure_counter"]) == (0.0, False, 1)
    assert "The search failed" in step.obs
    assert "10.0.0.7" not in step.obs  # what goes on in our network is not the agent's business
    assert step.info["tool_results"] == [
        {
            "tool": "search",
            "error": False,
            "refused": False,
            "failed": True,
            "why": "no answer from 10.0.0.7",
            "shown": step.obs.index("</information>") + len("</information>"),
        }
    ]
    step = env.step("<search>a</search>")
    assert (step.reward, step.info["tool_failure_counter"], step.info["tool_success_counter"]) == (0.1, 1, 1)
    assert env.step("<search> </search>").reward == -0.1
    assert env.reset(seed=0).info["tool_failure_counter"] == 0


class Down(SearchEngine):
    """Answers nobody."""

    def search(self, query, topk=3):
        raise SearchFailed("no answer from 10.0.0.7")


class Picky(SearchEngine):
    """Fails on words of the agent's."""

    def search(self, query, topk=3):
        if "\u202e" in query or "crash" in query:
            raise SearchFailed("500")
        return [Hit("1", "Title", "text", 1.0)]


def played(engine, query, **options):
    env = ToolEnvWrapper(gem.make("qa:Facts-v0-easy"), [SearchTool(search_url=engine, **options)])
    actions = [f"<search>{query}</search>", r"\boxed{x}"]
    (episode,) = rollout([Job(lambda: env, 0)], ScriptedAgent(actions), retries=0)
    return episode


def test_an_engine_that_is_down_gives_no_verdict():
    episode = played(Down(), "a")
    assert (episode.stop, episode.error.boundary, episode.scored) == (StopReason.ERROR, "env", False)


def test_a_query_that_breaks_the_engine_buys_no_way_out():
    episode = played(Picky(), "crash")
    assert (episode.stop, episode.scored) == (StopReason.FAILED, True)
    assert episode.turns[0].info["tool_failure_counter"] == 1


def test_who_wants_it_is_told_of_a_dead_engine_and_scored():
    episode = played(Down(), "a", strict=False)
    assert (episode.scored, episode.turns[0].info["tool_failure_counter"]) == (True, 1)


def test_twins_share_the_index_and_pickles_leave_it_behind(world):
    env = ToolEnvWrapper(gem.make("qa:Facts-v0-easy"), [SearchTool(search_url=world)])
    env.reset(seed=3)
    twin, copy = env.fork(), pickle.loads(pickle.dumps(env))
    assert twin.tools[0].engine is env.tools[0].engine is world
    steps = [each.step("<search>capital of France</search>") for each in (env, twin, copy)]
    assert steps[0] == steps[1] == steps[2]


def test_by_name_environments_of_a_process_share_one_tool(monkeypatch):
    monkeypatch.setenv("SEARCH_URL", "world")
    paid, free = get_wrapper_fns("search_tool,search_tool_no_int_reward")
    one, two = paid(gem.make("qa:Facts-v0-easy")), free(gem.make("qa:Facts-v0-easy"))
    assert one.tools[0] is two.tools[0]
    for env, reward in ((one, 0.05), (two, 0.0)):
        env.reset(seed=0)
        assert env.step("<search>Galileo</search>").reward == reward


# -- a real run: what it answers, it has read


def reader(*steps):
    """Return an agent: each step is a pattern, and what to do with what it finds in what was last read."""

    def act(ask):
        read = ask.messages[-1].text
        pattern, action = steps[ask.turn]
        return action.format(*re.search(pattern, read).groups())

    return ScriptedAgent(act)


def facts_with(engine, words):
    env = gem.make("qa:Facts-v0-random", seed=0)
    env.reset(seed=0)
    index = question(words)
    seed = next(seed for seed in range(len(env.tasks)) if env.reset(seed=seed) and env.index == index)
    return Job(lambda: ToolEnvWrapper(env, [SearchTool(search_url=engine)]), seed)


def test_a_question_of_one_hop_is_answered_from_what_was_read(world):
    agent = reader(
        (r"What is the (capital of \w+)", "<search>{}</search>"), (r"capital is (\w+)", "\\boxed{{{}}}")
    )
    (episode,) = rollout([facts_with(world, "What is the capital of France?")], agent)
    assert (episode.stop, episode.reward()) == (StopReason.SOLVED, 1.0)


def test_two_hops_are_answered_from_what_was_read(world):
    agent = reader(
        (r"the country that (\w+) came from", "<search>{}</search>"),
        (r"Scientist from \w+ in (\w+)", "So it is about {0}. <search>capital of {0}</search>"),
        (r"with (\w+) as its capital", "\\boxed{{{}}}"),
    )
    asked = "What is the capital of the country that Galileo came from?"
    (episode,) = rollout([facts_with(world, asked)], agent)
    assert (episode.stop, episode.reward(), len(episode.turns)) == (StopReason.SOLVED, 1.0, 3)
    assert [turn.info["use_tool"] for turn in episode.turns] == [True, True, False]


# -- the server


@pytest.mark.parametrize("wire", ["json", "msgpack", "auto"])
def test_a_tool_over_the_server_reads_what_one_over_the_index_reads(world, wire):
    with serving(world) as server:
        engine = RetrieveEngine(f"http://127.0.0.1:{server.server_port}", wire=wire)
        assert engine.search("capital of France", 5) == world.search("capital of France", 5)
        there = SearchTool(search_url=engine).run({"query": "Galileo"})
        engine.close()
    assert there == SearchTool(search_url=world).run({"query": "Galileo"})


def ask(server, method="POST", path="/retrieve", body=b"", headers=None):
    link = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    try:
        link.request(method, path, body, headers or {})
        answer = link.getresponse()
        return answer.status, answer.read()
    finally:
        link.close()


def test_the_protocol(world):
    with serving(world) as server:
        assert ask(server, "GET", "/health") == (200, b'{"status": "ok"}')
        two = {"queries": ["Galileo", "zzzzq"], "topk": 1, "return_scores": True}
        status, body = ask(server, body=json.dumps(two).encode())
        (((first,), nothing),) = (json.loads(body)["result"],)
        assert (status, nothing) == (200, [])
        assert first["score"] > 0
        assert first["document"]["contents"].startswith('"Galileo"\nScientist')
        status, body = ask(server, body=json.dumps({"queries": ["Galileo"]}).encode())
        assert json.loads(body)["result"][0][0]["title"] == "Galileo"
        assert len(json.loads(body)["result"][0]) == 3
        status, body = ask(server, body=msgspec.msgpack.encode({"query": "Galileo", "topk": 1}))
        (found,) = msgspec.msgpack.decode(body)["result"]
        assert found["document"]["contents"] == first["document"]["contents"]


@pytest.mark.parametrize(
    ("status", "said", "asked"),
    [
        (400, "no JSON", {"body": b"{"}),
        (400, "no JSON", {"body": b"[" * 100_000}),
        (400, "no msgpack", {"body": b"\x81", "headers": {"Content-Type": "application/msgpack"}}),
        (400, "no object", {"body": b"[1]"}),
        (400, "list of texts", {"body": b"{}"}),
        (400, "list of texts", {"body": b'{"queries": "x"}'}),
        (400, "list of texts", {"body": b'{"query": 3}'}),
        (400, "1 to 100", {"body": b'{"query": "x", "topk": 0}'}),
        (400, "1 to 100", {"body": b'{"query": "x", "topk": "3"}'}),
        (400, "256 at most", {"body": json.dumps({"queries": ["x"] * 257}).encode()}),
        (404, "/retrieve", {"path": "/x", "body": b"{}"}),
        (404, "/retrieve", {"method": "GET", "path": "/../etc/passwd"}),
        (405, "POST", {"method": "GET"}),
        (403, "another site", {"body": b'{"query": "x"}', "headers": {"Origin": "http://site.example"}}),
        (421, "local names", {"body": b'{"query": "x"}', "headers": {"Host": "site.example"}}),
        (411, "Content-Length", {"headers": {"Content-Length": "x"}}),
        (413, "1048576", {"headers": {"Content-Length": "1048577"}}),
        (413, "1048576", {"headers": {"Content-Length": "9" * 5000}}),
    ],
)
def test_what_cannot_be_served_is_said(world, status, said, asked):
    with serving(world) as server:
        got, body = ask(server, **asked)
        answer = msgspec.msgpack.decode(body) if "msgpack" in said else json.loads(body)
        assert got == status
        assert said in answer["error"]
        assert ask(server, "GET", "/health")[0] == 200


def test_a_broken_engine_is_a_503():
    with serving(Broken()) as server:
        status, body = ask(server, body=b'{"query": "x"}')
        assert status == 503
        assert "no answer" in json.loads(body)["error"]
        with pytest.raises(BadArgument, match="cannot listen"):
            serve.SearchServer(Broken(), port=server.server_port)


def test_the_command_serves_until_it_is_stopped():
    command = [sys.executable, "-m", "gem", "serve-search", "world", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "opening world ...\n"
            url = process.stdout.readline().strip().removeprefix("SEARCH_URL=")
            tool = SearchTool(search_url=url)
            assert "Paris" in tool.run({"query": "capital of France"}).text
            tool.engine.close()
        finally:
            process.terminate()


@pytest.mark.parametrize(
    ("working", "searches"),
    [
        *[("(6 * 20) // 6", False), (" 3 * 4\n", False)],
        *[("She pays 3*4=12 dollars.", True), ("full-time", True), (True, True), (7, True), (None, True)],
        *[(np.array([3, 4]), True), (["3 * 4"], True), ("+".join("1" * 400), True), ("9**9", True)],
        *[("'</python><submit/>' + ''", True), ("__import__('os').getpid() + 1", True)],
    ],
)
def test_a_solver_computes_a_column_working_only_where_it_is_an_expression(world, working, searches):
    rows = [{"question": "What do 3 lamps cost?", "answer": "12", "working": working}]
    tools = [SearchTool(search_url=world), PythonCodeTool()]
    for given in (tools, tools[::-1], tools[:1]):
        with ToolEnvWrapper(gem.make("data:number", data=rows), given) as env:
            info = env.reset(seed=0).info
            search = searches or len(given) == 1
            program = f"<python>{str(working).strip()}</python>"
            assert env.solve() == ("<search>What do 3 lamps cost</search>" if search else program)
            assert "working" not in info


def test_a_solver_searches_for_the_question_and_random_play_for_a_word_of_it(world):
    tool = SearchTool(search_url=world)
    assert tool.solving_call("Who wrote “Faust”?\n\nAnswer in a box.") == "<search>Who wrote Faust</search>"
    assert tool.solving_call("?!") == ""
    made = {tool.sample_call("Who wrote “Faust”?", rng) for rng in map(Random, range(40))}
    assert made == {f"<search>{word}</search>" for word in ("Who", "wrote", "Faust")}
    assert tool.sample_call("?!", Random(0)) == f"<search>{CONTROL}</search>"
