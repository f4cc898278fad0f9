"""A power cut: what was written and not synced is there, or not, or in pieces.

Theory of operation. An operation runs once while each write, truncation, sync, creation
and removal below its directory is recorded, with its data, beside what the operation
reported as done (`record`). A cut is a place in that record. What was synced before it
is on the disk. Of each later write any of its 512-byte sectors may be, in any order,
and any truncation, creation or removal (`Disk`). A name is on the disk once its
directory was synced; nothing is assumed of file systems that do more. What is in shared
memory (the log's index) is gone.

The disk keeps its promises here: a sync that returned has happened.
"""

import functools
import os
import random
import tempfile
from pathlib import Path
from typing import NamedTuple

from support.crash_points.filter import GO_ON
from support.crash_points.point import run_operation
from support.crash_points.states import copy_of, judge, reference, work_root

SECTOR_BYTES = 512
_WRITES = frozenset({"write", "pwrite64", "ftruncate", "fsync", "fdatasync"})
_SHM = "jobs.db-shm"
_KEEPS = (0.0, 0.0, 0.1, 0.5, 0.9, 1.0)
"""How much of what was not synced survives: one of these."""


class Event(NamedTuple):
    """Something that happened to the disk, or was reported.

    Attributes:
        what: write, truncate, sync, sync_names, make, remove or done.
        name: of the file below the directory.
        at: the offset, the new size, or how many steps are done.
        data: what was written.
    """

    what: str
    name: str = ""
    at: int = 0
    data: bytes = b""


class Cut(NamedTuple):
    """A power cut: after how many events of an operation, and with what luck."""

    operation: str
    after: int
    seed: int

    def __str__(self):
        return f"{self.operation}: power cut {self.after}, luck {self.seed}"


@functools.cache
def record(name):
    """Return the events of an operation, in order; made once in a process."""
    events = []
    with copy_of(reference(name).base) as directory:
        root = os.fspath(directory)

        def decide(call):
            events.extend(_events_of(call, root))
            return GO_ON

        def hear(report):
            events.append(Event("done", at=report.figure + 1))

        ended = run_operation(name, directory, decide, hear, seen_opening=True)
    assert ended.code == 0, ended.said
    return tuple(events)


def _events_of(call, root):
    """Yield what a call will do to the disk, if it succeeds; all of these do."""
    if call.name in _WRITES:
        path = call.file()
        if path == root:
            yield Event("sync_names")
        elif path.startswith(root + "/") and not path.endswith(_SHM):
            yield _change_of(call, path[len(root) + 1 :])
    elif call.name in {"openat", "unlink"}:
        path = call.text(call.arguments[1 if call.name == "openat" else 0])
        if not path.startswith(root + "/") or path.endswith(_SHM):
            return
        if call.name == "unlink":
            yield Event("remove", path[len(root) + 1 :])
        elif call.arguments[2] & os.O_CREAT and not Path(path).exists():
            yield Event("make", path[len(root) + 1 :])


def _change_of(call, name):
    if call.name == "ftruncate":
        return Event("truncate", name, call.arguments[1])
    if call.name not in {"write", "pwrite64"}:
        return Event("sync", name)
    data = call.memory(call.arguments[1], call.arguments[2])
    assert call.name == "pwrite64", f"write to {name} without a place"
    return Event("write", name, call.arguments[3], data)


class Disk:
    """What is certainly on a disk, and what may be.

    Args:
        base: the directory as it was, all of it on the disk.
    """

    def __init__(self, base):
        self._names = {}
        self._files = {}
        self._pending = {}
        self._unsynced_names = []
        for path in base.iterdir():
            if path.is_file() and path.name != _SHM:
                self._files[path.name] = path.read_bytes()
                self._names[path.name] = path.name
        self._live = dict(self._names)
        self._made = 0

    def happen(self, event):
        """Apply an event to the disk."""
        if event.what == "make":
            self._made += 1
            inode = f"{event.name}#{self._made}"
            self._files[inode] = b""
            self._live[event.name] = inode
            self._unsynced_names.append((event.name, inode))
        elif event.what == "remove":
            self._live.pop(event.name, None)
            self._unsynced_names.append((event.name, None))
        elif event.what == "sync_names":
            for name, inode in self._unsynced_names:
                _point(self._names, name, inode)
            self._unsynced_names = []
        elif event.what in {"write", "truncate"}:
            self._pending.setdefault(self._live[event.name], []).append(event)
        elif event.what == "sync":
            inode = self._live[event.name]
            for late in self._pending.pop(inode, ()):
                self._files[inode] = _applied(self._files[inode], late)

    def after_cut(self, rng):
        """Return the files that are found when the power is back."""
        keep = rng.choice(_KEEPS)
        names = dict(self._names)
        for name, inode in self._unsynced_names:
            if rng.random() < keep:
                _point(names, name, inode)
        return {
            name: self._with_luck(inode, keep, rng) for name, inode in names.items()
        }

    def _with_luck(self, inode, keep, rng):
        data = self._files[inode]
        for event in self._pending.get(inode, ()):
            if event.what == "truncate":
                if rng.random() < keep:
                    data = _applied(data, event)
                continue
            for part in _sectors(event):
                if rng.random() < keep:
                    data = _applied(data, part)
        return data


def _point(names, name, inode):
    if inode is None:
        names.pop(name, None)
    else:
        names[name] = inode


def _sectors(event):
    """Cut a write at the sectors' borders."""
    at, end = event.at, event.at + len(event.data)
    while at < end:
        border = min(end, (at // SECTOR_BYTES + 1) * SECTOR_BYTES)
        yield event._replace(at=at, data=event.data[at - event.at : border - event.at])
        at = border


def _applied(data, event):
    if event.what == "truncate":
        return data[: event.at].ljust(event.at, b"\0")
    before = data[: event.at].ljust(event.at, b"\0")
    return before + event.data + data[event.at + len(event.data) :]


def cuts_of(names, count, rng):
    """Yield so many cuts, spread over the operations and all of their events."""
    places = [
        (name, after)
        for name in names
        if name not in _ELSEWHERE
        for after in range(len(record(name)) + 1)
    ]
    rng.shuffle(places)
    for number in range(count if places else 0):
        name, after = places[number % len(places)]
        yield Cut(name, after, rng.getrandbits(32))


_ELSEWHERE = frozenset({"reclaim"})
"""Its second step is about a run directory, of which nothing is ever synced."""


def cut_the_power(cut):
    """Return what is wrong after a power cut; None: nothing."""
    disk = Disk(reference(cut.operation).base)
    done = 0
    for event in record(cut.operation)[: cut.after]:
        disk.happen(event)
        done = event.at if event.what == "done" else done
    rng = random.Random(cut.seed)
    with tempfile.TemporaryDirectory(dir=work_root()) as made:
        directory = Path(made)
        for name, data in disk.after_cut(rng).items():
            (directory / name).write_bytes(data)
        return judge(cut.operation, directory, done)
