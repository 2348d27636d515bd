"""Worlds in which things break: real environments around one faulty thing each; importable by workers."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import gem
from gem.agents.base import BaseAgent
from gem.content import text_of
from gem.record import Reply
from gem.rollout import EpisodeStore, Job, rollout
from gem.sandbox import default_sandbox
from gem.testing.doubles import EchoEnv
from gem.testing.faults import (
    Fault,
    Faults,
    FaultyGrader,
    FaultySandbox,
    FaultyStore,
    FaultyTool,
    FaultyWrapper,
)
from gem.tools.base_tool import FunctionTool, ToolResult
from gem.tools.python_code_tool import PythonCodeTool
from gem.tools.tool_env_wrapper import ToolEnvWrapper


def double(number: int) -> ToolResult:
    """Double a number.

    Args:
        number: any.
    """
    return ToolResult(str(2 * number))


def plain(plan):
    return FaultyWrapper(EchoEnv(), plan)


def with_tool(plan):
    return ToolEnvWrapper(EchoEnv(), [FaultyTool(FunctionTool(double), plan)])


def graded(plan):
    env = gem.make("math:Arithmetic-v0-easy")
    env.unwrapped.grader = FaultyGrader(env.unwrapped.grader, plan)
    return env


def judged(plan):
    return gem.make("code:Basics-v0-easy", sandbox_type=FaultySandbox(default_sandbox(), plan))


def with_python(plan):
    tool = PythonCodeTool(sandbox_type=FaultySandbox(default_sandbox(), plan))
    return ToolEnvWrapper(EchoEnv(1), [tool])


RECIPES = {
    "env": plain,
    "worker": plain,
    "endpoint": plain,
    "tool": with_tool,
    "grader": graded,
    "judge": judged,
    "python": with_python,
}


def recipe(world, plan):
    return partial(RECIPES[world], plan)


class Speaker(BaseAgent):
    """Says the number that it was asked for last, now and then a wrong one; calls its tool first."""

    def __init__(self, call=""):
        self.call = call

    def __call__(self, asks):
        return [Reply(self.said(ask)) for ask in asks]

    def said(self, ask):
        number = re.findall(r"Say (\d+)", "".join(text_of(message.content) for message in ask.messages))[-1]
        if self.call and not ask.turn:
            return self.call.replace("NUMBER", number)
        return number if ask.seed % 5 else "no"


CALLS = {
    "tool": '<tool_call>{"name": "double", "arguments": {"number": NUMBER}}</tool_call>',
    "python": "<python>print(2 * NUMBER)</python>",
}


def store_until_it_dies(path, seed, arrived):
    """Store episodes from seed 0; of that of `seed`, `arrived` bytes are written before the process dies."""
    plan = Faults((Fault("store", "half-written", of=(seed,), form=arrived),))
    jobs = [Job(recipe("env", Faults()), each, key=str(each)) for each in range(seed + 2)]
    with EpisodeStore(path) as store:
        rollout(jobs, Speaker(), host="serial", store=FaultyStore(store, plan), concurrency=1)


class LocksAFile(EchoEnv):
    """Takes a lock that only its close() gives back: whoever dies keeps it."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def reset(self, seed=None):
        start = super().reset(seed)
        if not Path(self.path).exists():
            Path(self.path).write_text(str(id(self)))
        if Path(self.path).read_text() != str(id(self)):
            raise RuntimeError("somebody else has the lock")
        return start

    def close(self):
        Path(self.path).unlink(missing_ok=True)
