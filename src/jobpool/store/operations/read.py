"""Reads for people and programs: jobs, attempts, counts, figures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from jobpool.core.jobs.job import FINISHED, TIME_MAX_MS, Attempt, Job, JobState
from jobpool.core.jobs.ref import id_of, ref_of
from jobpool.core.rules.run_report import ReportRow, RunReport, StoreReport
from jobpool.core.rules.waits import (
    WAITS_KEPT_MS,
    WAITS_SLOT_MS,
    Waiting,
    WaitRow,
    waits_of,
)
from jobpool.store.operations.quotas.reading import QuotaReading
from jobpool.store.operations.quotas.view import LANES
from jobpool.store.records.jobs import KeptOutput
from jobpool.store.records.operating import Filter, PauseRow
from jobpool.store.records.reading import (
    FAILED_MAX,
    MINUTE_MS,
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
from jobpool.store.statements.integrity import PAUSE, is_valid
from jobpool.store.statements.limits import decoded
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.rows import attempt_from, job_from, kind_from, records
from jobpool.store.statements.session import Database, Session
from jobpool.store.statements.validation import ID_MAX, clean_text, storable

_STEPS = 100
"""So many priorities of a kind are searched for the oldest job."""
_REF_KEY = ("ref_key_high", "ref_key_low")
"""The counters that hold the halves of the key for refs."""


class Reading(QuotaReading):
    """The part of the store that only reads."""

    _database: Database
    _known_ref_key: bytes | None = None

    def get(self, job_id: int, connection: Any = None) -> Job | None:
        """See `Store.get`."""
        with self._seen_by(connection) as session:
            rows = session.rows("get_job", id=storable(job_id))
            key = self._ref_key(session) if rows else None
        return job_from(rows[0], key) if rows else None

    def id_of(self, ref: str, connection: Any = None) -> int | None:
        """See `Store.id_of`."""
        with self._seen_by(connection) as session:
            key = self._ref_key(session)
        return None if key is None else id_of(ref, key)

    def ref_of(self, job_id: int) -> str:
        """See `Store.ref_of`."""
        with self._database.reading() as session:
            key = self._ref_key(session)
        return "" if key is None else ref_of(job_id, key)

    def _seen_by(self, connection: Any) -> AbstractContextManager[Session]:
        """Read as a caller's transaction sees the store; None: as everybody does."""
        if connection is None:
            return self._database.reading()
        return self._joined(connection)

    @abstractmethod
    def _joined(self, connection: Any) -> AbstractContextManager[Session]:
        """Use a caller's connection, within its transaction."""

    def trace_key(self) -> bytes:
        """See `Store.trace_key`; empty if a hand has damaged it."""
        with self._database.reading() as session:
            return self._ref_key(session) or b""

    def _ref_key(self, session: Session) -> bytes | None:
        """Return the store's key for refs; None: a hand has damaged it."""
        if self._known_ref_key is None:
            halves = [session.value("counter", name=name) for name in _REF_KEY]
            if all(isinstance(half, int) for half in halves):
                self._known_ref_key = b"".join(
                    half.to_bytes(8, "big", signed=True) for half in halves
                )
        return self._known_ref_key

    def payload(self, job_id: int, connection: Any = None) -> bytes | None:
        """See `Store.payload`."""
        with self._seen_by(connection) as session:
            payload = session.value("get_payload", id=storable(job_id))
        return payload if isinstance(payload, bytes) else None

    def trace(self, job_id: int) -> str | None:
        """See `Store.trace`."""
        with self._database.reading() as session:
            trace = session.value("get_trace", id=storable(job_id))
        return trace if isinstance(trace, str) else None

    def attempts(self, job_id: int) -> list[Attempt]:
        """See `Store.attempts`."""
        with self._database.reading() as session:
            rows = session.rows("get_attempts", id=storable(job_id))
        return [attempt_from(row) for row in rows]

    def output(self, job_id: int) -> str | None:
        """See `Store.output`."""
        with self._database.reading() as session:
            output: str | None = session.value("get_output", id=storable(job_id))
        return output

    def kept_output(self, job_id: int) -> KeptOutput | None:
        """See `Store.kept_output`."""
        with self._database.reading() as session:
            rows = session.rows("get_kept_output", id=storable(job_id))
        return KeptOutput(*rows[0]) if rows else None

    def find(
        self,
        which: Filter,
        limit: int = 100,
        before_id: int | None = None,
        after_id: int | None = None,
    ) -> list[Job]:
        """See `Store.find`."""
        with self._database.reading() as session:
            parameters = _parameters(session, which, before_id, after_id)
            rows = session.rows("find_jobs", limit=limit, **parameters)
            key = self._ref_key(session)
        return [job_from(row, key) for row in rows]

    def look(
        self,
        which: Filter,
        limit: int,
        before: Spot | None = None,
        window: int = 1000,
    ) -> Looked:
        """See `Store.look`."""
        with self._database.reading() as session:
            given = _parameters(session, which)
            del given["first_id"], given["last_id"]
            spots = _spots(session, which, given.pop("ids"), before, window)
            ids = as_json([spot.id for spot in spots])
            meant = {one for (one,) in session.rows("look_matching", ids=ids, **given)}
            found = [spot for spot in spots if spot.id in meant]
            is_over = len(spots) < window and len(found) <= limit
            last = found[limit - 1] if len(found) >= limit else None
            ids = as_json([spot.id for spot in found[:limit]])
            rows = session.rows("look_records", ids=ids) if found else ()
            key = self._ref_key(session)
        jobs = {row[0]: job_from(row, key) for row in rows}
        return Looked(
            jobs=tuple(jobs[spot.id] for spot in found[:limit] if spot.id in jobs),
            spot=None if is_over else last or spots[-1],
        )

    def tally(self, most: int) -> dict[str, int]:
        """See `Store.tally`."""
        with self._database.reading() as session:
            return dict(session.rows("look_tally", most=most))

    def count(self, which: Filter) -> int:
        """See `Store.count`."""
        with self._database.reading() as session:
            found: int = session.value("count_jobs", **_parameters(session, which))
        return found

    def leased(self, limit: int = 1000) -> list[Job]:
        """See `Store.leased`."""
        with self._database.reading() as session:
            rows = session.rows("leased_jobs", limit=limit)
            key = self._ref_key(session)
        return [job_from(row, key) for row in rows]

    def ends(self, limit: int = 100) -> list[EndRow]:
        """See `Store.ends`."""
        with self._database.reading() as session:
            return records(EndRow, session.rows("last_ends", limit=limit))

    def minutes(self, since_ms: int) -> list[MinuteRow]:
        """See `Store.minutes`."""
        with self._database.reading() as session:
            rows = session.rows(
                "ended_by_minute",
                since_ms=since_ms // MINUTE_MS * MINUTE_MS,
                failed_max=FAILED_MAX,
            )
        return records(MinuteRow, (tuple(map(int, row)) for row in rows))

    def groups(self, which: Filter) -> list[GroupRow]:
        """See `Store.groups`."""
        with self._database.reading() as session:
            return records(
                GroupRow, session.rows("group_jobs", **_parameters(session, which))
            )

    def stats(self) -> list[StatRow]:
        """See `Store.stats`."""
        with self._database.reading() as session:
            rows = session.rows("get_stats")
            found = session.rows("get_overdue", now_ms=self._database.now_ms(session))
            blocked = self._blocked(session)
        overdue = {(pool, kind): jobs for pool, kind, jobs in found}
        return by_time(records(StatRow, ((*row, 0) for row in rows)), overdue, blocked)

    def figures(self) -> list[FigureRow]:
        """See `Store.figures`."""
        with self._database.reading() as session:
            return records(FigureRow, session.rows("get_figures"))

    def sketches(self, kind: str | None = None) -> list[SketchRow]:
        """See `Store.sketches`."""
        if clean_text(kind) != kind:
            return []  # no kind can have such a name
        with self._database.reading() as session:
            return records(SketchRow, session.rows("get_sketches", kind=kind))

    def scaling(self) -> list[ScalingRow]:
        """See `Store.scaling`."""
        with self._database.reading() as session:
            return records(ScalingRow, session.rows("get_scaling"))

    def depths(self) -> list[DepthRow]:
        """See `Store.depths`."""
        with self._database.reading() as session:
            now_ms = self._database.now_ms(session)
            return records(DepthRow, session.rows("get_depths", now_ms=now_ms))

    def tenant_depths(self, limit: int = 100) -> list[tuple[str, str, int]]:
        """See `Store.tenant_depths`."""
        with self._database.reading() as session:
            rows = session.rows("get_tenant_depths", limit=limit)
        return [(tenant, state, jobs) for tenant, state, jobs in rows]

    def open_flows(self) -> dict[str, int]:
        """See `Store.open_flows`."""
        with self._database.reading() as session:
            return dict(session.rows("count_open_flows"))

    def samples(self) -> list[SampleRow]:
        """See `Store.samples`."""
        with self._database.reading() as session:
            return records(SampleRow, session.rows("get_samples"))

    def run_reports(self) -> list[ReportRow]:
        """See `Store.run_reports`."""
        with self._database.reading() as session:
            rows = session.rows("get_reports")
        return [
            ReportRow(run_id, host, pid, at_ms, report)
            for run_id, host, pid, at_ms, text in rows
            if (report := decoded(text, RunReport)) is not None
        ]

    def load(self) -> StoreReport:
        """See `Store.load`."""
        return StoreReport()

    def sample_waits(self, over_s: float) -> bool:
        """See `Store.sample_waits`."""
        over_ms = round(over_s * 1000)
        with self._database.reading() as session:
            now_ms = self._database.now_ms(session)
            last_ms = session.value("counter", name="waits_sampled_ms")
        if 0 <= now_ms - (last_ms or 0) < over_ms or not (rows := self.waiting()):
            return False
        found = [list(row) for row in self._causes(rows, over_s)]
        with self._database.writing() as session:
            before_ms = now_ms - over_ms
            if not session.run("take_waits_turn", now_ms=now_ms, before_ms=before_ms):
                return False
            slot_ms = now_ms // WAITS_SLOT_MS * WAITS_SLOT_MS
            session.run("add_waits", slot_ms=slot_ms, rows=as_json(found))
            session.run("prune_waits", before_ms=now_ms - WAITS_KEPT_MS)
        return True

    def causes(self, waiting: Sequence[WaitingRow]) -> list[WaitRow]:
        """See `Store.causes`."""
        return self._causes(waiting, 1.0)

    def _causes(self, waiting: Sequence[WaitingRow], over_s: float) -> list[WaitRow]:
        with self._database.reading() as session:
            held = self._held_by_cause(session)
        given = [
            Waiting(row.kind, row.pool, row.jobs, row.known, row.paused)
            for row in waiting
        ]
        reports = [row.report for row in self.run_reports()]
        return waits_of(given, held, reports, over_s)

    def waits(self, over_s: float) -> list[WaitRow]:
        """See `Store.waits`."""
        with self._database.reading() as session:
            from_ms = self._database.now_ms(session) - round(over_s * 1000)
            rows = session.rows("get_waits", from_ms=from_ms)
        return [WaitRow(*row) for row in rows]

    def oldest_due(self, kinds: Mapping[str, Sequence[str]]) -> dict[str, float]:
        """See `Store.oldest_due`."""
        oldest: dict[str, float] = {}
        with self._database.reading() as session:
            now_ms = self._database.now_ms(session)
            rules = self._current(session, now_ms).rules
            for pool, names in kinds.items():
                laned = [kind for kind in names if rules.is_laned(pool, kind)]
                given = {"pool": pool, "now_ms": now_ms}
                ages_ms = [
                    session.rows(
                        "waiting_of", **given, kind=kind, most=1, steps=_STEPS
                    )[0][1]
                    for kind in names
                    if kind not in laned
                ]
                if laned:
                    ages_ms.append(
                        session.value(
                            "oldest_in_lanes",
                            **given,
                            kinds=as_json(laned),
                            limit=LANES,
                        )
                    )
                oldest[pool] = max((one or 0 for one in ages_ms), default=0) / 1000
        return oldest

    def waiting(self) -> list[WaitingRow]:
        """See `Store.waiting`."""
        with self._database.reading() as session:
            rows = session.rows("get_waiting", now_ms=self._database.now_ms(session))
            blocked = self._blocked(session)
        return records(
            WaitingRow,
            (
                (*row, bool(known), bool(paused), blocked[row[0], row[1]])
                for *row, known, paused in rows
            ),
        )

    def kinds(self) -> list[KindRecord]:
        """See `Store.kinds`."""
        with self._database.reading() as session:
            rows = session.rows("get_kinds")
        return [kind for row in rows if (kind := kind_from(row))]

    def paused(self) -> list[tuple[str, str]]:
        """See `Store.paused`."""
        return [(pause.what, pause.name) for pause in self.pauses()]

    def pauses(self) -> list[PauseRow]:
        """See `Store.pauses`."""
        with self._database.reading() as session:
            rows = session.rows("pauses", now_ms=self._database.now_ms(session))
        columns = PauseRow.__struct_fields__
        readable = (
            row for row in rows if is_valid(dict(zip(columns, row, strict=True)), PAUSE)
        )
        return records(PauseRow, readable)


