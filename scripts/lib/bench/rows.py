"""Fills a store that a shop has worked with by millions of rows, directly.

The rows are copies of those that the store's own operations have written, with other
times and tenants; indexes are made afterwards. On either database.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, Protocol

import psycopg

from support.postgres.server import libpq_url, query_of

PATTERN = 1000
"""Rows repeat after so many."""
SHARES: Mapping[str, int] = {
    "dead": 20,
    "quarantined": 4,
    "canceled": 6,
    "runnable": 10,
    "pending": 5,
}
"""Of each `PATTERN` rows; the rest have succeeded."""
TENANTS = 500
SPAN_MS = 30 * 86_400_000
"""They were created over so long, up to now."""
BATCH = 500_000
NULLED = (
    *("key", "unique_text", "step", "tick", "replaced_by", "added_by", "lane"),
    *("token", "supervisor", "leased_at_ms", "expires_at_ms"),
)


class Database(Protocol):
    """A connection to either database."""

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Execute one statement; return its rows."""
        ...

    def columns(self, table: str) -> list[str]:
        """Return the columns of a table of jobpool's."""
        ...

    def indexes(self, table: str) -> list[tuple[str, str]]:
        """Return names of a table's indexes, and the statements that make them."""
        ...

    @property
    def prefix(self) -> str:
        """What names of tables begin with."""
        ...

    @property
    def series(self) -> str:
        """The table of numbers from {first} to {last}, named n.i."""
        ...


class OnSqlite:
    """A SQLite file.

    Args:
        connection: open.
    """

    prefix = "jobpool_"
    series = (
        "(WITH RECURSIVE s(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM s "
        "WHERE i < {last}) SELECT i FROM s) AS n"
    )

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """See `Database`."""
        return self._connection.execute(statement).fetchall()

    def columns(self, table: str) -> list[str]:
        """See `Database`."""
        return [row[1] for row in self.run(f"PRAGMA table_info(jobpool_{table})")]

    def indexes(self, table: str) -> list[tuple[str, str]]:
        """See `Database`."""
        return self.run(  # type: ignore[return-value]
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' "
            f"AND tbl_name = 'jobpool_{table}' AND sql IS NOT NULL"
        )


class OnPostgres:
    """A PostgreSQL schema.

    Args:
        connection: open.
        schema: jobpool's.
    """

    series = "generate_series({first}::bigint, {last}) AS n(i)"

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self._connection = connection
        self._schema = schema
        self.prefix = f"{schema}."

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """See `Database`."""
        cursor = self._connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []

    def columns(self, table: str) -> list[str]:
        """See `Database`."""
        rows = self.run(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = "
            f"'{self._schema}' AND table_name = '{table}' ORDER BY ordinal_position"
        )
        return [name for (name,) in rows]

    def indexes(self, table: str) -> list[tuple[str, str]]:
        """See `Database`."""
        return self.run(  # type: ignore[return-value]
            f"SELECT '{self._schema}.' || indexname, indexdef FROM pg_indexes "
            f"WHERE schemaname = '{self._schema}' AND tablename = '{table}' AND "
            "indexname NOT IN (SELECT conname FROM pg_constraint)"
        )


@contextmanager
def opened(url: str) -> Iterator[Database]:
    """Connect to a store's database past the store."""
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for pragma in (
                "ignore_check_constraints = ON",
                "synchronous = OFF",
                "cache_size = -1000000",
                "temp_store = MEMORY",
            ):
                connection.execute(f"PRAGMA {pragma}")
            yield OnSqlite(connection)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return
    schema = query_of(url).get("schema", "jobpool")
    with psycopg.connect(libpq_url(url), autocommit=True) as connection:
        connection.execute("SET maintenance_work_mem = '512MB'")
        connection.execute("SET synchronous_commit = off")
        yield OnPostgres(connection, schema)


def multiply(url: str, rows: int, now_ms: int) -> None:
    """Add so many jobs to a store in which jobs of all states are.

    Args:
        url: the store's.
        rows: jobs; some have attempts, all have arguments.
        now_ms: by its clock.
    """
    with opened(url) as database:
        jobs, attempts = database.prefix + "jobs", database.prefix + "attempts"
        # What is counted and queued by triggers is not what is measured here.
        kept = {t: database.indexes(t) for t in ("jobs", "attempts")}
        _pattern(database, jobs)
        for name, _ in (*kept["jobs"], *kept["attempts"]):
            database.run(f"DROP INDEX {name}")
        ((base,),) = database.run(f"SELECT max(id) FROM {jobs}")
        for first in range(1, rows + 1, BATCH):
            last = min(first + BATCH - 1, rows)
            series = database.series.format(first=first, last=last)
            _copy_jobs(database, series, base, now_ms=now_ms, rows=rows)
            _copy_rest(database, series, attempts, base)
            print(f"bench: {last:,} rows", file=sys.stderr, flush=True)
        for _, statement in (*kept["jobs"], *kept["attempts"]):
            database.run(statement)
        if database.prefix != OnSqlite.prefix:
            last_id = base + rows
            database.run(
                f"SELECT setval(pg_get_serial_sequence('{jobs}', 'id'), {last_id})"
            )
            database.run(f"ANALYZE {jobs}")
            database.run(f"VACUUM (ANALYZE) {attempts}")


