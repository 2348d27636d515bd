"""MCPTool against real servers: ours over stdio and HTTP, and one from the registry where it is installed."""

import http.server
import json
import multiprocessing
import os
import pickle
import shutil
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="the mcp package is not installed")

import gem
from gem.errors import BadArgument, NoVerdict, UnknownArgument
from gem.tools import _mcp_sessions, _mcp_transports, mcp_tool
from gem.tools._mcp_sessions import McpSession
from gem.tools.mcp_tool import MCPTool
from gem.tools.schema import violation
from gem.tools.tool_env_wrapper import ToolEnvWrapper

NOTES = [sys.executable, "-m", "gem.tools.mcp_server.notes_mcp"]
RAW = [sys.executable, "-S", str(Path(__file__).with_name("mcp_raw_server.py"))]
ODD = [sys.executable, str(Path(__file__).with_name("mcp_odd_server.py"))]


def call(name, **arguments):
    return f'<tool_call>{{"name": "{name}", "arguments": {json.dumps(arguments)}}}</tool_call>'


def listening(command):
    """Start a server over HTTP; return the process and its URL."""
    process = subprocess.Popen([*command, "--http", "0"], stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()


def ended(process):
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture(scope="module")
def notes_url():
    process, url = listening(NOTES)
    yield url
    ended(process)


@pytest.fixture(scope="module")
def odd_url():
    process, url = listening(ODD)
    yield url
    ended(process)


@pytest.fixture
def notes(notes_url):
    tool = MCPTool(notes_url)
    yield tool
    tool.close()


def said(tool, action):
    valid, _, text, _ = tool.execute_action(action)
    assert valid
    return text.removeprefix("<output>\n").removesuffix("\n</output>")


def test_the_agent_is_shown_the_tools_of_the_server(notes):
    about = {each["name"]: each for each in notes.get_available_tools()}
    assert set(about) == {"write_note", "read_notes", "count"}
    assert about["write_note"]["parameters"]["required"] == ["text"]
    assert "write_note: Write a note" in notes.instruction_string()
    for tool in notes.offered():
        assert tool.spec().schema == tool.input_schema  # as the server has it
        assert tool.spec().schema["type"] == "object"


def test_both_forms_of_a_call_are_read(notes):
    xml = '<tool_call><tool_name>write_note</tool_name><arguments>{"text": "a"}</arguments></tool_call>'
    action = f"I note it. {xml} And go on."
    valid, error, text, parsed = notes.execute_action(action)
    assert (valid, error, parsed) == (True, False, action[: action.index(" And")])
    assert "Note 1" in text
    assert said(notes, call("write_note", text="b")) == "Note 2 is written."
    assert said(notes, call("read_notes")) == "a\nb"
    assert notes.execute_action("No call.") == (False, True, "", "")


@pytest.mark.parametrize(
    ("action", "what"),
    [
        (call("read_note"), "Did you mean 'read_notes'"),
        (call("write_note"), "'text' is missing"),
        (call("write_note", text=3), "accepted: string"),
        (call("write_note", text="x" * 20_000), "accepted: 1000 notes"),
        ("<tool_call>{</tool_call>", "no JSON"),
    ],
)
def test_what_is_wrong_with_a_call_is_said(notes, action, what):
    valid, error, text, _ = notes.execute_action(action)
    assert valid
    assert error
    assert what in text


def test_an_episode_has_a_session_of_its_own(notes):
    said(notes, call("write_note", text="of the first episode"))
    notes.reset(1)
    assert said(notes, call("read_notes")) == "There are no notes."
    twin = notes.spawn()
    said(notes, call("write_note", text="mine"))
    assert said(twin, call("read_notes")) == "There are no notes."
    assert said(notes, call("read_notes")) == "mine"
    twin.close()


def test_an_environment_with_a_server(notes):
    env = ToolEnvWrapper(gem.make("game:GuessTheNumber-v0-easy"), [notes], max_tool_uses=3)
    obs, _ = env.reset(seed=0)
    assert "write_note" in obs
    step = env.step(call("count") + call("count"))
    assert step.obs == "<output>\n1\n</output>\n<output>\n2\n</output>"
    assert step.info["tool_success_counter"] == 2
    assert step.info["tool_type"] == "count"
    assert env.step(call("countt")).info["tool_success_counter"] == 2
    env.reset(seed=1)
    assert "\n1\n" in env.step(call("count")).obs
    env.close()
    env.close()


@pytest.mark.system
def test_sessions_side_by_side_on_one_thread(notes_url):
    """Sixteen environments at once, as threads of a vector run them."""
    tools = [MCPTool(notes_url) for _ in range(16)]
    counted(tools)
    assert [thread.name for thread in threading.enumerate()].count("gem-mcp") == 1
    for tool in tools:
        tool.close()


@pytest.mark.slow
def test_256_sessions_at_once(notes_url):
    tools = [MCPTool(notes_url, timeout=120, connect_timeout=240) for _ in range(256)]
    counted(tools)
    assert [thread.name for thread in threading.enumerate()].count("gem-mcp") == 1
    with ThreadPoolExecutor(64) as pool:
        list(pool.map(MCPTool.close, tools))


def counted(tools):
    """Let every tool count to three while all are open; each has a counter of its own."""
    with ThreadPoolExecutor(len(tools)) as pool:
        for number in "123":
            assert set(pool.map(lambda tool: said(tool, call("count")), tools)) == {number}


def test_one_tool_is_used_by_many_threads(notes):
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda _: said(notes, call("count")), range(40)))
    assert sorted(map(int, numbers)) == list(range(1, 41))


