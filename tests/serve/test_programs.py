"""Agent programs in a box: a whole episode, how it ends, what a program can reach, and who may name one."""

import asyncio
import gc
import json
import os
import shlex
import signal
import socket
import threading
from contextlib import closing, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from harbor_folders import write_task
from program_code import ACT, ENDINGS, PROBE

import gem
from gem.agents.named import AgentSettings, make_agent
from gem.agents.scripted import ScriptedAgent
from gem.cli import main
from gem.core import Env, Start, Step
from gem.envs.terminal.base import TerminalTask, expect
from gem.envs.terminal.env import TerminalEnv
from gem.envs.terminal.repair import read_repairs
from gem.errors import AgentUnavailable, BadArgument, SchemaMismatch
from gem.evals.suite import load_suite
from gem.evals.usage import EpisodePrice, Price, Prices
from gem.record import AgentInfo, Episode, Limits, Reply, RunInfo, StopReason, Turn
from gem.registry import FAMILIES
from gem.rollout import Job
from gem.rollout.episode import Branch
from gem.rollout.replay import replay
from gem.rollout.runner import rollout_async
from gem.rollout.store import EpisodeStore
from gem.sandbox.base import Budget, SandboxFailed, Status
from gem.sandbox.choice import open_program_sandbox
from gem.sandbox.programs import read_program
from gem.serve import programs
from gem.serve.mcp import EpisodeServer
from gem.serve.mcp.messages import Endpoint
from gem.serve.programs import ProgramAgent
from gem.serve.proxy.answering import Upstream
from gem.serve.proxy.app import Proxy
from gem.specs import TaskRef

EXAMPLE = Path(__file__).parents[2] / "examples/evaluation" / "program_mcp.py"
TALK = ("one", "two", "three")


def list_command_lines():
    """Return the command lines of this machine's processes."""
    lines = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            lines.append(file.read())
    return lines


def make_env(**task):
    return TerminalEnv(task=TerminalTask("Write 42 to answer.txt.", expect("answer.txt", "42"), **task))


@pytest.fixture
def act(tmp_path):
    """Return a function that writes the command of a program from its code."""
    place = tmp_path / "act.py"
    place.write_text(ACT)
    return lambda code, *more: shlex.join(["python3", str(place), code, *more])


@pytest.fixture
def play():
    """Return a function that plays one episode, or several, with a program."""
    agents = []

    def play_program(
        command,
        script=("one", "two", "three"),
        *,
        jobs=1,
        limits=None,
        env=None,
        retries=0,
        host="thread",
        store=None,
        resume=False,
        **settings,
    ):
        model = script if not isinstance(script, tuple) else ScriptedAgent(script)
        try:
            agents.append(ProgramAgent(command, model, **settings))
        except SandboxFailed as error:
            pytest.skip(str(error))
        games = [Job(env or make_env, seed) for seed in range(jobs)]
        options = {"host": host, "limits": limits, "retries": retries, "store": store, "resume": resume}
        episodes = asyncio.run(rollout_async(games, agents[-1], **options))
        return episodes if jobs > 1 else episodes[0]

    yield play_program
    for agent in agents:
        agent.close()


# -- a whole episode


@pytest.mark.system
def test_a_program_plays_a_whole_episode(act, play):
    code = "open('told.txt', 'w').write(ask(sys.argv[2])); solve(); ask('done?'); print('bye'); sys.exit(3)"
    episode = play(act(code, "{task}"))
    assert (episode.stop, episode.success, episode.reward()) == (StopReason.SOLVED, True, 1.0)
    assert [turn.action for turn in episode.turns] == ["one", "two"]
    assert [turn.observation for turn in episode.turns] == ["Write 42 to answer.txt.", "done?"]
    assert episode.turns[-1].reward == 1.0
    assert episode.run.agent.startswith("program:python3")
    about = episode.ends["agent"].info["program"]
    assert (about["exit_code"], about["ended"], about["stdout"], about["stderr"]) == (3, "", "bye\n", "")
    assert about["cpu_s"] > 0
    assert about["wall_s"] > 0


@pytest.mark.system
def test_its_home_is_apart_from_the_workspace_and_it_may_start_many_processes(act, play):
    code = """
import subprocess
home = os.environ["HOME"]
open(home + "/notes", "w").write("mine")
running = [subprocess.Popen(["sleep", "9"]) for _ in range(100)]
print(os.getcwd(), home, os.listdir("."), len(running))
"""
    episode = play(act(code), env=partial(make_env, files={"given.txt": b"x"}))
    assert episode.ends["agent"].info["program"]["stdout"] == "/sandbox /agent ['given.txt'] 100\n"


@pytest.mark.system
def test_a_program_plays_a_folder_of_harbor_within_the_seconds_that_it_gives(act, play, tmp_path):
    toml = '[task]\nname = "gem/answer"\n[agent]\ntimeout_sec = {}\n'
    code = "print(sys.argv[2], flush=True); open('answer.txt', 'w').write('42'); "
    for more, seconds, ended in (("", 60, ""), ("time.sleep(60)", 1.5, "time")):
        folder = write_task(tmp_path / f"task{ended}", **{"task.toml": toml.format(seconds)})
        episode = play(act(code + more, "{task}"), env=partial(TerminalEnv, task_dir=folder))
        about = episode.ends["agent"].info["program"]
        assert (episode.success, about["ended"]) == (True, ended)
        assert about["stdout"].startswith("Write the sum of the numbers in /sandbox/numbers.txt")


