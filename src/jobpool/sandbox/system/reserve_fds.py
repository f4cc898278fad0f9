"""Descriptors kept back, to look at processes when there are no others left.

Where a process has used up its descriptors, it could not open what tells how much
memory a job has: a limit would hold only as long as nothing else of ours leaks, or as
`ulimit -n` is generous. A check that closes what it has opened before the next one
needs one descriptor at a time.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from typing import TypeVar

_Seen = TypeVar("_Seen")
_KEPT = 2
"""One to read by; another thread may be quicker to take the first one."""
_kept: list[int] = []


def keep() -> None:
    """Keep descriptors back, as many as there are to be had; again, it adds none."""
    with contextlib.suppress(OSError):
        while len(_kept) < _KEPT:
            _kept.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


@contextlib.contextmanager
def lent() -> Iterator[bool]:
    """Set one free for a moment; say whether there was one."""
    found = bool(_kept)
    if found:
        os.close(_kept.pop())
    try:
        yield found
    finally:
        if found:
            keep()


def with_reserve(how: Callable[[str], _Seen], path: str) -> _Seen:
    """Look at something, if need be with a descriptor that was kept back.

    Args:
        how: opens *path*, and closes it again.
        path: what to look at.

    Raises:
        OSError: as *how*; EMFILE when not even one that was kept back is left.
    """
    try:
        return how(path)
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        with lent() as is_lent:
            if is_lent:
                return how(path)
        raise


def _forget() -> None:
    """In a forked copy: they are the parent's to lend, and closed one by one here."""
    while _kept:
        os.close(_kept.pop())


os.register_at_fork(after_in_child=_forget)
