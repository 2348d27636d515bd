"""Transcripts: all observations, actions and results of an episode, to compare episodes."""

from __future__ import annotations

import base64
import functools
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from gem import registry
from gem.agents.base import BaseAgent
from gem.agents.random import RandomAgent
from gem.core import Env
from gem.errors import ContractBroken, NoSolver
from gem.hosts.base import KINDS
from gem.record import Limits
from gem.rollout import Job, rollout
from gem.seats import SeatedEnv
from gem.source_files import with_sources
from gem.specs import EnvSpec

Transcript: TypeAlias = list[tuple[Any, ...]]
"""A transcript: the first observation and info, then action and step result, turn by turn."""

PLAIN_ACTION = "\\boxed{1}"
"""The action in an environment without a random actor."""


def act(env: Env) -> Any:
    """Return a random legal action, or a plain text if the environment has no random actor."""
    try:
        return env.sample_random_action()
    except NoSolver:
        return everybody(env, PLAIN_ACTION)


def everybody(env: Env, action: str) -> Any:
    """Return `action`; with several seats, that action for each seat to move."""
    return dict.fromkeys(env.acting, action) if isinstance(env, SeatedEnv) else action


def transcript(env: Env, seed: int | None, turns: int, player: Callable[[Env], Any] = act) -> Transcript:
    """Play an episode of at most `turns` turns and return its transcript."""
    return [tuple(env.reset(seed=seed)), *future(env, turns, player)]


def future(env: Env, turns: int, player: Callable[[Env], Any] = act) -> Transcript:
    """Play on for at most `turns` turns and return the transcript of these."""
    turns_played: Transcript = []
    for _ in range(turns):
        action = player(env)
        step = env.step(action)
        turns_played.append((action, *step))
        if step.done:
            break
    return turns_played


EPISODE_BEFORE = "prev_ep_"
"""The prefix of info keys about the previous episode, which are not compared."""


def difference(one: Transcript, other: Transcript) -> str:
    """Return a description of the first difference, or ``""`` if there is none."""
    for turn, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b and _of_this_episode(a) != _of_this_episode(b):
            first, second = str(_of_this_episode(a)), str(_of_this_episode(b))
            pairs = enumerate(zip(first, second, strict=False))
            start = max(0, next((at for at, (x, y) in pairs if x != y), 0) - 50)
            return f"turn {turn} was {first[start : start + 150]!r}, then {second[start : start + 150]!r}"
    if len(one) != len(other):
        return f"one transcript has {len(one)} entries, the other {len(other)}"
    return ""


def _of_this_episode(entry: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return an entry of a transcript without the info about the previous episode."""
    *rest, info = entry
    if not isinstance(info, dict):
        return entry
    seats = {key: _without_before(own) if isinstance(own, dict) else own for key, own in info.items()}
    return *rest, _without_before(seats)


def _without_before(info: dict[Any, Any]) -> dict[Any, Any]:
    return {key: value for key, value in info.items() if not str(key).startswith(EPISODE_BEFORE)}


_IN_CHILD = """
import base64, json, pickle, sys, warnings
warnings.simplefilter("ignore")
from gem import registry
from gem.testing.transcripts import transcript
specs, seeds, turns = pickle.loads(base64.b64decode(sys.stdin.read()))
for spec in specs:
    with registry.make(spec) as env:
        print("\\n" + json.dumps([spec.id, repr([transcript(env, seed, turns) for seed in seeds])]))
"""


def hash_seed_dependent(specs: Sequence[EnvSpec], seeds: Sequence[int], turns: int = 40) -> list[str]:
    """Return the ids of the specs whose transcripts differ between two processes with different hash seeds.

    One pair of processes is used for all specs, so that a family is imported only once. Entry points must be
    ``"module:name"``.

    Raises:
        ContractBroken: when a process fails.
    """
    request = base64.b64encode(with_sources(pickle.dumps((list(specs), list(seeds), turns)))).decode()
    outputs: list[dict[str, str]] = []
    for value in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", _IN_CHILD],
            input=request,
            env={**os.environ, "PYTHONHASHSEED": value, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise ContractBroken(f"the child process failed: {done.stderr[-500:]}")
        lines = [line for line in done.stdout.splitlines() if line.startswith('["')]
        outputs.append(dict(json.loads(line) for line in lines))
    return [spec.id for spec in specs if outputs[0][spec.id] != outputs[1][spec.id]]


def host_dependent(
    specs: Sequence[EnvSpec], seeds: Sequence[int], turns: int = 40, agent: BaseAgent | None = None
) -> list[str]:
    """Return the ids of the specs whose play differs between the serial, thread and process hosts.

    The agent plays; without one, each environment's random actor does.

    Raises:
        ContractBroken: when an episode broke on some host.
    """
    jobs = [Job(functools.partial(registry.make, spec), seed) for spec in specs for seed in seeds]
    hashes: list[list[str]] = []
    for host in KINDS:
        episodes = rollout(jobs, agent or RandomAgent(), limits=Limits(turns=turns), host=host)
        for episode in episodes:
            if episode.error:
                raise ContractBroken(
                    f"{episode.spec}, seed {episode.seed}, broke on the {host} host: {episode.error}"
                )
        hashes.append([episode.transcript_hash() for episode in episodes])
    ids = [spec.id for spec in specs for _ in seeds]
    return list(dict.fromkeys(id for id, *each in zip(ids, *hashes, strict=True) if len(set(each)) > 1))
