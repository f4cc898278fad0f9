"""What people do to flows: cancel, pause, resume, approve.

Theory of operation. Whoever changes a flow locks it first, as a fold does, and leaves
notes of its steps; the fold does the rest. Only a pause holds members back itself, so
that nothing more begins once it has returned.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from jobpool.core.jobs.flow import Ending, StepState
from jobpool.core.jobs.job import JobState
from jobpool.errors import UsageError
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.session import Database, Session
from jobpool.store.statements.validation import storable


class FlowOperating:
    """The operators' part of the store, for flows."""

    _database: Database
    _HOLD_FLOW: ClassVar[str | None] = None
    """The query that waits until nobody folds a flow; None: a writer is alone."""

    @abstractmethod
    def _store_result(self, session: Session, job_id: int, result: bytes) -> None:
        """Store a result, where `approve_member` does not do so itself."""

    def cancel_flow(self, flow_id: int) -> bool:
        """See `Store.cancel_flow`."""
        with self._database.writing() as session:
            self._hold_flow(session, flow_id)
            if not session.value("has_plain_steps", flow=storable(flow_id)):
                return False
            flows = as_json([flow_id])
            if not session.run("set_ending", flows=flows, ending=Ending.CANCEL):
                return False
            session.run("note_flows", flows=flows)
        return True

    def pause_flow(self, flow_id: int) -> bool:
        """See `Store.pause_flow`."""
        with self._database.writing() as session:
            self._hold_flow(session, flow_id)
            if not session.run("pause_flow", flow=storable(flow_id)):
                return False
            now_ms = self._database.now_ms(session)
            session.run("hold_members", flow=flow_id, now_ms=now_ms)
        return True

    def resume_flow(self, flow_id: int) -> bool:
        """See `Store.resume_flow`."""
        with self._database.writing() as session:
            self._hold_flow(session, flow_id)
            if not session.run("resume_flow", flow=storable(flow_id)):
                return False
            session.run("note_flows", flows=as_json([flow_id]))
        return True

    def approve(
        self, job_id: int, result: bytes | None = None, codec: str | None = None
    ) -> bool:
        """See `Store.approve`."""
        with self._database.writing() as session:
            found = session.rows("external_member", id=storable(job_id))
            if found and self._HOLD_FLOW:
                self._hold_flow(session, found[0][0])
                found = session.rows("external_member", id=job_id)
            if not found or not found[0][2]:
                raise UsageError(
                    f"job {job_id} is no external step of a flow: only such a step "
                    "can be approved; nothing was changed"
                )
            ((_, step, _, state),) = found
            if state != JobState.WAITING:
                return False
            if step != StepState.READY:
                raise UsageError(
                    f"job {job_id} cannot be approved yet: steps before it have not "
                    "ended; nothing was changed"
                )
            now_ms = self._database.now_ms(session)
            given = {"id": job_id, "now_ms": now_ms, "codec": codec, "result": result}
            done = session.run("approve_member", **given)
            if done and result is not None:
                self._store_result(session, job_id, result)
        return bool(done)

    def _hold_flow(self, session: Session, flow_id: int) -> None:
        if self._HOLD_FLOW:
            session.rows(self._HOLD_FLOW, flow=storable(flow_id))
