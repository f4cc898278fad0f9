"""An environment for each system that jobpool is compared with, made at first use.

They are in ``$XDG_CACHE_HOME/jobpool-peers``, by name and installed packages, so that
two scripts may use two versions. They can be removed at any time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
INSTALL_S_MAX = 600


class NotMeasured(Exception):
    """A system cannot be measured here; the text says why."""


def environment(system: str, packages: Sequence[str]) -> str:
    """Return the Python of a system's environment, made at first use.

    Args:
        system: its name.
        packages: for pip to install; none: the standard library is enough.

    Raises:
        NotMeasured: it cannot be installed.
    """
    name = f"{system}-{zlib.crc32(' '.join(packages).encode()):08x}"
    place = CACHE / "jobpool-peers" / name
    python, stamp = place / "bin" / "python", place / "made"
    if stamp.exists() and python.exists():
        return str(python)
    print(f"making an environment for {system} …", file=sys.stderr)
    _run(sys.executable, "-m", "venv", "--clear", str(place))
    if packages:
        _run(str(python), "-m", "pip", "install", "-qq", *packages)
    stamp.touch()
    return str(python)


def want_redis() -> None:
    """Make sure that there is a Redis server; root gets it installed.

    Raises:
        NotMeasured: there is none.
    """
    if shutil.which("redis-server"):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise NotMeasured(
            "there is no redis-server, and only root can have it installed "
            "(apt-get install redis-server)"
        )
    print("installing redis-server …", file=sys.stderr)
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
