"""A child's own descriptors, at numbers that a handler's files do not get.

A handler that closes a number twice, or all of them, as daemons do, would close ours,
and its next file would get that number. Between attempts we would then write to,
truncate and seek in the user's file. The kernel assigns the lowest free number, so ours
are at the upper end. A handler that closes them all the same and then opens hundreds of
files has another file there: so each is checked before it is truncated.
"""

from __future__ import annotations

import os
import resource
from fcntl import F_DUPFD_CLOEXEC, fcntl  # before an application can replace them
from os import close

OWN_FROM = 960
"""The first number, at the usual limit on descriptors (RLIMIT_NOFILE) or above."""
_ROOM = 64
_USUAL_LIMIT = OWN_FROM + _ROOM
Identity = tuple[int, int]
"""A file's device and inode."""


def out_of_reach(fd: int) -> int:
    """Move a descriptor up; return its number: the old one if none is free there."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    first = min(limit, _USUAL_LIMIT) - _ROOM
    if first <= fd:
        return fd
    try:
        own = fcntl(fd, F_DUPFD_CLOEXEC, first)
    except OSError:  # at the limit
        return fd
    close(fd)
    return own


def open_own(path: str, flags: int) -> int:
    """Open or create a file as one of the child's own descriptors.

    Raises:
        OSError: it cannot be opened.
    """
    return out_of_reach(os.open(path, flags | os.O_CLOEXEC, 0o600))


def identity_of(fd: int) -> Identity:
    """Return which file a descriptor refers to; (0, 0) for none."""
    try:
        status = os.fstat(fd)
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


def require(fd: int, identity: Identity) -> None:
    """Check that a descriptor of ours still refers to its file.

    Raises:
        OSError: it is closed or another file.
    """
    if identity_of(fd) != identity:
        raise OSError(
            f"descriptor {fd}, which is jobpool's, was closed or is another file now; "
            "a handler must close only what it has opened itself"
        )
