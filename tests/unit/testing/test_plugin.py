"""The fixtures of pytest, as a project has them that has jobpool installed."""

pytest_plugins = ["pytester"]

TESTS = """
import pytest
from jobpool import JobPool

jobs = JobPool()

@jobs.job("cpu", kind="double")
def double(n: int) -> int:
    if n < 0:
        raise ValueError("below 0")
    return 2 * n

def test_queue(jobpool_queue):
    job = double.enqueue(2)
    jobpool_queue.assert_enqueued(double.call(2))
    jobpool_queue.drain()
    assert job.result() == 4

def test_nothing_is_left_of_another_test(jobpool_queue):
    jobpool_queue.assert_not_enqueued()

def test_inline(jobpool_inline):
    assert double.enqueue(3).result() == 6
    with pytest.raises(ValueError, match="below 0"):
        double.enqueue(-1)

def test_fails(jobpool_queue):
    double.enqueue(2)
    jobpool_queue.assert_enqueued(double.call(5))
"""


def test_a_projects_tests_have_the_fixtures_and_see_their_messages(pytester):
    """Found by entry point; nothing is done for tests that do not ask."""
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess("-q", "-p", "no:xdist")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(
        [
            '*double{"n":5} was enqueued 0 times*',
            '*job 1: runnable double{"n":2}*',
        ]
    )
    assert not [line for line in result.outlines if "queue.py" in line]
