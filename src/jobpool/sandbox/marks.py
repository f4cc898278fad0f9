"""The mark file of a slot: which attempts its children have really begun.

One page of 8-byte words, mapped by the child, that outlives every process: a ring of
the tokens of the last 512 attempts that began in the slot. It is read only when a
supervisor and its children have died at once, to tell the leased jobs that had begun
from those that had not.

A word is never cleared when its attempt ends: the store may not know the end yet,
and an attempt that was finished but not settled has begun all the same. Tokens are
never used twice, so that an old one means nothing to anybody later. Far fewer than
512 attempts of a slot can be unsettled at once: no more than a child may be sent
ahead and its pool may hold.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

MARK = struct.Struct("<Q")
MARK_BYTES = 4096
_PAGE = struct.Struct(f"<{MARK_BYTES // MARK.size}Q")


def open_marks(path: str) -> int:
    """Open a mark file, made if it is missing.

    Its page is reserved on the disk: a full one must not be met later, when a child
    writes to the mapping, since that would kill it.

    Raises:
        OSError: it could not be made; on a full disk it is left empty.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(path, flags, 0o600)
    try:
        os.posix_fallocate(fd, 0, MARK_BYTES)
    except OSError:
        os.close(fd)
        raise
    return fd


def free_mark(page: mmap.mmap) -> int:
    """Return the place in the ring at which a new child goes on: the oldest word."""
    words = _PAGE.unpack_from(page)
    return words.index(min(words)) * MARK.size


def read_marks(path: Path) -> frozenset[int]:
    """Return all tokens in a mark file.

    Raises:
        OSError: it cannot be read.
    """
    page = path.read_bytes().ljust(MARK_BYTES, b"\0")
    return frozenset(_PAGE.unpack_from(page)) - {0}
