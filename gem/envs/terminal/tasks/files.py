"""Tasks on files: archives, permissions, symbolic links, duplicates, renaming, checksums."""

from __future__ import annotations

import gzip
import hashlib
import io
import posixpath
import tarfile
from random import Random

from gem.envs.terminal.base import WORDS, Machine, TerminalTask, expect, sentence
from gem.envs.terminal.tasks.texts import instruction, solution


def archives(rng: Random, hard: bool) -> TerminalTask:
    """Find a file in archives within an archive."""
    wanted, damaged = b"", []
    outer: dict[str, bytes] = {}
    count = 8 if hard else 3
    target = rng.randrange(count)
    for number in range(count):
        inner = {
            f"{rng.choice(WORDS)}/{rng.choice(WORDS)}-{n}.dat": rng.randbytes(rng.randint(20, 400))
            for n in range(5)
        }
        packed = _tar(inner, packed=number % 2 == 1)
        name = f"parts/{rng.choice(WORDS)}-{number}.tar{'.gz' if number % 2 else ''}"
        if number == target:
            wanted = inner[rng.choice(sorted(inner))]
        elif hard and number % 3 == 0:
            packed = rng.randbytes(len(packed))
            damaged.append(name)
        outer[name] = packed
    digest = hashlib.sha256(wanted).hexdigest()
    also = f" {instruction('archives_damaged')}" if hard else ""

    def check(machine: Machine) -> str:
        if machine.read("found.dat") != wanted:
            return "found.dat is not the file"
        return expect("damaged.txt", "\n".join(sorted(damaged)))(machine) if damaged else ""

    return TerminalTask(
        instruction("archives", digest=digest, also=also),
        check,
        solution("archives", digest=digest),
        {"backup.tar.gz": _tar(outer, packed=True)},
        looks=("tar tzf backup.tar.gz", "ls"),
    )


