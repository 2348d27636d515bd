"""Dockerfiles that need no engine: FROM, WORKDIR, COPY and ADD of local files, and ENV."""

from __future__ import annotations

import json
import posixpath
import re
import shlex
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

from gem.errors import BadArgument

_SYSTEM = (
    *(
        "/",
        "/bin",
        "/dev",
        "/etc",
        "/home",
        "/lib",
        "/opt",
        "/proc",
        "/root",
        "/run",
        "/sbin",
        "/srv",
        "/sys",
    ),
    *("/tmp", "/usr", "/var"),
)
"""Working folders that a sandbox's home cannot replace."""
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9_./-]+")
_ARCHIVE = re.compile(r"\.(tar(\.\w+)?|tgz|tbz2?|txz)$")


@dataclass(slots=True)
class Ground:
    """The first state of a task: its working folder, and the files in it and variables that it begins with.

    `programs` are the paths in `files` that can be executed. `image` is a tar that is unpacked first.
    """

    home: str = "/app"
    files: dict[str, bytes] = field(default_factory=dict)
    programs: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    image: bytes | None = None

    def add(self, path: str, source: Path) -> None:
        """Add a file, at a path in the working folder."""
        self.files[path] = source.read_bytes()
        if source.stat().st_mode & 0o100:
            self.programs.append(path)


def regular_files(folder: Path) -> dict[str, Path]:
    """Return the regular files below a folder by their path there; links are not followed."""
    if not folder.is_dir():
        return {}
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {path.relative_to(folder).as_posix(): path for path in paths}


def read_dockerfile(folder: Path) -> Ground:
    """Return what the Dockerfile of a folder asks for. What the base image has is not there.

    Raises:
        BadArgument: for what only an engine can build, with the line.
    """
    ground, copied, workdir, stages = Ground(), dict[str, Path](), "/", 0
    if (folder / ".dockerignore").is_file():
        raise BadArgument("it has a .dockerignore")
    for line in _logical_lines((folder / "Dockerfile").read_text(encoding="utf-8", errors="replace")):
        word, _, rest = line.partition(" ")
        word, words = word.upper(), _split(line, rest)
        if word == "FROM" and not stages and len(words) == 1:
            stages += 1
        elif word == "WORKDIR" and len(words) == 1:
            workdir = posixpath.normpath(posixpath.join(workdir, words[0]))
        elif word == "ENV" and (pairs := _pair(words, rest)) is not None:
            ground.env |= pairs
        elif word == "ADD" and (archive := _archive(folder, words, workdir)) and not (copied or ground.image):
            ground.image = archive.read_bytes()
        elif word in ("COPY", "ADD") and len(words) > 1:
            copied |= _copy(folder, line, words, workdir)
        else:
            raise BadArgument(f"its Dockerfile has the line {line!r:.100}")
    if workdir in _SYSTEM or not _PLAIN_PATH.fullmatch(workdir):
        raise BadArgument(f"its Dockerfile's WORKDIR is {workdir!r:.100}")
    ground.home = workdir
    for path, source in copied.items():
        inside = posixpath.relpath(path, workdir)
        if inside.startswith(".."):
            raise BadArgument(f"its Dockerfile copies a file to {path!r:.100}, outside of its WORKDIR")
        ground.add(inside, source)
    return ground


def _logical_lines(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\[ \t]*\n", " ", "\n".join(lines))
    return [re.sub(r"\s", " ", line.strip()) for line in joined.split("\n") if line.strip()]


def _split(line: str, rest: str) -> list[str]:
    """Return an instruction's words. Raises BadArgument for variables, options and what cannot be read."""
    try:
        words = json.loads(rest) if rest.lstrip().startswith("[") else shlex.split(rest)
    except ValueError:
        words = []
    plain = words and all(isinstance(word, str) and word[:2] not in ("--", "<<") for word in words)
    if not plain or "$" in rest:
        raise BadArgument(f"its Dockerfile has the line {line!r:.100}")
    return words


def _pair(words: list[str], rest: str) -> dict[str, str] | None:
    """Return the variables of an ENV, from ``NAME=VALUE ...`` or ``NAME VALUE``; None for another form."""
    if "=" not in words[0]:
        words = [f"{words[0]}={rest.strip().partition(' ')[2].strip()}"]
    pairs = [word.partition("=") for word in words]
    if not all(equals and re.fullmatch(r"[A-Za-z_]\w*", name) for name, equals, _ in pairs):
        return None
    return {name: value for name, _, value in pairs}


def _archive(folder: Path, words: list[str], workdir: str) -> Path | None:
    """Return the tar that an ADD unpacks into the working folder; None for any other ADD."""
    path = folder / words[0]
    plain = len(words) == 2 and "/" not in words[0] and _ARCHIVE.search(words[0]) and not path.is_symlink()
    into = posixpath.normpath(posixpath.join(workdir, words[-1])) == workdir
    return path if plain and into and path.is_file() and tarfile.is_tarfile(path) else None


def _copy(folder: Path, line: str, words: list[str], workdir: str) -> dict[str, Path]:
    """Return the files of a COPY or ADD by their absolute paths in the image. Raises BadArgument."""
    *sources, target = words
    into = target.endswith(("/", "/.")) or target == "." or len(sources) > 1
    place = posixpath.normpath(posixpath.join(workdir, target))
    copied: dict[str, Path] = {}
    for name in sources:
        source = folder / posixpath.normpath(f"/{name}").lstrip("/")
        archive = line[:3].upper() == "ADD" and _ARCHIVE.search(name)
        inside = source.resolve().is_relative_to(folder.resolve())
        if archive or ".." in name.split("/") or source.is_symlink() or not (inside and source.exists()):
            raise BadArgument(f"its Dockerfile has the line {line!r:.100}")
        if source.is_dir():
            files = regular_files(source)
            copied |= {posixpath.join(place, path): file for path, file in files.items()}
        else:
            to_folder = into or place == workdir
            copied[posixpath.join(place, source.name) if to_folder else place] = source
    return copied
