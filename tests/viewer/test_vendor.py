import hashlib
import re
from importlib.resources import files

from .conftest import need_viewer

need_viewer()

from gem.viewer.app import STATIC, static

VENDOR = files("gem.viewer").joinpath("static", "vendor")


def test_what_is_brought_along_is_what_was_published():
    listed = dict(
        reversed(line.split("  ", 1)) for line in VENDOR.joinpath("SHA256SUMS").read_text().splitlines()
    )
    assert listed
    for name, digest in listed.items():
        assert hashlib.sha256(VENDOR.joinpath(name).read_bytes()).hexdigest() == digest
    assert {name.partition("vendor/")[2] for name in STATIC if "vendor" in name} < set(listed)
    assert "MIT" in VENDOR.joinpath("uplot", "LICENSE").read_text()


def test_no_file_of_ours_asks_another_server_or_makes_code_of_text():
    for name in STATIC:
        text = static(name)
        assert not re.findall(
            r"https?://(?!www\.w3\.org)|@import|url\(", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
        )
        assert not re.findall(r"\beval\(|new Function|innerHTML|insertAdjacentHTML|document\.write", text)