FORGE = """
import glob
for path in glob.glob("repo/**/test*.py", recursive=True): open(path, "w").write("def test(): pass")
hook = "import pytest\\n@pytest.hookimpl(hookwrapper=True)\\ndef pytest_runtest_makereport(item, call):\\n"
hook += "    (yield).get_result().outcome = 'passed'\\n"
for place in ("repo/conftest.py", "conftest.py"): open(place, "w").write(hook)
print(len(glob.glob("repo/**/test*.py", recursive=True)))
"""


@pytest.mark.system
@pytest.mark.skipif(not FAMILIES["repo"].is_here(), reason="needs a world: gem-gym worlds --fetch repo")
def test_a_program_repairs_a_package_and_gets_nothing_for_tests_of_its_own(act, play):
    task = next(iter(read_repairs("toolz")))
    with gem.make("repo:toolz", task=task) as env:
        env.reset(seed=0)
        gold = env.unwrapped.task.solution.replace("~/repo", "repo")
    mend = "import subprocess; ask(sys.argv[2]); subprocess.run(['bash', '-c', sys.argv[3]], check=True)"
    for code, reward in ((mend, 1.0), (FORGE, 0.0)):
        episode = play(act(code, "{task}", gold), env=lambda: gem.make("repo:toolz", task=task))
        about = episode.ends["agent"].info["program"]
        assert (episode.scored, episode.reward(), about["exit_code"]) == (True, reward, 0), about
    assert int(about["stdout"]) > 0


@pytest.mark.system
def test_nothing_of_a_program_outlives_its_episode(act, play):
    mark = f"{os.getpid()}.987"
    code = f"import subprocess; subprocess.Popen(['sleep', '{mark}'], start_new_session=True); solve()"
    assert play(act(code)).success
    assert mark.encode() not in b"".join(list_command_lines())


@pytest.mark.system
def test_an_episode_of_a_program_is_not_played_again(act, play):
    episode = play(act("ask('x')"))
    for again in (replay, lambda episode: Branch(episode, 1)):
        with pytest.raises(BadArgument, match="a program played it"):
            again(episode)
    other = Episode(TaskRef("e", {}, seed=0), RunInfo(), "j", turns=[Turn("agent", "", "x")])
    job = Job(make_env, 0, start=Branch(other, 1))
    agent = ProgramAgent(act("pass"), ScriptedAgent(()))
    with closing(agent), pytest.raises(BadArgument, match="does not go on"):
        asyncio.run(rollout_async([job], agent, host="thread"))


# -- how it ends

ROWS = [
    *ENDINGS,
    ("solve(); ask('x')", StopReason.SOLVED, ""),
    ("solve()", StopReason.SOLVED, ""),  # without a call
    ("ask('x'); sys.exit(1)", StopReason.FAILED, ""),
    ("solve(); os.setsid(); os.kill(0, 9)", StopReason.SOLVED, ""),
    ("solve(); [ask(str(i)) for i in range(9)]", StopReason.SOLVED, ""),
    ("os.write(1, b'x' * (1 << 27))", StopReason.FAILED, ""),
]


@pytest.mark.system
@pytest.mark.parametrize(("code", "stop", "ended"), ROWS, ids=[row[0] for row in ROWS])
def test_the_state_is_scored_however_a_program_ends(code, stop, ended, act, play):
    time_s = 4.0 if ended == "time" else 60.0  # a program begins in seconds on a busy machine
    episode = play(act(code), limits=Limits(turns=2), time_s=time_s)
    assert episode.scored, episode.error
    assert (episode.stop, episode.reward()) == (stop, float(stop is StopReason.SOLVED))
    end = episode.ends["agent"]
    assert end.info["program"]["ended"] == ended
    assert end.truncated is (stop in (StopReason.TIME_LIMIT, StopReason.TURN_LIMIT))


@pytest.mark.system
def test_a_program_that_goes_on_without_calls_is_ended(act, play, monkeypatch):
    monkeypatch.setattr(programs, "GRACE_S", 0.2)
    code = """
for i in range(9):
    try: ask(str(i))
    except urllib.error.HTTPError as error: solve(); time.sleep(60)
"""
    episode = play(act(code), limits=Limits(turns=2))
    assert (episode.stop, len(episode.turns)) == (StopReason.SOLVED, 2)
    assert episode.ends["agent"].info["program"]["ended"] == "limit"


@pytest.mark.system
@pytest.mark.parametrize(("first", "stop"), [("", StopReason.TOKEN_LIMIT), ("solve(); ", StopReason.SOLVED)])
def test_an_episode_whose_tokens_are_used_up_is_scored_by_its_state(first, stop, act, play):
    usage = {"prompt_tokens": 10, "completion_tokens": 500}
    model = ScriptedAgent(lambda ask: Reply("x", usage=usage))
    episode = play(act(first + "[ask(str(i)) for i in range(9)]"), model, limits=Limits(tokens=700))
    assert (episode.scored, episode.stop, len(episode.turns)) == (True, stop, 2)


