"""SQLAlchemy's engines over SQLite's asynchronous driver, and in children."""

import asyncio
import sqlite3
from contextlib import closing
from contextvars import ContextVar

import aiosqlite
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from jobpool import JobPool, UsageError
from jobpool.store.opening import open_store
from jobpool.store.records.operating import Filter
from support.postgres.server import libpq_url, server
from support.site.supervising import Site

APP = """
import aiosqlite
import sqlalchemy as sa

FILE = HERE / "jobpool.db"
engine = sa.create_engine(os.environ["SHOP_DATABASE"].replace(":", "+psycopg:", 1))
with engine.connect() as connection:  # it goes back to the engine's pool
    AT_IMPORT = connection.execute(sa.text("SELECT pg_backend_pid()")).scalar_one()
jobs.on_child_start(lambda: engine.dispose(close=False))


@jobs.job("cpu", kind="shop.backend", max_attempts=1)
def backend(gate: str) -> tuple[int, int, int]:
    with engine.connect() as connection:
        mine = connection.execute(sa.text("SELECT pg_backend_pid()")).scalar_one()
    hold(gate)
    return os.getpid(), mine, AT_IMPORT


@jobs.job("cpu", kind="shop.pack", max_attempts=1)
async def pack(fails: bool) -> str:
    async with aiosqlite.connect(FILE, timeout=20) as mine:
        await mine.execute("INSERT INTO packed VALUES (?)", (current().id,))
        await current().complete_async(mine, "packed")
        if fails:
            raise ValueError("before the commit")
        await mine.commit()
    return "not kept"
"""


@pytest.fixture
def jobs(tmp_path):
    pool = JobPool(f"sqlite:///{tmp_path}/jobs.db")

    @pool.job("cpu", kind="add")
    def add(n: int) -> int:
        return n

    add.enqueue(0)  # makes the database
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        connection.execute("CREATE TABLE orders (n INTEGER)")
    yield pool, add
    pool.close()


def test_a_job_commits_or_vanishes_with_an_asynchronous_session_on_sqlite(
    jobs, tmp_path
):
    _pool, add = jobs
    file = tmp_path / "jobs.db"

    async def sell():
        engine = create_async_engine(f"sqlite+aiosqlite:///{file}")
        for end in (AsyncSession.rollback, AsyncSession.commit):
            async with AsyncSession(engine) as session:
                await session.execute(text("INSERT INTO orders VALUES (1)"))
                job = await add.options(connection=session).enqueue_async(1)
                assert job.created
                await end(session)
        await engine.dispose()

    asyncio.run(sell())
    with closing(open_store(f"sqlite:///{file}")) as store:
        assert store.count(Filter()) == 2
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT count(*) FROM orders").fetchone() == (1,)


def test_a_connection_of_aiosqlite_itself_will_do(jobs, tmp_path):
    """It is used in its own thread, which is the only one that may."""
    _pool, add = jobs

    async def sell():
        async with aiosqlite.connect(tmp_path / "jobs.db") as mine:
            with pytest.raises(UsageError, match="enqueue_async"):
                add.options(connection=mine).enqueue(1)
            await add.options(connection=mine).enqueue_async(1)
            await mine.rollback()
            await add.options(connection=mine).enqueue_async(2)
            await mine.commit()
        with pytest.raises(UsageError, match="it is closed"):
            await add.options(connection=mine).enqueue_async(3)

    asyncio.run(sell())
    with closing(open_store(f"sqlite:///{tmp_path}/jobs.db")) as store:
        assert store.count(Filter()) == 2


def test_what_is_called_there_knows_the_callers_context(jobs, tmp_path):
    """As the trace that the job is to be in."""
    pool, add = jobs
    who = ContextVar("who")
    seen = []
    pool.on_enqueue(lambda _job: seen.append(who.get()))

    async def sell():
        who.set("ada")
        async with aiosqlite.connect(tmp_path / "jobs.db") as mine:
            await add.options(connection=mine).enqueue_async(1)
            await mine.commit()

    asyncio.run(sell())
    assert seen == ["ada"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    database = {"SHOP_DATABASE": libpq_url(server().url)}
    with Site(tmp_path_factory.mktemp("site"), APP) as site:
        site.start("cpu=2", env=database)
        yield site


def test_an_engine_survives_the_fork_by_one_line(site):
    """Each child has a connection of its own, though one was open before the fork."""
    first, second = (site.add("shop.backend", {"gate": "both"}) for _ in range(2))
    for job_id in (first, second):
        site.wait_begun(job_id)
    site.open_gate("both")
    ran = [site.result(job_id) for job_id in (first, second)]
    pids, backends, at_import = map(set, zip(*ran, strict=True))
    assert (len(pids), len(backends), len(at_import)) == (2, 2, 1)
    assert not backends & at_import


@pytest.mark.parametrize("fails", [False, True])
def test_a_handler_completes_on_a_connection_of_aiosqlite(site, fails):
    file = site.folder / "jobpool.db"
    with closing(sqlite3.connect(file, timeout=20)) as mine:
        mine.execute("CREATE TABLE IF NOT EXISTS packed (id INTEGER)")
    job_id = site.add("shop.pack", {"fails": fails})
    assert site.finish(job_id).state == ("dead" if fails else "succeeded")
    with closing(sqlite3.connect(file, timeout=20)) as mine:
        rows = mine.execute("SELECT id FROM packed WHERE id = ?", (job_id,)).fetchall()
    assert rows == ([] if fails else [(job_id,)])
