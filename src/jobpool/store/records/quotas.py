"""Records of quotas, tenants and limits, and of what waits for them."""

from __future__ import annotations

import msgspec

from jobpool.core.rules.quotas.breaker import BreakerState
from jobpool.core.rules.quotas.budget import RetryBudget
from jobpool.core.rules.quotas.definition import Quota, Tenant
from jobpool.core.rules.quotas.rules import Override
from jobpool.store.records.operating import PauseRow


class QuotaRow(msgspec.Struct, frozen=True, kw_only=True):
    """A quota as it is in force, and its use over all buckets."""

    name: str
    quota: Quota | None
    """As published, with the numbers that were set; None: no open run publishes it."""
    override: Override | None = None
    """What was set."""
    differing: str | None = None
    """How definitions differ, and who publishes them; the stricter numbers hold."""
    kinds: tuple[str, ...] = ()
    """Those that need it."""
    used: int = 0
    """Permits in use; of a quota without a cap: 0."""
    waiting: int = 0
    """Runnable jobs that wait for it."""
    blocked: int = 0
    """Its buckets that are full, used up or blocked."""
    bucket: BucketRow | None = None
    """Its bucket, if it has just one; None as well: nothing has used it yet."""
    paused: PauseRow | None = None
    budget: RetryBudget | None = None
    """The rule, if its buckets are a retry budget's; nobody needs it then."""


class ServiceRow(msgspec.Struct, frozen=True, kw_only=True):
    """What the breaker of a bucket has seen of its service."""

    state: BreakerState
    requests: int
    """In its window; 0 unless it is closed."""
    failures: int
    until_ms: int | None = None
    """When its pause ends, if it is open."""
    probe: int | None = None
    """The job that tries the service, if one does."""


class BudgetRow(msgspec.Struct, frozen=True, kw_only=True):
    """How a retry budget was used in the last minute."""

    retries: int
    most: int
    """So many retries may begin in a minute, as things are."""
    firsts: int
    """First attempts."""


class BucketRow(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket of a quota."""

    quota: str
    value: str
    """What it is the bucket of; without `per` it is empty."""
    used: int = 0
    """Permits of the cap that are in use; without one: 0."""
    cap: int | None = None
    free: int | None = None
    """Permits of the rate that can be taken now; None: it has none."""
    waiting: int = 0
    """Runnable jobs that wait for it."""
    opens_at_ms: int | None = None
    """When one that waits may get a permit at the earliest; None: at once, or as soon
    as one is returned."""
    blocked_until_ms: int | None = None
    """Somebody has said that nobody may have a permit before then."""
    reason: str | None = None
    """Why there is no permit now; None: there is one."""
    service: ServiceRow | None = None
    """What its breaker has seen of its service; None: it has none."""
    budget: BudgetRow | None = None
    """Its use, if it is a retry budget."""


class QuotaWait(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket that has no permit for a job."""

    quota: str
    value: str
    used: int
    cap: int | None
    holders: tuple[int, ...] = ()
    """Jobs that have permits of its cap, at most ten."""
    opens_at_ms: int | None = None
    """As in `BucketRow`."""
    why: str


class TenantRow(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant's rule as it is in force, and what it uses."""

    name: str
    tenant: Tenant | None
    """None: it has none, but is paused."""
    is_set: bool = False
    """It was set at run time; else it is published."""
    who: str | None = None
    """Who has set it."""
    updated_at_ms: int | None = None
    """When it was set."""
    used: int = 0
    """Its permits in use."""
    waiting: int = 0
    """Its runnable jobs that wait for the rule."""
    paused: PauseRow | None = None


class FullRow(msgspec.Struct, frozen=True, kw_only=True):
    """What has no room for more jobs; the fields are those of `QueueFull`."""

    what: str
    depth: int
    depth_max: int | None
    age_s: float | None
    age_max_s: float | None
    retry_after_s: float
