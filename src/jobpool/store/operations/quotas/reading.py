"""What people see of quotas; nothing is locked, and nothing is changed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jobpool.core.rules.quotas.allot import BucketState
from jobpool.core.rules.quotas.definition import TENANT, Limits, Quota
from jobpool.core.rules.quotas.lanes import bucket_id
from jobpool.core.rules.quotas.rules import Override, Rules, Use
from jobpool.core.rules.waits import Cause, cause_of
from jobpool.store.operations.quotas.in_force import Governing
from jobpool.store.operations.quotas.view import Seen, buckets_from, see, states_of
from jobpool.store.records.operating import PauseRow
from jobpool.store.records.quotas import BucketRow, QuotaRow, QuotaWait, TenantRow
from jobpool.store.statements.integrity import PAUSE, is_valid
from jobpool.store.statements.limits import (
    decoded,
    overrides_from,
    tenants_from,
    values_from,
)
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.quotas import (
    HOLDERS_MAX,
    all_differing,
    bucket_row,
    differing_of,
    only_bucket,
    shortage,
    wait_of,
)
from jobpool.store.statements.rows import records
from jobpool.store.statements.session import OwnSession, Row, Session
from jobpool.store.statements.validation import clean_text, storable

BUCKETS_MAX = 10_000
"""Buckets that are looked at, of one quota or of all."""
UNSTAMPED_MAX = 10_000
"""Jobs of no lane yet that are looked at."""


class Waiting(NamedTuple):
    """Runnable jobs of laned kinds that count by the same."""

    pool: str
    kind: str
    uses: tuple[Use, ...]
    jobs: int


class QuotaReading(Governing):
    """The part of the store that shows quotas."""

    def quotas(self) -> list[QuotaRow]:
        """See `Store.quotas`."""
        with self._database.reading() as session:
            now_ms = self._database.now_ms(session)
            rules = self._current(session, now_ms).rules
            waiting = _waiting(session, rules)
            buckets = _all_buckets(session, rules, waiting, now_ms)
            overrides = _overrides(session, now_ms)
            published = _published(session)
            kinds = {kind for _, kind, *_ in session.rows("published_needs")}
            pauses = _pauses(session, now_ms)
        waits = _short(waiting, buckets, now_ms)
        found = []
        for name in sorted(rules.quotas.keys() | rules.budgets.keys()):
            rows = [
                bucket_row(one.state, name, one.value, 0, now_ms)
                for one in buckets.values()
                if one.quota == name
            ]
            needing = (
                kind
                for kind in kinds
                if any(need.quota == name for need in rules.needs_of(kind))
            )
            waits_for_it = sum(
                one.jobs
                for one, short in waits
                if any(use.quota == name for use in short)
            )
            definition = rules.quotas.get(name) or Quota(name=name)
            found.append(
                QuotaRow(
                    name=name,
                    quota=definition if name in published else None,
                    budget=rules.budgets.get(name),
                    override=overrides.get(name),
                    differing=differing_of(rules, name),
                    kinds=tuple(sorted(needing)),
                    used=sum(row.used for row in rows if row.cap is not None),
                    waiting=waits_for_it,
                    blocked=sum(row.reason is not None for row in rows),
                    bucket=only_bucket(definition, rows, waits_for_it),
                    paused=pauses.get(("quota", name)),
                )
            )
        return found

    def differing_quotas(self) -> Mapping[str, str]:
        """See `Store.differing_quotas`."""
        with self._database.reading() as session:
            rules = self._current(session, self._database.now_ms(session)).rules
        return all_differing(rules)

    def buckets(self, quota: str, limit: int = 100) -> list[BucketRow]:
        """See `Store.buckets`."""
        if clean_text(quota) != quota:
            return []  # no quota can have such a name
        with self._database.reading() as session:
            now_ms = self._database.now_ms(session)
            rules = self._current(session, now_ms).rules
            waiting = _waiting(session, rules)
            buckets = _all_buckets(session, rules, waiting, now_ms, quota)
        waits = _by_bucket(_short(waiting, buckets, now_ms))
        rows = [
            bucket_row(one.state, quota, one.value, waits[bucket], now_ms)
            for bucket, one in buckets.items()
            if one.quota == quota
        ]
        return sorted(rows, key=lambda row: (-row.waiting, row.value))[:limit]

    def waits_of(self, job_id: int) -> list[QuotaWait]:
        """See `Store.waits_of`."""
        with self._database.reading() as session:
            now_ms = self._database.now_ms(session)
            rules = self._current(session, now_ms).rules
            uses: tuple[Use, ...] = ()
            for kind, tenant, text, again in session.rows(
                "counted_by", id=storable(job_id)
            ):
                values = values_from(text) or {}
                uses = rules.uses(kind, tenant, values, again=bool(again))
            states = states_of(see(session, rules, uses, now_ms))
            found = []
            for use in uses:
                rows = session.rows("holders", bucket=use.bucket, limit=HOLDERS_MAX)
                holders = [holder for (holder,) in rows]
                found.append(wait_of(states[use.bucket], use, holders, now_ms))
        return [one for one in found if one is not None]

    def tenants(self) -> list[TenantRow]:
        """See `Store.tenants`."""
        with self._database.reading() as session:
            now_ms = self._database.now_ms(session)
            rules = self._current(session, now_ms).rules
            waiting = _waiting(session, rules)
            buckets = _all_buckets(session, rules, waiting, now_ms)
            rows = session.rows("raw_tenants")
            at_ms = {row[0]: row[-1] for row in rows}
            was_set = {one.tenant.name: one for one in tenants_from(rows)}
            pauses = _pauses(session, now_ms)
        waits = _by_bucket(_short(waiting, buckets, now_ms))
        paused = {name for what, name in pauses if what == TENANT}
        found = []
        for name in sorted(rules.tenants.keys() | paused):
            bucket = bucket_id(TENANT, name)
            seen, override = buckets.get(bucket), was_set.get(name)
            found.append(
                TenantRow(
                    name=name,
                    tenant=rules.tenants.get(name),
                    is_set=override is not None,
                    who=None if override is None else override.who,
                    updated_at_ms=at_ms.get(name),
                    used=0 if seen is None else seen.state.in_use,
                    waiting=waits[bucket],
                    paused=pauses.get((TENANT, name)),
                )
            )
        return found

    def _blocked(self, session: OwnSession) -> Counter[tuple[str, str]]:
        """Return how many runnable jobs wait for a quota, by pool and kind."""
        held = self._held_by_cause(session)
        return Counter({place: causes.total() for place, causes in held.items()})

    def _held_by_cause(
        self, session: OwnSession
    ) -> dict[tuple[str, str], Counter[Cause]]:
        """Return the same by cause."""
        now_ms = self._database.now_ms(session)
        rules = self._current(session, now_ms).rules
        waiting = [] if rules.is_empty else _waiting(session, rules)
        uses = (use for one in waiting for use in one.uses)
        buckets = see(session, rules, uses, now_ms)
        found: defaultdict[tuple[str, str], Counter[Cause]] = defaultdict(Counter)
        for one, short in _short(waiting, buckets, now_ms):
            if short:
                cause = cause_of(buckets[short[0].bucket].state, now_ms)
                found[one.pool, one.kind][cause] += one.jobs
        return found


def _waiting(session: Session, rules: Rules) -> list[Waiting]:
    """Return the runnable jobs that need something, by what they count by."""
    rows = session.rows("laned_jobs")
    pairs = session.rows("kinds_that_wait")
    laned = sorted({kind for pool, kind in pairs if rules.is_laned(pool, kind)})
    if laned:
        rows += session.rows(
            "unstamped_jobs", kinds=as_json(laned), limit=UNSTAMPED_MAX
        )
    found = [
        Waiting(
            *(pool, kind),
            rules.uses(kind, tenant, values_from(text) or {}, again=bool(again)),
            jobs,
        )
        for pool, kind, tenant, text, again, jobs in rows
    ]
    return [one for one in found if one.uses]


def _all_buckets(
    session: Session,
    rules: Rules,
    waiting: Iterable[Waiting],
    now_ms: int,
    quota: str | None = None,
) -> dict[int, Seen]:
    """Return the buckets that anything is known of, of a quota or of all."""
    rows: list[Row] = session.rows("buckets_of", quota=quota, limit=BUCKETS_MAX)
    found = buckets_from(session, rules, rows, now_ms)
    missing = [use for one in waiting for use in one.uses if use.bucket not in found]
    return see(session, rules, missing, now_ms) | found


def _short(
    waiting: Iterable[Waiting], buckets: Mapping[int, Seen], now_ms: int
) -> list[tuple[Waiting, list[Use]]]:
    """Return for each what it needs and cannot have now."""

    def is_short(use: Use) -> bool:
        state: BucketState = buckets[use.bucket].state
        return shortage(state, use.cost, now_ms) is not None

    return [(one, [use for use in one.uses if is_short(use)]) for one in waiting]


def _by_bucket(waits: Iterable[tuple[Waiting, list[Use]]]) -> Counter[int]:
    found: Counter[int] = Counter()
    for one, short in waits:
        for use in short:
            found[use.bucket] += one.jobs
    return found


def _overrides(session: Session, now_ms: int) -> dict[str, Override]:
    """Return what is set for quotas, and has not ended."""
    return {
        one.quota: one
        for one in overrides_from(session.rows("raw_quotas"))
        if one.until_ms is None or one.until_ms > now_ms
    }


def _published(session: Session) -> set[str]:
    """Return the names of quotas that open runs publish."""
    return {
        quota.name
        for *_, text in session.rows("published_limits")
        for quota in (decoded(text, Limits) or Limits()).quotas
    }


def _pauses(session: Session, now_ms: int) -> dict[tuple[str, str], PauseRow]:
    """Return what is paused, by what it is and its name."""
    columns = PauseRow.__struct_fields__
    rows = session.rows("pauses", now_ms=now_ms)
    readable = (
        row for row in rows if is_valid(dict(zip(columns, row, strict=True)), PAUSE)
    )
    return {(one.what, one.name): one for one in records(PauseRow, readable)}
