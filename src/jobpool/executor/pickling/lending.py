"""Lends children the descriptors and semaphores that a call's arguments refer to.

Theory of operation. A descriptor cannot be pickled, nor can a semaphore of the fork
context: it has no name, and exists only where it was inherited. Neither leaves this
process: what is pickled is a number, with which a child requests it at a socket in the
executor's private directory. A descriptor is then sent over the socket. A semaphore's
methods are called here, with one thread for each thread of a child that uses it,
because locks are held by threads. The socket and the threads exist only once something
is lent.

When multiprocessing's objects are pickled, they use the methods that multiprocessing
has for starting processes (`DupFd`); `Loan` implements these.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from jobpool.executor.pickling.borrowing import (
    DESCRIPTOR,
    METHODS,
    NOTHING,
    REQUEST_BYTES_MAX,
    SEMAPHORE,
    Answer,
    BorrowedFd,
    Request,
)

FAMILIES = ("multiprocessing", "multiprocess")
"""The standard library's module and that of dill's author, independent twins."""
_CHECK_S = 0.2
"""How often to check whether a child that waits for a semaphore is still alive."""
_NAME = "lent"
_RECURSIVE = 0
"""The kind of an RLock's semaphore, as multiprocessing numbers them."""


class _Semaphore(NamedTuple):
    """The C code's semaphore of multiprocessing."""

    lock: Any


class Lender:
    """Lends the caller's descriptors and semaphores to the children of one executor.

    Args:
        directory: the executor's private directory.
    """

    def __init__(self, directory: str) -> None:
        self.path = f"{directory}/{_NAME}"
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._lent: dict[int, int | _Semaphore] = {}
        self._listener: socket.socket | None = None
        self._is_closed = False

    def lend(self, thing: int | _Semaphore) -> int:
        """Lend a semaphore, or a descriptor, whose ownership passes to the lender.

        Returns:
            The number under which it is lent.

        Raises:
            OSError: no socket can be opened.
        """
        with self._lock:
            if self._is_closed:
                raise OSError("the executor has ended")
            if self._listener is None:
                self._listener = self._listen()
            number = next(self._numbers)
            self._lent[number] = thing
            return number

    def take_back(self, numbers: Sequence[int]) -> None:
        """Stop lending these; children that have them already keep them."""
        with self._lock:
            things = [self._lent.pop(number, None) for number in numbers]
        for thing in things:
            if isinstance(thing, int):
                os.close(thing)

    def close(self) -> None:
        """Stop lending. All children must be gone."""
        with self._lock:
            self._is_closed = True
            listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):  # wakes the thread that waits there
                listener.shutdown(socket.SHUT_RDWR)
        self.take_back(list(self._lent))

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            listener.bind(self.path)
            listener.listen(128)
            threading.Thread(
                target=self._accept,
                args=(listener,),
                name="jobpool-executor-lender",
                daemon=True,
            ).start()
        except BaseException:
            listener.close()
            raise
        return listener

    def _accept(self, listener: socket.socket) -> None:
        with listener:
            while True:
                try:
                    end, _address = listener.accept()
                except OSError:
                    if self._is_closed:
                        return
                    time.sleep(_CHECK_S)  # out of descriptors at the moment
                    continue
                threading.Thread(
                    target=self._serve,
                    args=(end,),
                    name="jobpool-executor-lender",
                    daemon=True,
                ).start()

    def _serve(self, end: socket.socket) -> None:
        """Serve one thread of a child until it ends."""
        # It may end at any moment.
        with end, contextlib.suppress(OSError, msgspec.MsgspecError):
            number = int.from_bytes(end.recv(8), "little")
            with self._lock:
                thing = self._lent.get(number)
                # A copy: the descriptor may be taken back meanwhile.
                fd = os.dup(thing) if isinstance(thing, int) else None
            if fd is not None:
                try:
                    socket.send_fds(end, [DESCRIPTOR], [fd])
                finally:
                    os.close(fd)
            elif isinstance(thing, _Semaphore):
                end.send(SEMAPHORE)
                _Holder(end, thing.lock).serve()
            else:
                end.send(NOTHING)


