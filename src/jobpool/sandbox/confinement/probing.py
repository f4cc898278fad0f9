"""Probes in a throw-away process whether children can be enclosed on this host.

Theory of operation. The process goes through the set-up of a child with the same
functions: namespaces, then the view of the file system, then the user. Through a pipe
it reports each step that succeeds. When a step fails, it reports why and exits. The
namespaces and mounts that it made end with it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from jobpool.core.isolation.measures import Enclosure, Feature
from jobpool.sandbox.confinement.mounts import View, enter
from jobpool.sandbox.confinement.namespaces import (
    USERS_FROM,
    drop_privileges,
    make_namespaces,
    own_user,
)
from jobpool.sandbox.confinement.readable_paths import SYSTEM, needed_paths

Paths = Sequence[str]
_STEPS = (Feature.NAMESPACES, Feature.MOUNTS, Feature.USERS)
_DONE = b"\n"
_READ_BYTES = 4096
_SWITCHES = (
    ("/proc/sys/user/max_user_namespaces", "0"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
    ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
)
"""Kernel settings, with the values that deny ordinary users new namespaces."""


def lacking_for_enclosures(*, is_admin: bool) -> Iterator[tuple[Feature, str]]:
    """Yield the features that enclosures need and this host lacks, with the reason.

    Args:
        is_admin: whether this process has CAP_SYS_ADMIN.
    """
    enclosure = Enclosure.OWN_USER if is_admin else Enclosure.USER_NAMESPACE
    *done, why = _try(enclosure, SYSTEM, ()).split(_DONE)
    missing = _STEPS[len(done) :]
    for feature in missing[:1]:
        yield feature, _explained(feature, why.decode("utf-8", "replace"), enclosure)
    for feature in missing[1:]:
        yield feature, f"not tried, for want of {missing[0]}"
    if not is_admin and Feature.USERS not in missing:
        yield Feature.USERS, "only root can give each child a user of its own"


def closed_paths(directory: str, read: Paths, write: Paths) -> list[str]:
    """Return the paths that children of root, each its own user, could not use.

    Args:
        directory: the application's directory, which they need to read.
        read: other paths that they need to read.
        write: paths to which they need to write.
    """
    uses = [*((path, os.R_OK) for path in (directory, *read))]
    uses += [(path, os.W_OK) for path in write]
    shown = (*needed_paths(directory), *read, *write)
    lines = _try(Enclosure.OWN_USER, shown, uses).split(_DONE)[len(_STEPS) :]
    return [os.fsdecode(path) for path in lines if path]


def _try(enclosure: Enclosure, shown: Paths, uses: Sequence[tuple[str, int]]) -> bytes:
    """Return the probe's report: an empty line for each step that succeeded.

    Then the error of the step that failed or, after the last step, a line for each path
    that cannot be used.
    """
    read_end, write_end = os.pipe()
    with tempfile.TemporaryDirectory(prefix="jobpool-") as mount_point:
        pid = os.fork()
        if pid == 0:
            os.close(read_end)
            writable = [path for path, use in uses if use == os.W_OK]
            view = View(mount_point, shown, writable=writable)
            _report_steps(write_end, enclosure, view, uses)
        os.close(write_end)
        report = b""
        while part := os.read(read_end, _READ_BYTES):
            report += part
        os.close(read_end)
        os.waitpid(pid, 0)
    return report


def _report_steps(
    report: int, enclosure: Enclosure, view: View, uses: Sequence[tuple[str, int]]
) -> NoReturn:
    """Do what the zygote's middle process does and, in a fork, what a child does.

    Args:
        report: descriptor to which the report is written.
        enclosure: what to probe.
        view: what the child is to see.
        uses: paths to check, each with its mode for access(2).
    """
    try:
        make_namespaces(enclosure)
        os.write(report, _DONE)
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
            os._exit(0)
        uid = own_user(enclosure)
        enter(view._replace(uid=os.geteuid()))
        os.write(report, _DONE)
        drop_privileges(uid)
        os.write(report, _DONE)
        for path, use in uses:
            if os.path.exists(path):  # noqa: PTH110 - a str here
                use |= os.X_OK if os.path.isdir(path) else 0  # noqa: PLW2901, PTH112
            if not os.access(path, use):
                os.write(report, os.fsencode(path) + _DONE)
    except OSError as exc:
        os.write(report, (exc.strerror or str(exc)).encode())
    finally:
        os._exit(0)


def _explained(feature: Feature, why: str, enclosure: Enclosure) -> str:
    """Add the probable cause to an error."""
    why = why or "the process that tried was killed"
    if feature is Feature.USERS:
        return (
            f"{why}; a process could not become a user above {USERS_FROM}, as in a "
            "container that has few users: run jobpool as another user than root"
        )
    if enclosure is Enclosure.USER_NAMESPACE:
        found = [path for path, off in _SWITCHES if _content(path) == off]
        if found:
            why += f"; ordinary users are kept from it by {' and '.join(found)}"
        else:
            why += "; a container's rules may forbid it"
    return why


def _content(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""
