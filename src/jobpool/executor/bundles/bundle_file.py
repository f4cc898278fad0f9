"""Where the calls of a bundle wait for their turn, and where their ends are put.

Theory of operation. A bundle of quick calls travels as one job. Which of them have
begun, and what came of those that have ended, must be known even when the child dies
in the middle. So each bundle has two files in the executor's private directory:

- a named pipe with one ticket per call. The child reads a ticket before it begins the
  call; the host reads what is left when it takes calls back. The side that reads a
  ticket has it alone.
- a plain file, to which the child appends what came of a call before it reads the next
  ticket. What was written there outlives the child.

At any moment at most one call has no ticket in the pipe and no end in the file: the one
that is running. After a death, that is the one to blame.
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
"""In one bundle. All their tickets fit into one atomic write."""
_TICKET_BYTES = 8
_ALL_TICKETS = struct.pack(f"<{CALLS_MAX}Q", *range(CALLS_MAX))
_TICKETS, _ENDS = ".tickets", ".ends"
_READ_CALLS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class CallEnd(msgspec.Struct, array_like=True, gc=False):
    """What came of one call of a bundle."""

    place: int
    """Of the call in its bundle, from 0."""
    wrapped: bytes
    """The value or exception, as a call by itself would return it."""
    output: bytes
    """The tail of what it wrote to stdout and stderr."""
    duration_s: float


class ChildTray:
    """The child's side, for as long as it runs the bundle; see `child_tray`."""

    def __init__(self, tickets: int, ends: int) -> None:
        self._tickets = tickets
        self._ends = ends

    @property
    def is_used(self) -> bool:
        """Whether an earlier attempt has put ends in; it may have left half a one."""
        return os.fstat(self._ends).st_size > 0

    def take(self) -> int | None:
        """Return the place of the call to be begun now; None: there is none."""
        try:
            ticket = os.read(self._tickets, _TICKET_BYTES)
        except BlockingIOError:
            return None
        return int.from_bytes(ticket, "little") if ticket else None

    def put(self, end: CallEnd) -> None:
        """Add an end.

        Raises:
            OSError: it could not be written whole.
        """
        data = encode(end)
        if os.write(self._ends, data) != len(data):
            raise OSError("there is no room for a result")


@contextmanager
def child_tray(path: str) -> Iterator[ChildTray]:
    """Open a tray in the child.

    Raises:
        OSError: the host has it no more.
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
    """The host's side.

    Args:
        path: what both files' names begin with; nobody has used it before.
        calls: how many calls wait, at most `CALLS_MAX`.

    Raises:
        OSError: no room or descriptor for it; nothing is left of it.
    """

    def __init__(self, path: str, calls: int) -> None:
        self.path = path
        self._decoder = Decoder(CallEnd)
        self._read_bytes = 0
        os.mkfifo(path + _TICKETS, 0o600)
        try:
            # Open for writing as well: it keeps its content while no child has it.
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
        """Return the places of all calls that have not begun, and now never will."""
        try:
            tickets = os.read(self._tickets, CALLS_MAX * _TICKET_BYTES)
        except BlockingIOError:
            return []
        return [
            int.from_bytes(tickets[at : at + _TICKET_BYTES], "little")
            for at in range(0, len(tickets), _TICKET_BYTES)
        ]

    def ends(self) -> list[CallEnd]:
        """Return what the child has put in since the last time.

        Half an end, as a child that died may leave it, is none.
        """
        found: list[CallEnd] = []
        # What the user's own code may have written there is not ours to judge.
        with contextlib.suppress(FileNotFoundError, FrameError):
            with open(self.path + _ENDS, "rb") as file:  # noqa: PTH123 - a str
                file.seek(self._read_bytes)
                data = file.read()
            self._read_bytes += len(data)
            found.extend(self._decoder.feed(data))  # what came before an error counts
        return found

    def close(self) -> None:
        """Remove it. No child has it any more."""
        os.close(self._tickets)
        for name in (_TICKETS, _ENDS):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path + name)  # noqa: PTH108 - a str
