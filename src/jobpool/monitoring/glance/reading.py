"""Reads a store into glances, with nothing in them that kinds hide."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jobpool.core.clock import SystemClock
from jobpool.core.jobs.job import Job
from jobpool.monitoring.glance.glance import Counts, Glance, Seen, glance_of
from jobpool.monitoring.looking.presence import why_silent
from jobpool.operations.redaction import Redaction, Redactor
from jobpool.store.protocol import Store
from jobpool.store.records.reading import EndRow
from jobpool.store.records.runs import KindRecord

LEASED_MAX = 1000
_ENDS_MAX = 50


def count(store: Store) -> Counts:
    """Count what waits: its cost grows with the number of jobs that have not ended.

    Raises:
        StoreError: the store cannot be read.
    """
    at_ms, waiting = SystemClock().utc_ms(), store.waiting()
    return Counts(
        at_ms=at_ms,
        depths=store.depths(),
        waiting=waiting,
        causes=store.causes(waiting),
        quotas=store.quotas(),
    )


class Reader:
    """Reads a store into glances.

    Args:
        store: open; of this thread.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kinds: Sequence[KindRecord] = ()
        self._redactor = Redactor(store, ())
        self._redactions: dict[tuple[int, int], Redaction] = {}
        """What is to be hidden of what is shown, by job and attempt."""

    def read(self, counts: Counts) -> Glance:
        """Read what runs, and put it together with what waits.

        Args:
            counts: what waits, as counted last.

        Raises:
            StoreError: the store cannot be read.
        """
        return glance_of(self.see(), counts)

    def see(self) -> Seen:
        """Read what runs; its cost does not grow with the number of jobs.

        Raises:
            StoreError: the store cannot be read.
        """
        store, root = self._store, self._store.run_root
        now, runs = SystemClock().utc_ms(), store.open_runs()
        store_ms = store.clock_ms()  # leases are by its clock, not this host's
        self._learn(store.kinds())
        leased, ends = store.leased(LEASED_MAX), store.ends(_ENDS_MAX)
        seen = Seen(
            at_ms=now,
            url=store.url,
            runs=runs,
            not_alive={run.id: why_silent(root, run, store_ms) for run in runs},
            kinds=self._kinds,
            reports=store.run_reports(),
            leased=[self._shown(job) for job in leased],
            ends=[self._end(one) for one in ends],
            pauses=store.pauses(),
            breakers=store.breakers(),
        )
        kept = {(job.id, job.attempt) for job in leased}
        kept |= {(one.job_id, one.attempt) for one in ends}
        self._redactions = {
            key: one for key, one in self._redactions.items() if key in kept
        }
        return seen

    def _learn(self, kinds: Sequence[KindRecord]) -> None:
        """Take over what kinds hide, if that may have changed."""
        if kinds != self._kinds:
            self._kinds = kinds
            self._redactor = Redactor(self._store, kinds)
            self._redactions.clear()

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
