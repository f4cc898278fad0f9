"""One end of the socket between caller and host; a wait at it can be woken.

Only `wait` blocks. All methods except `wake` belong to one thread.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
from collections import deque
from typing import Any

from jobpool.sandbox.protocol.messages import Decoder, encode

_RECEIVE_BYTES = 2**20
_STDERR = 2


class Wire:
    """One end of the socket.

    Args:
        end: a connected stream socket; closed by this object.
        expected: union of the messages that may arrive.
    """

    def __init__(self, end: socket.socket, expected: Any) -> None:
        end.setblocking(False)
        self._socket = end
        self._decoder = Decoder(expected)
        self._outgoing: deque[memoryview] = deque()
        self._event = _eventfd()
        self._wants_write = False
        self._poll = select.poll()
        self._poll.register(end, select.POLLIN)
        self._poll.register(self._event, select.POLLIN)

    def watch(self, fd: int) -> None:
        """Also end waits when this descriptor becomes readable."""
        self._poll.register(fd, select.POLLIN)

    def wake(self) -> None:
        """End the current or next wait; may be called from any thread."""
        os.eventfd_write(self._event, 1)

    def wait(self, timeout_s: float | None) -> set[int]:
        """Wait until there is something to do; return the readable descriptors."""
        if self._wants_write != bool(self._outgoing):
            self._wants_write = bool(self._outgoing)
            mask = select.POLLIN | (select.POLLOUT if self._wants_write else 0)
            self._poll.modify(self._socket, mask)
        timeout_ms = None if timeout_s is None else timeout_s * 1000
        ready = {fd for fd, _mask in self._poll.poll(timeout_ms)}
        if self._event in ready:
            os.eventfd_read(self._event)
        return ready

    def send(self, message: Any) -> None:
        """Send a message, now or as soon as there is room."""
        self._outgoing.append(memoryview(encode(message)))
        self.flush()

    def flush(self) -> bool:
        """Send what is queued; False: some of it still is.

        If the other end is gone, everything is dropped: `receive` reports that.
        """
        while self._outgoing:
            try:
                sent = self._socket.send(self._outgoing[0])
            except BlockingIOError:
                return False
            except OSError:
                self._outgoing.clear()
                return True
            if sent == len(self._outgoing[0]):
                self._outgoing.popleft()
            else:
                self._outgoing[0] = self._outgoing[0][sent:]
        return True

    def receive(self) -> list[Any] | None:
        """Return the messages that have arrived; None: the other end is gone."""
        try:
            data = self._socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            return None
        return list(self._decoder.feed(data)) if data else None

    def finish(self) -> None:
        """Shut the sending side down: nothing more will be sent."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            return  # the other end is gone already: `receive` reports that

    def close(self) -> None:
        """Close it. No thread may wake it any more."""
        self._socket.close()
        os.close(self._event)


def _eventfd() -> int:
    """Make one above 0, 1 and 2: a caller that closed these may still write to them."""
    fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    if fd > _STDERR:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _STDERR + 1)
    finally:
        os.close(fd)