def _tar(files: dict[str, bytes], *, packed: bool) -> bytes:
    """Return a tar of `files`, gzipped if `packed`; the bytes do not depend on the time."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(data.getvalue(), mtime=0) if packed else data.getvalue()


def permissions(rng: Random, hard: bool) -> TerminalTask:
    """Set the modes of files and folders by a rule."""
    wanted: dict[str, str] = {"site": "755", "site/private": "700"}
    files: dict[str, bytes] = {}
    setup = ["mkdir -p site/private"]
    folders = ["site", "site/private"]
    for name in rng.sample(WORDS, 5 if hard else 2):
        folder = f"{rng.choice(folders)}/{name}{' old' if hard and rng.random() < 0.4 else ''}"
        folders.append(folder)
        wanted[folder] = "700" if folder.startswith("site/private") else "755"
    for number in range(25 if hard else 8):
        kind = ["html", "sh", "key"][number % 3]
        path = f"{folders[number % len(folders)]}/{rng.choice(WORDS)}{number}.{kind}"
        private = path.startswith("site/private/")
        wanted[path] = "600" if private else "755" if kind == "sh" else "644"
        files[path] = f"{sentence(rng, 4)}\n".encode()
    for path in sorted(wanted):
        modes = ["755", "700", "775"] if path in folders else ["644", "755", "600", "664", "700"]
        setup.append(f"chmod {rng.choice(modes)} '{path}'")
    setup[-1:] = [f"chmod 664 '{path}'" for path in sorted(files)[:1]] + setup[-1:]
    setup.append(f"chmod 666 '{sorted(files)[-1]}'")  # at least one mode is wrong

    def check(machine: Machine) -> str:
        listing = machine.run("find site -printf '%m %y %p\\n'").stdout.splitlines()
        kinds = {f"{mode} {'d' if path in folders else 'f'} {path}" for path, mode in wanted.items()}
        if set(listing) != kinds:
            return "modes or names differ"
        return next((f"{path} was changed" for path, data in files.items() if machine.read(path) != data), "")

    return TerminalTask(
        instruction("permissions"),
        check,
        solution("permissions"),
        files,
        setup="\n".join([*(f"mkdir -p '{folder}'" for folder in folders), *setup]),
        looks=("find site -printf '%m %p\\n' | LC_ALL=C sort -k2 | head -n 4", "ls site"),
    )


def symlinks(rng: Random, hard: bool) -> TerminalTask:
    """Repair symbolic links whose files were moved."""
    names = [f"{name}.txt" for name in rng.sample(WORDS, 24 if hard else 8)]
    files: dict[str, bytes] = {}
    wanted: dict[str, str] = {}
    setup = ["mkdir -p links"]
    for number, name in enumerate(names):
        depth = rng.sample(WORDS, rng.randint(1, 3 if hard else 1))
        path = "/".join(["store", *depth, name])
        files[path] = f"{name}: {sentence(rng, 5)}\n".encode()
        if hard:
            files[f"old/copy-{name}"] = b"not this one\n"
        wanted[name] = f"../{path}"
        broken = number % 2 == 0
        setup.append(f"ln -s '{'../shelf/' + name if broken else '../' + path}' links/{name}")

    def check(machine: Machine) -> str:
        listing = machine.run("find links -mindepth 1 -printf '%y %f %l\\0'").stdout.split("\0")[:-1]
        targets = {}
        for line in listing:
            kind, _, rest = line.partition(" ")
            name, _, target = rest.partition(" ")
            targets[name] = posixpath.normpath(f"links/{target}") if kind == "l" and target[:1] != "/" else ""
        if targets != {name: posixpath.normpath(f"links/{target}") for name, target in wanted.items()}:
            return "links do not point where they should"
        return next((f"{path} was changed" for path, data in files.items() if machine.read(path) != data), "")

    return TerminalTask(
        instruction("symlinks"),
        check,
        solution("symlinks"),
        files,
        setup="\n".join(setup),
        looks=("find links -printf '%f -> %l\\n' | LC_ALL=C sort | head -n 4", "ls store"),
    )


def duplicates(rng: Random, hard: bool) -> TerminalTask:
    """Free disk space by deleting copies."""
    files: dict[str, bytes] = {}
    folders = rng.sample(WORDS, 6 if hard else 3)
    for number in range(40 if hard else 12):
        name = f"{rng.choice(WORDS)}{number}{' (copy)' if hard and number % 5 == 0 else ''}.bin"
        path = f"data/{rng.choice(folders)}/{name}"
        data = rng.randbytes(rng.randint(50, 900))
        if number % 3 == 1:  # a copy of the file before, or of one as long
            data = [*files.values()][-1]
        elif hard and number % 3 == 2:
            data = bytes([data[0] ^ 1]) + [*files.values()][-1][1:]
        files[path] = data
    first: dict[bytes, str] = {}
    for path in sorted(files):
        first.setdefault(files[path], path)
    kept = set(first.values())
    freed = sum(len(data) for path, data in files.items() if path not in kept)

    def check(machine: Machine) -> str:
        listing = machine.run(
            "find data -type f -exec sha256sum {} +; find data ! -type f ! -type d"
        ).stdout.splitlines()
        wanted = {f"{hashlib.sha256(files[path]).hexdigest()}  {path}" for path in kept}
        return (
            expect("freed.txt", str(freed))(machine)
            if set(listing) == wanted
            else "the files left are not those"
        )

    return TerminalTask(
        instruction("duplicates"),
        check,
        solution("duplicates"),
        files,
        looks=("ls data", "find data -type f | LC_ALL=C sort | head -n 4"),
    )


def rename(rng: Random, hard: bool) -> TerminalTask:
    """Rename files by a rule and sort them into folders."""
    files: dict[str, bytes] = {}
    wanted: dict[str, bytes] = {}
    for number in rng.sample(range(1, 9999), 30 if hard else 8):
        year, month, day = rng.randint(2019, 2023), rng.randint(1, 12), rng.randint(1, 28)
        data = f"{number} {sentence(rng, 3)}\n".encode()
        end = rng.choice(["JPG", "jpg", "jpeg"]) if hard else "jpg"
        files[f"photos/IMG_{year}{month:02d}{day:02d}_{number:04d}.{end}"] = data
        wanted[f"sorted/{year}/{month:02d}/{day:02d}-{number:04d}.jpg"] = data
    for name in rng.sample(WORDS, 3):
        files[f"photos/{name}.txt"] = wanted[f"photos/{name}.txt"] = f"{sentence(rng, 4)}\n".encode()
    ends = " (or .JPG or .jpeg)" if hard else ""

    def check(machine: Machine) -> str:
        listing = machine.run("find photos sorted ! -type d").stdout.splitlines()
        if set(listing) != wanted.keys():
            return "the files are not where they should be"
        return next(
            (f"{path} is another file" for path, data in wanted.items() if machine.read(path) != data), ""
        )

    return TerminalTask(
        instruction("rename", ends=ends),
        check,
        solution("rename"),
        files,
        looks=("ls photos", "ls photos | wc -l"),
    )


def checksums(rng: Random, hard: bool) -> TerminalTask:
    """Find damaged files by their checksums and restore them."""
    good = {
        f"{rng.choice(WORDS)}/{name}.dat": rng.randbytes(rng.randint(30, 600))
        for name in rng.sample(WORDS, 30 if hard else 8)
    }
    manifest = "".join(f"{hashlib.sha256(data).hexdigest()}  {path}\n" for path, data in sorted(good.items()))
    files = {"manifest.sha256": manifest.encode()}
    generations = ["mirror", "vault", "tape"][: 3 if hard else 1]
    bad = rng.sample(sorted(good), len(good) // 3)
    for path, data in good.items():
        flipped = bytes([data[0] ^ 255]) + data[1:]
        files[f"live/{path}"] = flipped if path in bad else data
        intact = rng.randrange(len(generations))  # at least one copy of each file is intact
        for number, generation in enumerate(generations):
            files[f"{generation}/{path}"] = data if number == intact or rng.random() < 0.3 else flipped[::-1]
    if hard:
        where = (
            f"There are copies in {', '.join(generations)}, and some copies are damaged too, but one is not."
        )
    else:
        where = "mirror/ holds a good copy of each."

    def check(machine: Machine) -> str:
        wrong = next((path for path, data in good.items() if machine.read(f"live/{path}") != data), "")
        return (
            f"live/{wrong} is not intact"
            if wrong
            else expect("restored.txt", "\n".join(sorted(bad)))(machine)
        )

    return TerminalTask(
        instruction("checksums", where=where),
        check,
        solution("checksums", copies=" ".join(generations)),
        files,
        looks=("head -n 2 manifest.sha256", "ls live"),
    )
