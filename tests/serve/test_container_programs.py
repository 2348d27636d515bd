"""Agent programs in containers of this machine's engines, where a base image has to be; and the relay."""

import asyncio
import contextlib
import shlex
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from container_engines import SOME_IMAGE, engine_of_tasks
from harbor_folders import write_task
from program_code import ACT, ENDINGS, PROBE

from gem.agents.scripted import ScriptedAgent
from gem.envs.terminal import relay
from gem.envs.terminal.base import Dockerfile, TerminalTask
from gem.envs.terminal.container import ContainerSession, build
from gem.envs.terminal.env import TerminalEnv
from gem.errors import BadArgument
from gem.record import Limits, StopReason
from gem.rollout import Job
from gem.rollout.runner import rollout_async
from gem.sandbox.base import Budget, SandboxFailed
from gem.sandbox.container import ENGINES, find_engine
from gem.sandbox.programs import Program, Run
from gem.serve.programs import ProgramAgent

USER = f"FROM {SOME_IMAGE}\nWORKDIR /app\nCOPY numbers.txt /app/\nRUN chmod 777 /app\nUSER 1234\n"
NO_PYTHON = f"FROM {SOME_IMAGE}\nRUN rm -f /usr/local/bin/python3* /usr/bin/python3*\n"


@pytest.fixture(params=ENGINES)
def engine(request, monkeypatch):
    with engine_of_tasks(request.param, monkeypatch) as found:
        yield found


@pytest.fixture
def play(engine, tmp_path):
    """Return a function that plays an episode of a folder's container with a program, given by its code."""
    script, made, agents = tmp_path / "act.py", [], []
    script.write_text(ACT)

    def play_program(code, *more, dockerfile=USER, toml="memory_mb = 512\n", limits=None, **settings):
        toml = f'[task]\nname = "gem/answer"\n[environment]\n{toml}[verifier]\ntimeout_sec = 60.0\n'
        files = {"task.toml": toml, "environment/Dockerfile": dockerfile}
        env = TerminalEnv(task_dir=write_task(tmp_path / "task", **files))
        made.append(env.given_task.dockerfile)
        try:
            command = shlex.join(["python3", str(script), code, *more])
            agents.append(ProgramAgent(command, ScriptedAgent(["one", "two", "three"]), **settings))
        except SandboxFailed as absent:
            pytest.skip(str(absent))
        jobs = [Job(lambda: env, 0)]
        (episode,) = asyncio.run(rollout_async(jobs, agents[-1], host="thread", limits=limits, retries=0))
        return episode

    yield play_program
    for agent in agents:
        agent.close()
    for each in made:
        with contextlib.suppress(SandboxFailed):
            engine.ask("rmi", "--force", build(each, engine))


@pytest.mark.slow
def test_a_program_plays_a_task_in_its_container(play):
    code = """
print(ask(sys.argv[2]), os.getcwd(), os.environ["HOME"], os.getuid(), os.path.exists("/tests"))
open("/agent/notes", "w").write("mine")
sum(range(10 ** 7))
solve()
sys.exit(3)
"""
    episode = play(code, "{task}")
    about = episode.ends["agent"].info["program"]
    assert (episode.success, [turn.action for turn in episode.turns]) == (True, ["one"]), about
    assert (
        episode.turns[0].observation == "Write the sum of the numbers in /app/numbers.txt to /app/answer.txt."
    )
    assert (about["exit_code"], about["ended"]) == (3, "")
    assert about["stdout"] == "one /app /agent 1234 False\n"
    assert about["cpu_s"] > 0.05


ROWS = [
    *ENDINGS,
    ("os.kill(-1, 9)", StopReason.FAILED, ""),  # with it the shell that waits for it
]


@pytest.mark.slow
@pytest.mark.parametrize(("code", "stop", "ended"), ROWS, ids=[row[0] for row in ROWS])
def test_the_state_is_scored_however_it_ends(code, stop, ended, play):
    episode = play(code, limits=Limits(turns=2), time_s=5.0 if ended else 60.0)
    about = episode.ends["agent"].info["program"]
    assert episode.scored, episode.error
    assert (episode.stop, about["ended"]) == (stop, ended), about
    assert about["stdout"] == ("on\n" if ended else "")


