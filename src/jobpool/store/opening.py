"""From a URL to a store."""

from __future__ import annotations

import os
from pathlib import Path

from jobpool.core.clock import Clock, SystemClock
from jobpool.core.settings import QUEUE_DEPTH_MAX
from jobpool.errors import ConfigError, StoreRefused
from jobpool.store.base import Store
from jobpool.store.sqlite.store import SqliteStore, run_directory

_SQLITE = "sqlite:///"
_EXAMPLES = "such as sqlite:///jobpool.db or sqlite:////var/lib/shop/jobpool.db"


def open_store(
    url: str,
    *,
    clock: Clock | None = None,
    create: bool = True,
    queue_depth_max: int = QUEUE_DEPTH_MAX,
    force_network: bool = False,
) -> Store:
    """Open a store, and bring its schema up to date.

    Args:
        url: ``sqlite:///relative.db`` (to the working directory) or
            ``sqlite:////absolute.db``.
        clock: decides what is due; None: the machine's.
        create: make the file and its tables if they are not there.
        queue_depth_max: most unfinished jobs; more are refused.
        force_network: accept a network file system (one machine only may use it).

    Raises:
        ConfigError: not a URL of a store; nothing was opened.
        StoreRefused: the database must not be used as it is; nothing was changed.
        StoreUnavailable: it cannot be used now; nothing was changed.
    """
    return SqliteStore(
        _sqlite_path(url),
        clock=SystemClock() if clock is None else clock,
        create=create,
        queue_depth_max=queue_depth_max,
        force_network=force_network,
    )


def run_root(url: str) -> Path:
    """Return the directory in which supervisors keep their run directories.

    Args:
        url: as for `open_store`; the database need not exist.

    Raises:
        ConfigError: not a URL of a store.
    """
    return run_directory(os.path.realpath(_sqlite_path(url)))


def _sqlite_path(url: str) -> str:
    """Return the path that a SQLite URL names."""
    scheme, colon, _ = url.partition(":")
    if colon and scheme in {"postgresql", "postgres"}:
        raise StoreRefused(
            "the store is a PostgreSQL database, which this version of jobpool cannot "
            f"use yet; name a SQLite file, {_EXAMPLES}"
        )
    path = url.removeprefix(_SQLITE)
    if path == url:
        raise ConfigError(
            f"store: {_without_secret(url)!r} is not the URL of a store; expected "
            f"sqlite:/// and a path, {_EXAMPLES}"
        )
    if path in {"", "/", ":memory:"} or path.endswith("/"):
        raise ConfigError(
            f"store: {url!r} names no file; jobs must outlive their process: name "
            f"one, {_EXAMPLES}"
        )
    if "\0" in path or "?" in path or "#" in path:
        raise ConfigError(
            f"store: {url!r} has a character that a path here cannot have (?, #, "
            f"NUL); there are no options after it: write only the path, {_EXAMPLES}"
        )
    return path


def _without_secret(url: str) -> str:
    before, at, after = url.rpartition("@")
    return f"{before.partition('://')[0]}://…@{after}" if at and before else url
