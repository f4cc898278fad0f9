"""Events of what makes jobs wait: circuit breakers, quotas and their services."""

from __future__ import annotations

from jobpool.core.events.event import Event, Level
from jobpool.core.rules.circuit_breaker import BreakerState


class KindSlowed(Event, frozen=True, kw_only=True):
    """Jobs of a kind crash in a row: they begin less often, one at a time."""

    name = "kind_slowed"
    level = Level.ERROR

    kind: str
    state: BreakerState
    crashes: int
    """Different jobs in a row."""
    again_in_s: float


class KindResumed(Event, frozen=True, kw_only=True):
    """The jobs of a kind begin normally again."""

    name = "kind_resumed"
    level = Level.WARNING

    kind: str
    reason: str


class QuotasHeldBack(Event, frozen=True, kw_only=True):
    """Jobs with quotas do not begin while supervisors run that do not know quotas."""

    name = "quotas_held_back"
    level = Level.WARNING

    kinds: tuple[str, ...]
    """Those that have to wait; empty: all, for the sake of tenants."""
    reason: str


class QuotaDiffers(Event, frozen=True, kw_only=True):
    """Supervisors define a quota, or what a tenant may use, in different ways."""

    name = "quota_differs"
    level = Level.WARNING

    quota: str
    reason: str
    """Who says what, and what holds."""


class RateTooTight(Event, frozen=True, kw_only=True):
    """No job of a kind begins: its leases take longer than its rate can wait."""

    name = "rate_too_tight"
    level = Level.WARNING

    kind: str
    late_s: float
    """From the request for leases until its last job went back unbegun."""
    begin_within_s: float
    """It had to begin within this time of the request, in which what it was given more
    for a slow store is counted."""


class DownstreamOpened(Event, frozen=True, kw_only=True):
    """The breaker of a quota's service has opened: nothing begins for a pause."""

    name = "downstream_opened"
    level = Level.ERROR

    quota: str
    is_one_of_many: bool
    """It is that of one bucket. Which one is not in the log: the quota may count by an
    argument that is hidden."""
    requests: int
    """In the rule's window; or those of a probe."""
    failures: int
    until_ms: int


class DownstreamClosed(Event, frozen=True, kw_only=True):
    """A probe was answered: what needs a quota's service begins normally again."""

    name = "downstream_closed"
    level = Level.WARNING

    quota: str
    is_one_of_many: bool
