"""A running attempt's channel with the supervisor's end of it."""

import os
import socket

from jobpool.sandbox.child.channel import AttemptChannel
from jobpool.sandbox.child.link import Link
from jobpool.sandbox.protocol.messages import (
    Decoder,
    FromChild,
    Go,
    PermitAnswered,
    RunJob,
    encode,
)

GO = Go("cpu/0", "run", 0, 1 << 20, 1 << 16, "")
JOB = RunJob(1, 7, 70, "k", 1, b"{}", None, 60.0, None)
PATIENCE_S = 30.0


class Pair:
    """A channel and the supervisor's end of it."""

    def __init__(self):
        self.ours, theirs = socket.socketpair()
        self.ours.settimeout(PATIENCE_S)
        ticket, self.issued = os.pipe()
        self.ticket = ticket
        self.link = Link(theirs, ticket)
        self.channel = AttemptChannel(self.link, GO, JOB, os.getpid())
        self._decoder = Decoder(FromChild)
        self.theirs = theirs

    def sent(self, count):
        """Return what the channel has sent."""
        found = []
        while len(found) < count:
            found += self._decoder.feed(self.ours.recv(65536))
        return found

    def answer(self, n, **fields):
        """Answer a request for a permit."""
        self.ours.sendall(encode(PermitAnswered(n, **fields)))

    def close(self):
        """Close everything."""
        self.ours.close()
        self.theirs.close()
        os.close(self.ticket)
        os.close(self.issued)
