"""Harbor's task folders without an engine: their settings, plain Dockerfiles, and shims for installers."""

import json
import os
import re
from importlib.util import find_spec

import pytest

from gem.envs.terminal.container import build
from gem.envs.terminal.dockerfile import read_dockerfile
from gem.envs.terminal.env import TerminalEnv
from gem.envs.terminal.folder import read_folder
from gem.envs.terminal.harbor import check_tools, probe_modules
from gem.errors import BadArgument, NoVerdict
from gem.sandbox import SandboxFailed

TOML = '[task]\nname = "gem/answer"\n[verifier]\ntimeout_sec = 60.0\n'
TEST = """#!/bin/bash
cd /app
[ "$(cat answer.txt)" = 42 ] && [ "$GREETING" = "$WANTED" ] && echo 1 > /logs/verifier/reward.txt ||
  echo 0 > /logs/verifier/reward.txt
"""
INSTALLS = """#!/bin/bash
apt-get update
apt-get install -y curl
curl -LsSf https://astral.sh/uv/0.9.5/install.sh | sh
source $HOME/.local/bin/env
export PATH="$HOME/.local/bin:$PATH"
uvx \\
  -p 3.13 \\
  -w pytest==8.4.1 \\
  -w pytest-json-ctrf==0.3.5 \\
  pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py -rA
if [ $? -eq 0 ]; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
"""
OUTPUTS = "def test_it():\n    assert open('/app/answer.txt').read() == '42\\n'\n"
RIGHT, WRONG = "echo 42 > answer.txt", "echo 41 > answer.txt"


@pytest.fixture
def no_engine(monkeypatch):
    monkeypatch.setenv("GEM_SANDBOX_ENGINE", "no-engine-of-this-name")


