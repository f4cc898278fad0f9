"""Which paths a Python program needs to see: found out in the process that runs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from jobpool.sandbox.confinement.mounts import outermost

SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc",
    "/nix/store",
    "/gnu/store",
    "/var/lib/ca-certificates",
    "/sys/devices/system",
)
"""Programs, libraries, the configuration of both, certificates, the number of cores."""
_ETC_LINKS = ("/etc/resolv.conf", "/etc/localtime", "/etc/hosts", "/etc/ssl")


def needed_paths(directory: str) -> tuple[str, ...]:
    """Return what this process would not find its way without, none below another.

    Args:
        directory: the application's.
    """
    return tuple(outermost((*SYSTEM, *_python(), directory, *_targets())))


def _python() -> Iterator[str]:
    yield from (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)
    yield from (path for path in sys.path if os.path.isabs(path))  # noqa: PTH117 - a str
    for name, module in list(sys.modules.items()):
        # Packages that an import hook has found elsewhere (editable installations).
        if "." not in name:
            yield from (str(path) for path in getattr(module, "__path__", ()))


def _targets() -> Iterator[str]:
    """Yield where links lead that are found by their names only."""
    for path in (sys.prefix, sys.base_prefix, *_ETC_LINKS):
        yield os.path.realpath(path)
