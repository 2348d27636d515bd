"""What a file of somebody else may name: each way to run code, through each loader."""

import json
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import gem
from gem import codec, trust
from gem.adapters.prompts import read_task, seeded_tasks, task_text
from gem.adapters.records import carry, read_record
from gem.agents.random import RandomAgent
from gem.cli import main
from gem.cli.terms import MISUSED
from gem.envs.bridges.addresses import is_server
from gem.errors import BadArgument, UnknownEnv
from gem.evals.suite import known_suites, load_suite
from gem.graders.text import TextGrader
from gem.hosts import make_host
from gem.plugins import load
from gem.registry import Maker
from gem.rollout import Conversation, EpisodeStore, Job, rollout
from gem.rollout.forks import branches
from gem.rollout.regrade import regrade
from gem.rollout.replay import replay
from gem.specs import TaskRef, WrapperRef, name_of
from gem.testing import EchoEnv
from gem.train.baselines.study import read_study
from gem.train.config import TrainConfig
from gem.train.config.toml_file import read_config
from gem.train.report.run_folder import RunFolder
from gem.trust import MODELS, SERVERS
from gem.viewer.whatif import what_if
from gem.wrappers import TransformAction

ROOT = Path(__file__).parents[1]
GUESS = "game:GuessTheNumber-v0-easy"
TOUCH = "import pathlib; pathlib.Path('ran').touch()"
TOOLS = "gem.tools.tool_env_wrapper:ToolEnvWrapper"
MCP = {
    "$make": "gem.tools.mcp_tool:MCPTool",
    "kwargs": {"config": {"command": sys.executable, "args": ["-c", TOUCH]}, "validate_on_init": True},
}
ACTION = "gem.wrappers.transform:TransformAction"


def called(name):
    """Return a task whose wrapper calls a function with every action."""
    return TaskRef(GUESS, {}, (WrapperRef(ACTION, {"fn": {"$callable": name}}),))


