"""Large pickles are sent as files that a frame names; small ones in the frame itself.

The files are in memory (``/dev/shm``) while there is room, else in the temporary
directory. The reader of a result removes its file; arguments stay until their job has
ended, because it may run again.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import stat
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from jobpool.sandbox.system.remove_tree import remove_tree

INLINE_MAX_BYTES = 2**20
"""Longer pickles are sent as files."""
ROOM_MIN_BYTES = 32 * 2**20
"""How much to leave free in every place but the last."""
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - below it a directory of our own, mode 0700
PREFIX = "jobpool-executor-"
STALE_S = 600.0
"""A younger directory that is not locked may belong to a host that is starting."""
_LOCK = "kept"
_MAKE_LOCK = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_INLINE, _FILE = b"i", b"f"
_POPULATED = mmap.MAP_SHARED | mmap.MAP_POPULATE


def make_directories() -> tuple[str, ...]:
    """Make the private directories of one executor, the best one first.

    The last one is in the temporary directory.

    Raises:
        OSError: there is no place for it.
    """
    made = []
    if os.access(SHARED_MEMORY, os.W_OK | os.X_OK):
        with contextlib.suppress(OSError):
            made.append(tempfile.mkdtemp(prefix=PREFIX, dir=SHARED_MEMORY))
    made.append(tempfile.mkdtemp(prefix=PREFIX))
    return tuple(made)


def keep(directories: Sequence[str]) -> list[int]:
    """Lock these directories as in use for as long as this process lives.

    Returns:
        The locks: descriptors to keep open.

    Raises:
        OSError: one of them is gone.
    """
    locks = []
    for directory in directories:
        lock = os.open(f"{directory}/{_LOCK}", _MAKE_LOCK, 0o600)
        fcntl.flock(lock, fcntl.LOCK_SH)
        locks.append(lock)
    return locks


def remove_stale() -> None:
    """Remove the directories of executors that were killed together with their caller.

    Only those of our own user that no living host has locked; a young one may belong to
    a host that has not locked it yet.
    """
    for place in (SHARED_MEMORY, tempfile.gettempdir()):
        for path in Path(place).glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):  # it is gone, or we may not remove it
                if _is_stale(path):
                    remove_tree(path)


def _is_stale(path: Path) -> bool:
    status = path.lstat()
    is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    if not is_ours or time.time() - status.st_mtime < STALE_S:
        return False
    try:
        lock = os.open(path / _LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True  # its host never locked it
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


def wrap(parts: Sequence[bytes], directories: Sequence[str]) -> bytes:
    """Return the frame's form of data: the data itself, or the name of its file.

    Args:
        parts: the data, in pieces, so that large ones need not be joined.
        directories: where the file may be.

    Raises:
        OSError: it is large, and there is no room for it anywhere.
    """
    size = sum(map(len, parts))
    if size <= INLINE_MAX_BYTES:
        return b"".join((_INLINE, *parts))
    for directory in directories[:-1]:
        if _room_bytes(directory) < size + ROOM_MIN_BYTES:
            continue
        with contextlib.suppress(OSError):
            return _FILE + _write(parts, directory)
    return _FILE + _write(parts, directories[-1])


def unwrap(wrapped: bytes) -> memoryview:
    """Return the data that *wrapped* stands for, read from its file.

    Raises:
        OSError: its file cannot be read.
    """
    path = path_of(wrapped)
    if path is None:
        return memoryview(wrapped)[1:]
    return memoryview(Path(path).read_bytes())


def map_in(wrapped: bytes) -> memoryview:
    """Return the data without a copy. For children only.

    If the file is truncated meanwhile, the process that reads it is killed: it must
    never be the caller.

    Raises:
        OSError: its file cannot be read.
    """
    path = path_of(wrapped)
    if path is None:
        return memoryview(wrapped)[1:]
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - quick
        return memoryview(mmap.mmap(file.fileno(), 0, _POPULATED, mmap.PROT_READ))


def path_of(wrapped: bytes) -> str | None:
    """Return the file that holds the data; None: it is in the frame."""
    return wrapped[1:].decode() if wrapped[:1] == _FILE else None


def discard(wrapped: bytes) -> None:
    """Remove the data's file, if there is one."""
    path = path_of(wrapped)
    if path is not None:
        Path(path).unlink(missing_ok=True)


def _write(parts: Sequence[bytes], directory: str) -> bytes:
    fd, path = tempfile.mkstemp(dir=directory)
    try:
        with os.fdopen(fd, "wb") as file:
            file.writelines(parts)
    except BaseException:
        Path(path).unlink()
        raise
    return path.encode()


def _room_bytes(directory: str) -> int:
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize
