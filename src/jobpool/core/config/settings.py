"""Settings: every value that an operator can set, its meaning and its default.

`jobpool.core.config.load` reads them from flags, environment and files.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from jobpool.core.application.command import Command
from jobpool.core.rules.admission import Admission
from jobpool.core.rules.circuit_breaker import SLOW_AFTER
from jobpool.core.rules.limits import Limits, PoolLimits
from jobpool.core.rules.policy import UNKNOWN_FOR_S
from jobpool.core.rules.quotas.breaker import BreakerRule
from jobpool.core.rules.quotas.budget import RetryBudget
from jobpool.core.rules.quotas.definition import Tenant
from jobpool.core.rules.quotas.rate import Rate
from jobpool.core.rules.suspects import PROBATION_S

MIB = 2**20
GIB = 2**30
DEFAULT_STORE = "sqlite:///jobpool.db"
DEFAULT_TIMEOUT_S: Mapping[str, float] = {"cpu": 600.0, "io": 120.0}
DEFAULT_MEMORY_BYTES: Mapping[str, int] = {"cpu": GIB, "io": 512 * MIB}
OTHER_TIMEOUT_S = 600.0
"""Time limit of pools that are neither cpu nor io."""
OTHER_MEMORY_BYTES = GIB
"""Memory limit of pools that are neither cpu nor io."""
DEFAULT_IO_SLOTS = 16
SLOTS_MAX = 1024
MAX_ATTEMPTS_MAX = 1000
PAYLOAD_MAX_BYTES = MIB
RESULT_MAX_BYTES = MIB
CHECKPOINT_MAX_BYTES = 64 * 1024
"""Of a handler's state that the next attempt receives."""
SENDABLE_MAX_BYTES = 8 * MIB
"""Upper bound of the caps on payloads and results: they are sent in one frame."""
OUTPUTS_MAX_BYTES = 256 * MIB
RETENTION_COUNT_MAX = 1_000_000
"""So many rows of an index are counted in each step of a prune: 30 ms."""
MEMORY_BUDGET_SHARE = 0.8
"""Default share of the machine's memory."""
DRAIN_S = 25.0
LEASE_TTL_S = 60.0
LEASE_TTL_MIN_S = 5.0
"""For stores that several hosts share: a renewal takes time."""


class SandboxLevel(StrEnum):
    """How strictly children are confined; see `core.isolation.measures`."""

    OFF = "off"
    STANDARD = "standard"
    STRICT = "strict"


class KeepOutput(StrEnum):
    """Of which attempts the store keeps what they have written."""

    ALL = "all"
    FAILED = "failed"
    """Of those that did not succeed."""
    NONE = "none"


class Scope(StrEnum):
    """Where the permits of a quota are counted."""

    FLEET = "fleet"
    """In the store, over all hosts."""
    HOST = "host"
    """By each host alone."""


class Fair(StrEnum):
    """Who has shares of a pool's starts."""

    NONE = "none"
    """Nobody: what was due first begins first."""
    TENANT = "tenant"
    KIND = "kind"


class ScaleOn(StrEnum):
    """What a pool with a range of sizes takes for its bottleneck."""

    CPU = "cpu"
    """Processors: it grows while some are idle."""
    BACKLOG = "backlog"
    """Slots: it grows while due jobs wait, however busy the processors are."""
    AGE = "age"
    """Slots, once a job has waited for `age_target_s`."""
    MEMORY = "memory"
    """Memory: as BACKLOG, with room by what its jobs were seen to use."""


