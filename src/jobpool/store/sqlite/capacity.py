"""What a SQLite file still has room for, and whether the queue has outgrown it."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from jobpool.core.units import show_size
from jobpool.errors import JobpoolError, StoreUnavailable
from jobpool.store.records.runs import CapacityFact, Run
from jobpool.store.sqlite.connection.database import Database
from jobpool.store.sqlite.connection.location import REMOTE, filesystem_of
from jobpool.store.sqlite.connection.session import Session

INDEX_S_MAX = 2.0
"""For the sizes of indexes: the pages of a large file take longer to read."""
LOG_BYTES_MAX = 256 * 2**20
SYNCS = 10
SYNC_S_MAX = 0.02
LOOKS = 50
LOOK_EVERY_S = 0.01
HELD_S = 0.0003
"""A lock that is free is taken sooner."""
HELD_SHARE_MAX = 0.6
_PAGE = b"\0" * 4096
_SHOWN = 5
_STEPS = 10_000
"""Of SQLite's machine, between two looks at the time."""


def capacity(
    file: Database, runs: list[Run], host: str, memory_bytes: int
) -> Iterator[CapacityFact]:
    """Yield what the file has room for, and at last whether it is still the right one.

    Args:
        file: the store's.
        runs: the open ones.
        host: this one's name.
        memory_bytes: what this machine has.
    """
    path = Path(file.path)
    size_bytes = path.stat().st_size
    yield _files(path, size_bytes)
    with file.reading() as session:
        indexes = _indexes(session)
    yield indexes
    yield _commit(path.parent)
    lock = _writers_lock(file)
    yield lock
    yield _outgrown(
        (
            _of_lock(lock.figures["held_share"]),
            _of_memory(indexes.figures, size_bytes, memory_bytes),
            _of_hosts(file.path, runs, host),
        )
    )


def _files(path: Path, size_bytes: int) -> CapacityFact:
    log = Path(f"{path}-wal")
    log_bytes = log.stat().st_size if log.exists() else 0
    return CapacityFact(
        name="files",
        seen=f"{show_size(size_bytes)}, and a log of {show_size(log_bytes)}",
        concern=f"expected a log of at most {show_size(LOG_BYTES_MAX)}: a reader keeps "
        "a transaction open, so that SQLite cannot shorten it; end it (lslocks)"
        if log_bytes > LOG_BYTES_MAX
        else None,
        figures={"file_bytes": size_bytes, "log_bytes": log_bytes},
    )


def _indexes(session: Session) -> CapacityFact:
    if not session.value("has_dbstat"):
        return CapacityFact(
            name="indexes", seen="unknown: this SQLite was built without dbstat"
        )
    names = [name for (name,) in session.rows("indexes")]
    sizes: dict[str, int] = dict(_sizes_within(session, names, INDEX_S_MAX))
    figures = {name: float(size) for name, size in sizes.items()}
    largest = sorted(sizes.items(), key=lambda one: -one[1])[:_SHOWN]
    shown = ", ".join(f"{name} {show_size(size)}" for name, size in largest)
    if len(sizes) < len(names):
        return CapacityFact(
            name="indexes",
            seen=f"{len(sizes)} of {len(names)} read in {INDEX_S_MAX:g} s: {shown}",
        )
    figures["bytes"] = float(sum(sizes.values()))
    total = show_size(sum(sizes.values()))
    return CapacityFact(
        name="indexes", seen=f"{total} in all: {shown}", figures=figures
    )


def _sizes_within(
    session: Session, names: list[str], s_max: float
) -> Iterator[tuple[str, int]]:
    """Yield names with their sizes, as many as can be read in time."""
    until_s = time.monotonic() + s_max
    connection = session.connection
    connection.set_progress_handler(lambda: time.monotonic() > until_s, _STEPS)
    try:
        for name in names:
            try:
                yield name, int(session.value("bytes_of", name=name) or 0)
            except JobpoolError:
                if time.monotonic() <= until_s:
                    raise
                return
    finally:
        connection.set_progress_handler(None, 0)


def _commit(directory: Path) -> CapacityFact:
    """Measure what a commit waits for: a page on the disk, beside the database."""
    took_s = []
    try:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            for _ in range(SYNCS):
                began_s = time.perf_counter()
                file.write(_PAGE)
                os.fdatasync(file.fileno())
                took_s.append(time.perf_counter() - began_s)
    except OSError as exc:
        raise StoreUnavailable(
            f"nothing can be written to {directory} ({exc.strerror}), where the store "
            "is: no job is stored, and no result; make room, or let this user write "
            "there"
        ) from exc
    median_s, worst_s = statistics.median(took_s), max(took_s)
    return CapacityFact(
        name="commit",
        seen=f"a page is on the disk after {_ms(median_s)} (at worst {_ms(worst_s)}), "
        "measured on a file of its own",
        concern=f"expected at most {_ms(SYNC_S_MAX)}: every commit waits for that; use "
        "a faster disk, and enqueue in bulk"
        if median_s > SYNC_S_MAX
        else None,
        figures={"sync_s": median_s, "sync_max_s": worst_s},
    )


def _writers_lock(file: Database) -> CapacityFact:
    """Ask for the writers' lock at moments that no writer knows; write nothing."""
    waited_s = []
    for _ in range(LOOKS):
        time.sleep(LOOK_EVERY_S)
        began_s = time.perf_counter()
        with file.writers.held():
            waited_s.append(time.perf_counter() - began_s)
    share = sum(one > HELD_S for one in waited_s) / LOOKS
    mean_s, worst_s = statistics.fmean(waited_s), max(waited_s)
    return CapacityFact(
        name="writers_lock",
        seen=f"taken {share:.0%} of the time, in {LOOKS} looks; a writer waits "
        f"{_ms(mean_s)} for its turn (at worst {_ms(worst_s)})",
        figures={"held_share": share, "wait_s": mean_s, "wait_max_s": worst_s},
    )


def _of_lock(share: float) -> str:
    if share <= HELD_SHARE_MAX:
        return ""
    return (
        f"its one lock for writers is taken {share:.0%} of the time (expected at most "
        f"{HELD_SHARE_MAX:.0%}), so that all others mostly wait"
    )


def _of_memory(indexes: dict[str, float], size_bytes: int, memory_bytes: int) -> str:
    index_bytes = round(indexes.get("bytes", 0.0))
    if index_bytes > memory_bytes:
        return (
            f"its indexes ({show_size(index_bytes)}) are larger than the memory here "
            f"({show_size(memory_bytes)}), so that a claim reads from the disk"
        )
    if not index_bytes and size_bytes > memory_bytes:
        return (
            f"the file ({show_size(size_bytes)}) is larger than the memory here "
            f"({show_size(memory_bytes)}), and its indexes may be"
        )
    return ""


def _of_hosts(path: str, runs: list[Run], host: str) -> str:
    if (kind := filesystem_of(path)) in REMOTE:
        return (
            f"it lies on a file system for several machines ({kind}), where its locks "
            "do not hold"
        )
    if others := sorted({run.host for run in runs} - {host}):
        return f"supervisors of other hosts are open in it ({', '.join(others)})"
    return ""


def _outgrown(reasons: tuple[str, ...]) -> CapacityFact:
    found = [reason for reason in reasons if reason]
    return CapacityFact(
        name="sqlite",
        seen="outgrown" if found else "is enough for this queue",
        concern=f"{'; '.join(found)}. Keep fewer finished jobs ([retention]), or move "
        "to PostgreSQL: jobpool move --to postgresql://…"
        if found
        else None,
        figures={"outgrown": float(bool(found))},
    )


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.2f}ms"
