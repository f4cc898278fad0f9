"""Storing flows: at once, or in chunks that nobody sees before the last.

Theory of operation. Up to `FLOW_AT_ONCE` members are stored in one transaction. More of
them would shut others out for too long: the flow is stored as `building`, with a token
of whoever builds it, its members come in chunks that each check the token, and the last
transaction opens it. Nothing of a flow that is being built can begin, since all of its
members wait and all of its steps are closed.

Whoever has died while building leaves a flow that nobody finishes. Who comes next with
its key takes the token, deletes what is there, and stores it anew; pruning deletes what
nobody came for.
"""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import Any, ClassVar, NamedTuple

from jobpool.core.formats import FLOWS
from jobpool.core.jobs.flow import (
    FLOW_AT_ONCE,
    EnqueuedFlow,
    FlowState,
    NewFlow,
    NewStep,
    StepState,
)
from jobpool.core.jobs.job import NewJob
from jobpool.core.jobs.ref import flow_ref_of
from jobpool.core.rules.flows import check_flow
from jobpool.errors import QueueFull, StoreError, StoreUnavailable, UsageError
from jobpool.store.operations.enqueue import Enqueueing
from jobpool.store.operations.flows.members import Member, checked_members
from jobpool.store.operations.flows.pruning import delete_some
from jobpool.store.operations.producers.sight import StoredSight
from jobpool.store.operations.read import Reading
from jobpool.store.statements.parameters import CHUNK_BYTES, CHUNK_JOBS, as_json
from jobpool.store.statements.session import Session
from jobpool.store.statements.validation import check_new_flow, check_new_jobs

Given = tuple[int, NewJob]
"""A member, after the number of its step."""


class _Draft(NamedTuple):
    """A flow whose rows are there, but for its members."""

    id: int
    steps: Sequence[int]
    """Their rows, in order of their numbers."""
    open: frozenset[int]
    """The numbers of those whose members may begin at once."""

    def member(self, given: Given) -> Member:
        """Return a member of the first generation."""
        number, job = given
        return Member(job, self.steps[number], 1, number in self.open)