@pytest.mark.system
def test_an_episode_that_has_cost_enough_gets_no_further_call(act, play):
    usage = {"prompt_tokens": 1000, "completion_tokens": 500}
    model = ScriptedAgent(lambda ask: Reply("x", usage=usage))
    price = EpisodePrice(Prices({"ScriptedAgent": Price(1.0, 2.0, 1.0)}), 0.005)
    model_info = AgentInfo("ScriptedAgent", "ScriptedAgent")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptedAgent, "info", model_info)
        code = "try: [ask(str(i)) for i in range(9)]\nexcept OSError: pass"  # whose trace would fill the tail
        episode = play(act(code), model, price=price)
    assert (episode.stop, len(episode.turns)) == (StopReason.TOKEN_LIMIT, 3)  # each is 0.002 dollars
    assert "$0.0060 of $0.005" in episode.ends["agent"].info["program"]["stderr"]


def test_a_call_of_unknown_price_is_the_last():
    run = RunInfo(agent="program:x", model="m")
    price = EpisodePrice(Prices({"m": Price(1.0, 1.0, 1.0)}), 1.0)
    episode = Episode(TaskRef("e", {}, seed=0), run, "j")
    assert price(episode) == ""
    episode.turns.append(Turn("agent", "", "x"))
    assert "does not count tokens" in price(episode)


def test_the_price_of_an_episode_needs_prices(capsys):
    assert main(["eval", "terminal:FindText-v0-easy", "--usd-per-episode", "1"]) == 2
    assert "--prices" in capsys.readouterr().err


@pytest.mark.system
def test_calls_beyond_the_limit_cost_no_thread_each(act, play):
    before, most = threading.active_count(), []
    real = programs.Run.stop

    def note(self, *args, **more):
        real(self, *args, **more)
        most.append(threading.active_count() - before)

    code = "for i in range(60):\n    try: ask(str(i))\n    except OSError: pass"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs.Run, "stop", note)
        assert play(act(code), limits=Limits(turns=1)).stop is StopReason.TURN_LIMIT
    assert max(most) < 20


@pytest.mark.system
def test_connections_of_a_program_are_limited(act, play):
    seen = []

    def count(ask):
        seen.append(len(os.listdir("/proc/self/fd")))
        return "one"

    code = """
held = [socket.create_connection(("127.0.0.1", 47100), 20) for i in range(40)]
ask("few")
held += [socket.create_connection(("127.0.0.1", 47100), 20) for i in range(300)]
for one in held[-200:]: assert one.recv(1) == b""  # refused
[one.close() for one in held]
for i in range(100):
    try: ask("many"); break
    except OSError: time.sleep(0.1)
solve()
"""
    episode = play(act(code), ScriptedAgent(count))
    assert episode.success, episode.ends["agent"].info["program"]
    assert len(seen) == 2


@pytest.mark.system
def test_a_model_that_fails_gives_no_verdict(act, play):
    def answer(ask):
        if ask.turn:
            raise OSError("away")
        return "one"

    code = "ask('x')\nfor i in range(2):\n    try: ask('y')\n    except OSError: solve()"
    episode = play(act(code), ScriptedAgent(answer))
    assert not episode.scored
    assert (episode.error.boundary, episode.error.type) == ("agent", "LostCall")


@pytest.mark.system
def test_a_call_that_the_program_repeats_is_not_missing(act, play):
    answers = iter([OSError("away"), "one"])

    def answer(ask):
        if isinstance(given := next(answers), OSError):
            raise given
        return given

    code = "solve()\nfor i in range(2):\n    try: ask('y'); break\n    except OSError: pass"
    episode = play(act(code), ScriptedAgent(answer))
    assert episode.success
    assert [turn.action for turn in episode.turns] == ["one"]


ANSWER = json.dumps(
    {
        "choices": [{"message": {"role": "assistant", "content": "one"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 1},
    }
)


@pytest.fixture
def endpoint():
    """Return a function that serves `answer(number, body)`: a status and headers; it returns the address."""
    servers = []

    def serve(answer):
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args):
                pass

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                asked.append(body)
                status, headers = answer(len(asked), body)
                with suppress(OSError):  # whoever asked may be gone
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(ANSWER.encode() if status == 200 else b'{"error": {"message": "busy"}}')

        asked = []
        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}/v1"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def wait_for_retries(number, body):
    return 429, {"Retry-After": "20"}


@pytest.mark.system
@pytest.mark.parametrize("fault", ["dead", "hangs", "429"])
def test_an_endpoint_that_fails_until_the_time_is_up_gives_no_verdict(fault, act, play, endpoint):
    over = threading.Event()
    if fault == "dead":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    else:
        url = endpoint((lambda *asked: over.wait(20) and (200, {})) if fault == "hangs" else wait_for_retries)
    try:
        episode = play(act("ask('x')"), Upstream("m", base_url=url), time_s=1.0)
    finally:
        over.set()
    assert (episode.scored, episode.stop) == (False, StopReason.ERROR)
    assert (episode.error.boundary, episode.error.type) == ("agent", "LostCall")
    why = {"dead": "connection refused", "hangs": "no answer within 1 s", "429": "answered 429"}[fault]
    assert why in episode.error.message


