"""The command ``gem-gym oracle``: compare training algorithms with exact gradients."""

from __future__ import annotations

import json as json_module
from contextlib import nullcontext
from dataclasses import asdict
from itertools import groupby

from gem.cli.terms import FAILED, MaybeInt, divert_stdout, table


def oracle(
    algorithm: tuple[str, ...] = (),
    env: tuple[str, ...] = (),
    gamma: tuple[float, ...] = (0.9,),
    batch: MaybeInt = None,
    samples: int = 2000,
    seed: int = 0,
    json: bool = False,
) -> int:
    """Compare the mean step of training algorithms with exact gradients, in small environments.

    Every possible batch of episodes goes through the trainer's own learn step, in float64, weighted by its
    probability. The mean step is compared with the exact gradient of the algorithm's stated objective. The
    table shows the cosine, the length and the distance (bias), both divided by the gradient's length, and the
    variance per episode. `undiscounted` is the cosine with the gradient of the undiscounted return. The exit
    code is 1 if a verdict is UNEXPECTED.

    Args:
        algorithm: the algorithms; your own as package.module:NAME or path/file.py:NAME; all if left out.
        env: the small environments; all if left out, which takes minutes.
        gamma: discounts per turn.
        batch: episodes per step; as many as can be enumerated if left out.
        samples: batches to draw if there are too many to enumerate.
        seed: the seed of the policy, the reference, the critic, and the drawn batches.
        json: print the figures as JSON.
    """
    from gem.train import check_torch

    check_torch("measuring a learn step")
    from gem.train.oracle import HEADS, SETTINGS, judge  # here: torch takes seconds

    rows = judge(env, algorithm, gamma, batch=batch, samples=samples, seed=seed)
    figures = []
    with divert_stdout() if json else nullcontext():  # an algorithm of one's own may print
        for name, judged in groupby(rows, key=lambda row: row.env):
            group = list(judged)
            figures += group
            if not json:
                print(f"{name}: {SETTINGS[name].summary}\n")
                table(*HEADS, rows=[row.cells() for row in group], cropped=("verdict",))
                print(flush=True)
    if json:
        print(json_module.dumps([asdict(row) for row in figures], indent=2))
    return 0 if all(row.expected for row in figures) else FAILED