def _pattern(database: Database, jobs: str) -> None:
    """Choose which job each row is a copy of."""
    templates: dict[str, list[int]] = {}
    for state in ("succeeded", *SHARES):
        found = database.run(
            f"SELECT id FROM {jobs} WHERE state = '{state}' AND key IS NULL "
            "AND step IS NULL ORDER BY id DESC LIMIT 200"
        ) or database.run(f"SELECT id FROM {jobs} WHERE state = '{state}' LIMIT 200")
        templates[state] = [job_id for (job_id,) in found]
    states = [state for state, share in SHARES.items() for _ in range(share)]
    states += ["succeeded"] * (PATTERN - len(states))
    states = [states[(n * 337) % PATTERN] for n in range(PATTERN)]
    chosen = [
        (n, templates[state][n % len(templates[state])])
        for n, state in enumerate(states)
        if templates[state]
    ]
    values = ", ".join(f"({n}, {job_id})" for n, job_id in chosen)
    database.run("CREATE TEMP TABLE pattern (pos INTEGER PRIMARY KEY, job_id BIGINT)")
    database.run(f"INSERT INTO pattern VALUES {values}")
    database.run(
        f"CREATE TEMP TABLE original AS SELECT * FROM {jobs} "
        "WHERE id IN (SELECT job_id FROM pattern)"
    )
    database.run("CREATE UNIQUE INDEX original_id ON original (id)")


def _copy_jobs(
    database: Database, series: str, base: int, *, now_ms: int, rows: int
) -> None:
    jobs = database.prefix + "jobs"
    created = f"({now_ms} - {SPAN_MS} + n.i * {SPAN_MS} / {rows})"
    other = dict.fromkeys(NULLED, "NULL") | {
        "id": f"{base} + n.i",
        "tenant": f"'tenant-' || (n.i * 7919 % {TENANTS})",
        "created_at_ms": created,
        "run_at_ms": f"CASE o.state WHEN 'pending' THEN {now_ms} + 3600000 + n.i "
        f"ELSE {created} END",
        # As if it named what it was about: many reasons are like few others.
        "reason": "CASE o.state WHEN 'dead' THEN o.reason || ' of order ' || "
        "(n.i % 5000) ELSE o.reason END",
        "started_at_ms": f"CASE WHEN o.started_at_ms > 0 THEN {created} + 200 END",
        "finished_at_ms": f"CASE WHEN o.finished_at_ms > 0 THEN {created} + 1500 END",
    }
    columns = database.columns("jobs")
    values = ", ".join(other.get(name, f"o.{name}") for name in columns)
    database.run(
        f"INSERT INTO {jobs} ({', '.join(columns)}) "
        + ("OVERRIDING SYSTEM VALUE " if database.prefix != OnSqlite.prefix else "")
        + f"SELECT {values} FROM {series} CROSS JOIN pattern AS p "
        "CROSS JOIN original AS o "
        f"WHERE p.pos = n.i % {PATTERN} AND o.id = p.job_id"
    )


def _copy_rest(database: Database, series: str, attempts: str, base: int) -> None:
    """Copy payloads and attempts of what was copied."""
    payloads = database.prefix + "payloads"
    same = f"JOIN pattern AS p ON p.pos = n.i % {PATTERN}"
    if database.columns("payloads"):  # on PostgreSQL they are in the job's row
        database.run(
            f"INSERT INTO {payloads} (job_id, payload) "
            f"SELECT {base} + n.i, o.payload FROM {series} {same} "
            f"JOIN {payloads} AS o ON o.job_id = p.job_id"
        )
    columns = [name for name in database.columns("attempts") if name != "id"]
    other = {"job_id": f"{base} + n.i"}
    values = ", ".join(other.get(name, f"o.{name}") for name in columns)
    database.run(
        f"INSERT INTO {attempts} ({', '.join(columns)}) "
        f"SELECT {values} FROM {series} {same} "
        f"JOIN (SELECT * FROM {attempts} WHERE job_id IN (SELECT job_id FROM pattern)) "
        "AS o ON o.job_id = p.job_id"
    )
