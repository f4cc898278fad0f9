"""On Windows and macOS: enqueueing and reading need nothing that is Linux's."""

import importlib.util
import sqlite3

import pytest

from jobpool import JobPool
from support.site.elsewhere import ALSO, run

HAS_TASKS = importlib.util.find_spec("django.tasks") is not None
"""Django's own, from Python 3.12 on."""

ENQUEUES = """
import sqlite3
from jobpool import JobPool
jobs = JobPool("sqlite:///jobs.db")

@jobs.job("cpu", kind="double")
def double(n: int) -> int:
    return 2 * n

first = double.enqueue(4)
rows = sqlite3.connect("jobs.db", isolation_level=None)
with jobs.transaction(rows):
    second = double.options(key="once", connection=rows).enqueue(5)
double.options(run_in="1h").enqueue(6)
print(first.state, second.state, jobs.count(), jobs.get(first.id).ref == first.ref)
print(jobs.cancel(second.id), [str(job.state) for job in jobs.list(double)])
jobs.close()
"""


@pytest.mark.parametrize("system", ["windows", "macos"])
def test_jobs_are_enqueued_read_and_canceled(system, tmp_path):
    done = run(system, ENQUEUES, cwd=tmp_path)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "runnable runnable 3 True",
        "True ['pending', 'canceled', 'runnable']",
    ]


WAITS = """
from jobpool import JobPool, StoreUnavailable
from jobpool.store.sqlite.connection import write_lock
write_lock.WAIT_S = 0.2
jobs = JobPool("sqlite:///jobs.db")

@jobs.job("cpu", kind="double")
def double(n: int) -> int:
    return 2 * n

try:
    double.enqueue(4)
except StoreUnavailable as exc:
    print(exc)
"""


def test_the_writers_lock_keeps_writers_out_on_windows_too(tmp_path):
    """There it is the lock of a byte; here both kinds exclude each other."""
    file = tmp_path / "jobs.db"
    jobs = JobPool(f"sqlite:///{file}")
    rows = sqlite3.connect(file, isolation_level=None)
    with jobs.transaction(rows):
        done = run("windows", WAITS, cwd=tmp_path)
    assert "another process has held the writers' lock" in done.stdout
    assert run("windows", WAITS, cwd=tmp_path).stdout == ""
    assert jobs.count() == 1
    rows.close()
    jobs.close()


WEB = """
import logging
from jobpool.integrations import dashboard, fernet, sentry
from jobpool.integrations.beside import Beside
from jobpool.integrations.django.backend import JobpoolBackend
from jobpool.integrations.starlette import answer_errors, lifespan, progress
logging.basicConfig(format="%(message)s")
beside = Beside()
beside.start()
beside.stop()
"""
PACKAGES = (
    "cryptography.fernet django.conf django_tasks sentry_sdk starlette.testclient"
)


@pytest.mark.parametrize("system", ["windows", "macos"])
def test_applications_start_and_are_told_that_no_supervisor_is_beside_them(
    system, tmp_path
):
    packages = PACKAGES.replace("django_tasks", "" if HAS_TASKS else "django_tasks")
    done = run(system, WEB, cwd=tmp_path, env={ALSO: packages})
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Run `jobpool dev` in another terminal" in done.stderr
    assert done.returncode == 0


COMMANDS = """
from click.testing import CliRunner
from jobpool import JobPool
from jobpool.cli.root import cli

jobs = JobPool("sqlite:///jobpool.db")

@jobs.job("cpu", kind="double")
def double(n: int) -> int:
    return 2 * n

double.enqueue(4)
double.enqueue(5)
jobs.close()
for line in '''
list
show 1
status
logs 1
cancel 2
audit
retry 2
pause --pool cpu
resume --pool cpu
flows
schedules
quotas
tenants
tune
alerts
migrate
prune
top --once
enqueue double --pool cpu --force {"n":3}
'''.split("\\n")[1:-1]:
    done = CliRunner().invoke(cli, line.split())
    print(line, done.exit_code, done.output if done.exit_code else "")
for line in (
    *("run", "--pools cpu=2", "exec true", "check", "doctor", "demo", "alive"),
    "dashboard",
):
    done = CliRunner().invoke(cli, line.split())
    print(line, done.exit_code, "on Linux 5.3 or newer only" in done.output)
for line in ("init new", "status"):
    said = CliRunner().invoke(cli, line.split()).output
    print(line, "jobpool dev" in said, "--pools" in said or "jobpool run" in said)
"""


@pytest.mark.parametrize("system", ["windows", "macos"])
def test_commands_look_on_and_act_and_what_isolates_refuses(system, tmp_path):
    """None of them ends in a traceback, and each that needs Linux says so."""
    done = run(system, COMMANDS, cwd=tmp_path)
    assert done.stderr == ""
    assert [line for line in done.stdout.splitlines() if not line.endswith(" 0 ")] == [
        f"{command} 1 True"
        for command in (
            *("run", "--pools cpu=2", "exec true", "check", "doctor", "demo", "alive"),
            "dashboard",
        )
    ] + [f"{command} True False" for command in ("init new", "status")]
