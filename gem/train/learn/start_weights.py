"""The weights that a new run starts from: those of an earlier run, or of a folder in Hugging Face's form.

A whole model in such a folder is simply the run's model. Weights of a run, and of a LoRA adapter, are loaded
into a model of the same kind.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, NamedTuple

from gem.errors import BadArgument, StoreError, reason
from gem.files import read_json
from gem.train.config import TrainConfig
from gem.train.config.value_types import convert_value
from gem.train.learn import checkpoint
from gem.train.learn.learner import check_shape, load_weights
from gem.train.learn.policy import Policy
from gem.train.report.run_folder import RunFolder

OF_THE_MODEL = ("model", "width", "layers", "heads", "lora_rank", "lora_alpha", "lora_targets")
"""The settings in which a run and the one that it starts from must agree."""

ADAPTER = "adapter_config.json"


class Source(NamedTuple):
    """Where weights come from: a run, a whole model, or an adapter; and their file, if there is one."""

    kind: Literal["run", "model", "adapter"]
    folder: Path
    file: Path


_ACCEPTED = (
    "accepted: the folder of a run with a checkpoint (with @best behind it: its best weights), or one in "
    "Hugging Face's form, as `gem-gym export --format hf` writes it."
)


def find_source(name: str) -> Source:
    """Return what a name stands for: the folder of a run (with @best: its best weights), or of a model.

    Raises:
        BadArgument: for anything else.
    """
    path, _, best = name.rpartition("@")
    if not os.path.isdir(path if best == "best" and path else name):  # False for what is no path, too
        raise BadArgument(f"from is {name!r}, which is no folder; {_ACCEPTED}")
    run = RunFolder(Path(path if best == "best" and path else name)).newest_phase
    file = run.best if best == "best" and path else run.checkpoint
    if file.is_file():
        return Source("run", run.path, file)
    if (run.path / ADAPTER).is_file():
        return Source("adapter", run.path, run.path / "adapter_model.safetensors")
    if run.config.is_file() and any(run.path.glob("*.safetensors*")):
        return Source("model", run.path, run.config)
    fault = f"has no {file.name} yet" if run.config.is_file() else "holds neither a run nor a model"
    raise BadArgument(f"from is {name!r}, which {fault}; {_ACCEPTED}")


def settings_of_source(name: str) -> dict[str, Any]:
    """Return the settings that a run gets from what it starts from: those of the model.

    Raises:
        BadArgument: see find_source; for an adapter that peft scales otherwise. StoreError, SchemaMismatch:
            for what cannot be read.
    """
    source = find_source(name)
    if source.kind == "run":
        before = RunFolder(source.folder).read_config(trust=True)  # of it, only the model is made
        check_shape(before, checkpoint.load(source.file, mmap=True), str(source.file))
        return {each: getattr(before, each) for each in OF_THE_MODEL}
    if source.kind == "model":
        return {"model": str(source.folder)}
    values = _read_adapter(source.folder)
    targets = values.get("target_modules") or ()
    stated = {
        "model": values.get("base_model_name_or_path"),
        "lora_rank": values.get("r", 0),
        "lora_alpha": values.get("lora_alpha", 0),
        "lora_targets": (targets,) if isinstance(targets, str) else targets,
    }
    where = str(source.folder / ADAPTER)
    for name in ("use_rslora", "alpha_pattern"):
        if values.get(name):
            raise BadArgument(
                f"{where} has {name} = {values[name]!r:.80}; accepted: an adapter that is scaled by alpha / "
                "rank throughout. Merge it into its model (peft's merge_and_unload), and start from that."
            )
    settings = {name: convert_value(where, TrainConfig, name, value) for name, value in stated.items()}
    return {**settings, "lora_targets": tuple(sorted(settings["lora_targets"]))}


def check_source(config: TrainConfig) -> None:
    """Check that the model of a run is that of what it starts from.

    Raises:
        BadArgument: for another model, shape or adapter. StoreError: for what cannot be read.
    """
    for name, wanted in settings_of_source(config.start_from).items():
        if name in ("width", "layers", "heads") and config.model != "tiny":
            continue
        given = getattr(config, name)
        if name == "lora_alpha":  # the ranks are equal here
            given, wanted = (alpha or 2.0 * config.lora_rank for alpha in (given, wanted))
        if not _is_alike(name, given, wanted):
            raise BadArgument(
                f"{name} is {given!r}, and {config.start_from} has {wanted!r}; give that or leave it out, to "
                "start from its weights, or train without them (leave out --from)."
            )
    if config.train_layers is not None and find_source(config.start_from).kind == "run":
        raise BadArgument(
            "train_layers does not go with the weights of another run, as this one would store only some of "
            "them; export that run (gem-gym export), and start from the folder."
        )


def _is_alike(name: str, given: Any, wanted: Any) -> bool:
    if name == "model" and Path(given).is_dir() and Path(wanted).is_dir():
        return Path(given).samefile(wanted)
    return sorted(given) == sorted(wanted) if name == "lora_targets" else bool(given == wanted)


def load_source(policy: Policy, config: TrainConfig) -> None:
    """Load the weights that a run starts from into a policy.

    Raises:
        SchemaMismatch, StoreError: for weights of another model, or that cannot be read.
    """
    source = find_source(config.start_from)
    if source.kind == "run":
        load_weights(policy, checkpoint.load(source.file), str(source.file))
    elif source.kind == "adapter":
        from peft import set_peft_model_state_dict
        from safetensors.torch import load_file

        try:
            keys: Any = set_peft_model_state_dict(policy.model, load_file(source.file))
        except Exception as error:  # a damaged file may break its reader anywhere, in Rust too
            raise StoreError(f"{source.file} cannot be loaded: {reason(error):.400}.") from error
        if keys.unexpected_keys:
            raise BadArgument(
                f"{source.file} holds adapters of other modules, such as {keys.unexpected_keys[0]}."
            )


def _read_adapter(folder: Path) -> dict[str, Any]:
    try:
        values = read_json(folder / ADAPTER)
    except (OSError, ValueError) as error:
        raise StoreError(f"{folder / ADAPTER} cannot be read: {reason(error)}") from error
    if not isinstance(values, dict) or not values.get("base_model_name_or_path"):
        raise StoreError(f"{folder / ADAPTER} names no base model (base_model_name_or_path).")
    return values
