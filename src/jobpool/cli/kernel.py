"""What the kernel offers for keeping children in: each feature is tried."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from jobpool.core.isolation import MEASURES, obstacles
from jobpool.core.quantity import show_size
from jobpool.sandbox.features import lacking

_PR_GET_CHILD_SUBREAPER = 37
_FILES_FEW = 1024
_V2_ROOT = Path("/sys/fs/cgroup")


class Verdict(StrEnum):
    """What a fact means for jobpool."""

    FINE = "fine"
    NOTE = "note"
    """Works, with something to know."""
    BROKEN = "broken"


class Fact(NamedTuple):
    """One thing that was looked at."""

    name: str
    value: str
    verdict: Verdict = Verdict.FINE


def kernel_facts() -> Iterator[Fact]:
    """Yield what the platform offers and which limits are in force."""
    is_linux = sys.platform == "linux"
    yield Fact(
        "platform",
        f"{platform.platform()} {platform.machine()}"
        + ("" if is_linux else "; supervisors run on Linux only, clients anywhere"),
        Verdict.FINE if is_linux else Verdict.BROKEN,
    )
    if is_linux:
        yield _tried("pidfd", _pidfd)
        yield _tried("child subreaper", _subreaper)
        yield _tried("memfd", _memfd)
        yield _tried("/proc/PID/statm", _statm)
        yield _cgroup()
        yield from _isolation()
    yield from _limits()


def _tried(name: str, probe: Callable[[], str]) -> Fact:
    """Try a feature that jobpool cannot do without."""
    try:
        return Fact(name, probe())
    except (OSError, AttributeError, ValueError) as exc:
        return Fact(name, f"missing: {exc}; needs Linux 5.4 or later", Verdict.BROKEN)


def _pidfd() -> str:
    os.close(os.pidfd_open(os.getpid()))
    return "works"


def _subreaper() -> str:
    value = ctypes.c_int()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "works"


def _memfd() -> str:
    os.close(os.memfd_create("jobpool-doctor"))
    return "works"


def _statm() -> str:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return f"works; this command uses {show_size(pages * resource.getpagesize())}"


def _isolation() -> Iterator[Fact]:
    """Yield for each measure that keeps children in whether it can be in force."""
    missing = lacking()
    for measure in MEASURES:
        name = f"sandbox: {measure.name} ({measure.asked_by})"
        if why := obstacles(measure, missing):
            text = f"cannot be in force: {why}; would stop: {measure.stops}"
            yield Fact(name, text, Verdict.NOTE)
        else:
            yield Fact(name, f"stops: {measure.stops}. May break: {measure.may_break}")


def _cgroup() -> Fact:
    """Note whether there is a cgroup v2 that could be used; jobpool works without."""
    controllers = _V2_ROOT / "cgroup.controllers"
    if not controllers.exists():
        return Fact("cgroup v2", "not mounted; not needed")
    rights = "writable" if os.access(_V2_ROOT, os.W_OK) else "read-only"
    names = controllers.read_text(encoding="ascii").strip() or "no controllers"
    return Fact("cgroup v2", f"{rights}: {names}")


def _limits() -> Iterator[Fact]:
    """Yield resource limits of this shell that a supervisor started here would have."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = files != resource.RLIM_INFINITY and files < _FILES_FEW
    yield Fact(
        "open files (ulimit -n)",
        _shown(files) + ("; each child takes about 6, raise it" if few else ""),
        Verdict.NOTE if few else Verdict.FINE,
    )
    processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    yield Fact("processes (ulimit -u)", _shown(processes))
    core, _ = resource.getrlimit(resource.RLIMIT_CORE)
    yield Fact("core dumps (ulimit -c)", f"{_shown(core)}; off in children")


def _shown(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
