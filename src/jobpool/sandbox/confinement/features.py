"""Which confinement features this kernel has and our privileges let us use."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from jobpool.core.isolation.measures import Feature
from jobpool.sandbox.confinement import landlock, seccomp
from jobpool.sandbox.confinement.probing import lacking_for_enclosures

_CAP_SYS_ADMIN = 21


def lacking(*, enclosures: bool = True) -> Mapping[Feature, str]:
    """Return the missing features, each with the reason. Everything is probed.

    Args:
        enclosures: whether to probe what only the strict level needs, which starts a
            process. If False, those features are not reported as missing.
    """
    if sys.platform != "linux":
        return dict.fromkeys(Feature, f"{sys.platform} has nothing like it")
    found = dict(_lacking())
    if enclosures:
        found |= lacking_for_enclosures(is_admin=Feature.ADMIN not in found)
    return found


def _lacking() -> Iterator[tuple[Feature, str]]:
    version = landlock.abi()
    found = f"Landlock version {version}" if version else "no Landlock"
    if version < landlock.ABI_SCOPES:
        yield (
            Feature.SCOPES,
            (
                f"this kernel has {found}; version {landlock.ABI_SCOPES} (Linux 6.12) "
                "is needed"
            ),
        )
    if version < landlock.ABI_TRUNCATE:
        yield (
            Feature.FILE_RULES,
            (
                f"this kernel has {found}; version {landlock.ABI_TRUNCATE} (Linux 6.2) "
                "is needed"
            ),
        )
    if not seccomp.is_known_machine():
        yield Feature.FILTERS, "system calls of this architecture are not known"
    elif not seccomp.is_available():
        yield Feature.FILTERS, "this kernel, or a container's rules, has no seccomp"
    if not _is_admin():
        yield Feature.ADMIN, "not there"


def _is_admin() -> bool:
    status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    for line in status.splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_ADMIN & 1)
    return False