def write_folder(folder, toml=TOML, test=TEST, **files):
    for path, text in {
        "task.toml": toml,
        "instruction.md": "Write the sum of the numbers in /app/numbers.txt to /app/answer.txt.\n",
        "environment/numbers.txt": "40\n2\n",
        "tests/test.sh": test,
        "solution/solve.sh": "awk '{s+=$1} END {print s}' /app/numbers.txt > /app/answer.txt\n",
        **files,
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0", "true", '"soon"', "[1]", "1" + "0" * 400])
@pytest.mark.parametrize("name", ["agent.timeout_sec", "verifier.timeout_sec"])
def test_a_number_that_is_none_above_0_is_refused(tmp_path, name, value):
    with pytest.raises(BadArgument, match=r"timeout_sec = .*accepted: a number above 0"):
        read_folder(write_folder(tmp_path, toml=f'version = "1.0"\n{name} = {value}\n'))


@pytest.mark.parametrize(
    "size", ['"-1G"', '"9e99T"', '"2"', '""', "4", "true", '"0M"', '"99999999999T"', '"٢G"']
)
def test_a_memory_that_is_no_size_is_refused(tmp_path, size):
    with pytest.raises(BadArgument, match=r"says memory = .*accepted: a size from 1 MiB to 16 TiB"):
        read_folder(write_folder(tmp_path, toml=f'version = "1.0"\nenvironment.memory = {size}\n'))
    with pytest.raises(BadArgument, match=r"says memory_mb = 1e\+30; accepted: a size"):
        read_folder(write_folder(tmp_path, toml='version = "1.0"\nenvironment.memory_mb = 1e30\n'))


@pytest.mark.parametrize(("size", "mb"), [("512M", 512), ("1.5 GiB", 1536), ("2gb", 2048), ("4096K", 4)])
def test_a_memory_is_read_in_its_unit(tmp_path, monkeypatch, size, mb):
    monkeypatch.setattr("gem.envs.terminal.folder.find_engine", lambda: "docker")
    toml = f'version = "1.0"\nenvironment.memory = "{size}"\n'
    folder = write_folder(tmp_path, toml=toml, **{"environment/Dockerfile": "FROM scratch\nRUN true\n"})
    assert read_folder(folder).dockerfile.memory_mb == mb


@pytest.mark.parametrize("place", ["environment", "tests", "."])
def test_a_file_that_claims_a_terabyte_is_refused(tmp_path, place):
    folder = write_folder(tmp_path)
    with (folder / place / "large").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(BadArgument, match="cannot be read: it has more than 1024 MiB"):
        read_folder(folder)


def test_the_time_of_a_test_is_not_used_up_before_it(tmp_path):
    folder = write_folder(tmp_path, toml='version = "1.0"\nverifier.timeout_sec = 1e-6\n')
    with pytest.raises(NoVerdict, match="the test took more than 1e-06 s"):
        play(folder, RIGHT)


def play(folder, command, **kwargs):
    with TerminalEnv(task_dir=folder, command_s=20, **kwargs) as env:
        env.reset(seed=0)
        obs = env.step(f"<bash>{command}</bash>").obs
        return obs, env.step("<submit/>").reward


@pytest.mark.parametrize(
    ("toml", "why"),
    [("x = " + "9" * 5000, "is no TOML"), ("x = " + "[" * 100_000, "nested too deeply")],
    ids=["digits", "depth"],
)
def test_a_toml_that_python_cannot_hold_is_refused(tmp_path, toml, why):
    with pytest.raises(BadArgument, match=why):
        read_folder(write_folder(tmp_path, toml))


@pytest.mark.parametrize("name", ["instruction.md", "solution/solve.sh"])
def test_a_named_pipe_in_a_folder_is_not_waited_for(tmp_path, name):
    folder = write_folder(tmp_path)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    if name == "instruction.md":
        with pytest.raises(BadArgument, match="cannot be read as text"):
            read_folder(folder)
    else:
        assert not read_folder(folder).solution


@pytest.mark.parametrize(
    ("toml", "needs"),
    [
        ('[[steps]]\nname = "a"\n', r"several steps.*Play it with Harbor itself"),
        ('schema_version = "2.0"\n', "the schema '2.0'"),
        ('[environment]\nskills_dir = "/skills"\n', "skills for an agent's program"),
        (
            '[environment]\ndocker_image = "--privileged"\n',
            "has the docker_image '--privileged'; accepted: the name of an image",
        ),
        ('[[environment.mcp_servers]]\nname = "db"\n', "MCP servers"),
        ("[environment.healthcheck]\nretries = 1\n", r"has the health check.*accepted: a command"),
        ('[environment.healthcheck]\ncommand = "true"\ninterval_sec = 1e9\n', "from 0 to 600"),
        ('[environment.healthcheck]\ncommand = "true"\nretries = "3"\n', "from 0 to 600"),
        ('[environment]\nhealthcheck = "true"\n', "has the health check 'true'"),
        ('[environment]\nworkdir = "/src"\n', "another working folder"),
        ("[environment]\ngpus = 1\n", "GPUs"),
        ('[environment]\nos = "windows"\n', "the system 'windows'"),
        ('[environment]\nnetwork_mode = "allowlist"\n', "list of allowed hosts"),
        ('[verifier]\nenvironment_mode = "separate"\n', "a verifier in a machine of its own"),
        ('[verifier.environment]\ndocker_image = "x"\n', "a verifier with an image of its own"),
        ('[verifier]\nuser = "grader"\n', "another user for the verifier"),
        ('[agent]\nuser = "agent"\n', "another user for the agent"),
        ('[verifier.env]\nKEY = "${OPENAI_API_KEY}"\n', "without"),
        ("[environment.env]\nKEY = 1\n", "'KEY' to 1"),
        ('[environment]\nenv = ["A"]\n', "'env' to None"),
    ],
)
def test_what_gem_does_not_have_is_refused_by_name(tmp_path, toml, needs):
    with pytest.raises(BadArgument, match=needs) as refused:
        read_folder(write_folder(tmp_path, toml))
    assert str(tmp_path) in str(refused.value)


def test_a_prebuilt_image_needs_an_engine_and_is_named(no_engine, tmp_path):
    folder = write_folder(tmp_path, '[environment]\ndocker_image = "ghcr.io/some/image:1"\n')
    with pytest.raises(
        SandboxFailed, match=r"needs Docker or Podman for its docker_image 'ghcr\.io/some/image:1'"
    ):
        read_folder(folder)


def test_a_prebuilt_image_is_pulled_once_and_nothing_is_built(monkeypatch, tmp_path):
    folder = write_folder(tmp_path, '[environment]\ndocker_image = "some/image:1"\n')
    monkeypatch.setattr("gem.envs.terminal.folder.find_engine", lambda: None)
    asked, here = [], set()

    class Puller:
        def ask(self, *args, timeout_s):
            asked.append(args)
            here.update(args[2:] if args[0] == "pull" else ())

        def has_image(self, image):
            return image in here

    machine = read_folder(folder).dockerfile
    assert [build(machine, Puller()) for _ in range(2)] == ["some/image:1"] * 2
    assert asked == [("pull", "--quiet", "some/image:1")]


def test_the_record_names_the_content_of_the_folder(tmp_path):
    first = read_folder(write_folder(tmp_path)).info["data"]
    assert read_folder(write_folder(tmp_path)).info["data"] == first
    changed = read_folder(write_folder(tmp_path, test="echo 1 > /logs/verifier/reward.txt")).info["data"]
    assert changed != first
    assert changed.startswith("folder ")


@pytest.mark.parametrize(
    ("path", "needs"),
    [("trajectory.json", "an episode to go on from"), ("tests/.harborignore", "leaving out")],
)
def test_files_that_gem_does_not_read_are_refused_by_name(tmp_path, path, needs):
    with pytest.raises(BadArgument, match=needs):
        read_folder(write_folder(tmp_path, **{path: "x"}))


def test_the_marks_of_a_benchmark_are_not_shown(no_engine, tmp_path):
    text = "<!-- BENCHMARK DATA: canary GUID 1 -->\n# harbor-canary GUID 1\n\n# Canary birds\n\nCount them.\n"
    write_folder(
        tmp_path, **{"instruction.md": text.replace("# Canary birds", "# Birds, canary")[:-1] + " canary"}
    )
    assert read_folder(tmp_path).instruction.startswith("# Birds")


def test_a_solution_with_files_beside_it_is_none(no_engine, tmp_path):
    write_folder(tmp_path, **{"solution/answer.py": "print(42)\n"})
    assert read_folder(tmp_path).solution == ""


def test_a_health_check_is_run_until_it_succeeds(shell, tmp_path):
    begin = "{ tail -f /dev/null > /app/left 2>&1 & }"
    check = f"echo $GREETING >> /app/tries; [ $(wc -l < /app/tries) = 3 ] && {begin}"
    toml = f"{TOML}[environment]\nenv = {{GREETING = 'hello'}}\n[environment.healthcheck]\n"
    toml += "interval_sec = 0.01\nstart_interval_sec = 0.01\ncommand = "
    write_folder(tmp_path, toml + json.dumps(check))
    # A process in the background has its name a moment later than its shell goes on.
    look = "cat tries; until grep -qs tail /proc/[0-9]*/comm; do sleep 0.01; done; echo runs"
    assert play(tmp_path, look)[0].split() == ["hello", "hello", "hello", "runs"]
    with pytest.raises(NoVerdict, match=r"(?s)health check of .* failed: .*3"):
        play(write_folder(tmp_path, f"{toml}'exit 3'"), RIGHT)


def test_variables_of_the_environment_and_of_the_verifier(shell, tmp_path):
    toml = (
        TOML
        + '[environment.env]\nGREETING = "it\'s $HOME /app"\n[verifier.env]\nWANTED = "it\'s $HOME /app"\n'
    )
    obs, reward = play(write_folder(tmp_path, toml), f'echo "$GREETING"; echo "<$WANTED>"; {RIGHT}')
    assert obs.startswith("it's $HOME /")  # the last word is the sandbox's home
    assert (obs.split("\n")[1], reward) == ("<>", 1.0)


DOCKERFILE = """# syntax=docker/dockerfile:1
FROM python:3.12-slim
ENV GREETING=hello WANTED="hello"
ENV PLACE /srv/task data
WORKDIR /srv
WORKDIR task
COPY numbers.txt \\
     .
COPY ["data", "data/"]
ADD run.sh bin/go
"""


def test_a_plain_dockerfile_is_followed_without_an_engine(shell, no_engine, tmp_path):
    write_folder(
        tmp_path,
        test=TEST.replace("/app", "/srv/task"),
        **{
            "environment/Dockerfile": DOCKERFILE,
            "environment/data/more/a.txt": "a\n",
            "environment/run.sh": "#!/bin/sh\necho ran\n",
            "instruction.md": "Write 42 to /srv/task/answer.txt.\n",
            "solution/solve.sh": "echo 42 > /srv/task/answer.txt\n",
        },
    )
    (tmp_path / "environment/run.sh").chmod(0o755)
    with TerminalEnv(task_dir=tmp_path) as env:
        assert env.reset(seed=0).obs.startswith("Write 42 to ~/answer.txt.")
        seen = env.step(
            '<bash>find * -type f | sort; bin/go; [ "$PLACE" = "$PWD data" ] && echo same</bash>'
        ).obs
        assert seen.split() == ["bin/go", "data/more/a.txt", "numbers.txt", "ran", "same"]
        assert env.step(env.solve() + "<submit/>").reward == 1.0
        env.reset(seed=0)
        assert env.step(f"<bash>{WRONG}</bash><submit/>").reward == 0.0


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("RUN apt-get install -y gcc", "RUN apt-get install"),
        ("COPY --from=build /x .", "--from"),
        ("COPY $NAME .", "NAME"),
        ("COPY missing.txt .", "missing"),
        ("COPY ../secret .", "secret"),
        ("COPY *.txt .", "txt"),
        ("COPY numbers.txt /etc/numbers.txt", "outside of its WORKDIR"),
        ("ADD https://example.org/x .", "example"),
        ("ADD files.tar.gz .", "tar.gz"),
        ("COPY <<EOF a.txt", "EOF"),
        ("ENV PATH=$PATH:/x", "PATH"),
        ("ENV A=1 B", "ENV A=1 B"),
        ("FROM other", "FROM other"),
        ("WORKDIR /", "WORKDIR is '/'"),
        ("WORKDIR /usr", "WORKDIR is '/usr'"),
        ("WORKDIR '/a b'", "WORKDIR is '/a b'"),
        ('CMD ["sleep"]', "CMD"),
        ("COPY 'a", "COPY 'a"),
    ],
)
def test_a_dockerfile_that_needs_an_engine_says_why(no_engine, tmp_path, line, why):
    write_folder(
        tmp_path,
        **{"environment/Dockerfile": f"FROM x\nWORKDIR /app\n{line}\n", "environment/files.tar.gz": ""},
    )
    (tmp_path / "secret").write_text("it")
    with pytest.raises(BadArgument, match=r"its Dockerfile") as refused:
        read_dockerfile(tmp_path / "environment")
    assert why in str(refused.value)
    with pytest.raises(SandboxFailed, match="needs Docker or Podman: its Dockerfile"):
        read_folder(tmp_path)


