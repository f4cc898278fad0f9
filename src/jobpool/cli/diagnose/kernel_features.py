"""Which kernel features jobpool can use here: each is tried."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from jobpool.core.isolation.cgroups import EFFECTS, Control, Controls
from jobpool.core.isolation.measures import MEASURES, obstacles
from jobpool.core.units import show_size
from jobpool.sandbox.cgroups.run_group import NoCgroupError, enter, path_for
from jobpool.sandbox.confinement.features import lacking

_PR_GET_CHILD_SUBREAPER = 37
_FILES_FEW = 1024


class Verdict(StrEnum):
    """What a fact means for jobpool."""

    FINE = "fine"
    NOTE = "note"
    """Works, but with something to know."""
    BROKEN = "broken"


class Fact(NamedTuple):
    """One thing that was checked."""

    name: str
    value: str
    verdict: Verdict = Verdict.FINE
    figures: Mapping[str, float] = {}
    """What was measured, by name with its unit."""


def kernel_facts() -> Iterator[Fact]:
    """Yield the platform's features and the limits in force."""
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
        yield from _cgroup()
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
    """Yield for each isolation measure whether it can be in force."""
    missing = lacking()
    for measure in MEASURES:
        name = f"sandbox: {measure.name} ({measure.asked_by})"
        if why := obstacles(measure, missing):
            text = f"cannot be in force: {why}; would stop: {measure.stops}"
            yield Fact(name, text, Verdict.NOTE)
        else:
            yield Fact(name, f"stops: {measure.stops}. May break: {measure.may_break}")


def _cgroup() -> Iterator[Fact]:
    """Yield what a cgroup would enforce for a supervisor started from here.

    It is tried: a cgroup is created, entered, and removed.
    """
    try:
        origin, path = path_for(f"doctor-{os.getpid()}")
        group = enter(origin, path, os.getpid())
    except NoCgroupError as exc:
        controls = Controls(missing=dict.fromkeys(Control, str(exc)))
    else:
        controls = group.controls
        group.leave()
    for control, effect in EFFECTS.items():
        name = f"cgroup v2: {control}"
        if why := controls.missing.get(control):
            text = f"not in force: {why}; would stop: {effect.stops}"
        else:
            text = f"stops: {effect.stops}. May break: {effect.may_break}"
        yield Fact(name, text, Verdict.NOTE if why else Verdict.FINE)


def _limits() -> Iterator[Fact]:
    """Yield the resource limits that a supervisor started from this shell inherits."""
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
