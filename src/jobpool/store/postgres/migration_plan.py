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

_PATIENCE_S = 30.0
_EXPAND_S = 0.1
_BYTES_PER_S = {"index": 100e6, "constraint": 200e6}
"""Of a table, by what reads it: an index reads it twice."""
_EXPAND = """
-- Step {version} of the schema. The tables are locked for some milliseconds. If they
-- cannot be had at once, run this script again.
BEGIN;
SET LOCAL statement_timeout = {lock_ms};
{lock}
SET LOCAL statement_timeout = 0;
SET LOCAL lock_timeout = {lock_ms};
{expand}
INSERT INTO {schema}.meta (name, value) VALUES ('expanded', {version})
ON CONFLICT (name) DO UPDATE SET value = excluded.value;
COMMIT;

"""
_RECORD = """
BEGIN;
INSERT INTO {schema}.meta (name, value) VALUES ('schema_version', {version})
ON CONFLICT (name) DO UPDATE SET value = excluded.value;
DELETE FROM {schema}.meta WHERE name = 'expanded';
COMMIT;
"""
_NEW = """
BEGIN;
CREATE SCHEMA IF NOT EXISTS {schema};
{scripts}
INSERT INTO {schema}.meta (name, value) VALUES ('schema_version', {version});
COMMIT;
"""


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
            sql = _NEW.format(schema=schema, scripts=scripts, version=len(steps))
            parts.append(_creation(len(steps)))
        expanded = session.value("counter", name="expanded") if version else None
        for step in steps[version:] if version else ():
            left = list(step.online)
            if step.version == expanded:
                left = [part for part in left if not is_built(session, part)]
            else:
                parts.append(_expansion(session, step))
                sql += _EXPAND.format(**step._asdict(), schema=schema, lock_ms=LOCK_MS)
            parts += [_building(session, step, part) for part in left]
            sql += "".join(f"{one};\n" for part in left for one in part.statements)
            sql += _RECORD.format(schema=schema, version=step.version)
        return MigrationPlan(
            url=address.shown,
            schema_version=version,
            newest_version=len(steps),
            parts=tuple(parts),
            sql=sql,
        )
    finally:
        session.connection.close()


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
        about_s=size / _BYTES_PER_S[part.what],
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
