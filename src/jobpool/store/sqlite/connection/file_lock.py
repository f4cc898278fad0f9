"""The lock on an open file: POSIX's record lock, and on Windows the lock of a byte.

Both belong to the file, end with the process that has them, and keep other processes
out. POSIX's kernel also lets waiters in by turns; on Windows each asks again and again.
"""

from __future__ import annotations

import errno

_TAKEN = frozenset({errno.EAGAIN, errno.EACCES})
"""POSIX allows either for a taken lock; Windows says the second."""

try:
    import fcntl
except ImportError:
    import msvcrt

    def _lock(fd: int) -> None:
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]

    def wait_for(fd: int) -> None:
        """Take the lock; wherever nobody can wait in turn, try it once.

        Raises:
            OSError: with EDEADLK or ENOLCK: it has to be tried again.
        """
        if not take(fd):
            raise OSError(errno.EDEADLK, "taken; Windows knows no turns")

    def drop(fd: int) -> None:
        """Release the lock."""
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined, unused-ignore]

else:

    def _lock(fd: int) -> None:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def wait_for(fd: int) -> None:
        """Wait in the kernel, and take the lock.

        Raises:
            OSError: with EDEADLK or ENOLCK: it has to be tried again.
        """
        fcntl.lockf(fd, fcntl.LOCK_EX)

    def drop(fd: int) -> None:
        """Release the lock."""
        fcntl.lockf(fd, fcntl.LOCK_UN)


def take(fd: int) -> bool:
    """Take the lock if it is free; False: another process has it."""
    try:
        _lock(fd)
    except OSError as error:
        if error.errno not in _TAKEN:
            raise
        return False
    return True
