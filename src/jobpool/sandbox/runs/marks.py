"""The mark file of a slot: which attempts its children have really begun.

Two pages of 8-byte words, written by the child, that outlive every process: a ring of
the tokens of the last 1,024 attempts that began in the slot. When a supervisor and its
children have died at once, it separates the leased jobs that had begun from those that
had not; while they live, it shows whether a missing ticket was taken for its job.

A word is not cleared when its attempt ends: the store may not know the end yet, and an
attempt that was finished but not settled has begun all the same. Tokens are never
reused, so an old one does no harm. Fewer than 1,024 attempts of a slot can be unsettled
at once: no more than its pool may hold (`pool.HELD_MAX`), and those whose large results
the outbox postpones (`LARGE_MAX`).

Theory of operation. A handler shares the child's descriptors and may truncate the
file or replace it. So the child keeps a copy of the ring and compares the file with it
between attempts: what a handler did to the file is undone there, and a failure to write
is noticed there, when no job can be blamed for it. No other file gets the number of its
descriptor meanwhile (`own_fds`).

The file is not mapped: touching a page that is gone would kill the child. Nor may the
kernel write the mark while it hands out the ticket, which would be faster: it might
wait for the disk with the tickets' socket locked, and block the supervisor.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from pathlib import Path

from jobpool.sandbox.system import reserve_fds
from jobpool.sandbox.system.procfs import EXHAUSTED
from jobpool.sandbox.system.remove_tree import remove_tree

MARK = struct.Struct("<Q")
MARK_BYTES = 8192
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_CHANGE = os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_RING = struct.Struct(f"<{MARK_BYTES // MARK.size}Q")


def open_marks(path: str) -> int:
    """Open a mark file, created if it is missing.

    Its pages are reserved: a full disk should be noticed before a child is forked.

    Raises:
        OSError: it could not be created; on a full disk it is left empty.
    """
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(path).st_mode):  # a handler replaced it
            remove_tree(path)
    fd = os.open(path, _CHANGE | os.O_CREAT, 0o600)
    try:
        if os.fstat(fd).st_size > MARK_BYTES:  # a handler let it grow
            os.ftruncate(fd, MARK_BYTES)
        os.posix_fallocate(fd, 0, MARK_BYTES)
    except OSError:
        os.close(fd)
        raise
    return fd


class Marks:
    """The mark file on the side of the child, which writes it.

    Args:
        fd: the mark file.

    Raises:
        OSError: it cannot be read.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        status = os.fstat(fd)
        self._inode = status.st_dev, status.st_ino
        self._ring = bytearray(os.pread(fd, MARK_BYTES, 0).ljust(MARK_BYTES, b"\0"))
        words = _RING.unpack_from(self._ring)
        self._at = words.index(min(words)) * MARK.size  # continue at the oldest

    def begin(self, token: int) -> None:
        """Mark that an attempt begins, replacing the oldest mark.

        A failure is not reported here, where the job would be blamed for it: `renew`
        finds it. Until then the attempt counts as not begun if all is killed at once.
        """
        at, mark = self._at, MARK.pack(token)
        self._ring[at : at + MARK.size] = mark
        try:  # noqa: SIM105 - half the time
            os.pwrite(self._fd, mark, at)
        except OSError:
            pass
        self._at = (at + MARK.size) % MARK_BYTES

    def renew(self, *, quick: bool = False) -> str:
        """Undo what a handler did to the file.

        Args:
            quick: check only the length; the content is checked later.

        Returns:
            Why it cannot be written any more; ``""``: it can. Nothing was written to
            another file that has its descriptor now.
        """
        try:
            if quick and os.lseek(self._fd, 0, os.SEEK_END) == MARK_BYTES:
                return ""
            status = os.fstat(self._fd)
            if (status.st_dev, status.st_ino) != self._inode:
                return "its descriptor is another file's now"
            if status.st_size > MARK_BYTES:
                os.ftruncate(self._fd, MARK_BYTES)
            # Reading is cheaper than writing. What `begin` failed to write is missing
            # here, and fails again.
            if os.pread(self._fd, MARK_BYTES, 0) != self._ring:
                os.pwrite(self._fd, self._ring, 0)
        except OSError as exc:
            return exc.strerror or type(exc).__name__
        return ""


def read_marks(path: str | Path) -> frozenset[int] | None:
    """Return all tokens in a mark file; None: it was tampered with.

    Its pages were reserved before the child was forked: a handler that truncated,
    extended, replaced or removed it may have meant to hide what ran. Nothing here
    blocks, whatever has replaced it.

    Raises:
        OSError: it cannot be read, for want of descriptors.
    """
    try:
        return reserve_fds.with_reserve(_read, os.fspath(path))
    except OSError as exc:
        if exc.errno in EXHAUSTED:
            raise
        return None


def _read(path: str) -> frozenset[int] | None:
    fd = os.open(path, _READ)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size != MARK_BYTES:
            return None
        return frozenset(_RING.unpack(os.pread(fd, MARK_BYTES, 0))) - {0}
    finally:
        os.close(fd)


def try_read_marks(path: str | Path) -> frozenset[int] | None:
    """Do as `read_marks`; None also if no descriptor is left to read with."""
    try:
        return read_marks(path)
    except OSError:
        return None


def trim_marks(path: str | Path) -> None:
    """Truncate what a handler has appended, so that it cannot fill the disk."""
    try:
        if os.lstat(path).st_size <= MARK_BYTES:  # the usual case
            return
        fd = os.open(path, _CHANGE)
    except OSError:
        return  # it was removed or replaced: nothing to truncate
    try:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            os.ftruncate(fd, MARK_BYTES)
    finally:
        os.close(fd)
