"""Files in a confined child: writing, reading, packing and clearing up below its home.

It uses the standard library only; see `gem.sandbox.program`.
"""

import contextlib
import errno
import io
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Any


def put_files(files: Mapping[str, bytes]) -> None:
    """Write files below the working folder. Raises OSError, or ValueError for a path that leaves it."""
    for path, data in files.items():
        write_file(path, data, 0o644)


def write_file(path: str, data: bytes, mode: int) -> None:
    """Write one regular file below the home, following no link on the way."""
    folder, name = _walk(path, make=True)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=folder)
    finally:
        os.close(folder)
    with open(fd, "wb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        file.truncate(0)
        file.write(data)
        os.fchmod(fd, mode & 0o777)


def read_file(path: str, longest: int) -> bytes:
    """Read one regular file below the home, following no link on the way."""
    folder, name = _walk(path, make=False)
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        if status.st_size > longest:
            raise OSError(errno.EFBIG, f"longer than {longest} bytes", path)
        return file.read(longest)


def _walk(path: str, *, make: bool) -> tuple[int, str]:
    home = os.environ["HOME"]
    if path.startswith(home + "/"):
        path = path[len(home) + 1 :]
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or not parts or ".." in parts:
        raise OSError(errno.EINVAL, "not below the working folder", path)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(home, flags)
    try:
        for part in parts[:-1]:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=folder)
            inner = os.open(part, flags, dir_fd=folder)
            os.close(folder)
            folder = inner
    except BaseException:
        os.close(folder)
        raise
    return folder, parts[-1]


def unpack(image: bytes) -> None:
    """Unpack a tar over the home: folders, files, links, with their modes and times, and nothing else."""
    import tarfile

    # Python 3.12 and later want to hear it, early 3.11 does not know it; the checks below are ours.
    unfiltered: dict[str, Any] = {"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}
    home = os.environ["HOME"]
    with tarfile.open(fileobj=io.BytesIO(image)) as tar:
        for member in tar:
            if member.isreg() or member.isdir() or member.issym() or member.islnk():
                if ".." in member.name.split("/") or member.name.startswith("/"):
                    raise OSError(errno.EINVAL, "not below the working folder", member.name)
                member.mode = (member.mode or 0o644) & 0o777 | (0o700 if member.isdir() else 0)
                member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
                tar.extract(member, home, **unfiltered)


def pack(longest: int) -> bytes:
    """Return the home as a tar of its folders, regular files and links."""
    import tarfile

    def keep(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return member if member.isreg() or member.isdir() or member.issym() or member.islnk() else None

    buffer = io.BytesIO()
    home = os.environ["HOME"]
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.add(home, ".", recursive=False)
        for entry in sorted(own_entries(home), key=lambda entry: entry.name):
            tar.add(entry.path, f"./{entry.name}", filter=keep)
    if buffer.tell() > longest:
        raise OSError(errno.EFBIG, f"longer than {longest} bytes")
    return buffer.getvalue()


def own_entries(folder: str) -> list[os.DirEntry[str]]:
    """Return the entries that a program has put into a folder, without mounts (the interpreter)."""
    device = os.stat(folder).st_dev
    with os.scandir(folder) as entries:
        return [entry for entry in entries if entry.stat(follow_symlinks=False).st_dev == device]


def empty(folder: str, keep: str = "") -> None:
    """Remove all that a program has put into a folder, except `keep` and what cannot be removed."""
    for entry in own_entries(folder):
        if entry.path == keep:
            continue
        if entry.is_dir(follow_symlinks=False):
            remove_folder(entry.path)
        else:
            os.unlink(entry.path)


def remove_folder(folder: str) -> None:
    """Remove a folder with all that is in it, except what cannot be removed."""
    import shutil

    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):
        if os.path.lexists(folder):  # another process may remove it too
            command = 'exec 2>/dev/null; chmod -R u+rwx "$0"; rm -rf "$0"'
            os.spawnv(os.P_WAIT, "/bin/sh", ["sh", "-c", command, folder])


def clear_up(folders: Sequence[str], keep: str = "") -> None:
    """Empty folders that a program could write to, except `keep`, and reset their own mode and attributes.

    Raises OSError for what cannot be removed.
    """
    for folder in dict.fromkeys(folders):
        with contextlib.suppress(OSError):  # not ours: then no program could do these things either
            os.chmod(folder, stat.S_IMODE(os.stat(folder).st_mode) | 0o700)
            for name in os.listxattr(folder):
                os.removexattr(folder, name)
        empty(folder, keep)
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o1777)
            os.utime(folder, (0, 0))


def open_nameless(data: bytes, folder: str = "") -> int:
    """Return a descriptor, at offset 0, of an unnamed file that holds `data`; by default below TMPDIR."""
    folder = folder or os.environ["TMPDIR"]
    try:
        fd = os.open(folder, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
    except OSError:
        import tempfile

        fd, path = tempfile.mkstemp(dir=folder)
        os.unlink(path)
    write_all(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def open_in_memory(name: str, data: bytes) -> int:
    """Return a descriptor, at offset 0, of a file in memory that holds `data`."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    write_all(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def duplicate_above(fd: int, lowest: int) -> int:
    """Duplicate a descriptor to a number not below `lowest`, and close it."""
    import fcntl

    high: int = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, lowest)
    os.close(fd)
    return high


def write_all(fd: int, data: bytes) -> None:
    """Write all of the data to a descriptor."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
