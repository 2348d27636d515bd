from __future__ import annotations

import math
import os
import signal
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest
from clocks import Clock
from host_envs import Careless, Fragile, Reusing, Scripted
from hypothesis import given, settings
from hypothesis import strategies as st

import gem
from gem import seeding
from gem.core import Env
from gem.errors import (
    BadAction,
    BadArgument,
    EnvClosed,
    EpisodeOver,
    ResetNeeded,
    UnknownArgument,
    UnknownEnv,
)
from gem.hosts.base import KINDS, make_host
from gem.registry import Maker
from gem.testing import EchoEnv
from gem.vector import vector_env
from gem.vector.vector_env import AsyncVectorEnv, AutoresetMode, Results, SyncVectorEnv, VectorEnv

ANY = pytest.mark.parametrize("backend", KINDS)
GUESS = "game:GuessTheNumber-v0-hard"


def transcript(vec: VectorEnv, actions: list[list[str]], seed: int | None = 3) -> list[Any]:
    """Everything a vector says, in plain values."""
    said: list[Any] = [vec.reset(seed=seed)[0]]
    for row in actions:
        obs, reward, terminated, truncated, infos = vec.step(row)
        said.append((obs, list(map(repr, reward)), terminated.tolist(), truncated.tolist(), infos))
    return said


@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(st.integers(1, 50), min_size=4, max_size=4), min_size=1, max_size=30), st.data())
def test_the_same_seed_and_actions_give_the_same_transcript_on_threads(
    rows: list[list[int]], data: st.DataObject
) -> None:
    seed = data.draw(st.integers(0, 2**40))
    actions = [[f"\\boxed{{{guess}}}" for guess in row] for row in rows]
    said = []
    for backend in ("serial", "thread"):
        with VectorEnv([Maker(GUESS)] * 4, backend) as vec:
            said.append(transcript(vec, actions, seed))
    assert said[0] == said[1]


def test_the_same_seed_and_actions_give_the_same_transcript_on_every_host() -> None:
    words = ["go", "raise", "go", "exit", "cut", "go", "go", "go", "go", "go", "go", "raise"]
    actions = [[words[(turn + 3 * i) % len(words)] for i in range(6)] for turn in range(40)]
    said = []
    for backend in KINDS:
        with VectorEnv([Fragile, *[Scripted] * 5], backend, seed=1) as vec:
            said.append([strip(each) for each in transcript(vec, actions)])
    assert said[0] == said[1] == said[2]
    assert "no luck" in str(said[0])
    assert "asked to" in str(said[0])


def strip(value: Any) -> Any:
    """Drop the process ids."""
    if isinstance(value, dict):
        return {key: strip(each) for key, each in value.items() if key != "pid"}
    return type(value)(map(strip, value)) if isinstance(value, list | tuple) else value


def test_every_environment_plays_the_episodes_it_would_play_alone() -> None:
    actions = [f"\\boxed{{{guess}}}" for guess in (3, 40, 11, 28, 50, 1, 17, 33, 25, 6)] * 4
    with VectorEnv([Maker(GUESS)] * 3, seed=8) as vec:
        obs, _ = vec.reset()
        said = [[text] for text in obs]
        for action in actions:
            obs, _, _, _, infos = vec.step([action] * 3)
            for i, info in enumerate(infos):
                said[i] += [info["final_obs"]] if "final_obs" in info else []
                said[i].append(obs[i])
    for i in range(3):
        env = gem.make(GUESS)
        alone = [env.reset(seed=seeding.derive(8, "env", i)).obs]
        for action in actions:
            step = env.step(action)
            alone.append(step.obs)
            if step.done:
                alone.append(env.reset().obs)
        assert said[i] == alone


# -- results


