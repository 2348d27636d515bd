"""gem's own client: environments on a server, as if they were here."""

import pickle
import socket
from functools import partial

import numpy as np
import pytest

import gem
from gem import cli
from gem.agents.random import RandomAgent
from gem.agents.scripted import ScriptedAgent
from gem.content import Image, Text
from gem.envs.bridges.addresses import split
from gem.errors import (
    BadArgument,
    CannotFork,
    EnvClosed,
    EpisodeOver,
    NoVerdict,
    ResetNeeded,
    UnknownArgument,
    UnknownEnv,
    WorkerDied,
)
from gem.evals.data_flags import DataFlags
from gem.hosts import make_host
from gem.record import StopReason, Verdict
from gem.registry import Maker
from gem.rollout import Job, Runner, branches, tree_search
from gem.rollout.demos import write_demos
from gem.specs import WrapperRef
from gem.testing import check_env

pytest.importorskip("websockets")

from gem.hosts.remote import Remote

GUESS = "game:GuessTheNumber-v0-easy"
SUDOKU = "game:Sudoku-v0-easy"


@pytest.fixture
def made():
    """Return gem.make; what it made is closed with the test."""
    envs = []

    def make(*args, **kwargs):
        envs.append(gem.make(*args, **kwargs))
        return envs[-1]

    yield make
    for env in envs:
        env.close()


@pytest.mark.system
@pytest.mark.parametrize("env_id", [GUESS, "qa:Facts-v0-easy", "vision:Charts-v0-easy"])
def test_the_contract_holds_for_an_environment_elsewhere(serving, env_id):
    if env_id.startswith("vision:"):
        pytest.importorskip("PIL")
    server = serving(env_id, limits={"rate": 1e6})
    name = f"remote:{server.url}/{env_id}"
    report = check_env(name, seeds=[0, 1])
    assert report.ok, str(report)
    assert {"forks", "pickles", "save-restore"} & set(report.held)
    assert len(server.application.sessions) == 0, "a session stayed open"


def test_its_claims_are_those_of_the_environment_there(serving, made):
    env = made(f"remote:{serving(SUDOKU).url}/{SUDOKU}")
    assert env.spec.solver == gem.spec(SUDOKU).solver
    assert env.spec.max_turns == gem.spec(SUDOKU).max_turns
    assert env.env_id.endswith(SUDOKU)
    assert made(f"remote:{serving('served:Obeying').url}/served:Obeying").tool_specs[0].name == "echo"
    facts = "qa:Facts-v0-easy"
    assert made(f"remote:{serving(facts).url}/{facts}").answer_marks == ("<answer>",)


def test_its_splits_are_those_there(serving, capsys, tmp_path):
    name = f"remote:{serving('served:Divided').url}/served:Divided"
    assert cli.main(["train", "--env", name, "--episodes", "1", "--out", str(tmp_path / "run")]) == 2
    assert "keeps tasks for testing" in capsys.readouterr().err
    assert DataFlags(split="test").kwargs([name]) == {"split": "test"}
    with pytest.raises(BadArgument, match="has no split 'dev'; accepted: train, test"):
        DataFlags(split="dev").kwargs([name])


def test_a_solver_there_is_no_breach_of_the_contract_here(serving, tmp_path):
    name = f"remote:{serving(SUDOKU).url}/{SUDOKU}"
    assert check_env(name, seeds=[0], rules=["solver"]).held == ("solver",)
    assert write_demos(name, tmp_path / "demos.jsonl", episodes=1).kept == 1


def test_forks_and_searches_are_those_of_an_environment_here(serving):
    url = serving(GUESS, limits={"rate": 1e6}).url
    found = []
    for name, host in ((GUESS, "serial"), (GUESS, f"remote:{url}"), (f"remote:{url}/{GUESS}", "serial")):
        with Runner(RandomAgent(), host=host) as runner:
            (episode,) = runner.play([Job(name, 3)])
            forks = runner.play(branches(episode, [1, 2], 3))
            search = tree_search(name, 3, runner, samples=2, keep=2)
        hashes = [fork.transcript_hash() for fork in forks]
        found.append((hashes, search.episode.transcript_hash(), all(fork.scored for fork in forks)))
    assert found[0] == found[1] == found[2]
    assert found[0][2]


