"""The instances that gem-llm deals of one id: how many differ, and what is public of some of them.

Called with an id, CPU-seconds, how many instances to hand over, and numbers of seeds; prints a line of JSON
for each instance and for each number of seeds reached, so that a reset that hangs costs only what would have
come.
"""

import json
import math
import resource
import sys
import time

import gem

NO_PART = {"env_id", "entry_point", "turn_count", "box_mapping"}  # the last tells how a level was made
GRACE_S = 5


def main(env_id, seconds, handed, counts):
    """Deal until the CPU-seconds are over or the last of the numbers is reached."""
    until = time.process_time() + seconds
    ends = math.ceil(until) + GRACE_S  # a reset that hangs ends the process
    resource.setrlimit(resource.RLIMIT_CPU, (ends, ends + 1))
    env = gem.make(env_id)
    seen = set()
    for seed in range(counts[-1]):
        env.reset(seed=seed)
        if "Minesweeper" in env_id:  # it lays its mines at the first cell revealed
            env.step(f"\\boxed{{reveal {env.rows // 2} {env.cols // 2}}}")
        instance = plain({name: value for name, value in vars(env).items() if name not in NO_PART})
        seen.add(json.dumps(instance, sort_keys=True))
        if seed < handed:
            print(json.dumps(["instance", instance]), flush=True)
        over = time.process_time() > until
        if seed + 1 in counts or over:
            print(json.dumps(["dealt", seed + 1, len(seen)]), flush=True)
        if over:
            break


def plain(value):
    """Return a value as JSON has it; numpy's arrays as lists, keys as text, sets sorted."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(map(plain, value), key=repr)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if isinstance(value, (int, float, str, type(None))) else repr(value)


if __name__ == "__main__":
    name, for_s, hand_over, *numbers = sys.argv[1:]
    main(name, float(for_s), int(hand_over), [int(number) for number in numbers])
