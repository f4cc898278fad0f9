"""Permits: taken by running attempts, and given back with whatever ends a lease."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar

from jobpool.core.jobs.job import (
    TIME_MAX_MS,
    PermitAnswer,
    PermitAsk,
    PermitReturn,
    RequestReport,
    Settlement,
    Throttle,
)
from jobpool.core.rules.quotas.allot import LaneState, cost_in
from jobpool.core.rules.quotas.breaker import BreakerChange
from jobpool.core.rules.quotas.definition import TENANT
from jobpool.core.rules.quotas.lanes import bucket_id
from jobpool.core.rules.quotas.rules import Rules, Use
from jobpool.store.operations.quotas.claim import Claim
from jobpool.store.operations.quotas.in_force import Governing
from jobpool.store.operations.quotas.lanes import ClaimMemory
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.quotas import change_of, counts_by_use
from jobpool.store.statements.session import OwnSession, Row, Session
from jobpool.store.statements.validation import fit_delay_ms

_NOBODYS = -1
"""A token that no lease has."""
_STALE = PermitAnswer(granted=False, stale=True)
_GRANTED = PermitAnswer(granted=True)


class PermitKeeping(Governing):
    """The part of the store that gives permits to attempts, and takes them back."""

    _WRITES_BESIDE: ClassVar[bool] = False
    """Others may be blocking a lane on a bucket at this moment."""
    _claims: ClaimMemory
    _has_freed = False
    _freed: Collection[int] = ()
    """Tokens whose permits were freed already by what has settled them."""

    @property
    def _may_hold_permits(self) -> bool:
        """Whether an attempt may hold permits, as far as is known here."""
        known = self._in_force
        concerns = known.rules.quotas or known.rules.tenants
        return known.version is None or bool(concerns)

    @property
    def _may_have_budgets(self) -> bool:
        """Whether retries may be under a budget, as far as is known here."""
        known = self._in_force
        return known.version is None or bool(known.rules.budgets)

    @property
    def _capped(self) -> str | None:
        """JSON: quotas of which something comes back with a permit; None: of any."""
        known = self._in_force
        if known.version is None:
            return None
        quotas = known.rules.quotas.values()
        capped = (one.name for one in quotas if one.concurrency is not None)
        return as_json((TENANT, *capped))

    def take_permits(
        self, run_id: str, asks: Sequence[PermitAsk]
    ) -> list[PermitAnswer]:
        """See `Store.take_permits`."""
        if not asks:
            return []
        with self._database.writing() as session:
            now_ms = self._database.now_ms(session)
            rules = self._current(session, now_ms).rules
            asks = [
                ask._replace(token=_NOBODYS) if _is_too_much(rules, ask) else ask
                for ask in asks
            ]
            rows = [(ask.job_id, ask.token, _use(ask).bucket, ask.n) for ask in asks]
            found = {
                number: bool(has_it)
                for number, has_it in session.rows(
                    "permits_asked", rows=as_json(rows), run_id=run_id
                )
            }
            claim = Claim(session, rules, (run_id, now_ms), self._claims, {})
            claim.prepare_for(
                _use(ask) for n, ask in enumerate(asks) if found.get(n) is False
            )
            answers: list[PermitAnswer] = []
            taken: set[tuple[int, int, int]] = set()
            for number, ask in enumerate(asks):
                name = _use(ask).bucket, ask.token, ask.n
                if number not in found:
                    answers.append(_STALE)
                elif found[number] or name in taken:
                    answers.append(_GRANTED)
                else:
                    answers.append(_answer(claim, ask, now_ms))
                    if answers[-1].granted:
                        taken.add(name)
            claim.finish(())
        return answers

    def return_permits(self, returns: Sequence[PermitReturn]) -> None:
        """See `Store.return_permits`."""
        if not returns:
            return
        with self._database.writing() as session:
            rows = session.rows(
                "return_permits", rows=as_json((one.token, one.n) for one in returns)
            )
            self._note_freed(session, rows, {})

    def block_buckets(self, blocks: Sequence[Throttle]) -> None:
        """See `Store.block_buckets`."""
        if not blocks:
            return
        with self._database.writing() as session:
            now_ms = self._database.now_ms(session)
            self._block(session, blocks, now_ms)

    def report_requests(self, reports: Sequence[RequestReport]) -> list[BreakerChange]:
        """See `Store.report_requests`."""
        if not reports:
            return []
        changes = []
        with self._database.writing() as session:
            now_ms = self._database.now_ms(session)
            rules = self._current(session, now_ms).rules
            counts = {
                use: of_tokens
                for use, of_tokens in counts_by_use(reports).items()
                if rules.limit(use.quota, use.value).breaker is not None
            }
            claim = Claim(session, rules, ("", now_ms), self._claims, {})
            claim.prepare_for(counts)
            for use, of_tokens in counts.items():
                found, has_changed = claim.report(use.bucket, of_tokens)
                if found is not None and has_changed:
                    changes.append(change_of(use, found))
            claim.finish(())
        self._has_freed |= bool(changes)
        return changes

    def permits_freed(self) -> bool:
        """See `Store.permits_freed`."""
        has_freed, self._has_freed = self._has_freed, False
        return has_freed

    def _free_permits(
        self, session: OwnSession, ended: Sequence[Settlement], now_ms: int
    ) -> None:
        """Take back what attempts hold, in the transaction that ends their leases.

        Args:
            session: in that transaction.
            ended: how they ended; what it says of buckets is applied as well.
            now_ms: the store's clock.
        """
        unbegun = {s.token: s.unbegun for s in ended if s.token not in self._freed}
        if unbegun and self._may_hold_permits:
            rows = session.rows("free_permits", tokens=as_json(unbegun))
            self._note_freed(session, rows, unbegun)
        back = [s.id for s in ended if s.unbegun and s.token not in self._freed]
        if back and self._may_be_fair:
            session.run("note_unbegun", ids=as_json(back))
        if blocks := [s.throttle for s in ended if s.throttle is not None]:
            self._block(session, blocks, now_ms)

    @property
    def _may_be_fair(self) -> bool:
        known = self._in_force
        return known.version is None or any(map(known.rules.fair, known.rules.pools))

    def _block(
        self, session: OwnSession, blocks: Iterable[Throttle], now_ms: int
    ) -> None:
        """Leave notes that say until when buckets are to give out nothing."""
        quotas = self._current(session, now_ms).rules.quotas
        ends: dict[tuple[int, str, str], int] = {}
        for quota, value, after_ms in blocks:
            known_ms = fit_delay_ms(after_ms)
            if quota in quotas:
                most_ms = round(quotas[quota].throttle_max_s * 1000)
                known_ms = min(known_ms, most_ms)
            bucket = bucket_id(quota, value), quota, value
            until_ms = min(now_ms + known_ms, TIME_MAX_MS)
            ends[bucket] = max(until_ms, ends.get(bucket, 0))
        session.run("make_buckets", rows=as_json(sorted(ends)), now_ms=now_ms)
        rows = as_json((bucket, until_ms) for (bucket, *_), until_ms in ends.items())
        session.run("note_buckets", rows=rows)

    def _note_freed(
        self, session: Session, rows: Sequence[Row], unbegun: Mapping[int, bool]
    ) -> None:
        """Leave a note for each bucket that lanes may wait for, or whose rate gains."""
        if not rows:
            return
        freed: dict[int, tuple[int, int]] = {}
        for bucket, token, cost, held_us in rows:
            refund, since_us = freed.get(bucket, (0, held_us))
            refund += cost if unbegun.get(token) else 0
            freed[bucket] = refund, min(since_us, held_us)
        notes = []
        for bucket, quota, value, contested in session.rows(
            "freed_buckets", ids=as_json(freed)
        ):
            is_awaited = self._may_be_awaited(quota, value, contested)
            if is_awaited or freed[bucket][0]:
                self._has_freed |= bool(contested)
                notes.append((bucket, *freed[bucket]))
        if notes:
            session.run("note_refunds", rows=as_json(notes))

    def _may_be_awaited(self, quota: str, value: str, contested: object) -> bool:
        """Say whether a lane may wait for what is freed in a bucket.

        Where others write at the same time, it may be blocked on its cap without being
        seen from here. A rate gets nothing back.
        """
        known = self._in_force
        is_capped = known.rules.limit(quota, value).concurrency is not None
        is_awaited = bool(contested) or self._WRITES_BESIDE
        return is_awaited and (is_capped or known.version is None)


def _is_too_much(rules: Rules, ask: PermitAsk) -> bool:
    """Say whether a permit's cost is more than its quota can ever give."""
    return cost_in(rules.limit(ask.quota, ask.value), ask.cost) < ask.cost


def _use(ask: PermitAsk) -> Use:
    return Use(bucket_id(ask.quota, ask.value), ask.quota, ask.value, ask.cost)


def _answer(claim: Claim, ask: PermitAsk, now_ms: int) -> PermitAnswer:
    """Take a permit, or say when to ask again."""
    lane = LaneState(0, "", "", 0, 0.0, (_use(ask),))
    found = claim.look(lane)
    if found is None:
        return PermitAnswer(granted=False, retry_in_s=0.0)
    if found.most:
        claim.take_for(ask.token, ask.n, ask.job_id, lane)
        return _GRANTED
    claim.want(lane)
    if found.opens_at_ms is None:
        return PermitAnswer(granted=False)
    return PermitAnswer(
        granted=False, retry_in_s=max(0.0, (found.opens_at_ms - now_ms) / 1000)
    )