def test_errors_cross_as_gems_own(serving, made):
    env = made(f"remote:{serving().url}/served:Obeying")
    with pytest.raises(ResetNeeded):
        env.step("x")
    env.reset(seed=1)
    with pytest.raises(RuntimeError, match="raised RuntimeError; the server's log") as told:
        env.step("secret")
    assert type(told.value).__name__ == "RuntimeError"
    assert not isinstance(told.value, NoVerdict)  # else an agent whose action causes it gets another try
    assert "/etc" not in str(told.value)
    with pytest.raises(NoVerdict):
        env.step("broken")
    with pytest.raises(UnknownArgument, match="takes no keyword 'length'"):
        gem.make(f"remote:{serving().url}/served:Obeying", length=9)
    with pytest.raises(UnknownEnv, match="offers no 'served:Other'; it offers served:Obeying"):
        gem.make(f"remote:{serving().url}/served:Other")
    env.close()
    env.close()
    with pytest.raises(EnvClosed):
        env.reset()


def test_listed_keywords_reach_it(serving, made):
    server = serving(keywords=["length"])
    env = made(f"remote:{server.url}/served:Obeying", length=1)
    env.reset(seed=1)
    assert env.step("x").terminated
    with pytest.raises(EpisodeOver):
        env.step("x")
    with pytest.raises(BadArgument, match="plain values"):
        made(f"remote:{server.url}/served:Obeying", length=float("inf"))


def test_a_keyword_that_no_environment_takes_is_refused(serving):
    with pytest.raises(UnknownArgument, match=r"'lenght'\. Did you mean 'length'"):
        serving(keywords=["length", "lenght"])
    serving("served:Waiting", "served:Obeying", keywords=["length"])  # one of them takes it


def test_the_last_step_that_is_allowed_is_truncated(serving, made):
    env = made(f"remote:{serving(limits={'steps': 2}).url}/served:Obeying")
    env.reset(seed=1)
    assert not env.step("x").done
    end = env.step("x")
    assert (end.terminated, end.truncated, end.info["stop"]) == (False, True, "turn_limit")


def test_a_refused_reset_is_no_new_count_of_steps(serving):
    server = serving(keywords=["length"], limits={"steps": 2})
    with Remote(address=server.url) as host:
        host.add(Maker("served:Obeying"))

        def call(verb, *args, **kwargs):
            host.submit(0, verb, args, kwargs)
            return host.ready()[0]

        call("reset", 1)
        assert not call("step", "x").value.done
        assert isinstance(call("reset", 2, length=3).error, UnknownArgument)
        assert isinstance(call("reset", -1).error, BadArgument)
        assert server.application.sessions.running == 1
        assert call("step", "x").value.info["stop"] == "turn_limit"


def test_forks_and_states_stay_on_the_server(serving, made):
    server = serving(SUDOKU)
    env = made(f"remote:{server.url}/{SUDOKU}")
    env.reset(seed=4)
    state = env.get_state()
    assert set(state["_there"]) == {"snapshot"}
    with env.fork() as twin, env.fork(seed=3) as other:
        assert len(server.application.sessions) == 3
        actions = [env.sample_random_action() for _ in range(3)]
        mine = [env.step(action) for action in actions]
        assert [twin.step(action) for action in actions] == mine
        assert other.seed == gem.make(SUDOKU, seed=0).seed or other.seed != env.seed
    env.set_state(state)
    assert [env.step(action) for action in actions] == mine
    for _ in range(20):
        env.get_state()
    with pytest.raises(BadArgument, match="kept no more"):
        env.set_state(state)


@pytest.mark.parametrize(
    ("env_id", "wrapper"),
    [(SUDOKU, None), ("multi:ConnectFour-v0-vs-random", None), (SUDOKU, "world_search_tool")],
)
def test_a_fork_with_a_seed_draws_there_as_it_does_here(serving, env_id, wrapper):
    wrappers = [wrapper] if wrapper else []
    server = serving(env_id, wrappers=wrappers)
    make = Maker(env_id, {}, tuple(wrappers))

    def play(draw, step):
        return [(action := draw(), step(action)) for _ in range(2)]

    with make() as env, Remote(address=server.url) as host:
        there = host.add(make)

        def call(index, verb, *args):
            host.submit(index, verb, args)
            (outcome,) = host.ready()
            assert outcome.error is None
            return outcome.value

        assert call(there, "reset", 0) == env.reset(seed=0)
        action = env.sample_random_action()
        env.step(action)
        assert call(there, "sample_random_action") == action
        call(there, "step", action)
        for seed in (5, 7, None):
            with env.fork(seed) as twin:
                other = host.fork(there, seed)
                mine = play(twin.sample_random_action, twin.step)
                assert (
                    play(partial(call, other, "sample_random_action"), partial(call, other, "step")) == mine
                )
                assert call(other, "introduce")[1] == twin.seed