@ANY
def test_step_and_reset_return_lists_and_arrays(backend: str) -> None:
    with VectorEnv([Scripted] * 3, backend, seed=0) as vec:
        obs, infos = vec.reset()
        assert [type(obs), type(infos), len(obs), len(vec), vec.num_envs] == [list, list, 3, 3, 3]
        obs, reward, terminated, truncated, infos = vec.step(["a", "b", "c"])
        assert [text[0] for text in obs] == ["a", "b", "c"]
        assert reward.dtype == np.float64
        assert terminated.dtype == truncated.dtype == np.bool_
        assert reward.tolist() == [1 / 8] * 3
        assert [info["turn"] for info in infos] == [1, 1, 1]


@ANY
def test_a_mapping_steps_some_and_returns_in_its_own_order(backend: str) -> None:
    with VectorEnv([Scripted] * 4, backend, seed=0) as vec:
        vec.reset()
        obs, reward, *_ = vec.step({3: "three", 1: "one"})
        assert [text.split()[0] for text in obs] == ["three", "one"]
        assert reward.shape == (2,)
        assert [info["turn"] for info in vec.step(["go"] * 4)[4]] == [1, 2, 1, 2]
        assert [info["turn"] for info in vec.step({2: "go", 0: "go", 3: "go", 1: "go"})[4]] == [2, 2, 3, 3]
        assert len(vec.reset(indices=[3, 2, 1, 0])[0]) == 4
        with pytest.raises(BadArgument, match="accepted: 0 to 3, each once"):
            vec.step({0: "go", 4: "go"})


def test_send_and_recv_let_each_environment_go_at_its_own_pace() -> None:
    gate = threading.Event()
    with VectorEnv([partial(Scripted, length=100, gate=gate)] * 4, "thread", seed=0) as vec:
        vec.reset()
        vec.send(["wait", "go", "go", "go"])
        turns = dict.fromkeys(range(4), 0)
        while turns[1] + turns[2] + turns[3] < 30:
            results = vec.recv()
            assert isinstance(results, Results)
            assert len(results.indices) == len(results.obs) == len(results.reward) >= 1
            for index, info in zip(results.indices, results.infos, strict=True):
                turns[index] = info["turn"]
            vec.send(dict.fromkeys(results.indices, "go"))
        assert turns[0] == 0
        gate.set()
        while 0 not in vec.recv().indices:
            pass


def test_recv_returns_what_is_there_when_time_is_up() -> None:
    gate = threading.Event()
    with VectorEnv([partial(Scripted, gate=gate)] * 2, "thread", seed=0) as vec:
        vec.reset()
        vec.send(["wait", "wait"])
        results = vec.recv(timeout=0.01)
        assert results.indices == [] == results.obs
        assert results.reward.shape == (0,)
        gate.set()
        assert sorted(vec.recv(2).indices) == [0, 1]


def test_recv_waits_for_its_time_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(vector_env, "perf_counter", clock)
    waits = []

    def ready(at_least: int, timeout: float) -> list[Any]:
        waits.append((at_least, timeout))
        clock.advance(4.0)
        return []

    with VectorEnv([Scripted] * 2, seed=0) as vec, monkeypatch.context() as patch:
        vec.reset()
        vec.send(["go", "go"])
        patch.setattr(vec._host, "ready", ready)
        assert vec.recv(2, timeout=12.0).indices == []
        assert waits == [(2, 12.0), (2, 8.0), (2, 4.0)]


# -- seeds


def test_seeds_are_derived_given_or_go_on() -> None:
    def drawn(vec: VectorEnv, **kwargs: Any) -> list[Any]:
        return vec.reset(**kwargs)[0]

    one, two = (VectorEnv([Scripted] * 2, seed=4) for _ in range(2))
    first = drawn(one)
    assert (
        first == drawn(two, seed=4) == [Scripted().reset(seeding.derive(4, "env", i)).obs for i in range(2)]
    )
    assert drawn(one) == drawn(two) != first
    assert drawn(one, seed=[5, 5]) == [Scripted().reset(5).obs] * 2
    assert drawn(one, seed=np.int64(4)) == first
    assert drawn(one, seed=[9], indices=[1]) == [Scripted().reset(9).obs]
    assert drawn(one, env1_kwargs={"seed": 9})[1] == Scripted().reset(9).obs
    assert drawn(one)[1] == Scripted().reset(seeding.derive(9, "next")).obs
    with pytest.raises(BadArgument, match="seed is -1"):
        one.reset(seed=-1)
    with pytest.raises(BadArgument, match="3 seeds for 2 env"):
        one.reset(seed=[1, 2, 3])


