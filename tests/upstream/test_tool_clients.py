"""Tools and wrappers that subclass or imitate upstream's, and the servers that they talk to."""

import asyncio
import json
import re
import subprocess
import sys
import threading
import urllib.request

import pytest

import gem
from gem.core import Env
from gem.tools.base_tool import BaseTool
from gem.tools.python_code_tool import PythonCodeTool
from gem.tools.tool_env_wrapper import ToolEnvWrapper
from gem.utils.sandbox import run_python

COUNTS = {
    "tool_use_counter",
    "tool_success_counter",
    "prev_ep_tool_use_counter",
    "prev_ep_tool_success_counter",
}


class Answers(Env):
    """Pays the answer 42, in a box."""

    def reset(self, seed=None):
        super().reset(seed)
        return "What is 6 times 7?", {"env_instruction": "", "suffix": "Think."}

    def step(self, action):
        right = "\\boxed{42}" in action
        return "", float(right), True, True, {"correct": right}


class CodeTags(PythonCodeTool):
    """Reads <code> tags, and reports what a program printed in its own words."""

    def __init__(self, timeout=5, sandbox_type="none", keep_error_last_line=False, patterns=None):
        super().__init__(timeout, sandbox_type, keep_error_last_line)
        self.patterns = patterns or [r"<code>(.*?)</code>", r"```\n?python(.*?)```"]

    def _parse_action(self, action):
        for pattern in self.patterns:
            if found := re.search(pattern, action, re.DOTALL):
                return found[1].strip(), action[: found.end()], True
        return None, action, False

    def instruction_string(self):
        return "Write code between <code> and </code>."

    def execute_action(self, action):
        code, parsed, valid = self._parse_action(action)
        if not valid:
            return False, True, "", parsed
        ok, out, err = run_python(code, self.sandbox_type, timeout=self.timeout)
        if err and self.keep_error_last_line:
            err = err.strip().split("\n")[-1]
        return True, not ok, f"Code execution result: {out}{err}\n", parsed


class Echo(BaseTool):
    """Upstream's form: a class attribute for its type, a number of workers, one method."""

    tool_type = "echo"

    def __init__(self, num_workers=1):
        super().__init__(num_workers)

    def instruction_string(self):
        return "Say <echo>words</echo>."

    def execute_action(self, action):
        found = re.search(r"<echo>(.*?)</echo>", action)
        if found is None:
            return False, True, "", action
        return True, found[1] == "fail", f"echo: {found[1]}", action[: found.end()]


class Reporting(ToolEnvWrapper):
    """Takes the counts out of info and puts them among the metrics."""

    def reset(self, seed=None):
        obs, info = super().reset(seed=seed)
        return obs, self._moved(info)

    def step(self, action, verbose=False):
        obs, reward, terminated, truncated, info = super().step(action, verbose)
        return obs, reward, terminated, truncated, self._moved(info)

    def _moved(self, info):
        counts = {name: info.pop(name) for name in ("tool_use_counter", "tool_success_counter")}
        info["metrics"] = {**counts, **info.pop("metrics", {})}
        return info


def wrapped(*tools, **keywords):
    env = Reporting(Answers(), list(tools), **keywords)
    env.reset(seed=0)
    return env


def test_a_wrapper_that_pops_the_counts_goes_on_counting():
    env = wrapped(Echo(), max_tool_uses=3)
    first = env.step("<echo>one</echo> and more")
    second = env.step("<echo>fail</echo>", verbose=True)
    assert (first.obs, first.info["parsed_action"], first.done) == ("echo: one", "<echo>one</echo>", False)
    assert first.info["metrics"] == {"tool_use_counter": 1, "tool_success_counter": 1}
    assert second.info["metrics"] == {"tool_use_counter": 2, "tool_success_counter": 1}
    last = env.step("\\boxed{42}")
    assert (last.reward, last.terminated, last.info["use_tool"], last.info["correct"]) == (
        1.0,
        True,
        False,
        True,
    )


def test_the_prompt_says_what_the_tools_are_and_keeps_the_environments_info():
    env = Reporting(Answers(), [Echo()])
    obs, info = env.reset(seed=0)
    assert obs.startswith("What is 6 times 7?")
    assert "Say <echo>words</echo>." in obs
    assert (info["suffix"], info["env_instruction"]) == ("Think.", "")


