"""jobpool works from an archive, as zipapp makes them: its SQL is found there too."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jobpool

APP = """
import jobpool
print(jobpool.__file__)
jobs = jobpool.JobPool()

@jobs.job("cpu", kind="double")
def double(number: int) -> int:
    return 2 * number
"""


def test_a_job_is_stored_and_run_from_an_archive(tmp_path):
    """Supervisor, zygote and child import it from there."""
    package, copy = Path(jobpool.__file__).parent, tmp_path / "copy"
    # Compiled modules come and go there while other processes import.
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(package, copy / package.name, ignore=ignored)
    archive = shutil.make_archive(str(tmp_path / "all"), "zip", copy)
    (tmp_path / "jobs.py").write_text(APP)
    environment = {**os.environ, "PYTHONPATH": archive}

    def python(*arguments):
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=120,  # it compiles all of it, again and again
        )
        return done.stdout

    said = python("-c", "import jobs; print(jobs.double.enqueue(21).id)")
    assert archive in said
    python("-m", "jobpool", "--pools", "cpu=1", "--burst")
    assert "succeeded" in python("-m", "jobpool", "show", said.split()[-1])
