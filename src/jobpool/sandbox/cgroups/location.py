"""Finds the cgroup (version 2) below which this process may create others.

On a hybrid host version 2 is mounted beside version 1, without most controllers.
systemd must delegate (``Delegate=``): it marks the unit's cgroup with an extended
attribute; with ``DelegateSubgroup=`` the process is one level below. Where an ordinary
user may write, the cgroup was delegated.

Source: https://systemd.io/CGROUP_DELEGATION, cgroups(7), proc_pid_mountinfo(5).
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from jobpool.errors import JobpoolError

_SYSTEMD = "/run/systemd/system"
_DELEGATED = ("user.delegate", "trusted.delegate")
_ESCAPED = re.compile(r"\\([0-7]{3})")


class NoCgroupError(JobpoolError):
    """There is no cgroup that this process may divide; the message says why."""


class Mount(NamedTuple):
    """A mount of the version 2 hierarchy."""

    root: str
    """The cgroup that is visible at the mount point."""
    point: str


def here(proc: Path = Path("/proc/self")) -> str:
    """Return the directory of this process's own cgroup.

    Raises:
        NoCgroupError: version 2 is not mounted, or this cgroup is not visible.
    """
    try:
        path = parse_cgroup((proc / "cgroup").read_text(encoding="utf-8"))
        mounts = list(parse_mounts((proc / "mountinfo").read_text(encoding="utf-8")))
    except OSError as exc:
        raise NoCgroupError(f"{proc} cannot be read: {exc.strerror}") from exc
    if path is None or not mounts:
        raise NoCgroupError("cgroup v2 is not mounted here")
    for mount in mounts:
        if (found := directory(path, mount)) is not None:
            return found
    raise NoCgroupError(f"its cgroup {path} is not visible at {mounts[0].point}")


def base(
    own: str,
    *,
    is_delegated: Callable[[str], bool] | None = None,
    is_managed: bool | None = None,
) -> str:
    """Return the cgroup below which this process may create its own.

    Args:
        own: the directory of its present cgroup.
        is_delegated: whether systemd has delegated a cgroup; None: check.
        is_managed: whether systemd owns what it has not delegated, while we could
            write there; None: check.

    Raises:
        NoCgroupError: it belongs to systemd.
    """
    is_delegated = is_delegated or _is_delegated
    for path in (own, posixpath.dirname(own)):
        if is_delegated(path):
            return path
    if is_managed is None:
        is_managed = Path(_SYSTEMD).is_dir() and os.geteuid() == 0
    if is_managed:
        raise NoCgroupError(
            f"systemd has not delegated {own}; set Delegate=yes in the unit"
        )
    return own


def parse_cgroup(text: str) -> str | None:
    """Return the version 2 path in /proc/PID/cgroup; None: none."""
    for line in text.splitlines():
        if line.startswith("0::"):
            return line.removeprefix("0::").removesuffix(" (deleted)")
    return None


def parse_mounts(text: str) -> Iterator[Mount]:
    """Yield the mounts of version 2 in /proc/PID/mountinfo."""
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if after.split(" ")[0] == "cgroup2":
            yield Mount(_unescaped(fields[3]), _unescaped(fields[4]))


def directory(path: str, mount: Mount) -> str | None:
    """Return where a cgroup is visible below a mount; None: it is outside."""
    inside = posixpath.relpath(path, mount.root)
    if inside == ".." or inside.startswith("../") or "/../" in f"{path}/":
        return None
    return posixpath.normpath(posixpath.join(mount.point, inside))


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda octal: chr(int(octal[1], 8)), text)


def _is_delegated(path: str) -> bool:
    for name in _DELEGATED:
        try:
            if os.getxattr(path, name) == b"1":
                return True
        except OSError:
            continue  # not set, not readable, or an old kernel: not delegated
    return False
