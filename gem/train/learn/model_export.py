"""Export of a run's model: a folder that transformers, peft, TRL and vLLM load.

::

    config.json, *.safetensors  the model; of a LoRA adapter that is not merged adapter_config.json, and it
    generation_config.json      the ids that end an answer, and sampling as in training
    tokenizer.json, ...         the tokenizer, with its chat template
    README.md                   the model card: origin, licence, figures, how it was trained
    training.toml               the settings, for `gem-gym train --config`
    training-NAME.toml          those of a later phase of the run
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from gem.agents.model_folder import base_of, write_model
from gem.errors import BadArgument, GemError, StoreError
from gem.evals.reports import markdown_table
from gem.models import KNOWN
from gem.train.config import TrainConfig
from gem.train.config.toml_file import to_toml
from gem.train.learn.policy import CausalPolicy
from gem.train.learn.start_weights import find_source
from gem.train.learn.training import load_policy
from gem.train.report.progress import cells
from gem.train.report.run_folder import RunFolder

CARD = "README.md"
SETTINGS = "training.toml"
OF_THE_MACHINE = ("out", "device", "sampler", "ray", "log", "demos", "start_from")
"""Settings that say where a run ran, or name what only its machine has. An export leaves them out; its card
says which to give again."""
LICENCE = re.compile(r"\A---\n(?:.*\n)*?license: *[\"']?([\w.-]+)")


def export_model(
    run: Path, out: Path, *, weights: Literal["last", "best"] = "last", merge: bool = False
) -> Path:
    """Write a run's model to the new folder `out`, and return it.

    A LoRA run becomes an adapter for its base model, or with `merge` a whole model.

    Raises:
        BadArgument: when `out` exists, for the tiny model, and for `merge` without an adapter.
        StoreError: when there is no run, it has no such weights, or the folder cannot be written.
        MissingExtra: without the packages that the model needs.
    """
    whole = RunFolder(run)
    if whole.phase_name:  # a phase alone is no model's whole training
        run = Path(os.path.abspath(run))
        whole = RunFolder(run.parents[1])
    folder = RunFolder(run).newest_phase
    phases = [whole] if folder is whole else [whole, *whole.later_phases]
    phases = phases[: [each.path for each in phases].index(folder.path) + 1]
    names = [SETTINGS, *(f"training-{each.phase_name}.toml" for each in phases[1:])]
    configs = {name: each.read_config(trust=True) for name, each in zip(names, phases, strict=True)}
    config = list(configs.values())[-1]  # of it, only the model is made
    if config.model == "tiny":
        raise BadArgument(
            f"{run} trained the tiny model, whose architecture and tokenizer are gem's own: no other program "
            "loads it. Train a language model (as --model smollm2) to export one; `gem-gym eval --agent "
            f"{run}` plays this one."
        )
    if merge and not config.lora_rank:
        raise BadArgument(
            f"{run} trained the model's own weights, so there is no adapter to merge; leave out --merge."
        )
    if os.path.lexists(out):
        raise BadArgument(f"{out} already exists; name a new folder.")
    policy = load_policy(run, weights, device="cpu")
    assert isinstance(policy, CausalPolicy)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f"{out.name}.", dir=out.parent) as around:
            partial = Path(around, out.name)
            partial.mkdir()
            _write(partial, policy, config, merge)
            trained = _how_trained(phases, configs, weights)
            card = _card(folder, config, trained, adapter=bool(config.lora_rank) and not merge)
            (partial / CARD).write_text(card, encoding="utf-8")
            for name, each in configs.items():
                (partial / name).write_text(to_toml(each, without=OF_THE_MACHINE), encoding="utf-8")
            partial.replace(out)
    except OSError as error:
        raise StoreError(f"{out} cannot be written: {error}; choose another --out.") from error
    return out


def _write(folder: Path, policy: CausalPolicy, config: TrainConfig, merge: bool) -> None:
    """Write the model, its generation settings and its tokenizer."""
    from transformers import GenerationConfig

    model, tokenizer = policy.model, policy.renderer.tokenizer  # type: ignore[attr-defined]
    # Other settings of the base model's file, such as top_k, would change what a server samples.
    base_of(model).generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        do_sample=True,
        temperature=config.temperature,
        top_k=0,
        top_p=1.0,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=sorted(policy.renderer.stop_ids),
        pad_token_id=policy.pad,
    )
    if config.lora_rank and not merge:
        for adapter in model.peft_config.values():  # in another folder, a relative path is a name on the hub
            base = adapter.base_model_name_or_path
            adapter.base_model_name_or_path = os.path.abspath(base) if os.path.isdir(base) else base
        model.save_pretrained(folder, save_embedding_layers=False)
        base_of(model).generation_config.save_pretrained(folder)
    else:
        write_model(folder, model)
    tokenizer.save_pretrained(folder)


# -- the model card


def _card(folder: RunFolder, config: TrainConfig, trained: str, *, adapter: bool) -> str:
    """Return the model card."""
    known = KNOWN.get(config.model)
    origin, hub, licence = config.model, "", ""
    if known is not None:
        origin, licence = known.origin, known.licence
        hub = origin.partition(",")[0]
    elif Path(config.model).exists():
        origin, licence = Path(config.model).name, _licence_of(Path(config.model))
    else:
        hub = origin
    head = {
        "library_name": "peft" if adapter else "transformers",
        "pipeline_tag": "text-generation",
        **({"base_model": hub} if hub else {}),
        **({"license": licence.lower()} if licence else {}),
        "tags": ["gem-gym", "reinforcement-learning"],
    }
    front = "".join(f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in head.items())
    kind = "LoRA adapter" if adapter else "causal language model"
    how = "with reinforcement learning" if config.iterations else "by cloning demonstrations"
    parts = [
        f"---\n{front}---",
        f"# {origin}, trained on {config.title}",
        f"A {kind} that `gem-gym` trained {how}. The base model is {origin}; its licence "
        f"({licence or 'see its page'}) holds for this one too.",
        trained,
        _figures_of(folder),
        _how_used(config, adapter=adapter, known=known is not None),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _licence_of(model: Path) -> str:
    """Return the licence in a model folder's own card; empty where it has none."""
    with suppress(OSError, UnicodeDecodeError):
        if match := LICENCE.match((model / CARD).read_text(encoding="utf-8")):
            return match[1]
    return ""


