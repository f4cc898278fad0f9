"""A child's own descriptors, at numbers that no handler's files get.

A handler that closes a number twice, or all that there are, as daemons do, would hit
ours; and its next file would get that number. What is written, cut and moved between
attempts would be the user's file, then. The kernel gives out the lowest number that is
free: so ours are at the upper end. Who has closed them all the same, and then opens
hundreds of files, has another one there: what is about to be cut is looked at before.
"""

from __future__ import annotations

import os
import resource
from fcntl import F_DUPFD_CLOEXEC, fcntl  # before an application can replace them
from os import close

OWN_FROM = 960
"""With the usual limit of descriptors (RLIMIT_NOFILE), or a higher one."""
_ROOM = 64
_USUAL_LIMIT = OWN_FROM + _ROOM
Identity = tuple[int, int]
"""A file's device and inode."""


def out_of_reach(fd: int) -> int:
    """Move a descriptor; return its number: the old one, if no high one may be had."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    first = min(limit, _USUAL_LIMIT) - _ROOM
    if first <= fd:
        return fd
    try:
        own = fcntl(fd, F_DUPFD_CLOEXEC, first)
    except OSError:  # the limit counts
        return fd
    close(fd)
    return own


def open_own(path: str, flags: int) -> int:
    """Open a file, or make it, as a descriptor of the child's own.

    Raises:
        OSError: it cannot be opened.
    """
    return out_of_reach(os.open(path, flags | os.O_CLOEXEC, 0o600))


def identity_of(fd: int) -> Identity:
    """Say which file a descriptor is; (0, 0) for none."""
    try:
        status = os.fstat(fd)
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


def require(fd: int, identity: Identity) -> None:
    """Do nothing if a descriptor of ours is the file that it was.

    Raises:
        OSError: it is closed, or another file.
    """
    if identity_of(fd) != identity:
        raise OSError(
            f"descriptor {fd}, which is jobpool's, was closed or is another file now; "
            "a handler is to close what it has opened itself, and nothing else"
        )
