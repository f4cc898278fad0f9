"""What people and programs see of flows; nothing is changed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from jobpool.core.jobs.flow import When
from jobpool.core.jobs.job import JobState, says_erased
from jobpool.core.jobs.ref import flow_id_of, flow_ref_of
from jobpool.store.operations.flows.rows import read_when
from jobpool.store.operations.read import Reading
from jobpool.store.records.flows import (
    AskRow,
    FlowDetail,
    FlowFilter,
    FlowRow,
    MemberOf,
    StepResult,
    StepRow,
)
from jobpool.store.statements.flows import shown_flow, shown_step
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.session import Row, Session
from jobpool.store.statements.validation import clean_text, storable

_ASKING_MAX = 1000
"""So many open flows are looked at for steps that wait for somebody."""
_STRAYS_MAX = 10_000
_SPAN = 3
"""Columns of a span: the first job, when the first began, when the last ended."""


class FlowReading(Reading):
    """The part of the store that shows flows, beside everything else that reads."""

    def flows(
        self, which: FlowFilter, limit: int = 100, before_id: int | None = None
    ) -> list[FlowRow]:
        """See `Store.flows`."""
        texts = which.name, which.key, which.tenant
        if any(clean_text(text) != text for text in texts):
            return []  # no flow can have such a text
        ids = None if which.ids is None else [storable(one) for one in which.ids]
        with self._database.reading() as session:
            rows = session.rows(
                "find_flows",
                ids=None if ids is None else as_json(ids),
                states=None if which.states is None else as_json(which.states),
                name=which.name,
                key=which.key,
                tenant=which.tenant,
                before_id=None if before_id is None else storable(before_id),
                limit=limit,
            )
            return self._flows_from(session, rows)

    def strays(self, limit: int = 100) -> list[int]:
        """See `Store.strays`."""
        with self._database.reading() as session:
            rows = session.rows("stray_jobs", most=_STRAYS_MAX, limit=limit)
        return [job_id for (job_id,) in rows]

    def asks(self, limit: int = 100) -> list[AskRow]:
        """See `Store.asks`."""
        with self._database.reading() as session:
            rows = session.rows("asking_steps", most=_ASKING_MAX, limit=limit)
            key = self._ref_key(session)
        return [
            AskRow._make((*row, "" if key is None else flow_ref_of(row[0], key)))
            for row in rows
        ]

    def flow(self, flow_id: int) -> FlowDetail | None:
        """See `Store.flow`."""
        rows = self.flows(FlowFilter(ids=(flow_id,)), 1)
        if not rows:
            return None
        with self._database.reading() as session:
            steps = session.rows("steps_of_flow", flow=storable(flow_id))
            edges = session.rows("edges_of_flow", flow=storable(flow_id))
            members = session.rows("member_counts", flow=storable(flow_id))
        return FlowDetail(row=rows[0], steps=tuple(_steps(steps, edges, members)))

    def flow_id_of(self, ref: str) -> int | None:
        """See `Store.flow_id_of`."""
        with self._database.reading() as session:
            key = self._ref_key(session)
        return None if key is None else flow_id_of(ref, key)

    def flow_of(self, job_id: int) -> MemberOf | None:
        """See `Store.flow_of`."""
        with self._database.reading() as session:
            rows = session.rows("place_of_member", id=storable(job_id))
            if not rows:
                return None
            flow, number, generation, step = rows[0]
            before = session.rows("numbers_before", step=step)
        return MemberOf(flow, number, generation, tuple(one for (one,) in before))

    def step_results(
        self,
        flow_id: int,
        numbers: Sequence[int] | None,
        after_id: int = 0,
        limit: int = 1000,
    ) -> list[StepResult]:
        """See `Store.step_results`."""
        with self._database.reading() as session:
            rows = session.rows(
                "step_results",
                flow=storable(flow_id),
                numbers=None if numbers is None else as_json(numbers),
                after_id=after_id,
                limit=limit,
            )
        return [
            StepResult._make((*columns, says_erased(reason)))
            for *columns, reason in rows
        ]

    def _flows_from(self, session: Session, rows: Iterable[Row]) -> list[FlowRow]:
        key = self._ref_key(session)
        fields = FlowRow.__struct_fields__[:-1]
        return [
            msgspec.convert(
                {
                    **shown_flow(dict(zip(fields, row, strict=True))),
                    "ref": "" if key is None else flow_ref_of(row[0], key),
                },
                FlowRow,
            )
            for row in rows
        ]


def _steps(
    steps: Iterable[Row], edges: Iterable[Row], members: Iterable[Row]
) -> Iterable[StepRow]:
    after: Mapping[int, list[tuple[int, When]]] = defaultdict(list)
    for number, before, when in edges:
        if condition := read_when(when):
            after[number].append((before, condition))
    jobs: Mapping[int, Counter[JobState]] = defaultdict(Counter)
    spans: Mapping[int, list[Row]] = defaultdict(list)
    for number, state, count, *span in members:
        jobs[number][JobState(state)] += count
        spans[number].append(tuple(span))
    fields = ("id", "number", "name", "state", "hook", "timeout_ms", "until_ms")
    for id_, number, name, state, failed, hook, external, *times in steps:
        columns = (id_, number, name, state, hook, *times)
        first, began, ended = (
            [one for one in column if one is not None]
            for column in zip(*spans[number], (None,) * _SPAN, strict=True)
        )
        yield msgspec.convert(
            {
                **shown_step(dict(zip(fields, columns, strict=True))),
                "failed": bool(failed),
                "external": bool(external),
                "after": after[number],
                "jobs": jobs[number],
                "first_job": min(first, default=None),
                "began_ms": min(began, default=None),
                "ended_ms": max(ended, default=None),
            },
            StepRow,
        )
