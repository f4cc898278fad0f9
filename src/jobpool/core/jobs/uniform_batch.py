"""Uniform batches: many jobs that differ only in their payloads.

When a thousand jobs come at once, they are nearly always alike. What holds for one
holds for all, and making, checking and comparing a record for each would take longer
than storing it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import attrgetter, is_
from typing import overload

from msgspec.structs import replace

from jobpool.core.jobs.job import NewJob

_COMMON = [attrgetter(n) for n in NewJob.__struct_fields__ if n != "payload"]


class UniformJobs(Sequence[NewJob]):
    """A sequence of jobs that differ only in their payloads.

    Args:
        pattern: what they have in common; its own payload is ignored.
        payloads: the jobs' payloads, in order.
    """

    __slots__ = ("pattern", "payloads")

    def __init__(self, pattern: NewJob, payloads: Sequence[bytes]) -> None:
        self.pattern = pattern
        self.payloads = payloads

    def __len__(self) -> int:
        return len(self.payloads)

    @overload
    def __getitem__(self, at: int) -> NewJob: ...
    @overload
    def __getitem__(self, at: slice) -> UniformJobs: ...
    def __getitem__(self, at: int | slice) -> NewJob | UniformJobs:
        if isinstance(at, slice):
            return UniformJobs(self.pattern, self.payloads[at])
        return replace(self.pattern, payload=self.payloads[at])

    def __iter__(self) -> Iterator[NewJob]:
        return (replace(self.pattern, payload=one) for one in self.payloads)


def as_uniform(jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """Return jobs as `UniformJobs` if they are uniform, else unchanged.

    Fields must be identical, not just equal: True equals 1, but only 1 is valid.
    """
    if isinstance(jobs, UniformJobs) or not jobs:
        return jobs
    first = jobs[0]
    if len(jobs) == 1 or all(
        all(map(is_, map(get, jobs), repeat(get(first)))) for get in _COMMON
    ):
        return UniformJobs(first, payloads_of(jobs))
    return jobs


def payloads_of(jobs: Sequence[NewJob]) -> Sequence[bytes]:
    """Return the jobs' payloads, in order."""
    if isinstance(jobs, UniformJobs):
        return jobs.payloads
    return [job.payload for job in jobs]


def representatives(jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """Return jobs that together show every field of all of them but the payloads."""
    return jobs[:1] if isinstance(jobs, UniformJobs) else jobs
