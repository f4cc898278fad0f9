"""The loose bound of a child's data, set by its supervisor for each attempt.

The supervisor moves it while an attempt runs, so that the child cannot tell by the
figure who set it. It carries our sign, therefore, in bits that the kernel ignores: it
counts in pages.
"""

from __future__ import annotations

import contextlib
import os
import resource

from jobpool.sandbox.metering.sampling import backstop_bytes
from jobpool.sandbox.system.procfs import STATM_DATA, statm_bytes

_STATM_BYTES = 128
_SIGN, _SIGN_BITS = 0x6A7, 0xFFF


def signed(bound_bytes: int) -> int:
    """Return a bound that is known as ours, less than a page from what is given."""
    return bound_bytes & ~_SIGN_BITS | _SIGN


def is_signed(bound_bytes: int) -> bool:
    """Say whether a bound is ours, and not a handler's."""
    return bound_bytes & _SIGN_BITS == _SIGN


def bound_data(pid: int, statm_fd: int, limit_bytes: int) -> None:
    """Bound a process's RLIMIT_DATA loosely above a memory limit, if we may.

    Args:
        pid: the process, not yet reaped.
        statm_fd: a descriptor of its statm.
        limit_bytes: the attempt's limit.

    Raises:
        ProcessLookupError: it is gone.
    """
    bound = statm_bytes(os.pread(statm_fd, _STATM_BYTES, 0), STATM_DATA)
    bound += backstop_bytes(limit_bytes)
    # Not ours to bound: a handler has made its process another user's, and
    # CAP_SYS_RESOURCE is not to be had in every container.
    with contextlib.suppress(PermissionError):
        _soft, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
        if hard == resource.RLIM_INFINITY or signed(bound) < hard:
            resource.prlimit(pid, resource.RLIMIT_DATA, (signed(bound), hard))
