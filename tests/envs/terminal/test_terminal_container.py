"""Task folders with a Dockerfile, played on the engines of this machine; its base image has to be there."""

import contextlib
import os

import pytest
from container_engines import SOME_IMAGE, engine_of_tasks

from gem.envs.terminal.base import Dockerfile
from gem.envs.terminal.container import ContainerSession, build
from gem.envs.terminal.env import TerminalEnv
from gem.errors import CannotFork, NoVerdict
from gem.sandbox.base import Budget, SandboxFailed, Status
from gem.sandbox.container import ENGINES, Engine

DOCKERFILE = f"""
FROM {SOME_IMAGE}
WORKDIR /app
COPY data /app
RUN echo built > /etc/built
ENV GREETING=hello
"""
TEST = """#!/bin/bash
reward=0
[ "$(cat /app/sum.txt)" = "$(cat /tests/wanted)" ] && reward=1
echo $reward > /logs/verifier/reward.txt
"""
HARBOR = {
    "task.toml": '[environment]\nmemory = "512M"\ncpus = 1\n[verifier]\ntimeout_sec = 30\n',
    "instruction.md": "Write the sum of /app/numbers to /app/sum.txt.\n",
    "environment/Dockerfile": DOCKERFILE,
    "environment/data/numbers": "1\n2\n3\n",
    "tests/test.sh": TEST,
    "tests/wanted": "6\n",
    "solution/solve.sh": "awk '{s += $1} END {print s}' /app/numbers > /app/sum.txt\n",
}
TERMINAL_BENCH = {
    "task.yaml": "instruction: |-\n  Write the sum of /app/numbers to /app/sum.txt.\n",
    "Dockerfile": DOCKERFILE,
    "docker-compose.yaml": "services:\n  client:\n    build:\n      context: .\n    command: [sh]\n",
    "data/numbers": "1\n2\n3\n",
    "run-tests.sh": 'test "$(cat sum.txt)" = "$(cat "$TEST_DIR/wanted")"\n',
    "tests/wanted": "6\n",
    "solution.sh": "awk '{s += $1} END {print s}' /app/numbers > /app/sum.txt\n",
}


@pytest.fixture(params=ENGINES)
def engine(request, monkeypatch):
    with engine_of_tasks(request.param, monkeypatch) as found:
        yield found


@pytest.fixture
def played(engine, tmp_path):
    """Return an environment of a folder; its image is removed in the end."""
    made = []

    def make(files, **changes):
        for path, text in {**files, **changes}.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        made.append(TerminalEnv(task_dir=tmp_path, command_s=5.0))
        return made[-1]

    yield make
    for env in made:
        env.close()
        try:
            image = build(env.given_task.dockerfile, engine)
        except SandboxFailed:
            continue
        engine.ask("rmi", image)


@pytest.mark.slow
@pytest.mark.parametrize("files", [HARBOR, TERMINAL_BENCH], ids=["harbor", "terminal-bench"])
def test_a_folder_is_built_played_and_scored(played, files):
    env = played(files)
    assert env.reset(seed=0).obs.startswith("Write the sum of /app/numbers to /app/sum.txt.")
    said = env.step("<bash>pwd; ls; cat /etc/built; echo $GREETING; id -u; ls -d /tests /logs</bash>").obs
    assert said.splitlines()[:5] == ["/app", "numbers", "built", "hello", "0"]
    assert "cannot access '/tests'" in said
    assert "cannot access '/logs'" in said
    assert env.step("<submit/>").reward == 0.0
    env.reset(seed=0)
    env.step(env.solve())
    done = env.step(env.solve())
    assert (done.reward, done.info["success"]) == (1.0, True)


@pytest.mark.slow
def test_commands_in_a_container(played):
    env = played(HARBOR)
    env.reset(seed=0)
    env.step("<bash>cd /tmp; export X=5; (sleep 600 &); sleep 600 &</bash>")
    said = env.step(
        "<bash>echo $X; pwd; ps aux | grep -c '[s]leep 600'; ls /sys/class/net; touch 'a b'; cd /</bash>"
    )
    assert said.obs.split() == ["5", "/tmp", "2", "lo"]
    assert "stopped: it took more than 5 s" in env.step("<bash>while :; do :; done</bash>").obs
    assert env.step("<bash>ls /nope; exit 3</bash>").obs.endswith("[exit code 3]")
    assert env.step("<bash>kill -9 1; kill -9 -1</bash>").terminated is False
    assert env.step("<bash>echo still here; pwd</bash>").obs == "still here\n/"
    assert "the rest is lost" in env.step("<bash>yes | head -c 3000000</bash>").obs
    with pytest.raises(CannotFork):
        env.fork()