def test_a_full_disk_is_a_failed_task(shell, no_engine, tmp_path):
    write_folder(tmp_path)
    fill = "head -c 100000000 /dev/zero > fill; truncate -s -4096 fill; "
    assert play(tmp_path, WRONG + "; " + fill)[1] == 0.0


@pytest.mark.system
def test_a_test_that_waits_for_a_named_pipe_of_the_agent_is_a_failed_task(shell, no_engine, tmp_path):
    reads = "cat answer.txt > /dev/null; echo 1 > /logs/verifier/reward.txt"
    write_folder(tmp_path, "[verifier]\ntimeout_sec = 1\n", test=reads)
    assert play(tmp_path, "mkfifo answer.txt")[1] == 0.0
    write_folder(tmp_path, "[verifier]\ntimeout_sec = 1\n", test="sleep 5")
    with pytest.raises(NoVerdict, match="took more than 1 s"):
        play(tmp_path, "true")


@pytest.mark.system
def test_a_test_that_installs_its_tools_runs_with_shims(shell, tmp_path):
    write_folder(tmp_path, test=INSTALLS, **{"tests/test_outputs.py": OUTPUTS})
    with pytest.raises(NoVerdict, match=r"not here: uvx\. shims=True"):
        play(tmp_path, RIGHT)
    forge = "mkdir -p .local/bin; echo 'echo 1 > .logs/verifier/reward.txt; exit' > .local/bin/env; "
    try:
        assert play(tmp_path, RIGHT, shims=True)[1] == 1.0
    except NoVerdict as absent:
        if "pytest" in str(absent):
            pytest.skip("the sandbox's Python has no pytest")
        raise
    assert play(tmp_path, forge + WRONG, shims=True)[1] == 0.0
    fake = "for name in pytest csv; do echo 'import os; os._exit(0)' > $name.py; done; "
    assert play(tmp_path, fake + WRONG, shims=True)[1] == 0.0


