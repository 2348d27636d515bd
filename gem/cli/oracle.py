"""``gem-gym oracle``: what training algorithms estimate, beside exact gradients."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from itertools import groupby

from gem.cli.terms import FAILED, MaybeInt, table


def oracle(
    algorithm: tuple[str, ...] = (),
    env: tuple[str, ...] = (),
    gamma: tuple[float, ...] = (0.9,),
    batch: MaybeInt = None,
    samples: int = 2000,
    seed: int = 0,
    json: bool = False,
) -> int:
    """Compare the mean step of training algorithms with exact gradients, in environments of few episodes.

    Each batch of episodes that can happen is given to the trainer's own learn step, in float64, and weighed
    by its probability. Beside the exact gradient of what the algorithm states to maximise stand the mean
    step's cosine, its length and its distance (bias), each over the gradient's length, and the variance per
    episode. `undiscounted` is the cosine with the gradient of the return without discount. The exit code is 1
    where a verdict is UNEXPECTED.

    Args:
        algorithm: which; all when left out.
        env: in which small environments; all when left out, which takes minutes.
        gamma: discounts per turn.
        batch: episodes of a step; as many as can be listed when left out.
        samples: batches that are drawn, where there are too many to list.
        seed: of the policy whose gradient it is, of the reference, the critic, and what is drawn.
        json: print the figures as JSON.
    """
    from gem.train.oracle import HEADS, SETTINGS, judge  # here: torch takes seconds

    rows = judge(env, algorithm, gamma, batch=batch, samples=samples, seed=seed)
    found = []
    for name, judged in groupby(rows, key=lambda row: row.env):
        mine = list(judged)
        found += mine
        if not json:
            print(f"{name}: {SETTINGS[name].summary}\n")
            table(*HEADS, rows=[row.cells() for row in mine], cropped=("verdict",))
            print(flush=True)
    if json:
        print(json_module.dumps([asdict(row) for row in found], indent=2))
    return 0 if all(row.expected for row in found) else FAILED