@pytest.mark.system
def test_over_stdio_a_program_of_its_own_that_ends_with_the_session():
    tool = MCPTool.from_local_command(NOTES[0], NOTES[1:])
    said(tool, call("write_note", text="kept"))
    assert said(tool, call("read_notes")) == "kept"
    task = tool._sessions["server"].task
    tool.close()
    tool.close()
    assert task.done()
    assert said(tool, call("read_notes")) == "There are no notes."
    tool.close()


@pytest.mark.system
def test_several_servers_and_a_configuration_file(notes_url, odd_url, tmp_path):
    path = tmp_path / "mcp.json"
    config = {"notes": {"url": notes_url, "type": "http"}, "odd": {"url": odd_url}}
    path.write_text(json.dumps({"mcpServers": config}))
    for tool in (MCPTool.from_config_file(path), MCPTool.from_multi_server(config)):
        assert said(tool, call("odd_add", a=2, b=3)) == "5"
        assert said(tool, call("notes_count")) == "1"
        tool.close()


def test_reconfigured_to_another_server(notes, odd_url):
    assert said(notes, call("count")) == "1"
    notes.reconfigure({"url": odd_url})
    assert said(notes, call("add", a=1, b=1)) == "2"
    twin = notes.spawn()
    assert "add" in {each["name"] for each in twin.get_available_tools()}
    known = [each["name"] for each in notes.get_available_tools()]
    notes.reconfigure({"url": "http://127.0.0.1:9/"}, same_tools=True)  # nobody is asked
    assert [each["name"] for each in notes.get_available_tools()] == known


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"url": "x", "command": "y"},
        {"url": "ftp://host"},
        "somewhere",
        3,
        {"mcpServers": {}},
        {"mcpServers": {"a": 3}},
        {"command": "x", "args": "one text"},
        {"command": "x", "args": 3},
        {"command": 3},
        {"command": "x", "cwd": 3},
        {"command": "x", "env": {"A": 3}},
        {"url": "http://host", "headers": "Authorization: none"},
        {"url": "http://host/sse", "transport": "sse"},
    ],
)
def test_a_configuration_that_cannot_be_read_is_refused(config):
    with pytest.raises(BadArgument, match="accepted"):
        MCPTool(config)


def test_an_unknown_key_of_a_server_is_refused():
    with pytest.raises(UnknownArgument, match="Did you mean 'command'"):
        MCPTool({"url": "http://host", "comand": "x"})


def test_a_file_that_is_no_configuration_is_refused(tmp_path):
    with pytest.raises(BadArgument, match="cannot be read"):
        MCPTool.from_config_file(tmp_path / "absent.json")


@pytest.mark.parametrize(
    "config", [{"command": "false"}, {"command": "no-such-program"}, "http://127.0.0.1:9/"]
)
def test_a_server_that_cannot_be_reached_is_no_verdict(config):
    with pytest.raises(NoVerdict, match="cannot be reached"):
        MCPTool(config).reset(0)


