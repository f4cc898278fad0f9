"""`manage.py jobpool --reload`: a supervisor that follows the code and ends with it."""

import os
import shutil
import signal
import subprocess

import psutil
import pytest

from support.site.django_project import PROJECT, Project
from support.waiting import wait_until

PATIENCE_S = 60
pytestmark = pytest.mark.timeout(300)  # it waits for several starts and ends


def test_a_change_of_code_starts_the_supervisor_anew(tmp_path):
    """The old one drains first. It ends with the command, also if that is killed."""
    here = tmp_path / "project"
    shutil.copytree(PROJECT, here, ignore=shutil.ignore_patterns("__pycache__"))
    site = Project(tmp_path)
    words = site.command("jobpool", "--reload", "--log-format", "json")
    words[1] = str(here / "manage.py")
    log = tmp_path / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            words, cwd=tmp_path, env=site.env, stdout=stream, stderr=stream
        )

    def is_said(event, times):
        assert process.poll() is None, log.read_text()
        return log.read_text().count(f'"event":"{event}"') >= times

    def is_changed_and_ends(file):
        # Times of files are compared, with those of a first look that comes some time
        # after the start; some file systems know only whole seconds.
        os.utime(file, (file.stat().st_mtime + 2,) * 2)
        return is_said("supervisor_stopped", 1)

    try:
        wait_until(lambda: is_said("supervisor_ready", 1), PATIENCE_S, "its start")
        letters = here / "shop" / "letters.py"
        letters.write_text(f"{letters.read_text()}\n# changed\n")
        wait_until(lambda: is_changed_and_ends(letters), PATIENCE_S, "its end")
        wait_until(lambda: is_said("supervisor_ready", 2), PATIENCE_S, "the next one")
        # It may see the last change of the file's time only now, and start once more.
        below = wait_until(
            lambda: psutil.Process(process.pid).children(recursive=True),
            PATIENCE_S,
            "its processes",
        )
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
    gone, alive = psutil.wait_procs(below, PATIENCE_S)
    assert gone
    assert not alive
