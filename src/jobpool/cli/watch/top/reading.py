"""A thread that reads the store for `jobpool top`, and does what is asked of it.

Theory of operation. A store belongs to one thread, and may be slow or away: keys must
not wait for it. So one thread owns it. It reads what runs each second, and what waits
less often where many jobs wait: at most a fifth of its time goes there. What is read is
replaced as a whole; the other thread takes what is there.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import msgspec

from jobpool.cli.context import now_ms
from jobpool.cli.jobs.show.reading import Seen as SeenJob
from jobpool.cli.jobs.show.reading import meant, read
from jobpool.cli.machine.presence import why_not_alive
from jobpool.cli.watch.top.glance import Counts, Glance, Seen, glance_of
from jobpool.core.clock import SystemClock
from jobpool.core.jobs.job import Job
from jobpool.errors import JobpoolError, StoreError
from jobpool.operations.action import Action, Done
from jobpool.operations.jobs import JobsAction
from jobpool.operations.operate import operate
from jobpool.operations.principal import local_principal
from jobpool.operations.redaction import Redaction, Redactor
from jobpool.store.protocol import Store
from jobpool.store.records.reading import EndRow

LEASED_MAX = 1000
_ENDS_MAX = 50
_SHARE = 0.2
"""Of the time: the most that goes into counting what waits, and into all the rest."""
_CLOSE_S = 2.0
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
        self._asked: queue.SimpleQueue[Action | int | None] = queue.SimpleQueue()
        self._closing = False
        self._opened_id: int | None = None
        self.latest = Latest()
        self.failure: BaseException | None = None
        """What ended the thread before it was closed."""
        self._thread = threading.Thread(
            target=self._run, name="jobpool-top", daemon=True
        )

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def ask(self, request: Action | int | None) -> None:
        """Have an action carried out, or a job opened; None: none is open any more."""
        self._asked.put(request)

    def close(self) -> None:
        """Read no more; an action that has begun is ended first."""
        self._closing = True
        self._asked.put(None)
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        try:
            while not self._closing:
                self._watch()
        except BaseException as exc:  # noqa: BLE001 - raised again by who draws
            self.failure = exc
        self._wake()

    def _watch(self) -> None:
        """Read until the store cannot be read any more.

        Raises:
            JobpoolError: it never could.
        """
        try:
            with self._opener() as store:
                reader = Reader(store)
                while not self._closing:
                    began_s = self._clock.monotonic_s()
                    self._put(glance=reader.read(), error="", job=self._job(store))
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
        return read(store, job, unredacted=False, with_payload=False)

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


class Reader:
    """Reads a store into glances.

    Args:
        store: open; of this thread.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._clock = SystemClock()
        self._counts = Counts(at_ms=0)
        self._count_s = 0.0
        """When to count again; monotonic."""
        self._redactor = Redactor(store, ())
        self._redactions: dict[tuple[int, int], Redaction] = {}
        """What is to be hidden of what is shown, by job and attempt."""

    def read(self) -> Glance:
        """Read everything once.

        Raises:
            StoreError: the store cannot be read.
        """
        store, root = self._store, self._store.run_root
        if self._clock.monotonic_s() >= self._count_s:
            self._count()
        now, runs = now_ms(), store.open_runs()
        leased, ends = store.leased(LEASED_MAX), store.ends(_ENDS_MAX)
        seen = Seen(
            at_ms=now,
            url=store.url,
            runs=runs,
            not_alive={run.id: why_not_alive(root, run, now) for run in runs},
            reports=store.run_reports(),
            leased=[self._shown(job) for job in leased],
            ends=[self._end(one) for one in ends],
            pauses=store.pauses(),
        )
        kept = {(job.id, job.attempt) for job in leased}
        kept |= {(one.job_id, one.attempt) for one in ends}
        self._redactions = {
            key: one for key, one in self._redactions.items() if key in kept
        }
        return glance_of(seen, self._counts)

    def _count(self) -> None:
        """Count what waits, and set when to do so again."""
        store, began_s = self._store, self._clock.monotonic_s()
        at_ms, waiting = now_ms(), store.waiting()
        self._counts = Counts(
            at_ms=at_ms,
            kinds=store.kinds(),
            depths=store.depths(),
            waiting=waiting,
            causes=store.causes(waiting),
        )
        self._redactor = Redactor(store, self._counts.kinds)
        self._redactions.clear()
        now_s = self._clock.monotonic_s()
        self._count_s = began_s + (now_s - began_s) / _SHARE

    def _shown(self, job: Job) -> Job:
        """Return a job as it may be shown; its arguments are read once."""
        if not self._redactor.hides_anything:
            return job
        key = (job.id, job.attempt)
        if key not in self._redactions:
            self._redactions[key] = self._redactor.of(job)
        return self._redactions[key].job(job)

    def _end(self, one: EndRow) -> EndRow:
        if not self._redactor.hides_anything:
            return one
        key = (one.job_id, one.attempt)
        if key not in self._redactions:
            job = self._store.get(one.job_id)
            if job is None:  # pruned just now: what it hides cannot be known any more
                return msgspec.structs.replace(one, reason=None)
            self._redactions[key] = self._redactor.of(job)
        return msgspec.structs.replace(
            one, reason=self._redactions[key].text(one.reason)
        )
