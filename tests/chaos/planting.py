"""Plants known bugs in a copy of jobpool's source and sees whether chaos finds them."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import jobpool
from chaos.plants import PLANTS

STORM_MINUTES = 0.4
RUN_S_MAX = 300
SOURCE = Path(jobpool.__file__).parent


class Faded(Exception):
    """What a plant replaces is not in the source exactly once."""


def sow(plant, source):
    """Change a copy of the source.

    Raises:
        Faded: the plant is older than the source; it was changed only in part.
    """
    for edit in plant.edits:
        path = source / edit.file
        text = path.read_text()
        if text.count(edit.old) != 1:
            raise Faded(
                f"{plant.name}: {edit.old!r} stands {text.count(edit.old)} times in "
                f"{edit.file}, expected once; bring the plant up to date"
            )
        path.write_text(text.replace(edit.old, edit.new))


def hunt(options):
    """Plant one bug after the other; return 0 if all are found."""
    wanted = [p for p in PLANTS if options.planted in {"all", p.name}]
    missed = []
    for plant in wanted:
        seen = find(plant, options)
        rules = ", ".join(f"{rule} x{n}" for rule, n in sorted(seen.items()))
        is_found = bool(plant.breaks & set(seen))
        verdict = "found" if is_found else "MISSED"
        print(f"{plant.name:<58} {verdict}: {rules or 'nothing'}", flush=True)
        missed += [] if is_found else [plant.name]
    print(f"planted {len(wanted)}, found {len(wanted) - len(missed)}")
    return 1 if missed or not wanted else 0


def find(plant, options):
    """Return how often each rule was seen broken with a bug planted."""
    with tempfile.TemporaryDirectory(prefix="jobpool-planted-") as name:
        source = Path(name, "jobpool")
        shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
        sow(plant, source)
        out = Path(name, "out.json")
        words = ["--minutes", str(STORM_MINUTES), "--seed", str(options.seed)]
        words += ["--calm", "2", "--json", str(out), "--drain", "30"]
        done = subprocess.run(
            [sys.executable, "-m", "chaos", *words],
            env=os.environ
            | {"PYTHONPATH": f"{name}:{os.environ.get('PYTHONPATH', '')}"},
            capture_output=True,
            text=True,
            timeout=RUN_S_MAX,
            check=False,
        )
        if not out.exists():
            raise RuntimeError(f"{plant.name}: no verdict:\n{done.stdout}{done.stderr}")
        values = json.loads(out.read_text())
        return Counter(violation["rule"] for violation in values["violations"])
