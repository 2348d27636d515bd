"""gem-llm's asynchronous vector with one slow environment; see bench/stragglers.py.

Called with the number of environments, the fast and the slow step in seconds, and for how many seconds;
prints environment steps per second.
"""

import json
import sys
import time

import gem


class Sleepy(gem.Env):
    """Takes its time."""

    def __init__(self, step_s=0.0, **kwargs):
        super().__init__()
        self.step_s = step_s

    def reset(self, seed=None):
        """Begin."""
        return "", {}

    def step(self, action):
        """Sleep."""
        time.sleep(self.step_s)
        return "", 0.0, False, False, {}


def main(envs, fast_s, slow_s, seconds):
    gem.register("bench:Sleepy-v0", entry_point="__main__:Sleepy")
    kwargs = [{"step_s": slow_s if i == 0 else fast_s} for i in range(envs)]
    vec = gem.make_vec(["bench:Sleepy-v0"] * envs, vec_kwargs=kwargs, async_mode=True)
    vec.reset()
    began = time.perf_counter()
    steps = 0
    while time.perf_counter() - began < seconds:
        vec.step(["go"] * envs)
        steps += envs
    return steps / (time.perf_counter() - began)


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), *map(float, sys.argv[2:]))))
