"""Plants a known bug in a copy of jobpool's source and lets chaos search for it."""

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from planted_bugs.sowing import sown

STORM_MINUTES = 0.4
RUN_S_MAX = 300
SEED = 20261122


def find(plant, seed=SEED):
    """Return how often each rule was seen broken with a bug planted."""
    words = ["--minutes", str(STORM_MINUTES), "--seed", str(seed)]
    words += ["--calm", "2", "--drain", "30", "--outage", str(plant.outage_s)]
    with tempfile.TemporaryDirectory() as name, sown(plant.edits) as environment:
        out = Path(name, "out.json")
        done = subprocess.run(
            [sys.executable, "-m", "chaos", *words, "--json", str(out)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=RUN_S_MAX,
            check=False,
        )
        if not out.exists():
            raise RuntimeError(f"{plant.name}: no verdict:\n{done.stdout}{done.stderr}")
        values = json.loads(out.read_text())
    return Counter(violation["rule"] for violation in values["violations"])