WAYS = {
    "a tool's constructor starts a command": TaskRef(GUESS, {}, (WrapperRef(TOOLS, {"tools": [MCP]}),)),
    "a function of a package evaluates actions": called("sympy:sympify"),
    "a function of a package unpickles actions": called("pandas:read_pickle"),
    "a module that runs when it is imported": called("ran_at_import:shout"),
    "a checker of outputs": TaskRef("code:CodeContest", {"checker": {"$callable": "ran_at_import:shout"}}),
    "an environment of another package": TaskRef("x:Y-v0", entry_point="ran_at_import:Evil"),
    "a name that is no id": TaskRef("ran_at_import:Evil"),
    "a file": TaskRef("ran_at_import.py:Evil"),
    "a taskset's package": TaskRef("verifiers:ran-at-import"),
    "a server's folder": TaskRef("openenv:./ran_at_import"),
    "a folder of pages": TaskRef("browser:./pages"),
    "an environment on a server": TaskRef(f"remote:http://evil.example:9/{GUESS}"),
    "a server of environments": TaskRef("openenv:http://evil.example:9"),
    "a server that some parsers take for this machine": TaskRef("openenv:http://127.0.0.1\\@evil.example"),
    "another server's name": TaskRef(f"remote:http://127.0.0.1@evil.example/{GUESS}"),
    "a search engine's server": TaskRef(
        GUESS, {}, (WrapperRef("search_tool", {"corpus": "http://evil.example/retrieve"}),)
    ),
    "a search service with the user's key": TaskRef(
        GUESS, {}, (WrapperRef("search_tool", {"corpus": "serpapi"}),)
    ),
    "a wrapper of another package": TaskRef(GUESS, {}, (WrapperRef("ran_at_import:Around"),)),
    "a wrapper in a file": TaskRef(GUESS, {}, (WrapperRef("ran_at_import.py:Around"),)),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with a module that leaves a mark when it is imported."""
    monkeypatch.setattr("gem.registry.ENV_REGISTRY", gem.registry.ENV_REGISTRY.copy())
    monkeypatch.setattr("gem.registry._NAMED", {}, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "ran_at_import.py").write_text(
        f"{TOUCH}\nfrom gem.testing import EchoEnv as Evil\nfrom gem.core import EnvWrapper as Around\n"
        "shout = str.upper\n"
    )
    yield tmp_path
    sys.modules.pop("ran_at_import", None)


def stored(folder, task, **info):
    """Write a store with one episode whose task was changed by somebody else."""
    (played,) = rollout([Job(GUESS, 3, key="a")], RandomAgent())
    path = folder / "episodes.jsonl"
    for end in played.ends.values():
        end.info.update(info)
    with EpisodeStore(path) as store:
        store.append(replace(played, task=replace(task, seed=3)))
    return path


def of_file(task):
    return codec.unpack(codec.pack(task), TaskRef)


way = pytest.mark.parametrize("task", WAYS.values(), ids=WAYS)


@way
def test_what_a_task_of_a_file_names_is_not_run(task, folder):
    with pytest.raises(BadArgument, match="--trust"):
        gem.make(of_file(task))
    assert not (folder / "ran").exists()


@way
@pytest.mark.parametrize(
    "command",
    [
        ["regrade", "episodes.jsonl", "--grader", "text"],
        ["replay", "episodes.jsonl", "0"],
        ["value", "episodes.jsonl", "0", "--agent", "random", "-n", "2"],
    ],
    ids=lambda words: words[0],
)
def test_a_command_on_a_store_of_somebody_else_runs_nothing(command, task, folder, capsys):
    stored(folder, task)
    assert main(command) != 0
    out, err = capsys.readouterr()
    assert "--trust" in out + err
    assert not (folder / "ran").exists()


# -- suites, studies, configs and stored commands

CODE = "ran_at_import:shout"
NAMED = {
    "an environment of a module": ("env", "ran_at_import:Evil"),
    "an environment in a file": ("env", "ran_at_import.py:Evil"),
    "a taskset's package": ("env", "verifiers:ran-at-import"),
    "a server's folder": ("env", "openenv:./ran_at_import"),
    "a folder of pages": ("env", "browser:./pages"),
    "a wrapper of a module": ("wrapper", "ran_at_import:Around"),
    "a wrapper whose prefix is that of ids": ("wrapper", "code:interact"),
    "a wrapper in a file": ("wrapper", "ran_at_import.py:Around"),
    "code in a keyword": ("kwargs", {"max_turns": {"$callable": CODE}}),
    "a tool in a keyword": ("kwargs", {"tools": [MCP]}),
    "a name in a keyword": ("kwargs", {"grader": CODE}),
    "an environment on a server": ("env", f"remote:http://evil.example:9/{GUESS}"),
    "a server of environments": ("env", "openenv:http://evil.example:9"),
    "a server in a keyword": ("kwargs", {"corpus": "http://evil.example/retrieve"}),
    "a server of the name with a blank": ("agent", "openai:m 1@http://evil.example/v1"),
    "a server to sign in to": ("kwargs", {"backend": "postgres", "dsn": "host=evil.example"}),
    "another player's server": ("agent", "openai:m@http://evil.example/v1"),
}
named = pytest.mark.parametrize(("kind", "name"), NAMED.values(), ids=NAMED)


def toml(kind, name, wanted):
    """Return the value for a place in a TOML file: the hostile one, or a harmless one."""
    usual = {"env": GUESS, "wrapper": "concat", "kwargs": {}, "agent": "random"}
    return inline(name if kind == wanted else usual[wanted])


def inline(value):
    """Return a value as TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {inline(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    return json.dumps(value)


@named
def test_a_suite_of_somebody_else_runs_nothing(kind, name, folder, capsys):
    env, wrapper, kwargs, agent = (toml(kind, name, each) for each in ("env", "wrapper", "kwargs", "agent"))
    (folder / "s.toml").write_text(
        f"name = 's'\n[agent]\nname = {agent}\n[[environments]]\nid = {env}\nwrappers = [{wrapper}]\n"
        f"kwargs = {kwargs}\n"
    )
    assert main(["eval", "s.toml", "-n", "1"]) == MISUSED
    assert "--trust" in capsys.readouterr().err
    assert not (folder / "ran").exists()


STUDY = """
title = "t"
seeds = [1]
[settings]
episodes = 8
wrappers = [{wrapper}]
env_kwargs = {kwargs}
[[environments]]
id = {env}
[[variants]]
name = "a: b"
"""


@named
def test_a_study_of_somebody_else_runs_nothing(kind, name, folder, capsys):
    if kind == "agent":
        pytest.skip("a study names no agent")
    (folder / "s.toml").write_text(
        STUDY.format(**{each: toml(kind, name, each) for each in ("env", "wrapper", "kwargs")})
    )
    assert main(["baseline", "s.toml", "--dry-run"]) == MISUSED
    assert "--trust" in capsys.readouterr().err
    assert not (folder / "ran").exists()


def test_a_study_names_nothing_in_its_transfer(folder, capsys):
    (folder / "s.toml").write_text(
        'transfer = ["ran_at_import:Evil"]' + STUDY.format(env=f'"{GUESS}"', wrapper='"concat"', kwargs="{}")
    )
    assert main(["baseline", "s.toml", "--dry-run"]) == MISUSED
    assert "--trust" in capsys.readouterr().err


CONFIGS = {
    "env": 'env = "ran_at_import:Evil"',
    "env in a file": 'env = "ran_at_import.py:Evil"',
    "a taskset's package": 'env = "verifiers:ran-at-import"',
    "wrapper": 'wrappers = ["ran_at_import:Around"]',
    "environments": '[[environments]]\nid = "ran_at_import:Evil"',
    "environments as JSON": """environments = '[{"id": "ran_at_import:Evil"}]'""",
    "their wrappers": f'[[environments]]\nid = "{GUESS}"\nwrappers = ["ran_at_import:Around"]',
    "curriculum": f'[[curriculum]]\nid = "{GUESS}"\n[[curriculum]]\nid = "ran_at_import:Evil"',
    "logger": 'log = ["ran_at_import:Logger"]',
    "logger whose prefix is that of ids": 'log = ["code:InteractiveConsole"]',
    "algorithm": 'algorithm = "ran_at_import:mine"',
    "algorithm in a file": 'algorithm = "ran_at_import.py:mine"',
    "reward": 'reward = "ran_at_import:mine"',
    "callback": 'callback = ["ran_at_import:mine"]',
    "keyword": 'env_kwargs = {grader = "ran_at_import:shout"}',
    "keyword as JSON": """env_kwargs = '{"grader": "ran_at_import:shout"}'""",
    "opponent": 'opponent = ["openai:m@http://evil.example/v1"]',
    "sampler": 'sampler = "vllm:http://evil.example:8000"',
    "cluster": 'ray = "evil.example:6379"',
    "host": 'host = "remote:http://evil.example:8000"',
    "host behind a blank": 'host = "remote: http://evil.example:8000"',
    "host behind a tab": 'host = "remote:\\thttp://evil.example:8000"',
    "host with a tab in its scheme": 'host = "remote:ht\\ttp://evil.example:8000"',
    "host with a line feed behind its scheme": 'host = "remote:http:/\\n/evil.example:8000"',
    "host without a scheme": 'host = "remote:evil.example"',
    "host of another package": 'host = "mine:10.0.0.1:8000"',
    "environment on a server": f'env = "remote:http://evil.example:8000/{GUESS}"',
}


@pytest.mark.parametrize("text", CONFIGS.values(), ids=CONFIGS)
def test_a_config_of_somebody_else_names_nothing(text, folder, capsys):
    (folder / "c.toml").write_text(text)
    assert main(["train", "--config", "c.toml", "--episodes", "0"]) == MISUSED
    assert "--trust" in capsys.readouterr().err
    assert not (folder / "ran").exists()


LOADING = {
    "log": 'log = ["{}:Evil"]',
    "reward": 'reward = "{}:Evil"',
    "callback": 'callback = ["{}:Evil"]',
    "algorithm": 'algorithm = "{}:Evil"',
    "env": 'env = "{}:Evil"',
    "sampler": 'sampler = "{}:Evil"',
    "opponent": 'opponent = ["{}:Evil"]',
    "grader": 'env_kwargs = {{grader = "{}:Evil"}}',
}


@pytest.mark.parametrize("key", LOADING)
@pytest.mark.parametrize("prefix", sorted(SERVERS))
def test_a_module_named_like_a_server_is_not_loaded(prefix, key, folder, monkeypatch, capsys):
    """The prefix of a model or server is no module there, and no way past the rule elsewhere."""
    monkeypatch.delitem(sys.modules, prefix, raising=False)
    (folder / f"{prefix}.py").write_text(f"{TOUCH}\nEvil = shout = print\n")
    (folder / "c.toml").write_text(LOADING[key].format(prefix))
    assert main(["train", "--config", "c.toml", "--episodes", "0"]) == MISUSED
    assert prefix in MODELS.get(key, ()) or "--trust" in capsys.readouterr().err
    assert not (folder / "ran").exists()


def test_a_run_of_somebody_else_is_not_resumed_with_what_it_names(folder, capsys, monkeypatch):
    monkeypatch.setenv("GEM_CACHE", str(folder / "cache"))
    config = TrainConfig(log=("ran_at_import:Logger",), out=folder / "run")
    run = RunFolder(folder / "run")
    run.begin(config)
    assert run.read_config() == config  # this user began it here
    monkeypatch.setenv("GEM_CACHE", str(folder / "another user's"))
    monkeypatch.setattr("gem.source_files._NAMES", set())
    assert main(["train", "--out", "run", "--resume"]) == MISUSED
    assert "--trust" in capsys.readouterr().err
    assert run.read_config(trust=True) == config
    assert not (folder / "ran").exists()


def test_reading_a_run_of_somebody_else_runs_and_trusts_nothing_that_it_names(folder, monkeypatch):
    monkeypatch.setenv("GEM_CACHE", str(folder / "cache"))
    (folder / "run").mkdir()
    evil = "ran_at_import.py:Evil"
    stored = TrainConfig().to_json() | {"env": evil, "algorithm": evil, "reward": evil, "callback": [evil]}
    stored |= {"wrappers": [evil], "log": [evil], "opponent": [evil], "curriculum": [], "environments": []}
    for changed in (stored, stored | {"environments": [{"id": evil, "wrappers": [evil]}]}):
        (folder / "run" / "config.json").write_text(json.dumps(changed))
        with suppress(BadArgument):
            RunFolder(folder / "run").read_config(trust=True)  # as for its weights, or a page about it
        assert not (folder / "ran").exists()
        assert not (folder / "cache").exists()
        with pytest.raises(BadArgument, match="--trust"):
            gem.make(TaskRef(evil, foreign=True))


COMMANDS = {
    "env": ["ran_at_import:Evil"],
    "env by flag": [GUESS, "--env", f"{GUESS},ran_at_import:Evil"],
    "wrapper": [GUESS, "--wrappers", "concat,ran_at_import:Around"],
    "agent": [GUESS, "--agent", "openai:m@http://evil.example/v1"],
    "cluster": [GUESS, "--ray", "evil.example:6379"],
    "host": [GUESS, "--host", "remote:http://evil.example:8000"],
    "environment on a server": [f"remote:http://evil.example:8000/{GUESS}"],
    "itself": [GUESS, "--trust"],
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_stored_command_of_somebody_else_is_not_continued(words, folder, capsys):
    (folder / "run").mkdir()
    (folder / "run" / "command.json").write_text(json.dumps([*words, "--out", "run", "-n", "1"]))
    assert main(["eval", "--resume", "--out", "run"]) == MISUSED
    assert "--trust" in capsys.readouterr().err
    assert not (folder / "ran").exists()


def test_what_this_user_began_here_goes_on(folder, capsys, monkeypatch):
    monkeypatch.setenv("GEM_CACHE", str(folder / "cache"))
    wrapper = "gem.wrappers.transform:SignedReward"
    words = ["eval", GUESS, "--wrappers", wrapper, "--out", "run", "-n", "2"]
    assert main(words) == 0
    assert main(["eval", "--resume", "--out", "run"]) == 0


@pytest.mark.parametrize("path", sorted(ROOT.glob("baselines/*.toml")), ids=lambda path: path.stem)
def test_a_study_that_ships_with_gem_needs_no_trust(path):
    assert read_study(path).cells


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/configs/*.toml")), ids=lambda path: path.stem)
def test_a_config_that_ships_with_gem_needs_no_trust(path):
    assert read_config(path)


@pytest.mark.parametrize("name", known_suites())
def test_a_suite_that_ships_with_gem_needs_no_trust(name):
    assert load_suite(name).entries


# -- what this user named before


def forget(name):
    """Take a name from what this process has registered."""
    for known in (gem.registry.ENV_REGISTRY._registered, gem.registry._NAMED):
        known.pop(name, None)


RELAY = """
import os
import gem
from gem.testing import EchoEnv
class Relay(EchoEnv): pass
def run(command): open("ran", "w").close()
"""


@pytest.fixture
def relay(folder, monkeypatch):
    """An environment file that this user named, and a play of it that was stored."""
    monkeypatch.setenv("GEM_CACHE", str(folder / "cache"))
    (folder / "relay.py").write_text(RELAY)
    with gem.make("relay.py:Relay") as env:
        return of_file(gem.registry.task_of(env))


def test_an_environment_file_that_this_user_named_needs_no_trust(relay, folder, monkeypatch):
    assert type(gem.make(relay)).__name__ == "Relay"
    monkeypatch.setenv("GEM_CACHE", str(folder / "another user's"))
    for known in ("_SOURCES", "_NAMES"):
        monkeypatch.setattr(f"gem.source_files.{known}", type(getattr(gem.source_files, known))())
    forget(relay.spec)
    with pytest.raises(BadArgument, match="not named here before"):
        gem.make(relay)


@pytest.mark.parametrize(
    "hostile",
    [
        lambda spec, place: TaskRef(spec.replace("Relay", "gem.make"), {"env_id": "ran_at_import.py:Evil"}),
        lambda spec, place: TaskRef("x:Y", {"command": "touch ran"}, entry_point=place("os.system")),
        lambda spec, place: TaskRef(
            "x:Y", {"env_id": "ran_at_import.py:Evil"}, entry_point=place("gem.make")
        ),
        lambda spec, place: called(place("run")),
        lambda spec, place: called(place("os.system")),
        lambda spec, place: TaskRef(spec, {"turns": {"$make": place("os.system"), "args": ["touch ran"]}}),
        lambda spec, place: TaskRef(GUESS, {}, (WrapperRef(spec.replace("Relay", "gem.make")),)),
    ],
)
def test_of_such_a_file_only_what_it_defines_is_trusted(hostile, relay, folder):
    task = hostile(relay.spec, lambda name: relay.entry_point.replace("Relay", name))
    with pytest.raises(BadArgument, match="--trust"):
        gem.make(of_file(task))
    assert not (folder / "ran").exists()


def test_a_module_that_this_user_named_needs_no_trust_until_it_changes(folder, monkeypatch):
    monkeypatch.setenv("GEM_CACHE", str(folder / "cache"))
    task = TaskRef("ran_at_import:Evil", foreign=True)
    with pytest.raises(BadArgument, match="--trust"):
        gem.make(task)
    gem.make("ran_at_import:Evil")
    assert gem.make(task)
    monkeypatch.setattr("gem.source_files._NAMES", set())
    assert gem.make(task)
    forget("ran_at_import:Evil")
    (folder / "ran_at_import.py").write_text("from gem.testing import EchoEnv as Evil")
    with pytest.raises(BadArgument, match="--trust"):
        gem.make(task)


# -- what else reads tasks


def task_in_a_store(folder, task):
    with EpisodeStore(stored(folder, task), read_only=True) as store:
        return store[0]


LOADERS = {
    "a job": lambda episode: Job(episode.task, 3),
    "a runner": lambda episode: rollout([Job(episode.task, 3)], RandomAgent(), host="process"),
    "a maker": lambda episode: gem.registry.Maker(episode.task),
    "a replay": lambda episode: replay(episode),
    "branches": lambda episode: branches(episode, 0, 1),
    "a conversation": lambda episode: Conversation(episode.task, 3),
    "what-if": lambda episode: what_if(episode, 0, ["x"]),
    "a grader's reference": lambda episode: list(regrade([episode], TextGrader())),
    "a data set's row": lambda episode: gem.make(read_task(task_text(episode.task))),
    "tasks of a trainer": lambda episode: seeded_tasks(episode.task, [1]),
    "an imported table": lambda episode: gem.make(read_record(carry(episode)).task),
}


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
@pytest.mark.parametrize(
    "task",
    [WAYS["a tool's constructor starts a command"], WAYS["an environment of another package"]],
    ids=["tool", "environment"],
)
def test_whatever_makes_a_stored_task_asks_first(task, load, folder):
    episode = task_in_a_store(folder, task)
    with pytest.raises(BadArgument, match="--trust"):
        load(episode)
    assert not (folder / "ran").exists()


def test_with_trust_a_store_gives_what_it_names(folder):
    path = stored(folder, WAYS["an environment of another package"])
    with EpisodeStore(path, read_only=True, trust=True) as store:
        assert gem.make(store.task(0)).spec.id == gem.make(store[0].task).spec.id == "x:Y-v0"
    assert (folder / "ran").exists()


def test_a_flag_in_the_file_itself_trusts_nothing(folder):
    task = json.loads(codec.pack(WAYS["an environment of another package"])) | {"foreign": False}
    with pytest.raises((ValueError, BadArgument)):
        gem.make(codec.unpack(json.dumps(task).encode(), TaskRef))
    assert not (folder / "ran").exists()


def test_tasks_of_the_program_itself_go_on(folder):
    class Local(EchoEnv):
        pass

    (played,) = rollout([Job(Local, 1)], RandomAgent())
    assert not played.task.foreign
    wrapped = TransformAction(gem.make(GUESS), shouted)
    assert gem.make(gem.registry.task_of(wrapped))
    for host in ("serial", "process"):
        (played,) = rollout([Job(gem.registry.task_of(wrapped), 1)], RandomAgent(), host=host)
        assert played.scored
        assert replay(played).difference is None


def shouted(action):
    return action.upper()


# -- servers, and the token for them

TOKEN = "the-token-of-this-user"


@pytest.fixture
def heard(folder, monkeypatch):
    """A server's address, and the requests that it has got; it refuses all of them."""
    pytest.importorskip("websockets")
    monkeypatch.setenv("GEM_CACHE", str(folder / "cache"))
    monkeypatch.setenv("GEM_SERVE_TOKEN", TOKEN)
    monkeypatch.setattr("gem.source_files._NAMES", set())
    monkeypatch.setattr("gem.trust._FROM_FILES", set())
    requests = []

    def answer():
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection:
                    requests.append(connection.recv(1 << 16).decode())
                    connection.sendall(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", requests
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def named_by_a_suite(url, folder, trust=False):
    (folder / "s.toml").write_text(f"[[environments]]\nid = 'remote:{url}/{GUESS}'\n")
    for entry in load_suite("s.toml", trust=trust).entries:
        gem.make(entry.env)


def named_by_a_config(url, folder, trust=False):
    (folder / "c.toml").write_text(f"host = 'remote:{url}'\nenv = '{GUESS}'")
    with make_host(read_config(folder / "c.toml", trust)["host"], [Maker(GUESS)]) as host:
        for error in host.map([0], "reset", [1])[1].values():
            raise error


def named_by_a_store(url, folder, trust=False):
    gem.make(of_file(TaskRef(f"remote:{url}/{GUESS}")), trust=trust)


@pytest.mark.parametrize("make", [named_by_a_suite, named_by_a_config, named_by_a_store])
def test_the_token_goes_to_no_server_that_a_file_named(make, heard, folder, monkeypatch):
    url, requests = heard
    for trusted in (False, True):
        with pytest.raises(BadArgument, match="GEM_SERVE_TOKEN was not sent"):
            make(url, folder, trusted)
    assert requests
    assert not any(TOKEN in request for request in requests)
    monkeypatch.setenv("GEM_SERVE_URL", url)
    with pytest.raises(BadArgument, match="token is missing or wrong"):
        make(url, folder)
    assert TOKEN in requests[-1]


@pytest.mark.parametrize("make", [named_by_a_suite, named_by_a_config, named_by_a_store])
@pytest.mark.parametrize(
    "play",
    [
        lambda url: gem.make(f"remote:{url}/{GUESS}"),
        lambda url: rollout([Job(GUESS, 1)], RandomAgent(), host=f"remote:{url}"),
    ],
    ids=["an id", "a host"],
)
def test_it_goes_to_a_server_that_this_user_named_also_where_a_file_names_it(play, make, heard, folder):
    url, requests = heard
    with pytest.raises(BadArgument, match="token is missing or wrong"):
        play(url)
    with pytest.raises(BadArgument, match="token is missing or wrong"):
        make(url, folder)
    assert all(TOKEN in request for request in requests)


def test_a_server_that_this_user_named_needs_no_trust(folder, monkeypatch):
    monkeypatch.setenv("GEM_CACHE", str(folder / "cache"))
    monkeypatch.setattr("gem.trust._FROM_FILES", set())
    known = TaskRef("openenv:http://mine.example:9")
    with pytest.raises(BadArgument, match="--trust"):
        gem.make(of_file(known))
    monkeypatch.setattr("gem.trust._FROM_FILES", set())  # as in another process
    gem.make("openenv:http://mine.example:9").close()
    gem.make(of_file(known)).close()
    for other in ("http://mine.example:99", "http://mine.example:9\\@evil.example", "http://mine.example"):
        with pytest.raises(BadArgument, match="--trust"):
            gem.make(of_file(TaskRef(f"openenv:{other}")))


PAGES = """
from gem.testing import EchoEnv
class Pages(EchoEnv):
    def __init__(self, start="", more=()):
        super().__init__()
"""
START = "https://pages.example/first"


@pytest.fixture
def pages(folder, monkeypatch):
    """The name of an environment in a file of this user, to be made with addresses."""
    monkeypatch.setenv("GEM_CACHE", str(folder / "cache"))
    monkeypatch.setattr("gem.source_files._NAMES", set())
    monkeypatch.setattr("gem.trust._FROM_FILES", set())
    (folder / "own.py").write_text(PAGES)
    return gem.registry.spec_named("own.py:Pages")


@pytest.mark.parametrize("more", [{"start": START}, {"more": [{"at": START}]}])
@pytest.mark.parametrize("form", [Maker, lambda spec, kwargs: TaskRef(spec.id, kwargs)])
@pytest.mark.parametrize("host", ["serial", "process"])
def test_a_value_with_an_address_that_this_user_played_needs_no_trust(form, more, host, pages, monkeypatch):
    (played,) = rollout([Job(form(pages, more), 1)], RandomAgent(), host=host)
    stored = of_file(played.task)
    monkeypatch.setattr("gem.source_files._NAMES", set())  # as in another process
    gem.make(stored).close()
    others = ({"start": f"{START}/other"}, {"start": "http://evil.example"})
    for other in (*(replace(stored, kwargs=each) for each in others), of_file(TaskRef(GUESS, more))):
        with pytest.raises(BadArgument, match="--trust"):
            gem.make(other)


def test_a_value_of_a_trusted_file_is_not_this_users(pages, monkeypatch):
    task = of_file(TaskRef(pages.id, {"start": START}))
    rollout([Job(gem.registry.accept_task(task, trust=True), 1)], RandomAgent())
    monkeypatch.setattr("gem.trust._FROM_FILES", set())
    with pytest.raises(BadArgument, match="--trust"):
        gem.make(task)


@pytest.mark.parametrize(
    "odd", [" http://mine.example", "ht\ntp://mine.example", "http:\t//mine.example", "http://mine.example\r"]
)
def test_an_address_that_parsers_read_differently_is_none(odd):
    pytest.importorskip("websockets")
    assert not is_server(odd)
    assert not is_server(f"{odd}/{GUESS}")
    with pytest.raises(BadArgument, match="the server's address is"):
        make_host(f"remote:{odd}", [Maker(GUESS)])


# -- attacks on the rule itself


def line_of(spec=GUESS, kwargs=None, wrappers=(), entry_point=None):
    """Return a task as bytes, with keywords that no encoder of gem writes."""
    values = json.loads(codec.pack(TaskRef(spec)))
    values["kwargs"] = kwargs or {}
    values["wrappers"] = [{"name": name, "kwargs": given} for name, given in wrappers]
    return json.dumps(values | ({"entry_point": entry_point} if entry_point else {})).encode()


ATTACKS = {
    "a key hidden by the codec": line_of(
        kwargs={"max_turns": {"$dict": [["$make", MCP["$make"]], ["kwargs", MCP["kwargs"]]]}}
    ),
    "inside an allowed object": line_of(
        "qa:Facts-v0-easy",
        {"grader": {"$make": "gem.graders.cascade:CascadeGrader", "kwargs": {"graders": {"a": MCP}}}},
    ),
    "the keywords themselves": line_of(kwargs=MCP),
    "a wrapper's keywords": line_of(wrappers=[("concat", MCP)]),
    "partial": line_of(wrappers=[(ACTION, {"fn": {"$callable": "functools:partial"}})]),
    "methodcaller": line_of(wrappers=[(ACTION, {"fn": {"$make": "operator:methodcaller", "args": ["x"]}})]),
    "a chain of attributes": line_of(wrappers=[(ACTION, {"fn": {"$callable": "json:codecs.sys.exit"}})]),
    "eval": line_of(wrappers=[(ACTION, {"fn": {"$callable": "builtins:eval"}})]),
    "what gem imports": line_of(wrappers=[("gem.plugins:importlib.import_module", {})]),
    "gem's own command": line_of("x:Y", {"argv": ["doctor"]}, entry_point="gem.cli:main"),
    "gem's own make": line_of("x:Y", {"env_id": "ran_at_import.py:Evil"}, entry_point="gem.registry:make"),
    "gem's own make as an id": line_of("gem:make", {"env_id": "ran_at_import.py:Evil"}),
    "another game of a seat": line_of(
        "x:Y", {"game": "ran_at_import:Evil", "seat": "a"}, entry_point="gem.envs.seats.seat_env:one_seat"
    ),
    "another game of an id": line_of("multi:ConnectFour-v0-vs-random", {"game": "ran_at_import.py:Evil"}),
    "another name of a family": line_of("gymnasium:Blackjack-v1", {"name": "ran_at_import:Blackjack-v1"}),
    "a family's function": line_of(
        "x:Y", {"name": "ran_at_import:X"}, entry_point="gem.envs.bridges.textarena:make_game"
    ),
    "a server to sign in to": line_of(
        "db:Shop-v0-questions", {"backend": "postgres", "dsn": "host=evil.example"}
    ),
    "a file never named": line_of("ran_at_import.py@012345678901:Evil"),
    "its module": line_of("x:Y", entry_point="gem_source_012345678901.ran_at_import:Evil"),
    "a cache of verdicts anywhere": line_of(
        "qa:Facts-v0-easy",
        {"grader": {"$make": "gem.graders.cache:CachedGrader", "args": [None, "ran"]}},
    ),
}


@pytest.mark.parametrize("line", ATTACKS.values(), ids=ATTACKS)
def test_no_way_around_the_rule(line, folder):
    with pytest.raises((BadArgument, UnknownEnv)):
        gem.make(codec.unpack(line, TaskRef))
    assert not (folder / "ran").exists()


def test_an_allowed_name_beside_a_hostile_id_makes_what_is_allowed(folder):
    line = line_of("ran_at_import.py:Evil", {"turns": 2}, entry_point="gem.testing.doubles:EchoEnv")
    assert isinstance(gem.make(codec.unpack(line, TaskRef)), EchoEnv)
    assert not (folder / "ran").exists()


def test_what_may_be_named_exists_and_starts_nothing():
    for name in {*trust.MADE, *trust.CALLED, *trust.WRAPPERS, *trust.ENVIRONMENTS}:
        thing = load(name)
        assert callable(thing)
        assert name_of(thing) == name or name.startswith(("builtins:", "math:", "pathlib:", "unicodedata:"))
