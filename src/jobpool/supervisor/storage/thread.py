"""The store thread: the one writer, owner of the database connection, group commit.

Theory of operation. The loop never waits for the disk: it leaves what is to be written
in an inbox and goes on. This thread takes whatever has piled up, commits it together,
and posts the results back to the loop. A settlement stays in the outbox until its
commit is known to have happened; everything else is answered with its failure. The
thread touches no process, so a commit that takes seconds delays no kill.

A store that went back in time (`store.contract.watermark`) gets nothing more: whatever
waits, or comes later, is discarded and answered as refused. It is looked for at each
renewal, and before anything is written again after trouble.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from jobpool.core.clock import Clock
from jobpool.core.events import supervisor as ev
from jobpool.core.events.event import Event
from jobpool.core.jobs.job import Settlement
from jobpool.core.rules.run_report import RunReport
from jobpool.errors import (
    OutcomeUnknown,
    StoreError,
    StoreRefused,
    StoreWentBack,
)
from jobpool.store.contract.watermark import Watermark
from jobpool.store.protocol import Store, is_shared
from jobpool.store.statements.parameters import newest_beats
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.os_priority import going_first
from jobpool.supervisor.storage.answers import answered, is_apart, refusal
from jobpool.supervisor.storage.inbox import Chore, Inbox, Posts
from jobpool.supervisor.storage.outbox import Outbox
from jobpool.supervisor.storage.permits import FreedPermits, PermitBatch
from jobpool.supervisor.storage.reports import Commits, PendingReport
from jobpool.supervisor.storage.trouble import Trouble
from jobpool.supervisor.storage.writes import (
    count_saves,
    held_back,
    is_left,
    lease,
    write_ends,
)

RUSH_S = 0.004
"""Within this time after a commit of settlements, the next one waits for more."""
LINGER_S = 0.002


class StoreThread(threading.Thread):
    """Writes for the loop.

    Args:
        opener: opens the store, in this thread.
        run_id: the supervisor's run.
        post: takes an event for the loop; callable from any thread.
        clock: for the times of events.
    """

    def __init__(
        self,
        opener: Callable[[], Store],
        run_id: str,
        post: Callable[[inp.SupervisorEvent | Event], None],
        clock: Clock,
    ) -> None:
        super().__init__(name="jobpool-store", daemon=True)
        self._opener = opener
        self._run_id = run_id
        self.known = Watermark(run_id)
        """What must be in the store."""
        self._post = post
        self._clock = clock
        self._inbox = Inbox()
        self._outbox = Outbox(run_id, post, clock)
        self._changed = threading.Condition()
        self._closing = False
        self._freed = FreedPermits()
        self._settled_s = float("-inf")
        """When settlements were last written."""
        self._lingers = False
        """The thread waits for more to commit: more of the same does not wake it."""
        self._report = PendingReport()
        self.commits = Commits()
        """Those with ends or starts; for this thread."""
        self._tried_last = False
        """The outbox was tried once more after the close."""
        self._trouble = Trouble(post, clock)
        self.shared = False
        """Other hosts may use the store; known once it is opened."""
        self.run_root = Path()
        """Where this host's run directories are; known once it is opened."""
        self.kinds: Mapping[str, Sequence[str]] = {}
        """Kinds that may be leased, by pool; set before the first lease."""
        self.burst = False
        """The run ends when nothing is due."""
        self.saves = 0
        """Count of breakers saved; read in this thread."""
        self.opened = threading.Event()
        self.error: BaseException | None = None
        """Why the store could not be opened, or why the thread ended early."""
        self.refusal: StoreRefused | None = None
        """Why the store, once opened, has become unusable."""
        self.is_lost = False
        """The store went back in time: nothing more is written."""

    # -- the loop's side -----------------------------------------------------------

    def leave(self, commands: Iterable[cmd.Command]) -> None:
        """Leave commands for the store, and wake the thread."""
        with self._changed:
            for command in commands:
                self._inbox.take(command)
            if not self._lingers or self._cannot_wait():
                self._changed.notify()

    def chore(self, chore: Chore) -> None:
        """Leave a task for the store, to be run outside of the group commit."""
        with self._changed:
            if chore not in self._inbox.chores:
                self._inbox.chores.append(chore)
            self._changed.notify()

    def give_up(self, error: StoreWentBack) -> None:
        """Write nothing more, and stop; callable from any thread."""
        with self._changed:
            if self.is_lost:
                return
            self.is_lost = True
            self.refusal = error
            self._changed.notify()
        self._post(ev.StoreWentBack(at_ms=self._clock.utc_ms(), error=str(error)))
        self._post(inp.Stop("the store went back in time"))

    def close(self, timeout_s: float) -> None:
        """Let the thread finish what it has, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self.join(timeout_s)

    # -- the thread's side ---------------------------------------------------------

    def run(self) -> None:
        """Open the store and serve the inbox until closed."""
        try:
            store = self._opener()
        except BaseException as exc:  # noqa: BLE001 - handed to the waiting starter
            self.error = exc
            self._report_opened()
            return
        self.shared = is_shared(store)
        self.run_root = store.run_root
        self._report_opened()
        try:
            with going_first():
                while (batch := self._next()) is not None:
                    self._serve(store, batch)
        except BaseException as exc:
            self.error = exc
            self._post(inp.Stop(f"the store thread failed: {exc!r}"))
            raise
        finally:
            store.close()

    def _report_opened(self) -> None:
        self.opened.set()
        self._post(inp.Tick())  # wakes the loop, which waits for it

    def rest(self, seconds: float) -> bool:
        """Wait; True: the thread is to end, so the wait was cut short."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closing, seconds)

    def _next(self) -> Inbox | None:
        """Wait for work; None: the thread was closed, and everything is done."""
        with self._changed:
            while not self._inbox and not self._closing:
                now_s = self._clock.monotonic_s()
                waits_s = (self._outbox.wait_s(), self._freed.wait_s(now_s))
                wait_s = min((one for one in waits_s if one is not None), default=None)
                self._changed.wait(wait_s)
                if wait_s is not None:
                    break
            if self._closing and not self._inbox:
                if not self._outbox or self._tried_last:
                    return None
                self._tried_last = True
            rush_s = max(self._settled_s, self._freed.answered_s) + RUSH_S
            if self._clock.monotonic_s() < rush_s and not self._cannot_wait():
                self._lingers = True
                self._changed.wait_for(self._cannot_wait, LINGER_S)
                self._lingers = False
            batch, self._inbox = self._inbox, Inbox()
            return batch

    def _cannot_wait(self) -> bool:
        return self._closing or self._outbox.is_due or not self._inbox.can_wait

    def _serve(self, store: Store, batch: Inbox) -> None:
        self._outbox.add(batch.settlements)
        self._report.take(batch.report, self._clock.monotonic_s())
        is_to_be_checked = self._trouble.lasts and self.known.is_set
        is_sure = not is_to_be_checked or self._confirm(store, batch)
        if self.is_lost:
            self._discard(batch)
            return
        due = self._outbox.due(last=self._closing)
        has_work = bool(due) or batch.is_to_be_written
        is_well = is_sure and (not has_work or self._commit(store, batch, due))
        if is_well and (apart := self._outbox.due_apart()):
            self._write_apart(store, apart)
        if is_well and batch.permits:
            self._write_permits(store, batch.permits)
        if self._outbox.in_doubt and not self._trouble.lasts:
            self._reconcile(store)
        store.tidy(waited_for=bool(self._inbox))
        if is_well and self._report.is_overdue(self._clock.monotonic_s()):
            self._do_chores(store, (self._report_alone,))
        self._do_chores(store, batch.chores)
        ended = len(due) + len(batch.permits.returns)
        if self._freed.turn_ended(
            ended, self._clock.monotonic_s(), is_awaited=store.permits_freed()
        ):
            store.wake()
        for text in store.damaged_rows():
            self._post(ev.Alarm(at_ms=self._clock.utc_ms(), text=text))

    def _do_chores(self, store: Store, chores: Iterable[Chore]) -> None:
        for chore in chores:
            try:
                said = chore(store)
            except StoreRefused as exc:
                self._refused(exc)
                continue
            except StoreError as exc:
                self._trouble.seen(exc)
                self._pause()
                continue
            except Exception as exc:  # noqa: BLE001 - one chore must not end them all
                text = f"the store thread could not do {chore!r}: {exc!r}"
                said = (ev.Alarm(at_ms=self._clock.utc_ms(), text=text),)
            for event in said:
                self._post(event)

    def _report_alone(self, store: Store) -> Posts:
        self._report.written(self._report.write(store, self._run_id))
        self._trouble.over()
        return ()

    def _confirm(self, store: Store, batch: Inbox) -> bool:
        """After trouble: say whether it is the store that it was, and answers."""
        try:
            store.confirm(self.known)
        except StoreError as exc:
            self._failed(batch, [], exc)
            return False
        return True

    def _discard(self, batch: Inbox) -> None:
        """Answer everything, and write nothing."""
        self._outbox.discard()
        refused = self.refusal or StoreWentBack("the store went back in time")
        for ask in batch.asks:
            self._post(inp.Stored(ask.slot, ask.child, refusal(ask.ask, refused)))
        self._unanswered(batch.permits)
        if batch.lease is not None:
            self._post(inp.GrantFailed())

    def _commit(self, store: Store, batch: Inbox, due: list[Settlement]) -> bool:
        """Write everything in one transaction or nothing; then what may have to wait.

        Where others write as well, another session's open transaction may lock a key or
        unique text. No settlement waits for that.

        Returns:
            Whether it is written.
        """
        apart = [ask for ask in batch.asks if is_apart(ask, shared=self.shared)]
        together = [ask for ask in batch.asks if ask not in apart]
        # A lease alone is a transaction by itself, which saves a savepoint.
        lease_only = not (due or batch.starts or batch.progress or together)
        report: RunReport | None = None
        began_s = self._clock.monotonic_s()
        try:
            with nullcontext() if lease_only else store.transaction():
                receipts = write_ends(store, self._run_id, batch, due)
                if not lease_only:
                    report = self._report.write(store, self._run_id)
                answers = [answered(store, ask) for ask in together]
                grant = (
                    None
                    if batch.lease is None
                    else lease(store, self._run_id, batch.lease, self.kinds)
                )
                is_dry = grant is not None and not grant.leases
                held = (
                    held_back(store, batch.lease, self.kinds)
                    if self.burst and is_dry and batch.lease is not None
                    else None
                )
        except StoreError as exc:
            self._failed(batch, due, exc)
            return False
        has_granted = grant is not None and bool(grant.leases)
        self._trouble.over(has_written=not lease_only or has_granted)
        if not lease_only:
            self._report.written(report)
            self.commits.took(self._clock.monotonic_s() - began_s)
        self.saves += count_saves(batch.safety_notes)
        if receipts:  # before it is told: what is left after that may come at once
            self._settled_s = self._clock.monotonic_s()
        self._outbox.answered(due, receipts)
        for answer in answers:
            self._post(answer)
        is_awaited = any(ask.jobs or ask.flow for ask in batch.asks)
        if grant is not None and batch.lease is not None:
            is_awaited |= is_left(batch.lease.wanted, grant)
            self._outbox.granted(grant.leases)
            self.known.granted(grant.leases)
            self._post(inp.Granted(batch.lease.wanted, grant, held))
            self._freed.granted(grant, sum(batch.lease.wanted.values()))
        for ask in apart:
            self._store_apart(store, ask)
        if is_awaited:
            store.wake()
        return True

    def _write_apart(self, store: Store, apart: list[Settlement]) -> None:
        """Write large settlements; only part of one, if small ones may come."""
        try:
            if self._outbox.is_hurried and store.store_part(apart[0]):
                self._trouble.over()
                return
        except StoreError as exc:
            self._failed(Inbox(), [], exc)
            return
        self._commit(store, Inbox(), apart)

    def _write_permits(self, store: Store, permits: PermitBatch) -> None:
        """Write what running attempts take and return of quotas."""
        try:
            answers = permits.write(store, self._run_id)
        except StoreError as exc:
            self._failed(Inbox(permits=permits), [], exc)
            return
        self._trouble.over()
        if permits.asks:
            self._post(inp.PermitsAnswered(permits.asks, answers))
            self._freed.taken(sum(answer.granted for answer in answers))

    def _unanswered(self, permits: PermitBatch) -> None:
        """Say that nothing was taken; if it was, it is granted again when asked for."""
        if permits.asks:
            self._post(inp.PermitsAnswered(permits.asks, None))

    def _store_apart(self, store: Store, ask: cmd.Enqueue) -> None:
        try:
            answer = answered(store, ask)
        except StoreError as exc:
            answer = inp.Stored(ask.slot, ask.child, refusal(ask.ask, exc))
        self._post(answer)

    def _reconcile(self, store: Store) -> None:
        """Resolve what a lost answer has left in doubt."""
        try:
            self._outbox.reconcile(store)
        except StoreError as exc:
            self._trouble.seen(exc)
            self._pause()

    def _failed(
        self, batch: Inbox, due: Sequence[Settlement], error: StoreError
    ) -> None:
        """Nothing is known to be written: keep the settlements, answer the rest."""
        if isinstance(error, OutcomeUnknown):
            self._outbox.doubt(due)
        for ask in batch.asks:
            self._post(inp.Stored(ask.slot, ask.child, refusal(ask.ask, error)))
        self._unanswered(batch.permits)
        if batch.lease is not None:
            self._post(inp.GrantFailed())
        if isinstance(error, StoreWentBack):
            self.give_up(error)
            return
        with self._changed:
            if not self._closing:
                self._inbox.progress = newest_beats(
                    batch.progress + self._inbox.progress
                )
                self._inbox.safety_notes = batch.safety_notes + self._inbox.safety_notes
                self._inbox.permits.keep(batch.permits)
        self._trouble.seen(error)
        self._pause()
        if isinstance(error, StoreRefused):
            self._refused(error)

    def _refused(self, error: StoreRefused) -> None:
        """Trying again does not help: report what does, and stop."""
        if isinstance(error, StoreWentBack):
            self.give_up(error)
            return
        self.refusal = self.refusal or error
        self._post(ev.Alarm(at_ms=self._clock.utc_ms(), text=str(error)))
        self._post(inp.Stop("the store refuses"))

    def _pause(self) -> None:
        """Wait before the next attempt, longer each time."""
        self.rest(self._trouble.next_pause_s(is_shared=self.shared))
