"""An environment for each system that jobpool is measured beside, made at first use.

They lie in a cache directory, ``$XDG_CACHE_HOME/jobpool-peers``, and can be removed at
any time. Versions are exact, so that two runs compare the same things.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES: dict[str, tuple[str, ...]] = {
    "celery": ("celery==5.7.0", "redis", "packaging"),
    "rq": ("rq==2.12.0", "redis"),
    "huey": ("huey==3.5.4",),
    "pgqueuer": ("pgqueuer[asyncpg]==1.6.0",),
    "pebble": ("pebble==5.2.3",),
    "loky": ("loky==3.7.0",),
}
"""A system that is not here needs nothing but what jobpool has itself."""
NEEDS_REDIS = ("celery", "rq")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
INSTALL_S_MAX = 600


class NotMeasured(Exception):
    """A system cannot be measured here; the text says why."""


def python_of(system: str) -> str:
    """Return the Python of a system's own environment; make it at the first use.

    Raises:
        NotMeasured: there is no Redis server, or a package cannot be installed.
    """
    if system in NEEDS_REDIS:
        _want_redis()
    if system not in PACKAGES:
        return sys.executable
    place = CACHE / "jobpool-peers" / system
    python, stamp = place / "bin" / "python", place / "made"
    wanted = " ".join(PACKAGES[system])
    if stamp.exists() and stamp.read_text() == wanted and python.exists():
        return str(python)
    print(f"bench: making an environment for {system} …", file=sys.stderr)
    _run(sys.executable, "-m", "venv", "--clear", str(place))
    _run(str(python), "-m", "pip", "install", "-qq", *PACKAGES[system])
    stamp.write_text(wanted)
    return str(python)


def _want_redis() -> None:
    if shutil.which("redis-server"):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise NotMeasured("there is no redis-server, and only root can install it")
    print("bench: installing redis-server …", file=sys.stderr)
    # Its service is not wanted: every measurement starts a server of its own.
    _run("apt-get", "install", "-qq", "-y", "--no-install-recommends", "redis-server")


def _run(*words: str) -> None:
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=INSTALL_S_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotMeasured(f"{words[0]} took over {INSTALL_S_MAX} s") from None
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise NotMeasured(f"{' '.join(words[:4])} … failed: {last}")