@pytest.mark.parametrize("backend", ["serial", "thread"])
def test_a_vector_is_the_same_on_the_remote_host(serving, until, backend):
    server = serving(GUESS, SUDOKU, backend=backend)
    actions = ["\\boxed{3}", "\\boxed{1 1 2}", "nothing"]
    seen = []
    for host in ("serial", f"remote:{server.url}"):
        with gem.make_vec([GUESS, SUDOKU, GUESS], backend=host, seed=7) as envs:
            steps = [envs.reset()]
            steps += [envs.step(actions) for _ in range(6)]
            seen.append(steps)
    for here, there in zip(*seen, strict=True):
        for mine, yours in zip(here, there, strict=True):
            assert np.array_equal(mine, yours) if isinstance(mine, np.ndarray) else list(mine) == list(yours)
    until(lambda: len(server.application.sessions) == 0, "a session stayed open")


def test_a_final_info_of_the_last_step_that_is_allowed_is_no_later_one(serving):
    server = serving("served:Reusing", limits={"steps": 1})
    with gem.make_vec("served:Reusing", backend=f"remote:{server.url}") as envs:
        envs.reset()
        info = envs.step(["open"])[4][0]
    assert (info["final_info"]["success"], info["success"]) == (True, False)


def test_a_runner_records_the_same_episodes_on_the_remote_host(serving):
    server = serving(GUESS, "multi:ConnectFour-v0")
    ids = [*server.application.offers]
    jobs = [Job(env_id, seed=seed) for env_id in ids for seed in (1, 2)]
    played = []
    for host in ("serial", f"remote:{server.url}"):
        with Runner(RandomAgent(), host=host) as runner:
            played.append(runner.play(jobs))
    for here, there in zip(*played, strict=True):
        assert here.task == there.task
        assert [(turn.observation, turn.action, turn.reward, turn.info) for turn in here.turns] == [
            (turn.observation, turn.action, turn.reward, turn.info) for turn in there.turns
        ]
        assert (here.stop, here.verdict, there.error) == (there.stop, there.verdict, None)
    recorded = played[0][0]
    with Runner(RandomAgent(), host=f"remote:{server.url}") as runner:
        (again,) = runner.play([Job(recorded.task, seed=recorded.seed)])
    assert [turn.action for turn in again.turns] == [turn.action for turn in recorded.turns]


def test_values_of_wrong_types_are_those_on_other_hosts(serving):
    server = serving()
    played = []
    for host in ("serial", f"remote:{server.url}"):
        for word in ("bytes", "knot", "fraction"):
            with Runner(ScriptedAgent([word]), host=host, retries=0) as runner:
                (episode,) = runner.play([Job("served:Obeying", seed=1)])
            (turn,) = episode.turns
            error = None if episode.error is None else (episode.error.boundary, episode.error.type)
            played.append((episode.stop, error, turn.reward, episode.final_observation))
    assert played[:3] == played[3:]
    assert [(error, reward) for _, error, reward, _ in played[:3]] == [
        (("env", "BadArgument"), None),
        (("env", "RecursionError"), None),
        (None, 0.25),
    ]


def test_a_server_that_dies_is_no_verdict(serving):
    server = serving("served:Obeying")

    def stopping(ask):
        if ask.turn == 1:
            server.stop()
            server.thread.join(20)
        return "x"

    host = Remote(address=server.url, patience_s=0.1)
    with host, Runner(ScriptedAgent(stopping), host=host, retries=0) as runner:
        (episode,) = runner.play([Job("served:Obeying", seed=1)])
    assert (episode.stop, episode.verdict) == (StopReason.ERROR, Verdict.NONE)
    assert (episode.error.boundary, episode.error.type) == ("host", "WorkerDied")
    assert [turn.reward for turn in episode.turns] == [1 / 8, None]


