"""The standard streams of a process in which handlers run: put back after each.

A child does the same (`sandbox.reset.streams`). Here they are jobpool's own as well,
and the next file that is opened would become descriptor 1 or 2 if one stayed closed.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from stat import S_IFMT

_NAMES = ("stdin", "stdout", "stderr")


class Streams:
    """What stdin, stdout and stderr are before the first handler runs."""

    def __init__(self) -> None:
        self._files = [getattr(sys, name) for name in _NAMES]
        self._kept = {fd: os.dup(fd) for fd in range(3) if _identity(fd)}
        """Copies, by descriptor; what was closed from the start may stay closed."""

    def put_back(self) -> list[str]:
        """Have the streams as they were.

        Returns:
            The names of those whose descriptors were closed or elsewhere.
        """
        _flush()  # where a handler has sent it
        moved = [
            fd for fd, own in self._kept.items() if _identity(fd) != _identity(own)
        ]
        for fd in moved:
            os.dup2(self._kept[fd], fd)
        for fd, name in enumerate(_NAMES):
            file = self._files[fd]
            if getattr(file, "closed", False):
                how = "w" if fd else "r"
                file = open(fd, how, encoding="utf-8", closefd=False)  # noqa: SIM115 - lives on
                self._files[fd] = file
            setattr(sys, name, file)
        _flush()
        return [_NAMES[fd] for fd in moved]

    def close(self) -> None:
        """Give the copies up."""
        for own in self._kept.values():
            os.close(own)


def _identity(fd: int) -> tuple[int, int, int] | None:
    """Return which file a descriptor refers to; None: it is closed."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino, S_IFMT(status.st_mode)


def _flush() -> None:
    """Write what the streams hold, if that is possible."""
    for stream in (sys.stdout, sys.stderr):
        # A handler may have closed it, or put anything in its place.
        with suppress(Exception):
            stream.flush()