def test_without_a_seed_each_environment_keeps_its_own() -> None:
    vec = VectorEnv([lambda: gem.make(GUESS, seed=6)] * 2)
    assert vec.reset()[0] == [gem.make(GUESS, seed=6).reset().obs] * 2
    assert VectorEnv([Scripted]).reset()[0] != VectorEnv([Scripted]).reset()[0]


# -- auto-reset


@ANY
def test_same_step_begins_the_next_episode_and_keeps_the_end(backend: str) -> None:
    with VectorEnv([partial(Scripted, length=2)], backend, seed=0) as vec:
        vec.reset()
        vec.step(["one"])
        obs, reward, terminated, truncated, infos = vec.step(["two"])
        assert obs[0].startswith("start")
        assert (reward[0], terminated[0], truncated[0]) == (2 / 8, True, False)
        assert infos[0]["final_obs"].startswith("two")
        assert infos[0]["final_info"] == {"turn": 2}
        assert "pid" in infos[0]  # the info of the new episode's reset
        assert vec.step(["three"])[4][0]["turn"] == 1


@ANY
@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_infos_stay_as_they_were_returned(backend: str, mode: str) -> None:
    with VectorEnv([Reusing], backend, seed=0, autoreset_mode=mode) as vec:
        infos = [vec.reset()[1][0]]
        infos += [vec.step([action])[4][0] for action in ("knock", "open", "knock", "open")]
    won = {"success": True, "said": ["knock", "open"]}
    start = {"success": False, "said": []}
    first = {"success": False, "said": ["knock"]}
    if mode == "same_step":
        again = {**start, "final_obs": "open", "final_info": won}
        assert infos == [start, first, again, first, again]
    else:
        assert infos == [start, first, won, start, {"success": True, "said": ["open"]}]


@ANY
def test_next_step_ignores_the_action_after_the_end(backend: str) -> None:
    with VectorEnv([partial(Scripted, length=1)] * 2, backend, seed=0, autoreset_mode="next_step") as vec:
        first, _ = vec.reset()
        obs, _, terminated, _, infos = vec.step(["one", "two"])
        assert [text.split()[0] for text in obs] == ["one", "two"]
        assert terminated.all()
        assert "final_obs" not in infos[0]
        obs, reward, terminated, truncated, _ = vec.step({1: "ignored"})
        assert obs[0].startswith("start")
        assert obs[0] != first[1]
        assert (reward[0], terminated[0], truncated[0]) == (0, False, False)
        obs, *_ = vec.step(["ignored", "three"])
        assert obs[0].startswith("start")
        assert obs[1].startswith("three")


@ANY
def test_disabled_leaves_the_reset_to_the_caller(backend: str) -> None:
    with VectorEnv([partial(Scripted, length=1)] * 2, backend, seed=0, autoreset_mode="disabled") as vec:
        vec.reset()
        vec.step({0: "one"})
        with pytest.raises(EpisodeOver, match=r"the episode of env 0 is over; call reset\(indices=\[0\]\)"):
            vec.step(["two", "two"])
        vec.reset(indices=[0])
        obs, *_ = vec.step(["three", "three"])
        assert all(text.startswith("three") for text in obs)


def test_modes_are_read_in_either_spelling() -> None:
    assert AutoresetMode("SameStep") is AutoresetMode.SAME_STEP
    assert AutoresetMode("NextStep") is AutoresetMode("next_step") is AutoresetMode.NEXT_STEP
    with pytest.raises(BadArgument, match="'later'; accepted: same_step, next_step, disabled"):
        VectorEnv([Scripted], autoreset_mode="later")


