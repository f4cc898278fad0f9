"""Says what a migration would do to a store on PostgreSQL: locks, sizes, time, SQL."""

from __future__ import annotations

import re

from jobpool.store.postgres.connection.connect import connect, schema_version
from jobpool.store.postgres.connection.session import Session, migrations_of
from jobpool.store.postgres.connection.steps import (
    OnlinePart,
    Step,
    at_once,
    steps_of,
)
from jobpool.store.postgres.connection.url import read_address
from jobpool.store.postgres.migrate import LOCK_MS, is_built
from jobpool.store.statements.migration import MigrationPart, MigrationPlan
from jobpool.store.statements.named_sql import load_script

_PATIENCE_S = 30.0
_EXPAND_S = 0.1
_BYTES_PER_S = {"index": 200e6, "constraint": 400e6}
"""Of a table, by what reads it: an index reads it twice."""


def migration_plan(url: str) -> MigrationPlan:
    """Return what `postgres.migrate` would do; change nothing.

    Raises:
        StoreRefused, StoreUnavailable: the store cannot be used.
    """
    address = read_address(url)
    session, _ = connect(address, _PATIENCE_S)
    try:
        version, schema = schema_version(session), session.schema
        steps = steps_of(schema)
        parts: list[MigrationPart] = []
        sql = ""
        if not version:
            scripts = "\n".join(map(at_once, migrations_of(schema)))
            sql = _script("new").format(
                schema=schema, scripts=scripts, version=len(steps)
            )
            parts.append(_creation(len(steps)))
        expanded = session.value("counter", name="expanded") if version else None
        for step in steps[version:] if version else ():
            left = list(step.online)
            if step.version == expanded:
                left = [part for part in left if not is_built(session, part)]
            else:
                parts.append(_expansion(session, step))
                sql += _script("expand").format(
                    **step._asdict(), schema=schema, lock_ms=LOCK_MS
                )
            parts += [_building(session, step, part) for part in left]
            sql += "".join(f"{one};\n" for part in left for one in part.statements)
            sql += _script("record").format(schema=schema, version=step.version)
        return MigrationPlan(
            url=address.shown,
            schema_version=version,
            newest_version=len(steps),
            parts=tuple(parts),
            sql=sql,
        )
    finally:
        session.connection.close()


def _script(name: str) -> str:
    return load_script("postgres", "scripts", f"migrate_{name}.sql")


def _creation(version: int) -> MigrationPart:
    return MigrationPart(
        version=version,
        what="create",
        lock="none: there are no tables yet",
        waits="nobody",
        about_s=_EXPAND_S,
    )


def _expansion(session: Session, step: Step) -> MigrationPart:
    tables = _named(
        step.lock or step.expand, r"(?:ALTER TABLE|LOCK TABLE|,)\s+", session
    )
    rows, size = _size(session, tables)
    return MigrationPart(
        version=step.version,
        what="expand",
        tables=tables,
        lock="ACCESS EXCLUSIVE",
        waits=f"all who use them, for {LOCK_MS / 1000:g} s at most",
        rows=rows,
        size_bytes=size,
        about_s=_EXPAND_S,
    )


def _building(session: Session, step: Step, part: OnlinePart) -> MigrationPart:
    tables = _named(part.statements[-1], r"\b(?:ON|ALTER TABLE)\s+", session)
    rows, size = _size(session, tables)
    return MigrationPart(
        version=step.version,
        what=part.what,
        name=part.name,
        tables=tables,
        lock="SHARE UPDATE EXCLUSIVE",
        waits="nobody",
        rows=rows,
        size_bytes=size,
        about_s=max(_EXPAND_S, size / _BYTES_PER_S[part.what]),
    )


def _named(text: str, before: str, session: Session) -> tuple[str, ...]:
    """Return the tables of ours that follow *before* in a statement."""
    found = re.findall(rf"{before}{session.schema}\.(\w+)", text)
    return tuple(dict.fromkeys(found))


def _size(session: Session, tables: tuple[str, ...]) -> tuple[int, int]:
    rows = size = 0
    for name in tables:
        found = session.rows("table_size", schema=session.schema, name=name)
        for some_rows, some_bytes in found:
            rows, size = rows + some_rows, size + some_bytes
    return rows, size
