"""Opens a store by its URL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobpool.core.clock import Clock, SystemClock
from jobpool.core.rules.admission import Admission
from jobpool.errors import ConfigError
from jobpool.store.postgres.connection.run_root import run_base
from jobpool.store.protocol import Store
from jobpool.store.sqlite.handler_transactions import Guest
from jobpool.store.sqlite.store import SqliteStore, run_directory
from jobpool.store.statements.migration import MigrationPlan, Tell

_SQLITE = "sqlite:///"
ALLOW_NETWORK = "JOBPOOL_ALLOW_NETWORK_FS"
"""The variable that allows a store on a network file system, if it is 1."""
USUAL = Admission()
_EXAMPLES = "such as sqlite:///jobpool.db or sqlite:////var/lib/shop/jobpool.db"


def open_store(
    url: str,
    *,
    clock: Clock | None = None,
    create: bool = True,
    admission: Admission = USUAL,
    patience_s: float | None = None,
    reader: bool = False,
) -> Store:
    """Open a store, and bring the schema of a SQLite file up to date.

    Args:
        url: ``sqlite:///relative.db`` (to the working directory),
            ``sqlite:////absolute.db`` or ``postgresql://user@host/database``.
        clock: decides what is due; None: the machine's, or the server's own.
        create: create the file and its tables if they do not exist.
        admission: how many jobs may wait before more are refused.
        patience_s: longest wait for a server's answer; None: 30 s.
        reader: once it is open, the database refuses every change through it.

    Raises:
        ConfigError: not a URL of a store; nothing was opened.
        StoreRefused: the database cannot be used as it is, such as a PostgreSQL schema
            that is older than this jobpool (`migrate`); nothing was changed.
        StoreUnavailable: it cannot be used now; nothing was changed.
    """
    if _is_postgres(url):
        return _open_postgres(
            url,
            clock=clock,
            create=create,
            admission=admission,
            patience_s=30.0 if patience_s is None else patience_s,
            reader=reader,
        )
    return SqliteStore(
        _sqlite_path(url),
        clock=SystemClock() if clock is None else clock,
        create=create,
        admission=admission,
        force_network=os.environ.get(ALLOW_NETWORK) == "1",
        reader=reader,
    )


def migrate(url: str, tell: Tell) -> int:
    """Create a store, or bring its schema up to date.

    Args:
        url: as of `open_store`.
        tell: receives lines for the operator while it works or waits.

    Returns:
        The schema's version.

    Raises:
        ConfigError, StoreRefused: as of `open_store`.
        StoreUnavailable: it could not be finished. The step at which it failed is
            undone, or will be finished by the next call.
    """
    if _is_postgres(url):
        with _psycopg():
            from jobpool.store.postgres.migrate import (  # noqa: PLC0415 - an extra
                migrate as migrate_postgres,
            )
        return migrate_postgres(url, tell)
    store = open_store(url)
    try:
        return int(store.describe()["schema_version"])
    finally:
        store.close()


def migration_plan(url: str) -> MigrationPlan:
    """Return what `migrate` would do; change nothing.

    Raises:
        ConfigError, StoreRefused, StoreUnavailable: as of `open_store`.
    """
    if _is_postgres(url):
        with _psycopg():
            from jobpool.store.postgres import (  # noqa: PLC0415 - an extra
                migration_plan as postgres_plan,
            )
        return postgres_plan.migration_plan(url)
    from jobpool.store.sqlite import migration_plan as sqlite_plan  # noqa: PLC0415 - rare

    return sqlite_plan.migration_plan(_sqlite_path(url))


def guest_store(url: str, *, admission: Admission = USUAL) -> Store | None:
    """Return a store that only enqueues within callers' transactions, without opening.

    Args:
        url: of the store.
        admission: how many jobs may wait before more are refused.

    Returns:
        None on PostgreSQL, where a caller's open transaction does not keep the store
        from being opened.

    Raises:
        ConfigError, StoreRefused: as of `open_store`.
    """
    if _is_postgres(url):
        return None
    return Guest(
        _sqlite_path(url),
        clock=SystemClock(),
        admission=admission,
        force_network=os.environ.get(ALLOW_NETWORK) == "1",
    )


def shown_url(url: str) -> str:
    """Return the URL of a store, which need not exist, as it is shown to people.

    Raises:
        ConfigError: not such a URL.
    """
    if _is_postgres(url):
        with _psycopg():
            from jobpool.store.postgres.connection.url import (  # noqa: PLC0415 - an extra
                read_address,
            )
        return read_address(url).shown
    return f"{_SQLITE}{os.path.realpath(_sqlite_path(url))}"


def run_root(url: str) -> Path:
    """Return the directory below which supervisors keep their run directories.

    Args:
        url: of a store, which need not exist. A PostgreSQL store's directories are in
            a subdirectory that only the database can name.

    Raises:
        ConfigError: not such a URL.
    """
    if _is_postgres(url):
        return run_base(os.environ)
    return run_directory(os.path.realpath(_sqlite_path(url)))


def _is_postgres(url: str) -> bool:
    scheme, colon, _ = url.partition(":")
    return bool(colon) and scheme in {"postgresql", "postgres"}


def _open_postgres(url: str, **options: Any) -> Store:
    with _psycopg():
        from jobpool.store.postgres.store import (  # noqa: PLC0415 - an extra
            PostgresStore,
        )
    return PostgresStore(url, **options)


@contextmanager
def _psycopg() -> Iterator[None]:
    """Import what needs psycopg.

    Raises:
        ConfigError: it cannot be imported.
    """
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            "store: PostgreSQL needs the library psycopg, which cannot be imported "
            f"({error}); install it with `pip install 'jobpool[postgres]'`"
        ) from error


def _sqlite_path(url: str) -> str:
    """Return the path that a SQLite URL names."""
    path = url.removeprefix(_SQLITE)
    if path == url:
        raise ConfigError(
            f"store: {_without_secret(url)!r} is not the URL of a store; expected "
            f"sqlite:/// and a path, {_EXAMPLES}; or postgresql://user@host/database"
        )
    if path in {"", "/", ":memory:"} or path.endswith("/"):
        raise ConfigError(
            f"store: {url!r} names no file; jobs must outlive their process: name "
            f"a file, {_EXAMPLES}"
        )
    if any(odd in path for odd in "\0?#") or not _can_be_named(path):
        raise ConfigError(
            f"store: {url!r} has a character that a path here cannot have (?, #, "
            f"NUL); there are no options after it: write only the path, {_EXAMPLES}"
        )
    return path


def _can_be_named(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def _without_secret(url: str) -> str:
    before, at, after = url.rpartition("@")
    if not at:
        return url
    scheme, colon, _ = before.partition("://")
    return f"{scheme}://…@{after}" if colon else f"…@{after}"
