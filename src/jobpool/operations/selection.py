"""Which jobs an action is about: ids, or everything that a filter finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from jobpool.core.jobs.flow import ENDED_STEPS
from jobpool.core.jobs.job import FINISHED, Job
from jobpool.operations.trail.id_ranges import IdRanges
from jobpool.store.protocol import Store
from jobpool.store.records.operating import Filter

_PAGE = 500
_WIDTH_MAX = 1_000_000
"""Most ids between which one query looks for jobs."""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Ids, or a filter; never both."""

    ids: tuple[int, ...] = ()
    which: Filter | None = None
    shown: tuple[str, ...] = ()
    """States as shown; they tell ``retryable`` from ``pending``. Empty: all to which
    the action applies."""

    def target(self) -> dict[str, Any]:
        """Return the filter's conditions, or the ids."""
        if self.which is None:
            return {"ids": _ranges(self.ids)}
        given = msgspec.structs.asdict(self.which)
        if self.which.ids is not None:
            given["ids"] = _ranges(self.which.ids)
        given["states"] = self.shown or None
        return {name: value for name, value in given.items() if value is not None}


def _ranges(ids: Sequence[int]) -> str:
    ranges = IdRanges()
    ranges.add(ids)
    return str(ranges)


class Selected(NamedTuple):
    """What a selection has found."""

    ids: list[int]
    """Oldest first; those that were named, in that order."""
    refused: list[str]
    """Remarks about ids to which the action does not apply."""


def by_id(
    store: Store,
    ids: Sequence[int],
    states: Sequence[str],
    past: str,
    elsewhere: Mapping[str, str],
    *,
    spares_replaced: bool,
    why_not: Callable[[Job], str],
) -> Selected:
    """Split ids into those in one of *states* and remarks about the others.

    Args:
        store: where the jobs are.
        ids: each counts once.
        states: as shown.
        past: what would be done to them, as a past participle.
        elsewhere: hints for jobs in other states, by state.
        spares_replaced: jobs that others have replaced are left alone.
        why_not: why it is not done to one in such a state; "": it is.
    """
    selected = Selected([], [])
    for job_id in dict.fromkeys(ids):
        job = store.get(job_id)
        if job is None:
            selected.refused.append(f"there is no job {job_id} in {store.url}")
        elif job.is_erased:
            selected.refused.append(
                f"job {job_id} was erased: it has no arguments any more"
            )
        elif spares_replaced and job.replaced_by is not None:
            selected.refused.append(
                f"job {job_id} was replaced by job {job.replaced_by} and stays as it is"
            )
        elif spares_replaced and (flow := flow_to_retry(store, job_id)) is not None:
            selected.refused.append(left_to_flow(job_id, flow))
        elif job.shown_state in states:
            if remark := why_not(job):
                selected.refused.append(f"job {job_id}: {remark}")
            else:
                selected.ids.append(job_id)
        else:
            hint = elsewhere.get(job.shown_state)
            selected.refused.append(
                f"job {job_id} is {job.shown_state}; only {', '.join(states)} jobs "
                f"can be {past}" + (f" ({hint})" if hint else "")
            )
    return selected


def flow_to_retry(store: Store, job_id: int) -> int | None:
    """Return the flow that alone can let a job run again; None: the job can.

    A step that has ended begins anew with all that comes after it, or not at all.
    """
    member = store.flow_of(job_id)
    detail = None if member is None else store.flow(member.flow)
    if member is None or detail is None:
        return None
    step = next(step for step in detail.steps if step.number == member.number)
    ended = step.hook is None and step.state in ENDED_STEPS
    return member.flow if ended else None


def left_to_flow(job_id: int, flow: int) -> str:
    """Return the remark about a job that `flow_to_retry` has a flow for."""
    return (
        f"job {job_id} is of a step of flow {flow} that has ended: use jobpool flows "
        f"retry {flow} --job {job_id}, or once the flow has ended without --job"
    )


def matching(
    store: Store, which: Filter, shown: Sequence[str], limit: int | None = None
) -> Iterator[Job]:
    """Yield the jobs of a filter, newest first.

    Args:
        store: where they are.
        which: the filter.
        shown: states as shown, to tell ``retryable`` from ``pending``; empty: all.
        limit: end after so many.
    """
    left = limit
    before: int | None = None
    while left is None or left > 0:
        page = store.find(which, _PAGE if left is None else min(left, _PAGE), before)
        for job in page:
            if not shown or job.shown_state in shown:
                yield job
                left = None if left is None else left - 1
        if not page:
            return
        before = page[-1].id


def oldest_first(
    store: Store, which: Filter, shown: Sequence[str]
) -> Iterator[tuple[list[Job], bool]]:
    """Yield the jobs of a filter, page by page, oldest first; and whether more follow.

    Those that are enqueued or end meanwhile are not among them: else it might go on for
    as long as jobs die. It holds no more than a page, and reads no further than its
    caller does.

    Args:
        store: where they are.
        which: the filter.
        shown: states as shown.
    """
    newest = store.find(which, 1)
    if not newest:
        return
    last_id, last_end_ms = newest[0].id, _last_end_ms(store)
    after_id, width = 0, _PAGE
    while after_id < last_id:
        up_to = min(after_id + width, last_id)
        page = store.find(which, _PAGE, up_to + 1, after_id)
        if len(page) == _PAGE and width > _PAGE:  # there may be more among these ids
            width = max(_PAGE, width // 2)
            continue
        found = [
            job
            for job in reversed(page)
            if job.shown_state in shown and (job.finished_at_ms or 0) <= last_end_ms
        ]
        if found:
            yield found, up_to < last_id
        after_id = up_to
        if len(page) < _PAGE // 2:
            width = min(2 * width, _WIDTH_MAX)


def _last_end_ms(store: Store) -> int:
    """Return when the last of all jobs has ended, by the store's clock; 0: none has."""
    last = store.look(Filter(states=FINISHED), 1, window=1).jobs
    return max((job.finished_at_ms or 0 for job in last), default=0)
