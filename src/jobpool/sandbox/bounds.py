"""The loose bound of a child's data, set by its supervisor for each attempt."""

from __future__ import annotations

import contextlib
import os
import resource

from jobpool.sandbox.meter import backstop_bytes
from jobpool.sandbox.procfs import STATM_DATA, statm_bytes

_STATM_BYTES = 128


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
        if hard == resource.RLIM_INFINITY or bound < hard:
            resource.prlimit(pid, resource.RLIMIT_DATA, (bound, hard))
