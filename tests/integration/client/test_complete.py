"""current().complete(): side effect and completion are one transaction."""

import contextlib
import json

import psycopg
import pytest

from jobpool.core.jobs.job import JobState
from support.postgres.server import libpq_url, server
from support.site.supervising import Site

APP = """
import contextlib, sqlite3

DATABASE = os.environ["SHOP_DATABASE"]


@contextlib.contextmanager
def shop():
    if DATABASE.startswith("postgresql:"):
        import psycopg

        with psycopg.connect(DATABASE) as connection:
            yield connection
        return
    connection = sqlite3.connect(DATABASE, timeout=20)
    with contextlib.closing(connection), connection:
        yield connection


def sell(connection):
    table = os.environ["SHOP_TABLE"]
    connection.execute(f"INSERT INTO {table} VALUES ({current().id})")


@jobs.job("cpu", kind="sale", retry=AT_ONCE)
def sale(end: str = "") -> str:
    with shop() as connection:
        sell(connection)
        current().complete(connection, {"sold": current().id})
        if end == "rolled back" and current().attempt == 1:
            connection.rollback()
            return "not kept"
        if end == "raises" and current().attempt == 1:
            raise ValueError("before the commit")
    witness("committed")
    if end == "crash":
        segfault()
    if end == "late error":
        raise ValueError("after the commit")
    return "not kept either"


@jobs.job("cpu", kind="superseded", max_attempts=1)
def superseded():
    with shop() as connection:
        sell(connection)
        now = current()
        now._channel._claim = now._channel._claim._replace(token=now.token - 1)
        try:
            now.complete(connection)
        except jobpool.Superseded as error:
            print("refused:", error)  # swallowed: the commit must come to nothing
    return "swallowed"


@jobs.job("cpu", kind="twice", max_attempts=1)
def twice():
    with shop() as connection:
        current().complete(connection)
        current().heartbeat(progress=1)
        try:
            current().complete(connection)
        except jobpool.UsageError as error:
            Path(HERE / "twice").write_text(str(error))


@jobs.job("cpu", kind="asynchronous", max_attempts=1)
async def asynchronous():
    import psycopg

    async with await psycopg.AsyncConnection.connect(DATABASE) as connection:
        await sale.options(connection=connection).enqueue_async()
        await current().complete_async(connection, "done")


@jobs.job("cpu", kind="fanout", max_attempts=1)
def fanout(end: str = ""):
    with shop() as connection:
        sale.options(connection=connection).enqueue()
        current().complete(connection)
        if end:
            connection.rollback()
"""


ENGINES = ["sqlite", "postgres"]


@pytest.fixture(scope="module", params=ENGINES)
def site(request, tmp_path_factory):
    """A site with a supervisor, for one test after the other."""
    with made_site(request.param, tmp_path_factory.mktemp("site")) as site:
        site.supervisor = start(site)
        yield site


@pytest.fixture(params=ENGINES)
def own_site(request, tmp_path):
    """A site of the test's own, without a supervisor."""
    with made_site(request.param, tmp_path) as site:
        yield site


@contextlib.contextmanager
def made_site(engine, tmp_path):
    site = Site(tmp_path, APP)
    if engine == "sqlite":
        site.database, site.table = str(tmp_path / "jobpool.db"), "sales"
    else:
        site.url = server().store_url()
        site.database = libpq_url(site.url)
        site.table = f"{site.url.rpartition('=')[2]}.sales"
    site.extra = {
        "JOBPOOL_STORE": site.url,
        "JOBPOOL_RUN_DIR": str(tmp_path / "runs"),
        "SHOP_DATABASE": site.database,
        "SHOP_TABLE": site.table,
    }
    with site:
        execute(site, f"CREATE TABLE {site.table} (job bigint)")
        yield site
    if engine == "postgres":
        server().drop(site.url)


