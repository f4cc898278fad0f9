"""A store restored from a backup: how far it had come, and where it goes on."""

from __future__ import annotations

from abc import ABC, abstractmethod

from jobpool.core.rules.repairs.restoring import TOKENS_MAX
from jobpool.errors import StoreRefused
from jobpool.store.records.reading import UnfinishedRow
from jobpool.store.records.runs import Position
from jobpool.store.statements.rows import records
from jobpool.store.statements.session import Database, Session


class Restoring(ABC):
    """The part of the store that makes a restored one usable."""

    _database: Database

    @abstractmethod
    def _raise_counters(self, session: Session, *, tokens: int, last_id: int) -> None:
        """Let tokens and ids continue after these; neither is ever lowered."""

    def clock_ms(self) -> int:
        """See `Store.clock_ms`."""
        with self._database.reading() as session:
            return self._database.now_ms(session)

    def position(self) -> Position:
        """See `Store.position`."""
        with self._database.reading() as session:
            now_ms = self._database.now_ms(session)
            ((newest_ms, tokens, last_id, newest_id, restores),) = session.rows(
                "position"
            )
        if not isinstance(tokens, int) or not 0 <= tokens <= TOKENS_MAX:
            raise StoreRefused(
                f"the source of tokens in {session.place} is missing or damaged "
                f"(expected 0 to {TOKENS_MAX}); use another backup. Nothing was changed"
            )
        return Position(
            now_ms=now_ms,
            newest_ms=newest_ms if isinstance(newest_ms, int) else None,
            tokens=tokens,
            last_id=last_id or 0,
            newest_id=newest_id or 0,
            restores=restores if isinstance(restores, int) else 0,
        )

    def unfinished(self) -> list[UnfinishedRow]:
        """See `Store.unfinished`."""
        with self._database.reading() as session:
            now_ms = self._database.now_ms(session)
            return records(
                UnfinishedRow, session.rows("unfinished_kinds", now_ms=now_ms)
            )

    def begin_anew(self, *, tokens: int, last_id: int) -> None:
        """See `Store.begin_anew`."""
        with self._database.writing() as session:
            self._raise_counters(session, tokens=tokens, last_id=last_id)
            session.run("count_restore")
