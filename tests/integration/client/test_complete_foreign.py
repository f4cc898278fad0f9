"""current().complete() on any connection a handler holds, in real supervisors.

With psycopg itself: test_complete.py. Here the handler's connection is psycopg2's,
SQLAlchemy's on either driver, or Django's, each opened and ended in its own way.
"""

import json

import pytest

from jobpool.core.jobs.job import JobState
from jobpool.store.records.operating import Filter
from support.postgres.server import libpq_url, query_of, server
from support.site.supervising import PATIENCE_S, Site
from support.waiting import wait_until

APP = """
import contextlib

# Here, and not in each child that takes the place of one that was killed.
import psycopg2
import sqlalchemy as sa
import sqlalchemy.dialects.postgresql.psycopg
import sqlalchemy.dialects.postgresql.psycopg2
from django.conf import settings
from django.db import connection as django_connection, transaction
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.orm import Session

DATABASE = os.environ["SHOP_DATABASE"]
TABLE = os.environ["SHOP_TABLE"]


@contextlib.contextmanager
def on_psycopg2():
    connection = psycopg2.connect(DATABASE)
    with contextlib.closing(connection), connection, connection.cursor() as cursor:
        yield connection, cursor.execute, connection.rollback


def on_sqlalchemy(driver, name):
    @contextlib.contextmanager
    def opened():
        engine = sa.create_engine(DATABASE.replace(":", f"+{driver}:", 1))
        with (Session(engine) if name == "session" else engine.connect()) as held:
            yield held, lambda text: held.execute(sa.text(text)), held.rollback
            held.commit()
        engine.dispose()

    return opened


@contextlib.contextmanager
def on_django():
    import django

    if not settings.configured:
        parts = conninfo_to_dict(DATABASE)
        names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password"}
        names |= {"HOST": "host", "PORT": "port"}
        database = {name: parts.get(key, "") for name, key in names.items()}
        database["ENGINE"] = "django.db.backends.postgresql"
        settings.configure(DATABASES={"default": database}, USE_TZ=True)
        django.setup()
    with contextlib.closing(django_connection), transaction.atomic():
        yield (
            django_connection,
            execute_on_django,
            lambda: transaction.set_rollback(True),
        )


def execute_on_django(text):
    with django_connection.cursor() as cursor:
        cursor.execute(text)


LIBRARIES = {
    "psycopg2": on_psycopg2,
    "sqlalchemy connection on psycopg": on_sqlalchemy("psycopg", "connection"),
    "sqlalchemy connection on psycopg2": on_sqlalchemy("psycopg2", "connection"),
    "sqlalchemy session on psycopg": on_sqlalchemy("psycopg", "session"),
    "sqlalchemy session on psycopg2": on_sqlalchemy("psycopg2", "session"),
    "django": on_django,
}


@jobs.job("cpu", kind="receipt")
def receipt(of: int) -> int:
    return of


@jobs.job("cpu", kind="sale", retry=AT_ONCE)
def sale(library: str, end: str = "") -> str:
    with LIBRARIES[library]() as (connection, execute, rollback):
        execute(f"INSERT INTO {TABLE} VALUES ({current().id})")
        receipt.options(connection=connection).enqueue(current().id)
        current().complete(connection, {"sold": current().id, "by": library})
        if end == "killed":
            segfault()
        if end == "raises" and current().attempt == 1:
            raise ValueError("before the commit")
        if end == "rolled back" and current().attempt == 1:
            rollback()
    return "not kept"


@jobs.job("cpu", kind="superseded", max_attempts=1)
def superseded(library: str):
    said = HERE / f"said by {current().id}"
    with contextlib.suppress(Exception), LIBRARIES[library]() as held:
        connection, execute, _ = held
        execute(f"INSERT INTO {TABLE} VALUES ({current().id})")
        hold(f"gate of {current().id}")
        try:
            current().complete(connection)
        except jobpool.Superseded as error:
            said.write_text(f"Superseded: {error}")
        # Swallowed, and the library is left to commit what it has.
    (HERE / f"over {current().id}").touch()


@jobs.job("cpu", kind="after", max_attempts=1)
def after(library: str):
    said = HERE / f"said by {current().id}"
    with contextlib.suppress(Exception), LIBRARIES[library]() as held:
        connection, execute, _ = held
        hold(f"gate of {current().id}")
        with contextlib.suppress(jobpool.Superseded):
            current().complete(connection)
        try:
            execute(f"INSERT INTO {TABLE} VALUES ({current().id})")
        except Exception as error:
            said.write_text(str(error))
    (HERE / f"over {current().id}").touch()
"""
LIBRARIES = [
    "psycopg2",
    "sqlalchemy connection on psycopg",
    "sqlalchemy connection on psycopg2",
    "sqlalchemy session on psycopg",
    "sqlalchemy session on psycopg2",
    "django",
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """One shop with a supervisor, and its table beside the queue's."""
    folder = tmp_path_factory.mktemp("shop")
    with Site(folder, APP) as site:
        site.url = server().store_url()
        site.schema = query_of(site.url)["schema"]
        env = {
            "JOBPOOL_STORE": site.url,
            "JOBPOOL_RUN_DIR": str(folder / "runs"),
            "SHOP_DATABASE": libpq_url(site.url),
            "SHOP_TABLE": f"{site.schema}.sales",
        }
        assert site.store.url  # opening it makes the schema
        execute(site, "CREATE TABLE {schema}.sales (job bigint)")
        site.start("cpu=2", env=env)
        yield site
    server().drop(site.url)


def execute(site, statement):
    """Run a statement as the shop's owner would, and return its rows."""
    with server().connect(site.url) as connection:
        cursor = connection.execute(statement.format(schema=site.schema))
        return cursor.fetchall() if cursor.description else []


def sales(site, job_id):
    """Count a job's side effects."""
    query = f"SELECT count(*) FROM {{schema}}.sales WHERE job = {job_id}"  # noqa: S608 - a number
    return execute(site, query)[0][0]


def receipts(site, job_id):
    """Count the jobs that a job has made."""
    made = site.store.find(Filter(kind="receipt"), limit=1000)
    payloads = [json.loads(site.store.payload(one.id)) for one in made]
    return payloads.count({"of": job_id})


def supersede(site, job_id):
    """Supersede a lease as another supervisor would: give the job a new token."""
    execute(
        site,
        f"UPDATE {{schema}}.jobs SET token = token + 1 WHERE id = {job_id}",  # noqa: S608 - a number
    )


def end_superseded(site, kind, library):
    """Let a handler complete under a superseded token.

    Return the job and its output.
    """
    job_id = site.add(kind, {"library": library})
    site.wait_begun(job_id)
    supersede(site, job_id)
    site.open_gate(f"gate of {job_id}")
    over = site.folder / f"over {job_id}"
    wait_until(over.exists, PATIENCE_S, "the handler's end")
    said = site.folder / f"said by {job_id}"
    return job_id, said.read_text() if said.exists() else ""


@pytest.mark.parametrize("library", LIBRARIES)
def test_effect_completion_and_jobs_commit_together(site, library):
    """Exactly once each; the result is the completion's, and nothing is charged."""
    job_id = site.add("sale", {"library": library})
    assert site.result(job_id) == {"sold": job_id, "by": library}
    job = site.job(job_id)
    assert (job.attempt, job.failures, job.crashes) == (1, 0, 0)
    assert (sales(site, job_id), receipts(site, job_id)) == (1, 1)


@pytest.mark.parametrize("library", LIBRARIES)
def test_effect_and_completion_roll_back_together(site, library):
    """A rollback by the library without an error is a failure too, and tried again."""
    job_id = site.add("sale", {"library": library, "end": "rolled back"})
    first = site.attempts(job_id)[0]
    assert "never committed" in first.reason
    assert (sales(site, job_id), receipts(site, job_id)) == (0, 0)
    assert site.store.revive([job_id], (JobState.PENDING,)) == 1
    site.store.wake()
    assert site.result(job_id)["by"] == library
    assert site.job(job_id).attempt == 2
    assert (sales(site, job_id), receipts(site, job_id)) == (1, 1)


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_exception_rolls_back_effect_and_completion(site, library):
    """The library rolls back as the exception passes; the next attempt succeeds."""
    job_id = site.add("sale", {"library": library, "end": "raises"})
    assert json.loads(site.finish(job_id).result)["by"] == library
    assert [one.error_class for one in site.store.attempts(job_id)] == ["ValueError"]
    assert (sales(site, job_id), receipts(site, job_id)) == (1, 1)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_crash_before_the_commit_rolls_back_effect_and_completion(site, library):
    """Each attempt dies with its transaction open: nothing of any attempt remains."""
    job_id = site.add("sale", {"library": library, "end": "killed"})
    job = site.finish(job_id)
    assert (job.state, job.outcome) == ("quarantined", "crashed")
    assert (sales(site, job_id), receipts(site, job_id)) == (0, 0)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_superseded_attempt_raises_and_cannot_commit(site, library):
    """If the error is swallowed and the library commits, nothing is kept."""
    job_id, said = end_superseded(site, "superseded", library)
    assert said.startswith(f"Superseded: job {job_id} ")
    assert sales(site, job_id) == 0
    assert site.job(job_id).state is JobState.LEASED


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_superseded_transaction_takes_no_more_statements(site, library):
    """The server itself refuses later statements."""
    job_id, said = end_superseded(site, "after", library)
    assert "current transaction is aborted" in said
    assert sales(site, job_id) == 0
