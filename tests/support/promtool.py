"""Prometheus's own checker: from PATH, or from Debian's package, without root.

The package is fetched from the machine's own mirrors into the environment that the
tests run in, once. Where that cannot be done the tests that need it are left out, and
say so: they are never counted as passed.
"""

import fcntl
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

FETCH_S_MAX = 90
_PLACE = Path(sys.prefix) / "tools"


def run(*words, text=""):
    """Run promtool; return its exit code and all that it said."""
    done = subprocess.run(
        [promtool(), *map(str, words)],
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout


@cache
def promtool():
    """Return where it is; fetch it if it is nowhere."""
    if found := shutil.which("promtool"):
        return found
    place = _PLACE / "promtool"
    _PLACE.mkdir(exist_ok=True)
    with (_PLACE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several workers may want it
        if not place.exists():
            _fetch(place)
    return str(place)


def _fetch(place):
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        pytest.skip("NOT CHECKED: no promtool here, and no apt-get to fetch it with")
    with tempfile.TemporaryDirectory() as folder:
        lists, cache_ = Path(folder, "lists"), Path(folder, "cache")
        for one in (lists / "partial", cache_ / "archives" / "partial"):
            one.mkdir(parents=True)
        apt = [
            "apt-get",
            "-qq",
            *("-o", f"Dir::State::Lists={lists}", "-o", f"Dir::Cache={cache_}"),
            *("-o", "APT::Sandbox::User=", "-o", "Debug::NoLocking=1"),
        ]
        try:
            for words in ((*apt, "update"), (*apt, "download", "prometheus")):
                subprocess.run(
                    words,
                    cwd=folder,
                    check=True,
                    capture_output=True,
                    timeout=FETCH_S_MAX,
                )
            (package,) = Path(folder).glob("prometheus_*.deb")
            subprocess.run(
                ["dpkg-deb", "--extract", package, folder],
                check=True,
                capture_output=True,
                timeout=FETCH_S_MAX,
            )
        except (subprocess.SubprocessError, ValueError) as exc:
            said = getattr(exc, "stderr", b"") or b""
            pytest.skip(
                "NOT CHECKED: promtool could not be fetched (put it on PATH): "
                f"{exc} {said.decode(errors='replace')[-300:]}"
            )
        shutil.move(Path(folder, "usr/bin/promtool"), place)
