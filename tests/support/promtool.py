"""Prometheus's own checker: from PATH, or from Debian's package."""

import shutil
import subprocess
from functools import cache

from support.debian import unpacked


def run(*words, text=""):
    """Run promtool; return its exit code and all that it said."""
    done = subprocess.run(
        [promtool(), *map(str, words)],
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,  # it judges all rules in 3 s on a processor of its own
        check=False,
    )
    return done.returncode, done.stdout


@cache
def promtool():
    """Return where it is; fetch it if it is nowhere."""
    if found := shutil.which("promtool"):
        return found
    return str(unpacked("prometheus", "prometheus", alone=True) / "usr/bin/promtool")
