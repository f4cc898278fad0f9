"""Settings: every value that an operator can set, with its default.

Reading them from flags, environment and files is `jobpool.core.config.load`'s work;
here is only what they are and what they mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from jobpool.core.rules.circuit_breaker import SLOW_AFTER
from jobpool.core.rules.limits import Limits, PoolLimits
from jobpool.core.rules.policy import UNKNOWN_FOR_S
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
SENDABLE_MAX_BYTES = 8 * MIB
"""No cap on payloads or results may be set higher: they travel in one frame."""
QUEUE_DEPTH_MAX = 10_000_000
MEMORY_BUDGET_SHARE = 0.8
"""Of the memory here, by default."""
DRAIN_S = 25.0
LEASE_TTL_S = 60.0
LEASE_TTL_MIN_S = 5.0
"""Of stores that several hosts share: a renewal needs its time."""


class SandboxLevel(StrEnum):
    """How much children are kept from; `core.isolation` says what that is."""

    OFF = "off"
    STANDARD = "standard"
    STRICT = "strict"


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One pool: how many children it may have, and what each may use."""

    name: str
    size_min: int
    size_max: int
    """Equal to size_min: a fixed size."""
    limits: PoolLimits
    recycle_jobs: int = 10_000
    """A child is replaced after so many jobs; 1: a fresh child for every job."""
    recycle_age_s: float = 3600.0
    recycle_growth_bytes: int = 128 * MIB
    """A child is replaced once its memory between jobs grew by so much."""
    drain_s: float = DRAIN_S
    preload: bool = True
    """False: the application is imported in each child, not in the zygote."""
    env: tuple[str, ...] | None = None
    """Names of the environment that children see; None: all. At level strict: besides
    those of `core.isolation.VARIABLES`."""
    sandbox: SandboxLevel = SandboxLevel.STANDARD
    write: tuple[str, ...] | None = None
    """Paths below which children may write, besides TMPDIR; None: anywhere, at level
    strict nowhere."""
    read: tuple[str, ...] | None = None
    """At level strict: paths that children see besides programs and the application."""
    network: bool = True
    """False: no sockets to other machines."""
    new_privileges: bool = False
    """True: programs such as sudo may give rights to children."""
    nice: int = 0
    """Added to the supervisor's."""
    cpus: tuple[int, ...] | None = None
    """Numbers of the cores that children run on; None: as the supervisor."""
    max_processes: int | None = None
    """Processes and threads of a child; None: a default (`core.cgroups`)."""
    idle_shrink_s: float = 60.0
    """A pool with a range gives a child back after so long without need."""
    output_max_bytes: int = MIB
    """Of what an attempt writes to stdout and stderr, so much is kept meanwhile."""
    breaker_after: int = SLOW_AFTER
    """A kind is slowed after so many different jobs in a row crashed; 0: never."""

    @property
    def size_text(self) -> str:
        """The size as it is written on the command line."""
        if self.size_min == self.size_max:
            return str(self.size_min)
        return f"{self.size_min}..{self.size_max}"


class KindSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator overrides for one kind; None: as declared."""

    limits: Limits = Limits()
    max_attempts: int | None = None
    max_crashes: int | None = None
    breaker_after: int | None = None


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long finished jobs are kept, in seconds; None: until somebody decides."""

    succeeded_s: float | None = 7 * 86400.0
    canceled_s: float | None = 7 * 86400.0
    dead_s: float | None = 180 * 86400.0
    quarantined_s: float | None = None


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What whoever enqueues obeys: applications, commands and supervisors alike."""

    store: str
    """URL with an absolute path."""
    payload_max_bytes: int = PAYLOAD_MAX_BYTES
    result_max_bytes: int = RESULT_MAX_BYTES
    queue_depth_max: int = QUEUE_DEPTH_MAX


class Settings(ClientSettings, frozen=True, kw_only=True):
    """Everything that a supervisor needs to know before it starts."""

    app: str
    """``module`` or ``path/to/file.py``, optionally ``:attribute``."""
    app_directory: str
    """Absolute; first on the application's sys.path, and its working directory."""
    store_base: str = ""
    """Absolute; a relative SQLite path that the application names hangs here."""
    pools: tuple[PoolSettings, ...]
    kinds: Mapping[str, KindSettings] = {}
    kinds_shared: bool = False
    """The configuration is also another application's: it may know more kinds."""
    retention: Retention = Retention()
    memory_budget_bytes: int | None = None
    """What all attempts together may use; None: no bound."""
    app_timeout_s: float = 60.0
    """Loading the application takes at most so long."""
    lease_ttl_s: float = LEASE_TTL_S
    """Held for dead after so long without a renewal, by supervisors of other hosts."""
    unknown_for_s: float = UNKNOWN_FOR_S
    """A job whose arguments fit no living supervisor's handler waits for so long, then
    it is dead."""
    probation_s: float = PROBATION_S
    """A job that may have killed its host runs alone until it has run for so long;
    twice as long after each further loss (`suspicion.probation_s`)."""
