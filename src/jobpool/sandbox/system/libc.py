"""The C library, for calls that Python lacks; errors are raised as `OSError`."""

from __future__ import annotations

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)  # at import: otherwise each child pays for it
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38


def checked(answer: int, what: str) -> None:
    """Raise the error that a call has returned.

    Args:
        answer: what the call returned; 0: success.
        what: the call, for the message.

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
