"""Check the JavaScript files of the viewer, or fetch them again from the npm registry.

python scripts/vendor.py            compares the files with gem/viewer/static/vendor/SHA256SUMS
python scripts/vendor.py --fetch    first extracts them from the registry's packages; needs npm
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VENDOR = Path(__file__).parents[1] / "gem/viewer/static/vendor"
PACKAGES = {"uplot": ("uplot@1.6.32", ("dist/uPlot.iife.min.js", "dist/uPlot.min.css", "LICENSE"))}
"""What is brought along, by folder: the package at its version, and the files that are taken of it."""


def fetch() -> None:
    """Extract the files from their packages."""
    for folder, (package, names) in PACKAGES.items():
        with tempfile.TemporaryDirectory() as place:
            subprocess.run(["npm", "pack", "--silent", package], cwd=place, check=True)
            (packed,) = Path(place).glob("*.tgz")
            with tarfile.open(packed) as archive:
                for name in names:
                    found = archive.extractfile(f"package/{name}")
                    assert found is not None
                    (VENDOR / folder / Path(name).name).write_bytes(found.read())


def wrong() -> list[str]:
    """Return the files that differ from SHA256SUMS, or are not listed there."""
    listed = dict(reversed(line.split("  ", 1)) for line in (VENDOR / "SHA256SUMS").read_text().splitlines())
    there = {
        path.relative_to(VENDOR).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.rglob("*")
        if path.is_file() and path.name != "SHA256SUMS"
    }
    return sorted(name for name in listed.keys() | there.keys() if listed.get(name) != there.get(name))


if __name__ == "__main__":
    if "--fetch" in sys.argv[1:]:
        fetch()
    if found := wrong():
        sys.exit(f"not as SHA256SUMS says: {', '.join(found)}")
    print("the vendored files are as SHA256SUMS says")
