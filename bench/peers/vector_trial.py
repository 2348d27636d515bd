"""gem-llm's vector environments over a bare loop of its own environments; see bench/vector.py.

Called with an id, the number of trials and sizes; prints ``{mode: {size: {"ratio", "steps_per_s"}}}``.
"""

import json
import statistics
import sys
import time

import gem

STEPS = 5_000  # environment steps per timing, at most


def main(env_id, trials, sizes):
    return {
        f"gem-llm {name}": {n: overhead(env_id, n, is_async, trials) for n in sizes}
        for name, is_async in (("sync", False), ("async", True))
    }


def overhead(env_id, n, is_async, trials):
    actions = [f"\\boxed{{{1 + 7 * i % 50}}}" for i in range(n)]
    envs = [gem.make(env_id) for _ in range(n)]
    for i, env in enumerate(envs):
        env.reset(seed=i)

    def bare():
        for env, action in zip(envs, actions, strict=True):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    vec = gem.make_vec([env_id] * n, async_mode=is_async, seed=0)
    vec.reset()
    vec.step(actions)
    rounds = max(2, STEPS // n)
    pairs = [(seconds(bare, rounds), seconds(lambda: vec.step(actions), rounds)) for _ in range(trials)]
    return {
        "ratio": statistics.median(vector / loop for loop, vector in pairs),
        "steps_per_s": n * rounds / statistics.median(vector for _, vector in pairs),
    }


def seconds(fn, rounds):
    began = time.perf_counter()
    for _ in range(rounds):
        fn()
    return time.perf_counter() - began


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), [int(size) for size in sys.argv[3:]])))
