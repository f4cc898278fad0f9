"""The private temporary directory of a child, empty before every attempt.

In an enclosure it is the child's home and its working directory as well.

It belongs to the slot: the next child of the slot empties it, so that what a killed
child left never has to be deleted by the supervisor's loop. One that cannot be
emptied is left for the end of the run, and another one beside it is used.

Most attempts put nothing into it, and most often its ctime alone tells: nobody can
set that. It must be older than a tick of the file system's clock, or it could stay
the same when something is put in at the same tick. A file system where none changes
at all is found out by trying.
"""

from __future__ import annotations

import fcntl
import os
import stat
import sys
import tempfile
import time

from jobpool.sandbox.system.remove_tree import remove_tree

_MODE = 0o700
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
_FIXED = 0x10 | 0x20
"""FS_IMMUTABLE_FL and FS_APPEND_FL of ioctl_iflags(2), which only root can set."""
_OWN_DIRECTORY = stat.S_IFDIR | _MODE
TICK_S = 0.02
"""Longer than one of a file system that keeps fractions of a second."""
_SECOND_NS = 1_000_000_000
# Before they are noted as if a handler had called them (`intercepted_calls`).
_chdir, _close = os.chdir, os.close
_Seen = tuple[int, int, int]
"""A directory's device, inode and ctime: another one may have the same ctime."""
_NOTHING: _Seen = (0, 0, -1)


def scratch_path(tmp_root: str, slot_name: str) -> str:
    """Return the temporary directory of a slot: ``cpu/0`` gives ``<root>/cpu-0``."""
    return os.path.join(tmp_root, slot_name.replace("/", "-"))  # noqa: PTH118 - a str here


class Scratch:
    """A child's temporary directory.

    Args:
        path: the directory; made, emptied, and set as TMPDIR of this process.
        is_home: this process lives in it: HOME, and the working directory.
    """

    def __init__(self, path: str, *, is_home: bool = False) -> None:
        self._first = self._path = path
        self._is_home = is_home
        self._seen, self._seen_s = _NOTHING, 0.0
        """What it was when it was found empty, and since when (monotonic)."""
        self._empty = _NOTHING
        """While it is this directory with this ctime, it is empty, and only ours."""
        self._tells: bool | None = None
        """Whether its ctime tells what comes and goes; None: not tried so far."""
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
            _chdir(self._path)
        except OSError:
            _chdir("/")

    def point_tempfile(self) -> None:
        """Undo what the tempfile module remembers; it reads TMPDIR only once."""
        tempfile.tempdir = self._path

    def clean(self) -> bool:
        """Remove what was put into it; cheap when nothing was.

        Returns:
            Whether it is at another place now, which TMPDIR names already.
        """
        try:
            status = os.lstat(self._path)
            now = status.st_dev, status.st_ino, status.st_ctime_ns
            if now == self._empty:
                return False
            # Not a link to somewhere, and not open to others.
            mode = status.st_mode & ~stat.S_ISGID
            if mode == _OWN_DIRECTORY and not os.listdir(self._path):  # noqa: PTH208 - five times faster
                if os.geteuid() == 0:
                    _unfix(self._path)
                self._found_empty(now)
                return False
        except OSError:  # the handler has removed it, or fixed it for good
            pass
        before = self._path
        self._renew()
        self._move_in()
        return self._path != before

    def _found_empty(self, now: _Seen) -> None:
        """Trust a ctime that was there a tick ago: the next change shows another."""
        now_s, ctime_ns = time.monotonic(), now[-1]
        if now != self._seen:
            self._seen, self._seen_s = now, now_s
        elif now_s > self._seen_s + TICK_S and ctime_ns % _SECOND_NS:
            if self._tells is None:
                self._tells = self._try_ctime(ctime_ns)
            elif self._tells:
                self._empty = now

    def _try_ctime(self, before_ns: int) -> bool:
        """Say whether something that comes and goes leaves another ctime."""
        passing = f"{self._path}/passing"
        try:
            os.mkdir(passing, _MODE)  # noqa: PTH102 - a str here
        except OSError:
            return False  # no room to try
        os.rmdir(passing)  # noqa: PTH106 - a str here
        return os.lstat(self._path).st_ctime_ns != before_ns

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


def _unfix(path: str) -> None:
    """Let files come and go again in a directory.

    Raises:
        OSError: it may not be done.
    """
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            kept = fcntl.ioctl(directory, _GET_FLAGS, bytes(4))
        except OSError:
            return  # a file system that has no such flags
        flags = int.from_bytes(kept, sys.byteorder)
        if flags & _FIXED:
            free = (flags & ~_FIXED).to_bytes(4, sys.byteorder)
            fcntl.ioctl(directory, _SET_FLAGS, free)
    finally:
        _close(directory)
