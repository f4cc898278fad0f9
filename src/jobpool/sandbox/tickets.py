"""The tickets: what allows a child to begin its next job, and what tells that it has.

Theory of operation. A job may begin only when its child has read the job's ticket from
a socket that the supervisor can read as well: whoever reads a ticket has it alone, so
that the supervisor can recall what has not begun, and knows exactly what had begun when
the child dies. Nobody on the child's side can put one there. Both read without blocking
(they share one end), in multiples of a ticket, and so never half of one.

A ticket is the job's number in its child, and its token. The child lets the kernel put
the token right into its mark file, in the step that takes the ticket (`Marks.place`):
there is no moment at which a job has neither ticket nor mark, and a mark costs no call
of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

# Bound by name, before an application can replace them.
from errno import EFAULT
from os import readv

from jobpool.sandbox.frames import RunJob
from jobpool.sandbox.marks import MARK, Marks

TICKET = struct.Struct("<QQ")


class Tickets:
    """The child's end.

    Args:
        fd: does not block.
        marks: of this child's slot.

    Attributes:
        ended: there will be no more.
    """

    def __init__(self, fd: int, marks: Marks) -> None:
        self.ended = False
        self._fd = fd
        self._marks = marks
        self._seq = bytearray(TICKET.size - MARK.size)

    def fileno(self) -> int:
        """Return the descriptor on which to wait for the next ticket."""
        return self._fd

    def take(self) -> int | None:
        """Take the next ticket: its job has begun now, and is marked.

        Returns:
            The job's number; None: there is none now.
        """
        try:
            return self._take(self._marks.place)
        except BlockingIOError:
            return None
        except OSError as exc:
            if exc.errno != EFAULT:
                raise
        return self._take_without_page()

    def _take(self, place: bytearray | memoryview) -> int | None:
        if readv(self._fd, (self._seq, place)):
            return int.from_bytes(self._seq, "little")
        self.ended = True
        return None

    def _take_without_page(self) -> int | None:
        """Take it though the mark file was cut, or its disk has no room for a mark.

        Nothing has been taken so far. What cannot be mended is told when the attempt
        has ended (`Marks.renew`), where the job is not blamed for it. Until then it
        counts as not begun if all is killed at once.
        """
        self._marks.renew()
        for place in (self._marks.place, bytearray(MARK.size)):
            try:
                return self._take(place)
            except BlockingIOError:
                return None  # recalled meanwhile
            except OSError as exc:
                if exc.errno != EFAULT:
                    raise
        return None


def pack(jobs: Iterable[RunJob]) -> list[bytes]:
    """Return the tickets of these jobs."""
    return [TICKET.pack(job.seq, job.token) for job in jobs]


def seqs_in(tickets: bytes) -> list[int]:
    """Return the numbers of the jobs of whole tickets."""
    whole = len(tickets) - len(tickets) % TICKET.size
    return [seq for seq, _token in TICKET.iter_unpack(tickets[:whole])]
