"""Notices that source files have changed: the application's own, and those beside them.

Files are looked at, not watched: each system would need its own way. Only folders that
hold a module of the application count, so that a look takes no longer than the
application is large.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from jobpool.core.config.settings import Settings
from jobpool.sandbox.zygote.source_hash import own_files

Seen = Mapping[str, tuple[int, int]]
"""Size and time of the last change, by path."""


class Changes:
    """The source files of an application, as they were when it was imported.

    Args:
        settings: which application, and where it was started.
        others: further files that it depends on, such as the configuration.
    """

    def __init__(self, settings: Settings, others: Iterable[str] = ()) -> None:
        self._others = tuple(others)
        directory = settings.app_directory
        files = (path for _name, path in own_files(settings.app, directory))
        self._folders = {directory, *(str(Path(path).parent) for path in files)}
        self._seen = self._look()

    def changed(self) -> list[str]:
        """Return the files that are new, gone or different since the start."""
        found, seen = self._look(), self._seen
        return sorted(
            path
            for path in found.keys() | seen.keys()
            if found.get(path) != seen.get(path)
        )

    def _look(self) -> Seen:
        return dict(self._files())

    def _files(self) -> Iterator[tuple[str, tuple[int, int]]]:
        paths = (path for folder in self._folders for path in Path(folder).glob("*.py"))
        for path in (*paths, *map(Path, self._others)):
            try:
                found = path.stat()
            except OSError:
                continue  # it is being replaced, or gone
            yield str(path), (found.st_size, found.st_mtime_ns)