class _Holder:
    """Uses a semaphore for one thread of a child.

    Args:
        end: the socket to it.
        lock: the semaphore.
    """

    def __init__(self, end: socket.socket, lock: Any) -> None:
        self._end = end
        self._lock = lock
        self._gone = select.poll()
        self._gone.register(end, select.POLLRDHUP)

    def serve(self) -> None:
        """Serve its requests until it is gone.

        An RLock that it still holds is released: nothing else could release it.
        """
        try:
            while data := self._end.recv(REQUEST_BYTES_MAX):
                request = msgspec.msgpack.decode(data, type=Request)
                self._end.send(msgspec.msgpack.encode(self._answer(request)))
        finally:
            while self._lock.kind == _RECURSIVE and self._lock._is_mine():  # noqa: SLF001 - C code's
                self._lock.release()

    def _answer(self, request: Request) -> Answer:
        if request.method not in METHODS:
            return Answer(None, f"not a method of a semaphore: {request.method}")
        try:
            if request.method == "acquire":
                return Answer(self._acquire(*request.arguments))
            return Answer(getattr(self._lock, request.method)())
        except (AssertionError, ValueError) as exc:
            return Answer(None, str(exc), isinstance(exc, ValueError))

    def _acquire(self, block: bool, timeout_s: float | None) -> bool:  # noqa: FBT001 - as multiprocessing has it
        if not block:
            return bool(self._lock.acquire(False))
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = _CHECK_S
            if until_s is not None:
                left_s = max(0.0, min(left_s, until_s - time.monotonic()))
            if self._lock.acquire(True, left_s):
                if self._gone.poll(0):
                    self._lock.release()
                    raise ConnectionError("the child that waited for it is gone")
                return True
            if self._gone.poll(0):
                raise ConnectionError("the child that waits for it is gone")
            if until_s is not None and time.monotonic() >= until_s:
                return False


class Loan:
    """What one pickle borrows; multiprocessing takes it for a process being started.

    Args:
        lender: the executor's.
    """

    __slots__ = ("_lender", "_numbers")

    def __init__(self, lender: Lender) -> None:
        self._lender = lender
        self._numbers: list[int] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was lent."""
        return self._numbers is None

    def end(self) -> None:
        """Take everything back: the call has ended."""
        if self._numbers is not None:
            self._lender.take_back(self._numbers)

    def lend_semaphore(self, lock: Any) -> tuple[str, int]:
        """Lend a semaphore; return the socket's path and the semaphore's number."""
        return self._lender.path, self._lend(_Semaphore(lock))

    def duplicate_for_child(self, fd: int) -> int:
        """Lend a copy of a descriptor; return its number."""
        copy = os.dup(fd)
        try:
            return self._lend(copy)
        except BaseException:
            os.close(copy)
            raise

    def DupFd(self, number: int) -> BorrowedFd:  # noqa: N802 - multiprocessing's name
        """Return what stands for a descriptor in a pickle."""
        return BorrowedFd(self._lender.path, number)

    def _lend(self, thing: int | _Semaphore) -> int:
        number = self._lender.lend(thing)
        if self._numbers is None:
            self._numbers = []
        self._numbers.append(number)
        return number

    @contextmanager
    def pickling(self) -> Iterator[None]:
        """Let multiprocessing's objects be pickled, as if a process were started."""
        contexts = [
            module
            for family in FAMILIES
            if (module := sys.modules.get(f"{family}.context"))
        ]
        before = [context.get_spawning_popen() for context in contexts]
        for context in contexts:
            context.set_spawning_popen(self)
        try:
            yield
        finally:
            for context, popen in zip(contexts, before, strict=True):
                context.set_spawning_popen(popen)