class MemoryAdmission(StrEnum):
    """What counts of a job against the memory budget."""

    OBSERVED = "observed"
    """What its kind was seen to use; its limit while that is unknown."""
    LIMITS = "limits"
    """Its limit."""


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return it as it is written: ``127.0.0.1:9464``, ``[::1]:9464``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One pool: how many children it may have, and what each may use."""

    name: str
    size_min: int
    size_max: int
    """Equal to size_min: a fixed size."""
    limits: PoolLimits
    recycle_jobs: int = 10_000
    """A child is replaced after this many jobs; 1: a fresh child for every job."""
    recycle_age_s: float = 3600.0
    recycle_growth_bytes: int = 128 * MIB
    """A child is replaced once its memory between jobs has grown by this much."""
    drain_s: float = DRAIN_S
    preload: bool = True
    """False: the application is imported in each child, not in the zygote."""
    env: tuple[str, ...] | None = None
    """Variables that children see; None: all. At level strict: in addition to
    `core.isolation.measures.VARIABLES`."""
    sandbox: SandboxLevel = SandboxLevel.STANDARD
    write: tuple[str, ...] | None = None
    """Paths below which children may write, besides TMPDIR; None: anywhere, at level
    strict nowhere."""
    read: tuple[str, ...] | None = None
    """At level strict: paths that children see besides programs and the application."""
    network: bool = True
    """False: no sockets to other machines."""
    new_privileges: bool = False
    """True: children may gain rights from programs such as sudo."""
    nice: int = 0
    """Added to the supervisor's."""
    cpus: tuple[int, ...] | None = None
    """Numbers of the cores that children run on; None: the supervisor's."""
    max_processes: int | None = None
    """Most processes and threads of a child; None: a default (`isolation.cgroups`)."""
    idle_shrink_s: float = 60.0
    """A pool with a size range drops a child that was not needed for this long."""
    scale_on: ScaleOn = ScaleOn.CPU
    """What keeps a pool with a size range from growing."""
    age_target_s: float = 10.0
    """With `ScaleOn.AGE`: how long a job may wait before the pool grows."""
    output_max_bytes: int = MIB
    """How much of an attempt's stdout and stderr is buffered."""
    keep_output: KeepOutput = KeepOutput.FAILED
    fair: Fair = Fair.NONE
    """Whose jobs take turns, within a priority."""
    aging_s: float | None = None
    """Time in which what waits rises by one priority; None: it does not."""
    breaker_after: int = SLOW_AFTER
    """A kind is slowed after this many different jobs crash in a row; 0: never."""

    @property
    def size_text(self) -> str:
        """The size as written on the command line."""
        if self.size_min == self.size_max:
            return str(self.size_min)
        return f"{self.size_min}..{self.size_max}"


class KindSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator overrides for one kind; None: as declared."""

    limits: Limits = Limits()
    max_attempts: int | None = None
    max_crashes: int | None = None
    breaker_after: int | None = None
    keep_output: KeepOutput | None = None
    concurrency: int | None = None
    """Over all hosts."""
    weight: float | None = None
    """Its share, in pools that are fair by kind."""
    retry_budget: RetryBudget | None = None


class TraceLinks(msgspec.Struct, frozen=True, kw_only=True):
    """Where people look at the traces of jobs."""

    link: str | None = None
    """A URL with ``{trace_id}`` in it; None: nobody has said."""
    sample: float = 0.0
    """How many of the traces that begin with a job are recorded; 0: none is sent."""


class QuotaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator says of one quota; None: as declared."""

    rate: Rate | None = None
    burst: int | None = None
    concurrency: int | None = None
    scope: Scope | None = None
    wait_s: float | None = None
    throttle_max_s: float | None = None
    breaker: BreakerRule | None = None
    retry_budget: RetryBudget | None = None


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long finished jobs are kept, by state, and how many of them.

    A job goes once it is older than its state's seconds, or once its state's count of
    newer ones has ended; None: never for that reason.
    """

    succeeded_s: float | None = 7 * 86400.0
    canceled_s: float | None = 7 * 86400.0
    dead_s: float | None = 180 * 86400.0
    quarantined_s: float | None = None
    succeeded_count: int | None = None
    canceled_count: int | None = None
    dead_count: int | None = None
    quarantined_count: int | None = None
    audit_s: float | None = 365 * 86400.0
    """How long it is kept what operators have done."""
    outputs_bytes: int = OUTPUTS_MAX_BYTES
    """An output of a successful attempt is kept until newer ones take up so much."""


class AlertSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Who is told when something is wrong with the queue, and from when on.

    A rule that is None is off.
    """

    webhook: str | None = None
    """A URL that gets each alert as JSON."""
    secret_file: str | None = None
    """A file with the key by which webhooks are signed."""
    allow_private: bool = False
    """Webhooks and the heartbeat may go to addresses that are not of the internet."""
    command: tuple[str, ...] | None = None
    """A program that gets each alert as JSON, with its arguments."""
    heartbeat_url: str | None = None
    """Fetched each minute while all is well with those who watch."""
    digest: int | None = None
    """When dead jobs are summed up each day, in minutes since midnight, UTC."""
    store_s: float | None = 60.0
    """The store could not be used for so long."""
    no_supervisor_s: float | None = 120.0
    oldest_age_s: float | None = 600.0
    depth: int | None = 100
    """More due jobs than half an hour ago, in a pool that is full."""
    dead: int | None = 1
    quarantined: int | None = 1
    failure_rate: float | None = 3.0
    """Times as many attempts of a kind fail as in the last day."""
    ratio: float | None = 0.1
    """Share of a kind's jobs within an hour that became dead or quarantined."""
    missed_ticks_s: float | None = 300.0
    """A tick is so late; one that got no job is missed at once."""
    stuck_flows_s: float | None = 3600.0


class SentrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which errors are reported to Sentry, and where."""

    dsn: str
    """Of the project; or "environment": what the variable SENTRY_DSN has."""
    each: bool = False
    """Each unsuccessful attempt is reported, not only a job's last."""
    monitors: bool = False
    """Ticks of schedules are check-ins of monitors."""


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of everything that enqueues: applications, commands, supervisors."""

    store: str
    """URL with an absolute path."""
    payload_max_bytes: int = PAYLOAD_MAX_BYTES
    result_max_bytes: int = RESULT_MAX_BYTES
    admission: Admission = Admission()
    """How many jobs may wait before more are refused."""
    pool_names: tuple[str, ...] = ()
    """Pools that are named anywhere, whether or not they run here."""


class Settings(ClientSettings, frozen=True, kw_only=True):
    """All settings of a supervisor."""

    app: str
    """``module`` or ``path/to/file.py``, optionally ``:attribute``."""
    app_directory: str
    """Absolute; first on the application's sys.path, and its working directory."""
    app_version: str | None = None
    """None: a hash of what was imported."""
    store_base: str = ""
    """Absolute; the base of a relative SQLite path that the application names."""
    pools: tuple[PoolSettings, ...]
    kinds: Mapping[str, KindSettings] = {}
    commands: tuple[Command, ...] = ()
    """Programs that are handlers beside those of the application."""
    quotas: Mapping[str, QuotaSettings] = {}
    tenants: Mapping[str, Tenant] = {}
    """``*``: of all that have no value of their own."""
    retry_budget: RetryBudget | None = None
    """Of all retries, over all hosts."""
    kinds_shared: bool = False
    """The configuration also serves another application: it may have more kinds."""
    retention: Retention = Retention()
    alerts: AlertSettings | None = None
    """None: this supervisor watches nothing, and tells nobody."""
    metrics_listen: Address | None = None
    """Where this supervisor's metrics are served; None: nowhere."""
    traces_link: str | None = None
    """As in `TraceLinks`."""
    traces_otlp: str | None = None
    """Where the spans of attempts are sent, by OTLP over HTTP; None: nowhere."""
    traces_sample: float = 1.0
    """How many of the traces that begin with a job are recorded, from 0 to 1."""
    sentry: SentrySettings | None = None
    """None: nothing is reported to Sentry."""
    memory_budget_bytes: int | None = None
    """What all attempts together may use; None: no limit."""
    memory_admission: MemoryAdmission = MemoryAdmission.OBSERVED
    """What counts of each attempt against that."""
    app_timeout_s: float = 60.0
    """Most time that loading the application may take."""
    lease_ttl_s: float = LEASE_TTL_S
    """Time without a renewal after which other hosts presume a supervisor dead."""
    unknown_for_s: float = UNKNOWN_FOR_S
    """How long a job waits whose arguments fit no living supervisor's handler; then it
    is dead."""
    probation_s: float = PROBATION_S
    """How long a job that may have killed its host must run alone; it doubles with
    each further loss (`suspects.probation_s`)."""