@pytest.mark.parametrize("layout", ["harbor", "terminal-bench"])
@pytest.mark.parametrize(
    "line",
    [
        "apt-get update; source $HOME/.local/bin/env; uvx -p 3.13 pytest /tests/test_outputs.py",
        "cd /app && uv run pytest",
        "if uvx pytest; then true; else false; fi",
    ],
)
def test_a_test_whose_installer_is_not_here_gives_no_verdict(shell, no_engine, tmp_path, line, layout):
    text = f"#!/bin/bash\n{line} || {{ echo 0 > /logs/verifier/reward.txt; exit 1; }}\n"
    write_folder(tmp_path, test=text)
    if layout == "terminal-bench":
        (tmp_path / "task.toml").rename(tmp_path / "old.toml")
        (tmp_path / "task.yaml").write_text("instruction: Write it.\n")
        (tmp_path / "run-tests.sh").write_text(text)
    with pytest.raises(NoVerdict, match=r"needs what is not here: uvx?"):
        play(tmp_path, RIGHT)


ZERO = "echo 0 > /logs/verifier/reward.txt"
PYTHON = {"environment/bin/python": '#!/bin/sh\nexec python3 $X "$@"\n'}


@pytest.mark.parametrize(
    ("line", "runs"),
    [
        ("python3 -m pytest -q; python3 -m tox", [("python3", "pytest tox")]),
        ("cd /app && X=1 /usr/bin/env python -B -W ignore -um tox", [("python", "tox")]),
        ("/opt/v-1/bin/python3.12 \\\n  -X dev -mcoverage run", [("/opt/v-1/bin/python3.12", "coverage")]),
        (
            "python3 -m pytest; uv run --python python3.13 -m uv",
            [("python3", "pytest"), ("python3.13", "uv")],
        ),
        (
            "python -m pip install -q \\\n 'requests[socks]>=2' pytest-json-ctrf==0.3.5 PyYAML > /x",
            [("python3", "requests pytest_json_ctrf yaml")],
        ),
        ("pip install -r /tests/needs.txt; pip install needs.txt ./a.whl; pip download tox", []),
        ("$HOME/v/bin/python -m tox; ${V}/python -m tox; $python -m tox", []),
        ("python3 -m json.tool; git commit -m pytest; python3 -m pytester", []),
        ("python3 -m unittest", []),
    ],
)
def test_what_a_script_runs_as_modules_or_installs_is_looked_for(line, runs):
    probe = probe_modules([line.encode()], [])
    assert re.findall(r"echo '.absent: (.*)' (.*)", probe) == runs
    assert probe_modules([line.encode()], [b"python3 -m pytest && python -m tox || tox; yaml"]) == probe
    everything = b"pip install python3-pytest tox==4 coverage 'uv' pyyaml requests pytest-json-ctrf"
    assert probe_modules([line.encode()], [everything]) == ""


