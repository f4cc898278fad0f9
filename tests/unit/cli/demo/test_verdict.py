"""The demo's sums and its verdict on itself."""

import hashlib

import msgspec
import pytest

from jobpool.cli.demo.app import HASH, PARSE
from jobpool.cli.demo.cases import BY_KIND, CASES
from jobpool.cli.demo.handlers import Hashed, Module
from jobpool.cli.demo.verdict import checksum, judge, judged, problems
from jobpool.core.jobs.job import Attempt, Job, JobState
from jobpool.core.jobs.outcome import Outcome

NULL = "hostile.null_pointer"


def job(job_id, kind, state=JobState.SUCCEEDED, **given):
    fields = dict.fromkeys(Job.__struct_fields__)
    fields |= {
        "id": job_id,
        "kind": kind,
        "pool": "cpu",
        "state": state,
        "attempt": 1,
        "failures": 0,
        "crashes": 0,
        "interruptions": 0,
        "recoveries": 0,
        "outcome": Outcome.SUCCEEDED,
        "cancel_requested": False,
    }
    return Job(**(fields | given))


def attempt(number, outcome, **given):
    fields = dict.fromkeys(Attempt.__struct_fields__)
    fields |= {"attempt": number, "token": number, "outcome": outcome}
    fields |= {"started_at_ms": 0, "finished_at_ms": 1}
    return Attempt(**(fields | given))


def parsed(job_id, size, **given):
    result = Module(bytes=size, lines=2, compressed_bytes=1, functions=3)
    return job(job_id, PARSE, result=msgspec.json.encode(result), **given)


def hashed(job_id, lines, **given):
    result = Hashed(bytes=10, lines=lines)
    return job(job_id, HASH, result=msgspec.json.encode(result), **given)


def null_pointer(job_id=9, **given):
    fields = {
        "state": JobState.QUARANTINED,
        "outcome": Outcome.CRASHED,
        "attempt": 3,
        "failures": 3,
        "crashes": 3,
    }
    return job(job_id, NULL, **(fields | given))


CRASHES = [attempt(n, Outcome.CRASHED, signal=11) for n in (1, 2, 3)]


def said(jobs, attempts, *, expected, left=()):
    return problems(judge(jobs, attempts), expected_jobs=expected, left=left)


def test_modules_are_added_up_field_by_field():
    """Sizes, lines and functions of all modules are summed, and counted as files."""
    found = judge([parsed(1, 100), parsed(2, 50)], {}).modules
    assert found == Module(files=2, bytes=150, lines=4, compressed_bytes=2, functions=6)


def test_checksum_is_of_all_lines_in_the_order_of_storage():
    """The store lists the newest first; sha256sum saw the oldest first."""
    found = judge([hashed(2, "b  y\nc  z\n"), hashed(1, "a  x\n")], {}).packages
    whole = hashlib.sha256(b"a  x\nb  y\nc  z\n").hexdigest()
    assert (found.lines.count("\n"), found.bytes) == (3, 20)
    assert checksum(found) == whole


def test_a_demo_without_problems_reports_none():
    """An honest job that succeeded and a contained hostile one: nothing to report."""
    jobs = [parsed(1, 1), null_pointer()]
    assert said(jobs, {9: CRASHES}, expected=2) == []


@pytest.mark.parametrize(
    ("jobs", "expected", "word"),
    [
        ([parsed(1, 1)], 2, "2 jobs were stored"),
        ([parsed(1, 1), job(2, "stranger")], 1, "1 others"),
        ([parsed(1, 1, state=JobState.DEAD)], 1, "did not succeed"),
        ([parsed(1, 1, failures=1, attempt=2)], 1, "were blamed"),
        ([parsed(1, 1, crashes=1, attempt=2)], 1, "were blamed"),
        ([parsed(1, 1, attempt=2)], 1, "second attempt"),
        ([null_pointer(state=JobState.DEAD)], 1, "hostile.null_pointer (job 9)"),
    ],
)
def test_every_unexpected_end_is_named(jobs, expected, word):
    """A missing, unknown, failed, blamed, repeated or uncontained job is a problem."""
    assert word in "; ".join(said(jobs, {9: CRASHES}, expected=expected))


def test_a_process_that_is_left_is_a_problem():
    """No process may be left, and one that is left is named."""
    assert said([parsed(1, 1)], {}, expected=1, left=[4711]) == [
        "processes are left: 4711"
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"state": JobState.DEAD},
        {"outcome": Outcome.FAILED},
        {"failures": 2},
    ],
)
def test_hostile_job_that_ended_otherwise_is_not_contained(given):
    """State, outcome and the number of failures must all be as expected."""
    assert judged(null_pointer(), CRASHES).is_contained
    assert not judged(null_pointer(**given), CRASHES).is_contained


def test_every_attempt_of_a_hostile_job_must_end_as_expected():
    """An attempt that timed out, or went down with its supervisor, does not count."""
    for other in (Outcome.TIMED_OUT, Outcome.LOST):
        strange = [*CRASHES[:2], attempt(3, other)]
        assert not judged(null_pointer(), strange).is_contained


def test_the_peak_is_that_of_the_hungriest_attempt():
    """Not only the last attempt's memory is reported."""
    past = [attempt(1, Outcome.CRASHED, peak_rss_bytes=900), *CRASHES[1:]]
    assert judged(null_pointer(peak_rss_bytes=5), past).peak_rss_bytes == 900


def test_kinds_of_cases_are_different_and_expect_what_can_be():
    """A case that must not succeed says how many failures it takes."""
    assert len(BY_KIND) == len(CASES)
    for case in CASES:
        has_succeeded = case.end.state is JobState.SUCCEEDED
        assert has_succeeded == (case.end.outcome is Outcome.SUCCEEDED)
        assert has_succeeded == (case.end.failures == 0) == bool(case.held)
