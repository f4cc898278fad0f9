"""What operators do to a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from jobpool.core.jobs.job import JobState
from jobpool.core.rules.quotas.definition import Tenant
from jobpool.core.rules.quotas.rules import Override
from jobpool.core.rules.schedules.schedule import Declared
from jobpool.store.records.operating import AuditEntry, Belongings, Replay


class Operating(Protocol):
    """Jobs, pauses, quotas and schedules are changed by hand."""

    def cancel(self, ids: Iterable[int]) -> int:
        """Cancel unfinished or quarantined jobs; running ones when next checked.

        Returns:
            How many jobs were canceled or will be.
        """
        ...

    def revive(
        self,
        ids: Iterable[int],
        states: Sequence[JobState],
        memory_bytes: int | None = None,
    ) -> int:
        """Make jobs in one of *states* runnable now: reset counters, keep history.

        A job whose unique text is held by another unfinished job stays as it is, and
        so does one that another job has replaced, and a member of a step that has
        ended: see `retry_flow`. A member of a step that has not waits until a fold
        opens it: the steps before it may not have ended, or its flow is paused.

        Args:
            ids: the jobs.
            states: of pending, dead, quarantined, canceled.
            memory_bytes: their own memory limit from now on; None: as it was.

        Returns:
            How many were revived.

        Raises:
            UsageError: no database can hold such a limit; nothing was changed.
        """
        ...

    def replay(self, replays: Sequence[Replay]) -> list[int | None]:
        """Replace finished jobs by new ones; accepted whatever the queue's depth.

        The old job stays as it is, but for its key and its tick of a schedule, which
        the new one takes over, and the link to that one.

        Returns:
            The new job's id for each; None: nothing was changed for this one. Its job
            does not exist, has not ended, or was replaced or erased; it is a member of
            a step that has ended, or has added others to its step; or another job
            holds the key or the unique text.

        Raises:
            UsageError: a new job cannot be stored.
            StoreUnavailable: nothing was replaced.
        """
        ...

    def pause(
        self,
        *,
        pool: str | None = None,
        kind: str | None = None,
        tenant: str | None = None,
        quota: str | None = None,
        whole_store: bool = False,
        for_s: float | None = None,
        who: str | None = None,
        note: str | None = None,
    ) -> bool:
        """Stop leasing a pool, a kind, or anything.

        Args:
            pool: the pool.
            kind: or the kind.
            tenant: or the jobs of a tenant.
            quota: or what needs a quota.
            whole_store: or all of them.
            for_s: until so long from now by the store's clock; None: until resumed. It
                replaces the end of a pause that there is.
            who: who pauses it, for others to see.
            note: why; None: the note of a pause that there is stays.

        Returns:
            False: it was paused already, with this end.

        Raises:
            UsageError: not just one of them is named; or it would end at once.
            FeatureHeldBack: a tenant or a quota, and older runs are open; nothing was
                changed.
        """
        ...

    def resume(
        self,
        *,
        pool: str | None = None,
        kind: str | None = None,
        tenant: str | None = None,
        quota: str | None = None,
        whole_store: bool = False,
    ) -> bool:
        """Undo the same pause; others stay. False: it was not paused."""
        ...

    def set_quota(self, override: Override, *, for_s: float | None = None) -> bool:
        """Set numbers of a quota, above those that are published.

        Args:
            override: a number that is None stays as it is set, if it is; its end is
                ignored.
            for_s: until so long from now by the store's clock; None: until
                `reset_quota`. It replaces the end that there is.

        Returns:
            False: they were set already, with this end.

        Raises:
            UsageError: the numbers are not allowed, or would end at once; nothing was
                changed. That nobody publishes the quota is no error.
            FeatureHeldBack: it is a kind's own cap, and older runs are open; likewise.
        """
        ...

    def reset_quota(self, name: str) -> bool:
        """Undo `set_quota`, unblock all buckets of a quota, and fill up its rate.

        Permits of a cap that are in use stay so.

        Returns:
            False: there was nothing to do.
        """
        ...

    def set_tenant(self, tenant: Tenant, *, who: str | None = None) -> bool:
        """Set the rule of a tenant, or of all others (``*``), above the published one.

        Returns:
            False: it was set so already.

        Raises:
            UsageError: it is not allowed; nothing was changed.
            FeatureHeldBack: older runs are open; likewise.
        """
        ...

    def remove_tenant(self, name: str) -> bool:
        """Undo `set_tenant`; a published rule is in force again.

        Returns:
            False: it was not set.
        """
        ...

    def put_schedule(self, declared: Declared) -> bool:
        """Store a schedule of nobody's code, or change it. A new rule counts from now.

        Returns:
            False: it was there as it is.

        Raises:
            UsageError: it cannot be kept, or an application declares one of this name;
                nothing was changed.
            FeatureHeldBack: it is encoded, and older runs are open; likewise.
        """
        ...

    def pause_schedule(
        self,
        name: str,
        *,
        for_s: float | None = None,
        who: str | None = None,
        note: str | None = None,
    ) -> bool:
        """Let a schedule have no ticks; its jobs go on.

        Args:
            name: the schedule.
            for_s: until so long from now by the store's clock; None: until resumed. It
                replaces the end of a pause that there is.
            who: who pauses it, for others to see.
            note: why.

        Returns:
            False: it was paused already, with this end.

        Raises:
            UsageError: there is no such schedule, or the pause would end at once.
        """
        ...

    def resume_schedule(self, name: str, *, catch_up: bool = False) -> bool:
        """Undo a pause.

        Args:
            name: the schedule.
            catch_up: the ticks of the pause were missed, and its policy says what
                happens to them; otherwise there are none.

        Returns:
            False: it was not paused.

        Raises:
            UsageError: there is no such schedule.
        """
        ...

    def remove_schedule(self, name: str) -> bool:
        """Delete a schedule with its ticks. Their jobs stay.

        Returns:
            False: there was none.

        Raises:
            UsageError: an application that runs declares it; nothing was changed.
        """
        ...

    def run_now(self, name: str) -> int:
        """Enqueue a tick whose nominal time is now, whatever the rule and the policy.

        Returns:
            The job's id.

        Raises:
            UsageError: there is no such schedule.
        """
        ...

    def backfill(
        self, name: str, from_ms: int, to_ms: int, *, dry_run: bool = False
    ) -> int:
        """Store the ticks of a span of the past; they run one after another.

        Args:
            name: the schedule.
            from_ms: the first moment.
            to_ms: the last one.
            dry_run: only count them.

        Returns:
            How many there are. Times that have a tick already are left alone.

        Raises:
            UsageError: there is no such schedule; it has no times of its own; the span
                is not in the past, or has more than 1,000. Nothing was changed.
        """
        ...

    def restart_schedules(self, *, catch_up: bool) -> int:
        """Let all schedules of a restored store go on.

        Args:
            catch_up: what they have missed since the backup was made is up to their
                policies; otherwise they have no ticks before now.

        Returns:
            How many.
        """
        ...

    def audit(self, entry: AuditEntry, audit_id: int | None = None) -> int:
        """Write down what an operator does, in the transaction that does it.

        Args:
            entry: the action.
            audit_id: of an action that goes on; its target, its count and the paths
                that were changed are replaced.

        Returns:
            The id of its row.
        """
        ...

    def amend_audit(self, audit_id: int, *, target: str, note: str | None) -> None:
        """Replace the texts of an entry that name somebody whose data is erased."""
        ...

    def belongings(self, ids: Iterable[int]) -> Belongings:
        """Count what `erase` would delete of jobs, beside their rows."""
        ...

    def erase(self, ids: Iterable[int]) -> int:
        """Delete all data of finished jobs; their rows stay, for statistics.

        Arguments, result, progress, checkpoint, errors, attempts, output, key, unique
        text, tenant and trace are gone. Kind, pool, state, outcome, times, counters
        and figures stay; the reason is when they were erased (`Job.is_erased`). Such a
        job cannot be revived.
        Jobs that have not finished stay as they are. Erasing again changes nothing.
        A flow of such jobs has no key and no tenant any more, unless a job of it has
        not finished.

        Returns:
            How many of the jobs had finished, and hold no data now.
        """
        ...

    def wipe(self, *, rewrite: bool = False) -> list[str]:
        """Overwrite what deleted rows have left in the database's own files.

        Args:
            rewrite: copy the tables, so that nothing is left in them. Nobody can write
                meanwhile, and it needs as much room again on the disk.

        Returns:
            Sentences on what is left, and what to do about it.

        Raises:
            UsageError: a transaction is open.
        """
        ...

    def begin_anew(self, *, tokens: int, last_id: int) -> None:
        """Count a restore, and let tokens and ids go on after these.

        Neither is ever lowered. Where they are sequences, they are raised at once, even
        if the transaction is rolled back.

        Args:
            tokens: as in `Position`.
            last_id: as in `Position`; flows, of which there are fewer, go on after it
                as well.
        """
        ...
