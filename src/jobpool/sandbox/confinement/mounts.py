"""What an enclosed child sees of the file system: its own root, built from mounts.

Theory of operation. The root is a tmpfs of bounded size. Every path that the child may
see is bind-mounted into it at the same place; nothing else exists there. The parent
directories of such a path need not be accessible to the child. /proc shows the child's
PID namespace. /dev has only devices that store nothing, and a private shm. Where the
store's files lie below a visible path, they are covered by an empty mount. Finally
pivot_root(2) makes the tmpfs the root, and the old root is unmounted.

Building the view takes capabilities, which the child gives up right afterwards.
Landlock then decides what the child may write. Landlock does not cover modes, owners,
times and attributes, which a child of an ordinary user could change on that user's
files, so everything is mounted read-only except the writable paths. Nor does Landlock
stop a process from using an open descriptor of an old directory to name, watch or
connect to what lies there, so such descriptors are redirected to the root of the view.

The child's own directory, `OWN`, is its working directory, HOME and TMPDIR. /tmp links
to it, unless something that the child may see lies below /tmp.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jobpool.errors import JobpoolError
from jobpool.sandbox.system.libc import checked, libc

OWN = "/run/jobpool/own"
SHM = "/dev/shm"  # noqa: S108 - the child's own
_ABOVE_OWN = "/run/jobpool"
WRITABLE = (_ABOVE_OWN, SHM)
_RESERVED = (_ABOVE_OWN, "/dev", "/proc")
FILES_MAX = 100_000
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = (
    ("/proc/self/fd", "dev/fd"),
    ("/proc/self/fd/0", "dev/stdin"),
    ("/proc/self/fd/1", "dev/stdout"),
    ("/proc/self/fd/2", "dev/stderr"),
)
_NOSUID, _NODEV, _NOEXEC, _BIND, _REC = 2, 4, 8, 4096, 16384
_UNBINDABLE, _PRIVATE = 1 << 17, 1 << 18
_DETACH = 2
_MOUNT_SETATTR = 442  # on every architecture
_ATTR_READ_ONLY, _AT_RECURSIVE, _AT_CWD = 1, 0x8000, -100
_EMPTY_FILE, _EMPTY_DIRECTORY = "run/empty", "run/nothing"


class View(NamedTuple):
    """What the child is to see."""

    mount_point: str
    """The directory on which the view is built."""
    paths: Sequence[str]
    """Absolute paths to show; those that do not exist are skipped."""
    hidden: Sequence[str] = ()
    """Files and directories to cover."""
    writable: Sequence[str] = ()
    """Some of `paths`, or paths below them: writable, with nothing in them covered."""
    size_bytes: int = 0
    """Bound on everything written to the tmpfs; 0: half of the machine's memory."""
    uid: int = 0
    """The user that owns `OWN` and /dev/shm."""


