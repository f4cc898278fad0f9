"""Stacks are shown where a test's time-out could not end it."""

import subprocess
import sys
from pathlib import Path

import pytest

from support import last_resort
from support.last_resort import AGAIN_S, LATE_S, LastResort

TESTS = Path(__file__).parents[2]
STUCK = """
import os, sys, time
from support.last_resort import LastResort
resort = LastResort(0.1, late_s=0.0, again_s=0.0)
os.dup2(os.open(os.devnull, os.O_RDWR), 2)
resort.pytest_runtest_setup(); time.sleep(60)
"""


@pytest.fixture
def waits(monkeypatch):
    """The waits that were begun or ended, instead of real ones."""
    found = []
    faults = last_resort.faulthandler
    monkeypatch.setattr(
        faults, "dump_traceback_later", lambda wait_s, file: found.append(wait_s)
    )
    monkeypatch.setattr(
        faults, "cancel_dump_traceback_later", lambda: found.append(None)
    )
    return found


def test_the_stacks_of_a_test_that_is_stuck_are_shown():
    """Where the session says things, though its standard error is captured."""
    with subprocess.Popen(
        [sys.executable, "-c", STUCK],
        cwd=TESTS,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert any('File "<string>", line 6' in line for line in process.stderr)
        finally:
            process.kill()


def test_the_wait_starts_over_while_tests_begin(waits, monkeypatch):
    """Often enough that no test has less time than it should have, and no oftener."""
    now_s = 1000.0
    monkeypatch.setattr(last_resort.time, "monotonic", lambda: now_s)
    one = LastResort(120.0)
    for now_s in (1000.0, 1001.0, 999.0 + AGAIN_S, 1000.0 + AGAIN_S):  # noqa: B007
        one.pytest_runtest_setup()
    assert waits == [120.0 + LATE_S + AGAIN_S] * 2
    one.pytest_unconfigure()
    assert waits[-1] is None
