"""The loop of a process that runs its jobs itself: what to lease, and when to end.

Each pool has its turn: one job is leased, and runs to its end, before another one is.
"""

from __future__ import annotations

import os
import queue
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from jobpool.core.clock import Clock
from jobpool.core.events.event import Event, Observer
from jobpool.core.events.supervisor import Alarm, SupervisorDraining
from jobpool.core.jobs.job import Lease
from jobpool.store.protocol import Store
from jobpool.supervisor.dev.attempts import Attempts
from jobpool.supervisor.dev.changes import Changes
from jobpool.supervisor.dev.limits import LimitWatch
from jobpool.supervisor.dev.streams import Streams
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.storage.inbox import Posts
from jobpool.supervisor.storage.thread import StoreThread

TURN_S = 0.1
"""How soon new jobs, a signal or a changed file are seen."""
POLL_S = 0.5
"""How soon a job is seen that no commit of others has announced."""
CHANGES_EVERY_S = 0.5
STORE_PATIENCE_S = 10.0
"""Longest wait for the store at the end."""
_HEARD = frozenset(
    (
        inp.Entered,
        inp.Granted,
        inp.GrantFailed,
        inp.Settled,
        inp.Notified,
        inp.Outdated,
        inp.Stop,
    )
)
_ENDS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
"""The signals that ask for the end, on whatever system."""


