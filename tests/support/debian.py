"""Debian's packages without root: fetched and unpacked into the tests' environment.

From the machine's own mirrors, once for each environment. Where that cannot be done, CI
fails; on other machines the tests that need it are left out, and say so: they are never
counted as passed.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

FETCH_S_MAX = 100
TOOLS = Path(sys.prefix) / "tools"


def unpacked(name, *packages, alone=False):
    """Return the folder that holds packages.

    Args:
        name: of the folder.
        packages: of Debian.
        alone: without what else they need and the machine has not.
    """
    place = TOOLS / name
    TOOLS.mkdir(exist_ok=True)
    with (TOOLS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several workers may want it
        if not place.exists():
            _fetch(place, packages, alone)
    return place


def not_checked(why):
    """Leave a test out, loudly; in CI, fail it."""
    if "CI" in os.environ:
        pytest.fail(f"CI checks this, and cannot: {why}")
    pytest.skip(f"NOT CHECKED: {why}")


def _fetch(place, packages, alone):
    wanted = " ".join(packages)
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        not_checked(f"no {wanted} here, and no apt-get to fetch it with")
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        lists, cache, root = (Path(folder, one) for one in ("lists", "cache", "root"))
        for one in (lists / "partial", cache / "archives" / "partial", root):
            one.mkdir(parents=True)
        apt = [
            *("apt-get", "-qq", "--yes"),
            *("-o", f"Dir::State::Lists={lists}", "-o", f"Dir::Cache={cache}"),
            *("-o", "APT::Sandbox::User=", "-o", "Debug::NoLocking=1"),
            *("-o", "Acquire::Retries=3"),
        ]
        get = ("--download-only", "--reinstall", "--no-install-recommends", "install")
        archives = cache / "archives"
        try:
            _run(*apt, "update")
            _run(*apt, *(["download"] if alone else get), *packages, cwd=archives)
            for package in sorted(archives.glob("*.deb")):
                _run("dpkg-deb", "--extract", package, root)
        except (subprocess.SubprocessError, OSError) as exc:
            said = getattr(exc, "stderr", b"") or b""
            not_checked(
                f"{wanted} could not be fetched (put it on PATH): {exc} "
                f"{said.decode(errors='replace')[-300:]}"
            )
        root.rename(place)


def _run(*words, cwd=None):
    subprocess.run(words, cwd=cwd, check=True, capture_output=True, timeout=FETCH_S_MAX)
