"""Reads for people and programs: jobs, attempts, counts, figures."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import islice
from typing import Any

import msgspec

from jobpool.core.clock import Clock
from jobpool.core.jobs.job import Attempt, Job, JobState
from jobpool.core.jobs.ref import id_of, ref_of
from jobpool.core.rules.circuit_breaker import BreakerState
from jobpool.core.rules.run_report import ReportRow, StoreReport
from jobpool.core.rules.usage.sketch import Measure
from jobpool.core.rules.waits import (
    WAITS_KEPT_MS,
    WAITS_SLOT_MS,
    Waiting,
    WaitRow,
    waits_of,
)
from jobpool.store.memory.database import MemoryDatabase, Session
from jobpool.store.memory.flows.reading import FlowReading
from jobpool.store.memory.quotas.claim import Claim
from jobpool.store.memory.quotas.reading import QuotaReading
from jobpool.store.memory.set_apart.misfits import MisfitKeeping
from jobpool.store.memory.tables.looks import groups_of, is_meant, looked_at
from jobpool.store.memory.tables.ordered_set import oldest_ms
from jobpool.store.memory.tables.rows import Row, job_from
from jobpool.store.memory.tables.scaling import scaling_of
from jobpool.store.memory.tables.uses import (
    Due,
    Use,
    depths_of,
    ends_of,
    figures_of,
    minutes_of,
    newness,
    overdue_of,
    runnable_of,
    samples_of,
    stats_of,
    tenant_depths_of,
    uses_of,
)
from jobpool.store.operations.quotas.view import LANES
from jobpool.store.records.jobs import KeptOutput
from jobpool.store.records.operating import Filter, PauseRow
from jobpool.store.records.reading import (
    DepthRow,
    EndRow,
    FigureRow,
    GroupRow,
    Looked,
    MinuteRow,
    SampleRow,
    ScalingRow,
    SketchRow,
    Spot,
    StatRow,
    WaitingRow,
    by_time,
)
from jobpool.store.records.runs import KindRecord
from jobpool.store.statements.validation import STORE_PAUSE


class Reading(MisfitKeeping, QuotaReading, FlowReading):
    """The part of the store that only reads."""

    _database: MemoryDatabase
    _session: Session
    _clock: Clock

    def get(self, job_id: int, connection: Any = None) -> Job | None:
        """See `Store.get`."""
        self._database.refuse(connection)
        with self._session.reading:
            row = self._database.jobs.get(job_id)
            return None if row is None else self._shown(row)

    def id_of(self, ref: str, connection: Any = None) -> int | None:
        """See `Store.id_of`."""
        self._database.refuse(connection)
        with self._session.reading:
            return id_of(ref, self._database.ref_key)

    def ref_of(self, job_id: int) -> str:
        """See `Store.ref_of`."""
        return ref_of(job_id, self._database.ref_key)

    def trace_key(self) -> bytes:
        """See `Store.trace_key`."""
        return self._database.ref_key

    def payload(self, job_id: int, connection: Any = None) -> bytes | None:
        """See `Store.payload`."""
        self._database.refuse(connection)
        with self._session.reading:
            row = self._database.jobs.get(job_id)
            return None if row is None else row.new.payload

    def trace(self, job_id: int) -> str | None:
        """See `Store.trace`."""
        with self._session.reading:
            row = self._database.jobs.get(job_id)
        return None if row is None else row.new.trace

    def attempts(self, job_id: int) -> list[Attempt]:
        """See `Store.attempts`."""
        with self._session.reading:
            row = self._database.jobs.get(job_id)
            return [] if row is None else [tried.shown for tried in row.tried]

    def output(self, job_id: int) -> str | None:
        """See `Store.output`."""
        with self._session.reading:
            row = self._database.jobs.get(job_id)
            return None if row is None or row.held is None else row.held.output

    def kept_output(self, job_id: int) -> KeptOutput | None:
        """See `Store.kept_output`."""
        with self._session.reading:
            found = self._database.outputs.get(job_id)
            return None if found is None else found[1]

    def find(
        self,
        which: Filter,
        limit: int = 100,
        before_id: int | None = None,
        after_id: int | None = None,
    ) -> list[Job]:
        """See `Store.find`."""
        first_id = 0 if after_id is None else after_id + 1
        with self._session.reading:
            found = self._matching(which, before_id)
            kept = (row for row in found if row.id >= first_id)
            return [self._shown(row) for row in islice(kept, limit)]

    def look(
        self,
        which: Filter,
        limit: int,
        before: Spot | None = None,
        window: int = 1000,
    ) -> Looked:
        """See `Store.look`."""
        with self._session.reading:
            rows = self._database.jobs.newest_first()
            meant = {row.id for row in self._matching(which)}
            found, spot = looked_at(
                rows, which, meant, limit=limit, before=before, window=window
            )
            return Looked(jobs=tuple(map(self._shown, found)), spot=spot)

    def tally(self, most: int) -> dict[str, int]:
        """See `Store.tally`."""
        with self._session.reading:
            counts = Counter(
                row.state.value for row in self._database.jobs.newest_first()
            )
        return {state.value: min(most, counts[state.value]) for state in JobState}

    def count(self, which: Filter) -> int:
        """See `Store.count`."""
        with self._session.reading:
            if which == _EVERYTHING:
                return len(self._database.jobs)
            return sum(1 for _ in self._matching(which))

    def leased(self, limit: int = 1000) -> list[Job]:
        """See `Store.leased`."""
        with self._session.reading:
            held = self._database.jobs.held
            found = [self._database.jobs[one] for ids in held.values() for one in ids]
            longest = sorted(found, key=_since)
            return [self._shown(row) for row in longest[:limit]]

    def ends(self, limit: int = 100) -> list[EndRow]:
        """See `Store.ends`."""
        with self._session.reading:
            found = [
                end
                for row in self._database.jobs.newest_first()
                for end in ends_of(row)
            ]
        return nlargest(limit, found, key=newness)

    def minutes(self, since_ms: int) -> list[MinuteRow]:
        """See `Store.minutes`."""
        with self._session.reading:
            return minutes_of(self._database.jobs.newest_first(), since_ms)

    def groups(self, which: Filter) -> list[GroupRow]:
        """See `Store.groups`."""
        with self._session.reading:
            return groups_of(self._matching(which))

    def stats(self) -> list[StatRow]:
        """See `Store.stats`."""
        with self._session.reading:
            jobs, now_ms = self._database.jobs, self._clock.utc_ms()
            overdue = {of: one.jobs for of, one in overdue_of(jobs, now_ms).items()}
            stored = stats_of(jobs.newest_first())
            return by_time(stored, overdue, self._blocked(now_ms))

    def figures(self) -> list[FigureRow]:
        """See `Store.figures`."""
        uses: defaultdict[tuple[str, str], list[Use]] = defaultdict(list)
        with self._session.reading:
            for row in self._database.jobs.newest_first():
                if found := uses_of(row):
                    uses[row.new.kind, row.new.pool] += found
            published = self._newest_kinds()
        return [
            figures_of(kind, pool, uses[kind, pool], published.get(kind))
            for kind, pool in sorted(uses)
        ]

    def scaling(self) -> list[ScalingRow]:
        """See `Store.scaling`."""
        with self._session.reading:
            database = self._database
            return scaling_of(
                list(database.jobs.newest_first()),
                runs=database.runs.values(),
                waiting=self._waiting_rows(runnable_of(self._database.jobs)),
                schedules=database.schedules.values(),
                known=self._newest_kinds().keys(),
                stopped={(one.what, one.name) for one in self.pauses()},
                opened={
                    one.kind
                    for one, _ in database.breakers.values()
                    if one.state is BreakerState.OPEN
                },
                now_ms=self._clock.utc_ms(),
            )

    def depths(self) -> list[DepthRow]:
        """See `Store.depths`."""
        with self._session.reading:
            rows = self._database.jobs.newest_first()
            return depths_of(rows, self._clock.utc_ms())

    def tenant_depths(self, limit: int = 100) -> list[tuple[str, str, int]]:
        """See `Store.tenant_depths`."""
        with self._session.reading:
            return tenant_depths_of(self._database.jobs.newest_first())[:limit]

    def samples(self) -> list[SampleRow]:
        """See `Store.samples`."""
        with self._session.reading:
            return samples_of(self._database.jobs.newest_first())

    def sketches(self, kind: str | None = None) -> list[SketchRow]:
        """See `Store.sketches`."""
        with self._session.reading:
            return [
                SketchRow(
                    week=key[0],
                    kind=key[1],
                    pool=key[2],
                    measure=Measure(key[3]),
                    bucket=key[4],
                    attempts=counts.attempts,
                    censored=counts.censored,
                )
                for key, counts in sorted(self._database.sketches.items())
                if kind is None or key[1] == kind
            ]

    def run_reports(self) -> list[ReportRow]:
        """See `Store.run_reports`."""
        with self._session.reading:
            reports = self._database.reports
            runs = sorted(
                (
                    run
                    for run in self._database.runs.values()
                    if run.ended_at_ms is None
                ),
                key=lambda run: (run.started_at_ms, run.id),
            )
            return [
                ReportRow(run.id, run.host, run.pid, *found)
                for run in runs
                if (found := reports.get(run.id)) is not None
            ]

    def load(self) -> StoreReport:
        """See `Store.load`."""
        return StoreReport()

    def sample_waits(self, over_s: float) -> bool:
        """See `Store.sample_waits`."""
        database, now_ms = self._database, self._clock.utc_ms()
        with self._session.reading:
            last_ms = database.waits_sampled.get("", 0)
            is_turn = not 0 <= now_ms - last_ms < round(over_s * 1000)
            if not is_turn or not (rows := self.waiting()):
                return False
            found = self._causes(rows, over_s)
        slot_ms = now_ms // WAITS_SLOT_MS * WAITS_SLOT_MS
        with self._session.writing:
            database.put(database.waits_sampled, "", now_ms)
            for row in found:
                key = (slot_ms, row.kind, row.pool, row.cause)
                before_s = database.waits.get(key) or 0.0
                database.put(database.waits, key, before_s + row.job_s)
            for key in list(database.waits.keys()):
                if key[0] < now_ms - WAITS_KEPT_MS:
                    database.put(database.waits, key, None)
        return True

    def causes(self, waiting: Sequence[WaitingRow]) -> list[WaitRow]:
        """See `Store.causes`."""
        with self._session.reading:
            return self._causes(waiting, 1.0)

    def _causes(self, waiting: Sequence[WaitingRow], over_s: float) -> list[WaitRow]:
        given = [
            Waiting(row.kind, row.pool, row.jobs, row.known, row.paused)
            for row in waiting
        ]
        reports = [row.report for row in self.run_reports()]
        held = self._held_by_cause(self._clock.utc_ms())
        return waits_of(given, held, reports, over_s)

    def waits(self, over_s: float) -> list[WaitRow]:
        """See `Store.waits`."""
        sums: Counter[tuple[str, str, str]] = Counter()
        with self._session.reading:
            from_ms = self._clock.utc_ms() - round(over_s * 1000)
            for (slot_ms, *place), job_s in self._database.waits.items():
                if slot_ms >= from_ms:
                    sums[tuple(place)] += job_s  # type: ignore[index, assignment]
        rows = [WaitRow(*place, job_s) for place, job_s in sums.items()]
        return sorted(rows, key=lambda row: (-row.job_s, *row[:3]))

    def oldest_due(self, kinds: Mapping[str, Sequence[str]]) -> dict[str, float]:
        """See `Store.oldest_due`."""
        with self._session.reading:
            now_ms = self._clock.utc_ms()
            claim = Claim(self._database, now_ms)
            jobs, oldest = self._database.jobs, {}
            for pool, names in kinds.items():
                laned = claim.laned(pool, set(names))
                times_ms = [
                    oldest_ms(queue)
                    for kind in set(names) - laned
                    if (queue := jobs.runnable.get((pool, kind)))
                ]
                heads = claim.heads(pool, laned, frozenset(), LANES, 0) if laned else ()
                times_ms += [oldest_ms(one.lane.jobs) for one in heads]
                oldest[pool] = max(0, now_ms - min(times_ms, default=now_ms)) / 1000
        return oldest

    def waiting(self) -> list[WaitingRow]:
        """See `Store.waiting`."""
        with self._session.reading:
            jobs = self._database.jobs
            found = runnable_of(jobs)
            for of, more in overdue_of(jobs, self._clock.utc_ms()).items():
                found[of] = found[of].plus(more) if of in found else more
            return self._waiting_rows(found)

    def _waiting_rows(self, due: Mapping[tuple[str, str], Due]) -> list[WaitingRow]:
        now_ms = self._clock.utc_ms()
        pauses = self._database.paused(now_ms)
        known = {kind for kind, _ in self._database.kinds}
        blocked = self._blocked(now_ms)
        return [
            WaitingRow(
                pool=pool,
                kind=kind,
                jobs=one.jobs,
                oldest_age_s=max(0, now_ms - one.oldest_ms) / 1000,
                known=kind in known,
                paused=any(
                    what in pauses
                    for what in (("kind", kind), ("pool", pool), STORE_PAUSE)
                ),
                blocked=blocked[pool, kind],
            )
            for (pool, kind), one in sorted(due.items())
        ]

    def kinds(self) -> list[KindRecord]:
        """See `Store.kinds`."""
        with self._session.reading:
            newest = self._newest_kinds()
            names = {
                record.kind: record.at_most_once
                for record in self._database.kinds.values()
                if record.at_most_once
            }
        return [
            msgspec.structs.replace(newest[kind], at_most_once=names.get(kind, ()))
            for kind in sorted(newest)
        ]

    def paused(self) -> list[tuple[str, str]]:
        """See `Store.paused`."""
        return [(pause.what, pause.name) for pause in self.pauses()]

    def pauses(self) -> list[PauseRow]:
        """See `Store.pauses`."""
        with self._session.reading:
            found = self._database.paused(self._clock.utc_ms())
        return [pause for _, pause in sorted(found.items(), key=lambda one: one[0])]

    def _newest_kinds(self) -> dict[str, KindRecord]:
        """Return the newest published record of every kind."""
        newest: dict[str, KindRecord] = {}
        for (kind, _), record in sorted(self._database.kinds.items(), key=_by_run):
            rival = newest.get(kind)
            if rival is None or record.updated_at_ms > rival.updated_at_ms:
                newest[kind] = record
        return newest

    def _shown(self, row: Row) -> Job:
        held = row.held
        run = None if held is None else self._database.runs.get(held.run_id)
        jobs, shared = self._database.jobs, row.shared
        shown = job_from(
            row,
            None if run is None else run.lease_until_ms,
            follows=jobs.by_unique.get((row.new.kind, shared.text))
            if shared is not None and shared.waits
            else None,
            followed_by=jobs.waiting.get((row.new.kind, row.new.unique or ""))
            if row.finished_at_ms is None
            else None,
        )
        return msgspec.structs.replace(
            shown,
            unfit_since_ms=self._unfit_since_ms(row.id),
            ref=ref_of(row.id, self._database.ref_key),
        )

    def _matching(self, which: Filter, before_id: int | None = None) -> Iterator[Row]:
        """Yield the jobs of a filter, newest id first."""
        jobs = self._database.jobs
        if which.ids is None:
            rows: Iterator[Row] = jobs.newest_first()
        else:
            known = map(jobs.get, sorted(set(which.ids), reverse=True))
            rows = (row for row in known if row is not None)
        if which.flow is not None:
            flow = self._database.flows.get(which.flow)
            steps = range(0) if flow is None else flow.steps
            rows = (row for row in rows if row.step in steps)
        return (
            row
            for row in rows
            if (before_id is None or row.id < before_id) and is_meant(row, which)
        )


_EVERYTHING = Filter()


def _by_run(published: tuple[tuple[str, str], KindRecord]) -> tuple[str, str]:
    return published[0]


def _since(row: Row) -> tuple[bool, int, int]:
    """Order leased jobs: those that run for longest first."""
    at_ms = row.begun.started_at_ms
    return at_ms is None, at_ms or 0, row.id
