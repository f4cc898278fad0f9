"""A loose bound on a child's data segment, set by its supervisor for each attempt.

The supervisor changes the bound while an attempt runs, so the child cannot tell from
the value alone who set it. We therefore mark our bounds in the low bits, which the
kernel ignores because it counts in pages.
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
    """Return the bound with our mark, which moves it by less than a page."""
    return bound_bytes & ~_SIGN_BITS | _SIGN


def is_signed(bound_bytes: int) -> bool:
    """Say whether we set this bound, rather than a handler."""
    return bound_bytes & _SIGN_BITS == _SIGN


def bound_data(pid: int, statm_fd: int, limit_bytes: int) -> None:
    """Set a process's RLIMIT_DATA loosely above a memory limit, if permitted.

    Args:
        pid: the process, which must not have been reaped.
        statm_fd: an open descriptor of its /proc/<pid>/statm.
        limit_bytes: the attempt's limit.

    Raises:
        ProcessLookupError: the process has ended.
    """
    bound = statm_bytes(os.pread(statm_fd, _STATM_BYTES, 0), STATM_DATA)
    bound += backstop_bytes(limit_bytes)
    # Not permitted if a handler has changed its process to another user, unless we have
    # CAP_SYS_RESOURCE, which not every container grants.
    with contextlib.suppress(PermissionError):
        _soft, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
        if hard == resource.RLIM_INFINITY or signed(bound) < hard:
            resource.prlimit(pid, resource.RLIMIT_DATA, (signed(bound), hard))
