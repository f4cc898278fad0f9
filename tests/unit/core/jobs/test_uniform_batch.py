"""Many jobs that differ only in their payloads, checked as one."""

from __future__ import annotations

from jobpool.core.jobs.job import NewJob
from jobpool.core.jobs.uniform_batch import (
    UniformJobs,
    as_uniform,
    payloads_of,
    representatives,
)


def job(payload: bytes, **options: object) -> NewJob:
    given = {"kind": "k", "pool": "cpu", "payload": payload, "max_attempts": 1}
    return NewJob(**{**given, **options})


def test_a_uniform_batch_is_the_sequence_of_its_jobs():
    """By index, slice, length and iteration they are the single jobs, in order."""
    jobs = [job(b"1"), job(b"2"), job(b"3")]
    alike = UniformJobs(job(b""), [b"1", b"2", b"3"])
    assert list(alike) == jobs
    assert len(alike) == len(jobs)
    assert alike[1] == jobs[1]
    assert alike[-1] == jobs[-1]
    assert isinstance(alike[1:], UniformJobs)
    assert list(alike[1:]) == jobs[1:]


def test_jobs_with_one_pattern_are_found_to_be_alike():
    """A list of such jobs is handled like a stream of them."""
    found = as_uniform([job(b"1"), job(b"2")])
    assert isinstance(found, UniformJobs)
    assert payloads_of(found) == [b"1", b"2"]
    assert [one.kind for one in representatives(found)] == ["k"]


def test_one_different_job_makes_all_of_them_be_checked():
    """The checks and rows are then made for each."""
    for other in (job(b"2", priority=7), job(b"2", key="a"), job(b"2", kind="other")):
        jobs = [job(b"1"), other]
        assert as_uniform(jobs) is jobs
        assert representatives(jobs) is jobs


def test_equal_fields_are_not_enough_to_be_alike():
    """True equals 1, and is refused where 1 is not: they must be told apart."""
    jobs = [job(b"1", max_attempts=1), job(b"2", max_attempts=True)]
    assert jobs[0].max_attempts == jobs[1].max_attempts
    assert as_uniform(jobs) is jobs
    assert as_uniform([]) == []