def test_info_has_upstreams_counts():
    env = ToolEnvWrapper(Answers(), [Echo()])
    _, info = env.reset(seed=0)
    assert set(info) >= COUNTS
    info = env.step("<echo>x</echo>").info
    assert set(info) >= COUNTS | {"use_tool", "tool_type", "parsed_action"}
    assert info["tool_type"] == "echo"
    env.step("done")
    _, info = env.reset()
    assert (
        info["tool_use_counter"],
        info["prev_ep_tool_use_counter"],
        info["prev_ep_tool_success_counter"],
    ) == (0, 1, 1)


@pytest.mark.parametrize(
    ("call", "reward"), [("<echo>x</echo>", 0.5 + 0.25), ("<echo>fail</echo>", 0.5 - 0.125)]
)
def test_calls_are_paid_as_the_arguments_say(call, reward):
    env = wrapped(Echo(), tool_reward=0.5, tool_success_reward=0.25, tool_execute_error_reward=-0.125)
    assert env.step(call).reward == reward


def test_a_call_past_the_last_one_is_not_taken_for_an_answer():
    env = wrapped(Echo(), max_tool_uses=1)
    assert "last tool call" in env.step("<echo>one</echo>").obs
    step = env.step("<echo>two</echo>")
    assert (step.done, step.reward) == (False, 0.0)
    assert env.step("\\boxed{42}").reward == 1.0


def test_of_several_tools_the_one_that_matches_runs_even_if_it_fails():
    class Other(Echo):
        tool_type = "other"

        def execute_action(self, action):
            return False, True, "", action

    env = wrapped(Echo(), Other())
    assert env.step("<echo>fail</echo>").obs == "echo: fail"


def test_a_tool_whose_format_looks_like_ours_reads_its_own_calls():
    class Calls(BaseTool):
        tool_type = "mcp"

        def instruction_string(self):
            return "Write a tool_call."

        def execute_action(self, action):
            found = re.search(r"<tool_call>(.*?)</tool_call>", action)
            if found is None:
                return False, False, "", action
            return True, False, f"ran {json.loads(found[1])['tool_name']}", action[: found.end()]

    env = wrapped(Calls(), Echo())
    assert env.step('<tool_call>{"tool_name": "move", "tool_params": {}}</tool_call>').obs == "ran move"
    assert env.step("<echo>x</echo>").obs == "echo: x"


def test_a_python_tool_of_their_own_reads_fenced_code_too():
    env = wrapped(CodeTags(20))
    assert env.step("```python\nprint(6 * 7)\n```").obs == "Code execution result: 42\n\n"


def test_a_tool_that_inherits_nothing_of_ours_is_taken():
    class Plain:
        tool_type = "search"

        def __init__(self, topk=3):
            self.topk = topk

        def instruction_string(self):
            return "Issue a query in <search>."

        def execute_action(self, action):
            found = re.search(r"<search>(.*?)</search>", action, re.DOTALL)
            if found is None:
                return False, True, "", ""
            return True, False, f"\n\n<information>{found[1]}</information>\n\n", action[: found.end()]

    env = wrapped(Plain(), Echo())
    assert "Issue a query" in env.reset(seed=0)[0]
    step = env.step("<search>water</search>")
    assert (step.obs.strip(), step.info["tool_type"]) == ("<information>water</information>", "search")
    assert env.fork().step("<echo>x</echo>").obs == "echo: x"


@pytest.mark.parametrize("tools", [Echo(), "echo", [object()], [print], []])
def test_what_is_no_list_of_tools_is_refused(tools):
    with pytest.raises(ValueError, match="accepted"):
        ToolEnvWrapper(Answers(), tools)


def test_a_wrapper_that_inherits_nothing_of_ours_stands_around_an_environment():
    class Bonus:
        def __init__(self, env):
            self._env = env

        def __getattr__(self, name):
            return getattr(self._env, name)

        def step(self, action, **kwargs):
            obs, reward, terminated, truncated, info = self._env.step(action, **kwargs)
            bonus = 0.1 * ("<answer>" in action and not info.get("correct", False))
            return obs, reward + bonus, terminated, truncated, info

    env = Bonus(gem.make("math:Arithmetic-v0-easy"))
    env.reset(seed=0)
    assert env.step("<answer>no</answer>")[1] == 0.1
    assert (env.max_turns, env.env_id) == (1, "math:Arithmetic-v0-easy")
    env.close()


def test_a_tool_type_may_be_assigned():
    class Assigned(Echo):
        def __init__(self):
            super().__init__(num_workers=4)
            self.tool_type = "assigned"

    tool = Assigned()
    assert (tool.tool_type, tool.num_workers) == ("assigned", 4)
    assert wrapped(tool).step("<echo>x</echo>").info["tool_type"] == "assigned"


