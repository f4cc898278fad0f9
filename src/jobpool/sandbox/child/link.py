"""A child's ends of the message socket and of the ticket socket.

Theory of operation. The supervisor may send jobs ahead. A job may begin only when
this side has read its ticket, eight bytes with its sequence number, from a socket
that the supervisor can read as well: only one side can read a given ticket. So the
supervisor can recall what has not begun, and knows exactly what had begun when the
child dies. This side cannot write tickets. Both sides read without blocking (they share
one end), in multiples of eight bytes, and so never half a ticket.

A frame must be sent or received whole: a user's signal handler that raises in the
middle would corrupt the stream. So signals are blocked meanwhile, but never while
waiting.

The functions that wait are bound here by name before any application is imported: some
applications replace `select.poll` and the like for the whole process, and our wait must
stay the one that the supervisor checks for (`idleness`).

A process that a handler forks inherits these descriptors; it closes them at once and
must never act as the child.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from select import POLLIN, poll
from socket import MSG_DONTWAIT, socket
from typing import Any

from jobpool.errors import JobpoolBug
from jobpool.sandbox.confinement.setup import close_fds
from jobpool.sandbox.protocol.messages import (
    Answer,
    Decoder,
    Draining,
    Go,
    PermitAnswered,
    Retire,
    RunJob,
    ToChild,
    encode,
    prepared,
)

TICKET_BYTES = 8
DEFERRED = frozenset(signal.valid_signals()) - {
    signal.SIGUSR2,  # the fault handler's, which only writes the stacks
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGABRT,
}
"""What runs handlers of ours or of a job's."""
prepared(ToChild)  # before there are children


@contextmanager
def undisturbed() -> Iterator[None]:
    """Block signal handlers in the calling thread meanwhile."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, DEFERRED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Link:
    """The child's connection to its supervisor.

    Attributes:
        lock: held by the thread that sends or receives; a user's signal handler may
            send while its own thread waits for an answer.
        draining: the supervisor has begun to drain.
        retiring: this child is to end after its present attempt.
        ended: the supervisor is gone.
    """

    def __init__(self, connection: socket, ticket_fd: int) -> None:
        self.lock = threading.RLock()
        self.draining = False
        self.retiring = False
        self.ended = False
        self.go: Go | None = None
        self._abandoned = False
        self._socket = connection
        self._ticket_fd = ticket_fd
        self._jobs: deque[RunJob] = deque()
        self._answers: dict[int, Answer] = {}
        self._permits: dict[int, PermitAnswered] = {}
        """Answers about permits; several may be waited for."""
        self._decoder = Decoder(ToChild)
        self._poll = poll()
        self._poll.register(connection, POLLIN)
        self._poll.register(ticket_fd, POLLIN)
        self._incoming = poll()
        self._incoming.register(connection, POLLIN)

    def abandon(self) -> None:
        """Close both ends, in a copy of this process that the handler forked."""
        if self._abandoned:
            return  # a copy's copy: the numbers may be another file's by now
        self._abandoned = self.ended = True
        self.lock = threading.RLock()  # a thread of the original may have held it
        close_fds((self._socket.detach(), self._ticket_fd))

    def send(self, message: Any) -> None:
        """Send a message, waiting until there is room.

        Raises:
            FrameError: it is too long; nothing was sent.
            OSError: the supervisor is gone.
        """
        self._socket.sendall(encode(message))

    def wait_for_go(self) -> Go | None:
        """Return the supervisor's first message; None: it is gone."""
        while self.go is None and not self.ended:
            self.take_in(wait=True)
        return self.go

    @property
    def has_jobs(self) -> bool:
        """Whether more jobs have arrived; they may have been recalled."""
        return bool(self._jobs)

    def next_job(self, rest: Callable[[], None]) -> RunJob | None:
        """Wait for a job whose ticket this child holds; None: the child must end.

        Args:
            rest: called before it waits.
        """
        while not (self.ended or self.retiring):
            ticket = self._take_ticket()
            if ticket is not None:
                return self._job(ticket)
            if not self.ended:  # the ticket socket's end sets it as well
                rest()
                self._wait_for_work()
        return None

    def answer(self, ask: int) -> Answer | None:
        """Return the answer to a request, if it has arrived."""
        return self._answers.pop(ask, None)

    def permit_answer(self, n: int) -> PermitAnswered | None:
        """Return the answer about a permit, if it has arrived."""
        return self._permits.pop(n, None)

    def forget_permits(self) -> None:
        """Drop the answers that nobody has waited for."""
        self._permits.clear()

    def wait_beside(self, seconds: float) -> None:
        """Wait for a message for so long, without the lock.

        Another thread may take it in, even the one that this one waits for.
        """
        incoming = poll()  # one cannot be used by two threads at once
        incoming.register(self._socket, POLLIN)
        incoming.poll(seconds * 1000)

    def wait_for_message(self) -> None:
        """Wait until something can be received; signal handlers run meanwhile."""
        self._incoming.poll()

    def take_in(self, *, wait: bool = False) -> None:
        """Receive and sort what the supervisor has sent."""
        try:
            wanted_bytes = self._decoder.wanted_bytes
            data = self._socket.recv(wanted_bytes, 0 if wait else MSG_DONTWAIT)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self.ended = True
        for message in self._decoder.feed(data):
            self._sort(message)

    def _sort(self, message: Any) -> None:
        match message:
            case RunJob():
                self._jobs.append(message)
            case Answer():
                self._answers.clear()  # to a request that is not waited for any more
                self._answers[message.ask] = message
            case PermitAnswered():
                self._permits[message.n] = message
            case Draining():
                self.draining = True
            case Retire():
                self.retiring = True
            case Go():
                self.go = message

    def _take_ticket(self) -> int | None:
        try:
            ticket = os.read(self._ticket_fd, TICKET_BYTES)
        except BlockingIOError:
            return None
        if not ticket:
            self.ended = True
            return None
        return int.from_bytes(ticket, "little")

    def _wait_for_work(self) -> None:
        for fd, _events in self._poll.poll():
            if fd != self._ticket_fd:
                self.take_in()

    def _job(self, ticket: int) -> RunJob | None:
        """Return the ticket's job; jobs sent before it have been recalled."""
        while True:
            while self._jobs and self._jobs[0].seq < ticket:
                self._jobs.popleft()
            if self._jobs:
                job = self._jobs.popleft()
                if job.seq != ticket:
                    raise JobpoolBug(
                        f"ticket {ticket} was issued, but the next job is {job.seq}; "
                        "please report this"
                    )
                return job
            if self.ended:
                return None
            self.take_in(wait=True)