@pytest.mark.slow
def test_a_program_that_hides_its_process_is_ended_all_the_same(play):
    code = """
import glob
for path in glob.glob("/tmp/.gem-*/pid"): open(path, "w").write("")
time.sleep(600)
"""
    episode = play(code, dockerfile=USER.replace("USER 1234\n", ""), time_s=4.0)
    assert (episode.stop, episode.ends["agent"].info["program"]["ended"]) == (StopReason.TIME_LIMIT, "time")


@pytest.mark.slow
def test_it_reaches_its_own_model_alone(play):
    code = """
refused("a file beside it", lambda: os.listdir(os.path.dirname(sys.argv[0]) + "/task"))
refused("the host's files", lambda: open("/run/gem/new", "w"))
wrong += [name for name in os.listdir("/sys/class/net") if name != "lo"]
print(wrong)
if not wrong: solve()
"""
    with socket.create_server(("127.0.0.1", 0)) as on_the_host:
        as_root = USER.replace("USER 1234\n", "")
        episode = play(PROBE + code, str(on_the_host.getsockname()[1]), dockerfile=as_root)
    assert episode.success, episode.ends["agent"].info["program"]


@pytest.mark.slow
def test_an_image_without_python_is_refused(play):
    with pytest.raises(BadArgument, match=r"has no python3 .*--program-shows FOLDER"):
        play("pass", dockerfile=NO_PYTHON)


# -- without an engine

ENGINE = """#!/bin/sh
case "$1" in
version) echo '{"Server": {"Version": "99.0"}}';;
run) echo "$@" > "AT/run"; exec cat > /dev/null;;
ps) echo 1234;;
esac
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Return the folder in which a script that plays an engine notes how it is called."""
    path = tmp_path / "engine"
    path.write_text(ENGINE.replace("AT", str(tmp_path)))
    path.chmod(0o755)
    monkeypatch.setenv("GEM_SANDBOX_ENGINE", str(path))
    return tmp_path


def test_a_container_sees_the_program_and_one_socket_read_only(fake):
    program = Program(("x",), ("/opt/my agent", "/usr/local/bin", "/usr/lib"))
    asked, visible = Dockerfile(fake), program.list_mounts()
    session = ContainerSession(find_engine(), "image", asked, Budget(), visible=visible, port=1)
    session.close()
    run = (fake / "run").read_text()
    mounts = [word.removeprefix("--volume=") for word in run.split(" --") if word.startswith("volume")]
    assert "volume=/opt/my agent:/opt/my agent:ro" in mounts
    assert [mount.endswith(":/run/gem:ro") for mount in mounts].count(True) == 1
    assert len(mounts) == 2
    assert "--network none" in run
    assert not Path(mounts[1].split("=")[1].split(":")[0]).exists()


def test_a_path_with_a_colon_cannot_be_mounted():
    with pytest.raises(BadArgument, match="'/opt/a:b', which has a colon"):
        Program(("x",), ("/opt/a:b",)).list_mounts()


def test_a_task_with_the_internet_is_refused(fake):
    task = TerminalTask("x", lambda machine: "", dockerfile=Dockerfile(fake, "image", internet=True))
    with contextlib.closing(TerminalEnv(task=task)) as env:
        env.reset(seed=0)
        with pytest.raises(BadArgument, match="the task has the internet"):
            env.run_program(Run(Program(("x",)), None, "key", None, 1.0))


def test_the_relay_carries_both_ways_and_the_end(tmp_path):
    """Answer each connection with all that it has sent, once that has ended."""
    with socket.socket() as free, socket.socket(socket.AF_UNIX) as listener:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        listener.bind(str(tmp_path / "model"))
        listener.listen()

        def answer():
            for _ in range(2):
                far, _ = listener.accept()
                with far, far.makefile("rb") as file:
                    far.sendall(file.read())

        threading.Thread(target=answer, daemon=True).start()
        text = Path(relay.__file__).read_text()
        command = [sys.executable, "-I", "-c", text, str(tmp_path / "model"), str(port)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
            try:
                assert running.stdout.readline() == b"ready\n"
                for data in (b"x" * (1 << 20), b""):
                    with socket.create_connection(("127.0.0.1", port)) as near, near.makefile("rb") as file:
                        sender = threading.Thread(target=lambda: (near.sendall(data), near.shutdown(1)))  # noqa: B023
                        sender.start()
                        assert file.read() == data
                        sender.join()
                listener.close()
                with socket.create_connection(("127.0.0.1", port)) as near:
                    assert near.recv(1) == b""  # nobody serves it any more
            finally:
                running.kill()