@pytest.fixture
def ended(monkeypatch):
    """Return an event that is set once the program has ended, before its calls in flight are decided."""
    ended, settle = threading.Event(), Proxy.settle

    def note(self, *args):
        ended.set()
        return settle(self, *args)

    monkeypatch.setattr(Proxy, "settle", note)
    return ended


@pytest.mark.system
def test_an_endpoint_that_fails_on_the_last_request_gives_no_verdict(act, play, endpoint, ended):
    url = endpoint(lambda number, body: ended.wait(20) and (500, {}))
    episode = play(act("ask('x')"), Upstream("m", base_url=url, backoff_s=60), time_s=1.0)
    assert (episode.scored, episode.error.type) == (False, "LostCall")
    assert "answered 500" in episode.error.message


@pytest.mark.system
def test_an_answer_that_comes_after_the_time_is_the_agents_own_slowness(act, play, endpoint, ended):
    url = endpoint(lambda number, body: (number == 1 or ended.wait(20)) and (200, {}))
    episode = play(act("ask('x'); ask('y')"), Upstream("m", base_url=url), time_s=1.5)
    assert (episode.scored, episode.stop) == (True, StopReason.TIME_LIMIT)
    assert [turn.action for turn in episode.turns] == ["one", "one"]


@pytest.mark.system
def test_the_seconds_in_which_an_endpoint_fails_are_not_the_programs(act, play, endpoint):
    url = endpoint(lambda number, body: (429, {"Retry-After": "2"}) if number == 1 else (200, {}))
    code = "ask('x'); time.sleep(2); solve(); time.sleep(60)"
    episode = play(act(code), Upstream("m", base_url=url), time_s=3.0)
    about = episode.ends["agent"].info["program"]
    assert (episode.stop, about["ended"]) == (StopReason.SOLVED, "time")
    assert about["delay_s"] >= 2.0


@pytest.mark.system
def test_a_model_that_is_gone_stops_everything_at_once(act, play):
    def gone(ask):
        raise AgentUnavailable("the key is refused")

    with pytest.raises(AgentUnavailable, match="the key is refused"):
        play(act("try: ask('x')\nexcept OSError: time.sleep(60)"), ScriptedAgent(gone))


@pytest.mark.system
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_proxy_that_ends_stops_everything_at_once(act, play, monkeypatch):
    agents, init = [], ProgramAgent.__init__

    def note(self, *args, **more):
        agents.append(self)
        init(self, *args, **more)

    def crash(ask):
        agents[0]._server._loop.stop()
        return "one"

    monkeypatch.setattr(ProgramAgent, "__init__", note)
    with pytest.raises(AgentUnavailable, match="the proxy has ended"):
        play(act("try: ask('x')\nexcept OSError: pass\ntime.sleep(60)"), ScriptedAgent(crash), jobs=3)
    gc.collect()  # what it left open would be found in a later test


@pytest.fixture
def sandboxes(monkeypatch):
    """Return the sandboxes of programs that a test has opened."""
    opened = []

    def open_and_keep(*args):
        opened.append(open_program_sandbox(*args))
        return opened[-1]

    monkeypatch.setattr(programs, "open_program_sandbox", open_and_keep)
    return opened


def end_fork_servers(sandbox):
    for zygote in sandbox.pool.every():
        os.kill(zygote.process.pid, signal.SIGKILL)
    return "one"


@pytest.mark.system
def test_a_fork_server_that_dies_gives_no_verdict(act, play, sandboxes):
    model = ScriptedAgent(lambda ask: end_fork_servers(sandboxes[0]))
    episode = play(act("ask('x'); time.sleep(60)"), model)
    assert not episode.scored
    assert (episode.error.boundary, episode.error.type) == ("env", "SandboxFailed")


@pytest.mark.system
def test_an_episode_that_the_sandbox_broke_is_played_again(act, play, sandboxes):
    ends = iter((end_fork_servers,))
    model = ScriptedAgent(lambda ask: next(ends, lambda sandbox: "two")(sandboxes[0]))
    episode = play(act("if ask('x') == 'two': solve()"), model, retries=1)
    assert (episode.success, episode.attempt) == (True, 1)


@pytest.mark.system
@pytest.mark.parametrize("command", ["bash -c 'exec /nowhere/agent'", "bash -c 'exec /etc/hosts'"])
def test_a_command_that_cannot_be_started_stops_everything(command, play):
    with pytest.raises(BadArgument, match=r"cannot be started: .*(/nowhere/agent|/etc/hosts)"):
        play(command)


@pytest.mark.system
def test_a_command_that_was_started_before_ends_its_own_episode_alone(act, play):
    environments = iter((make_env(), make_env(files={"later": b""})))
    code = "sys.exit(127 if os.path.exists('later') else 0)"
    first, second = play(act(code), jobs=2, env=lambda: next(environments), host="serial")
    assert [each.ends["agent"].info["program"]["exit_code"] for each in (first, second)] == [0, 127]
    assert (second.stop, second.scored) == (StopReason.FAILED, True)


