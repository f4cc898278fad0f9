"""A supervisor of a Django project, started by manage.py, and what its tasks do."""

import contextlib
import json
import signal
import subprocess
import sys

import pytest

from support.site.django_project import PROJECT
from support.waiting import wait_until

PATIENCE_S = 60
# The first one waits for a start, and for whatever all tasks of `live.py` come to.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def supervised(project):
    """The project, while a supervisor runs."""
    with started(project, "jobpool", "--log-format", "json"):
        yield project


@contextlib.contextmanager
def started(project, *words):
    log = project.folder / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            project.command(*words),
            cwd=project.folder,
            env=project.env,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
        )
    try:
        wait_until(
            lambda: process.poll() is not None or "supervisor_ready" in log.read_text(),
            PATIENCE_S,
            "supervisor_ready",
        )
        assert process.poll() is None, log.read_text()
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, log.read_text()


@pytest.fixture(scope="module")
def found(supervised):
    """What is known of each case of `project/live.py`."""
    done = subprocess.run(
        [sys.executable, str(PROJECT / "live.py")],
        env=supervised.env | {"DJANGO_SETTINGS_MODULE": "settings"},
        capture_output=True,
        text=True,
        check=False,
        timeout=3 * PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr + (supervised.folder / "log").read_text()
    lines = map(json.loads, done.stdout.splitlines())
    return {line.pop("case"): line for line in lines}


def signals_of(project, result_id):
    """Return the states with which a task's process has sent signals."""
    lines = (project.folder / "signals").read_text().splitlines()
    return [line.split()[2] for line in lines if line.split()[1] == result_id]


def test_a_result_is_complete(found):
    """Its times in order, its worker, its arguments; the context has the same."""
    pay = found["pay"]
    assert pay["status"] == "SUCCESSFUL"
    assert pay["args"] == [1]
    assert pay["kwargs"] == {"card": "a card", "vendor": "v"}
    assert pay["attempts"] == len(pay["worker_ids"]) == 1
    assert pay["errors"] == []
    times = [pay[f"{when}_at"] for when in ("enqueued", "started", "finished")]
    assert times == sorted(times)
    assert pay["last_attempted_at"] == pay["started_at"]
    assert pay["value"] == {
        "attempt": 1,
        "id": pay["id"],
        "args": pay["args"],
        "kwargs": pay["kwargs"],
        "status": "RUNNING",
    }
    assert found["paid by"]["paid_by"] in {"a card", "-"}


def test_an_async_task_uses_the_database(found):
    assert found["count"]["status"] == "SUCCESSFUL"
    assert found["count"]["value"] >= 1


def test_a_task_that_fails_is_tried_as_often_as_it_says(found):
    """Each attempt has an error, whose traceback begins in the task."""
    fail = found["fail"]
    assert fail["status"] == "FAILED"
    assert fail["attempts"] == 2
    assert [name for name, _ in fail["errors"]] == ["ValueError", "ValueError"]
    text = fail["errors"][0][1]
    assert text.count("File ") == 1
    assert "ValueError: out of stock" in text
    assert all("/" in worker for worker in fail["worker_ids"])


@pytest.mark.parametrize(
    ("case", "error", "words"),
    [
        ("hang", "JobTimedOut", "time limit of 5s"),
        ("die", "JobCrashed", "SIGKILL"),
        ("lambda", "TypeError", "Unsupported type"),
    ],
)
def test_each_death_has_an_error_that_can_be_imported(found, case, error, words):
    """Also those at which the process could say nothing."""
    assert found[case]["status"] == "FAILED"
    ((name, text),) = found[case]["errors"]
    assert name == error
    assert words in text


def test_arguments_arrive_as_they_were_passed(found):
    assert found["position"]["value"] == [1, 2, [3], 4, {"more": 5}]
    assert found["letter"]["value"] == "to you"


def test_a_task_enqueues(found):
    """Through its supervisor, and after a commit."""
    assert found["of at once"]["status"] == "SUCCESSFUL"
    assert found["of later"]["status"] == "SUCCESSFUL"


def test_a_task_enqueues_in_its_transaction(found, project):
    """On PostgreSQL. On SQLite its supervisor would wait for it: that is refused."""
    if "SITE_DATABASE" in project.env:
        assert found["of committed"]["status"] == "SUCCESSFUL"
        assert found["rolled back"]["status"] == "SUCCESSFUL"
        assert found["of rolled back"] == {"gone": True}
    else:
        for case in ("committed", "rolled back"):
            ((name, text),) = found[case]["errors"]
            assert name == "UsageError"
            assert "transaction.on_commit" in text


def test_a_transaction_that_is_left_open_is_gone_with_its_attempt(found):
    """The next attempts begin without a connection, whatever child runs them."""
    assert found["leaves"]["status"] == "SUCCESSFUL"
    for n in range(3):
        assert found[f"clean {n}"]["value"] == [False, False, False]


def test_signals_are_sent_where_tasks_run(found, project):
    """`task_finished` once: by the attempt, or for a job that has failed for good."""
    assert signals_of(project, found["pay"]["id"]) == ["RUNNING", "SUCCESSFUL"]
    assert signals_of(project, found["count"]["id"]) == ["RUNNING", "SUCCESSFUL"]
    for case, attempts in (("fail", 2), ("hang", 1), ("die", 1)):
        expected = ["RUNNING"] * attempts + ["FAILED"]
        wait_until(
            lambda case=case, n=attempts: (
                len(signals_of(project, found[case]["id"])) > n
            ),
            PATIENCE_S,
            f"task_finished of {case}",
        )
        assert signals_of(project, found[case]["id"]) == expected


def test_other_commands_are_jobpools(found, project):
    """With the project's store; arguments that are to be hidden are."""
    job = found["pay"]["id"].partition("-")[0]
    shown = project.manage("jobpool", "show", job)
    assert "a card" not in shown
    assert "vendor" in shown


def test_a_check_takes_the_pools_that_a_start_would_take(supervised):
    """Without any that are named, those are the queues of TASKS."""
    said = supervised.manage("jobpool", "check")
    assert "pools.default.size" in said
    assert "pools.io.size" not in said


def test_the_schedules_of_the_settings_are_kept(supervised):
    """By the clocks of Django's own zone."""
    (line,) = supervised.manage("jobpool", "schedules", "--json").splitlines()
    row = json.loads(line)
    assert (row["name"], row["kind"]) == ("new-year", "shop.tasks.count_orders")
    assert row["tz"] == "Europe/Berlin"
