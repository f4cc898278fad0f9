"""The directory that a demo works in."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobpool.errors import UsageError


@contextmanager
def place_of(directory: Path | None, *, keep: bool) -> Iterator[Path]:
    """Yield the directory; a temporary one is removed unless something went wrong."""
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        yield directory.resolve()
        return
    place = Path(tempfile.mkdtemp(prefix="jobpool-demo-")).resolve()
    try:
        yield place
    except KeyboardInterrupt:
        shutil.rmtree(place)
        raise
    if not keep:
        shutil.rmtree(place)


def check_empty(directory: Path) -> None:
    """Refuse to write among what is there.

    Raises:
        UsageError: the directory is not empty; nothing was written.
    """
    if strange := [path.name for path in directory.iterdir()]:
        raise UsageError(
            f"{directory} is not empty (it holds {min(strange)!r}); name another "
            "directory with --dir"
        )
