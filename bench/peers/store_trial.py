"""Measures the episode store of the gem on the path, today's or an earlier one's, and prints JSON.

Two kinds of episode: short ones of three turns with tiny texts and tokens, and a long one of 200 turns of 400
tokens (200 shown, 200 sampled) with 400 characters of text each way. Times are the least of several, in CPU
seconds of this process, but for the opening, which is wall clock: that is what one waits for.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gem.record import Episode, StopReason, Turn, Verdict
from gem.rollout.store import EpisodeStore

SMALLEST = "--smallest" in sys.argv
COUNT = 10 if SMALLEST else 10_000
PRESENT = hasattr(Turn, "hold")
if PRESENT:
    from gem import codec
    from gem.record import RunInfo, SeatEnd
    from gem.specs import TaskRef

    RUN = RunInfo()


def turn(
    before: list[Any], observation: str, action: str, new: list[int], sampled: list[int], noise: Any
) -> Any:
    """Return a turn whose prompt is that of the turn before, its answer, and new tokens."""
    logprobs = [-noise.random() for _ in sampled]
    timing = {"policy_s": 0.18, "env_s": 0.0002}
    values: dict[str, Any] = {"reward": 0.1, "finish": "stop", "timing": timing}
    if PRESENT:
        made = Turn("agent", observation, action, policy_version=3, **values)
        if before:
            made.extend(before[-1], new, sampled, logprobs)
        else:
            made.hold(new, sampled, logprobs)
        return made
    held = before[-1].prompt_ids + before[-1].token_ids if before else ()
    tokens = (held + tuple(new), tuple(sampled), tuple(logprobs), (1,) * len(sampled))
    return Turn("agent", observation, action, *tokens, **values)


def episode(number: int, turns: list[Any]) -> Any:
    """Return an episode of those turns; every other one was won."""
    spec, kwargs, group = "game:GuessTheNumber-v0-hard", {"max_number": 50, "max_turns": 3}, "group"
    stop = StopReason.SOLVED if number % 2 else StopReason.TURN_BUDGET
    info, last = {"success": bool(number % 2), "stop": stop.value}, f"No guesses are left. It was {number}."
    timing = {"reset_s": 0.1, "policy_s": 0.2, "env_s": 0.3, "wall_s": 0.6}
    common: dict[str, Any] = {
        **{"turns": turns, "stop": stop, "verdict": Verdict.SCORED, "timing": timing, "group": group}
    }
    if PRESENT:
        ends = {"agent": SeatEnd(stop, True, False, last, info)}
        task = TaskRef(spec, kwargs, seed=number)
        return Episode(task, RUN, f"{number:016x}", starts={"agent": {}}, ends=ends, **common)
    common |= {"terminated": True, "final_info": info, "final_observation": last, "policy_version": 3}
    return Episode(f"{number}-{number}-0", spec, number, kwargs, **common)


def short(number: int, tokens: bool = True) -> Any:
    """Return an episode of three turns."""
    noise, turns = random.Random(number), list[Any]()
    for place in range(3):
        new = noise.sample(range(1000), 40 if tokens else 0)
        sampled = noise.sample(range(1000), 8 if tokens else 0)
        if tokens or not PRESENT:
            turns.append(turn(turns, f"The secret is lower than {place}.", r"\boxed{7}", new, sampled, noise))
        else:
            turns.append(Turn("agent", f"The secret is lower than {place}.", r"\boxed{7}", reward=0.1))
    return episode(number, turns)


def long(number: int = 0) -> Any:
    """Return an episode of 200 turns of 400 tokens."""
    noise, turns = random.Random(number), list[Any]()
    for _ in range(200):
        new, sampled = ([noise.randrange(50_000) for _ in range(200)] for _ in range(2))
        texts = ("".join(noise.choices("etaoin shrdlu", k=400)) for _ in range(2))
        turns.append(turn(turns, *texts, new, sampled, noise))
    return episode(number, turns)


def least(
    action: Callable[[], Any], clock: Callable[[], float] = time.process_time, trials: int = 7
) -> float:
    """Return the least seconds that a call took."""
    spent = []
    for _ in range(trials):
        began = clock()
        action()
        spent.append(clock() - began)
    return min(spent)


def coding(made: Any) -> tuple[float, float, int]:
    """Return the seconds for writing and reading a line, and its bytes."""
    if PRESENT:
        line = codec.encode(made)
        calls = lambda: codec.encode(made), lambda: codec.decode(line, RUN)
    else:
        from operator import index

        import msgspec

        from gem.rollout.stored import from_stored, to_stored

        encode = lambda: msgspec.json.encode(to_stored(made), enc_hook=index)  # noqa: E731
        line = encode()
        calls = encode, lambda: from_stored(msgspec.json.decode(line))
    times = max(1, (1 if SMALLEST else 200_000) // len(line))
    write, read = (least(lambda call=call: [call() for _ in range(times)]) / times for call in calls)
    return write, read, len(line)


def memory() -> float:
    """Return the bytes that a long episode takes once it was read from a store."""
    with tempfile.TemporaryDirectory() as folder, EpisodeStore(Path(folder) / "episodes.jsonl") as store:
        store.append(long())
        tracemalloc.start()
        kept = store[0]
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(kept.turns) == 200
    return size


def opened(path: Path) -> int:
    """Open a store, find what was won, and read one of it."""
    with EpisodeStore(path, read_only=True) as store:
        if PRESENT:
            found = [entry.number for entry in store.select(spec="game:GuessTheNumber-v0-hard", success=True)]
        else:
            found = [i for i, each in enumerate(store) if each.success and each.spec.endswith("hard")]
        assert store[found[len(found) // 2]].success
    return len(found)


def appended(path: Path, made: list[Any]) -> None:
    """Write episodes into a new store."""
    for file in path.parent.iterdir():
        file.unlink()
    with EpisodeStore(path) as store:
        for each in made:
            store.append(each)


def main() -> None:
    """Measure."""
    figures: dict[str, Any] = {"memory_mb": memory() / 1e6}
    for name, made in (("short, no tokens", short(1, tokens=False)), ("short", short(1)), ("long", long())):
        write, read, size = coding(made)
        figures[name] = {"encode_us": write * 1e6, "decode_us": read * 1e6, "bytes": size}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "episodes.jsonl"
        for name, tokens in (("append_us, no tokens", False), ("append_us", True)):
            made = [short(number, tokens) for number in range(COUNT)]
            figures[name] = least(lambda made=made: appended(path, made), trials=3) / COUNT * 1e6
        figures["open_ms"] = least(lambda: opened(path), time.perf_counter, trials=5 if PRESENT else 2) * 1e3
        if PRESENT:
            began = time.perf_counter()
            path.with_name(path.name + ".index.sqlite").unlink()
            opened(path)
            figures["open_without_index_ms"] = (time.perf_counter() - began) * 1e3
    json.dump(figures, sys.stdout)


if __name__ == "__main__":
    main()
