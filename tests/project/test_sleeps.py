"""No test sleeps in order to wait: `waiting.until` polls for a state, with a deadline.

Every other sleep of the tests stands here with its reason; a new one fails the test. What stands in a text is
a program that a sandbox runs, and asyncio.sleep(0) only lets others go on.
"""

import ast
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[1]
SLEEPS = {
    "agents/test_endpoint.py": (2, "a server that is away for a while; an answer that waits for its place"),
    "agents/test_pace.py": (2, "requests that overlap; nobody goes on before the time that is asked for"),
    "hosts/host_envs.py": (1, "steps that overlap, if nothing holds them back"),
    "rollout/test_clocks.py": (9, "agents and environments that take their time"),
    "rollout/test_runner.py": (1, "an agent that takes a moment to be cancelled"),
    "sandbox/abuse/arena.py": (
        1,
        "what a program left is harm, and no failure",
    ),
    "sandbox/abuse/memory.py": (3, "a program that samples the machine's memory; no test waits for it"),
    "sandbox/carry/leave.py": (1, "a program that leaves a process behind"),
    "sandbox/test_failures.py": (2, "a server killed at every moment of its start; one that starts late"),
    "sandbox/test_template.py": (1, "a template that answers late"),
    "serve/test_carriers.py": (1, "a call that is late after it has ended"),
    "serve/test_serve_chaos.py": (1, "an agent that takes its time"),
    "shared/ray_worlds.py": (1, "an environment that takes its time"),
    "shared/waiting.py": (2, "the polls"),
    "testing/test_deadline.py": (2, "environments that hang, in a sleep and in a loop of short ones"),
    "tools/mcp_odd_server.py": (1, "a server that hangs"),
    "tools/test_mcp_tool.py": (1, "a session that is held up, as by a long answer of another"),
    "train/tasks/test_mixture.py": (1, "an environment that takes its time"),
}


def sleeps(tree):
    """Yield each call of sleep, or of wait on an event that nobody else has, but for sleeps of 0."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and node.args):
            continue
        called = ast.unparse(node.func)
        zero = isinstance(node.args[0], ast.Constant) and not node.args[0].value
        if called.endswith("Event().wait") or (called.rpartition(".")[2] == "sleep" and not zero):
            yield node


def test_a_sleep_is_seen():
    assert [*sleeps(ast.parse("time.sleep(1); sleep(x); asyncio.sleep(0.1); threading.Event().wait(1)"))]
    assert not [*sleeps(ast.parse("asyncio.sleep(0); event.wait(1); 'time.sleep(1)'; Event().wait()"))]


def test_every_sleep_has_a_reason():
    counts = Counter()
    for path in TESTS.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "sleep" in text or "Event().wait" in text:
            counts[path.relative_to(TESTS).as_posix()] += len([*sleeps(ast.parse(text))])
    assert +counts == {name: count for name, (count, _) in SLEEPS.items()}
