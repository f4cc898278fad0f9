"""The step of all schedules that have something to do, in one transaction.

Theory of operation. Any supervisor makes steps, whenever it likes. A step locks the
schedules that it handles; another one skips these. A tick is unique by its nominal time
and stored together with its job, so however often a step is cut short and made again,
by whomever, there is one job.

Locks are taken in one order: schedules, then jobs, then ticks. Jobs that others hold
are skipped, since a handler's transaction may hold its job for long. So a step never
waits for anything but the row of a tick, for which nobody holds it for long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from jobpool.core.jobs.job import NewJob
from jobpool.core.rules.schedules.schedule import TickState
from jobpool.errors import JobpoolBug
from jobpool.store.operations.enqueue import Enqueueing
from jobpool.store.operations.repair import Repairing
from jobpool.store.operations.schedules.step import AGAIN_MS, Step, step
from jobpool.store.operations.schedules.ticks import known_times, open_ticks
from jobpool.store.records.schedules import Ticked
from jobpool.store.statements.parameters import as_json, chunks
from jobpool.store.statements.schedules import read_schedules
from jobpool.store.statements.session import Database, Row, Session

TICK_LIMIT = 200
"""The most schedules that one step handles, unless its caller says another number."""
AHEAD_MS = 1000
"""What was planned so much later than now was planned by a clock that had jumped."""
LOOK_EVERY_S = 1.0
"""How soon another step looks at what waits for the end of a job."""


class Ticking(Repairing, Enqueueing):
    """The part of the store that enqueues what schedules say."""

    _database: Database
    _HOLD_RETRIES: ClassVar[str | None] = None
    """The query that locks jobs that wait for a retry, where there are other
    writers."""

    _TICK_LIMIT: ClassVar[int] = TICK_LIMIT

    def tick(self, limit: int | None = None) -> Ticked:
        """See `Store.tick`."""
        if limit is None:
            limit = self._TICK_LIMIT
        with self._database.reading() as session:
            now_ms = self._database.now_ms(session)
            due = Due(*session.rows("schedules_due")[0])
        if not due.is_due(now_ms):
            return Ticked(next_due_in_s=due.in_s(now_ms))
        with self._database.writing() as session:
            now_ms = self._database.now_ms(session)
            steps = self._steps(session, now_ms, limit)
            done = self._carry_out(session, steps, now_ms) if steps else Done()
            due = Due(*session.rows("schedules_due")[0])
        return ticked(steps, done, pause_s(steps, due, now_ms))

    def _steps(self, session: Session, now_ms: int, limit: int) -> Sequence[Step]:
        """Lock the schedules that have something to do; return what is to be done."""
        stored, unreadable = read_schedules(
            session.rows(
                "lock_due_schedules",
                now_ms=now_ms,
                ahead_ms=now_ms + AHEAD_MS,
                limit=limit,
            )
        )
        for row in unreadable:
            session.run("delete_schedule", id=row[0])
            self._note(f"schedule {row[0]}", "deleted")
        ids = [one.id for one in stored]
        ticks = open_ticks(session, ids, self._HOLD_RETRIES) if ids else {}
        steps = [step(one, ticks.get(one.id, ()), now_ms) for one in stored]
        new = [(tick.schedule, tick.nominal_ms) for one in steps for tick in one.new]
        known = known_times(session, new)
        return [
            step(one, ticks.get(one.id, ()), now_ms, known[one.id])
            if one.id in known
            else made
            for one, made in zip(stored, steps, strict=True)
        ]

    def _carry_out(self, session: Session, steps: Sequence[Step], now_ms: int) -> Done:
        """Store what steps do, and enqueue their jobs."""
        canceled, steps = self._cancel_for_ticks(session, steps, now_ms)
        if ended := [tick for one in steps for tick in one.ended]:
            session.run("end_ticks", rows=as_json(ended))
        enqueued = self._begin_ticks(
            session,
            [
                (tick_id, one.job)
                for one, begun in zip(
                    steps, _begun(session, steps, now_ms), strict=True
                )
                for tick_id in begun
                if one.job is not None
            ],
        )
        rows = [one.schedule.progress() for one in steps]
        session.run("plan_schedules", rows=as_json(rows), now_ms=now_ms)
        return Done(len(enqueued), canceled)

    def _cancel_for_ticks(
        self, session: Session, steps: Sequence[Step], now_ms: int
    ) -> tuple[int, Sequence[Step]]:
        """Cancel the jobs that others take the place of.

        Returns:
            How many, and the steps: those whose jobs others hold look again.
        """
        wanted = {job_id for one in steps for job_id in one.cancel}
        if not wanted:
            return 0, steps
        ids = as_json(sorted(wanted))
        if self._HOLD_JOBS:
            held = {job_id for (job_id,) in session.rows(self._HOLD_JOBS, ids=ids)}
            ids = as_json(sorted(held))
            steps = [
                one if held.issuperset(one.cancel) else one.again_at(now_ms + AGAIN_MS)
                for one in steps
            ]
        canceled = session.run("cancel_for_tick", ids=ids, now_ms=now_ms)
        return canceled + session.run("request_cancel", ids=ids), steps

    def _begin_ticks(
        self, session: Session, ticks: Sequence[tuple[int, NewJob]]
    ) -> list[int]:
        """Enqueue the jobs of ticks, whatever the depth of the queue; return their ids.

        Ticks are bounded by themselves, and one that was refused would be lost.
        """
        if not ticks:
            return []
        self._depth.add(session, len(ticks))
        stored = [
            one
            for chunk in chunks([job for _, job in ticks])
            for one in self._insert(session, chunk)
        ]
        rows: list[Row] = []
        for (tick_id, _), job in zip(ticks, stored, strict=True):
            if job is None:
                raise JobpoolBug(
                    f"the job of tick {tick_id} met another one although it has no "
                    "key; please report this"
                )
            rows.append((tick_id, job.id))
        session.run("begin_ticks", rows=as_json(rows))
        session.run("number_jobs", rows=as_json(rows))
        return [job_id for _, job_id in rows]


class Due(NamedTuple):
    """What `schedules_due` says."""

    next_at_ms: object
    planned_at_ms: object
    waits: object
    has_ended: object

    def is_due(self, now_ms: int) -> bool:
        """Say whether a step has something to do."""
        return self.in_s(now_ms) == 0

    def in_s(self, now_ms: int) -> float | None:
        """Return when a step has something to do, as far as is known."""
        planned_ms, next_ms = self.planned_at_ms, self.next_at_ms
        has_jumped = isinstance(planned_ms, int) and planned_ms > now_ms + AHEAD_MS
        if self.has_ended or has_jumped:
            return 0.0
        looks = [LOOK_EVERY_S] if self.waits else []
        if isinstance(next_ms, int):
            looks.append(max(0.0, (next_ms - now_ms) / 1000))
        return min(looks, default=None)


def pause_s(steps: Sequence[Step], due: Due, now_ms: int) -> float | None:
    """Return how soon another step is due.

    Without one that has done something, others make one: this waits for them, as they
    may be cut short.
    """
    is_left = all(one.is_left for one in steps)
    return LOOK_EVERY_S if is_left else due.in_s(now_ms)


class Done(NamedTuple):
    """What became of steps' jobs."""

    enqueued: int = 0
    canceled: int = 0