# -- what breaks


@ANY
@pytest.mark.parametrize("mode", AutoresetMode)
def test_an_exception_ends_one_episode_and_gives_a_fresh_environment(
    backend: str, mode: AutoresetMode
) -> None:
    with VectorEnv([Scripted] * 3, backend, seed=0, autoreset_mode=mode) as vec:
        vec.reset()
        obs, reward, terminated, truncated, infos = vec.step(["go", "raise", "go"])
        assert np.isnan(reward).tolist() == [False, True, False]
        assert truncated.tolist() == [False, True, False]
        assert not terminated.any()
        error = {"boundary": "env", "type": "ValueError", "message": "asked to"}
        assert infos[1]["final_info"]["error"] == error
        assert obs[1].startswith("start") is (mode == "same_step")
        if mode == "disabled":
            with pytest.raises(EpisodeOver):
                vec.step(["go"] * 3)
            vec.reset(indices=[1])
        if mode == "next_step":
            assert vec.step({1: "ignored"})[0][0].startswith("start")
        _, reward, _, _, infos = vec.step(["go"] * 3)
        assert not np.isnan(reward).any()
        assert [info["turn"] for info in infos] == [2, 1, 2]


@pytest.mark.system
@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_killed_worker_breaks_its_episodes_and_no_others(mode: AutoresetMode) -> None:
    count = 2 * (os.cpu_count() or 1)
    with VectorEnv([Scripted] * count, "process", seed=0, autoreset_mode=mode) as vec:
        _, infos = vec.reset()
        vec.send({0: "hang"})
        os.kill(infos[0]["pid"], signal.SIGKILL)
        results = vec.recv()
        assert results.indices == [0]
        assert math.isnan(results.reward[0])
        assert results.infos[0]["final_info"]["error"]["boundary"] == "host"
        neighbours = [i for i in range(1, count) if infos[i]["pid"] == infos[0]["pid"]]
        others = [i for i in range(1, count) if i not in neighbours]
        assert neighbours
        _, reward, _, truncated, later = vec.step(dict.fromkeys(neighbours + others, "go"))
        assert np.isnan(reward).tolist() == [True] * len(neighbours) + [False] * len(others)
        assert truncated.tolist() == np.isnan(reward).tolist()
        assert all(info["final_info"]["error"]["type"] == "WorkerDied" for info in later[: len(neighbours)])
        vec.reset()
        assert [info["turn"] for info in vec.step(["go"] * count)[4]] == [1] * count


@pytest.mark.parametrize("backend", ["thread", "process"])
@pytest.mark.system
def test_a_hung_environment_is_given_up(backend: str) -> None:
    with VectorEnv([Scripted] * 2, backend, seed=0, call_s=2.0) as vec:
        vec.reset()
        obs, reward, _, _, infos = vec.step(["hang", "go"])
        assert infos[0]["final_info"]["error"]["type"] == "WorkerDied"
        assert math.isnan(reward[0])
        assert obs[0].startswith("start")


def odd_and_even(vec: VectorEnv) -> tuple[int, int]:
    """Return a seed for which Fragile breaks at once, and one whose next episode breaks."""
    return 1, next(s for s in range(0, 1000, 2) if seeding.derive(s, "next") % 2)


@ANY
def test_an_episode_that_breaks_in_its_reset_is_reported_at_its_next_step(backend: str) -> None:
    with VectorEnv([partial(Fragile, length=1), Scripted], backend) as vec:
        odd, _ = odd_and_even(vec)
        obs, infos = vec.reset(seed=[odd, 0])
        assert obs[0] == ""
        assert infos[0]["error"]["type"] == "OSError"
        obs, reward, _, truncated, infos = vec.step(["go", "go"])
        assert math.isnan(reward[0])
        assert truncated.tolist() == [True, False]
        assert infos[0]["final_info"]["error"]["message"] == "no luck"


