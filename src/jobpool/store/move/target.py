"""The target of a move: jobs are staged, then published all at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg

from jobpool.errors import StoreRefused
from jobpool.store.postgres.connection.database import Database
from jobpool.store.postgres.connection.errors import explain
from jobpool.store.postgres.connection.session import Session, queries_of
from jobpool.store.postgres.connection.url import read_address
from jobpool.store.statements.session import Row

PATIENCE_S = 3600.0
"""The last transaction runs several long statements."""


class Target:
    """A PostgreSQL queue that another one is moved into.

    Args:
        url: of the store; its tables are created or brought up to date.
    """

    def __init__(self, url: str) -> None:
        address = read_address(url)
        self.url = address.shown
        self._schema = address.schema
        self._server = Database(address, None, PATIENCE_S)
        try:
            self._server.start(create=True)
        except BaseException:
            self._server.close()
            raise

    def close(self) -> None:
        """Give the connection back."""
        self._server.close()

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """Begin a transaction that excludes other moves into this schema."""
        with self._server.writing() as session:
            session.run("move_unbounded")
            session.run("move_lock", schema=self._schema)
            yield session

    def is_done(self, session: Session, move_id: int) -> bool:
        """Say whether a move has been committed here."""
        return session.value("counter", name=_done(move_id)) is not None

    def prepare(self, move_id: int, source: str, last_id: int, tokens: int) -> bool:
        """Create the staging tables, and keep the source's ids from being given out.

        Returns:
            False: the move is already done.

        Raises:
            StoreRefused: another source's jobs are staged here.
        """
        with self.transaction() as session:
            if self.is_done(session, move_id):
                return False
            session.run("move_stage_notes")
            staged = session.rows("move_note")
            if staged and staged[0][1] != source:
                raise StoreRefused(
                    f"a move from {staged[0][1]} to {self.url} has begun; finish it, "
                    f"or abandon it with `jobpool move --from {staged[0][1]} --to "
                    f"{self.url} --abandon`"
                )
            if staged and staged[0][0] != move_id:  # An earlier move was abandoned.
                session.run("move_unstage")
                session.run("move_stage_notes")
                staged = []
            session.run("move_stage_jobs")
            session.run("move_stage_attempts")
            if not staged:
                session.run("move_write_note", id=move_id, source=source)
            if last_id:
                session.run("move_raise_ids", last=last_id)
            if tokens:  # Both counters are the part above a token's random bits.
                session.run("move_raise_tokens", last=tokens)
        return True

    def staged_to(self, session: Session, move_id: int) -> int:
        """Return the highest staged id.

        Raises:
            StoreRefused: the staging tables no longer belong to this move.
        """
        ((_, is_there),) = session.rows(
            "has_schema", schema=self._schema, table="moving"
        )
        staged = session.rows("move_note") if is_there else []
        if not staged or staged[0][0] != move_id:
            raise StoreRefused(f"the move to {self.url} was ended by another call")
        highest: int = session.value("move_staged_to")
        return highest

    def unstage(self, source: str) -> None:
        """Drop the staging tables, if they are this source's."""
        with self.transaction() as session:
            session.run("move_stage_notes")
            staged = session.rows("move_note")
            if not staged or staged[0][1] == source:
                session.run("move_unstage")


def put(session: Session, name: str, rows: Sequence[Row]) -> None:
    """Run a statement for each row.

    Raises:
        StoreError: it failed; the transaction has failed too.
    """
    try:
        with session.connection.cursor() as cursor:
            cursor.executemany(queries_of(session.schema)[name].encode(), rows)
    except psycopg.Error as error:
        raise explain(error, session.place) from error


def take_schedules(
    session: Session, schedules: Sequence[Row], ticks: Sequence[Row]
) -> None:
    """Store schedules and their ticks.

    Raises:
        StoreRefused: the target has schedules of its own; nothing was changed.
        StoreError: it failed; the transaction has failed too.
    """
    if not schedules and not ticks:
        return
    if session.value("move_has_schedules"):
        raise StoreRefused(
            f"{session.place} already has schedules, perhaps under the same numbers; "
            "move into another schema (?schema=…); nothing was changed there"
        )
    put(session, "move_take_schedule", schedules)
    put(session, "move_take_tick", ticks)
    session.rows("move_raise_schedules")
    session.rows("move_raise_ticks")


def take(session: Session, move_id: int, jobs: int, stale: int) -> None:
    """Publish the staged jobs and their history.

    Raises:
        StoreRefused: the target has jobs with such ids or keys; nothing was changed.
    """
    session.run("move_index_staged")
    session.run("move_analyze_staged")
    if hits := session.value("move_collisions"):
        raise StoreRefused(
            f"{hits} jobs have ids or keys that jobs in {session.place} already have; "
            "move into another schema (?schema=…); nothing was changed there"
        )
    session.run("move_take_jobs")
    session.run("move_take_attempts")
    session.run("count_stale", stale=stale)
    session.run("move_done", name=_done(move_id), jobs=jobs)


def _done(move_id: int) -> str:
    return f"moved_{move_id}"


def take_flows(
    session: Session, flows: Sequence[Row], steps: Sequence[Row], edges: Sequence[Row]
) -> None:
    """Store flows, their steps and their edges.

    Raises:
        StoreRefused: the target has flows of its own; nothing was changed.
    """
    if not flows and not steps:
        return
    if session.value("move_has_flows"):
        raise StoreRefused(
            f"{session.place} already has flows, perhaps under the same numbers; move "
            "to another database or schema"
        )
    put(session, "move_take_flow", flows)
    put(session, "move_take_flow_step", steps)
    put(session, "move_take_flow_edge", edges)
    session.run("move_note_flow_steps")
    session.rows("move_raise_flows")
    session.rows("move_raise_flow_steps")
