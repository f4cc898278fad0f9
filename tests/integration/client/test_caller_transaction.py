"""Jobs in a caller's own transaction on PostgreSQL, whatever connection it uses."""

import asyncio
import uuid
from contextlib import contextmanager, suppress

import psycopg
import psycopg2
import psycopg2.extras
import pytest
import sqlalchemy as sa
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from jobpool import JobPool, KeyConflict, UsageError
from jobpool.store.opening import open_store
from jobpool.store.records.operating import Filter
from support.postgres.server import libpq_url, server


@pytest.fixture(scope="module")
def url():
    url = server().fresh_url()
    yield url
    server().drop(url)


@pytest.fixture
def jobs(url):
    pool = JobPool(url)
    yield pool
    pool.close()


@pytest.fixture
def add(jobs):
    @jobs.job("cpu", kind="add")
    def add(a: int, b: int = 1) -> int:
        return a + b

    add.enqueue(0)  # makes the tables
    return add


@pytest.fixture
def count(url):
    store = open_store(url)
    before = store.count(Filter())
    yield lambda: store.count(Filter()) - before
    store.close()


@pytest.fixture
def plain(url):
    """A URL as libpq accepts it: the same database, without our own option."""
    return libpq_url(url)


def sqlalchemy_url(plain, driver):
    return plain.replace("postgresql://", f"postgresql+{driver}://", 1)


@contextmanager
def psycopg_3(plain):
    """With row and cursor factories of the caller's."""
    connection = psycopg.connect(plain, row_factory=dict_row)
    connection.cursor_factory = psycopg.ClientCursor
    with connection:
        yield connection, connection.commit, connection.rollback


@contextmanager
def psycopg_2(plain):
    connection = psycopg2.connect(plain, cursor_factory=psycopg2.extras.RealDictCursor)
    yield connection, connection.commit, connection.rollback
    connection.close()


def on_sqlalchemy(driver, open_):
    @contextmanager
    def opened(plain):
        engine = sa.create_engine(sqlalchemy_url(plain, driver))
        with open_(engine) as held:
            yield held, held.commit, held.rollback
        engine.dispose()

    return opened


CALLERS = {
    "psycopg": psycopg_3,
    "psycopg2": psycopg_2,
    "sqlalchemy": on_sqlalchemy("psycopg", sa.Engine.connect),
    "sqlalchemy psycopg2": on_sqlalchemy("psycopg2", sa.Engine.connect),
    "sqlalchemy session": on_sqlalchemy("psycopg", Session),
}


@pytest.fixture(params=CALLERS)
def caller(request, plain, add):
    """A caller's connection, its commit and its rollback."""
    with CALLERS[request.param](plain) as held:
        yield held


def test_a_job_commits_or_vanishes_with_the_transaction(caller, add, count):
    """Others see it only after the commit; after a rollback it does not exist."""
    connection, commit, rollback = caller
    add.options(connection=connection).enqueue(1)
    assert count() == 0
    rollback()
    assert count() == 0
    job = add.options(connection=connection).enqueue(2, b=3)
    assert job.created
    assert count() == 0
    commit()
    assert count() == 1
    assert job.info().state == "runnable"


def test_an_error_of_ours_leaves_the_transaction_usable(caller, add, count):
    """A conflicting key is refused within a savepoint; the rest commits."""
    connection, commit, _ = caller
    bound = add.options(connection=connection, key=uuid.uuid4().hex)
    first = bound.enqueue(1)
    with pytest.raises(KeyConflict) as caught:
        bound.enqueue(2)
    assert caught.value.job_id == first.id
    assert not bound.enqueue(1).created
    add.options(connection=connection).enqueue(3)
    commit()
    assert count() == 2


def test_many_jobs_in_one_transaction(caller, jobs, add, count):
    """enqueue_many takes a connection as well."""
    connection, commit, _ = caller
    items = ({"a": n} for n in range(1500))
    assert jobs.enqueue_many(add.options(connection=connection), items) == 1500
    assert count() == 0
    commit()
    assert count() == 1500


def test_a_transaction_begun_and_ended_by_us(plain, jobs, add, count):
    """It commits at the end of the block, and rolls back if the block raises."""
    for name in ("psycopg", "psycopg2", "sqlalchemy", "sqlalchemy session"):
        before = count()
        with CALLERS[name](plain) as (connection, _, _):
            with jobs.transaction(connection):
                add.options(connection=connection).enqueue(1)
                assert count() == before, name
            assert count() == before + 1, name
            with suppress(ZeroDivisionError), jobs.transaction(connection):
                add.options(connection=connection).enqueue(1)
                raise ZeroDivisionError
            assert count() == before + 1, name
            with jobs.transaction(connection):
                with pytest.raises(UsageError, match=r"inside `with jobs.trans"):
                    add.enqueue(1)
                with pytest.raises(UsageError, match="would wait"):
                    jobs.transaction(connection).__enter__()


@pytest.mark.parametrize("library", [psycopg, psycopg2])
def test_each_call_commits_on_an_autocommit_connection(
    library, plain, jobs, add, count
):
    """Each call is then committed at once, unless a transaction is open."""
    connection = library.connect(plain)
    connection.autocommit = True
    add.options(connection=connection).enqueue(1)
    assert count() == 1
    keyed = add.options(connection=connection, key=library.__name__)
    keyed.enqueue(1)
    with pytest.raises(KeyConflict):
        keyed.enqueue(2)
    assert count() == 2
    cursor = connection.cursor()
    cursor.execute("BEGIN")
    add.options(connection=connection).enqueue(1)
    cursor.execute("ROLLBACK")
    assert count() == 2
    with jobs.transaction(connection):
        add.options(connection=connection).enqueue(1)
    assert count() == 3
    connection.close()


