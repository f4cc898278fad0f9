"""Checks a database file's location: may a queue be there, and is it the same file?

Uses names and permissions only. The database file itself is opened here only once, to
create it: closing a descriptor of it would drop the locks that SQLite holds in this
process.
"""

from __future__ import annotations

import os
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from jobpool.errors import StoreRefused, StoreUnavailable

REMOTE = frozenset(
    {
        "9p",
        "acfs",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "fuse.ceph",
        "fuse.cephfs",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.juicefs",
        "fuse.s3fs",
        "fuse.sshfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "smb2",
        "smb3",
        "smbfs",
        "vboxsf",
        "virtiofs",
        "vmhgfs",
    }
)
"""File systems whose locks or shared memory do not hold between machines."""
_HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\0"
_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPES = ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\"))
# One thread at a time creates and opens: until the descriptor that created the file is
# closed, no connection of this process may hold a SQLite lock on it.
OPENING = threading.Lock()

Identity = tuple[int, int]
"""Device and inode of a file."""


def identity_of(path: str) -> Identity | None:
    """Return which file a path names now, or None when it names none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - before and after every commit
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _inaccessible(path, error) from error
    return found.st_dev, found.st_ino


class Header(NamedTuple):
    """What the first page of a database file says, as it is on the disk.

    Neither number ever goes back while a database is in use: checkpoints copy newer
    pages there. A backup that was copied over the file has those of the backup; if
    SQLite wrote it, its count of schemas begins anew.

    Source: https://www.sqlite.org/fileformat2.html, "The Database Header".
    """

    changes: int
    schemas: int


def header_of(identity: Identity | None) -> Header | None:
    """Return a file's header, read by a descriptor that SQLite has open here.

    Opening the file once more, and closing it, would drop SQLite's locks. None: this
    process does not have it open, or it has none now.
    """
    try:
        fds = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208 - names
    except OSError:
        return None
    for fd in fds:
        with suppress(OSError):
            found = os.fstat(fd)
            if (found.st_dev, found.st_ino) != identity:
                continue
            start = os.pread(fd, _HEADER_BYTES, 0)
            if len(start) == _HEADER_BYTES and start.startswith(_MAGIC):
                changes, schemas = (
                    int.from_bytes(start[at : at + 4], "big") for at in (24, 40)
                )
                return Header(changes, schemas)
    return None


def _inaccessible(path: str, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(
        f"the store {path} cannot be accessed ({error.strerror}); make its "
        "directory readable again"
    )


def prepare(path: str, *, create: bool, force_network: bool) -> None:
    """Check that a queue may be stored at *path*, and that the file exists.

    Args:
        path: absolute, without symbolic links.
        create: create an empty file, for its owner only, if there is none.
        force_network: accept a file system of another machine.

    Raises:
        StoreRefused: there is no such file or directory, or a queue must not be stored
            there; nothing was created.
        StoreUnavailable: the file could not be created or accessed now.
    """
    try:
        _prepare(path, create=create, force_network=force_network)
    except OSError as error:
        raise _inaccessible(path, error) from error


def _prepare(path: str, *, create: bool, force_network: bool) -> None:
    directory = Path(path).parent
    if not directory.is_dir():
        raise StoreRefused(
            f"the store {path} cannot be opened: there is no directory {directory}; "
            "create it or name another file"
        )
    if not force_network:
        _refuse_remote(path)
    if not os.access(directory, os.W_OK | os.X_OK):
        raise StoreRefused(
            f"the store {path} cannot be used: this user may not write to its "
            "directory, where SQLite keeps its log; give write permission on "
            f"{directory} or name another file"
        )
    try:
        _check_file(path)
    except FileNotFoundError:
        if not create:
            raise StoreRefused(
                f"there is no store {path}; start a supervisor or let the application "
                "enqueue there first, or name the right file (--store, JOBPOOL_STORE)"
            ) from None
        _create(path)


def _check_file(path: str) -> None:
    found = Path(path).stat()
    if stat.S_ISDIR(found.st_mode):
        raise StoreRefused(
            f"the store {path} is a directory; name a file in it, such as "
            f"sqlite:///{path}/jobpool.db"
        )
    if not stat.S_ISREG(found.st_mode):
        raise StoreRefused(f"the store {path} is not a regular file; name one")
    if found.st_nlink > 1:
        raise StoreRefused(
            f"the store {path} has {found.st_nlink} hard links; SQLite would keep a "
            "log for each name and damage the file: keep only one name"
        )
    if not os.access(path, os.R_OK | os.W_OK):
        raise StoreRefused(
            f"the store {path} is read-only for this user; give read and write "
            "permission on the file, or name another one"
        )


def _create(path: str) -> None:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return  # Another process has just created it.
    except OSError as error:
        raise StoreUnavailable(
            f"the store {path} could not be created ({error.strerror}); make room or "
            "name another file"
        ) from error
    try:
        if hasattr(os, "fchmod"):
            os.fchmod(fd, 0o600)
    finally:
        os.close(fd)


def _refuse_remote(path: str) -> None:
    kind = filesystem_of(path)
    if kind in REMOTE:
        raise StoreRefused(
            f"the store {path} is on a network or shared file system ({kind}), where "
            "SQLite's locks do not hold; use a local disk or PostgreSQL, or set "
            "JOBPOOL_ALLOW_NETWORK_FS=1 if only one machine ever uses it (see: jobpool "
            "manual files)"
        )


def filesystem_of(path: str, mountinfo: str | None = None) -> str | None:
    """Return the type of the file system that holds *path*.

    Args:
        path: absolute, without symbolic links.
        mountinfo: the kernel's table of mounts; None: read it.

    Returns:
        As in ``/proc/filesystems``; None where the kernel has no such table.

    Source: proc_pid_mountinfo(5).
    """
    if mountinfo is None:
        if not _MOUNTS.exists():
            return None
        mountinfo = _MOUNTS.read_text("utf-8", "surrogateescape")
    best, kind = "", None
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        point = left.split(" ")[4]
        for escape, character in _ESCAPES:
            point = point.replace(escape, character)
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # Of equal mount points the later one hides the earlier one.
        if inside and len(point) >= len(best):
            best, kind = point, right.split(" ")[0]
    return kind
