"""Says what a migration would do to a store on SQLite: size, time, SQL."""

from __future__ import annotations

import os

from jobpool.store.sqlite.connection.connect import connect, schema_version
from jobpool.store.sqlite.connection.location import identity_of
from jobpool.store.statements.migration import MigrationPart, MigrationPlan
from jobpool.store.statements.named_sql import load_migrations, load_script

_ROWS_PER_S = 2e6
"""Jobs read to build a step's indexes."""


def migration_plan(path: str) -> MigrationPlan:
    """Return what opening the store would do; change nothing.

    Raises:
        StoreRefused, StoreUnavailable: the file cannot be used.
    """
    path = os.path.realpath(path)
    steps = load_migrations("sqlite")
    script = load_script("sqlite", "scripts", "migrate_step.sql")
    version = jobs = size = 0
    if identity_of(path) is not None:
        session, _ = connect(path)
        try:
            version = schema_version(session)
            if version:
                ((jobs, size),) = session.rows("migration_size")
        finally:
            session.connection.close()
    left = range(version + 1, len(steps) + 1)
    return MigrationPlan(
        url=f"sqlite:///{path}",
        schema_version=version,
        newest_version=len(steps),
        parts=tuple(
            MigrationPart(
                version=number,
                what="expand" if version else "create",
                tables=("jobs",) if version else (),
                lock="the file's write lock",
                waits="all writers; readers do not",
                rows=jobs,
                size_bytes=size,
                about_s=0.05 + jobs / _ROWS_PER_S,
            )
            for number in left
        ),
        sql="".join(
            script.format(version=number, script=steps[number - 1]) for number in left
        ),
    )
