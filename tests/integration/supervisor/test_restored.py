"""A SQLite store that is restored from a backup: under a supervisor, and before one."""

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from jobpool.cli.exits import Exit
from support.site.supervising import PATIENCE_S, Site, is_alive
from support.waiting import Running, wait_until

APP = """
@jobs.job("cpu", kind="held", timeout="10m")
def held(gate: str):
    hold(gate)
    witness("ended")


@jobs.job("cpu", kind="paid", timeout="10m", rerun="never", aliases=["old.paid"])
def paid(gate: str):
    hold(gate)


@jobs.job("io", kind="quick")
def quick():
    witness()
"""
TTL = {"JOBPOOL_LEASE_TTL": "3s", "JOBPOOL_DRAIN": "1s"}
"""On one host it is renewed three times in this time."""
NOTICED_S = 5.0
PREFETCHED = 60


@pytest.fixture
def site(tmp_path):
    with Site(tmp_path, APP) as site:
        yield site


@pytest.fixture
def database(site):
    return site.folder / "jobpool.db"


def back_up(site, database, name="backup.db"):
    """Copy the queue as the manual says, while it is in use."""
    copy = site.folder / name
    with (
        contextlib.closing(
            sqlite3.connect(f"file:{database}?mode=ro", uri=True)
        ) as live,
        contextlib.closing(sqlite3.connect(copy)) as target,
    ):
        live.backup(target)
    return copy


def remove_log(database):
    for suffix in ("-wal", "-shm"):
        Path(f"{database}{suffix}").unlink(missing_ok=True)


def by_rename(copy, database):
    """Put the backup where the queue was, as a careful hand does."""
    remove_log(database)
    shutil.copyfile(copy, f"{database}.new")
    Path(f"{database}.new").replace(database)


def over_it(copy, database):
    """Write the backup over the file, and remove the log of the former content."""
    remove_log(database)
    shutil.copyfile(copy, database)


def over_it_with_its_log(copy, database):
    """Write the backup over the file alone: its log belongs to what was there."""
    shutil.copyfile(copy, database)


def checkpoint(database):
    """Copy the log into the file, as happens every now and then.

    All of it, or a later one would still have what a backup lacks.
    """

    def is_done():
        is_busy, *_ = own.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not is_busy

    with contextlib.closing(sqlite3.connect(database)) as own:
        wait_until(is_done, PATIENCE_S, "a whole checkpoint")


def wait_renewed(site):
    """Wait for the supervisor's next sign of life, which the backup does not have."""
    (run,) = site.store.open_runs()
    wait_until(
        lambda: site.store.open_runs()[0].heartbeat_at_ms > run.heartbeat_at_ms,
        PATIENCE_S,
        "the next renewal",
    )


def exit_code(supervisor):
    """Wait for the end of a supervisor that notices soon; return its exit code."""
    with Running() as running:
        code = supervisor.wait_exit()
        assert running.ran_s() < NOTICED_S
    return code


@pytest.mark.parametrize("put_back", [by_rename, over_it, over_it_with_its_log])
def test_a_supervisor_whose_store_goes_back_stops(site, database, put_back):
    """It says why, with its exit code too, kills its children, and writes nothing."""
    supervisor = site.start("cpu=1,io=1", env=TTL)
    first = site.add("held", {"gate": "never"})
    pid = site.wait_begun(first).pid
    checkpoint(database)
    copy = back_up(site, database)
    later = site.add_many("quick", [{}] * PREFETCHED, pool="io")
    site.finish_all(later)
    wait_renewed(site)
    site.close_store()
    put_back(copy, database)
    assert exit_code(supervisor) == Exit.WENT_BACK
    assert not is_alive(pid)
    site.wait_nobody()
    (said,) = supervisor.events("store_went_back")
    assert "`jobpool restored`" in said["error"]
    assert not supervisor.events("store_back")
    assert supervisor.said().splitlines()[-1] == f"Error: {said['error']}"
    if put_back is not over_it_with_its_log:  # that one is damaged
        assert site.store.describe()["stale_settlements"] == "0"
        job = site.job(first)
        assert (job.state, job.attempt) == ("leased", 1)


def test_work_goes_on_after_a_restore(site, database):
    """Each job of the backup ends; nothing is settled under a token of before."""
    first = site.start("cpu=2,io=1", env=TTL)
    leased = [site.add("held", {"gate": "open"}), site.add("paid", {"gate": "open"})]
    for job in leased:
        site.wait_begun(job)
    waiting = site.add_many("held", [{"gate": "open"}] * 3)
    copy = back_up(site, database)
    gone = site.add_many("quick", [{}] * PREFETCHED, pool="io")
    site.finish_all(gone)
    site.open_gate("open")
    site.finish_all([*leased, *waiting])
    before = {one.token for one in site.witnesses()}
    assert first.stop() == 0
    site.close_store()
    by_rename(copy, database)

    (told,) = site.cli("restored", "--last-id", gone[-1], "--ids")
    states = {one["id"]: one["state"] for one in told["taken_back"]}
    assert states == dict(zip(leased, ["pending", "dead"], strict=True))
    assert told["lost_at_most"] == PREFETCHED
    assert told["ids"] == {"held": sorted([leased[0], *waiting])}
    died = site.job(leased[1])
    assert died.reason == (
        "it was leased when the backup was taken, and may have run to its end since; "
        'its end is unknown and rerun="never"'
    )
    second = site.start("cpu=2,io=1", env=TTL)
    new = site.add("quick", pool="io")
    assert new > gone[-1]
    wait_until(lambda: len(site.store.open_runs()) == 1, PATIENCE_S, "its run")
    assert site.job(waiting[0]).state == "runnable"
    assert site.job(new).state == "runnable"
    site.cli("resume", "--all")
    jobs = site.finish_all([leased[0], *waiting, new])
    assert {job.state for job in jobs} == {"succeeded"}
    after = {one.token for one in site.witnesses()} - before
    assert len(after) == 5
    assert min(after) > max(before)
    assert second.stop() == 0
    assert site.store.describe()["stale_settlements"] == "0"


def test_restored_is_refused_while_a_supervisor_runs(site, database):
    """It would take away what that one holds; and nothing is changed."""
    supervisor = site.start("io=1", env=TTL)
    done = site.launch("restored", "--store", site.url)
    assert done.wait_exit() == 2
    assert f"a supervisor uses {site.url} (pid {supervisor.pid} on this host)" in (
        done.said()
    )
    assert site.store.position().restores == 0
    assert site.store.pauses() == []


def test_a_supervisor_notices_restored_itself(site):
    """Also if the store did not look older: somebody else took what it holds."""
    supervisor = site.start("cpu=1,io=1", env=TTL)
    job = site.add("held", {"gate": "never"})
    site.wait_begun(job)
    site.store.begin_anew(tokens=10**6, last_id=10**6)
    assert exit_code(supervisor) == Exit.WENT_BACK
    (said,) = supervisor.events("store_went_back")
    assert "it was restored from a backup" in said["error"]
    (stopped,) = supervisor.events("supervisor_stopped")
    assert (stopped["handed_back"], stopped["leases_held"]) == (0, 1)
    assert site.job(job).state == "leased"
