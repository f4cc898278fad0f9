"""A model of the kernel's cgroup files, for controllers that this machine lacks.

Each rule is one of cgroup-v2.rst: no internal processes, controllers from the top
down, a cgroup with members is not removed, and how memory.events counts.
"""

import errno
import os
import posixpath


def refused(code):
    """Return the kernel's refusal."""
    return OSError(code, os.strerror(code))


class Cgroup:
    """One directory."""

    def __init__(self, controllers):
        self.controllers = set(controllers)
        self.handed_down = set()
        self.procs = set()
        self.files = {}
        self.charged = 0


class ModelFiles:
    """As `CgroupFiles`, over a hierarchy in memory with one cgroup, */unit*.

    Args:
        controllers: what has been handed down to it.
        procs: pids that are in it.
        has_kill: the kernel is 5.14 or later.
        has_swap: the kernel accounts for swap.
    """

    def __init__(
        self,
        controllers=("cpu", "memory", "pids"),
        procs=(1,),
        *,
        has_kill=True,
        has_swap=True,
    ):
        self.has_kill, self.has_swap = has_kill, has_swap
        self.cgroups = {"/unit": Cgroup(controllers)}
        self.cgroups["/unit"].procs |= set(procs)
        self.refusals = {}
        """Error numbers by path: what the file system or our rights forbid."""
        self.killed = []
        self.age = 0.0

    def read(self, path):
        """See `CgroupFiles`."""
        group, name = self._file(path)
        match name:
            case "cgroup.procs":
                return "".join(f"{pid}\n" for pid in sorted(group.procs))
            case "cgroup.controllers":
                return " ".join(sorted(group.controllers)) + "\n"
            case "cgroup.subtree_control":
                return " ".join(sorted(group.handed_down)) + "\n"
            case "cgroup.events":
                alive = any(self.cgroups[p].procs for p in self._subtree(path))
                return f"populated {int(alive)}\nfrozen 0\n"
        return group.files[name]

    def write(self, path, text):
        """See `CgroupFiles`."""
        group, name = self._file(path)
        where = posixpath.dirname(path)
        match name:
            case "cgroup.procs":
                if group.handed_down:
                    raise refused(errno.EBUSY)
                for other in self.cgroups.values():
                    other.procs.discard(int(text))
                group.procs.add(int(text))
            case "cgroup.subtree_control":
                self._hand_down(where, group, text[0], text[1:])
            case "cgroup.kill":
                for below in self._subtree(path):
                    self.killed += sorted(self.cgroups[below].procs)
                    self.cgroups[below].procs.clear()
            case _:
                group.files[name] = text

    def make(self, path):
        """See `CgroupFiles`."""
        if code := self.refusals.get(path) or self.refusals.get(
            posixpath.dirname(path)
        ):
            raise refused(code)
        if path in self.cgroups:
            raise refused(errno.EEXIST)
        above = self.cgroups.get(posixpath.dirname(path))
        if above is None:
            raise refused(errno.ENOENT)
        self.cgroups[path] = Cgroup(())
        self._inherit(path)

    def remove(self, path):
        """See `CgroupFiles`."""
        if path not in self.cgroups:
            raise refused(errno.ENOENT)
        if self.below(path) or self.cgroups[path].procs:
            raise refused(errno.EBUSY)
        del self.cgroups[path]

    def below(self, path):
        """See `CgroupFiles`."""
        if path not in self.cgroups:
            raise refused(errno.ENOENT)
        return [p for p in self.cgroups if posixpath.dirname(p) == path]

    def exists(self, path):
        """See `CgroupFiles`."""
        name = posixpath.basename(path)
        return path in self.cgroups or (name == "cgroup.kill" and self.has_kill)

    def age_s(self, _path):
        """See `CgroupFiles`."""
        return self.age

    def charge(self, path, amount):
        """Let a cgroup's processes take memory; the kernel may kill them all."""
        group = self.cgroups[path]
        group.charged += amount
        most = group.files["memory.max"].strip()
        if most == "max" or group.charged <= int(most):
            self._count(group, peak=group.charged)
            return
        self._count(group, peak=int(most), oom=1)
        self.kill_for_memory(path)

    def kill_for_memory(self, path):
        """Let an OOM killer, its own or the host's, take a process of a cgroup."""
        group = self.cgroups[path]
        whole = group.files["memory.oom.group"] == "1"
        victims = sorted(group.procs) if whole else sorted(group.procs)[:1]
        self.killed += victims
        group.procs -= set(victims)
        self._count(group, oom_kill=len(victims))

    @staticmethod
    def _count(group, *, peak=0, oom=0, oom_kill=0):
        group.files["memory.peak"] = f"{max(int(group.files['memory.peak']), peak)}\n"
        counts = dict(
            line.split() for line in group.files["memory.events"].splitlines()
        )
        counts["oom"] = int(counts["oom"]) + oom
        counts["oom_kill"] = int(counts["oom_kill"]) + oom_kill
        group.files["memory.events"] = "".join(f"{k} {v}\n" for k, v in counts.items())

    def _file(self, path):
        where, name = posixpath.split(path)
        group = self.cgroups.get(where)
        if group is None:
            raise refused(errno.ENOENT)
        if code := self.refusals.get(path):
            raise refused(code)
        known = {"cgroup.procs", "cgroup.controllers", "cgroup.subtree_control"}
        known |= {"cgroup.events"} | ({"cgroup.kill"} if self.has_kill else set())
        if name not in known and name not in group.files:
            raise refused(errno.ENOENT)
        return group, name

    def _subtree(self, file):
        top = posixpath.dirname(file)
        return [p for p in self.cgroups if p == top or p.startswith(f"{top}/")]

    def _hand_down(self, where, group, sign, name):
        if sign == "+":
            if name not in group.controllers:
                raise refused(errno.ENOENT)
            if group.procs:
                raise refused(errno.EBUSY)
            group.handed_down.add(name)
        else:
            if any(name in self.cgroups[p].handed_down for p in self.below(where)):
                raise refused(errno.EBUSY)
            group.handed_down.discard(name)
        for path in self.below(where):
            self._inherit(path)

    def _inherit(self, path):
        group = self.cgroups[path]
        group.controllers = set(self.cgroups[posixpath.dirname(path)].handed_down)
        if "memory" in group.controllers:
            group.files.setdefault("memory.max", "max\n")
            group.files.setdefault("memory.oom.group", "0\n")
            group.files.setdefault("memory.peak", "0\n")
            events = "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n"
            group.files.setdefault("memory.events", events)
            if self.has_swap:
                group.files.setdefault("memory.swap.max", "max\n")
        if "pids" in group.controllers:
            group.files.setdefault("pids.max", "max\n")
