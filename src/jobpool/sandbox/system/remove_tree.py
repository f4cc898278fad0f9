"""Removes directory trees that a job has made, whatever their shape.

Theory of operation. A job can nest directories deeper than a recursion or the length of
a path allows. So nothing here descends: each directory below the root is emptied of its
files, and its subdirectories are moved up, right below the root, under unique names,
where they wait for their turn. Every step is relative to an open directory and takes no
more than three descriptors and one short name. Links are removed, never followed.

Permissions that a job has taken from itself (mode 0) are granted again where needed.
What cannot be removed all the same (a mounted file system, an immutable file, another
user's) stays; the result says so, and nothing is raised.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections import deque
from pathlib import Path

_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FIND = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PASSES = 3
"""A process that still runs may create files meanwhile."""


def remove_tree(path: str | Path) -> bool:
    """Remove a directory with all its content, or a file, or a link.

    Never raises an `OSError`; files may vanish meanwhile.

    Args:
        path: what to remove; need not exist.

    Returns:
        Whether it is gone. If not, the rest may have been moved within *path*.
    """
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)  # noqa: PTH108 - a str, or a Path
            return True
        for _ in range(_PASSES):
            root = _open_directory(os.fspath(path), None)
            try:
                _Removal(root).empty()
            finally:
                os.close(root)
            if _remove_empty(os.fspath(path), None):
                return True
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


class _Removal:
    """One pass over a tree.

    Args:
        root: its root, open.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._prefix = os.urandom(8).hex()  # makes unique names
        self._moved = 0
        self._waiting: deque[str] = deque()

    def empty(self) -> None:
        """Remove all that can be removed below the root."""
        self._waiting += _unlink_files(self._root)
        while self._waiting:
            name = self._waiting.popleft()
            with contextlib.suppress(OSError):  # gone, or it stays: rmdir finds out
                self._remove(name)

    def _remove(self, name: str) -> None:
        """Remove a directory right below the root; its subdirectories move up."""
        if _remove_empty(name, self._root):
            return
        directory = _open_directory(name, self._root)
        try:
            for inner in _unlink_files(directory):
                with contextlib.suppress(OSError):
                    self._move_up(inner, directory)
        finally:
            os.close(directory)
        _remove_empty(name, self._root)

    def _move_up(self, name: str, directory: int) -> None:
        if _remove_empty(name, directory):
            return
        self._moved += 1
        target = f"{self._prefix}-{self._moved}"
        try:
            os.rename(name, target, src_dir_fd=directory, dst_dir_fd=self._root)
        except PermissionError:
            # Moving a directory writes to it: it contains its parent.
            os.close(_open_directory(name, directory))
            os.rename(name, target, src_dir_fd=directory, dst_dir_fd=self._root)
        self._waiting.append(target)


def _unlink_files(directory: int) -> list[str]:
    """Remove all but directories; return the names of those."""
    with os.scandir(directory) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_directory in found:
        if not is_directory:
            with contextlib.suppress(OSError):  # gone, or it stays: rmdir finds out
                os.unlink(name, dir_fd=directory)
    return [name for name, is_directory in found if is_directory]


def _remove_empty(name: str, parent: int | None) -> bool:
    """Remove a directory if it is empty; say whether it is gone."""
    try:
        os.rmdir(name, dir_fd=parent)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _open_directory(name: str, parent: int | None) -> int:
    """Open a directory, and grant its owner all permissions.

    Raises:
        OSError: it is not a directory (any more), or it is another user's.
    """
    place = os.open(name, _FIND, dir_fd=parent)
    try:
        mode = stat.S_IMODE(os.fstat(place).st_mode)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            # The only way to reach a directory that may not be opened, and never
            # another one that has taken its name.
            os.chmod(f"/proc/self/fd/{place}", mode | stat.S_IRWXU)  # noqa: PTH101 - a str here
        return os.open(".", _READ, dir_fd=place)
    finally:
        os.close(place)
