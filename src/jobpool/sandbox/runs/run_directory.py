"""The run directory: what a supervisor leaves on disk about its own processes.

Theory of operation. ``<root>/<run id>/`` holds a lock file, locked for as long as
the supervisor lives; the slot file, with a header and one fixed-size record per slot,
which only the supervisor writes; a mark file per slot; and a FIFO by which producers
wake the supervisor. A later supervisor reads it to prove this one dead (`death_proof`).
Nothing in it is synced to disk: it is useful only during this boot of the host.
Temporary files of jobs are in the host's temporary directory: they must not fill the
database's disk.

The lock is fcntl's: it belongs to this process alone, is not inherited by forks, and
is released when the process ends, however it ends. It would also be released if this
process opened and closed the lock file again: so it skips the runs in `held_runs`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from jobpool.errors import ConfigError, JobpoolBug, StoreFull
from jobpool.sandbox.system.procfs import boot_id, pid_namespace, process_start_time
from jobpool.sandbox.system.remove_tree import remove_tree

HEADER_BYTES = 4096
TMP_PREFIX = "jobpool-"
_TMP_RANDOM_BYTES = 4
"""Few: the path of a socket below it may have 107 bytes."""
_TMP_VARIABLES = ("TMPDIR", "TEMP", "TMP")
_TMP_PLACES = (Path("/tmp"), Path("/var/tmp"), Path("/usr/tmp"))  # noqa: S108 - Python's
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_RECORD = struct.Struct("<qQ")
_MARK = "mark.{}"
_held: set[tuple[int, str]] = set()
"""With the pid, since a fork of this process holds none of its locks."""


class Header(msgspec.Struct, frozen=True):
    """The supervisor to which a run directory belongs."""

    run_id: str
    pid: int
    start_time: int
    """Clock ticks since boot."""
    boot_id: str
    pid_namespace: int
    tmp_root: str


def held_runs() -> frozenset[str]:
    """Return the runs whose lock this process holds."""
    return frozenset(run_id for pid, run_id in _held if pid == os.getpid())


class RunDirectory:
    """This supervisor's run directory.

    As a context manager it is removed at the end, unless `keep` was called or an
    exception leaves while children are recorded: then a later supervisor must be able
    to prove this run dead.

    Args:
        path: the directory; must exist and be empty.
        run_id: the run.
        tmp_root: directory for the jobs' temporary files; created once it is recorded.

    Attributes:
        path: the directory.
        run_id: the run.
        tmp_root: the children's temporary directories are below it.
    """

    def __init__(self, path: Path, run_id: str, tmp_root: Path) -> None:
        self.path = path
        self.run_id = run_id
        self.tmp_root = tmp_root
        self._slots = self._wake = -1
        self._keep = False
        self._recorded: set[int] = set()
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._lock = os.open(path / "lock", flags, 0o600)
        _held.add((os.getpid(), run_id))
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Renamed only when it is complete: a reader finds all of it or nothing.
            self._slots = os.open(path / "slots.new", flags, 0o600)
            header = msgspec.json.encode(_header(run_id, tmp_root))
            os.pwrite(self._slots, header.ljust(HEADER_BYTES), 0)
            Path(path, "slots.new").rename(path / "slots")
            tmp_root.mkdir(mode=0o700)
        except OSError:
            self.close()
            raise

    @classmethod
    def create(cls, root: str | Path, run_id: str) -> RunDirectory:
        """Create the directory, for its owner only, and take its lock.

        Args:
            root: directory of all runs of a store; created if it is missing.
            run_id: the run; must be new.

        Raises:
            StoreFull: there is no room for it; nothing is left there.
            ConfigError: the directory cannot be used; nothing is left there.
        """
        path = Path(root, run_id)
        name = f"{TMP_PREFIX}{os.urandom(_TMP_RANDOM_BYTES).hex()}"
        try:
            _make_root(path.parent)
            path.mkdir(mode=0o700)
            try:
                return cls(path, run_id, _tmp_place() / name)
            except OSError:
                _unmake(path)
                raise
        except OSError as exc:
            if exc.errno in _NO_ROOM:
                raise StoreFull(
                    f"there is no room for the run directory {path}, or in the "
                    f"temporary directory {_tmp_place()} ({exc.strerror}); free some"
                ) from exc
            raise ConfigError(
                f"cannot create the run directory {path}: {exc.strerror}; jobpool must "
                "be able to write beside its database and in the temporary directory"
            ) from exc

    def keep(self) -> None:
        """Leave the directory behind at the end: leases could not be given back."""
        self._keep = True

    def mark_path(self, slot: int) -> str:
        """Return the path of a slot's mark file."""
        return str(self.path / _MARK.format(slot))

    def record_cgroup(self, path: str) -> None:
        """Record the run's cgroup, before it is created.

        Raises:
            OSError: it could not be written; the cgroup must not be created.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = os.open(self.path / "cgroup", flags, 0o600)
        try:
            os.write(fd, os.fsencode(path))
        finally:
            os.close(fd)

    def fence_path(self) -> str:
        """Return the path of the fence's file."""
        return str(self.path / "fence")

    def write_slot(self, slot: int, pid: int, start_time: int) -> None:
        """Record a slot's child; pid 0: it has none.

        Args:
            slot: the slot's number.
            pid: its child.
            start_time: the child's start, in clock ticks since boot.

        Raises:
            OSError: it could not be written; the child must not be started.
        """
        offset = HEADER_BYTES + slot * _RECORD.size
        os.pwrite(self._slots, _RECORD.pack(pid, start_time), offset)
        (self._recorded.add if pid else self._recorded.discard)(slot)

    def open_wake(self) -> int:
        """Create the FIFO by which producers wake the supervisor; return its read end.

        It is opened for writing too, so that it never reads as closed.
        """
        path = self.path / "wake"
        os.mkfifo(path, 0o600)
        self._wake = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        return self._wake

    def close(self) -> None:
        """Release the lock, and leave the directory as it is."""
        for fd in (self._wake, self._slots, self._lock):
            if fd >= 0:
                os.close(fd)
        self._wake = self._slots = self._lock = -1
        _held.discard((os.getpid(), self.run_id))

    def remove(self) -> None:
        """Remove the directory and the jobs' temporary files, then release the lock.

        What cannot be removed stays.
        """
        remove_tree(self.path)
        remove_tree(self.tmp_root)
        self.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove it, or keep it as proof."""
        if self._keep or (error is not None and self._recorded):
            self.close()
        else:
            self.remove()


def _unmake(path: Path) -> None:
    """Remove a half-made directory, by names: there may be no descriptor to list it."""
    with contextlib.suppress(OSError):  # what cannot be removed stays
        for name in ("lock", "slots.new", "slots"):
            (path / name).unlink(missing_ok=True)
        path.rmdir()


def read_header(path: Path) -> Header:
    """Return the header of a run directory.

    Raises:
        OSError: there is none, or it cannot be read.
        ValueError: it is damaged.
    """
    with (path / "slots").open("rb") as file:
        return msgspec.json.decode(file.read(HEADER_BYTES).rstrip(), type=Header)


def read_slots(path: Path) -> Iterator[tuple[int, int]]:
    """Yield pid and start time of every recorded child."""
    for pid, start_time in _records(path):
        if pid > 0:
            yield pid, start_time


def occupied_marks(path: Path) -> list[Path]:
    """Return the mark files of the slots that have a recorded child."""
    records = enumerate(_records(path))
    return [path / _MARK.format(slot) for slot, (pid, _start) in records if pid > 0]


def _records(path: Path) -> Iterator[tuple[int, int]]:
    body = (path / "slots").read_bytes()[HEADER_BYTES:]
    whole = len(body) - len(body) % _RECORD.size
    return _RECORD.iter_unpack(body[:whole])


def read_cgroup(path: Path) -> str:
    """Return the cgroup that a run has recorded; "": none.

    Raises:
        OSError: it cannot be read.
    """
    try:
        return (path / "cgroup").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def remove_run(root: str | Path, run_id: str) -> None:
    """Remove what is left of a run that was proven dead and reclaimed."""
    path = Path(root, run_id)
    try:
        tmp_root = Path(read_header(path).tmp_root)
    except (OSError, ValueError):
        tmp_root = None  # it was never complete, or was removed
    if tmp_root is not None and tmp_root.name.startswith(TMP_PREFIX):
        remove_tree(tmp_root)
    remove_tree(path)


def _header(run_id: str, tmp_root: Path) -> Header:
    pid = os.getpid()
    start_time = process_start_time(pid)
    if start_time is None:
        raise JobpoolBug("/proc does not list this process; please report this")
    return Header(run_id, pid, start_time, boot_id(), pid_namespace(), str(tmp_root))


def _tmp_place() -> Path:
    """Return the directory for temporary files, as `tempfile` would choose it.

    `tempfile` tries a directory by writing a file, which a kill would leave there.
    """
    if tempfile.tempdir is not None:
        return Path(os.fsdecode(tempfile.tempdir))
    wanted = [os.environ[name] for name in _TMP_VARIABLES if os.environ.get(name)]
    for place in (*map(Path, wanted), *_TMP_PLACES):
        if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
            return place.absolute()
    return Path.cwd()


def _make_root(root: Path) -> None:
    root.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    root.mkdir(mode=0o700, exist_ok=True)
    if root.is_symlink() or root.stat().st_uid != os.geteuid():
        raise ConfigError(
            f"the run directory {root} is a link or belongs to another user; run "
            "jobpool as its owner, or remove it"
        )
