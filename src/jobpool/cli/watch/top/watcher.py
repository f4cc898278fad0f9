"""Threads that read the store for `jobpool top`, and do what is asked of them.

Theory of operation. A store belongs to one thread, and may be slow or away: keys must
not wait for it. So one thread owns it; it reads what runs each second, and acts. What
waits is counted by another with a store of its own: with millions of jobs that takes
seconds, and at most a fifth of the time goes there. What is read is replaced as a
whole; who draws takes what is there.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import msgspec

from jobpool.cli.jobs.show.meant import meant
from jobpool.core.clock import SystemClock
from jobpool.errors import JobpoolError, StoreError
from jobpool.monitoring.glance.glance import Counts, Glance
from jobpool.monitoring.glance.reading import Reader, count
from jobpool.monitoring.looking.reading import Seen as SeenJob
from jobpool.monitoring.looking.reading import read
from jobpool.operations.action import Action, Done
from jobpool.operations.jobs import JobsAction
from jobpool.operations.operate import operate
from jobpool.operations.principal import local_principal
from jobpool.store.protocol import Store

_SHARE = 0.2
"""Of the time: the most that goes into counting what waits, and into all the rest."""
_FIRST_S = 1.0
"""The first picture waits so long for the first counts."""
_CLOSE_S = 1.0
Opener = Callable[[], AbstractContextManager[Store]]


class Latest(msgspec.Struct, frozen=True, kw_only=True):
    """What was read last."""

    glance: Glance | None = None
    error: str = ""
    """Why the store cannot be read at present; "": it can."""
    job: SeenJob | None = None
    """All about the job that is open."""
    said: str = ""
    """What became of the last request."""
    requests: int = 0
    """How many have been answered."""


class Watcher:
    """Reads until it is closed.

    Args:
        opener: opens the store; called in the thread.
        every_s: how often what runs is read.
        wake: called, in the thread, whenever there is something new.
    """

    def __init__(
        self, opener: Opener, *, every_s: float, wake: Callable[[], None]
    ) -> None:
        self._opener = opener
        self._every_s = every_s
        self._wake = wake
        self._clock = SystemClock()
        self._counting = Counting(opener, every_s=every_s)
        self._asked: queue.SimpleQueue[Action | int | None] = queue.SimpleQueue()
        self._closing = False
        self._opened_id: int | None = None
        self.latest = Latest()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run, name="jobpool-top", daemon=True
        )

    @property
    def failure(self) -> BaseException | None:
        """What has ended a thread before it was closed; None: nothing has."""
        return self._failure or self._counting.failure

    def start(self) -> None:
        """Begin to read."""
        self._counting.start()
        self._thread.start()

    def ask(self, request: Action | int | None) -> None:
        """Have an action carried out, or a job opened; None: none is open any more."""
        self._asked.put(request)

    def close(self) -> None:
        """Read no more; an action that has begun is ended first."""
        self._closing = True
        self._asked.put(None)
        self._counting.close()
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        try:
            while not self._closing:
                self._watch()
        except BaseException as exc:  # noqa: BLE001 - raised again by who draws
            self._failure = exc
        self._wake()

    def _watch(self) -> None:
        """Read until the store cannot be read any more.

        Raises:
            JobpoolError: it never could.
        """
        try:
            with self._opener() as store:
                reader = Reader(store)
                self._counting.first.wait(_FIRST_S)
                while not self._closing:
                    began_s = self._clock.monotonic_s()
                    glance = reader.read(self._counting.counts)
                    self._put(glance=glance, error="", job=self._job(store))
                    took_s = self._clock.monotonic_s() - began_s
                    self._answer(store, max(self._every_s, took_s / _SHARE))
        except StoreError as exc:
            if self.latest.glance is None:
                raise
            self._put(error=str(exc))
            self._answer(None, self._every_s)

    def _put(self, **news: object) -> None:
        self.latest = msgspec.structs.replace(self.latest, **news)
        self._wake()

    def _job(self, store: Store) -> SeenJob | None:
        """Return what there is about the job that is open."""
        if self._opened_id is None:
            return None
        try:
            job = meant(store, self._opened_id, None, None)
        except StoreError:
            raise
        except JobpoolError as exc:
            self._opened_id = None
            self._put(said=str(exc))
            return None
        now = SystemClock().utc_ms()
        return read(store, job, now, unredacted=False, with_payload=False)

    def _answer(self, store: Store | None, wait_s: float) -> None:
        """Do what is asked for until it is time to read again; then at once."""
        try:
            request = self._asked.get(timeout=wait_s)
        except queue.Empty:
            return
        while True:
            if isinstance(request, Action):
                self._act(store, request)
            else:
                self._opened_id = request
                self._put(said="")
            self._put(requests=self.latest.requests + 1)
            try:
                request = self._asked.get_nowait()
            except queue.Empty:
                return

    def _act(self, store: Store | None, action: Action) -> None:
        if store is None:
            self._put(said=f"not done: {self.latest.error}")
            return
        try:
            done = operate(store, local_principal("jobpool top"), action)
        except JobpoolError as exc:
            self._put(said=f"not done: {exc}")
        else:
            self._put(said=outcome(action, done))


def outcome(action: Action, done: Done) -> str:
    """Return what became of an action, in a line."""
    if done.refused:
        return "; ".join(done.refused)
    if isinstance(action, JobsAction):
        ids = ", ".join(map(str, action.jobs.ids))
        return f"job {ids} {action.past}" if done.jobs else f"job {ids} was not changed"
    what = " ".join(f"{name} {value}" for name, value in action.target().items())
    past = f"{action.name}d"
    return f"{what} {past}" if done.is_made else f"{what} was {past} already"


class Counting:
    """Counts what waits, in a thread with a store of its own, until it is closed.

    Args:
        opener: opens the store; called in the thread.
        every_s: how often, at most.
    """

    def __init__(self, opener: Opener, *, every_s: float) -> None:
        self._opener = opener
        self._every_s = every_s
        self._clock = SystemClock()
        self.counts = Counts()
        self.first = threading.Event()
        """Something was counted, or could not be."""
        self.failure: BaseException | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="jobpool-top-counts", daemon=True
        )

    def start(self) -> None:
        """Begin to count."""
        self._thread.start()

    def close(self) -> None:
        """Count no more. What takes longer to count ends with this process."""
        self._closing.set()
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._watch()
        except BaseException as exc:  # noqa: BLE001 - raised again by who draws
            self.failure = exc
        self.first.set()

    def _watch(self) -> None:
        try:
            with self._opener() as store:
                self._count(store)
        except StoreError:
            # The thread that reads meets the same trouble, and tells of it.
            self.first.set()
            self._closing.wait(self._every_s)

    def _count(self, store: Store) -> None:
        while not self._closing.is_set():
            began_s = self._clock.monotonic_s()
            self.counts = count(store)
            self.first.set()
            took_s = self._clock.monotonic_s() - began_s
            self._closing.wait(max(self._every_s, took_s / _SHARE - took_s))
