"""One cgroup per run; below it one per child, if memory or processes are bounded.

Theory of operation. Below the cgroup that the supervisor was started in (`location`):

    jobpool.RUN/supervisor      the supervisor itself, while it runs
    jobpool.RUN/zygotes         zygotes, and children until they have their own
    jobpool.RUN/cpu.0.4711      a child and everything it starts

Only a cgroup without processes of its own can hand down a controller ("no internal
processes"), so the supervisor moves down first; if another process stays where it was,
that controller is not in force. The move also shows whether processes can be moved at
all. At the end the supervisor moves back.

A process joins by itself, before anything of the user's runs in it: the kernel may
take 10 ms and more for that (an RCU grace period), which must not block the loop.
Without controllers a cgroup per child would add nothing to the walk over its tree, so
those 10 ms are saved: one cgroup for the whole run kills what a dead run has left
(`death_proof`), whatever its environment and session.

Source: https://docs.kernel.org/admin-guide/cgroup-v2.html
"""

from __future__ import annotations

import contextlib
import errno
import posixpath
import time
from collections.abc import Iterator, Sequence

from jobpool.core.isolation.cgroups import PROCESSES_MAX, Control, Controls
from jobpool.sandbox.cgroups.cgroup import FILES, PREFIX, ChildGroup, Group
from jobpool.sandbox.cgroups.files import CgroupFiles
from jobpool.sandbox.cgroups.location import NoCgroupError, base, here

__all__ = ["NoCgroupError", "RunGroup", "enter", "path_for"]
REMOVE_WAIT_S = 0.5
OLD_S = 60.0
"""A supervisor has entered its cgroup long before this age."""
_STEP_S = 0.005
_CONTROLLERS = {Control.MEMORY: "memory", Control.PIDS: "pids"}


class RunGroup(Group):
    """The cgroup of a run; created by `enter`.

    Args:
        path: its directory.
        origin: the cgroup that the supervisor came from.
        controls: the controls in force.
        handed_down: controllers that were not handed down there before.
        files: the kernel's files.
    """

    def __init__(
        self,
        path: str,
        *,
        origin: str,
        controls: Controls,
        handed_down: tuple[str, ...] = (),
        files: CgroupFiles = FILES,
    ) -> None:
        super().__init__(path, files)
        self.controls = controls
        self.zygotes = posixpath.join(path, "zygotes")
        self._origin = origin
        self._handed_down = handed_down

    @property
    def is_per_child(self) -> bool:
        """Whether children have cgroups of their own."""
        return set(self.controls.in_force) > {Control.KILL}

    def child(self, name: str, memory_bytes: int, processes: int | None) -> ChildGroup:
        """Create the cgroup of a child.

        Args:
            name: the child's, unique in this run.
            memory_bytes: its pool's memory limit.
            processes: the most processes and threads in it; None: the default.

        Raises:
            OSError: it could not be created.
        """
        return ChildGroup(
            posixpath.join(self.path, name.replace("/", ".")),
            self.controls.in_force,
            memory_bytes=memory_bytes,
            processes=processes or PROCESSES_MAX,
            files=self._files,
        )

    def leave(self) -> None:
        """Kill what is left of children, move the supervisor back, and remove it.

        What the kernel does not release stays; the next supervisor removes it.
        """
        until_s = time.monotonic() + REMOVE_WAIT_S
        supervisor = posixpath.join(self.path, "supervisor")
        while left := self._children():
            for group in left:
                group.kill()
                group.remove()
            if time.monotonic() > until_s:
                break
            time.sleep(_STEP_S)
        above = posixpath.dirname(self.path)
        with contextlib.suppress(OSError):  # another run's children still use it
            for name in self._handed_down:
                self._write("cgroup.subtree_control", f"-{name}")
                self._files.write(
                    posixpath.join(above, "cgroup.subtree_control"), f"-{name}"
                )
        with contextlib.suppress(OSError):
            for pid in Group(supervisor, self._files).members():
                self._files.write(
                    posixpath.join(self._origin, "cgroup.procs"), str(pid)
                )
        self.remove()

    def _children(self) -> list[Group]:
        try:
            paths = self._files.below(self.path)
        except OSError:
            return []
        return [
            Group(path, self._files)
            for path in paths
            if posixpath.basename(path) != "supervisor"
        ]