def test_a_lost_connection_is_made_again_and_nothing_is_carried_out_twice(serving):
    server = serving("served:Waiting")
    with Remote(address=server.url) as host:
        for _ in range(3):
            host.add(Maker("served:Waiting"))
        host.map([0, 1, 2], "reset", [1, 2, 3])
        from served_envs import Obeying

        Obeying.gate.clear()
        host.submit_all([(index, "step", ("wait",), {}) for index in range(3)])
        assert host.ready(timeout=0.1) == []
        host._connection.socket.shutdown(
            socket.SHUT_RDWR
        )  # the cable is pulled while the calls are in flight
        Obeying.gate.set()
        steps = {outcome.index: outcome.value for outcome in host.ready(3)}
        assert [steps[index].info["turn"] for index in range(3)] == [1, 1, 1]
        values, errors = host.map([0, 1, 2], "step", ["x"] * 3)
        assert not errors
        assert [value.info["turn"] for value in values] == [2, 2, 2]
    assert server.application.metrics["answers_repeated_total"] == 3


def test_a_server_that_began_anew_has_lost_the_episodes_and_nothing_else(serving):
    first = serving()
    host = Remote(address=first.url)
    with host:
        for _ in range(2):
            host.add(Maker("served:Obeying"))
        host.map([0, 1], "reset", [1, 2])
        first.application.sessions.forget()
        values, errors = host.map([0, 1], "step", ["x", "x"])
        assert values == [None, None]
        assert [type(error) for error in errors.values()] == [WorkerDied, WorkerDied]
        values, errors = host.map([0, 1], "reset", [1, 2])
        assert not errors


def test_a_call_that_takes_too_long_is_given_up_and_its_session_closed(serving, until):
    from served_envs import Obeying

    server = serving("served:Waiting", limits={"call_s": 10.0})
    Obeying.gate.clear()
    with Remote(address=server.url, call_s=0.3) as host:
        host.add(Maker("served:Waiting"))
        host.map([0], "reset", [1])
        _, errors = host.map([0], "step", ["wait"])
        assert isinstance(errors[0], WorkerDied)
        Obeying.gate.set()
        _, errors = host.map([0], "reset", [1])
        assert not errors
    until(lambda: len(server.application.sessions) == 0, "the session stayed")


def test_a_call_that_is_interrupted_is_given_up_and_its_session_closed(serving, until, made, monkeypatch):
    from served_envs import Obeying

    server = serving("served:Waiting", limits={"call_s": 10.0})
    env = made(f"remote:{server.url}/served:Waiting")
    env.reset(seed=1)
    Obeying.gate.clear()
    for call in (lambda: env.step("wait"), lambda: env.fork(seed=2)):
        with monkeypatch.context() as patch:
            patch.setattr(Remote, "ready", interrupted)
            with pytest.raises(KeyboardInterrupt):
                call()
        Obeying.gate.set()
    with pytest.raises(WorkerDied, match="the episode of env 0 is gone"):
        env.step("x")
    assert env.reset(seed=1).obs == made("served:Obeying").reset(seed=1).obs
    until(lambda: len(server.application.sessions) == 1, "a session stayed")
    monkeypatch.setattr(Remote, "ready", interrupted)
    with pytest.raises(KeyboardInterrupt), env:
        env.step("x")
    until(lambda: len(server.application.sessions) == 0, "the session stayed")


def interrupted(host, at_least=1, timeout=None):
    raise KeyboardInterrupt


def test_what_cannot_be_sent_or_reached_is_told(serving):
    server = serving(token="t" * 16)
    with pytest.raises(BadArgument, match="http://host:port"):
        make_host("remote")
    with pytest.raises(BadArgument, match="http://host:port"):
        make_host("remote:localhost:8000")
    with pytest.raises(BadArgument, match="serial takes no address"):
        make_host("serial:x")
    with Remote(address=server.url) as host:
        with pytest.raises(BadArgument, match="accepted on a remote host: a Maker"):
            host.add(lambda: None)
        with pytest.raises(BadArgument, match="wrapper <function"):
            host.add(Maker(GUESS, wrappers=(lambda env: env,)))
        host.add(Maker("served:Obeying"))
        _, errors = host.map([0], "reset", [1])
        assert "set GEM_SERVE_TOKEN" in str(errors[0])
    with Remote(address=server.url, token="t" * 16) as host:
        host.add(Maker("served:Obeying", wrappers=(WrapperRef("concat", {}),)))
        host.add(Maker("served:Obeying"))
        _, errors = host.map([0, 1], "reset", [1, 1])
        assert "puts no wrapper 'concat'" in str(errors[0])
        assert 1 not in errors
    with Remote(address="http://127.0.0.1:9", patience_s=0.0) as host:
        host.add(Maker("served:Obeying"))
        _, errors = host.map([0], "reset", [1])
        assert isinstance(errors[0], WorkerDied)


