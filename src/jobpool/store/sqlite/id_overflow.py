"""Repairs ids so high that no new row could be stored.

AUTOINCREMENT continues from the highest id that a row ever had, and SQLite refuses new
rows once that is 2^63 - 1. Another program can write such an id. Its row gets an
ordinary id, and counting continues well beyond those that were given out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jobpool.store.statements.session import Session

FAR = 2**62
"""An id from here on was never given out by counting."""
SKIPPED = 10**6
"""Skipped ids: those of rows deleted in the meantime must not be given out again."""
STEP = 100
_OF_A_JOB = (
    "renumber_job",
    "renumber_payload",
    "renumber_result",
    "renumber_parts",
    "renumber_history",
)


def has_far_numbers(session: Session) -> bool:
    """Say whether a table continues from an id that leaves none for new rows."""
    return any(_is_far(spent) for _, spent, _ in session.rows("spent_ids"))


def renumber(session: Session, set_aside: Callable[[Sequence[int]], object]) -> None:
    """Give rows with far ids ordinary ones, and let the tables continue from there.

    Args:
        session: in a transaction.
        set_aside: sets jobs aside, by their new ids.
    """
    for name, spent, last in session.rows("spent_ids"):
        if not _is_far(spent):
            continue
        free = last + SKIPPED
        is_of_jobs = name == "jobpool_jobs"
        far = session.rows("far_jobs" if is_of_jobs else "far_attempts", limit=STEP)
        for new, (old,) in enumerate(far, free + 1):
            for query in _OF_A_JOB if is_of_jobs else ("renumber_attempt",):
                session.run(query, id=old, new=new)
        if is_of_jobs and far:
            set_aside(range(free + 1, free + 1 + len(far)))
        session.run("count_on_from", name=name, last=free + len(far))


def _is_far(spent: object) -> bool:
    return not isinstance(spent, int) or spent >= FAR