class FlowEnqueueing(Reading, Enqueueing):
    """The part of the store that takes flows."""

    _DELETIONS: ClassVar[Sequence[str]]

    @abstractmethod
    def _insert_members(self, session: Session, members: Sequence[Member]) -> None:
        """Store checked members, in order."""

    def enqueue_flow(
        self,
        flow: NewFlow,
        members: Iterable[Given],
        connection: Any = None,
        *,
        wakes: bool = False,
    ) -> EnqueuedFlow:
        """See `Store.enqueue_flow`."""
        check_flow(flow)
        check_new_flow(flow)
        asks = self._granted < FLOWS
        if asks and (connection is None or self._WRITES_BESIDE):
            self._ask_for(FLOWS)
            asks = False
        # Before: whoever gets an error of the store must know that nothing was stored.
        with self._database.reading() as session:
            key = self._ref_key(session)
        given = checked_members(flow, members)
        first = list(islice(given, FLOW_AT_ONCE + 1))
        if len(first) <= FLOW_AT_ONCE:
            stored = self._store_at_once(flow, first, connection, asks, wakes)
        elif connection is None and not self._database.is_writing:
            stored = self._store_in_chunks(flow, chain(first, given), wakes)
        else:
            raise UsageError(
                f"a flow in a transaction of yours has at most {FLOW_AT_ONCE:,} "
                "members; enqueue it by itself; nothing was stored"
            )
        ref = "" if key is None else flow_ref_of(stored.id, key)
        return EnqueuedFlow(stored.id, stored.created, stored.state, ref)

    def _store_at_once(
        self,
        flow: NewFlow,
        members: Sequence[Given],
        connection: Any,
        asks: bool,  # noqa: FBT001 - of this class alone
        wakes: bool,  # noqa: FBT001 - likewise
    ) -> EnqueuedFlow:
        if connection is not None:
            place = self._joined(connection)
        else:
            place = self._waking() if wakes else self._database.writing()
        with place as session:
            if asks:
                self._ask_for_within(session, FLOWS)
            found = self._found(session, flow)
            while found is not None and found.state is FlowState.BUILDING:
                # First: a chunk that is being committed must be there to be dropped.
                if self._seize(session, found.id, secrets.token_hex(8)):
                    while self._drop_some(session, found.id):
                        pass
                found = self._found(session, flow)
            if found is not None:
                return found
            draft = self._begin(session, flow, FlowState.OPEN)
            if isinstance(draft, EnqueuedFlow):
                return draft
            for chunk in _chunks(iter(members)):
                self._add(session, chunk, draft)
            self._note_begun(session, flow, draft, {number for number, _ in members})
        return EnqueuedFlow(draft.id, created=True, state=FlowState.OPEN)

    def _store_in_chunks(
        self,
        flow: NewFlow,
        members: Iterator[Given],
        wakes: bool,  # noqa: FBT001 - of this class alone
    ) -> EnqueuedFlow:
        builder = secrets.token_hex(8)
        draft = self._claim_key(flow, builder)
        if isinstance(draft, EnqueuedFlow):
            return draft
        try:
            for chunk in _chunks(members):
                with self._database.writing() as session:
                    self._touch(session, flow, draft.id, builder)
                    self._add(session, chunk, draft)
            with self._waking() if wakes else self._database.writing() as session:
                self._touch(session, flow, draft.id, builder)
                session.run("open_flow", flow=draft.id, builder=builder)
                self._open_roots(session, flow, draft)
        except BaseException:
            with suppress(StoreError):  # Then pruning deletes it.
                self._drop(draft.id, builder)
            raise
        return EnqueuedFlow(draft.id, created=True, state=FlowState.OPEN)

    def _claim_key(self, flow: NewFlow, builder: str) -> _Draft | EnqueuedFlow:
        """Begin to build a flow; what others have begun under its key is deleted."""
        while True:
            with self._database.writing() as session:
                found = self._found(session, flow)
                if found is None:
                    return self._begin(session, flow, FlowState.BUILDING, builder)
                if found.state is not FlowState.BUILDING:
                    return found
                self._seize(session, found.id, builder)
            self._drop(found.id, builder)

    def _seize(self, session: Session, flow_id: int, builder: str) -> bool:
        """Keep whoever builds a flow from going on; False: it is built by now."""
        given = {"builder": builder, "now_ms": self._database.now_ms(session)}
        return session.run("seize_flow", flow=flow_id, **given) > 0

    def _found(self, session: Session, flow: NewFlow) -> EnqueuedFlow | None:
        """Return the flow that has the key."""
        if flow.key is None:
            return None
        rows = session.rows("find_flow", name=flow.name, key=flow.key)
        if not rows:
            return None
        ((flow_id, state),) = rows
        return EnqueuedFlow(flow_id, created=False, state=FlowState(state.decode()))

    def _begin(
        self,
        session: Session,
        flow: NewFlow,
        state: FlowState,
        builder: str | None = None,
    ) -> _Draft | EnqueuedFlow:
        """Store a flow's row, steps and edges; or return the one that has its key."""
        now_ms = self._database.now_ms(session)
        rows = session.rows(
            "insert_flow",
            name=flow.name,
            key=flow.key,
            tenant=flow.tenant,
            state=state,
            failure=flow.failure,
            builder=builder,
            now_ms=now_ms,
        )
        if not rows:  # another producer was faster
            found = self._found(session, flow)
            if found is None or found.state is FlowState.BUILDING:
                raise StoreUnavailable(
                    f"flow {flow.name!r}: somebody else stores one with this key at "
                    "this moment; nothing was stored. Try again"
                )
            return found
        ((flow_id,),) = rows
        begun = frozenset(
            step.number
            for step in flow.steps
            if state is FlowState.OPEN and _is_root(step)
        )
        steps = [_step_row(step, step.number in begun, now_ms) for step in flow.steps]
        session.run("insert_steps", flow=flow_id, rows=as_json(steps))
        ids = [step_id for (step_id,) in session.rows("step_ids", flow=flow_id)]
        edges = [
            (ids[number], ids[step.number], when)
            for step in flow.steps
            for number, when in step.after
        ]
        if edges:
            session.run("insert_edges", flow=flow_id, rows=as_json(edges))
        external = {step.number for step in flow.steps if step.external}
        return _Draft(flow_id, ids, begun - external)

    def _add(self, session: Session, given: Sequence[Given], draft: _Draft) -> None:
        """Store some members of a flow.

        Raises:
            QueueFull: there is no room for them; the transaction must be rolled back.
        """
        members = [draft.member(one) for one in given]
        jobs = [member.job for member in members]
        check_new_jobs(jobs, self._database.known_ms(session))
        sight = StoredSight(self._database, session)
        begun = [member.job for member in members if member.is_open]
        if begun:
            placed = iter(self._entrance.admit(begun, sight))
            members = [
                member._replace(job=next(placed)) if member.is_open else member
                for member in members
            ]
        try:
            self._depth.reserve(session, len(jobs))
        except QueueFull as full:
            raise self._entrance.refusal(full, jobs, sight) from None
        self._insert_members(session, members)

    def _note_begun(
        self, session: Session, flow: NewFlow, draft: _Draft, used: set[int]
    ) -> None:
        """Have steps looked at that begin, and have no member whose end says so."""
        empty = [
            draft.steps[step.number]
            for step in flow.steps
            if _is_root(step) and step.number not in used
        ]
        if all(step.hook is not None for step in flow.steps):
            empty = list(draft.steps)
        if empty:
            session.run("note_steps", steps=as_json(empty))

    def _open_roots(self, session: Session, flow: NewFlow, draft: _Draft) -> None:
        """Have those steps looked at that wait for no other."""
        roots = [draft.steps[step.number] for step in flow.steps if _is_root(step)]
        session.run("note_steps", steps=as_json(roots or draft.steps))

    def _touch(
        self, session: Session, flow: NewFlow, flow_id: int, builder: str
    ) -> None:
        """Make sure that nobody else builds the flow.

        Raises:
            StoreUnavailable: somebody does.
        """
        now_ms = self._database.now_ms(session)
        if not session.run("touch_flow", flow=flow_id, builder=builder, now_ms=now_ms):
            raise StoreUnavailable(
                f"flow {flow.name!r}: somebody else has begun to store the one with "
                "this key, after this call did; what this call has stored is deleted"
            )

    def _drop(self, flow_id: int, builder: str) -> None:
        """Delete a flow that this call builds, in chunks."""
        is_ours = True
        while is_ours:
            with self._database.writing() as session:
                now_ms = self._database.now_ms(session)
                given = {"flow": flow_id, "builder": builder, "now_ms": now_ms}
                is_ours = bool(session.run("touch_flow", **given)) and self._drop_some(
                    session, flow_id
                )

    def _drop_some(self, session: Session, flow_id: int) -> bool:
        """Delete some members of a flow, or the rest of it; say whether any is left."""
        return bool(delete_some(session, flow_id, CHUNK_JOBS, self._DELETIONS))


def _is_root(step: NewStep) -> bool:
    return step.hook is None and not step.after


def _step_row(step: NewStep, is_ready: bool, now_ms: int) -> tuple[Any, ...]:  # noqa: FBT001 - of this module alone
    has_time = is_ready and step.timeout_ms is not None
    return (
        step.number,
        step.name,
        StepState.READY if is_ready else StepState.CLOSED,
        step.hook,
        int(step.external),
        step.timeout_ms,
        now_ms + (step.timeout_ms or 0) if has_time else None,
    )


def _chunks(members: Iterator[Given]) -> Iterator[list[Given]]:
    """Split members into chunks of one transaction each, bounded in bytes as well."""
    chunk: list[Given] = []
    size = 0
    for one in members:
        length = len(one[1].payload)
        if chunk and (len(chunk) >= CHUNK_JOBS or size + length > CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(one)
        size += length
    if chunk:
        yield chunk
