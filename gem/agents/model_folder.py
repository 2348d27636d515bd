"""The folder of a causal language model, as transformers, vLLM and SGLang read it.

A run is exported in this form, and its weights are published to a server in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gem.errors import BadArgument, StoreError, needs_extra
from gem.models import no_progress_bar

WEIGHTS = "model.safetensors"


def write_model(folder: Path, weights: Any) -> None:
    """Write a transformers model, or a state dict with the names of its checkpoint, into a folder.

    Of a model the configuration and the generation settings are written too. LoRA adapters are merged into
    its weights; see merged_state().

    Raises:
        BadArgument: for something else, or adapters that cannot be merged.
        MissingExtra: without safetensors.
        StoreError: when the folder cannot be written.
    """
    with needs_extra("writing weights", "safetensors", "train"):
        from safetensors import SafetensorError
        from safetensors.torch import save_file
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if hasattr(weights, "save_pretrained"):
            with no_progress_bar():
                base_of(weights).save_pretrained(folder, state_dict=merged_state(weights))
        elif isinstance(weights, Mapping) and all(isinstance(each, Tensor) for each in weights.values()):
            # Copied one by one: tensors of tied weights share memory, which the format does not allow.
            copies = {n: value.detach().to("cpu", copy=True).contiguous() for n, value in weights.items()}
            save_file(copies, folder / WEIGHTS, {"format": "pt"})
        else:
            raise BadArgument(
                f"weights are {weights!r:.60}; accepted: a transformers model, a state dict, or a folder."
            )
    except (OSError, SafetensorError) as error:
        raise StoreError(f"weights cannot be written to {folder}: {error}") from error


def base_of(model: Any) -> Any:
    """Return the transformers model that peft wraps; the model itself where peft does not wrap it."""
    return getattr(model, "get_base_model", lambda: model)()


@torch.no_grad()
def merged_state(model: Any) -> dict[str, Tensor]:
    """Return a model's weights by the names of its checkpoint, LoRA adapters merged into them.

    The model itself stays as it is. The sum ``W + B A * scale`` is computed in float32 and rounded to the
    weight's own type.

    Raises:
        BadArgument: for an adapter on weights that other layers share.
    """
    base = base_of(model)
    if base is model:
        return dict(model.state_dict())
    layers = {name: layer for name, layer in base.named_modules() if hasattr(layer, "get_delta_weight")}
    inner = tuple(f"{name}." for name in layers)
    state = {name: value for name, value in base.state_dict().items() if not name.startswith(inner)}
    shared = {id(parameter) for name, parameter in base.named_parameters() if not name.startswith(inner)}
    for name, layer in layers.items():
        if id(layer.base_layer.weight) in shared:
            raise BadArgument(
                f"the adapter on {name} cannot be merged, because other layers share its weights; leave it "
                "out of the adapted layers, or keep the adapter separate."
            )
        tensors = dict(layer.base_layer.state_dict())
        deltas = [layer.get_delta_weight(adapter).float() for adapter in layer.active_adapters]
        tensors["weight"] = (
            torch.stack([tensors["weight"].float(), *deltas]).sum(0).to(tensors["weight"].dtype)
        )
        state |= {f"{name}.{part}": value for part, value in tensors.items()}
    return state
