"""SqliteStore: the whole Store protocol on one SQLite file."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from jobpool.core.clock import Clock
from jobpool.core.jobs.job import Enqueued, NewJob, Settlement
from jobpool.core.rules.admission import Admission
from jobpool.store.contract.watermark import Mark
from jobpool.store.operations.flows.keeping import FlowKeeping
from jobpool.store.operations.flows.members import Member
from jobpool.store.operations.lease import Leasing
from jobpool.store.operations.operators.alerting import Alerting
from jobpool.store.operations.operators.erase import Erasing
from jobpool.store.operations.operators.operate import Operating
from jobpool.store.operations.producers.admission import Entrance
from jobpool.store.operations.quotas.lanes import ClaimMemory
from jobpool.store.operations.quotas.setting import QuotaSetting
from jobpool.store.operations.runs import RunKeeping
from jobpool.store.operations.schedules.keeping import ScheduleKeeping
from jobpool.store.operations.set_apart.suspects import SuspectKeeping
from jobpool.store.operations.settle import Settling
from jobpool.store.records.runs import CapacityFact
from jobpool.store.sqlite import result_parts, tokens
from jobpool.store.sqlite.caller_connection import caller_transaction, joined
from jobpool.store.sqlite.connection.connect import check_library
from jobpool.store.sqlite.connection.database import (
    BULK_BYTES,
    BULK_MAX_BYTES,
    Database,
)
from jobpool.store.sqlite.connection.location import filesystem_of, prepare
from jobpool.store.sqlite.id_overflow import has_far_numbers, renumber
from jobpool.store.sqlite.queue_depth import DepthGuard
from jobpool.store.statements.moment import Moment
from jobpool.store.statements.parameters import Blobs, as_json
from jobpool.store.statements.session import Session
from jobpool.store.wakeup import Waker

_SYNCHRONOUS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


REWRITTEN_BYTES = 64 * 2**20
"""A file of this size is copied in about a second."""
_MOVED = (
    "rows that SQLite has moved within the file may have left copies in unused parts "
    "of its pages; to overwrite these as well: --rewrite"
)


class SqliteStore(
    FlowKeeping,
    Leasing,
    Settling,
    RunKeeping,
    SuspectKeeping,
    ScheduleKeeping,
    QuotaSetting,
    Operating,
    Erasing,
    Alerting,
):
    """A store in one file. Thread-safe; opens itself again after a fork."""

    _COPY_PAYLOADS = "copy_payloads"
    _DELETIONS = (
        "delete_payloads",
        "delete_results",
        "delete_result_parts",
        "delete_outputs",
        "delete_attempts",
        "delete_debounced",
        "delete_jobs",
    )
    _ERASURES = (
        "erase_payloads",
        "delete_results",
        "delete_result_parts",
        "delete_attempts",
        "delete_outputs",
        "delete_running",
        "delete_debounced",
    )
    _TICK_LIMIT = 10  # Claims wait for a step: it must take no longer than they do.
    _LEFT_OVER = ("prune_draft_parts", "prune_drafts")

    def __init__(
        self,
        path: str,
        *,
        clock: Clock,
        create: bool,
        admission: Admission,
        force_network: bool,
        reader: bool = False,
    ) -> None:
        check_library()
        path = os.path.realpath(path)
        prepare(path, create=create, force_network=force_network)
        self._depth = DepthGuard(admission.stored_max, clock)
        self._entrance = Entrance(admission, clock.monotonic_s)
        self._waker = Waker(run_directory(path))
        self._database = self._file = Database(path, clock, reader=reader)
        self._seen: int | None = None
        self._noted = []
        self._claims = ClaimMemory()
        try:
            self._file.start(create=create)
        except BaseException:
            self._file.close()
            raise

    @property
    def url(self) -> str:
        """See `Store.url`."""
        return f"sqlite:///{self._file.path}"

    @property
    def one_host(self) -> bool:
        """See `Store.one_host`: WAL needs shared memory."""
        return True

    @property
    def run_root(self) -> Path:
        """See `Store.run_root`."""
        return run_directory(self._file.path)

    def interrupt(self) -> None:
        """See `Store.interrupt`."""
        self._file.interrupt()

    def close(self) -> None:
        """See `Store.close`."""
        self._waker.close()
        self._file.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See `Store.transaction`."""
        with self._database.writing():
            yield

    @contextmanager
    def caller_transaction(self, connection: Any) -> Iterator[None]:
        """See `Store.caller_transaction`."""
        with caller_transaction(self._file, connection):
            yield
        self._waker.wake()

    def _joined(self, connection: Any) -> AbstractContextManager[Session]:
        return joined(self._file, connection)

    def _insert(
        self, session: Session, jobs: Sequence[NewJob]
    ) -> list[Enqueued | None]:
        return tokens.insert(session, jobs, self._file.now_ms(session))

    def _insert_members(self, session: Session, members: Sequence[Member]) -> None:
        tokens.insert_members(session, members, self._file.now_ms(session))

    def _store_result(self, session: Session, job_id: int, result: bytes) -> None:
        blobs = Blobs()
        rows = as_json([(job_id, *blobs.add(result))])
        session.run("insert_results", rows=rows, blobs=blobs.joined())

    def _put_payloads(
        self, session: Session, places: Sequence[tuple[Any, ...]], blobs: bytes
    ) -> None:
        session.run("insert_payloads", rows=as_json(places), blobs=blobs)

    def _settle_plain(
        self, session: Session, plain: Sequence[Settlement], now: Moment
    ) -> Sequence[int]:
        return tokens.settle_plain(session, plain, now)

    def _store_results(self, session: Session, accepted: Sequence[Settlement]) -> None:
        tokens.store_results(session, accepted)

    def _lease_jobs(
        self, session: Session, run_id: str, ids: Sequence[int], now_ms: int
    ) -> list[int]:
        return tokens.lease_jobs(session, run_id, ids, now_ms)

    def _compare(self, session: Session, mark: Mark) -> None:
        if self._file.has_older_header():
            mark.known.refuse(session.place, "another file was copied over it")
        super()._compare(session, mark)

    def _raise_counters(self, session: Session, *, tokens: int, last_id: int) -> None:
        session.run("raise_tokens", last=tokens)
        session.run("make_ids")
        session.run("raise_ids_to", last=last_id)

    def scrub(self, after_id: int | None) -> int | None:
        """See `Store.scrub`; ids that leave none for new rows are repaired as well."""
        with self._database.reading() as session:
            is_damaged = has_far_numbers(session)
        if is_damaged:
            with self._database.writing() as session:
                renumber(session, partial(self._set_aside, session, also=("id",)))
        return super().scrub(after_id)

    def changed(self) -> bool:
        """See `Store.changed`."""
        with self._database.reading() as session:
            version: int = session.value("data_version")
        is_new = version != self._seen
        self._seen = version
        return is_new

    def wake(self) -> None:
        """See `Store.wake`."""
        self._waker.wake()

    def store_part(self, settlement: Settlement) -> bool:
        """See `Store.store_part`."""
        with self._database.writing() as session:
            return result_parts.store_part(session, settlement)

    def tidy(self, *, waited_for: bool = False) -> None:
        """See `Store.tidy`."""
        self._file.tidy(BULK_MAX_BYTES if waited_for else BULK_BYTES)

    def capacity(self, memory_bytes: int) -> list[CapacityFact]:
        """See `Store.capacity`."""
        # 4 ms, which only `doctor` needs.
        import socket  # noqa: PLC0415

        from jobpool.store.sqlite.capacity import capacity  # noqa: PLC0415

        runs, host = self.open_runs(), socket.gethostname()
        return list(capacity(self._file, runs, host, memory_bytes))

    def wipe(self, *, rewrite: bool = False) -> list[str]:
        """See `Store.wipe`.

        Connections overwrite what they delete; the log remains, and so may copies of
        rows that SQLite has moved to other pages. Small files are rewritten at once.
        """
        rewrites = rewrite or Path(self._file.path).stat().st_size <= REWRITTEN_BYTES
        if self._file.wipe(rewrite=rewrites):
            return [] if rewrites else [_MOVED]
        held = (
            f"the log {self._file.path}-wal could not be emptied, because another "
            "program reads from it: give the same command again once that has ended"
        )
        return [held]

    def concerns(self) -> list[str]:
        """See `Store.concerns`: `describe` reports all there is."""
        return []

    def describe(self) -> dict[str, str]:
        """See `Store.describe`."""
        path = self._file.path
        with self._database.reading() as session:
            synchronous = session.value("synchronous")
            journal = session.value("journal_mode")
            stale = session.value("counter", name="stale_settlements")
            schema = session.value("schema_version")
        found = Path(path).stat()
        return {
            "path": path,
            "permissions": stat.filemode(found.st_mode),
            "owner": str(found.st_uid),
            "size_bytes": str(found.st_size),
            "filesystem": filesystem_of(path) or "unknown",
            "sqlite_version": sqlite3.sqlite_version,
            "wal_reset_bug": wal_reset_verdict(sqlite3.sqlite_version_info),
            "journal_mode": journal,
            "synchronous": _SYNCHRONOUS.get(synchronous, str(synchronous)),
            "schema_version": str(schema),
            "stale_settlements": str(stale),
        }


def run_directory(path: str) -> Path:
    """Return where the supervisors of a database file keep their run directories."""
    return Path(f"{path}.run")


def wal_reset_verdict(version: tuple[int, ...]) -> str:
    """Say whether a SQLite version can lose pages when it resets its log.

    Source: sqlite.org/wal.html, "The WAL-Reset Bug": fixed in 3.51.3, and in 3.50.7
    and 3.44.6 of the older branches.
    """
    fixed = (
        version >= (3, 51, 3)
        or (3, 50, 7) <= version < (3, 51)
        or (3, 44, 6) <= version < (3, 45)
    )
    if fixed:
        return "not affected"
    return (
        "affected: jobpool's own processes take turns with a lock; do not write to "
        "the file with other programs while supervisors run, or use Python with "
        "SQLite 3.51.3"
    )