@pytest.mark.parametrize("kept", [False, True])
def test_a_python_tool_with_its_own_tags_and_words(kept):
    env = wrapped(CodeTags(20, "none", kept))
    assert env.step("<code>print(6 * 7)</code> x").obs.startswith("Code execution result: 42\n")
    step = env.step("<code>1 / 0</code>")
    assert "ZeroDivisionError" in step.obs
    assert ("Traceback" in step.obs) is not kept
    assert step.info["metrics"]["tool_success_counter"] == 1
    assert env.step("\\boxed{42}").terminated


def test_arguments_of_the_python_tool_are_kept_by_name_and_by_position():
    tool = PythonCodeTool(3, "none", True)
    assert (tool.timeout, tool.sandbox_type, tool.keep_error_last_line) == (3, "none", True)
    assert tool.tool_type == "python"


@pytest.mark.parametrize("action", ["<python>print(6 * 7)</python>", "```python\nprint(6 * 7)\n```"])
def test_the_python_tool_reads_tags_and_fences(action):
    valid, error, text, parsed = PythonCodeTool(timeout=20).execute_action(f"{action}\nand on")
    assert (valid, error, parsed.strip()) == (True, False, action)
    assert "42" in text


def test_what_is_no_call_is_none():
    assert PythonCodeTool().execute_action("no code") == (False, True, "", "")


# -- search


