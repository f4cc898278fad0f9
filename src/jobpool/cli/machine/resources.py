"""What this process may use of its machine: cores and memory.

Theory of operation: a container's limits are in its cgroup, not in what the host
reports. Limits of all ancestors hold, so each is looked at, from our own cgroup up
to the root of what is mounted. Under cgroup v1 each controller has a tree of its
own; inside a container its path may not exist, and the mount's root is our cgroup.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

from jobpool.core.config.load import Machine

CGROUP_ROOT = Path("/sys/fs/cgroup")
_NO_LIMIT_BYTES = 2**60
"""cgroup v1 writes "no limit" as a number near 2**63."""
OWN_CGROUPS = Path("/proc/self/cgroup")
MEMINFO = Path("/proc/meminfo")


def machine() -> Machine:
    """Return the cores and the memory that this process may use."""
    return Machine(cores=cores(), memory_bytes=memory_bytes())


def affinity_cores() -> int:
    """Return on how many cores this process may be scheduled."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cores() -> int:
    """Return the cores by affinity and cgroup quota, rounded up, at least 1."""
    quota = cpu_quota()
    usable = affinity_cores()
    return max(1, usable if quota is None else min(usable, math.ceil(quota)))


def memory_bytes() -> int:
    """Return the memory of the host or of the cgroup, whichever is smaller."""
    host, limit = host_memory_bytes(), cgroup_memory_bytes()
    return host if limit is None else min(host, limit)


def host_memory_bytes(meminfo: Path = MEMINFO) -> int:
    """Return the host's memory, or what it shows a container as that."""
    if found := re.search(r"^MemTotal:\s+(\d+) kB$", _read(meminfo), re.MULTILINE):
        return int(found[1]) * 1024
    # Elsewhere than on Linux: to import it is a tenth of what a command costs.
    import psutil  # noqa: PLC0415

    return int(psutil.virtual_memory().total)


def cpu_quota(root: Path = CGROUP_ROOT, own: Path = OWN_CGROUPS) -> float | None:
    """Return the smallest CPU quota in cores of our cgroup and its ancestors.

    Source: ``cpu.max``, kernel documentation, cgroup-v2; ``cpu.cfs_quota_us``, v1.
    """
    quotas = []
    for folder in _folders("cpu", root, own):
        v2 = _read(folder / "cpu.max").split()
        v1 = [_read(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
        for pair in (v2, v1):
            if len(pair) == len(v1) and all(part.isdigit() for part in pair):
                quota, period = (int(part) for part in pair)
                if quota > 0 and period > 0:
                    quotas.append(quota / period)
    return min(quotas, default=None)


def cgroup_memory_bytes(
    root: Path = CGROUP_ROOT, own: Path = OWN_CGROUPS
) -> int | None:
    """Return the smallest memory limit of our cgroup and its ancestors, if any."""
    limits = [
        int(text)
        for folder in _folders("memory", root, own)
        for name in ("memory.max", "memory.limit_in_bytes")
        if (text := _read(folder / name)).isdigit() and 0 < int(text) < _NO_LIMIT_BYTES
    ]
    return min(limits, default=None)


def _folders(controller: str, root: Path, own: Path) -> Iterator[Path]:
    """Yield our cgroup's folder and its ancestors', as far as they are mounted."""
    for line in _read(own).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            top = root
        elif controller in controllers.split(","):
            top = root / controllers
            top = top if top.is_dir() else root / controller
        else:
            continue
        folder = top / path.lstrip("/")
        while folder != top and top in folder.parents:
            yield folder
            folder = folder.parent
        yield top


def _read(path: Path) -> str:
    """Return a small file's text, or "": a limit that cannot be read is no limit."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