@pytest.mark.skipif(find_spec("tox") is not None, reason="tox is here")
@pytest.mark.parametrize(
    ("line", "missing", "files"),
    [
        ("python3.99 -m pytest", r"pytest for python3\.99", {}),
        ("python3 -m tox > /logs/out.txt 2>&1", "tox for python3", {}),
        ("sh /tests/run.sh", "tox for python3", {"tests/run.sh": "cd /app; env python3 -m tox\n"}),
        ("/app/bin/python -m tox", r"tox for \$HOME/bin/python", PYTHON),
        (
            "pip install no-such-one; python3 /tests/a.py",
            "no_such_one for",
            {"tests/a.py": "import no_such_one"},
        ),
        ("pip install pytest-no-one; python3 -m pytest --no-one", "pytest_no_one for python3", {}),
    ],
)
def test_a_module_that_is_not_here_gives_no_verdict(shell, no_engine, tmp_path, line, missing, files):
    write_folder(tmp_path, test=f"#!/bin/bash\n{line} || {ZERO}\n", **files)
    for path in tmp_path.glob("environment/bin/*"):
        path.chmod(0o755)
    with pytest.raises(NoVerdict, match=f"needs what is not here: {missing}"):
        play(tmp_path, RIGHT)


@pytest.mark.skipif(find_spec("tox") is not None, reason="tox is here")
@pytest.mark.parametrize(
    ("test", "command", "files"),
    [
        ("sh greet.sh; : python3 -m pytest", "echo 'echo python3: No module named pytest' > greet.sh", {}),
        ("/app/bin/python -m tox", "mkdir bin; cp $(command -v python3) bin/python", {}),
        ("pip install no-such-one; python3 a.py", "echo 'import no_such_two' > a.py", {}),
        ("python3 -m tox", "true", {"solution/solve.sh": "pip install /app/tox.whl\n"}),
        (
            "python3 -m tox",
            "true",
            {"solution/solve.sh": "./more.sh\n", "solution/more.sh": "pip install tox\n"},
        ),
    ],
    ids=["it is here", "no venv was made", "an import of the agent's", "to install", "to install in a file"],
)
def test_a_module_that_the_agent_lacks_is_a_zero(shell, no_engine, tmp_path, test, command, files):
    write_folder(tmp_path, test=f"#!/bin/bash\n{test}\n{ZERO}\n", **files)
    (tmp_path / "environment" / "pytest.py").write_text("")
    assert play(tmp_path, command)[1] == 0.0