@pytest.fixture(scope="module")
def retrieval():
    program = [sys.executable, "-m", "gem.tools.search_engine.retrieval_server", "--port", "0", "--topk", "2"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as server:
        yield server.stdout.readline().strip()
        server.terminate()


def test_a_search_server_is_a_program_that_says_its_address(retrieval):
    body = json.dumps({"query": "water", "topk": 2, "return_scores": True}).encode()
    request = urllib.request.Request(
        retrieval, body, {"Content-Type": "application/json", "Connection": "close"}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        found = json.load(answer)["result"]
    assert [set(each) for each in found] == [{"document", "score"}] * 2
    assert all(each["document"]["contents"] for each in found)


def test_the_search_tool_asks_it(retrieval, monkeypatch):
    from gem.tools.search_tool import SearchTool

    monkeypatch.setenv("SEARCH_URL", retrieval)
    tool = SearchTool(num_workers=1, topk=1, timeout=20)
    valid, error, text, parsed = tool.execute_action("<search>water</search> and on")
    assert (valid, error, parsed, tool.tool_type) == (True, False, "<search>water</search>", "search")
    assert "<information>" in text
    tool.engine.close()


def test_a_server_in_msgpack_is_asked_in_msgpack():
    msgspec = pytest.importorskip("msgspec")
    from gem.serve.search import SearchServer
    from gem.tools.search import open_engine

    with SearchServer(open_engine("world"), port=0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        body = msgspec.msgpack.encode({"query": "water", "topk": 1, "return_scores": False})
        request = urllib.request.Request(
            server.url, body, {"Content-Type": "application/msgpack", "Connection": "close"}
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            found = msgspec.msgpack.decode(answer.read())
        server.shutdown()
    assert found["result"][0]["document"]["contents"]


@pytest.mark.parametrize("module", ["serp_search_server", "google_search_server", "retrieval_server"])
def test_search_servers_have_their_places(module):
    assert callable(__import__(f"gem.tools.search_engine.{module}", fromlist=["main"]).main)


# -- MCP


@pytest.fixture(scope="module")
def time_server():
    pytest.importorskip("mcp", reason="the mcp package is not installed")
    program = [sys.executable, "-m", "gem.tools.mcp_server.time_mcp", "--http", "0"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as server:
        yield server.stdout.readline().strip()
        server.terminate()


def tool_of_time(name):
    pytest.importorskip("mcp", reason="the mcp package is not installed")
    from gem.tools.mcp_server.time_mcp import app

    return asyncio.run(app.get_tool(name))


@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        ("days_in_month", {"date": "2024-02-10"}, 29),
        ("get_week_year", {"date": "2024-12-30"}, "week: 53, isoWeek: 1"),
        ("get_timestamp", {"time": "2025-03-01T12:30:00Z"}, 1740832200000),
        (
            "convert_time",
            {"time": "2025-03-01T12:00", "sourceTimezone": "Asia/Tokyo", "targetTimezone": "UTC"},
            "2025-03-01T03:00:00+00:00",
        ),
    ],
)
def test_tools_of_the_time_server_are_had_by_name_and_run(name, arguments, answer):
    tool = tool_of_time(name)
    result = asyncio.run(tool.run(arguments))
    assert result.content[0].text == str(answer)
    assert result.structured_content == {"result": answer}
    assert asyncio.run(tool.fn(**arguments)) == answer


@pytest.mark.parametrize(("name", "said"), [("current_time", "-"), ("relative_time", "ago")])
def test_tools_that_look_at_the_clock_answer(name, said):
    arguments = {"time": "2020-01-01"} if name == "relative_time" else {}
    assert said in asyncio.run(tool_of_time(name).run(arguments)).content[0].text


def test_a_tool_says_what_it_is_and_an_unknown_one_is_a_key_error():
    tool = tool_of_time("days_in_month")
    assert (tool.name, list(tool.parameters["properties"])) == ("days_in_month", ["date"])
    assert tool.description
    with pytest.raises(KeyError):
        tool_of_time("no_such_tool")


def test_moments_and_days_are_parsed():
    time_mcp = pytest.importorskip("gem.tools.mcp_server.time_mcp")
    moment, day = time_mcp._parse_dt("2025-03-01 12:30:00.250"), time_mcp._parse_date("2024-02-29")
    assert (moment.isoformat()[:23], day.isoformat()[:19]) == (
        "2025-03-01T12:30:00.250",
        "2024-02-29T00:00:00",
    )
    assert moment.tzinfo is not None
    assert day.tzinfo is not None
    assert time_mcp._moment_to_strftime("YYYY-MM h A") == "%Y-%m %-I %p"


@pytest.mark.system
def test_the_time_server_is_found_at_its_own_path(time_server):
    assert time_server.endswith("/time-mcp")


def test_the_arguments_of_upstreams_mcp_tool_are_taken(time_server):
    from gem.tools.mcp_tool import MCPTool

    async def log(message):
        raise AssertionError("the time server logs nothing")

    tool = MCPTool.from_url(
        time_server,
        validate_on_init=True,
        max_retries=1,
        execution_timeout=20,
        auth="token",
        handlers={"log": log},
    )
    assert (tool.timeout, tool.max_retries) == (20, 1)
    assert "days_in_month" in {each["name"] for each in tool.get_available_tools()}
    env = ToolEnvWrapper(Answers(), [tool])
    env.reset(seed=0)
    arguments = json.dumps({"date": "2024-02-10"})
    call = f"<tool_call><tool_name>days_in_month</tool_name><arguments>{arguments}</arguments></tool_call>"
    assert "29" in env.step(call).obs
    env.close()
    tool.close()


def test_a_server_that_is_not_there_is_found_at_once_where_that_is_asked_for(monkeypatch):
    pytest.importorskip("mcp", reason="the mcp package is not installed")
    from gem.errors import NoVerdict
    from gem.tools import mcp_tool

    tried = []

    def session(server, *_):
        tried.append(server.headers)
        raise ConnectionError("nobody there")

    monkeypatch.setattr(mcp_tool, "McpSession", session)
    with pytest.raises(NoVerdict, match="nobody there"):
        mcp_tool.MCPTool("http://127.0.0.1:9/mcp", validate_on_init=True, max_retries=2, auth="secret")
    assert tried == [{"Authorization": "Bearer secret"}] * 3
    mcp_tool.MCPTool("http://127.0.0.1:9/mcp")  # is not contacted


@pytest.mark.parametrize(
    "keywords",
    [
        {"auth": "two\nlines"},
        {"auth": 3},
        {"max_retries": -1},
        {"handlers": {"shout": print}},
        {"execution_timeout": 0},
    ],
)
def test_arguments_without_meaning_are_refused(keywords):
    from gem.tools.mcp_tool import MCPTool

    with pytest.raises(ValueError, match=r"accepted|not a token"):
        MCPTool("http://127.0.0.1:9/mcp", **keywords)


def test_a_token_is_sent_to_one_server_alone():
    from gem.tools.mcp_tool import MCPTool

    both = {"a": "http://127.0.0.1:9/mcp", "b": "http://127.0.0.1:8/mcp"}
    with pytest.raises(ValueError, match="headers for each server"):
        MCPTool.from_multi_server(both, auth="secret")


def test_a_token_is_never_written_into_a_task():
    from gem.registry import task_of
    from gem.tools.mcp_tool import MCPTool

    env = ToolEnvWrapper(
        gem.make("game:GuessTheNumber-v0-easy"), [MCPTool("http://127.0.0.1:9/mcp", auth="secret")]
    )
    assert "secret" not in repr(task_of(env))


def test_tasks_behind_mcp_have_upstreams_name():
    from gem.envs.mcpmark import MCPMarkEnv

    assert issubclass(MCPMarkEnv, Env)
    assert gem.spec("mcp:Postgres-v0").entry_point.endswith(MCPMarkEnv.__name__)
