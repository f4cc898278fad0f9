"""What flows cost: their members beside plain jobs, in the store and in a supervisor.

Pairs alternate, so that both sides of a ratio meet the same noise. A side is drained
before the next one begins.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import psycopg
from psycopg import sql

from bench import quotas
from bench.quotas import BATCH, SYSTEMS, Claimer, fresh
from bench.report import Sample
from bench.running import measure
from bench.sections import Scale
from support.postgres.server import query_of

KIND = "k"
WIDE = 10_000
"""Members before one step."""
JOINED = 9_999
"""Single steps before one step: a flow has no more."""
CLAIMS = 60
HOPS = 50
OPEN_FLOWS = 100_000
SERIES = quotas.SERIES.replace("?", str(OPEN_FLOWS)) + " AS n"
TABLES = ("flows", "steps", "jobs")


def samples(scale: Scale, number: int) -> Iterator[Sample]:
    """Measure one round."""
    pairs = 1 if scale.rounds == 1 else 3
    stored = scale.rows // 10
    for system in SYSTEMS:
        for pair in range(pairs):
            at = number * pairs + pair
            with fresh(system) as url, closing(Claimer()) as claimer:
                claimer.call("open", url=url, run="r", kinds=[KIND])
                _drained(claimer, steps=0)  # nobody had asked for anything before
                for what, value in _stored(claimer, stored, pair):
                    yield Sample("flows", what, system, at, value)
            with fresh(system) as url, closing(Claimer()) as claimer:
                claimer.call("open", url=url, run="r", kinds=[KIND])
                _drained(claimer, steps=0)
                for what, value in _ended(claimer, pair):
                    yield Sample("flows", what, system, at, value)
        yield from _beside(system, number)
        wish = {"scenario": "hops", "workers": 2, "count": HOPS, "rounds": 3 * pairs}
        found = measure(system.replace("jobpool", "flows"), wish)
        for what, value in found.items():
            yield Sample("flows", what, system, number, value)


def _stored(claimer: Claimer, count: int, pair: int) -> Iterator[tuple[str, float]]:
    """Yield how fast members are stored, over a bulk enqueue."""
    took_s = {}
    for method in ("store_s", "flow_s") if pair % 2 else ("flow_s", "store_s"):
        took_s[method] = claimer.call(method, kind=KIND, count=count)
    rates = took_s["store_s"] / took_s["flow_s"]
    yield f"storing {count:,} members: over bulk enqueue", rates


def _ended(claimer: Claimer, pair: int) -> Iterator[tuple[str, float]]:
    """Yield how fast members end, over plain jobs."""
    took = {}
    order = (0, 1, JOINED)
    for steps in order if pair % 2 else order[::-1]:
        took[steps] = _drained(claimer, steps=steps)
    for steps, what in (
        (1, f"fan-in of {WIDE:,}"),
        (JOINED, f"join of {JOINED:,} steps"),
    ):
        ours, plain = took[steps], took[0]
        yield f"{what}: ends, over plain", plain["settle"] / ours["settle"]
        both = sum(plain.values()) / sum(ours.values())
        yield f"{what}: lease and settle, over plain", both


def _drained(claimer: Claimer, steps: int) -> dict[str, float]:
    """Store and drain members of so many steps, without the one after them; 0: jobs."""
    count = JOINED if steps == JOINED else WIDE
    if steps:
        claimer.call("flow_s", kind=KIND, count=count, steps=steps)
    else:
        claimer.call("fill", kind=KIND, count=count)
    wish = {"kinds": [KIND], "batch": BATCH}
    found: dict[str, float] = claimer.call("drain", count=count, **wish)
    if steps:
        claimer.call("drain", count=1, **wish)
    return found


def _beside(system: str, number: int) -> Iterator[Sample]:
    """Claims beside open flows, over claims in the same store before."""
    with fresh(system) as url, closing(Claimer()) as claimer:
        claimer.call("open", url=url, run="r", kinds=[KIND])
        _drained(claimer, steps=0)
        plain_ms = _claim_ms(claimer)
        claimer.call("flow_s", kind=KIND, count=0, steps=0, external=True)
        _multiply(url)
        took_ms = _claim_ms(claimer)
        what = f"claim of {BATCH} beside {OPEN_FLOWS:,} open flows: times plain"
        yield Sample("flows", what, system, number, took_ms / plain_ms)


def _claim_ms(claimer: Claimer) -> float:
    claimer.call("fill", kind=KIND, count=BATCH * CLAIMS)
    wish = {"kinds": [KIND], "batch": BATCH, "times": CLAIMS}
    found: float = claimer.call("claim_ms", **wish)
    return found


def _multiply(url: str) -> None:
    """Copy the one open flow, its two steps and their members directly in the tables.

    Ids of flows and steps, and what refers to them, are shifted by two for each copy.
    """
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
            for table in TABLES:
                name = f"jobpool_{table}"
                rows = database.execute(f"PRAGMA table_info({name})")
                database.execute(_copy(name, table, [row[1] for row in rows], SERIES))
            database.execute("ANALYZE")
            database.commit()
        return
    schema = query_of(url).get("schema", "jobpool")
    with psycopg.connect(url) as connection:
        for table in TABLES:
            found = connection.execute(
                "SELECT column_name FROM information_schema.columns WHERE "
                "table_schema = %s AND table_name = %s AND is_generated = 'NEVER'",
                [schema, table],
            ).fetchall()
            series = f"generate_series(1, {OPEN_FLOWS}) AS n (i)"
            name = f"{schema}.{table}"
            columns = [column for (column,) in found]
            connection.execute(_copy(name, table, columns, series).encode())
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("ANALYZE"))


def _copy(name: str, table: str, columns: list[str], series: str) -> str:
    """Return the statement; its parts are the catalog's, and numbers."""
    if table == "jobs":
        columns = [column for column in columns if column != "id"]
    shifted = {"jobs": {"step"}, "steps": {"id", "flow"}, "flows": {"id"}}[table]
    taken = ", ".join(
        f"o.{column} + 2 * n.i" if column in shifted else f"o.{column}"
        for column in columns
    )
    where = "o.state = 'waiting'" if table == "jobs" else "1 = 1"
    return (
        f"INSERT INTO {name} ({', '.join(columns)}) "  # noqa: S608 - see above
        f"SELECT {taken} FROM {name} AS o CROSS JOIN {series} WHERE {where}"
    )
