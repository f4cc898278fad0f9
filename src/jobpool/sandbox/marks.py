"""The mark file of a slot: which attempt its child is really running.

One page of 8-byte words, mapped by the child, that outlives every process. A child
takes one word, writes the token of the attempt that it begins, and clears the word
when it has reported the attempt's end. It is read only when a supervisor and its
children have died at once, to know which of the leased jobs were running.

A dead child's word stays, because the store may not know the end of that attempt
yet. Tokens are never used twice, so that an old one means nothing to anybody later;
and they grow, so that the smallest word is free or the longest settled.
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
    """Return the place of the word that a new child may use."""
    words = _PAGE.unpack_from(page)
    return words.index(min(words)) * MARK.size


def read_marks(path: Path) -> frozenset[int]:
    """Return all tokens in a mark file.

    Raises:
        OSError: it cannot be read.
    """
    page = path.read_bytes().ljust(MARK_BYTES, b"\0")
    return frozenset(_PAGE.unpack_from(page)) - {0}