@ANY
def test_an_auto_reset_that_breaks_keeps_the_end_of_the_episode_before(backend: str) -> None:
    with VectorEnv([partial(Fragile, length=1)], backend) as vec:
        _, seed = odd_and_even(vec)
        vec.reset(seed=[seed])
        obs, reward, terminated, _, infos = vec.step(["go"])
        assert (obs[0], reward[0], terminated[0]) == ("", 1 / 8, True)
        assert infos[0]["final_obs"].startswith("go")
        assert infos[0]["error"]["type"] == "OSError"
        _, reward, _, truncated, infos = vec.step(["go"])
        assert math.isnan(reward[0])
        assert truncated[0]
        assert infos[0]["final_info"]["error"]["type"] == "OSError"


class Never(Env):
    def reset(self, seed: int | None = None) -> Any:
        super().reset(seed)
        raise OSError("never")


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_an_environment_that_never_resets_does_not_stop_the_others(mode: str) -> None:
    with VectorEnv([Never, Scripted], seed=0, autoreset_mode=mode) as vec:
        vec.reset()
        for turn in range(1, 4):
            _, reward, _, _, infos = vec.step(["go", "go"])
            assert math.isnan(reward[0])
            assert infos[0]["final_info"]["error"]["message"] == "never"
            assert infos[1]["turn"] == turn


class Faulty(Scripted):
    """Returns the values that the action names; its episodes after the first begin with those of `start`."""

    def __init__(self, start: Any = ("go", {}), length: int = 5) -> None:
        super().__init__(length)
        self.start, self.episodes = start, 0

    def reset(self, seed: int | None = None) -> Any:
        super().reset(seed)
        self.episodes += 1
        if self.start == "exit" and self.episodes > 1:
            raise SystemExit(4)
        return self.start if self.episodes > 1 else ("go", {})

    def step(self, action: str) -> Any:
        match action:
            case "stop iterating":
                return next(iter(()))
            case "obs":
                return None, 0.0, False, False, {}
            case "text":
                return "on", "0.5", False, False, {}
            case "list":
                return "on", [1, 2], False, False, {}
            case "huge":
                return "on", 10**400, False, False, {}
            case "flag":
                return "on", 0.0, "no", False, {}
            case "info":
                return "on", 0.0, False, False, None
        return super().step(action)


FAULTS = {
    "stop iterating": "StopIteration",
    "obs": "BadArgument",
    "text": "ContractBroken",
    "list": "ContractBroken",
    "huge": "ContractBroken",
    "flag": "ContractBroken",
    "info": "ContractBroken",
}


@ANY
def test_a_step_with_values_of_wrong_types_breaks_its_own_episode_alone(backend: str) -> None:
    with VectorEnv([Faulty] * 3, backend, seed=0) as vec:
        vec.reset()
        for at, (fault, kind) in enumerate(FAULTS.items()):
            places = [at % 3, (at + 1) % 3, (at + 2) % 3]
            _, reward, _, truncated, infos = vec.step(dict(zip(places, [fault, "go", "go"], strict=True)))
            assert np.isnan(reward).tolist() == truncated.tolist() == [True, False, False]
            assert infos[0]["final_info"]["error"]["type"] == kind
            vec.reset()


@ANY
@pytest.mark.parametrize("start", [(None, {}), ("go", None), ("go",), "exit"])
def test_a_next_episode_with_a_wrong_start_keeps_the_end_of_the_one_before(backend: str, start: Any) -> None:
    with VectorEnv([partial(Faulty, start, length=1), Scripted], backend, seed=0) as vec:
        vec.reset()
        obs, reward, terminated, _, infos = vec.step(["go", "go"])
        assert reward.tolist() == [1 / 8, 1 / 8]
        assert terminated.tolist() == [True, False]
        assert (obs[0], infos[0]["final_info"]["turn"]) == ("", 1)
        if start == "exit":
            failure = {"boundary": "env", "type": "NoVerdict", "message": "the environment called exit(4)."}
            assert infos[0]["error"] == failure
        _, reward, *_ = vec.step(["go", "go"])
        assert np.isnan(reward).tolist() == [True, False]