def _parameters(
    session: Session,
    which: Filter,
    before_id: int | None = None,
    after_id: int | None = None,
) -> dict[str, Any]:
    ids, states = which.ids, which.states
    texts = (
        which.kind,
        which.pool,
        which.tenant,
        which.key,
        which.text,
        which.error_class,
    )
    if any(clean_text(text) != text for text in texts):
        which, ids = Filter(), ()  # no job can have such a text
    # By themselves: keys and members have an index.
    if which.key is not None:
        ids = _among(ids, session.rows("ids_of_key", key=which.key))
    if which.flow is not None:
        ids = _among(ids, session.rows("ids_of_flow", flow=storable(which.flow)))
    if ids is not None:
        ids = tuple(job_id for job_id in ids if storable(job_id))
    last_id = ID_MAX if before_id is None else max(-1, min(before_id - 1, ID_MAX))
    first_id = 0 if after_id is None else max(0, min(after_id + 1, ID_MAX))
    return {
        "first_id": first_id if ids is None else max(first_id, min(ids, default=0)),
        "last_id": last_id if ids is None else min(last_id, max(ids, default=0)),
        "ids": None if ids is None else as_json(ids),
        "states": None if states is None else as_json(states),
        "kind": which.kind,
        "pool": which.pool,
        "tenant": which.tenant,
        "since_ms": which.since_ms,
        "text": which.text,
        "outcome": None if which.outcome is None else which.outcome.value,
        "error_class": which.error_class,
    }


