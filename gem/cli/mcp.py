"""The command ``gem-gym mcp``: one episode as an MCP server over standard input and output."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from hashlib import blake2b
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from gem import seeding
from gem.cli.terms import open_store
from gem.errors import BadArgument, check_argument, check_least, check_seconds
from gem.registry import Maker, spec_named
from gem.sandbox.choice import check_needs


def mcp(
    env_id: Annotated[Positional[str], arg(metavar="ID", help_behavior_hint="")],
    out: Path,
    seed: int = 0,
    sample: int = 0,
    name: str = "mcp",
    turns: int = 1000,
    call_s: float = 60.0,
    message_bytes: int = 1 << 20,
    backend: str = "thread",
    show_reward: bool = False,
    finish: bool = False,
) -> int:
    """Serve one episode to an MCP client, over standard input and output.

    The client gets the tools observe and act, and the environment's own; none starts the episode again. ID,
    seed and sample name the episode in the folder: a later process with the same names goes on with it, and
    when it is over, it stays over.

    Args:
        env_id: an environment, or your own as path/file.py:Class or module:Class.
        out: the folder for the record, which is written to episodes.jsonl in it when the episode is over.
        seed: which episode.
        sample: the number of the try, where one seed is played several times.
        name: the name of the agent in the record.
        turns: the most actions; then the episode is truncated.
        call_s: the most seconds of one call of the environment; after them the episode has no verdict.
        message_bytes: the most bytes of one message.
        backend: where the environment runs: thread or process.
        show_reward: tell the agent the reward when the episode is over.
        finish: serve nothing: end the unfinished episode, and score it as it is.
    """
    from gem.record import Limits, RunInfo
    from gem.rollout.episode import versions
    from gem.serve.mcp import EpisodeServer
    from gem.serve.mcp.messages import Endpoint
    from gem.serve.mcp.stdio import Journal, serve_stdio

    seed = seeding.check(seed)
    for flag, value, least in (
        ("sample", sample, 0),
        ("turns", turns, 1),
        ("message-bytes", message_bytes, 1000),
    ):
        check_least(flag, value, least)
    check_seconds("call-s", call_s)
    check_argument("backend", backend, backend in ("thread", "process"), "thread or process")
    spec = spec_named(env_id)
    check_needs([spec])
    limits = Limits(turns=turns, call_s=call_s, on_time="scored")
    run = RunInfo(agent=name, limits=limits, versions=versions())
    job = f"{spec.id}#{seed}"
    source, sink = _take_streams()
    key = blake2b(f"{job}#{sample}".encode(), digest_size=16).hexdigest()

    async def serve() -> None:
        entries = store.select(job=job, sample=sample)
        if entries:
            server = EpisodeServer.of_ended(store[entries[0].number], show_reward)
        else:
            server = EpisodeServer(
                Maker(spec.id),
                seed,
                limits,
                store=store,
                run=run,
                job=job,
                sample=sample,
                show_reward=show_reward,
                host=backend,
                journal=journal,
            )
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        try:
            if not finish:
                await serve_stdio(Endpoint(server), source, sink, message_bytes)
            elif server.over:
                raise BadArgument(f"{out} has this episode of {spec.id} already; it is over.")
            else:
                await server.start()
                server.leave()
        except asyncio.CancelledError:
            pass  # SIGTERM, from a client that waits no longer
        finally:
            await server.close()
        if server.unwritten is not None:
            raise server.unwritten
        if not server.episode.timing:
            print(
                f"the episode is unfinished (actions: {server.actions}): the same command goes on with "
                "it, and with --finish scores it as it is.",
                file=sys.stderr,
            )

    path = out / "unfinished" / f"{key}.journal"
    with open_store(out) as store:
        if finish and not path.exists() and not store.select(job=job, sample=sample):
            raise BadArgument(
                f"{out} has no episode of {spec.id} that began with seed {seed} and sample {sample}; "
                "accepted with --finish: the id, seed and sample of an unfinished one."
            )
        with Journal(path) as journal:
            asyncio.run(serve())
            if store.select(job=job, sample=sample):
                journal.remove()
    return 0


def _take_streams() -> tuple[int, int]:
    """Return standard input and output for the protocol alone; what an environment prints goes to stderr."""
    try:
        source, sink = os.dup(0), os.dup(1)
    except OSError as error:
        raise BadArgument("standard input or output is closed; an MCP client speaks over both.") from error
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout.flush()
    os.dup2(2, 1)
    return source, sink