def ticked(steps: Sequence[Step], done: Done, next_due_in_s: float | None) -> Ticked:
    """Return the answer of `Store.tick`."""
    states = [tick.state for one in steps for tick in one.new]
    states += [tick.state for one in steps for tick in one.ended]
    return Ticked(
        enqueued=done.enqueued,
        skipped=states.count(TickState.SKIPPED),
        buffered=states.count(TickState.BUFFERED),
        missed=sum(one.missed for one in steps),
        canceled=done.canceled,
        next_due_in_s=next_due_in_s,
        notices=tuple(one.notice for one in steps if one.notice is not None),
    )


def _begun(session: Session, steps: Sequence[Step], now_ms: int) -> list[Sequence[int]]:
    """Store new ticks; return, for each step, the ids of those that get their jobs."""
    new = [tick for one in steps for tick in one.new]
    known = {}
    if new:
        rows = session.rows(
            "insert_ticks", rows=as_json(one.row(now_ms) for one in new), now_ms=now_ms
        )
        known = {(schedule, nominal_ms): i for i, schedule, nominal_ms in rows}
    return [
        [
            *one.begun,
            *(
                known[tick.schedule, tick.nominal_ms]
                for tick in one.new
                if tick.state is TickState.OPEN
                and (tick.schedule, tick.nominal_ms) in known
            ),
        ]
        for one in steps
    ]
