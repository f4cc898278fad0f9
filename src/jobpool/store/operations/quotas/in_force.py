"""What is in force, as it is stored: compiled once for each version of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, NamedTuple

import msgspec

from jobpool.core.formats import QUOTAS
from jobpool.core.rules.quotas.rules import Pause, Rules, rules
from jobpool.errors import FeatureHeldBack
from jobpool.store.records.runs import Formats
from jobpool.store.statements.formats import format_from
from jobpool.store.statements.limits import (
    overrides_from,
    published_from,
    tenants_from,
)
from jobpool.store.statements.session import Database, OwnSession, Session

LIVING_MS = 60_000
"""Where leases expire by time, what a run has published counts until its own ran out so
long ago."""
CHANGE_MAX = 10_000
"""Lanes, and buckets, that are looked at again as soon as something changes; others are
when their time comes, or with the recount."""
_GONE_AGAIN_MS = 1000
"""A run that was taken to be gone and comes back counts again after so long; for
itself, at once."""
_FOREVER_MS = 2**62
_LEASE_UNTIL = 5
"""The place of that column of published_limits."""


class InForce(NamedTuple):
    """What a store object knows to be in force."""

    version: object
    """`limits_version`, when it was read."""
    rules: Rules
    is_granted: bool
    """Every run that may lease knows quotas; until then, no laned kind is leased."""
    until_ms: int
    """When it must be read again, even if nothing has changed."""
    gone: frozenset[str] = frozenset()
    """Runs that were taken to be gone; any may come back, and counts again."""

    def is_current(self, version: object, now_ms: int, run_id: str = "") -> bool:
        """Say whether it need not be read again, for a run that is living."""
        is_known = version == self.version and now_ms < self.until_ms
        return is_known and run_id not in self.gone


NOTHING = InForce(None, rules((), now_ms=0), is_granted=True, until_ms=_FOREVER_MS)
"""Before anything was read."""


class Governing:
    """The part of the store that knows what is in force."""

    _database: Database
    _in_force: InForce = NOTHING
    formats: Callable[[], Formats]
    """See `Store.formats`."""
    require: Callable[[int], None]
    """See `Store.require`."""
    _LEASES_LAPSE: ClassVar[bool] = False
    """A run whose lease has run out may be gone for good."""

    def _read_in_force(
        self, session: OwnSession, version: object, now_ms: int
    ) -> InForce:
        """Read and compile what is in force.

        Args:
            session: within the transaction that has read the version.
            version: `limits_version`; 0: nothing has ever been published or set.
            now_ms: the store's clock.
        """
        if version == 0:
            return NOTHING._replace(version=0)
        limits, needs, overrides, tenants, pauses, least = session.ask(
            ("published_limits", {}),
            ("published_needs", {}),
            ("raw_quotas", {}),
            ("raw_tenants", {}),
            ("quota_pauses", {"now_ms": now_ms}),
            ("formats", {}),
        )
        ends: list[int] = []
        gone: set[str] = set()
        if self._LEASES_LAPSE:
            saying = {row[0] for row in needs} | {row[0] for row in limits if row[-1]}
            until = {row[0]: row[_LEASE_UNTIL] + LIVING_MS for row in limits}
            gone = {run for run in saying if until.get(run, 0) <= now_ms}
            ends = [until[run] for run in saying - gone]
            limits = [row for row in limits if row[0] not in gone]
        compiled = rules(
            published_from(limits, needs),
            overrides_from(overrides),
            tenants_from(tenants),
            [Pause(what=w, name=n, until_ms=u, note=t) for w, n, u, t in pauses],
            now_ms=now_ms,
            version=version if isinstance(version, int) else 0,
        )
        if gone:
            ends.append(now_ms + _GONE_AGAIN_MS)
        if compiled.until_ms is not None:
            ends.append(compiled.until_ms)
        return InForce(
            version,
            compiled,
            is_granted=format_from(least[0][0]) >= QUOTAS,
            until_ms=min(ends, default=_FOREVER_MS),
            gone=frozenset(gone),
        )

    def _current(self, session: OwnSession, now_ms: int) -> InForce:
        """Return what is in force now."""
        version = session.value("limits_version")
        if not self._in_force.is_current(version, now_ms):
            self._in_force = self._read_in_force(session, version, now_ms)
        return self._in_force

    def _ask_for_quotas(self) -> None:
        """Ask that older code, which does not know quotas, leases nothing any more.

        Until that is granted no run leases jobs that quotas concern.
        """
        if self.formats().least < QUOTAS:
            with suppress(FeatureHeldBack):  # It is remembered.
                self.require(QUOTAS)

    @contextmanager
    def _publishing(self, session: OwnSession) -> Iterator[None]:
        """Note it if what runs define changes meanwhile."""
        before = _definitions(session)
        yield
        if _definitions(session) != before:
            change_rules(session)


def change_rules(session: Session) -> None:
    """Let every store object read anew what is in force, and what waits look again."""
    session.run("bump_limits")
    session.run("open_lanes_of_rules", limit=CHANGE_MAX)
    session.run("note_contested", limit=CHANGE_MAX)


def _definitions(session: OwnSession) -> list[Any]:
    """Return the different definitions that are published, the newest last."""
    limits, needs = session.ask(("published_limits", {}), ("published_needs", {}))
    runs = sorted(
        published_from(limits, needs), key=lambda run: (run.app_since_ms, run.run_id)
    )
    return [
        *dict.fromkeys(
            msgspec.json.encode((run.limits, run.needs), order="sorted")
            for run in reversed(runs)
        )
    ]
