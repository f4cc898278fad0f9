"""What is deleted, and when: a part of I1, I2 and I14 of `invariants`, counted anew.

A job goes once it has been over for as long as its state is kept, by the store's clock,
and then soon; until then its key stands for it. Nothing more happens to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from support.store.history import (
    Called,
    Deleted,
    Expired,
    Granted,
    History,
    Keeping,
    Operated,
    Settled,
)

TERMINAL = frozenset(("succeeded", "dead", "quarantined", "canceled"))
Finding = tuple[str, int, str]
"""The invariant, the job, and what is wrong."""


def wrong_deletions(history: History) -> Iterator[Finding]:
    """Yield every job that was deleted wrongly, or not."""
    if history.keeping is None:
        return
    ended: dict[int, tuple[str, int]] = {}
    gone: set[int] = set()
    for record in history.records:
        if isinstance(record, Deleted):
            yield from _too_early(history.keeping, record, ended.pop(record.job, None))
            gone.add(record.job)
        elif (after := _after(record)) is not None:
            job, state, store_ms = after
            if job in gone:
                yield "I1", job, f"it was deleted, and then became {state}"
            ended.pop(job, None)
            if state in TERMINAL:
                ended[job] = (state, store_ms)
    for job, (state, store_ms) in ended.items():
        yield from _too_late(history.keeping, job, state, store_ms)
    yield from _made_again(history)


def _made_again(history: History) -> Iterator[Finding]:
    """A call that is made again makes another job only once the first is gone."""
    made: defaultdict[str, set[int]] = defaultdict(set)
    gone: set[int] = set()
    for record in history.records:
        if isinstance(record, Deleted):
            gone.add(record.job)
        elif isinstance(record, Called) and record.created:
            if standing := made[record.call] - gone:
                text = f"{record.call} was made again beside {min(standing)}"
                yield "I2", record.job, text
            made[record.call].add(record.job)


def _after(record: object) -> tuple[int, str, int] | None:
    """Return a job, what became of it, and when by the store's clock."""
    match record:
        case Settled() if record.receipt == "accepted":
            return record.job, record.state, record.store_ms
        case Granted():
            return record.job, "leased", record.store_ms
        case Operated():
            return record.job, record.after, record.store_ms
        case Expired():
            return record.job, "canceled", record.store_ms
    return None


def _too_early(
    keeping: Keeping, record: Deleted, ended: tuple[str, int] | None
) -> Iterator[Finding]:
    if ended is None:
        yield "I1", record.job, "it was deleted before it was over"
        return
    state, store_ms = ended
    over_s = (record.store_ms - store_ms) / 1000
    if over_s < keeping.kept_s[state] - keeping.early_s:
        yield "I1", record.job, f"it was {state} for {over_s:.0f} s, and is deleted"


def _too_late(
    keeping: Keeping, job: int, state: str, store_ms: int
) -> Iterator[Finding]:
    over_s = (keeping.store_ms - store_ms) / 1000
    if over_s > keeping.kept_s[state] + keeping.late_s:
        yield "I14", job, f"it has been {state} for {over_s:.0f} s, and is there"