@ANY
def test_a_reset_with_values_of_wrong_types_breaks_its_own_episode_alone(backend: str) -> None:
    recipes = [partial(Faulty, (None, {}), length=1), Scripted]
    with VectorEnv(recipes, backend, seed=0, autoreset_mode="next_step") as vec:
        vec.reset()
        vec.step(["go", "go"])
        obs, reward, _, truncated, infos = vec.step(["ignored", "go"])
        assert np.isnan(reward).tolist() == truncated.tolist() == [True, False]
        assert (obs[0], infos[0]["final_info"]["error"]["type"]) == ("", "BadArgument")
        assert infos[1]["turn"] == 2


@ANY
def test_an_info_that_cannot_be_copied_breaks_its_own_episode_alone(backend: str) -> None:
    recipes = [partial(Careless, "knot", "reset"), partial(Careless, "knot"), Scripted]
    with VectorEnv(recipes, backend, seed=0) as vec:
        _, infos = vec.reset()
        assert [info.get("error", {}).get("type") for info in infos] == ["RecursionError", None, None]
        _, reward, _, truncated, infos = vec.step(["go"] * 3)
        assert np.isnan(reward).tolist() == truncated.tolist() == [True, True, False]
        for info in infos[:2]:
            assert info["final_info"]["error"]["type"] == "RecursionError"


# -- misuse


@ANY
def test_the_callers_mistakes_are_raised_and_change_nothing(backend: str) -> None:
    with VectorEnv([Scripted] * 2, backend, seed=0) as vec:
        with pytest.raises(ResetNeeded, match=r"env 0 has not begun; call reset\(\)"):
            vec.step(["a", "b"])
        vec.reset()
        for actions in (["a"], ["a", "b", "c"], "ab"):
            with pytest.raises(BadArgument, match="for 2 environments; give one action each"):
                vec.step(actions)
        for actions in ({2: "a"}, {-1: "a"}, {"0": "a"}, {}):
            with pytest.raises(BadArgument, match="env indices are"):
                vec.step(actions)  # type: ignore[arg-type]
        with pytest.raises(BadAction, match="action of env 1 is int 5; it must be str"):
            vec.step(["a", 5])  # type: ignore[list-item]
        with pytest.raises(BadArgument, match="0 calls are in flight"):
            vec.recv()
        vec.send({0: "a"})
        with pytest.raises(BadArgument, match="env 0 has a call in flight"):
            vec.send({0: "a"})
        with pytest.raises(BadArgument, match=r"1 steps are in flight; recv\(\) them before step"):
            vec.step(["a", "b"])
        with pytest.raises(BadArgument, match="before reset"):
            vec.reset(indices=[1])
        with pytest.raises(BadArgument, match="at_least is 2"):
            vec.recv(2)
        assert vec.recv().indices == [0]
        assert [info["turn"] for info in vec.step(["a", "b"])[4]] == [2, 1]
        for indices in ([0, 0], [], [2], [True, False], np.array([], int), np.array([True, False]), 1):
            with pytest.raises(BadArgument, match="accepted: 0 to 1, each once"):
                vec.reset(indices=indices)
        with pytest.raises(BadArgument, match="got None for 2 environments"):
            vec.step(None)
    vec.close()
    with pytest.raises(EnvClosed):
        vec.step(["a", "b"])


def test_indices_and_seeds_may_be_arrays() -> None:
    with VectorEnv([partial(Scripted, length=1)] * 2, seed=0, autoreset_mode="disabled") as vec:
        vec.reset(seed=np.array([3, 4]))
        terminated = vec.step(["one", "two"])[2]
        assert len(vec.reset(indices=terminated.nonzero()[0])[0]) == 2
        vec.step({0: "one"})
        assert len(vec.reset(indices=np.array([0]))[0]) == 1