def path_for(run_id: str) -> tuple[str, str]:
    """Return the cgroup of this process, and the one that its run may create.

    Raises:
        NoCgroupError: it may create none.
    """
    own = here()
    return own, posixpath.join(base(own), f"{PREFIX}{run_id}")


def enter(
    origin: str,
    path: str,
    pid: int,
    files: CgroupFiles = FILES,
    *,
    zygotes: Sequence[int] = (),
) -> RunGroup:
    """Create a run's cgroup and move its supervisor there.

    Args:
        origin: the supervisor's present cgroup.
        path: the run's, from `path_for`.
        pid: the supervisor.
        files: the kernel's files.
        zygotes: those that have been started already; they move, too.

    Raises:
        NoCgroupError: it failed; the supervisor is where it was.
    """
    above = posixpath.dirname(path)
    _remove_old(above, files)
    try:
        files.make(path)
    except OSError as exc:
        raise NoCgroupError(
            f"no cgroup can be made below {above}: {exc.strerror}"
        ) from exc
    places = (
        (posixpath.join(path, "supervisor"), (pid,)),
        (posixpath.join(path, "zygotes"), zygotes),
    )
    try:
        for place, pids in places:
            files.make(place)
            for one in pids:
                files.write(posixpath.join(place, "cgroup.procs"), str(one))
    except OSError as exc:
        Group(path, files).remove()
        raise NoCgroupError(
            f"processes cannot be moved below {above}: {exc.strerror}"
        ) from exc
    missing: dict[Control, str] = {}
    if not files.exists(posixpath.join(path, "cgroup.kill")):
        missing[Control.KILL] = "this kernel has none; Linux 5.14 is needed"
    handed_down = tuple(_hand_down(above, path, missing, files))
    in_force = tuple(control for control in Control if control not in missing)
    return RunGroup(
        path,
        origin=origin,
        controls=Controls(place=path, in_force=in_force, missing=missing),
        handed_down=handed_down,
        files=files,
    )


def _hand_down(
    above: str, path: str, missing: dict[Control, str], files: CgroupFiles
) -> Iterator[str]:
    """Enable controllers for what is below *path*; yield those new in *above*."""
    for control, name in _CONTROLLERS.items():
        try:
            if name not in _words(above, "cgroup.controllers", files):
                missing[control] = f"{above} lacks the controller {name!r}"
                continue
            is_new = name not in _words(above, "cgroup.subtree_control", files)
            if is_new:
                _order(above, f"+{name}", files)
            _order(path, f"+{name}", files)
        except OSError as exc:
            why = exc.strerror or type(exc).__name__
            if exc.errno == errno.EBUSY:
                why = "other processes are there; give jobpool a cgroup of its own"
            missing[control] = f"{above} cannot hand down {name!r}: {why}"
        else:
            if is_new:
                yield name


def _words(path: str, name: str, files: CgroupFiles) -> list[str]:
    return files.read(posixpath.join(path, name)).split()


def _order(path: str, text: str, files: CgroupFiles) -> None:
    files.write(posixpath.join(path, "cgroup.subtree_control"), text)


def _remove_old(above: str, files: CgroupFiles) -> None:
    """Remove the cgroups of dead supervisors whose run directory is gone."""
    with contextlib.suppress(OSError):
        for path in files.below(above):
            if not posixpath.basename(path).startswith(PREFIX):
                continue
            group = Group(path, files)
            if files.age_s(path) > OLD_S and not group.is_populated():
                group.remove()
