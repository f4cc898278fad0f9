"""The memfds that catch a child's output and its stacks, read from either side.

A memfd outlives its writer, so what a killed child wrote last can still be read.
Both are opened with O_APPEND: several processes write to them, and they are
emptied between attempts.
"""

from __future__ import annotations

import ctypes
import fcntl
import os

STACK_MAX_BYTES = 32 * 1024
_PUNCH_HOLE, _KEEP_SIZE = 2, 1
_BLOCK_BYTES = 512
"""The unit of st_blocks, whatever the file system."""


def create_capture(name: str) -> int:
    """Return a new memfd that appends.

    Raises:
        OSError: no descriptor or memory for it.
    """
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND | os.O_RDWR)
    return fd


def read_tail(fd: int, max_bytes: int) -> bytes:
    """Return the last *max_bytes* of a capture, with a mark if more was written."""
    size = os.fstat(fd).st_size
    if size <= max_bytes:
        return os.pread(fd, size, 0)
    mark = b"[%d bytes before this left out]\n" % (size - max_bytes)
    return mark + os.pread(fd, max_bytes, size - max_bytes)


def trim(fd: int, keep_bytes: int, over_bytes: int) -> bool:
    """Free the memory of a capture's head once it holds too much.

    Args:
        fd: the capture.
        keep_bytes: this much of the tail stays readable.
        over_bytes: up to this much nothing is done.

    Returns:
        Whether memory was freed.
    """
    status = os.fstat(fd)
    if status.st_blocks * _BLOCK_BYTES <= over_bytes:
        return False
    length = status.st_size - keep_bytes
    libc = ctypes.CDLL(None, use_errno=True)
    # The standard library has no fallocate with modes.
    mode = ctypes.c_int(_PUNCH_HOLE | _KEEP_SIZE)
    return (
        length > 0
        and libc.fallocate64(fd, mode, ctypes.c_int64(0), ctypes.c_int64(length)) == 0
    )
