"""The private temporary directory of a child, empty before every attempt.

In an enclosure it is also the child's HOME and working directory.

It belongs to the slot. The next child of the slot empties it, so the supervisor's loop
never has to delete the files of a killed child. If it cannot be emptied, a new
directory beside it is used, and the old one is deleted at the end of the run.

Most attempts leave it empty, and an unchanged ctime usually proves that, because no
process can set a ctime. The ctime must be older than one tick of the file system's
clock; otherwise a file made within the same tick would leave it unchanged. A trial
finds out whether the file system updates it at all.
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
"""Longer than a tick of any file system whose timestamps have fractions of a second."""
_SECOND_NS = 1_000_000_000
# Bound before `intercepted_calls` patches them and takes our calls for a handler's.
_chdir, _close = os.chdir, os.close
_Version = tuple[int, int, int]
"""A directory's device, inode and ctime in ns; two directories may share a ctime."""
_NO_VERSION: _Version = (0, 0, -1)


def scratch_path(tmp_root: str, slot_name: str) -> str:
    """Return the temporary directory of a slot: ``cpu/0`` gives ``<root>/cpu-0``."""
    return os.path.join(tmp_root, slot_name.replace("/", "-"))  # noqa: PTH118 - a str here


class Scratch:
    """A child's temporary directory.

    Args:
        path: the directory, which is made or emptied and set as this process's TMPDIR.
        is_home: whether it also becomes HOME and the working directory.
    """

    def __init__(self, path: str, *, is_home: bool = False) -> None:
        self._first = self._path = path
        self._is_home = is_home
        self._candidate, self._candidate_since_s = _NO_VERSION, 0.0
        """The version last found empty, and the monotonic time when it first was."""
        self._empty = _NO_VERSION
        """While the directory is at this version, it is empty and private to us."""
        self._ctime_is_updated: bool | None = None
        """Whether making and removing an entry changes the ctime; None: not tried."""
        try:
            os.mkdir(self._path, _MODE)  # noqa: PTH102 - a str here
        except OSError:
            self.clean()
        self._set_environment()
        self.point_tempfile()

    @property
    def path(self) -> str:
        """Its current path."""
        return self._path

    @property
    def is_home(self) -> bool:
        """Whether it is also HOME and the working directory."""
        return self._is_home

    def go_home(self) -> None:
        """Make it the working directory; / if a full disk kept it from being made."""
        try:
            _chdir(self._path)
        except OSError:
            _chdir("/")

    def point_tempfile(self) -> None:
        """Reset the tempfile module's cached directory; it reads TMPDIR only once."""
        tempfile.tempdir = self._path

    def clean(self) -> bool:
        """Remove everything in it; cheap when it is empty.

        Returns:
            Whether its path has changed. TMPDIR already has the new one.
        """
        try:
            status = os.lstat(self._path)
            version = status.st_dev, status.st_ino, status.st_ctime_ns
            if version == self._empty:
                return False
            # A directory rather than a link, and not accessible to others.
            mode = status.st_mode & ~stat.S_ISGID
            if mode == _OWN_DIRECTORY and not os.listdir(self._path):  # noqa: PTH208 - five times faster
                if os.geteuid() == 0:
                    _clear_fixed_flags(self._path)
                self._found_empty(version)
                return False
        except OSError:  # the handler removed it, or its flags cannot be cleared
            pass
        before = self._path
        self._renew()
        self._set_environment()
        return self._path != before

    def _found_empty(self, version: _Version) -> None:
        """Trust a ctime that is more than a tick old: the next change will differ."""
        now_s, ctime_ns = time.monotonic(), version[-1]
        if version != self._candidate:
            self._candidate, self._candidate_since_s = version, now_s
        elif now_s > self._candidate_since_s + TICK_S and ctime_ns % _SECOND_NS:
            if self._ctime_is_updated is None:
                self._ctime_is_updated = self._try_ctime(ctime_ns)
            elif self._ctime_is_updated:
                self._empty = version

    def _try_ctime(self, before_ns: int) -> bool:
        """Say whether making and removing an entry changes the ctime."""
        trial = f"{self._path}/trial"
        try:
            os.mkdir(trial, _MODE)  # noqa: PTH102 - a str here
        except OSError:
            return False  # no room on the disk to try
        os.rmdir(trial)  # noqa: PTH106 - a str here
        return os.lstat(self._path).st_ctime_ns != before_ns

    def _set_environment(self) -> None:
        os.environ["TMPDIR"] = self._path
        if self._is_home:
            os.environ["HOME"] = self._path
            self.go_home()

    def _renew(self) -> None:
        """Make it again. With a full disk there is none until the next attempt."""
        try:
            if remove_tree(self._path):
                os.makedirs(self._path, _MODE)  # noqa: PTH103 - a str here
                return
            parent, name = os.path.split(self._first)
            self._path = tempfile.mkdtemp(prefix=f"{name}.", dir=parent)
        except OSError as exc:
            message = f"jobpool: no temporary directory can be made: {exc}"
            print(message, file=sys.stderr)  # noqa: T201 - into the attempt's output


def _clear_fixed_flags(path: str) -> None:
    """Allow entries to be made and removed in a directory again.

    Raises:
        OSError: the flags cannot be read or may not be changed.
    """
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            stored = fcntl.ioctl(directory, _GET_FLAGS, bytes(4))
        except OSError:
            return  # the file system has no such flags
        flags = int.from_bytes(stored, sys.byteorder)
        if flags & _FIXED:
            cleared = (flags & ~_FIXED).to_bytes(4, sys.byteorder)
            fcntl.ioctl(directory, _SET_FLAGS, cleared)
    finally:
        _close(directory)
