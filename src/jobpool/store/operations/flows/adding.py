"""Members that a running member adds to its own step.

Theory of operation. They are stored by the settlement by which the adder succeeds, and
wait, as all members do until a fold opens them: the adder's end leaves the note. Before
that commit neither the adder nor its step has ended, so that no fold sees an end
without what it has added. If the flow is paused or canceled meanwhile, the fold treats
them as it does all members.
"""

from __future__ import annotations

from collections.abc import Sequence

from jobpool.core.jobs.job import NewJob, Settlement
from jobpool.store.operations.flows.members import Member
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.session import Session


def added_by(
    session: Session, adders: Sequence[Settlement]
) -> tuple[list[Member], list[NewJob]]:
    """Return what jobs that have succeeded add, in order.

    Args:
        session: in the transaction that settles them.
        adders: their settlements.

    Returns:
        New members, and jobs that are no members: of adders that were in a flow and are
        not any more, since their rows were repaired. Where a step has ended before an
        operator has let the adder run again, what it adds does not wait either.
    """
    rows = session.rows("steps_of_adders", ids=as_json(s.id for s in adders))
    places = {job_id: place for job_id, *place in rows}
    members: list[Member] = []
    others: list[NewJob] = []
    for adder in adders:
        if (place := places.get(adder.id)) is None:
            others += adder.added
            continue
        step, generation, has_ended = place
        members += (
            Member(job, step, generation, bool(has_ended), adder.id)
            for job in adder.added
        )
    return members, others
