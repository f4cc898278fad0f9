"""Supervisors' runs and the kinds that they publish; pruning of old rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import msgspec

from jobpool.core.config.settings import Retention
from jobpool.core.formats import TOO_OLD
from jobpool.core.jobs.job import JobState
from jobpool.core.rules.repairs.restoring import TOKEN_BITS
from jobpool.core.rules.run_report import RunReport
from jobpool.core.rules.usage.sketch import WEEKS_KEPT, week_of
from jobpool.errors import (
    JobpoolBug,
    StoreRefused,
    StoreWentBack,
    UsageError,
)
from jobpool.store.contract.watermark import Mark, RunPosition, Watermark
from jobpool.store.operations.flows.pruning import (
    EVER_MS,
    Searched,
    old_flows,
    prune_flows,
)
from jobpool.store.operations.flows.rows import Contested
from jobpool.store.operations.quotas.in_force import Governing, change_rules
from jobpool.store.operations.quotas.setting import forget_quotas
from jobpool.store.operations.repair import Repairing
from jobpool.store.operations.schedules.ticks import forget_ticks
from jobpool.store.records.reading import SketchRow
from jobpool.store.records.runs import Formats, KindRecord, Renewal, Run
from jobpool.store.statements.formats import below, format_from, held_back
from jobpool.store.statements.limits import encoded_limits, encoded_needs
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.rows import run_from
from jobpool.store.statements.session import Database, Row, Session
from jobpool.store.statements.validation import ID_MAX, KIB, clean_text

_RUN_KEPT_MS = 86_400_000
"""An ended run is kept for a day."""
_KINDS_KEPT_MS = 600_000
"""Its kinds are not: a run that dies within seconds has published all of them, too."""
GONE_S = 60.0
"""An idle run whose lease ran out this long ago holds no feature back."""


class RunKeeping(Governing, Repairing):
    """The part of the store that tracks supervisors, and prunes."""

    _database: Database
    _LOCK_RUN: ClassVar[str | None] = None
    """The query that blocks new leases of a run, where there are other writers."""
    _LOCK_FORMATS: ClassVar[str | None] = None
    """The query that keeps runs from beginning, where there are other writers."""
    _END_GONE: ClassVar[str]
    """The query that ends them, where `_LOCK_GONE` is given."""
    _LOCK_GONE: ClassVar[str | None] = None
    """The query that keeps lapsed runs from renewing, where leases expire by time."""
    _DELETIONS: ClassVar[tuple[str, ...]]
    """The queries that delete jobs with everything that belongs to them, in order."""
    _CONTESTED: ClassVar[Contested | None]
    _LEFT_OVER: ClassVar[tuple[str, ...]] = ()
    """Queries that delete leftovers of ended leases whose jobs still exist."""
    _searched = Searched()

    def begin_run(self, run: Run, kinds: Sequence[KindRecord], ttl_s: float) -> None:
        """See `Store.begin_run`."""
        rows = [
            (
                kind.kind,
                kind.pool,
                clean_text(kind.schema.decode("utf-8", "replace")),
                kind.timeout_s,
                kind.memory_bytes,
                kind.max_attempts,
                kind.max_crashes,
                kind.schema_digest,
                as_json(kind.at_most_once) if kind.at_most_once else None,
                encoded_needs(kind.needs),
            )
            for kind in {kind.kind: kind for kind in kinds}.values()
        ]
        with self._database.writing() as session, self._publishing(session):
            now_ms = self._database.now_ms(session)
            if run.format < format_from(session.value("format_of_runs")):
                raise StoreRefused(f"{session.place}: {TOO_OLD}")
            begun = session.rows(
                "begin_run",
                id=run.id,
                host=clean_text(run.host),
                boot_id=run.boot_id,
                pid=run.pid,
                pid_namespace=run.pid_namespace,
                version=run.version,
                format=run.format,
                application=clean_text(run.application),
                app_version=clean_text(run.app_version),
                pools=msgspec.json.encode(run.pools).decode(),
                now_ms=now_ms,
                lease_until_ms=now_ms + round(ttl_s * 1000),
            )
            if not begun:
                raise UsageError(
                    f"run {run.id} has ended and cannot begin again; every start "
                    "needs a fresh id"
                )
            session.run("withdraw_kinds", run_id=run.id)
            session.run(
                "publish_kinds", run_id=run.id, rows=as_json(rows), now_ms=now_ms
            )
            session.run(
                "publish_limits", run_id=run.id, limits=encoded_limits(run.limits)
            )
            session.run("wake_misfits", run_id=run.id, now_ms=now_ms)
        if run.limits.is_asking or any(kind.needs for kind in kinds):
            self._ask_for_quotas()

    def confirm(self, known: Watermark) -> None:
        """See `Store.confirm`."""
        mark = known.mark()
        with self._database.reading() as session:
            self._compare(session, mark)

    def _compare(self, session: Session, mark: Mark) -> None:
        """Raise if the store holds less than a run knew before the session began."""
        found = session.rows("run_position", run_id=mark.known.run_id)
        mark.compare(position_from(*found[0]) if found else None, session.place)

    def renew(
        self,
        run_id: str,
        ttl_s: float,
        *,
        anew: bool = False,
        known: Watermark | None = None,
    ) -> Renewal:
        """See `Store.renew`."""
        mark = None if known is None else known.mark()
        with self._database.writing() as session:
            if mark is not None:
                self._compare(session, mark)
            found = session.rows("lease_until", run_id=run_id)
            if not found:
                has_ended(session, run_id)  # Refuses a run that is unknown here.
                return Renewal.ENDED
            ((until, is_outdated),) = found
            until_ms = _moment(until)
            now_ms = self._database.now_ms(session, fresh=True)
            is_held = until_ms > now_ms
            if is_held or anew:
                until_ms = now_ms + round(ttl_s * 1000)
            renewals: int = session.value(
                "renew", run_id=run_id, now_ms=now_ms, lease_until_ms=until_ms
            )
        if known is not None:
            known.renewals = renewals
        return renewal(is_held=is_held, anew=anew, is_outdated=bool(is_outdated))

    def end_run(self, run_id: str) -> None:
        """See `Store.end_run`."""
        with self._database.writing() as session:
            if self._LOCK_RUN:
                session.rows(self._LOCK_RUN, run_id=run_id)
            if session.value("count_leases", run_id=run_id):
                self._readable_leases(session, run_id)
            if held := session.value("count_leases", run_id=run_id):
                raise JobpoolBug(
                    f"run {run_id} ends while it holds {held} leases; settle them "
                    "first. Please report this"
                )
            now_ms = self._database.now_ms(session)
            with self._publishing(session):
                session.run("end_run", run_id=run_id, now_ms=now_ms)

    def require(self, wanted: int) -> None:
        """See `Store.require`."""
        with self._database.writing() as session:
            session.run("want_format", wanted=wanted)
            behind = below(self._grant_format(session), wanted)
        if behind:  # Outside: the wish is committed.
            raise held_back(behind, wanted)

    def grant_format(self) -> None:
        """See `Store.grant_format`."""
        with self._database.reading() as session:
            least, wanted = _formats(session)
        if wanted > least:
            with self._database.writing() as session:
                self._grant_format(session)

    def _grant_format(self, session: Session) -> list[Run]:
        """Raise the least format as far as open runs allow, at most to the wanted one.

        Runs that begin at the same time wait: whichever transaction locks the formats
        second sees what the other has done.

        Returns:
            The open runs that are below the wanted one.
        """
        if self._LOCK_FORMATS:
            session.rows(self._LOCK_FORMATS)
        least, wanted = _formats(session)
        if wanted <= least:
            return []
        now_ms = self._database.now_ms(session, fresh=True)
        gone: set[str] = set()
        if self._LOCK_GONE:
            before_ms = now_ms - round(GONE_S * 1000)
            found = session.rows(self._LOCK_GONE, wanted=wanted, before_ms=before_ms)
            gone = {run_id for (run_id,) in found}
        runs = [run for run in _open_runs(session, now_ms) if run.id not in gone]
        granted = granted_format(wanted, runs)
        if granted > least:
            session.run("grant_format", granted=granted)
            change_rules(session)
            if gone:
                ids = as_json(sorted(gone))
                session.run(self._END_GONE, ids=ids, now_ms=now_ms)
        return below(runs, wanted)

    def formats(self) -> Formats:
        """See `Store.formats`."""
        with self._database.reading() as session:
            least, wanted = _formats(session)
            behind: list[Run] = []
            if wanted > least:
                runs = _open_runs(session, self._database.now_ms(session))
                behind = below(runs, wanted)
        return Formats(least=least, wanted=wanted, held_back_by=tuple(behind))

    def open_runs(self) -> list[Run]:
        """See `Store.open_runs`."""
        with self._database.reading() as session:
            return _open_runs(session, self._database.now_ms(session))

    def expired_runs(self) -> list[Run]:
        """See `Store.expired_runs`."""
        with self._database.reading() as session:
            now_ms = self._database.now_ms(session)
            rows = session.rows("expired_runs", now_ms=now_ms)
        return [run for row in rows if (run := run_from(row, now_ms))]

    def seize(
        self, run_id: str, *, by: str | None = None, lapsed_s: float = 0.0
    ) -> bool:
        """See `Store.seize`."""
        with self._database.writing() as session:
            found = session.rows("seize", run_id=run_id, by=by)
            if not found:
                return False
            until_ms, own_until_ms = map(_moment, found[0])
            now_ms = self._database.now_ms(session)
            is_holding = by is None or own_until_ms > now_ms
            return is_holding and until_ms + round(lapsed_s * 1000) <= now_ms

    def cancel_requests(self, run_id: str) -> list[int]:
        """See `Store.cancel_requests`."""
        with self._database.reading() as session:
            rows = session.rows("cancel_requests", run_id=run_id)
        return [token for (token,) in rows if isinstance(token, int)]

    def put_report(self, run_id: str, report: RunReport) -> None:
        """See `Store.put_report`."""
        text = clean_text(msgspec.json.encode(report).decode())
        with self._database.writing() as session:
            now_ms = self._database.now_ms(session)
            session.run("put_report", run_id=run_id, now_ms=now_ms, report=text)

    def add_sketches(self, rows: Sequence[SketchRow]) -> None:
        """See `Store.add_sketches`."""
        if not rows:
            return
        added = [
            (
                *(clean_text(one.kind), clean_text(one.pool), one.measure),
                *(one.bucket, one.attempts, one.censored),
            )
            for one in rows
        ]
        with self._database.writing() as session:
            week = week_of(self._database.now_ms(session))
            session.run("add_sketches", rows=as_json(added), week=week)
            session.run("prune_sketches", before_week=week - WEEKS_KEPT)

    def prune(self, retention: Retention, limit: int = 1000) -> int:
        """See `Store.prune`."""
        with self._database.writing() as session:
            now_ms = self._database.now_ms(session)
            before = self._searched.at(now_ms)
            old, searched = _old_jobs(session, retention, now_ms, limit, before)
            if old:
                used = set(session.rows("completed_in_use", ids=as_json(old)))
                old = [job_id for job_id in old if (job_id,) not in used]
                searched = before if used else searched
            if old:
                ids = as_json(old)
                forget_ticks(session, ids)
                for name in self._DELETIONS:
                    session.run(name, ids=ids)
            pruned = prune_flows(
                session,
                retention,
                now_ms,
                limit,
                contested=self._CONTESTED,
                deletions=self._DELETIONS,
            )
            for name in self._LEFT_OVER:
                session.run(name)
            if retention.audit_s is not None:
                before_ms = now_ms - round(retention.audit_s * 1000)
                session.run("prune_audit", before_ms=before_ms, limit=limit)
            if retention.canceled_s is not None:
                before_ms = now_ms - round(retention.canceled_s * 1000)
                session.run("prune_skipped", before_ms=before_ms, limit=limit)
            session.run("prune_pauses", now_ms=now_ms)
            forget_quotas(session, now_ms, self._current(session, now_ms).rules)
            for name in ("prune_suspects", "prune_misfits", "prune_running"):
                session.run(name)
            session.run("prune_kinds", before_ms=now_ms - _KINDS_KEPT_MS)
            session.run("prune_runs", before_ms=now_ms - _RUN_KEPT_MS)
            session.run("prune_reports")
        self._searched = searched
        return len(old) + pruned

    def prunable(self, retention: Retention) -> int:
        """See `Store.prunable`."""
        with self._database.reading() as session:
            now_ms, count = self._database.now_ms(session), 0
            for state in _OLD:
                kept_s: float | None = getattr(retention, f"{state}_s")
                kept: int | None = getattr(retention, f"{state}_count")
                before_ms = EVER_MS if kept_s is None else now_ms - round(kept_s * 1000)
                given = {"state": state, "before_ms": before_ms}
                ((every, old),) = session.rows("count_old", **given)
                count += max(old, 0 if kept is None else every - kept)
            flows = as_json(old_flows(session, retention, now_ms, ID_MAX))
            members: int = session.value("count_members", flows=flows)
        return count + members

    def drop_outputs(self, kept_bytes: int, limit: int = 1000) -> int:
        """See `Store.drop_outputs`."""
        with self._database.writing() as session:
            return session.run(
                "drop_outputs",
                kept_kib=-(-kept_bytes // KIB),
                limit=max(0, limit),
                now_ms=self._database.now_ms(session),
            )


def renewal(*, is_held: bool, anew: bool, is_outdated: bool) -> Renewal:
    """Return what became of a run's leases.

    Args:
        is_held: they had not run out.
        anew: they were extended in any case.
        is_outdated: the run's format is below the store's least.
    """
    if is_outdated and (is_held or anew):
        return Renewal.OUTDATED
    return Renewal.HELD if is_held else Renewal.LAPSED


def granted_format(wanted: int, runs: Iterable[Run]) -> int:
    """Return how far the least format can rise while these runs are open."""
    return min((wanted, *(run.format for run in runs)))


def _open_runs(session: Session, now_ms: int) -> list[Run]:
    rows = session.rows("open_runs")
    return [run for row in rows if (run := run_from(row, now_ms))]


def _formats(session: Session) -> tuple[int, int]:
    """Return the least format and the wanted one."""
    ((least, wanted),) = session.rows("formats")
    return format_from(least), format_from(wanted)


def position_from(renewals: Any, tokens: Any, restores: Any) -> RunPosition:
    """Return a row of run_position; what cannot be read shows nothing missing."""
    return RunPosition(
        renewals if isinstance(renewals, int) else ID_MAX,
        (tokens + 1 << TOKEN_BITS) - 1 if isinstance(tokens, int) else ID_MAX,
        restores if isinstance(restores, int) else 0,
    )


def _moment(value: object) -> int:
    """Return a moment from the database; 0 for a value that is not one."""
    return value if isinstance(value, int) else 0


_OLD = {
    JobState.SUCCEEDED: ("old_succeeded", "surplus_succeeded"),
    JobState.DEAD: ("old_dead", "surplus_dead"),
    JobState.QUARANTINED: ("old_quarantined", "surplus_quarantined"),
    JobState.CANCELED: ("old_canceled", "surplus_canceled"),
}
"""The queries for finished jobs over their age, and for those beyond the count."""


def _old_jobs(
    session: Session, retention: Retention, now_ms: int, limit: int, searched: Searched
) -> tuple[list[int], Searched]:
    """Find finished jobs to delete: older than kept, or beyond the count kept.

    Returns:
        The jobs, and up to where they were looked for.
    """
    old: list[int] = []
    for state, (by_age, by_count) in _OLD.items():
        room = limit - len(old)
        kept_s: float | None = getattr(retention, f"{state}_s")
        count: int | None = getattr(retention, f"{state}_count")
        aged: Sequence[Row] = ()
        if kept_s is not None and room > 0:
            before_ms = now_ms - round(kept_s * 1000)
            since_ms = searched.since_ms(state)
            given = {"since_ms": since_ms, "before_ms": before_ms}
            aged = session.rows(by_age, **given, limit=room)
            until_ms = aged[-1][1] if len(aged) == room else before_ms
            searched = searched.further(state, until_ms)
        surplus: Sequence[Row] = ()
        if count is not None and len(aged) < room:
            surplus = session.rows(by_count, count=count, limit=room)
        # Either are the oldest of their state: the longer list contains the other.
        old += [job_id for job_id, *_ in max(aged, surplus, key=len)]
    return old, searched


def has_ended(session: Session, run_id: str) -> bool:
    """Say whether a run has ended.

    Raises:
        StoreWentBack: the run is unknown: this is not the store in which it began.
    """
    found = session.rows("run_has_ended", run_id=run_id)
    return bool(known(session, run_id, found)[0])


def known(session: Session, run_id: str, found: Sequence[Row]) -> Row:
    """Return the one row that was found for a run.

    Raises:
        StoreWentBack: there is none.
    """
    if not found:
        raise StoreWentBack(
            f"the store {session.place} does not know run {run_id}: the database was "
            "recreated or restored while it ran; restart jobpool"
        )
    return found[0]
