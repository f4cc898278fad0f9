"""The files that the demo works through: nobody here wrote them.

Which files these are, and in which order, can be repeated with ``find`` and
``sort``: that is what makes the demo's totals checkable.
"""

from __future__ import annotations

import os
import shlex
import sysconfig
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from pathlib import Path

import msgspec

from jobpool.errors import JobpoolError

PACKAGE_FILES = 5000
"""So many files of installed packages are hashed unless told otherwise."""
_CACHE = "__pycache__"
_LIBRARY_SKIPS = (_CACHE, "dist-packages", "site-packages")
_PACKAGE_SKIPS = (_CACHE,)


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """Some files, and the command that lists the same."""

    roots: tuple[str, ...]
    paths: tuple[str, ...]
    command: str
    """Prints the paths, one a line, in this order."""


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the demo works through."""

    modules: Files
    packages: Files


def find_material(limit: int | None) -> Material:
    """Find the standard library's modules and the installed packages' files.

    Args:
        limit: at most so many modules, and so many package files; None: all
            modules, and `PACKAGE_FILES`.

    Raises:
        JobpoolError: this Python has no readable standard library.
    """
    library = (os.path.realpath(sysconfig.get_path("stdlib")),)
    installed = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    modules = _files(library, _LIBRARY_SKIPS, suffix=".py", limit=limit)
    if not modules.paths:
        raise JobpoolError(
            f"there is no readable .py file in {library[0]}, where this Python says "
            "that its standard library is; run the demo with an ordinary Python"
        )
    packages = _files(
        tuple(sorted({os.path.realpath(path) for path in installed})),
        _PACKAGE_SKIPS,
        suffix="",
        limit=PACKAGE_FILES if limit is None else limit,
    )
    return Material(modules=modules, packages=packages)


def _files(
    roots: tuple[str, ...], skips: Collection[str], *, suffix: str, limit: int | None
) -> Files:
    found = sorted(
        (path for root in roots for path in _walk(root, skips, suffix)),
        key=os.fsencode,
    )
    is_cut = limit is not None and len(found) > limit
    paths = tuple(islice(filter(is_readable, found), limit))
    return Files(
        roots=roots,
        paths=paths,
        command=list_command(
            roots, skips, suffix=suffix, limit=limit if is_cut else None
        ),
    )


def _walk(root: str, skips: Collection[str], suffix: str) -> Iterator[str]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in skips]
        for name in names:
            path = os.path.join(folder, name)  # noqa: PTH118 - ten thousand of them
            if name.endswith(suffix) and not os.path.islink(path):  # noqa: PTH114 - as above
                yield path


def is_readable(path: str, opened: Callable[[str], object] | None = None) -> bool:
    """Say whether a path can be read, and be printed on a line of its own.

    Args:
        path: the path.
        opened: tries to open it; None: really.
    """
    if not path.isprintable() or "\\" in path:
        return False  # sha256sum writes these in another way
    try:
        (opened or _open)(path)
    except OSError:
        return False
    return True


def _open(path: str) -> None:
    with Path(path).open("rb"):
        pass


def list_command(
    roots: Collection[str], skips: Collection[str], *, suffix: str, limit: int | None
) -> str:
    """Return the shell command that prints the same paths in the same order."""
    pruned = " -o ".join(f"-name {name}" for name in skips)
    group = f"\\( {pruned} \\)" if len(skips) > 1 else pruned
    where = " ".join(shlex.quote(root) for root in roots)
    named = f" -name '*{suffix}'" if suffix else ""
    # -mindepth 1: the root itself may be called site-packages.
    command = f"find {where} -mindepth 1 {group} -prune -o -type f{named} -print"
    command += " | LC_ALL=C sort"
    return command if limit is None else f"{command} | head -n {limit}"
