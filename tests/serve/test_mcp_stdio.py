"""MCP over standard input and output, and the journal from which another process goes on."""

import asyncio
import json
import os
import shlex
import subprocess
import sys
import threading
from itertools import pairwise

import pytest
from served_envs import Obeying

from gem.errors import BadArgument, StoreError
from gem.record import Verdict
from gem.rollout.store import EpisodeStore
from gem.serve.mcp import EpisodeServer
from gem.serve.mcp.messages import Endpoint
from gem.serve.mcp.stdio import IN_FLIGHT, Journal, serve_stdio

GUESS = "game:GuessTheNumber-v0-easy"
DEADLINE_S = 60.0


def act(number, text, name="act"):
    params = {"name": name, "arguments": {"action": text} if name == "act" else {}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def guess(number, secret):
    return act(number, f"\\boxed{{{secret}}}")


def ping(number):
    return {"jsonrpc": "2.0", "id": number, "method": "ping"}


def exchange(lines, message_bytes=1 << 20, **options):
    """Send lines to an episode over pipes, and return the episode and the answers."""
    (source, feed), (result, sink) = os.pipe(), os.pipe()
    sent = b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)

    async def serve():
        server = EpisodeServer(GUESS, 3, **options)
        await serve_stdio(Endpoint(server), source, sink, message_bytes)
        await server.close()
        return server.episode

    def write():
        with os.fdopen(feed, "wb") as file:
            file.write(sent)

    writer = threading.Thread(target=write)
    writer.start()
    episode = asyncio.run(serve())
    writer.join()
    os.close(source)
    os.close(sink)
    with os.fdopen(result, "rb") as file:
        return episode, [json.loads(line) for line in file]


def errors(answers):
    return [each["error"]["message"] for each in answers if "error" in each]


def test_lines_are_answered_and_bad_ones_refused():
    long = b'{"jsonrpc": "2.0", "id": "' + b"x" * 200_000 + b'"}\n'
    lines = [
        ping(1),
        b"\n",
        b"no json\n",
        long,
        long[:1001] + b"\n",
        guess(2, 5),
        json.dumps(ping(3)).encode(),
    ]
    episode, answers = exchange(lines, message_bytes=1000)
    assert sorted(each["id"] for each in answers if each["id"] is not None) == [1, 2, 3]
    assert sorted(map(str.split, errors(answers)))[0][:2] == ["Invalid", "request:"]
    assert sum("1,000 bytes at most" in each for each in errors(answers)) == 2
    assert [turn.action for turn in episode.turns if turn.action] == ["\\boxed{5}"]


def test_actions_are_taken_in_order_and_not_too_many_wait():
    episode, answers = exchange([guess(number, number) for number in range(1, 4)])
    assert [turn.action for turn in episode.turns if turn.action][:3] == [
        f"\\boxed{{{n}}}" for n in (1, 2, 3)
    ]
    lines = [act(number, "", "observe") for number in range(3 * IN_FLIGHT)]
    _, answers = exchange([b"".join(json.dumps(line).encode() + b"\n" for line in lines)])
    assert sorted(each["id"] for each in answers) == list(range(3 * IN_FLIGHT))
    assert any("in progress" in each for each in errors(answers))


def test_a_call_can_be_cancelled_while_too_many_wait():
    async def talk():
        server = EpisodeServer(GUESS, 3)
        endpoint = Endpoint(server)
        await server.start()
        async with server.lock:
            waiting = asyncio.create_task(endpoint.answer(json.dumps(guess(1, 5)).encode()))
            await asyncio.sleep(0)
            note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
            assert await endpoint.answer(json.dumps(note).encode(), busy=True) is None
            refused = json.loads(await endpoint.answer(json.dumps(guess(2, 5)).encode(), busy=True))
        assert (refused["id"], "in progress" in refused["error"]["message"]) == (2, True)
        assert await waiting is None
        assert server.actions == 0
        await server.close()

    asyncio.run(talk())


def test_half_a_surrogate_pair_is_text():
    episode, answers = exchange([act("a", "\ud800 \\boxed{5}"), act("\udfff", "", "observe")])
    assert [each["id"] for each in answers] == ["a", "?"]
    assert [turn.action for turn in episode.turns if turn.action] == ["? \\boxed{5}"]


def test_a_batch_is_of_the_version_of_the_handshake():
    for version, count in (("2025-03-26", 0), ("2025-06-18", 1)):
        first = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": version}}
        endpoint = Endpoint(EpisodeServer(GUESS, 3))

        async def talk(endpoint=endpoint, first=first):
            await endpoint.answer(json.dumps(first).encode())
            return await endpoint.answer(json.dumps([ping(1)]).encode(), endpoint.version)

        answer = json.loads(asyncio.run(talk()))
        assert isinstance(answer, dict) == bool(count)


@pytest.fixture
def journal(tmp_path):
    return lambda: Journal(tmp_path / "unfinished" / "one.journal", wait_s=0.0)


def play_on(journal, store, lines):
    with journal() as answers:
        return exchange(lines, journal=answers, store=store)


