"""A driver that plays into a store on a cluster, to be killed: ADDRESS STORE SPOOL COUNT."""

import sys
from functools import partial

from ray_worlds import Waits

from gem.rollout import EpisodeStore, Job, RayRunner

if __name__ == "__main__":
    address, path, spool, count = sys.argv[1:]
    jobs = [Job(partial(Waits, 0.02), seed) for seed in range(int(count))]
    with (
        EpisodeStore(path) as store,
        RayRunner("random", address=address, store=store, resume=True, spool=spool, concurrency=8) as runner,
    ):
        for done, _ in enumerate(runner.stream(jobs), 1):
            print(done, flush=True)
