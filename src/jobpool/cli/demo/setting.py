"""The demo's directory: its plan, its store, its jobs. Everything may be repeated.

Theory of operation. The plan (which files) is written first, by renaming a finished
file into place; then all jobs are stored in one transaction, each under a key. A
demo that is killed anywhere here, and started again on the same directory, finds
the plan and stores what is missing: everything, or nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from jobpool import Handler, JobPool
from jobpool.cli.demo.app import HASH, PARSE, declare
from jobpool.cli.demo.cases import BY_KIND, CASES
from jobpool.cli.demo.hostile import write_bomb
from jobpool.cli.demo.material import Material, find_material
from jobpool.client.handler import BoundHandler
from jobpool.client.options import TEXT_MAX
from jobpool.errors import UsageError

PLAN = "plan.json"
DATABASE = "demo.db"
LOG = "supervisor.log"
FILES_PER_HASH = 20
_MODULES_PER_ROUND = 500
"""All hostile handlers run once for so many modules, at least once in all."""
_ROUNDS_MAX = 3
_APART_S = 0.3
"""Hostile jobs fall due one after the other, further apart when there is more to do."""
_FIRST = 10
"""Priority of hostile jobs: none of them shall wait until the honest are done."""


class Wanted(NamedTuple):
    """One job that the demo has to have."""

    kind: str
    key: str
    arguments: Mapping[str, Any]
    priority: int = 0
    run_in_s: float = 0.0


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A prepared directory."""

    directory: Path
    material: Material
    new_jobs: int
    """Stored just now; 0: all of them were there."""
    jobs: Mapping[int, str]
    """Kind by id."""

    @property
    def store(self) -> str:
        """The store's URL."""
        return store_url(self.directory)

    @property
    def resumed(self) -> bool:
        """Whether an earlier demo has stored the jobs."""
        return self.new_jobs == 0

    def hostile_ids(self) -> list[int]:
        """Return the hostile jobs in the order of their storage."""
        return [job_id for job_id, kind in self.jobs.items() if kind in BY_KIND]


def store_url(directory: Path) -> str:
    """Return the URL of a demo's store."""
    return f"sqlite:///{directory / DATABASE}"


def prepare(directory: Path, limit: int | None) -> Setting:
    """Make or find the plan and all of its jobs.

    Args:
        directory: absolute; empty, or of an earlier demo.
        limit: as for `find_material`; an existing plan stays as it is.

    Raises:
        UsageError: the directory holds something else; nothing was written.
        JobpoolError: the files or the store cannot be used.
    """
    _refuse_foreign(directory)
    plan = directory / PLAN
    try:
        material = msgspec.json.decode(plan.read_bytes(), type=Material)
    except FileNotFoundError:
        material = find_material(limit)
        write_bomb(directory)
        unfinished = directory / f"{PLAN}.new"
        unfinished.write_bytes(msgspec.json.encode(material))
        unfinished.rename(plan)
    jobs, new = _store_jobs(directory, material)
    return Setting(directory=directory, material=material, new_jobs=new, jobs=jobs)


def _refuse_foreign(directory: Path) -> None:
    if (directory / PLAN).exists():
        return
    strange = [
        path.name
        for path in directory.iterdir()
        if not path.name.startswith((PLAN, "bomb.xz"))
    ]
    if strange:
        raise UsageError(
            f"{directory} is neither empty nor the directory of a demo (it holds "
            f"{min(strange)!r}); name another with --dir"
        )


def _store_jobs(directory: Path, material: Material) -> tuple[dict[int, str], int]:
    """Store what is missing; return all ids with their kinds, and how many are new."""
    pool = JobPool(store_url(directory))
    handlers = declare(pool)
    stored: dict[int, str] = {}
    new = 0
    try:
        database = sqlite3.connect(directory / DATABASE, isolation_level=None)
        with contextlib.closing(database), pool.transaction(database):
            for wanted in wanted_jobs(material):
                job = _bound(handlers, wanted, database).enqueue(**wanted.arguments)
                stored[job.id] = wanted.kind
                new += job.created
    finally:
        pool.close()
    return stored, new


def _bound(
    handlers: Mapping[str, Handler[..., Any]],
    wanted: Wanted,
    database: sqlite3.Connection,
) -> BoundHandler[..., Any]:
    return handlers[wanted.kind].options(
        key=wanted.key,
        priority=wanted.priority,
        run_in=wanted.run_in_s or None,
        connection=database,
    )


def wanted_jobs(material: Material) -> Iterator[Wanted]:
    """Yield all jobs: hostile ones fall due while the honest ones run."""
    modules, files = material.modules.paths, material.packages.paths
    rounds = max(1, min(_ROUNDS_MAX, len(modules) // _MODULES_PER_ROUND))
    for place, (turn, case) in enumerate(product(range(rounds), CASES)):
        yield Wanted(
            kind=case.kind,
            key=f"{turn + 1}",
            arguments=case.arguments,
            priority=_FIRST,
            run_in_s=place * _APART_S * rounds,
        )
    for path in modules:
        yield Wanted(PARSE, key_of(path), {"path": path})
    for start in range(0, len(files), FILES_PER_HASH):
        batch = files[start : start + FILES_PER_HASH]
        yield Wanted(HASH, key_of(batch[0]), {"paths": batch})


def key_of(path: str) -> str:
    """Return a path's key: itself, or its checksum where it is too long for one."""
    if len(path) <= TEXT_MAX:
        return path
    return hashlib.sha256(path.encode()).hexdigest()