def test_errors_have_no_secret_of_the_server():
    class Refusing(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_response(401)
            self.end_headers()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        place = f"127.0.0.1:{server.server_port}/mcp"
        tool = MCPTool(f"http://me:hidden@{place}?apiKey=my-secret-key")
        with pytest.raises(NoVerdict, match=f"http://{place}. cannot be reached") as failed:
            tool.reset(0)
        server.shutdown()
    assert "hidden" not in str(failed.value)
    assert "secret" not in str(failed.value)


def test_the_model_reads_a_refusal_without_the_secrets_of_the_server_alone(odd_url, monkeypatch):
    def refuse(session, name, arguments, limit_s):
        error = ValueError("404 for https://site.example/?title=Paris, asked with my-secret-key")
        error.code = mcp_tool._INVALID_PARAMS
        raise error

    tool = MCPTool(f"{odd_url}?apiKey=my-secret-key")
    monkeypatch.setattr(McpSession, "call", refuse)
    assert "404 for https://site.example/?title=Paris, asked with ***" in said(tool, call("add", a=1, b=1))
    tool.close()


@pytest.mark.parametrize("extra", ['"a\\ud800"', '{"\\ud800": [1]}', "[" * 98 + "]" * 98])
def test_every_argument_of_an_agent_can_be_sent(odd_url, extra):
    tool = MCPTool(odd_url)
    action = f'<tool_call>{{"name": "add", "arguments": {{"a": 2, "b": 3, "c": {extra}}}}}</tool_call>'
    assert said(tool, action) == "5"
    tool.close()


def test_an_agent_does_not_end_its_session_with_deep_arguments(odd_url):
    tool = MCPTool(odd_url)
    deep = f'{{"a": 2, "b": 3, "c": {"[" * 400 + "]" * 400}}}'
    assert "more than 100 levels" in said(
        tool, f'<tool_call>{{"name": "add", "arguments": {deep}}}</tool_call>'
    )
    assert said(tool, call("add", a=2, b=3)) == "5"
    tool.close()


def test_a_server_that_accepts_and_says_nothing_is_no_verdict():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        tool = MCPTool(f"http://127.0.0.1:{silent.getsockname()[1]}/mcp", connect_timeout=0.2)
        with pytest.raises(NoVerdict, match="no handshake within"):
            tool.reset(0)


@pytest.mark.slow
def test_what_a_program_wrote_before_it_broke_is_told():
    tool = MCPTool({"command": sys.executable, "args": ["-c", "import sys; sys.exit('no licence found')"]})
    with pytest.raises(NoVerdict, match="no licence found"):
        tool.offered()


def test_what_a_program_prints_between_its_messages_is_told_once_something_fails():
    tool = MCPTool({"command": sys.executable, "args": ["-c", "print('Welcome to my server')"]})
    with pytest.raises(NoVerdict, match=r"It wrote: .*JSON.*Welcome to my server"):
        tool.offered()


@pytest.mark.slow
def test_a_server_that_dies_in_a_call_is_no_verdict_and_the_call_is_not_repeated(tmp_path):
    calls = tmp_path / "calls"
    tool = MCPTool({"command": ODD[0], "args": ODD[1:], "env": {"GEM_TEST_CALLS": str(calls)}})
    with pytest.raises(NoVerdict, match="may have happened"):
        tool.execute_action(call("die"))
    assert calls.read_text() == "die\n"
    with pytest.raises(NoVerdict):  # a new session would lack what the episode did before
        tool.execute_action(call("add", a=1, b=1))
    tool.reset(1)
    assert said(tool, call("add", a=1, b=1)) == "2"
    tool.close()


@pytest.mark.system
def test_a_server_over_http_that_dies_is_no_verdict(tmp_path):
    process, url = listening(["env", f"GEM_TEST_CALLS={tmp_path / 'calls'}", *ODD])
    tool = MCPTool(url, timeout=20)
    try:
        assert said(tool, call("add", a=1, b=1)) == "2"
        with pytest.raises(NoVerdict):
            tool.execute_action(call("die"))
        assert (tmp_path / "calls").read_text() == "die\n"
    finally:
        ended(process)
        tool.close()


def test_a_call_without_an_answer_is_the_agents_fault_where_the_server_is_well(odd_url):
    tool = MCPTool(odd_url, timeout=0.3)
    tool.offered()
    assert "unknown" in said(tool, call("wait_forever"))
    tool.close()


@pytest.mark.slow
def test_a_call_that_froze_its_own_server_costs_the_agent_that_server(monkeypatch):
    monkeypatch.setattr(mcp_tool, "_PING_S", 0.3)
    monkeypatch.setattr(
        MCPTool, "_healthy", lambda self, server: bool(McpSession(server, 60.0).close() or True)
    )
    tool = MCPTool({"command": ODD[0], "args": ODD[1:]}, timeout=0.5, connect_timeout=60)
    tool.offered()
    for action in (call("freeze"), call("add", a=1, b=1)):
        valid, error, text, _ = tool.execute_action(action)
        assert valid
        assert error
        assert "takes no more calls in this episode" in text
    assert tool._sessions["server"].closing.is_set()
    tool.close()


@pytest.mark.slow
def test_a_frozen_server_of_all_is_no_verdict(monkeypatch):
    monkeypatch.setattr(mcp_tool, "_PING_S", 0.3)
    process, url = listening(ODD)
    tool = MCPTool(url, timeout=0.5)
    try:
        tool.offered()
        with pytest.raises(NoVerdict, match="does not answer any more"):
            tool.execute_action(call("freeze"))
    finally:
        ended(process)
        tool.close()


ANSWER = '{"jsonrpc": "2.0", "id": ID, "result": {"content": [{"type": "text", "text": "%s"}]}}'
DEEP = '{"jsonrpc": "2.0", "id": ID, "result": {"content": [], "structuredContent": {"a": %s}}}'


@pytest.fixture
def raw():
    tool = MCPTool.from_local_command(RAW[0], RAW[1:], timeout=60)
    yield lambda *lines, **asked: said(tool, call("write", lines=lines, **asked))
    tool.close()


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (r"cut\ud83d", "cut?"),
        (r"\ude00\ud83d\n", "??\n"),
        (r"\ud83d \ud83d\ude00 \\ud83d", "? \N{GRINNING FACE} \\ud83d"),
        ("caf\xe9", "caf\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_an_answer_with_what_is_no_text_is_read(raw, text, read):
    assert raw(ANSWER % text) == read


@pytest.mark.parametrize(
    "line",
    [
        ANSWER.replace("ID", "1000") % "of another request",
        ANSWER.replace("2.0", "1.0") % "of another protocol",
        ANSWER[:40],
        DEEP % ("[" * 10_000 + "]" * 10_000),
        DEEP % ("9" * 5_000),
        ANSWER[:-1].replace("content", "method") % "broken off",
        '{"jsonrpc": "2.0", "id": ID}',
        '{"jsonrpc": "2.0", "result": {}}',
        '{"jsonrpc": "2.0", "id": ID, "error": "no object", "more": 1}',
        f"[{ANSWER % 'in a list'}]",
        "\xef\xbb\xbf" + ANSWER % "behind a mark of the order of bytes",
    ],
)
def test_an_answer_that_breaks_the_protocol_is_no_verdict_at_once(raw, line):
    with pytest.raises(NoVerdict, match=r"(?s)It wrote: .*an answer .*may have happened"):
        raw(line)
    with pytest.raises(NoVerdict):
        raw(ANSWER % "of a session that has ended")


def test_a_message_of_a_program_is_bounded(raw, monkeypatch):
    monkeypatch.setattr(_mcp_sessions, "MAX_MESSAGE_BYTES", 400_000)
    assert raw(ANSWER % "MANY", many=300_000).startswith("xxx")
    with pytest.raises(NoVerdict, match="a message of more than 400,000 bytes"):
        raw(ANSWER % "MANY", many=500_000)


@pytest.mark.parametrize(
    "line",
    [
        "MANY" * 5,
        '{"level": "info", "error": null}',
        'The server of "jsonrpc" 2.0 is ready.',
        f"sending {ANSWER % 'no'}",
        f"[debug] {ANSWER % 'no'}",
        '{"level": "debug", "jsonrpc": "2.0", "id": ID, "text": "caf\xe9"}',
        '{"jsonrpc": "2.0", "error": {"code": -32601, "message": "no such notification"}}',
        '{"jsonrpc": "2.0", "method": "notifications/message", "params": {"result": 1',
        '{"jsonrpc": "2.0", "method": "notifications/message", "params": [1]}',
        '{"jsonrpc": "2.0", "id": null, "error": {"code": -32601, "message": "no such notification"}}',
        '{"jsonrpc": "2.0", "id": 1, "result": {}}',
    ],
)
def test_a_line_that_is_no_answer_is_passed_over(raw, line):
    assert raw(line, "", ANSWER % "yes", many=100) == "yes"


def test_only_the_end_of_a_standard_error_is_kept():
    tool = MCPTool.from_local_command(RAW[0], RAW[1:], timeout=60)
    assert said(tool, call("write", lines=[ANSWER % "yes"], errors=300_000)) == "yes"
    session = tool._sessions["server"]
    with pytest.raises(NoVerdict, match="e last words"):
        said(tool, call("write", lines=[ANSWER[:40]], errors=300_000))
    assert len(session.last_words) < 600
    tool.close()


def test_a_program_that_does_not_end_by_itself_is_ended(monkeypatch):
    monkeypatch.setattr(_mcp_transports, "_PATIENCE_S", 0.1)
    tool = MCPTool.from_local_command(RAW[0], RAW[1:])
    pid = int(said(tool, call("write", stay=True)))
    tool.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_what_a_program_started_ends_with_it():
    tool = MCPTool.from_local_command(RAW[0], RAW[1:])
    pid = int(said(tool, call("write", lines=[ANSWER % "PID"], start=True)))
    tool.close()
    assert not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.fixture(scope="module", params=["json", "events"])
def raw_url(request):
    process = subprocess.Popen([*RAW, request.param], stdout=subprocess.PIPE, text=True)
    yield process.stdout.readline().strip()
    ended(process)


@pytest.fixture
def raw_http(raw_url):
    tool = MCPTool(raw_url, timeout=60)
    yield lambda line, **asked: said(tool, call("write", lines=[line], **asked))
    tool.close()


def test_an_answer_over_http_with_what_is_no_text_is_read(raw_http):
    assert raw_http(ANSWER % r"cut\ud83d \ud83d\ude00 \\ud83d") == "cut? \N{GRINNING FACE} \\ud83d"


def test_an_answer_over_http_is_the_one_to_its_request(raw_http):
    assert raw_http(ANSWER.replace("ID", "1000") % r"yes\ud800") == "yes?"


@pytest.mark.parametrize("line", [ANSWER[:40], DEEP % ("[" * 10_000 + "]" * 10_000), DEEP % ("9" * 5_000)])
def test_an_answer_over_http_that_breaks_the_protocol_is_no_verdict(raw_http, line):
    with pytest.raises(NoVerdict, match="Failed to parse"):
        raw_http(line)


def test_an_answer_over_http_is_bounded(raw_url, monkeypatch):
    monkeypatch.setattr(_mcp_sessions, "MAX_MESSAGE_BYTES", 400_000)
    tool = MCPTool(raw_url, timeout=60)
    assert said(tool, call("write", lines=[ANSWER % "MANY"], many=300_000)).startswith("xxx")
    with pytest.raises(NoVerdict, match="an answer of more than 400,000 bytes"):
        said(tool, call("write", lines=[ANSWER % "MANY"], many=500_000))
    tool.close()


@pytest.mark.parametrize("coding", ["gzip", "GZip", "identity, gzip", "br"])
def test_a_compressed_answer_is_not_read(raw_url, coding):
    with pytest.raises(NoVerdict, match=r"encoded as (gzip|br), which was not asked for"):
        MCPTool(f"{raw_url}?coding={coding.replace(' ', '%20')}").offered()


@pytest.mark.parametrize("coding", ["", "UTF-8", "none", "Identity", "identity, identity"])
def test_a_coding_that_compresses_nothing_is_passed_over(raw_url, coding):
    tool = MCPTool(f"{raw_url}?coding={coding.replace(' ', '%20')}")
    assert said(tool, call("write", lines=[ANSWER % "yes"])) == "yes"
    tool.close()


def test_what_keeps_the_thread_of_all_sessions_costs_no_call(odd_url, monkeypatch):
    async def hold_up(*arguments):
        time.sleep(1.5)  # as a long answer does that another session reads
        return await send(*arguments)

    send = _mcp_sessions._call
    monkeypatch.setattr(_mcp_sessions, "_call", hold_up)
    tool = MCPTool(odd_url, timeout=1.0)
    assert said(tool, call("add", a=2, b=3)) == "5"
    tool.close()


def test_what_a_server_says_is_cut(odd_url):
    tool = MCPTool(odd_url, max_chars=200)
    text = said(tool, call("flood", size=1_000_000))
    assert len(text) < 300
    assert "left out" in text
    tool.close()


@pytest.mark.slow
def test_a_program_does_not_get_our_environment(monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "x")
    tool = MCPTool.from_local_command(ODD[0], ODD[1:], env={"GIVEN": "1"})
    names = said(tool, call("environment")).split()
    assert "GIVEN" in names
    assert "SECRET_TOKEN" not in names
    tool.close()


@pytest.mark.parametrize(
    "schema",
    [
        None,
        True,
        {"properties": [1]},
        {"properties": {"a": True, "b": {"type": {"x": 1}, "enum": 3, "description": 4}}, "required": "a"},
        {"properties": {"a": {"type": ["string", "null"]}}, "required": ["a", "absent", {}]},
        {"properties": {"a": {"description": "x" * 100_000}}},
    ],
)
def test_schemas_of_any_shape_are_read(schema):
    about = mcp_tool._readable(schema)
    tool = mcp_tool.RemoteTool(MCPTool("http://host/"), "server", "x", "x", "About.", about)
    assert len(tool.instruction_string()) < 30_000
    assert "accepted" in violation({"a": 3}, about) or "a" not in about["required"]


def test_copies_have_sessions_of_their_own(notes):
    assert said(notes, call("count")) == "1"
    twin = pickle.loads(pickle.dumps(notes))
    assert said(twin, call("count")) == "1"
    assert said(notes, call("count")) == "2"
    twin.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # threads and fork together are what is tested
def test_a_forked_child_has_a_loop_of_its_own(notes):
    assert said(notes, call("count")) == "1"
    context = multiprocessing.get_context("fork")
    pipe, end = context.Pipe()

    def child():
        try:
            notes.execute_action(call("count"))
        except NoVerdict as error:
            end.send("forked" in str(error))
        notes.reset(0)
        end.send(said(notes, call("count")))
        notes.close()

    process = context.Process(target=child)
    process.start()
    assert pipe.poll(60)
    assert pipe.recv() is True
    assert pipe.poll(60)
    assert pipe.recv() == "1"
    process.join(60)
    assert process.exitcode == 0
    assert said(notes, call("count")) == "2"


@pytest.mark.slow
def test_a_program_that_closes_nothing_ends(tmp_path):
    """At exit sessions are closed, and what was started is gone."""
    code = (
        "import sys; from gem.tools.mcp_tool import MCPTool; "
        "tool = MCPTool.from_local_command(sys.executable, ['-c', "
        '\'import os, runpy; open(os.environ["PIDFILE"], "w").write(str(os.getpid())); '
        'runpy.run_module("gem.tools.mcp_server.notes_mcp", run_name="__main__")\'], '
        f"env={{'PIDFILE': {str(tmp_path / 'pid')!r}}}); tool.offered()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_server_from_the_registry():
    """mcp-server-time, in GEM_MCP_SERVER_TIME or on the PATH."""
    program = os.environ.get("GEM_MCP_SERVER_TIME") or shutil.which("mcp-server-time")
    if not program:
        pytest.skip("mcp-server-time is not installed: pip install mcp-server-time, in any environment")
    tool = MCPTool.from_local_command(program)
    zones = {"source_timezone": "Asia/Tokyo", "target_timezone": "Asia/Kolkata"}
    assert "T08:30:00+05:30" in said(tool, call("convert_time", time="12:00", **zones))
    valid, error, text, _ = tool.execute_action(call("convert_time", time="25:99", **zones))
    assert valid
    assert error
    assert text
    tool.close()
