"""Which paths a Python program must be able to read, as seen by its own process."""

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
"""Programs, libraries, their configuration, certificates, and the number of cores."""
_ETC_LINKS = ("/etc/resolv.conf", "/etc/localtime", "/etc/hosts", "/etc/ssl")


def needed_paths(directory: str) -> tuple[str, ...]:
    """Return the paths that this process cannot run without, none below another.

    Args:
        directory: the application's directory.
    """
    return tuple(outermost((*SYSTEM, *_python(), directory, *_targets())))


def _python() -> Iterator[str]:
    yield from (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)
    yield from (path for path in sys.path if os.path.isabs(path))  # noqa: PTH117 - a str
    for name, module in list(sys.modules.items()):
        # Packages found outside sys.path by an import hook (editable installs).
        if "." not in name:
            yield from (str(path) for path in getattr(module, "__path__", ()))


def _targets() -> Iterator[str]:
    """Yield the targets of links that programs follow, so that these are shown too."""
    for path in (sys.prefix, sys.base_prefix, *_ETC_LINKS):
        yield os.path.realpath(path)
