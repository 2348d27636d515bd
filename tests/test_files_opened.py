"""Files that are read as a whole: what is none is refused at once."""

import os

import pytest

from gem.files import open_file, parse_toml, read_bytes, read_json, read_text, read_toml


def test_a_file_is_read(tmp_path):
    (tmp_path / "a").write_bytes(b'{"a": 1}\r\n')
    assert read_text(tmp_path / "a") == '{"a": 1}\n'
    assert read_json(tmp_path / "a") == {"a": 1}


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "loop", "absent"])
def test_what_is_no_file_is_refused_at_once(tmp_path, kind):
    path = tmp_path / "x"
    {
        "pipe": lambda: os.mkfifo(path),
        "device": lambda: path.symlink_to("/dev/zero"),
        "folder": path.mkdir,
        "loop": lambda: path.symlink_to("x"),
        "absent": lambda: None,
    }[kind]()
    for read in (open_file, read_bytes, read_text, read_toml, read_json):
        with pytest.raises(OSError, match=r"pipe or a device|Is a directory|Too many levels|No such file"):
            read(path)


def test_the_pipe_of_a_shell_is_read():
    reader, writer = os.pipe()
    os.write(writer, b"a = 1\n")
    os.close(writer)
    assert read_toml(f"/dev/fd/{reader}") == {"a": 1}
    os.close(reader)


def test_a_file_that_is_too_large_is_refused(tmp_path):
    with (tmp_path / "x").open("wb") as file:
        file.truncate(2 << 20)
    with pytest.raises(OSError, match="more than 1 MiB"):
        read_bytes(tmp_path / "x", 1 << 20)


def test_values_that_are_nested_too_deeply_are_a_fault_of_the_file(tmp_path):
    (tmp_path / "x").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="nested too deeply"):
        read_json(tmp_path / "x")
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_toml("a = " + "[" * 100_000)
