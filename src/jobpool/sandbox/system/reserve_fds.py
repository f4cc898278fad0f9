"""Descriptors kept in reserve, to read /proc when no others are left.

A supervisor that has used up its descriptors could not measure a job's memory: a limit
would hold only while nothing of ours leaks and `ulimit -n` is generous. A check that
closes each file before it opens the next needs one descriptor at a time.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from typing import TypeVar

_T = TypeVar("_T")
_KEPT = 2
"""One to read with; another thread may take the first one."""
_kept: list[int] = []


def keep() -> None:
    """Reserve descriptors, as many as are available; a second call adds none."""
    with contextlib.suppress(OSError):
        while len(_kept) < _KEPT:
            _kept.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


@contextlib.contextmanager
def lent() -> Iterator[bool]:
    """Free one for a moment; yield whether there was one."""
    found = bool(_kept)
    if found:
        os.close(_kept.pop())
    try:
        yield found
    finally:
        if found:
            keep()


def with_reserve(how: Callable[[str], _T], path: str) -> _T:
    """Read something, with a reserved descriptor if need be.

    Args:
        how: opens *path* and closes it again.
        path: what to read.

    Raises:
        OSError: as *how*; EMFILE if not even a reserved descriptor is left.
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
    """Close them in a forked copy: the reserve is the parent's."""
    while _kept:
        os.close(_kept.pop())


os.register_at_fork(after_in_child=_forget)
