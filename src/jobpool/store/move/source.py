"""The source of a move: a SQLite queue that is closed for good, then read."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from jobpool.core.clock import SystemClock
from jobpool.core.rules.schedules.schedule import TickState
from jobpool.errors import StoreRefused
from jobpool.store.move.portable_rows import JOB_LATER, RowFitter, readable, split
from jobpool.store.sqlite.connection.database import Database
from jobpool.store.sqlite.connection.session import Session
from jobpool.store.statements import integrity
from jobpool.store.statements.formats import format_from
from jobpool.store.statements.named_sql import load_script
from jobpool.store.statements.session import Row
from jobpool.store.statements.validation import ID_MAX

CHUNK = 1000
"""Jobs that are staged in one transaction."""
_CLOSING = load_script("sqlite", "scripts", "move_close.sql")
COPYING, COMMITTING, DONE = range(3)
_UNENDED = (TickState.BUFFERED, TickState.OPEN)
_OPENINGS = (
    "move_open_enqueue",
    "move_open_change",
    "move_open_prune",
    "move_open_run",
    "move_open_pause",
    "move_open_resume",
    "move_open_flow",
    "move_open_flow_change",
    "move_drop_note",
)


class Note(NamedTuple):
    """What the source has recorded about its move."""

    id: int
    address: str
    step: int


class Source:
    """A SQLite queue that is being moved.

    Args:
        path: the file; it exists and holds a queue.

    Attributes:
        fitter: repairs its rows for the target; set by `close_queue`.
    """

    fitter: RowFitter

    def __init__(self, path: str) -> None:
        self.url = f"sqlite:///{path}"
        self._file = Database(path, SystemClock())
        self._file.start(create=False)

    def close(self) -> None:
        """Give the connection back."""
        self._file.close()

    def note(self) -> Note | None:
        """Return what the source has recorded about its move; None: none has begun."""
        with self._file.reading() as session:
            return _note(session)

    def close_queue(self, address: str) -> Note:
        """Close the queue to all writes, unless it is closed already.

        Args:
            address: the target's URL without a password.

        Raises:
            StoreRefused: a run is open, or the queue is being moved elsewhere.
        """
        with self._file.writing() as session:
            note = _note(session)
            if note is None:
                self._check_idle(session)
                session.run("move_make_note")
                session.run("move_write_note", id=secrets.randbits(62), address=address)
                for statement in _closings(address):
                    session.connection.execute(statement)
                note = _note(session)
            # Before the commit: an error after it would claim that nothing happened.
            moment_ms = session.value("move_moment")
        if note is None or note.address != address:
            raise StoreRefused(
                f"the queue {self.url} is being moved to {note and note.address}, not "
                f"to {address}; continue with that, or abandon it first with `jobpool "
                f"move --from {self.url} --abandon`"
            )
        self.fitter = RowFitter(moment_ms)
        return note

    @contextmanager
    def _reading(self) -> Iterator[Session]:
        """Use the connection for rows; bytes that are not UTF-8 become surrogates."""
        with self._file.reading() as session:
            usual = session.connection.text_factory
            session.connection.text_factory = _decoded
            try:
                yield session
            finally:
                session.connection.text_factory = usual

    def step(self, note: Note, step: int) -> None:
        """Record how far the move has come.

        Raises:
            StoreRefused: another call has abandoned it.
        """
        with self._file.writing() as session:
            if _note(session) is None or not session.run(
                "move_step", id=note.id, step=step
            ):
                raise StoreRefused(
                    f"the move of {self.url} was abandoned in the meantime; start it "
                    "again"
                )

    def reopen(self) -> None:
        """Open the queue to writes again: the move was abandoned."""
        with self._file.writing() as session:
            for name in _OPENINGS:
                session.run(name)

    def chunks(self, after: int = -ID_MAX - 1) -> Iterator[tuple[int, int]]:
        """Yield ranges of ids, each excluding its first and including its last."""
        while True:
            with self._file.reading() as session:
                last = session.value("move_chunk_end", after=after, limit=CHUNK)
            if last is None:
                return
            yield after, last
            after = last

    def jobs(self, after: int, last: int) -> list[Row]:
        """Return the jobs of a range, repaired."""
        with self._reading() as session:
            rows = session.rows("move_jobs", after=after, last=last)
        return self.fitter.jobs(rows)

    def attempts(self, after: int, last: int) -> list[Row]:
        """Return the attempts of a range, repaired; the first column is their id."""
        with self._reading() as session:
            rows = session.rows("move_attempts", after=after, last=last)
        return self.fitter.attempts(rows)

    def outputs(self, after: int, last: int) -> list[Row]:
        """Return the outputs of successful attempts of a range, if readable."""
        with self._reading() as session:
            rows = session.rows("move_outputs", after=after, last=last)
        return readable(integrity.OUTPUT, rows)

    def jobs_later(self, after: int, last: int) -> list[Row]:
        """Return ids, and what few jobs of a range use: `portable_rows.JOB_LATER`."""
        with self._reading() as session:
            rows = session.rows("move_jobs_later", after=after, last=last)
        return [
            (*head, *later[:-1], None if later[-1] is None else bool(later[-1]))
            for head, later in split(rows, JOB_LATER)
            if any(value is not None for value in later)
        ]

    def states(self) -> dict[str, int]:
        """Count the jobs by state."""
        with self._file.reading() as session:
            rows = session.rows("move_states")
        return {str(state): jobs for state, jobs in rows}

    def runs_kinds_and_pauses(self) -> tuple[list[Row], list[Row], list[Row]]:
        """Return runs, kinds and pauses."""
        with self._reading() as session:
            return (
                self.fitter.runs(session.rows("move_runs")),
                readable(integrity.KIND, session.rows("move_kinds")),
                readable(integrity.PAUSE, session.rows("raw_pauses")),
            )

    def suspects_and_breakers(self) -> tuple[list[Row], list[Row], list[Row]]:
        """Return suspects, misfits and circuit breakers."""
        with self._reading() as session:
            return (
                readable(integrity.SUSPECT, session.rows("move_suspects")),
                readable(integrity.MISFIT, session.rows("move_misfits")),
                readable(integrity.BREAKER, session.rows("move_breakers")),
            )

    def debounced(self) -> list[Row]:
        """Return how jobs share their unique texts with others."""
        with self._reading() as session:
            return readable(integrity.DEBOUNCED, session.rows("move_debounced"))

    def quotas_and_tenants(self) -> tuple[list[Row], list[Row]]:
        """Return what operators have set."""
        with self._reading() as session:
            return (
                readable(integrity.QUOTA, session.rows("raw_quotas")),
                readable(integrity.TENANT, session.rows("raw_tenants")),
            )

    def audit_and_sketches(self) -> tuple[list[Row], list[Row]]:
        """Return what people have done, and what attempts have used."""
        with self._reading() as session:
            return (
                readable(integrity.AUDIT, session.rows("move_audit")),
                readable(integrity.SKETCH, session.rows("move_sketches")),
            )

    def schedules_and_ticks(self) -> tuple[list[Row], list[Row]]:
        """Return schedules and their ticks, under their numbers."""
        with self._reading() as session:
            return (
                readable(integrity.SCHEDULE, session.rows("move_schedules")),
                [
                    row
                    for row in readable(integrity.TICK, session.rows("move_ticks"))
                    if (row[7] is None) == (row[4] in _UNENDED)
                ],
            )

    def flows(self) -> tuple[list[Row], list[Row], list[Row]]:
        """Return flows, their steps and their edges, under their numbers, repaired."""
        with self._reading() as session:
            heads = session.rows("move_flows")
            steps = session.rows("move_flow_steps")
            edges = session.rows("move_flow_edges")
        return self.fitter.flows(heads, steps, edges)

    def meta(self) -> list[Row]:
        """Return the names and values that the target takes over as they are."""
        with self._file.reading() as session:
            rows = session.rows("move_meta")
        return [row for row in rows if isinstance(row[1], int)]

    def least_format(self) -> int:
        """Return the least format that may lease these jobs."""
        with self._file.reading() as session:
            return format_from(session.value("counter", name="min_format"))

    def counters(self) -> tuple[int, int, int]:
        """Return the last id, the last token, and the number of stale settlements."""
        with self._file.reading() as session:
            return (
                session.value("move_last_id") or 0,
                session.value("counter", name="tokens") or 0,
                session.value("counter", name="stale_settlements") or 0,
            )

    def _check_idle(self, session: Session) -> None:
        if runs := session.rows("open_runs"):
            raise StoreRefused(
                f"run {runs[0][0]} (pid {runs[0][3]} on {runs[0][1]}) is open in "
                f"{self.url}; stop that supervisor first, or, if it is dead, run "
                f"`jobpool reclaim {runs[0][0]}`"
            )


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _note(session: Session) -> Note | None:
    if not session.value("move_has_note"):
        return None
    return next((Note(*row) for row in session.rows("move_note")), None)


def _closings(address: str) -> list[str]:
    text = _CLOSING.replace("ADDRESS", address.replace("'", "''"))
    _, *statements = text.split("\n\n")
    return statements
