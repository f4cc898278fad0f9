"""Real supervisors on stores that others have written to by hand."""

import sqlite3
from contextlib import closing, suppress

import pytest
from click.testing import CliRunner

from jobpool.cli.root import cli
from jobpool.core.jobs.job import JobState
from jobpool.store.statements.integrity import JOB
from support.site.supervising import PATIENCE_S, Site
from support.waiting import wait_until

APP = """
@jobs.job("cpu", kind="one")
def one():
    return 1
"""


@pytest.fixture
def site(tmp_path):
    with Site(tmp_path, APP) as made:
        yield made


def by_hand(site, statement, *parameters):
    """Write what the rules forbid."""
    path = site.folder / "jobpool.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA busy_timeout = 20000")
        connection.execute("PRAGMA ignore_check_constraints = ON")
        assert connection.execute(statement, parameters).rowcount


def alarms(supervisor, words):
    """Return its alarms about something: a busy machine may be worth one as well."""
    return [one for one in supervisor.events("alarm") if words in one["text"]]


def test_a_garbage_breaker_stops_nobody(site):
    """It is deleted with an alarm; jobs begin, and every command answers."""
    before = site.add("one")
    by_hand(site, "INSERT INTO jobpool_breakers VALUES ('z', 'garbage', 1, 1, 1, 1)")
    assert site.cli("status")[0]["crashing_kinds"] == []
    supervisor = site.start("cpu=1")
    assert site.result(before) == site.result(site.add("one")) == 1
    wait_until(lambda: alarms(supervisor, "breakers"), PATIENCE_S, "an alarm")
    assert site.store.breakers() == []
    assert supervisor.stop() == 0


@pytest.mark.parametrize(
    ("column", "value"), [("finished_at_ms", 5), ("attempt", b"\0"), ("kind", None)]
)
def test_burst_continues_past_a_row_that_is_set_aside(site, column, value):
    """Everything that is due is run before the supervisor concludes that nothing is."""
    spoilt = site.add("one", priority=1)
    honest = site.add_many("one", [None] * 2)
    if value is None:
        by_hand(site, "DELETE FROM jobpool_payloads WHERE job_id = ?", spoilt)
    else:
        statement = f"UPDATE jobpool_jobs SET {column} = ? WHERE id = ?"  # noqa: S608 - our names
        by_hand(site, statement, value, spoilt)
    log = ("--log-format", "json", "--log-level", "debug")
    supervisor = site.launch("run", "--pools", "cpu=1", "--burst", *log)
    assert supervisor.wait_exit() == 0
    assert [site.job(one).state for one in honest] == [JobState.SUCCEEDED] * 2
    assert site.job(spoilt).state is JobState.DEAD
    assert "cannot be read" in site.job(spoilt).reason
    assert len(alarms(supervisor, f"job {spoilt} ")) == 1


def test_damaged_rows_that_no_statement_selects_are_found(site):
    """An unknown state, and a lease that belongs to no run."""
    lost, stray, honest = site.add_many("one", [None] * 3)
    by_hand(site, "UPDATE jobpool_jobs SET state = 'garbage' WHERE id = ?", lost)
    lease = (
        "state = 'leased', token = 7, supervisor = 'x', leased_at_ms = 7, attempt = 1"
    )
    by_hand(site, f"UPDATE jobpool_jobs SET {lease} WHERE id = ?", stray)  # noqa: S608 - ours
    supervisor = site.start("cpu=1")
    assert site.result(honest) == 1
    for one, word in ((lost, "state"), (stray, "its lease")):
        assert site.finish(one).state is JobState.DEAD
        assert f"cannot be read ({word}:" in site.job(one).reason
    for one in (lost, stray):
        words = f"job {one} "
        wait_until(lambda said=words: alarms(supervisor, said), PATIENCE_S, words)
        assert len(alarms(supervisor, words)) == 1


WRONG = [-1, 2**63 - 1, -(2**63), 1.5, float("inf"), "text", b"\xff"]


def test_every_reading_command_shows_damaged_rows(site):
    """Any value in any column is shown, before a supervisor has checked it."""
    cases = [(name, value) for name in JOB if name != "id" for value in WRONG]
    ids = site.add_many("one", [None] * (len(cases) + 1))
    path = site.folder / "jobpool.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("BEGIN")
        for job_id, (name, value) in zip(ids, cases, strict=False):
            statement = f"UPDATE jobpool_jobs SET {name} = ? WHERE id = {job_id}"  # noqa: S608 - our names
            with suppress(sqlite3.IntegrityError):
                connection.execute(statement, (value,))
        connection.execute("COMMIT")
    assert site.cli("status", "--figures")[0]["store"] == site.url
    assert len(site.cli("list", "--limit", "1000")) == len(ids)
    assert site.cli("list", "--group-by", "reason")
    for job_id in [*ids[::9], ids[-1]]:
        assert site.cli("show", job_id)[0]["id"] == job_id
    for words in (["status", "--figures"], ["list"], ["show", str(ids[3])]):
        done = CliRunner().invoke(cli, [*words, "--store", site.url])
        assert done.exit_code == 0, (words, done.output)