# -- what it can reach


@pytest.mark.system
def test_a_program_reaches_its_own_model_alone(act, play, tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("key")
    code = """
import subprocess
refused("its port", lambda: socket.create_server(("127.0.0.1", int(URL.split(":")[2].split("/")[0]))))
refused("raw", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
refused("pid 1's descriptors", lambda: os.listdir("/proc/1/fd"))
refused("pid 1's memory", lambda: open("/proc/1/mem", "rb"))
refused("unshare", lambda: subprocess.run(["unshare", "-Ur", "true"], check=True))
refused("opening", lambda: send("/episodes", {}, url=base))
refused("a file beside it", lambda: open(os.path.dirname(sys.argv[0]) + "/secret").read())
everything = [os.path.join(at, name) for at, _, names in os.walk("/") for name in names
              if not at.startswith(("/proc", "/dev"))]
wrong += [path for path in everything if "/gem/" in path or "answer.txt" in path or path.endswith("act.pyc")]
others = [pid for pid in os.listdir("/proc") if pid.isdecimal() and int(pid) not in (1, os.getpid())]
wrong += [open(f"/proc/{pid}/cmdline").read() for pid in others]
wrong += [name for name in os.environ if "TOKEN" in name or "SECRET" in name]
print(wrong)
if not wrong: solve()
"""
    monkeypatch.setenv("A_SECRET", "x")
    with socket.create_server(("127.0.0.1", 0)) as on_the_host:
        episodes = play(act(PROBE + code, str(on_the_host.getsockname()[1])), jobs=2)
    for episode in episodes:
        about = episode.ends["agent"].info["program"]
        assert episode.success, (about["stdout"], about["stderr"])


@pytest.mark.system
def test_the_key_of_a_box_ends_with_its_program(act, play):
    agents = []
    real = ProgramAgent.play_whole

    def note(self, *args):
        agents.append(self)
        return real(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProgramAgent, "play_whole", note)
        episode = play(act("print(KEY); ask('x')"))
    key = episode.ends["agent"].info["program"]["stdout"].strip()
    assert key.startswith("gem-")
    with httpx.Client(base_url=agents[0]._server.url, headers={"authorization": f"Bearer {key}"}) as client:
        assert client.post("/v1/chat/completions", json={"messages": []}).status_code == 401


# -- by MCP, where the environment has no workspace

TOOLS = """
def send_mcp(method, url=os.environ.get("GEM_MCP_URL"), **params):
    return send("", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, url=url)
def call_tool(name, **arguments):
    result = send_mcp("tools/call", name=name, arguments=arguments)["result"]
    return "\\n".join(part["text"] for part in result["content"])
def play(actions):
    for action in actions: call_tool("act", action=action)
"""


class Counting(Env):
    """Is won by the third action "right", worth a quarter each; "wrong" loses; "break" breaks it."""

    def reset(self, seed=None):
        super().reset(seed)
        self.count = 0
        return Start("Say right; ~ is no home, {base_url} no address.", {})

    def step(self, action):
        if action == "break":
            raise RuntimeError("broken")
        self.count += action == "right"
        done = action == "wrong" or self.count == 3
        return Step(f"{self.count}", 0.25, done, False, {"success": self.count == 3} if done else {})


MCP_ROWS = [
    ("ask('x'); play(['right'] * 3)", StopReason.SOLVED, 0.75, 3),
    ("play(['right'] * 3)", StopReason.SOLVED, 0.75, 3),  # without a call of its model
    ("ask('x'); play(['right', 'wrong'])", StopReason.FAILED, 0.5, 2),
    ("ask('x'); play(['right'])", StopReason.TIME_LIMIT, 0.25, 1),
    ("ask('x')", StopReason.TIME_LIMIT, 0.0, 0),
    ("play(['right']); os.kill(os.getpid(), 11)", StopReason.TIME_LIMIT, 0.25, 1),
    ("ask('x'); play(['right']); time.sleep(60)", StopReason.TIME_LIMIT, 0.25, 1),
    ("play(['right'] * 3); time.sleep(60)", StopReason.SOLVED, 0.75, 3),
    ("play(['right'] * 3); raise OSError", StopReason.SOLVED, 0.75, 3),
    ("play(['right']); [ask(str(i)) for i in range(9)]", StopReason.TURN_LIMIT, 0.25, 1),
    ("play(['right', 'wrong']); [ask(str(i)) for i in range(9)]", StopReason.FAILED, 0.5, 2),
]


@pytest.mark.system
@pytest.mark.parametrize(("code", "stop", "reward", "actions"), MCP_ROWS, ids=[row[0] for row in MCP_ROWS])
def test_an_episode_by_mcp_is_scored_however_its_program_ends(code, stop, reward, actions, act, play):
    time_s = 1.5 if "sleep" in code else 60.0
    episode = play(act(TOOLS + code), limits=Limits(turns=2), env=Counting, time_s=time_s)
    assert episode.scored, episode.error
    end = episode.ends["agent"]
    assert (episode.stop, episode.reward(), end.info["actions"]) == (stop, reward, actions)
    assert end.truncated is (stop in (StopReason.TIME_LIMIT, StopReason.TURN_LIMIT))
    assert len(episode.turns) == (2 if "range(9)" in code else code.count("ask("))


PRINTED_ROWS = [
    ("print('right', ask('x')[:0])", StopReason.SOLVED, 1),
    ("print('no')", StopReason.FAILED, 1),
    ("print('right'); raise OSError", StopReason.SOLVED, 1),  # exit codes are not believed
    ("play(['no']); print('right')", StopReason.FAILED, 1),  # it has acted
    ("print('  ')", StopReason.TIME_LIMIT, 0),
    ("print('right', flush=True); time.sleep(60)", StopReason.TIME_LIMIT, 0),  # nobody knows if that was all
]


class OneWord(Env):
    """Is won by the word "right", its only action."""

    def reset(self, seed=None):
        super().reset(seed)
        return Start("Say right.", {})

    def step(self, action):
        return Step("", float(action == "right"), True, False, {"success": action == "right"})


@pytest.mark.system
@pytest.mark.parametrize(("code", "stop", "actions"), PRINTED_ROWS, ids=[row[0] for row in PRINTED_ROWS])
def test_what_a_program_prints_is_its_answer_where_that_is_asked_for(code, stop, actions, act, play):
    time_s = 1.5 if "sleep" in code else 60.0
    episode = play(act(TOOLS + code), env=OneWord, time_s=time_s, prints=True)
    assert (episode.stop, episode.ends["agent"].info["actions"]) == (stop, actions), episode.error
    assert episode.reward() == float(stop is StopReason.SOLVED)
    assert episode.run.sampling["program_prints"] is True


@pytest.mark.system
def test_what_a_program_prints_is_no_answer_by_itself_or_in_a_workspace(act, play):
    episode = play(act(TOOLS + "print('right')"), env=OneWord)
    assert (episode.stop, episode.ends["agent"].info["actions"]) == (StopReason.TIME_LIMIT, 0)
    assert "program_prints" not in episode.run.sampling
    with pytest.raises(BadArgument, match="leave --program-prints out"):
        play(act("solve()"), prints=True)
    with pytest.raises(BadArgument, match="up to 4 turns; what a program prints is its answer only in"):
        play(act("solve()"), env="game:GuessTheNumber-v0-easy", prints=True)


@pytest.mark.system
def test_an_episode_by_mcp_begins_once_and_is_not_played_twice(act, play):
    code = """
before = call_tool("observe")
assert before == sys.argv[2] == os.environ["GEM_TASK"], before
assert "~ is no home, {" "base_url} no address" in before
assert sys.argv[3] == os.environ["GEM_MCP_URL"]
assert send_mcp("tools/list", url=URL.replace("/v1", "/mcp"))["result"]["tools"]  # with the bearer token
play(["wrong"])
assert "cannot be played again" in call_tool("act", action="right")
for method in ("reset", "initialize"): send_mcp(method, protocolVersion="2025-06-18")
assert "cannot be played again" in call_tool("act", action="right")
assert os.listdir(".") == []
print("checked")
"""
    episode = play(act(TOOLS + code, "{task}", "{mcp_url}"), env=Counting)
    about = episode.ends["agent"].info
    assert about["program"]["stdout"] == "checked\n", about["program"]["stderr"]
    assert (episode.stop, about["actions"]) == (StopReason.FAILED, 1)


@pytest.mark.system
def test_a_submission_by_mcp_ends_the_episode_and_the_program_may_go_on(act, play):
    code = "call_tool('submit')\nassert 'cannot be played again' in call_tool('sql', query='x')\nprint('on')"
    episode = play(act(TOOLS + code), env="db:Bank-v0-operations")
    about = episode.ends["agent"].info
    assert (episode.stop, episode.reward()) == (StopReason.FAILED, 0.0), about
    assert (about["actions"], about["program"]["stdout"]) == (1, "on\n"), about


@pytest.mark.system
def test_the_key_of_another_box_opens_nothing(act):
    code = """
other = ask("which key has another?")
def refused(url, body, key):
    try: send("", body, key, url)
    except urllib.error.HTTPError as error: assert error.code == 401, error.code
    else: raise AssertionError((url, key))
listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
chat = {"model": "any", "messages": [{"role": "user", "content": "x"}]}
root = URL.removesuffix("/v1")
for key in (other, "k", ""):
    refused(root + "/mcp", listing, key)
    refused(f"{root}/s/{key or 'k'}/mcp", listing, KEY)
    refused(URL + "/chat/completions", chat, key)
play(["right"] * 3)
"""
    try:
        agent = ProgramAgent(act(TOOLS + code), ScriptedAgent(lambda ask: other.key))
    except SandboxFailed as error:
        pytest.skip(str(error))
    with closing(agent):
        other = agent._server.open_session()
        other.endpoint = Endpoint(EpisodeServer("game:GuessTheNumber-v0-easy", 0))
        (episode,) = asyncio.run(rollout_async([Job(Counting, 0)], agent, host="thread"))
        assert agent._server.proxy.sessions == {other.name: other}
    assert episode.success, episode.ends["agent"].info["program"]["stderr"]


@pytest.mark.system
def test_an_environment_that_breaks_by_mcp_gives_no_verdict(act, play):
    episode = play(act(TOOLS + "play(['right', 'break'])"), env=Counting)
    assert not episode.scored
    assert (episode.error.boundary, episode.error.type) == ("env", "RuntimeError")


@pytest.mark.system
def test_the_example_wins_a_registered_game_by_mcp(play):
    guesses = ScriptedAgent(lambda ask: f"\\boxed{{{ask.turn + 1}}}")
    command = shlex.join(["python3", str(EXAMPLE), "{mcp_url}"])
    episode = play(command, guesses, env="game:GuessTheNumber-v0-easy")
    assert episode.scored
    assert not episode.ends["agent"].truncated
    assert len(episode.turns) == episode.ends["agent"].info["actions"] > 1
    assert "guess" in episode.turns[0].observation.lower()


@pytest.mark.system
def test_a_workspace_has_no_address_of_mcp(act, play):
    with pytest.raises(BadArgument, match=r"the command has \{mcp_url\}"):
        play(act("solve()", "{mcp_url}"))


# -- what it sees, and who may name it


def test_a_command_is_split_and_its_files_are_seen(tmp_path):
    script, other = tmp_path / "my agent.py", tmp_path / "prompts"
    script.write_text("")
    other.mkdir()
    program = read_program(f"env A=1 python3 '{script}' --prompts={other} -v {{task}}")
    assert program.words == ("env", "A=1", "python3", str(script), f"--prompts={other}", "-v", "{task}")
    assert program.visible == (str(script), str(other))
    line = program.command("it's $HOME", "k")
    assert shlex.split(line)[-3:] == ["-v", "it's $HOME", "</dev/null"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("{tsk}", r"\{tsk\}.* mean '\{task\}'"),
        ("--url={baseurl}", r"\{baseurl\}.*\{base_url\}"),
        ("{model}", r"\{model\}.* Accepted: \{base_url\}, \{mcp_url\}, \{task\}"),
    ],
)
def test_an_unknown_word_in_braces_is_refused(words, why, tmp_path):
    with pytest.raises(BadArgument, match=why):
        read_program(f"python3 -c pass {words}")
    read_program("bash -c 'for i in {a,b}; do awk {print}; done' '{\"a\": 1}' {} '{1..3}'")


