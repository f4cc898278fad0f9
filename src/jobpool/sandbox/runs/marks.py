"""The mark file of a slot: which attempts its children have really begun.

Two pages of 8-byte words, written by the child, that outlive every process: a ring of
the tokens of the last 1,024 attempts that began in the slot. When a supervisor and its
children have died at once, it tells the leased jobs that had begun from those that had
not; and while they live, whether a ticket that is gone was taken for its job.

A word is never cleared when its attempt ends: the store may not know the end yet,
and an attempt that was finished but not settled has begun all the same. Tokens are
never used twice, so that an old one means nothing to anybody later. Fewer than 1,024
attempts of a slot can be unsettled at once: no more than its pool may hold
(`pool.HELD_MAX`), and those whose large ends the outbox puts off (`LARGE_MAX`).

Theory of operation. A handler shares the child's descriptors and may truncate the
file or put another one in its place. The child keeps a copy of the ring, therefore,
and compares the file with it between attempts: what a handler did to the file is
undone there, and what cannot be written is met there, when no job can be blamed for
it. No other file gets the number of its descriptor meanwhile (`ownfds`).

It is not mapped: touching a page that is gone would kill the child. Nor may the kernel
put a mark there while it hands out the ticket, which would be quicker: it might wait
for the disk with the tickets' socket locked, and the supervisor with it.
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
    """Open a mark file, made if it is missing.

    Its pages are reserved on the disk: a full one is better met before a child is made.

    Raises:
        OSError: it could not be made; on a full disk it is left empty.
    """
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(path).st_mode):  # a handler's doing
            remove_tree(path)
    fd = os.open(path, _CHANGE | os.O_CREAT, 0o600)
    try:
        if os.fstat(fd).st_size > MARK_BYTES:  # and has let it grow
            os.ftruncate(fd, MARK_BYTES)
        os.posix_fallocate(fd, 0, MARK_BYTES)
    except OSError:
        os.close(fd)
        raise
    return fd


class Marks:
    """The mark file, as the child sees it that writes to it.

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
        self._at = words.index(min(words)) * MARK.size  # go on at the oldest

    def begin(self, token: int) -> None:
        """Mark that an attempt begins, in the place of the oldest mark.

        A failure is not told here, where the job would be blamed for it: `renew` meets
        it again. Until then the attempt counts as not begun if all is killed at once.
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
            quick: only its length may be another; the rest is looked at later.

        Returns:
            Why it cannot be written any more, ``""`` when it can. Nothing was written
            to a file that has taken its place.
        """
        try:
            if quick and os.lseek(self._fd, 0, os.SEEK_END) == MARK_BYTES:
                return ""
            status = os.fstat(self._fd)
            if (status.st_dev, status.st_ino) != self._inode:
                return "its descriptor is another file's now"
            if status.st_size > MARK_BYTES:
                os.ftruncate(self._fd, MARK_BYTES)
            # To read it is cheaper than to write it. What `begin` could not
            # write is missing here, and is met again.
            if os.pread(self._fd, MARK_BYTES, 0) != self._ring:
                os.pwrite(self._fd, self._ring, 0)
        except OSError as exc:
            return exc.strerror or type(exc).__name__
        return ""


def read_marks(path: str | Path) -> frozenset[int] | None:
    """Return all tokens in a mark file; None: somebody has spoilt it.

    Its pages were reserved before the child was made: a handler that has cut,
    lengthened, replaced or removed it may have meant to hide what ran. Nothing here
    waits, whatever stands in its place.

    Raises:
        OSError: it cannot be looked at, for want of descriptors.
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
    """Do as `read_marks`; None also when there is no descriptor to look with."""
    try:
        return read_marks(path)
    except OSError:
        return None


def trim_marks(path: str | Path) -> None:
    """Give back what a handler has put behind the ring: it could fill a disk so."""
    try:
        if os.lstat(path).st_size <= MARK_BYTES:  # as ever
            return
        fd = os.open(path, _CHANGE)
    except OSError:
        return  # somebody has removed or replaced it: there is nothing to give back
    try:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            os.ftruncate(fd, MARK_BYTES)
    finally:
        os.close(fd)
