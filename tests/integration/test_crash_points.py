"""Every crash point, and power cuts: a sample in each run, and that it can fail.

`scripts/crash-points` without arguments takes all of them.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import crash_filter
import crash_point
import power_cut
from crash_operations import OPERATIONS
from crash_preparations import open_at

TOP = Path(__file__).parents[2]
POINTS, POWER_CUTS, MOVES = 2000, 200, 30
pytestmark = pytest.mark.skipif(
    not crash_filter.is_available(),
    reason="this kernel or architecture cannot tell a parent of system calls "
    "(seccomp user notification)",
)


@pytest.mark.timeout(900)
def test_the_state_is_old_or_new_wherever_an_operation_is_hit():
    """And all that was acknowledged is there; each run has its own seed (a minute)."""
    seed = os.environ.get(
        "JOBPOOL_CRASH_SEED", str(random.SystemRandom().getrandbits(32))
    )
    run = subprocess.run(
        [
            sys.executable,
            TOP / "scripts/lib/crash_points.py",
            f"--points={POINTS}",
            f"--power-cuts={POWER_CUTS}",
            f"--moves={MOVES}",
            f"--seed={seed}",
            "--json",
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(TOP / "tests")},
    )
    assert run.stderr == "", f"seed {seed}"
    page = json.loads(run.stdout)
    assert page["problems"] == [], f"seed {seed}"
    assert (run.returncode, page["violations"]) == (0, 0)
    assert (page["points"], page["power_cuts"]) == (POINTS, POWER_CUTS)
    assert page["moves"] == MOVES
    assert page["by_operation"].keys() == OPERATIONS.keys()
    assert page["points_met"] >= POINTS * 0.99
    assert page["errors_reported"] >= POINTS * 0.1
    assert {"SIGKILL", "EIO", "ENOSPC", "EINTR", "ENOMEM", "EMFILE"} <= set(
        page["faults"]
    )


def test_a_store_that_does_not_sync_is_found_out(monkeypatch):
    """What it acknowledged is lost when the power fails."""

    def open_carelessly(directory):
        store = open_at(directory)
        connection = store._database._session.connection
        connection.execute("PRAGMA synchronous = OFF").fetchall()
        return store

    monkeypatch.setattr(crash_point, "open_at", open_carelessly)
    power_cut.record.cache_clear()
    try:
        cuts = power_cut.cuts_of(["enqueue"], 60, random.Random(1))
        problems = [power_cut.cut_the_power(cut) for cut in cuts]
    finally:
        power_cut.record.cache_clear()
    assert any("not step" in (problem or "") for problem in problems)


def test_an_acknowledgement_before_the_commit_is_found_out(monkeypatch):
    """A child that is killed in between has promised too much."""
    plain = crash_filter.tell
    operation = OPERATIONS["enqueue"]

    def boast(store, given):
        plain(crash_point.DONE, 0)
        return operation.steps[0](store, given)

    hasty = operation._replace(steps=(boast, *operation.steps[1:]))
    points = list(crash_point.points_of("enqueue"))
    monkeypatch.setitem(OPERATIONS, "enqueue", hasty)
    kills = [p for p in points if p.error == crash_point.KILLED][:20]
    assert any(crash_point.run_point(point).problem for point in kills)
