"""Servers of others that answer nonsense: no verdict, and never the end of a run."""

import json
import threading
from contextlib import ExitStack

import pytest

pytest.importorskip("websockets")

from websockets.sync.server import serve

import gem
from gem.agents.scripted import ScriptedAgent
from gem.errors import NoVerdict
from gem.hosts.remote import Remote
from gem.record import Verdict
from gem.registry import Maker
from gem.rollout import Job, Runner

GUESS = "game:GuessTheNumber-v0-easy"
ABOUT = {"max_turns": 5, "deterministic": True, "forkable": True, "solver": "none", "solver_rate": None}
TRUE = {
    "about": {"value": {**ABOUT, "seats": ["agent"], "tools": []}},
    "describe": {"value": [{"spec": GUESS}, False]},
    "reset": {"value": ["Guess.", {}]},
    "step": {"value": ["Right.", 1.0, True, False, {}]},
}
DEEP = '[{{"id": {id}, "value": ["x", 1.0, true, false, {{"deep": ' + "[" * 2000 + "]" * 2000 + "}}]}}]"


@pytest.fixture
def lying():
    """Return a function that starts a server, which answers some verbs otherwise, and returns its address."""
    with ExitStack() as stack:

        def start(asked=None, **answers):
            def answer(socket):
                for message in socket:
                    for request in json.loads(message):
                        if asked is not None:
                            asked.append(request["verb"])
                            if len(asked) > 200:
                                return
                        said = {**TRUE, **answers}.get(request["verb"], {})
                        if isinstance(said, str):
                            socket.send(said.format(id=request["id"]))
                        else:
                            socket.send(json.dumps([{"id": request["id"], **said}]))

            server = stack.enter_context(serve(answer, "127.0.0.1", 0))
            threading.Thread(target=server.serve_forever, daemon=True).start()
            return f"http://127.0.0.1:{server.socket.getsockname()[1]}"

        yield start


def played(address):
    with Runner(ScriptedAgent(["act"] * 3), host=f"remote:{address}") as runner:
        (episode,) = runner.play([Job(GUESS, seed=1)])
    return episode


def test_an_honest_one_is_believed(lying):
    episode = played(lying())
    assert (episode.verdict, episode.earned()) == (Verdict.SCORED, 1.0)


@pytest.mark.parametrize(
    "step",
    [
        {},
        {"value": "text"},
        {"value": {"a": 1}},
        {"value": []},
        {"value": ["x", 1.0, True]},
        {"value": ["x", None, True, False, {}]},
        {"value": ["x", "1", True, False, {}]},
        {"value": ["x", 1.0, "false", "false", {}]},
        {"value": ["x", 1.0, True, False, None]},
        {"value": [5, 1.0, True, False, {}]},
        {"value": [[{"$image": []}], 1.0, True, False, {}]},
        {"error": {"type": "os.system", "message": "x"}},
        {"error": {"type": "SessionGone", "message": "x"}},
        '[{{"id": {id}, "value": ["x", NaN, true, false, {{}}]}}]',
        "[" * 100_000,
        DEEP,
    ],
    ids=str,
)
def test_a_step_that_is_none_is_no_verdict(lying, step):
    episode = played(lying(step=step))
    assert (episode.verdict, episode.earned()) == (Verdict.NONE, 0.0)


@pytest.mark.parametrize(
    "about",
    [None, [1], {"seats": ["agent"]}, {**TRUE["about"]["value"], "solver": "x"}, {**ABOUT, "seats": 1}],
    ids=str,
)
def test_claims_that_are_none_are_told(lying, about):
    with pytest.raises(NoVerdict, match="unreadable"):
        gem.make(f"remote:{lying(about={'value': about})}/{GUESS}")


@pytest.mark.parametrize("value", [None, "text", 5, {"a": 1}, [], ["x"]], ids=str)
def test_what_is_no_step_is_told(lying, value):
    with gem.make(f"remote:{lying(step={'value': value})}/{GUESS}") as env:
        env.reset(seed=1)
        with pytest.raises(NoVerdict, match="unreadable"):
            env.step("act")


