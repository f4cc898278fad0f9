"""Supervisors' runs and the kinds that they publish; pruning of old rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from jobpool.core.clock import Clock
from jobpool.core.config.settings import Retention
from jobpool.core.formats import TOO_OLD
from jobpool.core.jobs.job import FINISHED, TIME_MAX_MS, JobState
from jobpool.core.rules.quotas.definition import Limits
from jobpool.core.rules.run_report import RunReport
from jobpool.core.rules.usage.sketch import WEEKS_KEPT, Counts, week_of
from jobpool.errors import JobpoolBug, StoreRefused, UsageError
from jobpool.store.contract.watermark import RunPosition, Watermark
from jobpool.store.memory.database import MemoryDatabase, Session
from jobpool.store.memory.flows.pruning import prunable_members, prune_flows
from jobpool.store.memory.lease import Leasing
from jobpool.store.memory.quotas.keeping import QuotaKeeping
from jobpool.store.memory.quotas.permits import PermitKeeping
from jobpool.store.memory.tables.ordered_set import id_of, time_of
from jobpool.store.operations.runs import GONE_S, granted_format, renewal
from jobpool.store.records.reading import SketchRow
from jobpool.store.records.runs import Formats, KindRecord, Renewal, Run
from jobpool.store.statements.formats import below, held_back
from jobpool.store.statements.validation import KIB, clean_text

_replace = msgspec.structs.replace
_RUN_KEPT_MS = 86_400_000
"""An ended run is kept for a day."""
_KINDS_KEPT_MS = 600_000


class RunKeeping(Leasing, QuotaKeeping, PermitKeeping):
    """The part of the store that tracks supervisors, and prunes."""

    _database: MemoryDatabase
    _session: Session
    _clock: Clock

    def begin_run(self, run: Run, kinds: Sequence[KindRecord], ttl_s: float) -> None:
        """See `Store.begin_run`."""
        with self._session.writing:
            now_ms = self._clock.utc_ms()
            if self._database.is_outdated(run):
                raise StoreRefused(f"{self._database.url}: {TOO_OLD}")
            known = self._database.runs.get(run.id)
            if known is not None and known.ended_at_ms is not None:
                raise UsageError(
                    f"run {run.id} has ended and cannot begin again; every start "
                    "needs a fresh id"
                )
            until_ms = now_ms + round(ttl_s * 1000)
            if known is not None:
                # A lease that has run out stays so: its next renewal must find out.
                is_out = known.lease_until_ms <= now_ms
                former_ms = known.lease_until_ms
                until_ms = former_ms if is_out else max(former_ms, until_ms)
            begun = _replace(
                run,
                host=clean_text(run.host),
                application=clean_text(run.application),
                app_version=clean_text(run.app_version),
                pools=dict(run.pools),
                started_at_ms=now_ms if known is None else known.started_at_ms,
                heartbeat_at_ms=now_ms,
                lease_until_ms=until_ms,
                ended_at_ms=None,
            )
            if known is None or known.app_version != begun.app_version:
                self._database.put(self._database.app_since, run.id, now_ms)
            former = self._published_limits(run.id)
            self._database.put(self._database.runs, run.id, begun)
            self._publish(run.id, kinds, now_ms)
            if former != self._published_limits(run.id):
                self._database.change_limits()
            self._ask_for_quotas(run, kinds)
            self._grant_format()
            self._wake_misfits(run.id, now_ms)

    def _publish(self, run_id: str, kinds: Sequence[KindRecord], now_ms: int) -> None:
        table = self._database.kinds
        for place in [place for place in table if place[1] == run_id]:
            self._database.put(table, place, None)
        for kind in kinds:
            schema = clean_text(kind.schema.decode("utf-8", "replace")) or ""
            published = _replace(
                kind,
                schema=schema.encode(),
                timeout_s=float(kind.timeout_s),
                updated_at_ms=now_ms,
            )
            self._database.put(table, (kind.kind, run_id), published)

    def _published_limits(self, run_id: str) -> object:
        """Return what an open run has published that quotas depend on."""
        run = self._database.runs.get(run_id)
        needs = sorted(
            (kind, record.needs)
            for (kind, by), record in self._database.kinds.items()
            if by == run_id and record.needs
        )
        if run is None or run.ended_at_ms is not None:
            return None
        if not needs and run.limits == Limits():
            return None
        return run.limits, needs, run.app_version

    def confirm(self, known: Watermark) -> None:
        """See `Store.confirm`."""
        with self._session.reading:
            database = self._database
            run = database.runs.get(known.run_id)
            known.mark().compare(
                None
                if run is None
                else RunPosition(
                    database.renewals.get(run.id, 0),
                    database.last_token,
                    database.restores,
                ),
                database.url,
            )

    def renew(
        self,
        run_id: str,
        ttl_s: float,
        *,
        anew: bool = False,
        known: Watermark | None = None,
    ) -> Renewal:
        """See `Store.renew`."""
        with self._session.writing:
            if known is not None:
                self.confirm(known)
            run = self._known_run(run_id)
            if run.ended_at_ms is not None:
                return Renewal.ENDED
            now_ms = self._clock.utc_ms()
            is_held = run.lease_until_ms > now_ms
            until_ms = run.lease_until_ms
            if is_held or anew:
                until_ms = now_ms + round(ttl_s * 1000)
            renewals = self._database.renewals.get(run_id, 0) + 1
            self._database.put(self._database.renewals, run_id, renewals)
            renewed = _replace(run, heartbeat_at_ms=now_ms, lease_until_ms=until_ms)
            self._database.put(self._database.runs, run_id, renewed)
            is_outdated = self._database.is_outdated(run)
        if known is not None:
            known.renewals = renewals
        return renewal(is_held=is_held, anew=anew, is_outdated=is_outdated)

    def end_run(self, run_id: str) -> None:
        """See `Store.end_run`."""
        with self._session.writing:
            if held := self._database.jobs.held.get(run_id):
                raise JobpoolBug(
                    f"run {run_id} ends while it holds {len(held)} leases; settle them "
                    "first. Please report this"
                )
            run = self._database.runs.get(run_id)
            if run is not None and run.ended_at_ms is None:
                if self._published_limits(run_id) is not None:
                    self._database.change_limits()
                ended = _replace(run, ended_at_ms=self._clock.utc_ms())
                self._database.put(self._database.runs, run_id, ended)
                for token in self._database.permits.tokens_of(run_id):
                    self._end_permits(token)

    def require(self, wanted: int) -> None:
        """See `Store.require`."""
        with self._session.writing:
            self._database.want_format(wanted)
            behind = below(self._grant_format(), wanted)
        if behind:
            raise held_back(behind, wanted)

    def grant_format(self) -> None:
        """See `Store.grant_format`."""
        database = self._database
        with self._session.reading:
            is_granted = database.wanted_format <= database.least_format
        if not is_granted:
            with self._session.writing:
                self._grant_format()

    def _grant_format(self) -> list[Run]:
        """Raise the least format as far as open runs allow; return those below."""
        wanted = self._database.wanted_format
        before_ms = self._clock.utc_ms() - round(GONE_S * 1000)
        held = self._database.jobs.held
        runs = [
            run
            for run in self._open_runs()
            if self.one_host or run.lease_until_ms >= before_ms or held.get(run.id)
        ]
        self._database.grant_format(granted_format(wanted, runs))
        return below(runs, wanted)

    def formats(self) -> Formats:
        """See `Store.formats`."""
        with self._session.reading:
            least, wanted = self._database.least_format, self._database.wanted_format
            behind = below(self._open_runs(), wanted) if wanted > least else ()
            return Formats(least=least, wanted=wanted, held_back_by=tuple(behind))

    def open_runs(self) -> list[Run]:
        """See `Store.open_runs`."""
        with self._session.reading:
            return self._open_runs()

    def expired_runs(self) -> list[Run]:
        """See `Store.expired_runs`."""
        with self._session.reading:
            now_ms = self._clock.utc_ms()
            held = self._database.jobs.held
            return [
                run
                for run in self._open_runs()
                if run.lease_until_ms <= now_ms and held.get(run.id)
            ]

    def _open_runs(self) -> list[Run]:
        leaving = self._database.leaving
        return sorted(
            (
                msgspec.structs.replace(run, is_leaving=True)
                if run.id in leaving
                else run
                for run in self._database.runs.values()
                if run.ended_at_ms is None
            ),
            key=lambda run: (run.started_at_ms, run.id),
        )

    def seize(
        self, run_id: str, *, by: str | None = None, lapsed_s: float = 0.0
    ) -> bool:
        """See `Store.seize`; the transaction's lock keeps others from renewing."""
        with self._session.writing:
            runs, now_ms = self._database.runs, self._clock.utc_ms()
            run = runs.get(run_id)
            if run is None or run.ended_at_ms is not None:
                return False
            if by is not None:
                own = runs.get(by)
                if own is None or own.lease_until_ms <= now_ms:
                    return False
            return run.lease_until_ms + round(lapsed_s * 1000) <= now_ms

    def cancel_requests(self, run_id: str) -> list[int]:
        """See `Store.cancel_requests`."""
        with self._session.reading:
            jobs = self._database.jobs
            asked = (jobs[job_id].held for job_id in jobs.stopping.get(run_id, ()))
            return sorted(held.token for held in asked if held is not None)

    def put_report(self, run_id: str, report: RunReport) -> None:
        """See `Store.put_report`."""
        with self._session.writing:
            found = self._clock.utc_ms(), report
            self._database.put(self._database.reports, run_id, found)

    def add_sketches(self, rows: Sequence[SketchRow]) -> None:
        """See `Store.add_sketches`."""
        table = self._database.sketches
        with self._session.writing:
            week = week_of(self._clock.utc_ms())
            for row in rows:
                kind, pool = clean_text(row.kind) or "", clean_text(row.pool) or ""
                key = (week, kind, pool, row.measure.value, row.bucket)
                known = table.get(key) or Counts(0)
                added = Counts(
                    known.attempts + row.attempts, known.censored + row.censored
                )
                self._database.put(table, key, added)
            for key in [key for key in table if key[0] < week - WEEKS_KEPT]:
                self._database.put(table, key, None)

    def prune(self, retention: Retention, limit: int = 1000) -> int:
        """See `Store.prune`."""
        with self._session.writing:
            now_ms = self._clock.utc_ms()
            count = 0
            for state in FINISHED:
                kept_s: float | None = getattr(retention, f"{state}_s")
                kept_count: int | None = getattr(retention, f"{state}_count")
                if kept_s is not None:
                    before_ms = now_ms - round(kept_s * 1000)
                    count += self._delete_old(state, before_ms, limit - count)
                if kept_count is not None:
                    surplus = len(self._database.jobs.finished[state]) - kept_count
                    most = min(limit - count, surplus)
                    count += self._delete_old(state, TIME_MAX_MS + 1, most)
            if retention.canceled_s is not None:
                before_ms = now_ms - round(retention.canceled_s * 1000)
                self._prune_skipped(before_ms, limit)
            if retention.audit_s is not None:
                self._prune_audit(now_ms - round(retention.audit_s * 1000), limit)
            for what in self._database.pauses.keys() - self._database.paused(now_ms):
                self._database.put(self._database.pauses, what, None)
            count += prune_flows(self._database, retention, now_ms, limit - count)
            self._forget_quotas(now_ms, now_ms - _RUN_KEPT_MS)
            self._prune_runs(now_ms)
            self._prune_suspects()
            self._prune_misfits()
            self._database.jobs.tidy()
        return count

    def prunable(self, retention: Retention) -> int:
        """See `Store.prunable`."""
        with self._session.reading:
            now_ms, count = self._clock.utc_ms(), 0
            for state in FINISHED:
                kept_s: float | None = getattr(retention, f"{state}_s")
                kept: int | None = getattr(retention, f"{state}_count")
                ended = self._database.jobs.finished[state]
                before_ms = 0 if kept_s is None else now_ms - round(kept_s * 1000)
                old = sum(time_of(rank) < before_ms for rank in ended)
                count += max(old, 0 if kept is None else len(ended) - kept)
            return count + prunable_members(self._database, retention, now_ms)

    def drop_outputs(self, kept_bytes: int, limit: int = 1000) -> int:
        """See `Store.drop_outputs`."""
        with self._session.writing:
            outputs, now_ms = self._database.outputs, self._clock.utc_ms()
            last = self._database.newest_output - -(-kept_bytes // KIB)
            old = sorted(
                (place, job_id)
                for job_id, (place, kept) in outputs.items()
                if place <= last and kept.output is not None
            )[: max(0, limit)]
            for place, job_id in old:
                _, kept = outputs[job_id]
                dropped = _replace(kept, output=None, dropped_at_ms=now_ms)
                self._database.put(outputs, job_id, (place, dropped))
        return len(old)

    def forget(self, ids: Iterable[int]) -> int:
        """Delete finished jobs now, whatever their retention; others stay.

        For a caller that has read their results and is the only one to need them.

        Returns:
            How many were deleted.
        """
        with self._session.writing:
            jobs, count = self._database.jobs, 0
            for job_id in ids:
                row = jobs.get(job_id)
                if row is not None and row.finished_at_ms is not None:
                    self._database.delete_job(job_id)
                    count += 1
        return count

    def _delete_old(self, state: JobState, before_ms: int, limit: int) -> int:
        jobs = self._database.jobs
        finished = jobs.finished[state]
        for count in range(max(0, limit)):
            rank = finished.first()
            if rank is None or time_of(rank) >= before_ms:
                return count
            self._database.delete_job(id_of(rank))
        return max(0, limit)

    def _prune_skipped(self, before_ms: int, limit: int) -> None:
        ticks = self._database.ticks
        old = [
            one for one in ticks.skipped(before_ms) if one != ticks.last(one.schedule)
        ]
        for tick in old[: max(0, limit)]:
            self._database.put(ticks, tick.id, None)

    def _prune_audit(self, before_ms: int, limit: int) -> None:
        audits = self._database.audits
        old = (row.id for row in audits.values() if row.at_ms < before_ms)
        for audit_id in sorted(old)[: max(0, limit)]:
            self._database.put(audits, audit_id, None)

    def _prune_runs(self, now_ms: int) -> None:
        """Delete runs that ended long ago, once others have published their kinds."""
        runs, kinds = self._database.runs, self._database.kinds
        ended = {
            run.id: run.ended_at_ms
            for run in runs.values()
            if run.ended_at_ms is not None and run.ended_at_ms < now_ms - _KINDS_KEPT_MS
        }
        for run_id in self._database.reports.keys() - {
            run.id for run in runs.values() if run.ended_at_ms is None
        }:
            self._database.put(self._database.reports, run_id, None)
        if not ended:
            return
        newest_ms: dict[str, int] = {}
        for (kind, _), record in kinds.items():
            newest_ms[kind] = max(newest_ms.get(kind, 0), record.updated_at_ms)
        for (kind, run_id), record in list(kinds.items()):
            if run_id in ended and record.updated_at_ms < newest_ms[kind]:
                self._database.put(kinds, (kind, run_id), None)
        publishers = {run_id for _, run_id in kinds}
        before_ms = now_ms - _RUN_KEPT_MS
        old = {run_id for run_id, at_ms in ended.items() if at_ms < before_ms}
        for run_id in old - publishers:
            self._database.put(self._database.renewals, run_id, None)
            self._database.put(runs, run_id, None)
            self._database.put(self._database.app_since, run_id, None)
            if run_id in self._database.leaving:
                self._database.put(self._database.leaving, run_id, None)
            if run_id in self._database.deaths:
                self._database.put(self._database.deaths, run_id, None)

    def _prune_suspects(self) -> None:
        """Forget suspects that were deleted, or ended without an attempt."""
        jobs, suspects = self._database.jobs, self._database.suspects
        for job_id in list(suspects):
            row = jobs.get(job_id)
            if row is None or row.finished_at_ms is not None:
                self._database.put(suspects, job_id, None)
