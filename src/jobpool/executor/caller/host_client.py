"""The caller's connection to the host: a thread that sends calls and completes futures.

Theory of operation. `submit` only queues a call and wakes the thread. The thread sends
the host as many as it can use (`window`), in batches; the others wait here, where they
can be canceled. Calls that the host does not begin soon are recalled. The thread ends
when it was asked to close and no call is left, or when the host is gone: then every
remaining future fails with the reason.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from jobpool.executor.caller.death_errors import death_error
from jobpool.executor.caller.future import Call
from jobpool.executor.caller.window import BYTES_MAX, Window
from jobpool.executor.pickling.lending import Lender
from jobpool.executor.wire import spill_files
from jobpool.executor.wire.endpoint import Wire
from jobpool.executor.wire.messages import (
    FRAME_BYTES,
    Broken,
    Died,
    FromHost,
    Hello,
    Output,
    Recall,
    Recalled,
    Returned,
    Setup,
    Submit,
    Task,
)
from jobpool.executor.wire.outcomes import ExecutorBroken, settle
from jobpool.sandbox.protocol.messages import FrameError
from jobpool.sandbox.system.procfs import process_stat
from jobpool.sandbox.system.remove_tree import remove_tree

_GONE = "its host process has ended unexpectedly"
_living: set[HostClient] = set()
"""All that have not ended: the interpreter waits for their work before it exits."""


class HostClient:
    """The connection of one executor to its host.

    Args:
        end: the socket to the host.
        setup: the first message.
        lender: closed when the host has ended.
    """

    def __init__(self, end: socket.socket, setup: Setup, lender: Lender) -> None:
        self._wire = Wire(end, FromHost)
        self._directories = setup.directories
        self._lender = lender
        self._lock = threading.Lock()
        self._waiting: deque[Call] = deque()
        self._out: dict[int, Call] = {}
        self._out_bytes = 0
        self._is_recalling = False
        """A recall was sent and not answered: calls that come back may be next."""
        self._awake = False
        """The thread was woken, and has not checked for work since."""
        self._closing = self._canceling = False
        self._why_broken: str | None = None
        self._is_over = False
        self._host: Hello | None = None
        self._window = Window(setup.workers)
        self._wire.send(setup)
        self._thread = threading.Thread(
            target=self._run, name="jobpool-executor", daemon=True
        )
        self._pid = os.getpid()
        self._handlers: dict[type, Callable[[Any], None]] = {
            Returned: self._returned,
            Died: self._died,
            Recalled: self._recalled,
            Output: _print,
            Broken: self._broken,
            Hello: self._met,
        }
        _living.add(self)
        self._thread.start()

    # -- any thread ----------------------------------------------------------------

    def submit(self, call: Call) -> None:
        """Queue a call.

        Raises:
            ExecutorBroken: the host is gone.
            RuntimeError: the executor is being shut down.
        """
        with self._lock:
            self.check()
            self._waiting.append(call)
            self._wake()

    def check(self) -> None:
        """Raise as `submit` does if no call can be made any more."""
        if self._why_broken is not None:
            raise ExecutorBroken(self._why_broken)
        if self._closing:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def close(self, *, cancel: bool) -> None:
        """Let the host end once no call is left.

        Args:
            cancel: cancel waiting calls.
        """
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._closing = True
            self._canceling = self._canceling or cancel
            if not self._is_over:
                self._wake()

    def join(self) -> None:
        """Wait until the host is gone; returns at once in a callback of the thread."""
        is_ours = os.getpid() == self._pid
        if is_ours and threading.current_thread() is not self._thread:
            self._thread.join()

    def _wake(self) -> None:
        if not self._awake:
            self._awake = True
            self._wire.wake()

    # -- the thread ----------------------------------------------------------------

    def _run(self) -> None:
        try:
            why = self._serve()
        except BaseException as exc:
            why = f"its thread failed: {exc!r}"
            raise
        finally:
            self._end(why)

    def _serve(self) -> str:
        """Serve until the host is gone; return the reason."""
        finished = False
        while True:
            self._wire.wait(self._timeout_s())
            try:
                messages = self._wire.receive()
            except FrameError as exc:
                return f"its host sent an invalid message: {exc}"
            if messages is None:
                return _GONE
            for message in messages:
                self._handlers[type(message)](message)
            self._recall()
            self._send()
            self._wire.flush()
            if not finished and self._is_done():
                self._wire.finish()
                finished = True

    def _is_done(self) -> bool:
        with self._lock:
            return self._closing and not self._waiting and not self._out

    def _timeout_s(self) -> float | None:
        if self._is_recalling:
            return None
        at_s = self._window.recall_at_s(len(self._out))
        return None if at_s == float("inf") else max(0.0, at_s - time.monotonic())

    def _recall(self) -> None:
        now_s = time.monotonic()
        is_due = self._window.recall_at_s(len(self._out)) <= now_s
        if is_due and not self._is_recalling:
            self._window.recalled(now_s)
            self._is_recalling = True
            self._wire.send(Recall())

    def _send(self) -> None:
        """Send the host as many calls as it can use."""
        with self._lock:
            self._awake = False
            if self._canceling:
                canceled = list(self._waiting)
                self._waiting.clear()
            else:
                canceled = []
        for call in canceled:
            self._cancel(call)
        now_s = time.monotonic()
        before = len(self._out)
        tasks: list[Task] = []
        frame_bytes = 0
        room = 0 if self._is_recalling else self._window.room(now_s, before)
        while room > 0 and self._waiting and self._out_bytes < BYTES_MAX:
            call = self._waiting.popleft()
            if not call.future.set_running_or_notify_cancel():
                call.discard()
                continue
            room -= 1
            self._out[call.number] = call
            self._out_bytes += len(call.data)
            frame_bytes += len(call.data)
            tasks.append(
                Task(
                    call.number,
                    call.data,
                    call.timeout_s,
                    call.memory_bytes,
                    call.max_crashes,
                    call.function,
                )
            )
            if frame_bytes >= FRAME_BYTES:
                self._wire.send(Submit(tasks))
                tasks, frame_bytes = [], 0
        if tasks:
            self._wire.send(Submit(tasks))
        if len(self._out) > before:
            self._window.sent(now_s, before)

    def _cancel(self, call: Call) -> None:
        call.future.cancel()
        call.future.set_running_or_notify_cancel()
        call.discard()

    def _take(self, number: int) -> Call | None:
        call = self._out.pop(number, None)
        if call is not None:
            self._out_bytes -= len(call.data)
        return call

    def _returned(self, message: Returned) -> None:
        self._window.ended(time.monotonic(), len(message.results))
        for number, wrapped in message.results:
            call = self._take(number)
            if call is None:
                spill_files.discard(wrapped)
                continue
            call.discard()
            settle(call.future, wrapped, self._break)
        if self._why_broken is not None:
            self._fail_waiting()

    def _died(self, message: Died) -> None:
        self._window.ended(time.monotonic(), 1)
        call = self._take(message.number)
        if call is not None:
            call.discard()
            call.future.set_exception(death_error(message))

    def _recalled(self, message: Recalled) -> None:
        self._is_recalling = False
        back = [call for n in message.numbers if (call := self._take(n)) is not None]
        back.sort(key=lambda call: call.number)
        for call in back:
            call.future.wait_again()
        with self._lock:
            self._waiting.extendleft(reversed(back))

    def _broken(self, message: Broken) -> None:
        self._break(message.reason)
        self._fail_waiting()

    def _break(self, why: str) -> None:
        """Accept no more calls: nobody who knows why is to make one."""
        self._why_broken = self._why_broken or why

    # -- the end -------------------------------------------------------------------

    def _fail_waiting(self) -> None:
        """Fail all waiting calls and let the host end: no call can be made any more."""
        with self._lock:
            self._closing = True
            waiting = list(self._waiting)
            self._waiting.clear()
        self._fail(waiting)

    def _fail(self, calls: list[Call]) -> None:
        error = ExecutorBroken(self._why_broken or _GONE)
        for call in calls:
            call.discard()
            if call.future.running() or call.future.set_running_or_notify_cancel():
                call.future.set_exception(error)

    def _end(self, why: str) -> None:
        """Fail all remaining calls and clean up: the host is gone."""
        with self._lock:
            self._is_over = True
            if self._out or self._waiting or not self._closing:
                self._break(why)
        self._fail_waiting()
        left = list(self._out.values())
        self._out.clear()
        self._fail(left)
        self._wire.close()
        self._lender.close()
        _living.discard(self)
        self._reap()
        for directory in self._directories:
            remove_tree(directory)

    def _met(self, message: Hello) -> None:
        self._host = message

    def _reap(self) -> None:
        """Reap the host if it became our child because this process adopts orphans."""
        if self._host is None:
            return
        stat = process_stat(self._host.pid)
        if stat is None or stat.start_time != self._host.start_time:
            return
        if stat.parent == os.getpid():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._host.pid, 0)


def _print(message: Output) -> None:
    """Print the output of jobs to this program's stderr."""
    with contextlib.suppress(Exception):
        own = sys.__stderr__
        if own is not None and sys.stderr is own and not _is_open(own.fileno()):
            return  # what it refused would stay in its buffer, and fail our end
        sys.stderr.write(message.text)
        sys.stderr.flush()


def _is_open(fd: int) -> bool:
    """Say whether a descriptor can be written to."""
    try:
        os.write(fd, b"")
    except OSError:
        return False
    return True


def _finish_all() -> None:
    """Finish all work before the interpreter ends."""
    left = list(_living)
    for client in left:
        client.close(cancel=False)
    for client in left:
        client.join()


# As the standard library's executors do: later, threads cannot be joined.
threading._register_atexit(_finish_all)  # type: ignore[attr-defined] # noqa: SLF001 - no public way
