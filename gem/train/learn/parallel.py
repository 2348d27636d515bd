"""Data-parallel training: several processes each play and learn a share, and all take the same steps.

``torchrun --nproc-per-node 2 -m gem train ...`` starts them. Every process holds the whole model. Episodes
are shared out and gathered again, so advantages are over the whole batch. The rows of a step are shared out
too, and the gradients of the shares are summed. So the step is that of a single process, up to the order of a
sum. The first process writes the files.

With a single process every function returns what it is given.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, distributed

from gem.errors import BadArgument

T = TypeVar("T")


def begin(device: str) -> str:
    """Join the process group, if torchrun started several processes; return the device of this one.

    With ``cuda`` each process takes the GPU of its local rank, also as the current one: what names no GPU,
    NCCL among it, would use the first. Gradients are then summed by NCCL, and objects exchanged by gloo.

    Raises:
        BadArgument: for a numbered GPU, which all processes would share, or fewer GPUs than processes.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return device
    if device.startswith("cuda"):
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if device != "cuda":
            raise BadArgument(
                f"device is {device!r}; accepted for several processes: cuda, one GPU for each."
            )
        if local >= torch.cuda.device_count():
            raise BadArgument(
                f"process {local} of this machine has no GPU: torch sees {torch.cuda.device_count()}. Start "
                "at most as many processes as there are GPUs (torchrun --nproc-per-node)."
            )
        device = f"cuda:{local}"
        torch.cuda.set_device(device)
    if not distributed.is_initialized():
        distributed.init_process_group("cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo")
    return device


def world() -> int:
    """Return the number of processes."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def rank() -> int:
    """Return the number of this process, from 0."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def share(items: Sequence[T]) -> list[T]:
    """Return this process's share of `items`, which all processes hold."""
    return list(items[rank() :: world()])


def gather(items: Sequence[T]) -> list[T]:
    """Return the shares of all processes together, in the order before they were shared out."""
    if world() == 1:
        return list(items)
    shares: list[list[T]] = [[] for _ in range(world())]
    distributed.all_gather_object(shares, list(items))
    total = sum(map(len, shares))
    return [shares[place % world()][place // world()] for place in range(total)]


def from_first(make: Callable[[], T]) -> T:
    """Return the result of `make` in the first process; the others wait for it."""
    (made,) = gather([make()] if rank() == 0 else [])
    return made


def add_up(tensors: Iterable[Tensor]) -> None:
    """Replace each tensor by its sum over all processes."""
    if world() > 1:
        for tensor in tensors:
            distributed.all_reduce(tensor)


def add_up_figures(figures: dict[str, float]) -> dict[str, float]:
    """Return figures summed over all processes; one that a process lacks counts as 0 there."""
    if world() == 1:
        return figures
    by_process: list[dict[str, float]] = [{} for _ in range(world())]
    distributed.all_gather_object(by_process, figures)
    names = dict.fromkeys(name for each in by_process for name in each)
    return {name: sum(each.get(name, 0.0) for each in by_process) for name in names}


def wait() -> None:
    """Wait until every process has reached this call."""
    if world() > 1:
        distributed.barrier()


def missing_gradients(masters: Sequence[Tensor]) -> list[Tensor]:
    """Return the gradients of parameters, zeros where this process's share had none."""
    for master in masters:
        if master.grad is None:
            master.grad = torch.zeros_like(master)
    return [master.grad for master in masters if master.grad is not None]
