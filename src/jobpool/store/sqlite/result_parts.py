"""Large results, written in parts ahead of their ends.

While one commit brings a mebibyte to the disk, everybody else's waits. So a result may
come in parts, each in a commit of its own that lets the others have their turn; the
last part comes with the end of its job. Until then the parts are a draft, under the
token of the lease: whatever ends that lease otherwise leaves a draft that nobody reads,
and that pruning deletes.

`jobpool_whole_results` lays them end to end. SQLite can do so with text alone, which in
a database of UTF-8 is bytes as they are; in one of UTF-16 a result stays in one piece.
"""

from __future__ import annotations

from jobpool.core.jobs.job import Settlement
from jobpool.store.operations.settle import has_result
from jobpool.store.statements.session import Session

PART_BYTES = 2**17
"""A commit of so much takes little longer than one of a few rows."""
WHOLE_MAX_BYTES = 2 * PART_BYTES
"""A result that takes no more stays in one piece: parts would take more commits."""


def store_part(session: Session, settlement: Settlement) -> bool:
    """Store the next part of a result; say whether there was one.

    Nothing is stored when all but the last part is there, and when the lease is over:
    settling tells.

    Raises:
        StoreError: it failed and has changed nothing.
    """
    if not has_result(settlement):
        return False
    result, token = settlement.result or b"", settlement.token
    place = session.value("draft_parts", token=token)
    place = max(0, place) if isinstance(place, int) else 0
    if place >= _parts_ahead(result) or session.value("encoding") != "UTF-8":
        return False
    part = result[place * PART_BYTES : (place + 1) * PART_BYTES]
    is_held = session.run(
        "store_part", id=settlement.id, token=token, place=place, part=part
    )
    if is_held:
        session.run("note_draft", id=settlement.id, token=token, parts=place + 1)
    return bool(is_held)


def store_result(session: Session, settlement: Settlement) -> None:
    """Store the result of a job whose end was accepted, or what is left of it."""
    job_id, token = settlement.id, settlement.token
    result = settlement.result or b""
    if parts := _parts_ahead(result):
        if session.run("end_draft", id=job_id, token=token, parts=parts):
            last = result[parts * PART_BYTES :]
            session.run(
                "store_last_part", id=job_id, token=token, parts=parts, result=last
            )
            return
        if session.run("drop_draft", token=token):
            session.run("drop_draft_parts", id=job_id, token=token)
    session.run("store_result", id=job_id, result=result)


def _parts_ahead(result: bytes) -> int:
    """Return in how many parts a result comes before its last one, if it is large."""
    if len(result) <= WHOLE_MAX_BYTES:
        return 0
    return (len(result) - 1) // PART_BYTES
