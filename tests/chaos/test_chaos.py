"""A short chaos run on each store: real processes, a seeded nemesis, every account.

It costs about 45 s on each. ``JOBPOOL_CHAOS_SEED`` picks another seed, and
``scripts/chaos`` runs for longer. What a run has seen is in its output.

Bugs that chaos has found in jobpool, each with a test of its own since:

==========  ==========  ==============================  ==============================
store       seed        cause                           mend
==========  ==========  ==============================  ==============================
sqlite      2           no descriptor at the start was  `cli.root`: told in one line,
                        reported as a bug of jobpool    exit code 1
sqlite      4           no thread at the start: the     the same
                        same
postgresql  11          no descriptor for a new         `postgres.connecting`: it is
                        connection: OSError ended the   an outage like others, and is
                        store thread, the supervisor    waited for
                        stopped
both        12          no descriptor while it runs:    `sandbox.tree`, `children`,
                        looking at a tree or at memory  `watch`: the root is killed,
                        ended the supervisor            the rest waits until one can
                                                        look
sqlite      12          no descriptor for its lock: a   `sandbox.rundirectory`: removed
                        run directory and a temporary   by name
                        one stayed for ever
==========  ==========  ==============================  ==============================
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SEED = os.environ.get("JOBPOOL_CHAOS_SEED", "20261122")
MINUTES = "0.4"


@pytest.mark.timeout(280)
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
        timeout=270,
    )
    print(f"JOBPOOL_CHAOS_SEED={SEED}\n{done.stdout}{done.stderr}")
    assert done.returncode == 0
    assert "history check: passed" in done.stdout
