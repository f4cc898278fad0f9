"""The limit programs of PostgreSQL's latencies: a bare row and nothing else.

One commit is the minimum for a durable enqueue; a commit, a notification and a second
commit are the minimum from an enqueue to work that is recorded as begun. They measure
the server, the disk and the machine in the same minutes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from figures.ground import check
from figures.postgres_store import fresh_store, server
from support.postgres.server import query_of

ROW = b"{}" * 32
PATIENCE_S = 30.0
CHANNEL = "jobpool_figures_bare"


def bare_enqueues(calls: int) -> list[float]:
    """Return how many milliseconds each commit of one small row took."""
    took_ms: list[float] = []
    with bare_table() as table, server().connect() as connection:
        for _ in range(calls):
            began = time.perf_counter()
            _insert(connection, table)
            took_ms.append(1000 * (time.perf_counter() - began))
    return took_ms


def bare_pick_ups(times: int, every_s: float) -> list[float]:
    """Return the milliseconds from before an insert until its taker has committed."""
    asked: list[float] = []
    taken: list[float] = []
    listening = threading.Event()
    until_s = PATIENCE_S + 2 * times * every_s  # of all notifications together

    def take() -> None:
        with server().connect() as connection:
            connection.execute(f"LISTEN {CHANNEL}")
            listening.set()
            # Within the loop nothing may be asked of the connection that listens.
            with server().connect() as other:
                for note in connection.notifies(timeout=until_s, stop_after=times):
                    other.execute(take_one, (note.payload,))
                    taken.append(time.perf_counter())

    with bare_table() as table, server().connect() as connection:
        take_one = sql.SQL("UPDATE {} SET state = 1 WHERE id = %s").format(table)
        taker = threading.Thread(target=take, daemon=True)
        taker.start()
        check(listening.wait(PATIENCE_S), "no session listens")
        for _ in range(times):
            time.sleep(every_s)
            asked.append(time.perf_counter())
            row = str(_insert(connection, table))
            connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, row))
        taker.join(PATIENCE_S)
    check(len(taken) == times, f"{len(taken)} of {times} bare rows were taken")
    return [1000 * (b - a) for a, b in zip(asked, taken, strict=True)]


@contextmanager
def bare_table() -> Iterator[sql.Identifier]:
    """Create a table with the least that a queue needs; drop it at the end."""
    with fresh_store() as url, server().connect() as connection:
        schema = query_of(url)["schema"]
        table = sql.Identifier(schema, "bare")
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        connection.execute(
            sql.SQL(
                "CREATE TABLE {} (id bigserial PRIMARY KEY, state int, payload bytea)"
            ).format(table)
        )
        yield table


def _insert(connection: psycopg.Connection, table: sql.Identifier) -> int:
    statement = "INSERT INTO {} (state, payload) VALUES (0, %s) RETURNING id"
    ((row,),) = connection.execute(sql.SQL(statement).format(table), (ROW,)).fetchall()
    return int(row)