class DevLoop:
    """Leases jobs and has them run, until it is asked to end.

    Args:
        pools: their names.
        observer: gets the events.
        clock: for moments and the times of events.
        watch: hears what a handler that runs may be asked.
        burst: end once nothing is due any more.
        changes: end once source files have changed; None: whatever changes.

    Attributes:
        changed: the files for whose change it has ended.
        outdated: it has ended because the store's jobs need newer code.
    """

    def __init__(
        self,
        pools: Sequence[str],
        observer: Observer,
        clock: Clock,
        watch: LimitWatch,
        *,
        burst: bool,
        changes: Changes | None,
    ) -> None:
        self._observer = observer
        self._clock = clock
        self._watch = watch
        self._burst = burst
        self._changes = changes
        self.changed: Sequence[str] = ()
        self.outdated = False
        self._posts: queue.SimpleQueue[inp.SupervisorEvent] = queue.SimpleQueue()
        self._turns = deque(pools)
        self._idle: dict[str, float | None] = {}
        """Pools in which nothing was due, and when something will be."""
        self._next_s = 0.0
        self._look_s = 0.0
        self._may_begin = False
        self._awaits_grant = False
        self._take_signals: Callable[[], None] = lambda: None
        self._signal = ""
        """The first signal that has asked for the end."""
        self._end_by_s = float("inf")
        """When the store is waited for no longer."""
        self.ending = ""
        """Why no more jobs are taken; "": they are."""

    # -- what comes from other threads and from people -------------------------------

    def post(self, post: inp.SupervisorEvent | Event) -> None:
        """Take an event or an input; callable from any thread."""
        watch = self._watch
        match post:
            case Event():
                self._observer.observe(post)
            case inp.CancelAsked():
                watch.canceled |= frozenset(post.tokens)
            case inp.Lapsed():
                text = (
                    "this process was away for so long that its leases ran out: if it "
                    "runs a job, others may run it as well, and its end may be refused"
                )
                self._observer.observe(Alarm(at_ms=self._clock.utc_ms(), text=text))
            case _ if type(post) in _HEARD:
                self._posts.put(post)
                if isinstance(post, inp.Stop):
                    watch.ending = post.reason

    @contextmanager
    def signals(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Have signals ask for the end meanwhile.

        Args:
            interrupt: interrupts the running handler, at a second one.
        """

        def on_signal(number: int, frame: FrameType | None) -> None:
            del frame
            if self._signal:
                interrupt()
            self._signal = self._watch.ending = signal.Signals(number).name

        numbers = {getattr(signal, name) for name in _ENDS if hasattr(signal, name)}
        before = {one: signal.getsignal(one) for one in numbers}

        def take() -> None:
            for number in numbers:
                signal.signal(number, on_signal)

        self._take_signals = take
        take()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _look_for_news(self, store: Store) -> Posts:
        """Say whether others may have committed something; a chore."""
        return (inp.Notified(),) if store.changed() else ()

    # -- the loop ------------------------------------------------------------------

    def run(self, attempts: Attempts, store: StoreThread) -> None:
        """Run until it is over: nothing more is to be waited for.

        Args:
            attempts: runs the jobs.
            store: leases them.
        """
        self._attempts, self._store = attempts, store
        with closing(Streams()) as self._streams:
            self._take_turns()

    def _take_turns(self) -> None:
        attempts, store = self._attempts, self._store
        take: dict[type, Callable[[Any], None]] = {
            inp.Entered: self._entered,
            inp.Granted: self._granted,
            inp.GrantFailed: lambda _event: self._not_granted(),
            inp.Settled: attempts.settled,
            inp.Notified: lambda _event: self._hint(),
            inp.Outdated: lambda _event: self._too_old(),
            inp.Stop: lambda event: self._end(event.reason),
        }
        while not self._is_over():
            if self._signal:
                self._end(self._signal)
            self._look_for_changes()
            self._ask()
            try:
                post = self._posts.get(timeout=TURN_S)
            except queue.Empty:
                if not store.shared:  # else a wake-up comes by itself
                    store.chore(self._look_for_news)
            else:
                take[type(post)](post)

    def _is_over(self) -> bool:
        if self._store.is_lost or not self._store.is_alive():
            return True
        waits = self._awaits_grant or self._attempts.unsettled > 0
        is_late = self._clock.monotonic_s() > self._end_by_s
        return bool(self.ending) and (is_late or not waits)

    def _look_for_changes(self) -> None:
        """End it, to start anew, if source files have changed."""
        now_s = self._clock.monotonic_s()
        if self._changes is not None and now_s >= self._look_s and not self.ending:
            self._look_s = now_s + CHANGES_EVERY_S
            if changed := self._changes.changed():
                self.changed = changed
                names = ", ".join(sorted({Path(one).name for one in changed}))
                self._end(f"{names} changed: it starts anew")

    def _ask(self) -> None:
        """Ask for a job of the next pool, if it is time."""
        is_due = self._clock.monotonic_s() >= self._next_s
        if is_due and self._may_begin and not self._awaits_grant and not self.ending:
            pool = self._turns[0]
            self._turns.rotate(-1)
            self._awaits_grant = True
            self._store.leave([cmd.Lease({pool: 1}, alone=True)])

    def _entered(self, event: inp.Entered) -> None:
        del event
        self._may_begin = True

    def _granted(self, event: inp.Granted) -> None:
        self._awaits_grant = False
        batch = event.batch
        if batch.outdated:
            self._too_old()
        if self.ending:
            self._attempts.hand_back(batch.leases)
            return
        if batch.leases:
            self._hint()
            for lease in batch.leases:
                self._attempts.run(lease)
                self._take_signals()  # pdb keeps Ctrl-C once it has gone on
                self._put_streams_back(lease)
            return
        self._idle |= dict.fromkeys(event.wanted, batch.next_due_in_s)
        if len(self._idle) == len(self._turns):
            pauses = [one for one in self._idle.values() if one is not None]
            if self._burst and not self._attempts.unsettled and 0 not in pauses:
                self._end("nothing is due")
            self._idle.clear()
            pause_s = max(min([POLL_S, *pauses]), TURN_S / 10)
            self._next_s = self._clock.monotonic_s() + pause_s

    def _put_streams_back(self, lease: Lease) -> None:
        """Have this process' streams again, whatever a handler has done to them."""
        if names := self._streams.put_back():
            text = (
                f"job {lease.id} ({lease.kind}) has left {', '.join(names)} closed or "
                "redirected: put back. To redirect within a handler, undo it there"
            )
            self._observer.observe(Alarm(at_ms=self._clock.utc_ms(), text=text))

    def _not_granted(self) -> None:
        self._awaits_grant = False
        self._next_s = self._clock.monotonic_s() + POLL_S

    def _hint(self) -> None:
        """There may be due jobs."""
        self._next_s = 0.0
        self._idle.clear()

    def _too_old(self) -> None:
        self.outdated = True
        self._end("features of a newer release are in use")

    def _end(self, reason: str) -> None:
        """Take no more jobs, and end once all ends are written."""
        if self.ending:
            return
        self.ending = reason
        self._end_by_s = self._clock.monotonic_s() + STORE_PATIENCE_S
        self._store.leave([cmd.Leaving()])
        self._observer.observe(
            SupervisorDraining(
                at_ms=self._clock.utc_ms(),
                pid=os.getpid(),
                reason=reason,
                running=0,
                drain_s=0.0,
            )
        )
