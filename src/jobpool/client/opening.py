"""What the configuration says to a client, as to a supervisor; and the open store.

Found at the first use, so that a JobPool can be made at import, and kept until it is
closed. In a child the supervisor's word counts: it may have been given by a flag, and
an enclosed child may not see the file.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from jobpool.core.config import client_settings, read_sources
from jobpool.core.settings import ClientSettings
from jobpool.errors import ConfigError
from jobpool.store import guest_store, open_store
from jobpool.store.base import Store
from jobpool.store.connections import has_transaction


def find_settings(argument: str | None) -> ClientSettings:
    """Return what a client obeys: argument, environment, configuration, defaults.

    Args:
        argument: the store's URL as the application names it, if it does.

    Raises:
        ConfigError: the configuration is wrong, or the URL is not one.
    """
    given: Any = argument
    if given is not None and not (isinstance(given, str) and given.strip()):
        got = "nothing" if argument == "" else f"{argument!r:.40}"
        raise ConfigError(
            f"store: expected a URL such as 'sqlite:///jobpool.db', got {got}"
        )
    return client_settings(
        read_sources(
            {"store": argument},
            env=os.environ,
            directory=str(Path.cwd()),
            read_file=_read_file,
        )
    )


class LazyStore:
    """A store that is found and opened when it is first asked for.

    Args:
        argument: the URL that the application names, if it does.
    """

    def __init__(self, argument: str | None) -> None:
        self._argument = argument
        self._lock = threading.RLock()
        self._settings: ClientSettings | None = None
        self._store: Store | None = None
        self._guest: Store | None = None

    @property
    def argument(self) -> str | None:
        """The URL as the application wrote it."""
        return self._argument

    @property
    def settings(self) -> ClientSettings:
        """What the configuration says.

        Raises:
            ConfigError: it is wrong.
        """
        if self._settings is None:
            with self._lock:
                if self._settings is None:
                    self._settings = find_settings(self._argument)
        return self._settings

    def get(self) -> Store:
        """Return the open store.

        Raises:
            ConfigError: it is not clear which store is meant.
            StoreError: it cannot be opened.
        """
        if self._store is None:
            with self._lock:
                if self._store is None:
                    settings = self.settings
                    self._store = open_store(
                        settings.store, queue_depth_max=settings.queue_depth_max
                    )
        return self._store

    def joining(self, connection: Any) -> Store:
        """Return the store for jobs that go by a driver's connection of the caller's.

        A store that is not open yet stays so while that connection is in a
        transaction: to open it could mean to wait for that one, which waits for us.

        Raises:
            ConfigError: as of `get`.
            StoreError: as of `get`.
        """
        if self._store is not None or not has_transaction(connection):
            return self.get()
        if self._guest is None:
            settings = self.settings
            self._guest = guest_store(
                settings.store, queue_depth_max=settings.queue_depth_max
            )
        return self._guest or self.get()

    def close(self) -> None:
        """Close the store if it is open; the next use finds and opens it again."""
        with self._lock:
            store, self._store = self._store, None
            self._settings = self._guest = None
        if store is not None:
            store.close()


def _read_file(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"the configuration {path} cannot be read: {exc}") from exc
