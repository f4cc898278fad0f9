"""The child's side of what the caller has lent; see `lending`."""

from __future__ import annotations

import importlib
import socket
import threading
from typing import Any

import msgspec

DESCRIPTOR, SEMAPHORE, NOTHING = b"d", b"s", b"-"
METHODS = frozenset(
    ("acquire", "release", "_count", "_is_mine", "_get_value", "_is_zero")
)
REQUEST_BYTES_MAX = 4096


class Request(msgspec.Struct, array_like=True):
    """A call of one of the semaphore's methods."""

    method: str
    arguments: tuple[Any, ...] = ()


class Answer(msgspec.Struct, array_like=True):
    """What the method returned, or why it failed."""

    value: int | bool | None
    error: str | None = None
    is_value_error: bool = False


def _ask(path: str, number: int) -> tuple[socket.socket, list[int]]:
    """Request what is lent under a number.

    Raises:
        OSError: it is no longer lent.
    """
    end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        end.connect(path)
        end.send(number.to_bytes(8, "little"))
        kind, fds, _flags, _address = socket.recv_fds(end, 1, 1)
    except BaseException:
        end.close()
        raise
    if kind not in (DESCRIPTOR, SEMAPHORE):
        end.close()
        raise OSError("the call that this object was sent with has ended")
    return end, fds


class BorrowedFd:
    """Stands for a descriptor of the caller's, as multiprocessing's ``DupFd`` does.

    Args:
        path: the socket's path.
        number: under which the descriptor is lent.
    """

    def __init__(self, path: str, number: int) -> None:
        self._path = path
        self._number = number

    def detach(self) -> int:
        """Return the descriptor, in this process.

        Raises:
            OSError: it is no longer lent.
        """
        end, fds = _ask(self._path, self._number)
        end.close()
        return fds[0]


class BorrowedSemaphore:
    """A SemLock whose methods the caller's process calls on the real one.

    Args:
        path: the socket's path.
        number: under which the semaphore is lent.
        kind: mutex or semaphore, as multiprocessing numbers them.
        maxvalue: the semaphore's.
    """

    handle = 0
    name = None

    def __init__(self, path: str, number: int, kind: int, maxvalue: int) -> None:
        self.kind = kind
        self.maxvalue = maxvalue
        self._path = path
        self._number = number
        self._own = threading.local()
        self._end()  # now: opened during a call, it would count as that call's leak

    def _end(self) -> socket.socket:
        """Return this thread's socket: locks are held by threads."""
        end: socket.socket | None = getattr(self._own, "end", None)
        if end is None:
            end, _fds = _ask(self._path, self._number)
            self._own.end = end
        return end

    def _call(self, method: str, *arguments: Any) -> Any:
        end = self._end()
        end.send(msgspec.msgpack.encode(Request(method, arguments)))
        data = end.recv(REQUEST_BYTES_MAX)
        if not data:
            raise OSError("the process that this lock belongs to is gone")
        answer = msgspec.msgpack.decode(data, type=Answer)
        if answer.error is not None:
            error = ValueError if answer.is_value_error else AssertionError
            raise error(answer.error)
        return answer.value

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:  # noqa: FBT001, FBT002 - as multiprocessing has it
        """Acquire it; False: not within the timeout."""
        return bool(self._call("acquire", bool(block), timeout))

    def release(self) -> None:
        """Release it."""
        self._call("release")

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_exc: object) -> None:
        self.release()

    def _count(self) -> int:
        return int(self._call("_count"))

    def _is_mine(self) -> bool:
        return bool(self._call("_is_mine"))

    def _get_value(self) -> int:
        return int(self._call("_get_value"))

    def _is_zero(self) -> bool:
        return bool(self._call("_is_zero"))

    def _after_fork(self) -> None:
        """Open sockets anew: a forked copy must not share them."""
        self._own = threading.local()


def borrowed_lock(cls: Any, path: str, number: int, kind: int, maxvalue: int) -> Any:
    """Make one of multiprocessing's locks around a semaphore of the caller's."""
    lock = cls.__new__(cls)
    lock._semlock = BorrowedSemaphore(path, number, kind, maxvalue)  # noqa: SLF001 - as its own __setstate__ does
    lock._make_methods()  # noqa: SLF001 - the same
    lock._is_fork_ctx = False  # noqa: SLF001 - the same
    return lock


def borrowed_queue(cls: Any, state: Any) -> Any:
    """Make a queue that writes directly, without a thread.

    A thread would outlive the call, so the child would be replaced, and items that it
    had not written yet would be lost.
    """
    queue = cls.__new__(cls)
    queue.__setstate__(state)
    queue._buffer = _Directly(queue)  # noqa: SLF001 - what `put` appends to
    queue._thread = threading.current_thread()  # noqa: SLF001 - so that it starts none
    return queue


class _Directly:
    """Takes the place of a queue's buffer."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        family = type(queue).__module__.partition(".")[0]
        self._pickler = importlib.import_module(f"{family}.reduction").ForkingPickler

    def append(self, obj: Any) -> None:
        """Write an object; blocks while the pipe is full."""
        queue = self._queue
        try:
            data = self._pickler.dumps(obj)
        except BaseException:
            queue._sem.release()  # noqa: SLF001 - `put` has acquired a place for it
            raise
        with queue._wlock:  # noqa: SLF001 - as the thread does
            queue._send_bytes(data)  # noqa: SLF001 - the same

    def __len__(self) -> int:
        return 0
