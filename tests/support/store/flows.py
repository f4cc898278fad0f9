"""Short ways to say a flow, and to let its members end."""

from jobpool.core.jobs.flow import Hook, NewFlow, NewStep, When
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.store.records.operating import Filter
from support.store.storing import ended, lease, new_job, succeeded

EVENTS = {
    "success": Hook.SUCCESS,
    "failure": Hook.FAILURE,
    "finish": Hook.FINISH,
}


def step(number, *after, when=When.SUCCEEDED, name=None, **more):
    """Return a step after others, each as *when* says or as in ``(number, when)``."""
    edges = [one if isinstance(one, tuple) else (one, when) for one in after]
    return NewStep(number=number, name=name or f"s{number}", after=tuple(edges), **more)


def new_flow(*steps, name="order", **more):
    """Return a flow."""
    return NewFlow(name=name, steps=steps, **more)


def member(number, **options):
    """Return a member of a step; its arguments say which."""
    return number, new_job(payload=b'{"step":%d}' % number, **options)


def store_flow(store, *steps, members=None, job=None, **more):
    """Store a flow with one member a step, or as many as *members* says.

    Args:
        store: where.
        steps: its steps.
        members: how many, by number; those that are not named have one.
        job: options of each job.
        more: of the flow.

    Returns:
        Its id.
    """
    counts = members or {}
    given = [
        member(one.number, **(job or {}))
        for one in steps
        for _ in range(counts.get(one.number, 1))
    ]
    return store.enqueue_flow(new_flow(*steps, **more), given).id


def settle_all(store, deadly=(), limit=1000):
    """Lease all that may begin, and end it; return the numbers of its steps, in order.

    Args:
        store: where.
        deadly: members of these steps die; others succeed.
        limit: so many jobs at most.
    """
    leases = lease(store, limit=limit)
    numbers = [store.flow_of(one.id).number for one in leases]
    ends = [
        died(one) if number in deadly else succeeded(one)
        for one, number in zip(leases, numbers, strict=True)
    ]
    store.settle(ends)
    return sorted(numbers)


def died(granted):
    """What the accounting point makes of an attempt that gave up."""
    return ended(granted, Outcome.FAILED, give_up=True)


def run_to_end(store, deadly=(), rounds=100):
    """Let members run until none may begin any more; return the steps of each round."""
    found = []
    for _ in range(rounds):
        if not (numbers := settle_all(store, deadly)):
            return found
        found.append(numbers)
    raise AssertionError(f"members began in each of {rounds} rounds: {found}")


def states(store, flow_id):
    """Return the states of a flow's steps, in order of their numbers."""
    return [str(one.state) for one in store.flow(flow_id).steps]


def state(store, flow_id):
    """Return a flow's state."""
    return str(store.flow(flow_id).row.state)


def jobs_of(store, flow_id, number):
    """Return the members of a step, in order."""
    found = store.find(Filter(flow=flow_id), limit=100_000)
    return [job for job in reversed(found) if store.flow_of(job.id).number == number]


def only(store, flow_id, number):
    """Return the one member of a step."""
    (job,) = jobs_of(store, flow_id, number)
    return job


def unfinished(store, flow_id):
    """Return the states of a flow's members that have not ended."""
    found = store.find(Filter(flow=flow_id), limit=100_000)
    return [job.state for job in found if job.finished_at_ms is None]


WAITING, RUNNABLE = JobState.WAITING, JobState.RUNNABLE
