"""`jobpool dev`: handlers in the supervisor's own process, also without Linux."""

import contextlib
import json
import os
import signal
import subprocess

import pytest

from jobpool import JobPool
from jobpool.core.jobs.job import JobState
from jobpool.store.opening import open_store
from jobpool.supervisor.maintenance.death_proof import DeadRun, prove_dead
from support.postgres.server import server
from support.site.elsewhere import run, surroundings, words_of
from support.waiting import wait_until

PATIENCE_S = 60.0
APP = """
import os, sqlite3, sys, time
from pathlib import Path
from jobpool import JobPool, current
jobs = JobPool()
AT_ONCE = {"Exception": ["1ms"]}
vendor = jobs.quota("vendor", concurrency=1)

@jobs.job("cpu", kind="double")
def double(n: int) -> int:
    return 2 * n

@jobs.job("other", kind="total")
def total() -> int:
    return sum(current().results(double))

@jobs.job("cpu", kind="flaky", retry=AT_ONCE)
def flaky() -> dict:
    now = current()
    if now.attempt == 1:
        now.heartbeat(progress="half", checkpoint={"at": 5})
        raise OSError("not yet")
    return {"attempt": now.attempt, "from": now.checkpoint}

@jobs.job("cpu", kind="fatal", max_attempts=2, retry=AT_ONCE, redact=["pin"])
def fatal(pin: str) -> None:
    raise ValueError(f"wrong pin {pin}")

@jobs.job("io", kind="asks")
def asks() -> list:
    with vendor.permit():
        job = double.options(key="once").enqueue(21)
        return [job.id, job.state]

@jobs.on_dead
def dead(job):
    Path("dead").write_text(f"{job.id} {job.reason}")

@jobs.job("io", kind="spoils")
def spoils(how: str) -> None:
    print(how, "begins", flush=True)
    if how == "closes descriptors":
        os.close(0), os.close(1), os.close(2)
    elif how == "redirects descriptors":
        file = os.open("elsewhere", os.O_WRONLY | os.O_CREAT)
        os.dup2(file, 1), os.dup2(file, 2)
    elif how == "closes files":
        sys.stdout.close(), sys.stderr.close()
    elif how == "replaces files":
        sys.stdin = sys.stdout = sys.stderr = open("elsewhere", "w")
    if "redirects" in how:
        time.sleep(0.3)  # meanwhile the end of the job before is written to the log

@jobs.job("cpu", kind="stays")
def stays() -> str:
    Path("began").write_text(str(os.getpid()))
    while not Path("gate").exists():
        time.sleep(0.01)
    return "through"
"""
ENQUEUES = """
flow = jobs.flow("sums")
parts = flow.add_many([double.call(1), double.call(2)])
flow.add(total.call(), after=[parts])
flow.enqueue()
jobs.enqueue_many([flaky.call(), fatal.call("1234"), asks.call()])
jobs.enqueue_many(double, [{"n": n} for n in range(20)])
"""


def enqueue(folder, calls, url=None):
    """Enqueue what a text does with the application's names, in this process."""
    names = {"__name__": "jobs"}
    text = APP.replace("JobPool()", f"JobPool({url or url_of(folder)!r})")
    exec(text, names)  # noqa: S102 - ours
    try:
        exec(calls, names)  # noqa: S102 - ours
    finally:
        names["jobs"].close()


def url_of(folder):
    return f"sqlite:///{folder}/jobpool.db"


def job(folder, job_id):
    """Return a job as its application would see it, and what it has returned."""
    jobs = JobPool(url_of(folder))
    try:
        found = jobs.get(job_id)
        state = found.state
        value = found.result(timeout=0) if state is JobState.SUCCEEDED else None
    finally:
        jobs.close()
    return state, value


def dev_once(folder, system=None, *words):
    """Run what is due, and what that makes due at once."""
    done = run(system, "-m", "jobpool", "dev", "--burst", "--json", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stderr.splitlines()]


@contextlib.contextmanager
def running(folder, system=None, env=None):
    """Run it meanwhile; its log is the file ``log``."""
    words = words_of(system, "-m", "jobpool", "dev", "--json")
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            words,
            cwd=folder,
            env=surroundings(env),
            stderr=log,
            stdout=log,
            process_group=0,
        )
        try:
            yield process
        finally:
            # As a whole: elsewhere the process that runs jobs is another one's child.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def logged(folder, name):
    """Return the events of a name; what is no event yet is left out."""
    found = []
    for line in (folder / "log").read_text().splitlines():
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            if event["event"] == name:
                found.append(event)
    return found


def wait_for(condition, what):
    return wait_until(condition, PATIENCE_S, what)


def wait_for_event(folder, name, count=1):
    return wait_for(
        lambda: len(found := logged(folder, name)) >= count and found, f"{count} {name}"
    )


def save(folder, text):
    """Write the application as a whole: it may be read at any time."""
    new = folder / "jobs.new"
    new.write_text(text)
    new.replace(folder / "jobs.py")


def wait_for_interrupt_heard(folder):
    """Wait until the log says that the running handler is waited for."""
    wait_for(
        lambda: any(
            "waited for before the end (SIGINT)" in alarm["text"]
            for alarm in logged(folder, "alarm")
        ),
        "what it waits for",
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "jobs.py").write_text(APP)
    return tmp_path


