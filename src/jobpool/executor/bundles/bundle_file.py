"""The tray of a bundle: which calls have begun, and the results of those that ended.

Theory of operation. A bundle of quick calls is sent as one job. Which of them have
begun and the results of those that have ended must be known even if the child dies
midway. So each bundle has two files in the executor's private directory:

- a named pipe with one ticket per call. The child reads a ticket before it begins the
  call; the host reads the remaining tickets when it takes calls back. Whichever side
  reads a ticket owns that call.
- a plain file, to which the child appends a call's end before it reads the next ticket.
  It outlives the child.

At any moment at most one call has no ticket in the pipe and no end in the file: the one
that is running. After a death, that call is to blame.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from jobpool.sandbox.protocol.messages import Decoder, FrameError, encode
from jobpool.sandbox.system.own_fds import open_own

CALLS_MAX = 256
"""The most calls of a bundle. All their tickets fit into one atomic write."""
_TICKET_BYTES = 8
_ALL_TICKETS = struct.pack(f"<{CALLS_MAX}Q", *range(CALLS_MAX))
_TICKETS, _ENDS = ".tickets", ".ends"
_READ_CALLS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class CallEnd(msgspec.Struct, array_like=True, gc=False):
    """How one call of a bundle ended."""

    place: int
    """The call's place in its bundle, from 0."""
    wrapped: bytes
    """The value or exception, as a call by itself would return it."""
    output: bytes
    """The last part of its stdout and stderr."""
    duration_s: float


class ChildTray:
    """The child's side of a tray, while it runs the bundle; see `child_tray`."""

    def __init__(self, tickets: int, ends: int) -> None:
        self._tickets = tickets
        self._ends = ends

    @property
    def is_used(self) -> bool:
        """Whether an earlier attempt has written ends; the last may be incomplete."""
        return os.fstat(self._ends).st_size > 0

    def take(self) -> int | None:
        """Take the next ticket: return the place of its call; None: none is left."""
        try:
            ticket = os.read(self._tickets, _TICKET_BYTES)
        except BlockingIOError:
            return None
        return int.from_bytes(ticket, "little") if ticket else None

    def put(self, end: CallEnd) -> None:
        """Append an end.

        Raises:
            OSError: it could not be written completely.
        """
        data = encode(end)
        if os.write(self._ends, data) != len(data):
            raise OSError("there is no room for a result")


@contextmanager
def child_tray(path: str) -> Iterator[ChildTray]:
    """Open a tray in the child.

    Raises:
        OSError: the host has removed it.
    """
    tickets = open_own(path + _TICKETS, _READ_CALLS)
    try:
        ends = open_own(path + _ENDS, _APPEND)
        try:
            yield ChildTray(tickets, ends)
        finally:
            os.close(ends)
    finally:
        os.close(tickets)


class HostTray:
    """The host's side of a tray.

    Args:
        path: the prefix of both files' names; unique.
        calls: how many calls the bundle has, at most `CALLS_MAX`.

    Raises:
        OSError: no room or descriptor for it; no file is left behind.
    """

    def __init__(self, path: str, calls: int) -> None:
        self.path = path
        self._decoder = Decoder(CallEnd)
        self._read_bytes = 0
        os.mkfifo(path + _TICKETS, 0o600)
        try:
            # Open for writing as well, so that it keeps its content while no child has
            # it.
            self._tickets = os.open(
                path + _TICKETS, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
            )
        except OSError:
            Path(path + _TICKETS).unlink()
            raise
        os.write(self._tickets, _ALL_TICKETS[: calls * _TICKET_BYTES])

    def waiting(self) -> int:
        """Return how many calls have not begun."""
        count = array.array("i", [0])
        fcntl.ioctl(self._tickets, termios.FIONREAD, count)
        return count[0] // _TICKET_BYTES

    def take_back(self) -> list[int]:
        """Take all remaining tickets; return the places of their calls."""
        try:
            tickets = os.read(self._tickets, CALLS_MAX * _TICKET_BYTES)
        except BlockingIOError:
            return []
        return [
            int.from_bytes(tickets[at : at + _TICKET_BYTES], "little")
            for at in range(0, len(tickets), _TICKET_BYTES)
        ]

    def ends(self) -> list[CallEnd]:
        """Return the ends that the child has written since the last call.

        An incomplete end, as a dying child may leave it, is left out.
        """
        found: list[CallEnd] = []
        # The user's code may have written anything there.
        with contextlib.suppress(FileNotFoundError, FrameError):
            with open(self.path + _ENDS, "rb") as file:  # noqa: PTH123 - a str
                file.seek(self._read_bytes)
                data = file.read()
            self._read_bytes += len(data)
            found.extend(self._decoder.feed(data))  # what came before an error counts
        return found

    def close(self) -> None:
        """Remove both files. No child may use them any more."""
        os.close(self._tickets)
        for name in (_TICKETS, _ENDS):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path + name)  # noqa: PTH108 - a str