def test_an_environment_of_others_is_played_by_openenvs_protocol(serving, made):
    env, here = made(f"openenv:{serving(GUESS).url}"), gem.make(GUESS)
    for seed in (1, 2):
        assert env.reset(seed=seed).obs == here.reset(seed=seed).obs
        done = False
        while not done:
            action = here.sample_random_action()
            yours, mine = env.step(action), here.step(action)
            assert yours[:4] == mine[:4]
            done = mine.done
        assert yours.info["stop"] == mine.info["stop"]
        with pytest.raises(EpisodeOver):
            env.step("x")


@pytest.mark.parametrize(
    ("field", "kind", "written", "sent"),
    [
        ("message", "string", "<think>Or b?</think>a", "a"),
        ("message", "string", '<think>Or b?</think>{"message": "a"}', "a"),
        ("number", "integer", "Or 8?</think>7", 7),
        ("text", "string", "<think>Or b?</think>a", "<think>Or b?</think>a"),  # a gem server drops it itself
    ],
)
def test_servers_of_others_are_sent_no_thinking(monkeypatch, made, field, kind, written, sent):
    env = made("openenv:http://127.0.0.1:9")
    monkeypatch.setattr(env, "_fields", {field: kind})
    assert env._action(written) == {field: sent}


def test_a_token_stays_out_of_records_and_pickles(serving, made):
    token = "t" * 16
    env = made(f"remote:{serving(token=token).url}/served:Obeying", token=token)
    env.reset(seed=1)
    assert token.encode() not in pickle.dumps(env)
    assert token not in repr(gem.registry.task_of(env))


def test_what_goes_wrong_there_is_no_reward_here(serving, made):
    server = serving(limits={"steps": 2})
    env = made(f"openenv:{server.url}")
    assert not env.forkable
    for action in ("secret", "broken", "nan", "error"):
        env.reset(seed=1)
        with pytest.raises(NoVerdict):
            env.step(action)
    env.reset(seed=1)
    assert env.step("picture").obs == (Text("see"), Image(b"\x89PNG", alt="[a cat]"))
    end = env.step('{"text": "x"}')
    assert (end.terminated, end.truncated, end.info["stop"]) == (False, True, "turn_limit")
    assert end.obs.startswith("x ")
    named = made(f"openenv:{server.url}", field="message")
    named.reset(seed=1)
    refused = named.step("x")  # whatever an agent writes is no way out of the episode
    assert "has message" in refused.obs
    assert refused[1:] == (0.0, False, False, {"refused": True})
    server.stop()
    server.thread.join(20)
    with pytest.raises(WorkerDied):
        env.reset(seed=1)
    for name in ("localhost:8000", "http://", "http://x:port", "http://[", "ftp://x/y"):
        with pytest.raises(BadArgument, match="accepted: http://host:port"):
            gem.make(f"openenv:{name}")
        with pytest.raises(BadArgument, match="accepted: http://host:port/ID"):
            gem.make(f"remote:{name}/")


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("http://a:1/game:X", ("http://a:1", "game:X")),
        ("https://a/below/game:X-v0", ("https://a/below", "game:X-v0")),
        ("http://a:1/ta:Taboo-v0-city/country", ("http://a:1", "ta:Taboo-v0-city/country")),
        ("http://a:1/below/Plain", ("http://a:1/below", "Plain")),
        ("http://a:1/", None),
    ],
)
def test_an_address_is_split_where_the_id_begins(name, place):
    assert split(name) == place


def test_a_state_that_lives_elsewhere_cannot_be_had(serving, made):
    server = serving()
    env = made(f"remote:{server.url}/served:Obeying")
    env._claims["forkable"] = False
    with pytest.raises(CannotFork):
        env.fork()
