"""The demo's sums and its judgement of itself."""

import hashlib

import msgspec
import pytest

from jobpool.cli.demo.app import HASH, PARSE
from jobpool.cli.demo.cases import BY_KIND, CASES
from jobpool.cli.demo.honest import Hashed, Module
from jobpool.cli.demo.summary import grouped
from jobpool.cli.demo.tally import judged, problems, tally
from jobpool.core.job import Attempt, Job, JobState
from jobpool.core.outcome import Outcome

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


def said(jobs, attempts, *, expected, resumed=False, left=()):
    found = tally(jobs, attempts)
    return problems(found, expected_jobs=expected, resumed=resumed, left=left)


def test_modules_are_added_up_field_by_field():
    """Sizes, lines and functions of all modules are summed, and counted as files."""
    found = tally([parsed(1, 100), parsed(2, 50)], {}).modules
    assert found == Module(files=2, bytes=150, lines=4, compressed_bytes=2, functions=6)


def test_checksum_is_of_all_lines_in_the_order_of_storage():
    """The store gives the newest first; sha256sum saw the oldest first."""
    found = tally([hashed(2, "b  y\nc  z\n"), hashed(1, "a  x\n")], {}).packages
    whole = hashlib.sha256(b"a  x\nb  y\nc  z\n").hexdigest()
    assert (found.files, found.bytes, found.sha256) == (3, 20, whole)


def test_all_well_is_no_problem():
    """An honest job that succeeded and a contained hostile one: nothing to say."""
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
def test_whatever_is_not_as_it_must_be_is_named(jobs, expected, word):
    """A missing, strange, failed, blamed, repeated or uncontained job is a problem."""
    assert word in "; ".join(said(jobs, {9: CRASHES}, expected=expected))


def test_second_attempt_is_fine_after_a_resume():
    """A supervisor that died over an honest job explains its second attempt."""
    assert said([parsed(1, 1, attempt=2)], {}, expected=1, resumed=True) == []


def test_process_that_is_left_is_a_problem():
    """Nothing may be left, and what is left is named."""
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
    assert judged(null_pointer(), CRASHES).contained
    assert not judged(null_pointer(**given), CRASHES).contained


def test_every_attempt_of_a_hostile_job_must_end_as_expected():
    """One attempt that timed out instead of crashing is no containment."""
    strange = [*CRASHES[:2], attempt(3, Outcome.TIMED_OUT)]
    assert not judged(null_pointer(), strange).contained


def test_lost_attempts_do_not_count_against_containment():
    """An attempt that went down with its supervisor says nothing about the handler."""
    lost = [attempt(1, Outcome.LOST), *CRASHES]
    found = judged(null_pointer(attempt=4), lost)
    assert (found.contained, found.signal, found.attempts) == (True, 11, 4)


def test_peak_is_that_of_the_hungriest_attempt():
    """Not only the last attempt's memory is reported."""
    past = [attempt(1, Outcome.CRASHED, peak_rss_bytes=900), *CRASHES[1:]]
    assert judged(null_pointer(peak_rss_bytes=5), past).peak_rss_bytes == 900


def test_jobs_that_ended_alike_share_a_row():
    """Two of a kind are one row, unless one of them was not contained."""
    good = [judged(null_pointer(n), CRASHES) for n in (1, 2)]
    bad = judged(null_pointer(3, state=JobState.DEAD), CRASHES)
    assert [len(alike) for alike in grouped([*good, bad])] == [2, 1]


def test_kinds_of_cases_are_different_and_expect_what_can_be():
    """A case that must not succeed says how many failures it spends."""
    assert len(BY_KIND) == len(CASES)
    for case in CASES:
        has_succeeded = case.state is JobState.SUCCEEDED
        assert has_succeeded == (case.outcome is Outcome.SUCCEEDED)
        assert has_succeeded == (case.failures == 0) == bool(case.held)