def test_a_connection_to_another_queue_is_refused(plain, url, add, jobs):
    """Another schema's jobs would never be run by this store's supervisors."""
    other = server().fresh_url()
    elsewhere = JobPool(other)
    with psycopg.connect(plain) as connection:
        wrong = elsewhere.job("cpu", kind="k")(lambda: None)
        wrong.enqueue()
        # The same database: the schema is of the store, not of the connection.
        assert wrong.options(connection=connection).enqueue().created
    elsewhere.close()
    server().drop(other)
    with psycopg.connect(server().admin_url, dbname="postgres") as connection:
        with pytest.raises(UsageError, match=r"schema .* is missing"):
            add.options(connection=connection).enqueue(1)
        connection.execute("SELECT 1")  # and it can be used on


def test_an_unusable_connection_is_refused_with_the_remedy(plain, add):
    """Closed, failed, busy, or no connection at all: each error says what to do."""
    with psycopg.connect(plain) as connection:
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SELECT 1/0")
        with pytest.raises(UsageError, match="its transaction has failed"):
            add.options(connection=connection).enqueue(1)
    with pytest.raises(UsageError, match="is closed"):
        add.options(connection=connection).enqueue(1)
    with pytest.raises(UsageError, match="expected one to the store's PostgreSQL"):
        add.options(connection=object()).enqueue(1)
    engine = sa.create_engine(sqlalchemy_url(plain, "psycopg"))
    with pytest.raises(UsageError, match="is no connection"):
        add.options(connection=engine).enqueue(1)


def test_an_open_transaction_is_not_begun_again(plain, jobs, add):
    """jobs.transaction() would commit what the caller has not finished."""
    for name in ("psycopg", "psycopg2", "sqlalchemy"):
        with CALLERS[name](plain) as (connection, _, rollback):
            add.options(connection=connection).enqueue(1)
            with pytest.raises(UsageError, match="transaction is already open on it"):
                jobs.transaction(connection).__enter__()
            rollback()


def test_a_flow_joins_a_transaction_on_an_asynchronous_connection(
    jobs, plain, add, count
):
    """It vanishes with a rollback, and is there once the transaction commits."""

    async def on_psycopg():
        async with await psycopg.AsyncConnection.connect(plain) as connection:
            for end in (connection.rollback, connection.commit):
                flow = jobs.flow("sums", key="k")
                flow.add(add.call(1), after=flow.add(add.call(2)))
                run = await flow.enqueue_async(connection=connection)
                assert run.created
                assert count() == 0
                await end()
            assert count() == 2

    asyncio.run(on_psycopg())


def test_asynchronous_connections(plain, add, count):
    """enqueue_async joins psycopg's and SQLAlchemy's transactions.

    Neither is required.
    """

    async def on_psycopg():
        async with await psycopg.AsyncConnection.connect(
            plain, row_factory=dict_row
        ) as connection:
            bound = add.options(connection=connection)
            with pytest.raises(UsageError, match="enqueue_async"):
                bound.enqueue(1)
            await bound.enqueue_async(1)
            await connection.rollback()
            job = await bound.enqueue_async(1)
            assert count() == 0
            await connection.commit()
            assert job.created
            assert count() == 1

    async def on_sqlalchemy():
        engine = create_async_engine(sqlalchemy_url(plain, "psycopg"))
        async with engine.connect() as connection:
            await add.options(connection=connection).enqueue_async(2)
            await connection.commit()
            await add.options(connection=connection).enqueue_async(3)
            await connection.rollback()
        async with AsyncSession(engine) as session:
            await add.options(connection=session).enqueue_async(4)
            assert count() == 2
            await session.commit()
        await engine.dispose()

    asyncio.run(on_psycopg())
    asyncio.run(on_sqlalchemy())
    assert count() == 3
    assert asyncio.run(add.enqueue_async(5)).created
    assert count() == 4


def test_django(plain, jobs, add, count):
    """Inside atomic() the job is the block's; outside it commits at once."""
    import django
    from django.conf import settings
    from django.db import connections, transaction

    parts = psycopg.conninfo.conninfo_to_dict(plain)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts["dbname"],
        "USER": parts["user"],
        "PASSWORD": parts.get("password", ""),
        "HOST": parts.get("host", ""),
        "PORT": parts.get("port", ""),
    }
    if not settings.configured:
        settings.configure(DATABASES={"default": database}, USE_TZ=True)
        django.setup()
    connection = connections["default"]
    try:
        with suppress(ZeroDivisionError), transaction.atomic():
            add.options(connection=connection).enqueue(1)
            raise ZeroDivisionError
        assert count() == 0
        with transaction.atomic():
            connection.cursor().execute("SELECT 1")
            add.options(connection=connection).enqueue(1)
            assert count() == 0
        assert count() == 1
        add.options(connection=connection).enqueue(1)
        assert count() == 2
        with pytest.raises(UsageError, match="atomic"):
            jobs.transaction(connection).__enter__()
    finally:
        connection.close()


def test_the_supervisors_are_woken_after_the_commit(plain, url, jobs, add):
    """transaction() wakes supervisors once it has committed."""
    jobs.close()  # the store's limit on wake-ups would drop a second one
    store = open_store(url)
    store.wait_for_wake(0.0)
    with psycopg.connect(plain) as connection, jobs.transaction(connection):
        add.options(connection=connection).enqueue(1)
    assert store.wait_for_wake(20.0)
    store.close()
