"""What operators set of quotas and tenants, and what is deleted in time."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from jobpool.core.formats import QUOTAS
from jobpool.core.rules.quotas.budget import WINDOW_S
from jobpool.core.rules.quotas.definition import KIND_PREFIX, Tenant
from jobpool.core.rules.quotas.rules import Override, Rules
from jobpool.store.operations.quotas.claim import Claim
from jobpool.store.operations.quotas.in_force import Governing, change_rules
from jobpool.store.operations.quotas.lanes import ClaimMemory
from jobpool.store.operations.quotas.shares import aged_pools
from jobpool.store.statements.limits import (
    counted_from,
    overrides_from,
    rate_columns,
    tenants_from,
)
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.quotas import added_to, checked_tenant
from jobpool.store.statements.session import Session
from jobpool.store.statements.validation import clean_text, pause_end_ms

_replace = msgspec.structs.replace
IDLE_MS = 86_400_000
"""Lanes and buckets that nobody used for so long are deleted."""
FORGOTTEN = 10_000
"""At most so many at once."""


class QuotaSetting(Governing):
    """The part of the store that keeps what operators set of quotas."""

    _claims: ClaimMemory
    require: Callable[[int], None]

    def set_quota(self, override: Override, *, for_s: float | None = None) -> bool:
        """See `Store.set_quota`."""
        if override.quota.startswith(KIND_PREFIX):  # It may give a kind a need.
            self.require(QUOTAS)
        with self._database.writing() as session:
            now_ms = self._database.now_ms(session)
            former = _former(session, override.quota, now_ms)
            added = added_to(former, override, pause_end_ms(now_ms, for_s))
            if former is not None:
                if added.note is None:
                    added = _replace(added, note=former.note)
                if _replace(added, who=former.who) == former:
                    return False
            session.run(
                "set_quota",
                name=added.quota,
                **rate_columns(added.rate),
                burst=added.burst,
                concurrency=added.concurrency,
                until_ms=added.until_ms,
                who=added.who,
                note=added.note,
                now_ms=now_ms,
            )
            change_rules(session)
        return True

    def reset_quota(self, name: str) -> bool:
        """See `Store.reset_quota`."""
        name = clean_text(name) or ""
        with self._database.writing() as session:
            now_ms = self._database.now_ms(session)
            rules = self._current(session, now_ms).rules
            claim = Claim(session, rules, ("", now_ms), self._claims, {})
            used = session.rows("used_buckets", quota=name, now_ms=now_ms)
            is_done = claim.refill(name, {bucket for (bucket,) in used})
            claim.finish(())
            is_done |= _former(session, name, now_ms) is not None
            session.run("drop_quota", name=name)
            if is_done:
                change_rules(session)
        return is_done

    def set_tenant(self, tenant: Tenant, *, who: str | None = None) -> bool:
        """See `Store.set_tenant`."""
        checked = checked_tenant(tenant)
        self.require(QUOTAS)
        with self._database.writing() as session:
            found = tenants_from(session.rows("raw_tenants"))
            if any(one.tenant == checked for one in found):
                return False
            session.run(
                "set_tenant",
                name=checked.name,
                concurrency=checked.concurrency,
                **rate_columns(checked.rate),
                burst=checked.burst,
                weight=checked.weight,
                who=clean_text(who),
                now_ms=self._database.now_ms(session),
            )
            change_rules(session)
        return True

    def remove_tenant(self, name: str) -> bool:
        """See `Store.remove_tenant`."""
        with self._database.writing() as session:
            was_set = bool(session.run("drop_tenant", name=clean_text(name)))
            if was_set:
                change_rules(session)
        return was_set


def forget_quotas(session: Session, now_ms: int, rules: Rules) -> None:
    """Delete what has ended, and what nobody has used for long.

    Args:
        session: in a transaction.
        now_ms: the store's clock.
        rules: what is in force; if nothing is, no claim looks at the notes of lanes.
    """
    session.run("prune_quotas", now_ms=now_ms)
    before_ms = now_ms - IDLE_MS
    if rules.is_empty:
        rows = session.rows("take_lane_notes", limit=FORGOTTEN)
        if noted := sorted({lane for (lane,) in rows}):
            session.run("join_lanes", ids=as_json(noted), aged=aged_pools(rules))
        session.run("leave_idle_lanes", before_ms=before_ms, limit=FORGOTTEN)
    _drop_counts(session, now_ms, before_ms, rules)
    session.run("prune_lanes", before_ms=before_ms, limit=FORGOTTEN)
    session.run("prune_buckets", before_ms=before_ms, limit=FORGOTTEN)
    fair = [pool for pool in rules.pools if rules.fair(pool)]
    session.run("prune_fair_pools", pools=as_json(fair))
    session.run("prune_share_notes", limit=FORGOTTEN)
    session.run("prune_shares", limit=FORGOTTEN)


def _drop_counts(session: Session, now_ms: int, before_ms: int, rules: Rules) -> None:
    """Forget what was counted in buckets, where it is too old to say anything."""
    idle = []
    for bucket, quota, value, text in session.rows(
        "idle_counts", before_ms=before_ms, limit=FORGOTTEN
    ):
        limit = rules.limit(quota, value)
        breaker, window = counted_from(limit, text)
        if breaker.is_idle(limit.breaker, now_ms) and not any(
            window.sums(now_ms, WINDOW_S)
        ):
            idle.append(bucket)
    if idle:
        session.run("drop_counts", ids=as_json(idle))


def _former(session: Session, name: str, now_ms: int) -> Override | None:
    """Return what is set for a quota, unless it has ended."""
    for one in overrides_from(session.rows("raw_quotas")):
        if one.quota == name and (one.until_ms is None or one.until_ms > now_ms):
            return one
    return None