@pytest.mark.parametrize("words", ["python nosuch.py {task}", "env A=1 python3 -u src/no.py", "bash ~/no.sh"])
def test_a_script_that_is_not_there_is_refused(words):
    with pytest.raises(BadArgument, match=r"script '.*no.*' is not there"):
        read_program(words)


@pytest.mark.parametrize(
    "words", ["python -m agent", "python -c pass", "bash -c ./x", "sh /in/the/image.sh", "python3"]
)
def test_what_is_no_script_of_this_machine_is_not_looked_for(words):
    assert read_program(words).words[1:] == tuple(words.split()[1:])


def test_a_changed_program_has_another_digest(tmp_path):
    script, folder, venv = tmp_path / "agent.py", tmp_path / "parts", tmp_path / "venv"
    packages = venv / "lib/python3.12/site-packages"
    for each in (folder / "deep", folder / "__pycache__", packages, venv / "bin"):
        each.mkdir(parents=True)
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (venv / "bin/mini").write_text("#!/bin/sh\n")
    (venv / "bin/mini").chmod(0o755)
    (folder / "cycle").symlink_to(folder)
    script.write_text("a")

    def digest():
        return read_program(f"{venv}/bin/mini {script}", [str(folder)]).digest

    digests = [digest()]
    for change in (
        lambda: script.write_text("b"),
        lambda: (folder / "deep/part.py").write_text("b"),
        lambda: (folder / "deep/part.py").rename(folder / "deep/other.py"),
        lambda: (packages / "mini-1.2.dist-info").mkdir(),
    ):
        change()
        digests.append(digest())
    assert len({*digests}) == len(digests) == 5
    (folder / "__pycache__" / "part.pyc").write_text("b")
    assert digest() == digests[-1]