def execute(site, statement):
    """Run a statement as the shop's owner would, and return its rows."""
    assert site.store.url  # opening it makes the file or the schema
    if site.url.startswith("postgresql"):
        with psycopg.connect(site.database, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []
    import sqlite3

    connection = sqlite3.connect(site.database, isolation_level=None, timeout=20)
    rows = connection.execute(statement).fetchall()
    connection.close()
    return rows


def sales(site, job_id):
    where = f"FROM {site.table} WHERE job = {job_id}"
    return execute(site, f"SELECT count(*) {where}")[0][0]


def start(site):
    return site.start("cpu=2", env=site.extra)


def test_a_committed_completion_stands_however_the_attempt_ends(own_site):
    """One side effect, one completion, the completion's result, nothing charged."""
    site, supervisor = own_site, start(own_site)
    ids = {end: site.add("sale", {"end": end}) for end in ("", "crash", "late error")}
    for end, job_id in ids.items():
        job = site.finish(job_id)
        assert (job.state, json.loads(job.result)) == ("succeeded", {"sold": job_id})
        if end != "crash":
            supervisor.wait_event("job_succeeded", id=job_id)
            assert supervisor.events("job_ended", id=job_id) == []
    supervisor.stop()
    for job_id in ids.values():
        job = site.job(job_id)
        assert (job.state, job.attempt) == ("succeeded", 1)
        assert (job.failures, job.crashes) == (0, 0)
        assert sales(site, job_id) == 1
        assert site.store.attempts(job_id) == []


@pytest.mark.parametrize("end", ["rolled back", "raises"])
def test_a_completion_that_was_rolled_back_is_tried_again(site, end):
    """The attempt has failed, however the handler ended; the next one succeeds."""
    job_id = site.add("sale", {"end": end})
    first = site.attempts(job_id)[0]
    if end == "raises":
        assert first.error_class == "ValueError"
    else:
        assert "never committed" in first.reason
        # "failed" has no rule of its own here: the operator does not wait for it.
        assert site.store.revive([job_id], (JobState.PENDING,)) == 1
        site.store.wake()
    job = site.finish(job_id)
    assert (job.state, job.attempt) == ("succeeded", 2)
    assert sales(site, job_id) == 1
    site.supervisor.wait_event("job_ended", id=job_id, outcome="failed")
    site.supervisor.wait_event("job_succeeded", id=job_id)


def test_a_superseded_attempt_cannot_commit(site):
    """Even if the handler swallows the error, nothing of its transaction stays."""
    job_id = site.add("superseded")
    site.finish(job_id)
    assert sales(site, job_id) == 0


def test_complete_may_be_called_only_once(site):
    """A second call is refused and the first stands; a heartbeat is still allowed."""
    job_id = site.add("twice")
    job = site.finish(job_id)
    assert (job.error, job.state) == (None, "succeeded")
    assert (job.result, job.progress) == (b"null", None)
    assert "before in this attempt" in (site.folder / "twice").read_text()


def test_jobs_enqueued_beside_a_completion_commit_with_it(site):
    """On PostgreSQL the fan-out is in the same transaction; on SQLite it is refused."""
    job_id = site.add("fanout")
    job = site.finish(job_id)
    if not site.url.startswith("postgresql"):
        assert job.state == "dead"
        assert job.error_class == "jobpool.errors.UsageError"
        return
    assert job.state == "succeeded"
    made = job_id + 1
    assert site.finish(made).state == "succeeded"
    undone = site.finish(site.add("fanout", {"end": "rolled back"}))
    assert undone.state == "dead"
    assert site.store.get(undone.id + 1) is None


@pytest.mark.parametrize("own_site", ["postgres"], indirect=True)
def test_the_queue_limit_holds_beside_an_attempt_too(own_site):
    """The limit given to the supervisor holds on a handler's connection too."""
    site = own_site
    configuration = site.folder / "few.toml"
    configuration.write_text("queue_depth_max = 1\n")
    site.start("cpu=2", "--config", configuration, env=site.extra)
    job = site.finish(site.add("fanout"))
    assert (job.state, job.error_class) == ("dead", "jobpool.errors.QueueFull")


@pytest.mark.parametrize("site", ["postgres"], indirect=True)
def test_an_async_handler_completes_on_an_async_connection(site):
    """Awaited, with the same meaning."""
    assert site.result(site.add("asynchronous")) == "done"
