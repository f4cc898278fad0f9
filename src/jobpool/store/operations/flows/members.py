"""Members of flows: what is stored of them besides what is stored of any job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from jobpool.core.jobs.flow import NewFlow
from jobpool.core.jobs.job import JobState, NewJob
from jobpool.errors import UsageError
from jobpool.store.operations.enqueue import job_rows
from jobpool.store.statements.validation import unfit_for_flow


class Member(NamedTuple):
    """A job, and its place in a flow."""

    job: NewJob
    step: int
    """The row of its step."""
    generation: int
    is_open: bool
    """It does not wait for other steps."""
    added_by: int | None = None
    """The member that has added it while it ran."""


def member_rows(members: Sequence[Member], now_ms: int) -> list[tuple[Any, ...]]:
    """Return the rows of members: as `job_rows`, then step, generation and adder."""
    rows, _ = job_rows([member.job for member in members], now_ms)
    return [
        (
            *row[:2],
            row[2] if member.is_open else JobState.WAITING,
            *row[3:],
            member.step,
            member.generation,
            member.added_by,
        )
        for row, member in zip(rows, members, strict=True)
    ]


def checked_members(
    flow: NewFlow, members: Iterable[tuple[int, NewJob]]
) -> Iterator[tuple[int, NewJob]]:
    """Yield members as they are given.

    Raises:
        UsageError: a member has an option that goes with no flow, or is of a step that
            does not exist; or an external step has not just one.
    """
    external = {step.number for step in flow.steps if step.external}
    seen: Counter[int] = Counter()
    for number, job in members:
        if problem := _problem(flow, number, job):
            raise UsageError(f"{job.kind}: {problem}; nothing was stored")
        if number in external:
            seen[number] += 1
        yield number, job
    for number in external:
        if seen[number] != 1:
            raise UsageError(
                f"step {number} is external and has one member, got {seen[number]}; "
                "nothing was stored"
            )


def _problem(flow: NewFlow, number: int, job: NewJob) -> str | None:
    if type(number) is not int or not 0 <= number < len(flow.steps):
        return f"a member of step {number!r}, which the flow does not have"
    return unfit_for_flow(job)