@pytest.mark.system
def test_an_evaluation_does_not_go_on_with_a_changed_program(act, play, tmp_path):
    shown = tmp_path / "shown"
    shown.mkdir()

    def continue_with(command, **settings):
        with EpisodeStore(tmp_path / "episodes.jsonl") as store:
            return play(command, store=store, resume=True, **settings)

    command = act("solve()")
    first = continue_with(command)
    assert continue_with(command).id == first.id
    assert first.run.sampling["program_s"] == 600.0
    with pytest.raises(SchemaMismatch, match=r"program_s is 600\.0 there and 60\.0 here"):
        continue_with(command, time_s=60.0)
    with pytest.raises(SchemaMismatch, match="program_shows"):
        continue_with(command, visible=[str(shown)])
    (tmp_path / "act.py").write_text(ACT + "# edited")
    with pytest.raises(SchemaMismatch, match="program_files"):
        continue_with(command)


def test_a_virtual_environment_is_seen_with_its_interpreter(tmp_path):
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "base/lib").mkdir(parents=True)
    (tmp_path / "venv/pyvenv.cfg").write_text(f"home = {tmp_path}/base/bin\n")
    agent = tmp_path / "venv/bin/agent"
    agent.write_text("#!/bin/sh\n")
    agent.chmod(0o755)
    program = read_program(str(agent))
    assert program.visible[:2] == (str(tmp_path / "venv"), str(tmp_path / "base/lib"))
    assert program.path == str(tmp_path / "venv/bin")