def test_a_session_that_is_gone_each_time_is_not_asked_for_forever(lying):
    asked = []
    episode = played(lying(asked, reset={"error": {"type": "SessionGone", "message": "x"}}))
    assert episode.verdict is Verdict.NONE
    assert len(asked) < 20


END = {"observation": {"text": "x"}, "reward": 1.0, "done": True}


@pytest.mark.parametrize(
    "answer",
    [
        *[{"data": {**END, "reward": reward}} for reward in ("", "1.5", [], {}, [1], float("nan"), 10**400)],
        *[{"data": {**END, "done": done}} for done in ("false", 1)],
        *[{"data": {**END, "metadata": metadata}} for metadata in ([1], "x", {"verdict": "none"})],
        {"data": {**END, "reward": None}},
        {"data": {}},
        {"data": {"reward": 1.0, "done": True}},
        {"type": "state", "data": END},
        {"type": "error", "data": {}},
        {"data": None},
    ],
    ids=lambda answer: f"{answer!s:.60}",
)
def test_an_openenv_server_that_lies_is_no_verdict(answer):
    def lie(socket):
        for message in socket:
            began = json.loads(message)["type"] == "reset"
            said = {"data": {**END, "reward": None, "done": False}} if began else answer
            socket.send(json.dumps({"type": "observation", **said}))

    with serve(lie, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with gem.make(f"openenv:http://127.0.0.1:{server.socket.getsockname()[1]}", field="text") as env:
            env.reset(seed=1)
            with pytest.raises(NoVerdict):
                env.step("act")


def test_a_second_answer_of_an_openenv_server_is_not_taken_for_the_next_one():
    sent = threading.Event()

    def answer(socket):
        for message in socket:
            began = json.loads(message)["type"] == "reset"
            said = {**END, "reward": None if began else 0.5, "done": False}
            for _ in range(1 if began else 2):
                socket.send(json.dumps({"type": "observation", "data": said}))
            if not began:
                socket.ping().wait(5)  # by its answer the client has read both
                sent.set()

    with serve(answer, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with gem.make(f"openenv:http://127.0.0.1:{server.socket.getsockname()[1]}", field="text") as env:
            env.reset(seed=1)
            assert env.step("act").reward == 0.5
            assert sent.wait(5)
            with pytest.raises(NoVerdict, match="answers nothing"):
                env.step("act")


def test_the_password_of_an_openenv_server_is_not_told():
    with serve(lambda socket: socket.close(), "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"127.0.0.1:{server.socket.getsockname()[1]}"
        with (
            gem.make(f"openenv:http://me:hidden@{place}") as env,
            pytest.raises(NoVerdict, match=f"the server at http://{place} is gone"),
        ):
            env.reset(seed=1)


def carried_out(host, commands):
    host.submit_all(commands)
    outcomes = []
    while len(outcomes) < len(commands):
        outcomes += host.ready(1)
    return {outcome.index: outcome for outcome in outcomes}


def test_many_long_actions_are_more_messages_than_one(serving):
    with Remote(address=serving(limits={"message_bytes": 50_000}).url) as host:
        envs = [host.add(Maker("served:Obeying")) for _ in range(20)]
        carried_out(host, [(env, "reset", (1,), {}) for env in envs])
        steps = carried_out(host, [(env, "step", ("x" * 20_000,), {}) for env in envs])
        assert [step.error for step in steps.values()] == [None] * 20


def test_an_action_that_is_too_long_ends_its_own_episode_alone(serving):
    with Remote(address=serving(limits={"message_bytes": 50_000}).url) as host:
        envs = [host.add(Maker("served:Obeying")) for _ in range(5)]
        carried_out(host, [(env, "reset", (1,), {}) for env in envs])
        texts = {env: "x" * (900_000 if env == envs[3] else 10) for env in envs}
        steps = carried_out(host, [(env, "step", (texts[env],), {}) for env in envs])
        assert isinstance(steps.pop(envs[3]).error, NoVerdict)
        assert [step.value.info["turn"] for step in steps.values()] == [1] * 4
        again = carried_out(host, [(env, "step", ("y",), {}) for env in envs if env != envs[3]])
        assert [step.value.info["turn"] for step in again.values()] == [2] * 4
