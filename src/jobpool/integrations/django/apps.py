"""The app, for ``INSTALLED_APPS``: its command, and tables made by ``migrate``."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db import connections
from django.db.models.signals import post_migrate


class JobpoolConfig(AppConfig):  # type: ignore[misc] # Django has no types
    """The app ``jobpool.integrations.django``."""

    name = "jobpool.integrations.django"
    label = "jobpool"
    verbose_name = "jobpool"

    def ready(self) -> None:
        """Let ``migrate`` make and upgrade the store's tables as well."""
        # Of any app: Django sends none for one that has no models.
        post_migrate.connect(_migrate, dispatch_uid="jobpool")


def _migrate(*, using: str, verbosity: int, **_more: Any) -> None:
    """Bring the stores in a database up to date, also in that of a test run."""
    from jobpool.integrations.django.backend import (  # noqa: PLC0415 - when apps are ready
        jobpool_backends,
    )
    from jobpool.store.opening import migrate  # noqa: PLC0415 - few commands need it

    _close_before_its_end(using)
    for _, backend in jobpool_backends():
        if backend.read.database != using or backend.broken():
            continue
        url = backend.read.url
        if url not in _migrated:
            migrate(url, print if verbosity > 1 else _say_nothing)
            _migrated.add(url)


def _close_before_its_end(using: str) -> None:
    """Have the stores in a database closed before Django drops it, after a test run.

    PostgreSQL drops no database that is in use, and Django has no signal for it.
    """
    from jobpool.integrations.django.backend import (  # noqa: PLC0415 - when apps are ready
        close_stores,
    )

    creation = connections[using].creation
    drop = creation.destroy_test_db
    if "destroy_test_db" in vars(creation):
        return

    def close_and_drop(*args: Any, **named: Any) -> Any:
        close_stores(using)
        return drop(*args, **named)

    creation.destroy_test_db = close_and_drop


def _say_nothing(_line: str, /) -> None:
    """Tell nobody."""


_migrated: set[str] = set()
"""Stores that are up to date: a test run flushes its database again and again."""
