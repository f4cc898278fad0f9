"""A new database on SQLite: a copy of one that this process has made."""

import functools
import tempfile
from pathlib import Path

from jobpool.store.opening import open_store


def place_new_file(path):
    """Put a store that is as new in a place where nothing is.

    To make one takes a dozen times as long. Their random numbers are the same.
    """
    mode, content = _made()
    with Path(path).open("xb") as file:
        file.write(content)
    Path(path).chmod(mode)


@functools.cache
def _made():
    with tempfile.TemporaryDirectory(prefix="jobpool-new-") as directory:
        path = Path(directory, "jobs.db")
        open_store(f"sqlite:///{path}").close()
        return path.stat().st_mode, path.read_bytes()
