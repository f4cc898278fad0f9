"""What an enclosed child sees of the file system: a root of its own, made of mounts.

Theory of operation. The root is a tmpfs of bounded size, in which every path that the
child may see is mounted at its own place; everything else is not there at all, and
what leads to such a path need not be open to the child. /proc shows the child's PID
namespace; /dev has the devices that hold nothing, and a shm of its own. The store's
files are covered where they lie below a path that can be seen. Then the root is
exchanged (pivot_root), and the former one let go.

Making it takes capabilities, which the child gives up right after. Who may write
where, Landlock says. It knows nothing of modes, owners, times and attributes, which an
ordinary user's child could change on the user's files: so all is mounted read-only but
what is to be written. Nor does it keep a descriptor of a former directory from naming,
marking or connecting to what lies there: such descriptors lead to the view's root from
then on.

The child's directory, `OWN`, is its working directory, HOME and TMPDIR; /tmp leads
there, unless something that the child may see lies below /tmp.
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
    """What is to be seen."""

    mount_point: str
    """A directory to build it on."""
    paths: Sequence[str]
    """Absolute; what does not exist is left out."""
    hidden: Sequence[str] = ()
    """Files and directories that are covered."""
    writable: Sequence[str] = ()
    """Of the paths, or below them: not read-only, and nothing in them is covered."""
    size_bytes: int = 0
    """Of all that is written; 0: half of the machine's memory."""
    uid: int = 0
    """Who makes `OWN`, and may write to /dev/shm."""


def enter(view: View) -> None:
    """Change this process's mount namespace, which must be its own, into the view.

    Its working directory is the root from then on.

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
        # A path that holds the mount point would be shown with the view in it, where
        # nothing is covered.
        _mount(None, root, None, _UNBINDABLE)
        written = [path for path in paths if is_below(path, view.writable)]
        for path in paths:
            if path not in written:
                _show(root, path)
        _make_read_only(root)
        for path in written:
            _show(root, path)
        _open(root, paths, view.writable)
        _mount(None, root, None, _PRIVATE)  # for what is bound out of it from here on
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
    """Return the paths that lie below no other, in order."""
    found: list[str] = []
    for path in sorted({os.path.abspath(path) for path in paths}):  # noqa: PTH100 - no Path
        if not is_below(path, found):
            found.append(path)
    return found


def is_below(path: str, paths: Iterable[str]) -> bool:
    """Say whether a path is one of these, or below one."""
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
    """Put a path of the host, if there is one, into the view, at its own place."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - a str here
    except (OSError, ValueError):
        return  # or it lies where this process cannot look, and so cannot the child
    place = root + path
    is_top = path.count("/") == 1
    if is_top and os.path.islink(path):  # noqa: PTH114 - a str here
        os.symlink(os.readlink(path), place)  # noqa: PTH115, PTH211 - str here: /lib
        return
    _make_place(place, is_directory=stat.S_ISDIR(mode))
    _mount(path, place, None, _BIND | _REC)


def _make_read_only(root: str) -> None:
    """Let nobody change what is mounted below a mount by now, only the mount itself.

    All at once: a call for each of them is a fifth of what the view costs.
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
    """Mount what is to be written once more, where it lies in what is read-only."""
    for path in outermost(writable):
        place = root + path
        if path not in paths and os.path.exists(place):  # noqa: PTH110 - a str here
            _mount(path, place, None, _BIND | _REC)


def _redirect_directories() -> None:
    """Put the new root in the place of every directory that is open."""
    home = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for fd in {int(name) for name in os.listdir("/proc/self/fd")} - {home}:  # noqa: PTH208 - names
        with contextlib.suppress(OSError):  # it was the listing's own
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                os.dup2(home, fd, inheritable=os.get_inheritable(fd))
    os.close(home)


def _make_place(place: str, *, is_directory: bool) -> None:
    """Make what a mount goes on, unless it is there."""
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
    """Make the places where the child may write."""
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
    """Make a directory the root, and let go of the former one."""
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
