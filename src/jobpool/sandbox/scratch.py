"""The private temporary directory of a child, empty before every attempt.

In an enclosure it is the child's home and its working directory as well.

It belongs to the slot: the next child of the slot empties it, so that what a killed
child left never has to be deleted by the supervisor's loop. One that cannot be
emptied is left for the end of the run, and another one beside it is used.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from pathlib import Path

from jobpool.sandbox.removal import remove_tree

_MODE = 0o700
_OWN_DIRECTORY = stat.S_IFDIR | _MODE


def scratch_path(tmp_root: str, slot_name: str) -> Path:
    """Return the temporary directory of a slot: ``cpu/0`` gives ``<root>/cpu-0``."""
    return Path(tmp_root, slot_name.replace("/", "-"))


class Scratch:
    """A child's temporary directory.

    Args:
        path: the directory; made, emptied, and set as TMPDIR of this process.
        is_home: this process lives in it: HOME, and the working directory.
    """

    def __init__(self, path: Path, *, is_home: bool = False) -> None:
        self._first = self._path = str(path)
        self._is_home = is_home
        try:
            os.mkdir(self._path, _MODE)  # noqa: PTH102 - a str here
        except OSError:
            self.clean()
        self._move_in()
        self.point_tempfile()

    @property
    def path(self) -> str:
        """Where it is now."""
        return self._path

    @property
    def is_home(self) -> bool:
        """Whether this process lives in it."""
        return self._is_home

    def go_home(self) -> None:
        """Make it the working directory; the root, if the disk had no room for it."""
        try:
            os.chdir(self._path)
        except OSError:
            os.chdir("/")

    def point_tempfile(self) -> None:
        """Undo what the tempfile module remembers; it reads TMPDIR only once."""
        tempfile.tempdir = self._path

    def clean(self) -> bool:
        """Remove what was put into it; cheap when nothing was.

        Returns:
            Whether it is at another place now, which TMPDIR names already.
        """
        try:
            mode = os.lstat(self._path).st_mode
            # Not a link to somewhere, and not open to others.
            if mode & ~stat.S_ISGID == _OWN_DIRECTORY and not os.listdir(self._path):  # noqa: PTH208 - five times faster
                return False
        except OSError:  # the handler has removed it
            pass
        before = self._path
        self._renew()
        self._move_in()
        return self._path != before

    def _move_in(self) -> None:
        os.environ["TMPDIR"] = self._path
        if self._is_home:
            os.environ["HOME"] = self._path
            self.go_home()

    def _renew(self) -> None:
        """Make it anew. With a full disk there is none until the next attempt."""
        try:
            if remove_tree(self._path):
                os.makedirs(self._path, _MODE)  # noqa: PTH103 - a str here
                return
            parent, name = os.path.split(self._first)
            self._path = tempfile.mkdtemp(prefix=f"{name}.", dir=parent)
        except OSError as exc:
            told = f"jobpool: no temporary directory can be made: {exc}"
            print(told, file=sys.stderr)  # noqa: T201 - into the attempt's output
