"""The private temporary directory of a child, empty before every attempt.

It belongs to the slot: the next child of the slot empties it, so that what a killed
child left never has to be deleted by the supervisor's loop.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path


def scratch_path(tmp_root: str, slot_name: str) -> Path:
    """Return the temporary directory of a slot: ``cpu/0`` gives ``<root>/cpu-0``."""
    return Path(tmp_root, slot_name.replace("/", "-"))


class Scratch:
    """A child's temporary directory.

    Args:
        path: the directory; made, emptied, and set as TMPDIR of this process.
    """

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        try:
            os.mkdir(self._path, 0o700)  # noqa: PTH102 - a str here
        except OSError:
            self.clean()
        os.environ["TMPDIR"] = self._path
        self.point_tempfile()

    def point_tempfile(self) -> None:
        """Undo what the tempfile module remembers; it reads TMPDIR only once."""
        tempfile.tempdir = self._path

    def clean(self) -> None:
        """Remove what was put into it; cheap when nothing was."""
        try:
            if not os.listdir(self._path):  # noqa: PTH208 - five times faster
                return
        except OSError:
            # The handler has removed the directory, or put a file or a link in its
            # place.
            with contextlib.suppress(OSError):
                os.unlink(self._path)  # noqa: PTH108 - a str here
        self._renew()

    def _renew(self) -> None:
        if os.path.islink(self._path):  # noqa: PTH114 - a str here
            os.unlink(self._path)  # noqa: PTH108 - a str here
        shutil.rmtree(self._path, ignore_errors=True)
        os.makedirs(self._path, mode=0o700, exist_ok=True)  # noqa: PTH103 - a str here
