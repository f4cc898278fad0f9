"""Finding and opening the store, as the supervisor finds it, at the first use."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from jobpool.core.config import locate_store
from jobpool.errors import ConfigError
from jobpool.store import open_store
from jobpool.store.base import Store

ALLOW_NETWORK = "JOBPOOL_ALLOW_NETWORK_FS"
"""Set to 1, a store on a network file system is not refused."""


def find_store(argument: str | None) -> str:
    """Return the store's URL: argument, JOBPOOL_STORE, configuration, default.

    Raises:
        ConfigError: the configuration is wrong, or the URL is not one.
    """
    if argument is not None and not isinstance(argument, str):
        raise ConfigError(
            f"store: expected a URL such as 'sqlite:///jobpool.db', got "
            f"{type(argument).__name__}"
        )
    return locate_store(
        argument, env=os.environ, directory=str(Path.cwd()), read_file=_read_file
    )


class LazyStore:
    """A store that is found and opened when it is first asked for.

    Args:
        argument: the URL that the application names, if it does.
    """

    def __init__(self, argument: str | None) -> None:
        self._argument = argument
        self._lock = threading.Lock()
        self._store: Store | None = None

    @property
    def argument(self) -> str | None:
        """The URL as the application wrote it."""
        return self._argument

    def get(self) -> Store:
        """Return the open store.

        Raises:
            ConfigError: it is not clear which store is meant.
            StoreError: it cannot be opened.
        """
        if self._store is None:
            with self._lock:
                if self._store is None:
                    self._store = open_store(
                        find_store(self._argument),
                        force_network=os.environ.get(ALLOW_NETWORK) == "1",
                    )
        return self._store

    def close(self) -> None:
        """Close the store if it is open; the next use opens it again."""
        with self._lock:
            store, self._store = self._store, None
        if store is not None:
            store.close()


def _read_file(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"the configuration {path} cannot be read: {exc}") from exc