def test_another_process_goes_on_with_the_episode(tmp_path, journal):
    whole, _ = exchange([guess(number, secret) for number, secret in enumerate((1, 2, 3, 4))])
    with EpisodeStore(tmp_path / "episodes.jsonl") as store:
        for secret in (1, 2, 3):
            _, answers = play_on(journal, store, [act(0, "", "observe"), guess(1, secret)])
            assert len(answers) == 2
            assert len(store) == 0
        with open(tmp_path / "unfinished" / "one.journal", "ab") as file:
            file.write(b'["half a line of a process that was')
        episode, answers = play_on(journal, store, [guess(1, 4), guess(2, 5)])
        assert "is over" in answers[-1]["result"]["content"][-1]["text"]
        assert episode.transcript_hash() == whole.transcript_hash() == store[0].transcript_hash()


def test_the_text_of_earlier_processes_counts(tmp_path, journal, monkeypatch):
    monkeypatch.setattr("gem.serve.mcp.episode.TEXT_AT_MOST", 20)
    with EpisodeStore(tmp_path / "episodes.jsonl") as store:
        play_on(journal, store, [guess(0, 1), guess(1, 2)])
        _, answers = play_on(journal, store, [guess(0, 3)])
    assert "2 are left" in answers[0]["error"]["message"]


def test_an_action_that_was_begun_is_not_undone_by_a_crash(journal):
    async def begin():
        with journal() as answers:
            server = EpisodeServer(Obeying(), 3, journal=answers)
            await server.start()
            playing = asyncio.create_task(server.call_tool("act", {"action": "wait"}))
            while not answers.path.stat().st_size:
                await asyncio.sleep(0)
            playing.cancel()  # as if the process was killed in the middle of the step
            Obeying.gate.set()
            await server.close()

    async def go_on():
        with journal() as answers:
            server = EpisodeServer(Obeying(), 3, journal=answers)
            await server.start()
            await server.close()
            return [turn.action for turn in server.episode.turns if turn.action]

    Obeying.gate.clear()
    asyncio.run(begin())
    assert asyncio.run(go_on()) == ["wait"]
    Obeying.gate.clear()


def test_a_journal_of_another_episode_gives_no_verdict(tmp_path, journal):
    with EpisodeStore(tmp_path / "episodes.jsonl") as store:
        play_on(journal, store, [guess(0, 1), guess(1, 2)])
        path = tmp_path / "unfinished" / "one.journal"
        first, second = path.read_text().splitlines()
        path.write_text(f"{first}\n{first}\n{second}\n")
        _, answers = play_on(journal, store, [guess(0, 3)])
        assert "without a verdict" in answers[0]["result"]["content"][-1]["text"]
        assert (store[0].verdict, store[0].error.type) == (Verdict.NONE, "ContractBroken")


def test_a_journal_is_of_one_process_and_of_its_form(tmp_path, journal):
    with journal(), pytest.raises(BadArgument, match="another process plays this episode"):
        journal()
    path = tmp_path / "unfinished" / "one.journal"
    for text in ("3\n", '["a", "b"]\n', "\x00\n", '["a", "b", [["c"]]]\n'):
        path.write_text(text)
        with pytest.raises(StoreError, match="no journal of an episode"):
            journal()
    path.unlink()
    path.mkdir()
    with pytest.raises(StoreError, match="cannot be opened"):
        journal()
    path.rmdir()
    for place in (lambda: os.mkfifo(path), lambda: path.symlink_to("/dev/zero")):  # neither has an end
        place()
        with pytest.raises(StoreError, match="cannot be opened: it is a pipe or a device, not a file"):
            journal()
        path.unlink()


class Command:
    """The command, with its pipes."""

    def __init__(self, *args):
        command = [sys.executable, "-m", "gem", "mcp", *map(str, args)]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.process = subprocess.Popen(command, **pipes)

    def ask(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self, sent=b""):
        out, err = self.process.communicate(sent, DEADLINE_S)
        return self.process.returncode, out.decode(), err.decode()

    def kill(self):
        self.process.kill()
        return self.end()


def content(answer):
    return [part["text"] for part in answer["result"]["content"]]


PRINTING = """
import time
from gem.core import Env, Start, Step

class Printing(Env):
    def reset(self, seed=None):
        super().reset(seed)
        print("printed by the environment", flush=True)
        return Start("begin", {})

    def step(self, action):
        if action == "hang":
            time.sleep(600)
        print(input() if action == "read" else "printed", flush=True)
        return Step("next", 0.0, False, False, {})
"""


@pytest.mark.system
def test_an_episode_that_nobody_began_is_not_finished(tmp_path):
    code, _, err = Command(GUESS, "--out", tmp_path, "--seed", 3, "--finish").end()
    assert (code, "no episode" in err) == (2, True), err
    with EpisodeStore(tmp_path / "episodes.jsonl", read_only=True) as store:
        assert len(store) == 0


