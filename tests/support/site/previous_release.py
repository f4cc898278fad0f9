"""The previous release, built from this repository's history, to run beside it."""

import compileall
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest

COMMIT = "5c045b6e6936d1ca7e814d705c0232a701a47e78"
"""The last commit before stores had formats: its code reads the schema's version when
it opens a store, and never again."""
ROOT = Path(__file__).parents[3]
_CACHE = Path(sys.prefix) / "previous-release" / f"{COMMIT[:12]}-compiled"
"""Beside the packages that it was built with; a few megabytes."""


def previous_release():
    """Return a folder with the previous release's package, for PYTHONPATH.

    It is what its wheel installs. Building it takes some seconds, once in each
    environment, and the package registry, which has its build tool.
    """
    if not _CACHE.exists():
        _CACHE.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_CACHE.parent) as folder:
            _build(Path(folder))
            # Several test processes may be here at once: the first one wins.
            try:
                (Path(folder) / "package").rename(_CACHE)
            except OSError:
                if not _CACHE.exists():
                    raise
    return _CACHE


def _build(folder):
    """Build the wheel, and unpack it into a folder's *package*."""
    given = ("git", "-C", str(ROOT), "archive", COMMIT)
    archive = subprocess.run(given, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(
            f"the history here does not reach back to {COMMIT[:7]} (a shallow clone?), "
            "from which the previous release is built; fetch all of it: "
            f"{archive.stderr.decode(errors='replace').strip()}"
        )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder / "source", filter="data")
    build = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps")
    where = ("--wheel-dir", str(folder / "wheel"), str(folder / "source"))
    env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    built = subprocess.run([*build, *where], env=env, capture_output=True, check=False)
    assert built.returncode == 0, built.stderr.decode(errors="replace")
    (wheel,) = (folder / "wheel").glob("jobpool-*.whl")
    with zipfile.ZipFile(wheel) as package:
        package.extractall(folder / "package")  # noqa: S202 - we have just built it
    # Else each of its processes compiles all of it for itself.
    compileall.compile_dir(folder / "package", quiet=2)
