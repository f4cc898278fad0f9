"""Rows of flows as a store returns them, made by hand."""

from jobpool.core.jobs.flow import Failure, FlowState, StepState, When
from jobpool.core.jobs.job import JobState
from jobpool.store.records.flows import FlowRow, StepRow

NOW_MS = 1_800_000_000_000


def flow_row(**more):
    """Return an open flow that was enqueued 20 s ago."""
    usual = {
        "id": 7,
        "name": "order",
        "key": "1042",
        "tenant": None,
        "state": FlowState.OPEN,
        "failure": Failure.FAIL,
        "ending": None,
        "generation": 1,
        "created_at_ms": NOW_MS - 20_000,
        "finished_at_ms": None,
    }
    return FlowRow(**usual | more)


def step_row(number, name, state=StepState.CLOSED, *after, jobs=None, **more):
    """Return a step; what is a number among *after* is an edge for success."""
    edges = [(one, When.SUCCEEDED) if isinstance(one, int) else one for one in after]
    usual = {
        "id": 100 + number,
        "failed": False,
        "hook": None,
        "external": False,
        "timeout_ms": None,
        "until_ms": None,
        "jobs": {JobState.WAITING: 1} if jobs is None else jobs,
        "first_job": 30 + number,
    }
    return StepRow(
        number=number, name=name, state=state, after=tuple(edges), **usual | more
    )


def done(number, name, *after, began_s, took_s, **more):
    """Return a step of one job that has succeeded."""
    began_ms = NOW_MS - round(began_s * 1000)
    usual = {"began_ms": began_ms, "ended_ms": began_ms + round(took_s * 1000)}
    jobs = {JobState.SUCCEEDED: 1}
    return step_row(number, name, StepState.DONE, *after, jobs=jobs, **usual | more)


def order_steps():
    """Return an order's steps: two have joined, and what they led to runs."""
    return [
        done(0, "charge", began_s=20, took_s=0.5),
        done(1, "reserve", 0, began_s=19, took_s=4),
        done(2, "invoice", 0, began_s=19, took_s=1),
        step_row(
            3,
            "ship",
            StepState.READY,
            1,
            2,
            jobs={JobState.LEASED: 1},
            began_ms=NOW_MS - 12_000,
        ),
        step_row(4, "mail", StepState.CLOSED, 3),
        step_row(5, "refund", StepState.CLOSED, (3, When.FAILED)),
    ]
