"""A short chaos run on each store: real processes, a seeded nemesis, every account.

A storm of 15 s on each, in which each sort of blow falls at least once.
``JOBPOOL_CHAOS_SEED`` picks another seed, and ``scripts/chaos`` runs for longer. What a
run has seen is in its output.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SEED = os.environ.get("JOBPOOL_CHAOS_SEED", "20261122")
MINUTES = "0.25"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_nothing_is_lost_and_nobody_blamed(store):
    """I1 to I19, as far as witnesses outside of jobpool can tell."""
    words = ["--store", store, "--seed", SEED, "--minutes", MINUTES, "--calm", "2"]
    paths = [str(TESTS), *os.environ.get("PYTHONPATH", "").split(":")]
    done = subprocess.run(
        [sys.executable, "-m", "chaos", *words],
        env=os.environ | {"PYTHONPATH": ":".join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=False,
        timeout=580,
    )
    print(f"JOBPOOL_CHAOS_SEED={SEED}\n{done.stdout}{done.stderr}")
    assert done.returncode == 0
    assert "history check: passed" in done.stdout
