"""The store in one of Django's databases: its URL, and its open transactions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from django.db import connections

from jobpool.errors import ConfigError

_ENGINES = {
    "sqlite3": "sqlite",
    "postgresql": "postgresql",
    "postgresql_psycopg2": "postgresql",
    "postgis": "postgresql",
    "spatialite": "sqlite",
}
"""By the last part of ``ENGINE``: other packages build on Django's own."""
_DJANGOS = frozenset(
    {"isolation_level", "assume_role", "server_side_binding", "pool", "cursor_factory"}
)
"""In ``OPTIONS`` of PostgreSQL: what is Django's, and not libpq's."""
_INSTEAD = (
    "name a store of its own: OPTIONS = {'store': 'postgresql://user@host/database'}"
)


def store_url(alias: str, schema: str | None = None) -> str:
    """Return the URL of the store in a database of ``DATABASES``.

    Args:
        alias: of the database; while tests run, it is the tests' database.
        schema: of its tables, in PostgreSQL; None: ``jobpool``.

    Raises:
        ConfigError: no store can be there.
    """
    settings: Mapping[str, Any] = connections[alias].settings_dict
    engine = str(settings["ENGINE"])
    match _ENGINES.get(engine.rpartition(".")[2]):
        case "sqlite":
            return _sqlite_url(alias, str(settings["NAME"]))
        case "postgresql":
            return _postgresql_url(settings, schema)
        case _:
            raise ConfigError(
                f"the database {alias!r} is of {engine}, where no store can be: "
                f"expected SQLite or PostgreSQL; {_INSTEAD}"
            )


def in_transaction(alias: str) -> bool:
    """Say whether a transaction is open on this thread's connection to a database.

    Raises:
        TransactionManagementError: it has failed, and is only to be rolled back.
    """
    connection = connections[alias]
    if connection.in_atomic_block:
        connection.validate_no_broken_transaction()
        return True
    # Whoever switches autocommit off manages transactions without `atomic`.
    return not (
        connection.settings_dict["AUTOCOMMIT"]
        if connection.connection is None
        else connection.autocommit
    )


def drop_connections() -> None:
    """Close this thread's connections, whatever is open on them.

    The next use makes new ones: of a transaction that an attempt has left open nothing
    stays.
    """
    for connection in connections.all(initialized_only=True):
        try:
            connection.close()
            if hasattr(connection, "close_pool"):
                connection.close_pool()  # its threads would outlive the attempt
        finally:
            del connections[connection.alias]


def _sqlite_url(alias: str, name: str) -> str:
    if name.startswith("file:") or name in {"", ":memory:"}:
        raise ConfigError(
            f"the database {alias!r} is in memory ({name!r}), where no store can be. "
            "In a test enqueue within `with jobpool.testing.Queue():`, which needs "
            "none, or give the tests' database a file: 'TEST': {'NAME': 'test.sqlite3'}"
        )
    return f"sqlite:///{os.path.abspath(name)}"  # noqa: PTH100 - str, not Path


def _postgresql_url(settings: Mapping[str, Any], schema: str | None) -> str:
    options = {
        name: str(value)
        for name, value in settings.get("OPTIONS", {}).items()
        if name not in _DJANGOS
    }
    host, port = str(settings.get("HOST") or ""), str(settings.get("PORT") or "")
    # As options, since a host may be a socket's folder.
    options |= {name: text for name, text in (("host", host), ("port", port)) if text}
    if schema is not None:
        options["schema"] = schema
    user = quote(str(settings.get("USER") or ""), safe="")
    password = quote(str(settings.get("PASSWORD") or ""), safe="")
    login = f"{user}:{password}@" if password else f"{user}@" if user else ""
    name = quote(str(settings.get("NAME") or ""), safe="")
    query = urlencode(options, quote_via=quote)
    return f"postgresql://{login}/{name}{'?' if query else ''}{query}"
