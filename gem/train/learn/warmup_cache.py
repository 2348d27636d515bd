"""A cache of warm-ups, so that runs with the same warm-up need not each compute it.

A warm-up depends on its settings and its seed alone, so cached weights are those that the run would have
computed. Its CPU seconds are stored with it and count for every run that uses it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from gem import __version__
from gem.agents.sampling import digest_weights
from gem.errors import SchemaMismatch, StoreError
from gem.files import lock_file
from gem.tools.search_tool import URL
from gem.train.config import TrainConfig
from gem.train.learn import checkpoint
from gem.train.learn.learner import load_weights, weights
from gem.train.learn.policy import Policy

SETTINGS = (
    *("env", "env_kwargs", "wrappers", "tools", "environments", "curriculum", "seed", "threads"),
    *("max_grad_norm", "pass_tokens", "max_turns", "max_tokens", "temperature"),
    *("warmup_steps", "warmup_check", "warmup_most", "warmup_batch", "warmup_lr", "warmup_on", "warmup_by"),
    *("answer_prefix", "stop"),  # of what the policy writes, a check of the warm-up judges
    *(
        "model",
        "device",
        "dtype",
        "attn_implementation",
        "train_layers",
        "lora_rank",
        "lora_alpha",
        "lora_targets",
        "checkpointing",
        "pack",
    ),
    *("width", "layers", "heads", "start_from"),
)
"""The settings that a warm-up depends on."""


@dataclass(frozen=True)
class WarmUps:
    """A folder of warmed-up weights."""

    folder: Path

    def take(self, config: TrainConfig, policy: Policy, make: Callable[[], None]) -> float:
        """Give the policy its warm-up, by `make` where none is cached; return the CPU seconds of making it.

        Of several processes that need the same one, one makes it and the others wait. A warm-up on stored
        demonstrations is made each time, because a store may change.

        Raises:
            StoreError: when the folder cannot be written.
        """
        if config.demos is not None:
            return _measure_cpu_s(make)
        settings = {name: value for name, value in config.to_json().items() if name in SETTINGS}
        searched = os.environ.get(URL)  # what the search tool finds is in the episodes too
        begins = digest_weights(policy.model)  # which `start_from` and a folder's name do not tell
        named = json.dumps(
            [__version__, policy.renderer.vocab_hash, settings, searched, begins], sort_keys=True
        )
        path = self.folder / f"{blake2b(named.encode(), digest_size=12).hexdigest()}.pt"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = path.with_suffix(".lock").open("w")
        except OSError as error:
            raise StoreError(f"{self.folder} cannot be written: {error}.") from error
        with lock:
            lock_file(lock.fileno(), wait=True)
            # there is none, or it is damaged: it is made anew
            with suppress(StoreError, SchemaMismatch), checkpoint.explain_damage(path):
                state = checkpoint.load(path)
                load_weights(policy, state, str(path))
                return float(state["cpu_s"])
            cpu_s = _measure_cpu_s(make)
            checkpoint.save(path, {**weights(policy), "cpu_s": cpu_s})
            return cpu_s


def _measure_cpu_s(make: Callable[[], None]) -> float:
    began = time.process_time()
    make()
    return time.process_time() - began