@pytest.mark.parametrize("system", ["windows", "macos"])
def test_jobs_run_by_the_rules_of_a_supervisor(folder, system):
    """Retries, checkpoints, flows, hooks, permits and jobs within jobs.

    And each page of its log says that nothing is isolated.
    """
    enqueue(folder, ENQUEUES)
    log = dev_once(folder, system)
    kinds = [(one["kind"], one["event"]) for one in log if "kind" in one]
    assert kinds.count(("flaky", "job_ended")) == 1
    assert kinds.count(("fatal", "job_dead")) == 1
    assert job(folder, 3) == (JobState.SUCCEEDED, 6)
    assert job(folder, 4) == (JobState.SUCCEEDED, {"attempt": 2, "from": {"at": 5}})
    assert job(folder, 5) == (JobState.DEAD, None)
    told = "5 raised ValueError: wrong pin [redacted]; failure 2 of 2"
    assert (folder / "dead").read_text() == told
    asked, state = job(folder, 6)[1]
    assert state == "runnable"
    assert job(folder, asked) == (JobState.SUCCEEDED, 42)
    loud = [n for n, one in enumerate(log) if one["event"] == "isolation_reduced"]
    assert loud == list(range(0, len(log), 21))
    assert len(loud) > 1


def test_a_handler_that_closes_or_redirects_its_streams_costs_no_line_of_the_log(
    folder,
):
    """As in a child the next attempt has its own again; who left them so is named."""
    spoiled = ["closes descriptors", "redirects descriptors", "closes files"]
    ways = [*spoiled, "replaces files", "does nothing"]
    enqueue(folder, f"jobs.enqueue_many([spoils.call(one) for one in {ways}])")
    done = run(None, "-m", "jobpool", "dev", "--burst", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{how} begins" for how in ways]
    log = [json.loads(line) for line in done.stderr.splitlines()]
    ended = [one["id"] for one in log if one["event"] == "job_succeeded"]
    assert ended == [1, 2, 3, 4, 5]
    said = [one["text"] for one in log if one["event"] == "alarm"]
    assert [text.partition(" has left ")[0] for text in said] == [
        f"job {n} (spoils)" for n in (1, 2)
    ]
    assert "stdin, stdout, stderr" in said[0]
    assert "supervisor_stopped" in [one["event"] for one in log]
    assert (folder / "elsewhere").read_bytes() == b""


@pytest.mark.parametrize("system", [None, "windows"])
def test_it_starts_anew_when_a_source_file_has_changed(folder, system):
    """In the place of its process, once it can be; what does not load is waited for."""
    enqueue(folder, "double.enqueue(1)")
    with running(folder, system):
        wait_for_event(folder, "job_succeeded")
        save(folder, "this is no Python")
        wait_for(
            lambda: "waiting for a change" in (folder / "log").read_text(),
            "the code that does not load",
        )
        # Of another length: Python knows what it has compiled by that and the second.
        save(folder, APP.replace("2 * n", "3 * n + 0"))
        enqueue(folder, "double.enqueue(1)")
        # Its event comes before the commit, and what follows is a kill.
        wait_for(lambda: job(folder, 2)[0] is JobState.SUCCEEDED, "the other job")
        wait_for_event(folder, "supervisor_ready", 2)  # written a moment later
    assert [job(folder, one)[1] for one in (1, 2)] == [2, 3]
    ready = logged(folder, "supervisor_ready")
    assert len(ready) == 2
    assert (ready[0]["pid"] == ready[1]["pid"]) == (system is None)


def test_the_first_signal_waits_for_the_handler(folder):
    enqueue(folder, "stays.enqueue()")
    with running(folder) as process:
        wait_for((folder / "began").exists, "the handler")
        process.send_signal(signal.SIGINT)
        wait_for_interrupt_heard(folder)
        (folder / "gate").touch()
        assert process.wait(PATIENCE_S) == 0
    assert job(folder, 1) == (JobState.SUCCEEDED, "through")
    with contextlib.closing(open_store(url_of(folder))) as store:
        assert store.open_runs() == []


def test_the_second_signal_interrupts_it_and_charges_nothing(folder):
    enqueue(folder, "stays.enqueue()")
    with running(folder) as process:
        wait_for((folder / "began").exists, "the handler")
        process.send_signal(signal.SIGINT)
        wait_for_interrupt_heard(folder)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    (ended,) = logged(folder, "job_ended")
    assert (ended["outcome"], ended["state"]) == ("interrupted", "pending")
    assert "second Ctrl-C" in ended["reason"]


@pytest.mark.parametrize("system", [None, "windows"])
def test_what_it_ran_when_it_was_killed_is_taken_back_by_the_next(folder, system):
    enqueue(folder, "stays.enqueue()")
    with running(folder, system, env={"JOBPOOL_DEV_BENEATH": "1"}):
        wait_for((folder / "began").exists, "the handler")
    if system is None:  # as a supervisor on this host would judge it
        (place,) = (folder / "jobpool.db.run").iterdir()
        proof = prove_dead(place.parent, place.name)
        assert proof == DeadRun(running_tokens=None, killed=0)
    (folder / "gate").touch()
    log = dev_once(folder, system)
    assert not [one for one in log if "takes jobs of this store" in str(one)]
    (lost,) = (one for one in log if one["event"] == "job_ended")
    assert (lost["outcome"], lost["state"]) == ("lost", "pending")
    assert job(folder, 1) == (JobState.SUCCEEDED, "through")


def test_another_that_takes_jobs_as_well_is_named(folder):
    """Once, and with what follows from it."""
    with running(folder):
        wait_for_event(folder, "supervisor_ready")
        log = dev_once(folder)
    (concern,) = (one for one in log if one["event"] == "store_concern")
    assert "takes jobs of this store as well" in concern["text"]


def test_it_takes_jobs_on_postgresql(folder):
    """With leases that end by time, and wake-ups from the server."""
    url = server().store_url()
    with running(folder, env={"JOBPOOL_STORE": url}):
        wait_for_event(folder, "supervisor_ready")
        enqueue(folder, ENQUEUES, url)
        wait_for_event(folder, "job_dead")
        wait_for_event(folder, "job_succeeded", 26)
    assert logged(folder, "alarm") == []