@ANY
def test_a_refused_reset_changes_nothing(backend: str) -> None:
    def turns(vec: VectorEnv) -> list[int]:
        return [info["turn"] for info in vec.step(["a", "b"])[4]]

    with VectorEnv([Scripted] * 2, backend, seed=1) as vec, VectorEnv([Scripted] * 2, seed=1) as twin:
        assert vec.reset()[0] == twin.reset()[0]
        assert turns(vec) == turns(twin)
        for options in ({"env9_kwargs": {}}, {"nope": 1}, {"env1_kwargs": {"nope": 1}, "indices": [1]}):
            with pytest.raises(BadArgument, match=r"env9_kwargs|does not take"):
                vec.reset(seed=[7] * len(options.get("indices", "ab")), **options)
            assert turns(vec) == turns(twin)
        assert vec.reset()[0] == twin.reset()[0]


def test_reset_drops_what_is_in_flight() -> None:
    with VectorEnv([Scripted] * 2, "thread", seed=0) as vec:
        vec.reset()
        vec.send(["raise", "go"])
        vec.reset()
        assert [info["turn"] for info in vec.step(["a", "b"])[4]] == [1, 1]


def test_an_interrupted_step_leaves_a_vector_that_can_be_reset() -> None:
    with VectorEnv([Scripted] * 3, seed=0) as vec:
        vec.reset()
        with pytest.raises(KeyboardInterrupt):
            vec.step(["go", "interrupt", "go"])
        vec.reset()
        assert [info["turn"] for info in vec.step(["go"] * 3)[4]] == [1, 1, 1]


def test_an_interrupted_step_loses_no_other_episode() -> None:
    recipes = [partial(Scripted, length=2)] * 4
    with VectorEnv(recipes, seed=0) as vec, VectorEnv(recipes, seed=0) as twin:
        for each in (vec, twin):
            each.reset()
            each.step(["go"] * 4)
        with pytest.raises(KeyboardInterrupt):
            vec.step(["raise", "go", "interrupt", "go"])
        with pytest.raises(BadArgument, match="4 steps are in flight"):
            vec.step(["go"] * 4)
        got: dict[int, str] = {}
        while len(got) < 4:
            results = vec.recv()
            got.update(zip(results.indices, results.obs, strict=True))
        assert [got[place] for place in range(4)] == twin.step(["raise", "go", "raise", "go"])[0]
        for _ in range(4):
            assert vec.step(["go"] * 4)[0] == twin.step(["go"] * 4)[0]


@ANY
def test_an_environment_that_cannot_be_made_raises_its_own_error(backend: str) -> None:
    with pytest.raises(UnknownEnv, match="Did you mean"):
        VectorEnv([Maker("game:GuessTheNumbr-v0-easy")], backend)
    with pytest.raises(UnknownArgument, match="max_turns"):
        VectorEnv([Maker(GUESS, {"max_turn": 3})], backend)
    with pytest.raises(BadArgument, match="env_fns is empty"):
        VectorEnv([], backend)


def test_envs_are_the_environments_themselves_where_they_live_here() -> None:
    with VectorEnv([Maker(GUESS)] * 2, "thread", seed=0) as vec:
        vec.reset()
        assert [env.env_id for env in vec.envs] == vec.env_ids == [GUESS, GUESS]
        env = vec.envs[0]
    with pytest.raises(EnvClosed):
        env.reset()
    with pytest.raises(EnvClosed, match="the host is closed"):
        _ = vec.envs
    with VectorEnv([Maker(GUESS)], "process") as vec, pytest.raises(BadArgument, match="other processes"):
        _ = vec.envs


# -- the way in


