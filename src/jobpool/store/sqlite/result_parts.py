"""Large results, written in parts ahead of their settlements.

While one commit writes a mebibyte to the disk, all others wait. So a large result is
written in parts, each in a commit of its own that lets others take their turn; the last
part is written with the settlement. Until then the parts are a draft, under the lease's
token: if the lease ends in another way, the draft is never read, and pruning deletes
it.

The view `jobpool_whole_results` concatenates the parts. SQLite can concatenate only
text, which in a UTF-8 database is the bytes as they are; in a UTF-16 database a result
stays in one piece.
"""

from __future__ import annotations

from jobpool.core.jobs.job import Settlement
from jobpool.store.operations.settle import has_result
from jobpool.store.statements.session import Session

PART_BYTES = 2**17
"""A commit of this size takes little longer than one of a few rows."""
WHOLE_MAX_BYTES = 2 * PART_BYTES
"""A result up to this size stays in one piece: parts would take more commits."""


def store_part(session: Session, settlement: Settlement) -> bool:
    """Store the next part of a result; say whether there was one.

    Nothing is stored when all but the last part are there, or when the lease is over,
    which settling then reports.

    Raises:
        StoreError: it failed; nothing was changed.
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
    """Store the result of a job whose settlement was accepted, or its last part."""
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
    """Return how many parts of a result precede the last one; 0 if it is small."""
    if len(result) <= WHOLE_MAX_BYTES:
        return 0
    return (len(result) - 1) // PART_BYTES