@pytest.mark.system
def test_the_command_plays_one_episode_once(tmp_path):
    out = tmp_path / "runs"
    first = Command(GUESS, "--out", out, "--seed", 3)
    start, after = content(first.ask(act(1, "", "observe"))), content(first.ask(guess(2, 1)))
    code, _, err = Command(GUESS, "--out", out, "--seed", 3).end()
    assert (code, "another process plays this episode" in err) == (2, True)
    first.kill()
    second = Command(GUESS, "--out", out, "--seed", 3)
    assert content(second.ask(act(1, "", "observe"))) == [*start, *after]
    code, _, err = second.end()
    assert (code, "unfinished (actions: 1)" in err) == (0, True)
    code, out_text, err = Command(GUESS, "--out", out, "--seed", 3, "--finish").end()
    assert (code, out_text, err) == (0, "", "")
    with EpisodeStore(out / "episodes.jsonl", read_only=True) as store:
        assert [(each.seed, each.stop, each.scored, len(each.turns)) for each in store] == [
            (3, "time_limit", True, 1)
        ]
        assert not list((out / "unfinished").iterdir())
        third = Command(GUESS, "--out", out, "--seed", 3)
        answer = third.ask(guess(1, 2))
        assert (answer["result"]["isError"], "cannot be played again" in content(answer)[-1]) == (True, True)
        assert third.end()[0] == 0
        assert Command(GUESS, "--out", out, "--seed", 3, "--finish").end()[0] == 2
        other = Command(
            GUESS, "--out", out, "--seed", 3, "--sample", 1
        )  # another try, if its owner wants one
        assert not other.ask(guess(1, 2))["result"]["isError"]
        other.end()
        assert len(store) == 1


@pytest.mark.system
def test_the_protocol_has_the_standard_streams_for_itself(tmp_path):
    file = tmp_path / "printing.py"
    file.write_text(PRINTING)
    command = Command(f"{file}:Printing", "--out", tmp_path / "runs")
    assert content(command.ask(act(1, "", "observe"))) == ["begin"]
    assert content(command.ask(act(2, "print"))) == ["next"]
    assert command.ask(act(3, "read"))["result"]["isError"]  # it reads nothing of the client
    code, out, err = command.end()
    assert (code, out) == (0, "")
    assert "printed by the environment" in err


@pytest.mark.system
def test_a_terminated_command_ends_even_if_its_environment_hangs(tmp_path, until):
    file = tmp_path / "printing.py"
    file.write_text(PRINTING)
    command = Command(f"{file}:Printing", "--out", tmp_path / "runs")
    command.process.stdin.write(json.dumps(act(1, "hang")).encode() + b"\n")
    command.process.stdin.flush()
    until(lambda: any(file.stat().st_size for file in tmp_path.glob("runs/unfinished/*")), "it did not begin")
    assert command.ask(ping(2))["id"] == 2  # it answers meanwhile
    command.process.terminate()
    code, out, err = command.end()
    assert (code, out, "unfinished (actions: 1)" in err) == (0, "", True), err


@pytest.mark.system
@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["game:GuessTheNumbr-v0-easy"], "Did you mean"),
        (["multi:ConnectFour-v0"], "several seats"),
        ([GUESS, "--seed", "-1"], "seed"),
        ([GUESS, "--turns", "0"], "turns"),
        ([GUESS, "--call-s", "0"], "call-s is 0"),
        ([GUESS, "--backend", "cloud"], "backend is 'cloud'"),
        ([GUESS, "--out", "/dev/null/x"], "cannot be made"),
    ],
)
def test_a_wrong_command_is_told_in_a_sentence(tmp_path, args, why):
    place = [] if "--out" in args else ["--out", tmp_path / "runs"]
    code, out, err = Command(*args, *place).end()
    assert (code, out, why in err, err.count("\n")) == (2, "", True, 1), err


@pytest.mark.system
def test_closed_streams_are_told(tmp_path):
    words = [sys.executable, "-m", "gem", "mcp", GUESS, "--out", str(tmp_path)]
    command = f"exec {shlex.join(words)} <&-"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=DEADLINE_S)
    assert (ended.returncode, "standard input or output is closed" in ended.stderr) == (2, True)


@pytest.mark.system
def test_the_sdks_client_plays_in_every_version(tmp_path):
    pytest.importorskip("mcp", reason="needs mcp: pip install 'gem-gym[mcp]'")
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    async def play(mode, secret):
        args = ["-m", "gem", "mcp", GUESS, "--out", str(tmp_path), "--seed", "3"]
        env = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        parameters = StdioServerParameters(command=sys.executable, args=args, env=env)
        async with Client(stdio_client(parameters), mode=mode) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            seen = await client.call_tool("observe", {})
            result = await client.call_tool("act", {"action": f"\\boxed{{{secret}}}"})
            return tools, [part.text for part in seen.content], [part.text for part in result.content]

    modes = ["legacy", "auto", "2026-07-28", "legacy", "auto"]
    plays = [asyncio.run(play(mode, secret)) for secret, mode in enumerate(modes, 1)]
    assert all(tools == ["observe", "act"] for tools, _, _ in plays)
    for (_, _, said), (_, seen, _) in pairwise(plays):
        assert seen[-1] == said[-1]
    assert "cannot be played again" in plays[-1][2][-1]