@pytest.mark.slow
def test_a_reward_that_the_agent_writes_is_worthless(played):
    env = played(HARBOR)
    env.reset(seed=0)
    forge = (
        "mkdir -p /logs/verifier; ln -s /etc /tests; (while :; do echo 1 > /logs/verifier/reward.txt; done) &"
    )
    done = env.step(f"<bash>{forge}</bash><submit/>")
    assert (done.reward, done.info["why"]) == (0.0, "the test's reward is 0")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "missing"), [("python3.99 -m pytest", "pytest for python3.99"), ("uvx pytest", "uvx")]
)
def test_a_tool_that_the_image_lacks_gives_no_verdict(played, line, missing):
    env = played(HARBOR, **{"tests/test.sh": f"#!/bin/sh\n{line} || echo 0 > /logs/verifier/reward.txt\n"})
    env.reset(seed=0)
    with pytest.raises(NoVerdict, match=f"needs what is not here: {missing}"):
        env.step("<submit/>")


@pytest.mark.slow
def test_a_tool_that_the_agent_removes_is_a_zero(played):
    tool = "RUN printf '#!/bin/sh\\nexit 1\\n' > /usr/local/bin/pytest && chmod +x /usr/local/bin/pytest\n"
    test = "#!/bin/sh\npytest || echo 0 > /logs/verifier/reward.txt\n"
    env = played(HARBOR, **{"environment/Dockerfile": f"{DOCKERFILE}{tool}", "tests/test.sh": test})
    env.reset(seed=0)
    env.step("<bash>rm /usr/local/bin/pytest</bash>")
    assert env.step("<submit/>").reward == 0.0


@pytest.mark.slow
def test_an_image_that_cannot_be_built_is_no_verdict(played):
    env = played(HARBOR, **{"environment/Dockerfile": f"FROM {SOME_IMAGE}\nRUN echo the reason; false\n"})
    env.reset(seed=0)
    with pytest.raises(NoVerdict, match=r"(?s)was not built.*the reason"):
        env.step("<bash>ls</bash>")


# -- engines that misbehave

FAKE = """#!/bin/sh
case "$1 $*" in
version*) echo '{"Server": {"Version": "99.0"}}';;
run*) echo $$ > "AT/client"; exec cat > /dev/null;;
ps*) if [ -e "AT/gone" ]; then exit CODE; fi; echo 1234;;
exec*"command -v bash"*) ;;
exec*) EXEC;;
cp*) exit 1;;
esac
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """An engine played by a script: what it does for `exec`, and whether it answers once all is gone."""

    def make(execute=":", answers=True):
        path = tmp_path / "engine"
        code = "0" if answers else "1"
        path.write_text(FAKE.replace("EXEC", execute).replace("AT", str(tmp_path)).replace("CODE", code))
        path.chmod(0o755)
        monkeypatch.setenv("GEM_SANDBOX_ENGINE", str(path))
        return Engine(str(path))

    return make


def test_a_command_of_the_agents_that_never_stops_talking_is_stopped(fake, tmp_path):
    asked = Dockerfile(tmp_path)
    with contextlib.closing(ContainerSession(fake("exec yes"), "image", asked, Budget())) as session:
        done = session.shell("ls")
        assert (done.status, done.stdout, done.signal) == (Status.OLE, "", 9)
        assert "ended" not in done.info


def test_a_box_that_ended_before_its_test_has_failed(fake, tmp_path):
    set_up = "read mark; if grep -q present; then echo $mark$mark$mark; exit; fi"
    fake(f"{set_up}; touch '{tmp_path}/gone'; exit 1")
    for path, text in HARBOR.items():
        (tmp_path / "task" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "task" / path).write_text(text)
    env = TerminalEnv(task_dir=tmp_path / "task")
    env.reset(seed=0)
    done = env.step("<submit/>")
    assert (done.reward, done.info["why"]) == (0.0, "the machine ended before the test")


def test_an_engine_that_is_gone_is_no_verdict_and_leaves_nothing(fake, tmp_path):
    asked, engine = Dockerfile(tmp_path), fake(answers=False)
    session = ContainerSession(engine, "image", asked, Budget())
    (tmp_path / "gone").touch()
    session._client.kill()
    session._client.wait()
    for ask in (
        lambda: session.shell("ls"),
        lambda: session.read_file("/x"),
        lambda: session.write_file("/x", b""),
    ):
        with pytest.raises(SandboxFailed, match="ps failed"):
            ask()
    session.close()
    with pytest.raises(SandboxFailed, match="ps failed"):
        ContainerSession(engine, "image", asked, Budget())
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "client").read_text()), 0)
