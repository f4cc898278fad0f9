"""Many jobs that differ in their payloads only, as one thing to look at.

When a thousand jobs come at once, they are nearly always alike: what holds for one of
them holds for all, and to make, check and compare a record of each would take longer
than to store it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import attrgetter, is_
from typing import overload

from msgspec.structs import replace

from jobpool.core.jobs.job import NewJob

_COMMON = [attrgetter(n) for n in NewJob.__struct_fields__ if n != "payload"]


class AlikeJobs(Sequence[NewJob]):
    """Jobs that differ in their payloads only; otherwise a sequence as any other.

    Args:
        pattern: what they have in common; its own payload does not count.
        payloads: the jobs', in order.
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
    def __getitem__(self, at: slice) -> AlikeJobs: ...
    def __getitem__(self, at: int | slice) -> NewJob | AlikeJobs:
        if isinstance(at, slice):
            return AlikeJobs(self.pattern, self.payloads[at])
        return replace(self.pattern, payload=self.payloads[at])

    def __iter__(self) -> Iterator[NewJob]:
        return (replace(self.pattern, payload=one) for one in self.payloads)


def as_alike(jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """Return jobs as `AlikeJobs` if that is what they are, else as they came.

    To be equal would not do: True is 1, and is refused where 1 is not.
    """
    if isinstance(jobs, AlikeJobs) or not jobs:
        return jobs
    first = jobs[0]
    if all(all(map(is_, map(get, jobs), repeat(get(first)))) for get in _COMMON):
        return AlikeJobs(first, payloads_of(jobs))
    return jobs


def payloads_of(jobs: Sequence[NewJob]) -> Sequence[bytes]:
    """Return the payloads of jobs, in order."""
    if isinstance(jobs, AlikeJobs):
        return jobs.payloads
    return [job.payload for job in jobs]


def one_of_each(jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """Return those that must be looked at to have seen all but the payloads."""
    return jobs[:1] if isinstance(jobs, AlikeJobs) else jobs
