"""The C library, for calls that Python does not make; their errors as `OSError`."""

from __future__ import annotations

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)  # once: each child would pay for it
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38


def checked(answer: int, what: str) -> None:
    """Raise what the kernel has answered.

    Args:
        answer: of a call; 0: it was made.
        what: the call, in words.

    Raises:
        OSError: the kernel refused.
    """
    if answer != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def prctl(option: int, value: int) -> None:
    """Set a process attribute.

    Raises:
        OSError: the kernel refused.
    """
    checked(libc.prctl(option, value, 0, 0, 0), f"prctl({option}, {value})")