@pytest.mark.parametrize(
    ("command", "visible", "words"),
    [
        ("", (), "names no command"),
        ("A=1", (), "names no command"),
        ("'", (), "cannot be split"),
        ("no-such-agent x", (), "'no-such-agent' is not installed here"),
        ("python3 x", ("/no/such/folder",), "is not there"),
        ("python3 x", ("/",), "gem itself"),
        ("python3 x", (os.path.expanduser("~"),), "see .*, and so (gem itself|your home)"),
        ("python3 x", (programs.__file__,), "a part of gem"),
    ],
)
def test_a_command_that_cannot_be_boxed_is_refused(command, visible, words):
    with pytest.raises(BadArgument, match=words):
        read_program(command, visible)


@pytest.mark.parametrize("backend", ["landlock", "bwrap-slots", "container", "none"])
def test_a_backend_without_namespaces_refuses_programs(backend, monkeypatch):
    monkeypatch.setenv("GEM_SANDBOX", backend)
    with pytest.raises(SandboxFailed, match=f"network of their own, which the backend '{backend}'"):
        open_program_sandbox()


def test_a_program_needs_a_model_and_a_workspace():
    for model in (None, "random", "program:true"):
        with pytest.raises(BadArgument, match="--model"):
            make_agent("program:true", AgentSettings(model=model))
    with gem.make("game:GuessTheNumber-v0-easy") as env, pytest.raises(BadArgument, match="no workspace"):
        env.run_program(None)


@pytest.mark.parametrize("name", ["program:true", "program:python3 agent.py"])
def test_a_suite_names_a_program_only_with_trust(name, tmp_path):
    suite = tmp_path / "suite.toml"
    suite.write_text(f'[agent]\nname = "{name}"\n\n[[environments]]\nid = "terminal:FindText-v0-easy"\n')
    with pytest.raises(BadArgument, match=rf"{name}.*--trust"):
        load_suite(str(suite))
    assert load_suite(str(suite), trust=True).agents == (name,)


def test_a_command_on_the_command_line_may_end_in_the_name_of_a_file(capsys):
    agent = "program:/nowhere/python agent.py"
    assert main(["eval", "game:GuessTheNumber-v0-easy", "--agent", agent, "--model", "m.py:model"]) == 2
    assert "no file program" not in (said := capsys.readouterr().err)
    assert "m.py" in said or "/nowhere/python" in said


@pytest.mark.system
def test_a_command_may_be_interrupted_and_its_session_goes_on():
    try:
        sandbox = open_program_sandbox()
    except SandboxFailed as error:
        pytest.skip(str(error))
    with sandbox, sandbox.session() as session:
        session.shell("export A=1; echo kept > file")
        threading.Timer(0.2, session.interrupt).start()
        assert session.shell("sleep 60", Budget(wall_s=60)).status is Status.TLE
        session.interrupt()  # meets nothing
        assert session.shell("cat file; echo $A").stdout == "kept\n1\n"
        assert session.restarts == 0


def test_the_model_of_an_address_is_asked_for_what_the_program_asks():
    settings = AgentSettings("none", 7)
    model = programs.make_model("openai:m@http://127.0.0.1:1/v1", settings)
    assert (type(model), model.model, model.temperature, model.max_tokens) == (Upstream, "m", None, 7)
    with pytest.raises(BadArgument, match="BASE_URL"):
        programs.make_model("openai:m@localhost:8000/v1", settings)


@pytest.mark.parametrize("name", ["openai:m@http://127.0.0.1:1/v1", "openai:m"])
def test_the_model_of_a_program_gets_the_flags_of_a_model(name, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk")
    settings = AgentSettings(
        api="responses",
        timeout_s=900.0,
        program_s=30.0,
        concurrency=3,
        extra={"top_p": 0.5},
        stream=True,
        send_reasoning=True,
        api_key_env="MY_KEY",
    )
    model = programs.make_model(name, settings)
    endpoint = model.endpoint
    assert (endpoint.timeout_s, endpoint.concurrency, endpoint.api_key_env) == (30.0, 3, "MY_KEY")
    assert model.url.endswith("/responses")
    assert {"top_p": 0.5, "stream": True, "send_reasoning": True}.items() <= model.info.sampling.items()


@pytest.mark.parametrize(
    "settings",
    [{"api": "completions"}, {"api": "completions", "template": "smollm2"}, {"tool_calls": "text"}],
)
def test_flags_that_would_take_a_programs_tools_away_are_refused(settings):
    with pytest.raises(BadArgument, match="tools"):
        programs.make_program_agent("true", AgentSettings(model="openai:m@http://127.0.0.1:1/v1", **settings))
