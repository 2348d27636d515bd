"""Worlds by name: fetched by pip without what they require, imported from the cache and from nowhere else."""

import errno
import shutil
import sys
import tarfile
import zipfile
from dataclasses import replace
from hashlib import sha256

import pytest
from local_wheels import write_wheel

from gem import cli, worlds
from gem.errors import BadArgument, MissingData, MissingExtra, StoreError
from gem.worlds import World

SOURCE = (
    "import no_such_window.font\n\ndef greet():\n    from little_world import words\n    return words.HELLO\n"
)


@pytest.fixture(autouse=True)
def known(tmp_path, monkeypatch):
    """A known world whose wheel lies in a folder; returns what writes the wheel."""
    monkeypatch.setenv("GEM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    files = {"little_world/__init__.py": SOURCE, "little_world/words.py": "HELLO = 'hello'\n"}

    def publish(**more):
        return write_wheel(tmp_path / "wheels", "little_world", "1.0", {**files, **more})

    wheel = publish()
    world = World(
        name="little",
        wheel="little-world==1.0",
        sha256=(sha256(wheel.read_bytes()).hexdigest(),),
        size=wheel.stat().st_size,
        licence="MIT",
        families=("little",),
        modules=("little_world",),
        extra="gymnasium",
        absent=("no_such_window", "no_such_window.font"),
    )
    monkeypatch.setattr(worlds, "KNOWN", {"little": world})
    yield publish
    for name in [name for name in sys.modules if name.partition(".")[0] == "little_world"]:
        del sys.modules[name]


@pytest.mark.system
def test_a_world_is_fetched_once_and_imported_from_the_cache(tmp_path, capsys):
    assert cli.main(["worlds", "--fetch", "all"]) == 0
    place = worlds.find("little")
    assert str(place) in capsys.readouterr().out
    (tmp_path / "wheels/little_world-1.0-py3-none-any.whl").unlink()
    assert worlds.fetch("little") == place
    worlds.import_world("little")
    worlds.import_world("little")
    import little_world

    assert little_world.greet() == "hello"
    assert little_world.__file__.startswith(str(place))
    assert "no_such_window" not in sys.modules
    assert cli.main(["worlds"]) == 0
    assert "little-world 1.0" in capsys.readouterr().out


@pytest.mark.system
def test_another_wheel_is_refused_and_nothing_is_left(known, tmp_path):
    known(**{"little_world/more.py": ""})
    with pytest.raises(MissingData, match=r"little_world-1\.0-py3-none-any\.whl is not a known wheel"):
        worlds.fetch("little")
    assert worlds.find("little") is None
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.suffix != ".lock"]


@pytest.mark.system
def test_a_full_disk_and_a_killed_fetch_leave_nothing_that_is_believed(tmp_path, monkeypatch):
    place = worlds._place(worlds.KNOWN["little"])

    def fill(archive, folder):
        archive.extract("little_world/__init__.py", folder)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr("zipfile.ZipFile.extractall", fill)
        with pytest.raises(
            StoreError, match=f"{place} cannot be written: No space left on device; set GEM_CACHE"
        ):
            worlds.fetch("little")
    left = place.with_name(f"{place.name}.partial") / "modules/little_world"  # as by kill -9
    left.mkdir(parents=True)
    (left / "old.py").touch()
    assert worlds.find("little") is None
    worlds.fetch("little")
    assert sorted(each.name for each in place.parent.iterdir()) == [place.name, f"{place.name}.lock"]
    assert not list(place.rglob("old.py"))


@pytest.mark.system
def test_a_world_of_two_wheels_is_both_or_nothing(tmp_path, monkeypatch, capsys):
    other = write_wheel(tmp_path / "wheels", "other_world", "2.0", {"other_world/__init__.py": "WORD = 1\n"})
    little = worlds.KNOWN["little"]
    for digest, fetched in (("0" * 64, 2), (sha256(other.read_bytes()).hexdigest(), 0)):
        both = replace(little, more={"other-world==2.0": (digest,)})
        monkeypatch.setitem(worlds.KNOWN, "little", both)
        assert cli.main(["worlds", "--fetch", "little"]) == fetched
        assert (worlds.find("little") is None) == bool(fetched)
    assert {path.name for path in worlds.find("little").glob("*_world")} == {"little_world", "other_world"}
    assert cli.main(["worlds"]) == 0
    assert "little-world 1.0 +1" in " ".join(capsys.readouterr().out.split())


@pytest.mark.system
def test_what_is_source_alone_needs_a_compiler_and_has_the_known_digest(tmp_path, monkeypatch):
    other = "other-world==2.0"
    built = replace(worlds.KNOWN["little"], more={other: ("0" * 64,)}, built=(other,))
    monkeypatch.setitem(worlds.KNOWN, "little", built)
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    for program in ("gcc", "make"):
        with pytest.raises(MissingData, match=f"'little' needs {other}.* {program} is not on this machine"):
            worlds.fetch("little")
        (programs / program).symlink_to("/bin/true")
    with tarfile.open(tmp_path / "wheels/other_world-2.0.tar.gz", "w:gz") as source:
        (tmp_path / "setup.py").write_text("raise SystemExit('it ran')")
        source.add(tmp_path / "setup.py", "other_world-2.0/setup.py")
    with pytest.raises(MissingData, match="pip cannot fetch the world 'little'") as refused:
        worlds.fetch("little")
    assert "it ran" not in str(refused.value)
    assert worlds.find("little") is None


@pytest.mark.system
def test_programs_of_a_wheel_may_run(tmp_path, monkeypatch):
    path = tmp_path / "wheels/little_world-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "a") as wheel:
        entry = zipfile.ZipInfo("little_world/program")
        entry.external_attr = 0o100755 << 16
        wheel.writestr(entry, "#!/bin/sh\n")
    digest = sha256(path.read_bytes()).hexdigest()
    monkeypatch.setitem(worlds.KNOWN, "little", replace(worlds.KNOWN["little"], sha256=(digest,)))
    place = worlds.fetch("little")
    modes = [(place / "little_world" / name).stat().st_mode & 0o111 for name in ("program", "words.py")]
    assert modes == [0o111, 0]


def test_a_missing_world_names_the_command(capsys):
    with pytest.raises(MissingExtra, match="gem-gym worlds --fetch little"):
        worlds.import_world("little")
    assert cli.main(["worlds"]) == 0
    assert "not here: gem-gym worlds --fetch little" in capsys.readouterr().out
    assert cli.main(["worlds", "--fetch", "litle"]) == 2
    assert "Did you mean 'little'?" in capsys.readouterr().err


@pytest.mark.system
def test_a_damaged_world_is_told_with_the_folder_to_delete():
    place = worlds.fetch("little")
    assert worlds.fetch("little") == place
    words = place / "little_world/words.py"
    for damage in (lambda: words.write_text(""), lambda: shutil.rmtree(words.parent)):
        damage()
        worlds._check_whole.cache_clear()  # as in another process
        for find in (worlds.fetch, worlds.import_world):
            with pytest.raises(
                MissingData, match=f"(__init__|words).py is missing.* Delete the folder {place},"
            ):
                find("little")
    shutil.rmtree(place)
    worlds.fetch("little")
    assert worlds.import_world("little") == place


def test_a_module_from_elsewhere_is_refused(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/little_world.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    import little_world

    worlds._place(worlds.KNOWN["little"]).mkdir(parents=True)
    with pytest.raises(BadArgument, match=r"was imported from .*elsewhere/little_world\.py"):
        worlds.import_world("little")
    assert little_world.__file__.startswith(str(tmp_path))
