"""What is full, in words and rows: how full, and when to come back."""

from __future__ import annotations

from collections.abc import Iterator

from jobpool.core.rules.admission import (
    COUNTED_BEYOND,
    Admission,
    Bound,
    Scope,
    Seen,
    Sort,
    excess,
    is_too_old,
    retry_after_s,
)
from jobpool.core.units import show_duration
from jobpool.errors import QueueFull
from jobpool.store.operations.producers.sight import (
    Concerned,
    Outlook,
    Sight,
    parameters_of,
)
from jobpool.store.records.quotas import FullRow

WHOLE = Scope(Sort.QUEUE)


def beyond(held: int, most: int, jobs: int) -> QueueFull:
    """Return the error for jobs beyond the depth of the whole queue."""
    return queue_full(WHOLE, Seen(held), Bound(depth_max=most), jobs, Outlook(None))


def full_scopes(admission: Admission, sight: Sight) -> Iterator[FullRow]:
    """Yield what has no room for one more job, or whose oldest has waited too long."""
    whole = Bound(depth_max=admission.depth_max, age_max_s=admission.age_max_s)
    limits = [(WHOLE, whole)]
    limits += [(Scope(Sort.POOL, name), one) for name, one in admission.pools.items()]
    limits += [(Scope(Sort.KIND, name), one) for name, one in admission.kinds.items()]
    for scope, bound in limits:
        most = (bound.depth_max or 0) + COUNTED_BEYOND
        yield from _if_full(scope, bound, sight.look(scope, bound, most), sight)
    if not admission.tenants:
        return
    bounds = admission.tenants.values()
    least = min((b.depth_max for b in bounds if b.depth_max is not None), default=None)
    older_s = min((b.age_max_s for b in bounds if b.age_max_s), default=None)
    for name, seen in sight.tenants(least, older_s):
        for scope, bound in admission.of("", "", name):
            if scope.sort is Sort.TENANT:
                yield from _if_full(scope, bound, seen, sight)


def _if_full(scope: Scope, bound: Bound, seen: Seen, sight: Sight) -> Iterator[FullRow]:
    most = bound.depth_max
    if (most is None or seen.waiting < most) and not is_too_old(seen, bound):
        return
    pool, kind, tenant = parameters_of(scope)
    outlook = sight.outlook(scope, Concerned(kind or "", pool or "", tenant))
    yield FullRow(
        what=str(scope),
        depth=seen.waiting,
        depth_max=most,
        age_s=seen.age_s,
        age_max_s=bound.age_max_s,
        retry_after_s=retry_after_s(excess(seen, bound, 1), *outlook),
    )


def queue_full(
    scope: Scope, seen: Seen, bound: Bound, jobs: int, outlook: Outlook
) -> QueueFull:
    """Return the error for jobs that a scope has no room for.

    Args:
        scope: what is full.
        seen: how full.
        bound: its limit.
        jobs: how many more were to be stored.
        outlook: when it will have room.
    """
    after_s = retry_after_s(excess(seen, bound, jobs), *outlook)
    return QueueFull(
        f"{scope} {_fill(scope, seen, bound)}; {jobs:,} more were refused, and none of "
        f"them was enqueued. {_advice(seen, bound, jobs, outlook)}",
        what=str(scope),
        depth=seen.waiting,
        depth_max=bound.depth_max,
        age_s=seen.age_s,
        age_max_s=bound.age_max_s,
        retry_after_s=after_s,
    )


def _fill(scope: Scope, seen: Seen, bound: Bound) -> str:
    """Say how full a scope is."""
    most = bound.depth_max
    if is_too_old(seen, bound):
        age, longest = (show_duration(s or 0) for s in (seen.age_s, bound.age_max_s))
        oldest = f" (of kind {seen.oldest})" if seen.oldest else ""
        return f"has a due job{oldest} that has waited for {age}, of at most {longest}"
    what = "unfinished jobs" if scope.sort is Sort.QUEUE else "due jobs that wait"
    least = "at least " if seen.waiting >= (most or 0) + COUNTED_BEYOND else ""
    return f"holds {least}{seen.waiting:,} {what} of at most {most or 0:,}"


def _advice(seen: Seen, bound: Bound, jobs: int, outlook: Outlook) -> str:
    """Say when to come back, and what else helps."""
    if bound.depth_max is not None and jobs > bound.depth_max:
        if not bound.depth_max:
            return "Nothing is accepted there: depth_max is 0 in the configuration"
        return (
            f"So many never fit in: enqueue at most {bound.depth_max:,} at a time, or "
            "raise depth_max in the configuration (see: jobpool manual enqueueing)"
        )
    if outlook.held_s:
        why = f"a pause or a quota holds them for {show_duration(outlook.held_s)}"
    elif outlook.ends_per_s:
        why = f"{outlook.ends_per_s:.3g} end a second"
    else:
        why = "none has ended in the last minute"
    option = "age_max" if is_too_old(seen, bound) else "depth_max"
    after_s = retry_after_s(excess(seen, bound, jobs), *outlook)
    return (
        f"Try again in {show_duration(after_s)} ({why}; `jobpool status` shows whether "
        f"a supervisor runs), start more supervisors, or raise {option} in the "
        "configuration (see: jobpool manual enqueueing)"
    )