def enter(view: View) -> None:
    """Turn this process's mount namespace, which must be private to it, into the view.

    The working directory becomes the new root.

    Raises:
        JobpoolError: a path cannot be shown; nothing was changed.
        OSError: the kernel refused; the child must not run anything.
    """
    root = view.mount_point
    paths = outermost(view.paths)
    _refuse_reserved(paths)
    mask = os.umask(0o022)
    try:
        _mount(None, "/", None, _REC | _PRIVATE)
        size = f"size={view.size_bytes}," if view.size_bytes else ""
        options = f"{size}nr_inodes={FILES_MAX},mode=755"
        _mount("tmpfs", root, "tmpfs", _NOSUID | _NODEV, options)
        # Otherwise a shown path that contains the mount point would contain a second
        # copy of the view, in which nothing is covered.
        _mount(None, root, None, _UNBINDABLE)
        written = [path for path in paths if is_below(path, view.writable)]
        for path in paths:
            if path not in written:
                _show(root, path)
        _make_read_only(root)
        for path in written:
            _show(root, path)
        _open(root, paths, view.writable)
        _mount(None, root, None, _PRIVATE)  # the root is a source of binds from here on
        _make_devices(root)
        _make_own(root, view.uid)
        _hide(root, view.hidden, view.writable)
        os.mkdir(f"{root}/proc", 0o555)  # noqa: PTH102 - a str here
        _mount("proc", f"{root}/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
        _pivot(root)
        _redirect_directories()
    finally:
        os.umask(mask)


def outermost(paths: Iterable[str]) -> list[str]:
    """Return the paths that do not lie below another one, sorted."""
    found: list[str] = []
    for path in sorted({os.path.abspath(path) for path in paths}):  # noqa: PTH100 - no Path
        if not is_below(path, found):
            found.append(path)
    return found


def is_below(path: str, paths: Iterable[str]) -> bool:
    """Say whether a path is one of these paths or lies below one."""
    return any(path == one or path.startswith(f"{one.rstrip('/')}/") for one in paths)


def _refuse_reserved(paths: Sequence[str]) -> None:
    for place in _RESERVED:
        if is_below(place, paths):
            raise JobpoolError(
                f"a child of the strict level has its own {place}, and cannot be shown "
                f"{next(path for path in paths if is_below(place, [path]))}: name what "
                "it needs there more closely, and keep the application elsewhere"
            )


def _show(root: str, path: str) -> None:
    """Mount a path of the host, if it exists, at the same place in the view."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - a str here
    except (OSError, ValueError):
        return  # absent, or not accessible to this process, and so not to the child
    place = root + path
    is_top = path.count("/") == 1
    if is_top and os.path.islink(path):  # noqa: PTH114 - a str here
        os.symlink(os.readlink(path), place)  # noqa: PTH115, PTH211 - str here: /lib
        return
    _make_place(place, is_directory=stat.S_ISDIR(mode))
    _mount(path, place, None, _BIND | _REC)


def _make_read_only(root: str) -> None:
    """Make everything mounted below a mount so far read-only, but not the mount itself.

    One recursive call: a call per mount would take a fifth of the view's set-up time.
    """
    for turn, clear, reach in (
        (_ATTR_READ_ONLY, 0, _AT_RECURSIVE),
        (0, _ATTR_READ_ONLY, 0),
    ):
        attr = (ctypes.c_uint64 * 4)(turn, clear)
        answer = libc.syscall(
            ctypes.c_long(_MOUNT_SETATTR),
            ctypes.c_int(_AT_CWD),
            os.fsencode(root),
            ctypes.c_uint(reach),
            attr,
            ctypes.c_size_t(ctypes.sizeof(attr)),
        )
        checked(answer, f"mount_setattr of {root}")


def _open(root: str, paths: Sequence[str], writable: Sequence[str]) -> None:
    """Mount writable paths that lie below a read-only one again, writable."""
    for path in outermost(writable):
        place = root + path
        if path not in paths and os.path.exists(place):  # noqa: PTH110 - a str here
            _mount(path, place, None, _BIND | _REC)


def _redirect_directories() -> None:
    """Replace every open directory descriptor by one of the new root."""
    home = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for fd in {int(name) for name in os.listdir("/proc/self/fd")} - {home}:  # noqa: PTH208 - names
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                os.dup2(home, fd, inheritable=os.get_inheritable(fd))
    os.close(home)


def _make_place(place: str, *, is_directory: bool) -> None:
    """Make a mount's target, unless it exists."""
    above = place if is_directory else os.path.dirname(place)  # noqa: PTH120 - a str
    try:
        os.mkdir(above, 0o755)  # noqa: PTH102 - a str here
    except FileNotFoundError:
        os.makedirs(above, 0o755)  # noqa: PTH103 - a str here
    except FileExistsError:
        pass
    if not is_directory:
        with contextlib.suppress(FileExistsError):
            os.mknod(place, stat.S_IFREG | 0o444)


def _make_devices(root: str) -> None:
    for name in _DEVICES:
        if os.path.exists(f"/dev/{name}"):  # noqa: PTH110 - a str here
            _make_place(f"{root}/dev/{name}", is_directory=False)
            _mount(f"/dev/{name}", f"{root}/dev/{name}", None, _BIND)
    for target, name in _LINKS:
        os.symlink(target, f"{root}/{name}")  # noqa: PTH211 - a str here


def _make_own(root: str, uid: int) -> None:
    """Make the directories in which the child may write."""
    for path in WRITABLE:
        os.makedirs(root + path, 0o755, exist_ok=True)  # noqa: PTH103 - a str here
        os.chmod(root + path, 0o700)  # noqa: PTH101 - a str here
        os.chown(root + path, uid, -1)
    for path in ("/tmp", "/var/tmp"):  # noqa: S108 - the child's own
        if not os.path.lexists(root + path):
            os.makedirs(os.path.dirname(root + path), 0o755, exist_ok=True)  # noqa: PTH103, PTH120 - str here
            os.symlink(OWN, root + path)  # noqa: PTH211 - a str here


def _hide(root: str, hidden: Sequence[str], writable: Sequence[str]) -> None:
    for name in (_EMPTY_FILE, _EMPTY_DIRECTORY):
        _make_place(f"{root}/{name}", is_directory=name == _EMPTY_DIRECTORY)
        os.chmod(f"{root}/{name}", 0)  # noqa: PTH101 - a str here
    for path in hidden:
        place = root + path
        if is_below(path, writable) or not os.path.exists(place):  # noqa: PTH110 - a str
            continue
        is_directory = os.path.isdir(place)  # noqa: PTH112 - a str here
        cover = _EMPTY_DIRECTORY if is_directory else _EMPTY_FILE
        _mount(f"{root}/{cover}", place, None, _BIND)


def _pivot(root: str) -> None:
    """Make a directory the root, and unmount the old root."""
    os.chdir(root)
    checked(libc.pivot_root(b".", b"."), "pivot_root")
    checked(libc.umount2(b".", _DETACH), "umount of the former root")
    os.chdir("/")


def _mount(
    source: str | None, place: str, kind: str | None, flags: int, options: str = ""
) -> None:
    answer = libc.mount(
        source and os.fsencode(source),
        os.fsencode(place),
        kind and os.fsencode(kind),
        ctypes.c_ulong(flags),
        os.fsencode(options) if options else None,
    )
    checked(answer, f"mount of {source} on {place}")
