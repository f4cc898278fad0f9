"""Large pickles travel as files that a frame names; small ones in the frame itself.

Files stand in memory (``/dev/shm``) while there is room, else in the temporary
directory. Whoever reads a result removes its file; arguments stay until their job has
ended, because it may be run again.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

INLINE_MAX_BYTES = 2**20
"""Longer pickles go by file."""
ROOM_MIN_BYTES = 32 * 2**20
"""So much is left free in a place that is not the last one."""
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - below it a directory of our own, mode 0700
PREFIX = "jobpool-executor-"
_INLINE, _FILE = b"i", b"f"


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


def wrap(data: bytes, directories: Sequence[str]) -> bytes:
    """Return what stands for *data* in a frame.

    Raises:
        OSError: it is large, and there is no room for it anywhere.
    """
    if len(data) <= INLINE_MAX_BYTES:
        return _INLINE + data
    for directory in directories[:-1]:
        if _room_bytes(directory) < len(data) + ROOM_MIN_BYTES:
            continue
        with contextlib.suppress(OSError):
            return _FILE + _write(data, directory)
    return _FILE + _write(data, directories[-1])


def unwrap(wrapped: bytes) -> bytes:
    """Return the data that *wrapped* stands for.

    Raises:
        OSError: its file cannot be read.
    """
    path = path_of(wrapped)
    return wrapped[1:] if path is None else Path(path).read_bytes()


def path_of(wrapped: bytes) -> str | None:
    """Return the file that holds the data; None: it is in the frame."""
    return wrapped[1:].decode() if wrapped[:1] == _FILE else None


def discard(wrapped: bytes) -> None:
    """Remove the file behind it, if there is one."""
    path = path_of(wrapped)
    if path is not None:
        Path(path).unlink(missing_ok=True)


def _write(data: bytes, directory: str) -> bytes:
    fd, path = tempfile.mkstemp(dir=directory)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
    except BaseException:
        Path(path).unlink()
        raise
    return path.encode()


def _room_bytes(directory: str) -> int:
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize
