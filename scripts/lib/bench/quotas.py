"""What quotas cost, and what they keep: claims of a store, and supervisors at work.

A claim is measured where it happens, in the store: pairs of short spells alternate, so
that both sides of a ratio meet the same noise. Caps and rates are measured from the
handlers' own notes.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from peers import NotMeasured
from psycopg import sql

from bench.report import Sample
from bench.running import CONTENDERS, fresh_database, measure
from bench.sections import Scale
from support.postgres.server import query_of

SQLITE, POSTGRES = "jobpool", "jobpool-postgresql"
SYSTEMS = (SQLITE, POSTGRES)
BATCH = 64
PAIRS, PAIRS_QUICK = 20, 4
SPELL_S = 0.4
CLAIMERS = {SQLITE: (1,), POSTGRES: (1, 8, 32)}
CLAIMS = 30
BUCKETS = 10_000
UNBOUND = {
    "cap": {"concurrency": 1_000_000},
    "rate": {"rate": "100000/s", "burst": 1_000_000},
}
"""A cap and a rate that never bind."""
SERIES = (
    "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
    "SELECT i FROM n)"
)
"""What ``generate_series(1, ?)`` is on PostgreSQL."""
SUPERVISORS = {
    "cap": {"scenario": "binding_cap", "supervisors": 4, "workers": 8, "count": 4000},
    "rate": {"scenario": "binding_rate", "supervisors": 2, "workers": 8, "seconds": 60},
    "permits": {
        "scenario": "asking",
        "supervisors": 1,
        "workers": 8,
        "handlers": 8,
        "seconds": 5,
    },
}
QUICK_WISHES = {"cap": {"count": 800}, "rate": {"seconds": 10}, "permits": {}}


class Claimer:
    """A claimer in a process of its own (``contenders/on_claims.py``)."""

    def __init__(self, source: Path | None = None) -> None:
        paths = [str(source)] if source else []
        self._process = subprocess.Popen(
            [sys.executable, str(CONTENDERS / "on_claims.py")],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, method: str, **wish: object) -> None:
        """Send a request."""
        assert self._process.stdin is not None  # noqa: S101 - for mypy
        self._process.stdin.write(json.dumps({"do": method, **wish}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Wait for the answer.

        Raises:
            NotMeasured: it has ended.
        """
        assert self._process.stdout is not None  # noqa: S101 - for mypy
        line = self._process.stdout.readline()
        if not line:
            raise NotMeasured("a claimer ended; see above")
        return json.loads(line)

    def call(self, method: str, **wish: object) -> Any:
        """Send a request, and wait for its answer."""
        self.ask(method, **wish)
        return self.answer()

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


def samples(scale: Scale, number: int, old: Path | None) -> Iterator[Sample]:
    """Measure one round.

    Args:
        scale: how much.
        number: the round.
        old: the ``src`` of an older release, to compare with; None: without.
    """
    for system in SYSTEMS:
        if old is not None:
            yield from _without(scale, system, number, old)
        yield from _unbound(scale, system, number)
        yield from _blocked(scale, system, number)
        for wish in SUPERVISORS:
            yield from _supervised(scale, system, number, wish)


def pairs_of(scale: Scale) -> int:
    """Return how many pairs of spells are compared."""
    return PAIRS_QUICK if scale.rounds == 1 else PAIRS


@contextmanager
def fresh(system: str) -> Iterator[str]:
    """Yield the URL of an empty store."""
    if system == POSTGRES:
        yield fresh_database()
        return
    with tempfile.TemporaryDirectory(prefix="jobpool-bench-") as directory:
        yield f"sqlite:///{directory}/jobs.db"


def cycles(claimers: Sequence[Claimer], kinds: Sequence[str]) -> float:
    """Let all of them lease and settle at the same time; return all jobs a second."""
    for claimer in claimers:
        claimer.ask("cycle", kinds=kinds, batch=BATCH, seconds=SPELL_S)
    return sum(claimer.answer() for claimer in claimers)


def _without(scale: Scale, system: str, number: int, old: Path) -> Iterator[Sample]:
    """Without quotas: this release over the older one, and that over itself."""
    with ExitStack() as stack:
        found = []
        for n, source in enumerate((old, old, None)):
            url = stack.enter_context(fresh(system))
            claimer = stack.enter_context(closing(Claimer(source)))
            claimer.call("open", url=url, run=f"r{n}", kinds=["plain"])
            found.append(claimer)
        for pair in range(pairs_of(scale)):
            order = found if pair % 2 else found[::-1]
            rates = {}
            for claimer in order:
                claimer.call("fill", kind="plain", count=enough(rates.values()))
                rates[claimer] = cycles([claimer], ["plain"])
            first, second, new = (rates[claimer] for claimer in found)
            at = number * pairs_of(scale) + pair
            what = "no quotas in use"
            yield Sample("quotas", f"{what}: over older", system, at, new / first)
            yield Sample(
                "quotas", f"{what}: older over itself", system, at, second / first
            )


def enough(rates: Any) -> int:
    """Return how many jobs a spell cannot use up."""
    return int(1.5 * SPELL_S * max(rates, default=40_000)) + 10 * BATCH


def _unbound(scale: Scale, system: str, number: int) -> Iterator[Sample]:
    """With a cap or a rate that does not bind: over the same claims without one."""
    for name, quota in UNBOUND.items():
        for count in CLAIMERS[system]:
            with ExitStack() as stack:
                sides = {}
                for kind, more in (
                    ("plain", {}),
                    ("laned", {"quotas": {"q": quota}, "needs": {"laned": ["q"]}}),
                ):
                    url = stack.enter_context(fresh(system))
                    sides[kind] = [
                        stack.enter_context(closing(Claimer())) for _ in range(count)
                    ]
                    for n, claimer in enumerate(sides[kind]):
                        claimer.call("open", url=url, run=f"r{n}", kinds=[kind], **more)
                for pair in range(-1, pairs_of(scale)):
                    order = ["plain", "laned"] if pair % 2 else ["laned", "plain"]
                    rates: dict[str, float] = {}
                    for kind in order:
                        sides[kind][0].call(
                            "fill", kind=kind, count=enough(rates.values())
                        )
                        rates[kind] = cycles(sides[kind], [kind])
                    if pair < 0:
                        continue  # nobody had asked for anything before
                    yield Sample(
                        "quotas",
                        f"a {name} that does not bind, {count} claimers: over plain",
                        system,
                        number * pairs_of(scale) + pair,
                        rates["laned"] / rates["plain"],
                    )


def _blocked(scale: Scale, system: str, number: int) -> Iterator[Sample]:
    """Claims beside what is blocked, over claims without."""
    with fresh(system) as url, closing(Claimer()) as claimer:
        claimer.call("open", url=url, run="r", kinds=["plain"])
        plain_ms = _claim_ms(claimer, ["plain"], "plain")
    with fresh(system) as url, closing(Claimer()) as claimer:
        claimer.call(
            "open",
            url=url,
            run="r",
            kinds=["busy", "free"],
            quotas={"one": {"concurrency": 1}, "many": UNBOUND["cap"]},
            needs={"busy": ["one"], "free": ["many"]},
        )
        claimer.call("fill", kind="busy", count=2)
        claimer.call("hold", kinds=["busy"], count=1)
        _multiply(url, scale.rows)
        took_ms = _claim_ms(claimer, ["busy", "free"], "free")
        what = f"claim of {BATCH} before {scale.rows:,} blocked: times plain"
        yield Sample("quotas", what, system, number, took_ms / plain_ms)
    with fresh(system) as url, closing(Claimer()) as claimer:
        claimer.call(
            "open",
            url=url,
            run="r",
            kinds=["busy", "free"],
            quotas={
                "each": {"rate": "1/h", "burst": 1, "per": "args.v"},
                "many": UNBOUND["cap"],
            },
            needs={"busy": ["each"], "free": ["many"]},
        )
        claimer.call("fill", kind="busy", count=2 * BUCKETS, values=BUCKETS)
        begun = claimer.call("block", kinds=["busy"])
        if begun != BUCKETS:
            raise NotMeasured(f"{begun} jobs of {BUCKETS} buckets began")
        took_ms = _claim_ms(claimer, ["busy", "free"], "free")
        what = f"claim of {BATCH} before {BUCKETS:,} blocked buckets: times plain"
        yield Sample("quotas", what, system, number, took_ms / plain_ms)


def _claim_ms(claimer: Claimer, kinds: Sequence[str], kind: str) -> float:
    claimer.call("fill", kind=kind, count=BATCH * (CLAIMS + 1))
    found: float = claimer.call("claim_ms", kinds=kinds, batch=BATCH, times=CLAIMS)
    return found


def _multiply(url: str, rows: int) -> None:
    """Copy the waiting job directly in the table."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
            table = "jobpool_jobs"
            names = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            ((job_id,),) = database.execute(
                "SELECT id FROM jobpool_jobs WHERE state = 'runnable'"
            ).fetchall()
            numbers = SERIES.replace("?", str(rows))
            columns = ", ".join(f"{table}.{name}" for name in names if name != "id")
            database.execute(_copy(table, columns, numbers, job_id))
            database.commit()
        return
    with psycopg.connect(url) as connection:
        schema = query_of(url).get("schema", "jobpool")
        found = connection.execute(
            "SELECT column_name FROM information_schema.columns "
            "WHERE table_schema = %s AND table_name = 'jobs' AND column_name <> 'id' "
            "AND is_generated = 'NEVER'",
            [schema],
        ).fetchall()
        table = f"{schema}.jobs"
        ((job_id,),) = connection.execute(
            sql.SQL("SELECT id FROM {}.jobs WHERE state = 'runnable'").format(
                sql.Identifier(schema)
            )
        ).fetchall()
        columns = ", ".join(f"{table}.{name}" for (name,) in found)
        numbers = f"generate_series(1, {rows})"
        connection.execute(_copy(table, columns, numbers, job_id).encode())


def _copy(table: str, columns: str, numbers: str, job_id: int) -> str:
    """Return the statement; its parts are the catalog's, and numbers."""
    bare = columns.replace(f"{table}.", "")
    return (
        f"INSERT INTO {table} ({bare}) SELECT {columns} FROM {table} "  # noqa: S608
        f"CROSS JOIN {numbers} AS n WHERE {table}.id = {job_id}"
    )


def _supervised(scale: Scale, system: str, number: int, name: str) -> Iterator[Sample]:
    """Supervisors at work."""
    wish: Mapping[str, object] = SUPERVISORS[name]
    if scale.rounds == 1:
        wish = {**wish, **QUICK_WISHES[name]}
    program = system.replace("jobpool", "quotas")
    for unit, value in measure(program, wish).items():
        what = str(wish["scenario"]).replace("_", " ")
        yield Sample("quotas", f"{what}: {unit}", system, number, value)