def test_make_vec_makes_vectors_and_leaves_the_callers_mappings_alone() -> None:
    kwargs = [{"max_turns": 2}, {"max_turns": 3}]
    with gem.make_vec(
        [GUESS] * 2, vec_kwargs=kwargs, seed=5, async_mode=True, autoreset_mode="NextStep"
    ) as vec:
        assert [env.max_turns for env in vec.envs] == [2, 3]
        assert vec.autoreset_mode is AutoresetMode.NEXT_STEP
    assert kwargs == [{"max_turns": 2}, {"max_turns": 3}]
    with gem.make_vec(GUESS, num_envs=2, seed=5) as vec:
        assert vec.reset()[0] == VectorEnv([Maker(GUESS)] * 2, seed=5).reset()[0]
    with gem.make_vec(GUESS, num_envs=2, backend="process") as vec:
        assert len(vec.reset()[0]) == 2


def test_upstreams_names_stand() -> None:
    for cls in (SyncVectorEnv, AsyncVectorEnv):
        with cls(["a", "b"], [EchoEnv, EchoEnv], autoreset_mode=AutoresetMode.NEXT_STEP) as vec:
            assert vec.env_ids == ["a", "b"]
            assert len(vec.reset(seed=0)[0]) == 2


@pytest.mark.system
@ANY
def test_a_host_of_ones_own_serves_a_vector_and_stays_open(backend: str) -> None:
    wanted = VectorEnv([Scripted] * 3, seed=4)
    with make_host(backend, [Scripted] * 2) as host:
        host.submit(1, "reset", (9,))
        host.ready()
        host.remove(0)
        with VectorEnv([Scripted] * 3, host, seed=4) as vec:
            assert (len(host), vec.env_ids) == (4, [None] * 3)
            assert vec.reset()[0] == wanted.reset()[0]
            for words in (["a", "raise", "b"], ["a", "b", "c"], ["cut", "b", "c"]):
                assert vec.step(words)[0] == wanted.step(words)[0]
            vec.send({2: "go"})
            with pytest.raises(BadArgument, match="env 2 has a call in flight"):
                vec.send({2: "go"})
            assert vec.recv().indices == [2]
            vec.send({0: "go"})
        vec.close()
        for use in (lambda: vec.step(["a"] * 3), vec.reset):
            with pytest.raises(EnvClosed):
                use()
        assert len(host) == 1
        host.submit(1, "step", ("still here",))
        assert host.ready()[0].value.obs.startswith("still here")
        with pytest.raises(BadArgument, match="is None"):
            VectorEnv([Scripted, None], host)  # type: ignore[list-item]
        with pytest.raises(OSError, match="no luck"):
            VectorEnv([Scripted, partial(unlucky)], host)
        assert len(host) == 1


def unlucky() -> Env:
    raise OSError("no luck")


@pytest.mark.parametrize("own", [(5, 7, 9), (5, None, 9), (None, None, None)])
def test_make_vec_begins_with_the_seeds_that_are_given(own: tuple[int | None, ...]) -> None:
    kwargs: list[dict[str, Any]] = [{} if seed is None else {"seed": seed} for seed in own]
    with gem.make_vec([GUESS] * 3, vec_kwargs=kwargs, seed=3) as vec:
        vec.reset()
        played = [env.unwrapped.seed for env in vec.envs]
    derived = [seeding.derive(3, "env", place) for place in range(3)]
    assert played == [there if seed is None else seed for seed, there in zip(own, derived, strict=True)]


def test_make_vec_takes_a_host_and_wrappers_by_name() -> None:
    with make_host("thread") as host, gem.make_vec(GUESS, ["concat"], num_envs=2, backend=host) as vec:
        rules = vec.reset()[0][0]
        assert vec.step([r"\boxed{25}"] * 2)[0][0].startswith(rules)
        assert len(host) == 2
    with pytest.raises(UnknownEnv, match="Did you mean 'concat'"):
        gem.make_vec(GUESS, ["conkat"], num_envs=2)
    with pytest.raises(BadArgument, match=r"accepted: a sequence, as \['concat'\]"):
        gem.make_vec(GUESS, "concat")
    with pytest.raises(BadArgument, match="The number of environments is num_envs"):
        gem.make_vec(GUESS, 3)  # type: ignore[arg-type]  # as Gymnasium takes it
