"""Numbers that leave none for others: a row at the end of them stops every new one.

Jobs and attempts are numbered for ever: SQLite counts on from the highest number that a
row ever had, and refuses new rows once that is 2^63 - 1. A hand can write such a
number. Its row gets an ordinary one, and the count goes on well beyond what was given
out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jobpool.store.statements.session import Session

FAR = 2**62
"""Nobody will ever have given out so many."""
SKIPPED = 10**6
"""The numbers of rows that were deleted since must not come again."""
STEP = 100
_OF_A_JOB = (
    "renumber_job",
    "renumber_payload",
    "renumber_result",
    "renumber_parts",
    "renumber_history",
)


def has_far_numbers(session: Session) -> bool:
    """Say whether a table counts on from a number that leaves none for others."""
    return any(_is_far(spent) for _, spent, _ in session.rows("spent_ids"))


def renumber(session: Session, set_aside: Callable[[Sequence[int]], object]) -> None:
    """Give rows with far numbers ordinary ones, and let the tables count on from there.

    Args:
        session: in a transaction.
        set_aside: sets jobs aside, by their new numbers.
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
