"""A sample of crash points and power cuts; `scripts/crash-points` takes all of them."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.crash_points import filter as crash_filter
from support.crash_points.filter import GO_ON, Call
from support.crash_points.operations import OPERATIONS
from support.crash_points.point import Case, Point
from support.seeds import seed

TOP = Path(__file__).parents[3]
POINTS, POWER_CUTS, MOVES = 70, 35, 12
pytestmark = pytest.mark.skipif(
    not crash_filter.is_available(),
    reason="this kernel or architecture cannot tell a parent of system calls "
    "(seccomp user notification)",
)


@pytest.mark.timeout(900)
def test_the_state_is_old_or_new_wherever_an_operation_is_hit():
    """And every acknowledged step is there."""
    begin = seed("JOBPOOL_CRASH_SEED")
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "checks.crash_points",
            f"--points={POINTS}",
            f"--power-cuts={POWER_CUTS}",
            f"--moves={MOVES}",
            f"--seed={begin}",
            "--json",
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{TOP}/scripts/lib:{TOP}/tests"},
    )
    assert run.stderr == "", f"seed {begin}"
    page = json.loads(run.stdout)
    assert page["problems"] == [], f"seed {begin}"
    assert (run.returncode, page["violations"]) == (0, 0)
    assert (page["points"], page["power_cuts"]) == (POINTS, POWER_CUTS)
    assert page["moves"] == MOVES
    assert page["by_operation"].keys() == OPERATIONS.keys()
    assert page["points_met"] >= POINTS * 0.99
    assert page["errors_reported"] >= POINTS * 0.1
    assert {"SIGKILL", "EIO", "ENOSPC", "EINTR", "ENOMEM", "EMFILE"} <= set(
        page["faults"]
    )


@pytest.mark.parametrize("forever", [False, True])
def test_only_calls_that_a_point_names_fail(forever):
    """Other calls between them succeed; releasing a lock never fails on a kernel."""
    point = Point("create", 2, "fcntl", errno.EIO, forever=forever)
    case = Case(point, Path())
    names = ["fcntl", "mmap", "unlock", "fcntl", "unlock", "fcntl"]
    decisions = [case.decide(Call(name, (), 1)) for name in names]
    later = errno.EIO if forever else GO_ON
    assert decisions == [GO_ON, GO_ON, GO_ON, errno.EIO, GO_ON, later]
    assert case.was_met
