"""The host: a supervisor over a store in memory, for as long as its caller lives.

Theory of operation. The supervisor runs in the main thread, as everywhere. A second
thread receives calls from the socket, enqueues them in batches, and sends back what the
store reports as ended. When the socket closes or the caller's process ends, it stops
the supervisor at once, whatever is running. Pickles pass through unopened.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from jobpool.core.config.settings import PoolSettings, Settings
from jobpool.core.events.event import Event, Level
from jobpool.core.events.jobs import JobOutput, JobSucceeded
from jobpool.core.events.pools import ZygoteFailed
from jobpool.core.events.supervisor import Alarm, SupervisorDraining
from jobpool.core.jobs.job import Settlement
from jobpool.core.rules.limits import PoolLimits
from jobpool.core.units import DURATION_MAX_S, SIZE_MAX_BYTES
from jobpool.errors import AppError, JobpoolError
from jobpool.executor.child import POOL, SETUP_VARIABLE
from jobpool.executor.host.ledger import Ends, Ledger
from jobpool.executor.host.store import HostStore
from jobpool.executor.wire import spill_files
from jobpool.executor.wire.endpoint import Wire
from jobpool.executor.wire.messages import (
    FRAME_BYTES,
    Broken,
    Hello,
    Output,
    Recall,
    Recalled,
    Returned,
    Setup,
    Submit,
    ToHost,
)
from jobpool.sandbox.protocol.messages import FrameError
from jobpool.sandbox.system.procfs import is_alive, process_start_time
from jobpool.sandbox.system.remove_tree import remove_tree
from jobpool.store.memory.database import MemoryDatabase
from jobpool.supervisor.serve import serve

STOP_S = 15.0
"""The host exits if its supervisor takes longer to stop: its zygotes then end all."""
FLUSH_S = 5.0
STARTS_MAX = 5
"""If this many children in a row do not start, none is expected to."""
_NO_CHILD = "no child could be started"


def run(fd: int) -> NoReturn:
    """Run a host until the caller has closed it or is gone. Never returns."""
    signal.signal(signal.SIGQUIT, _leave)
    end = socket.socket(fileno=fd)
    end.set_inheritable(False)
    host = Host(end)
    status = 1
    try:
        status = host.run()
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(status)


def _leave(_signum: int, _frame: object) -> NoReturn:
    """Exit: the signal handler until the supervisor has installed its own."""
    raise SystemExit(0)


class Host:
    """This process as the host of a caller.

    Args:
        end: the socket to the caller.
    """

    def __init__(self, end: socket.socket) -> None:
        self._wire = Wire(end, ToHost)
        self._finished: deque[tuple[Settlement, int]] = deque()
        self._printed: deque[str] = deque()
        self._failed_starts = 0
        self._why = "its host failed"
        self._broken: str | None = None
        """Why it cannot go on; set by the main thread, sent by the other."""
        self._over = threading.Event()

    def run(self) -> int:
        """Serve the caller; return the exit code."""
        setup = self._first_message()
        if setup is None:
            return 0
        self._setup = setup
        self._kept = spill_files.keep(setup.directories)
        home = Path(setup.directories[-1])
        self._database = MemoryDatabase("executor")
        self._store = HostStore(self._database, home / "runs", self._ended)
        self._ledger = Ledger(self._store, setup)
        # It holds keys: only our user may read it, whatever the directory's mode.
        (home / "setup").touch(mode=0o600, exist_ok=False)
        (home / "setup").write_bytes(msgspec.msgpack.encode(setup))
        os.environ[SETUP_VARIABLE] = str(home / "setup")
        # All that is made from here on: the caller removes it, should we be killed.
        tempfile.tempdir = str(home)
        thread = threading.Thread(target=self._relay, name="caller", daemon=True)
        thread.start()
        try:
            return serve(_settings(setup), observer=self, opener=self._open)
        except AppError as exc:
            self._why = f"{exc}\n{exc.traceback}".rstrip()
            return 1
        except JobpoolError as exc:
            self._why = str(exc)
            return 1
        finally:
            self._broken = self._broken or self._why
            self._over.set()
            self._wire.wake()
            thread.join(FLUSH_S)
            for directory in setup.directories:
                remove_tree(directory)

    def _first_message(self) -> Setup | None:
        """Wait for the caller's first message; None: the caller is gone."""
        while True:
            self._wire.wait(None)
            messages = self._wire.receive()
            if messages is None:
                return None
            if messages:
                first, *self._early = messages
                return first if isinstance(first, Setup) else None

    def _open(self) -> HostStore:
        return HostStore(self._database, self._store.run_root, self._ended)

    # -- the supervisor's threads --------------------------------------------------

    def observe(self, event: Event) -> None:
        """Note events that the caller must be notified of."""
        if isinstance(event, JobOutput):
            self._printed.append(event.line)
            self._wire.wake()
        elif isinstance(event, JobSucceeded):
            self._failed_starts = 0
        elif isinstance(event, Alarm) and _NO_CHILD in event.text:
            self._failed_starts += 1
            if self._failed_starts >= STARTS_MAX and self._broken is None:
                self._broken = event.text
                self._wire.wake()
        elif isinstance(event, Alarm):
            self._printed.append(f"jobpool: {event.text}")
            self._wire.wake()
        elif isinstance(event, SupervisorDraining):
            self._why = f"its host was asked to end: {event.reason}"
        elif isinstance(event, ZygoteFailed):
            self._printed.append(f"jobpool: {event.reason}")
            self._wire.wake()

    def hears(self, kind: type[Event]) -> bool:
        """Say whether it uses events of this class; it ignores a few."""
        return kind.level > Level.NOTSET

    def _ended(self, ends: Sequence[tuple[Settlement, int]]) -> None:
        self._finished.extend(ends)
        self._wire.wake()

    # -- the caller's thread -------------------------------------------------------

    def _relay(self) -> None:
        """Receive calls and send their ends, until one side has ended."""
        try:
            self._exchange()
        finally:
            if not self._over.is_set():
                os.kill(os.getpid(), signal.SIGQUIT)
                if not self._over.wait(STOP_S):
                    os._exit(1)

    def _exchange(self) -> None:
        wire, setup = self._wire, self._setup
        try:
            caller = os.pidfd_open(setup.caller_pid)
        except ProcessLookupError:
            return
        if not is_alive(setup.caller_pid, setup.caller_start_time):
            return
        wire.watch(caller)
        wire.send(Hello(os.getpid(), process_start_time(os.getpid()) or 0))
        messages: list[object] | None = self._early
        while messages is not None:
            for message in messages:
                self._take(message)
            self._send_ends()
            if self._over.is_set() or self._broken is not None:
                self._send_reason()
                return
            if caller in wire.wait(self._ledger.wait_s()):
                return
            wire.flush()
            try:
                messages = wire.receive()
            except FrameError:
                return

    def _take(self, message: object) -> None:
        match message:
            case Submit(tasks=tasks):
                self._ledger.take(tasks)
            case Recall():
                self._wire.send(Recalled(self._ledger.recall()))
            case _:
                raise FrameError(f"unexpected {type(message).__name__}")

    def _send_ends(self) -> None:
        """Send what has ended, in as few frames as possible."""
        ends = Ends()
        self._ledger.check(ends)
        ended = [self._finished.popleft() for _ in range(len(self._finished))]
        self._ledger.ended(ended, ends)
        for output in ends.output:
            self._printed += output.decode("utf-8", "replace").splitlines()
        if self._printed:
            lines = [self._printed.popleft() for _ in range(len(self._printed))]
            self._wire.send(Output("".join(f"{line}\n" for line in lines)))
        for death in ends.deaths:
            self._wire.send(death)
        results: list[tuple[int, bytes]] = []
        size = 0
        for number, result in ends.results:
            results.append((number, result))
            size += len(result)
            if size >= FRAME_BYTES:
                self._wire.send(Returned(results))
                results, size = [], 0
        if results:
            self._wire.send(Returned(results))

    def _send_reason(self) -> None:
        """Send the reason for the end, if the caller still listens."""
        self._wire.send(Broken(self._broken or "its host has ended"))
        while not self._wire.flush():
            self._wire.wait(FLUSH_S)
            if self._wire.receive() is None:
                return


def _settings(setup: Setup) -> Settings:
    """Return the supervisor's settings."""
    pool = PoolSettings(
        name=POOL,
        # All calls are of one kind: crashes of some must not hold the others.
        breaker_after=0,
        size_min=setup.workers,
        size_max=setup.workers,
        # Limits come with each call; without one there is none.
        limits=PoolLimits(timeout_s=DURATION_MAX_S, memory_bytes=SIZE_MAX_BYTES),
    )
    if setup.jobs_per_child is not None:
        pool = msgspec.structs.replace(pool, recycle_jobs=setup.jobs_per_child)
    return Settings(
        store="memory:executor",
        app="jobpool.executor.child:application",
        # Nothing of the caller's is in the way of our own imports; the application
        # goes to the caller's directory itself.
        app_directory=setup.directories[-1],
        pools=(pool,),
        result_max_bytes=spill_files.INLINE_MAX_BYTES + 1,
    )
