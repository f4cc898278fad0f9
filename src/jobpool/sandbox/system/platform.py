"""On which system this is, and what is known of processes where there is no /proc."""

from __future__ import annotations

import os
import sys

from jobpool.errors import JobpoolError

IS_LINUX = sys.platform.startswith("linux")
_LATER_MS = 1000
"""A process that began so much later than something it is said to have done is another
one with the same number. Both times are rounded."""


ISOLATES = "jobpool isolates jobs", "it needs pidfds, subreapers and memfds"
ASKS_WHO = "the dashboard runs", "it asks the kernel whose each connection is"
"""What is done on Linux only, and why."""


def require_linux(does: tuple[str, str] = ISOLATES) -> None:
    """Refuse a platform that lacks what is needed.

    Args:
        does: what for, and why.

    Raises:
        JobpoolError: this is not Linux, or Linux before 5.3; nothing was started.
    """
    if not IS_LINUX or not hasattr(os, "pidfd_open"):
        raise JobpoolError(
            f"{does[0]} on Linux 5.3 or newer only, because {does[1]}; this is "
            f"{sys.platform}. Nothing was started. Enqueueing and looking on work "
            "everywhere, and so does `jobpool dev`, which isolates nothing: run the "
            "supervisor on a Linux host"
        )


def boot_id() -> str:
    """Return what tells this boot of the machine from others, wherever this is."""
    if IS_LINUX:
        from jobpool.sandbox.system import procfs  # noqa: PLC0415 - Linux's

        return procfs.boot_id()
    import psutil  # noqa: PLC0415 - to import it is a tenth of what a command costs

    return f"booted at {round(psutil.boot_time() / 60)} min"


def pid_namespace() -> int:
    """Return the number of the namespace of processes' numbers; 0: the only one."""
    if not IS_LINUX:
        return 0
    from jobpool.sandbox.system import procfs  # noqa: PLC0415 - Linux's

    return procfs.pid_namespace()


def has_ended(pid: int, began_ms: int) -> bool:
    """Say whether a process of this machine has ended, whatever system this is.

    Args:
        pid: its number, which another process may have by now.
        began_ms: a moment at which it was alive, as this machine's wall clock has it.
    """
    import psutil  # noqa: PLC0415 - see above

    try:
        created_ms = 1000 * psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False
    return created_ms > began_ms + _LATER_MS