def test_a_test_that_does_without_a_module_keeps_its_success(shell, no_engine, tmp_path):
    write_folder(tmp_path, test=f"#!/bin/bash\npython3.99 -m pytest\n{TEST}")
    assert play(tmp_path, RIGHT)[1] == 1.0


def test_a_tool_that_is_not_here_is_missed_on_a_path_of_the_tasks_own(shell, no_engine, tmp_path):
    path = '[verifier.env]\nPATH = "/usr/local/bin:/usr/bin:/bin"\n'
    write_folder(tmp_path, toml=TOML + path, test=f"#!/bin/bash\nuvx pytest || {ZERO}\n")
    with pytest.raises(NoVerdict, match="needs what is not here: uvx"):
        play(tmp_path, RIGHT)


def test_what_was_there_before_the_agent_is_not_missed():
    check_tools(b"pytest\n", ".present: uv\n.present: pytest\n")
    with pytest.raises(NoVerdict, match=r"needs what is not here: uvx\."):
        check_tools(b"pytest\nuvx\nuvx\n", ".present: uv\n.present: pytest\n")


def test_the_test_of_terminal_bench_knows_the_variables_of_a_plain_dockerfile(shell, no_engine, tmp_path):
    write_folder(tmp_path)
    (tmp_path / "task.toml").unlink()
    (tmp_path / "task.yaml").write_text("instruction: Write it.\n")
    (tmp_path / "Dockerfile").write_text("FROM x\nWORKDIR /app\nENV WORD=apple\n")
    (tmp_path / "run-tests.sh").write_text('[ "$(cat /app/word)" = "$WORD" ]\n')
    assert play(tmp_path, "echo $WORD > word")[1] == 1.0
    assert play(tmp_path, "touch word")[1] == 0.0


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("uvx -w pytest -w no-such-package==1 pytest /tests/test_outputs.py", "no-such-package|pytest"),
        ("uvx no-such-program --check", "no-such-program"),
        ("apt-get install -y -qq no-such-package", "no-such-package"),
        ("apt-get -y install no-such-package", "no-such-package"),
    ],
)
def test_a_tool_that_is_not_here_gives_no_verdict_with_shims(shell, tmp_path, line, missing):
    write_folder(tmp_path, test=f"#!/bin/bash\n{line} || echo 0 > /logs/verifier/reward.txt\n")
    with pytest.raises(NoVerdict, match=f"needs what is not here: ({missing})"):
        play(tmp_path, RIGHT, shims=True)
