"""Tests of other projects, run as they are by a Python that they work with.

Packages and tests come from PyPI, once, into the environment that our tests run in.
Where that cannot be, the tests that need them are left out and say so: they are never
counted as passed.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import jobpool

DJANGO, TASKS_DB = "django==6.1.3", "django-tasks-db==0.13.0"
FETCH_S_MAX = 120
RUN_S_MAX = 400
LEAST = (3, 12)
"""Django 6 needs it."""
_NEEDED = ("click", "cronsim", "dill", "jsonschema", "msgspec", "psutil", "rich")
"""What jobpool itself needs."""
_BUILDER = "setuptools"
"""What pip builds their metadata with; one of its own for each costs seconds."""
_SOURCES = Path(jobpool.__file__).parents[1]
JUDGES = Path(__file__).parents[2] / "integration" / "django" / "judges"


class Judges:
    """An interpreter, its packages, and unpacked source distributions.

    Args:
        python: the interpreter.
        place: where the others are.
    """

    def __init__(self, python, place):
        self.python = python
        self.place = place

    def run(self, shim, folder, *labels, path, **more):
        """Run tests; return how many there were, and which failed, and why.

        Args:
            shim: the module that puts our backend in their places.
            folder: of their data.
            labels: what to test.
            path: where modules of tests are, below `place`.
            more: variables of its environment.
        """
        tests = [self.place / one for one in path]
        where = [JUDGES, self.place / "lib", *tests, _SOURCES]
        mine = {k: v for k, v in os.environ.items() if not k.startswith("JOBPOOL_")}
        done = subprocess.run(
            [self.python, str(JUDGES / "judge.py"), shim, *labels],
            env=mine
            | {
                "JUDGES": str(folder),
                "DJANGO_SETTINGS_MODULE": "judge_settings",
                "PYTHONPATH": os.pathsep.join(map(str, where)),
                # Each of its processes would compile Django and jobpool for itself.
                "PYTHONDONTWRITEBYTECODE": "",
                "PYTHONPYCACHEPREFIX": str(self.place / "compiled"),
                **more,
            },
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=RUN_S_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])


def judges(*packages):
    """Return what runs tests that come with packages such as ``django==6.1.3``."""
    python = _interpreter()
    name = "-".join(packages).replace("==", "-")
    place = Path(sys.prefix, "tools", f"{name}-{Path(python).resolve().name}")
    place.parent.mkdir(exist_ok=True)
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several workers may want it
        if not (place / "whole").exists():
            shutil.rmtree(place, ignore_errors=True)
            _fetch(python, place, packages)
            (place / "whole").touch()
    return Judges(python, place)


def _interpreter():
    """Return a Python that is new enough: ours, one on PATH, or one of pyenv."""
    if sys.version_info >= LEAST:
        return sys.executable
    named = [shutil.which(f"python3.{minor}") for minor in (14, 13, 12)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = sorted(pyenv.glob("3.1[2-9].*/bin/python"), reverse=True)
    for python in (*filter(None, named), *map(str, found)):
        works = subprocess.run(
            [python, "-c", "import sys, pip; sys.exit(sys.version_info < (3, 12))"],
            capture_output=True,
            check=False,
        )
        if works.returncode == 0:
            return python
    pytest.skip(
        "NOT CHECKED: Django 6 needs Python 3.12 or newer, which is neither on PATH "
        f"nor in {pyenv}"
    )


def _fetch(python, place, packages):
    """Install packages, and unpack what their tests are in."""
    pip = [python, "-m", "pip", "-q", "--disable-pip-version-check"]
    lib = place / "lib"
    sources = ("--no-deps", "--no-binary", ":all:", "--no-build-isolation")
    for words in (
        ("install", "--no-compile", "--target", lib, _BUILDER, *_NEEDED, *packages),
        ("download", *sources, "-d", place, *packages),
    ):
        try:
            subprocess.run(
                [*pip, *map(str, words)],
                env={**os.environ, "PYTHONPATH": str(lib)},
                check=True,
                capture_output=True,
                timeout=FETCH_S_MAX,
            )
        except subprocess.SubprocessError as exc:
            said = getattr(exc, "stderr", b"") or b""
            pytest.skip(
                f"NOT CHECKED: {', '.join(packages)} could not be fetched: {exc} "
                f"{said.decode(errors='replace')[-300:]}"
            )
    for archive in place.glob("*.tar.gz"):
        with tarfile.open(archive) as tar:
            members = [one for one in tar if "/tests/" in one.name]
            tar.extractall(place, members, filter="data")
        archive.unlink()
