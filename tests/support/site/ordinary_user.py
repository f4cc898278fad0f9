"""Runs pytest as an ordinary user: ``python ordinary_user.py TESTS…``, as root.

Python and this checkout may lie where only root may look (below its home). They stay
where they are, in a mount namespace of this process: what bars the way to them is
covered there by an empty directory that is open to all, with them in it.
"""

import ctypes
import os
import sys
from pathlib import Path

import pytest

NOBODY = 65534
_NEW_NS, _BIND, _REC, _PRIVATE = 0x20000, 4096, 16384, 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)


def called(answer):
    if answer != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def mount(source, place, kind, flags, options=None):
    called(
        _libc.mount(source, str(place).encode(), kind, ctypes.c_ulong(flags), options)
    )


def is_open(path):
    return path.stat().st_mode & 0o005 == 0o005


def clear_the_way(paths):
    """Make directories reachable for everybody; returns nothing that is not."""
    for path in map(Path, dict.fromkeys(map(os.path.realpath, paths))):
        bars = [above for above in reversed(path.parents) if not is_open(above)]
        if not bars:
            continue
        fd = os.open(path, os.O_PATH)
        mount(b"tmpfs", bars[0], b"tmpfs", 0, b"mode=755")
        path.mkdir(parents=True)
        mount(f"/proc/self/fd/{fd}".encode(), path, None, _BIND | _REC)
        os.close(fd)


def become_ordinary():
    """Become the user nobody."""
    called(_libc.unshare(_NEW_NS))
    mount(None, "/", None, _REC | _PRIVATE)
    os.umask(0o022)
    here = Path(__file__).parents[3]
    clear_the_way([sys.base_prefix, sys.prefix, here])
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    called(_libc.prctl(4, 1, 0, 0, 0))  # /proc/self is root's else
    os.environ.update(HOME="/nonexistent", USER="nobody", LOGNAME="nobody")


if __name__ == "__main__":
    become_ordinary()
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
