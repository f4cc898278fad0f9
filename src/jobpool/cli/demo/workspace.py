"""The demo's directory: a store, its jobs, and the files that they work through.

Nobody here wrote these files: they are Python's own library and the installed
packages. Which ones, and in which order, can be repeated with ``find`` and ``sort``:
that is what makes the demo's totals checkable.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sysconfig
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from jobpool import Handler, JobPool
from jobpool.cli.demo.app import HASH, PARSE, declare
from jobpool.cli.demo.cases import CASES
from jobpool.cli.demo.handlers import write_bomb
from jobpool.cli.demo.place import check_empty
from jobpool.client.handler import Call
from jobpool.errors import JobpoolError

LOG = "supervisor.log"
FILES_PER_HASH = 20
_PACKAGE_FILES = 5000
"""So many files of installed packages are hashed unless told otherwise."""
_APART_S = 0.5
"""Hostile jobs fall due one after the other, while the honest ones run."""
_FIRST = 10
"""Priority of hostile jobs: none of them shall wait until the honest are done."""
_CACHE = "__pycache__"
_LIBRARY_SKIPS = (_CACHE, "dist-packages", "site-packages")


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """Some files, and the command that lists the same."""

    paths: tuple[str, ...]
    command: str
    """Prints the paths, one a line, in this order."""


class Workspace(msgspec.Struct, frozen=True, kw_only=True):
    """A prepared directory."""

    directory: Path
    modules: Files
    packages: Files
    hostile_ids: tuple[int, ...]
    jobs: int
    """Stored in all."""

    @property
    def store(self) -> str:
        """The store's URL."""
        return store_url(self.directory)


def store_url(directory: Path) -> str:
    """Return the URL of a demo's store."""
    return f"sqlite:///{directory / 'demo.db'}"


def prepare(directory: Path, limit: int | None) -> Workspace:
    """Write the bomb and store all jobs.

    Args:
        directory: absolute.
        limit: at most so many modules, and so many package files; None: all
            modules, and `_PACKAGE_FILES`.

    Raises:
        UsageError: the directory is not empty; nothing was written.
        JobpoolError: the files or the store cannot be used.
    """
    check_empty(directory)
    library = os.path.realpath(sysconfig.get_path("stdlib"))
    modules = _files([library], _LIBRARY_SKIPS, suffix=".py", limit=limit)
    if not modules.paths:
        raise JobpoolError(
            f"there is no readable .py file in {library}, where this Python says "
            "that its standard library is; run the demo with an ordinary Python"
        )
    installed = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    packages = _files(
        sorted({os.path.realpath(path) for path in installed}),
        (_CACHE,),
        suffix="",
        limit=limit or _PACKAGE_FILES,
    )
    write_bomb(directory)
    with contextlib.closing(JobPool(store_url(directory))) as pool:
        handlers = declare(pool)
        hostile = tuple(
            handlers[case.kind]
            .options(priority=_FIRST, run_in=place * _APART_S or None)
            .enqueue(**case.arguments)
            .id
            for place, case in enumerate(CASES)
        )
        honest = pool.enqueue_many(honest_jobs(handlers, modules, packages))
    return Workspace(
        directory=directory,
        modules=modules,
        packages=packages,
        hostile_ids=hostile,
        jobs=len(hostile) + honest,
    )


def honest_jobs(
    handlers: Mapping[str, Handler[..., Any]], modules: Files, packages: Files
) -> Iterator[Call[Any]]:
    """Yield a job for each module, and one for each batch of package files."""
    for path in modules.paths:
        yield handlers[PARSE].call(path)
    for start in range(0, len(packages.paths), FILES_PER_HASH):
        batch = packages.paths[start : start + FILES_PER_HASH]
        yield handlers[HASH].call(list(batch))


def _files(
    roots: Collection[str], skips: Collection[str], *, suffix: str, limit: int | None
) -> Files:
    found = sorted(
        (path for root in roots for path in _walk(root, skips, suffix)),
        key=os.fsencode,
    )
    is_cut = limit is not None and len(found) > limit
    return Files(
        paths=tuple(islice(filter(is_readable, found), limit)),
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


def is_readable(path: str) -> bool:
    """Say whether a path can be read, and be printed on a line of its own."""
    if not path.isprintable() or "\\" in path:
        return False  # sha256sum writes these in another way
    return os.access(path, os.R_OK)


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
