"""What limits on waiting jobs cost: producers of a store, with and without them.

Pairs of short spells alternate, so that both sides of a ratio meet the same noise.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from bench.quotas import BATCH, PAIRS, PAIRS_QUICK, SPELL_S, SYSTEMS, Claimer, fresh
from bench.report import Sample
from bench.sections import Scale
from support.postgres.server import query_of

KIND, TENANT = "plain", "acme"
LARGE = 10**9
MANY = 10_000
REFUSALS = 50
LONG_S = 3.0
"""Some counts of a million jobs are in it."""
LIMITS: Mapping[str, Any] = {
    "kinds": {KIND: {"depth_max": LARGE, "age_max_s": 1e6}},
    "pools": {"cpu": {"depth_max": LARGE}},
    "tenants": {"*": {"depth_max": LARGE}},
}
"""Far from what is there."""
Side = tuple[Claimer, str, Mapping[str, Any]]
"""Who is asked for what, and how."""


def samples(scale: Scale, number: int, old: Path | None) -> Iterator[Sample]:
    """Measure one round.

    Args:
        scale: how much.
        number: the round.
        old: the ``src`` of an older release, to compare with; None: without.
    """
    for system in SYSTEMS:
        with ExitStack() as stack:

            def opened(
                source: Path | None = None, stack: ExitStack = stack, **more: Any
            ) -> tuple[Claimer, str]:
                url = stack.enter_context(fresh(system))  # noqa: B023 - used at once
                found = stack.enter_context(closing(Claimer(source)))
                found.call("open", url=url, run="r", kinds=[KIND], **more)
                return found, url

            plain, limited = opened()[0], opened(limits=LIMITS)[0]
            wish = {"kind": KIND, "seconds": SPELL_S, "tenant": TENANT}
            sides: list[Side] = [
                (plain, "producing", wish),
                (limited, "producing", wish),
            ]
            what = "enqueue, limits far off: over none"
            yield from _ratios(scale, what, system, number, sides)
            if old is not None:
                before = opened(old)[0]
                sides = [(before, "producing", wish), (plain, "producing", wish)]
                what = "enqueue, no limits: over older"
                yield from _ratios(scale, what, system, number, sides)
            (indexed, _), (bare, url) = opened(), opened()
            _drop_index(url)
            sides = [(bare, "", {}), (indexed, "", {})]
            what = "cycles of a tenant's jobs: over those without its index"
            yield from _ratios(scale, what, system, number, sides)
            yield from _full(system, number, opened)


def _ratios(
    scale: Scale, what: str, system: str, number: int, sides: Sequence[Side]
) -> Iterator[Sample]:
    """Yield the second side over the first, in turns."""
    pairs = PAIRS_QUICK if scale.rounds == 1 else PAIRS
    for pair in range(-1, pairs):
        rates = {}
        for place in (0, 1) if pair % 2 else (1, 0):
            claimer, method, wish = sides[place]
            if method:
                rates[place] = claimer.call(method, **wish)
            else:
                claimer.call("fill", kind=KIND, count=25_000, tenant=TENANT)
                cycle = {"kinds": [KIND], "batch": BATCH, "seconds": SPELL_S}
                rates[place] = claimer.call("cycle", **cycle)
        if pair >= 0:
            at = number * pairs + pair
            yield Sample("admission", what, system, at, rates[1] / rates[0])


def _full(system: str, number: int, opened: Any) -> Iterator[Sample]:
    """Yield how long a refusal takes, by how many wait and how many may."""
    filler, url = opened()
    for waiting in (MANY, 1_000_000):
        filler.call("fill", kind=KIND, count=MANY)
        _fill_up(url, waiting)
        with closing(Claimer()) as refused:
            limits = {"kinds": {KIND: {"depth_max": MANY, "age_max_s": 1e6}}}
            refused.call("open", url=url, run="f", kinds=[KIND], limits=limits)
            took_ms = refused.call("refusal_ms", kind=KIND, times=REFUSALS)
        what = f"refusal, {MANY:,} may wait, {waiting:,} do: ms"
        yield Sample("admission", what, system, number, took_ms)
    with closing(Claimer()) as nearly:
        limits = {"kinds": {KIND: {"depth_max": 1_100_000}}}
        nearly.call("open", url=url, run="n", kinds=[KIND], limits=limits)
        wish = {"kind": KIND, "seconds": LONG_S}
        rate = nearly.call("producing", **wish)
        plain = filler.call("producing", **wish)
    what = "enqueue at 1,000,000 of 1,100,000 that may wait: over no limit"
    yield Sample("admission", what, system, number, rate / plain)


def _drop_index(url: str) -> None:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
            database.execute("DROP INDEX jobpool_jobs_of_tenant")
        return
    with psycopg.connect(url) as connection:
        schema = sql.Identifier(query_of(url).get("schema", "jobpool"))
        connection.execute(sql.SQL("DROP INDEX {}.jobs_of_tenant").format(schema))


def _fill_up(url: str, rows: int) -> None:
    """Copy runnable jobs until there are so many."""
    columns = "kind, pool, state, created_at_ms, run_at_ms"
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
            table = "jobpool_jobs"
            ((there,),) = database.execute(
                f"SELECT count(*) FROM {table} WHERE state = 'runnable'"  # noqa: S608
            )
            database.execute(
                f"INSERT INTO {table} ({columns}) "  # noqa: S608 - our own names
                "WITH RECURSIVE n (i) AS "
                "(SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
                f"SELECT {columns} FROM n CROSS JOIN (SELECT * FROM {table} LIMIT 1) "
                "LIMIT ?",
                [rows, max(0, rows - there)],
            )
            database.commit()
        return
    with psycopg.connect(url) as connection:
        schema = query_of(url).get("schema", "jobpool")
        table = sql.Identifier(schema, "jobs")
        found = connection.execute(
            sql.SQL("SELECT count(*) FROM {} WHERE state = 'runnable'").format(table)
        ).fetchone()
        names = columns + ", payload"
        connection.execute(
            sql.SQL(
                "INSERT INTO {table} ({names}) SELECT {names} FROM "
                "generate_series(1, {rows}) AS n CROSS JOIN "
                "(SELECT * FROM {table} LIMIT 1) AS one"
            ).format(
                table=table,
                names=sql.SQL(names),  # our own
                rows=sql.Literal(max(0, rows - (found or [0])[0])),
            )
        )