def _spots(
    session: Session, which: Filter, ids: str | None, before: Spot | None, window: int
) -> list[Spot]:
    """Return the next jobs to look at, in order.

    Args:
        session: to read with.
        which: the filter.
        ids: JSON of the only ones that it can mean; None: it may mean any.
        before: where the look before has stopped.
        window: the most.
    """
    last = Spot(TIME_MAX_MS + 1, ID_MAX) if before is None else before
    states = set(which.states or ())
    meant = {state.value: state in states for state in JobState}
    given: dict[str, Any] = {"before_id": last.id, "window": window}
    known: list[int] | None = None if ids is None else msgspec.json.decode(ids)
    if known is None and states and states <= set(FINISHED):
        ended = {state.value: meant[state.value] for state in FINISHED}
        rows = session.rows("look_ended", **given, **ended, at_ms=last.at_ms)
        return [Spot(*row) for row in rows]
    if known is None and states:  # if they are few, nothing else is looked at
        rows = session.rows("look_states", **meant, window=window)
        known = [job_id for (job_id,) in rows] if len(rows) < window else None
    if known is None:
        return [Spot(*row) for row in session.rows("look_newest", **given)]
    newest_first = sorted((one for one in known if one < last.id), reverse=True)
    return [Spot(0, job_id) for job_id in newest_first[:window]]


def _among(
    ids: tuple[int, ...] | None, rows: Iterable[Sequence[Any]]
) -> tuple[int, ...]:
    """Return the ids in rows; only those of *ids*, if there are such."""
    found = {job_id for (job_id,) in rows}
    return tuple(found if ids is None else found.intersection(ids))
