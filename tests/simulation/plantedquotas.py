"""Bugs of quotas, to plant in the simulation."""

from __future__ import annotations

from typing import Any

import msgspec

from jobpool.core.rules.quotas import gcra, merging
from jobpool.core.rules.quotas import rules as compiling
from jobpool.core.rules.quotas.breaker import Breaker
from jobpool.core.rules.quotas.budget import begun
from jobpool.store.memory.quotas import claim, in_force
from jobpool.store.memory.quotas import permits as permit_keeping
from jobpool.store.memory.quotas.permits import PermitKeeping
from jobpool.store.memory.store import MemoryStore
from jobpool.supervisor.machine.admission.host_quotas import HostQuotas
from jobpool.supervisor.machine.attempts.permits import Permits
from planted_bugs.bug import Promise
from simulation import completing
from simulation.planting import Change, breaks, nothing
from simulation.store import SimStore

replace = msgspec.structs.replace


@breaks(Promise.QUOTAS)
def what_never_began_keeps_its_permits() -> list[Change]:
    right = PermitKeeping._end_permits

    def wrong(self: Any, token: int, *, unbegun: bool = False) -> None:
        if not unbegun:
            right(self, token)

    return [(PermitKeeping, "_end_permits", wrong)]


@breaks(Promise.QUOTAS)
def a_completion_frees_permits() -> list[Change]:
    return [(completing._HandlersStore, "_end_permits", MemoryStore._end_permits)]


@breaks(Promise.QUOTAS)
def a_begin_frees_permits() -> list[Change]:
    right = SimStore.__dict__["begin_attempts"]

    def wrong(self: Any, starts: Any) -> None:
        with self.transaction():
            right(self, starts)
            for start in starts:
                self._end_permits(start.token)

    return [(SimStore, "begin_attempts", wrong)]


@breaks(Promise.QUOTAS)
def the_looser_number_holds() -> list[Change]:
    def wrong(known: Any, newer: Any) -> Any:
        caps = [n.concurrency for n in (known, newer) if n.concurrency is not None]
        rates = [n.rate for n in (known, newer) if n.rate is not None]
        return replace(
            newer,
            concurrency=max(caps, default=None),
            rate=max(rates, key=lambda rate: rate.per_second, default=None),
        )

    return [(merging, "_stricter", wrong)]


@breaks(Promise.QUOTAS)
def throttles_are_not_minded() -> list[Change]:
    return [(PermitKeeping, "_block", nothing)]


@breaks(Promise.QUOTAS)
def what_is_set_never_ends() -> list[Change]:
    right = in_force.rules

    def wrong(*args: Any, **named: Any) -> Any:
        found = right(*args, **named)
        found.until_ms = None
        return found

    return [(in_force, "rules", wrong)]


@breaks(Promise.QUOTAS)
def permits_of_handlers_are_not_counted() -> list[Change]:
    return [(permit_keeping, "take_permit", nothing)]


@breaks(Promise.QUOTAS)
def returned_permits_are_kept() -> list[Change]:
    return [(PermitKeeping, "return_permits", nothing)]


@breaks(Promise.QUOTAS)
def hosts_count_nothing() -> list[Change]:
    return [(HostQuotas, "admit", nothing)]


@breaks(Promise.QUOTAS)
def a_paused_quota_goes_on() -> list[Change]:
    right = compiling.Rules.limit

    def wrong(self: Any, quota: str, value: str) -> Any:
        return right(self, quota, value)._replace(closed_until_ms=None)

    return [(compiling.Rules, "limit", wrong)]


@breaks(Promise.QUOTAS)
def an_empty_bucket_waits_for_its_old_time() -> list[Change]:
    def wrong(_pace: Any, tat_us: int, _now_us: int) -> int:
        return tat_us

    return [(gcra, "settled", wrong), (claim, "settled", wrong)]


@breaks(Promise.QUOTAS)
def only_the_newest_version_has_needs() -> list[Change]:
    right = in_force.rules

    def wrong(published: Any, *args: Any, **named: Any) -> Any:
        known = list(published)
        newest = max((one.app_since_ms for one in known), default=0)
        said = [
            one if one.app_since_ms == newest else replace(one, needs={})
            for one in known
        ]
        return right(said, *args, **named)

    return [(in_force, "rules", wrong)]


@breaks(Promise.QUOTAS)
def a_late_permit_is_kept() -> list[Change]:
    return [(Permits, "_give_back", lambda self, asked: self._forget(asked))]


@breaks(Promise.QUOTAS)
def an_open_breaker_lets_through() -> list[Change]:
    return [(Breaker, "is_open", property(lambda _self: False))]


@breaks(Promise.QUOTAS)
def everybody_probes() -> list[Change]:
    return [(Breaker, "is_probed", property(lambda _self: False))]


@breaks(Promise.QUOTAS)
def a_lost_probe_is_waited_for_for_ever() -> list[Change]:
    return [(place, "find_lost_probes", nothing) for place in (claim, permit_keeping)]


@breaks(Promise.QUOTAS)
def retries_are_not_counted() -> list[Change]:
    def wrong(window: Any, now_ms: int, *, firsts: int = 0, retries: int = 0) -> Any:
        return begun(window, now_ms, firsts=firsts + 0 * retries)

    return [(claim, "begun", wrong)]


@breaks(Promise.QUOTAS)
def first_attempts_are_retries() -> list[Change]:
    right = compiling.Rules.uses

    def wrong(self: Any, *args: Any, **_named: Any) -> Any:
        return right(self, *args, again=True)

    return [(compiling.Rules, "uses", wrong)]