def _how_trained(phases: Sequence[RunFolder], configs: Mapping[str, TrainConfig], weights: str) -> str:
    chosen = {"last": "the last ones", "best": "those of the best held-out evaluation"}[weights]
    (_, first), *later = configs.items()
    rank = f" with LoRA adapters of rank {first.lora_rank}" if first.lora_rank else ""
    start = _describe_start(first.start_from)
    text = (
        f"## Training\n\nAlgorithm {first.algorithm}{rank}, {first.episodes} episodes, batches of "
        f"{first.batch}, learning rate {first.lr:g}, seed {first.seed}, in {first.dtype}."
    )
    text += f" It began with {start}." if start else ""
    text += _describe_warmup(first)
    given = f" --from {shlex.quote(Path(first.start_from).name)}" if start else ""
    given += f" --demos {shlex.quote(first.demos.name)}" if first.demos is not None else ""
    given += " --device cuda" if first.pass_tokens == 0 else ""  # as many as a GPU has room for
    commands = [f"gem-gym train --config {SETTINGS}{given} --out runs/again"]
    for phase, (name, config) in zip(phases[1:], later, strict=True):
        text += (
            f" Then phase {phase.phase_name} from iteration {phase.first_iteration} on, to {config.episodes} "
            f"episodes in all, learning rate {config.lr:g}."
        )
        commands.append(f"gem-gym train --config {name} --resume --phase {phase.phase_name} --out runs/again")
    files = " and ".join(f"`{name}`" for name in configs)
    return (
        f"{text} The weights are {chosen}. All settings are in {files}; this trains the model again:\n\n"
        "```sh\n" + "\n".join(commands) + "\n```"
    )


def _describe_warmup(config: TrainConfig) -> str:
    """Return the sentence about a run's warm-up, which trains the model too; empty without one."""
    if not config.warmup_steps:
        return ""
    played = {"random": "random play", "solver": "the solver's play"}[config.warmup_by]
    cloned = played if config.demos is None else f"the demonstrations {config.demos.name}"
    steps = config.warmup_most or config.warmup_steps
    most = "at most " if config.warmup_check else ""
    return (
        f" A warm-up before it cloned {cloned}, in {most}{steps} steps of {config.warmup_batch} episodes, "
        f"learning rate {config.warmup_lr:g}."
    )


def _describe_start(start_from: str, after: Sequence[str] = ()) -> str:
    """Return the weights that a run began with, and those that these began with; empty for a model's own.

    `after`: what began with these, so that a circle ends.
    """
    if not start_from or start_from in after:
        return ""
    text, config = f"the weights of {Path(start_from).name}", None
    with suppress(GemError):  # it may be gone
        source = find_source(start_from)
        config = RunFolder(source.folder).read_config(trust=True) if source.kind == "run" else None
    if config is None:
        return text
    demos = f", after cloning {config.demos.name}" if config.demos is not None else ""
    text += (
        f" ({config.algorithm} on {config.title}, {config.episodes} episodes, learning rate {config.lr:g}"
        f"{demos})"
    )
    earlier = _describe_start(config.start_from, (*after, start_from))
    return f"{text}, which began with {earlier}" if earlier else text


def _figures_of(folder: RunFolder) -> str:
    """Return the run's final table, as far as the run has come; empty where it has no figures."""
    tables = []
    for label, results in folder.read_figures().items():
        heads, *rows = cells(results)
        tables += [f"### {label}"] * bool(label) + [markdown_table(heads, rows)]
    return "\n\n".join(["## Figures", *tables]) if tables else ""


def _how_used(config: TrainConfig, *, adapter: bool, known: bool) -> str:
    """Return how the model is loaded, and what belongs to how it was sampled in training."""
    text = (
        "## Use\n\n```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        'model = AutoModelForCausalLM.from_pretrained("MODEL")\n'
        'tokenizer = AutoTokenizer.from_pretrained("MODEL")\n```\n\n'
    )
    if adapter:
        text += (
            "The base model is needed too: `adapter_config.json` says where this machine has it"
            f"{f' (`gem-gym models --fetch {config.model}` fetches it)' if known else ''}. `gem-gym export "
            "RUN --format hf --merge` writes a model that needs no other.\n\n"
        )
    else:
        text += "```sh\nvllm serve MODEL\n```\n\n"
    text += (
        f"In training, answers were sampled at temperature {config.temperature:g} without top-k, top-p or "
        f"penalties, up to {config.max_tokens} tokens each."
    )
    if config.answer_prefix:
        text += f" Every answer began with the fixed text {config.answer_prefix!r}, which was not sampled."
    if config.stop:
        text += f" An answer ended at {' or '.join(map(repr, config.stop))}."
    return text
