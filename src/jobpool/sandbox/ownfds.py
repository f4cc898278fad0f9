"""A child's own descriptors, at numbers that no handler's files get.

A handler that closes a number twice, or all that there are, as daemons do, would hit
ours; and its next file would get that number. What is written, cut and moved between
attempts would be the user's file, then. The kernel gives out the lowest number that is
free: so ours are far above.
"""

from __future__ import annotations

import os
from fcntl import F_DUPFD_CLOEXEC, fcntl  # before an application can replace them
from os import close

OWN_FROM = 960
"""Below the limit of descriptors that most processes have, 1,024."""
_ELSE_FROM = 192
"""Where that is less."""


def out_of_reach(fd: int) -> int:
    """Move a descriptor; return its number: the old one, if no high one may be had."""
    for first in (OWN_FROM, _ELSE_FROM):
        try:
            own = fcntl(fd, F_DUPFD_CLOEXEC, first)
        except OSError:
            continue  # the limit is lower (RLIMIT_NOFILE)
        close(fd)
        return own
    return fd


def open_own(path: str, flags: int) -> int:
    """Open a file as a descriptor of the child's own.

    Raises:
        OSError: it cannot be opened.
    """
    return out_of_reach(os.open(path, flags | os.O_CLOEXEC))
